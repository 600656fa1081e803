/* A program's internals, shared by program.c, which makes it, program_names.c, which knows its
 * names, program_inline.c, which inlines temporaries, program_run.c, which runs it,
 * program_collect.c, which collects its results, program_dry_run.c, which tries out its host
 * memory, and program_explain.c. */
#ifndef ARRAYD_PROGRAM_INT_H
#define ARRAYD_PROGRAM_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/program/loop.h"
#include "compute/program/program.h"

#define PROGRAM_NEVER            UINT64_MAX /* program->first_failure: none */
#define PROGRAM_SUBMISSIONS_MOST (1 << 16)  /* per slice: they are allocated beforehand */
#define VALUES_MOST              1024       /* values of a series, or results of until, per slice */

/* An assigned array. */
struct target {
    const char *name;
    struct array *home;     /* the user's */
    struct array *spare[2]; /* of the same layout */
    bool guarded;           /* the spares' contents may have to survive a bad index */
    struct array *now;      /* one of the three; borrowed */
    uint64_t version;       /* of home's contents when the slice began */
    uint64_t ghosts;        /* version of home whose ghost cells the spares have copied */
    bool carries; /* a statement fills ghost cells: they are carried along with the contents */
    const struct view *part; /* the part of its memory that its name means just now; NULL: all */
    struct array *before;    /* its contents when the step began, home's or in a spare */
    struct array *start;     /* the same for the beginning of a loop */
    struct array *at[LOOP_PASSES]; /* the same after each step that a loop records */
    struct expr itself;            /* its name */
};

/* The meaning of a name: an array that is only read, a scalar, or a temporary at this point. */
struct known {
    const char *name;
    const char *called;     /* check_env.called, of an array on another device; or NULL */
    struct binding binding; /* arrays: borrowed if temporary, else a reference */
    bool temporary;
    bool watched; /* its value is watched after the step */
};

#define STATEMENT_NONE UINT32_MAX

/* A name in the program. While its statements are made one by one, `last`, `next` and `n_readers`
 * are as of the current one. */
struct name {
    const char *name;
    struct target *target; /* NULL: no array that is written */
    struct known *known;   /* NULL: nothing is known yet */
    uint32_t n_assigned;   /* statements that assign it */
    bool in_parts;         /* one of them assigns a part of it */
    bool watched;          /* a series or `until` mentions it */
    bool needed_by_reader; /* the value of `reader` depends on it */
    uint32_t n_readers;    /* later statements that mention it; */
    uint32_t reader;       /* the last of them */
    uint32_t last, next;   /* the nearest that assign it, before and after; or STATEMENT_NONE */
    /* of program_list_names: the last list with it, and whether it is needed there */
    uint64_t listed;
    bool needed;
    uint32_t node; /* while an expression is written out: what it stands for, or EXPR_NOWHERE */
};

/* The names of an expression, in order, each once. */
struct mention {
    struct name *name;
    uint32_t def;  /* the statement of the inlined temporary that it is; or STATEMENT_NONE */
    uint32_t node; /* while the expression is written out: the root of that temporary */
};
struct mentions {
    struct mention *all;
    uint32_t n, n_done; /* n_done: have a node */
};

struct step {
    const struct program_assign *assign;
    struct name *name; /* that it assigns */
    uint32_t again;    /* the next statement that assigns it, or STATEMENT_NONE */
    struct mentions mentions;
    /* The assigned expression, with temporaries inlined; none if it is only checked where it is
     * moved to (`waits`). */
    struct expr expr;
    size_t n_all;            /* nodes that this has, or would have */
    size_t taken;            /* nodes of the temporaries moved into it */
    uint32_t changes;        /* the next statement that assigns a name that it has */
    uint32_t moved_to;       /* an inlined temporary that is no number: the only user */
    bool counts;             /* it has an index() */
    bool computes;           /* it may be checked as an operand only */
    bool is_number, inlined; /* an inlined temporary: nothing is stored */
    bool waits;
    struct target *target; /* NULL: a temporary */
    struct array *own;     /* a temporary's memory; borrowed if only a part of it is assigned */
    bool borrowed;
    struct known *temporary; /* the meaning of the name from here on */
    struct view region;      /* of the temporary, or of the target's spares */
};

/* A single element computed and downloaded at the end of a slice, or one every so many steps. */
struct watched {
    struct expr expr;
    struct array *array; /* (VALUES_MOST,) or (1,) */
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

/* Where a step's work goes: it is queued, or recorded (program_run.c), tried out
 * (program_dry_run.c), or passed to a caller (program_explain.c). Errors are p->err. */
struct sink {
    enum err_code (*put)(struct program *p, struct eval_request *req, int64_t step,
                         int32_t statement);
    /* fills the ghosts of the target's current contents */
    enum err_code (*fill)(struct program *p, const struct target *t, int64_t step,
                          int32_t statement);
};

/* Identifies an evaluation to its done callback. */
struct submission {
    struct program *program;
    int64_t step;
    int32_t statement;
};

struct program {
    struct arena *arena;
    struct engine_stream *stream; /* borrowed: the session's, as is account */
    struct account *account;
    struct program_spec spec;
    struct check_env env;
    struct target *targets;
    uint32_t n_targets;
    struct known **known;
    size_t n_known, cap_known;
    struct name **names; /* open addressing */
    size_t n_names, cap_names;
    uint64_t n_lists;
    struct step *steps; /* spec.n_body: the statements, then one per result */
    uint32_t n_statements;
    int64_t n_nodes; /* of everything inlined */
    struct watched *series, *checks, *until;
    struct watched *results; /* spec.n_results; bytes: where they are downloaded to */
    program_ready *ready;
    void *ready_user;
    struct exchange *exchanges; /* one per target */
    uint32_t n_exchanges;
    bool copies;               /* some arrays are copied to instead */
    struct loop_report report; /* of the last loop; steps 0: there was none */
    const struct sink *sink;
    struct loop *loop; /* being recorded, or NULL */
    bool plain;        /* the slice cannot be a loop: each statement runs by itself */
    bool never_loops;  /* nor can any slice */
    const char *why;   /* static text */
    uint32_t n_checks;
    size_t n_carried; /* most copies of ghost cells in a step */
    int64_t cost;     /* of a step, by plan_cost */
    struct expr zero;
    bool clears;        /* after a failure: clear watched arrays first */
    int64_t stop_at;    /* the step at which a slice must end, because of what follows; or */
    int64_t nan_within; /* a step by which there are NaNs; or INT64_MAX */

    /* the slice */
    void (*wake)(void *user);
    void *user;
    int64_t begin, end; /* steps before it, and with it */
    uint32_t n_values, n_answers;
    bool discards, unready;
    _Atomic bool given_up;
    struct submission *submissions;
    struct asked_guards *guards; /* the same number */
    size_t n_submissions, cap_submissions, n_guards, seen_guards;
    enum err_code at_once; /* a failure before queueing */
    struct err err;
    int32_t statement;
    int64_t failed_in;
    _Atomic uint64_t first_failure; /* its submission's number */
    _Atomic int failure;            /* enum err_code */
    struct work_seen seen;
    double device_ms;     /* under told */
    int outstanding;      /* under told: callbacks to come, engine_sync's and the evaluations' */
    pthread_mutex_t told; /* held while the last callback reports */
};

/* All watched values: checks, series, results, until. */
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

/* The name; NULL if the program does not have it. */
struct name *program_find_name(const struct program *p, const char *name);
/* The same, added if it is new: `name` must live as long as the program. NULL without memory. */
struct name *program_add_name(struct program *p, const char *name);
/* What it means, unknown so far. NULL without memory. */
struct known *program_add_known(struct program *p, struct name *name);
/* False without memory. */
bool program_list_names(struct program *p, const struct expr *x, struct mentions *ret);
/* Finds the names of all statements and what these do with them. False without memory. */
bool program_survey(struct program *p);

/* Whether statement i is inlined, with the statements before it already done; and its expression,
 * unless it waits (program_inline.c). */
enum err_code program_write_out(struct program *p, uint32_t i, struct err *e) must_check;
/* That expression, in the arena. */
enum err_code program_write_step(struct program *p, uint32_t i, struct arena *arena,
                                 struct expr *ret, struct err *e) must_check;
/* The same for the values that are watched after the step. */
enum err_code program_write_out_watched(struct program *p, const struct expr *x, struct expr *ret,
                                        struct err *e) must_check;

/* Whether the spares must copy the ghost cells of the target because no statement writes them. */
bool program_keeps_ghosts(const struct target *t);
/* Whether the expression mentions a name. */
bool program_names(const struct expr *x, const char *name);

/* Sends one step to the sink. Afterwards target->now has the arrays' contents. */
enum err_code program_run_step(struct program *p, int64_t number) must_check;
/* Records the n steps from `step` on as a loop that is not submitted; the targets are unchanged. If
 * they cannot be a loop, p->plain says so, *ret is NULL and nothing has been done. Errors are
 * p->err. */
enum err_code program_record(struct program *p, int64_t step, int64_t n,
                             struct loop **ret) must_check;
/* How the steps run, as reported by the loop. */
struct loop_report program_report_on(const struct program *p, struct loop_report r);

/* Allocates the host memory that a slice of `n` steps from `step` on takes, mainly for the plans of
 * a step, and frees it again: a program without room for it is refused before it begins
 * (program_dry_run.c). *ret: the steps as a loop, owned by the caller, with its explanation; NULL
 * if they cannot be one. Errors are p->err, with their place. */
enum err_code program_dry_run(struct program *p, int64_t step, int64_t n, struct loop **ret,
                              struct loop_explanation *ret_x) must_check;
/* Sends a value of w after `step` to the sink, as its element `at`. */
enum err_code program_watch(struct program *p, struct watched *w, int64_t at,
                            int64_t step) must_check;

/* program_placed: gives an error without a place this one, a JSON pointer. program_of_target:
 * places an error at the statement: one without a place, or about `out`, refers to the part before
 * the equals sign. */
enum err_code program_placed(struct err *e, enum err_code code, const char *place);
enum err_code program_of_target(struct err *e, enum err_code code, const struct program_assign *a);

/* The check_env of a step: temporaries and targets as they are at this point. */
enum err_code program_resolve(void *user, const char *name, struct binding *ret, struct err *e);
const char *program_called(void *user, const char *name);
struct binding program_binding(struct array *a);

#endif
