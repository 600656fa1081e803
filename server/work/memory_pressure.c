/* It is made with the first lack and stays with its request. The engine's answer may come after
 * the request has gone (its client has hung up in the middle of a body): the room then lives until
 * that, held by a second reference, and tells nobody.
 *
 * A request may lack room several times: for each of its arrays, or because others were quicker.
 * The number of tries is bounded so that two large requests cannot chase each other for ever. Work
 * under way is waited for longer: its temporaries, and what is deleted meanwhile, come back with
 * it, and clients that queue their work without a wait for each piece would else be told 507 for
 * memory that is free a moment later. */
#include "server/work/memory_pressure.h"

#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/mem.h"
#include "server/config.h"
#include "server/http/wakeup.h"

#define MOST_TRIES     100
#define MOST_FRUITLESS 25           /* while others use all there is: some milliseconds each */
#define PATIENCE_NS    10000000000u /* and while there is work under way */

struct memory_pressure {
    _Atomic uint32_t refs;
    const struct engine *engine;
    uint64_t until; /* http_now_ns: the end of patience */
    struct eviction eviction;
    _Atomic bool answered;
    pthread_mutex_t wake_lock; /* held while the asker is woken */
    void (*wake)(void *user);  /* NULL: gone */
    void *user;
    struct wakeup wakeup;
    int tries, fruitless;
};

static void pressure_unref(struct memory_pressure *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&r->wake_lock);
    mem_free(r);
}

static bool worth_waiting(struct memory_pressure *r)
{
    return r->fruitless++ < MOST_FRUITLESS ||
           (engine_jobs_in_flight(r->engine) > 0 && http_now_ns() < r->until);
}

static void answered(void *user, enum err_code result, double device_ms)
{
    struct memory_pressure *r = user;
    (void)device_ms;
    pthread_mutex_lock(&r->wake_lock);
    if (result == ERR_OK)
        r->tries++;
    else if (result != ERR_OVERLOADED || !worth_waiting(r))
        r->tries = MOST_TRIES; /* the next one is the last */
    atomic_store(&r->answered, true);
    if (r->wake)
        r->wake(r->user);
    pthread_mutex_unlock(&r->wake_lock);
    pressure_unref(r);
}

static struct memory_pressure *pressure_of(struct request *req)
{
    struct memory_pressure *r = req->pressure;
    if (r || !(r = mem_calloc(1, sizeof *r)))
        return r;
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->wake_lock, NULL); /* cannot fail here */
    wakeup_init(&r->wakeup, req);
    r->engine = req->server->engine;
    r->until = http_now_ns() + PATIENCE_NS;
    req->pressure = r;
    return r;
}

static bool lacks_room(const struct err *e)
{
    return e->code == ERR_OUT_OF_MEMORY && e->wanted > 0;
}

bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user)
{
    struct memory_pressure *r = lacks_room(e) ? pressure_of(req) : NULL;
    if (!r || r->tries >= MOST_TRIES)
        return false;
    /* the last answer may have been seen while it is still being told */
    pthread_mutex_lock(&r->wake_lock);
    r->wake = wake;
    r->user = user;
    pthread_mutex_unlock(&r->wake_lock);
    r->eviction = (struct eviction){.device = e->device,
                                    .bytes = e->wanted,
                                    .stay = !req->server->config->evict,
                                    .again = r->tries > 0,
                                    .until = e->until,
                                    .done = answered,
                                    .user = r};
    atomic_store(&r->answered, false);
    atomic_fetch_add(&r->refs, 1);
    engine_evict(req->server->engine, &r->eviction);
    return true;
}

bool memory_pressure_answered(const struct request *req)
{
    return atomic_load(&req->pressure->answered);
}

bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again)
{
    struct memory_pressure *r = lacks_room(e) ? pressure_of(req) : NULL;
    if (!r)
        return false;
    wakeup_arm(&r->wakeup);
    if (!memory_pressure_ask(req, e, wakeup_ring, &r->wakeup))
        return false;
    wakeup_wait(&r->wakeup, again);
    return true;
}

bool memory_pressure_repeat(struct request *req, const struct err *e)
{
    return memory_pressure_retry(req, e, http_repeat);
}

void memory_pressure_free(struct memory_pressure *r)
{
    pthread_mutex_lock(&r->wake_lock);
    r->wake = NULL;
    pthread_mutex_unlock(&r->wake_lock);
    pressure_unref(r);
}
