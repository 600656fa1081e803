/* How a suite opens a backend: what the environment says of it.
 *
 *   ARRAYD_INTERPRET  set: what the interpreter runs is run by that alone
 *   ARRAYD_MESH       "all" or "0,1": GPUs that are one device more, which the suite works on then;
 *                     everything of more than one block is divided among them */
#ifndef ARRAYD_SUITE_H
#define ARRAYD_SUITE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/engine/engine.h"

static inline struct engine_config suite_config(const char *backend)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = backend;
    config.device.compile_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (getenv("ARRAYD_INTERPRET"))
        config.device.interpret = INTERPRET_ONLY;
    config.device.mesh = strcmp(backend, "cpu") != 0 ? getenv("ARRAYD_MESH") : NULL;
    config.device.mesh_least = 1;
    return config;
}

/* The mesh, or the only device. */
static inline int suite_device(const struct engine *g)
{
    return getenv("ARRAYD_MESH") ? engine_device_count(g) - 1 : 0;
}

#endif
