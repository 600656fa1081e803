/* POST /v1/arrays/{ref}/export: a token for an array's memory, for a client on this host.
 *
 * The lease is taken first, so that no new work reaches the memory. Then the request waits for the
 * uses that began before it (lease_use.h) and for the engine: the reply is sent when all earlier
 * work is done. The client then connects to PATH.fd (export_socket.h). */
#include "protocol/json/json_writer.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/exports/export.h"
#include "server/exports/export_socket.h"
#include "server/http/wakeup.h"
#include "server/jobs/jobs.h"
#include "server/server.h"

#define EXPORT_JSON_MAX 8192 /* paths and 2 × MAX_RANK numbers */

struct export_request {
    struct wakeup wakeup;
    struct session *session;
    struct handle handle;
    bool write;
    const char *socket;
    uid_t uid;
    struct offer *offer;
    struct strb out;
};

static void release(void *state)
{
    struct export_request *x = state;
    offer_close(x->offer);
    x->offer = NULL;
    handle_clear(&x->handle);
    session_unref(x->session);
    x->session = NULL;
    strb_free(&x->out);
}

static void fail(struct request *req, const struct err *e)
{
    release(req->state);
    req->state = NULL;
    req->state_free = NULL;
    http_reply_error(req, e);
}

static enum err_code may_export(const struct request *req, const struct handle *h, bool write,
                                struct err *e)
{
    if (h->shared && !array_is_whole(h->array))
        return err_set(e, ERR_FORBIDDEN,
                       "only a part of this memory is shared with you, and an export would give "
                       "access to all of it; ask the owner to share a copy of that part");
    if (write)
        return handle_writable(h, e);
    if (h->read_only && !engine_in_host_memory(req->server->engine))
        return err_set(
            e, ERR_FORBIDDEN,
            "exported GPU memory can always be written to, so only an array that you may "
            "write to can be exported");
    return ERR_OK;
}

static enum err_code find_socket(struct request *req, struct export_request *x, struct err *e)
{
    const struct server *s = req->server;
    if (!s->exports)
        return err_set(e, ERR_FORBIDDEN, "memory cannot be exported: %s",
                       s->config->allow_export ? "the daemon listens on no Unix socket"
                                               : "the daemon was started without --allow-export");
    const char *beside = http_unix_peer(req, &x->uid);
    x->socket = beside ? export_socket_path(s->export_socket, beside) : NULL;
    return x->socket ? ERR_OK
                     : err_set(e, ERR_FORBIDDEN,
                               "memory can be exported only to clients on a Unix socket");
}

/* A request that revokes a share, or gives the array other memory, has either ended the export or
 * sees its lease, whichever comes first. */
static enum err_code still_there(struct request *req, const struct export_request *x, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_array(req, LEASE_LOOK, &s, &h, e));
    if (!array_same_elements(h.array, x->handle.array))
        return handle_changed(e);
    return may_export(req, &h, x->write, e);
}

static enum err_code begin(struct request *req, struct export_request *x, struct err *e)
{
    struct json body;
    struct lease_claim claim = request_claim(req);
    TRY(request_plain(req, e));
    TRY(request_array(req, LEASE_LOOK, &x->session, &x->handle, e));
    TRY(find_socket(req, x, e));
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "mode"));
    TRY(meta_access(body, "mode", &x->write, e));
    TRY(may_export(req, &x->handle, x->write, e));
    if (!strb_reserve(&x->out, EXPORT_JSON_MAX))
        return err_oom(e);
    TRY(offer_new(req->server->exports, &claim, x->handle.array,
                  x->handle.shared ? x->handle.id : NULL, x->write,
                  x->handle.shared || x->handle.read_only, x->uid, &x->offer, e));
    return still_there(req, x, e);
}

static void put(struct json_writer *w, const struct export_request *x, const struct offered *o,
                double expires_s)
{
    const struct array *a = x->handle.array;
    json_open_object(w);
    json_put_member_string(w, "token", o->token);
    json_put_member_string(w, "mode", x->write ? "write" : "read");
    json_put_member_string(w, "kind", o->memory.cuda ? "cuda" : "memfd");
    json_put_member_i64(w, "size", o->memory.size);
    json_put_member_i64(w, "offset", o->memory.offset / (int64_t)dtype_size(a->dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)a->view.rank, a->view.shape);
    json_put_key(w, "strides");
    json_put_i64_list(w, (size_t)a->view.rank, a->view.strides);
    json_put_member_string(w, "dtype", dtype_name(a->dtype));
    json_put_member_i64(w, "device", o->memory.device);
    if (o->memory.cuda)
        json_put_member_string(w, "uuid", o->memory.uuid);
    json_put_member_string(w, "socket", x->socket);
    json_put_member_string(w, "lease", o->lease);
    json_put_member_double(w, "expires_s", expires_s);
    json_close_object(w);
}

static void finish(struct request *req)
{
    struct export_request *x = req->state;
    struct err e = ERR_INIT;
    struct offered offered;
    if (offer_open(x->offer, &offered, &e) != ERR_OK) {
        fail(req, &e);
        return;
    }
    struct json_writer w = JSON_WRITER(&x->out);
    put(&w, x, &offered, req->server->config->export_timeout);
    http_reply_json(req, 201, &x->out);
}

void array_export_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct export_request *x = request_begin(req, sizeof *x, release);
    if (!x)
        return;
    wakeup_init(&x->wakeup, req);
    if (begin(req, x, &e) != ERR_OK) {
        fail(req, &e);
        return;
    }
    jobs_settle(req->server->jobs); /* programs write nothing from here on */
    http_may_end(req, NULL);
    wakeup_arm(&x->wakeup);
    offer_ask(x->offer, wakeup_ring, &x->wakeup);
    wakeup_wait(&x->wakeup, finish);
}
