/* Plans a kernel before it runs: which nodes are live, which operands they have, where the
 * iteration space is cut (interp_cuts.c), the order of the axes, and how the work is divided into
 * units. All this takes a microsecond or two for a small kernel and is done anew for every run: a
 * plan is immutable and shared, while the addresses differ each time. interp_bind.c does what
 * depends on the box.
 *
 * The axis order puts the output's smallest stride innermost; the inputs' strides break ties. A
 * reduction keeps its kept axes outside when the memory's fastest axis is reduced, and inside, as
 * lanes of an accumulator, when it is kept. For reductions units depend on the shape alone (their
 * partial results are merged in unit order); for stores also on the number of threads. */
#include <stdatomic.h>

#include "compute/cpu/interp/interp_box.h"
#include "compute/cpu/interp/interp_units.h"

/* Points per unit: some tens of microseconds of a cheap kernel. */
#define UNIT_POINTS 65536
#define UNIT_LEAST  4096
/* From this cost per point on, units get smaller, because other work waits for them. */
#define UNIT_COST 48
/* Rows at least this long need no grouping: their edge boxes are too few to matter. */
#define GROUPED_ROW 32768
#define NARROW      8
/* Rows of a unit, where there are enough. */
#define GROUPED_LEAST 8
/* From this size on memory is slower than the hardware prefetchers can hide. */
#define LARGE_POINTS 524288
/* Work that one thread finishes before another could take up its half: some five microseconds. */
#define SMALL_COST (INT64_C(1) << 17)
/* Results this large would only push other data out of the caches. */
#define STREAM_BYTES (INT64_C(32) << 20)
/* When the axis order is chosen, a store's strides come first. */
#define OUTPUT_WEIGHT 1e6

static _Atomic uint64_t next_id = 1;

uint64_t interp_next_id(void)
{
    return atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
}

static void mark_live(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        r->live[k->outputs[i].node] = true;
    for (uint32_t i = k->n_nodes; i-- > 0;) {
        const struct ir_node *n = &k->nodes[i];
        if (!r->live[i])
            continue;
        r->n_live++;
        for (int a = 0; a < n->n_args; a++)
            r->live[n->args[a]] = true;
        if (n->kind == IR_LOAD || n->kind == IR_INDEX || n->kind == IR_INSIDE) {
            r->n_operands++;
            for (uint32_t c = n->ctx; !r->ctx.used[c]; c = k->ctxs[c].parent)
                r->ctx.used[c] = true;
        }
    }
    r->n_stores = k->n_outputs + (r->arg ? 1 : 0);
    r->n_operands += r->n_stores;
    r->ctx.plain = true;
    for (uint32_t c = 0; c < k->n_ctxs; c++) {
        r->ctx.at[c] = r->ctx.coords;
        if (c == 0 || r->ctx.used[c])
            r->ctx.coords += (uint32_t)k->ctxs[c].rank;
        r->ctx.plain &= c == 0 || !r->ctx.used[c];
    }
}

static void list_operands(struct interp_run *r, void *const *slots)
{
    const struct ir_kernel *k = r->k;
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *node = &k->nodes[i];
        r->operand_of[i] = UINT32_MAX;
        if (!r->live[i] ||
            (node->kind != IR_LOAD && node->kind != IR_INDEX && node->kind != IR_INSIDE))
            continue;
        struct operand *o = &r->operands[n];
        r->operand_of[i] = n++;
        *o = (struct operand){.node = i,
                              .ctx = node->ctx,
                              .rank = k->ctxs[node->ctx].rank,
                              .itemsize = (uint8_t)dtype_size(node->dtype)};
        if (node->kind == IR_LOAD) {
            const struct ir_input *in = &k->inputs[node->input];
            o->kind = OPERAND_LOAD;
            o->base = (char *)slots[in->slot] + in->view.offset * o->itemsize;
            o->strides = in->view.strides;
        } else {
            o->kind = node->kind == IR_INDEX ? OPERAND_INDEX : OPERAND_INSIDE;
        }
    }
    if (r->arg) /* the remembered index: an address from 0 on */
        r->operands[n++] = (struct operand){
            .kind = OPERAND_STORE, .rank = k->rank, .itemsize = 1, .strides = r->arg_strides};
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *out = &k->outputs[i];
        size_t size = dtype_size(out->dtype);
        r->operands[n++] =
            (struct operand){.kind = OPERAND_STORE,
                             .node = i,
                             .rank = k->rank,
                             .itemsize = (uint8_t)size,
                             .base = (char *)slots[out->slot] + out->view.offset * (int64_t)size,
                             .strides = out->view.strides};
    }
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (k->inputs[i].gathered)
            r->rows[i] = (char *)slots[k->inputs[i].slot] +
                         k->inputs[i].view.offset * (int64_t)dtype_size(k->inputs[i].dtype);
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (uint32_t j = 0; j < k->n_outputs; j++)
            r->in_place |= slots[k->inputs[i].slot] == slots[k->outputs[j].slot];
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

/* Sorts the axes of extent > 1: largest stride of the outputs first, the loads' as a tie-breaker. A
 * reduction's output says nothing about the fastest axis, so its weight is 0 there. */
static void choose_order(struct interp_run *r, int64_t *words)
{
    const struct ir_kernel *k = r->k;
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] > 1)
            r->order[r->n_order++] = a;
    if (r->n_order < 2)
        return;
    int64_t lo[MAX_RANK];
    for (int a = 0; a < k->rank; a++)
        lo[a] = r->cuts[a][r->main_cut[a]];
    /* The strides at the middle of the space: the corner of the largest box. */
    double cost[MAX_RANK] = {0};
    int64_t *coords = words, *base = words + r->ctx.coords;
    bool *inside = (bool *)(base + r->n_operands);
    if (r->ctx.plain || r->pointwise) {
        for (uint32_t i = 0; i < r->n_operands; i++) {
            const struct operand *o = &r->operands[i];
            if ((o->kind != OPERAND_LOAD && o->kind != OPERAND_STORE) || o->ctx != 0)
                continue;
            double w = o->kind == OPERAND_LOAD ? 1 : r->reduces ? 1e-3 : OUTPUT_WEIGHT;
            for (int j = 0; j < r->n_order; j++)
                cost[r->order[j]] += w * (double)magnitude(o->strides[r->order[j]]) * o->itemsize;
        }
    } else {
        interp_coords(r, lo, coords, inside);
        for (uint32_t i = 0; i < r->n_operands; i++)
            base[i] = interp_operand_at(r, &r->operands[i], coords, inside);
        for (int j = 0; j < r->n_order; j++) {
            int a = r->order[j];
            int64_t main = r->cuts[a][r->main_cut[a] + 1] - lo[a];
            if (main < 2)
                continue;
            lo[a]++;
            interp_coords(r, lo, coords, inside);
            lo[a]--;
            for (uint32_t i = 0; i < r->n_operands; i++) {
                const struct operand *o = &r->operands[i];
                if (o->kind != OPERAND_LOAD && o->kind != OPERAND_STORE)
                    continue;
                double w = o->kind == OPERAND_LOAD ? 1 : r->reduces ? 1e-3 : OUTPUT_WEIGHT;
                cost[a] += w * (double)magnitude(interp_operand_at(r, o, coords, inside) - base[i]);
            }
        }
    }
    for (int i = 1; i < r->n_order; i++) {
        int a = r->order[i], j = i;
        for (; j > 0 && cost[r->order[j - 1]] < cost[a]; j--)
            r->order[j] = r->order[j - 1];
        r->order[j] = a;
    }
}

/* Narrow intervals of the grouped axis become single columns: a column is one strided run. */
static bool split_narrow(struct interp_run *r, int axis)
{
    int64_t *old = r->cuts[axis];
    int32_t n = r->n_cuts[axis], m = 0;
    for (int32_t i = 0; i < n; i++)
        m += old[i + 1] - old[i] < NARROW ? (int32_t)(old[i + 1] - old[i]) : 1;
    int64_t *cuts = arena_alloc_array(r->arena, (size_t)m + 1, sizeof *cuts);
    if (!cuts)
        return false;
    int64_t main_lo = old[r->main_cut[axis]];
    m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (old[i] == main_lo)
            r->main_cut[axis] = m;
        int64_t width = old[i + 1] - old[i];
        for (int64_t w = 0; w < (width < NARROW ? width : 1); w++)
            cuts[m++] = old[i] + w;
    }
    cuts[m] = old[n];
    r->cuts[axis] = cuts;
    r->n_cuts[axis] = m;
    return true;
}

static int64_t point_cost(const struct ir_kernel *k)
{
    int64_t cost = 1;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        cost += k->nodes[i].kind == IR_OP       ? op_cost(k->nodes[i].op, k->nodes[i].src)
                : k->nodes[i].kind == IR_RANDOM ? 24
                : k->nodes[i].kind == IR_GATHER ? 8
                : k->nodes[i].kind == IR_TABLE  ? 4
                                                : 1;
    return cost;
}

/* Rows of a unit of `per` points. Each of the columns at the ends is a program of its own: with few
 * rows these take more time than the middle. */
static int64_t grouped_rows(int64_t per, int64_t fair, int64_t row)
{
    const int64_t most = fair / row < GROUPED_LEAST ? fair / row : GROUPED_LEAST;
    const int64_t rows = ceil_div(per, row);
    return rows < most ? most : rows;
}

static bool plan_stores(struct interp_run *r, int threads, int64_t *words)
{
    const struct ir_kernel *k = r->k;
    r->mode = MODE_LINEAR;
    int fast = r->n_order ? r->order[r->n_order - 1] : 0;
    int64_t lo[MAX_RANK], ext[MAX_RANK];
    struct geometry g = {.at = words, .st = words + r->n_operands};
    int64_t *work = words + r->n_operands * (size_t)(r->n_order + 1);
    if (!r->pointwise) {
        for (int a = 0; a < k->rank; a++) {
            lo[a] = r->cuts[a][r->main_cut[a]];
            ext[a] = r->cuts[a][r->main_cut[a] + 1] - lo[a];
        }
        interp_geometry(r, lo, ext, false, &g, work);
        if (g.q >= 0)
            r->mode = MODE_TILE;
        else if (r->n_order > 1 && r->n_cuts[fast] > 1 && k->shape[fast] < GROUPED_ROW)
            r->mode = MODE_GROUPED;
    }
    r->flat = !r->ctx.any_shift && !r->pointwise && g.nd < 2;
    for (uint32_t i = 0; i < r->n_operands && r->flat && g.nd; i++)
        r->flat = g.st[i] == 0 || g.st[i] == r->operands[i].itemsize;
    if (r->mode == MODE_GROUPED && !split_narrow(r, fast))
        return false;

    r->stream = !r->in_place && r->points * interp_item_bytes(r) >= STREAM_BYTES;
    r->n_boxes = 1;
    for (int a = 0; a < k->rank; a++) {
        if (r->n_cuts[a] == 1 || r->pointwise || (r->mode == MODE_GROUPED && a == fast))
            continue;
        r->box_axes[r->n_box_axes++] = a;
        r->n_boxes *= r->n_cuts[a];
    }
    int64_t per = UNIT_POINTS, cost = point_cost(k);
    if (cost > UNIT_COST)
        per = per / cost * UNIT_COST < UNIT_LEAST ? UNIT_LEAST : per / cost * UNIT_COST;
    int64_t fair = r->points / (4 * (int64_t)threads);
    if (fair < per)
        per = fair < UNIT_LEAST ? UNIT_LEAST : (fair + 1023) / 1024 * 1024;
    if (r->pointwise)
        per = 1024;
    if (r->mode == MODE_GROUPED)
        per = grouped_rows(per, fair, k->shape[fast]);
    else if (r->mode == MODE_TILE)
        per = ceil_div(per, interp_tile_points(r));
    r->unit_size = per;
    if (r->mode == MODE_GROUPED)
        r->needs.staging = interp_ends_bytes(r, per) + (k->n_outputs > 1 ? BLOCK_MOST * 16 : 0);

    r->first_unit = arena_alloc_array(r->arena, (size_t)r->n_boxes + 1, sizeof *r->first_unit);
    if (!r->first_unit)
        return false;
    for (int64_t b = 0; b < r->n_boxes; b++) {
        interp_box(r, b, lo, ext);
        int64_t items = 1;
        if (r->mode == MODE_TILE) {
            interp_geometry(r, lo, ext, false, &g, work);
            /* A box without tiles is processed linearly, a tile's worth at a time. */
            items = g.q >= 0 ? g.n_tiles : ceil_div(g.points, interp_tile_points(r));
        } else {
            for (int a = 0; a < k->rank; a++)
                if (r->mode != MODE_GROUPED || a != fast)
                    items *= ext[a];
        }
        r->first_unit[b] = r->n_units;
        r->n_units += (items + per - 1) / per;
    }
    r->first_unit[r->n_boxes] = r->n_units;
    return true;
}

/* Points times the cost of one: more than its nodes' where the traversal is not linear. */
static int64_t cost_of(const struct interp_run *r)
{
    int64_t cost = point_cost(r->k);
    if (r->pointwise)
        cost += 128 * (int64_t)r->n_operands;
    else if (r->mode == MODE_TILE || r->scan || r->arg)
        cost += 16;
    return __builtin_mul_overflow(cost, r->points, &cost) ? INT64_MAX : cost;
}

static bool plan(struct interp_run *r, void *const *slots, int threads)
{
    const struct ir_kernel *k = r->k;
    r->id = interp_next_id();
    r->points = 1;
    for (int a = 0; a < k->rank; a++)
        r->points *= k->shape[a];
    r->operand_of = arena_alloc_array(r->arena, k->n_nodes, sizeof *r->operand_of);
    r->live = arena_alloc_array(r->arena, k->n_nodes, sizeof *r->live);
    r->ctx.used = arena_alloc_array(r->arena, k->n_ctxs, sizeof *r->ctx.used);
    r->ctx.shifts = arena_alloc_array(r->arena, k->n_ctxs, sizeof *r->ctx.shifts);
    r->ctx.at = arena_alloc_array(r->arena, k->n_ctxs, sizeof *r->ctx.at);
    r->ctx.offsets = arena_alloc_array(r->arena, k->n_ctxs, sizeof *r->ctx.offsets);
    if (!r->operand_of || !r->live || !r->ctx.used || !r->ctx.shifts || !r->ctx.at ||
        !r->ctx.offsets)
        return false;
    r->ctx.used[0] = true;
    if (k->outputs[0].kind == OUT_REDUCE && !interp_reduce_open(r))
        return false;
    if (k->outputs[0].kind == OUT_SCAN)
        interp_scan_open(r);
    mark_live(r);
    r->operands = arena_alloc_array(r->arena, r->n_operands, sizeof *r->operands);
    r->rows = arena_alloc_array(r->arena, k->n_inputs + 1, sizeof *r->rows);
    if (!r->operands || !r->rows)
        return false;
    list_operands(r, slots);
    if (r->points == 0)
        return true;
    r->large = r->points >= LARGE_POINTS;
    if (!interp_cut(r))
        return false;
    size_t n_words =
        r->n_operands * (size_t)(k->rank + 2) + 2 * (size_t)r->ctx.coords + k->n_ctxs + 8;
    int64_t *words = arena_alloc_array(r->arena, n_words, sizeof *words);
    if (!words)
        return false;
    choose_order(r, words);
    if (r->scan      ? !interp_scan_plan(r)
        : r->reduces ? !interp_reduce_plan(r)
                     : !plan_stores(r, threads, words))
        return false;
    interp_size_programs(r);
    r->small = cost_of(r) < SMALL_COST;
    r->point_cost = point_cost(k);
    return k->steps < 2 || interp_steps_plan(r, threads);
}

struct interp_run *interp_new(const struct ir_kernel *k, void *const *slots, int threads)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct interp_run *r = arena ? arena_alloc(arena, sizeof *r) : NULL;
    if (!r)
        return NULL;
    r->arena = arena;
    r->k = k;
    if (!plan(r, slots, threads))
        return NULL;
    arena = NULL;
    return r;
}

void interp_free(struct interp_run *r)
{
    if (!r)
        return;
    interp_forget(r);
    for (uint32_t i = 0; i < r->stages.n; i++)
        interp_free(r->stages.runs[i]);
    arena_free(r->arena);
}

int64_t interp_cost(const struct ir_kernel *k)
{
    int64_t cost = point_cost(k);
    if (k->steps > 1 && __builtin_mul_overflow(cost, (int64_t)k->steps, &cost))
        return INT64_MAX;
    for (int a = 0; a < k->rank; a++)
        if (__builtin_mul_overflow(cost, k->shape[a], &cost))
            return INT64_MAX;
    return cost;
}
