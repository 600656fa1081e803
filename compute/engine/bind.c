/* Typed graph → plan: lowering, as the engine needs it, and the plan's cost. Plan → bound to
 * memory.
 *
 * Writing to an existing array must look as if the whole right side were read first. One of five
 * ways is chosen here:
 *
 *   - direct: no operand shares the target's buffer, or each reads just the element being written;
 *   - fresh: the target covers its buffer: the buffer takes over new storage with the result;
 *   - copy on write: as fresh, after copying what the target does not cover, because a download
 *     holds the old storage;
 *   - copied back: as fresh, into a temporary, because the target's storage is exported, or because
 *     it outlives the process and there is no other memory that does;
 *   - staged: into a temporary, which is then copied to the (small) target.
 *
 * Renaming storage at submission is safe because every earlier task holds the storage it was bound
 * to. All memory is allocated before anything is queued or renamed. The new storage remembers the
 * old one until it is written, so that a failure can be undone (buffer_storage). */
#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/trace.h"
#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/ir/lower.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"
#include "compute/type/dtype.h"

/* --- the plan --- */

bool typed_input_only(struct arena *arena, struct typed *t, struct array *a)
{
    memset(t, 0, sizeof *t);
    t->inputs = arena_alloc(arena, sizeof *t->inputs);
    t->nodes = arena_alloc(arena, sizeof *t->nodes);
    int64_t *shape = arena_dup(arena, a->view.shape, sizeof *shape * MAX_RANK);
    if (!t->inputs || !t->nodes || !shape)
        return false;
    t->inputs[0] = (struct typed_input){a, a->dtype, a->view, ""};
    t->nodes[0] = (struct typed_node){
        .kind = T_INPUT, .dtype = a->dtype, .rank = a->view.rank, .shape = shape};
    t->n_inputs = t->n_nodes = t->cap_inputs = t->cap_nodes = 1;
    return true;
}

static void trace_plan(const struct typed *typed, const struct ir_plan *plan)
{
    if (trace_on(TRACE_EXPR)) {
        _cleanup_strb_ struct strb b = {0};
        typed_print(typed, &b);
        trace_write(TRACE_EXPR, b.data ? b.data : "", b.len);
    }
    if (trace_on(TRACE_IR)) {
        for (uint32_t i = 0; i < plan->n_kernels; i++) {
            _cleanup_strb_ struct strb b = {0};
            ir_print(plan->kernels[i], &b);
            trace_write(TRACE_IR, b.data ? b.data : "", b.len);
        }
    }
}

static void read_loose_bools_as_bytes(const struct typed *typed)
{
    for (uint32_t i = 0; i < typed->n_inputs; i++) {
        struct typed_input *in = &typed->inputs[i];
        if (in->dtype == DT_BOOL && atomic_load(&in->array->buffer->loose_bool))
            in->dtype = DT_U8;
    }
}

enum err_code plan_make(struct arena *arena, const struct engine *g, const struct typed *typed,
                        bool fast_math, const struct view *target, int64_t target_bytes,
                        struct ir_plan **ret, struct err *e)
{
    read_loose_bools_as_bytes(typed);
    struct lower_request req = {.typed = typed,
                                .limits = g->fuse,
                                .fast_math = fast_math,
                                .target = target,
                                .target_bytes = target_bytes};
    TRY(lower(arena, &req, ret, e));
    if (g->backend->ops->explain_whole && !ir_find_wholes(arena, *ret, &g->fuse))
        return err_oom(e);
    trace_plan(typed, *ret);
    return ERR_OK;
}

/* Its cost. */

static int64_t times(int64_t a, int64_t b)
{
    int64_t ret;
    return __builtin_mul_overflow(a, b, &ret) ? INT64_MAX : ret;
}

int64_t cost_sum(int64_t a, int64_t b)
{
    int64_t ret;
    return __builtin_add_overflow(a, b, &ret) ? INT64_MAX : ret;
}

/* An extent of 0 makes it 0, even if the product of the others overflows. */
static int64_t points(const struct ir_kernel *k)
{
    int64_t n = 1;
    for (int i = 0; i < k->rank; i++)
        if (k->shape[i] == 0)
            return 0;
    for (int i = 0; i < k->rank; i++)
        n = times(n, k->shape[i]);
    return n;
}

int64_t plan_cost(const struct ir_plan *plan)
{
    int64_t ret = 0;
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        ret = cost_sum(ret, times(points(plan->kernels[i]), plan->kernels[i]->n_nodes));
    return ret;
}

enum err_code cost_check(const struct engine *g, const struct expr *x, const char *what,
                         int64_t cost, struct err *e)
{
    if (cost <= g->max_cost)
        return ERR_OK;
    return expr_err(x, x->root, e, ERR_EXPRESSION_TOO_LARGE,
                    "%s takes %s%.3g operations on elements, more than the %.3g allowed "
                    "(max-cost)",
                    what, cost == INT64_MAX ? "more than " : "", (double)cost, (double)g->max_cost);
}

/* --- its memory --- */

/* Whether the byte ranges of two views of one buffer are disjoint. */
static bool disjoint(const struct view *a, size_t size_a, const struct view *b, size_t size_b)
{
    int64_t alo, ahi, blo, bhi;
    view_extent(a, &alo, &ahi);
    view_extent(b, &blo, &bhi);
    return ahi * (int64_t)size_a <= blo * (int64_t)size_b ||
           bhi * (int64_t)size_b <= alo * (int64_t)size_a;
}

/* All that an operand may read: its ghosts, too. */
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
 * overwritten. The first kernels only write temporaries; those that write pieces of the result
 * write disjoint elements. */
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

/* Storage for a slot, from now on owned by the task. */
static enum err_code bind_storage(struct run *r, uint32_t slot, struct storage *take_st,
                                  struct err *e)
{
    _cleanup_storage_ struct storage *st = take_st;
    if (!task_use(r->task, st, true))
        return err_oom(e);
    r->task->uses[r->task->n_uses - 1].fresh = true;
    r->storages[slot] = st;
    r->slots[slot] = st->data;
    return ERR_OK;
}

static enum err_code bind_new(struct run *r, uint32_t slot, int64_t size, enum storage_how how,
                              struct err *e)
{
    struct storage *st;
    TRY(storage_new(r->g, r->account, r->task->stream->device, size, how, &st, e));
    return bind_storage(r, slot, st, e);
}

/* New storage in place of the target's old one. If others' downloads hold the old one, they pay for
 * it. */
static enum err_code new_renamed(struct run *r, const struct storage *old, struct storage **ret,
                                 struct err *e)
{
    if (r->in_place)
        return storage_renewed(old, old->account, ret, e);
    if (!r->renamed)
        return storage_new(r->g, r->account, old->device, old->size, old->place, ret, e);
    *ret = r->renamed;
    r->renamed = NULL;
    return ERR_OK;
}

/* The same, from the temporaries that are kept. */
static enum err_code bind_kept(struct run *r, uint32_t slot, int64_t size, struct err *e)
{
    struct run_temporaries *t = r->temporaries;
    size_t i = t->taken;
    while (i < t->n && t->all[i]->size != size)
        i++;
    if (i == t->n) {
        if (arena_grow(t->arena, (void **)&t->all, &t->cap, t->n, sizeof *t->all) < 0)
            return err_oom(e);
        enum err_code code = storage_new(r->g, r->account, r->task->stream->device, size,
                                         STORAGE_SCRATCH, &t->all[t->n], e);
        if (code != ERR_OK)
            return code;
        t->n++;
    }
    struct storage *st = t->all[i];
    t->all[i] = t->all[t->taken];
    t->all[t->taken++] = st;
    if (!task_use(r->task, st, true))
        return err_oom(e);
    r->task->uses[r->task->n_uses - 1].fresh = true;
    r->storages[slot] = st;
    r->slots[slot] = st->data;
    return ERR_OK;
}

static bool alloc_slots(struct run *r)
{
    r->n_slots = r->plan->n_slots + 1; /* one more: the old storage of a copy on write */
    r->slots = arena_alloc_array(r->task->arena, r->n_slots, sizeof *r->slots);
    r->storages = arena_alloc_array(r->task->arena, r->n_slots, sizeof *r->storages);
    return r->slots && r->storages;
}

/* Temporaries; two whose lifetimes do not overlap share storage. */
enum err_code run_bind_temps(struct run *r, struct err *e)
{
    struct ir_plan *p = r->plan;
    if (!alloc_slots(r))
        return err_oom(e);
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
        enum err_code code = r->temporaries ? bind_kept(r, i, s->size, e)
                                            : bind_new(r, i, s->size, STORAGE_SCRATCH, e);
        if (code != ERR_OK)
            return code;
    }
    if (r->out)
        return ERR_OK;
    return bind_new(r, p->result_slot, p->slots[p->result_slot].size, STORAGE_PLAIN, e);
}

static struct buffer *input_buffer(const struct run *r, uint32_t slot)
{
    return r->typed->inputs[r->plan->slots[slot].index].array->buffer;
}

void run_make_renamed(struct run *r, enum write_mode mode)
{
    const struct buffer *b = r->out ? r->out->buffer : NULL;
    if (b && mode == WRITE_FRESH && atomic_load(&b->exports) == 0 &&
        storage_new(r->g, r->account, b->device, b->nbytes,
                    (enum storage_how)atomic_load(&b->place), &r->renamed, NULL) != ERR_OK)
        r->renamed = NULL;
}

enum err_code run_make_room(struct run *r, enum write_mode mode, struct err *e)
{
    lock_held(&r->g->lock);
    const struct ir_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].kind == SLOT_INPUT)
            TRY(fetch_room(r->task, input_buffer(r, i), false, e));
    return r->out && mode != WRITE_FRESH ? fetch_room(r->task, r->out->buffer, true, e) : ERR_OK;
}

/* A fresh write of an array whose storage stays: the result is made elsewhere and copied. */
static enum err_code bind_copied_back(struct run *r, struct storage *old, struct err *e)
{
    struct ir_plan *p = r->plan;
    struct arena *arena = r->task->arena;
    const int64_t nbytes = r->out->buffer->nbytes;
    const uint32_t home = r->n_slots - 1;
    TRY(bind_new(r, p->result_slot, nbytes, STORAGE_SCRATCH, e));
    if (!task_use(r->task, old, true) ||
        !insert_kernel(arena, p, p->n_kernels,
                       copy_buffer_kernel(arena, nbytes, p->result_slot, home)))
        return err_oom(e);
    r->task->uses[r->task->n_uses - 1].whole = true;
    r->slots[home] = old->data;
    return ERR_OK;
}

static enum err_code bind_arrays(struct run *r, enum write_mode mode, struct storage **ret_renamed,
                                 struct err *e)
{
    struct ir_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].kind != SLOT_INPUT)
            continue;
        struct buffer *b = input_buffer(r, i);
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
        return ERR_OK;

    struct buffer *b = r->out->buffer;
    struct storage *old = buffer_storage(b);
    if (mode != WRITE_FRESH || (storage_is_sealed(old) && atomic_load(&b->exports) > 0)) {
        enum err_code code = fetch_to_write(r->task, b, !r->covers, e);
        if (code != ERR_OK)
            return code;
        r->out_remade = r->covers && b->storage != old;
        old = b->storage;
    }
    bool pinned = atomic_load(&old->pins) > 0;
    if (mode != WRITE_FRESH && !pinned) {
        if (!task_use(r->task, old, true))
            return err_oom(e);
        r->task->uses[r->task->n_uses - 1].whole = r->covers;
        r->storages[p->result_slot] = old;
        r->slots[p->result_slot] = (char *)old->data + r->task->result_at;
        return ERR_OK;
    }
    if (r->task->result_at)
        return err_set(e, ERR_INTERNAL, "the region to write to is not the caller's own array");
    if (atomic_load(&b->exports) > 0)
        return pinned ? err_set(e, ERR_CONFLICT,
                                "the array is exported and a download is reading it: its memory "
                                "can be neither replaced nor written until the download has ended")
                      : bind_copied_back(r, old, e);
    struct storage *st;
    r->in_place = storage_is_held_by_others(old);
    TRY(new_renamed(r, old, &st, e));
    if (!storage_may_replace(st, old)) {
        storage_unref(st);
        return pinned ? storage_none_is_kept(old, e) : bind_copied_back(r, old, e);
    }
    TRY(bind_storage(r, p->result_slot, st, e));
    *ret_renamed = st;
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

#ifndef NDEBUG
/* Whether no load or store is outside its storage: sizes are known here, not when kernels are
 * verified. A storage handed on to another temporary is checked for that one. */
static bool all_is_inside(const struct run *r)
{
    for (uint32_t i = 0; i < r->plan->n_kernels; i++) {
        const struct ir_kernel *k = r->plan->kernels[i];
        int64_t lo, hi;
        for (uint32_t n = 0; n < k->n_nodes; n++) {
            if (k->nodes[n].kind != IR_LOAD)
                continue;
            const struct ir_input *in = &k->inputs[k->nodes[n].input];
            const struct storage *st = r->storages[in->slot];
            ir_load_extent(k, n, &lo, &hi);
            if (lo < 0 || (st && hi * (int64_t)dtype_size(in->dtype) > st->size))
                return false;
        }
        for (uint32_t n = 0; n < k->n_outputs; n++) {
            const struct ir_output *o = &k->outputs[n];
            const struct storage *st = r->storages[o->slot];
            int64_t at = o->slot == r->plan->result_slot ? r->task->result_at : 0;
            view_extent(&o->view, &lo, &hi);
            if (lo < 0 || (st && at + hi * (int64_t)dtype_size(o->dtype) > st->size))
                return false;
        }
    }
    return true;
}
#endif

enum err_code run_bind_arrays(struct run *r, enum write_mode mode, struct storage **ret_renamed,
                              struct err *e)
{
    lock_held(&r->g->lock);
    enum err_code code = bind_arrays(r, mode, ret_renamed, e);
    assert(code != ERR_OK || all_is_inside(r));
    return code;
}

/* A plan through a temporary of the result's shape and a copy to the target. */
static enum err_code plan_staged(const struct run *r, struct arena *arena, struct ir_plan **ret,
                                 struct err *e)
{
    struct ir_plan *p;
    TRY(plan_make(arena, r->g, r->typed, r->fast_math, NULL, 0, &p, e));
    struct view whole, spread;
    size_t cap = p->cap_slots;
    enum err_code code = view_contiguous(p->rank, p->shape, dtype_size(p->dtype), &whole, e);
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
enum err_code run_stage(struct run *r, struct err *e)
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
    return run_stage(r, e);
}

enum err_code run_prepare(struct run *r, const struct view *out_view, enum write_mode *ret,
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

void run_touch(const struct run *r)
{
    if (r->task->unused)
        return;
    for (uint32_t i = 0; i < r->typed->n_inputs; i++)
        buffer_touch(r->typed->inputs[i].array->buffer);
    if (r->out)
        buffer_touch(r->out->buffer);
}
