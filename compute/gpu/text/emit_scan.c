/* The forms of scans: what is accumulated in which types, and the memory through which blocks that
 * share a row or a column communicate. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

#define MAX_LEVELS      4
#define MULTIPROCESSORS 132
#define SIMPLE_NODES    8 /* of an expression that leaves registers free */
#define AHEAD_BYTES     (13 << 20)

struct scan {
    const char *state, *carry;
    const char *none, *lift, *join;        /* of states */
    const char *begin, *add, *merge, *end; /* of carries; `end` takes a carry c and a state s */
    int size;                              /* bytes of a carry */
};

#define RUNNING_END "c.sum + ((ar_ISFINITE_F64(c.sum) ? c.error : 0) + s)"
#define RUNNING2_END                                                                               \
    "ar_c128{c.re.sum + ((ar_ISFINITE_F64(c.re.sum) ? c.re.error : 0) + s.re), "                   \
    "c.im.sum + ((ar_ISFINITE_F64(c.im.sum) ? c.im.error : 0) + s.im)}"
#define COMPLEX_SUM "ar_c128{a.re + b.re, a.im + b.im}"

static struct scan scan_of(enum reduce_op op, enum dtype t)
{
    bool prod = reduce_scan(op) == SCAN_PROD;
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

/* Lays out the totals: of the stretches, of groups of them, of groups of these, …, and the last
 * level a chain. Each takes twice its size (stretches.cuh). */
static void emit_mail(struct emitter *m, int size)
{
    const struct form *f = m->f;
    const int radix = f->scan.columns ? 32 : 8, levels = f->scan.columns ? 3 : MAX_LEVELS;
    int64_t count[MAX_LEVELS + 1] = {0}, first[MAX_LEVELS + 1] = {0}, n = f->stretches, all = 0;
    for (int l = 0; l <= levels; l++, n = (n + radix - 1) / radix) {
        count[l] = n;
        first[l] = all;
        all += n * f->scan.lines;
    }
    emit_address(m, EMIT_SCRATCH, 0, "ar_u64 *", "mail");
    emit_i64s(m, count, MAX_LEVELS + 1, "count");
    emit_i64s(m, first, MAX_LEVELS + 1, "first");
    emit_i64(m, all, "letters");
    emit_i64(m, f->scan.lines, "lines");
    emit_i64(m, f->stretches, "stretches");
    if (f->stretches > 1)
        m->out->zeroed = m->out->scratch =
            all * (f->scan.columns ? f->scan.columns : (int)f->block[0]) * 2 * size;
}

/* Joined: where what is before each stretch of a thread's column in the GPU's part is kept between
 * its two launches, and where all GPUs find the totals of each. */
static void emit_totals(struct emitter *m, int size)
{
    const struct form *f = m->f;
    emit_share(m);
    strb_add(&m->body, "#define AR_JOINED 1\n");
    if (f->stretches > 1 && !f->scan.columns) {
        emit_address(m, EMIT_SCRATCH, m->out->scratch, "ar_carry *", "begins");
        m->out->scratch += f->stretches * f->scan.lines * f->block[0] * size;
    }
    emit_address(m, EMIT_FIRST, m->out->scratch, "ar_carry *", "totals");
    m->out->scratch += f->members * f->kept * (f->inner ? 1 : f->elements) * size;
}

/* How many stretches the sums are ahead of the scans: measured, as many as keep what was read in
 * the second-level cache, but at most half the blocks resident at once, so that no block waits. */
static int64_t stretches_ahead(const struct emitter *m, int resident)
{
    const struct form *f = m->f;
    int64_t bytes = 0, all = f->scan.lines * f->stretches;
    for (uint32_t i = 0; i < f->n_loads; i++)
        bytes += (int64_t)dtype_size(m->k->inputs[f->loads[i].input].dtype);
    bytes *=
        (int64_t)f->threads * (f->any ? f->scan.many * f->scan.elements : f->unroll * f->elements);
    int64_t ahead = bytes ? AHEAD_BYTES / bytes : all, least = MULTIPROCESSORS / 2 * resident;
    ahead = ahead < least ? least : ahead;
    return ahead < all ? ahead : all;
}

/* How many blocks a multiprocessor should hold at once: determines the registers per thread. */
static int resident_blocks(const struct emitter *m, int size)
{
    bool side_by_side = m->f->scan.columns > 1 && m->k->n_nodes <= SIMPLE_NODES;
    return size == 8 ? (side_by_side ? 6 : 4) : size == 16 ? 3 : 2;
}

/* What the forms of scans share: the operation, and the types of its states. */
static void emit_operation(struct emitter *m, const struct scan *s)
{
    strb_addf(&m->body,
              "typedef %s ar_state;\nstatic_assert(sizeof(ar_carry) == %d, \"of its mail\");\n"
              "AR_FN ar_state ar_none(void)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_lift(ar_result x)\n{\n    return %s;\n}\n"
              "AR_FN ar_state ar_join(ar_state a, ar_state b)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_begin(void)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_carry_add(ar_carry c, ar_state s)\n{\n    return %s;\n}\n"
              "AR_FN ar_carry ar_carry_merge(ar_carry a, ar_carry b)\n{\n    return %s;\n}\n"
              "AR_FN ar_result ar_end(ar_carry c, ar_state s)\n{\n    return %s;\n}\n",
              s->state, s->size, s->none, s->lift, s->join, s->begin, s->add, s->merge, s->end);
}

static void emit_long(struct emitter *m, const struct scan *s)
{
    const struct form *f = m->f;
    int axis = __builtin_ctz(f->reduced_axes);
    const int resident = resident_blocks(m, s->size);
    strb_addf(
        &m->body,
        "#define AR_INNER %d\n#define AR_COLUMNS %d\n#define AR_SPLIT %d\n#define AR_AXIS %d\n"
        "#define AR_TEAM %d\n#define AR_RESIDENT %d\n",
        f->scan.columns > 0, f->scan.columns, f->stretches > 1, axis, f->lanes, resident);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->shape[axis], "length");
    emit_i64(m, f->scan.stretch, "rows");
    if (f->stretches > 1) {
        emit_mail(m, s->size);
        emit_i64(m, stretches_ahead(m, resident), "ahead");
    }
    if (f->joined)
        emit_totals(m, s->size);
}

static void emit_any_long(struct emitter *m, const struct scan *s)
{
    const struct form *f = m->f;
    emit_i64(m, f->scan.columns, "columns");
    emit_i64(m, f->scan.elements, "each");
    emit_i64(m, f->scan.many, "many");
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->scan.length, "length");
    emit_i64(m, f->scan.stretch, "rows");
    emit_divisor(m, f->scan.apart, "ar_div inner");
    emit_mail(m, s->size);
    emit_i64(m, stretches_ahead(m, resident_blocks(m, s->size)), "ahead");
}

/* Where the results go, by the number of their element. */
static void emit_spread(struct emitter *m)
{
    const struct ir_output *out = &m->k->outputs[0];
    const struct form *of = m->f->left.of;
    const struct emit_divisor none = {0};
    char type[32];
    snprintf(type, sizeof type, "%s *", emit_type(out->dtype));
    emit_address(m, out->slot, out->view.offset * (int64_t)dtype_size(out->dtype), type, "out");
    emit_i64(m, m->f->left.gaps, "gaps");
    emit_i64(m, of->rank, "axes");
    strb_addf(&m->fields, "    alignas(8) ar_div axis[%d];\n", MAX_RANK);
    for (int a = 0; a < MAX_RANK; a++)
        if (a < of->rank)
            emit_divisor(m, of->shape[a], NULL);
        else
            emit_bytes(m, &none, sizeof none);
    emit_i64s(m, of->out_strides[0], MAX_RANK, "apart");
    strb_add(&m->body, "#include \"compute/kernels/forms/spread.cuh\"\n");
}

static void emit_rows(struct emitter *m, const struct scan *s)
{
    const struct form *f = m->f;
    const struct form_scan_rows *r = &f->scan_rows;
    int threads = s->size == 8 ? 768 : s->size == 16 ? 640 : 512; /* per multiprocessor */
    if (f->any) {
        strb_add(&m->body, "#define AR_LANES ((int)p.lanes)\n#define AR_MANY ((int)p.many)\n"
                           "#define AR_EACH ((int)p.chunk)\n");
        emit_i64(m, f->lanes, "lanes");
        emit_i64(m, r->many, "many");
        emit_i64(m, r->chunk, "chunk");
    } else {
        strb_addf(&m->body, "#define AR_LANES %d\n#define AR_MANY %d\n#define AR_EACH AR_CHUNK\n",
                  f->lanes, r->many);
    }
    strb_addf(&m->body,
              "#define AR_CHUNK %d\n#define AR_MOST %d\n#define AR_AXIS AR_FAST\n"
              "#define AR_FLAT %d\n#define AR_ALIGNED %d\n#define AR_SPLIT %d\n"
              "#define AR_RESIDENT %d\n",
              r->bound, r->most, !r->fetch, r->aligned, r->parts > 1, threads / f->threads);
    if (r->parts > 1) {
        const enum dtype t = m->k->outputs[0].dtype;
        const int state = t == DT_C64 || t == DT_C128 ? 16 : 8;
        emit_address(m, EMIT_SCRATCH, 0, "ar_u64 *", "mail");
        emit_i64(m, r->parts, "parts");
        m->out->zeroed = m->out->scratch = f->kept * r->parts * 2 * state;
    }
    if (r->fetch)
        strb_addf(&m->body, "#define AR_FETCH %d\n", r->fetch);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, r->length, "length");
    emit_i64(m, r->part, "part");
}

void emit_scan(struct emitter *m)
{
    const struct form *f = m->f;
    const struct ir_output *out = &m->k->outputs[0];
    const struct scan s = scan_of(out->reduce, out->dtype);
    /* the parameters use the carry's type */
    strb_addf(&m->types, "#include \"compute/kernels/forms/running.cuh\"\n%stypedef %s ar_carry;\n",
              f->stretches > 1 && !f->any ? "#include \"compute/kernels/forms/streamed.cuh\"\n"
                                          : "",
              s.carry);
    if (f->kind == FORM_SCAN)
        (f->any ? emit_any_long : emit_long)(m, &s);
    else
        emit_rows(m, &s);
    if (f->kind == FORM_SCAN && f->any) {
        emit_result(m);
    } else {
        emit_divisors(m);
        emit_operands(m);
        emit_fetch(m);
        emit_point(m);
    }
    (f->any ? emit_spread : emit_put)(m);
    if (!f->any && (f->kind == FORM_SCAN || f->scan_rows.fetch))
        emit_unravel(m, "ar_kept", ((1u << (f->rank - 1)) * 2u - 1u) & ~f->reduced_axes);
    emit_operation(m, &s);
    strb_addf(&m->body, "#include \"compute/kernels/forms/%s\"\n",
              f->kind == FORM_SCAN_ROWS ? "scan_rows.cuh"
              : f->any                  ? "scan_any.cuh"
                                        : "scan.cuh");
}
