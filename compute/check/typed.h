/* The typed expression: check.c makes it from an untyped tree, lower.c compiles it.
 *
 * A directed acyclic graph in one array, children before parents, identical nodes shared (hash
 * consing), composite functions (laplacian, clip, mean, …) already expanded into these primitives,
 * every conversion explicit. float16 and bfloat16 nodes still have their own type here; lower.c
 * legalises them. Arena memory. */
#ifndef ARRAYD_TYPED_H
#define ARRAYD_TYPED_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/type/dtype.h"
#include "compute/type/layout.h"
#include "compute/type/op.h"
#include "compute/type/reduce.h"

enum typed_kind {
    T_CONST,   /* scalar `value`, rank 0 */
    T_INPUT,   /* input number `input`, with its own shape */
    T_OP,      /* op(args…): operands of one dtype (op.def), broadcast together */
    T_CAST,    /* args[0] as `dtype` */
    T_WHERE,   /* args[0] bool ? args[1] : args[2], both of `dtype` */
    T_SHIFT,   /* result[i] = args[0][i + offsets], boundary `mode`; T_SHIFT's shape is args[0]'s;
                  args[1]: the value for BOUNDARY_CONSTANT (a T_CONST of the same dtype) */
    T_INDEX,   /* the element's index along `axis` of the enclosing scope (int64), which is also
                  this node's shape */
    T_UNRAVEL, /* args[0] (int64) unravelled in the enclosing scope's shape, along `axis` */
    T_VIEW,    /* affine re-indexing of args[0]: getitem (and broadcast, permute) */
    T_REDUCE,  /* args[0] reduced by `reduce` over the axes of `axes`; of args[0]'s dtype, or
                  int64 (reduce_is_arg) */
    T_SCAN,    /* args[0] accumulated along an axis: its elements up to and including each one; same
                  dtype and shape */
    T_RESHAPE, /* args[0]'s elements in C order under this node's shape, or as far apart as
                  `strides` say; args[0] is neither T_INPUT nor T_CONST: it is laid out in memory */
    T_GATHER,  /* element args[1] (int64, of this node's shape) of args[0], read as one row in C
                  order; numbers past its ends read the first or last. args[0] is a contiguous
                  T_INPUT, or neither T_INPUT nor T_CONST, and is laid out in memory; it is not
                  empty unless this node is */
    T_TABLE,   /* number args[0] (int64) of `table`; numbers past its ends read the first or last */
    T_PUT, /* an array in pieces: args[0] lies at put.offset along put.axis of this node's shape,
              beside the pieces of args[1], a T_PUT of the same shape, if any. Only the last node of
              such a chain has all pieces, and only it has other users */
    T_GUARDED, /* args[0], the root only: args[1] (bool, rank 0 or 1) is computed too, and reported
                  separately (typed_guards) */
    T_RANDOM   /* Philox uniform/normal/integers by element index args[0] (int64): creators only */
};

enum boundary_mode {
    BOUNDARY_SELF,
    BOUNDARY_CLAMP,
    BOUNDARY_WRAP,
    BOUNDARY_REFLECT,
    BOUNDARY_SYMMETRIC,
    BOUNDARY_CONSTANT,
    BOUNDARY_GHOST /* of a T_INPUT only: elements around its view, the array's ghosts */
};

enum random_dist { RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_INTEGERS };
struct random_params {
    enum random_dist dist;
    uint64_t seed;
    struct scalar low, high; /* INTEGERS: int64/uint64 bounds [low, high); UNIFORM, NORMAL: unused
                                (scaled by ordinary operations around the node) */
};

/* Numbers known when the expression is checked. */
struct number_table {
    int64_t n; /* ≥ 1 */
    const int64_t *v;
};

/* args[0]'s index along its axis k is start[k] + step[k]·i[src[k]], or start[k] where src[k] is -1.
 * Each axis of the result is named by at most one k; unnamed ones are new (repeat the same data).
 */
struct affine {
    int rank; /* of args[0] */
    int8_t src[MAX_RANK];
    int64_t start[MAX_RANK], step[MAX_RANK];
};

struct typed_node {
    enum typed_kind kind;
    enum dtype dtype;
    /* Inside the checker: the shape is not known yet, the node holds T_INDEX/T_UNRAVEL and no array
     * (rank is 0 meanwhile). In a finished graph no node is open: T_INDEX, T_UNRAVEL and all nodes
     * between them and their scope's root have the scope's shape. */
    bool open;
    int rank;
    const int64_t *shape;
    int n_args;
    uint32_t args[3];
    union {
        enum op op;
        struct scalar value;
        uint32_t input;
        struct {
            const int64_t *offsets; /* rank of them */
            enum boundary_mode mode;
        } shift;
        int axis; /* T_INDEX, T_UNRAVEL: ≥ 0 */
        const struct affine *view;
        const int64_t *strides; /* T_RESHAPE: rank of them, which may make elements appear more
                                   often than once; NULL: C order */
        struct {
            enum reduce_op op;
            uint32_t axes; /* bit k: axis k is reduced */
            bool keepdims;
            double divisor; /* of reduce_divides(), else 0 */
        } reduce;
        struct {
            enum reduce_op op; /* SUM, PROD */
            int axis;
        } scan;
        struct {
            int axis;
            int64_t offset;
        } put;
        const struct random_params *random;
        const struct number_table *table;
    };
};

/* Whether args[0] is evaluated in a scope of its own, with its own shape. */
static inline bool typed_closes_scope(enum typed_kind k)
{
    return k == T_SHIFT || k == T_REDUCE || k == T_SCAN || k == T_VIEW || k == T_RESHAPE ||
           k == T_GATHER || k == T_PUT;
}

struct array;
struct grid;

/* An array operand: a view with a dtype; `array` comes from the resolver, opaque to check/lower.
 * `dtype` is the type the memory is read as: that of its T_INPUT nodes, except that bools stored as
 * arbitrary bytes are read as uint8 and become x != 0. */
struct typed_input {
    struct array *array;
    enum dtype dtype;
    struct view view;
    const char *name;        /* as written */
    const struct grid *grid; /* the array's, for the checker; NULL without a grid */
    bool target;             /* the result is written to it: the expression did not name it */
};

struct typed_guards;

/* A correlate() whose weights are an outer product, and what became of it. */
struct typed_factored {
    int rank;
    int64_t shape[MAX_RANK]; /* of the weights */
    uint32_t terms;          /* of all its sums together */
    bool passes;             /* an axis after the other, else sums of sums */
};

struct typed {
    struct typed_node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct typed_input *inputs;
    uint32_t n_inputs, cap_inputs;
    uint32_t root;                     /* the last node; every node is needed for it */
    const struct literal *literal;     /* the root, if it is only a weak literal */
    const struct typed_guards *guards; /* if the root is T_GUARDED, else NULL */
    bool fast_math;                    /* a product and a sum of it may be one operation */
    struct typed_factored *factored;   /* for explain, in the order of the calls */
    uint32_t n_factored;
};

/* Faults that depend on the arrays' contents: indices out of range. (The values computed despite
 * one are wrong, but no other memory is read.) */
struct typed_guard {
    uint32_t place; /* untyped node, for the error */
    const char *message;
};
struct typed_guards {
    struct typed_guard
        *guards; /* for each element of the root's args[1]: true means the fault occurred */
    uint32_t n;
};

const char *boundary_name(enum boundary_mode m);

#endif
