/* Units of storing kernels.
 *
 * A stencil's unit is a group of rows: first the middle of the rows, where every load is inside,
 * then the columns at either end, which are still in cache. When the rows follow each other in
 * memory for every operand, the middle is run as one long row that overruns the row ends: what it
 * computes in the end columns is nonsense (read from the neighbouring rows, always inside the
 * operand) and is overwritten by the columns' own boxes at the end of the unit. That is forbidden
 * where the output is an input's memory. */
#include "compute/cpu/interp_int.h"
#include "compute/cpu/rows.h"

static int64_t box_of(const struct interp_run *r, int64_t unit)
{
    int64_t lo = 0, hi = r->n_boxes;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (r->first_unit[mid] <= unit)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static bool grouped(struct interp_run *r, int64_t box, int64_t from, int64_t to,
                    struct interp_scratch *s)
{
    const int fast = r->order[r->n_order - 1], next = r->order[r->n_order - 2];
    const int64_t n = r->n_cuts[fast], main = r->main_cut[fast];
    const int64_t full = r->k->shape[fast];

    struct bound *b = interp_bind(r, box * n + main, r->may_overrun, 0, s);
    if (!b)
        return false;
    int64_t width = b->box_ext[fast], high = b->box_ext[next];
    if (b->overrun) {
        int64_t plane = (high - 1) * full + width;
        for (int64_t row = from; row < to;) {
            int64_t y = row % high, rows = high - y < to - row ? high - y : to - row;
            int64_t f = row / high * plane + y * full;
            interp_store_range(b, f, f + (rows - 1) * full + width);
            row += rows;
        }
    } else {
        interp_store_range(b, from * width, to * width);
    }
    int slot = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == main)
            continue;
        slot = slot % (BOUND_SLOTS - 1) + 1;
        b = interp_bind(r, box * n + i, false, slot, s);
        if (!b)
            return false;
        width = b->box_ext[fast];
        interp_store_range(b, from * width, to * width);
    }
    return true;
}

bool interp_store_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    int64_t box = box_of(r, unit);
    int64_t from = (unit - r->first_unit[box]) * r->unit_size, to = from + r->unit_size;
    if (r->mode == MODE_GROUPED) {
        int64_t lo[MAX_RANK], ext[MAX_RANK], rows = 1;
        interp_box(r, box, lo, ext);
        for (int i = 0; i < r->n_order - 1; i++)
            rows *= ext[r->order[i]];
        return grouped(r, box, from, to < rows ? to : rows, s);
    }
    struct bound *b = interp_bind(r, box, false, 0, s);
    if (!b)
        return false;
    if (r->mode == MODE_TILE && b->g.q >= 0) {
        interp_store_tiles(b, from, to < b->g.n_tiles ? to : b->g.n_tiles);
        return true;
    }
    if (r->mode == MODE_TILE) {
        from *= 1024;
        to *= 1024;
    }
    interp_store_range(b, from, to < b->g.points ? to : b->g.points);
    if (r->stream)
        rows_stream_end();
    return true;
}
