/* Building blocks of the typed graph that need no checker, and its printer. */
#include "compute/check/typed.h"

#include <string.h>

#include "compute/base/strb.h"
#include "compute/check/check.h"

const char *boundary_name(enum boundary_mode m)
{
    static const char *const names[] = {
        [BOUNDARY_SELF] = "self",           [BOUNDARY_CLAMP] = "clamp",
        [BOUNDARY_WRAP] = "wrap",           [BOUNDARY_REFLECT] = "reflect",
        [BOUNDARY_SYMMETRIC] = "symmetric", [BOUNDARY_CONSTANT] = "constant",
        [BOUNDARY_GHOST] = "ghost"};
    return names[m];
}

uint32_t typed_add(struct arena *arena, struct typed *t, const struct typed_node *node)
{
    size_t cap = t->cap_nodes;
    if (t->n_nodes >= EXPR_NOWHERE - 1 ||
        arena_grow(arena, (void **)&t->nodes, &cap, t->n_nodes, sizeof *t->nodes))
        return EXPR_NOWHERE;
    t->cap_nodes = (uint32_t)cap;
    t->nodes[t->n_nodes] = *node;
    return t->n_nodes++;
}

uint32_t typed_const(struct arena *arena, struct typed *t, struct scalar value)
{
    return typed_add(arena, t,
                     &(struct typed_node){.kind = T_CONST, .dtype = value.dtype, .value = value});
}

/* Enough digits to read the value back. */
static void print_scalar(struct scalar s, struct strb *out)
{
    struct literal l = literal_from_scalar(s);
    int digits = s.dtype == DT_F64 || s.dtype == DT_C128  ? 17
                 : s.dtype == DT_F32 || s.dtype == DT_C64 ? 9
                                                          : 5;
    switch (l.kind) {
    case LIT_BOOL:
        strb_add(out, l.i ? "True" : "False");
        break;
    case LIT_INT:
        if (s.dtype == DT_U64)
            strb_add_u64(out, s.v.u64);
        else
            strb_add_i64(out, (int64_t)l.i);
        break;
    case LIT_FLOAT:
        strb_addf(out, "%.*g", digits, l.re);
        break;
    case LIT_COMPLEX:
        strb_addf(out, "%.*g%+.*gj", digits, l.re, digits, l.im);
        break;
    }
}

static void print_affine(const struct affine *v, struct strb *out)
{
    strb_add(out, " [");
    for (int k = 0; k < v->rank; k++) {
        strb_add(out, k ? ", " : "");
        if (v->src[k] < 0) {
            strb_add_i64(out, v->start[k]);
            continue;
        }
        if (v->start[k])
            strb_addf(out, "%lld + ", (long long)v->start[k]);
        if (v->step[k] != 1)
            strb_addf(out, "%lld*", (long long)v->step[k]);
        strb_addf(out, "i%d", v->src[k]);
    }
    strb_addc(out, ']');
}

static void print_axes(uint32_t axes, bool keepdims, struct strb *out)
{
    strb_add(out, " axes [");
    bool first = true;
    for (int k = 0; k < MAX_RANK; k++)
        if (axes & 1u << k) {
            strb_addf(out, first ? "%d" : ", %d", k);
            first = false;
        }
    strb_add(out, keepdims ? "] keepdims" : "]");
}

static const char *node_word(const struct typed_node *n)
{
    static const char *const words[] = {
        [T_CONST] = "const",   [T_INPUT] = "input", [T_OP] = "",         [T_CAST] = "cast",
        [T_WHERE] = "where",   [T_SHIFT] = "shift", [T_INDEX] = "index", [T_UNRAVEL] = "unravel",
        [T_VIEW] = "view",     [T_REDUCE] = "",     [T_SCAN] = "",       [T_RESHAPE] = "reshape",
        [T_GATHER] = "gather", [T_TABLE] = "table", [T_PUT] = "put",     [T_GUARDED] = "guarded",
        [T_RANDOM] = "random"};
    return n->kind == T_OP       ? op_table[n->op].name
           : n->kind == T_REDUCE ? reduce_name(n->reduce.op)
           : n->kind == T_SCAN   ? scan_name(n->scan.op)
                                 : words[n->kind];
}

static void print_node(const struct typed *t, uint32_t id, struct strb *out)
{
    const struct typed_node *n = &t->nodes[id];
    char shape[SHAPE_TEXT_MAX];
    strb_addf(out, "%%%u = %s %s %s", id, node_word(n), dtype_name(n->dtype),
              n->open ? "open" : shape_text(n->rank, n->shape, shape, sizeof shape));
    for (int k = 0; k < n->n_args; k++)
        strb_addf(out, " %%%u", n->args[k]);
    switch (n->kind) {
    case T_CONST:
        strb_addc(out, ' ');
        print_scalar(n->value, out);
        break;
    case T_INPUT:
        strb_addf(out, " %s", t->inputs[n->input].name ? t->inputs[n->input].name : "?");
        break;
    case T_SHIFT:
        strb_add(out, " [");
        for (int k = 0; k < n->rank; k++)
            strb_addf(out, k ? ", %lld" : "%lld", (long long)n->shift.offsets[k]);
        strb_addf(out, "] %s", boundary_name(n->shift.mode));
        break;
    case T_INDEX:
    case T_UNRAVEL:
        strb_addf(out, " axis %d", n->axis);
        break;
    case T_VIEW:
        print_affine(n->view, out);
        break;
    case T_SCAN:
        strb_addf(out, " axis %d", n->scan.axis);
        break;
    case T_TABLE:
        strb_addf(out, " of %lld", (long long)n->table->n);
        break;
    case T_PUT:
        strb_addf(out, " axis %d at %lld", n->put.axis, (long long)n->put.offset);
        break;
    case T_REDUCE:
        print_axes(n->reduce.axes, n->reduce.keepdims, out);
        if (reduce_divides(n->reduce.op))
            strb_addf(out, " by %.17g", n->reduce.divisor);
        break;
    default:
        break;
    }
    strb_addc(out, '\n');
}

void typed_print(const struct typed *t, struct strb *out)
{
    for (uint32_t i = 0; i < t->n_nodes; i++)
        print_node(t, i, out);
    strb_addf(out, "return %%%u\n", t->root);
}
