/* Bytes into arrays. An upload is staged in storage of its own; if the target is a whole buffer,
 * the staging simply becomes the buffer's storage, else a kernel copies it in.
 *
 * If the host can access the memory, the caller's thread writes the bytes itself. Else they pass
 * through the backend's transfers, and the storage is "written" by an empty job behind the copies,
 * so that everything later is ordered by marks as always. */
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"

#include <string.h>

#include "compute/base/mem.h"

struct upload {
    struct engine_stream *stream;
    struct account *account;
    struct storage *storage;
    struct transfer *transfer; /* to `target` (a reference); or NULL */
    struct storage *target;
    int64_t nbytes, filled;
    uint64_t if_version;  /* upload_expect */
    struct array *staged; /* the bytes as an array of their own, once made */
    bool keep;            /* upload_keep */
};

enum err_code upload_new(struct engine_stream *s, struct account *account, int64_t nbytes,
                         void (*wake)(void *user), void *user, struct upload **ret, struct err *e)
{
    struct backend *b = s->engine->backend;
    struct upload *u = mem_calloc(1, sizeof *u);
    if (!u)
        return err_oom(e);
    enum err_code code =
        storage_new(s->engine, account, s->device, nbytes, STORAGE_PLAIN, &u->storage, e);
    if (code == ERR_OK && storage_is_remote(u->storage))
        code =
            b->ops->upload_new(b, s->device, u->storage->data, nbytes, wake, user, &u->transfer, e);
    if (code != ERR_OK) {
        storage_unref(u->storage);
        mem_free(u);
        return code;
    }
    storage_writing(u->storage); /* until all of it is there, or is work's to write */
    if (u->transfer)
        u->target = storage_ref(u->storage);
    u->stream = s;
    engine_stream_ref(s);
    u->account = account;
    account_ref(account);
    u->nbytes = nbytes;
    *ret = u;
    return ERR_OK;
}

void upload_abort(struct upload *u)
{
    if (!u)
        return;
    if (u->transfer)
        transfer_end(u->transfer, u->target);
    storage_unref(u->storage);
    array_unref(u->staged);
    account_unref(u->account);
    engine_stream_unref(u->stream);
    mem_free(u);
}

void *upload_reserve(struct upload *u, size_t *ret_n)
{
    struct backend *b = u->stream->engine->backend;
    if (u->transfer && u->filled < u->nbytes)
        return b->ops->upload_reserve(u->transfer, ret_n);
    *ret_n = (size_t)(u->nbytes - u->filled);
    return u->transfer ? (char *)u : (char *)b->ops->host(b, u->storage->data) + u->filled;
}

void upload_advance(struct upload *u, size_t n)
{
    if (u->transfer)
        u->stream->engine->backend->ops->upload_advance(u->transfer, n);
    u->filled += (int64_t)n;
}

static enum err_code upload_result(const struct upload *u)
{
    return u->transfer ? u->stream->engine->backend->ops->transfer_result(u->transfer) : ERR_OK;
}

size_t upload_push(struct upload *u, const void *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t room;
        void *p = upload_reserve(u, &room);
        if (!p && upload_result(u) != ERR_OK)
            return n;
        if (!p || !room)
            break;
        if (room > n - done)
            room = n - done;
        memcpy(p, (const char *)bytes + done, room);
        upload_advance(u, room);
        done += room;
    }
    return done;
}

void upload_expect(struct upload *u, uint64_t version)
{
    u->if_version = version;
}

/* The job that ends the transfer: work ordered after it sees the bytes. */
static enum err_code landing(struct upload *u, struct task **ret, struct err *e)
{
    struct task *t = task_new(u->stream);
    if (!t || !task_use(t, u->target, true)) {
        task_free(t);
        return err_oom(e);
    }
    t->uses[0].whole = t->uses[0].fresh = true;
    *ret = t;
    return ERR_OK;
}

/* Makes the staged bytes the contents of their storage and, if `b` is not NULL, that the buffer's;
 * if the buffer has to keep its storage, does nothing (*ret_kept). */
static enum err_code land(struct upload *u, struct buffer *b, bool *ret_kept, struct err *e)
{
    struct engine *g = u->stream->engine;
    struct task *t = NULL;
    struct storage *old = NULL;
    enum err_code code = u->transfer ? landing(u, &t, e) : ERR_OK;
    if (code != ERR_OK)
        return code;
    pthread_mutex_lock(&g->lock);
    if (b && (atomic_load(&b->exports) > 0 ||
              !storage_may_replace(u->transfer ? u->target : u->storage, buffer_storage(b)))) {
        pthread_mutex_unlock(&g->lock);
        task_free(t);
        *ret_kept = true;
        return ERR_OK;
    }
    if (b)
        code = require_version(b, u->if_version, e);
    if (code == ERR_OK && t)
        code = task_reserve(t) ? g->backend->ops->upload_join(u->transfer, u->stream->stream, e)
                               : err_oom(e);
    if (code != ERR_OK) {
        pthread_mutex_unlock(&g->lock);
        task_free(t);
        return code;
    }
    if (b) {
        buffer_touch(b);
        old = buffer_storage(b);
    }
    if (b && t)
        atomic_store(&u->target->before, storage_ref(old));
    code = t ? task_submit(t) : ERR_OK;
    if (code == ERR_OK)
        /* the task may have failed by now: that is not for this to forgive */
        storage_written(u->transfer ? u->target : u->storage, true, !t);
    if (b && code == ERR_OK) {
        buffer_place(b, u->storage);
        storage_replaced(old, true);
        u->storage = NULL;
        atomic_store(&b->version, engine_next_version(g));
    }
    if (t)
        task_unlock(t);
    else
        pthread_mutex_unlock(&g->lock);
    if (code != ERR_OK)
        return err_set(e, code, "%s", err_title(code));
    storage_unref(old);
    return ERR_OK;
}

/* Whether all of the bytes have arrived, and their layout. */
static enum err_code staged_view(const struct upload *u, enum dtype dtype, int rank,
                                 const int64_t *shape, bool fortran, struct view *ret,
                                 struct err *e)
{
    TRY(view_contiguous(rank, shape, dtype_size(dtype), ret, e));
    enum err_code code = upload_result(u);
    if (code != ERR_OK)
        return err_set(e, code, "the data could not be copied to the device");
    int64_t size = view_size(ret) * (int64_t)dtype_size(dtype);
    if (size != u->nbytes || u->filled != u->nbytes)
        return err_set(e, ERR_LENGTH_MISMATCH,
                       "%lld bytes were uploaded for an array of %lld bytes", (long long)u->filled,
                       (long long)size);
    int64_t stride = 1;
    for (int i = 0; fortran && i < rank; i++) {
        ret->strides[i] = stride;
        stride *= shape[i];
    }
    return ERR_OK;
}

void upload_keep(struct upload *u)
{
    u->keep = true;
}

/* Ends the upload, unless it failed in a way that allows another try. */
static void finished(struct upload *take_u, enum err_code code, const struct err *e)
{
    if (!take_u->keep || code != ERR_OUT_OF_MEMORY || !e || !e->wanted)
        upload_abort(take_u);
}

/* The staged bytes as an array of their own (u->staged). */
static enum err_code stage_array(struct upload *u, enum dtype dtype, const struct view *v,
                                 struct err *e)
{
    if (u->staged)
        return ERR_OK;
    struct array *a = array_over(u->stream->engine, u->storage, dtype, v, u->nbytes);
    if (!a)
        return err_oom(e);
    if (!u->transfer)
        storage_written(u->storage, true, true);
    u->storage = NULL;
    enum err_code code = u->transfer ? land(u, NULL, NULL, e) : ERR_OK;
    if (code == ERR_OK)
        u->staged = a;
    else
        array_unref(a);
    return code;
}

enum err_code upload_finish_new(struct upload *take_u, enum dtype dtype, int rank,
                                const int64_t *shape, bool fortran, struct array **ret,
                                struct err *e)
{
    struct array *a = NULL;
    struct view have;
    enum err_code code = staged_view(take_u, dtype, rank, shape, fortran, &have, e);
    if (code == ERR_OK)
        code = stage_array(take_u, dtype, &have, e);
    if (code == ERR_OK && view_is_contiguous(&have))
        a = array_ref(take_u->staged);
    else if (code == ERR_OK)
        code = engine_copy(take_u->stream, take_u->account, take_u->staged, &a, e);
    if (code == ERR_OK)
        *ret = a;
    finished(take_u, code, e);
    return code;
}

/* A kernel copies the staged bytes to the region `v` of an array. */
static enum err_code copy_into(struct upload *u, const struct view *have, struct array *a,
                               const struct view *v, engine_done *done, void *user, struct err *e)
{
    _cleanup_array_ struct array *out = NULL;
    TRY(stage_array(u, a->dtype, have, e));
    struct task *t = task_new(u->stream);
    struct typed *typed = t ? arena_alloc(t->arena, sizeof *typed) : NULL;
    if (!typed || !typed_input_only(t->arena, typed, u->staged)) {
        task_free(t);
        return err_oom(e);
    }
    t->if_version = u->if_version;
    t->done = done;
    t->user = user;
    return engine_run(t, typed, u->account, false, a, v, &out, e);
}

/* *ret_done: the elements are in `a`; else they will be when `done` is called. */
static enum err_code finish_into(struct upload *u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user, bool *ret_done,
                                 struct err *e)
{
    struct view have;
    bool kept = false;
    TRY(require_device(u->stream, a, NULL, e));
    if (view_self_overlaps(v))
        return err_set(e, ERR_OVERLAP, "elements of the target overlap in memory");
    TRY(staged_view(u, a->dtype, v->rank, v->shape, fortran, &have, e));
    const bool whole = !u->staged /* by an earlier try */ && view_is_contiguous(v) &&
                       view_is_contiguous(&have) && u->nbytes == a->buffer->nbytes;
    if (whole)
        TRY(land(u, a->buffer, &kept, e));
    *ret_done = whole && !kept;
    return *ret_done ? ERR_OK : copy_into(u, &have, a, v, done, user, e);
}

enum err_code upload_finish_into(struct upload *take_u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user, struct err *e)
{
    bool landed = false;
    enum err_code code = finish_into(take_u, a, v, fortran, done, user, &landed, e);
    finished(take_u, code, e);
    if (landed && done)
        done(user, ERR_OK, 0);
    return code;
}
