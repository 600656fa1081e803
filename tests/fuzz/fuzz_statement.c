/* Statements: whatever parses has a target and a tree; errors have their place. */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "protocol/text/statement.h"
#include "protocol/text/tree.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    struct statement s;
    uint32_t source;
    expr_init(&x, a, 10000, 400);
    FUZZ_CHECK(expr_add_source(&x, "/body/0", &source, &e) == ERR_OK);
    enum err_code err = statement_parse(&x, source, (const char *)data, size, &s, &e);
    if (err) {
        FUZZ_CHECK(e.code == err && e.offset >= 0 && (size_t)e.offset <= size);
        FUZZ_CHECK(e.message[0] && strcmp(e.pointer, "/body/0") == 0);
    } else {
        struct strb text = {0};
        struct json_writer w = JSON_WRITER(&text);
        FUZZ_CHECK(s.target[0] && s.root < x.n_nodes);
        FUZZ_CHECK(tree_write(&x, s.root, a, &w, &e) == ERR_OK && !text.failed);
        strb_free(&text);
    }
    arena_free(a);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
