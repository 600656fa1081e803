/* Small arrays moved together. They are pieces of chunks (chunk.h), and a chunk is given back when
 * nothing is left in it: after many have come and gone, few arrays may hold many chunks. Where a
 * device is full, the pieces of the chunks that have the least are moved to the holes of others, by
 * moves as move.c makes them. A chunk is left as it is unless all that is in it can be moved, and
 * there is a hole for each.
 *
 * On the mover's thread. */
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/chunk.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"

#define FAILURES 8 /* each looks through all buffers */

struct moving {
    struct buffer *buffer; /* held */
    struct storage *to;
};

/* With the lock held. */
static bool is_movable_piece(const struct buffer *b, int device)
{
    const struct storage *st = b->storage;
    return b->device == device && st->chunk && st->chunk->cut && storage_is_movable(st);
}

static void count(struct engine *g, int device)
{
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&g->buffers_lock);
    for (const struct buffer *b = g->oldest; b; b = b->newer)
        if (is_movable_piece(b, device))
            chunk_count(b->storage->chunk, b->storage->size);
    pthread_mutex_unlock(&g->buffers_lock);
    pthread_mutex_unlock(&g->lock);
}

/* The buffers in the chunk, at most so many; returns how many. */
static uint32_t collect(struct engine *g, const struct chunk *c, struct moving *all, uint32_t most)
{
    uint32_t n = 0;
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&g->buffers_lock);
    for (struct buffer *b = g->oldest; b && n < most; b = b->newer)
        if (b->storage->chunk == c && buffer_hold(b))
            all[n++].buffer = b;
    pthread_mutex_unlock(&g->buffers_lock);
    pthread_mutex_unlock(&g->lock);
    return n;
}

static enum err_code alloc_in_hole(struct storage *st, struct err *e)
{
    return chunk_cut(st->engine, st->device, st->size, false, false, &st->chunk, &st->data, e);
}

/* A hole for what is in the chunk; none if the buffer has left it. */
static enum err_code find_hole(struct engine *g, const struct chunk *c, struct moving *m)
{
    _cleanup_account_ struct account *payer = NULL;
    _cleanup_storage_ struct storage *from = NULL;
    pthread_mutex_lock(&g->lock);
    struct storage *now = buffer_storage(m->buffer);
    if (now->chunk == c) {
        from = storage_ref(now);
        payer = now->account;
        account_ref(payer);
    }
    pthread_mutex_unlock(&g->lock);
    if (!from)
        return ERR_OK;
    TRY(storage_beside(from, payer, from->place, alloc_in_hole, &m->to, NULL));
    return storage_may_replace(m->to, from) ? ERR_OK : storage_none_is_kept(from, NULL);
}

static bool find_holes(struct engine *g, const struct chunk *c, struct moving *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (find_hole(g, c, &all[i]) != ERR_OK)
            return false;
    return true;
}

static bool move_one(struct engine_stream *s, struct eviction *v, const struct chunk *c,
                     struct moving *m, engine_done *done)
{
    struct task *t = task_new(s);
    struct storage *take_to = m->to;
    bool moved = false;
    if (!t)
        return false;
    m->to = NULL;
    t->done = done;
    t->user = v;
    atomic_fetch_add(&v->pending, 1);
    enum err_code code = move_submit(t, m->buffer, take_to, c, true, &moved, NULL);
    if (!moved)
        atomic_fetch_sub(&v->pending, 1);
    return code == ERR_OK && moved;
}

/* Whether the chunk is about to be empty. */
static bool vacate(struct engine_stream *s, struct eviction *v, const struct chunk *c,
                   uint32_t most, engine_done *done)
{
    struct engine *g = s->engine;
    struct moving *all = mem_calloc(most, sizeof *all);
    const uint32_t n = all ? collect(g, c, all, most) : 0;
    bool empty = n > 0 && find_holes(g, c, all, n);
    for (uint32_t i = 0; i < n; i++) {
        if (empty && all[i].to)
            empty = move_one(s, v, c, &all[i], done);
        storage_unref(all[i].to);
        buffer_release(all[i].buffer);
    }
    mem_free(all);
    return empty;
}

void gather(struct engine_stream *s, struct eviction *v, int64_t bytes, engine_done *done)
{
    struct engine *g = s->engine;
    v->gathers = true;
    count(g, v->device);
    for (int failures = 0; v->out < bytes && failures < FAILURES;) {
        const struct chunk *c;
        const uint32_t n = chunk_close(g, v->device, &c);
        if (!n)
            break;
        if (vacate(s, v, c, n, done))
            v->out += chunk_size(g);
        else
            failures++;
    }
}

void gather_over(struct eviction *v)
{
    if (v->gathers)
        chunks_open(v->engine, v->device);
}
