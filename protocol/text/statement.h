/* A statement of a program: `name = expression`, `name[index] = expression`, or with an operator
 * before the equals sign (`u += 0.1*lap`), which stands for `name = name + (expression)`; or
 * `fill_ghost(name)`.
 *
 * Called by server/body/program_body.c. Nodes go into the caller's struct expr, whose arena also
 * holds everything else. Re-entrant. */
#ifndef ARRAYD_STATEMENT_H
#define ARRAYD_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/lang/expr.h"

struct statement {
    const char *target;             /* NUL-terminated */
    long at;                        /* its character offset */
    const struct index_spec *index; /* the assigned elements, NULL: all */
    uint32_t root;                  /* the assigned expression */
    bool fills;                     /* fill_ghost(target): `root` is its name */
};

/* Parses n bytes of UTF-8. `source` as in infix_parse, and the same errors: all with the character
 * offset in the statement. */
enum err_code statement_parse(struct expr *x, uint32_t source, const char *text, size_t n,
                              struct statement *ret, struct err *e) must_check;

#endif
