/* The interpreter's machines, and the scans that run behind them, on the devices: compiled, found
 * on disk, loaded.
 *
 * Called by cuda.c, prepare.c and backends.c. Thread-safe. */
#ifndef ARRAYD_CUDA_MACHINES_H
#define ARRAYD_CUDA_MACHINES_H

#include "compute/gpu/cuda/prepare.h"

/* Begins to get them, unless config.interpret says never; the compiler is open. */
enum err_code machines_open(struct cuda *c, struct err *e) must_check;
/* Before the compiler is closed: nothing more is asked of it. */
void machines_close(struct cuda *c);
void machines_free(struct cuda *c);

bool machines_are_wanted(const struct cuda *c);
/* NULL: it is not there yet, or never will be. */
CUfunction machines_function(const struct cuda *c, int device, enum machine m);

/* backend.h's backend_precompile */
enum err_code machines_precompile(const char *kernel_cache, const char *architecture,
                                  struct err *e) must_check;

#endif
