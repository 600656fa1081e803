/* A bound program: the instructions that compute a box of a run, and the scratch memory they use.
 * Private to compute/cpu/interp. A program belongs to one thread's scratch. */
#ifndef ARRAYD_CPU_INTERP_BIND_H
#define ARRAYD_CPU_INTERP_BIND_H

#include "compute/cpu/interp/interp_box.h"
#include "compute/cpu/loops/fused.h"

enum operand_class {
    CLASS_DEAD,
    CLASS_SPLAT,   /* one value in the whole box: register filled once */
    CLASS_DIRECT,  /* contiguous in every block: used in place */
    CLASS_ROWFILL, /* one value per row: pinned register, refilled when the row changes */
    CLASS_GATHER   /* copied into a register */
};

/* GATHER copies a strided operand, TAKE reads elements by their numbers (IR_GATHER,
 * IR_TABLE). */
enum instr_kind { INSTR_LOOP, INSTR_SUM, INSTR_GATHER, INSTR_RANDOM, INSTR_TAKE };

struct instr {
    uint8_t kind;
    uint8_t n_args;
    uint32_t dst;     /* node */
    uint32_t args[4]; /* of others than INSTR_SUM */
    union {
        loop_fn *fn; /* INSTR_LOOP */
        sum_fn *sum; /* INSTR_SUM */
    };
    uint32_t operand; /* INSTR_GATHER; INSTR_SUM: the place of its first term in the program's */
};

struct bound {
    uint64_t run_id;
    uint64_t pass; /* the pass in which its pinned registers were filled */
    int64_t box;
    bool overrun;
    bool reloads; /* pinned registers hold values from memory that may change between passes */

    const struct interp_run *run;
    struct geometry g;
    bool cut;    /* blocks never cross the ends of the fastest dimension */
    int64_t blk; /* elements per register */
    uint8_t *class_of;
    uint32_t *alias;  /* node → the node that has its value */
    void **ptr;       /* node → its values in the current block */
    void **reg;       /* node → its register, or NULL */
    uint32_t *number; /* node → its register's number, 0: none; pinned ones first */
    uint32_t n_pinned;
    size_t stride;   /* bytes from one register to the next */
    char *shared;    /* memory of the registers that are not pinned */
    int64_t *moved;  /* operand → bytes by which its address was moved (interp_scratch.moves) */
    int64_t *filled; /* ROWFILL: operand → the address in its register, and how far it is filled */
    int64_t *filled_n;
    uint32_t *direct; /* operands whose pointers are set for each block */
    uint32_t n_direct;
    uint32_t *ahead; /* operands worth prefetching: the foremost of each slot */
    uint32_t n_ahead;
    struct instr *code;
    uint32_t n_code;
    uint32_t *chain;       /* node → the argument it absorbs, or UINT32_MAX */
    uint8_t *chain_length; /* node → operations in its chain so far, 0: not chainable */
    bool *absorbed;        /* node → computed by its only user */
    uint8_t *n_terms;      /* node → terms of the sum that ends in it, 0: it is no such sum */
    uint32_t *first_term;  /* node → where they begin */
    uint32_t *terms;       /* nodes */
    double *weights;       /* what they are multiplied by */
    uint32_t n_all_terms;
    bool *computed; /* output → may an instruction write it directly */
    bool stores;    /* every output is, where blocks are evaluated to their places */
    int64_t lo[MAX_RANK], box_ext[MAX_RANK];

    struct fetch *fetch; /* the scratch's, where the run fetches; or NULL */
    int64_t unasked;     /* cost of the work done since interp_over last asked */

    void *memory; /* everything above */
    size_t memory_size;
    void *registers; /* all of them, or the pinned ones of a kept program */
    size_t registers_size;
};

#define ALIGNED(x) (((x) + 63) & ~(size_t)63)

/* Memory that is soon read: [at, end), then more. */
struct fetch {
    const char *at, *end;
    void (*more)(struct fetch *f); /* sets `at` and `end`, equal if there is no more */
    const struct interp_run *run;
    int64_t row;
    uint32_t n;
};

#define BLOCK_MOST  4096 /* elements per register */
#define BOUND_SLOTS 34   /* a window of 33 elements cuts a row into as many boxes; one overruns */
struct interp_scratch {
    int number;
    struct bound slots[BOUND_SLOTS];
    void *registers; /* the registers, other than pinned ones, of all kept programs */
    size_t registers_size;
    char *reduce; /* accumulators */
    size_t reduce_size;
    char *staging; /* a block of results before it goes to strided memory */
    size_t staging_size;
    void *tiles; /* several steps: the moves, and the fields of a tile */
    size_t tiles_size;
    struct fetch fetch;   /* where a run fetches */
    const int64_t *moves; /* operand → bytes by which bound programs find it elsewhere; or NULL */
};

/* The sizes of the run's programs; after planning. */
void interp_size_programs(struct interp_run *r);
/* Writes the program of b's box into b->memory. Placing its registers and filling the pinned ones
 * (all of them, or those with values from memory) is left to the caller. */
void interp_write_program(struct bound *b);
void interp_place_registers(struct bound *b, char *shared);
void interp_fill_pinned(struct bound *b, bool from_memory);

/* What a run of one box takes in at a time: blocks of so many points, which end with rows of so
 * many (0: they do not). False without memory. */
struct interp_pieces {
    int64_t block, row;
};
bool interp_find_pieces(const struct interp_run *r, struct interp_pieces *ret) must_check;

void interp_forget(struct interp_run *r); /* frees the programs it keeps */
/* The program of a box: a kept one, one from the slot's cache, or a new one. */
struct bound *interp_bind(const struct interp_run *r, int64_t box, bool overrun, int slot,
                          struct interp_scratch *s);

/* What an instruction reads, a < n_args: a node. */
static inline uint32_t interp_read(const struct bound *b, const struct instr *in, int a)
{
    return in->kind == INSTR_SUM ? b->terms[in->operand + (uint32_t)a] : in->args[a];
}

/* Counts the users of each node's value; what is an output's has more than one. */
void interp_count_uses(const struct bound *b, const bool *need, uint32_t *ret_uses);
/* Fills n_terms, first_term, terms and weights, and marks what the sums absorb. Before the chains.
 */
void interp_find_sums(struct bound *b, const bool *need, const uint32_t *uses);
void interp_sum_instr(const struct bound *b, uint32_t node, struct instr *in);
/* Fills chain and chain_length, and marks what the chains absorb. */
void interp_find_chains(struct bound *b, const bool *need, const uint32_t *uses);
/* Function and arguments of the chain that ends in `node` (length ≥ 2). */
void interp_chain_instr(const struct bound *b, uint32_t node, struct instr *in);

#endif
