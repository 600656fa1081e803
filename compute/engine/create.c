/* Creators are expressions too: an iota and ordinary operations, lowered and run like any other, so
 * that every backend has them without extra code and large ones run at memory speed. The random
 * ones add a node for Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). */
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"

#include <math.h>
#include <string.h>

/* A graph under construction; `oom` sticks. */
struct draft {
    struct task *task;
    struct typed *t;
    struct arena *arena;
    int rank;
    const int64_t *shape;
    bool oom;
};

static bool draft_begin(struct draft *d, struct engine_stream *s, int rank, const int64_t *shape)
{
    *d = (struct draft){.task = task_new(s), .rank = rank};
    if (!d->task)
        return false;
    d->arena = d->task->arena;
    d->t = arena_alloc(d->arena, sizeof *d->t);
    d->shape = arena_dup(d->arena, shape, sizeof *shape * (size_t)rank);
    if (!d->t || !d->shape) {
        task_free(d->task);
        return false;
    }
    return true;
}

static uint32_t add(struct draft *d, struct typed_node n)
{
    if (d->oom)
        return 0;
    uint32_t i = typed_add(d->arena, d->t, &n);
    if (i == EXPR_NOWHERE)
        d->oom = true;
    return d->oom ? 0 : i;
}

static uint32_t constant(struct draft *d, struct scalar v)
{
    uint32_t i = d->oom ? 0 : typed_const(d->arena, d->t, v);
    if (i == EXPR_NOWHERE)
        d->oom = true;
    return d->oom ? 0 : i;
}

static uint32_t f64(struct draft *d, double v)
{
    return constant(d, (struct scalar){.dtype = DT_F64, .v.f64 = v});
}

/* Gives a node the draft's whole shape. */
static uint32_t shaped(struct draft *d, struct typed_node n)
{
    n.rank = d->rank;
    n.shape = d->shape;
    return add(d, n);
}

static uint32_t binary(struct draft *d, enum op op, uint32_t a, uint32_t b)
{
    if (d->oom)
        return 0;
    return shaped(d, (struct typed_node){.kind = T_OP,
                                         .dtype = op_result_dtype(op, d->t->nodes[a].dtype),
                                         .n_args = 2,
                                         .args = {a, b},
                                         .op = op});
}

static uint32_t cast(struct draft *d, uint32_t a, enum dtype to)
{
    if (d->oom || d->t->nodes[a].dtype == to)
        return a;
    return shaped(d, (struct typed_node){.kind = T_CAST, .dtype = to, .n_args = 1, .args = {a}});
}

static uint32_t iota(struct draft *d, int axis)
{
    return shaped(d, (struct typed_node){.kind = T_INDEX, .dtype = DT_I64, .axis = axis});
}

static enum err_code draft_run(struct draft *d, struct account *account, uint32_t root,
                               struct array **ret, struct err *e)
{
    if (d->oom) {
        task_free(d->task);
        return err_oom(e);
    }
    d->t->root = root;
    /* A constant has rank 0: spread it over the shape. */
    if (d->t->nodes[root].rank != d->rank) {
        struct affine *none = arena_alloc(d->arena, sizeof *none);
        d->t->root = !none ? 0
                           : shaped(d, (struct typed_node){.kind = T_VIEW,
                                                           .dtype = d->t->nodes[root].dtype,
                                                           .n_args = 1,
                                                           .args = {root},
                                                           .view = none});
        if (!none || d->oom) {
            task_free(d->task);
            return err_oom(e);
        }
    }
    return engine_run(d->task, d->t, account, false, NULL, NULL, ret, e);
}

static enum err_code new_array(struct engine_stream *s, struct account *account, enum dtype dtype,
                               int rank, const int64_t *shape, bool zero, struct array **ret,
                               struct err *e)
{
    struct view v;
    TRY(view_contiguous(rank, shape, dtype_size(dtype), &v, e));
    int64_t nbytes = view_size(&v) * (int64_t)dtype_size(dtype);
    struct storage *st = NULL;
    TRY(storage_new(s->engine, account, s->device, nbytes, zero ? STORAGE_ZERO : STORAGE_PLAIN, &st,
                    e));
    st->blank = !zero;
    struct array *a = array_over(s->engine, st, dtype, &v, nbytes);
    if (!a) {
        storage_unref(st);
        return err_oom(e);
    }
    *ret = a;
    return ERR_OK;
}

enum err_code engine_zeros(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret, struct err *e)
{
    /* Clearing memory behind a bus is queued like any other work. */
    return s->engine->backend->ops->upload_new
               ? engine_full(s, account, (struct scalar){.dtype = dtype}, rank, shape, ret, e)
               : new_array(s, account, dtype, rank, shape, true, ret, e);
}

enum err_code engine_empty(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret, struct err *e)
{
    return new_array(s, account, dtype, rank, shape, false, ret, e);
}

enum err_code engine_full(struct engine_stream *s, struct account *account, struct scalar value,
                          int rank, const int64_t *shape, struct array **ret, struct err *e)
{
    struct view v;
    TRY(view_contiguous(rank, shape, dtype_size(value.dtype), &v, e));
    struct draft d;
    if (!draft_begin(&d, s, rank, shape))
        return err_oom(e);
    return draft_run(&d, account, constant(&d, value), ret, e);
}

static double literal_f64(const struct literal *l)
{
    return l->kind == LIT_FLOAT || l->kind == LIT_COMPLEX ? l->re : (double)l->i;
}

static bool literal_integral(const struct literal *l)
{
    return l->kind == LIT_INT || l->kind == LIT_BOOL;
}

/* Number of elements of arange; -1 if an array cannot hold that many. */
static int64_t arange_count(const struct literal *start, const struct literal *stop,
                            const struct literal *step)
{
    if (literal_integral(start) && literal_integral(stop) && literal_integral(step)) {
        __int128 span = stop->i - start->i, by = step->i;
        if ((span > 0) != (by > 0) || span == 0)
            return 0;
        if (by < 0) {
            span = -span;
            by = -by;
        }
        __int128 n = (span - 1) / by + 1;
        return n > INT64_MAX ? -1 : (int64_t)n;
    }
    double n = ceil((literal_f64(stop) - literal_f64(start)) / literal_f64(step));
    if (!(n > 0))
        return isnan(n) ? -1 : 0;
    return n >= 9.2e18 ? -1 : (int64_t)n;
}

static bool in_range(const struct literal *l, __int128 lo, __int128 hi)
{
    return !literal_integral(l) || (l->i >= lo && l->i <= hi);
}

/* Whether the first and the last element fit an integer type. */
static bool range_fits(enum dtype dtype, const struct literal *start, const struct literal *step,
                       int64_t n)
{
    struct literal ends[2] = {*start, {.kind = LIT_INT}};
    if (literal_integral(start) && literal_integral(step)) {
        ends[1].i = start->i + step->i * (n - 1);
    } else {
        for (int k = 0; k < 2; k++) {
            double x = literal_f64(start) + (k ? literal_f64(step) * (double)(n - 1) : 0);
            if (!(fabs(x) < 1.8446744073709552e19))
                return false;
            ends[k] = (struct literal){.kind = LIT_INT, .i = (__int128)x};
        }
    }
    struct scalar unused;
    for (int k = 0; k < 2; k++)
        if (scalar_from_literal(dtype, &ends[k], &unused, NULL) != ERR_OK)
            return false;
    return true;
}

enum err_code engine_arange(struct engine_stream *s, struct account *account, enum dtype dtype,
                            const struct literal *start, const struct literal *stop,
                            const struct literal *step, struct array **ret, struct err *e)
{
    if (literal_integral(step) ? step->i == 0 : !(fabs(step->re) > 0))
        return err_field(e, ERR_BAD_FIELD, "/step", "a step must not be 0");
    if (start->kind == LIT_COMPLEX || stop->kind == LIT_COMPLEX || step->kind == LIT_COMPLEX)
        return err_set(e, ERR_BAD_FIELD, "arange takes real numbers only");
    const __int128 limit = (__int128)1 << 64;
    if (!in_range(start, -limit, limit) || !in_range(stop, -limit, limit) ||
        !in_range(step, -limit, limit))
        return err_set(e, ERR_LITERAL_RANGE, "the integers exceed 64 bits");
    int64_t n = arange_count(start, stop, step);
    if (n < 0)
        return err_set(e, ERR_BAD_SHAPE, "this is more elements than an array can have");
    struct view v;
    TRY(view_contiguous(1, &n, dtype_size(dtype), &v, e));
    if (n > 0 && dtype_is_integer(dtype) && !range_fits(dtype, start, step, n))
        return err_set(e, ERR_LITERAL_RANGE, "the values exceed the range of %s",
                       dtype_name(dtype));

    struct draft d;
    if (!draft_begin(&d, s, 1, &n))
        return err_oom(e);
    uint32_t i = iota(&d, 0), x;
    bool integral = literal_integral(start) && literal_integral(step);
    if (dtype_is_integer(dtype) || (dtype == DT_BOOL && integral)) {
        /* modulo 2^64, so that a uint64 range is right too; a float start truncates, as in NumPy.
         * Values of an empty range are not checked, so they may not even be integers. */
        uint64_t a = 0, b = 0;
        if (n > 0)
            a = (uint64_t)(literal_integral(start) ? start->i : (__int128)start->re);
        if (n > 1)
            b = literal_integral(step) ? (uint64_t)step->i
                                       : (uint64_t)(__int128)(literal_f64(start) + step->re) - a;
        x = binary(&d, OP_MULTIPLY, i, constant(&d, (struct scalar){.dtype = DT_I64, .v.u64 = b}));
        x = binary(&d, OP_ADD, x, constant(&d, (struct scalar){.dtype = DT_I64, .v.u64 = a}));
    } else {
        x = binary(&d, OP_MULTIPLY, cast(&d, i, DT_F64), f64(&d, literal_f64(step)));
        x = binary(&d, OP_ADD, x, f64(&d, literal_f64(start)));
    }
    return draft_run(&d, account, cast(&d, x, dtype), ret, e);
}

enum err_code engine_linspace(struct engine_stream *s, struct account *account, enum dtype dtype,
                              const struct literal *start, const struct literal *stop, int64_t num,
                              bool endpoint, struct array **ret, struct err *e)
{
    bool complex_ = start->kind == LIT_COMPLEX || stop->kind == LIT_COMPLEX;
    if (complex_ && !dtype_is_complex(dtype))
        return err_set(e, ERR_BAD_DTYPE,
                       "complex end points need dtype complex64 or complex128, not %s",
                       dtype_name(dtype));
    if (num < 0)
        return err_field(e, ERR_BAD_FIELD, "/num", "num must not be negative");
    struct view v;
    enum err_code code = view_contiguous(1, &num, dtype_size(dtype), &v, e);
    if (code != ERR_OK)
        return err_prefix(e, "/num");
    struct draft d;
    if (!draft_begin(&d, s, 1, &num))
        return err_oom(e);

    int64_t div = endpoint ? num - 1 : num;
    uint32_t i = iota(&d, 0);
    enum dtype work = complex_ ? DT_C128 : DT_F64;
    struct scalar a = {.dtype = work}, b = {.dtype = work}, h = {.dtype = work};
    if (complex_) {
        const struct literal *ends[2] = {start, stop};
        struct scalar *to[2] = {&a, &b};
        for (int k = 0; k < 2; k++) {
            to[k]->v.c128[0] = literal_f64(ends[k]);
            to[k]->v.c128[1] = ends[k]->kind == LIT_COMPLEX ? ends[k]->im : 0;
        }
        for (int k = 0; k < 2; k++)
            h.v.c128[k] = div > 0 ? (b.v.c128[k] - a.v.c128[k]) / (double)div : NAN;
    } else {
        a.v.f64 = literal_f64(start);
        b.v.f64 = literal_f64(stop);
        h.v.f64 = div > 0 ? (b.v.f64 - a.v.f64) / (double)div : NAN;
    }
    uint32_t ramp;
    if (div > 0) {
        uint32_t x = binary(&d, OP_MULTIPLY, cast(&d, i, work), constant(&d, h));
        ramp = binary(&d, OP_ADD, x, constant(&d, a));
        if (endpoint) { /* the last element is `stop` itself */
            uint32_t last = constant(&d, (struct scalar){.dtype = DT_I64, .v.i64 = num - 1});
            uint32_t is_last = binary(&d, OP_EQUAL, i, last);
            ramp = shaped(&d, (struct typed_node){.kind = T_WHERE,
                                                  .dtype = work,
                                                  .n_args = 3,
                                                  .args = {is_last, constant(&d, b), ramp}});
        }
    } else { /* one element, or none */
        ramp = constant(&d, a);
    }
    if (!complex_ && dtype_is_integer(dtype) && !d.oom) { /* numpy floors for integer types */
        struct typed_node floor_ = {
            .kind = T_OP, .dtype = work, .n_args = 1, .args = {ramp}, .op = OP_FLOOR};
        ramp = d.t->nodes[ramp].rank ? shaped(&d, floor_) : add(&d, floor_);
    }
    if (!d.oom && d.t->nodes[ramp].dtype != dtype) {
        struct typed_node to = {.kind = T_CAST, .dtype = dtype, .n_args = 1, .args = {ramp}};
        ramp = d.t->nodes[ramp].rank ? shaped(&d, to) : add(&d, to);
    }
    return draft_run(&d, account, ramp, ret, e);
}

enum err_code engine_eye(struct engine_stream *s, struct account *account, enum dtype dtype,
                         int64_t n, int64_t m, int64_t k, struct array **ret, struct err *e)
{
    int64_t shape[2] = {n, m};
    struct view v;
    TRY(view_contiguous(2, shape, dtype_size(dtype), &v, e));
    struct draft d;
    if (!draft_begin(&d, s, 2, shape))
        return err_oom(e);
    uint32_t diff = binary(&d, OP_SUBTRACT, iota(&d, 1), iota(&d, 0));
    uint32_t on =
        binary(&d, OP_EQUAL, diff, constant(&d, (struct scalar){.dtype = DT_I64, .v.i64 = k}));
    return draft_run(&d, account, cast(&d, on, dtype), ret, e);
}

/* --- random --- */

static enum err_code integer_bound(enum dtype dtype, bool high, bool has, const struct literal *l,
                                   struct scalar *ret, struct err *e)
{
    const char *pointer = high ? "/high" : "/low";
    enum dtype wide = dtype_kind(dtype) == KIND_UINT ? DT_U64 : DT_I64;
    struct scalar narrow;
    if (!has)
        return err_field(e, ERR_BAD_FIELD, pointer,
                         "the distribution \"integers\" needs low and high");
    if (!literal_integral(l))
        return err_field(e, ERR_BAD_FIELD, pointer, "the bounds of integers must be integers");
    /* it is exclusive: one past the type's largest value is allowed where 64 bits hold it */
    struct literal within = *l;
    if (high)
        within.i -= 1;
    if (scalar_from_literal(dtype, &within, &narrow, NULL) != ERR_OK ||
        scalar_from_literal(wide, l, ret, NULL) != ERR_OK)
        return err_field(e, ERR_LITERAL_RANGE, pointer, "the bound does not fit %s",
                         dtype_name(dtype));
    return ERR_OK;
}

static enum err_code random_params(enum dtype dtype, const struct random_spec *spec,
                                   struct random_params *p, struct err *e)
{
    *p = (struct random_params){.dist = spec->dist, .seed = spec->seed};
    if (spec->dist != RANDOM_INTEGERS) {
        if (!dtype_is_real_float(dtype))
            return err_set(e, ERR_BAD_DTYPE, "%s needs a real floating-point dtype, not %s",
                           spec->dist == RANDOM_UNIFORM ? "uniform" : "normal", dtype_name(dtype));
        if (spec->dist == RANDOM_NORMAL && (spec->has_low || spec->has_high))
            return err_field(e, ERR_BAD_FIELD, spec->has_low ? "/low" : "/high",
                             "a normal distribution has no bounds");
        if ((spec->has_low && spec->low.kind == LIT_COMPLEX) ||
            (spec->has_high && spec->high.kind == LIT_COMPLEX))
            return err_field(e, ERR_BAD_FIELD, spec->has_low ? "/low" : "/high",
                             "bounds must be real numbers");
        return ERR_OK;
    }
    if (!dtype_is_integer(dtype))
        return err_set(e, ERR_BAD_DTYPE,
                       "the distribution \"integers\" needs an integer dtype, not %s",
                       dtype_name(dtype));
    struct literal zero = {.kind = LIT_INT};
    enum err_code code =
        integer_bound(dtype, false, true, spec->has_low ? &spec->low : &zero, &p->low, e);
    if (code == ERR_OK)
        code = integer_bound(dtype, true, spec->has_high, &spec->high, &p->high, e);
    if (code == ERR_OK && spec->high.i <= (spec->has_low ? spec->low.i : 0))
        return err_field(e, ERR_BAD_FIELD, "/high", "high must be greater than low");
    return code;
}

enum err_code engine_random(struct engine_stream *s, struct account *account, enum dtype dtype,
                            int rank, const int64_t *shape, const struct random_spec *spec,
                            struct array **ret, struct err *e)
{
    struct random_params params;
    enum err_code code = random_params(dtype, spec, &params, e);
    struct view v;
    if (code == ERR_OK)
        code = view_contiguous(rank, shape, dtype_size(dtype), &v, e);
    if (code != ERR_OK)
        return code;
    struct draft d;
    if (!draft_begin(&d, s, rank, shape))
        return err_oom(e);
    struct random_params *p = arena_dup(d.arena, &params, sizeof params);
    d.oom |= !p;

    /* element index in C order */
    uint32_t index = constant(&d, (struct scalar){.dtype = DT_I64});
    int64_t inner = 1;
    for (int a = rank - 1; a >= 0; a--) {
        struct scalar stride = {.dtype = DT_I64, .v.i64 = inner};
        uint32_t term = binary(&d, OP_MULTIPLY, iota(&d, a), constant(&d, stride));
        index = binary(&d, OP_ADD, term, index);
        inner *= shape[a];
    }
    enum dtype work = dtype_kind(dtype) == KIND_UINT  ? DT_U64
                      : dtype_kind(dtype) == KIND_INT ? DT_I64
                      : dtype == DT_F64               ? DT_F64
                                                      : DT_F32;
    uint32_t x =
        shaped(&d, (struct typed_node){
                       .kind = T_RANDOM, .dtype = work, .n_args = 1, .args = {index}, .random = p});
    if (spec->dist == RANDOM_UNIFORM && (spec->has_low || spec->has_high)) {
        /* low + u·(high − low), in the type the numbers are drawn in */
        double lo = spec->has_low ? literal_f64(&spec->low) : 0;
        double hi = spec->has_high ? literal_f64(&spec->high) : 1;
        struct scalar span = {.dtype = DT_F64, .v.f64 = hi - lo};
        struct scalar low = {.dtype = DT_F64, .v.f64 = lo};
        x = binary(&d, OP_MULTIPLY, x, constant(&d, scalar_cast(span, work)));
        x = binary(&d, OP_ADD, x, constant(&d, scalar_cast(low, work)));
    }
    return draft_run(&d, account, cast(&d, x, dtype), ret, e);
}
