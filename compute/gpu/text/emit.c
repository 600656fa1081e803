/* The text is made in one pass, top down; parameters are declared and given their values where the
 * text first needs them, each in a place of 8 bytes (16 for complex128), so that the struct is laid
 * out alike by every compiler. */
#include "compute/gpu/text/emit_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const types[DT_COUNT] = {
#define DTYPE(id, name, size, kind, ctype, npy) #ctype,
#include "compute/type/dtype.def"
#undef DTYPE
};
static const char *const ids[DT_COUNT] = {
#define DTYPE(id, name, size, kind, ctype, npy) #id,
#include "compute/type/dtype.def"
#undef DTYPE
};

const char *emit_type(enum dtype t)
{
    return types[t];
}

const char *emit_id(enum dtype t)
{
    return ids[t];
}

/* --- parameters --- */

static void declare(struct emitter *m, const char *type, const char *name, va_list ap)
{
    char text[64];
    vsnprintf(text, sizeof text, name, ap);
    strb_addf(&m->fields, "    alignas(8) %s %s;\n", type, text);
}

static void value(struct emitter *m, const void *p, size_t n)
{
    static const char zeros[16];
    strb_addn(&m->values, p, n);
    strb_addn(&m->values, zeros, (8 - n % 8) % 8);
}

void emit_i64(struct emitter *m, int64_t v, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    declare(m, "ar_i64", name, ap);
    va_end(ap);
    value(m, &v, sizeof v);
}

void emit_i64s(struct emitter *m, const int64_t *values, int n, const char *name)
{
    strb_addf(&m->fields, "    alignas(8) ar_i64 %s[%d];\n", name, n);
    for (int i = 0; i < n; i++)
        value(m, &values[i], sizeof *values);
}

void emit_scalar(struct emitter *m, const struct scalar *s, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    declare(m, emit_type(s->dtype), name, ap);
    va_end(ap);
    value(m, &s->v, dtype_size(s->dtype));
}

void emit_address(struct emitter *m, uint32_t slot, int64_t displacement, const char *type,
                  const char *name, ...)
{
    struct emitted *out = m->out;
    size_t cap = m->cap_addresses;
    va_list ap;
    va_start(ap, name);
    declare(m, type, name, ap);
    va_end(ap);
    if (arena_grow(m->arena, (void **)&out->addresses, &cap, out->n_addresses,
                   sizeof *out->addresses) < 0) {
        m->oom = true;
        return;
    }
    m->cap_addresses = (uint32_t)cap;
    out->addresses[out->n_addresses++] =
        (struct emit_address){(uint32_t)m->values.len, slot, displacement};
    value(m, &(int64_t){0}, 8);
}

/* ar_div of common.cuh: multiplier, shift, divisor. */
static void divisor(struct emitter *m, int64_t d, const char *type_and_name)
{
    struct {
        uint32_t multiplier, shift;
        int64_t divisor;
    } v = {.divisor = d};
    if (d > 1 && d < 1ll << 31) {
        int l = 64 - __builtin_clzll((uint64_t)(d - 1)); /* ceil(log2 d) */
        v.multiplier = (uint32_t)(((1ull << (31 + l)) + (uint64_t)d - 1) / (uint64_t)d);
        v.shift = (uint32_t)(l - 1);
    }
    if (type_and_name)
        strb_addf(&m->fields, "    alignas(8) %s;\n", type_and_name);
    strb_addn(&m->values, (const char *)&v, sizeof v);
}

/* div[k]: for taking a number apart into indices; a place for each axis. */
void emit_divisors(struct emitter *m)
{
    const struct form *f = m->f;
    char text[32];
    snprintf(text, sizeof text, "ar_div div[%d]", f->rank);
    for (int a = 0; a < f->rank; a++) {
        int64_t n = f->shape[a];
        if (a == f->rank - 1 && f->kind != FORM_TILE && f->kind != FORM_STENCIL)
            n /= f->elements;
        divisor(m, n ? n : 1, a ? NULL : text);
    }
}

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
            if (f->strides[i][a] != 0 && f->strides[i][a] != 1)
                emit_i64(m, f->strides[i][a], "s%u_%d", i, a);
    }
}

/* The length in the text is a power of two: tables of about one length have one text. */
static void emit_table(struct emitter *m, const struct number_table *t, uint32_t number)
{
    int64_t n = 4;
    while (n < t->n)
        n *= 2;
    emit_i64(m, t->n - 1, "last%u", number);
    strb_addf(&m->fields, "    alignas(8) ar_i64 table%u[%lld];\n", number, (long long)n);
    for (int64_t i = 0; i < n; i++)
        value(m, &t->v[i < t->n ? i : t->n - 1], sizeof *t->v);
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

/* A scan in stretches reads twice and wants in the cache what it will read again, nothing else. */
static bool streams(const struct emitter *m)
{
    return m->f->kind == FORM_SCAN && m->f->stretches > 1;
}

/* A chunk's results of one output to their place. `name`: of its parameters and variables, a number
 * where there are several; `element`: of the results' struct. */
static void emit_put_one(struct emitter *m, uint32_t output, const char *name, const char *element)
{
    const struct ir_output *out = &m->k->outputs[output];
    const struct form *f = m->f;
    const int64_t *strides = f->out_strides[output];
    struct strb *b = &m->body;
    char type[32];
    snprintf(type, sizeof type, "%s *", emit_type(out->dtype));
    emit_address(m, out->slot, out->view.offset * (int64_t)dtype_size(out->dtype), type, "out%s",
                 name);
    strb_addf(b, "    const ar_index to%s = 0", name);
    for (int a = 0; a < f->rank; a++) {
        int64_t s = strides[a];
        if (s == 0)
            continue;
        strb_addf(b, " + at.i[%d]", a);
        if (s != 1) {
            emit_i64(m, s, "t%s%d", name, a);
            strb_addf(b, " * (ar_index)p.t%s%d", name, a);
        }
    }
    strb_add(b, ";\n");
    int64_t fast = strides[f->rank - 1];
    if (f->out_vector && !*element) {
        strb_addf(b, "    %s<ar_result, E>(p.out + to, r);\n",
                  streams(m) ? "ar_leave" : "ar_store");
    } else if (f->out_vector) {
        strb_addf(b,
                  "    ar_vec<%s, E> r%s;\n#pragma unroll\n    for (int e = 0; e < E; e++)\n"
                  "        r%s.v[e] = r.v[e]%s;\n    ar_store<%s, E>(p.out%s + to%s, r%s);\n",
                  emit_type(out->dtype), name, name, element, emit_type(out->dtype), name, name,
                  name);
    } else {
        strb_addf(b, "#pragma unroll\n    for (int e = 0; e < E; e++)\n        %s%sp.out%s%sto%s",
                  f->step > 1 ? "if (e * AR_STEP >= least) " : "",
                  streams(m) ? "ar_leave<ar_result, 1>(" : "", name, streams(m) ? " + " : "[",
                  name);
        if (fast == 1)
            strb_add(b, " + e * AR_STEP");
        else if (fast != 0)
            strb_addf(b, " + e * AR_STEP * (ar_index)p.t%s%d", name, f->rank - 1);
        strb_addf(b, streams(m) ? ", {{r.v[e]%s}});\n" : "] = r.v[e]%s;\n", element);
    }
}

void emit_put(struct emitter *m)
{
    char name[16] = "", element[16] = "";
    strb_addf(&m->body,
              "template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const "
              "ar_vec<ar_result, E> &r%s)\n{\n",
              m->f->step > 1 ? ", ar_index least" : "");
    for (uint32_t i = 0; i < m->k->n_outputs; i++) {
        if (m->k->n_outputs > 1) {
            snprintf(name, sizeof name, "%u_", i);
            snprintf(element, sizeof element, ".v%u", i);
        }
        emit_put_one(m, i, name, element);
    }
    strb_add(&m->body, "}\n");
}

/* --- operands --- */

/* The element's offset: from the indices themselves, or from what a context makes of them. */
static void emit_where(struct emitter *m, const struct form_load *l, const char *index)
{
    emit_offset(m, l->input, l->ctx, l->ctx ? "q" : index);
}

static void emit_q(struct emitter *m, const struct form_load *l, const char *index)
{
    const struct ir_ctx *c = &m->k->ctxs[l->ctx];
    int rank = m->f->general ? c->rank : m->f->rank;
    if (l->ctx)
        strb_addf(&m->body, "    ar_index q[%d];\n    ar_ctx%u(p, %s, q);\n", rank ? rank : 1,
                  l->ctx, index);
}

static void emit_fetch_one(struct emitter *m, uint32_t n)
{
    const struct form_load *l = &m->f->loads[n];
    struct strb *b = &m->body;
    const char *type = emit_type(m->k->inputs[l->input].dtype);
    if (l->kind == LOAD_TURNED)
        return;
    strb_add(b, "    {\n");
    if (l->kind == LOAD_EACH) {
        strb_add(b, "#pragma unroll\n    for (int e = 0; e < E; e++) {\n"
                    "    ar_index i[AR_RANK];\n#pragma unroll\n"
                    "    for (int k = 0; k < AR_RANK; k++)\n        i[k] = at.i[k];\n"
                    "    i[AR_FAST] += e;\n");
        emit_q(m, l, "i");
        strb_addf(b, "    o.l%u.v[e] = p.in%u[", n, l->input);
        emit_where(m, l, "i");
        strb_add(b, "];\n    }\n");
    } else {
        emit_q(m, l, "at.i");
        if (l->kind == LOAD_VECTOR)
            strb_addf(b, "    o.l%u = ar_load<%s, E%s>(p.in%u + ", n, type,
                      streams(m) ? ", LAST" : "", l->input);
        else
            strb_addf(b, "    o.l%u = p.in%u[", n, l->input);
        emit_where(m, l, "at.i");
        strb_add(b, l->kind == LOAD_VECTOR ? ");\n" : "];\n");
    }
    strb_add(b, "    }\n");
}

void emit_operands(struct emitter *m)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    strb_add(b, "template <int E> struct ar_operands {\n");
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const struct form_load *l = &f->loads[i];
        const char *type = emit_type(m->k->inputs[l->input].dtype);
        bool many = l->kind != LOAD_ONCE;
        strb_addf(b, many ? "    ar_vec<%s, E> l%u;\n" : "    %s l%u;\n", type, i);
    }
    strb_add(b, "};\n");
}

void emit_fetch(struct emitter *m)
{
    struct strb *b = &m->body;
    strb_addf(b,
              "template <int E%s> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, "
              "ar_operands<E> &o)\n{\n",
              streams(m) ? ", bool LAST = false" : "");
    for (uint32_t i = 0; i < m->f->n_loads; i++)
        emit_fetch_one(m, i);
    strb_add(b, "}\n");
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

/* The operands that run across: their loads along y, and their places in shared memory. */
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
    int x = f->rank - 1, y = f->turned_axis;
    strb_addf(b, "#define AR_TILE %d\n#define AR_Y %d\n#define AR_PAIRED %d\n", f->tile, y,
              f->paired);
    emit_i64(m, f->shape[x], "nx");
    emit_i64(m, f->shape[y], "ny");
    divisor(m, (f->shape[x] + f->tile - 1) / f->tile, "ar_div tiles_x");
    divisor(m, (f->shape[y] + f->tile - 1) / f->tile, "ar_div tiles_y");
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

void emit_stride(struct emitter *m, uint32_t input, int axis)
{
    const int64_t s = axis < 0 ? 0 : m->f->strides[input][axis];
    if (s == 0 || s == 1)
        strb_addf(&m->body, "%d", (int)s);
    else
        strb_addf(&m->body, "(ar_index)p.s%u_%d", input, axis);
}

static void emit_near_fetch(struct emitter *m, uint32_t near)
{
    const struct form *f = m->f;
    const struct form_near *r = &f->nears[near];
    struct strb *b = &m->body;
    strb_addf(b, "    ar_near_load<%s, ar_need%u>(o.n%u, p.in%u", emit_boundary(r->mode), near,
              near, r->input);
    for (int a = 0; a < f->batch; a++)
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
              f->planes, f->rows, f->batch);
    emit_i64(m, nz, "nz");
    emit_i64(m, f->rank > 1 ? f->shape[f->rank - 2] : 1, "ny");
    emit_i64(m, f->shape[f->rank - 1], "nx");
    divisor(m, (nz + f->planes - 1) / f->planes, "ar_div tiles_z");
    emit_divisors(m);
    strb_add(b, "#include \"compute/kernels/forms/near.cuh\"\nstruct ar_operands {\n");
    for (uint32_t i = 0; i < f->n_nears; i++)
        strb_addf(b, "    ar_near<%s, %d, %d, %d> n%u;\n",
                  emit_type(m->k->inputs[f->nears[i].input].dtype), f->nears[i].reach[0],
                  f->nears[i].reach[1], f->nears[i].reach[2], i);
    strb_add(b, "};\n");
    for (uint32_t i = 0; i < f->n_nears; i++)
        emit_need(m, i);
    strb_add(b, "AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z, ar_index y, "
                "ar_index x, ar_operands &o)\n{\n");
    for (uint32_t i = 0; i < f->n_nears; i++)
        emit_near_fetch(m, i);
    strb_add(b, "    __syncwarp();\n");
    for (uint32_t i = 0; i < f->n_nears; i++)
        if (f->nears[i].reach[2])
            strb_addf(b, "    ar_near_exchange<ar_need%u>(o.n%u, (ar_index)p.nx, x);\n", i, i);
    strb_add(b, "}\nAR_FN void ar_place(ar_at &at, ar_index z, ar_index y, ar_index x)\n{\n");
    if (f->rank > 2)
        strb_addf(b, "    at.i[%d] = z;\n", f->rank - 3);
    if (f->rank > 1)
        strb_addf(b, "    at.i[%d] = y;\n", f->rank - 2);
    strb_addf(b, "    at.i[%d] = x;\n    (void)z;\n    (void)y;\n}\n", f->rank - 1);
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
              "#define AR_UNROLL %d\n#define AR_STEP %d\n%s"
              "#include \"compute/kernels/forms/common.cuh\"\n%sstruct ar_params {\n",
              f->wide ? "long" : "int", f->rank, f->rank - 1, f->threads, f->elements, f->unroll,
              f->step, m->out->indirect ? "#define AR_INDIRECT 1\n" : "",
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

struct emitted *emit_kernel(struct arena *arena, const struct ir_kernel *k, int slot_alignment)
{
    struct emitter m = {.arena = arena, .k = k};
    m.f = form_of(arena, k, slot_alignment);
    m.out = m.f ? arena_alloc(arena, sizeof *m.out) : NULL;
    if (!m.out)
        return NULL;
    m.out->form = m.f;
    emit_inputs(&m);
    emit_constants(&m);
    if (m.f->kind != FORM_STEPS)
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
    case FORM_STEPS:
        emit_steps(&m);
        break;
    case FORM_REDUCE:
        emit_reduce(&m);
        break;
    case FORM_SCAN:
        emit_scan(&m);
        break;
    }
    bool ok = assemble(&m);
    strb_free(&m.types);
    strb_free(&m.fields);
    strb_free(&m.body);
    strb_free(&m.values);
    return ok ? m.out : NULL;
}
