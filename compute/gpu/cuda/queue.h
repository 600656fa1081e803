/* When jobs are launched, and when they are done.
 *
 * Called by cuda.c, for the engine. Thread-safe between open and close. */
#ifndef ARRAYD_CUDA_QUEUE_H
#define ARRAYD_CUDA_QUEUE_H

#include "compute/gpu/device/stream.h"

/* Opens the lock and the completion thread; closing waits for it, when every job is done. */
enum err_code cuda_queue_open(struct cuda_device *d, struct err *e) must_check;
void cuda_queue_close(struct cuda_device *d);
/* backend.h's submit. */
uint64_t cuda_submit(struct backend_stream *s, struct job *job);
void cuda_poll(struct backend *b);

#endif
