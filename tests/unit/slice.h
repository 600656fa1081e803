/* Which of many similar cases a check takes: one in so many, from another on each time. All of them
 * where ARRAYD_SLICE, any number, is not set, or with ARRAYD_LONG. Included once, hence static. */
#ifndef ARRAYD_TESTS_SLICE_H
#define ARRAYD_TESTS_SLICE_H

#include <stdlib.h>

static inline int slice_step(int n)
{
    return getenv("ARRAYD_SLICE") && !getenv("ARRAYD_LONG") ? n : 1;
}

/* The first case, < step. */
static inline int slice_from(int step)
{
    const char *slice = getenv("ARRAYD_SLICE");
    return slice ? (int)(strtoul(slice, NULL, 10) % (unsigned)step) : 0;
}

#endif
