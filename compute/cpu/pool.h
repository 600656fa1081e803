/* The CPU backend's threads and streams: they schedule the units of jobs.
 *
 * Called by cpu.c, which passes the calls of backend.h through; their meanings are given there. All
 * functions are thread-safe. The pool owns its threads and streams; the submitter owns its jobs and
 * keeps each until done() has been called. */
#ifndef ARRAYD_CPU_POOL_H
#define ARRAYD_CPU_POOL_H

#include "compute/backend.h"

struct pool;

struct pool_stats {
    int threads;
    int64_t jobs, inline_jobs, kernels, units; /* completed, since the start */
    int64_t streams;                           /* in use */
    double busy_ms;                            /* sum over jobs of their device time */
};

/* threads ≥ 1; inline_elements as in struct backend_config. NULL without memory or threads. */
struct pool *pool_new(int threads, int64_t inline_elements);
/* From now on the list says what is refused and what runs alone, and is told what runs; before the
 * first job. who: as in struct backend_config. */
void pool_watch(struct pool *p, struct culprits *culprits,
                struct culprit_who (*who)(const void *asker));
void pool_free(struct pool *p); /* call when every job is done and every stream freed */

struct backend_stream *pool_stream_new(struct pool *p); /* NULL without memory */
void pool_stream_free(struct backend_stream *s);
uint64_t pool_submit(struct backend_stream *s, struct job *job);
bool pool_passed(struct fence f);
void pool_get_stats(struct pool *p, struct pool_stats *ret);

#endif
