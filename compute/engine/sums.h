/* Sums over the memory of arrays that nobody is using, noted where the next process finds them
 * (cells.h), so that it can tell whether a fault of the device changed them. engine_sums (engine.h)
 * begins, engine_sums_stop ends. */
#ifndef ARRAYD_SUMS_H
#define ARRAYD_SUMS_H

#include <stdint.h>

struct sums;

int64_t sums_made(const struct sums *s); /* so far */
void sums_free(struct sums *s);          /* once stopped; both NULL allowed */

#endif
