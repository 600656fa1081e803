/* Where arrays live: in a device's memory, or in host memory while no work uses them.
 *
 * A move allocates storage of the other kind, queues a copy by the device in a stream's order, and
 * exchanges the buffer's storage at submission, like a write of the whole array (run.c): earlier
 * work keeps the old storage, later work waits for the copy, and if the copy fails the buffer gets
 * the old storage back (buffer_storage). Contents and version do not change. The new storage takes
 * over the old one's charge, so that nobody pays twice.
 *
 * Arrays that work needs are fetched by that work itself, copies first: room for them is allocated
 * together with room for the result, or the whole fails.
 *
 * Making room: small arrays move together (gather.c), and the least recently used arrays to host
 * memory, until the missing bytes would fit. Pinning host memory takes long, so a thread of its own
 * does it, started when first needed.
 */
#include "compute/memory/chunk.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"

#include <stdlib.h>
#include <time.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/memory/reclaim.h"

#define SMALL_PART 1024    /* of the missing bytes: the first pass skips smaller arrays */
#define LATER_NS   4000000 /* time in which memory in use may become free, */
#define LATER_MOST 8       /* or at most this many times that, if no work ends before */

struct mover {
    struct engine *engine;
    pthread_mutex_t lock;
    struct worker worker;
    struct eviction *first; /* the queue */
};

/* --- fetching --- */

/* With the lock held: the task writes `take_to`, which becomes the buffer's storage; false: no
 * memory, nothing has happened and `take_to` is released. */
static bool add_move(struct task *t, struct buffer *b, struct storage *take_to, bool contents)
{
    lock_held(&b->engine->lock);
    struct storage *from = b->storage;
    size_t cap = t->cap_fetched;
    bool fits =
        arena_grow(t->arena, (void **)&t->fetched, &cap, t->n_fetched, sizeof *t->fetched) >= 0;
    if (fits)
        t->cap_fetched = (uint32_t)cap;
    fits = fits && task_use(t, take_to, true);
    if (fits) {
        struct storage_use *u = &t->uses[t->n_uses - 1];
        u->whole = u->fresh = true;
    }
    if (!fits || (contents && (!task_use(t, from, false) || !task_copy(t, take_to, from, 0)))) {
        storage_unref(take_to);
        return false;
    }
    t->fetched[t->n_fetched++] = b;
    storage_swap_charges(take_to, from);
    storage_replaced(from, true);
    atomic_store(&take_to->before, from);
    if (contents) {
        storage_awaits(take_to);
        buffer_place_copy(b, take_to);
    } else {
        storage_spoil(take_to); /* nothing lies there yet */
        buffer_place(b, take_to);
    }
    return true;
}

bool move_add(struct task *t, struct buffer *b, struct storage *take_to)
{
    (void)buffer_storage(b);
    return add_move(t, b, take_to, true);
}

/* To memory of the other kind; what can only be read, to memory of the same. */
static enum err_code room_for(const struct storage *from, struct account *payer,
                              struct storage **ret, struct err *e)
{
    return (from->host ? storage_elsewhere : storage_renewed)(from, payer, ret, e);
}

static bool needs_room(const struct task *t, struct buffer *b, bool writes)
{
    const struct storage *st = buffer_storage(b);
    for (uint32_t i = 0; i < t->n_rooms; i++)
        if (t->rooms[i].buffer == b)
            return false;
    return st->host || (writes && storage_is_sealed(st) && atomic_load(&b->exports) == 0);
}

static enum err_code make_room(struct task *t, struct buffer *b, struct err *e)
{
    struct engine *g = b->engine;
    _cleanup_account_ struct account *payer = b->storage->account;
    _cleanup_storage_ struct storage *from = storage_ref(b->storage);
    size_t cap = t->cap_rooms;
    if (arena_grow(t->arena, (void **)&t->rooms, &cap, t->n_rooms, sizeof *t->rooms) < 0)
        return err_oom(e);
    t->cap_rooms = (uint32_t)cap;
    account_ref(payer);
    struct storage *to;
    pthread_mutex_unlock(&g->lock);
    enum err_code code = room_for(from, payer, &to, e);
    pthread_mutex_lock(&g->lock);
    if (code == ERR_OK)
        t->rooms[t->n_rooms++] = (struct room){b, to};
    return code;
}

enum err_code fetch_room(struct task *t, struct buffer *b, bool writes, struct err *e)
{
    lock_held(&b->engine->lock);
    return needs_room(t, b, writes) ? make_room(t, b, e) : ERR_OK;
}

/* What was made for the buffer, if it still is what is wanted; or NULL. */
static struct storage *take_room(struct task *t, const struct buffer *b)
{
    const struct storage *from = b->storage;
    for (uint32_t i = 0; i < t->n_rooms; i++) {
        struct storage *st = t->rooms[i].storage;
        if (t->rooms[i].buffer != b || !st || st->host || st->account != from->account)
            continue;
        t->rooms[i].storage = NULL;
        return st;
    }
    return NULL;
}

static enum err_code fetch(struct task *t, struct buffer *b, bool contents, struct err *e)
{
    lock_held(&b->engine->lock);
    struct storage *from = b->storage, *to = take_room(t, b);
    if (contents && !t->fetch)
        t->fetch = task_new(t->stream);
    t = contents ? t->fetch : t;
    if (!t) {
        storage_unref(to);
        return err_oom(e);
    }
    if (!to)
        TRY(room_for(from, from->account, &to, e));
    return add_move(t, b, to, contents) ? ERR_OK : err_oom(e);
}

enum err_code fetch_add(struct task *t, struct buffer *b, bool contents, struct err *e)
{
    return buffer_storage(b)->host ? fetch(t, b, contents, e) : ERR_OK;
}

enum err_code fetch_to_write(struct task *t, struct buffer *b, bool contents, struct err *e)
{
    const struct storage *st = buffer_storage(b);
    if (!st->host && !storage_is_sealed(st))
        return ERR_OK;
    if (!st->host && atomic_load(&b->exports) > 0)
        return err_set(e, ERR_CONFLICT,
                       "the array's memory was exported for reading only, and the daemon has been "
                       "started anew since: it can be written when these exports have ended");
    return fetch(t, b, contents, e);
}

/* Undoes the moves of this task alone. */
static void undo(struct task *t)
{
    while (t->n_fetched) {
        struct buffer *b = t->fetched[--t->n_fetched];
        atomic_store(&b->storage->failed, ERR_OUT_OF_MEMORY); /* discarded, whatever the code */
        (void)buffer_storage(b);
    }
}

enum err_code fetch_submit(struct task *t, struct err *e)
{
    struct task *f = t->fetch;
    if (!f)
        return ERR_OK;
    if (!task_reserve(f))
        return err_oom(e);
    enum err_code code = task_submit(f);
    t->fetch_submitted = true;
    if (code != ERR_OK)
        return err_set(e, code, "an array could not be moved back to the device");
    atomic_fetch_add(&f->stream->engine->fetched, f->n_fetched);
    f->n_fetched = 0; /* nothing to undo any more */
    return ERR_OK;
}

void fetch_undo(struct task *t)
{
    for (; t; t = t->fetch)
        undo(t);
}

/* --- moving --- */

enum err_code move_submit(struct task *take_t, struct buffer *b, struct storage *take_to,
                          const struct chunk *out_of, bool idle, bool *ret_moved, struct err *e)
{
    struct engine *g = take_t->stream->engine;
    const bool host = take_to->host;
    pthread_mutex_lock(&g->lock);
    struct storage *now = buffer_storage(b);
    const bool stays = host && atomic_load(&b->exports) > 0;
    const bool is_there =
        out_of ? now->chunk != out_of : now->host == host && now->place == take_to->place;
    if (stays || is_there || (idle && !storage_is_idle(now))) {
        pthread_mutex_unlock(&g->lock);
        task_free(take_t);
        storage_unref(take_to);
        return stays ? err_set(e, ERR_CONFLICT,
                               "the array is exported, so its memory cannot be moved")
                     : ERR_OK;
    }
    if (!add_move(take_t, b, take_to, true) || !task_reserve(take_t)) {
        fetch_undo(take_t);
        pthread_mutex_unlock(&g->lock);
        task_free(take_t);
        return err_oom(e);
    }
    enum err_code code = task_submit(take_t);
    if (code != ERR_OK) {
        fetch_undo(take_t);
        take_t->done = NULL; /* the return value reports it */
    }
    task_unlock(take_t);
    *ret_moved = code == ERR_OK;
    return code == ERR_OK              ? ERR_OK
           : code == ERR_OUT_OF_MEMORY ? err_oom(e)
                                       : err_set(e, code, "the array could not be moved");
}

/* Moves to the host, or back. *ret_moved false: it was there already, or (`idle`) it is in use;
 * done is not called then. */
static enum err_code move_buffer(struct engine_stream *s, struct buffer *b, bool host, bool idle,
                                 engine_done *done, void *user, bool *ret_moved, struct err *e)
{
    struct engine *g = s->engine;
    _cleanup_account_ struct account *payer = NULL;
    _cleanup_storage_ struct storage *from = NULL, *to = NULL;
    *ret_moved = false;
    pthread_mutex_lock(&g->lock);
    from = storage_ref(buffer_storage(b));
    payer = from->account;
    account_ref(payer);
    pthread_mutex_unlock(&g->lock);
    if (from->host == host)
        return ERR_OK;
    TRY(storage_elsewhere(from, payer, &to, e));
    struct task *t = task_new(s);
    if (!t)
        return err_oom(e);
    t->done = done;
    t->user = user;
    struct storage *take_to = to;
    to = NULL;
    storage_unref(from); /* storage_is_idle counts references */
    from = NULL;
    return move_submit(t, b, take_to, NULL, idle, ret_moved, e);
}

enum err_code engine_move(struct engine_stream *s, struct array *a, bool host, engine_done *done,
                          void *user, struct err *e)
{
    bool moved;
    enum err_code code = engine_visit(&s, a->buffer->device, e);
    if (code == ERR_OK)
        code = move_buffer(s, a->buffer, host, false, done, user, &moved, e);
    if (code == ERR_OK && !moved)
        engine_sync(s, done, user); /* an earlier move may still be running */
    return code;
}

enum err_code engine_place(struct engine_stream *s, struct array *a, bool apart, struct err *e)
{
    struct buffer *b = a->buffer;
    struct engine *g = b->engine;
    const enum storage_how place = apart ? STORAGE_DIVIDED : STORAGE_WHOLE;
    _cleanup_account_ struct account *payer = NULL;
    _cleanup_storage_ struct storage *from = NULL, *to = NULL;
    struct backend_device d;
    bool moved;
    g->backend->ops->device_info(g->backend, b->device, &d);
    const int64_t least = d.part_grain * d.n_parts;
    if (apart && b->nbytes < least)
        return err_set(e, ERR_UNSUPPORTED_PLACEMENT,
                       "less than %lld bytes are not divided among %d GPUs, and this is %lld",
                       (long long)least, d.n_parts, (long long)b->nbytes);
    pthread_mutex_lock(&g->lock);
    from = storage_ref(buffer_storage(b));
    const bool is_there = b->device != g->mesh || (__builtin_popcount(from->parts) > 1) == apart;
    payer = from->account;
    account_ref(payer);
    pthread_mutex_unlock(&g->lock);
    if (is_there)
        return ERR_OK;
    TRY(storage_placed(from, payer, place, &to, e));
    struct task *t = task_new(s);
    if (!t)
        return err_oom(e);
    struct storage *take_to = to;
    to = NULL;
    TRY(move_submit(t, b, take_to, NULL, false, &moved, e));
    atomic_store(&b->place, place);
    return ERR_OK;
}

/* --- making room --- */

/* What is lacking on each part of the device: an array that is there in part frees as much. */
struct lack {
    struct backend_device device, mesh; /* mesh.n_parts 0: no mesh */
    bool kept;                          /* what is kept for new arrays would do */
    int64_t bytes[BACKEND_PARTS];
};

static int part_number(const struct backend_device *d, int part)
{
    return d->n_parts ? d->parts[part] : d->index;
}

static int part_count(const struct backend_device *d)
{
    return d->n_parts ? d->n_parts : 1;
}

/* A request's bytes, so that it fits: all of them if that does not seem to be the trouble, or the
 * last eviction did not help. What is not divided is to fit on part `alone`; true: or on another.
 */
static bool find_lack(const struct engine *g, const struct eviction *v, int alone, struct lack *ret)
{
    bool any = false;
    *ret = (struct lack){0};
    engine_device_info(g, v->device, &ret->device);
    if (engine_mesh(g) >= 0)
        engine_device_info(g, engine_mesh(g), &ret->mesh);
    int64_t need[BACKEND_PARTS];
    const bool whole = engine_part_bytes(&ret->device, 1, v->bytes) == 0;
    for (int k = 0; k < part_count(&ret->device); k++) {
        struct backend_device part;
        engine_device_info(g, part_number(&ret->device, k), &part);
        need[k] = !whole ? engine_part_bytes(&ret->device, k, v->bytes) : k == alone ? v->bytes : 0;
        if (part.memory_free < need[k])
            ret->bytes[k] = need[k] - (v->again || part.memory_free < 0 ? 0 : part.memory_free);
        else
            ret->kept |= part.memory_free - engine_kept_bytes(g, part.index) < need[k];
        any |= ret->bytes[k] > 0 || (ret->kept && !v->again);
    }
    for (int k = 0; k < part_count(&ret->device) && !any; k++)
        ret->bytes[k] = need[k];
    return whole && alone + 1 < part_count(&ret->device);
}

static int64_t lacking(const struct lack *l)
{
    int64_t sum = 0;
    for (int k = 0; k < part_count(&l->device); k++)
        sum += l->bytes[k];
    return sum;
}

/* Of so many bytes on that device, on its parts `on` (storage.parts): those on part k. */
static int64_t bytes_there(const struct lack *l, int k, int device, uint32_t on, int64_t size)
{
    const int there = part_number(&l->device, k), n = __builtin_popcount(on);
    if (device == there)
        return size;
    for (int i = 0; device == l->mesh.index && i < l->mesh.n_parts; i++)
        if (l->mesh.parts[i] == there && on >> i & 1)
            return n > 1 ? engine_share_bytes(&l->mesh, n, size) : size;
    return 0;
}

/* How much of what is lacking that would give, and then it is given. */
static int64_t relief(struct lack *l, int device, uint32_t on, int64_t size, bool given)
{
    int64_t sum = 0;
    for (int k = 0; k < part_count(&l->device); k++) {
        const int64_t there = bytes_there(l, k, device, on, size);
        const int64_t part = there < l->bytes[k] ? there : l->bytes[k];
        sum += part;
        l->bytes[k] -= given ? part : 0;
    }
    return sum;
}

/* The next idle buffer in the order of use that was last used by v->until, has at least `least`
 * bytes, and some of them where they are lacking; a reference. *after: how far the search has come
 * (a time of use); *ret_on: its storage.parts. Sets v->others if there are others that may become
 * free later. */
static struct buffer *oldest_idle(struct engine *g, struct eviction *v, struct lack *l,
                                  int64_t least, uint64_t *after, uint32_t *ret_on)
{
    struct buffer *found = NULL;
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&g->buffers_lock);
    for (struct buffer *b = g->oldest; b && !found; b = b->newer) {
        uint64_t used = atomic_load(&b->used);
        struct storage *st = b->storage;
        if (used <= *after || st->host || st->size < least ||
            relief(l, b->device, st->parts, st->size, false) == 0)
            continue;
        bool idle = used <= v->until && storage_is_movable(st);
        v->others |= !idle;
        if (used > v->until)
            break;
        *after = used;
        *ret_on = st->parts;
        if (idle && buffer_hold(b))
            found = b;
    }
    pthread_mutex_unlock(&g->buffers_lock);
    pthread_mutex_unlock(&g->lock);
    return found;
}

/* Called for each move, and for the eviction's own part: the last call reports. */
static void moved_out(void *user, enum err_code result, double device_ms)
{
    struct eviction *v = user;
    (void)result, (void)device_ms; /* on failure the array stayed: the next try will show it */
    if (atomic_fetch_sub(&v->pending, 1) != 1)
        return;
    gather_over(v);
    v->done(v->user, v->out > 0 ? ERR_OK : v->others ? ERR_OVERLOADED : ERR_OUT_OF_MEMORY, 0);
}

/* One pass over the order of use. */
static void move_out(struct engine *g, struct eviction *v, struct lack *l, int64_t least)
{
    uint64_t after = 0;
    uint32_t on = 0;
    enum err_code code = ERR_OK;
    while (code == ERR_OK && lacking(l) > 0) {
        struct buffer *b = oldest_idle(g, v, l, least, &after, &on);
        struct engine_stream *s;
        bool moved = false;
        if (!b)
            break;
        atomic_fetch_add(&v->pending, 1);
        code = engine_visitor(g, b->device, &s, NULL);
        if (code == ERR_OK)
            code = move_buffer(s, b, true, true, moved_out, v, &moved, NULL);
        if (moved) {
            v->out += b->nbytes;
            (void)relief(l, b->device, on, b->nbytes, true);
            atomic_fetch_add(&g->evicted, 1);
            atomic_fetch_add(&g->evicted_bytes, (uint64_t)b->nbytes);
        } else {
            atomic_fetch_sub(&v->pending, 1);
        }
        if (code == ERR_QUOTA)
            code = ERR_OK; /* an owner without host memory keeps arrays on the device */
        buffer_release(b);
    }
}

/* Waits until some work is over, but not while another eviction is queued. */
static void wait_a_little(struct engine *g)
{
    struct mover *m = g->mover;
    const int64_t jobs = atomic_load(&g->jobs);
    bool wanted = false;
    for (int i = 0; i < LATER_MOST && !wanted; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LATER_NS}, NULL);
        pthread_mutex_lock(&m->lock);
        wanted =
            m->first || worker_is_stopped(&m->worker) || atomic_load(&g->jobs) < jobs || jobs == 0;
        pthread_mutex_unlock(&m->lock);
    }
}

static void evict(struct engine *g, struct eviction *v)
{
    struct engine_stream *s = NULL;
    const bool gathers = chunks_gather(g, v->device);
    v->engine = g;
    v->gathers = false;
    v->out = 0;
    v->others = atomic_load(&g->jobs) > 0;
    atomic_store(&v->pending, 1);
    bool more = (gathers || !v->stay) && engine_visitor(g, v->device, &s, NULL) == ERR_OK;
    for (int k = 0; more && v->out == 0; k++) {
        struct lack l;
        more = find_lack(g, v, k, &l);
        const uint64_t back = reclaim_shares_back(g->reclaim);
        if (l.kept) /* a kernel's scratch does not give it back itself */
            v->out += reclaim_shares(g->reclaim, back);
        const int64_t bytes = lacking(&l);
        if (gathers && k == 0)
            gather(s, v, bytes, moved_out);
        (void)relief(&l, v->device, 1u << k, v->out, true);
        if (!v->stay)
            move_out(g, v, &l, bytes / SMALL_PART + 1);
        if (!v->stay)
            move_out(g, v, &l, 1);
    }
    if (v->out == 0 && v->others)
        wait_a_little(g);
    moved_out(v, ERR_OK, 0);
}

/* --- the thread --- */

static double mover_step(void *user)
{
    struct mover *m = user;
    struct eviction *v = m->first;
    if (!v)
        return WORKER_RESTS;
    m->first = v->next;
    bool stopped = worker_is_stopped(&m->worker);
    pthread_mutex_unlock(&m->lock);
    if (stopped)
        v->done(v->user, ERR_OUT_OF_MEMORY, 0);
    else
        evict(m->engine, v);
    pthread_mutex_lock(&m->lock);
    return WORKER_AGAIN;
}

void engine_evict(struct engine *g, struct eviction *v)
{
    struct mover *m = g->mover;
    v->next = NULL;
    bool queued = worker_start(&m->worker);
    pthread_mutex_lock(&m->lock);
    queued = queued && !worker_is_stopped(&m->worker);
    if (queued) {
        struct eviction **last = &m->first;
        while (*last)
            last = &(*last)->next;
        *last = v;
        worker_wake(&m->worker);
    }
    pthread_mutex_unlock(&m->lock);
    if (!queued)
        v->done(v->user, ERR_OUT_OF_MEMORY, 0);
}

struct mover *mover_new(struct engine *g)
{
    struct mover *m = mem_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->engine = g;
    pthread_mutex_init(&m->lock, NULL); /* cannot fail here */
    m->worker =
        (struct worker){.name = "arrayd-mover", .lock = &m->lock, .step = mover_step, .user = m};
    worker_init(&m->worker);
    return m;
}

void mover_stop(struct mover *m)
{
    worker_stop(&m->worker);
}

void mover_free(struct mover *m)
{
    if (!m)
        return;
    worker_destroy(&m->worker);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}
