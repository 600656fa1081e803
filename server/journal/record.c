/* A reader goes from record to record. Where none begins although the log continues, it looks for
 * the next front; the record before that is then found from its back. Behind the log's end only the
 * very next record counts, which was written as the writer died: all else there is of another time.
 */
#include "server/journal/record.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FRONT 0x4a46u /* "FJ" */
#define BACK  0x4a42u /* "BJ" */

struct head {
    uint16_t magic, count;
    uint32_t directory_n; /* bytes */
    uint64_t values_n;
    uint64_t seq;
    uint64_t sum; /* of what precedes it, the magic aside, and of the directory */
};

/* An entry of the directory; its key follows, padded. */
struct told {
    uint8_t kind, removed, key_len, unused[5];
    uint64_t n, sum;
};

static size_t directory_size(const struct record_item *items, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += sizeof(struct told) + record_padded(items[i].key_len);
    return size;
}

static size_t values_size(const struct record_item *items, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += items[i].value ? record_padded(items[i].n) : 0;
    return size;
}

size_t record_size(const struct record_item *items, size_t n)
{
    return 2 * (sizeof(struct head) + directory_size(items, n)) + values_size(items, n);
}

static uint64_t head_sum(const struct head *h, const char *directory, uint64_t salt)
{
    uint64_t seed = salt ^ h->seq * 0x9e3779b97f4a7c15u ^ h->values_n << 16 ^ h->count;
    return XXH3_64bits_withSeed(directory, h->directory_n, seed);
}

size_t record_values_at(const struct record_item *items, size_t n)
{
    return sizeof(struct head) + directory_size(items, n);
}

void record_write(char *to, uint64_t salt, uint64_t seq, const struct record_item *items, size_t n)
{
    struct head h = {.magic = FRONT,
                     .count = (uint16_t)n,
                     .directory_n = (uint32_t)directory_size(items, n),
                     .values_n = values_size(items, n),
                     .seq = seq};
    char *directory = to + sizeof h, *values = directory + h.directory_n;
    char *again = values + h.values_n;
    char *d = directory, *v = values;
    assert(n > 0 && n <= RECORD_ITEMS_MOST);
    for (size_t i = 0; i < n; i++) {
        const struct record_item *x = &items[i];
        struct told t = {x->kind, !x->value, (uint8_t)x->key_len, {0}, x->value ? x->n : 0, 0};
        assert(x->key_len > 0 && x->key_len <= RECORD_KEY_MOST);
        if (x->value) {
            memcpy(v, x->value, x->n);
            t.sum = XXH3_64bits(x->value, x->n);
            v += record_padded(x->n);
        }
        memcpy(d, &t, sizeof t);
        memcpy(d + sizeof t, x->key, x->key_len);
        d += sizeof t + record_padded(x->key_len);
    }
    h.sum = head_sum(&h, directory, salt);
    memcpy(again, directory, h.directory_n);
    h.magic = BACK;
    memcpy(again + h.directory_n, &h, sizeof h);
    h.magic = FRONT;
    uint64_t first;
    memcpy(&first, &h, sizeof first);
    memcpy(to + sizeof first, (char *)&h + sizeof first, sizeof h - sizeof first);
    atomic_store_explicit((_Atomic uint64_t *)to, first, memory_order_release);
}

/* --- reading --- */

/* Whether the directory holds `count` entries, and the values their bytes. */
static bool adds_up(const struct head *h, const char *directory)
{
    size_t at = 0, values = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        struct told t;
        if (h->directory_n - at < sizeof t)
            return false;
        memcpy(&t, directory + at, sizeof t);
        size_t entry = sizeof t + record_padded(t.key_len);
        if (t.key_len == 0 || t.n > RECORD_VALUE_MOST || h->directory_n - at < entry)
            return false;
        at += entry;
        values += record_padded(t.n);
    }
    return at == h->directory_n && values == h->values_n;
}

static bool fits(const struct head *h, size_t within)
{
    const size_t frame = 2 * (sizeof *h + (size_t)h->directory_n);
    return h->count > 0 && frame <= within && h->values_n <= within - frame;
}

/* The record that begins there, if its front is undamaged. */
static bool from_front(const struct record_reader *r, size_t at, struct record *ret, uint64_t *seq,
                       size_t *ret_size)
{
    struct head h;
    if (r->size - at < sizeof h)
        return false;
    memcpy(&h, r->log + at, sizeof h);
    const char *directory = r->log + at + sizeof h;
    if (h.magic != FRONT || !fits(&h, r->size - at) || h.sum != head_sum(&h, directory, r->salt) ||
        !adds_up(&h, directory))
        return false;
    *ret = (struct record){directory, directory + h.directory_n, h.count, at, h.values_n};
    *seq = h.seq;
    *ret_size = 2 * (sizeof h + h.directory_n) + h.values_n;
    return true;
}

/* The record that ends there and begins at `from` or behind it, if its back is undamaged. */
static bool from_back(const struct record_reader *r, size_t end, size_t from, struct record *ret,
                      uint64_t *seq)
{
    struct head h;
    if (end - from < sizeof h)
        return false;
    memcpy(&h, r->log + end - sizeof h, sizeof h);
    if (h.magic != BACK || !fits(&h, end - from))
        return false;
    const char *directory = r->log + end - sizeof h - h.directory_n;
    if (h.sum != head_sum(&h, directory, r->salt) || !adds_up(&h, directory))
        return false;
    *ret = (struct record){directory, directory - h.values_n, h.count,
                           (size_t)(directory - h.values_n - h.directory_n - sizeof h - r->log),
                           h.values_n};
    *seq = h.seq;
    return true;
}

/* Where the next record with an undamaged front begins, else where the log ends. */
static size_t find_next(const struct record_reader *r, size_t at)
{
    struct record found;
    uint64_t seq;
    size_t size, stop = r->end < r->size ? r->end : r->size;
    for (at += 8; at < stop; at += 8)
        if (from_front(r, at, &found, &seq, &size) && seq > r->seq)
            return at;
    return stop;
}

bool record_next(struct record_reader *r, struct record *ret)
{
    uint64_t seq;
    size_t size;
    while (r->at < r->size) {
        if (from_front(r, r->at, ret, &seq, &size) &&
            (r->at < r->end ? seq > r->seq : seq == r->seq + 1)) {
            r->missing |= seq != r->seq + 1;
            r->seq = seq;
            r->at += size;
            return true;
        }
        if (r->at >= r->end)
            return false;
        size_t from = r->at, next = find_next(r, from);
        r->at = next;
        if (from_back(r, next, from, ret, &seq) && seq > r->seq) {
            r->missing |= ret->at != from || seq != r->seq + 1;
            r->damaged++;
            r->seq = seq;
            return true;
        }
        if (next >= r->size && r->end == SIZE_MAX)
            return false; /* nothing but what was being written when the writer died */
        r->damaged++;
        r->missing = true;
    }
    r->missing |= r->end != SIZE_MAX && r->end > r->size;
    return false;
}

void record_item(const struct record *r, size_t cursor[2], struct record_item *ret, bool *ret_whole)
{
    struct told t;
    memcpy(&t, r->directory + cursor[0], sizeof t);
    const char *value = r->values + cursor[1];
    *ret = (struct record_item){.kind = t.kind,
                                .key = r->directory + cursor[0] + sizeof t,
                                .key_len = t.key_len,
                                .value = t.removed ? NULL : value,
                                .n = t.n};
    *ret_whole = t.removed || XXH3_64bits(value, t.n) == t.sum;
    cursor[0] += sizeof t + record_padded(t.key_len);
    cursor[1] += record_padded(t.n);
}

enum err_code record_check(const struct record_item *items, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (items[i].value && items[i].n > RECORD_VALUE_MOST)
            return err_set(e, ERR_OUT_OF_MEMORY,
                           "the journal takes at most %zu bytes of one value, not %zu",
                           RECORD_VALUE_MOST, items[i].n);
    return ERR_OK;
}
