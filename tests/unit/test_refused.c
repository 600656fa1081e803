/* Which kernels are refused after a fault, and what of that is left in the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/refused.h"

#define WHY "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"

struct folder {
    char path[64];
    int fd;
    int64_t live_before;
};

static int set_up(void **state)
{
    static struct folder f;
    f.live_before = mem_live();
    snprintf(f.path, sizeof f.path, "/tmp/arrayd-refused-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    f.fd = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f.fd >= 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct folder *f = *state;
    unlinkat(f->fd, FAULTED_FILE, 0);
    close(f->fd);
    return rmdir(f->path) == 0 && mem_live() == f->live_before ? 0 : -1; /* nothing else is there */
}

static struct kcache_key key_of(int k)
{
    struct kcache_key key;
    memset(&key, 'a' + k, sizeof key);
    memcpy(key.sha, &k, sizeof k);
    return key;
}

static struct refused_kernel kernel(int k)
{
    return (struct refused_kernel){.key = key_of(k), .form = "flat"};
}

static bool is_refused(struct refused *r, int k)
{
    struct kcache_key key = key_of(k);
    return refused_find(r, &key, 1) != 0;
}

static bool are_refused(struct refused *r, int a, int b)
{
    struct kcache_key keys[] = {key_of(a), key_of(b)};
    return refused_find(r, keys, 2) != 0;
}

/* One piece of work of one kernel each. */
static void fault_of_two(struct refused *r, int a, int b)
{
    struct refused_kernel x = kernel(a), y = kernel(b);
    struct refused_work works[] = {{&x, 1}, {&y, 1}};
    assert_true(refused_fault(r, WHY, works, 2, true));
}

static void fault_of_one(struct refused *r, int a)
{
    struct refused_kernel x = kernel(a);
    struct refused_work work = {&x, 1};
    assert_true(refused_fault(r, WHY, &work, 1, true));
    assert_true(x.refused);
}

static struct refused *open_in(const struct folder *f)
{
    struct refused *r = refused_open(f->fd);
    assert_non_null(r);
    return r;
}

static void test_one_that_was_alone(void **state)
{
    struct refused *r = open_in(*state);
    char why[REFUSED_TEXT];
    struct kcache_key key = key_of(1);
    assert_true(refused_is_empty(r) && !refused_any(r) && !is_refused(r, 1));
    fault_of_one(r, 1);
    assert_true(refused_any(r) && is_refused(r, 1) && !is_refused(r, 2));
    assert_true(are_refused(r, 2, 1)); /* a plan that has it */
    refused_reason(r, refused_find(r, &key, 1), why);
    assert_non_null(strstr(why, "the flat kernel "));
    assert_non_null(strstr(why, WHY));
    refused_close(r);
    r = open_in(*state); /* another process */
    assert_true(is_refused(r, 1) && refused_count(r) == 1);
    refused_close(r);
}

/* The same kernel in several pieces of work is one. */
static void test_one_of_several_works(void **state)
{
    struct refused *r = open_in(*state);
    fault_of_two(r, 1, 1);
    assert_true(is_refused(r, 1));
    refused_close(r);
}

static void test_one_of_several(void **state)
{
    struct refused *r = open_in(*state);
    struct kcache_key key = key_of(1);
    fault_of_two(r, 1, 2);
    assert_false(refused_any(r) || is_refused(r, 1) || are_refused(r, 1, 2));
    assert_true(refused_suspects(r, &key));
    refused_close(r);
    r = open_in(*state);
    assert_true(!refused_is_empty(r) && refused_suspects(r, &key));
    fault_of_two(r, 1, 3);
    assert_true(is_refused(r, 1));
    assert_false(is_refused(r, 2) || is_refused(r, 3));
    refused_close(r);
}

/* What was just being launched. */
static void test_one_that_may_not_have_been_there(void **state)
{
    struct refused *r = open_in(*state);
    for (int again = 0; again < 2; again++) {
        struct refused_kernel x = kernel(1);
        struct refused_work work = {&x, 1};
        assert_true(refused_fault(r, WHY, &work, 1, false));
        assert_int_equal(x.refused, again);
    }
    refused_close(r);
}

static void test_kernels_of_one_plan(void **state)
{
    struct refused *r = open_in(*state);
    struct refused_kernel two[] = {kernel(1), kernel(2)};
    struct refused_work works[] = {{two, 2}, {NULL, 0}}; /* another copied */
    assert_true(refused_fault(r, WHY, works, 2, true));
    assert_false(two[0].refused || two[1].refused);
    assert_true(are_refused(r, 1, 2) && are_refused(r, 2, 1));
    assert_false(is_refused(r, 1) || is_refused(r, 2) || are_refused(r, 1, 3));
    refused_close(r);
}

static void write_file(const struct folder *f, const char *text)
{
    unlinkat(f->fd, FAULTED_FILE, 0);
    int fd = openat(f->fd, FAULTED_FILE, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void line_of(int k, time_t at, char ret[256])
{
    char date[32], text[KCACHE_KEY_TEXT];
    struct tm tm;
    struct kcache_key key = key_of(k);
    kcache_key_text(&key, text);
    gmtime_r(&at, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(ret, 256, "suspect %s %s flat %s\n", date, text, WHY);
}

static void test_suspicion_ends(void **state)
{
    char line[256];
    line_of(1, time(NULL) - 25 * 3600, line);
    write_file(*state, line);
    struct refused *r = open_in(*state);
    struct kcache_key key = key_of(1);
    assert_false(refused_suspects(r, &key));
    fault_of_two(r, 1, 2);
    assert_false(is_refused(r, 1));
    fault_of_two(r, 1, 3);
    assert_true(is_refused(r, 1));
    refused_close(r);
}

static void test_the_file_is_the_operators(void **state)
{
    const struct folder *f = *state;
    struct refused *r = open_in(f);
    fault_of_one(r, 1);
    fault_of_one(r, 2);
    write_file(f, "# nothing that is a line of ours\nrefused yesterday 12 flat\nrefused\n\n");
    assert_false(is_refused(r, 1) || is_refused(r, 2) || refused_any(r));
    fault_of_one(r, 1);
    unlinkat(f->fd, FAULTED_FILE, 0);
    assert_false(is_refused(r, 1));
    fault_of_one(r, 1);
    assert_int_equal(fchmodat(f->fd, FAULTED_FILE, 0666, 0), 0);
    refused_close(r);
    r = open_in(f); /* anybody may have written that */
    assert_false(is_refused(r, 1));
    refused_close(r);
}

static void test_there_is_a_most(void **state)
{
    enum { MANY = REFUSED_MOST + 50 };
    struct refused *r = open_in(*state);
    static struct refused_kernel kernels[MANY];
    static struct refused_work works[MANY];
    fault_of_one(r, 0);
    for (int again = 0; again < 2; again++) {
        for (int k = 0; k < MANY; k++) {
            kernels[k] = kernel(k + 1);
            works[k] = (struct refused_work){&kernels[k], 1};
        }
        assert_true(refused_fault(r, WHY, works, MANY, true));
        assert_true(is_refused(r, 0)); /* those under suspicion give way */
        assert_int_equal(refused_count(r), again ? REFUSED_MOST : 1);
    }
    fault_of_one(r, MANY + 1);
    assert_true(is_refused(r, MANY + 1) && !is_refused(r, 0)); /* the oldest */
    assert_int_equal(refused_count(r), REFUSED_MOST);
    refused_close(r);
    r = open_in(*state);
    assert_int_equal(refused_count(r), REFUSED_MOST);
    refused_close(r);
}

/* What could not be written holds in this process, and is written with what comes next. */
static void test_what_cannot_be_written(void **state)
{
    const struct folder *f = *state;
    struct refused *r = open_in(f);
    for (int k = 1; k <= 3; k++) { /* with no file at first, and then with one that stays behind */
        struct refused_kernel x = kernel(k);
        struct refused_work work = {&x, 1};
        if (k != 2)
            assert_int_equal(mkdirat(f->fd, ".tmp-" FAULTED_FILE, 0700), 0); /* it is in the way */
        assert_int_equal(refused_fault(r, WHY, &work, 1, true), k == 2);
        if (k != 2)
            assert_int_equal(unlinkat(f->fd, ".tmp-" FAULTED_FILE, AT_REMOVEDIR), 0);
        for (int was = 1; was <= k; was++)
            assert_true(is_refused(r, was));
        assert_int_equal(refused_count(r), k);
    }
    refused_close(r);
    r = open_in(f);
    assert_true(is_refused(r, 1) && is_refused(r, 2) && !is_refused(r, 3));
    refused_close(r);
}

static void test_without_a_folder(void **state)
{
    (void)state;
    struct refused *r = refused_open(-1);
    struct refused_kernel x = kernel(1);
    struct refused_work work = {&x, 1};
    assert_non_null(r);
    assert_false(refused_fault(r, WHY, &work, 1, true));
    assert_true(is_refused(r, 1));
    refused_close(r);
    refused_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_that_was_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_of_several_works, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_of_several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_may_not_have_been_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kernels_of_one_plan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_suspicion_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_file_is_the_operators, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_there_is_a_most, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_written, set_up, tear_down),
        cmocka_unit_test(test_without_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
