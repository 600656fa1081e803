/* The CPU backend behind backend.h: opening, memory and its limit, zeroing of reused memory, the
 * names of kernel shapes, metrics. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/backend.h"
#include "compute/base/mem.h"
#include "compute/cpu/cpu_memory.h"
#include "compute/ir/ir_build.h"

#define MIB (INT64_C(1) << 20)

static struct backend *open_cpu(int64_t limit)
{
    struct backend_config config = {.threads = 2, .memory_limit = limit};
    struct backend *b = NULL;
    char note[64] = "x";
    assert_int_equal(backend_open("cpu", &config, &b, note, sizeof note, NULL), ERR_OK);
    assert_string_equal(note, "");
    return b;
}

static void test_open(void **state)
{
    (void)state;
    struct backend_config config = {.threads = 1};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    char note[128];
    setenv("ARRAYD_LIBCUDA", "/nonexistent/libcuda.so", 1); /* whatever this machine has */
    assert_int_equal(backend_open("auto", &config, &b, note, sizeof note, &e), ERR_OK);
    assert_ptr_equal(strstr(note, "not using a GPU: /nonexistent/libcuda.so"), note);
    assert_string_equal(b->ops->name, "cpu");
    assert_ptr_equal(backend_cpu_ops.host(NULL, &e), &e); /* host memory */
    assert_int_equal(b->ops->device_count(b), 1);
    struct backend_device d;
    b->ops->device_info(b, 0, &d);
    assert_non_null(strstr(d.name, "CPU, 1 thread, "));
    assert_true(d.memory_total > 0 && d.memory_free <= d.memory_total);
    backend_close(b);
    b = NULL;
    assert_int_equal(backend_open("cuda", &config, &b, note, sizeof note, &e), ERR_BAD_FIELD);
    assert_non_null(strstr(e.message, "/nonexistent/libcuda.so"));
    assert_int_equal(backend_open("tpu", &config, &b, note, sizeof note, &e), ERR_BAD_FIELD);
    assert_non_null(strstr(e.message, "\"tpu\""));
    assert_null(b);
    backend_close(NULL);

    /* Every allocation of opening may fail. */
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        mem_fail_after(n, false);
        enum err_code code = backend_open("cpu", &config, &b, note, sizeof note, &e);
        bool refused = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_int_equal(code, refused ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!refused)
            backend_close(b);
        assert_int_equal(mem_live(), before);
        if (!refused)
            break;
    }
}

static bool all_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static void test_memory(void **state)
{
    (void)state;
    struct backend *b = open_cpu(256 * MIB);
    static const int64_t sizes[] = {1, 63, 4096, 100000, 4 * MIB, 8 * MIB + 12345, 20 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = (size_t)sizes[i];
        void *p, *q;
        assert_int_equal(b->ops->alloc(b, 0, n, true, &p, NULL), ERR_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(all_zero(p, n));
        memset(p, 0xa5, n);
        b->ops->free(b, 0, p, n);
        /* Somebody else's old data must not be seen. */
        assert_int_equal(b->ops->alloc(b, 0, n, true, &p, NULL), ERR_OK);
        assert_true(all_zero(p, n));
        memset(p, 0xa5, n);
        b->ops->free(b, 0, p, n);
        assert_int_equal(b->ops->alloc(b, 0, n, false, &q, NULL), ERR_OK);
        if (n >= 4 * MIB)
            assert_ptr_equal(p, q); /* reused */
        memset(q, 0x5a, (size_t)n);
        b->ops->free(b, 0, q, n);
    }
    backend_close(b);
}

/* As many blocks as the cache has room for, of which one is used again and again. */
static void what_is_not_used_again_goes_back(void **state)
{
    (void)state;
    struct cpu_memory *m = cpu_memory_new(1024 * MIB);
    struct cpu_memory_stats stats;
    void *p[8];
    assert_non_null(m);
    for (int i = 0; i < 8; i++)
        assert_non_null(p[i] = cpu_memory_get(m, 8 * MIB, false));
    for (int i = 0; i < 8; i++)
        cpu_memory_put(m, p[i], 8 * MIB);
    cpu_memory_tidy(m, 1e6);
    cpu_memory_get_stats(m, &stats);
    assert_int_equal(stats.cached, 64 * MIB);
    usleep(30000);
    void *again = cpu_memory_get(m, 8 * MIB, false);
    assert_ptr_equal(again, p[7]);
    cpu_memory_put(m, again, 8 * MIB);
    for (int i = 0; i < 8; i++) /* a call takes some milliseconds at most */
        cpu_memory_tidy(m, 20);
    cpu_memory_get_stats(m, &stats);
    assert_int_equal(stats.cached, 8 * MIB);
    assert_ptr_equal(cpu_memory_get(m, 8 * MIB, false), again);
    cpu_memory_put(m, again, 8 * MIB);
    for (int i = 0; i < 8; i++)
        cpu_memory_tidy(m, -1);
    cpu_memory_get_stats(m, &stats);
    assert_int_equal(stats.cached, 0);
    cpu_memory_free(m);
}

/* While a piece is unmapped, another thread books all that the limit allows. */
static struct {
    struct cpu_memory *memory; /* NULL: not watched */
    pthread_t thread;
    size_t first;
    _Atomic bool booked;
    bool over;
} unmapping;

static void *book_all(void *user)
{
    struct cpu_memory_stats stats;
    cpu_memory_get_stats(user, &stats);
    atomic_store(&unmapping.booked, cpu_memory_book(user, stats.limit));
    return NULL;
}

/* The C library's. */
int munmap(void *p, size_t n)
{
    struct cpu_memory *m = unmapping.memory;
    unmapping.memory = NULL;
    if (m && pthread_create(&unmapping.thread, NULL, book_all, m) == 0) {
        unmapping.first = n;
        usleep(50000);
        unmapping.over = atomic_load(&unmapping.booked);
    }
    return (int)syscall(SYS_munmap, p, n);
}

static void what_is_still_mapped_is_not_given_out(void **state)
{
    (void)state;
    struct cpu_memory *m = cpu_memory_new(1024 * MIB);
    assert_non_null(m);
    void *p = cpu_memory_get(m, 100 * MIB, false);
    assert_non_null(p);
    cpu_memory_put(m, p, 100 * MIB);
    unmapping.memory = m;
    cpu_memory_tidy(m, -1);
    assert_null(unmapping.memory);
    assert_int_equal(pthread_join(unmapping.thread, NULL), 0);
    assert_true(atomic_load(&unmapping.booked));
    assert_false(unmapping.over);
    assert_true(unmapping.first <= (size_t)(16 * MIB)); /* nobody waits long */
    cpu_memory_unbook(m, 1024 * MIB);
    cpu_memory_free(m);
}

static void small_blocks_take_room_from_the_cache(void **state)
{
    (void)state;
    struct cpu_memory *m = cpu_memory_new(64 * MIB);
    struct cpu_memory_stats stats;
    void *p[256];
    int n = 0;
    assert_non_null(m);
    void *large = cpu_memory_get(m, 8 * MIB, false);
    assert_non_null(large);
    cpu_memory_put(m, large, 8 * MIB);
    while (n < 256 && (p[n] = cpu_memory_get(m, MIB / 4, false)) != NULL)
        n++;
    assert_int_equal(n, 256);
    cpu_memory_get_stats(m, &stats);
    assert_int_equal(stats.live, 64 * MIB);
    assert_int_equal(stats.cached, 0);
    while (n > 0)
        cpu_memory_put(m, p[--n], MIB / 4);
    cpu_memory_free(m);
}

static void test_limit(void **state)
{
    (void)state;
    struct backend *b = open_cpu(64 * MIB);
    struct backend_device d;
    b->ops->device_info(b, 0, &d);
    assert_int_equal(d.memory_total, 64 * MIB);
    assert_int_equal(d.memory_free, 64 * MIB);
    void *p[10];
    int n = 0;
    struct err e = ERR_INIT;
    while (n < 10 && b->ops->alloc(b, 0, 8 * MIB, n & 1, &p[n], &e) == ERR_OK)
        n++;
    assert_int_equal(n, 8);
    assert_int_equal(e.code, ERR_OUT_OF_MEMORY);
    b->ops->device_info(b, 0, &d);
    assert_int_equal(d.memory_free, 0);
    void *small;
    assert_int_equal(b->ops->alloc(b, 0, 1, false, &small, &e), ERR_OUT_OF_MEMORY);
    assert_int_equal(b->ops->alloc(b, 0, INT64_MAX / 2, false, &small, &e), ERR_OUT_OF_MEMORY);
    while (n > 0)
        b->ops->free(b, 0, p[--n], 8 * MIB);
    b->ops->device_info(b, 0, &d);
    assert_int_equal(d.memory_free, 64 * MIB);
    /* What the cache holds gives way to another size. */
    assert_int_equal(b->ops->alloc(b, 0, 63 * MIB, true, &p[0], &e), ERR_OK);
    b->ops->free(b, 0, p[0], 63 * MIB);
    struct strb text = {0};
    b->ops->metrics(b, &text);
    assert_non_null(strstr(text.data, "\narrayd_cpu_memory_live_bytes 0\n"));
    assert_non_null(strstr(text.data, "# TYPE arrayd_cpu_jobs_total counter\n"));
    strb_free(&text);
    backend_close(b);
}

/* The shape's name of the sum of two loads, or of their reduction over `axes`. */
static void expect_shape(struct backend *b, const char *want, bool transposed, int64_t shift,
                         bool gap, uint32_t axes)
{
    struct arena *arena = arena_new(0);
    struct ir_kernel k = {.rank = 2, .shape = {300, 200}};
    struct ir_ctx c = {.rank = 2, .shape = {300, 200}, .src = {0, 1}, .step = {1, 1}};
    struct ir_builder ib;
    ir_builder_init(&ib, arena, &k);
    ir_add_ctx(&ib, &c);
    struct view v = {.rank = 2, .shape = {300, 200}, .strides = {200 + gap, 1}}, w = v;
    if (transposed) {
        w.strides[0] = 1;
        w.strides[1] = 300;
    }
    struct ir_ctx s = c;
    s.offset[1] = shift;
    uint32_t x = ir_emit_load(&ib, 0, DT_F32, &v, 0);
    uint32_t y = ir_emit_load(&ib, 1, DT_F32, &w, ir_add_ctx(&ib, &s));
    struct ir_output o = {.node = ir_emit_op(&ib, OP_ADD, DT_F32, (uint32_t[]){x, y}),
                          .slot = 2,
                          .dtype = DT_F32,
                          .view = {.rank = 2, .shape = {300, 200}, .strides = {200, 1}}};
    if (axes) {
        o.kind = OUT_REDUCE;
        o.axes = axes;
        for (int a = 0; a < 2; a++)
            if (axes >> a & 1) {
                o.view.shape[a] = 1;
                o.view.strides[a] = 0;
            }
        if (axes == 2)
            o.view.strides[0] = 1;
    }
    assert_true(ir_add_output(&ib, &o));
    assert_null(ir_verify(&k, arena));
    struct kernel_explanation how;
    b->ops->explain(b, 0, &k, &how);
    assert_string_equal(how.form, want);
    assert_true(how.cached);
    assert_true(how.registers == -1 && how.shared == -1 && how.local == -1);
    assert_non_null(strstr(how.source.data, "add"));
    assert_int_equal(how.source.data[0], '#');
    strb_free(&how.source);
    arena_free(arena);
}

static void test_explain(void **state)
{
    (void)state;
    struct backend *b = open_cpu(0);
    expect_shape(b, "flat", false, 0, false, 0);
    expect_shape(b, "rows", false, 0, true, 0);
    expect_shape(b, "tile", true, 0, false, 0);
    expect_shape(b, "stencil", false, 1, false, 0);
    expect_shape(b, "reduce-all", false, 0, false, 3);
    expect_shape(b, "reduce-inner", false, 0, false, 2);
    expect_shape(b, "reduce-outer", false, 0, false, 1);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(what_is_not_used_again_goes_back),
        cmocka_unit_test(what_is_still_mapped_is_not_given_out),
        cmocka_unit_test(small_blocks_take_room_from_the_cache),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_explain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
