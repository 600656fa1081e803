/* A chunk's descriptor is given to the keeper before anything lies in the chunk, and closed.
 * Besides the keeper, a process that an array with a chunk of its own was exported to holds the
 * memory, and this one: on a GPU by its mapping, and a few descriptors of what was exported
 * (share_fd.h); on the CPU by one descriptor a block. Making chunks holds no lock; a chunk of which
 * nothing is left goes to reclaim.h's pool. */
#include "compute/memory/chunk.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/pieces.h"
#include "compute/memory/reclaim.h"

#define GRAIN   INT64_C(512)        /* bytes: pieces are multiples, and aligned to it */
#define PAGE    INT64_C(4096)       /* host memory comes in these */
#define CHUNK   (INT64_C(2) << 20)  /* at least; large enough for any piece */
#define LARGEST (INT64_C(64) << 20) /* chunk_own is no more */
#define ROOM    2                   /* chunks' worth must be free for another to be cut */

struct cutter {
    pthread_mutex_t lock;
    struct pieces *pieces;
};

struct chunks {
    _Atomic uint64_t last; /* number */
    _Atomic int64_t n, bytes;
    int64_t size;          /* of those that are cut */
    struct chunk *adopted; /* that nobody has taken anything of yet */
    int n_devices;
    struct cutter cutters[];
};

static bool has_keeper(const struct engine *g)
{
    return g->keep.put != NULL;
}

const char *engine_keep_problem(const struct engine *g, int device)
{
    return g->backend->ops->share_problem(g->backend, device);
}

struct chunks *chunks_new(struct engine *g)
{
    const int n = engine_device_count(g);
    struct chunks *c = mem_calloc(1, sizeof *c + (size_t)n * sizeof *c->cutters);
    if (!c)
        return NULL;
    c->size = CHUNK;
    while (c->size < g->chunk_own && c->size < LARGEST)
        c->size *= 2;
    for (; c->n_devices < n; c->n_devices++) {
        struct cutter *k = &c->cutters[c->n_devices];
        k->pieces = pieces_new((uint32_t)(c->size / GRAIN));
        if (!k->pieces) {
            chunks_free(c);
            return NULL;
        }
        pthread_mutex_init(&k->lock, NULL); /* cannot fail here */
    }
    return c;
}

void chunks_free(struct chunks *c)
{
    if (!c)
        return;
    assert(!c->adopted && atomic_load(&c->n) == 0 && atomic_load(&c->bytes) == 0);
    for (int i = 0; i < c->n_devices; i++) {
        pieces_free(c->cutters[i].pieces);
        pthread_mutex_destroy(&c->cutters[i].lock);
    }
    mem_free(c);
}

/* --- whole chunks --- */

/* One with so many parts: the keeper has a descriptor of each. */
static bool count(struct engine *g, int parts)
{
    int64_t n = atomic_load(&g->chunks->n);
    do {
        if (n > g->max_chunks - parts) {
            keep_limit_reached(g, KEEP_CHUNKS);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&g->chunks->n, &n, n + parts));
    return true;
}

/* Gives it to the keeper; count() has counted it. If the keeper refuses, it has no number. */
static enum err_code give(struct engine *g, struct chunk *c, const int *fds, struct err *e)
{
    const struct engine_keep *k = &g->keep;
    const uint64_t number = atomic_fetch_add(&g->chunks->last, 1) + 1;
    TRY(k->put(k->user, number, c->host ? ENGINE_ON_HOST : c->device, c->share.size, fds,
               c->share.n_parts, e));
    c->number = number;
    atomic_fetch_add(&g->chunks->bytes, c->share.size);
    return ERR_OK;
}

static enum err_code put(struct engine *g, struct chunk *c, struct err *e)
{
    struct backend *b = g->backend;
    const int parts = c->share.n_parts;
    int fds[BACKEND_PARTS], n = 0;
    enum err_code code = ERR_OK;
    if (!count(g, parts))
        return err_set(e, ERR_OVERLOADED, "arrays lie in as many chunks of memory as they may");
    while (code == ERR_OK && n < parts) {
        code = b->ops->share_export(b, c->device, &c->share, n, SHARE_WRITE, false, &fds[n], e);
        n += code == ERR_OK;
    }
    if (code == ERR_OK)
        code = give(g, c, fds, e);
    while (n > 0)
        close(fds[--n]);
    if (code != ERR_OK)
        atomic_fetch_sub(&g->chunks->n, parts);
    return code;
}

static void drop(struct engine *g, struct chunk *c)
{
    const struct engine_keep *k = &g->keep;
    const int parts = c->share.n_parts;
    if (!c->number)
        return;
    k->drop(k->user, c->number);
    keep_limit_left(g, KEEP_CHUNKS, atomic_fetch_sub(&g->chunks->n, parts) - parts, g->max_chunks);
    atomic_fetch_sub(&g->chunks->bytes, c->share.size);
}

enum err_code chunk_new(struct engine *g, int device, int64_t size, bool zero, bool must,
                        struct chunk **ret, struct err *e)
{
    struct backend *b = g->backend;
    struct chunk *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->device = device;
    c->used = size;
    enum err_code code = b->ops->share_alloc(b, device, size, zero, must, &c->share, e);
    if (code != ERR_OK) {
        mem_free(c);
        return code;
    }
    code = has_keeper(g) ? put(g, c, e) : ERR_OK;
    if (code != ERR_OK && !(must && code == ERR_OVERLOADED)) {
        chunk_free(g, c);
        return code;
    }
    *ret = c;
    return ERR_OK;
}

/* In a file's memory, of which the keeper has the only descriptor. */
static bool host_kept(struct engine *g, struct chunk *c)
{
    struct backend *b = g->backend;
    const int64_t whole = (c->used + PAGE - 1) / PAGE * PAGE;
    int fd;
    if (!has_keeper(g) || !count(g, 1))
        return false;
    if (b->ops->host_alloc(b, whole, &fd, &c->share.data, NULL) != ERR_OK) {
        atomic_fetch_sub(&g->chunks->n, 1);
        return false;
    }
    c->share.size = whole;
    const bool given = give(g, c, &fd, NULL) == ERR_OK;
    close(fd);
    if (given)
        return true;
    atomic_fetch_sub(&g->chunks->n, 1);
    b->ops->host_free(b, c->share.data, whole, true);
    c->share.size = c->used;
    return false;
}

enum err_code chunk_new_host(struct engine *g, int device, int64_t size, struct chunk **ret,
                             struct err *e)
{
    struct backend *b = g->backend;
    struct chunk *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    c->host = true;
    c->device = device;
    c->used = c->share.size = size;
    c->share.n_parts = 1;
    enum err_code code =
        host_kept(g, c) ? ERR_OK : b->ops->host_alloc(b, size, NULL, &c->share.data, e);
    if (code == ERR_OK)
        *ret = c;
    else
        mem_free(c);
    return code;
}

void chunk_free(struct engine *g, struct chunk *c)
{
    struct backend *b = g->backend;
    drop(g, c);
    if (c->host)
        b->ops->host_free(b, c->share.data, c->share.size, c->number);
    else
        b->ops->share_free(b, c->device, &c->share);
    mem_free(c);
}

void chunk_figures(const struct engine *g, struct chunk_figures *ret)
{
    *ret = (struct chunk_figures){atomic_load(&g->chunks->n), atomic_load(&g->chunks->bytes)};
}

/* --- pieces --- */

static uint32_t grains(int64_t bytes)
{
    return (uint32_t)((bytes + GRAIN - 1) / GRAIN);
}

static bool cut_from(struct cutter *k, int64_t size, struct chunk **ret, uint32_t *ret_first)
{
    pthread_mutex_lock(&k->lock);
    *ret = pieces_take(k->pieces, grains(size), ret_first);
    pthread_mutex_unlock(&k->lock);
    return *ret;
}

/* Close to a device's limit a chunk would take the room of scratch memory, and hold it for as long
 * as one piece of it is in use: whatever else is moved away. */
static enum err_code check_space(struct engine *g, int device, struct err *e)
{
    return engine_has(g, device, ROOM * g->chunks->size)
               ? ERR_OK
               : err_set(e, ERR_OUT_OF_MEMORY, "no room for more small arrays");
}

/* The first piece of another chunk. None stays whole: it would never be given back. */
static enum err_code cut_another(struct engine *g, struct cutter *k, int device, int64_t size,
                                 struct chunk **ret, struct err *e)
{
    struct chunk *c = reclaim_reuse(g->reclaim, device, g->chunks->size);
    if (!c) {
        TRY(check_space(g, device, e));
        TRY(chunk_new(g, device, g->chunks->size, false, false, &c, e));
    }
    c->cut = true;
    pthread_mutex_lock(&k->lock);
    const bool added =
        pieces_add(k->pieces, c, &c->slot) && pieces_take_at(k->pieces, c->slot, 0, grains(size));
    pthread_mutex_unlock(&k->lock);
    if (added) {
        *ret = c;
        return ERR_OK;
    }
    c->cut = false;
    reclaim_retire(g->reclaim, c, true);
    return err_oom(e);
}

enum err_code chunk_cut(struct engine *g, int device, int64_t size, bool zero, bool another,
                        struct chunk **ret, void **ret_data, struct err *e)
{
    struct backend *b = g->backend;
    struct cutter *k = &g->chunks->cutters[device];
    struct chunk *c;
    uint32_t first = 0;
    assert(size > 0 && size <= g->chunks->size);
    if (!cut_from(k, size, &c, &first))
        TRY(another ? cut_another(g, k, device, size, &c, e)
                    : err_set(e, ERR_OUT_OF_MEMORY, "no hole for %lld bytes", (long long)size));
    void *data = (char *)c->share.data + first * GRAIN;
    if (zero) {
        enum err_code code = b->ops->zero(b, device, data, size, e);
        if (code != ERR_OK) {
            chunk_paste(g, c, data, size);
            return code;
        }
    }
    *ret = c;
    *ret_data = data;
    return ERR_OK;
}

void chunk_paste(struct engine *g, struct chunk *c, void *data, int64_t size)
{
    struct cutter *k = &g->chunks->cutters[c->device];
    const int64_t offset = (char *)data - (char *)c->share.data;
    pthread_mutex_lock(&k->lock);
    const bool empty = pieces_give(k->pieces, c->slot, (uint32_t)(offset / GRAIN), grains(size));
    pthread_mutex_unlock(&k->lock);
    if (!empty)
        return;
    c->cut = false;
    reclaim_retire(g->reclaim, c, true);
}

/* --- moving pieces together --- */

bool chunks_gather(struct engine *g, int device)
{
    struct cutter *k = &g->chunks->cutters[device];
    uint32_t at = 0;
    pthread_mutex_lock(&k->lock);
    for (struct chunk *c = pieces_next(k->pieces, &at); c; c = pieces_next(k->pieces, &at)) {
        c->movable = 0;
        c->movable_bytes = 0;
    }
    const bool holes = pieces_left_open(k->pieces) >= (uint64_t)(g->chunks->size / GRAIN);
    pthread_mutex_unlock(&k->lock);
    return holes;
}

void chunk_count(struct chunk *c, int64_t size)
{
    c->movable++;
    c->movable_bytes += grains(size) * GRAIN;
}

uint32_t chunk_close(struct engine *g, int device, const struct chunk **ret)
{
    struct cutter *k = &g->chunks->cutters[device];
    const int64_t all = g->chunks->size;
    const struct chunk *found = NULL;
    int64_t least = all;
    uint32_t at = 0, n = 0;
    pthread_mutex_lock(&k->lock);
    for (struct chunk *c = pieces_next(k->pieces, &at); c; c = pieces_next(k->pieces, &at)) {
        const int64_t used = all - pieces_left(k->pieces, c->slot) * GRAIN;
        if (used < least && used == c->movable_bytes && !pieces_is_closed(k->pieces, c->slot)) {
            found = c;
            least = used;
        }
    }
    if ((int64_t)pieces_left_open(k->pieces) * GRAIN < all)
        found = NULL; /* what is in it needs as much as it has, and the others have less */
    if (found) {
        pieces_close(k->pieces, found->slot, true);
        n = found->movable;
    }
    pthread_mutex_unlock(&k->lock);
    *ret = found;
    return n;
}

int64_t chunk_size(const struct engine *g)
{
    return g->chunks->size;
}

void chunks_open(struct engine *g, int device)
{
    struct cutter *k = &g->chunks->cutters[device];
    uint32_t at = 0;
    pthread_mutex_lock(&k->lock);
    for (struct chunk *c = pieces_next(k->pieces, &at); c; c = pieces_next(k->pieces, &at))
        pieces_close(k->pieces, c->slot, false);
    pthread_mutex_unlock(&k->lock);
}

/* --- of a previous process --- */

enum err_code chunk_adopt(struct engine *g, uint64_t number, int device, const int *fds, int n,
                          int64_t size, struct err *e)
{
    struct backend *b = g->backend;
    const bool host = device == ENGINE_ON_HOST;
    if (!host && (device < 0 || device >= g->chunks->n_devices))
        return err_set(e, ERR_OVERLOADED, "there is no device %d now", device);
    if (atomic_load(&g->chunks->last) < number) /* whatever becomes of it */
        atomic_store(&g->chunks->last, number);
    struct chunk *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_oom(e);
    enum err_code code = reclaim_start(g->reclaim) ? ERR_OK : err_oom(e);
    if (code == ERR_OK && host)
        code = b->ops->host_import(b, fds[0], size, &c->share.data, e);
    else if (code == ERR_OK)
        code = b->ops->share_import(b, device, fds, n, size, &c->share, &c->sealed, e);
    if (code != ERR_OK) {
        mem_free(c);
        return code;
    }
    if (host) {
        c->share.size = size;
        c->share.n_parts = 1;
    }
    c->host = host;
    c->device = host ? 0 : device;
    c->number = number;
    c->used = c->share.size;
    atomic_fetch_add(&g->chunks->n, c->share.n_parts);
    atomic_fetch_add(&g->chunks->bytes, c->share.size);
    c->next = g->chunks->adopted;
    g->chunks->adopted = c;
    return ERR_OK;
}

static bool is_within(const struct engine *g, const struct chunk *c, const struct engine_place *p)
{
    if (p->host != c->host || (!c->host && p->device != c->device) || p->offset < 0 ||
        p->bytes <= 0 || p->offset % GRAIN || p->bytes > c->share.size ||
        p->offset > c->share.size - p->bytes)
        return false;
    return p->own ? p->offset == 0 : !c->host && !c->sealed && c->share.size == g->chunks->size;
}

/* Of the chunks that are cut already. */
static struct chunk *find_cut(struct pieces *pieces, uint64_t number)
{
    uint32_t at = 0;
    struct chunk *c = pieces_next(pieces, &at);
    while (c && c->number != number)
        c = pieces_next(pieces, &at);
    return c;
}

struct chunk *chunk_adopted(struct engine *g, const struct engine_place *p)
{
    if (p->device < 0 || p->device >= g->chunks->n_devices)
        return NULL;
    struct pieces *pieces = g->chunks->cutters[p->device].pieces;
    struct chunk **at = &g->chunks->adopted;
    while (*at && (*at)->number != p->chunk)
        at = &(*at)->next;
    struct chunk *whole = *at, *c = whole ? whole : p->own ? NULL : find_cut(pieces, p->chunk);
    if (!c || !is_within(g, c, p) || (whole && !p->own && !pieces_add(pieces, c, &c->slot)))
        return NULL;
    if (whole) {
        *at = c->next;
        c->cut = !p->own;
        c->device = p->device;
    }
    if (p->own)
        c->used = p->bytes;
    else if (!pieces_take_at(pieces, c->slot, (uint32_t)(p->offset / GRAIN), grains(p->bytes)))
        return NULL; /* somebody has it; so the chunk is not whole */
    return c;
}

void chunks_adopted(struct engine *g)
{
    while (g->chunks->adopted) {
        struct chunk *c = g->chunks->adopted;
        g->chunks->adopted = c->next;
        chunk_free(g, c);
    }
}
