/* Small blocks come from mem.h with their own start remembered in front of them. Large ones are
 * mapped; the largest on 2 MiB boundaries, with huge pages requested, because one fault per 4 KiB
 * page costs more than writing the page.
 *
 * Even so the first touch of fresh memory costs about as much as computing the result. So freed
 * large blocks are kept for a while and given out again (the most recently freed first), unzeroed,
 * for results, which are overwritten in whole. A caller that wants zeros gets fresh pages, which
 * the kernel clears as they are touched: no array ever shows another's old data, and no thread
 * clears gigabytes. The cache counts against the limit and is trimmed when live memory needs the
 * space. Blocks not reused for some seconds are unmapped: repeated work finds its temporaries, and
 * one-off work leaves nothing behind. */
#include "compute/cpu/cpu_memory.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"

#define ALIGN        64
#define LARGE        (INT64_C(512) << 10) /* mapped, not on the heap: free returns it */
#define HUGE_LEAST   (INT64_C(4) << 20)   /* worth huge pages */
#define HUGE_PAGE    (INT64_C(2) << 20)
#define GRAIN        (INT64_C(64) << 10) /* large sizes are rounded up to a multiple of this */
#define CACHE_MOST   (INT64_C(2) << 30)
#define CACHE_BLOCKS 64
#define TIDY_MS      20
#define PIECE        (INT64_C(16) << 20) /* unmapped at a time */
#define SMALL_LEAST  (INT64_C(16) << 20)

struct cached {
    void *p;
    int64_t size;
    double since; /* clock_ms */
};

struct cpu_memory {
    pthread_mutex_t lock;
    int64_t most; /* bytes, including arrays moved out */
    int64_t cache_most;
    struct cached cache[CACHE_BLOCKS]; /* oldest first */
    int n_cached;
    int64_t small, small_peak; /* bytes on the heap: now, and the most since the last tidy */
    int64_t small_held;        /* how many of them libc may be holding */
    struct cpu_memory_stats stats;
};

struct cpu_memory *cpu_memory_new(int64_t limit)
{
    struct cpu_memory *m = mem_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    int64_t most = mem_machine() / 10 * 9; /* the daemon itself needs some */
    m->stats.limit = limit > 0 ? limit : most;
    m->most = m->stats.limit > most ? m->stats.limit : most;
    m->cache_most = m->stats.limit / 8 < CACHE_MOST ? m->stats.limit / 8 : CACHE_MOST;
    return m;
}

static int64_t rounded(int64_t size)
{
    return size < LARGE ? size : (size + GRAIN - 1) / GRAIN * GRAIN;
}

/* After a change of the counts. */
static void check(const struct cpu_memory *m)
{
    lock_held(&m->lock);
#ifndef NDEBUG
    const struct cpu_memory_stats *s = &m->stats;
    int64_t cached = 0;
    for (int i = 0; i < m->n_cached; i++)
        cached += m->cache[i].size;
    assert(m->n_cached <= CACHE_BLOCKS && cached == s->cached && m->small >= 0);
    assert(s->live >= 0 && s->blocks >= 0 && s->moved_out >= 0);
    assert(s->cached == 0 /* what was taken over may be more */ ||
           (s->live + s->cached <= s->limit && s->live + s->cached + s->moved_out <= m->most));
#endif
}

/* With the lock held. */
static void count_small(struct cpu_memory *m, int64_t whole, int64_t bytes)
{
    lock_held(&m->lock);
    if (whole >= LARGE)
        return;
    m->small += bytes;
    m->small_peak = m->small > m->small_peak ? m->small : m->small_peak;
}

/* With the lock held: by how much the heap's peak has fallen since the last call. Blocks that are
 * allocated and freed all the time count as in use. */
static int64_t small_surplus(struct cpu_memory *m)
{
    lock_held(&m->lock);
    m->small_held = m->small_held > m->small_peak ? m->small_held : m->small_peak;
    int64_t surplus = m->small_held - m->small_peak;
    m->small_peak = m->small;
    if (surplus < SMALL_LEAST)
        return 0;
    m->small_held -= surplus;
    return surplus;
}

/* Takes entry i out of the cache. */
static void *uncache(struct cpu_memory *m, int i)
{
    lock_held(&m->lock);
    struct cached c = m->cache[i];
    m->n_cached--;
    for (; i < m->n_cached; i++)
        m->cache[i] = m->cache[i + 1];
    m->stats.cached -= c.size;
    return c.p;
}

/* Unmaps cached blocks, the oldest first, until at most `most` bytes are cached. */
static void trim(struct cpu_memory *m, int64_t most)
{
    lock_held(&m->lock);
    while (m->n_cached && m->stats.cached > most) {
        int64_t size = m->cache[0].size;
        munmap(uncache(m, 0), (size_t)size);
    }
}

/* Trims the cache so that live memory and the arrays moved out fit. */
static void make_way(struct cpu_memory *m)
{
    lock_held(&m->lock);
    int64_t within = m->stats.limit - m->stats.live;
    int64_t all = m->most - m->stats.live - m->stats.moved_out;
    trim(m, all < within ? all : within);
}

void cpu_memory_free(struct cpu_memory *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    trim(m, 0);
    pthread_mutex_unlock(&m->lock);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

static void *map_large(int64_t size)
{
    if (size < HUGE_LEAST) {
        void *p =
            mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    char *raw = mmap(NULL, (size_t)(size + HUGE_PAGE), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t head = (size_t)(-(uintptr_t)raw & (uintptr_t)(HUGE_PAGE - 1));
    if (head)
        munmap(raw, head);
    if ((size_t)HUGE_PAGE - head)
        munmap(raw + head + size, (size_t)HUGE_PAGE - head);
    madvise(raw + head, (size_t)size, MADV_HUGEPAGE);
    return raw + head;
}

static void *get_small(int64_t size, bool zero)
{
    char *raw = zero ? mem_calloc(1, (size_t)size + ALIGN + sizeof(void *))
                     : mem_alloc((size_t)size + ALIGN + sizeof(void *));
    if (!raw)
        return NULL;
    char *p = raw + sizeof(void *);
    p += -(uintptr_t)p & (ALIGN - 1);
    memcpy(p - sizeof(void *), &raw, sizeof raw);
    return p;
}

/* The newest cached block of exactly this size. */
static void *take_cached(struct cpu_memory *m, int64_t size)
{
    lock_held(&m->lock);
    for (int i = m->n_cached - 1; i >= 0; i--)
        if (m->cache[i].size == size)
            return uncache(m, i);
    return NULL;
}

/* With the lock held. */
static bool book(struct cpu_memory *m, int64_t whole)
{
    lock_held(&m->lock);
    if (whole > m->stats.limit - m->stats.live ||
        whole > m->most - m->stats.live - m->stats.moved_out)
        return false;
    m->stats.live += whole;
    m->stats.blocks++;
    return true;
}

bool cpu_memory_book(struct cpu_memory *m, int64_t size)
{
    pthread_mutex_lock(&m->lock);
    bool fits = book(m, size);
    if (fits)
        make_way(m);
    check(m);
    pthread_mutex_unlock(&m->lock);
    return fits;
}

void cpu_memory_book_anyway(struct cpu_memory *m, int64_t size, bool out)
{
    pthread_mutex_lock(&m->lock);
    *(out ? &m->stats.moved_out : &m->stats.live) += size;
    m->stats.blocks += !out;
    make_way(m);
    check(m);
    pthread_mutex_unlock(&m->lock);
}

/* With the lock held. */
static void unbook(struct cpu_memory *m, int64_t whole)
{
    lock_held(&m->lock);
    m->stats.live -= whole;
    m->stats.blocks--;
}

void cpu_memory_unbook(struct cpu_memory *m, int64_t size)
{
    pthread_mutex_lock(&m->lock);
    unbook(m, size);
    check(m);
    pthread_mutex_unlock(&m->lock);
}

void *cpu_memory_get(struct cpu_memory *m, int64_t size, bool zero)
{
    int64_t whole = rounded(size);
    pthread_mutex_lock(&m->lock);
    if (!book(m, whole)) {
        pthread_mutex_unlock(&m->lock);
        return NULL;
    }
    void *p = NULL;
    count_small(m, whole, whole);
    if (whole >= LARGE) {
        p = zero ? NULL : take_cached(m, whole);
        *(p ? &m->stats.hits : &m->stats.misses) += 1;
    }
    make_way(m);
    check(m);
    pthread_mutex_unlock(&m->lock);
    if (p)
        return p;
    p = whole >= LARGE ? map_large(whole) : get_small(size, zero);
    if (p)
        return p;
    pthread_mutex_lock(&m->lock);
    unbook(m, whole);
    count_small(m, whole, -whole);
    check(m);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void give_back(void *p, int64_t whole)
{
    if (whole >= LARGE) {
        munmap(p, (size_t)whole);
    } else {
        void *raw;
        memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
        mem_free(raw);
    }
}

void cpu_memory_put(struct cpu_memory *m, void *p, int64_t size)
{
    if (!p)
        return;
    int64_t whole = rounded(size);
    bool keep = whole >= LARGE && whole <= m->cache_most;
    if (!keep)
        give_back(p, whole);
    pthread_mutex_lock(&m->lock);
    unbook(m, whole);
    count_small(m, whole, -whole);
    if (keep) {
        if (m->n_cached == CACHE_BLOCKS) {
            int64_t oldest = m->cache[0].size;
            munmap(uncache(m, 0), (size_t)oldest);
        }
        m->cache[m->n_cached++] = (struct cached){p, whole, clock_ms()};
        m->stats.cached += whole;
        trim(m, m->cache_most);
        make_way(m);
    }
    check(m);
    pthread_mutex_unlock(&m->lock);
}

/* Unmaps the end of the oldest cached block, if that is old enough. The lock is held meanwhile:
 * allocations may use the room once it counts as free, so it must be, and they do not wait long. */
static bool unmap_piece(struct cpu_memory *m, double before)
{
    pthread_mutex_lock(&m->lock);
    struct cached *c = &m->cache[0];
    const bool any = m->n_cached && c->since < before;
    if (any && c->size > PIECE) {
        const int64_t left = (c->size - 1) / PIECE * PIECE, gone = c->size - left;
        c->size = left;
        m->stats.cached -= gone;
        munmap((char *)c->p + left, (size_t)gone);
    } else if (any) {
        trim(m, m->stats.cached - 1);
    }
    check(m);
    pthread_mutex_unlock(&m->lock);
    return any;
}

void cpu_memory_tidy(struct cpu_memory *m, double ms)
{
    const double begun = clock_ms();
    while (clock_ms() - begun < TIDY_MS && unmap_piece(m, begun - ms))
        ;
    pthread_mutex_lock(&m->lock);
    int64_t surplus = small_surplus(m);
    pthread_mutex_unlock(&m->lock);
    mem_gave_back((size_t)surplus); /* mem_trim decides: others use the heap too */
}

bool cpu_memory_book_out(struct cpu_memory *m, int64_t size)
{
    pthread_mutex_lock(&m->lock);
    bool fits = size <= m->most - m->stats.live - m->stats.moved_out;
    if (fits) {
        m->stats.moved_out += size;
        make_way(m);
    }
    check(m);
    pthread_mutex_unlock(&m->lock);
    return fits;
}

void cpu_memory_unbook_out(struct cpu_memory *m, int64_t size)
{
    pthread_mutex_lock(&m->lock);
    m->stats.moved_out -= size;
    check(m);
    pthread_mutex_unlock(&m->lock);
}

void *cpu_memory_get_out(struct cpu_memory *m, int64_t size)
{
    int64_t whole = rounded(size);
    if (!cpu_memory_book_out(m, whole))
        return NULL;
    void *p = whole >= LARGE ? map_large(whole) : get_small(size, false);
    if (!p)
        cpu_memory_unbook_out(m, whole);
    return p;
}

void cpu_memory_put_out(struct cpu_memory *m, void *p, int64_t size)
{
    int64_t whole = rounded(size);
    give_back(p, whole);
    cpu_memory_unbook_out(m, whole);
}

void cpu_memory_get_stats(struct cpu_memory *m, struct cpu_memory_stats *ret)
{
    pthread_mutex_lock(&m->lock);
    *ret = m->stats;
    pthread_mutex_unlock(&m->lock);
}
