/* The text of the form steps in three dimensions (kernels/steps/steps3d.cuh). A step's body is the
 * kernel's own; it reads a row of each field and what is around it from an `ar_around`. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

/* How often a paced block asks. Where several GPUs share the blocks, a part's first planes are
 * another's, and come one block after the other. */
#define PATIENCE          16
#define PATIENCE_OF_PARTS 64

static const char *field_type(const struct emitter *m, uint32_t field)
{
    return emit_type(m->k->inputs[m->f->steps.fields[field].input].dtype);
}

static int reach_of(const struct emitter *m, uint32_t field, int place)
{
    return m->f->steps.fields[field].edge[place].reach;
}

/* Which of the queue's two lengths a field has. */
static const char *queue_of(const struct emitter *m, uint32_t field)
{
    return reach_of(m, field, 0) ? "slot" : "brief";
}

static const char *mode_of(const struct emitter *m, uint32_t field, int place)
{
    const struct form_edge *e = &m->f->steps.fields[field].edge[place];
    return emit_boundary(e->reach ? e->mode : BOUNDARY_CLAMP);
}

static void emit_inside(struct emitter *m, uint32_t c)
{
    struct strb *b = &m->body;
    int64_t o[3];
    for (int a = 0; a < 3; a++) {
        o[a] = m->k->ctxs[c].offset[a];
        o[a] = form_steps_is_far(m->f, &m->k->ctxs[c], a) ? 0 : o[a];
    }
    strb_addf(b, "        const bool inside%u = true", c);
    if (o[0] < 0)
        strb_addf(b, " && !(EDGE && n < %d)", (int)-o[0]);
    else if (o[0] > 0)
        strb_addf(b, " && !(EDGE && n >= (ar_index)p.nz - %d)", (int)o[0]);
    if (o[1] < 0)
        strb_addf(b, " && !(ROW < %d && s.y.first)", (int)-o[1]);
    else if (o[1] > 0)
        strb_addf(b, " && !(ROW >= AR_R - %d && s.y.last)", (int)o[1]);
    if (o[2] < 0)
        strb_addf(b, " && !(e < %d && s.x.first)", (int)-o[2]);
    else if (o[2] > 0)
        strb_addf(b, " && !(e >= AR_E - %d && s.x.last)", (int)o[2]);
    if (emit_steps_any_far(m, c))
        strb_addf(b, " && (far%u >> e & 1)", c);
    strb_add(b, ";\n");
}

/* Whether a context's shift stays inside. */
static void emit_insides(struct emitter *m)
{
    for (uint32_t c = 1; c < m->k->n_ctxs; c++)
        if (emit_steps_asks(m, c))
            emit_inside(m, c);
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

/* What is around a row of each field; then the field's new row takes the place of its oldest. */
static void emit_looks(struct emitter *m)
{
    struct strb *b = &m->body;
    for (uint32_t i = 0; i < m->f->steps.n_fields; i++) {
        const char *type = field_type(m, i);
        int z = reach_of(m, i, 0), y = reach_of(m, i, 1), x = reach_of(m, i, 2);
        char read[48], write[64];
        if (y) {
            snprintf(read, sizeof read, "&shared.e%u[m.read][seam]", i);
            snprintf(write, sizeof write, "LEVEL > 0 ? &shared.e%u[m.write][seam] : 0", i);
        } else {
            snprintf(read, sizeof read, "(const ar_seams<%s> *)0", type);
            snprintf(write, sizeof write, "(ar_seams<%s> *)0", type);
        }
        strb_addf(b,
                  "    ar_around<%s, %d, %d, %d> w%u;\n"
                  "    ar_look<LEVEL == 0, EDGE, PHASE, ROW, %s, %s, %s>(w%u, kept.f%u, x.f%u, "
                  "shared.q%u, m.%s, %s, s, n, (ar_index)p.nz);\n"
                  "    ar_keep<PHASE, ROW, %d>(kept.f%u, x.f%u, %s, s);\n",
                  type, z, y, x, i, mode_of(m, i, 0), mode_of(m, i, 1), mode_of(m, i, 2), i, i, i,
                  i, queue_of(m, i), read, y, i, i, write);
    }
}

static void emit_step(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    const struct form *f = m->f;
    struct strb *b = &m->body;
    static const char *const at[] = {
        "ar_bounded<AR_WRAP_SLOW ? AR_WRAP : AR_CLAMP>(n, (ar_index)p.nz)",
        "ar_inner<AR_R, AR_WRAP_Y>(s.y, ROW)", "ar_inner<AR_E, AR_WRAP_X>(s.x, e)"};
    bool place = emit_steps_place(m);
    strb_add(b, "template <bool EDGE, int PHASE, int ROW, int LEVEL>\n"
                "AR_FN void ar_step(const ar_params &p, const ar_place &s, ar_shared &shared, "
                "const ar_march &m, ar_index n, ar_kept &kept, ar_rows &x)\n{\n"
                "    constexpr int seam = LEVEL > 0 ? LEVEL - 1 : 0;\n    (void)seam;\n");
    emit_looks(m);
    if (place)
        strb_addf(b,
                  "    ar_index i[AR_RANK];\n    i[0] = %s;\n    i[1] = %s;\n"
                  "    i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(s.x, 0);\n",
                  at[0], at[1]);
    emit_steps_far(m, at);
    emit_vectors(m);
    strb_add(b, "#pragma unroll\n    for (int e = 0; e < AR_E; e++) {\n");
    if (place)
        strb_addf(b, "        i[AR_FAST] = %s;\n", at[2]);
    emit_insides(m);
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last = k->outputs[i].node > last ? k->outputs[i].node : last;
    emit_nodes(m, last);
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "        x.f%u.v[e] = v%u;\n", i, k->outputs[f->steps.fields[i].output].node);
    strb_add(b, "    }\n}\n");
}

/* A plane of field i's array at `base`, and its rows' distance. */
static void emit_plane(struct emitter *m, const char *base, uint32_t i)
{
    uint32_t input = m->f->steps.fields[i].input; /* whose strides are the output's */
    strb_addf(&m->body, "p.%s%u + n * ", base, base[0] == 'i' ? input : i);
    emit_stride(m, input, 0);
    strb_add(&m->body, ", ");
    emit_stride(m, input, 1);
}

static void emit_bring(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_add(b, "AR_FN void ar_bring(const ar_params &p, const ar_place &s, ar_shared &shared, int "
                "slot, int brief, ar_index n)\n{\n");
    if (f->steps.mapped) {
        strb_add(b, "#if AR_MAPPED\n    if (threadIdx.x == 0) {\n"
                    "        ar_expect(shared.barriers, slot, (int)(");
        for (uint32_t i = 0; i < f->steps.n_fields; i++)
            strb_addf(b, i ? " + sizeof *shared.q%u" : "sizeof *shared.q%u", i);
        strb_add(b, "));\n");
        for (uint32_t i = 0; i < f->steps.n_fields; i++)
            strb_addf(b,
                      "        ar_fetch(shared.q%u[%s], p.map%u, s, n, shared.barriers, slot);\n",
                      i, queue_of(m, i), i);
        strb_add(b, "    }\n#else\n");
    }
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        strb_addf(b, "    ar_bring_patch(shared.q%u[%s], ", i, queue_of(m, i));
        emit_plane(m, "in", i);
        strb_add(b, ", s);\n");
    }
    strb_add(b, f->steps.mapped ? "#endif\n}\n" : "}\n");
}

/* The functions that move data between memory, shared memory and registers. */
static void emit_ways(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    emit_bring(m);
    strb_add(b, "AR_FN void ar_take(const ar_shared &shared, const ar_march &m, const ar_place &s, "
                "int row, "
                "ar_rows &x)\n{\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "    x.f%u = ar_take_row3(shared.q%u[m.%s[0]], s, row);\n", i, i,
                  queue_of(m, i));
    strb_add(b, "}\nAR_FN void ar_put(const ar_params &p, const ar_place &s, ar_shared &shared, "
                "ar_index n, int row, int turn, bool kept, const ar_rows &x)\n{\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        strb_add(b, "    ar_put_patch(");
        emit_plane(m, "out", i);
        if (f->steps.piece < f->elements)
            strb_addf(b, ", &shared.s%u[turn]", i);
        else
            strb_addf(b, ", (ar_stage<%s> *)0", field_type(m, i));
        strb_addf(b, ", x.f%u, s, row, kept);\n", i);
    }
    strb_add(b, "    (void)turn;\n}\nAR_FN void ar_turn(ar_kept &kept)\n{\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "    ar_rotate(kept.f%u);\n", i);
    strb_add(b, "}\n");
}

static void emit_structs(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_add(b, "struct ar_rows {\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "    ar_vec<%s, AR_E> f%u;\n", field_type(m, i), i);
    strb_add(b, "};\nstruct ar_kept {\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        strb_addf(b, "    ar_patch<%s> f%u[%d];\n", field_type(m, i), i,
                  form_steps_kept(f, &f->steps.fields[i]));
    strb_add(b, "};\nstruct ar_shared {\n    ar_barriers barriers;\n");
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        strb_addf(b, "    alignas(128) ar_plane<%s> q%u[%s];\n", field_type(m, i), i,
                  reach_of(m, i, 0) ? "AR_SLOTS" : "AR_BRIEF");
        if (reach_of(m, i, 1))
            strb_addf(b, "    alignas(128) ar_seams<%s> e%u[AR_SIDES][AR_T - 1];\n",
                      field_type(m, i), i);
        if (f->steps.piece < f->elements)
            strb_addf(b, "    alignas(128) ar_stage<%s> s%u[2];\n", field_type(m, i), i);
    }
    strb_addf(b, "};\nstatic_assert(sizeof(ar_shared) <= %lld, \"of its launch\");\n",
              (long long)f->shared);
}

static void emit_maps(struct emitter *m)
{
    const struct form *f = m->f;
    const int box[2] = {f->lanes * f->elements, f->threads / f->lanes * f->rows};
    for (uint32_t i = 0; i < f->steps.n_fields && f->steps.mapped; i++)
        emit_map(m, f->steps.fields[i].input, box, "map%u", i);
}

void emit_steps3d(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    emit_i64(m, f->shape[2], "nx");
    emit_i64(m, f->shape[1], "ny");
    emit_i64(m, f->shape[0], "nz");
    emit_i64(m, f->steps.part, "part");
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct ir_output *o = &m->k->outputs[f->steps.fields[i].output];
        char type[32];
        snprintf(type, sizeof type, "%s *", emit_type(o->dtype));
        emit_address(m, o->slot, o->view.offset * (int64_t)dtype_size(o->dtype), type, "out%u", i);
    }
    emit_maps(m);
    if (f->steps.paced) {
        emit_address(m, EMIT_SCRATCH, 0, "ar_u32 *", "counts");
        m->out->scratch = m->out->zeroed = 128 * (int64_t)f->grid[2];
    }
    bool once = f->shape[2] >= (int64_t)f->lanes * f->elements &&
                f->shape[1] >= (int64_t)f->threads / f->lanes * f->rows;
    strb_addf(b,
              "#define AR_T %d\n#define AR_LANES %d\n#define AR_R %d\n#define AR_PIECE %d\n"
              "#define AR_HALO %d\n#define AR_AHEAD %d\n#define AR_BLOCKS %d\n#define AR_LAG %d\n"
              "#define AR_BACK %d\n#define AR_BESIDE %d\n#define AR_MAPS %d\n#define AR_PACED "
              "%d\n#define AR_PATIENCE %d\n"
              "#define AR_WRAP_SLOW %d /* the slowest axis wraps */\n#define AR_WRAP_Y %d\n"
              "#define AR_WRAP_X %d\n#define AR_ONCE %d /* no tile is wider than the domain */\n"
              "#include \"compute/kernels/steps/steps.cuh\"\n"
              "#include \"compute/kernels/steps/around.cuh\"\n",
              f->steps.n, f->lanes, f->rows, f->steps.piece, f->steps.halo, f->steps.ahead,
              f->steps.at_once, f->steps.lag, f->steps.back, f->steps.beside, f->steps.mapped,
              f->steps.paced, form_along(f) < 0 ? PATIENCE : PATIENCE_OF_PARTS, f->steps.wraps[0],
              f->steps.wraps[1], f->steps.wraps[2], once);
    emit_structs(m);
    emit_ways(m);
    emit_step(m);
    strb_add(b, "#include \"compute/kernels/steps/steps3d.cuh\"\n");
}
