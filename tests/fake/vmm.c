/* Virtual memory management: physical memory is a memfd, so that another process with this driver
 * can import its descriptor and map it; addresses are reserved without access, and pages that are
 * mapped there, of one device or of several, become device memory when access is given to them.
 * What is unmapped faults at once. Memory is given out as a pattern, as in memory.c; what is
 * imported, as it is: all of it counts as written. The file's name says whose memory it is, so that
 * it is the same device's where it is imported. */
#include "tests/fake/fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t grain = (size_t)2 << 20;
static const size_t poisoned = (size_t)64 << 20; /* of a large one no more is filled */

struct physical {
    struct physical *next;
    size_t size;
    int fd, device;
    ino_t file;
    int handles, mappings;
    unsigned char *written; /* as an allocation's */
};

/* Physical memory at a place of a range, all of it. */
struct mapping {
    struct mapping *next;
    char *start;
    struct physical *from;
    struct allocation *seen; /* NULL: no device has access */
};

struct range {
    struct range *next;
    char *start, *map; /* map, mapped_size: with what makes the start even */
    size_t size, mapped_size;
    struct mapping *mapped; /* by address */
};

static struct physical *all_physical;
static struct range *all_ranges;

bool vmm_is_there(void)
{
    const char *text = getenv("ARRAYD_FAKE_VMM");
    return !text || strcmp(text, "0") != 0;
}

static struct physical *find_physical(CUmemGenericAllocationHandle handle)
{
    struct physical *p = all_physical;
    while (p && (uintptr_t)p != handle)
        p = p->next;
    return p && p->handles ? p : NULL;
}

static struct range *find_range(CUdeviceptr start, size_t size)
{
    struct range *r = all_ranges;
    while (r && (uintptr_t)r->start != start)
        r = r->next;
    return r && r->size == size ? r : NULL;
}

/* The one that has all these addresses. */
static struct range *range_with(CUdeviceptr start, size_t size)
{
    struct range *r = all_ranges;
    while (r && (start < (uintptr_t)r->start || size > r->size ||
                 start - (uintptr_t)r->start > r->size - size))
        r = r->next;
    return r;
}

/* The place of the first of the mappings that these addresses are made of, without a gap and each
 * as a whole; NULL: they are not. */
static struct mapping **find_mapped(struct range *r, CUdeviceptr start, size_t size)
{
    if (!r || !size)
        return NULL;
    struct mapping **first = &r->mapped;
    while (*first && (uintptr_t)(*first)->start < start)
        first = &(*first)->next;
    uintptr_t at = start, end = start + size;
    for (const struct mapping *m = *first; m && at < end && (uintptr_t)m->start == at; m = m->next)
        at += m->from->size;
    return at == end ? first : NULL;
}

static struct physical *add(int fd, size_t size, int device)
{
    struct stat status;
    struct physical *p = fake_alloc(sizeof *p);
    *p = (struct physical){.next = all_physical,
                           .size = size,
                           .fd = fd,
                           .device = device,
                           .file = fstat(fd, &status) == 0 ? status.st_ino : 0,
                           .handles = 1,
                           .written = access_written_new(size)};
    all_physical = p;
    fake.live[FAKE_HANDLES]++;
    fake.devices[device].reserved += size;
    fake.live[FAKE_BYTES] += (long)size;
    return p;
}

/* Whoever else has it may write it: nobody here knows what. */
static void is_known_elsewhere(struct physical *p)
{
    if (p->written)
        memset(p->written, 0xff, p->size / 8);
}

static void let_go(struct physical *p)
{
    if (p->handles || p->mappings)
        return;
    struct physical **at = &all_physical;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    fake.devices[p->device].reserved -= p->size;
    fake.live[FAKE_BYTES] -= (long)p->size;
    close(p->fd);
    access_written_free(p->written, p->size);
    free(p);
}

static bool is_property(const CUmemAllocationProp *p)
{
    return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           p->location.type == CU_MEM_LOCATION_TYPE_DEVICE && p->location.id >= 0 &&
           p->location.id < fake.n_devices;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *props,
                                              int option)
{
    int r = fake_enter("cuMemGetAllocationGranularity", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!bytes || !is_property(props) || option < 0 || option > 1)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *bytes = grain;
    return fake_leave(CUDA_SUCCESS);
}

static int make_file(size_t size, int device)
{
    char name[32];
    snprintf(name, sizeof name, "fake-gpu-%d", device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    char *p = fd >= 0 && ftruncate(fd, (off_t)size) == 0
                  ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    memset(p, FAKE_POISON, size < poisoned ? size : poisoned);
    munmap(p, size);
    return fd;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *props, unsigned long long flags)
{
    int r = fake_enter("cuMemCreate", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!vmm_is_there())
        return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (!handle || !bytes || bytes % grain || flags || !is_property(props))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    int fd = pool_fits(props->location.id, bytes) ? make_file(bytes, props->location.id) : -1;
    if (fd < 0)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *handle = (uintptr_t)add(fd, bytes, props->location.id);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemRelease", NEEDS_INIT, &failure);
    if (r)
        return r;
    struct physical *p = find_physical(handle);
    if (!p)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fake.live[FAKE_HANDLES]--;
    p->handles--;
    let_go(p);
    return fake_leave(failure);
}

/* Not closed by exec: that is for whoever gets it to see to. */
EXPORT CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
                                             int type, unsigned long long flags)
{
    int r = fake_enter("cuMemExportToShareableHandle", NEEDS_INIT, NULL);
    if (r)
        return r;
    struct physical *p = find_physical(handle);
    if (!ret || !p || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    int fd = dup(p->fd);
    if (fd < 0)
        return fake_leave(CUDA_ERROR_OPERATING_SYSTEM);
    memcpy(ret, &fd, sizeof fd);
    is_known_elsewhere(p);
    return fake_leave(CUDA_SUCCESS);
}

/* The device whose memory the file is; -1: it is none's. */
static int device_of(int fd)
{
    char path[64], name[64] = "";
    int device = -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) <= 0 ||
        sscanf(name, "/memfd:fake-gpu-%d", &device) != 1)
        return -1;
    return device >= 0 && device < fake.n_devices ? device : -1;
}

static struct physical *find_file(ino_t file)
{
    struct physical *p = all_physical;
    while (p && p->file != file)
        p = p->next;
    return p;
}

/* Memory of this process is the same memory still, with one handle more. */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *handle,
                                               int type)
{
    int r = fake_enter("cuMemImportFromShareableHandle", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct stat status;
    int fd = (int)(intptr_t)handle, device = device_of(fd);
    if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || device < 0 ||
        fstat(fd, &status) != 0)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct physical *p = find_file(status.st_ino);
    if (p) {
        p->handles++;
        fake.live[FAKE_HANDLES]++;
    } else {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return fake_leave(CUDA_ERROR_OPERATING_SYSTEM);
        p = add(fd, (size_t)status.st_size, device);
        is_known_elsewhere(p);
    }
    *ret = (uintptr_t)p;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *props,
                                                       CUmemGenericAllocationHandle handle)
{
    int r = fake_enter("cuMemGetAllocationPropertiesFromHandle", NEEDS_INIT, NULL);
    if (r)
        return r;
    struct physical *p = find_physical(handle);
    if (!p || !props)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *props = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, p->device}};
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr at,
                                    unsigned long long flags)
{
    int r = fake_enter("cuMemAddressReserve", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!p || !bytes || bytes % grain || alignment > grain || at || flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    char *map = mmap(NULL, bytes + 2 * grain, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    struct range *a = fake_alloc(sizeof *a);
    char *start = (char *)(((uintptr_t)map / grain + 1) * grain); /* something before and behind */
    *a = (struct range){.next = all_ranges,
                        .start = start,
                        .map = map,
                        .size = bytes,
                        .mapped_size = bytes + 2 * grain};
    all_ranges = a;
    fake.live[FAKE_RANGES]++;
    *p = (uintptr_t)start;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemAddressFree", NEEDS_INIT, &failure);
    if (r)
        return r;
    struct range *a = find_range(p, bytes), **at = &all_ranges;
    if (!a || a->mapped)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    munmap(a->map, a->mapped_size);
    free(a);
    fake.live[FAKE_RANGES]--;
    return fake_leave(failure);
}

EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    int r = fake_enter("cuMemMap", NEEDS_INIT, NULL);
    if (r)
        return r;
    struct range *a = range_with(p, bytes);
    struct physical *from = find_physical(handle);
    if (!a || !from || p % grain || offset || bytes != from->size || flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    char *start = a->start + (p - (uintptr_t)a->start);
    struct mapping **at = &a->mapped;
    while (*at && (*at)->start + (*at)->from->size <= start)
        at = &(*at)->next;
    if (*at && (*at)->start < start + bytes)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (mmap(start, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, from->fd, 0) == MAP_FAILED)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    struct mapping *m = fake_alloc(sizeof *m);
    *m = (struct mapping){.next = *at, .start = start, .from = from};
    *at = m;
    from->mappings++;
    fake.live[FAKE_MAPPINGS]++;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *who, size_t n)
{
    int r = fake_enter("cuMemSetAccess", NEEDS_INIT, NULL);
    if (r)
        return r;
    struct range *a = range_with(p, bytes);
    struct mapping **first = find_mapped(a, p, bytes), *end;
    unsigned devices = devices_named(who, n);
    if (!first || !devices)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    for (end = *first; end && (uintptr_t)end->start < p + bytes; end = end->next)
        if (!devices_reach(devices, end->from->device))
            return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    if (mprotect((*first)->start, bytes, PROT_READ | PROT_WRITE) != 0)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    for (struct mapping *m = *first; m != end; m = m->next) {
        if (!m->seen)
            m->seen = memory_add_mapped(m->start, m->from->size, m->from->written, a, 0);
        __atomic_fetch_or(&m->seen->access, devices, __ATOMIC_RELAXED);
    }
    return fake_leave(CUDA_SUCCESS);
}

/* Of a pool's memory, what was given out at once. */
EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *ret, size_t *bytes, CUdeviceptr p)
{
    int r = fake_enter("cuMemGetAddressRange", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    const struct allocation *a = memory_holding((const void *)(uintptr_t)p);
    if (!a)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *ret = (uintptr_t)a->start;
    *bytes = a->size;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemUnmap", NEEDS_INIT, &failure);
    if (r)
        return r;
    struct mapping **first = find_mapped(range_with(p, bytes), p, bytes);
    if (!first)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (mmap((*first)->start, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    for (struct mapping *m; (m = *first) && (uintptr_t)m->start < p + bytes;) {
        *first = m->next;
        if (m->seen)
            memory_drop_mapped(m->seen);
        m->from->mappings--;
        let_go(m->from);
        free(m);
        fake.live[FAKE_MAPPINGS]--;
    }
    return fake_leave(failure);
}
