/* What the files of this room share: steps, machines, a program being made. Private to
 * compute/gpu/interp. */
#ifndef ARRAYD_INTERP_INT_H
#define ARRAYD_INTERP_INT_H

#include "compute/gpu/interp/interp.h"

#define INTERP_BLOCK     128 /* threads */
#define INTERP_REGISTERS 24
#define INTERP_BLOCKS    4096 /* of a launch, at most */
#define INTERP_STEPS     250  /* and their constants, 16 bytes each */

enum step {
#define STEP(id) STEP_##id,
#include "compute/gpu/interp/step.def"
#undef STEP
    STEP_COUNT
};

/* The codes of operations and casts follow. */
static inline uint16_t code_of_op(enum op op, enum dtype t)
{
    return (uint16_t)(STEP_COUNT + (int)op * DT_COUNT + (int)t);
}
static inline uint16_t code_of_cast(enum dtype from, enum dtype to)
{
    return (uint16_t)(STEP_COUNT + (OP_COUNT + (int)from) * DT_COUNT + (int)to);
}

struct machine_info {
    int word;     /* bytes of a register's element, at most those of a value */
    int elements; /* of a register */
};
extern const struct machine_info machines[MACHINES];

/* Whether the function of kernels/scalar exists, of types that the machine has. */
bool machine_has_op(enum machine m, enum op op, enum dtype t);

/* As machine.cuh has it. */
struct interp_step {
    uint16_t code;
    uint8_t to, a, b, c;
    uint16_t unused;
    uint64_t x;
};
struct interp_params {
    int64_t points, chunks;
    int32_t n, unused;
    struct interp_step steps[INTERP_STEPS];
};
_Static_assert(sizeof(struct interp_params) <= EMIT_PARAMS_MAX, "passed by value");

/* A step before registers are allocated: its operands are numbers of steps, its result is its own
 * number. */
#define NONE UINT32_MAX
struct virtual_step {
    uint16_t code;
    bool has_result;
    uint32_t args[3];
    uint64_t x;
    /* what x is: a number; a displacement from the slot's address; a place among the constants */
    enum { X_NUMBER, X_ADDRESS, X_CONSTANT } kind;
    uint32_t slot;
};

struct program {
    struct arena *arena;
    const struct ir_kernel *k;
    const struct form *f;
    enum machine machine;
    const struct emitted *rest; /* of a reduction or scan; NULL: results are stored */
    struct virtual_step *steps;
    size_t n, cap;
    uint8_t *constants; /* bytes, behind the steps */
    size_t n_constants, cap_constants;
    uint32_t point, *axes;         /* steps: the point's number, its indices; NONE: not made yet */
    uint32_t (*indices)[MAX_RANK]; /* by context, over the form's axes, or (general) its own */
    uint32_t *inside;              /* by context: whether its shift stayed inside */
    bool failed;                   /* no memory, or more than fits */
};

/* Appends a step; its number. */
uint32_t program_step(struct program *p, enum step code, uint32_t a, uint32_t b, uint64_t x);
uint32_t program_add(struct program *p, struct virtual_step s);
/* Appends bytes to the constants; their place, for X_CONSTANT. */
uint64_t program_constant(struct program *p, const void *bytes, size_t n);

/* index.c: the step that is the index along the form's axis (general: the context's own axis) in
 * context `ctx`, that which is whether the context's shift stayed inside; and the offset of an
 * element from the view's first in a context, NONE: it is always 0. */
uint32_t program_index(struct program *p, uint32_t ctx, int axis);
uint32_t program_inside(struct program *p, uint32_t ctx);
uint32_t program_offset(struct program *p, uint32_t ctx, const int64_t *strides);
/* Whether elements with these strides lie in the order of the points' numbers. */
bool program_runs(const struct program *p, const int64_t *strides);

/* rest.c: bytes that the program leaves; the kernel behind it, which becomes p->rest, and reads
 * from its own memory's end on (NULL: without memory, or too many parameters); where that end is.
 */
int64_t program_leaves(const struct program *p);
struct emitted *program_second(struct program *p, struct arena *arena);
int64_t program_behind_rest(const struct program *p);

/* registers.c: the program as the machine takes it; false: more than fits. ret_registers: how many
 * it takes. */
bool program_finish(struct program *p, struct arena *arena, struct emitted *ret,
                    int *ret_registers);

#endif
