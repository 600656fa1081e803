/* Running: typed graph → plan → bound to memory → queued.
 *
 * Writing to an existing array must look as if the whole right side were read first. There are four
 * ways, chosen here:
 *
 *   - direct: no operand shares the target's buffer, or each reads just the element being written;
 *   - fresh: the target covers its buffer: the buffer takes over new storage with the result;
 *   - copy on write: as fresh, after copying what the target does not cover, because a download
 *     holds the old storage;
 *   - staged: into a temporary, which is then copied to the (small) target.
 *
 * Renaming storage at submission is safe because every earlier task holds the storage it was bound
 * to. All memory is allocated before anything is queued or renamed. The new storage remembers the
 * old one until it is written, so that a failure can be undone (buffer_storage). */
#include "compute/engine_internal.h"

#include <assert.h>
#include <string.h>

enum write_mode { WRITE_DIRECT, WRITE_FRESH, WRITE_STAGED };

struct run {
    struct task *task;
    struct engine *g;
    struct account *account;
    const struct typed *typed;
    bool fast_math;
    struct ir_plan *plan;     /* the task's own: its kernels may be others' */
    struct plan_entry *entry; /* where the plan comes from, or NULL */
    struct array *out;        /* or NULL */
    struct view target;       /* of out */
    bool covers;              /* target is every element of out's buffer */
    bool out_remade;          /* it was in host memory, and is written as if new */
    void **slots;
    uint32_t n_slots;
    struct storage **storages; /* by slot; borrowed: the task's uses hold them */
};

/* Byte ranges of two views of one buffer are apart. */
static bool disjoint(const struct view *a, size_t size_a, const struct view *b, size_t size_b)
{
    int64_t alo, ahi, blo, bhi;
    view_extent(a, &alo, &ahi);
    view_extent(b, &blo, &bhi);
    return ahi * (int64_t)size_a <= blo * (int64_t)size_b ||
           bhi * (int64_t)size_b <= alo * (int64_t)size_a;
}

/* Where an operand may be read: its ghosts too. */
static struct view readable(const struct typed_input *in)
{
    struct view v = in->view;
    if (in->array->grid)
        grid_whole(in->array->grid, &in->view, &v);
    return v;
}

static bool same_elements(const struct ir_kernel *k, uint32_t input)
{
    const struct ir_input *in = &k->inputs[input];
    const struct ir_output *out = &k->outputs[0];
    if (out->kind != OUT_STORE || in->gathered || in->view.offset != out->view.offset ||
        dtype_size(in->dtype) != dtype_size(out->dtype))
        return false;
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] > 1 && in->view.strides[a] != out->view.strides[a])
            return false;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_LOAD && k->nodes[i].input == input && k->nodes[i].ctx != 0)
            return false;
    return true;
}

/* Whether a kernel reads elements of the target's buffer that it, or one before it, may have
 * overwritten. The first ones only write temporaries; those that write the result's pieces each
 * write elements of their own. */
static bool conflicts(const struct run *r)
{
    const struct ir_plan *p = r->plan;
    bool written = false;
    for (uint32_t j = 0; j < p->n_kernels; j++) {
        const struct ir_kernel *k = p->kernels[j];
        bool writes = k->outputs[0].slot == p->result_slot;
        written |= writes;
        for (uint32_t i = 0; i < k->n_inputs && written; i++) {
            const struct ir_slot *slot = &p->slots[k->inputs[i].slot];
            if (slot->kind != SLOT_INPUT)
                continue;
            const struct typed_input *in = &r->typed->inputs[slot->index];
            if (!array_same_buffer(in->array, r->out) || (writes && same_elements(k, i)))
                continue;
            struct view from = readable(in);
            if (!disjoint(&from, dtype_size(in->dtype), &r->target, dtype_size(r->out->dtype)))
                return true;
        }
    }
    return false;
}

/* Appends a kernel that copies slot `from` (view `src`) to slot `to` (view `dst`); views of one
 * shape. */
static struct ir_kernel *copy_kernel(struct arena *arena, enum dtype dtype, uint32_t from,
                                     const struct view *src, uint32_t to, const struct view *dst)
{
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    if (!k)
        return NULL;
    k->rank = src->rank;
    memcpy(k->shape, src->shape, sizeof k->shape);
    k->ctxs = arena_alloc(arena, sizeof *k->ctxs);
    k->inputs = arena_alloc(arena, sizeof *k->inputs);
    k->nodes = arena_alloc(arena, sizeof *k->nodes);
    k->outputs = arena_alloc(arena, sizeof *k->outputs);
    if (!k->ctxs || !k->inputs || !k->nodes || !k->outputs)
        return NULL;
    k->ctxs[0].rank = k->rank;
    memcpy(k->ctxs[0].shape, k->shape, sizeof k->shape);
    k->inputs[0] = (struct ir_input){from, dtype, *src};
    k->nodes[0] = (struct ir_node){.kind = IR_LOAD, .dtype = (uint8_t)dtype};
    k->outputs[0] = (struct ir_output){.kind = OUT_STORE, .slot = to, .dtype = dtype, .view = *dst};
    k->n_ctxs = k->n_inputs = k->n_nodes = k->n_outputs = 1;
    return k;
}

/* A whole buffer as the widest element type that divides it. */
static struct ir_kernel *copy_buffer_kernel(struct arena *arena, int64_t nbytes, uint32_t from,
                                            uint32_t to)
{
    enum dtype dtype = nbytes % 8 == 0 ? DT_U64 : nbytes % 4 == 0 ? DT_U32 : DT_U8;
    struct view v = {.rank = 1, .shape = {nbytes / (int64_t)dtype_size(dtype)}, .strides = {1}};
    return copy_kernel(arena, dtype, from, &v, to, &v);
}

static bool insert_kernel(struct arena *arena, struct ir_plan *p, uint32_t at, struct ir_kernel *k)
{
    struct ir_kernel **ks = arena_alloc_array(arena, p->n_kernels + 1, sizeof(struct ir_kernel *));
    if (!ks || !k)
        return false;
    memcpy(ks, p->kernels, sizeof(struct ir_kernel *) * at);
    ks[at] = k;
    memcpy(ks + at + 1, p->kernels + at, sizeof(struct ir_kernel *) * (p->n_kernels - at));
    p->kernels = ks;
    p->n_kernels++;
    return true;
}

/* Storage of one slot, owned by the task from here on. */
static enum err_code bind_new(struct run *r, uint32_t slot, int64_t size, bool write, struct err *e)
{
    _cleanup_storage_ struct storage *st = NULL;
    enum err_code code =
        storage_new(r->g, r->account, r->task->stream->device, size, false, &st, e);
    if (code != ERR_OK)
        return code;
    if (!task_use(r->task, st, write))
        return err_oom(e);
    r->task->uses[r->task->n_uses - 1].fresh = true;
    r->storages[slot] = st;
    r->slots[slot] = st->data;
    return ERR_OK;
}

/* Temporaries, sharing storage where their lives do not meet. */
static enum err_code bind_temps(struct run *r, struct err *e)
{
    struct ir_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        struct ir_slot *s = &p->slots[i];
        if ((s->kind != SLOT_TEMP && s->kind != SLOT_ANSWER) || s->first == UINT32_MAX)
            continue;
        bool shared = false;
        for (uint32_t j = 0; j < i && !shared && s->kind == SLOT_TEMP; j++) {
            struct ir_slot *o = &p->slots[j];
            if (o->kind == SLOT_TEMP && o->size == s->size && o->last < s->first &&
                r->storages[j]) {
                r->storages[i] = r->storages[j];
                r->slots[i] = r->slots[j];
                r->storages[j] = NULL; /* handed on */
                shared = true;
            }
        }
        if (shared)
            continue;
        enum err_code code = bind_new(r, i, s->size, true, e);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

static bool alloc_slots(struct run *r)
{
    r->n_slots = r->plan->n_slots + 1; /* one more: the old storage of a copy on write */
    r->slots = arena_alloc_array(r->task->arena, r->n_slots, sizeof *r->slots);
    r->storages = arena_alloc_array(r->task->arena, r->n_slots, sizeof *r->storages);
    return r->slots && r->storages;
}

/* With the lock held: operands and target as they are in the order of submission. */
static enum err_code bind_arrays(struct run *r, enum write_mode mode, struct storage **ret_renamed,
                                 struct err *e)
{
    struct ir_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].kind != SLOT_INPUT)
            continue;
        struct buffer *b = r->typed->inputs[p->slots[i].index].array->buffer;
        enum err_code code = fetch_add(r->task, b, true, e);
        if (code != ERR_OK)
            return code;
        struct storage *st = buffer_storage(b);
        if (!task_use(r->task, st, false))
            return err_oom(e);
        r->storages[i] = st;
        r->slots[i] = st->data;
    }
    if (!r->out)
        return bind_new(r, p->result_slot, p->slots[p->result_slot].size, true, e);

    struct buffer *b = r->out->buffer;
    struct storage *old = buffer_storage(b);
    if (mode != WRITE_FRESH && old->host) {
        enum err_code code = fetch_add(r->task, b, !r->covers, e);
        if (code != ERR_OK)
            return code;
        old = b->storage;
        r->out_remade = r->covers;
    }
    bool pinned = atomic_load(&old->pins) > 0;
    if (mode != WRITE_FRESH && !pinned) {
        if (!task_use(r->task, old, true))
            return err_oom(e);
        r->task->uses[r->task->n_uses - 1].whole = r->covers;
        r->storages[p->result_slot] = old;
        r->slots[p->result_slot] = old->data;
        return ERR_OK;
    }
    enum err_code code = bind_new(r, p->result_slot, b->nbytes, true, e);
    if (code != ERR_OK)
        return code;
    *ret_renamed = r->storages[p->result_slot];
    if (r->covers)
        return ERR_OK;
    uint32_t before = r->n_slots - 1;
    if (!task_use(r->task, old, false) ||
        !insert_kernel(r->task->arena, p, 0,
                       copy_buffer_kernel(r->task->arena, b->nbytes, before, p->result_slot)))
        return err_oom(e);
    r->slots[before] = old->data;
    return ERR_OK;
}

/* A plan through a temporary of the result's shape and a copy to the target. */
static enum err_code plan_staged(const struct run *r, struct arena *arena, struct ir_plan **ret,
                                 struct err *e)
{
    struct ir_plan *p;
    enum err_code code = plan_make(arena, r->g, r->typed, r->fast_math, NULL, 0, &p, e);
    if (code != ERR_OK)
        return code;
    struct view whole, spread;
    size_t cap = p->cap_slots;
    code = view_contiguous(p->rank, p->shape, dtype_size(p->dtype), &whole, e);
    if (code == ERR_OK)
        code = view_broadcast_to(&whole, r->target.rank, r->target.shape, &spread, e);
    if (code != ERR_OK)
        return code;
    if (arena_grow(arena, (void **)&p->slots, &cap, p->n_slots, sizeof *p->slots) < 0)
        return err_oom(e);
    p->cap_slots = (uint32_t)cap;
    uint32_t temp = p->result_slot, result = p->n_slots++;
    p->slots[result] = (struct ir_slot){SLOT_RESULT, 0, r->out->buffer->nbytes, 0, p->n_kernels};
    p->slots[temp].kind = SLOT_TEMP;
    p->slots[temp].last = p->n_kernels;
    p->result_slot = result;
    struct ir_kernel *k = copy_kernel(arena, p->dtype, temp, &spread, result, &r->target);
    if (!insert_kernel(arena, p, p->n_kernels, k))
        return err_oom(e);
    *ret = p;
    return ERR_OK;
}

/* The staged plan, kept with the entry where there is one. */
static enum err_code stage(struct run *r, struct err *e)
{
    if (!r->entry)
        return plan_staged(r, r->task->arena, &r->plan, e);
    struct ir_plan *p = plan_entry_staged(r->entry);
    if (!p) {
        struct arena *own = arena_new(0);
        enum err_code code = own ? plan_staged(r, own, &p, e) : err_oom(e);
        if (code != ERR_OK) {
            arena_free(own);
            return code;
        }
        p = plan_entry_stage(r->entry, own, p);
    }
    p = arena_dup(r->task->arena, p, sizeof *p);
    if (!p)
        return err_oom(e);
    r->plan = p;
    return ERR_OK;
}

static enum err_code choose_mode(struct run *r, enum write_mode *ret, struct err *e)
{
    *ret = WRITE_DIRECT;
    if (!r->out || !conflicts(r))
        return ERR_OK;
    if (r->covers) {
        *ret = WRITE_FRESH;
        return ERR_OK;
    }
    *ret = WRITE_STAGED;
    return stage(r, e);
}

/* What is written, and the plan as it will run: to the target or through a temporary. */
static enum err_code prepare(struct run *r, const struct view *out_view, enum write_mode *ret,
                             struct err *e)
{
    struct arena *arena = r->task->arena;
    int64_t bytes = 0;
    if (r->out) {
        r->target = out_view ? *out_view : r->out->view;
        bytes = r->out->buffer->nbytes;
        r->covers = view_size(&r->target) * (int64_t)dtype_size(r->out->dtype) == bytes;
    }
    if (r->entry) {
        r->plan = arena_dup(arena, r->entry->plan, sizeof *r->plan);
        if (!r->plan)
            return err_oom(e);
    } else {
        enum err_code code = plan_make(arena, r->g, r->typed, r->fast_math,
                                       r->out ? &r->target : NULL, bytes, &r->plan, e);
        if (code != ERR_OK)
            return code;
    }
    return choose_mode(r, ret, e);
}

/* The new array over the result's storage. */
static struct array *new_result(struct run *r)
{
    struct view v;
    struct storage *st = r->storages[r->plan->result_slot];
    if (view_contiguous(r->plan->rank, r->plan->shape, dtype_size(r->plan->dtype), &v, NULL) !=
        ERR_OK)
        return NULL;
    struct array *a = array_over(r->g, st, r->plan->dtype, &v, st->size);
    if (a)
        storage_ref(st);
    return a;
}

/* What the device makes of the kernels is made outside of the lock. */
static void prepare_kernels(const struct run *r)
{
    const struct backend_ops *ops = r->g->backend->ops;
    for (uint32_t i = 0; ops->prepare && i < r->plan->n_kernels; i++)
        ops->prepare(r->g->backend, r->task->stream->device, r->plan->kernels[i]);
}

static bool reads_target(const struct run *r)
{
    uint32_t i = 0;
    while (i < r->typed->n_inputs && !array_same_buffer(r->typed->inputs[i].array, r->out))
        i++;
    return i < r->typed->n_inputs;
}

/* With the lock held, after the submission: what became of the target. The storage it had before is
 * the caller's to release. */
static struct storage *take_effect(const struct run *r, struct storage *renamed, enum err_code code)
{
    struct buffer *b = r->out->buffer;
    if (code != ERR_OK && (renamed || r->out_remade || r->task->job.untouched))
        return NULL; /* as if nothing had been asked */
    atomic_store(&b->version, engine_next_version(r->g));
    if (!renamed) {
        /* or what was before would come back in its place; where that is read, this fails with it
         */
        if (r->covers && !r->out_remade && !reads_target(r))
            storage_forget(b->storage);
        return NULL;
    }
    struct storage *old = b->storage;
    b->storage = storage_ref(renamed);
    return old;
}

/* With the lock held: how the answer of the guards will be read. */
static enum err_code open_answer(struct run *r, struct err *e)
{
    const struct ir_plan *p = r->plan;
    uint32_t i = 0;
    while (p->slots[i].kind != SLOT_ANSWER)
        i++;
    struct answer *to = r->task->answer;
    if (r->out)
        to->was = array_version(r->out);
    return download_of_task(r->task, r->storages[i], p->slots[i].size, to->wake, to->user,
                            &to->download, e);
}

#ifndef NDEBUG
/* No load reads outside of its storage: sizes are known here, not where kernels are verified. */
static bool loads_inside(const struct run *r)
{
    for (uint32_t i = 0; i < r->plan->n_kernels; i++) {
        const struct ir_kernel *k = r->plan->kernels[i];
        for (uint32_t n = 0; n < k->n_nodes; n++) {
            if (k->nodes[n].kind != IR_LOAD)
                continue;
            const struct ir_input *in = &k->inputs[k->nodes[n].input];
            const struct storage *st = r->storages[in->slot];
            int64_t lo, hi;
            ir_load_extent(k, n, &lo, &hi);
            if (lo < 0 || (st && hi * (int64_t)dtype_size(in->dtype) > st->size))
                return false;
        }
    }
    return true;
}
#endif

static void touch(const struct run *r)
{
    for (uint32_t i = 0; i < r->typed->n_inputs; i++)
        buffer_touch(r->typed->inputs[i].array->buffer);
    if (r->out)
        buffer_touch(r->out->buffer);
}

static enum err_code run_now(struct run *r, enum write_mode mode, struct array **ret, struct err *e)
{
    struct engine *g = r->g;
    struct storage *renamed = NULL, *old = NULL;
    struct array *result = NULL;
    struct answer *answer = r->task->answer;
    enum err_code code = alloc_slots(r) ? bind_temps(r, e) : err_oom(e);
    if (code != ERR_OK) {
        task_free(r->task);
        return code;
    }
    prepare_kernels(r);
    pthread_mutex_lock(&g->lock);
    code = r->out ? require_version(r->out->buffer, r->task->if_version, e) : ERR_OK;
    if (code == ERR_OK)
        code = bind_arrays(r, mode, &renamed, e);
    if (code == ERR_OK) {
        result = r->out ? array_ref(r->out) : new_result(r);
        if (!result || !task_reserve(r->task))
            code = err_oom(e);
    }
    if (code == ERR_OK)
        code = fetch_submit(r->task, e);
    if (code == ERR_OK && answer)
        code = open_answer(r, e);
    /* the task lets go of what was prepared, also where it comes to nothing */
    r->task->job.kernels = r->plan->kernels;
    r->task->job.n_kernels = r->plan->n_kernels;
    if (code != ERR_OK) {
        fetch_undo(r->task);
        task_unlock_unsubmitted(r->task);
        array_unref(result);
        return code;
    }
    assert(loads_inside(r));
    r->task->job.slots = r->slots;
    atomic_fetch_add(&g->evaluations, 1);
    atomic_fetch_add(&g->kernels, r->plan->n_kernels);
    if (renamed)
        atomic_store(&renamed->before, storage_ref(r->out->buffer->storage));
    code = task_submit(r->task);
    if (r->out)
        old = take_effect(r, renamed, code);
    if (r->out && answer)
        answer->is = array_version(r->out);
    char why[ENGINE_REASON];
    int device = r->task->stream->device;
    int64_t wanted = r->task->job.wanted;
    if (code != ERR_OK) {
        fetch_undo(r->task);
        engine_reason(g, r->task->job.refusal, why);
        r->task->done = NULL; /* the caller hears of it from us */
    }
    task_unlock(r->task);
    if (code != ERR_OK) {
        if (answer) {
            download_undo(answer->download);
            answer->download = NULL;
        }
        array_unref(result);
        code = code == ERR_OUT_OF_MEMORY ? err_oom(e)
               : code == ERR_INTERNAL    ? err_set(e, code, "%s", why)
                                         : err_set(e, code, "the device failed during the work");
        if (code == ERR_OUT_OF_MEMORY && e) {
            e->wanted = wanted;
            e->device = device;
        }
    } else {
        *ret = result;
    }
    storage_unref(old);
    return code;
}

static enum err_code run_prepared(struct run *r, enum write_mode mode, struct array **ret,
                                  struct err *e)
{
    uint64_t until = engine_clock(r->g);
    touch(r);
    enum err_code code = run_now(r, mode, ret, e);
    if (code == ERR_OUT_OF_MEMORY && e)
        e->until = until;
    return code;
}

enum err_code require_version(const struct buffer *b, uint64_t version, struct err *e)
{
    if (!version || atomic_load(&b->version) == version)
        return ERR_OK;
    return err_set(e, ERR_PRECONDITION_FAILED, "the array's contents have changed meanwhile");
}

enum err_code require_device(const struct engine_stream *s, const struct array *a, const char *name,
                             struct err *e)
{
    int device = a->buffer->device;
    if (device == s->device)
        return ERR_OK;
    return err_set(e, ERR_CONFLICT,
                   "the array%s%s is on device %d and this session works on device %d: use a "
                   "session on that device, or download the array and upload it here",
                   name && *name ? " " : "", name ? name : "", device, s->device);
}

enum err_code engine_run(struct task *take_t, const struct typed *typed, struct account *account,
                         bool fast_math, struct array *out, const struct view *out_view,
                         struct array **ret, struct err *e)
{
    struct run r = {.task = take_t,
                    .g = take_t->stream->engine,
                    .account = account,
                    .typed = typed,
                    .fast_math = fast_math,
                    .entry = take_t->entry,
                    .out = out};
    enum write_mode mode;
    enum err_code code = out ? require_device(take_t->stream, out, NULL, e) : ERR_OK;
    for (uint32_t i = 0; i < typed->n_inputs && code == ERR_OK; i++)
        code = require_device(take_t->stream, typed->inputs[i].array, typed->inputs[i].name, e);
    if (code == ERR_OK)
        code = prepare(&r, out_view, &mode, e);
    if (code != ERR_OK) {
        task_free(take_t);
        return code;
    }
    return run_prepared(&r, mode, ret, e);
}

enum err_code engine_run_plan(struct task *take_t, struct ir_plan *plan, struct account *account,
                              struct array *out, struct array **ret, struct err *e)
{
    static const struct typed none;
    struct run r = {.task = take_t,
                    .g = take_t->stream->engine,
                    .account = account,
                    .typed = &none,
                    .plan = plan,
                    .out = out,
                    .target = out->view};
    return run_prepared(&r, WRITE_DIRECT, ret, e);
}

enum err_code engine_plan(struct engine *g, struct arena *arena, const struct typed *typed,
                          bool fast_math, struct array *out, const struct view *out_view,
                          struct ir_plan **ret, struct err *e)
{
    struct task shell = {.arena = arena};
    struct run r = {.task = &shell, .g = g, .typed = typed, .fast_math = fast_math, .out = out};
    enum write_mode mode;
    enum err_code code = prepare(&r, out_view, &mode, e);
    if (code == ERR_OK)
        *ret = r.plan;
    return code;
}
