/* Reads elements of a view in host memory as bytes in C order. Called by transfer.c. Owns nothing;
 * as thread-safe as the memory. */
#ifndef ARRAYD_PACK_H
#define ARRAYD_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "compute/type/layout.h"

struct packing {
    struct view view;
    size_t itemsize;
    int64_t run; /* bytes of the innermost contiguous piece */
    int outer;   /* axes outside it */
};

struct packing packing_of(const struct view *v, size_t itemsize);

/* Writes up to n bytes from C-order byte `at` on, read from the buffer at `bytes`: the pieces along
 * the innermost non-contiguous axis, up to its end. Returns how many. */
int64_t packing_copy(const struct packing *p, const char *bytes, int64_t at, char *to, int64_t n);

#endif
