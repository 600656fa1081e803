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
#define MOST_NS        10000000000u /* and while there is work under way */

struct memory_pressure {
    _Atomic uint32_t refs;
    const struct engine *engine;
    uint64_t until; /* clock_ns: after that nothing is waited for */
    struct eviction eviction;
    _Atomic bool answered;
    pthread_mutex_t wake_lock; /* held while the asker is woken */
    void (*wake)(void *user);  /* NULL: gone */
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
    /* the last answer may have been seen while it is still being told */
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
