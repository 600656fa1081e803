/* What the interpreter's files share; private to compute/cpu/interp.
 *
 * The idea. Along every iteration axis the index contexts of a kernel change their behaviour only
 * at a few places (where a shift leaves its array). Cut there, the iteration space falls into boxes
 * in each of which every load is plainly affine (an address and a stride an axis) and every
 * IR_INSIDE a constant. So all shift modes are dealt with once a kernel, in interp_cuts.c, and the
 * inner machinery knows strided operands only.
 *
 *   interp_new  interp_plan.c   operands, cuts, axis order, way of running, units
 *               interp_cuts.c   where contexts break
 *   interp_unit interp_run.c    units, by what the run makes; whether to go on
 *               interp_store.c, interp_reduce.c, interp_scan.c, interp_arg.c
 *                               walk a unit's part of a box, block by block
 *               interp_keep.c   the programs at hand
 *               interp_bind.c   a box → program: instructions, registers, operand classes
 *               interp_eval.c   runs the program on one block
 *
 * Points of a box are numbered linearly, f = 0 … in the run's axis order (outermost first); blocks
 * and units are ranges of f. */
#ifndef ARRAYD_CPU_INTERP_INT_H
#define ARRAYD_CPU_INTERP_INT_H

#include "compute/base/arena.h"
#include "compute/cpu/interp/interp.h"
#include "compute/cpu/loops/loops.h"

enum operand_kind { OPERAND_LOAD, OPERAND_INDEX, OPERAND_INSIDE, OPERAND_STORE };

/* Something that depends on the point: a load, an index, an inside flag, a place to store to. */
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
    MODE_LINEAR,  /* each box by itself, units are ranges of f */
    MODE_GROUPED, /* units are ranges of rows; all intervals of the fastest axis done together */
    MODE_TILE,    /* each box by itself, units are ranges of two-dimensional tiles */
    MODE_INNER,   /* reduction, fastest axes reduced: [kept][reduced] */
    MODE_OUTER,   /* reduction, fastest axes kept (lanes): [kept][reduced][lanes] */
    MODE_SCAN     /* [outer][along the axis][lanes] */
};

struct interp_run {
    struct arena *arena;
    const struct ir_kernel *k;
    uint64_t id; /* never the same again in this process: the key of the bound programs */

    struct operand *operands; /* loads, indices, inside flags, then the outputs */
    uint32_t n_operands, n_stores;
    char **rows;          /* gathered input → its first element */
    uint32_t *operand_of; /* node → operand, UINT32_MAX */
    bool *live;           /* node */
    uint32_t n_live;

    /* contexts */
    bool plain;                 /* context 0 only */
    bool any_shift;             /* some offset is not 0 */
    bool *ctx_used;             /* by a live node or its descendants */
    bool *ctx_shifts;           /* has a nonzero offset */
    int64_t **offsets;          /* normalised: see interp_cuts.c */
    uint32_t *ctx_at;           /* where a context's coordinates lie in a coordinate table */
    uint32_t coords;            /* size of such a table */
    int64_t *cuts[MAX_RANK];    /* n_cuts + 1 boundaries */
    int32_t n_cuts[MAX_RANK];   /* intervals along an axis, ≥ 1 */
    int32_t main_cut[MAX_RANK]; /* the longest */
    bool pointwise;             /* too many boxes: every element's place is computed by itself */

    /* walking */
    enum interp_mode mode;
    int order[MAX_RANK]; /* iteration axes of extent > 1, slowest first */
    int n_order;
    int first_reduced, n_reduced, n_lanes; /* reductions: positions in order */
    int64_t points;
    bool small; /* too little work to share */
    int64_t n_boxes;
    int box_axes[MAX_RANK]; /* mixed radix of a box's number, most significant first */
    int n_box_axes;
    int64_t *first_unit; /* n_boxes + 1; reductions: of the groups or boxes, see there */
    int64_t unit_size;   /* f's, rows or tiles a unit */
    int64_t n_units;
    bool in_place; /* an input is the output's memory */
    bool large;    /* more memory than the caches hold: prefetch */
    bool stream;   /* LINEAR: and the output, which is not an input, goes past them */
    bool flat;     /* STORE: one box, everything contiguous */

    /* reductions */
    bool reduces;
    const struct reduce_loops *reduce; /* NULL for argmax and argmin */
    const struct arg_loops *arg;       /* those two; the index is the last operand but one */
    int64_t *arg_strides;              /* of that index, by iteration axis */
    enum dtype reduce_dtype;           /* of the elements */
    double divisor;                    /* of what is summed: 1, or a mean's */
    int64_t n_groups, boxes_per_group; /* box = group · boxes_per_group + part */
    bool split;                        /* partial results, combined by interp_finish */
    const struct scan_loops *scan;     /* scans */
    int rounds, round; /* of the units: there is another one while round + 1 < rounds */
    char *partials;
    int64_t partial_size;

    /* what a thread's scratch must hold (interp_fit) */
    size_t accumulators, staging; /* bytes */
    size_t carved, registers;     /* bytes of any program of the run, and of its registers */

    /* programs kept from one rewind to the next (interp_keep): [scratch][box · 2 + overrun] */
    struct bound **kept;
    int64_t *kept_left; /* scratch → bytes that it may still keep */
    int64_t n_programs; /* of each scratch */
    int n_keepers;      /* scratches */
    uint64_t pass;      /* rewinds so far */

    struct interp_watch *watch; /* NULL: it is never over */
    int64_t point_cost;         /* of all nodes */
};

/* Points of the axes at these positions in the order, of a box of extents `ext`. */
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

/* ---- geometry of a box ---- */

struct geometry {
    int nd;
    int64_t ext[MAX_RANK];
    int64_t points;
    int64_t *at; /* operand → address, index value or inside flag at the box's corner */
    int64_t *st; /* operand · nd + d → step along dimension d, in bytes (INDEX: in value) */
    /* MODE_TILE: the register-inner and the other dimension of tiles, and their sizes */
    int p, q;
    int64_t tp, tq, n_tiles;
};

/* Corner and extents (by iteration axis) of a box. */
void interp_box(const struct interp_run *r, int64_t box, int64_t *lo, int64_t *ext);

/* Fills `g` for a box; g->at and g->st have room for n_operands and n_operands · rank. `overrun`:
 * merges the two fastest axes as if the fastest had its whole extent in memory; false then means
 * that the operands do not allow it. `work` has room for run->coords · 2. */
bool interp_geometry(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                     bool overrun, struct geometry *g, int64_t *work);
/* int64s that at, st and work need together. */
size_t interp_geometry_words(const struct interp_run *r);

/* Coordinates in every used context for a point; false flags go to inside[ctx] when not NULL. */
void interp_coords(const struct interp_run *r, const int64_t *point, int64_t *coords,
                   bool *ret_inside);
/* An operand's address, value or flag, given those coordinates. */
int64_t interp_operand_at(const struct interp_run *r, const struct operand *o,
                          const int64_t *coords, const bool *inside);

/* Normalised offsets, cuts, pointwise; false without memory. */
bool interp_cut(struct interp_run *r);

/* ---- a bound program ---- */

enum operand_class {
    CLASS_DEAD,
    CLASS_SPLAT,   /* one value in the whole box: register filled once */
    CLASS_DIRECT,  /* contiguous in every block: used where it lies */
    CLASS_ROWFILL, /* one value a row: pinned register, refilled when the row changes */
    CLASS_GATHER   /* copied into a register */
};

/* GATHER copies a strided operand, TAKE reads elements by their numbers (IR_GATHER,
 * IR_TABLE). */
enum instr_kind { INSTR_LOOP, INSTR_GATHER, INSTR_RANDOM, INSTR_TAKE };

struct instr {
    uint8_t kind;
    uint8_t n_args;
    uint32_t dst; /* node */
    uint32_t args[4];
    loop_fn *fn;
    uint32_t operand; /* INSTR_GATHER */
};

struct bound {
    uint64_t run_id;
    uint64_t pass; /* in which its pinned registers were filled */
    int64_t box;
    bool overrun;
    bool
        reloads; /* a pinned register holds what memory held, which may be written between passes */

    const struct interp_run *run;
    struct geometry g;
    bool cut;    /* blocks never cross the ends of the fastest dimension */
    int64_t blk; /* elements a register holds */
    uint8_t *class_of;
    uint32_t *alias;  /* node → the node whose value it is */
    void **ptr;       /* node → its values in the current block */
    void **reg;       /* node → its register, NULL */
    uint32_t *number; /* node → its register's number, 0: none; pinned ones come first */
    uint32_t n_pinned;
    size_t stride;   /* between registers */
    char *shared;    /* where the others lie */
    int64_t *filled; /* ROWFILL: operand → the address its register holds, and how far */
    int64_t *filled_n;
    uint32_t *direct; /* operands to point at in each block */
    uint32_t n_direct;
    uint32_t *ahead; /* those worth prefetching: the foremost of each slot */
    uint32_t n_ahead;
    struct instr *code;
    uint32_t n_code;
    uint32_t *chain;       /* node → the argument it takes in, UINT32_MAX */
    uint8_t *chain_length; /* node → operations in its chain so far, 0: not chainable */
    bool *absorbed;        /* node → computed by its only user */
    bool *computed;        /* output → may be written by an instruction itself */
    bool stores;           /* and all are, at once, where blocks are evaluated to their places */
    int64_t lo[MAX_RANK], box_ext[MAX_RANK];

    int64_t unasked; /* cost of what was done since interp_over asked */

    void *memory; /* everything above */
    size_t memory_size;
    void *registers; /* all of them, or the pinned ones of a program that is kept */
    size_t registers_size;
};

#define ALIGNED(x) (((x) + 63) & ~(size_t)63)

#define BLOCK_MOST  4096 /* elements of a register */
#define BOUND_SLOTS 4
struct interp_scratch {
    int number;
    struct bound slots[BOUND_SLOTS];
    void *registers; /* those that are not pinned, of all programs that are kept */
    size_t registers_size;
    char *reduce; /* accumulators */
    size_t reduce_size;
    char *staging; /* a block of results on their way to strided memory */
    size_t staging_size;
};

/* Sizes of the run's programs; after planning. */
void interp_size_programs(struct interp_run *r);
/* Writes the program of the box b is for, into b->memory. What is left is where its registers lie
 * and what is in those that stay as they are (all of them, or those with what memory held). */
void interp_write_program(struct bound *b);
void interp_place_registers(struct bound *b, char *shared);
void interp_fill_pinned(struct bound *b, bool from_memory);

void interp_forget(struct interp_run *r); /* the programs that it keeps */
/* The program of a box: kept, from the slot's cache or made anew. */
struct bound *interp_bind(const struct interp_run *r, int64_t box, bool overrun, int slot,
                          struct interp_scratch *s);

/* Fills chain, chain_length and absorbed; `uses` is scratch. */
void interp_find_chains(struct bound *b, const bool *need, uint32_t *uses);
/* Function and arguments of the chain that ends in `node` (length ≥ 2). */
void interp_chain_instr(const struct bound *b, uint32_t node, struct instr *in);

/* ---- one block ---- */

struct block {
    int64_t n;
    int64_t c[MAX_RANK]; /* the first point */
    int64_t np, nq;      /* tile's extents; nq = 0: linear */
};

/* Coordinates of point f. */
void interp_locate(const struct bound *b, int64_t f, struct block *ret);
/* An operand's address (or index value) there. */
int64_t interp_address(const struct bound *b, uint32_t o, const int64_t *c);
/* Evaluates the program on a block; b->ptr[alias[node]] then holds each output's values. `direct`:
 * these are written to their places at once where they can be (CLASS_DIRECT and computed). */
void interp_eval(struct bound *b, const struct block *blk, bool direct);
/* Stores a block of the only output's values from `from`, wherever they go. */
void interp_put(const struct bound *b, const struct block *blk, char *from);
/* Whether there is no point in going on. */
bool interp_ask(const struct interp_run *r);
/* The same, `points` having been done since the last call: it asks after some tenths of a
 * millisecond's work. */
#define ASK_COST (1 << 18)
static inline bool interp_over(struct bound *b, int64_t points)
{
    struct interp_watch *w = b->run->watch;
    if (!w)
        return false;
    if (atomic_load_explicit(&w->is_over, memory_order_relaxed))
        return true;
    if ((b->unasked += points * b->run->point_cost) < ASK_COST)
        return false;
    b->unasked = 0;
    return interp_ask(b->run);
}
/* Partial results that are merged between two askings. */
#define ASK_PARTIALS 1024

/* How many points from f the next block may take, at most `left`. */
int64_t interp_block_size(const struct bound *b, int64_t f, int64_t left);
/* By how many points a block had better be shorter, so that the first output's next one begins with
 * a cache line, and with it most of what is read beside it. */
int64_t interp_block_over(const struct bound *b, const struct block *blk);

/* Runs points [f, end), or tiles [from, to), of a storing kernel. */
void interp_store_range(struct bound *b, int64_t f, int64_t end);
void interp_store_tiles(struct bound *b, int64_t from, int64_t to);

/* Which of n parts, boxes or groups, a unit belongs to. */
int64_t interp_part(const struct interp_run *r, int64_t n, int64_t unit);

/* Cutting and running reductions (interp_reduce.c). */
#define REDUCE_TILE 1024 /* lanes, at most */
/* Kept outer points, reduced points and lanes of a box of extents `ext`. */
void interp_reduce_sizes(const struct interp_run *r, const int64_t *ext, int64_t *outer,
                         int64_t *reduced, int64_t *lanes);
/* Stores n results, those of the kept points from number `kept` on of the box at `lo`. */
void interp_reduce_write(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                         int64_t kept, const char *values, int64_t n);
bool interp_reduce_open(struct interp_run *r); /* what is reduced and how; false without memory */
bool interp_reduce_plan(struct interp_run *r);
void interp_reduce_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
void interp_reduce_finish(struct interp_run *r, struct interp_scratch *s);

/* Those of argmax and argmin (interp_arg.c): unit i of a box or a group, then all. */
void interp_arg_unit(struct interp_run *r, int64_t at, int64_t i, struct interp_scratch *s);
void interp_arg_finish(struct interp_run *r);

/* Scans (interp_scan.c). interp_scan_again: between two rounds of units; false: there is none. */
void interp_scan_open(struct interp_run *r);
bool interp_scan_plan(struct interp_run *r);
void interp_scan_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
bool interp_scan_again(struct interp_run *r, struct interp_scratch *s);

/* Storing kernels (interp_store.c). */
void interp_store_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);
int64_t interp_item_bytes(const struct interp_run *r); /* of a point, of all outputs */
/* MODE_GROUPED: what the end columns of so many rows take, of all outputs. */
size_t interp_ends_bytes(const struct interp_run *r, int64_t rows);

#endif
