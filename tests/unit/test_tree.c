/* protocol/tree: JSON trees in, the same trees out; pointers, limits, text parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "protocol/text/tree.h"

struct parsed {
    struct arena *arena;
    struct expr x;
    uint32_t root;
    struct err e;
    enum err_code code;
};

/* Reads {"tree": …}; ' stands for ". */
static struct parsed parse(const char *tree)
{
    struct parsed p = {.arena = arena_new(0), .e = ERR_INIT};
    struct strb b = {0};
    struct json doc;
    uint32_t source;
    strb_addf(&b, "{\"tree\":%s}", tree);
    for (size_t i = 0; i < b.len; i++)
        if (b.data[i] == '\'')
            b.data[i] = '"';
    expr_init(&p.x, p.arena, 10000, 400);
    assert_int_equal(expr_add_source(&p.x, "/tree", &source, NULL), ERR_OK);
    p.code = json_parse(p.arena, b.data, b.len, NULL, &doc, &p.e);
    if (!p.code)
        p.code = tree_parse(&p.x, source, json_member(doc, "tree"), &p.root, &p.e);
    strb_free(&b);
    return p;
}

static void trees_come_back_as_they_were(void **state)
{
    (void)state;
    static const char *const trees[] = {
        "'a'",
        "1",
        "-2.5",
        "true",
        "null",
        "[1,[2,'a']]",
        "{'op':'where','args':[{'op':'greater','args':['a',0]},'a',0]}",
        "{'op':'add','args':['a','b','c',1.0]}",
        "{'op':'subtract','args':[{'op':'subtract','args':['a','b']},'c']}",
        "{'op':'const','value':'9007199254740993','dtype':'int64'}",
        "{'op':'const','value':18,'dtype':'uint8'}",
        "{'op':'const','value':'NaN','dtype':'float32'}",
        "{'op':'const','value':'-Infinity'}",
        "{'op':'const','value':[1.5,-2.0],'dtype':'complex64'}",
        "{'op':'const','value':true,'dtype':'bool'}",
        "{'op':'getitem','args':['u'],'index':'1:-1, ::2, None'}",
        "{'op':'sum','args':['a'],'axis':[0,1],'keepdims':true}",
        "{'op':'shift','args':['a',[1,0]],'boundary':'wrap','value':0}",
        "{'op':'clip','args':['a'],'min':null,'max':3}",
        "{'op':'lerp','args':[],'a':'x','b':'y','t':0.5}",
        "{'op':'nosuch','args':[],'any':'x'}",
    };
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        struct parsed p = parse(trees[i]);
        if (p.code)
            fail_msg("%s: %s %s", trees[i], p.e.pointer, p.e.message);
        struct strb b = {0};
        struct json_writer w = JSON_WRITER(&b);
        assert_int_equal(tree_write(&p.x, p.root, p.arena, &w, &p.e), ERR_OK);
        for (size_t k = 0; k < b.len; k++)
            if (b.data[k] == '"')
                b.data[k] = '\'';
        assert_string_equal(b.data, trees[i]);
        strb_free(&b);
        arena_free(p.arena);
    }
}

static void text_parameters_are_text_and_all_else_names(void **state)
{
    (void)state;
    static const struct {
        const char *tree;
        const char *string; /* the text that must be EXPR_STRING */
    } cases[] = {
        {"{'op':'astype','args':['a','float32']}", "float32"},
        {"{'op':'astype','args':['a'],'dtype':'float32'}", "float32"},
        {"{'op':'shift','args':['a',[1],'wrap','b']}", "wrap"},
        {"{'op':'laplacian','args':['a'],'boundary':'clamp'}", "clamp"},
        {"{'op':'laplacian','args':['a'],'spacing':'array'}", "array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].tree);
        assert_int_equal(p.code, ERR_OK);
        int found = 0;
        for (size_t n = 0; n < p.x.n_nodes; n++) {
            const struct expr_node *node = &p.x.nodes[n];
            if (node->kind == EXPR_STRING) {
                assert_string_equal(node->name, cases[i].string);
                found++;
            } else if (node->kind == EXPR_NAME) {
                assert_int_equal(strlen(node->name), 1);
            }
        }
        assert_int_equal(found, 1);
        arena_free(p.arena);
    }
}

static void mistakes_have_code_and_pointer(void **state)
{
    (void)state;
    static const struct {
        const char *tree;
        enum err_code code;
        const char *pointer;
    } cases[] = {
        {"{}", ERR_BAD_EXPRESSION, "/tree"},
        {"{'op':1}", ERR_BAD_EXPRESSION, "/tree/op"},
        {"{'op':'add','args':'a'}", ERR_BAD_EXPRESSION, "/tree/args"},
        {"{'op':'add','args':['a',9007199254740993]}", ERR_INEXACT_NUMBER, "/tree/args/1"},
        {"{'op':'add','args':['a',{'op':'sin','args':['a'],'z':1}]}", ERR_UNKNOWN_FIELD,
         "/tree/args/1/z"},
        {"{'op':'shift','args':['a',[1]],'bound':'wrap'}", ERR_UNKNOWN_FIELD, "/tree/bound"},
        {"{'op':'const'}", ERR_BAD_FIELD, "/tree/value"},
        {"{'op':'const','value':300,'dtype':'uint8'}", ERR_LITERAL_RANGE, "/tree/value"},
        {"{'op':'const','value':0.5,'dtype':'int8'}", ERR_LITERAL_RANGE, "/tree/value"},
        {"{'op':'const','value':1,'dtype':'int9'}", ERR_BAD_DTYPE, "/tree/dtype"},
        {"{'op':'const','value':1,'args':[]}", ERR_UNKNOWN_FIELD, "/tree/args"},
        {"{'op':'const','value':'x'}", ERR_BAD_FIELD, "/tree/value"},
        {"{'op':'getitem','args':['a']}", ERR_BAD_FIELD, "/tree/index"},
        {"{'op':'getitem','args':['a'],'index':3}", ERR_BAD_INDEX, "/tree/index"},
        {"{'op':'getitem','args':['a'],'index':'1,x'}", ERR_BAD_INDEX, "/tree/index"},
        {"{'op':'getitem','args':['a','b'],'index':'1'}", ERR_BAD_ARITY, "/tree/args"},
        {"[[1,9007199254740994]]", ERR_INEXACT_NUMBER, "/tree/0/1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p = parse(cases[i].tree);
        if (p.code != cases[i].code || strcmp(p.e.pointer, cases[i].pointer) != 0)
            fail_msg("%s: %s %s %s", cases[i].tree, err_name(p.code), p.e.pointer, p.e.message);
        arena_free(p.arena);
    }
}

static void nodes_know_their_steps(void **state)
{
    (void)state;
    struct parsed p = parse("{'op':'sum','args':[{'op':'add','args':['a','b']}],'axis':[0,'q']}");
    assert_int_equal(p.code, ERR_OK);
    for (size_t n = 0; n < p.x.n_nodes; n++) {
        const char *name = p.x.nodes[n].name;
        if (!name || strlen(name) != 1)
            continue;
        expr_err(&p.x, (uint32_t)n, &p.e, ERR_UNKNOWN_NAME, "%s", name);
        assert_string_equal(p.e.pointer, *name == 'a'   ? "/tree/args/0/args/0"
                                         : *name == 'b' ? "/tree/args/0/args/1"
                                                        : "/tree/axis/1");
    }
    arena_free(p.arena);
}

static void nesting_and_size_are_limited(void **state)
{
    (void)state;
    for (int n = 399; n <= 402; n++) { /* n operations in each other */
        struct strb b = {0};
        for (int i = 0; i < n; i++)
            strb_add(&b, "{'op':'negative','args':[");
        strb_add(&b, "'a'");
        for (int i = 0; i < n; i++)
            strb_add(&b, "]}");
        struct parsed p = parse(b.data);
        assert_int_equal(p.code, n <= 400 ? ERR_OK : ERR_EXPRESSION_TOO_LARGE);
        arena_free(p.arena);
        strb_free(&b);
    }
    for (int n = 9999; n <= 10000; n++) {
        struct strb b = {0};
        strb_add(&b, "{'op':'add','args':[1");
        for (int i = 1; i < n; i++)
            strb_add(&b, ",1");
        strb_add(&b, "]}");
        struct parsed p = parse(b.data);
        assert_int_equal(p.code, n < 10000 ? ERR_OK : ERR_EXPRESSION_TOO_LARGE);
        arena_free(p.arena);
        strb_free(&b);
    }
}

static void running_out_of_memory_is_survived(void **state)
{
    (void)state;
    static const char text[] =
        "{\"op\":\"sum\",\"args\":[{\"op\":\"getitem\",\"args\":[\"a\"],\"index\":\"1\"},"
        "{\"op\":\"const\",\"value\":1,\"dtype\":\"int8\"},[1,2]],\"axis\":0}";
    bool passed = false;
    for (size_t cap = 64; cap < 60000; cap += 112) {
        struct arena *a = arena_new(cap);
        struct expr x;
        struct json doc;
        struct err e = ERR_INIT;
        uint32_t source, root;
        expr_init(&x, a, 10000, 400);
        enum err_code err = expr_add_source(&x, "/tree", &source, &e);
        if (!err)
            err = json_parse(a, text, sizeof text - 1, NULL, &doc, &e);
        if (!err)
            err = tree_parse(&x, source, doc, &root, &e);
        if (!err) {
            _cleanup_strb_ struct strb b = {0};
            struct json_writer w = JSON_WRITER(&b);
            err = tree_write(&x, root, a, &w, &e);
        }
        assert_true(err == ERR_OK || err == ERR_OUT_OF_MEMORY);
        passed |= err == ERR_OK;
        arena_free(a);
    }
    assert_true(passed);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_come_back_as_they_were),
        cmocka_unit_test(text_parameters_are_text_and_all_else_names),
        cmocka_unit_test(mistakes_have_code_and_pointer),
        cmocka_unit_test(nodes_know_their_steps),
        cmocka_unit_test(nesting_and_size_are_limited),
        cmocka_unit_test(running_out_of_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
