/* POST /v1/arrays and PUT /v1/arrays/{name}: three kinds of body, one new array.
 *
 * data_*.c take bytes (octet-stream, .npy). A JSON body may hold a nested list that is too large to
 * be in memory twice, so it is streamed too: the splitter (json_body.h) turns the list into
 * elements as it arrives and keeps only the small members as text. When the whole body has proved
 * valid, the elements are copied into the engine's staging memory, waiting for it if it is short,
 * and the array gets its handle last. */
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json/json_body.h"
#include "server/api/handlers.h"
#include "server/body/condition.h"
#include "server/body/create_json.h"
#include "server/body/data.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/files/files.h"
#include "server/http/wakeup.h"
#include "server/labels/labels_read.h"
#include "server/server.h"
#include "server/work/memory_pressure.h"

#define OFFLOAD_BYTES (128 << 10) /* bodies longer than this are finished on a worker */

/* --- the new handle's place --- */

/* POST /v1/arrays takes the name from the body or ?name=, refuses a taken one and answers 201;
 * PUT /v1/arrays/{name} takes it from the path, replaces, and answers 201 or 200. */
struct target {
    struct session *session; /* a reference, target_clear releases it */
    bool put;
    char name[NAME_SIZE];       /* "" when the array gets none */
    struct condition condition; /* PUT: on the array that has the name now */
    struct leases *leases;      /* none may be on it */
};

/* Whether the array that has the name now may be replaced; a handle_guard's check. */
static enum err_code may_replace(void *user, const struct array *now, struct err *e)
{
    struct target *t = user;
    TRY(lease_guard(t->leases, now, e));
    return condition_guard(&t->condition, now, e);
}

/* Before the body is read: a request that must fail need not send it. */
static enum err_code check_replace(struct target *t, struct err *e)
{
    _cleanup_handle_ struct handle now = {0};
    bool there = handle_get(t->session->handles, t->name, &now, NULL) == ERR_OK;
    return may_replace(t, there ? now.array : NULL, e);
}

/* The name in the path, in ?name= or in a JSON body (POST only). The pointer in `e` is "/name". */
static enum err_code target_name(struct target *t, const char *name, struct err *e)
{
    if (t->put && t->name[0]) {
        if (strcmp(name, t->name) == 0)
            return ERR_OK;
        return err_field(e, ERR_BAD_FIELD, "/name", "the path already names the array '%s'",
                         t->name);
    }
    enum err_code code =
        handle_check_name(t->session->handles, name, t->put ? NAME_REPLACE : NAME_NEW, e);
    if (code != ERR_OK)
        return err_prefix(e, "/name");
    memcpy(t->name, name, strlen(name) + 1);
    return ERR_OK;
}

static enum err_code find_target(struct request *req, struct target *t, const char *name,
                                 struct err *e)
{
    TRY(session_of(req, &t->session, e));
    if (name && target_name(t, name, e) != ERR_OK) {
        e->pointer[0] = '\0'; /* the name is not in the body */
        return e->code;
    }
    if (!t->put)
        return ERR_OK;
    t->condition = condition_of(req);
    t->leases = req->server->leases;
    return check_replace(t, e);
}

/* Reads session, path and ?name= (ERR_BAD_FIELD on PUT) and checks that the name is available and,
 * for PUT, that the request's conditions hold (ERR_PRECONDITION_FAILED, ERR_LOCKED); both are
 * checked again when the array gets its handle. On failure nothing needs clearing. */
static enum err_code target_init(struct request *req, struct target *ret, struct err *e)
{
    struct target t = {.put = strcmp(req->method, "PUT") == 0};
    const char *query = http_query(req, "name");
    if (t.put && query)
        return err_set(e, ERR_BAD_FIELD,
                       "the path already names the array, so 'name' must not be given");
    enum err_code code = find_target(req, &t, t.put ? req->param[0] : query, e);
    if (code != ERR_OK) {
        session_unref(t.session);
        return code;
    }
    *ret = t;
    return ERR_OK;
}

static void target_clear(struct target *t)
{
    session_unref(t->session);
    t->session = NULL;
}

/* --- the body --- */

struct create {
    struct http_sink sink; /* first */
    struct target target;
    struct json_body *body;
    int64_t taken;
    bool failed;
    struct err err;
    struct create_spec spec;
    struct labels_patch labels;
    struct json_array_data data; /* .data is the creation's until it is uploaded */
    struct data_staging staging;
    struct upload *upload;
    /* What is made, without ghosts at first; then it is placed, and moves to host memory. */
    struct array *made;
    struct handle_new *of_file; /* behind its coordinates, as the file has them; NULL: of no file */
    size_t n_of_file;
    struct meta_placement placement;
    int host; /* 1: it moves there */
    struct request_move move;
    struct wakeup wakeup; /* of the upload */
};

/* What it refers to besides memory of its own; may be called twice. */
static void create_clear(struct create *c)
{
    array_unref(c->made);
    c->made = NULL;
    for (size_t i = 0; i < c->n_of_file; i++) {
        array_unref(c->of_file[i].array);
        labels_unref(c->of_file[i].spec.labels);
    }
    c->n_of_file = 0;
    target_clear(&c->target);
}

static void create_free(void *state)
{
    struct create *c = state;
    if (c->upload)
        upload_abort(c->upload);
    create_clear(c);
    json_body_free(c->body);
    mem_free(c->data.data);
}

/* Gives the array its handle, and its coordinates theirs, and replies with the metadata, or with
 * the error. */
static void reply(struct request *req, struct create *c)
{
    struct err e = ERR_INIT;
    struct target *t = &c->target;
    const size_t n = c->of_file ? c->n_of_file : 1;
    struct handle_new *list = arena_alloc_array(req->arena, n, sizeof *list);
    struct labels *had = c->of_file ? c->of_file[n - 1].spec.labels : NULL;
    _cleanup_labels_ struct labels *labels = labels_given(&c->labels) ? NULL : labels_ref(had);
    struct handle_guard guard = {may_replace, t};
    enum err_code code = list ? ERR_OK : err_oom(&e);
    if (code == ERR_OK && labels_given(&c->labels)) {
        code = labels_make(had, &c->labels, &c->made->view, &labels, &e);
        if (code != ERR_OK && c->labels.from_query)
            e.pointer[0] = '\0';
    }
    if (code == ERR_OK) {
        if (c->of_file)
            memcpy(list, c->of_file, n * sizeof *list);
        list[n - 1] = (struct handle_new){c->made,
                                          {.name = t->name[0] ? t->name : NULL,
                                           .policy = t->put ? NAME_REPLACE : NAME_NEW,
                                           .guard = t->put ? &guard : NULL,
                                           .labels = labels}};
        code = meta_reply_added(req, t->session, list, n, &e);
    }
    if (code != ERR_OK)
        http_reply_error(req, &e);
    create_clear(c); /* the client goes on, perhaps with the same memory */
}

/* --- an array for host memory: made on the device, then moved, before it has a handle --- */

static void moved(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    if (request_moved(req, &c->move, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        reply(req, c);
}

static void begin_move(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    if (request_move(req, &c->move, c->target.session->stream, c->made, true, moved, &e) != ERR_OK)
        http_reply_error(req, &e);
}

static void place(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    if (meta_place(&c->placement, c->target.session, c->made, &e) != ERR_OK) {
        if (!memory_pressure_retry(req, &e, place))
            http_reply_error(req, &e);
        return;
    }
    if (c->host > 0) {
        http_offload_long(req, begin_move); /* slow: the move pins memory */
        return;
    }
    reply(req, c);
}

/* Also called by data_publish.c, when bytes have become an array. */
static void finish(struct request *req, struct array *take_array)
{
    struct create *c = req->state;
    c->made = take_array;
    place(req);
}

/* Called by server/files: what the file says of the array counts unless the query says more. */
static void finish_file(struct request *req, struct handle_new *take, size_t n)
{
    struct create *c = req->state;
    c->of_file = take;
    c->n_of_file = n;
    finish(req, array_ref(take[n - 1].array));
}

/* Gives the elements the ghosts that the body specifies. */
static void embed(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    struct array *a;
    if (create_spec_embed(&c->spec, c->target.session, array_ref(c->made), &a, &e) == ERR_OK) {
        array_unref(c->made);
        c->made = NULL;
        finish(req, a);
    } else if (!memory_pressure_retry(req, &e, embed)) {
        http_reply_error(req, &e);
    }
}

/* Copies what the staging memory has room for; continues when there is more room. */
static void push_data(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    if (!data_stage(&c->staging, push_data))
        return;
    struct upload *u = c->upload;
    c->upload = NULL;
    mem_free(c->data.data);
    c->data.data = NULL;
    if (upload_finish_new(u, c->data.dtype, c->data.rank, c->data.shape, false, &c->made, &e) !=
        ERR_OK)
        http_reply_error(req, &e);
    else
        embed(req);
}

static enum err_code take_data(struct create *c, struct json_array *reader, struct err *e)
{
    const struct array_scope from = request_scope(c->wakeup.req, c->target.session);
    if (json_array_take(reader, c->spec.dtype, &c->data, e) != ERR_OK)
        return err_prefix(e, "/data");
    if (!c->data.size && c->spec.has_shape && c->spec.rank > c->data.rank &&
        !memcmp(c->spec.shape, c->data.shape, sizeof *c->spec.shape * (size_t)c->data.rank) &&
        c->data.rank && c->data.shape[c->data.rank - 1] == 0) {
        /* lists cannot spell what comes after an extent of 0: [] stands for (0, 3) too */
        c->data.rank = c->spec.rank;
        memcpy(c->data.shape, c->spec.shape, sizeof *c->spec.shape * (size_t)c->spec.rank);
    }
    TRY(create_spec_shape(&c->spec, c->data.rank, c->data.shape, e));
    TRY(create_spec_grid(&c->spec, c->data.dtype, c->data.rank, &from, e));
    return c->spec.has_grid ? grid_check_ghosts(&c->spec.grid, c->data.shape, e) : ERR_OK;
}

static void begin_upload(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    struct session *s = c->target.session;
    size_t nbytes = (size_t)c->data.size * dtype_size(c->data.dtype);
    enum err_code code =
        upload_new(s->stream, s->account, (int64_t)nbytes, wakeup_ring, &c->wakeup, &c->upload, &e);
    if (code != ERR_OK) {
        if (!memory_pressure_retry(req, &e, begin_upload))
            http_reply_error(req, &e);
        return;
    }
    c->staging = (struct data_staging){
        .req = req,
        .wakeup = &c->wakeup,
        .upload = c->upload,
        .from = c->data.data,
        .n = nbytes,
    };
    push_data(req);
}

/* Runs any creator but data. */
static void run_creator(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    struct array *a;
    if (create_spec_run(&c->spec, c->target.session, &a, &e) == ERR_OK)
        finish(req, a);
    else if (!memory_pressure_retry(req, &e, run_creator))
        http_reply_error(req, &e);
}

static enum err_code read_json(struct request *req, struct create *c, struct err *e)
{
    struct json doc;
    struct json_array *reader;
    const char *name;
    const struct array_scope from = request_scope(req, c->target.session);
    TRY(json_body_finish(c->body, req->arena, &doc, &reader, e));
    if (json_kind(doc) != JSON_OBJECT)
        return json_err(doc, e, ERR_BAD_FIELD, "the body must be a JSON object");
    TRY(create_spec_read(doc, reader != NULL, &from, &c->spec, e));
    TRY(meta_labels(req, c->target.session, doc, &c->labels, e));
    TRY(meta_location(doc, &c->host, e));
    TRY(meta_placement(req, c->target.session, doc, &c->placement, e));
    TRY(meta_name(doc, &name, e));
    if (name)
        TRY(target_name(&c->target, name, e));
    if (c->spec.creator != CREATE_DATA)
        return ERR_OK;
    TRY(take_data(c, reader, e));
    json_body_free(c->body);
    c->body = NULL;
    return ERR_OK;
}

static void finish_json(struct request *req)
{
    struct create *c = req->state;
    struct err e = ERR_INIT;
    if (read_json(req, c, &e) != ERR_OK)
        http_reply_error(req, &e);
    else if (c->spec.creator == CREATE_DATA)
        begin_upload(req);
    else
        run_creator(req);
}

static size_t sink_push(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed)
{
    struct create *c = (struct create *)sink;
    if (!c->failed && json_body_feed(c->body, bytes, n, &c->err) != ERR_OK)
        c->failed = true;
    c->taken += (int64_t)n;
    *ret_failed = c->failed;
    return n;
}

static void sink_end(struct http_sink *sink, struct request *req)
{
    struct create *c = (struct create *)sink;
    if (c->failed)
        http_reply_error(req, &c->err);
    else if (c->taken > OFFLOAD_BYTES)
        http_offload_long(req, finish_json);
    else
        finish_json(req);
}

static void sink_abort(struct http_sink *sink)
{
    (void)sink; /* nothing has changed yet; the state is released with the request */
}

/* The memory that the session may still take, as a limit for elements that are not an array yet. */
static int64_t data_bytes_most(const struct request *req, const struct session *s)
{
    struct backend_device d;
    engine_device_info(req->server->engine, s->device, &d);
    int64_t there = req->server->config->evict ? d.memory_total : d.memory_free;
    int64_t room = there > 0 ? there : 1, limit = account_limit(s->account);
    if (limit && limit - account_used(s->account) < room)
        room = limit - account_used(s->account);
    return room > 0 ? room : 1; /* 0 would mean no limit */
}

/* ?location= of a body of bytes. */
static enum err_code read_location(const struct request *req, int *ret_host, struct err *e)
{
    const char *location = http_query(req, "location");
    if (!location)
        return ERR_OK;
    *ret_host = !strcmp(location, "host");
    if (!*ret_host && strcmp(location, "device") != 0)
        return err_set(e, ERR_BAD_QUERY, "location must be \"device\" or \"host\"");
    return ERR_OK;
}

static enum err_code create(struct request *req, struct err *e)
{
    static const char *const json_query[] = {"name", NULL};
    static const char *const bytes_query[] = {"name",  "dtype",  "shape", "location", "placement",
                                              "attrs", "coords", "dims",  "units",    NULL};
    static const char *const file_query[] = {"name",   "location", "placement", "attrs",
                                             "coords", "dims",     "units",     "variable",
                                             "decode", "labels",   "ghosts",    NULL};
    enum data_format format = DATA_OCTETS;
    enum media type;
    const bool file = files_is_body(req, &type);
    struct create *c = arena_alloc(req->arena, sizeof *c);
    if (!c)
        return err_oom(e);
    TRY(request_accepts_json(req, e));
    if (!file)
        TRY(data_format_of(req, &format, e));
    TRY(http_query_only(req,
                        file                  ? file_query
                        : format == DATA_JSON ? json_query
                                              : bytes_query,
                        e));
    TRY(target_init(req, &c->target, e));
    c->sink = (struct http_sink){
        .push = sink_push, .end = sink_end, .abort = sink_abort, .works = true, .req = req};
    c->err = (struct err)ERR_INIT;
    wakeup_init(&c->wakeup, req);
    req->state = c;
    req->state_free = create_free;
    struct session *s = c->target.session;
    if (format != DATA_JSON) {
        TRY(read_location(req, &c->host, e));
        TRY(meta_placement_of_query(req, s, &c->placement, e));
        TRY(meta_labels_of_query(req, s, &c->labels, e));
        if (file)
            files_accept_create(req, s, type, finish_file);
        else
            data_accept_create(req, s->stream, s->account, format, finish);
        return ERR_OK;
    }
    struct json_body_limits limits = {
        .json = request_json_limits(req),
        .max_text = (size_t)req->server->config->max_json_body,
        .max_data_bytes = data_bytes_most(req, s),
    };
    c->body = json_body_new(&limits);
    if (!c->body)
        return err_oom(e);
    http_accept_body(req, &c->sink);
    return ERR_OK;
}

void array_create(struct request *req)
{
    request_try(req, create);
}
