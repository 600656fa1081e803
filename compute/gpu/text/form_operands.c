/* What the choice of a form depends on: which indices are wide, where operands and results begin,
 * how many of their elements make a chunk, and how each is then read. */
#include "compute/gpu/text/form_operands.h"

#include <stdlib.h>

#define MOST_BYTES 64 /* per operand in a chunk */

static void reach(const int64_t *shape, const int64_t *strides, int rank, int64_t *most)
{
    int64_t lo = 0, hi = 0;
    for (int a = 0; a < rank; a++) {
        int64_t span = strides[a] * (shape[a] - 1);
        *(span < 0 ? &lo : &hi) += span;
    }
    if (-lo > *most)
        *most = -lo;
    if (hi > *most)
        *most = hi;
}

static bool needs_wide(const struct ir_kernel *k)
{
    const int64_t limit = (1ll << 31) - (1ll << 20); /* room for the last step's excess */
    int64_t most = 1;
    for (int a = 0; a < k->rank; a++)
        if (__builtin_mul_overflow(most, k->shape[a], &most))
            return true;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        reach(k->shape, k->outputs[i].view.strides, k->rank, &most);
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (!k->inputs[i].gathered) /* whose indices are 64 bits anyway */
            reach(k->inputs[i].view.shape, k->inputs[i].view.strides, k->inputs[i].view.rank,
                  &most);
    for (uint32_t i = 0; i < k->n_nodes; i++) { /* ghosts lie beyond the view */
        if (k->nodes[i].kind != IR_LOAD || k->nodes[i].ctx == 0)
            continue;
        int64_t lo, hi, offset = k->inputs[k->nodes[i].input].view.offset;
        ir_load_extent(k, i, &lo, &hi);
        if (hi > lo && offset - lo > most)
            most = offset - lo;
        if (hi > lo && hi - offset > most)
            most = hi - offset;
    }
    for (uint32_t c = 1; c < k->n_ctxs; c++)
        for (int a = 0; a < k->ctxs[c].rank; a++) {
            const struct ir_ctx *x = &k->ctxs[c];
            int64_t far = llabs(x->offset[a]);
            bool mirrors = x->mode == BOUNDARY_REFLECT || x->mode == BOUNDARY_SYMMETRIC;
            if (far > limit)
                return true;
            int64_t span = (mirrors ? 2 : 1) * x->shape[a] + far; /* with ar_bounded's period */
            if (span > most)
                most = span;
        }
    return most >= limit;
}

static bool list_loads(struct analysis *z)
{
    struct form *f = z->f;
    f->loads = arena_alloc_array(z->arena, z->k->n_nodes + 1, sizeof *f->loads);
    if (!f->loads)
        return false;
    for (uint32_t i = 0; i < z->k->n_nodes; i++) {
        const struct ir_node *n = &z->k->nodes[i];
        if (n->kind == IR_LOAD)
            f->loads[f->n_loads++] =
                (struct form_load){.node = i, .input = n->input, .ctx = n->ctx};
    }
    return true;
}

bool form_begin(struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    struct form *f = z->f = arena_alloc(z->arena, sizeof *f);
    if (!f)
        return false;
    f->strides = arena_alloc_array(z->arena, k->n_inputs + 1, sizeof *f->strides);
    f->offsets = arena_alloc_array(z->arena, k->n_ctxs + 1, sizeof *f->offsets);
    f->out_strides = arena_alloc_array(z->arena, k->n_outputs, sizeof *f->out_strides);
    f->wide = needs_wide(k);
    f->step = f->members = 1;
    f->threads = FORM_BLOCK;
    return f->strides && f->offsets && f->out_strides && list_loads(z);
}

/* Chunks of E elements along the fastest axis begin at multiples of `bytes`. */
static bool aligned(const struct analysis *z, int64_t offset, const int64_t *strides, size_t size,
                    int elements)
{
    const struct form *f = z->f;
    int64_t bytes = (int64_t)size * elements;
    if (bytes > VECTOR_BYTES)
        bytes = VECTOR_BYTES;
    if (strides[f->rank - 1] != 1 || offset * (int64_t)size % bytes != 0 || z->alignment % bytes)
        return false;
    for (int a = 0; a < f->rank - 1; a++) /* one of 1 element too: it may have ghosts */
        if (strides[a] * (int64_t)size % bytes != 0)
            return false;
    return true;
}

bool form_input_aligned(const struct analysis *z, uint32_t input, int elements)
{
    const struct ir_input *in = &z->k->inputs[input];
    return aligned(z, in->view.offset, z->f->strides[input], dtype_size(in->dtype), elements);
}

bool form_output_aligned(const struct analysis *z, int elements)
{
    for (uint32_t i = 0; i < z->k->n_outputs; i++) {
        const struct ir_output *o = &z->k->outputs[i];
        if (o->kind != OUT_FOLD &&
            !aligned(z, o->view.offset, z->f->out_strides[i], dtype_size(o->dtype), elements))
            return false;
    }
    return true;
}

int form_chunk_elements(const struct analysis *z, bool store)
{
    const struct form *f = z->f;
    const struct ir_kernel *k = z->k;
    int64_t nx = f->shape[f->rank - 1];
    size_t smallest = 16, largest = 1;
    if (f->general)
        return 1;
    for (uint32_t i = 0; i < k->n_outputs && store; i++) {
        size_t size = dtype_size(k->outputs[i].dtype);
        if (f->out_strides[i][f->rank - 1] != 1)
            return 1;
        smallest = size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
    }
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        size_t size = dtype_size(k->inputs[i].dtype);
        if (f->strides[i][f->rank - 1] != 1)
            continue;
        smallest = size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
    }
    int e = VECTOR_BYTES / (int)smallest;
    while (e > 1 && (e * (int)largest > MOST_BYTES || (f->rank > 1 && nx % e) || nx < e ||
                     (store && !form_output_aligned(z, e))))
        e /= 2;
    if (store || e == 1)
        return e;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (f->strides[i][f->rank - 1] == 1 && form_input_aligned(z, i, e))
            return e;
    return 1;
}

void form_classify(struct analysis *z)
{
    struct form *f = z->f;
    for (uint32_t i = 0; i < f->n_loads; i++) {
        struct form_load *l = &f->loads[i];
        bool still = l->ctx == 0 || (!f->general && f->offsets[l->ctx][f->rank - 1] == 0);
        l->kind = LOAD_EACH;
        if (f->general || !still)
            continue;
        if (f->strides[l->input][f->rank - 1] == 0 || f->shape[f->rank - 1] == 1)
            l->kind = LOAD_ONCE;
        else if (form_input_aligned(z, l->input, f->elements))
            l->kind = LOAD_VECTOR;
    }
}

unsigned form_blocks(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}
