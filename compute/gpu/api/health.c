/* One thread, and one table of figures behind a lock that is held for a copy at most.
 *
 * NVML may take long, or never answer (a GPU that fell off the bus): hence the thread, and hence
 * the time of the last sample among the figures, which shows how old they are. On closing, a thread
 * that does not return is left behind with its memory: there are two references, and the last one
 * frees. So it is no worker.h's, whose threads are always waited for. */
#include "compute/gpu/api/health.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"

#define INTERVAL_S 5
#define LEAVE_S    1 /* how long closing waits for the thread */

enum {
    HAS_TEMPERATURE = 1,
    HAS_POWER = 2,
    HAS_LOAD = 4,
    HAS_MEMORY = 8,
    HAS_CLOCK = 16,
    HAS_ECC = 32
};

struct figures {
    int has; /* a GPU may lack some: virtual ones have no sensors */
    unsigned celsius, milliwatts, mhz;
    nvmlUtilization load;
    nvmlMemory memory;
    unsigned long long corrected, uncorrected;
    time_t at; /* seconds since 1970 */
};

struct gpu {
    char bus[HEALTH_BUS_ID];
    nvmlDevice handle;
    struct figures now;
};

struct health {
    const struct nvml *nvml;
    pthread_mutex_t lock;
    pthread_cond_t leave;
    pthread_t thread;
    _Atomic int refs;
    bool leaving;
    int n;
    struct gpu gpus[];
};

static void unref(struct health *h)
{
    if (atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    pthread_cond_destroy(&h->leave);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

static struct figures ask(const struct nvml *v, nvmlDevice d)
{
    struct figures f = {0};
    if (v->nvmlDeviceGetTemperature(d, NVML_TEMPERATURE_GPU, &f.celsius) == NVML_SUCCESS)
        f.has |= HAS_TEMPERATURE;
    if (v->nvmlDeviceGetPowerUsage(d, &f.milliwatts) == NVML_SUCCESS)
        f.has |= HAS_POWER;
    if (v->nvmlDeviceGetUtilizationRates(d, &f.load) == NVML_SUCCESS)
        f.has |= HAS_LOAD;
    if (v->nvmlDeviceGetMemoryInfo(d, &f.memory) == NVML_SUCCESS)
        f.has |= HAS_MEMORY;
    if (v->nvmlDeviceGetClockInfo(d, NVML_CLOCK_SM, &f.mhz) == NVML_SUCCESS)
        f.has |= HAS_CLOCK;
    if (v->nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC,
                                       &f.corrected) == NVML_SUCCESS &&
        v->nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC,
                                       &f.uncorrected) == NVML_SUCCESS)
        f.has |= HAS_ECC;
    f.at = clock_date();
    return f;
}

/* False: the thread must end. */
static bool pause_for_the_next(struct health *h)
{
    const struct timespec until = clock_after(INTERVAL_S);
    pthread_mutex_lock(&h->lock);
    int r = 0;
    while (!h->leaving && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&h->leave, &h->lock, &until);
    bool on = !h->leaving;
    pthread_mutex_unlock(&h->lock);
    return on;
}

static void *watch(void *arg)
{
    struct health *h = arg;
    const struct nvml *v = h->nvml;
    if (v->nvmlInit() != NVML_SUCCESS) {
        unref(h);
        return NULL;
    }
    for (int i = 0; i < h->n; i++)
        if (v->nvmlDeviceGetHandleByPciBusId(h->gpus[i].bus, &h->gpus[i].handle) != NVML_SUCCESS)
            h->gpus[i].handle = NULL;
    do
        for (int i = 0; i < h->n; i++) {
            if (!h->gpus[i].handle)
                continue;
            struct figures f = ask(v, h->gpus[i].handle);
            pthread_mutex_lock(&h->lock);
            h->gpus[i].now = f;
            pthread_mutex_unlock(&h->lock);
        }
    while (pause_for_the_next(h));
    unref(h);
    return NULL;
}

void health_bus(const struct driver *v, CUdevice device, char out[HEALTH_BUS_ID])
{
    int domain = 0, bus = 0, slot = 0;
    (void)v->cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
    (void)v->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    (void)v->cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
    snprintf(out, HEALTH_BUS_ID, "%08x:%02x:%02x.0", (unsigned)domain, (unsigned)bus & 255,
             (unsigned)slot & 255);
}

struct health *health_open(const struct driver *v, const CUdevice *devices, int n)
{
    const struct nvml *nvml;
    struct err e = ERR_INIT;
    if (loader_nvml(&nvml, &e) != ERR_OK)
        return NULL;
    struct health *h = mem_calloc(1, sizeof *h + (size_t)n * sizeof h->gpus[0]);
    if (!h)
        return NULL;
    h->nvml = nvml;
    h->n = n;
    for (int i = 0; i < h->n; i++)
        health_bus(v, devices[i], h->gpus[i].bus);
    pthread_mutex_init(&h->lock, NULL);
    clock_cond_init(&h->leave);
    atomic_init(&h->refs, 2);
    if (!thread_start(&h->thread, "arrayd-health", watch, h)) {
        unref(h);
        unref(h);
        return NULL;
    }
    return h;
}

void health_close(struct health *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->leaving = true;
    pthread_cond_signal(&h->leave);
    pthread_mutex_unlock(&h->lock);
    thread_leave(h->thread, LEAVE_S);
    unref(h);
}

/* --- text --- */

static struct figures figures(struct health *h, int gpu)
{
    pthread_mutex_lock(&h->lock);
    struct figures f = h->gpus[gpu].now;
    pthread_mutex_unlock(&h->lock);
    return f;
}

static double value(const struct figures *f, int which)
{
    switch (which) {
    case 0:
        return f->celsius;
    case 1:
        return f->milliwatts * 1e-3;
    case 2:
        return f->load.gpu * 1e-2;
    case 3:
        return f->load.memory * 1e-2;
    case 4:
        return (double)f->memory.used;
    case 5:
        return f->mhz * 1e6;
    default: /* the line's index in health_metrics */
        return (double)f->at;
    }
}

void health_metrics(struct health *h, struct strb *out)
{
    static const struct {
        int has; /* 0: all of them */
        const char *name, *help;
    } lines[] = {
        {HAS_TEMPERATURE, "temperature_celsius", "Temperature of the GPU in degrees Celsius."},
        {HAS_POWER, "power_watts", "Power drawn by the GPU in watts."},
        {HAS_LOAD, "utilization_ratio", "Share of the last sampling period in which a kernel ran."},
        {HAS_LOAD, "memory_utilization_ratio",
         "Share of the last sampling period in which device memory was read or written."},
        {HAS_MEMORY, "memory_used_bytes", "Device memory in use by all processes, in bytes."},
        {HAS_CLOCK, "clock_hertz", "Clock of the multiprocessors."},
        {0, "sampled_timestamp_seconds", "When these values were read, in seconds since 1970."},
    };
    for (size_t l = 0; h && l < sizeof lines / sizeof *lines; l++) {
        strb_addf(out, "# HELP arrayd_gpu_%s %s\n# TYPE arrayd_gpu_%s gauge\n", lines[l].name,
                  lines[l].help, lines[l].name);
        for (int i = 0; i < h->n; i++) {
            struct figures f = figures(h, i);
            if (f.at && (f.has & lines[l].has) == lines[l].has)
                strb_addf(out, "arrayd_gpu_%s{device=\"%d\"} %.15g\n", lines[l].name, i,
                          value(&f, (int)l));
        }
    }
    if (h)
        strb_add(out, "# HELP arrayd_gpu_ecc_errors_total Memory errors of the GPU since the "
                      "driver was loaded.\n# TYPE arrayd_gpu_ecc_errors_total counter\n");
    for (int i = 0; h && i < h->n; i++) {
        struct figures f = figures(h, i);
        if (f.has & HAS_ECC)
            strb_addf(out,
                      "arrayd_gpu_ecc_errors_total{device=\"%d\",kind=\"corrected\"} %llu\n"
                      "arrayd_gpu_ecc_errors_total{device=\"%d\",kind=\"uncorrected\"} %llu\n",
                      i, f.corrected, i, f.uncorrected);
    }
}
