/* The JSON body of a create request, without the array data: the creator and its parameters.
 *
 * Called by handlers_create.c. Memory is the request's arena; pure but for looking up arrays. */
#ifndef ARRAYD_SERVER_CREATE_JSON_H
#define ARRAYD_SERVER_CREATE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/engine/engine.h"
#include "protocol/json/json.h"
#include "server/store/session.h"
#include "server/store/share.h"

enum creator {
    CREATE_ZEROS,
    CREATE_FILL,
    CREATE_DATA,
    CREATE_ARANGE,
    CREATE_LINSPACE,
    CREATE_EYE,
    CREATE_RANDOM
};

struct create_spec {
    enum creator creator; /* "like" is zeros with the shape and dtype of another array */
    int dtype;            /* -1: by content (CREATE_DATA only) */
    bool has_shape;
    int rank;
    int64_t shape[MAX_RANK];
    struct scalar fill;
    struct literal start, stop, step; /* arange, linspace */
    int64_t num;
    bool endpoint;
    int64_t n, m, k; /* eye */
    struct random_spec random;
    int64_t alignment; /* bytes; 0: not given */
    bool has_grid;
    struct grid grid;
    bool congruent; /* grid.padded is copied from another array */
    struct json body;
};

/* Checks the whole body and resolves defaults. `from`: where `like` and `congruent_to` find their
 * array. `has_data`: there was a "data" member. Every error has its place. */
enum err_code create_spec_read(struct json body, bool has_data, const struct array_scope *from,
                               struct create_spec *ret, struct err *e) must_check;

/* For CREATE_DATA, when shape and dtype are known: the checks of the grid that create_spec_read
 * makes for other creators. */
enum err_code create_spec_grid(struct create_spec *spec, enum dtype t, int rank,
                               const struct array_scope *from, struct err *e) must_check;
/* Gives the array the grid that the body specifies; takes the caller's reference. */
enum err_code create_spec_embed(const struct create_spec *spec, struct session *session,
                                struct array *take_a, struct array **ret, struct err *e) must_check;

/* Makes the array (not for CREATE_DATA). Queues work and returns at once. */
enum err_code create_spec_run(const struct create_spec *spec, struct session *session,
                              struct array **ret, struct err *e) must_check;

/* ERR_SHAPE_MISMATCH at "/shape" unless the shape given, if one was, is this one. */
enum err_code create_spec_shape(const struct create_spec *spec, int rank, const int64_t *shape,
                                struct err *e) must_check;

#endif
