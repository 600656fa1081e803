/* protocol/infix: text in, tree out (as tree_write prints it), errors with code and offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "protocol/text/infix.h"
#include "protocol/text/tree.h"

struct parsed {
    struct arena *arena;
    struct expr x;
    uint32_t root;
    struct err e;
    enum err_code code;
};

static struct parsed parse_n(const char *text, size_t n)
{
    struct parsed p = {.arena = arena_new(0), .e = ERR_INIT};
    uint32_t source;
    assert_non_null(p.arena);
    expr_init(&p.x, p.arena, 10000, 400);
    assert_int_equal(expr_add_source(&p.x, "/expr", &source, NULL), ERR_OK);
    p.code = infix_parse(&p.x, source, text, n, &p.root, &p.e);
    return p;
}

static void check(const char *text, const char *tree)
{
    struct parsed p = parse_n(text, strlen(text));
    if (p.code)
        fail_msg("%s: %s at %ld", text, p.e.message, p.e.offset);
    struct strb b = {0};
    struct json_writer w = JSON_WRITER(&b);
    assert_int_equal(tree_write(&p.x, p.root, p.arena, &w, &p.e), ERR_OK);
    char want[1000]; /* ' stands for " in the tables */
    size_t n = strlen(tree);
    for (size_t i = 0; i <= n; i++)
        want[i] = tree[i] == '\'' ? '"' : tree[i];
    if (strcmp(b.data, want) != 0)
        fail_msg("%s:\n got %s\nwant %s", text, b.data, want);
    strb_free(&b);
    arena_free(p.arena);
}

#define OP2(op, a, b) "{'op':'" op "','args':[" a "," b "]}"
#define OP1(op, a)    "{'op':'" op "','args':[" a "]}"

static void precedence_is_pythons(void **state)
{
    (void)state;
    check("a", "'a'");
    check(" a + b*c ", OP2("add", "'a'", OP2("multiply", "'b'", "'c'")));
    check("a - b - c", OP2("subtract", OP2("subtract", "'a'", "'b'"), "'c'"));
    check("a+b+c", "{'op':'add','args':['a','b','c']}");
    check("a+(b+c)", OP2("add", "'a'", OP2("add", "'b'", "'c'")));
    check("a/b//c%d",
          OP2("remainder", OP2("floor_divide", OP2("divide", "'a'", "'b'"), "'c'"), "'d'"));
    check("-a**2", OP1("negative", OP2("pow", "'a'", "2")));
    check("-2**2", OP1("negative", OP2("pow", "2", "2")));
    check("- 2 ** 2", OP1("negative", OP2("pow", "2", "2")));
    check("2**-1", OP2("pow", "2", "-1"));
    check("a**b**c", OP2("pow", "'a'", OP2("pow", "'b'", "'c'")));
    check("a**-b**c", OP2("pow", "'a'", OP1("negative", OP2("pow", "'b'", "'c'"))));
    check("~a & b", OP2("bitwise_and", OP1("bitwise_invert", "'a'"), "'b'"));
    check("a | b ^ c & d << e + f",
          OP2("bitwise_or", "'a'",
              OP2("bitwise_xor", "'b'",
                  OP2("bitwise_and", "'c'",
                      OP2("bitwise_left_shift", "'d'", OP2("add", "'e'", "'f'"))))));
    check("a & b == c", OP2("equal", OP2("bitwise_and", "'a'", "'b'"), "'c'"));
    check("(a > 0) & (b <= 1)",
          OP2("bitwise_and", OP2("greater", "'a'", "0"), OP2("less_equal", "'b'", "1")));
    check("a>>1 != b", OP2("not_equal", OP2("bitwise_right_shift", "'a'", "1"), "'b'"));
    check("+a", OP1("positive", "'a'"));
    check("- -a", OP1("negative", OP1("negative", "'a'")));
    check("a-1", OP2("subtract", "'a'", "1"));
    check("a - -1", OP2("subtract", "'a'", "-1"));
    check("int8 + -128", OP2("add", "'int8'", "-128"));
    check("(a<b) == (c<d)", OP2("equal", OP2("less", "'a'", "'b'"), OP2("less", "'c'", "'d'")));
}

static void literals_are_pythons(void **state)
{
    (void)state;
    check("0x1F", "31");
    check("0b1_01", "5");
    check("0o17", "15");
    check("1_000", "1000");
    check("00", "0");
    check("1.", "1.0");
    check(".5", "0.5");
    check("1e3", "1000.0");
    check("1_0.2_5E-1_0", "1.025e-9");
    check("01.5", "1.5");
    check("1e400", "{'op':'const','value':'Infinity'}");
    check("True", "true");
    check("None", "null");
    check("2j", "{'op':'const','value':[0.0,2.0]}");
    check("1.5e2J", "{'op':'const','value':[0.0,150.0]}");
    check("-2j", "{'op':'const','value':[-0.0,-2.0]}");
    check("-0.0", "-0.0");
    check("-0", "0");
    check("9007199254740993", "{'op':'const','value':'9007199254740993'}");
    check("-170141183460469231731687303715884105727",
          "{'op':'const','value':'-170141183460469231731687303715884105727'}");
    check("f('wrap', \"two words\", '')", "{'op':'f','args':['wrap','two words','']}");
    check("f('a\\\\b')", "{'op':'f','args':['a\\\\b']}");
}

static void calls_lists_and_indices(void **state)
{
    (void)state;
    check("where(a > 0, a, 0)", "{'op':'where','args':[" OP2("greater", "'a'", "0") ",'a',0]}");
    check("f()", "{'op':'f','args':[]}");
    check("f(a,)", OP1("f", "'a'"));
    check("sum(a, axis=[0, 1], keepdims=True)",
          "{'op':'sum','args':['a'],'axis':[0,1],'keepdims':true}");
    check("sum(axis=0)", "{'op':'sum','args':[],'axis':0}");
    check("f(a==b)", OP1("f", OP2("equal", "'a'", "'b'")));
    check("[]", "[]");
    check("()", "[]");
    check("(a,)", "['a']");
    check("(a)", "'a'");
    check("[a, (b, c),]", "['a',['b','c']]");
    check("u[1:-1, ::2]", "{'op':'getitem','args':['u'],'index':'1:-1, ::2'}");
    check("u [ ... , None,3 ][0]",
          "{'op':'getitem','args':[{'op':'getitem','args':['u'],'index':'..., None, 3'}],"
          "'index':'0'}");
    check("-u[0]**2",
          OP1("negative", OP2("pow", "{'op':'getitem','args':['u'],'index':'0'}", "2")));
    check("(a+b)[1]", "{'op':'getitem','args':[" OP2("add", "'a'", "'b'") "],'index':'1'}");
    check("f(a)[::-1]", "{'op':'getitem','args':[" OP1("f", "'a'") "],'index':'::-1'}");
    check("sum(\n a,\n axis = 0)", "{'op':'sum','args':['a'],'axis':0}");
    check("shift(u, (1, 0), boundary='wrap')",
          "{'op':'shift','args':['u',[1,0]],'boundary':'wrap'}");
}

static void mistakes_have_code_offset_and_advice(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        long offset;
        const char *word;
    } cases[] = {
        {"", ERR_BAD_EXPRESSION, 0, "empty"},
        {"  ", ERR_BAD_EXPRESSION, 2, "empty"},
        {"a <", ERR_BAD_EXPRESSION, 3, "ends too early"},
        {"a < b < c", ERR_BAD_EXPRESSION, 6, "&"},
        {"a == b != c", ERR_BAD_EXPRESSION, 7, "&"},
        {"a and b", ERR_BAD_EXPRESSION, 2, "&"},
        {"a or b", ERR_BAD_EXPRESSION, 2, "|"},
        {"not a", ERR_BAD_EXPRESSION, 0, "~"},
        {"a + not b", ERR_BAD_EXPRESSION, 4, "~"},
        {"a not in b", ERR_BAD_EXPRESSION, 2, "~"},
        {"a if b else c", ERR_BAD_EXPRESSION, 2, "where"},
        {"a && b", ERR_BAD_EXPRESSION, 2, "&"},
        {"a || b", ERR_BAD_EXPRESSION, 2, "|"},
        {"!a", ERR_BAD_EXPRESSION, 0, "~"},
        {"a ? b : c", ERR_BAD_EXPRESSION, 2, "where"},
        {"a = b", ERR_BAD_EXPRESSION, 2, "=="},
        {"a += b", ERR_BAD_EXPRESSION, 3, "cannot assign"},
        {"np.sin(a)", ERR_BAD_EXPRESSION, 2, "sin(x)"},
        {"a.sum()", ERR_BAD_EXPRESSION, 1, "sum(a)"},
        {"2x", ERR_BAD_EXPRESSION, 1, "2*x"},
        {"a b", ERR_BAD_EXPRESSION, 2, "operator"},
        {"a, b", ERR_BAD_EXPRESSION, 1, "one expression"},
        {"(a", ERR_BAD_EXPRESSION, 2, "ends too early"},
        {"a)", ERR_BAD_EXPRESSION, 1, "closing"},
        {"(a]", ERR_BAD_EXPRESSION, 2, "')'"},
        {"f(a b)", ERR_BAD_EXPRESSION, 4, "','"},
        {"f(x=1, a)", ERR_BAD_EXPRESSION, 7, "positional"},
        {"f(x=1, x=2)", ERR_BAD_EXPRESSION, 7, "twice"},
        {"f(*a)", ERR_BAD_EXPRESSION, 2, "one by one"},
        {"f(a, args=b)", ERR_BAD_EXPRESSION, 5, "parameter"},
        {"(a)(b)", ERR_BAD_EXPRESSION, 3, "called"},
        {"2(b)", ERR_BAD_EXPRESSION, 1, "called"},
        {"a @ b", ERR_BAD_EXPRESSION, 2, "dot"},
        {"a; b", ERR_BAD_EXPRESSION, 1, "only one expression"},
        {"a \xe2\x88\x92 b", ERR_BAD_EXPRESSION, 2, "minus"},
        {"'\xc3\xa9' + \xc3\xa9", ERR_BAD_EXPRESSION, 6, "\xc3\xa9"},
        {"a\xc2\xb2", ERR_BAD_EXPRESSION, 1, "**2"},
        {"\xff", ERR_BAD_EXPRESSION, 0, "UTF-8"},
        {"'abc", ERR_BAD_EXPRESSION, 0, "missing"},
        {"'a\\n'", ERR_BAD_EXPRESSION, 0, "escape"},
        {"017", ERR_BAD_EXPRESSION, 0, "leading zeros"},
        {"0x", ERR_BAD_EXPRESSION, 1, "2*x"},
        {"0xg", ERR_BAD_EXPRESSION, 0, "malformed"},
        {"1__0", ERR_BAD_EXPRESSION, 0, "malformed"},
        {"1_", ERR_BAD_EXPRESSION, 0, "malformed"},
        {"1.2.3", ERR_BAD_EXPRESSION, 0, "malformed"},
        {"170141183460469231731687303715884105728", ERR_LITERAL_RANGE, 0, "127"},
        {"1 + 0xffffffffffffffffffffffffffffffffffff", ERR_LITERAL_RANGE, 4, "127"},
        {"u[a]", ERR_BAD_INDEX, 2, "integer"},
        {"u[]", ERR_BAD_INDEX, 2, "missing"},
        {"u[1", ERR_BAD_INDEX, 3, "']'"},
        {"u[0] + u[1.5]", ERR_BAD_INDEX, 9, "integer"},
        {"u[::0]", ERR_BAD_INDEX, 2, "step"},
        {"f(", ERR_BAD_EXPRESSION, 2, "ends too early"},
        {"f(,)", ERR_BAD_EXPRESSION, 2, "','"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse_n(cases[i].text, strlen(cases[i].text));
        if (p.code != cases[i].code || p.e.offset != cases[i].offset ||
            !strstr(p.e.message, cases[i].word) || strcmp(p.e.pointer, "/expr") != 0)
            fail_msg("%s: %s at %ld %s: %s", cases[i].text, err_name(p.code), p.e.offset,
                     p.e.pointer, p.e.message);
        arena_free(p.arena);
    }
    struct parsed p = parse_n("a\0b", 3);
    assert_int_equal(p.code, ERR_BAD_EXPRESSION);
    arena_free(p.arena);
}

static struct parsed repeated(const char *before, const char *mid, const char *after, int times)
{
    struct strb b = {0};
    for (int i = 0; i < times; i++)
        strb_add(&b, before);
    strb_add(&b, mid);
    for (int i = 0; i < times; i++)
        strb_add(&b, after);
    struct parsed p = parse_n(b.data, b.len);
    strb_free(&b);
    return p;
}

static void nesting_and_size_are_limited(void **state)
{
    (void)state;
    static const struct {
        const char *before, *mid, *after;
    } nests[] = {{"(", "a", ")"},  {"[", "a", "]"},  {"-", "a", ""},     {"~", "a", ""},
                 {"f(", "a", ")"}, {"a**", "a", ""}, {"f(x=", "a", ")"}, {"(1+", "a", ")"}};
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        for (int n = 400; n <= 100000; n = n == 400 ? 401 : n * 20) {
            struct parsed p = repeated(nests[i].before, nests[i].mid, nests[i].after, n);
            assert_int_equal(p.code, n == 400 ? ERR_OK : ERR_EXPRESSION_TOO_LARGE);
            arena_free(p.arena);
        }
    }
    /* left-associative chains are no nesting: 10,000 nodes pass, one more does not */
    struct parsed p = repeated("", "a", "-a", 4999);
    assert_int_equal(p.code, ERR_OK);
    assert_int_equal(p.x.n_nodes, 9999);
    struct strb b = {0};
    struct json_writer w = JSON_WRITER(&b);
    assert_int_equal(tree_write(&p.x, p.root, p.arena, &w, &p.e), ERR_OK);
    assert_false(b.failed);
    strb_free(&b);
    arena_free(p.arena);
    p = repeated("", "a", "-a", 5000);
    assert_int_equal(p.code, ERR_EXPRESSION_TOO_LARGE);
    assert_true(p.e.offset > 9000);
    arena_free(p.arena);
    p = repeated("", "u", "[0]", 3000);
    assert_int_equal(p.code, ERR_OK);
    arena_free(p.arena);
    p = repeated("", "f(0", ",1", 9000);
    assert_int_equal(p.code, ERR_BAD_EXPRESSION);
    arena_free(p.arena);
}

static void offsets_count_characters(void **state)
{
    (void)state;
    static const char text[] = "f('\xc3\xa9\xc3\xa9', b + c)";
    struct parsed p = parse_n(text, sizeof text - 1);
    assert_int_equal(p.code, ERR_OK);
    const struct expr_node *plus = NULL;
    for (size_t i = 0; i < p.x.n_nodes; i++)
        if (p.x.nodes[i].kind == EXPR_CALL && strcmp(p.x.nodes[i].name, "add") == 0)
            plus = &p.x.nodes[i];
    assert_non_null(plus);
    assert_int_equal(plus->offset, 10);
    arena_free(p.arena);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static const char text[] = "where(u[1:-1] > 0, [1, 2, 3], f(x='wrap', y=(1, 2))) ** 2 + -a";
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct err e = ERR_INIT;
        struct expr x;
        uint32_t source, root;
        enum err_code err = ERR_OUT_OF_MEMORY;
        mem_fail_after(n, n % 2);
        /* many small arenas, so that every allocation site gets its turn */
        struct arena *a = arena_new(0);
        if (a) {
            expr_init(&x, a, 10000, 400);
            err = expr_add_source(&x, "/expr", &source, &e);
            if (!err)
                err = infix_parse(&x, source, text, sizeof text - 1, &root, &e);
        }
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(a);
        assert_int_equal(mem_live(), before);
        assert_int_equal(err, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!failed)
            break;
    }
    for (size_t cap = 0; cap < 30000; cap += 48) { /* and the arena's own limit */
        struct err e = ERR_INIT;
        struct expr x;
        uint32_t source, root;
        struct arena *a = arena_new(cap + 1);
        expr_init(&x, a, 10000, 400);
        enum err_code err = expr_add_source(&x, "/expr", &source, &e);
        if (!err)
            err = infix_parse(&x, source, text, sizeof text - 1, &root, &e);
        assert_true(err == ERR_OK || err == ERR_OUT_OF_MEMORY);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precedence_is_pythons),
        cmocka_unit_test(literals_are_pythons),
        cmocka_unit_test(calls_lists_and_indices),
        cmocka_unit_test(mistakes_have_code_offset_and_advice),
        cmocka_unit_test(nesting_and_size_are_limited),
        cmocka_unit_test(offsets_count_characters),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
