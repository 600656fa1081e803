/* Runs the program on one block. A block is a range of points that lies in one row of the fastest
 * dimension (when rows are long: operands contiguous along it are then used in place), spans
 * several short rows, or is a two-dimensional tile. Operands that are not contiguous in it are
 * copied into registers, whole rows at a time. */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_eval.h"
#include "compute/cpu/interp/rows.h"

/* Bytes of a tile's rows from which they are written past the caches: of shorter ones too many
 * lines are written in part. */
#define STREAM_ROW 128
/* Lines fetched ahead at a time: a core has no room for many more. */
#define FETCH_LINES 16

bool interp_ask(const struct interp_run *r)
{
    struct interp_watch *w = r->watch;
    if (w && !atomic_load(&w->is_over) && w->ask(w->user))
        atomic_store(&w->is_over, true);
    return w && atomic_load(&w->is_over);
}

void interp_locate(const struct bound *b, int64_t f, struct block *ret)
{
    ret->nq = 0;
    for (int d = b->g.nd - 1; d > 0; d--) {
        int64_t q = f / b->g.ext[d];
        ret->c[d] = f - q * b->g.ext[d];
        f = q;
    }
    ret->c[0] = f;
}

int64_t interp_block_size(const struct bound *b, int64_t f, int64_t left)
{
    if (b->cut && b->g.nd > 1) {
        int64_t e = b->g.ext[b->g.nd - 1];
        int64_t rest = e - f % e;
        if (rest < left)
            left = rest;
        /* Two equal parts rather than a full block and a small rest. */
        if (left > b->blk && left < 2 * b->blk)
            return (left / 2 + 15) & ~(int64_t)15;
    }
    return left < b->blk ? left : b->blk;
}

int64_t interp_block_over(const struct bound *b, const struct block *blk)
{
    const uint32_t out = b->run->n_operands - b->run->n_stores;
    const int64_t item = b->run->operands[out].itemsize;
    if (blk->n <= 64 || b->class_of[out] != CLASS_DIRECT)
        return 0;
    return ((interp_address(b, out, blk->c) + blk->n * item) & 63) / item;
}

int64_t interp_address(const struct bound *b, uint32_t o, const int64_t *c)
{
    const int64_t *st = b->g.st + (size_t)o * (size_t)b->g.nd;
    int64_t a = b->g.at[o];
    for (int d = 0; d < b->g.nd; d++)
        a += st[d] * c[d];
    return a;
}

/* np × nq elements of an operand into `dst`, packed. */
static void fetch(const struct operand *o, void *dst, int64_t at, int64_t np, int64_t sp,
                  int64_t nq, int64_t sq)
{
    if (o->kind == OPERAND_LOAD) {
        if (nq == 1 && sp == 0) {
            union value v = {0};
            memcpy(&v, (const void *)(intptr_t)at, o->itemsize);
            loop_fill(dst, &v, o->itemsize, (size_t)np);
        } else if (nq == 1 && sp != o->itemsize)
            loop_gather(dst, (const void *)(intptr_t)at, sp, o->itemsize, (size_t)np);
        else
            rows_gather(dst, (const char *)(intptr_t)at, o->itemsize, np, sp, nq, sq);
        return;
    }
    int64_t *out = dst;
    for (int64_t q = 0; q < nq; q++, at += sq, out += np)
        loop_iota(out, at, sp, (size_t)np);
}

static void put(const struct operand *o, int64_t at, int64_t np, int64_t sp, int64_t nq, int64_t sq,
                const void *src)
{
    rows_scatter((char *)(intptr_t)at, o->itemsize, np, sp, nq, sq, src);
}

/* Visits the rows touched by n points from c on: calls fetch or put for whole groups of rows. */
static void walk_rows(const struct bound *b, uint32_t i, const int64_t *from, int64_t n,
                      char *block, bool store)
{
    const struct operand *o = &b->run->operands[i];
    const int64_t *st = b->g.st + (size_t)i * (size_t)b->g.nd;
    const int nd = b->g.nd;
    assert(nd > 0); /* a single point is filled once or written in place */
    int64_t c[MAX_RANK];
    memcpy(c, from, (size_t)nd * sizeof *c);
    const int64_t e = b->g.ext[nd - 1], si = st[nd - 1];
    while (n > 0) {
        int64_t at = interp_address(b, i, c), np, nq = 1, sq = 0;
        if (c[nd - 1] || n < e || nd == 1) {
            np = e - c[nd - 1] < n ? e - c[nd - 1] : n;
        } else {
            np = e;
            nq = n / e;
            if (nq > b->g.ext[nd - 2] - c[nd - 2])
                nq = b->g.ext[nd - 2] - c[nd - 2];
            sq = st[nd - 2];
        }
        if (store)
            put(o, at, np, si, nq, sq, block);
        else
            fetch(o, block, at, np, si, nq, sq);
        n -= np * nq;
        block += np * nq * o->itemsize;
        if (nd == 1)
            break;
        c[nd - 1] = 0;
        c[nd - 2] += nq;
        for (int d = nd - 2; d > 0 && c[d] == b->g.ext[d]; d--) {
            c[d] = 0;
            c[d - 1]++;
        }
    }
}

static void gather(struct bound *b, uint32_t i, const struct block *blk, void *dst)
{
    const struct operand *o = &b->run->operands[i];
    const int64_t *st = b->g.st + (size_t)i * (size_t)b->g.nd;
    if (blk->nq) {
        fetch(o, dst, interp_address(b, i, blk->c), blk->np, st[b->g.p], blk->nq, st[b->g.q]);
        return;
    }
    if (b->class_of[i] == CLASS_ROWFILL) {
        int64_t at = interp_address(b, i, blk->c);
        if (b->filled_n[i] >= blk->n && b->filled[i] == at)
            return;
        b->filled[i] = at;
        b->filled_n[i] = blk->n;
        fetch(o, dst, at, blk->n, 0, 1, 0);
        return;
    }
    walk_rows(b, i, blk->c, blk->n, dst, false);
}

/* The slow way, for kernels with more boundary cases than points: finds every operand of every
 * point by following its contexts. */
static void gather_points(struct bound *b, const struct block *blk)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    int64_t point[MAX_RANK] = {0};
    int64_t *coords = b->g.st + r->n_operands * (size_t)r->n_order;
    bool *inside = (bool *)(coords + r->ctx.coords);
    int64_t c[MAX_RANK];
    memcpy(c, blk->c, (size_t)b->g.nd * sizeof *c);
    for (int64_t j = 0; j < blk->n; j++) {
        int64_t f = 0;
        for (int d = 0; d < b->g.nd; d++)
            f = f * b->g.ext[d] + c[d];
        for (int i = r->n_order - 1; i >= 0; i--) {
            point[r->order[i]] = f % k->shape[r->order[i]];
            f /= k->shape[r->order[i]];
        }
        interp_coords(r, point, coords, inside);
        for (uint32_t i = 0; i < r->n_operands - r->n_stores; i++) {
            const struct operand *o = &r->operands[i];
            if (b->class_of[i] != CLASS_GATHER)
                continue;
            int64_t v = interp_operand_at(r, o, coords, inside);
            char *dst = (char *)b->reg[o->node] + j * o->itemsize;
            if (o->kind == OPERAND_LOAD)
                memcpy(dst, (const void *)(intptr_t)v, o->itemsize);
            else if (o->kind == OPERAND_INDEX)
                memcpy(dst, &v, sizeof v);
            else
                *(uint8_t *)dst = v != 0;
        }
        for (int d = b->g.nd - 1; d >= 0 && ++c[d] == b->g.ext[d] && d > 0; d--)
            c[d] = 0;
    }
}

/* A block's operands are touched in bursts, one operation after the other, which gives the hardware
 * prefetcher little to go by; it also stops at every page. So the next block's operands are
 * prefetched while this one is computed, some lines before each instruction: a core can have some
 * 16 lines in flight and stalls beyond that. Of several loads of one array, as in a stencil, only
 * the foremost is prefetched. */
static void prefetch_part(const struct bound *b, const struct block *blk, uint32_t part)
{
    for (uint32_t j = 0; j < b->n_ahead; j++) {
        uint32_t i = b->ahead[j];
        int64_t bytes = blk->n * b->run->operands[i].itemsize;
        const char *at = (const char *)b->ptr[b->run->operands[i].node] + bytes;
        int64_t step = (bytes / b->n_code + 63) & ~(int64_t)63, from = step * part;
        for (int64_t k = from; k < from + step && k < bytes; k += 64)
            __builtin_prefetch(at + k);
    }
}

/* The same for memory that other work reads after this, which is at it anyway. */
static void fetch_part(struct fetch *f)
{
    for (int lines = 0; lines < FETCH_LINES; lines++, f->at += 64) {
        if (f->at >= f->end) {
            f->more(f);
            if (f->at >= f->end)
                return;
        }
        __builtin_prefetch(f->at, 0, 2);
    }
}

void interp_eval(struct bound *b, const struct block *blk, bool direct)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    b->unasked += blk->n * r->point_cost;
    if (r->pointwise)
        gather_points(b, blk);
    for (uint32_t i = 0; i < b->n_direct; i++) {
        uint32_t o = b->direct[i];
        b->ptr[r->operands[o].node] = (void *)(intptr_t)interp_address(b, o, blk->c);
    }
    for (uint32_t j = 0; j < k->n_outputs; j++) {
        const uint32_t node = b->alias[k->outputs[j].node], i = r->n_operands - k->n_outputs + j;
        if (b->computed[j])
            b->ptr[node] = direct && b->class_of[i] == CLASS_DIRECT
                               ? (void *)(intptr_t)interp_address(b, i, blk->c)
                               : b->reg[node];
    }
    size_t n = (size_t)blk->n;
    const bool ahead = r->large && b->n_code > 1;
    if (b->fetch && b->n_code == 0)
        fetch_part(b->fetch);
    for (const struct instr *in = b->code, *end = in + b->n_code; in < end; in++) {
        if (ahead)
            prefetch_part(b, blk, (uint32_t)(in - b->code));
        if (b->fetch)
            fetch_part(b->fetch);
        if (in->kind == INSTR_LOOP) {
            const void *args[4] = {b->ptr[in->args[0]], b->ptr[in->args[1]], b->ptr[in->args[2]],
                                   b->ptr[in->args[3]]};
            in->fn(b->ptr[in->dst], args, n);
        } else if (in->kind == INSTR_SUM) {
            const void *terms[UINT8_MAX];
            for (uint32_t a = 0; a < in->n_args; a++)
                terms[a] = b->ptr[b->terms[in->operand + a]];
            in->sum(b->ptr[in->dst], terms, b->weights + in->operand, in->n_args, n);
        } else if (in->kind == INSTR_GATHER) {
            gather(b, in->operand, blk, b->ptr[in->dst]);
        } else if (in->kind == INSTR_TAKE && k->nodes[in->dst].kind == IR_TABLE) {
            const struct number_table *t = k->tables[k->nodes[in->dst].table];
            loop_take(b->ptr[in->dst], t->v, t->n, b->ptr[in->args[0]], sizeof *t->v, n);
        } else if (in->kind == INSTR_TAKE) {
            uint32_t input = k->nodes[in->dst].input;
            loop_take(b->ptr[in->dst], r->rows[input], k->inputs[input].view.shape[0],
                      b->ptr[in->args[0]], dtype_size(k->nodes[in->dst].dtype), n);
        } else {
            const struct ir_node *node = &k->nodes[in->dst];
            loop_random(b->ptr[in->dst], node->dtype, k->randoms[node->random], b->ptr[in->args[0]],
                        n);
        }
    }
}

void interp_put(const struct bound *b, const struct block *blk, char *from)
{
    walk_rows(b, b->run->n_operands - 1, blk->c, blk->n, from, true);
}

static void store_tile(const struct bound *b, uint32_t i, const struct block *blk, const char *from)
{
    const struct operand *o = &b->run->operands[i];
    const int64_t *st = b->g.st + (size_t)i * (size_t)b->g.nd;
    const int64_t at = interp_address(b, i, blk->c), sp = st[b->g.p], sq = st[b->g.q];
    const size_t row = (size_t)blk->np * o->itemsize;
    if (!b->run->stream || sp != o->itemsize || row < STREAM_ROW) {
        put(o, at, blk->np, sp, blk->nq, sq, from);
        return;
    }
    for (int64_t q = 0; q < blk->nq; q++)
        rows_stream((char *)(intptr_t)at + q * sq, from + (size_t)q * row, row);
}

static void store(struct bound *b, const struct block *blk)
{
    const struct interp_run *r = b->run;
    for (uint32_t j = 0; j < r->n_stores; j++) {
        uint32_t i = r->n_operands - r->n_stores + j;
        const struct operand *o = &r->operands[i];
        uint32_t node = b->alias[r->k->outputs[j].node];
        char *from = b->ptr[node];
        if (blk->nq)
            store_tile(b, i, blk, from);
        else if (b->class_of[i] != CLASS_DIRECT)
            walk_rows(b, i, blk->c, blk->n, from, true);
        else if (r->stream)
            rows_stream((char *)(intptr_t)interp_address(b, i, blk->c), from,
                        (size_t)blk->n * o->itemsize);
        else if (from != (char *)(intptr_t)interp_address(b, i, blk->c))
            memcpy((void *)(intptr_t)interp_address(b, i, blk->c), from,
                   (size_t)blk->n * o->itemsize);
    }
}

void interp_store_range(struct bound *b, int64_t f, int64_t end)
{
    const bool direct = !b->run->stream, stored = direct && b->stores;
    struct block blk;
    for (const int64_t from = f; f < end && !interp_over(b); f += blk.n) {
        interp_locate(b, f, &blk);
        blk.n = interp_block_size(b, f, end - f);
        if (f == from && blk.n == b->blk && blk.n < end - f)
            blk.n -= interp_block_over(b, &blk);
        interp_eval(b, &blk, direct);
        if (!stored)
            store(b, &blk);
    }
}

static void place_tile(const struct bound *b, int64_t tile, struct block *ret)
{
    const struct geometry *g = &b->g;
    int64_t across = (g->ext[g->p] + g->tp - 1) / g->tp, down = (g->ext[g->q] + g->tq - 1) / g->tq;
    ret->c[g->p] = tile % across * g->tp;
    tile /= across;
    ret->c[g->q] = tile % down * g->tq;
    tile /= down;
    for (int d = g->nd - 1; d >= 0; d--) {
        if (d == g->p || d == g->q)
            continue;
        ret->c[d] = tile % g->ext[d];
        tile /= g->ext[d];
    }
    ret->np = g->ext[g->p] - ret->c[g->p] < g->tp ? g->ext[g->p] - ret->c[g->p] : g->tp;
    ret->nq = g->ext[g->q] - ret->c[g->q] < g->tq ? g->ext[g->q] - ret->c[g->q] : g->tq;
    ret->n = ret->np * ret->nq;
}

void interp_store_tiles(struct bound *b, int64_t from, int64_t to)
{
    struct block blk;
    for (int64_t tile = from; tile < to && !interp_over(b); tile++) {
        place_tile(b, tile, &blk);
        interp_eval(b, &blk, false);
        store(b, &blk);
    }
}
