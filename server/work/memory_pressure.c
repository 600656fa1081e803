/* Created at the first failure, and lives as long as its request. The engine may answer after the
 * request has ended (its client disconnected in the middle of a body): the struct then lives until
 * that answer, kept by a second reference, and wakes nobody.
 *
 * A request may run out of memory several times: once for each of its arrays, or because other
 * requests were quicker. The number of tries is bounded so that two large requests cannot compete
 * for ever. While the device has work in flight the wait is longer: its temporaries, and arrays
 * deleted meanwhile, come back when it ends. Clients that queue work without waiting for each piece
 * would otherwise get 507 for memory that is free a moment later. */
#include "server/work/memory_pressure.h"

#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/mem.h"
#include "server/config.h"
#include "server/http/wakeup.h"

#define MOST_TRIES     100
#define MOST_FRUITLESS 25           /* while others use all memory: some milliseconds each */
#define MOST_NS        10000000000u /* and while work is in flight */

struct memory_pressure {
    _Atomic uint32_t refs;
    const struct engine *engine;
    uint64_t until; /* clock_ns: no waiting after that */
    struct eviction eviction;
    _Atomic bool answered;
    pthread_mutex_t wake_lock; /* held while `wake` runs */
    void (*wake)(void *user);  /* NULL: the request has ended */
    void *user;
    struct wakeup wakeup;
    int tries, fruitless;
};

static void pressure_unref(struct memory_pressure *p)
{
    if (atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&p->wake_lock);
    mem_free(p);
}

static bool worth_waiting(struct memory_pressure *p)
{
    return p->fruitless++ < MOST_FRUITLESS ||
           (engine_jobs_in_flight(p->engine) > 0 && clock_ns() < p->until);
}

static void answered(void *user, enum err_code result, double device_ms)
{
    struct memory_pressure *p = user;
    (void)device_ms;
    pthread_mutex_lock(&p->wake_lock);
    if (result == ERR_OK)
        p->tries++;
    else if (result != ERR_OVERLOADED || !worth_waiting(p))
        p->tries = MOST_TRIES; /* the next one is the last */
    atomic_store(&p->answered, true);
    if (p->wake)
        p->wake(p->user);
    pthread_mutex_unlock(&p->wake_lock);
    pressure_unref(p);
}

static struct memory_pressure *pressure_of(struct request *req)
{
    struct memory_pressure *p = req->pressure;
    if (p)
        return p;
    p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->wake_lock, NULL); /* cannot fail here */
    wakeup_init(&p->wakeup, req);
    p->engine = req->server->engine;
    p->until = clock_ns() + MOST_NS;
    req->pressure = p;
    return p;
}

static bool lacks_room(const struct err *e)
{
    return e->code == ERR_OUT_OF_MEMORY && e->wanted > 0;
}

bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user)
{
    struct memory_pressure *p = lacks_room(e) ? pressure_of(req) : NULL;
    if (!p || p->tries >= MOST_TRIES)
        return false;
    /* the caller may see the last answer before answered() has returned */
    pthread_mutex_lock(&p->wake_lock);
    p->wake = wake;
    p->user = user;
    pthread_mutex_unlock(&p->wake_lock);
    p->eviction = (struct eviction){.device = e->device,
                                    .bytes = e->wanted,
                                    .stay = !req->server->config->evict,
                                    .again = p->tries > 0,
                                    .until = e->until,
                                    .done = answered,
                                    .user = p};
    atomic_store(&p->answered, false);
    atomic_fetch_add(&p->refs, 1);
    engine_evict(req->server->engine, &p->eviction);
    return true;
}

bool memory_pressure_answered(const struct request *req)
{
    return atomic_load(&req->pressure->answered);
}

bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again)
{
    struct memory_pressure *p = lacks_room(e) ? pressure_of(req) : NULL;
    if (!p)
        return false;
    wakeup_arm(&p->wakeup);
    if (!memory_pressure_ask(req, e, wakeup_ring, &p->wakeup))
        return false;
    wakeup_wait(&p->wakeup, again);
    return true;
}

bool memory_pressure_repeat(struct request *req, const struct err *e)
{
    return memory_pressure_retry(req, e, http_repeat);
}

void memory_pressure_free(struct memory_pressure *p)
{
    pthread_mutex_lock(&p->wake_lock);
    p->wake = NULL;
    pthread_mutex_unlock(&p->wake_lock);
    pressure_unref(p);
}
