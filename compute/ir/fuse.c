/* Cutting a graph into kernels.
 *
 * A kernel may hold any elementwise code, so everything is one kernel unless there is a reason: a
 * reduction or a scan ends a kernel; each piece of a T_PUT has its own; operands of reshapes and
 * gathers lie in memory; a subexpression read at several offsets, or through several views, would
 * be computed once for each, so it becomes a temporary beyond a budget, or if one kernel could not
 * load its operands for each; and a kernel that would exceed the limits cuts off its largest
 * operand. Sizes are those of the expanded tree (shared nodes count each time), an upper bound of
 * what lowering emits: sharing within a kernel only makes it smaller. For a graph without such
 * reads whose nodes all fit one kernel that bound is not used, since value numbering emits each
 * node at most once there. */
#include "compute/ir/fuse.h"

#include <string.h>

static uint32_t weight(const struct typed *t, const struct typed_node *n)
{
    switch (n->kind) {
    case T_SHIFT: /* of an operand: a load, which that counts for */
        return t->nodes[n->args[0]].kind != T_INPUT;
    case T_CONST:
    case T_VIEW:
    case T_GUARDED:
        return 0;
    case T_RANDOM:
        return 24;
    case T_GATHER:
    case T_TABLE:
        return 4;
    case T_OP:
        return op_cost(n->op, n->dtype);
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

/* Whether it may become a temporary: constants and bare operands gain nothing by it. */
static bool cuttable(const struct typed *t, const struct fuse_node *f, uint32_t i)
{
    return !trivial(t, f, i);
}

/* Operands of a potential kernel: the first 64 inputs exactly, all others as an upper bound. */
struct operands {
    uint64_t inputs;
    uint32_t others;
};

static uint32_t operand_count(const struct operands *o)
{
    uint32_t n = (uint32_t)__builtin_popcountll(o->inputs);
    return o->others > UINT32_MAX - n ? UINT32_MAX : o->others + n;
}

static uint32_t sat_add(uint32_t a, uint32_t b)
{
    uint32_t s;
    return __builtin_add_overflow(a, b, &s) ? UINT32_MAX : s;
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

/* How a node is read. */
struct reads {
    uint32_t shifts, views;
    int64_t extent;  /* points at which the kernel computes it */
    int64_t points;  /* elements of it that views compute, together; one of them no more than all */
    uint32_t places; /* how often an element is computed; of what only shifts read, by the shifts */
};

static int64_t n_elements(const struct typed_node *n)
{
    int64_t size = 1;
    for (int a = 0; a < n->rank; a++)
        size *= n->shape[a];
    return size;
}

static void count_reads(const struct typed *t, struct reads *r)
{
    for (uint32_t i = t->n_nodes; i-- > 0;) { /* who reads a node comes after it */
        const struct typed_node *n = &t->nodes[i];
        if (r[i].extent < n_elements(n))
            r[i].extent = n_elements(n);
        for (int a = 0; a < n->n_args; a++) {
            struct reads *of = &r[n->args[a]];
            const struct typed_node *arg = &t->nodes[n->args[a]];
            const bool view = n->kind == T_VIEW;
            if (n->kind == T_SHIFT && a == 0)
                of->shifts++;
            if (view) {
                of->views++;
                of->points += r[i].extent < n_elements(arg) ? r[i].extent : n_elements(arg);
            }
            if (view ? arg->kind == T_VIEW : a > 0 || !typed_closes_scope(n->kind))
                of->extent = of->extent > r[i].extent ? of->extent : r[i].extent;
        }
    }
}

/* Whether there is a shift, or a node whose elements views would compute several times. */
static bool count_places(const struct typed *t, const uint32_t *users, struct reads *r)
{
    bool any = false;
    count_reads(t, r);
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        struct reads *x = &r[i];
        const int64_t size = n_elements(&t->nodes[i]);
        x->places = x->shifts;
        if (x->views && size > 0) {
            const bool itself = users[i] > x->shifts + x->views;
            x->places += (uint32_t)((x->points + size / 2) / size) + itself;
        }
        any |= x->shifts || (x->places > 1 && t->nodes[i].kind != T_INPUT);
    }
    return any;
}

struct fuse_node *fuse_mark(struct arena *arena, const struct typed *t,
                            const struct fuse_limits *limits)
{
    uint32_t n_nodes = t->n_nodes;
    struct fuse_node *f = arena_alloc_array(arena, n_nodes, sizeof *f);
    uint32_t *cost = arena_alloc_array(arena, n_nodes, sizeof *cost);
    struct operands *loads = arena_alloc_array(arena, n_nodes, sizeof *loads);
    struct reads *reads = arena_alloc_array(arena, n_nodes, sizeof *reads);
    uint32_t *users = arena_alloc_array(arena, n_nodes, sizeof *users);
    if (!f || !cost || !loads || !reads || !users)
        return NULL;

    uint64_t total = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        const struct typed_node *n = &t->nodes[i];
        total += weight(t, n);
        for (int a = 0; a < n->n_args; a++)
            users[n->args[a]]++;
    }
    bool fits = !count_places(t, users, reads) && total <= limits->max_nodes &&
                t->n_inputs <= limits->max_inputs;

    for (uint32_t i = 0; i < n_nodes; i++) {
        const struct typed_node *n = &t->nodes[i];
        f[i].depends = n->kind == T_INDEX || n->kind == T_UNRAVEL;
        for (int a = 0; a < n->n_args; a++)
            if (!(a == 0 && typed_closes_scope(n->kind)))
                f[i].depends |= f[n->args[a]].depends;
        cut_operands(t, f, users, i);

        for (;;) {
            cost[i] = weight(t, n);
            loads[i] = (struct operands){0};
            if (n->kind == T_PUT)
                break; /* no code of its own */
            if (n->kind == T_INPUT && n->input < 64)
                loads[i].inputs = 1ull << n->input;
            else if (n->kind == T_INPUT)
                loads[i].others = 1;
            int largest = -1;
            for (int a = 0; a < n->n_args; a++) {
                uint32_t c = n->args[a];
                cost[i] = sat_add(cost[i], f[c].cut ? 1 : cost[c]);
                loads[i].inputs |= f[c].cut ? 0 : loads[c].inputs;
                loads[i].others = sat_add(loads[i].others, f[c].cut ? 1 : loads[c].others);
                if (cuttable(t, f, c) && (largest < 0 || cost[c] > cost[n->args[largest]]))
                    largest = a;
            }
            if (fits || largest < 0 ||
                (cost[i] <= limits->max_nodes && operand_count(&loads[i]) <= limits->max_inputs))
                break;
            f[n->args[largest]].cut = true;
        }
        if (n->kind == T_REDUCE || n->kind == T_SCAN || n->kind == T_PUT)
            f[i].cut = true;
        else if (reads[i].places > 1 && cuttable(t, f, i) &&
                 ((uint64_t)cost[i] * reads[i].places > limits->recompute ||
                  (uint64_t)loads[i].others * reads[i].places > limits->max_inputs))
            f[i].cut = true;
    }
    f[t->root].cut = true;
    assign_scopes(t, f);
    return f;
}
