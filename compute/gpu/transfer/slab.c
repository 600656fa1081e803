/* Slabs come in two sizes: most replies are a few KiB and must not wait for, or waste, megabytes.
 * Memory is pinned when it is first needed, because pinning is slow (0.3 ms a MiB) and most daemons
 * never use all of it; a first piece of each size is pinned at the start. Pinning may wait for the
 * device, so the copy thread does it while the user that wants the slab waits in line.
 *
 * A returned slab goes straight to the first user in line rather than to a free list with a
 * wake-up: otherwise a busy transfer would always be quicker than the woken one.
 *
 * The copy thread polls events, the oldest of each stream (those behind it cannot have passed):
 * without a pause for some microseconds, because a small copy takes about five, then with longer
 * and longer sleeps. When users wait and nothing moves, it reclaims slabs that lie idle with slow
 * clients; their contents are sent on (upload) or read again later (download). */
#include "compute/gpu/transfer/slab.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"

#define DEFAULT_MEMORY (INT64_C(64) << 20)
#define SMALL_CHUNK    (SLAB_SMALL_SIZE * 16)
#define SMALL_MOST     (INT64_C(16) << 20)

/* Streams: small up, two of bulk up, and the same down. */
#define QUEUES_EACH 3
#define QUEUES      (2 * QUEUES_EACH)

#define SPIN_NS    UINT64_C(20000)
#define SLEEP_MOST UINT64_C(200000)
#define LINE_NS    UINT64_C(5000000)    /* how often waiting users are looked after */
#define IDLE_NS    UINT64_C(20000000)   /* idle for this long: may be reclaimed */
#define AGAIN_NS   UINT64_C(1000000000) /* retry after pinning failed */

struct chunk {
    struct chunk *next;
    void *memory;
    size_t n;
    struct slab slabs[];
};

struct class
{
    size_t size, chunk;   /* bytes per slab, and per pinned piece */
    int64_t limit, bytes; /* pinned bytes: at most, now */
    uint64_t not_before;  /* when pinning may be tried again */
    struct slab *free;
    int64_t n_free;
    struct slab_user *first, **last; /* in line */
};

struct queue {
    CUstream stream;
    struct slab *first, **last;
};

struct slabs {
    struct cuda_device *device;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct class classes[SLAB_CLASSES];
    struct queue queues[QUEUES];
    struct chunk *chunks;
    struct slab_user users; /* ring */
    uint64_t round, looked;
    _Atomic unsigned next_queue;
    int64_t copies, waits, reclaimed;
    bool stop;
    pthread_t thread;
};

static void user_unref(struct slab_user *u)
{
    if (atomic_fetch_sub(&u->refs, 1) == 1)
        u->destroy(u);
}

static bool lost(const struct slabs *s)
{
    return atomic_load(&s->device->cuda->lost);
}

/* --- chunks --- */

static void chunk_free(struct slabs *s, struct chunk *c)
{
    const struct driver *cu = s->device->cuda->driver;
    for (size_t i = 0; i < c->n; i++)
        if (c->slabs[i].event)
            cu->cuEventDestroy(c->slabs[i].event);
    if (c->memory)
        cu->cuMemFreeHost(c->memory);
    mem_free(c);
}

static enum err_code chunk_new(struct slabs *s, enum slab_class class, struct chunk **ret,
                               struct err *e)
{
    struct cuda *cuda = s->device->cuda;
    const struct driver *cu = cuda->driver;
    const struct class *k = &s->classes[class];
    size_t n = k->chunk / k->size;
    struct chunk *c = mem_calloc(1, sizeof *c + n * sizeof *c->slabs);
    if (!c)
        return err_oom(e);
    c->n = n;
    enum err_code code =
        cuda_check(cuda, cu->cuMemHostAlloc(&c->memory, k->chunk, CU_MEMHOSTALLOC_PORTABLE),
                   "cuMemHostAlloc", e);
    if (code != ERR_OK)
        c->memory = NULL;
    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        struct slab *b = &c->slabs[i];
        b->bytes = (char *)c->memory + i * k->size;
        b->size = k->size;
        b->class = class;
        code = cuda_check(cuda, cu->cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING),
                          "cuEventCreate", e);
        if (code != ERR_OK)
            b->event = NULL;
    }
    if (code == ERR_OK)
        *ret = c;
    else
        chunk_free(s, c);
    return code;
}

static struct slab_user *take_first(struct class *k)
{
    struct slab_user *u = k->first;
    if (!u)
        return NULL;
    k->first = u->next_waiting;
    if (!k->first)
        k->last = &k->first;
    u->waiting = false;
    return u;
}

/* With the lock, which it releases: gives the slab to the first in line, or to the free list. */
static void hand_over_unlock(struct slabs *s, struct slab *b)
{
    lock_held(&s->lock);
    struct class *k = &s->classes[b->class];
    struct slab_user *u = take_first(k);
    if (!u) {
        b->next = k->free;
        k->free = b;
        k->n_free++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!u)
        return;
    u->granted(u, b);
    user_unref(u);
}

static void adopt(struct slabs *s, struct chunk *c, enum slab_class class)
{
    pthread_mutex_lock(&s->lock);
    c->next = s->chunks;
    s->chunks = c;
    s->classes[class].bytes += (int64_t)s->classes[class].chunk;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < c->n; i++) {
        pthread_mutex_lock(&s->lock);
        hand_over_unlock(s, &c->slabs[i]);
    }
}

static bool may_grow(const struct class *k)
{
    return k->bytes + (int64_t)k->chunk <= k->limit;
}

/* On the copy thread, without the lock. Users may have entered another device. */
static void grow(struct slabs *s, enum slab_class class)
{
    struct chunk *c;
    (void)cuda_enter(s->device);
    if (chunk_new(s, class, &c, NULL) == ERR_OK) {
        adopt(s, c, class);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->classes[class].not_before = clock_ns() + AGAIN_NS;
    pthread_mutex_unlock(&s->lock);
}

/* --- users --- */

void slab_user_add(struct slabs *s, struct slab_user *u)
{
    atomic_init(&u->refs, 1);
    pthread_mutex_lock(&s->lock);
    u->next = &s->users;
    u->prev = s->users.prev;
    u->prev->next = u;
    u->next->prev = u;
    u->round = s->round;
    pthread_mutex_unlock(&s->lock);
}

void slab_user_remove(struct slabs *s, struct slab_user *u)
{
    pthread_mutex_lock(&s->lock);
    bool waited = u->waiting;
    if (waited) {
        struct class *k = &s->classes[u->wants];
        struct slab_user **p = &k->first;
        while (*p != u)
            p = &(*p)->next_waiting;
        *p = u->next_waiting;
        if (!*p)
            k->last = p;
        u->waiting = false;
    }
    u->prev->next = u->next;
    u->next->prev = u->prev;
    u->next = NULL;
    pthread_mutex_unlock(&s->lock);
    if (waited)
        user_unref(u);
    user_unref(u);
}

enum err_code slab_get(struct slabs *s, struct slab_user *u, enum slab_class class, bool wait,
                       struct slab **ret)
{
    if (lost(s))
        return ERR_DEVICE_LOST;
    struct class *k = &s->classes[class];
    pthread_mutex_lock(&s->lock);
    struct slab *b = k->free;
    if (b) {
        k->free = b->next;
        k->n_free--;
    } else if (wait && !u->waiting) {
        u->waiting = true;
        u->wants = class;
        u->next_waiting = NULL;
        *k->last = u;
        k->last = &u->next_waiting;
        atomic_fetch_add(&u->refs, 1);
        s->waits++;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    *ret = b;
    return ERR_OK;
}

void slab_put(struct slabs *s, struct slab *b)
{
    pthread_mutex_lock(&s->lock);
    if (b->watched) {
        b->returned = true;
        pthread_mutex_unlock(&s->lock);
    } else {
        hand_over_unlock(s, b);
    }
}

bool slab_contended(struct slabs *s, enum slab_class class)
{
    pthread_mutex_lock(&s->lock);
    bool r = s->classes[class].first != NULL;
    pthread_mutex_unlock(&s->lock);
    return r;
}

int slab_queue_for(struct slabs *s, bool up, bool small)
{
    int first = up ? 0 : QUEUES_EACH;
    return small ? first
                 : first + 1 + (int)(atomic_fetch_add(&s->next_queue, 1) % (QUEUES_EACH - 1));
}

CUstream slab_stream(struct slabs *s, int queue)
{
    return s->queues[queue].stream;
}

void slab_watch(struct slabs *s, struct slab_user *u, struct slab *b, int queue)
{
    struct queue *q = &s->queues[queue];
    atomic_fetch_add(&u->refs, 1);
    pthread_mutex_lock(&s->lock);
    b->user = u;
    b->watched = true;
    b->returned = false;
    b->next = NULL;
    *q->last = b;
    q->last = &b->next;
    s->copies++;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* --- the copy thread --- */

/* The first copy of a queue is done (or never will be). Its user is told while the slab is still
 * watched, so that no other user can get it meanwhile. */
static void finish_first(struct slabs *s, struct queue *q, struct slab *b, enum err_code result)
{
    struct slab_user *u = b->user;
    u->copied(u, b, result);
    pthread_mutex_lock(&s->lock);
    q->first = b->next;
    if (!q->first)
        q->last = &q->first;
    b->watched = false;
    b->user = NULL;
    if (b->returned)
        hand_over_unlock(s, b);
    else
        pthread_mutex_unlock(&s->lock);
    user_unref(u);
}

/* Without the lock; whether any copy completed. Only this thread takes from the queues. */
static bool poll_copies(struct slabs *s)
{
    struct cuda *c = s->device->cuda;
    bool any = false;
    (void)cuda_enter(s->device);
    for (int i = 0; i < QUEUES; i++) {
        for (;;) {
            pthread_mutex_lock(&s->lock);
            struct slab *b = s->queues[i].first;
            pthread_mutex_unlock(&s->lock);
            if (!b)
                break;
            if (!lost(s)) {
                CUresult r = c->driver->cuEventQuery(b->event);
                if (r == CUDA_ERROR_NOT_READY)
                    break;
                /* a failure that leaves the device alive says nothing about the copy: poll again */
                if (cuda_check(c, r, "cuEventQuery", NULL) != ERR_OK && !lost(s))
                    break;
            }
            finish_first(s, &s->queues[i], b, lost(s) ? ERR_DEVICE_LOST : ERR_OK);
            any = true;
        }
    }
    return any;
}

/* Asks every user once to return idle slabs. Without the lock; it holds a reference on the user
 * asked last, to find the next one. */
static void reclaim(struct slabs *s, uint64_t now)
{
    struct slab_user *u = NULL;
    pthread_mutex_lock(&s->lock);
    uint64_t round = ++s->round;
    for (;;) {
        struct slab_user *n = u && u->next ? u->next : s->users.next;
        while (n != &s->users && n->round == round)
            n = n->next;
        if (n != &s->users) {
            n->round = round;
            atomic_fetch_add(&n->refs, 1);
        }
        pthread_mutex_unlock(&s->lock);
        if (u)
            user_unref(u);
        if (n == &s->users)
            break;
        n->reclaim(n, now - IDLE_NS);
        u = n;
        pthread_mutex_lock(&s->lock);
    }
}

/* The device is lost: no user in line will get a slab. */
static void dismiss(struct slabs *s)
{
    for (int i = 0; i < SLAB_CLASSES; i++)
        for (;;) {
            pthread_mutex_lock(&s->lock);
            struct slab_user *u = take_first(&s->classes[i]);
            pthread_mutex_unlock(&s->lock);
            if (!u)
                break;
            u->granted(u, NULL);
            user_unref(u);
        }
}

/* Looks after the users in line; whether more can be done at once. Without the lock. */
static bool look_after_line(struct slabs *s)
{
    uint64_t now = clock_ns();
    bool grown = false, line = false;
    for (int i = 0; i < SLAB_CLASSES && !lost(s); i++) {
        struct class *k = &s->classes[i];
        pthread_mutex_lock(&s->lock);
        bool waits = k->first != NULL, more = waits && may_grow(k) && now >= k->not_before;
        pthread_mutex_unlock(&s->lock);
        if (more)
            grow(s, (enum slab_class)i);
        grown |= more;
        line |= waits && !more;
    }
    if (lost(s)) {
        dismiss(s);
    } else if (line && now - s->looked >= LINE_NS) {
        s->looked = now;
        reclaim(s, now);
    }
    return grown;
}

/* Waits a moment between two polls. */
static void rest(uint64_t since)
{
    uint64_t quiet = clock_ns() - since;
    if (quiet < SPIN_NS) {
        sched_yield();
        return;
    }
    uint64_t pause = quiet / 4 < SLEEP_MOST ? quiet / 4 : SLEEP_MOST;
    nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
}

/* With the lock: sleeps until there is a copy or a user in line, or for `ns` if not 0. */
static void sleep_until_woken(struct slabs *s, uint64_t ns)
{
    lock_held(&s->lock);
    const struct timespec until = clock_after((double)ns * 1e-9);
    if (ns)
        pthread_cond_timedwait(&s->wake, &s->lock, &until);
    else
        pthread_cond_wait(&s->wake, &s->lock);
}

static void *copy_thread(void *arg)
{
    struct slabs *s = arg;
    uint64_t progress = 0;
    bool looked = false;
    cuda_enter(s->device);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* ns; 50 µs by default, ten small copies */
    pthread_mutex_lock(&s->lock);
    for (;;) {
        bool copies = false, line = false;
        for (int i = 0; i < QUEUES; i++)
            copies |= s->queues[i].first != NULL;
        for (int i = 0; i < SLAB_CLASSES; i++)
            line |= s->classes[i].first != NULL;
        if (!copies && s->stop)
            break;
        if (!copies && (!line || looked)) {
            sleep_until_woken(s, line ? LINE_NS : 0);
            progress = clock_ns();
            looked = false;
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        looked = line && !look_after_line(s);
        if (poll_copies(s))
            progress = clock_ns();
        else if (copies)
            rest(progress);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --- */

static void set_limits(struct slabs *s, int64_t memory)
{
    if (memory <= 0)
        memory = DEFAULT_MEMORY;
    struct class *small = &s->classes[SLAB_SMALL], *bulk = &s->classes[SLAB_BULK];
    *small = (struct class){.size = SLAB_SMALL_SIZE, .chunk = SMALL_CHUNK};
    *bulk = (struct class){.size = SLAB_BULK_SIZE, .chunk = SLAB_BULK_SIZE};
    int64_t most = memory / 8 < SMALL_MOST ? memory / 8 : SMALL_MOST;
    small->limit = most > (int64_t)SMALL_CHUNK ? most : (int64_t)SMALL_CHUNK;
    bulk->limit = memory - small->limit;
    if (bulk->limit < (int64_t)SLAB_BULK_SIZE)
        bulk->limit = (int64_t)SLAB_BULK_SIZE; /* one of each is the minimum that works */
    for (int i = 0; i < SLAB_CLASSES; i++)
        s->classes[i].last = &s->classes[i].first;
}

static void release(struct slabs *s)
{
    const struct driver *cu = s->device->cuda->driver;
    cuda_enter(s->device);
    /* after a loss the copy thread did not wait for copies still in flight */
    for (int i = 0; i < QUEUES; i++)
        if (s->queues[i].stream)
            cu->cuStreamSynchronize(s->queues[i].stream);
    while (s->chunks) {
        struct chunk *c = s->chunks;
        s->chunks = c->next;
        chunk_free(s, c);
    }
    for (int i = 0; i < QUEUES; i++)
        if (s->queues[i].stream)
            cu->cuStreamDestroy(s->queues[i].stream);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static enum err_code start(struct slabs *s, struct err *e)
{
    struct cuda *c = s->device->cuda;
    for (int i = 0; i < QUEUES; i++) {
        s->queues[i].last = &s->queues[i].first;
        enum err_code code =
            cuda_check(c, c->driver->cuStreamCreate(&s->queues[i].stream, CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", e);
        if (code != ERR_OK) {
            s->queues[i].stream = NULL;
            return code;
        }
    }
    for (int i = 0; i < SLAB_CLASSES; i++) {
        struct chunk *chunk;
        TRY(chunk_new(s, (enum slab_class)i, &chunk, e));
        adopt(s, chunk, (enum slab_class)i);
    }
    if (!thread_start(&s->thread, "arrayd-copy", copy_thread, s))
        return err_set(e, ERR_INTERNAL, "cannot start the copy thread");
    return ERR_OK;
}

enum err_code cuda_slabs_open(struct cuda_device *d, struct err *e)
{
    TRY(cuda_entered(d, e));
    struct slabs *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_oom(e);
    pthread_mutex_init(&s->lock, NULL); /* cannot fail here */
    clock_cond_init(&s->wake);
    s->device = d;
    s->users.next = s->users.prev = &s->users;
    set_limits(s, d->cuda->config.slab_memory);
    enum err_code code = start(s, e);
    if (code == ERR_OK)
        d->slabs = s;
    else
        release(s);
    return code;
}

void cuda_slabs_close(struct cuda_device *d)
{
    struct slabs *s = d->slabs;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    release(s);
    d->slabs = NULL;
}

void cuda_slab_stats(struct cuda_device *d, struct cuda_slab_stats *ret)
{
    struct slabs *s = d->slabs;
    struct cuda_slab_stats r = {0};
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SLAB_CLASSES; i++) {
        r.bytes += s->classes[i].bytes;
        r.free_bytes += s->classes[i].n_free * (int64_t)s->classes[i].size;
    }
    r.copies = s->copies;
    r.waits = s->waits;
    r.reclaimed = s->reclaimed;
    pthread_mutex_unlock(&s->lock);
    *ret = r;
}

void slab_reclaimed(struct slabs *s, int n)
{
    pthread_mutex_lock(&s->lock);
    s->reclaimed += n;
    pthread_mutex_unlock(&s->lock);
}
