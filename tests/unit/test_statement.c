/* Statements: what is left of the equals sign, operators, the places of mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "protocol/text/index.h"
#include "protocol/text/statement.h"
#include "protocol/text/tree.h"

static enum err_code parse(struct arena *arena, const char *text, struct expr *x,
                           struct statement *s, struct err *e)
{
    uint32_t source;
    expr_init(x, arena, 50, 20);
    enum err_code code = expr_add_source(x, "/body/3", &source, e);
    return code ? code : statement_parse(x, source, text, strlen(text), s, e);
}

/* target[index] and the tree of what is assigned */
static void means(const char *text, const char *target, const char *index, const char *tree)
{
    struct arena *arena = arena_new(0);
    struct expr x;
    struct statement s;
    struct err e = ERR_INIT;
    struct strb got = {0}, ix = {0};
    struct json_writer w = JSON_WRITER(&got);
    if (parse(arena, text, &x, &s, &e) != ERR_OK)
        fail_msg("%s: %s at %ld", text, e.message, e.offset);
    assert_string_equal(s.target, target);
    assert_int_equal(s.index != NULL, index != NULL);
    assert_int_equal(s.fills, strstr(text, "fill_ghost") == text);
    if (index) {
        index_print(s.index, &ix);
        assert_string_equal(ix.data, index);
    }
    assert_int_equal(tree_write(&x, s.root, arena, &w, &e), ERR_OK);
    assert_string_equal(got.data, tree);
    strb_free(&ix);
    strb_free(&got);
    arena_free(arena);
    assert_int_equal(mem_live(), 0);
}

static void statements_are_read(void **state)
{
    (void)state;
    means("u = 1", "u", NULL, "1");
    means("  u_2=v ", "u_2", NULL, "\"v\"");
    means("u = a == b", "u", NULL, "{\"op\":\"equal\",\"args\":[\"a\",\"b\"]}");
    means("u = a <= b", "u", NULL, "{\"op\":\"less_equal\",\"args\":[\"a\",\"b\"]}");
    means("u = f(x, axis=0)", "u", NULL, "{\"op\":\"f\",\"args\":[\"x\"],\"axis\":0}");
    means("u += v", "u", NULL, "{\"op\":\"add\",\"args\":[\"u\",\"v\"]}");
    means("u*=v + w", "u", NULL,
          "{\"op\":\"multiply\",\"args\":[\"u\",{\"op\":\"add\",\"args\":[\"v\",\"w\"]}]}");
    means("u **= 2", "u", NULL, "{\"op\":\"pow\",\"args\":[\"u\",2]}");
    means("u //= 2", "u", NULL, "{\"op\":\"floor_divide\",\"args\":[\"u\",2]}");
    means("u /= 2", "u", NULL, "{\"op\":\"divide\",\"args\":[\"u\",2]}");
    means("u %= 2", "u", NULL, "{\"op\":\"remainder\",\"args\":[\"u\",2]}");
    means("u -= 2", "u", NULL, "{\"op\":\"subtract\",\"args\":[\"u\",2]}");
    means("u <<= 2", "u", NULL, "{\"op\":\"bitwise_left_shift\",\"args\":[\"u\",2]}");
    means("u >>= 2", "u", NULL, "{\"op\":\"bitwise_right_shift\",\"args\":[\"u\",2]}");
    means("u &= 2", "u", NULL, "{\"op\":\"bitwise_and\",\"args\":[\"u\",2]}");
    means("u |= 2", "u", NULL, "{\"op\":\"bitwise_or\",\"args\":[\"u\",2]}");
    means("u ^= 2", "u", NULL, "{\"op\":\"bitwise_xor\",\"args\":[\"u\",2]}");
    means("u[1:-1, ::2] = 0", "u", "1:-1, ::2", "0");
    means(
        "u [3] -= 1", "u", "3",
        "{\"op\":\"subtract\",\"args\":[{\"op\":\"getitem\",\"args\":[\"u\"],\"index\":\"3\"},1]}");
    means("fill_ghost ( u ) ", "u", NULL, "\"u\"");
    means("u = where(a == '=', b, \"=\")", "u", NULL,
          "{\"op\":\"where\",\"args\":[{\"op\":\"equal\",\"args\":[\"a\",\"=\"]},\"b\",\"=\"]}");
}

static void mistakes_have_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        long offset;
    } cases[] = {
        {"", ERR_BAD_EXPRESSION, 0},
        {"u", ERR_BAD_EXPRESSION, 0},
        {"u == v", ERR_BAD_EXPRESSION, 0},
        {"u <= v", ERR_BAD_EXPRESSION, 0},
        {"u != v", ERR_BAD_EXPRESSION, 0},
        {"f(a=1)", ERR_BAD_EXPRESSION, 0},
        {"= v", ERR_BAD_EXPRESSION, 0},
        {"  += v", ERR_BAD_EXPRESSION, 2},
        {"u =", ERR_BAD_EXPRESSION, 3},
        {"u = v +", ERR_BAD_EXPRESSION, 7},
        {"u = v = w", ERR_BAD_EXPRESSION, 6},
        {"u v = w", ERR_BAD_EXPRESSION, 2},
        {"u[1][2] = w", ERR_BAD_EXPRESSION, 4},
        {"u() = w", ERR_BAD_EXPRESSION, 1},
        {"2u = w", ERR_BAD_EXPRESSION, 0},
        {"u[] = w", ERR_BAD_INDEX, 2},
        {"u[1:x] = w", ERR_BAD_INDEX, 4},
        {"u[1:2 = w", ERR_BAD_EXPRESSION, 0},
        {"u] = w", ERR_BAD_EXPRESSION, 1},
        {"\xc3\xa4 = w", ERR_BAD_EXPRESSION, 0},
        {"u = 'x", ERR_BAD_EXPRESSION, 4},
        {"u @= v", ERR_BAD_EXPRESSION, 2},
        {"fill_ghost", ERR_BAD_EXPRESSION, 0},
        {"fill_ghosts(u)", ERR_BAD_EXPRESSION, 0},
        {"fill_ghost()", ERR_BAD_EXPRESSION, 11},
        {"fill_ghost(2u)", ERR_BAD_EXPRESSION, 11},
        {"fill_ghost(u", ERR_BAD_EXPRESSION, 12},
        {"fill_ghost(u, axis=0)", ERR_BAD_EXPRESSION, 12},
        {"fill_ghost(u) + 1", ERR_BAD_EXPRESSION, 14},
        {"fill_ghost(u) = 1", ERR_BAD_EXPRESSION, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *arena = arena_new(0);
        struct expr x;
        struct statement s;
        struct err e = ERR_INIT;
        enum err_code code = parse(arena, cases[i].text, &x, &s, &e);
        if (code != cases[i].code || e.offset != cases[i].offset || strcmp(e.pointer, "/body/3"))
            fail_msg("'%s': %s at %ld of %s: %s", cases[i].text, err_name(code), e.offset,
                     e.pointer, e.message);
        arena_free(arena);
    }
}

static void places_are_the_statements(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    struct expr x;
    struct statement s;
    struct err e = ERR_INIT;
    assert_int_equal(parse(arena, " u[2] += \xc3\xa4" + 0, &x, &s, &e), ERR_BAD_EXPRESSION);
    assert_int_equal(parse(arena, " u[2] += abs(nix)", &x, &s, &e), ERR_OK);
    assert_int_equal(s.at, 1);
    const struct expr_node *root = &x.nodes[s.root];
    assert_int_equal(root->offset, 1);
    const struct expr_node *right = &x.nodes[x.links[root->first_arg + 1].node];
    assert_int_equal(right->offset, 9);
    assert_int_equal(x.nodes[x.links[right->first_arg].node].offset, 13);
    arena_free(arena);
}

static void every_allocation_may_fail_of(const char *text)
{
    for (int nth = 1;; nth++) {
        mem_fail_after(nth, false);
        struct arena *arena = arena_new(0);
        struct expr x;
        struct statement s;
        struct err e = ERR_INIT;
        enum err_code code = arena ? parse(arena, text, &x, &s, &e) : ERR_OUT_OF_MEMORY;
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(arena);
        assert_int_equal(mem_live(), 0);
        assert_int_equal(code, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!failed)
            break;
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    every_allocation_may_fail_of("u[1:-1] += 0.1*laplacian(u)[1:-1]");
    every_allocation_may_fail_of("fill_ghost(u)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statements_are_read),
        cmocka_unit_test(mistakes_have_their_place),
        cmocka_unit_test(places_are_the_statements),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
