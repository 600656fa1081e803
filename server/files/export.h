/* An export: what the body asks for, and which variables of the file the arrays become.
 *
 * export_plan.c reads the body, export_labels.c says what becomes of labels and grids, export.c
 * moves the bytes, to a file of a folder by a job, or for bundle.c to one in memory. An export is
 * its task's, in an arena of its own. */
#ifndef ARRAYD_SERVER_FILES_EXPORT_H
#define ARRAYD_SERVER_FILES_EXPORT_H

#include "compute/base/table.h"
#include "compute/engine/engine.h"
#include "server/body/data.h"
#include "server/files/bell.h"
#include "server/files/files_int.h"
#include "server/reader/wire.h"

struct export_piece {
    const char *name; /* of the variable */
    struct json at;   /* where the body asks for it, or for an array that has it; may be absent */
    char id[ID_SIZE];
    bool shared;    /* another principal's */
    bool asked_for; /* not only a coordinate of one that is */
    struct array *array;
    struct labels *labels;
    struct json dims;            /* the names of its axes, or absent */
    const char *names[MAX_RANK]; /* the same as the file's dimensions; NULL: it has no name */
    struct strb coordinates;     /* names of those that lie on other axes than their own name's */
    int64_t nbytes;
    struct download *download; /* NULL: it has no bytes, or they are in the file */
};

/* An array that is to have the contents of a piece, the same coordinate of another array. */
struct export_twin {
    size_t of, with; /* pieces: whose contents; which has it as a coordinate */
    struct array *array;
    int64_t nbytes;
    struct download *own, *other; /* NULL: it has no bytes, or they have been compared */
    struct export_twin *next;
};

/* Tables of what has which name in the file. */
struct export_name {
    const char *name;
    size_t piece;
    UT_hash_handle hh;
};
struct export_dim {
    const char *name, *of; /* of: the variable that has it first */
    int64_t length;
    UT_hash_handle hh;
};

struct export_task {
    struct file_task task; /* first */
    struct server *server;
    int64_t most; /* bytes that the file of a bundle may take; else 0 */
    const struct folder *folder;
    const char *path;
    enum wire_format format;
    bool overwrite, coords, labels, ghosts;
    int64_t deflate;
    struct json attrs, unlimited; /* of the file; may be absent */
    struct arena *arena;
    struct bell bell;
    struct new_file file;
    struct file_process *process;
    struct export_piece *pieces;
    size_t n_pieces, cap_pieces;
    struct export_twin *twins;
    struct export_name *by_name; /* of the pieces */
    struct export_dim *dims;
    int64_t nbytes, done, told; /* told: bytes of labels */
};

/* An empty one; false without memory. export_clear may be called twice. */
bool export_init(struct export_task *x, struct request *req);
void export_clear(struct export_task *x);
/* Takes the handle's references as another variable, with its ghosts if x->ghosts says so. `at`, as
 * in a piece. ERR_CONFLICT if there is one of that name; ERR_LOCKED, ERR_OUT_OF_MEMORY. */
enum err_code export_add(struct export_task *x, struct request *req, struct handle *h,
                         const char *name, struct json at, struct err *e) must_check;
/* From now on the contents of all are held as they are, whoever writes to the arrays. The caller
 * has a lease_use open. */
enum err_code export_hold(struct export_task *x, struct session *s, struct err *e) must_check;
/* Writes all into x->file, which is complete then. On a thread of the pool. */
enum err_code export_write(struct export_task *x, struct err *e) must_check;

/* From the body, whose values live as long as the arena. ERR_BAD_FIELD and the like, with a place;
 * request_find's; ERR_LOCKED. Of a bundle (x->most):
 * without members about a folder. */
enum err_code export_read(struct export_task *x, struct request *req, struct session *s,
                          struct json body, struct err *e) must_check;
const char *export_format_name(enum wire_format f);
/* ERR_CONFLICT: piece i has a coordinate of that name which is not the file's. */
enum err_code export_another_coordinate(const struct export_task *x, size_t i, const char *name,
                                        struct err *e);
/* Its piece of that name; NULL: none. */
struct export_piece *export_find(const struct export_task *x, const char *name);

/* export_labels.c: adds the coordinates of the first n pieces, those that there are and that the
 * request may read; then every axis gets its dimension. ERR_CONFLICT, ERR_SHAPE_MISMATCH with a
 * place: arrays that do not agree about a name. */
enum err_code export_coordinates(struct export_task *x, struct request *req, struct session *s,
                                 size_t n, struct err *e) must_check;
enum err_code export_dimensions(struct export_task *x, struct err *e) must_check;
/* Whether a file can hold these attributes as they are: ERR_BAD_FIELD, ERR_BAD_NAME. */
enum err_code export_check_attrs(struct json attrs, struct err *e) must_check;
bool export_is_name(const char *name); /* of a variable or attribute */
/* The variable as it is asked to be written. */
enum err_code export_put_variable(const struct export_task *x, const struct export_piece *p,
                                  struct json_writer *w, struct err *e) must_check;

#endif
