/* Parameters: each is declared in the text and given its value at once, in a slot of 8 bytes (16
 * for complex128), so that every compiler lays the struct out alike. */
#include "compute/gpu/text/emit_params.h"

#include <stdarg.h>
#include <stdio.h>

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

static void declare(struct emitter *m, const char *type, const char *name, va_list ap)
{
    char text[64];
    vsnprintf(text, sizeof text, name, ap);
    strb_addf(&m->fields, "    alignas(8) %s %s;\n", type, text);
}

void emit_bytes(struct emitter *m, const void *p, size_t n)
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
    emit_bytes(m, &v, sizeof v);
}

void emit_i64s(struct emitter *m, const int64_t *values, int n, const char *name)
{
    strb_addf(&m->fields, "    alignas(8) ar_i64 %s[%d];\n", name, n);
    for (int i = 0; i < n; i++)
        emit_bytes(m, &values[i], sizeof *values);
}

void emit_scalar(struct emitter *m, const struct scalar *s, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    declare(m, emit_type(s->dtype), name, ap);
    va_end(ap);
    emit_bytes(m, &s->v, dtype_size(s->dtype));
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
    emit_bytes(m, &(int64_t){0}, 8);
}

void emit_map(struct emitter *m, uint32_t input, const int box[2], const char *name, ...)
{
    static const char zeros[64];
    struct emitted *out = m->out;
    const struct ir_input *in = &m->k->inputs[input];
    const int64_t *shape = m->k->shape, size = (int64_t)dtype_size(in->dtype);
    size_t cap = m->cap_maps;
    char text[64];
    va_list ap;
    va_start(ap, name);
    vsnprintf(text, sizeof text, name, ap);
    va_end(ap);
    strb_addf(&m->fields, "    ar_map %s;\n", text);
    if (!out->n_maps)
        strb_add(&m->types, "struct alignas(64) ar_map {\n    ar_u8 opaque[128];\n};\n");
    if (arena_grow(m->arena, (void **)&out->maps, &cap, out->n_maps, sizeof *out->maps) < 0) {
        m->oom = true;
        return;
    }
    m->cap_maps = (uint32_t)cap;
    strb_addn(&m->values, zeros, (64 - m->values.len % 64) % 64);
    int64_t row = shape[1] > 1 ? in->view.strides[1] : shape[2];
    int64_t plane = shape[0] > 1 ? in->view.strides[0] : row * shape[1];
    out->maps[out->n_maps++] = (struct emit_map){
        .at = (uint32_t)m->values.len,
        .slot = in->slot,
        .displacement = in->view.offset * size,
        .size = (int)size,
        .shape = {(uint64_t)shape[2], (uint64_t)shape[1], (uint64_t)shape[0]},
        .strides = {(uint64_t)(row * size), (uint64_t)(plane * size)},
        .box = {(uint32_t)box[0], (uint32_t)box[1], 1},
    };
    strb_addn(&m->values, zeros, 64);
    strb_addn(&m->values, zeros, 64);
}

struct emit_divisor emit_divisor_of(int64_t d)
{
    struct emit_divisor v = {.divisor = d};
    if (d > 1 && d < 1ll << 31) {
        int l = 64 - __builtin_clzll((uint64_t)(d - 1)); /* ceil(log2 d) */
        v.multiplier = (uint32_t)(((1ull << (31 + l)) + (uint64_t)d - 1) / (uint64_t)d);
        v.shift = (uint32_t)(l - 1);
    }
    return v;
}

void emit_divisor(struct emitter *m, int64_t d, const char *type_and_name)
{
    const struct emit_divisor v = emit_divisor_of(d);
    if (type_and_name)
        strb_addf(&m->fields, "    alignas(8) %s;\n", type_and_name);
    strb_addn(&m->values, (const char *)&v, sizeof v);
}

void emit_divisors(struct emitter *m)
{
    const struct form *f = m->f;
    char text[32];
    snprintf(text, sizeof text, "ar_div div[%d]", f->rank);
    for (int a = 0; a < f->rank; a++) {
        int64_t n = f->shape[a];
        if (a == f->rank - 1 && f->kind != FORM_TILE && f->kind != FORM_STENCIL)
            n /= f->elements;
        emit_divisor(m, n ? n : 1, a ? NULL : text);
    }
}

void emit_share(struct emitter *m)
{
    const struct emit_share none = {0};
    m->out->share = (uint32_t)m->values.len;
    strb_add(&m->fields, "    alignas(8) ar_i64 since, until, number, join;\n");
    emit_bytes(m, &none, sizeof none);
}

void emit_stride(struct emitter *m, uint32_t input, int axis)
{
    const int64_t s = axis < 0 ? 0 : m->f->strides[input][axis];
    if (s == 0 || s == 1)
        strb_addf(&m->body, "%d", (int)s);
    else
        strb_addf(&m->body, "(ar_index)p.s%u_%d", input, axis);
}

void emit_unravel(struct emitter *m, const char *name, uint32_t axes)
{
    const struct form *f = m->f;
    struct strb *b = &m->body;
    int first = 0;
    while (first < f->rank && !(axes >> first & 1))
        first++;
    strb_addf(b,
              "AR_FN void %s(const ar_params &p, ar_index n, ar_at &at)\n{\n    ar_index q;\n    "
              "(void)q;\n    (void)n;\n",
              name);
    for (int a = f->rank - 1; a >= 0; a--) {
        if (!(axes >> a & 1))
            continue;
        const char *scale = a == f->rank - 1 ? " * AR_E" : "";
        if (a == first)
            strb_addf(b, "    at.i[%d] = n%s;\n", a, scale);
        else
            strb_addf(b,
                      "    q = ar_divide(n, p.div[%d]);\n"
                      "    at.i[%d] = (n - q * (ar_index)p.div[%d].divisor)%s;\n    n = q;\n",
                      a, a, a, scale);
    }
    strb_add(b, "}\n");
}
