/* Axes first: if a kernel has no contexts, or only shifts of the iteration space itself, its axes
 * are put in memory order and merged where every operand allows it; a kernel with other contexts
 * keeps its axes and is processed point by point. Then the form. A kernel of several steps gets the
 * form steps, which does all of this in its own way. For others, in this order: reduce; window if
 * many neighbours are read; stencil if they are few and laid out well; tile if an operand runs
 * across; rows; and flat, which is rows with one axis. */
#include "compute/gpu/text/form_kinds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TILE_REGISTERS 64
#define SHARED_BYTES   49152

static bool is_shift(const struct ir_kernel *k, const struct ir_ctx *c)
{
    if (c->parent != 0 || c->rank != k->rank)
        return false;
    for (int a = 0; a < c->rank; a++) {
        if (c->shape[a] != k->shape[a] || c->start[a] != 0)
            return false;
        if (k->shape[a] > 1 && (c->src[a] != a || c->step[a] != 1))
            return false;
    }
    return true;
}

static bool reduces(const struct ir_kernel *k)
{
    return k->outputs[0].kind == OUT_REDUCE;
}

/* The strides that decide the order of the axes: the result's, or the largest operand's. */
static const int64_t *leading_strides(const struct ir_kernel *k)
{
    if (!reduces(k) || k->n_inputs == 0)
        return k->outputs[0].view.strides;
    uint32_t best = UINT32_MAX;
    int most = -1;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        if (k->inputs[i].view.rank != k->rank || k->inputs[i].gathered)
            continue;
        int moving = 0;
        for (int a = 0; a < k->rank; a++)
            moving += k->inputs[i].view.strides[a] != 0;
        if (moving > most) {
            most = moving;
            best = i;
        }
    }
    return best == UINT32_MAX ? k->outputs[0].view.strides : k->inputs[best].view.strides;
}

static void order_axes(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    const int64_t *lead = leading_strides(k);
    z->n = 0;
    for (int a = 0; a < k->rank; a++) {
        if (k->shape[a] == 1 && !(z->fixed >> a & 1))
            continue;
        /* insertion keeps the kernel's order unless strides differ; stride 0 stays put */
        int at = z->n;
        while (at > 0 && !k->n_folds && lead[a] != 0 &&
               llabs(lead[z->order[at - 1]]) < llabs(lead[a]) && lead[z->order[at - 1]] != 0)
            at--;
        memmove(z->order + at + 1, z->order + at, sizeof *z->order * (size_t)(z->n - at));
        z->f->turned |= at < z->n;
        z->order[at] = a;
        z->n++;
    }
}

static bool mergeable(const struct analysis *z, int outer, int inner)
{
    const struct ir_kernel *k = z->k;
    if ((z->fixed >> outer & 1) || (z->fixed >> inner & 1))
        return false;
    int64_t n = k->shape[inner];
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (!k->inputs[i].gathered &&
            k->inputs[i].view.strides[outer] != k->inputs[i].view.strides[inner] * n)
            return false;
    const struct ir_output *o = &k->outputs[0];
    for (uint32_t i = 1; i < k->n_outputs; i++)
        if (o[i].view.strides[outer] != o[i].view.strides[inner] * n)
            return false;
    const uint32_t axes = ir_combined_axes(k);
    if ((axes >> outer & 1) != (axes >> inner & 1))
        return false;
    if ((k->n_folds || (o->kind == OUT_REDUCE && reduce_is_arg(o->reduce))) && axes >> outer & 1 &&
        ir_reduced_stride(k, outer) != ir_reduced_stride(k, inner) * n)
        return false;
    return o->view.strides[outer] == o->view.strides[inner] * n;
}

static void merge_axes(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f;
    for (int a = 0; a < MAX_RANK; a++)
        f->axis[a] = -1;
    for (int i = 0; i < z->n; i++) {
        int a = z->order[i];
        bool join = i > 0 && mergeable(z, z->order[i - 1], a);
        int to = join ? f->rank - 1 : f->rank++;
        f->shape[to] = join ? f->shape[to] * k->shape[a] : k->shape[a];
        f->axis[a] = to;
        for (uint32_t in = 0; in < k->n_inputs; in++)
            f->strides[in][to] = k->inputs[in].gathered ? 0 : k->inputs[in].view.strides[a];
        for (uint32_t c = 1; c < k->n_ctxs; c++)
            f->offsets[c][to] = k->ctxs[c].offset[a];
        for (uint32_t o = 0; o < k->n_outputs; o++)
            f->out_strides[o][to] = k->outputs[o].view.strides[a];
        f->reduced_axes |= (ir_combined_axes(k) >> a & 1) << to;
    }
    if (f->rank == 0) {
        f->rank = 1;
        f->shape[0] = 1;
    }
}

/* Keeps every axis. */
static void keep_axes(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f;
    f->general = true;
    f->rank = k->rank ? k->rank : 1;
    f->shape[0] = 1;
    for (int a = 0; a < k->rank; a++) {
        f->shape[a] = k->shape[a];
        f->axis[a] = a;
        for (uint32_t o = 0; o < k->n_outputs; o++)
            f->out_strides[o][a] = k->outputs[o].view.strides[a];
    }
    for (uint32_t i = 0; i < k->n_inputs; i++)
        for (int a = 0; a < k->inputs[i].view.rank && !k->inputs[i].gathered; a++)
            f->strides[i][a] = k->inputs[i].view.strides[a];
    f->reduced_axes = ir_combined_axes(k);
}

void form_arrange(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    bool shifts = true;
    for (uint32_t c = 1; c < k->n_ctxs; c++) {
        shifts = shifts && is_shift(k, &k->ctxs[c]);
        for (int a = 0; shifts && a < k->rank; a++)
            z->fixed |= (uint32_t)(k->ctxs[c].offset[a] != 0) << a;
    }
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_INDEX && k->nodes[i].axis >= 0)
            z->fixed |= 1u << k->nodes[i].axis;
    if (!shifts) {
        keep_axes(z);
        return;
    }
    order_axes(z);
    merge_axes(z);
}

static void choose_unroll(struct analysis *z)
{
    struct form *f = z->f;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        int64_t size = (int64_t)dtype_size(z->k->inputs[f->loads[i].input].dtype);
        if (f->loads[i].kind != LOAD_ONCE)
            bytes += size * f->elements;
    }
    /* measured: one vector per operand in flight is enough, in small blocks; single elements are
     * not */
    f->unroll = 1;
    if (f->elements == 1)
        f->unroll = bytes <= VECTOR_BYTES ? 4 : 2;
}

/* --- forms --- */

/* Whether only the result could be moved by vectors, in a kernel that gathers. */
static bool gathers_only(const struct analysis *z)
{
    bool gathers = false;
    for (uint32_t i = 0; i < z->k->n_inputs; i++)
        gathers |= z->k->inputs[i].gathered;
    for (uint32_t i = 0; i < z->f->n_loads && gathers; i++)
        gathers = z->f->loads[i].kind != LOAD_VECTOR;
    return gathers;
}

static void make_rows(struct analysis *z)
{
    struct form *f = z->f;
    int64_t outer = 1, nx = f->shape[f->rank - 1];
    f->kind = f->rank == 1 && !f->general ? FORM_FLAT : FORM_ROWS;
    f->elements = form_chunk_elements(z, true);
    form_classify(z);
    choose_unroll(z);
    if (gathers_only(z)) { /* measured: neighbours in neighbouring lanes, two in flight */
        f->elements = 1;
        f->unroll = 2;
        form_classify(z);
    }
    f->out_vector = f->elements > 1;
    f->threads = FORM_BLOCK / 2;
    for (int a = 0; a < f->rank - 1; a++)
        outer *= f->shape[a];
    f->chunks = outer * (nx / f->elements);
    f->tail = f->rank == 1 ? nx % f->elements : 0;
    int64_t chunks = (int64_t)f->threads * f->unroll, blocks = (f->chunks + chunks - 1) / chunks;
    f->grid[0] = (unsigned)(blocks ? blocks : 1);
    f->grid[1] = f->grid[2] = 1;
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}

/* The axis that most operands are contiguous along, if it differs from the result's. */
static int crossing_axis(const struct analysis *z)
{
    const struct form *f = z->f;
    int votes[MAX_RANK] = {0}, best = -1, x = f->rank - 1;
    for (uint32_t i = 0; i < z->k->n_outputs; i++)
        if (f->out_strides[i][x] != 1)
            return -1;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const int64_t *s = f->strides[f->loads[i].input];
        if (s[x] == 0 || s[x] == 1)
            continue;
        for (int a = 0; a < x; a++)
            if (s[a] == 1 && f->shape[a] >= 16)
                votes[a]++;
    }
    for (int a = 0; a < x; a++)
        if (votes[a] && (best < 0 || votes[a] > votes[best]))
            best = a;
    return f->shape[x] >= 16 ? best : -1;
}

/* Registers that a chunk's operands take until it is computed. */
static int tile_registers(const struct analysis *z)
{
    int words = 0;
    for (uint32_t i = 0; i < z->f->n_loads; i++)
        words += ((int)dtype_size(z->k->inputs[z->f->loads[i].input].dtype) + 3) / 4;
    return words * z->f->elements;
}

/* Whether an operand can be read by vectors of `elements` along axis y. */
static bool turned_aligned(const struct analysis *z, uint32_t input, int y, int elements)
{
    const struct form *f = z->f;
    const struct ir_input *in = &z->k->inputs[input];
    int64_t size = (int64_t)dtype_size(in->dtype), bytes = size * elements;
    if (bytes > VECTOR_BYTES)
        bytes = VECTOR_BYTES;
    if (f->shape[y] % elements || in->view.offset * size % bytes || z->alignment % bytes)
        return false;
    for (int a = 0; a < f->rank; a++)
        if (a != y && f->shape[a] > 1 && f->strides[input][a] * size % bytes)
            return false;
    return true;
}

static bool runs_across(const struct form *f, const struct form_load *l, int y)
{
    const int64_t *s = f->strides[l->input];
    return s[f->rank - 1] != 0 && s[f->rank - 1] != 1 && s[y] == 1;
}

/* An array is read along both axes, as in a + transpose(a). */
static bool reads_both_ways(const struct analysis *z, int y)
{
    const struct form *f = z->f;
    for (uint32_t i = 0; i < f->n_loads; i++)
        for (uint32_t j = 0; j < f->n_loads; j++)
            if (runs_across(f, &f->loads[i], y) && !runs_across(f, &f->loads[j], y) &&
                z->k->inputs[f->loads[i].input].slot == z->k->inputs[f->loads[j].input].slot)
                return true;
    return false;
}

/* Measured (H200, float32 and float64): small blocks if vectors are moved; otherwise large ones,
 * with 8 elements in flight. */
static bool try_tile(struct analysis *z)
{
    struct form *f = z->f;
    int y = crossing_axis(z), x = f->rank - 1;
    if (y < 0)
        return false;
    size_t bytes = 0;
    f->elements = form_chunk_elements(z, true);
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (runs_across(f, &f->loads[i], y)) {
            bytes += dtype_size(z->k->inputs[f->loads[i].input].dtype);
            while (f->elements > 1 && !turned_aligned(z, f->loads[i].input, y, f->elements))
                f->elements /= 2;
        }
    form_classify(z);
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (runs_across(f, &f->loads[i], y))
            f->loads[i].kind = LOAD_TURNED;
    f->tile.extent = bytes * 64 * 65 <= SHARED_BYTES / 2 ? 64 : 32;
    if (bytes * 32 * 33 > SHARED_BYTES)
        return false;
    if (f->elements > 4 && f->tile.extent == 32)
        f->elements = 4; /* a block has no more threads than chunks */
    f->kind = FORM_TILE;
    f->tile.axis = y;
    f->tile.paired = reads_both_ways(z, y);
    f->out_vector = f->elements > 1;
    f->threads = f->elements > 1 ? FORM_BLOCK / 2 : FORM_BLOCK;
    int chunks = f->tile.extent * f->tile.extent / f->threads / f->elements;
    f->unroll = 1;
    while (f->unroll < chunks && f->unroll < 8 &&
           f->unroll * 2 * tile_registers(z) <= TILE_REGISTERS)
        f->unroll *= 2;
    int64_t tiles = (f->shape[x] + f->tile.extent - 1) / f->tile.extent *
                    ((f->shape[y] + f->tile.extent - 1) / f->tile.extent);
    for (int a = 0; a < x; a++)
        tiles *= a == y ? 1 : f->shape[a];
    if (tiles >= 1ll << 31)
        return false;
    f->grid[0] = (unsigned)tiles;
    f->grid[1] = f->grid[2] = 1;
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
    return true;
}

#ifndef NDEBUG
/* What every GPU can launch, in whole warps, which exchange values. */
static bool can_be_launched(const struct form *f)
{
    const unsigned *g = f->grid, threads = f->block[0] * f->block[1];
    return g[0] > 0 && g[0] <= INT32_MAX && g[1] > 0 && g[1] <= FORM_GRID && g[2] > 0 &&
           g[2] <= FORM_GRID && threads > 0 && threads <= (unsigned)f->threads &&
           f->block[0] % 32 == 0;
}
#endif

struct form *form_of(struct arena *arena, const struct ir_kernel *k, int slot_alignment)
{
    return form_within(arena, k, slot_alignment, FORM_SHARED, 1);
}

struct form *form_within(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                         int64_t shared, int members)
{
    struct analysis z = {.arena = arena, .k = k, .alignment = slot_alignment, .shared = shared};
    if (!form_begin(&z))
        return NULL;
    struct form *f = z.f;
    f->members = members;
    if (k->steps > 1) {
        const char *why = form_make_steps(&z);
        assert(!why || !*why);
        assert(why || can_be_launched(f));
        return why ? NULL : f;
    }
    form_arrange(&z);
    bool near = false;
    for (uint32_t i = 0; i < f->n_loads; i++)
        near |= f->loads[i].ctx != 0;
    if (reduces(k))
        form_make_reduce(&z);
    else if (k->outputs[0].kind == OUT_SCAN && f->reduced_axes)
        form_make_scan(&z);
    else if (!(near && (form_try_window(&z) || form_try_stencil(&z))) &&
             !(!near && !f->general && try_tile(&z)))
        make_rows(&z);
    assert(can_be_launched(f));
    return z.failed ? NULL : f;
}

/* The number of elements in a chunk of the parts' reductions, which walk a row in the kernel's own
 * order; 0, and why they do not, "" without memory. */
static int elements_of_parts(struct arena *arena, const struct ir_whole *w, int slot_alignment,
                             const char **ret_why)
{
    int elements = 0;
    for (uint32_t i = 0; i < w->n_parts; i++) {
        if (!reduces(w->parts[i]))
            continue;
        const struct form *f = form_of(arena, w->parts[i], slot_alignment);
        *ret_why = !f                 ? ""
                   : f->stretches > 1 ? "there are too few rows: several blocks share one"
                   : f->general || f->turned || !f->inner || (elements && f->elements != elements)
                       ? "its reductions go over the rows in different ways"
                       : NULL;
        if (*ret_why)
            return 0;
        elements = f->elements;
    }
    return elements;
}

static struct form *form_of_siblings(struct arena *arena, const struct ir_whole *w,
                                     int slot_alignment, const char **ret_why)
{
    const struct form **parts = arena_alloc_array(arena, w->n_parts, sizeof(const struct form *));
    struct form *f = form_of(arena, w->kernel, slot_alignment);
    *ret_why = "";
    if (!f || !parts)
        return NULL;
    for (uint32_t i = 0; i < w->n_parts; i++) {
        parts[i] = form_of(arena, w->parts[i], slot_alignment);
        if (!parts[i])
            return NULL;
    }
    *ret_why = form_adapt_siblings(w->kernel, f, parts, w->n_parts);
    assert(*ret_why || can_be_launched(f));
    return *ret_why ? NULL : f;
}

struct form *form_of_whole(struct arena *arena, const struct ir_whole *w, int slot_alignment,
                           int64_t shared, const char **ret_why)
{
    struct analysis z = {.arena = arena, .k = w->kernel, .alignment = slot_alignment};
    if (!w->kernel->n_folds)
        return form_of_siblings(arena, w, slot_alignment, ret_why);
    const int elements = elements_of_parts(arena, w, slot_alignment, ret_why);
    if (!elements)
        return NULL;
    *ret_why = "";
    if (!form_begin(&z))
        return NULL;
    z.f->elements = elements;
    form_arrange(&z);
    *ret_why = form_make_fold(&z, shared);
    assert(*ret_why || can_be_launched(z.f));
    return *ret_why ? NULL : z.f;
}

int form_along(const struct form *f)
{
    if (f->members == 1)
        return -1;
    switch (f->kind) {
    case FORM_STENCIL:
    case FORM_WINDOW:
    case FORM_STEPS:
        return f->rank > 2 ? 2 : f->rank - 1;
    default:
        return 0;
    }
}

unsigned form_group(const struct form *f)
{
    switch (f->kind) {
    case FORM_REDUCE:
        return f->stretches == 1;
    case FORM_SCAN: /* those of a row, or of columns side by side */
        return f->stretches == 1 ? 1 : (unsigned)f->stretches * (f->scan.columns ? 2 : 1);
    case FORM_SCAN_ROWS:
        return (unsigned)f->scan_rows.parts;
    default:
        return 1;
    }
}

void form_share(const struct form *f, int member, int64_t *ret_since, int64_t *ret_until)
{
    const int64_t k = member;
    if (f->kind == FORM_REDUCE) {
        *ret_since = f->reduced * k / f->members;
        *ret_until = f->reduced * (k + 1) / f->members;
        return;
    }
    const int64_t length = f->shape[__builtin_ctz(f->reduced_axes)], share = f->scan.share;
    *ret_since = share * k < length ? share * k : length;
    *ret_until = share * (k + 1) < length ? share * (k + 1) : length;
}

const char *form_name(const struct form *f)
{
    switch (f->kind) {
    case FORM_FLAT:
        return "flat";
    case FORM_ROWS:
        return "rows";
    case FORM_TILE:
        return "tile";
    case FORM_STENCIL:
        return "stencil";
    case FORM_WINDOW:
        return "window";
    case FORM_STEPS:
        return "steps";
    case FORM_FOLD:
        return "fold";
    case FORM_SCAN:
        return f->inner ? "scan-inner" : "scan-outer";
    case FORM_SCAN_ROWS:
        return "scan-rows";
    case FORM_REDUCE:
        break;
    }
    return !f->inner ? "reduce-outer" : f->kept == 1 ? "reduce-all" : "reduce-inner";
}
