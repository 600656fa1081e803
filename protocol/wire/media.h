/* Media types: Content-Type and Accept as RFC 9110 reads them (parameters, q-values, specificity).
 *
 * Called by the handlers. Pure; thread-safe. */
#ifndef ARRAYD_MEDIA_H
#define ARRAYD_MEDIA_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/err.h"

enum media {
    MEDIA_NONE,   /* no Content-Type at all */
    MEDIA_OTHER,  /* well-formed, but none of ours */
    MEDIA_JSON,   /* application/json */
    MEDIA_OCTETS, /* application/octet-stream */
    MEDIA_NPY,    /* application/x-npy */
    MEDIA_PROBLEM,
    MEDIA_TEXT, /* text/plain */
    MEDIA_HTML,
    MEDIA_EVENTS, /* text/event-stream */
    MEDIA_PNG,    /* image/png */
    MEDIA_TIFF,   /* image/tiff */
    MEDIA_NPZ,    /* application/x-npz */
    MEDIA_NETCDF, /* application/x-netcdf */
    MEDIA_HDF5,   /* application/x-hdf5 */
    MEDIA_COUNT
};

const char *media_name(enum media m); /* "application/json"; NULL for NONE and OTHER */

/* A Content-Type header's value; NULL or empty gives MEDIA_NONE. ERR_UNSUPPORTED_MEDIA_TYPE when it
 * is malformed or names a charset other than UTF-8 for JSON or text. */
enum err_code media_content_type(const char *value, enum media *ret, struct err *e) must_check;

/* For JSON routes: ERR_UNSUPPORTED_MEDIA_TYPE (the detail suggests `curl --json`) unless the value
 * is application/json. */
enum err_code media_require_json(const char *content_type, struct err *e) must_check;

/* Chooses among the n types a route offers, its default first: the highest q wins, then the more
 * specific range, then the earlier offer. A missing or empty header accepts anything; elements that
 * are not media ranges are skipped. ERR_NOT_ACCEPTABLE with the available types. */
enum err_code media_negotiate(const char *accept, const enum media *offers, size_t n,
                              enum media *ret, struct err *e) must_check;

#endif
