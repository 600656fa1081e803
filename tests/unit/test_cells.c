/* compute/memory/cells: taken and given at random, run out of, and found again by the next one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/memory/cells.h"
#include "tests/descriptors.h"

#define MOST 300

static struct cells *cells_of(uint32_t most)
{
    struct cells *c = NULL;
    assert_int_equal(cells_new(most, -1, &c, NULL), ERR_OK);
    return c;
}

static void at_random(void **state)
{
    (void)state;
    struct cells *c = cells_of(MOST);
    bool taken[MOST + 1] = {false};
    uint32_t seed = 1, n = 0;
    for (int i = 0; i < 100000; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t which = 1 + (seed >> 8) % MOST;
        if (seed >> 31 || !taken[which]) {
            const uint32_t cell = cells_take(c);
            assert_true(cell ? !taken[cell] && cell <= MOST : n == MOST);
            if (!cell)
                continue;
            taken[cell] = true;
            n++;
            struct cell *at = cells_at(c, cell);
            assert_int_equal(at->writing + at->owner + at->coming, 0);
            atomic_store(&at->writing, 1);
            atomic_store(&at->owner, 2);
            atomic_store(&at->coming, 3);
        } else {
            cells_give(c, which);
            taken[which] = false;
            n--;
        }
    }
    cells_free(c);
}

static void the_next_one_finds_them(void **state)
{
    (void)state;
    const int fds = descriptors();
    struct cells *c = cells_of(MOST), *next = NULL;
    for (uint32_t i = 1; i <= 20; i++) {
        assert_int_equal(cells_take(c), i);
        atomic_store(&cells_at(c, i)->owner, 100 + i);
        atomic_store(&cells_at(c, i)->writing, i & 1);
    }
    int fd = fcntl(cells_fd(c), F_DUPFD_CLOEXEC, 0);
    cells_free(c);
    assert_int_equal(cells_new(5, fd, &next, NULL), ERR_OK);
    assert_null(cells_take_at(next, 0));
    assert_null(cells_take_at(next, MOST + 1));
    assert_null(cells_take_at(next, UINT32_MAX));
    for (uint32_t i = 2; i <= 20; i += 2) {
        struct cell *at = cells_take_at(next, i);
        assert_non_null(at);
        assert_int_equal(at->owner, 100 + i);
        assert_int_equal(at->writing, 0);
        assert_null(cells_take_at(next, i));
    }
    assert_null(cells_take_at(next, 21));
    assert_int_equal(cells_take(next), 21);
    cells_settle(next);
    for (uint32_t i = 1; i <= 20; i += 2) { /* what nobody asked for is free */
        assert_int_equal(cells_take(next), i);
        assert_int_equal(cells_at(next, i)->owner, 0);
    }
    for (uint32_t i = 22; i <= MOST; i++)
        assert_int_equal(cells_take(next), i);
    assert_int_equal(cells_take(next), 0);
    cells_free(next);
    assert_int_equal(descriptors(), fds);
}

/* The limit was raised meanwhile. */
/* As the keeper saw it, however much later the next one starts. */
static void how_it_ended(void **state)
{
    (void)state;
    static const struct {
        int signal;
        int64_t when;
        bool changed;
        const char *text;
    } ends[] = {
        {9, 1700000000, false,
         "was being written when the daemon died of signal 9 (Killed) at 2023-11-14T22:13:20"},
        {0, 1700000000, false, "was being written when the daemon ended at 2023-11-14T22:13:20"},
        {0, 1700000000, true,
         "was changed by something else when the daemon ended at 2023-11-14T22:13:20"},
        {9, 0, false, "was being written when the daemon died of signal 9 (Killed) at 20"},
        {0, 0, false, "was being written when the daemon ended before 20"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char text[160];
        struct cells *c = cells_of(MOST), *next = NULL;
        const uint32_t cell = cells_take(c);
        atomic_store(&cells_at(c, cell)->owner, 1);
        int fd = fcntl(cells_fd(c), F_DUPFD_CLOEXEC, 0);
        cells_free(c);
        assert_int_equal(cells_new(MOST, fd, &next, NULL), ERR_OK);
        cells_died(next, ends[i].signal, ends[i].when);
        assert_non_null(cells_take_at(next, cell));
        cells_how_text(cells_lose(next, cell, ends[i].changed), text, sizeof text);
        if (strncmp(text, ends[i].text, strlen(ends[i].text)) != 0)
            fail_msg("%s", text);
        cells_free(next);
    }
}

static void the_next_one_has_more(void **state)
{
    (void)state;
    struct cells *c = cells_of(10), *next = NULL;
    for (uint32_t i = 1; i <= 10; i++)
        assert_int_equal(cells_take(c), i);
    atomic_store(&cells_at(c, 7)->owner, 107);
    int fd = fcntl(cells_fd(c), F_DUPFD_CLOEXEC, 0);
    cells_free(c);
    assert_int_equal(cells_new(MOST, fd, &next, NULL), ERR_OK);
    assert_int_equal(cells_take_at(next, 7)->owner, 107);
    for (uint32_t i = 1; i <= MOST; i++)
        if (i != 7) {
            assert_int_equal(cells_take(next), i);
            atomic_store(&cells_at(next, i)->owner, i);
        }
    assert_int_equal(cells_take(next), 0);
    cells_free(next);
}

/* It refuses no start. */
static void what_is_none(void **state)
{
    (void)state;
    const int fds = descriptors();
    struct cells *c;
    for (int i = 0; i < 4; i++) {
        int fd = i == 3 ? open("/dev/null", O_RDWR | O_CLOEXEC) : memfd_create("test", MFD_CLOEXEC);
        if (i < 3)
            assert_int_equal(ftruncate(fd, i == 0 ? 0 : i == 1 ? 40 : 4096), 0);
        assert_int_equal(cells_new(5, fd, &c, NULL), ERR_OK);
        assert_true(cells_are_damaged(c));
        assert_int_equal(cells_are_new(c), i == 0 || i == 3);
        assert_null(cells_take_at(c, 1));
        assert_int_equal(cells_take(c), 1);
        cells_free(c);
    }
    assert_int_equal(descriptors(), fds);
}

/* A stray write over the opening, and so many bytes behind it: a cell in which it ends is not
 * believed, whatever it was. */
static void a_stray_write(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 4 * sizeof(struct cell); n++) {
        struct cells *c = cells_of(5), *next = NULL;
        for (uint32_t i = 1; i <= 3; i++) {
            assert_int_equal(cells_take(c), i);
            atomic_store(&cells_at(c, i)->owner, 0x0101010101010101 * i);
            atomic_store(&cells_at(c, i)->writing, i == 2);
        }
        memset(cells_at(c, 0), 0, n);
        int fd = fcntl(cells_fd(c), F_DUPFD_CLOEXEC, 0);
        cells_free(c);
        assert_int_equal(cells_new(5, fd, &next, NULL), ERR_OK);
        assert_true(cells_are_damaged(next) && !cells_are_new(next));
        for (uint32_t i = 1; i <= 3; i++) {
            const struct cell *x = cells_at(next, i);
            const bool whole =
                atomic_load(&x->owner) == 0x0101010101010101 * i && atomic_load(&x->writing) == 0;
            assert_int_equal(whole, i != 2 && n <= i * sizeof *x);
        }
        fd = fcntl(cells_fd(next), F_DUPFD_CLOEXEC, 0);
        cells_free(next);
        assert_int_equal(cells_new(5, fd, &next, NULL), ERR_OK);
        assert_false(cells_are_damaged(next)); /* it has been mended */
        cells_free(next);
    }
}

static void without_memory(void **state)
{
    (void)state;
    const int64_t live = mem_live();
    const int fds = descriptors();
    enum err_code code = ERR_OUT_OF_MEMORY;
    for (int64_t nth = 1; code != ERR_OK; nth++) {
        struct cells *c = NULL;
        mem_fail_after(nth, false);
        code = cells_new(5, -1, &c, NULL);
        mem_fail_after(0, false);
        assert_true(code == ERR_OK || (code == ERR_OUT_OF_MEMORY && !c));
        cells_free(c);
        assert_int_equal(mem_live(), live);
        assert_int_equal(descriptors(), fds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_random),      cmocka_unit_test(the_next_one_finds_them),
        cmocka_unit_test(how_it_ended),   cmocka_unit_test(the_next_one_has_more),
        cmocka_unit_test(what_is_none),   cmocka_unit_test(a_stray_write),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
