/* /v1/functions: defining, listing, deleting the functions that expressions may call.
 *
 * A definition is read like an expression and kept with its text in memory of its own. The reply is
 * written before the definition is entered, so that what is done is never followed by an error. */
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/func.h"
#include "protocol/infix.h"
#include "protocol/json_writer.h"
#include "protocol/tree.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/functions.h"
#include "server/handlers.h"
#include "server/meta.h"
#include "server/server.h"

static void functionp_unref(struct function **f)
{
    function_unref(*f);
}
#define _cleanup_function_ __attribute__((cleanup(functionp_unref)))

static void put_definition(struct json_writer *w, const struct definition *d)
{
    const struct function *f = d->function;
    json_open_object(w);
    json_put_member_string(w, "name", f->name);
    json_put_key(w, "params");
    json_open_list(w);
    for (uint32_t p = 0; p < f->n_params; p++)
        json_put_string(w, f->params[p]);
    json_close_list(w);
    json_put_key(w, d->is_tree ? "tree" : "expr");
    if (d->is_tree)
        json_put_raw(w, d->text, d->text_len);
    else
        json_put_stringn(w, d->text, d->text_len);
    meta_put_time(w, "created", d->created_us);
    json_close_object(w);
}

/* --- reading a definition --- */

/* What the expression syntaxes keep for themselves. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {"and", "or",   "not",   "in",     "is",    "if",
                                        "for", "else", "True",  "None",   "False", "lambda",
                                        "op",  "args", "const", "getitem"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], name))
            return true;
    return false;
}

static enum err_code check_name(const char *name, struct err *e)
{
    size_t n = strlen(name);
    enum err_code r = name_check(name, e);
    if (r == ERR_OK && is_reserved(name))
        return err_set(e, ERR_BAD_NAME, "'%s' has a meaning in expressions", name);
    if (r == ERR_OK && (op_from_name(name, n) >= 0 || func_from_name(name, n) >= 0))
        return err_set(e, ERR_BAD_NAME, "'%s' is an operation already", name);
    return r;
}

/* The function's name: a member of the body, or in the path (and then again in the body, so that
 * what GET gives can be sent back). */
static enum err_code read_name(struct json body, const char *in_path, const char **ret,
                               struct err *e)
{
    struct json v = json_member(body, "name");
    enum err_code r;
    if (!json_present(v) && in_path) {
        *ret = in_path;
        return check_name(in_path, e);
    }
    if ((r = json_require(body, "name", &v, e)) != ERR_OK ||
        (r = json_get_string(v, ret, NULL, e)) != ERR_OK)
        return r;
    if (in_path && strcmp(*ret, in_path) != 0)
        return json_err(v, e, ERR_BAD_FIELD, "the path says '%.80s'", in_path);
    return check_name(*ret, e) == ERR_OK ? ERR_OK : err_prefix(e, "/name");
}

static enum err_code read_params(struct json body, const char **params, uint32_t *ret_n,
                                 struct err *e)
{
    struct json list;
    uint32_t n = 0;
    enum err_code r = json_require(body, "params", &list, e);
    if (r != ERR_OK)
        return r;
    if (json_kind(list) != JSON_LIST || json_count(list) > CALL_MAX_PARAMS)
        return json_err(list, e, ERR_BAD_FIELD, "params must be a list of up to %d names",
                        CALL_MAX_PARAMS);
    for (struct json v = json_first(list); json_present(v); v = json_next(v), n++) {
        struct err why = ERR_INIT;
        if ((r = json_get_string(v, &params[n], NULL, e)) != ERR_OK)
            return r;
        if ((r = name_check(params[n], &why)) != ERR_OK)
            return json_err(v, e, r, "%s", why.message);
        if (is_reserved(params[n]))
            return json_err(v, e, ERR_BAD_NAME, "'%s' has a meaning in expressions", params[n]);
        for (uint32_t i = 0; i < n; i++)
            if (!strcmp(params[i], params[n]))
                return json_err(v, e, ERR_BAD_NAME, "there are two parameters '%s'", params[n]);
    }
    *ret_n = n;
    return ERR_OK;
}

/* The text as it was sent; of a tree, as we write it. */
static enum err_code keep_text(struct definition *d, struct json text, const struct expr *x,
                               struct err *e)
{
    _cleanup_strb_ struct strb b = {0};
    struct json_writer w = JSON_WRITER(&b);
    const char *p = d->is_tree ? NULL : json_text(text, &d->text_len);
    if (d->is_tree) {
        enum err_code r = tree_write(x, x->root, x->arena, &w, e);
        if (r != ERR_OK)
            return r;
        if (b.failed)
            return err_oom(e);
        p = b.data;
        d->text_len = b.len;
    }
    d->text = arena_strndup(x->arena, p, d->text_len);
    return d->text ? ERR_OK : err_oom(e);
}

static enum err_code read_expression(const struct request *req, struct json body,
                                     struct definition *d, struct expr *x, struct err *e)
{
    int64_t max = req->server->config->max_function_size;
    struct json text = json_member(body, "expr"), tree = json_member(body, "tree");
    const char *p;
    size_t n = 0;
    uint32_t source;
    enum err_code r;
    d->is_tree = json_present(tree);
    if (json_present(text) == d->is_tree)
        return d->is_tree ? json_err(tree, e, ERR_BAD_FIELD,
                                     "either expr or tree says what is computed, not both")
                          : json_err_member(body, "expr", e, ERR_BAD_FIELD,
                                            "expr (or tree) is missing: what is computed?");
    r = expr_add_source(x, d->is_tree ? "/tree" : "/expr", &source, e);
    if (r == ERR_OK && d->is_tree)
        r = tree_parse(x, source, tree, &x->root, e);
    else if (r == ERR_OK && (r = json_get_string(text, &p, &n, e)) == ERR_OK && (int64_t)n <= max)
        r = infix_parse(x, source, p, n, &x->root, e);
    if (r == ERR_OK && (int64_t)n <= max)
        r = keep_text(d, text, x, e);
    if (r == ERR_OK && (int64_t)(d->is_tree ? d->text_len : n) > max)
        return json_err(d->is_tree ? tree : text, e, ERR_EXPRESSION_TOO_LARGE,
                        "a function's expression has at most %lld bytes", (long long)max);
    return r;
}

/* Everything but the calls of other functions is checked here. The function's reference is the
 * caller's; the definition lives with it. */
static enum err_code read_definition(struct request *req, const char *in_path,
                                     struct definition **ret, struct err *e)
{
    const struct config *config = req->server->config;
    const char *name, *params[CALL_MAX_PARAMS];
    uint32_t n_params;
    struct json body;
    enum err_code r;
    if ((r = handler_body(req, false, &body, e)) != ERR_OK ||
        (r = JSON_MEMBERS(body, e, "name", "params", "expr", "tree")) != ERR_OK ||
        (r = read_name(body, in_path, &name, e)) != ERR_OK ||
        (r = read_params(body, params, &n_params, e)) != ERR_OK)
        return r;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct definition *d = arena ? arena_alloc(arena, sizeof *d) : NULL;
    struct expr x;
    if (!d)
        return err_oom(e);
    expr_init(&x, arena, (size_t)config->max_nodes, (int)config->max_nesting);
    r = read_expression(req, body, d, &x, e);
    if (r == ERR_OK)
        r = function_new(arena, &x, name, params, n_params, &d->function, e);
    if (r != ERR_OK)
        return r;
    arena = NULL; /* the function's now */
    d->created_us = clock_date_us();
    *ret = d;
    return ERR_OK;
}

static void define(struct request *req, const char *in_path)
{
    struct err e = ERR_INIT;
    struct definition *d = NULL;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    bool replaced;
    enum err_code r = handler_plain(req, &e);
    if (r == ERR_OK)
        r = read_definition(req, in_path, &d, &e);
    _cleanup_function_ struct function *f = d ? d->function : NULL;
    char location[32 + NAME_SIZE];
    if (r == ERR_OK) {
        snprintf(location, sizeof location, "/v1/functions/%s", f->name);
        put_definition(&w, d);
        r = out.failed
                ? err_oom(&e)
                : functions_define(req->principal->functions, d, in_path != NULL, &replaced, &e);
    }
    if (r != ERR_OK) {
        strb_free(&out);
        http_reply_error(req, &e);
        return;
    }
    f = NULL; /* the table's */
    if (!replaced)
        http_add_header(req, "Location", location);
    http_reply_json(req, replaced ? 200 : 201, &out);
}

void function_post(struct request *req)
{
    define(req, NULL);
}

void function_put(struct request *req)
{
    define(req, req->param[0]);
}

/* --- what there is --- */

void function_list_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct page page;
    struct definition **d = NULL;
    enum err_code r = handler_page(req, &page, &e);
    if (r == ERR_OK)
        r = handler_accepts_json(req, &e);
    if (r == ERR_OK &&
        !(d = arena_alloc_array(req->arena, page.limit, sizeof(struct definition *))))
        r = err_oom(&e);
    if (r != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    bool more;
    size_t n = functions_list(req->principal->functions, page.after, page.limit, d, &more);
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_key(&w, "functions");
    json_open_list(&w);
    for (size_t i = 0; i < n; i++)
        put_definition(&w, d[i]);
    json_close_list(&w);
    if (more) {
        char next[24];
        snprintf(next, sizeof next, "%llu", (unsigned long long)d[n - 1]->seq);
        json_put_member_string(&w, "next", next);
    }
    json_close_object(&w);
    for (size_t i = 0; i < n; i++)
        function_unref(d[i]->function);
    http_reply_json(req, 200, &out);
}

void function_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct definition *d;
    if (handler_plain(req, &e) != ERR_OK ||
        functions_get(req->principal->functions, req->param[0], &d, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    put_definition(&w, d);
    function_unref(d->function);
    http_reply_json(req, 200, &out);
}

void function_delete(struct request *req)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    if (http_query_only(req, none, &e) != ERR_OK ||
        functions_delete(req->principal->functions, req->param[0], &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_empty(req, 204);
}
