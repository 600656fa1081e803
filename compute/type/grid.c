/* Once the axis's first index is shifted to 0, ghost-addressed indices are NumPy's, with one
 * difference: a negative number is a position, not a distance from the end. So numbers are shifted
 * and clipped here, and view_index only ever sees ends inside the axis. */
#include "compute/type/grid.h"

#include <stdio.h>

#include "compute/base/mem.h"

void grid_init(struct grid *g, int rank)
{
    *g = (struct grid){.rank = rank, .alignment = GRID_ALIGNMENT};
    for (int k = 0; k < rank; k++)
        g->spacing[k] = 1;
}

struct grid *grid_new(const struct grid *description)
{
    struct grid *g = mem_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    *g = *description;
    atomic_init(&g->refs, 1);
    return g;
}

struct grid *grid_ref(struct grid *g)
{
    if (g)
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void grid_unref(struct grid *g)
{
    if (g && atomic_fetch_sub(&g->refs, 1) == 1)
        mem_free(g);
}

bool grid_has_ghosts(const struct grid *g)
{
    for (int k = 0; g && k < g->rank; k++)
        if (g->ghost[k])
            return true;
    return false;
}

int64_t grid_alignment(const struct grid *g, const struct view *v, size_t itemsize)
{
    int64_t ret = g ? g->alignment : GRID_ALIGNMENT;
    while (v->offset * (int64_t)itemsize % ret)
        ret /= 2;
    return ret;
}

bool grid_is_plain(const struct grid *g)
{
    if (g->has_boundary || g->is_padded || g->alignment != GRID_ALIGNMENT || grid_has_ghosts(g))
        return false;
    for (int k = 0; k < g->rank; k++)
        if (g->spacing[k] != 1)
            return false;
    return true;
}

enum err_code grid_check_ghosts(const struct grid *g, const int64_t *shape, struct err *e)
{
    for (int k = 0; k < g->rank; k++) {
        if (g->ghost[k] <= shape[k])
            continue;
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/ghost/%d", k);
        return err_field(
            e, ERR_GHOST_WIDTH, pointer,
            "%lld ghost cells on axis %d of extent %lld: there can be no more than the extent",
            (long long)g->ghost[k], k, (long long)shape[k]);
    }
    return ERR_OK;
}

enum dtype face_dtype(enum dtype t)
{
    return dtype_kind(t) < KIND_FLOAT ? DT_F64 : t;
}

enum dtype face_wide(enum dtype t)
{
    return dtype_is_complex(t) ? DT_C128 : DT_F64;
}

struct scalar face_constant(const struct face *f, double factor, enum dtype t)
{
    struct scalar s = {.dtype = face_wide(t)};
    s.v.c128[0] = factor * f->re; /* a real value is stored at the same place as the real part */
    if (s.dtype == DT_C128)
        s.v.c128[1] = factor * f->im;
    return s.dtype == t ? s : scalar_cast(s, t);
}

struct scalar grid_spacing(const struct grid *g, int axis, enum dtype t)
{
    return scalar_cast((struct scalar){.dtype = DT_F64, .v.f64 = g->spacing[axis]}, t);
}

void grid_whole(const struct grid *g, const struct view *v, struct view *ret)
{
    *ret = *v;
    for (int k = 0; g && !g->whole && k < v->rank; k++) {
        ret->shape[k] += 2 * g->ghost[k];
        ret->offset -= g->ghost[k] * v->strides[k];
    }
}

void grid_interior(const struct grid *g, const struct view *v, struct view *ret)
{
    *ret = *v;
    for (int k = 0; g && g->whole && k < v->rank; k++) {
        ret->shape[k] -= 2 * g->ghost[k];
        ret->offset += g->ghost[k] * v->strides[k];
    }
}

/* An end of a slice, shifted by g and clipped to −1…n; ret_open: it is the open end of its side. */
static int64_t slice_end(int64_t at, int64_t g, int64_t n, int64_t step, bool *ret_open)
{
    int64_t moved;
    if (__builtin_add_overflow(at, g, &moved))
        moved = n;
    *ret_open = false;
    if (moved < 0) {
        /* going down, an end before the first is open; going up it is the first */
        *ret_open = step < 0;
        return 0;
    }
    return moved < n ? moved : n;
}

enum err_code grid_index(const struct grid *g, const struct view *v, const struct index_spec *ix,
                         struct view *ret, struct err *e)
{
    struct index_spec moved = *ix;
    struct view whole;
    grid_whole(g, v, &whole);
    if (ix->n > whole.rank)
        return err_set(e, ERR_BAD_INDEX, "too many indices: %d for an array of rank %d", ix->n,
                       whole.rank);
    for (int k = 0; k < ix->n; k++) {
        struct index_item *it = &moved.items[k];
        int64_t n = whole.shape[k], width = g ? g->ghost[k] : 0;
        bool open;
        switch (it->kind) {
        case INDEX_NEWAXIS:
        case INDEX_ELLIPSIS:
            return err_set(
                e, ERR_BAD_INDEX,
                "with ghost=1 an index must have one integer or slice per axis, without %s",
                it->kind == INDEX_NEWAXIS ? "None" : "'...'");
        case INDEX_INT:
            if (it->start < -width || it->start >= n - width)
                return err_set(e, ERR_BAD_INDEX,
                               "index %lld is out of range for axis %d, which runs from %lld to "
                               "%lld with its ghosts",
                               (long long)it->start, k, -(long long)width,
                               (long long)(n - width - 1));
            it->start += width;
            break;
        case INDEX_SLICE: {
            int64_t step = it->has_step ? it->step : 1;
            if (it->has_start) {
                it->start = slice_end(it->start, width, n, step, &open);
                if (open) { /* before the first, going down: nothing */
                    it->has_stop = true;
                    it->stop = it->start = 0;
                    break;
                }
            }
            if (it->has_stop) {
                it->stop = slice_end(it->stop, width, n, step, &open);
                it->has_stop = !open;
            }
            break;
        }
        }
    }
    return view_index(&whole, &moved, ret, e);
}
