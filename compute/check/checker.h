/* One check under way: what is known of names and nodes so far, beside the typed graph itself.
 *
 * Shared by the files of this room. check.c makes it; all of it is arena memory of that one call of
 * check_expr, and is used by one thread. */
#ifndef ARRAYD_CHECKER_H
#define ARRAYD_CHECKER_H

#include "compute/check/check.h"

/* What an untyped node became: a literal that has not met an array yet, or a typed node. */
struct cval {
    bool weak;
    struct literal lit;
    uint32_t id;    /* typed node */
    uint32_t place; /* untyped node, for errors */
};

/* What typed.h does not carry but building needs, by typed node. */
enum {
    NODE_LOOSE = 1, /* holds a T_INDEX or T_UNRAVEL whose scope is not closed yet */
    NODE_ARRAY = 2  /* holds an array, so that its shape is an operand's shape */
};

struct name_entry {
    const char *name;
    struct cval value;
};

struct checker {
    struct arena *arena;
    const struct expr *x;
    const struct check_env *env;
    struct typed *t;
    struct err *e; /* never NULL */

    struct cval *values; /* by untyped node: calls and indexing already done */

    /* by typed node */
    uint8_t *flags;
    uint32_t *origin;
    size_t cap_flags, cap_origin, cap_nodes;

    uint32_t *buckets; /* hash consing: node + 1, open addressing */
    size_t n_buckets;

    struct name_entry *names; /* open addressing: lets done so far, and names resolved */
    size_t n_names, cap_names;

    struct guard {
        uint32_t fault;  /* typed node, bool, rank 0 */
        uint32_t gather; /* that it is about */
        struct typed_guard says;
    } * guards;
    size_t n_guards, cap_guards;

    /* scratch of graph_close: what a node became in pass `pass` */
    struct close_entry {
        uint32_t pass, id;
    } * closed;
    uint32_t *stack;
    size_t cap_closed, cap_stack, cap_inputs;
    uint32_t pass;
};

static inline struct cval cval_typed(uint32_t id, uint32_t place)
{
    return (struct cval){.id = id, .place = place};
}

static inline struct cval cval_int(int64_t i, uint32_t place)
{
    return (struct cval){.weak = true, .lit = {.kind = LIT_INT, .i = i}, .place = place};
}

static inline enum dtype cval_dtype(const struct checker *c, const struct cval *v)
{
    return c->t->nodes[v->id].dtype;
}

/* Makes a constant with a type a literal; false for a value that is not known now. */
static inline bool cval_known(const struct checker *c, struct cval *v)
{
    if (!v->weak && c->t->nodes[v->id].kind == T_CONST) {
        v->weak = true;
        v->lit = literal_from_scalar(c->t->nodes[v->id].value);
    }
    return v->weak;
}

/* Gives an error of a lower room, which stands in c->e, the place of `node`. */
static inline enum err_code check_place(const struct checker *c, uint32_t node, enum err_code code)
{
    if (code == ERR_OK || code == ERR_OUT_OF_MEMORY)
        return code;
    return expr_err(c->x, node, c->e, code, "%s", c->e->message);
}

#endif
