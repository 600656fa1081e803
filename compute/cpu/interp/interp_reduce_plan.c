/* How a reduction is cut: which axes its states and its lanes run along, which boxes share an
 * output, what a unit is and how much memory it needs; and where results are stored.
 * interp_reduce.c and interp_arg.c run it. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_reduce.h"
#include "compute/cpu/interp/rows.h"
#include "compute/type/reduce.h"

#define UNIT_POINTS 65536
#define MOST_STATES 1024 /* per unit */
#define FEW_CELLS   64
#define SHORT_RUN   16
#define PARTIALS    (INT64_C(64) << 20) /* bytes of partial results, approximately */
#define ARG_STATE   16

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

/* Whether every operand has its neighbours along the two axes equally far apart, as windows that
 * overlap have. */
static bool equally_near(const struct interp_run *r, int a, int b)
{
    bool varies = false;
    for (uint32_t i = 0; i < r->n_operands - r->n_stores; i++) {
        const struct operand *o = &r->operands[i];
        if (o->kind != OPERAND_LOAD || o->strides[a] != o->strides[b])
            return false;
        varies |= o->strides[a] != 0;
    }
    return varies;
}

/* Puts a kept axis inside where memory is as fast along it as along the reduced one there: whole
 * rows are added up then, without a state for each window. */
static void prefer_lanes(struct interp_run *r)
{
    const int n = r->n_order;
    if (!n || !r->ctx.plain || r->pointwise || !is_reduced(r, r->order[n - 1]))
        return;
    for (int i = n - 1; i-- > 0;) {
        const int a = r->order[i];
        if (is_reduced(r, a) || r->k->shape[a] < SHORT_RUN || !equally_near(r, a, r->order[n - 1]))
            continue;
        memmove(&r->order[i], &r->order[i + 1], (size_t)(n - 1 - i) * sizeof *r->order);
        r->order[n - 1] = a;
        return;
    }
}

static void arrange_axes(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    prefer_lanes(r);
    int64_t kept = 1, reduced = 1, run = 1, lanes = 1;
    int n = r->n_order, tail = n;
    for (int i = 0; i < n; i++)
        *(is_reduced(r, r->order[i]) ? &reduced : &kept) *= k->shape[r->order[i]];
    bool fast_reduced = n && is_reduced(r, r->order[n - 1]);
    for (int i = n; i-- > 0 && is_reduced(r, r->order[i]) == fast_reduced; tail = i)
        *(fast_reduced ? &run : &lanes) *= k->shape[r->order[i]];
    r->mode = n == 0 || (fast_reduced && (run >= SHORT_RUN || kept < SHORT_RUN)) ? MODE_INNER
                                                                                 : MODE_OUTER;
    /* Use all kept axes as lanes where rows would be short: each lane then strides through memory.
     */
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

static int64_t chunk_rows(int64_t lanes)
{
    return 2 * UNIT_POINTS / (lanes < LANES_TILE ? lanes : LANES_TILE);
}

/* The levels of pairwise merging for that many rows. */
static int tower_levels(const struct interp_run *r, int64_t rows)
{
    int levels = 3;
    for (int64_t n = rows / CHAIN + r->boxes_per_group; n; n >>= 1)
        levels++;
    return levels;
}

size_t interp_tower_step(const struct interp_run *r, size_t lanes)
{
    return ALIGNED(lanes * r->reduce->acc_size);
}

size_t interp_tower_bytes(const struct interp_run *r, size_t lanes, int64_t rows)
{
    return interp_tower_step(r, lanes) * (size_t)tower_levels(r, rows) + 64;
}

/* Uses longer stretches where there would be too many partial results, and does not split at all
 * where one per cell is too many already. */
static void bound_partials(struct interp_run *r, int64_t cells, int64_t reduced)
{
    while (r->split && cells * ceil_div(reduced, r->unit_size) > PARTIALS / r->partial_size) {
        r->split = r->unit_size < reduced;
        r->unit_size = r->split ? 2 * r->unit_size : 1;
    }
}

/* For the whole shape; no box needs more. */
static void plan_scratch(struct interp_run *r, int64_t reduced, int64_t lanes)
{
    r->needs.staging = (size_t)LANES_TILE * 16;
    if (r->arg) {
        r->needs.accumulators = (size_t)LANES_TILE * ARG_STATE;
    } else if (r->mode == MODE_INNER) {
        r->needs.accumulators = r->split ? 0 : (size_t)r->unit_size * r->reduce->state_size;
    } else {
        int64_t wide = lanes < LANES_TILE ? lanes : LANES_TILE;
        if (wide < WIDE_LANES)
            wide = WIDE_LANES; /* few lanes are widened to several rows */
        r->needs.accumulators =
            interp_tower_bytes(r, (size_t)wide, r->split ? r->unit_size : reduced);
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
    int64_t tile = lanes < LANES_TILE ? lanes : LANES_TILE;
    if (r->mode == MODE_INNER) {
        r->split = reduced >= 2 * UNIT_POINTS;
        r->unit_size = r->split ? UNIT_POINTS : UNIT_POINTS / reduced;
        if (r->unit_size > MOST_STATES && !r->split)
            r->unit_size = MOST_STATES;
        r->partial_size = r->arg ? ARG_STATE : (int64_t)r->reduce->state_size;
    } else {
        r->split =
            outer * ceil_div(lanes, LANES_TILE) < FEW_CELLS && reduced >= 2 * chunk_rows(lanes);
        r->unit_size = r->split ? chunk_rows(lanes) : UNIT_POINTS / (reduced * tile);
        r->partial_size = (r->arg ? ARG_STATE : (int64_t)r->reduce->acc_size) * tile;
    }
    if (r->unit_size < 1)
        r->unit_size = 1;
    bound_partials(r, outer * (r->mode == MODE_INNER ? 1 : ceil_div(lanes, LANES_TILE)), reduced);
    plan_scratch(r, reduced, lanes);

    int64_t n = r->split ? r->n_boxes : r->n_groups;
    r->first_unit = arena_alloc_array(r->arena, (size_t)n + 1, sizeof *r->first_unit);
    if (!r->first_unit)
        return false;
    for (int64_t i = 0; i < n; i++) {
        interp_box(r, r->split ? i : i * r->boxes_per_group, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
        int64_t cells = outer * (r->mode == MODE_INNER ? 1 : ceil_div(lanes, LANES_TILE));
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

char *interp_reduce_at(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
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
                         int64_t kept, const char *values, int64_t n, int64_t move)
{
    size_t size = r->operands[r->n_operands - 1].itemsize;
    while (n > 0) {
        int64_t run, stride;
        char *to = interp_reduce_at(r, lo, ext, kept, &run, &stride) + move;
        if (run > n)
            run = n;
        rows_scatter(to, size, run, stride, 1, 0, values);
        kept += run;
        n -= run;
        values += run * (int64_t)size;
    }
}
