/* The state of one check: what is known of names and nodes so far, beside the typed graph itself.
 *
 * Shared by the files of this directory. check_expr makes it, in arena memory, for one call; used
 * by one thread. */
#ifndef ARRAYD_CHECKER_H
#define ARRAYD_CHECKER_H

#include "compute/check/check.h"

/* The value of an untyped node: a literal that has not met an array yet, or a typed node. */
struct cval {
    bool weak;
    struct literal lit;
    uint32_t id;    /* typed node */
    uint32_t place; /* untyped node, for errors */
};

/* By typed node: facts needed while building that typed.h does not have. */
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
        uint32_t gather; /* the gather it is about */
        struct typed_guard says;
    } * guards;
    size_t n_guards, cap_guards, cap_factored;

    /* scratch memory of graph_close: what a node became in pass `pass` */
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

/* Turns a typed constant into a literal; false for a value that is not known now. */
static inline bool cval_known(const struct checker *c, struct cval *v)
{
    if (!v->weak && c->t->nodes[v->id].kind == T_CONST) {
        v->weak = true;
        v->lit = literal_from_scalar(c->t->nodes[v->id].value);
    }
    return v->weak;
}

/* Adds the place of `node` to an error from lower-level code in c->e. */
static inline enum err_code check_place(const struct checker *c, uint32_t node, enum err_code code)
{
    if (code == ERR_OK || code == ERR_OUT_OF_MEMORY)
        return code;
    return expr_err(c->x, node, c->e, code, "%s", c->e->message);
}

#endif
