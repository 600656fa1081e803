/* The labels of an array: what clients say of it, which nothing here depends on.
 *
 *     attrs   an object of any JSON values
 *     dims    the names of the axes, in order; null for an axis without one
 *     units   a string
 *     coords  by name, an array and the axes of this one that its axes are: {"array": id, "dims"}
 *
 * A coordinate is only an id: its array may be gone, or not be the reader's to see.
 *
 * Kept by handles (server/store) as the texts that clients get to see again. Immutable and
 * reference-counted, so that threads, views and copies share them; to change them, make new ones
 * (labels_read.h). An array without any has NULL. Thread-safe. */
#ifndef ARRAYD_SERVER_LABELS_H
#define ARRAYD_SERVER_LABELS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/labels/label_axes.h"

enum label { LABEL_ATTRS, LABEL_COORDS, LABEL_DIMS, LABEL_UNITS, LABEL_COUNT };
extern const char *const label_names[LABEL_COUNT];

/* JSON without spaces; n 0: absent. */
struct label_text {
    const char *text;
    size_t n;
};

struct labels {
    _Atomic uint32_t refs;
    struct label_text of[LABEL_COUNT];
    char bytes[]; /* the texts */
};

struct labels *labels_ref(struct labels *l); /* NULL allowed; returns l */
void labels_unref(struct labels *l);         /* NULL allowed */
static inline void labels_unrefp(struct labels **l)
{
    labels_unref(*l);
}
#define _cleanup_labels_ __attribute__((cleanup(labels_unrefp)))

/* Copies the texts; *ret NULL if all are absent. ERR_OUT_OF_MEMORY. */
enum err_code labels_new(const struct label_text of[LABEL_COUNT], struct labels **ret,
                         struct err *e) must_check;

/* Bytes of the texts and their members' names in an object; NULL: 0. */
size_t labels_size(const struct labels *l);

/* Writes the members that there are into an open object. `brief`: without attrs and coords. NULL
 * writes none. */
void labels_put(struct json_writer *w, const struct labels *l, bool brief);

/* Whether the attribute says where the pixels of all of a picture lie (GeoTIFF's tags). */
bool labels_is_place(const char *attr);

/* The labels of an array whose axes are those of one with `l`: attrs and units stay, but for the
 * places of pixels where axes are not whole or in another order; names go with their axes, and
 * coordinates stay whose axes are all there whole. */
enum err_code labels_follow(struct labels *l, const struct label_axes *axes, struct labels **ret,
                            struct err *e) must_check;

/* The same for an array that gets another shape: with as many axes, they are the same ones. */
enum err_code labels_resize(struct labels *l, const struct view *was, const struct view *is,
                            struct labels **ret, struct err *e) must_check;

/* Whether there are any in an object that labels_put has written into. */
bool labels_in(struct json v);
/* Labels as labels_put has written them in another process; absent members are absent labels.
 * ERR_STATE, ERR_OUT_OF_MEMORY. */
enum err_code labels_restore(struct json v, struct labels **ret, struct err *e) must_check;

#endif
