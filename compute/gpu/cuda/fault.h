/* What was on a device when it was lost. Called by queue.c. */
#ifndef ARRAYD_CUDA_FAULT_H
#define ARRAYD_CUDA_FAULT_H

#include "compute/gpu/device/device.h"

/* With device->lock held, the device being lost: records what was on it, once. Call before any of
 * that leaves its stream. */
void cuda_fault_look(struct cuda_device *d);
/* Without the lock, before any job is reported: writes the record down and reports it
 * (config.fault). */
void cuda_fault_tell(struct cuda *c);

#ifdef ARRAYD_FAULT_HOOK
/* From now on SIGRTMIN makes a kernel fault. Once, for a device that is open. */
void cuda_fault_hook(struct cuda_device *d);
#endif

#endif
