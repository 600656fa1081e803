/* What a GPU needs, looked at piece by piece (backend.h, backend_diagnose and backend_refused).
 *
 * Called by backend.c only. Loads the libraries, which stay loaded; opens no device. Thread-safe.
 */
#ifndef ARRAYD_CUDA_DIAGNOSE_H
#define ARRAYD_CUDA_DIAGNOSE_H

#include "compute/backend.h"

void cuda_diagnose(finding_fn *say, void *user);
int cuda_refused(const char *kernel_cache);

#endif
