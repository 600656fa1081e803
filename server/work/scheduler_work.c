/* Streams of a device run in parallel, so the time between begin and end of a piece of work is not
 * its own alone. Each lane with work on the device is charged an equal part of the elapsed time,
 * and never more than the device reports for its work: all charges together are the time the device
 * was busy. Work on the mesh is charged so on each of its parts; for the user's account it took the
 * longest of these. Of a lane's part, LATE_MS are kept for its next pieces, since an end that is
 * told late takes from the time of the next one; they are gone when the lane has no more work
 * there.
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
    struct out *o = &l->out;
    const double before = o->task_ms;
    o->n_tasks += n;
    o->mean = mean;
    o->task_ms = (double)o->n_tasks * mean;
    for (int i = 0; i < l->n_parts; i++) {
        struct out *of = &l->parts[i].flow->out;
        of->n_tasks += n;
        assert(o->n_tasks >= 0 && of->n_tasks >= o->n_tasks);
        of->task_ms = of->n_tasks ? of->task_ms - before + o->task_ms : 0;
    }
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
    for (const struct lane_part *p = d->busy; p; p = p->next, all++)
        working += sched_is_working(p->lane, d->since_ns);
    double ms = (double)(now_ns - d->since_ns) * 1e-6;
    for (struct lane_part *p = d->busy; p; p = p->next)
        if (!working || sched_is_working(p->lane, d->since_ns))
            p->part += ms / (double)(working ? working : all);
        else
            p->withheld += ms / (double)(working + 1);
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
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    for (int i = 0; i < l->n_parts; i++) {
        struct lane_part *p = &l->parts[i];
        sched_touch(s, p->flow, now_ns);
        if (l->out.n_tasks)
            continue;
        pass_time(s, p->flow->device, now_ns);
        DL_APPEND(p->flow->device->busy, p);
        p->part = p->withheld = 0;
    }
    if (l->out.n_tasks == 0)
        expect_end(l, now_ns);
    add_tasks(l, 1, l->out.mean);
    pthread_mutex_unlock(&s->lock);
}

/* Charges the user on one part for a piece of work; returns how much. */
static double charge(const struct sched *s, struct lane_part *p, double device_ms, uint64_t now_ns)
{
    lock_held(&s->lock);
    pass_time(s, p->flow->device, now_ns);
    double most = p->part + p->withheld; /* withheld: charged if the device says it worked */
    double ms = device_ms < most ? device_ms : most;
    p->part = fmin(fmax(p->part - ms, 0), LATE_MS);
    p->withheld = 0;
    p->flow->start += ms / p->flow->weight;
    p->flow->last_ns = now_ns;
    return ms;
}

static void learn_of(struct flow *f, double ms, double device_ms)
{
    f->took = expect(f->took, device_ms);
    f->out.mean = learn(f->out.mean, ms);
}

static double work_ended(void *user, double device_ms)
{
    struct sched_lane *l = user;
    struct sched *s = l->sched;
    double ms = 0;
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    for (int i = 0; i < l->n_parts; i++)
        ms = fmax(ms, charge(s, &l->parts[i], device_ms, now_ns));
    l->took = expect(l->took, device_ms);
    add_tasks(l, -1, learn(l->out.mean, ms));
    for (int i = 0; i < l->n_parts; i++) {
        struct lane_part *p = &l->parts[i];
        if (p->flow != l->flow)
            learn_of(p->flow, ms, device_ms);
        if (l->out.n_tasks == 0)
            DL_DELETE(p->flow->device->busy, p);
    }
    learn_of(l->flow, ms, device_ms);
    if (l->out.n_tasks)
        expect_end(l, now_ns);
    sched_serve(s, l->flow->device);
    pthread_mutex_unlock(&s->lock);
    return ms;
}

static void lane_release(void *user)
{
    sched_lane_unref(user);
}

const struct work_watch sched_watch = {work_begun, work_ended, lane_release};
