/* A function's text is kept as it was sent; for a tree, text is printed from it, and shown
 * later. */
#include "server/body/function_json.h"

#include <string.h>

#include "compute/base/clock.h"
#include "compute/lang/func.h"
#include "protocol/text/tree.h"
#include "server/body/meta.h"
#include "server/body/reader.h"
#include "server/store/handles.h"

void function_json_put(struct json_writer *w, const struct definition *d)
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

/* Names that the expression syntaxes reserve. */
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
    TRY(name_check(name, e));
    if (is_reserved(name))
        return err_set(e, ERR_BAD_NAME, "'%s' is a reserved name in expressions", name);
    if (op_from_name(name, n) >= 0 || func_from_name(name, n) >= 0)
        return err_set(e, ERR_BAD_NAME, "'%s' is already the name of an operation", name);
    return ERR_OK;
}

/* The function's name: a member of the body, or in the path (and then optionally in the body too,
 * so that a client can send back what it got). */
static enum err_code read_name(struct json body, const char *in_path, const char **ret,
                               struct err *e)
{
    struct json v = json_member(body, "name");
    if (!json_present(v) && in_path) {
        *ret = in_path;
        return check_name(in_path, e);
    }
    TRY(json_require(body, "name", &v, e));
    TRY(json_get_string(v, ret, NULL, e));
    if (in_path && strcmp(*ret, in_path) != 0)
        return json_err(v, e, ERR_BAD_FIELD, "this differs from the name in the path, '%.80s'",
                        in_path);
    return check_name(*ret, e) == ERR_OK ? ERR_OK : err_prefix(e, "/name");
}

static enum err_code read_param(struct json v, const char **params, uint32_t n, struct err *e)
{
    struct err why = ERR_INIT;
    TRY(json_get_string(v, &params[n], NULL, e));
    enum err_code code = name_check(params[n], &why);
    if (code != ERR_OK)
        return json_err(v, e, code, "%s", why.message);
    if (is_reserved(params[n]))
        return json_err(v, e, ERR_BAD_NAME, "'%s' is a reserved name in expressions", params[n]);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(params[i], params[n]))
            return json_err(v, e, ERR_BAD_NAME, "the parameter '%s' is given twice", params[n]);
    return ERR_OK;
}

static enum err_code read_params(struct json body, const char **params, uint32_t *ret_n,
                                 struct err *e)
{
    struct json list;
    uint32_t n = 0;
    TRY(json_require(body, "params", &list, e));
    if (json_kind(list) != JSON_LIST || json_count(list) > CALL_MAX_PARAMS)
        return json_err(list, e, ERR_BAD_FIELD, "params must be a list of up to %d names",
                        CALL_MAX_PARAMS);
    for (struct json v = json_first(list); json_present(v); v = json_next(v), n++)
        TRY(read_param(v, params, n, e));
    *ret_n = n;
    return ERR_OK;
}

/* Keeps the text as it was sent; for a tree, as it is printed. */
static enum err_code keep_text(struct definition *d, struct json text, const struct expr *x,
                               struct err *e)
{
    _cleanup_strb_ struct strb b = {0};
    struct json_writer w = JSON_WRITER(&b);
    const char *p = d->is_tree ? NULL : json_text(text, &d->text_len);
    if (d->is_tree) {
        TRY(tree_write(x, x->root, x->arena, &w, e));
        if (b.failed)
            return err_oom(e);
        p = b.data;
        d->text_len = b.len;
    }
    d->text = arena_strndup(x->arena, p, d->text_len);
    return d->text ? ERR_OK : err_oom(e);
}

static enum err_code too_large(struct json v, int64_t max, struct err *e)
{
    return json_err(v, e, ERR_EXPRESSION_TOO_LARGE,
                    "a function's expression must have at most %lld bytes", (long long)max);
}

static enum err_code read_expression(const struct config *config, struct json body,
                                     struct definition *d, struct expr *x, struct err *e)
{
    const int64_t max = config->max_function_size;
    struct json text = json_member(body, "expr"), tree = json_member(body, "tree");
    const char *unused;
    size_t n = 0;
    d->is_tree = json_present(tree);
    if (json_present(text) == d->is_tree)
        return d->is_tree ? json_err(tree, e, ERR_BAD_FIELD, "give either expr or tree, not both")
                          : json_err_member(body, "expr", e, ERR_BAD_FIELD,
                                            "give what the function computes as expr or tree");
    if (!d->is_tree)
        TRY(json_get_string(text, &unused, &n, e));
    if ((int64_t)n > max)
        return too_large(text, max, e);
    TRY(reader_parse(x, d->is_tree ? tree : text, d->is_tree ? "/tree" : "/expr", d->is_tree,
                     &x->root, e));
    TRY(keep_text(d, text, x, e));
    return (int64_t)d->text_len > max ? too_large(tree, max, e) : ERR_OK;
}

enum err_code function_json_read(const struct config *config, struct json body, const char *in_path,
                                 struct definition **ret, struct err *e)
{
    const char *name, *params[CALL_MAX_PARAMS];
    uint32_t n_params;
    TRY(read_name(body, in_path, &name, e));
    TRY(read_params(body, params, &n_params, e));
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct definition *d = arena ? arena_alloc(arena, sizeof *d) : NULL;
    struct expr x;
    if (!d)
        return err_oom(e);
    expr_init(&x, arena, (size_t)config->max_nodes, (int)config->max_nesting);
    TRY(read_expression(config, body, d, &x, e));
    TRY(function_new(arena, &x, name, params, n_params, &d->function, e));
    arena = NULL; /* the function owns it now */
    d->function->definition = d;
    d->created_us = clock_date_us();
    *ret = d;
    return ERR_OK;
}
