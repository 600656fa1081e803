/* How a GPU processes a kernel: which axes remain after merging, which of the kernel forms of
 * compute/kernels fits, how each operand is read, how the work is cut into blocks.
 *
 * Called by emit.c (and tests). Pure; arena memory. */
#ifndef ARRAYD_CUDA_FORM_H
#define ARRAYD_CUDA_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/ir/ir_whole.h"

#define FORM_BLOCK    256   /* threads per block, at most; twice that for REDUCE */
#define FORM_GRID     65535 /* blocks along a grid's second and third axis, at most */
#define FORM_COUNTERS 2048  /* REDUCE: groups of blocks that share outputs, at most */

enum form_kind {
    FORM_FLAT,
    FORM_ROWS,
    FORM_TILE,
    FORM_STENCIL,
    FORM_WINDOW,
    FORM_STEPS,
    FORM_REDUCE,
    FORM_SCAN,
    FORM_SCAN_ROWS,
    FORM_FOLD
};

enum load_kind {
    LOAD_VECTOR, /* a chunk's elements are adjacent and aligned */
    LOAD_ONCE,   /* one element for the whole chunk */
    LOAD_EACH,   /* one by one */
    LOAD_TURNED, /* FORM_TILE: through shared memory */
    LOAD_NEAR    /* FORM_STENCIL, FORM_STEPS: from the thread's rows */
};

struct form_load {
    uint32_t node, input, ctx;
    enum load_kind kind;
    uint32_t near;  /* LOAD_NEAR: which rows; FORM_STEPS: which field */
    int8_t step[3]; /* LOAD_NEAR: offset along z, y, x */
    bool early;     /* FORM_FOLD: the folds need it */
    bool self;      /* FORM_STEPS: outside, along any axis, read the point itself */
};

/* LOAD_NEAR: an operand's rows under one boundary mode, and how far away its points are. */
struct form_near {
    uint32_t input;
    enum boundary_mode mode;
    int reach[3];
};

/* FORM_STEPS: an input that an output feeds from step to step, and what is read beyond its edges
 * along z, y, x. */
struct form_field {
    uint32_t input, output;
    struct form_edge {
        int reach;               /* 0 or 1; in three dimensions also 2 */
        enum boundary_mode mode; /* CLAMP, WRAP, REFLECT; beyond 1 SYMMETRIC */
        bool any;                /* any value will do: what is read there is replaced */
    } edge[3];
};

/* Of FORM_TILE. */
struct form_tile {
    int axis; /* that operands are turned along */
    int extent;
    bool paired; /* an array is read both ways; tiles are ordered for it */
};

/* Of FORM_STENCIL. */
struct form_stencil {
    struct form_near *nears;
    uint32_t n_nears;
    int batch; /* axes before z, y, x, of which there are rank − batch */
};

/* Of FORM_WINDOW: what it does with a node. */
enum window_kind {
    WINDOW_GONE,    /* nothing: only a tile's value needs it, if any does */
    WINDOW_UNIFORM, /* the same everywhere */
    WINDOW_READ,    /* reads tile `tile` at `step` */
    WINDOW_POINT    /* computes it */
};
struct window_node {
    enum window_kind kind;
    bool half;        /* POINT: half.cuh's operation, on args */
    uint32_t args[3]; /* the node's, if it is not half */
    uint8_t n_args;
    uint32_t tile;
    int16_t step[3];    /* along z, y, x */
    int16_t stage, row; /* READ, POINT: the plane and row it waits for, from the first */
    int16_t last;       /* the last stage that uses it */
    int16_t last_row;   /* in its own stage */
    int16_t first;      /* of one that waits for none: its first user's stage */
    bool early;         /* has such a user */
};
/* The values around a block's points, with the shift's boundary. */
struct window_tile {
    uint32_t node; /* one that it holds the values of */
    enum boundary_mode mode;
    enum dtype dtype;
};
struct form_window {
    struct window_node *nodes; /* by the kernel's nodes */
    struct window_tile *tiles;
    uint32_t n_tiles;
    int batch;          /* as of FORM_STENCIL */
    int lo[3], hi[3];   /* offsets along z, y, x */
    bool deep;          /* in several planes */
    int across;         /* threads side by side */
    int left;           /* columns of a tile before the block's first */
    int columns, lines; /* of a tile */
    int64_t part;       /* planes of a block */
    int resident;       /* blocks per multiprocessor, at least */
};

/* Of FORM_STEPS. */
struct form_passes {
    struct form_field *fields;
    uint32_t n_fields;
    int n;                  /* steps */
    bool wraps[3];          /* along z, y, x */
    int near[3];            /* see form_steps_is_far */
    int halo, piece, ahead; /* columns on either side; elements copied at once; rows on their way,
                               and one */
    int lag, back, beside, aside; /* three dimensions: see form_passes.c */
    bool mapped;                  /* three dimensions: the copy engine may bring planes */
    int64_t bytes;                /* three dimensions: that a pass moves */
    bool paced;                   /* three dimensions: blocks wait for those that fall behind */
    int at_once;                  /* blocks per multiprocessor */
    int64_t part;                 /* rows of a warp, planes of a block */
};

/* Of FORM_SCAN, beside what it has of a reduction. */
struct form_scan {
    int64_t stretch; /* rows per stretch */
    int64_t share;   /* joined: elements of a GPU; the last one has fewer, or none */
    int64_t lines;   /* rows or blocks of columns that are cut */
    int columns;     /* side by side in a warp's lanes: 1, a row; 0: each is a thread's */
    /* any: */
    int64_t length, apart; /* of a row or column; its neighbours */
    int elements, many;    /* what elements and unroll are in a text of its own */
};

/* Of both, any: what lies in the order of the points of this form (scan_any.cuh, spread.cuh) is
 * scanned, by one text for all lengths and layouts. */
struct form_left {
    const struct form *of;
    bool gaps; /* in the result */
};

/* Of FORM_SCAN_ROWS. */
struct form_scan_rows {
    int64_t length, part; /* of a row; of what a block holds of it at a time */
    int chunk, bound;     /* elements per lane; at most, in the text */
    int most;             /* places per thread */
    int many;             /* rows per lane */
    int fetch;            /* threads that access a row; 0: rows are one range */
    int parts;            /* of a row, each with a block of its own; 1: a block does all */
    bool aligned;         /* lanes' chunks begin at multiples of 16 bytes */
};

struct form {
    enum form_kind kind;
    bool turned;  /* axes are in another order than the kernel's */
    bool general; /* contexts are arbitrary chains: nothing is merged, axes are the kernel's own */
    bool wide;    /* 64-bit indices */
    int rank;     /* ≥ 1 */
    int64_t shape[MAX_RANK];
    int axis[MAX_RANK];               /* kernel's axis → merged axis, −1 if it is gone */
    int64_t (*strides)[MAX_RANK];     /* by input, over the merged axes (general: its context's); 0
                                         where it is gathered */
    int64_t (*offsets)[MAX_RANK];     /* by context, over the merged axes (not general) */
    int64_t (*out_strides)[MAX_RANK]; /* by output */
    bool out_vector;                  /* results are stored by vectors */
    int elements;                     /* per chunk */
    int unroll;                       /* chunks per thread */
    struct form_load *loads;
    uint32_t n_loads;

    int64_t chunks, tail; /* FLAT, ROWS */
    struct form_tile tile;
    struct form_stencil stencil;
    struct form_window window;
    struct form_passes steps;
    int planes, rows; /* STENCIL, STEPS, WINDOW (rows; elements side by side): per thread */
    int step; /* between a chunk's elements: 1, or 32 (STENCIL on rows that are not aligned) */

    /* REDUCE; also FOLD, and SCAN and SCAN_ROWS, whose axis counts as reduced */
    uint32_t reduced_axes; /* bits over the merged axes */
    bool inner;            /* the fastest axis is reduced */
    int lanes;   /* REDUCE, FOLD: threads per output; SCAN: warps per row; SCAN_ROWS, STEPS: threads
                    per row */
    int members; /* GPUs that share the blocks */
    bool joined; /* each of them takes a part of the reduced points: REDUCE: and leaves states that
                    one of them merges; SCAN: its total first, and then scans it behind those of
                    the parts before */
    int64_t kept, reduced; /* chunks; SCAN: rows, or chunks of columns; SCAN_ROWS: rows */
    int64_t stretches;     /* REDUCE: blocks that share an output; SCAN: parts of a row or column;
                              joined: of a GPU's part of these */
    int state_size;        /* REDUCE: bytes, at most */
    int resident;          /* REDUCE: blocks per multiprocessor, at least */
    bool any;        /* REDUCE: strides and all that divides the work are arguments: one text for
                        all (reduce_any.cuh); SCAN, SCAN_ROWS: see form_left */
    int lane_chunks; /* FOLD: per thread, at most; */
    int held_chunks; /* so many of them in shared memory */
    int together;    /* FOLD: folds that are taken in at once, at most */
    struct form_scan scan;
    struct form_scan_rows scan_rows;
    struct form_left left;

    int64_t shared; /* bytes of shared memory that a block is launched with */
    int threads;    /* AR_BLOCK: per block, at most */
    unsigned grid[3], block[2];
};

/* NULL without memory. `slot_alignment`: of every slot's address, in bytes. The kernel has points
 * (for a reduction: outputs); one of several steps must be one that form_steps() accepts. */
struct form *form_of(struct arena *arena, const struct ir_kernel *k, int slot_alignment)
    __attribute__((warn_unused_result));
/* The same for a GPU whose blocks have at most so many bytes of shared memory, or for `members`
 * such GPUs that share the blocks (form_along): a form of several steps is made for that.
 * form_of(): one, with as many bytes as an A100 has. */
struct form *form_within(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                         int64_t shared, int members) __attribute__((warn_unused_result));
#define FORM_SHARED 166912

/* The form of a whole (ir_whole.h): FORM_FOLD, of siblings FORM_REDUCE. NULL if it would not do
 * what its parts do, bit by bit, or a row is too long for a block, which has at most so much shared
 * memory, in bytes: *ret_why, a static text, says so; "" without memory. */
struct form *form_of_whole(struct arena *arena, const struct ir_whole *w, int slot_alignment,
                           int64_t shared, const char **ret_why)
    __attribute__((warn_unused_result));

/* How many steps of the kernel are best done in one pass over memory (backend.h's steps()) by
 * blocks that have at most so much shared memory, in bytes, of `members` GPUs; 1, and *ret_why "",
 * without memory. */
uint32_t form_steps(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                    int64_t shared, int members, const char **ret_why);

/* FORM_STEPS: whether the point's position must tell if a context's shift stays inside along an
 * axis of the kernel: of a shift of at most `near`, a thread that has the array's edge knows. */
static inline bool form_steps_is_far(const struct form *f, const struct ir_ctx *c, int axis)
{
    const int64_t offset = c->offset[axis], near = f->steps.near[axis + 3 - c->rank];
    return offset > near || offset < -near;
}

/* FORM_STEPS in three dimensions: planes of a field that a level keeps. */
int form_steps_kept(const struct form *f, const struct form_field *d);

/* Makes f, a copy of a scan's form, that of elements of this size in the order of that form's
 * points, from an aligned address on, with one text for all lengths; the order of additions stays
 * the same. `gaps`: the result is not in that order, or not at such an address. */
void form_any_scan(struct form *f, const struct form *of, int size, bool gaps);

/* Makes f, of the reduction k, that of elements in the points' order with one text for all lengths
 * and layouts; the order in which elements are combined stays the same. `out_strides`: memory for
 * its own. False: its axes are too many for that text. */
bool form_any_reduce(const struct ir_kernel *k, struct form *f, int64_t (*out_strides)[MAX_RANK]);

/* By merged axis: what one further along it adds to an element's number among those that are
 * reduced to one; 0 along the others. */
void form_positions(const struct ir_kernel *k, const struct form *f, int64_t strides[MAX_RANK]);

/* The axis of the grid that goes along the slowest axis of the iteration space: along it lie the
 * parts of a kernel that several GPUs share. -1: one GPU has it. */
int form_along(const struct form *f);
/* How many blocks side by side along that axis belong together: a launch may be of any such groups
 * (AR_ALONG of common.cuh). 0: all blocks work together; only what they reduce can be divided
 * (joined). */
unsigned form_group(const struct form *f);

/* What a member takes of a joined kernel: REDUCE: chunks [*ret_since, *ret_until) of the reduced
 * points; SCAN: elements of each row or column. */
void form_share(const struct form *f, int member, int64_t *ret_since, int64_t *ret_until);

/* "flat", "rows", "tile", "stencil", "reduce-inner", … */
const char *form_name(const struct form *f);

#endif
