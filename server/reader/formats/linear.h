/* Elements that lie in a file one after another, as in .npy, also if the first axis is the fastest.
 *
 * Called by npy and npz. Owned by the caller; one at a time. */
#ifndef ARRAYD_READER_LINEAR_H
#define ARRAYD_READER_LINEAR_H

#include "protocol/wire/npy.h"
#include "server/reader/content.h"
#include "server/reader/pieces.h"

#define LINEAR_WINDOW (64 << 10)

struct linear {
    /* All n bytes from `offset` on, or the end of the process. Offsets do not go back within one
     * region. */
    void (*read)(struct linear *l, int64_t offset, void *to, size_t n);
    const char *name;
    struct npy_header head;
    int64_t data;   /* where the elements begin */
    int64_t last;   /* where the last run ended */
    int64_t window; /* offset of bytes[0], of which n are there */
    size_t n;
    unsigned char *bytes;
};

/* Reads the header from the offset 0 on, and makes of it a variable of `total` bytes, header
 * included; one whose header cannot be used is UNREAD. BAD_FILE if it promises more than there is.
 */
struct variable *linear_open(struct content *c, struct linear *l, const char *name, int64_t total);
void linear_read(struct linear *l, const struct region *r, void *to);

#endif
