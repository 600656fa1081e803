/* Checks one piece after the other. A message of the loader says what is missing and what provides
 * it, so there is usually no advice to add. A compiler that cannot be loaded does not hide the
 * findings on the GPUs: someone setting a machine up wants to see all problems at once. */
#include "compute/gpu/api/diagnose.h"

#include <stdio.h>
#include <string.h>

#include "compute/gpu/api/loader.h"
#include "compute/gpu/api/members.h"

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

/* --- the GPUs of a mesh --- */

struct member {
    CUdevice handle;
    int number;
    char name[128];
};

/* How many GPUs are used; *ret: the one of that number. */
static int count_used(const struct driver *v, int number, CUdevice *ret)
{
    int all = 0, used = 0;
    (void)v->cuDeviceGetCount(&all);
    for (int i = 0; i < all; i++) {
        CUdevice d;
        int pools = 0;
        if (v->cuDeviceGet(&d, i) != CUDA_SUCCESS)
            continue;
        (void)v->cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d);
        if (pools && used++ == number)
            *ret = d;
    }
    return used;
}

/* Sets *ret_n, and as many members, on an error, too. */
static enum err_code find_members(const struct driver *v, const char *list, struct member *ret,
                                  int *ret_n, struct err *e)
{
    struct members m;
    const enum err_code code = members_read(list, count_used(v, -1, NULL), &m, e);
    for (int i = 0; i < m.n; i++) {
        ret[i].number = m.number[i];
        (void)count_used(v, m.number[i], &ret[i].handle);
        (void)v->cuDeviceGetName(ret[i].name, sizeof ret[i].name, ret[i].handle);
    }
    *ret_n = m.n;
    return code;
}

/* Pairs of GPUs, in words: "0 and 1, 0 and 2". */
struct pairs {
    char text[256];
    int n;
};

static void add_pair(struct pairs *p, const struct member *a, const struct member *b)
{
    const size_t at = strlen(p->text);
    snprintf(p->text + at, sizeof p->text - at, "%s%d and %d", p->n++ ? ", " : "", a->number,
             b->number);
}

static void say_pairs(const struct pairs *p, finding_fn *say, void *user, enum finding level,
                      const char *what, const char *advice)
{
    char text[400];
    snprintf(text, sizeof text, "devices %s %s", p->text, what);
    if (p->n)
        say(user, level, "mesh", text, advice);
}

static void say_mesh(const struct driver *v, const char *list, finding_fn *say, void *user)
{
    struct member m[BACKEND_PARTS] = {0};
    struct pairs unlike = {0}, apart = {0}, slow = {0};
    char text[320];
    struct members would;
    struct err e = ERR_INIT;
    bool whole = true;
    int n;
    const enum err_code code = find_members(v, list, m, &n, &e);
    for (int i = 0; i < n; i++) {
        if (!strstr(m[i].name, " MIG "))
            continue;
        whole = false;
        snprintf(text, sizeof text, "device %d is a part of a GPU: MIG mode is on", m[i].number);
        say(user, FINDING_FAIL, "mesh", text,
            "parts do not reach each other's memory, and a process sees one of them: switch MIG "
            "mode off (nvidia-smi -mig 0), or do without a mesh");
    }
    if (code != ERR_OK) {
        const bool of_more = members_read(list, BACKEND_PARTS, &would, NULL) == ERR_OK;
        say(user, FINDING_FAIL, "mesh", e.message,
            of_more ? "a container sees the GPUs that it was given (--gpus all), a process those "
                      "that CUDA_VISIBLE_DEVICES names: nvidia-smi -L on the host lists all"
                    : "");
        return;
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            int there = 0, back = 0;
            (void)v->cuDeviceCanAccessPeer(&there, m[i].handle, m[k].handle);
            (void)v->cuDeviceCanAccessPeer(&back, m[k].handle, m[i].handle);
            if (!members_are_alike(v, m[i].handle, m[k].handle))
                add_pair(&unlike, &m[i], &m[k]);
            if (!there || !back)
                add_pair(&apart, &m[i], &m[k]);
            else if (!members_are_linked(v, m[i].handle, m[k].handle))
                add_pair(&slow, &m[i], &m[k]);
        }
    say_pairs(&unlike, say, user, FINDING_FAIL, "are of different kinds",
              "the GPUs of a mesh run the same kernels: name those of one kind in the option mesh");
    say_pairs(
        &apart, say, user, FINDING_FAIL, "do not reach each other's memory",
        "nvidia-smi topo -p2p r says what the driver sees; virtual machines, an IOMMU and ACS "
        "of PCIe bridges can prevent it: name GPUs that do in the option mesh");
    say_pairs(&slow, say, user, FINDING_WARN, "reach each other's memory over PCIe, not NVLink",
              "work that reads much of the other GPUs' memory is slow: a bridge or a switch of "
              "NVLink helps, else use the mesh for arrays that one GPU cannot hold");
    snprintf(text, sizeof text, "%d GPUs of one kind, each of which reaches the others' memory", n);
    if (whole && !unlike.n && !apart.n)
        say(user, FINDING_OK, "mesh", text, "");
}

void gpu_diagnose(const char *mesh, finding_fn *say, void *user)
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
    if (mesh)
        say_mesh(v, mesh, say, user);
    if (loader_nvml(&nvml, &e) != ERR_OK)
        say(user, FINDING_WARN, "nvml", e.message,
            "without it /metrics does not report the temperature, power and memory errors of the "
            "GPUs");
    else
        say(user, FINDING_OK, "nvml", "the management library was found", "");
}
