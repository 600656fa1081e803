/* A list in memory. It is read from its file at the start, and again whenever something is about to
 * be refused and the file is not the one last read or written. So an edited file takes effect at
 * once, and work that is not refused costs one look at a counter. The file is rewritten, under a
 * temporary name, by a process that is about to end; others that share the folder read it when they
 * start or refuse something themselves. */
#include "compute/gpu/code/refused.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"

#define SUSPECT_S (24 * 3600) /* how long a kernel present at one fault is under suspicion */
#define TEMPORARY ".tmp-" FAULTED_FILE
#define FORM_SIZE 24
#define WHY_SIZE  160
#define DATE_SIZE 24
#define DATE      "%Y-%m-%dT%H:%M:%SZ"
#define HEADING                                                                                    \
    "# Kernels that were on a device when it faulted: state, when, key, form, why.\n"              \
    "# What is \"refused\" is not run any more. A line, or the file, may be deleted at any "       \
    "time.\n"

struct entry {
    struct kcache_key key; /* of a kernel, or of a plan's kernels together */
    bool refused;          /* else under suspicion */
    time_t at;
    char form[FORM_SIZE], why[WHY_SIZE];
};

struct refused {
    pthread_mutex_t lock;
    int dir;
    struct timespec modified; /* of the file when last read or written; 0: there was none */
    off_t size;
    struct entry entries[REFUSED_MOST];
    _Atomic int n, n_refused;
};

static bool same_key(const struct kcache_key *a, const struct kcache_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static int by_key(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct kcache_key));
}

/* The key of several kernels together; sorts them. */
static struct kcache_key plan_key(struct kcache_key *keys, uint32_t n)
{
    struct kcache_key key;
    struct sha256_ctx ctx;
    qsort(keys, n, sizeof *keys, by_key);
    sha256_init(&ctx);
    for (uint32_t i = 0; i < n; i++)
        sha256_update(&ctx, sizeof keys[i].sha, keys[i].sha);
    sha256_digest(&ctx, sizeof key.sha, key.sha);
    return key;
}

static void date_of(time_t t, char ret[DATE_SIZE])
{
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(ret, DATE_SIZE, DATE, &tm);
}

/* --- the list, with the lock held --- */

static struct entry *find(struct refused *r, const struct kcache_key *key)
{
    lock_held(&r->lock);
    for (int i = 0; i < r->n; i++)
        if (same_key(&r->entries[i].key, key))
            return &r->entries[i];
    return NULL;
}

static void count(struct refused *r)
{
    lock_held(&r->lock);
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->entries[i].refused;
    atomic_store(&r->n_refused, n);
}

/* The oldest entry, of those under suspicion if there are any. */
static struct entry *least(struct refused *r)
{
    lock_held(&r->lock);
    struct entry *found = &r->entries[0];
    for (int i = 1; i < r->n; i++) {
        struct entry *e = &r->entries[i];
        if (e->refused != found->refused ? found->refused : e->at < found->at)
            found = e;
    }
    return found;
}

/* A full list drops an entry under suspicion before a refused one. */
static void add(struct refused *r, const struct entry *e)
{
    lock_held(&r->lock);
    struct entry *to = find(r, &e->key);
    if (!to)
        to = r->n < REFUSED_MOST ? &r->entries[r->n++] : least(r);
    if (e->refused || !to->refused || same_key(&to->key, &e->key))
        *to = *e;
}

/* --- the file, with the lock held --- */

static bool read_hex(const char *text, struct kcache_key *ret)
{
    for (size_t i = 0; i < sizeof ret->sha; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        ret->sha[i] = (uint8_t)byte;
    }
    return true;
}

static bool read_line(const char *line, struct entry *ret)
{
    char state[16], date[DATE_SIZE], key[2 * sizeof ret->key.sha + 1];
    struct tm tm = {0};
    *ret = (struct entry){0};
    if (sscanf(line, "%15s %23s %64[0-9a-f] %23s %159[^\n]", state, date, key, ret->form,
               ret->why) < 4 ||
        strlen(key) != sizeof key - 1 || !read_hex(key, &ret->key) || !strptime(date, DATE, &tm))
        return false;
    ret->refused = !strcmp(state, "refused");
    ret->at = timegm(&tm);
    return ret->refused || !strcmp(state, "suspect");
}

static bool is_same_file(const struct refused *r, const struct stat *st)
{
    return st->st_size == r->size && st->st_mtim.tv_sec == r->modified.tv_sec &&
           st->st_mtim.tv_nsec == r->modified.tv_nsec;
}

static void remember_file(struct refused *r, const struct stat *st)
{
    r->size = st->st_size;
    r->modified = st->st_mtim;
}

/* Reads the file, unless it is the one last read or written or does not exist: the list may
 * hold more than could be written. A file that cannot be read counts as empty. */
static void look(struct refused *r)
{
    lock_held(&r->lock);
    struct stat st = {0};
    char line[512];
    struct entry e;
    int fd = r->dir < 0
                 ? -1
                 : openat(r->dir, FAULTED_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (r->dir < 0 || (fd >= 0 && fstat(fd, &st) != 0) || is_same_file(r, &st)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    remember_file(r, &st);
    r->n = 0;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (f && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        while (fgets(line, sizeof line, f))
            if (read_line(line, &e))
                add(r, &e);
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    count(r);
}

static void put_line(FILE *f, const struct entry *e)
{
    char date[DATE_SIZE], key[KCACHE_KEY_TEXT];
    date_of(e->at, date);
    kcache_key_text(&e->key, key);
    fprintf(f, "%s %s %s %s %s\n", e->refused ? "refused" : "suspect", date, key, e->form, e->why);
}

static bool write_file(struct refused *r)
{
    lock_held(&r->lock);
    struct stat st;
    if (r->dir < 0)
        return false;
    unlinkat(r->dir, TEMPORARY, 0); /* left by a process that ended while writing */
    int fd = openat(r->dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    fputs(HEADING, f);
    for (int i = 0; i < r->n; i++)
        put_line(f, &r->entries[i]);
    /* whatever made the device fault may crash the machine too */
    bool ok = fflush(f) == 0 && fsync(fd) == 0 && fstat(fd, &st) == 0;
    ok = fclose(f) == 0 && ok && renameat(r->dir, TEMPORARY, r->dir, FAULTED_FILE) == 0;
    if (ok) {
        fsync(r->dir); /* for the name; if that fails the file is still there */
        remember_file(r, &st);
    } else {
        unlinkat(r->dir, TEMPORARY, 0);
    }
    return ok;
}

/* --- public functions --- */

struct refused *refused_open(int dir)
{
    struct refused *r = mem_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    r->dir = dir;
    pthread_mutex_lock(&r->lock);
    look(r);
    pthread_mutex_unlock(&r->lock);
    return r;
}

void refused_close(struct refused *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* How many different kernels there are; *ret_works: pieces of work that have any. */
static uint32_t count_kernels(const struct refused_work *works, uint32_t n, uint32_t *ret_works)
{
    uint32_t different = 0;
    *ret_works = 0;
    for (uint32_t w = 0; w < n; w++) {
        *ret_works += works[w].n_kernels > 0;
        for (uint32_t k = 0; k < works[w].n_kernels; k++) {
            bool seen = false;
            for (uint32_t v = 0; v < w && !seen; v++)
                for (uint32_t i = 0; i < works[v].n_kernels && !seen; i++)
                    seen = same_key(&works[v].kernels[i].key, &works[w].kernels[k].key);
            different += !seen;
        }
    }
    return different;
}

/* Whether it was present at another fault recently. */
static bool was_there(struct refused *r, const struct kcache_key *key, time_t now)
{
    const struct entry *was = find(r, key);
    return was && (was->refused || now - was->at < SUSPECT_S);
}

static void note(struct refused *r, const struct kcache_key *key, const char *form, const char *why,
                 bool refused, time_t now)
{
    struct entry e = {.key = *key, .refused = refused, .at = now};
    snprintf(e.form, sizeof e.form, "%s", form);
    snprintf(e.why, sizeof e.why, "%s", why);
    add(r, &e);
}

/* Notes all the kernels that a piece of work had on the device, together. */
static void note_plan(struct refused *r, const struct refused_work *w, const char *why, time_t now)
{
    struct kcache_key *keys = mem_calloc(w->n_kernels, sizeof *keys);
    char form[FORM_SIZE];
    for (uint32_t i = 0; keys && i < w->n_kernels; i++)
        keys[i] = w->kernels[i].key;
    snprintf(form, sizeof form, "plan-of-%u", w->n_kernels);
    if (keys) {
        const struct kcache_key key = plan_key(keys, w->n_kernels);
        note(r, &key, form, why, true, now);
    }
    mem_free(keys);
}

bool refused_fault(struct refused *r, const char *why, struct refused_work *works, uint32_t n,
                   bool sure)
{
    const time_t now = time(NULL);
    uint32_t n_works;
    const uint32_t different = count_kernels(works, n, &n_works);
    if (different == 0)
        return true;
    pthread_mutex_lock(&r->lock);
    look(r); /* what other processes or an operator changed */
    for (uint32_t w = 0; w < n; w++)
        for (uint32_t k = 0; k < works[w].n_kernels; k++) {
            struct refused_kernel *x = &works[w].kernels[k];
            x->refused = (sure && different == 1) || was_there(r, &x->key, now);
        }
    for (uint32_t w = 0; w < n; w++)
        for (uint32_t k = 0; k < works[w].n_kernels; k++) {
            const struct refused_kernel *x = &works[w].kernels[k];
            note(r, &x->key, x->form, why, x->refused, now);
        }
    for (uint32_t w = 0; w < n && sure && n_works == 1 && different > 1; w++)
        if (works[w].n_kernels)
            note_plan(r, &works[w], why, now);
    count(r);
    bool ok = write_file(r);
    pthread_mutex_unlock(&r->lock);
    return ok;
}

bool refused_is_empty(const struct refused *r)
{
    return atomic_load_explicit(&r->n, memory_order_relaxed) == 0;
}

bool refused_any(const struct refused *r)
{
    return refused_count(r) > 0;
}

int refused_count(const struct refused *r)
{
    return atomic_load_explicit(&r->n_refused, memory_order_relaxed);
}

int refused_count_in(const char *folder)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct refused *r = dir >= 0 ? refused_open(dir) : NULL;
    int n = r ? refused_count(r) : 0;
    refused_close(r);
    if (dir >= 0)
        close(dir);
    return n;
}

/* The first 8 bytes of the key make the number. */
static uint64_t number_of(const struct kcache_key *key)
{
    uint64_t number;
    memcpy(&number, key->sha, sizeof number);
    return number | REFUSED_NUMBER;
}

/* With the lock held. */
static uint64_t search(struct refused *r, const struct kcache_key *keys, uint32_t n,
                       const struct kcache_key *plan)
{
    lock_held(&r->lock);
    for (uint32_t i = 0; i <= n; i++) {
        const struct entry *e = find(r, i < n ? &keys[i] : plan);
        if (e && e->refused)
            return number_of(&e->key);
    }
    return 0;
}

bool refused_suspects(struct refused *r, const struct kcache_key *key)
{
    pthread_mutex_lock(&r->lock);
    bool there = was_there(r, key, time(NULL));
    if (there) {
        look(r);
        there = was_there(r, key, time(NULL));
    }
    pthread_mutex_unlock(&r->lock);
    return there;
}

uint64_t refused_find(struct refused *r, struct kcache_key *keys, uint32_t n)
{
    if (n == 0)
        return 0;
    const struct kcache_key plan = plan_key(keys, n);
    pthread_mutex_lock(&r->lock);
    uint64_t found = search(r, keys, n, &plan);
    if (found) {
        look(r);
        found = search(r, keys, n, &plan);
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

void refused_reason(struct refused *r, uint64_t number, char ret[REFUSED_TEXT])
{
    char date[DATE_SIZE], key[KCACHE_KEY_TEXT];
    *ret = '\0';
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++) {
        const struct entry *e = &r->entries[i];
        if (!e->refused || number_of(&e->key) != number)
            continue;
        date_of(e->at, date);
        kcache_key_text(&e->key, key);
        snprintf(ret, REFUSED_TEXT,
                 "refused: the %s%s %.16s was on the device when that faulted at %s (%s); the "
                 "operator can allow it again",
                 e->form, strncmp(e->form, "plan", 4) ? " kernel" : "", key, date, e->why);
        break;
    }
    pthread_mutex_unlock(&r->lock);
}
