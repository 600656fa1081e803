/* Launching: called by queue.c, and fault.c for what was launched. A flight is what a job has from
 * its submission until it is told; flights are kept for the next job (device->flights). */
#ifndef ARRAYD_CUDA_LAUNCH_H
#define ARRAYD_CUDA_LAUNCH_H

#include "compute/gpu/cuda/prepare.h"
#include "compute/gpu/cuda/stream.h"

/* A job on its way. */
struct flight {
    struct flight *next; /* in the pool */
    CUevent begin, end;
    void *scratch; /* device memory of its kernels */
    int64_t scratch_size;
    CUgraphExec graph;     /* of the job's loop, or NULL */
    unsigned char *pinned; /* host memory for parameters that do not go along with a launch */
    size_t pinned_size;
    enum err_code result;
    uint64_t refusal; /* kcache.h's, of a kernel that did not compile */
    uint32_t reached; /* kernels up to that number were launched, */
    uint32_t failing; /* 1 + that of the one whose launch failed; 0: none */
    bool launched;    /* a kernel, a copy or a filling of memory was */
    bool touched;     /* a kernel that writes what the last one does was launched */
    bool timed;       /* both events are recorded */
    bool over;        /* the second could not be, so it was waited for: it has run */
    double compile_ms;
};

/* A flight with what the job's kernels need beside their code; without device->lock, for memory may
 * have to be waited for. What could not be had is the flight's result. NULL: *ret_code says why. */
struct flight *launch_flight_new(struct cuda_device *d, struct job *job, enum err_code *ret_code);
/* Back to the others, without device->lock; nothing of it is in use. */
void launch_flight_put(struct cuda_device *d, struct flight *f);
void launch_flight_free(struct cuda_device *d, struct flight *f); /* for good */

/* Kernels [from, to) of a job that are prepared, each once; returns how many. `keys` has room for
 * them, as has `forms`, which may be NULL. */
uint32_t launch_keys(const struct job *job, uint32_t from, uint32_t to, struct kcache_key *keys,
                     const char **forms);

/* Whether it is known of each kernel that it is ready, or of one that it will not be: that is the
 * flight's result then. A failed kernel may be tried again at any time, so this looks once; what is
 * ready stays so. False: one is being compiled. */
bool launch_settled(struct cuda_device *d, const struct job *job, struct flight *f);

/* Queues the job's kernels, all of them ready, and what it fetches, between the flight's events;
 * with device->lock and the device entered. ERR_OUT_OF_MEMORY (the driver's own), ERR_DEVICE_LOST;
 * what was queued by then passes. */
enum err_code launch_job(struct stream *s, struct job *job, struct flight *f) must_check;

#endif
