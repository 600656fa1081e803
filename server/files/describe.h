/* What is in a file, as arrayd-file describes it: checked, for whoever imports, and as JSON for
 * clients.
 *
 * Called within server/files. A description lies in its arena. */
#ifndef ARRAYD_SERVER_FILES_DESCRIBE_H
#define ARRAYD_SERVER_FILES_DESCRIBE_H

#include "compute/type/layout.h"
#include "protocol/json/json_writer.h"
#include "server/files/process.h"

struct file_variable {
    const char *name;
    bool readable;
    enum dtype dtype;   /* if it is readable */
    bool decodes;       /* CF's attributes change its values: */
    enum dtype decoded; /* to this dtype */
    int rank;
    int64_t shape[MAX_RANK];
    const char *dims[MAX_RANK]; /* NULL: the axis has no name */
    int64_t at;                 /* the file's byte where its elements lie as they are read without
                                 * decoding; 0: they do not, or it is not known */
    struct json attrs;          /* an object, or absent */
    const char *why;            /* why it is not readable */
    bool belongs;               /* to another one, whose attributes name it; if they are marked */
    struct json all;
};

struct file_description {
    const char *format;
    struct json all;
    struct file_variable *variables;
    const struct file_variable **by_name; /* sorted */
    size_t n;
    bool marked; /* those that belong to another one */
};

/* Asks the process. ERR_FILE_READER for an answer that is not as agreed; process_hear's. */
enum err_code describe(struct file_process *p, struct arena *arena, struct file_description *ret,
                       struct err *e) must_check;
/* The variable of that name, or (NULL) the only one that can be read. If there is one, those do not
 * count that are a dimension's own, or that another one's attributes name: coordinates, bounds,
 * grid mappings and the like. ERR_UNKNOWN_NAME, with the names that there are;
 * ERR_UNSUPPORTED_FILE. */
enum err_code describe_find(struct file_description *d, const char *name,
                            const struct file_variable **ret, struct err *e) must_check;
/* The one of that name, if it can be read and no other has the name; else NULL. */
const struct file_variable *describe_named(const struct file_description *d, const char *name);
/* The one that an attribute of `of` calls by these n bytes: in the same group or in the root. */
const struct file_variable *describe_beside(const struct file_description *d,
                                            const struct file_variable *of, const char *name,
                                            size_t n);
/* The names of variables in a text attribute, one after another: words, or, where some end in a
 * colon, the others; of "grid_mapping" those that do. */
struct file_names {
    const char *at;
    bool colons, before;
};
void describe_names(const struct file_variable *of, const char *attr, struct file_names *ret);
bool describe_next(struct file_names *names, const char **ret, size_t *ret_n);
/* The one that gives a dimension's coordinates; NULL if no readable variable does. */
const struct file_variable *describe_coordinate(const struct file_description *d, const char *dim,
                                                int64_t length);
/* The last part of a path: what is in a group is called so in an array. */
const char *describe_last_part(const char *name);
/* Writes the members of a description into an open object. */
void describe_put(const struct file_description *d, struct json_writer *w);

#endif
