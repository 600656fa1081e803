/* Reading recurses, bounded by the nesting limit of the expression (every level of a tree counts).
 * Writing uses its own stack, since an infix chain of 10,000 subtractions is as many levels deep.
 *
 * Whether a string is text or a name depends on its parameter: the attribute's name, or the one in
 * the function's signature (func.def). */
#include "protocol/text/tree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/strb.h"
#include "compute/lang/func.h"
#include "compute/type/op.h"
#include "protocol/json/json_doc.h"
#include "protocol/number/numtext.h"
#include "protocol/text/index.h"

struct reader {
    struct expr *x;
    uint32_t source;
    int depth;
    struct expr_link *links; /* arguments of the nodes being read, as in infix.c */
    size_t n_links, cap_links;
    struct err *e;
};

static enum err_code value(struct reader *r, struct json v, const char *step, bool is_text,
                           uint32_t *ret);

static bool is_text_parameter(const char *name, size_t n)
{
    static const char *const texts[] = {"boundary", "dtype", "method", "mode", "spacing"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i]) == n && memcmp(texts[i], name, n) == 0)
            return true;
    return false;
}

static enum err_code push_link(struct reader *r, uint32_t node, const char *keyword)
{
    void *links = r->links;
    if (arena_grow(r->x->arena, &links, &r->cap_links, r->n_links, sizeof *r->links))
        return err_oom(r->e);
    r->links = links;
    r->links[r->n_links++] = (struct expr_link){.node = node, .keyword = keyword};
    return ERR_OK;
}

/* Adds a node with the links above `base`; its errors point to v. */
static enum err_code add(struct reader *r, struct json v, struct expr_node node, const char *step,
                         size_t base, size_t n_keywords, uint32_t *ret)
{
    node.source = r->source;
    node.depth = (uint16_t)r->depth;
    node.offset = -1;
    node.step = step;
    size_t n = r->n_links - base;
    r->n_links = base;
    enum err_code code =
        expr_add(r->x, &node, n ? r->links + base : NULL, n, n_keywords, ret, r->e);
    if (code == ERR_EXPRESSION_TOO_LARGE)
        return json_err(v, r->e, code, "the expression has more than %zu nodes", r->x->max_nodes);
    return code;
}

/* "args/3" or an attribute's name, escaped for a JSON pointer. */
static const char *step_of(struct reader *r, const char *prefix, size_t index, const char *name)
{
    if (!name)
        return arena_printf(r->x->arena, "%s%zu", prefix ? prefix : "", index);
    char buf[JSON_POINTER_MAX] = "";
    json_pointer_add(buf, name, strlen(name));
    return arena_strndup(r->x->arena, buf[0] ? buf + 1 : "", sizeof buf);
}

static enum err_code enter(struct reader *r, struct json v)
{
    if (++r->depth > r->x->max_nesting)
        return json_err(v, r->e, ERR_EXPRESSION_TOO_LARGE,
                        "the tree nests more than %d levels deep; use operations that take many "
                        "arguments, or \"let\"",
                        r->x->max_nesting);
    return ERR_OK;
}

static enum err_code constant(struct reader *r, struct json v, const char *step, uint32_t *ret)
{
    struct json member, type;
    struct literal lit;
    enum dtype t;
    enum err_code code = JSON_MEMBERS(v, r->e, "op", "value", "dtype");
    if (code == ERR_OK)
        code = json_require(v, "value", &member, r->e);
    if (code == ERR_OK)
        code = json_get_literal(member, &lit, r->e);
    if (code != ERR_OK)
        return code;
    type = json_member(v, "dtype");
    if (!json_given(type))
        return add(r, v, (struct expr_node){.kind = EXPR_LITERAL, .lit = lit}, step, r->n_links, 0,
                   ret);
    code = json_get_dtype(type, &t, r->e);
    if (code != ERR_OK)
        return code;
    struct err why = ERR_INIT;
    struct expr_node node = {.kind = EXPR_TYPED};
    code = scalar_from_literal(t, &lit, &node.typed, &why);
    if (code != ERR_OK)
        return json_err(member, r->e, code, "%s", why.message);
    return add(r, v, node, step, r->n_links, 0, ret);
}

static enum err_code arguments(struct reader *r, struct json args, int func)
{
    size_t i = 0;
    if (json_kind(args) != JSON_LIST)
        return json_err(args, r->e, ERR_BAD_EXPRESSION, "\"args\" must be a list of nodes");
    for (struct json c = json_first(args); json_present(c); c = json_next(c), i++) {
        size_t len = 0;
        const char *param = func >= 0 ? func_param(func_table[func].signature, (int)i, &len) : NULL;
        const char *step = step_of(r, "args/", i, NULL);
        uint32_t node;
        if (!step)
            return err_oom(r->e);
        enum err_code code = value(r, c, step, param && is_text_parameter(param, len), &node);
        if (code == ERR_OK)
            code = push_link(r, node, NULL);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

static enum err_code getitem(struct reader *r, struct json v, const char *step, uint32_t *ret)
{
    struct json args, text;
    enum err_code code = JSON_MEMBERS(v, r->e, "op", "args", "index");
    if (code == ERR_OK)
        code = json_require(v, "args", &args, r->e);
    if (code == ERR_OK)
        code = json_require(v, "index", &text, r->e);
    if (code != ERR_OK)
        return code;
    if (json_kind(text) != JSON_STRING)
        return json_err(text, r->e, ERR_BAD_INDEX,
                        "an index must be a string such as \"1:-1, ::2\"");
    struct err why = ERR_INIT;
    size_t n, base = r->n_links;
    const char *p = json_text(text, &n);
    struct index_spec *spec = arena_alloc(r->x->arena, sizeof *spec);
    if (!spec)
        return err_oom(r->e);
    code = index_parse(p, n, spec, &why);
    if (code != ERR_OK) {
        json_err(text, r->e, code, "%s", why.message);
        if (r->e)
            r->e->offset = why.offset;
        return code;
    }
    if (json_kind(args) == JSON_LIST && json_count(args) != 1)
        return json_err(args, r->e, ERR_BAD_ARITY, "getitem takes one argument");
    code = arguments(r, args, -1);
    if (code != ERR_OK)
        return code;
    return add(r, v, (struct expr_node){.kind = EXPR_GETITEM, .index = spec}, step, base, 0, ret);
}

/* Whether the operation has a parameter of that name. Unknown operations accept any: the checker
 * reports them. */
static bool has_parameter(int func, int op, const char *name)
{
    if (func >= 0) {
        for (int i = 0;; i++) {
            size_t len;
            const char *param = func_param(func_table[func].signature, i, &len);
            if (!param || (strlen(name) == len && memcmp(name, param, len) == 0))
                return param != NULL;
        }
    }
    if (op < 0)
        return true;
    return op_table[op].nargs == 1 ? strcmp(name, "x") == 0
                                   : strcmp(name, "x1") == 0 || strcmp(name, "x2") == 0;
}

static enum err_code operation(struct reader *r, struct json v, const char *step, uint32_t *ret)
{
    struct json op = json_member(v, "op");
    if (json_kind(op) != JSON_STRING)
        return json_err(json_present(op) ? op : v, r->e, ERR_BAD_EXPRESSION,
                        "a node must be an object with \"op\", the name of an operation");
    if (json_equals(op, "const"))
        return constant(r, v, step, ret);
    if (json_equals(op, "getitem"))
        return getitem(r, v, step, ret);
    size_t n, base = r->n_links, n_keywords = 0;
    const char *name = json_text(op, &n);
    int func = func_from_name(name, n), known = op_from_name(name, n);
    enum err_code code = ERR_OK;
    struct json args = json_member(v, "args");
    if (json_present(args))
        code = arguments(r, args, func);
    for (struct json c = json_first(v); json_present(c) && code == ERR_OK; c = json_next(c)) {
        const char *key = json_key(c);
        uint32_t node;
        if (strcmp(key, "op") == 0 || strcmp(key, "args") == 0)
            continue;
        if (!has_parameter(func, known, key))
            return json_err(c, r->e, ERR_UNKNOWN_FIELD, "%.60s has no parameter \"%.60s\"", name,
                            key);
        const char *keyword = arena_strndup(r->x->arena, key, strlen(key));
        const char *at = step_of(r, NULL, 0, key);
        if (!keyword || !at)
            return err_oom(r->e);
        code = value(r, c, at, is_text_parameter(key, strlen(key)), &node);
        if (code == ERR_OK)
            code = push_link(r, node, keyword);
        n_keywords++;
    }
    if (code != ERR_OK)
        return code;
    name = arena_strndup(r->x->arena, name, n);
    if (!name)
        return err_oom(r->e);
    return add(r, v, (struct expr_node){.kind = EXPR_CALL, .name = name}, step, base, n_keywords,
               ret);
}

static enum err_code list(struct reader *r, struct json v, const char *step, uint32_t *ret)
{
    size_t base = r->n_links, i = 0;
    for (struct json c = json_first(v); json_present(c); c = json_next(c)) {
        uint32_t node;
        const char *at = step_of(r, "", i++, NULL);
        if (!at)
            return err_oom(r->e);
        enum err_code code = value(r, c, at, false, &node);
        if (code == ERR_OK)
            code = push_link(r, node, NULL);
        if (code != ERR_OK)
            return code;
    }
    return add(r, v, (struct expr_node){.kind = EXPR_LIST}, step, base, 0, ret);
}

static enum err_code value(struct reader *r, struct json v, const char *step, bool is_text,
                           uint32_t *ret)
{
    struct expr_node node = {.kind = EXPR_NONE};
    enum err_code code = ERR_OK;
    size_t n;
    const char *p;
    switch (json_kind(v)) {
    case JSON_OBJECT:
    case JSON_LIST:
        code = enter(r, v);
        if (code == ERR_OK)
            code = json_kind(v) == JSON_LIST ? list(r, v, step, ret) : operation(r, v, step, ret);
        r->depth--;
        return code;
    case JSON_STRING:
        p = json_text(v, &n);
        node.kind = is_text ? EXPR_STRING : EXPR_NAME;
        node.name = arena_strndup(r->x->arena, p, n);
        if (!node.name)
            return err_oom(r->e);
        break;
    case JSON_NUMBER:
    case JSON_BOOL:
        node.kind = EXPR_LITERAL;
        code = json_get_literal(v, &node.lit, r->e);
        if (code == ERR_INEXACT_NUMBER) {
            p = json_text(v, &n);
            return json_err(v, r->e, code,
                            "%.*s is beyond ±2^53, where some JSON readers round; write "
                            "{\"op\":\"const\",\"value\":\"%.*s\",\"dtype\":\"int64\"}",
                            (int)(n > 60 ? 60 : n), p, (int)(n > 60 ? 60 : n), p);
        }
        break;
    case JSON_NULL:
        break;
    case JSON_ABSENT:
        return json_err(v, r->e, ERR_BAD_EXPRESSION, "the tree is missing");
    }
    return code ? code : add(r, v, node, step, r->n_links, 0, ret);
}

enum err_code tree_parse(struct expr *x, uint32_t source, struct json v, uint32_t *ret_root,
                         struct err *e)
{
    struct reader r = {.x = x, .source = source, .e = e};
    uint32_t root;
    enum err_code code = value(&r, v, NULL, false, &root);
    if (code == ERR_OK)
        *ret_root = root;
    return code;
}
