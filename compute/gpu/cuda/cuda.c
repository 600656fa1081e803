/* The CUDA backend's vtable: finding the GPUs, devices and their contexts, backend.h's functions.
 *
 * Every visible GPU that has memory pools is a device. Each has its primary context (shared with
 * any library in the process), entered by every thread that calls the driver.
 *
 * Opening costs what the driver and NVRTC cost: contexts take tenths of a second each. The one
 * module that is always needed is compiled meanwhile, because that needs no context. It also shows
 * that this NVRTC can compile for these GPUs at all, so opening waits for it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/gpu/api/gone.h"
#include "compute/gpu/api/health.h"
#include "compute/gpu/cuda/fault.h"
#include "compute/gpu/cuda/prepare.h"
#include "compute/gpu/cuda/queue.h"
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/device/stream.h"
#include "compute/gpu/transfer/pack.h"
#include "compute/gpu/transfer/slab.h"
#include "compute/gpu/transfer/transfer.h"

#define KERNEL_CACHE_ENTRIES 4096
#define INTERPRET_BYTES      (1 << 30)
#define INTERPRET_STEPS      (16 << 20) /* take the interpreter some 50 µs */
#define MOST_COMPILE_THREADS 8
#define SHARED_UNASKED       49152 /* bytes per block that every GPU has */

static struct cuda *cuda_of(struct backend *b)
{
    return (struct cuda *)b;
}

static bool cuda_lost(struct backend *b)
{
    return atomic_load(&cuda_of(b)->lost);
}

static void cuda_reason(struct backend *b, uint64_t refusal, char *ret, size_t n)
{
    char why[KCACHE_REASON];
    _Static_assert(CULPRITS_TEXT <= KCACHE_REASON, "room for either");
    if (refusal & CULPRITS_NUMBER)
        culprits_reason(cuda_of(b)->culprits, refusal, why);
    else
        kcache_reason(cuda_of(b)->kcache, refusal, why);
    snprintf(ret, n, "%s", why);
}

static void cuda_report(struct backend *b, struct backend_report *ret)
{
    struct cuda *c = cuda_of(b);
    struct kcache_stats k;
    kcache_get_stats(c->kcache, &k);
    if (*k.disk_problem)
        snprintf(ret->warning, sizeof ret->warning,
                 "some or all compiled kernels are not kept on disk: %s", k.disk_problem);
    size_t used = strlen(ret->warning);
    if (culprits_count(c->culprits))
        snprintf(ret->warning + used, sizeof ret->warning - used,
                 "%s%d kernels or plans are refused, because they were running on a device that "
                 "faulted: `GET /v1/faults` lists them",
                 used ? "; " : "", culprits_count(c->culprits));
    used = strlen(ret->warning);
    if (c->n_devices > c->n_gpus && !mesh_is_linked(&c->devices[c->n_gpus]))
        snprintf(ret->warning + used, sizeof ret->warning - used,
                 "%sGPUs of the mesh reach each other's memory over PCIe, not NVLink: `arrayd "
                 "doctor --mesh %.40s` says which",
                 used ? "; " : "", c->config.mesh);
    memcpy(ret->timings, c->timings, sizeof ret->timings);
}

/* --- opening --- */

/* Notes the time of a step that began at *since, where the next step begins. */
static void timed(struct cuda *c, const char *step, double *since)
{
    size_t n = strlen(c->timings);
    double now = clock_ms();
    snprintf(c->timings + n, sizeof c->timings - n, "%s%s %.1f ms", n ? ", " : "", step,
             now - *since);
    *since = now;
}

static int default_compile_threads(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) / 2 : 1;
    return n < 1 ? 1 : n > MOST_COMPILE_THREADS ? MOST_COMPILE_THREADS : n;
}

static int attribute(struct cuda *c, CUdevice device, int which)
{
    int v = 0;
    return c->driver->cuDeviceGetAttribute(&v, which, device) == CUDA_SUCCESS ? v : 0;
}

/* In the format of NVIDIA's tools. */
static void write_uuid(const CUuuid *id, char ret[DEVICE_UUID])
{
    size_t n = (size_t)snprintf(ret, DEVICE_UUID, "GPU");
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(ret + n, DEVICE_UUID - n,
                              i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                              id->bytes[i]);
}

/* Sets the device's identity; everything else follows later. */
static void device_begin(struct cuda *c, struct cuda_device *d, CUdevice handle)
{
    const struct driver *v = c->driver;
    *d = (struct cuda_device){.cuda = c,
                              .index = (int)(d - c->devices),
                              .handle = handle,
                              .members = {d},
                              .n_members = 1};
    if (v->cuDeviceGetName(d->name, sizeof d->name, handle) != CUDA_SUCCESS)
        snprintf(d->name, sizeof d->name, "GPU %d", handle);
    (void)v->cuDeviceTotalMem(&d->memory_total, handle);
    CUuuid id = {{0}};
    if (v->cuDeviceGetUuid(&id, handle) == CUDA_SUCCESS)
        write_uuid(&id, d->uuid);
    const int major = attribute(c, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    d->copies_boxes = major >= 9;
    d->shared = attribute(c, handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (d->shared < SHARED_UNASKED) /* it could not be read */
        d->shared = SHARED_UNASKED;
    snprintf(d->arch, sizeof d->arch, "sm_%d%d", major,
             attribute(c, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

static enum err_code device_open(struct cuda_device *d, struct err *e)
{
    struct cuda *c = d->cuda;
    double since = clock_ms();
    TRY(cuda_check(c, c->driver->cuDevicePrimaryCtxRetain(&d->context, d->handle),
                   "cuDevicePrimaryCtxRetain", e));
    d->opened = 1;
    timed(c, "context", &since);
    if (!cuda_enter(d))
        return err_set(e, ERR_DEVICE_LOST, "device %d cannot be used", d->index);
    TRY(cuda_memory_open(d, e));
    d->opened = 2;
    timed(c, "pool", &since);
    if (c->config.shareable) {
        cuda_share_open(d);
        timed(c, "sharing", &since);
    }
    TRY(cuda_slabs_open(d, e));
    d->opened = 3;
    timed(c, "slabs", &since);
    TRY(cuda_pack_open(d, e));
    d->opened = 4;
    timed(c, "module", &since);
    return cuda_queue_open(d, e);
}

static void device_close(struct cuda_device *d)
{
    if (d->opened >= 1)
        (void)cuda_enter(d);
    cuda_queue_close(d);
    if (d->opened >= 3)
        cuda_slabs_close(d); /* waits for copies, some of them made by kernels of the next */
    if (d->opened >= 4)
        cuda_pack_close(d);
    if (d->opened >= 2) {
        if (d->cuda->config.shareable)
            cuda_share_close(d);
        cuda_memory_close(d);
    }
}

static void cuda_close(struct backend *b)
{
    struct cuda *c = cuda_of(b);
    health_close(c->health);
    machines_close(c);
    cuda_compiler_close(c);
    machines_free(c);
    if (c->n_devices > c->n_gpus) {
        (void)cuda_enter(&c->devices[c->n_gpus]);
        cuda_queue_close(&c->devices[c->n_gpus]);
        mesh_close(&c->devices[c->n_gpus]);
    }
    for (int i = 0; i < c->n_gpus; i++)
        device_close(&c->devices[i]);
    if (c->own_culprits)
        culprits_close(c->culprits);
    else if (c->culprits)
        culprits_folder(c->culprits, -1);
    kcache_free(c->kcache);
    for (int i = 0; i < c->n_gpus; i++)
        if (c->devices[i].opened >= 1)
            (void)c->driver->cuDevicePrimaryCtxRelease(c->devices[i].handle);
    pthread_mutex_destroy(&c->fault_lock);
    pthread_mutex_destroy(&c->beside_lock);
    mem_free(c->devices);
    mem_free(c);
}

/* Finds the driver's devices that we can use. */
static enum err_code find_devices(struct cuda *c, struct err *e)
{
    const struct driver *v = c->driver;
    int n = 0, version = 0;
    CUresult r = v->cuInit(0);
    if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && v->cuDeviceGetCount(&n) != CUDA_SUCCESS))
        n = 0;
    else if (r != CUDA_SUCCESS) {
        const char *name = NULL;
        (void)v->cuGetErrorName(r, &name);
        return err_set(e, ERR_BAD_FIELD, "the CUDA driver failed to initialise: %s (%d)",
                       name ? name : "unknown error", r);
    }
    (void)v->cuDriverGetVersion(&version);
    if (n == 0)
        return err_set(e, ERR_BAD_FIELD,
                       "the CUDA driver (version %d.%d) found no GPU; CUDA_VISIBLE_DEVICES or the "
                       "container's --gpus option may hide it",
                       version / 1000, version % 1000 / 10);
    c->devices = mem_calloc((size_t)n + 1, sizeof *c->devices);
    if (!c->devices)
        return err_oom(e);
    for (int i = 0; i < n; i++) {
        CUdevice handle;
        if (v->cuDeviceGet(&handle, i) != CUDA_SUCCESS ||
            !attribute(c, handle, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
            continue;
        device_begin(c, &c->devices[c->n_gpus++], handle);
    }
    c->n_devices = c->n_gpus;
    return c->n_devices ? ERR_OK
                        : err_set(e, ERR_BAD_FIELD,
                                  "none of the %d GPUs has stream-ordered memory pools (some "
                                  "virtual machines lack them)",
                                  n);
}

/* A failure is not reported here: the first use of the module finds it again, with the reason. */
static void *compile_ahead(void *arg)
{
    struct cuda *c = arg;
    struct err e = ERR_INIT;
    if (cuda_pack_compile(c, c->devices[0].arch, &e) != ERR_OK)
        return NULL;
    return NULL;
}

/* In the order of c->devices; NULL without memory. The caller frees it. */
static CUdevice *handles_of(const struct cuda *c)
{
    CUdevice *handles = mem_calloc((size_t)c->n_gpus, sizeof *handles);
    for (int i = 0; handles && i < c->n_gpus; i++)
        handles[i] = c->devices[i].handle;
    return handles;
}

static enum err_code open_mesh(struct cuda *c, struct err *e)
{
    struct cuda_device *d = &c->devices[c->n_gpus];
    if (!c->config.mesh)
        return ERR_OK;
    *d = (struct cuda_device){.cuda = c, .index = c->n_gpus};
    c->n_devices++;
    TRY(mesh_open(d, e));
    return cuda_queue_open(d, e);
}

/* Nothing has been mapped yet. */
static enum err_code await_gone(struct gone *g, struct err *e)
{
    const int pid = gone_wait(g);
    return pid ? err_set(e, ERR_INTERNAL,
                         "process %d, whose memory is to be taken over, is still on a GPU", pid)
               : ERR_OK;
}

static enum err_code open_devices(struct cuda *c, struct err *e)
{
    pthread_t ahead;
    CUdevice *handles = handles_of(c);
    struct gone *before =
        handles ? gone_ask(c->driver, handles, c->n_gpus, c->config.before) : NULL;
    mem_free(handles);
    bool started = thread_start(&ahead, "arrayd-module", compile_ahead, c);
    enum err_code code = ERR_OK;
    for (int i = 0; i < c->n_gpus && code == ERR_OK; i++)
        code = device_open(&c->devices[i], e);
    if (started)
        pthread_join(ahead, NULL);
    enum err_code gone = await_gone(before, code == ERR_OK ? e : NULL);
    if (code == ERR_OK && gone == ERR_OK)
        code = open_mesh(c, e);
    return code != ERR_OK ? code : gone;
}

static enum err_code open_all(struct cuda *c, struct err *e)
{
    double since = clock_ms();
    TRY(loader_open(&c->driver, &c->nvrtc, e));
    timed(c, "libraries", &since);
    TRY(find_devices(c, e));
    timed(c, "driver", &since);
    struct kcache_config k = {
        .dir = c->config.kernel_cache,
        .ready = c->config.ready_kernels,
        .max_disk_bytes = c->config.kernel_cache_bytes,
        .max_entries = c->config.kernel_cache_entries > 0 ? c->config.kernel_cache_entries
                                                          : KERNEL_CACHE_ENTRIES,
        .user_free = cuda_modules_free,
    };
    TRY(kcache_new(&k, c->nvrtc, &c->kcache, e));
    c->own_culprits = !c->config.culprits;
    c->culprits = c->own_culprits ? culprits_open(false, -1) : c->config.culprits;
    if (!c->culprits)
        return err_oom(e);
    culprits_folder(c->culprits, kcache_folder(c->kcache));
    TRY(cuda_compiler_open(c, e));
    TRY(open_devices(c, e));
    return machines_open(c, e);
}

static struct health *watch_devices(const struct cuda *c)
{
    CUdevice *handles = handles_of(c);
    struct health *h = handles ? health_open(c->driver, handles, c->n_gpus) : NULL;
    mem_free(handles);
    return h;
}

static enum err_code cuda_open(const struct backend_config *config, struct backend **ret,
                               struct err *e)
{
    struct cuda *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->base.ops = &backend_cuda_ops;
    c->config = *config;
    pthread_mutex_init(&c->fault_lock, NULL);
    pthread_mutex_init(&c->beside_lock, NULL);
    atomic_init(&c->lost_device, -1);
    if (c->config.compile_threads <= 0)
        c->config.compile_threads = default_compile_threads();
    if (c->config.interpret_bytes <= 0)
        c->config.interpret_bytes = INTERPRET_BYTES;
    if (c->config.interpret_steps <= 0)
        c->config.interpret_steps = INTERPRET_STEPS;
    if (c->config.mesh_least <= 0)
        c->config.mesh_least = MESH_LEAST;
    enum err_code code = open_all(c, e);
    if (code != ERR_OK) {
        if (c->driver)
            cuda_close(&c->base);
        else
            mem_free(c);
        return code;
    }
    c->health = watch_devices(c);
    *ret = &c->base;
    atomic_store(&c->opened, true);
    if (atomic_load(&c->lost)) /* lost on another thread before the line above */
        cuda_tell_lost(c);
#ifdef ARRAYD_FAULT_HOOK
    cuda_fault_hook(&c->devices[0]);
#endif
    return ERR_OK;
}

/* --- what is available --- */

static int cuda_device_count(struct backend *b)
{
    return cuda_of(b)->n_devices;
}

static void cuda_device_info(struct backend *b, int device, struct backend_device *ret)
{
    struct cuda_device *d = &cuda_of(b)->devices[device];
    struct cuda_memory_stats m = {0};
    if (d->n_members == 1) /* what a mesh has free follows from its parts */
        cuda_memory_stats(d, &m);
    *ret = (struct backend_device){.index = device,
                                   .memory_total = (int64_t)d->memory_total,
                                   .memory_limit = (int64_t)d->memory_total,
                                   .memory_most = m.most,
                                   .memory_of_mesh = m.of_mesh,
                                   .memory_used = m.live - mesh_kept(d),
                                   .memory_kept = m.reserved - m.used + mesh_kept(d),
                                   .memory_free = m.free + (m.reserved - m.used)};
    int64_t limit = d->cuda->config.memory_limit * d->n_members;
    mesh_parts(d, ret);
    for (int k = 0; k < ret->n_parts; k++)
        ret->memory_kept += mesh_kept(d->members[k]);
    if (limit > 0 && limit < ret->memory_limit)
        ret->memory_limit = limit;
    if (limit > 0 && limit < ret->memory_most)
        ret->memory_most = limit;
    if (limit > 0 && limit - m.live < ret->memory_free)
        ret->memory_free =
            m.live < limit ? limit - m.live : 0; /* what was taken over may be more */
    ret->memory_free += mesh_kept(d);
    memcpy(ret->name, d->name, sizeof ret->name);
    memcpy(ret->architecture, d->arch, sizeof d->arch);
}

static void cuda_uuid(struct backend *b, int device, char ret[DEVICE_UUID])
{
    memcpy(ret, cuda_of(b)->devices[device].uuid, DEVICE_UUID);
}

static void *cuda_host(struct backend *b, void *p)
{
    (void)b;
    (void)p;
    return NULL;
}

static void cuda_tidy(struct backend *b)
{
    mesh_tidy(cuda_of(b));
}

static void line(struct strb *out, const char *name, const char *type, const char *help)
{
    strb_addf(out, "# HELP arrayd_cuda_%s %s\n# TYPE arrayd_cuda_%s %s\n", name, help, name, type);
}

static void device_metrics(struct cuda *c, struct strb *out)
{
    static const struct {
        const char *name, *type, *help;
    } lines[] = {
        {"memory_live_bytes", "gauge", "Device memory allocated, in bytes."},
        {"memory_reserved_bytes", "gauge", "Device memory held by the pool, in bytes."},
        {"allocations_total", "counter", "Device allocations."},
        {"trims_total", "counter", "Times the pool was emptied because memory ran out."},
        {"mesh_kept_bytes", "gauge",
         "Of the device memory allocated, what is free on the mesh, and kept for its next arrays."},
        {"slab_bytes", "gauge", "Pinned host memory, in bytes."},
        {"slab_free_bytes", "gauge", "Pinned host memory not used by a transfer, in bytes."},
        {"slab_copies_total", "counter", "Slabs copied to or from the device."},
        {"slab_waits_total", "counter", "Transfers that had to wait for a slab."},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        line(out, lines[i].name, lines[i].type, lines[i].help);
        for (int k = 0; k < c->n_gpus; k++) {
            struct cuda_memory_stats m = {0};
            struct cuda_slab_stats s = {0};
            cuda_memory_stats(&c->devices[k], &m);
            cuda_slab_stats(&c->devices[k], &s);
            const int64_t values[] = {
                m.live,  m.reserved,   m.allocations, m.trims, mesh_kept(&c->devices[k]),
                s.bytes, s.free_bytes, s.copies,      s.waits};
            strb_addf(out, "arrayd_cuda_%s{device=\"%d\"} %lld\n", lines[i].name, k,
                      (long long)values[i]);
        }
    }
}

static void cuda_metrics(struct backend *b, struct strb *out)
{
    struct cuda *c = cuda_of(b);
    struct kcache_stats k;
    kcache_get_stats(c->kcache, &k);
    line(out, "kernel_cache_total", "counter",
         "Lookups of kernels, by where the kernel was found.");
    strb_addf(out,
              "arrayd_cuda_kernel_cache_total{from=\"memory\"} %lld\n"
              "arrayd_cuda_kernel_cache_total{from=\"disk\"} %lld\n"
              "arrayd_cuda_kernel_cache_total{from=\"compiler\"} %lld\n",
              (long long)k.memory_hits, (long long)k.disk_hits, (long long)k.compiled);
    line(out, "kernel_compile_failures_total", "counter", "Kernels that did not compile.");
    strb_addf(out, "arrayd_cuda_kernel_compile_failures_total %lld\n", (long long)k.failed);
    line(out, "kernel_compile_seconds_total", "counter",
         "Time spent compiling kernels, in seconds.");
    strb_addf(out, "arrayd_cuda_kernel_compile_seconds_total %.6f\n", k.compile_ms * 1e-3);
    line(out, "kernels_interpreted_total", "counter",
         "Launches of kernels that were not compiled yet, by the interpreter.");
    strb_addf(out, "arrayd_cuda_kernels_interpreted_total %lld\n",
              (long long)atomic_load(&c->interpreted));
    if (c->n_devices > c->n_gpus) {
        line(out, "mesh_remote_bytes_total", "counter",
             "Bytes, about, that GPUs of the mesh read and wrote of each other's memory for "
             "kernels.");
        strb_addf(out, "arrayd_cuda_mesh_remote_bytes_total %lld\n",
                  (long long)atomic_load(&c->mesh_remote));
    }
    line(out, "wholes_total", "counter",
         "Launches of one kernel in place of several over the same rows.");
    strb_addf(out, "arrayd_cuda_wholes_total %lld\n", (long long)atomic_load(&c->wholes));
    line(out, "kernels_refused", "gauge",
         "Kernels and plans that are refused because a device faulted.");
    strb_addf(out, "arrayd_cuda_kernels_refused %d\n", culprits_count(c->culprits));
    line(out, "kernel_cache_entries", "gauge", "Compiled kernels in memory.");
    strb_addf(out, "arrayd_cuda_kernel_cache_entries %lld\n", (long long)k.entries);
    line(out, "kernel_cache_disk_bytes", "gauge", "Size of the kernel cache on disk, in bytes.");
    strb_addf(out, "arrayd_cuda_kernel_cache_disk_bytes %lld\n", (long long)k.disk_bytes);
    line(out, "kernel_cache_disk_errors_total", "counter",
         "Files of the kernel cache that could not be used.");
    strb_addf(out, "arrayd_cuda_kernel_cache_disk_errors_total %lld\n", (long long)k.disk_errors);
    line(out, "mesh_parts", "gauge", "GPUs that are one device together; 0: there is no mesh.");
    strb_addf(out, "arrayd_cuda_mesh_parts %d\n",
              c->n_devices > c->n_gpus ? c->devices[c->n_gpus].n_members : 0);
    device_metrics(c, out);
    health_metrics(c->health, out);
}

const struct backend_ops backend_cuda_ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_placed = cuda_alloc_placed,
    .divided = cuda_divided,
    .taken = cuda_taken,
    .share_problem = cuda_share_problem,
    .share_import = cuda_share_import,
    .share_alloc = cuda_share_alloc,
    .share_export = cuda_share_export,
    .share_free = cuda_share_free,
    .zero = cuda_zero,
    .uuid = cuda_uuid,
    .host_alloc = cuda_host_alloc,
    .host_import = cuda_host_import,
    .host_free = cuda_host_free,
    .host = cuda_host,
    .upload_new = cuda_upload_new,
    .upload_reserve = cuda_upload_reserve,
    .upload_advance = cuda_upload_advance,
    .upload_join = cuda_upload_join,
    .download_new = cuda_download_new,
    .download_start = cuda_download_start,
    .download_pull = cuda_download_pull,
    .transfer_result = cuda_transfer_result,
    .transfer_free = cuda_transfer_free,
    .prepare = cuda_prepare_op,
    .release = cuda_release,
    .lost = cuda_lost,
    .report = cuda_report,
    .steps = cuda_steps,
    .recompute = 400,
    .window = 180,
    .faults = true,
    .max_cost = 4000000000000000,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .submit = cuda_submit,
    .passed = cuda_passed,
    .poll = cuda_poll,
    .reason = cuda_reason,
    .explain = cuda_explain,
    .explain_whole = cuda_explain_whole,
    .wholes_bound = true,
    .metrics = cuda_metrics,
    .tidy = cuda_tidy,
};
