/* Threads that run units, and streams that decide which job may run.
 *
 * Every stream has at most one running job, its head, and therefore one `active_job`, which is part
 * of the stream. The thread that takes up a job opens it: everything its kernels need is laid out
 * and reserved before the first of them runs. From then on nothing can fail, and a job that did not
 * get its memory has written nothing. An active job's units run in the workers' own scratch; a
 * worker whose scratch cannot be made large enough borrows the job's, which is large enough, one
 * worker at a time.
 *
 * An active job whose current kernel still has units to hand out stands in a ring. Workers take
 * jobs from the ring round robin, grab units by atomic counters, and move to the next job after
 * each unit when there are several, so that a small job does not wait for a large one. The units
 * are dealt out in as many lanes as there are threads: a worker follows its own lane, so that it
 * finds its neighbourhood's data in its cache, and helps with the others when its own is empty. The
 * last worker to leave an active job without units left closes the kernel and opens the next one or
 * completes the job. A new job enters the ring as one without a kernel.
 *
 * No thread ever sleeps for a particular job: a head whose fences have not passed, or which must
 * not run beside what runs (alone.h), is in the `blocked` list, which every completion checks. One
 * mutex guards all of this; a unit is some tens of microseconds of work, so it is not contended.
 *
 * The thread that opens a small kernel runs it itself: signalling another takes longer. And a
 * thread that finds the ring empty while jobs are running polls for a moment before it sleeps,
 * because the next kernel of a loop arrives sooner than a sleeper wakes; it yields its core to
 * other threads meanwhile.
 *
 * submit() itself runs a small job when nothing is before it: waking a thread costs more than the
 * job.
 *
 * Now and then the workers ask whether a job's result is still wanted. If it is not, no more of its
 * units are handed out, those running return early, and the job ends.
 *
 * A freed stream is kept for reuse and continues its numbering, so that a fence that outlives its
 * stream still reads as passed. */
#include <assert.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/cpu/idle.h"
#include "compute/cpu/pool_int.h"

#define MOST_LANES 64

/* ---- jobs ---- */

static bool is_over(const struct active_job *t)
{
    return atomic_load_explicit(&t->watch.is_over, memory_order_relaxed);
}

static bool job_unwanted(void *user)
{
    struct job *job = user;
    if (atomic_load_explicit(&job->stream->pool->holds, memory_order_relaxed))
        pool_look_at_held(job->stream->pool);
    return job->unwanted && job->unwanted(job);
}

static bool close_runs(struct active_job *t)
{
    while (t->n_runs > 0)
        interp_free(t->runs[--t->n_runs]);
    return false;
}

/* Ends the stream's head, which is done or could not be opened; heads that waited for it may start.
 * Calls done() last, without the lock. */
static void complete(struct pool *p, struct backend_stream *s, bool in_line, bool opened)
{
    struct active_job *t = &s->active;
    enum err_code result = !opened ? ERR_OUT_OF_MEMORY : is_over(t) ? ERR_NOT_FOUND : ERR_OK;
    struct job *job = s->head;
    struct scratch_node *scratch = t->scratch;
    (void)close_runs(t);
    job->result = result;
    job->in_submit = in_line;
    job->untouched = result != ERR_OK && !t->has_begun;
    job->device_ms = clock_ms() - t->start;
    suspect_ends(&p->watch, job);
    if (job->measured)
        job->measured(job);

    pthread_mutex_lock(&p->lock);
    if (scratch) {
        scratch->next = p->spare;
        p->spare = scratch;
    }
    p->n_open--;
    p->n_started--;
    alone_over(&p->alone, job);
    p->stats.jobs++;
    p->stats.inline_jobs += in_line;
    p->stats.kernels += job->n_kernels;
    p->stats.busy_ms += job->device_ms;
    int before = atomic_load_explicit(&p->n_ring, memory_order_relaxed);
    s->head = job->next;
    if (!s->head)
        s->tail = NULL;
    *t = (struct active_job){.units = t->units, .runs = t->runs, .cap_runs = t->cap_runs};
    atomic_store(&s->passed, job->seq);
    pool_consider_head(p, s);
    pool_start_blocked(p);
    atomic_store_explicit(&p->holds, p->alone.waits, memory_order_relaxed);
    if (atomic_load_explicit(&p->n_ring, memory_order_relaxed) > before)
        pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    job->done(job);
}

static struct scratch_node *take_scratch(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct scratch_node *n = p->spare;
    if (n)
        p->spare = n->next;
    pthread_mutex_unlock(&p->lock);
    if (n)
        return n;
    n = mem_alloc(sizeof *n);
    if (!n)
        return NULL;
    n->scratch = interp_scratch_new(p->n_workers);
    if (!n->scratch) {
        mem_free(n);
        return NULL;
    }
    return n;
}

/* Arrays moved out of the device are ordinary memory here. */
static void copy_blocks(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_copies; i++)
        mem_copy_away(job->copies[i].to, job->copies[i].from, (size_t)job->copies[i].n);
}

static bool reserve_runs(struct active_job *t, uint32_t n)
{
    if (n <= t->cap_runs)
        return true;
    struct interp_run **more = mem_reallocarray(t->runs, n, sizeof(struct interp_run *));
    if (!more)
        return false;
    t->runs = more;
    t->cap_runs = n;
    return true;
}

/* How many kernels follow one another from this one on, itself included, in each pass. */
static uint32_t stretch(const struct job *job, uint32_t at)
{
    const uint32_t loop_end = job->loop_from + job->loop_n;
    if (job->loop_n == 0 || at >= loop_end)
        return job->n_kernels - at;
    return at < job->loop_from ? job->loop_from - at : loop_end - at;
}

/* The whole to run in place of the kernels from this one on, or NULL. */
static struct ir_whole *whole_at(const struct job *job, uint32_t at)
{
    struct ir_whole *w = job->bindings ? NULL : job->kernels[at]->whole;
    if (!w || atomic_load(&w->avoided) || w->n_parts > stretch(job, at) ||
        !ir_whole_fits(w, job->kernels, job->n_kernels, at, job->slots))
        return NULL;
    return w;
}

/* Prepares the kernels from t->n_runs on: one, or those that run as a whole. */
static bool open_runs(struct pool *p, struct active_job *t, bool in_line)
{
    struct job *job = pool_stream_of(t)->head;
    const uint32_t at = t->n_runs;
    struct ir_whole *w = in_line ? NULL : whole_at(job, at);
    struct interp_run *r = NULL;
    uint32_t n = 1;
    bool never = false;
    if (w && !interp_whole_new(w, job->slots, p->n_lanes, &r, &never))
        return false;
    if (never)
        atomic_store(&w->avoided, true);
    if (r)
        n = w->n_parts;
    else
        r = interp_new(job->kernels[at], job_slots(job, at), in_line ? 1 : p->n_lanes);
    if (!r)
        return false;
    if (job->wants_forms)
        job->forms |= kernel_form_bit(interp_shape(r));
    if (!in_line)
        interp_set_watch(r, &t->watch);
    for (uint32_t i = 0; i < n; i++)
        t->runs[t->n_runs++] = i ? NULL : r;
    return true;
}

/* Takes all the memory of the head's kernels. False: there is not enough, and nothing has been
 * done. */
static bool open_job(struct pool *p, struct active_job *t, bool in_line)
{
    struct job *job = pool_stream_of(t)->head;
    t->is_open = true;
    suspect_begins(&p->watch, job);
    t->watch.ask = job_unwanted;
    t->watch.user = job;
    atomic_store(&t->watch.is_over, !in_line && job_unwanted(job));
    if (job->n_kernels == 0 || is_over(t))
        return true;
    t->scratch = take_scratch(p);
    if (!t->scratch || !reserve_runs(t, job->n_kernels))
        return false;
    while (t->n_runs < job->n_kernels)
        if (!open_runs(p, t, in_line))
            return close_runs(t);
    for (uint32_t i = 0; i < t->n_runs;) {
        const uint32_t together = in_line ? 1 : interp_go_abreast(&t->runs[i], stretch(job, i));
        const bool again = job->repeats > 1 && i - job->loop_from < job->loop_n;
        for (const uint32_t end = i + together; i < end; i++) {
            if (!t->runs[i])
                continue;
            if (again || together > 1 || interp_binds_often(t->runs[i]))
                interp_keep(t->runs[i], p->n_workers + 1);
            if (!interp_fit(t->runs[i], t->scratch->scratch))
                return close_runs(t);
        }
    }
    return true;
}

/* Prepares the next kernel that is worth several threads; false: the job ran to its end. Smaller
 * kernels, and all of them when `in_line`, are run at once. `done`: all units of the current one
 * have run. */
static bool advance(struct active_job *t, bool done, bool in_line)
{
    struct interp_scratch *scratch = t->scratch ? t->scratch->scratch : NULL; /* NULL: no kernels */
    if (is_over(t))
        return false;
    t->has_begun = true;
    if (t->at == 0 && !done)
        copy_blocks(pool_stream_of(t)->head);
    while (t->at < t->n_runs && !is_over(t)) {
        struct interp_run *run = t->runs[t->at];
        if (done && !interp_again(run, scratch)) {
            interp_finish(run, scratch);
            interp_rewind(run);
            do
                t->at = job_next(pool_stream_of(t)->head, t->at, &t->passes);
            while (t->at < t->n_runs && interp_is_abreast(t->runs[t->at]));
            done = false;
            continue;
        }
        const int64_t n = interp_units(run);
        if (!in_line && n > 1 && !interp_is_small(run)) {
            lanes_deal(&t->units, n);
            return true;
        }
        for (int64_t u = 0; u < n && !is_over(t); u++)
            interp_unit(run, u, scratch);
        done = true;
    }
    return false;
}

/* ---- workers ---- */

/* Runs units until none are left or other jobs wait. */
static int64_t run_units(struct pool *p, struct active_job *t, struct interp_scratch *own, int lane)
{
    struct interp_run *run = t->runs[t->at];
    bool borrows = !interp_fit(run, own);
    int64_t n = 0;
    do {
        int64_t u = is_over(t) ? -1 : lanes_take(&t->units, &lane);
        if (u < 0)
            break;
        n++;
        if (borrows)
            pthread_mutex_lock(&p->borrowing);
        interp_unit(run, u, borrows ? t->scratch->scratch : own);
        if (borrows)
            pthread_mutex_unlock(&p->borrowing);
    } while (atomic_load_explicit(&p->n_ring, memory_order_relaxed) < 2);
    return n;
}

/* Waits until the ring is not empty or the pool is stopping (under the lock). */
static void wait_for_work(struct pool *p)
{
    lock_held(&p->lock);
    if (!p->ring && !p->stop && p->n_open > 0) {
        pthread_mutex_unlock(&p->lock);
        idle_look(&p->n_ring);
        pthread_mutex_lock(&p->lock);
    }
    while (!p->ring && !p->stop)
        pthread_cond_wait(&p->work, &p->lock);
}

static void *work(void *user)
{
    struct pool_worker *w = user;
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        wait_for_work(p);
        if (!p->ring)
            break;
        struct active_job *t = p->ring;
        p->ring = t->next;
        bool was_open = t->is_open, opened = true;
        if (!was_open) {
            pool_ring_remove(p, t);
            p->n_open++;
            pthread_mutex_unlock(&p->lock);
            t->start = clock_ms();
            opened = open_job(p, t, false);
        } else {
            t->users++;
            pthread_mutex_unlock(&p->lock);
            int64_t n = run_units(p, t, w->scratch, w->lane);
            pthread_mutex_lock(&p->lock);
            p->stats.units += n;
            bool empty = lanes_empty(&t->units) || is_over(t);
            if (empty)
                pool_ring_remove(p, t);
            if (--t->users || !empty)
                continue;
            pthread_mutex_unlock(&p->lock);
        }
        bool goes_on = opened && advance(t, was_open, false);
        if (!goes_on)
            complete(p, pool_stream_of(t), false, opened);
        pthread_mutex_lock(&p->lock);
        if (goes_on) {
            pool_ring_add(p, t);
            p->ring = t; /* this thread continues with it */
            pthread_cond_broadcast(&p->work);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- submitting ---- */

static bool is_small(const struct pool *p, const struct job *job)
{
    int64_t left = p->inline_elements;
    for (uint32_t i = 0; i < job->n_copies && left > 0; i++)
        left -= job->copies[i].n / 8;
    for (uint32_t i = 0; i < job->n_kernels && left > 0; i++) {
        bool loops = i >= job->loop_from && i - job->loop_from < job->loop_n;
        int64_t cost = interp_cost(job->kernels[i]);
        left = __builtin_mul_overflow(cost, loops ? job->repeats : 1, &cost) || cost > left
                   ? -1
                   : left - cost;
    }
    return left >= 0 && p->inline_elements > 0;
}

uint64_t pool_submit(struct backend_stream *s, struct job *job)
{
    struct pool *p = s->pool;
    bool small = is_small(p, job);
    job->next = NULL;
    job->stream = s;
    job->result = suspect_judge(&p->watch, job);
    if (job->result != ERR_OK) {
        job->untouched = job->in_submit = true;
        if (job->measured)
            job->measured(job);
        job->done(job);
        return 0;
    }

    pthread_mutex_lock(&p->lock);
    uint64_t seq = job->seq = ++s->last_seq;
    if (s->head) {
        s->tail->next = job;
        s->tail = job;
        pthread_mutex_unlock(&p->lock);
        return seq;
    }
    s->head = s->tail = job;
    if (!small || !pool_start_head(p, s)) {
        pool_consider_head(p, s);
        if (s->active.in_ring)
            pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->lock);
        return seq;
    }
    p->n_open++;
    pthread_mutex_unlock(&p->lock);

    s->active.start = clock_ms();
    bool opened = open_job(p, &s->active, true);
    if (opened) {
        bool goes_on = advance(&s->active, false, true);
        assert(!goes_on);
        (void)goes_on;
    }
    complete(p, s, true, opened);
    return seq;
}

bool pool_passed(struct fence f)
{
    return atomic_load(&f.stream->passed) >= f.seq;
}

/* ---- opening and closing ---- */

/* The lanes are allocated behind the stream. */
static struct backend_stream *stream_alloc(int n_lanes)
{
    struct backend_stream *s =
        mem_calloc(1, sizeof *s + (size_t)(n_lanes + 1) * sizeof(struct lane));
    if (s)
        s->active.units = (struct lanes){
            .all = (struct lane *)(((uintptr_t)(s + 1) + 63) & ~(uintptr_t)63), .n = n_lanes};
    return s;
}

struct backend_stream *pool_stream_new(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct backend_stream *s = p->free_streams;
    if (s) {
        p->free_streams = s->next;
        s->next = NULL;
    } else {
        s = stream_alloc(p->n_lanes);
        if (s) {
            s->pool = p;
            s->all = p->streams;
            p->streams = s;
        }
    }
    if (s)
        p->stats.streams++;
    pthread_mutex_unlock(&p->lock);
    return s;
}

void pool_stream_free(struct backend_stream *s)
{
    if (!s)
        return;
    struct pool *p = s->pool;
    pthread_mutex_lock(&p->lock);
    assert(!s->head);
    s->next = p->free_streams;
    p->free_streams = s;
    p->stats.streams--;
    pthread_mutex_unlock(&p->lock);
}

void pool_get_stats(struct pool *p, struct pool_stats *ret)
{
    pthread_mutex_lock(&p->lock);
    *ret = p->stats;
    pthread_mutex_unlock(&p->lock);
    ret->threads = p->n_workers;
}

static void stop_workers(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].thread, NULL);
        interp_scratch_free(p->workers[i].scratch);
    }
}

struct pool *pool_new(int threads, int64_t inline_elements)
{
    struct pool *p = mem_calloc(1, sizeof *p + (size_t)threads * sizeof p->workers[0]);
    if (!p)
        return NULL;
    p->inline_elements = inline_elements;
    p->n_lanes = threads < MOST_LANES ? threads : MOST_LANES;
    /* held for some tens of nanoseconds: a sleep would cost a thousand times that */
    pthread_mutexattr_t adaptive;
    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&p->lock, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
    pthread_mutex_init(&p->borrowing, NULL);
    pthread_cond_init(&p->work, NULL);
    for (int i = 0; i < threads; i++) {
        struct pool_worker *w = &p->workers[i];
        w->pool = p;
        w->lane = i % p->n_lanes;
        w->scratch = interp_scratch_new(i);
        if (!w->scratch || !thread_start(&w->thread, "arrayd-cpu", work, w)) {
            interp_scratch_free(w->scratch);
            pool_free(p);
            return NULL;
        }
        p->n_workers++;
    }
    return p;
}

void pool_watch(struct pool *p, struct culprits *culprits,
                struct culprit_who (*who)(const void *asker))
{
    p->watch = (struct suspect_watch){culprits, who};
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    stop_workers(p);
    for (struct backend_stream *s = p->streams, *next; s; s = next) {
        next = s->all;
        assert(!s->head);
        mem_free(s->active.runs);
        mem_free(s);
    }
    for (struct scratch_node *n = p->spare, *next; n; n = next) {
        next = n->next;
        interp_scratch_free(n->scratch);
        mem_free(n);
    }
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->borrowing);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
