/* The folder of --state-dir: which files it has, and how they are replaced so that none is ever
 * seen incomplete. Their contents are up to state_save.c and state_load.c.
 *
 *     lock                 held by the process that uses the folder
 *     current              the pointer: format, folder, SHA-256 of the manifest
 *     snapshot-N/manifest.json
 *     snapshot-N/current         a copy of the pointer to it
 *     snapshot-N/data            small memories
 *     snapshot-N/memory-M-K      a large one; first written in snapshot M, a hard link since
 *     refused-N/, current.refused, current.refused-K   put aside by --state-ignore; never touched
 *                                again
 *
 * Called by state*.c, one thread at a time. Blocks on the disk. Errors: ERR_DISK_FULL if there is
 * no room (ENOSPC, EDQUOT, EFBIG), else ERR_STATE, with the file and the system's message. */
#ifndef ARRAYD_SERVER_STATE_DIR_H
#define ARRAYD_SERVER_STATE_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

struct state_dir;
struct sha256_ctx; /* nettle's */

#define STATE_DIGEST 65 /* SHA-256 in hexadecimal digits, with the NUL */

/* Makes the folder if it does not exist (0700) and locks it. ERR_BAD_FIELD if another process holds
 * the lock. */
enum err_code state_dir_open(const char *path, struct state_dir **ret, struct err *e) must_check;
void state_dir_close(struct state_dir *d); /* NULL allowed */

/* --- a new snapshot: invisible until it is committed --- */

struct state_writer;
enum err_code state_write_begin(struct state_dir *d, struct state_writer **ret,
                                struct err *e) must_check;
#define STATE_FILE 48 /* a name, with the NUL */
/* The following writes go to the file of small memories, from *ret_at on, or (`apart`) to a new
 * file; `ret` is its name. */
enum err_code state_write_open(struct state_writer *w, bool apart, char ret[STATE_FILE],
                               int64_t *ret_at, struct err *e) must_check;
enum err_code state_write(struct state_writer *w, const void *bytes, size_t n,
                          struct err *e) must_check;
/* Ends the memory and returns its sum. */
enum err_code state_write_close(struct state_writer *w, char ret[STATE_DIGEST],
                                struct err *e) must_check;
/* Discards the memory: nothing of it stays. */
enum err_code state_write_drop(struct state_writer *w, struct err *e) must_check;
/* Links a file of the last snapshot into this one: false if that is impossible. */
bool state_write_again(struct state_writer *w, const char *file);
/* Instead of writing, between open and close: copies n bytes of a file of the last snapshot and
 * checks their sum. *ret_there: they match it; otherwise nothing is kept, as by drop. */
enum err_code state_write_copy(struct state_writer *w, const char *file, int64_t at, int64_t n,
                               const char *digest, bool *ret_there, struct err *e) must_check;
/* The older snapshot that is kept if this one is not complete; 0: none. */
uint64_t state_write_beside(const struct state_writer *w);
/* Syncs the snapshot and makes it the current one; removes older ones, except the one kept beside
 * it. Frees the writer in any case; on failure the last snapshot is unchanged. */
enum err_code state_write_commit(struct state_writer *take_w, const char *manifest, size_t n,
                                 bool complete, struct err *e) must_check;
void state_write_abort(struct state_writer *take_w);

/* --- the last complete one --- */

struct state_reader {
    struct state_dir *dir;
    uint64_t number;
    int folder; /* a descriptor; -1: none */
    int data;   /* of `name` in it; -1: none */
    char name[STATE_FILE];
    char *manifest; /* n bytes that match their sum; mem_free */
    size_t n;
    bool without_pointer; /* `current` is missing: found by the snapshot's own pointer */
};
/* *ret_there: there is one. ERR_STATE unless it is sound and of this format; also if there are
 * snapshots, which may be complete, but no pointer at all. */
enum err_code state_read_open(struct state_dir *d, struct state_reader *ret, bool *ret_there,
                              struct err *e) must_check;
enum err_code state_read(struct state_reader *r, const char *file, int64_t at, void *to, size_t n,
                         struct err *e) must_check;
/* Takes what only the next process may have. An error: one has begun to do so before, or it cannot
 * be noted on the disk that this one has. */
enum err_code state_read_once(struct state_reader *r, struct err *e) must_check;
void state_read_close(struct state_reader *r);

/* Keeps the snapshot of this number (0: none) beside the last one, which has been read, until a
 * snapshot leaves nothing out. */
void state_dir_stays(struct state_dir *d, uint64_t beside);
/* Removes all others, which a crashed process has left behind. */
void state_dir_tidy(struct state_dir *d);
/* Puts all snapshots aside, sound or not: afterwards there is none. */
enum err_code state_dir_refuse(struct state_dir *d, struct err *e) must_check;

/* SHA-256 in hexadecimal digits. */
void state_digest(struct sha256_ctx *sum, char ret[STATE_DIGEST]);

#endif
