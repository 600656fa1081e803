/* The straight-line body: one C++ variable per node, in order, calling kernels/scalar/scalar.h by
 * name; and the index arithmetic of contexts, one function each. Everything is inlined and constant
 * after unrolling, so what is not needed costs nothing. */
#include "compute/gpu/text/emit_body.h"

#include <stdio.h>

static const char *const op_ids[OP_COUNT] = {
#define OP(id, ...) #id,
#include "compute/type/op.def"
#undef OP
};

static int ctx_rank(const struct emitter *m, uint32_t c)
{
    int rank = m->f->general && c ? m->k->ctxs[c].rank : m->f->rank;
    return rank ? rank : 1;
}

const char *emit_boundary(enum boundary_mode mode)
{
    static const char *const names[] = {
        [BOUNDARY_SELF] = "AR_CLAMP",          [BOUNDARY_CLAMP] = "AR_CLAMP",
        [BOUNDARY_WRAP] = "AR_WRAP",           [BOUNDARY_REFLECT] = "AR_REFLECT",
        [BOUNDARY_SYMMETRIC] = "AR_SYMMETRIC", [BOUNDARY_CONSTANT] = "AR_CLAMP",
        [BOUNDARY_GHOST] = "AR_GHOST",
    };
    return names[mode];
}

/* One axis of a context whose index before the shift is the text `from`. Offsets are parameters; a
 * form that depends on them has them in its own text. */
static void emit_axis(struct emitter *m, uint32_t c, int axis, int64_t offset, int64_t extent,
                      const char *from)
{
    struct strb *b = &m->body;
    if (offset == 0) {
        strb_addf(b, "    q[%d] = %s;\n", axis, from);
        return;
    }
    emit_i64(m, extent, "n%u_%d", c, axis);
    emit_i64(m, offset, "d%u_%d", c, axis);
    strb_addf(b, "    j = %s + (ar_index)p.d%u_%d;\n", from, c, axis);
    strb_addf(b, "    inside = inside && j >= 0 && j < (ar_index)p.n%u_%d;\n", c, axis);
    strb_addf(b, "    q[%d] = ar_bounded<%s>(j, (ar_index)p.n%u_%d);\n", axis,
              emit_boundary(m->k->ctxs[c].mode), c, axis);
}

static void emit_shift(struct emitter *m, uint32_t c)
{
    struct strb *b = &m->body;
    char from[32];
    for (int a = 0; a < m->f->rank; a++) {
        snprintf(from, sizeof from, "i[%d]", a);
        emit_axis(m, c, a, m->f->offsets[c][a], m->f->shape[a], from);
    }
    if (m->k->ctxs[c].mode == BOUNDARY_SELF)
        for (int a = 0; a < m->f->rank; a++)
            if (m->f->offsets[c][a])
                strb_addf(b, "    q[%d] = inside ? q[%d] : i[%d];\n", a, a, a);
}

/* A chain of any kind: through the parent's indices. */
static void emit_chain(struct emitter *m, uint32_t c)
{
    const struct ir_ctx *x = &m->k->ctxs[c];
    struct strb *b = &m->body;
    char from[96];
    if (x->parent)
        strb_addf(b, "    ar_index b[%d];\n    ar_ctx%u(p, i, b);\n", ctx_rank(m, x->parent),
                  x->parent);
    else
        strb_add(b, "    const ar_index *b = i;\n");
    strb_addf(b, "    ar_index o[%d];\n", ctx_rank(m, c));
    for (int a = 0; a < x->rank; a++) {
        emit_i64(m, x->start[a], "b%u_%d", c, a);
        strb_addf(b, "    o[%d] = (ar_index)p.b%u_%d", a, c, a);
        if (x->src[a] >= 0) {
            emit_i64(m, x->step[a], "e%u_%d", c, a);
            strb_addf(b, " + (ar_index)p.e%u_%d * b[%d]", c, a, x->src[a]);
        }
        strb_add(b, ";\n");
        snprintf(from, sizeof from, "o[%d]", a);
        emit_axis(m, c, a, x->offset[a], x->shape[a], from);
    }
    if (x->rank == 0)
        strb_add(b, "    q[0] = 0;\n    o[0] = 0;\n    (void)b;\n");
    if (x->mode == BOUNDARY_SELF)
        for (int a = 0; a < x->rank; a++)
            strb_addf(b, "    q[%d] = inside ? q[%d] : o[%d];\n", a, a, a);
}

/* The contexts whose indices the body or a load uses, and those they depend on. Operands that a
 * stencil holds nearby are not read by index. NULL without memory. */
static bool *mark_contexts(const struct emitter *m)
{
    bool *used = arena_alloc_array(m->arena, m->k->n_ctxs, sizeof *used);
    if (!used)
        return NULL;
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        used[m->f->loads[i].ctx] |= m->f->loads[i].kind != LOAD_NEAR;
    for (uint32_t i = 0; i < m->k->n_nodes; i++) {
        const struct ir_node *n = &m->k->nodes[i];
        if (n->kind == IR_INSIDE || (n->kind == IR_INDEX && n->axis >= 0))
            used[n->ctx] = true;
    }
    for (uint32_t c = m->k->n_ctxs; c-- > 1;)
        used[m->k->ctxs[c].parent] |= used[c];
    return used;
}

void emit_contexts(struct emitter *m)
{
    const bool *used = mark_contexts(m);
    m->oom |= !used;
    for (uint32_t c = 1; used && c < m->k->n_ctxs; c++) {
        if (!used[c])
            continue;
        strb_addf(&m->body,
                  "AR_FN bool ar_ctx%u(const ar_params &p, const ar_index *i, ar_index *q)\n"
                  "{\n    bool inside = true;\n    ar_index j = 0;\n    (void)j;\n",
                  c);
        if (m->f->general)
            emit_chain(m, c);
        else
            emit_shift(m, c);
        strb_add(&m->body, "    return inside;\n}\n");
    }
}

void emit_offset(struct emitter *m, uint32_t input, uint32_t ctx, const char *index)
{
    struct strb *b = &m->body;
    const int64_t *s = m->f->strides[input];
    int rank = ctx_rank(m, ctx), n = 0;
    for (int a = 0; a < rank; a++) {
        if (s[a] == 0)
            continue;
        strb_addf(b, n++ ? " + %s[%d]" : "%s[%d]", index, a);
        if (emit_is_argument(m->f, s[a]))
            strb_addf(b, " * (ar_index)p.s%u_%d", input, a);
    }
    if (!n)
        strb_addc(b, '0');
}

/* FORM_STEPS, a neighbour: from the level's rows a, b, c in turn; in three dimensions from what is
 * around a row. */
static void emit_steps_near(struct emitter *m, const struct form_load *l)
{
    static const char turns[] = "abc";
    const struct form_edge *e = m->f->steps.fields[l->near].edge;
    struct strb *b = &m->body;
    if (m->f->rank < 3)
        strb_addf(b, "%c.f%u.v[e + 1 + (%d)]", turns[l->step[1] + 1], l->near, l->step[2]);
    else if (l->step[1])
        strb_addf(b, "w%u.y[%d].v[e]", l->near, e[1].reach + l->step[1]);
    else if (l->step[2])
        strb_addf(b, "w%u.x[e + %d]", l->near, e[2].reach + l->step[2]);
    else
        strb_addf(b, "w%u.z[%d].v[e]", l->near, e[0].reach + l->step[0]);
}

static void emit_steps_operand(struct emitter *m, uint32_t load)
{
    const struct form_load *l = &m->f->loads[load];
    struct strb *b = &m->body;
    switch (l->kind) {
    case LOAD_NEAR:
        if (l->self)
            strb_addf(b,
                      m->f->rank < 3 ? "!inside%u ? b.f%u.v[e + 1] : "
                                     : "!inside%u ? w%u.z[%d].v[e] : ",
                      l->ctx, l->near, m->f->steps.fields[l->near].edge[0].reach);
        emit_steps_near(m, l);
        return;
    case LOAD_VECTOR:
        strb_addf(b, "l%u.v[e]", load);
        return;
    default:
        strb_addf(b, "p.in%u[", l->input);
        emit_offset(m, l->input, 0, "i");
        strb_addc(b, ']');
    }
}

void emit_operand(struct emitter *m, uint32_t load)
{
    const struct form_load *l = &m->f->loads[load];
    struct strb *b = &m->body;
    if (m->f->kind == FORM_STEPS) {
        emit_steps_operand(m, load);
        return;
    }
    if (m->f->kind == FORM_WINDOW && m->vectors && l->kind == LOAD_VECTOR) {
        strb_addf(b, "l%u.v[e]", load);
        return;
    }
    if (m->f->kind == FORM_WINDOW) {
        strb_addf(b, "p.in%u[", l->input);
        emit_offset(m, l->input, 0, m->index);
        strb_addc(b, ']');
        return;
    }
    switch (l->kind) {
    case LOAD_VECTOR:
    case LOAD_EACH:
    case LOAD_TURNED:
        strb_addf(b, "o.l%u.v[e]", load);
        return;
    case LOAD_ONCE:
        if (m->f->kind == FORM_STENCIL) { /* which only fetches rows */
            char index[16] = "i";
            if (l->ctx)
                snprintf(index, sizeof index, "q%u", l->ctx);
            strb_addf(b, "p.in%u[", l->input);
            emit_offset(m, l->input, l->ctx, index);
            strb_addc(b, ']');
            return;
        }
        strb_addf(b, "o.l%u", load);
        return;
    case LOAD_NEAR:
        strb_addf(b, "o.n%u.at(t + (%d), r + (%d), e, %d)", l->near, l->step[0], l->step[1],
                  l->step[2]);
    }
}

void emit_name(struct emitter *m, uint32_t node)
{
    if (m->name)
        m->name(m, node);
    else
        strb_addf(&m->body, "v%u", node);
}

static void emit_random(struct emitter *m, const struct ir_node *n)
{
    const struct random_params *r = m->k->randoms[n->random];
    struct strb *b = &m->body;
    emit_i64(m, (int64_t)r->seed, "seed%u", n->random);
    strb_addf(b, "ar_philox((ar_u64)p.seed%u, ", n->random);
    emit_name(m, n->args[0]);
    strb_addc(b, ')');
}

/* An int32 cast to a gather's index type stays an int32: half the instructions. */
static void emit_gather(struct emitter *m, const struct ir_node *n)
{
    const struct ir_node *at = &m->k->nodes[n->args[0]];
    bool narrow = at->kind == IR_CAST && at->src == DT_I32 &&
                  m->k->inputs[n->input].view.shape[0] <= INT32_MAX;
    strb_addf(&m->body, narrow ? "p.in%u[ar_inside_32(" : "p.in%u[ar_inside(", n->input);
    emit_name(m, narrow ? at->args[0] : n->args[0]);
    strb_addf(&m->body, ", p.g%u)]", n->input);
}

void emit_value(struct emitter *m, uint32_t i)
{
    const struct ir_node *n = &m->k->nodes[i];
    struct strb *b = &m->body;
    if (m->rows && m->rows[i]) {
        strb_addf(b, "h.v%u", i);
        return;
    }
    if (m->made == i + 1) {
        strb_add(b, "w.v[e]");
        return;
    }
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        strb_addf(b, "p.c%u", n->scalar);
        return;
    case IR_LOAD:
        for (uint32_t l = 0; l < m->f->n_loads; l++)
            if (m->f->loads[l].node == i)
                emit_operand(m, l);
        return;
    case IR_GATHER:
        emit_gather(m, n);
        return;
    case IR_TABLE:
        strb_addf(b, "p.table%u[ar_inside(", n->table);
        emit_name(m, n->args[0]);
        strb_addf(b, ", p.last%u)]", n->table);
        return;
    case IR_INDEX:
        strb_addf(b, "p.x%u", n->index);
        if (n->axis >= 0) {
            strb_addf(b, " + p.y%u * (ar_i64)", n->index);
            int axis = m->f->general ? n->axis : m->f->axis[n->axis];
            if (n->ctx && !m->index)
                strb_addf(b, "q%u[%d]", n->ctx, axis);
            else
                strb_addf(b, "%s[%d]", m->index ? m->index : "i", axis);
        }
        return;
    case IR_INSIDE:
        if (m->index) /* of a tile's only context */
            strb_add(b, "(ar_bool)inside");
        else
            strb_addf(b, "(ar_bool)inside%u", n->ctx);
        return;
    case IR_OP:
        if (n->op == OP_DIVIDE && m->over && m->over[n->args[1]]) {
            strb_add(b, "!EXACT ? ar_over(");
            emit_name(m, n->args[0]);
            strb_add(b, ", ");
            emit_name(m, n->args[1]);
            strb_addf(b, ", h.r%u, odd) : ", n->args[1]);
        }
        strb_addf(b, "ar_%s_%s(", op_ids[n->op], emit_id((enum dtype)n->src));
        for (int a = 0; a < n->n_args; a++) {
            strb_add(b, a ? ", " : "");
            emit_name(m, n->args[a]);
        }
        strb_addc(b, ')');
        return;
    case IR_CAST:
        if (emit_half(m, i))
            return;
        strb_addf(b, "ar_cast_%s_%s(", emit_id((enum dtype)n->src), emit_id((enum dtype)n->dtype));
        emit_name(m, n->args[0]);
        strb_addc(b, ')');
        return;
    case IR_SELECT:
        emit_name(m, n->args[0]);
        strb_add(b, " ? ");
        emit_name(m, n->args[1]);
        strb_add(b, " : ");
        emit_name(m, n->args[2]);
        return;
    case IR_FOLD:
        strb_addf(b, "h.f%u", i);
        return;
    case IR_RANDOM: {
        const struct random_params *r = m->k->randoms[n->random];
        if (r->dist == RANDOM_INTEGERS) {
            strb_addf(b, "(%s)ar_integers(", emit_type((enum dtype)n->dtype));
            emit_random(m, n);
            emit_i64(m, r->low.v.i64, "low%u", n->random);
            emit_i64(m, r->high.v.i64, "high%u", n->random);
            strb_addf(b, ", (ar_u64)p.low%u, (ar_u64)p.high%u)", n->random, n->random);
            return;
        }
        strb_addf(b, "ar_%s_%s(", r->dist == RANDOM_UNIFORM ? "uniform" : "normal",
                  emit_id((enum dtype)n->dtype));
        emit_random(m, n);
        strb_addc(b, ')');
        return;
    }
    }
}

/* The contexts whose indices the body itself uses. */
static void emit_used_contexts(struct emitter *m)
{
    struct strb *b = &m->body;
    for (uint32_t c = 1; c < m->k->n_ctxs; c++) {
        bool used = false;
        for (uint32_t i = 0; i < m->k->n_nodes; i++) {
            const struct ir_node *n = &m->k->nodes[i];
            used |= (n->kind == IR_INSIDE || (n->kind == IR_INDEX && n->axis >= 0)) && n->ctx == c;
        }
        for (uint32_t i = 0; i < m->f->n_loads && m->f->kind == FORM_STENCIL; i++)
            used |= m->f->loads[i].kind == LOAD_ONCE && m->f->loads[i].ctx == c;
        if (used)
            strb_addf(b,
                      "    ar_index q%u[%d];\n    const bool inside%u = ar_ctx%u(p, i, q%u);\n"
                      "    (void)inside%u;\n",
                      c, ctx_rank(m, c), c, c, c, c);
    }
}

static void emit_node(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    const %s v%u = ", emit_type((enum dtype)m->k->nodes[i].dtype), i);
    emit_value(m, i);
    strb_add(&m->body, ";\n");
}

void emit_nodes(struct emitter *m, uint32_t last)
{
    for (uint32_t i = 0; i <= last; i++)
        emit_node(m, i);
}

void emit_wanted(struct emitter *m, const bool *want)
{
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        if (want[i])
            emit_node(m, i);
}

void emit_element(struct emitter *m)
{
    strb_add(&m->body, "    ar_index i[AR_RANK];\n#pragma unroll\n"
                       "    for (int k = 0; k < AR_RANK; k++)\n        i[k] = at.i[k];\n"
                       "    i[AR_FAST] += e * AR_STEP;\n    (void)i;\n");
    emit_used_contexts(m);
}

void emit_result(struct emitter *m)
{
    const struct ir_output *out = m->k->outputs;
    struct strb *b = &m->body;
    if (m->k->n_outputs == 1) {
        strb_addf(b, "typedef %s ar_result;\n", emit_type(out->dtype));
        return;
    }
    strb_add(b, "struct ar_result {\n");
    for (uint32_t i = 0; i < m->k->n_outputs; i++)
        strb_addf(b, "    %s v%u;\n", emit_type(out[i].dtype), i);
    strb_add(b, "};\n");
}

void emit_point(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    bool stencil = m->f->kind == FORM_STENCIL;
    const char *value = "ar_result";
    const struct ir_output *out = k->outputs;
    emit_result(m);
    if (m->f->kind == FORM_REDUCE) /* the type reduced may differ from the result's */
        value = "ar_value";
    if (m->f->kind == FORM_REDUCE && k->n_outputs > 1) {
        strb_add(b, "struct ar_value {\n");
        for (uint32_t i = 0; i < k->n_outputs; i++)
            strb_addf(b, "    %s v%u;\n", emit_type((enum dtype)k->nodes[out[i].node].dtype), i);
        strb_add(b, "};\n");
    } else if (m->f->kind == FORM_REDUCE) {
        strb_addf(b, "typedef %s ar_value;\n", emit_type((enum dtype)k->nodes[out->node].dtype));
    }
    strb_addf(b,
              stencil ? "AR_FN %s ar_point(const ar_params &p, const ar_at &at, const "
                        "ar_operands &o, int t, int r, int e)\n{\n"
                      : "template <int E> AR_FN %s ar_point(const ar_params &p, const "
                        "ar_at &at, const ar_operands<E> &o, int e)\n{\n",
              value);
    emit_element(m);
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last = out[i].node > last ? out[i].node : last;
    emit_nodes(m, last);
    if (k->n_outputs == 1) {
        strb_addf(b, "    return v%u;\n}\n", out->node);
        return;
    }
    strb_addf(b, "    %s all;\n", value);
    for (uint32_t i = 0; i < k->n_outputs; i++)
        strb_addf(b, "    all.v%u = v%u;\n", i, out[i].node);
    strb_add(b, "    return all;\n}\n");
}

/* --- arithmetic of two-byte types ---
 *
 * Casts between float32 and the two-byte types, and what stands between them: lower.c computes in
 * float32 and rounds each result, which forms/half.cuh has in fewer instructions. Its conversions
 * know one NaN only, so they take the place of casts only where arithmetic lies before or behind
 * them: that has one NaN as well. Where a NaN's sign is seen the casts stay. */

/* Whether the operation on float32 does not hand on a NaN as it is, nor looks at its sign. */
static bool is_arithmetic(const struct ir_node *n)
{
    if (n->kind != IR_OP || n->src != DT_F32)
        return false;
    switch (n->op) {
    case OP_ABS:
    case OP_NEGATIVE:
    case OP_POSITIVE:
    case OP_SIGN:
    case OP_COPYSIGN:
    case OP_SIGNBIT:
    case OP_CONJ:
    case OP_REAL:
    case OP_IMAG:
    case OP_NEXTAFTER:
        return false;
    default:
        return true;
    }
}

/* Whether only arithmetic and reductions use the node. */
static bool feeds_arithmetic(const struct ir_kernel *k, uint32_t node)
{
    for (uint32_t i = 0; i < k->n_outputs; i++)
        if (k->outputs[i].node == node && k->outputs[i].kind != OUT_REDUCE)
            return false;
    for (uint32_t i = node + 1; i < k->n_nodes; i++)
        for (int a = 0; a < k->nodes[i].n_args; a++)
            if (k->nodes[i].args[a] == node && k->nodes[i].kind != IR_FOLD &&
                !is_arithmetic(&k->nodes[i]))
                return false;
    return true;
}

/* half.cuh's name for the operation that the cast to float16 rounds, all of whose operands are
 * float16; NULL. */
static const char *whole_op(const struct ir_kernel *k, const struct ir_node *op)
{
    for (int a = 0; a < op->n_args; a++)
        if (!ir_casts(&k->nodes[op->args[a]], DT_F16, DT_F32))
            return NULL;
    switch (op->op) {
    case OP_ADD:
        return "ADD";
    case OP_SUBTRACT:
        return "SUBTRACT";
    case OP_MULTIPLY:
        return "MULTIPLY";
    case OP_DIVIDE:
        return "DIVIDE";
    case OP_EXP:
        return "EXP";
    default:
        return NULL;
    }
}

bool emit_half(struct emitter *m, uint32_t node)
{
    const struct ir_kernel *k = m->k;
    const struct ir_node *n = &k->nodes[node], *of = &k->nodes[n->args[0]];
    struct strb *b = &m->body;
    const bool rounds = n->src == DT_F32 && dtype_is_half((enum dtype)n->dtype);
    if (rounds ? !is_arithmetic(of)
               : n->src != DT_F16 || n->dtype != DT_F32 || !feeds_arithmetic(k, node))
        return false;
    m->halves = true;
    /* a window's operands are not always there by name */
    const char *op =
        rounds && n->dtype == DT_F16 && m->f->kind != FORM_WINDOW ? whole_op(k, of) : NULL;
    if (op)
        strb_addf(b, "ar_half_%s(", op);
    else
        strb_add(b, n->dtype == DT_BF16 ? "ar_half_bf16("
                    : rounds            ? "ar_half_f16("
                                        : "ar_half_f32(");
    for (int a = 0; a < (op ? of->n_args : 1); a++) {
        strb_add(b, a ? ", " : "");
        emit_name(m, op ? k->nodes[of->args[a]].args[0] : n->args[0]);
    }
    strb_addc(b, ')');
    return true;
}
