/* Streams: a CUDA stream each, with a queue of jobs in front of it (compute/gpu/cuda/queue.c).
 *
 * Called by compute/gpu/transfer and compute/gpu/cuda, which use the structure, too. Thread-safe
 * between open and close; a stream's jobs are under device->lock. */
#ifndef ARRAYD_CUDA_STREAM_H
#define ARRAYD_CUDA_STREAM_H

#include "compute/gpu/device/device.h"

/* What a mesh's stream knows of its members' work: the first one's is behind everything; it has
 * been made to wait for the others', and given nothing since; others have some that it does not
 * wait for. */
enum mesh_order { MESH_TOGETHER, MESH_MET, MESH_APART };

struct backend_stream {
    struct cuda_device *device;
    CUstream cu;            /* of a mesh: the first member's */
    struct mesh_lane *mesh; /* the members' (mesh.h); NULL: it is of one GPU */
    enum mesh_order order;  /* of a mesh's members */
    bool captured;          /* what it is given makes a graph, and does not run */
    void *counters;         /* device memory: EMIT_COUNTERS */
    struct backend_stream *next, *next_busy;
    bool is_busy, background;
    bool waits;                     /* for an event of another queue, since the last launch */
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
/* Notes that `cu` was made to wait for an event; with device->lock. */
void cuda_stream_waits(struct backend_stream *s);
/* Makes work submitted to `s` from now on wait for `event` too. The event may be destroyed or
 * recorded again when this returns. */
enum err_code cuda_stream_wait_event(struct backend_stream *s, CUevent event,
                                     struct err *e) must_check;

#endif
