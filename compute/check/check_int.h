/* The checker's inside, shared by the check_*.c files only: check.c walks the tree and resolves
 * names, check_graph.c builds typed nodes and closes scopes, check_ops.c types the elementwise
 * operations, check_stencil.c, check_rearrange.c, check_reduce.c and the others the functions that
 * look at
 * shapes.
 *
 * All of it is arena memory of one check_expr call. */
#ifndef ARRAYD_CHECK_INT_H
#define ARRAYD_CHECK_INT_H

#include "compute/check/check.h"
#include "compute/lang/call.h"
#include "compute/lang/func.h"

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

/* A call with its arguments under their parameters. */
struct call {
    uint32_t node;
    const char *name;
    uint32_t param[FUNC_MAX_PARAMS]; /* untyped node, EXPR_NOWHERE where left out */
};

/* check.c */

/* The value of an untyped node, names resolved. Errors where it is a string or None. */
enum err_code check_value(struct checker *c, uint32_t node, struct cval *ret) must_check;
/* An integer parameter that must be known now ("axis"); `code` where it is none. */
enum err_code check_int(struct checker *c, uint32_t node, const char *what, enum err_code code,
                        int64_t *ret) must_check;
/* The text of a quoted string, or of a bare name standing for one; NULL for anything else. */
const char *check_text(struct checker *c, uint32_t node);
/* Whether the parameter was left out or is None. */
bool check_absent(struct checker *c, uint32_t node);
/* A list of at most `most` integers (each called `what`), or one; `code` where it is none. Their
 * nodes where ret_nodes is not NULL. */
enum err_code check_ints(struct checker *c, uint32_t node, const char *what, enum err_code code,
                         uint32_t most, uint32_t *ret_n, int64_t *ret_values,
                         uint32_t *ret_nodes) must_check;
/* A shape that an array of that dtype can have; `unknown`: one extent may be −1, its axis in
 * *unknown, else −1. */
enum err_code check_shape(struct checker *c, uint32_t node, enum dtype t, int *unknown,
                          int *ret_rank, int64_t *ret) must_check;
/* The items of a list; one non-list node is a list of itself. */
uint32_t check_items(struct checker *c, uint32_t node, const struct expr_link **ret,
                     struct expr_link *one);
/* An argument as a typed node with its scope closed (graph_close_operand). */
enum err_code check_operand(struct checker *c, uint32_t node, uint32_t *ret) must_check;
/* An axis of an array of that rank, from either end. */
enum err_code check_axis(struct checker *c, uint32_t node, int rank, int *ret) must_check;
/* A list of axes or one, each once, as bits; all where the parameter is absent. */
enum err_code check_axes(struct checker *c, uint32_t node, int rank, uint32_t *ret) must_check;
/* The boundary and value arguments of functions that look past an array's edge. */
struct edge {
    enum boundary_mode mode;
    bool array;     /* the array's own, whatever `mode` */
    uint32_t place; /* where it is named */
    uint32_t value; /* untyped node, EXPR_NOWHERE for 0 */
};
enum err_code check_edge(struct checker *c, uint32_t boundary, uint32_t value,
                         struct edge *ret) must_check;
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
/* The index along an axis of an array of that shape: closed, an operand like any other. */
enum err_code graph_index_of(struct checker *c, uint32_t place, int axis, int rank,
                             const int64_t *shape, uint32_t *ret) must_check;
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
/* A view that changes nothing: what is loose under it keeps its shape. */
enum err_code graph_same(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* The node, new or already there. Its shape is copied unless it is that of an argument. */
enum err_code graph_add(struct checker *c, uint32_t place, struct typed_node *n, unsigned flags,
                        uint32_t *ret) must_check;
/* A node as `id` is, of other arguments, with the shapes and types that its own have. */
enum err_code graph_with_args(struct checker *c, uint32_t id, const uint32_t *args,
                              uint32_t *ret) must_check;
/* Ends a scope: every index() and unravel_index() still loose under `a` takes a's shape. An error
 * when a has none of its own. */
enum err_code graph_close(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* As graph_close, for an operand of a function that looks at shapes. What was closed is put behind
 * a view that changes nothing: the function may come to nothing (a shift by 0), and index() must go
 * on meaning the operand's own axes then, whatever surrounds it. */
enum err_code graph_close_operand(struct checker *c, uint32_t place, uint32_t a,
                                  uint32_t *ret) must_check;

/* check_memory.c: what is read or written by place. Operands are closed. */

/* The same number of elements, in C order. */
enum err_code graph_reshape(struct checker *c, uint32_t place, uint32_t a, int rank,
                            const int64_t *shape, uint32_t *ret) must_check;
/* As it is, computed once into memory. */
enum err_code graph_stored(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* Elements i (int64) of a in C order, clamped to it; a is not empty unless i is. */
enum err_code graph_gather(struct checker *c, uint32_t place, uint32_t a, uint32_t i,
                           uint32_t *ret) must_check;
/* Number i (int64) of n ≥ 1 known ones (kept: arena memory), clamped to them. */
enum err_code graph_table(struct checker *c, uint32_t place, const int64_t *v, int64_t n,
                          uint32_t i, uint32_t *ret) must_check;
/* n ≥ 1 arrays of one dtype behind each other along an axis; their other extents agree. */
enum err_code graph_concat(struct checker *c, uint32_t place, const uint32_t *parts, uint32_t n,
                           int axis, uint32_t *ret) must_check;

/* check_finish.c: what the root does not need goes, guards stay for what it does. */
enum err_code check_finish(struct checker *c) must_check;

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
/* The promoted type of operands of which at least one is typed, or of literals alone. */
enum err_code ops_promote(struct checker *c, const struct cval *args, int n,
                          enum dtype *ret) must_check;
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
enum err_code stencil_gradient(struct checker *c, const struct call *call,
                               struct cval *ret) must_check;
enum err_code stencil_correlate(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;

/* check_rearrange.c */

/* New axes of extent 1: bit k of `fresh` for axis k of the result. */
enum err_code rearrange_expand(struct checker *c, uint32_t place, uint32_t x, uint32_t fresh,
                               uint32_t *ret) must_check;
enum err_code rearrange_broadcast(struct checker *c, uint32_t place, uint32_t x, int rank,
                                  const int64_t *shape, uint32_t *ret) must_check;
enum err_code rearrange_call(struct checker *c, const struct call *call, enum func func,
                             struct cval *ret) must_check;

/* check_gather.c */

enum err_code gather_take(struct checker *c, const struct call *call, struct cval *ret) must_check;
enum err_code gather_take_along(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;
/* x's slices along an axis by their numbers, an int64 node of rank 1 that is within the axis. */
enum err_code gather_slices(struct checker *c, uint32_t place, uint32_t x, int axis, uint32_t i,
                            uint32_t *ret) must_check;

/* check_sample.c */

enum err_code sample_call(struct checker *c, const struct call *call, struct cval *ret) must_check;

/* check_pieces.c: concat and stack; repeat and tile */

enum err_code pieces_concat(struct checker *c, const struct call *call, bool is_stack,
                            struct cval *ret) must_check;
/* A list where a value is wanted: its items stacked, as numpy.asarray has it. */
enum err_code pieces_list(struct checker *c, uint32_t node, struct cval *ret) must_check;
enum err_code pieces_repeat(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
enum err_code pieces_tile(struct checker *c, const struct call *call, struct cval *ret) must_check;

/* check_ghost.c: the modes `ghost` and `array` of a closed node */

/* ERR_GHOST_WIDTH, with the place of what has too few ghosts. */
enum err_code ghost_shift(struct checker *c, uint32_t place, uint32_t x, const int64_t *offsets,
                          uint32_t *ret) must_check;
/* ERR_BAD_BOUNDARY; `at` is where the boundary is named. */
enum err_code array_shift(struct checker *c, uint32_t place, uint32_t at, uint32_t x,
                          const int64_t *offsets, uint32_t *ret) must_check;
/* The array's own spacing along an axis; ERR_BAD_EXPRESSION at `at` unless x is an array. */
enum err_code array_spacing(struct checker *c, uint32_t at, uint32_t x, int axis,
                            struct cval *ret) must_check;
/* The grid whose boundary is meant; ERR_BAD_BOUNDARY at `at` unless x is an array that has one. */
enum err_code array_boundary(struct checker *c, uint32_t at, uint32_t x,
                             const struct grid **ret) must_check;

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
