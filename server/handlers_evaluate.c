/* POST /v1/evaluate: computes an expression into a new array, an existing one, or the reply.
 *
 * Nothing here waits unless a value is asked for, or the arrays' contents have to be looked at for
 * mistakes first (eval_guards_new): the array's handle is made while its contents are
 * still being computed. A small evaluation on the CPU is over when engine_evaluate returns, and
 * then a reply with the value goes out from here without a suspension. */
#include "server/config.h"
#include "server/data.h"
#include "server/encode.h"
#include "server/eval_body.h"
#include "server/gate.h"
#include "server/handlers.h"
#include "server/meta.h"
#include "server/server.h"

/* A handle for the result, and its metadata. */
static enum err_code reply_handle(struct request *req, const struct eval_body *b, struct array *a,
                                  struct strb *take, struct err *e)
{
    struct handle_guard guard = {lease_guard, req->server->leases};
    struct handle_spec spec = {.name = b->name, .policy = NAME_REPLACE, .guard = &guard};
    _cleanup_handle_ struct handle h = {0};
    enum err_code c = handle_add(b->session->handles, a, &spec, &h, NULL, e);
    if (!c)
        meta_reply_reserved(req, 201, &h, true, take);
    return c;
}

/* What the client gets for the result. `meta` has room for metadata where they may be asked for. */
static enum err_code reply_result(struct request *req, const struct eval_body *b,
                                  struct array *take_a, struct strb *meta, struct err *e)
{
    _cleanup_array_ struct array *a = take_a;
    if (b->has_out) {
        meta_reply_reserved(req, 200, &b->out, false, meta);
        return ERR_OK;
    }
    if (b->name)
        return reply_handle(req, b, a, meta, e);
    if (b->reply != MEDIA_JSON) {
        data_reply(req, b->session->stream, array_ref(a), b->reply, false);
        return ERR_OK;
    }
    if (a->view.rank && !b->inline_data)
        return reply_handle(req, b, a, meta, e);
    int64_t size = data_json_items(&a->view), max = req->server->config->max_inline;
    if (size > max)
        return err_set(e, ERR_INLINE_TOO_LARGE,
                       "the result has %lld elements, at most %lld are returned inline; ask for "
                       "it as application/octet-stream or application/x-npy, or leave it in an "
                       "array",
                       (long long)size, (long long)max);
    encode_reply(req, b->session->stream, array_ref(a));
    return ERR_OK;
}

struct evaluation {
    struct eval_body body;
    struct strb meta;
    struct gate gate;
    struct eval_guards *guards; /* while it waits for their answer: */
    unsigned char *answer;
    size_t have;
    bool waited;
};

static void evaluation_free(void *state)
{
    struct evaluation *v = state;
    eval_guards_free(v->guards);
    v->guards = NULL;
    strb_free(&v->meta);
    eval_body_clear(&v->body);
}

static void fail(struct request *req, struct evaluation *v, const struct err *e)
{
    req->state = NULL;
    evaluation_free(v);
    http_reply_error(req, e);
}

/* From here on there is nothing to wait for but the contents, which the reply sees to. */
static void evaluate(struct request *req, struct evaluation *v)
{
    struct err e = ERR_INIT;
    struct eval_body *b = &v->body;
    struct eval_times times = {0};
    struct array *a;
    req->state = NULL;
    enum err_code c = engine_evaluate(b->session->stream, b->session->account, &b->request, &a,
                                      &times, b->has_out ? handler_work_done : NULL, NULL, &e);
    req->t_plan += times.check + times.lower;
    req->t_compile += times.compile;
    if (!c)
        c = reply_result(req, b, a, &v->meta, &e);
    evaluation_free(v);
    if (c)
        http_reply_error(req, &e);
}

static void look_at_guards(struct request *req)
{
    struct evaluation *v = req->state;
    struct err e = ERR_INIT;
    struct download *d = eval_guards_download(v->guards);
    const size_t n = eval_guards_size(v->guards);
    while (v->have < n) {
        gate_arm(&v->gate);
        int64_t got = download_pull(d, (int64_t)v->have, v->answer + v->have, n - v->have);
        if (got < 0) {
            data_error(d, &e);
            fail(req, v, &e);
            return;
        }
        if (got == 0) {
            if (!v->waited && gate_soon(&v->gate))
                continue;
            v->waited = true;
            gate_wait(&v->gate, look_at_guards);
            return;
        }
        v->have += (size_t)got;
    }
    if (eval_guards_verdict(v->guards, &v->body.expr, v->answer, &e) != ERR_OK) {
        fail(req, v, &e);
        return;
    }
    eval_guards_free(v->guards);
    v->guards = NULL;
    evaluate(req, v);
}

void evaluate_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct eval_times times = {0};
    struct evaluation *v = arena_alloc(req->arena, sizeof *v);
    enum err_code c = v ? eval_body_read(req, false, &v->body, &e) : err_oom(&e);
    if (c) {
        http_reply_error(req, &e);
        return;
    }
    struct eval_body *b = &v->body;
    req->t_plan = req->t_compile = 0;
    gate_init(&v->gate, req);
    if (b->has_out || b->name || (b->reply == MEDIA_JSON && !b->inline_data))
        c = meta_reserve(&v->meta, &e);
    if (!c)
        c = eval_guards_new(b->session->stream, b->session->account, &b->request, gate_wake,
                            &v->gate, &v->guards, &times, &e);
    if (!c && v->guards) {
        req->t_plan = times.check + times.lower;
        v->answer = arena_alloc(req->arena, eval_guards_size(v->guards));
        c = v->answer ? ERR_OK : err_oom(&e);
    }
    if (c) {
        fail(req, v, &e);
        return;
    }
    if (!v->guards) {
        evaluate(req, v);
        return;
    }
    req->state = v;
    req->state_free = evaluation_free;
    look_at_guards(req);
}
