/* Elements to be written, in chunks that the crew shuffles and deflates: libhdf5, which does one
 * thing at a time, is given chunks as they are to lie in the file. They are those of write_chunks,
 * whose elements follow one another in C order, so that each has the next ones that come; where an
 * axis ends within one, its rest is zeros. */
#include <string.h>
#include <zlib.h>

#include "compute/base/mem.h"
#include "server/reader/crew.h"
#include "server/reader/format.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

struct slot {
    unsigned char *whole, *shuffled, *packed;
    uLongf n;       /* bytes of packed */
    int64_t filled; /* elements of whole */
    hsize_t at[MAX_RANK];
};

static struct {
    struct slot slot[CREW_WORK];
    int slots, level;
    int64_t elements; /* of a chunk, */
    size_t size;      /* each of so many bytes */
} self;

/* All first bytes of n elements come first, then all second ones, … */
static inline void shuffle(const unsigned char *from, size_t n, size_t size, unsigned char *to)
{
    for (size_t b = 0; b < size; b++)
        for (size_t k = 0; k < n; k++)
            to[n * b + k] = from[k * size + b];
}

static void shuffle_chunk(const struct slot *s)
{
    const size_t n = (size_t)self.elements;
    switch (self.size) {
    case 2:
        shuffle(s->whole, n, 2, s->shuffled);
        break;
    case 4:
        shuffle(s->whole, n, 4, s->shuffled);
        break;
    case 8:
        shuffle(s->whole, n, 8, s->shuffled);
        break;
    default:
        shuffle(s->whole, n, self.size, s->shuffled);
    }
}

static bool pack(int i)
{
    struct slot *s = &self.slot[i];
    const size_t bytes = (size_t)self.elements * self.size, have = (size_t)s->filled * self.size;
    memset(s->whole + have, 0, bytes - have);
    shuffle_chunk(s);
    s->n = compressBound(bytes);
    return compress2(s->packed, &s->n, s->shuffled, bytes, self.level) == Z_OK;
}

static void pack_all(hid_t dataset, const struct variable *v, int n)
{
    if (!crew_run(n, pack))
        stop_oom(); /* the only reason of zlib's */
    for (int i = 0; i < n; i++)
        if (H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, self.slot[i].at, self.slot[i].n,
                           self.slot[i].packed) < 0)
            hdf5_stop("writing", v->name);
}

/* As many slots as keep the crew at work. */
static void prepare(void)
{
    const size_t bytes = (size_t)self.elements * self.size;
    self.slots = crew_work();
    for (int i = 0; i < self.slots; i++) {
        self.slot[i].whole = must_alloc(bytes);
        self.slot[i].shuffled = must_alloc(bytes);
        self.slot[i].packed = must_alloc(compressBound(bytes));
    }
}

static void release(void)
{
    for (int i = 0; i < self.slots; i++) {
        mem_free(self.slot[i].whole);
        mem_free(self.slot[i].shuffled);
        mem_free(self.slot[i].packed);
    }
}

/* The chunk that begins with the variable's element *at takes the next ones that come. */
static void fill(struct slot *s, const struct variable *v, int64_t size, int64_t *at)
{
    struct region box;
    const int64_t left = size - *at, end = *at + (left < self.elements ? left : self.elements);
    (void)span_next(v->rank, v->shape, at, end, &box);
    const int64_t most = region_size(&box);
    for (int d = 0; d < v->rank; d++)
        s->at[d] = (hsize_t)box.start[d];
    for (int64_t n = s->filled = 0; s->filled < most; s->filled += n) {
        const unsigned char *p = write_pull(most - s->filled, &n);
        memcpy(s->whole + (size_t)s->filled * self.size, p, (size_t)n * self.size);
    }
}

void hdf5_write_chunks(hid_t dataset, const struct variable *v, int level)
{
    self.size = dtype_size(v->dtype);
    self.level = level;
    self.elements = 1;
    for (int d = 0; d < v->rank; d++)
        self.elements *= v->chunks[d];
    prepare();
    int n = 0;
    for (int64_t at = 0, size = v->nbytes / (int64_t)self.size; at < size;) {
        fill(&self.slot[n++], v, size, &at);
        if (n == self.slots || at == size) {
            pack_all(dataset, v, n);
            n = 0;
        }
    }
    release();
}
