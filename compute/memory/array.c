/* Arrays and buffers: which storage an array uses, and the order of last use. Dropping an array
 * takes no lock but a list's, so completion callbacks may do it on any thread. */
#include "compute/memory/memory_int.h"

#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"

/* Every lookup restores a failed write's old storage: only here is it known which buffer has the
 * storage now. */
struct storage *buffer_storage(struct buffer *b)
{
    lock_held(&b->engine->lock);
    struct storage *st = b->storage, *before;
    while (atomic_load(&st->failed) != ERR_OK &&
           (before = atomic_exchange(&st->before, NULL)) != NULL) {
        storage_swap_charges(before, st);
        storage_replaced(before, false);
        b->storage = before;
        storage_unref(st);
        st = before;
    }
    return st;
}

struct array *array_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                         const struct view *v, int64_t nbytes)
{
    struct buffer *b = mem_calloc(1, sizeof *b);
    struct array *a = mem_calloc(1, sizeof *a);
    if (!a || !b) {
        mem_free(a);
        mem_free(b);
        return NULL;
    }
    atomic_init(&b->refs, 1);
    b->engine = g;
    b->storage = take_st;
    b->nbytes = nbytes;
    b->device = take_st->device;
    b->id = b->made = engine_next_version(g);
    atomic_init(&b->version, b->id);
    atomic_init(&a->refs, 1);
    a->buffer = b;
    a->dtype = dtype;
    a->view = *v;
    buffer_touch(b);
    return a;
}

struct array *array_ref(struct array *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

/* --- the order of use --- */

static bool is_listed(const struct engine *g, const struct buffer *b)
{
    return b->older || b->newer || g->oldest == b;
}

static void unlist(struct engine *g, struct buffer *b)
{
    lock_held(&g->buffers_lock);
    *(b->older ? &b->older->newer : &g->oldest) = b->newer;
    *(b->newer ? &b->newer->older : &g->newest) = b->older;
    b->older = b->newer = NULL;
}

void buffer_touch(struct buffer *b)
{
    struct engine *g = b->engine;
    pthread_mutex_lock(&g->buffers_lock);
    if (is_listed(g, b))
        unlist(g, b);
    b->older = g->newest;
    *(g->newest ? &g->newest->newer : &g->oldest) = b;
    g->newest = b;
    atomic_store(&b->used, atomic_fetch_add(&g->clock, 1) + 1);
    pthread_mutex_unlock(&g->buffers_lock);
}

bool buffer_hold(struct buffer *b)
{
    lock_held(&b->engine->buffers_lock);
    uint32_t refs = atomic_load(&b->refs);
    while (refs && !atomic_compare_exchange_weak(&b->refs, &refs, refs + 1))
        ;
    b->held += refs != 0;
    return refs != 0;
}

static void buffer_free(struct buffer *b)
{
    assert(b->held == 0 && atomic_load(&b->exports) == 0);
    if (atomic_load(&b->storage->pins) > 0)
        storage_replaced(b->storage, true);
    storage_unref(b->storage); /* last reference to the buffer: no other thread can see it */
    mem_free(b);
}

void buffer_release(struct buffer *b)
{
    struct engine *g = b->engine;
    pthread_mutex_lock(&g->buffers_lock);
    assert(b->held > 0 && atomic_load(&b->refs) >= b->held);
    b->held--;
    bool last = atomic_fetch_sub(&b->refs, 1) == 1;
    if (last)
        unlist(g, b);
    pthread_mutex_unlock(&g->buffers_lock);
    if (last)
        buffer_free(b);
}

static void buffer_unref(struct buffer *b)
{
    struct engine *g = b->engine;
    if (atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    pthread_mutex_lock(&g->buffers_lock);
    unlist(g, b);
    pthread_mutex_unlock(&g->buffers_lock);
    buffer_free(b);
}

void array_unref(struct array *a)
{
    if (!a || atomic_fetch_sub(&a->refs, 1) != 1)
        return;
    struct buffer *b = a->buffer;
    grid_unref(a->grid);
    mem_free(a);
    buffer_unref(b);
}

/* References held by arrays. */
static uint32_t buffer_arrays(const struct buffer *b)
{
    pthread_mutex_lock(&b->engine->buffers_lock);
    uint32_t n = atomic_load(&b->refs) - b->held;
    pthread_mutex_unlock(&b->engine->buffers_lock);
    return n;
}

uint64_t engine_clock(const struct engine *g)
{
    return atomic_load(&g->clock);
}

struct array *array_view(struct array *a, enum dtype dtype, const struct view *v)
{
    struct array *n = mem_calloc(1, sizeof *n);
    if (!n)
        return NULL;
    atomic_init(&n->refs, 1);
    n->buffer = a->buffer;
    atomic_fetch_add_explicit(&n->buffer->refs, 1, memory_order_relaxed);
    n->dtype = dtype;
    n->view = *v;
    if (dtype != a->dtype && (dtype == DT_BOOL || a->dtype == DT_BOOL))
        atomic_store(&n->buffer->loose_bool, true);
    return n;
}

struct array *array_view_grid(struct array *a, const struct view *v, struct grid *grid)
{
    struct array *n = array_view(a, a->dtype, v);
    if (n)
        n->grid = grid_ref(grid);
    return n;
}

int64_t array_nbytes(const struct array *a)
{
    return view_size(&a->view) * (int64_t)dtype_size(a->dtype);
}

int64_t array_buffer_nbytes(const struct array *a)
{
    return a->buffer->nbytes;
}

bool array_is_whole(const struct array *a)
{
    if (a->grid && a->grid->is_padded) /* no element of an array is padding */
        return true;
    return array_nbytes(a) == a->buffer->nbytes && !view_self_overlaps(&a->view);
}

enum dtype array_buffer_dtype(const struct array *a)
{
    return a->dtype == DT_BOOL && !atomic_load(&a->buffer->loose_bool) ? DT_BOOL : DT_U8;
}

bool array_same_buffer(const struct array *a, const struct array *b)
{
    return a->buffer == b->buffer;
}

bool array_same_elements(const struct array *a, const struct array *b)
{
    const struct view *v = &a->view, *w = &b->view;
    return a->buffer == b->buffer && a->dtype == b->dtype && v->offset == w->offset &&
           view_same_shape(v, w) &&
           memcmp(v->strides, w->strides, sizeof *v->strides * (size_t)v->rank) == 0;
}

uint64_t array_buffer_id(const struct array *a)
{
    return a->buffer->id;
}

uint64_t array_memory_id(const struct array *a)
{
    return a->buffer->made;
}

void array_take_place(struct array *a, const struct array *of)
{
    if (a->buffer != of->buffer) /* else the memory is already visible to others */
        a->buffer->id = of->buffer->id;
}

uint32_t array_buffer_refs(const struct array *a)
{
    return buffer_arrays(a->buffer);
}

bool array_is_held(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    bool held = atomic_load(&buffer_storage(a->buffer)->pins) > 0;
    pthread_mutex_unlock(&g->lock);
    return held;
}

bool array_buffer_shared(const struct array *a)
{
    return buffer_arrays(a->buffer) > 1;
}

bool array_in_host_memory(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    bool host = buffer_storage(a->buffer)->host;
    pthread_mutex_unlock(&g->lock);
    return host;
}

int array_device(const struct array *a)
{
    return a->buffer->device;
}

uint64_t array_version(const struct array *a)
{
    return atomic_load(&a->buffer->version);
}
