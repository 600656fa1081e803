/* Values of untyped nodes, and the readers that calls take their arguments with.
 *
 * Called by check.c and by the rules (check_rules.h). Calls and indexing below the given node have
 * their values already: the main pass visits children first, and no rule calls back into it. */
#ifndef ARRAYD_CHECK_VALUE_H
#define ARRAYD_CHECK_VALUE_H

#include "compute/check/checker.h"

/* check_value.c */

/* The value of an untyped node, names resolved. An error for a string or None. */
enum err_code check_value(struct checker *c, uint32_t node, struct cval *ret) must_check;
/* Defines a let, for later names. */
enum err_code check_let(struct checker *c, const char *name, uint32_t node) must_check;
/* The items of a non-empty list, as closed nodes of one dtype; errors call it `what`. */
enum err_code check_parts(struct checker *c, uint32_t node, const char *what, uint32_t **ret,
                          uint32_t *ret_n) must_check;
/* Checks that their extents agree except along `axis` (−1: along all). */
enum err_code check_parts_agree(struct checker *c, uint32_t node, const char *what,
                                const uint32_t *parts, uint32_t n, int axis) must_check;
/* Concatenates parts of one shape (overwritten) along a new axis. */
enum err_code check_stack(struct checker *c, uint32_t place, uint32_t *parts, uint32_t n, int axis,
                          uint32_t *ret) must_check;

/* check_params.c */

/* An integer parameter that must be known now ("axis"); else the error is `code`. */
enum err_code check_int(struct checker *c, uint32_t node, const char *what, enum err_code code,
                        int64_t *ret) must_check;
/* The text of a quoted string, or of a bare name used as one; NULL for anything else. */
const char *check_text(struct checker *c, uint32_t node);
/* Whether the parameter was left out or is None. */
bool check_absent(struct checker *c, uint32_t node);
/* A list of at most `most` integers (each called `what`), or a single one; else the error is
 * `code`. Their nodes if ret_nodes is not NULL. */
enum err_code check_ints(struct checker *c, uint32_t node, const char *what, enum err_code code,
                         uint32_t most, uint32_t *ret_n, int64_t *ret_values,
                         uint32_t *ret_nodes) must_check;
/* A shape that an array of that dtype can have; `unknown`: one extent may be −1, its axis goes to
 * *unknown, else −1. */
enum err_code check_shape(struct checker *c, uint32_t node, enum dtype t, int *unknown,
                          int *ret_rank, int64_t *ret) must_check;
/* The items of a list; any other node counts as a list of itself. */
uint32_t check_items(struct checker *c, uint32_t node, const struct expr_link **ret,
                     struct expr_link *one);
/* An argument as a typed node with its scope closed (graph_close_operand). */
enum err_code check_operand(struct checker *c, uint32_t node, uint32_t *ret) must_check;
/* An axis of an array of that rank, counted from either end. */
enum err_code check_axis(struct checker *c, uint32_t node, int rank, int *ret) must_check;
/* One axis or a list of distinct axes, as bits; all axes if the parameter is absent. */
enum err_code check_axes(struct checker *c, uint32_t node, int rank, uint32_t *ret) must_check;
/* The boundary and value arguments of functions that read past an array's edge. */
struct edge {
    enum boundary_mode mode;
    bool array;        /* the array's own boundary, whatever `mode` is */
    uint32_t place;    /* the node that names it */
    bool valued;       /* a value is given */
    struct cval value; /* a literal */
};
enum err_code check_edge(struct checker *c, uint32_t boundary, uint32_t value,
                         struct edge *ret) must_check;

#endif
