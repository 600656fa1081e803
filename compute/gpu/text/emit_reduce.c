/* The form reduce: the state of a reduction, how an element is taken in, how two states are merged,
 * and the result (reduce.def). */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>
#include <string.h>

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* A text of reduce.def with its $s replaced, and the suffix behind the parameters it names. */
static void add_filled(struct emitter *m, const struct emit_reduction *r, const char *text,
                       const char *more)
{
    struct strb *b = &m->body;
    const bool number = reduce_divides(r->reduce);
    for (const char *p = text; *p; p++) {
        if (p[0] == 'p' && p[1] == '.' && (p == text || !is_word(p[-1]))) {
            strb_add(b, "p.");
            for (p += 2; is_word(*p); p++)
                strb_addc(b, *p);
            strb_add(b, r->suffix);
            p--;
            continue;
        }
        switch (*p == '$' ? *++p : 0) {
        case 'I':
            strb_add(b, reduce_table[r->reduce].id);
            break;
        case 'T':
            strb_add(b, emit_id(r->dtype));
            break;
        case 'R':
            strb_add(b, emit_type(r->dtype));
            break;
        case 'D':
            if (number)
                strb_addf(b, " / p.divisor%s", r->suffix);
            break;
        case 'N':
            strb_addf(b, number ? "p.divisor%s" : "0", r->suffix);
            break;
        case 'L':
            strb_add(b, r->ascending ? "_later" : "");
            break;
        default:
            strb_addc(b, *p);
        }
    }
    strb_add(b, more);
}

bool emit_position(struct emitter *m, bool wanted)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    int64_t strides[MAX_RANK] = {0}, before = INT64_MAX;
    bool ascending = true;
    if (wanted)
        form_positions(m->k, f, strides);
    strb_add(b, "AR_FN ar_index ar_position(const ar_params &p, const ar_at &at, int e)\n{\n"
                "    return 0");
    for (int a = 0; a < f->rank; a++) {
        if (!strides[a])
            continue;
        ascending = ascending && strides[a] < before;
        before = strides[a];
        strb_addf(b, a == f->rank - 1 ? " + (at.i[%d] + e)" : " + at.i[%d]", a);
        if (emit_is_argument(f, strides[a])) {
            emit_i64(m, strides[a], "g%d", a);
            strb_addf(b, " * (ar_index)p.g%d", a);
        }
    }
    strb_add(b, ";\n}\n");
    return ascending || f->any;
}

/* Elements of a chunk. */
static int64_t strip_of(const struct form *f)
{
    return f->any ? f->shape[f->rank - 1] : f->elements;
}

void emit_reduction_params(struct emitter *m, const struct emit_reduction *r)
{
    const struct reduce_state *s = reduce_state(r->reduce, r->dtype);
    const struct form *f = m->f;
    if (strstr(s->begin, "p.identity")) {
        struct scalar identity = reduce_identity(r->reduce, r->dtype);
        emit_scalar(m, &identity, "identity%s", r->suffix);
    }
    if (reduce_divides(r->reduce))
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = r->divisor}, "divisor%s",
                    r->suffix);
    if (strstr(s->finish, "p.count")) {
        double n = (double)(f->reduced * (f->inner ? strip_of(f) : 1));
        emit_scalar(m, &(struct scalar){.dtype = DT_F64, .v.f64 = n}, "count%s", r->suffix);
    }
    strb_addf(&m->body, "#include \"compute/kernels/%s\"\n", s->header);
}

void emit_reduction(struct emitter *m, const struct emit_reduction *r, const char *seeds,
                    const char *begin)
{
    const struct reduce_state *s = reduce_state(r->reduce, r->dtype);
    struct strb *b = &m->body;
    strb_add(b, "typedef ");
    add_filled(m, r, s->type, " ar_state;\n");
    strb_addf(b, "static_assert(sizeof(ar_state) <= %d, \"of its scratch\");\n", s->size);
    strb_addf(b, "%s\nAR_FN ar_state ar_begin(%s)\n{\n    return ", seeds, begin);
    add_filled(m, r, s->begin, ";\n}\n");
    strb_add(b, "AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)\n{\n    return ");
    add_filled(m, r, s->step, ";\n}\n");
    strb_add(b, "AR_FN ar_state ar_merge(ar_state a, ar_state b)\n{\n    return ");
    add_filled(m, r, s->merge, ";\n}\n");
    strb_add(b, "AR_FN ar_result ar_end(const ar_params &p, ar_state s)\n{\n    return ");
    add_filled(m, r, s->finish, ";\n}\n");
}

static struct emit_reduction reduction_of(const struct ir_kernel *k, uint32_t output)
{
    const struct ir_output *out = &k->outputs[output];
    return (struct emit_reduction){.reduce = out->reduce,
                                   .dtype = (enum dtype)k->nodes[out->node].dtype,
                                   .divisor = out->divisor};
}

static int seeds_of(const struct emit_reduction *r)
{
    return reduce_state(r->reduce, r->dtype)->seeds;
}

static void emit_only(struct emitter *m, bool ascending)
{
    struct emit_reduction r = reduction_of(m->k, 0);
    const int n = seeds_of(&r);
    char seeds[32];
    snprintf(seeds, sizeof seeds, "#define AR_SEEDS %d", n);
    r.ascending = ascending;
    emit_reduction_params(m, &r);
    emit_reduction(m, &r, seeds,
                   n ? "const ar_params &p, const ar_value (&x)[AR_SEEDS]" : "const ar_params &p");
}

/* A struct's function that does the same for each of several, its parts written by `each`: once for
 * every %u, all of them the part's number. */
static void emit_all(struct emitter *m, const char *head, const char *each)
{
    strb_addf(&m->body, "%s\n{\n    return {", head);
    for (uint32_t i = 0; i < m->k->n_outputs; i++) {
        strb_add(&m->body, i ? ", " : "");
        for (const char *p = each; *p; p++)
            if (*p == '#')
                strb_addf(&m->body, "%u", i);
            else
                strb_addc(&m->body, *p);
    }
    strb_add(&m->body, "};\n}\n");
}

/* Several: a struct of states, ar_part<number> each. */
static void emit_several(struct emitter *m, bool ascending)
{
    struct strb *b = &m->body;
    int most = 0;
    for (uint32_t i = 0; i < m->k->n_outputs; i++) {
        struct emit_reduction r = reduction_of(m->k, i);
        const int n = seeds_of(&r);
        char seeds[48], begin[64];
        most = n > most ? n : most;
        r.ascending = ascending;
        snprintf(r.suffix, sizeof r.suffix, "%u_", i);
        snprintf(seeds, sizeof seeds, "enum { SEEDS = %d };", n);
        snprintf(begin, sizeof begin, "const ar_params &p, const ar_value (&x)[%d]", n ? n : 1);
        emit_reduction_params(m, &r);
        strb_addf(b, "struct ar_part%u {\ntypedef %s ar_value;\ntypedef %s ar_result;\n", i,
                  emit_type(r.dtype), emit_type(m->k->outputs[i].dtype));
        emit_reduction(m, &r, seeds, begin);
        strb_addf(b,
                  "AR_FN ar_state ar_begin_with(const ar_params &p, const ::ar_value *all)\n{\n"
                  "    ar_value x[%d] = {};\n    for (int s = 0; s < SEEDS; s++)\n"
                  "        x[s] = all[s].v%u;\n    return ar_begin(p, x);\n}\n};\n",
                  n ? n : 1, i);
    }
    strb_addf(b, "#define AR_SEEDS %d\nstruct ar_state {\n", most);
    for (uint32_t i = 0; i < m->k->n_outputs; i++)
        strb_addf(b, "    ar_part%u::ar_state s%u;\n", i, i);
    strb_addf(b, "};\nstatic_assert(sizeof(ar_state) <= %d, \"of its scratch\");\n",
              m->f->state_size);
    emit_all(m,
             most ? "AR_FN ar_state ar_begin(const ar_params &p, const ar_value (&x)[AR_SEEDS])"
                  : "AR_FN ar_state ar_begin(const ar_params &p)",
             most ? "ar_part#::ar_begin_with(p, x)" : "ar_part#::ar_begin_with(p, nullptr)");
    emit_all(m, "AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)",
             "ar_part#::ar_take(s.s#, x.v#, at)");
    emit_all(m, "AR_FN ar_state ar_merge(ar_state a, ar_state b)",
             "ar_part#::ar_merge(a.s#, b.s#)");
    emit_all(m, "AR_FN ar_result ar_end(const ar_params &p, ar_state s)",
             "ar_part#::ar_end(p, s.s#)");
}

static void emit_reductions(struct emitter *m)
{
    bool args = false;
    for (uint32_t i = 0; i < m->k->n_outputs; i++)
        args |= reduce_is_arg(m->k->outputs[i].reduce);
    const bool ascending = emit_position(m, args);
    if (m->k->n_outputs == 1)
        emit_only(m, ascending);
    else
        emit_several(m, ascending);
}

void emit_reduce(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    const uint32_t numbered = (1u << (f->any ? f->rank - 1 : f->rank)) - 1; /* by chunk */
    if (!f->any)
        strb_addf(b, "#define AR_LANES %d\n#define AR_RESIDENT %d\n", f->lanes, f->resident);
    strb_addf(b, "#define AR_INNER %d\n%s%s", f->inner,
              f->stretches > 1 && !f->any && !f->joined ? "#define AR_SPLIT 1\n" : "",
              f->joined ? "#define AR_JOINED 1\n" : "");
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->reduced, "reduced");
    if (f->any) {
        emit_i64(m, f->lanes, "lanes");
        emit_i64(m, (int64_t)f->lanes * f->unroll, "turn");
        emit_i64(m, strip_of(f), "strip");
    }
    if (f->any || f->stretches > 1 || f->joined) {
        emit_address(m, f->joined ? EMIT_FIRST : EMIT_SCRATCH, 0, "void *", "scratch");
        emit_address(m, EMIT_COUNTERS, 0, "ar_u32 *", "counters");
    }
    if (f->stretches > 1 || f->joined)
        m->out->scratch = f->stretches * (f->joined ? f->members : 1) * f->kept *
                          (f->inner ? 1 : strip_of(f)) * f->state_size;
    if (f->joined)
        emit_share(m);
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_point(m);
    emit_put(m);
    emit_unravel(m, "ar_kept", numbered & ~f->reduced_axes);
    emit_unravel(m, "ar_reduced", numbered & f->reduced_axes);
    emit_reductions(m);
    strb_addf(b, "#include \"compute/kernels/forms/%s.cuh\"\n", f->any ? "reduce_any" : "reduce");
}
