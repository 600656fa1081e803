/* protocol/npy: headers NumPy writes, whole and byte by byte; hostile ones; writing; swapping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "protocol/wire/npy.h"

/* A file's beginning: version, then the header text, then 3 bytes of data. */
static size_t make(char *buf, int version, const char *text)
{
    size_t n = strlen(text), at = 8;
    memcpy(buf, NPY_MAGIC, 6);
    buf[6] = (char)version;
    buf[7] = 0;
    for (int i = 0; i < (version == 1 ? 2 : 4); i++)
        buf[at++] = (char)(n >> 8 * i);
    memcpy(buf + at, text, n);
    memcpy(buf + at + n, "abc", 3);
    return at + n + 3;
}

static enum err_code feed(const char *buf, size_t n, size_t chunk, bool bf16,
                          struct npy_header *ret, size_t *ret_used, bool *ret_done)
{
    struct npy_reader r = {.want_bfloat16 = bf16};
    struct err e = ERR_INIT;
    enum err_code err = ERR_OK;
    *ret_used = 0;
    *ret_done = false;
    while (*ret_used < n && !err && !*ret_done) {
        size_t used = 0, len = n - *ret_used < chunk ? n - *ret_used : chunk;
        err = npy_feed(&r, buf + *ret_used, len, &used, ret_done, ret, &e);
        assert_true(used <= len && (err || *ret_done || used == len));
        *ret_used += used;
    }
    npy_reader_free(&r);
    return err;
}

static void headers_are_read_in_pieces_of_any_size(void **state)
{
    (void)state;
    static const struct {
        int version;
        const char *text;
        enum dtype dtype;
        bool big, fortran;
        int rank;
        int64_t size;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n", DT_F32, 0, 0, 2,
         12},
        {2, "{'descr': '>i2', 'fortran_order': True, 'shape': (5,), }\n", DT_I16, 1, 1, 1, 5},
        {3, "{\"shape\":(),\"descr\":\"|b1\",\"fortran_order\":False}", DT_BOOL, 0, 0, 0, 1},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2L, 0L)}", DT_U8, 0, 0, 2, 0},
        {1, "{'descr': '>c16', 'fortran_order': False, 'shape': (2,)}", DT_C128, 1, 0, 1, 2},
        {1, "{'descr': '>i1', 'fortran_order': False, 'shape': (2,)}", DT_I8, 0, 0, 1, 2},
        {1, "{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}", DT_BF16, 0, 0, 1, 2},
        {1, "{'descr': 'bfloat16', 'fortran_order': False, 'shape': (2,)}", DT_BF16, 0, 0, 1, 2},
        {1, "{'descr': '=u8', 'fortran_order': False, 'shape': (7,)}", DT_U64, 0, 0, 1, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[300];
        size_t n = make(buf, cases[i].version, cases[i].text), used;
        for (size_t chunk = 1; chunk <= n; chunk++) {
            struct npy_header h;
            bool done;
            assert_int_equal(feed(buf, n, chunk, true, &h, &used, &done), ERR_OK);
            assert_true(done);
            assert_int_equal(used, n - 3);
            assert_int_equal(h.dtype, cases[i].dtype);
            assert_int_equal(h.big_endian, cases[i].big);
            assert_int_equal(h.fortran_order, cases[i].fortran);
            assert_int_equal(h.rank, cases[i].rank);
            assert_int_equal(h.size, cases[i].size);
            assert_int_equal(h.nbytes, h.size * (int64_t)dtype_size(h.dtype));
        }
        for (size_t len = 0; len < n - 3; len++) { /* cut off: not done, nothing leaked */
            struct npy_header h;
            bool done;
            assert_int_equal(feed(buf, len, 5, true, &h, &used, &done), ERR_OK);
            assert_false(done);
        }
    }
    assert_int_equal(mem_live(), 0);
}

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<U5', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|V3', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296,2147483648)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296,2147483648,0)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
    };
    char buf[400];
    struct npy_header h;
    size_t used;
    bool done;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = make(buf, 1, texts[i]);
        if (feed(buf, n, n, true, &h, &used, &done) != ERR_BAD_NPY)
            fail_msg("%s", texts[i]);
    }
    struct npy_reader r = {0};
    struct err e = ERR_INIT;
    size_t n =
        make(buf, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904)}");
    assert_int_equal(npy_feed(&r, buf, n, &used, &done, &h, &e), ERR_BAD_NPY);
    assert_non_null(strstr(e.message, "not counting extents of 0"));
    npy_reader_free(&r);
    n = make(buf, 1, "{'descr': '<V2', 'fortran_order': False, 'shape': (2,)}");
    assert_int_equal(feed(buf, n, n, false, &h, &used, &done), ERR_BAD_NPY);
    assert_int_equal(feed("\x93NUMPX\1\0aaaa", 12, 12, true, &h, &used, &done), ERR_BAD_NPY);
    assert_int_equal(feed("\x93NUMPY\4\0aaaa", 12, 12, true, &h, &used, &done), ERR_BAD_NPY);
    assert_int_equal(feed("\x93NUMPY\2\0\0\0\0\x7f", 12, 12, true, &h, &used, &done), ERR_BAD_NPY);
    assert_int_equal(mem_live(), 0);
}

static void written_headers_read_back(void **state)
{
    (void)state;
    int64_t shape[MAX_RANK];
    for (int d = 0; d < MAX_RANK; d++)
        shape[d] = d < 2 ? 1234567890 : 1;
    for (int t = 0; t < DT_COUNT; t++) {
        for (int rank = 0; rank <= MAX_RANK; rank += rank < 3 ? 1 : 29) {
            char buf[NPY_WRITE_MAX];
            struct npy_header h;
            size_t used, n = npy_write_header((enum dtype)t, rank, shape, buf);
            bool done;
            assert_true(n % 64 == 0 && n <= sizeof buf && buf[n - 1] == '\n');
            assert_int_equal(feed(buf, n, n, true, &h, &used, &done),
                             rank > 1 && dtype_size((enum dtype)t) > 4 ? ERR_BAD_NPY : ERR_OK);
            if (!done)
                continue;
            assert_int_equal(h.dtype, t);
            assert_int_equal(h.rank, rank);
            assert_memory_equal(h.shape, shape, sizeof *shape * (size_t)rank);
            assert_false(h.big_endian || h.fortran_order);
        }
    }
    for (int d = 0; d < MAX_RANK; d++)
        shape[d] = INT64_MAX;
    char buf[NPY_WRITE_MAX];
    assert_true(npy_write_header(DT_C128, MAX_RANK, shape, buf) <= NPY_WRITE_MAX);
}

static void swapping_goes_by_parts(void **state)
{
    (void)state;
    unsigned char b[16];
    static const struct {
        enum dtype t;
        unsigned char want[16];
    } cases[] = {
        {DT_U8, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {DT_F16, {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}},
        {DT_C64, {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12}},
        {DT_C128, {7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned k = 0; k < 16; k++)
            b[k] = (unsigned char)k;
        npy_swap(cases[i].t, b, 16);
        assert_memory_equal(b, cases[i].want, 16);
    }
    assert_true(npy_is_magic("\x93NUMPY\1", 7) && npy_is_magic("\x93N", 2));
    assert_false(npy_is_magic("", 0) || npy_is_magic("[1]", 3));
}

static void a_failed_allocation_is_survived(void **state)
{
    (void)state;
    char buf[300];
    struct npy_header h;
    size_t used, n = make(buf, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
    bool done;
    mem_fail_after(1, false);
    assert_int_equal(feed(buf, n, 7, true, &h, &used, &done), ERR_OUT_OF_MEMORY);
    assert_int_equal(mem_failed(), 1);
    mem_fail_after(0, false);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read_in_pieces_of_any_size),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(written_headers_read_back),
        cmocka_unit_test(swapping_goes_by_parts),
        cmocka_unit_test(a_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
