/* The thread takes jobs from a queue: those whose slice has made progress, or whose first could not
 * begin yet. A job is queued once at most, and not while it is lent to another thread, so one
 * thread at a time works on a program. */
#include <assert.h>
#include <math.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/jobs/jobs_int.h"

#define LEAST_TIMEOUT 1.0  /* in seconds: slices take some milliseconds */
#define SWEEP         1.0  /* seconds between checks for ended jobs that need not be kept, */
#define LOOK          0.02 /* and for jobs that are blocked by others or have lost their session */

/* Queues the jobs that were blocked by the slice that has ended; whether there are any. */
static bool unblock(struct jobs *t)
{
    bool any = false;
    pthread_mutex_lock(&t->lock);
    for (struct user_job *j = t->first; j; j = j->next)
        if (j->blocked) {
            j->blocked = false;
            job_make_ready(j);
            any = true;
        }
    pthread_mutex_unlock(&t->lock);
    return any;
}

static void work_on(struct user_job *j)
{
    struct jobs *t = j->table;
    bool was_in_slice = j->in_slice;
    if (was_in_slice ? !job_take_slice(j) : job_ended(j)) {
        if (was_in_slice && !j->in_slice)
            unblock(t);
        return;
    }
    if (was_in_slice && unblock(t)) { /* they go first */
        pthread_mutex_lock(&t->lock);
        job_make_ready(j);
        pthread_mutex_unlock(&t->lock);
        return;
    }
    job_begin_slice(j);
}

/* With the lock held: removes an ended job whose retention or session is over; the caller gets the
 * reference. NULL: none is left. */
static struct user_job *take_old(struct jobs *t)
{
    lock_held(&t->lock);
    double until = clock_ms() - t->config.retention * 1e3;
    for (struct user_job *j = t->first; j; j = j->next) {
        if (!job_is_over(j))
            continue;
        if (job_is_orphan(j) || j->ended < until) {
            job_forget(j);
            return j;
        }
    }
    return NULL;
}

/* With the lock held, which is released meanwhile. */
static void forget_old(struct jobs *t)
{
    lock_held(&t->lock);
    for (struct user_job *j = take_old(t); j; j = take_old(t)) {
        pthread_mutex_unlock(&t->lock);
        job_unref(j);
        pthread_mutex_lock(&t->lock);
    }
}

/* With the lock held: an ended job that cannot be resumed because it has lost another principal's
 * array. */
static struct user_job *find_lost(struct jobs *t)
{
    lock_held(&t->lock);
    struct user_job *j = t->first;
    while (j && !(job_is_over(j) && j->body.program && program_has_lost(&j->body)))
        j = j->next;
    return j;
}

/* The same: such a job must not hold that memory. */
static void let_go_of_lost(struct jobs *t)
{
    lock_held(&t->lock);
    for (struct user_job *j = find_lost(t); j; j = find_lost(t)) {
        struct program_body taken = job_take_program(j);
        pthread_mutex_unlock(&t->lock);
        program_body_drop(&taken);
        pthread_mutex_lock(&t->lock);
    }
}

/* With the lock held: marks jobs as cancelled whose slices do not end. */
static void give_up(struct jobs *t)
{
    lock_held(&t->lock);
    const struct job_end end = {.state = JOB_CANCELLED, .err = ERR_INIT, .statement = -1};
    for (struct user_job *j = t->first; j; j = j->next)
        if (!job_is_over(j) && !job_is_left(j))
            job_write_end(j, &end);
}

/* With the lock held: if a job's session is closed, nobody will see the results of its slice. */
static void give_up_orphans(struct jobs *t)
{
    lock_held(&t->lock);
    for (struct user_job *j = t->in_slice ? t->first : NULL; j; j = j->next)
        if (j->in_slice && job_is_orphan(j))
            program_give_up(j->body.program);
}

/* With the lock held. */
static void look_at_resting(struct jobs *t)
{
    lock_held(&t->lock);
    for (struct user_job *j = t->n_resting ? t->first : NULL; j; j = j->next)
        if (j->resting)
            job_make_ready(j);
}

/* Between two pieces of the thread's work. */
static void check(const struct jobs *t)
{
    lock_held(&t->lock);
#ifndef NDEBUG
    size_t in_slice = 0, resting = 0;
    for (const struct user_job *j = t->first; j && !t->gave_up; j = j->next) {
        in_slice += (j->in_slice || j->frees_memory) + (size_t)j->copying;
        resting += j->resting;
        assert(j->refs > 0 && !j->forgotten && j->step <= j->body.steps);
        assert(j->n_snapshots <= j->n_taken && j->n_taken <= j->cap_snapshots);
        assert(!job_is_over(j) || (!j->in_slice && !j->resting));
        assert(!j->in_slice || (j->state == JOB_RUNNING && !j->resting && !j->frees_memory));
    }
    assert(t->gave_up || (in_slice == t->in_slice && resting == t->n_resting));
    for (const struct user_job *j = t->ready; j; j = j->next_ready)
        assert(j->ready && j->refs > 0 && (j->next_ready || t->last_ready == &j->next_ready));
#endif
}

/* Seconds until this thread polls for the end of a slice, if it is the only one, rather than being
 * told of it by another; INFINITY: it does not. A sleep may end late, so it ends before it has to.
 */
static double until_due(const struct jobs *t, double now)
{
    lock_held(&t->lock);
    const bool polls = t->in_slice == 1 && t->unsure > 0 && now < t->due + t->unsure;
    return polls ? t->due - 2 * t->unsure - now : INFINITY;
}

/* When the daemon stops, runs until no slice is under way or the time for them is over. */
double jobs_step(void *user)
{
    struct jobs *t = user;
    const double now = clock_s();
    check(t);
    if (t->stopping && !t->leave) {
        t->leave =
            now + (t->config.stop_timeout > LEAST_TIMEOUT ? t->config.stop_timeout : LEAST_TIMEOUT);
        look_at_resting(t); /* they end now */
    }
    if (t->stopping && !t->gave_up && !t->ready && now >= t->leave) {
        give_up(t);
        t->gave_up = true;
    }
    if (t->gave_up || (t->stopping && !t->in_slice && !t->n_lent && !t->ready && !t->n_resting))
        return WORKER_RESTS;
    if (now >= t->sweep) { /* first, so that it happens even if a job is always ready */
        forget_old(t);
        let_go_of_lost(t);
        pthread_mutex_unlock(&t->lock);
        if (t->config.engine)
            engine_tidy(t->config.engine);
        mem_trim(); /* here, where it delays nothing but slices */
        pthread_mutex_lock(&t->lock);
        t->sweep = clock_s() + SWEEP;
    } else if (now >= t->look) {
        look_at_resting(t);
        give_up_orphans(t);
        t->look = now + LOOK;
    } else if (t->ready) {
        struct user_job *j = jobs_next_ready(t);
        pthread_mutex_unlock(&t->lock);
        asker_begin(j->asker);
        meter_enter(&j->cause);
        work_on(j);
        meter_enter(NULL);
        asker_begin(NULL);
        job_unref(j);
        pthread_mutex_lock(&t->lock);
    } else {
        const double rest = (t->n_resting || t->in_slice ? t->look : t->sweep) - now;
        const double sleep = fmin(rest, until_due(t, now));
        if (sleep > 0)
            return sleep;
        pthread_mutex_unlock(&t->lock);
        engine_poll(t->config.engine);
        pthread_mutex_lock(&t->lock);
    }
    return WORKER_AGAIN;
}
