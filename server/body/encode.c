/* The elements are fetched whole into the request's memory, then printed. For a small result of
 * small work both happen at once, on the request's thread: no wait, no second buffer. A worker
 * prints large lists only, so that they do not delay other requests. */
#include "server/body/encode.h"

#include <string.h>

#include "protocol/json/json_writer.h"
#include "protocol/number/numlist.h"
#include "server/body/data.h"
#include "server/http/wakeup.h"

#define OFFLOAD_ELEMENTS 8192
#define TYPICAL_ELEMENT  11 /* bytes of text, to size the buffer once */

struct encoding {
    struct wakeup wakeup;
    struct download *download;
    enum dtype dtype;
    struct view view; /* contiguous */
    unsigned char *bytes;
    size_t n, have;
    bool waited;
};

static void encoding_free(void *state)
{
    struct encoding *s = state;
    if (s->download)
        download_free(s->download);
    s->download = NULL;
}

void encode_put(struct json_writer *w, enum dtype dtype, const struct view *v, const void *bytes)
{
    json_open_object(w);
    json_put_member_string(w, "dtype", dtype_name(dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)v->rank, v->shape);
    if (v->rank == 0) {
        struct scalar value = {.dtype = dtype};
        memcpy(&value.v, bytes, dtype_size(dtype));
        json_put_key(w, "value");
        json_put_scalar(w, &value);
    } else {
        json_put_key(w, "data");
        numlist_add(w->out, dtype, v, bytes);
        w->comma = true;
    }
    json_close_object(w);
}

static void print(struct request *req)
{
    struct encoding *s = req->state;
    struct strb out = {0};
    int64_t elements = view_size(&s->view);
    strb_reserve(&out, (size_t)elements * TYPICAL_ELEMENT + 128);
    struct json_writer w = JSON_WRITER(&out);
    encode_put(&w, s->dtype, &s->view, s->bytes);
    http_reply_json(req, 200, &out);
}

static void fetch(struct request *req)
{
    struct encoding *s = req->state;
    struct err e = ERR_INIT;
    while (s->have < s->n) {
        wakeup_arm(&s->wakeup);
        uint64_t begun = clock_ns();
        int64_t got =
            download_pull(s->download, (int64_t)s->have, s->bytes + s->have, s->n - s->have);
        if (got < 0) {
            data_error(s->download, &e);
            http_reply_error(req, &e);
            return;
        }
        if (got == 0) {
            if (!s->waited && wakeup_soon(&s->wakeup))
                continue;
            s->waited = true;
            wakeup_wait(&s->wakeup, fetch);
            return;
        }
        http_took(&req->t_copy, begun);
        s->have += (size_t)got;
    }
    if (s->download)
        data_times(req, s->download, true);
    if (view_size(&s->view) > OFFLOAD_ELEMENTS)
        http_offload(req, print);
    else
        print(req);
}

void encode_reply(struct request *req, struct engine_stream *stream, struct array *take_a)
{
    struct err e = ERR_INIT;
    struct encoding *s = arena_alloc(req->arena, sizeof *s);
    enum err_code code = s ? ERR_OK : err_oom(&e);
    if (code == ERR_OK) {
        wakeup_init(&s->wakeup, req);
        req->state = s;
        req->state_free = encoding_free;
        s->dtype = take_a->dtype;
        s->n = (size_t)array_nbytes(take_a);
        code = view_contiguous(take_a->view.rank, take_a->view.shape, dtype_size(s->dtype),
                               &s->view, &e);
    }
    if (code == ERR_OK && s->n) {
        s->bytes = arena_alloc(req->arena, s->n);
        code = s->bytes ? download_new(stream, take_a, wakeup_ring, &s->wakeup, &s->download, &e)
                        : err_oom(&e);
    }
    array_unref(take_a);
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else
        fetch(req);
}
