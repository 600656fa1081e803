/* The kernels of pack.cuh: compiled once, launched for each slab of a download that is not
 * contiguous.
 *
 * They write straight into the pinned slab, across the bus: no staging memory on the device, so a
 * view can be read when the device is full. The 64-bit part of locating an element is done here,
 * once per launch; the device counts on from there. */
#include "compute/gpu/transfer/pack.h"

#include <string.h>

#include "compute/kernels/forms/pack.cuh"
#include "compute/type/layout.h"

#define THREADS 256

_Static_assert(AR_PACK_RANK == MAX_RANK, "pack.cuh takes every view");
_Static_assert(sizeof(long) == sizeof(int64_t), "pack.cuh's long");

#define KERNEL(name, type)                                                                         \
    "extern \"C\" __global__ void " name "(const __grid_constant__ struct ar_params p)\n"          \
    "{\n    ar_pack<" type ">(p);\n}\n"
static const char source[] =
    "#include \"compute/kernels/forms/pack.cuh\"\n" KERNEL("ar_pack_1", "unsigned char")
        KERNEL("ar_pack_2", "unsigned short") KERNEL("ar_pack_4", "unsigned")
            KERNEL("ar_pack_8", "unsigned long") KERNEL("ar_pack_16", "ar_16bytes");
static const char *const names[5] = {"ar_pack_1", "ar_pack_2", "ar_pack_4", "ar_pack_8",
                                     "ar_pack_16"};

static enum err_code load(struct cuda_device *d, const void *bytes, struct err *e)
{
    struct cuda *c = d->cuda;
    enum err_code code =
        cuda_check(c, c->driver->cuModuleLoadData(&d->pack.module, bytes), "cuModuleLoadData", e);
    if (code != ERR_OK)
        d->pack.module = NULL;
    for (int i = 0; i < 5 && code == ERR_OK; i++)
        code = cuda_check(
            c, c->driver->cuModuleGetFunction(&d->pack.kernels[i], d->pack.module, names[i]),
            "cuModuleGetFunction", e);
    return code;
}

enum err_code cuda_pack_compile(struct cuda *c, const char *arch, struct err *e)
{
    struct kcache_entry *entry;
    enum kcache_how how;
    enum err_code code = kcache_get(c->kcache, arch, source, false, &entry, &how, e);
    if (code == ERR_OK)
        kcache_unref(entry);
    return code;
}

/* ret_rejected: it came from disk, does not load, and has been deleted. */
static enum err_code get_and_load(struct cuda_device *d, bool *ret_rejected, struct err *e)
{
    struct kcache *cache = d->cuda->kcache;
    struct kcache_entry *entry;
    enum kcache_how how;
    *ret_rejected = false;
    enum err_code code = kcache_get(cache, d->arch, source, false, &entry, &how, e);
    if (code != ERR_OK)
        return code;
    code = load(d, entry->bytes, e);
    if (code == ERR_INTERNAL)
        *ret_rejected = kcache_reject(cache, entry);
    kcache_unref(entry);
    if (code != ERR_OK)
        cuda_pack_close(d);
    return code;
}

enum err_code cuda_pack_open(struct cuda_device *d, struct err *e)
{
    bool rejected;
    TRY(cuda_entered(d, e));
    d->pack.module = NULL;
    enum err_code code = get_and_load(d, &rejected, e);
    return rejected ? get_and_load(d, &rejected, e) : code;
}

void cuda_pack_close(struct cuda_device *d)
{
    if (!d->pack.module)
        return;
    cuda_enter(d);
    d->cuda->driver->cuModuleUnload(d->pack.module);
    d->pack.module = NULL;
}

void pack_init(struct pack *p, const void *from, const struct view *view, size_t itemsize)
{
    *p = (struct pack){.from = (CUdeviceptr)(uintptr_t)from + (uint64_t)view->offset * itemsize,
                       .itemsize = itemsize};
    if (view_is_contiguous(view))
        return;
    for (int a = 0; a < view->rank; a++) {
        if (view->shape[a] == 1)
            continue;
        int last = p->rank - 1;
        if (last >= 0 && p->strides[last] == view->strides[a] * view->shape[a]) {
            p->shape[last] *= view->shape[a];
        } else {
            last = p->rank++;
            p->shape[last] = view->shape[a];
        }
        p->strides[last] = view->strides[a];
    }
}

CUdeviceptr pack_at(const struct pack *p, int64_t element)
{
    int64_t at = p->rank ? 0 : element;
    for (int a = p->rank - 1; a >= 0; a--) {
        at += element % p->shape[a] * p->strides[a];
        element /= p->shape[a];
    }
    return p->from + (uint64_t)(at * (int64_t)p->itemsize);
}

enum err_code pack_launch(struct cuda_device *d, const struct pack *p, int64_t first, int64_t count,
                          void *to, CUstream on)
{
    struct ar_params q = {.to = to, .rank = p->rank, .count = (unsigned)count, .narrow = 1};
    q.from = (const void *)(uintptr_t)pack_at(p, first);
    for (int a = p->rank - 1; a >= 0; a--) {
        q.shape[a] = p->shape[a];
        q.strides[a] = p->strides[a];
        q.start[a] = first % p->shape[a];
        first /= p->shape[a];
        if (p->shape[a] > INT32_MAX)
            q.narrow = 0;
    }
    int kernel = 0;
    while ((size_t)1 << kernel < p->itemsize)
        kernel++;
    unsigned per_block = THREADS * 16 / (unsigned)p->itemsize;
    void *args[] = {&q};
    CUresult r = d->cuda->driver->cuLaunchKernel(d->pack.kernels[kernel],
                                                 (q.count + per_block - 1) / per_block, 1, 1,
                                                 THREADS, 1, 1, 0, on, args, NULL);
    return cuda_check(d->cuda, r, "cuLaunchKernel", NULL);
}
