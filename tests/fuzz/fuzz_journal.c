/* The journal's log. The first byte says what the rest is: the bytes of a log, or places in a whole
 * one to be changed, and where to cut it. Whatever comes: no value is taken for right that is not
 * the key's last one, unless it is said that changes are missing; a log whose opening is undamaged
 * is never refused, whatever its records are. Reading records needs no system call and is done each
 * time, all the rest each eighth. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/journal/area.h"
#include "server/journal/journal.h"
#include "server/journal/record.h"
#include "tests/fuzz/fuzz.h"

#define KEYS    7
#define LOG     ((size_t)4 << 10)
#define OPENING ((size_t)80) /* bytes before the first record */
#define ENDS    ((size_t)64) /* where in it the log's length is, twice */

enum { RAW = 1, CUT = 2, READER_ALONE = 28 /* bits of the first byte, any of them */ };

static const struct journal_config config = {.most = (size_t)2 << 20};

static _Alignas(8) char whole[LOG];
static size_t whole_n;
static struct last {
    char value[96];
    size_t n;
} wanted[KEYS + 1]; /* of key k0 …, and of "x" */

/* --- the whole log --- */

static void make_whole(void)
{
    struct journal *j;
    struct area a;
    char key[8], value[96];
    FUZZ_CHECK(journal_open(&config, &j, NULL) == ERR_OK);
    for (int i = 0; i < 12; i++) {
        size_t n = (size_t)snprintf(key, sizeof key, "k%d", i % KEYS);
        size_t m = (size_t)snprintf(value, sizeof value, "%s is %0*d", key, i * 6 + 1, i) + 1;
        const bool with_x = i % 3 == 0;
        struct record_item x[] = {{1, key, n, value, m}, {1, "x", 1, i == 9 ? NULL : "x is", 5}};
        FUZZ_CHECK(journal_write(j, x, with_x ? 2 : 1, NULL) == ERR_OK);
        struct last *last = &wanted[i % KEYS];
        memcpy(last->value, value, m);
        last->n = m;
        if (with_x)
            wanted[KEYS] = i == 9 ? (struct last){.n = 0} : (struct last){"x is", 5};
    }
    FUZZ_CHECK(area_adopt(area_duplicate(journal_fd(j)), &a, NULL) == ERR_OK);
    whole_n = a.size < LOG ? a.size : LOG;
    memcpy(whole, a.at, whole_n);
    area_close(&a);
    journal_close(j);
}

static struct last *find(struct last all[KEYS + 1], const struct record_item *x)
{
    if (x->key_len == 1 && x->key[0] == 'x')
        return &all[KEYS];
    FUZZ_CHECK(x->key_len == 2 && x->key[0] == 'k' && x->key[1] >= '0' && x->key[1] < '0' + KEYS);
    return &all[x->key[1] - '0'];
}

/* --- its reader --- */

/* Whether the log's length is what it was: with that, what is missing at the end is noticed. */
static bool knows_end(const char *log, size_t n)
{
    return n >= OPENING && memcmp(log + ENDS, whole + ENDS, OPENING - ENDS) == 0;
}

/* `ours`: nothing is in it that the whole log does not have. */
static void read_records(const char *log, size_t n, bool ours)
{
    uint64_t ends[2], salt;
    if (n < OPENING)
        return;
    memcpy(ends, log + ENDS, sizeof ends);
    memcpy(&salt, (ours ? whole : log) + 16, sizeof salt);
    struct record_reader r = {.log = log + OPENING,
                              .salt = salt,
                              .size = n - OPENING,
                              .end = ends[0] == ends[1] ? (size_t)ends[0] : SIZE_MAX};
    struct last got[KEYS + 1] = {0};
    bool known[KEYS + 1];
    struct record record;
    memset(known, true, sizeof known);
    for (size_t records = 0; record_next(&r, &record); records++) {
        size_t cursor[2] = {0};
        FUZZ_CHECK(records < LOG);
        for (uint32_t i = 0; i < record.count; i++) {
            struct record_item x;
            bool is_whole;
            record_item(&record, cursor, &x, &is_whole);
            FUZZ_CHECK(x.key >= log && x.key + x.key_len <= log + n);
            FUZZ_CHECK(!x.value || (const char *)x.value + x.n <= log + n);
            if (!ours)
                continue;
            struct last *last = find(got, &x);
            known[last - got] = is_whole;
            last->n = is_whole && x.value ? x.n : 0;
            if (last->n) {
                FUZZ_CHECK(x.n <= sizeof last->value);
                memcpy(last->value, x.value, x.n);
            }
        }
    }
    for (int k = 0; ours && !r.missing && knows_end(log, n) && k <= KEYS; k++)
        FUZZ_CHECK(!known[k] || (got[k].n == wanted[k].n &&
                                 memcmp(got[k].value, wanted[k].value, got[k].n) == 0));
}

/* --- the journal --- */

struct seen {
    bool all_last; /* no value may be out of date */
};

static void check(void *user, const struct record_item *x)
{
    struct seen *seen = user;
    const struct last *last = find(wanted, x);
    if (!x->value)
        return;
    FUZZ_CHECK(x->n > x->key_len && memcmp(x->value, x->key, x->key_len) == 0);
    FUZZ_CHECK(!seen->all_last || (x->n == last->n && memcmp(x->value, last->value, x->n) == 0));
}

static void read_log(const char *bytes, size_t n, bool ours, bool opens)
{
    struct journal *j;
    struct journal_damage damage;
    struct seen seen = {0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    if (journal_read(fd, &j, &damage, NULL) != ERR_OK) {
        FUZZ_CHECK(!opens);
        return;
    }
    seen.all_last = !damage.missing && knows_end(bytes, n);
    if (ours)
        journal_each(j, 1, check, &seen);
    journal_close(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    _Alignas(8) char log[LOG];
    if (n == 0)
        return 0;
    if (!whole_n)
        make_whole();
    const bool raw = p[0] & RAW;
    size_t end = raw ? (n - 1 < LOG ? n - 1 : LOG) : whole_n;
    bool opens = !raw;
    memcpy(log, raw ? (const char *)p + 1 : whole, end);
    for (size_t i = 1; !raw && i + 2 < n; i += 3) {
        size_t at = (p[i] | (size_t)p[i + 1] << 8) % whole_n;
        log[at] ^= (char)p[i + 2];
        opens &= at >= OPENING;
        end = p[0] & CUT ? at : end;
    }
    read_records(log, end, !raw);
    if (!(p[0] & READER_ALONE))
        read_log(log, end, !raw, opens);
    return 0;
}
