/* Device memory: one stream-ordered pool per device, so that an allocation costs half a microsecond
 * once the pool is warm. The pool keeps what is freed (its release threshold is raised: by default
 * every synchronisation would return the memory to the driver, and the next allocation takes
 * milliseconds).
 *
 * Everything is allocated and freed in the order of one stream that does nothing else. The engine
 * frees only what no queued work uses, so a freed block may be given out again at once. A block is
 * ready for any stream when the allocating stream is idle, which it nearly always is: only when the
 * pool had to grow is there something to wait for.
 *
 * When memory runs out, what the pool keeps is returned to the driver (another pool, or another
 * process, may hold the rest) and the allocation is tried once more. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"

#define GRAIN 512 /* the pool's own granularity: memory is counted as it is used */

static int64_t rounded(int64_t size)
{
    return (size + GRAIN - 1) / GRAIN * GRAIN;
}

static enum err_code create_pool(struct cuda_device *d, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->handle}};
    /* Sharing with other processes needs descriptors; not every system has them. */
    CUresult r = cu->cuMemPoolCreate(&d->memory.pool, &props);
    if (r != CUDA_SUCCESS) {
        props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
        r = cu->cuMemPoolCreate(&d->memory.pool, &props);
    }
    enum err_code code = cuda_check(d->cuda, r, "cuMemPoolCreate", e);
    if (code != ERR_OK) {
        d->memory.pool = NULL;
        return code;
    }
    uint64_t keep = UINT64_MAX;
    return cuda_check(
        d->cuda,
        cu->cuMemPoolSetAttribute(d->memory.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
        "cuMemPoolSetAttribute", e);
}

enum err_code cuda_memory_open(struct cuda_device *d, struct err *e)
{
    TRY(cuda_entered(d, e));
    if (pthread_mutex_init(&d->memory.lock, NULL) != 0)
        return err_oom(e);
    d->memory.live = d->memory.peak = d->memory.allocations = d->memory.trims = 0;
    d->memory.of_mesh = 0;
    d->memory.pool = NULL;
    d->memory.stream = NULL;
    enum err_code code = cuda_check(
        d->cuda, d->cuda->driver->cuStreamCreate(&d->memory.stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate", e);
    if (code == ERR_OK)
        code = create_pool(d, e);
    else
        d->memory.stream = NULL;
    if (code != ERR_OK)
        cuda_memory_close(d);
    return code;
}

void cuda_memory_close(struct cuda_device *d)
{
    const struct driver *cu = d->cuda->driver;
    cuda_enter(d); /* on a lost device the calls fail harmlessly */
    if (d->memory.stream) {
        cu->cuStreamSynchronize(d->memory.stream);
        cu->cuStreamDestroy(d->memory.stream);
    }
    if (d->memory.pool)
        cu->cuMemPoolDestroy(d->memory.pool);
    d->memory.stream = NULL;
    d->memory.pool = NULL;
    pthread_mutex_destroy(&d->memory.lock);
}

enum err_code cuda_memory_charge(struct cuda_device *d, int64_t size, struct err *e)
{
    int64_t limit = d->cuda->config.memory_limit;
    pthread_mutex_lock(&d->memory.lock);
    bool fits = limit <= 0 || size <= limit - d->memory.live;
    if (fits)
        d->memory.live += size;
    pthread_mutex_unlock(&d->memory.lock);
    if (fits)
        return ERR_OK;
    return err_set(e, ERR_OUT_OF_MEMORY, "device %d has no %" PRId64 " bytes left", d->index, size);
}

void cuda_memory_charge_anyway(struct cuda_device *d, int64_t size)
{
    pthread_mutex_lock(&d->memory.lock);
    d->memory.live += size;
    pthread_mutex_unlock(&d->memory.lock);
}

void cuda_memory_count(struct cuda_device *d)
{
    pthread_mutex_lock(&d->memory.lock);
    d->memory.allocations++;
    if (d->memory.live > d->memory.peak)
        d->memory.peak = d->memory.live;
    pthread_mutex_unlock(&d->memory.lock);
}

void cuda_memory_discharge(struct cuda_device *d, int64_t size)
{
    pthread_mutex_lock(&d->memory.lock);
    d->memory.live -= size;
    pthread_mutex_unlock(&d->memory.lock);
}

void cuda_memory_of_mesh(struct cuda_device *d, int64_t size)
{
    pthread_mutex_lock(&d->memory.lock);
    d->memory.of_mesh += size;
    pthread_mutex_unlock(&d->memory.lock);
}

CUresult cuda_memory_trim(struct cuda_device *d)
{
    const struct driver *cu = d->cuda->driver;
    pthread_mutex_lock(&d->memory.lock);
    d->memory.trims++;
    pthread_mutex_unlock(&d->memory.lock);
    /* the pool can only return what was freed once the stream has got there */
    CUresult r = cu->cuStreamSynchronize(d->memory.stream);
    return r == CUDA_SUCCESS ? cu->cuMemPoolTrimTo(d->memory.pool, 0) : r;
}

enum err_code cuda_judge(struct cuda *c, CUresult r, const char *what, struct err *e)
{
    const char *name = NULL;
    switch (r) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
        (void)c->driver->cuGetErrorName(r, &name);
        return err_set(e, ERR_OVERLOADED, "%s failed: %s (%d)", what, name ? name : "?", r);
    default:
        return cuda_check(c, r, what, e);
    }
}

enum err_code cuda_memory_none(struct cuda_device *d, int64_t size, struct err *e)
{
    return err_set(e, ERR_OUT_OF_MEMORY, "device %d has no %" PRId64 " contiguous bytes", d->index,
                   size);
}

/* Allocates from the pool; if needed, first returns the memory it keeps to the driver. */
static enum err_code take(struct cuda_device *d, int64_t size, CUdeviceptr *ret, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    CUresult r = cu->cuMemAllocFromPoolAsync(ret, (size_t)size, d->memory.pool, d->memory.stream);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        r = cuda_memory_trim(d);
        if (r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY)
            r = cu->cuMemAllocFromPoolAsync(ret, (size_t)size, d->memory.pool, d->memory.stream);
    }
    return r == CUDA_ERROR_OUT_OF_MEMORY ? cuda_memory_none(d, size, e)
                                         : cuda_check(d->cuda, r, "cuMemAllocFromPoolAsync", e);
}

enum err_code cuda_memory_settle(struct cuda_device *d, struct err *e)
{
    const struct driver *cu = d->cuda->driver;
    CUresult r = cu->cuStreamQuery(d->memory.stream);
    if (r != CUDA_ERROR_NOT_READY)
        return cuda_check(d->cuda, r, "cuStreamQuery", e);
    return cuda_check(d->cuda, cu->cuStreamSynchronize(d->memory.stream), "cuStreamSynchronize", e);
}

/* Waits until the memory may be used on any stream. */
static enum err_code settle(struct cuda_device *d, CUdeviceptr p, int64_t size, bool zero,
                            struct err *e)
{
    struct cuda *c = d->cuda;
    enum err_code code = ERR_OK;
    if (zero)
        code = cuda_check(c, c->driver->cuMemsetD8Async(p, 0, (size_t)size, d->memory.stream),
                          "cuMemsetD8Async", e);
    return code == ERR_OK ? cuda_memory_settle(d, e) : code;
}

/* Device memory that may be used on any stream. */
static enum err_code obtain(struct cuda_device *d, int64_t size, bool zero, void **ret,
                            struct err *e)
{
    CUdeviceptr p = 0;
    TRY(take(d, size, &p, e));
    enum err_code code = settle(d, p, size, zero, e);
    if (code == ERR_OK)
        *ret = (void *)(uintptr_t)p;
    else
        d->cuda->driver->cuMemFreeAsync(p, d->memory.stream);
    return code;
}

static enum err_code alloc(struct cuda_device *d, int64_t size, bool zero, void **ret,
                           struct err *e)
{
    const int64_t whole = rounded(size);
    TRY(cuda_memory_charge(d, whole, e));
    /* exactly the requested size, so that a tool that checks accesses knows its end */
    enum err_code code = obtain(d, size, zero, ret, e);
    if (code == ERR_OK)
        cuda_memory_count(d);
    else
        cuda_memory_discharge(d, whole);
    return code;
}

/* If needed, what the mesh keeps of it is given back first. */
static enum err_code alloc_whole(struct cuda_device *d, int64_t size, bool zero, void **ret,
                                 struct err *e)
{
    enum err_code code = alloc(d, size, zero, ret, e);
    return code == ERR_OUT_OF_MEMORY && mesh_gives_back(d->cuda) && cuda_enter(d)
               ? alloc(d, size, zero, ret, e)
               : code;
}

/* What a mesh does not divide is its first member's, or that of the next one that has room. */
static enum err_code alloc_somewhere(struct cuda_device *d, int64_t size, bool zero, void **ret,
                                     struct err *e)
{
    const int64_t whole = rounded(size);
    enum err_code code = ERR_OUT_OF_MEMORY;
    for (int k = 0; k < d->n_members && code == ERR_OUT_OF_MEMORY; k++) {
        if (k > 0)
            TRY(cuda_entered(d->members[k], e));
        code = alloc_whole(d->members[k], size, zero, ret, e);
        if (code != ERR_OK || d->n_members == 1)
            continue;
        code = mesh_takes(d, k, *ret, whole, e);
        if (code == ERR_OK)
            continue;
        cuda_free_own(d->members[k], *ret);
        cuda_memory_discharge(d->members[k], whole);
    }
    if (d->n_members > 1)
        (void)cuda_enter(d);
    if (code == ERR_OUT_OF_MEMORY && d->n_members > 1)
        mesh_lacks(d, size, e);
    return code;
}

enum err_code cuda_alloc(struct backend *b, int device, int64_t size, bool zero, void **ret,
                         struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    TRY(cuda_entered(d, e));
    if (size > INT64_MAX - GRAIN)
        return err_set(e, ERR_OUT_OF_MEMORY, "no device has %" PRId64 " bytes", size);
    return mesh_divides(d, size) ? mesh_alloc(d, size, zero, ret, e)
                                 : alloc_somewhere(d, size, zero, ret, e);
}

enum err_code cuda_alloc_placed(struct backend *b, int device, int64_t size, bool divided,
                                void **ret, struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    TRY(cuda_entered(d, e));
    return divided ? mesh_alloc(d, size, false, ret, e) : alloc_somewhere(d, size, false, ret, e);
}

int cuda_divided(struct backend *b, int device, const void *p, int ret_on[BACKEND_PARTS],
                 int64_t ret_from[BACKEND_PARTS])
{
    return mesh_divided(&((struct cuda *)b)->devices[device], p, ret_on, ret_from);
}

int64_t cuda_taken(struct backend *b, int device, const void *p, int64_t size)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    const struct mesh_home home = mesh_home(d, p);
    return home.share ? home.share * home.n : size;
}

void cuda_free(struct backend *b, int device, void *p, int64_t size)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    if (mesh_free(d, p, size))
        return;
    if (d->n_members > 1)
        d = mesh_returns(d, p, rounded(size));
    cuda_free_own(d, p);
    cuda_memory_discharge(d, rounded(size));
}

enum err_code cuda_zero(struct backend *b, int device, void *p, int64_t size, struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    const struct mesh_home home = mesh_home(d, p);
    d = d->members[mesh_member(&home, (CUdeviceptr)(uintptr_t)p)];
    TRY(cuda_entered(d, e));
    return settle(d, (CUdeviceptr)(uintptr_t)p, size, true, e);
}

enum err_code cuda_alloc_own(struct cuda_device *d, int64_t size, void **ret, struct err *e)
{
    TRY(cuda_entered(d, e));
    return obtain(d->members[0], size, true, ret, e);
}

void cuda_free_own(struct cuda_device *d, void *p)
{
    if (!cuda_enter(d))
        return;
    CUresult r =
        d->cuda->driver->cuMemFreeAsync((CUdeviceptr)(uintptr_t)p, d->members[0]->memory.stream);
    (void)cuda_check(d->cuda, r, "cuMemFreeAsync", NULL);
}

/* --- host memory --- */

static enum err_code not_pinned(struct cuda *c, CUresult r, const char *what, int64_t size,
                                struct err *e)
{
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, ERR_OUT_OF_MEMORY, "%" PRId64 " bytes of host memory cannot be pinned",
                       size);
    return cuda_judge(c, r, what, e);
}

/* Maps a file's memory and pins it. */
static enum err_code map_file(struct cuda *c, int fd, int64_t size, void **ret, struct err *e)
{
    void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_OUT_OF_MEMORY, "%" PRId64 " bytes of host memory cannot be mapped",
                       size);
    enum err_code code =
        not_pinned(c, c->driver->cuMemHostRegister(p, (size_t)size, CU_MEMHOSTALLOC_PORTABLE),
                   "cuMemHostRegister", size, e);
    if (code == ERR_OK)
        *ret = p;
    else
        munmap(p, (size_t)size);
    return code;
}

static enum err_code alloc_file(struct cuda *c, int64_t size, int *ret_fd, void **ret,
                                struct err *e)
{
    char why[64];
    int fd = mem_file("arrayd-host");
    if (fd < 0 || !mem_file_size(fd, size)) {
        enum err_code code = err_set(e, fd < 0 ? ERR_OVERLOADED : ERR_OUT_OF_MEMORY,
                                     "no file for %" PRId64 " bytes of host memory: %s", size,
                                     strerror_r(errno, why, sizeof why));
        if (fd >= 0)
            close(fd);
        return code;
    }
    enum err_code code = map_file(c, fd, size, ret, e);
    if (code == ERR_OK)
        *ret_fd = fd;
    else
        close(fd);
    return code;
}

/* Portable: any device can copy from and to it. */
enum err_code cuda_host_alloc(struct backend *b, int64_t size, int *ret_fd, void **ret,
                              struct err *e)
{
    struct cuda *c = (struct cuda *)b;
    void *p;
    TRY(cuda_entered(&c->devices[0], e));
    if (ret_fd)
        return alloc_file(c, size, ret_fd, ret, e);
    TRY(not_pinned(c, c->driver->cuMemHostAlloc(&p, (size_t)size, CU_MEMHOSTALLOC_PORTABLE),
                   "cuMemHostAlloc", size, e));
    *ret = p;
    return ERR_OK;
}

enum err_code cuda_host_import(struct backend *b, int fd, int64_t size, void **ret, struct err *e)
{
    struct cuda *c = (struct cuda *)b;
    struct stat st;
    TRY(cuda_entered(&c->devices[0], e));
    if (fstat(fd, &st) != 0 || size <= 0 || st.st_size != size)
        return err_set(e, ERR_STATE, "this is not memory of %" PRId64 " bytes", size);
    return map_file(c, fd, size, ret, e);
}

void cuda_host_free(struct backend *b, void *p, int64_t size, bool of_file)
{
    struct cuda *c = (struct cuda *)b;
    const struct driver *cu = c->driver;
    if (cuda_enter(&c->devices[0]))
        (void)cuda_check(c, of_file ? cu->cuMemHostUnregister(p) : cu->cuMemFreeHost(p),
                         of_file ? "cuMemHostUnregister" : "cuMemFreeHost", NULL);
    if (of_file)
        munmap(p, (size_t)size);
}

void cuda_memory_stats(struct cuda_device *d, struct cuda_memory_stats *ret)
{
    const struct driver *cu = d->cuda->driver;
    struct cuda_memory_stats s = {0};
    pthread_mutex_lock(&d->memory.lock);
    s.live = d->memory.live;
    s.of_mesh = d->memory.of_mesh;
    s.peak = d->memory.peak;
    s.allocations = d->memory.allocations;
    s.trims = d->memory.trims;
    pthread_mutex_unlock(&d->memory.lock);
    uint64_t reserved = 0, used = 0;
    size_t free_bytes = 0, total = 0;
    if (cuda_enter(d)) {
        /* a figure that is unavailable is 0: the next call that matters finds out why */
        if (cu->cuMemPoolGetAttribute(d->memory.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                      &reserved))
            reserved = 0;
        if (cu->cuMemPoolGetAttribute(d->memory.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
            used = 0;
        if (cu->cuMemGetInfo(&free_bytes, &total))
            free_bytes = total = 0;
    }
    s.reserved = (int64_t)reserved;
    s.used = (int64_t)(used < reserved ? used : reserved); /* asked for later */
    s.free = (int64_t)free_bytes;
    s.total = (int64_t)total;
    pthread_mutex_lock(&d->memory.lock); /* again: other threads allocate and free meanwhile */
    const int64_t given = d->memory.live > s.live ? d->memory.live : s.live;
    pthread_mutex_unlock(&d->memory.lock);
    s.most = s.free + (s.reserved - s.used) + given;
    *ret = s;
}
