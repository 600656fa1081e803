/* One lock guards the table, the order of use, the makings and the counters; it is never held while
 * compiling or accessing the disk. Code that the table has no memory for is not kept, and belongs
 * to its callers alone.
 *
 * A "making" is a compilation (or a read from disk) in progress: the first caller of a key makes
 * the code; the others wait for it on one condition variable, shared by all, for they are few.
 *
 * The table holds one reference on each entry. The entry evicted is the least recently used of
 * those without other references; the backend holds those whose plans are alive, and evicting these
 * would only have them compiled again.
 *
 * A text that NVRTC rejected is not worth another second of its time at every request, but must not
 * be rejected for ever either: the reason may have been a full disk. So refusals are kept in a
 * small ring, each for a while. */
#include "compute/gpu/code/kcache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <nettle/sha2.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/table.h"
#include "compute/base/trace.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/code/headers.h"
#include "compute/gpu/code/kcache_disk.h"

#define REFUSALS   64
#define REFUSAL_MS 60000

struct node {
    struct kcache_entry pub; /* first: the public view of a node */
    atomic_int refs;
    void (*user_free)(void *user);
    UT_hash_handle hh;
    struct node *newer, *older; /* order of use */
    struct node *gone;          /* evicted before it */
};

struct making {
    struct code_key key;
    struct making *next;
    int waiting;
    bool done;
    enum err_code code;
    struct err error;
    struct node *node; /* a reference, while a caller waits */
    enum kcache_how how;
};

struct refusal {
    uint64_t number; /* stored at number % REFUSALS; 0: empty */
    struct code_key key;
    double until; /* clock_ms */
    char reason[KCACHE_REASON];
};

struct kcache {
    struct kcache_config config;
    const struct nvrtc *nvrtc;
    uint8_t headers_sha[SHA256_DIGEST_SIZE];
    struct kcache_disk disk;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct node *table;
    struct node *newest, *oldest;
    struct making *makings;
    struct refusal refusals[REFUSALS]; /* the newest */
    uint64_t refused;                  /* ever */
    struct kcache_stats stats;         /* without the entries' number and the disk's own */
};

static void add_text(struct sha256_ctx *ctx, const char *text)
{
    sha256_update(ctx, strlen(text) + 1, (const uint8_t *)text); /* with the NUL, as a separator */
}

static void hash_headers(uint8_t ret[SHA256_DIGEST_SIZE])
{
    const char *const *texts, *const *names;
    int n = headers_get(&texts, &names);
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    for (int i = 0; i < n; i++) {
        add_text(&ctx, names[i]);
        add_text(&ctx, texts[i]);
    }
    sha256_digest(&ctx, SHA256_DIGEST_SIZE, ret);
}

enum err_code kcache_new(const struct kcache_config *config, const struct nvrtc *nvrtc,
                         struct kcache **ret, struct err *e)
{
    struct kcache *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->config = *config;
    c->config.dir = NULL; /* the caller's, used only here */
    if (c->config.refusal_ms <= 0)
        c->config.refusal_ms = REFUSAL_MS;
    c->nvrtc = nvrtc;
    hash_headers(c->headers_sha);
    kcache_disk_open(&c->disk, config->dir, config->ready, config->max_disk_bytes);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ended, NULL);
    *ret = c;
    return ERR_OK;
}

void kcache_free(struct kcache *c)
{
    if (!c)
        return;
    HASH_CLEAR(hh, c->table);
    for (struct node *n = c->oldest, *next; n; n = next) {
        next = n->newer;
        kcache_unref(&n->pub);
    }
    kcache_disk_close(&c->disk);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

struct code_key kcache_key(const struct kcache *c, const char *arch, const char *source,
                           bool fast_math)
{
    char arch_option[64], version[32];
    const char *options[COMPILE_MAX_OPTIONS];
    int n = compile_options(c->nvrtc, arch, fast_math, arch_option, options);
    snprintf(version, sizeof version, "%d.%d", c->nvrtc->major, c->nvrtc->minor);
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    add_text(&ctx, ARRAYD_VERSION);
    add_text(&ctx, version);
    sha256_update(&ctx, sizeof c->headers_sha, c->headers_sha);
    for (int i = 0; i < n; i++)
        add_text(&ctx, options[i]);
    add_text(&ctx, ""); /* the end of the options */
    add_text(&ctx, source);
    struct code_key key;
    sha256_digest(&ctx, sizeof key.sha, key.sha);
    return key;
}

struct kcache_entry *kcache_ref(struct kcache_entry *entry)
{
    atomic_fetch_add_explicit(&((struct node *)entry)->refs, 1, memory_order_relaxed);
    return entry;
}

void kcache_unref(struct kcache_entry *entry)
{
    struct node *n = (struct node *)entry;
    if (!n || atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1)
        return;
    void *user = atomic_load(&n->pub.user);
    if (user && n->user_free)
        n->user_free(user);
    mem_free((void *)n->pub.bytes);
    mem_free(n);
}

/* The functions from here to kcache_find() are called with the lock held. */

static void leave_order(struct kcache *c, struct node *n)
{
    lock_held(&c->lock);
    *(n->newer ? &n->newer->older : &c->newest) = n->older;
    *(n->older ? &n->older->newer : &c->oldest) = n->newer;
}

static void make_newest(struct kcache *c, struct node *n)
{
    lock_held(&c->lock);
    n->newer = NULL;
    n->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = n;
    c->newest = n;
}

static struct node *lookup(struct kcache *c, const struct code_key *key)
{
    lock_held(&c->lock);
    struct node *n;
    HASH_FIND(hh, c->table, key, sizeof *key, n);
    if (!n)
        return NULL;
    leave_order(c, n);
    make_newest(c, n);
    kcache_ref(&n->pub);
    return n;
}

/* Takes the node out of the table, with the table's reference; false: it is not there. */
static bool take_out(struct kcache *c, struct node *n)
{
    lock_held(&c->lock);
    struct node *there;
    HASH_FIND(hh, c->table, &n->pub.key, sizeof n->pub.key, there);
    if (there != n)
        return false;
    HASH_DEL(c->table, n);
    leave_order(c, n);
    c->stats.bytes -= (int64_t)n->pub.n;
    return true;
}

/* Takes the least recently used entry that only the table holds out of it, with the table's
 * reference, or returns NULL. No other thread can get a reference meanwhile: that takes the lock,
 * or an existing reference. */
static struct node *take_idle(struct kcache *c)
{
    lock_held(&c->lock);
    struct node *n = c->oldest;
    while (n && atomic_load_explicit(&n->refs, memory_order_acquire) != 1)
        n = n->newer;
    if (n)
        (void)take_out(c, n);
    return n;
}

/* Puts the node, whose key is not in the table, into it, with a reference of its own. Returns the
 * entries evicted, chained by `gone`: the caller releases them without the lock, because that may
 * call the backend. */
static struct node *publish(struct kcache *c, struct node *n)
{
    lock_held(&c->lock);
    HASH_ADD(hh, c->table, pub.key, sizeof n->pub.key, n);
    if (!n->hh.tbl)
        return NULL;
    kcache_ref(&n->pub);
    make_newest(c, n);
    c->stats.bytes += (int64_t)n->pub.n;
    struct node *gone = NULL;
    while (HASH_COUNT(c->table) > c->config.max_entries) {
        struct node *idle = take_idle(c);
        if (!idle)
            break;
        idle->gone = gone;
        gone = idle;
    }
    return gone;
}

static struct making **find_making(struct kcache *c, const struct code_key *key)
{
    lock_held(&c->lock);
    struct making **m = &c->makings;
    while (*m && memcmp(&(*m)->key, key, sizeof *key) != 0)
        m = &(*m)->next;
    return m;
}

/* Waits for another caller's making. The last to leave releases it. */
static enum err_code wait_for(struct kcache *c, struct making *m, struct kcache_entry **ret,
                              enum kcache_how *ret_how, struct err *e)
{
    lock_held(&c->lock);
    m->waiting++;
    while (!m->done)
        pthread_cond_wait(&c->ended, &c->lock);
    enum err_code code = m->code;
    if (code == ERR_OK) {
        *ret = kcache_ref(&m->node->pub);
        *ret_how = m->how;
        c->stats.waited++;
    } else if (e) {
        *e = m->error;
    }
    if (--m->waiting == 0) {
        if (m->node)
            kcache_unref(&m->node->pub); /* not the last reference: *ret holds one */
        mem_free(m);
    }
    return code;
}

struct kcache_entry *kcache_find(struct kcache *c, const struct code_key *key)
{
    pthread_mutex_lock(&c->lock);
    struct node *n = lookup(c, key);
    c->stats.memory_hits += n != NULL;
    pthread_mutex_unlock(&c->lock);
    return n ? &n->pub : NULL;
}

static void trace(const char *what, const struct code_key *key, size_t n, double ms)
{
    if (!trace_on(TRACE_CACHE))
        return;
    char text[128];
    int len = snprintf(text, sizeof text, "%s %02x%02x%02x%02x…: %zu bytes, %.1f ms", what,
                       key->sha[0], key->sha[1], key->sha[2], key->sha[3], n, ms);
    trace_write(TRACE_CACHE, text, (size_t)len);
}

/* --- refusals --- */

/* With the lock. The key's newest refusal, if it has not expired. */
static struct refusal *find_refusal(struct kcache *c, const struct code_key *key)
{
    lock_held(&c->lock);
    for (uint64_t n = c->refused; n > 0 && c->refused - n < REFUSALS; n--) {
        struct refusal *r = &c->refusals[n % REFUSALS];
        if (memcmp(&r->key, key, sizeof *key) == 0)
            return r->until > clock_ms() ? r : NULL;
    }
    return NULL;
}

static bool is_path(char c)
{
    return c > ' ' && !strchr("\"'`():,;<>", c);
}

/* The first lines of a compiler's message on one line, absolute paths cut to their last part. */
static void tell_briefly(char ret[KCACHE_REASON], const char *text)
{
    size_t n = 0;
    bool gap = false;
    for (int lines = 0; *text && lines < 4 && n < KCACHE_REASON - 3; text++) {
        if (*text == '\n') {
            gap = true;
            continue;
        }
        if (*text == ' ' && gap)
            continue;
        if (gap && n && ++lines < 4)
            n += (size_t)sprintf(ret + n, "; ");
        if (lines >= 4)
            break;
        bool begins = n == 0 || !is_path(ret[n - 1]);
        gap = false;
        if (*text == '/' && begins && is_path(text[1])) {
            const char *end = text, *last = text;
            for (; is_path(*end); end++)
                if (*end == '/')
                    last = end;
            if (last != text)
                text = last;
        }
        if (n < KCACHE_REASON - 1 && !((unsigned char)*text < ' '))
            ret[n++] = *text;
    }
    ret[n] = '\0';
}

/* With the lock. */
static void remember(struct kcache *c, const struct code_key *key, const struct err *why)
{
    lock_held(&c->lock);
    if (find_refusal(c, key))
        return;
    struct refusal *r = &c->refusals[++c->refused % REFUSALS];
    r->number = c->refused;
    r->key = *key;
    r->until = clock_ms() + (double)c->config.refusal_ms;
    tell_briefly(r->reason, why->message);
}

void kcache_refuse(struct kcache *c, const struct code_key *key, const struct err *why)
{
    pthread_mutex_lock(&c->lock);
    remember(c, key, why);
    pthread_mutex_unlock(&c->lock);
}

uint64_t kcache_refusal(struct kcache *c, const struct code_key *key)
{
    pthread_mutex_lock(&c->lock);
    struct refusal *r = find_refusal(c, key);
    uint64_t number = r ? r->number : 0;
    pthread_mutex_unlock(&c->lock);
    return number;
}

void kcache_reason(struct kcache *c, uint64_t refusal, char ret[KCACHE_REASON])
{
    pthread_mutex_lock(&c->lock);
    const struct refusal *r = &c->refusals[refusal % REFUSALS];
    *ret = '\0';
    if (refusal && r->number == refusal)
        memcpy(ret, r->reason, sizeof r->reason);
    pthread_mutex_unlock(&c->lock);
}

/* --- compiling --- */

/* The code from disk or from NVRTC, with no lock held. */
static enum err_code make(struct kcache *c, const char *arch, const char *source, bool fast_math,
                          struct node *n, enum kcache_how *ret_how, struct err *e)
{
    double start = clock_ms();
    void *bytes;
    if (kcache_disk_load(&c->disk, &n->pub.key, &bytes, &n->pub.n)) {
        n->pub.bytes = bytes;
        n->pub.from_disk = true;
        *ret_how = KCACHE_DISK;
        trace("from disk", &n->pub.key, n->pub.n, clock_ms() - start);
        return ERR_OK;
    }
    struct compiled made;
    start = clock_ms();
    enum err_code code = compile_text(c->nvrtc, arch, source, fast_math, &made, e);
    double ms = clock_ms() - start;
    pthread_mutex_lock(&c->lock);
    c->stats.compile_ms += ms;
    *(code != ERR_OK ? &c->stats.failed : &c->stats.compiled) += 1;
    pthread_mutex_unlock(&c->lock);
    trace(code != ERR_OK ? "failed" : "compiled", &n->pub.key, code != ERR_OK ? 0 : made.n, ms);
    if (code != ERR_OK)
        return code;
    n->pub.bytes = made.bytes;
    n->pub.n = made.n;
    *ret_how = KCACHE_COMPILED;
    return ERR_OK;
}

/* Ends a making: wakes the waiting callers, and puts the node (NULL: failed) into the table. */
static void end_making(struct kcache *c, struct making *m, struct node *n, enum err_code code,
                       enum kcache_how how, const struct err *error)
{
    struct node *gone = NULL;
    pthread_mutex_lock(&c->lock);
    *find_making(c, &m->key) = m->next;
    if (n)
        gone = publish(c, n);
    if (code == ERR_INTERNAL)
        remember(c, &m->key, error);
    if (code == ERR_OK && how == KCACHE_DISK)
        c->stats.disk_hits++;
    bool alone = m->waiting == 0;
    if (!alone) {
        m->done = true;
        m->code = code;
        m->how = how;
        if (n) {
            kcache_ref(&n->pub);
            m->node = n;
        } else {
            m->error = *error;
        }
        pthread_cond_broadcast(&c->ended);
    }
    pthread_mutex_unlock(&c->lock);
    if (alone)
        mem_free(m);
    for (struct node *next; gone; gone = next) {
        next = gone->gone;
        kcache_unref(&gone->pub);
    }
}

/* The first caller of a key: makes the code for all. */
static enum err_code make_for_all(struct kcache *c, struct making *m, const char *arch,
                                  const char *source, bool fast_math, struct kcache_entry **ret,
                                  enum kcache_how *ret_how, struct err *e)
{
    struct err error = ERR_INIT;
    enum kcache_how how = KCACHE_COMPILED;
    struct code_key key = m->key;
    struct node *n = mem_calloc(1, sizeof *n);
    enum err_code code = n ? ERR_OK : err_oom(&error);
    if (n) {
        n->pub.key = key;
        n->user_free = c->config.user_free;
        atomic_init(&n->refs, 1);
        code = make(c, arch, source, fast_math, n, &how, &error);
    }
    if (code != ERR_OK) {
        mem_free(n);
        n = NULL;
    }
    end_making(c, m, n, code, how, &error);
    if (code != ERR_OK) {
        if (e)
            *e = error;
        return code;
    }
    if (how == KCACHE_COMPILED) /* after the others were woken: they need not wait for it */
        kcache_disk_store(&c->disk, &key, n->pub.bytes, n->pub.n);
    *ret = &n->pub;
    *ret_how = how;
    return ERR_OK;
}

enum err_code kcache_get(struct kcache *c, const char *arch, const char *source, bool fast_math,
                         struct kcache_entry **ret, enum kcache_how *ret_how, struct err *e)
{
    struct code_key key = kcache_key(c, arch, source, fast_math);
    pthread_mutex_lock(&c->lock);
    struct node *n = lookup(c, &key);
    struct making *m = n ? NULL : *find_making(c, &key);
    struct refusal *r = n || m ? NULL : find_refusal(c, &key);
    enum err_code code = ERR_OK;
    if (n) {
        c->stats.memory_hits++;
        *ret = &n->pub;
        *ret_how = KCACHE_MEMORY;
    } else if (m) {
        code = wait_for(c, m, ret, ret_how, e);
    } else if (r) {
        code = err_set(e, ERR_INTERNAL, "%s", r->reason);
    } else {
        m = mem_calloc(1, sizeof *m);
        if (m) {
            m->key = key;
            m->next = c->makings;
            c->makings = m;
        }
        pthread_mutex_unlock(&c->lock);
        return m ? make_for_all(c, m, arch, source, fast_math, ret, ret_how, e) : err_oom(e);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

bool kcache_has(struct kcache *c, const char *arch, const char *source, bool fast_math)
{
    const struct code_key key = kcache_key(c, arch, source, fast_math);
    struct kcache_entry *there = kcache_find(c, &key);
    kcache_unref(there);
    void *bytes = NULL;
    size_t n;
    const bool has = there || kcache_disk_load(&c->disk, &key, &bytes, &n);
    mem_free(bytes);
    return has;
}

bool kcache_reject(struct kcache *c, const struct kcache_entry *entry)
{
    struct node *n = (struct node *)(uintptr_t)entry;
    if (!entry->from_disk)
        return false;
    pthread_mutex_lock(&c->lock);
    bool mine = take_out(c, n); /* else another thread did, and may have put better code there */
    pthread_mutex_unlock(&c->lock);
    if (mine) {
        kcache_disk_drop(&c->disk, &entry->key);
        kcache_unref(&n->pub);
    }
    return true;
}

void kcache_get_stats(struct kcache *c, struct kcache_stats *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->stats;
    ret->entries = HASH_COUNT(c->table);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_lock(&c->disk.lock);
    ret->disk_bytes = c->disk.bytes;
    ret->disk_errors = c->disk.errors;
    memcpy(ret->disk_problem, c->disk.problem, sizeof ret->disk_problem);
    pthread_mutex_unlock(&c->disk.lock);
}

int kcache_folder(const struct kcache *c)
{
    return c->disk.fd;
}

bool kcache_reads(const struct kcache *c)
{
    return c->disk.fd >= 0 || c->disk.ready >= 0;
}
