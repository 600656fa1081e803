/* String builder with a sticky error: append freely, look once at the end. Owned by the caller; not
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

/* Makes room for n more bytes and returns where to write them (advance with b->len), or NULL. */
char *strb_reserve(struct strb *b, size_t n);

/* The text, now owned by the caller (mem_free); NULL when the builder failed. Leaves it empty. */
char *strb_take(struct strb *b, size_t *ret_len);

#define _cleanup_strb_ __attribute__((cleanup(strb_free)))

#endif
