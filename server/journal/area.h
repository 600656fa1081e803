/* Memory with a descriptor (a memfd): it lives until the last process that holds the descriptor or
 * a mapping lets go of it. Pages are allocated as they are needed, and a lack of them is an error
 * instead of a SIGBUS.
 *
 * Called by journal.c. The caller owns the struct and locks it. */
#ifndef ARRAYD_JOURNAL_AREA_H
#define ARRAYD_JOURNAL_AREA_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/err.h"

struct area {
    int fd;
    char *at;     /* NULL: not mapped */
    size_t size;  /* bytes mapped */
    size_t ready; /* of them, from the start: with memory behind them */
};
#define AREA_NONE                                                                                  \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Zeros. `size` is only a promise: memory is taken by area_make_ready. ERR_OUT_OF_MEMORY. */
enum err_code area_new(const char *name, size_t size, struct area *ret, struct err *e) must_check;
/* Takes over a descriptor, which may be anything; maps what it holds, for reading. On failure the
 * descriptor is closed. ERR_STATE: it cannot be mapped. */
enum err_code area_adopt(int take_fd, struct area *ret, struct err *e) must_check;
/* Makes the first n bytes usable. ERR_OUT_OF_MEMORY. */
enum err_code area_make_ready(struct area *a, size_t n, struct err *e) must_check;
int area_duplicate(int fd); /* −1: no descriptor is left */
/* Returns memory behind the first n bytes to the system. */
void area_shorten(struct area *a, size_t n);
void area_close(struct area *a); /* the mapping and this process's descriptor */

#endif
