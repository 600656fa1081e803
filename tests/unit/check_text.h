/* Text in, typed graph out: the arrays and bound names that tests of the checker use. */
#ifndef ARRAYD_TESTS_CHECK_TEXT_H
#define ARRAYD_TESTS_CHECK_TEXT_H

#include <string.h>

#include "compute/base/strb.h"
#include "compute/check.h"
#include "protocol/infix.h"

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
};

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
                                    .dtype = check_arrays[i].dtype};
            return view_contiguous(check_arrays[i].rank, check_arrays[i].shape,
                                   dtype_size(check_arrays[i].dtype), &ret->view, e);
        }
    return ERR_OK;
}

/* Parses and checks "name = expr; name = expr; expr" (the first ones are lets). */
static inline enum err_code check_text(struct arena *arena, const char *text, int dtype,
                                       uint32_t max_inputs, struct typed *ret, struct err *e)
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
    struct check_env env = {.resolve = check_resolve, .max_inputs = max_inputs};
    return check_expr(arena, &x, &env, dtype, ret, e);
}

#endif
