/* Units of storing kernels.
 *
 * A stencil's unit is a group of rows: their middle, where every load is inside, and the columns at
 * either end. When the rows are adjacent in memory for every operand, the middle is run as one long
 * row that overruns the row ends. What it computes in the end columns is garbage (read from the
 * neighbouring rows, always inside the operand), and the columns are written over it afterwards.
 * But where the output is an input's memory, or is written past the caches, each element must be
 * written once and in order: there the columns are computed first and replace the garbage block by
 * block, before the block is written. Where there are several outputs, one that no instruction
 * computes here (a copied operand, a constant) is patched in place or, when written past the
 * caches, in a block of the staging memory. */
#include <string.h>

#include "compute/cpu/interp/interp_eval.h"
#include "compute/cpu/interp/interp_units.h"
#include "compute/cpu/interp/rows.h"

static void copy_item(char *to, const char *from, size_t size)
{
    switch (size) {
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, size);
        break;
    }
}

/* The end columns of rows [from, to), in the order in which they follow a row's middle in memory:
 * first those to its right, then those to the left of the next row's middle. The outputs' columns
 * follow one another. */
struct ends {
    char *values; /* column · rows + row − from */
    int64_t rows, from, columns, right;
    size_t item;
};

static const char *end_value(const struct ends *e, int64_t column, int64_t row)
{
    return e->values + (size_t)(column * e->rows + row - e->from) * e->item;
}

/* Moves on to output j: its item size, its values. */
static void next_ends(const struct interp_run *r, struct ends *e, uint32_t j)
{
    if (j)
        e->values += (size_t)(e->columns * e->rows) * e->item;
    e->item = r->operands[r->n_operands - r->n_stores + j].itemsize;
}

/* Computes rows [from, to) of one interval of the fastest axis into the columns from `column`. */
static void collect(struct bound *b, const struct ends *e, int64_t column, int64_t width)
{
    const struct interp_run *r = b->run;
    struct block blk;
    for (int64_t f = e->from * width, end = f + e->rows * width; f < end && !interp_over(b);
         f += blk.n) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        interp_eval(b, &blk, false);
        struct ends own = *e;
        for (uint32_t j = 0; j < r->n_stores; j++) {
            next_ends(r, &own, j);
            const char *values = b->ptr[b->alias[r->k->outputs[j].node]];
            for (int64_t i = 0; i < blk.n; i++)
                copy_item((char *)end_value(&own, column + (f + i) % width, (f + i) / width),
                          values + (size_t)i * own.item, own.item);
        }
    }
}

int64_t interp_item_bytes(const struct interp_run *r)
{
    int64_t bytes = 0;
    for (uint32_t i = r->n_operands - r->n_stores; i < r->n_operands; i++)
        bytes += r->operands[i].itemsize;
    return bytes;
}

size_t interp_ends_bytes(const struct interp_run *r, int64_t rows)
{
    const int fast = r->order[r->n_order - 1];
    const int64_t *main = &r->cuts[fast][r->main_cut[fast]];
    return (size_t)((r->k->shape[fast] - (main[1] - main[0])) * rows * interp_item_bytes(r));
}

static void compute_ends(struct interp_run *r, int64_t box, struct ends *e,
                         struct interp_scratch *s)
{
    const int fast = r->order[r->n_order - 1];
    const int64_t n = r->n_cuts[fast], main = r->main_cut[fast], full = r->k->shape[fast];
    const int64_t lo = r->cuts[fast][main], hi = r->cuts[fast][main + 1];
    e->columns = full - (hi - lo);
    e->right = full - hi;
    e->values = s->staging;
    int slot = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == main)
            continue;
        slot = slot % (BOUND_SLOTS - 1) + 1;
        struct bound *b = interp_bind(r, box * n + i, false, slot, s);
        int64_t x = r->cuts[fast][i];
        collect(b, e, x < lo ? e->right + x : x - hi, b->box_ext[fast]);
    }
}

/* Puts the end columns into a block of `n` elements that begins `at` elements after the middle of
 * row `row`. */
static void patch(const struct ends *e, char *block, int64_t at, int64_t n, int64_t row,
                  int64_t full)
{
    int64_t width = full - e->columns;
    for (int64_t t = at / full; t * full + width < at + n; t++)
        for (int64_t j = 0; j < e->columns; j++) {
            int64_t i = t * full + width + j - at;
            if (i >= 0 && i < n)
                copy_item(block + (size_t)i * e->item, end_value(e, j, row + t + (j >= e->right)),
                          e->item);
        }
}

/* Stores a block of output j, with its end columns. */
static void put_overrun(const struct bound *b, const struct ends *e, uint32_t j,
                        const struct block *blk, int64_t at, int64_t row, int64_t full, char *spare)
{
    const struct interp_run *r = b->run;
    const size_t bytes = (size_t)blk->n * e->item;
    char *from = b->ptr[b->alias[r->k->outputs[j].node]];
    char *to = (char *)(intptr_t)interp_address(b, r->n_operands - r->n_stores + j, blk->c);
    char *block = b->computed[j] ? from : r->stream ? spare : to;
    if (block != from)
        memcpy(block, from, bytes);
    patch(e, block, at, blk->n, row, full);
    if (r->stream)
        rows_stream(to, block, bytes);
    else if (block != to)
        memcpy(to, block, bytes);
}

/* Rows [row, row + rows), adjacent in memory; f: the middle of the first. */
static void overrun_rows(struct bound *b, const struct ends *e, int64_t f, int64_t row,
                         int64_t rows, int64_t full, char *spare)
{
    const struct interp_run *r = b->run;
    const uint32_t out = r->n_operands - r->n_stores;
    const int64_t width = full - e->columns, end = (rows - 1) * full + width;
    const int64_t left = e->columns - e->right;
    struct ends own;
    struct block blk;
    for (int64_t at = 0; at < end && !interp_over(b); at += blk.n) {
        interp_locate(b, f + at, &blk);
        blk.n = interp_block_size(b, f + at, end - at);
        if (at + blk.n < end)
            blk.n -= interp_block_over(b, &blk);
        interp_eval(b, &blk, false);
        own = *e;
        for (uint32_t j = 0; j < r->n_stores; j++) {
            next_ends(r, &own, j);
            put_overrun(b, &own, j, &blk, at, row, full, spare);
        }
    }
    /* Before the first row's middle and after the last one's. */
    interp_locate(b, f, &blk);
    own = *e;
    for (uint32_t j = 0; j < r->n_stores; j++) {
        next_ends(r, &own, j);
        char *first = (char *)(intptr_t)interp_address(b, out + j, blk.c);
        for (int64_t i = 0; i < left; i++)
            copy_item(first - (size_t)(left - i) * own.item, end_value(&own, own.right + i, row),
                      own.item);
        for (int64_t i = 0; i < own.right; i++)
            copy_item(first + (size_t)(end + i) * own.item, end_value(&own, i, row + rows - 1),
                      own.item);
    }
}

/* Whether the middle can overrun: results are patched where they lie. */
static bool overruns(const struct bound *b)
{
    const struct interp_run *r = b->run;
    bool fits = b->overrun && (b->computed[0] || r->n_stores > 1);
    for (uint32_t j = 0; j < r->n_stores; j++)
        fits &= b->class_of[r->n_operands - r->n_stores + j] == CLASS_DIRECT;
    return fits;
}

static void grouped(struct interp_run *r, int64_t box, int64_t from, int64_t to,
                    struct interp_scratch *s)
{
    const int fast = r->order[r->n_order - 1], next = r->order[r->n_order - 2];
    const int64_t n = r->n_cuts[fast], main = r->main_cut[fast];
    const int64_t full = r->k->shape[fast];

    struct bound *b = interp_bind(r, box * n + main, true, 0, s);
    int64_t width = b->box_ext[fast], high = b->box_ext[next];
    const bool over = overruns(b), once = over && (r->in_place || r->stream);
    if (over) {
        struct ends e = {.from = from, .rows = to - from};
        char *spare = s->staging + interp_ends_bytes(r, to - from);
        if (once)
            compute_ends(r, box, &e, s);
        int64_t plane = (high - 1) * full + width;
        for (int64_t row = from; row < to;) {
            int64_t y = row % high, rows = high - y < to - row ? high - y : to - row;
            int64_t f = row / high * plane + y * full;
            if (once)
                overrun_rows(b, &e, f, row, rows, full, spare);
            else
                interp_store_range(b, f, f + (rows - 1) * full + width);
            row += rows;
        }
    }
    for (int64_t i = 0; i < n && !once; i++) {
        if (over && i == main)
            continue;
        b = interp_bind(r, box * n + i, false, 1 + i % (BOUND_SLOTS - 1), s);
        width = b->box_ext[fast];
        interp_store_range(b, from * width, to * width);
    }
}

void interp_store_rows(struct interp_run *r, int64_t box, int64_t from, int64_t to,
                       struct interp_scratch *s)
{
    if (r->mode != MODE_GROUPED) {
        interp_store_range(interp_bind(r, box, false, 0, s), from, to);
        return;
    }
    for (; from < to; from += r->unit_size)
        grouped(r, box, from, from + r->unit_size < to ? from + r->unit_size : to, s);
}

void interp_store_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    int64_t box = interp_part(r, r->n_boxes, unit);
    int64_t from = (unit - r->first_unit[box]) * r->unit_size, to = from + r->unit_size;
    if (r->mode == MODE_GROUPED) {
        int64_t lo[MAX_RANK], ext[MAX_RANK], rows = 1;
        interp_box(r, box, lo, ext);
        for (int i = 0; i < r->n_order - 1; i++)
            rows *= ext[r->order[i]];
        grouped(r, box, from, to < rows ? to : rows, s);
        if (r->stream)
            rows_stream_end();
        return;
    }
    struct bound *b = interp_bind(r, box, false, 0, s);
    if (r->mode == MODE_TILE && b->g.q >= 0) {
        interp_store_tiles(b, from, to < b->g.n_tiles ? to : b->g.n_tiles);
        if (r->stream)
            rows_stream_end();
        return;
    }
    if (r->mode == MODE_TILE) {
        from *= interp_tile_points(r);
        to *= interp_tile_points(r);
    }
    interp_store_range(b, from, to < b->g.points ? to : b->g.points);
    if (r->stream)
        rows_stream_end();
}
