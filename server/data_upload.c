/* Uploads: one sink for the three formats and both destinations (a new array, a region of one).
 *
 * The bytes go straight from the network buffer into the engine's staging memory. Only what has to
 * be changed on the way (big-endian numbers, bools that are not 0 or 1) passes through a small
 * buffer of the sink's own, which also carries an element that a chunk's edge has cut. Nothing of
 * the array is touched before the last byte has come and every check has passed: then the upload is
 * published whole. A chunk is never waited for: without staging memory the sink takes nothing and
 * wakes the request when there is some.
 *
 * Lengths are checked as early as they can be: from Content-Length before the body, from a .npy
 * header when it is complete, else at the end. JSON is read into elements first, because only its
 * end tells whether the shape is right; that costs one copy of the region. */
#include <inttypes.h>
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/json_array.h"
#include "protocol/npy.h"
#include "server/condition.h"
#include "server/data.h"
#include "server/gate.h"
#include "server/handlers.h"

#define STAGE_BYTES       16384 /* a multiple of every element size */
#define OFFLOAD_COPY_SIZE (1 << 20)
#define COPY_PIECE        (1 << 18) /* far less than a slice of work */

struct upload_sink {
    struct http_sink sink; /* first: http.c knows the object by it */
    struct request *req;
    struct gate gate;
    void *caller_state; /* req->state while we wait in its place */
    void (*caller_state_free)(void *state);
    struct engine_stream *stream;
    struct account *account;
    data_created *created;   /* a new array, or: */
    struct session *session; /* a region of target's array (a reference each) */
    struct handle target;
    struct view region;

    enum data_format format;
    bool typed, shaped; /* dtype, shape are known beforehand */
    enum dtype dtype;
    int rank;
    const int64_t *shape;
    bool fortran, swap;
    unsigned char head[NPY_MAGIC_LEN]; /* DATA_SNIFF: the first bytes */
    size_t n_head;
    struct npy_reader npy;
    struct npy_header header;
    struct json_array *json;
    struct json_array_data elements; /* what the JSON said; data is ours until pushed */
    struct data_staging staging;

    struct upload *upload;  /* once the length is known */
    int64_t taken;          /* bytes of the body so far */
    int64_t nbytes, got;    /* of the data */
    unsigned char *stage;   /* [pos, ready) wants to be pushed, [ready, len) is half an element */
    size_t pos, ready, len; /* into stage */
    _Atomic bool ending;
    bool failed;
    struct err err;
};

static void sink_release(struct upload_sink *s)
{
    if (s->upload)
        upload_abort(s->upload);
    s->upload = NULL;
    npy_reader_free(&s->npy);
    json_array_free(s->json);
    s->json = NULL;
    mem_free(s->elements.data);
    s->elements.data = NULL;
    handle_clear(&s->target);
    session_unref(s->session);
    s->session = NULL;
}

static void sink_fail(struct upload_sink *s, const struct err *e)
{
    s->failed = true;
    s->err = *e;
}

static void upload_woken(void *user)
{
    struct upload_sink *s = user;
    if (atomic_load(&s->ending))
        gate_wake(&s->gate);
    else
        http_sink_wake(&s->sink);
}

static enum err_code length_error(const struct upload_sink *s, int64_t is, bool at_least,
                                  struct err *e)
{
    char shape[SHAPE_TEXT_MAX];
    return err_set(e, ERR_LENGTH_MISMATCH,
                   "%s of shape %s takes %" PRId64 " bytes, the body has %s%" PRId64,
                   dtype_name(s->dtype), shape_text(s->rank, s->shape, shape, sizeof shape),
                   s->nbytes, at_least ? "at least " : "", is);
}

/* dtype and shape are settled: `before` bytes of the body came before the data. */
static enum err_code begin_data(struct upload_sink *s, int64_t before, struct err *e)
{
    struct view v;
    enum err_code c = view_contiguous(s->rank, s->shape, dtype_size(s->dtype), &v, e);
    if (c)
        return c;
    s->nbytes = view_size(&v) * (int64_t)dtype_size(s->dtype);
    int64_t length = s->req->content_length;
    if (length >= 0 && s->format != DATA_JSON && length - before != s->nbytes)
        return length_error(s, length - before, false, e);
    if (s->swap || s->dtype == DT_BOOL) {
        s->stage = arena_alloc(s->req->arena, STAGE_BYTES);
        if (!s->stage)
            return err_oom(e);
    }
    return upload_new(s->stream, s->account, s->nbytes, upload_woken, s, &s->upload, e);
}

/* Pushes what the stage holds ready; false when the engine has no room now. */
static bool stage_flush(struct upload_sink *s)
{
    while (s->pos < s->ready) {
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
    if (!stage_flush(s))
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
    stage_flush(s);
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

/* Bytes of the data itself; how many were taken. Too many is a failure. */
static size_t put_data(struct upload_sink *s, const unsigned char *p, size_t n)
{
    struct err e = ERR_INIT;
    if ((int64_t)n > s->nbytes - s->got) {
        length_error(s, s->got + (int64_t)n, true, &e);
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
                   "octet-stream data needs ?dtype=…&shape=a,b,c in the query; %s is missing",
                   s->typed ? "shape" : "dtype");
}

/* The .npy header is complete: does it fit what was announced? */
static enum err_code npy_begin(struct upload_sink *s, int64_t before, struct err *e)
{
    const struct npy_header *h = &s->header;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (s->typed && h->dtype != s->dtype)
        return err_set(e, ERR_DTYPE_MISMATCH, "the .npy data are %s, %s is wanted",
                       dtype_name(h->dtype), dtype_name(s->dtype));
    if (s->shaped && (h->rank != s->rank ||
                      (h->rank && memcmp(h->shape, s->shape, sizeof *h->shape * (size_t)h->rank))))
        return err_set(e, ERR_SHAPE_MISMATCH, "the .npy data have shape %s, %s is wanted",
                       shape_text(h->rank, h->shape, have, sizeof have),
                       shape_text(s->rank, s->shape, want, sizeof want));
    s->dtype = h->dtype;
    s->rank = h->rank;
    s->shape = h->shape;
    s->fortran = h->fortran_order;
    s->swap = h->big_endian && dtype_size(h->dtype) > 1;
    return begin_data(s, before, e);
}

static size_t put_npy(struct upload_sink *s, const unsigned char *p, size_t n)
{
    struct err e = ERR_INIT;
    size_t used = 0;
    bool done = false;
    enum err_code c = npy_feed(&s->npy, p, n, &used, &done, &s->header, &e);
    if (!c && done)
        c = npy_begin(s, s->taken + (int64_t)used, &e);
    if (c)
        sink_fail(s, &e);
    return used;
}

/* What the body is, is known from its first bytes: they are fed on. */
static void sniffed(struct upload_sink *s, enum data_format format)
{
    struct err e = ERR_INIT;
    s->format = format;
    if (format == DATA_NPY) {
        put_npy(s, s->head, s->n_head);
        return;
    }
    enum err_code c = s->typed && s->shaped ? begin_data(s, 0, &e) : missing_query(s, &e);
    if (!c && (int64_t)s->n_head > s->nbytes)
        c = length_error(s, (int64_t)s->n_head, true, &e);
    if (!c && !s->stage) {
        s->stage = arena_alloc(s->req->arena, STAGE_BYTES);
        c = s->stage ? ERR_OK : err_oom(&e);
    }
    if (c) {
        sink_fail(s, &e);
        return;
    }
    /* by way of the stage: the engine may have no room, and these bytes are taken already */
    put_staged(s, s->head, s->n_head);
    s->got = (int64_t)s->n_head;
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
            err_set(&e, ERR_SHAPE_MISMATCH, "the data have more elements than shape %s",
                    shape_text(s->rank, s->shape, shape, sizeof shape));
        sink_fail(s, &e);
    }
    return n;
}

static size_t sink_push(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed)
{
    struct upload_sink *s = (struct upload_sink *)sink;
    size_t used = 0;
    uint64_t begun = http_now_ns();
    while (used < n && !s->failed) {
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

static void reply_failed(struct upload_sink *s, const struct err *e)
{
    struct request *req = s->req;
    struct err copy = *e;
    sink_release(s);
    http_reply_error(req, &copy);
}

/* Writes the staged bytes, if the request's condition holds: where it names tags, the version they
 * were compared with goes along to the write itself. */
static enum err_code publish(struct upload_sink *s, struct upload *take_u, struct array *a,
                             struct err *e)
{
    struct condition condition = condition_of(s->req);
    uint64_t version = array_version(a);
    enum err_code c = condition_check(&condition, a, &s->region, e);
    c = c ? c : handler_leased(s->req, a, LEASE_WRITE, e);
    if (c) {
        upload_abort(take_u);
        return c;
    }
    if (condition_names_tags(&condition))
        upload_expect(take_u, version);
    return upload_finish_into(take_u, a, &s->region, s->fortran, handler_work_done, NULL, e);
}

/* Everything has been pushed: publishes it. */
static void finish(struct upload_sink *s)
{
    struct request *req = s->req;
    struct err e = ERR_INIT;
    struct upload *u = s->upload;
    uint64_t begun = http_now_ns();
    s->upload = NULL;
    if (s->created) {
        struct array *a;
        if (upload_finish_new(u, s->dtype, s->rank, s->shape, s->fortran, &a, &e)) {
            reply_failed(s, &e);
            return;
        }
        http_took(&req->t_copy, begun);
        data_created *created = s->created;
        sink_release(s);
        created(req, a);
        return;
    }
    /* The handle may have changed while the body was on its way. */
    _cleanup_handle_ struct handle now = {0};
    enum err_code c = handler_find(req, s->session, s->target.id, &now, &e);
    if (!c && now.read_only)
        c = err_set(&e, ERR_READ_ONLY, "the array is read-only");
    if (!c && !array_same_elements(now.array, s->target.array))
        c = err_set(&e, ERR_CONFLICT, "the array was resized while the data were on their way");
    if (!c)
        c = publish(s, u, now.array, &e);
    else
        upload_abort(u);
    if (c) {
        reply_failed(s, &e);
        return;
    }
    http_took(&req->t_copy, begun);
    sink_release(s);
    http_reply_empty(req, 204);
}

/* The request waits in our name: its state is ours until finish. */
static void borrow_state(struct upload_sink *s)
{
    struct request *req = s->req;
    s->caller_state = req->state;
    s->caller_state_free = req->state_free;
    req->state = s;
    req->state_free = NULL;
}

static void return_state(struct upload_sink *s)
{
    s->req->state = s->caller_state;
    s->req->state_free = s->caller_state_free;
}

bool data_stage(struct data_staging *s, handler_fn *again)
{
    uint64_t begun = http_now_ns();
    bool over = false;
    while (s->pushed < s->n && !over) {
        gate_arm(s->gate);
        size_t left = s->n - s->pushed, took = upload_push(s->upload, s->from + s->pushed,
                                                           left < COPY_PIECE ? left : COPY_PIECE);
        if (!took) {
            http_took(&s->req->t_copy, begun);
            gate_wait(s->gate, again);
            return false;
        }
        s->pushed += took;
        over = http_slice_over(&begun);
    }
    http_took(&s->req->t_copy, begun);
    if (s->pushed < s->n)
        http_offload_long(s->req, again);
    return s->pushed == s->n;
}

/* Pushes the elements that JSON brought; the request goes on here after a wait. */
static void push_elements(struct request *req)
{
    struct upload_sink *s = req->state;
    if (!data_stage(&s->staging, push_elements))
        return;
    return_state(s);
    finish(s);
}

/* The stage's rest may still have to wait for room. */
static void push_stage(struct request *req)
{
    struct upload_sink *s = req->state;
    gate_arm(&s->gate);
    if (!stage_flush(s)) {
        gate_wait(&s->gate, push_stage);
        return;
    }
    return_state(s);
    finish(s);
}

/* Whether the list's shape is the region's. Nested lists cannot spell what comes after an extent of
 * 0: [] is (0,), and stands for (0, 3) too. */
static bool json_shape_fits(const struct upload_sink *s)
{
    const struct json_array_data *d = &s->elements;
    if (d->rank > s->rank || (d->rank < s->rank && (!d->rank || d->shape[d->rank - 1] != 0)))
        return false;
    for (int k = 0; k < d->rank; k++)
        if (d->shape[k] != s->shape[k])
            return false;
    return true;
}

static void finish_json(struct upload_sink *s)
{
    struct err e = ERR_INIT;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    enum err_code c = json_array_finish(s->json, &e);
    if (!c)
        c = json_array_take(s->json, -1, &s->elements, &e);
    if (!c && !json_shape_fits(s))
        c = err_set(&e, ERR_SHAPE_MISMATCH, "the data have shape %s, %s is wanted",
                    shape_text(s->elements.rank, s->elements.shape, have, sizeof have),
                    shape_text(s->rank, s->shape, want, sizeof want));
    if (!c)
        c = begin_data(s, 0, &e);
    if (c) {
        reply_failed(s, &e);
        return;
    }
    borrow_state(s);
    s->staging = (struct data_staging){
        .req = s->req,
        .gate = &s->gate,
        .upload = s->upload,
        .from = s->elements.data,
        .n = (size_t)s->nbytes,
    };
    if (s->nbytes > OFFLOAD_COPY_SIZE)
        http_offload_long(s->req, push_elements);
    else
        push_elements(s->req);
}

static void sink_end(struct http_sink *sink, struct request *req)
{
    struct upload_sink *s = (struct upload_sink *)sink;
    struct err e = ERR_INIT;
    atomic_store(&s->ending, true);
    if (!s->failed && s->format == DATA_SNIFF)
        sniffed(s, DATA_OCTETS); /* shorter than the magic */
    if (s->failed) {
        reply_failed(s, &s->err);
    } else if (s->format == DATA_JSON) {
        finish_json(s);
    } else if (!s->upload) {
        err_set(&e, ERR_BAD_NPY, "the body ends within the .npy header");
        reply_failed(s, &e);
    } else if (s->got != s->nbytes) {
        length_error(s, s->got, false, &e);
        reply_failed(s, &e);
    } else {
        borrow_state(s);
        push_stage(req);
    }
}

static void accept_body(struct upload_sink *s)
{
    s->sink.push = sink_push;
    s->sink.end = sink_end;
    s->sink.abort = sink_abort;
    s->sink.req = s->req;
    gate_init(&s->gate, s->req);
    http_accept_body(s->req, &s->sink);
}

static enum err_code read_query(struct upload_sink *s, struct err *e)
{
    const char *dtype = http_query(s->req, "dtype"), *shape = http_query(s->req, "shape");
    if (dtype) {
        int t = dtype_from_name(dtype, strlen(dtype));
        if (t < 0)
            return err_set(e, ERR_BAD_DTYPE, "there is no dtype \"%.64s\"", dtype);
        s->typed = true;
        s->dtype = (enum dtype)t;
    }
    if (shape) {
        int64_t *extents = arena_alloc_array(s->req->arena, MAX_RANK, sizeof *extents);
        if (!extents)
            return err_oom(e);
        enum err_code c = data_parse_shape(shape, &s->rank, extents, e);
        if (c)
            return c;
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
    enum err_code c = read_query(s, &e);
    s->npy.want_bfloat16 = s->typed && s->dtype == DT_BF16;
    if (!c && format == DATA_OCTETS)
        c = s->typed && s->shaped ? begin_data(s, 0, &e) : missing_query(s, &e);
    if (c)
        reply_failed(s, &e);
    else
        accept_body(s);
}

void data_accept_into(struct request *req, struct session *take_session, struct handle *take_handle,
                      const struct view *region, enum data_format format)
{
    struct err e = ERR_INIT;
    enum err_code c = ERR_OK;
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
        c = err_set(&e, ERR_OVERLAP, "elements of the target overlap each other");
    else if (format == DATA_OCTETS)
        c = begin_data(s, 0, &e);
    else if (format == DATA_JSON) {
        int64_t max = view_size(region) * (int64_t)dtype_size(s->dtype);
        s->json = json_array_new((int)s->dtype, max ? max : 1);
        c = s->json ? ERR_OK : err_oom(&e);
    }
    if (c)
        reply_failed(s, &e);
    else
        accept_body(s);
}
