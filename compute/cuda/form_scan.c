/* The form scan (kernels/scan.cuh): rows by warps or blocks where the axis is the fastest, else
 * columns by threads; and stretches where there are too few of them to fill a GPU. */
#include "compute/cuda/form_int.h"

#define ENOUGH_BLOCKS  528    /* of 256 threads */
#define ENOUGH_COLUMNS 131072 /* threads */
#define LANE_BYTES     64     /* of results, in registers */
#define COLUMN_BLOCK   128
#define COLUMN_ROWS    128 /* of a stretch */
#define COLUMN_GROUP   64

static void split(struct form *f, int64_t stretches, int64_t lines, int group)
{
    f->stretches = stretches;
    f->lines = lines;
    f->group = group;
    f->groups = (stretches + group - 1) / group;
    f->supers = f->inner ? (f->groups + group - 1) / group : 0;
    f->grid[0] = (unsigned)(lines * stretches);
}

static void rows(struct form *f, int64_t length, int size)
{
    const int warps = FORM_BLOCK / 32;
    f->unroll = LANE_BYTES / (f->elements * size);
    f->unroll = f->unroll > 8 ? 8 : f->unroll < 1 ? 1 : f->unroll;
    int64_t piece = 32 * (int64_t)f->elements * f->unroll;
    f->lanes = 1;
    while (f->lanes < warps && f->lanes * piece < length)
        f->lanes *= 2;
    int64_t each = warps / f->lanes,
            stretches = (length + f->lanes * piece - 1) / (f->lanes * piece);
    f->grid[0] = form_blocks(f->kept, each);
    if (stretches > 1 && f->kept < ENOUGH_BLOCKS && f->kept * stretches < INT32_MAX)
        split(f, stretches, f->kept, FORM_BLOCK);
}

static void columns(struct form *f, int64_t length)
{
    f->threads = COLUMN_BLOCK;
    f->unroll = f->elements < 4 ? 8 : 4;
    f->lanes = 1;
    int64_t blocks = form_blocks(f->kept, COLUMN_BLOCK);
    int64_t stretches = (length + COLUMN_ROWS - 1) / COLUMN_ROWS;
    f->grid[0] = (unsigned)blocks;
    f->stretch = COLUMN_ROWS;
    if (stretches > 1 && blocks < ENOUGH_BLOCKS && blocks * stretches < INT32_MAX)
        split(f, stretches, blocks, COLUMN_GROUP);
}

void form_make_scan(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1, axis = __builtin_ctz(f->reduced_axes);
    int64_t others = 1;
    for (int a = 0; a <= x; a++)
        others *= a == axis ? 1 : f->shape[a];
    f->kind = FORM_SCAN;
    f->inner = axis == x;
    f->elements = form_chunk_elements(z, true);
    if (f->elements > 4)
        f->elements = 4; /* more registers than that would be in the way */
    if (!f->general && f->shape[x] % f->elements)
        f->elements = 1;
    while (!f->inner && f->elements > 1 && others / f->elements < ENOUGH_COLUMNS)
        f->elements /= 2;
    form_classify(z);
    f->out_vector = f->elements > 1;
    f->kept = f->inner ? others : others / f->elements;
    f->stretches = f->lines = f->groups = f->group = 1;
    f->supers = 0;
    f->grid[1] = f->grid[2] = 1;
    if (f->inner)
        rows(f, f->shape[axis], (int)dtype_size(z->k->outputs[0].dtype));
    else
        columns(f, f->shape[axis]);
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}
