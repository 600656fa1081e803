/* What was on a device when it was lost. Called by queue.c. */
#ifndef ARRAYD_CUDA_FAULT_H
#define ARRAYD_CUDA_FAULT_H

#include "compute/gpu/cuda/device.h"

/* With device->lock held, the device being lost: notes what was on it, once. Before any of that
 * leaves its stream. */
void cuda_fault_look(struct cuda_device *d);
/* Without it, before any work is told: what was noted is written down and told (config.fault). */
void cuda_fault_tell(struct cuda *c);

#endif
