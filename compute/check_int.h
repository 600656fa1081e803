/* The checker's inside, shared by the check_*.c files only: check.c walks the tree and resolves
 * names, check_graph.c builds typed nodes and closes scopes, check_ops.c types the elementwise
 * operations, check_stencil.c, check_reduce.c and check_moments.c the functions that look at
 * shapes.
 *
 * All of it is arena memory of one check_expr call. */
#ifndef ARRAYD_CHECK_INT_H
#define ARRAYD_CHECK_INT_H

#include "compute/call.h"
#include "compute/check.h"
#include "compute/func.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code rc_ = (call);                                                                \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

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
    struct err *e;

    struct cval *values; /* by untyped node: calls and indexing already done */

    /* by typed node */
    uint8_t *flags;
    uint32_t *origin;
    size_t cap_flags, cap_origin, cap_nodes;

    uint32_t *buckets; /* hash consing: node + 1, open addressing */
    size_t n_buckets;

    struct name_entry *names; /* open addressing: lets done so far, and names resolved */
    size_t n_names, cap_names;

    /* scratch of graph_close: what a node became in pass `pass` */
    struct close_entry {
        uint32_t pass, id;
    } * closed;
    uint32_t *stack;
    size_t cap_closed, cap_stack, cap_inputs;
    uint32_t pass;
};

/* A call with its arguments under their parameters. */
struct call {
    uint32_t node;
    const char *name;
    uint32_t param[FUNC_MAX_PARAMS]; /* untyped node, EXPR_NOWHERE where left out */
};

/* check.c */

/* The value of an untyped node, names resolved. Errors where it is a list, a string or None. */
enum err_code check_value(struct checker *c, uint32_t node, struct cval *ret) must_check;
/* An integer parameter that must be known now ("axis"); `code` where it is none. */
enum err_code check_int(struct checker *c, uint32_t node, const char *what, enum err_code code,
                        int64_t *ret) must_check;
/* The text of a quoted string, or of a bare name standing for one; NULL for anything else. */
const char *check_text(struct checker *c, uint32_t node);
/* Whether the parameter was left out or is None. */
bool check_absent(struct checker *c, uint32_t node);
/* The items of a list; one non-list node is a list of itself. */
uint32_t check_items(struct checker *c, uint32_t node, const struct expr_link **ret,
                     struct expr_link *one);
/* Gives the error in c->e the place of `node`. */
enum err_code check_place(struct checker *c, uint32_t node, enum err_code code);

/* check_graph.c: typed nodes, identical ones shared */

enum err_code graph_const(struct checker *c, uint32_t place, struct scalar s,
                          uint32_t *ret) must_check;
enum err_code graph_input(struct checker *c, uint32_t place, const char *name,
                          const struct binding *b, uint32_t *ret) must_check;
enum err_code graph_op(struct checker *c, uint32_t place, enum op op, const uint32_t *args,
                       uint32_t *ret) must_check;
enum err_code graph_op2(struct checker *c, uint32_t place, enum op op, uint32_t a, uint32_t b,
                        uint32_t *ret) must_check;
enum err_code graph_cast(struct checker *c, uint32_t place, uint32_t a, enum dtype t,
                         uint32_t *ret) must_check;
enum err_code graph_where(struct checker *c, uint32_t place, uint32_t cond, uint32_t a, uint32_t b,
                          uint32_t *ret) must_check;
enum err_code graph_index(struct checker *c, uint32_t place, int64_t axis,
                          uint32_t *ret) must_check;
enum err_code graph_unravel(struct checker *c, uint32_t place, uint32_t i, int64_t axis,
                            uint32_t *ret) must_check;
/* offsets: one an axis of a, already reduced to the extents; value: for BOUNDARY_CONSTANT. */
enum err_code graph_shift(struct checker *c, uint32_t place, uint32_t a, const int64_t *offsets,
                          enum boundary_mode mode, uint32_t value, uint32_t *ret) must_check;
enum err_code graph_view(struct checker *c, uint32_t place, uint32_t a, const struct affine *view,
                         int rank, const int64_t *shape, uint32_t *ret) must_check;
enum err_code graph_reduce(struct checker *c, uint32_t place, uint32_t a, enum reduce_op op,
                           double divisor, uint32_t axes, bool keepdims, uint32_t *ret) must_check;
enum err_code graph_scan(struct checker *c, uint32_t place, uint32_t a, enum reduce_op op, int axis,
                         uint32_t *ret) must_check;
/* Ends a scope: every index() and unravel_index() still loose under `a` takes a's shape. An error
 * when a has none of its own. */
enum err_code graph_close(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* As graph_close, for an operand of a function that looks at shapes. What was closed is put behind
 * a view that changes nothing: the function may come to nothing (a shift by 0), and index() must go
 * on meaning the operand's own axes then, whatever surrounds it. */
enum err_code graph_close_operand(struct checker *c, uint32_t place, uint32_t a,
                                  uint32_t *ret) must_check;

/* check_ops.c */

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

/* op over operands of any types: promotion, conversion, literal arithmetic. */
enum err_code ops_apply(struct checker *c, uint32_t place, enum op op, const struct cval *args,
                        struct cval *ret) must_check;
/* A node of the dtype, by astype's rules from a typed value, by fitting from a literal. */
enum err_code ops_convert(struct checker *c, const struct cval *v, enum dtype t,
                          uint32_t *ret) must_check;
/* A node of the value's own dtype; a literal gets the dtype it has alone. */
enum err_code ops_typed(struct checker *c, const struct cval *v, uint32_t *ret) must_check;
/* x != 0, unless it is bool already. */
enum err_code ops_truth(struct checker *c, const struct cval *v, uint32_t *ret) must_check;
/* astype: 422 for complex to real. */
enum err_code ops_astype(struct checker *c, const struct cval *v, enum dtype t, uint32_t place,
                         uint32_t *ret) must_check;

enum err_code ops_where(struct checker *c, const struct call *call, struct cval *ret) must_check;
enum err_code ops_astype_call(struct checker *c, const struct call *call,
                              struct cval *ret) must_check;
enum err_code ops_clip(struct checker *c, const struct call *call, struct cval *ret) must_check;
enum err_code ops_lerp(struct checker *c, const struct call *call, struct cval *ret) must_check;
/* addcmul and addcdiv: t + v·x·y and t + v·x/y. */
enum err_code ops_addc(struct checker *c, const struct call *call, enum op op,
                       struct cval *ret) must_check;

/* check_stencil.c */

enum err_code stencil_getitem(struct checker *c, uint32_t node, struct cval *ret) must_check;
enum err_code stencil_index(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
enum err_code stencil_unravel(struct checker *c, const struct call *call,
                              struct cval *ret) must_check;
enum err_code stencil_shift(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
/* forward_diff, back_diff */
enum err_code stencil_one_sided(struct checker *c, const struct call *call, bool forward,
                                struct cval *ret) must_check;
enum err_code stencil_central(struct checker *c, const struct call *call,
                              struct cval *ret) must_check;
enum err_code stencil_laplacian(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;

/* check_reduce.c */

/* What a reduction is asked for besides its operand. */
struct reduction {
    uint32_t place;
    uint32_t axes; /* bit k: axis k */
    bool keepdims;
};

/* Accumulating in the type `in`: x cast to it, then reduced; the cast alone without axes. */
enum err_code reduce_in(struct checker *c, const struct reduction *r, uint32_t x, enum reduce_op op,
                        enum dtype in, uint32_t *ret) must_check;
/* The dtype of a sum: integers and bools in 64 bits, others as they are. */
enum dtype reduce_sum_dtype(enum dtype t);
enum err_code reduce_call(struct checker *c, const struct call *call, enum func func,
                          struct cval *ret) must_check;

/* cumulative_sum, cumulative_prod */
enum err_code scan_call(struct checker *c, const struct call *call, enum reduce_op op,
                        struct cval *ret) must_check;

/* check_moments.c; x's scope is closed */

enum err_code moments_mean(struct checker *c, const struct reduction *r, uint32_t x,
                           uint32_t *ret) must_check;
/* The variance, or its root; NaN where the count is not above the correction. */
enum err_code moments_var(struct checker *c, const struct reduction *r, uint32_t x,
                          uint32_t correction_node, bool root, uint32_t *ret) must_check;
enum err_code moments_norm(struct checker *c, const struct reduction *r, uint32_t x,
                           uint32_t *ret) must_check;
enum err_code moments_dot(struct checker *c, const struct call *call, struct cval *ret) must_check;

#endif
