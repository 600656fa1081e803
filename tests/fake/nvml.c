/* A fake NVML: GPUs that stand on the buses the fake driver gives its own (1, 2, …), with figures
 * one can tell apart. ARRAYD_FAKE_NVML: "hang", to never answer once it is asked for a figure;
 * "blind", to have no sensors; "gone", to not start; "apart", to know processes by other numbers.
 * ARRAYD_FAKE_NVML_THERE: a file with the numbers of processes that are said to be on each GPU,
 * besides this one. */
#include "compute/gpu/api/cuda_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* nvml.h's names, which nothing else declares. */
EXPORT nvmlReturn nvmlInit_v2(void);
EXPORT nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice *device);
EXPORT nvmlReturn nvmlDeviceGetTemperature(nvmlDevice device, int sensor, unsigned *celsius);
EXPORT nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice device, unsigned *milliwatts);
EXPORT nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice device, nvmlUtilization *rates);
EXPORT nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory *memory);
EXPORT nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice device, int clock, unsigned *mhz);
EXPORT nvmlReturn nvmlDeviceGetTotalEccErrors(nvmlDevice device, int type, int counter,
                                              unsigned long long *n);
EXPORT nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice device, unsigned *n,
                                                          nvmlProcessInfo *infos);

static int is(const char *mood)
{
    const char *told = getenv("ARRAYD_FAKE_NVML");
    return told && !strcmp(told, mood);
}

static unsigned bus_of(nvmlDevice device)
{
    return (unsigned)(uintptr_t)device;
}

static nvmlReturn sensor(void)
{
    while (is("hang"))
        sleep(1);
    return is("blind") ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn nvmlInit_v2(void)
{
    return is("gone") ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice *device)
{
    unsigned domain, number;
    if (sscanf(bus, "%8x:%2x:00.0", &domain, &number) != 2 || domain || !number)
        return NVML_ERROR_NOT_SUPPORTED;
    *device = (nvmlDevice)(uintptr_t)number;
    return NVML_SUCCESS;
}

nvmlReturn nvmlDeviceGetTemperature(nvmlDevice device, int which, unsigned *celsius)
{
    *celsius = 40 + bus_of(device);
    return which == NVML_TEMPERATURE_GPU ? sensor() : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice device, unsigned *milliwatts)
{
    *milliwatts = 123000 + bus_of(device) * 500;
    return sensor();
}

nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice device, nvmlUtilization *rates)
{
    *rates = (nvmlUtilization){50 + bus_of(device), 25};
    return sensor();
}

nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory *memory)
{
    (void)device;
    *memory = (nvmlMemory){.total = 4ull << 30, .free = 3ull << 30, .used = 1ull << 30};
    return sensor();
}

nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice device, int clock, unsigned *mhz)
{
    (void)device;
    *mhz = 1500;
    return clock == NVML_CLOCK_SM ? sensor() : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn nvmlDeviceGetTotalEccErrors(nvmlDevice device, int type, int counter,
                                       unsigned long long *n)
{
    *n = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? 7 : bus_of(device) - 1;
    return counter == NVML_VOLATILE_ECC ? sensor() : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice device, unsigned *n,
                                                   nvmlProcessInfo *infos)
{
    const char *path = getenv("ARRAYD_FAKE_NVML_THERE");
    FILE *f = path ? fopen(path, "r") : NULL;
    const unsigned room = *n;
    (void)device;
    *n = 0;
    while (f && *n < room && fscanf(f, "%u", &infos[*n].pid) == 1)
        ++*n;
    if (f)
        fclose(f);
    if (*n < room && !is("apart"))
        infos[(*n)++].pid = (unsigned)getpid();
    return sensor();
}
