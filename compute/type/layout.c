/* Geometry of views. Every operation computes into a local view and copies it out at the end, so
 * that `ret` may be `v` itself.
 *
 * Overflow: a view is only made if its element count times the largest item size (16 bytes) fits
 * int64, so backends can multiply extents, strides and sizes without checks. Strides of axes with
 * at most one element are never followed and may have any value. */
#include "compute/type/layout.h"

#include <stdio.h>
#include <string.h>

#define LARGEST_ITEM 16

const char *shape_text(int rank, const int64_t *shape, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "(");
    for (int k = 0; k < rank && at < n; k++)
        at += (size_t)snprintf(buf + at, n - at, "%s%lld", k ? ", " : "", (long long)shape[k]);
    if (at < n)
        snprintf(buf + at, n - at, rank == 1 ? ",)" : ")");
    return buf;
}

/* Checks rank, extents and the product of the non-zero extents times itemsize. */
static enum err_code check_shape(int rank, const int64_t *shape, size_t itemsize, struct err *e)
{
    if (rank < 0 || rank > MAX_RANK)
        return err_set(e, ERR_BAD_SHAPE, "the shape has rank %d: the largest rank is %d", rank,
                       MAX_RANK);
    int64_t bytes = (int64_t)itemsize;
    char text[SHAPE_TEXT_MAX];
    for (int k = 0; k < rank; k++) {
        if (shape[k] < 0)
            return err_set(e, ERR_BAD_SHAPE, "negative extent %lld along axis %d",
                           (long long)shape[k], k);
        if (shape[k] > 0 && __builtin_mul_overflow(bytes, shape[k], &bytes))
            return err_set(e, ERR_BAD_SHAPE,
                           "shape %s is too large: its size in bytes exceeds 64 bits",
                           shape_text(rank, shape, text, sizeof text));
    }
    return ERR_OK;
}

/* C-order strides for a shape that check_shape accepted. */
static void c_strides(struct view *v)
{
    int64_t stride = 1;
    for (int k = v->rank - 1; k >= 0; k--) {
        v->strides[k] = stride;
        if (v->shape[k] > 0)
            stride *= v->shape[k];
    }
}

enum err_code view_contiguous(int rank, const int64_t *shape, size_t itemsize, struct view *ret,
                              struct err *e)
{
    TRY(check_shape(rank, shape, itemsize, e));
    struct view v = {.rank = rank};
    if (rank)
        memcpy(v.shape, shape, (size_t)rank * sizeof *shape);
    c_strides(&v);
    *ret = v;
    return ERR_OK;
}

int64_t view_size(const struct view *v)
{
    int64_t n = 1;
    for (int k = 0; k < v->rank; k++) {
        if (v->shape[k] == 0)
            return 0;
        n *= v->shape[k];
    }
    return n;
}

bool view_is_contiguous(const struct view *v)
{
    int64_t stride = 1;
    bool c = true;
    for (int k = v->rank - 1; k >= 0; k--) {
        if (v->shape[k] == 0)
            return true;
        if (v->shape[k] != 1 && v->strides[k] != stride)
            c = false;
        if (c)
            stride *= v->shape[k];
    }
    return c;
}

bool view_same_shape(const struct view *a, const struct view *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape));
}

/* Python's slice.indices(): the first index, the step, and the count. */
static int64_t slice_bounds(const struct index_item *it, int64_t n, int64_t step,
                            int64_t *ret_start)
{
    int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
    int64_t start = step < 0 ? highest : lowest, stop = step < 0 ? lowest : highest;
    if (it->has_start) {
        start = it->start < 0 ? it->start + n : it->start;
        start = start < lowest ? lowest : start > highest ? highest : start;
    }
    if (it->has_stop) {
        stop = it->stop < 0 ? it->stop + n : it->stop;
        stop = stop < lowest ? lowest : stop > highest ? highest : stop;
    }
    *ret_start = start;
    if (step > 0)
        return start < stop ? (stop - start - 1) / step + 1 : 0;
    /* −INT64_MIN does not exist: divide in unsigned */
    return start > stop ? (int64_t)((uint64_t)(start - stop - 1) / (0 - (uint64_t)step)) + 1 : 0;
}

enum err_code index_resolve(int rank, const int64_t *shape, const struct index_spec *ix,
                            struct index_map *ret, struct err *e)
{
    int used = 0, ellipses = 0, added = 0, dropped = 0;
    for (int i = 0; i < ix->n; i++) {
        enum index_kind kind = ix->items[i].kind;
        ellipses += kind == INDEX_ELLIPSIS;
        added += kind == INDEX_NEWAXIS;
        dropped += kind == INDEX_INT;
        used += kind == INDEX_INT || kind == INDEX_SLICE;
    }
    if (ellipses > 1)
        return err_set(e, ERR_BAD_INDEX, "an index may contain only one '...'");
    if (used > rank)
        return err_set(e, ERR_BAD_INDEX, "too many indices: %d for an array of rank %d", used,
                       rank);
    if (rank - dropped + added > MAX_RANK)
        return err_set(e, ERR_BAD_SHAPE, "the result would have rank %d: the largest rank is %d",
                       rank - dropped + added, MAX_RANK);
    struct index_map m = {0};
    int axis = 0;
    for (int i = 0; i <= ix->n; i++) {
        static const struct index_item rest = {.kind = INDEX_ELLIPSIS};
        const struct index_item *it = i < ix->n ? &ix->items[i] : &rest;
        int64_t n, start;
        switch (it->kind) {
        case INDEX_NEWAXIS:
            m.axis[m.rank] = -1;
            m.shape[m.rank++] = 1;
            break;
        case INDEX_ELLIPSIS: /* also an implied one at the end */
            for (int left = i < ix->n ? rank - used : rank - axis; left > 0; left--) {
                m.step[axis] = 1;
                m.shape[m.rank] = shape[axis];
                m.axis[m.rank++] = (int8_t)axis++;
            }
            break;
        case INDEX_INT:
            n = shape[axis];
            start = it->start < 0 ? it->start + n : it->start;
            if (start < 0 || start >= n)
                return err_set(e, ERR_BAD_INDEX,
                               "index %lld is out of range for axis %d of extent %lld",
                               (long long)it->start, axis, (long long)n);
            m.step[axis] = 1;
            m.start[axis++] = start;
            break;
        case INDEX_SLICE:
            if (it->has_step && it->step == 0)
                return err_set(e, ERR_BAD_INDEX, "a slice's step cannot be 0");
            n = slice_bounds(it, shape[axis], it->has_step ? it->step : 1, &start);
            m.start[axis] = n > 0 ? start : 0;
            m.step[axis] = n > 1 && it->has_step ? it->step : 1;
            m.shape[m.rank] = n;
            m.axis[m.rank++] = (int8_t)axis++;
            break;
        }
    }
    *ret = m;
    return ERR_OK;
}

enum err_code view_index(const struct view *v, const struct index_spec *ix, struct view *ret,
                         struct err *e)
{
    struct index_map m;
    TRY(index_resolve(v->rank, v->shape, ix, &m, e));
    struct view r = {.rank = m.rank, .offset = v->offset};
    for (int k = 0; k < m.rank; k++) {
        r.shape[k] = m.shape[k];
        if (m.axis[k] >= 0)
            r.strides[k] = v->strides[m.axis[k]] * m.step[m.axis[k]];
    }
    if (view_size(&r) > 0)
        for (int k = 0; k < v->rank; k++)
            if (v->shape[k] > 1)
                r.offset += m.start[k] * v->strides[k];
    *ret = r;
    return ERR_OK;
}

enum err_code view_permute(const struct view *v, int n, const int64_t *axes, struct view *ret,
                           struct err *e)
{
    if (n != v->rank)
        return err_set(e, ERR_BAD_AXIS, "the permutation has %d axes, but the array has rank %d", n,
                       v->rank);
    struct view r = {.rank = v->rank, .offset = v->offset};
    uint32_t seen = 0;
    for (int k = 0; k < n; k++) {
        int64_t a = axes[k] < 0 ? axes[k] + n : axes[k];
        if (a < 0 || a >= n)
            return err_set(e, ERR_BAD_AXIS, "axis %lld is out of range for rank %d",
                           (long long)axes[k], n);
        if (seen & 1u << a)
            return err_set(e, ERR_BAD_AXIS, "axis %lld is named twice", (long long)axes[k]);
        seen |= 1u << a;
        r.shape[k] = v->shape[a];
        r.strides[k] = v->strides[a];
    }
    *ret = r;
    return ERR_OK;
}

/* Replaces an extent of -1 by the one that the others imply. */
static enum err_code infer_extent(const struct view *v, int rank, const int64_t *shape,
                                  int64_t *ret_shape, struct err *e)
{
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    int64_t size = view_size(v), known = 1;
    int unknown = -1;
    if (rank < 0 || rank > MAX_RANK)
        return check_shape(rank, shape, 1, e);
    for (int k = 0; k < rank; k++) {
        ret_shape[k] = shape[k];
        if (shape[k] == -1 && unknown < 0)
            unknown = k;
        else if (shape[k] == -1)
            return err_set(e, ERR_BAD_SHAPE, "only one extent of a new shape may be -1");
    }
    if (unknown >= 0)
        ret_shape[unknown] = 1;
    TRY(check_shape(rank, ret_shape, LARGEST_ITEM, e));
    for (int k = 0; k < rank; k++)
        known *= ret_shape[k];
    if (unknown >= 0 && known > 0 && size % known == 0)
        known *= ret_shape[unknown] = size / known;
    else if (unknown >= 0)
        known = -1;
    if (known != size)
        return err_set(e, ERR_SHAPE_MISMATCH, "shape %s of %lld elements cannot become %s",
                       shape_text(v->rank, v->shape, have, sizeof have), (long long)size,
                       shape_text(rank, shape, want, sizeof want));
    return ERR_OK;
}

/* Scans both shapes from the front in groups of equal element counts. A group's old axes must be
 * contiguous in C order; its new axes then subdivide that run. */
enum err_code view_reshape(const struct view *v, int rank, const int64_t *shape, struct view *ret,
                           struct err *e)
{
    struct view r = {.rank = rank, .offset = v->offset};
    TRY(infer_extent(v, rank, shape, r.shape, e));
    if (view_size(v) == 0) {
        c_strides(&r);
        *ret = r;
        return ERR_OK;
    }
    int64_t old_n[MAX_RANK], old_s[MAX_RANK];
    int old = 0;
    for (int k = 0; k < v->rank; k++)
        if (v->shape[k] != 1) {
            old_n[old] = v->shape[k];
            old_s[old++] = v->strides[k];
        }
    int i = 0, j = 0;
    while (i < old) {
        while (r.shape[j] == 1)
            r.strides[j++] = 0;
        int i1 = i + 1, j1 = j + 1;
        int64_t a = old_n[i], b = r.shape[j];
        while (a != b) {
            if (a < b)
                a *= old_n[i1++];
            else
                b *= r.shape[j1++];
        }
        for (int k = i; k + 1 < i1; k++)
            if (old_s[k] != old_s[k + 1] * old_n[k + 1]) {
                char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
                return err_set(e, ERR_NOT_A_VIEW,
                               "these strides do not allow shape %s to become %s without a copy",
                               shape_text(v->rank, v->shape, have, sizeof have),
                               shape_text(rank, shape, want, sizeof want));
            }
        int64_t stride = old_s[i1 - 1];
        for (int k = j1 - 1; k >= j; k--) {
            r.strides[k] = stride;
            stride *= r.shape[k];
        }
        i = i1;
        j = j1;
    }
    while (j < rank)
        r.strides[j++] = 0;
    /* axes of extent 1 get their C-order strides, so that metadata is easy to read */
    int64_t below = 1;
    for (int k = rank - 1; k >= 0; k--) {
        if (r.shape[k] == 1)
            r.strides[k] = below;
        else
            below = r.strides[k] * r.shape[k];
    }
    *ret = r;
    return ERR_OK;
}

enum err_code view_broadcast_to(const struct view *v, int rank, const int64_t *shape,
                                struct view *ret, struct err *e)
{
    TRY(check_shape(rank, shape, LARGEST_ITEM, e));
    struct view r = {.rank = rank, .offset = v->offset};
    int pad = rank - v->rank;
    bool fits = pad >= 0;
    for (int k = 0; k < rank && fits; k++) {
        r.shape[k] = shape[k];
        if (k < pad)
            continue;
        if (v->shape[k - pad] == shape[k])
            r.strides[k] = v->strides[k - pad];
        else
            fits = v->shape[k - pad] == 1;
    }
    if (!fits) {
        char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
        return err_set(e, ERR_SHAPE_MISMATCH, "shape %s does not broadcast to %s",
                       shape_text(v->rank, v->shape, have, sizeof have),
                       shape_text(rank, shape, want, sizeof want));
    }
    *ret = r;
    return ERR_OK;
}

enum err_code view_reinterpret(const struct view *v, size_t old_size, size_t new_size,
                               struct view *ret, struct err *e)
{
    if (old_size == new_size) {
        *ret = *v;
        return ERR_OK;
    }
    if (v->rank == 0)
        return err_set(e, ERR_NOT_A_VIEW,
                       "an array of rank 0 can only be viewed as a dtype of the same size");
    int last = v->rank - 1;
    if (v->shape[last] != 1 && view_size(v) != 0 && v->strides[last] != 1)
        return err_set(
            e, ERR_NOT_A_VIEW,
            "to view an array as a dtype of another size, its last axis must be contiguous");
    int64_t a = (int64_t)old_size, b = (int64_t)new_size;
    int64_t bytes;
    if (__builtin_mul_overflow(v->shape[last], a, &bytes) || bytes % b != 0)
        return err_set(
            e, ERR_NOT_A_VIEW,
            "the last axis (%lld elements of %lld bytes) is not a multiple of %lld bytes",
            (long long)v->shape[last], (long long)a, (long long)b);
    struct view r = *v;
    r.shape[last] = bytes / b;
    r.strides[last] = 1;
    bool aligned = !__builtin_mul_overflow(v->offset, a, &r.offset) && r.offset % b == 0;
    r.offset /= b;
    for (int k = 0; k < last; k++) {
        bool whole =
            !__builtin_mul_overflow(v->strides[k], a, &r.strides[k]) && r.strides[k] % b == 0;
        r.strides[k] = whole ? r.strides[k] / b : 0;
        aligned &= whole || v->shape[k] <= 1;
    }
    if (!aligned && view_size(v) != 0)
        return err_set(
            e, ERR_NOT_A_VIEW,
            "the view's offset or strides are not multiples of the new dtype's %lld bytes",
            (long long)b);
    *ret = r;
    return ERR_OK;
}

enum err_code shape_broadcast(int ra, const int64_t *a, int rb, const int64_t *b, int *ret_rank,
                              int64_t *ret_shape, struct err *e)
{
    int rank = ra > rb ? ra : rb;
    int64_t out[MAX_RANK] = {0};
    for (int k = 0; k < rank; k++) {
        int64_t x = k < rank - ra ? 1 : a[k - (rank - ra)];
        int64_t y = k < rank - rb ? 1 : b[k - (rank - rb)];
        if (x != y && x != 1 && y != 1) {
            char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
            return err_set(e, ERR_SHAPE_MISMATCH, "shapes %s and %s do not broadcast together",
                           shape_text(ra, a, ta, sizeof ta), shape_text(rb, b, tb, sizeof tb));
        }
        out[k] = x == 1 ? y : x;
    }
    TRY(check_shape(rank, out, LARGEST_ITEM, e));
    *ret_rank = rank;
    if (rank)
        memcpy(ret_shape, out, (size_t)rank * sizeof *out);
    return ERR_OK;
}

void view_extent(const struct view *v, int64_t *ret_lo, int64_t *ret_hi)
{
    int64_t lo = v->offset, hi = v->offset;
    if (view_size(v) == 0) {
        *ret_lo = *ret_hi = 0;
        return;
    }
    for (int k = 0; k < v->rank; k++) {
        int64_t reach = v->shape[k] > 1 ? (v->shape[k] - 1) * v->strides[k] : 0;
        *(reach < 0 ? &lo : &hi) += reach;
    }
    *ret_lo = lo;
    *ret_hi = hi + 1;
}

bool view_self_overlaps(const struct view *v)
{
    int64_t stride[MAX_RANK], reach[MAX_RANK];
    int n = 0;
    if (view_size(v) == 0)
        return false;
    for (int k = 0; k < v->rank; k++) {
        if (v->shape[k] == 1)
            continue;
        int64_t s = v->strides[k] < 0 ? -v->strides[k] : v->strides[k];
        int i = n++;
        for (; i > 0 && stride[i - 1] > s; i--) {
            stride[i] = stride[i - 1];
            reach[i] = reach[i - 1];
        }
        stride[i] = s;
        reach[i] = s * (v->shape[k] - 1);
    }
    /* disjoint if each axis steps over everything the finer ones reach */
    int64_t below = 0;
    for (int i = 0; i < n; i++) {
        if (stride[i] <= below)
            return true;
        below += reach[i];
    }
    return false;
}

enum err_code padded_extents(int rank, const int64_t *shape, const int64_t *ghost,
                             int64_t *ret_padded, struct err *e)
{
    int64_t padded[MAX_RANK];
    bool fits = rank >= 0 && rank <= MAX_RANK;
    for (int k = 0; k < rank && fits; k++)
        fits = !__builtin_mul_overflow(ghost[k], (int64_t)2, &padded[k]) &&
               !__builtin_add_overflow(padded[k], shape[k], &padded[k]);
    if (fits && rank) {
        int64_t *last = &padded[rank - 1];
        fits = !__builtin_add_overflow(*last, ROW_ELEMENTS - 1, last);
        *last -= fits ? *last % ROW_ELEMENTS : 0;
    }
    if (!fits)
        return err_set(
            e, ERR_BAD_SHAPE,
            "the shape with its ghosts is too large: the number of cells exceeds 64 bits");
    if (rank)
        memcpy(ret_padded, padded, sizeof *padded * (size_t)rank);
    return ERR_OK;
}

enum err_code view_padded(int rank, const int64_t *shape, const int64_t *ghost,
                          const int64_t *padded, size_t itemsize, int64_t alignment,
                          struct view *ret, int64_t *ret_elements, struct err *e)
{
    char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
    int64_t need[MAX_RANK];
    struct view v;
    TRY(padded_extents(rank, shape, ghost, need, e));
    TRY(view_contiguous(rank, padded, itemsize, &v, e));
    if (rank && padded[rank - 1] % ROW_ELEMENTS != 0)
        return err_set(e, ERR_BAD_SHAPE,
                       "the innermost padded extent must be a multiple of %d, not %lld",
                       ROW_ELEMENTS, (long long)padded[rank - 1]);
    for (int k = 0; k < rank; k++)
        if (need[k] > padded[k])
            return err_set(e, ERR_SHAPE_MISMATCH,
                           "the shape with its ghosts needs %s, but the padded extents are %s",
                           shape_text(rank, need, want, sizeof want),
                           shape_text(rank, padded, have, sizeof have));
    int64_t total = view_size(&v), step = alignment / (int64_t)itemsize;
    for (int k = 0; k < rank; k++) {
        v.shape[k] = shape[k];
        v.offset += ghost[k] * v.strides[k];
    }
    if (step < ROW_ELEMENTS)
        step = ROW_ELEMENTS;
    int64_t lead = (step - v.offset % step) % step;
    if (__builtin_add_overflow(total, lead, &total) || total > INT64_MAX / (int64_t)itemsize)
        return err_set(e, ERR_BAD_SHAPE, "shape %s is too large: its size in bytes exceeds 64 bits",
                       shape_text(rank, padded, have, sizeof have));
    v.offset += lead;
    *ret = v;
    *ret_elements = total;
    return ERR_OK;
}
