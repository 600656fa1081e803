/* Launching: called by queue.c, and by fault.c to list what was launched. A launch is what a job
 * holds from its submission until it is reported; launches are reused (device->launches). */
#ifndef ARRAYD_CUDA_LAUNCH_H
#define ARRAYD_CUDA_LAUNCH_H

#include "compute/gpu/cuda/prepare.h"
#include "compute/gpu/device/stream.h"

/* A submitted job's resources. */
struct launch {
    struct launch *next; /* in the pool */
    CUevent begin, end;
    void *scratch[BACKEND_PARTS]; /* memory for its kernels, of each member of the device */
    int64_t scratch_size[BACKEND_PARTS];
    CUgraphExec graph;     /* of the job's loop, or NULL */
    unsigned char *pinned; /* host memory for parameters that are not passed by value */
    size_t pinned_size;
    enum err_code result;
    uint64_t refusal;     /* kcache.h's, of a kernel that did not compile */
    uint32_t reached;     /* kernels up to this number were launched, */
    uint32_t failing;     /* 1 + the number of the one whose launch failed; 0: none */
    uint32_t begun;       /* 1 + the number of the last one that a member writes its part of */
    struct code_key plan; /* of the job's kernels together, */
    uint32_t n_plan;      /* which are so many; those over an empty space are none */
    uint64_t wholes[2];   /* a bit for each of the first 64 kernels: its whole, or that one's next,
                             runs from there */
    bool compiled;        /* no memory for what programs leave: the compiler is waited for */
    bool counted;         /* it counts as running (beside.h) */
    bool launched;        /* a kernel, copy or memset was launched */
    bool touched;         /* a kernel that writes the last one's output was launched */
    bool timed;           /* both events are recorded, */
    bool follows;         /* the first by the job before, whose second one it is */
    bool over; /* the second event could not be recorded, so the job was waited for: it has run */
    double compile_ms;
    unsigned tiers; /* enum tier, of the kernels launched, */
    unsigned forms; /* and their forms */
};

/* A launch with what the job's kernels need besides their code. Call without device->lock, because
 * allocating may block. A failure to get something becomes the launch's result. NULL: *ret_code
 * says why. */
struct launch *launch_new(struct cuda_device *d, struct job *job, enum err_code *ret_code);
/* Returns the launch for reuse, without device->lock; nothing of it is in use. */
void launch_put(struct cuda_device *d, struct launch *l);
void launch_free(struct cuda_device *d, struct launch *l); /* frees it */

/* The job's prepared kernels in [from, to), or the wholes in their place, each once; returns how
 * many. `keys` has room for them, as has `forms`, which may be NULL. */
uint32_t launch_keys(const struct job *job, const struct launch *l, uint32_t from, uint32_t to,
                     struct code_key *keys, const char **forms);

/* The job ran alone, as it had to, and nothing happened: its kernels are no longer suspected.
 * Writes a file. */
void launch_cleared(struct cuda_device *d, const struct job *job, const struct launch *l);

/* Whether each kernel is known to be ready, or one is known to have failed: that is then the
 * launch's result. A failed kernel may be retried at any time, so this looks once; a ready one
 * stays ready. False: one is being compiled. */
bool launch_settled(struct cuda_device *d, const struct job *job, struct launch *l);

/* Its first event, if it is the second of the launch before, becomes its own; that launch is over
 * and measured. */
void launch_take_begin(struct launch *l, struct launch *before);

/* Queues the job's kernels, all of them ready, and its fetch, between the launch's events; with
 * device->lock and the device entered. ERR_OUT_OF_MEMORY (the driver's own), ERR_DEVICE_LOST; what
 * was queued by then still runs. */
enum err_code launch_job(struct backend_stream *s, struct job *job, struct launch *l) must_check;

/* --- launch_kernel.c --- */

/* Device memory that a launch needs: its own, followed by its parameters if they are not passed by
 * value. */
int64_t launch_scratch(const struct emitted *m);
/* Launches kernel number i, prepared as p, by x. `first`: it was not launched in this job before.
 * Sets launched and failing of the launch. With device->lock and the device entered. */
enum err_code launch_prepared(struct backend_stream *s, const struct prepared *p,
                              const struct launchable *x, const struct job *job, struct launch *l,
                              uint32_t i, bool first) must_check;

#endif
