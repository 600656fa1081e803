/* sample(x, points): values between the cells, by gathers.
 *
 * Each coordinate is first mapped into the array according to the boundary, so that no index can
 * overflow whatever the coordinate. This uses float64, or float32 if that gives the same bits at a
 * third of the instructions (a float32 that is clamped into 2^24 cells and not mapped otherwise has
 * its cell and its fraction exactly). Element numbers are int32 if that suffices. Linear: the
 * 2^rank cells around the point, interpolated axis by axis; with a weight of 0 the other cell has
 * no effect, even if it is infinite. A NaN coordinate's weight is NaN, and so is the result.
 * Nearest: the coordinate is rounded before it is mapped.
 *
 * The array's own boundary is first treated as clamp (or wrap), which gives the edge's value; then,
 * axis by axis, the face's condition is applied: axis 0 innermost, as ghosts are filled.
 *
 * Along many axes that would be too much code. There a sum runs over the corners, a corner's number
 * being one bit per axis; the weights' products and the cells' numbers are tables for half of the
 * axes each. A face's condition is linear in the value, so it may be applied at the end. */
#include <math.h>
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"
#include "compute/type/grid.h"

#define NONE UINT32_MAX

/* Up to this many axes are interpolated one by one; with more, an extra axis counts the corners. */
#define FEW_AXES 4

struct sampling {
    struct checker *c;
    uint32_t place, x, points;
    int rank;
    const int64_t *shape, *strides;
    bool nearest;
    enum boundary_mode mode;
    const struct grid *grid; /* the grid whose boundary applies; NULL: `mode` does */
    enum dtype calc, weight; /* the interpolation's dtype, and its real type */
    enum dtype index;        /* dtype of element numbers: int32 if they fit, else int64 */
    uint32_t value;          /* of the boundary, in calc */
};

/* A point's position along one axis. */
struct place {
    uint32_t cell[2]; /* of s.index, times the axis's stride; the second for linear */
    uint32_t inside[2];
    uint32_t weight;     /* of the second cell; nearest: the coordinate, for its NaN */
    uint32_t coordinate; /* float64, as given */
    bool exact;          /* the weight was not rounded: it is less than 1 */
};

static enum err_code number(struct sampling *s, enum dtype t, double v, uint32_t *ret)
{
    struct scalar n = scalar_cast((struct scalar){.dtype = DT_F64, .v.f64 = v}, t);
    return graph_const(s->c, s->place, n, ret);
}

/* op(a, v) */
static enum err_code with(struct sampling *s, enum op op, uint32_t a, double v, uint32_t *ret)
{
    uint32_t id;
    TRY(number(s, s->c->t->nodes[a].dtype, v, &id));
    return graph_op2(s->c, s->place, op, a, id, ret);
}

/* v − a */
static enum err_code minus(struct sampling *s, double v, uint32_t a, uint32_t *ret)
{
    uint32_t id;
    TRY(number(s, s->c->t->nodes[a].dtype, v, &id));
    return graph_op2(s->c, s->place, OP_SUBTRACT, id, a, ret);
}

static enum err_code clamped(struct sampling *s, uint32_t a, double lo, double hi, uint32_t *ret)
{
    TRY(with(s, OP_MAXIMUM, a, lo, &a));
    return with(s, OP_MINIMUM, a, hi, ret);
}

/* a, or top − a if a is above `limit` */
static enum err_code folded(struct sampling *s, uint32_t a, double limit, double top, uint32_t *ret)
{
    uint32_t above, other;
    TRY(with(s, OP_GREATER, a, limit, &above));
    TRY(minus(s, top, a, &other));
    return graph_where(s->c, s->place, above, other, a, ret);
}

/* Maps a coordinate (linear) or a cell's number (nearest) as the boundary says: into 0 … n − 1, but
 * up to n for wrap and from −1 to n for constant. */
static enum err_code bring_in(struct sampling *s, uint32_t p, int64_t extent, uint32_t *ret)
{
    const double n = (double)extent;
    switch (s->mode) {
    case BOUNDARY_WRAP:
        return with(s, OP_REMAINDER, p, n, ret);
    case BOUNDARY_REFLECT:
        if (extent == 1) /* NaN stays NaN */
            return with(s, OP_MULTIPLY, p, 0, ret);
        TRY(with(s, OP_REMAINDER, p, 2 * (n - 1), &p));
        return folded(s, p, n - 1, 2 * (n - 1), ret);
    case BOUNDARY_SYMMETRIC:
        TRY(with(s, OP_REMAINDER, p, 2 * n, &p));
        TRY(folded(s, p, n - 0.5, 2 * n - 1, &p));
        return clamped(s, p, 0, n - 1, ret);
    case BOUNDARY_CONSTANT:
        return clamped(s, p, -1, n, ret);
    case BOUNDARY_SELF:
    case BOUNDARY_GHOST:
    case BOUNDARY_CLAMP:
        break;
    }
    return clamped(s, p, 0, n - 1, ret);
}

/* Maps a cell's number that is just outside; whether it was inside, and its contribution to the
 * element's number. `far`: it is the cell after the coordinate's. */
static enum err_code cell(struct sampling *s, uint32_t i, int axis, bool far, uint32_t *ret,
                          uint32_t *ret_inside)
{
    const int64_t n = s->shape[axis];
    uint32_t lo, hi, zero;
    *ret_inside = NONE;
    if (s->mode == BOUNDARY_CONSTANT) {
        TRY(with(s, OP_GREATER_EQUAL, i, 0, &lo));
        TRY(with(s, OP_LESS, i, (double)n, &hi));
        TRY(graph_op2(s->c, s->place, OP_LOGICAL_AND, lo, hi, ret_inside));
        TRY(with(s, OP_MAXIMUM, i, 0, &i));
    }
    if (s->mode == BOUNDARY_WRAP) {
        TRY(with(s, OP_GREATER_EQUAL, i, (double)n, &hi));
        TRY(number(s, s->index, 0, &zero));
        TRY(graph_where(s->c, s->place, hi, zero, i, &i));
    } else if (far ||
               s->mode == BOUNDARY_CONSTANT) { /* otherwise the coordinate is at most n − 1 */
        TRY(with(s, OP_MINIMUM, i, (double)(n - 1), &i));
    }
    *ret = i;
    return s->strides[axis] == 1 ? ERR_OK : with(s, OP_MULTIPLY, i, (double)s->strides[axis], ret);
}

/* floor(p + 1/2) without the sum's rounding. */
static enum err_code rounded(struct sampling *s, uint32_t p, uint32_t *ret)
{
    uint32_t down, up, rest;
    TRY(graph_op(s->c, s->place, OP_FLOOR, &p, &down));
    TRY(graph_op2(s->c, s->place, OP_SUBTRACT, p, down, &rest));
    TRY(with(s, OP_GREATER_EQUAL, rest, 0.5, &rest));
    TRY(with(s, OP_ADD, down, 1, &up));
    return graph_where(s->c, s->place, rest, up, down, ret);
}

/* A type that holds a coordinate, its cell and its fraction exactly. Only clamp never adds to one.
 */
static enum dtype coordinate_type(const struct sampling *s, int axis)
{
    enum dtype t = s->c->t->nodes[s->points].dtype;
    bool narrow = t == DT_F32 || dtype_is_half(t);
    return narrow && s->mode == BOUNDARY_CLAMP && s->shape[axis] <= 1 << 24 ? DT_F32 : DT_F64;
}

static enum err_code find_place(struct sampling *s, int axis, struct place *ret)
{
    struct checker *c = s->c;
    struct affine column = {.rank = 2, .src = {0, -1}, .start = {0, axis}, .step = {1, 1}};
    uint32_t p, down, i;
    TRY(graph_view(c, s->place, s->points, &column, 1, c->t->nodes[s->points].shape, &p));
    TRY(graph_cast(c, s->place, p, DT_F64, &ret->coordinate));
    if (s->grid)
        s->mode =
            s->grid->face[axis][FACE_LOW].type == FACE_PERIODIC ? BOUNDARY_WRAP : BOUNDARY_CLAMP;
    enum dtype t = coordinate_type(s, axis);
    ret->exact = t == DT_F32;
    TRY(graph_cast(c, s->place, p, t, &p));
    if (s->nearest)
        TRY(rounded(s, p, &p));
    TRY(bring_in(s, p, s->shape[axis], &p));
    TRY(graph_op(c, s->place, OP_FLOOR, &p, &down));
    TRY(graph_cast(c, s->place, down, s->index, &i));
    TRY(cell(s, i, axis, false, &ret->cell[0], &ret->inside[0]));
    ret->weight = p;
    if (s->nearest)
        return ERR_OK;
    TRY(graph_op2(c, s->place, OP_SUBTRACT, p, down, &p));
    TRY(graph_cast(c, s->place, p, s->weight, &ret->weight));
    TRY(with(s, OP_ADD, i, 1, &i));
    return cell(s, i, axis, true, &ret->cell[1], &ret->inside[1]);
}

/* The cell at one corner: bit k of `corner` for the far side along axis k. */
static enum err_code corner_value(struct sampling *s, const struct place *places, const int *axes,
                                  int n, uint32_t corner, uint32_t *ret)
{
    struct checker *c = s->c;
    const struct affine nothing = {.rank = 0};
    uint32_t at = 0, inside = NONE;
    if (n == 0) {
        TRY(number(s, s->index, 0, &at));
        TRY(graph_view(c, s->place, at, &nothing, 1, c->t->nodes[s->points].shape, &at));
    }
    for (int k = 0; k < n; k++) {
        const struct place *p = &places[axes[k]];
        uint32_t side = corner >> k & 1, in = p->inside[side];
        if (k)
            TRY(graph_op2(c, s->place, OP_ADD, at, p->cell[side], &at));
        else
            at = p->cell[side];
        if (in != NONE && inside != NONE)
            TRY(graph_op2(c, s->place, OP_LOGICAL_AND, inside, in, &inside));
        else if (in != NONE)
            inside = in;
    }
    TRY(graph_cast(c, s->place, at, DT_I64, &at));
    TRY(graph_gather(c, s->place, s->x, at, ret));
    TRY(graph_cast(c, s->place, *ret, s->calc, ret));
    return inside == NONE ? ERR_OK : graph_where(c, s->place, inside, *ret, s->value, ret);
}

/* a·(1 − w) + b·w; `exact`: w is not 1. */
static enum err_code between(struct sampling *s, uint32_t a, uint32_t b, uint32_t w, bool exact,
                             uint32_t *ret)
{
    struct checker *c = s->c;
    uint32_t none, all, left, right;
    TRY(with(s, OP_EQUAL, w, 0, &none));
    TRY(minus(s, 1, w, &left));
    TRY(graph_cast(c, s->place, left, s->calc, &left));
    TRY(graph_cast(c, s->place, w, s->calc, &right));
    TRY(graph_op2(c, s->place, OP_MULTIPLY, a, left, &left));
    TRY(graph_op2(c, s->place, OP_MULTIPLY, b, right, &right));
    TRY(graph_op2(c, s->place, OP_ADD, left, right, ret));
    if (!exact) {
        TRY(with(s, OP_EQUAL, w, 1, &all));
        TRY(graph_where(c, s->place, all, b, *ret, ret));
    }
    return graph_where(c, s->place, none, a, *ret, ret);
}

/* The value at a point `out` cells (float64) beyond the middle of the cell at a dirichlet face; r
 * is that cell's value. */
static enum err_code behind_value(struct sampling *s, const struct face *f, bool high, uint32_t out,
                                  uint32_t r, uint32_t *ret)
{
    struct checker *c = s->c;
    uint32_t v, ghost, w, at, past;
    TRY(graph_const(c, s->place, face_constant(f, 1, s->calc), &v));
    TRY(graph_const(c, s->place, face_constant(f, 2, s->calc), &ghost));
    TRY(graph_op2(c, s->place, OP_SUBTRACT, ghost, r, &ghost));
    TRY(with(s, s->nearest ? OP_GREATER : OP_GREATER_EQUAL, out, 0.5, &past));
    if (s->nearest && high) {
        TRY(with(s, OP_EQUAL, out, 0.5, &at));
        TRY(graph_where(c, s->place, at, ghost, r, &r));
    } else if (!s->nearest) {
        uint32_t inner;
        TRY(with(s, OP_MINIMUM, out, 0.5, &w));
        TRY(graph_cast(c, s->place, w, s->weight, &w));
        TRY(between(s, r, ghost, w, true, &inner));
        TRY(with(s, OP_GREATER, out, 0, &at));
        TRY(graph_where(c, s->place, at, inner, r, &r));
    }
    return graph_where(c, s->place, past, v, r, ret);
}

/* The same at a neumann face: r extrapolated with the slope. */
static enum err_code behind_slope(struct sampling *s, int axis, bool high, uint32_t out, uint32_t r,
                                  uint32_t *ret)
{
    struct checker *c = s->c;
    const struct face *f = &s->grid->face[axis][high];
    enum dtype wide = face_wide(s->calc);
    uint32_t past, by, x;
    *ret = r;
    if (f->re == 0 && f->im == 0) /* not 0 times infinity */
        return ERR_OK;
    TRY(with(s, OP_GREATER, out, s->nearest ? 0.5 : 0, &past));
    if (s->nearest && high) { /* the ghost itself is the nearest cell */
        TRY(with(s, OP_EQUAL, out, 0.5, &x));
        TRY(number(s, DT_F64, 1, &by));
        TRY(graph_where(c, s->place, x, by, out, &out));
        TRY(with(s, OP_GREATER, out, 0.5, &past));
    }
    TRY(graph_cast(c, s->place, out, wide, &x));
    TRY(graph_const(c, s->place, grid_spacing(s->grid, axis, wide), &by));
    TRY(graph_op2(c, s->place, OP_MULTIPLY, x, by, &x));
    TRY(graph_const(c, s->place, face_constant(f, 1, wide), &by));
    TRY(graph_op2(c, s->place, OP_MULTIPLY, x, by, &x));
    TRY(graph_cast(c, s->place, x, s->calc, &x));
    TRY(graph_op2(c, s->place, high ? OP_ADD : OP_SUBTRACT, r, x, &x));
    return graph_where(c, s->place, past, x, r, ret);
}

/* Applies the conditions of an axis's faces to the value *r that clamping gave. */
static enum err_code behind_faces(struct sampling *s, const struct place *p, int axis, uint32_t *r)
{
    for (int side = FACE_LOW; s->grid && side <= FACE_HIGH; side++) {
        const struct face *f = &s->grid->face[axis][side];
        bool high = side == FACE_HIGH;
        uint32_t out;
        if (f->type != FACE_DIRICHLET && f->type != FACE_NEUMANN)
            continue;
        if (high)
            TRY(with(s, OP_SUBTRACT, p->coordinate, (double)(s->shape[axis] - 1), &out));
        else
            TRY(minus(s, 0, p->coordinate, &out));
        TRY(f->type == FACE_DIRICHLET ? behind_value(s, f, high, out, *r, r)
                                      : behind_slope(s, axis, high, out, *r, r));
    }
    return ERR_OK;
}

/* NaN for a NaN coordinate, which a face's value or a cell may have hidden. */
static enum err_code nan_kept(struct sampling *s, const struct place *places, uint32_t v,
                              uint32_t *ret)
{
    uint32_t bad = NONE, nan;
    for (int k = 0; k < s->rank; k++) {
        TRY(graph_op(s->c, s->place, OP_ISNAN, &places[k].weight, &nan));
        if (k)
            TRY(graph_op2(s->c, s->place, OP_LOGICAL_OR, bad, nan, &nan));
        bad = nan;
    }
    const struct scalar both = {.dtype = DT_C128, .v.c128 = {NAN, NAN}};
    if (dtype_is_complex(s->calc))
        TRY(graph_const(s->c, s->place, scalar_cast(both, s->calc), &nan));
    else
        TRY(number(s, s->calc, NAN, &nan));
    return graph_where(s->c, s->place, bad, nan, v, ret);
}

/* Applies the faces of all axes, axis 0 first, and NaN for NaN coordinates. */
static enum err_code finish(struct sampling *s, const struct place *places, uint32_t v,
                            uint32_t *ret)
{
    for (int k = 0; k < s->rank; k++)
        TRY(behind_faces(s, &places[k], k, &v));
    return nan_kept(s, places, v, ret);
}

/* The corners along some axes, for each point: their numbers, the products of their weights and
 * whether they are inside (NONE: all are); as arrays (m, 2^n), in memory. */
struct corners {
    int64_t n;
    uint32_t at, weight, inside;
};

static enum err_code choose(struct sampling *s, uint32_t far, const uint32_t side[2], uint32_t *ret)
{
    uint32_t two[2];
    for (int k = 0; k < 2; k++)
        TRY(graph_expand(s->c, s->place, side[k], 1u << 1, &two[k]));
    return graph_where(s->c, s->place, far, two[1], two[0], ret);
}

static enum err_code corners_along(struct sampling *s, const struct place *places, const int *axes,
                                   int n, struct corners *ret)
{
    struct checker *c = s->c;
    const int64_t shape[2] = {*c->t->nodes[s->points].shape, 1ll << n};
    uint32_t corner, far, id, w[2];
    ret->n = shape[1];
    ret->inside = NONE;
    TRY(graph_index_of(c, s->place, 1, 2, shape, &corner));
    TRY(number(s, s->index, 0, &ret->at));
    TRY(number(s, s->weight, 1, &ret->weight));
    for (int k = 0; k < n; k++) {
        const struct place *p = &places[axes[k]];
        TRY(with(s, OP_BITWISE_AND, corner, (double)(1ll << k), &far));
        TRY(with(s, OP_NOT_EQUAL, far, 0, &far));
        TRY(choose(s, far, p->cell, &id));
        TRY(graph_op2(c, s->place, OP_ADD, ret->at, id, &ret->at));
        w[1] = p->weight;
        TRY(minus(s, 1, w[1], &w[0]));
        TRY(choose(s, far, w, &id));
        TRY(graph_op2(c, s->place, OP_MULTIPLY, ret->weight, id, &ret->weight));
        if (p->inside[0] == NONE)
            continue;
        TRY(choose(s, far, p->inside, &id));
        if (ret->inside != NONE)
            TRY(graph_op2(c, s->place, OP_LOGICAL_AND, ret->inside, id, &id));
        ret->inside = id;
    }
    TRY(graph_stored(c, s->place, ret->at, &ret->at));
    TRY(graph_stored(c, s->place, ret->weight, &ret->weight));
    return ret->inside == NONE ? ERR_OK : graph_stored(c, s->place, ret->inside, &ret->inside);
}

/* op over all pairs of corners: (m, 2^n, 1) and (m, 1, 2^n'). */
static enum err_code pairs(struct sampling *s, enum op op, uint32_t a, uint32_t b, uint32_t *ret)
{
    TRY(graph_expand(s->c, s->place, a, 1u << 2, &a));
    TRY(graph_expand(s->c, s->place, b, 1u << 1, &b));
    return graph_op2(s->c, s->place, op, a, b, ret);
}

/* Along many axes: the sum over all corners of cell times weight, pairing the corners of half the
 * axes with those of the other half. */
static enum err_code summed(struct sampling *s, const struct place *places, const int *axes, int n,
                            uint32_t *ret)
{
    struct checker *c = s->c;
    struct corners a, b;
    uint32_t at, w, none, zero, inside;
    const int64_t shape[3] = {*c->t->nodes[s->points].shape, 1ll << n / 2, 1ll << (n - n / 2)};
    TRY(graph_fits(c, s->place, s->calc, 3, shape));
    TRY(corners_along(s, places, axes, n / 2, &a));
    TRY(corners_along(s, places, axes + n / 2, n - n / 2, &b));
    TRY(pairs(s, OP_ADD, a.at, b.at, &at));
    TRY(pairs(s, OP_MULTIPLY, a.weight, b.weight, &w));
    TRY(graph_cast(c, s->place, at, DT_I64, &at));
    TRY(graph_gather(c, s->place, s->x, at, ret));
    TRY(graph_cast(c, s->place, *ret, s->calc, ret));
    if (a.inside != NONE) {
        TRY(pairs(s, OP_LOGICAL_AND, a.inside, b.inside, &inside));
        TRY(graph_where(c, s->place, inside, *ret, s->value, ret));
    }
    TRY(with(s, OP_EQUAL, w, 0, &none));
    TRY(graph_cast(c, s->place, w, s->calc, &w));
    TRY(graph_op2(c, s->place, OP_MULTIPLY, *ret, w, ret));
    TRY(number(s, s->calc, 0, &zero));
    TRY(graph_where(c, s->place, none, zero, *ret, ret));
    TRY(graph_reduce(c, s->place, *ret, REDUCE_SUM, 0, 1u << 1 | 1u << 2, false, ret));
    return finish(s, places, *ret, ret);
}

static enum err_code linear(struct sampling *s, const struct place *places, uint32_t *ret)
{
    uint32_t v[1 << FEW_AXES];
    int axes[MAX_RANK], n_axes = 0;
    const bool interleaved = s->grid && s->rank <= FEW_AXES;
    for (int k = 0; k < s->rank; k++) /* with one cell, it is the same on both sides of the point */
        if (s->shape[k] > 1 || s->mode == BOUNDARY_CONSTANT || interleaved)
            axes[n_axes++] = k;
    if (n_axes > FEW_AXES)
        return summed(s, places, axes, n_axes, ret);
    uint32_t n = 1u << n_axes;
    for (uint32_t i = 0; i < n; i++)
        TRY(corner_value(s, places, axes, n_axes, i, &v[i]));
    for (int k = n_axes; k-- > 0 && !interleaved;)
        for (uint32_t i = 0; i < 1u << k; i++)
            TRY(between(s, v[i], v[i | 1u << k], places[axes[k]].weight, places[axes[k]].exact,
                        &v[i]));
    for (int k = 0; k < n_axes && interleaved; k++)
        for (uint32_t i = 0; i < n; i += 2u << k) {
            TRY(between(s, v[i], v[i | 1u << k], places[k].weight, places[k].exact, &v[i]));
            TRY(behind_faces(s, &places[k], k, &v[i]));
        }
    *ret = v[0];
    if (s->grid && !interleaved)
        return finish(s, places, *ret, ret);
    return interleaved || n_axes < s->rank ? nan_kept(s, places, *ret, ret) : ERR_OK;
}

static enum err_code nearest(struct sampling *s, const struct place *places, uint32_t *ret)
{
    uint32_t v;
    int axes[MAX_RANK];
    for (int k = 0; k < s->rank; k++)
        axes[k] = k;
    TRY(corner_value(s, places, axes, s->rank, 0, &v));
    return finish(s, places, v, ret);
}

static enum err_code method_param(struct checker *c, uint32_t node, bool *ret_nearest)
{
    *ret_nearest = false;
    if (check_absent(c, node))
        return ERR_OK;
    const char *text = check_text(c, node);
    if (!text || (strcmp(text, "linear") != 0 && strcmp(text, "nearest") != 0))
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                        "method must be 'linear' or 'nearest'");
    *ret_nearest = *text == 'n';
    return ERR_OK;
}

static enum err_code boundary_params(struct sampling *s, const struct call *call)
{
    struct checker *c = s->c;
    struct edge edge;
    TRY(check_edge(c, call->param[3], call->param[4], &edge));
    if (check_absent(c, call->param[3]))
        edge.mode = BOUNDARY_CLAMP;
    if (edge.array) {
        edge.mode = BOUNDARY_CLAMP;
        TRY(array_boundary(c, edge.place, s->x, &s->grid));
    }
    if (edge.mode == BOUNDARY_SELF || edge.mode == BOUNDARY_GHOST)
        return expr_err(c->x, call->param[3], c->e, ERR_BAD_BOUNDARY,
                        "sample() takes the boundary modes clamp, wrap, reflect, symmetric, "
                        "constant and array only");
    s->mode = edge.mode;
    const struct cval zero = cval_int(0, call->node);
    return ops_convert(c, edge.valued ? &edge.value : &zero, s->calc, &s->value);
}

/* points: (m, rank) real numbers, one point per row. */
static enum err_code points_param(struct sampling *s, uint32_t node)
{
    struct checker *c = s->c;
    char text[SHAPE_TEXT_MAX];
    TRY(check_operand(c, node, &s->points));
    const struct typed_node *p = &c->t->nodes[s->points];
    if (dtype_is_complex(p->dtype) || p->dtype == DT_BOOL)
        return expr_err(c->x, node, c->e, ERR_DTYPE_MISMATCH,
                        "coordinates must be real numbers, not %s", dtype_name(p->dtype));
    if (p->rank != 2 || p->shape[1] != s->rank)
        return expr_err(c->x, node, c->e, ERR_SHAPE_MISMATCH,
                        "sample() of an array of rank %d takes points of shape (m, %d), not %s",
                        s->rank, s->rank, shape_text(p->rank, p->shape, text, sizeof text));
    return ERR_OK;
}

enum err_code sample_call(struct checker *c, const struct call *call, struct cval *ret)
{
    struct sampling s = {.c = c, .place = call->node};
    struct place places[MAX_RANK];
    int64_t strides[MAX_RANK], stride = 1;
    uint32_t id;
    TRY(check_operand(c, call->param[0], &s.x));
    const struct typed_node x = c->t->nodes[s.x];
    enum dtype t = dtype_kind(x.dtype) < KIND_FLOAT ? DT_F64 : x.dtype;
    s.rank = x.rank;
    s.shape = x.shape;
    s.strides = strides;
    s.calc = dtype_is_half(t) ? DT_F32 : t;
    s.weight = s.calc == DT_C64 ? DT_F32 : s.calc == DT_C128 ? DT_F64 : s.calc;
    for (int k = x.rank; k-- > 0; stride *= x.shape[k])
        strides[k] = stride;
    s.index = stride < INT32_MAX - 1 ? DT_I32 : DT_I64; /* also holds the cell after the last */
    TRY(points_param(&s, call->param[1]));
    TRY(method_param(c, call->param[2], &s.nearest));
    TRY(boundary_params(&s, call));
    const int64_t *m = c->t->nodes[s.points].shape;
    if (stride == 0 && *m != 0)
        return expr_err(c->x, call->param[0], c->e, ERR_SHAPE_MISMATCH,
                        "sample() of an empty array");
    if (x.rank == 0 || stride == 0) { /* a single value, or no point */
        const struct affine nothing = {.rank = 0};
        id = s.x;
        if (stride == 0)
            TRY(number(&s, x.dtype, 0, &id));
        TRY(graph_view(c, s.place, id, &nothing, 1, m, &id));
        TRY(graph_cast(c, s.place, id, t, &id));
    } else {
        for (int k = 0; k < x.rank; k++)
            TRY(find_place(&s, k, &places[k]));
        TRY(s.nearest ? nearest(&s, places, &id) : linear(&s, places, &id));
        TRY(graph_cast(c, s.place, id, t, &id));
    }
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}
