/* The list of backends: the one file that knows which exist. */
#include <stdio.h>
#include <string.h>

#include "compute/backend.h"
#include "compute/gpu/api/diagnose.h"
#include "compute/gpu/cuda/prepare.h"

enum err_code backend_open(const char *name, const struct backend_config *config,
                           struct backend **ret, char *note, size_t n, struct err *e)
{
    if (n)
        note[0] = '\0';
    if (!strcmp(name, "cpu") && config->mesh)
        return err_set(e, ERR_BAD_FIELD, "mesh: the CPU backend has no GPUs");
    if (!strcmp(name, "cpu"))
        return backend_cpu_ops.open(config, ret, e);
    if (!strcmp(name, "cuda"))
        return backend_cuda_ops.open(config, ret, e);
    if (!strcmp(name, "auto")) {
        struct err why = ERR_INIT;
        if (backend_cuda_ops.open(config, ret, &why) == ERR_OK) {
            snprintf(note, n, "a GPU was found");
            return ERR_OK;
        }
        if (config->mesh)
            return err_set(e, why.code, "a mesh takes GPUs that can be used: %s", why.message);
        snprintf(note, n, "not using a GPU: %s", why.message);
        return backend_cpu_ops.open(config, ret, e);
    }
    return err_set(e, ERR_BAD_FIELD, "unknown backend \"%s\": it must be auto, cpu or cuda", name);
}

enum err_code backend_precompile(const char *kernel_cache, const char *architecture, struct err *e)
{
    return machines_precompile(kernel_cache, architecture, e);
}

void backend_diagnose(const char *mesh, finding_fn *say, void *user)
{
    gpu_diagnose(mesh, say, user);
}
