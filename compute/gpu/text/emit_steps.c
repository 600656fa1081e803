/* The text of the form steps in one and two dimensions (kernels/steps/steps1d.cuh, steps2d.cuh). A
 * thread's share of every field at one level is an `ar_levels`. A step's body is the kernel's own;
 * it reads its neighbours from three of these. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

static const char *field_type(const struct emitter *m, uint32_t field)
{
    return emit_type(m->k->inputs[m->f->steps.fields[field].input].dtype);
}

static bool is_far(const struct emitter *m, uint32_t c, int axis)
{
    return form_steps_is_far(m->f, &m->k->ctxs[c], axis);
}

bool emit_steps_any_far(const struct emitter *m, uint32_t c)
{
    bool far = false;
    for (int a = 0; a < m->k->rank; a++)
        far |= is_far(m, c, a);
    return far;
}

bool emit_steps_place(const struct emitter *m)
{
    bool used = false;
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        used |= m->f->loads[i].kind != LOAD_NEAR;
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        used |= m->k->nodes[i].kind == IR_INDEX && m->k->nodes[i].axis >= 0;
    return used;
}

bool emit_steps_asks(const struct emitter *m, uint32_t c)
{
    bool asks = false;
    for (uint32_t i = 0; i < m->k->n_nodes; i++)
        asks |= m->k->nodes[i].kind == IR_INSIDE && m->k->nodes[i].ctx == c;
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        asks |= m->f->loads[i].self && m->f->loads[i].ctx == c;
    return asks;
}

/* Bits, because they are the same from row to row and step to step along most axes, and a register
 * can keep them. */
void emit_steps_far(struct emitter *m, const char *const *at)
{
    struct strb *b = &m->body;
    const int last = m->k->rank - 1;
    for (uint32_t c = 1; c < m->k->n_ctxs; c++) {
        if (!emit_steps_asks(m, c) || !emit_steps_any_far(m, c))
            continue;
        strb_addf(b, "    ar_u32 far%u = ~(ar_u32)0;\n", c);
        for (int a = last; a >= 0; a--) {
            const int64_t offset = m->k->ctxs[c].offset[a], n = m->k->shape[a];
            const int64_t end =
                offset < 0 ? -offset : n - offset; /* the first inside, or outside */
            const char *outside = offset < 0 ? "<" : ">=";
            if (!is_far(m, c, a))
                continue;
            emit_i64(m, end < 0 ? 0 : end < n ? end : n, "d%u_%d", c, a);
            if (a == last)
                strb_addf(b,
                          "#pragma unroll\n    for (int e = 0; e < AR_E; e++)\n"
                          "        far%u &= ~((ar_u32)(%s %s (ar_index)p.d%u_%d) << e);\n",
                          c, at[a], outside, c, a);
            else
                strb_addf(b, "    far%u = %s %s (ar_index)p.d%u_%d ? 0 : far%u;\n", c, at[a],
                          outside, c, a, c);
        }
    }
}

/* Whether a context's shift stays inside: near an edge known from the thread's position, except
 * along the slowest axis. */
static void emit_insides(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    const int x = k->rank - 1;
    for (uint32_t c = 1; c < k->n_ctxs; c++) {
        if (!emit_steps_asks(m, c))
            continue;
        const int64_t *o = k->ctxs[c].offset;
        strb_addf(b, "        const bool inside%u = true", c);
        if (k->rank > 1 && o[0] && !is_far(m, c, 0))
            strb_add(b, o[0] < 0 ? " && !front" : " && !back");
        if (o[x] && !is_far(m, c, x))
            strb_add(b, o[x] < 0 ? " && !(e == 0 && s.first)" : " && !(e == AR_E - 1 && s.last)");
        if (emit_steps_any_far(m, c))
            strb_addf(b, " && (far%u >> e & 1)", c);
        strb_add(b, ";\n");
    }
}

/* Vector reads of operands that are not fields. */
static void emit_vectors(struct emitter *m)
{
    const struct form *f = m->f;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        if (f->loads[i].kind != LOAD_VECTOR)
            continue;
        const char *type = emit_type(m->k->inputs[f->loads[i].input].dtype);
        strb_addf(&m->body, "    const ar_vec<%s, AR_E> l%u = ar_load<%s, AR_E>(p.in%u + ", type, i,
                  type, f->loads[i].input);
        emit_offset(m, f->loads[i].input, 0, "i");
        strb_add(&m->body, ");\n");
    }
}

static void emit_step(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    const struct form *f = m->f;
    struct strb *b = &m->body;
    static const char *const at[] = {
        "ar_bounded<AR_WRAP_SLOW ? AR_WRAP : AR_CLAMP>(n, (ar_index)p.ny)",
        "ar_inner<AR_E, AR_WRAP_X>(s, e)"};
    bool place = emit_steps_place(m);
    strb_add(b, "template <bool EDGE>\nAR_FN void ar_step(const ar_params &p, const ar_span &s, "
                "ar_index n, const ar_levels &a, const ar_levels &b, const ar_levels &c, "
                "ar_levels &to)\n{\n"
                "    const bool front = EDGE && !AR_WRAP_SLOW && n == 0;\n"
                "    const bool back = EDGE && !AR_WRAP_SLOW && n == (ar_index)p.ny - 1;\n"
                "    (void)n;\n    (void)front;\n    (void)back;\n");
    if (place)
        strb_addf(b,
                  "    ar_index i[AR_RANK];\n    i[0] = %s;\n"
                  "    i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(s, 0);\n",
                  at[0]);
    emit_steps_far(m, &at[2 - k->rank]);
    emit_vectors(m);
    strb_add(b, "#pragma unroll\n    for (int e = 0; e < AR_E; e++) {\n");
    if (place)
        strb_addf(b, "        i[AR_FAST] = %s;\n", at[1]);
    emit_insides(m);
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last = k->outputs[i].node > last ? k->outputs[i].node : last;
    emit_nodes(m, last);
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "        to.f%u.v[e + 1] = v%u;\n", i,
                  k->outputs[f->steps.fields[i].output].node);
    strb_add(b, "    }\n}\n");
}

/* A function with a line for each field that needs one. */
static void emit_each(struct emitter *m, const char *head,
                      void (*line)(struct emitter *m, uint32_t field))
{
    strb_addf(&m->body, "AR_FN void %s\n{\n", head);
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++)
        line(m, i);
    strb_add(&m->body, "}\n");
}

/* The expression for index `n` along the slowest axis of field i's array at `base`. */
static void emit_line(struct emitter *m, const char *base, uint32_t i)
{
    strb_add(&m->body, base);
    if (m->f->rank == 1)
        return;
    strb_add(&m->body, " + n * ");
    emit_stride(m, m->f->steps.fields[i].input, 0); /* the output's, too */
}

static void bring_line(struct emitter *m, uint32_t i)
{
    char base[32];
    snprintf(base, sizeof base, "p.in%u", m->f->steps.fields[i].input);
    strb_addf(&m->body, "    ar_bring_row(shared.q%u[slot], ", i);
    emit_line(m, base, i);
    strb_add(&m->body, ", s);\n");
}

static void take_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_take_row(c.f%u, shared.q%u[slot]);\n", i, i);
}

static void sides_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->steps.fields[i].edge[2];
    if (e->reach)
        strb_addf(&m->body, "    ar_row_sides<%s>(c.f%u, s);\n", emit_boundary(e->mode), i);
}

static void bend_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->steps.fields[i].edge[1];
    if (e->reach)
        strb_addf(&m->body, "    ar_row_bend<%s>(front, back, a.f%u, b.f%u, c.f%u);\n",
                  emit_boundary(e->mode), i, i, i);
}

static void stage_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_stage_row(shared.s%u, c.f%u);\n", i, i);
}

/* In two dimensions, of which each lane keeps where its part of a row is. */
static void begin_line(struct emitter *m, uint32_t i)
{
    uint32_t input = m->f->steps.fields[i].input;
    strb_addf(&m->body, "    w.f%u.from = p.in%u + from * ", i, input);
    emit_stride(m, input, 0);
    strb_addf(&m->body, " + s.in;\n    w.f%u.to = p.out%u + to * ", i, i);
    emit_stride(m, input, 0);
    strb_add(&m->body, " + s.out;\n");
}

static void fetch_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_bring_pieces(shared.q%u[slot], w.f%u.from, s);\n", i, i);
}

static void forward_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    w.f%u.from += rows * ", i);
    emit_stride(m, m->f->steps.fields[i].input, 0);
    strb_add(&m->body, ";\n");
}

static void store_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_put_pieces(w.f%u.to, shared.s%u, s, whole);\n    w.f%u.to += ", i,
              i, i);
    emit_stride(m, m->f->steps.fields[i].input, 0);
    strb_add(&m->body, ";\n");
}

static void put_line(struct emitter *m, uint32_t i)
{
    char base[32];
    snprintf(base, sizeof base, "p.out%u", i);
    strb_add(&m->body, "    ar_put_row(");
    emit_line(m, base, i);
    strb_addf(&m->body, ", shared.s%u, s);\n", i);
}

static void emit_structs(struct emitter *m)
{
    struct strb *b = &m->body;
    strb_add(b, "struct ar_levels {\n");
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++)
        strb_addf(b, "    ar_row<%s> f%u;\n", field_type(m, i), i);
    strb_add(b, "};\n");
    if (m->f->rank == 2) {
        strb_add(b, "struct ar_paths {\n");
        for (uint32_t i = 0; i < m->f->steps.n_fields; i++)
            strb_addf(b, "    ar_path<%s> f%u;\n", field_type(m, i), i);
        strb_add(b, "};\n");
    }
    strb_add(b, "struct ar_shared {\n");
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++)
        strb_addf(b, "    alignas(16) %s q%u[AR_AHEAD][AR_WIDTH], s%u[AR_WIDTH];\n",
                  field_type(m, i), i, i);
    strb_add(b, "};\n");
}

static void emit_outputs(struct emitter *m)
{
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++) {
        const struct ir_output *o = &m->k->outputs[m->f->steps.fields[i].output];
        char type[32];
        snprintf(type, sizeof type, "%s *", emit_type(o->dtype));
        emit_address(m, o->slot, o->view.offset * (int64_t)dtype_size(o->dtype), type, "out%u", i);
    }
}

/* The functions that move data between memory and registers. */
static void emit_ways(struct emitter *m)
{
    static const char *const heads[][2] = {
        {"ar_bring(const ar_params &p, const ar_span &s, ar_shared &shared, int slot, ar_index n)",
         "ar_put(const ar_params &p, const ar_span &s, const ar_shared &shared, ar_index n)"},
        {"ar_bring(const ar_window &s, ar_shared &shared, int slot, const ar_paths &w)",
         "ar_put(const ar_params &p, const ar_window &s, const ar_shared &shared, bool whole, "
         "ar_paths &w)"},
    };
    const char *const *head = heads[m->f->rank - 1];
    bool rows = m->f->rank == 2;
    emit_each(m, head[0], rows ? fetch_line : bring_line);
    emit_each(m, "ar_take(const ar_shared &shared, int slot, ar_levels &c)", take_line);
    emit_each(m, head[1], rows ? store_line : put_line);
    if (rows) {
        emit_each(m,
                  "ar_begin(const ar_params &p, const ar_window &s, ar_index from, ar_index to, "
                  "ar_paths &w)",
                  begin_line);
        emit_each(m, "ar_forward(const ar_params &p, ar_index rows, ar_paths &w)", forward_line);
    }
    emit_each(m, "ar_bend(bool front, bool back, ar_levels &a, const ar_levels &b, ar_levels &c)",
              bend_line);
    emit_each(m, "ar_sides(const ar_span &s, ar_levels &c)", sides_line);
    emit_each(m, "ar_stage(ar_shared &shared, const ar_levels &c)", stage_line);
}

void emit_steps(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    emit_i64(m, f->shape[f->rank - 1], "nx");
    emit_i64(m, f->rank > 1 ? f->shape[f->rank - 2] : 1, "ny");
    emit_i64(m, f->steps.part, "part");
    strb_addf(b,
              "#define AR_T %d\n#define AR_LANES %d\n#define AR_R %d\n#define AR_PIECE %d\n"
              "#define AR_HALO %d\n#define AR_AHEAD %d\n#define AR_BLOCKS %d\n"
              "#define AR_WRAP_SLOW %d /* the slowest axis wraps */\n#define AR_WRAP_Y %d\n"
              "#define AR_WRAP_X %d\n#define AR_ONCE %d\n"
              "#include \"compute/kernels/steps/steps.cuh\"\n",
              f->steps.n, f->lanes, f->rows, f->steps.piece, f->steps.halo, f->steps.ahead,
              f->steps.at_once, f->steps.wraps[3 - f->rank], f->steps.wraps[1], f->steps.wraps[2],
              f->shape[f->rank - 1] >= (int64_t)f->lanes * f->elements);
    emit_structs(m);
    emit_outputs(m);
    emit_ways(m);
    emit_step(m);
    strb_addf(b, "#include \"compute/kernels/steps/steps%dd.cuh\"\n", f->rank);
}
