/*
 * Evaluation: expressions, statements, and functions that they call.
 *
 * A single number is asked for with "inline", which makes no array even where the result turns
 * out to be more than one number.
 */
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/looks.h"
#include "clients/c/src/members.h"

/* All of the body but its closing brace. */
static void ask(struct exchange *x, const struct arrayd_expr *expr)
{
    text_puts(&x->target, "/v1/evaluate");
    text_puts(&x->json, "{");
    text_string_member(&x->json, "expr", expr->expr ? expr->expr : "");
    members_binds(&x->json, expr->binds, expr->bind_count);
    text_string_member(&x->json, "name", expr->name);
    text_string_member(&x->json, "out", expr->out);
    text_string_member(&x->json, "index", expr->index);
    if (expr->dtype)
        text_string_member(&x->json, "dtype", arrayd_dtype_name(expr->dtype));
    members_true(&x->json, "fast_math", expr->fast_math);
}

/* What is given back is not stored as well. */
static void refuse_target(struct exchange *x, const struct arrayd_expr *expr)
{
    if (expr->name || expr->out || expr->index)
        x->refused =
            "the result is returned to the caller, so name, out and index must not be given";
}

int arrayd_evaluate(struct arrayd *client, const struct arrayd_expr *expr,
                    struct arrayd_array *ret_array, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct arrayd_array array;
    struct arrayd_scalar scalar;
    struct cJSON *tree;
    ask(&x, expr);
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = true;
    if (json_get(tree, "id")) {
        ok = members_array(tree, &array);
    } else {
        ok = members_scalar(tree, &scalar);
        array = (struct arrayd_array){.dtype = scalar.dtype,
                                      .size = 1,
                                      .itemsize = (int64_t)arrayd_itemsize(scalar.dtype),
                                      .nbytes = (int64_t)arrayd_itemsize(scalar.dtype)};
    }
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply is neither an array nor a number");
    if (ret_array)
        *ret_array = array;
    return 0;
}

int arrayd_evaluate_scalar(struct arrayd *client, const struct arrayd_expr *expr,
                           struct arrayd_scalar *ret_scalar, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct cJSON *tree;
    ask(&x, expr);
    refuse_target(&x, expr);
    members_true(&x.json, "inline", true);
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = members_scalar(tree, ret_scalar);
    json_free(tree);
    return ok ? 0 : error_set(err, "bad_result", "the result is not a single number");
}

int arrayd_evaluate_into(struct arrayd *client, const struct arrayd_expr *expr, void *data,
                         size_t nbytes, struct arrayd_error *err)
{
    char nothing;
    struct exchange x = {.method = "POST", .accept = OCTETS_TYPE, .into_size = nbytes};
    x.into = nbytes ? data : &nothing;
    ask(&x, expr);
    text_puts(&x.json, "}");
    refuse_target(&x, expr);
    if (nbytes && !data)
        x.refused = "the memory is missing";
    return exchange_done(client, &x, err);
}

int arrayd_evaluate_png(struct arrayd *client, const struct arrayd_expr *expr,
                        const struct arrayd_picture *how, FILE *file, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    ask(&x, expr);
    text_puts(&x.json, "}");
    refuse_target(&x, expr);
    looks_ask(&x, how, file);
    if (how && how->index)
        x.refused = "the region of an expression is a part of its text";
    return looks_save(client, &x, file, err);
}

static void add_names(struct text *json, const struct arrayd_result *results, size_t count)
{
    text_member(json, "results");
    text_puts(json, "[");
    for (size_t i = 0; i < count; i++) {
        text_comma(json);
        text_quote(json, results[i].name ? results[i].name : "");
    }
    text_puts(json, "]");
}

int arrayd_run_statements(struct arrayd *client, const struct arrayd_statements *statements,
                          struct arrayd_result *results, size_t result_count,
                          struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct cJSON *tree;
    text_puts(&x.target, "/v1/evaluate");
    text_puts(&x.json, "{");
    members_strings(&x.json, "statements", statements->statements, statements->count);
    members_binds(&x.json, statements->binds, statements->bind_count);
    members_true(&x.json, "fast_math", statements->fast_math);
    add_names(&x.json, results, result_count);
    text_puts(&x.json, "}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    const struct cJSON *all = json_get(tree, "results");
    bool ok = json_is_object(all);
    for (size_t i = 0; ok && i < result_count; i++) {
        const struct cJSON *one = json_get(all, results[i].name);
        results[i].is_array = json_get(one, "id");
        ok = results[i].is_array ? members_array(one, &results[i].array)
                                 : members_scalar(one, &results[i].scalar);
    }
    json_free(tree);
    return ok ? 0 : error_set(err, "bad_result", "the reply does not contain the results");
}

int arrayd_function_define(struct arrayd *client, const char *name, const char *const *params,
                           size_t param_count, const char *expr, struct arrayd_error *err)
{
    struct exchange x = {.method = "PUT"};
    exchange_path(&x, "/v1/functions", name, "");
    text_puts(&x.json, "{");
    members_strings(&x.json, "params", params, param_count);
    text_string_member(&x.json, "expr", expr ? expr : "");
    text_puts(&x.json, "}");
    return exchange_done(client, &x, err);
}

int arrayd_function_delete(struct arrayd *client, const char *name, struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/functions", name, "");
    return exchange_done(client, &x, err);
}
