/* Plans of expressions over the operands of emit_cases.h, for the tests of compute/gpu/text.
 * Included behind cmocka.h. Arena memory. Not thread-safe. */
#ifndef ARRAYD_TESTS_EMIT_PLANS_H
#define ARRAYD_TESTS_EMIT_PLANS_H

#include <string.h>

#include "compute/check/check.h"
#include "compute/ir/lower.h"
#include "protocol/text/infix.h"
#include "tests/unit/emit_cases.h"

static char here[48]; /* addresses that stand for arrays */

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)user;
    (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (size_t i = 0; i < sizeof emit_operands / sizeof *emit_operands; i++)
        if (!strcmp(emit_operands[i].name, name))
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = (struct array *)&here[i],
                                    .dtype = emit_operands[i].dtype,
                                    .view = emit_operands[i].view,
                                    .grid = emit_operands[i].grid};
    return ERR_OK;
}

static struct ir_plan *lowered(struct arena *arena, const struct typed *t)
{
    struct err e = ERR_INIT;
    struct ir_plan *plan = NULL;
    struct lower_request req = {.typed = t,
                                .fast_math = t->fast_math,
                                .limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000}};
    assert_int_equal(lower(arena, &req, &plan, &e), ERR_OK);
    return plan;
}

/* "fast TEXT": with fast_math. */
static struct ir_plan *plan_and_graph(struct arena *arena, const char *text, struct typed **ret)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    const bool fast = !strncmp(text, "fast ", 5);
    struct check_env env = {.resolve = resolve, .max_inputs = 64, .fast_math = fast, .window = 180};
    struct typed *t = arena_alloc(arena, sizeof *t);
    text += fast ? 5 : 0;
    expr_init(&x, arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    if (infix_parse(&x, source, text, strlen(text), &x.root, &e) != ERR_OK ||
        check_expr(arena, &x, &env, -1, t, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    *ret = t;
    return lowered(arena, t);
}

static struct ir_plan *plan_of(struct arena *arena, const char *text)
{
    struct typed *t;
    return plan_and_graph(arena, text, &t);
}

#endif
