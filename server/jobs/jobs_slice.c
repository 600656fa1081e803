/* What a slice is, and how its outcome is handled. The number of its steps follows from the time
 * the last slice took. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "compute/program/program.h"
#include "server/jobs/jobs_int.h"
#include "server/store/lease_use.h"
#include "server/work/asker.h"

#define GROW_MOST   16   /* how many times the steps of the last slice */
#define PASS_SLICES 4    /* a slice may be so many times as long to make a whole pass */
#define UNSURE_PART 0.01 /* of its time: by how much a slice's end is missed, about */

static void wake_job(void *user)
{
    struct user_job *j = user;
    pthread_mutex_lock(&j->table->lock);
    job_make_ready(j);
    pthread_mutex_unlock(&j->table->lock);
}

/* With the lock held. */
static void go_on(struct user_job *j)
{
    lock_held(&j->table->lock);
    if (!j->resting)
        return;
    j->resting = false;
    j->table->n_resting--;
    j->err = (struct err)ERR_INIT;
}

/* --- the end --- */

void job_write_end(struct user_job *j, const struct job_end *o)
{
    lock_held(&j->table->lock);
    go_on(j);
    session_rest(j->body.session, true); /* the session may expire now */
    job_enter(j, o->state);
    j->ends++;
    j->stopped = o->stopped;
    j->err = o->err;
    j->failed_in = o->failed_in;
    j->statement = o->statement;
    j->ended_us = clock_date_us();
    j->ended = clock_ms();
    if (j->started > 0)
        j->ran += clock_ms() - j->started;
    j->started = 0;
    job_keep_progress(j);
    job_changed(j);
}

/* Memory that an ended job does not need, or can allocate again, is released before the end is
 * reported. */
static void finish(struct user_job *j, const struct job_end *o)
{
    struct jobs *t = j->table;
    if (o->state == JOB_DONE || program_has_lost(&j->body)) {
        struct program_body taken = job_take_program(j);
        program_body_drop(&taken);
    } else {
        program_rest(j->body.program);
    }
    struct job_end end = *o;
    if (end.err.code == ERR_DEVICE_LOST && t->config.explain_lost)
        t->config.explain_lost(t->config.lost, j->asker, &end.err);
    memory_explain(t->config.engine, t->config.evict, &end.err);
    pthread_mutex_lock(&t->lock);
    if (!job_is_over(j)) /* the thread may have given up meanwhile */
        job_write_end(j, &end);
    bool orphan = !j->forgotten && job_is_orphan(j);
    if (orphan)
        job_forget(j);
    pthread_mutex_unlock(&t->lock);
    if (orphan)
        job_unref(j);
}

/* --- memory --- */

static void memory_answered(void *user)
{
    struct user_job *j = user;
    struct jobs *t = j->table;
    pthread_mutex_lock(&t->lock);
    j->frees_memory = false;
    job_make_ready(j);
    job_leave_slice(j);
    pthread_mutex_unlock(&t->lock);
}

/* Whether the job is to be left as it is: the next process goes on with it. */
static bool is_left(struct user_job *j, const struct err *why)
{
    pthread_mutex_lock(&j->table->lock);
    bool left = (job_is_left(j) && lacks_memory(why)) ||
                (j->table->config.writer && why->code == ERR_DEVICE_LOST);
    if (left)
        go_on(j);
    pthread_mutex_unlock(&j->table->lock);
    return left;
}

/* A slice that found no memory begins again once the engine has freed some, as a request is
 * repeated. No thread waits; the job counts as in a slice until the engine has answered, and is
 * made ready then. False: the engine is not asked. */
static bool job_free_memory(struct user_job *j, const struct err *e)
{
    struct jobs *t = j->table;
    if (!lacks_memory(e))
        return false;
    pthread_mutex_lock(&t->lock);
    bool asks = !j->cancel && !t->stopping;
    if (asks) {
        j->frees_memory = true;
        job_enter_slice(j);
    }
    pthread_mutex_unlock(&t->lock);
    if (!asks)
        return false;
    program_rest(j->body.program);
    if (memory_retry_ask(&j->retry, t->config.engine, t->config.evict, e, memory_answered, j))
        return true;
    pthread_mutex_lock(&t->lock);
    j->frees_memory = false;
    job_leave_slice(j);
    pthread_mutex_unlock(&t->lock);
    return false;
}

static bool frees_memory(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = j->frees_memory;
    pthread_mutex_unlock(&j->table->lock);
    return yes;
}

/* --- slices --- */

static void leave_turn(struct user_job *j)
{
    if (j->table->config.sched)
        sched_leave(j->table->config.sched, &j->turn);
}

/* Whether a slice may begin now; if not, the job is made ready when its turn comes. */
static bool has_turn(struct user_job *j)
{
    struct sched *s = j->table->config.sched;
    struct session_stream *stream;
    struct err e = ERR_INIT;
    if (!s || session_background(j->body.session, &stream, &e) != ERR_OK || !stream->lane)
        return true;
    if (j->turn.lane)
        return sched_held(s, &j->turn);
    double ms = j->step_ms * (double)j->slice_steps, most = j->table->config.slice * 1e3;
    bool now = true;
    j->turn = (struct sched_turn){.come = wake_job, .user = j, .sure = true};
    enum err_code code =
        sched_ask(stream->lane, ms > 0 && ms < most ? ms : most, &j->turn, &now, &e);
    return code != ERR_OK || now; /* `sure`: it cannot be refused */
}

/* Computes how many steps the next slice has. */
static void adapt(struct user_job *j, const struct program_progress *g)
{
    const bool again = g->state == PROGRAM_AGAIN;
    double took = g->device_ms; /* without compilation */
    j->step_ms = j->slice_steps > 0 ? took / (double)j->slice_steps : 0;
    double more = j->table->config.slice * 1e3 / (took > 1e-3 ? took : 1e-3);
    more = again ? 0.5 : more > GROW_MOST ? GROW_MOST : more;
    double n = (double)j->slice_steps * more;
    j->slice_steps = n < 1 ? 1 : (int64_t)n;
    j->again = again ? j->again + 1 : 0;
}

/* The statement that an error is in: the one its place names, which may have been written out in
 * the statement that ran. */
static int32_t statement_of(const struct err *e, int32_t run)
{
    int k, end = 0;
    bool known = sscanf(e->pointer, "/body/%d%n", &k, &end) == 1 && end > 0 &&
                 (!e->pointer[end] || e->pointer[end] == '/');
    return known ? k : run;
}

/* Whether the slice ends the job, and how. */
static bool is_end(struct user_job *j, const struct program_progress *g, struct job_end *ret)
{
    *ret = (struct job_end){.state = JOB_FAILED,
                            .err = g->err,
                            .failed_in = g->failed_in,
                            .statement = statement_of(&g->err, g->statement)};
    switch (g->state) {
    case PROGRAM_FAILED:
        return true;
    case PROGRAM_NAN:
        err_set(&ret->err, ERR_NOT_A_NUMBER,
                "a NaN appeared in step %" PRId64 ": the arrays are as they were before that step",
                g->steps + 1);
        ret->failed_in = g->steps + 1;
        return true;
    case PROGRAM_AGAIN:
        return false;
    default:
        break;
    }
    ret->state = JOB_DONE;
    ret->stopped = g->state == PROGRAM_UNTIL ? "until" : NULL;
    return ret->stopped || g->steps >= j->body.steps;
}

/* Another client's lease or writes block the job: it rests and tries again from time to time,
 * unless it has been cancelled. */
static bool rests(struct user_job *j, const struct err *why)
{
    struct jobs *t = j->table;
    pthread_mutex_lock(&t->lock);
    bool cancelled = j->cancel || t->stopping;
    if (!cancelled && !j->resting) {
        j->resting = true;
        t->n_resting++;
        j->err = *why;
        if (j->started > 0)
            j->ran += clock_ms() - j->started;
        j->started = 0;
        job_changed(j);
    }
    pthread_mutex_unlock(&t->lock);
    if (!cancelled)
        leave_turn(j);
    return !cancelled;
}

/* Other clients write to the arrays more often than a step ends. That must not end the job: it
 * tries less often, one step at a time, until a step falls between two of their writes. */
static bool is_crowded_out(struct user_job *j)
{
    struct err why = ERR_INIT;
    if (j->again < PROGRAM_AGAIN_MOST)
        return false;
    err_set(&why, ERR_CONFLICT,
            "other requests keep writing to the program's arrays, and no step could finish");
    return rests(j, &why);
}

bool job_take_slice(struct user_job *j)
{
    struct jobs *t = j->table;
    struct program_progress g;
    struct job_end o;
    struct err refusal = ERR_INIT;
    jobs_publish_begin(t);
    if (program_may_use(&j->body, &refusal) != ERR_OK)
        program_discard(j->body.program);
    program_collect(j->body.program, &g);
    jobs_publish_end(t);
    if (g.state == PROGRAM_WAITING)
        return false;
    const bool leased = g.state == PROGRAM_AGAIN && refusal.code == ERR_LOCKED; /* will rest */
    const bool given_up = g.state == PROGRAM_FAILED && g.err.code == ERR_NOT_FOUND;
    if ((g.state == PROGRAM_AGAIN || given_up) && refusal.code != ERR_OK && !leased) {
        g.state = PROGRAM_FAILED;
        g.err = refusal;
        g.failed_in = g.steps + 1;
    }
    const bool good = g.state == PROGRAM_GOES_ON || g.state == PROGRAM_UNTIL;
    const bool copies = good && g.copies && t->config.writer;
    if (!good)
        job_drop_snapshots(j);
    if (!leased && g.state != PROGRAM_FAILED)
        adapt(j, &g);
    pthread_mutex_lock(&t->lock);
    j->report = program_report(j->body.program);
    j->device_ms += g.device_ms;
    j->bytes += g.bytes;
    j->tiers |= g.tiers;
    j->forms |= g.forms;
    if (good) {
        job_keep_committed(j, copies);
        job_count_values(j, g.n_values);
        j->retry = (struct memory_retry){0};
    }
    j->n_snapshots = j->n_taken;
    j->step = g.steps;
    bool over = is_end(j, &g, &o);
    if (!over)
        job_changed(j);
    j->in_slice = false;
    pthread_mutex_unlock(&t->lock);
    leave_turn(j);
    if (copies)
        job_await(j, program_stream(j->body.program));
    if (over && (copies || job_awaits(j))) {
        j->ending = true;
        j->end = o;
    }
    const bool failed = over && !j->ending && g.state == PROGRAM_FAILED;
    if (over && !j->ending && !(failed && (is_left(j, &g.err) || job_free_memory(j, &g.err))))
        finish(j, &o);
    job_keep_leave(j);
    bool goes_on = !over && !is_crowded_out(j);
    pthread_mutex_lock(&t->lock);
    job_leave_slice(j);
    pthread_mutex_unlock(&t->lock);
    return goes_on;
}

/* Whether two programs assign to the same memory. */
static bool assign_the_same(const struct program *a, const struct program *b)
{
    struct array *x, *y;
    for (uint32_t i = 0; i < program_targets(a); i++)
        for (uint32_t k = 0; k < program_targets(b); k++) {
            program_target(a, i, &x);
            program_target(b, k, &y);
            if (array_same_buffer(x, y))
                return true;
        }
    return false;
}

/* With the lock held: of two slices on the same arrays one would be discarded, and always that of
 * the slower program. */
static bool must_wait(const struct user_job *j)
{
    lock_held(&j->table->lock);
    for (const struct user_job *k = j->table->first; k; k = k->next)
        if (k != j && k->in_slice && assign_the_same(j->body.program, k->body.program))
            return true;
    return false;
}

enum beginning { BEGIN_NOW, BEGIN_LATER, BEGIN_NEVER };

/* Whether results of the last slice are still being copied, or the job ended with them. */
static bool awaits_copies(struct user_job *j)
{
    if (job_awaits(j))
        return true;
    if (job_copies(j))
        job_keep_copied(j);
    if (!j->ending)
        return false;
    j->ending = false;
    const bool failed = j->end.state == JOB_FAILED;
    if (!failed || (!is_left(j, &j->end.err) && !job_free_memory(j, &j->end.err)))
        finish(j, &j->end);
    return true;
}

/* With the lock held: whether it may, once it has its turn. */
static enum beginning look(struct user_job *j)
{
    lock_held(&j->table->lock);
    j->blocked = false;
    if (job_is_left(j)) {
        go_on(j);
        return BEGIN_LATER;
    }
    if (j->cancel || j->table->stopping)
        return BEGIN_NEVER;
    j->blocked = must_wait(j);
    return j->blocked ? BEGIN_LATER : BEGIN_NOW;
}

static enum beginning may_begin(struct user_job *j)
{
    struct jobs *t = j->table;
    pthread_mutex_lock(&t->lock);
    enum beginning begin = look(j);
    pthread_mutex_unlock(&t->lock);
    if (begin == BEGIN_NOW && !has_turn(j))
        return BEGIN_LATER;
    pthread_mutex_lock(&t->lock);
    if (begin == BEGIN_NOW)
        begin = look(j); /* another thread may have begun one */
    if (begin == BEGIN_NOW) {
        if (j->state == JOB_QUEUED || j->resting) {
            job_enter(j, JOB_RUNNING);
            j->started = clock_ms();
            go_on(j);
            job_changed(j);
        }
        job_enter_slice(j);
        job_keep_enter(j);
        j->in_slice = true;
    }
    pthread_mutex_unlock(&t->lock);
    if (begin == BEGIN_LATER)
        leave_turn(j); /* others can use it meanwhile */
    return begin;
}

/* Steps of a slice of n, fewer than a pass makes: those of a pass, or a half or a quarter of one,
 * if that does not take too long. */
static int64_t whole_pass(const struct user_job *j, int64_t n, int64_t at_once)
{
    const double most = j->table->config.slice * 1e3 * PASS_SLICES;
    if (j->step_ms <= 0) /* how long a step takes is not known yet */
        return n;
    while (at_once > n && (double)at_once * j->step_ms > most)
        at_once /= 2;
    return at_once > n && at_once <= j->body.steps - j->step ? at_once : n;
}

/* How many steps the next slice has. */
static int64_t next_steps(struct user_job *j)
{
    struct err e = ERR_INIT;
    if (!j->slice_steps &&
        program_first_slice(j->body.program, j->step, j->body.steps - j->step,
                            j->table->config.slice, &j->slice_steps, &e) != ERR_OK)
        j->slice_steps = 1; /* the slice will report the error */
    int64_t n = j->slice_steps;
    const int64_t at_once = program_report(j->body.program).steps, rest = j->body.steps - j->step;
    if (rest - n <= n / 2) /* no short slice at the end: between two the device waits */
        n = rest;
    else if (at_once > 0 && n > at_once)
        n -= n % at_once; /* the rest would be passes of fewer steps */
    else
        n = whole_pass(j, n, at_once);
    for (uint32_t i = 0; i < j->body.n_snapshots; i++) {
        int64_t every = j->body.snapshots[i].every, left = every - j->step % every;
        n = n < left ? n : left;
    }
    return program_slice_limit(j->body.program, j->step, n);
}

/* When the next slice ends, if the device has nothing else to do (jobs_step). */
static void expect_end(struct user_job *j)
{
    struct jobs *t = j->table;
    const double known = program_report(j->body.program).step_ms;
    const double ms = (known > 0 ? known : j->step_ms) * (double)j->slice_steps;
    pthread_mutex_lock(&t->lock);
    t->unsure = t->config.spin > 0 ? t->config.spin + ms * 1e-3 * UNSURE_PART : 0;
    t->due = clock_s() + ms * 1e-3;
    pthread_mutex_unlock(&t->lock);
}

/* Whether work of the job's user is run at present. */
static enum err_code admit(const struct user_job *j, struct err *e)
{
    return culprits_admit(j->table->config.culprits, j->asker ? j->asker->principal : "", e);
}

void job_begin_slice(struct user_job *j)
{
    struct job_end o = {.state = JOB_FAILED, .failed_in = j->step + 1, .statement = -1};
    o.err = (struct err)ERR_INIT;
    if (frees_memory(j) || awaits_copies(j))
        return;
    /* until the engine has all of the slice: an export waits for uses that began before it */
    _cleanup_use_ struct lease_use use = lease_use_open(j->table->config.uses);
    enum err_code code = admit(j, &o.err);
    if (code == ERR_OK)
        code = program_may_use(&j->body, &o.err);
    if (code == ERR_LOCKED || code == ERR_PRINCIPAL_FAULTED) {
        if (rests(j, &o.err))
            return;
        code = ERR_OK; /* the job is cancelled */
    }
    if (code == ERR_OK)
        code = program_wake(j->body.program, &o.err);
    if (code != ERR_OK && (is_left(j, &o.err) || job_free_memory(j, &o.err))) {
        leave_turn(j);
        return;
    }
    enum beginning begin = code == ERR_OK ? may_begin(j) : BEGIN_NEVER;
    if (begin == BEGIN_LATER)
        return;
    if (begin == BEGIN_NEVER) {
        if (code == ERR_OK)
            o = (struct job_end){.state = JOB_CANCELLED, .statement = -1};
        leave_turn(j);
        finish(j, &o);
        return;
    }
    j->slice_steps = next_steps(j);
    expect_end(j);
    program_submit(j->body.program, j->step, j->slice_steps, wake_job, j);
}
