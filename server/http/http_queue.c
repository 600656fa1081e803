/* The queues of requests for worker threads.
 *
 * Workers serve two queues. Short work goes first; long work (declared so, or requeued after a
 * slice) never takes the last worker, so a short job never waits for a long one longer than its own
 * cost. One long job runs after every few short ones, so long work cannot starve. Within a queue
 * the next job is that of the user with the least worker time, divided by its weight (start-time
 * fair queueing, as in scheduler.c): a user who sends large bodies without end delays another by
 * one of its own slices at most. */
#include <assert.h>

#include "compute/base/lock.h"
#include "server/http/http_impl.h"

#define SHORT_IN_A_ROW 8 /* then one long job, if one waits */

/* After a change of the queues. */
static void check(const struct http *h)
{
    lock_held(&h->work_lock);
#ifndef NDEBUG
    const struct work_queue *const queues[] = {&h->short_work, &h->long_work};
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        const struct rq *last = NULL;
        for (const struct rq *q = queues[i]->head; q; last = q, q = q->next_work, n++)
            assert(q->queued && q->http == h && n < h->n_work);
        assert(queues[i]->tail == last);
    }
    assert(n == h->n_work && h->long_running >= 0 && h->long_running <= h->running);
#endif
}

void http_enqueue(struct rq *q)
{
    struct http *h = q->http;
    pthread_mutex_lock(&h->work_lock);
    struct work_queue *w = q->long_work ? &h->long_work : &h->short_work;
    const struct http_user *u = &q->user;
    assert(!q->queued);
    q->next_work = NULL;
    q->queued = true;
    if (u->worked && *u->worked < h->worked)
        *u->worked = h->worked; /* idle time earns a user no credit */
    if (w->tail)
        w->tail->next_work = q;
    else
        w->head = q;
    w->tail = q;
    h->n_work++;
    check(h);
    worker_wake(&h->workers);
    pthread_mutex_unlock(&h->work_lock);
}

static double worked(const struct rq *q)
{
    return q->user.worked ? *q->user.worked : 0;
}

/* The first job of the user with the least worker time. */
static struct rq *take_first(struct http *h, struct work_queue *w)
{
    lock_held(&h->work_lock);
    struct rq *before = NULL, *best_before = NULL, *best = w->head;
    for (struct rq *q = w->head; q; before = q, q = q->next_work)
        if (worked(q) < worked(best)) {
            best = q;
            best_before = before;
        }
    if (best_before)
        best_before->next_work = best->next_work;
    else
        w->head = best->next_work;
    if (w->tail == best)
        w->tail = best_before;
    if (worked(best) > h->worked)
        h->worked = worked(best);
    return best;
}

/* The next job, or NULL if none may begin now. */
struct rq *http_take_work(struct http *h)
{
    lock_held(&h->work_lock);
    int most = h->config.workers > 1 ? h->config.workers - 1 : 1;
    bool may_long = h->long_work.head && h->long_running < most;
    struct work_queue *w = &h->short_work;
    if (may_long && (!w->head || h->short_run >= SHORT_IN_A_ROW)) {
        w = &h->long_work;
        h->short_run = 0;
    } else if (w->head) {
        h->short_run = may_long ? h->short_run + 1 : 0;
    } else {
        return NULL;
    }
    struct rq *q = take_first(h, w);
    h->n_work--;
    q->queued = false;
    h->running++;
    h->long_running += w == &h->long_work;
    check(h);
    return q;
}

void http_drop_queued(struct http *h)
{
    const struct work_queue *const queues[] = {&h->short_work, &h->long_work};
    pthread_mutex_lock(&h->work_lock);
    for (int i = 0; i < 2; i++)
        for (struct rq *q = queues[i]->head; q; q = q->next_work)
            if (q->not_begun || q->r.abandon)
                atomic_store(&q->dropped, true);
    pthread_mutex_unlock(&h->work_lock);
}
