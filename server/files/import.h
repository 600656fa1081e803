/* An import: what the body asks for, and what of the file becomes which array.
 *
 * import_plan.c reads the body and plans, import_labels.c says what becomes of coordinates, labels
 * and grids, import_place.c where pixels lie, import.c moves the bytes and publishes; body.c takes
 * one array, and its coordinates, of a file that a request brings. An import is its task's, in an
 * arena of its own.
 */
#ifndef ARRAYD_SERVER_FILES_IMPORT_H
#define ARRAYD_SERVER_FILES_IMPORT_H

#include "compute/base/table.h"
#include "compute/engine/engine.h"
#include "compute/type/grid.h"
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

/* A coordinate of a piece: another piece, on these axes of the first. */
struct import_coord {
    const char *name;
    size_t piece;
    int axes[MAX_RANK];
};

/* A region of a variable that becomes an array. */
struct import_piece {
    const struct file_variable *variable;
    bool decode;
    enum dtype dtype;
    char name[NAME_SIZE]; /* "": a coordinate's, which has none, or that the request says */
    char id[ID_SIZE];
    int64_t start[MAX_RANK], count[MAX_RANK], step[MAX_RANK]; /* by the variable's axes; ≠ 0 */
    struct index_map map;
    struct view view;    /* of what is read, contiguous */
    struct view inside;  /* of the array's elements: the same but for ghosts */
    struct grid *grid;   /* what the file says of it; NULL: nothing */
    unsigned grid_attrs; /* by these attributes: bits of grid_attr_names */
    int64_t nbytes;
    struct import_coord *coords;
    size_t n_coords, cap_coords;
    const char *left_coords; /* what else the attribute "coordinates" names; NULL: nothing */
    bool of_part; /* a grid mapping that says where pixels lie, of a piece that is not whole */
    struct upload *upload;
    struct array *array; /* once it is there; with ghosts from the start */
    struct labels *labels;
};

/* Tables of what is a piece already. */
struct import_place {
    struct {
        const struct file_variable *variable;
        int64_t start[MAX_RANK], count[MAX_RANK], step[MAX_RANK];
        uint64_t kept; /* bits of the axes that are the array's */
        uint64_t of_part;
    } key;
    size_t piece;
    UT_hash_handle hh;
};
struct import_name {
    const char *name;
    UT_hash_handle hh;
};

struct import {
    struct file_task task; /* first */
    struct server *server;
    struct session *session; /* borrowed */
    struct engine_stream *stream;
    const struct folder *folder;
    const char *path;
    bool overwrite, coords, labels, ghosts;
    bool into; /* the contents go into an array that there is */
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
    struct import_place *places;
    struct import_name *names;
    int64_t nbytes, done; /* of all */
};

/* An empty one; false without memory. import_clear may be called twice. */
bool import_init(struct import *x, struct request *req);
void import_clear(struct import *x);
/* From the file (borrowed) on up to all bytes of all pieces, which are uploads then. `check`
 * must agree to the plan, and the labels, before memory is taken. On a thread of the pool, as is
 * the next. */
enum err_code import_take(struct import *x, int file, struct engine_stream *stream,
                          enum err_code (*check)(struct import *x, struct err *e),
                          struct err *e) must_check;
/* The upload becomes piece->array. */
enum err_code import_make(struct import *x, struct import_piece *p, struct err *e) must_check;

/* ERR_DEADLINE once it is not wanted any more; asked between pieces of work. */
enum err_code import_goes_on(const struct import *x, struct err *e) must_check;

/* From the body, whose values live as long as the arena. ERR_BAD_FIELD and the like, with a place.
 */
enum err_code import_read(struct import *x, struct json body, struct err *e) must_check;
/* The pieces, from the description. ERR_UNKNOWN_NAME, ERR_UNSUPPORTED_FILE, ERR_BAD_INDEX,
 * ERR_BAD_NAME, ERR_CONFLICT. */
enum err_code import_plan(struct import *x, struct err *e) must_check;
/* Adds the piece that import_piece_new has made, with `map`, start, count and step as they are to
 * be. */
struct import_piece *import_piece_new(struct import *x); /* NULL without memory */
enum err_code import_piece_add(struct import *x, struct import_piece *p, struct err *e) must_check;

/* import_labels.c: what the file says of the piece's grid; where ghosts are left out, the region
 * becomes smaller. Of a whole variable. */
enum err_code import_grid(struct import *x, struct import_piece *p, struct err *e) must_check;
/* Adds the coordinates of piece i that are no pieces yet. */
enum err_code import_coordinates(struct import *x, size_t i, struct err *e) must_check;
/* Makes the labels of a piece. */
enum err_code import_labels(const struct import *x, struct import_piece *p,
                            struct err *e) must_check;
/* import_place.c: whether the piece is all of its variable; whether an attribute says where pixels
 * lie, which of a part of a picture is not true any more; what is true of it, as members of the
 * open object of its attributes. */
bool import_is_whole(const struct import_piece *p);
bool import_is_place(const struct import_piece *p, const char *name);
void import_put_place(const struct import_piece *p, struct json_writer *w);

#endif
