/* POST /v1/evaluate: computes an expression into a new array, an existing one, or the reply.
 *
 * A request waits only if its reply has a value, or if array contents are checked for mistakes
 * (eval_watch); otherwise the array gets its handle while its contents are still being computed.
 * The work itself checks the contents, in the session's order like all work, and if it finds a
 * mistake `out` keeps its contents; only the reply, and a result's handle and name, wait for the
 * outcome. A worker makes plans of more than a few nodes: a body of twenty bytes may call functions
 * of thousands, and its listener has other requests to serve. Plans that are in the plan cache, or
 * small, stay on the listener's thread. A small evaluation on the CPU is finished when
 * engine_evaluate returns, and then the reply with the value is sent at once, without a
 * suspension. */
#include "server/api/handlers.h"
#include "server/body/data.h"
#include "server/body/encode.h"
#include "server/body/eval_body.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/http/wakeup.h"
#include "server/labels/labels.h"
#include "server/look/picture.h"
#include "server/server.h"

struct evaluation {
    struct eval_body body;
    struct strb meta;
    struct wakeup wakeup;
    struct array *result; /* a reference, while it waits for the guards' result */
    struct eval_watch watch;
    struct lease_use use; /* until the engine has the work */
    bool waited;
};

/* For the name that the result takes: whoever took it during the request has precedence. */
struct succession {
    struct leases *leases;
    const struct evaluation *evaluation;
};

static enum err_code may_succeed(void *user, const struct array *now, struct err *e)
{
    const struct succession *s = user;
    const struct evaluation *v = s->evaluation;
    if (v->waited && now && array_buffer_id(now) != v->body.replaces)
        return err_field(
            e, ERR_CONFLICT, "/name",
            "the name was given to another array while the indices were being checked");
    return lease_guard(s->leases, now, e);
}

/* For Server-Timing of a reply that waited for the guards' result, and reads no contents. */
static void guards_took(struct request *req, const struct evaluation *v)
{
    if (v->watch.guards)
        data_times(req, eval_guards_download(v->watch.guards), true);
}

/* Gives the result a handle and replies with its metadata. */
static enum err_code reply_handle(struct request *req, struct evaluation *v, struct array *a,
                                  struct err *e)
{
    struct succession succession = {req->server->leases, v};
    struct handle_guard guard = {may_succeed, &succession};
    struct handle_spec spec = {.name = v->body.name, .policy = NAME_REPLACE, .guard = &guard};
    _cleanup_handle_ struct handle h = {0};
    guards_took(req, v);
    TRY(handle_add(v->body.reader.session->handles, a, &spec, &h, NULL, e));
    meta_reply_reserved(req, 201, &h, true, &v->meta);
    return ERR_OK;
}

/* Replies with the result. v->meta has room for metadata if the reply may have any. */
static enum err_code reply_result(struct request *req, struct evaluation *v, struct array *take_a,
                                  struct err *e)
{
    const struct eval_body *b = &v->body;
    _cleanup_array_ struct array *a = take_a;
    if (b->has_out) {
        guards_took(req, v);
        meta_reply_reserved(req, 200, &b->out, false, &v->meta);
        return ERR_OK;
    }
    if (b->name)
        return reply_handle(req, v, a, e);
    if (b->reply == MEDIA_PNG) {
        picture_of(req, b->reader.session, array_ref(a));
        return ERR_OK;
    }
    if (b->reply != MEDIA_JSON) {
        data_reply(req, b->reader.session->stream, array_ref(a), b->reply, NULL);
        return ERR_OK;
    }
    if (a->view.rank && !b->inline_data)
        return reply_handle(req, v, a, e);
    int64_t size = data_json_items(&a->view), max = req->server->config->max_inline;
    if (size > max)
        return err_set(
            e, ERR_INLINE_TOO_LARGE,
            "the result has %lld elements, but at most %lld are returned inline; ask for it as "
            "application/octet-stream or application/x-npy, or leave it in an array",
            (long long)size, (long long)max);
    encode_reply(req, b->reader.session->stream, array_ref(a));
    return ERR_OK;
}

static void evaluation_free(void *state)
{
    struct evaluation *v = state;
    lease_use_close(&v->use);
    eval_guards_free(v->watch.guards);
    v->watch.guards = NULL;
    array_unref(v->result);
    v->result = NULL;
    strb_free(&v->meta);
    eval_body_clear(&v->body);
}

static void fail(struct request *req, struct evaluation *v, const struct err *e)
{
    req->state = NULL;
    evaluation_free(v);
    http_reply_error(req, e);
}

/* From here on only the contents are outstanding, and the reply waits for them itself. */
static void reply(struct request *req, struct evaluation *v)
{
    struct err e = ERR_INIT;
    struct array *a = v->result;
    v->result = NULL;
    req->state = NULL;
    enum err_code code = reply_result(req, v, a, &e);
    evaluation_free(v);
    if (code != ERR_OK)
        http_reply_error(req, &e);
}

static void look_at_guards(struct request *req)
{
    struct evaluation *v = req->state;
    struct err e = ERR_INIT;
    struct eval_guards *g = v->watch.guards;
    int got;
    uint64_t begun;
    do {
        wakeup_arm(&v->wakeup);
        begun = clock_ns();
        got = eval_guards_pull(g);
    } while (got == 0 && !v->waited && wakeup_soon(&v->wakeup));
    if (got == 0) {
        v->waited = true;
        wakeup_wait(&v->wakeup, look_at_guards);
        return;
    }
    http_took(&req->t_copy, begun);
    enum err_code code = ERR_OK;
    if (got < 0)
        data_error(eval_guards_download(g), &e);
    else
        code = eval_guards_verdict(g, &v->body.expr, &e);
    if (code != ERR_OK)
        guards_took(req, v);
    if (got < 0 || code != ERR_OK)
        fail(req, v, &e);
    else
        reply(req, v);
}

/* Queues the work; nothing that can fail comes after something has changed. v->result NULL: the
 * plan is too large for this thread, and nothing has been queued. */
static enum err_code evaluate(struct request *req, struct evaluation *v, struct err *e)
{
    struct eval_body *b = &v->body;
    struct eval_times times = {0};
    wakeup_init(&v->wakeup, req);
    v->watch = (struct eval_watch){.wake = wakeup_ring, .user = &v->wakeup};
    b->request.watch = &v->watch;
    enum err_code code = ERR_OK;
    if (!v->meta.data && (b->has_out || b->name || (b->reply == MEDIA_JSON && !b->inline_data)))
        code = meta_reserve(&v->meta, labels_size(b->out.labels), e);
    if (code == ERR_OK)
        code = engine_evaluate(b->reader.session->stream, b->reader.session->account, &b->request,
                               &v->result, &times, b->has_out ? request_work_done : NULL, NULL, e);
    code = eval_body_placed(code, e);
    if (code != ERR_OK || v->result)
        lease_use_close(&v->use);
    req->t_plan = times.check + times.lower;
    req->t_compile = times.compile;
    return code;
}

static void go_on(struct request *req);

/* On a worker; array access may have changed during the wait for it. */
static void go_on_later(struct request *req)
{
    struct evaluation *v = req->state;
    struct err e = ERR_INIT;
    if (eval_body_ask_again(&v->body, &e) != ERR_OK)
        fail(req, v, &e);
    else
        go_on(req);
}

/* With the body read. */
static void go_on(struct request *req)
{
    struct evaluation *v = req->state;
    struct err e = ERR_INIT;
    if (evaluate(req, v, &e) != ERR_OK) {
        fail(req, v, &e);
    } else if (!v->result) {
        const size_t n = v->body.expr.n_nodes;
        v->body.request.most_nodes = 0;
        (n > EVAL_NODES_SHORT ? http_offload_long : http_offload)(req, go_on_later);
    } else if (!v->watch.guards) {
        reply(req, v);
    } else {
        if (v->body.name)
            req->abandon = false; /* the result must still get its name */
        look_at_guards(req);
    }
}

void evaluate_post(struct request *req)
{
    static const char *const pictures[] = {PICTURE_QUERY, NULL};
    struct err e = ERR_INIT;
    struct json body;
    uint64_t begun = clock_ns();
    struct evaluation *v = arena_alloc(req->arena, sizeof *v);
    enum err_code code = v ? http_query_only(req, pictures, &e) : err_oom(&e);
    http_may_end(req, NULL);
    if (code == ERR_OK)
        code = request_body(req, false, &body, &e);
    if (code == ERR_OK && json_present(json_member(body, "statements"))) {
        http_took(&req->t_parse, begun);
        code = picture_query(req, MEDIA_JSON, &e);
        if (code == ERR_OK)
            evaluate_statements(req, body);
        else
            http_reply_error(req, &e);
        return;
    }
    struct lease_use use = lease_use_open(req->server->uses);
    if (code == ERR_OK)
        code = eval_body_read(req, body, false, &v->body, &e);
    if (code == ERR_OK) {
        code = picture_query(req, v->body.reply, &e);
        if (code != ERR_OK)
            eval_body_clear(&v->body);
    }
    http_took(&req->t_parse, begun);
    if (code != ERR_OK) {
        lease_use_close(&use);
        http_reply_error(req, &e);
        return;
    }
    v->body.request.most_nodes = EVAL_NODES_HERE;
    v->use = use;
    req->state = v;
    req->state_free = evaluation_free;
    go_on(req);
}
