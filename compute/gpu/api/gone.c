/* The thread is left behind with its memory if it does not return: there are two references, and
 * the last one frees. In a container processes may have other numbers than NVML's: so one that is
 * found is believed in only if this process is found by its number, too. Then the system's word,
 * that the other has been waited for, has to do. */
#include "compute/gpu/api/gone.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/gpu/api/health.h"

#define WAIT_S     5.0 /* for them to leave */
#define ANSWER_S   1.0 /* beyond that, for NVML to answer at all */
#define TICK_NS    2000000
#define MOST_PIDS  16
#define MOST_THERE 1024 /* processes on a GPU */

struct gone {
    const struct nvml *nvml;
    pthread_t thread;
    _Atomic int refs, there; /* there: one of the processes; 0: none */
    _Atomic bool opened;     /* this process has contexts on all GPUs */
    int pids[MOST_PIDS + 1];
    int n;
    char gpus[][HEALTH_BUS_ID];
};

static void unref(struct gone *g)
{
    if (atomic_fetch_sub(&g->refs, 1) == 1)
        mem_free(g);
}

static int find(const int *pids, const nvmlProcessInfo *infos, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        for (const int *pid = pids; *pid; pid++)
            if (infos[i].pid == (unsigned)*pid)
                return *pid;
    return 0;
}

/* One of them (0 at the end) that has a context on a GPU. */
static int look(const struct gone *g, const int *pids, nvmlProcessInfo *infos)
{
    int there = 0;
    for (int i = 0; i < g->n && !there; i++) {
        nvmlDevice d;
        unsigned n = MOST_THERE;
        if (g->nvml->nvmlDeviceGetHandleByPciBusId(g->gpus[i], &d) == NVML_SUCCESS &&
            g->nvml->nvmlDeviceGetComputeRunningProcesses(d, &n, infos) == NVML_SUCCESS)
            there = find(pids, infos, n < MOST_THERE ? n : MOST_THERE);
    }
    return there;
}

/* Whether NVML calls processes by the numbers that they have here: this one has contexts. */
static bool is_word(const struct gone *g, nvmlProcessInfo *infos)
{
    const int self[] = {(int)getpid(), 0};
    return look(g, self, infos);
}

static void *ask(void *arg)
{
    struct gone *g = arg;
    const uint64_t until = clock_ns() + (uint64_t)(WAIT_S * 1e9);
    nvmlProcessInfo *infos = mem_calloc(MOST_THERE, sizeof *infos);
    bool asks = infos && g->nvml->nvmlInit() == NVML_SUCCESS;
    while (asks) {
        int there = look(g, g->pids, infos);
        if (there && atomic_load(&g->opened) && !is_word(g, infos))
            there = 0;
        atomic_store(&g->there, there);
        asks = there && clock_ns() < until;
        if (asks)
            nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    mem_free(infos);
    unref(g);
    return NULL;
}

struct gone *gone_ask(const struct driver *v, const CUdevice *devices, int n, const int *pids)
{
    const struct nvml *nvml;
    struct err e = ERR_INIT;
    if (!pids || !*pids || loader_nvml(&nvml, &e) != ERR_OK)
        return NULL;
    struct gone *g = mem_calloc(1, sizeof *g + (size_t)n * sizeof *g->gpus);
    if (!g)
        return NULL;
    g->nvml = nvml;
    for (int i = 0; i < MOST_PIDS && pids[i]; i++)
        g->pids[i] = pids[i];
    for (; g->n < n; g->n++)
        health_bus(v, devices[g->n], g->gpus[g->n]);
    atomic_init(&g->refs, 2);
    if (thread_start(&g->thread, "arrayd-gone", ask, g))
        return g;
    mem_free(g);
    return NULL;
}

int gone_wait(struct gone *g)
{
    if (!g)
        return 0;
    atomic_store(&g->opened, true);
    thread_leave(g->thread, WAIT_S + ANSWER_S);
    const int there = atomic_load(&g->there);
    unref(g);
    return there;
}
