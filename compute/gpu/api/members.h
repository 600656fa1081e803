/* The GPUs that the option mesh names, and what two of them have in common. Opens no device.
 *
 * Called by diagnose.c, before there is a mesh, and by compute/gpu/device, which makes it.
 * Thread-safe. */
#ifndef ARRAYD_GPU_MEMBERS_H
#define ARRAYD_GPU_MEMBERS_H

#include "compute/backend.h"
#include "compute/gpu/api/loader.h"

/* Numbers among the GPUs that arrayd uses, in the order of the list. */
struct members {
    int number[BACKEND_PARTS], n;
};

/* Reads "all" or "0,1" where there are n_gpus. ERR_BAD_FIELD: it is neither, names one that is not
 * there, one twice, too many, or less than two; *ret has those before the error. */
enum err_code members_read(const char *list, int n_gpus, struct members *ret,
                           struct err *e) must_check;

/* Whether the same kernels run on both. */
bool members_are_alike(const struct driver *v, CUdevice a, CUdevice b);
/* Whether they reach each other's memory by NVLink; else it is PCIe, if they do. */
bool members_are_linked(const struct driver *v, CUdevice a, CUdevice b);

#endif
