/* Entering a device's context, and judging the results of driver calls. An error that means that a
 * device is lost ends the backend: the first thread that finds it records and reports it. */
#include "compute/gpu/device/device.h"

#include <stdio.h>

/* The calling thread's; the device is −1 if it has entered none. */
static _Thread_local CUcontext current;
static _Thread_local int current_device = -1;

bool cuda_enter(struct cuda_device *d)
{
    if (atomic_load_explicit(&d->cuda->lost, memory_order_relaxed))
        return false;
    if (current == d->context) {
        current_device = d->index;
        return true;
    }
    /* twice: on false the caller takes the device for lost, which one failure does not prove */
    for (int tries = 0; tries < 2; tries++)
        if (cuda_check(d->cuda, d->cuda->driver->cuCtxSetCurrent(d->context), "cuCtxSetCurrent",
                       NULL) == ERR_OK) {
            current = d->context;
            current_device = d->index;
            return true;
        }
    return false;
}

enum err_code cuda_entered(struct cuda_device *d, struct err *e)
{
    return cuda_enter(d) ? ERR_OK : err_set(e, ERR_DEVICE_LOST, "device %d is lost", d->index);
}

void cuda_lost_why(struct cuda *c, char ret[CUDA_WHY])
{
    int code = atomic_load(&c->lost_code);
    const int device = atomic_load(&c->lost_device);
    char on[32] = "";
    const char *name = NULL;
    if (device >= 0 && c->n_devices > 1)
        snprintf(on, sizeof on, " on device %d", device);
    if (c->driver->cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    snprintf(ret, CUDA_WHY, "%s failed%s: %s (%d)", c->lost_what, on, name, code);
}

void cuda_tell_lost(struct cuda *c)
{
    if (!c->config.lost || !atomic_load(&c->opened) || atomic_exchange(&c->told, true))
        return;
    char why[CUDA_WHY];
    cuda_lost_why(c, why);
    c->config.lost(c->config.lost_user, why);
}

enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e)
{
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return ERR_OK;
    const char *name = NULL;
    if (c->driver->cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, ERR_OUT_OF_MEMORY, "%s: the device is out of memory (%s)", what, name);
    switch (code) { /* our own mistakes, which leave the device usable */
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        return err_set(e, ERR_INTERNAL, "%s failed: %s (%d)", what, name, code);
    default:
        break;
    }
    pthread_mutex_lock(&c->fault_lock);
    if (!atomic_load(&c->lost)) {
        c->lost_what = what;
        atomic_store(&c->lost_device, current_device);
        atomic_store(&c->lost_code, code);
    }
    atomic_store(&c->lost, true);
    cuda_tell_lost(c);
    pthread_mutex_unlock(&c->fault_lock);
    return err_set(e, ERR_DEVICE_LOST, "%s failed: %s (%d)", what, name, code);
}

/* Lower numbers have priority. If there is only one priority, all are equal. */
enum err_code cuda_stream_create(struct cuda *c, bool background, CUstream *ret, struct err *e)
{
    int least = 0, greatest = 0;
    TRY(cuda_check(c, c->driver->cuCtxGetStreamPriorityRange(&least, &greatest),
                   "cuCtxGetStreamPriorityRange", e));
    return cuda_check(c,
                      c->driver->cuStreamCreateWithPriority(ret, CU_STREAM_NON_BLOCKING,
                                                            background ? least : greatest),
                      "cuStreamCreateWithPriority", e);
}

void cuda_wake(struct cuda *c)
{
    for (int i = 0; i < c->n_devices; i++) {
        struct cuda_device *d = &c->devices[i];
        pthread_mutex_lock(&d->lock);
        d->retry = true;
        pthread_cond_signal(&d->wake);
        pthread_mutex_unlock(&d->lock);
    }
}
