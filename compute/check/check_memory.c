/* Nodes that move elements. Inserting or stretching axes makes a view; other nodes need memory:
 * elements under another shape, elements by number, known numbers, concatenated arrays.
 *
 * An operand that is an array, or a slice of one, is used where it lies if its strides allow it:
 * reshaping it gives another view of the array (another T_INPUT), gathering from it needs no copy.
 */
#include <string.h>

#include "compute/check/check_graph.h"

enum err_code graph_fits(struct checker *c, uint32_t place, enum dtype t, int rank,
                         const int64_t *shape)
{
    struct view v;
    return check_place(c, place, view_contiguous(rank, shape, dtype_size(t), &v, c->e));
}

enum err_code graph_filled(struct checker *c, uint32_t place, struct scalar s, int rank,
                           const int64_t *shape, uint32_t *ret)
{
    const struct affine nothing = {0};
    TRY(graph_const(c, place, s, ret));
    return graph_view(c, place, *ret, &nothing, rank, shape, ret);
}

enum err_code graph_expand(struct checker *c, uint32_t place, uint32_t x, uint32_t fresh,
                           uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    int64_t shape[MAX_RANK];
    struct affine a = affine_same(n->rank);
    int rank = n->rank + __builtin_popcount(fresh);
    for (int k = 0, from = 0; k < rank; k++) {
        if (fresh >> k & 1) {
            shape[k] = 1;
            continue;
        }
        a.src[from] = (int8_t)k;
        shape[k] = n->shape[from++];
    }
    return graph_view(c, place, x, &a, rank, shape, ret);
}

enum err_code graph_broadcast(struct checker *c, uint32_t place, uint32_t x, int rank,
                              const int64_t *shape, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    struct affine a = affine_same(n->rank);
    bool fits = rank >= n->rank;
    for (int k = 0; k < n->rank && fits; k++) {
        int to = k + rank - n->rank;
        a.src[k] = (int8_t)(n->shape[k] == 1 && shape[to] != 1 ? -1 : to);
        fits = a.src[k] < 0 || n->shape[k] == shape[to];
    }
    char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
    if (!fits)
        return expr_err(c->x, place, c->e, ERR_SHAPE_MISMATCH,
                        "the shape %s does not broadcast to %s",
                        shape_text(n->rank, n->shape, from, sizeof from),
                        shape_text(rank, shape, to, sizeof to));
    return graph_view(c, place, x, &a, rank, shape, ret);
}

/* Fills *ret with the strided view of an array that a node is, and the array's input; false if it
 * is none. */
static bool array_view_of(const struct checker *c, uint32_t a, struct view *ret,
                          const struct typed_input **ret_input)
{
    const struct typed_node *n = &c->t->nodes[a];
    if (n->kind == T_INPUT) {
        *ret_input = &c->t->inputs[n->input];
        *ret = (*ret_input)->view;
        return true;
    }
    struct view v;
    if (n->kind != T_VIEW || !array_view_of(c, n->args[0], &v, ret_input))
        return false;
    struct view w = {.rank = n->rank, .offset = v.offset};
    for (int k = 0; k < n->rank; k++)
        w.shape[k] = n->shape[k];
    for (int k = 0; k < v.rank; k++) {
        w.offset += v.strides[k] * n->view->start[k];
        if (n->view->src[k] >= 0)
            w.strides[n->view->src[k]] += v.strides[k] * n->view->step[k];
    }
    *ret = w;
    return true;
}

/* Whether another view of an array may be added; false at the limit of inputs. */
static bool can_add_input(const struct checker *c)
{
    return c->t->n_inputs < c->env->max_inputs;
}

static enum err_code other_view(struct checker *c, uint32_t place, const struct typed_input *in,
                                const struct view *v, uint32_t *ret)
{
    struct binding b = {.kind = BINDING_ARRAY, .array = in->array, .dtype = in->dtype, .view = *v};
    return graph_input(c, place, in->name, &b, ret);
}

/* The node in a form that is laid out in memory: inputs and constants go behind an identity view.
 */
static enum err_code laid_out(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret)
{
    *ret = a;
    enum typed_kind kind = c->t->nodes[a].kind;
    return kind == T_INPUT || kind == T_CONST ? graph_same(c, place, a, ret) : ERR_OK;
}

/* Whether only axes of extent 1 are added or removed; if so, the view that does it. */
static bool squeezes(const struct typed_node *n, int rank, const int64_t *shape, struct affine *ret)
{
    int to = 0;
    *ret = (struct affine){.rank = n->rank};
    for (int k = 0; k < n->rank; k++) {
        ret->src[k] = -1;
        if (n->shape[k] == 1)
            continue;
        while (to < rank && shape[to] == 1)
            to++;
        if (to == rank || shape[to] != n->shape[k])
            return false;
        ret->src[k] = (int8_t)to++;
        ret->step[k] = 1;
    }
    return true; /* the element counts agree, so the rest are ones */
}

/* `strides`: NULL for C order. */
static enum err_code stored(struct checker *c, uint32_t place, uint32_t a, int rank,
                            const int64_t *shape, const int64_t *strides, uint32_t *ret)
{
    TRY(laid_out(c, place, a, &a));
    struct typed_node n = {.kind = T_RESHAPE,
                           .dtype = c->t->nodes[a].dtype,
                           .rank = rank,
                           .shape = shape,
                           .n_args = 1,
                           .args = {a},
                           .strides = strides};
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_reshape(struct checker *c, uint32_t place, uint32_t a, int rank,
                            const int64_t *shape, uint32_t *ret)
{
    const struct typed_node *x = &c->t->nodes[a];
    const struct typed_input *in;
    struct affine same;
    struct view v, w;
    if (squeezes(x, rank, shape, &same))
        return graph_view(c, place, a, &same, rank, shape, ret);
    if (array_view_of(c, a, &v, &in) && can_add_input(c) &&
        view_reshape(&v, rank, shape, &w, NULL) == ERR_OK)
        return other_view(c, place, in, &w, ret);
    if (x->kind == T_RESHAPE && !x->strides)
        return graph_reshape(c, place, x->args[0], rank, shape, ret);
    return stored(c, place, a, rank, shape, NULL, ret);
}

enum err_code graph_stored(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[a];
    return stored(c, place, a, n->rank, n->shape, NULL, ret);
}

/* An element has one place in memory, however many windows it is in: what is no array is computed
 * once and lies in a temporary. */
enum err_code graph_windows(struct checker *c, uint32_t place, uint32_t x, int n, const int *axes,
                            const int64_t *windows, uint32_t *ret)
{
    const struct typed_node *from = &c->t->nodes[x];
    const struct typed_input *in = NULL;
    struct view v;
    const bool is_array = array_view_of(c, x, &v, &in) && can_add_input(c);
    if (!is_array)
        TRY(view_contiguous(from->rank, from->shape, dtype_size(from->dtype), &v, c->e));
    for (int i = 0; i < n; i++) {
        v.shape[axes[i]] -= windows[i] - 1;
        v.shape[v.rank] = windows[i];
        v.strides[v.rank++] = v.strides[axes[i]];
    }
    TRY(graph_fits(c, place, from->dtype, v.rank, v.shape));
    if (is_array)
        return other_view(c, place, in, &v, ret);
    const size_t bytes = (size_t)v.rank * sizeof(int64_t);
    const int64_t *shape = arena_dup(c->arena, v.shape, bytes);
    const int64_t *strides = arena_dup(c->arena, v.strides, bytes);
    if (!shape || !strides)
        return err_oom(c->e);
    return stored(c, place, x, v.rank, shape, strides, ret);
}

enum err_code graph_gather(struct checker *c, uint32_t place, uint32_t a, uint32_t i, uint32_t *ret)
{
    const struct typed_input *in;
    struct view v;
    if (array_view_of(c, a, &v, &in) && view_is_contiguous(&v) &&
        (c->t->nodes[a].kind == T_INPUT || can_add_input(c)))
        TRY(other_view(c, place, in, &v, &a));
    else
        TRY(laid_out(c, place, a, &a));
    const struct typed_node *at = &c->t->nodes[i];
    struct typed_node n = {.kind = T_GATHER,
                           .dtype = c->t->nodes[a].dtype,
                           .rank = at->rank,
                           .shape = at->shape,
                           .n_args = 2,
                           .args = {a, i}};
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_table(struct checker *c, uint32_t place, const int64_t *v, int64_t n,
                          uint32_t i, uint32_t *ret)
{
    struct number_table *t = arena_alloc(c->arena, sizeof *t);
    if (!t)
        return err_oom(c->e);
    *t = (struct number_table){n, v};
    const struct typed_node *at = &c->t->nodes[i];
    struct typed_node node = {.kind = T_TABLE,
                              .dtype = DT_I64,
                              .rank = at->rank,
                              .shape = at->shape,
                              .n_args = 1,
                              .args = {i},
                              .table = t};
    return graph_add(c, place, &node, c->flags[i], ret);
}

enum err_code graph_concat(struct checker *c, uint32_t place, const uint32_t *parts, uint32_t n,
                           int axis, uint32_t *ret)
{
    const struct typed_node *first = &c->t->nodes[parts[0]];
    int64_t shape[MAX_RANK] = {0}, total = 0, at = 0;
    struct typed_node put = {.kind = T_PUT, .dtype = first->dtype, .rank = first->rank};
    for (int k = 0; k < first->rank; k++)
        shape[k] = first->shape[k];
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(total, c->t->nodes[parts[i]].shape[axis], &total))
            total = INT64_MAX;
    shape[axis] = total;
    TRY(graph_fits(c, place, put.dtype, put.rank, shape));
    put.shape = shape;
    put.put.axis = axis;
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t extent = c->t->nodes[parts[i]].shape[axis];
        if (extent == total) { /* the others are empty */
            *ret = parts[i];
            return ERR_OK;
        }
        if (extent == 0)
            continue;
        put.args[0] = parts[i];
        put.n_args = 1;
        if (used++)
            put.args[put.n_args++] = *ret;
        put.put.offset = at;
        TRY(graph_add(c, place, &put, NODE_ARRAY, ret));
        at += extent;
    }
    return ERR_OK;
}
