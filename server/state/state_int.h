/* Shared by the files of the state (state*.c). */
#ifndef ARRAYD_SERVER_STATE_INT_H
#define ARRAYD_SERVER_STATE_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/type/dtype.h"
#include "server/state/state.h"
#include "server/state/state_dir.h"

/* The last format that this program understands, and that of a snapshot without labels, which
 * older ones understand as well. */
#define STATE_VERSION       2
#define STATE_VERSION_PLAIN 1

/* The memories of the last snapshot, by array_memory_id. state_kept.c; a pointer to NULL is an
 * empty table. One thread at a time. */
struct state_kept;
struct state_kept_file {
    char name[STATE_FILE], digest[STATE_DIGEST];
    int64_t at, nbytes;
    enum dtype dtype;
    int64_t taken_us; /* time of the contents */
    uint64_t version; /* of the array with these contents, unique to them; 0: no array has them */
};
const struct state_kept_file *state_kept_find(struct state_kept *const *t, uint64_t memory);
/* Without memory the entry is not added: the next snapshot writes that memory anew. */
void state_kept_add(struct state_kept **t, uint64_t memory, const struct state_kept_file *file);
void state_kept_free(struct state_kept **t);
/* Puts a file of the last snapshot, or part of it, into the one being written: links it or copies
 * its bytes. *ret_there is false if they do not match their sum, or cannot be read. */
enum err_code state_kept_again(struct state_writer *w, const struct state_kept_file *file,
                               struct state_kept_file *ret, bool *ret_there, bool *ret_linked,
                               struct err *e) must_check;

struct state_passed; /* state_passed.h */

/* Writes everything the server has, and what was passed over, to a new snapshot; links only if it
 * is the process's `last`: they must not come back once they have been ended. `deadline_ns`
 * (clock_ns; 0: none): memories not written by then have the last snapshot's contents, or are left
 * out. `stop`: the snapshot is abandoned when this becomes true (ERR_DRAINING). `kept` describes
 * the last snapshot, and afterwards this one. gaps: NULL, or gets the arrays that are not saved as
 * they are now. */
enum err_code state_write_all(struct server *s, struct state_dir *dir, bool last,
                              uint64_t deadline_ns, const _Atomic bool *stop,
                              struct state_kept **kept, struct state_passed *passed,
                              struct state_report *ret, struct state_gaps *gaps,
                              struct err *e) must_check;
/* Reads what state_write_all wrote. kept NULL: only what an earlier process passed over, or the
 * journal cannot say (writer_has_passed). */
enum err_code state_read_all(struct server *s, struct state_reader *r, struct state_kept **kept,
                             struct state_passed *passed, struct state_report *ret,
                             struct err *e) must_check;

#endif
