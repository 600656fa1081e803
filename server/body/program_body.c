/* First the form of the body is checked, then its statements, then everything that depends on the
 * session. */
#include "server/body/program_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "protocol/json/json.h"
#include "protocol/text/statement.h"
#include "server/body/reader.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/store/functions.h"

#define STEPS_MOST ((int64_t)1 << 53) /* JSON numbers are exact up to this */

struct reading {
    struct reader reader;
    const struct config *config;
    bool statements;     /* an evaluate's, otherwise a program */
    size_t most_nodes;   /* stop reading if the statements have more; 0: no limit */
    int64_t n_nodes;     /* read so far */
    struct arena *arena; /* until the program owns it */
    struct program_spec spec;
    struct program_body *to;
    /* `to` and `spec` point at these; they are filled in later: */
    struct body_target *targets;
    struct program_result *results;
    uint32_t n_targets;
};

/* Writes out the calls of the principal's functions; the program keeps the functions. */
static enum err_code write_out(struct reading *r, struct expr *x, const char *place, struct err *e)
{
    TRY(reader_write_out(&r->reader, x, &r->to->functions[r->to->n_functions++], e));
    r->n_nodes += (int64_t)x->n_nodes;
    if (r->n_nodes > r->config->max_program_nodes)
        return err_field(e, ERR_EXPRESSION_TOO_LARGE, place,
                         "the expressions up to this one have more than %lld nodes in all, with "
                         "the functions that they call expanded (max-program-nodes)",
                         (long long)r->config->max_program_nodes);
    return ERR_OK;
}

/* Whether the statements are too many to be read here. */
static bool is_more(const struct reading *r)
{
    return r->most_nodes && r->n_nodes > (int64_t)r->most_nodes;
}

static const char *member(const struct reading *r)
{
    return r->statements ? "statements" : "body";
}

static enum err_code read_statement(struct reading *r, struct json v, const char *place,
                                    struct program_assign *ret, struct err *e)
{
    const char *text;
    size_t n;
    uint32_t source;
    struct statement s;
    TRY(json_get_string(v, &text, &n, e));
    reader_start(&r->reader, r->arena, &ret->expr);
    TRY(expr_add_source(&ret->expr, place, &source, e));
    TRY(statement_parse(&ret->expr, source, text, n, &s, e));
    struct err inner = ERR_INIT;
    enum err_code code = name_check(s.target, &inner);
    if (code != ERR_OK) {
        err_at(e, code, s.at, "%s", inner.message);
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
    TRY(json_require(r->reader.body, member(r), &list, e));
    size_t n = json_kind(list) == JSON_LIST ? json_count(list) : 0;
    if (n == 0 || n > (size_t)r->config->max_statements)
        return json_err(list, e, n ? ERR_EXPRESSION_TOO_LARGE : ERR_BAD_FIELD,
                        "%s must be a list of 1 to %lld statements", member(r),
                        (long long)r->config->max_statements);
    struct program_assign *body = arena_alloc_array(r->arena, n, sizeof *body);
    if (!body)
        return err_oom(e);
    r->spec.body = body;
    for (struct json v = json_first(list); json_present(v); v = json_next(v)) {
        const uint32_t i = r->spec.n_body++;
        char place[32];
        snprintf(place, sizeof place, "/%s/%" PRIu32, member(r), i);
        enum err_code code = read_statement(r, v, place, &body[i], e);
        if (code != ERR_OK)
            return *e->pointer ? code : err_prefix(e, place); /* out of memory */
        if (is_more(r))
            break;
    }
    return ERR_OK;
}

static enum err_code read_series(struct reading *r, struct json v, const char *name,
                                 const char *place, struct program_series *ret, struct err *e)
{
    reader_start(&r->reader, r->arena, &ret->expr);
    ret->name = name ? arena_strndup(r->arena, name, strlen(name)) : "";
    ret->place = arena_strndup(r->arena, place, strlen(place));
    if (!ret->name || !ret->place)
        return err_oom(e);
    TRY(reader_parse(&ret->expr, v, place, false, &ret->expr.root, e));
    return write_out(r, &ret->expr, place, e);
}

/* "record_every", "until_every": 1 if absent. */
static enum err_code read_every(const struct reading *r, const char *key, int64_t *ret,
                                struct err *e)
{
    struct json v = json_member(r->reader.body, key);
    *ret = 1;
    return json_present(v) ? json_get_i64(v, 1, STEPS_MOST, ret, e) : ERR_OK;
}

static enum err_code read_records(struct reading *r, struct err *e)
{
    struct json record = json_member(r->reader.body, "record");
    TRY(read_every(r, "record_every", &r->spec.series_every, e));
    if (!json_present(record))
        return ERR_OK;
    size_t n = json_kind(record) == JSON_OBJECT ? json_count(record) : 0;
    const int64_t values = r->to->steps / r->spec.series_every;
    if (n == 0 || n > (size_t)r->config->max_statements)
        return json_err(record, e, ERR_BAD_FIELD,
                        "record must be an object of 1 to %lld names and expressions",
                        (long long)r->config->max_statements);
    if (values > r->config->max_records / (int64_t)n)
        return json_err(record, e, ERR_BAD_FIELD,
                        "this records %lld values of each, but at most %lld are kept in all "
                        "(max-records): use a larger record_every",
                        (long long)values, (long long)r->config->max_records);
    struct program_series *series = arena_alloc_array(r->arena, n, sizeof *series);
    const char **names = arena_alloc_array(r->arena, n, sizeof *names);
    if (!series || !names)
        return err_oom(e);
    r->spec.series = series;
    r->to->series = names;
    for (struct json v = json_first(record); json_present(v); v = json_next(v)) {
        struct err inner = ERR_INIT;
        char place[16 + NAME_SIZE];
        enum err_code code = name_check(json_key(v), &inner);
        if (code != ERR_OK)
            return json_err(v, e, code, "%s", inner.message);
        snprintf(place, sizeof place, "/record/%s", json_key(v));
        const uint32_t i = r->spec.n_series++;
        TRY(read_series(r, v, json_key(v), place, &series[i], e));
        names[i] = series[i].name;
    }
    return ERR_OK;
}

static enum err_code read_until(struct reading *r, struct err *e)
{
    struct json until = json_member(r->reader.body, "until");
    TRY(read_every(r, "until_every", &r->spec.until_every, e));
    if (!json_present(until))
        return ERR_OK;
    struct program_series *s = arena_alloc(r->arena, sizeof *s);
    if (!s)
        return err_oom(e);
    r->spec.until = s;
    return read_series(r, until, NULL, "/until", s, e);
}

/* --- results of an evaluate --- */

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

static enum err_code read_result(struct reading *r, struct json v, struct err *e)
{
    const char *name;
    struct err inner = ERR_INIT;
    char place[32];
    snprintf(place, sizeof place, "/results/%u", r->spec.n_results);
    TRY(json_get_string(v, &name, NULL, e));
    enum err_code code = name_check(name, &inner);
    if (code != ERR_OK)
        return json_err(v, e, code, "%s", inner.message);
    if (is_result(r, name))
        return json_err(v, e, ERR_BAD_NAME, "\"%s\" is given twice", name);
    return add_result(r, name, place, e);
}

static enum err_code read_results(struct reading *r, struct json list, struct err *e)
{
    for (struct json v = json_first(list); json_present(v); v = json_next(v))
        TRY(read_result(r, v, e));
    return ERR_OK;
}

/* Every assigned name that is not an array, in the order of the first assignments. */
static enum err_code assume_results(struct reading *r, struct err *e)
{
    for (uint32_t i = 0; i < r->spec.n_body; i++) {
        const struct program_assign *a = &r->spec.body[i];
        struct binding b = {.kind = BINDING_NONE};
        if (a->fills)
            continue; /* it creates nothing */
        if (reader_resolve(&r->reader, a->target, &b, e) != ERR_OK) {
            e->offset = a->at;
            return err_prefix(e, a->place);
        }
        if (b.kind == BINDING_NONE && !is_result(r, a->target))
            TRY(add_result(r, a->target, a->place, e));
    }
    return ERR_OK;
}

/* The results in the reply: by default the names are taken from the statements. */
static enum err_code find_results(struct reading *r, struct err *e)
{
    struct json list = json_member(r->reader.body, "results");
    size_t n = json_present(list) ? json_count(list) : r->spec.n_body;
    if (json_present(list) &&
        (json_kind(list) != JSON_LIST || n > (size_t)r->config->max_statements))
        return json_err(list, e, ERR_BAD_FIELD, "results must be a list of at most %lld names",
                        (long long)r->config->max_statements);
    r->results = arena_alloc_array(r->arena, n, sizeof *r->results);
    if (!r->results)
        return err_oom(e);
    r->spec.results = r->results;
    return json_present(list) ? read_results(r, list, e) : assume_results(r, e);
}

/* --- checks that depend on the session --- */

/* program_spec.target: the array that a statement assigns. */
static enum err_code find_target(void *user, const char *name, struct array **ret, struct err *e)
{
    struct reading *r = user;
    struct json bound = json_member(json_member(r->reader.body, "bind"), name);
    struct binding b = {.kind = BINDING_NONE};
    _cleanup_handle_ struct handle h = {0};
    *ret = NULL;
    TRY(reader_resolve(&r->reader, name, &b, e));
    if (b.kind != BINDING_ARRAY)
        return ERR_OK;
    if (r->reader.past) {
        const struct past_name *x = reader_past(&r->reader, name);
        struct body_target *t = &r->targets[r->n_targets++];
        memcpy(t->id, x->id, sizeof t->id);
        t->shared = x->shared;
        *ret = array_ref(x->array);
        return ERR_OK;
    }
    TRY(reader_target(&r->reader, json_present(bound) ? json_text(bound, NULL) : name, &h, e));
    struct body_target *t = &r->targets[r->n_targets++];
    memcpy(t->id, h.id, sizeof t->id);
    t->shared = h.shared;
    *ret = array_ref(h.array);
    return ERR_OK;
}

/* Finds the arrays that are only read and belong to other principals, who may revoke the share. */
static enum err_code find_reads(struct reading *r, struct arena *arena, struct err *e)
{
    const uint32_t n = program_inputs(r->to->program);
    struct body_read *reads = arena_alloc_array(arena, n ? n : 1, sizeof *reads);
    if (!reads)
        return err_oom(e);
    r->to->reads = reads;
    for (uint32_t i = 0; i < n; i++) {
        const struct array *a = program_input(r->to->program, i);
        const char *id = a ? reader_shared(&r->reader, a) : NULL;
        if (!id)
            continue;
        struct body_read *to = &reads[r->to->n_reads++];
        memcpy(to->id, id, sizeof to->id);
        to->input = i;
    }
    return ERR_OK;
}

/* A job's work uses a stream of its own; an evaluate's uses the session's. */
static enum err_code make_program(struct reading *r, struct err *e)
{
    struct session *session = r->reader.session;
    struct engine_stream *stream = session->stream;
    r->spec.arena = r->arena;
    r->spec.env = &r->reader.env;
    r->spec.target = find_target;
    r->spec.user = r;
    if (!r->statements) {
        struct session_stream *background;
        TRY(session_background(session, &background, e));
        stream = background->stream;
    }
    TRY(program_new(stream, session->account, &r->spec, &r->to->program, e));
    r->arena = NULL; /* the program owns it now */
    return ERR_OK;
}

static enum err_code read_snapshots(struct reading *r, struct arena *arena, struct err *e)
{
    struct program_body *to = r->to;
    struct json snapshot = json_member(r->reader.body, "snapshot");
    if (!json_present(snapshot))
        return ERR_OK;
    size_t n = json_kind(snapshot) == JSON_OBJECT ? json_count(snapshot) : 0;
    if (!n)
        return json_err(snapshot, e, ERR_BAD_FIELD,
                        "snapshot must be an object of assigned arrays and numbers of steps");
    struct body_snapshot *list = arena_alloc_array(arena, n, sizeof *list);
    if (!list)
        return err_oom(e);
    to->snapshots = list;
    for (struct json v = json_first(snapshot); json_present(v); v = json_next(v)) {
        struct body_snapshot *s = &list[to->n_snapshots++];
        struct array *unused;
        while (s->target < program_targets(to->program) &&
               strcmp(program_target(to->program, s->target, &unused), json_key(v)) != 0)
            s->target++;
        if (s->target == program_targets(to->program))
            return json_err(v, e, ERR_UNKNOWN_NAME,
                            "\"%s\" is not an array that the program assigns", json_key(v));
        TRY(json_get_i64(v, 1, STEPS_MOST, &s->every, e));
    }
    return ERR_OK;
}

/* Copies the lease tokens, since they outlive the request. */
static enum err_code read_claim(struct reading *r, struct arena *arena, struct err *e)
{
    const struct past *past = r->reader.past;
    const char *tokens = past ? past->lease : http_header(r->reader.req, "Arrayd-Lease");
    const char *kept = tokens ? arena_strndup(arena, tokens, strlen(tokens)) : NULL;
    if (tokens && !kept)
        return err_oom(e);
    r->to->claim = (struct lease_claim){r->reader.req->server->leases, kept};
    return ERR_OK;
}

static enum err_code keep_text(struct reading *r, struct arena *arena, struct err *e)
{
    const struct request *req = r->reader.req;
    r->to->text = arena_strndup(arena, req->body, req->body_len);
    r->to->text_len = req->body_len;
    return r->to->text ? ERR_OK : err_oom(e);
}

/* --- the body --- */

static enum err_code check_members(const struct reading *r, struct err *e)
{
    const struct json body = r->reader.body;
    struct json expr = json_member(body, "expr"), tree = json_member(body, "tree");
    if (!r->statements)
        return JSON_MEMBERS(body, e, "bind", "body", "steps", "record", "record_every", "snapshot",
                            "until", "until_every", "stop_on_nan", "fast_math");
    if (json_present(expr) || json_present(tree))
        return json_err(json_present(expr) ? expr : tree, e, ERR_BAD_FIELD,
                        "give only one of expr, tree and statements");
    return JSON_MEMBERS(body, e, "bind", "statements", "results", "inline", "fast_math");
}

static enum err_code read_form(struct reading *r, struct err *e)
{
    const struct json body = r->reader.body;
    struct json in_line = json_member(body, "inline"), steps = json_member(body, "steps"),
                stop = json_member(body, "stop_on_nan"), fast = json_member(body, "fast_math");
    bool stops = false;
    if (r->statements && json_present(in_line))
        TRY(json_get_bool(in_line, &r->to->inline_data, e));
    TRY(check_members(r, e));
    r->spec.once = r->statements;
    r->spec.most_nodes = r->config->max_program_nodes;
    r->to->steps = 1;
    if (json_present(steps))
        TRY(json_get_i64(steps, 1, STEPS_MOST, &r->to->steps, e));
    if (json_present(stop))
        TRY(json_get_bool(stop, &stops, e));
    r->spec.stop_on_nan = stops ? "/stop_on_nan" : NULL;
    return json_present(fast) ? json_get_bool(fast, &r->spec.fast_math, e) : ERR_OK;
}

static enum err_code read_all(struct reading *r, struct err *e)
{
    TRY(read_form(r, e));
    struct arena *arena = r->arena = arena_new(0);
    size_t most = 2 * (size_t)r->config->max_statements + 1;
    r->to->functions = arena ? arena_alloc_array(arena, most, sizeof *r->to->functions) : NULL;
    if (!r->to->functions)
        return err_oom(e);
    TRY(read_statements(r, e));
    if (is_more(r))
        return ERR_OK;
    TRY(read_records(r, e));
    TRY(read_until(r, e));
    TRY(reader_open(&r->reader, e));
    r->targets = arena_alloc_array(arena, r->spec.n_body, sizeof *r->targets);
    if (!r->targets)
        return err_oom(e);
    if (r->statements)
        TRY(find_results(r, e));
    TRY(make_program(r, e));
    TRY(find_reads(r, arena, e));
    TRY(read_snapshots(r, arena, e));
    if (!r->statements)
        TRY(keep_text(r, arena, e));
    return read_claim(r, arena, e);
}

static enum err_code read_body(struct request *req, struct json body, bool explain,
                               struct reading *r, struct program_body *ret, struct err *e)
{
    r->reader.req = req;
    r->reader.body = body;
    r->reader.explain = explain;
    r->config = req->server->config;
    r->to = ret;
    *ret = (struct program_body){.principal = req->principal, .shares = req->server->shares};
    enum err_code code = read_all(r, e);
    ret->targets = r->targets;
    ret->results = r->results;
    ret->n_results = r->spec.n_results;
    ret->n_series = r->spec.n_series;
    ret->record_every = r->spec.series_every;
    if (code == ERR_OK && ret->program) {
        ret->session = r->reader.session;
        r->reader.session = NULL;
    } else {
        program_body_clear(ret);
        arena_free(r->arena); /* if the program does not own it */
    }
    reader_clear(&r->reader);
    return code;
}

enum err_code program_body_read(struct request *req, struct json body, bool explain,
                                struct program_body *ret, struct err *e)
{
    struct reading r = {0};
    return read_body(req, body, explain, &r, ret, e);
}

enum err_code program_body_again(struct server *server, struct principal *p, const char *text,
                                 size_t n, const struct past *past, struct program_body *ret,
                                 struct err *e)
{
    static const struct json_limits limits = {.max_depth = 1000, .max_nodes = UINT32_MAX};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json body;
    if (!arena)
        return err_oom(e);
    TRY(json_parse(arena, text, n, &limits, &body, e));
    struct request req = {
        .server = server, .principal = p, .arena = arena, .body = text, .body_len = n};
    struct reading r = {.reader = {.past = past}};
    return read_body(&req, body, false, &r, ret, e);
}

enum err_code statements_body_read(struct request *req, struct json body, bool explain,
                                   size_t most_nodes, struct program_body *ret, struct err *e)
{
    struct reading r = {.statements = true, .most_nodes = most_nodes};
    return read_body(req, body, explain, &r, ret, e);
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
