/* The form scan (kernels/forms/scan.cuh): rows by warps or blocks if the axis is the fastest, else
 * columns by threads; and stretches if there are too few of them to fill a GPU. When a few columns
 * are cut, they lie side by side in the lanes of warps, as a row would. */
#include "compute/gpu/text/form_kinds.h"

#define ENOUGH_BLOCKS  528    /* of 256 threads */
#define ENOUGH_COLUMNS 131072 /* threads */
#define LANE_BYTES     64     /* of results, in registers */
#define ROW_BYTES      128    /* of a row that is cut; they wait in shared memory */
#define COLUMN_BLOCK   128
#define COLUMN_ROWS    64 /* per stretch */
#define SIDE_BY_SIDE   16 /* columns: each has its own totals to read */

static bool split(struct form *f, int64_t stretches, int64_t lines)
{
    int64_t all = 0;
    if (stretches < 2 || lines >= ENOUGH_BLOCKS || __builtin_mul_overflow(stretches, lines, &all) ||
        all >= INT32_MAX / 2)
        return false;
    f->stretches = stretches;
    f->scan.lines = lines;
    f->grid[0] =
        (unsigned)(f->scan.columns ? 2 * all : all); /* a block for the sum, one for the scan */
    return true;
}

static int unroll(const struct form *f, int size, int bytes)
{
    int n = bytes / (f->elements * size);
    return n > 16 ? 16 : n < 1 ? 1 : n;
}

static void rows(struct form *f, int64_t length, int size)
{
    const int warps = FORM_BLOCK / 32;
    f->scan.columns = 1;
    f->unroll = unroll(f, size, ROW_BYTES);
    f->unroll = f->unroll > 8 ? 8 : f->unroll;
    int64_t stretch = (int64_t)FORM_BLOCK * f->elements * f->unroll;
    f->lanes = warps;
    if (split(f, (length + stretch - 1) / stretch, f->kept))
        return;
    f->unroll = unroll(f, size, LANE_BYTES);
    f->unroll = f->unroll > 8 ? 8 : f->unroll;
    f->lanes = 1;
    while (f->lanes < warps && f->lanes * 32 * (int64_t)f->elements * f->unroll < length)
        f->lanes *= 2;
    f->grid[0] = form_blocks(f->kept, warps / f->lanes);
}

static bool side_by_side(struct form *f, int64_t length, int size)
{
    int64_t columns = f->shape[f->rank - 1];
    if (columns > SIDE_BY_SIDE)
        return false;
    f->scan.columns = (int)columns;
    f->unroll = unroll(f, size, LANE_BYTES);
    f->lanes = FORM_BLOCK / 32;
    f->threads = FORM_BLOCK;
    int64_t stretch = 32 / columns * f->elements * f->unroll * f->lanes;
    return split(f, (length + stretch - 1) / stretch, f->kept / columns);
}

static void columns(struct form *f, int64_t length, int size)
{
    int64_t blocks = form_blocks(f->kept, COLUMN_BLOCK);
    int64_t stretches = (length + COLUMN_ROWS - 1) / COLUMN_ROWS;
    if (f->elements == 1 && blocks < ENOUGH_BLOCKS && side_by_side(f, length, size))
        return;
    f->scan.columns = 0;
    f->threads = f->kept < COLUMN_BLOCK ? (int)((f->kept + 31) / 32 * 32) : COLUMN_BLOCK;
    f->unroll = f->elements < 4 ? 8 : 4;
    f->lanes = 1;
    f->grid[0] = (unsigned)blocks;
    f->scan.stretch = COLUMN_ROWS;
    if (f->elements == 1)
        split(f, stretches, blocks);
}

void form_make_scan(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1, axis = __builtin_ctz(f->reduced_axes);
    int size = (int)dtype_size(z->k->outputs[0].dtype);
    int64_t others = 1;
    for (int a = 0; a <= x; a++)
        others *= a == axis ? 1 : f->shape[a];
    f->kind = FORM_SCAN;
    f->inner = axis == x;
    f->elements = form_chunk_elements(z, true);
    if (f->elements > 4)
        f->elements = 4; /* more would take too many registers */
    if (!f->general && f->shape[x] % f->elements)
        f->elements = 1;
    while (!f->inner && f->elements > 1 && others / f->elements < ENOUGH_COLUMNS)
        f->elements /= 2;
    form_classify(z);
    f->out_vector = f->elements > 1;
    f->kept = f->inner ? others : others / f->elements;
    f->stretches = f->scan.lines = 1;
    f->grid[1] = f->grid[2] = 1;
    if (f->inner)
        rows(f, f->shape[axis], size);
    else
        columns(f, f->shape[axis], size);
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}
