/* Text: a string builder, and UTF-8 characters.
 *
 * The builder has a sticky error: append freely, check once at the end. Owned by the caller; not
 * thread-safe. A zeroed struct is an empty builder. A large one is counted (meter.h). */
#ifndef ARRAYD_BASE_STRB_H
#define ARRAYD_BASE_STRB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/meter.h"

struct strb {
    char *data; /* NUL-terminated once anything was appended */
    size_t len, cap;
    bool failed; /* memory ran out: all appends since were dropped */
    struct metered counted;
};

void strb_free(struct strb *b);
void strb_reset(struct strb *b); /* length 0, keeps the memory */

void strb_add(struct strb *b, const char *s);
void strb_addn(struct strb *b, const char *s, size_t n);
void strb_addc(struct strb *b, char c);
void strb_addf(struct strb *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strb_add_i64(struct strb *b, int64_t v);
void strb_add_u64(struct strb *b, uint64_t v);

/* Reserves n more bytes and returns where to write them (advance with b->len), or NULL. */
char *strb_reserve(struct strb *b, size_t n);

/* The text, now owned by the caller (mem_free); NULL when the builder failed. Leaves it empty. */
char *strb_take(struct strb *b, size_t *ret_len);

#define _cleanup_strb_ __attribute__((cleanup(strb_free)))

/* UTF-8 */

/* Length (1 to 4) of the character at p, if it lies within n bytes; 0 if those bytes are not a
 * character. For a NUL-terminated text, n may exceed its length. */
static inline size_t utf8_length(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4)
        return 0;
    size_t length = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    if (n < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xF0 && u[1] < 0x90);
    bool surrogate = u[0] == 0xED && u[1] > 0x9F, beyond = u[0] == 0xF4 && u[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : length;
}

static inline bool utf8_valid(const char *p, size_t n)
{
    for (size_t i = 0, length; i < n; i += length) {
        length = utf8_length(p + i, n - i);
        if (length == 0)
            return false;
    }
    return true;
}

#endif
