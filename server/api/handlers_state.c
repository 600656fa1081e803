/* POST /v1/snapshot: saves everything clients have made to disk now. */
#include "protocol/json/json_writer.h"
#include "server/admin/audit.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/http/wakeup.h"
#include "server/server.h"
#include "server/state/state.h"

struct snapshot {
    struct wakeup wakeup;
    struct state_report report;
    struct state_gaps gaps;
    enum err_code code;
    struct err e;
};

static void taken(void *user, enum err_code code)
{
    struct snapshot *s = user;
    s->code = code;
    wakeup_ring(&s->wakeup);
}

static void put_gaps(struct json_writer *w, const struct state_gaps *gaps)
{
    json_put_key(w, "gaps");
    json_open_list(w);
    for (size_t i = 0; i < gaps->n; i++) {
        const struct state_gap *g = &gaps->items[i];
        json_open_object(w);
        json_put_member_string(w, "id", g->id);
        json_put_member_string(w, "principal", g->principal);
        json_put_member_string(w, "contents", g->earlier ? "earlier" : "none");
        json_put_member_string(w, "reason", g->reason);
        json_close_object(w);
    }
    json_close_list(w);
}

static void finish(struct request *req)
{
    const struct snapshot *s = req->state;
    const struct state_report *r = &s->report;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    if (s->code != ERR_OK) {
        http_reply_error(req, &s->e);
        return;
    }
    json_open_object(&w);
    meta_put_time(&w, "taken", r->taken_us);
    json_put_member_i64(&w, "arrays", r->arrays);
    json_put_member_i64(&w, "earlier", r->earlier);
    json_put_member_i64(&w, "left_out", r->left_out);
    put_gaps(&w, &s->gaps);
    json_put_member_i64(&w, "bytes", r->bytes);
    json_put_member_i64(&w, "reused", r->reused);
    json_put_member_double(&w, "seconds", r->seconds);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

static enum err_code begin(struct request *req, struct err *e)
{
    struct state *state = req->server->state;
    TRY(request_plain(req, e));
    if (!state)
        return err_set(e, ERR_CONFLICT, "the daemon was started without --state-dir");
    struct snapshot *s = arena_alloc(req->arena, sizeof *s);
    if (!s)
        return err_oom(e);
    *s = (struct snapshot){.e = ERR_INIT};
    wakeup_init(&s->wakeup, req);
    req->state = s;
    return state_snapshot(state, &s->report, &s->gaps, &s->e, taken, s, e);
}

void snapshot_post(struct request *req)
{
    struct err e = ERR_INIT;
    const enum err_code code = begin(req, &e);
    audit_did(req->server->audit, req, "snapshot", code, "%s", "");
    if (code != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct snapshot *s = req->state;
    wakeup_wait(&s->wakeup, finish);
}
