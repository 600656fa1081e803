/* The audit on disk: lines of JSON, one an entry, in a file that is rotated.
 *
 * A line is one write(2) to the end of the file, so that a crash of the daemon leaves whole lines;
 * what a crash of the machine or a full disk has cut off is removed. At `most` bytes the file
 * becomes FILE.1, that one FILE.2 and so on up to FILE.`kept`; the one after that is gone. While
 * that cannot be done nothing is written: the file does not outgrow its size. Others may move it
 * away or cut it: there is a new one then.
 *
 * Called by audit.c, by one thread at a time. What cannot be written is logged once and left out.
 */
#ifndef ARRAYD_SERVER_AUDIT_FILE_H
#define ARRAYD_SERVER_AUDIT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

struct arena;
struct audit_file;

/* `path` is borrowed. ERR_BAD_FIELD: no such file can be made, or it is something else;
 * ERR_OUT_OF_MEMORY. */
enum err_code audit_file_open(const char *path, int64_t most, int64_t kept, struct audit_file **ret,
                              struct err *e) must_check;
void audit_file_close(struct audit_file *f); /* NULL allowed */
/* Whole lines from the end of FILE (number 0) or FILE.number, at most `most` bytes of them; in the
 * arena. 0: there are none, or no memory for them. */
size_t audit_file_tail(const struct audit_file *f, int64_t number, size_t most, struct arena *arena,
                       const char **ret);
/* line: with its newline; NULL: there was no memory for it. False: it is not in the file. */
bool audit_file_write(struct audit_file *f, const char *line, size_t n) must_check;

#endif
