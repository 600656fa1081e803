/* Text in, typed graph out: the arrays and bound names that tests of the checker use. */
#ifndef ARRAYD_TESTS_CHECK_TEXT_H
#define ARRAYD_TESTS_CHECK_TEXT_H

#include <string.h>

#include "compute/base/strb.h"
#include "compute/check/check.h"
#include "compute/type/grid.h"
#include "protocol/text/infix.h"

/* An array of each dtype under a short name, all (4, 5), and some of other shapes. */
static const struct {
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t shape[3];
} check_arrays[] = {
    {"b", DT_BOOL, 2, {4, 5}},      {"i8", DT_I8, 2, {4, 5}},
    {"i16", DT_I16, 2, {4, 5}},     {"i32", DT_I32, 2, {4, 5}},
    {"i64", DT_I64, 2, {4, 5}},     {"u8", DT_U8, 2, {4, 5}},
    {"u16", DT_U16, 2, {4, 5}},     {"u32", DT_U32, 2, {4, 5}},
    {"u64", DT_U64, 2, {4, 5}},     {"f16", DT_F16, 2, {4, 5}},
    {"bf16", DT_BF16, 2, {4, 5}},   {"f32", DT_F32, 2, {4, 5}},
    {"f64", DT_F64, 2, {4, 5}},     {"c64", DT_C64, 2, {4, 5}},
    {"c128", DT_C128, 2, {4, 5}},   {"u", DT_F32, 2, {4, 5}},
    {"v", DT_F32, 2, {4, 5}},       {"row", DT_F32, 1, {5}},
    {"col", DT_F32, 2, {4, 1}},     {"s", DT_F32, 0, {0}},
    {"s64", DT_F64, 0, {0}},        {"none", DT_F32, 2, {0, 5}},
    {"cube", DT_F32, 3, {2, 3, 4}}, {"e", DT_F32, 1, {3}}, /* hides the constant */
    {"g", DT_F32, 2, {4, 5}},       {"gi", DT_I16, 2, {4, 5}},
};

/* g and gi, (4, 5): one ghost cell along axis 0, two along axis 1; a face of each type. */
static const struct grid check_grid = {
    .rank = 2,
    .has_boundary = true,
    .ghost = {1, 2},
    .spacing = {0.5, 1},
    .face = {{{FACE_DIRICHLET, 3, 0}, {FACE_NEUMANN, 2, 0}}, {{FACE_PERIODIC}, {FACE_PERIODIC}}}};

static enum err_code check_resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)user;
    if (strcmp(name, "dt") == 0) {
        *ret = (struct binding){.kind = BINDING_LITERAL, .lit = {.kind = LIT_FLOAT, .re = 0.5}};
    } else if (strcmp(name, "k") == 0) {
        *ret = (struct binding){.kind = BINDING_LITERAL, .lit = {.kind = LIT_INT, .i = 1}};
    } else if (strcmp(name, "t64") == 0) {
        *ret = (struct binding){.kind = BINDING_SCALAR, .scalar = {.dtype = DT_F64, .v.f64 = 0.25}};
    } else if (strcmp(name, "theirs") == 0) {
        return err_set(e, ERR_FORBIDDEN, "not yours");
    }
    for (size_t i = 0; i < sizeof check_arrays / sizeof check_arrays[0]; i++)
        if (strcmp(check_arrays[i].name, name) == 0) {
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = (struct array *)&check_arrays[i],
                                    .dtype = check_arrays[i].dtype,
                                    .grid = name[0] == 'g' ? &check_grid : NULL};
            return view_contiguous(check_arrays[i].rank, check_arrays[i].shape,
                                   dtype_size(check_arrays[i].dtype), &ret->view, e);
        }
    return ERR_OK;
}

/* Parses and checks "name = expr; name = expr; expr" (the first ones are lets). */
static inline enum err_code check_text_in(const struct check_env *env, struct arena *arena,
                                          const char *text, int dtype, struct typed *ret,
                                          struct err *e)
{
    struct expr x;
    uint32_t source, root;
    expr_init(&x, arena, 10000, 400);
    for (bool last = false; !last;) {
        const char *end = strchr(text, ';');
        last = !end;
        size_t n = end ? (size_t)(end - text) : strlen(text);
        char name[32] = "";
        if (!last) {
            size_t w = strcspn(text, "=");
            memcpy(name, text, w);
            text += w + 1;
            n -= w + 1;
        }
        char pointer[64];
        snprintf(pointer, sizeof pointer, last ? "/expr" : "/let/%zu/1", x.n_lets);
        enum err_code rc = expr_add_source(&x, pointer, &source, e);
        if (!rc)
            rc = infix_parse(&x, source, text, n, &root, e);
        if (!rc && !last)
            rc = expr_add_let(&x, name, root, e);
        if (rc)
            return rc;
        text = end ? end + 1 : NULL;
    }
    x.root = root;
    return check_expr(arena, &x, env, dtype, ret, e);
}

static inline enum err_code check_text(struct arena *arena, const char *text, int dtype,
                                       uint32_t max_inputs, struct typed *ret, struct err *e)
{
    const struct check_env env = {.resolve = check_resolve, .max_inputs = max_inputs};
    return check_text_in(&env, arena, text, dtype, ret, e);
}

/* What typed.h promises of a finished graph; NULL when it holds, else what does not. */
static inline const char *check_sound(const struct typed *t)
{
    if (t->root != t->n_nodes - 1)
        return "the root is not last";
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const struct typed_node *n = &t->nodes[i], *a = n->n_args ? &t->nodes[n->args[0]] : NULL;
        int64_t shape[MAX_RANK] = {0};
        int rank = 0;
        if (n->open)
            return "an open node";
        for (int k = 0; k < n->n_args; k++) {
            const struct typed_node *arg = &t->nodes[n->args[k]];
            if (n->args[k] >= i)
                return "an argument after its user";
            if (n->kind != T_SHIFT && n->kind != T_VIEW && n->kind != T_REDUCE &&
                shape_broadcast(rank, shape, arg->rank, arg->shape, &rank, shape, NULL))
                return "shapes that do not broadcast";
            if (n->kind == T_OP && arg->dtype != a->dtype)
                return "operands of two types";
        }
        switch (n->kind) {
        case T_OP:
            if (!op_defined(n->op, a->dtype) || n->dtype != op_result_dtype(n->op, a->dtype))
                return "an operation that is not defined for its type";
            break;
        case T_WHERE:
            if (a->dtype != DT_BOOL || t->nodes[n->args[1]].dtype != n->dtype ||
                t->nodes[n->args[2]].dtype != n->dtype)
                return "where of other types";
            break;
        case T_INDEX:
        case T_UNRAVEL:
            if (n->axis < 0 || n->axis >= n->rank)
                return "an axis that the scope lacks";
            continue; /* the shape is the scope's */
        case T_SHIFT:
            if (n->dtype != a->dtype || n->rank != a->rank ||
                memcmp(n->shape, a->shape, (size_t)n->rank * sizeof *n->shape) != 0 ||
                n->n_args != (n->shift.mode == BOUNDARY_CONSTANT ? 2 : 1))
                return "a shift of another shape";
            continue;
        case T_REDUCE:
            if (n->dtype != a->dtype || n->reduce.axes == 0)
                return "a reduction of another type, or of no axis";
            continue;
        case T_VIEW:
            if (n->view->rank != a->rank || n->dtype != a->dtype)
                return "a view of another array";
            for (int k = 0; k < a->rank; k++) {
                int src = n->view->src[k];
                int64_t last =
                    n->view->start[k] + (src < 0 ? 0 : n->view->step[k] * (n->shape[src] - 1));
                bool empty = false;
                for (int r = 0; r < n->rank; r++)
                    empty |= n->shape[r] == 0;
                if (!empty && (n->view->start[k] < 0 || n->view->start[k] >= a->shape[k] ||
                               last < 0 || last >= a->shape[k]))
                    return "a view beyond its array";
            }
            continue;
        case T_CONST:
            if (n->rank != 0)
                return "a constant with a shape";
            continue;
        default:
            continue;
        }
        /* elementwise: its operands' shape, or wider where it holds an index() */
        int wider;
        int64_t both[MAX_RANK];
        if (shape_broadcast(rank, shape, n->rank, n->shape, &wider, both, NULL) ||
            wider != n->rank || (wider && memcmp(both, n->shape, (size_t)wider * sizeof *both)))
            return "an operation of another shape than its operands";
    }
    return NULL;
}

#endif
