/* Files as bodies: one that has arrived in the spool becomes an array, with its coordinates, or a
 * region of one.
 *
 * Libraries read files here and there, so the whole body has to be there first; it counts as the
 * request's memory. Then arrayd-file reads it as it reads those of folders. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/base/meter.h"
#include "server/body/data.h"
#include "server/body/request.h"
#include "server/files/import.h"
#include "server/http/wakeup.h"
#include "server/labels/labels.h"
#include "server/store/auth.h"

#define STEP (1 << 20) /* bytes that are counted at a time */

struct body {
    struct import x; /* first */
    struct http_sink sink;
    struct request *req;
    struct wakeup wakeup;
    void *caller_state; /* req->state while the body waits in its place */
    void (*caller_state_free)(void *state);
    enum media type;
    file_created *created;   /* a new array, or: */
    struct session *session; /* a region of target's array (a reference each) */
    struct handle target;
    struct view region;
    struct import_item item;
    struct new_file file;
    struct metered counted;
    int64_t length;
    struct err err; /* ERR_OK: none */
};

static struct body *body_of(struct http_sink *sink)
{
    return (struct body *)((char *)sink - offsetof(struct body, sink));
}

static void body_clear(struct body *b)
{
    import_clear(&b->x);
    new_file_drop(&b->file);
    metered_end(&b->counted);
    handle_clear(&b->target);
    session_unref(b->session);
    b->session = NULL;
}

static void fail(struct body *b)
{
    struct request *req = b->req;
    struct err e = b->err; /* the body lies in the request's memory */
    body_clear(b);
    http_reply_error(req, &e);
}

/* --- the bytes --- */

static enum err_code take(struct body *b, const char *bytes, size_t n, struct err *e)
{
    if (b->counted.bytes < b->length + (int64_t)n &&
        !metered_set(&b->counted, b->length + (int64_t)n + STEP))
        return files_too_large(e);
    for (size_t at = 0; at < n;) {
        const ssize_t k = pwrite(b->file.fd, bytes + at, n - at, b->length);
        if (k < 0 && errno != EINTR)
            return file_error(errno, "file-spool", e);
        at += k > 0 ? (size_t)k : 0;
        b->length += k > 0 ? k : 0;
    }
    return ERR_OK;
}

static size_t sink_push(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed)
{
    struct body *b = body_of(sink);
    if (b->err.code == ERR_OK)
        (void)!take(b, bytes, n, &b->err);
    *ret_failed = b->err.code != ERR_OK;
    return n;
}

static void sink_abort(struct http_sink *sink)
{
    body_clear(body_of(sink));
}

/* --- the file --- */

/* NetCDF-4 files are HDF5 files, and those of libraries before 2016 do not say that they are more.
 */
static enum err_code check_format(const struct body *b, struct err *e)
{
    const char *format = b->x.description.format;
    const bool hdf5 = !strcmp(format, "hdf5") || !strcmp(format, "netcdf4");
    const bool fits = b->type == MEDIA_NPZ      ? !strcmp(format, "npz")
                      : b->type == MEDIA_NETCDF ? hdf5 || !strncmp(format, "netcdf", 6)
                                                : hdf5;
    return fits ? ERR_OK
                : err_set(e, ERR_BAD_FILE, "the body is %.20s, not what its Content-Type says",
                          format);
}

/* As a .npy header is compared with what is expected. */
static enum err_code check(struct import *x, struct err *e)
{
    const struct body *b = (const struct body *)x;
    const struct import_piece *p = x->pieces;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    TRY(check_format(b, e));
    if (b->created)
        return ERR_OK;
    if (p->dtype != b->target.array->dtype)
        return err_set(e, ERR_DTYPE_MISMATCH, "the variable has dtype %s, but %s is expected",
                       dtype_name(p->dtype), dtype_name(b->target.array->dtype));
    if (!view_same_shape(&p->view, &b->region))
        return err_set(e, ERR_SHAPE_MISMATCH, "the variable has shape %s, but %s is expected",
                       shape_text(p->view.rank, p->view.shape, have, sizeof have),
                       shape_text(b->region.rank, b->region.shape, want, sizeof want));
    return ERR_OK;
}

static void run(struct file_task *task)
{
    struct body *b = (struct body *)task;
    enum err_code code = import_take(&b->x, b->file.fd, b->x.session->stream, check, &b->err);
    process_end(b->x.process);
    b->x.process = NULL;
    for (size_t i = 0; code == ERR_OK && b->created && i < b->x.n_pieces; i++)
        code = import_make(&b->x, &b->x.pieces[i], &b->err);
    if (code == ERR_DEADLINE)
        files_why_not(task, &b->err);
    wakeup_ring(&b->wakeup);
}

/* --- the end --- */

/* Borrowed from the piece, but for the id. */
static bool made_of(struct request *req, const struct import_piece *p, struct handle_new *ret)
{
    char *id = arena_alloc(req->arena, ID_SIZE);
    if (!id)
        return false;
    memcpy(id, p->id, ID_SIZE);
    *ret = (struct handle_new){p->array, {.id = id, .labels = p->labels, .coordinate = true}};
    return true;
}

static void finish(struct request *req)
{
    struct body *b = req->state;
    struct import_piece *p = b->x.pieces;
    req->state = b->caller_state;
    req->state_free = b->caller_state_free;
    if (b->err.code == ERR_OK && !b->created) {
        struct upload *u = p->upload;
        p->upload = NULL;
        (void)!data_write(req, b->session, &b->target, &b->region, u, false, &b->err);
    }
    if (b->err.code != ERR_OK) {
        fail(b);
        return;
    }
    const size_t n = b->created ? b->x.n_pieces : 0;
    struct handle_new *made = arena_alloc_array(req->arena, n, sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        if (!made_of(req, &p[n - 1 - i], &made[i])) /* coordinates first */
            made = NULL;
    if (!made) {
        err_oom(&b->err);
        fail(b);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        array_ref(made[i].array);
        labels_ref(made[i].spec.labels);
    }
    file_created *created = b->created;
    body_clear(b);
    if (created)
        created(req, made, n);
    else
        http_reply_empty(req, 204);
}

static void sink_end(struct http_sink *sink, struct request *req)
{
    struct body *b = body_of(sink);
    b->caller_state = req->state;
    b->caller_state_free = req->state_free;
    wakeup_arm(&b->wakeup);
    if (b->err.code != ERR_OK ||
        files_submit(req->server->files, LANE_BODIES, &b->x.task, &b->err) != ERR_OK) {
        fail(b);
        return;
    }
    req->state = b;
    req->state_free = NULL;
    wakeup_wait(&b->wakeup, finish);
}

/* --- the beginning --- */

bool files_is_body(struct request *req, enum media *ret_type)
{
    struct err e = ERR_INIT;
    return media_content_type(http_header(req, "Content-Type"), ret_type, &e) == ERR_OK &&
           *ret_type >= MEDIA_NPZ && *ret_type <= MEDIA_HDF5;
}

/* True unless it says false. */
static enum err_code query_bool(struct request *req, const char *name, bool *ret, struct err *e)
{
    const char *text = http_query(req, name);
    *ret = !text || !strcmp(text, "true");
    return *ret || !strcmp(text, "false")
               ? ERR_OK
               : err_set(e, ERR_BAD_QUERY, "%s must be true or false", name);
}

static enum err_code begin(struct body *b, struct session *s, struct err *e)
{
    struct request *req = b->req;
    bool decode, labels;
    TRY(query_bool(req, "decode", &decode, e));
    TRY(query_bool(req, "labels", &labels, e));
    TRY(files_keeps_ghosts(req, &b->x.ghosts, e));
    if (!import_init(&b->x, req))
        return err_oom(e);
    b->x.task.run = run;
    b->x.task.req = req;
    b->x.session = s;
    b->x.labels = b->created && labels;
    b->x.coords = b->x.labels && !http_query(req, "coords") && !http_query(req, "dims");
    b->x.into = !b->created;
    b->item = (struct import_item){.variable = http_query(req, "variable"), .decode = decode};
    b->x.items = &b->item;
    b->x.n_items = 1;
    TRY(process_check(req->server->files->program, e));
    if (req->content_length > 0 && !metered_set(&b->counted, req->content_length))
        return files_too_large(e);
    return files_spool(req->server->files, &b->file, e);
}

static void accept(struct body *b, struct session *s)
{
    struct request *req = b->req;
    b->err = (struct err)ERR_INIT;
    b->file = (struct new_file){.fd = -1, .folder = -1};
    b->sink = (struct http_sink){.push = sink_push, .end = sink_end, .abort = sink_abort};
    b->sink.req = req;
    wakeup_init(&b->wakeup, req);
    if (begin(b, s, &b->err) != ERR_OK)
        fail(b);
    else
        http_accept_body(req, &b->sink);
}

static struct body *body_new(struct request *req, enum media type)
{
    struct body *b = arena_alloc(req->arena, sizeof *b);
    struct err e = ERR_INIT;
    if (!b) {
        err_oom(&e);
        http_reply_error(req, &e);
        return NULL;
    }
    b->req = req;
    b->type = type;
    return b;
}

void files_accept_create(struct request *req, struct session *s, enum media type,
                         file_created *created)
{
    struct body *b = body_new(req, type);
    if (!b)
        return;
    b->created = created;
    accept(b, s);
}

void files_accept_into(struct request *req, struct session *take_s, struct handle *take_h,
                       const struct view *region, enum media type)
{
    struct body *b = body_new(req, type);
    if (!b) {
        session_unref(take_s);
        handle_clear(take_h);
        return;
    }
    b->session = take_s;
    b->target = *take_h;
    memset(take_h, 0, sizeof *take_h);
    b->region = *region;
    accept(b, take_s);
}
