/* Threads that run units, and streams that decide which job may run.
 *
 * Every stream has at most one running job, its head, and therefore one `task`, which is part of
 * the stream. The thread that takes up a job opens it: everything its kernels need is laid out and
 * reserved before the first of them runs. From then on nothing can fail, and a job that did not get
 * its memory has written nothing. A task's units run in the workers' own scratch; a worker whose
 * scratch cannot be made large enough borrows the task's, which is large enough, one worker at a
 * time.
 *
 * A task whose current kernel still has units to hand out stands in a ring. Workers take tasks from
 * the ring round robin, grab units by atomic counters, and move to the next task after each unit
 * when there are several, so that a small job does not wait for a large one. The units are dealt
 * out in as many lanes as there are threads: a worker follows its own lane, so that it finds its
 * neighbourhood's data in its cache, and helps with the others when its own is empty. The last
 * worker to leave a task without units left closes the kernel and opens the next one or completes
 * the job. A new job enters the ring as a task without a kernel.
 *
 * No thread ever sleeps for a particular job: a head whose fences have not passed is in the
 * `blocked` list, which every completion checks. One mutex guards all of this; a unit is some tens
 * of microseconds of work, so it is not contended.
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
 * A freed stream is kept for reuse and continues its tickets, so that a fence that outlives its
 * stream still reads as passed. */
#include "compute/cpu/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/cpu/idle.h"
#include "compute/cpu/interp/interp.h"
#include "compute/cpu/lanes.h"

#define MOST_LANES 64

struct scratch_node {
    struct interp_scratch *scratch;
    struct scratch_node *next;
};

struct task {
    struct interp_run **runs; /* of the job's kernels, once it is open; kept for the next job */
    uint32_t n_runs, cap_runs;
    uint32_t at;     /* the running one */
    uint32_t passes; /* passes of the job's loop completed */
    bool is_open;
    struct scratch_node *scratch; /* large enough for all of them; NULL where there are none */
    struct interp_watch watch;    /* of the job: whether its result is still wanted */
    bool has_begun;               /* something may have been written */
    struct lanes units;           /* the lanes are the stream's, pool->n_lanes of them */
    int users;                    /* workers on it, under the lock */
    bool in_ring;
    struct task *next, *prev;
    double start; /* clock_ms */
};

struct stream {
    struct task task;
    struct pool *pool;
    struct job *head, *tail; /* head is running or blocked */
    uint64_t last_ticket;
    _Atomic uint64_t passed;
    struct stream *next; /* blocked list or free list */
    struct stream *all;
};

struct pool_worker {
    struct pool *pool;
    int lane;
    pthread_t thread;
    struct interp_scratch *scratch;
};

struct pool {
    int n_lanes;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool stop;
    struct task *ring; /* the next to take from */
    _Atomic int n_ring;
    int n_open; /* running jobs */
    struct stream *blocked, *free_streams, *streams;
    struct scratch_node *spare; /* for tasks */
    pthread_mutex_t borrowing;  /* a task's scratch, lent; never taken with `lock` held */
    int64_t inline_elements;
    struct pool_stats stats;
    int n_workers;
    struct pool_worker workers[];
};

static struct stream *stream_of(struct task *t)
{
    return (struct stream *)t; /* its first member */
}

/* ---- the ring (under the lock) ---- */

static void ring_add(struct pool *p, struct task *t)
{
    lock_held(&p->lock);
    t->in_ring = true;
    if (!p->ring) {
        t->next = t->prev = t;
        p->ring = t;
    } else {
        t->next = p->ring;
        t->prev = p->ring->prev;
        t->prev->next = t;
        t->next->prev = t;
    }
    atomic_fetch_add_explicit(&p->n_ring, 1, memory_order_relaxed);
}

static void ring_remove(struct pool *p, struct task *t)
{
    lock_held(&p->lock);
    if (!t->in_ring)
        return;
    t->in_ring = false;
    if (t->next == t) {
        p->ring = NULL;
    } else {
        t->prev->next = t->next;
        t->next->prev = t->prev;
        if (p->ring == t)
            p->ring = t->next;
    }
    atomic_fetch_sub_explicit(&p->n_ring, 1, memory_order_relaxed);
}

/* ---- jobs ---- */

static bool fences_passed(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_waits; i++)
        if (!pool_passed(job->waits[i]))
            return false;
    return true;
}

/* Queues the stream's head to run, or puts it on the blocked list (under the lock). */
static void consider_head(struct pool *p, struct stream *s)
{
    lock_held(&p->lock);
    if (!s->head)
        return;
    if (fences_passed(s->head)) {
        ring_add(p, &s->task);
    } else {
        s->next = p->blocked;
        p->blocked = s;
    }
}

static bool is_over(const struct task *t)
{
    return atomic_load_explicit(&t->watch.is_over, memory_order_relaxed);
}

static bool job_unwanted(void *user)
{
    struct job *job = user;
    return job->unwanted && job->unwanted(job);
}

/* Ends the stream's head, which is done or could not be opened; heads that waited for it may start.
 * Calls done() last, without the lock. */
static void complete(struct pool *p, struct stream *s, bool in_line, bool opened)
{
    struct task *t = &s->task;
    enum err_code result = !opened ? ERR_OUT_OF_MEMORY : is_over(t) ? ERR_NOT_FOUND : ERR_OK;
    struct job *job = s->head;
    struct scratch_node *scratch = t->scratch;
    while (t->n_runs > 0)
        interp_free(t->runs[--t->n_runs]);
    job->result = result;
    job->in_submit = in_line;
    job->untouched = result != ERR_OK && !t->has_begun;
    job->device_ms = clock_ms() - t->start;
    if (job->measured)
        job->measured(job);

    pthread_mutex_lock(&p->lock);
    if (scratch) {
        scratch->next = p->spare;
        p->spare = scratch;
    }
    p->n_open--;
    p->stats.jobs++;
    p->stats.inline_jobs += in_line;
    p->stats.kernels += job->n_kernels;
    p->stats.busy_ms += job->device_ms;
    int before = atomic_load_explicit(&p->n_ring, memory_order_relaxed);
    s->head = job->next;
    if (!s->head)
        s->tail = NULL;
    *t = (struct task){.units = t->units, .runs = t->runs, .cap_runs = t->cap_runs};
    atomic_store(&s->passed, job->ticket);
    consider_head(p, s);
    for (struct stream **at = &p->blocked; *at;) {
        struct stream *waiting = *at;
        if (fences_passed(waiting->head)) {
            *at = waiting->next;
            ring_add(p, &waiting->task);
        } else {
            at = &waiting->next;
        }
    }
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

static bool reserve_runs(struct task *t, uint32_t n)
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

/* Takes all the memory of the head's kernels. False: there is not enough, and nothing has been
 * done. */
static bool open_job(struct pool *p, struct task *t, bool in_line)
{
    struct job *job = stream_of(t)->head;
    t->is_open = true;
    t->watch.ask = job_unwanted;
    t->watch.user = job;
    atomic_store(&t->watch.is_over, !in_line && job_unwanted(job));
    if (job->n_kernels == 0 || is_over(t))
        return true;
    t->scratch = take_scratch(p);
    if (!t->scratch || !reserve_runs(t, job->n_kernels))
        return false;
    while (t->n_runs < job->n_kernels) {
        struct interp_run *r = interp_new(job->kernels[t->n_runs], job_slots(job, t->n_runs),
                                          in_line ? 1 : p->n_lanes);
        if (r && !in_line)
            interp_set_watch(r, &t->watch);
        if (r && job->repeats > 1 && t->n_runs - job->loop_from < job->loop_n)
            interp_keep(r, p->n_workers + 1);
        if (r)
            t->runs[t->n_runs++] = r;
        if (!r || !interp_fit(r, t->scratch->scratch)) {
            while (t->n_runs > 0)
                interp_free(t->runs[--t->n_runs]);
            return false;
        }
    }
    return true;
}

/* Prepares the next kernel that is worth several threads; false: the job ran to its end. Smaller
 * kernels, and all of them when `in_line`, are run at once. `done`: all units of the current one
 * have run. */
static bool advance(struct task *t, bool done, bool in_line)
{
    struct interp_scratch *scratch = t->scratch ? t->scratch->scratch : NULL; /* NULL: no kernels */
    if (is_over(t))
        return false;
    t->has_begun = true;
    if (t->at == 0 && !done)
        copy_blocks(stream_of(t)->head);
    while (t->at < t->n_runs && !is_over(t)) {
        struct interp_run *run = t->runs[t->at];
        if (done && !interp_again(run, scratch)) {
            interp_finish(run, scratch);
            interp_rewind(run);
            t->at = job_next(stream_of(t)->head, t->at, &t->passes);
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

/* Runs units until none are left or other tasks wait. */
static int64_t run_units(struct pool *p, struct task *t, struct interp_scratch *own, int lane)
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
        struct task *t = p->ring;
        p->ring = t->next;
        bool was_open = t->is_open, opened = true;
        if (!was_open) {
            ring_remove(p, t);
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
                ring_remove(p, t);
            if (--t->users || !empty)
                continue;
            pthread_mutex_unlock(&p->lock);
        }
        bool goes_on = opened && advance(t, was_open, false);
        if (!goes_on)
            complete(p, stream_of(t), false, opened);
        pthread_mutex_lock(&p->lock);
        if (goes_on) {
            ring_add(p, t);
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

uint64_t pool_submit(struct stream *s, struct job *job)
{
    struct pool *p = s->pool;
    bool small = is_small(p, job);
    job->next = NULL;
    job->stream = s;

    pthread_mutex_lock(&p->lock);
    uint64_t ticket = job->ticket = ++s->last_ticket;
    if (s->head) {
        s->tail->next = job;
        s->tail = job;
        pthread_mutex_unlock(&p->lock);
        return ticket;
    }
    s->head = s->tail = job;
    if (!small || !fences_passed(job)) {
        consider_head(p, s);
        if (s->task.in_ring)
            pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->lock);
        return ticket;
    }
    p->n_open++;
    pthread_mutex_unlock(&p->lock);

    s->task.start = clock_ms();
    bool opened = open_job(p, &s->task, true);
    if (opened) {
        bool goes_on = advance(&s->task, false, true);
        assert(!goes_on);
        (void)goes_on;
    }
    complete(p, s, true, opened);
    return ticket;
}

bool pool_passed(struct fence f)
{
    return atomic_load(&f.stream->passed) >= f.ticket;
}

/* ---- opening and closing ---- */

/* The lanes are allocated behind the stream. */
static struct stream *stream_alloc(int n_lanes)
{
    struct stream *s = mem_calloc(1, sizeof *s + (size_t)(n_lanes + 1) * sizeof(struct lane));
    if (s)
        s->task.units = (struct lanes){
            .all = (struct lane *)(((uintptr_t)(s + 1) + 63) & ~(uintptr_t)63), .n = n_lanes};
    return s;
}

struct stream *pool_stream_new(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct stream *s = p->free_streams;
    if (s) {
        p->free_streams = s->next;
        s->next = NULL;
    } else if ((s = stream_alloc(p->n_lanes))) {
        s->pool = p;
        s->all = p->streams;
        p->streams = s;
    }
    if (s)
        p->stats.streams++;
    pthread_mutex_unlock(&p->lock);
    return s;
}

void pool_stream_free(struct stream *s)
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

void pool_free(struct pool *p)
{
    if (!p)
        return;
    stop_workers(p);
    for (struct stream *s = p->streams, *next; s; s = next) {
        next = s->all;
        assert(!s->head);
        mem_free(s->task.runs);
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
