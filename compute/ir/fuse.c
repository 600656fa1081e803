/* Cutting a graph into kernels.
 *
 * A kernel may hold any elementwise code, so everything is one kernel unless there is a reason: a
 * reduction or a scan ends a kernel; each piece of a T_PUT has its own; operands of reshapes and
 * gathers lie in memory; what kernels would compute several times becomes a temporary beyond a
 * budget (fuse_places.c); and a kernel that would then exceed the limits cuts off its largest
 * operands. To find those, sizes are taken of the expanded tree (shared nodes count each time):
 * an upper bound of what lowering emits, but for fast_math, with which an add of a product and a
 * cast of halves weigh nothing here: by ir_weight, which counts them, a kernel may then be up to
 * about twice as large as the limit. */
#include "compute/ir/fuse_int.h"

/* Whether it adds a product, which with fast_math is one operation. */
static bool contracts(const struct typed *t, const struct typed_node *n)
{
    bool yes = false;
    for (int a = 0; a < n->n_args && t->fast_math && n->op == OP_ADD; a++) {
        const struct typed_node *x = &t->nodes[n->args[a]];
        yes |= x->kind == T_OP && x->op == OP_MULTIPLY && dtype_kind(x->dtype) == KIND_FLOAT;
    }
    return yes;
}

uint32_t fuse_weight(const struct typed *t, const struct typed_node *n)
{
    switch (n->kind) {
    case T_SHIFT: /* of an operand: a load, which that counts for */
        return t->nodes[n->args[0]].kind != T_INPUT;
    case T_CONST:
    case T_VIEW:
    case T_GUARDED:
        return 0;
    case T_CAST: /* of halves: as those that lowering adds to their operations */
        return !t->fast_math || !dtype_is_half(t->nodes[n->args[0]].dtype);
    case T_RANDOM:
        return 24;
    case T_GATHER:
    case T_TABLE:
        return 4;
    case T_OP:
        return contracts(t, n) ? 0 : op_cost(n->op, n->dtype);
    default:
        return 1;
    }
}

/* Computing it again costs no more than loading it. */
static bool trivial(const struct typed *t, const struct fuse_node *f, uint32_t i)
{
    for (;;) {
        const struct typed_node *n = &t->nodes[i];
        if (f[i].cut || n->kind == T_INPUT || n->kind == T_CONST || n->kind == T_INDEX ||
            n->kind == T_RESHAPE || (n->kind == T_SHIFT && n->shift.mode == BOUNDARY_GHOST))
            return true;
        if (n->kind != T_VIEW && n->kind != T_CAST)
            return false;
        i = n->args[0];
    }
}

bool fuse_cuttable(const struct typed *t, const struct fuse_node *f, uint32_t i)
{
    return !trivial(t, f, i);
}

struct fuse_size fuse_own_size(const struct typed *t, const struct fuse_node *f, uint32_t i)
{
    const struct typed_node *n = &t->nodes[i];
    const bool loads = n->kind == T_INPUT || f[i].cut;
    struct fuse_size x = {.nodes = loads ? 1 : fuse_weight(t, n)};
    if (n->kind == T_INPUT && n->input < 64)
        x.inputs = 1ull << n->input;
    else
        x.others = loads;
    return x;
}

/* Shapes that scope-dependent nodes are evaluated over, from the root down. */
static void assign_scopes(const struct typed *t, struct fuse_node *f)
{
    f[t->root].scoped = true;
    f[t->root].scope_rank = t->nodes[t->root].rank;
    f[t->root].scope_shape = t->nodes[t->root].shape;
    for (uint32_t i = t->root + 1; i-- > 0;) {
        const struct typed_node *n = &t->nodes[i];
        if (!f[i].scoped)
            continue;
        for (int a = 0; a < n->n_args; a++) {
            struct fuse_node *c = &f[n->args[a]];
            if (c->scoped)
                continue;
            c->scoped = true;
            if (a == 0 && typed_closes_scope(n->kind)) {
                c->scope_rank = t->nodes[n->args[0]].rank;
                c->scope_shape = t->nodes[n->args[0]].shape;
            } else {
                c->scope_rank = f[i].scope_rank;
                c->scope_shape = f[i].scope_shape;
            }
        }
    }
}

/* Marks operands that must lie in memory, except those that are written directly to their place. */
static void cut_operands(const struct typed *t, struct fuse_node *f, const uint32_t *users,
                         uint32_t i)
{
    const struct typed_node *n = &t->nodes[i];
    if ((n->kind == T_RESHAPE || n->kind == T_GATHER) && t->nodes[n->args[0]].kind != T_INPUT)
        f[n->args[0]].cut = true;
    if (n->kind == T_GUARDED)
        f[n->args[1]].cut = true;
    if (n->kind != T_PUT)
        return;
    if (users[n->args[0]] == 1)
        f[n->args[0]].cut = false;
    if (n->n_args > 1)
        f[n->args[1]].cut = false;
}

/* Marks what is cut whatever it costs. */
static void cut_always(const struct typed *t, struct fuse_node *f, const uint32_t *users)
{
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const enum typed_kind kind = t->nodes[i].kind;
        cut_operands(t, f, users, i);
        f[i].cut |= kind == T_REDUCE || kind == T_SCAN || kind == T_PUT;
    }
}

/* Cuts the node's largest operands off, until the node with what is left of them is within the
 * limits; `large`: it is computed in a kernel that is not. */
static void cut_large(const struct typed *t, struct fuse_node *f, const struct fuse_limits *limits,
                      bool large, struct fuse_size *size, uint32_t i)
{
    const struct typed_node *n = &t->nodes[i];
    for (;;) {
        int largest = -1;
        size[i] = (struct fuse_size){.nodes = fuse_weight(t, n)};
        if (n->kind == T_INPUT)
            size[i] = fuse_own_size(t, f, i);
        for (int a = 0; a < n->n_args && n->kind != T_PUT; a++) { /* that has no code of its own */
            const uint32_t c = n->args[a];
            const struct fuse_size load = fuse_own_size(t, f, c);
            fuse_add_size(&size[i], f[c].cut ? &load : &size[c]);
            if (fuse_cuttable(t, f, c) &&
                (largest < 0 || size[c].nodes > size[n->args[largest]].nodes))
                largest = a;
        }
        if (!large || largest < 0 || !fuse_is_large(&size[i], limits))
            return;
        f[n->args[largest]].cut = true;
    }
}

struct fuse_node *fuse_mark(struct arena *arena, const struct typed *t,
                            const struct fuse_limits *limits)
{
    uint32_t n_nodes = t->n_nodes;
    struct fuse_node *f = arena_alloc_array(arena, n_nodes, sizeof *f);
    struct fuse_size *size = arena_alloc_array(arena, n_nodes, sizeof *size);
    uint32_t *users = arena_alloc_array(arena, n_nodes, sizeof *users);
    bool *large = arena_alloc_array(arena, n_nodes, sizeof *large);
    if (!f || !size || !users || !large)
        return NULL;
    for (uint32_t i = 0; i < n_nodes; i++)
        for (int a = 0; a < t->nodes[i].n_args; a++)
            users[t->nodes[i].args[a]]++;
    cut_always(t, f, users);
    if (!fuse_cut_repeated(arena, t, f, limits, large))
        return NULL;
    for (uint32_t i = 0; i < n_nodes; i++) {
        const struct typed_node *n = &t->nodes[i];
        f[i].depends = n->kind == T_INDEX || n->kind == T_UNRAVEL;
        for (int a = 0; a < n->n_args; a++)
            if (!(a == 0 && typed_closes_scope(n->kind)))
                f[i].depends |= f[n->args[a]].depends;
        cut_large(t, f, limits, large[i], size, i);
    }
    f[t->root].cut = true;
    assign_scopes(t, f);
    return f;
}
