/* The members are read in the order in which mistakes should be told: the form of the body first,
 * then its expression, then what the session has to say (names, the target). */
#include "server/body/eval_body.h"
#include "server/body/meta.h"
#include "server/body/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/json/json.h"
#include "protocol/text/index.h"
#include "protocol/text/infix.h"
#include "protocol/text/tree.h"

#include "server/config.h"
#include "server/server.h"
#include "server/store/auth.h"

void eval_body_clear(struct eval_body *b)
{
    resolver_clear(&b->resolver);
    functions_release(&b->functions);
    if (b->has_out)
        handle_clear(&b->out);
    b->has_out = false;
    session_unref(b->session);
    b->session = NULL;
}

enum err_code eval_body_ask_again(const struct eval_body *b, struct err *e)
{
    enum err_code c = resolver_ask_again(&b->resolver, e);
    if (!c && b->has_out && b->out.shared)
        c = share_again(&b->resolver.scope, b->out.id, b->out.array, true, e);
    return c;
}

enum err_code eval_read_expr(struct expr *x, struct json v, const char *pointer, bool tree,
                             uint32_t *ret, struct err *e)
{
    uint32_t source;
    enum err_code c = expr_add_source(x, pointer, &source, e);
    if (c)
        return c;
    if (tree || json_kind(v) != JSON_STRING)
        return tree_parse(x, source, v, ret, e);
    size_t n;
    const char *text = json_text(v, &n);
    return infix_parse(x, source, text, n, ret, e);
}

struct let_name {
    const char *name;
    size_t at;
};

static int by_let_name(const void *a, const void *b)
{
    const struct let_name *p = a, *q = b;
    int r = strcmp(p->name, q->name);
    return r ? r : (p->at > q->at) - (p->at < q->at);
}

/* A name that is defined twice is a mistake more likely than an intention. */
static enum err_code unique_lets(struct expr *x, struct err *e)
{
    struct let_name *names = arena_alloc_array(x->arena, x->n_lets, sizeof *names);
    if (!names)
        return err_oom(e);
    for (size_t i = 0; i < x->n_lets; i++)
        names[i] = (struct let_name){x->lets[i].name, i};
    qsort(names, x->n_lets, sizeof *names, by_let_name);
    for (size_t i = 1; i < x->n_lets; i++) {
        if (strcmp(names[i - 1].name, names[i].name) != 0)
            continue;
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/let/%zu/0", names[i].at);
        return err_field(e, ERR_BAD_NAME, pointer, "\"%s\" is defined twice", names[i].name);
    }
    return ERR_OK;
}

static enum err_code read_lets(struct expr *x, struct json let, struct err *e)
{
    if (!json_present(let))
        return ERR_OK;
    if (json_kind(let) != JSON_LIST)
        return json_err(let, e, ERR_BAD_FIELD, "let must be a list of [name, expression]");
    size_t i = 0;
    for (struct json v = json_first(let); json_present(v); v = json_next(v), i++) {
        struct err inner = ERR_INIT;
        const char *name;
        char pointer[64];
        uint32_t node;
        struct json first = json_first(v), second = json_next(first);
        if (json_kind(v) != JSON_LIST || json_count(v) != 2 || json_kind(first) != JSON_STRING)
            return json_err(v, e, ERR_BAD_FIELD, "let must be a list of [name, expression]");
        name = json_text(first, NULL);
        enum err_code c = name_check(name, &inner);
        if (c)
            return json_err(first, e, c, "%s", inner.message);
        snprintf(pointer, sizeof pointer, "/let/%zu/1", i);
        c = eval_read_expr(x, second, pointer, false, &node, e);
        if (!c)
            c = expr_add_let(x, name, node, e);
        if (c)
            return c;
    }
    return i > 1 ? unique_lets(x, e) : ERR_OK;
}

static enum err_code read_expression(struct eval_body *b, struct request *req, struct json body,
                                     struct err *e)
{
    const struct config *config = req->server->config;
    struct json text = json_member(body, "expr"), tree = json_member(body, "tree");
    if (json_present(text) == json_present(tree))
        return json_present(text)
                   ? json_err_member(body, "tree", e, ERR_BAD_FIELD,
                                     "either expr or tree says what to compute, not both")
                   : json_err_member(body, "expr", e, ERR_BAD_FIELD,
                                     "expr (or tree, or statements) is missing: what is to be "
                                     "computed?");
    if (json_present(text) && json_kind(text) != JSON_STRING)
        return json_err(text, e, ERR_BAD_FIELD, "expr must be a string; JSON trees go in \"tree\"");
    expr_init(&b->expr, req->arena, (size_t)config->max_nodes, (int)config->max_nesting);
    enum err_code c = read_lets(&b->expr, json_member(body, "let"), e);
    if (c)
        return c;
    return json_present(text) ? eval_read_expr(&b->expr, text, "/expr", false, &b->expr.root, e)
                              : eval_read_expr(&b->expr, tree, "/tree", true, &b->expr.root, e);
}

static enum err_code write_out_functions(struct eval_body *b, struct request *req, struct err *e)
{
    enum err_code c = functions_of(req->principal->functions, &b->expr, &b->functions, e);
    if (!c && b->functions.n)
        c = function_inline(&b->expr, &b->functions, &b->expr, e);
    return c;
}

/* "out" and "index": the array and the elements to write. */
static enum err_code read_target(struct eval_body *b, struct request *req, struct json body,
                                 struct err *e)
{
    struct json out = json_member(body, "out"), index = json_member(body, "index");
    if (!json_given(out))
        return json_given(index)
                   ? json_err(index, e, ERR_BAD_FIELD, "index is a region of out: out is missing")
                   : ERR_OK;
    const char *ref, *text;
    size_t n;
    struct err inner = ERR_INIT;
    enum err_code c = json_get_string(out, &ref, NULL, e);
    if (c)
        return c;
    if (b->name)
        return json_err(out, e, ERR_BAD_FIELD, "the result goes into out or under name, not both");
    c = request_find(req, b->session, ref, &b->out, &inner);
    if (c)
        return json_err(out, e, c, "%s", inner.message);
    b->has_out = true;
    c = lease_check(&b->resolver.claim, b->out.array, LEASE_WRITE, &inner);
    if (c)
        return json_err(out, e, c, "%s", inner.message);
    b->region = b->out.array->view;
    c = handle_writable(&b->out, &inner);
    if (c)
        return json_err(out, e, c, "%s", inner.message);
    if (!json_given(index))
        return ERR_OK;
    c = json_get_string(index, &text, &n, e);
    if (c)
        return c;
    struct index_spec *spec = arena_alloc(req->arena, sizeof *spec);
    if (!spec)
        return err_oom(e);
    c = index_parse(text, n, spec, e);
    if (!c)
        c = view_index(&b->out.array->view, spec, &b->region, e);
    return c ? err_prefix(e, "/index") : ERR_OK;
}

static enum err_code read_flags(struct eval_body *b, struct json body, struct err *e)
{
    struct json dtype = json_member(body, "dtype"), in_line = json_member(body, "inline"),
                fast = json_member(body, "fast_math");
    enum dtype t;
    enum err_code c = ERR_OK;
    b->request.dtype = -1;
    if (json_given(dtype)) {
        c = json_get_dtype(dtype, &t, e);
        if (!c)
            b->request.dtype = (int)t;
    }
    if (!c && json_present(in_line))
        c = json_get_bool(in_line, &b->inline_data, e);
    if (!c && json_present(fast))
        c = json_get_bool(fast, &b->request.fast_math, e);
    if (!c)
        c = meta_name(body, &b->name, e);
    return c;
}

static enum err_code read_reply(struct eval_body *b, struct request *req, bool explain,
                                struct err *e)
{
    static const enum media offers[] = {MEDIA_JSON, MEDIA_OCTETS, MEDIA_NPY};
    b->reply = MEDIA_JSON;
    if (!explain && (b->name || b->has_out))
        return ERR_OK; /* metadata, whatever Accept says */
    return media_negotiate(http_header(req, "Accept"), offers, explain ? 1 : 3, &b->reply, e);
}

/* The array that has the name may be replaced. */
static enum err_code check_name(struct eval_body *b, struct err *e)
{
    _cleanup_handle_ struct handle now = {0};
    enum err_code c = handle_check_name(b->session->handles, b->name, NAME_REPLACE, e);
    if (!c && handle_get(b->session->handles, b->name, &now, NULL) == ERR_OK) {
        b->replaces = array_buffer_id(now.array);
        c = lease_guard(b->resolver.claim.table, now.array, e);
    }
    return c ? err_prefix(e, "/name") : ERR_OK;
}

static enum err_code read_all(struct request *req, struct json body, bool explain,
                              struct eval_body *b, struct err *e)
{
    enum err_code c = JSON_MEMBERS(body, e, "expr", "tree", "let", "bind", "name", "out", "index",
                                   "dtype", "inline", "fast_math");
    if (!c)
        c = read_flags(b, body, e);
    if (!c)
        c = read_expression(b, req, body, e);
    if (!c)
        c = write_out_functions(b, req, e);
    if (!c)
        c = session_of(req, &b->session, e);
    if (c)
        return c;
    struct lease_claim claim = explain ? (struct lease_claim){0} : request_claim(req);
    resolver_init(&b->resolver, req, b->session->handles, claim);
    c = resolver_bind(&b->resolver, json_member(body, "bind"), e);
    if (!c)
        c = read_target(b, req, body, e);
    if (!c && b->name)
        c = check_name(b, e);
    return c ? c : read_reply(b, req, explain, e);
}

enum err_code eval_body_read(struct request *req, struct json body, bool explain,
                             struct eval_body *b, struct err *e)
{
    memset(b, 0, sizeof *b);
    enum err_code c = read_all(req, body, explain, b, e);
    if (c) {
        eval_body_clear(b);
        return c;
    }
    b->env = (struct check_env){.resolve = resolver_resolve,
                                .user = &b->resolver,
                                .max_inputs = (uint32_t)req->server->config->max_inputs};
    b->request.expr = &b->expr;
    b->request.env = &b->env;
    if (b->has_out) {
        b->request.out = b->out.array;
        b->request.out_view = &b->region;
    }
    return ERR_OK;
}
