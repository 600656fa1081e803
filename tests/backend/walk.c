/* The obvious way, written against typed.h and api.md, not against lower.c. */
#include "tests/backend/walk.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct walked make(enum dtype dtype, int rank, const int64_t *shape)
{
    struct walked w = {.dtype = dtype, .rank = rank, .n = 1};
    for (int k = 0; k < rank; k++) {
        w.shape[k] = shape[k];
        w.n *= shape[k];
    }
    w.v = calloc((size_t)w.n + 1, sizeof *w.v);
    assert(w.v);
    return w;
}

void walk_free(struct walked *w)
{
    free(w->v);
    w->v = NULL;
}

static void unravel(int64_t at, int rank, const int64_t *shape, int64_t *ret)
{
    for (int k = rank - 1; k >= 0; k--) {
        ret[k] = shape[k] ? at % shape[k] : 0;
        at = shape[k] ? at / shape[k] : 0;
    }
}

/* Element of w for the index `i` in a larger, right-aligned shape. */
static union value pick(const struct walked *w, int rank, const int64_t *i)
{
    int64_t at = 0;
    for (int k = 0; k < w->rank; k++) {
        int64_t x = w->shape[k] == 1 ? 0 : i[k + rank - w->rank];
        at = at * w->shape[k] + x;
    }
    return w->v[at];
}

static union value compute_i64(enum op op, int64_t a, int64_t b)
{
    union value r = {0};
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (op) {
    case OP_ADD:
        r.u64 = ua + ub;
        break;
    case OP_SUBTRACT:
        r.u64 = ua - ub;
        break;
    case OP_MULTIPLY:
        r.u64 = ua * ub;
        break;
    case OP_MAXIMUM:
        r.i64 = a > b ? a : b;
        break;
    case OP_LESS:
        r.b = a < b;
        break;
    case OP_NEGATIVE:
        r.u64 = 0 - ua;
        break;
    case OP_FLOOR_DIVIDE:
        r.i64 = b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    default:
        abort();
    }
    return r;
}

static union value compute_f64(enum op op, double a, double b)
{
    union value r = {0};
    switch (op) {
    case OP_ADD:
        r.f64 = a + b;
        break;
    case OP_SUBTRACT:
        r.f64 = a - b;
        break;
    case OP_MULTIPLY:
        r.f64 = a * b;
        break;
    case OP_DIVIDE:
        r.f64 = a / b;
        break;
    case OP_MAXIMUM:
        r.f64 = isnan(a) || isnan(b) ? NAN : a > b ? a : b;
        break;
    case OP_LESS:
        r.b = a < b;
        break;
    case OP_NEGATIVE:
        r.f64 = -a;
        break;
    case OP_SQRT:
        r.f64 = sqrt(a);
        break;
    default:
        abort();
    }
    return r;
}

static union value compute(enum op op, enum dtype t, union value a, union value b)
{
    return t == DT_F64 ? compute_f64(op, a.f64, b.f64) : compute_i64(op, a.i64, b.i64);
}

/* One axis of a boundary mode other than self and constant. */
static int64_t bounded(enum boundary_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    int64_t period;
    switch (mode) {
    case BOUNDARY_WRAP:
        return ((i % n) + n) % n;
    case BOUNDARY_REFLECT:
        if (n == 1)
            return 0;
        period = 2 * (n - 1);
        i = ((i % period) + period) % period;
        return i < n ? i : period - i;
    case BOUNDARY_SYMMETRIC:
        period = 2 * n;
        i = ((i % period) + period) % period;
        return i < n ? i : period - 1 - i;
    default:
        return i < 0 ? 0 : n - 1;
    }
}

static struct walked walk_shift(const struct typed_node *n, const struct walked *x, union value out)
{
    struct walked w = make(n->dtype, x->rank, x->shape);
    for (int64_t e = 0; e < w.n; e++) {
        int64_t i[MAX_RANK] = {0}, j[MAX_RANK];
        unravel(e, w.rank, w.shape, i);
        bool leaves = false;
        for (int k = 0; k < w.rank; k++) {
            j[k] = i[k] + n->shift.offsets[k];
            leaves |= j[k] < 0 || j[k] >= w.shape[k];
        }
        if (leaves && n->shift.mode == BOUNDARY_CONSTANT) {
            w.v[e] = out;
            continue;
        }
        for (int k = 0; k < w.rank; k++)
            j[k] = leaves && n->shift.mode == BOUNDARY_SELF
                       ? i[k]
                       : bounded(n->shift.mode, j[k], w.shape[k]);
        w.v[e] = pick(x, w.rank, j);
    }
    return w;
}

/* Where the first of the best elements is, or the first NaN. */
static struct walked walk_arg(const struct typed_node *n, const struct walked *x)
{
    struct walked w = make(n->dtype, n->rank, n->shape);
    union value *best = calloc((size_t)w.n + 1, sizeof *best);
    bool *seen = calloc((size_t)w.n + 1, 1);
    assert(best && seen);
    for (int64_t e = 0; e < x->n; e++) {
        int64_t i[MAX_RANK] = {0}, at = 0, index = 0;
        unravel(e, x->rank, x->shape, i);
        for (int k = 0; k < x->rank; k++)
            if (n->reduce.axes >> k & 1)
                index = index * x->shape[k] + i[k];
            else
                at = at * x->shape[k] + i[k];
        union value a = best[at], b = x->v[e];
        bool nan = x->dtype == DT_F64 && isnan(b.f64);
        bool better = n->reduce.op == REDUCE_ARGMAX ? compute(OP_LESS, x->dtype, a, b).b
                                                    : compute(OP_LESS, x->dtype, b, a).b;
        if (seen[at] && ((x->dtype == DT_F64 && isnan(a.f64)) || (!nan && !better)))
            continue;
        seen[at] = true;
        best[at] = b;
        w.v[at].i64 = index;
    }
    free(best);
    free(seen);
    return w;
}

static struct walked walk_reduce(const struct typed_node *n, const struct walked *x)
{
    if (reduce_is_arg(n->reduce.op))
        return walk_arg(n, x);
    struct walked w = make(n->dtype, n->rank, n->shape);
    bool *seen = calloc((size_t)w.n + 1, 1);
    assert(seen);
    for (int64_t at = 0; at < w.n && n->reduce.op == REDUCE_PROD; at++)
        w.v[at].i64 = 1; /* of nothing */
    for (int64_t e = 0; e < x->n; e++) {
        int64_t i[MAX_RANK] = {0}, at = 0;
        unravel(e, x->rank, x->shape, i);
        for (int k = 0; k < x->rank; k++)
            if (!(n->reduce.axes >> k & 1))
                at = at * x->shape[k] + i[k];
        union value a = w.v[at], b = x->v[e];
        switch (n->reduce.op) {
        case REDUCE_SUM:
            a = seen[at] ? compute(OP_ADD, n->dtype, a, b) : b;
            break;
        case REDUCE_PROD:
            a = seen[at] ? compute(OP_MULTIPLY, n->dtype, a, b) : b;
            break;
        case REDUCE_MAX:
            a = seen[at] ? compute(OP_MAXIMUM, n->dtype, a, b) : b;
            break;
        case REDUCE_ANY:
            a.b = (seen[at] && a.b) || b.b;
            break;
        default:
            abort();
        }
        seen[at] = true;
        w.v[at] = a;
    }
    free(seen);
    return w;
}

static struct walked walk_scan(const struct typed_node *n, const struct walked *x)
{
    struct walked w = make(n->dtype, n->rank, n->shape);
    int64_t back = 1; /* to the element before, along the axis */
    for (int k = n->scan.axis + 1; k < n->rank; k++)
        back *= n->shape[k];
    enum op op = n->scan.op == REDUCE_PROD ? OP_MULTIPLY : OP_ADD;
    for (int64_t e = 0; e < w.n; e++) {
        int64_t i[MAX_RANK] = {0};
        unravel(e, w.rank, w.shape, i);
        w.v[e] = i[n->scan.axis] ? compute(op, n->dtype, w.v[e - back], x->v[e]) : x->v[e];
    }
    return w;
}

static struct walked walk_view(const struct typed_node *n, const struct walked *x)
{
    struct walked w = make(n->dtype, n->rank, n->shape);
    for (int64_t e = 0; e < w.n; e++) {
        int64_t i[MAX_RANK] = {0}, j[MAX_RANK];
        unravel(e, w.rank, w.shape, i);
        for (int k = 0; k < x->rank; k++) {
            int s = n->view->src[k];
            j[k] = n->view->start[k] + (s < 0 ? 0 : n->view->step[k] * i[s]);
            assert(j[k] >= 0 && j[k] < x->shape[k]);
        }
        w.v[e] = pick(x, x->rank, j);
    }
    return w;
}

static struct walked walk_reshape(const struct typed_node *n, const struct walked *x)
{
    struct walked w = make(n->dtype, n->rank, n->shape);
    assert(w.n == x->n);
    memcpy(w.v, x->v, (size_t)w.n * sizeof *w.v);
    return w;
}

static struct walked walk_gather(const struct typed_node *n, const struct walked *x,
                                 const struct walked *at)
{
    struct walked w = make(n->dtype, at->rank, at->shape);
    for (int64_t e = 0; e < w.n; e++) {
        int64_t i = at->v[e].i64;
        w.v[e] = x->v[i < 0 ? 0 : i >= x->n ? x->n - 1 : i];
    }
    return w;
}

/* `rest`: the other pieces, or NULL. */
static struct walked walk_put(const struct typed_node *n, const struct walked *x,
                              const struct walked *rest)
{
    struct walked w = make(n->dtype, n->rank, n->shape);
    if (rest)
        memcpy(w.v, rest->v, (size_t)w.n * sizeof *w.v);
    for (int64_t e = 0; e < x->n; e++) {
        int64_t i[MAX_RANK] = {0}, at = 0;
        unravel(e, x->rank, x->shape, i);
        i[n->put.axis] += n->put.offset;
        for (int k = 0; k < w.rank; k++)
            at = at * w.shape[k] + i[k];
        w.v[at] = x->v[e];
    }
    return w;
}

static struct walked walk_input(const struct typed_input *in, const char *base)
{
    struct walked w = make(in->dtype, in->view.rank, in->view.shape);
    size_t size = dtype_size(in->dtype);
    for (int64_t e = 0; e < w.n; e++) {
        int64_t i[MAX_RANK] = {0}, at = in->view.offset;
        unravel(e, w.rank, w.shape, i);
        for (int k = 0; k < w.rank; k++)
            at += i[k] * in->view.strides[k];
        memcpy(&w.v[e], base + at * (int64_t)size, size);
    }
    return w;
}

static union value apply(const struct typed_node *n, enum dtype src, const union value *a)
{
    union value r = {0};
    switch (n->kind) {
    case T_OP:
        return compute(n->op, src, a[0], a[1]);
    case T_CAST:
        return scalar_cast((struct scalar){.dtype = src, .v = a[0]}, n->dtype).v;
    case T_WHERE:
        return a[0].b ? a[1] : a[2];
    case T_TABLE:
        r.i64 = n->table->v[a[0].i64 < 0 ? 0 : a[0].i64 < n->table->n ? a[0].i64 : n->table->n - 1];
        return r;
    default:
        abort();
    }
    return r;
}

struct walked walk(const struct typed *t, uint32_t i, int scope_rank, const int64_t *scope,
                   walk_memory_fn *memory, void *user)
{
    const struct typed_node *n = &t->nodes[i];
    struct walked args[3], w;
    bool closes = typed_closes_scope(n->kind);
    for (int a = 0; a < n->n_args; a++) {
        const struct typed_node *c = &t->nodes[n->args[a]];
        bool own = a == 0 && closes;
        args[a] =
            walk(t, n->args[a], own ? c->rank : scope_rank, own ? c->shape : scope, memory, user);
    }
    switch (n->kind) {
    case T_CONST:
        w = make(n->dtype, 0, NULL);
        w.v[0] = n->value.v;
        break;
    case T_INPUT:
        w = walk_input(&t->inputs[n->input], memory(user, n->input));
        break;
    case T_INDEX:
        w = make(DT_I64, scope_rank, scope);
        for (int64_t e = 0; e < w.n; e++) {
            int64_t at[MAX_RANK] = {0};
            unravel(e, w.rank, w.shape, at);
            w.v[e].i64 = at[n->axis];
        }
        break;
    case T_SHIFT:
        if (n->shift.mode == BOUNDARY_GHOST) {
            uint32_t input = t->nodes[n->args[0]].input;
            struct typed_input in = t->inputs[input];
            for (int k = 0; k < n->rank; k++)
                in.view.offset += n->shift.offsets[k] * in.view.strides[k];
            w = walk_input(&in, memory(user, input));
            break;
        }
        w = walk_shift(n, &args[0], n->n_args > 1 ? args[1].v[0] : (union value){0});
        break;
    case T_REDUCE:
        w = walk_reduce(n, &args[0]);
        break;
    case T_SCAN:
        w = walk_scan(n, &args[0]);
        break;
    case T_VIEW:
        w = walk_view(n, &args[0]);
        break;
    case T_RESHAPE:
        w = walk_reshape(n, &args[0]);
        break;
    case T_GATHER:
        w = walk_gather(n, &args[0], &args[1]);
        break;
    case T_PUT:
        w = walk_put(n, &args[0], n->n_args > 1 ? &args[1] : NULL);
        break;
    case T_GUARDED:
        w = args[0];
        args[0] = (struct walked){0};
        break;
    default: {
        int rank = 0;
        int64_t shape[MAX_RANK];
        for (int a = 0; a < n->n_args; a++) {
            int64_t both[MAX_RANK];
            int r;
            enum err_code code =
                shape_broadcast(rank, shape, args[a].rank, args[a].shape, &r, both, NULL);
            assert(code == ERR_OK);
            (void)code;
            rank = r;
            memcpy(shape, both, sizeof shape);
        }
        w = make(n->dtype, rank, shape);
        for (int64_t e = 0; e < w.n; e++) {
            int64_t at[MAX_RANK] = {0};
            union value v[3] = {0};
            unravel(e, rank, shape, at);
            for (int a = 0; a < n->n_args; a++)
                v[a] = pick(&args[a], rank, at);
            w.v[e] = apply(n, t->nodes[n->args[0]].dtype, v);
        }
    }
    }
    for (int a = 0; a < n->n_args; a++)
        walk_free(&args[a]);
    return w;
}
