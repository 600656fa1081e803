/* The boundary modes that use an array's own data behind its faces.
 *
 * `ghost` reads ghost cells. A shift in this mode has no boundary of its own, so it is pushed
 * through all elementwise nodes down to the arrays: shift(f(u, v), o) is f(shift(u, o), shift(v,
 * o)). The backends see a shift directly on an operand, a load with an unlimited offset. Offsets of
 * nested shifts add up there. A node of extent 1 where the shifted node has more is broadcast, and
 * does not move. A reduction, or a shift of another mode along the same axis, has nothing outside
 * of itself and is refused.
 *
 * `array` computes the cells behind the faces from the array's boundary, one axis after the other:
 * each is an ordinary shift (wrap, symmetric or clamp) and, if the face has a condition, a select
 * by whether that shift stayed inside. Axis 0 is innermost, as ghost.c fills it first, so both give
 * the same bits. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_rules.h"
#include "compute/type/grid.h"

/* The grid of an operand, NULL for other nodes and arrays without a grid. */
static const struct grid *ghost_grid(const struct checker *c, uint32_t x)
{
    const struct typed_node *n = &c->t->nodes[x];
    return n->kind == T_INPUT ? c->t->inputs[n->input].grid : NULL;
}

/* --- mode ghost --- */

/* A shift's meaning for the nodes below it: offsets along the axes of a shape that they are
 * broadcast to, aligned at the right. */
struct frame {
    int rank;
    const int64_t *shape;
    int64_t offsets[MAX_RANK];
    uint32_t *moved; /* by node: its moved copy + 1 */
    struct frame *next;
};

/* Beyond this, views of views make an expression too large to accept. */
#define MAX_FRAMES 256

struct pushing {
    struct checker *c;
    uint32_t n_nodes; /* at the beginning */
    struct frame *frames;
    uint32_t n_frames;
    struct pending {
        struct frame *frame;
        uint32_t node;
    } * stack;
    size_t depth, cap;
};

static enum err_code frame_for(struct pushing *p, uint32_t place, int rank, const int64_t *shape,
                               const int64_t *offsets, struct frame **ret)
{
    size_t bytes = sizeof *shape * (size_t)rank;
    for (struct frame *f = p->frames; f; f = f->next)
        if (f->rank == rank &&
            (!rank || (!memcmp(f->shape, shape, bytes) && !memcmp(f->offsets, offsets, bytes)))) {
            *ret = f;
            return ERR_OK;
        }
    if (++p->n_frames > MAX_FRAMES)
        return expr_err(p->c->x, place, p->c->e, ERR_EXPRESSION_TOO_LARGE,
                        "too many nested views inside a shift with boundary 'ghost'");
    struct frame *f = arena_alloc(p->c->arena, sizeof *f);
    uint32_t *moved = arena_alloc_array(p->c->arena, p->n_nodes, sizeof *moved);
    if (!f || !moved)
        return err_oom(p->c->e);
    *f = (struct frame){.rank = rank, .shape = shape, .moved = moved, .next = p->frames};
    if (rank)
        memcpy(f->offsets, offsets, bytes);
    p->frames = *ret = f;
    return ERR_OK;
}

/* The offsets along a node's own axes; false if it stays. */
static bool own_offsets(const struct frame *f, const struct typed_node *n, int64_t *ret)
{
    bool moves = false;
    for (int k = 0; k < n->rank; k++) {
        int s = k + f->rank - n->rank;
        ret[k] = s >= 0 && n->shape[k] == f->shape[s] ? f->offsets[s] : 0;
        moves |= ret[k] != 0;
    }
    return moves;
}

static enum err_code outside(const struct pushing *p, uint32_t id, const char *what)
{
    return expr_err(p->c->x, p->c->origin[id], p->c->e, ERR_GHOST_WIDTH,
                    "boundary 'ghost' would read outside %s, which has no ghost cells", what);
}

/* An operand, read at offset o. */
static enum err_code moved_input(const struct pushing *p, uint32_t place, uint32_t id,
                                 const int64_t *o, uint32_t *ret)
{
    struct checker *c = p->c;
    const struct typed_node *n = &c->t->nodes[id];
    const struct typed_input *in = &c->t->inputs[n->input];
    const struct grid *g = in->grid;
    bool moves = false;
    for (int k = 0; k < n->rank; k++) {
        int64_t width = g && !g->whole ? g->ghost[k] : 0;
        moves |= o[k] != 0;
        if (o[k] > width || o[k] < -width)
            return expr_err(
                c->x, place, c->e, ERR_GHOST_WIDTH,
                "an offset of %lld along axis %d needs that many ghost cells; '%s' has %lld there",
                (long long)o[k], k, in->name ? in->name : "the array", (long long)width);
    }
    if (!moves) {
        *ret = id;
        return ERR_OK;
    }
    return graph_shift(c, place, id, o, BOUNDARY_GHOST, 0, ret);
}

/* The frame for a view's operand. */
static enum err_code view_frame(struct pushing *p, uint32_t id, const int64_t *o,
                                struct frame **ret)
{
    const struct typed_node *n = &p->c->t->nodes[id], *x = &p->c->t->nodes[n->args[0]];
    int64_t inner[MAX_RANK] = {0};
    for (int k = 0; k < x->rank; k++) {
        int r = n->view->src[k];
        if (r < 0 || o[r] == 0)
            continue;
        bool forward = n->view->start[k] == 0 && n->view->step[k] == 1;
        bool back = n->view->start[k] == x->shape[k] - 1 && n->view->step[k] == -1;
        if (n->shape[r] != x->shape[k] || !(forward || back))
            return outside(p, id, "an indexed array");
        inner[k] = forward ? o[r] : -o[r];
    }
    return frame_for(p, p->c->origin[id], x->rank, x->shape, inner, ret);
}

/* The frame for argument a of a node; *ret NULL if the argument does not move. */
static enum err_code arg_frame(struct pushing *p, struct frame *f, uint32_t id, int a,
                               struct frame **ret)
{
    const struct typed_node *n = &p->c->t->nodes[id];
    int64_t o[MAX_RANK];
    switch (n->kind) {
    case T_OP:
    case T_CAST:
    case T_WHERE:
    case T_UNRAVEL:
        *ret = f;
        return ERR_OK;
    case T_VIEW:
        (void)own_offsets(f, n, o);
        return view_frame(p, id, o, ret);
    case T_SHIFT:
        if (n->shift.mode == BOUNDARY_GHOST || a > 0) {
            *ret = NULL;
            return ERR_OK;
        }
        (void)own_offsets(f, n, o);
        for (int k = 0; k < n->rank; k++)
            if (o[k] && n->shift.offsets[k])
                return outside(p, id, "a shift with another boundary along the same axis");
        return frame_for(p, p->c->origin[id], n->rank, n->shape, o, ret);
    case T_CONST:
    case T_INPUT:
    case T_INDEX:
    case T_REDUCE:
    case T_RANDOM:
    default:
        *ret = NULL;
        return ERR_OK;
    }
}

/* Makes the moved copy of a node whose arguments have moved. */
static enum err_code move_node(struct pushing *p, struct frame *f, uint32_t id, const int64_t *o,
                               uint32_t *ret)
{
    struct checker *c = p->c;
    const struct typed_node n = c->t->nodes[id];
    uint32_t args[3] = {0};
    switch (n.kind) {
    case T_INPUT:
        return moved_input(p, c->origin[id], id, o, ret);
    case T_INDEX:
        return graph_op_int(c, c->origin[id], OP_ADD, id, o[n.axis], ret);
    case T_SHIFT:
        if (n.shift.mode == BOUNDARY_GHOST) {
            int64_t sum[MAX_RANK];
            for (int k = 0; k < n.rank; k++)
                if (__builtin_add_overflow(o[k], n.shift.offsets[k], &sum[k]))
                    return outside(p, id, "an array");
            return moved_input(p, c->origin[id], n.args[0], sum, ret);
        }
        break;
    case T_OP:
    case T_CAST:
    case T_WHERE:
    case T_UNRAVEL:
    case T_VIEW:
        break;
    case T_CONST:
    case T_REDUCE:
    case T_RANDOM:
    default:
        return outside(p, id, n.kind == T_REDUCE ? "a reduction" : "a computed result");
    }
    for (int a = 0; a < n.n_args; a++) {
        struct frame *inner;
        TRY(arg_frame(p, f, id, a, &inner));
        args[a] = inner ? inner->moved[n.args[a]] - 1 : n.args[a];
    }
    return graph_with_args(c, id, args, ret);
}

static enum err_code put(struct pushing *p, struct frame *f, uint32_t node)
{
    if (arena_grow(p->c->arena, (void **)&p->stack, &p->cap, p->depth, sizeof *p->stack))
        return err_oom(p->c->e);
    p->stack[p->depth++] = (struct pending){f, node};
    return ERR_OK;
}

/* Processes the top of the stack: pushes its arguments first, then moves the node itself. */
static enum err_code step(struct pushing *p)
{
    struct frame *f = p->stack[p->depth - 1].frame;
    uint32_t id = p->stack[p->depth - 1].node;
    const struct typed_node *n = &p->c->t->nodes[id];
    int64_t o[MAX_RANK];
    size_t depth = p->depth;
    bool stays = !own_offsets(f, n, o);
    for (int a = 0; a < n->n_args && !stays && !f->moved[id]; a++) {
        struct frame *inner;
        TRY(arg_frame(p, f, id, a, &inner));
        if (inner && !inner->moved[n->args[a]])
            TRY(put(p, inner, n->args[a]));
    }
    if (p->depth > depth)
        return ERR_OK;
    p->depth--;
    if (f->moved[id])
        return ERR_OK;
    uint32_t became = id;
    if (!stays)
        TRY(move_node(p, f, id, o, &became));
    f->moved[id] = became + 1;
    return ERR_OK;
}

enum err_code ghost_shift(struct checker *c, uint32_t place, uint32_t x, const int64_t *offsets,
                          uint32_t *ret)
{
    struct pushing p = {.c = c, .n_nodes = c->t->n_nodes};
    const struct typed_node *n = &c->t->nodes[x];
    struct frame *f;
    TRY(frame_for(&p, place, n->rank, n->shape, offsets, &f));
    TRY(put(&p, f, x));
    while (p.depth)
        TRY(step(&p));
    *ret = f->moved[x] - 1;
    return ERR_OK;
}

/* --- mode array --- */

/* (2k−1)·h·d as type t, with k from the index along the axis. */
static enum err_code slope(struct checker *c, uint32_t place, const struct grid *g, int axis,
                           int64_t o, int64_t extent, enum dtype t, uint32_t *ret)
{
    bool high = o > 0;
    enum dtype wide = face_wide(t);
    uint32_t k, by;
    TRY(graph_index(c, place, axis, &k));
    TRY(graph_op_int(c, place, OP_MULTIPLY, k, high ? 2 : -2, &k));
    TRY(graph_op_int(c, place, OP_ADD, k, high ? 2 * (o - extent) + 1 : -2 * o - 1, &k));
    TRY(graph_cast(c, place, k, wide, &k));
    TRY(graph_const(c, place, grid_spacing(g, axis, wide), &by));
    TRY(graph_op2(c, place, OP_MULTIPLY, k, by, &k));
    TRY(graph_const(c, place, face_constant(&g->face[axis][high], 1, wide), &by));
    TRY(graph_op2(c, place, OP_MULTIPLY, k, by, &k));
    return graph_cast(c, place, k, t, ret);
}

/* Whether a shift stays inside the shape, as a shift of true: backends evaluate that for whole
 * boxes. */
static enum err_code stays_inside(struct checker *c, uint32_t place, uint32_t x,
                                  const int64_t *offsets, uint32_t *ret)
{
    const struct scalar truth = {.dtype = DT_BOOL, .v.b = 1};
    uint32_t yes, no;
    TRY(graph_const(c, place, (struct scalar){.dtype = DT_BOOL}, &no));
    TRY(graph_filled(c, place, truth, c->t->nodes[x].rank, c->t->nodes[x].shape, &yes));
    return graph_shift(c, place, yes, offsets, BOUNDARY_CONSTANT, no, ret);
}

/* x shifted along one axis, with the condition of the face behind which the shift reads. */
static enum err_code shift_axis(struct checker *c, uint32_t place, const struct grid *g, int axis,
                                int64_t o, uint32_t x, uint32_t *ret)
{
    const struct face *face = &g->face[axis][o > 0];
    enum dtype own = c->t->nodes[x].dtype, work = face_dtype(own);
    int64_t n = c->t->nodes[x].shape[axis], offsets[MAX_RANK] = {[0] = 0};
    enum boundary_mode mode = face->type == FACE_PERIODIC ? BOUNDARY_WRAP
                              : face->type == FACE_NONE   ? BOUNDARY_CLAMP
                                                          : BOUNDARY_SYMMETRIC;
    uint32_t s, phi, v, inside;
    offsets[axis] = o;
    TRY(graph_shift(c, place, x, offsets, mode, 0, &s));
    *ret = s;
    if (mode != BOUNDARY_SYMMETRIC)
        return ERR_OK;
    TRY(graph_cast(c, place, s, work, &phi));
    if (face->type == FACE_DIRICHLET) {
        TRY(graph_const(c, place, face_constant(face, 2, work), &v));
        TRY(graph_op2(c, place, OP_SUBTRACT, v, phi, &v));
    } else {
        TRY(slope(c, place, g, axis, o, n, work, &v));
        TRY(graph_op2(c, place, o > 0 ? OP_ADD : OP_SUBTRACT, phi, v, &v));
    }
    TRY(graph_cast(c, place, v, own, &v));
    TRY(stays_inside(c, place, x, offsets, &inside));
    TRY(graph_where(c, place, inside, s, v, &v));
    return graph_close_operand(c, place, v, ret);
}

enum err_code array_boundary(struct checker *c, uint32_t at, uint32_t x, const struct grid **ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    const struct grid *g = ghost_grid(c, x);
    if (n->kind != T_INPUT)
        return expr_err(c->x, at, c->e, ERR_BAD_BOUNDARY,
                        "boundary 'array' needs the name of an array, not an expression");
    if (!g || !g->has_boundary)
        return expr_err(c->x, at, c->e, ERR_BAD_BOUNDARY,
                        "boundary 'array' uses the array's own boundary, but '%s' has none",
                        c->t->inputs[n->input].name ? c->t->inputs[n->input].name : "it");
    *ret = g;
    return ERR_OK;
}

enum err_code array_shift(struct checker *c, uint32_t place, uint32_t at, uint32_t x,
                          const int64_t *offsets, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    const struct grid *g;
    TRY(array_boundary(c, at, x, &g));
    for (int k = 0; k < n->rank; k++)
        if (offsets[k] > n->shape[k] || offsets[k] < -n->shape[k])
            return expr_err(c->x, place, c->e, ERR_BAD_BOUNDARY,
                            "an offset of %lld along axis %d of extent %lld: with boundary 'array' "
                            "an offset cannot exceed the extent",
                            (long long)offsets[k], k, (long long)n->shape[k]);
    uint32_t id = x;
    for (int k = 0, rank = n->rank; k < rank; k++)
        if (offsets[k])
            TRY(shift_axis(c, place, g, k, offsets[k], id, &id));
    *ret = id;
    return ERR_OK;
}

enum err_code array_spacing(struct checker *c, uint32_t at, uint32_t x, int axis, struct cval *ret)
{
    const struct grid *g = ghost_grid(c, x);
    if (c->t->nodes[x].kind != T_INPUT)
        return expr_err(c->x, at, c->e, ERR_BAD_EXPRESSION,
                        "spacing \"array\" needs an array, but this is an expression");
    *ret = cval_int(1, at);
    if (g && g->spacing[axis] != 1)
        ret->lit = (struct literal){.kind = LIT_FLOAT, .re = g->spacing[axis]};
    return ERR_OK;
}
