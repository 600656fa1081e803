/* Programs: statements that are run step by step over arrays, on the device, in slices.
 *
 * Called by server/jobs/jobs.c. A program belongs to one stream and is used by one thread at a
 * time; it owns the arena of its text and a reference to each array it uses.
 *
 * The arrays that are assigned are left alone while a slice runs: what it makes lies in memory of
 * the program's own, two more of each, and becomes theirs when the whole slice has succeeded. So
 * they always hold what they held after a whole step, whatever fails, and whoever looks at them
 * meanwhile sees such a state. Only arrays that cannot exchange their memory with a copy of theirs
 * (views of a part) are copied to one by one. Names that are not arrays are temporaries: a step's
 * own, from their assignment on. The memory of all of them is taken when the program is made; what
 * kernels need in passing, such as parts of sums, by each slice. */
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
    bool fills;        /* fill_ghost, from its own boundary; `expr` is the target's name */
    const char *place; /* JSON pointer in the request */
    long at;           /* the target's character offset there */
};

/* A number for each so many steps. */
struct program_series {
    const char *name;
    struct expr expr;
    const char *place;
};

/* What a name means after the statements, in a new array. */
struct program_result {
    const char *name;
    const char *place;
};

struct program_spec {
    struct arena *arena; /* holds all that this points at; the program's once it is made */
    const struct program_assign *body;
    uint32_t n_body;
    const struct program_series *series;
    uint32_t n_series;
    int64_t series_every;
    const struct program_series *until; /* NULL: none. The program ends when it is true */
    int64_t until_every;
    const struct program_result *results; /* made anew by each step */
    uint32_t n_results;
    int64_t most_nodes; /* of all expressions, what is written out in them counted; 0: any number */
    bool once;          /* it has one step: half the memory will do */
    bool fast_math;
    bool stop_on_nan;
    /* Asked in program_new alone: what names mean, and which array a target is, a reference (NULL:
     * the name is no array; an error: it may not be written). */
    const struct check_env *env;
    enum err_code (*target)(void *user, const char *name, struct array **ret, struct err *e);
    void *user;
};

/* Checks every statement and takes the memory. Errors have their place in the request: check.h's,
 * those of engine_evaluate for a target, ERR_OVERLAP for a target that shares memory with another
 * array that the program uses, ERR_SHAPE_MISMATCH for a series that is not a single number,
 * ERR_DTYPE_MISMATCH for one that is complex; ERR_EXPRESSION_TOO_LARGE past most_nodes; ERR_QUOTA,
 * ERR_OUT_OF_MEMORY. */
enum err_code program_new(struct engine_stream *s, struct account *account,
                          const struct program_spec *spec, struct program **ret,
                          struct err *e) must_check;
void program_free(struct program *p); /* NULL allowed; no slice is under way */

/* A result's array; borrowed, its contents are the last slice's. */
struct array *program_result(const struct program *p, uint32_t i);
/* Its elements, in C order, are to come with each slice: program_result_bytes has them, until the
 * next. ERR_OUT_OF_MEMORY. */
enum err_code program_fetch(struct program *p, uint32_t i, struct err *e) must_check;
const void *program_result_bytes(const struct program *p, uint32_t i); /* NULL: not asked for */

/* Asked by program_collect when a slice has succeeded, before the arrays get what it made, which
 * program_made has then: `steps` whole ones, and so many values of each series. An error fails it,
 * in its last step. It may come to nothing all the same. */
typedef enum err_code program_ready(void *user, int64_t steps, uint32_t n_values, struct err *e);
struct array *program_made(const struct program *p, uint32_t target); /* borrowed */
void program_on_ready(struct program *p, program_ready *ready, void *user);

/* Between slices: gives the memory back that the arrays' next contents would go to, and takes it
 * again (ERR_QUOTA, ERR_OUT_OF_MEMORY). */
void program_rest(struct program *p);
enum err_code program_wake(struct program *p, struct err *e) must_check;

/* How many steps a slice beginning after `step` steps may have, at most `n`: it ends before the
 * memory of what is recorded, or of what `until` said, is full, after some ten thousand statements,
 * and where the last slice is known to have gone too far. */
int64_t program_slice_limit(const struct program *p, int64_t step, int64_t n);

/* How many of the steps from `step` on, `most` at most, take about so many seconds: as they did for
 * a program alike, or, where there was none, by how much they write. What a slice of them takes of
 * the host is tried: ERR_OUT_OF_MEMORY, ERR_QUOTA or ERR_OVERLOADED, with the place in the request,
 * where there is no room for it. No slice is under way, and the memory is there. */
enum err_code program_first_slice(struct program *p, int64_t step, int64_t most, double seconds,
                                  int64_t *ret, struct err *e) must_check;

/* How the steps went by the last slice. */
struct loop_report program_report(const struct program *p);

/* A kernel that a step would be, and what the program calls the array, or the temporary, behind
 * each input; NULL: no name has it. */
struct program_kernel {
    const struct ir_kernel *kernel;
    const char *const *inputs;
    int32_t statement; /* whose kernel it is, or -1: of several statements */
};
typedef enum err_code program_look(void *user, const struct program_kernel *k, struct err *e);

/* Tells `look` what the kernels of one of `steps` steps would be, then that of several steps where
 * there is one, and in *ret how the steps would go. Nothing is computed; no slice is under way.
 * Errors are look's and program_first_slice's. */
enum err_code program_explain(struct program *p, int64_t steps, program_look *look, void *user,
                              struct loop_report *ret, struct err *e) must_check;

/* Queues the steps step+1 … step+n. `wake` is told (any thread, perhaps at once) whenever
 * program_collect may have more to say; it must not block. What fails at once fails the slice:
 * program_collect says so. */
void program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                    void *user);

enum program_state {
    PROGRAM_WAITING, /* for wake */
    PROGRAM_GOES_ON,
    PROGRAM_UNTIL, /* `until` is true */
    PROGRAM_NAN,   /* stop_on_nan: the step would have made NaNs; the arrays have none */
    /* Nothing came of it: somebody else wrote to an array that is assigned, and what he wrote
     * counts; or the slice went beyond the step that ends the program, or fails. */
    PROGRAM_AGAIN,
    PROGRAM_FAILED
};
/* Slices that come to nothing, one after the other: who runs the program gives up then, or tries
 * less often. */
#define PROGRAM_AGAIN_MOST 100
struct program_progress {
    enum program_state state;
    int64_t steps;     /* whole ones that the arrays have now */
    struct err err;    /* PROGRAM_FAILED, with the place in the request */
    int64_t failed_in; /* PROGRAM_FAILED: the step that failed, counted from 1; */
    int32_t statement; /* and its statement, -1: unknown */
    uint32_t n_values; /* of each series */
    double device_ms;  /* that the slice took, whatever came of it */
};
/* What became of the slice. Once the state is not PROGRAM_WAITING the arrays have what it made
 * (PROGRAM_GOES_ON, PROGRAM_UNTIL), or what they had. */
void program_collect(struct program *p, struct program_progress *ret);

/* What the slice under way makes is thrown away: PROGRAM_AGAIN at best. */
void program_discard(struct program *p);
/* Nobody wants the program any more: the slice under way may fail, at any time. Any thread. */
void program_give_up(struct program *p);

/* The values of a series that the last slice made, until the next. */
const void *program_values(const struct program *p, uint32_t series, enum dtype *ret_dtype);

/* The arrays that are assigned, in the order of their first assignment; borrowed. */
uint32_t program_targets(const struct program *p);
const char *program_target(const struct program *p, uint32_t i, struct array **ret);

/* What the names in it mean that are only read; borrowed, NULL for one that is no array. */
uint32_t program_inputs(const struct program *p);
const struct array *program_input(const struct program *p, uint32_t i);

#endif
