/* Deflated chunks on several threads. libhdf5 does one thing at a time; but it gives chunks as they
 * lie in the file, and their decompression, which takes nearly all of the time, is zlib's. So this
 * thread reads some chunks, and the crew decompresses them and puts their elements where they
 * belong. What is not simply shuffled and deflated elements of this machine's order is left to the
 * library: whole variables, or single chunks that were never written or that skipped a filter.
 */
#include <string.h>
#include <zlib.h>

#include "compute/base/mem.h"
#include "server/reader/crew.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

#define SMALL_CHUNKS (1 << 12) /* bytes: below, to wake a thread takes longer */

struct slot {
    z_stream zip;
    unsigned char *raw, *whole; /* as in the file, and its elements */
    size_t n;                   /* bytes of raw */
    int64_t first[MAX_RANK];    /* of the region, by index: the elements that lie in it */
    int64_t count[MAX_RANK];
    int64_t at[MAX_RANK]; /* of the chunk's first element, in the file */
};

static struct {
    int slots;
    size_t raw_room, whole_room;
    struct slot slot[CREW_WORK];
    /* the work at hand */
    const struct variable *v;
    const struct region *r;
    unsigned char *to;
} self;

/* Elements i, i + step, … of n in all, whose first bytes come first, then their second ones, … */
static inline void unshuffle(const unsigned char *from, int64_t n, size_t size, int64_t i,
                             int64_t step, int64_t count, unsigned char *to)
{
    for (int64_t k = 0; k < count; k++, i += step)
        for (size_t b = 0; b < size; b++)
            to[(size_t)k * size + b] = from[(size_t)n * b + (size_t)i];
}

static void copy_row(const struct hdf5_variable *own, const unsigned char *whole, int64_t n,
                     size_t size, int64_t i, int64_t step, int64_t count, unsigned char *to)
{
    if (own->shuffled && size == 4)
        unshuffle(whole, n, 4, i, step, count, to);
    else if (own->shuffled && size == 8)
        unshuffle(whole, n, 8, i, step, count, to);
    else if (own->shuffled && size == 2)
        unshuffle(whole, n, 2, i, step, count, to);
    else if (own->shuffled && size > 1)
        unshuffle(whole, n, size, i, step, count, to);
    else if (step == 1)
        memcpy(to, whole + (size_t)i * size, (size_t)count * size);
    else
        for (int64_t k = 0; k < count; k++)
            memcpy(to + (size_t)k * size, whole + (size_t)(i + k * step) * size, size);
}

static void place(const struct slot *s)
{
    const struct variable *v = self.v;
    const struct region *r = self.r;
    size_t size = dtype_size(v->dtype);
    int last = r->rank - 1;
    int64_t n = (int64_t)(self.whole_room / size), i[MAX_RANK] = {0}, rows = 1;
    for (int d = 0; d < last; d++)
        rows *= s->count[d];
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = 0, to = 0;
        for (int d = 0; d <= last; d++) {
            int64_t index = s->first[d] + i[d];
            from = from * v->chunks[d] + r->start[d] + index * r->step[d] - s->at[d];
            to = to * r->count[d] + index;
        }
        copy_row(v->own, s->whole, n, size, from, r->step[last], s->count[last],
                 self.to + (size_t)to * size);
        for (int d = last - 1; d >= 0 && ++i[d] == s->count[d]; d--)
            i[d] = 0;
    }
}

static bool unpack(int i)
{
    struct slot *s = &self.slot[i];
    if (inflateReset(&s->zip) != Z_OK)
        return false;
    s->zip.next_in = s->raw;
    s->zip.avail_in = (uInt)s->n;
    s->zip.next_out = s->whole;
    s->zip.avail_out = (uInt)self.whole_room;
    if (inflate(&s->zip, Z_FINISH) != Z_STREAM_END || s->zip.avail_out != 0)
        return false;
    place(s);
    return true;
}

/* Slots for chunks of these sizes; false if they would take more than `memory`. */
static bool prepare(size_t raw, size_t whole, int64_t memory)
{
    int slots = crew_work();
    while (slots > 1 && (int64_t)(raw + whole) > memory / slots)
        slots--;
    if ((int64_t)(raw + whole) > memory / slots)
        return false;
    for (int i = 0; i < CREW_WORK; i++) {
        struct slot *s = &self.slot[i];
        if (i >= slots || raw > self.raw_room || whole != self.whole_room) {
            mem_free(s->raw);
            mem_free(s->whole);
            s->raw = s->whole = NULL;
        }
        if (i >= slots || s->raw)
            continue;
        s->raw = must_alloc(raw);
        s->whole = must_alloc(whole);
        if (!s->zip.state && inflateInit(&s->zip) != Z_OK)
            stop_oom();
    }
    self.raw_room = raw;
    self.whole_room = whole;
    self.slots = slots;
    return true;
}

static void unpack_all(int n)
{
    if (!crew_run(n, unpack))
        stop(WIRE_BAD_FILE, "a chunk of '%s' cannot be decompressed", self.v->name);
}

/* Fills the slot; false if the library has to read this chunk. */
static bool load(hid_t dataset, struct slot *s)
{
    hsize_t at[MAX_RANK], bytes = 0;
    uint32_t skipped = 0;
    for (int d = 0; d < self.r->rank; d++)
        at[d] = (hsize_t)s->at[d];
    if (H5Dget_chunk_storage_size(dataset, at, &bytes) < 0 || bytes == 0 || bytes > self.raw_room)
        return false;
    s->n = (size_t)bytes;
    return H5Dread_chunk(dataset, H5P_DEFAULT, at, &skipped, s->raw) >= 0 && skipped == 0;
}

/* The region's elements that lie in the chunk of this index; false if none do. */
static bool cut(const struct variable *v, const struct region *r, const int64_t *index,
                struct slot *ret)
{
    for (int d = 0; d < r->rank; d++) {
        int64_t begin = index[d] * v->chunks[d], step = r->step[d];
        int64_t first = begin <= r->start[d] ? 0 : (begin - r->start[d] + step - 1) / step;
        int64_t end = (begin + v->chunks[d] - r->start[d] + step - 1) / step;
        end = end < r->count[d] ? end : r->count[d];
        if (end <= first)
            return false;
        ret->at[d] = begin;
        ret->first[d] = first;
        ret->count[d] = end - first;
    }
    return true;
}

bool hdf5_read_chunks(hid_t dataset, const struct variable *v, const struct region *r, void *to,
                      const struct reader_limits *limits)
{
    const struct hdf5_variable *own = v->own;
    size_t whole = dtype_size(v->dtype);
    if (!own->deflated || own->shorter || region_size(r) == 0)
        return false;
    for (int d = 0; d < v->rank; d++)
        if (__builtin_mul_overflow(whole, (size_t)v->chunks[d], &whole) || whole > INT32_MAX)
            return false;
    if (whole < SMALL_CHUNKS || !prepare(whole + whole / 8 + 1024, whole, limits->memory / 4))
        return false;
    self.v = v;
    self.r = r;
    self.to = to;
    int64_t index[MAX_RANK], first[MAX_RANK], last[MAX_RANK];
    for (int d = 0; d < r->rank; d++) {
        index[d] = first[d] = r->start[d] / v->chunks[d];
        last[d] = (r->start[d] + (r->count[d] - 1) * r->step[d]) / v->chunks[d];
    }
    int n = 0;
    for (bool more = true; more;) {
        struct slot *s = &self.slot[n];
        if (cut(v, r, index, s)) {
            if (load(dataset, s))
                n++;
            else
                hdf5_read_box(dataset, v, r, s->first, s->count, to);
        }
        int d = r->rank - 1;
        for (; d >= 0 && index[d]++ == last[d]; d--)
            index[d] = first[d];
        more = d >= 0;
        if (n == self.slots || (!more && n > 0)) {
            unpack_all(n);
            n = 0;
        }
    }
    return true;
}
