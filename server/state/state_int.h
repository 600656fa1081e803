/* What the files of the state (state*.c) share. */
#ifndef ARRAYD_SERVER_STATE_INT_H
#define ARRAYD_SERVER_STATE_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/type/dtype.h"
#include "server/state/state.h"
#include "server/state/state_dir.h"

#define STATE_VERSION 1

/* Memories as the last snapshot has them, by array_memory_id. state_kept.c; a pointer to NULL is an
 * empty table. One thread at a time. */
struct state_kept;
struct state_kept_file {
    char name[STATE_FILE], digest[STATE_DIGEST];
    int64_t at, nbytes;
    enum dtype dtype;
    int64_t taken_us; /* when the contents were these */
    uint64_t version; /* of the array that has them, never that of other ones; 0: none has */
};
const struct state_kept_file *state_kept_find(struct state_kept *const *t, uint64_t memory);
/* Nothing is kept where there is no room for it: it is written anew then. */
void state_kept_add(struct state_kept **t, uint64_t memory, const struct state_kept_file *file);
void state_kept_free(struct state_kept **t);
/* A file of the last snapshot, or part of it, into the one that is written: by a link, or its bytes
 * are copied. *ret_there is false where they are not as their sum says, or cannot be read. */
enum err_code state_kept_again(struct state_writer *w, const struct state_kept_file *file,
                               struct state_kept_file *ret, bool *ret_there, bool *ret_linked,
                               struct err *e) must_check;

struct state_passed; /* state_passed.h */

/* Writes all that the server has, and what was passed over, to a new snapshot. `deadline_ns`
 * (clock_ns; 0: none): what is not written by then has the contents that the last one has of it, or
 * is left out. `stop`: it is given up where this becomes true (ERR_DRAINING). `kept` is of the last
 * snapshot, and then of this one. gaps: NULL, or what is not in it as it is now. */
enum err_code state_write_all(struct server *s, struct state_dir *dir, uint64_t deadline_ns,
                              const _Atomic bool *stop, struct state_kept **kept,
                              struct state_passed *passed, struct state_report *ret,
                              struct state_gaps *gaps, struct err *e) must_check;
/* Reads what state_write_all wrote. */
enum err_code state_read_all(struct server *s, struct state_reader *r, struct state_kept **kept,
                             struct state_passed *passed, struct state_report *ret,
                             struct err *e) must_check;

#endif
