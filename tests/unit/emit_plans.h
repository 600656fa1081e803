<<<<<<< HEAD
/* Plans of expressions over emit_cases.h's arrays. Included by test_emit.c and test_window.c, after
 * cmocka.h. Arena memory. */
#ifndef ARRAYD_TESTS_EMIT_PLANS_H
#define ARRAYD_TESTS_EMIT_PLANS_H

#include <string.h>

#include "compute/check/check.h"
=======
/* Plans of expressions over the operands of emit_cases.h, and texts held against the committed
 * ones, for the tests of compute/gpu/text's emitter. Included behind cmocka.h. Not thread-safe. */
#ifndef ARRAYD_TESTS_EMIT_PLANS_H
#define ARRAYD_TESTS_EMIT_PLANS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/check/check.h"
#include "compute/gpu/code/headers.h"
>>>>>>> rows
#include "compute/ir/lower.h"
#include "protocol/text/infix.h"
#include "tests/unit/emit_cases.h"

<<<<<<< HEAD
static char here[48]; /* addresses that stand for arrays */
=======
static char here[32]; /* addresses that stand for arrays */
>>>>>>> rows

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
                                .limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000}};
    assert_int_equal(lower(arena, &req, &plan, &e), ERR_OK);
    return plan;
}

static struct ir_plan *plan_and_graph(struct arena *arena, const char *text, struct typed **ret)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = resolve, .max_inputs = 64};
    struct typed *t = arena_alloc(arena, sizeof *t);
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

<<<<<<< HEAD
=======
/* Whether every file that the text includes is one of those the compiler is given. */
static bool includes_what_there_is(const char *text)
{
    const char *const *texts, *const *names;
    int n = headers_get(&texts, &names);
    for (const char *at = text; (at = strstr(at, "#include \"")); at++) {
        const char *name = at + strlen("#include \"");
        bool known = false;
        for (int i = 0; i < n; i++)
            known |= !strncmp(name, names[i], strlen(names[i])) && name[strlen(names[i])] == '"';
        if (!known) {
            print_message("there is no %.60s\n", name);
            return false;
        }
    }
    return true;
}

/* Says where the text first differs from the file's; whether it does. */
static bool differs(const char *name, const char *text, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("%s: cannot open %s\n", name, path);
        return true;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool found = false;
    for (int number = 1; !found; number++) {
        n = getline(&line, &cap, f);
        const char *end = strchr(text, '\n');
        size_t m = end ? (size_t)(end - text) + 1 : strlen(text);
        if (n <= 0 && m == 0)
            break;
        found = n <= 0 || (size_t)n != m || memcmp(line, text, m) != 0;
        if (found)
            print_message("%s.cu, line %d\n  is  %.*s  not %s", name, number, (int)m, text,
                          n > 0 ? line : "\n");
        text += m;
    }
    free(line);
    fclose(f);
    return found;
}

static int is_golden(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.cu", GOLDEN_DIR, name);
    if (getenv("ARRAYD_GOLDEN_WRITE")) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
        assert_int_equal(fclose(f), 0);
    }
    return differs(name, text, path);
}

>>>>>>> rows
#endif
