/* An export: what the body asks for, and which variables of the file the arrays become.
 *
 * export_plan.c reads the body, export.c moves the bytes, to a file of a folder by a job, or for
 * bundle.c to one in memory. An export is its task's, in an arena of its own. */
#ifndef ARRAYD_SERVER_FILES_EXPORT_H
#define ARRAYD_SERVER_FILES_EXPORT_H

#include "compute/engine/engine.h"
#include "server/body/data.h"
#include "server/files/bell.h"
#include "server/files/files_int.h"

struct export_piece {
    const char *name; /* of the variable */
    struct array *array;
    struct labels *labels;
    const char *coordinate; /* the dimension whose coordinates it is; NULL: it is no such array */
    char shared[ID_SIZE];   /* another principal's: its id; else "" */
    int64_t nbytes;
    struct download *download; /* NULL: it has no bytes, or they are in the file */
};

struct export_task {
    struct file_task task; /* first */
    struct server *server;
    struct user_job *job; /* NULL: a bundle, which takes at most so many bytes */
    int64_t most;
    const struct folder *folder;
    const char *path, *format;
    bool overwrite, coords;
    int64_t deflate;
    struct json attrs; /* of the file; may be absent */
    struct arena *arena;
    struct bell bell;
    struct new_file file;
    struct file_process *process;
    struct export_piece *pieces;
    size_t n_pieces, cap_pieces;
    int64_t nbytes, done;
};

/* An empty one; false without memory. export_clear may be called twice. */
bool export_init(struct export_task *x, struct request *req);
void export_clear(struct export_task *x);
/* Takes the handle's references as another variable. ERR_LOCKED, ERR_OUT_OF_MEMORY. */
enum err_code export_add(struct export_task *x, struct request *req, struct handle *h,
                         const char *name, const char *coordinate, struct err *e) must_check;
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
/* The variable as it is asked to be written. */
enum err_code export_put_variable(const struct export_task *x, const struct export_piece *p,
                                  struct json_writer *w, struct err *e) must_check;

#endif
