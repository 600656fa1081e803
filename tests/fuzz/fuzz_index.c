/* Index strings: what parses prints as something that parses to the same; then applied to a view.
 */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/text/index.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct index_spec spec, again;
    struct err e = ERR_INIT;
    enum err_code err = index_parse((const char *)data, size, &spec, &e);
    if (err) {
        FUZZ_CHECK(err == ERR_BAD_INDEX && e.offset >= 0 && (size_t)e.offset <= size);
    } else {
        struct strb text = {0};
        index_print(&spec, &text);
        FUZZ_CHECK(index_parse(text.data ? text.data : "", text.len, &again, &e) == ERR_OK);
        FUZZ_CHECK(memcmp(&spec, &again, sizeof spec) == 0);
        strb_free(&text);
        static const int64_t shape[] = {5, 0, 7, 1};
        struct view v, out;
        FUZZ_CHECK(view_contiguous(4, shape, 8, &v, &e) == ERR_OK);
        if (view_index(&v, &spec, &out, &e) == ERR_OK)
            FUZZ_CHECK(out.rank <= MAX_RANK && view_size(&out) >= 0);
    }
    size_t used;
    err = index_scan((const char *)data, size, &spec, &used, &e);
    FUZZ_CHECK(err || (used < size && data[used] == ']'));
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
