/* Cutting what kernels would compute several times.
 *
 * A kernel computes a node at its own points and again behind every shift and view on the way from
 * its root, however far above the node they are: each such way is a place. Two kernels that need
 * the node are two places, too. What one place costs is what a kernel of the node's own would: so
 * what repeats within it counts as often, but no longer once it would be cut there, and what its
 * parts share counts once. A node whose places together cost more than the backend's budget becomes
 * a temporary, and one of which each brings so many operands that no kernel could load them all.
 *
 * The nodes are gone through three times. From the root down, to see which may be computed at
 * several places at all: of most graphs none is, or few. From the leaves up, for what a place of
 * each of those costs. And from the root down, to cut: what a cut node needs is then computed for
 * it alone, so nothing below it is cut for the sake of places that have gone. */
#include "compute/ir/fuse_int.h"

#include <string.h>

#define NONE UINT32_MAX
/* Places at which few elements are computed cost little, but there may be millions of them: no more
 * than fill so many kernels. */
#define MOST_KERNELS 2

/* Identical nodes are one (typed.h), so what a kernel computes at one place it computes once. */
struct place {
    uint32_t by;          /* the last shift or view; of a kernel's own points, the cut node */
    uint32_t kernel;      /* number of that kernel's own place */
    uint32_t operand;     /* of the first place that reads with the same strides: one operand */
    uint32_t loaded;      /* of such a first place: the last node that add_operand counted */
    uint32_t first, next; /* of the places beyond this one; the next one beyond the same; or NONE */
    uint32_t node, at;    /* the last node found here, and where that is in `pool` */
    struct fuse_size size; /* a kernel's own place: of the kernel */
};

/* A node at a place: at how many of the kernel's points. */
struct presence {
    uint32_t place;
    int64_t points;
};

struct user {
    uint32_t node;
    int arg;
};

struct spread {
    struct arena *arena;
    const struct typed *t;
    struct fuse_node *f;
    const struct fuse_limits *limits;
    struct place *all;
    size_t n_all, cap_all;
    struct presence *pool;
    size_t n_pool, cap_pool;
    uint32_t *from, *n; /* each node's places: the first in `pool`, how many */
    struct user *users; /* those of node i are number first_user[i] and up to the next node's */
    uint32_t *first_user;
    uint32_t *walk, walks;  /* by node: the last walk in which its operands are computed with it */
    uint64_t *ahead;        /* a bit for each node that the walk comes to yet */
    bool *several;          /* by node: whether it may be computed at several places */
    uint32_t *cost, *loads; /* of those: what a place costs, and the operands that it brings */
    bool oom;
};

static int64_t n_elements(const struct typed_node *n)
{
    int64_t size = 1;
    for (int a = 0; a < n->rank; a++)
        size *= n->shape[a];
    return size;
}

static bool moves(const struct typed_node *n, int arg)
{
    return n->kind == T_VIEW || (n->kind == T_SHIFT && arg == 0);
}

/* Whether both read their operand's elements at the same places; the operands may differ. */
static bool moves_alike(const struct typed_node *a, const struct typed_node *b)
{
    if (a->kind != b->kind || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    if (a->kind == T_SHIFT)
        return a->shift.mode == b->shift.mode &&
               !memcmp(a->shift.offsets, b->shift.offsets, sizeof(int64_t) * (size_t)a->rank);
    const struct affine *x = a->view, *y = b->view;
    for (int i = 0; i < x->rank && x->rank == y->rank; i++)
        if (x->src[i] != y->src[i] || x->start[i] != y->start[i] || x->step[i] != y->step[i])
            return false;
    return x->rank == y->rank;
}

/* --- places --- */

/* `beyond`: another place; NONE: a kernel's own. */
static uint32_t add_place(struct spread *s, uint32_t by, uint32_t beyond)
{
    if (arena_grow(s->arena, (void **)&s->all, &s->cap_all, s->n_all, sizeof *s->all) < 0) {
        s->oom = true;
        return NONE;
    }
    const uint32_t new = (uint32_t)s->n_all++;
    struct place p = {.by = by,
                      .kernel = new,
                      .operand = new,
                      .loaded = NONE,
                      .first = NONE,
                      .next = NONE,
                      .node = NONE};
    if (beyond != NONE) {
        const struct place *from = &s->all[beyond];
        const struct typed_node *nodes = s->t->nodes;
        const bool viewed = from->kernel != beyond && nodes[from->by].kind == T_VIEW;
        p.kernel = from->kernel;
        if (nodes[by].kind == T_SHIFT && !viewed)
            p.operand = from->operand;
        p.next = from->first;
        s->all[beyond].first = new;
    }
    s->all[new] = p;
    return new;
}

static uint32_t place_beyond(struct spread *s, uint32_t place, uint32_t by)
{
    const struct typed_node *nodes = s->t->nodes;
    for (uint32_t i = s->all[place].first; i != NONE; i = s->all[i].next)
        if (moves_alike(&nodes[s->all[i].by], &nodes[by]))
            return i;
    return add_place(s, by, place);
}

/* Node i, whose places are being gathered, is computed here. */
static void add_presence(struct spread *s, uint32_t i, uint32_t place, int64_t points)
{
    struct place *p = &s->all[place];
    if (p->node == i) {
        int64_t *at = &s->pool[p->at].points;
        *at = *at > points ? *at : points;
        return;
    }
    if (arena_grow(s->arena, (void **)&s->pool, &s->cap_pool, s->n_pool, sizeof *s->pool) < 0) {
        s->oom = true;
        return;
    }
    p->node = i;
    p->at = (uint32_t)s->n_pool;
    s->pool[s->n_pool++] = (struct presence){place, points};
    s->n[i]++;
}

/* Sets node i's places, from its users', all of which the walk has come to; no more than so many.
 * True: it has more than any user. If one has as many, that one was left in its kernel in view of
 * what lies below, and so is this node. */
static bool gather(struct spread *s, uint32_t i, uint32_t most)
{
    uint32_t of_user = 0;
    s->from[i] = (uint32_t)s->n_pool;
    s->n[i] = 0;
    for (uint32_t e = s->first_user[i]; e < s->first_user[i + 1]; e++) {
        const struct user u = s->users[e];
        const struct typed_node *n = &s->t->nodes[u.node];
        const bool own = n->kind == T_REDUCE || n->kind == T_SCAN || /* a kernel over all of it */
                         (n->kind == T_PUT && u.arg == 0);
        if (s->walk[u.node] != s->walks)
            continue;
        of_user = of_user > s->n[u.node] ? of_user : s->n[u.node];
        for (uint32_t p = 0; p < s->n[u.node] && s->n[i] < most; p++) {
            const struct presence from = s->pool[s->from[u.node] + p];
            const uint32_t place =
                moves(n, u.arg) ? place_beyond(s, from.place, u.node) : from.place;
            if (s->oom)
                return false;
            add_presence(s, i, place, own ? n_elements(&s->t->nodes[i]) : from.points);
        }
    }
    return s->n[i] > of_user;
}

/* The node's only place is its own kernel's. */
static void open_kernel(struct spread *s, uint32_t i)
{
    const uint32_t place = add_place(s, i, NONE);
    s->from[i] = (uint32_t)s->n_pool;
    s->n[i] = 0;
    if (place != NONE)
        add_presence(s, i, place, n_elements(&s->t->nodes[i]));
}

/* Counts node i as an operand at the place. False: it has been counted at one that loads alike. */
static bool add_operand(struct spread *s, uint32_t i, uint32_t place)
{
    uint32_t *loaded = &s->all[s->all[place].operand].loaded;
    const bool first = *loaded != i;
    *loaded = i;
    return first;
}

static uint32_t count_operands(struct spread *s, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->n[i]; p++)
        n += add_operand(s, i, s->pool[s->from[i] + p].place);
    return n;
}

static void begin_walk(struct spread *s)
{
    s->n_all = s->n_pool = 0;
    s->walks++;
}

/* How often all of the node's elements are computed: at some places only a part is. */
static uint32_t times_computed(const struct spread *s, uint32_t i)
{
    const int64_t size = n_elements(&s->t->nodes[i]);
    double parts = 0;
    for (uint32_t p = 0; p < s->n[i] && size > 0; p++) {
        const int64_t points = s->pool[s->from[i] + p].points;
        parts += points < size ? (double)points / (double)size : 1;
    }
    return (uint32_t)(parts + 0.5);
}

/* --- what a place costs --- */

/* Whether the node, at its places of this walk, is to be a temporary. */
static bool costs_more(const struct spread *s, uint32_t i)
{
    if (!s->several[i])
        return false;
    const uint64_t cost = s->cost[i], times = times_computed(s, i);
    return (times > 1 &&
            (cost * times > s->limits->recompute || s->loads[i] * times > s->limits->max_inputs)) ||
           cost * s->n[i] > MOST_KERNELS * (uint64_t)s->limits->max_nodes;
}

static void put_ahead(struct spread *s, const struct typed_node *n)
{
    for (int a = 0; a < n->n_args; a++)
        s->ahead[n->args[a] / 64] |= 1ull << n->args[a] % 64;
}

/* Removes and returns the last of the nodes ahead, all of which come before `than`; NONE if no node
 * is left. */
static uint32_t take_ahead(struct spread *s, uint32_t than)
{
    for (uint32_t w = than / 64 + 1; w-- > 0;)
        if (s->ahead[w]) {
            const uint32_t bit = 63 - (uint32_t)__builtin_clzll(s->ahead[w]);
            s->ahead[w] &= ~(1ull << bit);
            return w * 64 + bit;
        }
    return NONE;
}

/* Sets what a kernel of node i would compute and load for each of its points, or more than any
 * budget allows twice. Those before it that several places compute are known. */
static void measure(struct spread *s, uint32_t i)
{
    const struct typed_node *nodes = s->t->nodes;
    const uint32_t most = s->limits->recompute / 2;
    uint32_t sum = fuse_weight(s->t, &nodes[i]), loads = 0, at;
    begin_walk(s);
    open_kernel(s, i);
    s->walk[i] = s->walks;
    put_ahead(s, &nodes[i]);
    for (at = take_ahead(s, i); at != NONE && sum <= most && !s->oom; at = take_ahead(s, at)) {
        const struct typed_node *n = &nodes[at];
        const bool more = gather(s, at, NONE);
        const uint32_t places = s->n[at];
        if (s->f[at].cut || (more && costs_more(s, at))) {
            sum = fuse_add(sum, places);
            loads = fuse_add(loads, count_operands(s, at));
            continue;
        }
        if (n->kind == T_INPUT && n->input >= 64)
            loads = fuse_add(loads, count_operands(s, at));
        sum = fuse_add(sum, places * fuse_weight(s->t, n));
        s->walk[at] = s->walks;
        put_ahead(s, n);
    }
    while (at != NONE)
        at = take_ahead(s, at);
    s->cost[i] = sum;
    s->loads[i] = loads;
}

/* --- the three times --- */

static bool is_kernel(const struct spread *s, uint32_t i)
{
    return s->f[i].cut || i == s->t->root;
}

static void find_several(struct spread *s)
{
    begin_walk(s);
    for (uint32_t i = s->t->n_nodes; i-- > 0 && !s->oom;) {
        if (is_kernel(s, i))
            open_kernel(s, i);
        else
            (void)gather(s, i, 2);
        s->several[i] = s->n[i] > 1 && s->first_user[i + 1] - s->first_user[i] > 1 &&
                        fuse_cuttable(s->t, s->f, i);
        s->walk[i] = s->walks;
    }
}

/* Adds the node to its kernels' sizes, or what loads it to those that it is an operand of. */
static void add_size(struct spread *s, uint32_t i)
{
    const struct fuse_size own = fuse_own_size(s->t, s->f, i);
    for (uint32_t p = 0; p < s->n[i]; p++) {
        const uint32_t place = s->pool[s->from[i] + p].place;
        struct fuse_size here = own;
        if (own.others && !add_operand(s, i, place))
            here.others = 0;
        fuse_add_size(&s->all[s->all[place].kernel].size, &here);
    }
}

static void cut_several(struct spread *s)
{
    begin_walk(s);
    for (uint32_t i = s->t->n_nodes; i-- > 0 && !s->oom;) {
        if (gather(s, i, NONE) && costs_more(s, i))
            s->f[i].cut = true;
        add_size(s, i);
        if (is_kernel(s, i)) {
            open_kernel(s, i);
            if (s->oom)
                return;
            s->all[s->pool[s->from[i]].place].size.nodes = fuse_weight(s->t, &s->t->nodes[i]);
        }
        s->walk[i] = s->walks;
    }
}

/* Marks the nodes of kernels that exceed the limits. */
static void find_large(const struct spread *s, bool *large)
{
    for (uint32_t i = 0; i < s->t->n_nodes; i++)
        for (uint32_t p = 0; p < s->n[i] && !large[i]; p++) {
            const uint32_t kernel = s->all[s->pool[s->from[i] + p].place].kernel;
            large[i] = fuse_is_large(&s->all[kernel].size, s->limits);
        }
}

static bool list_users(struct spread *s)
{
    const struct typed *t = s->t;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        for (int a = 0; a < t->nodes[i].n_args; a++, n++)
            s->first_user[t->nodes[i].args[a] + 1]++;
    s->users = arena_alloc_array(s->arena, n + 1, sizeof *s->users);
    uint32_t *next = arena_alloc_array(s->arena, t->n_nodes, sizeof *next);
    if (!s->users || !next)
        return false;
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        s->first_user[i + 1] += s->first_user[i];
        next[i] = s->first_user[i];
    }
    for (uint32_t i = 0; i < t->n_nodes; i++)
        for (int a = 0; a < t->nodes[i].n_args; a++)
            s->users[next[t->nodes[i].args[a]]++] = (struct user){i, a};
    return true;
}

bool fuse_cut_repeated(struct arena *arena, const struct typed *t, struct fuse_node *f,
                       const struct fuse_limits *limits, bool *large)
{
    struct spread s = {.arena = arena, .t = t, .f = f, .limits = limits};
    const size_t n = t->n_nodes;
    s.from = arena_alloc_array(arena, n, sizeof *s.from);
    s.n = arena_alloc_array(arena, n, sizeof *s.n);
    s.first_user = arena_alloc_array(arena, n + 1, sizeof *s.first_user);
    s.walk = arena_alloc_array(arena, n, sizeof *s.walk);
    s.ahead = arena_alloc_array(arena, n / 64 + 1, sizeof *s.ahead);
    s.several = arena_alloc_array(arena, n, sizeof *s.several);
    s.cost = arena_alloc_array(arena, n, sizeof *s.cost);
    s.loads = arena_alloc_array(arena, n, sizeof *s.loads);
    if (!s.from || !s.n || !s.first_user || !s.walk || !s.ahead || !s.several || !s.cost ||
        !s.loads || !list_users(&s))
        return false;
    find_several(&s);
    for (uint32_t i = 0; i < n && !s.oom; i++)
        if (s.several[i])
            measure(&s, i);
    if (!s.oom)
        cut_several(&s);
    if (!s.oom)
        find_large(&s, large);
    return !s.oom;
}
