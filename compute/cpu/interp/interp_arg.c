/* argmax and argmin: the loops of interp_reduce.c, with a state that remembers the position. Which
 * of several equal elements wins depends on the index alone, so any order of visiting and merging
 * gives the same result.
 *
 * The index is an operand like a store's address (interp_plan.c): its value at a point follows from
 * the point's coordinates, and is computed only for elements that must be remembered. */
#include <string.h>

#include "compute/cpu/interp/interp_eval.h"
#include "compute/cpu/interp/interp_reduce.h"

#define NOWHERE INT64_MAX

struct best {
    int64_t rank, at;
};

static const struct best none = {INT64_MIN, NOWHERE};

static void merge(struct best *into, const struct best *from)
{
    if (from->rank > into->rank || (from->rank == into->rank && from->at < into->at))
        *into = *from;
}

static int64_t index_at(const struct bound *b, int64_t f)
{
    struct block blk;
    interp_locate(b, f, &blk);
    return interp_address(b, b->run->n_operands - 2, blk.c);
}

/* Whether a state sees its elements in the order of their indices. */
static bool in_order(const struct interp_run *r)
{
    for (int i = 1; i < r->n_reduced; i++)
        if (r->order[r->first_reduced + i] < r->order[r->first_reduced + i - 1])
            return false;
    return r->boxes_per_group == 1 || r->n_reduced == 1;
}

void interp_arg_take(const struct interp_run *r, const struct bound *b, void *state,
                     const char *values, int64_t f, int64_t n)
{
    struct best *s = state;
    int64_t rank = r->arg->peak(values, (size_t)n);
    bool ordered = in_order(r);
    if (rank < s->rank || (rank == s->rank && s->at != NOWHERE && ordered))
        return;
    size_t item = dtype_size(r->reduce_dtype);
    int64_t row = b->g.nd ? b->g.ext[b->g.nd - 1] : 1;
    for (int64_t i = 0; i < n;) {
        i += (int64_t)r->arg->find(values + (size_t)i * item, (size_t)(n - i), rank);
        if (i == n)
            break;
        merge(s, &(struct best){rank, index_at(b, f + i)});
        if (ordered)
            break;
        i = ((f + i) / row + 1) * row - f; /* along a row indices increase */
    }
}

void interp_arg_start(void *state)
{
    *(struct best *)state = none;
}

void interp_arg_end(const void *state, void *ret)
{
    memcpy(ret, &((const struct best *)state)->at, sizeof(int64_t));
}

/* Rows [from, to) of a box, for the lanes [l0, l1) of the kept point `outer`. */
static void add_rows(struct interp_run *r, struct bound *b, char *ranks, int64_t *at, int64_t outer,
                     int64_t reduced, int64_t lanes, int64_t l0, int64_t l1, int64_t from,
                     int64_t to)
{
    uint32_t node = b->alias[r->k->outputs[0].node];
    size_t item = dtype_size(r->reduce_dtype), rank_size = item <= 4 ? 4 : 8;
    bool whole = l1 - l0 == lanes; /* rows are adjacent */
    struct block blk;
    for (int64_t row = from; row < to && !interp_over(b);) {
        int64_t f = (outer * reduced + row) * lanes + l0;
        int64_t left = whole ? (to - row) * lanes : l1 - l0;
        for (int64_t done = 0; done < left && !interp_over(b); done += blk.n) {
            interp_locate(b, f + done, &blk);
            blk.n = interp_block_size(b, f + done, left - done);
            interp_eval(b, &blk, false);
            const char *values = b->ptr[node];
            for (int64_t j = 0, n; j < blk.n; j += n) {
                int64_t l = whole ? (done + j) % lanes : done;
                n = l1 - l0 - l < blk.n - j ? l1 - l0 - l : blk.n - j;
                r->arg->lanes(ranks + (size_t)l * rank_size, at + l, values + (size_t)j * item,
                              (size_t)n, index_at(b, f + done + j));
            }
        }
        row += whole ? to - row : 1;
    }
}

void interp_arg_outer(struct interp_run *r, int64_t at, int64_t i, struct interp_scratch *s)
{
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, lanes;
    interp_box(r, r->split ? at : at * r->boxes_per_group, lo, ext);
    interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
    int64_t tiles = (lanes + LANES_TILE - 1) / LANES_TILE;
    char *ranks = s->reduce;
    int64_t *where = (int64_t *)(void *)(ranks + LANES_TILE * sizeof(int64_t));
    if (r->split) {
        int64_t chunks = (reduced + r->unit_size - 1) / r->unit_size, cell = i / chunks;
        int64_t from = i % chunks * r->unit_size, to = from + r->unit_size;
        int64_t l0 = cell % tiles * LANES_TILE;
        int64_t l1 = l0 + LANES_TILE < lanes ? l0 + LANES_TILE : lanes;
        char *partial = r->partials + (r->first_unit[at] + i) * r->partial_size;
        ranks = partial;
        where = (int64_t *)(void *)(partial + r->partial_size / 2);
        struct bound *b = interp_bind(r, at, false, 0, s);
        r->arg->init(ranks, where, (size_t)(l1 - l0));
        add_rows(r, b, ranks, where, cell / tiles, reduced, lanes, l0, l1, from,
                 to < reduced ? to : reduced);
        return;
    }
    for (int64_t cell = i * r->unit_size; cell < (i + 1) * r->unit_size && cell < outer * tiles;
         cell++) {
        int64_t l0 = cell % tiles * LANES_TILE;
        int64_t l1 = l0 + LANES_TILE < lanes ? l0 + LANES_TILE : lanes;
        r->arg->init(ranks, where, (size_t)(l1 - l0));
        for (int64_t p = 0; p < r->boxes_per_group; p++) {
            struct bound *b =
                interp_bind(r, at * r->boxes_per_group + p, false, p % BOUND_SLOTS, s);
            int64_t box_outer, box_lanes;
            interp_reduce_sizes(r, b->box_ext, &box_outer, &reduced, &box_lanes);
            add_rows(r, b, ranks, where, cell / tiles, reduced, lanes, l0, l1, 0, reduced);
        }
        interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, (char *)where, l1 - l0, 0);
    }
}

/* Merges the partial results of one state or tile into the first. NULL: the run is over. */
static char *merge_partials(struct interp_run *r, int64_t group, int64_t cell, size_t lanes)
{
    char *first = NULL;
    int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, n_lanes;
    for (int64_t p = 0; p < r->boxes_per_group; p++) {
        int64_t box = group * r->boxes_per_group + p;
        interp_box(r, box, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &n_lanes);
        int64_t chunks = (reduced + r->unit_size - 1) / r->unit_size;
        for (int64_t c = 0; c < chunks; c++) {
            if (c % ASK_PARTIALS == ASK_PARTIALS - 1 && interp_ask(r))
                return NULL;
            char *cur = r->partials + (r->first_unit[box] + cell * chunks + c) * r->partial_size;
            if (!first)
                first = cur;
            else if (r->mode == MODE_INNER)
                merge((struct best *)(void *)first, (struct best *)(void *)cur);
            else
                r->arg->merge(first, (int64_t *)(void *)(first + r->partial_size / 2), cur,
                              (int64_t *)(void *)(cur + r->partial_size / 2), lanes);
        }
    }
    return first;
}

void interp_arg_finish(struct interp_run *r)
{
    for (int64_t group = 0; group < r->n_groups && r->split; group++) {
        int64_t lo[MAX_RANK], ext[MAX_RANK], outer, reduced, lanes;
        interp_box(r, group * r->boxes_per_group, lo, ext);
        interp_reduce_sizes(r, ext, &outer, &reduced, &lanes);
        if (r->mode == MODE_INNER) {
            for (int64_t kept = 0; kept < outer; kept++) {
                struct best *s = (struct best *)(void *)merge_partials(r, group, kept, 0);
                if (!s)
                    return;
                interp_reduce_write(r, lo, ext, kept, (char *)&s->at, 1, 0);
            }
            continue;
        }
        int64_t tiles = (lanes + LANES_TILE - 1) / LANES_TILE;
        for (int64_t cell = 0; cell < outer * tiles; cell++) {
            int64_t l0 = cell % tiles * LANES_TILE;
            int64_t l1 = l0 + LANES_TILE < lanes ? l0 + LANES_TILE : lanes;
            char *acc = merge_partials(r, group, cell, (size_t)(l1 - l0));
            if (!acc)
                return;
            interp_reduce_write(r, lo, ext, cell / tiles * lanes + l0, acc + r->partial_size / 2,
                                l1 - l0, 0);
        }
    }
}
