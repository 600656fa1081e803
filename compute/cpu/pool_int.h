/* What pool.c (threads, jobs) and pool_start.c (which job may start) share. Under the pool's lock,
 * unless a member says otherwise. */
#ifndef ARRAYD_CPU_POOL_INT_H
#define ARRAYD_CPU_POOL_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/cpu/interp/interp.h"
#include "compute/cpu/lanes.h"
#include "compute/cpu/pool.h"
#include "compute/cpu/suspect.h"
#include "compute/culprit/alone.h"

struct scratch_node {
    struct interp_scratch *scratch;
    struct scratch_node *next;
};

struct active_job {
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
    struct active_job *next, *prev;
    double start; /* clock_ms */
};

struct backend_stream {
    struct active_job active;
    struct pool *pool;
    struct job *head, *tail; /* head is running or blocked */
    uint64_t last_seq;
    _Atomic uint64_t passed;
    struct backend_stream *next; /* blocked list or free list */
    struct backend_stream *all;
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
    struct active_job *ring; /* the next to take from */
    _Atomic int n_ring;
    int n_open;    /* running jobs, */
    int n_started; /* with those in the ring that nobody has opened yet */
    struct alone alone;
    _Atomic bool holds; /* heads are held back for one that is to run alone */
    struct suspect_watch watch;
    struct backend_stream *blocked, *free_streams, *streams;
    struct scratch_node *spare; /* for active jobs */
    pthread_mutex_t borrowing;  /* an active job's scratch, lent; never taken with `lock` held */
    int64_t inline_elements;
    struct pool_stats stats;
    int n_workers;
    struct pool_worker workers[];
};

static inline struct backend_stream *pool_stream_of(struct active_job *t)
{
    return (struct backend_stream *)t; /* its first member */
}

/* pool_start.c; with the lock held. */
void pool_ring_add(struct pool *p, struct active_job *t);
void pool_ring_remove(struct pool *p, struct active_job *t);
/* Whether the stream's head starts now; then it counts as started. */
bool pool_start_head(struct pool *p, struct backend_stream *s);
/* Queues the stream's head, if there is one, to run, or puts it on the blocked list. */
void pool_consider_head(struct pool *p, struct backend_stream *s);
/* Queues the blocked heads that may start. */
void pool_start_blocked(struct pool *p);
/* Without it: work is held back for a head that is to run alone (pool->holds), and what runs
 * lasts. */
void pool_look_at_held(struct pool *p);

#endif
