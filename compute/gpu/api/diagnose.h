/* Checks piece by piece what a GPU needs (backend.h, backend_diagnose).
 *
 * Called by backends.c only. Loads the libraries, which stay loaded; opens no device. Thread-safe.
 */
#ifndef ARRAYD_GPU_DIAGNOSE_H
#define ARRAYD_GPU_DIAGNOSE_H

#include "compute/backend.h"

void gpu_diagnose(const char *mesh, finding_fn *say, void *user);

#endif
