/* Decides which kernels of a list become one; ir_merge.c does the merging.
 *
 * Two kernels conflict if one writes a slot that the other reads or writes: they keep their order;
 * all others may be reordered. So kernel A and a later kernel B can be adjacent unless some kernel
 * between them must come after A and before B. Then they become one kernel if that saves something:
 * B need not read what A made, or makes a part of the same array, or both read the same arrays. An
 * output of A is still stored if another kernel reads it before it is overwritten, or if it is
 * needed after the last kernel.
 *
 * If an array is read by several kernels that cannot be merged (of different shapes, a reduction),
 * computing it again in each of them may be cheaper: that is tried when no pair is left.
 *
 * Each kernel looks back for one to join, the nearest first, and the merged kernel looks back
 * again; every merge removes a kernel, so it ends. Two that were not merged are not tried again:
 * numbers count up, and a kernel records the largest it has tried. WINDOW and MOST_FAILURES bound
 * the work for long lists. Kernels are made in arenas of their own, freed with them; the final ones
 * are copied. */
#include "compute/ir/ir_fuse.h"

#include <string.h>

#include "compute/ir/ir_merge.h"

#define WINDOW        32
#define MOST_FAILURES 8 /* failed attempts per look back */
/* For arrays up to this size, a kernel's cost is mostly its launch. */
#define SMALL_BYTES (INT64_C(1) << 20)
/* Merging two readers of the same arrays must save at least 1/WORTHWHILE of the traffic. */
#define WORTHWHILE 16

struct part {
    struct ir_kernel *k;
    struct arena *own;     /* its memory; NULL: it belongs to the request */
    uint32_t number, seen; /* it has tried all earlier kernels with numbers below `seen` */
};

struct fusing {
    const struct ir_fuse_request *req;
    struct part *list;
    uint32_t n, next;  /* next: number */
    uint32_t *touched; /* by slot: how often the kernels of the list load and store there */
};

/* --- dependencies between kernels --- */

static bool reads(const struct ir_kernel *k, uint32_t slot)
{
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (k->inputs[i].slot == slot)
            return true;
    return false;
}

static bool writes(const struct ir_kernel *k, uint32_t slot)
{
    for (uint32_t i = 0; i < k->n_outputs; i++)
        if (k->outputs[i].slot == slot)
            return true;
    return false;
}

/* Whether b reads what a writes. */
static bool feeds(const struct ir_kernel *a, const struct ir_kernel *b)
{
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (reads(b, a->outputs[i].slot))
            return true;
    return false;
}

static bool conflict(const struct ir_kernel *a, const struct ir_kernel *b)
{
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (writes(b, a->outputs[i].slot))
            return true;
    return feeds(a, b) || feeds(b, a);
}

static bool same_space(const struct ir_kernel *a, const struct ir_kernel *b)
{
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank));
}

static bool shares_input(const struct ir_kernel *a, const struct ir_kernel *b)
{
    for (uint32_t i = 0; i < a->n_inputs; i++)
        if (reads(b, a->inputs[i].slot))
            return true;
    return false;
}

static void extent(const struct ir_output *o, int64_t *lo, int64_t *hi)
{
    const int64_t size = (int64_t)dtype_size(o->dtype);
    view_extent(&o->view, lo, hi);
    *lo *= size;
    *hi *= size;
}

/* How often the kernel loads and stores in a slot. */
static uint32_t touches(const struct ir_kernel *k, uint32_t slot)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        n += k->inputs[i].slot == slot;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        n += k->outputs[i].slot == slot;
    return n;
}

/* Whether the kernel writes all bytes from the first to the last of `o`. */
static bool covers(const struct ir_kernel *k, const struct ir_output *o)
{
    int64_t lo, hi, from, to;
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *by = &k->outputs[i];
        if (by->slot != o->slot || view_self_overlaps(&by->view))
            continue;
        extent(o, &from, &to);
        extent(by, &lo, &hi);
        if (lo <= from && to <= hi &&
            hi - lo == view_size(&by->view) * (int64_t)dtype_size(by->dtype))
            return true;
        if (by->dtype == o->dtype && !memcmp(&by->view, &o->view, sizeof o->view))
            return true; /* the same region */
    }
    return false;
}

/* Whether any kernel except `but`, or the caller afterwards, needs an output of kernel i. */
static bool is_needed(const struct fusing *z, uint32_t i, const struct ir_output *o, uint32_t but)
{
    uint32_t left = z->touched[o->slot] - touches(z->list[i].k, o->slot); /* not looked at yet */
    if (but < z->n && left == touches(z->list[but].k, o->slot)) {
        if (covers(z->list[but].k, o))
            return false;
        left = 0;
    }
    for (uint32_t j = i + 1; j < z->n && left; j++) {
        const struct ir_kernel *k = z->list[j].k;
        if (j != but && reads(k, o->slot))
            return true;
        if (covers(k, o))
            return false;
        left -= touches(k, o->slot);
    }
    return !z->req->dead[o->slot];
}

static int64_t traffic(const struct ir_kernel *k)
{
    return ir_bytes_read(k) + ir_bytes_written(k);
}

/* --- the list --- */

/* Counts what the kernel touches in (1) or out (−1). */
static void touch(struct fusing *z, const struct ir_kernel *k, int by)
{
    for (uint32_t i = 0; i < k->n_inputs; i++)
        z->touched[k->inputs[i].slot] += (uint32_t)by;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        z->touched[k->outputs[i].slot] += (uint32_t)by;
}

static void take_out(struct fusing *z, uint32_t i)
{
    touch(z, z->list[i].k, -1);
    arena_free(z->list[i].own);
    memmove(z->list + i, z->list + i + 1, sizeof *z->list * (z->n - i - 1));
    z->n--;
}

static void put_in(struct fusing *z, uint32_t i, struct ir_kernel *k, struct arena *take_own)
{
    touch(z, z->list[i].k, -1);
    touch(z, k, 1);
    arena_free(z->list[i].own);
    z->list[i] = (struct part){.k = k, .own = take_own, .number = z->next++};
}

/* --- one kernel of two --- */

/* Which of the kernels between i and j must come after i; false where one of them must also come
 * before j. */
static bool find_later(const struct fusing *z, uint32_t i, uint32_t j, bool *later)
{
    for (uint32_t g = i + 1; g < j; g++) {
        bool is = conflict(z->list[i].k, z->list[g].k);
        for (uint32_t h = i + 1; h < g && !is; h++)
            is = later[h - i] && conflict(z->list[h].k, z->list[g].k);
        later[g - i] = is;
        if (is && conflict(z->list[g].k, z->list[j].k))
            return false;
    }
    return true;
}

/* Replaces i and j by `k`, before the kernels in `later`; returns its position. */
static uint32_t put_for_both(struct fusing *z, uint32_t i, uint32_t j, const bool *later,
                             struct ir_kernel *k, struct arena *take_own)
{
    struct part behind[WINDOW], first = z->list[i];
    uint32_t n_behind = 0, at = i;
    for (uint32_t g = i + 1; g < j; g++)
        if (later[g - i])
            behind[n_behind++] = z->list[g];
        else
            z->list[at++] = z->list[g];
    const uint32_t place = at;
    z->list[at++] = first;
    for (uint32_t g = 0; g < n_behind; g++)
        z->list[at++] = behind[g];
    put_in(z, place, k, take_own);
    take_out(z, j);
    return place;
}

/* Merges i and the later j into one kernel, in `arena`, if that is worth it. */
static enum ir_merge_result make_one(const struct fusing *z, uint32_t i, uint32_t j,
                                     struct arena *arena, struct ir_kernel **ret)
{
    const struct ir_kernel *a = z->list[i].k, *b = z->list[j].k;
    bool kept = false, over = false;
    bool *keep = arena_alloc_array(arena, a->n_outputs, sizeof *keep);
    if (!keep)
        return IR_NO_MEMORY;
    for (uint32_t o = 0; o < a->n_outputs; o++) {
        keep[o] = is_needed(z, i, &a->outputs[o], j);
        kept |= keep[o];
        over |= keep[o] && writes(b, a->outputs[o].slot);
    }
    const struct ir_overlay_request req = {
        .merge = {.first = a, .second = b, .keep = keep, .limits = &z->req->limits},
        .known = z->req->kernels,
        .n_known = z->req->n_kernels,
        .bytes = z->req->bytes};
    if (over)
        return ir_overlay(arena, &req, ret);
    if (kept && !same_space(a, b))
        return IR_APART;
    enum ir_merge_result result = ir_merge(arena, &req.merge, ret);
    if (result != IR_MERGED || feeds(a, b))
        return result;
    const int64_t apart = traffic(a) + traffic(b), saved = apart - traffic(*ret);
    return saved >= apart / WORTHWHILE || (saved > 0 && apart <= SMALL_BYTES) ? IR_MERGED
                                                                              : IR_APART;
}

/* Whether merging i and the later j might be worthwhile. */
static bool may_join(const struct fusing *z, uint32_t i, uint32_t j)
{
    const struct ir_kernel *a = z->list[i].k, *b = z->list[j].k;
    if (z->list[i].number < z->list[j].seen || a->fast_math != b->fast_math || !ir_merge_first(a) ||
        !ir_merge_second(b))
        return false;
    for (uint32_t o = 0; o < a->n_outputs; o++)
        if (writes(b, a->outputs[o].slot) || reads(b, a->outputs[o].slot))
            return true;
    return same_space(a, b) && b->outputs[0].kind == OUT_STORE && shares_input(a, b);
}

/* Merges j into an earlier kernel; *ret_place: the merged kernel's position, or j if none was
 * found. False without memory. */
static bool look_back(struct fusing *z, uint32_t j, uint32_t *ret_place)
{
    int failures_left = MOST_FAILURES;
    *ret_place = j;
    for (uint32_t i = j; i-- > 0 && j - i <= WINDOW && failures_left > 0;) {
        bool later[WINDOW] = {0};
        if (!may_join(z, i, j) || !find_later(z, i, j, later))
            continue;
        struct ir_kernel *k;
        struct arena *own = arena_new(0);
        enum ir_merge_result result = own ? make_one(z, i, j, own, &k) : IR_NO_MEMORY;
        if (result == IR_MERGED) {
            *ret_place = put_for_both(z, i, j, later, k, own);
            return true;
        }
        arena_free(own);
        if (result == IR_NO_MEMORY)
            return false;
        failures_left--;
    }
    z->list[j].seen = z->next;
    return true;
}

static bool join_all(struct fusing *z)
{
    for (uint32_t i = 0; i < z->n; i++)
        z->list[i].seen = 0;
    for (uint32_t j = 1, place; j < z->n; j = place == j ? j + 1 : place ? place : 1)
        if (!look_back(z, j, &place))
            return false;
    return true;
}

/* --- recomputation in each reader --- */

/* Whether everything that kernel i reads is unchanged when kernel `reader` runs. */
static bool unchanged(const struct fusing *z, uint32_t i, uint32_t reader)
{
    for (uint32_t g = i + 1; g < reader; g++)
        if (feeds(z->list[g].k, z->list[i].k))
            return false;
    return true;
}

/* Lists the readers of kernel i's output and returns their number; 0 if the output is also needed
 * otherwise, or a reader cannot compute it itself. */
static uint32_t find_readers(const struct fusing *z, uint32_t i, uint32_t *readers)
{
    const struct ir_output *o = &z->list[i].k->outputs[0];
    uint32_t n = 0, left = z->touched[o->slot] - touches(z->list[i].k, o->slot);
    for (uint32_t g = i + 1; g < z->n && left; g++) {
        const struct ir_kernel *k = z->list[g].k;
        left -= touches(k, o->slot);
        if (reads(k, o->slot)) {
            if (n == WINDOW || !ir_merge_second(k) || k->fast_math != z->list[i].k->fast_math ||
                !unchanged(z, i, g))
                return 0;
            readers[n++] = g;
        }
        if (covers(k, o))
            return n;
        if (writes(k, o->slot))
            return 0;
    }
    return z->req->dead[o->slot] ? n : 0;
}

/* Builds reader number r of kernel i so that it computes kernel i's output itself, in an arena of
 * its own. */
static enum ir_merge_result make_own(const struct fusing *z, uint32_t i, uint32_t reader,
                                     uint32_t n_readers, struct part *ret)
{
    const bool keep = false;
    const struct ir_merge_request req = {.first = z->list[i].k,
                                         .second = z->list[reader].k,
                                         .keep = &keep,
                                         .others = n_readers - 1,
                                         .limits = &z->req->limits};
    ret->own = arena_new(0);
    return ret->own ? ir_merge(ret->own, &req, &ret->k) : IR_NO_MEMORY;
}

/* Makes every reader of kernel i compute its output itself; *ret: done, and the kernel is removed.
 * False without memory. */
static bool dissolve(struct fusing *z, uint32_t i, bool *ret)
{
    uint32_t readers[WINDOW], n = 0, made = 0;
    struct part parts[WINDOW] = {0};
    const struct ir_kernel *a = z->list[i].k;
    *ret = false;
    if (ir_merge_first(a) && a->n_outputs == 1)
        n = find_readers(z, i, readers);
    enum ir_merge_result result = n ? IR_MERGED : IR_APART;
    int64_t before = traffic(a), after = 0;
    for (; made < n && result == IR_MERGED; made++) {
        result = make_own(z, i, readers[made], n, &parts[made]);
        before += traffic(z->list[readers[made]].k);
        after += result == IR_MERGED ? traffic(parts[made].k) : 0;
    }
    *ret = result == IR_MERGED && after < before;
    for (uint32_t r = 0; r < made; r++)
        if (*ret)
            put_in(z, readers[r], parts[r].k, parts[r].own);
        else
            arena_free(parts[r].own);
    if (*ret)
        take_out(z, i);
    return result != IR_NO_MEMORY;
}

static bool dissolve_all(struct fusing *z, bool *ret_any)
{
    *ret_any = false;
    for (uint32_t i = z->n; i-- > 0;) {
        bool done;
        if (!dissolve(z, i, &done))
            return false;
        *ret_any |= done;
    }
    return true;
}

/* --- */

/* Removes kernels whose outputs nothing uses. */
static void drop_useless(struct fusing *z)
{
    for (uint32_t i = z->n; i-- > 0;) {
        bool needed = false;
        for (uint32_t o = 0; o < z->list[i].k->n_outputs; o++)
            needed |= is_needed(z, i, &z->list[i].k->outputs[o], UINT32_MAX);
        if (!needed)
            take_out(z, i);
    }
}

/* A copy of a kernel in the arena, independent of the original's memory. */
static struct ir_kernel *copied(struct arena *arena, const struct ir_kernel *from)
{
    struct ir_kernel *k = arena_dup(arena, from, sizeof *k);
    if (!k)
        return NULL;
#define COPY(array)                                                                                \
    k->cap_##array = k->n_##array;                                                                 \
    if (k->n_##array)                                                                              \
        k->array = arena_dup(arena, from->array, sizeof *from->array * from->n_##array);           \
    if (!k->array && k->n_##array)                                                                 \
    return NULL
    COPY(nodes);
    COPY(ctxs);
    COPY(inputs);
    COPY(scalars);
    COPY(indices);
    COPY(randoms);
    COPY(tables);
    COPY(outputs);
#undef COPY
    return k;
}

static bool fuse(struct fusing *z)
{
    drop_useless(z);
    for (bool more = true; more;)
        if (!join_all(z) || !dissolve_all(z, &more))
            return false;
    return true;
}

enum err_code ir_fuse(struct arena *arena, const struct ir_fuse_request *req,
                      struct ir_kernel ***ret, uint32_t *ret_n, struct err *e)
{
    const uint32_t n = req->n_kernels;
    struct fusing z = {.req = req, .n = n, .next = n};
    struct ir_kernel **list = arena_alloc_array(arena, (size_t)n + 1, sizeof(struct ir_kernel *));
    z.list = arena_alloc_array(arena, (size_t)n + 1, sizeof *z.list);
    z.touched = arena_alloc_array(arena, (size_t)req->n_slots + 1, sizeof *z.touched);
    if (!list || !z.list || !z.touched)
        return err_oom(e);
    for (uint32_t i = 0; i < n; i++) {
        z.list[i] = (struct part){.k = req->kernels[i], .number = i};
        touch(&z, req->kernels[i], 1);
    }
    bool fused = fuse(&z);
    for (uint32_t i = 0; i < z.n; i++) {
        if (fused)
            list[i] = z.list[i].own ? copied(arena, z.list[i].k) : z.list[i].k;
        fused &= list[i] != NULL;
        arena_free(z.list[i].own);
    }
    if (!fused)
        return err_oom(e);
    *ret = list;
    *ret_n = z.n;
    return ERR_OK;
}
