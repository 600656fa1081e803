/* The CPU backend's vtable: backend.h's functions over the pool (threads, streams), the interpreter
 * and the array memory. There is one device, the machine. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/mem.h"
#include "compute/cpu/ahead.h"
#include "compute/cpu/cpu_memory.h"
#include "compute/cpu/interp/interp.h"
#include "compute/cpu/loops/loops.h"
#include "compute/cpu/pool.h"
#include "compute/cpu/share.h"
#include "compute/ir/ir.h"
#include "compute/ir/ir_stages.h"

#define KEPT_MS 5e3 /* how long freed memory is kept for reuse */

struct cpu {
    struct backend base;
    struct pool *pool;
    struct cpu_memory *memory;
    struct ahead *ahead;
    const char *share_problem;
    struct culprits *culprits; /* or NULL */
};

static struct cpu *cpu_of(struct backend *b)
{
    return (struct cpu *)b;
}

static int default_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static void cpu_close(struct backend *b)
{
    struct cpu *c = cpu_of(b);
    pool_free(c->pool);
    ahead_free(c->ahead);
    cpu_memory_free(c->memory);
    mem_free(c);
}

static enum err_code cpu_open(const struct backend_config *config, struct backend **ret,
                              struct err *e)
{
    int threads = config->threads > 0 ? config->threads : default_threads();
    struct cpu *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->base.ops = &backend_cpu_ops;
    c->memory = cpu_memory_new(config->memory_limit);
    c->ahead = ahead_new();
    c->pool = pool_new(threads, config->inline_elements);
    if (!c->memory || !c->ahead || !c->pool) {
        cpu_close(&c->base);
        return err_set(e, ERR_OUT_OF_MEMORY, "the CPU backend could not start %d threads", threads);
    }
    c->culprits = config->culprits;
    pool_watch(c->pool, config->culprits, config->who);
    if (config->shareable)
        c->share_problem = cpu_share_problem();
    *ret = &c->base;
    return ERR_OK;
}

static int cpu_device_count(struct backend *b)
{
    (void)b;
    return 1;
}

static void cpu_device_info(struct backend *b, int device, struct backend_device *ret)
{
    struct cpu_memory_stats m;
    struct pool_stats p;
    cpu_memory_get_stats(cpu_of(b)->memory, &m);
    pool_get_stats(cpu_of(b)->pool, &p);
    *ret = (struct backend_device){.index = device,
                                   .memory_total = m.limit,
                                   .memory_limit = m.limit,
                                   .memory_most = m.limit,
                                   .memory_used = m.live,
                                   .memory_kept = m.cached,
                                   .memory_free = m.live < m.limit ? m.limit - m.live : 0};
    snprintf(ret->name, sizeof ret->name, "CPU, %d thread%s, %s", p.threads,
             p.threads == 1 ? "" : "s", loop_isa());
}

static enum err_code cpu_alloc(struct backend *b, int device, int64_t size, bool zero, void **ret,
                               struct err *e)
{
    (void)device;
    void *p = cpu_memory_get(cpu_of(b)->memory, size, zero);
    if (!p)
        return err_set(e, ERR_OUT_OF_MEMORY, "out of memory for an array of %lld bytes",
                       (long long)size);
    *ret = p;
    return ERR_OK;
}

static void cpu_free(struct backend *b, int device, void *p, int64_t size)
{
    (void)device;
    cpu_memory_put(cpu_of(b)->memory, p, size);
}

static enum err_code cpu_zero(struct backend *b, int device, void *p, int64_t size, struct err *e)
{
    (void)b, (void)device, (void)e;
    memset(p, 0, (size_t)size);
    return ERR_OK;
}

static const char *share_problem(struct backend *b, int device)
{
    (void)device;
    return cpu_of(b)->share_problem;
}

static enum err_code share_alloc(struct backend *b, int device, int64_t size, bool zero, bool must,
                                 struct shared_block *ret, struct err *e)
{
    (void)device; /* always zeroed */
    TRY(cpu_share_alloc(cpu_of(b)->memory, size, must, ret, e));
    if (!zero) /* else it may never be touched */
        ahead_begin(cpu_of(b)->ahead, ret->data, ret->size);
    return ERR_OK;
}

static enum err_code share_import(struct backend *b, int device, const int *fds, int n,
                                  int64_t size, struct shared_block *ret, bool *ret_sealed,
                                  struct err *e)
{
    (void)device;
    if (n != 1)
        return err_set(e, ERR_STATE, "memory of the CPU has one descriptor");
    return cpu_share_import(cpu_of(b)->memory, fds[0], size, ret, ret_sealed, e);
}

static bool share_fits(struct backend *b, int device, const struct shared_block *share,
                       enum share_mode mode)
{
    (void)b, (void)device;
    return cpu_share_fits(share, mode);
}

static enum err_code share_export(struct backend *b, int device, const struct shared_block *share,
                                  int part, enum share_mode mode, bool again, int *ret_fd,
                                  struct err *e)
{
    (void)b, (void)device, (void)part, (void)again;
    return cpu_share_export(share, mode, ret_fd, e);
}

static void share_free(struct backend *b, int device, const struct shared_block *share)
{
    (void)device;
    ahead_end(cpu_of(b)->ahead, share->data);
    cpu_share_free(cpu_of(b)->memory, share);
}

static void cpu_uuid(struct backend *b, int device, char ret[DEVICE_UUID])
{
    (void)b, (void)device;
    ret[0] = '\0';
}

static enum err_code cpu_host_alloc(struct backend *b, int64_t size, int *ret_fd, void **ret,
                                    struct err *e)
{
    if (ret_fd)
        return cpu_share_out(cpu_of(b)->memory, size, ret_fd, ret, e);
    void *p = cpu_memory_get_out(cpu_of(b)->memory, size);
    if (!p)
        return err_set(e, ERR_OUT_OF_MEMORY,
                       "this array needs %lld bytes, which the machine does not have",
                       (long long)size);
    *ret = p;
    return ERR_OK;
}

static enum err_code cpu_host_import(struct backend *b, int fd, int64_t size, void **ret,
                                     struct err *e)
{
    return cpu_share_out_import(cpu_of(b)->memory, fd, size, ret, e);
}

static void cpu_host_free(struct backend *b, void *p, int64_t size, bool of_file)
{
    if (of_file)
        cpu_share_out_free(cpu_of(b)->memory, p, size);
    else
        cpu_memory_put_out(cpu_of(b)->memory, p, size);
}

static void *cpu_host(struct backend *b, void *p)
{
    (void)b;
    return p;
}

static enum err_code cpu_stream_new(struct backend *b, int device, bool background,
                                    struct backend_stream **ret, struct err *e)
{
    (void)device, (void)background;
    struct backend_stream *s = pool_stream_new(cpu_of(b)->pool);
    if (!s)
        return err_oom(e);
    *ret = s;
    return ERR_OK;
}

static void cpu_reason(struct backend *b, uint64_t refusal, char *ret, size_t n)
{
    char why[CULPRITS_TEXT] = "";
    if (cpu_of(b)->culprits)
        culprits_reason(cpu_of(b)->culprits, refusal, why);
    snprintf(ret, n, "%s", why);
}

/* Made-up addresses of n slots, for preparing a run, which computes with them but never
 * dereferences them. NULL without memory. */
static void **made_up_slots(uint32_t n)
{
    void **slots = mem_reallocarray(NULL, n + 1, sizeof *slots);
    for (uint32_t i = 0; slots && i < n; i++)
        slots[i] = (void *)((uintptr_t)(i + 1) << 32);
    return slots;
}

static uint32_t cpu_steps(struct backend *b, int device, const struct ir_kernel *k,
                          const char **ret_why)
{
    (void)device;
    struct pool_stats p;
    pool_get_stats(cpu_of(b)->pool, &p);
    void **slots = made_up_slots(ir_slots(k));
    *ret_why = "out of memory";
    const uint32_t steps = slots ? interp_best_steps(k, slots, p.threads, ret_why) : 1;
    mem_free(slots);
    return steps;
}

static void cpu_explain(struct backend *b, int device, const struct ir_kernel *k,
                        struct kernel_explanation *ret)
{
    (void)device;
    struct pool_stats p;
    pool_get_stats(cpu_of(b)->pool, &p);
    void **slots = made_up_slots(ir_slots(k));
    struct interp_run *run = slots ? interp_new(k, slots, p.threads) : NULL;
    *ret = (struct kernel_explanation){.form = "rows", .registers = -1, .shared = -1, .local = -1};
    ret->cached = true; /* there is nothing to compile */
    if (run) {
        ret->form = interp_shape(run);
        interp_describe(run, &ret->source);
    } else {
        ret->source.failed = true;
    }
    ir_print(k, &ret->source);
    interp_free(run);
    mem_free(slots);
}

static bool cpu_explain_whole(struct backend *b, int device, const struct ir_whole *w,
                              struct kernel_explanation *ret, const char **ret_why)
{
    (void)device;
    struct pool_stats p;
    struct interp_run *run = NULL;
    uint32_t n = 0;
    bool never;
    pool_get_stats(cpu_of(b)->pool, &p);
    for (uint32_t i = 0; i < w->n_parts; i++)
        n = ir_slots(w->parts[i]) > n ? ir_slots(w->parts[i]) : n;
    void **slots = made_up_slots(n);
    const bool had_memory = slots && interp_whole_new(w, slots, p.threads, &run, &never);
    *ret = (struct kernel_explanation){.form = "fold", .registers = -1, .shared = -1, .local = -1};
    ret->cached = true;
    ret->source.failed = !had_memory;
    *ret_why = had_memory && !run ? "its parts run side by side or one after the other" : "";
    if (run) {
        interp_describe(run, &ret->source);
        ir_print(w->kernel, &ret->source);
    }
    interp_free(run);
    mem_free(slots);
    return !had_memory || run;
}

static void cpu_metrics(struct backend *b, struct strb *out)
{
    struct cpu_memory_stats m;
    struct pool_stats p;
    cpu_memory_get_stats(cpu_of(b)->memory, &m);
    pool_get_stats(cpu_of(b)->pool, &p);
    const struct {
        const char *name, *type, *help;
        int64_t v;
    } lines[] = {
        {"arrayd_cpu_threads", "gauge", "Worker threads.", p.threads},
        {"arrayd_cpu_jobs_total", "counter", "Jobs completed.", p.jobs},
        {"arrayd_cpu_inline_jobs_total", "counter",
         "Device jobs run by the thread that submitted them.", p.inline_jobs},
        {"arrayd_cpu_kernels_total", "counter", "Kernels run.", p.kernels},
        {"arrayd_cpu_units_total", "counter", "Units of work of kernels run by the worker threads.",
         p.units},
        {"arrayd_cpu_memory_live_bytes", "gauge", "Array memory in use.", m.live},
        {"arrayd_cpu_memory_cached_bytes", "gauge", "Freed array memory kept for reuse.", m.cached},
        {"arrayd_cpu_memory_cache_hits_total", "counter", "Large blocks of memory reused.", m.hits},
        {"arrayd_cpu_memory_cache_misses_total", "counter", "Large blocks of memory mapped.",
         m.misses},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        strb_addf(out, "# HELP %s %s\n# TYPE %s %s\n%s %lld\n", lines[i].name, lines[i].help,
                  lines[i].name, lines[i].type, lines[i].name, (long long)lines[i].v);
}

static void cpu_tidy(struct backend *b)
{
    cpu_memory_tidy(cpu_of(b)->memory, KEPT_MS);
}

const struct backend_ops backend_cpu_ops = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .device_count = cpu_device_count,
    .device_info = cpu_device_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .share_problem = share_problem,
    .share_alloc = share_alloc,
    .share_import = share_import,
    .share_fits = share_fits,
    .share_export = share_export,
    .share_free = share_free,
    .zero = cpu_zero,
    .uuid = cpu_uuid,
    .host_alloc = cpu_host_alloc,
    .host_import = cpu_host_import,
    .host_free = cpu_host_free,
    .host = cpu_host,
    .recompute = 32,
    .steps = cpu_steps,
    .max_cost = 40000000000000, /* an hour of ten cores, about */
    .stream_new = cpu_stream_new,
    .stream_free = pool_stream_free,
    .submit = pool_submit,
    .passed = pool_passed,
    .reason = cpu_reason,
    .explain = cpu_explain,
    .explain_whole = cpu_explain_whole,
    .metrics = cpu_metrics,
    .tidy = cpu_tidy,
};
