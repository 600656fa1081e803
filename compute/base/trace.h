/* ARRAYD_TRACE=expr,ir,emit,nvrtc,cache,launch: prints what a stage produced to standard error, for
 * debugging arrayd itself. Read once from the environment at first use. Thread-safe. */
#ifndef ARRAYD_BASE_TRACE_H
#define ARRAYD_BASE_TRACE_H

#include <stdbool.h>
#include <stddef.h>

enum trace_key { TRACE_EXPR, TRACE_IR, TRACE_EMIT, TRACE_NVRTC, TRACE_CACHE, TRACE_LAUNCH };

bool trace_on(enum trace_key key);

/* Writes "[key] text\n" (text may have several lines) when the key is on. */
void trace_write(enum trace_key key, const char *text, size_t len);

#endif
