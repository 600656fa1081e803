/* What a pass of the form steps takes, of instructions and of memory: in two dimensions, and in
 * three. The numbers of both models were measured on an H200.
 *
 * In two dimensions a level costs the operations of its points, two shuffles a field, and two
 * selections at edges that do not wrap. A round costs, beside its levels, the way of a row in and
 * out. Both are counted in the machine code of a dozen kernels. How fast an H200 gets on with them
 * was measured by how many warps a scheduler has: two issue in 0.83 of its cycles, with nearly all
 * registers and several fields in 0.66; one waits for itself, and for memory. Memory is fastest
 * with 24 to 40 KiB on their way to a multiprocessor; with fewer it waits, and more are in each
 * other's way (RESULTS.md, "Programs on the GPU").
 *
 * In three: a thread's patch, the planes that it keeps, what the rounds of a block take. */
#include "compute/gpu/text/form_kinds.h"

/* --- in two dimensions --- */

#define SCHEDULERS 4
#define ISSUED     0.83
#define WAITING    0.66
#define LATENCY    20.0       /* cycles of a level in which one warp cannot go on */
#define IN_FLIGHT  (40 << 10) /* bytes per multiprocessor, with two warps per scheduler */

/* Finds the nodes that results need. False without memory. */
static bool find_needed(const struct analysis *z, bool **ret)
{
    const struct ir_kernel *k = z->k;
    bool *need = arena_alloc_array(z->arena, k->n_nodes + 1, sizeof *need);
    if (!need)
        return false;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        need[k->outputs[i].node] = true;
    for (uint32_t i = k->n_nodes; i-- > 0;)
        for (int a = 0; need[i] && a < k->nodes[i].n_args; a++)
            need[k->nodes[i].args[a]] = true;
    *ret = need;
    return true;
}

static bool is_field(const struct form *f, uint32_t input)
{
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        if (f->steps.fields[i].input == input)
            return true;
    return false;
}

/* Whether two nodes are the same operation on the same number and the same row: then what one lane
 * computes for one of its points is what it needs for another. */
static bool same_product(const struct analysis *z, const struct ir_node *x, const struct ir_node *y)
{
    const struct ir_kernel *k = z->k;
    bool moved = false;
    if (x->kind != IR_OP || y->kind != IR_OP || x->op != y->op || x->src != y->src ||
        x->n_args != 2 || y->n_args != 2)
        return false;
    for (int a = 0; a < 2; a++) {
        const struct ir_node *p = &k->nodes[x->args[a]], *q = &k->nodes[y->args[a]];
        if (x->args[a] == y->args[a] && p->kind == IR_CONST)
            continue;
        if (moved || p->kind != IR_LOAD || q->kind != IR_LOAD || p->input != q->input ||
            !is_field(z->f, p->input) || k->ctxs[p->ctx].offset[0] != k->ctxs[q->ctx].offset[0])
            return false;
        moved = true;
    }
    return moved;
}

/* An index along an axis that wraps takes more. Fitted to what one box takes on an H200 at 512^3
 * and at 8192^2, where lanes have more elements (tests/bench/RESULTS.md). */
double form_pass_asking(const struct form *f, const struct ir_kernel *k, uint32_t ctx)
{
    double work = 0;
    for (int a = 0; a < k->rank; a++)
        if (form_steps_is_far(f, &k->ctxs[ctx], a))
            work += (work == 0) + (f->steps.wraps[a + 3 - k->rank] ? 3.5 : 1);
    return work * (k->rank == 2 ? 0.6 : 0.8);
}

static double node_work(const struct analysis *z, const bool *need, uint32_t i)
{
    const struct ir_kernel *k = z->k;
    const struct ir_node *n = &k->nodes[i];
    const double wide = dtype_size((enum dtype)n->src) > 4 || dtype_size((enum dtype)n->dtype) > 4;
    switch ((enum ir_kind)n->kind) {
    case IR_OP:
        for (uint32_t j = 0; j < i; j++)
            if (need[j] && same_product(z, n, &k->nodes[j]))
                return 0;
        /* logic is part of a comparison */
        return n->src == DT_BOOL ? 0 : op_cost((enum op)n->op, (enum dtype)n->src) * (1 + wide);
    case IR_CAST:
        return wide ? 4 : 1; /* a quarter of the rate */
    case IR_SELECT:
        return 1 + wide;
    case IR_RANDOM:
    case IR_GATHER:
    case IR_TABLE:
        return 16;
    case IR_LOAD:
        return is_field(z->f, n->input) ? 0 : 2;
    case IR_INSIDE:
        return form_pass_asking(z->f, k, n->ctx);
    default:
        return 0;
    }
}

double form_pass2d_work(const struct analysis *z)
{
    bool *need;
    double work = 0;
    if (!find_needed(z, &need))
        return 1;
    for (uint32_t i = 0; i < z->k->n_nodes; i++)
        work += need[i] ? node_work(z, need, i) : 0;
    return work;
}

/* Whether any load reads the field diagonally. */
static bool is_diagonal(const struct form *f, uint32_t field)
{
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const struct form_load *l = &f->loads[i];
        if (l->kind == LOAD_NEAR && l->near == field && l->step[1] && l->step[2])
            return true;
    }
    return false;
}

/* Whether a field is what another one was a step before: its rows are the other's. */
static bool is_copy(const struct analysis *z, const struct form_field *d)
{
    const struct ir_node *n = &z->k->nodes[z->k->outputs[d->output].node];
    return n->kind == IR_LOAD && n->ctx == 0 && n->input != d->input && is_field(z->f, n->input);
}

/* Whether numbers are multiplied by, and products kept for the next rows. */
static bool has_products(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    bool any = false;
    for (uint32_t i = 0; i < k->n_nodes && !any; i++) {
        const struct ir_node *n = &k->nodes[i];
        any = n->kind == IR_OP && n->op == OP_MULTIPLY &&
              (k->nodes[n->args[0]].kind == IR_CONST || k->nodes[n->args[1]].kind == IR_CONST);
    }
    return any;
}

/* Bytes of a warp's row of all fields. */
static int row_bytes(const struct analysis *z)
{
    int size = 0;
    for (uint32_t i = 0; i < z->f->steps.n_fields; i++)
        size += (int)dtype_size(z->k->inputs[z->f->steps.fields[i].input].dtype);
    return size * z->f->lanes * z->f->elements;
}

int form_pass2d_ahead(const struct analysis *z)
{
    if (z->f->elements > 2 * z->f->steps.piece)
        return 8; /* many small copies: measured, 6 % of a pass over 8191^2 */
    const int rows = 1 + IN_FLIGHT / (2 * SCHEDULERS * row_bytes(z));
    return rows < 4 ? 4 : rows > 8 ? 8 : rows;
}

/* Bytes per cycle, with so many warps per scheduler. */
static double memory_rate(const struct analysis *z, int64_t warps)
{
    const int64_t bytes = warps * SCHEDULERS * (z->f->steps.ahead - 1) * row_bytes(z);
    return bytes < 16 << 10 ? 1520 : bytes < 22 << 10 ? 1780 : bytes < 44 << 10 ? 1830 : 1720;
}

int form_pass2d_registers(const struct analysis *z, int steps, int elements)
{
    const struct form *f = z->f;
    int n = 20;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_field *d = &f->steps.fields[i];
        const int words = ((int)dtype_size(z->k->inputs[d->input].dtype) + 3) / 4;
        const int rows = d->edge[1].reach ? 3 : 2, beside = d->edge[2].reach ? 3 : 0;
        const int level = !is_diagonal(f, i) ? rows * elements + beside
                          : has_products(z)  ? rows * (elements + 2) + 5
                                             : rows * (elements + 2) + 1;
        n += words * (is_copy(z, d) ? elements : steps * level) + (words > 1 ? 10 : 0);
    }
    return n;
}

/* Warps of the busiest scheduler. */
static int64_t warps_of(const struct form *f, int64_t blocks)
{
    int64_t each = (blocks + FORM_PROCESSORS - 1) / FORM_PROCESSORS;
    each = each < f->steps.at_once ? each : f->steps.at_once;
    return (each + SCHEDULERS - 1) / SCHEDULERS;
}

/* Cycles of a pass with so many blocks, each of `part` rows. */
static double cost_of(const struct analysis *z, double point, double bytes, int64_t part)
{
    const struct form *f = z->f;
    const int pieces = f->elements / f->steps.piece;
    const int64_t room = (int64_t)FORM_PROCESSORS * f->steps.at_once;
    const int64_t blocks = f->grid[0] * ((form_steps_rows(f) + part - 1) / part);
    const int64_t waves = (blocks + room - 1) / room, warps = warps_of(f, blocks);
    double level = f->elements * point + 2, round = 10;
    int own = 0;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_field *d = &f->steps.fields[i];
        const int words = ((int)dtype_size(z->k->inputs[d->input].dtype) + 3) / 4;
        level += d->edge[2].reach ? (f->steps.wraps[2] ? 2 : 4) * words : 0;
        round += 2 + 8 * pieces * words;
        own += !is_copy(z, d);
    }
    round += f->steps.n * level;
    const bool waits = own > 1 && f->steps.at_once <= 8;
    const double rounds = (double)waves * (double)(part + 2 * f->steps.n);
    const double alone = round + LATENCY * f->steps.n, all = (double)warps * round;
    const double issue = rounds * (alone > all ? alone : all) / (waits ? WAITING : ISSUED);
    const double memory =
        bytes / (bytes <= FORM_CACHE_BYTES ? FORM_CACHE_RATE : memory_rate(z, warps));
    const double both = warps < 2 ? 0.15 : 0.03; /* what the one does not hide of the other */
    return issue > memory ? issue + both * memory : memory + both * issue;
}

double form_pass2d_part(const struct analysis *z, double point, double bytes)
{
    struct form *f = z->f;
    const int64_t n = form_steps_rows(f);
    double least = -1;
    /* one warp per scheduler, two and so on, then twice and four times what fits */
    for (int64_t each = SCHEDULERS; each <= 4 * f->steps.at_once;
         each = each < f->steps.at_once ? each + SCHEDULERS : 2 * each) {
        const int64_t parts = FORM_PROCESSORS * each / f->grid[0];
        int64_t part = parts > 1 ? (n + parts - 1) / parts : n;
        part = part < 4 ? 4 : part;
        while ((f->shape[0] + part - 1) / part > FORM_GRID)
            part *= 2;
        const double cost = cost_of(z, point, bytes, part);
        if (least < 0 || cost < least * 0.98) {
            least = cost;
            f->steps.part = part;
        }
    }
    return least;
}

/* --- in three dimensions --- */

#define WARP      32
#define REGISTERS 260  /* as estimated, that do not spill in the loop */
#define LOOP      3000 /* instructions of a loop that the cache for them feeds in time */
#define AHEAD     3    /* planes on their way */

/* In cycles. */
#define ROUND 260.0 /* of a round, beside its instructions: waiting */
#define LEVEL 8.0   /* of a row of a level and field, beside its points */
#define POINT 1.15  /* of an instruction, per point */

/* Bytes per cycle while blocks are at the same planes, and while they are not. */
#define TOGETHER 2000.0
#define APART    1150.0

static bool fits_edge(const struct form_edge *e, int own)
{
    bool inward = !e->any && (e->mode == BOUNDARY_REFLECT || e->mode == BOUNDARY_SYMMETRIC);
    if (e->reach < 2)
        return true;
    return inward && e->mode == BOUNDARY_REFLECT ? e->reach < own : e->reach <= own;
}

/* How far planes lag behind those of the level below; planes of the queue that are older than the
 * computed one; rows of each group that others read. */
static void set_reach(struct form *f)
{
    int z = 0, y = 0, x = 0;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_edge *e = f->steps.fields[i].edge;
        z = e[0].reach > z ? e[0].reach : z;
        y = e[1].reach > y ? e[1].reach : y;
        x = e[2].reach > x ? e[2].reach : x;
    }
    f->steps.lag = z ? z : 1;
    f->steps.back = z;
    f->steps.beside = y ? y : 1;
    f->steps.aside = x ? x : 1;
}

/* The oldest is replaced row by row, so it is not one whose rows are read by others' sake. */
int form_steps_kept(const struct form *f, const struct form_field *d)
{
    int behind = d->edge[0].reach ? d->edge[0].reach : d->edge[1].reach ? 1 : 0;
    int n = f->steps.lag + behind;
    return n == 3 ? 4 : n; /* that loops of four rounds are a multiple of */
}

/* Registers of a thread. */
static int registers(const struct analysis *z, int steps, int elements, int rows)
{
    const struct form *f = z->f;
    int n = 70;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_field *d = &f->steps.fields[i];
        int words = ((int)dtype_size(z->k->inputs[d->input].dtype) + 3) / 4;
        bool own = d->edge[0].reach || d->edge[1].reach;
        int planes = (steps - 1) * (f->steps.lag + d->edge[0].reach) + (own ? f->steps.lag : 0);
        n += words * elements * (planes * rows + 1);
    }
    return n;
}

static int64_t shared_bytes(const struct analysis *z)
{
    const struct form *f = z->f;
    int64_t width = (int64_t)f->lanes * f->elements, groups = f->threads / f->lanes;
    int64_t bytes = 128;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        int64_t size = (int64_t)dtype_size(z->k->inputs[f->steps.fields[i].input].dtype);
        int64_t slots = f->steps.ahead + 1 + f->steps.lag;
        if (f->steps.fields[i].edge[0].reach)
            slots += f->steps.back;
        int64_t rows = slots * f->rows;
        if (f->steps.fields[i].edge[1].reach)
            rows += (int64_t)(f->steps.lag + 1) * (f->steps.n - 1) * 2 * f->steps.beside;
        if (f->steps.piece < f->elements)
            rows += 2;
        bytes += size * width * groups * rows;
    }
    return bytes;
}

/* Whether the boxes of blocks side by side begin at multiples of 16 bytes: at others the copy
 * engine faults ("illegal instruction"). */
static bool boxes_are_aligned(const struct form *f, int64_t nx, int64_t size)
{
    const int64_t width = (int64_t)f->lanes * f->elements;
    return nx <= width ||
           ((width - 2 * f->steps.halo) * size % 16 == 0 && (nx - width) * size % 16 == 0);
}

/* Whether the copy engine can bring a field's planes: what it demands of addresses and strides. */
static bool can_map(const struct analysis *z, const struct form_field *d)
{
    const struct ir_input *in = &z->k->inputs[d->input];
    const int64_t *shape = z->k->shape, *s = in->view.strides;
    int64_t size = (int64_t)dtype_size(in->dtype);
    int64_t row = shape[1] > 1 ? s[1] : shape[2];
    int64_t plane = shape[0] > 1 ? s[0] : row * shape[1];
    return z->alignment % 16 == 0 && in->view.offset * size % 16 == 0 && row >= shape[2] &&
           row * size % 16 == 0 && boxes_are_aligned(z->f, shape[2], size) &&
           plane >= row * shape[1] && plane % row == 0 && plane * size < 1ll << 40 &&
           shape[0] <= INT32_MAX && shape[1] <= INT32_MAX && shape[2] <= INT32_MAX;
}

static bool can_map_all(const struct analysis *z)
{
    const struct form *f = z->f;
    if (f->steps.piece < f->elements || f->steps.wraps[1] || f->steps.wraps[2])
        return false;
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        if (!can_map(z, &f->steps.fields[i]))
            return false;
    return true;
}

/* A pass reads and writes every field; a GPU's share. */
static int64_t bytes_of(const struct analysis *z)
{
    const struct form *f = z->f;
    int64_t n = 0;
    for (uint32_t i = 0; i < f->steps.n_fields; i++)
        n += 2 * (int64_t)dtype_size(z->k->inputs[f->steps.fields[i].input].dtype);
    for (int a = 0; a < f->rank; a++)
        n *= f->shape[a];
    return n / f->members;
}

bool form_pass3d_patch(struct analysis *z, int steps, int elements, int rows)
{
    struct form *f = z->f;
    int64_t nx = f->shape[2], ny = f->shape[1];
    set_reach(f);
    f->steps.n = steps;
    f->elements = elements;
    f->rows = rows;
    f->threads = FORM_BLOCK;
    f->lanes = elements == 4 ? WARP / 2 : WARP;
    f->steps.piece = form_steps_piece(z, elements);
    int margin = f->steps.beside * steps;
    f->steps.halo = (f->steps.aside * steps + f->steps.piece - 1) / f->steps.piece * f->steps.piece;
    int width = f->lanes * elements, height = f->threads / f->lanes * rows;
    int registers_ = registers(z, steps, elements, rows);
    f->steps.at_once = registers_ > 120 ? 1 : 2;
    f->steps.bytes = bytes_of(z);
    if (registers_ > REGISTERS || 4 * f->steps.halo > width || 4 * margin > height ||
        f->steps.beside > rows)
        return false;
    if (form_steps_spans(ny, f->steps.wraps[1], height, margin) > FORM_GRID)
        return false;
    if (nx % elements && nx < width && !f->steps.wraps[2])
        return false;
    if (ny % rows && ny < height && !f->steps.wraps[1])
        return false;
    for (uint32_t i = 0; i < f->steps.n_fields; i++) {
        const struct form_field *d = &f->steps.fields[i];
        if (dtype_size(z->k->inputs[d->input].dtype) * (size_t)elements > 32 ||
            !fits_edge(&d->edge[1], rows) || !fits_edge(&d->edge[2], elements))
            return false;
    }
    f->steps.mapped = can_map_all(z);
    for (f->steps.ahead = AHEAD; f->steps.ahead > 1; f->steps.ahead--) {
        f->shared = shared_bytes(z);
        if (f->shared <= z->shared)
            return true;
    }
    return false;
}

/* Instructions, about, of one warp and row of a level. */
static double row_of(const struct form *f, double work)
{
    return POINT * f->elements * work + LEVEL * f->steps.n_fields;
}

/* Approximate cycles of a pass over parts of `part` planes. */
static double part_cost(const struct form *f, double work, int64_t part)
{
    int64_t room = (int64_t)FORM_PROCESSORS * f->steps.at_once;
    int64_t blocks = (int64_t)f->grid[0] * f->grid[1] * ((form_steps_rows(f) + part - 1) / part);
    int64_t waves = (blocks + room - 1) / room;
    int64_t each = (blocks + FORM_PROCESSORS - 1) / FORM_PROCESSORS;
    each = each < f->steps.at_once ? each : f->steps.at_once;
    int64_t warps = each * f->threads / WARP / 4; /* per scheduler */
    double round = (double)warps * f->steps.n * f->rows * row_of(f, work) + ROUND;
    double cycles = (double)waves * (double)(part + 2 * f->steps.lag * f->steps.n) * round;
    double memory = blocks > room ? (double)f->steps.bytes / APART : 0;
    return cycles > memory ? cycles : memory;
}

double form_pass3d_part(struct form *f, double work)
{
    int64_t n = form_steps_rows(f), room = (int64_t)FORM_PROCESSORS * f->steps.at_once;
    int margin = f->steps.beside * f->steps.n;
    double least = -1;
    f->grid[0] = (unsigned)form_steps_spans(f->shape[2], f->steps.wraps[2], f->lanes * f->elements,
                                            f->steps.halo);
    f->grid[1] = (unsigned)form_steps_spans(f->shape[1], f->steps.wraps[1],
                                            f->threads / f->lanes * f->rows, margin);
    int64_t across = (int64_t)f->grid[0] * f->grid[1];
    for (int64_t waves = 1; waves <= 8; waves++) {
        /* a block or two per processor, then as many as fit, then more than that */
        int64_t parts = (waves < 5 ? room * waves / 4 : room * (waves - 3)) / across;
        int64_t part = parts > 1 ? (n + parts - 1) / parts : n;
        if (part < 4)
            part = 4;
        while ((f->shape[0] + part - 1) / part > FORM_GRID)
            part *= 2;
        double cost = part_cost(f, work, part);
        if (least < 0 || cost < least * 0.98) {
            least = cost;
            f->steps.part = part;
        }
    }
    f->grid[2] = (unsigned)((f->shape[0] + f->steps.part - 1) / f->steps.part);
    double memory = (double)f->steps.bytes / TOGETHER;
    f->steps.paced = across * ((n + f->steps.part - 1) / f->steps.part) <= room && across > 1 &&
                     memory > 0.8 * least;
    f->unroll = f->steps.lag > 1 ? 4 : 2;
    if (4 * f->steps.n * f->rows * row_of(f, work) <= LOOP)
        f->unroll = 4;
    return least;
}
