/* The request "read": a region goes piece by piece into slabs. A piece that fits a slab and is not
 * to be decoded is read into it directly; else it goes through a buffer, which is as large as the
 * chunks of the file demand, for each to be decompressed once and for all threads to have some, or
 * as the memory allows. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/cf.h"
#include "server/reader/crew.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

static void parse_list(struct json request, const char *name, int rank, int64_t *ret)
{
    struct json list = json_member(request, name);
    if (!json_given(list))
        return;
    struct err e = ERR_INIT;
    size_t n = 0;
    int64_t lo = strcmp(name, "step") == 0 ? 1 : 0;
    if (json_get_i64_list(list, MAX_RANK, lo, INT64_MAX, ret, &n, &e) != ERR_OK)
        stop(WIRE_BAD_REQUEST, "%s: %s", name, e.message);
    if ((int)n != rank)
        stop(WIRE_BAD_REQUEST, "%s has %zu numbers, but the variable has %d axes", name, n, rank);
}

static void parse_region(struct json request, const struct variable *v, struct region *ret)
{
    *ret = (struct region){.rank = v->rank};
    for (int d = 0; d < MAX_RANK; d++) {
        ret->step[d] = 1;
        ret->count[d] = -1;
    }
    parse_list(request, "start", v->rank, ret->start);
    parse_list(request, "step", v->rank, ret->step);
    parse_list(request, "count", v->rank, ret->count);
    for (int d = 0; d < v->rank; d++) {
        int64_t start = ret->start[d], step = ret->step[d], length = v->shape[d];
        if (start > length)
            stop(WIRE_BAD_REQUEST, "start is beyond the variable's axis %d", d);
        int64_t most = start == length ? 0 : (length - start - 1) / step + 1;
        if (ret->count[d] < 0)
            ret->count[d] = most;
        if (ret->count[d] > most)
            stop(WIRE_BAD_REQUEST, "the region is beyond the variable's axis %d", d);
        if (ret->count[d] <= 1)
            ret->step[d] = 1; /* a step to nowhere may be any number */
    }
}

static void send_head(enum dtype dtype, const struct region *r)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    json_open_object(&w);
    json_put_member_string(&w, "dtype", dtype_name(dtype));
    json_put_key(&w, "shape");
    json_put_i64_list(&w, (size_t)r->rank, r->count);
    int64_t nbytes;
    if (__builtin_mul_overflow(region_size(r), (int64_t)dtype_size(dtype), &nbytes))
        stop(WIRE_TOO_LARGE, "the decoded elements have more than 2^63 bytes");
    json_put_member_i64(&w, "nbytes", nbytes);
    json_close_object(&w);
    link_send(&text);
}

/* Elements that lie in a buffer, as slabs. */
static void send_elements(const struct cf *cf, size_t in, size_t out, int64_t n,
                          const unsigned char *p)
{
    int64_t room = (int64_t)(link_slab_bytes() / out);
    for (int64_t at = 0; at < n;) {
        int64_t take = n - at < room ? n - at : room;
        unsigned char *slab = link_slab();
        if (cf)
            cf_decode(cf, take, p + (size_t)at * in, slab);
        else
            memcpy(slab, p + (size_t)at * in, (size_t)take * in);
        link_filled((size_t)take * out);
        at += take;
    }
}

/* Pieces as small as will do, of a slab's size at least. */
static void plan_buffer(const struct variable *v, const struct region *r, int64_t slab,
                        int64_t most, struct pieces *ret)
{
    int64_t size = (int64_t)dtype_size(v->dtype), again, want = slab;
    int64_t chunk = size * crew_size();
    for (int d = 0; d < v->rank && v->chunked; d++)
        if (__builtin_mul_overflow(chunk, v->chunks[d], &chunk))
            chunk = INT64_MAX;
    if (v->scattered)
        want = most; /* all of the file is read for each piece */
    else if (v->chunked)
        want = chunk > want ? chunk : want;
    want = want < most ? want : most > slab ? most : slab;
    for (;; want = want > most / 2 ? most : want * 2) {
        pieces_plan(r, v->chunked ? v->chunks : NULL, size, want, ret, &again);
        if (again == 1 || want >= most)
            return;
    }
}

void request_read(const struct format *f, struct content *c, const struct reader_limits *limits,
                  struct json request)
{
    struct err e = ERR_INIT;
    const char *name;
    bool decode = true;
    struct json wanted = json_member(request, "decode");
    if (json_get_string(json_member(request, "variable"), &name, NULL, &e) != ERR_OK ||
        (json_given(wanted) && json_get_bool(wanted, &decode, &e) != ERR_OK))
        stop(WIRE_BAD_REQUEST, "read: %s", e.message);
    struct variable *v = content_find(c, name);
    if (!v)
        stop(WIRE_NOT_FOUND, "the file has no variable '%s'", name);
    if (v->dtype == UNREAD || v->why)
        stop(WIRE_UNSUPPORTED, "'%s' is not read: %s", name, v->why);
    struct region r;
    parse_region(request, v, &r);
    struct cf cf;
    decode = decode && cf_plan(v, &cf);
    enum dtype dtype = decode ? cf.dtype : (enum dtype)v->dtype;
    size_t in = dtype_size(v->dtype), out = dtype_size(dtype);
    send_head(dtype, &r);

    const int64_t *chunks = v->chunked ? v->chunks : NULL;
    int64_t slab = (int64_t)link_slab_bytes(), again = 1, n = 0;
    struct pieces pieces;
    pieces_plan(&r, chunks, (int64_t)in, slab, &pieces, &again);
    bool direct = !decode && again == 1 && !v->scattered;
    _cleanup_free_ unsigned char *buffer = NULL;
    if (!direct) {
        plan_buffer(v, &r, slab, limits->memory / 2, &pieces);
        int64_t largest = pieces.rows;
        for (int d = pieces.axis + 1; d < r.rank; d++)
            largest *= r.count[d];
        buffer = must_alloc((size_t)(largest ? largest : 1) * in);
    }
    struct region piece;
    while (pieces_next(&pieces, &piece, &n)) {
        unsigned char *to = direct ? link_slab() : buffer;
        f->read(c, v, &piece, to);
        if (direct)
            link_filled((size_t)n * in);
        else
            send_elements(decode ? &cf : NULL, in, out, n, buffer);
    }
    link_done();
}
