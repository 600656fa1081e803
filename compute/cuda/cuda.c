/* The CUDA backend's face: finding what is there, devices and their contexts, the table of
 * backend.h.
 *
 * Every visible GPU that has memory pools is a device. Each has its primary context (shared with
 * any library in the process), entered by whatever thread calls the driver. */
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/cuda/prepare.h"

#define KERNEL_CACHE_ENTRIES 4096

static struct cuda *cuda_of(struct backend *b)
{
    return (struct cuda *)b;
}

bool cuda_enter(struct cuda_device *d)
{
    static _Thread_local CUcontext current;
    if (atomic_load_explicit(&d->cuda->lost, memory_order_relaxed))
        return false;
    if (current == d->context)
        return true;
    if (cuda_check(d->cuda, d->cuda->driver->cuCtxSetCurrent(d->context), "cuCtxSetCurrent",
                   NULL) != ERR_OK)
        return false;
    current = d->context;
    return true;
}

enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e)
{
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return ERR_OK;
    const char *name = NULL;
    if (c->driver->cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, ERR_OUT_OF_MEMORY, "%s: no memory is left on the device (%s)", what,
                       name);
    int none = 0;
    atomic_compare_exchange_strong(&c->lost_code, &none, code);
    atomic_store(&c->lost, true);
    return err_set(e, ERR_DEVICE_LOST, "%s failed: %s (%d)", what, name, code);
}

static bool cuda_lost(struct backend *b)
{
    return atomic_load(&cuda_of(b)->lost);
}

/* --- opening --- */

static int attribute(struct cuda *c, CUdevice device, int which)
{
    int v = 0;
    return c->driver->cuDeviceGetAttribute(&v, which, device) == CUDA_SUCCESS ? v : 0;
}

/* Identity and context; what hangs on them comes after. */
static enum err_code device_begin(struct cuda *c, struct cuda_device *d, CUdevice handle,
                                  struct err *e)
{
    const struct driver *v = c->driver;
    *d = (struct cuda_device){.cuda = c, .index = c->n_devices, .handle = handle};
    if (v->cuDeviceGetName(d->name, sizeof d->name, handle) != CUDA_SUCCESS)
        snprintf(d->name, sizeof d->name, "GPU %d", handle);
    (void)v->cuDeviceTotalMem(&d->memory_total, handle);
    snprintf(d->arch, sizeof d->arch, "sm_%d%d",
             attribute(c, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
             attribute(c, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    d->processors = attribute(c, handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    d->shared_optin = attribute(c, handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    return cuda_check(c, v->cuDevicePrimaryCtxRetain(&d->context, handle),
                      "cuDevicePrimaryCtxRetain", e);
}

static enum err_code device_open(struct cuda_device *d, struct err *e)
{
    if (!cuda_enter(d))
        return err_set(e, ERR_DEVICE_LOST, "device %d cannot be used", d->index);
    enum err_code code = cuda_memory_open(d, e);
    if (code != ERR_OK)
        return code;
    d->opened = 1;
    code = cuda_slabs_open(d, e);
    if (code != ERR_OK)
        return code;
    d->opened = 2;
    code = cuda_pack_open(d, e);
    if (code != ERR_OK)
        return code;
    d->opened = 3;
    return cuda_streams_open(d, e);
}

static void device_close(struct cuda_device *d)
{
    (void)cuda_enter(d);
    cuda_streams_close(d);
    if (d->opened >= 2)
        cuda_slabs_close(d); /* waits for copies, some of them kernels of the next */
    if (d->opened >= 3)
        cuda_pack_close(d);
    if (d->opened >= 1)
        cuda_memory_close(d);
}

static void cuda_close(struct backend *b)
{
    struct cuda *c = cuda_of(b);
    cuda_compiler_close(c);
    for (int i = 0; i < c->n_devices; i++)
        device_close(&c->devices[i]);
    kcache_free(c->kcache);
    for (int i = 0; i < c->n_devices; i++)
        (void)c->driver->cuDevicePrimaryCtxRelease(c->devices[i].handle);
    mem_free(c->devices);
    mem_free(c);
}

/* The driver's own devices that we can use. */
static enum err_code find_devices(struct cuda *c, struct err *e)
{
    const struct driver *v = c->driver;
    int n = 0, version = 0;
    CUresult r = v->cuInit(0);
    if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && v->cuDeviceGetCount(&n) != CUDA_SUCCESS))
        n = 0;
    else if (r != CUDA_SUCCESS) {
        const char *name = NULL;
        (void)v->cuGetErrorName(r, &name);
        return err_set(e, ERR_BAD_FIELD, "the CUDA driver does not start: %s (%d)",
                       name ? name : "unknown error", r);
    }
    (void)v->cuDriverGetVersion(&version);
    if (n == 0)
        return err_set(e, ERR_BAD_FIELD,
                       "the CUDA driver (version %d.%d) sees no GPU; CUDA_VISIBLE_DEVICES, or the "
                       "container's --gpus option, may hide them",
                       version / 1000, version % 1000 / 10);
    c->devices = mem_calloc((size_t)n, sizeof *c->devices);
    if (!c->devices)
        return err_oom(e);
    for (int i = 0; i < n; i++) {
        CUdevice handle;
        if (v->cuDeviceGet(&handle, i) != CUDA_SUCCESS ||
            !attribute(c, handle, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
            continue;
        enum err_code code = device_begin(c, &c->devices[c->n_devices], handle, e);
        if (code != ERR_OK)
            return code;
        c->n_devices++;
    }
    return c->n_devices ? ERR_OK
                        : err_set(e, ERR_BAD_FIELD,
                                  "none of the %d GPUs has stream-ordered memory pools (they need "
                                  "driver 470 or later and are not there in some virtual machines)",
                                  n);
}

static enum err_code open_all(struct cuda *c, struct err *e)
{
    enum err_code code = loader_open(&c->driver, &c->nvrtc, e);
    if (code == ERR_OK)
        code = find_devices(c, e);
    if (code != ERR_OK)
        return code;
    struct kcache_config k = {
        .dir = c->config.kernel_cache,
        .max_disk_bytes = c->config.kernel_cache_bytes,
        .max_entries = c->config.kernel_cache_entries > 0 ? c->config.kernel_cache_entries
                                                          : KERNEL_CACHE_ENTRIES,
        .user_free = cuda_modules_free,
    };
    code = kcache_new(&k, c->nvrtc, &c->kcache, e);
    if (code == ERR_OK)
        code = cuda_compiler_open(c, e);
    for (int i = 0; i < c->n_devices && code == ERR_OK; i++)
        code = device_open(&c->devices[i], e);
    return code;
}

static enum err_code cuda_open(const struct backend_config *config, struct backend **ret,
                               struct err *e)
{
    struct cuda *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->base.ops = &backend_cuda_ops;
    c->config = *config;
    enum err_code code = open_all(c, e);
    if (code != ERR_OK) {
        if (c->driver)
            cuda_close(&c->base);
        else
            mem_free(c);
        return code;
    }
    *ret = &c->base;
    return ERR_OK;
}

/* --- what there is --- */

static int cuda_device_count(struct backend *b)
{
    return cuda_of(b)->n_devices;
}

static void cuda_device_info(struct backend *b, int device, struct backend_device *ret)
{
    struct cuda_device *d = &cuda_of(b)->devices[device];
    struct cuda_memory_stats m = {0};
    cuda_memory_stats(d, &m);
    *ret = (struct backend_device){.index = device,
                                   .memory_total = (int64_t)d->memory_total,
                                   .memory_free = m.free + (m.reserved - m.used)};
    memcpy(ret->name, d->name, sizeof ret->name);
    memcpy(ret->architecture, d->arch, sizeof d->arch);
}

static void *cuda_host(struct backend *b, void *p)
{
    (void)b;
    (void)p;
    return NULL;
}

static void line(struct strb *out, const char *name, const char *type, const char *help)
{
    strb_addf(out, "# HELP arrayd_cuda_%s %s\n# TYPE arrayd_cuda_%s %s\n", name, help, name, type);
}

static void device_metrics(struct cuda *c, struct strb *out)
{
    static const struct {
        const char *name, *type, *help;
    } lines[] = {
        {"memory_live_bytes", "gauge", "Device memory given out."},
        {"memory_reserved_bytes", "gauge", "Device memory the pool holds."},
        {"allocations_total", "counter", "Device allocations."},
        {"trims_total", "counter", "Times the pool was emptied because memory ran out."},
        {"slab_bytes", "gauge", "Pinned host memory."},
        {"slab_free_bytes", "gauge", "Pinned host memory in no transfer."},
        {"slab_copies_total", "counter", "Slabs copied to or from the device."},
        {"slab_waits_total", "counter", "Transfers that had to wait for a slab."},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        line(out, lines[i].name, lines[i].type, lines[i].help);
        for (int k = 0; k < c->n_devices; k++) {
            struct cuda_memory_stats m = {0};
            struct cuda_slab_stats s = {0};
            cuda_memory_stats(&c->devices[k], &m);
            cuda_slab_stats(&c->devices[k], &s);
            const int64_t values[] = {m.live,  m.reserved,   m.allocations, m.trims,
                                      s.bytes, s.free_bytes, s.copies,      s.waits};
            strb_addf(out, "arrayd_cuda_%s{device=\"%d\"} %lld\n", lines[i].name, k,
                      (long long)values[i]);
        }
    }
}

static void cuda_metrics(struct backend *b, struct strb *out)
{
    struct cuda *c = cuda_of(b);
    struct kcache_stats k;
    kcache_get_stats(c->kcache, &k);
    line(out, "kernel_cache_total", "counter", "Kernels asked for, by where they were found.");
    strb_addf(out,
              "arrayd_cuda_kernel_cache_total{from=\"memory\"} %lld\n"
              "arrayd_cuda_kernel_cache_total{from=\"disk\"} %lld\n"
              "arrayd_cuda_kernel_cache_total{from=\"compiler\"} %lld\n",
              (long long)k.memory_hits, (long long)k.disk_hits, (long long)k.compiled);
    line(out, "kernel_compile_failures_total", "counter", "Kernels that did not compile.");
    strb_addf(out, "arrayd_cuda_kernel_compile_failures_total %lld\n", (long long)k.failed);
    line(out, "kernel_compile_seconds_total", "counter", "Time spent compiling.");
    strb_addf(out, "arrayd_cuda_kernel_compile_seconds_total %.6f\n", k.compile_ms * 1e-3);
    line(out, "kernel_cache_entries", "gauge", "Compiled kernels in memory.");
    strb_addf(out, "arrayd_cuda_kernel_cache_entries %lld\n", (long long)k.entries);
    line(out, "kernel_cache_disk_bytes", "gauge", "Size of the kernel cache on disk.");
    strb_addf(out, "arrayd_cuda_kernel_cache_disk_bytes %lld\n", (long long)k.disk_bytes);
    line(out, "kernel_cache_disk_errors_total", "counter", "Files that could not be used.");
    strb_addf(out, "arrayd_cuda_kernel_cache_disk_errors_total %lld\n", (long long)k.disk_errors);
    device_metrics(c, out);
}

const struct backend_ops backend_cuda_ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host = cuda_host,
    .upload_new = cuda_upload_new,
    .upload_reserve = cuda_upload_reserve,
    .upload_advance = cuda_upload_advance,
    .upload_result = cuda_upload_result,
    .upload_join = cuda_upload_join,
    .download_new = cuda_download_new,
    .download_start = cuda_download_start,
    .download_pull = cuda_download_pull,
    .transfer_free = cuda_transfer_free,
    .prepare = cuda_prepare_op,
    .release = cuda_release,
    .lost = cuda_lost,
    .recompute = 400,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .submit = cuda_submit,
    .passed = cuda_passed,
    .explain = cuda_explain,
    .metrics = cuda_metrics,
};
