/* The worker threads, which do what would hold up a listener's thread, and bring orphans to their
 * end. */
#include <microhttpd.h>

#include "compute/base/mem.h"
#include "server/http/http_impl.h"

/* One request on a worker: until it replied or waits. */
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
        http_work(q, fn);
        if (q->work && !http_done(q)) {
            http_enqueue(q); /* others have their turn */
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
        MHD_resume_connection(q->mhd);
}

static void *worker(void *arg)
{
    struct http *h = arg;
    pthread_mutex_lock(&h->work_lock);
    for (;;) {
        struct rq *q = http_take_work(h);
        if (!q) {
            if (h->work_stop)
                break;
            pthread_cond_wait(&h->work_wake, &h->work_lock);
            continue;
        }
        bool was_long = q->long_work;
        struct http_user u = q->user;
        uint64_t begun = clock_ns();
        pthread_mutex_unlock(&h->work_lock);
        work_on(q);
        meter_enter(NULL);
        pthread_mutex_lock(&h->work_lock);
        if (u.worked)
            *u.worked += (double)(clock_ns() - begun) / atomic_load(u.weight);
        if (was_long) {
            h->long_running--;
            if (h->long_work.head)
                pthread_cond_signal(&h->work_wake);
        }
    }
    pthread_mutex_unlock(&h->work_lock);
    return NULL;
}

enum err_code http_workers_start(struct http *h, struct err *e)
{
    int n = h->config.workers > 0 ? h->config.workers : 1;
    h->workers = mem_calloc((size_t)n, sizeof *h->workers);
    if (!h->workers)
        return err_oom(e);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    for (; h->n_workers < n; h->n_workers++)
        if (pthread_create(&h->workers[h->n_workers], &attr, worker, h) != 0)
            break;
    pthread_attr_destroy(&attr);
    return h->n_workers == n ? ERR_OK : err_set(e, ERR_INTERNAL, "cannot start worker threads");
}

void http_workers_stop(struct http *h)
{
    pthread_mutex_lock(&h->work_lock);
    h->work_stop = true;
    pthread_cond_broadcast(&h->work_wake);
    pthread_mutex_unlock(&h->work_lock);
    for (int i = 0; i < h->n_workers; i++)
        pthread_join(h->workers[i], NULL);
    mem_free(h->workers);
    h->workers = NULL;
    h->n_workers = 0;
}
