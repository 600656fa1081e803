/* The form fold: each fold's reduction and the value of its elements, which may use the results of
 * the folds before it; then the value of the results. What several of them need is written in each;
 * the compiler finds that it has it. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>
#include <string.h>

#define DEAR 4 /* additions: a value is kept rather than computed twice */
#define POINT                                                                                      \
    "(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_made &w, const "      \
    "ar_folds &h, int e)\n{\n"

/* What the text is made with: for each node, how many folds it follows from, one after the other,
 * and whether it is the same all along a row, needed for its elements, and so computed once. */
struct levels {
    int *of, n; /* levels of folds */
    bool *uniform, *rows, *over, *want;
    uint32_t made; /* as of the emitter */
    int made_at;   /* level */
};

/* A float16 as float32: half.cuh's operations use what it is made of. */
static bool is_widened(const struct ir_node *n)
{
    return ir_casts(n, DT_F16, DT_F32);
}

/* Marks what the wanted nodes are made of, up to the folds and what is computed once. */
static void mark(const struct emitter *m, bool *want)
{
    const struct ir_kernel *k = m->k;
    for (uint32_t i = k->n_nodes; i-- > 0;)
        for (int a = 0; want[i] && k->nodes[i].kind != IR_FOLD && m->made != i + 1 &&
                        (!m->rows[i] || is_widened(&k->nodes[i])) && a < k->nodes[i].n_args;
             a++)
            want[k->nodes[i].args[a]] = true;
}

static bool is_uniform(const struct ir_node *n, const bool *uniform)
{
    bool all = n->kind == IR_OP || n->kind == IR_CAST || n->kind == IR_SELECT;
    for (int a = 0; a < n->n_args && all; a++)
        all = uniform[n->args[a]];
    return all || n->kind == IR_FOLD || n->kind == IR_CONST;
}

/* Whether arithmetic is what the row waits for, so that quotients are worth a second way: elements
 * of two bytes, and blocks that are alone on their multiprocessor. Not where quotients need not be
 * exact. */
static bool is_bound_by_arithmetic(const struct emitter *m)
{
    bool small = true;
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        small &= !m->f->loads[i].early || dtype_size(m->k->inputs[m->f->loads[i].input].dtype) <= 2;
    return (small || m->f->held_chunks) && !m->k->fast_math;
}

/* false without memory */
static bool find_levels(struct emitter *m, struct levels *l)
{
    const struct ir_kernel *k = m->k;
    const bool computes = is_bound_by_arithmetic(m);
    bool *uniform = arena_alloc_array(m->arena, k->n_nodes, sizeof *uniform);
    l->uniform = uniform;
    l->of = arena_alloc_array(m->arena, k->n_nodes, sizeof *l->of);
    l->over = arena_alloc_array(m->arena, k->n_nodes, sizeof *l->over);
    l->rows = arena_alloc_array(m->arena, k->n_nodes, sizeof *l->rows);
    l->want = arena_alloc_array(m->arena, k->n_nodes, sizeof *l->want);
    l->n = 0;
    l->made = 0;
    l->made_at = 0;
    if (!uniform || !l->of || !l->rows || !l->over || !l->want)
        return false;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        uniform[i] = is_uniform(n, uniform);
        for (int a = 0; a < n->n_args; a++) {
            const uint32_t arg = n->args[a];
            l->of[i] = l->of[arg] > l->of[i] ? l->of[arg] : l->of[i];
            if (!uniform[i] || n->kind == IR_FOLD)
                l->rows[arg] = uniform[arg] && k->nodes[arg].kind != IR_FOLD && l->of[arg] > 0;
        }
        if (computes && n->kind == IR_OP && n->op == OP_DIVIDE && n->src == DT_F32 && !uniform[i] &&
            uniform[n->args[1]] && l->of[n->args[1]] > 0 && !is_widened(&k->nodes[n->args[0]]))
            l->over[n->args[1]] = true;
        l->of[i] += n->kind == IR_FOLD;
        l->n = l->of[i] > l->n ? l->of[i] : l->n;
    }
    for (uint32_t o = 0; o < k->n_outputs; o++) {
        const uint32_t node = k->outputs[o].node;
        l->rows[node] |= uniform[node] && k->nodes[node].kind != IR_FOLD && l->of[node] > 0;
    }
    for (uint32_t i = k->n_nodes; i-- > 0;)
        if (l->rows[i] && is_widened(&k->nodes[i]))
            l->rows[k->nodes[i].args[0]] = true;
    return true;
}

/* --- a value in place of the operands --- */

/* Marks what an output or a fold's element is made of. */
static void mark_one(const struct emitter *m, const struct levels *l, uint32_t node)
{
    memset(l->want, 0, m->k->n_nodes * sizeof *l->want);
    l->want[node] = true;
    mark(m, l->want);
}

/* Whether what is marked reads an operand that folds have read. */
static bool reads_again(const struct emitter *m, const struct levels *l)
{
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        if (m->f->loads[i].early && l->want[m->f->loads[i].node])
            return true;
    return false;
}

/* The first level whose folds need the node; 0. */
static int first_level(const struct emitter *m, const struct levels *l, uint32_t node)
{
    int first = 0;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        if (m->k->nodes[i].kind != IR_FOLD || (first && l->of[i] >= first))
            continue;
        mark_one(m, l, m->k->nodes[i].args[0]);
        if (l->want[node])
            first = l->of[i];
    }
    return first;
}

/* Whether after this level everything follows from the node, and something does. */
static bool is_all_that_is_left(struct emitter *m, const struct levels *l, uint32_t node, int level)
{
    const struct ir_kernel *k = m->k;
    bool used = false, again = false;
    m->made = node + 1;
    for (uint32_t i = 0; i < k->n_nodes && !again; i++) {
        if (k->nodes[i].kind != IR_FOLD || l->of[i] <= level)
            continue;
        mark_one(m, l, k->nodes[i].args[0]);
        used |= l->want[node];
        again = reads_again(m, l);
    }
    for (uint32_t o = 0; o < k->n_outputs && k->outputs[o].kind == OUT_STORE && !again; o++) {
        mark_one(m, l, k->outputs[o].node);
        used |= l->want[node];
        again = reads_again(m, l);
    }
    m->made = 0;
    return used && !again;
}

/* What a row's elements cost to compute up to the node, in additions. */
static int cost(const struct emitter *m, const struct levels *l, uint32_t node)
{
    int sum = 0;
    mark_one(m, l, node);
    for (uint32_t i = 0; i <= node; i++) {
        const struct ir_node *n = &m->k->nodes[i];
        if (l->want[i] && !l->uniform[i] && n->kind == IR_OP)
            sum += (int)op_cost(n->op, (enum dtype)n->src);
    }
    return sum;
}

/* Finds the node whose values take the operands' place, if one is worth it. */
static void find_made(struct emitter *m, struct levels *l)
{
    const struct ir_kernel *k = m->k;
    size_t bytes = 0;
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        if (m->f->loads[i].early && m->f->loads[i].kind != LOAD_ONCE)
            bytes += dtype_size(k->inputs[m->f->loads[i].input].dtype);
    for (uint32_t i = k->n_nodes; i-- > 0 && !l->made;) {
        const struct ir_node *n = &k->nodes[i];
        if ((n->kind != IR_OP && n->kind != IR_CAST) || l->uniform[i] ||
            dtype_size((enum dtype)n->dtype) > bytes)
            continue;
        const int first = first_level(m, l, i);
        if (first && cost(m, l, i) >= DEAR && is_all_that_is_left(m, l, i, first)) {
            l->made = i + 1;
            l->made_at = first;
        }
    }
}

/* ar_made and ar_make(): that value. */
static void emit_made(struct emitter *m, const struct levels *l)
{
    struct strb *b = &m->body;
    strb_addf(b, "#define AR_MADE %d\n", l->made ? l->made_at : 0);
    if (!l->made) {
        strb_add(b, "struct ar_made {\n};\n");
        return;
    }
    const uint32_t node = l->made - 1;
    const char *type = emit_type((enum dtype)m->k->nodes[node].dtype);
    strb_addf(b, "typedef ar_vec<%s, AR_E> ar_made;\n", type);
    strb_addf(b, "template <int E> AR_FN %s ar_make" POINT, type);
    emit_element(m);
    mark_one(m, l, node);
    emit_wanted(m, l->want);
    strb_addf(b, "    return v%u;\n}\n", node);
}

/* --- text --- */

/* ar_folds: their results and what is computed once; AR_FOLDS: the folds of each level. */
static void emit_results(struct emitter *m, const struct levels *l)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_folds {\n");
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD || l->rows[i])
            strb_addf(b, "    %s %c%u;\n", emit_type((enum dtype)k->nodes[i].dtype),
                      l->rows[i] ? 'v' : 'f', i);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (l->over[i])
            strb_addf(b, "    ar_f32 r%u;\n", i);
    strb_add(b, "};\n#define AR_FOLDS(X)");
    for (int at = 1; at <= l->n; at++) {
        strb_addf(b, " X(%d", at);
        for (uint32_t i = 0; i < k->n_nodes; i++)
            if (k->nodes[i].kind == IR_FOLD && l->of[i] == at)
                strb_addf(b, ", ar_fold%u", i);
        strb_addc(b, ')');
    }
    strb_addf(b, "\n#define AR_TOGETHER %d\n", m->f->together);
}

/* ar_derive<level>(): what is computed once, and follows from the folds up to this level. */
static void emit_derived(struct emitter *m, const struct levels *l)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    bool *before = arena_alloc_array(m->arena, k->n_nodes, sizeof *before);
    m->oom |= !before;
    for (int at = 1; before && at <= l->n; at++) {
        strb_addf(b,
                  "AR_FN void ar_derive%d(const ar_params &p, ar_folds &h)\n"
                  "{\n    (void)p;\n    (void)h;\n",
                  at);
        for (uint32_t i = 0; i < k->n_nodes; i++) {
            l->want[i] = l->rows[i] && l->of[i] == at;
            before[i] = l->rows[i] && l->of[i] < at;
        }
        m->rows = before;
        m->over = NULL;
        mark(m, l->want);
        emit_wanted(m, l->want);
        for (uint32_t i = 0; i < k->n_nodes; i++)
            if (l->rows[i] && l->of[i] == at)
                strb_addf(b, "    h.v%u = v%u;\n", i, i);
        for (uint32_t i = 0; i < k->n_nodes; i++)
            if (l->over[i] && l->of[i] == at)
                strb_addf(b, "    h.r%u = ar_inverse(h.%c%u);\n", i, l->rows[i] ? 'v' : 'f', i);
        strb_add(b, "}\n");
        m->rows = l->rows;
        m->over = NULL;
    }
}

static void emit_one_fold(struct emitter *m, uint32_t node, const struct levels *l, bool ascending)
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
    m->made = l->made && l->of[node] >= l->made_at ? l->made : 0;
    mark_one(m, l, n->args[0]);
    emit_wanted(m, l->want);
    m->made = 0;
    strb_addf(b,
              "    return v%u;\n}\nAR_FN void ar_give(ar_folds &h, ar_result r)\n{\n"
              "    h.f%u = r;\n}\n};\n",
              n->args[0], node);
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
    strb_add(b, "template <int E, bool EXACT> AR_FN ar_result ar_point(const ar_params &p, const "
                "ar_at &at, const ar_operands<E> &o, const ar_made &w, const ar_folds &h, int e, "
                "bool &odd)\n{\n");
    emit_element(m);
    memset(want, 0, k->n_nodes * sizeof *want);
    for (uint32_t i = 0; i < n; i++)
        want[k->outputs[i].node] = true;
    mark(m, want);
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
        strb_addf(b, "] = h.%c%u;\n", m->rows[o->node] ? 'v' : 'f', o->node);
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

/* ar_held, ar_hold() and ar_recall(): the operands that the folds read, in shared memory. */
static void emit_hold(struct emitter *m)
{
    struct strb *b = &m->body;
    bool plain = false;
    strb_add(b, "template <int E> struct ar_held {\n");
    for (uint32_t i = 0; i < m->f->n_loads; i++) {
        const struct form_load *l = &m->f->loads[i];
        if (l->early && l->kind != LOAD_ONCE)
            strb_addf(b, "    ar_vec<%s, E> l%u;\n", emit_type(m->k->inputs[l->input].dtype), i);
    }
    strb_add(b, "};\ntemplate <int E> AR_FN void ar_recall(const ar_held<E> &from, "
                "ar_operands<E> &o)\n{\n");
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        if (m->f->loads[i].early && m->f->loads[i].kind != LOAD_ONCE)
            strb_addf(b, "    o.l%u = from.l%u;\n", i, i);
    strb_add(b, "}\ntemplate <int E> AR_FN void ar_hold(const ar_params &p, const ar_at &at, "
                "ar_held<E> &to)\n{\n");
    for (uint32_t i = 0; i < m->f->n_loads; i++) {
        const struct form_load *l = &m->f->loads[i];
        if (!l->early || l->kind == LOAD_ONCE)
            continue;
        if (l->kind != LOAD_VECTOR) {
            plain = true;
            continue;
        }
        strb_addf(b, "    ar_copy<(int)sizeof to.l%u>(&to.l%u, p.in%u + ", i, i, l->input);
        emit_offset(m, l->input, 0, "at.i");
        strb_add(b, ");\n");
    }
    if (plain)
        strb_add(b, "    ar_operands<E> o;\n    ar_fetch<E>(p, at, o);\n");
    for (uint32_t i = 0; i < m->f->n_loads && plain; i++)
        if (m->f->loads[i].early && m->f->loads[i].kind == LOAD_EACH)
            strb_addf(b, "    to.l%u = o.l%u;\n", i, i);
    strb_add(b, "}\n");
}

void emit_fold(struct emitter *m)
{
    const struct form *f = m->f;
    const struct ir_kernel *k = m->k;
    struct ir_kernel *stores = arena_dup(m->arena, k, sizeof *k);
    struct levels l;
    bool args = false;
    m->oom |= !stores || !find_levels(m, &l);
    if (m->oom)
        return;
    stores->n_outputs = 0;
    while (stores->n_outputs < k->n_outputs && k->outputs[stores->n_outputs].kind == OUT_STORE)
        stores->n_outputs++;
    for (uint32_t i = 0; i < k->n_folds; i++)
        args |= reduce_is_arg(k->folds[i].reduce);
    strb_addf(&m->body,
              "#define AR_LANES %d\n#define AR_CHUNKS %d\n#define AR_EVEN %d\n"
              "#define AR_RESIDENT %d\n#define AR_HELD %d\n",
              f->lanes, f->lane_chunks, f->reduced == (int64_t)f->lanes * f->lane_chunks,
              f->resident, f->held_chunks);
    emit_i64(m, f->kept, "kept");
    emit_i64(m, f->reduced, "reduced");
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_keep(m);
    if (f->held_chunks) {
        strb_addf(&m->body, "#define AR_CELL %lld\n#include \"compute/kernels/forms/copy.cuh\"\n",
                  (long long)(f->shared / f->held_chunks / f->threads));
        emit_hold(m);
    }
    emit_unravel(m, "ar_kept", ((1u << (f->rank - 1)) * 2u - 1u) & ~f->reduced_axes);
    emit_unravel(m, "ar_reduced", f->reduced_axes);
    const bool ascending = emit_position(m, args);
    emit_results(m, &l);
    m->rows = l.rows;
    find_made(m, &l);
    emit_made(m, &l);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD)
            emit_one_fold(m, i, &l, ascending);
    if (stores->n_outputs) {
        m->k = stores;
        m->made = l.made;
        m->over = l.over;
        emit_stores(m, l.want);
        m->over = NULL;
        m->made = 0;
        m->k = k;
    }
    emit_derived(m, &l);
    emit_rows(m, stores->n_outputs);
    strb_add(&m->body, "#include \"compute/kernels/forms/fold.cuh\"\n");
}
