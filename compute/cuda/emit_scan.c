/* The form scan: what is accumulated in which types, and the memory through which blocks that share
 * a row or a column speak to each other. */
#include "compute/cuda/emit_int.h"

#include <stdio.h>

struct scan {
    const char *state, *carry;
    const char *none, *lift, *join;        /* of states */
    const char *begin, *add, *merge, *end; /* of carries; the end of a carry c and a state s */
    int size;                              /* of a carry, bytes */
};

#define RUNNING_END "c.sum + ((ar_ISFINITE_F64(c.sum) ? c.error : 0) + s)"
#define RUNNING2_END                                                                               \
    "ar_c128{c.re.sum + ((ar_ISFINITE_F64(c.re.sum) ? c.re.error : 0) + s.re), "                   \
    "c.im.sum + ((ar_ISFINITE_F64(c.im.sum) ? c.im.error : 0) + s.im)}"
#define COMPLEX_SUM "ar_c128{a.re + b.re, a.im + b.im}"

static struct scan scan_of(enum reduce_op op, enum dtype t)
{
    bool prod = op == REDUCE_PROD;
    switch (t) {
    case DT_F32:
        return prod ? (struct scan){"ar_f64", "ar_f64", "1",     "(ar_f64)x",       "a * b",
                                    "1",      "c * s",  "a * b", "(ar_f32)(c * s)", 8}
                    : (struct scan){"ar_f64", "ar_f64", "0",     "(ar_f64)x",       "a + b",
                                    "0",      "c + s",  "a + b", "(ar_f32)(c + s)", 8};
    case DT_F64:
        return prod ? (struct scan){"ar_f64", "ar_f64", "1",     "x",     "a * b",
                                    "1",      "c * s",  "a * b", "c * s", 8}
                    : (struct scan){"ar_f64",
                                    "ar_running",
                                    "0",
                                    "x",
                                    "a + b",
                                    "ar_running{0, 0}",
                                    "ar_running_add(c, s)",
                                    "ar_running_merge(a, b)",
                                    RUNNING_END,
                                    16};
    case DT_C64:
        return prod ? (struct scan){"ar_c128",
                                    "ar_c128",
                                    "ar_c128{1, 0}",
                                    "ar_c128{x.re, x.im}",
                                    "ar_MULTIPLY_C128(a, b)",
                                    "ar_c128{1, 0}",
                                    "ar_MULTIPLY_C128(c, s)",
                                    "ar_MULTIPLY_C128(a, b)",
                                    "ar_cast_C128_C64(ar_MULTIPLY_C128(c, s))",
                                    16}
                    : (struct scan){"ar_c128",
                                    "ar_c128",
                                    "ar_c128{0, 0}",
                                    "ar_c128{x.re, x.im}",
                                    COMPLEX_SUM,
                                    "ar_c128{0, 0}",
                                    "ar_c128{c.re + s.re, c.im + s.im}",
                                    COMPLEX_SUM,
                                    "ar_c64{(ar_f32)(c.re + s.re), (ar_f32)(c.im + s.im)}",
                                    16};
    case DT_C128:
        return prod ? (struct scan){"ar_c128",
                                    "ar_c128",
                                    "ar_c128{1, 0}",
                                    "x",
                                    "ar_MULTIPLY_C128(a, b)",
                                    "ar_c128{1, 0}",
                                    "ar_MULTIPLY_C128(c, s)",
                                    "ar_MULTIPLY_C128(a, b)",
                                    "ar_MULTIPLY_C128(c, s)",
                                    16}
                    : (struct scan){"ar_c128",
                                    "ar_running2",
                                    "ar_c128{0, 0}",
                                    "x",
                                    COMPLEX_SUM,
                                    "ar_running2{{0, 0}, {0, 0}}",
                                    "ar_running2{ar_running_add(c.re, s.re), "
                                    "ar_running_add(c.im, s.im)}",
                                    "ar_running2{ar_running_merge(a.re, b.re), "
                                    "ar_running_merge(a.im, b.im)}",
                                    RUNNING2_END,
                                    32};
    case DT_U64:
        return prod ? (struct scan){"ar_u64", "ar_u64", "1",     "x",     "a * b",
                                    "1",      "c * s",  "a * b", "c * s", 8}
                    : (struct scan){"ar_u64", "ar_u64", "0",     "x",     "a + b",
                                    "0",      "c + s",  "a + b", "c + s", 8};
    default:
        break;
    }
    return prod ? (struct scan){"ar_u64", "ar_u64", "1",     "(ar_u64)x",       "a * b",
                                "1",      "c * s",  "a * b", "(ar_i64)(c * s)", 8}
                : (struct scan){"ar_u64", "ar_u64", "0",     "(ar_u64)x",       "a + b",
                                "0",      "c + s",  "a + b", "(ar_i64)(c + s)", 8};
}

/* Flags of 4 bytes, and behind them the totals. */
static void emit_scratch(struct emitter *m, int size)
{
    const struct form *f = m->f;
    int64_t each = f->lines * (f->stretches + f->groups + f->supers);
    int64_t flags = (each * 4 + 255) / 256 * 256;
    int64_t width = f->inner ? 1 : (int64_t)f->threads * f->elements;
    emit_address(m, EMIT_SCRATCH, 0, "int *", "flags");
    emit_address(m, EMIT_SCRATCH, flags, "ar_carry *", "totals");
    emit_i64(m, f->lines, "lines");
    emit_i64(m, f->stretches, "stretches");
    emit_i64(m, f->groups, "groups");
    if (f->inner)
        emit_i64(m, f->supers, "supers");
    m->out->zeroed = flags;
    m->out->scratch = flags + each * width * size;
}

void emit_scan(struct emitter *m)
{
    const struct form *f = m->f;
    const struct ir_output *out = &m->k->outputs[0];
    struct strb *b = &m->body;
    struct scan s = scan_of(out->reduce, out->dtype);
    int axis = __builtin_ctz(f->reduced_axes);
    /* the parameters speak of the carry's type */
    strb_addf(&m->types, "#include \"compute/kernels/running.cuh\"\ntypedef %s ar_carry;\n",
              s.carry);
    strb_addf(b, "#define AR_INNER %d\n#define AR_SPLIT %d\n#define AR_AXIS %d\n", f->inner,
              f->stretches > 1, axis);
    /* so many blocks are there at once: what registers there are for a thread */
    strb_addf(b,
              "#define AR_TEAM %d\n#define AR_GROUP %d\n#define AR_WIDTH %d\n"
              "#define AR_RESIDENT %d\n",
              f->lanes, f->group, f->inner ? 1 : f->threads * f->elements,
              s.size == 8    ? 4
              : s.size == 16 ? 3
                             : 2);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->shape[axis], "length");
    emit_i64(m, f->stretch, "rows");
    if (f->stretches > 1)
        emit_scratch(m, s.size);
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_point(m);
    emit_put(m);
    emit_unravel(m, "ar_kept", ((1u << (f->rank - 1)) * 2u - 1u) & ~f->reduced_axes);
    strb_addf(b,
              "typedef %s ar_state;\n"
              "AR_FN ar_state ar_none(void)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_lift(ar_result x)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_join(ar_state a, ar_state b)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_begin(void)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_carry_add(ar_carry c, ar_state s)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_carry_merge(ar_carry a, ar_carry b)\n{\n    return %s;\n}\n"
              "AR_FN ar_result ar_end(ar_carry c, ar_state s)\n{\n    return %s;\n}\n"
              "#include \"compute/kernels/scan.cuh\"\n",
              s.state, s.none, s.lift, s.join, s.begin, s.add, s.merge, s.end);
}
