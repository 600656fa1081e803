/* Created at the first failure, and lives as long as its request. The engine may answer after the
 * request has ended (its client disconnected in the middle of a body): the struct then lives until
 * that answer, kept by a second reference, and wakes nobody. */
#include "server/work/memory_pressure.h"

#include <stdatomic.h>

#include "compute/base/mem.h"
#include "compute/base/wake.h"
#include "server/config/config.h"
#include "server/http/wakeup.h"
#include "server/server.h"
#include "server/work/memory_retry.h"

struct memory_pressure {
    _Atomic uint32_t refs;
    struct memory_retry retry;
    struct wake wake; /* nobody once the request has ended */
    struct wakeup wakeup;
};

static void pressure_unref(struct memory_pressure *p)
{
    if (atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    wake_destroy(&p->wake);
    mem_free(p);
}

static void answered(void *user)
{
    struct memory_pressure *p = user;
    wake_tell(&p->wake);
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
    wake_init(&p->wake, NULL, NULL);
    wakeup_init(&p->wakeup, req);
    req->pressure = p;
    return p;
}

bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user)
{
    struct memory_pressure *p = lacks_memory(e) ? pressure_of(req) : NULL;
    if (!p)
        return false;
    wake_set(&p->wake, wake, user);
    atomic_fetch_add(&p->refs, 1);
    bool asked = memory_retry_ask(&p->retry, req->server->engine, req->server->config->evict, e,
                                  answered, p);
    if (!asked)
        atomic_fetch_sub(&p->refs, 1); /* not the last: the request's */
    return asked;
}

bool memory_pressure_answered(const struct request *req)
{
    return wake_told(&req->pressure->wake);
}

bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again)
{
    struct memory_pressure *p = lacks_memory(e) ? pressure_of(req) : NULL;
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
    wake_leave(&p->wake);
    pressure_unref(p);
}
