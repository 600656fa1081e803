/* Scans: every point gets the sum or product of the points up to it along one axis.
 *
 * Points are visited in memory order, [outer][along the axis][lanes]. A cell is one outer point and
 * a tile of lanes: one state per lane runs through the cell's rows. A unit is some cells or, where
 * there are few cells and many rows (`split`), stretches of them: a first round of units finds each
 * stretch's total, these become the totals of all stretches before it, and a second round starts
 * from them. How a cell is cut depends on the shape alone, so the bits do not depend on the number
 * of threads. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_eval.h"
#include "compute/cpu/interp/interp_units.h"

#define UNIT_POINTS 65536
#define FEW_CELLS   64

/* For a box of these extents. An axis of extent 1 is not iterated: all points are lanes then. */
static void sizes(const struct interp_run *r, const int64_t *ext, int64_t *outer, int64_t *length,
                  int64_t *lanes)
{
    int at = r->first_reduced;
    bool there = r->n_reduced > 0;
    *outer = product(r, ext, 0, at);
    *length = there ? ext[r->order[at]] : 1;
    *lanes = product(r, ext, at + there, r->n_order);
}

void interp_scan_open(struct interp_run *r)
{
    const struct ir_output *o = &r->k->outputs[0];
    assert(r->k->n_outputs == 1);
    r->scan = loop_scan(o->reduce, o->dtype);
    assert(r->scan);
}

bool interp_scan_plan(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    int axis = __builtin_ctz(k->outputs[0].axes);
    for (int i = 0; i < r->n_order; i++)
        if (r->order[i] == axis) {
            r->first_reduced = i;
            r->n_reduced = 1;
        }
    r->mode = MODE_SCAN;
    r->n_groups = r->boxes_per_group = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->n_order; i++) {
            int a = r->order[i];
            if (r->n_cuts[a] == 1 || (a == axis) != (pass == 1))
                continue;
            r->box_axes[r->n_box_axes++] = a;
            *(pass ? &r->boxes_per_group : &r->n_groups) *= r->n_cuts[a];
        }
    r->n_boxes = r->n_groups * r->boxes_per_group;

    int64_t outer, length, lanes, lo[MAX_RANK], ext[MAX_RANK];
    sizes(r, k->shape, &outer, &length, &lanes);
    int64_t tile = lanes < LANES_TILE ? lanes : LANES_TILE;
    r->split = outer * ceil_div(lanes, LANES_TILE) < FEW_CELLS && length * tile >= 4 * UNIT_POINTS;
    r->unit_size = r->split ? UNIT_POINTS / tile : UNIT_POINTS / (length * tile);
    if (r->unit_size < 1)
        r->unit_size = 1;
    r->partial_size = (int64_t)r->scan->state_size * tile;
    int64_t n = r->split ? r->n_boxes : r->n_groups;
    r->first_unit = arena_alloc_array(r->arena, (size_t)n + 1, sizeof *r->first_unit);
    if (!r->first_unit)
        return false;
    for (int64_t i = 0; i < n; i++) {
        interp_box(r, r->split ? i : i * r->boxes_per_group, lo, ext);
        sizes(r, ext, &outer, &length, &lanes);
        int64_t cells = outer * ceil_div(lanes, LANES_TILE);
        r->first_unit[i] = r->n_units;
        r->n_units +=
            r->split ? cells * ceil_div(length, r->unit_size) : ceil_div(cells, r->unit_size);
    }
    r->first_unit[n] = r->n_units;
    r->rounds = r->split ? 2 : 1;
    r->needs.accumulators =
        (size_t)r->partial_size * (r->split ? 2 : 1); /* interp_scan_again needs two */
    r->needs.staging = (size_t)(r->points < BLOCK_MOST ? r->points + 15 : BLOCK_MOST) *
                       r->operands[r->n_operands - 1].itemsize;
    if (r->split) {
        r->partials = arena_alloc_array(r->arena, (size_t)r->n_units, (size_t)r->partial_size);
        if (!r->partials)
            return false;
    }
    return true;
}

/* The state of a scan through some cells. */
struct scan_cursor {
    struct interp_run *r;
    struct bound *b;
    int64_t length, lanes;
    int64_t l0, l1; /* the tile */
    char *state;
    bool fresh; /* every cell begins within the range: its states are reset at its first row */
    bool write;
    char *staging; /* a block's results before they go to memory that is not contiguous */
};

/* Takes in one block: n values from point f on, row by row or a piece of a row. */
static void take(struct scan_cursor *w, const char *values, char *to, int64_t f, int64_t n)
{
    const struct scan_loops *scan = w->r->scan;
    size_t item = w->r->operands[w->r->n_operands - 1].itemsize;
    size_t stride = (size_t)(w->l1 - w->l0);
    /* the distance between lanes is the size of their sum: half a state where errors are kept */
    size_t step = scan->state_size == 8 || reduce_scan(w->r->k->outputs[0].reduce) == SCAN_PROD
                      ? scan->state_size
                      : scan->state_size / 2;
    for (int64_t i = 0; i < n;) {
        int64_t l = (f + i) % w->lanes - w->l0, row = (f + i) / w->lanes % w->length;
        int64_t rows = 1, lanes = (int64_t)stride - l;
        if (l == 0 && stride == (size_t)w->lanes && n - i >= lanes) {
            rows = (n - i) / lanes;
            if (rows > w->length - row)
                rows = w->length - row;
        } else if (lanes > n - i) {
            lanes = n - i;
        }
        if (w->fresh && row == 0 && l == 0)
            scan->init(w->state, stride);
        char *state = w->state + (size_t)l * step;
        const char *from = values + (size_t)i * item;
        if (w->write)
            scan->scan(state, stride, to + (size_t)i * item, from, (size_t)lanes, (size_t)rows);
        else
            scan->add(state, stride, from, (size_t)lanes, (size_t)rows);
        i += rows * lanes;
    }
}

static void cursor_range(struct scan_cursor *w, int64_t f, int64_t end)
{
    struct bound *b = w->b;
    uint32_t node = b->alias[w->r->k->outputs[0].node], out = w->r->n_operands - 1;
    bool direct = b->class_of[out] == CLASS_DIRECT;
    struct block blk;
    for (; f < end && !interp_over(b); f += blk.n) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        interp_eval(b, &blk, false);
        char *to = direct ? (char *)(intptr_t)interp_address(b, out, blk.c) : w->staging;
        take(w, b->ptr[node], to, f, blk.n);
        if (w->write && !direct)
            interp_put(b, &blk, w->staging);
    }
}

/* Scans rows [from, to) of a cell. */
static void cursor_cell(struct scan_cursor *w, int64_t outer, int64_t from, int64_t to)
{
    int64_t first = (outer * w->length + from) * w->lanes;
    if (w->l1 - w->l0 == w->lanes) {
        cursor_range(w, first, first + (to - from) * w->lanes);
        return;
    }
    for (int64_t row = from; row < to; row++, first += w->lanes)
        cursor_range(w, first + w->l0, first + w->l1);
}

static void choose_tile(struct scan_cursor *w, int64_t tile)
{
    w->l0 = tile * LANES_TILE;
    w->l1 = w->l0 + LANES_TILE < w->lanes ? w->l0 + LANES_TILE : w->lanes;
}

static void stretch(struct interp_run *r, int64_t box, int64_t i, struct interp_scratch *s)
{
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer;
    struct scan_cursor w = {.r = r, .staging = s->staging, .write = r->round == 1};
    interp_box(r, box, lo, ext);
    sizes(r, ext, &outer, &w.length, &w.lanes);
    int64_t stretches = ceil_div(w.length, r->unit_size), cell = i / stretches;
    int64_t from = i % stretches * r->unit_size, to = from + r->unit_size;
    int64_t tiles = ceil_div(w.lanes, LANES_TILE);
    choose_tile(&w, cell % tiles);
    w.state = r->partials + (r->first_unit[box] + i) * r->partial_size;
    w.b = interp_bind(r, box, false, 0, s);
    if (!w.write)
        r->scan->init(w.state, (size_t)(w.l1 - w.l0));
    cursor_cell(&w, cell / tiles, from, to < w.length ? to : w.length);
}

static void cells(struct interp_run *r, int64_t group, int64_t i, struct interp_scratch *s)
{
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, box_outer;
    struct scan_cursor w = {
        .r = r, .staging = s->staging, .write = true, .fresh = r->boxes_per_group == 1};
    int64_t box = group * r->boxes_per_group;
    interp_box(r, box, lo, ext);
    sizes(r, ext, &outer, &w.length, &w.lanes);
    int64_t tiles = ceil_div(w.lanes, LANES_TILE), end = (i + 1) * r->unit_size;
    if (end > outer * tiles)
        end = outer * tiles;
    w.state = s->reduce;
    for (int64_t cell = i * r->unit_size; cell < end; cell++) {
        choose_tile(&w, cell % tiles);
        if (!w.fresh)
            r->scan->init(w.state, (size_t)(w.l1 - w.l0));
        for (int64_t p = 0; p < r->boxes_per_group; p++) {
            w.b = interp_bind(r, box + p, false, p % BOUND_SLOTS, s);
            sizes(r, w.b->box_ext, &box_outer, &w.length, &w.lanes);
            if (w.fresh && tiles == 1) { /* all cells as one range */
                cursor_range(&w, cell * w.length * w.lanes, end * w.length * w.lanes);
                return;
            }
            cursor_cell(&w, cell / tiles, 0, w.length);
        }
    }
}

void interp_scan_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    int64_t at = interp_part(r, r->split ? r->n_boxes : r->n_groups, unit);
    if (r->split)
        stretch(r, at, unit - r->first_unit[at], s);
    else
        cells(r, at, unit - r->first_unit[at], s);
}

/* Turns each stretch's total into the total of all stretches before it. */
bool interp_scan_again(struct interp_run *r, struct interp_scratch *s)
{
    if (r->round + 1 >= r->rounds)
        return false;
    r->round++;
    char *total = s->reduce, *own = total + r->partial_size;
    for (int64_t group = 0; group < r->n_groups; group++) {
        int64_t lo[MAX_RANK], ext[MAX_RANK], outer, length, lanes;
        interp_box(r, group * r->boxes_per_group, lo, ext);
        sizes(r, ext, &outer, &length, &lanes);
        int64_t tiles = ceil_div(lanes, LANES_TILE);
        for (int64_t cell = 0; cell < outer * tiles; cell++) {
            int64_t l0 = cell % tiles * LANES_TILE;
            size_t n = (size_t)(lanes - l0 < LANES_TILE ? lanes - l0 : LANES_TILE);
            r->scan->init(total, n);
            for (int64_t p = 0; p < r->boxes_per_group; p++) {
                int64_t box = group * r->boxes_per_group + p;
                interp_box(r, box, lo, ext);
                sizes(r, ext, &outer, &length, &lanes);
                int64_t stretches = ceil_div(length, r->unit_size);
                for (int64_t i = 0; i < stretches; i++) {
                    if (i % ASK_PARTIALS == ASK_PARTIALS - 1 && interp_ask(r))
                        return false;
                    char *at =
                        r->partials + (r->first_unit[box] + cell * stretches + i) * r->partial_size;
                    memcpy(own, at, (size_t)r->partial_size);
                    memcpy(at, total, (size_t)r->partial_size);
                    r->scan->merge(total, own, n);
                }
            }
        }
    }
    return true;
}
