/* Lists of chunks: retired ones are released, kept ones may be reused. A thread that releases
 * takes a list as a whole; `releasing` makes a thread that needs memory wait for what another is
 * releasing. */
#include "compute/memory/reclaim.h"

#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/memory/chunk.h"
#include "compute/memory/memory_int.h"

#define KEPT_PART   8                  /* at most this part of a device's memory is kept, */
#define KEPT_HOST   (INT64_C(2) << 30) /* but on a CPU no more than this; */
#define KEPT_S      60.0
#define KEPT_S_HOST 5.0
#define KEPT_MOST   64 /* and at most this many blocks, each of which may have a descriptor */

struct retired {
    struct chunk *first;
    pthread_mutex_t releasing;
};

struct reclaim {
    struct engine *engine;
    uint64_t keep_ns;
    int64_t *keep_most; /* bytes, by device */
    pthread_mutex_t lock;
    struct worker worker;
    struct retired host, shares;
    _Atomic uint64_t shares_back; /* released so far */
    struct chunk *kept;           /* newest first */
    int n_kept;
};

/* --- the pool; with the lock held --- */

static void push(struct chunk **list, struct chunk *c)
{
    c->next = *list;
    *list = c;
}

static struct chunk *unkeep(struct reclaim *r, struct chunk **at)
{
    lock_held(&r->lock);
    struct chunk *c = *at;
    *at = c->next;
    r->n_kept--;
    return c;
}

static int64_t kept_bytes(struct reclaim *r, int device)
{
    lock_held(&r->lock);
    int64_t bytes = 0;
    for (const struct chunk *c = r->kept; c; c = c->next)
        bytes += c->device == device ? c->share.size : 0;
    return bytes;
}

/* The oldest, of all devices or of the given one. */
static struct chunk **oldest(struct reclaim *r, const int *device)
{
    lock_held(&r->lock);
    struct chunk **found = NULL;
    for (struct chunk **at = &r->kept; *at; at = &(*at)->next)
        if (!device || (*at)->device == *device)
            found = at;
    return found;
}

static void keep_one_less(struct reclaim *r, const int *device)
{
    lock_held(&r->lock);
    push(&r->shares.first, unkeep(r, oldest(r, device)));
}

static void keep(struct reclaim *r, struct chunk *take_c)
{
    lock_held(&r->lock);
    const int device = take_c->device;
    take_c->kept_ns = clock_ns();
    push(&r->kept, take_c);
    r->n_kept++;
    while (kept_bytes(r, device) > r->keep_most[device])
        keep_one_less(r, &device);
    if (r->n_kept > KEPT_MOST)
        keep_one_less(r, NULL);
}

/* Expires blocks that were kept long enough; returns the seconds until the next expires, or
 * WORKER_RESTS. */
static double keep_no_longer(struct reclaim *r)
{
    lock_held(&r->lock);
    const uint64_t now = clock_ns();
    struct chunk **at = oldest(r, NULL);
    for (; at && now - (*at)->kept_ns >= r->keep_ns; at = oldest(r, NULL))
        keep_one_less(r, NULL);
    return at ? (double)(r->keep_ns - (now - (*at)->kept_ns)) * 1e-9 : WORKER_RESTS;
}

/* --- releasing --- */

/* Whether a new one would lie on the same parts of its device, in their order: not so of one that a
 * process with others has made. */
static bool lies_as_new(const struct engine *g, const struct chunk *c)
{
    struct backend *b = g->backend;
    struct backend_device d;
    int64_t from[BACKEND_PARTS];
    int on[BACKEND_PARTS];
    if (c->device != g->mesh || c->host)
        return true;
    b->ops->device_info(b, c->device, &d);
    const bool whole = engine_part_bytes(&d, 1, c->used) == 0;
    const int n = b->ops->divided(b, c->device, c->share.data, on, from);
    bool same = n == (whole ? 1 : d.n_parts);
    for (int k = 0; k < n && !whole; k++)
        same &= on[k] == k;
    return same;
}

void reclaim_retire(struct reclaim *r, struct chunk *take_c, bool clean)
{
    const bool as_new = lies_as_new(r->engine, take_c);
    keep_chunk_unused(r->engine, take_c);
    pthread_mutex_lock(&r->lock);
    const bool unkept = r->engine->keep.put && !take_c->number;
    if (take_c->host)
        push(&r->host.first, take_c);
    else if (!clean || unkept || !as_new || take_c->share.size > r->keep_most[take_c->device])
        push(&r->shares.first, take_c);
    else
        keep(r, take_c);
    if (r->host.first || r->shares.first || r->n_kept == 1)
        worker_wake(&r->worker);
    pthread_mutex_unlock(&r->lock);
}

static void give_back(struct reclaim *r, struct chunk *take_c)
{
    struct engine *g = r->engine;
    const int64_t host = take_c->host ? take_c->used : 0;
    chunk_free(g, take_c);
    if (host)
        atomic_fetch_sub(&g->host_bytes, host);
    else
        atomic_fetch_add(&r->shares_back, 1);
}

static void release(struct reclaim *r, struct retired *from)
{
    pthread_mutex_lock(&from->releasing);
    pthread_mutex_lock(&r->lock);
    struct chunk *c = from->first;
    from->first = NULL;
    pthread_mutex_unlock(&r->lock);
    while (c) {
        struct chunk *next = c->next;
        give_back(r, c);
        c = next;
    }
    pthread_mutex_unlock(&from->releasing);
}

static void keep_none(struct reclaim *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->kept)
        keep_one_less(r, NULL);
    pthread_mutex_unlock(&r->lock);
}

void reclaim_host(struct reclaim *r)
{
    release(r, &r->host);
}

void reclaim_all(struct reclaim *r)
{
    keep_none(r);
    release(r, &r->shares);
    release(r, &r->host);
}

uint64_t reclaim_shares_back(const struct reclaim *r)
{
    return atomic_load(&r->shares_back);
}

bool reclaim_shares(struct reclaim *r, uint64_t since)
{
    keep_none(r);
    release(r, &r->shares);
    return reclaim_shares_back(r) != since;
}

/* --- reuse --- */

struct chunk *reclaim_reuse(struct reclaim *r, int device, int64_t size)
{
    pthread_mutex_lock(&r->lock);
    struct chunk **at = &r->kept;
    while (*at && ((*at)->device != device || (*at)->used != size))
        at = &(*at)->next;
    struct chunk *c = *at ? unkeep(r, at) : NULL;
    pthread_mutex_unlock(&r->lock);
    return c;
}

int64_t reclaim_kept(struct reclaim *r, int device)
{
    pthread_mutex_lock(&r->lock);
    int64_t bytes = kept_bytes(r, device);
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

int64_t reclaim_kept_part(struct reclaim *r, int device, int part)
{
    struct backend *b = r->engine->backend;
    int64_t bytes = 0, from[BACKEND_PARTS];
    int on[BACKEND_PARTS];
    pthread_mutex_lock(&r->lock);
    for (const struct chunk *c = r->kept; c; c = c->next) {
        const int n = c->device == device ? b->ops->divided(b, device, c->share.data, on, from) : 0;
        for (int k = 0; k < n; k++)
            bytes += on[k] == part ? c->share.size / n : 0;
    }
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

/* --- the thread --- */

static double reclaim_step(void *user)
{
    struct reclaim *r = user;
    const double next = keep_no_longer(r);
    if (!r->host.first && !r->shares.first)
        return next;
    pthread_mutex_unlock(&r->lock);
    release(r, &r->shares);
    release(r, &r->host);
    pthread_mutex_lock(&r->lock);
    return WORKER_AGAIN;
}

struct reclaim *reclaim_new(struct engine *g)
{
    struct backend *b = g->backend;
    const int n = b->ops->device_count(b);
    struct reclaim *r = mem_calloc(1, sizeof *r);
    int64_t *keep_most = mem_calloc((size_t)n, sizeof *keep_most);
    if (!r || !keep_most) {
        mem_free(r);
        mem_free(keep_most);
        return NULL;
    }
    r->engine = g;
    const bool on_host = !b->ops->upload_new;
    const double usual = on_host ? KEPT_S_HOST : KEPT_S, s = g->device.shareable_keep_s;
    r->keep_ns = (uint64_t)((s > 0 ? s : usual) * 1e9);
    r->keep_most = keep_most;
    for (int i = 0; i < n; i++) {
        struct backend_device d;
        b->ops->device_info(b, i, &d);
        keep_most[i] = d.memory_total / KEPT_PART;
        if (g->device.shareable_keep_bytes > 0)
            keep_most[i] = g->device.shareable_keep_bytes;
        else if (on_host && keep_most[i] > KEPT_HOST)
            keep_most[i] = KEPT_HOST;
    }
    pthread_mutex_init(&r->lock, NULL); /* none of these can fail here */
    pthread_mutex_init(&r->host.releasing, NULL);
    pthread_mutex_init(&r->shares.releasing, NULL);
    r->worker = (struct worker){
        .name = "arrayd-reclaim", .lock = &r->lock, .step = reclaim_step, .user = r};
    worker_init(&r->worker);
    return r;
}

bool reclaim_start(struct reclaim *r)
{
    return worker_start(&r->worker);
}

void reclaim_stop(struct reclaim *r)
{
    worker_stop(&r->worker);
}

void reclaim_free(struct reclaim *r)
{
    if (!r)
        return;
    reclaim_all(r);
    worker_destroy(&r->worker);
    pthread_mutex_destroy(&r->shares.releasing);
    pthread_mutex_destroy(&r->host.releasing);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->keep_most);
    mem_free(r);
}
