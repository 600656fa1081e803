/* The text of the form steps (kernels/forms/steps2d.cuh, steps3d.cuh). A thread's share of every
 * field at one level is an `ar_levels`. A step's body is the kernel's own; it reads its neighbours
 * along the slowest axis from three of these, and in two dimensions those within a row too. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

static bool is_deep(const struct emitter *m)
{
    return m->f->rank == 3;
}

static const char *field_type(const struct emitter *m, uint32_t field)
{
    return emit_type(m->k->inputs[m->f->steps.fields[field].input].dtype);
}

/* Whether the body uses its position, beyond whether that is at an edge. */
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

/* Whether a context's shift stays inside: known from the thread's position, except along the
 * slowest axis. */
static void emit_insides(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    struct strb *b = &m->body;
    const char *x = is_deep(m) ? "s.x" : "s";
    for (uint32_t c = 1; c < k->n_ctxs; c++) {
        bool used = false;
        for (uint32_t i = 0; i < k->n_nodes; i++)
            used |= k->nodes[i].kind == IR_INSIDE && k->nodes[i].ctx == c;
        for (uint32_t i = 0; i < m->f->n_loads; i++)
            used |= m->f->loads[i].self && m->f->loads[i].ctx == c;
        if (!used)
            continue;
        const int64_t *o = k->ctxs[c].offset, fast = o[k->rank - 1];
        strb_addf(b, "        const bool inside%u = true", c);
        if (k->rank > 1 && o[0])
            strb_add(b, o[0] < 0 ? " && !front" : " && !back");
        if (is_deep(m) && o[1])
            strb_add(b,
                     o[1] < 0 ? " && !(r == 0 && s.y.first)" : " && !(r == AR_R - 1 && s.y.last)");
        if (fast)
            strb_addf(b, fast < 0 ? " && !(e == 0 && %s.first)" : " && !(e == AR_E - 1 && %s.last)",
                      x);
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

/* In three dimensions: the rows beside the patch and, in the loop over its rows, beside each. */
static void emit_beside(struct emitter *m)
{
    struct strb *b = &m->body;
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++) {
        const struct form_edge *e = &m->f->steps.fields[i].edge[1];
        if (e->reach)
            strb_addf(b,
                      "    ar_vec<%s, AR_E> up%u, down%u;\n"
                      "    ar_beside<%s>(shared.e%u[side][level], b.f%u, s, up%u, down%u);\n",
                      field_type(m, i), i, i, emit_boundary(e->mode), i, i, i, i);
    }
    strb_add(b, "#pragma unroll\n    for (int r = 0; r < AR_R; r++) {\n");
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++) {
        const struct form_edge *e = m->f->steps.fields[i].edge;
        const char *type = field_type(m, i);
        if (e[1].reach)
            strb_addf(b,
                      "    const ar_vec<%s, AR_E> u%u = r > 0 ? b.f%u.v[r > 0 ? r - 1 : 0] : up%u, "
                      "d%u = r + 1 < AR_R ? b.f%u.v[r + 1 < AR_R ? r + 1 : r] : down%u;\n",
                      type, i, i, i, i, i, i);
        if (e[2].reach)
            strb_addf(b, "    const ar_row<%s> m%u = ar_row_of<%s>(b.f%u.v[r], s.x);\n", type, i,
                      emit_boundary(e[2].mode), i);
    }
}

static void emit_step(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    const struct form *f = m->f;
    struct strb *b = &m->body;
    bool place = wants_place(m), deep = is_deep(m);
    strb_addf(b,
              "template <bool EDGE>\nAR_FN void ar_step(const ar_params &p, %s, ar_index n, const "
              "ar_levels &a, const ar_levels &b, const ar_levels &c, ar_levels &to)\n{\n"
              "    const bool front = EDGE && !AR_WRAP_SLOW && n == 0;\n"
              "    const bool back = EDGE && !AR_WRAP_SLOW && n == (ar_index)p.%s - 1;\n"
              "    (void)n;\n    (void)front;\n    (void)back;\n",
              deep ? "const ar_place &s, const ar_shared &shared, int side, int level"
                   : "const ar_span &s",
              deep ? "nz" : "ny");
    if (place)
        strb_addf(
            b,
            "    ar_index i[AR_RANK];\n    i[0] = ar_bounded<AR_WRAP_SLOW ? AR_WRAP : AR_CLAMP>(n, "
            "(ar_index)p.%s);\n",
            deep ? "nz" : "ny");
    if (deep)
        emit_beside(m);
    if (deep && place)
        strb_add(b, "    i[1] = ar_inner<AR_R, AR_WRAP_Y>(s.y, r);\n");
    if (place) /* anew for each row: the loop over a row's elements ends at the last */
        strb_addf(b, "    i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(%s, 0);\n", deep ? "s.x" : "s");
    emit_vectors(m);
    strb_add(b, "#pragma unroll\n    for (int e = 0; e < AR_E; e++) {\n");
    if (place)
        strb_addf(b, "        i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(%s, e);\n",
                  deep ? "s.x" : "s");
    emit_insides(m);
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last = k->outputs[i].node > last ? k->outputs[i].node : last;
    emit_nodes(m, last);
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b,
                  deep ? "        to.f%u.v[r].v[e] = v%u;\n" : "        to.f%u.v[e + 1] = v%u;\n",
                  i, k->outputs[f->steps.fields[i].output].node);
    strb_add(b, deep ? "    }\n    }\n}\n" : "    }\n}\n");
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

/* The expression for index `n` along the slowest axis of field i's array at `base`, with the next
 * axis' stride. */
static void emit_line(struct emitter *m, const char *base, uint32_t i)
{
    uint32_t input = m->f->steps.fields[i].input; /* whose strides are the output's */
    strb_add(&m->body, base);
    if (m->f->rank > 1) {
        strb_add(&m->body, " + n * ");
        emit_stride(m, input, 0);
    }
    if (is_deep(m)) {
        strb_add(&m->body, ", ");
        emit_stride(m, input, 1);
    }
}

static void bring_line(struct emitter *m, uint32_t i)
{
    char base[32];
    snprintf(base, sizeof base, "p.in%u", m->f->steps.fields[i].input);
    strb_addf(&m->body,
              is_deep(m) ? "    ar_bring_patch(shared.q%u[slot], "
                         : "    ar_bring_row(shared.q%u[slot], ",
              i);
    emit_line(m, base, i);
    strb_add(&m->body, ", s);\n");
}

static void take_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body,
              is_deep(m) ? "    ar_take_patch(c.f%u, shared.q%u[slot]);\n"
                         : "    ar_take_row(c.f%u, shared.q%u[slot]);\n",
              i, i);
}

static void sides_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->steps.fields[i].edge[2];
    if (e->reach)
        strb_addf(&m->body, "    ar_row_sides<%s>(c.f%u, s);\n", emit_boundary(e->mode), i);
}

static void leave_line(struct emitter *m, uint32_t i)
{
    if (m->f->steps.fields[i].edge[1].reach)
        strb_addf(&m->body, "    ar_leave_patch(shared.e%u[side][level], c.f%u, s);\n", i, i);
}

static void bend_line(struct emitter *m, uint32_t i)
{
    const struct form_edge *e = &m->f->steps.fields[i].edge[is_deep(m) ? 0 : 1];
    if (e->reach)
        strb_addf(&m->body,
                  is_deep(m) ? "    ar_patch_bend<%s>(front, back, a.f%u, b.f%u, c.f%u);\n"
                             : "    ar_row_bend<%s>(front, back, a.f%u, b.f%u, c.f%u);\n",
                  emit_boundary(e->mode), i, i, i);
}

static void stage_line(struct emitter *m, uint32_t i)
{
    strb_addf(&m->body, "    ar_stage_row(shared.s%u, c.f%u);\n", i, i);
}

static void put_line(struct emitter *m, uint32_t i)
{
    char base[32];
    snprintf(base, sizeof base, "p.out%u", i);
    strb_add(&m->body, is_deep(m) ? "    ar_put_patch(" : "    ar_put_row(");
    emit_line(m, base, i);
    strb_addf(&m->body, is_deep(m) ? ", shared.q%u[slot], c.f%u, s);\n" : ", shared.s%u, s);\n", i,
              i);
}

static void emit_structs(struct emitter *m)
{
    struct strb *b = &m->body;
    strb_add(b, "struct ar_levels {\n");
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++)
        strb_addf(b, is_deep(m) ? "    ar_patch<%s> f%u;\n" : "    ar_row<%s> f%u;\n",
                  field_type(m, i), i);
    strb_add(b, "};\nstruct ar_shared {\n");
    if (is_deep(m))
        strb_add(b, "    alignas(16) ar_barrier barrier;\n");
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++) {
        const char *type = field_type(m, i);
        if (!is_deep(m)) {
            strb_addf(b, "    alignas(16) %s q%u[AR_AHEAD][AR_WIDTH], s%u[AR_WIDTH];\n", type, i,
                      i);
            continue;
        }
        strb_addf(b, "    alignas(16) ar_plane<%s> q%u[AR_AHEAD];\n", type, i);
        if (m->f->steps.fields[i].edge[1].reach)
            strb_addf(b, "    alignas(16) ar_seams<%s> e%u[2][AR_T];\n", type, i);
    }
    strb_add(b, "};\n");
    if (is_deep(m))
        strb_addf(b, "static_assert(sizeof(ar_shared) <= %lld, \"of its launch\");\n",
                  (long long)m->f->shared);
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
    static const char *const flat[] = {
        "ar_bring(const ar_params &p, const ar_span &s, ar_shared &shared, int slot, ar_index n)",
        "ar_take(const ar_shared &shared, int slot, ar_levels &c)",
        "ar_put(const ar_params &p, const ar_span &s, const ar_shared &shared, ar_index n)",
    };
    static const char *const deep[] = {
        "ar_bring(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, ar_index n)",
        "ar_take(const ar_shared &shared, int slot, ar_levels &c)",
        "ar_put(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, ar_index n, "
        "const ar_levels &c)",
    };
    const char *const *heads = is_deep(m) ? deep : flat;
    emit_each(m, heads[0], bring_line);
    emit_each(m, heads[1], take_line);
    emit_each(m, heads[2], put_line);
    emit_each(m, "ar_bend(bool front, bool back, ar_levels &a, const ar_levels &b, ar_levels &c)",
              bend_line);
    if (is_deep(m)) {
        emit_each(m,
                  "ar_leave(const ar_place &s, ar_shared &shared, int side, int level, const "
                  "ar_levels &c)",
                  leave_line);
        return;
    }
    emit_each(m, "ar_sides(const ar_span &s, ar_levels &c)", sides_line);
    emit_each(m, "ar_stage(ar_shared &shared, const ar_levels &c)", stage_line);
}

/* Whether an axis is as wide as a block's part of it. */
static bool wraps_once(const struct emitter *m)
{
    const struct form *f = m->f;
    return f->shape[f->rank - 1] >= (int64_t)f->lanes * f->elements &&
           (!is_deep(m) || f->shape[1] >= (int64_t)f->threads / f->lanes * f->rows);
}

void emit_steps(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    emit_i64(m, f->shape[f->rank - 1], "nx");
    emit_i64(m, f->rank > 1 ? f->shape[f->rank - 2] : 1, "ny");
    if (is_deep(m))
        emit_i64(m, f->shape[0], "nz");
    emit_i64(m, f->steps.part, "part");
    strb_addf(b,
              "#define AR_T %d\n#define AR_LANES %d\n#define AR_R %d\n#define AR_PIECE %d\n"
              "#define AR_HALO %d\n#define AR_AHEAD %d\n#define AR_BLOCKS %d\n"
              "#define AR_WRAP_SLOW %d /* the slowest axis wraps */\n#define AR_WRAP_Y %d\n"
              "#define AR_WRAP_X %d\n#define AR_ONCE %d\n#include "
              "\"compute/kernels/forms/steps.cuh\"\n%s",
              f->steps.n, f->lanes, f->rows, f->steps.piece, f->steps.halo, f->steps.ahead,
              f->steps.at_once, f->steps.wraps[3 - f->rank], f->steps.wraps[1], f->steps.wraps[2],
              wraps_once(m), is_deep(m) ? "#include \"compute/kernels/forms/patch.cuh\"\n" : "");
    emit_structs(m);
    emit_outputs(m);
    emit_ways(m);
    emit_step(m);
    strb_addf(b, "#include \"compute/kernels/forms/steps%dd.cuh\"\n", f->rank);
}
