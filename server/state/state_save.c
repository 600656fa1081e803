/* Writes everything clients have made to disk.
 *
 * First the tables, as of one moment for each principal: sessions and handles are printed under the
 * locks of their tables, so that no lock is held while data are written. Then the memories
 * (state_blobs.h), while requests continue: two memories may therefore be some requests apart,
 * except when nothing else runs, as at the end of the daemon. Last the manifest, which names only
 * what has been written. */
#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "server/config/config.h"
#include "server/kept/kept.h"
#include "server/server.h"
#include "server/state/state_blobs.h"
#include "server/state/state_passed.h"
#include "server/store/auth.h"
#include "server/store/share.h"

/* A handle: its text in saver.text. */
struct entry {
    struct blob *blob;
    size_t from, to;
    char id[ID_SIZE];
};

struct owner {
    const struct principal *principal;
    struct setting_changes changes;
    struct account_months months;
    struct strb sessions, functions, links; /* JSON lists */
    struct entry *entries;
    size_t n_entries;
};

struct saver {
    struct server *server;
    struct owner *owners;
    size_t n_owners;
    struct strb text; /* of all handles */
    struct blobs blobs;
    struct state_report report;
    struct state_passed *passed;
    struct state_gaps *gaps; /* or NULL */
    bool labels;             /* any array has some */
    bool last;               /* of the process */
    enum err_code code;      /* of the visit that failed */
    struct err *e;
};

/* --- the tables --- */

static void put_sessions(struct owner *o)
{
    struct json_writer w = JSON_WRITER(&o->sessions);
    struct session *s;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    json_open_list(&w);
    while (session_list(o->principal->sessions, after, 1, &s, &more) == 1) {
        after = s->seq;
        kept_put_session(&w, s, false);
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
    while (functions_list(o->principal->functions, after, 1, SIZE_MAX, &d, &more) == 1) {
        after = d->seq;
        kept_put_function(&w, d);
        function_unref(d->function);
    }
    json_close_list(&w);
}

static void put_link(void *user, const struct kept_link *l)
{
    kept_put_link(user, l);
}

static void put_links(const struct kept_links *links, struct owner *o)
{
    struct json_writer w = JSON_WRITER(&o->links);
    json_open_list(&w);
    if (links)
        links->each(links->table, o->principal, put_link, &w);
    json_close_list(&w);
}

static enum err_code add_handles(struct saver *v, struct owner *o,
                                 const struct handle_image *images, size_t n, struct err *e)
{
    struct json_writer w = JSON_WRITER(&v->text);
    o->entries = mem_calloc(n, sizeof *o->entries);
    if (!o->entries)
        return err_oom(e);
    for (size_t i = 0; i < n; i++) {
        struct entry *x = &o->entries[o->n_entries++];
        x->blob = blobs_add(&v->blobs, images[i].array, v->n_owners);
        if (!x->blob)
            return err_oom(e);
        memcpy(x->id, images[i].id, ID_SIZE);
        v->labels |= images[i].labels != NULL;
        x->from = v->text.len;
        w.comma = false;
        kept_put_array(&w, &images[i], (int64_t)x->blob->number, false);
        x->to = v->text.len;
    }
    return v->text.failed ? err_oom(e) : ERR_OK;
}

/* Handles before sessions: state_load.c leaves out a handle whose session is missing. */
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
    *o = (struct owner){.principal = p, .changes = p->changes}; /* auth_each holds their lock */
    account_months(p->account, &o->months);
    v->code = handles_images(p->handles, &images, &n, v->e);
    if (v->code == ERR_OK)
        v->code = add_handles(v, o, images, n, v->e);
    for (size_t i = 0; i < n; i++)
        handle_image_clear(&images[i]);
    mem_free(images);
    put_sessions(o);
    put_functions(o);
    put_links(v->last ? v->server->links : NULL, o);
    if (v->code == ERR_OK && (o->sessions.failed || o->functions.failed || o->links.failed))
        v->code = err_oom(v->e);
}

/* --- the manifest --- */

static void put_blob(struct json_writer *w, const struct engine *g, const struct blob *b)
{
    if (!b->there) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    json_put_member_string(w, "file", b->file.name);
    json_put_member_i64(w, "at", b->file.at);
    json_put_member_i64(w, "bytes", b->nbytes);
    json_put_member_string(w, "sha256", b->file.digest);
    json_put_member_string(w, "dtype", dtype_name(b->dtype));
    json_put_member_i64(w, "device", engine_kept_device(g, b->device));
    json_put_member_bool(w, "host", b->host);
    if (b->why)
        json_put_member_i64(w, "taken_us", b->file.taken_us);
    json_close_object(w);
}

/* An array that is not saved as it is now. */
static void put_gap(struct saver *v, const struct owner *o, const struct entry *x)
{
    const struct blob *b = x->blob;
    struct state_report *r = &v->report;
    const char *what = b->there ? "the snapshot keeps an array's contents from an earlier one"
                                : "an array is missing from the snapshot";
    *(b->there ? &r->earlier : &r->left_out) += 1;
    r->missing += !b->there && !b->unreadable;
    log_event(LOG_WARN, what, "id", x->id, "principal", o->principal->name, "reason", b->why, NULL);
    if (!v->gaps || v->gaps->n == STATE_GAPS)
        return;
    struct state_gap *g = &v->gaps->items[v->gaps->n++];
    *g = (struct state_gap){.reason = b->why, .earlier = b->there};
    memcpy(g->id, x->id, ID_SIZE);
    memcpy(g->principal, o->principal->name, PRINCIPAL_SIZE);
}

static void put_owner(struct saver *v, struct json_writer *w, const struct owner *o)
{
    json_open_object(w);
    json_put_member_string(w, "name", o->principal->name);
    if (changes_any(&o->changes)) {
        json_put_key(w, "settings");
        kept_put_settings(w, &o->changes);
    }
    if (o->months.now.device_ns || o->months.other.device_ns) {
        json_put_key(w, "month");
        kept_put_months(w, &o->months);
    }
    json_put_key(w, "sessions");
    json_put_raw(w, o->sessions.data, o->sessions.len);
    json_put_key(w, "functions");
    json_put_raw(w, o->functions.data, o->functions.len);
    if (o->links.len > strlen("[]")) {
        json_put_key(w, "links");
        json_put_raw(w, o->links.data, o->links.len);
    }
    json_put_key(w, "arrays");
    json_open_list(w);
    for (size_t i = 0; i < o->n_entries; i++) {
        const struct entry *x = &o->entries[i];
        if (x->blob->why)
            put_gap(v, o, x);
        if (!x->blob->there)
            continue;
        json_put_raw(w, v->text.data + x->from, x->to - x->from);
        v->report.arrays++;
    }
    json_close_list(w);
    passed_put(v->passed, o->principal, w);
    json_close_object(w);
}

static void put_share(void *user, const char *id, const struct principal *owner,
                      const struct principal *who, bool write)
{
    kept_put_share(user, id, owner->name, who->name, write);
}

static void put_manifest(struct saver *v, struct strb *out)
{
    struct json_writer w = JSON_WRITER(out);
    struct blob *b, *tmp;
    json_open_object(&w);
    json_put_member_i64(&w, "arrayd_state",
                        v->labels || v->passed->labels ? STATE_VERSION : STATE_VERSION_PLAIN);
    json_put_member_string(&w, "arrayd", ARRAYD_VERSION);
    json_put_member_i64(&w, "taken_us", v->report.taken_us);
    json_put_key(&w, "memories");
    json_open_list(&w);
    HASH_ITER (hh, v->blobs.table, b, tmp) {
        put_blob(&w, v->server->engine, b);
    }
    passed_put_memories(v->passed, &w);
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
    if (v->report.missing)
        json_put_member_i64(&w, "beside", (int64_t)state_write_beside(v->blobs.writer));
    json_close_object(&w);
}

/* --- all of it --- */

static void release(struct saver *v)
{
    blobs_free(&v->blobs);
    for (size_t i = 0; i < v->n_owners; i++) {
        strb_free(&v->owners[i].sessions);
        strb_free(&v->owners[i].functions);
        strb_free(&v->owners[i].links);
        mem_free(v->owners[i].entries);
    }
    mem_free(v->owners);
    strb_free(&v->text);
}

static enum err_code write_snapshot(struct saver *v, struct state_dir *dir,
                                    struct state_kept **kept)
{
    _cleanup_strb_ struct strb manifest = {0};
    TRY(state_write_begin(dir, &v->blobs.writer, v->e));
    enum err_code code = blobs_write(&v->blobs);
    if (code == ERR_OK)
        code = passed_write(v->passed, v->blobs.writer, HASH_COUNT(v->blobs.table),
                            &v->report.missing, v->e);
    if (code == ERR_OK) {
        put_manifest(v, &manifest);
        code = manifest.failed ? err_oom(v->e) : blobs_stopped(&v->blobs);
    }
    if (code != ERR_OK) {
        state_write_abort(v->blobs.writer);
        return code;
    }
    v->report.bytes += (int64_t)manifest.len;
    code = state_write_commit(v->blobs.writer, manifest.data, manifest.len, v->report.missing == 0,
                              v->e);
    if (code == ERR_OK) {
        blobs_keep(&v->blobs, kept);
        passed_written(v->passed);
    }
    return code;
}

enum err_code state_write_all(struct server *s, struct state_dir *dir, bool last,
                              uint64_t deadline_ns, const _Atomic bool *stop,
                              struct state_kept **kept, struct state_passed *passed,
                              struct state_report *ret, struct state_gaps *gaps, struct err *e)
{
    struct saver v = {.server = s, .last = last, .passed = passed, .gaps = gaps, .e = e};
    v.blobs = (struct blobs){.engine = s->engine,
                             .kept = kept,
                             .deadline_ns = deadline_ns,
                             .wait_ns = (uint64_t)(s->config->state_wait * 1e9),
                             .stop = stop,
                             .report = &v.report,
                             .e = e};
    if (gaps)
        gaps->n = 0;
    enum err_code code = blobs_init(&v.blobs);
    v.report.taken_us = clock_date_us();
    if (code == ERR_OK) {
        auth_each(s->auth, visit, &v);
        code = v.code;
    }
    if (code == ERR_OK)
        code = write_snapshot(&v, dir, kept);
    release(&v);
    if (code == ERR_OK)
        *ret = v.report;
    return code;
}
