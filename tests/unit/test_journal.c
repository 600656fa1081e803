/* server/journal: keys and values come back from the log, whatever part of it is damaged or
 * missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/journal/area.h"
#include "server/journal/journal.h"

#define KEYS  40
#define KINDS 3

/* What the journal should hold: the number of each key's value; 0: none. */
struct model {
    uint32_t value[KINDS][KEYS];
};

static size_t make_value(uint32_t number, char ret[600])
{
    size_t n = (number * 2654435761u >> 8) % 590;
    for (size_t i = 0; i < n; i++)
        ret[i] = (char)(number * 31 + i * 7);
    return n;
}

static void make_key(int k, char ret[32])
{
    snprintf(ret, 32, "a-%0*d", 1 + k % 12, k);
}

struct seen {
    const struct model *model;
    int kind, same, unknown;
    bool old_allowed;
};

static void see(void *user, const struct record_item *x)
{
    struct seen *s = user;
    char key[32], value[600];
    assert_int_equal(x->kind, s->kind);
    for (int k = 0; k < KEYS; k++) {
        make_key(k, key);
        if (x->key_len != strlen(key) || memcmp(key, x->key, x->key_len) != 0)
            continue;
        uint32_t number = s->model->value[s->kind][k];
        if (!x->value) {
            s->unknown++;
            return;
        }
        size_t n = make_value(number, value);
        bool same = number && n == x->n && memcmp(value, x->value, n) == 0;
        assert_true(same || s->old_allowed);
        s->same += same;
        return;
    }
    fail();
}

static int model_count(const struct model *m)
{
    int n = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int k = 0; k < KEYS; k++)
            n += m->value[kind][k] != 0;
    return n;
}

/* Checks that all values are the model's, or said to be unknown. Returns how many are the model's.
 */
static int compare(struct journal *j, const struct model *m, bool old_allowed, int *ret_unknown)
{
    struct seen s = {.model = m, .old_allowed = old_allowed};
    for (s.kind = 0; s.kind < KINDS; s.kind++)
        journal_each(j, (uint8_t)s.kind, see, &s);
    if (ret_unknown)
        *ret_unknown = s.unknown;
    return s.same;
}

static void compare_all(struct journal *j, const struct model *m)
{
    int unknown;
    assert_int_equal(compare(j, m, false, &unknown), model_count(m));
    assert_int_equal(unknown, 0);
}

/* Writes a few random keys; the model follows unless the journal refuses. */
static enum err_code scribble(struct journal *j, struct model *m, uint32_t *number)
{
    struct record_item items[4];
    char keys[4][32], values[4][600];
    struct model after = *m;
    size_t n = 1 + (size_t)rand() % 4;
    for (size_t i = 0; i < n; i++) {
        int kind = rand() % KINDS, k = (rand() % (KEYS / 4)) * 4 + (int)i;
        make_key(k, keys[i]);
        bool removed = rand() % 4 == 0;
        after.value[kind][k] = removed ? 0 : ++*number;
        items[i] = (struct record_item){(uint8_t)kind, keys[i], strlen(keys[i]),
                                        removed ? NULL : values[i],
                                        removed ? 0 : make_value(*number, values[i])};
    }
    enum err_code code = journal_write(j, items, n, NULL);
    if (code == ERR_OK)
        *m = after;
    return code;
}

static struct journal *open_new(const struct journal_config *config)
{
    struct journal *j;
    struct err e = ERR_INIT;
    assert_int_equal(journal_open(config, &j, &e), ERR_OK);
    return j;
}

static const struct journal_config plain = {.most = (size_t)64 << 20};

/* Another process. */
struct holder {
    int fd;
    int refuses; /* so many times more */
    int moves;
};

/* What it holds can be read until it holds another log. */
static enum err_code note_moved(void *user, int fd, struct err *e)
{
    struct holder *h = user;
    struct journal *old;
    struct journal_damage damage;
    assert_int_equal(journal_read(area_duplicate(h->fd), &old, &damage, e), ERR_OK);
    assert_true(damage.records == 0 && !damage.missing);
    journal_close(old);
    h->moves++;
    if (h->refuses > 0) {
        h->refuses--;
        return err_set(e, ERR_OVERLOADED, "no");
    }
    close(h->fd);
    h->fd = area_duplicate(fd);
    assert_true(h->fd >= 0);
    return ERR_OK;
}

/* The descriptor that another process would hold leads to everything, at any time. */
static void what_is_written_is_found_again_through_rewritings(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct holder held = {.refuses = 3};
    struct journal_config config = {.most = (size_t)8 << 20, .moved = note_moved, .user = &held};
    struct journal *j = open_new(&config), *other;
    struct model m = {0};
    struct journal_figures f;
    struct journal_damage damage;
    struct err e = ERR_INIT;
    uint32_t number = 0;
    srand(1);
    held.fd = area_duplicate(journal_fd(j));
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(scribble(j, &m, &number), ERR_OK);
        if (i % 997)
            continue;
        compare_all(j, &m);
        assert_int_equal(journal_read(area_duplicate(held.fd), &other, &damage, &e), ERR_OK);
        assert_true(damage.records == 0 && !damage.missing);
        compare_all(other, &m);
        journal_close(other);
    }
    journal_figures(j, &f);
    assert_true(held.moves > 6 && held.refuses == 0 && f.rewrites > 3);
    assert_int_equal(f.keys, model_count(&m));
    assert_true(f.bytes < 4 << 20);
    journal_close(j);
    close(held.fd);
    assert_int_equal(mem_live(), live);
}

/* A rewriting that ends when nearly everything has been removed leaves a short log in a long area:
 * of the old one nothing is given back before the new one is held. */
static void the_old_log_is_whole_until_the_new_one_is_held(void **state)
{
    (void)state;
    struct holder held = {0};
    struct journal_config config = {.most = (size_t)64 << 20, .moved = note_moved, .user = &held};
    struct journal *j = open_new(&config);
    struct err e = ERR_INIT;
    static char value[20000];
    char key[16];
    struct record_item x = {1, key, 0, value, sizeof value};
    held.fd = area_duplicate(journal_fd(j));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 300; i++) {
            x.key_len = (size_t)snprintf(key, sizeof key, "k%d", i % 200);
            assert_int_equal(journal_write(j, &x, 1, &e), ERR_OK);
        }
        struct record_item gone = {.kind = 1, .key = key};
        for (int i = 0; i < 200; i++) {
            gone.key_len = (size_t)snprintf(key, sizeof key, "k%d", i);
            assert_int_equal(journal_write(j, &gone, 1, &e), ERR_OK);
        }
    }
    assert_true(held.moves > 2);
    journal_close(j);
    close(held.fd);
}

/* A small log's bytes, and what is in it. */
static char *small_log(struct model *m, size_t *ret_n)
{
    struct journal *j = open_new(&plain);
    struct journal_figures f;
    uint32_t number = 0;
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 12; i++)
        assert_int_equal(scribble(j, m, &number), ERR_OK);
    journal_figures(j, &f);
    struct area a;
    assert_int_equal(area_adopt(area_duplicate(journal_fd(j)), &a, NULL), ERR_OK);
    *ret_n = (size_t)f.bytes + 256 < a.size ? (size_t)f.bytes + 256 : a.size;
    char *bytes = malloc(*ret_n);
    assert_non_null(bytes);
    memcpy(bytes, a.at, *ret_n);
    area_close(&a);
    journal_close(j);
    return bytes;
}

static enum err_code open_bytes(const char *bytes, size_t n, struct journal **ret,
                                struct journal_damage *ret_damage)
{
    struct err e = ERR_INIT;
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    return journal_read(fd, ret, ret_damage, &e);
}

/* One damaged byte makes one record's values unknown, by name, and nothing else. */
static void every_byte_can_be_damaged(void **state)
{
    (void)state;
    struct model m;
    size_t n;
    srand(2);
    char *bytes = small_log(&m, &n);
    int all = model_count(&m), found = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        struct journal *j;
        struct journal_damage damage;
        int unknown;
        const char change = i < n ? (char)0xff : (char)(1 << (i % 8));
        bytes[i % n] ^= change;
        assert_int_equal(open_bytes(bytes, n, &j, &damage), ERR_OK);
        assert_false(damage.missing);
        int same = compare(j, &m, false, &unknown);
        assert_int_equal(same + unknown, all);
        assert_true(unknown <= 1 && (unknown == 0 || damage.records == 1));
        found += damage.records > 0;
        journal_close(j);
        bytes[i % n] ^= change;
    }
    assert_true(found > (int)n / 2);
    free(bytes);
}

/* The end may be missing: then that is said, and what is there is as it was at some time before. */
static void a_log_can_end_anywhere(void **state)
{
    (void)state;
    struct model m;
    size_t n, opened = 0;
    srand(3);
    char *bytes = small_log(&m, &n);
    for (size_t i = 0; i < n; i++) {
        struct journal *j;
        struct journal_damage damage;
        enum err_code code = open_bytes(bytes, i, &j, &damage);
        if (code != ERR_OK) {
            assert_int_equal(code, ERR_STATE);
            assert_true(i < 80); /* the opening */
            continue;
        }
        int unknown, same = compare(j, &m, true, &unknown);
        assert_true(damage.missing || same == model_count(&m));
        journal_close(j);
        opened++;
    }
    assert_true(opened > n - 100);
    free(bytes);
}

/* A process killed while it writes: every prefix of the stores that make a record. */
static void an_unfinished_record_does_not_count(void **state)
{
    (void)state;
    _Alignas(8) char log[4096] = {0};
    const char value[] = "0123456789";
    struct record_item x = {1, "key", 3, value, sizeof value};
    size_t one = record_size(&x, 1);
    record_write(log, 5, 1, &x, 1);
    char whole[1024];
    record_write(log + one, 5, 2, &x, 1);
    memcpy(whole, log + one, one);
    memset(log + one, 0, 8); /* what is written last */
    for (int known = 0; known < 2; known++) {
        struct record_reader r = {
            .log = log, .salt = 5, .size = sizeof log, .end = known ? one : SIZE_MAX};
        struct record record;
        assert_true(record_next(&r, &record));
        assert_false(record_next(&r, &record));
        assert_true(r.damaged == 0 && !r.missing);
    }
    memcpy(log + one, whole, one);
    struct record_reader r = {.log = log, .salt = 5, .size = sizeof log, .end = one};
    struct record record;
    assert_true(record_next(&r, &record) && record_next(&r, &record));
    assert_false(record_next(&r, &record) || r.missing);
}

/* What lies behind the log's end is of another time, or what a client made; only the next record is
 * this log's. */
static void what_lies_behind_the_end_does_not_count(void **state)
{
    (void)state;
    _Alignas(8) char log[4096] = {0};
    struct record_item x = {1, "key", 3, "0123456789", 10};
    size_t one = record_size(&x, 1);
    record_write(log, 5, 1, &x, 1);
    for (int seq = 2; seq < 4; seq++) {
        record_write(log + one, 5, (uint64_t)seq, &x, 1);
        struct record_reader r = {.log = log, .salt = 5, .size = sizeof log, .end = one};
        struct record record;
        assert_true(record_next(&r, &record));
        assert_int_equal(record_next(&r, &record), seq == 2);
        assert_true(r.damaged == 0 && !r.missing);
    }
    static const uint64_t salts[] = {4, UINT64_C(1) << 24 | 5, UINT64_C(1) << 63 | 5};
    for (int i = 0; i < 3; i++) { /* each of its bits counts */
        record_write(log + one, salts[i], 2, &x, 1);
        struct record_reader r = {.log = log, .salt = 5, .size = sizeof log, .end = one};
        struct record record;
        assert_true(record_next(&r, &record) && !record_next(&r, &record));
    }
}

static uint64_t salt_of(struct journal *j)
{
    uint64_t salt;
    assert_int_equal(pread(journal_fd(j), &salt, sizeof salt, 16), sizeof salt);
    return salt;
}

static void no_two_logs_have_the_same_salt(void **state)
{
    (void)state;
    struct journal *a = open_new(&plain), *b = open_new(&plain);
    assert_true(salt_of(a) != salt_of(b));
    assert_true(salt_of(a) >> 32 || salt_of(b) >> 32);
    journal_close(a);
    journal_close(b);
}

static void a_value_that_could_not_be_read_is_refused(void **state)
{
    (void)state;
    const struct journal_config config = {.most = (size_t)512 << 20};
    struct journal *j = open_new(&config);
    struct err e = ERR_INIT;
    char *value = calloc(1, RECORD_VALUE_MOST + 1);
    assert_non_null(value);
    struct record_item x = {1, "key", 3, value, RECORD_VALUE_MOST + 1};
    assert_int_equal(journal_write(j, &x, 1, &e), ERR_OUT_OF_MEMORY);
    assert_false(journal_has(j, 1, "key", 3));
    x.n = RECORD_VALUE_MOST;
    assert_int_equal(journal_write(j, &x, 1, &e), ERR_OK);
    struct journal *other;
    struct journal_damage damage;
    assert_int_equal(journal_read(area_duplicate(journal_fd(j)), &other, &damage, &e), ERR_OK);
    assert_true(journal_has(other, 1, "key", 3) && damage.records == 0 && !damage.missing);
    journal_close(other);
    journal_close(j);
    free(value);
}

static void what_is_no_journal_is_refused(void **state)
{
    (void)state;
    struct journal *j = open_new(&plain);
    struct err e = ERR_INIT;
    char bytes[64] = "arrayd-J", *p;
    assert_int_equal(journal_check(journal_fd(j), &e), ERR_OK);
    assert_int_equal(open_bytes(bytes, 0, &j, NULL), ERR_STATE);
    assert_int_equal(open_bytes(bytes, sizeof bytes, &j, NULL), ERR_STATE);
    struct area a;
    assert_int_equal(area_adopt(area_duplicate(journal_fd(j)), &a, &e), ERR_OK);
    p = malloc(a.size);
    memcpy(p, a.at, a.size);
    static const int versions[] = {8, 12, 40, 44};
    char version[32];
    for (int i = 0; i < 4; i++)
        p[versions[i]] = JOURNAL_VERSION + 1;
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, p, a.size), a.size);
    assert_int_equal(journal_check(fd, &e), ERR_CONFLICT);
    snprintf(version, sizeof version, "version %d", JOURNAL_VERSION + 1);
    assert_non_null(strstr(e.message, version));
    close(fd);
    free(p);
    area_close(&a);
    journal_close(j);
}

static uint32_t version_of(struct journal *j)
{
    struct err e = ERR_INIT;
    struct area a;
    uint32_t versions[4];
    assert_int_equal(area_adopt(area_duplicate(journal_fd(j)), &a, &e), ERR_OK);
    for (int i = 0; i < 4; i++)
        memcpy(&versions[i], a.at + (const int[]){8, 12, 40, 44}[i], sizeof *versions);
    area_close(&a);
    for (int i = 1; i < 4; i++)
        assert_int_equal(versions[i], versions[0]);
    return versions[0];
}

/* Older programs take a journal over as long as there is nothing in it that they would lose; and
 * whoever finds it, this program reads both. */
static void its_version_is_what_its_values_need(void **state)
{
    (void)state;
    struct journal *j = open_new(&plain);
    struct err e = ERR_INIT;
    static char value[5000];
    assert_int_equal(version_of(j), JOURNAL_VERSION_PLAIN);
    assert_int_equal(journal_check(journal_fd(j), &e), ERR_OK);
    journal_needs(j, JOURNAL_VERSION);
    assert_int_equal(version_of(j), JOURNAL_VERSION);
    journal_needs(j, JOURNAL_VERSION_PLAIN);
    struct record_item x = {1, "k", 1, value, sizeof value};
    struct journal_figures f = {0};
    for (int i = 0; i < 10000 && !f.rewrites; i++) {
        assert_int_equal(journal_write(j, &x, 1, &e), ERR_OK);
        journal_figures(j, &f);
    }
    assert_int_equal(f.rewrites, 1);
    assert_int_equal(version_of(j), JOURNAL_VERSION);
    assert_int_equal(journal_check(journal_fd(j), &e), ERR_OK);
    journal_close(j);
}

/* A full journal refuses, keeps what it has, and takes more again when something was removed. */
static void a_full_journal_refuses(void **state)
{
    (void)state;
    struct journal_config config = {.most = (size_t)2 << 20};
    struct journal *j = open_new(&config);
    struct err e = ERR_INIT;
    static char value[5000];
    char key[16];
    int n = 0;
    struct record_item x = {1, key, 0, value, sizeof value};
    do
        x.key_len = (size_t)snprintf(key, sizeof key, "k%d", n++);
    while (n < 10000 && journal_write(j, &x, 1, &e) == ERR_OK);
    assert_in_range(n, 150, 1000);
    assert_int_equal(e.code, ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(e.message, "journal-size"));
    x = (struct record_item){.kind = 1, .key = key};
    for (int i = 0; i < 100; i++) {
        x.key_len = (size_t)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(journal_write(j, &x, 1, &e), ERR_OK);
    }
    x.value = value;
    x.n = sizeof value;
    for (int i = 0; i < 50; i++) {
        x.key_len = (size_t)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(journal_write(j, &x, 1, &e), ERR_OK);
    }
    journal_close(j);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    int64_t live = mem_live();
    bool more = true;
    for (int nth = 1; more; nth++) {
        struct journal *j = open_new(&plain);
        struct model m = {0};
        uint32_t number = 0;
        srand(4);
        mem_fail_after(nth, false);
        for (int i = 0; i < 20; i++) {
            enum err_code code = scribble(j, &m, &number);
            assert_true(code == ERR_OK || code == ERR_OUT_OF_MEMORY);
        }
        more = mem_failed() > 0;
        mem_fail_after(0, false);
        compare_all(j, &m);
        struct journal *other;
        mem_fail_after(nth, false);
        enum err_code code = journal_read(area_duplicate(journal_fd(j)), &other, NULL, NULL);
        more |= mem_failed() > 0;
        mem_fail_after(0, false);
        if (code == ERR_OK) {
            compare_all(other, &m);
            journal_close(other);
        }
        journal_close(j);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_found_again_through_rewritings),
        cmocka_unit_test(the_old_log_is_whole_until_the_new_one_is_held),
        cmocka_unit_test(every_byte_can_be_damaged),
        cmocka_unit_test(a_log_can_end_anywhere),
        cmocka_unit_test(an_unfinished_record_does_not_count),
        cmocka_unit_test(what_lies_behind_the_end_does_not_count),
        cmocka_unit_test(no_two_logs_have_the_same_salt),
        cmocka_unit_test(a_value_that_could_not_be_read_is_refused),
        cmocka_unit_test(what_is_no_journal_is_refused),
        cmocka_unit_test(its_version_is_what_its_values_need),
        cmocka_unit_test(a_full_journal_refuses),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
