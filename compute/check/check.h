/* Names, types, shapes: untyped tree → typed graph (typed.h), or an error with its place.
 *
 * Called by the engine. Pure apart from the resolver callback; memory is the arena; re-entrant. */
#ifndef ARRAYD_CHECK_H
#define ARRAYD_CHECK_H

#include "compute/base/arena.h"
#include "compute/check/typed.h"
#include "compute/lang/expr.h"

/* The limit for an expression with its functions expanded: far above what 10,000 untyped nodes
 * need, far below what hurts. ERR_EXPRESSION_TOO_LARGE past it. */
#define CHECK_MAX_OPERATIONS (1u << 18)

enum binding_kind { BINDING_NONE, BINDING_ARRAY, BINDING_LITERAL, BINDING_SCALAR };

/* What a name stands for. */
struct binding {
    enum binding_kind kind;
    struct array *array;     /* BINDING_ARRAY: borrowed for as long as the typed graph lives */
    enum dtype dtype;        /* BINDING_ARRAY */
    struct view view;        /* BINDING_ARRAY */
    const struct grid *grid; /* BINDING_ARRAY: lives as long as the array, NULL without a grid */
    struct literal lit;      /* BINDING_LITERAL: a weak scalar from "bind" */
    struct scalar scalar;    /* BINDING_SCALAR: a typed one */
};

struct check_env {
    /* Fills *ret; kind BINDING_NONE for an unknown name (constants like pi are check's own and are
     * tried afterwards). An error only for faults other than an unknown name. */
    enum err_code (*resolve)(void *user, const char *name, struct binding *ret, struct err *e);
    void *user;
    uint32_t max_inputs; /* distinct arrays; ERR_EXPRESSION_TOO_LARGE past it */
    bool fast_math;      /* correlate() may be taken apart (check_correlate.c) */
    uint32_t window;     /* with fast_math: backend.h's */
    /* What its user calls the array that the text calls `name`, which a client may have made up:
     * for errors, read at once. NULL: as the text does. */
    const char *(*called)(void *user, const char *name);
};

/* Types the whole expression. `dtype` ≥ 0 casts the result as astype does (ERR_DTYPE_MISMATCH for
 * complex to real); -1 leaves it. On success the root has a known shape and dtype. Errors carry
 * their place (pointer, offset). */
enum err_code check_expr(struct arena *arena, const struct expr *x, const struct check_env *env,
                         int dtype, struct typed *ret, struct err *e) must_check;

/* Builds nodes directly, for creators (arange, linspace, eye, random, fill) and tests. Each returns
 * EXPR_NOWHERE when memory runs out; operands must already agree as typed.h demands. */
uint32_t typed_const(struct arena *arena, struct typed *t, struct scalar value);
uint32_t typed_add(struct arena *arena, struct typed *t, const struct typed_node *node);

/* The typed graph as text, one node a line ("%3 = add float32 (4, 5) %1 %2"), for explain and
 * ARRAYD_TRACE=expr. */
struct strb;
void typed_print(const struct typed *t, struct strb *out);

#endif
