/* The form fold: each fold's reduction and the value of its elements, which may use the results of
 * the folds before it; then the value of the results. What several of them need is written in each;
 * the compiler finds that it has it. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>
#include <string.h>

/* Marks what the wanted nodes are made of, up to the folds. */
static void mark(const struct ir_kernel *k, bool *want)
{
    for (uint32_t i = k->n_nodes; i-- > 0;)
        for (int a = 0; want[i] && k->nodes[i].kind != IR_FOLD && a < k->nodes[i].n_args; a++)
            want[k->nodes[i].args[a]] = true;
}

/* ar_folds: their results. */
static void emit_results(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_folds {\n");
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD)
            strb_addf(b, "    %s f%u;\n", emit_type((enum dtype)k->nodes[i].dtype), i);
    strb_add(b, "};\n#define AR_FOLDS(X)");
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD)
            strb_addf(b, " X(%u)", i);
    strb_add(b, "\n");
}

#define POINT                                                                                      \
    "(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_folds &h, int "       \
    "e)\n{\n"

static void emit_one_fold(struct emitter *m, uint32_t node, bool *want, bool ascending)
{
    const struct ir_node *n = &m->k->nodes[node];
    const struct ir_fold *fold = &m->k->folds[n->fold];
    struct strb *b = &m->body;
    struct emit_reduction r = {.reduce = fold->reduce,
                               .dtype = (enum dtype)n->src,
                               .divisor = fold->divisor,
                               .ascending = ascending};
    const int seeds = reduce_state(r.reduce, r.dtype)->seeds;
    char count[48], begin[64];
    snprintf(r.suffix, sizeof r.suffix, "%u", node);
    snprintf(count, sizeof count, "enum { SEEDS = %d };", seeds);
    snprintf(begin, sizeof begin, "const ar_params &p, const ar_value (&x)[%d]", seeds ? seeds : 1);
    emit_reduction_params(m, &r);
    strb_addf(b, "struct ar_fold%u {\ntypedef %s ar_value;\ntypedef %s ar_result;\n", node,
              emit_type(r.dtype), emit_type((enum dtype)n->dtype));
    emit_reduction(m, &r, count, begin);
    strb_add(b, "template <int E> AR_FN ar_value ar_point" POINT);
    emit_element(m);
    memset(want, 0, m->k->n_nodes * sizeof *want);
    want[n->args[0]] = true;
    mark(m->k, want);
    emit_wanted(m, want);
    strb_addf(b, "    return v%u;\n}\n};\n", n->args[0]);
}

/* What is stored for every point: ar_result, ar_point() and ar_put(). */
static void emit_stores(struct emitter *m, bool *want)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    const uint32_t n = k->n_outputs;
    strb_add(b, "#define AR_STORES 1\n");
    if (n > 1)
        strb_add(b, "struct ar_result {\n");
    for (uint32_t i = 0; i < n && n > 1; i++)
        strb_addf(b, "    %s v%u;\n", emit_type(k->outputs[i].dtype), i);
    if (n > 1)
        strb_add(b, "};\n");
    else
        strb_addf(b, "typedef %s ar_result;\n", emit_type(k->outputs[0].dtype));
    strb_add(b, "template <int E> AR_FN ar_result ar_point" POINT);
    emit_element(m);
    memset(want, 0, k->n_nodes * sizeof *want);
    for (uint32_t i = 0; i < n; i++)
        want[k->outputs[i].node] = true;
    mark(k, want);
    emit_wanted(m, want);
    strb_add(b, "    ar_result all;\n");
    for (uint32_t i = 0; i < n; i++)
        if (n > 1)
            strb_addf(b, "    all.v%u = v%u;\n", i, k->outputs[i].node);
        else
            strb_addf(b, "    all = v%u;\n", k->outputs[i].node);
    strb_add(b, "    return all;\n}\n");
    emit_put(m);
}

/* Stores of a row's own values: ar_put_row(). */
static void emit_rows(struct emitter *m, uint32_t from)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_add(b, "AR_FN void ar_put_row(const ar_params &p, const ar_at &at, const ar_folds &h)\n"
                "{\n    (void)at;\n");
    for (uint32_t i = from; i < m->k->n_outputs; i++) {
        const struct ir_output *o = &m->k->outputs[i];
        char type[32];
        snprintf(type, sizeof type, "%s *", emit_type(o->dtype));
        emit_address(m, o->slot, o->view.offset * (int64_t)dtype_size(o->dtype), type, "row%u", i);
        strb_addf(b, "    p.row%u[0", i);
        for (int a = 0; a < f->rank; a++) {
            const int64_t s = f->out_strides[i][a];
            if (s == 0 || f->reduced_axes >> a & 1)
                continue;
            strb_addf(b, " + at.i[%d]", a);
            if (s != 1) {
                emit_i64(m, s, "u%u_%d", i, a);
                strb_addf(b, " * (ar_index)p.u%u_%d", i, a);
            }
        }
        strb_addf(b, "] = h.f%u;\n", o->node);
    }
    strb_add(b, "}\n");
}

/* ar_keep(): the operands that the folds have read already. */
static void emit_keep(struct emitter *m)
{
    struct strb *b = &m->body;
    strb_add(b, "template <int E> AR_FN void ar_keep(const ar_operands<E> &from, "
                "ar_operands<E> &o)\n{\n    (void)from;\n    (void)o;\n");
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        if (m->f->loads[i].early)
            strb_addf(b, "    o.l%u = from.l%u;\n", i, i);
    strb_add(b, "}\n");
}

void emit_fold(struct emitter *m)
{
    const struct form *f = m->f;
    const struct ir_kernel *k = m->k;
    struct ir_kernel *stores = arena_dup(m->arena, k, sizeof *k);
    bool *want = arena_alloc_array(m->arena, k->n_nodes, sizeof *want);
    bool args = false;
    m->oom |= !stores || !want;
    if (m->oom)
        return;
    stores->n_outputs = 0;
    while (stores->n_outputs < k->n_outputs && k->outputs[stores->n_outputs].kind == OUT_STORE)
        stores->n_outputs++;
    for (uint32_t i = 0; i < k->n_folds; i++)
        args |= reduce_is_arg(k->folds[i].reduce);
    strb_addf(&m->body, "#define AR_LANES %d\n#define AR_CHUNKS %d\n#define AR_EVEN %d\n", f->lanes,
              f->lane_chunks, f->reduced == (int64_t)f->lanes * f->lane_chunks);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->reduced, "reduced");
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_keep(m);
    emit_unravel(m, "ar_kept", ((1u << (f->rank - 1)) * 2u - 1u) & ~f->reduced_axes);
    emit_unravel(m, "ar_reduced", f->reduced_axes);
    const bool ascending = emit_position(m, args);
    emit_results(m);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD)
            emit_one_fold(m, i, want, ascending);
    if (stores->n_outputs) {
        m->k = stores;
        emit_stores(m, want);
        m->k = k;
    }
    emit_rows(m, stores->n_outputs);
    strb_add(&m->body, "#include \"compute/kernels/forms/fold.cuh\"\n");
}
