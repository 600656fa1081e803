/* The lines of the configuration and of the accounts file: [section], 'name = value', comments.
 *
 * A comment begins with '#' or ';' at the beginning of a line or after a blank. Lines may be of any
 * length and end with LF or CR LF; a leading byte order mark is skipped. Lines keep their positions
 * in the text, so that a caller can write the file again with some lines changed.
 *
 * Called by config_read.c and accounts.c. It owns nothing; no shared state. */
#ifndef ARRAYD_SERVER_INI_H
#define ARRAYD_SERVER_INI_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"

enum ini_kind { INI_EMPTY, INI_SECTION, INI_VALUE, INI_MISTAKE };

/* Characters of a line, without the blanks around them. */
struct ini_part {
    const char *at;
    size_t n;
};

struct ini_line {
    const char *at; /* the line as written, */
    size_t n;       /* including its line end */
    size_t number;  /* from 1 */
    enum ini_kind kind;
    struct ini_part name, value; /* of a section: its name, not empty */
    const char *mistake;         /* what is wrong */
};

/* Reads the next line of the text that ends at `end`; false: there are no more. Before the first
 * call, set `.at` to the beginning of the text and everything else to zero. */
bool ini_next(const char *end, struct ini_line *l);

bool ini_is(struct ini_part p, const char *text);

/* Parses a size such as "1.5GiB" into bytes; false: not a size. */
bool ini_size(const char *text, double *ret);
/* What it accepts, for error messages. */
#define INI_SIZE_FORM                                                                              \
    "a number of bytes, or a number with one of the units KiB, MiB, GiB, TiB (K, M, G, T for "     \
    "short) and kB, MB, GB, TB"

/* Reads a descriptor to its end, up to a size that no such file needs. Errors (ERR_BAD_FIELD) call
 * the file `name`. */
enum err_code ini_read(int fd, const char *name, struct strb *ret, struct err *e) must_check;

#endif
