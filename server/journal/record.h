/* Records of the journal's log: each sets or removes some keys together.
 *
 *     front | directory | values | directory | back
 *
 * Front and back are the same head, which has a checksum of itself and the directory; the
 * directory names each item's kind, key, and its value's length and checksum. So a record that is
 * damaged in one place still tells which keys it had, and which values may be wrong. All parts
 * begin at multiples of 8 bytes; numbers are in the machine's order, since the log never leaves the
 * machine's memory.
 *
 * Called by journal.c; pure. Sums are XXH3 (xxHash 0.8, 64 bits), those of heads with the log's
 * salt as their seed: a random number, so that no bytes of a client's are taken for a record. */
#ifndef ARRAYD_JOURNAL_RECORD_H
#define ARRAYD_JOURNAL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

#define RECORD_KEY_MOST   255
#define RECORD_VALUE_MOST ((size_t)64 << 20)
#define RECORD_ITEMS_MOST 65535

struct record_item {
    uint8_t kind;      /* the caller's */
    const char *key;   /* unique within its kind; need not end with NUL */
    size_t key_len;    /* 1 … RECORD_KEY_MOST */
    const void *value; /* NULL: the key is removed */
    size_t n;          /* bytes of value, at most RECORD_VALUE_MOST */
};

/* A reader takes longer values for damage. ERR_OUT_OF_MEMORY. */
enum err_code record_check(const struct record_item *items, size_t n, struct err *e) must_check;
size_t record_size(const struct record_item *items, size_t n);
/* Where the values begin in such a record; each is followed by as many zeros as make its length a
 * multiple of 8. */
size_t record_values_at(const struct record_item *items, size_t n);
static inline size_t record_padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}
/* Writes record number `seq` to `to`: record_size bytes, 8-byte aligned, which may hold records of
 * another salt. Its first eight bytes are written last: before that there is no record. */
void record_write(char *to, uint64_t salt, uint64_t seq, const struct record_item *items, size_t n);

/* Reads the records of a log in order. */
struct record_reader {
    const char *log; /* 8-byte aligned; the record with number 1 is at its start */
    uint64_t salt;   /* as it was written with */
    size_t size;     /* bytes that may be read */
    size_t end;      /* where the log ended, as its writer said; SIZE_MAX: that is not known */
    size_t at;       /* set by the reader */
    uint64_t seq;
    /* found so far: records with a damaged part; whether any cannot be told at all, or the last
     * ones are missing, so that what earlier records say of any key may be out of date */
    uint32_t damaged;
    bool missing;
};
struct record {
    const char *directory, *values;
    uint32_t count; /* items */
    size_t at, values_n;
};
/* The next record that is undamaged or whose directory is known; false at the end. */
bool record_next(struct record_reader *r, struct record *ret);
/* The next of the record's items: call it `count` times, with *cursor 0 first. *ret_whole: the
 * value is as it was written (or was removed); otherwise it is not to be used. ret->value points
 * into the log. */
void record_item(const struct record *r, size_t cursor[2], struct record_item *ret,
                 bool *ret_whole);

#endif
