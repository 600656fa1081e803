/* Index strings, "1:-1, ::2, 3, None, ...": NumPy's basic indexing as text.
 *
 * Called by the handlers (`?index=`, `"index"`) and by infix.c for text in brackets. Pure;
 * thread-safe. layout.h (view_index) defines the meaning. */
#ifndef ARRAYD_INDEX_H
#define ARRAYD_INDEX_H

#include <stddef.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/type/layout.h"

/* Parses n bytes; an empty text is the index of everything, a trailing comma is allowed.
 * ERR_BAD_INDEX with the character offset: malformed, beyond 64 bits, more than INDEX_MAX_ITEMS. */
enum err_code index_parse(const char *text, size_t n, struct index_spec *ret,
                          struct err *e) must_check;

/* The same inside a longer text: reads up to (not including) the closing ']' and returns in
 * *ret_used how many bytes that was. An empty index is an error here. Offsets count from `text`. */
enum err_code index_scan(const char *text, size_t n, struct index_spec *ret, size_t *ret_used,
                         struct err *e) must_check;

/* The text of an index, canonical: "1:-1, ::2, None". */
void index_print(const struct index_spec *ix, struct strb *out);

#endif
