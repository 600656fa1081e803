/* Reductions. Which elements meet in which order depends on the shape alone, never on the number of
 * threads, so that a sum is the same to the bit wherever it runs.
 *
 * Boxes that differ only along reduced axes write the same outputs: they form a group and are
 * combined in box order. Within a group there are two ways:
 *  INNER: the fastest axes are reduced. Points are numbered [kept][reduced]; each kept point has a
 *         state that eats its run block by block.
 *  OUTER: the fastest axes are kept. Points are numbered [kept][reduced][lanes]; a tile of lanes is
 *         an accumulator to which rows are added, at most CHAIN of them, then the accumulators are
 *         merged pairwise. Few lanes are widened: several rows are added as one long row and the
 *         accumulator is folded at the end.
 * With many outputs a unit owns some of them from beginning to end; with few (`split`), a unit is
 * one stretch of the reduced points for one state or tile, and interp_finish merges the partial
 * results pairwise in order. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_int.h"
#include "compute/cpu/interp/rows.h"

#define UNIT_POINTS 65536
#define MOST_STATES 1024 /* a unit's */
#define WIDE_LANES  256
#define CHAIN       512
#define FEW_CELLS   64
#define SHORT_RUN   16
#define STATE_MAX   64
#define LEVELS      64
#define PARTIALS    (INT64_C(64) << 20) /* bytes of partial results, about */
#define ARG_STATE   16

static bool is_reduced(const struct interp_run *r, int axis)
{
    return r->k->outputs[0].axes >> axis & 1;
}

void interp_reduce_sizes(const struct interp_run *r, const int64_t *ext, int64_t *outer,
                         int64_t *reduced, int64_t *lanes)
{
    int mid = r->first_reduced, end = mid + r->n_reduced;
    *outer = product(r, ext, 0, mid);
    *reduced = product(r, ext, mid, end);
    *lanes = product(r, ext, end, r->n_order);
}

bool interp_reduce_open(struct interp_run *r)
{
    const struct ir_output *o = &r->k->outputs[0];
    assert(r->k->n_outputs == 1);
    r->reduces = true;
    r->reduce_dtype = r->k->nodes[o->node].dtype;
    r->divisor = reduce_divides(o->reduce) ? o->divisor : 1;
    if (!reduce_is_arg(o->reduce)) {
        r->reduce = loop_reduce(o->reduce, r->reduce_dtype);
        assert(r->reduce);
        return true;
    }
    r->arg = loop_arg(o->reduce, r->reduce_dtype);
    assert(r->arg);
    r->arg_strides = arena_alloc_array(r->arena, (size_t)r->k->rank + 1, sizeof *r->arg_strides);
    for (int a = 0; a < r->k->rank && r->arg_strides; a++)
        r->arg_strides[a] = ir_reduced_stride(r->k, a);
    return r->arg_strides != NULL;
}

static void arrange_axes(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    int64_t kept = 1, reduced = 1, run = 1, lanes = 1;
    int n = r->n_order, tail = n;
    for (int i = 0; i < n; i++)
        *(is_reduced(r, r->order[i]) ? &reduced : &kept) *= k->shape[r->order[i]];
    bool fast_reduced = n && is_reduced(r, r->order[n - 1]);
    for (int i = n; i-- > 0 && is_reduced(r, r->order[i]) == fast_reduced; tail = i)
        *(fast_reduced ? &run : &lanes) *= k->shape[r->order[i]];
    r->mode = n == 0 || (fast_reduced && (run >= SHORT_RUN || kept < SHORT_RUN)) ? MODE_INNER
                                                                                 : MODE_OUTER;
    /* All kept axes as lanes where rows would be short: each lane strides through memory then. */
    if (r->mode == MODE_OUTER && (fast_reduced || (lanes < SHORT_RUN && reduced < 4 * SHORT_RUN)))
        tail = 0;
    if (r->mode == MODE_INNER)
        tail = n;
    int sorted[MAX_RANK], m = 0;
    memcpy(sorted, r->order, sizeof sorted);
    for (int i = 0; i < tail; i++)
        if (!is_reduced(r, sorted[i]))
            r->order[m++] = sorted[i];
    r->first_reduced = m;
    for (int i = 0; i < n; i++)
        if (is_reduced(r, sorted[i]))
            r->order[m++] = sorted[i];
    r->n_reduced = m - r->first_reduced;
    for (int i = tail; i < n; i++)
        if (!is_reduced(r, sorted[i]))
            r->order[m++] = sorted[i];
    r->n_lanes = m - r->first_reduced - r->n_reduced;
}

/* Rows a block takes at once when there are few lanes. */
static int64_t rows_at_once(int64_t lanes, int64_t reduced)
{
    int64_t m = WIDE_LANES / lanes;
    return m < 1 ? 1 : m > reduced ? reduced : m;
}

static int64_t chunk_rows(int64_t lanes)
{
    return 2 * UNIT_POINTS / (lanes < REDUCE_TILE ? lanes : REDUCE_TILE);
}

/* Accumulators that are merged pairwise as they come, of rows in all. */
static int tower_levels(const struct interp_run *r, int64_t rows)
{
    int levels = 3;
    for (int64_t n = rows / CHAIN + r->boxes_per_group; n; n >>= 1)
        levels++;
    return levels;
}

static size_t tower_step(const struct interp_run *r, size_t lanes)
{
    return (lanes * r->reduce->acc_size + 63) & ~(size_t)63;
}

/* Longer stretches where there would be too many partial results, and none where one for each cell
 * is too many already. */
static void bound_partials(struct interp_run *r, int64_t cells, int64_t reduced)
{
    while (r->split && cells * ceil_div(reduced, r->unit_size) > PARTIALS / r->partial_size) {
        r->split = r->unit_size < reduced;
        r->unit_size = r->split ? 2 * r->unit_size : 1;
    }
}

/* Of the whole shape; boxes have no more of anything. */
static void plan_scratch(struct interp_run *r, int64_t reduced, int64_t lanes)
{
    r->staging = (size_t)REDUCE_TILE * 16;
    if (r->arg) {
        r->accumulators = (size_t)REDUCE_TILE * ARG_STATE;
    } else if (r->mode == MODE_INNER) {
        r->accumulators = r->split ? 0 : (size_t)r->unit_size * r->reduce->state_size;
    } else {
        int64_t wide = lanes < REDUCE_TILE ? lanes : REDUCE_TILE;
        if (wide < WIDE_LANES)
            wide = WIDE_LANES; /* few lanes are several rows of them */
        r->accumulators = tower_step(r, (size_t)wide) *
                              (size_t)tower_levels(r, r->split ? r->unit_size : reduced) +
                          64;
    }
}

bool interp_reduce_plan(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    arrange_axes(r);
    r->n_groups = r->boxes_per_group = 1;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < r->n_order; i++) {
            int a = r->order[i];
            if (r->n_cuts[a] == 1 || is_reduced(r, a) != (pass == 1))
                continue;
            r->box_axes[r->n_box_axes++] = a;
            *(pass ? &r->boxes_per_group : &r->n_groups) *= r->n_cuts[a];
        }
    }
    r->n_boxes = r->n_groups * r->boxes_per_group;

    int64_t outer, reduced, lanes, lo[MAX_RANK], ext[MAX_RANK];
    interp_reduce_sizes(r, k->shape, &outer, &reduced, &lanes);
    int64_t tile = lanes < REDUCE_TILE ? lanes : REDUCE_TILE;
    if (r->mode == MODE_INNER) {
        r->split = reduced >= 2 * UNIT_POINTS;
        r->unit_size = r->split ? UNIT_POINTS : UNIT_POINTS / reduced;
        if (r->unit_size > MOST_STATES && !r->split)
            r->unit_size = MOST_STATES;
        r->partial_size = r->arg ? ARG_STATE : (int64_t)r->reduce->state_size;
    } else {
        r->split =
            outer * ceil_div(lanes, REDUCE_TILE) < FEW_CELLS && reduced >= 2 * chunk_rows(lanes);
        r->unit_size = r->split ? chunk_rows(lanes) : UNIT_POINTS / (reduced * tile);
        r->partial_size = (r->arg ? ARG_STATE : (int64_t)r->reduce->acc_size) * tile;
    }
    if (r->unit_size < 1)
        r->unit_size = 1;
    bound_partials(r, outer * (r->mode == MODE_INNER ? 1 : ceil_div(lanes, REDUCE_TILE)), reduced);
    plan_scratch(r, reduced, lanes);

    int64_t n = r->split ? r->n_boxes : r->n_groups;
    r->first_unit = arena_alloc_array(r->arena, (size_t)n + 1, sizeof *r->first_unit);
    if (!r->first_unit)
        return false;
    for (int64_t i = 0; i < n; i++) {
        interp_box(r, r->split ? i : i * r->boxes_per_group, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
        int64_t cells = outer * (r->mode == MODE_INNER ? 1 : ceil_div(lanes, REDUCE_TILE));
        r->first_unit[i] = r->n_units;
        r->n_units +=
            r->split ? cells * ceil_div(reduced, r->unit_size) : ceil_div(cells, r->unit_size);
    }
    r->first_unit[n] = r->n_units;
    if (r->split) {
        r->partials = arena_alloc_array(r->arena, (size_t)r->n_units, (size_t)r->partial_size);
        if (!r->partials)
            return false;
    }
    return true;
}

/* ---- outputs ---- */

/* Where the kept point number `kept` of a box with this corner and these extents goes, and how many
 * further ones follow at a constant stride. */
static char *kept_address(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                          int64_t kept, int64_t *ret_run, int64_t *ret_stride)
{
    const struct operand *o = &r->operands[r->n_operands - 1];
    int64_t at = 0;
    bool fastest = true;
    *ret_run = 1;
    *ret_stride = o->itemsize;
    for (int a = 0; a < r->k->rank; a++)
        at += is_reduced(r, a) ? 0 : lo[a] * o->strides[a];
    for (int i = r->n_order; i-- > 0;) {
        int a = r->order[i];
        if (is_reduced(r, a))
            continue;
        int64_t c = kept % ext[a];
        kept /= ext[a];
        at += c * o->strides[a];
        if (fastest) {
            *ret_run = ext[a] - c;
            *ret_stride = o->strides[a] * o->itemsize;
            fastest = false;
        }
    }
    return o->base + at * o->itemsize;
}

void interp_reduce_write(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                         int64_t kept, const char *values, int64_t n)
{
    size_t size = r->operands[r->n_operands - 1].itemsize;
    while (n > 0) {
        int64_t run, stride;
        char *to = kept_address(r, lo, ext, kept, &run, &stride);
        if (run > n)
            run = n;
        rows_scatter(to, size, run, stride, 1, 0, values);
        kept += run;
        n -= run;
        values += run * (int64_t)size;
    }
}

/* ---- INNER ---- */

/* Eats points [f, end) of one run into a state. */
static void eat(struct interp_run *r, struct bound *b, void *state, int64_t f, int64_t end)
{
    uint32_t node = b->alias[r->k->outputs[0].node];
    struct block blk;
    blk.n = 0;
    while (f < end && !interp_over(b, blk.n)) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        interp_eval(b, &blk, false);
        r->reduce->block(state, b->ptr[node], (size_t)blk.n);
        f += blk.n;
    }
}

/* Many short runs: blocks hold several of them. */
static void eat_many(struct interp_run *r, struct bound *b, char *states, int64_t from, int64_t to,
                     int64_t run)
{
    uint32_t node = b->alias[r->k->outputs[0].node];
    size_t item = dtype_size(r->reduce_dtype), state_size = r->reduce->state_size;
    struct block blk;
    blk.n = 0;
    for (int64_t f = from * run, end = to * run; f < end && !interp_over(b, blk.n); f += blk.n) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        if (!b->cut && blk.n > run)
            blk.n -= blk.n % run;
        interp_eval(b, &blk, false);
        const char *values = b->ptr[node];
        for (int64_t g = f; g < f + blk.n;) {
            int64_t kept = g / run, n = (kept + 1) * run - g;
            if (n > f + blk.n - g)
                n = f + blk.n - g;
            r->reduce->block(states + (size_t)(kept - from) * state_size, values, (size_t)n);
            values += (size_t)n * item;
            g += n;
        }
    }
}

static void inner_unit(struct interp_run *r, int64_t at, int64_t i, struct interp_scratch *s)
{
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, lanes;
    if (r->split) {
        interp_box(r, at, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
        int64_t chunks = ceil_div(reduced, r->unit_size), kept = i / chunks;
        int64_t from = i % chunks * r->unit_size, to = from + r->unit_size;
        char *state = r->partials + (r->first_unit[at] + i) * r->partial_size;
        struct bound *b = interp_bind(r, at, false, 0, s);
        r->reduce->init(state);
        eat(r, b, state, kept * reduced + from, kept * reduced + (to < reduced ? to : reduced));
        return;
    }
    interp_box(r, at * r->boxes_per_group, lo, ext);
    interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
    int64_t from = i * r->unit_size, to = from + r->unit_size;
    if (to > outer)
        to = outer;
    size_t state_size = r->reduce->state_size;
    char *states = s->reduce;
    for (int64_t j = 0; j < to - from; j++)
        r->reduce->init(states + (size_t)j * state_size);
    for (int64_t p = 0; p < r->boxes_per_group; p++) {
        struct bound *b = interp_bind(r, at * r->boxes_per_group + p, false, p % BOUND_SLOTS, s);
        int64_t box_outer;
        interp_reduce_sizes(r, b->box_ext, &box_outer, &reduced, &lanes);
        eat_many(r, b, states, from, to, reduced);
    }
    size_t item = dtype_size(r->reduce_dtype);
    for (int64_t j = 0; j < to - from; j++)
        r->reduce->finish(states + (size_t)j * state_size, s->staging + (size_t)j * item,
                          r->divisor);
    interp_reduce_write(r, lo, ext, from, s->staging, to - from);
}

/* ---- OUTER ---- */

/* Pairwise merging of accumulators as they come: level l holds the merge of 2^l chains. */
struct tower {
    const struct reduce_loops *reduce;
    size_t lanes;
    char *cur;
    char *level[LEVELS];
    uint64_t chains; /* bit l: level l is taken */
    int64_t in_chain;
    char *spare;
    size_t size; /* of an accumulator */
};

static void tower_push(struct tower *t)
{
    int l = 0;
    for (; t->chains >> l & 1; l++) {
        t->reduce->vmerge(t->level[l], t->cur, t->lanes, t->lanes);
        char *swap = t->cur;
        t->cur = t->level[l];
        t->level[l] = swap;
    }
    if (!t->level[l]) {
        t->level[l] = t->spare;
        t->spare += t->size;
    }
    char *swap = t->cur;
    t->cur = t->level[l];
    t->level[l] = swap;
    t->chains++;
    t->in_chain = 0;
    t->reduce->vinit(t->cur, t->lanes);
}

static char *tower_top(struct tower *t)
{
    char *acc = t->cur;
    for (int l = 0; l < LEVELS; l++) {
        if (t->chains >> l & 1) {
            t->reduce->vmerge(t->level[l], acc, t->lanes, t->lanes);
            acc = t->level[l];
        }
    }
    return acc;
}

static void tower_start(struct tower *t, const struct interp_run *r, size_t lanes, int64_t rows,
                        struct interp_scratch *s)
{
    size_t size = tower_step(r, lanes);
    assert(size * (size_t)tower_levels(r, rows) + 64 <= s->reduce_size);
    (void)rows;
    char *base = (char *)(((uintptr_t)s->reduce + 63) & ~(uintptr_t)63);
    *t = (struct tower){
        .reduce = r->reduce, .lanes = lanes, .cur = base, .spare = base + size, .size = size};
    r->reduce->vinit(t->cur, lanes);
}

/* Adds rows [from, to) of one box for the lanes [l0, l1) of the kept point `outer`. */
static void add_rows(struct interp_run *r, struct bound *b, struct tower *t, int64_t outer,
                     int64_t reduced, int64_t lanes, int64_t l0, int64_t l1, int64_t from,
                     int64_t to, int64_t at_once)
{
    uint32_t node = b->alias[r->k->outputs[0].node];
    size_t step = r->reduce->acc_step;
    struct block blk;
    int64_t done = 0;
    for (int64_t row = from; row < to && !interp_over(b, done);) {
        int64_t f = (outer * reduced + row) * lanes + l0;
        done = at_once > 1 ? at_once * lanes : l1 - l0;
        if (at_once > 1) {
            int64_t rows = to - row < at_once ? to - row : at_once;
            blk.n = interp_block_size(b, f, rows * lanes);
            blk.n -= blk.n % lanes;
            interp_locate(b, f, &blk);
            interp_eval(b, &blk, false);
            r->reduce->vadd(t->cur, b->ptr[node], (size_t)blk.n, t->lanes);
            row += blk.n / lanes;
        } else {
            for (int64_t l = l0; l < l1; l += blk.n) {
                interp_locate(b, f + l - l0, &blk);
                blk.n = interp_block_size(b, f + l - l0, l1 - l);
                interp_eval(b, &blk, false);
                r->reduce->vadd(t->cur + (size_t)(l - l0) * step, b->ptr[node], (size_t)blk.n,
                                t->lanes);
            }
            row++;
        }
        if (++t->in_chain == CHAIN)
            tower_push(t);
    }
}

/* Folds at_once rows of lanes to one. */
static void fold_rows(const struct interp_run *r, char *acc, int64_t lanes, int64_t rows)
{
    size_t stride = (size_t)(lanes * rows);
    while (rows > 1) {
        int64_t half = rows / 2;
        size_t n = (size_t)(half * lanes);
        r->reduce->vmerge(acc, acc + (size_t)((rows - half) * lanes) * r->reduce->acc_step, n,
                          stride);
        rows -= half;
    }
}

static void outer_unit(struct interp_run *r, int64_t at, int64_t i, struct interp_scratch *s)
{
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, lanes, all_outer, all_reduced, all_lanes;
    interp_reduce_sizes(r, r->k->shape, &all_outer, &all_reduced, &all_lanes);
    interp_box(r, r->split ? at : at * r->boxes_per_group, lo, ext);
    interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
    int64_t tiles = ceil_div(lanes, REDUCE_TILE), at_once = rows_at_once(lanes, all_reduced);
    struct tower t;

    if (r->split) {
        int64_t chunks = ceil_div(reduced, r->unit_size), cell = i / chunks;
        int64_t from = i % chunks * r->unit_size, to = from + r->unit_size;
        int64_t l0 = cell % tiles * REDUCE_TILE, l1 = l0 + REDUCE_TILE;
        l1 = l1 < lanes ? l1 : lanes;
        struct bound *b = interp_bind(r, at, false, 0, s);
        tower_start(&t, r, (size_t)((l1 - l0) * at_once), r->unit_size, s);
        add_rows(r, b, &t, cell / tiles, reduced, lanes, l0, l1, from, to < reduced ? to : reduced,
                 at_once);
        char *acc = tower_top(&t);
        fold_rows(r, acc, l1 - l0, at_once);
        char *partial = r->partials + (r->first_unit[at] + i) * r->partial_size;
        size_t plane = (size_t)(l1 - l0) * r->reduce->acc_step;
        for (size_t done = 0; done < (size_t)(l1 - l0) * r->reduce->acc_size; done += plane) {
            memcpy(partial + done, acc, plane);
            acc += t.lanes * r->reduce->acc_step;
        }
        return;
    }

    for (int64_t cell = i * r->unit_size; cell < (i + 1) * r->unit_size && cell < outer * tiles;
         cell++) {
        int64_t l0 = cell % tiles * REDUCE_TILE, l1 = l0 + REDUCE_TILE;
        l1 = l1 < lanes ? l1 : lanes;
        tower_start(&t, r, (size_t)((l1 - l0) * at_once), all_reduced, s);
        for (int64_t p = 0; p < r->boxes_per_group; p++) {
            struct bound *b =
                interp_bind(r, at * r->boxes_per_group + p, false, p % BOUND_SLOTS, s);
            int64_t box_outer, box_lanes;
            interp_reduce_sizes(r, b->box_ext, &box_outer, &reduced, &box_lanes);
            add_rows(r, b, &t, cell / tiles, reduced, lanes, l0, l1, 0, reduced, at_once);
        }
        char *acc = tower_top(&t);
        fold_rows(r, acc, l1 - l0, at_once);
        r->reduce->vfinish(s->staging, acc, (size_t)(l1 - l0), t.lanes, r->divisor);
        interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, s->staging, l1 - l0);
    }
}

void interp_reduce_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    int64_t at = interp_part(r, r->split ? r->n_boxes : r->n_groups, unit);
    if (r->arg)
        interp_arg_unit(r, at, unit - r->first_unit[at], s);
    else if (r->mode == MODE_INNER)
        inner_unit(r, at, unit - r->first_unit[at], s);
    else
        outer_unit(r, at, unit - r->first_unit[at], s);
}

/* ---- merging partial results ---- */

/* Visits the partial results of one state or tile in order and merges them as a tower does; they
 * are merged in place, so that no further memory is needed. NULL: it is over. */
static char *merge_partials(struct interp_run *r, int64_t group, int64_t cell, size_t lanes)
{
    char *level[LEVELS] = {0};
    uint64_t count = 0;
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, n_lanes;
    for (int64_t p = 0; p < r->boxes_per_group; p++) {
        int64_t box = group * r->boxes_per_group + p;
        interp_box(r, box, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &n_lanes);
        int64_t chunks = ceil_div(reduced, r->unit_size);
        for (int64_t c = 0; c < chunks; c++) {
            if (c % ASK_PARTIALS == ASK_PARTIALS - 1 && interp_ask(r))
                return NULL;
            char *cur = r->partials + (r->first_unit[box] + cell * chunks + c) * r->partial_size;
            int l = 0;
            for (; count >> l & 1; l++) {
                if (lanes)
                    r->reduce->vmerge(level[l], cur, lanes, lanes);
                else
                    r->reduce->merge(level[l], cur);
                cur = level[l];
            }
            level[l] = cur;
            count++;
        }
    }
    char *acc = NULL;
    for (int l = 0; l < LEVELS; l++) {
        if (!(count >> l & 1))
            continue;
        if (acc && lanes)
            r->reduce->vmerge(level[l], acc, lanes, lanes);
        else if (acc)
            r->reduce->merge(level[l], acc);
        acc = level[l];
    }
    return acc;
}

/* Every output gets the value of a reduction over nothing. */
static void write_identity(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    int64_t lo[MAX_RANK] = {0}, kept = 1, run, stride;
    _Alignas(16) char state[STATE_MAX];
    for (int a = 0; a < k->rank; a++) {
        if (is_reduced(r, a))
            continue;
        kept *= k->shape[a];
        if (k->shape[a] > 1)
            r->order[r->n_order++] = a;
    }
    for (int64_t j = 0; j < kept; j++) {
        r->reduce->init(state);
        r->reduce->finish(state, kept_address(r, lo, k->shape, j, &run, &stride), r->divisor);
    }
}

void interp_reduce_finish(struct interp_run *r, struct interp_scratch *s)
{
    if (r->arg) { /* never of nothing */
        interp_arg_finish(r);
        return;
    }
    if (r->points == 0) {
        write_identity(r);
        return;
    }
    if (!r->split)
        return;
    for (int64_t group = 0; group < r->n_groups; group++) {
        int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, lanes, run, stride;
        interp_box(r, group * r->boxes_per_group, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
        if (r->mode == MODE_INNER) {
            for (int64_t kept = 0; kept < outer; kept++) {
                char *acc = merge_partials(r, group, kept, 0);
                if (!acc)
                    return;
                r->reduce->finish(acc, kept_address(r, lo, ext, kept, &run, &stride), r->divisor);
            }
            continue;
        }
        int64_t tiles = ceil_div(lanes, REDUCE_TILE);
        for (int64_t cell = 0; cell < outer * tiles; cell++) {
            int64_t l0 = cell % tiles * REDUCE_TILE, l1 = l0 + REDUCE_TILE;
            l1 = l1 < lanes ? l1 : lanes;
            char *acc = merge_partials(r, group, cell, (size_t)(l1 - l0));
            size_t n = (size_t)(l1 - l0);
            if (!acc)
                return;
            r->reduce->vfinish(s->staging, acc, n, n, r->divisor);
            interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, s->staging, l1 - l0);
        }
    }
}
