/* The device headers compute/kernels/, compiled into the daemon, in the form NVRTC takes.
 *
 * Called by compile.c, and by tests. All data is constant; a struct headers belongs to the caller.
 * Thread-safe. */
#ifndef ARRAYD_CUDA_HEADERS_H
#define ARRAYD_CUDA_HEADERS_H

#include "compute/base/err.h"

#define HEADERS_SCALAR "compute/kernels/scalar/scalar.h"

/* All headers whole, with the names as written in #include; returns how many. */
int headers_get(const char *const **ret_texts, const char *const **ret_names);

/* The headers for one source: all of them, of which "compute/kernels/scalar/scalar.h" holds only
 * the functions that the source needs. A function counts as needed when its full name (ar_ADD_F32)
 * occurs anywhere in the source or in a header it includes, also in a comment: a name made with ##
 * must therefore be mentioned in one. AR_SUBSET and AR_USE_… have no effect here. */
struct headers {
    int n;
    const char *const *names;
    const char **texts;
    char *scalar;
};
enum err_code headers_select(const char *source, struct headers *ret, struct err *e) must_check;
void headers_free(struct headers *h); /* also of a zeroed one */

#endif
