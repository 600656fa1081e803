/* Streams (stream.c): a CUDA stream each, with a queue of jobs in front of it (queue.c).
 *
 * Called by cuda.c, for the engine, upload.c and queue.c; launch.c and fault.c use the structure.
 * Thread-safe between open and close; a stream's jobs are under device->lock. */
#ifndef ARRAYD_CUDA_STREAM_H
#define ARRAYD_CUDA_STREAM_H

#include "compute/gpu/cuda/device.h"

struct backend_stream {
    struct cuda_device *device;
    CUstream cu;
    void *counters; /* device memory: EMIT_COUNTERS */
    struct backend_stream *next, *next_busy;
    bool is_busy, background;
    _Atomic bool waits;             /* for an event of another queue, since the last launch */
    struct job *queue, *queue_tail; /* not launched, by job->next */
    struct job *under_way, *under_way_tail;
    int n_under_way;
    uint64_t issued;
    uint64_t launched; /* sequence numbers up to this have left the queue */
    _Atomic uint64_t passed;
};

enum err_code cuda_stream_new(struct backend *b, int device, bool background,
                              struct backend_stream **ret, struct err *e);
void cuda_stream_free(struct backend_stream *s);
/* Frees the streams kept for reuse; with the device entered and nothing queued on it. */
void cuda_streams_release(struct cuda_device *d);

/* Whether everything up to the fence has run and been reported. */
bool cuda_passed(struct fence f);
/* Makes work submitted to `s` from now on wait for `event` too. The event may be destroyed or
 * recorded again when this returns. */
enum err_code cuda_stream_wait_event(struct backend_stream *s, CUevent event,
                                     struct err *e) must_check;

/* --- queue.c --- */

/* Opens the lock and the completion thread; closing waits for it, when every job is done. */
enum err_code cuda_queue_open(struct cuda_device *d, struct err *e) must_check;
void cuda_queue_close(struct cuda_device *d);
/* backend.h's submit. */
uint64_t cuda_submit(struct backend_stream *s, struct job *job);
void cuda_poll(struct backend *b);

#endif
