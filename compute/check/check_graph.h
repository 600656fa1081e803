/* Building the typed graph: nodes, views, scopes, and operands laid out in memory.
 *
 * The foundation of this directory, called by every file above. It knows nothing of calls, and of
 * untyped nodes only their places (`place`), which errors are given. Operands already agree as
 * typed.h demands. Nodes never change once made, so ids stay valid; pointers into c->t->nodes do
 * not outlive the next call. */
#ifndef ARRAYD_CHECK_GRAPH_H
#define ARRAYD_CHECK_GRAPH_H

#include "compute/check/checker.h"

/* check_graph.c: typed nodes, identical ones shared */

enum err_code graph_const(struct checker *c, uint32_t place, struct scalar s,
                          uint32_t *ret) must_check;
enum err_code graph_input(struct checker *c, uint32_t place, const char *name,
                          const struct binding *b, uint32_t *ret) must_check;
enum err_code graph_op(struct checker *c, uint32_t place, enum op op, const uint32_t *args,
                       uint32_t *ret) must_check;
enum err_code graph_op2(struct checker *c, uint32_t place, enum op op, uint32_t a, uint32_t b,
                        uint32_t *ret) must_check;
/* A constant of int64, and an operation on an int64 node and such a constant. */
enum err_code graph_int(struct checker *c, uint32_t place, int64_t v, uint32_t *ret) must_check;
enum err_code graph_op_int(struct checker *c, uint32_t place, enum op op, uint32_t a, int64_t b,
                           uint32_t *ret) must_check;
enum err_code graph_cast(struct checker *c, uint32_t place, uint32_t a, enum dtype t,
                         uint32_t *ret) must_check;
enum err_code graph_where(struct checker *c, uint32_t place, uint32_t cond, uint32_t a, uint32_t b,
                          uint32_t *ret) must_check;
enum err_code graph_index(struct checker *c, uint32_t place, int64_t axis,
                          uint32_t *ret) must_check;
/* The index along an axis of an array of that shape: closed, an ordinary operand. */
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
/* An identity view: loose nodes under it keep its shape. */
enum err_code graph_same(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* The node, new or existing. Its shape is copied unless it is an argument's. */
enum err_code graph_add(struct checker *c, uint32_t place, struct typed_node *n, unsigned flags,
                        uint32_t *ret) must_check;
/* A copy of node `id` with other arguments, of the same shapes and types as its own. */
enum err_code graph_with_args(struct checker *c, uint32_t id, const uint32_t *args,
                              uint32_t *ret) must_check;
/* Ends a scope: every index() and unravel_index() still loose under `a` takes a's shape. An error
 * when a has none of its own. */
enum err_code graph_close(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* As graph_close, for an operand of a function that looks at shapes. The closed node is put behind
 * an identity view: if the function turns out to do nothing (a shift by 0), index() must still mean
 * the operand's own axes, whatever surrounds it. */
enum err_code graph_close_operand(struct checker *c, uint32_t place, uint32_t a,
                                  uint32_t *ret) must_check;

/* check_memory.c: moving elements. Operands are closed. */

/* The identity view. */
static inline struct affine affine_same(int rank)
{
    struct affine a = {.rank = rank};
    for (int k = 0; k < rank; k++) {
        a.src[k] = (int8_t)k;
        a.step[k] = 1;
    }
    return a;
}

/* Checks that an array can have the shape: its byte count fits. */
enum err_code graph_fits(struct checker *c, uint32_t place, enum dtype t, int rank,
                         const int64_t *shape) must_check;
/* One value everywhere, broadcast. */
enum err_code graph_filled(struct checker *c, uint32_t place, struct scalar s, int rank,
                           const int64_t *shape, uint32_t *ret) must_check;
/* New axes of extent 1: bit k of `fresh` for axis k of the result. */
enum err_code graph_expand(struct checker *c, uint32_t place, uint32_t x, uint32_t fresh,
                           uint32_t *ret) must_check;
enum err_code graph_broadcast(struct checker *c, uint32_t place, uint32_t x, int rank,
                              const int64_t *shape, uint32_t *ret) must_check;
/* The same number of elements, in C order. */
enum err_code graph_reshape(struct checker *c, uint32_t place, uint32_t a, int rank,
                            const int64_t *shape, uint32_t *ret) must_check;
/* The windows[i] elements of a along axes[i], i < n, from each position on where they are inside:
 * as further axes. They fit into a. */
enum err_code graph_windows(struct checker *c, uint32_t place, uint32_t a, int n, const int *axes,
                            const int64_t *windows, uint32_t *ret) must_check;
/* The same elements, computed once into memory. */
enum err_code graph_stored(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret) must_check;
/* Elements number i (int64) of a in C order, clamped to it; a is not empty unless i is. */
enum err_code graph_gather(struct checker *c, uint32_t place, uint32_t a, uint32_t i,
                           uint32_t *ret) must_check;
/* Number i (int64) of n ≥ 1 known numbers (not copied: arena memory), clamped to them. */
enum err_code graph_table(struct checker *c, uint32_t place, const int64_t *v, int64_t n,
                          uint32_t i, uint32_t *ret) must_check;
/* n ≥ 1 arrays of one dtype concatenated along an axis; their other extents agree. */
enum err_code graph_concat(struct checker *c, uint32_t place, const uint32_t *parts, uint32_t n,
                           int axis, uint32_t *ret) must_check;

/* check_finish.c: drops what the root does not need, keeps guards for what it does. */
enum err_code check_finish(struct checker *c) must_check;

#endif
