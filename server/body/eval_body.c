/* Members are read in the order in which errors should be reported: first the form of the body,
 * then its expression, then everything that depends on the session (names, the target). */
#include "server/body/eval_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/json/json.h"
#include "protocol/text/index.h"
#include "server/body/meta.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/store/functions.h"

void eval_body_clear(struct eval_body *b)
{
    reader_clear(&b->reader);
    functions_release(&b->functions);
    if (b->has_out)
        handle_clear(&b->out);
    b->has_out = false;
}

enum err_code eval_body_ask_again(const struct eval_body *b, struct err *e)
{
    TRY(reader_ask_again(&b->reader, e));
    return b->has_out && b->out.shared
               ? share_again(&b->reader.scope, b->out.id, b->out.array, true, e)
               : ERR_OK;
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

/* A name that is defined twice is more likely a mistake than intended. */
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

static enum err_code read_let(struct expr *x, struct json v, size_t i, struct err *e)
{
    struct err inner = ERR_INIT;
    char pointer[64];
    uint32_t node;
    struct json first = json_first(v), second = json_next(first);
    if (json_kind(v) != JSON_LIST || json_count(v) != 2 || json_kind(first) != JSON_STRING)
        return json_err(v, e, ERR_BAD_FIELD, "let must be a list of [name, expression]");
    const char *name = json_text(first, NULL);
    enum err_code code = name_check(name, &inner);
    if (code != ERR_OK)
        return json_err(first, e, code, "%s", inner.message);
    snprintf(pointer, sizeof pointer, "/let/%zu/1", i);
    TRY(reader_parse(x, second, pointer, false, &node, e));
    return expr_add_let(x, name, node, e);
}

static enum err_code read_lets(struct expr *x, struct json let, struct err *e)
{
    size_t i = 0;
    if (!json_present(let))
        return ERR_OK;
    if (json_kind(let) != JSON_LIST)
        return json_err(let, e, ERR_BAD_FIELD, "let must be a list of [name, expression]");
    for (struct json v = json_first(let); json_present(v); v = json_next(v), i++)
        TRY(read_let(x, v, i, e));
    return i > 1 ? unique_lets(x, e) : ERR_OK;
}

static enum err_code read_expression(struct eval_body *b, struct json body, struct err *e)
{
    struct json text = json_member(body, "expr"), tree = json_member(body, "tree");
    if (json_present(text) == json_present(tree))
        return json_present(text)
                   ? json_err_member(body, "tree", e, ERR_BAD_FIELD,
                                     "give either expr or tree, not both")
                   : json_err_member(body, "expr", e, ERR_BAD_FIELD,
                                     "give what to compute as expr, tree or statements");
    if (json_present(text) && json_kind(text) != JSON_STRING)
        return json_err(text, e, ERR_BAD_FIELD, "expr must be a string; JSON trees go in \"tree\"");
    reader_start(&b->reader, b->reader.req->arena, &b->expr);
    TRY(read_lets(&b->expr, json_member(body, "let"), e));
    if (json_present(text))
        TRY(reader_parse(&b->expr, text, "/expr", false, &b->expr.root, e));
    else
        TRY(reader_parse(&b->expr, tree, "/tree", true, &b->expr.root, e));
    return reader_write_out(&b->reader, &b->expr, &b->functions, e);
}

static enum err_code read_region(struct eval_body *b, struct json index, struct err *e)
{
    const char *text;
    size_t n;
    TRY(json_get_string(index, &text, &n, e));
    struct index_spec *spec = arena_alloc(b->reader.req->arena, sizeof *spec);
    if (!spec)
        return err_oom(e);
    if (index_parse(text, n, spec, e) != ERR_OK ||
        view_index(&b->out.array->view, spec, &b->region, e) != ERR_OK)
        return err_prefix(e, "/index");
    return ERR_OK;
}

/* Reads "out" and "index": the array and the elements to write. */
static enum err_code read_target(struct eval_body *b, struct json body, struct err *e)
{
    struct json out = json_member(body, "out"), index = json_member(body, "index");
    struct err inner = ERR_INIT;
    const char *ref;
    if (!json_given(out))
        return json_given(index) ? json_err(index, e, ERR_BAD_FIELD,
                                            "index selects a region of out, but out is missing")
                                 : ERR_OK;
    TRY(json_get_string(out, &ref, NULL, e));
    if (b->name)
        return json_err(out, e, ERR_BAD_FIELD, "give either out or name, not both");
    enum err_code code = reader_target(&b->reader, ref, &b->out, &inner);
    if (code != ERR_OK)
        return json_err(out, e, code, "%s", inner.message);
    b->has_out = true;
    b->region = b->out.array->view;
    return json_given(index) ? read_region(b, index, e) : ERR_OK;
}

static enum err_code read_flags(struct eval_body *b, struct json body, struct err *e)
{
    struct json dtype = json_member(body, "dtype"), in_line = json_member(body, "inline"),
                fast = json_member(body, "fast_math");
    enum dtype t;
    b->request.dtype = -1;
    if (json_given(dtype)) {
        TRY(json_get_dtype(dtype, &t, e));
        b->request.dtype = (int)t;
    }
    if (json_present(in_line))
        TRY(json_get_bool(in_line, &b->inline_data, e));
    if (json_present(fast))
        TRY(json_get_bool(fast, &b->request.fast_math, e));
    return meta_name(body, &b->name, e);
}

static enum err_code read_reply(struct eval_body *b, struct err *e)
{
    static const enum media offers[] = {MEDIA_JSON, MEDIA_OCTETS, MEDIA_NPY, MEDIA_PNG};
    const bool explain = b->reader.explain;
    b->reply = MEDIA_JSON;
    if (!explain && (b->name || b->has_out))
        return ERR_OK; /* metadata, whatever Accept is */
    return media_negotiate(http_header(b->reader.req, "Accept"), offers, explain ? 1 : 4, &b->reply,
                           e);
}

/* Checks that the array that has the name may be replaced. */
static enum err_code check_name(struct eval_body *b, struct err *e)
{
    struct handle_space *handles = b->reader.session->handles;
    _cleanup_handle_ struct handle now = {0};
    enum err_code code = handle_check_name(handles, b->name, NAME_REPLACE, e);
    if (code == ERR_OK && handle_get(handles, b->name, &now, NULL) == ERR_OK) {
        b->replaces = array_buffer_id(now.array);
        code = lease_guard(b->reader.claim.table, now.array, e);
    }
    return code != ERR_OK ? err_prefix(e, "/name") : ERR_OK;
}

/* A body with "statements" is read by program_body.c. Both its members are named here as well, so
 * that the error for a misspelt member lists them. */
static enum err_code check_members(struct json body, struct err *e)
{
    const struct json results = json_member(body, "results");
    TRY(JSON_MEMBERS(body, e, "expr", "tree", "let", "bind", "name", "out", "index", "dtype",
                     "inline", "fast_math", "statements", "results"));
    return json_present(results) ? json_err(results, e, ERR_UNKNOWN_FIELD,
                                            "results selects among the targets of statements, but "
                                            "statements is missing")
                                 : ERR_OK;
}

static enum err_code read_all(struct eval_body *b, struct json body, struct err *e)
{
    TRY(check_members(body, e));
    TRY(read_flags(b, body, e));
    TRY(read_expression(b, body, e));
    TRY(reader_open(&b->reader, e));
    TRY(read_target(b, body, e));
    if (b->name)
        TRY(check_name(b, e));
    return read_reply(b, e);
}

enum err_code eval_body_read(struct request *req, struct json body, bool explain,
                             struct eval_body *b, struct err *e)
{
    memset(b, 0, sizeof *b);
    b->reader.req = req;
    b->reader.body = body;
    b->reader.explain = explain;
    enum err_code code = read_all(b, body, e);
    if (code != ERR_OK) {
        eval_body_clear(b);
        return code;
    }
    b->request.expr = &b->expr;
    b->request.env = &b->reader.env;
    if (b->has_out) {
        b->request.out = b->out.array;
        b->request.out_view = &b->region;
    }
    return ERR_OK;
}

enum err_code eval_body_placed(enum err_code code, struct err *e)
{
    return code != ERR_OK && e->of_target ? err_prefix(e, "/out") : code;
}
