/* A program's insides, shared by program.c, which makes it, program_run.c, which runs it,
 * program_collect.c, which takes what comes of it, program_rehearse.c, which tries what has to be
 * had beforehand, and program_explain.c. */
#ifndef ARRAYD_PROGRAM_INT_H
#define ARRAYD_PROGRAM_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/program/loop.h"
#include "compute/program/program.h"

#define PROGRAM_NEVER        UINT64_MAX /* program->first_failure: none */
#define PROGRAM_TICKETS_MOST (1 << 16)  /* of a slice's steps: they are taken beforehand */
#define VALUES_ROOM          1024       /* values of a series, or answers of until, of one slice */

/* An array that is assigned. */
struct target {
    const char *name;
    struct array *home;            /* the user's */
    struct array *spare[2];        /* laid out like it */
    bool guarded;                  /* what the spares have may be kept where an index is bad */
    struct array *now;             /* one of the three; borrowed */
    uint64_t version;              /* of home's contents when the slice began */
    uint64_t ghosts;               /* of home's contents whose ghost cells the spares have, too */
    bool carries;                  /* a statement fills ghost cells: they go where the rest goes */
    const struct view *part;       /* what its name means just now, of its memory; NULL: it all */
    struct array *before;          /* the same when the step began, or in memory of our own */
    struct array *start;           /* the same when a loop began */
    struct array *at[LOOP_PASSES]; /* the same after the steps that a loop records */
    struct expr itself;            /* its name */
};

/* What a name means: an array that is only read, a scalar, or a temporary at this moment. */
struct known {
    const char *name;
    struct binding binding; /* arrays: borrowed where temporary, else a reference */
    bool temporary;
    bool watched; /* it is looked at after the step */
};

struct step {
    const struct program_assign *assign;
    struct expr expr;        /* what is assigned, temporaries in it written out */
    size_t taken;            /* nodes of the temporaries that are written out in it */
    bool is_number, inlined; /* a temporary that is written out: nothing is stored */
    struct target *target;   /* NULL: a temporary */
    struct array *own; /* a temporary's memory; borrowed where only a part of it is assigned */
    bool borrowed;
    struct known *temporary; /* what the name means from here on */
    struct view region;      /* of the temporary, or of the target's spares */
};

/* A single element computed at the end of a slice and looked at, or one each so many steps. */
struct watched {
    struct expr expr;
    struct array *array; /* (VALUES_ROOM,) or (1,) */
    struct download *download;
    char *bytes;
    size_t want, have;
    const char *place;
};

struct asked_guards {
    struct eval_guards *guards;
    const struct expr *expr;
    int64_t step;
    int32_t statement;
};

/* What becomes of what a step asks for: it is queued, or recorded (program_run.c), tried
 * (program_rehearse.c), or a caller looks at it (program_explain.c). Errors are p->err. */
struct sink {
    enum err_code (*put)(struct program *p, struct eval_request *req, int64_t step,
                         int32_t statement);
    /* the ghosts of what the target has now */
    enum err_code (*fill)(struct program *p, const struct target *t, int64_t step,
                          int32_t statement);
};

/* Who is told that an evaluation is over: which one it was. */
struct ticket {
    struct program *program;
    int64_t step;
    int32_t statement;
};

struct program {
    struct arena *arena;
    struct engine_stream *stream; /* borrowed: the session's, like account */
    struct account *account;
    struct program_spec spec;
    struct check_env env;
    struct target *targets;
    uint32_t n_targets;
    struct known **known;
    size_t n_known, cap_known;
    struct step *steps; /* spec.n_body: the statements, then one a result */
    uint32_t n_statements;
    int64_t n_nodes; /* of what has been written out */
    struct watched *series, *checks, *until;
    struct watched *results; /* spec.n_results; bytes: where they are fetched */
    program_ready *ready;
    void *ready_user;
    struct exchange *exchanges; /* one a target */
    struct loop_report report;  /* of the last loop; steps 0: there was none */
    const struct sink *sink;
    struct loop *loop; /* that is being recorded, or NULL */
    bool plain;        /* the slice is no loop: each statement by itself */
    bool never_loops;  /* no slice is */
    const char *why;   /* static text */
    uint32_t n_checks;
    size_t n_carried; /* copies of ghost cells in a step, at most */
    int64_t cost;     /* of a step, as plan_cost counts */
    struct expr zero;
    bool clears;        /* after a failure: what is written by elements is written whole before */
    int64_t stop_at;    /* steps that a slice is to end with, because of what comes after; or */
    int64_t nan_within; /* steps after which there are NaNs; or INT64_MAX */

    /* the slice */
    void (*wake)(void *user);
    void *user;
    int64_t begin, end; /* steps before it, and with it */
    uint32_t n_values, n_answers;
    bool discards, unready;
    _Atomic bool given_up;
    struct ticket *tickets;
    struct asked_guards *guards; /* as many */
    size_t n_tickets, cap_tickets, n_guards, seen_guards;
    enum err_code at_once; /* what failed before it was queued */
    struct err err;
    int32_t statement;
    int64_t failed_in;
    _Atomic uint64_t first_failure; /* number of its ticket */
    _Atomic int failure;            /* enum err_code */
    double device_ms;               /* under told */
    int outstanding;                /* under told: engine_sync, and the evaluations */
    pthread_mutex_t told;           /* held while the last is told, which may be seen only after */
};

/* What is looked at, all of it: checks, series, results, until. */
static inline uint32_t n_watched(const struct program *p)
{
    return p->n_checks + p->spec.n_series + p->spec.n_results + (p->until != NULL);
}

static inline struct watched *watched_at(struct program *p, uint32_t i)
{
    if (i < p->n_checks)
        return &p->checks[i];
    i -= p->n_checks;
    if (i < p->spec.n_series)
        return &p->series[i];
    i -= p->spec.n_series;
    return i < p->spec.n_results ? &p->results[i] : p->until;
}

/* Statement i's expression, those before it being there, and whether it is written out itself
 * (program_inline.c). */
enum err_code program_write_out(struct program *p, uint32_t i, struct err *e) must_check;
/* The same of what is looked at after the step. */
enum err_code program_write_out_watched(struct program *p, const struct expr *x, struct expr *ret,
                                        struct err *e) must_check;

/* The spares must have the ghost cells of the target, which no statement writes. */
bool program_keeps_ghosts(const struct target *t);
/* Whether the expression says a name. */
bool program_names(const struct expr *x, const char *name);

/* One step, into the sink. The arrays' contents are in target->now then. */
enum err_code program_run_step(struct program *p, int64_t number) must_check;
/* The steps from `step` on, n of them, as a loop that is not submitted; the targets are where they
 * were. Where that cannot be p->plain says so, *ret is NULL and nothing has been done. Errors are
 * p->err. */
enum err_code program_record(struct program *p, int64_t step, int64_t n,
                             struct loop **ret) must_check;
/* How the steps go, by what the loop says of itself. */
struct loop_report program_report_on(const struct program *p, struct loop_report r);

/* What a slice of `n` steps from `step` on takes of the host, the plans of a step above all, is
 * taken at once and given back: a program that finds no room for it is refused before it begins
 * (program_rehearse.c). *ret: the steps as a loop, which is the caller's, and what is to be known
 * of it; NULL where they are none. Errors are p->err, with their place. */
enum err_code program_rehearse(struct program *p, int64_t step, int64_t n, struct loop **ret,
                               struct loop_explanation *ret_x) must_check;
/* A number of w's after `step`, into the sink, as its element `at`. */
enum err_code program_watch(struct program *p, struct watched *w, int64_t at,
                            int64_t step) must_check;

/* program_placed: an error without a place has this one, a JSON pointer. program_of_target: it is
 * the statement's: one without a place, or about `out`, is one about what stands
 * before the equals sign. */
enum err_code program_placed(struct err *e, enum err_code code, const char *place);
enum err_code program_of_target(struct err *e, enum err_code code, const struct program_assign *a);

/* The check_env of a step: temporaries and targets as they are at this moment. */
enum err_code program_resolve(void *user, const char *name, struct binding *ret, struct err *e);
struct binding program_binding(struct array *a);

#endif
