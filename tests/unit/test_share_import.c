/* share_import of both backends (the GPU's on the fake driver): what a process finds of memory that
 * another one made, what is refused, and every driver call of it failing once. What two processes
 * do is tests/backend/export_suite.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/backend.h"
#include "tests/descriptors.h"
#include "tests/fake/fake_cuda.h"

#define SIZE (INT64_C(4) << 20) /* a multiple of every grain */
#define OOM  2

static const char *const names[] = {"cpu", "cuda"};
static char note[512];

static struct backend *open_backend(int which, int64_t limit)
{
    struct backend_config config = {
        .memory_limit = limit, .slab_memory = 16 << 20, .shareable = true};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    if (backend_open(names[which], &config, &b, note, sizeof note, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return b;
}

/* Both kinds of memory here are files. */
static void fill(int fd, char with)
{
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    for (int64_t i = 0; i < SIZE; i++)
        p[i] = (char)(i * 7 + with);
    munmap(p, SIZE);
}

static void shows(int fd, char with)
{
    char *p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    for (int64_t i = 0; i < SIZE; i++)
        if (p[i] != (char)(i * 7 + with))
            fail_msg("byte %lld", (long long)i);
    munmap(p, SIZE);
}

/* A descriptor of a block that this process has no more. */
static int left_behind(struct backend *b, enum share_mode mode, char with)
{
    struct shared_block block;
    int fd, sealed;
    assert_int_equal(b->ops->share_alloc(b, 0, SIZE, false, true, &block, NULL), ERR_OK);
    assert_int_equal(block.size, SIZE);
    assert_int_equal(b->ops->share_export(b, 0, &block, 0, SHARE_WRITE, false, &fd, NULL), ERR_OK);
    fill(fd, with);
    if (mode == SHARE_SEALED) {
        assert_int_equal(b->ops->share_export(b, 0, &block, 0, mode, false, &sealed, NULL), ERR_OK);
        close(sealed);
    }
    b->ops->share_free(b, 0, &block);
    return fd;
}

static enum err_code import(struct backend *b, int fd, int64_t size, struct shared_block *ret,
                            bool *ret_sealed)
{
    struct err e = ERR_INIT;
    enum err_code code = b->ops->share_import(b, 0, &fd, 1, size, ret, ret_sealed, &e);
    assert_true(code == ERR_OK || (e.code == code && *e.message));
    return code;
}

static void nothing_is_left(struct backend *b, int fds)
{
    backend_close(b);
    assert_int_equal(descriptors(), fds);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
}

static void every_byte_is_there(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        const int fds = descriptors();
        struct backend *b = open_backend(which, 0);
        struct shared_block block;
        bool sealed = true;
        int again, fd = left_behind(b, SHARE_WRITE, 3);
        assert_int_equal(import(b, fd, SIZE, &block, &sealed), ERR_OK);
        assert_int_equal(block.size, SIZE);
        assert_false(sealed);
        close(fd); /* it was borrowed */
        assert_int_equal(b->ops->share_export(b, 0, &block, 0, SHARE_WRITE, false, &again, NULL),
                         ERR_OK);
        shows(again, 3);
        fill(again, 5);
        if (b->ops->host && b->ops->host(b, block.data))
            assert_int_equal(((char *)b->ops->host(b, block.data))[1], 7 + 5);
        b->ops->share_free(b, 0, &block);
        shows(again, 5);
        close(again);
        nothing_is_left(b, fds);
    }
}

static void sealed_memory_is_only_read(void **state)
{
    (void)state;
    const int fds = descriptors();
    struct backend *b = open_backend(0, 0);
    struct shared_block block;
    bool sealed = false;
    int again, fd = left_behind(b, SHARE_SEALED, 9);
    assert_int_equal(import(b, fd, SIZE, &block, &sealed), ERR_OK);
    assert_true(sealed);
    close(fd);
    assert_int_equal(((char *)block.data)[2], 14 + 9);
    assert_false(b->ops->share_fits(b, 0, &block, SHARE_WRITE));
    assert_int_equal(b->ops->share_export(b, 0, &block, 0, SHARE_SEALED, false, &again, NULL),
                     ERR_OK);
    shows(again, 9);
    close(again);
    b->ops->share_free(b, 0, &block);
    nothing_is_left(b, fds);
}

static void what_is_not_memory(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        const int fds = descriptors();
        struct backend *b = open_backend(which, 0);
        struct shared_block block;
        bool sealed;
        int fd = left_behind(b, SHARE_WRITE, 1);
        const int64_t sizes[] = {-1, 0, 1, SIZE - 1, SIZE + 1, INT64_MAX, SIZE / 2, 2 * SIZE};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) /* a GPU's driver does not tell */
            assert_int_equal(import(b, fd, sizes[i], &block, &sealed),
                             which == 1 && i >= 6 ? ERR_OVERLOADED : ERR_STATE);
        int others[] = {-1, memfd_create("other", MFD_CLOEXEC),
                        open("/dev/null", O_RDWR | O_CLOEXEC)};
        assert_int_equal(ftruncate(others[1], SIZE), 0);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(import(b, others[i], SIZE, &block, &sealed), ERR_STATE);
        close(others[1]);
        close(others[2]);
        assert_int_equal(import(b, fd, SIZE, &block, &sealed), ERR_OK);
        b->ops->share_free(b, 0, &block);
        close(fd);
        nothing_is_left(b, fds);
    }
}

/* It is there already. */
static void it_counts_but_no_limit_refuses_it(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        const int fds = descriptors();
        struct backend *b = open_backend(which, SIZE + SIZE / 2);
        struct shared_block block, more, none;
        bool sealed;
        int fd = left_behind(b, SHARE_WRITE, 1), other = left_behind(b, SHARE_WRITE, 2);
        assert_int_equal(import(b, fd, SIZE, &block, &sealed), ERR_OK);
        assert_int_equal(import(b, other, SIZE, &more, &sealed), ERR_OK);
        struct backend_device d;
        b->ops->device_info(b, 0, &d);
        assert_int_equal(d.memory_free, 0);
        b->ops->share_free(b, 0, &block);
        assert_int_equal(b->ops->share_alloc(b, 0, SIZE, false, true, &none, NULL),
                         ERR_OUT_OF_MEMORY);
        b->ops->share_free(b, 0, &more);
        assert_int_equal(b->ops->share_alloc(b, 0, SIZE, false, true, &more, NULL), ERR_OK);
        b->ops->share_free(b, 0, &more);
        close(fd);
        close(other);
        nothing_is_left(b, fds);
    }
}

static void descriptors_run_out(void **state)
{
    (void)state;
    const int fds = descriptors();
    struct backend *b = open_backend(0, 0);
    struct shared_block block;
    struct rlimit was, few;
    bool sealed;
    int fd = left_behind(b, SHARE_WRITE, 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    enum err_code code = import(b, fd, SIZE, &block, &sealed);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(code, ERR_OVERLOADED);
    close(fd);
    nothing_is_left(b, fds);
}

/* With a code that says something of memory, and three that say something of the call: only the
 * first of them, of the import itself, says for certain that this is no memory. */
static void every_call_fails_once(void **state)
{
    (void)state;
    static const int codes[] = {OOM, 1, 801, 999};
    const int fds = descriptors();
    struct backend *b = open_backend(1, 0);
    struct shared_block block;
    bool sealed;
    int fd = left_behind(b, SHARE_WRITE, 1);
    for (size_t i = 0; i < 4; i++) {
        enum err_code code = ERR_STATE;
        int certain = 0;
        int nth = 0;
        while (code != ERR_OK) {
            fake_cuda_reset();
            fake_cuda_fail(++nth, codes[i]);
            code = import(b, fd, SIZE, &block, &sealed);
            const char *at = fake_cuda_failed();
            const bool imports = at && !strcmp(at, "cuMemImportFromShareableHandle");
            fake_cuda_fail(0, 0);
            if (codes[i] == 999 && code != ERR_OK && !imports)
                break; /* a device that is lost */
            certain += code == ERR_STATE;
            assert_true(code == ERR_OK || code == (codes[i] == OOM            ? ERR_OUT_OF_MEMORY
                                                   : codes[i] == 1 && imports ? ERR_STATE
                                                                              : ERR_OVERLOADED));
            if (code != ERR_OK) {
                assert_int_equal(fake_cuda_live(FAKE_BYTES), 0);
                assert_int_equal(fake_cuda_live(FAKE_HANDLES) + fake_cuda_live(FAKE_RANGES), 0);
            }
        }
        assert_int_equal(certain, codes[i] == 1);
        if (code != ERR_OK)
            break;
        assert_true(nth > 5); /* import, whose it is, addresses, mapping, access */
        b->ops->share_free(b, 0, &block);
    }
    fake_cuda_reset();
    close(fd);
    nothing_is_left(b, fds);
}

static void a_lost_device(void **state)
{
    (void)state;
    enum err_code code = ERR_DEVICE_LOST;
    for (int nth = 1; code != ERR_OK; nth++) {
        struct backend *b = open_backend(1, 0);
        struct shared_block block;
        bool sealed;
        int fd = left_behind(b, SHARE_WRITE, 1);
        fake_cuda_fail(nth, 719);
        code = import(b, fd, SIZE, &block, &sealed);
        assert_true(code == ERR_OK || code == ERR_DEVICE_LOST);
        fake_cuda_fail(0, 0);
        if (code == ERR_OK)
            b->ops->share_free(b, 0, &block);
        close(fd);
        backend_close(b);
        fake_cuda_reset();
        assert_true(nth < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_there), cmocka_unit_test(sealed_memory_is_only_read),
        cmocka_unit_test(what_is_not_memory),  cmocka_unit_test(it_counts_but_no_limit_refuses_it),
        cmocka_unit_test(descriptors_run_out), cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(a_lost_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
