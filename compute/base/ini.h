/* The lines of the configuration and of the accounts file: [section], 'name = value', comments.
 *
 * A comment begins with '#' or ';' at a line's beginning or after a blank. Lines may be of any
 * length and end with LF or CR LF; a byte order mark before the first is passed over. Lines keep
 * their places in the text, so that a file can be written again with some of them changed.
 *
 * config.c and accounts.c read with it. It owns nothing; free of shared state. */
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
    const char *at; /* as it stands, */
    size_t n;       /* its end included */
    size_t number;  /* from 1 */
    enum ini_kind kind;
    struct ini_part name, value; /* of a section: the name, not empty */
    const char *mistake;         /* what is wrong */
};

/* Begin with `.at` alone, the text's beginning. The next line of the text that ends at `end`;
 * false: there is none. */
bool ini_next(const char *end, struct ini_line *l);

bool ini_is(struct ini_part p, const char *text);

/* "1.5GiB" in bytes; false: it is none. */
bool ini_size(const char *text, double *ret);

/* All that can be read from a descriptor, up to a size that no such file needs. `name` is what
 * errors call it: ERR_BAD_FIELD. */
enum err_code ini_read(int fd, const char *name, struct strb *ret, struct err *e) must_check;

#endif
