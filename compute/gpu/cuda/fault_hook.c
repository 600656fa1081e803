/* Only in a build with -Dfault_hook=true, for tests of what comes after a fault: on SIGRTMIN a
 * kernel writes where no memory is, so that the driver reports the error that a wrong kernel of a
 * client's would cause. It belongs to no work: what else is on the device comes under suspicion. */
#include "compute/gpu/cuda/fault.h"

#include <semaphore.h>
#include <signal.h>
#include <stdint.h>

#include "compute/base/worker.h"
#include "compute/gpu/code/kcache.h"

#define NOWHERE 4096 /* an address that nothing has, on either side; aligned */

static const char source[] = "extern \"C\" __global__ void arrayd_fault_hook(int *p)\n"
                             "{\n    *(volatile int *)p = 1;\n}\n";

static sem_t asked; /* static: a signal's handler and the thread live as long as the process */

static void ask(int sig)
{
    (void)sig;
    sem_post(&asked);
}

static enum err_code load(struct cuda_device *d, CUfunction *ret, CUstream *ret_stream,
                          struct err *e)
{
    struct cuda *c = d->cuda;
    struct kcache_entry *entry;
    enum kcache_how how;
    CUmodule module;
    TRY(cuda_entered(d, e));
    TRY(kcache_get(c->kcache, d->arch, source, false, &entry, &how, e));
    enum err_code code =
        cuda_check(c, c->driver->cuModuleLoadData(&module, entry->bytes), "cuModuleLoadData", e);
    kcache_unref(entry);
    TRY(code);
    TRY(cuda_check(c, c->driver->cuModuleGetFunction(ret, module, "arrayd_fault_hook"),
                   "cuModuleGetFunction", e));
    return cuda_check(c, c->driver->cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING),
                      "cuStreamCreate", e);
}

static void *wait_and_fault(void *arg)
{
    struct cuda_device *d = arg;
    struct cuda *c = d->cuda;
    struct err e = ERR_INIT;
    CUfunction function;
    CUstream stream;
    CUdeviceptr nowhere = NOWHERE;
    void *params[] = {&nowhere};
    if (load(d, &function, &stream, &e) != ERR_OK)
        return NULL;
    while (sem_wait(&asked) != 0)
        ;
    enum err_code code = cuda_check(
        c, c->driver->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
        "cuLaunchKernel", &e);
    if (code == ERR_OK)
        code = cuda_check(c, c->driver->cuStreamSynchronize(stream), "cuStreamSynchronize", &e);
    if (code != ERR_DEVICE_LOST)
        return NULL;
    pthread_mutex_lock(&d->lock);
    cuda_fault_look(d);
    pthread_mutex_unlock(&d->lock);
    cuda_fault_tell(c);
    return NULL;
}

void cuda_fault_hook(struct cuda_device *d)
{
    const struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
    pthread_t thread;
    sem_init(&asked, 0, 0);
    if (sigaction(SIGRTMIN, &action, NULL) == 0 &&
        thread_start(&thread, "arrayd-faults", wait_and_fault, d))
        pthread_detach(thread);
}
