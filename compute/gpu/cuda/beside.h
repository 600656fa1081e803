/* What may run on GPUs beside what: suspected work has them to itself (compute/culprit/alone.h),
 * all GPUs of its device, whichever devices they belong to.
 *
 * Called by queue.c, with the lock of the job's device held. */
#ifndef ARRAYD_CUDA_BESIDE_H
#define ARRAYD_CUDA_BESIDE_H

#include "compute/gpu/device/device.h"

/* Whether a job that is otherwise ready may start; if so, it counts as running. If not, its device
 * is to ask again when told (cuda_wake). */
bool beside_may_start(struct cuda_device *d, const struct job *job);
/* It is over. True: jobs of other devices may start now, and are to be told. */
bool beside_over(struct cuda_device *d, const struct job *job) must_check;
/* Whether jobs that were held back may start, though nothing has ended: of this device; of others,
 * which are to be told. */
bool beside_lets_some(struct cuda_device *d);
bool beside_lets_others(struct cuda_device *d);

#endif
