/* What a file holds, the same for every format: attributes, dimensions, variables.
 *
 * Made by a format's open (for reading) or from a request (for writing); read by everything else.
 * All memory is the content's arena. Running out of memory, and a description past its limits, end
 * the process, so that nothing here fails. */
#ifndef ARRAYD_READER_CONTENT_H
#define ARRAYD_READER_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/strb.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"

#define VARIABLES_MAX  65536
#define ATTR_BYTES_MAX (4 << 20) /* of one attribute; longer ones are left out */
#define UNREAD         (-1)      /* a variable's dtype, where `why` says why */

/* Numbers of a dtype (little-endian, one after another), or texts. */
struct attr {
    const char *name;
    int dtype; /* UNREAD: texts */
    bool list; /* written as a list even if it holds one */
    int64_t n;
    void *data;         /* numbers */
    const char **texts; /* NUL-terminated */
    struct attr *next;
};

struct attrs {
    struct attr *first, **end;
    int n;
};

struct dim {
    const char *name; /* the key in "dims" */
    int64_t length;
    bool unlimited;
    struct dim *next;
};

struct variable {
    const char *name;
    int dtype; /* of an element as it is read without decoding, or UNREAD */
    int from;  /* to be written: the dtype of the elements that come */
    const char *stored, *why;
    int rank;
    int64_t shape[MAX_RANK];
    const char *dims[MAX_RANK]; /* NULL: the axis has no name */
    int64_t chunks[MAX_RANK];
    bool chunked;
    bool scattered; /* small pieces take as long as large ones */
    const char *filters[8];
    int n_filters;
    struct attrs attrs;
    int64_t nbytes; /* of the elements, −1 unknown */
    int64_t at;     /* the file's byte where they lie as they are read; 0: they do not */
    void *own;      /* the format's */
};

struct content {
    struct arena *arena;
    const char *format; /* its name on the wire */
    struct attrs attrs;
    struct dim *dims, **dims_end;
    int n_dims;
    struct variable **variables;
    size_t n_variables, room;
    void *own; /* the format's */
};

struct content *content_new(void);

/* A copy of a name in which bytes that are not UTF-8 are replaced, so that what is described can be
 * asked for. */
const char *content_name(struct content *c, const char *s);
/* A new variable, zeroed but for its name (content_name): TOO_LARGE past VARIABLES_MAX. */
struct variable *content_add(struct content *c, const char *name);
/* Sets rank, shape and nbytes. A rank past MAX_RANK, an extent < 0 or past 2^53, and more bytes
 * than that make it UNREAD. */
void variable_shape(struct content *c, struct variable *v, int64_t rank, const int64_t *shape);
/* Makes it UNREAD. What was said first stays the reason. */
void variable_unread(struct content *c, struct variable *v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes those UNREAD that have one name, as no sound file has them: nobody could say which one is
 * meant. To be called when all variables are known. */
void content_check_names(struct content *c);
/* By its name; NULL. */
struct variable *content_find(const struct content *c, const char *name);
void content_add_dim(struct content *c, const char *name, int64_t length, bool unlimited);
struct dim *content_find_dim(const struct content *c, const char *name);
char *content_text(struct content *c, const char *s, size_t n);
char *content_printf(struct content *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Numbers are copied; a text of n bytes ends before its first NUL. */
void attr_add_numbers(struct content *c, struct attrs *list, const char *name, enum dtype dtype,
                      bool is_list, int64_t n, const void *data);
void attr_add_text(struct content *c, struct attrs *list, const char *name, const char *s,
                   size_t n);
void attr_add_texts(struct content *c, struct attrs *list, const char *name, bool is_list,
                    int64_t n, const char *const *texts);
const struct attr *attr_find(const struct attrs *list, const char *name);
struct scalar attr_scalar(const struct attr *a, int64_t i); /* of numbers */
/* The first number (or of a given place) as a double; false for texts and empty ones. */
bool attr_double(const struct attr *a, int64_t i, double *ret);

void attr_put(struct json_writer *w, const struct attr *a); /* its value */
/* "attrs":{…} with all of them. */
void attrs_write(struct json_writer *w, const struct attrs *list);
/* Whether the conventions give an attribute of this name the type of its variable's elements. */
bool attr_is_like_elements(const char *name);
/* Those of a request's object: numbers (integers as int64 or uint64, others as float64), texts,
 * lists of either; others are BAD_REQUEST. "NaN" and the infinities are texts but in a list with
 * numbers and where attr_is_like_elements. */
void attrs_parse(struct content *c, struct json object, struct attrs *ret);

/* The reply to "describe". */
void content_describe(const struct content *c, struct strb *out);

#endif
