/* Storage: allocating and releasing its memory. Releasing is atomic reference counting without the
 * engine's lock, so completion callbacks may do it on any thread. */
#include "compute/memory/memory_int.h"

#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"
#include "compute/memory/export.h"
#include "compute/memory/reclaim.h"

/* Where memory comes from. `must`: it is about to be exported, not merely exportable. */
typedef enum err_code source(struct storage *st, bool zero, bool must, struct err *e);

static enum err_code from_backend(struct storage *st, bool zero, bool must, struct err *e)
{
    struct backend *b = st->engine->backend;
    (void)must;
    if (st->place)
        TRY(b->ops->alloc_placed(b, st->device, st->size, st->place == STORAGE_DIVIDED, &st->data,
                                 e));
    else
        TRY(b->ops->alloc(b, st->device, st->size, zero, &st->data, e));
    if (b->ops->taken)
        st->taken = b->ops->taken(b, st->device, st->data, st->size);
    return ERR_OK;
}

static enum err_code from_own_chunk(struct storage *st, bool zero, bool must, struct err *e)
{
    struct engine *g = st->engine;
    if (!reclaim_start(g->reclaim)) /* its thread releases this memory */
        return err_oom(e);
    if (!zero)
        st->chunk = reclaim_reuse(g->reclaim, st->device, st->size);
    if (!st->chunk)
        TRY(chunk_new(g, st->device, st->size, zero, must, &st->chunk, e));
    st->data = st->chunk->share.data;
    return ERR_OK;
}

static enum err_code from_piece(struct storage *st, bool zero, bool must, struct err *e)
{
    struct engine *g = st->engine;
    (void)must;
    if (!reclaim_start(g->reclaim))
        return err_oom(e);
    return chunk_cut(g, st->device, st->size, zero, true, &st->chunk, &st->data, e);
}

static bool from_hole(struct storage *st, bool zero)
{
    return st->size < st->engine->own_least &&
           chunk_cut(st->engine, st->device, st->size, zero, false, &st->chunk, &st->data, NULL) ==
               ERR_OK;
}

/* If there is no memory, or no descriptor, retired chunks may still have to be released. */
static enum err_code obtain(struct storage *st, source *from, bool zero, bool must, struct err *e)
{
    struct reclaim *r = st->engine->reclaim;
    const uint64_t back = reclaim_shares_back(r);
    enum err_code code = from(st, zero, must, e);
    const bool lacks = code == ERR_OUT_OF_MEMORY || code == ERR_OVERLOADED;
    if (lacks && reclaim_shares(r, back))
        code = from(st, zero, must, e);
    if (code == ERR_OUT_OF_MEMORY)
        engine_lacks(st->engine, st->device, st->size, e);
    return code;
}

/* Where a chunk to cut does not fit, a small array may have one to itself if that consists of
 * pages. On a GPU it would take many times the array's size, of what little memory is left. */
static bool may_be_alone(const struct engine *g)
{
    return engine_in_host_memory(g);
}

/* Memory of a new array: where it is to lie otherwise than by its size, the backend's; else
 * exportable in place if it is large enough and the device can; if there is a keeper, memory that
 * outlives the process, unless none is free or the owner has a share. */
static enum err_code array_alloc(struct storage *st, bool zero, struct err *e)
{
    struct engine *g = st->engine;
    if (st->place)
        return obtain(st, from_backend, zero, false, e);
    const bool keeps = g->keep.put && !engine_keep_problem(g, st->device);
    enum err_code code = ERR_OVERLOADED;
    const enum keep_limit share = keeps && !st->moves ? keep_share(g, st->account) : KEEP_LIMITS;
    if (share != KEEP_LIMITS)
        return share == KEEP_CHUNKS && from_hole(st, zero)
                   ? ERR_OK
                   : obtain(st, from_backend, zero, false, e);
    if (st->size >= g->own_least && (keeps || !engine_export_problem(g, st->device)))
        code = obtain(st, from_own_chunk, zero, false, e);
    else if (keeps &&
             (obtain(st, from_piece, zero, false, NULL) == ERR_OK ||
              (may_be_alone(g) && obtain(st, from_own_chunk, zero, false, NULL) == ERR_OK)))
        code = ERR_OK;
    return code == ERR_OVERLOADED ? obtain(st, from_backend, zero, false, e) : code;
}

/* A storage without memory yet. The account is borrowed until storage_complete. */
static struct storage *storage_begin(struct engine *g, struct account *account, int device,
                                     int64_t size)
{
    struct storage *st = mem_calloc(1, sizeof *st);
    if (!st)
        return NULL;
    if (size == 0)
        st->data = st; /* an address that is never dereferenced */
    atomic_init(&st->refs, 1);
    st->engine = g;
    st->account = account;
    st->device = device;
    st->size = size;
    return st;
}

const struct shared_block *storage_share(const struct storage *st)
{
    return st->chunk && !st->host && !st->chunk->cut ? &st->chunk->share : NULL;
}

void storage_copied(struct storage *st)
{
    uint64_t made = st->copied_for;
    if (!st->copied_from)
        return;
    atomic_compare_exchange_strong(&cells_at(st->engine->cells, st->copied_from)->owner, &made, 0);
    st->copied_from = 0;
}

bool storage_is_sealed(const struct storage *st)
{
    return st->chunk && st->chunk->sealed;
}

/* Gives its memory back. */
static void storage_let_go(struct storage *st)
{
    struct engine *g = st->engine;
    if (!st->chunk && st->size > 0)
        g->backend->ops->free(g->backend, st->device, st->data, st->size);
    else if (st->chunk && st->chunk->cut)
        chunk_paste(g, st->chunk, st->data, st->size);
    else if (st->chunk)
        reclaim_retire(g->reclaim, st->chunk, !atomic_load(&st->exported) && !st->chunk->sealed);
}

/* How much more of the device a mappable block, or the backend's memory, takes than the array that
 * it is for. */
static int64_t padding(const struct storage *st)
{
    const struct shared_block *share = storage_share(st);
    return share ? share->size - st->size : st->taken > st->size ? st->taken - st->size : 0;
}

static bool is_small(const struct storage *st)
{
    return st->size < st->engine->own_least;
}

static uint32_t parts_of(const struct storage *st)
{
    const struct engine *g = st->engine;
    int64_t from[BACKEND_PARTS];
    int on[BACKEND_PARTS];
    uint32_t parts = 0;
    if (st->device != g->mesh || st->host || !st->size)
        return 1;
    for (int k = g->backend->ops->divided(g->backend, st->device, st->data, on, from); k > 0; k--)
        parts |= 1u << on[k - 1];
    return parts;
}

/* Completes it and counts it; the account has been charged. */
static void storage_complete(struct storage *st)
{
    struct engine *g = st->engine;
    struct account *account = st->account;
    account_ref(account);
    keep_begin(st);
    st->parts = parts_of(st);
    if (padding(st)) {
        st->padded_by = account;
        account_ref(account);
    }
    if (storage_share(st)) {
        atomic_fetch_add(&g->exports.shareable, storage_share(st)->size);
        atomic_fetch_add(&g->exports.small, is_small(st));
    }
    if (!st->host)
        atomic_fetch_add(&g->bytes[st->device], st->size + padding(st));
}

/* The same once its padding is charged to the account; the rest is by the caller. ERR_QUOTA: it is
 * released. */
static enum err_code storage_end(struct storage *take_st, struct err *e)
{
    const int64_t more = padding(take_st);
    enum err_code code = more ? account_charge(take_st->account, more, e) : ERR_OK;
    if (code == ERR_OK) {
        storage_complete(take_st);
        return ERR_OK;
    }
    storage_let_go(take_st);
    mem_free(take_st);
    return code;
}

enum err_code storage_new(struct engine *g, struct account *account, int device, int64_t size,
                          enum storage_how how, struct storage **ret, struct err *e)
{
    struct storage *st = storage_begin(g, account, device, size);
    if (!st)
        return err_oom(e);
    enum err_code code = account_charge(account, size, e);
    if (code != ERR_OK) {
        mem_free(st);
        return code;
    }
    const bool zero = how & STORAGE_ZERO;
    st->place = how & (STORAGE_WHOLE | STORAGE_DIVIDED);
    if (size > 0)
        code = how & STORAGE_SCRATCH ? obtain(st, from_backend, zero, false, e)
                                     : array_alloc(st, zero, e);
    if (code != ERR_OK)
        mem_free(st);
    else
        code = storage_end(st, e);
    if (code != ERR_OK) {
        account_discharge(account, size);
        return code;
    }
    st->charged = size;
    st->scratch = how & STORAGE_SCRATCH;
    *ret = st;
    return ERR_OK;
}

/* Counted as it was in the previous process, whatever the limits are now. */
static void adopt_host(struct storage *st, struct account *payer)
{
    struct account *owner = account_owner(payer);
    st->host = true;
    atomic_fetch_add(&st->engine->host_bytes, st->size);
    if (!owner || account_charge_host(owner, st->size, NULL) != ERR_OK)
        return;
    st->host_payer = owner;
    account_ref(owner);
}

enum err_code storage_adopt(struct engine *g, struct account *account,
                            const struct engine_place *place, struct storage **ret, struct err *e)
{
    struct storage *st = storage_begin(g, account, place->device, place->bytes);
    if (!st)
        return err_oom(e);
    if (!adopt_memory(st, place)) {
        mem_free(st);
        return err_set(e, ERR_STATE, "the memory of an array is not there");
    }
    atomic_init(&st->exported, place->exported);
    st->outstayed = place->outstayed;
    if (cells_take_at(g->cells, place->cell))
        st->cell = place->cell;
    if (place->host)
        adopt_host(st, account);
    account_charge_anyway(account, st->size + padding(st));
    storage_complete(st);
    st->charged = st->size;
    *ret = st;
    return ERR_OK;
}

/* Counts `size` bytes of host memory, if the limit allows. */
static bool host_book(struct engine *g, int64_t size)
{
    int64_t used = atomic_load(&g->host_bytes);
    do {
        if (size > g->host_limit - used)
            return false;
    } while (!atomic_compare_exchange_weak(&g->host_bytes, &used, used + size));
    return true;
}

static enum err_code host_alloc(struct storage *st, struct err *e)
{
    struct engine *g = st->engine;
    const int64_t size = st->size;
    if (!reclaim_start(g->reclaim))
        return err_oom(e);
    reclaim_host(g->reclaim);
    if (!host_book(g, size))
        return err_set(e, ERR_OUT_OF_MEMORY,
                       "%lld bytes more would exceed the limit of %lld bytes for arrays in host "
                       "memory (%lld in use)",
                       (long long)size, (long long)g->host_limit,
                       (long long)atomic_load(&g->host_bytes));
    enum err_code code = chunk_new_host(g, st->device, size, &st->chunk, e);
    if (code == ERR_OK)
        st->data = st->chunk->share.data;
    else
        atomic_fetch_sub(&g->host_bytes, size);
    return code;
}

enum err_code storage_elsewhere(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e)
{
    struct engine *g = of->engine;
    struct storage *st = storage_begin(g, payer, of->device, of->size);
    if (!st)
        return err_oom(e);
    st->moves = true;
    st->place = of->place;
    struct account *owner = of->host ? NULL : account_owner(payer);
    enum err_code code = owner ? account_charge_host(owner, of->size, e) : ERR_OK;
    if (code != ERR_OK) {
        mem_free(st);
        return code;
    }
    st->host = !of->host;
    if (of->size > 0)
        code = of->host ? array_alloc(st, false, e) : host_alloc(st, e);
    if (code != ERR_OK)
        mem_free(st);
    else
        code = storage_end(st, e);
    if (code != ERR_OK) {
        if (owner)
            account_discharge_host(owner, of->size);
        return code;
    }
    st->host_payer = owner;
    if (owner)
        account_ref(owner);
    *ret = st;
    return ERR_OK;
}

enum err_code storage_beside(const struct storage *of, struct account *payer,
                             enum storage_how place,
                             enum err_code (*alloc)(struct storage *st, struct err *e),
                             struct storage **ret, struct err *e)
{
    struct storage *st = storage_begin(of->engine, payer, of->device, of->size);
    if (!st)
        return err_oom(e);
    st->moves = true;
    st->place = place;
    enum err_code code = of->size > 0 ? alloc(st, e) : ERR_OK;
    if (code != ERR_OK)
        mem_free(st);
    else
        code = storage_end(st, e);
    if (code == ERR_OK)
        *ret = st;
    return code;
}

static enum err_code alloc_for_export(struct storage *st, struct err *e)
{
    return obtain(st, from_own_chunk, false, true, e);
}

enum err_code storage_shareable(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e)
{
    const char *problem = engine_export_problem(of->engine, of->device);
    if (problem)
        return err_set(e, ERR_FORBIDDEN, "%s", problem);
    return storage_beside(of, payer, of->place, alloc_for_export, ret, e);
}

static enum err_code alloc_as_new(struct storage *st, struct err *e)
{
    return array_alloc(st, false, e);
}

enum err_code storage_placed(const struct storage *of, struct account *payer,
                             enum storage_how place, struct storage **ret, struct err *e)
{
    return storage_beside(of, payer, place, alloc_as_new, ret, e);
}

enum err_code storage_renewed(const struct storage *of, struct account *payer, struct storage **ret,
                              struct err *e)
{
    struct storage *st;
    TRY(storage_beside(of, payer, of->place, alloc_as_new, &st, e));
    if (!storage_may_replace(st, of)) {
        storage_unref(st);
        return storage_none_is_kept(of, e);
    }
    *ret = st;
    return ERR_OK;
}

/* --- who pays for replaced storage ---
 *
 * A download pins the storage that it reads. If the array is written in the meantime it gets other
 * storage, and the old one remains for its readers only: from then on it is charged to one of them,
 * unless its owner is also reading it. They cannot refuse, because the write is the owner's: this
 * may push a reader past a limit, and then it cannot begin more downloads of others' arrays until
 * the surplus is gone. */

static bool is_owners(const struct storage *st, struct account *reader)
{
    return reader && account_principal(st->account) == account_principal(reader);
}

/* With pins_lock held, as in all functions here. */
static bool owner_reads(const struct storage *st)
{
    lock_held(&st->engine->pins_lock);
    const struct pin *p = st->pinned_by;
    while (p && !is_owners(st, p->reader))
        p = p->next;
    return p;
}

/* The same: charges storage that no array uses any more. */
static void settle(struct storage *st)
{
    lock_held(&st->engine->pins_lock);
    if (!st->replaced || !st->pinned_by || owner_reads(st))
        return;
    struct account *payer = st->account, *reader = st->pinned_by->reader;
    account_discharge(payer, st->charged);
    st->charged = 0;
    if (!reader) /* the daemon reads it: nobody is charged */
        return;
    account_charge_anyway(reader, st->size);
    st->charged = st->size;
    account_ref(reader);
    keep_passes(st, reader);
    st->account = reader;
    account_unref(payer);
}

enum err_code storage_pin(struct storage *st, struct pin *p, struct account *reader, struct err *e)
{
    struct engine *g = st->engine;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&g->pins_lock);
    if (reader && !is_owners(st, reader))
        code = account_check(reader, e);
    if (code == ERR_OK) {
        p->reader = reader;
        if (reader)
            account_ref(reader);
        p->next = st->pinned_by;
        st->pinned_by = p;
        atomic_fetch_add(&st->pins, 1);
    }
    pthread_mutex_unlock(&g->pins_lock);
    return code;
}

void storage_unpin(struct storage *st, struct pin *p)
{
    struct engine *g = st->engine;
    pthread_mutex_lock(&g->pins_lock);
    struct pin **at = &st->pinned_by;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    atomic_fetch_sub(&st->pins, 1);
    settle(st);
    pthread_mutex_unlock(&g->pins_lock);
    account_unref(p->reader);
}

bool storage_is_held_by_others(struct storage *st)
{
    pthread_mutex_lock(&st->engine->pins_lock);
    bool held = st->pinned_by && !owner_reads(st);
    pthread_mutex_unlock(&st->engine->pins_lock);
    return held;
}

void storage_replaced(struct storage *st, bool replaced)
{
    pthread_mutex_lock(&st->engine->pins_lock);
    st->replaced = replaced;
    settle(st);
    pthread_mutex_unlock(&st->engine->pins_lock);
}

void storage_swap_charges(struct storage *a, struct storage *b)
{
    lock_held(&a->engine->lock);
    pthread_mutex_lock(&a->engine->pins_lock);
    struct account *payer = a->account;
    int64_t charged = a->charged;
    keep_passes(a, b->account);
    keep_passes(b, payer);
    a->account = b->account;
    a->charged = b->charged;
    b->account = payer;
    b->charged = charged;
    pthread_mutex_unlock(&a->engine->pins_lock);
}

struct storage *storage_ref(struct storage *st)
{
    const uint32_t refs = atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
    assert(refs > 0); /* taking a reference requires one */
    (void)refs;
    return st;
}

static void storage_free(struct storage *st)
{
    struct engine *g = st->engine;
    const struct shared_block *share = storage_share(st);
    assert(atomic_load(&st->pins) == 0 && !st->pinned_by && st->charged >= 0);
    if (!st->host)
        atomic_fetch_sub(&g->bytes[st->device], st->size + padding(st));
    account_discharge(st->account, st->charged);
    keep_end(st);
    if (st->padded_by) {
        account_discharge(st->padded_by, padding(st));
        account_unref(st->padded_by);
    }
    if (share) {
        atomic_fetch_sub(&g->exports.shareable, share->size);
        atomic_fetch_sub(&g->exports.small, is_small(st));
    }
    if (st->host_payer) {
        account_discharge_host(st->host_payer, st->size);
        account_unref(st->host_payer);
    }
    account_unref(st->account);
    if (st->writer.stream)
        engine_stream_unref(st->writer.stream);
    for (uint32_t i = 0; i < st->n_readers; i++)
        engine_stream_unref(st->readers[i].stream);
    mem_free(st->readers);
    storage_let_go(st);
    mem_free(st);
}

/* A loop, not recursion: there may be a long chain of failed writes. */
void storage_unref(struct storage *st)
{
    while (st) {
        const uint32_t refs = atomic_fetch_sub(&st->refs, 1);
        assert(refs > 0);
        if (refs > 1)
            return;
        struct storage *before = atomic_load(&st->before);
        storage_free(st);
        st = before;
    }
}

void storage_forget(struct storage *st)
{
    storage_unref(atomic_exchange(&st->before, NULL));
}

bool storage_is_blank(const struct storage *st)
{
    lock_held(&st->engine->lock);
    return st->blank && !st->writer.stream;
}

bool storage_is_remote(const struct storage *st)
{
    return st->engine->backend->ops->upload_new && st->size > 0 && !st->host;
}
