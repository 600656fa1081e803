/* The worker threads: they run what would block a listener's thread, and finish orphans. */
#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

static void work(struct rq *q, handler_fn *fn)
{
    const uint64_t begun = q->inner ? clock_thread_ns() : 0;
    http_work(q, fn);
    if (q->inner)
        q->worked_ns += clock_thread_ns() - begun;
}

/* Runs one request until it has its reply or waits. */
static void work_on(struct rq *q)
{
    meter_enter(&q->cause);
    for (;;) {
        handler_fn *fn = q->work;
        q->work = NULL;
        if (atomic_load(&q->dropped) && !q->orphan)
            break;
        q->not_begun = false;
        if (!fn)
            fn = http_take_then(q); /* an orphan's */
        else if (http_is_revoked(q))
            fn = rq_refuse;
        work(q, fn);
        if (q->work && !http_done(q)) {
            http_enqueue(q); /* let others run */
            return;
        }
        if (!http_done(q) && state_waits(&q->state) == RUNS)
            http_forgot(q);
        if (http_done(q))
            break;
        if (state_step(&q->state, ARMED, PARKED))
            return;
        if (!q->orphan)
            break; /* `then` belongs on the listener's thread */
    }
    if (q->orphan)
        http_orphan_end(q);
    else
        http_resume(q->mhd, q->conn->listener);
}

double http_workers_step(void *user)
{
    struct http *h = user;
    struct rq *q = http_take_work(h);
    if (!q)
        return WORKER_RESTS;
    bool was_long = q->long_work;
    struct http_user u = q->user;
    uint64_t begun = clock_ns();
    pthread_mutex_unlock(&h->work_lock);
    work_on(q);
    meter_enter(NULL);
    pthread_mutex_lock(&h->work_lock);
    if (u.worked)
        *u.worked += (double)(clock_ns() - begun) / atomic_load(u.weight);
    h->running--;
    if (was_long) {
        h->long_running--;
        if (h->long_work.head)
            worker_wake(&h->workers);
    }
    return WORKER_AGAIN;
}
