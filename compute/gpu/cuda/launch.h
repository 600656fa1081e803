/* Launching: called by queue.c, and by fault.c to list what was launched. A flight is what a job
 * holds from its submission until it is reported; flights are reused (device->flights). */
#ifndef ARRAYD_CUDA_LAUNCH_H
#define ARRAYD_CUDA_LAUNCH_H

#include "compute/gpu/cuda/prepare.h"
#include "compute/gpu/cuda/stream.h"

/* A submitted job's resources. */
struct flight {
    struct flight *next; /* in the pool */
    CUevent begin, end;
    void *scratch; /* device memory for its kernels */
    int64_t scratch_size;
    CUgraphExec graph;     /* of the job's loop, or NULL */
    unsigned char *pinned; /* host memory for parameters that are not passed by value */
    size_t pinned_size;
    enum err_code result;
    uint64_t refusal; /* kcache.h's, of a kernel that did not compile */
    uint32_t reached; /* kernels up to this number were launched, */
    uint32_t failing; /* 1 + the number of the one whose launch failed; 0: none */
    bool launched;    /* a kernel, copy or memset was launched */
    bool touched;     /* a kernel that writes the last one's output was launched */
    bool timed;       /* both events are recorded */
    bool over; /* the second event could not be recorded, so the job was waited for: it has run */
    double compile_ms;
};

/* A flight with what the job's kernels need besides their code. Call without device->lock, because
 * allocating may block. A failure to get something becomes the flight's result. NULL: *ret_code
 * says why. */
struct flight *launch_flight_new(struct cuda_device *d, struct job *job, enum err_code *ret_code);
/* Returns the flight for reuse, without device->lock; nothing of it is in use. */
void launch_flight_put(struct cuda_device *d, struct flight *f);
void launch_flight_free(struct cuda_device *d, struct flight *f); /* frees it */

/* The job's prepared kernels in [from, to), each once; returns how many. `keys` has room for them,
 * as has `forms`, which may be NULL. */
uint32_t launch_keys(const struct job *job, uint32_t from, uint32_t to, struct kcache_key *keys,
                     const char **forms);

/* Whether each kernel is known to be ready, or one is known to have failed: that is then the
 * flight's result. A failed kernel may be retried at any time, so this looks once; a ready one
 * stays ready. False: one is being compiled. */
bool launch_settled(struct cuda_device *d, const struct job *job, struct flight *f);

/* Queues the job's kernels, all of them ready, and its fetch, between the flight's events; with
 * device->lock and the device entered. ERR_OUT_OF_MEMORY (the driver's own), ERR_DEVICE_LOST; what
 * was queued by then still runs. */
enum err_code launch_job(struct stream *s, struct job *job, struct flight *f) must_check;

#endif
