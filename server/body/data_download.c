/* Downloads: an array's contents as octet-stream, .npy or JSON, from a snapshot taken when the
 * reply is decided.
 *
 * The first block is fetched before the reply begins. So a device that fails gives an error with a
 * status, Server-Timing has the time of the work, and contents that fit in one block are sent from
 * memory without a source. Larger binary contents are pulled block by block as the connection takes
 * them.
 *
 * JSON needs its exact length before the first byte, so the text is made twice: counted on a worker
 * thread, then made again as it is sent. Both passes read the elements through a small window, so
 * memory does not grow with the array. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "compute/memory/export.h"
#include "protocol/number/numlist.h"
#include "protocol/wire/npy.h"
#include "server/body/condition.h"
#include "server/body/data.h"
#include "server/body/request.h"
#include "server/http/wakeup.h"
#include "server/server.h"
#include "server/store/share.h"

#define FIRST_BLOCK 65536 /* contents up to this are sent from memory */
#define TEXT_BLOCK  32768 /* JSON text made at a time */
#define PULL_MAX    (1 << 17)

/* Makes the JSON text of an array in C order from a window that slides over the download. */
struct text_maker {
    struct numlist list;
    int64_t strides[MAX_RANK]; /* of the contiguous view, to find the cursor's element */
    size_t item;
    int64_t n_elems;
    unsigned char *window; /* bytes [from, from + have) of the contents */
    size_t cap, have;
    int64_t from;
    char *text; /* [pos, len) is made but not yet taken */
    size_t pos, len;
};

struct data_source {
    struct http_source source; /* first */
    struct request *req;
    struct wakeup wakeup;
    bool resource;          /* an array's own data, not a fresh result */
    char shared[ID_SIZE];   /* of another principal's array: its id; else "" */
    bool written_outside;   /* it is exported for writing */
    _Atomic bool streaming; /* wakes go to the source, else to the request */
    struct download *download;
    enum dtype dtype;
    struct view view; /* contiguous, of the array's shape */
    enum media type;
    int status;
    int64_t nbytes;       /* of the contents */
    int64_t skip, count;  /* the range that is sent */
    unsigned char *first; /* the first block */
    size_t first_want, first_have;
    bool waited; /* for the first block, beyond wakeup_soon */
    char *head;  /* .npy header */
    size_t head_len;
    struct text_maker *maker;
    int64_t text_len;
};

/* Called as soon as everything is read: a client that has received all of it may write to the
 * array. */
static void end_download(struct data_source *s)
{
    if (s->download)
        download_free(s->download);
    s->download = NULL;
}

static void source_drop(struct data_source *s)
{
    end_download(s);
    if (s->maker) {
        mem_free(s->maker->window);
        mem_free(s->maker->text);
        mem_free(s->maker);
    }
    s->maker = NULL;
}

static void state_free(void *state)
{
    source_drop(state);
}

static void source_free(struct http_source *src)
{
    source_drop((struct data_source *)src);
}

static void download_woken(void *user)
{
    struct data_source *s = user;
    if (atomic_load(&s->streaming))
        http_source_wake(&s->source);
    else
        wakeup_ring(&s->wakeup);
}

static void fail(struct request *req, enum err_code code, const char *text)
{
    struct err e = ERR_INIT;
    err_set(&e, code, "%s", text);
    http_reply_error(req, &e);
}

void data_error(const struct download *d, struct err *e)
{
    char why[DOWNLOAD_REASON];
    switch (download_result(d)) {
    case ERR_OUT_OF_MEMORY:
        err_set(e, ERR_OUT_OF_MEMORY, "memory ran out during the work on this array");
        break;
    case ERR_INTERNAL:
    case ERR_FAULTED:
    case ERR_PLAN_FAULTED:
    case ERR_CONTENTS_LOST:
        download_reason(d, why);
        err_set(e, download_result(d), "%s", why);
        break;
    default:
        err_set(e, ERR_DEVICE_LOST, "the device failed before the contents were computed");
        break;
    }
}

void data_times(struct request *req, const struct download *d, bool own)
{
    double compile = download_compile_ms(d, own);
    req->t_device = download_device_ms(d, own);
    req->tier = request_tiers(download_tiers(d, own));
    if (compile > 0)
        req->t_compile = (req->t_compile > 0 ? req->t_compile : 0) + compile;
}

/* Whether the principal may still read the array. */
static bool lasts(const struct http_source *src)
{
    const struct data_source *s = (const struct data_source *)src;
    const struct request *req = s->req;
    return !s->shared[0] || share_lasts(req->server->shares, s->shared, req->principal, false);
}

/* Before the reply begins: replies with an error and returns true if the share has been revoked. */
static bool taken_back(struct data_source *s)
{
    if (lasts(&s->source))
        return false;
    struct err e = ERR_INIT;
    err_set(&e, ERR_NOT_FOUND, "there is no array '%s'", s->shared);
    http_reply_error(s->req, &e);
    return true;
}

/* pull() returned -1 before the reply began. */
static void device_failed(struct data_source *s)
{
    struct err e = ERR_INIT;
    data_error(s->download, &e);
    http_reply_error(s->req, &e);
}

/* --- ranges --- */

enum range_kind { RANGE_WHOLE, RANGE_PART, RANGE_BAD };

static bool digits(const char **p, int64_t *ret)
{
    const char *q = *p;
    int64_t v = 0;
    if (*q < '0' || *q > '9')
        return false;
    for (; *q >= '0' && *q <= '9'; q++) {
        if (v > (INT64_MAX - 9) / 10)
            v = INT64_MAX / 10 - 1; /* saturates: past any array's end */
        v = v * 10 + (*q - '0');
    }
    *p = q;
    *ret = v;
    return true;
}

/* One byte range of `length` bytes. A malformed range, another unit, and several ranges are
 * ignored, as RFC 9110 (14.2) allows: the whole is sent. */
static enum range_kind parse_range(const char *h, int64_t length, int64_t *ret_from,
                                   int64_t *ret_count)
{
    int64_t from, to = length - 1;
    if (strncasecmp(h, "bytes=", 6) != 0)
        return RANGE_WHOLE;
    const char *p = h + 6;
    p += strspn(p, " \t");
    if (*p == '-') {
        int64_t suffix;
        p++;
        if (!digits(&p, &suffix))
            return RANGE_WHOLE;
        from = suffix < length ? length - suffix : 0;
        if (!suffix)
            from = length;
    } else {
        if (!digits(&p, &from) || *p++ != '-')
            return RANGE_WHOLE;
        int64_t last;
        if (digits(&p, &last)) {
            if (last < from)
                return RANGE_WHOLE;
            to = last < to ? last : to;
        }
    }
    if (p[strspn(p, " \t")])
        return RANGE_WHOLE;
    if (from >= length)
        return RANGE_BAD;
    *ret_from = from;
    *ret_count = to - from + 1;
    return RANGE_PART;
}

/* After the reply has begun, only its connection can be cut; /readyz gives the reason. */
static void note_loss(const struct data_source *s)
{
    if (download_result(s->download) == ERR_DEVICE_LOST)
        atomic_store(&s->req->server->device_lost, true);
}

/* --- JSON text --- */

int64_t data_json_items(const struct view *v)
{
    int64_t n = 1;
    for (int k = 0; k < v->rank && v->shape[k]; k++)
        n *= v->shape[k];
    return n;
}

static struct text_maker *maker_new(const struct data_source *s)
{
    struct text_maker *m = mem_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->item = dtype_size(s->dtype);
    m->n_elems = view_size(&s->view);
    /* the shortest element takes two bytes of text */
    m->cap = ((size_t)TEXT_BLOCK / 2 + 2) * m->item;
    memcpy(m->strides, s->view.strides, sizeof m->strides);
    m->window = mem_alloc(m->cap);
    m->text = mem_alloc(TEXT_BLOCK);
    if (!m->window || !m->text) {
        mem_free(m->window);
        mem_free(m->text);
        mem_free(m);
        return NULL;
    }
    numlist_init(&m->list, s->dtype, &s->view, m->window);
    return m;
}

static void maker_rewind(struct data_source *s)
{
    numlist_init(&s->maker->list, s->dtype, &s->view, s->maker->window);
    s->maker->pos = s->maker->len = 0;
}

/* Slides the window to the cursor and fills it: 1 done, 0 not ready, -1 failed. */
static int maker_fill(struct data_source *s)
{
    struct text_maker *m = s->maker;
    int64_t at = 0;
    for (int k = 0; k < s->view.rank; k++)
        at += m->list.index[k] * m->strides[k];
    int64_t from = at * (int64_t)m->item;
    int64_t left = s->nbytes - from;
    size_t want = left < (int64_t)m->cap ? (size_t)left : m->cap;
    if (from < m->from || from > m->from + (int64_t)m->have) {
        m->have = 0;
    } else {
        size_t gone = (size_t)(from - m->from);
        m->have -= gone;
        memmove(m->window, m->window + gone, m->have);
    }
    m->from = from;
    m->list.view.offset = -at; /* element `at` is the window's first */
    while (m->have < want) {
        int64_t got = download_pull(s->download, from + (int64_t)m->have, m->window + m->have,
                                    want - m->have);
        if (got < 0)
            note_loss(s);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        m->have += (size_t)got;
    }
    return 1;
}

/* Makes the next piece of text; at the end m->len is 0. */
static int maker_next(struct data_source *s)
{
    struct text_maker *m = s->maker;
    if (!m->list.done && s->nbytes) {
        int r = maker_fill(s);
        if (r <= 0)
            return r;
    }
    m->pos = 0;
    m->len = numlist_next(&m->list, m->text, TEXT_BLOCK);
    return 1;
}

static int64_t json_pull(struct http_source *src, int64_t offset, char *buf, size_t n)
{
    struct data_source *s = (struct data_source *)src;
    struct text_maker *m = s->maker;
    (void)offset;
    size_t done = 0, most = n < PULL_MAX ? n : PULL_MAX;
    while (done < most) {
        if (m->pos == m->len) {
            int r = maker_next(s);
            if (r < 0)
                return -1;
            if (m->list.done)
                end_download(s);
            if (r == 0 || !m->len)
                break;
        }
        size_t k = m->len - m->pos < most - done ? m->len - m->pos : most - done;
        memcpy(buf + done, m->text + m->pos, k);
        m->pos += k;
        done += k;
    }
    return (int64_t)done;
}

static void count_json(struct request *req);

static void json_count_on(struct request *req)
{
    http_offload_long(req, count_json);
}

static void stream(struct data_source *s, int64_t length);

/* On a worker, a slice at a time: the text's length. */
static void count_json(struct request *req)
{
    struct data_source *s = req->state;
    if (taken_back(s))
        return;
    for (uint64_t begun = 0;;) {
        if (http_slice_over(&begun)) {
            json_count_on(req);
            return;
        }
        wakeup_arm(&s->wakeup);
        int r = maker_next(s);
        if (r < 0) {
            device_failed(s);
            return;
        }
        if (r == 0) {
            wakeup_wait(&s->wakeup, json_count_on);
            return;
        }
        if (!s->maker->len)
            break;
        s->text_len += (int64_t)s->maker->len;
    }
    maker_rewind(s);
    stream(s, s->text_len);
}

/* --- binary contents --- */

static int64_t bytes_pull(struct http_source *src, int64_t offset, char *buf, size_t n)
{
    struct data_source *s = (struct data_source *)src;
    int64_t head = (int64_t)s->head_len, first = (int64_t)s->first_have;
    if (offset < head) {
        size_t k = (size_t)(head - offset) < n ? (size_t)(head - offset) : n;
        memcpy(buf, s->head + offset, k);
        return (int64_t)k;
    }
    offset -= head;
    if (offset < first) {
        size_t k = (size_t)(first - offset) < n ? (size_t)(first - offset) : n;
        memcpy(buf, s->first + offset, k);
        return (int64_t)k;
    }
    if ((int64_t)n > s->count - offset)
        n = (size_t)(s->count - offset);
    int64_t got = download_pull(s->download, s->skip + offset, buf, n);
    if (got < 0)
        note_loss(s);
    else if (offset + got == s->count)
        end_download(s);
    return got;
}

/* Hands the download over to a source. */
static void stream(struct data_source *s, int64_t length)
{
    struct request *req = s->req;
    req->state = NULL;
    req->state_free = NULL;
    s->source.pull = s->type == MEDIA_JSON ? json_pull : bytes_pull;
    s->source.free = source_free;
    s->source.lasts = lasts;
    atomic_store(&s->streaming, true);
    http_reply_source(req, s->status, media_name(s->type), length, &s->source);
}

static void reply_small(struct data_source *s)
{
    struct request *req = s->req;
    struct strb b = {0};
    if (s->type == MEDIA_JSON) {
        numlist_add(&b, s->dtype, &s->view, s->first);
    } else {
        strb_addn(&b, s->head_len ? s->head : "", s->head_len);
        strb_addn(&b, s->first_have ? (const char *)s->first : "", s->first_have);
    }
    int status = s->status;
    const char *type = media_name(s->type);
    source_drop(s);
    if (b.failed) {
        strb_free(&b);
        fail(req, ERR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    http_reply_text(req, status, type, &b);
}

/* Fetches the first block, then replies. */
static void first_block(struct request *req)
{
    struct data_source *s = req->state;
    if (taken_back(s))
        return;
    while (s->first_have < s->first_want) {
        wakeup_arm(&s->wakeup);
        uint64_t begun = clock_ns();
        int64_t got = download_pull(s->download, s->skip + (int64_t)s->first_have,
                                    s->first + s->first_have, s->first_want - s->first_have);
        if (got < 0) {
            device_failed(s);
            return;
        }
        if (got == 0) {
            if (!s->waited && wakeup_soon(&s->wakeup))
                continue;
            s->waited = true;
            wakeup_wait(&s->wakeup, first_block);
            return;
        }
        http_took(&req->t_copy, begun);
        s->first_have += (size_t)got;
    }
    if (s->download)
        data_times(req, s->download, !s->resource);
    bool lists = s->type == MEDIA_JSON && !s->nbytes;
    if (lists && data_json_items(&s->view) > JSON_EMPTY_MAX) {
        fail(req, ERR_INLINE_TOO_LARGE,
             "the array is empty, but would be written as too many empty lists");
    } else if ((int64_t)s->first_have == s->count &&
               !(lists && data_json_items(&s->view) > FIRST_BLOCK)) {
        reply_small(s);
    } else if (s->type != MEDIA_JSON) {
        stream(s, (int64_t)s->head_len + s->count);
    } else {
        s->maker = maker_new(s);
        if (s->maker)
            http_offload_long(req, count_json);
        else
            fail(req, ERR_OUT_OF_MEMORY, "out of memory");
    }
}

/* Checks the conditions of GET …/data; true if they ended the request. */
static bool conditions(struct data_source *s, const struct array *a)
{
    struct request *req = s->req;
    struct err e = ERR_INIT;
    char etag[ETAG_MAX], text[96];
    bool same;
    uint64_t version = s->download ? download_version(s->download) : array_version(a);
    etag_make(a->dtype, &a->view, version, s->type, etag);
    if (s->written_outside)
        etag[0] = '\0'; /* no tag */
    else
        http_add_header(req, "ETag", etag);
    http_add_header(req, "Vary", "Accept");
    if (condition_read(req, etag, &same, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return true;
    }
    if (same) {
        http_reply_empty(req, 304);
        return true;
    }
    if (s->type != MEDIA_OCTETS)
        return false;
    http_add_header(req, "Accept-Ranges", "bytes");
    /* the page's policy lets it run what this daemon serves: not what its users have put there */
    http_add_header(req, "X-Content-Type-Options", "nosniff");
    const char *range = http_header(req, "Range"), *if_range = http_header(req, "If-Range");
    if (!range || !strcmp(req->method, "HEAD") || (if_range && strcmp(if_range, etag) != 0))
        return false;
    switch (parse_range(range, s->nbytes, &s->skip, &s->count)) {
    case RANGE_WHOLE:
        return false;
    case RANGE_PART:
        s->status = 206;
        snprintf(text, sizeof text, "bytes %lld-%lld/%lld", (long long)s->skip,
                 (long long)(s->skip + s->count - 1), (long long)s->nbytes);
        http_add_header(req, "Content-Range", text);
        return false;
    case RANGE_BAD:
        break;
    }
    snprintf(text, sizeof text, "bytes */%lld", (long long)s->nbytes);
    http_add_header(req, "Content-Range", text);
    snprintf(text, sizeof text, "the contents have %lld bytes", (long long)s->nbytes);
    fail(req, ERR_BAD_RANGE, text);
    return true;
}

static enum err_code prepare(struct data_source *s, struct engine_stream *engine_stream,
                             struct array *a, struct err *e)
{
    enum err_code code =
        view_contiguous(a->view.rank, a->view.shape, dtype_size(a->dtype), &s->view, e);
    if (code != ERR_OK)
        return code;
    s->dtype = a->dtype;
    s->nbytes = s->count = array_nbytes(a);
    if (s->type == MEDIA_NPY) {
        s->head = arena_alloc(s->req->arena, NPY_WRITE_MAX);
        if (!s->head)
            return err_oom(e);
        s->head_len = npy_write_header(a->dtype, a->view.rank, a->view.shape, s->head);
    }
    s->written_outside = array_written_outside(a);
    if (!s->nbytes)
        return ERR_OK;
    return download_new(engine_stream, a, download_woken, s, &s->download, e);
}

void data_reply(struct request *req, struct engine_stream *engine_stream, struct array *take_a,
                enum media type, const struct handle *of)
{
    struct err e = ERR_INIT;
    struct data_source *s = arena_alloc(req->arena, sizeof *s);
    enum err_code code = s ? ERR_OK : err_oom(&e);
    if (code == ERR_OK) {
        s->req = req;
        s->type = type;
        s->resource = of;
        if (of && of->shared)
            memcpy(s->shared, of->id, sizeof s->shared);
        s->status = 200;
        wakeup_init(&s->wakeup, req);
        req->state = s;
        req->state_free = state_free;
        code = prepare(s, engine_stream, take_a, &e);
    }
    bool replied = code == ERR_OK && of && conditions(s, take_a);
    array_unref(take_a);
    if (code == ERR_OK && !replied) {
        s->first_want = s->count < FIRST_BLOCK ? (size_t)s->count : FIRST_BLOCK;
        s->first = s->first_want ? arena_alloc(req->arena, s->first_want) : NULL;
        if (s->first_want && !s->first)
            code = err_oom(&e);
    }
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else if (!replied)
        first_block(req);
}
