/* The boxes of a run, the lowest layer of the interpreter: which box a number means, where its
 * operands lie at its corner and how they step from there, the fewest dimensions in which all of
 * them can be traversed, and tiles where the memory layout calls for them. In a box every operand
 * is affine. */
#include "compute/cpu/interp/interp_box.h"

#include <string.h>

int64_t interp_operand_at(const struct interp_run *r, const struct operand *o,
                          const int64_t *coords, const bool *inside)
{
    const int64_t *c = coords + r->ctx.at[o->ctx];
    switch (o->kind) {
    case OPERAND_LOAD:
    case OPERAND_STORE: {
        int64_t elements = 0;
        for (int i = 0; i < o->rank; i++)
            elements += o->strides[i] * c[i];
        return (int64_t)(intptr_t)o->base + elements * o->itemsize;
    }
    case OPERAND_INDEX: {
        const struct ir_node *n = &r->k->nodes[o->node];
        const struct ir_index *ix = &r->k->indices[n->index];
        return ix->start + (n->axis < 0 ? 0 : ix->step * c[n->axis]);
    }
    case OPERAND_INSIDE:
        break;
    }
    return inside[o->ctx];
}

bool interp_is_dense(const struct interp_run *r, const struct operand *o)
{
    int64_t stride = 1;
    for (int i = r->n_order - 1; i >= 0; i--) {
        if (o->strides[r->order[i]] != stride)
            return false;
        stride *= r->k->shape[r->order[i]];
    }
    return true;
}

void interp_box(const struct interp_run *r, int64_t box, int64_t *lo, int64_t *ext)
{
    const struct ir_kernel *k = r->k;
    memset(lo, 0, (size_t)k->rank * sizeof *lo);
    memcpy(ext, k->shape, (size_t)k->rank * sizeof *ext);
    for (int i = r->n_box_axes; i-- > 0;) {
        int a = r->box_axes[i];
        int64_t c = box % r->n_cuts[a];
        box /= r->n_cuts[a];
        lo[a] = r->cuts[a][c];
        ext[a] = r->cuts[a][c + 1] - lo[a];
    }
}

size_t interp_geometry_words(const struct interp_run *r)
{
    size_t inside = (r->k->n_ctxs + 7) / 8;
    return r->n_operands * (size_t)(r->n_order + 1) + 2 * (size_t)r->ctx.coords + inside + 1;
}

/* Puts tiles across two dimensions where some operand is contiguous along another dimension than
 * the output, or where the fastest dimension is too short for a row. */
static void choose_tile(const struct interp_run *r, struct geometry *g)
{
    g->q = -1;
    int last = g->nd - 1;
    if (g->nd < 2 || g->points < 2048)
        return;
    for (uint32_t i = 0; i < r->n_operands && g->q < 0; i++) {
        const struct operand *o = &r->operands[i];
        int64_t inner = g->st[i * g->nd + last];
        inner = inner < 0 ? -inner : inner;
        if (o->kind != OPERAND_LOAD || inner < 64 || g->ext[last] < 4)
            continue;
        for (int d = last - 1; d >= 0 && g->q < 0; d--) {
            int64_t s = g->st[i * g->nd + d];
            s = s < 0 ? -s : s;
            if (s && s <= 2 * o->itemsize && s < inner && g->ext[d] >= 4)
                g->q = d;
        }
    }
    g->p = last;
    if (g->q >= 0) {
        const int64_t side = interp_tile_points(r) >= 4096 ? 64 : 32;
        g->tq = g->ext[g->q] < side ? g->ext[g->q] : side;
        g->tp = interp_tile_points(r) / g->tq;
    } else if (g->ext[last] < 16) {
        g->q = last;
        g->p = last - 1;
        for (int d = last - 1; d >= 0; d--)
            if (g->ext[d] >= 8 * g->ext[g->p])
                g->p = d;
        if (g->ext[g->p] < 4 * g->ext[last]) {
            g->q = -1;
            return;
        }
        g->tq = g->ext[g->q];
        g->tp = interp_tile_points(r) / g->tq;
    }
    if (g->tp > g->ext[g->p])
        g->tp = g->ext[g->p];
}

bool interp_geometry(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                     bool overrun, struct geometry *g, int64_t *work)
{
    const uint32_t n = r->n_operands;
    int axes[MAX_RANK];
    g->nd = 0;
    g->points = 1;
    for (int i = 0; i < r->n_order; i++) {
        int a = r->order[i];
        g->points *= ext[a];
        if (ext[a] == 1)
            continue;
        axes[g->nd] = a;
        g->ext[g->nd++] = ext[a];
    }
    int nd = g->nd;

    if (r->pointwise) {
        memset(g->at, 0, n * sizeof *g->at);
        memset(g->st, 0, n * (size_t)nd * sizeof *g->st);
        /* Outputs are always affine. */
        for (uint32_t i = n - r->n_stores; i < n; i++) {
            g->at[i] = (int64_t)(intptr_t)r->operands[i].base;
            for (int d = 0; d < nd; d++)
                g->st[i * nd + d] = r->operands[i].strides[axes[d]] * r->operands[i].itemsize;
        }
        g->q = -1;
        return !overrun;
    }
    if (r->ctx.plain) {
        for (uint32_t i = 0; i < n; i++) {
            const struct operand *o = &r->operands[i];
            g->at[i] = interp_operand_at(r, o, lo, NULL);
            for (int d = 0; d < nd; d++) {
                int64_t s;
                if (o->kind == OPERAND_INDEX) {
                    const struct ir_node *node = &r->k->nodes[o->node];
                    s = node->axis == axes[d] ? r->k->indices[node->index].step : 0;
                } else {
                    s = o->strides[axes[d]] * o->itemsize;
                }
                g->st[i * nd + d] = s;
            }
        }
    } else {
        int64_t point[MAX_RANK], *coords = work;
        bool *inside = (bool *)(work + r->ctx.coords);
        memcpy(point, lo, (size_t)r->k->rank * sizeof *point);
        interp_coords(r, point, coords, inside);
        for (uint32_t i = 0; i < n; i++)
            g->at[i] = interp_operand_at(r, &r->operands[i], coords, inside);
        for (int d = 0; d < nd; d++) {
            point[axes[d]]++;
            interp_coords(r, point, coords, inside);
            point[axes[d]]--;
            for (uint32_t i = 0; i < n; i++)
                g->st[i * nd + d] =
                    interp_operand_at(r, &r->operands[i], coords, inside) - g->at[i];
        }
    }

    if (overrun) {
        int d = nd - 2;
        if (nd < 2 || r->n_order < 2 || axes[nd - 1] != r->order[r->n_order - 1] ||
            axes[d] != r->order[r->n_order - 2])
            return false;
        int64_t full = r->k->shape[axes[nd - 1]];
        for (uint32_t i = 0; i < n; i++) {
            int64_t s = g->st[i * nd + d + 1];
            if (g->st[i * nd + d] != full * s)
                return false;
        }
        g->ext[d] = (g->ext[d] - 1) * full + g->ext[d + 1];
        for (uint32_t i = 0; i < n; i++)
            g->st[i * nd + d] = g->st[i * nd + d + 1];
        for (uint32_t i = 0; i < n; i++)
            memmove(g->st + i * (nd - 1), g->st + i * nd, (size_t)(nd - 1) * sizeof *g->st);
        nd--;
    }

    /* Merge dimension d into d + 1 where every operand traverses the two as one. */
    int keep[MAX_RANK], n_keep = 0;
    for (int d = 0; d < nd; d++) {
        bool merge = d + 1 < nd;
        for (uint32_t i = 0; i < n && merge; i++)
            merge = g->st[i * nd + d] == g->st[i * nd + d + 1] * g->ext[d + 1];
        if (merge)
            g->ext[d + 1] *= g->ext[d];
        else
            keep[n_keep++] = d;
    }
    if (n_keep < nd) {
        for (uint32_t i = 0; i < n; i++)
            for (int d = 0; d < n_keep; d++)
                g->st[i * n_keep + d] = g->st[i * nd + keep[d]];
        for (int d = 0; d < n_keep; d++)
            g->ext[d] = g->ext[keep[d]];
    }
    g->nd = n_keep;
    g->points = 1;
    for (int d = 0; d < g->nd; d++)
        g->points *= g->ext[d];
    g->q = -1;
    if (!r->reduces && !r->scan && !overrun) {
        choose_tile(r, g);
        if (g->q >= 0) {
            g->n_tiles = g->points / g->ext[g->p] / g->ext[g->q];
            g->n_tiles *= (g->ext[g->p] + g->tp - 1) / g->tp;
            g->n_tiles *= (g->ext[g->q] + g->tq - 1) / g->tq;
        }
    }
    return true;
}

int64_t interp_part(const struct interp_run *r, int64_t n, int64_t unit)
{
    int64_t lo = 0, hi = n;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (r->first_unit[mid] <= unit)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
