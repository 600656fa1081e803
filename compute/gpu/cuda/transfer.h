/* Uploads and downloads: backend.h's functions, and what a job with a fetch does.
 *
 * Called by cuda.c (for the engine), launch.c and queue.c. backend.h says what each does. */
#ifndef ARRAYD_CUDA_TRANSFER_H
#define ARRAYD_CUDA_TRANSFER_H

#include "compute/gpu/cuda/device.h"

enum err_code cuda_upload_new(struct backend *b, int device, void *to, int64_t n,
                              void (*wake)(void *user), void *user, struct transfer **ret,
                              struct err *e);
void *cuda_upload_reserve(struct transfer *t, size_t *ret_n);
void cuda_upload_advance(struct transfer *t, size_t n);
enum err_code cuda_upload_join(struct transfer *t, struct stream *s, struct err *e);
enum err_code cuda_download_new(struct backend *b, int device, void *from, const struct view *view,
                                size_t itemsize, void (*wake)(void *user), void *user,
                                struct transfer **ret, struct err *e);
void cuda_download_start(struct transfer *t);
int64_t cuda_download_pull(struct transfer *t, int64_t offset, void *buf, size_t n);
enum err_code cuda_transfer_result(struct transfer *t);
void cuda_transfer_free(struct transfer *t, void (*released)(void *user), void *user);
/* For a job's fetch: with the device entered, queues the first copies on `on`
 * (behind the job's kernels; no waiting); then, when the job is known to have run (or failed), from
 * the completion thread before done(). Where no slab was free at launch, fetched() starts as
 * download_start would. */
void cuda_transfer_launch(struct transfer *t, CUstream on);
void cuda_transfer_fetched(struct transfer *t, enum err_code result);

#endif
