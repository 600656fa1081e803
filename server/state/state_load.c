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
#include "compute/lang/function.h"
#include "protocol/json/json.h"
#include "server/kept/journal_writer.h"
#include "server/kept/kept.h"
#include "server/kept/member.h"
#include "server/kept/recover.h"
#include "server/server.h"
#include "server/state/state_event.h"
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
    struct state_event event;
    struct state_kept **kept;
    struct state_passed *passed;
    struct passed_memory **without; /* by number: memories that found no room */
    int64_t taken_us;
    bool only_passed; /* state_read_all */
    struct state_report report;
    struct err *e;
};

/* --- sessions --- */

static enum err_code restore_session(struct loader *l, struct principal *p, struct json v)
{
    struct session image = {0}, *s;
    TRY(kept_read_session(v, l->server->engine, &image, l->e));
    TRY(session_restore(p->sessions, &image, &s, l->e));
    session_unref(s);
    return ERR_OK;
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
            state_event_wait(&l->event);
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
    enum err_code code = engine_move(s, a, true, state_event_done, &l->event, &why);
    if (code == ERR_OK) {
        while (!state_event_wait(&l->event))
            ;
        code = l->event.result;
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
    return member_i64_given(v, "taken_us", ret_us, l->e);
}

/* A memory's entry, and the device that it goes to: its session's, wherever it was. */
struct stored {
    struct state_kept_file file;
    int device;
    bool host;
};

static enum err_code read_entry(struct loader *l, struct json v, struct stored *ret)
{
    struct state_kept_file *file = &ret->file;
    struct json x;
    TRY(member_text(v, "file", file->name, sizeof file->name, l->e));
    TRY(member_i64(v, "at", &file->at, l->e));
    TRY(member_i64(v, "bytes", &file->nbytes, l->e));
    TRY(taken(l, v, &file->taken_us));
    TRY(member_text(v, "sha256", file->digest, sizeof file->digest, l->e));
    TRY(json_require(v, "dtype", &x, l->e));
    TRY(json_get_dtype(x, &file->dtype, l->e));
    TRY(member_bool(v, "host", &ret->host, l->e));
    return dtype_size(file->dtype) == 1 && file->at <= INT64_MAX - file->nbytes
               ? ERR_OK
               : json_err(v, l->e, ERR_STATE, "this memory cannot be");
}

/* *ret_fits: its device has room for it, in one piece. */
static enum err_code load_memory(struct loader *l, size_t number, struct stored *m,
                                 struct account *account, bool *ret_fits)
{
    struct state_kept_file *file = &m->file;
    char is[STATE_DIGEST];
    struct err why = ERR_INIT;
    struct engine_stream *s;
    struct upload *u;
    *ret_fits = true;
    TRY(stream_of(l, m->device, &s));
    enum err_code code = upload_new(s, account, file->nbytes, state_event_set, &l->event, &u, &why);
    if ((code == ERR_OUT_OF_MEMORY && why.wanted) || (code == ERR_QUOTA && l->only_passed)) {
        *ret_fits = false;
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
    if (l->kept)
        state_kept_add(l->kept, array_memory_id(l->bases[number]), file);
    return m->host ? move_out(l, s, l->bases[number]) : ERR_OK;
}

/* Where a session of the mesh is on one GPU, for want of a mesh, what that has no room for goes to
 * another one. */
static enum err_code load_of(struct loader *l, size_t number, struct stored *m,
                             const struct session *s, const char *id, bool *ret_fits)
{
    const struct engine *g = l->server->engine;
    const bool instead = engine_kept_is_mesh(s->kept_device) && engine_mesh(g) < 0;
    m->device = s->device;
    TRY(load_memory(l, number, m, s->account, ret_fits));
    for (int i = 0; instead && !*ret_fits && i < engine_single_count(g); i++) {
        m->device = i;
        TRY(load_memory(l, number, m, s->account, ret_fits));
    }
    if (*ret_fits && m->device != s->device)
        log_event(LOG_WARN, "an array of the mesh is not on the device of its session", "id", id,
                  "session", s->id, NULL);
    return ERR_OK;
}

/* --- handles --- */

static enum err_code pass_array(struct loader *l, struct principal *p, struct json v,
                                const struct handle_image *h, size_t number,
                                const struct state_kept_file *file)
{
    log_event(LOG_WARN, "no memory for an array: it was not restored, and stays in the state", "id",
              h->id, "principal", p->name, NULL);
    writer_passed(l->server->writer, p->name, h->id, true);
    TRY(handles_keep_coordinates(p->handles, h->labels, l->e));
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
        TRY(load_of(l, number, &m, s, h->id, &room));
    if (!room)
        return pass_array(l, p, v, h, number, &m.file);
    TRY(kept_read_array(v, l->bases[number], &h->array, l->e));
    if (h->name[0] && handle_check_name(s->handles, h->name, NAME_NEW, NULL) != ERR_OK)
        h->name[0] = '\0'; /* it was passed over before, and another array has the name now */
    h->restored_us = m.file.taken_us;
    enum err_code code = handle_restore(s->handles, h, l->e);
    l->report.arrays++;
    return code;
}

static enum err_code memory_there(const struct loader *l, struct json v, int64_t number)
{
    return number < (int64_t)l->n_memories && json_kind(l->memories[number]) == JSON_OBJECT
               ? ERR_OK
               : json_err_member(v, "memory", l->e, ERR_STATE, "there is no such memory");
}

static enum err_code restore_handle(struct loader *l, struct principal *p, struct json v)
{
    _cleanup_kept_handle_ struct kept_handle h = {0};
    TRY(kept_read_handle(v, &h, l->e));
    TRY(memory_there(l, v, h.memory));
    _cleanup_session_ struct session *s = NULL;
    if (session_get(p->sessions, h.image.session, false, &s, NULL) != ERR_OK)
        return ERR_OK; /* deleted while the snapshot began */
    return enter(l, p, v, s, &h.image, (size_t)h.memory);
}

/* --- functions and shares --- */

static const char *function_name(struct json v)
{
    struct json name = json_member(json_member(v, "definition"), "name");
    return json_kind(name) == JSON_STRING ? json_text(name, &(size_t){0}) : "";
}

/* Passes over a function that this version reads differently from the one that saved it: its name
 * may be an operation's now. */
static enum err_code pass_function(struct loader *l, struct principal *p, struct json v,
                                   const struct err *why)
{
    const char *name = function_name(v);
    log_event(LOG_WARN, "a function was not restored, and stays in the state", "name", name,
              "principal", p->name, "reason", why->message, NULL);
    writer_passed(l->server->writer, p->name, name, true);
    return passed_add_function(l->passed, p, v, l->e);
}

static enum err_code restore_function(struct loader *l, struct principal *p, struct json v)
{
    struct definition *d;
    struct err why = ERR_INIT;
    TRY(kept_read_function(l->server->config, v, &d, &why, l->e));
    enum err_code code = d ? functions_restore(p->functions, d, &why) : why.code;
    if (d && code != ERR_OK)
        function_unref(d->function);
    if (code != ERR_OUT_OF_MEMORY)
        return code == ERR_OK ? code : pass_function(l, p, v, &why);
    *l->e = why;
    return code;
}

/* A share of an array that does not exist has no effect; the table drops it when it is full. */
static enum err_code restore_share(struct loader *l, struct json v)
{
    struct kept_share share;
    struct principal *p[2];
    TRY(kept_read_share(v, &share, l->e));
    for (int i = 0; i < 2; i++) {
        enum err_code code = auth_open(l->server->auth, i ? share.who : share.owner, &p[i], l->e);
        if (code != ERR_OK)
            return code == ERR_NOT_FOUND ? ERR_OK : code;
    }
    return share_restore(l->server->shares, p[0], share.id, p[1], share.write, l->e);
}

/* --- all of it --- */

static enum err_code each(struct loader *l, struct principal *p, struct json v, const char *name,
                          enum err_code restore(struct loader *l, struct principal *p,
                                                struct json v))
{
    struct json list;
    TRY(member_list(v, name, &list, l->e));
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        TRY(restore(l, p, x));
    return ERR_OK;
}

/* Of arrays that the journal says are in the state alone. If there is still no room, it goes on
 * saying so. */
static enum err_code keep_array(struct loader *l, struct principal *p, struct json v)
{
    _cleanup_kept_handle_ struct kept_handle h = {0};
    struct journal_writer *k = l->server->writer;
    TRY(kept_read_handle(v, &h, l->e));
    if (!writer_has_passed(k, p->name, h.image.id))
        return ERR_OK;
    if (!handle_exists(p->handles, h.image.id))
        TRY(restore_handle(l, p, v));
    if (handle_exists(p->handles, h.image.id))
        writer_passed_no_more(k, p->name, h.image.id);
    return ERR_OK;
}

static enum err_code keep_function(struct loader *l, struct principal *p, struct json v)
{
    return writer_has_passed(l->server->writer, p->name, function_name(v))
               ? passed_add_function(l->passed, p, v, l->e)
               : ERR_OK;
}

static bool has_function(struct json list, const char *name)
{
    struct json x = json_first(list);
    while (json_present(x) && strcmp(function_name(x), name) != 0)
        x = json_next(x);
    return json_present(x);
}

/* What the process passed over that took this snapshot, or began with it. In the latter case a
 * function of that name may have been defined since: it is another one. */
static enum err_code pass_again(struct loader *l, struct principal *p, struct json v,
                                struct json before)
{
    struct json list, known = {0};
    if (json_present(before)) {
        TRY(each(l, p, before, "arrays", keep_array));
        TRY(each(l, p, before, "functions", keep_function));
        TRY(member_list(before, "functions", &known, l->e));
    }
    TRY(each(l, p, v, "arrays", keep_array));
    TRY(member_list(v, "functions", &list, l->e));
    for (struct json x = json_first(list); json_present(x); x = json_next(x))
        if (!json_present(before) || !has_function(known, function_name(x)))
            TRY(keep_function(l, p, x));
    return ERR_OK;
}

static enum err_code read_principal(struct loader *l, struct json v, const char **ret)
{
    struct json x;
    TRY(json_require(v, "name", &x, l->e));
    return json_get_string(x, ret, NULL, l->e);
}

static enum err_code check_principal(struct loader *l, struct json v)
{
    const char *name;
    TRY(read_principal(l, v, &name));
    return l->only_passed ? ERR_OK : auth_check_left(l->server->auth, name, l->e);
}

static enum err_code restore_settings(struct loader *l, struct principal *p, struct json v)
{
    struct setting_changes c;
    if (!json_present(v))
        return ERR_OK;
    TRY(kept_read_settings(v, &c, l->e));
    auth_restore_changes(l->server->auth, p, &c);
    return ERR_OK;
}

static enum err_code restore_month(struct loader *l, struct principal *p, struct json v)
{
    struct account_months m;
    if (!json_present(v))
        return ERR_OK;
    TRY(kept_read_months(v, &m, l->e));
    account_restore_months(p->account, &m);
    return ERR_OK;
}

static enum err_code restore_link(struct loader *l, struct principal *p, struct json v)
{
    const struct kept_links *links = l->server->links;
    struct kept_link link;
    TRY(kept_read_link(v, &link, l->e));
    return links ? links->restore(links->table, p, &link, l->e) : ERR_OK;
}

static enum err_code restore_links_of(struct loader *l, struct json v)
{
    const char *name;
    struct principal *p;
    if (!json_present(json_member(v, "links")))
        return ERR_OK;
    TRY(read_principal(l, v, &name));
    enum err_code code = auth_open(l->server->auth, name, &p, l->e);
    if (code != ERR_OK)
        return code == ERR_NOT_FOUND ? ERR_OK : code;
    return each(l, p, v, "links", restore_link);
}

/* The process that wrote them has ended; the next one takes them, once, here or from the journal,
 * since it may end some that must not come back then. */
static enum err_code restore_links(struct loader *l, struct json principals)
{
    struct err why = ERR_INIT;
    bool any = false;
    for (struct json x = json_first(principals); json_present(x); x = json_next(x))
        any |= json_present(json_member(x, "links"));
    if (any && state_read_once(l->reader, &why) != ERR_OK) {
        log_event(LOG_WARN, "the snapshot's read-only links are not restored: some may have ended",
                  "reason", why.message, NULL);
        return ERR_OK;
    }
    for (struct json x = json_first(principals); json_present(x) && any && !l->only_passed;
         x = json_next(x))
        TRY(restore_links_of(l, x));
    return ERR_OK;
}

static enum err_code restore_principal(struct loader *l, struct json v)
{
    struct json x;
    const char *name;
    TRY(read_principal(l, v, &name));
    struct principal *p;
    enum err_code code = auth_open(l->server->auth, name, &p, l->e);
    if (code == ERR_NOT_FOUND) {
        log_event(LOG_WARN,
                  "the data of a principal that no longer has an account was not restored",
                  "principal", name, NULL);
        return ERR_OK;
    }
    if (code != ERR_OK)
        return code;
    x = json_member(v, "passed_over");
    recover_lift(p);
    if (l->only_passed) {
        code = pass_again(l, p, v, x);
        recover_limit(l->server->auth, p);
        return code;
    }
    TRY(each(l, p, v, "sessions", restore_session));
    TRY(each(l, p, v, "arrays", restore_handle));
    TRY(each(l, p, v, "functions", restore_function));
    if (json_present(x)) {
        TRY(each(l, p, x, "arrays", restore_handle));
        TRY(each(l, p, x, "functions", restore_function));
    }
    TRY(restore_settings(l, p, json_member(v, "settings")));
    TRY(restore_month(l, p, json_member(v, "month")));
    recover_limit(l->server->auth, p);
    return ERR_OK;
}

static enum err_code read_head(struct loader *l, struct arena *arena, struct json doc)
{
    struct json list;
    int64_t version;
    TRY(member_i64(doc, "arrayd_state", &version, l->e));
    if (version < STATE_VERSION_PLAIN || version > STATE_VERSION)
        return err_set(l->e, ERR_STATE,
                       "the snapshot has format %lld, but this version knows none after %d",
                       (long long)version, STATE_VERSION);
    TRY(member_i64(doc, "taken_us", &l->taken_us, l->e));
    if (json_present(json_member(doc, "beside")))
        TRY(member_i64(doc, "beside", &l->report.beside, l->e));
    TRY(member_list(doc, "memories", &list, l->e));
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
    struct json doc, list, principals;
    TRY(json_parse(arena, l->reader->manifest, l->reader->n, &limits, &doc, l->e));
    TRY(read_head(l, arena, doc));
    TRY(member_list(doc, "principals", &principals, l->e));
    for (struct json x = json_first(principals); json_present(x); x = json_next(x))
        TRY(check_principal(l, x));
    for (struct json x = json_first(principals); json_present(x); x = json_next(x))
        TRY(restore_principal(l, x));
    if (!l->only_passed) {
        TRY(member_list(doc, "shares", &list, l->e));
        for (struct json x = json_first(list); json_present(x); x = json_next(x))
            TRY(restore_share(l, x));
    }
    return restore_links(l, principals);
}

/* Waits until all uploads and moves are done. */
static enum err_code settle(struct loader *l)
{
    for (int i = 0; i < engine_device_count(l->server->engine); i++) {
        if (!l->streams[i])
            continue;
        engine_sync(l->streams[i], state_event_done, &l->event);
        while (!state_event_wait(&l->event))
            ;
        if (l->event.result != ERR_OK)
            return err_set(l->e, l->event.result, "%s", err_title(l->event.result));
    }
    return ERR_OK;
}

enum err_code state_read_all(struct server *s, struct state_reader *r, struct state_kept **kept,
                             struct state_passed *passed, struct state_report *ret, struct err *e)
{
    struct loader l = {
        .server = s, .reader = r, .kept = kept, .passed = passed, .only_passed = !kept, .e = e};
    int devices = engine_device_count(s->engine);
    _cleanup_arena_ struct arena *arena = arena_new(0);
    enum err_code code = arena ? state_event_init(&l.event, e) : err_oom(e);
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
    state_event_free(&l.event);
    if (code == ERR_OK)
        *ret = l.report;
    return code;
}
