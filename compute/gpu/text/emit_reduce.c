/* The form reduce: the state of a reduction, how an element is taken in, how two states are merged,
 * and the result (reduce.def). */
#include "compute/gpu/text/emit_forms.h"

#include <string.h>

/* A text of reduce.def with its $s replaced. */
static void add_filled(struct emitter *m, const char *text, const char *more, bool ascending)
{
    const struct ir_output *out = &m->k->outputs[0];
    enum dtype t = (enum dtype)m->k->nodes[out->node].dtype;
    const bool number = reduce_divides(out->reduce);
    for (const char *p = text; *p; p++) {
        switch (*p == '$' ? *++p : 0) {
        case 'I':
            strb_add(&m->body, reduce_table[out->reduce].id);
            break;
        case 'T':
            strb_add(&m->body, emit_id(t));
            break;
        case 'R':
            strb_add(&m->body, emit_type(t));
            break;
        case 'D':
            strb_add(&m->body, number ? " / p.divisor" : "");
            break;
        case 'N':
            strb_add(&m->body, number ? "p.divisor" : "0");
            break;
        case 'L':
            strb_add(&m->body, ascending ? "_later" : "");
            break;
        default:
            strb_addc(&m->body, *p);
        }
    }
    strb_add(&m->body, more);
}

/* ar_position(): an element's index in the reduced axes taken as one; 0 if unused. Returns whether
 * it only grows in the order in which the reduced points are visited. */
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
    enum dtype t = (enum dtype)m->k->nodes[out->node].dtype;
    const struct reduce_state *r = reduce_state(out->reduce, t);
    const struct form *f = m->f;
    struct strb *b = &m->body;
    bool ascending = emit_position(m, reduce_is_arg(out->reduce));
    if (strstr(r->begin, "p.identity")) {
        struct scalar identity = reduce_identity(out->reduce, t);
        emit_scalar(m, &identity, "identity");
    }
    if (reduce_divides(out->reduce))
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = out->divisor}, "divisor");
    if (strstr(r->finish, "p.count")) {
        double n = (double)(f->reduced * (f->inner ? f->elements : 1));
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = n}, "count");
    }
    strb_addf(b, "#include \"compute/kernels/%s\"\ntypedef ", r->header);
    add_filled(m, r->type, " ar_state;\n", ascending);
    strb_addf(b,
              "static_assert(sizeof(ar_state) <= %d, \"of its scratch\");\n#define AR_SEEDS %d\n"
              "AR_FN ar_state ar_begin(const %s)\n{\n    return ",
              r->size, r->seeds, r->seeds ? "ar_value (&x)[AR_SEEDS]" : "ar_params &p");
    add_filled(m, r->begin, ";\n}\n", ascending);
    strb_add(b, "AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)\n{\n    return ");
    add_filled(m, r->step, ";\n}\n", ascending);
    strb_add(b, "AR_FN ar_state ar_merge(ar_state a, ar_state b)\n{\n    return ");
    add_filled(m, r->merge, ";\n}\n", ascending);
    strb_add(b, "AR_FN ar_result ar_end(const ar_params &p, ar_state s)\n{\n    return ");
    add_filled(m, r->finish, ";\n}\n", ascending);
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
