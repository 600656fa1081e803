/* Streams of a device run in parallel, so the time between begin and end of a piece of work is not
 * its own alone. Each lane with work on the device is charged an equal part of the elapsed time,
 * and never more than the device reports for its work: all charges together are the time the device
 * was busy. Of a lane's part, LATE_MS are kept for its next pieces, since an end that is told late
 * takes from the time of the next one; they are gone when the lane has no more work there.
 *
 * A lane whose work is overdue is waiting for something else, a compiler or another lane's work,
 * and is not counted among the lanes that work: otherwise a user could shift its charges to idle
 * sessions of its own. If the device finally reports that the lane did work, it is also charged
 * what was `withheld`. */
#include <math.h>

#include "server/work/scheduler_int.h"

#include <assert.h>
#include <utlist.h>

#include "compute/base/lock.h"

#define LATE_MS    20      /* the most by which an end is told late */
#define KEEPS      0.875   /* weight of the old mean when a piece ends */
#define LINGERS    0.96875 /* and of the old expectation, if it was longer */
#define OVERDUE    4       /* times what a lane's work takes, */
#define OVERDUE_MS 1.0     /* plus this: then the lane waits */

/* Adds n pieces of work to a lane (n < 0: removes), and sets the mean of its pieces. */
static void add_tasks(struct sched_lane *l, int n, double mean)
{
    lock_held(&l->sched->lock);
    struct out *o = &l->out, *of = &l->flow->out;
    o->n_tasks += n;
    o->mean = mean;
    of->n_tasks += n;
    of->task_ms -= o->task_ms;
    o->task_ms = (double)o->n_tasks * mean;
    assert(o->n_tasks >= 0 && of->n_tasks >= o->n_tasks);
    of->task_ms = of->n_tasks ? of->task_ms + o->task_ms : 0;
}

static double learn(double mean, double ms)
{
    return KEEPS * mean + (1 - KEEPS) * ms;
}

/* Rises at once and falls slowly: long work may come again. */
static double expect(double took, double ms)
{
    return ms > took ? ms : LINGERS * took + (1 - LINGERS) * ms;
}

bool sched_is_working(const struct sched_lane *l, uint64_t since_ns)
{
    lock_held(&l->sched->lock);
    return l->waits_ns > since_ns;
}

/* With the lock held: gives the working lanes their parts of the time up to now; if all seem to
 * wait, gives all of them parts. */
static void pass_time(const struct sched *s, struct device *d, uint64_t now_ns)
{
    lock_held(&s->lock);
    int64_t working = 0, all = 0;
    for (const struct sched_lane *l = d->busy; l; l = l->next, all++)
        working += sched_is_working(l, d->since_ns);
    double ms = (double)(now_ns - d->since_ns) * 1e-6;
    for (struct sched_lane *l = d->busy; l; l = l->next)
        if (!working || sched_is_working(l, d->since_ns))
            l->part += ms / (double)(working ? working : all);
        else
            l->withheld += ms / (double)(working + 1);
    d->since_ns = now_ns;
}

static void expect_end(struct sched_lane *l, uint64_t now_ns)
{
    l->waits_ns = now_ns + (uint64_t)((OVERDUE * l->took + OVERDUE_MS) * 1e6);
}

static void work_begun(void *user)
{
    struct sched_lane *l = user;
    struct sched *s = l->sched;
    struct device *d = l->flow->device;
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    sched_touch(s, l->flow, now_ns);
    if (l->out.n_tasks == 0) {
        pass_time(s, d, now_ns);
        DL_APPEND(d->busy, l);
        expect_end(l, now_ns);
        l->part = l->withheld = 0;
    }
    add_tasks(l, 1, l->out.mean);
    pthread_mutex_unlock(&s->lock);
}

static double work_ended(void *user, double device_ms)
{
    struct sched_lane *l = user;
    struct sched *s = l->sched;
    struct device *d = l->flow->device;
    struct flow *f = l->flow;
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    pass_time(s, d, now_ns);
    double most = l->part + l->withheld; /* withheld: charged if the device says it worked */
    double ms = device_ms < most ? device_ms : most;
    l->part = fmin(fmax(l->part - ms, 0), LATE_MS);
    l->withheld = 0;
    l->took = expect(l->took, device_ms);
    f->took = expect(f->took, device_ms);
    add_tasks(l, -1, learn(l->out.mean, ms));
    f->out.mean = learn(f->out.mean, ms);
    if (l->out.n_tasks == 0)
        DL_DELETE(d->busy, l);
    else
        expect_end(l, now_ns);
    f->start += ms / f->weight;
    f->last_ns = now_ns;
    sched_serve(s, d);
    pthread_mutex_unlock(&s->lock);
    return ms;
}

static void lane_release(void *user)
{
    sched_lane_unref(user);
}

const struct work_watch sched_watch = {work_begun, work_ended, lane_release};
