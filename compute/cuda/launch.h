/* Launching: called by stream.c only, with device->lock held and the device entered. A flight is
 * what a job has while it is under way; flights are kept for the next job (device->flights). */
#ifndef ARRAYD_CUDA_LAUNCH_H
#define ARRAYD_CUDA_LAUNCH_H

#include "compute/cuda/prepare.h"

/* A job on its way. */
struct flight {
    struct flight *next; /* in the pool */
    CUevent begin, end;
    void *scratch;
    int64_t scratch_size;
    enum err_code result;
    bool launched; /* some kernel was */
    bool touched;  /* the last kernel was launched */
    bool timed;    /* both events are recorded */
    double compile_ms;
};

struct stream {
    struct cuda_device *device;
    CUstream cu;
    struct stream *next, *next_busy;
    bool is_busy;
    struct job *queue, *queue_tail; /* not launched, by job->next */
    struct job *under_way, *under_way_tail;
    int n_under_way;
    uint64_t issued;
    uint64_t launched; /* tickets up to this have left the queue */
    _Atomic uint64_t passed;
};

struct flight *launch_flight_get(struct cuda_device *d, enum err_code *ret_code);
void launch_flight_free(struct cuda_device *d, struct flight *f);

/* Nothing is to be written by it. */
bool launch_is_empty(const struct ir_kernel *k);

/* Queues the job's kernels, and what it fetches, between the flight's events. ERR_OUT_OF_MEMORY,
 * ERR_INTERNAL (a kernel that does not compile), ERR_DEVICE_LOST; what was queued by then passes.
 */
enum err_code launch_job(struct stream *s, struct job *job, struct flight *f) must_check;

#endif
