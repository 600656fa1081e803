/* Everything clients have made, to disk.
 *
 * First what there is, as of one moment for each principal: sessions and handles under the locks of
 * their tables, printed at once, so that nothing of it is held while data are written. Then the
 * memories, each once however many views it has, through the engine's downloads: a download is a
 * snapshot of its memory, and writers go on meanwhile, in new memory. Two memories may so be some
 * requests apart; when nothing else runs, as at the end of the daemon, they are not. Last the
 * manifest, which names only what is there.
 *
 * The smallest memories come first: where time runs out, most arrays are kept. What cannot be read,
 * because the work that was to make it failed, is left out too; nobody could read it before. */
#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/engine.h"
#include "compute/export.h"
#include "protocol/json_writer.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/function_json.h"
#include "server/grid_json.h"
#include "server/server.h"
#include "server/share.h"
#include "server/state_int.h"
#include "server/table.h"

#define PIECE    (1 << 20) /* bytes that are pulled at once */
#define APART    (1 << 20) /* memories from this size on have files of their own */
#define ATTEMPTS 3 /* at a memory that cannot be read: it may have been for want of memory */

/* A memory. */
struct blob {
    const struct buffer *buffer; /* the key; it lives as long as the array */
    struct array *array;         /* one on it, a reference until it is written */
    size_t number;               /* in the manifest */
    int64_t nbytes, at;          /* at: in the data */
    int device;
    enum dtype dtype;
    bool host, written;
    uint64_t version; /* of the contents that were written */
    struct state_kept_file file;
    UT_hash_handle hh;
};

/* A handle: its text in saver.text. */
struct entry {
    struct blob *blob;
    size_t from, to;
    char id[ID_SIZE];
};

struct owner {
    const struct principal *principal;
    struct strb sessions, functions; /* JSON lists */
    struct entry *entries;
    size_t n_entries;
};

struct saver {
    struct server *server;
    uint64_t deadline_ns;
    const _Atomic bool *stop;
    struct owner *owners;
    size_t n_owners;
    struct strb text; /* of all handles */
    struct blob *blobs;
    struct engine_stream **streams; /* by device */
    struct state_bell bell;
    struct state_writer *writer;
    struct state_kept **kept;
    char *piece;
    struct state_report report;
    enum err_code code; /* of what a visit met */
    struct err *e;
};

/* --- what there is --- */

static void put_session(struct json_writer *w, const struct session *s, int64_t usual_limit)
{
    json_open_object(w);
    json_put_member_string(w, "id", s->id);
    json_put_member_string(w, "name", s->name);
    json_put_member_bool(w, "default", s->is_default);
    json_put_member_i64(w, "created_us", s->created_us);
    json_put_member_double(w, "ttl_s", s->ttl_s);
    json_put_member_i64(w, "memory_limit", s->memory_limit == usual_limit ? 0 : s->memory_limit);
    json_put_member_i64(w, "device", s->device);
    json_close_object(w);
}

static void put_sessions(struct saver *v, struct owner *o)
{
    struct json_writer w = JSON_WRITER(&o->sessions);
    struct session *s;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    json_open_list(&w);
    while (session_list(o->principal->sessions, after, 1, &s, &more) == 1) {
        after = s->seq;
        put_session(&w, s, v->server->config->session_memory);
        session_unref(s);
    }
    json_close_list(&w);
}

static void put_functions(struct owner *o)
{
    struct json_writer w = JSON_WRITER(&o->functions);
    struct definition *d;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    json_open_list(&w);
    while (functions_list(o->principal->functions, after, 1, &d, &more) == 1) {
        after = d->seq;
        json_open_object(&w);
        json_put_member_i64(&w, "seq", (int64_t)d->seq);
        json_put_member_i64(&w, "created_us", d->created_us);
        json_put_key(&w, "definition");
        function_json_put(&w, d);
        json_close_object(&w);
        function_unref(d->function);
    }
    json_close_list(&w);
}

static void put_grid(struct json_writer *w, const struct grid *g)
{
    json_put_key(w, "grid");
    json_open_object(w);
    grid_json_put(w, g, g->rank);
    json_put_member_bool(w, "has_boundary", g->has_boundary);
    json_put_member_bool(w, "whole", g->whole);
    json_put_member_i64(w, "alignment", g->alignment);
    if (g->is_padded) {
        json_put_key(w, "padded");
        json_put_i64_list(w, (size_t)g->rank, g->padded);
    }
    json_close_object(w);
}

static void put_handle(struct strb *text, const struct handle_image *h, size_t blob)
{
    struct json_writer w = JSON_WRITER(text);
    const struct array *a = h->array;
    size_t rank = (size_t)a->view.rank;
    json_open_object(&w);
    json_put_member_string(&w, "id", h->id);
    json_put_member_string(&w, "name", h->name);
    json_put_member_string(&w, "session", h->session);
    json_put_member_string(&w, "view_of", h->view_of);
    json_put_member_string(&w, "base", h->base);
    json_put_member_bool(&w, "read_only", h->read_only);
    json_put_member_i64(&w, "created_us", h->created_us);
    json_put_member_i64(&w, "seq", (int64_t)h->seq);
    json_put_member_i64(&w, "memory", (int64_t)blob);
    json_put_member_string(&w, "dtype", dtype_name(a->dtype));
    json_put_key(&w, "shape");
    json_put_i64_list(&w, rank, a->view.shape);
    json_put_key(&w, "strides");
    json_put_i64_list(&w, rank, a->view.strides);
    json_put_member_i64(&w, "offset", a->view.offset);
    if (a->grid)
        put_grid(&w, a->grid);
    json_close_object(&w);
}

static struct blob *blob_of(struct saver *v, struct array *a)
{
    struct blob *b;
    const struct buffer *key = a->buffer;
    HASH_FIND_PTR(v->blobs, &key, b);
    if (b || !(b = mem_calloc(1, sizeof *b)))
        return b;
    *b = (struct blob){.buffer = key,
                       .number = HASH_COUNT(v->blobs),
                       .nbytes = array_buffer_nbytes(a),
                       .device = array_device(a),
                       .dtype = array_buffer_dtype(a),
                       .host = array_in_host_memory(a)};
    HASH_ADD_PTR(v->blobs, buffer, b);
    if (!b->hh.tbl) {
        mem_free(b);
        return NULL;
    }
    b->array = array_ref(a);
    return b;
}

static enum err_code add_handles(struct saver *v, struct owner *o,
                                 const struct handle_image *images, size_t n, struct err *e)
{
    o->entries = mem_calloc(n, sizeof *o->entries);
    if (!o->entries)
        return err_oom(e);
    for (size_t i = 0; i < n; i++) {
        struct entry *x = &o->entries[o->n_entries++];
        x->blob = blob_of(v, images[i].array);
        if (!x->blob)
            return err_oom(e);
        memcpy(x->id, images[i].id, ID_SIZE);
        x->from = v->text.len;
        put_handle(&v->text, &images[i], x->blob->number);
        x->to = v->text.len;
    }
    return v->text.failed ? err_oom(e) : ERR_OK;
}

/* Handles before sessions: a handle whose session is gone by then is left out by who reads it. */
static void visit(void *user, struct principal *p)
{
    struct saver *v = user;
    struct handle_image *images = NULL;
    size_t n = 0;
    if (v->code != ERR_OK)
        return;
    struct owner *more = mem_reallocarray(v->owners, v->n_owners + 1, sizeof *more);
    if (!more) {
        v->code = err_oom(v->e);
        return;
    }
    v->owners = more;
    struct owner *o = &more[v->n_owners++];
    *o = (struct owner){.principal = p};
    v->code = handles_images(p->handles, &images, &n, v->e);
    if (v->code == ERR_OK)
        v->code = add_handles(v, o, images, n, v->e);
    for (size_t i = 0; i < n; i++)
        array_unref(images[i].array);
    mem_free(images);
    put_sessions(v, o);
    put_functions(o);
    if (v->code == ERR_OK && (o->sessions.failed || o->functions.failed))
        v->code = err_oom(v->e);
}

/* --- memories --- */

static bool is_late(const struct saver *v)
{
    return v->deadline_ns && clock_ns() > v->deadline_ns;
}

static enum err_code stopped(const struct saver *v)
{
    return atomic_load(v->stop) ? err_set(v->e, ERR_DRAINING, "the daemon is shutting down")
                                : ERR_OK;
}

/* *ret_left_out: it cannot be read, or there was no time. */
static enum err_code pull_blob(struct saver *v, struct blob *b, struct download *d,
                               bool *ret_left_out)
{
    for (int64_t at = 0; at < b->nbytes;) {
        enum err_code r = stopped(v);
        if (r != ERR_OK)
            return r;
        if (is_late(v)) {
            *ret_left_out = true;
            return ERR_OK;
        }
        int64_t got = download_pull(d, at, v->piece, PIECE);
        if (got == 0)
            state_bell_wait(&v->bell);
        if (got < 0 && download_result(d) == ERR_DEVICE_LOST)
            return err_set(v->e, ERR_DEVICE_LOST, "the device is lost");
        if (got < 0) {
            *ret_left_out = true;
            return ERR_OK;
        }
        if (got > 0 && (r = state_write(v->writer, v->piece, (size_t)got, v->e)) != ERR_OK)
            return r;
        at += got;
    }
    return ERR_OK;
}

/* From the engine to a file. */
static enum err_code copy_blob(struct saver *v, struct blob *b, bool *ret_left_out)
{
    struct download *d = NULL;
    struct engine_stream **s = &v->streams[b->device];
    enum err_code r = ERR_OK;
    if (!*s)
        r = engine_stream_new(v->server->engine, b->device, s, v->e);
    if (r == ERR_OK)
        r = download_buffer(*s, b->array, state_bell_ring, &v->bell, &d, v->e);
    if (r != ERR_OK)
        return r;
    b->version = download_version(d);
    r = pull_blob(v, b, d, ret_left_out);
    download_free(d);
    return r;
}

static enum err_code try_blob(struct saver *v, struct blob *b, bool *ret_left_out)
{
    *ret_left_out = false;
    enum err_code r = state_write_open(v->writer, b->nbytes >= APART, b->file.name, &b->at, v->e);
    if (r == ERR_OK && b->nbytes > 0)
        r = copy_blob(v, b, ret_left_out);
    if (r == ERR_OK && *ret_left_out)
        return state_write_drop(v->writer, v->e);
    if (r == ERR_OK)
        r = state_write_close(v->writer, b->file.digest, v->e);
    b->written = r == ERR_OK;
    return r;
}

/* What has not changed since the last snapshot costs no time, so there is always some for it. */
static bool blob_again(struct saver *v, struct blob *b)
{
    uint64_t version = array_version(b->array);
    bool outside = array_written_outside(b->array); /* it changes without its version */
    const struct state_kept_file *file =
        b->nbytes >= APART && !outside ? state_kept_find(v->kept, version) : NULL;
    if (!file || !state_write_again(v->writer, file->name))
        return false;
    b->file = *file;
    b->version = version;
    v->report.reused += b->nbytes;
    return true;
}

static enum err_code write_blob(struct saver *v, struct blob *b)
{
    enum err_code r = stopped(v);
    bool left_out = true;
    if (r == ERR_OK)
        b->written = blob_again(v, b);
    for (int i = 0; r == ERR_OK && left_out && !b->written && !is_late(v) && i < ATTEMPTS; i++) {
        if (i > 0)
            state_bell_wait(&v->bell);
        r = try_blob(v, b, &left_out);
    }
    array_unref(b->array);
    b->array = NULL;
    if (b->written)
        v->report.bytes += b->nbytes;
    return r;
}

static int by_size(const void *a, const void *b)
{
    const struct blob *x = *(struct blob *const *)a, *y = *(struct blob *const *)b;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static enum err_code write_blobs(struct saver *v)
{
    size_t n = HASH_COUNT(v->blobs), i = 0;
    struct blob **order = mem_calloc(n, sizeof(struct blob *)), *b, *tmp;
    if (!order)
        return err_oom(v->e);
    HASH_ITER (hh, v->blobs, b, tmp) {
        order[i++] = b;
    }
    qsort(order, n, sizeof *order, by_size);
    enum err_code r = ERR_OK;
    for (i = 0; i < n && r == ERR_OK; i++)
        r = write_blob(v, order[i]);
    mem_free(order);
    return r;
}

/* --- the manifest --- */

static void put_blob(struct json_writer *w, const struct blob *b)
{
    if (!b->written) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    json_put_member_string(w, "file", b->file.name);
    json_put_member_i64(w, "at", b->at);
    json_put_member_i64(w, "bytes", b->nbytes);
    json_put_member_string(w, "sha256", b->file.digest);
    json_put_member_string(w, "dtype", dtype_name(b->dtype));
    json_put_member_i64(w, "device", b->device);
    json_put_member_bool(w, "host", b->host);
    json_close_object(w);
}

static void put_owner(struct saver *v, struct json_writer *w, const struct owner *o)
{
    json_open_object(w);
    json_put_member_string(w, "name", o->principal->name);
    json_put_key(w, "sessions");
    json_put_raw(w, o->sessions.data, o->sessions.len);
    json_put_key(w, "functions");
    json_put_raw(w, o->functions.data, o->functions.len);
    json_put_key(w, "arrays");
    json_open_list(w);
    for (size_t i = 0; i < o->n_entries; i++) {
        const struct entry *x = &o->entries[i];
        if (x->blob->written) {
            json_put_raw(w, v->text.data + x->from, x->to - x->from);
            v->report.arrays++;
        } else {
            log_event(LOG_WARN, "an array is not in the snapshot", "id", x->id, "principal",
                      o->principal->name, "reason",
                      is_late(v) ? "no time" : "its contents cannot be read", NULL);
            v->report.left_out++;
        }
    }
    json_close_list(w);
    json_close_object(w);
}

static void put_share(void *user, const char *id, const struct principal *owner,
                      const struct principal *who, bool write)
{
    struct json_writer *w = user;
    json_open_object(w);
    json_put_member_string(w, "array", id);
    json_put_member_string(w, "owner", owner->name);
    json_put_member_string(w, "principal", who->name);
    json_put_member_bool(w, "write", write);
    json_close_object(w);
}

static void put_manifest(struct saver *v, struct strb *out)
{
    struct json_writer w = JSON_WRITER(out);
    struct blob *b, *tmp;
    json_open_object(&w);
    json_put_member_i64(&w, "arrayd_state", STATE_VERSION);
    json_put_member_string(&w, "arrayd", ARRAYD_VERSION);
    json_put_member_i64(&w, "taken_us", v->report.taken_us);
    json_put_key(&w, "memories");
    json_open_list(&w);
    HASH_ITER (hh, v->blobs, b, tmp) {
        put_blob(&w, b);
    }
    json_close_list(&w);
    json_put_key(&w, "principals");
    json_open_list(&w);
    for (size_t i = 0; i < v->n_owners; i++)
        put_owner(v, &w, &v->owners[i]);
    json_close_list(&w);
    json_put_key(&w, "shares");
    json_open_list(&w);
    share_each_of_all(v->server->shares, put_share, &w);
    json_close_list(&w);
    json_close_object(&w);
}

/* --- all of it --- */

static void release(struct saver *v)
{
    struct blob *b, *tmp;
    HASH_ITER (hh, v->blobs, b, tmp) {
        HASH_DEL(v->blobs, b);
        array_unref(b->array);
        mem_free(b);
    }
    for (size_t i = 0; i < v->n_owners; i++) {
        strb_free(&v->owners[i].sessions);
        strb_free(&v->owners[i].functions);
        mem_free(v->owners[i].entries);
    }
    mem_free(v->owners);
    strb_free(&v->text);
    for (int i = 0; v->streams && i < engine_device_count(v->server->engine); i++)
        if (v->streams[i])
            engine_stream_unref(v->streams[i]);
    mem_free(v->streams);
    mem_free(v->piece);
    state_bell_free(&v->bell);
}

/* The files of this snapshot are what the next one may have again. */
static void keep(struct saver *v)
{
    struct blob *b, *tmp;
    state_kept_free(v->kept);
    HASH_ITER (hh, v->blobs, b, tmp) {
        if (b->written && b->nbytes >= APART)
            state_kept_add(v->kept, b->version, &b->file);
    }
}

static enum err_code write_snapshot(struct saver *v, struct state_dir *dir)
{
    _cleanup_strb_ struct strb manifest = {0};
    enum err_code r = state_write_begin(dir, &v->writer, v->e);
    if (r != ERR_OK)
        return r;
    r = write_blobs(v);
    if (r == ERR_OK) {
        put_manifest(v, &manifest);
        r = manifest.failed ? err_oom(v->e) : stopped(v);
    }
    if (r != ERR_OK) {
        state_write_abort(v->writer);
        return r;
    }
    v->report.bytes += (int64_t)manifest.len;
    r = state_write_commit(v->writer, manifest.data, manifest.len, v->e);
    if (r == ERR_OK)
        keep(v);
    return r;
}

enum err_code state_write_all(struct server *s, struct state_dir *dir, uint64_t deadline_ns,
                              const _Atomic bool *stop, struct state_kept **kept,
                              struct state_report *ret, struct err *e)
{
    struct saver v = {.server = s, .deadline_ns = deadline_ns, .stop = stop, .kept = kept, .e = e};
    enum err_code r = state_bell_init(&v.bell, e);
    if (r != ERR_OK)
        return r;
    v.piece = mem_alloc(PIECE);
    v.streams = mem_calloc((size_t)engine_device_count(s->engine), sizeof(struct engine_stream *));
    if (!v.piece || !v.streams)
        r = err_oom(e);
    v.report.taken_us = clock_date_us();
    if (r == ERR_OK) {
        auth_each(s->auth, visit, &v);
        r = v.code;
    }
    if (r == ERR_OK)
        r = write_snapshot(&v, dir);
    release(&v);
    if (r == ERR_OK)
        *ret = v.report;
    return r;
}
