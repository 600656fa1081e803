/* What the configuration says of devices, `arrayd precompile` and, in bench.c, `arrayd bench`.
 * Called by main.c. */
#ifndef ARRAYD_SERVER_DEVICE_H
#define ARRAYD_SERVER_DEVICE_H

#include "compute/backend.h"
#include "server/config/config.h"

struct engine;

/* Sets how much of the machine the backend takes, and where it keeps kernels. `c` must outlive the
 * backend. */
void device_configure(const struct config *c, struct backend_config *ret);

/* The device of sessions that ask for none, as in session_limits. `g` NULL: it is not known which
 * GPUs there are. ERR_BAD_FIELD: not a device, or there is no such device, or no mesh. */
enum err_code device_default(const struct config *c, const struct engine *g, int *ret,
                             struct err *e) must_check;

/* `arrayd precompile FOLDER ARCHITECTURE...`: what the daemon would compile at its first start, for
 * GPUs of these architectures (sm_90). Exit status: 0, 1 where that failed, 2 for a usage error. */
int precompile_main(int argc, char **argv);

/* `arrayd bench [--size N] [--device N|mesh] [--json] [option]...`: how fast this machine computes.
 * Exit status: 0, 1 where it failed or a result was wrong, 2 for a wrong option. */
int bench_main(int argc, char **argv);

#endif
