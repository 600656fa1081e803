/* Each step is its caller's to order: a body's form is told before its expressions, and these
 * before what the session has to say. */
#include "server/body/reader.h"

#include "protocol/text/infix.h"
#include "protocol/text/tree.h"
#include "server/body/request.h"
#include "server/config.h"
#include "server/server.h"
#include "server/store/auth.h"

void reader_start(const struct reader *r, struct arena *arena, struct expr *x)
{
    const struct config *config = r->req->server->config;
    expr_init(x, arena, (size_t)config->max_nodes, (int)config->max_nesting);
}

enum err_code reader_parse(struct expr *x, struct json v, const char *pointer, bool tree,
                           uint32_t *ret, struct err *e)
{
    uint32_t source;
    size_t n;
    TRY(expr_add_source(x, pointer, &source, e));
    if (tree || json_kind(v) != JSON_STRING)
        return tree_parse(x, source, v, ret, e);
    const char *text = json_text(v, &n);
    return infix_parse(x, source, text, n, ret, e);
}

enum err_code reader_write_out(const struct reader *r, struct expr *x, struct function_set *ret,
                               struct err *e)
{
    TRY(functions_of(r->req->principal->functions, x, ret, e));
    return ret->n ? function_inline(x, ret, x, e) : ERR_OK;
}

enum err_code reader_open(struct reader *r, struct err *e)
{
    TRY(session_of(r->req, &r->session, e));
    struct lease_claim claim = r->explain ? (struct lease_claim){0} : request_claim(r->req);
    resolver_init(&r->resolver, r->req, r->session->handles, claim);
    r->env = (struct check_env){.resolve = resolver_resolve,
                                .user = &r->resolver,
                                .max_inputs = (uint32_t)r->req->server->config->max_inputs};
    return resolver_bind(&r->resolver, json_member(r->body, "bind"), e);
}

enum err_code reader_target(struct reader *r, const char *ref, struct handle *ret, struct err *e)
{
    _cleanup_handle_ struct handle h = {0};
    TRY(request_find(r->req, r->session, ref, &h, e));
    TRY(lease_check(&r->resolver.claim, h.array, LEASE_WRITE, e));
    TRY(handle_writable(&h, e));
    *ret = h;
    h.array = NULL;
    return ERR_OK;
}

void reader_clear(struct reader *r)
{
    resolver_clear(&r->resolver);
    session_unref(r->session);
    r->session = NULL;
}
