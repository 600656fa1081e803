/* The list of backends: the one file that knows which exist. */
#include "compute/backend.h"

#include <stdio.h>
#include <string.h>

enum err_code backend_open(const char *name, const struct backend_config *config,
                           struct backend **ret, char *note, size_t n, struct err *e)
{
    if (n)
        note[0] = '\0';
    if (!strcmp(name, "cpu"))
        return backend_cpu_ops.open(config, ret, e);
    if (!strcmp(name, "auto")) {
        snprintf(note, n, "no CUDA backend in this build");
        return backend_cpu_ops.open(config, ret, e);
    }
    if (!strcmp(name, "cuda"))
        return err_set(e, ERR_BAD_FIELD,
                       "This build has no CUDA backend; use the backend \"cpu\" or \"auto\"");
    return err_set(e, ERR_BAD_FIELD, "There is no backend \"%s\": auto, cpu or cuda", name);
}

void backend_close(struct backend *b)
{
    if (b)
        b->ops->close(b);
}
