/* The form reduce: what a reduction is: its state, how an element is taken in, how two states
 * become one, what comes out. Sums are those of the CPU backend: float32 and smaller in float64,
 * float64 with the error of each addition kept; variances are sums of distances from a pivot
 * (moments.cuh).
 */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>
#include <string.h>

struct reduction {
    const char *type;   /* ar_state */
    const char *header; /* where that is, under compute/kernels; NULL: forms/running.cuh */
    char begin[48], take[112], merge[96], end[96];
    int seeds; /* elements that a state begins from: x of `begin` */
    struct scalar identity;
};

static struct scalar extreme(enum dtype t, bool largest)
{
    struct scalar s = {.dtype = t};
    int bits = (int)dtype_size(t) * 8;
    switch (dtype_kind(t)) {
    case KIND_FLOAT:
        if (t == DT_F64)
            s.v.f64 = largest ? __builtin_inf() : -__builtin_inf();
        else
            s.v.f32 = largest ? __builtin_inff() : -__builtin_inff();
        break;
    case KIND_INT:
        s.v.u64 = (largest ? (1ull << (bits - 1)) - 1 : 1ull << (bits - 1)) &
                  (bits == 64 ? UINT64_MAX : (1ull << bits) - 1);
        break;
    case KIND_UINT:
        s.v.u64 = largest ? bits == 64 ? UINT64_MAX : (1ull << bits) - 1 : 0;
        break;
    case KIND_BOOL:
        s.v.b = largest;
        break;
    case KIND_COMPLEX:
        break;
    }
    return s;
}

/* A mean is the sum divided before it is rounded. */
static struct reduction sum_of(enum dtype t, bool mean)
{
    struct reduction r = {.begin = "0", .merge = "a + b"};
    const char *id = emit_id(t), *by = mean ? " / p.divisor" : "";
    if (t == DT_F64) {
        r = (struct reduction){.type = "ar_running",
                               .begin = "ar_running{0, 0}",
                               .take = "ar_running_add(s, x)",
                               .merge = "ar_running_merge(a, b)"};
        snprintf(r.end, sizeof r.end, "ar_running_value(s)%s", by);
    } else if (dtype_is_real_float(t)) {
        r.type = "ar_f64";
        snprintf(r.take, sizeof r.take, "s + ar_cast_%s_F64(x)", id);
        snprintf(r.end, sizeof r.end, "ar_cast_F64_%s(s%s)", id, by);
    } else if (t == DT_C64) {
        r = (struct reduction){.type = "ar_c128",
                               .begin = "ar_c128{0, 0}",
                               .take = "ar_c128{s.re + x.re, s.im + x.im}",
                               .merge = "ar_c128{a.re + b.re, a.im + b.im}"};
        snprintf(r.end, sizeof r.end, "ar_c64{(ar_f32)(s.re%s), (ar_f32)(s.im%s)}", by, by);
    } else if (t == DT_C128) {
        r = (struct reduction){
            .type = "ar_running2",
            .begin = "ar_running2{{0, 0}, {0, 0}}",
            .take = "ar_running2{ar_running_add(s.re, x.re), ar_running_add(s.im, x.im)}",
            .merge = "ar_running2{ar_running_merge(a.re, b.re), ar_running_merge(a.im, b.im)}"};
        snprintf(r.end, sizeof r.end, "ar_c128{ar_running_value(s.re)%s, ar_running_value(s.im)%s}",
                 by, by);
    } else {
        r.type = emit_type(t);
        snprintf(r.take, sizeof r.take, "ar_ADD_%s(s, x)", id);
        snprintf(r.merge, sizeof r.merge, "ar_ADD_%s(a, b)", id);
        snprintf(r.end, sizeof r.end, "s");
    }
    return r;
}

static struct reduction var_of(enum dtype t)
{
    struct reduction r = {.type = "ar_moments",
                          .header = "forms/moments.cuh",
                          .begin = "ar_moments_begin(x)",
                          .take = "ar_moments_take(s, (ar_f64)x)",
                          .merge = "ar_moments_merge(a, b)",
                          .seeds = 3};
    snprintf(r.end, sizeof r.end, "(%s)(ar_moments_squares(s, p.count) / p.divisor)", emit_type(t));
    return r;
}

/* As on the CPU backend: real ones as a fraction and a power of two, complex64 in complex128. */
static struct reduction prod_of(enum dtype t)
{
    struct reduction r = {.begin = "1"};
    const char *id = emit_id(t);
    if (dtype_is_complex(t)) {
        r = (struct reduction){.type = "ar_c128",
                               .begin = "ar_c128{1, 0}",
                               .take = "ar_MULTIPLY_C128(s, ar_c128{x.re, x.im})",
                               .merge = "ar_MULTIPLY_C128(a, b)"};
        snprintf(r.end, sizeof r.end, "ar_cast_C128_%s(s)", id);
        if (t == DT_C128)
            snprintf(r.end, sizeof r.end, "s");
    } else if (dtype_is_real_float(t)) {
        r = (struct reduction){.type = "ar_product",
                               .header = "scalar/product.h",
                               .begin = "ar_product{0.5, 1}",
                               .take = "ar_product_by_any(s, x)",
                               .merge = "ar_product_merge(a, b)",
                               .end = "ar_product_value(s)"};
        if (t == DT_F32) {
            snprintf(r.take, sizeof r.take, "ar_product_by(s, (ar_f64)x)");
            snprintf(r.end, sizeof r.end, "(ar_f32)ar_product_value(s)");
        }
    } else {
        r.type = emit_type(t);
        snprintf(r.take, sizeof r.take, "ar_MULTIPLY_%s(s, x)", id);
        snprintf(r.merge, sizeof r.merge, "ar_MULTIPLY_%s(a, b)", id);
        snprintf(r.end, sizeof r.end, "s");
    }
    return r;
}

/* The best element and where it is. `ascending`: a thread meets the lower indices first. */
static struct reduction arg_of(bool least, bool ascending)
{
    struct reduction r = {.type = "ar_best<ar_value>",
                          .header = "forms/best.cuh",
                          .begin = "{x[0], 0}",
                          .end = "(ar_i64)s.at",
                          .seeds = 1};
    snprintf(r.take, sizeof r.take, "ar_better%s<%d>(s, ar_state{x, at})",
             ascending ? "_later" : "", least);
    snprintf(r.merge, sizeof r.merge, "ar_better<%d>(a, b)", least);
    return r;
}

static struct reduction extreme_of(enum dtype t, bool min)
{
    struct reduction r = {.begin = "p.identity"};
    enum dtype in = dtype_is_half(t) ? DT_F32 : t;
    const char *op = min ? "MINIMUM" : "MAXIMUM", *id = emit_id(in);
    r.type = emit_type(in);
    r.identity = extreme(in, min);
    if (in == DT_F32) {
        r.header = "forms/extreme.cuh";
        op = min ? "lesser" : "greater";
    }
    if (in == t) {
        snprintf(r.take, sizeof r.take, "ar_%s_%s(s, x)", op, id);
        snprintf(r.end, sizeof r.end, "s");
    } else {
        snprintf(r.take, sizeof r.take, "ar_%s_F32(s, ar_cast_%s_F32(x))", op, emit_id(t));
        snprintf(r.end, sizeof r.end, "ar_cast_F32_%s(s)", emit_id(t));
    }
    snprintf(r.merge, sizeof r.merge, "ar_%s_%s(a, b)", op, id);
    return r;
}

static struct reduction reduction_of(enum reduce_op op, enum dtype t, bool ascending)
{
    switch (op) {
    case REDUCE_SUM:
    case REDUCE_MEAN:
        return sum_of(t, op == REDUCE_MEAN);
    case REDUCE_VAR:
        return var_of(t);
    case REDUCE_PROD:
        return prod_of(t);
    case REDUCE_ARGMAX:
    case REDUCE_ARGMIN:
        return arg_of(op == REDUCE_ARGMIN, ascending);
    case REDUCE_COUNT:
    case REDUCE_MIN:
    case REDUCE_ALL:
        return extreme_of(t, true);
    case REDUCE_MAX:
    case REDUCE_ANY:
        break;
    }
    return extreme_of(t, false);
}

/* ar_position(): an element's index in the reduced axes taken as one; 0 where nobody asks. Whether
 * it only grows on the way through the reduced points. */
static bool emit_position(struct emitter *m, bool wanted)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    int64_t strides[MAX_RANK] = {0}, before = INT64_MAX;
    bool ascending = true;
    for (int a = 0; a < m->k->rank && wanted; a++) {
        int64_t s = ir_reduced_stride(m->k, a);
        int to = f->axis[a];
        if (s && to >= 0 && (!strides[to] || s < strides[to])) /* merged: the innermost's */
            strides[to] = s;
    }
    strb_add(b, "AR_FN ar_index ar_position(const ar_params &p, const ar_at &at, int e)\n{\n"
                "    return 0");
    for (int a = 0; a < f->rank; a++) {
        if (!strides[a])
            continue;
        ascending = ascending && strides[a] < before;
        before = strides[a];
        strb_addf(b, a == f->rank - 1 ? " + (at.i[%d] + e)" : " + at.i[%d]", a);
        if (strides[a] != 1) {
            emit_i64(m, strides[a], "g%d", a);
            strb_addf(b, " * (ar_index)p.g%d", a);
        }
    }
    strb_add(b, ";\n}\n");
    return ascending;
}

static void emit_reduction(struct emitter *m)
{
    const struct ir_output *out = &m->k->outputs[0];
    const struct form *f = m->f;
    struct strb *b = &m->body;
    bool ascending = emit_position(m, reduce_is_arg(out->reduce));
    struct reduction r =
        reduction_of(out->reduce, (enum dtype)m->k->nodes[out->node].dtype, ascending);
    if (!strcmp(r.begin, "p.identity"))
        emit_scalar(m, &r.identity, "identity");
    if (reduce_divides(out->reduce))
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = out->divisor}, "divisor");
    if (out->reduce == REDUCE_VAR) {
        double n = (double)(f->reduced * (f->inner ? f->elements : 1));
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = n}, "count");
    }
    strb_addf(b,
              "#include \"compute/kernels/%s\"\ntypedef %s ar_state;\n"
              "static_assert(sizeof(ar_state) <= %d, \"of its scratch\");\n#define AR_SEEDS %d\n"
              "AR_FN ar_state ar_begin(const %s)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_merge(ar_state a, ar_state b)\n{\n    return %s;\n}\n"
              "AR_FN ar_result ar_end(const ar_params &p, ar_state s)\n{\n    return %s;\n}\n",
              r.header ? r.header : "forms/running.cuh", r.type, f->state_size, r.seeds,
              r.seeds ? "ar_value (&x)[AR_SEEDS]" : "ar_params &p", r.begin, r.take, r.merge,
              r.end);
}

void emit_reduce(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_addf(b, "#define AR_LANES %d\n#define AR_INNER %d\n#define AR_RESIDENT %d\n", f->lanes,
              f->inner, f->resident);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->reduced, "reduced");
    if (f->stretches > 1) {
        strb_add(b, "#define AR_SPLIT 1\n");
        emit_address(m, EMIT_SCRATCH, 0, "void *", "scratch");
        emit_address(m, EMIT_COUNTERS, 0, "ar_u32 *", "counters");
        m->out->scratch = f->stretches * f->kept * (f->inner ? 1 : f->elements) * f->state_size;
    }
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_point(m);
    emit_put(m);
    emit_unravel(m, "ar_kept", ((1u << (f->rank - 1)) * 2u - 1u) & ~f->reduced_axes);
    emit_unravel(m, "ar_reduced", f->reduced_axes);
    emit_reduction(m);
    strb_add(b, "#include \"compute/kernels/forms/reduce.cuh\"\n");
}
