/* Numbers as text and back, exactly: shortest round-trip printing, correctly rounded reading.
 * Independent of the locale.
 *
 * Called by the JSON reader and writer, the infix parser and the list formatter. Pure functions;
 * thread-safe. */
#ifndef ARRAYD_NUMTEXT_H
#define ARRAYD_NUMTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/type/dtype.h"

#define NUMTEXT_MAX 32 /* room for any one number */

/* Each writes at most NUMTEXT_MAX bytes (no NUL) and returns how many. Floats: the shortest digits
 * that read back as the same value of that type, the nearest among those, always with a point or an
 * exponent ("1.0", "1e22", "-0.0", "1.5e-7"); NaN, Infinity, -Infinity (no quotes). Halves are raw
 * bits. */
size_t numtext_f64(double v, char *buf);
size_t numtext_f32(float v, char *buf);
size_t numtext_f16(uint16_t bits, char *buf);
size_t numtext_bf16(uint16_t bits, char *buf);
size_t numtext_i64(int64_t v, char *buf);
size_t numtext_u64(uint64_t v, char *buf);

/* One element of dtype t at p (any alignment) as JSON: true/false, NaN and infinities quoted,
 * complex [re,im]. At most NUMTEXT_ELEM_MAX bytes. */
#define NUMTEXT_ELEM_MAX (2 * NUMTEXT_MAX + 3)
size_t numtext_elem(enum dtype t, const void *p, char *buf);

/* n float32 elements as numtext_elem writes them, separated by commas, at buf; returns the length.
 * Needs room for NUMTEXT_RUN_ELEM bytes an element and NUMTEXT_ELEM_MAX more. */
#define NUMTEXT_RUN_ELEM 18
size_t numtext_f32_run(const float *v, size_t n, char *buf);

/* n bytes of number text as JSON or Python write it, already known to be well-formed: an optional
 * sign, digits, at most one point (".5" and "5." included), an optional exponent. */
double numtext_parse_f64(const char *p, size_t n);

/* As numtext_parse_f64, but returns a midpoint of a narrower type only if the value is exactly that
 * (rounded to odd where that matters), so that rounding on to float32 or a half is right. */
double numtext_parse_odd(const char *p, size_t n);

/* Rounds v (from numtext_parse_odd, or exact) to f16, bf16 or f32 bits, half to even. */
uint16_t numtext_round_f16(double v);
uint16_t numtext_round_bf16(double v);

/* An optional minus sign and digits as an integer; false when it exceeds 127 bits. */
bool numtext_parse_int(const char *p, size_t n, __int128 *ret);

#endif
