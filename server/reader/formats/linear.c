/* Small runs that lie close to each other go through a window of bytes that were read ahead; large
 * ones, and those far from the one before, around it. A file whose
 * first axis is the fastest is one whose axes are reversed, so that runs are taken in the order of
 * that file and their elements scattered. */
#include "server/reader/formats/linear.h"

#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/link.h"

#define NEAR 4096 /* bytes that are read in vain, at most, for each run */

static int64_t end_of(const struct linear *l)
{
    return l->data + l->head.nbytes;
}

/* n bytes from `offset` on; the window's are taken first, for a stream has passed them. */
static void fetch(struct linear *l, int64_t offset, unsigned char *to, size_t n)
{
    bool near = offset >= l->last && offset - l->last < NEAR;
    l->last = offset + (int64_t)n;
    while (n > 0) {
        if (offset >= l->window && offset < l->window + (int64_t)l->n) {
            size_t at = (size_t)(offset - l->window), take = l->n - at < n ? l->n - at : n;
            memcpy(to, l->bytes + at, take);
            to += take;
            offset += (int64_t)take;
            n -= take;
        } else if (n >= LINEAR_WINDOW || !near) {
            l->read(l, offset, to, n);
            return;
        } else {
            int64_t left = end_of(l) - offset;
            l->n = left < LINEAR_WINDOW ? (size_t)left : LINEAR_WINDOW;
            l->window = offset;
            l->read(l, offset, l->bytes, l->n);
        }
    }
}

struct variable *linear_open(struct content *c, struct linear *l, const char *name, int64_t total)
{
    struct npy_reader reader = {.want_bfloat16 = true};
    struct err e = ERR_INIT;
    bool done = false;
    struct variable *v = content_add(c, name);
    v->own = l;
    l->name = v->name;
    l->bytes = must_alloc(LINEAR_WINDOW);
    while (!done) {
        unsigned char part[512];
        size_t n = total - l->data < (int64_t)sizeof part ? (size_t)(total - l->data) : sizeof part;
        size_t used;
        if (n == 0)
            stop(WIRE_BAD_FILE, "'%s' ends within its header", name);
        l->read(l, l->data, part, n);
        if (npy_feed(&reader, part, n, &used, &done, &l->head, &e) != ERR_OK) {
            if (e.code == ERR_OUT_OF_MEMORY)
                stop_oom();
            variable_unread(c, v, "%s", e.message);
            npy_reader_free(&reader);
            return v;
        }
        l->data += (int64_t)used;
    }
    npy_reader_free(&reader);
    const struct npy_header *h = &l->head;
    v->dtype = (int)h->dtype;
    v->stored =
        content_printf(c, "%s%s%s", dtype_name(h->dtype), h->big_endian ? " big-endian" : "",
                       h->fortran_order ? ", the first axis fastest" : "");
    v->scattered = h->fortran_order;
    variable_shape(c, v, h->rank, h->shape);
    if (total - l->data != h->nbytes)
        stop(WIRE_BAD_FILE, "'%s' has %lld bytes of elements, but its header says %lld", name,
             (long long)(total - l->data), (long long)h->nbytes);
    return v;
}

/* The elements of a run to `to`, `apart` bytes from one to the next. */
static void read_run(struct linear *l, const struct run *run, unsigned char *to, size_t apart)
{
    size_t size = dtype_size(l->head.dtype);
    int64_t at = l->data + run->first * (int64_t)size;
    if (run->step == 1 && apart == size) {
        fetch(l, at, to, (size_t)run->count * size);
        return;
    }
    for (int64_t i = 0; i < run->count; i++)
        fetch(l, at + i * run->step * (int64_t)size, to + (size_t)i * apart, size);
}

void linear_read(struct linear *l, const struct region *r, void *to)
{
    const struct npy_header *h = &l->head;
    size_t size = dtype_size(h->dtype);
    struct runs runs;
    struct run run;
    unsigned char *p = to;
    if (!h->fortran_order) {
        runs_begin(r, h->shape, &runs);
        while (runs_next(&runs, &run)) {
            read_run(l, &run, p, size);
            p += (size_t)run.count * size;
        }
    } else {
        struct region turned = {.rank = r->rank};
        int64_t shape[MAX_RANK], apart[MAX_RANK], bytes = (int64_t)size, offset = 0;
        for (int d = r->rank - 1; d >= 0; d--) {
            int t = r->rank - 1 - d;
            turned.start[t] = r->start[d];
            turned.count[t] = r->count[d];
            turned.step[t] = r->step[d];
            shape[t] = h->shape[d];
            apart[t] = bytes; /* of the result, along this axis */
            bytes *= r->count[d];
        }
        runs_begin(&turned, shape, &runs);
        runs.inner =
            r->rank > 0 ? r->rank - 1 : 0; /* joined axes do not lie evenly in the result */
        int64_t i[MAX_RANK] = {0};
        while (runs_next(&runs, &run)) {
            read_run(l, &run, p + offset, r->rank ? (size_t)apart[r->rank - 1] : size);
            for (int d = r->rank - 2; d >= 0; d--) {
                offset += apart[d];
                if (++i[d] < turned.count[d])
                    break;
                offset -= turned.count[d] * apart[d];
                i[d] = 0;
            }
        }
    }
    size_t nbytes = (size_t)region_size(r) * size;
    if (h->big_endian)
        npy_swap(h->dtype, to, nbytes);
    for (size_t i = 0; h->dtype == DT_BOOL && i < nbytes; i++)
        p[i] = p[i] != 0;
}
