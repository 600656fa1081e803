/* Takes over what a previous process left of arrays: their memory, and its cells. Single-threaded,
 * while nothing else uses the engine. */
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"
#include "compute/memory/memory_int.h"

enum err_code engine_adopt_chunk(struct engine *g, uint64_t chunk, int device, const int *fds,
                                 int n, int64_t size, struct err *e)
{
    if (!g->cells)
        return err_set(e, ERR_STATE, "there is no keeper");
    return chunk_adopt(g, chunk, device, fds, n, size, e);
}

/* What has no bytes has no memory: it is there wherever its device is. */
bool adopt_memory(struct storage *st, const struct engine_place *place)
{
    if (place->bytes == 0 && !place->chunk)
        return place->device >= 0 && place->device < engine_device_count(st->engine);
    st->chunk = chunk_adopted(st->engine, place);
    if (st->chunk)
        st->data = (char *)st->chunk->share.data + place->offset;
    return st->chunk;
}

static void raise_version(struct engine *g, uint64_t to)
{
    uint64_t now = atomic_load(&g->version);
    while (now < to && !atomic_compare_exchange_weak(&g->version, &now, to))
        ;
}

void engine_adopted(struct engine *g, uint64_t last)
{
    raise_version(g, last);
    chunks_adopted(g);
    if (g->cells)
        cells_settle(g->cells);
}

void engine_lost(struct engine *g)
{
    if (g->cells)
        cells_end(g->cells, CELLS_LOST_DEVICE);
}

void engine_bequeath(struct engine *g)
{
    if (!g->cells)
        return;
    cells_end(g->cells, CELLS_ASKED);
    cells_freeze(g->cells);
}

static bool is_its_own(const struct cell *c, uint64_t buffer)
{
    return atomic_load(&c->owner) == buffer || atomic_load(&c->coming) == buffer;
}

/* The cell's word on whether the buffer's contents are there, whole. */
static bool is_whole(const struct storage *st, const struct engine_placed *placed,
                     const struct engine_place *at)
{
    if (!st->cell || st->cell != at->cell)
        return false;
    const struct cell *c = cells_at(st->engine->cells, st->cell);
    return atomic_load(&c->writing) == 0 && is_its_own(c, placed->buffer);
}

/* For this process and those after it, until it is written as a whole. */
static void lose(struct storage *st, bool changed)
{
    if (st->cell)
        atomic_store(&st->refusal, cells_lose(st->engine->cells, st->cell, changed));
    atomic_store(&st->failed, ERR_CONTENTS_LOST);
    storage_spoil(st);
}

void buffer_lose(struct buffer *b)
{
    pthread_mutex_lock(&b->engine->lock);
    lose(b->storage, true);
    pthread_mutex_unlock(&b->engine->lock);
}

/* The copy to `place` was not made, and nothing else was to be written there. */
static bool is_being_copied(const struct engine *g, const struct engine_placed *x)
{
    const struct cell *to = cells_look(g->cells, x->place.cell);
    const struct cell *from = cells_look(g->cells, x->was.cell);
    return x->was.chunk && to && from && cell_merely_comes(to) && is_its_own(to, x->buffer) &&
           atomic_load(&from->writing) == 0 && atomic_load(&from->owner) == x->buffer;
}

enum err_code engine_adopt(struct engine *g, struct account *account,
                           const struct engine_placed *placed, struct array **ret, struct err *e)
{
    struct storage *st = NULL;
    struct view v;
    if (!g->cells || !placed->buffer)
        return err_set(e, ERR_STATE, "nothing was kept of this array");
    const struct engine_place *p = is_being_copied(g, placed) ? &placed->was : &placed->place;
    if (p->bytes && !p->chunk)
        return err_set(e, ERR_CONTENTS_LOST, "its memory does not outlive its process");
    TRY(storage_adopt(g, account, p, &st, e));
    if (st->size && !is_whole(st, placed, p))
        lose(st, false);
    struct cell *cell = st->cell ? cells_at(g->cells, st->cell) : NULL;
    const uint64_t sum = cell ? atomic_load(&cell->sum) : CELL_SUM_NONE;
    enum err_code code = view_contiguous(1, &p->bytes, 1, &v, e);
    raise_version(g, placed->buffer);
    struct array *a =
        code == ERR_OK ? array_over_as(g, st, DT_U8, &v, p->bytes, placed->buffer) : NULL;
    if (!a) {
        storage_unref(st);
        return code == ERR_OK ? err_oom(e) : code;
    }
    if (cell && sum >= CELL_SUM_LEAST)
        atomic_store(&cell->sum, sum);          /* the contents have lain there all along */
    atomic_store(&a->buffer->loose_bool, true); /* what views it had is not known */
    *ret = a;
    return ERR_OK;
}
