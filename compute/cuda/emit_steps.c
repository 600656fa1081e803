/* The text of the form steps (kernels/steps2d.cuh): a row of every field at once, of a level as
 * `ar_rows`; a step's body is the kernel's own, which reads its neighbours from three such rows. */
#include "compute/cuda/emit_int.h"

#include <stdio.h>

static const char *field_type(const struct emitter *m, uint32_t field)
{
    return emit_type(m->k->inputs[m->f->fields[field].input].dtype);
}

/* Whether the body wants to know where it is, beyond whether that is an edge. */
static bool wants_place(const struct emitter *m)
{
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        if (m->f->loads[i].kind != LOAD_NEAR)
            return true;
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        if (m->k->nodes[i].kind == IR_INDEX && m->k->nodes[i].axis >= 0)
            return true;
    return false;
}

void emit_steps_operand(struct emitter *m, uint32_t load)
{
    static const char rows[] = "abc";
    const struct form_load *l = &m->f->loads[load];
    struct strb *b = &m->body;
    switch (l->kind) {
    case LOAD_NEAR:
        if (l->self)
            strb_addf(b, "!inside%u ? b.f%u.v[e + 1] : ", l->ctx, l->near);
        strb_addf(b, "%c.f%u.v[e + 1 + (%d)]", rows[l->step[1] + 1], l->near, l->step[2]);
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

/* Whether a context's shift stays inside: known from the lane's place, but for the two edges. */
static void emit_insides(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    for (uint32_t c = 1; c < k->n_ctxs; c++) {
        bool used = false;
        for (uint32_t i = 0; i < k->n_nodes; i++)
            used |= k->nodes[i].kind == IR_INSIDE && k->nodes[i].ctx == c;
        for (uint32_t i = 0; i < m->f->n_loads; i++)
            used |= m->f->loads[i].self && m->f->loads[i].ctx == c;
        if (!used)
            continue;
        const int64_t *o = k->ctxs[c].offset;
        strb_addf(b, "        const bool inside%u = true", c);
        if (o[k->rank - 2])
            strb_add(b, o[k->rank - 2] < 0 ? " && !top" : " && !bottom");
        if (o[k->rank - 1])
            strb_add(b, o[k->rank - 1] < 0 ? " && !(e == 0 && s.first)"
                                           : " && !(e == AR_E - 1 && s.last)");
        strb_add(b, ";\n");
    }
}

static void emit_step(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    const struct form *f = m->f;
    struct strb *b = &m->body;
    bool place = wants_place(m);
    strb_add(b, "template <bool EDGE>\n"
                "AR_FN void ar_step(const ar_params &p, const ar_strip &s, ar_index y, const "
                "ar_rows &a, const ar_rows &b, const ar_rows &c, ar_rows &to)\n{\n"
                "    const bool top = EDGE && !AR_WRAP_Y && y == 0;\n"
                "    const bool bottom = EDGE && !AR_WRAP_Y && y == (ar_index)p.ny - 1;\n"
                "    (void)top;\n    (void)bottom;\n");
    if (place)
        strb_addf(b, "    ar_index i[AR_RANK];\n"
                     "    i[0] = ar_bounded<AR_WRAP_Y ? AR_WRAP : AR_CLAMP>(y, (ar_index)p.ny);\n"
                     "    i[1] = ar_column(s, 0);\n");
    for (uint32_t i = 0; i < f->n_loads; i++) {
        if (f->loads[i].kind != LOAD_VECTOR)
            continue;
        const char *type = emit_type(k->inputs[f->loads[i].input].dtype);
        strb_addf(b, "    const ar_vec<%s, AR_E> l%u = ar_load<%s, AR_E>(p.in%u + ", type, i, type,
                  f->loads[i].input);
        emit_offset(m, f->loads[i].input, 0, "i");
        strb_add(b, ");\n");
    }
    strb_add(b, "#pragma unroll\n    for (int e = 0; e < AR_E; e++) {\n");
    if (place)
        strb_add(b, "        i[1] = ar_column(s, e);\n");
    emit_insides(m);
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last = k->outputs[i].node > last ? k->outputs[i].node : last;
    emit_nodes(m, last);
    for (uint32_t i = 0; i < f->n_fields; i++)
        strb_addf(b, "        to.f%u.v[e + 1] = v%u;\n", i, k->outputs[f->fields[i].output].node);
    strb_add(b, "    }\n}\n");
}

/* A function with a line for each field that `wants` one. */
static void emit_each(struct emitter *m, const char *head,
                      void (*line)(struct emitter *m, uint32_t field))
{
    strb_addf(&m->body, "AR_FN void %s\n{\n", head);
    for (uint32_t i = 0; i < m->f->n_fields; i++)
        line(m, i);
    strb_add(&m->body, "}\n");
}

static void bring_line(struct emitter *m, uint32_t i)
{
    uint32_t input = m->f->fields[i].input;
    strb_addf(&m->body, "    ar_bring_row(queue.f%u[slot], p.in%u + row * ", i, input);
    emit_stride(m, input, m->f->rank - 2);
    strb_add(&m->body, ", s);\n");
}

static void take_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_take_row(r.f%u, queue.f%u[slot]);\n", i, i);
}

static void sides_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->fields[i].edge[2];
    if (e->reach)
        strb_addf(&m->body, "    ar_row_sides<%s>(r.f%u, s);\n", emit_boundary(e->mode), i);
}

static void bend_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->fields[i].edge[1];
    if (e->reach)
        strb_addf(&m->body, "    ar_row_bend<%s>(top, bottom, a.f%u, b.f%u, c.f%u);\n",
                  emit_boundary(e->mode), i, i, i);
}

static void stage_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_stage_row(queue.s%u, r.f%u);\n", i, i);
}

static void put_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_put_row(p.out%u + row * ", i);
    emit_stride(m, m->f->fields[i].input, m->f->rank - 2); /* which is the output's */
    strb_addf(&m->body, ", queue.s%u, s);\n", i);
}

static void emit_structs(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_rows {\n");
    for (uint32_t i = 0; i < m->f->n_fields; i++)
        strb_addf(b, "    ar_row<%s> f%u;\n", field_type(m, i), i);
    strb_add(b, "};\nstruct ar_queue {\n");
    for (uint32_t i = 0; i < m->f->n_fields; i++)
        strb_addf(b,
                  "    alignas(16) %s f%u[AR_AHEAD][AR_WIDTH];\n    alignas(16) %s "
                  "s%u[AR_WIDTH];\n",
                  field_type(m, i), i, field_type(m, i), i);
    strb_add(b, "};\n");
    for (uint32_t i = 0; i < m->f->n_fields; i++) {
        const struct ir_output *o = &k->outputs[m->f->fields[i].output];
        char type[32];
        snprintf(type, sizeof type, "%s *", emit_type(o->dtype));
        emit_address(m, o->slot, o->view.offset * (int64_t)dtype_size(o->dtype), type, "out%u", i);
    }
}

void emit_steps(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    emit_i64(m, f->shape[f->rank - 1], "nx");
    emit_i64(m, f->shape[f->rank - 2], "ny");
    emit_i64(m, f->part, "part");
    strb_addf(b,
              "#define AR_T %d\n#define AR_PIECE %d\n#define AR_HALO %d\n#define AR_AHEAD %d\n"
              "#define AR_BLOCKS %d\n#define AR_WRAP_Y %d\n#define AR_WRAP_X %d\n"
              "#include \"compute/kernels/steps.cuh\"\n",
              f->steps, f->piece, f->halo, f->ahead, f->at_once, f->wraps[1], f->wraps[2]);
    emit_structs(m);
    emit_each(m,
              "ar_bring(const ar_params &p, const ar_strip &s, ar_queue &queue, int slot, "
              "ar_index row)",
              bring_line);
    emit_each(m, "ar_take(const ar_queue &queue, int slot, ar_rows &r)", take_line);
    emit_each(m, "ar_sides(const ar_strip &s, ar_rows &r)", sides_line);
    emit_each(m, "ar_bend(bool top, bool bottom, ar_rows &a, const ar_rows &b, ar_rows &c)",
              bend_line);
    emit_each(m, "ar_stage(ar_queue &queue, const ar_rows &r)", stage_line);
    emit_each(m,
              "ar_put(const ar_params &p, const ar_strip &s, const ar_queue &queue, ar_index "
              "row)",
              put_line);
    emit_step(m);
    strb_add(b, "#include \"compute/kernels/steps2d.cuh\"\n");
}
