/* A planned run: what the interpreter's files share. Private to compute/cpu/interp.
 *
 * The idea: along every iteration axis the index contexts of a kernel change their behaviour only
 * at a few places (where a shift leaves its array). Cut there, the iteration space falls into
 * boxes; in each of them every load is affine (an address, and a stride per axis) and every
 * IR_INSIDE is constant. So all shift modes are handled once per kernel, in interp_cuts.c, and
 * everything below deals with strided operands only.
 *
 * From the top down; each file calls only those below it:
 *   interp_new  interp_plan.c   operands, axis order, way of running, units
 *               interp_abreast.c  runs whose units alternate
 *               interp_steps.c  several steps by tiles
 *               interp_whole.c  reductions of rows and what is made of them
 *   interp_unit interp_run.c    units, by what the run makes
 *               interp_store.c, interp_reduce.c, interp_arg.c, interp_scan.c
 *                               runs a unit's part of a box, block by block
 *               interp_reduce_plan.c  how a reduction is cut, and where its results are stored
 *               interp_eval.c   runs the program on one block
 *               interp_keep.c   keeps bound programs
 *               interp_bind.c, interp_chain.c, interp_sum.c
 *                               a box → program: instructions, registers, operand classes
 *               interp_box.c    a box: where its operands lie, and its tiles
 *               interp_cuts.c   where contexts break
 *
 * Points of a box are numbered linearly, f = 0 … in the run's axis order (outermost first); blocks
 * and units are ranges of f. Memory is the run's arena; threads share a run without locks. */
#ifndef ARRAYD_CPU_INTERP_RUN_H
#define ARRAYD_CPU_INTERP_RUN_H

#include "compute/base/arena.h"
#include "compute/cpu/interp/interp.h"
#include "compute/cpu/loops/loops.h"

enum operand_kind { OPERAND_LOAD, OPERAND_INDEX, OPERAND_INSIDE, OPERAND_STORE };

/* A value that depends on the point: a load, an index, an inside flag, an address to store to. */
struct operand {
    enum operand_kind kind;
    uint8_t itemsize;
    uint32_t node;          /* STORE: the output's number */
    uint32_t ctx;           /* STORE: 0 */
    int rank;               /* of ctx */
    char *base;             /* LOAD, STORE: element [0, …, 0] */
    const int64_t *strides; /* LOAD, STORE: in elements */
};

enum interp_mode {
    MODE_LINEAR,  /* each box on its own, units are ranges of f */
    MODE_GROUPED, /* units are ranges of rows; all intervals of the fastest axis in one unit */
    MODE_TILE,    /* each box on its own, units are ranges of two-dimensional tiles */
    MODE_INNER,   /* reduction, fastest axes reduced: [kept][reduced] */
    MODE_OUTER,   /* reduction, fastest axes kept (lanes): [kept][reduced][lanes] */
    MODE_SCAN     /* [outer][along the axis][lanes] */
};

/* The index contexts. */
struct run_contexts {
    bool plain;        /* context 0 only */
    bool any_shift;    /* some offset is not 0 */
    bool *used;        /* by a live node or its descendants */
    bool *shifts;      /* has a nonzero offset */
    int64_t **offsets; /* normalised: see interp_cuts.c */
    uint32_t *at;      /* where a context's coordinates lie in a coordinate table */
    uint32_t coords;   /* size of such a table */
};

/* A tiled axis of several steps. */
struct steps_axis {
    int axis;
    int64_t n, reach; /* extent; how far away a step reads */
    bool wraps;
    int64_t tile, tiles; /* rows of a tile (n: not cut), and how many tiles */
};

/* Several steps in a pass (interp_steps.c). */
struct run_steps {
    uint32_t n; /* 0: one step */
    int n_axes;
    struct steps_axis axes[2];  /* slowest first */
    int64_t inner;              /* points of the other axes */
    int *field;                 /* operand → the output whose field it is, or -1 */
    struct steps_place *places; /* [box][operand][axis] */
    size_t *buffers;            /* output → where in the scratch memory its field lies */
    size_t bytes, moves;        /* of a step's fields there; of the operands' moves before them */
    struct interp_run
        *levels[2]; /* the same kernel for the first step, and those before the last */
};

/* A whole's temporary: where it lies in the scratch memory, where its operands are said to lie, and
 * bytes of a row (interp_whole.c). */
struct run_temp {
    size_t at;
    int64_t base, row;
};

/* A whole's stages. */
struct run_stages {
    uint32_t n; /* 0: it is a kernel's run */
    struct interp_run **runs;
    const struct interp_run *first; /* reduction */
    int64_t rows, row, at_once;     /* rows, points of one, rows of a unit */
    uint32_t n_reads;
    struct run_temp *temps;
    uint32_t **temp_of;           /* stage, operand → its temporary, UINT32_MAX */
    const struct operand **reads; /* operands whose rows are fetched ahead, NULL at the end */
    size_t moves, bytes;          /* of the operands' moves; of the temporaries behind them */
};

/* What a thread's scratch must hold (interp_fit), in bytes. */
struct run_needs {
    size_t accumulators, staging, tiles;
    size_t carved, registers; /* of any program of the run, and of its registers */
};

/* Programs kept from one rewind to the next (interp_keep). */
struct run_programs {
    struct bound **at; /* [scratch][box · 2 + overrun]; NULL: none kept */
    int64_t *left;     /* scratch → bytes it may still keep */
    int64_t n;         /* programs per scratch */
    int n_keepers;     /* scratches */
    uint64_t pass;     /* rewinds so far */
};

struct interp_run {
    struct arena *arena;
    const struct ir_kernel *k;
    uint64_t id; /* unique in this process: the key of the bound programs */

    struct operand *operands; /* loads, indices, inside flags, then the outputs */
    uint32_t n_operands, n_stores;
    char **rows;          /* gathered input → its first element */
    uint32_t *operand_of; /* node → operand, UINT32_MAX */
    bool *live;           /* node */
    uint32_t n_live;
    struct run_contexts ctx;

    /* the cuts, by iteration axis */
    int64_t *cuts[MAX_RANK];    /* n_cuts + 1 boundaries */
    int32_t n_cuts[MAX_RANK];   /* intervals along an axis, ≥ 1 */
    int32_t main_cut[MAX_RANK]; /* the longest */
    bool pointwise;             /* too many boxes: every element's address is computed separately */

    /* traversal */
    enum interp_mode mode;
    int order[MAX_RANK]; /* iteration axes of extent > 1, slowest first */
    int n_order;
    int first_reduced, n_reduced, n_lanes; /* reductions: positions in order */
    int64_t points;
    bool small;         /* too little work to share */
    int64_t point_cost; /* of all nodes */
    int64_t n_boxes;
    int box_axes[MAX_RANK]; /* mixed radix of a box's number, most significant first */
    int n_box_axes;
    int64_t *first_unit; /* n_boxes + 1; reductions: of the groups or boxes, see there */
    int64_t unit_size;   /* f's, rows or tiles per unit */
    int64_t n_units;
    bool in_place; /* the output's memory is an input's */
    bool fetches;  /* it has time to fetch what comes after it (interp_scratch.fetch) */
    bool large;    /* exceeds the caches: prefetch */
    bool stream;   /* the output, which is not an input, is written past the caches */
    bool flat;     /* STORE: one box, everything contiguous */

    /* reductions */
    bool reduces;
    const struct reduce_loops *reduce; /* NULL for argmax and argmin */
    const struct arg_loops *arg;       /* for those two; the index is the second-to-last operand */
    int64_t *arg_strides;              /* of that index, by iteration axis */
    int64_t block;                     /* points of a block; 0: as many as suit the program */
    enum dtype reduce_dtype;           /* of the elements */
    double divisor;                    /* what a sum is divided by: 1, or a mean's count */
    int64_t n_groups, boxes_per_group; /* box = group · boxes_per_group + part */
    bool split;                        /* partial results, combined by interp_finish */
    const struct scan_loops *scan;     /* scans */
    int rounds, round;                 /* of the units: another follows while round + 1 < rounds */
    char *partials;
    int64_t partial_size;

    /* interp_abreast.c: units follow those of a run before; the run whose units follow these */
    bool is_abreast;
    struct interp_run *beside;

    struct run_steps steps;
    struct run_stages stages;

    struct run_needs needs;
    struct run_programs kept;
    struct interp_watch *watch; /* NULL: the run is never abandoned */
};

/* Points along the axes at these positions of the order, in a box of extents `ext`. */
static inline int64_t product(const struct interp_run *r, const int64_t *ext, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= ext[r->order[i]];
    return n;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
