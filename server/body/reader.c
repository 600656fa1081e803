/* The caller orders the steps: errors in a body's form come first, then those in its expressions,
 * then those that depend on the session. */
#include "server/body/reader.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/text/infix.h"
#include "protocol/text/tree.h"
#include "server/body/request.h"
#include "server/config/config.h"
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
    TRY(functions_of(r->past ? r->past->functions : r->req->principal->functions, x, ret, e));
    return ret->n ? function_inline(x, ret, x, e) : ERR_OK;
}

/* --- the meaning of names --- */

static void bind_array(struct resolved *to, const struct handle *h)
{
    struct array *a = array_ref(h->array);
    to->binding = (struct binding){
        .kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view, .grid = a->grid};
    if (h->shared)
        memcpy(to->shared, h->id, sizeof to->shared);
}

const struct past_name *reader_past(const struct reader *r, const char *name)
{
    size_t i = 0;
    while (i < r->past->n_names && strcmp(r->past->names[i].name, name) != 0)
        i++;
    return i < r->past->n_names ? &r->past->names[i] : NULL;
}

static enum err_code get_past(const struct reader *r, const char *name, struct resolved *ret,
                              struct err *e)
{
    const struct past_name *x = reader_past(r, name);
    if (!x)
        return err_set(e, ERR_NOT_FOUND, "\"%s\" was no array", name);
    struct handle h = {.shared = x->shared, .array = x->array};
    memcpy(h.id, x->id, sizeof h.id);
    bind_array(ret, &h);
    return ERR_OK;
}

/* The array that `ref` means, which the text calls `name`. */
static enum err_code get_array(struct reader *r, const char *name, const char *ref,
                               struct resolved *ret, struct err *e)
{
    struct handle h;
    if (r->past)
        return get_past(r, name, ret, e);
    TRY(share_get(&r->scope, ref, &h, e));
    enum err_code code = lease_check(&r->claim, h.array, LEASE_READ, e);
    if (code == ERR_OK)
        bind_array(ret, &h);
    handle_clear(&h);
    return code;
}

/* {"op":"const","value":…,"dtype":…}: the tree's parser reads it. */
static enum err_code bind_const(struct reader *r, struct json v, struct binding *ret, struct err *e)
{
    struct expr x;
    uint32_t source, root;
    expr_init(&x, r->req->arena, 2, 2);
    enum err_code code = expr_add_source(&x, "", &source, e);
    if (code == ERR_OK)
        code = json_equals(json_member(v, "op"), "const")
                   ? tree_parse(&x, source, v, &root, e)
                   : json_err(v, e, ERR_BAD_FIELD,
                              "an object here must be {\"op\": \"const\", \"value\": …, "
                              "\"dtype\": …}");
    if (code != ERR_OK)
        return code;
    const struct expr_node *n = &x.nodes[root];
    if (n->kind == EXPR_TYPED)
        *ret = (struct binding){.kind = BINDING_SCALAR, .scalar = n->typed};
    else
        *ret = (struct binding){.kind = BINDING_LITERAL, .lit = n->lit};
    return ERR_OK;
}

/* Whether a string is another spelling of a number: NaN, the infinities, digits. */
static bool is_number(const char *s)
{
    return (*s >= '0' && *s <= '9') || *s == '-' || *s == '+' || !strcmp(s, "NaN") ||
           !strcmp(s, "Infinity");
}

static enum err_code bind_value(struct reader *r, struct json v, struct resolved *ret,
                                struct err *e)
{
    struct err inner = ERR_INIT;
    enum json_kind kind = json_kind(v);
    if (kind == JSON_OBJECT)
        return bind_const(r, v, &ret->binding, e);
    if (kind == JSON_STRING && !is_number(json_text(v, NULL))) {
        enum err_code code = get_array(r, ret->name, json_text(v, NULL), ret, &inner);
        return code != ERR_OK ? json_err(v, e, code, "%s", inner.message) : ERR_OK;
    }
    ret->binding = (struct binding){.kind = BINDING_LITERAL};
    return json_get_literal(v, &ret->binding.lit, e);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct resolved *)a)->name, ((const struct resolved *)b)->name);
}

static enum err_code read_bind(struct reader *r, struct json bind, struct err *e)
{
    if (!json_present(bind))
        return ERR_OK;
    if (json_kind(bind) != JSON_OBJECT)
        return json_err(bind, e, ERR_BAD_FIELD, "bind must be an object of names and values");
    size_t n = json_count(bind);
    r->bound = arena_alloc_array(r->req->arena, n ? n : 1, sizeof *r->bound);
    if (!r->bound)
        return err_oom(e);
    for (struct json v = json_first(bind); json_present(v); v = json_next(v)) {
        struct resolved *to = &r->bound[r->n_bound];
        struct err inner = ERR_INIT;
        *to = (struct resolved){.name = json_key(v)};
        enum err_code code = name_check(to->name, &inner);
        if (code != ERR_OK)
            return json_err(v, e, code, "%s", inner.message);
        code = bind_value(r, v, to, e);
        if (code != ERR_OK)
            return code;
        r->n_bound++;
    }
    qsort(r->bound, r->n_bound, sizeof *r->bound, by_name);
    return ERR_OK;
}

const char *reader_shared(const struct reader *r, const struct array *a)
{
    for (size_t i = 0; i < r->n_bound; i++)
        if (r->bound[i].shared[0] && r->bound[i].binding.array == a)
            return r->bound[i].shared;
    for (size_t i = 0; i < r->n_seen; i++)
        if (r->seen[i].shared[0] && r->seen[i].binding.array == a)
            return r->seen[i].shared;
    return NULL;
}

static enum err_code ask_again(const struct reader *r, const struct resolved *x, struct err *e)
{
    return x->shared[0] ? share_again(&r->scope, x->shared, x->binding.array, false, e) : ERR_OK;
}

enum err_code reader_ask_again(const struct reader *r, struct err *e)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < r->n_bound && code == ERR_OK; i++)
        code = ask_again(r, &r->bound[i], e);
    for (size_t i = 0; i < r->n_seen && code == ERR_OK; i++)
        code = ask_again(r, &r->seen[i], e);
    return code;
}

enum err_code reader_resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct reader *r = user;
    struct resolved key = {.name = name};
    const struct resolved *found =
        r->n_bound ? bsearch(&key, r->bound, r->n_bound, sizeof *r->bound, by_name) : NULL;
    for (size_t i = 0; !found && i < r->n_seen; i++)
        if (!strcmp(r->seen[i].name, name))
            found = &r->seen[i];
    if (found) {
        *ret = found->binding;
        return ERR_OK;
    }
    enum err_code code = get_array(r, name, name, &key, e);
    if (code == ERR_NOT_FOUND) {
        *ret = (struct binding){.kind = BINDING_NONE};
        return ERR_OK;
    }
    if (code != ERR_OK)
        return code;
    key.name = arena_strndup(r->req->arena, name, strlen(name));
    if (!key.name ||
        arena_grow(r->req->arena, (void **)&r->seen, &r->cap_seen, r->n_seen, sizeof *r->seen)) {
        array_unref(key.binding.array);
        return err_oom(e);
    }
    r->seen[r->n_seen++] = key;
    *ret = key.binding;
    return ERR_OK;
}

const char *reader_called(void *user, const char *name)
{
    struct reader *r = user;
    const struct json bound = json_member(json_member(r->body, "bind"), name);
    const char *ref = json_kind(bound) == JSON_STRING ? json_text(bound, NULL) : name;
    _cleanup_handle_ struct handle h = {0};
    if (r->past || share_get(&r->scope, ref, &h, NULL) != ERR_OK)
        return name;
    const char *called = h.name[0] && !h.shared ? h.name : h.id;
    const char *copy = arena_strndup(r->req->arena, called, strlen(called));
    return copy ? copy : name;
}

/* --- checks that depend on the session --- */

enum err_code reader_open(struct reader *r, struct err *e)
{
    if (r->past)
        r->session = session_ref(r->past->session);
    else
        TRY(session_of(r->req, &r->session, e));
    r->scope = request_scope(r->req, r->session);
    r->claim = r->explain || r->past ? (struct lease_claim){0} : request_claim(r->req);
    r->env = (struct check_env){.resolve = reader_resolve,
                                .called = reader_called,
                                .user = r,
                                .max_inputs = (uint32_t)r->req->server->config->max_inputs};
    return read_bind(r, json_member(r->body, "bind"), e);
}

enum err_code reader_target(struct reader *r, const char *ref, struct handle *ret, struct err *e)
{
    _cleanup_handle_ struct handle h = {0};
    TRY(request_find(r->req, r->session, ref, &h, e));
    TRY(lease_check(&r->claim, h.array, LEASE_WRITE, e));
    TRY(handle_writable(&h, e));
    *ret = h;
    h = (struct handle){0};
    return ERR_OK;
}

void reader_clear(struct reader *r)
{
    for (size_t i = 0; i < r->n_bound; i++)
        array_unref(r->bound[i].binding.array);
    for (size_t i = 0; i < r->n_seen; i++)
        array_unref(r->seen[i].binding.array);
    r->n_bound = r->n_seen = 0;
    session_unref(r->session);
    r->session = NULL;
}
