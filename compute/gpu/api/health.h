/* How the GPUs are: temperature, power, load, memory errors, for /metrics.
 *
 * Opened and closed by cuda.c. A thread of its own asks NVML every few seconds and keeps the
 * answers; who writes metrics takes what is there and never waits for the driver. Where NVML is
 * missing there are no such figures, nothing else. Thread-safe between open and close. */
#ifndef ARRAYD_CUDA_HEALTH_H
#define ARRAYD_CUDA_HEALTH_H

#include "compute/base/strb.h"
#include "compute/gpu/api/loader.h"

struct health;

/* Of `n` devices of the driver's. NULL where there is nothing to watch with, or no memory: never an
 * error. */
struct health *health_open(const struct driver *v, const CUdevice *devices, int n);
void health_close(struct health *h); /* NULL allowed */
void health_metrics(struct health *h, struct strb *out);

#endif
