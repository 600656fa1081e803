/* Copies of arrays that another device has.
 *
 * Bytes alone go across, by one job of the device that gets them (COPY_ACROSS). It waits for work
 * on the other as for any, by fences, so the copy is what the array is after all that was submitted
 * before it, and later writes leave the copy alone. What does not lie as its copy will is copied
 * where it is, first. */
#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"

/* Whether its elements lie one after the other, as a copy's do. Bools in other bytes than 0 and 1
 * become bools in a kernel. */
static bool lies_as_a_copy(const struct array *a)
{
    const struct grid *g = a->grid;
    return view_is_contiguous(&a->view) && !(g && (g->is_padded || grid_has_ghosts(g))) &&
           !(a->dtype == DT_BOOL && atomic_load(&a->buffer->loose_bool));
}

/* Memory for a copy with that layout, of n bytes, and an array over it. */
static enum err_code make_room(struct engine_stream *s, struct account *account,
                               const struct array *like, const struct view *v, int64_t n,
                               struct array **ret, struct err *e)
{
    struct storage *st = NULL;
    TRY(storage_new(s->engine, account, s->device, n, STORAGE_PLAIN, &st, e));
    struct array *a = array_over(s->engine, st, like->dtype, v, n);
    if (!a) {
        storage_unref(st);
        return err_oom(e);
    }
    *ret = like->grid ? array_view_grid(a, v, like->grid) : array_ref(a);
    array_unref(a);
    return *ret ? ERR_OK : err_oom(e);
}

/* The n bytes at `at` of an array's buffer become the contents of a new one. */
static enum err_code bring(struct engine_stream *s, struct array *to, struct array *from,
                           int64_t at, struct err *e)
{
    struct engine *g = s->engine;
    struct storage *st = to->buffer->storage; /* nobody else's yet */
    struct task *t = task_new(s);
    if (!t || !task_use(t, st, true)) {
        task_free(t);
        return err_oom(e);
    }
    t->uses[0].whole = t->uses[0].fresh = true;
    buffer_touch(from->buffer);
    pthread_mutex_lock(&g->lock);
    struct storage *source = buffer_storage(from->buffer);
    if (!task_use(t, source, false) || !task_copy(t, st, source, at) || !task_reserve(t)) {
        pthread_mutex_unlock(&g->lock);
        task_free(t);
        return err_oom(e);
    }
    const enum err_code code = task_submit(t);
    task_unlock(t);
    return code == ERR_OK ? ERR_OK
                          : err_set(e, code, "the array could not be copied from device %d",
                                    from->buffer->device);
}

enum err_code engine_copy_across(struct engine_stream *s, struct engine_stream *there,
                                 struct account *account, struct array *a, struct array **ret,
                                 struct err *e)
{
    _cleanup_array_ struct array *from = NULL, *to = NULL;
    if (a->buffer->device == s->device)
        return engine_copy(s, account, a, ret, e);
    const bool as_it_is = lies_as_a_copy(a);
    if (as_it_is)
        from = array_ref(a);
    else
        TRY(engine_copy(there, account, a, &from, e));
    struct view v = from->view;
    const int64_t at = as_it_is ? v.offset * (int64_t)dtype_size(a->dtype) : 0;
    v.offset -= as_it_is ? v.offset : 0;
    TRY(make_room(s, account, from, &v, as_it_is ? array_nbytes(a) : from->buffer->nbytes, &to, e));
    TRY(bring(s, to, from, at, e));
    *ret = array_ref(to);
    return ERR_OK;
}
