/* Making kernels from a recorded pass: one list of kernels over one numbering of the memory, fused
 * (ir_fuse.h), and, if that leaves one kernel that carries each array from one memory to another,
 * that kernel for several steps at once.
 *
 * The passes of a loop, and of the next loop, are the same kernels over other memory: the result is
 * cached by the identity of the kernels and by which slots share memory, not by its addresses. */
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/ir/ir_fuse.h"
#include "compute/ir/ir_whole.h"
#include "compute/program/loop_int.h"

#define KEPT 64

struct loop_kept {
    struct kept kept_by_engine;
    pthread_mutex_t lock;
    struct loop_kernels *kept[KEPT]; /* a reference each; most recently used first */
    size_t n, bytes, most_bytes;
};

void loop_kernels_took(struct loop_kernels *k, double device_ms, int64_t steps)
{
    atomic_store(&k->step_ms, (float)(device_ms / (double)steps));
}

struct loop_kernels *loop_kernels_ref(struct loop_kernels *k)
{
    atomic_fetch_add(&k->refs, 1);
    return k;
}

void loop_kernels_unref(struct loop_kernels *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1)
        return;
    kernels_release(k->engine, k->kernels, k->n_kernels);
    for (int i = 0; i < SEVERAL && k->several[i]; i++)
        kernels_release(k->engine, &k->several[i], 1);
    for (size_t i = 0; i < k->n_entries; i++)
        plan_entry_unref(k->entries[i]);
    arena_free(k->arena);
}

/* Kept kernels count for no request (meter.h), nor do the plans whose kernels the key names; with
 * the lock held. */
static void begin_keeping(struct loop_kept *kept, struct loop_kernels *k)
{
    loop_kernels_ref(k);
    arena_exempt(k->arena, true);
    kept->bytes += k->bytes;
    for (size_t i = 0; i < k->n_entries; i++)
        kept->bytes += plan_entry_keep(k->entries[i]);
}

/* The caller gets the reference. */
static void end_keeping(struct loop_kept *kept, struct loop_kernels *k)
{
    arena_exempt(k->arena, false);
    kept->bytes -= k->bytes;
    for (size_t i = 0; i < k->n_entries; i++)
        kept->bytes -= plan_entry_unkeep(k->entries[i]);
}

static void kept_free(struct kept *k)
{
    struct loop_kept *kept = (struct loop_kept *)k;
    for (size_t i = 0; i < kept->n; i++) {
        end_keeping(kept, kept->kept[i]);
        loop_kernels_unref(kept->kept[i]);
    }
    pthread_mutex_destroy(&kept->lock);
    mem_free(kept);
}

/* Made on first use; NULL without memory. */
static struct loop_kept *kept_of(struct engine *g)
{
    struct kept *there = atomic_load(&g->loops);
    if (there)
        return (struct loop_kept *)there;
    struct loop_kept *kept = mem_calloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    kept->kept_by_engine.free = kept_free;
    kept->most_bytes = (size_t)g->plan_cache_bytes;
    pthread_mutex_init(&kept->lock, NULL); /* cannot fail here */
    if (atomic_compare_exchange_strong(&g->loops, &there, &kept->kept_by_engine))
        return kept;
    kept_free(&kept->kept_by_engine);
    return (struct loop_kept *)there;
}

struct loop_report loop_report_within(struct loop_report r, int64_t most, const char *why)
{
    for (int i = 1; r.steps > most; i++) {
        r.steps = i < SEVERAL ? r.steps / 2 : 1;
        r.why = why;
    }
    return r;
}

/* --- the key --- */

static uint32_t number(const struct loop_pass *p, const void *data)
{
    uint32_t i = 0;
    while (p->slots[i].data != data)
        i++;
    return i;
}

static void put(struct strb *key, uint64_t x)
{
    strb_addn(key, (const char *)&x, sizeof x);
}

static void put_key(struct strb *key, const struct loop_pass *p)
{
    for (size_t i = 0; i < p->n_slots; i++) {
        put(key, (uint64_t)p->slots[i].carried_to << 1 | p->slots[i].dead);
        put(key, (uint64_t)p->slots[i].size);
    }
    for (size_t i = 0; i < p->n_tasks; i++) {
        const struct job *job = &p->tasks[i]->job;
        for (uint32_t k = 0; k < job->n_kernels; k++) {
            const struct ir_kernel *kernel = job->kernels[k];
            put(key, (uint64_t)(uintptr_t)kernel);
            for (uint32_t a = 0; a < kernel->n_inputs; a++)
                put(key, number(p, job->slots[kernel->inputs[a].slot]));
            for (uint32_t a = 0; a < kernel->n_outputs; a++)
                put(key, number(p, job->slots[kernel->outputs[a].slot]));
        }
    }
}

/* --- making --- */

/* The kernel with the pass's slot numbers. */
static struct ir_kernel *renumber(struct arena *arena, const struct loop_pass *p,
                                  const struct job *job, uint32_t i)
{
    const struct ir_kernel *from = job->kernels[i];
    struct ir_kernel *k = arena_dup(arena, from, sizeof *k);
    if (!k)
        return NULL;
    atomic_store(&k->prepared, NULL);
    atomic_store(&k->identity, 0);
    k->whole = NULL; /* its slots are the plan's */
    k->inputs = arena_dup(arena, from->inputs, sizeof *k->inputs * from->n_inputs);
    k->outputs = arena_dup(arena, from->outputs, sizeof *k->outputs * from->n_outputs);
    if (!k->inputs || !k->outputs)
        return NULL;
    k->cap_inputs = k->n_inputs;
    k->cap_outputs = k->n_outputs;
    for (uint32_t a = 0; a < k->n_inputs; a++)
        k->inputs[a].slot = number(p, job->slots[from->inputs[a].slot]);
    for (uint32_t a = 0; a < k->n_outputs; a++)
        k->outputs[a].slot = number(p, job->slots[from->outputs[a].slot]);
    return k;
}

static bool renumber_all(struct loop_kernels *k, const struct loop_pass *p)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->n_tasks; i++)
        n += p->tasks[i]->job.n_kernels;
    k->kernels = arena_alloc_array(k->arena, n, sizeof(struct ir_kernel *));
    k->entries = arena_alloc_array(k->arena, p->n_tasks, sizeof(struct plan_entry *));
    if (!k->kernels || !k->entries)
        return false;
    for (size_t i = 0; i < p->n_tasks; i++) {
        const struct job *job = &p->tasks[i]->job;
        k->entries[k->n_entries++] = plan_entry_ref(p->tasks[i]->entry);
        for (uint32_t j = 0; j < job->n_kernels; j++) {
            struct ir_kernel *x = renumber(k->arena, p, job, j);
            if (!x)
                return false;
            k->kernels[k->n_kernels++] = x;
        }
    }
    return true;
}

static enum err_code fuse(struct loop_kernels *k, const struct loop_pass *p, struct err *e)
{
    bool *dead = arena_alloc_array(k->arena, p->n_slots, sizeof *dead);
    int64_t *bytes = arena_alloc_array(k->arena, p->n_slots, sizeof *bytes);
    if (!dead || !bytes)
        return err_oom(e);
    for (size_t i = 0; i < p->n_slots; i++) {
        dead[i] = p->slots[i].dead;
        bytes[i] = p->slots[i].size;
    }
    const struct ir_fuse_request req = {.kernels = k->kernels,
                                        .n_kernels = k->n_kernels,
                                        .dead = dead,
                                        .bytes = bytes,
                                        .n_slots = (uint32_t)p->n_slots,
                                        .limits = k->engine->fuse};
    return ir_fuse(k->arena, &req, &k->kernels, &k->n_kernels, e);
}

/* Attaches wholes to the kernels: what a pass leaves in dead memory, nobody reads. */
static bool find_wholes(const struct loop_kernels *k, const struct loop_pass *p)
{
    struct ir_plan plan = {.slots = arena_alloc_array(k->arena, p->n_slots, sizeof *plan.slots),
                           .n_slots = (uint32_t)p->n_slots,
                           .kernels = k->kernels,
                           .n_kernels = k->n_kernels};
    if (!plan.slots)
        return false;
    for (size_t i = 0; i < p->n_slots; i++)
        plan.slots[i].kind = p->slots[i].dead ? SLOT_TEMP : SLOT_RESULT;
    for (uint32_t i = 0; i < k->n_kernels; i++)
        for (uint32_t a = 0; a < k->kernels[i]->n_inputs; a++)
            plan.slots[k->kernels[i]->inputs[a].slot].last = i;
    return ir_find_wholes(k->arena, &plan, &k->engine->fuse);
}

static bool same_view(const struct view *a, const struct view *b)
{
    if (!view_same_shape(a, b) || a->offset != b->offset)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] > 1 && a->strides[i] != b->strides[i])
            return false;
    return true;
}

/* 1 + the number of the only input whose memory the pass carries on to the output's. */
static uint32_t fed_input(const struct ir_kernel *k, const struct loop_pass *p,
                          const struct ir_output *out)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const struct ir_input *in = &k->inputs[i];
        if (p->slots[in->slot].carried_to != out->slot)
            continue;
        if (found || in->gathered || in->dtype != out->dtype || !same_view(&in->view, &out->view))
            return 0;
        found = i + 1;
    }
    return found;
}

/* The kernels for several steps at once, if any. */
static bool make_several(struct loop_kernels *k, int device, const struct loop_pass *p)
{
    const struct backend_ops *ops = k->engine->backend->ops;
    if (!ops->steps || k->n_kernels != 1) {
        k->why =
            ops->steps ? "a step is more than one kernel" : "this backend runs one step in a pass";
        return true;
    }
    struct ir_kernel *x = arena_dup(k->arena, k->kernels[0], sizeof *x);
    if (!x)
        return false;
    x->outputs = arena_dup(k->arena, x->outputs, sizeof *x->outputs * x->n_outputs);
    if (!x->outputs)
        return false;
    for (uint32_t i = 0; i < x->n_outputs; i++) {
        struct ir_output *out = &x->outputs[i];
        out->feeds = out->kind == OUT_STORE ? fed_input(x, p, out) : 0;
        if (!out->feeds) {
            k->why = "the next step does not read everything that a step writes";
            return true;
        }
    }
    uint32_t steps = ops->steps(k->engine->backend, device, x, &k->why);
    for (int i = 0; i < SEVERAL && steps > 1; i++, steps /= 2) {
        k->several[i] = arena_dup(k->arena, x, sizeof *x);
        if (!k->several[i])
            return false;
        k->several[i]->steps = steps;
    }
    return true;
}

/* Memory that it takes, including what is kept elsewhere for its kernels. */
static bool measure(struct loop_kernels *k)
{
    size_t n = k->n_kernels;
    for (uint32_t i = 0; i < k->n_kernels; i++)
        for (const struct ir_whole *w = k->kernels[i]->whole; w; w = w->next)
            n++;
    for (int i = 0; i < SEVERAL && k->several[i]; i++)
        n++;
    size_t elsewhere = n * k->engine->kernel_bytes;
    k->bytes = arena_bytes(k->arena) + elsewhere;
    return arena_count(k->arena, elsewhere);
}

static enum err_code make(struct engine_stream *s, const struct loop_pass *p,
                          const struct strb *key, struct loop_kernels **ret, struct err *e)
{
    struct arena *arena = arena_new(0);
    struct loop_kernels *k = arena ? arena_alloc(arena, sizeof *k) : NULL;
    if (!k) {
        arena_free(arena);
        return err_oom(e);
    }
    *k = (struct loop_kernels){.engine = s->engine, .arena = arena};
    atomic_store(&k->refs, 1);
    k->key = arena_dup(arena, key->data, key->len);
    k->key_len = key->len;
    enum err_code code = k->key && renumber_all(k, p) ? fuse(k, p, e) : err_oom(e);
    if (code == ERR_OK && s->engine->backend->ops->wholes_bound && !find_wholes(k, p))
        code = err_oom(e);
    if (code == ERR_OK && (!make_several(k, s->device, p) || !measure(k)))
        code = err_oom(e);
    if (code == ERR_OK)
        *ret = k;
    else
        loop_kernels_unref(k);
    return code;
}

/* A pass without kernels has an empty key. */
static bool has_key(const struct loop_kernels *k, const struct strb *key)
{
    return k->key_len == key->len && (!key->len || !memcmp(k->key, key->data, key->len));
}

/* With the lock held: the kernels for the key, moved to the front, a reference; or NULL. */
static struct loop_kernels *find(struct loop_kept *kept, const struct strb *key)
{
    lock_held(&kept->lock);
    size_t i = 0;
    while (i < kept->n && !has_key(kept->kept[i], key))
        i++;
    if (i == kept->n)
        return NULL;
    struct loop_kernels *k = kept->kept[i];
    memmove(kept->kept + 1, kept->kept, i * sizeof *kept->kept);
    kept->kept[0] = k;
    return loop_kernels_ref(k);
}

/* With the lock held. Takes a reference of its own; returns how many are evicted, including `k`
 * itself if it is too large to be kept: their references are the caller's. Memory that it shares
 * with others counts for it alone once they are evicted. */
static size_t keep(struct loop_kept *kept, struct loop_kernels *k,
                   struct loop_kernels *gone[KEPT + 1])
{
    lock_held(&kept->lock);
    size_t n = 0, before = kept->bytes;
    begin_keeping(kept, k);
    bool too_large = kept->bytes - before > kept->most_bytes;
    while (!too_large && kept->n && (kept->n == KEPT || kept->bytes > kept->most_bytes)) {
        gone[n] = kept->kept[--kept->n];
        end_keeping(kept, gone[n++]);
    }
    if (kept->bytes > kept->most_bytes) {
        end_keeping(kept, k);
        gone[n++] = k;
        return n;
    }
    memmove(kept->kept + 1, kept->kept, kept->n * sizeof *kept->kept);
    kept->kept[0] = k;
    kept->n++;
    return n;
}

enum err_code loop_kernels_get(struct engine_stream *s, const struct loop_pass *pass,
                               struct loop_kernels **ret, struct err *e)
{
    struct loop_kept *kept = kept_of(s->engine);
    struct loop_kernels *gone[KEPT + 1];
    _cleanup_strb_ struct strb key = {0};
    put_key(&key, pass);
    if (!kept || key.failed)
        return err_oom(e);
    pthread_mutex_lock(&kept->lock);
    *ret = find(kept, &key);
    pthread_mutex_unlock(&kept->lock);
    if (*ret)
        return ERR_OK;
    TRY(make(s, pass, &key, ret, e));
    pthread_mutex_lock(&kept->lock); /* two threads may make the same: both are kept for a while */
    size_t n = keep(kept, *ret, gone);
    pthread_mutex_unlock(&kept->lock);
    while (n)
        loop_kernels_unref(gone[--n]);
    return ERR_OK;
}
