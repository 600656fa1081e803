/* correlate(): a weighted sum of an element's neighbours, term by term in the order of the weights.
 *
 * With fast_math weights that are an outer product of one row an axis (a box, a Gaussian,
 * binomials) need not be multiplied out: 5 × 5 × 5 are 15 terms instead of 125. There are two ways.
 *
 * Sums of sums, Σ u[i]·(Σ v[j]·(Σ w[k]·x)), of the same elements as the plain sum, whatever is
 * outside. A point by itself gains nothing by that. But neighbouring points have inner sums in
 * common, and where a thread computes several (the form window of compute/gpu/text) the compiler
 * finds them.
 *
 * Passes: x along the first axis into memory, that along the next one, and so on. Each costs a way
 * through memory, and only a boundary that treats the axes one by one allows it: outside along one
 * axis, `self` would take the point itself, whatever lies along the others.
 *
 * Inner sums must not overflow where the whole does not: all rows but the one that is applied last
 * are divided by powers of two until they add up to less than 1/2, and that one is multiplied. So a
 * result is infinite or NaN only if an element that is read is, or if Σ|w·x| is beyond the type's
 * range, where the plain sum's partial sums may be, too. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"
#include "compute/lang/fold.h"

#define LEAST_SUMS   16 /* terms: fewer are as fast as memory is anyhow */
#define LEAST_PASSES 36 /* and a temporary array is not worth less */
#define GAIN         2  /* so many terms for each that is left, at least */

/* A nested list of numbers: its extents (lists at one depth have equal lengths), its items in C
 * order. */
static enum err_code weights_param(struct checker *c, uint32_t node, int rank, int64_t *ret_shape,
                                   uint32_t **ret_items, int64_t *ret_n)
{
    uint32_t *items = arena_dup(c->arena, &node, sizeof node);
    int64_t n = 1;
    for (int k = 0; k < rank && items; k++) {
        int64_t each = 0, total = 0;
        for (int64_t i = 0; i < n; i++) {
            const struct expr_node *x = &c->x->nodes[items[i]];
            if (x->kind != EXPR_LIST || x->n_args == 0 || (i > 0 && x->n_args != each))
                return expr_err(
                    c->x, items[i], c->e, ERR_SHAPE_MISMATCH,
                    "the weights must be lists nested as deep as x has axes (%d); lists at the "
                    "same depth must have the same length, and none may be empty",
                    rank);
            each = x->n_args;
            total += each;
        }
        uint32_t *deeper = arena_alloc_array(c->arena, (size_t)total, sizeof *deeper);
        for (int64_t i = 0; i < n && deeper; i++)
            for (int64_t j = 0; j < each; j++)
                deeper[i * each + j] =
                    c->x->links[c->x->nodes[items[i]].first_arg + (uint32_t)j].node;
        ret_shape[k] = each;
        n = total;
        items = deeper;
    }
    if (!items)
        return err_oom(c->e);
    *ret_items = items;
    *ret_n = n;
    return ERR_OK;
}

/* The weights as values, and the promoted type of weights and x. */
static enum err_code weight_values(struct checker *c, const uint32_t *items, int64_t n,
                                   struct cval *ret, enum dtype *t)
{
    for (int64_t i = 0; i < n; i++) {
        TRY(check_value(c, items[i], &ret[i]));
        if (ret[i].weak) {
            *t = dtype_promote_literal(*t, &ret[i].lit);
            continue;
        }
        if (c->t->nodes[ret[i].id].kind != T_CONST)
            return expr_err(c->x, items[i], c->e, ERR_BAD_EXPRESSION, "a weight must be a number");
        *t = dtype_promote(*t, cval_dtype(c, &ret[i]));
    }
    return ERR_OK;
}

/* Whether a weight is known to be 0: its element is not read. */
static bool is_left_out(struct checker *c, struct cval weight)
{
    return cval_known(c, &weight) && !fold_truth(&weight.lit);
}

/* Whether all weights are 1, or 0: the elements are added as they are. */
static bool are_units(struct checker *c, const struct cval *weights, int64_t n)
{
    bool yes = true;
    for (int64_t i = 0; i < n && yes; i++) {
        struct cval w = weights[i];
        yes = is_left_out(c, w) ||
              (cval_known(c, &w) && w.lit.kind != LIT_COMPLEX && fold_double(&w.lit) == 1);
    }
    return yes;
}

/* The weights' extents and values, which of them count, and the types. */
struct window {
    uint32_t place, x;
    int rank, axes, first, last; /* axes: along which there are several weights; two of them */
    int64_t shape[MAX_RANK], n;
    struct cval *weights;
    struct edge edge;
    enum dtype dtype; /* of the result */

    /* an outer product: rows[k][j] for place j along axis k */
    enum dtype sum; /* the type of the sums: halves are rounded once, at the end */
    double *rows[MAX_RANK];
    uint32_t terms; /* of the rows */
};

/* Weight number i is the one at these places along the axes. */
static void places_of(const struct window *w, int64_t i, int64_t *ret)
{
    for (int k = w->rank - 1; k >= 0; k--) {
        ret[k] = i % w->shape[k];
        i /= w->shape[k];
    }
}

/* Term by term; an element with weight 0 is not read, so that a NaN there does no harm. */
static enum err_code plain_sum(struct checker *c, const struct window *w, uint32_t *ret)
{
    uint32_t sum = 0;
    bool any = false;
    const bool units = are_units(c, w->weights, w->n);
    for (int64_t i = 0; i < w->n; i++) {
        if (is_left_out(c, w->weights[i]))
            continue;
        int64_t offsets[MAX_RANK];
        places_of(w, i, offsets);
        for (int k = 0; k < w->rank; k++)
            offsets[k] -= w->shape[k] / 2;
        uint32_t term, number;
        TRY(ops_convert(c, &w->weights[i], w->dtype, &number));
        TRY(stencil_shifted(c, w->place, w->x, offsets, &w->edge, &term));
        TRY(graph_cast(c, w->place, term, w->dtype, &term));
        if (!units)
            TRY(graph_op2(c, w->place, OP_MULTIPLY, number, term, &term));
        if (any)
            TRY(graph_op2(c, w->place, OP_ADD, sum, term, &term));
        sum = term;
        any = true;
    }
    *ret = sum;
    return any ? ERR_OK /* else nothing is read */
               : graph_filled(c, w->place, (struct scalar){.dtype = w->dtype}, w->rank,
                              c->t->nodes[w->x].shape, ret);
}

/* --- outer products --- */

static double as_stored(double v, enum dtype t)
{
    const struct scalar s = {.dtype = DT_F64, .v.f64 = v};
    return scalar_cast(scalar_cast(s, t), DT_F64).v.f64;
}

/* The distance from 1 to the next number. */
static double spacing_of(enum dtype t)
{
    return t == DT_F16                  ? 0x1p-10
           : t == DT_BF16               ? 0x1p-7
           : t == DT_F32 || t == DT_C64 ? FLT_EPSILON
                                        : DBL_EPSILON;
}

/* Sets *ret to the weights as numbers, or to NULL if one is complex or none in the type. */
static enum err_code real_weights(struct checker *c, const struct window *w, enum dtype real,
                                  double **ret)
{
    double *v = arena_alloc_array(c->arena, (size_t)w->n, sizeof *v);
    if (!v)
        return err_oom(c->e);
    *ret = v;
    for (int64_t i = 0; i < w->n; i++) {
        struct cval weight = w->weights[i];
        if (!cval_known(c, &weight) || weight.lit.kind == LIT_COMPLEX)
            *ret = NULL;
        else
            v[i] = fold_double(&weight.lit);
        if (*ret && !isfinite(as_stored(v[i], real)))
            *ret = NULL;
    }
    return ERR_OK;
}

/* The rows through the smallest weight that is not 0, where those of boxes and binomials are whole
 * numbers. All but the first are relative to it. */
static void take_rows(struct window *w, const double *v)
{
    int64_t least = -1, step = 1;
    for (int64_t i = 0; i < w->n; i++)
        if (v[i] != 0 && (least < 0 || fabs(v[i]) < fabs(v[least])))
            least = i;
    for (int k = w->rank - 1; k >= 0 && least >= 0; k--) {
        const int64_t at = least / step % w->shape[k];
        for (int64_t j = 0; j < w->shape[k]; j++)
            w->rows[k][j] = v[least + (j - at) * step] / (k == w->first ? 1 : v[least]);
        step *= w->shape[k];
    }
}

/* Divides the rows by powers of two for that of axis `last`, and rounds them to their type. */
static void balance(struct window *w, int last)
{
    int power = 0;
    for (int k = 0; k < w->rank; k++) {
        double sum = 0;
        int e;
        if (k == last || w->shape[k] == 1)
            continue;
        for (int64_t j = 0; j < w->shape[k]; j++)
            sum += fabs(w->rows[k][j]);
        (void)frexp(sum, &e); /* 2^e is more */
        power += e + 1;
        for (int64_t j = 0; j < w->shape[k]; j++)
            w->rows[k][j] = ldexp(w->rows[k][j], -e - 1);
    }
    for (int64_t j = 0; j < w->shape[last]; j++)
        w->rows[last][j] = ldexp(w->rows[last][j], power);
    for (int k = 0; k < w->rank; k++)
        for (int64_t j = 0; j < w->shape[k]; j++)
            w->rows[k][j] = as_stored(w->rows[k][j], w->sum);
}

/* Whether the rows, as they are stored, multiply to the weights: to 0 where one is 0, else to two
 * units in the last place of the weights' type for each axis. */
static bool multiply_out(const struct window *w, const double *v, double spacing)
{
    bool yes = true;
    for (int64_t i = 0; i < w->n && yes; i++) {
        int64_t at[MAX_RANK];
        long double product = 1;
        places_of(w, i, at);
        for (int k = 0; k < w->rank; k++)
            product *= w->rows[k][at[k]];
        yes = fabsl(product - v[i]) <= 2 * w->axes * spacing * fabs(v[i]); /* not if it is NaN */
    }
    return yes;
}

/* Finds the rows; *ret: the weights are their outer product, and that is worth it. `passes`: the
 * last axis is applied last, else the first one. */
static enum err_code find_rows(struct checker *c, struct window *w, bool passes, bool *ret)
{
    const enum dtype real = w->dtype == DT_C64 ? DT_F32 : w->dtype == DT_C128 ? DT_F64 : w->dtype;
    int64_t all = 0;
    double *v;
    *ret = false;
    if (!dtype_is_real_float(real) || w->axes < 2)
        return ERR_OK;
    TRY(real_weights(c, w, real, &v));
    for (int64_t i = 0; v && i < w->n; i++)
        all += v[i] != 0;
    if (!v || all < (passes ? LEAST_PASSES : LEAST_SUMS))
        return ERR_OK;
    for (int k = 0; k < w->rank; k++) {
        w->rows[k] = arena_alloc_array(c->arena, (size_t)w->shape[k], sizeof *w->rows[k]);
        if (!w->rows[k])
            return err_oom(c->e);
    }
    w->sum = dtype_is_half(w->dtype) ? DT_F32 : w->dtype;
    take_rows(w, v);
    balance(w, passes ? w->last : w->first);
    w->terms = 0;
    for (int k = 0; k < w->rank; k++)
        for (int64_t j = 0; j < w->shape[k] && w->shape[k] > 1; j++)
            w->terms += w->rows[k][j] != 0;
    *ret = all >= (int64_t)GAIN * w->terms && multiply_out(w, v, spacing_of(real));
    return ERR_OK;
}

/* Adds weight·term to a sum; *any: it has terms already. */
static enum err_code add_term(struct checker *c, const struct window *w, double weight,
                              uint32_t term, bool *any, uint32_t *sum)
{
    const struct scalar s = {.dtype = DT_F64, .v.f64 = weight};
    uint32_t number;
    TRY(graph_const(c, w->place, scalar_cast(s, w->sum), &number));
    if (weight != 1)
        TRY(graph_op2(c, w->place, OP_MULTIPLY, number, term, &term));
    if (*any)
        TRY(graph_op2(c, w->place, OP_ADD, *sum, term, &term));
    *sum = term;
    *any = true;
    return ERR_OK;
}

/* The sum over axis k and those after it, of the elements at `offsets` along those before. */
static enum err_code sum_from(struct checker *c, const struct window *w, int k, int64_t *offsets,
                              uint32_t *ret)
{
    bool any = false;
    if (k == w->rank) {
        TRY(stencil_shifted(c, w->place, w->x, offsets, &w->edge, ret));
        return graph_cast(c, w->place, *ret, w->sum, ret);
    }
    if (w->shape[k] == 1) {
        offsets[k] = 0;
        return sum_from(c, w, k + 1, offsets, ret);
    }
    for (int64_t j = 0; j < w->shape[k]; j++) {
        uint32_t term;
        if (w->rows[k][j] == 0)
            continue;
        offsets[k] = j - w->shape[k] / 2;
        TRY(sum_from(c, w, k + 1, offsets, &term));
        TRY(add_term(c, w, w->rows[k][j], term, &any, ret));
    }
    return ERR_OK;
}

/* A pass along each axis. `outside`: of BOUNDARY_CONSTANT; a pass adds up what lies there, too. */
static enum err_code pass_after_pass(struct checker *c, const struct window *w, double outside,
                                     uint32_t *ret)
{
    struct edge edge = w->edge;
    bool begun = false;
    *ret = w->x;
    for (int k = 0; k < w->rank; k++) {
        int64_t offsets[MAX_RANK] = {0};
        uint32_t sum = 0;
        bool any = false;
        double weights = 0;
        if (w->shape[k] == 1)
            continue;
        if (begun)
            TRY(graph_stored(c, w->place, *ret, ret));
        for (int64_t j = 0; j < w->shape[k]; j++) {
            uint32_t term;
            if (w->rows[k][j] == 0)
                continue;
            weights += w->rows[k][j];
            offsets[k] = j - w->shape[k] / 2;
            TRY(stencil_shifted(c, w->place, *ret, offsets, &edge, &term));
            TRY(graph_cast(c, w->place, term, w->sum, &term));
            TRY(add_term(c, w, w->rows[k][j], term, &any, &sum));
        }
        outside *= weights;
        edge.valued = true;
        edge.value = (struct cval){.weak = true, .lit = {.kind = LIT_FLOAT, .re = outside}};
        begun = true;
        *ret = sum;
    }
    return ERR_OK;
}

/* Whether passes are the same sum: outside is decided for each axis by itself. Of
 * BOUNDARY_CONSTANT *ret_outside: its value, as x's type has it. */
static enum err_code can_pass(struct checker *c, const struct window *w, bool *ret,
                              double *ret_outside)
{
    const struct edge *edge = &w->edge;
    uint32_t value;
    *ret_outside = 0;
    *ret = !edge->array && edge->mode != BOUNDARY_SELF && edge->mode != BOUNDARY_GHOST;
    if (edge->mode != BOUNDARY_CONSTANT || edge->array || !edge->valued)
        return ERR_OK;
    TRY(ops_convert(c, &edge->value, c->t->nodes[w->x].dtype, &value));
    const struct scalar v = c->t->nodes[value].value;
    *ret_outside = scalar_cast(v, DT_F64).v.f64;
    const struct scalar z = scalar_cast(v, DT_C128);
    *ret = isfinite(z.v.c128[0]) && z.v.c128[1] == 0;
    return ERR_OK;
}

static enum err_code note(struct checker *c, const struct window *w, bool passes)
{
    struct typed *t = c->t;
    if (arena_grow(c->arena, (void **)&t->factored, &c->cap_factored, t->n_factored,
                   sizeof *t->factored) < 0)
        return err_oom(c->e);
    struct typed_factored *f = &t->factored[t->n_factored++];
    *f = (struct typed_factored){.rank = w->rank, .terms = w->terms, .passes = passes};
    memcpy(f->shape, w->shape, sizeof f->shape);
    return ERR_OK;
}

/* Whether a kernel computes once what its points have in common (*ret), and its text is not too
 * long for points enough (*ret_well). In a plane it needs several rows of them, and has columns
 * too. */
static void can_sum(const struct checker *c, const struct window *w, bool *ret, bool *ret_well)
{
    const bool can = c->env->window > 0 && w->first >= w->rank - 3 && !w->edge.array &&
                     w->edge.mode != BOUNDARY_GHOST;
    *ret_well = can && w->n <= c->env->window / (w->axes == 2 ? 2 : 1);
    *ret = can && (*ret_well || w->axes == 3);
}

/* *ret_done: the sum was made of sums. */
static enum err_code sum_of_rows(struct checker *c, struct window *w, bool *ret_done, uint32_t *ret)
{
    bool passes, sums, well, any = false;
    double outside;
    *ret_done = false;
    for (int64_t i = 0; i < w->n && !any; i++)
        any = !is_left_out(c, w->weights[i]);
    if (!any) /* nothing is read, and nothing outside need be a value of x's type */
        return ERR_OK;
    for (int k = 0; k < w->rank; k++)
        if (w->shape[k] > 1) {
            w->first = w->axes++ ? w->first : k;
            w->last = k;
        }
    can_sum(c, w, &sums, &well);
    TRY(can_pass(c, w, &passes, &outside));
    passes &= !well;
    if (!passes && !sums)
        return ERR_OK;
    TRY(find_rows(c, w, passes, ret_done));
    if (!*ret_done)
        return ERR_OK;
    int64_t offsets[MAX_RANK];
    if (passes)
        TRY(pass_after_pass(c, w, outside, ret));
    else
        TRY(sum_from(c, w, 0, offsets, ret));
    TRY(graph_cast(c, w->place, *ret, w->dtype, ret));
    return note(c, w, passes);
}

/* --- the call --- */

enum err_code correlate_call(struct checker *c, const struct call *call, struct cval *ret)
{
    struct window w = {.place = call->node};
    uint32_t *items, sum;
    bool done = false;
    TRY(check_operand(c, call->param[0], &w.x));
    w.rank = c->t->nodes[w.x].rank;
    w.dtype = c->t->nodes[w.x].dtype;
    TRY(weights_param(c, call->param[1], w.rank, w.shape, &items, &w.n));
    TRY(check_edge(c, call->param[2], call->param[3], &w.edge));
    w.weights = arena_alloc_array(c->arena, (size_t)w.n, sizeof *w.weights);
    if (!w.weights)
        return err_oom(c->e);
    TRY(weight_values(c, items, w.n, w.weights, &w.dtype));
    if (c->env->fast_math)
        TRY(sum_of_rows(c, &w, &done, &sum));
    if (!done)
        TRY(plain_sum(c, &w, &sum));
    *ret = cval_typed(sum, w.place);
    return ERR_OK;
}
