/* POST /v1/evaluate: computes an expression into a new array, an existing one, or the reply.
 *
 * Nothing here waits unless a value is asked for: the array's handle is made while its contents are
 * still being computed. A small evaluation on the CPU is over when engine_evaluate returns, and
 * then a reply with the value goes out from here without a suspension. */
#include "server/config.h"
#include "server/data.h"
#include "server/encode.h"
#include "server/eval_body.h"
#include "server/handlers.h"
#include "server/meta.h"
#include "server/server.h"

/* A handle for the result, and its metadata. */
static enum err_code reply_handle(struct request *req, const struct eval_body *b, struct array *a,
                                  struct strb *take, struct err *e)
{
    struct handle_spec spec = {.name = b->name, .policy = NAME_REPLACE};
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

void evaluate_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct eval_body b;
    struct eval_times times = {0};
    struct array *a;
    _cleanup_strb_ struct strb meta = {0};
    enum err_code c = eval_body_read(req, false, &b, &e);
    if (c) {
        http_reply_error(req, &e);
        return;
    }
    bool maybe_meta = b.has_out || b.name || (b.reply == MEDIA_JSON && !b.inline_data);
    if (maybe_meta)
        c = meta_reserve(&meta, &e);
    if (!c)
        c = engine_evaluate(b.session->stream, b.session->account, &b.request, &a, &times,
                            b.has_out ? handler_work_done : NULL, NULL, &e);
    req->t_plan = times.check + times.lower;
    req->t_compile = times.compile;
    if (!c)
        c = reply_result(req, &b, a, &meta, &e);
    eval_body_clear(&b);
    if (c)
        http_reply_error(req, &e);
}
