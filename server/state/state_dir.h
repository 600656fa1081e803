/* The folder of --state-dir: which files there are, and how they come and go without ever being
 * half there. What is in them is state_save.c's and state_load.c's business.
 *
 *     lock                 held by the process that uses the folder
 *     current              the pointer: format, folder, SHA-256 of the manifest
 *     snapshot-N/manifest.json
 *     snapshot-N/current         what the pointer to it is
 *     snapshot-N/data            small memories
 *     snapshot-N/memory-M-K      a large one; first written in snapshot M, a hard link since
 *     refused-N/, current.refused, current.refused-K   put aside by --state-ignore; never touched
 *                                again
 *
 * Called by state*.c, one thread at a time. Blocks on the disk. Errors: ERR_DISK_FULL where there
 * is no room (ENOSPC, EDQUOT, EFBIG), else ERR_STATE, with what the system said of which file. */
#ifndef ARRAYD_SERVER_STATE_DIR_H
#define ARRAYD_SERVER_STATE_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

struct state_dir;
struct sha256_ctx; /* nettle's */

#define STATE_DIGEST 65 /* SHA-256 in hexadecimal digits, with the NUL */

/* Makes the folder where there is none (0700) and locks it. ERR_BAD_FIELD where another process
 * has it. */
enum err_code state_dir_open(const char *path, struct state_dir **ret, struct err *e) must_check;
void state_dir_close(struct state_dir *d); /* NULL allowed */

/* --- a new snapshot: nobody sees it before it is committed --- */

struct state_writer;
enum err_code state_write_begin(struct state_dir *d, struct state_writer **ret,
                                struct err *e) must_check;
#define STATE_FILE 48 /* a name, with the NUL */
/* What is written next goes to the file of small memories, from *ret_at on, or (`apart`) to one of
 * its own; `ret` is its name. */
enum err_code state_write_open(struct state_writer *w, bool apart, char ret[STATE_FILE],
                               int64_t *ret_at, struct err *e) must_check;
enum err_code state_write(struct state_writer *w, const void *bytes, size_t n,
                          struct err *e) must_check;
/* The memory is all there: the sum of it. */
enum err_code state_write_close(struct state_writer *w, char ret[STATE_DIGEST],
                                struct err *e) must_check;
/* It is not to be there; nothing of it stays. */
enum err_code state_write_drop(struct state_writer *w, struct err *e) must_check;
/* A file of the last snapshot is one of this too: false where it cannot be. */
bool state_write_again(struct state_writer *w, const char *file);
/* Between open and close, instead of what is written: n bytes of a file of the last snapshot, with
 * their sum. *ret_there: they are as that says; else nothing of it is there, as by drop. */
enum err_code state_write_copy(struct state_writer *w, const char *file, int64_t at, int64_t n,
                               const char *digest, bool *ret_there, struct err *e) must_check;
/* The older snapshot that stays where this one is not complete; 0: there is none. */
uint64_t state_write_beside(const struct state_writer *w);
/* The snapshot is whole, on the disk, and the one that counts from now on; older ones go, but for
 * that one. The writer is over in any case; where it fails, the last snapshot is as it was. */
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
    char *manifest; /* of n bytes, held against its sum; mem_free */
    size_t n;
    bool without_pointer; /* `current` is missing: by the snapshot's own */
};
/* *ret_there: there is one. ERR_STATE for anything but a sound one of this format; and where there
 * are snapshots without any pointer, which may be whole. */
enum err_code state_read_open(struct state_dir *d, struct state_reader *ret, bool *ret_there,
                              struct err *e) must_check;
enum err_code state_read(struct state_reader *r, const char *file, int64_t at, void *to, size_t n,
                         struct err *e) must_check;
void state_read_close(struct state_reader *r);

/* Beside the last snapshot, which has been read, the one of that number stays (0: none), until
 * there is one that leaves nothing out. */
void state_dir_stays(struct state_dir *d, uint64_t beside);
/* All others go: what a process that ended too early has left behind. */
void state_dir_tidy(struct state_dir *d);
/* Puts what there is aside, sound or not: afterwards there is no snapshot. */
enum err_code state_dir_refuse(struct state_dir *d, struct err *e) must_check;

/* SHA-256 in hexadecimal digits. */
void state_digest(struct sha256_ctx *sum, char ret[STATE_DIGEST]);

#endif
