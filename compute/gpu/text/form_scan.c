/* Scans. Along the fastest axis, if its rows are not very long: several rows per block, or one
 * (kernels/forms/scan_rows.cuh). Else the form scan (kernels/forms/scan.cuh): rows by warps or
 * blocks, or columns by threads; and stretches if there are too few of them to fill a GPU. When a
 * few columns are cut, they lie side by side in the lanes of warps, as a row would.
 *
 * Several GPUs have some of the rows or columns each. Along the slowest axis, in whose order memory
 * lies on them, and where there are fewer than GPUs, each has a part of every one instead. */
#include "compute/gpu/text/form_kinds.h"

#define ENOUGH_BLOCKS  528    /* of 256 threads */
#define ENOUGH_COLUMNS 131072 /* threads */
#define LANE_BYTES     64     /* of results, in registers */
#define ROW_BYTES      128    /* of a row that is cut; they wait in shared memory */
#define COLUMN_BLOCK   128
#define COLUMN_ROWS    64   /* per stretch */
#define JOINED_BLOCKS  8192 /* of columns on a GPU, about: then fewer stretches pass totals on */
#define SIDE_BY_SIDE   16   /* columns: each has its own totals to read */
#define LONG_ROW       65536
#define MOST_AT_ONCE   8 /* chunks of operands per thread; of rows with gaps, whose places take */
#define MOST_APART     4 /* registers, too */

/* Whether each of several GPUs has a part of every row or column. */
static bool is_joined(const struct form *f, int64_t lines)
{
    int64_t before = 1;
    for (int a = 0; !(f->reduced_axes >> a & 1); a++)
        before *= f->shape[a];
    return f->members > 1 && (before == 1 || lines < f->members);
}

/* So that so many lines are cut into stretches of so many elements; false: they are not. */
static bool split(struct form *f, int64_t length, int64_t stretch, int64_t lines)
{
    int64_t all = 0, stretches = (length + stretch - 1) / stretch;
    if (stretches < 2 || lines >= ENOUGH_BLOCKS || __builtin_mul_overflow(stretches, lines, &all) ||
        all >= INT32_MAX / 2)
        return false;
    const bool suffice = stretches >= 2 * f->members, joined = is_joined(f, lines);
    if (joined && !suffice && !f->scan.columns)
        return false; /* each GPU has its part whole */
    if (joined && suffice) {
        stretches = (stretches + f->members - 1) / f->members;
        f->joined = true;
        f->scan.share = stretches * stretch;
        all = stretches * lines;
    }
    f->stretches = stretches;
    f->scan.lines = lines;
    /* a block for the sum, one for the scan; joined, these are two launches */
    f->grid[0] = (unsigned)(f->scan.columns && !f->joined ? 2 * all : all);
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
    if (split(f, length, stretch, f->kept))
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
    return split(f, length, stretch, f->kept / columns);
}

static void columns(struct form *f, int64_t length, int size)
{
    int64_t blocks = form_blocks(f->kept, COLUMN_BLOCK);
    if (f->elements == 1 && blocks < ENOUGH_BLOCKS && side_by_side(f, length, size))
        return;
    f->scan.columns = 0;
    f->threads = f->kept < COLUMN_BLOCK ? (int)((f->kept + 31) / 32 * 32) : COLUMN_BLOCK;
    f->unroll = f->elements < 4 ? 8 : 4;
    f->lanes = 1;
    f->grid[0] = (unsigned)blocks;
    f->scan.stretch = COLUMN_ROWS;
    if (is_joined(f, blocks) && length / f->members / COLUMN_ROWS > JOINED_BLOCKS / blocks)
        f->scan.stretch = length / f->members * blocks / JOINED_BLOCKS;
    if (f->elements == 1 && split(f, length, f->scan.stretch, blocks))
        return;
    f->joined = is_joined(f, blocks);
    if (f->joined)
        f->scan.stretch = f->scan.share = (length + f->members - 1) / f->members;
}

/* Whether the rows of the result and of every operand follow each other without gaps, and the
 * expression does not depend on where in a row it is: then the rows are one range. */
static bool without_gaps(const struct analysis *z)
{
    const struct form *f = z->f;
    int x = f->rank - 1;
    if (f->general || z->fixed)
        return false;
    for (uint32_t i = 0; i < z->k->n_nodes; i++)
        if (z->k->nodes[i].kind == IR_LOAD && z->k->nodes[i].ctx)
            return false;
    for (uint32_t i = 0; i <= z->k->n_inputs; i++) {
        const int64_t *s = i < z->k->n_inputs ? f->strides[i] : f->out_strides[0];
        bool still = i < z->k->n_inputs;
        for (int a = 0; a <= x; a++)
            still = still && s[a] == 0;
        int64_t dense = 1;
        for (int a = x; a >= 0 && !still; a--) {
            if (s[a] != dense)
                return false;
            dense *= f->shape[a];
        }
    }
    return true;
}

static void merge_rows(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1;
    for (int a = 0; a < x; a++)
        f->shape[x] *= f->shape[a];
    f->shape[0] = f->shape[x];
    for (uint32_t i = 0; i < z->k->n_inputs; i++)
        f->strides[i][0] = f->strides[i][x];
    f->out_strides[0][0] = f->out_strides[0][x];
    f->rank = 1;
    f->reduced_axes = 1;
}

/* Chunks per thread that are loaded at once: 64 bytes of operands. */
static int at_once(const struct analysis *z)
{
    const struct form *f = z->f;
    int bytes = 0;
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (f->loads[i].kind != LOAD_ONCE)
            bytes += f->elements * (int)dtype_size(z->k->inputs[f->loads[i].input].dtype);
    int n = f->scan_rows.most / f->elements, most = f->scan_rows.fetch ? MOST_APART : MOST_AT_ONCE;
    n = n > most ? most : n;
    n = bytes && n > LANE_BYTES / bytes ? LANE_BYTES / bytes : n;
    return n < 1 ? 1 : n;
}

/* As few lanes per row as can hold it, so that they have few sums to combine; a lane of very short
 * rows has several. */
static void lay_out_rows(struct form *f, int64_t length, int size)
{
    struct form_scan_rows *s = &f->scan_rows;
    s->length = length;
    s->most = LANE_BYTES / size;
    f->lanes = 1;
    while (f->lanes < FORM_BLOCK && (int64_t)f->lanes * s->most < length)
        f->lanes *= 2;
    int64_t parts = (length + f->lanes * s->most - 1) / (f->lanes * s->most);
    const int vector = VECTOR_BYTES / size; /* chunks are whole vectors */
    const int64_t all = parts * f->lanes;
    s->chunk = (int)((length + all - 1) / all + vector - 1) / vector * vector;
    s->bound = s->chunk;
    s->part = parts > 1 ? (int64_t)s->chunk * f->lanes : length;
    s->aligned = length % vector == 0;
    s->many = f->lanes == 1 ? s->most / s->chunk : 1;
    s->parts = f->kept < ENOUGH_BLOCKS ? (int)parts : 1;
}

static void launch_rows(struct form *f, int threads)
{
    f->threads = threads;
    f->grid[0] = (unsigned)f->scan_rows.parts *
                 form_blocks(f->kept, (int64_t)f->threads / f->lanes * f->scan_rows.many);
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}

static void short_rows(struct analysis *z, int64_t length, int64_t kept, int size)
{
    struct form *f = z->f;
    struct form_scan_rows *s = &f->scan_rows;
    f->kind = FORM_SCAN_ROWS;
    if (without_gaps(z))
        merge_rows(z);
    else
        s->fetch = 1;
    f->elements = form_chunk_elements(z, true);
    f->elements = f->elements > 4 ? 4 : f->elements;
    if (s->fetch && f->shape[f->rank - 1] % f->elements)
        f->elements = 1; /* a row's last chunk would exceed it */
    form_classify(z);
    f->out_vector = f->elements > 1;
    f->kept = kept;
    lay_out_rows(f, length, size);
    while (s->fetch && (int64_t)s->fetch * f->elements < s->part)
        s->fetch *= 2;
    f->unroll = at_once(z);
    launch_rows(f, f->lanes < FORM_BLOCK ? FORM_BLOCK / 2 : FORM_BLOCK);
}

static void any_rows(struct form *f, int size)
{
    f->elements = VECTOR_BYTES / size;
    f->unroll = LANE_BYTES / VECTOR_BYTES;
    f->scan_rows.fetch = 0;
    f->scan_rows.aligned = false;
    f->scan_rows.parts = 1;
    f->scan_rows.bound = f->scan_rows.most;
    launch_rows(f, FORM_BLOCK);
}

/* The launch stays that of the form; but that has several columns a thread where it has many. */
static void any_long(struct form *f, const struct form *of)
{
    const int axis = __builtin_ctz(of->reduced_axes);
    struct form_scan *s = &f->scan;
    s->length = of->shape[axis];
    s->apart = 1;
    for (int a = axis + 1; a < of->rank; a++)
        s->apart *= of->shape[a];
    s->elements = f->elements;
    s->many = f->unroll;
    f->elements = f->unroll = 1;
    f->threads = FORM_BLOCK; /* at most */
    if (s->columns || f->stretches > 1)
        return;
    f->kept *= s->elements;
    f->grid[0] = form_blocks(f->kept, f->block[0]);
    s->lines = f->grid[0];
    s->stretch = s->length;
}

void form_any_scan(struct form *f, const struct form *of, int size, bool gaps)
{
    f->any = true;
    f->left = (struct form_left){of, gaps};
    f->general = f->out_vector = false;
    f->rank = 1;
    f->shape[0] = 1;
    for (int a = 0; a < of->rank; a++)
        f->shape[0] *= of->shape[a];
    f->reduced_axes = 1;
    if (f->kind == FORM_SCAN)
        any_long(f, of);
    else
        any_rows(f, size);
}

void form_make_scan(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1, axis = __builtin_ctz(f->reduced_axes);
    int size = (int)dtype_size(z->k->outputs[0].dtype);
    int64_t others = 1;
    for (int a = 0; a <= x; a++)
        others *= a == axis ? 1 : f->shape[a];
    f->inner = axis == x;
    f->stretches = f->scan.lines = 1;
    f->grid[1] = f->grid[2] = 1;
    if (f->inner && f->shape[x] < LONG_ROW) {
        short_rows(z, f->shape[x], others, size);
        return;
    }
    f->kind = FORM_SCAN;
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
    if (f->inner)
        rows(f, f->shape[axis], size);
    else
        columns(f, f->shape[axis], size);
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}
