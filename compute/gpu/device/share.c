/* Device memory that another process can map by a descriptor. Each block is an allocation of the
 * driver's virtual memory management (physical memory, addresses, and a mapping between them),
 * since a pool's blocks can only be shared together with the whole pool.
 *
 * These calls have no stream order: memory is there when they return, and unmapping takes effect at
 * once. The engine frees blocks that no work uses any more on a separate thread, because the calls
 * take a fraction of a millisecond each, and more for gigabytes. The rest of a block beyond the
 * requested size is zeroed: the other process sees it too, and the driver may hand out memory that
 * this process freed with its old contents. Descriptors are created when requested; those that are
 * likely to be requested again are kept (share_fd.h).
 *
 * Those of a mesh are ranges over several GPUs (mesh_memory.c), and have a descriptor for each.
 *
 * Whether a machine supports this shows only by trying: containers and virtual GPUs may lack
 * descriptors, whatever the attributes say. So it is tried, once, when the device is opened. Later
 * failures that do not mean the device is lost leave it in use. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"

static CUmemAllocationProp properties(const struct cuda_device *d)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->handle}};
}

/* Frees the parts that exist. */
static void take_apart(struct cuda_device *d, const struct shared_block *b, bool mapped)
{
    const struct driver *cu = d->cuda->driver;
    CUdeviceptr p = (uintptr_t)b->data;
    size_t n = (size_t)b->size;
    if (mapped)
        (void)cuda_judge(d->cuda, cu->cuMemUnmap(p, n), "cuMemUnmap", NULL);
    if (p)
        (void)cuda_judge(d->cuda, cu->cuMemAddressFree(p, n), "cuMemAddressFree", NULL);
    if (b->handle)
        (void)cuda_judge(d->cuda, cu->cuMemRelease((CUmemGenericAllocationHandle)b->handle),
                         "cuMemRelease", NULL);
}

/* Allocates physical memory; if needed, first returns what the pool keeps to the driver. */
static enum err_code create(struct cuda_device *d, int64_t size, int64_t *ret, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    CUmemAllocationProp props = properties(d);
    CUmemGenericAllocationHandle h = 0;
    CUresult r = cu->cuMemCreate(&h, (size_t)size, &props, 0);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        r = cuda_memory_trim(d);
        if (r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY)
            r = cu->cuMemCreate(&h, (size_t)size, &props, 0);
    }
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return cuda_memory_none(d, size, e);
    enum err_code code = cuda_judge(d->cuda, r, "cuMemCreate", e);
    if (code == ERR_OK)
        *ret = (int64_t)h;
    return code;
}

/* Gives physical memory addresses; frees it if that fails. */
static enum err_code put_together(struct cuda_device *d, int64_t size, int64_t take_handle,
                                  struct shared_block *ret, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, d->handle},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct shared_block b = {.size = size, .handle = take_handle, .n_parts = 1};
    CUdeviceptr p = 0;
    bool mapped = false;
    enum err_code code = cuda_judge(d->cuda, cu->cuMemAddressReserve(&p, (size_t)size, 0, 0, 0),
                                    "cuMemAddressReserve", e);
    if (code == ERR_OK) {
        b.data = (void *)(uintptr_t)p;
        code = cuda_judge(
            d->cuda, cu->cuMemMap(p, (size_t)size, 0, (CUmemGenericAllocationHandle)b.handle, 0),
            "cuMemMap", e);
        mapped = code == ERR_OK;
    }
    if (code == ERR_OK)
        code = cuda_judge(d->cuda, cu->cuMemSetAccess(p, (size_t)size, &access, 1),
                          "cuMemSetAccess", e);
    if (code == ERR_OK)
        *ret = b;
    else
        take_apart(d, &b, mapped);
    return code;
}

/* `size` is a multiple of the grain. */
static enum err_code make(struct cuda_device *d, int64_t size, struct shared_block *ret,
                          struct err *e)
{
    int64_t handle;
    TRY(create(d, size, &handle, e));
    return put_together(d, size, handle, ret, e);
}

/* What fails leaves it as it was. A block is what was mapped as one; the rest is the pool's. */
void cuda_memory_opens_to(struct cuda_device *d, const void *p, const struct cuda_device *other)
{
    const struct driver *cu = d->cuda->driver;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, other->handle},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int reaches = 0;
    CUdeviceptr at = 0;
    size_t size = 0;
    if (cuda_judge(d->cuda, cu->cuDeviceCanAccessPeer(&reaches, other->handle, d->handle),
                   "cuDeviceCanAccessPeer", NULL) != ERR_OK ||
        !reaches ||
        cuda_judge(d->cuda, cu->cuMemGetAddressRange(&at, &size, (uintptr_t)p),
                   "cuMemGetAddressRange", NULL) != ERR_OK)
        return;
    if (cuda_judge(d->cuda, cu->cuMemSetAccess(at, size, &access, 1), "cuMemSetAccess", NULL) !=
        ERR_OK)
        (void)cuda_judge(d->cuda, cu->cuMemPoolSetAccess(d->memory.pool, &access, 1),
                         "cuMemPoolSetAccess", NULL);
}

static enum err_code export_handle(struct cuda_device *d, int64_t handle, int *ret_fd,
                                   struct err *e)
{
    int fd = -1;
    CUresult r = d->cuda->driver->cuMemExportToShareableHandle(
        &fd, (CUmemGenericAllocationHandle)handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    /* the error for a lack of descriptors is not documented; a lost device shows again at the next
     * call */
    const char *name = NULL;
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, ERR_OUT_OF_MEMORY, "out of memory while exporting the array");
    if (r != CUDA_SUCCESS || fd < 0) {
        (void)d->cuda->driver->cuGetErrorName(r, &name);
        return err_set(e, ERR_OVERLOADED,
                       "the array's memory cannot be exported: cuMemExportToShareableHandle "
                       "failed: %s (%d); the process may have run out of file descriptors "
                       "(LimitNOFILE of the service, or ulimit -n)",
                       name ? name : "no descriptor", r);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* cannot fail for an open descriptor */
    *ret_fd = fd;
    return ERR_OK;
}

static bool has(const struct cuda_device *d, int attribute)
{
    int v = 0;
    return d->cuda->driver->cuDeviceGetAttribute(&v, attribute, d->handle) == CUDA_SUCCESS && v;
}

void cuda_share_open(struct cuda_device *d)
{
    CUmemAllocationProp props = properties(d);
    struct shared_block b;
    struct err e = ERR_INIT;
    size_t grain = 0;
    int fd;
    share_fds_init(&d->share.fds);
    const char *lacks =
        !has(d, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
            ? "has no virtual memory management"
        : !has(d, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
            ? "cannot share memory by file descriptors (some virtual GPUs and WSL cannot)"
            : NULL;
    if (lacks) {
        snprintf(d->share.problem, sizeof d->share.problem, "device %d %s", d->index, lacks);
        return;
    }
    enum err_code code = cuda_judge(d->cuda,
                                    d->cuda->driver->cuMemGetAllocationGranularity(
                                        &grain, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                    "cuMemGetAllocationGranularity", &e);
    d->share.grain = grain > 0 ? (int64_t)grain : INT64_C(2) << 20;
    if (code == ERR_OK)
        code = make(d, d->share.grain, &b, &e);
    if (code == ERR_OK) {
        code = export_handle(d, b.handle, &fd, &e);
        if (code == ERR_OK)
            close(fd);
        take_apart(d, &b, true);
    }
    if (code != ERR_OK && code != ERR_OUT_OF_MEMORY)
        snprintf(d->share.problem, sizeof d->share.problem,
                 "device %d cannot share memory here: %.120s", d->index, e.message);
}

void cuda_share_close(struct cuda_device *d)
{
    share_fds_free(&d->share.fds);
}

const char *cuda_share_problem(struct backend *b, int device)
{
    const char *problem = ((struct cuda *)b)->devices[device].share.problem;
    return *problem ? problem : NULL;
}

/* Zeroes all of the block or only what is behind the `size` bytes. *ret_unknown: it failed, and the
 * memory may still be being written. */
static enum err_code clear(struct cuda_device *d, const struct shared_block *b, int64_t size,
                           bool zero, bool *ret_unknown, struct err *e)
{
    int64_t from = zero ? 0 : size;
    if (from == b->size)
        return ERR_OK;
    CUresult r = d->cuda->driver->cuMemsetD8Async((uintptr_t)b->data + (uint64_t)from, 0,
                                                  (size_t)(b->size - from), d->memory.stream);
    TRY(cuda_check(d->cuda, r, "cuMemsetD8Async", e));
    enum err_code code = cuda_memory_settle(d, e);
    *ret_unknown = code != ERR_OK && cuda_memory_settle(d, NULL) != ERR_OK;
    return code;
}

static enum err_code alloc(struct cuda_device *d, int64_t size, bool zero, struct shared_block *ret,
                           struct err *e)
{
    struct shared_block made;
    const int64_t whole = (size + d->share.grain - 1) / d->share.grain * d->share.grain;
    TRY(cuda_memory_charge(d, whole, e));
    bool unknown = false;
    enum err_code code = make(d, whole, &made, e);
    if (code == ERR_OK) {
        code = clear(d, &made, size, zero, &unknown, e);
        if (code != ERR_OK && !unknown)
            take_apart(d, &made, true);
    }
    if (code == ERR_OK) {
        *ret = made;
        cuda_memory_count(d);
    } else {
        cuda_memory_discharge(d, whole);
    }
    return code;
}

enum err_code cuda_share_alloc(struct backend *b, int device, int64_t size, bool zero, bool must,
                               struct shared_block *ret, struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    (void)must; /* a block has no descriptor of its own */
    TRY(cuda_entered(d, e));
    if (d->n_members > 1)
        return mesh_share_alloc(d, size, zero, ret, e);
    if (size > INT64_MAX - d->share.grain)
        return err_set(e, ERR_OUT_OF_MEMORY, "no device has %" PRId64 " bytes", size);
    enum err_code code = alloc(d, size, zero, ret, e);
    return code == ERR_OUT_OF_MEMORY && mesh_gives_back(d->cuda) && cuda_enter(d)
               ? alloc(d, size, zero, ret, e)
               : code;
}

/* INVALID_VALUE: the descriptor is of something else, for certain. A real driver says UNKNOWN then,
 * which says nothing of the device, but may have another cause. */
static enum err_code judge_import(struct cuda_device *d, CUresult r, struct err *e)
{
    static const char what[] = "cuMemImportFromShareableHandle";
    if (r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_UNKNOWN)
        return err_set(e, r == CUDA_ERROR_UNKNOWN ? ERR_OVERLOADED : ERR_STATE, "%s failed (%d)",
                       what, r);
    return cuda_judge(d->cuda, r, what, e);
}

static struct cuda_device *member_of(const struct cuda_device *d, const CUmemAllocationProp *props)
{
    for (int k = 0; k < d->n_members; k++)
        if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            props->location.id == d->members[k]->handle)
            return d->members[k];
    return NULL;
}

enum err_code cuda_share_physical(struct cuda_device *d, int fd, CUmemGenericAllocationHandle *ret,
                                  struct cuda_device **ret_on, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    CUmemGenericAllocationHandle h = 0;
    CUmemAllocationProp props = {.type = 0};
    CUresult r = cu->cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    TRY(judge_import(d, r, e));
    enum err_code code = cuda_judge(d->cuda, cu->cuMemGetAllocationPropertiesFromHandle(&props, h),
                                    "cuMemGetAllocationPropertiesFromHandle", e);
    struct cuda_device *on = code == ERR_OK ? member_of(d, &props) : NULL;
    if (code == ERR_OK && !on)
        code = err_set(e, ERR_OVERLOADED,
                       d->n_members > 1
                           ? "the memory is of a GPU that is not one of device %d's: the mesh has "
                             "others than before, or they have another order"
                           : "the memory is not device %d's: the devices may have another order "
                             "than before",
                       d->index);
    if (code == ERR_OK) {
        *ret = h;
        *ret_on = on;
    } else {
        (void)cuda_judge(d->cuda, cu->cuMemRelease(h), "cuMemRelease", NULL);
    }
    return code;
}

/* The driver does not tell a block's size: another one shows when it is mapped. */
enum err_code cuda_share_import(struct backend *b, int device, const int *fds, int n, int64_t size,
                                struct shared_block *ret, bool *ret_sealed, struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device], *on;
    CUmemGenericAllocationHandle handle;
    TRY(cuda_entered(d, e));
    *ret_sealed = false;
    if (*d->share.problem)
        return err_set(e, ERR_OVERLOADED, "%s", d->share.problem);
    if (d->n_members > 1)
        return mesh_share_import(d, fds, n, size, ret, e);
    if (n != 1 || size <= 0 || size % d->share.grain)
        return err_set(e, ERR_STATE, "this is not memory of %" PRId64 " bytes", size);
    TRY(cuda_share_physical(d, fds[0], &handle, &on, e));
    TRY(put_together(d, size, (int64_t)handle, ret, e));
    cuda_memory_charge_anyway(d, size);
    cuda_memory_count(d);
    return ERR_OK;
}

/* A mesh's block is the keeper's alone, which asks once: no descriptor of it is kept. */
static enum err_code export_part(struct cuda_device *d, const struct shared_block *share, int part,
                                 int *ret_fd, struct err *e)
{
    const int64_t handle = (int64_t)mesh_share_part(share, part);
    TRY(cuda_entered(d, e));
    enum err_code code = export_handle(d, handle, ret_fd, e);
    return code != ERR_OK && share_fds_drop_all(&d->members[0]->share.fds)
               ? export_handle(d, handle, ret_fd, e)
               : code;
}

enum err_code cuda_share_export(struct backend *b, int device, const struct shared_block *share,
                                int part, enum share_mode mode, bool again, int *ret_fd,
                                struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    (void)mode; /* the process that maps it chooses its own access */
    if (d->n_members > 1)
        return export_part(d, share, part, ret_fd, e);
    TRY(cuda_entered(d, e));
    *ret_fd = share_fds_get(&d->share.fds, share->handle);
    if (*ret_fd >= 0)
        return ERR_OK;
    enum err_code code = export_handle(d, share->handle, ret_fd, e);
    if (code != ERR_OK && share_fds_drop_all(&d->share.fds))
        code = export_handle(d, share->handle, ret_fd, e);
    if (code == ERR_OK && again)
        share_fds_keep(&d->share.fds, share->handle, *ret_fd);
    return code;
}

void cuda_share_free(struct backend *b, int device, const struct shared_block *share)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    if (d->n_members > 1) {
        mesh_share_free(d, share);
        return;
    }
    share_fds_drop(&d->share.fds, share->handle);
    if (cuda_enter(d))
        take_apart(d, share, true);
    cuda_memory_discharge(d, share->size);
}
