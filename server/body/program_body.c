/* The form of the body first, then its statements, then what the session has to say. */
#include "server/body/program_body.h"

#include <stdio.h>
#include <string.h>

#include "protocol/json/json.h"
#include "protocol/text/statement.h"

#include "server/body/eval_body.h"
#include "server/body/request.h"
#include "server/body/resolve.h"
#include "server/config.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/session.h"

#define STEPS_MOST ((int64_t)1 << 53) /* what JSON numbers hold */

struct reading {
    bool statements;   /* an evaluate's, else a program */
    size_t most_nodes; /* of the statements, that it is gone on with; 0: any number */
    int64_t n_nodes;   /* of all that has been read */
    struct request *req;
    const struct config *config;
    struct json body;
    bool explain;
    struct session *session;
    struct arena *arena;
    struct resolver resolver;
    struct program_spec spec;
    struct function_set *functions;
    size_t n_functions;
    struct json bind;
    struct body_target *targets;
    struct body_read *reads;
    struct program_result *results;
    uint32_t n_targets, n_reads;
};

static void start_expr(const struct reading *r, struct expr *x)
{
    expr_init(x, r->arena, (size_t)r->config->max_nodes, (int)r->config->max_nesting);
}

/* Calls of the user's functions are written out; what they name is kept with the job. */
static enum err_code write_out(struct reading *r, struct expr *x, const char *place, struct err *e)
{
    struct function_set *set = &r->functions[r->n_functions];
    enum err_code c = functions_of(r->req->principal->functions, x, set, e);
    if (c)
        return c;
    r->n_functions++;
    c = set->n ? function_inline(x, set, x, e) : ERR_OK;
    r->n_nodes += (int64_t)x->n_nodes;
    if (!c && r->n_nodes > r->config->max_program_nodes)
        c = err_field(e, ERR_EXPRESSION_TOO_LARGE, place,
                      "all up to this have more than %lld nodes together, with the functions that "
                      "they call written out (max-program-nodes)",
                      (long long)r->config->max_program_nodes);
    return c;
}

static const char *member(const struct reading *r)
{
    return r->statements ? "statements" : "body";
}

static enum err_code read_statement(struct reading *r, struct json v, size_t i,
                                    struct program_assign *ret, struct err *e)
{
    const char *text;
    size_t n;
    uint32_t source;
    struct statement s;
    char place[32];
    snprintf(place, sizeof place, "/%s/%zu", member(r), i);
    enum err_code c = json_get_string(v, &text, &n, e);
    if (c)
        return c;
    start_expr(r, &ret->expr);
    c = expr_add_source(&ret->expr, place, &source, e);
    if (!c)
        c = statement_parse(&ret->expr, source, text, n, &s, e);
    if (c)
        return c;
    struct err inner = ERR_INIT;
    c = name_check(s.target, &inner);
    if (c) {
        err_at(e, c, s.at, "%s", inner.message);
        return err_prefix(e, place);
    }
    ret->target = s.target;
    ret->at = s.at;
    ret->index = s.index;
    ret->fills = s.fills;
    ret->expr.root = s.root;
    ret->place = ret->expr.sources[source];
    return write_out(r, &ret->expr, place, e);
}

static enum err_code read_statements(struct reading *r, struct err *e)
{
    struct json list;
    enum err_code c = json_require(r->body, member(r), &list, e);
    if (c)
        return c;
    size_t n = json_kind(list) == JSON_LIST ? json_count(list) : 0;
    if (n == 0 || n > (size_t)r->config->max_statements)
        return json_err(list, e, n ? ERR_EXPRESSION_TOO_LARGE : ERR_BAD_FIELD,
                        "%s is a list of statements, from 1 to %lld of them", member(r),
                        (long long)r->config->max_statements);
    struct program_assign *body = arena_alloc_array(r->arena, n, sizeof *body);
    if (!body)
        return err_oom(e);
    r->spec.body = body;
    for (struct json v = json_first(list); json_present(v) && !c; v = json_next(v)) {
        const uint32_t i = r->spec.n_body++;
        c = read_statement(r, v, i, &body[i], e);
    }
    return c;
}

static enum err_code read_series(struct reading *r, struct json v, const char *name,
                                 const char *place, struct program_series *ret, struct err *e)
{
    start_expr(r, &ret->expr);
    ret->name = name ? arena_strndup(r->arena, name, strlen(name)) : "";
    ret->place = arena_strndup(r->arena, place, strlen(place));
    if (!ret->name || !ret->place)
        return err_oom(e);
    enum err_code c =
        eval_read_expr(&ret->expr, v, place, json_kind(v) != JSON_STRING, &ret->expr.root, e);
    return c ? c : write_out(r, &ret->expr, place, e);
}

static enum err_code read_records(struct reading *r, int64_t steps, struct err *e)
{
    struct json record = json_member(r->body, "record"),
                every = json_member(r->body, "record_every");
    r->spec.series_every = 1;
    enum err_code c = ERR_OK;
    if (json_present(every))
        c = json_get_i64(every, 1, STEPS_MOST, &r->spec.series_every, e);
    if (c || !json_present(record))
        return c;
    size_t n = json_kind(record) == JSON_OBJECT ? json_count(record) : 0;
    if (n == 0 || n > (size_t)r->config->max_statements)
        return json_err(record, e, ERR_BAD_FIELD,
                        "record is an object of names and expressions, from 1 to %lld of them",
                        (long long)r->config->max_statements);
    if (steps / r->spec.series_every > r->config->max_records / (int64_t)n)
        return json_err(record, e, ERR_BAD_FIELD,
                        "this makes %lld values of each, at most %lld are kept of all together: a "
                        "larger record_every?",
                        (long long)(steps / r->spec.series_every),
                        (long long)r->config->max_records);
    struct program_series *series = arena_alloc_array(r->arena, n, sizeof *series);
    if (!series)
        return err_oom(e);
    r->spec.series = series;
    for (struct json v = json_first(record); json_present(v); v = json_next(v)) {
        struct err inner = ERR_INIT;
        char place[16 + NAME_SIZE];
        c = name_check(json_key(v), &inner);
        if (c)
            return json_err(v, e, c, "%s", inner.message);
        snprintf(place, sizeof place, "/record/%s", json_key(v));
        c = read_series(r, v, json_key(v), place, &series[r->spec.n_series++], e);
        if (c)
            return c;
    }
    return ERR_OK;
}

static enum err_code read_until(struct reading *r, struct err *e)
{
    struct json until = json_member(r->body, "until"), every = json_member(r->body, "until_every");
    r->spec.until_every = 1;
    enum err_code c = ERR_OK;
    if (json_present(every))
        c = json_get_i64(every, 1, STEPS_MOST, &r->spec.until_every, e);
    if (c || !json_present(until))
        return c;
    struct program_series *s = arena_alloc(r->arena, sizeof *s);
    if (!s)
        return err_oom(e);
    r->spec.until = s;
    return read_series(r, until, NULL, "/until", s, e);
}

/* --- an evaluate's results --- */

static enum err_code add_result(struct reading *r, const char *name, const char *place,
                                struct err *e)
{
    struct program_result *to = &r->results[r->spec.n_results++];
    to->name = arena_strndup(r->arena, name, strlen(name));
    to->place = arena_strndup(r->arena, place, strlen(place));
    return to->name && to->place ? ERR_OK : err_oom(e);
}

static bool is_result(const struct reading *r, const char *name)
{
    for (uint32_t i = 0; i < r->spec.n_results; i++)
        if (!strcmp(r->results[i].name, name))
            return true;
    return false;
}

static enum err_code read_results(struct reading *r, struct json list, struct err *e)
{
    for (struct json v = json_first(list); json_present(v); v = json_next(v)) {
        const char *name;
        struct err inner = ERR_INIT;
        char place[32];
        snprintf(place, sizeof place, "/results/%u", r->spec.n_results);
        enum err_code c = json_get_string(v, &name, NULL, e);
        if (c)
            return c;
        c = name_check(name, &inner);
        if (c)
            return json_err(v, e, c, "%s", inner.message);
        if (is_result(r, name))
            return json_err(v, e, ERR_BAD_NAME, "\"%s\" is there twice", name);
        c = add_result(r, name, place, e);
        if (c)
            return c;
    }
    return ERR_OK;
}

/* Every name that is assigned and is no array, in the order of the first assignments. */
static enum err_code assume_results(struct reading *r, struct err *e)
{
    enum err_code c = ERR_OK;
    for (uint32_t i = 0; i < r->spec.n_body && !c; i++) {
        const struct program_assign *a = &r->spec.body[i];
        struct binding b = {.kind = BINDING_NONE};
        if (a->fills)
            continue; /* it makes nothing */
        c = resolver_resolve(&r->resolver, a->target, &b, e);
        if (c) {
            e->offset = a->at;
            return err_prefix(e, a->place);
        }
        if (b.kind == BINDING_NONE && !is_result(r, a->target))
            c = add_result(r, a->target, a->place, e);
    }
    return c;
}

/* What the reply is to have: where nothing is said, the names are taken from the statements. */
static enum err_code find_results(struct reading *r, struct err *e)
{
    struct json list = json_member(r->body, "results");
    size_t n = json_present(list) ? json_count(list) : r->spec.n_body;
    if (json_present(list) &&
        (json_kind(list) != JSON_LIST || n > (size_t)r->config->max_statements))
        return json_err(list, e, ERR_BAD_FIELD, "results is a list of names, at most %lld",
                        (long long)r->config->max_statements);
    r->results = arena_alloc_array(r->arena, n, sizeof *r->results);
    if (!r->results)
        return err_oom(e);
    r->spec.results = r->results;
    return json_present(list) ? read_results(r, list, e) : assume_results(r, e);
}

/* --- what the session has to say --- */

/* The array that a statement assigns: program_spec.target. */
static enum err_code find_target(void *user, const char *name, struct array **ret, struct err *e)
{
    struct reading *r = user;
    struct json bound = json_member(r->bind, name);
    struct binding b = {.kind = BINDING_NONE};
    _cleanup_handle_ struct handle h = {0};
    *ret = NULL;
    enum err_code c = resolver_resolve(&r->resolver, name, &b, e);
    if (c || b.kind != BINDING_ARRAY)
        return c;
    const char *ref = json_present(bound) ? json_text(bound, NULL) : name;
    c = request_find(r->req, r->session, ref, &h, e);
    if (!c)
        c = lease_check(&r->resolver.claim, h.array, LEASE_WRITE, e);
    if (!c)
        c = handle_writable(&h, e);
    if (c)
        return c;
    struct body_target *t = &r->targets[r->n_targets++];
    memcpy(t->id, h.id, sizeof t->id);
    t->shared = h.shared;
    *ret = array_ref(h.array);
    return ERR_OK;
}

/* Which of the arrays that are read are others', who may take them back. */
static enum err_code find_reads(struct reading *r, struct arena *arena, const struct program *p,
                                struct err *e)
{
    const uint32_t n = program_inputs(p);
    r->reads = arena_alloc_array(arena, n ? n : 1, sizeof *r->reads);
    if (!r->reads)
        return err_oom(e);
    for (uint32_t i = 0; i < n; i++) {
        const struct array *a = program_input(p, i);
        const char *id = a ? resolver_shared(&r->resolver, a) : NULL;
        if (!id)
            continue;
        struct body_read *to = &r->reads[r->n_reads++];
        memcpy(to->id, id, sizeof to->id);
        to->input = i;
    }
    return ERR_OK;
}

static enum err_code make_program(struct reading *r, struct program **ret, struct err *e)
{
    struct check_env env = {.resolve = resolver_resolve,
                            .user = &r->resolver,
                            .max_inputs = (uint32_t)r->config->max_inputs};
    r->targets = arena_alloc_array(r->arena, r->spec.n_body, sizeof *r->targets);
    if (!r->targets)
        return err_oom(e);
    struct lease_claim claim = r->explain ? (struct lease_claim){0} : request_claim(r->req);
    resolver_init(&r->resolver, r->req, r->session->handles, claim);
    enum err_code c = resolver_bind(&r->resolver, r->bind, e);
    if (!c && r->statements)
        c = find_results(r, e);
    if (!c) {
        r->spec.arena = r->arena;
        r->spec.env = &env;
        r->spec.target = find_target;
        r->spec.user = r;
        struct session_stream *background = NULL;
        if (!r->statements)
            c = session_background(r->session, &background, e);
        if (!c)
            c = program_new(background ? background->stream : r->session->stream,
                            r->session->account, &r->spec, ret, e);
    }
    struct arena *arena = r->arena;
    if (!c) {
        r->arena = NULL; /* the program's now */
        c = find_reads(r, arena, *ret, e);
    }
    resolver_clear(&r->resolver);
    return c;
}

static enum err_code read_snapshots(struct reading *r, struct program_body *to, struct arena *arena,
                                    struct err *e)
{
    struct json snapshot = json_member(r->body, "snapshot");
    if (!json_present(snapshot))
        return ERR_OK;
    size_t n = json_kind(snapshot) == JSON_OBJECT ? json_count(snapshot) : 0;
    struct body_snapshot *list = arena_alloc_array(arena, n ? n : 1, sizeof *to);
    if (!n)
        return json_err(snapshot, e, ERR_BAD_FIELD,
                        "snapshot is an object of arrays that are assigned and numbers of steps");
    if (!list)
        return err_oom(e);
    for (struct json v = json_first(snapshot); json_present(v); v = json_next(v)) {
        struct body_snapshot *s = &list[to->n_snapshots++];
        struct array *unused;
        while (s->target < program_targets(to->program) &&
               strcmp(program_target(to->program, s->target, &unused), json_key(v)) != 0)
            s->target++;
        if (s->target == program_targets(to->program))
            return json_err(v, e, ERR_UNKNOWN_NAME, "\"%s\" is no array that is assigned",
                            json_key(v));
        enum err_code c = json_get_i64(v, 1, STEPS_MOST, &s->every, e);
        if (c)
            return c;
    }
    to->snapshots = list;
    return ERR_OK;
}

static enum err_code check_members(const struct reading *r, struct err *e)
{
    struct json expr = json_member(r->body, "expr"), tree = json_member(r->body, "tree");
    if (!r->statements)
        return JSON_MEMBERS(r->body, e, "bind", "body", "steps", "record", "record_every",
                            "snapshot", "until", "until_every", "stop_on_nan", "fast_math");
    if (json_present(expr) || json_present(tree))
        return json_err(json_present(expr) ? expr : tree, e, ERR_BAD_FIELD,
                        "one of expr, tree and statements says what to compute, not two");
    return JSON_MEMBERS(r->body, e, "bind", "statements", "results", "inline", "fast_math");
}

static enum err_code read_form(struct reading *r, int64_t *ret_steps, struct err *e)
{
    struct json v;
    enum err_code c = check_members(r, e);
    if (c)
        return c;
    r->spec.once = r->statements;
    r->spec.most_nodes = r->config->max_program_nodes;
    r->bind = json_member(r->body, "bind");
    *ret_steps = 1;
    if (json_present(v = json_member(r->body, "steps")))
        c = json_get_i64(v, 1, STEPS_MOST, ret_steps, e);
    if (!c && json_present(v = json_member(r->body, "stop_on_nan")))
        c = json_get_bool(v, &r->spec.stop_on_nan, e);
    if (!c && json_present(v = json_member(r->body, "fast_math")))
        c = json_get_bool(v, &r->spec.fast_math, e);
    return c;
}

static enum err_code read_all(struct reading *r, struct program_body *to, struct err *e)
{
    enum err_code c = read_form(r, &to->steps, e);
    if (c)
        return c;
    struct arena *arena = r->arena = arena_new(0);
    size_t most = 2 * (size_t)r->config->max_statements + 1;
    r->functions = arena ? arena_alloc_array(arena, most, sizeof *r->functions) : NULL;
    if (!r->functions)
        return err_oom(e);
    c = read_statements(r, e);
    if (!c && r->most_nodes && r->n_nodes > (int64_t)r->most_nodes)
        return ERR_OK;
    if (!c)
        c = read_records(r, to->steps, e);
    if (!c)
        c = read_until(r, e);
    if (!c)
        c = session_of(r->req, &r->session, e);
    if (!c)
        c = make_program(r, &to->program, e);
    if (!c)
        c = read_snapshots(r, to, arena, e);
    const char *tokens = http_header(r->req, "Arrayd-Lease");
    const char **names = c ? NULL : arena_alloc_array(arena, r->spec.n_series, sizeof *names);
    if (!c && (!names || (tokens && !(tokens = arena_strndup(arena, tokens, strlen(tokens))))))
        c = err_oom(e);
    for (uint32_t i = 0; i < r->spec.n_series && !c; i++)
        names[i] = r->spec.series[i].name;
    to->claim = (struct lease_claim){r->req->server->leases, tokens};
    to->shares = r->req->server->shares;
    to->targets = r->targets;
    to->reads = r->reads;
    to->n_reads = r->n_reads;
    to->series = names;
    return c;
}

static enum err_code read_body(struct reading *r, struct program_body *ret, struct err *e)
{
    *ret = (struct program_body){.principal = r->req->principal};
    enum err_code c = read_all(r, ret, e);
    ret->session = r->session;
    ret->n_series = r->spec.n_series;
    ret->record_every = r->spec.series_every;
    ret->functions = r->functions;
    ret->n_functions = r->n_functions;
    ret->results = r->results;
    ret->n_results = r->spec.n_results;
    if (c || !ret->program) {
        program_body_clear(ret);
        arena_free(r->arena); /* where it has not become the program's */
    }
    return c;
}

enum err_code program_body_read(struct request *req, struct json body, bool explain,
                                struct program_body *ret, struct err *e)
{
    return read_body(
        &(struct reading){
            .req = req, .config = req->server->config, .body = body, .explain = explain},
        ret, e);
}

enum err_code statements_body_read(struct request *req, struct json body, bool explain,
                                   size_t most_nodes, struct program_body *ret, struct err *e)
{
    struct json v = json_member(body, "inline");
    bool in_line = false;
    enum err_code c = json_present(v) ? json_get_bool(v, &in_line, e) : ERR_OK;
    if (!c)
        c = read_body(&(struct reading){.req = req,
                                        .config = req->server->config,
                                        .statements = true,
                                        .most_nodes = most_nodes,
                                        .body = body,
                                        .explain = explain},
                      ret, e);
    if (!c)
        ret->inline_data = in_line;
    return c;
}

void program_body_drop(struct program_body *b)
{
    for (size_t i = 0; i < b->n_functions; i++)
        functions_release(&b->functions[i]);
    program_free(b->program);
    b->program = NULL;
    b->n_functions = 0;
}

void program_body_clear(struct program_body *b)
{
    program_body_drop(b);
    session_unref(b->session);
    *b = (struct program_body){0};
}
