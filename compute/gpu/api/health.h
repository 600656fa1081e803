/* The GPUs' health: temperature, power, load, memory errors, for /metrics.
 *
 * Opened and closed by cuda.c. A thread of its own asks NVML every few seconds and keeps the
 * answers; writing metrics copies the latest ones and never waits for the driver. Without NVML
 * only these figures are missing. Thread-safe between open and close. */
#ifndef ARRAYD_CUDA_HEALTH_H
#define ARRAYD_CUDA_HEALTH_H

#include "compute/base/strb.h"
#include "compute/gpu/api/loader.h"

struct health;

#define HEALTH_BUS_ID 32
/* What NVML calls a device of the driver. */
void health_bus(const struct driver *v, CUdevice device, char out[HEALTH_BUS_ID]);

/* Watches `n` of the driver's devices. NULL without NVML or memory: never an error. */
struct health *health_open(const struct driver *v, const CUdevice *devices, int n);
void health_close(struct health *h); /* NULL allowed */
void health_metrics(struct health *h, struct strb *out);

#endif
