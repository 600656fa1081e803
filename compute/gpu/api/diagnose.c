/* Checks one piece after the other. A message of the loader says what is missing and what provides
 * it, so there is usually no advice to add. A compiler that cannot be loaded does not hide the
 * findings on the GPUs: someone setting a machine up wants to see all problems at once. */
#include "compute/gpu/api/diagnose.h"

#include <stdio.h>

#include "compute/gpu/api/loader.h"

/* The oldest architecture that the newest compilers still generate code for. */
#define LEAST_CAPABILITY 70

static void say_devices(const struct driver *v, finding_fn *say, void *user)
{
    char text[320];
    int n = 0;
    CUresult r = v->cuInit(0);
    if (r == CUDA_SUCCESS)
        r = v->cuDeviceGetCount(&n);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NO_DEVICE) {
        const char *name = NULL;
        (void)v->cuGetErrorName(r, &name);
        snprintf(text, sizeof text, "the driver failed to initialise: %s (%d)", name ? name : "?",
                 r);
        say(user, FINDING_FAIL, "gpu", text,
            "check nvidia-smi and the kernel log (dmesg | grep -i nvrm); after an update of the "
            "driver its kernel module must be reloaded");
        return;
    }
    if (n == 0)
        say(user, FINDING_FAIL, "gpu", "the driver found no GPU",
            "CUDA_VISIBLE_DEVICES may hide it, or the container was started without --gpus");
    for (int i = 0; i < n; i++) {
        char name[128] = "a GPU";
        size_t bytes = 0;
        CUdevice d;
        if (v->cuDeviceGet(&d, i) != CUDA_SUCCESS)
            continue;
        int major = 0, minor = 0, pools = 0;
        (void)v->cuDeviceGetName(name, sizeof name, d);
        (void)v->cuDeviceTotalMem(&bytes, d);
        (void)v->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d);
        (void)v->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d);
        (void)v->cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d);
        snprintf(text, sizeof text, "device %d: %s, %.1f GiB, compute capability %d.%d%s", i, name,
                 (double)bytes / (double)(1 << 30), major, minor,
                 pools ? "" : ", without memory pools");
        if (!pools)
            say(user, FINDING_WARN, "gpu", text,
                "the device is not used: arrayd needs memory pools, which some virtual GPUs lack; "
                "give the machine a whole GPU");
        else if (major * 10 + minor < LEAST_CAPABILITY)
            say(user, FINDING_WARN, "gpu", text, "arrayd needs compute capability 7.0 or later");
        else
            say(user, FINDING_OK, "gpu", text, "");
    }
}

void gpu_diagnose(finding_fn *say, void *user)
{
    struct err e = ERR_INIT;
    const struct driver *v;
    const struct nvrtc *rtc;
    const struct nvml *nvml;
    char text[160];
    if (loader_driver(&v, &e) != ERR_OK) {
        say(user, FINDING_FAIL, "driver", e.message, "");
        return; /* the rest is unusable without it */
    }
    int version = 0;
    (void)v->cuDriverGetVersion(&version);
    snprintf(text, sizeof text, "the driver library supports CUDA %d.%d", version / 1000,
             version % 1000 / 10);
    say(user, FINDING_OK, "driver", text, "");
    if (loader_open(&v, &rtc, &e) != ERR_OK) {
        say(user, FINDING_FAIL, "nvrtc", e.message, "");
    } else {
        snprintf(text, sizeof text, "the run-time compiler is from CUDA %d.%d", rtc->major,
                 rtc->minor);
        say(user, FINDING_OK, "nvrtc", text, "");
    }
    say_devices(v, say, user);
    if (loader_nvml(&nvml, &e) != ERR_OK)
        say(user, FINDING_WARN, "nvml", e.message,
            "without it /metrics does not report the temperature, power and memory errors of the "
            "GPUs");
    else
        say(user, FINDING_OK, "nvml", "the management library was found", "");
}
