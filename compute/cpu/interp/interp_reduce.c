/* Reductions. Which elements are combined in which order depends on the shape alone, never on the
 * number of threads, so a sum is the same to the bit wherever it runs.
 *
 * Boxes that differ only along reduced axes write the same outputs: they form a group and are
 * combined in box order. Within a group there are two ways:
 *  INNER: the fastest axes are reduced. Points are numbered [kept][reduced]; each kept point has a
 *         state that takes in its run block by block.
 *  OUTER: the fastest axes are kept. Points are numbered [kept][reduced][lanes]; a tile of lanes is
 *         an accumulator to which rows are added, at most CHAIN of them, then the accumulators are
 *         merged pairwise. Few lanes are widened: several rows are added as one long row and the
 *         accumulator is folded at the end.
 * With many outputs a unit owns some of them from beginning to end; with few (`split`), a unit is
 * one stretch of the reduced points for one state or tile, and interp_finish merges the partial
 * results pairwise in order. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_eval.h"
#include "compute/cpu/interp/interp_reduce.h"
#include "compute/cpu/interp/rows.h"

#define STATE_MAX 64
#define LEVELS    64

/* How many rows a block takes at once when there are few lanes. */
static int64_t rows_at_once(int64_t lanes, int64_t reduced)
{
    int64_t m = WIDE_LANES / lanes;
    return m < 1 ? 1 : m > reduced ? reduced : m;
}

/* ---- INNER ---- */

/* Takes points [f, end) into the states of kept points from `from` on, each with a run of reduced
 * points; where runs are short, a block holds several of them. */
static void eat(struct interp_run *r, struct bound *b, char *states, int64_t from, int64_t f,
                int64_t end, int64_t run)
{
    uint32_t node = b->alias[r->k->outputs[0].node];
    size_t item = dtype_size(r->reduce_dtype);
    struct block blk;
    for (; f < end && !interp_over(b); f += blk.n) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        if (!b->cut && blk.n > run)
            blk.n -= blk.n % run;
        interp_eval(b, &blk, false);
        const char *values = b->ptr[node];
        for (int64_t g = f; g < f + blk.n;) {
            int64_t kept = g / run, n = (kept + 1) * run - g;
            char *state = states + (kept - from) * r->partial_size;
            if (n > f + blk.n - g)
                n = f + blk.n - g;
            if (r->arg)
                interp_arg_take(r, b, state, values, g, n);
            else
                r->reduce->block(state, values, (size_t)n);
            values += (size_t)n * item;
            g += n;
        }
    }
}

static void start(const struct interp_run *r, char *state)
{
    if (r->arg)
        interp_arg_start(state);
    else
        r->reduce->init(state);
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
        start(r, state);
        eat(r, b, state, kept, kept * reduced + from,
            kept * reduced + (to < reduced ? to : reduced), reduced);
        return;
    }
    interp_box(r, at * r->boxes_per_group, lo, ext);
    interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
    int64_t from = i * r->unit_size, to = from + r->unit_size;
    if (to > outer)
        to = outer;
    char *states = s->reduce;
    for (int64_t j = 0; j < to - from; j++)
        start(r, states + j * r->partial_size);
    for (int64_t p = 0; p < r->boxes_per_group; p++) {
        struct bound *b = interp_bind(r, at * r->boxes_per_group + p, false, p % BOUND_SLOTS, s);
        int64_t box_outer;
        interp_reduce_sizes(r, b->box_ext, &box_outer, &reduced, &lanes);
        eat(r, b, states, from, from * reduced, to * reduced, reduced);
    }
    const size_t item = r->arg ? sizeof(int64_t) : dtype_size(r->reduce_dtype);
    for (int64_t j = 0; j < to - from; j++) {
        const char *state = states + j * r->partial_size;
        char *result = s->staging + (size_t)j * item;
        if (r->arg)
            interp_arg_end(state, result);
        else
            r->reduce->finish(state, result, r->divisor);
    }
    const int64_t move = s->moves ? s->moves[r->n_operands - 1] : 0;
    interp_reduce_write(r, lo, ext, from, s->staging, to - from, move);
}

/* ---- OUTER ---- */

/* Merges accumulators pairwise as they are completed: level l holds the merge of 2^l chains. */
struct tower {
    const struct reduce_loops *reduce;
    size_t lanes;
    char *cur;
    char *level[LEVELS];
    uint64_t chains; /* bit l: level l is occupied */
    int64_t in_chain;
    char *spare;
    size_t size; /* of one accumulator */
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
    size_t size = interp_tower_step(r, lanes);
    assert(interp_tower_bytes(r, lanes, rows) <= s->reduce_size);
    (void)rows;
    char *base = (char *)ALIGNED((uintptr_t)s->reduce);
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
    for (int64_t row = from; row < to && !interp_over(b);) {
        int64_t f = (outer * reduced + row) * lanes + l0;
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

/* Folds at_once rows of lanes into one. */
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
    int64_t tiles = ceil_div(lanes, LANES_TILE), at_once = rows_at_once(lanes, all_reduced);
    struct tower t;

    if (r->split) {
        int64_t chunks = ceil_div(reduced, r->unit_size), cell = i / chunks;
        int64_t from = i % chunks * r->unit_size, to = from + r->unit_size;
        int64_t l0 = cell % tiles * LANES_TILE, l1 = l0 + LANES_TILE;
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
        int64_t l0 = cell % tiles * LANES_TILE, l1 = l0 + LANES_TILE;
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
        interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, s->staging, l1 - l0, 0);
    }
}

void interp_reduce_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    int64_t at = interp_part(r, r->split ? r->n_boxes : r->n_groups, unit);
    if (r->mode == MODE_INNER)
        inner_unit(r, at, unit - r->first_unit[at], s);
    else if (r->arg)
        interp_arg_outer(r, at, unit - r->first_unit[at], s);
    else
        outer_unit(r, at, unit - r->first_unit[at], s);
}

/* ---- merging partial results ---- */

/* Visits the partial results of one state or tile in order and merges them as a tower does, in
 * place, without further memory. NULL: the run is over. */
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

/* Gives every output the value of a reduction over no elements. */
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
        r->reduce->finish(state, interp_reduce_at(r, lo, k->shape, j, &run, &stride), r->divisor);
    }
}

void interp_reduce_finish(struct interp_run *r, struct interp_scratch *s)
{
    if (r->arg) { /* these are never over no elements */
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
                r->reduce->finish(acc, interp_reduce_at(r, lo, ext, kept, &run, &stride),
                                  r->divisor);
            }
            continue;
        }
        int64_t tiles = ceil_div(lanes, LANES_TILE);
        for (int64_t cell = 0; cell < outer * tiles; cell++) {
            int64_t l0 = cell % tiles * LANES_TILE, l1 = l0 + LANES_TILE;
            l1 = l1 < lanes ? l1 : lanes;
            char *acc = merge_partials(r, group, cell, (size_t)(l1 - l0));
            size_t n = (size_t)(l1 - l0);
            if (!acc)
                return;
            r->reduce->vfinish(s->staging, acc, n, n, r->divisor);
            interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, s->staging, l1 - l0, 0);
        }
    }
}
