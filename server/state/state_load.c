/* Restores the last snapshot into a server that has had no request yet.
 *
 * The manifest is checked against its sum before it is parsed (state_dir.c), each memory's data
 * during the upload; the first error ends the restore. Sessions come first, without memory limits
 * and quotas: what they had, they may have again. Then each principal's handles in the order they
 * were made, each memory with the first handle on it, whose session is charged from now on; then
 * functions and shares. A principal without an account is passed over and logged: the operator
 * removed the account, so this is no damage. */
#include <nettle/sha2.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "protocol/json/json.h"
#include "server/body/function_json.h"
#include "server/body/grid_json.h"
#include "server/config.h"
#include "server/server.h"
#include "server/state/state_bell.h"
#include "server/state/state_int.h"
#include "server/state/state_passed.h"
#include "server/store/auth.h"
#include "server/store/share.h"

#define PIECE (1 << 20)

struct loader {
    struct server *server;
    struct state_reader *reader;
    struct json *memories; /* by number */
    struct array **bases;  /* by number: the memory as an array of its bytes, once it is there */
    size_t n_memories;
    struct engine_stream **streams; /* by device */
    struct state_bell bell;
    struct state_kept **kept;
    struct state_passed *passed;
    struct passed_memory **without; /* by number: memories that found no room */
    struct config widest;           /* limits that a function may have been defined under */
    int64_t taken_us;
    struct state_report report;
    struct err *e;
};

/* --- members --- */

static enum err_code get_i64(struct loader *l, struct json v, const char *name, int64_t *ret)
{
    struct json x;
    TRY(json_require(v, name, &x, l->e));
    return json_get_i64(x, 0, INT64_MAX, ret, l->e);
}

static enum err_code get_bool(struct loader *l, struct json v, const char *name, bool *ret)
{
    struct json x;
    TRY(json_require(v, name, &x, l->e));
    return json_get_bool(x, ret, l->e);
}

static enum err_code get_list(struct loader *l, struct json v, const char *name, struct json *ret)
{
    TRY(json_require(v, name, ret, l->e));
    return json_kind(*ret) == JSON_LIST ? ERR_OK
                                        : json_err(*ret, l->e, ERR_STATE, "this is to be a list");
}

/* Text of at most `size` − 1 bytes. */
static enum err_code get_text(struct loader *l, struct json v, const char *name, char *ret,
                              size_t size)
{
    struct json x;
    const char *text;
    size_t n;
    TRY(json_require(v, name, &x, l->e));
    TRY(json_get_string(x, &text, &n, l->e));
    if (n >= size)
        return json_err(x, l->e, ERR_STATE, "this is too long");
    memset(ret, 0, size);
    memcpy(ret, text, n);
    return ERR_OK;
}

static enum err_code get_id(struct loader *l, struct json v, const char *name, char prefix,
                            bool optional, char ret[ID_SIZE])
{
    TRY(get_text(l, v, name, ret, ID_SIZE));
    return (optional && !*ret) || id_is(prefix, ret)
               ? ERR_OK
               : json_err_member(v, name, l->e, ERR_STATE, "this is no id");
}

/* If there are fewer devices now, the arrays of the missing ones are spread over the others. */
static int device_of(const struct loader *l, int64_t was)
{
    return (int)(was % engine_device_count(l->server->engine));
}

/* --- sessions --- */

static enum err_code restore_session(struct loader *l, struct principal *p, struct json v)
{
    struct session image = {0}, *s;
    struct json x;
    int64_t device;
    TRY(get_id(l, v, "id", 's', false, image.id));
    TRY(get_text(l, v, "name", image.name, NAME_SIZE));
    TRY(get_bool(l, v, "default", &image.is_default));
    TRY(get_i64(l, v, "created_us", &image.created_us));
    TRY(json_require(v, "ttl_s", &x, l->e));
    TRY(json_get_double(x, &image.ttl_s, l->e));
    TRY(get_i64(l, v, "memory_limit", &image.memory_limit));
    TRY(get_i64(l, v, "device", &device));
    image.device = device_of(l, device);
    TRY(session_restore(p->sessions, &image, &s, l->e));
    session_unref(s);
    return ERR_OK;
}

static void limit_sessions(struct loader *l, struct principal *p)
{
    struct session *s;
    struct quotas may, has;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    while (session_list(p->sessions, after, 1, &s, &more) == 1) {
        after = s->seq;
        session_limit(s);
        session_unref(s);
    }
    auth_quotas(l->server->auth, p, &may, &has);
    account_set_limits(p->account, may.device_memory, may.host_memory);
}

/* --- memories --- */

static enum err_code stream_of(struct loader *l, int device, struct engine_stream **ret)
{
    if (!l->streams[device])
        TRY(engine_stream_new(l->server->engine, device, &l->streams[device], l->e));
    *ret = l->streams[device];
    return ERR_OK;
}

/* Reads straight from the file into the staging memory. */
static enum err_code fill(struct loader *l, struct upload *u, const char *file, int64_t at,
                          int64_t nbytes, char digest[STATE_DIGEST])
{
    struct sha256_ctx sum;
    sha256_init(&sum);
    for (int64_t done = 0; done < nbytes;) {
        size_t room;
        void *to = upload_reserve(u, &room);
        if (!to) {
            state_bell_wait(&l->bell);
            if (atomic_load(&l->server->device_lost))
                return err_set(l->e, ERR_DEVICE_LOST, "the device is lost");
            continue;
        }
        int64_t n = nbytes - done < PIECE ? nbytes - done : PIECE;
        if ((size_t)n > room)
            n = (int64_t)room;
        TRY(state_read(l->reader, file, at + done, to, (size_t)n, l->e));
        sha256_update(&sum, (size_t)n, to);
        upload_advance(u, (size_t)n);
        done += n;
    }
    state_digest(&sum, digest);
    return ERR_OK;
}

/* Moves an array to host memory if it was there; without room it stays on the device. */
static enum err_code move_out(struct loader *l, struct engine_stream *s, struct array *a)
{
    struct err why = ERR_INIT;
    enum err_code code = engine_move(s, a, true, state_bell_done, &l->bell, &why);
    if (code == ERR_OK) {
        while (!state_bell_wait(&l->bell))
            ;
        code = l->bell.result;
    }
    if (code == ERR_DEVICE_LOST)
        return err_set(l->e, code, "the device is lost");
    if (code != ERR_OK)
        log_event(LOG_WARN, "an array that was in host memory stays on the device", "reason",
                  *why.message ? why.message : err_title(code), NULL);
    return ERR_OK;
}

/* The time of the contents, which may be an earlier snapshot's. */
static enum err_code taken(struct loader *l, struct json v, int64_t *ret_us)
{
    *ret_us = l->taken_us;
    return json_present(json_member(v, "taken_us")) ? get_i64(l, v, "taken_us", ret_us) : ERR_OK;
}

/* A memory's entry. */
struct stored {
    struct state_kept_file file;
    int device;
    bool host;
};

static enum err_code read_entry(struct loader *l, struct json v, struct stored *ret)
{
    struct state_kept_file *file = &ret->file;
    struct json x;
    int64_t device;
    TRY(get_text(l, v, "file", file->name, sizeof file->name));
    TRY(get_i64(l, v, "at", &file->at));
    TRY(get_i64(l, v, "bytes", &file->nbytes));
    TRY(taken(l, v, &file->taken_us));
    TRY(get_text(l, v, "sha256", file->digest, sizeof file->digest));
    TRY(json_require(v, "dtype", &x, l->e));
    TRY(json_get_dtype(x, &file->dtype, l->e));
    TRY(get_i64(l, v, "device", &device));
    TRY(get_bool(l, v, "host", &ret->host));
    ret->device = device_of(l, device);
    return dtype_size(file->dtype) == 1 && file->at <= INT64_MAX - file->nbytes
               ? ERR_OK
               : json_err(v, l->e, ERR_STATE, "this memory cannot be");
}

/* *ret_room: its device has room for it, in one piece. */
static enum err_code load_memory(struct loader *l, size_t number, struct stored *m,
                                 struct account *account, bool *ret_room)
{
    struct state_kept_file *file = &m->file;
    char is[STATE_DIGEST];
    struct err why = ERR_INIT;
    struct engine_stream *s;
    struct upload *u;
    *ret_room = true;
    TRY(stream_of(l, m->device, &s));
    enum err_code code = upload_new(s, account, file->nbytes, state_bell_ring, &l->bell, &u, &why);
    if (code == ERR_OUT_OF_MEMORY && why.wanted) {
        *ret_room = false;
        return ERR_OK;
    }
    if (code != ERR_OK) {
        *l->e = why;
        return code;
    }
    code = fill(l, u, file->name, file->at, file->nbytes, is);
    if (code == ERR_OK && strcmp(is, file->digest) != 0)
        code = json_err(l->memories[number], l->e, ERR_STATE,
                        "data: damaged: the SHA-256 of %lld bytes at %lld is wrong",
                        (long long)file->nbytes, (long long)file->at);
    if (code != ERR_OK) {
        upload_abort(u);
        return code;
    }
    TRY(upload_finish_new(u, file->dtype, 1, &file->nbytes, false, &l->bases[number], l->e));
    l->report.bytes += file->nbytes;
    file->version = array_version(l->bases[number]);
    state_kept_add(l->kept, array_memory_id(l->bases[number]), file);
    return m->host ? move_out(l, s, l->bases[number]) : ERR_OK;
}

/* --- handles --- */

static enum err_code read_grid(struct loader *l, struct json v, enum dtype dtype, int rank,
                               struct grid **ret)
{
    struct grid desc;
    struct json padded = json_member(v, "padded");
    size_t n;
    grid_init(&desc, rank);
    TRY(grid_json_read(v, dtype, &desc, l->e));
    TRY(get_bool(l, v, "has_boundary", &desc.has_boundary));
    TRY(get_bool(l, v, "whole", &desc.whole));
    TRY(get_i64(l, v, "alignment", &desc.alignment));
    if (json_present(padded)) {
        TRY(json_get_i64_list(padded, MAX_RANK, 0, INT64_MAX, desc.padded, &n, l->e));
        if (n != (size_t)rank)
            return json_err(padded, l->e, ERR_STATE, "this is to have an extent for each axis");
        desc.is_padded = true;
    }
    *ret = grid_new(&desc);
    return *ret ? ERR_OK : err_oom(l->e);
}

static enum err_code read_view(struct loader *l, struct json v, struct view *ret)
{
    struct json shape, strides;
    size_t n;
    TRY(json_require(v, "shape", &shape, l->e));
    TRY(json_get_shape(shape, 0, &ret->rank, ret->shape, l->e));
    TRY(json_require(v, "strides", &strides, l->e));
    TRY(json_get_i64_list(strides, MAX_RANK, INT64_MIN, INT64_MAX, ret->strides, &n, l->e));
    if (n != (size_t)ret->rank)
        return json_err(strides, l->e, ERR_STATE, "this is to have a stride for each axis");
    return get_i64(l, v, "offset", &ret->offset);
}

static enum err_code make_array(struct loader *l, struct json v, struct array *base,
                                struct array **ret)
{
    enum dtype dtype;
    struct view view = {0};
    struct json x, desc = json_member(v, "grid");
    int64_t lo, hi;
    TRY(json_require(v, "dtype", &x, l->e));
    TRY(json_get_dtype(x, &dtype, l->e));
    TRY(read_view(l, v, &view));
    view_extent(&view, &lo, &hi);
    if (lo < 0 || hi > array_buffer_nbytes(base) / (int64_t)dtype_size(dtype))
        return json_err(v, l->e, ERR_STATE, "the array is not within its memory");
    _cleanup_array_ struct array *a = array_view(base, dtype, &view);
    if (!a)
        return err_oom(l->e);
    if (json_present(desc)) {
        struct grid *grid;
        TRY(read_grid(l, desc, dtype, view.rank, &grid));
        *ret = array_view_grid(a, &view, grid);
        grid_unref(grid);
        return *ret ? ERR_OK : err_oom(l->e);
    }
    *ret = array_ref(a);
    return ERR_OK;
}

static enum err_code pass_array(struct loader *l, struct principal *p, struct json v,
                                const struct handle_image *h, size_t number,
                                const struct state_kept_file *file)
{
    log_event(LOG_WARN, "there is no room for an array: it is not restored, and stays in the state",
              "id", h->id, "principal", p->name, NULL);
    return passed_add_array(l->passed, p, h->session, v, &l->without[number], l->memories[number],
                            file, l->e);
}

static enum err_code enter(struct loader *l, struct principal *p, struct json v, struct session *s,
                           struct handle_image *h, size_t number)
{
    struct stored m;
    bool room = !l->without[number];
    TRY(read_entry(l, l->memories[number], &m));
    if (room && !l->bases[number])
        TRY(load_memory(l, number, &m, s->account, &room));
    if (!room)
        return pass_array(l, p, v, h, number, &m.file);
    TRY(make_array(l, v, l->bases[number], &h->array));
    if (h->name[0] && handle_check_name(s->handles, h->name, NAME_NEW, NULL) != ERR_OK)
        h->name[0] = '\0'; /* it was passed over before, and another array has the name now */
    enum err_code code = handle_restore(s->handles, h, m.file.taken_us, l->e);
    array_unref(h->array);
    l->report.arrays++;
    return code;
}

static enum err_code restore_handle(struct loader *l, struct principal *p, struct json v)
{
    struct handle_image h = {0};
    int64_t seq, number;
    TRY(get_id(l, v, "id", 'a', false, h.id));
    TRY(get_text(l, v, "name", h.name, NAME_SIZE));
    TRY(get_id(l, v, "session", 's', false, h.session));
    TRY(get_id(l, v, "view_of", 'a', true, h.view_of));
    TRY(get_id(l, v, "base", 'a', true, h.base));
    TRY(get_bool(l, v, "read_only", &h.read_only));
    TRY(get_i64(l, v, "created_us", &h.created_us));
    TRY(get_i64(l, v, "seq", &seq));
    TRY(get_i64(l, v, "memory", &number));
    h.seq = (uint64_t)seq;
    if (h.name[0])
        TRY(name_check(h.name, l->e));
    if (number >= (int64_t)l->n_memories || json_kind(l->memories[number]) != JSON_OBJECT)
        return json_err_member(v, "memory", l->e, ERR_STATE, "there is no such memory");
    _cleanup_session_ struct session *s = NULL;
    if (session_get(p->sessions, h.session, false, &s, NULL) != ERR_OK)
        return ERR_OK; /* deleted while the snapshot began */
    return enter(l, p, v, s, &h, (size_t)number);
}

/* --- functions and shares --- */

/* Passes over a function that this version reads differently from the one that saved it: its name
 * may be an operation's now. */
static enum err_code pass_function(struct loader *l, struct principal *p, struct json v,
                                   struct json definition, const struct err *why)
{
    struct json name = json_member(definition, "name");
    log_event(LOG_WARN, "a function is not restored, and stays in the state", "name",
              json_kind(name) == JSON_STRING ? json_text(name, &(size_t){0}) : "", "principal",
              p->name, "reason", why->message, NULL);
    return passed_add_function(l->passed, p, v, l->e);
}

static enum err_code restore_function(struct loader *l, struct principal *p, struct json v)
{
    struct definition *d;
    struct json x;
    struct err why = ERR_INIT;
    int64_t seq, created_us;
    TRY(get_i64(l, v, "seq", &seq));
    TRY(get_i64(l, v, "created_us", &created_us));
    TRY(json_require(v, "definition", &x, l->e));
    enum err_code code = function_json_read(&l->widest, x, NULL, &d, &why);
    if (code == ERR_OK) {
        d->seq = (uint64_t)seq;
        d->created_us = created_us;
        code = functions_restore(p->functions, d, &why);
        if (code != ERR_OK)
            function_unref(d->function);
    }
    if (code != ERR_OUT_OF_MEMORY)
        return code == ERR_OK ? code : pass_function(l, p, v, x, &why);
    *l->e = why;
    return code;
}

/* A share of an array that does not exist has no effect; the table drops it when it is full. */
static enum err_code restore_share(struct loader *l, struct json v)
{
    char id[ID_SIZE];
    const char *name;
    struct principal *p[2];
    bool write, again;
    struct json x;
    TRY(get_id(l, v, "array", 'a', false, id));
    for (int i = 0; i < 2; i++) {
        TRY(json_require(v, i ? "principal" : "owner", &x, l->e));
        TRY(json_get_string(x, &name, NULL, l->e));
        enum err_code code = auth_open(l->server->auth, name, &p[i], l->e);
        if (code != ERR_OK)
            return code == ERR_NOT_FOUND ? ERR_OK : code;
    }
    TRY(get_bool(l, v, "write", &write));
    enum err_code code = share_give(l->server->shares, p[0], id, p[1], write, &again, l->e);
    if (code != ERR_QUOTA)
        return code;
    log_event(LOG_WARN, "a share is not restored: there may be no more of them", "id", id,
              "principal", p[1]->name, NULL);
    return ERR_OK;
}

/* --- all of it --- */

static enum err_code each(struct loader *l, struct principal *p, struct json v, const char *name,
                          enum err_code restore(struct loader *l, struct principal *p,
                                                struct json v))
{
    struct json list;
    TRY(get_list(l, v, name, &list));
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        TRY(restore(l, p, x));
    return ERR_OK;
}

static enum err_code restore_principal(struct loader *l, struct json v)
{
    struct json x;
    const char *name;
    TRY(json_require(v, "name", &x, l->e));
    TRY(json_get_string(x, &name, NULL, l->e));
    struct principal *p;
    enum err_code code = auth_open(l->server->auth, name, &p, l->e);
    if (code == ERR_NOT_FOUND) {
        log_event(LOG_WARN, "what a principal without an account had is not restored", "principal",
                  name, NULL);
        return ERR_OK;
    }
    if (code != ERR_OK)
        return code;
    account_set_limits(p->account, 0, 0);
    TRY(each(l, p, v, "sessions", restore_session));
    TRY(each(l, p, v, "arrays", restore_handle));
    TRY(each(l, p, v, "functions", restore_function));
    x = json_member(v, "passed_over");
    if (json_present(x)) {
        TRY(each(l, p, x, "arrays", restore_handle));
        TRY(each(l, p, x, "functions", restore_function));
    }
    limit_sessions(l, p);
    return ERR_OK;
}

static enum err_code read_head(struct loader *l, struct arena *arena, struct json doc)
{
    struct json list;
    int64_t version;
    TRY(get_i64(l, doc, "arrayd_state", &version));
    if (version != STATE_VERSION)
        return err_set(l->e, ERR_STATE, "the snapshot is of format %lld, this version knows %d",
                       (long long)version, STATE_VERSION);
    TRY(get_i64(l, doc, "taken_us", &l->taken_us));
    if (json_present(json_member(doc, "beside")))
        TRY(get_i64(l, doc, "beside", &l->report.beside));
    TRY(get_list(l, doc, "memories", &list));
    l->n_memories = json_count(list);
    l->memories = arena_alloc_array(arena, l->n_memories, sizeof *l->memories);
    l->bases = mem_calloc(l->n_memories, sizeof(struct array *));
    l->without = arena_alloc_array(arena, l->n_memories, sizeof *l->without);
    if (!l->memories || !l->bases || !l->without)
        return err_oom(l->e);
    memset(l->without, 0, l->n_memories * sizeof *l->without);
    size_t i = 0;
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        l->memories[i++] = x;
    return ERR_OK;
}

static enum err_code restore_all(struct loader *l, struct arena *arena)
{
    static const struct json_limits limits = {.max_depth = 1000, .max_nodes = UINT32_MAX};
    struct json doc, list;
    TRY(json_parse(arena, l->reader->manifest, l->reader->n, &limits, &doc, l->e));
    TRY(read_head(l, arena, doc));
    TRY(get_list(l, doc, "principals", &list));
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        TRY(restore_principal(l, x));
    TRY(get_list(l, doc, "shares", &list));
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        TRY(restore_share(l, x));
    return ERR_OK;
}

/* Waits until all uploads and moves are done. */
static enum err_code settle(struct loader *l)
{
    for (int i = 0; i < engine_device_count(l->server->engine); i++) {
        if (!l->streams[i])
            continue;
        engine_sync(l->streams[i], state_bell_done, &l->bell);
        while (!state_bell_wait(&l->bell))
            ;
        if (l->bell.result != ERR_OK)
            return err_set(l->e, l->bell.result, "%s", err_title(l->bell.result));
    }
    return ERR_OK;
}

enum err_code state_read_all(struct server *s, struct state_reader *r, struct state_kept **kept,
                             struct state_passed *passed, struct state_report *ret, struct err *e)
{
    struct loader l = {
        .server = s, .reader = r, .kept = kept, .passed = passed, .widest = *s->config, .e = e};
    l.widest.max_function_size = MOST_FUNCTION_SIZE;
    l.widest.max_nodes = MOST_NODES;
    l.widest.max_nesting = MOST_NESTING;
    int devices = engine_device_count(s->engine);
    _cleanup_arena_ struct arena *arena = arena_new(0);
    enum err_code code = arena ? state_bell_init(&l.bell, e) : err_oom(e);
    if (code != ERR_OK)
        return code;
    l.streams = mem_calloc((size_t)devices, sizeof(struct engine_stream *));
    code = l.streams ? restore_all(&l, arena) : err_oom(e);
    if (code == ERR_OK)
        code = settle(&l);
    for (size_t i = 0; l.bases && i < l.n_memories; i++)
        array_unref(l.bases[i]);
    for (int i = 0; l.streams && i < devices; i++)
        if (l.streams[i])
            engine_stream_unref(l.streams[i]);
    mem_free(l.bases);
    mem_free(l.streams);
    l.report.taken_us = l.taken_us;
    l.report.bytes += (int64_t)r->n;
    state_bell_free(&l.bell);
    if (code == ERR_OK)
        *ret = l.report;
    return code;
}
