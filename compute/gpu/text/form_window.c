/* The form window: many elements of a box around a point are read, as correlate() does, and a
 * block's tile of them is brought to shared memory.
 *
 * A tile holds values, not elements: what is computed alike in every shifted context (loads, casts,
 * a shift's replacement of what is outside) is computed once for an element of the tile, so that
 * the sum has neither boundaries nor selects. Nodes fall into classes that differ by their context
 * alone; a class that occurs in as many contexts as its arguments is part of a tile's value, and
 * one that does not, such as a product with one place's weight, is computed at the point.
 *
 * A block marches along the slowest axis and holds one plane at a time. All that reads the plane is
 * computed while it is there: for the point on it, and for those before and behind that reach it.
 * So a node has a stage, the plane (counted from the first that its point reads) and the row that
 * it has to wait for, and what a later plane's nodes need of it is carried there in registers. Sums
 * in the order of memory carry one number. */
#include "compute/gpu/text/form_kinds.h"

#include <stdlib.h>
#include <string.h>

#define TERMS        12 /* fewer are left to the form stencil, */
#define FEW          9  /* but these not if it chose values at every term or reaches less far */
#define SPARSE       4  /* elements of the box for each that is read, at most */
#define MOST_TILES   4
#define MOST_PLANES  16
#define MOST_ROWS    32
#define MOST_COLUMNS 256
#define CARRIED      48   /* registers */
#define HELD         64   /* registers from row to row */
#define STATEMENTS   2400 /* in the text, for the compiler's sake */
#define SHARED_BYTES 49152
#define BLOCKS       1600 /* enough for every multiprocessor to have several */

#define UNIFORM UINT32_MAX       /* no context: the same at every point */
#define MIXED   (UINT32_MAX - 1) /* several */

struct finding {
    struct analysis *z;
    struct form_window *w;
    uint32_t *ctx;    /* by node: the only one it depends on, UNIFORM or MIXED */
    uint32_t *class;  /* by node of one context: the first node like it */
    uint32_t *places; /* by class: in how many shifted contexts */
    bool *shared;     /* by node: part of a tile's value, if its context is shifted */
};

/* --- classes --- */

static uint32_t own_ctx(const struct ir_node *n)
{
    bool has = n->kind == IR_LOAD || n->kind == IR_INSIDE || (n->kind == IR_INDEX && n->axis >= 0);
    return has ? n->ctx : UNIFORM;
}

static uint32_t ctx_of(const struct finding *g, const struct ir_node *n)
{
    uint32_t c = own_ctx(n);
    for (int a = 0; a < n->n_args; a++) {
        uint32_t of = g->ctx[n->args[a]];
        if (c == UNIFORM)
            c = of;
        else if (of != UNIFORM && of != c)
            return MIXED;
    }
    return c;
}

static bool is_alike(const struct finding *g, uint32_t i, uint32_t j)
{
    const struct ir_node *a = &g->z->k->nodes[i], *b = &g->z->k->nodes[j];
    if (a->kind != b->kind || a->dtype != b->dtype || a->src != b->src || a->n_args != b->n_args ||
        a->op != b->op || a->axis != b->axis || a->scalar != b->scalar)
        return false;
    for (int n = 0; n < a->n_args; n++)
        if (g->class[a->args[n]] != g->class[b->args[n]])
            return false;
    return true;
}

static void classify(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        g->ctx[i] = ctx_of(g, &k->nodes[i]);
        g->class[i] = i;
        if (g->ctx[i] == MIXED || g->ctx[i] == UNIFORM)
            continue;
        for (uint32_t j = 0; j < i && g->class[i] == i; j++)
            if (g->class[j] == j && g->ctx[j] != MIXED && g->ctx[j] != UNIFORM && is_alike(g, i, j))
                g->class[i] = j;
        bool again = g->ctx[i] == 0; /* the same node twice in one context */
        for (uint32_t j = 0; j < i && !again; j++)
            again = g->class[j] == g->class[i] && g->ctx[j] == g->ctx[i];
        g->places[g->class[i]] += !again;
    }
}

static void find_shared(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (g->ctx[i] == UNIFORM || g->ctx[i] == MIXED || g->ctx[i] == 0)
            continue;
        g->shared[i] = n->kind != IR_CAST || dtype_size((enum dtype)n->src) != 2 ||
                       dtype_kind((enum dtype)n->src) != KIND_FLOAT;
        for (int a = 0; a < n->n_args; a++)
            if (g->ctx[n->args[a]] != UNIFORM)
                g->shared[i] &= g->shared[n->args[a]] &&
                                g->places[g->class[n->args[a]]] == g->places[g->class[i]];
    }
}

/* --- tiles --- */

static bool has_steps(const struct form *f, uint32_t ctx, int16_t step[3])
{
    memset(step, 0, 3 * sizeof *step);
    for (int a = 0; ctx != 0 && a < f->rank; a++) {
        int64_t o = f->offsets[ctx][a];
        int place = a - (f->rank - 3);
        if (o == 0)
            continue;
        if (place < 0 || llabs(o) > MOST_COLUMNS)
            return false;
        step[place] = (int16_t)o;
    }
    return true;
}

/* The value of the same node where the shift stays inside. */
static uint32_t inside_class(const struct finding *g, uint32_t i)
{
    const struct ir_node *n = &g->z->k->nodes[i];
    if (n->kind == IR_SELECT && g->z->k->nodes[n->args[0]].kind == IR_INSIDE)
        return g->class[n->args[1]];
    return g->class[i];
}

static bool read_tile(struct finding *g, uint32_t i, uint32_t tile)
{
    struct form_window *w = g->w;
    struct window_node *n = &w->nodes[i];
    if (!has_steps(g->z->f, g->ctx[i], n->step))
        return false;
    n->kind = WINDOW_READ;
    n->tile = tile;
    for (int a = 0; a < 3; a++) {
        w->lo[a] = n->step[a] < w->lo[a] ? n->step[a] : w->lo[a];
        w->hi[a] = n->step[a] > w->hi[a] ? n->step[a] : w->hi[a];
    }
    return true;
}

static bool add_tile(struct finding *g, uint32_t i)
{
    const struct ir_kernel *k = g->z->k;
    struct form_window *w = g->w;
    enum boundary_mode mode = k->ctxs[g->ctx[i]].mode;
    uint32_t t = 0;
    if (mode == BOUNDARY_GHOST)
        return false;
    while (t < w->n_tiles &&
           (g->class[w->tiles[t].node] != g->class[i] || w->tiles[t].mode != mode))
        t++;
    if (t == w->n_tiles) {
        if (t == MOST_TILES)
            return false;
        w->tiles[w->n_tiles++] =
            (struct window_tile){.node = i, .mode = mode, .dtype = (enum dtype)k->nodes[i].dtype};
    }
    return read_tile(g, i, t);
}

/* Follows the outputs down to what tiles hold. */
static bool follow(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    struct window_node *nodes = g->w->nodes;
    for (uint32_t o = 0; o < k->n_outputs; o++)
        nodes[k->outputs[o].node].kind = WINDOW_POINT;
    for (uint32_t i = k->n_nodes; i-- > 0;) {
        if (nodes[i].kind == WINDOW_GONE)
            continue;
        if (g->ctx[i] == UNIFORM)
            nodes[i].kind = WINDOW_UNIFORM;
        else if (g->shared[i] && !add_tile(g, i))
            return false;
        for (int a = 0; a < k->nodes[i].n_args && nodes[i].kind != WINDOW_READ; a++)
            nodes[k->nodes[i].args[a]].kind = WINDOW_POINT;
    }
    return true;
}

/* The window's middle, which is not shifted, is in the tile as well. */
static void read_middles(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    struct form_window *w = g->w;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        for (uint32_t t = 0; w->nodes[i].kind == WINDOW_POINT && g->ctx[i] == 0 && t < w->n_tiles;
             t++)
            if (inside_class(g, w->tiles[t].node) == g->class[i])
                (void)read_tile(g, i, t);
}

static bool is_simple(const struct ir_kernel *k, uint32_t i)
{
    const struct ir_node *n = &k->nodes[i];
    return n->kind == IR_OP && n->src == DT_F32 && n->n_args == 2 &&
           (n->op == OP_ADD || n->op == OP_SUBTRACT || n->op == OP_MULTIPLY);
}

/* Arithmetic of two-byte types without the detour by float32 where half.cuh has it. */
static void find_halves(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        struct window_node *n = &g->w->nodes[i];
        const struct ir_node *op = &k->nodes[k->nodes[i].args[0]];
        n->n_args = k->nodes[i].n_args;
        memcpy(n->args, k->nodes[i].args, sizeof n->args);
        if (n->kind != WINDOW_POINT || k->nodes[i].kind != IR_CAST ||
            !is_simple(k, k->nodes[i].args[0]))
            continue;
        if (k->nodes[i].dtype == DT_BF16)
            n->half = true;
        if (k->nodes[i].dtype != DT_F16 || !ir_casts(&k->nodes[op->args[0]], DT_F16, DT_F32) ||
            !ir_casts(&k->nodes[op->args[1]], DT_F16, DT_F32))
            continue;
        n->half = true;
        n->n_args = 2;
        for (int a = 0; a < 2; a++)
            n->args[a] = k->nodes[op->args[a]].args[0];
    }
}

/* Forgets what only values that are read from a tile needed. */
static void sweep(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    const struct form_window *w = g->w;
    struct window_node *nodes = w->nodes;
    for (uint32_t i = k->n_nodes; i-- > 0;) {
        bool used = false;
        for (uint32_t o = 0; o < k->n_outputs; o++)
            used |= k->outputs[o].node == i;
        for (uint32_t j = i + 1; j < k->n_nodes && !used; j++)
            for (int a = 0; a < w->nodes[j].n_args; a++)
                used |= w->nodes[j].args[a] == i && nodes[j].kind != WINDOW_GONE &&
                        nodes[j].kind != WINDOW_READ;
        if (!used)
            nodes[i].kind = WINDOW_GONE;
    }
}

static bool is_dense(const struct finding *g)
{
    const struct form_window *w = g->w;
    int64_t terms = 0, box = 1, least = TERMS;
    for (uint32_t t = 0; t < w->n_tiles && w->hi[0] == w->lo[0]; t++)
        if (w->tiles[t].mode == BOUNDARY_SELF || w->tiles[t].mode == BOUNDARY_CONSTANT)
            least = FEW;
    for (int a = 0; a < 2; a++)
        if (-w->lo[a] > FORM_FAR || w->hi[a] > FORM_FAR)
            least = FEW;
    for (uint32_t i = 0; i < g->z->k->n_nodes; i++)
        terms += w->nodes[i].kind == WINDOW_READ;
    for (int a = 0; a < 3; a++)
        box *= w->hi[a] - w->lo[a] + 1;
    return terms >= least && box <= SPARSE * terms && w->hi[0] - w->lo[0] < MOST_PLANES &&
           w->hi[1] - w->lo[1] < MOST_ROWS && w->hi[2] - w->lo[2] < MOST_COLUMNS;
}

/* --- stages --- */

static int words_of(const struct finding *g, uint32_t i)
{
    return ((int)dtype_size((enum dtype)g->z->k->nodes[i].dtype) + 3) / 4;
}

static void be_after(struct window_node *n, const struct window_node *arg)
{
    if (arg->stage > n->stage || (arg->stage == n->stage && arg->row > n->row)) {
        n->stage = arg->stage;
        n->row = arg->row;
    }
}

/* What waits for no plane is computed where it is first used. */
static void set_stages(struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    const struct form_window *w = g->w;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        struct window_node *n = &w->nodes[i];
        n->stage = -1;
        if (n->kind == WINDOW_READ) {
            n->stage = (int16_t)(n->step[0] - w->lo[0]);
            n->row = (int16_t)(n->step[1] - w->lo[1]);
        }
        for (int a = 0; a < w->nodes[i].n_args && n->kind == WINDOW_POINT; a++)
            if (w->nodes[w->nodes[i].args[a]].kind != WINDOW_UNIFORM)
                be_after(n, &w->nodes[w->nodes[i].args[a]]);
    }
    for (uint32_t i = k->n_nodes; i-- > 0;) {
        struct window_node *n = &w->nodes[i];
        for (uint32_t j = i + 1; n->kind == WINDOW_POINT && n->stage < 0 && j < k->n_nodes; j++)
            for (int a = 0; a < w->nodes[j].n_args; a++)
                if (w->nodes[j].args[a] == i && w->nodes[j].kind == WINDOW_POINT &&
                    (!n->early || w->nodes[j].stage < n->first ||
                     (w->nodes[j].stage == n->first && w->nodes[j].row < n->row))) {
                    n->early = true;
                    n->first = w->nodes[j].stage;
                    n->row = w->nodes[j].row;
                }
        if (n->early)
            n->stage = n->first;
        if (n->kind == WINDOW_POINT && n->stage < 0) { /* a result that depends on no neighbour */
            n->stage = (int16_t)(w->hi[0] - w->lo[0]);
            n->row = (int16_t)(w->hi[1] - w->lo[1]);
        }
    }
}

/* Until when a node is needed; the registers that each point of a thread then takes, from plane to
 * plane and from row to row. */
static void set_lives(struct finding *g, int *ret_carried, int *ret_held)
{
    const struct ir_kernel *k = g->z->k;
    const struct form_window *w = g->w;
    const int rows = w->hi[1] - w->lo[1] + 1, planes = w->hi[0] - w->lo[0] + 1;
    *ret_carried = *ret_held = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        w->nodes[i].last = w->nodes[i].stage;
        w->nodes[i].last_row = w->nodes[i].row;
    }
    for (uint32_t i = 0; i < k->n_nodes; i++)
        for (int a = 0; a < w->nodes[i].n_args && w->nodes[i].kind == WINDOW_POINT; a++) {
            struct window_node *n = &w->nodes[w->nodes[i].args[a]];
            if (w->nodes[i].stage > n->last)
                n->last = w->nodes[i].stage;
            if (w->nodes[i].stage == n->stage && w->nodes[i].row > n->last_row)
                n->last_row = w->nodes[i].row;
        }
    for (uint32_t o = 0; o < k->n_outputs; o++)
        w->nodes[k->outputs[o].node].last = (int16_t)(planes - 1);
    int held[MOST_ROWS] = {0};
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct window_node *n = &w->nodes[i];
        if (n->kind != WINDOW_READ && n->kind != WINDOW_POINT)
            continue;
        *ret_carried += (n->last - n->stage) * words_of(g, i);
        for (int r = n->row; r < (n->last > n->stage ? rows : n->last_row); r++)
            held[r] += words_of(g, i);
    }
    for (int r = 0; r < rows; r++)
        *ret_held = held[r] > *ret_held ? held[r] : *ret_held;
}

/* --- the cut into blocks --- */

static int64_t extent_at(const struct form *f, int place)
{
    int a = f->rank - 3 + place;
    return a < 0 ? 1 : f->shape[a];
}

/* Of shared memory. */
static int64_t bytes_of(const struct finding *g)
{
    const struct ir_kernel *k = g->z->k;
    const struct form_window *w = &g->z->f->window;
    int64_t bytes = 0;
    for (uint32_t t = 0; t < w->n_tiles; t++)
        bytes += (int64_t)dtype_size(w->tiles[t].dtype) * w->columns * w->lines + 16;
    bytes *= w->deep ? 2 : 1;
    for (uint32_t i = 0; i < k->n_nodes; i++) /* 8 bytes at least, whatever the order of types */
        if (w->nodes[i].kind == WINDOW_UNIFORM && k->nodes[i].kind != IR_CONST)
            bytes += dtype_size((enum dtype)k->nodes[i].dtype) > 8 ? 16 : 8;
    return bytes + 64; /* alignment */
}

/* Planes of a block: of a deep window many, for it reads more than it writes. */
static int64_t part_of(const struct form_window *w, int64_t nz, int64_t blocks, int64_t outer)
{
    const int64_t planes = w->hi[0] - w->lo[0] + 1, most = FORM_GRID / outer;
    int64_t part = nz;
    if (!w->deep)
        return most ? (nz + most - 1) / most : nz;
    while (part > 4 * planes && part > 16 && blocks * outer * ((nz + part - 1) / part) < BLOCKS)
        part = (part + 1) / 2;
    return part;
}

static bool set_grid(struct form *f)
{
    struct form_window *w = &f->window;
    const int64_t nz = extent_at(f, 0), ny = extent_at(f, 1), nx = extent_at(f, 2);
    int64_t outer = 1;
    w->batch = f->rank > 3 ? f->rank - 3 : 0;
    for (int a = 0; a < w->batch; a++)
        outer *= f->shape[a];
    const int64_t height = (int64_t)f->threads / w->across * f->rows;
    const int64_t width = (int64_t)w->across * f->elements;
    int64_t gx = (nx + width - 1) / width, gy = (ny + height - 1) / height;
    w->part = part_of(w, (nz + f->members - 1) / f->members, gx * gy, outer);
    int64_t gz = (nz + w->part - 1) / w->part * outer;
    if (gx >= 1ll << 31 || gy > FORM_GRID || gz > FORM_GRID)
        return false;
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
    f->grid[0] = (unsigned)gx;
    f->grid[1] = (unsigned)gy;
    f->grid[2] = (unsigned)gz;
    return true;
}

/* Registers of a thread, roughly: what is carried, which becomes what is held, a row of each tile
 * and what is on its way to it, and what a plane's points may have to be replaced by. */
static int registers(const struct finding *g, int carried, int held)
{
    const struct form *f = g->z->f;
    const struct form_window *w = g->w;
    const int fill = (w->columns * w->lines + f->threads - 1) / f->threads;
    int n = 36 + (carried > held ? carried : held) * f->rows * f->elements + (w->deep ? fill : 0);
    for (uint32_t t = 0; t < w->n_tiles; t++) {
        const enum dtype dtype = w->tiles[t].dtype;
        int words = ((int)dtype_size(dtype) + 3) / 4;
        n += words * (w->hi[2] - w->lo[2] + f->elements);
        n += dtype_kind(dtype) == KIND_COMPLEX ? 32 : 0;
        if (w->deep)
            n += words * fill;
        if (w->deep && w->tiles[t].mode == BOUNDARY_SELF)
            n += words * (w->hi[0] - w->lo[0] + 1) * f->rows;
    }
    return n;
}

/* What the compiler has to do for a node: conversions of two-byte types are long. */
static int effort(const struct finding *g, uint32_t i)
{
    const struct ir_node *n = &g->z->k->nodes[i];
    const struct window_node *w = &g->w->nodes[i];
    if (w->kind != WINDOW_READ && w->kind != WINDOW_POINT)
        return 0;
    if (w->kind == WINDOW_READ || w->half)
        return 1;
    if (n->kind == IR_OP)
        return (int)op_cost((enum op)n->op, (enum dtype)n->src);
    return n->kind == IR_CAST && (n->src == DT_F16 || n->dtype == DT_F16) ? 8 : 1;
}

/* Whether inner blocks can fill tiles by vectors of `elements`. */
static bool set_vectors(struct finding *g, int elements)
{
    struct form *f = g->z->f;
    bool any = false;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        struct form_load *l = &f->loads[i];
        const bool whole =
            !g->w->deep && elements > 1 && form_input_aligned(g->z, l->input, elements);
        l->kind = whole ? LOAD_VECTOR : LOAD_EACH;
        any |= whole && g->places[g->class[l->node]] > 0;
    }
    return any;
}

/* Columns and rows of a block, and of a tile, whose vectors begin where those in memory do. */
static void set_block(struct finding *g, int elements, int rows)
{
    struct form *f = g->z->f;
    struct form_window *w = g->w;
    const int64_t nx = extent_at(f, 2), ny = extent_at(f, 1);
    int threads = w->deep ? FORM_BLOCK : FORM_BLOCK / 2;
    int down = !w->deep ? 4 : w->hi[1] == w->lo[1] ? 2 : 8;
    f->elements = elements;
    f->rows = rows;
    while (down > 1 && (int64_t)down / 2 * rows >= ny)
        down /= 2;
    w->across = threads / down;
    while (w->across > 32 && (int64_t)w->across / 2 * elements >= nx)
        w->across /= 2;
    f->threads = w->across * down;
    w->left = -w->lo[2];
    if (set_vectors(g, elements))
        w->left = (w->left + elements - 1) / elements * elements;
    const int columns = w->left + w->across * elements + w->hi[2];
    w->columns = (columns + elements - 1) / elements * elements;
    w->lines = down * rows + w->hi[1] - w->lo[1];
}

/* What a thread has: as many points as registers allow, for each value read serves them all. Best
 * first; in one plane neighbours, so that it reads and writes vectors. */
static bool set_patch(struct finding *g)
{
    static const int deep[][2] = {{1, 4}, {1, 2}, {1, 1}};
    static const int flat[][2] = {{4, 4}, {4, 2}, {2, 4}, {4, 1}, {2, 2}, {2, 1}, {1, 2}, {1, 1}};
    struct form *f = g->z->f;
    struct form_window *w = g->w;
    const int64_t ny = extent_at(f, 1);
    int carried, held;
    int64_t nodes = 0, widest = 1;
    w->deep = w->hi[0] > w->lo[0];
    set_stages(g);
    set_lives(g, &carried, &held);
    for (uint32_t i = 0; i < g->z->k->n_nodes; i++)
        nodes += effort(g, i);
    for (uint32_t t = 0; t < w->n_tiles; t++)
        if ((int64_t)dtype_size(w->tiles[t].dtype) > widest)
            widest = (int64_t)dtype_size(w->tiles[t].dtype);
    const int(*shape)[2] = w->deep ? deep : flat;
    const int(*end)[2] = w->deep ? deep + 3 : flat + 8;
    for (; shape < end; shape++) {
        const int e = (*shape)[0], rows = (*shape)[1], points = e * rows;
        if ((rows > 1 && (rows >= 2 * ny || w->hi[1] == w->lo[1])) || e * widest > VECTOR_BYTES ||
            (points > 1 && nodes * points > STATEMENTS) || carried * points > CARRIED ||
            held * points > HELD)
            continue;
        set_block(g, e, rows);
        const int n = registers(g, carried, held);
        const int together = n <= 64 && !w->deep ? 1024 : n <= 80 ? 768 : n <= 128 ? 512 : 256;
        w->resident = together / f->threads; /* of 64, 80 or 128 registers a thread */
        if (n > 128 && points > 2)
            continue;
        if (bytes_of(g) <= SHARED_BYTES && set_grid(f))
            return true;
    }
    return false;
}

static bool fits(struct finding *g)
{
    if (!follow(g) || g->w->n_tiles == 0)
        return false;
    read_middles(g);
    find_halves(g);
    sweep(g);
    return is_dense(g) && set_patch(g);
}

bool form_try_window(struct analysis *z)
{
    struct form *f = z->f;
    const struct ir_kernel *k = z->k;
    struct finding g = {.z = z, .w = &f->window};
    if (f->general || k->n_ctxs < FEW)
        return false;
    g.ctx = arena_alloc_array(z->arena, k->n_nodes, sizeof *g.ctx);
    g.class = arena_alloc_array(z->arena, k->n_nodes, sizeof *g.class);
    g.places = arena_alloc_array(z->arena, k->n_nodes, sizeof *g.places);
    g.shared = arena_alloc_array(z->arena, k->n_nodes, sizeof *g.shared);
    g.w->nodes = arena_alloc_array(z->arena, k->n_nodes, sizeof *g.w->nodes);
    g.w->tiles = arena_alloc_array(z->arena, MOST_TILES, sizeof *g.w->tiles);
    if (!g.ctx || !g.class || !g.places || !g.shared || !g.w->nodes || !g.w->tiles) {
        z->failed = true;
        return false;
    }
    classify(&g);
    find_shared(&g);
    if (!fits(&g)) {
        f->threads = FORM_BLOCK;
        return false;
    }
    f->kind = FORM_WINDOW;
    f->unroll = f->step = 1;
    f->out_vector = f->elements > 1 && form_output_aligned(z, f->elements);
    return true;
}
