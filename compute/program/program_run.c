/* Queueing a slice of a program (program.h explains slices); callbacks report its progress, and
 * each only records what it reports (program_collect.c). */
#include <string.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/program/program_int.h"

static bool is_due(int64_t step, int64_t every)
{
    return step % every == 0;
}

/* The most, if each statement runs by itself. */
static size_t submissions_of_step(const struct program *p)
{
    return 2 * (size_t)p->spec.n_body + p->n_carried + p->spec.n_series + (p->until != NULL);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Steps after `step` until there is no room for another value. */
static int64_t steps_until_full(int64_t step, int64_t every)
{
    return every > INT64_MAX / (2 * VALUES_MOST) ? INT64_MAX
                                                 : every - step % every + (VALUES_MOST - 1) * every;
}

int64_t program_slice_limit(const struct program *p, int64_t step, int64_t n)
{
    if (p->until)
        n = least(n, steps_until_full(step, p->spec.until_every));
    if (p->spec.n_series)
        n = least(n, steps_until_full(step, p->spec.series_every));
    if (step < p->stop_at)
        n = least(n, p->stop_at - step);
    if (step < p->nan_within)
        n = least(n, (p->nan_within - step) / 2 + (p->nan_within - step) % 2);
    return least(n, PROGRAM_SUBMISSIONS_MOST / (int64_t)submissions_of_step(p) + 1);
}

struct loop_report program_report_on(const struct program *p, struct loop_report r)
{
    if (p->plain)
        return (struct loop_report){.kernels = 0, .steps = 1, .why = p->why};
    if (p->until)
        r = loop_report_within(r, p->spec.until_every, "until is checked more often");
    if (p->spec.n_series)
        r = loop_report_within(r, p->spec.series_every, "values are recorded more often");
    return r;
}

struct loop_report program_report(const struct program *p)
{
    return program_report_on(p, p->report);
}

/* --- requests to the engine --- */

/* Any thread. The last callback wakes; the thread that it wakes may free the program, and its user,
 * but not before the lock is released. */
static void over(struct program *p)
{
    pthread_mutex_lock(&p->told);
    if (--p->outstanding == 0)
        p->wake(p->user);
    pthread_mutex_unlock(&p->told);
}

static void expect(struct program *p, int n)
{
    pthread_mutex_lock(&p->told);
    p->outstanding += n;
    pthread_mutex_unlock(&p->told);
}

static void note_failure(struct program *p, uint64_t number, enum err_code code)
{
    uint64_t first = atomic_load(&p->first_failure);
    while (number < first)
        if (atomic_compare_exchange_weak(&p->first_failure, &first, number)) {
            atomic_store(&p->failure, code);
            return;
        }
}

static void evaluated(void *user, enum err_code result, double device_ms)
{
    struct submission *t = user;
    struct program *p = t->program;
    pthread_mutex_lock(&p->told);
    p->device_ms += device_ms;
    pthread_mutex_unlock(&p->told);
    if (result != ERR_OK)
        note_failure(p, (uint64_t)(t - p->submissions), result);
    over(p);
}

static void synchronised(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    struct program *p = user;
    if (result != ERR_OK)
        note_failure(p, PROGRAM_NEVER - 1, result);
    over(p);
}

static void woken(void *user)
{
    struct program *p = user;
    p->wake(p->user);
}

/* For work that will report. */
static struct submission *add_submission(struct program *p, int64_t step, int32_t statement)
{
    struct submission *t = &p->submissions[p->n_submissions++];
    *t = (struct submission){p, step, statement};
    expect(p, 1);
    return t;
}

/* --- sinks --- */

static enum err_code queue_put(struct program *p, struct eval_request *req, int64_t step,
                               int32_t statement)
{
    struct eval_watch watch = {.wake = woken, .user = p};
    req->watch = &watch;
    struct submission *t = add_submission(p, step, statement);
    struct array *ret = NULL;
    enum err_code code =
        engine_evaluate(p->stream, p->account, req, &ret, NULL, evaluated, t, &p->err);
    if (code != ERR_OK) {
        expect(p, -1); /* program_submit's own count remains */
        return code;
    }
    array_unref(ret);
    if (watch.guards)
        p->guards[p->n_guards++] = (struct asked_guards){watch.guards, req->expr, step, statement};
    return ERR_OK;
}

static enum err_code queue_fill(struct program *p, const struct target *t, int64_t step,
                                int32_t statement)
{
    struct submission *told = add_submission(p, step, statement);
    enum err_code code = engine_fill_ghost(p->stream, p->account, t->now, evaluated, told, &p->err);
    if (code != ERR_OK)
        expect(p, -1);
    return code;
}

static const struct sink queueing = {queue_put, queue_fill};

static enum err_code record_put(struct program *p, struct eval_request *req, int64_t step,
                                int32_t statement)
{
    (void)step;
    const struct known *name = statement >= 0 ? p->steps[statement].temporary : NULL;
    return loop_add(p->loop, req, name && !name->watched, &p->err);
}

static enum err_code record_fill(struct program *p, const struct target *t, int64_t step,
                                 int32_t statement)
{
    (void)step, (void)statement;
    return loop_fill_ghost(p->loop, t->now, &p->err);
}

static const struct sink recording = {record_put, record_fill};

/* --- a step's work --- */

/* Evaluates into `out`, the whole or a region moved by `at` elements. */
static enum err_code put_at(struct program *p, const struct expr *x, int dtype, struct array *out,
                            const struct view *region, int64_t at, int64_t step, int32_t statement)
{
    struct eval_request req = {.expr = x,
                               .env = &p->env,
                               .dtype = dtype,
                               .fast_math = p->spec.fast_math,
                               .out = out,
                               .out_view = region,
                               .out_at = at,
                               .given_up = &p->given_up,
                               .seen = &p->seen};
    return p->sink->put(p, &req, step, statement);
}

static enum err_code put(struct program *p, const struct expr *x, int dtype, struct array *out,
                         const struct view *region, int64_t step, int32_t statement)
{
    return put_at(p, x, dtype, out, region, 0, step, statement);
}

/* Copies a part of the target's current contents to the same part of `to`. */
static enum err_code copy_part(struct program *p, struct target *t, const struct view *part,
                               struct array *to, const struct view *region, int64_t step,
                               int32_t statement)
{
    t->part = part; /* the name denotes the part here */
    enum err_code code = put(p, &t->itself, -1, to, region, step, statement);
    t->part = NULL;
    return code;
}

static enum err_code copy_whole(struct program *p, struct target *t, struct array *to, int64_t step,
                                int32_t statement)
{
    struct view from, region;
    if (!t->carries)
        return copy_part(p, t, NULL, to, NULL, step, statement);
    grid_whole(t->now->grid, &t->now->view, &from);
    grid_whole(to->grid, &to->view, &region);
    return copy_part(p, t, &from, to, &region, step, statement);
}

static enum err_code copy_ghosts(struct program *p, struct target *t, struct array *to,
                                 int64_t step, int32_t statement)
{
    enum err_code code = ERR_OK;
    for (int axis = 0; axis < to->view.rank; axis++)
        for (int side = FACE_LOW; side <= FACE_HIGH && code == ERR_OK; side++) {
            struct view from, region;
            if (!to->grid->ghost[axis])
                continue;
            ghost_cells(t->now, axis, side, &from);
            ghost_cells(to, axis, side, &region);
            code = copy_part(p, t, &from, to, &region, step, statement);
        }
    return code;
}

/* Whether all of the target's ghosts are filled after statement i, before anything reads them. */
static bool fills_next(const struct program *p, const struct target *t, uint32_t i)
{
    const struct grid *g = t->home->grid;
    while (++i < p->spec.n_body && p->steps[i].target != t)
        if (program_names(&p->steps[i].expr, t->name))
            return false;
    if (i == p->spec.n_body || !p->steps[i].assign->fills)
        return false;
    for (int axis = 0; axis < g->rank; axis++)
        for (int side = FACE_LOW; side <= FACE_HIGH; side++)
            if (g->ghost[axis] && g->face[axis][side].type == FACE_NONE)
                return false;
    return true;
}

/* The array itself must not be written, so the first fill of a slice is done on a copy: the next
 * assignment then goes to the other spare, as if the step had begun with that copy. */
static enum err_code run_fill(struct program *p, struct target *t, int64_t number, int32_t i)
{
    enum err_code code = ERR_OK;
    if (!grid_has_ghosts(t->home->grid))
        return ERR_OK;
    if (t->now == t->home) {
        code = copy_whole(p, t, t->spare[0], number, i);
        if (code != ERR_OK)
            return code;
        t->now = t->spare[0];
        if (t->spare[1])
            t->before = t->now;
    }
    return p->sink->fill(p, t, number, i);
}

static enum err_code run_statement(struct program *p, int64_t number, int32_t i)
{
    struct step *s = &p->steps[i];
    const struct expr *x = &s->expr;
    struct target *t = s->target;
    if (s->inlined)
        return ERR_OK;
    if (!t) {
        enum err_code code = put(p, x, -1, s->own, &s->region, number, i);
        s->temporary->binding = program_binding(s->own);
        return code;
    }
    if (s->assign->fills)
        return run_fill(p, t, number, i);
    if (t->now != t->before)
        return put(p, x, -1, t->now, s->assign->index ? &s->region : NULL, number, i);
    struct array *to = t->spare[t->now == t->spare[0]];
    enum err_code code = ERR_OK;
    if (s->assign->index) {
        code = copy_whole(p, t, to, number, i);
        if (code == ERR_OK)
            code = put(p, x, -1, to, &s->region, number, i);
    } else {
        code = put(p, x, -1, to, NULL, number, i);
        if (code == ERR_OK && t->carries && !fills_next(p, t, (uint32_t)i))
            code = copy_ghosts(p, t, to, number, i);
    }
    if (code == ERR_OK)
        t->now = to;
    return code;
}

enum err_code program_run_step(struct program *p, int64_t number)
{
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].before = p->targets[i].now;
    for (uint32_t i = 0; i < p->spec.n_body; i++) {
        enum err_code code = run_statement(p, number, (int32_t)i);
        if (code != ERR_OK) {
            p->failed_in = number;
            p->statement = (int32_t)i;
            return code;
        }
    }
    return ERR_OK;
}

/* --- steps as a loop --- */

/* Records the first of n steps as passes of the loop. */
static enum err_code record(struct program *p, int64_t step, int64_t n)
{
    enum err_code code = ERR_OK;
    for (int i = 0; i < LOOP_PASSES && i < n && code == ERR_OK && !loop_refusal(p->loop); i++) {
        loop_begin(p->loop);
        code = program_run_step(p, step);
        for (uint32_t k = 0; k < p->n_targets && code == ERR_OK; k++) {
            struct target *t = &p->targets[k];
            const struct array *from = i ? t->at[i - 1] : t->start;
            t->at[i] = t->now;
            if (!loop_carry(p->loop, from, t->now))
                code = err_oom(&p->err);
        }
    }
    return code;
}

enum err_code program_record(struct program *p, int64_t step, int64_t n, struct loop **ret)
{
    p->loop = loop_new(p->stream, p->account);
    if (!p->loop)
        return err_oom(&p->err);
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].start = p->targets[i].now;
    p->sink = &recording;
    enum err_code code = record(p, step, n);
    p->sink = &queueing;
    struct loop *l = p->loop;
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].start;
    if (code != ERR_OK || loop_refusal(l)) {
        p->plain = code == ERR_OK;
        p->never_loops |= p->plain && !loop_may_do_later(l);
        p->why = loop_refusal(l);
        loop_free(l);
        l = NULL;
    }
    *ret = l;
    return code;
}

/* The n steps from `step` on as one piece of work; if they cannot be, p->plain says so. */
static enum err_code run_loop(struct program *p, int64_t step, int64_t n)
{
    int64_t passes;
    struct loop *l;
    enum err_code code = program_record(p, step, n, &l);
    if (code != ERR_OK || !l)
        return code;
    struct submission *t = add_submission(p, step, -1);
    code = loop_submit(l, n, evaluated, t, &passes, &p->report, &p->err);
    if (code != ERR_OK) {
        expect(p, -1);
        p->failed_in = step;
        p->statement = -1;
        return code;
    }
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].at[passes == 1 ? 0 : passes % 2 ? 2 : 1];
    return ERR_OK;
}

static enum err_code run_steps(struct program *p, int64_t step, int64_t end)
{
    enum err_code code = p->plain ? ERR_OK : run_loop(p, step, end - step + 1);
    for (; step <= end && code == ERR_OK && p->plain; step++)
        code = program_run_step(p, step);
    return code;
}

/* Downloads of the last slice may still be running if it was discarded. */
static enum err_code let_go(struct program *p, struct watched *w)
{
    struct array *another;
    if (!array_is_held(w->array))
        return ERR_OK;
    TRY(engine_zeros(p->stream, p->account, w->array->dtype, w->array->view.rank,
                     w->array->view.shape, &another, &p->err));
    array_unref(w->array);
    w->array = another;
    return ERR_OK;
}

/* One value, into an element of the array that is downloaded later. */
enum err_code program_watch(struct program *p, struct watched *w, int64_t at, int64_t step)
{
    struct view element = {.offset = w->array->view.offset};
    int dtype = w->array->dtype == DT_BOOL ? DT_BOOL : -1;
    enum err_code code = at == 0 ? let_go(p, w) : ERR_OK;
    if (code == ERR_OK)
        code = put_at(p, &w->expr, dtype, w->array, &element, at, step, -1);
    if (code != ERR_OK) {
        p->failed_in = step;
        p->statement = -1;
        if (!*p->err.pointer)
            strncpy(p->err.pointer, w->place, sizeof p->err.pointer - 1);
    }
    return code;
}

static enum err_code fetch(struct program *p, struct watched *w, size_t n)
{
    w->have = 0;
    w->want = n * dtype_size(w->array->dtype);
    if (!w->want)
        return ERR_OK;
    enum err_code code = download_new(p->stream, w->array, woken, p, &w->download, &p->err);
    if (code == ERR_OK)
        download_given_up(w->download, &p->given_up);
    return code;
}

static enum err_code look_at_all(struct program *p)
{
    for (uint32_t i = 0; i < p->n_checks; i++)
        TRY(program_watch(p, &p->checks[i], 0, p->end));
    for (uint32_t i = 0; i < p->n_checks; i++)
        TRY(fetch(p, &p->checks[i], 1));
    if (p->until)
        TRY(fetch(p, p->until, p->n_answers));
    for (uint32_t i = 0; i < p->spec.n_series; i++)
        TRY(fetch(p, &p->series[i], p->n_values));
    for (uint32_t i = 0; i < p->spec.n_results; i++)
        if (p->results[i].bytes)
            TRY(fetch(p, &p->results[i], (size_t)view_size(&p->results[i].array->view)));
    return ERR_OK;
}

/* An element cannot be written into contents that failed. */
static enum err_code clear(struct program *p)
{
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < n_watched(p) && code == ERR_OK; i++) {
        struct array *a = watched_at(p, i)->array;
        code = put(p, &p->zero, (int)a->dtype, a, NULL, p->begin + 1, -1);
    }
    p->clears = code != ERR_OK;
    p->failed_in = p->clears ? p->begin + 1 : 0;
    return code;
}

/* The values that are due after `step`. */
static enum err_code look_at_due(struct program *p, int64_t step)
{
    enum err_code code = ERR_OK;
    bool records = p->spec.n_series && is_due(step, p->spec.series_every);
    for (uint32_t i = 0; i < p->spec.n_series && records && code == ERR_OK; i++)
        code = program_watch(p, &p->series[i], p->n_values, step);
    p->n_values += records;
    if (p->until && is_due(step, p->spec.until_every) && code == ERR_OK)
        code = program_watch(p, p->until, p->n_answers++, step);
    return code;
}

static enum err_code queue(struct program *p)
{
    enum err_code code = p->clears ? clear(p) : ERR_OK;
    const int64_t series = p->spec.n_series ? p->spec.series_every : INT64_MAX;
    const int64_t until = p->until ? p->spec.until_every : INT64_MAX;
    for (int64_t step = p->begin, n; step < p->end && code == ERR_OK; step += n) {
        n = least(p->end - step, least(series - step % series, until - step % until));
        code = run_steps(p, step + 1, step + n);
        if (code == ERR_OK)
            code = look_at_due(p, step + n);
    }
    return code == ERR_OK ? look_at_all(p) : code;
}

/* Room for all of the slice's submissions: callbacks point to them, so they must not move. */
static bool reserve(struct program *p, int64_t n)
{
    size_t all = (size_t)n * submissions_of_step(p) + p->n_checks + 1 + n_watched(p);
    if (all > p->cap_submissions) {
        struct submission *submissions = mem_reallocarray(NULL, all, sizeof *submissions);
        struct asked_guards *guards = mem_reallocarray(NULL, all, sizeof *guards);
        if (!submissions || !guards) {
            mem_free(submissions);
            mem_free(guards);
            return false;
        }
        mem_free(p->submissions);
        mem_free(p->guards);
        p->submissions = submissions;
        p->guards = guards;
        p->cap_submissions = all;
    }
    return true;
}

void program_submit(struct program *p, int64_t step, int64_t n, void (*wake)(void *user),
                    void *user)
{
    p->wake = wake;
    p->user = user;
    p->begin = step;
    p->end = step + n;
    p->n_values = p->n_answers = 0;
    p->n_submissions = p->n_guards = p->seen_guards = 0;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        t->version = program_keeps_ghosts(t) ? t->ghosts : array_version(t->home);
    }
    p->discards = p->unready = false;
    p->err = (struct err)ERR_INIT;
    p->failed_in = 0;
    p->statement = -1;
    p->device_ms = 0;
    p->seen = (struct work_seen){0};
    p->plain = p->never_loops;
    p->sink = &queueing;
    atomic_store(&p->first_failure, PROGRAM_NEVER);
    atomic_store(&p->failure, ERR_OK);
    expect(p, 2); /* one until everything is queued, one for engine_sync */
    p->at_once = reserve(p, n) ? queue(p) : err_oom(&p->err);
    engine_sync(p->stream, synchronised, p);
    over(p);
}
