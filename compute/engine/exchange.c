/* Exchanging the memory of arrays. */
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/export.h"
#include "compute/memory/memory_int.h"

static int64_t ghost_width(const struct array *a, int axis)
{
    return a->grid ? a->grid->ghost[axis] : 0;
}

static bool same_layout(const struct array *a, const struct array *b)
{
    bool same = a->dtype == b->dtype && view_same_shape(&a->view, &b->view) &&
                a->view.offset == b->view.offset && a->buffer->nbytes == b->buffer->nbytes &&
                a->buffer->device == b->buffer->device;
    for (int i = 0; same && i < a->view.rank; i++)
        same = a->view.strides[i] == b->view.strides[i] && ghost_width(a, i) == ghost_width(b, i);
    return same;
}

/* With the lock held: whether another process may have the array's memory mapped. If so, another
 * array must not get it. */
static bool was_exported(const struct array *a)
{
    lock_held(&a->buffer->engine->lock);
    return atomic_load(&buffer_storage(a->buffer)->exported);
}

bool array_exchanges(const struct array *a, const struct array *b)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    const bool stays = was_exported(a) || was_exported(b) ||
                       !storage_may_replace(buffer_storage(b->buffer), buffer_storage(a->buffer));
    pthread_mutex_unlock(&g->lock);
    return !stays && same_layout(a, b);
}

/* With the lock held. A caller that gives a version has checked this before, and is told to check
 * again. */
static enum err_code require_unexported(const struct exchange *x, struct err *e)
{
    lock_held(&x->a->buffer->engine->lock);
    if (!was_exported(x->a) && !was_exported(x->b))
        return ERR_OK;
    if (x->version)
        return err_set(e, ERR_PRECONDITION_FAILED, "the array was exported in the meantime");
    return err_set(e, ERR_CONFLICT,
                   "an exported array cannot be swapped, because another process has its memory "
                   "mapped; swap a copy instead");
}

static enum err_code may_exchange(const struct exchange *x, struct err *e)
{
    TRY(require_version(x->a->buffer, x->version, e));
    return require_unexported(x, e);
}

/* The storage of a buffer after so many placings. */
static struct storage *placed(const struct placing *all, uint32_t n, struct buffer *b)
{
    while (n--)
        if (all[n].buffer == b)
            return all[n].storage;
    return buffer_storage(b);
}

/* What belongs to the exchange of two arrays besides their memory. Returns the new version of `a`.
 */
static uint64_t exchanged(struct engine *g, struct array *a, struct array *b)
{
    lock_held(&g->lock);
    if (atomic_load(&a->buffer->loose_bool) || atomic_load(&b->buffer->loose_bool)) {
        atomic_store(&a->buffer->loose_bool, true);
        atomic_store(&b->buffer->loose_bool, true);
    }
    const int place = atomic_load(&a->buffer->place);
    atomic_store(&a->buffer->place, atomic_load(&b->buffer->place));
    atomic_store(&b->buffer->place, place);
    uint64_t version = engine_next_version(g);
    atomic_store(&a->buffer->version, version);
    atomic_store(&b->buffer->version, engine_next_version(g));
    return version;
}

/* Work already queued holds the storage it was bound to; only later work sees the exchange. */
static enum err_code exchange(struct engine *g, struct exchange *x, uint32_t n, struct placing *all,
                              struct engine_placed *room, const void *with, struct err *e)
{
    lock_held(&g->lock);
    for (uint32_t i = 0; i < n; i++)
        TRY(may_exchange(&x[i], e));
    for (uint32_t i = 0; i < n; i++) {
        struct buffer *a = x[i].a->buffer, *b = x[i].b->buffer;
        struct storage *st = placed(all, 2 * i, a), *other = placed(all, 2 * i, b);
        all[2 * i] = (struct placing){a, other};
        all[2 * i + 1] = (struct placing){b, st};
        /* of one size: each session keeps paying for its own array's contents */
        storage_swap_charges(st, other);
    }
    buffers_place(all, 2 * n, room, with);
    for (uint32_t i = 0; i < n; i++)
        x[i].version = exchanged(g, x[i].a, x[i].b);
    return ERR_OK;
}

enum err_code engine_exchange(struct engine_stream *s, struct exchange *x, uint32_t n,
                              const void *with, struct err *e)
{
    struct engine *g = s->engine;
    for (uint32_t i = 0; i < n; i++) {
        const int device = x[i].a->buffer->device, other = x[i].b->buffer->device;
        if (device != other)
            return err_set(e, ERR_CONFLICT,
                           "arrays on device %d and on device %d cannot exchange their memory",
                           device, other);
        if (!same_layout(x[i].a, x[i].b))
            return err_set(e, ERR_CONFLICT,
                           "only arrays of one dtype, shape, strides, ghosts, offset and buffer "
                           "size can exchange their memory");
    }
    if (n == 0) {
        if (with && g->keep.placed)
            g->keep.placed(g->keep.user, NULL, 0, with);
        return ERR_OK;
    }
    struct placing *all = mem_calloc(2 * n, sizeof *all);
    struct engine_placed *room = mem_calloc(2 * n, sizeof *room);
    enum err_code code = ERR_OUT_OF_MEMORY;
    if (all && room) {
        pthread_mutex_lock(&g->lock);
        code = exchange(g, x, n, all, room, with, e);
        pthread_mutex_unlock(&g->lock);
    } else {
        (void)err_oom(e);
    }
    mem_free(all);
    mem_free(room);
    return code;
}

enum err_code engine_swap(struct engine_stream *s, struct array *a, struct array *b, struct err *e)
{
    if (same_layout(a, b)) {
        TRY(engine_export_forget(s, a, e));
        TRY(engine_export_forget(s, b, e));
    }
    return engine_exchange(s, &(struct exchange){a, b, 0}, 1, NULL, e);
}
