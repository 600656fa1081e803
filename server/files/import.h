/* An import: what the body asks for, and what of the file becomes which array.
 *
 * import_plan.c reads the body and plans, import.c moves the bytes and publishes; body.c takes the
 * one array of a file that a request brings. An import is its task's, in an arena of its own. */
#ifndef ARRAYD_SERVER_FILES_IMPORT_H
#define ARRAYD_SERVER_FILES_IMPORT_H

#include "compute/engine/engine.h"
#include "protocol/text/index.h"
#include "server/files/bell.h"
#include "server/files/describe.h"
#include "server/files/files_int.h"
#include "server/store/handles.h"

/* As the body has it. */
struct import_item {
    const char *variable; /* NULL: the only one */
    const char *name;     /* of the array; NULL: the variable's */
    struct index_spec index;
    bool decode;
};

/* A region of a variable that becomes an array. */
struct import_piece {
    const struct file_variable *variable;
    bool decode;
    enum dtype dtype;
    char name[NAME_SIZE]; /* "": a coordinate's, which has none */
    char id[ID_SIZE];
    int64_t start[MAX_RANK], count[MAX_RANK], step[MAX_RANK]; /* by the variable's axes */
    struct index_map map;
    struct view view; /* of the array, contiguous */
    int64_t nbytes;
    struct upload *upload;
    struct array *array; /* once it is there */
    struct labels *labels;
};

struct import {
    struct file_task task; /* first */
    struct server *server;
    struct user_job *job;    /* NULL: it belongs to a request */
    struct session *session; /* borrowed */
    const struct folder *folder;
    const char *path;
    bool overwrite, coords, labels;
    const struct import_item *items;
    size_t n_items;
    struct arena *arena;
    struct bell bell;
    _Atomic bool answered; /* by the engine, which was asked for memory */

    int file; /* while bytes are taken */
    struct file_process *process;
    struct file_description description;
    struct import_piece *pieces; /* coordinates last */
    size_t n_pieces, cap_pieces;
    int64_t nbytes, done; /* of all */
};

/* An empty one; false without memory. import_clear may be called twice. */
bool import_init(struct import *x, struct request *req);
void import_clear(struct import *x);
/* From the file (borrowed) on up to all bytes of all pieces, which are uploads then. `check`: NULL,
 * or it must agree to the plan before memory is taken. On a thread of the pool, as is the next. */
enum err_code import_take(struct import *x, int file, struct engine_stream *stream,
                          enum err_code (*check)(struct import *x, struct err *e),
                          struct err *e) must_check;
/* The upload becomes piece->array. */
enum err_code import_make(struct import *x, struct import_piece *p, struct err *e) must_check;

/* From the body, whose values live as long as the arena. ERR_BAD_FIELD and the like, with a place.
 */
enum err_code import_read(struct import *x, struct json body, struct err *e) must_check;
/* The pieces, from the description. ERR_UNKNOWN_NAME, ERR_UNSUPPORTED_FILE, ERR_BAD_INDEX,
 * ERR_BAD_NAME, ERR_CONFLICT. */
enum err_code import_plan(struct import *x, struct err *e) must_check;
/* Makes the labels of a piece, once it is known of each coordinate whether it is there. */
enum err_code import_labels(const struct import *x, struct import_piece *p,
                            struct err *e) must_check;

#endif
