/* Threads that run units, and streams that say which job may run.
 *
 * Every stream has at most one job in work, its head, and therefore one `task`, which is part of
 * the stream: running a job needs no allocation here. A task whose current kernel still has units
 * to give stands in a ring; workers take tasks from the ring in turn, grab units by atomic
 * counters, and go on to the next task after each unit when there are several, so that a small job
 * does not wait for a large one. The units are dealt out in as many lanes as there are threads: a
 * worker follows its own lane, so that it meets its neighbourhood's data again in its cache, and
 * helps in the others when that is used up. Who leaves a task last, with no units left, closes the
 * kernel and opens the next one or completes the job. A fresh job enters the ring as a task without
 * a kernel.
 *
 * Nobody ever sleeps for a job: a head whose fences have not passed lies in the `blocked` list,
 * which every completion looks through. One mutex guards all of this; units are some tens of
 * microseconds of work, so it is not contended.
 *
 * Small jobs are run by submit() itself when nothing stands before them: waking a thread costs more
 * than they do.
 *
 * A freed stream is kept for reuse with its tickets going on, so that a fence that outlives its
 * stream still reads as passed. */
#include "compute/cpu/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "compute/base/mem.h"
#include "compute/cpu/interp.h"

#define MOST_LANES 64

struct lane {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
};

struct task {
    struct interp_run *run; /* NULL: the job's next kernel has to be opened */
    uint32_t kernel;        /* the one to open next */
    int64_t n_units;
    struct lane *lanes;    /* the stream's, pool->n_lanes of them */
    _Atomic int64_t given; /* units taken */
    _Atomic bool failed;
    _Atomic bool touched; /* the last kernel has written something */
    int users;            /* workers inside, under the lock */
    bool in_ring;
    struct task *next, *prev;
    struct timespec start;
};

struct stream {
    struct task task;
    struct pool *pool;
    struct job *head, *tail; /* head is in work or blocked */
    uint64_t last_ticket;
    _Atomic uint64_t passed;
    struct stream *next; /* blocked list or free list */
    struct stream *all;
};

struct scratch_node {
    struct interp_scratch *scratch;
    struct scratch_node *next;
};

struct worker {
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
    struct stream *blocked, *free_streams, *streams;
    struct scratch_node *spare; /* for submit() */
    int64_t inline_elements;
    struct pool_stats stats;
    int n_workers;
    struct worker workers[];
};

static struct stream *stream_of(struct task *t)
{
    return (struct stream *)t; /* its first member */
}

/* ---- the ring (under the lock) ---- */

static void ring_add(struct pool *p, struct task *t)
{
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

/* The stream's head may start, or has to wait for others (under the lock). */
static void consider_head(struct pool *p, struct stream *s)
{
    if (!s->head)
        return;
    if (fences_passed(s->head)) {
        ring_add(p, &s->task);
    } else {
        s->next = p->blocked;
        p->blocked = s;
    }
}

static double elapsed_ms(const struct timespec *from)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - from->tv_sec) * 1e3 + (double)(now.tv_nsec - from->tv_nsec) * 1e-6;
}

/* The head is done: whoever waited for it may start. Ends with done(), outside of the lock. */
static void complete(struct pool *p, struct stream *s, bool in_line)
{
    struct task *t = &s->task;
    struct job *job = s->head;
    job->result = atomic_load(&t->failed) ? ERR_OUT_OF_MEMORY : ERR_OK;
    job->in_submit = in_line;
    job->untouched = job->result != ERR_OK && !atomic_load(&t->touched);
    job->device_ms = elapsed_ms(&t->start);
    if (job->measured)
        job->measured(job);

    pthread_mutex_lock(&p->lock);
    p->stats.jobs++;
    p->stats.inline_jobs += in_line;
    p->stats.kernels += job->n_kernels;
    p->stats.busy_ms += job->device_ms;
    int before = atomic_load_explicit(&p->n_ring, memory_order_relaxed);
    s->head = job->next;
    if (!s->head)
        s->tail = NULL;
    *t = (struct task){.lanes = t->lanes};
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

/* A unit that fails has written nothing: it gets its memory first. */
static void run_unit(struct task *t, int64_t u, struct interp_scratch *scratch)
{
    if (!interp_unit(t->run, u, scratch))
        atomic_store(&t->failed, true);
    else if (t->kernel == stream_of(t)->head->n_kernels)
        atomic_store_explicit(&t->touched, true, memory_order_relaxed);
}

/* Where arrays go that nobody uses is memory like any other here. */
static void copy_blocks(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_copies; i++)
        mem_copy_away(job->copies[i].to, job->copies[i].from, (size_t)job->copies[i].n);
}

/* Closes the kernel in work, if any, and opens the next. True: it has units for several threads and
 * is open; false: the job ran to its end. Kernels of one unit, and all when `in_line`, are run on
 * the spot. */
static bool advance(struct task *t, struct interp_scratch *scratch, bool in_line)
{
    struct job *job = stream_of(t)->head;
    const struct pool *p = stream_of(t)->pool;
    const int n_lanes = p->n_lanes;
    if (!t->run && t->kernel == 0)
        copy_blocks(job);
    for (;;) {
        bool again = t->run && !atomic_load(&t->failed) && interp_again(t->run, scratch);
        if (t->run && !again) {
            if (!atomic_load(&t->failed) && !interp_finish(t->run, scratch))
                atomic_store(&t->failed, true);
            interp_free(t->run);
            t->run = NULL;
        }
        if (!again) {
            if (t->kernel == job->n_kernels || atomic_load(&t->failed))
                return false;
            t->run = interp_new(job->kernels[t->kernel++], job->slots, in_line ? 1 : n_lanes);
        }
        if (!t->run) {
            atomic_store(&t->failed, true);
            return false;
        }
        t->n_units = interp_units(t->run);
        if (!in_line && t->n_units > 1) {
            for (int i = 0; i < n_lanes; i++) {
                atomic_store_explicit(&t->lanes[i].next, t->n_units * i / n_lanes,
                                      memory_order_relaxed);
                t->lanes[i].end = t->n_units * (i + 1) / n_lanes;
            }
            atomic_store(&t->given, 0);
            return true;
        }
        for (int64_t u = 0; u < t->n_units && !atomic_load(&t->failed); u++)
            run_unit(t, u, scratch);
    }
}

/* ---- workers ---- */

/* A unit from the worker's own lane, else from the next that has one; -1. */
static int64_t take_unit(const struct pool *p, struct task *t, int *lane)
{
    if (atomic_load_explicit(&t->given, memory_order_relaxed) >= t->n_units)
        return -1;
    for (int i = 0; i < p->n_lanes; i++) {
        struct lane *l = &t->lanes[*lane];
        int64_t u = -1;
        if (atomic_load_explicit(&l->next, memory_order_relaxed) < l->end)
            u = atomic_fetch_add(&l->next, 1);
        if (u >= 0 && u < l->end) {
            atomic_fetch_add(&t->given, 1);
            return u;
        }
        *lane = (*lane + 1) % p->n_lanes;
    }
    return -1;
}

/* Takes units until there are none left or others wait for their turn. */
static int64_t run_units(struct pool *p, struct task *t, struct interp_scratch *scratch, int lane)
{
    int64_t n = 0;
    do {
        int64_t u = take_unit(p, t, &lane);
        if (u < 0)
            break;
        n++;
        if (!atomic_load_explicit(&t->failed, memory_order_relaxed))
            run_unit(t, u, scratch);
    } while (atomic_load_explicit(&p->n_ring, memory_order_relaxed) < 2);
    return n;
}

static void *work(void *user)
{
    struct worker *w = user;
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->ring && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (!p->ring)
            break;
        struct task *t = p->ring;
        p->ring = t->next;
        bool open = t->run != NULL;
        if (!open) {
            ring_remove(p, t);
            pthread_mutex_unlock(&p->lock);
            clock_gettime(CLOCK_MONOTONIC, &t->start);
        } else {
            t->users++;
            pthread_mutex_unlock(&p->lock);
            int64_t n = run_units(p, t, w->scratch, w->lane);
            pthread_mutex_lock(&p->lock);
            p->stats.units += n;
            bool empty = atomic_load(&t->given) >= t->n_units;
            if (empty)
                ring_remove(p, t);
            if (--t->users || !empty)
                continue;
            pthread_mutex_unlock(&p->lock);
        }
        bool again = advance(t, w->scratch, false);
        if (!again)
            complete(p, stream_of(t), false);
        pthread_mutex_lock(&p->lock);
        if (again) {
            ring_add(p, t);
            p->ring = t; /* this thread goes on with it */
            pthread_cond_broadcast(&p->work);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- submitting ---- */

static struct scratch_node *spare_new(void)
{
    struct scratch_node *n = mem_alloc(sizeof *n);
    if (!n)
        return NULL;
    n->scratch = interp_scratch_new();
    if (!n->scratch) {
        mem_free(n);
        return NULL;
    }
    return n;
}

static bool is_small(const struct pool *p, const struct job *job)
{
    int64_t left = p->inline_elements;
    for (uint32_t i = 0; i < job->n_copies && left > 0; i++)
        left -= job->copies[i].n / 8;
    for (uint32_t i = 0; i < job->n_kernels && left > 0; i++) {
        int64_t cost = interp_cost(job->kernels[i]);
        left = cost > left ? -1 : left - cost;
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
    struct scratch_node *spare = p->spare;
    if (spare)
        p->spare = spare->next;
    pthread_mutex_unlock(&p->lock);

    clock_gettime(CLOCK_MONOTONIC, &s->task.start);
    if (!spare)
        spare = spare_new();
    if (!spare) {
        atomic_store(&s->task.failed, true);
    } else {
        bool open = advance(&s->task, spare->scratch, true);
        assert(!open);
        (void)open;
        pthread_mutex_lock(&p->lock);
        spare->next = p->spare;
        p->spare = spare;
        pthread_mutex_unlock(&p->lock);
    }
    complete(p, s, true);
    return ticket;
}

bool pool_passed(struct fence f)
{
    return atomic_load(&f.stream->passed) >= f.ticket;
}

/* ---- life ---- */

/* The lanes lie behind the stream, on cache lines of their own. */
static struct stream *stream_alloc(int n_lanes)
{
    struct stream *s = mem_calloc(1, sizeof *s + (size_t)(n_lanes + 1) * sizeof(struct lane));
    if (s)
        s->task.lanes = (struct lane *)(((uintptr_t)(s + 1) + 63) & ~(uintptr_t)63);
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
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    for (int i = 0; i < threads; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->lane = i % p->n_lanes;
        w->scratch = interp_scratch_new();
        if (!w->scratch || pthread_create(&w->thread, NULL, work, w)) {
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
        mem_free(s);
    }
    for (struct scratch_node *n = p->spare, *next; n; n = next) {
        next = n->next;
        interp_scratch_free(n->scratch);
        mem_free(n);
    }
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
