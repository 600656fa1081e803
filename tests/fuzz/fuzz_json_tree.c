/* JSON documents and trees: what parses is walked whole, read as a tree, and must come back. */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/text/tree.h"
#include "tests/fuzz/fuzz.h"

static size_t walk(struct json v, int depth)
{
    size_t n = 1;
    struct literal lit;
    int64_t i;
    struct err e = ERR_INIT;
    enum err_code err = json_get_literal(v, &lit, &e);
    err = json_get_i64(v, INT64_MIN, INT64_MAX, &i, &e);
    FUZZ_CHECK(err == ERR_OK || e.code == err);
    for (struct json c = json_first(v); json_present(c); c = json_next(c)) {
        if (json_kind(v) == JSON_OBJECT)
            FUZZ_CHECK(json_member(v, json_key(c)).node == c.node);
        if (depth < 40)
            n += walk(c, depth + 1);
    }
    return n;
}

static struct strb written(struct arena *a, struct json doc, enum err_code *ret)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source, root;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    expr_init(&x, a, 10000, 400);
    FUZZ_CHECK(expr_add_source(&x, "/tree", &source, &e) == ERR_OK);
    *ret = tree_parse(&x, source, doc, &root, &e);
    if (*ret)
        FUZZ_CHECK(e.code == *ret && e.message[0]);
    else
        FUZZ_CHECK(tree_write(&x, root, a, &w, &e) == ERR_OK && !out.failed);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(0);
    struct json doc, again;
    struct err e = ERR_INIT;
    enum err_code err = json_parse(a, (const char *)data, size, NULL, &doc, &e);
    if (err) {
        FUZZ_CHECK(e.code == err && e.message[0]);
    } else {
        if (size < 4096)
            walk(doc, 0);
        struct strb first = written(a, doc, &err);
        if (!err) {
            FUZZ_CHECK(json_parse(a, first.data, first.len, NULL, &again, &e) == ERR_OK);
            struct strb second = written(a, again, &err);
            FUZZ_CHECK(!err && first.len == second.len &&
                       memcmp(first.data, second.data, first.len) == 0);
            strb_free(&second);
        }
        strb_free(&first);
    }
    arena_free(a);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
