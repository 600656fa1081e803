/* Accounts, storage, buffers and arrays: who holds which bytes, and when they go. Everything here
 * is atomic reference counting; the engine's lock is not needed to let go of something, so that
 * completion callbacks may do it from any thread. */
#include "compute/engine_internal.h"

#include <string.h>

#include "compute/base/mem.h"

struct account {
    _Atomic uint32_t refs;
    _Atomic int64_t used;
    int64_t limit;
};

struct account *account_new(int64_t limit)
{
    struct account *a = mem_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    a->limit = limit;
    return a;
}

void account_ref(struct account *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
}

void account_unref(struct account *a)
{
    if (a && atomic_fetch_sub(&a->refs, 1) == 1)
        mem_free(a);
}

int64_t account_used(const struct account *a)
{
    return atomic_load(&a->used);
}

int64_t account_limit(const struct account *a)
{
    return a->limit;
}

static enum err_code account_charge(struct account *a, int64_t size, struct err *e)
{
    int64_t limit = a->limit ? a->limit : INT64_MAX, used = atomic_load(&a->used);
    do {
        if (size > limit - used)
            return err_set(e, ERR_QUOTA,
                           "%lld bytes more would exceed the session's memory_limit of %lld bytes "
                           "(%lld in use)",
                           (long long)size, (long long)limit, (long long)used);
    } while (!atomic_compare_exchange_weak(&a->used, &used, used + size));
    return ERR_OK;
}

enum err_code storage_new(struct engine *g, struct account *account, int device, int64_t size,
                          bool zero, struct storage **ret, struct err *e)
{
    struct storage *st = mem_calloc(1, sizeof *st);
    if (!st)
        return err_oom(e);
    enum err_code code = account_charge(account, size, e);
    if (code != ERR_OK) {
        mem_free(st);
        return code;
    }
    if (size > 0) {
        code = g->backend->ops->alloc(g->backend, device, size, zero, &st->data, e);
        if (code != ERR_OK) {
            atomic_fetch_sub(&account->used, size);
            mem_free(st);
            return code;
        }
    }
    if (size == 0)
        st->data = st; /* an address that nobody follows */
    atomic_init(&st->refs, 1);
    st->engine = g;
    st->account = account;
    account_ref(account);
    st->device = device;
    st->size = size;
    atomic_fetch_add(&g->bytes, size);
    *ret = st;
    return ERR_OK;
}

struct storage *storage_ref(struct storage *st)
{
    atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
    return st;
}

static void storage_free(struct storage *st)
{
    struct engine *g = st->engine;
    if (st->size > 0)
        g->backend->ops->free(g->backend, st->device, st->data, st->size);
    atomic_fetch_sub(&g->bytes, st->size);
    atomic_fetch_sub(&st->account->used, st->size);
    account_unref(st->account);
    if (st->writer.stream)
        engine_stream_unref(st->writer.stream);
    for (uint32_t i = 0; i < st->n_readers; i++)
        engine_stream_unref(st->readers[i].stream);
    mem_free(st->readers);
    mem_free(st);
}

/* A loop: many may have failed one after the other, each before the next. */
void storage_unref(struct storage *st)
{
    while (st && atomic_fetch_sub(&st->refs, 1) == 1) {
        struct storage *before = atomic_load(&st->before);
        storage_free(st);
        st = before;
    }
}

void storage_forget(struct storage *st)
{
    storage_unref(atomic_exchange(&st->before, NULL));
}

/* Whoever looks puts it right: nobody else knows which buffer has the storage by now. */
struct storage *buffer_storage(struct buffer *b)
{
    struct storage *st = b->storage, *before;
    while (atomic_load(&st->failed) != ERR_OK &&
           (before = atomic_exchange(&st->before, NULL)) != NULL) {
        struct account *payer = before->account; /* of one size; see engine_swap */
        before->account = st->account;
        st->account = payer;
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
    b->id = engine_next_version(g);
    atomic_init(&b->version, b->id);
    atomic_init(&a->refs, 1);
    a->buffer = b;
    a->dtype = dtype;
    a->view = *v;
    return a;
}

struct array *array_ref(struct array *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void array_unref(struct array *a)
{
    if (!a || atomic_fetch_sub(&a->refs, 1) != 1)
        return;
    struct buffer *b = a->buffer;
    grid_unref(a->grid);
    mem_free(a);
    if (atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    storage_unref(b->storage); /* last user of the buffer: nobody else can look at it */
    mem_free(b);
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

void array_take_place(struct array *a, const struct array *of)
{
    a->buffer->id = of->buffer->id;
}

uint32_t array_buffer_refs(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    uint32_t in_flight = atomic_load(&a->buffer->storage->refs) - 1;
    pthread_mutex_unlock(&g->lock);
    return atomic_load(&a->buffer->refs) + in_flight;
}

bool array_buffer_shared(const struct array *a)
{
    return atomic_load(&a->buffer->refs) > 1;
}

int array_device(const struct array *a)
{
    return a->buffer->device;
}

uint64_t array_version(const struct array *a)
{
    return atomic_load(&a->buffer->version);
}
