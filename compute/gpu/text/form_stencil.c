/* The form stencil: which operands' neighbours a thread can share, and how much of the iteration
 * space it owns. Rows that begin at multiples of a vector are read by vectors; others element by
 * element, 32 apart, so that a warp still reads whole lines. Neighbours that are too far, or have
 * an unsuitable boundary (SELF beyond the nearest), are left to the form rows. */
#include "compute/gpu/text/form_kinds.h"

#include <stdlib.h>

#define ROW_REGISTERS 112

/* Offset of a context along z, y, x; false if it has others. */
static bool near_steps(const struct form *f, uint32_t ctx, int8_t step[3])
{
    for (int i = 0; i < 3; i++)
        step[i] = 0;
    for (int a = 0; ctx != 0 && a < f->rank; a++) {
        int64_t o = f->offsets[ctx][a];
        int place = a - (f->rank - 3);
        if (o == 0)
            continue;
        if (place < 0 || llabs(o) > (place == 2 && f->step == 1 ? f->elements : FORM_FAR))
            return false;
        step[place] = (int8_t)o;
    }
    return true;
}

/* The boundary mode for addressing; SELF is CLAMP for the nearest neighbours along one axis. */
static bool near_mode(const struct ir_ctx *c, const int8_t step[3], enum boundary_mode *ret)
{
    *ret = c->mode == BOUNDARY_CONSTANT ? BOUNDARY_CLAMP : c->mode;
    if (c->mode != BOUNDARY_SELF)
        return true;
    *ret = BOUNDARY_CLAMP;
    int moved = 0;
    for (int i = 0; i < 3; i++) {
        moved += step[i] != 0;
        if (abs(step[i]) > 1)
            return false;
    }
    return moved <= 1;
}

static bool add_near(struct analysis *z, struct form_load *l)
{
    struct form *f = z->f;
    enum boundary_mode mode = BOUNDARY_CLAMP;
    uint32_t i = 0;
    if (!near_steps(f, l->ctx, l->step) ||
        (l->ctx && !near_mode(&z->k->ctxs[l->ctx], l->step, &mode)))
        return false;
    bool moved = l->step[0] || l->step[1] || l->step[2];
    for (; i < f->stencil.n_nears; i++)
        if (f->stencil.nears[i].input == l->input && (!moved || f->stencil.nears[i].mode == mode))
            break;
    if (i == f->stencil.n_nears)
        f->stencil.nears[f->stencil.n_nears++] =
            (struct form_near){.input = l->input, .mode = mode};
    for (int a = 0; a < 3; a++)
        if (abs(l->step[a]) > f->stencil.nears[i].reach[a])
            f->stencil.nears[i].reach[a] = abs(l->step[a]);
    l->kind = LOAD_NEAR;
    l->near = i;
    return true;
}

static int64_t row_registers(const struct analysis *z, int planes, int rows)
{
    const struct form *f = z->f;
    int64_t n = 0;
    for (uint32_t i = 0; i < f->stencil.n_nears; i++) {
        const struct form_near *r = &f->stencil.nears[i];
        int64_t words = ((int64_t)dtype_size(z->k->inputs[r->input].dtype) + 3) / 4;
        int64_t read = (int64_t)planes * rows + 2 * r->reach[0] * rows + 2 * r->reach[1] * planes;
        n += read * f->elements * words + 2 * r->reach[2] * planes * rows * words;
    }
    return n;
}

/* Measured (H200, 512³ and 16384² float32 and float64, 509³ and 16381² for rows that are not
 * aligned): what a thread owns, best first, as far as registers suffice. */
static void choose_rows(struct analysis *z)
{
    static const int deep[][2] = {{4, 2}, {2, 2}, {2, 1}, {1, 2}, {1, 1}};
    static const int deep_doubles[][2] = {{2, 4}, {2, 2}, {2, 1}, {1, 2}, {1, 1}};
    static const int apart[][2] = {{2, 3}, {2, 2}, {2, 1}, {1, 2}, {1, 1}};
    static const int plane[][2] = {{1, 4}, {1, 2}, {1, 1}};
    static const int plane_apart[][2] = {{1, 8}, {1, 4}, {1, 2}, {1, 1}};
    static const int column[][2] = {{1, 2}, {1, 1}};
    struct form *f = z->f;
    int reach[3] = {0};
    for (uint32_t i = 0; i < f->stencil.n_nears; i++)
        for (int a = 0; a < 3; a++)
            if (f->stencil.nears[i].reach[a] > reach[a])
                reach[a] = f->stencil.nears[i].reach[a];
    const int(*shape)[2] = !reach[0]          ? !reach[2]     ? column
                                                : f->step > 1 ? plane_apart
                                                              : plane
                           : f->step > 1      ? apart
                           : f->elements == 2 ? deep_doubles
                                              : deep;
    f->planes = f->rows = 1;
    for (; (*shape)[0] * (*shape)[1] > 1; shape++) {
        int p = (*shape)[0], r = (*shape)[1];
        if ((r > 1 && (f->rank < 2 || !(reach[0] || reach[1]))) || (p > 1 && f->rank < 3))
            continue;
        if (row_registers(z, p, r) <= ROW_REGISTERS) {
            f->planes = p;
            f->rows = r;
            return;
        }
    }
}

static int64_t near_extent(const struct form *f, int place)
{
    int a = f->rank - 3 + place;
    return a < 0 ? 1 : f->shape[a];
}

static bool stencil_grid(struct form *f)
{
    int64_t outer = 1, nz = near_extent(f, 0), ny = near_extent(f, 1), nx = near_extent(f, 2);
    f->stencil.batch = f->rank > 3 ? f->rank - 3 : 0;
    for (int a = 0; a < f->stencil.batch; a++)
        outer *= f->shape[a];
    int64_t lanes = (nx + f->elements - 1) / f->elements, columns = (lanes + 31) / 32 * 32;
    unsigned threads = f->step > 1 ? FORM_BLOCK / 2 : FORM_BLOCK;
    unsigned most = f->planes == 1 ? 128 : f->step > 1 ? 32 : f->elements > 2 ? 64 : 128;
    unsigned bx = columns >= most ? most : (unsigned)columns, by = threads / bx;
    while (by > 1 && (int64_t)(by / 2) * f->rows >= ny)
        by /= 2;
    int64_t gy = (ny + (int64_t)by * f->rows - 1) / ((int64_t)by * f->rows);
    int64_t gz = (nz + f->planes - 1) / f->planes * outer;
    if (gy > FORM_GRID || gz > FORM_GRID)
        return false;
    f->block[0] = bx;
    f->block[1] = by;
    f->grid[0] = form_blocks(columns, bx);
    f->grid[1] = (unsigned)gy;
    f->grid[2] = (unsigned)gz;
    return true;
}

/* Whether all operands are near, or constant over a whole row. */
static bool near_loads(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1;
    f->stencil.n_nears = 0;
    /* shifted ones first: an operand read in place shares their rows */
    for (int moved = 1; moved >= 0; moved--)
        for (uint32_t i = 0; i < f->n_loads; i++) {
            struct form_load *l = &f->loads[i];
            if ((l->ctx != 0) != moved)
                continue;
            if (f->strides[l->input][x] == 0)
                l->kind = LOAD_ONCE;
            else if (f->strides[l->input][x] != 1 ||
                     (f->step == 1 && !form_input_aligned(z, l->input, f->elements)) ||
                     !add_near(z, l))
                return false;
        }
    return f->stencil.n_nears > 0;
}

static bool stencil_of(struct analysis *z, int elements, int step)
{
    struct form *f = z->f;
    f->elements = elements;
    f->step = step;
    if ((step == 1 && elements < 2) || !near_loads(z))
        return false;
    choose_rows(z);
    if (row_registers(z, f->planes, f->rows) > 2 * ROW_REGISTERS || !stencil_grid(f))
        return false;
    f->kind = FORM_STENCIL;
    f->unroll = 1;
    f->out_vector = step == 1 && form_output_aligned(z, elements);
    return true;
}

bool form_try_stencil(struct analysis *z)
{
    struct form *f = z->f;
    int64_t nx = f->shape[f->rank - 1];
    if (f->general)
        return false;
    f->stencil.nears = arena_alloc_array(z->arena, f->n_loads + 1, sizeof *f->stencil.nears);
    if (!f->stencil.nears)
        return false;
    int e = form_chunk_elements(z, true);
    while (nx % e)
        e /= 2;
    if (stencil_of(z, e, 1))
        return true;
    size_t largest = 1;
    for (uint32_t i = 0; i < z->k->n_inputs; i++)
        if (dtype_size(z->k->inputs[i].dtype) > largest)
            largest = dtype_size(z->k->inputs[i].dtype);
    for (e = largest > 4 ? 2 : 4; e > 1 && nx < 32 * e;)
        e /= 2;
    if (nx >= 32 && stencil_of(z, e, 32))
        return true;
    f->step = 1;
    return false;
}
