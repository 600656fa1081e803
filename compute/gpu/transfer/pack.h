/* Gathers the elements of a strided view, in C order, into memory that the device can reach.
 *
 * Called by download.c; opened by cuda.c. A struct pack is a value. Thread-safe; nothing blocks. */
#ifndef ARRAYD_CUDA_PACK_H
#define ARRAYD_CUDA_PACK_H

#include "compute/gpu/device/device.h"

/* The module that gathers strided views, compiled (blocking) or from the kernel cache; call when
 * cuda->kcache is set. Compiling needs no device, so it can begin before there is a context:
 * cuda_pack_compile leaves the result in the kernel cache. */
enum err_code cuda_pack_compile(struct cuda *c, const char *arch, struct err *e) must_check;
enum err_code cuda_pack_open(struct cuda_device *d, struct err *e) must_check;
void cuda_pack_close(struct cuda_device *d);

#define PACK_MOST (1u << 22) /* elements per launch */

/* A view with as few axes as possible, over memory at `from`. */
struct pack {
    CUdeviceptr from; /* of element [0,…,0] */
    size_t itemsize;
    int rank; /* 0: contiguous, bytes from `from` on */
    int64_t shape[MAX_RANK], strides[MAX_RANK];
};

void pack_init(struct pack *p, const void *from, const struct view *view, size_t itemsize);
/* Where that element (in C order) is. */
CUdeviceptr pack_at(const struct pack *p, int64_t element);
/* Queues on `on` the copy of elements [first, first + count) to `to` (pinned host memory, 16-byte
 * aligned). count ≤ PACK_MOST. With the device entered. Errors: cuda_check's. */
enum err_code pack_launch(struct cuda_device *d, const struct pack *p, int64_t first, int64_t count,
                          void *to, CUstream on) must_check;

#endif
