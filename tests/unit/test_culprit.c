/* What is refused or suspected after a fault or a crash, and what of that outlives the process, in
 * memory and in the file. */
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
#include "compute/culprit/alone.h"
#include "compute/culprit/culprit.h"

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
    snprintf(f.path, sizeof f.path, "/tmp/arrayd-culprit-XXXXXX");
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

static struct code_key key_of(int k)
{
    struct code_key key;
    memset(&key, 'a' + k, sizeof key);
    memcpy(key.sha, &k, sizeof k);
    return key;
}

static struct culprit_kernel kernel(int k)
{
    return (struct culprit_kernel){.key = key_of(k), .form = "flat"};
}

static struct culprit_verdict verdict(struct culprits *r, int k)
{
    struct code_key key = key_of(k);
    return culprits_judge(r, &key, 1, &key);
}

static bool is_refused(struct culprits *r, int k)
{
    return verdict(r, k).code == ERR_PLAN_FAULTED;
}

static bool runs_alone(struct culprits *r, int k)
{
    return verdict(r, k).alone;
}

static struct code_key plan_of(int a, int b)
{
    struct code_key plan = key_of(a), other = key_of(b);
    code_key_add(&plan, &other);
    return plan;
}

static struct culprit_verdict verdict_of_two(struct culprits *r, int a, int b)
{
    struct code_key keys[] = {key_of(a), key_of(b)}, plan = plan_of(a, b);
    return culprits_judge(r, keys, 2, &plan);
}

static bool are_refused(struct culprits *r, int a, int b)
{
    return verdict_of_two(r, a, b).code != ERR_OK;
}

static void come_through(struct culprits *r, int k)
{
    struct code_key key = key_of(k);
    culprits_cleared(r, &key, 1, &key);
}

/* One piece of work of one kernel each. */
static void fault_of_two(struct culprits *r, int a, int b)
{
    struct culprit_kernel x = kernel(a), y = kernel(b);
    struct culprit_work works[] = {{&x, 1, x.key}, {&y, 1, y.key}};
    assert_true(culprits_fault(r, WHY, works, 2, true));
}

static void fault_of_one(struct culprits *r, int a)
{
    struct culprit_kernel x = kernel(a);
    struct culprit_work work = {&x, 1, x.key};
    assert_true(culprits_fault(r, WHY, &work, 1, true));
    assert_true(x.refused);
}

static struct culprits *open_in(const struct folder *f)
{
    struct culprits *r = culprits_open(false, -1);
    assert_non_null(r);
    culprits_folder(r, f->fd);
    return r;
}

static void test_one_that_was_alone(void **state)
{
    struct culprits *r = open_in(*state);
    char why[CULPRITS_TEXT];
    assert_true(culprits_is_empty(r) && !culprits_count(r) && !is_refused(r, 1));
    fault_of_one(r, 1);
    assert_true(culprits_count(r) && is_refused(r, 1) && !is_refused(r, 2));
    assert_int_equal(verdict_of_two(r, 2, 1).code, ERR_FAULTED); /* a plan that has it */
    culprits_reason(r, verdict(r, 1).refusal, why);
    assert_non_null(strstr(why, "the flat kernel "));
    assert_non_null(strstr(why, WHY));
    culprits_close(r);
    r = open_in(*state); /* another process */
    assert_true(is_refused(r, 1) && culprits_count(r) == 1);
    culprits_close(r);
}

/* The same kernel in several pieces of work is one. */
static void test_one_of_several_works(void **state)
{
    struct culprits *r = open_in(*state);
    fault_of_two(r, 1, 1);
    assert_true(is_refused(r, 1));
    culprits_close(r);
}

/* Nobody is refused for what ran beside other work, however often. */
static void test_one_of_several(void **state)
{
    struct culprits *r = open_in(*state);
    fault_of_two(r, 1, 2);
    assert_true(runs_alone(r, 1) && runs_alone(r, 2) && !runs_alone(r, 3));
    culprits_close(r);
    r = open_in(*state);
    assert_true(!culprits_is_empty(r) && culprits_suspects(r) == 2);
    fault_of_two(r, 1, 3);
    fault_of_two(r, 1, 4);
    assert_int_equal(culprits_count(r), 0);
    come_through(r, 2);
    assert_true(!runs_alone(r, 2) && runs_alone(r, 1) && runs_alone(r, 3));
    fault_of_one(r, 1);
    assert_true(is_refused(r, 1) && !runs_alone(r, 1));
    come_through(r, 1); /* that takes nothing back */
    assert_true(is_refused(r, 1));
    culprits_close(r);
    r = open_in(*state);
    assert_true(is_refused(r, 1) && !runs_alone(r, 2) && runs_alone(r, 3));
    culprits_close(r);
}

/* What was just being launched, say. */
static void test_one_that_may_not_have_been_there(void **state)
{
    struct culprits *r = open_in(*state);
    for (int again = 0; again < 2; again++) {
        struct culprit_kernel x = kernel(1);
        struct culprit_work work = {&x, 1, x.key};
        assert_true(culprits_fault(r, WHY, &work, 1, false));
        assert_false(x.refused);
        assert_true(runs_alone(r, 1));
    }
    culprits_close(r);
}

static void test_kernels_of_one_plan(void **state)
{
    struct culprits *r = open_in(*state);
    struct culprit_kernel two[] = {kernel(1), kernel(2)};
    struct culprit_work works[] = {{two, 2, plan_of(1, 2)}, {NULL, 0}}; /* another copied */
    assert_true(culprits_fault(r, WHY, works, 2, true));
    assert_false(two[0].refused || two[1].refused);
    assert_int_equal(verdict_of_two(r, 2, 1).code, ERR_PLAN_FAULTED);
    assert_false(is_refused(r, 1) || is_refused(r, 2) || are_refused(r, 1, 3));
    struct code_key key = key_of(1);
    assert_true(culprits_avoids(r, &key) && runs_alone(r, 1) && verdict_of_two(r, 1, 3).alone);
    /* the kernel that another plan that faults has, too */
    struct culprit_kernel others[] = {kernel(3), kernel(1)};
    struct culprit_work other = {others, 2, plan_of(1, 3)};
    assert_true(culprits_fault(r, WHY, &other, 1, true));
    assert_true(is_refused(r, 1) && !is_refused(r, 2) && !is_refused(r, 3) && others[1].refused);
    come_through(r, 3);
    key = key_of(3);
    assert_true(are_refused(r, 1, 3) && !runs_alone(r, 3) && !culprits_avoids(r, &key));
    culprits_close(r);
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
    char date[32], text[CODE_KEY_TEXT];
    struct tm tm;
    struct code_key key = key_of(k);
    code_key_text(&key, text);
    gmtime_r(&at, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(ret, 256, "suspect %s %s flat %s\n", date, text, WHY);
}

static void test_suspicion_ends(void **state)
{
    char line[256];
    line_of(1, time(NULL) - 25 * 3600, line);
    write_file(*state, line);
    struct culprits *r = open_in(*state);
    assert_false(runs_alone(r, 1) || culprits_suspects(r));
    fault_of_two(r, 1, 2);
    assert_true(runs_alone(r, 1));
    culprits_close(r);
}

static void test_the_file_is_the_operators(void **state)
{
    const struct folder *f = *state;
    struct culprits *r = open_in(f);
    fault_of_one(r, 1);
    fault_of_one(r, 2);
    write_file(f, "# nothing that is a line of ours\nrefused yesterday 12 flat\nrefused\n\n");
    assert_false(is_refused(r, 1) || is_refused(r, 2) || culprits_count(r));
    fault_of_one(r, 1);
    unlinkat(f->fd, FAULTED_FILE, 0);
    assert_false(is_refused(r, 1));
    fault_of_one(r, 1);
    assert_int_equal(fchmodat(f->fd, FAULTED_FILE, 0666, 0), 0);
    culprits_close(r);
    r = open_in(f); /* anybody may have written that */
    assert_false(is_refused(r, 1));
    culprits_close(r);
}

static void test_there_is_a_most(void **state)
{
    enum { MANY = CULPRITS_MOST + 50 };
    struct culprits *r = open_in(*state);
    static struct culprit_kernel kernels[MANY];
    static struct culprit_work works[MANY];
    fault_of_one(r, 0);
    for (int k = 0; k < MANY; k++) {
        kernels[k] = kernel(k + 1);
        works[k] = (struct culprit_work){&kernels[k], 1, kernels[k].key};
    }
    assert_true(culprits_fault(r, WHY, works, MANY, true));
    assert_true(is_refused(r, 0)); /* those under suspicion give way */
    assert_true(culprits_count(r) == 1 && culprits_suspects(r) == CULPRITS_MOST - 1);
    for (int k = 1; k < CULPRITS_MOST; k++)
        fault_of_one(r, k);
    assert_int_equal(culprits_count(r), CULPRITS_MOST);
    fault_of_one(r, MANY + 1);
    assert_true(is_refused(r, MANY + 1) && !is_refused(r, 0)); /* the oldest */
    assert_int_equal(culprits_count(r), CULPRITS_MOST);
    culprits_close(r);
    r = open_in(*state);
    assert_int_equal(culprits_count(r), CULPRITS_MOST);
    culprits_close(r);
}

/* What could not be written holds in this process, and is written with what comes next. */
static void test_what_cannot_be_written(void **state)
{
    const struct folder *f = *state;
    struct culprits *r = open_in(f);
    for (int k = 1; k <= 3; k++) { /* with no file at first, and then with one that stays behind */
        struct culprit_kernel x = kernel(k);
        struct culprit_work work = {&x, 1, x.key};
        if (k != 2)
            assert_int_equal(mkdirat(f->fd, ".tmp-" FAULTED_FILE, 0700), 0); /* it is in the way */
        assert_int_equal(culprits_fault(r, WHY, &work, 1, true), k == 2);
        if (k != 2)
            assert_int_equal(unlinkat(f->fd, ".tmp-" FAULTED_FILE, AT_REMOVEDIR), 0);
        for (int was = 1; was <= k; was++)
            assert_true(is_refused(r, was));
        assert_int_equal(culprits_count(r), k);
    }
    culprits_close(r);
    r = open_in(f);
    assert_true(is_refused(r, 1) && is_refused(r, 2) && !is_refused(r, 3));
    culprits_close(r);
}

static void test_without_a_folder(void **state)
{
    (void)state;
    struct culprits *r = culprits_open(false, -1);
    struct culprit_kernel x = kernel(1);
    struct culprit_work work = {&x, 1, x.key};
    assert_non_null(r);
    assert_false(culprits_fault(r, WHY, &work, 1, true));
    assert_true(is_refused(r, 1));
    culprits_kept(r);
    assert_true(culprits_fault(r, WHY, &work, 1, true));
    culprits_close(r);
    culprits_close(NULL);
}

/* --- the memory that the next process gets --- */

static struct culprits *in_memory(int take_fd)
{
    struct culprits *r = culprits_open(true, take_fd);
    assert_non_null(r);
    culprits_kept(r);
    return r;
}

/* The process ends; another one has the memory. */
static struct culprits *next(struct culprits *r)
{
    int fd = dup(culprits_fd(r));
    culprits_close(r);
    r = in_memory(fd);
    return r;
}

static void test_what_the_next_process_knows(void **state)
{
    struct culprits *r = in_memory(-1);
    fault_of_two(r, 1, 2);
    fault_of_one(r, 3);
    culprits_limit(r, 1, 60);
    assert_int_equal(culprits_strike(r, "eve"), 1);
    r = next(r);
    culprits_limit(r, 1, 60);
    assert_true(runs_alone(r, 1) && is_refused(r, 3) && culprits_barred(r, "eve") > 50);
    /* with a folder from now on: what it has not got yet is written there */
    culprits_folder(r, ((const struct folder *)*state)->fd);
    assert_true(runs_alone(r, 1) && is_refused(r, 3) && culprits_barred(r, "eve") > 50);
    culprits_close(r);
    r = open_in(*state);
    assert_true(runs_alone(r, 1) && is_refused(r, 3));
    /* a line that was deleted while no process ran counts, too */
    unlinkat(((const struct folder *)*state)->fd, FAULTED_FILE, 0);
    r = next(r);
    culprits_folder(r, ((const struct folder *)*state)->fd);
    assert_true(culprits_is_empty(r) && !is_refused(r, 3));
    culprits_close(r);
}

static void overwrite(const struct culprits *r, off_t at, size_t n)
{
    char bytes[64];
    memset(bytes, 0xee, sizeof bytes);
    assert_int_equal(pwrite(culprits_fd(r), bytes, n, at), n);
}

static void test_memory_of_others(void **state)
{
    (void)state;
    struct culprits *r = in_memory(-1);
    fault_of_one(r, 1);
    overwrite(r, 16, 2); /* the version */
    r = next(r);
    assert_true(culprits_is_empty(r));
    fault_of_one(r, 1);
    overwrite(r, 0, 2); /* what it is at all */
    r = next(r);
    assert_true(culprits_is_empty(r));
    fault_of_one(r, 1);
    assert_int_equal(ftruncate(culprits_fd(r), 100), 0);
    culprits_close(r);
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    r = in_memory(fd);
    assert_true(r && culprits_is_empty(r));
    culprits_close(r);
}

/* Whatever is overwritten: lengths and texts stay within bounds. */
static void test_memory_that_is_damaged(void **state)
{
    (void)state;
    struct stat st;
    for (off_t at = 48;; at += 8) {
        struct culprits *r = in_memory(-1);
        char why[CULPRITS_TEXT];
        fault_of_two(r, 1, 2);
        fault_of_one(r, 3);
        culprits_strike(r, "eve");
        assert_int_equal(fstat(culprits_fd(r), &st), 0);
        overwrite(r, at, 8);
        r = next(r);
        culprits_limit(r, 1, 60);
        (void)culprits_barred(r, "eve");
        culprits_reason(r, verdict(r, 3).refusal, why);
        (void)culprits_crashed(r, WHY);
        culprits_close(r);
        if (at > 4096 && at + 5000 < st.st_size)
            at += 4000;
        if (at + 16 > st.st_size)
            break;
    }
}

static uint32_t begin(struct culprits *r, int k, uint32_t n_kernels, const char *who, bool alone)
{
    struct code_key key = key_of(k);
    return culprits_begin(r, &key, n_kernels, "rows", (struct culprit_who){.name = who}, alone);
}

static void test_what_was_running(void **state)
{
    (void)state;
    uint32_t n;
    struct culprits *r = in_memory(-1);
    assert_true(!culprits_left(r, &n) && n == 0);
    uint32_t over = begin(r, 1, 1, "ann", false);
    assert_true(over && begin(r, 2, 3, "bob", false) && begin(r, 3, 1, NULL, true));
    culprits_end(r, over);
    culprits_end(r, 0);
    r = next(r);
    const struct culprit_left *left = culprits_left(r, &n);
    assert_int_equal(n, 2);
    assert_string_equal(left[0].who, "bob");
    assert_string_equal(left[0].form, "plan-of-3");
    assert_string_equal(left[1].form, "rows");
    assert_true(left[1].alone && !left[0].alone);
    culprits_crashed(r, WHY);
    assert_true(runs_alone(r, 2) && runs_alone(r, 3) && !runs_alone(r, 1) && !left[0].refused);
    r = next(r); /* nothing was running in that one */
    assert_true(culprits_left(r, &n) && n == 0 && runs_alone(r, 2));
    /* one that was alone is suspected first, and refused when it was to be alone */
    assert_true(begin(r, 4, 1, "ann", false));
    r = next(r);
    culprits_crashed(r, WHY);
    assert_true(runs_alone(r, 4));
    assert_true(begin(r, 4, 1, "ann", true));
    r = next(r);
    culprits_crashed(r, WHY);
    assert_true(is_refused(r, 4) && culprits_left(r, &n)[0].refused);
    culprits_close(r);
}

static void test_more_than_there_is_room_for(void **state)
{
    (void)state;
    struct culprits *r = in_memory(-1);
    uint32_t last = 0, n = 0;
    for (uint32_t got = begin(r, 1, 1, "a", false); got; got = begin(r, 1, 1, "a", false), n++)
        last = got;
    assert_true(n >= 1000);
    culprits_end(r, last);
    assert_int_equal(begin(r, 1, 1, "a", false), last);
    culprits_close(r);
}

/* --- users --- */

static void count_strikes(void *user, const struct culprit_strike *s)
{
    *(int *)user += strcmp(s->who, "eve") == 0;
}

static void test_users(void **state)
{
    const struct folder *f = *state;
    struct culprits *r = open_in(f);
    struct err e = ERR_INIT;
    int n = 0;
    culprits_limit(r, 3, 100);
    assert_true(culprits_strike(r, "eve") == 1 && culprits_strike(r, "ann") == 1);
    assert_int_equal(culprits_strike(r, "eve"), 2);
    assert_true(culprits_barred(r, "eve") == 0 && culprits_admit(r, "eve", &e) == ERR_OK);
    culprits_close(r);
    r = open_in(f);
    culprits_limit(r, 3, 100);
    assert_int_equal(culprits_strike(r, "eve"), 3);
    assert_true(culprits_barred(r, "eve") > 90 && culprits_barred(r, "ann") == 0);
    assert_int_equal(culprits_admit(r, "eve", &e), ERR_PRINCIPAL_FAULTED);
    assert_true(e.retry_s > 90 && e.retry_s <= 101 && strstr(e.message, "3 times within 100"));
    culprits_limit(r, 0, 100);
    assert_true(culprits_barred(r, "eve") == 0);
    culprits_limit(r, 3, 100);
    culprits_each(r, NULL, count_strikes, &n);
    assert_int_equal(n, 3);
    assert_int_equal(culprits_forget(r, "eve"), 3);
    assert_true(culprits_barred(r, "eve") == 0 && culprits_forget(r, "eve") == 0);
    culprits_close(r);
    /* old ones do not count, nor those of another version, which the file says */
    write_file(f, "# arrayd " ARRAYD_VERSION "\nstrike 2020-01-01T00:00:00Z eve\n"
                  "strike 2020-01-01T00:00:01Z eve\nstrike 2020-01-01T00:00:02Z eve\n");
    r = open_in(f);
    culprits_limit(r, 3, 100);
    assert_true(culprits_barred(r, "eve") == 0 && culprits_strike(r, "eve") == 1);
    culprits_limit(r, 3, 1e12);
    assert_true(culprits_barred(r, "eve") > 0);
    write_file(f,
               "# arrayd 0.0\nstrike 2020-01-01T00:00:00Z eve\nstrike 2020-01-01T00:00:01Z eve\n");
    assert_int_equal(culprits_strike(r, "eve"), 1);
    culprits_close(r);
    assert_int_equal(culprits_admit(NULL, "eve", &e), ERR_OK);
}

static void test_forgetting(void **state)
{
    struct culprits *r = open_in(*state);
    char text[CODE_KEY_TEXT];
    struct code_key key = key_of(1);
    fault_of_one(r, 1);
    fault_of_one(r, 2);
    code_key_text(&key, text);
    assert_int_equal(culprits_forget(r, text), 1);
    assert_int_equal(culprits_forget(r, "nobody"), 0);
    assert_true(!is_refused(r, 1) && is_refused(r, 2));
    culprits_close(r);
    r = open_in(*state);
    assert_true(!is_refused(r, 1) && is_refused(r, 2));
    assert_int_equal(culprits_forget(r, NULL), 1);
    assert_true(culprits_is_empty(r));
    fault_of_two(r, 3, 4);
    assert_true(culprits_suspects(r) == 2 && runs_alone(r, 3) && !is_refused(r, 2));
    culprits_close(r);
}

/* --- alone --- */

static void test_a_device_to_itself(void **state)
{
    (void)state;
    struct alone a = {0};
    int suspect, other;
    const uint64_t s = ALONE_NS;
    assert_true(alone_may_start(&a, &other, false, true, 1));
    assert_false(alone_may_start(&a, &suspect, true, true, 1));
    assert_false(alone_may_start(&a, &other, false, true, 2)); /* held back, for a while */
    assert_false(alone_lets_others(&a, s));
    assert_true(alone_lets_others(&a, s + 1) && alone_may_start(&a, &other, false, true, s + 1));
    assert_false(alone_may_start(&a, &suspect, true, true, 2 * s));
    assert_true(alone_may_start(&a, &other, false, true, 2 * s));
    assert_false(alone_may_start(&a, &suspect, true, true, 2 * s + 1)); /* it tries again */
    assert_false(alone_may_start(&a, &other, false, true, 2 * s + 2));
    assert_true(alone_may_start(&a, &suspect, true, false, 2 * s + 3));
    assert_false(alone_may_start(&a, &other, false, true, 9 * s));
    assert_false(alone_may_start(&a, &suspect, true, true, 9 * s));
    alone_over(&a, &other);
    assert_false(alone_may_start(&a, &other, false, false, 9 * s));
    alone_over(&a, &suspect);
    assert_true(alone_may_start(&a, &other, false, false, 9 * s));
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
        cmocka_unit_test_setup_teardown(test_what_the_next_process_knows, set_up, tear_down),
        cmocka_unit_test(test_memory_of_others),
        cmocka_unit_test(test_memory_that_is_damaged),
        cmocka_unit_test(test_what_was_running),
        cmocka_unit_test(test_more_than_there_is_room_for),
        cmocka_unit_test_setup_teardown(test_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forgetting, set_up, tear_down),
        cmocka_unit_test(test_a_device_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
