/* Whether processes that are gone have left the GPUs, too, by the driver's word (NVML): before that
 * a kernel of theirs might still write memory that outlives them.
 *
 * Called by cuda.c. A thread of its own asks, beside whatever else opening takes; NVML may take
 * long, or never answer, which is no word. One thread. */
#ifndef ARRAYD_CUDA_GONE_H
#define ARRAYD_CUDA_GONE_H

#include "compute/gpu/api/loader.h"

struct gone;

/* Begins to ask about `pids` (0 at the end) on `n` of the driver's devices. NULL: there is nothing
 * to ask, or no NVML, or no memory. */
struct gone *gone_ask(const struct driver *v, const CUdevice *devices, int n, const int *pids);
/* Once this process has contexts on these devices. Waits some seconds at most. The process that is
 * still there; 0: none is, as far as is known. Frees. NULL allowed. */
int gone_wait(struct gone *g);

#endif
