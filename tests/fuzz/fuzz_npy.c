/* .npy headers: whole and in pieces give the same; what is accepted is consistent. */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/wire/npy.h"
#include "tests/fuzz/fuzz.h"

static enum err_code feed(const uint8_t *data, size_t size, size_t chunk, struct npy_header *ret,
                          size_t *ret_at, bool *ret_done)
{
    struct npy_reader r = {.want_bfloat16 = true};
    struct err e = ERR_INIT;
    enum err_code err = ERR_OK;
    *ret_at = 0;
    *ret_done = false;
    while (*ret_at < size && !err && !*ret_done) {
        size_t used = 0, n = size - *ret_at < chunk ? size - *ret_at : chunk;
        err = npy_feed(&r, data + *ret_at, n, &used, ret_done, ret, &e);
        FUZZ_CHECK(used <= n && (err || *ret_done || used == n));
        *ret_at += used;
    }
    npy_reader_free(&r);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy_header a, b;
    size_t at_a, at_b;
    bool done_a, done_b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    enum err_code whole = feed(data, size, size, &a, &at_a, &done_a);
    enum err_code pieces = feed(data, size, 1 + size % 7, &b, &at_b, &done_b);
    FUZZ_CHECK(whole == pieces && done_a == done_b);
    FUZZ_CHECK(whole == ERR_OK || whole == ERR_BAD_NPY);
    if (done_a) {
        FUZZ_CHECK(at_a == at_b && at_a <= size && memcmp(&a, &b, sizeof a) == 0);
        struct view v;
        struct err e = ERR_INIT;
        FUZZ_CHECK(view_contiguous(a.rank, a.shape, dtype_size(a.dtype), &v, &e) == ERR_OK);
        FUZZ_CHECK(view_size(&v) == a.size);
        char text[NPY_WRITE_MAX];
        struct npy_header c;
        size_t n = npy_write_header(a.dtype, a.rank, a.shape, text);
        FUZZ_CHECK(feed((const uint8_t *)text, n, n, &c, &at_b, &done_b) == ERR_OK && done_b);
        FUZZ_CHECK(c.dtype == a.dtype && c.size == a.size && at_b == n);
    }
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
