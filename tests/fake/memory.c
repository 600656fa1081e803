/* Device memory: host memory whose misuse shows.
 *
 * An allocation lies at the end of its own mapping, between two pages nobody may touch; what
 * rounding to 256 bytes leaves on either side is a pattern that is checked when it is freed, for
 * those who use it from the host. Kernels are checked as they go (access.c). It starts as a pattern
 * too: freshly allocated device memory is not zero. A copy is checked against the live allocations
 * when it is asked for and when it is run. Device memory comes from pools (pool.c). */
#include "tests/fake/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 0xfd, FREED = 0xdd, ALIGNMENT = 256 };
static const size_t poisoned = (size_t)64 << 20; /* of a large allocation no more is filled */

static struct {
    struct allocation **list; /* by address */
    size_t n, capacity;
} live;

/* The number of allocations that start at or below p. */
static size_t position(const void *p)
{
    size_t low = 0, high = live.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (live.list[middle]->start <= (const char *)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void enlist(struct allocation *a)
{
    if (live.n == live.capacity) {
        live.capacity = live.capacity ? 2 * live.capacity : 64;
        live.list = realloc(live.list, live.capacity * sizeof *live.list);
        if (!live.list)
            abort();
    }
    size_t at = position(a->start);
    memmove(live.list + at + 1, live.list + at, (live.n++ - at) * sizeof *live.list);
    live.list[at] = a;
    access_add(a);
}

struct allocation *memory_new(size_t size, struct CUmemPoolHandle_st *pool)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (size + ALIGNMENT + page - 1) / page * page;
    char *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (mprotect(map + page, body, PROT_READ | PROT_WRITE)) {
        munmap(map, body + 2 * page);
        return NULL;
    }
    struct allocation *a = fake_alloc(sizeof *a);
    a->map = map;
    a->mapped = body + 2 * page;
    a->size = size;
    a->pool = pool;
    a->access = pool ? pool->access : ~0u;
    trail_take(&a->made);
    a->start = (char *)((uintptr_t)(map + page + body - size) & ~(uintptr_t)(ALIGNMENT - 1));
    memset(map + page, GUARD, (size_t)(a->start - map) - page);
    memset(a->start, FAKE_POISON, size < poisoned ? size : poisoned);
    memset(a->start + size, GUARD, (size_t)(map + page + body - a->start) - size);
    if (pool && !(a->written = access_written_new(size))) {
        munmap(map, a->mapped);
        free(a);
        return NULL;
    }
    enlist(a);
    return a;
}

static void delist(struct allocation *a)
{
    size_t i = position(a->start) - 1;
    access_drop(a);
    memmove(live.list + i, live.list + i + 1, (--live.n - i) * sizeof *live.list);
    free(a);
}

/* NULL or where the pattern is broken. */
static const char *broken(const struct allocation *a)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (const char *p = a->map + page; p < a->start; p++)
        if (*p != (char)GUARD)
            return p;
    for (const char *p = a->start + a->size; p < a->map + a->mapped - page; p++)
        if (*p != (char)GUARD)
            return p;
    return NULL;
}

/* Takes the lock off while it complains. */
void memory_drop(struct allocation *a)
{
    const char *at = broken(a);
    if (at) {
        pthread_mutex_unlock(&fake.lock);
        fake_violation("somebody wrote %ld bytes %s an allocation of %zu bytes",
                       at < a->start ? (long)(a->start - at) : (long)(at - a->start - a->size) + 1,
                       at < a->start ? "before" : "behind", a->size);
        pthread_mutex_lock(&fake.lock);
        fake_break(CUDA_ERROR_LAUNCH_FAILED);
    }
    access_written_free(a->written, a->size);
    munmap(a->map, a->mapped);
    delist(a);
}

struct allocation *memory_holding(const void *p)
{
    size_t i = position(p);
    struct allocation *a = i ? live.list[i - 1] : NULL;
    return a && (const char *)p <= a->start + a->size ? a : NULL;
}

struct allocation *memory_add_mapped(char *start, size_t size, unsigned char *written,
                                     const struct range *range, unsigned access)
{
    struct allocation *a = fake_alloc(sizeof *a);
    a->start = start;
    a->size = size;
    a->written = written;
    a->is_mapped = true;
    a->range = range;
    a->access = access;
    enlist(a);
    return a;
}

void memory_drop_mapped(struct allocation *a)
{
    delist(a);
}

void memory_share(struct CUmemPoolHandle_st *pool, unsigned devices)
{
    pool->access |= devices;
    for (size_t i = 0; i < live.n; i++)
        if (live.list[i]->pool == pool)
            __atomic_fetch_or(&live.list[i]->access, devices, __ATOMIC_RELAXED);
}

bool memory_owned(const void *p)
{
    return memory_holding(p) != NULL;
}

/* What is mapped right behind it, of the same range. */
static const struct allocation *next_of(const struct allocation *a)
{
    size_t i = position(a->start);
    const struct allocation *next = i < live.n ? live.list[i] : NULL;
    return next && a->range && next->range == a->range && next->start == a->start + a->size ? next
                                                                                            : NULL;
}

struct allocation *memory_find(const void *p, size_t n, bool executing, const char *who)
{
    struct allocation *a = memory_holding(p);
    const struct allocation *last = a;
    bool access = true;
    for (const struct allocation *next = a; next; next = next_of(last)) {
        last = next;
        access &= last->access >> fake_current->device & 1;
        if (n <= (size_t)(last->start + last->size - (const char *)p))
            break;
    }
    const char *why = !a ? "in no allocation"
                      : n > (size_t)(last->start + last->size - (const char *)p) ? "past its end"
                      : a->freeing && !executing                                 ? "freed before"
                      : !access ? "of a device that this one has no access to"
                                : NULL;
    if (!why)
        return a;
    fake_warn("%s: %zu bytes at %p are %s (offset %ld of %zu)", who, n, p, why,
              a ? (long)((const char *)p - a->start) : 0L, a ? a->size : (size_t)0);
    return NULL;
}

void memory_describe(const void *p, size_t n, char *text, size_t n_text)
{
    pthread_mutex_lock(&fake.lock);
    size_t i = position(p);
    const struct allocation *a = i ? live.list[i - 1] : NULL;
    const struct allocation *next = i < live.n ? live.list[i] : NULL;
    const char *at = p;
    if (a && at < a->start + a->size)
        snprintf(text, n_text, "at %zu, of an allocation of %zu bytes", (size_t)(at - a->start),
                 a->size);
    else if (a && (!next || at - (a->start + a->size) <= next->start - (at + n)))
        snprintf(text, n_text, "%zu bytes behind an allocation of %zu bytes",
                 (size_t)(at - (a->start + a->size)), a->size);
    else if (next)
        snprintf(text, n_text, "%zu bytes before an allocation of %zu bytes",
                 (size_t)(next->start - at), next->size);
    else
        snprintf(text, n_text, "at %p", p);
    pthread_mutex_unlock(&fake.lock);
}

/* Copies */

/* What that context's device has access to; NULL: the current one. */
static struct allocation *find_in(struct CUctx_st *context, const void *p, size_t n, bool executing,
                                  const char *who)
{
    struct CUctx_st *const current = fake_current;
    fake_current = context ? context : current;
    struct allocation *a = memory_find(p, n, executing, who);
    fake_current = current;
    return a;
}

static int run_copy(struct work *w)
{
    const struct allocation *to = NULL, *from = NULL;
    pthread_mutex_lock(&fake.lock);
    bool fine =
        (!w->copy.to_owned ||
         (to = find_in(w->copy.to_context, w->copy.to, w->copy.n, true, "a queued copy"))) &&
        (!w->copy.from_owned ||
         (from = find_in(w->copy.from_context, w->copy.from, w->copy.n, true, "a queued copy")));
    pthread_mutex_unlock(&fake.lock);
    if (!fine)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (from && !(to && to->written) && !access_is_written(w->copy.from, w->copy.n)) {
        trail_print("the copy", &w->copy.asked);
        trail_print("the allocation", &from->made);
        fake_violation("a copy to the host of %zu bytes, of an allocation of %zu, takes bytes that "
                       "nobody wrote",
                       w->copy.n, from->size);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    if (w->copy.from)
        memmove(w->copy.to, w->copy.from, w->copy.n);
    else
        memset(w->copy.to, w->copy.value, w->copy.n);
    if (to)
        access_copied(w->copy.to, w->copy.from, w->copy.n);
    return CUDA_SUCCESS;
}

/* With the lock, which it gives up. Pageable host memory: the call comes back when it has been
 * read or written. */
static int copy(const char *who, void *to, bool to_device, const void *from, bool from_device,
                int value, size_t n, CUstream stream)
{
    struct CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!n)
        return fake_leave(CUDA_SUCCESS);
    bool to_owned = memory_owned(to), from_owned = from && memory_owned(from);
    if ((to_device || to_owned) && !memory_find(to, n, false, who))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if ((from_device || from_owned) && !memory_find(from, n, false, who))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct work *w = fake_alloc(sizeof *w);
    w->run = run_copy;
    w->copy.to = to;
    w->copy.from = from;
    w->copy.n = n;
    trail_take(&w->copy.asked);
    w->copy.value = value;
    w->copy.to_owned = to_owned;
    w->copy.from_owned = from_owned;
    bool waits = !to_owned || (from && !from_owned);
    stream_push(s, w);
    return fake_leave(waits ? stream_wait(s) : CUDA_SUCCESS);
}

static void *pointer(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    int r = fake_enter("cuMemcpyHtoDAsync", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!from && n)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    return copy("cuMemcpyHtoDAsync", pointer(to), true, from, false, 0, n, stream);
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    int r = fake_enter("cuMemcpyDtoHAsync", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!to && n)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    return copy("cuMemcpyDtoHAsync", to, false, pointer(from), true, 0, n, stream);
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    int r = fake_enter("cuMemcpyDtoDAsync", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    return copy("cuMemcpyDtoDAsync", pointer(to), true, pointer(from), true, 0, n, stream);
}

/* Where neither GPU has access to the other's block, the driver copies by way of the host, at a
 * tenth of the link's rate: of so many bytes a fault. */
#define ROUNDABOUT ((size_t)16 << 20)

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t n, CUstream stream)
{
    static const char *const who = "cuMemcpyPeerAsync";
    int r = fake_enter(who, NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    if (!to_context || !from_context || !s)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!n)
        return fake_leave(CUDA_SUCCESS);
    const struct allocation *a = find_in(to_context, pointer(to), n, false, who);
    const struct allocation *b = find_in(from_context, pointer(from), n, false, who);
    if (!a || !b)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (n >= ROUNDABOUT && devices_reach(1u << from_context->device, to_context->device) &&
        !(a->access >> from_context->device & 1) && !(b->access >> to_context->device & 1)) {
        fake_leave(CUDA_SUCCESS);
        fake_violation("%s: %zu bytes go through the host: neither GPU has access to the other's",
                       who, n);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct work *w = fake_alloc(sizeof *w);
    w->run = run_copy;
    w->copy.to = pointer(to);
    w->copy.from = pointer(from);
    w->copy.n = n;
    trail_take(&w->copy.asked);
    w->copy.to_owned = w->copy.from_owned = true;
    w->copy.to_context = to_context;
    w->copy.from_context = from_context;
    stream_push(s, w);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream stream)
{
    int r = fake_enter("cuMemsetD8Async", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    return copy("cuMemsetD8Async", pointer(p), true, NULL, false, value, n, stream);
}

/* Pinned host memory */

EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    int r = fake_enter("cuMemHostAlloc", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!p || !bytes || flags & ~7u)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct allocation *a = memory_new(bytes, NULL);
    if (!a)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    fake.live[FAKE_HOST_ALLOCATIONS]++;
    *p = a->start;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemFreeHost(void *p)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemFreeHost", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    struct allocation *a = memory_holding(p);
    if (!a || a->start != p || a->pool || a->is_mapped)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fake.live[FAKE_HOST_ALLOCATIONS]--;
    memory_drop(a);
    return fake_leave(failure);
}

/* Checks what the real one does; kernels have no copy engine here. */
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank, void *array,
                                       const uint64_t *shape, const uint64_t *strides,
                                       const uint32_t *box, const uint32_t *steps, int interleave,
                                       int swizzle, int promotion, int fill)
{
    static const unsigned sizes[] = {[CU_TENSOR_MAP_DATA_TYPE_UINT8] = 1,
                                     [CU_TENSOR_MAP_DATA_TYPE_UINT16] = 2,
                                     [CU_TENSOR_MAP_DATA_TYPE_UINT32] = 4,
                                     [CU_TENSOR_MAP_DATA_TYPE_UINT64] = 8};
    int r = fake_enter("cuTensorMapEncodeTiled", 0, NULL);
    if (r)
        return r;
    bool good = (uintptr_t)map % 64 == 0 && (uintptr_t)array % 16 == 0 && type >= 0 &&
                (size_t)type < sizeof sizes / sizeof *sizes && sizes[type] && rank == 3 &&
                !interleave && !swizzle && promotion <= 3 && !fill;
    for (uint32_t a = 0; good && a < rank; a++) {
        good =
            shape[a] > 0 && shape[a] <= 1ull << 32 && box[a] > 0 && box[a] <= 256 && steps[a] == 1;
        uint64_t before = a == 1 ? shape[0] * sizes[type] : a == 2 ? strides[0] * shape[1] : 0;
        if (good && a > 0)
            good =
                strides[a - 1] % 16 == 0 && strides[a - 1] < 1ull << 40 && strides[a - 1] >= before;
    }
    good = good && box[0] * sizes[type] % 16 == 0;
    return fake_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* Somebody's own host memory, pinned. */
EXPORT CUresult cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
    int r = fake_enter("cuMemHostRegister", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!p || !bytes || flags & ~7u)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct allocation *before = memory_holding(p);
    if (before && (const char *)p < before->start + before->size)
        return fake_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    fake.live[FAKE_HOST_ALLOCATIONS]++;
    memory_add_mapped(p, bytes, NULL, NULL, ~0u);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemHostUnregister", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    struct allocation *a = memory_holding(p);
    if (!a || a->start != p || !a->is_mapped || a->written)
        return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    fake.live[FAKE_HOST_ALLOCATIONS]--;
    memory_drop_mapped(a);
    return fake_leave(failure);
}

void memory_forget_pinned(void)
{
    for (size_t i = live.n; i-- > 0;)
        if (live.list[i]->is_mapped && !live.list[i]->written) {
            fake.live[FAKE_HOST_ALLOCATIONS]--;
            delist(live.list[i]);
        }
}
