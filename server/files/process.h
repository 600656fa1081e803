/* One run of arrayd-file: it is started with an open file, asked, and ended.
 *
 * What comes from it is read as if an enemy had written it: answers and contents come within a
 * time, however small the pieces, a line is of bounded length, JSON by the strict reader, and every
 * number is checked by whoever uses it. The slabs are memory that both have mapped: it may change
 * while it is read.
 *
 * Used by one thread of server/files at a time, which may wait. */
#ifndef ARRAYD_SERVER_FILES_PROCESS_H
#define ARRAYD_SERVER_FILES_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "protocol/json/json.h"

struct file_process;

struct process_spec {
    const char *program; /* path of arrayd-file; NULL: not installed */
    int file;            /* borrowed */
    bool write;          /* it is to be written, */
    int64_t most;        /* and becomes no larger: bytes */
    bool unsandboxed;    /* allowed */
    int64_t memory;      /* bytes, */
    double cpu, silence; /* seconds of processor time, and as process_ask says, at most */
    size_t slab;         /* bytes of each, a multiple of a page, of */
    int slabs, threads;
    bool (*goes_on)(void *user); /* asked while it waits; false: the work ends. NULL: it does */
    void *user;
};

/* ERR_LIBRARY_MISSING if `program` is NULL. */
enum err_code process_check(const char *program, struct err *e) must_check;
/* Starts it; it is ready. ERR_LIBRARY_MISSING: there is no such program, or the kernel cannot
 * confine it; ERR_OVERLOADED; ERR_OUT_OF_MEMORY; and as process_hear. */
enum err_code process_start(const struct process_spec *spec, struct file_process **ret,
                            struct err *e) must_check;
/* Ends it at once, whatever it does. NULL allowed. */
void process_end(struct file_process *p);

/* Sends a line (without its newline), to which other lines may have come before. Errors as of
 * process_hear. */
enum err_code process_say(struct file_process *p, const struct strb *line,
                          struct err *e) must_check;
/* The same for a request. It may be waited for answers for so long as the spec's silence, until so
 * many bytes have been moved as a slab has (process_moved), or there is another request. */
enum err_code process_ask(struct file_process *p, const struct strb *line,
                          struct err *e) must_check;
void process_moved(struct file_process *p, size_t n);
/* From now on it may be waited for so long again. */
void process_patience(struct file_process *p);
/* The next line as an object, in `arena`. An answer that is an error becomes that error:
 * ERR_BAD_FILE, ERR_UNSUPPORTED_FILE, ERR_UNKNOWN_NAME, ERR_INLINE_TOO_LARGE, ERR_OUT_OF_MEMORY,
 * ERR_FILE_IO. ERR_FILE_READER: it ended, was killed, is silent for too long, or says what it may
 * not. ERR_DEADLINE: the work does not go on. */
enum err_code process_hear(struct file_process *p, struct arena *arena, struct json *ret,
                           struct err *e) must_check;
/* The error of an answer that is not as agreed: `what` it is about. */
enum err_code process_lies(struct err *e, const char *what);
bool process_goes_on(const struct file_process *p);
/* Whether an answer has this member, and it is true. */
bool process_says(struct json answer, const char *name);

unsigned char *process_slab(const struct file_process *p, int i);
size_t process_slab_size(const struct file_process *p);
int process_slabs(const struct file_process *p);

#endif
