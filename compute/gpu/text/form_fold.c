/* The form fold (kernels/forms/fold.cuh): a row's operands stay in the registers of the threads
 * that share it. How many share it, and which chunks each of them takes, is as in the form reduce,
 * so that a fold combines elements in the order of the reduction that it stands for. */
#include "compute/gpu/text/form_kinds.h"

#define BLOCK      128 /* threads; more if a row takes more lanes */
#define MOST_BYTES 256 /* of operands per thread while the row is folded */
#define MOST_ELEMENTS                                                                              \
    64 /* per thread; half in blocks of 512, which have 128 registers a thread                     \
        */
#define FULL_BLOCK 512

/* Marks what the folds are made of. */
static bool *folded(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    bool *want = arena_alloc_array(z->arena, k->n_nodes, sizeof *want);
    for (uint32_t i = k->n_nodes; want && i-- > 0;)
        for (int a = 0; a < k->nodes[i].n_args; a++)
            want[k->nodes[i].args[a]] |= want[i] || k->nodes[i].kind == IR_FOLD;
    return want;
}

/* Bytes that a thread keeps of a chunk; -1 without memory. */
static int kept_bytes(struct analysis *z)
{
    struct form *f = z->f;
    const bool *want = folded(z);
    int bytes = 0;
    for (uint32_t i = 0; want && i < f->n_loads; i++) {
        struct form_load *l = &f->loads[i];
        l->early = want[l->node];
        if (l->early && l->kind != LOAD_ONCE)
            bytes += f->elements * (int)dtype_size(z->k->inputs[l->input].dtype);
    }
    return want ? bytes : -1;
}

const char *form_make_fold(struct analysis *z)
{
    struct form *f = z->f;
    const int x = f->rank - 1;
    const uint32_t inner = f->reduced_axes & -f->reduced_axes; /* the outermost of the row */
    f->kind = FORM_FOLD;
    f->inner = f->reduced_axes >> x & 1;
    if (f->general || !f->inner || f->reduced_axes + inner != 2u << x)
        return "a row is not the fastest axes";
    if (f->shape[x] % f->elements)
        return "a row's vectors are cut by its layout";
    form_classify(z);
    f->kept = f->reduced = 1;
    for (int a = 0; a <= x; a++)
        *(f->reduced_axes >> a & 1 ? &f->reduced : &f->kept) *= f->shape[a];
    f->reduced /= f->elements;
    f->lanes = form_row_lanes(f->reduced);
    const int64_t chunks = (f->reduced + f->lanes - 1) / f->lanes;
    const int bytes = kept_bytes(z);
    if (bytes < 0)
        return "";
    if (chunks * f->elements > (f->lanes < FULL_BLOCK ? MOST_ELEMENTS : MOST_ELEMENTS / 2) ||
        chunks * bytes > MOST_BYTES)
        return FORM_ROW_TOO_LONG;
    f->lane_chunks = (int)chunks;
    f->unroll = 1;
    f->threads = f->lanes < BLOCK ? BLOCK : f->lanes;
    const int64_t blocks = (f->kept + f->threads / f->lanes - 1) / (f->threads / f->lanes);
    if (blocks > INT32_MAX)
        return "there are too many rows";
    f->out_vector = f->elements > 1 && form_output_aligned(z, f->elements);
    f->grid[0] = (unsigned)blocks;
    f->grid[1] = f->grid[2] = 1;
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
    return NULL;
}
