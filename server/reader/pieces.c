/* A chunk is decompressed whole whenever a part of it is read. Pieces that are contiguous in the
 * result hold whole chunks if, along one axis, their rows end where chunks end, and the axes before
 * it have chunks of one index. */
#include "server/reader/pieces.h"

#include <string.h>

int64_t region_size(const struct region *r)
{
    int64_t n = 1;
    for (int d = 0; d < r->rank; d++)
        n *= r->count[d];
    return n;
}

void pieces_plan(const struct region *of, const int64_t *chunks, int64_t elem, int64_t budget,
                 struct pieces *ret, int64_t *ret_again)
{
    *ret = (struct pieces){.of = *of, .chunk = 1, .rows = 1, .ended = region_size(of) == 0};
    int64_t inner = elem, room = budget < elem ? elem : budget;
    int axis = of->rank;
    while (axis > 0 && !ret->ended &&
           inner <= room / (of->count[axis - 1] ? of->count[axis - 1] : 1))
        inner *= of->count[--axis];
    if (axis > 0) { /* the axis of which some rows fit, but not all */
        ret->axis = axis - 1;
        ret->rows = room / inner;
    } else if (of->rank > 0) {
        ret->rows = of->count[0];
    }
    if (chunks && of->rank > 0)
        ret->chunk = chunks[ret->axis];
    if (!ret_again)
        return;
    *ret_again = 1;
    for (int d = 0; chunks && d <= ret->axis && d < of->rank; d++) {
        int64_t step = of->step[d], within = (chunks[d] + step - 1) / step;
        within = within < of->count[d] ? within : of->count[d];
        int64_t rows = d < ret->axis ? 1 : ret->rows;
        int64_t times = (within + rows - 1) / rows;
        if (times > 1 && __builtin_mul_overflow(*ret_again, times, ret_again))
            *ret_again = INT64_MAX;
    }
}

bool pieces_next(struct pieces *p, struct region *ret, int64_t *ret_size)
{
    if (p->ended)
        return false;
    int rank = p->of.rank;
    *ret = p->of;
    for (int d = 0; d < rank && d <= p->axis; d++) {
        ret->start[d] += p->at[d] * p->of.step[d];
        ret->count[d] = 1;
    }
    if (rank == 0) {
        p->ended = true;
        *ret_size = 1;
        return true;
    }
    int k = p->axis;
    int64_t left = p->of.count[k] - p->at[k], n = p->rows < left ? p->rows : left;
    if (n < left && p->chunk > 1) {
        /* the first index of the chunk that the piece would cut, and where the piece reaches it */
        int64_t past = ret->start[k] + n * p->of.step[k], edge = past - past % p->chunk;
        int64_t whole = (edge - ret->start[k] + p->of.step[k] - 1) / p->of.step[k];
        n = edge > ret->start[k] && whole > 0 && whole < n ? whole : n;
    }
    ret->count[k] = n;
    *ret_size = region_size(ret);
    p->at[k] += n;
    for (; k >= 0 && p->at[k] >= p->of.count[k]; k--) {
        p->at[k] = 0;
        if (k == 0)
            p->ended = true;
        else
            p->at[k - 1]++;
    }
    return true;
}

void runs_begin(const struct region *of, const int64_t *shape, struct runs *ret)
{
    *ret = (struct runs){.of = *of, .ended = region_size(of) == 0};
    int64_t stride = 1;
    for (int d = of->rank - 1; d >= 0; d--) {
        ret->strides[d] = stride;
        stride *= shape[d];
    }
    /* whole axes join the axis before them */
    ret->inner = of->rank > 0 ? of->rank - 1 : 0;
    while (ret->inner > 0 && of->step[ret->inner] == 1 &&
           of->count[ret->inner] == shape[ret->inner] &&
           (of->step[ret->inner - 1] == 1 || of->count[ret->inner - 1] == 1))
        ret->inner--;
}

bool runs_next(struct runs *r, struct run *ret)
{
    if (r->ended)
        return false;
    *ret = (struct run){0, 1, 1};
    for (int d = 0; d < r->of.rank; d++) {
        ret->first += (r->of.start[d] + r->i[d] * r->of.step[d]) * r->strides[d];
        if (d >= r->inner)
            ret->count *= r->of.count[d];
    }
    if (r->of.rank > 0 && r->inner == r->of.rank - 1)
        ret->step = r->of.step[r->inner];
    r->ended = r->inner == 0;
    for (int d = r->inner - 1; d >= 0; d--) {
        if (++r->i[d] < r->of.count[d])
            break;
        r->i[d] = 0;
        r->ended = d == 0;
    }
    return true;
}

void chunk_rows(int rank, const int64_t *shape, int64_t elem, int64_t bytes, int64_t *ret)
{
    for (int d = rank - 1; d >= 0; d--) {
        int64_t fit = bytes / elem, extent = shape[d] > 0 ? shape[d] : 1;
        ret[d] = fit < 1 ? 1 : fit < extent ? fit : extent;
        elem *= ret[d] < extent ? bytes : extent; /* beyond a cut axis nothing fits */
        elem = elem > bytes ? bytes + 1 : elem;
    }
}

bool span_next(int rank, const int64_t *shape, int64_t *at, int64_t end, struct region *ret)
{
    if (*at >= end)
        return false;
    *ret = (struct region){.rank = rank};
    int64_t rest = *at, inner = 1, left = end - *at;
    int axis = rank;
    /* axes from `axis` on are whole: the place is at their beginning, and enough is left */
    while (axis > 0 && rest % shape[axis - 1] == 0 && inner * shape[axis - 1] <= left) {
        inner *= shape[--axis];
        rest /= shape[axis];
    }
    for (int d = 0; d < rank; d++)
        ret->step[d] = 1;
    for (int d = axis; d < rank; d++)
        ret->count[d] = shape[d];
    int64_t taken = inner;
    for (int d = axis - 1; d >= 0; d--) {
        ret->start[d] = rest % shape[d];
        ret->count[d] = 1;
        if (d == axis - 1) {
            int64_t rows = left / inner, room = shape[d] - ret->start[d];
            ret->count[d] = rows < room ? rows : room;
            taken = ret->count[d] * inner;
        }
        rest /= shape[d];
    }
    *at += taken;
    return true;
}
