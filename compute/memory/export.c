/* Exports: waiting for the device's work, moving the array if necessary, and the pin.
 *
 * An export is a task without kernels that reads the array's storage, ordered behind its writer
 * and, for writing, behind its readers; if other processes cannot map the memory it is a copy to
 * memory that they can, done as in move.c. The descriptor is made in the meantime; whichever of the
 * two is over last calls done(). The buffer counts the exports that keep its memory in place:
 * bind.c, upload.c, exchange.c and move.c check them, with the engine's lock held. */
#include "compute/memory/export.h"

#include <string.h>
#include <unistd.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"

/* Blocks smaller than engine->own_least: beyond this many, arrays leave them as exports
 * end. */
#define SMALL_MOST 64

struct export
{
    struct array *array;     /* a reference */
    struct storage *storage; /* a reference: marks it as in use, so that it is not evicted */
    bool write, sealed;
};

bool array_is_exported(const struct array *a)
{
    return atomic_load(&a->buffer->exports) > 0;
}

bool array_written_outside(const struct array *a)
{
    return atomic_load(&a->buffer->exports_write) > 0;
}

void engine_export_figures(const struct engine *g, struct export_figures *ret)
{
    const struct export_counts *c = &g->exports;
    *ret = (struct export_figures){
        .readers = atomic_load(&c->readers),
        .writers = atomic_load(&c->writers),
        .bytes = atomic_load(&c->bytes),
        .shareable = atomic_load(&c->shareable),
        .total = atomic_load(&c->total),
        .moved = atomic_load(&c->moved),
    };
}

/* --- the pin --- */

/* With the lock held. The version changes at both ends of an export for writing, so that earlier
 * reads are not taken for the current contents. */
static void pin(struct export *p, struct storage *st)
{
    lock_held(&p->array->buffer->engine->lock);
    struct buffer *b = p->array->buffer;
    struct export_counts *c = &b->engine->exports;
    p->storage = storage_ref(st);
    if (!atomic_exchange(&st->exported, true))
        buffer_placed(b);
    if (atomic_fetch_add(&b->exports, 1) == 0)
        atomic_fetch_add(&c->bytes, storage_share(st)->size);
    atomic_fetch_add(p->write ? &c->writers : &c->readers, 1);
    atomic_fetch_add(&b->exports_sealed, p->sealed);
    if (!p->write)
        return;
    if (p->array->dtype == DT_BOOL) /* an external writer may write any byte */
        atomic_store(&b->loose_bool, true);
    atomic_fetch_add(&b->exports_write, 1);
    atomic_store(&b->version, engine_next_version(b->engine));
}

void engine_export_end(struct export *p)
{
    if (!p)
        return;
    struct buffer *b = p->array->buffer;
    struct engine *g = b->engine;
    struct export_counts *c = &g->exports;
    pthread_mutex_lock(&g->lock);
    if (p->write) {
        atomic_store(&b->version, engine_next_version(g));
        atomic_fetch_sub(&b->exports_write, 1);
    }
    atomic_fetch_sub(&b->exports_sealed, p->sealed);
    if (atomic_fetch_sub(&b->exports, 1) == 1)
        atomic_fetch_sub(&c->bytes, storage_share(p->storage)->size);
    pthread_mutex_unlock(&g->lock);
    atomic_fetch_sub(p->write ? &c->writers : &c->readers, 1);
    storage_unref(p->storage);
    array_unref(p->array);
    mem_free(p);
}

enum err_code engine_export_adopt(struct array *a, bool write, struct export **ret, struct err *e)
{
    struct engine *g = a->buffer->engine;
    struct export *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_oom(e);
    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(a->buffer);
    const bool sealed = storage_is_sealed(st);
    const bool there = storage_share(st) && atomic_load(&st->exported) && !(write && sealed);
    if (there) {
        p->array = array_ref(a);
        p->write = write;
        p->sealed = sealed;
        pin(p, st);
    }
    pthread_mutex_unlock(&g->lock);
    if (!there) {
        mem_free(p);
        return err_set(e, ERR_STATE, "the memory was not exported");
    }
    *ret = p;
    return ERR_OK;
}

/* --- an export --- */

static void finish(struct exporting *x)
{
    if (x->code == ERR_OK && x->worked != ERR_OK) {
        char why[ENGINE_REASON] = "the work that was to compute the array's contents failed";
        if (err_has_reason(x->worked) || x->worked == ERR_CONTENTS_LOST)
            engine_reason(x->engine, x->worked, atomic_load(&x->export->storage->refusal), why);
        x->code = err_set(&x->err, x->worked, "%s", why);
    }
    if (x->code == ERR_OK) {
        atomic_fetch_add(&x->engine->exports.total, 1);
        x->exported.version = array_version(x->export->array);
    } else {
        if (x->exported.fd >= 0)
            close(x->exported.fd);
        x->exported.fd = -1;
        engine_export_end(x->export);
        x->export = NULL;
    }
    x->done(x);
}

static void arrive(struct exporting *x)
{
    if (atomic_fetch_sub(&x->pending, 1) == 1)
        finish(x);
}

static void worked(void *user, enum err_code result, double device_ms)
{
    struct exporting *x = user;
    x->worked = result;
    x->device_ms = device_ms;
    arrive(x);
}

static enum share_mode mode_of(const struct exporting *x)
{
    return x->write ? SHARE_WRITE : x->sealed ? SHARE_SEALED : SHARE_READ;
}

/* With the lock held: an existing export rules out this one in the same memory. */
static bool is_opposed(const struct exporting *x)
{
    lock_held(&x->engine->lock);
    struct buffer *b = x->array->buffer;
    return x->engine->backend->ops->share_fits &&
           ((x->write && atomic_load(&b->exports_sealed) > 0) ||
            (x->sealed && atomic_load(&b->exports_write) > 0));
}

/* With the lock held: whether it cannot be exported in place. An external writer must not write
 * what a download reads. */
static bool has_to_move(const struct exporting *x, const struct storage *st)
{
    lock_held(&x->engine->lock);
    struct backend *b = x->engine->backend;
    return !storage_share(st) || (x->write && atomic_load(&st->pins) > 0) || is_opposed(x) ||
           (b->ops->share_fits &&
            !b->ops->share_fits(b, st->device, storage_share(st), mode_of(x)));
}

static enum err_code cannot_move(const struct exporting *x, struct err *e)
{
    if (is_opposed(x))
        return err_set(e, ERR_CONFLICT,
                       "the array is already exported for %s; it cannot be exported for reading "
                       "and writing at once",
                       x->write ? "reading" : "writing");
    return err_set(e, ERR_CONFLICT,
                   "the array is already exported, and a download is reading it or a client with "
                   "write access has sealed it; wait until that has ended");
}

/* With the lock held: builds the task to wait for. Takes `to` if the array has to move. */
static enum err_code order(struct exporting *x, struct task *t, struct storage **to, struct err *e)
{
    lock_held(&x->engine->lock);
    struct buffer *b = x->array->buffer;
    struct storage *st = buffer_storage(b);
    if (*to) {
        struct storage *take_to = *to;
        *to = NULL;
        atomic_store(&take_to->exported, true); /* the keeper is told of it with the place */
        if (!move_add(t, b, take_to))
            return err_oom(e);
    } else {
        if (!task_use(t, st, false))
            return err_oom(e);
        t->uses[t->n_uses - 1].alone = x->write;
    }
    return task_reserve(t) ? ERR_OK : err_oom(e);
}

/* Everything but the descriptor, in the order of submission. *ret_moves: nothing has happened; try
 * again with memory to move to. */
static enum err_code submit(struct exporting *x, struct task *take_t, struct storage **to,
                            bool *ret_moves, struct err *e)
{
    struct engine *g = x->engine;
    struct buffer *b = x->array->buffer;
    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(b);
    bool moves = has_to_move(x, st);
    enum err_code code = ERR_OK;
    *ret_moves = moves && !*to;
    if (moves && storage_share(st) && atomic_load(&b->exports) > 0)
        code = cannot_move(x, e);
    struct storage *none = NULL;
    if (code == ERR_OK && !*ret_moves)
        code = order(x, take_t, moves ? to : &none, e);
    if (code != ERR_OK || *ret_moves) {
        fetch_undo(take_t);
        pthread_mutex_unlock(&g->lock);
        task_free(take_t);
        *ret_moves &= code == ERR_OK;
        return code;
    }
    code = task_submit(take_t);
    if (code == ERR_OK) {
        pin(x->export, b->storage);
        atomic_fetch_add(&g->exports.moved, moves);
    } else {
        fetch_undo(take_t);
        take_t->done = NULL;
    }
    task_unlock(take_t);
    return code == ERR_OK              ? ERR_OK
           : code == ERR_OUT_OF_MEMORY ? err_oom(e)
                                       : err_set(e, code, "the array could not be exported");
}

/* Memory to move to, if needed. */
static enum err_code get_memory(struct exporting *x, struct storage **ret, struct err *e)
{
    struct engine *g = x->engine;
    _cleanup_account_ struct account *payer = NULL;
    _cleanup_storage_ struct storage *st = NULL;
    pthread_mutex_lock(&g->lock);
    st = storage_ref(buffer_storage(x->array->buffer));
    bool moves = has_to_move(x, st);
    payer = st->account;
    account_ref(payer);
    pthread_mutex_unlock(&g->lock);
    return moves ? storage_shareable(st, payer, ret, e) : ERR_OK;
}

/* With the lock held: memory whose exports have ended, but which another process may still have
 * mapped. */
static bool may_be_mapped(struct buffer *b)
{
    lock_held(&b->engine->lock);
    return atomic_load(&buffer_storage(b)->exported) && atomic_load(&b->exports) == 0;
}

static bool array_may_be_mapped(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    bool may = may_be_mapped(a->buffer);
    pthread_mutex_unlock(&g->lock);
    return may;
}

void array_let_see_no_more(struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(a->buffer);
    if (atomic_load(&st->exported) && !st->outstayed) {
        st->outstayed = true;
        buffer_placed(a->buffer);
    }
    pthread_mutex_unlock(&g->lock);
}

bool array_outstays_exports(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    bool does = buffer_storage(a->buffer)->outstayed && may_be_mapped(a->buffer);
    pthread_mutex_unlock(&g->lock);
    return does;
}

bool array_crowds_exports(const struct array *a)
{
    const struct engine *g = a->buffer->engine;
    return a->buffer->nbytes < g->own_least && atomic_load(&g->exports.small) > SMALL_MOST &&
           array_may_be_mapped(a);
}

/* Moves its contents to memory that was never exported, in the stream's order, unless it has been
 * exported again in the meantime. */
static enum err_code leave(struct task *take_t, struct buffer *b, struct storage *take_to,
                           struct err *e)
{
    struct engine *g = b->engine;
    pthread_mutex_lock(&g->lock);
    if (!may_be_mapped(b)) {
        pthread_mutex_unlock(&g->lock);
        storage_unref(take_to);
        task_free(take_t);
        return ERR_OK;
    }
    if (!move_add(take_t, b, take_to) || !task_reserve(take_t)) {
        fetch_undo(take_t);
        pthread_mutex_unlock(&g->lock);
        task_free(take_t);
        return err_oom(e);
    }
    enum err_code code = task_submit(take_t);
    if (code != ERR_OK)
        fetch_undo(take_t);
    task_unlock(take_t);
    return code == ERR_OK ? ERR_OK
                          : err_set(e, code, "the array could not be moved to memory of its own");
}

enum err_code engine_export_forget(struct engine_stream *s, struct array *a, struct err *e)
{
    struct buffer *b = a->buffer;
    struct engine *g = b->engine;
    struct storage *to;
    _cleanup_account_ struct account *payer = NULL;
    _cleanup_storage_ struct storage *st = NULL;
    pthread_mutex_lock(&g->lock);
    if (may_be_mapped(b)) {
        st = storage_ref(b->storage);
        payer = st->account;
        account_ref(payer);
    }
    pthread_mutex_unlock(&g->lock);
    if (!st)
        return ERR_OK;
    TRY(engine_visit(&s, b->device, e));
    TRY(storage_renewed(st, payer, &to, e));
    struct task *t = task_new(s);
    if (t)
        return leave(t, b, to, e);
    storage_unref(to);
    return err_oom(e);
}

static enum err_code begin(struct engine_stream *s, struct exporting *x, struct err *e)
{
    struct array *a = x->array;
    const char *problem = engine_export_problem(x->engine, a->buffer->device);
    if (problem)
        return err_set(e, ERR_FORBIDDEN, "%s", problem);
    if (a->buffer->nbytes == 0)
        return err_set(e, ERR_CONFLICT, "an empty array has no memory to export");
    enum err_code code = engine_visit(&s, a->buffer->device, e);
    bool again = true;
    while (code == ERR_OK && again) {
        struct storage *to = NULL;
        code = get_memory(x, &to, e);
        struct task *t = code == ERR_OK ? task_new(s) : NULL;
        if (code == ERR_OK && !t)
            code = err_oom(e);
        if (code == ERR_OK) {
            t->done = worked;
            t->user = x;
            code = submit(x, t, &to, &again, e);
        }
        storage_unref(to);
    }
    return code;
}

static void describe(struct exporting *x)
{
    const struct array *a = x->array;
    struct backend *b = x->engine->backend;
    const struct storage *st = x->export->storage;
    struct exported *r = &x->exported;
    r->cuda = storage_is_remote(st);
    r->size = storage_share(st)->size;
    r->offset = a->view.offset * (int64_t)dtype_size(a->dtype);
    r->device = st->device;
    b->ops->uuid(b, st->device, r->uuid);
    x->code = b->ops->share_export(b, st->device, storage_share(st), 0, mode_of(x), true, &r->fd,
                                   &x->err);
}

void engine_export(struct engine_stream *s, struct exporting *x)
{
    x->engine = x->array->buffer->engine;
    x->code = x->worked = ERR_OK;
    x->err = (struct err)ERR_INIT;
    x->exported = (struct exported){.fd = -1};
    atomic_init(&x->pending, 2); /* the work, and the descriptor */
    x->export = mem_calloc(1, sizeof *x->export);
    enum err_code code = ERR_OK;
    if (x->export) {
        x->export->array = array_ref(x->array);
        x->export->write = x->write;
        x->export->sealed = x->sealed && !x->write;
        buffer_touch(x->array->buffer);
        code = begin(s, x, &x->err);
    } else {
        code = err_oom(&x->err);
    }
    if (code == ERR_OK) {
        describe(x);
        arrive(x);
        return;
    }
    if (x->export)
        array_unref(x->export->array);
    mem_free(x->export);
    x->export = NULL;
    x->code = code;
    x->done(x);
}
