/* Uploads: one sink for the three formats and both destinations (a new array, a region of one).
 *
 * The bytes go straight from the network buffer into the engine's staging memory. Only data that
 * need conversion (big-endian numbers, bools that are not 0 or 1) pass through a small buffer of
 * the sink's own, which also carries an element that is split between chunks. The array is not
 * touched before the last byte has arrived and every check has passed: then the upload is published
 * whole. The sink never waits within a chunk: without staging memory it takes nothing, and wakes
 * the request when there is some.
 *
 * Lengths are checked as early as possible: from Content-Length before the body, from a .npy header
 * when it is complete, else at the end. JSON is read into elements first, because only its end
 * tells whether the shape is right; that costs one copy of the region. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/body/data_sink.h"
#include "server/body/request.h"
#include "server/work/memory_pressure.h"

#define STAGE_BYTES 16384 /* a multiple of every element size */

void sink_fail(struct upload_sink *s, const struct err *e)
{
    s->failed = true;
    s->err = *e;
}

static void upload_woken(void *user)
{
    struct upload_sink *s = user;
    if (atomic_load(&s->ending))
        wakeup_ring(&s->wakeup);
    else
        http_sink_wake(&s->sink);
}

enum err_code sink_length_error(const struct upload_sink *s, int64_t is, bool at_least,
                                struct err *e)
{
    char shape[SHAPE_TEXT_MAX];
    return err_set(e, ERR_LENGTH_MISMATCH,
                   "%s of shape %s takes %" PRId64 " bytes, but the body has %s%" PRId64,
                   dtype_name(s->dtype), shape_text(s->rank, s->shape, shape, sizeof shape),
                   s->nbytes, at_least ? "at least " : "", is);
}

static enum err_code begin_data(struct upload_sink *s, int64_t before, struct err *e)
{
    struct view v;
    TRY(view_contiguous(s->rank, s->shape, dtype_size(s->dtype), &v, e));
    s->nbytes = view_size(&v) * (int64_t)dtype_size(s->dtype);
    int64_t length = s->req->content_length;
    if (length >= 0 && s->format != DATA_JSON && length - before != s->nbytes)
        return sink_length_error(s, length - before, false, e);
    if (!s->stage && (s->swap || s->dtype == DT_BOOL)) {
        s->stage = arena_alloc(s->req->arena, STAGE_BYTES);
        if (!s->stage)
            return err_oom(e);
    }
    return upload_new(s->stream, s->account, s->nbytes, upload_woken, s, &s->upload, e);
}

enum err_code sink_begin(struct upload_sink *s, int64_t before, struct err *e)
{
    enum err_code code = begin_data(s, before, e);
    if (code == ERR_OK || !memory_pressure_ask(s->req, e, upload_woken, s))
        return code;
    s->waits = true;
    s->before = before;
    return ERR_OK;
}

bool sink_has_memory(struct upload_sink *s)
{
    struct err e = ERR_INIT;
    if (!s->waits)
        return true;
    if (!memory_pressure_answered(s->req))
        return false;
    s->waits = false;
    if (sink_begin(s, s->before, &e))
        sink_fail(s, &e);
    return !s->waits;
}

bool sink_flush(struct upload_sink *s)
{
    while (s->pos < s->ready) {
        if (!s->upload)
            return false; /* it waits for room */
        size_t took = upload_push(s->upload, s->stage + s->pos, s->ready - s->pos);
        if (!took)
            return false;
        s->pos += took;
    }
    if (s->ready) {
        memmove(s->stage, s->stage + s->ready, s->len - s->ready);
        s->len -= s->ready;
        s->pos = s->ready = 0;
    }
    return true;
}

static size_t put_staged(struct upload_sink *s, const unsigned char *p, size_t n)
{
    if (!sink_flush(s))
        return 0;
    size_t k = n < STAGE_BYTES - s->len ? n : STAGE_BYTES - s->len;
    memcpy(s->stage + s->len, p, k);
    s->len += k;
    s->ready = s->swap ? s->len - s->len % dtype_size(s->dtype) : s->len;
    if (s->dtype == DT_BOOL) {
        for (size_t i = 0; i < s->ready; i++)
            s->stage[i] = s->stage[i] != 0;
    }
    if (s->swap)
        npy_swap(s->dtype, s->stage, s->ready);
    sink_flush(s);
    return k;
}

static size_t put_direct(struct upload_sink *s, const unsigned char *p, size_t n)
{
    size_t room;
    void *to = upload_reserve(s->upload, &room);
    if (!to)
        return upload_push(s->upload, p, n);
    size_t k = n < room ? n : room;
    mem_copy_away(to, p, k);
    upload_advance(s->upload, k);
    return k;
}

/* Takes bytes of the data itself and returns how many. Too many is a failure. */
static size_t put_data(struct upload_sink *s, const unsigned char *p, size_t n)
{
    struct err e = ERR_INIT;
    if ((int64_t)n > s->nbytes - s->got) {
        sink_length_error(s, s->got + (int64_t)n, true, &e);
        sink_fail(s, &e);
        return 0;
    }
    bool change = s->swap || s->dtype == DT_BOOL;
    size_t k = change || s->len ? put_staged(s, p, n) : put_direct(s, p, n);
    s->got += (int64_t)k;
    return k;
}

static enum err_code missing_query(struct upload_sink *s, struct err *e)
{
    return err_set(e, s->typed ? ERR_BAD_SHAPE : ERR_BAD_DTYPE,
                   "raw data (application/octet-stream) needs ?dtype=…&shape=a,b,c in the query; "
                   "%s is missing",
                   s->typed ? "shape" : "dtype");
}

/* The .npy header is complete: checks it against what is expected. */
static enum err_code npy_begin(struct upload_sink *s, int64_t before, struct err *e)
{
    const struct npy_header *h = &s->header;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (s->typed && h->dtype != s->dtype)
        return err_set(e, ERR_DTYPE_MISMATCH, "the .npy data has dtype %s, but %s is expected",
                       dtype_name(h->dtype), dtype_name(s->dtype));
    if (s->shaped && (h->rank != s->rank ||
                      (h->rank && memcmp(h->shape, s->shape, sizeof *h->shape * (size_t)h->rank))))
        return err_set(e, ERR_SHAPE_MISMATCH, "the .npy data has shape %s, but %s is expected",
                       shape_text(h->rank, h->shape, have, sizeof have),
                       shape_text(s->rank, s->shape, want, sizeof want));
    s->dtype = h->dtype;
    s->rank = h->rank;
    s->shape = h->shape;
    s->fortran = h->fortran_order;
    s->swap = h->big_endian && dtype_size(h->dtype) > 1;
    return sink_begin(s, before, e);
}

static size_t put_npy(struct upload_sink *s, const unsigned char *p, size_t n)
{
    struct err e = ERR_INIT;
    size_t used = 0;
    bool done = false;
    enum err_code code = npy_feed(&s->npy, p, n, &used, &done, &s->header, &e);
    if (code == ERR_OK && done)
        code = npy_begin(s, s->taken + (int64_t)used, &e);
    if (code != ERR_OK)
        sink_fail(s, &e);
    return used;
}

/* The first bytes have told the format: they are passed on. */
static void sniffed(struct upload_sink *s, enum data_format format)
{
    struct err e = ERR_INIT;
    s->format = format;
    if (format == DATA_NPY) {
        put_npy(s, s->head, s->n_head);
        return;
    }
    enum err_code code = s->typed && s->shaped ? sink_begin(s, 0, &e) : missing_query(s, &e);
    if (code == ERR_OK && (int64_t)s->n_head > s->nbytes)
        code = sink_length_error(s, (int64_t)s->n_head, true, &e);
    if (code == ERR_OK && !s->stage) {
        s->stage = arena_alloc(s->req->arena, STAGE_BYTES);
        code = s->stage ? ERR_OK : err_oom(&e);
    }
    if (code != ERR_OK) {
        sink_fail(s, &e);
        return;
    }
    /* through the stage: the engine may have no room, and these bytes have been taken */
    put_staged(s, s->head, s->n_head);
    s->got = (int64_t)s->n_head;
}

void sink_take_head(struct upload_sink *s)
{
    sniffed(s, DATA_OCTETS);
}

static size_t put_sniff(struct upload_sink *s, const unsigned char *p, size_t n)
{
    size_t k = n < NPY_MAGIC_LEN - s->n_head ? n : NPY_MAGIC_LEN - s->n_head;
    memcpy(s->head + s->n_head, p, k);
    s->n_head += k;
    if (!npy_is_magic(s->head, s->n_head))
        sniffed(s, DATA_OCTETS);
    else if (s->n_head == NPY_MAGIC_LEN)
        sniffed(s, DATA_NPY);
    return k;
}

static size_t put_json(struct upload_sink *s, const char *p, size_t n)
{
    struct err e = ERR_INIT;
    char shape[SHAPE_TEXT_MAX];
    if (json_array_feed_all(s->json, p, n, &e)) {
        if (e.code == ERR_QUOTA) /* the limit is the region's size */
            err_set(&e, ERR_SHAPE_MISMATCH, "the data has more elements than shape %s",
                    shape_text(s->rank, s->shape, shape, sizeof shape));
        sink_fail(s, &e);
    }
    return n;
}

static size_t sink_push(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed)
{
    struct upload_sink *s = (struct upload_sink *)sink;
    size_t used = 0;
    uint64_t begun = clock_ns();
    while (used < n && sink_has_memory(s) && !s->failed) {
        const unsigned char *p = (const unsigned char *)bytes + used;
        size_t took;
        if (s->upload)
            took = put_data(s, p, n - used);
        else if (s->format == DATA_JSON)
            took = put_json(s, bytes + used, n - used);
        else if (s->format == DATA_NPY)
            took = put_npy(s, p, n - used);
        else
            took = put_sniff(s, p, n - used);
        used += took;
        s->taken += (int64_t)took;
        if (!took)
            break;
    }
    if (s->upload)
        http_took(&s->req->t_copy, begun);
    *ret_failed = s->failed;
    return s->failed ? n : used;
}

static void sink_abort(struct http_sink *sink)
{
    sink_release((struct upload_sink *)sink);
}

static void accept_body(struct upload_sink *s)
{
    s->sink.push = sink_push;
    s->sink.end = sink_end;
    s->sink.abort = sink_abort;
    s->sink.req = s->req;
    wakeup_init(&s->wakeup, s->req);
    http_accept_body(s->req, &s->sink);
}

enum err_code data_format_of(struct request *req, enum data_format *ret, struct err *e)
{
    const char *value = http_header(req, "Content-Type");
    enum media type;
    TRY(media_content_type(value, &type, e));
    switch (type) {
    case MEDIA_NONE:
        *ret = DATA_SNIFF;
        return ERR_OK;
    case MEDIA_OCTETS:
        *ret = DATA_OCTETS;
        return ERR_OK;
    case MEDIA_NPY:
        *ret = DATA_NPY;
        return ERR_OK;
    case MEDIA_JSON:
        *ret = DATA_JSON;
        return ERR_OK;
    default:
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                       "array data must be application/octet-stream, application/x-npy, "
                       "application/json (curl --json), application/x-npz, application/x-netcdf or "
                       "application/x-hdf5, not %.64s",
                       value);
    }
}

/* The "2,3" of ?shape=; ret_shape has room for MAX_RANK; empty is rank 0. ERR_BAD_SHAPE. */
static enum err_code read_extents(const char *text, int *ret_rank, int64_t *ret_shape,
                                  struct err *e)
{
    int rank = 0;
    const char *p = text;
    while (*p) {
        if (rank == MAX_RANK)
            return err_set(e, ERR_BAD_SHAPE, "shape has more than %d extents", MAX_RANK);
        char *end;
        errno = 0;
        long long v = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : -1;
        if (v < 0 || errno || (*end && (*end != ',' || !end[1])))
            return err_set(e, ERR_BAD_SHAPE,
                           "shape must be a comma-separated list of extents, such as 3,4");
        ret_shape[rank++] = v;
        p = *end ? end + 1 : end;
    }
    *ret_rank = rank;
    return ERR_OK;
}

static enum err_code read_query(struct upload_sink *s, struct err *e)
{
    const char *dtype = http_query(s->req, "dtype"), *shape = http_query(s->req, "shape");
    if (dtype) {
        TRY(dtype_read(dtype, strlen(dtype), &s->dtype, e));
        s->typed = true;
    }
    if (shape) {
        int64_t *extents = arena_alloc_array(s->req->arena, MAX_RANK, sizeof *extents);
        if (!extents)
            return err_oom(e);
        TRY(read_extents(shape, &s->rank, extents, e));
        s->shaped = true;
        s->shape = extents;
    }
    return ERR_OK;
}

void data_accept_create(struct request *req, struct engine_stream *stream, struct account *account,
                        enum data_format format, data_created *created)
{
    struct err e = ERR_INIT;
    struct upload_sink *s = arena_alloc(req->arena, sizeof *s);
    if (!s) {
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    s->req = req;
    s->stream = stream;
    s->account = account;
    s->format = format;
    s->created = created;
    enum err_code code = read_query(s, &e);
    s->npy.want_bfloat16 = s->typed && s->dtype == DT_BF16;
    if (code == ERR_OK && format == DATA_OCTETS)
        code = s->typed && s->shaped ? begin_data(s, 0, &e) : missing_query(s, &e);
    if (code != ERR_OK)
        sink_reply_failed(s, &e);
    else
        accept_body(s);
}

void data_accept_into(struct request *req, struct session *take_session, struct handle *take_handle,
                      const struct view *region, enum data_format format)
{
    struct err e = ERR_INIT;
    enum err_code code = ERR_OK;
    struct upload_sink *s = arena_alloc(req->arena, sizeof *s);
    if (!s) {
        session_unref(take_session);
        handle_clear(take_handle);
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    s->req = req;
    s->session = take_session;
    s->target = *take_handle;
    memset(take_handle, 0, sizeof *take_handle);
    s->stream = s->session->stream;
    s->account = s->session->account;
    s->format = format;
    s->region = *region;
    s->typed = s->shaped = true;
    s->dtype = s->target.array->dtype;
    s->rank = region->rank;
    s->shape = s->region.shape;
    s->npy.want_bfloat16 = s->dtype == DT_BF16;
    if (view_self_overlaps(region))
        code = err_set(&e, ERR_OVERLAP, "elements of the target overlap in memory");
    else if (format == DATA_OCTETS)
        code = begin_data(s, 0, &e);
    else if (format == DATA_JSON) {
        int64_t max = view_size(region) * (int64_t)dtype_size(s->dtype);
        s->json = json_array_new((int)s->dtype, max ? max : 1);
        code = s->json ? ERR_OK : err_oom(&e);
    }
    if (code != ERR_OK)
        sink_reply_failed(s, &e);
    else
        accept_body(s);
}
