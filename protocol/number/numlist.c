/* The text is cut only between elements, so the whole cursor is an index: with the innermost axis
 * in a tight loop, and at its end the brackets of every axis that wraps around. The longest thing
 * written at once (closing and opening 32 lists around one element) fits NUMLIST_MIN. */
#include "protocol/number/numlist.h"

#include <string.h>

#include "protocol/number/numtext.h"

static bool is_empty(const struct view *v)
{
    for (int d = 0; d < v->rank; d++)
        if (v->shape[d] == 0)
            return true;
    return false;
}

void numlist_init(struct numlist *l, enum dtype dtype, const struct view *view, const void *base)
{
    *l = (struct numlist){.dtype = dtype, .view = *view, .base = base};
}

/* An empty array's lists: every axis before the first extent of 0 is written out; nothing lies
 * below it. There may be many of them, so this too goes piece by piece: `index` counts the
 * innermost lists, those of the first empty axis. */
static size_t next_empty(struct numlist *l, char *buf, size_t cap)
{
    int inner = 0; /* the first axis of extent 0 */
    while (l->view.shape[inner] != 0)
        inner++;
    size_t n = 0;
    while (!l->done && n + 2 * MAX_RANK + 3 <= cap) {
        for (; l->level < inner; l->level++)
            buf[n++] = '[';
        buf[n++] = '[';
        buf[n++] = ']';
        int d = inner - 1;
        while (d >= 0 && ++l->index[d] == l->view.shape[d]) {
            l->index[d--] = 0;
            buf[n++] = ']';
            l->level--;
        }
        if (d < 0)
            l->done = true;
        else
            buf[n++] = ',';
    }
    return n;
}

size_t numlist_next(struct numlist *l, char *buf, size_t cap)
{
    const struct view *v = &l->view;
    if (l->done)
        return 0;
    if (is_empty(v))
        return next_empty(l, buf, cap);
    int rank = v->rank, last = rank - 1;
    size_t item = dtype_size(l->dtype), n = 0;
    if (rank == 0) {
        l->done = true;
        return numtext_elem(l->dtype, l->base + v->offset * (int64_t)item, buf);
    }
    const size_t most = 2 * MAX_RANK + NUMTEXT_ELEM_MAX + 1;
    while (!l->done && n + most <= cap) {
        for (; l->level < rank; l->level++)
            buf[n++] = '[';
        int64_t at = v->offset;
        for (int d = 0; d < last; d++)
            at += l->index[d] * v->strides[d];
        const unsigned char *row = l->base + at * (int64_t)item;
        int64_t step = v->strides[last] * (int64_t)item, i = l->index[last],
                extent = v->shape[last];
        bool run = l->dtype == DT_F32 && step == (int64_t)sizeof(float) &&
                   (uintptr_t)row % _Alignof(float) == 0;
        for (;;) {
            if (run && n + most + NUMTEXT_RUN_ELEM <= cap) {
                size_t room = (cap - n - most) / NUMTEXT_RUN_ELEM;
                int64_t k = extent - i < (int64_t)room ? extent - i : (int64_t)room;
                n += numtext_f32_run((const float *)(const void *)(row + i * step), (size_t)k,
                                     buf + n);
                i += k - 1;
            } else {
                n += numtext_elem(l->dtype, row + i * step, buf + n);
            }
            if (++i == extent)
                break;
            buf[n++] = ',';
            if (n + most > cap)
                break;
        }
        l->index[last] = i;
        if (i < extent)
            continue;
        int d = last;
        do {
            l->index[d--] = 0;
            buf[n++] = ']';
            l->level--;
        } while (d >= 0 && ++l->index[d] == v->shape[d]);
        if (d < 0)
            l->done = true;
        else
            buf[n++] = ',';
    }
    return n;
}

/* An empty array's text may be long all the same, (2^40, 0): its length is counted by axes. */
static uint64_t empty_length(const struct view *v)
{
    int inner = 0;
    while (v->shape[inner] != 0)
        inner++;
    uint64_t n = 2;
    for (int d = inner - 1; d >= 0; d--) {
        uint64_t extent = (uint64_t)v->shape[d];
        if (__builtin_mul_overflow(n + 1, extent, &n) || __builtin_add_overflow(n, 1, &n))
            return UINT64_MAX;
    }
    return n;
}

uint64_t numlist_length(enum dtype dtype, const struct view *view, const void *base)
{
    if (is_empty(view))
        return empty_length(view);
    struct numlist l;
    char buf[8192];
    uint64_t total = 0;
    numlist_init(&l, dtype, view, base);
    while (!l.done)
        total += numlist_next(&l, buf, sizeof buf);
    return total;
}

void numlist_add(struct strb *out, enum dtype dtype, const struct view *view, const void *base)
{
    struct numlist l;
    if (is_empty(view) && empty_length(view) > NUMLIST_EMPTY_MAX) {
        out->failed = true;
        return;
    }
    numlist_init(&l, dtype, view, base);
    while (!l.done) {
        char *p = strb_reserve(out, 4096);
        if (!p)
            return;
        out->len += numlist_next(&l, p, 4096);
        out->data[out->len] = '\0';
    }
}
