/* Before a program begins: the host memory that a slice takes, and the number of steps of the first
 * slice.
 *
 * While a slice is queued all plans of a step exist at once, as do those of the watched values;
 * they count for the job (meter.h). So that a program is refused rather than fails in its first
 * step, a step is tried out here: as a loop it is recorded and its kernels are made; else each
 * evaluation is begun, and released only when all have been. */
#include <stdio.h>
#include <string.h>

#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/program/program_int.h"

/* Speeds that a step does not exceed by much: seconds per statement, bytes per second. */
#define STATEMENT_S 2e-6
#define HOST_RATE   2e9
#define DEVICE_RATE 2e12

struct dry_run {
    struct sink sink;
    struct arena *arena;
    struct task **tasks; /* tasks begun */
    size_t n, cap;
};

static enum err_code keep(struct program *p, struct task *take_t)
{
    struct dry_run *r = (struct dry_run *)p->sink;
    if (arena_grow(r->arena, (void **)&r->tasks, &r->cap, r->n, sizeof(struct task *)) < 0) {
        task_free(take_t);
        return err_oom(&p->err);
    }
    r->tasks[r->n++] = take_t;
    return ERR_OK;
}

static enum err_code dry_run_put(struct program *p, struct eval_request *req, int64_t step,
                                 int32_t statement)
{
    (void)step, (void)statement;
    struct task *t;
    const struct typed *typed;
    struct eval_times times = {0};
    TRY(evaluate_begin(p->stream, req, &t, &typed, &times, &p->err));
    return keep(p, t);
}

static enum err_code dry_run_fill(struct program *p, const struct target *t, int64_t step,
                                  int32_t statement)
{
    (void)step, (void)statement;
    struct task *task;
    struct ir_plan *plan;
    TRY(fill_begin(p->stream, t->now, &task, &plan, &p->err));
    return keep(p, task);
}

static enum err_code look_at_each(struct program *p, int64_t step)
{
    for (uint32_t i = 0; i < p->n_checks; i++)
        TRY(program_watch(p, &p->checks[i], 0, step));
    for (uint32_t i = 0; i < p->spec.n_series; i++)
        TRY(program_watch(p, &p->series[i], 0, step));
    return p->until ? program_watch(p, p->until, 0, step) : ERR_OK;
}

/* The evaluations that are not part of a loop. */
static enum err_code dry_run_rest(struct program *p, int64_t step, bool loops)
{
    struct dry_run r = {.sink = {dry_run_put, dry_run_fill}, .arena = arena_new(0)};
    if (!r.arena)
        return err_oom(&p->err);
    p->sink = &r.sink;
    enum err_code code = loops ? ERR_OK : program_run_step(p, step);
    if (code == ERR_OK)
        code = look_at_each(p, step);
    p->sink = NULL;
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].home;
    for (size_t i = 0; i < r.n; i++)
        task_free(r.tasks[i]);
    arena_free(r.arena);
    return code;
}

/* Which statements the error refers to: all of a step up to this one. */
static void say_where(struct program *p)
{
    struct err *e = &p->err;
    char why[sizeof e->message];
    const int32_t at = p->statement >= 0 ? p->statement : (int32_t)p->n_statements - 1;
    program_of_target(e, e->code, p->steps[at].assign);
    if (e->wanted > 0 ||
        (e->code != ERR_OUT_OF_MEMORY && e->code != ERR_QUOTA && e->code != ERR_OVERLOADED))
        return;
    memcpy(why, e->message, sizeof why);
    snprintf(e->message, sizeof e->message,
             "for the step up to and including this statement, %.200s", why);
}

enum err_code program_dry_run(struct program *p, int64_t step, int64_t n, struct loop **ret,
                              struct loop_explanation *ret_x)
{
    struct loop *l = NULL;
    p->err = (struct err)ERR_INIT;
    p->plain = p->never_loops;
    p->statement = -1;
    enum err_code code = p->plain ? ERR_OK : program_record(p, step + 1, n, &l);
    if (code == ERR_OK && l)
        code = loop_explain(l, ret_x, &p->err);
    if (code == ERR_OK)
        code = dry_run_rest(p, step + 1, l != NULL);
    if (code == ERR_OK) {
        *ret = l;
        return ERR_OK;
    }
    say_where(p);
    if (l)
        loop_free(l);
    return code;
}

/* The estimated time of a step by the bytes it writes, in seconds. */
static double guess(const struct program *p)
{
    double bytes = 0, rate = engine_in_host_memory(p->stream->engine) ? HOST_RATE : DEVICE_RATE;
    for (uint32_t i = 0; i < p->n_targets; i++)
        bytes += 2.0 * (double)array_nbytes(p->targets[i].home);
    return p->spec.n_body * STATEMENT_S + bytes / rate;
}

/* A slice can wait for device memory. */
enum err_code program_first_slice(struct program *p, int64_t step, int64_t most, double seconds,
                                  int64_t *ret, struct err *e)
{
    struct loop *l = NULL;
    struct loop_explanation x = {0};
    enum err_code code = program_dry_run(p, step, most, &l, &x);
    if (code != ERR_OK && p->err.wanted <= 0) {
        *e = p->err;
        return code;
    }
    if (l) {
        p->report = x.report;
        loop_free(l);
    }
    double each = x.report.step_ms > 0 ? x.report.step_ms * 1e-3 : guess(p);
    double n = seconds / each;
    *ret = n < 1 ? 1 : n > PROGRAM_SUBMISSIONS_MOST ? PROGRAM_SUBMISSIONS_MOST : (int64_t)n;
    return ERR_OK;
}
