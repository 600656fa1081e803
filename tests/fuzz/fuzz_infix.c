/* Infix text: whatever parses must come back through its JSON tree; errors must have their place.
 */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/text/infix.h"
#include "protocol/text/tree.h"
#include "tests/fuzz/fuzz.h"

/* The tree's text, parsed again with room to spare, written again. */
static void comes_back(const char *text, size_t n)
{
    struct arena *a = arena_new(0);
    struct json_limits limits = {200000, 1u << 22};
    struct json doc;
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source, root;
    expr_init(&x, a, 1u << 20, 200000);
    FUZZ_CHECK(json_parse(a, text, n, &limits, &doc, &e) == ERR_OK);
    FUZZ_CHECK(expr_add_source(&x, "/tree", &source, &e) == ERR_OK);
    enum err_code err = tree_parse(&x, source, doc, &root, &e);
    /* infix takes any keyword for any function; trees know the parameters of those that exist */
    FUZZ_CHECK(err == ERR_OK || err == ERR_UNKNOWN_FIELD || err == ERR_BAD_FIELD ||
               err == ERR_BAD_ARITY || err == ERR_BAD_EXPRESSION);
    if (!err) {
        struct strb again = {0};
        struct json_writer w = JSON_WRITER(&again);
        FUZZ_CHECK(tree_write(&x, root, a, &w, &e) == ERR_OK);
        FUZZ_CHECK(again.len == n && memcmp(again.data, text, n) == 0);
        strb_free(&again);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source, root;
    expr_init(&x, a, 10000, 400);
    FUZZ_CHECK(expr_add_source(&x, "/expr", &source, &e) == ERR_OK);
    enum err_code err = infix_parse(&x, source, (const char *)data, size, &root, &e);
    if (err) {
        FUZZ_CHECK(e.code == err && e.offset >= 0 && (size_t)e.offset <= size);
        FUZZ_CHECK(e.message[0] && strcmp(e.pointer, "/expr") == 0);
    } else {
        struct strb text = {0};
        struct json_writer w = JSON_WRITER(&text);
        FUZZ_CHECK(root < x.n_nodes);
        FUZZ_CHECK(tree_write(&x, root, a, &w, &e) == ERR_OK && !text.failed);
        if (text.len < 100000)
            comes_back(text.data, text.len);
        strb_free(&text);
    }
    arena_free(a);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
