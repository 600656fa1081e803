/* Copies small two-dimensional pieces between strided memory and packed blocks.
 *
 * Called by the interpreter. Pure functions, thread-safe. Strides are in bytes and may be 0 or
 * negative; elements have 1, 2, 4, 8 or 16 bytes and are naturally aligned. */
#ifndef ARRAYD_CPU_ROWS_H
#define ARRAYD_CPU_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* dst[q][p] (packed) = element at src + p·sp + q·sq, for np × nq elements. */
void rows_gather(void *dst, const char *src, size_t itemsize, int64_t np, int64_t sp, int64_t nq,
                 int64_t sq);

/* The element at dst + p·sp + q·sq = src[q][p] (packed). */
void rows_scatter(char *dst, size_t itemsize, int64_t np, int64_t sp, int64_t nq, int64_t sq,
                  const void *src);

/* memcpy past the caches, for results larger than they are: the lines written are not read first.
 * Call rows_stream_end() before signalling another thread. */
void rows_stream(char *dst, const char *src, size_t bytes);
void rows_stream_end(void);

#endif
