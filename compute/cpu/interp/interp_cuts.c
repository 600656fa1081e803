/* Where index contexts break, and what they are at a point.
 *
 * Along each axis a context's coordinate is a piecewise affine function of one iteration axis
 * (every axis of a step comes from at most one axis of its parent, so chains never mix axes). The
 * pieces of every context are computed in order, parents first, and the ends of every piece become
 * cuts of the iteration axis. The one mode that couples axes is SELF: whether the shift is taken
 * depends on all of them. There both possibilities are carried on as pieces over the same range.
 * Within a box of the final cuts every test has one outcome, so the coordinate is affine after all;
 * evaluating the chain at the box's corner tells which possibility applies.
 *
 * Offsets are normalised first, so that nothing overflows and no loop depends on their size:
 * clamped to ±extent for SELF, CLAMP and CONSTANT (beyond it nothing is inside anyway), reduced to
 * one period for WRAP, REFLECT and SYMMETRIC. */
#include <string.h>

#include "compute/cpu/interp/interp_box.h"

#define MAX_PIECES 512  /* per axis of a context */
#define MAX_CUTS   1024 /* per iteration axis */
#define MAX_BOXES  16384

/* coordinate = a + s·i for iteration indices lo ≤ i < hi */
struct piece {
    int64_t lo, hi, a, s;
};

struct axis_fn {
    int axis; /* iteration axis, -1: constant */
    uint32_t n;
    struct piece *p;
};

struct cutter {
    struct interp_run *r;
    struct axis_fn **fns; /* by context, axis */
    int64_t *cuts[MAX_RANK];
    int32_t n_cuts[MAX_RANK]; /* boundaries so far, between the ends */
    struct piece *out;        /* the function being built */
    uint32_t n_out;
    bool too_many;
};

static int64_t clamped(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static int64_t modulo(int64_t v, int64_t n)
{
    int64_t m = v % n;
    return m < 0 ? m + n : m;
}

static int64_t normalised(enum boundary_mode mode, int64_t offset, int64_t n)
{
    switch (mode) {
    case BOUNDARY_WRAP:
        return modulo(offset, n);
    case BOUNDARY_REFLECT:
        return n == 1 ? 0 : modulo(offset, 2 * n - 2);
    case BOUNDARY_SYMMETRIC:
        return modulo(offset, 2 * n);
    case BOUNDARY_GHOST: /* no wider than the ghost cells */
        return offset;
    case BOUNDARY_SELF:
    case BOUNDARY_CLAMP:
    case BOUNDARY_CONSTANT:
        break;
    }
    return clamped(offset, -n, n);
}

/* How the mode maps v = q + normalised offset (not for SELF): sign and constant of an affine map
 * that holds for all v' between the same thresholds. */
static void fold(enum boundary_mode mode, int64_t v, int64_t n, int64_t *ret_sign, int64_t *ret_add)
{
    *ret_sign = 1;
    *ret_add = 0;
    switch (mode) {
    case BOUNDARY_WRAP:
        if (v >= n)
            *ret_add = -n;
        break;
    case BOUNDARY_REFLECT:
        if (n == 1) {
            *ret_sign = 0;
        } else if (v >= 2 * n - 2) {
            *ret_add = -(2 * n - 2);
        } else if (v >= n) {
            *ret_sign = -1;
            *ret_add = 2 * n - 2;
        }
        break;
    case BOUNDARY_SYMMETRIC:
        if (v >= 2 * n) {
            *ret_add = -2 * n;
        } else if (v >= n) {
            *ret_sign = -1;
            *ret_add = 2 * n - 1;
        }
        break;
    case BOUNDARY_GHOST:
        break;
    case BOUNDARY_SELF:
    case BOUNDARY_CLAMP:
    case BOUNDARY_CONSTANT:
        if (v < 0 || v >= n) {
            *ret_sign = 0;
            *ret_add = v < 0 ? 0 : n - 1;
        }
        break;
    }
}

static int thresholds(enum boundary_mode mode, int64_t n, int64_t t[2])
{
    switch (mode) {
    case BOUNDARY_WRAP:
        t[0] = n;
        return 1;
    case BOUNDARY_REFLECT:
        t[0] = n;
        t[1] = 2 * n - 2;
        return 2;
    case BOUNDARY_SYMMETRIC:
        t[0] = n;
        t[1] = 2 * n;
        return 2;
    case BOUNDARY_GHOST:
        return 0;
    case BOUNDARY_SELF:
    case BOUNDARY_CLAMP:
    case BOUNDARY_CONSTANT:
        break;
    }
    t[0] = 0;
    t[1] = n;
    return 2;
}

static int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    int64_t q = a / b;
    return q - (a % b < 0);
}

/* The index where a + s·i crosses T: the first with a + s·i ≥ T (s > 0) or < T (s < 0). */
static int64_t crossing(int64_t a, int64_t s, int64_t t)
{
    return s > 0 ? -floor_div(a - t, s) : floor_div(a - t, -s) + 1;
}

static void add_cut(struct cutter *c, int axis, int64_t at)
{
    if (at <= 0 || at >= c->r->k->shape[axis])
        return;
    int64_t *cuts = c->cuts[axis];
    int32_t n = c->n_cuts[axis], i = n;
    while (i > 0 && cuts[i - 1] > at)
        i--;
    if (i > 0 && cuts[i - 1] == at)
        return;
    if (n == MAX_CUTS) {
        c->too_many = true;
        return;
    }
    memmove(cuts + i + 1, cuts + i, (size_t)(n - i) * sizeof *cuts);
    cuts[i] = at;
    c->n_cuts[axis]++;
}

static void add_piece(struct cutter *c, int axis, struct piece p)
{
    if (p.hi - p.lo == 1 && p.s != 0) {
        p.a += p.s * p.lo;
        p.s = 0;
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        if (!memcmp(&c->out[i], &p, sizeof p))
            return;
    if (c->n_out == MAX_PIECES) {
        c->too_many = true;
        return;
    }
    c->out[c->n_out++] = p;
    if (axis >= 0) {
        add_cut(c, axis, p.lo);
        add_cut(c, axis, p.hi);
    }
}

/* Passes one piece of q through the shift. `coupled`: SELF may fail because of another axis. */
static void shift_piece(struct cutter *c, int axis, struct piece q, enum boundary_mode mode,
                        int64_t o, int64_t n, bool coupled)
{
    int64_t t[2], at[4];
    int n_at = 0, n_t = thresholds(mode, n, t);
    at[n_at++] = q.lo;
    if (q.s) {
        for (int i = 0; i < n_t; i++) {
            int64_t x = crossing(q.a + o, q.s, t[q.s > 0 ? i : n_t - 1 - i]);
            if (x > at[n_at - 1] && x < q.hi)
                at[n_at++] = x;
        }
    }
    for (int i = 0; i < n_at; i++) {
        int64_t lo = at[i], hi = i + 1 < n_at ? at[i + 1] : q.hi;
        int64_t v = q.a + o + q.s * lo;
        if (mode == BOUNDARY_SELF) {
            bool in = v >= 0 && v < n;
            if (in)
                add_piece(c, axis, (struct piece){lo, hi, q.a + o, q.s});
            if (!in || coupled)
                add_piece(c, axis, (struct piece){lo, hi, q.a, q.s});
        } else {
            int64_t sign, add;
            fold(mode, v, n, &sign, &add);
            add_piece(c, axis, (struct piece){lo, hi, sign * (q.a + o) + add, sign * q.s});
        }
    }
}

static bool build_context(struct cutter *c, uint32_t number)
{
    const struct interp_run *r = c->r;
    const struct ir_ctx *x = &r->k->ctxs[number];
    struct axis_fn *fn = arena_alloc_array(r->arena, (size_t)x->rank + 1, sizeof *fn);
    if (!fn)
        return false;
    c->fns[number] = fn;
    int n_shifted = 0;
    for (int k = 0; k < x->rank; k++)
        n_shifted += x->offset[k] != 0;
    for (int k = 0; k < x->rank; k++) {
        struct piece none = {0, 1, 0, 0};
        struct axis_fn parent = {.axis = -1, .n = 1, .p = &none};
        if (x->src[k] >= 0)
            parent = c->fns[x->parent][x->src[k]];
        int64_t step = x->src[k] >= 0 ? x->step[k] : 0;
        int64_t o = r->ctx.offsets[number][k];
        c->n_out = 0;
        for (uint32_t i = 0; i < parent.n && !c->too_many; i++) {
            struct piece q = parent.p[i];
            q.a = x->start[k] + step * q.a;
            q.s *= step;
            if (x->offset[k])
                shift_piece(c, parent.axis, q, x->mode, o, x->shape[k], n_shifted > 1);
            else
                add_piece(c, parent.axis, q);
        }
        fn[k].axis = parent.axis;
        fn[k].n = c->n_out;
        fn[k].p = arena_dup(r->arena, c->out, c->n_out * sizeof *c->out);
        if (!fn[k].p)
            return false;
    }
    return true;
}

bool interp_cut(struct interp_run *r)
{
    const struct ir_kernel *k = r->k;
    for (int a = 0; a < k->rank; a++) {
        r->n_cuts[a] = 1;
        r->main_cut[a] = 0;
        int64_t *ends = arena_alloc_array(r->arena, 2, sizeof *ends);
        if (!ends)
            return false;
        ends[1] = k->shape[a];
        r->cuts[a] = ends;
    }
    for (uint32_t c = 0; c < k->n_ctxs; c++) {
        const struct ir_ctx *x = &k->ctxs[c];
        r->ctx.offsets[c] = arena_alloc_array(r->arena, (size_t)x->rank + 1, sizeof(int64_t));
        if (!r->ctx.offsets[c])
            return false;
        if (c == 0 || !r->ctx.used[c])
            continue;
        for (int i = 0; i < x->rank; i++) {
            r->ctx.shifts[c] |= x->offset[i] != 0;
            r->ctx.offsets[c][i] = normalised(x->mode, x->offset[i], x->shape[i]);
        }
        r->ctx.any_shift |= r->ctx.shifts[c];
    }
    if (!r->ctx.any_shift)
        return true;

    struct cutter c = {.r = r};
    c.fns = arena_alloc_array(r->arena, k->n_ctxs, sizeof *c.fns);
    c.out = arena_alloc_array(r->arena, MAX_PIECES, sizeof *c.out);
    if (!c.fns || !c.out)
        return false;
    struct piece whole[MAX_RANK];
    struct axis_fn *fn = arena_alloc_array(r->arena, (size_t)k->rank + 1, sizeof *fn);
    if (!fn)
        return false;
    for (int a = 0; a < k->rank; a++) {
        whole[a] = (struct piece){0, k->shape[a], 0, 1};
        if (k->shape[a] == 1)
            whole[a].s = 0;
        fn[a] = (struct axis_fn){.axis = a, .n = 1, .p = &whole[a]};
        c.cuts[a] = arena_alloc_array(
            r->arena, (size_t)(k->shape[a] < MAX_CUTS ? k->shape[a] : MAX_CUTS), sizeof(int64_t));
        if (!c.cuts[a])
            return false;
    }
    c.fns[0] = fn;
    for (uint32_t i = 1; i < k->n_ctxs && !c.too_many; i++)
        if (r->ctx.used[i] && !build_context(&c, i))
            return false;

    int64_t boxes = 1;
    for (int a = 0; a < k->rank && boxes <= MAX_BOXES; a++)
        boxes *= c.n_cuts[a] + 1;
    /* A box costs some microseconds, a pointwise element some tens of nanoseconds. */
    if (c.too_many || boxes > MAX_BOXES || (boxes > 27 && r->points / boxes < 16)) {
        r->pointwise = true;
        return true;
    }
    for (int a = 0; a < k->rank; a++) {
        int32_t n = c.n_cuts[a] + 1;
        int64_t *cuts = arena_alloc_array(r->arena, (size_t)n + 1, sizeof *cuts);
        if (!cuts)
            return false;
        memcpy(cuts + 1, c.cuts[a], (size_t)(n - 1) * sizeof *cuts);
        cuts[n] = k->shape[a];
        r->cuts[a] = cuts;
        r->n_cuts[a] = n;
        for (int32_t i = 1; i < n; i++)
            if (cuts[i + 1] - cuts[i] > cuts[r->main_cut[a] + 1] - cuts[r->main_cut[a]])
                r->main_cut[a] = i;
    }
    return true;
}

void interp_coords(const struct interp_run *r, const int64_t *point, int64_t *coords,
                   bool *ret_inside)
{
    const struct ir_kernel *k = r->k;
    memcpy(coords, point, (size_t)k->rank * sizeof *coords);
    for (uint32_t c = 1; c < k->n_ctxs; c++) {
        if (!r->ctx.used[c])
            continue;
        const struct ir_ctx *x = &k->ctxs[c];
        const int64_t *p = coords + r->ctx.at[x->parent];
        int64_t *q = coords + r->ctx.at[c];
        for (int i = 0; i < x->rank; i++)
            q[i] = x->start[i] + (x->src[i] >= 0 ? x->step[i] * p[x->src[i]] : 0);
        bool inside = true;
        if (r->ctx.shifts[c]) {
            for (int i = 0; i < x->rank; i++) {
                int64_t v = q[i] + clamped(x->offset[i], -x->shape[i], x->shape[i]);
                inside &= v >= 0 && v < x->shape[i];
            }
            for (int i = 0; i < x->rank; i++) {
                int64_t v = q[i] + r->ctx.offsets[c][i], sign, add;
                if (x->mode == BOUNDARY_SELF) {
                    if (inside)
                        q[i] = v;
                } else {
                    fold(x->mode, v, x->shape[i], &sign, &add);
                    q[i] = sign * v + add;
                }
            }
        }
        if (ret_inside)
            ret_inside[c] = inside;
    }
}
