/* A mesh's memory: ranges of addresses whose first part is the first member's physical memory, and
 * so on, in equal shares. To make one takes the driver 1.4 ms (4 MiB) to 18 ms (1 GiB and more), so
 * ranges that were freed are kept, and given out again for anything of nearly that size.
 *
 * What is kept counts as used on its members. It is given back when it was not used for some
 * seconds, and all of it as soon as one of them has no memory left.
 *
 * A range that outlives the process (share.c) may be one member's alone, is a chunk's from its
 * making to its end, and is not kept here: compute/memory keeps chunks. What a process before this
 * one made lies where it was made, whatever the members and their order are now. */
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
    int64_t share;  /* bytes of each part */
    int n, made;    /* parts, charged; those that have physical memory */
    uint64_t freed; /* when, clock_ns */
    struct cuda_device *on[BACKEND_PARTS];
    CUmemGenericAllocationHandle physical[BACKEND_PARTS];
};

static int64_t least(const struct cuda_device *d)
{
    return d->cuda->config.mesh_least > GRAIN ? d->cuda->config.mesh_least : GRAIN;
}

void mesh_parts(const struct cuda_device *d, struct backend_device *ret)
{
    for (int k = 0; k < d->n_members && d->n_members > 1; k++)
        ret->parts[ret->n_parts++] = d->members[k]->index;
    ret->part_least = least(d);
    ret->part_grain = GRAIN;
}

bool mesh_divides(const struct cuda_device *d, int64_t size)
{
    return d->n_members > 1 && size / d->n_members >= least(d);
}

static int64_t share_of(int n, int64_t size)
{
    const int64_t each = size / n + (size % n > 0);
    return (each + GRAIN - 1) / GRAIN * GRAIN;
}

void mesh_lacks(const struct cuda_device *d, int64_t size, struct err *e)
{
    if (!e)
        return;
    const struct err why = *e;
    err_set(e, ERR_OUT_OF_MEMORY, "the mesh, device %d, has no room for %" PRId64 " bytes: %s",
            d->index, size, why.message);
}

/* --- what is not divided --- */

/* On another than the first member, which had no room. */
struct mesh_block {
    struct mesh_block *next;
    CUdeviceptr at;
    int64_t size;
    int member;
};

enum err_code mesh_takes(struct cuda_device *d, int k, const void *p, int64_t whole, struct err *e)
{
    struct mesh_block *x = k ? mem_calloc(1, sizeof *x) : NULL;
    if (k && !x)
        return err_oom(e);
    cuda_memory_of_mesh(d->members[k], whole);
    if (!x)
        return ERR_OK;
    *x = (struct mesh_block){.at = (CUdeviceptr)(uintptr_t)p, .size = whole, .member = k};
    pthread_mutex_lock(&d->memory.lock);
    x->next = d->elsewhere;
    d->elsewhere = x;
    pthread_mutex_unlock(&d->memory.lock);
    return ERR_OK;
}

struct cuda_device *mesh_returns(struct cuda_device *d, const void *p, int64_t whole)
{
    pthread_mutex_lock(&d->memory.lock);
    struct mesh_block **at = &d->elsewhere;
    while (*at && (*at)->at != (CUdeviceptr)(uintptr_t)p)
        at = &(*at)->next;
    struct mesh_block *x = *at;
    if (x)
        *at = x->next;
    pthread_mutex_unlock(&d->memory.lock);
    struct cuda_device *gpu = d->members[x ? x->member : 0];
    mem_free(x);
    cuda_memory_of_mesh(gpu, -whole);
    return gpu;
}

/* --- the driver's part --- */

static void forget(struct mesh_range *r)
{
    for (int k = 0; k < r->n; k++)
        cuda_memory_discharge(r->on[k], r->share);
    mem_free(r);
}

static void unmake(struct cuda_device *d, struct mesh_range *r, bool mapped)
{
    struct cuda *c = d->cuda;
    const struct driver *v = c->driver;
    const size_t share = (size_t)r->share;
    if (cuda_enter(d)) {
        for (int k = 0; k < r->made; k++) {
            if (mapped)
                (void)cuda_judge(c, v->cuMemUnmap(r->at + (size_t)k * share, share), "cuMemUnmap",
                                 NULL);
            (void)cuda_judge(c, v->cuMemRelease(r->physical[k]), "cuMemRelease", NULL);
        }
        if (r->at)
            (void)cuda_judge(c, v->cuMemAddressFree(r->at, share * (size_t)r->n),
                             "cuMemAddressFree", NULL);
    }
    forget(r);
}

static enum err_code make_physical(struct cuda_device *d, struct mesh_range *r, bool shareable,
                                   struct err *e)
{
    struct cuda *c = d->cuda;
    for (; r->made < r->n; r->made++) {
        struct cuda_device *on = r->on[r->made];
        CUmemGenericAllocationHandle *to = &r->physical[r->made];
        const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .requestedHandleTypes =
                                               shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                         : CU_MEM_HANDLE_TYPE_NONE,
                                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, on->handle}};
        CUresult result = c->driver->cuMemCreate(to, (size_t)r->share, &props, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* the pool's own may do */
            TRY(cuda_entered(on, e));
            result = cuda_memory_trim(on);
            TRY(cuda_entered(d, e));
            if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
                result = c->driver->cuMemCreate(to, (size_t)r->share, &props, 0);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            return cuda_memory_none(on, r->share, e);
        TRY(cuda_judge(c, result, "cuMemCreate", e));
    }
    return ERR_OK;
}

static enum err_code map(struct cuda_device *d, struct mesh_range *r, struct err *e)
{
    struct cuda *c = d->cuda;
    const struct driver *v = c->driver;
    const size_t share = (size_t)r->share, all = share * (size_t)r->n;
    CUmemAccessDesc access[BACKEND_PARTS];
    int n = 0;
    for (int k = 0; k < d->n_members; k++)
        access[k] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, d->members[k]->handle},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    enum err_code code =
        cuda_judge(c, v->cuMemAddressReserve(&r->at, all, 0, 0, 0), "cuMemAddressReserve", e);
    if (code != ERR_OK)
        r->at = 0;
    for (; n < r->n && code == ERR_OK; n++) {
        code = cuda_judge(c, v->cuMemMap(r->at + (size_t)n * share, share, 0, r->physical[n], 0),
                          "cuMemMap", e);
        if (code != ERR_OK)
            break;
    }
    if (code == ERR_OK)
        code = cuda_judge(c, v->cuMemSetAccess(r->at, all, access, (size_t)d->n_members),
                          "cuMemSetAccess", e);
    for (int k = 0; k < n && code != ERR_OK; k++)
        (void)cuda_judge(c, v->cuMemUnmap(r->at + (size_t)k * share, share), "cuMemUnmap", NULL);
    return code;
}

/* A share of each of n members. */
static enum err_code make(struct cuda_device *d, struct cuda_device *const *on, int n,
                          int64_t share, bool shareable, struct mesh_range **ret, struct err *e)
{
    struct mesh_range *r = mem_calloc(1, sizeof *r);
    if (!r)
        return err_oom(e);
    r->share = share;
    enum err_code code = ERR_OK;
    while (r->n < n && code == ERR_OK) {
        r->on[r->n] = on[r->n];
        code = cuda_memory_charge(r->on[r->n], share, e);
        r->n += code == ERR_OK;
    }
    if (code == ERR_OK)
        code = make_physical(d, r, shareable, e);
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
    struct mesh_range *old = NULL;
    pthread_mutex_lock(&d->memory.lock);
    const uint64_t now = clock_ns();
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

/* With memory.lock: the link to the range in use that has the address; a link to NULL if none has.
 */
static struct mesh_range **find_used(struct cuda_device *d, const void *p)
{
    struct mesh_range **at = &d->used;
    while (*at && (CUdeviceptr)(uintptr_t)p - (*at)->at >= (CUdeviceptr)((*at)->share * (*at)->n))
        at = &(*at)->next;
    return at;
}

struct mesh_home mesh_home(struct cuda_device *d, const void *p)
{
    const CUdeviceptr at = (uintptr_t)p;
    struct mesh_home home = {.at = at, .n = 1};
    if (d->n_members == 1)
        return home;
    pthread_mutex_lock(&d->memory.lock);
    const struct mesh_range *r = *find_used(d, p);
    if (r && r->n > 1)
        home = (struct mesh_home){r->at, r->share, r->n, {0}};
    for (int k = 0; r && k < r->n; k++)
        while (d->members[home.on[k]] != r->on[k])
            home.on[k]++;
    for (const struct mesh_block *x = r ? NULL : d->elsewhere; x && !home.on[0]; x = x->next)
        if (at - x->at < (uint64_t)x->size)
            home.on[0] = x->member;
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

/* Zeroes these bytes, each GPU its part. *ret_unknown: it failed, and the memory may still be being
 * written. */
static enum err_code clear(struct cuda_device *d, const struct mesh_range *r, int64_t from,
                           int64_t to, bool *ret_unknown, struct err *e)
{
    enum err_code code = ERR_OK;
    struct cuda *c = d->cuda;
    int k, first = (int)(from / r->share);
    for (k = first; k < r->n && k * r->share < to && code == ERR_OK; k++) {
        const int64_t at = k == first ? from : k * r->share, end = (k + 1) * r->share;
        code = cuda_entered(r->on[k], e);
        if (code == ERR_OK)
            code = cuda_check(c,
                              c->driver->cuMemsetD8Async(r->at + (size_t)at, 0,
                                                         (size_t)((to < end ? to : end) - at),
                                                         r->on[k]->memory.stream),
                              "cuMemsetD8Async", e);
    }
    for (int i = first; i < k; i++) {
        struct cuda_device *on = r->on[i];
        const enum err_code ended = cuda_enter(on) ? cuda_memory_settle(on, e) : ERR_DEVICE_LOST;
        *ret_unknown |= ended != ERR_OK && cuda_memory_settle(on, NULL) != ERR_OK;
        code = code == ERR_OK ? ended : code;
    }
    (void)cuda_enter(d);
    return code;
}

/* Clears a new range, or unmakes it; where something may still write to it, its memory is lost. */
static enum err_code clear_new(struct cuda_device *d, struct mesh_range *r, int64_t from,
                               int64_t to, struct err *e)
{
    bool unknown = false;
    enum err_code code = clear(d, r, from, to, &unknown, e);
    if (code != ERR_OK && unknown)
        forget(r);
    else if (code != ERR_OK)
        unmake(d, r, true);
    return code;
}

/* Makes a range of n members, if need be in place of what is kept: the first, or, if it is one, the
 * next one that has room. */
static enum err_code make_room(struct cuda_device *d, int n, int64_t size, bool shareable,
                               struct mesh_range **ret, struct err *e)
{
    const int64_t share = share_of(n, size);
    enum err_code code = ERR_OUT_OF_MEMORY;
    for (int k = 0; k + n <= d->n_members && code == ERR_OUT_OF_MEMORY; k++) {
        code = make(d, d->members + k, n, share, shareable, ret, e);
        if (code == ERR_OUT_OF_MEMORY && trim(d, true))
            code = make(d, d->members + k, n, share, shareable, ret, e);
    }
    if (code == ERR_OUT_OF_MEMORY)
        mesh_lacks(d, size, e);
    return code;
}

static void begin_use(struct cuda_device *d, struct mesh_range *r)
{
    for (int k = 0; k < r->n; k++) {
        cuda_memory_count(r->on[k]);
        cuda_memory_of_mesh(r->on[k], r->share);
    }
    pthread_mutex_lock(&d->memory.lock);
    r->next = d->used;
    d->used = r;
    pthread_mutex_unlock(&d->memory.lock);
}

/* With memory.lock: the range linked there, if any, is unlinked. */
static struct mesh_range *end_use(struct mesh_range **at)
{
    struct mesh_range *r = *at;
    for (int k = 0; r && k < r->n; k++)
        cuda_memory_of_mesh(r->on[k], -r->share);
    *at = r ? r->next : NULL;
    return r;
}

enum err_code mesh_alloc(struct cuda_device *d, int64_t size, bool zero, void **ret, struct err *e)
{
    const int64_t share = share_of(d->n_members, size);
    struct mesh_range *r = take_kept(d, share);
    if (!r)
        TRY(make_room(d, d->n_members, size, false, &r, e));
    if (zero)
        TRY(clear_new(d, r, 0, size, e));
    begin_use(d, r);
    *ret = (void *)(uintptr_t)r->at;
    return ERR_OK;
}

bool mesh_free(struct cuda_device *d, void *p, int64_t size)
{
    if (d->n_members == 1 || size < GRAIN * d->n_members)
        return false;
    pthread_mutex_lock(&d->memory.lock);
    struct mesh_range *r = end_use(find_used(d, p));
    if (r) {
        r->freed = clock_ns();
        r->next = d->kept;
        d->kept = r;
    }
    pthread_mutex_unlock(&d->memory.lock);
    return r;
}

int mesh_divided(struct cuda_device *d, const void *p, int ret_on[BACKEND_PARTS],
                 int64_t ret_from[BACKEND_PARTS])
{
    const struct mesh_home home = mesh_home(d, p);
    for (int k = 0; k < home.n; k++) {
        ret_on[k] = home.on[k];
        ret_from[k] = (int64_t)(home.at - (CUdeviceptr)(uintptr_t)p) + k * home.share;
    }
    return home.n;
}

/* --- what outlives the process --- */

static struct mesh_range *range_of(const struct shared_block *share)
{
    return (struct mesh_range *)(intptr_t)share->handle;
}

static struct shared_block block_of(struct cuda_device *d, struct mesh_range *r)
{
    begin_use(d, r);
    return (struct shared_block){.data = (void *)(uintptr_t)r->at,
                                 .size = r->n * r->share,
                                 .handle = (intptr_t)r,
                                 .n_parts = r->n};
}

enum err_code mesh_share_alloc(struct cuda_device *d, int64_t size, bool zero,
                               struct shared_block *ret, struct err *e)
{
    const int n = mesh_divides(d, size) ? d->n_members : 1;
    struct mesh_range *r;
    if (size > INT64_MAX - n * GRAIN)
        return err_set(e, ERR_OUT_OF_MEMORY, "no mesh has %" PRId64 " bytes", size);
    TRY(make_room(d, n, size, true, &r, e));
    TRY(clear_new(d, r, zero ? 0 : size, n * r->share, e));
    *ret = block_of(d, r);
    return ERR_OK;
}

enum err_code mesh_share_import(struct cuda_device *d, const int *fds, int n, int64_t size,
                                struct shared_block *ret, struct err *e)
{
    if (n < 1 || n > BACKEND_PARTS || size <= 0 || size % (n * GRAIN))
        return err_set(e, ERR_STATE, "this is not memory of %" PRId64 " bytes on %d GPUs", size, n);
    struct mesh_range *r = mem_calloc(1, sizeof *r);
    if (!r)
        return err_oom(e);
    r->share = size / n;
    enum err_code code = ERR_OK;
    while (r->n < n && code == ERR_OK) {
        code = cuda_share_physical(d, fds[r->n], &r->physical[r->n], &r->on[r->n], e);
        if (code == ERR_OK) {
            cuda_memory_charge_anyway(r->on[r->n], r->share);
            r->made = ++r->n;
        }
    }
    if (code == ERR_OK)
        code = map(d, r, e);
    if (code == ERR_OK)
        *ret = block_of(d, r);
    else
        unmake(d, r, false);
    return code;
}

CUmemGenericAllocationHandle mesh_share_part(const struct shared_block *share, int part)
{
    return range_of(share)->physical[part];
}

void mesh_share_free(struct cuda_device *d, const struct shared_block *share)
{
    struct mesh_range *r = range_of(share), **at = &d->used;
    pthread_mutex_lock(&d->memory.lock);
    while (*at != r)
        at = &(*at)->next;
    (void)end_use(at);
    pthread_mutex_unlock(&d->memory.lock);
    unmake(d, r, true);
}

void mesh_close(struct cuda_device *d)
{
    (void)trim(d, true);
    pthread_mutex_destroy(&d->memory.lock);
}
