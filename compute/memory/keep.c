/* How much outlives the process: limits, and where several owners have arrays, the owners' shares
 * of them. As of the journal's space, an owner may have as much of a limit as is free: half of it
 * if nobody else has anything, a third for each of two. What an owner wants beyond that does not
 * outlive the process, while others may still have what does. Contents that merely move are not
 * new, and small arrays may fill the holes in chunks that are there. What a storage's cell says of
 * its contents is here, too. */
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"
#include "compute/memory/memory_int.h"

static const char *const options[KEEP_LIMITS] = {
    [KEEP_CHUNKS] = "max-chunks", [KEEP_ARRAYS] = "max-kept-arrays"};

static void set_reached(struct engine *g, enum keep_limit which, bool reached)
{
    const struct engine_keep *k = &g->keep;
    _Atomic bool *now = &g->kept.reached[which];
    if (atomic_load(now) != reached && atomic_exchange(now, reached) != reached && k->limit)
        k->limit(k->user, options[which], reached);
}

void keep_limit_reached(struct engine *g, enum keep_limit which)
{
    set_reached(g, which, true);
}

void keep_limit_left(struct engine *g, enum keep_limit which, int64_t n, int64_t most)
{
    if (n < most - most / 16)
        set_reached(g, which, false);
}

const char *engine_keep_limit(const struct engine *g)
{
    for (int i = 0; i < KEEP_LIMITS; i++)
        if (atomic_load(&g->kept.reached[i]))
            return options[i];
    return NULL;
}

enum keep_limit keep_share(const struct engine *g, const struct account *a)
{
    int64_t arrays, most;
    if (!g->keep.shared || !g->cells)
        return KEEP_LIMITS;
    const struct account *owner = account_owner(a) ? account_owner(a) : a;
    cells_count(g->cells, &arrays, &most);
    if (account_kept(owner, KEEP_ARRAYS) >= most - arrays)
        return KEEP_ARRAYS;
    return account_kept(owner, KEEP_CHUNKS) >= g->max_chunks - atomic_load(&g->kept.chunks)
               ? KEEP_CHUNKS
               : KEEP_LIMITS;
}

const char *engine_keep_share(const struct engine *g, const struct account *a)
{
    const enum keep_limit which = keep_share(g, a);
    return which == KEEP_LIMITS ? NULL : options[which];
}

/* Pieces of a chunk may be several owners': it counts for the first. */
static void chunk_counts(struct engine *g, struct chunk *c, struct account *owner)
{
    struct account *none = NULL;
    if (atomic_load(&c->kept_for))
        return;
    account_ref(owner);
    if (!atomic_compare_exchange_strong(&c->kept_for, &none, owner)) {
        account_unref(owner);
        return;
    }
    account_keep(owner, KEEP_CHUNKS, c->share.n_parts);
    atomic_fetch_add(&g->kept.chunks, c->share.n_parts);
}

void keep_chunk_unused(struct engine *g, struct chunk *c)
{
    struct account *owner = atomic_exchange(&c->kept_for, NULL);
    if (!owner)
        return;
    atomic_fetch_sub(&g->kept.chunks, c->share.n_parts);
    account_keep(owner, KEEP_CHUNKS, -c->share.n_parts);
    account_unref(owner);
}

void keep_begin(struct storage *st)
{
    struct engine *g = st->engine;
    struct account *owner = account_principal(st->account);
    if (!st->chunk || !st->chunk->number)
        return;
    chunk_counts(g, st->chunk, owner);
    if (!st->cell)
        st->cell = cells_take(g->cells);
    if (!st->cell) {
        keep_limit_reached(g, KEEP_ARRAYS);
        return;
    }
    account_keep(owner, KEEP_ARRAYS, 1);
}

void keep_end(struct storage *st)
{
    struct engine *g = st->engine;
    int64_t n, most;
    if (!st->cell)
        return;
    cells_give(g->cells, st->cell);
    cells_count(g->cells, &n, &most);
    keep_limit_left(g, KEEP_ARRAYS, n, most);
    account_keep(account_principal(st->account), KEEP_ARRAYS, -1);
}

void keep_passes(struct storage *st, struct account *to)
{
    struct account *was = account_principal(st->account), *owner = account_principal(to);
    if (owner == was)
        return;
    if (st->cell) {
        account_keep(was, KEEP_ARRAYS, -1);
        account_keep(owner, KEEP_ARRAYS, 1);
    }
    if (!st->chunk || st->chunk->cut || !atomic_load(&st->chunk->kept_for))
        return;
    keep_chunk_unused(st->engine, st->chunk);
    chunk_counts(st->engine, st->chunk, owner);
}

/* --- what the next process is told of contents --- */

void storage_writing(struct storage *st)
{
    if (!st->cell)
        return;
    struct cell *cell = cells_at(st->engine->cells, st->cell);
    atomic_fetch_add(&cell->writing, 1);
    atomic_store(&cell->sum, CELL_SUM_NONE);
}

void storage_written(struct storage *st, bool fine, bool whole)
{
    if (!st->cell)
        return;
    if (!fine) {
        atomic_fetch_add(&st->spoiled, 1);
        return;
    }
    struct cell *cell = cells_at(st->engine->cells, st->cell);
    const uint64_t spoiled = whole ? atomic_exchange(&st->spoiled, 0) : 0;
    if (whole && atomic_load(&cell->ended))
        atomic_store(&cell->ended, 0);
    atomic_fetch_sub(&cell->writing, spoiled + 1);
}

static void raise_writing(struct storage *st, uint64_t to)
{
    if (!st->cell)
        return;
    struct cell *cell = cells_at(st->engine->cells, st->cell);
    atomic_store(&cell->writing, to);
    atomic_store(&cell->sum, CELL_SUM_NONE);
    atomic_store(&st->spoiled, to);
}

void storage_spoil(struct storage *st)
{
    raise_writing(st, 1);
}

void storage_awaits(struct storage *st)
{
    raise_writing(st, CELL_COMES);
}
