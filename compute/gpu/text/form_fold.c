/* The form fold (kernels/forms/fold.cuh): a row's operands stay in the registers of the threads
 * that share it, and what is too much for them in shared memory. How many share it, and which
 * chunks each of them takes, is as in the form reduce, so that a fold combines elements in the
 * order of the reduction that it stands for. */
#include "compute/gpu/text/form_kinds.h"
#include "compute/type/reduce.h"

#define BLOCK      128  /* threads; more if a row takes more lanes */
#define RESIDENT   1024 /* threads per multiprocessor if 64 registers do, else half as many */
#define FULL_BLOCK 512
#define ROOM       8192  /* bytes of shared memory that states are left, at least */
#define RESERVED   1024  /* that the system takes of a multiprocessor's for each block */
#define DECLARED   49152 /* that a text may declare */

/* What a thread keeps in registers while a row is folded, at most: operands, and with states. */
#define ELEMENTS 64
static const struct limits {
    int bytes, words;
} half_the_threads = {256, 160}, all_the_threads = {128, 96},
  all_and_more = {128, 80}; /* with a loop over what is in shared memory */

/* How many folds need nothing of each other and so are taken in together, at most; 0 without
 * memory. */
static int folds_together(const struct analysis *z)
{
    const struct ir_kernel *k = z->k;
    int *level = arena_alloc_array(z->arena, k->n_nodes, sizeof *level), most = 0;
    int *folds = arena_alloc_array(z->arena, k->n_folds + 1, sizeof *folds); /* by level */
    for (uint32_t i = 0; level && folds && i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        for (int a = 0; a < n->n_args; a++)
            level[i] = level[n->args[a]] > level[i] ? level[n->args[a]] : level[i];
        if (n->kind != IR_FOLD)
            continue;
        level[i]++;
        folds[level[i]]++;
        most = folds[level[i]] > most ? folds[level[i]] : most;
    }
    return most;
}

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

/* Bytes that a thread keeps of a chunk; -1 without memory. The compiler keeps bfloat16 as the
 * float32 that it makes of them. */
static int kept_bytes(struct analysis *z)
{
    struct form *f = z->f;
    const bool *want = folded(z);
    int bytes = 0;
    for (uint32_t i = 0; want && i < f->n_loads; i++) {
        struct form_load *l = &f->loads[i];
        l->early = want[l->node];
        if (l->early && l->kind != LOAD_ONCE)
            bytes += f->elements * (z->k->inputs[l->input].dtype == DT_BF16
                                        ? 4
                                        : (int)dtype_size(z->k->inputs[l->input].dtype));
    }
    return want ? bytes : -1;
}

/* Whether so many chunks are within the limits: more threads at a time are worth more than the few
 * values that move out of their registers. */
static bool is_within(const struct analysis *z, int64_t chunks, int bytes,
                      const struct limits *most)
{
    const struct ir_kernel *k = z->k;
    const int elements = z->f->elements;
    int64_t words = chunks * bytes / 4;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_FOLD) {
            const enum dtype t = (enum dtype)k->nodes[i].src;
            words += elements * reduce_state(k->folds[k->nodes[i].fold].reduce, t)->size / 4;
        }
    return chunks * elements <= ELEMENTS && chunks * bytes <= most->bytes && words <= most->words;
}

/* Of an operand's chunk in shared memory; each begins at a multiple of 16 bytes. */
static int64_t cell_bytes(const struct analysis *z)
{
    const struct form *f = z->f;
    int64_t sum = 0;
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (f->loads[i].early && f->loads[i].kind != LOAD_ONCE) {
            const size_t n = dtype_size(z->k->inputs[f->loads[i].input].dtype);
            sum += (f->elements * (int64_t)n + 15) / 16 * 16;
        }
    return sum;
}

/* Bytes of shared memory for the states of the folds, of ar_room in fold.cuh. */
static int64_t states_bytes(const struct form *f)
{
    const int64_t bytes = f->lanes > 32 ? 2 * f->together * (f->threads / 32) * 32 : 32;
    return bytes > ROOM ? bytes : ROOM;
}

/* Keeps as many of a long row's chunks in registers as the limits allow, and the others in shared
 * memory; false if that is too small. */
static bool split(struct analysis *z, int bytes, int threads, const struct limits *most,
                  int64_t shared)
{
    struct form *f = z->f;
    int kept = ELEMENTS / f->elements;
    if (kept * bytes > most->bytes)
        kept = most->bytes / bytes;
    f->resident = threads / f->threads;
    while (kept > 1 && !is_within(z, kept, bytes, most))
        kept--;
    if (kept < 1 || kept >= f->lane_chunks || f->resident < 1 || !is_within(z, kept, bytes, most))
        return false;
    f->held_chunks = f->lane_chunks - kept;
    f->shared = f->held_chunks * f->threads * cell_bytes(z);
    return (f->shared + states_bytes(f) + RESERVED) * f->resident <= shared + RESERVED;
}

/* Where a row's chunks are kept; false if they are too many. */
static bool keep(struct analysis *z, int bytes, int64_t shared)
{
    struct form *f = z->f;
    const int64_t n = f->lane_chunks;
    f->held_chunks = 0;
    f->shared = 0;
    f->resident = RESIDENT / f->threads;
    if (is_within(z, n, bytes, &all_the_threads))
        return true;
    /* a block of 512 would be alone: two, or more in registers, if there is the room */
    if (n * f->elements <= (f->lanes < FULL_BLOCK ? ELEMENTS : ELEMENTS / 2) &&
        n * bytes <= half_the_threads.bytes) {
        f->resident = is_within(z, n, bytes, &half_the_threads) ? RESIDENT / 2 / f->threads : 1;
        return true;
    }
    return split(z, bytes, RESIDENT, &all_and_more, shared) ||
           split(z, bytes, RESIDENT / 2, &half_the_threads, shared);
}

const char *form_make_fold(struct analysis *z, int64_t shared)
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
    f->threads = f->lanes < BLOCK ? BLOCK : f->lanes;
    const int64_t chunks = (f->reduced + f->lanes - 1) / f->lanes;
    const int bytes = kept_bytes(z);
    f->together = folds_together(z);
    if (bytes < 0 || !f->together)
        return "";
    if (states_bytes(f) > DECLARED)
        return "it has too many reductions";
    if (chunks * bytes > shared)
        return FORM_ROW_TOO_LONG;
    f->lane_chunks = (int)chunks;
    if (!keep(z, bytes, shared))
        return FORM_ROW_TOO_LONG;
    f->unroll = 1;
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
