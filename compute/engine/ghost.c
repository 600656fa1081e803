/* Arrays with ghost cells: made, copied, filled.
 *
 * Their memory is an ordinary one-dimensional array's, zeroed like any; the array is a view of it.
 * Creators fill a contiguous array first, which a kernel then copies into the interior: so padded
 * arrays work with every creator, and with uploads.
 *
 * Filling is one kernel per face. Each is a typed graph over the mirrored cells (a view with step
 * −1) and the distance k from the face, lowered with the ghost cells as its target. The kernels are
 * concatenated into a plan with one slot that they both read and write: an axis sees what those
 * before it wrote, and no kernel reads the cells that it writes. One task runs them all, so that a
 * request that fails has changed nothing. */
#include <string.h>

#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "compute/type/grid.h"

#define FILL_KEY -1 /* distinguishes fill keys: an expression's begins with the device */

static enum err_code checked_view(enum dtype dtype, int rank, const int64_t *shape,
                                  const struct grid *grid, struct grid *desc, struct view *ret,
                                  int64_t *ret_elements, struct err *e)
{
    *desc = *grid;
    desc->whole = false;
    enum err_code code = grid_check_ghosts(grid, shape, e);
    if (code == ERR_OK && !desc->is_padded)
        code = padded_extents(rank, shape, desc->ghost, desc->padded, e);
    if (code != ERR_OK)
        return code;
    code = view_padded(rank, shape, desc->ghost, desc->padded, dtype_size(dtype), desc->alignment,
                       ret, ret_elements, e);
    if (code != ERR_OK && desc->is_padded)
        err_prefix(e, "/padded");
    desc->is_padded = true;
    return code;
}

static enum err_code with_grid(struct array *a, const struct view *v, const struct grid *desc,
                               struct array **ret, struct err *e)
{
    struct grid *own = grid_new(desc);
    struct array *b = own ? array_view_grid(a, v, own) : NULL;
    grid_unref(own);
    if (!b)
        return err_oom(e);
    *ret = b;
    return ERR_OK;
}

static bool needs_padding(const struct grid *grid)
{
    return grid->is_padded || (grid_has_ghosts(grid) && !grid->whole);
}

enum err_code engine_zeros_grid(struct engine_stream *s, struct account *account, enum dtype dtype,
                                int rank, const int64_t *shape, const struct grid *grid,
                                struct array **ret, struct err *e)
{
    if (!grid || grid_is_plain(grid))
        return engine_zeros(s, account, dtype, rank, shape, ret, e);
    _cleanup_array_ struct array *flat = NULL;
    struct grid desc = *grid;
    struct view v;
    int64_t n = 0;
    enum err_code code;
    bool padded = needs_padding(grid);
    if (padded)
        code = checked_view(dtype, rank, shape, grid, &desc, &v, &n, e);
    else
        code = view_contiguous(rank, shape, dtype_size(dtype), &v, e);
    if (code == ERR_OK)
        code = padded ? engine_zeros(s, account, dtype, 1, &n, &flat, e)
                      : engine_zeros(s, account, dtype, rank, shape, &flat, e);
    return code == ERR_OK ? with_grid(flat, &v, &desc, ret, e) : code;
}

/* Copies the elements of `from` to the view `v` of `to`, of the same shape. */
static enum err_code copy_to(struct engine_stream *s, struct account *account, struct array *from,
                             struct array *to, const struct view *v, struct err *e)
{
    _cleanup_array_ struct array *same = NULL;
    struct task *t = task_new(s);
    struct typed *typed = t ? arena_alloc(t->arena, sizeof *typed) : NULL;
    if (!typed || !typed_input_only(t->arena, typed, from)) {
        task_free(t);
        return err_oom(e);
    }
    return engine_run(t, typed, account, false, to, v, &same, e);
}

enum err_code engine_embed(struct engine_stream *s, struct account *account, struct array *a,
                           const struct grid *grid, struct array **ret, struct err *e)
{
    if (!grid || grid_is_plain(grid)) {
        *ret = array_ref(a);
        return ERR_OK;
    }
    if (!needs_padding(grid))
        return with_grid(a, &a->view, grid, ret, e);
    _cleanup_array_ struct array *b = NULL;
    enum err_code code =
        engine_zeros_grid(s, account, a->dtype, a->view.rank, a->view.shape, grid, &b, e);
    if (code == ERR_OK)
        code = copy_to(s, account, a, b, &b->view, e);
    if (code == ERR_OK)
        *ret = array_ref(b);
    return code;
}

enum err_code engine_compact(struct engine_stream *s, struct account *account, struct array *a,
                             struct array **ret, struct err *e)
{
    struct task *t = task_new(s);
    struct typed *typed = t ? arena_alloc(t->arena, sizeof *typed) : NULL;
    if (!typed || !typed_input_only(t->arena, typed, a)) {
        task_free(t);
        return err_oom(e);
    }
    return engine_run(t, typed, account, false, NULL, NULL, ret, e);
}

enum err_code engine_copy(struct engine_stream *s, struct account *account, struct array *a,
                          struct array **ret, struct err *e)
{
    if (!a->grid)
        return engine_compact(s, account, a, ret, e);
    _cleanup_array_ struct array *b = NULL;
    enum err_code code;
    if (!needs_padding(a->grid) || a->grid->whole) {
        struct grid desc = *a->grid;
        desc.is_padded = false;
        code = engine_compact(s, account, a, &b, e);
        return code == ERR_OK ? with_grid(b, &b->view, &desc, ret, e) : code;
    }
    struct view from, to;
    code = engine_zeros_grid(s, account, a->dtype, a->view.rank, a->view.shape, a->grid, &b, e);
    if (code != ERR_OK)
        return code;
    grid_whole(a->grid, &a->view, &from);
    grid_whole(b->grid, &b->view, &to);
    _cleanup_array_ struct array *whole = array_view(a, a->dtype, &from);
    code = whole ? copy_to(s, account, whole, b, &to, e) : err_oom(e);
    if (code == ERR_OK)
        *ret = array_ref(b);
    return code;
}

enum err_code engine_alike(struct engine_stream *s, struct account *account, struct array *a,
                           struct array **ret, struct err *e)
{
    if (a->grid && needs_padding(a->grid) && !a->grid->whole)
        return engine_copy(s, account, a, ret, e); /* its ghosts must not be written */
    _cleanup_array_ struct array *b = NULL;
    enum err_code code = engine_empty(s, account, a->dtype, a->view.rank, a->view.shape, &b, e);
    if (code == ERR_OK && a->grid) {
        struct grid desc = *a->grid;
        desc.is_padded = false;
        return with_grid(b, &b->view, &desc, ret, e);
    }
    if (code == ERR_OK)
        *ret = array_ref(b);
    return code;
}

/* --- filling --- */

/* A face's graph under construction; `oom` sticks. */
struct face_graph {
    struct arena *arena;
    struct typed *t;
    int rank;
    const int64_t *shape;
    bool oom;
};

static uint32_t add_node(struct face_graph *g, struct typed_node n, bool scalar)
{
    if (!scalar) {
        n.rank = g->rank;
        n.shape = g->shape;
    }
    uint32_t i = g->oom ? EXPR_NOWHERE : typed_add(g->arena, g->t, &n);
    g->oom |= i == EXPR_NOWHERE;
    return g->oom ? 0 : i;
}

static uint32_t binary(struct face_graph *g, enum op op, uint32_t a, uint32_t b)
{
    if (g->oom)
        return 0;
    return add_node(
        g,
        (struct typed_node){
            .kind = T_OP, .dtype = g->t->nodes[a].dtype, .n_args = 2, .args = {a, b}, .op = op},
        g->t->nodes[a].rank == 0 && g->t->nodes[b].rank == 0);
}

static uint32_t cast(struct face_graph *g, uint32_t a, enum dtype to)
{
    if (g->oom || g->t->nodes[a].dtype == to)
        return a;
    return add_node(g, (struct typed_node){.kind = T_CAST, .dtype = to, .n_args = 1, .args = {a}},
                    false);
}

static uint32_t constant(struct face_graph *g, struct scalar v)
{
    return add_node(g, (struct typed_node){.kind = T_CONST, .dtype = v.dtype, .value = v}, true);
}

/* The ghosts of a face, computed from `phi`, the mirrored cells: see grid.h. */
static uint32_t face_value(struct face_graph *g, const struct grid *grid, int axis, int side,
                           uint32_t phi)
{
    const struct face *face = &grid->face[axis][side];
    enum dtype own = g->oom ? DT_F64 : g->t->nodes[phi].dtype, work = face_dtype(own);
    phi = cast(g, phi, work);
    uint32_t x;
    if (face->type == FACE_DIRICHLET) {
        x = binary(g, OP_SUBTRACT, constant(g, face_constant(face, 2, work)), phi);
    } else {
        /* 2k−1: on the low face k is g at the first ghost, on the high face 1 */
        enum dtype wide = face_wide(work);
        int64_t first = side == FACE_LOW ? 2 * grid->ghost[axis] - 1 : 1;
        struct scalar start = {.dtype = DT_I64, .v.i64 = first};
        struct scalar step = {.dtype = DT_I64, .v.i64 = side == FACE_LOW ? -2 : 2};
        uint32_t k =
            add_node(g, (struct typed_node){.kind = T_INDEX, .dtype = DT_I64, .axis = axis}, false);
        k = binary(g, OP_MULTIPLY, k, constant(g, step));
        k = cast(g, binary(g, OP_ADD, k, constant(g, start)), wide);
        k = binary(g, OP_MULTIPLY, k, constant(g, grid_spacing(grid, axis, wide)));
        k = binary(g, OP_MULTIPLY, k, constant(g, face_constant(face, 1, wide)));
        x = binary(g, side == FACE_LOW ? OP_SUBTRACT : OP_ADD, phi, cast(g, k, work));
    }
    return cast(g, x, own);
}

/* The ghosts of a face and the cells they are computed from. `in`: the interior. */
static void face_views(const struct grid *grid, const struct view *in, int axis, int side,
                       struct view *ret_to, struct view *ret_from)
{
    struct view to = *in;
    int64_t n = in->shape[axis], width = grid->ghost[axis], stride = in->strides[axis];
    for (int k = 0; k < axis; k++) {
        to.shape[k] += 2 * grid->ghost[k];
        to.offset -= grid->ghost[k] * in->strides[k];
    }
    to.shape[axis] = width;
    struct view from = to;
    to.offset += (side == FACE_LOW ? -width : n) * stride;
    if (grid->face[axis][side].type == FACE_PERIODIC) {
        from.offset += (side == FACE_LOW ? n - width : 0) * stride;
    } else {
        from.offset += (side == FACE_LOW ? width - 1 : n - 1) * stride;
        from.strides[axis] = -stride;
    }
    *ret_to = to;
    *ret_from = from;
}

void ghost_cells(const struct array *a, int axis, int side, struct view *ret)
{
    struct view in, from;
    grid_interior(a->grid, &a->view, &in);
    face_views(a->grid, &in, axis, side, ret, &from);
}

/* The plan that fills one face. */
static enum err_code face_plan(struct arena *arena, struct engine *g, struct array *a,
                               const struct view *in, int axis, int side, struct ir_plan **ret,
                               struct err *e)
{
    struct view to, from;
    face_views(a->grid, in, axis, side, &to, &from);
    struct array *source = arena_dup(arena, a, sizeof *a); /* only plan_make reads it */
    struct typed *t = arena_alloc(arena, sizeof *t);
    if (!source || !t)
        return err_oom(e);
    source->view = from;
    if (!typed_input_only(arena, t, source))
        return err_oom(e);
    struct face_graph graph = {
        .arena = arena, .t = t, .rank = from.rank, .shape = t->nodes[0].shape};
    if (a->grid->face[axis][side].type != FACE_PERIODIC)
        t->root = face_value(&graph, a->grid, axis, side, 0);
    if (graph.oom)
        return err_oom(e);
    return plan_make(arena, g, t, false, &to, a->buffer->nbytes, ret, e);
}

/* Appends the kernels of `p` to those of `all`, whose slot 0 is the array. */
static bool append_plan(struct arena *arena, struct ir_plan *all, const struct ir_plan *p)
{
    uint32_t *slot = arena_alloc_array(arena, p->n_slots, sizeof *slot);
    size_t slots = all->cap_slots, kernels = all->cap_kernels;
    if (!slot)
        return false;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].kind != SLOT_TEMP)
            continue; /* 0 */
        if (arena_grow(arena, (void **)&all->slots, &slots, all->n_slots, sizeof *all->slots) < 0)
            return false;
        all->cap_slots = (uint32_t)slots;
        slot[i] = all->n_slots;
        all->slots[all->n_slots] = p->slots[i];
        all->slots[all->n_slots].first += p->slots[i].first == UINT32_MAX ? 0 : all->n_kernels;
        all->slots[all->n_slots++].last += all->n_kernels;
    }
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        struct ir_kernel *k = p->kernels[i];
        k->whole = NULL; /* its slots are those of `p` */
        for (uint32_t in = 0; in < k->n_inputs; in++)
            k->inputs[in].slot = slot[k->inputs[in].slot];
        for (uint32_t out = 0; out < k->n_outputs; out++)
            k->outputs[out].slot = slot[k->outputs[out].slot];
        if (arena_grow(arena, (void **)&all->kernels, &kernels, all->n_kernels,
                       sizeof *all->kernels) < 0)
            return false;
        all->cap_kernels = (uint32_t)kernels;
        all->kernels[all->n_kernels++] = k;
    }
    return true;
}

static enum err_code fill_plan(struct arena *arena, struct engine *g, struct array *a,
                               struct ir_plan **ret, struct err *e)
{
    struct ir_plan *all = arena_alloc(arena, sizeof *all);
    size_t cap = 0;
    if (!all || arena_grow(arena, (void **)&all->slots, &cap, 0, sizeof *all->slots) < 0)
        return err_oom(e);
    all->cap_slots = (uint32_t)cap;
    all->slots[all->n_slots++] = (struct ir_slot){.kind = SLOT_RESULT, .size = a->buffer->nbytes};
    struct view in;
    grid_interior(a->grid, &a->view, &in);
    for (int axis = 0; axis < in.rank; axis++)
        for (int side = FACE_LOW; side <= FACE_HIGH; side++) {
            struct ir_plan *p;
            if (!a->grid->ghost[axis] || a->grid->face[axis][side].type == FACE_NONE)
                continue;
            enum err_code code = face_plan(arena, g, a, &in, axis, side, &p, e);
            if (code == ERR_OK && !append_plan(arena, all, p))
                code = err_oom(e);
            if (code != ERR_OK)
                return code;
        }
    *ret = all;
    return ERR_OK;
}

/* The entry with the plan: found, or made and added. It has no plan if there is nothing to fill. */
static enum err_code fill_entry(struct engine_stream *s, struct array *a, struct plan_entry **ret,
                                struct err *e)
{
    struct engine *g = s->engine;
    struct plan_names no_names = {.complete = true};
    _cleanup_strb_ struct strb key = {0};
    int64_t where[3] = {FILL_KEY, s->device, a->buffer->nbytes};
    strb_addn(&key, (const char *)where, sizeof where);
    plan_key_geometry(&key, a->dtype, atomic_load(&a->buffer->loose_bool), &a->view, a->grid);
    if (key.failed)
        return err_oom(e);
    struct plan_entry *en = plan_cache_find(g->plans, key.data, key.len);
    if (!en) {
        en = plan_entry_new(g->plans);
        enum err_code code = en ? fill_plan(en->arena, g, a, &en->plan, e) : err_oom(e);
        if (code == ERR_OK && !plan_cache_add(en, &no_names, key.data, key.len))
            code = err_oom(e);
        if (code != ERR_OK) {
            plan_entry_unref(en);
            return code;
        }
    }
    *ret = en;
    return ERR_OK;
}

enum err_code fill_begin(struct engine_stream *s, struct array *a, struct task **ret,
                         struct ir_plan **ret_plan, struct err *e)
{
    struct ir_plan *plan = NULL;
    struct task *t = task_new(s);
    if (!t)
        return err_oom(e);
    enum err_code code = require_device(s, a, NULL, e);
    if (code == ERR_OK && grid_has_ghosts(a->grid))
        code = fill_entry(s, a, &t->entry, e);
    if (code == ERR_OK && t->entry) {
        plan = arena_dup(t->arena, t->entry->plan, sizeof *plan);
        code = plan ? ERR_OK : err_oom(e);
    }
    if (code != ERR_OK) {
        task_free(t);
        return code;
    }
    *ret = t;
    *ret_plan = plan && plan->n_kernels && view_size(&a->view) ? plan : NULL;
    return ERR_OK;
}

enum err_code engine_fill_ghost(struct engine_stream *s, struct account *account, struct array *a,
                                engine_done *done, void *user, struct err *e)
{
    _cleanup_array_ struct array *same = NULL;
    struct ir_plan *plan;
    struct task *t;
    TRY(fill_begin(s, a, &t, &plan, e));
    if (!plan) {
        task_free(t);
        if (done)
            done(user, ERR_OK, 0);
        return ERR_OK;
    }
    t->done = done;
    t->user = user;
    return engine_run_plan(t, plan, account, a, &same, e);
}
