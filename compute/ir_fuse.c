/* Which kernels of a list become one; ir_merge.c makes it.
 *
 * Two kernels conflict where one writes a slot that the other reads or writes: they stay in their
 * order, all else may change places. So kernel A and a later one B can stand side by side unless
 * something in between must come after A and before B. Then they are one kernel if that saves
 * something: B need not read what A made, or both read the same arrays. What of A is stored still
 * is what somebody else reads before it is written again, or who looks at the slots afterwards.
 *
 * Where something is read by several that cannot be one kernel (of different shapes, a reduction),
 * it may be cheaper made in each of them: that is tried when no pair is left.
 *
 * The list is gone through once with each kernel looking back for one to join, the nearest first;
 * every step takes a kernel away, so it ends. WINDOW bounds the work for long lists. */
#include "compute/ir_fuse.h"

#include <string.h>

#include "compute/ir_merge.h"

#define WINDOW 32
/* A kernel for arrays of so few bytes is all launch. */
#define SMALL_BYTES (INT64_C(1) << 20)
/* Side by side, this part of the traffic at least has to be saved. */
#define WORTHWHILE 16

struct fusing {
    struct arena *arena;
    const struct ir_fuse_request *req;
    struct ir_kernel **list;
    uint32_t n;
};

/* --- what kernels have to do with each other --- */

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

/* b reads what a writes. */
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

/* The kernel writes all that lies between the first and the last byte of `o`. */
static bool covers(const struct ir_kernel *k, const struct ir_output *o)
{
    int64_t lo, hi, from, to;
    extent(o, &from, &to);
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *by = &k->outputs[i];
        if (by->slot != o->slot || view_self_overlaps(&by->view))
            continue;
        extent(by, &lo, &hi);
        if (lo <= from && to <= hi &&
            hi - lo == view_size(&by->view) * (int64_t)dtype_size(by->dtype))
            return true;
        if (by->dtype == o->dtype && !memcmp(&by->view, &o->view, sizeof o->view))
            return true; /* the same region */
    }
    return false;
}

/* Whether an output of kernel i is of use to any but kernel `but`. */
static bool is_needed(const struct fusing *z, uint32_t i, const struct ir_output *o, uint32_t but)
{
    for (uint32_t j = i + 1; j < z->n; j++) {
        if (j != but && reads(z->list[j], o->slot))
            return true;
        if (covers(z->list[j], o))
            return false;
    }
    return o->slot >= z->req->n_slots || !z->req->dead[o->slot];
}

static int64_t traffic(const struct ir_kernel *k)
{
    return ir_bytes_read(k) + ir_bytes_written(k);
}

/* --- one kernel of two --- */

/* Which of the kernels between i and j must come after i; false where one of them must also come
 * before j. */
static bool find_later(const struct fusing *z, uint32_t i, uint32_t j, bool *later)
{
    for (uint32_t g = i + 1; g < j; g++) {
        bool is = conflict(z->list[i], z->list[g]);
        for (uint32_t h = i + 1; h < g && !is; h++)
            is = later[h - i] && conflict(z->list[h], z->list[g]);
        later[g - i] = is;
        if (is && conflict(z->list[g], z->list[j]))
            return false;
    }
    return true;
}

/* `k` in the place of i and j; its new number. */
static uint32_t replace(struct fusing *z, uint32_t i, uint32_t j, const bool *later,
                        struct ir_kernel *k)
{
    struct ir_kernel *behind[WINDOW];
    uint32_t n_behind = 0, at = i;
    for (uint32_t g = i + 1; g < j; g++)
        if (later[g - i])
            behind[n_behind++] = z->list[g];
        else
            z->list[at++] = z->list[g];
    const uint32_t place = at;
    z->list[at++] = k;
    for (uint32_t g = 0; g < n_behind; g++)
        z->list[at++] = behind[g];
    memmove(z->list + at, z->list + j + 1, sizeof *z->list * (z->n - j - 1));
    z->n--;
    return place;
}

/* Makes one kernel of i and the later j if that can be and is worth it. *ret_place: its number, or
 * UINT32_MAX. False without memory. */
static bool join(struct fusing *z, uint32_t i, uint32_t j, uint32_t *ret_place)
{
    const struct ir_kernel *a = z->list[i], *b = z->list[j];
    const bool fed = feeds(a, b);
    bool later[WINDOW + 1] = {0}, kept = false;
    *ret_place = UINT32_MAX;
    if (!ir_merge_first(a) || !ir_merge_second(b) || a->fast_math != b->fast_math ||
        (!fed && (!same_space(a, b) || b->outputs[0].kind != OUT_STORE || !shares_input(a, b))) ||
        !find_later(z, i, j, later))
        return true;
    bool *keep = arena_alloc_array(z->arena, a->n_outputs, sizeof *keep);
    if (!keep)
        return false;
    for (uint32_t o = 0; o < a->n_outputs; o++) {
        keep[o] = is_needed(z, i, &a->outputs[o], j);
        kept |= keep[o];
    }
    if (kept && !same_space(a, b))
        return true;
    const struct ir_merge_request req = {
        .first = a, .second = b, .keep = keep, .limits = &z->req->limits};
    struct ir_kernel *k;
    enum ir_merge_result result = ir_merge(z->arena, &req, &k);
    if (result == IR_NO_MEMORY)
        return false;
    if (result == IR_APART)
        return true;
    const int64_t apart = traffic(a) + traffic(b), saved = apart - traffic(k);
    if (!fed && saved < apart / WORTHWHILE && (saved <= 0 || apart > SMALL_BYTES))
        return true;
    *ret_place = replace(z, i, j, later, k);
    return true;
}

static bool join_all(struct fusing *z)
{
    for (uint32_t j = 1; j < z->n; j++) {
        uint32_t place = UINT32_MAX;
        for (uint32_t i = j; i-- > 0 && j - i <= WINDOW && place == UINT32_MAX;)
            if (!join(z, i, j, &place))
                return false;
        if (place != UINT32_MAX)
            j = place ? place - 1 : 0; /* it looks back, too */
    }
    return true;
}

/* --- made in each kernel that reads it --- */

/* Whether what kernel i reads is the same still when kernel `reader` runs. */
static bool unchanged(const struct fusing *z, uint32_t i, uint32_t reader)
{
    for (uint32_t g = i + 1; g < reader; g++)
        if (feeds(z->list[g], z->list[i]))
            return false;
    return true;
}

/* Who reads what kernel i makes; 0 where that is not all it is for. */
static uint32_t find_readers(const struct fusing *z, uint32_t i, uint32_t *readers)
{
    const struct ir_output *o = &z->list[i]->outputs[0];
    uint32_t n = 0;
    for (uint32_t g = i + 1; g < z->n; g++) {
        const struct ir_kernel *k = z->list[g];
        if (reads(k, o->slot)) {
            if (n == WINDOW || !ir_merge_second(k) || k->fast_math != z->list[i]->fast_math ||
                !unchanged(z, i, g))
                return 0;
            readers[n++] = g;
        }
        if (covers(k, o))
            return n;
        if (writes(k, o->slot))
            return 0;
    }
    return o->slot < z->req->n_slots && z->req->dead[o->slot] ? n : 0;
}

/* Has every reader of kernel i make itself what it reads; *ret: done, and the kernel is gone. */
static bool dissolve(struct fusing *z, uint32_t i, bool *ret)
{
    uint32_t readers[WINDOW];
    struct ir_kernel *made[WINDOW];
    struct ir_kernel *a = z->list[i];
    *ret = false;
    if (!ir_merge_first(a) || a->n_outputs > 1)
        return true;
    const uint32_t n = find_readers(z, i, readers);
    int64_t before = traffic(a), after = 0;
    for (uint32_t r = 0; r < n; r++) {
        const struct ir_merge_request req = {.first = a,
                                             .second = z->list[readers[r]],
                                             .keep = ret,
                                             .others = n - 1,
                                             .limits = &z->req->limits};
        enum ir_merge_result result = ir_merge(z->arena, &req, &made[r]);
        if (result != IR_MERGED)
            return result == IR_APART;
        before += traffic(z->list[readers[r]]);
        after += traffic(made[r]);
    }
    if (n == 0 || after >= before)
        return true;
    for (uint32_t r = 0; r < n; r++)
        z->list[readers[r]] = made[r];
    memmove(z->list + i, z->list + i + 1, sizeof *z->list * (z->n - i - 1));
    z->n--;
    *ret = true;
    return true;
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

/* Takes away what makes nothing of use. */
static void drop_useless(struct fusing *z)
{
    for (uint32_t i = z->n; i-- > 0;) {
        bool needed = false;
        for (uint32_t o = 0; o < z->list[i]->n_outputs; o++)
            needed |= is_needed(z, i, &z->list[i]->outputs[o], UINT32_MAX);
        if (needed)
            continue;
        memmove(z->list + i, z->list + i + 1, sizeof *z->list * (z->n - i - 1));
        z->n--;
    }
}

enum err_code ir_fuse(struct arena *arena, const struct ir_fuse_request *req,
                      struct ir_kernel ***ret, uint32_t *ret_n, struct err *e)
{
    struct fusing z = {.arena = arena, .req = req, .n = req->n_kernels};
    z.list = arena_alloc_array(arena, (size_t)z.n + 1, sizeof *z.list);
    if (!z.list)
        return err_oom(e);
    if (z.n)
        memcpy(z.list, req->kernels, sizeof *z.list * z.n);
    drop_useless(&z);
    for (bool more = true; more;)
        if (!join_all(&z) || !dissolve_all(&z, &more))
            return err_oom(e);
    *ret = z.list;
    *ret_n = z.n;
    return ERR_OK;
}
