/* Memories are read by the engine's downloads: a download is a snapshot of its memory, and writers
 * continue meanwhile, in new memory.
 *
 * Files that have not changed since the last snapshot are linked from it, which takes no time. The
 * others follow in the order of what their owners will have cost, each owner's smallest first: if
 * time runs out, each principal has most of its arrays, and one with many arrays does not keep
 * others out.
 *
 * The thread does not wait for a memory while it could write another. Memories that work is still
 * writing to are put off. When all others are written, it waits for these, --state-wait seconds in
 * all: for each in turn, since the work on one may never end, and mostly by polling whether it has
 * ended. A client that writes all the time may leave no pause for polling to find, so for each new
 * version a download waits in that client's queue, for a time that doubles. If that is in vain, the
 * stream it waits on is abandoned together with the download, and others get a new one.
 *
 * A memory that cannot be read in the end has the bytes of the last snapshot, if that has the same
 * memory; otherwise it is left out. */
#include "server/state/state_blobs.h"

#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/memory/export.h"

#define PIECE      (1 << 20)  /* bytes per pull */
#define APART      (1 << 20)  /* memories of at least this size have files of their own */
#define EACH       (64 << 10) /* a memory's cost besides its bytes: its files, its download */
#define ATTEMPTS   3          /* at a memory that cannot be read: memory may have been short */
#define FIRST_WAIT 250000000  /* nanoseconds */

static const char NO_TIME[] = "no time", BUSY[] = "work is still writing to the array",
                  UNREADABLE[] = "the array's contents cannot be read";

enum err_code blobs_init(struct blobs *t)
{
    TRY(state_event_init(&t->event, t->e));
    t->piece = mem_alloc(PIECE);
    t->streams = mem_calloc((size_t)engine_device_count(t->engine), sizeof(struct engine_stream *));
    return t->piece && t->streams ? ERR_OK : err_oom(t->e);
}

void blobs_free(struct blobs *t)
{
    struct blob *b, *tmp;
    HASH_ITER (hh, t->table, b, tmp) {
        HASH_DEL(t->table, b);
        array_unref(b->array);
        mem_free(b);
    }
    for (int i = 0; t->streams && i < engine_device_count(t->engine); i++)
        engine_stream_unref(t->streams[i]);
    mem_free(t->streams);
    mem_free(t->piece);
    state_event_free(&t->event);
}

struct blob *blobs_add(struct blobs *t, struct array *a, size_t owner)
{
    struct blob *b;
    uint64_t key = array_memory_id(a);
    HASH_FIND(hh, t->table, &key, sizeof key, b);
    if (b)
        return b;
    b = mem_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    *b = (struct blob){.memory = key,
                       .number = HASH_COUNT(t->table),
                       .owner = owner,
                       .nbytes = array_buffer_nbytes(a),
                       .device = array_device(a),
                       .dtype = array_buffer_dtype(a),
                       .host = array_in_host_memory(a),
                       .wait_limit_ns = FIRST_WAIT};
    HASH_ADD(hh, t->table, memory, sizeof b->memory, b);
    if (!b->hh.tbl) {
        mem_free(b);
        return NULL;
    }
    b->array = array_ref(a);
    return b;
}

static bool is_late(const struct blobs *t)
{
    return t->deadline_ns && clock_ns() > t->deadline_ns;
}

enum err_code blobs_stopped(const struct blobs *t)
{
    return atomic_load(t->stop) ? err_draining(t->e) : ERR_OK;
}

/* --- reading one --- */

enum outcome { READ, NOT_READY, FAILED, LATE };

/* Reads all bytes, but waits `wait_limit_ns` at most for each piece. *ret_idle_ns: the time without
 * any in all. */
static enum err_code pull(struct blobs *t, const struct blob *b, struct download *d,
                          uint64_t wait_limit_ns, enum outcome *ret, uint64_t *ret_idle_ns)
{
    uint64_t since = clock_ns();
    *ret = READ;
    for (int64_t at = 0; at < b->nbytes;) {
        TRY(blobs_stopped(t));
        if (is_late(t)) {
            *ret = LATE;
            return ERR_OK;
        }
        int64_t got = download_pull(d, at, t->piece, PIECE);
        if (got < 0 && download_result(d) == ERR_DEVICE_LOST)
            return err_set(t->e, ERR_DEVICE_LOST, "the device is lost");
        if (got == 0) {
            state_event_wait(&t->event);
            if (clock_ns() - since <= wait_limit_ns)
                continue;
        }
        if (got <= 0) {
            *ret_idle_ns += clock_ns() - since;
            *ret = got ? FAILED : NOT_READY;
            return ERR_OK;
        }
        *ret_idle_ns += at ? 0 : clock_ns() - since; /* for the first piece only */
        TRY(state_write(t->writer, t->piece, (size_t)got, t->e));
        at += got;
        since = clock_ns();
    }
    return ERR_OK;
}

/* For a memory that is ready, the time already spent on others does not count: its bytes are on
 * their way. */
static uint64_t wait_limit(const struct blobs *t, const struct blob *b, bool ready)
{
    uint64_t left = t->wait_ns > t->waited_ns ? t->wait_ns - t->waited_ns : 0;
    return left < b->wait_limit_ns && !ready ? left : b->wait_limit_ns;
}

/* From the engine to a file. */
static enum err_code copy(struct blobs *t, struct blob *b, enum outcome *ret)
{
    struct download *d = NULL;
    struct engine_stream **s = &t->streams[b->device];
    bool ready = array_is_settled(b->array);
    uint64_t idle = 0;
    enum err_code code = ERR_OK;
    if (!*s)
        code = engine_stream_new(t->engine, b->device, s, t->e);
    if (code == ERR_OK)
        code = download_buffer(*s, b->array, state_event_set, &t->event, &d, t->e);
    if (code != ERR_OK)
        return code;
    b->file.version = download_version(d);
    code = pull(t, b, d, wait_limit(t, b, ready), ret, &idle);
    download_free(d);
    if (!ready || *ret == NOT_READY)
        t->waited_ns += idle;
    if (*ret == NOT_READY) {
        b->given_up = b->file.version;
        b->wait_limit_ns *= 2;
        engine_stream_unref(*s);
        *s = NULL;
    }
    return code;
}

static enum err_code read_once(struct blobs *t, struct blob *b, enum outcome *ret)
{
    enum err_code code =
        state_write_open(t->writer, b->nbytes >= APART, b->file.name, &b->file.at, t->e);
    *ret = READ;
    if (code == ERR_OK && b->nbytes > 0)
        code = copy(t, b, ret);
    if (code == ERR_OK && *ret != READ)
        return state_write_drop(t->writer, t->e);
    if (code == ERR_OK)
        code = state_write_close(t->writer, b->file.digest, t->e);
    return code;
}

/* The memory is in the snapshot, or has been given up. */
static void finish(struct blobs *t, struct blob *b, bool there)
{
    b->there = there;
    if (there)
        t->report->bytes += b->nbytes;
    array_unref(b->array);
    b->array = NULL;
}

/* --- contents of the last snapshot --- */

/* Links the last snapshot's file if the memory is unchanged. The version does not tell for memory
 * that is written from outside. */
static void reuse(struct blobs *t, struct blob *b)
{
    const struct state_kept_file *file = state_kept_find(t->kept, b->memory);
    if (b->nbytes < APART || !file || file->version != array_version(b->array) ||
        array_written_outside(b->array) || !state_write_again(t->writer, file->name))
        return;
    b->file = *file;
    b->file.taken_us = t->report->taken_us;
    t->report->reused += b->nbytes;
    finish(t, b, true);
}

/* For a memory that could not be read: takes the last snapshot's contents, if it has any. */
static enum err_code stand_in(struct blobs *t, struct blob *b)
{
    const struct state_kept_file *file = state_kept_find(t->kept, b->memory);
    bool there = false, linked = false;
    enum err_code code = ERR_OK;
    if (file && file->nbytes == b->nbytes)
        code = state_kept_again(t->writer, file, &b->file, &there, &linked, t->e);
    if (linked)
        t->report->reused += b->nbytes;
    if (there) {
        b->file.version = 0; /* not the present contents */
        b->dtype = file->dtype;
    }
    finish(t, b, code == ERR_OK && there);
    return code;
}

/* --- all of them --- */

static int by_owner(const void *a, const void *b)
{
    const struct blob *x = *(struct blob *const *)a, *y = *(struct blob *const *)b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static int by_cost(const void *a, const void *b)
{
    const struct blob *x = *(struct blob *const *)a, *y = *(struct blob *const *)b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Orders memories by what their owner will have cost including each. */
static void take_turns(struct blob **order, size_t n)
{
    int64_t cost = 0;
    qsort(order, n, sizeof *order, by_owner);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && order[i]->owner != order[i - 1]->owner)
            cost = 0;
        order[i]->cost = cost += order[i]->nbytes + EACH;
    }
    qsort(order, n, sizeof *order, by_cost);
}

static bool may_try(const struct blobs *t, const struct blob *b, bool wait)
{
    return array_is_settled(b->array) ||
           (wait && t->waited_ns < t->wait_ns && array_version(b->array) != b->given_up);
}

/* *ret_off: the memory is put off. */
static enum err_code try_blob(struct blobs *t, struct blob *b, bool wait, bool *ret_off)
{
    enum outcome outcome = NOT_READY;
    enum err_code code = blobs_stopped(t);
    b->why = is_late(t) ? NO_TIME : BUSY;
    if (code == ERR_OK && b->why == BUSY && may_try(t, b, wait))
        code = read_once(t, b, &outcome);
    *ret_off = outcome != READ;
    if (code != ERR_OK)
        return code;
    if (outcome == FAILED) {
        b->why = UNREADABLE;
        b->unreadable = true;
        *ret_off = ++b->failures < ATTEMPTS;
    } else if (outcome == READ) {
        b->why = NULL;
        b->file.nbytes = b->nbytes;
        b->file.dtype = b->dtype;
        b->file.taken_us = t->report->taken_us;
        finish(t, b, true);
    } else {
        b->why = outcome == LATE ? NO_TIME : b->why;
        b->unreadable = false;
    }
    return ERR_OK;
}

/* Tries the first *n once each; those that are put off move to the front. */
static enum err_code go_over(struct blobs *t, struct blob **order, size_t *n, bool wait)
{
    size_t off = 0;
    for (size_t i = 0; i < *n; i++) {
        bool again;
        TRY(try_blob(t, order[i], wait, &again));
        if (again)
            order[off++] = order[i];
    }
    *n = off;
    return ERR_OK;
}

static enum err_code write_in_turn(struct blobs *t, struct blob **order, size_t n)
{
    enum err_code code = go_over(t, order, &n, false);
    while (code == ERR_OK && n > 0 && !is_late(t) && t->waited_ns < t->wait_ns) {
        const size_t before = n;
        code = go_over(t, order, &n, true);
        if (code == ERR_OK && n == before) {
            const uint64_t since = clock_ns();
            state_event_wait(&t->event);
            t->waited_ns += clock_ns() - since;
        }
    }
    return code;
}

enum err_code blobs_write(struct blobs *t)
{
    size_t n = 0;
    struct blob **order = mem_calloc(HASH_COUNT(t->table), sizeof(struct blob *)), *b, *tmp;
    if (!order)
        return err_oom(t->e);
    HASH_ITER (hh, t->table, b, tmp) {
        reuse(t, b);
        if (!b->there)
            order[n++] = b;
    }
    take_turns(order, n);
    enum err_code code = write_in_turn(t, order, n);
    mem_free(order);
    HASH_ITER (hh, t->table, b, tmp) {
        if (code == ERR_OK && !b->there)
            code = stand_in(t, b);
    }
    return code;
}

void blobs_keep(const struct blobs *t, struct state_kept **ret)
{
    struct blob *b, *tmp;
    state_kept_free(ret);
    HASH_ITER (hh, t->table, b, tmp) {
        if (b->there)
            state_kept_add(ret, b->memory, &b->file);
    }
}
