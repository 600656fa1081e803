/* Files as replies: arrays become a file of the spool, which is sent when it is complete.
 *
 * Libraries write files here and there, so none can be sent while it is made. The spool is in
 * memory by default, so it counts as the request's. */
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/base/meter.h"
#include "compute/memory/export.h"
#include "protocol/text/index.h"
#include "server/body/condition.h"
#include "server/body/request.h"
#include "server/files/export.h"
#include "server/http/wakeup.h"
#include "server/labels/labels.h"
#include "server/store/auth.h"

/* Bytes that a file may have beside its contents, and for each variable. */
#define SPARE          (1 << 20)
#define SPARE_VARIABLE (64 << 10)

struct bundle {
    struct export_task x; /* first */
    struct request *req;
    struct wakeup wakeup;
    struct metered counted;
    struct err err; /* ERR_OK: none */
    enum media type;
};

struct file_source {
    struct http_source source; /* first */
    int fd;
    int64_t length;
    struct metered counted;
};

static void bundle_free(void *state)
{
    struct bundle *b = state;
    export_clear(&b->x);
    metered_end(&b->counted);
}

static int64_t pull(struct http_source *src, int64_t offset, char *buf, size_t n)
{
    const struct file_source *s = (struct file_source *)src;
    const size_t most = n < 131072 ? n : 131072;
    return pread(s->fd, buf, most, offset);
}

static void source_free(struct http_source *src)
{
    struct file_source *s = (struct file_source *)src;
    close(s->fd);
    metered_end(&s->counted);
    mem_free(s);
}

static void reply(struct request *req)
{
    struct bundle *b = req->state;
    struct file_source *s = b->err.code == ERR_OK ? mem_calloc(1, sizeof *s) : NULL;
    if (!s) {
        if (b->err.code == ERR_OK)
            err_oom(&b->err);
        http_reply_error(req, &b->err);
        return;
    }
    s->source.pull = pull;
    s->source.free = source_free;
    s->fd = b->x.file.fd;
    b->x.file.fd = -1;
    s->length = lseek(s->fd, 0, SEEK_END);
    (void)!metered_set(&b->counted, s->length); /* no more than was counted for it */
    s->counted = b->counted;
    b->counted = (struct metered){0};
    /* as contents that are sent as they are (data_download.c) */
    http_add_header(req, "X-Content-Type-Options", "nosniff");
    http_reply_source(req, 200, media_name(b->type), s->length, &s->source);
}

static void run(struct file_task *task)
{
    struct bundle *b = (struct bundle *)task;
    const enum err_code code = export_write(&b->x, &b->err);
    if (code == ERR_DEADLINE && !file_task_goes_on(task))
        files_why_not(task, &b->err);
    else if (code == ERR_DEADLINE)
        process_lies(&b->err, "a file that is larger than its contents");
    wakeup_ring(&b->wakeup);
}

static enum media type_of(enum wire_format f)
{
    static const enum media types[WIRE_FORMAT_COUNT] = {
        [WIRE_FORMAT_NETCDF4] = MEDIA_NETCDF, [WIRE_FORMAT_NETCDF3] = MEDIA_NETCDF,
        [WIRE_FORMAT_HDF5] = MEDIA_HDF5,      [WIRE_FORMAT_NPZ] = MEDIA_NPZ,
        [WIRE_FORMAT_NPY] = MEDIA_NPY,        [WIRE_FORMAT_TIFF] = MEDIA_TIFF,
        [WIRE_FORMAT_PNG] = MEDIA_PNG,
    };
    return types[f];
}

/* All pieces are there. */
static enum err_code hold(struct bundle *b, struct session *s, struct err *e)
{
    struct export_task *x = &b->x;
    /* elements may be widened, labels become what their format needs; what it really takes is
     * counted when it is there */
    const int64_t beside = SPARE + SPARE_VARIABLE * (int64_t)x->n_pieces + 16 * x->told;
    if (x->nbytes > INT64_MAX / 4 || !metered_set(&b->counted, 2 * x->nbytes + beside))
        return files_too_large(e);
    x->most = 2 * x->nbytes + beside;
    TRY(files_spool(b->req->server->files, &x->file, e));
    return export_hold(x, s, e);
}

static enum err_code begin(struct bundle *b, struct err *e)
{
    wakeup_arm(&b->wakeup);
    return files_submit(b->req->server->files, LANE_BODIES, &b->x.task, e);
}

/* False without memory. */
static bool begin_empty(struct bundle *b)
{
    b->x = (struct export_task){.task = {.run = run, .req = b->req}, .most = 1};
    return export_init(&b->x, b->req);
}

static struct bundle *bundle_new(struct request *req)
{
    struct bundle *b = request_begin(req, sizeof *b, bundle_free);
    if (!b)
        return NULL;
    b->req = req;
    b->err = (struct err)ERR_INIT;
    wakeup_init(&b->wakeup, req);
    if (begin_empty(b))
        return b;
    struct err e = ERR_INIT;
    err_oom(&e);
    http_reply_error(req, &e);
    return NULL;
}

static enum err_code read_and_start(struct bundle *b, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(b->req->server->uses);
    _cleanup_session_ struct session *s = NULL;
    struct json body;
    TRY(request_body(b->req, false, &body, e));
    TRY(session_of(b->req, &s, e));
    TRY(export_read(&b->x, b->req, s, body, e));
    b->type = type_of(b->x.format);
    TRY(media_negotiate(http_header(b->req, "Accept"), &b->type, 1, &b->type, e));
    TRY(hold(b, s, e));
    return begin(b, e);
}

void files_bundle(struct request *req)
{
    struct err e = ERR_INIT;
    struct bundle *b = bundle_new(req);
    if (!b)
        return;
    if (read_and_start(b, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        wakeup_wait(&b->wakeup, reply);
}

static uint64_t version_of(const struct export_piece *p)
{
    return p->download ? download_version(p->download) : array_version(p->array);
}

/* Of what is said of all pieces, and of their contents. */
static enum err_code tag(const struct export_task *x, char etag[ETAG_MAX], struct err *e)
{
    const struct export_piece *first = x->pieces;
    _cleanup_strb_ struct strb all = {0};
    struct json_writer w = JSON_WRITER(&all);
    etag[0] = '\0';
    json_open_list(&w);
    for (size_t i = 0; i < x->n_pieces; i++) {
        const struct export_piece *p = &x->pieces[i];
        const struct array *a = p->array;
        char of[ETAG_MAX];
        if (array_written_outside(a))
            return ERR_OK;
        etag_make(a->dtype, &a->view, version_of(p), MEDIA_OCTETS, of);
        json_put_string(&w, of);
        TRY(export_put_variable(x, p, &w, e));
    }
    json_close_list(&w);
    json_put_string(&w, export_format_name(x->format));
    if (all.failed)
        return err_oom(e);
    etag_derived(first->array->dtype, &first->array->view, version_of(first), all.data, all.len,
                 'f', etag);
    return ERR_OK;
}

/* Holds the contents, unless the client has (*ret_same) the file already: asked again, since they
 * may have changed before they were held. */
static enum err_code hold_unless_same(struct bundle *b, struct session *s, bool *ret_same,
                                      struct err *e)
{
    char etag[ETAG_MAX];
    TRY(tag(&b->x, etag, e));
    TRY(condition_read(b->req, etag, ret_same, e));
    if (!*ret_same) {
        TRY(hold(b, s, e));
        TRY(tag(&b->x, etag, e));
        TRY(condition_read(b->req, etag, ret_same, e));
    }
    if (etag[0])
        http_add_header(b->req, "ETag", etag);
    return ERR_OK;
}

/* The labels of the elements that ?index= and ?ghost= name. */
static enum err_code follow(struct request *req, const struct handle *h, const struct array *part,
                            struct labels **ret, struct err *e)
{
    const char *text = http_query(req, "index");
    struct label_axes axes;
    label_axes_own(&axes, h->array->view.rank);
    if (text) {
        struct index_spec *spec = arena_alloc(req->arena, sizeof *spec);
        if (!spec)
            return err_oom(e);
        TRY(index_parse(text, strlen(text), spec, e));
        label_axes_index(&axes, &h->array->view, spec);
    } else {
        label_axes_stretch(&axes, &h->array->view, &part->view);
    }
    return labels_follow(h->labels, &axes, ret, e);
}

/* The elements, and `coords`: their coordinates, as variables. */
static enum err_code add_one(struct bundle *b, struct session *s, const struct handle *h,
                             struct array *a, bool ghosts, bool coords, struct err *e)
{
    struct export_task *x = &b->x;
    _cleanup_handle_ struct handle part = {.shared = h->shared};
    memcpy(part.id, h->id, sizeof part.id);
    /* a part has no grid */
    part.array = array_ref(array_same_elements(h->array, a) ? h->array : a);
    x->ghosts = ghosts;
    x->format = b->type == MEDIA_NETCDF ? WIRE_FORMAT_NETCDF4
                : b->type == MEDIA_HDF5 ? WIRE_FORMAT_HDF5
                                        : WIRE_FORMAT_NPZ;
    const char *own = h->name[0] ? h->name : "array";
    const char *name = arena_strndup(x->arena, own, strlen(own));
    if (!name)
        return err_oom(e);
    TRY(follow(b->req, h, part.array, &part.labels, e));
    TRY(export_add(x, b->req, &part, name, (struct json){0}, e));
    if (coords)
        TRY(export_coordinates(x, b->req, s, 1, e));
    return export_dimensions(x, e);
}

/* *ret_same, as in hold_unless_same(); else the file is being made. Coordinates that do not agree
 * with the array, or are leased, are no reason to keep the array back: then none are there. Members
 * of an .npz say nothing of each other, so that it has the array alone. */
static enum err_code reply_one(struct bundle *b, struct session *s, const struct handle *h,
                               struct array *a, bool ghosts, bool *ret_same, struct err *e)
{
    struct err why = ERR_INIT;
    if (add_one(b, s, h, a, ghosts, b->type != MEDIA_NPZ, &why) != ERR_OK) {
        export_clear(&b->x);
        if (!begin_empty(b))
            return err_oom(e);
        TRY(add_one(b, s, h, a, ghosts, false, e));
    }
    TRY(hold_unless_same(b, s, ret_same, e));
    return *ret_same ? ERR_OK : begin(b, e);
}

void files_reply(struct request *req, struct session *s, const struct handle *h,
                 struct array *take_a, enum media type, bool ghosts)
{
    struct err e = ERR_INIT;
    struct bundle *b = bundle_new(req);
    bool same = false;
    enum err_code code = ERR_OK;
    if (b) {
        b->type = type;
        code = reply_one(b, s, h, take_a, ghosts, &same, &e);
    }
    array_unref(take_a);
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else if (same)
        http_reply_empty(req, 304);
    else if (b)
        wakeup_wait(&b->wakeup, reply);
}
