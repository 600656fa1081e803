/* The text is made in one pass, top down; parameters are declared and given their values where the
 * text first needs them. */
#include "compute/gpu/text/emit_forms.h"

#include <stdio.h>

/* --- common to all forms --- */

static void emit_inputs(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    const struct form *f = m->f;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const struct ir_input *in = &k->inputs[i];
        char type[32];
        int rank = f->general ? in->view.rank : f->rank;
        snprintf(type, sizeof type, "const %s *", emit_type(in->dtype));
        emit_address(m, in->slot, in->view.offset * (int64_t)dtype_size(in->dtype), type, "in%u",
                     i);
        if (in->gathered)
            emit_i64(m, in->view.shape[0] - 1, "g%u", i);
        for (int a = 0; a < rank; a++)
            if (emit_is_argument(f, f->strides[i][a]))
                emit_i64(m, f->strides[i][a], "s%u_%d", i, a);
    }
}

/* The length in the text is a power of two: tables of similar length share one text. */
static void emit_table(struct emitter *m, const struct number_table *t, uint32_t number)
{
    int64_t n = 4;
    while (n < t->n)
        n *= 2;
    emit_i64(m, t->n - 1, "last%u", number);
    strb_addf(&m->fields, "    alignas(8) ar_i64 table%u[%lld];\n", number, (long long)n);
    for (int64_t i = 0; i < n; i++)
        emit_bytes(m, &t->v[i < t->n ? i : t->n - 1], sizeof *t->v);
}

static void emit_constants(struct emitter *m)
{
    const struct ir_kernel *k = m->k;
    for (uint32_t i = 0; i < k->n_scalars; i++)
        emit_scalar(m, &k->scalars[i], "c%u", i);
    for (uint32_t i = 0; i < k->n_indices; i++) {
        emit_i64(m, k->indices[i].start, "x%u", i);
        emit_i64(m, k->indices[i].step, "y%u", i);
    }
    for (uint32_t i = 0; i < k->n_tables; i++)
        emit_table(m, k->tables[i], i);
}

/* --- forms --- */

static void emit_rows(struct emitter *m)
{
    const struct form *f = m->f;
    emit_i64(m, f->chunks, "chunks");
    if (f->tail) {
        strb_add(&m->body, "#define AR_TAIL 1\n");
        emit_i64(m, f->tail, "tail");
    }
    emit_divisors(m);
    emit_operands(m);
    emit_fetch(m);
    emit_point(m);
    emit_put(m);
    strb_add(&m->body, "#include \"compute/kernels/forms/elementwise.cuh\"\n");
}

/* The operands that run across: their loads along y, and their offsets in shared memory. */
static void emit_turned(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body, tiles = {0}, stores = {0};
    strb_add(b, "struct ar_turning {\n");
    for (uint32_t i = 0; i < f->n_loads; i++) {
        if (f->loads[i].kind != LOAD_TURNED)
            continue;
        const char *type = emit_type(m->k->inputs[f->loads[i].input].dtype);
        strb_addf(b, "    ar_vec<%s, AR_E> l%u;\n", type, i);
        strb_addf(&tiles, "    %s l%u[AR_TILE][AR_TILE + 1];\n", type, i);
        strb_addf(&stores,
                  "#pragma unroll\n    for (int e = 0; e < AR_E; e++)\n"
                  "        shared.l%u[x][y + e] = v.l%u.v[e];\n",
                  i, i);
    }
    strb_addf(b, "};\nstruct ar_turned {\n%s};\n", tiles.data ? tiles.data : "");
    strb_add(b, "AR_FN void ar_turn(const ar_params &p, const ar_at &at, ar_turning &v)\n{\n");
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const struct form_load *l = &f->loads[i];
        if (l->kind != LOAD_TURNED)
            continue;
        strb_addf(b, "    v.l%u = ar_load<%s, AR_E>(p.in%u + ", i,
                  emit_type(m->k->inputs[l->input].dtype), l->input);
        emit_offset(m, l->input, 0, "at.i");
        strb_add(b, ");\n");
    }
    strb_addf(b,
              "}\nAR_FN void ar_fill(const ar_turning &v, ar_turned &shared, int y, int x)\n"
              "{\n%s}\n",
              stores.data ? stores.data : "");
    m->oom |= tiles.failed | stores.failed;
    strb_free(&tiles);
    strb_free(&stores);
}

static void emit_tile(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    int x = f->rank - 1, y = f->tile.axis;
    strb_addf(b, "#define AR_TILE %d\n#define AR_Y %d\n#define AR_PAIRED %d\n", f->tile.extent, y,
              f->tile.paired);
    emit_i64(m, f->shape[x], "nx");
    emit_i64(m, f->shape[y], "ny");
    emit_divisor(m, (f->shape[x] + f->tile.extent - 1) / f->tile.extent, "ar_div tiles_x");
    emit_divisor(m, (f->shape[y] + f->tile.extent - 1) / f->tile.extent, "ar_div tiles_y");
    emit_divisors(m);
    emit_turned(m);
    emit_operands(m);
    emit_fetch(m);
    strb_add(
        b, "AR_FN void ar_take(const ar_turned &shared, int y, int x, ar_operands<AR_E> &o)\n{\n");
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (f->loads[i].kind == LOAD_TURNED)
            strb_addf(b,
                      "#pragma unroll\n    for (int e = 0; e < AR_E; e++)\n"
                      "        o.l%u.v[e] = shared.l%u[x + e][y];\n",
                      i, i);
    strb_add(b, "}\n");
    emit_point(m);
    emit_put(m);
    strb_add(b, "#include \"compute/kernels/forms/tile.cuh\"\n");
}

/* Whether a row of the tile is read, and whether beyond the thread's own elements. */
static void emit_need(struct emitter *m, uint32_t near)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_addf(b, "struct ar_need%u {\n", near);
    for (int edge = 0; edge < 2; edge++) {
        strb_addf(b, "    AR_FN constexpr bool %s(int t, int q)\n    {\n        return false",
                  edge ? "edge" : "row");
        for (uint32_t i = 0; i < f->n_loads; i++) {
            const struct form_load *l = &f->loads[i];
            if (l->kind != LOAD_NEAR || l->near != near || (edge && !l->step[2]))
                continue;
            strb_addf(b, " || ar_within(t - (%d), q - (%d))", l->step[0], l->step[1]);
        }
        strb_add(b, ";\n    }\n");
    }
    strb_add(b, "};\n");
}

static void emit_near_fetch(struct emitter *m, uint32_t near)
{
    const struct form *f = m->f;
    const struct form_near *r = &f->stencil.nears[near];
    struct strb *b = &m->body;
    strb_addf(b, "    ar_near_load<%s, ar_need%u>(o.n%u, p.in%u", emit_boundary(r->mode), near,
              near, r->input);
    for (int a = 0; a < f->stencil.batch; a++)
        if (f->strides[r->input][a]) {
            strb_addf(b, " + at.i[%d] * ", a);
            emit_stride(m, r->input, a);
        }
    strb_add(b, ", ");
    emit_stride(m, r->input, f->rank - 3);
    strb_add(b, ", ");
    emit_stride(m, r->input, f->rank - 2);
    strb_add(b, ", (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);\n");
}

static void emit_stencil(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    int64_t nz = f->rank > 2 ? f->shape[f->rank - 3] : 1;
    strb_addf(b,
              "#define AR_P %d\n#define AR_R %d\n#define AR_BATCH %d\n"
              "AR_FN constexpr bool ar_within(int t, int q)\n"
              "{\n    return t >= 0 && t < AR_P && q >= 0 && q < AR_R;\n}\n",
              f->planes, f->rows, f->stencil.batch);
    emit_i64(m, nz, "nz");
    emit_i64(m, f->rank > 1 ? f->shape[f->rank - 2] : 1, "ny");
    emit_i64(m, f->shape[f->rank - 1], "nx");
    emit_divisor(m, (nz + f->planes - 1) / f->planes, "ar_div tiles_z");
    emit_divisors(m);
    strb_add(b, "#include \"compute/kernels/forms/near.cuh\"\nstruct ar_operands {\n");
    for (uint32_t i = 0; i < f->stencil.n_nears; i++)
        strb_addf(b, "    ar_near<%s, %d, %d, %d> n%u;\n",
                  emit_type(m->k->inputs[f->stencil.nears[i].input].dtype),
                  f->stencil.nears[i].reach[0], f->stencil.nears[i].reach[1],
                  f->stencil.nears[i].reach[2], i);
    strb_add(b, "};\n");
    for (uint32_t i = 0; i < f->stencil.n_nears; i++)
        emit_need(m, i);
    strb_add(b, "AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z, ar_index y, "
                "ar_index x, ar_operands &o)\n{\n");
    for (uint32_t i = 0; i < f->stencil.n_nears; i++)
        emit_near_fetch(m, i);
    /* the compiler heeds it where the block's number is not the hardware's */
    const bool shared = form_along(f) >= 0;
    strb_add(b, shared ? "    __threadfence_block();\n" : "    __syncwarp();\n");
    for (uint32_t i = 0; i < f->stencil.n_nears; i++)
        if (f->stencil.nears[i].reach[2])
            strb_addf(b, "    ar_near_exchange<ar_need%u>(o.n%u, (ar_index)p.nx, x);\n", i, i);
    strb_add(b, "}\n");
    emit_place(m);
    emit_point(m);
    emit_put(m);
    strb_add(b, "#include \"compute/kernels/forms/stencil.cuh\"\n");
}

static bool assemble(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb text = {0};
    m->out->indirect = m->values.len > EMIT_PARAMS_MAX;
    strb_addf(&text,
              "#include \"compute/kernels/scalar/scalar.h\"\ntypedef %s ar_index;\n"
              "#define AR_RANK %d\n#define AR_FAST %d\n#define AR_BLOCK %d\n#define AR_E %d\n"
              "#define AR_UNROLL %d\n#define AR_STEP %d\n#define AR_ALONG %d\n%s"
              "#include \"compute/kernels/forms/common.cuh\"\n%s%sstruct ar_params {\n",
              f->wide ? "long" : "int", f->rank, f->rank - 1, f->threads, f->elements,
              f->kind == FORM_REDUCE && f->any ? 1 : f->unroll, f->step, form_along(f),
              m->out->indirect ? "#define AR_INDIRECT 1\n" : "",
              m->halves ? "#include \"compute/kernels/forms/half.cuh\"\n" : "",
              m->types.data ? m->types.data : "");
    if (!m->fields.failed && !m->body.failed) {
        strb_addn(&text, m->fields.data, m->fields.len);
        strb_add(&text, "};\n");
        strb_addn(&text, m->body.data, m->body.len);
    }
    bool failed = m->oom || text.failed || m->types.failed || m->fields.failed || m->body.failed ||
                  m->values.failed;
    if (!failed) {
        m->out->text = arena_strndup(m->arena, text.data, text.len);
        m->out->params = arena_dup(m->arena, m->values.data, m->values.len);
        m->out->params_size = (uint32_t)m->values.len;
        failed = !m->out->text || !m->out->params;
    }
    strb_free(&text);
    return !failed;
}

struct emitted *emit_within(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                            int64_t shared, int members)
{
    const struct form *f = form_within(arena, k, slot_alignment, shared, members);
    return f ? emit_in_form(arena, k, f) : NULL;
}

struct emitted *emit_in_form(struct arena *arena, const struct ir_kernel *k, const struct form *f)
{
    struct emitter m = {.arena = arena, .k = k, .f = f};
    m.out = arena_alloc(arena, sizeof *m.out);
    if (!m.out)
        return NULL;
    m.out->form = m.f;
    emit_i64(&m, 0, "from");
    emit_inputs(&m);
    emit_constants(&m);
    if (m.f->kind != FORM_STEPS && m.f->kind != FORM_WINDOW)
        emit_contexts(&m);
    switch (m.f->kind) {
    case FORM_FLAT:
    case FORM_ROWS:
        emit_rows(&m);
        break;
    case FORM_TILE:
        emit_tile(&m);
        break;
    case FORM_STENCIL:
        emit_stencil(&m);
        break;
    case FORM_WINDOW:
        emit_window(&m);
        break;
    case FORM_STEPS:
        (m.f->rank == 3 ? emit_steps3d : emit_steps)(&m);
        break;
    case FORM_REDUCE:
        emit_reduce(&m);
        break;
    case FORM_SCAN:
    case FORM_SCAN_ROWS:
        emit_scan(&m);
        break;
    case FORM_FOLD:
        emit_fold(&m);
        break;
    }
    bool ok = assemble(&m);
    strb_free(&m.types);
    strb_free(&m.fields);
    strb_free(&m.body);
    strb_free(&m.values);
    return ok ? m.out : NULL;
}
