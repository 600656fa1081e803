/* Arrays and buffers: which storage an array uses, and the order of last use. Dropping an array
 * takes no lock but a list's, so completion callbacks may do it on any thread. */
#include "compute/memory/memory_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"

static struct cell *cell_of(const struct storage *st)
{
    return st && st->cell ? cells_at(st->engine->cells, st->cell) : NULL;
}

/* Whether the buffer may have back what it had before. A process that follows a lost device must
 * not take that for what a client was told is written; a move alone changed nothing. */
static bool may_return(const struct storage *st)
{
    if (atomic_load(&st->failed) != ERR_DEVICE_LOST || !st->engine->cells)
        return true;
    return st->cell && st->copied_for && cell_merely_comes(cell_of(st));
}

/* Every lookup restores a failed write's old storage: only here is it known which buffer has the
 * storage now. */
struct storage *buffer_storage(struct buffer *b)
{
    lock_held(&b->engine->lock);
    for (;;) {
        struct storage *st = b->storage;
        if (atomic_load(&st->failed) == ERR_OK || !may_return(st))
            return st;
        struct storage *before = atomic_exchange(&st->before, NULL);
        if (!before)
            return st;
        storage_swap_charges(before, st);
        storage_replaced(before, false);
        buffer_place(b, before);
        storage_unref(st);
    }
}

static struct engine_place place_of(const struct storage *st)
{
    if (!st->cell)
        return (struct engine_place){.bytes = st->size, .device = st->device};
    return (struct engine_place){.chunk = st->chunk->number,
                                 .offset = (char *)st->data - (char *)st->chunk->share.data,
                                 .bytes = st->size,
                                 .cell = st->cell,
                                 .device = st->device,
                                 .own = !st->chunk->cut,
                                 .host = st->host,
                                 .exported = atomic_load(&st->exported),
                                 .outstayed = st->outstayed};
}

/* Before the keeper is told, both what a buffer had and what it gets are its own; afterwards only
 * the latter is. So a process that comes after this one believes what it was told last. What is
 * being copied stays the buffer's own until the copy is there. */
void buffers_place(const struct placing *all, uint32_t n, struct engine_placed *room,
                   const void *with)
{
    const struct engine_keep *keep = &all->buffer->engine->keep;
    const bool tells = keep->placed && !all->buffer->is_internal;
    bool moved = false;
    for (uint32_t i = 0; i < n && tells; i++) {
        struct cell *cell = cell_of(all[i].storage);
        if (cell) {
            atomic_store(&cell->coming, all[i].buffer->made);
            atomic_store(&cell->sum, CELL_SUM_NONE); /* one that is being made is another's */
        }
        room[i] = (struct engine_placed){.buffer = all[i].buffer->made,
                                         .place = place_of(all[i].storage)};
        if (all[i].copied)
            room[i].was = place_of(all[i].buffer->storage);
    }
    if (tells)
        keep->placed(keep->user, room, n, with);
    for (uint32_t i = 0; i < n; i++) {
        struct cell *was = cell_of(all[i].buffer->storage);
        uint64_t made = all[i].buffer->made;
        moved |= all[i].buffer->storage != NULL;
        if (was && !all[i].copied)
            atomic_compare_exchange_strong(&was->owner, &made, 0);
        all[i].buffer->storage = all[i].storage;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct cell *cell = cell_of(all[i].storage);
        if (!cell)
            continue;
        atomic_store(&cell->owner, all[i].buffer->made);
        atomic_store(&cell->coming, 0);
    }
    if (moved)
        atomic_fetch_add(&all->buffer->engine->placings, 1);
}

void buffer_place(struct buffer *b, struct storage *take_st)
{
    struct engine_placed room;
    buffers_place(&(struct placing){.buffer = b, .storage = take_st}, 1, &room, NULL);
}

void buffer_place_copy(struct buffer *b, struct storage *take_st)
{
    struct engine_placed room;
    take_st->copied_from = take_st->cell ? b->storage->cell : 0;
    take_st->copied_for = b->made;
    buffers_place(&(struct placing){b, take_st, true}, 1, &room, NULL);
}

void buffer_placed(struct buffer *b)
{
    lock_held(&b->engine->lock);
    const struct engine_keep *keep = &b->engine->keep;
    const struct engine_placed x = {.buffer = b->made, .place = place_of(b->storage)};
    if (keep->placed && x.place.chunk)
        keep->placed(keep->user, &x, 1, NULL);
}

static struct array *new_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                              const struct view *v, int64_t nbytes, uint64_t id, bool internal)
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
    b->nbytes = nbytes;
    b->device = take_st->device;
    b->id = b->made = id;
    b->is_internal = internal;
    atomic_init(&b->version, id);
    buffer_place(b, take_st);
    atomic_init(&a->refs, 1);
    a->buffer = b;
    a->dtype = dtype;
    a->view = *v;
    buffer_touch(b);
    return a;
}

struct array *array_over_as(struct engine *g, struct storage *take_st, enum dtype dtype,
                            const struct view *v, int64_t nbytes, uint64_t id)
{
    return new_over(g, take_st, dtype, v, nbytes, id, false);
}

struct array *array_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                         const struct view *v, int64_t nbytes)
{
    return new_over(g, take_st, dtype, v, nbytes, engine_next_version(g), false);
}

enum err_code array_internal(struct engine *g, struct account *account, int device,
                             enum dtype dtype, int64_t n, struct array **ret, struct err *e)
{
    struct storage *st;
    struct view v;
    TRY(view_contiguous(1, &n, dtype_size(dtype), &v, e));
    const int64_t nbytes = n * (int64_t)dtype_size(dtype);
    TRY(storage_new(g, account, device, nbytes, STORAGE_SCRATCH | STORAGE_ZERO, &st, e));
    st->scratch = false; /* what is written to it is wanted */
    *ret = new_over(g, st, dtype, &v, nbytes, engine_next_version(g), true);
    if (*ret)
        return ERR_OK;
    storage_unref(st);
    return err_oom(e);
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
    if (g->next_summed == b)
        g->next_summed = b->older;
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
    atomic_store(&b->used_us, clock_date_us());
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
    const struct engine_keep *keep = &b->engine->keep;
    if (keep->gone && !b->is_internal)
        keep->gone(keep->user, b->made);
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

struct array *buffer_words(struct buffer *b)
{
    const bool words = b->nbytes % (int64_t)sizeof(uint32_t) == 0;
    const int64_t n = words ? b->nbytes / (int64_t)sizeof(uint32_t) : b->nbytes;
    struct array *a = mem_calloc(1, sizeof *a);
    if (!a || !buffer_hold(b)) {
        mem_free(a);
        return NULL;
    }
    atomic_init(&a->refs, 1);
    a->buffer = b;
    a->dtype = words ? DT_U32 : DT_U8;
    a->view = (struct view){.rank = 1, .shape = {n}, .strides = {1}};
    return a;
}

void buffer_words_release(struct array *a)
{
    buffer_release(a->buffer);
    mem_free(a);
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

int64_t array_used_us(const struct array *a)
{
    return atomic_load(&a->buffer->used_us);
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

/* backend.h's divided; 0: it is whole. */
static int storage_divided(const struct storage *st, int ret_on[BACKEND_PARTS],
                           int64_t ret_from[BACKEND_PARTS])
{
    struct engine *g = st->engine;
    lock_held(&g->lock);
    if (__builtin_popcount(st->parts) < 2)
        return 0;
    return g->backend->ops->divided(g->backend, st->device, st->data, ret_on, ret_from);
}

int array_divided(const struct array *a, int *ret_axis, int64_t ret_rows[BACKEND_PARTS + 1],
                  int64_t ret_devices[BACKEND_PARTS])
{
    struct engine *g = a->buffer->engine;
    const struct view *v = &a->view;
    const int64_t itemsize = (int64_t)dtype_size(a->dtype);
    struct backend_device mesh;
    int64_t from[BACKEND_PARTS];
    int on[BACKEND_PARTS], axis = 0;
    if (a->buffer->device != g->mesh || view_size(v) < 2)
        return 0;
    while (v->shape[axis] == 1)
        axis++;
    for (int i = axis + 1; i < v->rank; i++)
        if (v->shape[i] > 1 && llabs(v->strides[i]) > llabs(v->strides[axis]))
            axis = i;
    if (v->strides[axis] <= 0)
        return 0;
    pthread_mutex_lock(&g->lock);
    const int n = storage_divided(buffer_storage(a->buffer), on, from);
    pthread_mutex_unlock(&g->lock);
    if (!n)
        return 0;
    g->backend->ops->device_info(g->backend, g->mesh, &mesh);
    const int64_t row = v->strides[axis] * itemsize, rows = v->shape[axis];
    for (int k = 0; k < n; k++) {
        const int64_t behind = from[k] - v->offset * itemsize;
        const int64_t first = behind > 0 ? (behind + row - 1) / row : 0;
        ret_rows[k] = first < rows ? first : rows;
        ret_devices[k] = mesh.parts[on[k]];
    }
    ret_rows[n] = rows;
    *ret_axis = axis;
    return n;
}
