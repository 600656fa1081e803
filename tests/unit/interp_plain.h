/* A plain reading of ir.h: a kernel run point by point, without blocks, threads or shortcuts.
 *
 * test_interp.c compares the interpreter with it. Included once, hence all static. */
#ifndef ARRAYD_TESTS_INTERP_PLAIN_H
#define ARRAYD_TESTS_INTERP_PLAIN_H

#include <string.h>

#include "compute/base/mem.h"
#include "compute/cpu/loops/loops.h"
#include "compute/ir/ir_build.h"

#define MAX_SLOTS 16

static uint64_t rng_state;

static uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t between(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng() % (uint64_t)(hi - lo + 1));
}

static bool chance(int percent)
{
    return between(0, 99) < percent;
}

/* ---- the plain reading ---- */

static int64_t fold_axis(enum boundary_mode mode, int64_t v, int64_t n)
{
    while (v < 0 || v >= n) {
        switch (mode) {
        case BOUNDARY_WRAP:
            v = v < 0 ? v + n : v - n;
            break;
        case BOUNDARY_REFLECT:
            v = n == 1 ? 0 : v < 0 ? -v : 2 * n - 2 - v;
            break;
        case BOUNDARY_SYMMETRIC:
            v = v < 0 ? -1 - v : 2 * n - 1 - v;
            break;
        default:
            v = v < 0 ? 0 : n - 1;
        }
    }
    return v;
}

/* Coordinates of `point` in a context; returns whether its own shift stayed inside. */
static bool plain_ctx(const struct ir_kernel *k, uint32_t c, const int64_t *point, int64_t *q)
{
    if (c == 0) {
        memcpy(q, point, (size_t)k->rank * sizeof *q);
        return true;
    }
    const struct ir_ctx *x = &k->ctxs[c];
    int64_t p[MAX_RANK];
    plain_ctx(k, x->parent, point, p);
    bool inside = true;
    for (int i = 0; i < x->rank; i++) {
        q[i] = x->start[i] + (x->src[i] < 0 ? 0 : x->step[i] * p[x->src[i]]);
        assert_true(q[i] >= 0 && q[i] < x->shape[i]);
        inside &= q[i] + x->offset[i] >= 0 && q[i] + x->offset[i] < x->shape[i];
    }
    for (int i = 0; i < x->rank; i++)
        if (x->mode == BOUNDARY_SELF)
            q[i] += inside ? x->offset[i] : 0;
        else
            q[i] = fold_axis(x->mode, q[i] + x->offset[i], x->shape[i]);
    return inside;
}

static void plain_point(const struct ir_kernel *k, char *const *slots, const int64_t *point,
                        union value *v)
{
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        const void *args[3];
        int64_t q[MAX_RANK];
        for (int a = 0; a < n->n_args; a++)
            args[a] = &v[n->args[a]];
        switch (n->kind) {
        case IR_CONST:
            v[i] = k->scalars[n->scalar].v;
            break;
        case IR_LOAD: {
            const struct ir_input *in = &k->inputs[n->input];
            plain_ctx(k, n->ctx, point, q);
            int64_t at = in->view.offset;
            for (int d = 0; d < in->view.rank; d++)
                at += q[d] * in->view.strides[d];
            size_t size = dtype_size(in->dtype);
            memcpy(&v[i], slots[in->slot] + at * (int64_t)size, size);
            break;
        }
        case IR_INDEX:
            plain_ctx(k, n->ctx, point, q);
            v[i].i64 = k->indices[n->index].start +
                       (n->axis < 0 ? 0 : k->indices[n->index].step * q[n->axis]);
            break;
        case IR_INSIDE:
            v[i].b = plain_ctx(k, n->ctx, point, q);
            break;
        case IR_OP:
            loop_op(n->op, n->src)(&v[i], args, 1);
            break;
        case IR_CAST:
            loop_cast(n->src, n->dtype)(&v[i], args, 1);
            break;
        case IR_SELECT:
            loop_select(dtype_size(n->dtype))(&v[i], args, 1);
            break;
        case IR_TABLE: {
            const struct number_table *t = k->tables[n->table];
            int64_t at = v[n->args[0]].i64;
            v[i].i64 = t->v[at < 0 ? 0 : at < t->n ? at : t->n - 1];
            break;
        }
        case IR_RANDOM:
            loop_random(&v[i], n->dtype, k->randoms[n->random], args[0], 1);
            break;
        }
    }
}

static bool next_point(const struct ir_kernel *k, int64_t *point)
{
    for (int a = k->rank - 1; a >= 0; a--) {
        if (++point[a] < k->shape[a])
            return true;
        point[a] = 0;
    }
    return false;
}

static void combine(enum reduce_op op, enum dtype t, union value *acc, const union value *v)
{
    const void *args[2] = {acc, v};
    static const enum op ops[] = {
        [REDUCE_SUM] = OP_ADD,        [REDUCE_MEAN] = OP_ADD,    [REDUCE_PROD] = OP_MULTIPLY,
        [REDUCE_MIN] = OP_MINIMUM,    [REDUCE_MAX] = OP_MAXIMUM, [REDUCE_ANY] = OP_LOGICAL_OR,
        [REDUCE_ALL] = OP_LOGICAL_AND};
    union value out;
    loop_op(ops[op], t)(&out, args, 1);
    memcpy(acc, &out, dtype_size(t));
}

/* Number of the point among the reduced (wanted) or the kept ones, in C order. */
static int64_t number_of(const struct ir_kernel *k, const int64_t *point, bool reduced)
{
    int64_t n = 0;
    for (int a = 0; a < k->rank; a++)
        if ((k->outputs[0].axes >> a & 1) == reduced)
            n = n * k->shape[a] + point[a];
    return n;
}

static void plain_arg(const struct ir_kernel *k, char *const *slots)
{
    const struct ir_output *o = &k->outputs[0];
    enum dtype t = (enum dtype)k->nodes[o->node].dtype;
    int64_t points = 1, point[MAX_RANK] = {0};
    for (int a = 0; a < k->rank; a++)
        points *= k->shape[a];
    union value *v = mem_calloc(k->n_nodes, sizeof *v);
    union value *best = mem_calloc((size_t)points, sizeof *best);
    bool *seen = mem_calloc((size_t)points, 1);
    do {
        plain_point(k, slots, point, v);
        int64_t kept = number_of(k, point, false), at = o->view.offset;
        int64_t index = number_of(k, point, true);
        const void *args[2] = {&v[o->node], &best[kept]};
        bool better = false;
        if (o->reduce == REDUCE_ARGMIN)
            loop_op(OP_LESS, t)(&better, args, 1);
        else
            loop_op(OP_GREATER, t)(&better, args, 1);
        if (!better && seen[kept])
            continue;
        seen[kept] = true;
        best[kept] = v[o->node];
        for (int a = 0; a < k->rank; a++)
            at += o->axes >> a & 1 ? 0 : point[a] * o->view.strides[a];
        memcpy(slots[o->slot] + at * 8, &index, 8);
    } while (next_point(k, point));
    mem_free(v);
    mem_free(best);
    mem_free(seen);
}

/* Runs the kernel point by point. The output may be an input's memory, which must be read first. */
static void plain_run(const struct ir_kernel *k, char *const *slots)
{
    if (k->outputs[0].kind == OUT_REDUCE && reduce_is_arg(k->outputs[0].reduce)) {
        plain_arg(k, slots);
        return;
    }
    int64_t points = 1, point[MAX_RANK] = {0};
    for (int a = 0; a < k->rank; a++)
        points *= k->shape[a];
    union value *v = mem_calloc(k->n_nodes, sizeof *v);
    for (uint32_t j = 0; j < k->n_outputs; j++) {
        const struct ir_output *o = &k->outputs[j];
        size_t size = dtype_size(o->dtype);
        char *base = slots[o->slot] + o->view.offset * (int64_t)size;
        if (o->kind == OUT_REDUCE) {
            /* Start every output from the identity. */
            const struct reduce_loops *rl = loop_reduce(o->reduce, o->dtype);
            _Alignas(16) char state[64];
            union value identity;
            rl->init(state);
            rl->finish(state, &identity, 1);
            struct ir_kernel kept = *k;
            bool empty = false;
            for (int a = 0; a < k->rank; a++) {
                if (o->axes >> a & 1)
                    kept.shape[a] = 1;
                empty |= kept.shape[a] == 0;
            }
            int64_t p[MAX_RANK] = {0};
            if (!empty)
                do {
                    int64_t at = 0;
                    for (int a = 0; a < k->rank; a++)
                        at += p[a] * o->view.strides[a];
                    memcpy(base + at * (int64_t)size, &identity, size);
                } while (next_point(&kept, p));
        }
        if (points == 0)
            continue;
        do {
            plain_point(k, slots, point, v);
            int64_t at = 0;
            for (int a = 0; a < k->rank; a++)
                at += o->kind == OUT_REDUCE && o->axes >> a & 1 ? 0 : point[a] * o->view.strides[a];
            union value *to = (union value *)(void *)(base + at * (int64_t)size), x;
            if (o->kind == OUT_REDUCE) {
                memcpy(&x, to, size);
                combine(o->reduce, o->dtype, &x, &v[o->node]);
                memcpy(to, &x, size);
            } else {
                memcpy(to, &v[o->node], size);
                int axis = o->kind == OUT_SCAN ? __builtin_ctz(o->axes) : 0;
                if (o->kind == OUT_SCAN && point[axis] > 0) {
                    memcpy(&x, (char *)to - o->view.strides[axis] * (int64_t)size, size);
                    combine(o->reduce, o->dtype, &x, &v[o->node]);
                    memcpy(to, &x, size);
                }
            }
        } while (next_point(k, point));
    }
    mem_free(v);
}

#endif
