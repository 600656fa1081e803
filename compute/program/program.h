/* Programs: statements that are run step by step over arrays, on the device, in slices.
 *
 * Called by server/jobs/jobs_slice.c, server/body/program_body.c and the handlers of jobs,
 * statements and explain. A program belongs to one stream and is used by one thread at a time; it
 * owns the arena of its text and a reference to each array it uses.
 *
 * A running slice does not touch the assigned arrays: it writes to memory of the program's own, two
 * more of each, which the arrays take over when the whole slice has succeeded. So they always hold
 * the contents after a whole step, whatever fails, and concurrent readers see such a state. Only
 * arrays that cannot exchange their memory with a copy (views of a part) are copied to one by one.
 * Names that are not arrays are temporaries: local to a step, from their assignment on. Memory for
 * all of them is allocated when the program is made; each slice allocates what kernels need in
 * passing, such as partial sums. */
#ifndef ARRAYD_PROGRAM_H
#define ARRAYD_PROGRAM_H

#include "compute/engine/engine.h"
#include "compute/program/loop.h"

struct program;

/* target = expr, or target[index] = expr, or fill_ghost(target) */
struct program_assign {
    const char *target;
    const struct index_spec *index; /* NULL: all of it */
    struct expr expr;
    bool fills;        /* fill_ghost, from the array's own boundary; `expr` is the target's name */
    const char *place; /* JSON pointer in the request */
    long at;           /* the target's character offset in it */
};

/* A number recorded every so many steps. */
struct program_series {
    const char *name;
    struct expr expr;
    const char *place;
};

/* The value of a name after the statements, in a new array. */
struct program_result {
    const char *name;
    const char *place;
};

struct program_spec {
    struct arena *arena; /* holds everything that this points to; the program's once it is made */
    const struct program_assign *body;
    uint32_t n_body;
    const struct program_series *series;
    uint32_t n_series;
    int64_t series_every;
    const struct program_series *until; /* NULL: none. The program ends when it is true */
    int64_t until_every;
    const struct program_result *results; /* written anew by each step */
    uint32_t n_results;
    int64_t most_nodes; /* of all expressions, including what is inlined in them; 0: any number */
    bool once;          /* it has one step: half the memory is enough */
    bool fast_math;
    const char *stop_on_nan; /* the place of that wish; NULL: NaNs do not end it */
    /* Used in program_new only: the meaning of names, and the array of a target, a reference (NULL:
     * the name is no array; an error: it may not be written). */
    const struct check_env *env;
    enum err_code (*target)(void *user, const char *name, struct array **ret, struct err *e);
    void *user;
};

/* Checks every statement and allocates the memory. Errors have their place in the request:
 * check.h's, those of engine_evaluate for a target, ERR_OVERLAP for a target that shares memory
 * with another array that the program uses, ERR_SHAPE_MISMATCH for a series that is not a single
 * number, ERR_DTYPE_MISMATCH for one that is complex; ERR_EXPRESSION_TOO_LARGE past most_nodes;
 * ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code program_new(struct engine_stream *s, struct account *account,
                          const struct program_spec *spec, struct program **ret,
                          struct err *e) must_check;
void program_free(struct program *p); /* NULL allowed; no slice may be running */

/* Bytes of device memory that it has besides the arrays. No slice may be running. */
int64_t program_bytes(const struct program *p);

/* A result's array; borrowed, with the last slice's contents. */
struct array *program_result(const struct program *p, uint32_t i);
/* Has each slice download its elements, in C order: program_result_bytes returns them, until the
 * next. ERR_OUT_OF_MEMORY. */
enum err_code program_fetch(struct program *p, uint32_t i, struct err *e) must_check;
const void *program_result_bytes(const struct program *p, uint32_t i); /* NULL: not requested */

/* Called by program_collect when a slice has succeeded, before the arrays take over its results,
 * which program_made returns then. An error fails the slice, in its last step. Even after ERR_OK
 * the slice may be discarded. */
struct program_slice {
    int64_t steps;     /* whole steps, from the first one on */
    uint32_t n_values; /* of each series */
    bool until;        /* `until` is true */
    /* Some arrays do not exchange their memory: their results are copied to them afterwards, as
     * work of the program's stream. */
    bool copies;
    /* To be set: what the exchange is told of (engine_exchange), or NULL; and whether it is not
     * time yet: then the caller wakes itself, and program_collect asks again. */
    const void *with;
    bool later;
};
typedef enum err_code program_ready(void *user, struct program_slice *made, struct err *e);
struct array *program_made(const struct program *p, uint32_t target); /* borrowed */
void program_on_ready(struct program *p, program_ready *ready, void *user);

/* Between slices: frees the memory for the arrays' next contents, and allocates it again
 * (ERR_QUOTA, ERR_OUT_OF_MEMORY). */
void program_rest(struct program *p);
enum err_code program_wake(struct program *p, struct err *e) must_check;

/* How many steps a slice beginning after `step` steps may have, at most `n`: it ends before the
 * memory for recorded values, or for the values of `until`, is full, after some ten thousand
 * statements, and at the step that the last slice is known to have overrun. */
int64_t program_slice_limit(const struct program *p, int64_t step, int64_t n);

/* How many of the steps from `step` on, `most` at most, take about that many seconds: as measured
 * for a similar program, or, if there was none, by how much they write. Tries out the host memory
 * that a slice of them takes: ERR_OUT_OF_MEMORY, ERR_QUOTA or ERR_OVERLOADED, with the place in the
 * request, if there is no room for it. No slice may be running, and the arrays' memory must be
 * allocated. */
enum err_code program_first_slice(struct program *p, int64_t step, int64_t most, double seconds,
                                  int64_t *ret, struct err *e) must_check;

/* How the steps of the last slice ran. */
struct loop_report program_report(const struct program *p);

/* A kernel of a step, and the program's name for the array or temporary behind each input; NULL: it
 * has no name. */
struct program_kernel {
    const struct ir_kernel *kernel;
    const char *const *inputs;
    int32_t statement; /* whose kernel it is, or -1: several statements' */
};
typedef enum err_code program_look(void *user, const struct program_kernel *k, struct err *e);

/* Passes the kernels of one of `steps` steps to `look`, then the kernel for several steps if there
 * is one, and returns in *ret how the steps would run. Nothing is computed; no slice may be
 * running. Errors are look's and program_first_slice's. */
enum err_code program_explain(struct program *p, int64_t steps, program_look *look, void *user,
                              struct loop_report *ret, struct err *e) must_check;

/* Queues the steps step+1 … step+n. `wake` is called (any thread, perhaps at once) whenever
 * program_collect may have news; it must not block. An immediate failure fails the slice:
 * program_collect reports it. */
void program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                    void *user);

enum program_state {
    PROGRAM_WAITING, /* for wake */
    PROGRAM_GOES_ON,
    PROGRAM_UNTIL, /* `until` is true */
    PROGRAM_NAN,   /* stop_on_nan: the step would have made NaNs; the arrays have none */
    /* The slice was discarded: another client wrote to an assigned array, and its write counts; or
     * the slice overran the step that ends the program, or that fails. */
    PROGRAM_AGAIN,
    PROGRAM_FAILED
};
/* After this many discarded slices in a row the runner gives up, or tries less often. */
#define PROGRAM_AGAIN_MOST 100
struct program_progress {
    enum program_state state;
    int64_t steps;     /* whole steps that the arrays have now */
    struct err err;    /* PROGRAM_FAILED, with the place in the request */
    int64_t failed_in; /* PROGRAM_FAILED: the step that failed, counted from 1, */
    int32_t statement; /* and its statement, -1: unknown */
    uint32_t n_values; /* of each series */
    bool copies;       /* as in struct program_slice */
    double device_ms;  /* of the slice, whatever its outcome, */
    uint64_t bytes;    /* that its kernels read and wrote, */
    unsigned tiers;    /* and how these ran: enum tier of backend.h, */
    unsigned forms;    /* and kernel_form_bit */
};
/* The outcome of the slice. Once the state is not PROGRAM_WAITING the arrays have its results
 * (PROGRAM_GOES_ON, PROGRAM_UNTIL), or their old contents. */
void program_collect(struct program *p, struct program_progress *ret);

/* Discards the results of the running slice: PROGRAM_AGAIN at best. */
void program_discard(struct program *p);
/* The program is no longer wanted: the running slice may fail, at any time. Any thread. */
void program_give_up(struct program *p);

/* The values of a series from the last slice, until the next. */
const void *program_values(const struct program *p, uint32_t series, enum dtype *ret_dtype);

struct engine_stream *program_stream(const struct program *p); /* borrowed */
/* The assigned arrays, in order of first assignment; borrowed. */
uint32_t program_targets(const struct program *p);
const char *program_target(const struct program *p, uint32_t i, struct array **ret);

/* The meanings of the names that are only read; borrowed, NULL for one that is no array. */
uint32_t program_inputs(const struct program *p);
const struct array *program_input(const struct program *p, uint32_t i);
const char *program_input_name(const struct program *p, uint32_t i);

#endif
