/* How the GPUs are: temperature, power, load, memory errors, for /metrics.
 *
 * Opened and closed by cuda.c. A thread of its own asks NVML every few seconds and keeps the
 * answers; who writes metrics takes what is there and never waits for the driver. Where NVML is
 * missing there are no such figures, nothing else. Thread-safe between open and close. */
#ifndef ARRAYD_CUDA_HEALTH_H
#define ARRAYD_CUDA_HEALTH_H

#include "compute/gpu/cuda/cuda_int.h"

struct health;

/* NULL where there is nothing to watch with, or no memory: never an error. */
struct health *health_open(struct cuda *c);
void health_close(struct health *h); /* NULL allowed */
void health_metrics(struct health *h, struct strb *out);

#endif
