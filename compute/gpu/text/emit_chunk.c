/* Loads and stores of a chunk of neighbours: its operands from memory and its results back, for the
 * forms that process chunks. */
#include "compute/gpu/text/emit_body.h"

#include <stdio.h>

/* A scan in stretches reads twice, and keeps only what it will read again in the cache. */
static bool streams(const struct emitter *m)
{
    return m->f->kind == FORM_SCAN && m->f->stretches > 1;
}

/* Stores a chunk's results of one output. `name`: suffix of its parameters and variables, a number
 * if there are several; `element`: of the results' struct. */
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
        if (emit_is_argument(f, s)) {
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
        if (emit_is_argument(f, fast))
            strb_addf(b, " + e * AR_STEP * (ar_index)p.t%s%d", name, f->rank - 1);
        else if (fast != 0)
            strb_add(b, " + e * AR_STEP");
        strb_addf(b, streams(m) ? ", {{r.v[e]%s}});\n" : "] = r.v[e]%s;\n", element);
    }
}

void emit_place(struct emitter *m)
{
    const int rank = m->f->rank;
    struct strb *b = &m->body;
    strb_add(b, "AR_FN void ar_place(ar_at &at, ar_index z, ar_index y, ar_index x)\n{\n");
    if (rank > 2)
        strb_addf(b, "    at.i[%d] = z;\n", rank - 3);
    if (rank > 1)
        strb_addf(b, "    at.i[%d] = y;\n", rank - 2);
    strb_addf(b, "    at.i[%d] = x;\n    (void)z;\n    (void)y;\n}\n", rank - 1);
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

/* The element's offset: from the indices themselves, or from a context's. */
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
