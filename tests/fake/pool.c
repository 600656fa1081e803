/* Pools of device memory. Freeing is a piece of the stream's work; an allocation that does not fit
 * waits for what its own stream has still to free, as the real pool would reuse that memory in
 * order. A pool keeps what was freed, up to its threshold, and that memory is another pool's no
 * more until it is trimmed. */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

static bool is_pool(struct CUmemPoolHandle_st *pool)
{
    return pool && pool->magic == MAGIC_POOL && !pool->destroyed;
}

static void set_reserved(struct CUmemPoolHandle_st *pool, size_t keep)
{
    size_t to = keep > pool->used ? keep : pool->used;
    if (to > pool->reserved)
        return;
    fake.devices[pool->device].reserved -= pool->reserved - to;
    pool->reserved = to;
}

static struct CUmemPoolHandle_st *pools; /* with the lock held */

static void pool_unref(struct CUmemPoolHandle_st *pool)
{
    if (!pool->destroyed || pool->allocations)
        return;
    set_reserved(pool, 0);
    pool->magic = 0;
    *(pool->prev ? &pool->prev->next : &pools) = pool->next;
    if (pool->next)
        pool->next->prev = pool->prev;
    free(pool);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
    int r = fake_enter("cuMemPoolCreate", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
        props->location.id >= fake.n_devices)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUmemPoolHandle_st *pool = fake_alloc(sizeof *pool);
    pool->magic = MAGIC_POOL;
    pool->device = props->location.id;
    pool->access = 1u << pool->device;
    pool->max = props->maxSize ? props->maxSize : SIZE_MAX;
    fake.live[FAKE_POOLS]++;
    pool->next = pools;
    if (pools)
        pools->prev = pool;
    pools = pool;
    *ret_pool = pool;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemPoolDestroy", NEEDS_INIT, &failure);
    if (r)
        return r;
    if (!is_pool(pool))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    pool->destroyed = true;
    fake.live[FAKE_POOLS]--;
    pool_unref(pool);
    return fake_leave(failure);
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *who, size_t n)
{
    int r = fake_enter("cuMemPoolSetAccess", NEEDS_INIT, NULL);
    if (r)
        return r;
    unsigned devices = devices_named(who, n);
    if (!is_pool(pool) || !devices)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!devices_reach(devices, pool->device))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    memory_share(pool, devices);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    int r = fake_enter("cuMemPoolSetAttribute", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_pool(pool) || !value || attribute < 1 || attribute > 8)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    return fake_leave(CUDA_SUCCESS); /* what to reuse, and resetting the high-water marks */
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    int r = fake_enter("cuMemPoolGetAttribute", NEEDS_INIT, NULL);
    if (r)
        return r;
    uint64_t n = 0;
    if (!is_pool(pool) || !value)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        n = pool->threshold;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        n = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        n = pool->used;
    else
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(value, &n, sizeof n);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    int r = fake_enter("cuMemPoolTrimTo", NEEDS_INIT, NULL);
    if (r)
        return r;
    if (!is_pool(pool))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    set_reserved(pool, keep);
    return fake_leave(CUDA_SUCCESS);
}

bool pool_fits(int device, size_t bytes)
{
    size_t reserved = fake.devices[device].reserved;
    return reserved <= fake.memory && bytes <= fake.memory - reserved;
}

static bool fits(const struct CUmemPoolHandle_st *pool, size_t bytes)
{
    size_t spare = pool->reserved - pool->used, more = bytes > spare ? bytes - spare : 0;
    return bytes <= pool->max && pool->used <= pool->max - bytes && pool_fits(pool->device, more);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    int r = fake_enter("cuMemAllocFromPoolAsync", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!p || !bytes || !is_pool(pool))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!fits(pool, bytes) && (r = stream_wait(s)) != CUDA_SUCCESS)
        return fake_leave(r);
    struct allocation *a = fits(pool, bytes) ? memory_new(bytes, pool) : NULL;
    if (!a)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    pool->used += bytes;
    pool->allocations++;
    if (pool->used > pool->reserved) {
        fake.devices[pool->device].reserved += pool->used - pool->reserved;
        pool->reserved = pool->used;
    }
    fake.live[FAKE_ALLOCATIONS]++;
    fake.live[FAKE_BYTES] += (long)bytes;
    *p = (uintptr_t)a->start;
    return fake_leave(CUDA_SUCCESS);
}

static int run_release(struct work *w)
{
    pthread_mutex_lock(&fake.lock);
    struct allocation *a = w->release;
    struct CUmemPoolHandle_st *pool = a->pool;
    fake.live[FAKE_ALLOCATIONS]--;
    fake.live[FAKE_BYTES] -= (long)a->size;
    pool->used -= a->size;
    pool->allocations--;
    memory_drop(a);
    set_reserved(pool, pool->threshold > SIZE_MAX ? SIZE_MAX : (size_t)pool->threshold);
    pool_unref(pool);
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuMemFreeAsync", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    void *start = (void *)(uintptr_t)p;
    struct allocation *a = memory_holding(start);
    if (!a || a->start != start || !a->pool || a->freeing) {
        fake_warn("cuMemFreeAsync: %p is %s", start, a && a->freeing ? "freed" : "no start");
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    a->freeing = true;
    struct work *w = fake_alloc(sizeof *w);
    w->run = run_release;
    w->release = a;
    stream_push(s, w);
    return fake_leave(failure);
}

EXPORT CUresult cuMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    int r = fake_enter("cuMemGetInfo", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!ret_free || !ret_total)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    size_t reserved = fake.devices[fake_current->device].reserved;
    *ret_total = fake.memory;
    *ret_free = reserved < fake.memory ? fake.memory - reserved : 0;
    return fake_leave(CUDA_SUCCESS);
}
