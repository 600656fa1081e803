/* Lists by next_dead: dead storage is released, kept storage may be reused. A thread that releases
 * takes a list as a whole; `grave` makes a thread that needs memory wait for what another is
 * releasing. */
#include "compute/memory/reclaim.h"

#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/memory/memory_int.h"

#define KEPT_PART 8                  /* at most this part of a device's memory is kept, */
#define KEPT_HOST (INT64_C(2) << 30) /* but on a CPU no more than this; */
#define KEPT_MOST 64 /* and at most this many blocks, each of which may have a descriptor */

struct grave {
    struct storage *dead;
    pthread_mutex_t digging;
};

struct reclaim {
    struct engine *engine;
    uint64_t keep_ns;
    int64_t *keep_most; /* bytes, by device */
    pthread_mutex_t lock;
    struct worker worker;
    struct grave host, shares;
    _Atomic uint64_t shares_back; /* released so far */
    struct storage *kept;         /* newest first */
    int n_kept;
};

/* --- the pool; with the lock held --- */

static void push(struct storage **list, struct storage *st)
{
    st->next_dead = *list;
    *list = st;
}

static struct storage *unkeep(struct reclaim *r, struct storage **at)
{
    lock_held(&r->lock);
    struct storage *st = *at;
    *at = st->next_dead;
    r->n_kept--;
    return st;
}

static int64_t kept_bytes(struct reclaim *r, int device)
{
    lock_held(&r->lock);
    int64_t bytes = 0;
    for (const struct storage *st = r->kept; st; st = st->next_dead)
        bytes += st->device == device ? st->share.size : 0;
    return bytes;
}

/* The oldest, of all devices or of the given one. */
static struct storage **oldest(struct reclaim *r, const int *device)
{
    struct storage **found = NULL;
    for (struct storage **at = &r->kept; *at; at = &(*at)->next_dead)
        if (!device || (*at)->device == *device)
            found = at;
    return found;
}

static void keep_one_less(struct reclaim *r, const int *device)
{
    push(&r->shares.dead, unkeep(r, oldest(r, device)));
}

static void keep(struct reclaim *r, struct storage *take_st)
{
    lock_held(&r->lock);
    const int device = take_st->device;
    take_st->kept_ns = clock_ns();
    push(&r->kept, take_st);
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
    struct storage **at = oldest(r, NULL);
    for (; at && now - (*at)->kept_ns >= r->keep_ns; at = oldest(r, NULL))
        keep_one_less(r, NULL);
    return at ? (double)(r->keep_ns - (now - (*at)->kept_ns)) * 1e-9 : WORKER_RESTS;
}

/* --- releasing --- */

void reclaim_bury(struct reclaim *r, struct storage *take_st)
{
    pthread_mutex_lock(&r->lock);
    if (!take_st->share.data)
        push(&r->host.dead, take_st);
    else if (atomic_load(&take_st->exported) || take_st->share.size > r->keep_most[take_st->device])
        push(&r->shares.dead, take_st);
    else
        keep(r, take_st);
    if (r->host.dead || r->shares.dead || r->n_kept == 1)
        worker_wake(&r->worker);
    pthread_mutex_unlock(&r->lock);
}

static void give_back(struct reclaim *r, struct storage *take_st)
{
    struct engine *g = r->engine;
    struct backend *b = g->backend;
    if (take_st->share.data) {
        b->ops->share_free(b, take_st->device, &take_st->share);
        atomic_fetch_add(&r->shares_back, 1);
    } else {
        b->ops->host_free(b, take_st->data, take_st->size);
        atomic_fetch_sub(&g->host_bytes, take_st->size);
    }
    mem_free(take_st);
}

static void dig(struct reclaim *r, struct grave *from)
{
    pthread_mutex_lock(&from->digging);
    pthread_mutex_lock(&r->lock);
    struct storage *st = from->dead;
    from->dead = NULL;
    pthread_mutex_unlock(&r->lock);
    while (st) {
        struct storage *next = st->next_dead;
        give_back(r, st);
        st = next;
    }
    pthread_mutex_unlock(&from->digging);
}

static void keep_none(struct reclaim *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->kept)
        keep_one_less(r, NULL);
    pthread_mutex_unlock(&r->lock);
}

void reclaim_dig_host(struct reclaim *r)
{
    dig(r, &r->host);
}

void reclaim_dig(struct reclaim *r)
{
    keep_none(r);
    dig(r, &r->shares);
    dig(r, &r->host);
}

uint64_t reclaim_shares_back(const struct reclaim *r)
{
    return atomic_load(&r->shares_back);
}

bool reclaim_dig_shares(struct reclaim *r, uint64_t since)
{
    keep_none(r);
    dig(r, &r->shares);
    return reclaim_shares_back(r) != since;
}

/* --- reuse --- */

bool reclaim_reuse(struct reclaim *r, int device, int64_t size, struct shared_block *ret)
{
    pthread_mutex_lock(&r->lock);
    struct storage **at = &r->kept, *st = NULL;
    while (*at && ((*at)->device != device || (*at)->size != size))
        at = &(*at)->next_dead;
    if (*at)
        st = unkeep(r, at);
    pthread_mutex_unlock(&r->lock);
    if (st)
        *ret = st->share;
    mem_free(st);
    return st;
}

int64_t reclaim_kept(struct reclaim *r, int device)
{
    pthread_mutex_lock(&r->lock);
    int64_t bytes = kept_bytes(r, device);
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

/* --- the thread --- */

static double reclaim_step(void *user)
{
    struct reclaim *r = user;
    const double next = keep_no_longer(r);
    if (!r->host.dead && !r->shares.dead)
        return worker_is_stopped(&r->worker) ? WORKER_RESTS : next;
    pthread_mutex_unlock(&r->lock);
    dig(r, &r->shares);
    dig(r, &r->host);
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
    r->keep_ns = (uint64_t)(g->config.device.shareable_keep_s * 1e9);
    r->keep_most = keep_most;
    for (int i = 0; i < n; i++) {
        struct backend_device d;
        b->ops->device_info(b, i, &d);
        keep_most[i] = d.memory_total / KEPT_PART;
        if (!b->ops->upload_new && keep_most[i] > KEPT_HOST)
            keep_most[i] = KEPT_HOST;
    }
    pthread_mutex_init(&r->lock, NULL); /* none of these can fail here */
    pthread_mutex_init(&r->host.digging, NULL);
    pthread_mutex_init(&r->shares.digging, NULL);
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
    reclaim_dig(r);
    worker_destroy(&r->worker);
    pthread_mutex_destroy(&r->shares.digging);
    pthread_mutex_destroy(&r->host.digging);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->keep_most);
    mem_free(r);
}
