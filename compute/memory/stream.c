/* Devices, and streams, which order work.
 *
 * A stream is freed with its last reference, which may be dropped in a callback of the stream
 * itself: it is put on a list then, and freed by the next thread that submits. */
#include "compute/memory/memory_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/memory/export.h"
#include "compute/memory/reclaim.h"

int engine_device_count(const struct engine *g)
{
    return g->backend->ops->device_count(g->backend);
}

bool engine_in_host_memory(const struct engine *g)
{
    return g->backend->ops->upload_new == NULL;
}

void engine_poll(struct engine *g)
{
    if (g->backend->ops->poll)
        g->backend->ops->poll(g->backend);
}

/* Of the mesh, on this device, one of its parts. */
static int64_t kept_for_mesh(const struct engine *g, int device)
{
    struct backend_device mesh = {0};
    int64_t bytes = 0;
    if (g->mesh >= 0)
        g->backend->ops->device_info(g->backend, g->mesh, &mesh);
    for (int i = 0; i < mesh.n_parts; i++)
        bytes += mesh.parts[i] == device ? reclaim_kept_part(g->reclaim, g->mesh, i) : 0;
    return bytes;
}

int64_t engine_kept_bytes(const struct engine *g, int device)
{
    return reclaim_kept(g->reclaim, device) + kept_for_mesh(g, device);
}

void engine_device_info(const struct engine *g, int device, struct backend_device *ret)
{
    g->backend->ops->device_info(g->backend, device, ret);
    if (g->reclaim) { /* else it is being opened */
        const int64_t kept = engine_kept_bytes(g, device);
        ret->memory_free += kept;
        ret->memory_kept += kept;
        if (ret->n_parts) /* the rest of what is used is its GPUs' own */
            ret->memory_used = atomic_load(&g->bytes[device]);
        else
            ret->memory_used -= kept;
        ret->memory_of_mesh -= kept_for_mesh(g, device); /* which no array has */
    }
    int64_t alone = 0;
    for (int i = 0; i < ret->n_parts; i++) { /* a large array takes as much of each */
        struct backend_device part;
        engine_device_info(g, ret->parts[i], &part);
        const int64_t all = part.memory_free * ret->n_parts, most = part.memory_most * ret->n_parts;
        ret->memory_free = i == 0 || all < ret->memory_free ? all : ret->memory_free;
        ret->memory_most = i == 0 || most < ret->memory_most ? most : ret->memory_most;
        alone = part.memory_most > alone ? part.memory_most : alone;
    }
    ret->memory_most = ret->memory_most > alone ? ret->memory_most : alone;
    if (ret->memory_kept > ret->memory_free)
        ret->memory_kept = ret->memory_free > 0 ? ret->memory_free : 0;
}

int64_t engine_share_bytes(const struct backend_device *d, int n, int64_t size)
{
    return ((size + n - 1) / n + d->part_grain - 1) / d->part_grain * d->part_grain;
}

int64_t engine_part_bytes(const struct backend_device *d, int part, int64_t size)
{
    if (d->n_parts == 0 || size / d->n_parts < d->part_least)
        return part == 0 ? size : 0;
    return engine_share_bytes(d, d->n_parts, size);
}

int engine_roomiest_device(const struct engine *g)
{
    int n = engine_single_count(g), best = 0;
    int64_t most = -1;
    for (int i = 0; i < n && n > 1; i++) {
        struct backend_device d;
        engine_device_info(g, i, &d);
        if (d.memory_free > most) {
            most = d.memory_free;
            best = i;
        }
    }
    return best;
}

int engine_mesh(const struct engine *g)
{
    return g->mesh;
}

int engine_single_count(const struct engine *g)
{
    return engine_device_count(g) - (g->mesh >= 0);
}

/* What is kept as the device of what was on the mesh, whatever its number is then. */
#define KEPT_MESH INT_MAX
/* Less k: what was on device k of a process without a mesh, in its place. */
#define KEPT_INSTEAD (KEPT_MESH - 1)
#define INSTEAD_MOST 4096

bool engine_kept_is_mesh(int64_t kept)
{
    return kept > KEPT_INSTEAD - INSTEAD_MOST;
}

int engine_kept_device(const struct engine *g, int device)
{
    return device == g->mesh ? KEPT_MESH : device;
}

int engine_device_kept(const struct engine *g, int64_t kept)
{
    if (engine_kept_is_mesh(kept) && g->mesh >= 0)
        return g->mesh;
    if (kept == KEPT_MESH)
        return engine_roomiest_device(g);
    return (int)((engine_kept_is_mesh(kept) ? KEPT_INSTEAD - kept : kept) % engine_single_count(g));
}

int engine_kept_again(const struct engine *g, int64_t kept, int device)
{
    return engine_kept_is_mesh(kept) && g->mesh < 0 ? KEPT_INSTEAD - device
                                                    : engine_kept_device(g, device);
}

bool engine_has(const struct engine *g, int device, int64_t size)
{
    struct backend_device d, part;
    engine_device_info(g, device, &d);
    const bool whole = engine_part_bytes(&d, 1, size) == 0; /* on any part, then */
    bool has = !whole || (d.n_parts == 0 && size <= d.memory_free);
    for (int k = 0; k < d.n_parts && has != whole; k++) {
        engine_device_info(g, d.parts[k], &part);
        has = engine_part_bytes(&d, whole ? 0 : k, size) <= part.memory_free;
    }
    return has;
}

void engine_lacks(const struct engine *g, int device, int64_t size, struct err *e)
{
    if (!e)
        return;
    e->wanted = size;
    e->device = device;
    e->until = atomic_load(&g->clock);
    const size_t n = strlen(e->message);
    if (g->mesh >= 0 && device != g->mesh && engine_has(g, g->mesh, size))
        snprintf(e->message + n, sizeof e->message - n,
                 "; the mesh has room: create a session with \"device\": \"mesh\"");
}

enum err_code storage_none_is_kept(const struct storage *like, struct err *e)
{
    err_set(e, ERR_OUT_OF_MEMORY,
            "an array of %lld bytes needs other memory that outlives the daemon, and none is left",
            (long long)like->size);
    engine_lacks(like->engine, like->device, like->size, e);
    return ERR_OUT_OF_MEMORY;
}

const char *engine_export_problem(const struct engine *g, int device)
{
    if (!g->device.shareable)
        return "exports are disabled";
    if (device == g->mesh)
        return "an array of the mesh may lie on several GPUs, and has no one descriptor";
    const struct backend_ops *ops = g->backend->ops;
    return ops->share_alloc ? ops->share_problem(g->backend, device)
                            : "this backend has no memory that other processes could map";
}

/* Streams whose last reference was dropped, possibly inside one of their own callbacks. */
void engine_stream_reap(struct engine *g)
{
    struct engine_stream *s = atomic_exchange(&g->dead, NULL);
    while (s) {
        struct engine_stream *next = s->next_dead;
        g->backend->ops->stream_free(s->stream);
        if (s->watch)
            s->watch->release(s->watcher);
        account_unref(s->account);
        mem_free(s);
        s = next;
    }
}

static enum err_code stream_new(struct engine *g, int device, bool background,
                                struct engine_stream **ret, struct err *e)
{
    engine_stream_reap(g);
    if (device < 0 || device >= engine_device_count(g))
        return err_set(e, ERR_BAD_FIELD, "there is no device %d: the number of devices is %d",
                       device, engine_device_count(g));
    struct engine_stream *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_oom(e);
    enum err_code code = g->backend->ops->stream_new(g->backend, device, background, &s->stream, e);
    if (code != ERR_OK) {
        mem_free(s);
        return code;
    }
    atomic_init(&s->refs, 1);
    s->engine = g;
    s->device = device;
    *ret = s;
    return ERR_OK;
}

enum err_code engine_stream_new(struct engine *g, int device, struct engine_stream **ret,
                                struct err *e)
{
    return stream_new(g, device, false, ret, e);
}

enum err_code engine_stream_background(struct engine_stream *of, struct engine_stream **ret,
                                       struct err *e)
{
    enum err_code code = stream_new(of->engine, of->device, true, ret, e);
    if (code == ERR_OK && of->account)
        engine_stream_account(*ret, of->account);
    return code;
}

void engine_stream_account(struct engine_stream *s, struct account *a)
{
    account_ref(a);
    s->account = a;
}

void engine_stream_watch(struct engine_stream *s, const struct work_watch *watch, void *user)
{
    s->watch = watch;
    s->watcher = user;
}

void engine_stream_ref(struct engine_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void engine_stream_unref(struct engine_stream *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    struct engine *g = s->engine;
    s->next_dead = atomic_load(&g->dead);
    while (!atomic_compare_exchange_weak(&g->dead, &s->next_dead, s))
        ;
}

enum err_code engine_visitor(struct engine *g, int device, struct engine_stream **ret,
                             struct err *e)
{
    struct engine_stream *visitor = atomic_load(&g->visitors[device]);
    if (!visitor) {
        enum err_code code = engine_stream_new(g, device, &visitor, e);
        if (code != ERR_OK)
            return code;
        struct engine_stream *none = NULL;
        if (!atomic_compare_exchange_strong(&g->visitors[device], &none, visitor)) {
            engine_stream_unref(visitor);
            visitor = none;
        }
    }
    *ret = visitor;
    return ERR_OK;
}

/* A session may read another session's array on another device; a stream there does the waiting. */
enum err_code engine_visit(struct engine_stream **s, int device, struct err *e)
{
    return (*s)->device == device ? ERR_OK : engine_visitor((*s)->engine, device, s, e);
}
