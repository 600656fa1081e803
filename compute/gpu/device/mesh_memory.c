/* A mesh's memory: ranges of addresses whose first part is the first member's physical memory, and
 * so on, in equal shares. To make one takes the driver 1.4 ms (4 MiB) to 18 ms (1 GiB and more), so
 * ranges that were freed are kept, and given out again for anything of nearly that size.
 *
 * What is kept counts as used on its members. It is given back when it was not used for some
 * seconds, and all of it as soon as one of them has no memory left. */
#include <inttypes.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"

#define GRAIN   (INT64_C(2) << 20) /* of physical memory */
#define SPARE   64                 /* a range may be larger by one part in so many */
#define KEEP_NS UINT64_C(10000000000)

struct mesh_range {
    struct mesh_range *next;
    CUdeviceptr at;
    int64_t share;  /* bytes of each member */
    int n;          /* members whose memory is mapped */
    uint64_t freed; /* when, clock_ns */
    CUmemGenericAllocationHandle physical[BACKEND_PARTS];
};

static int64_t least(const struct cuda_device *d)
{
    return d->cuda->config.mesh_least > GRAIN ? d->cuda->config.mesh_least : GRAIN;
}

bool mesh_divides(const struct cuda_device *d, int64_t size)
{
    return d->n_members > 1 && size / d->n_members >= least(d);
}

int64_t mesh_divided_least(const struct cuda_device *d)
{
    return GRAIN * d->n_members;
}

static int64_t share_of(const struct cuda_device *d, int64_t size)
{
    const int64_t each = (size + d->n_members - 1) / d->n_members;
    return (each + GRAIN - 1) / GRAIN * GRAIN;
}

/* --- the driver's part --- */

static void unmake(struct cuda_device *d, struct mesh_range *r, bool mapped)
{
    struct cuda *c = d->cuda;
    const struct driver *v = c->driver;
    const size_t share = (size_t)r->share;
    if (cuda_enter(d)) {
        for (int k = 0; k < r->n; k++) {
            if (mapped)
                (void)cuda_judge(c, v->cuMemUnmap(r->at + (size_t)k * share, share), "cuMemUnmap",
                                 NULL);
            (void)cuda_judge(c, v->cuMemRelease(r->physical[k]), "cuMemRelease", NULL);
        }
        if (r->at)
            (void)cuda_judge(c, v->cuMemAddressFree(r->at, share * (size_t)d->n_members),
                             "cuMemAddressFree", NULL);
    }
    for (int k = 0; k < d->n_members; k++)
        cuda_memory_discharge(d->members[k], r->share);
    mem_free(r);
}

/* A share of each member. */
static enum err_code make_physical(struct cuda_device *d, struct mesh_range *r, struct err *e)
{
    struct cuda *c = d->cuda;
    for (; r->n < d->n_members; r->n++) {
        const CUmemAllocationProp props = {
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->members[r->n]->handle}};
        CUresult result = c->driver->cuMemCreate(&r->physical[r->n], (size_t)r->share, &props, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* the pool's own may do */
            TRY(cuda_entered(d->members[r->n], e));
            result = cuda_memory_trim(d->members[r->n]);
            TRY(cuda_entered(d, e));
            if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
                result = c->driver->cuMemCreate(&r->physical[r->n], (size_t)r->share, &props, 0);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            return cuda_memory_none(d->members[r->n], r->share, e);
        TRY(cuda_judge(c, result, "cuMemCreate", e));
    }
    return ERR_OK;
}

static enum err_code map(struct cuda_device *d, struct mesh_range *r, struct err *e)
{
    struct cuda *c = d->cuda;
    const struct driver *v = c->driver;
    const size_t share = (size_t)r->share, all = share * (size_t)d->n_members;
    CUmemAccessDesc access[BACKEND_PARTS];
    int n = 0;
    enum err_code code =
        cuda_judge(c, v->cuMemAddressReserve(&r->at, all, 0, 0, 0), "cuMemAddressReserve", e);
    if (code != ERR_OK)
        r->at = 0;
    for (; n < d->n_members && code == ERR_OK; n++) {
        access[n] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, d->members[n]->handle},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        code = cuda_judge(c, v->cuMemMap(r->at + (size_t)n * share, share, 0, r->physical[n], 0),
                          "cuMemMap", e);
        if (code != ERR_OK)
            break;
    }
    if (code == ERR_OK)
        code = cuda_judge(c, v->cuMemSetAccess(r->at, all, access, (size_t)n), "cuMemSetAccess", e);
    for (int k = 0; k < n && code != ERR_OK; k++)
        (void)cuda_judge(c, v->cuMemUnmap(r->at + (size_t)k * share, share), "cuMemUnmap", NULL);
    return code;
}

static enum err_code charge(struct cuda_device *d, int64_t share, struct err *e)
{
    for (int k = 0; k < d->n_members; k++) {
        const enum err_code code = cuda_memory_charge(d->members[k], share, e);
        if (code == ERR_OK)
            continue;
        while (k-- > 0)
            cuda_memory_discharge(d->members[k], share);
        return code;
    }
    return ERR_OK;
}

static enum err_code make(struct cuda_device *d, int64_t share, struct mesh_range **ret,
                          struct err *e)
{
    TRY(charge(d, share, e));
    struct mesh_range *r = mem_calloc(1, sizeof *r);
    if (!r) {
        for (int k = 0; k < d->n_members; k++)
            cuda_memory_discharge(d->members[k], share);
        return err_oom(e);
    }
    r->share = share;
    enum err_code code = make_physical(d, r, e);
    if (code == ERR_OK)
        code = map(d, r, e);
    if (code == ERR_OK)
        *ret = r;
    else
        unmake(d, r, false);
    return code;
}

/* --- what is kept --- */

static struct mesh_range *take_kept(struct cuda_device *d, int64_t share)
{
    pthread_mutex_lock(&d->memory.lock);
    struct mesh_range **best = NULL;
    for (struct mesh_range **at = &d->kept; *at; at = &(*at)->next)
        if ((*at)->share >= share && (*at)->share <= share + share / SPARE &&
            (!best || (*at)->share < (*best)->share))
            best = at;
    struct mesh_range *r = best ? *best : NULL;
    if (r)
        *best = r->next;
    pthread_mutex_unlock(&d->memory.lock);
    return r;
}

static bool trim(struct cuda_device *d, bool all)
{
    const uint64_t now = clock_ns();
    struct mesh_range *old = NULL;
    pthread_mutex_lock(&d->memory.lock);
    struct mesh_range **at = &d->kept;
    while (*at && !all && now - (*at)->freed < KEEP_NS)
        at = &(*at)->next;
    old = *at;
    *at = NULL;
    pthread_mutex_unlock(&d->memory.lock);
    const bool any = old != NULL;
    while (old) {
        struct mesh_range *r = old;
        old = r->next;
        unmake(d, r, true);
    }
    return any;
}

int64_t mesh_kept(struct cuda_device *gpu)
{
    struct cuda *c = gpu->cuda;
    struct cuda_device *d = &c->devices[c->n_gpus];
    int64_t bytes = 0;
    if (c->n_devices == c->n_gpus)
        return 0;
    pthread_mutex_lock(&d->memory.lock);
    for (int k = 0; k < d->n_members; k++)
        for (struct mesh_range *r = d->kept; r && d->members[k] == gpu; r = r->next)
            bytes += r->share;
    pthread_mutex_unlock(&d->memory.lock);
    return bytes;
}

struct mesh_home mesh_home(struct cuda_device *d, const void *p)
{
    const CUdeviceptr at = (uintptr_t)p;
    struct mesh_home home = {0};
    if (d->n_members == 1)
        return home;
    pthread_mutex_lock(&d->memory.lock);
    for (const struct mesh_range *r = d->used; r && !home.share; r = r->next)
        if (at - r->at < (uint64_t)(r->share * d->n_members))
            home = (struct mesh_home){r->at, r->share};
    pthread_mutex_unlock(&d->memory.lock);
    return home;
}

bool mesh_gives_back(struct cuda *c)
{
    return c->n_devices > c->n_gpus && trim(&c->devices[c->n_gpus], true);
}

void mesh_tidy(struct cuda *c)
{
    if (c->n_devices > c->n_gpus)
        (void)trim(&c->devices[c->n_gpus], false);
}

/* Zeroes so many bytes, each member its share. *ret_unknown: it failed, and the memory may still be
 * being written. */
static enum err_code clear(struct cuda_device *d, const struct mesh_range *r, int64_t size,
                           bool *ret_unknown, struct err *e)
{
    enum err_code code = ERR_OK;
    struct cuda *c = d->cuda;
    int k;
    for (k = 0; k < d->n_members && k * r->share < size && code == ERR_OK; k++) {
        struct cuda_device *m = d->members[k];
        const int64_t left = size - k * r->share;
        code = cuda_entered(m, e);
        if (code == ERR_OK)
            code = cuda_check(c,
                              c->driver->cuMemsetD8Async(
                                  r->at + (size_t)(k * r->share), 0,
                                  (size_t)(left < r->share ? left : r->share), m->memory.stream),
                              "cuMemsetD8Async", e);
    }
    for (int i = 0; i < k; i++) {
        const enum err_code ended =
            cuda_enter(d->members[i]) ? cuda_memory_settle(d->members[i], e) : ERR_DEVICE_LOST;
        *ret_unknown |= ended != ERR_OK;
        code = code == ERR_OK ? ended : code;
    }
    (void)cuda_enter(d);
    return code;
}

enum err_code mesh_alloc(struct cuda_device *d, int64_t size, bool zero, void **ret, struct err *e)
{
    const int64_t share = share_of(d, size);
    struct mesh_range *r = take_kept(d, share);
    enum err_code code = r ? ERR_OK : make(d, share, &r, e);
    if (code == ERR_OUT_OF_MEMORY && trim(d, true)) /* what is kept was in the way */
        code = make(d, share, &r, e);
    bool unknown = false;
    if (code == ERR_OK && zero)
        code = clear(d, r, size, &unknown, e);
    if (code != ERR_OK) {
        if (r && !unknown) /* else it is lost: something may still write there */
            unmake(d, r, true);
        return code;
    }
    pthread_mutex_lock(&d->memory.lock);
    r->next = d->used;
    d->used = r;
    pthread_mutex_unlock(&d->memory.lock);
    *ret = (void *)(uintptr_t)r->at;
    for (int k = 0; k < d->n_members; k++)
        cuda_memory_count(d->members[k]);
    return ERR_OK;
}

/* With memory.lock: where the range in use that has the address is linked; NULL there: none has. */
static struct mesh_range **find_used(struct cuda_device *d, const void *p)
{
    struct mesh_range **at = &d->used;
    while (*at &&
           (CUdeviceptr)(uintptr_t)p - (*at)->at >= (CUdeviceptr)((*at)->share * d->n_members))
        at = &(*at)->next;
    return at;
}

bool mesh_free(struct cuda_device *d, void *p, int64_t size)
{
    if (d->n_members == 1 || size < mesh_divided_least(d))
        return false;
    pthread_mutex_lock(&d->memory.lock);
    struct mesh_range **at = find_used(d, p), *r = *at;
    if (r) {
        *at = r->next;
        r->freed = clock_ns();
        r->next = d->kept;
        d->kept = r;
    }
    pthread_mutex_unlock(&d->memory.lock);
    return r;
}

int mesh_divided(struct cuda_device *d, const void *p, int64_t ret_from[BACKEND_PARTS])
{
    int n = 0;
    if (d->n_members == 1)
        return 0;
    pthread_mutex_lock(&d->memory.lock);
    const struct mesh_range *r = *find_used(d, p);
    for (; r && n < d->n_members; n++)
        ret_from[n] = (int64_t)(r->at - (CUdeviceptr)(uintptr_t)p) + n * r->share;
    pthread_mutex_unlock(&d->memory.lock);
    return n;
}

void mesh_close(struct cuda_device *d)
{
    (void)trim(d, true);
    pthread_mutex_destroy(&d->memory.lock);
}
