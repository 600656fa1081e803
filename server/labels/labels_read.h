/* Labels in the body of a request: the members "attrs", "coords", "dims" and "units".
 *
 * A body is read without knowing the array, which may not exist yet; labels_make then joins it with
 * what the array has. Called by server/body and, for labels_make, by handles.c. Memory is the
 * arena's; pure but for looking up arrays. */
#ifndef ARRAYD_SERVER_LABELS_READ_H
#define ARRAYD_SERVER_LABELS_READ_H

#include "compute/base/arena.h"
#include "compute/type/layout.h"
#include "server/labels/labels.h"
#include "server/server.h"

#define LABEL_MEMBERS_MOST                                                                         \
    1000 /* of attrs, and of coords: each old one is looked for in the body */

/* An array as a coordinate. */
struct label_array {
    char id[ID_SIZE];
    int rank;
    int64_t shape[MAX_RANK];
};
/* How coordinates' arrays are found. */
struct label_finder {
    enum err_code (*find)(void *user, const char *ref, struct label_array *ret, struct err *e);
    void *user;
};

/* A body's changes. */
struct labels_patch {
    struct arena *arena;
    bool from_query;             /* errors have no place in the body */
    int64_t most;                /* bytes that the labels may have (labels_size) */
    struct json of[LABEL_COUNT]; /* null: it is removed; absent: it stays */
    struct label_coord *coords;  /* that are set, in the order of of[LABEL_COORDS] */
    size_t n_coords;
};

/* Reads what is given: every error has its place ("/dims/1"). ERR_BAD_FIELD for a wrong type, an
 * axis named twice, or values nested too deep; ERR_BAD_NAME; the finder's. */
enum err_code labels_read(struct arena *arena, const struct json of[LABEL_COUNT],
                          const struct label_finder *finder, int64_t most, struct labels_patch *ret,
                          struct err *e) must_check;
/* The members of an object. */
void labels_members(struct json body, struct json ret[LABEL_COUNT]);
bool labels_given(const struct labels_patch *p); /* any of them */

/* The labels of an array that had `old` (NULL: none) under the view `v`: dims and units are
 * replaced; of attrs and coords the members that are given, and null removes one.
 * ERR_SHAPE_MISMATCH unless names fit the rank, and coordinates the extents of axes that have the
 * names; ERR_INLINE_TOO_LARGE if they grow above the patch's `most`. */
enum err_code labels_make(const struct labels *old, const struct labels_patch *p,
                          const struct view *v, struct labels **ret, struct err *e) must_check;

#endif
