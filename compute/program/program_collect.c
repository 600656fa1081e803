/* The outcome of a slice: once all callbacks have come, why it failed, or what is published. */
#include <stdio.h>
#include <string.h>

#include "compute/engine/engine.h"
#include "compute/memory/task.h"
#include "compute/program/program_int.h"

enum err_code program_placed(struct err *e, enum err_code code, const char *place)
{
    if (code != ERR_OK && !*e->pointer)
        strncpy(e->pointer, place, sizeof e->pointer - 1);
    return code;
}

enum err_code program_of_target(struct err *e, enum err_code code, const struct program_assign *a)
{
    if (code != ERR_OK && e->of_target && !a->index &&
        (code == ERR_SHAPE_MISMATCH || code == ERR_DTYPE_MISMATCH))
        snprintf(e->message + strlen(e->message), sizeof e->message - strlen(e->message),
                 "; \"%s\" is an array, so a temporary needs another name", a->target);
    if (code != ERR_OK && !*e->pointer)
        e->offset = a->at;
    return program_placed(e, code, a->place);
}

static bool all_told(struct program *p)
{
    pthread_mutex_lock(&p->told);
    bool all = p->outstanding == 0;
    pthread_mutex_unlock(&p->told);
    return all;
}

/* 1: all bytes have arrived, 0: not yet, −1: they never will. */
static int pull(struct watched *w)
{
    while (w->download && w->have < w->want) {
        int64_t got =
            download_pull(w->download, (int64_t)w->have, w->bytes + w->have, w->want - w->have);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        w->have += (size_t)got;
    }
    return 1;
}

/* The same for all downloads; *ret_why: the reason for −1. */
static int pull_all(struct program *p, enum err_code *ret_why)
{
    int all = 1;
    for (uint32_t i = 0; i < n_watched(p) && all == 1; i++) {
        all = pull(watched_at(p, i));
        if (all < 0)
            *ret_why = download_result(watched_at(p, i)->download);
    }
    for (; p->seen_guards < p->n_guards && all == 1; p->seen_guards += all == 1) {
        struct eval_guards *g = p->guards[p->seen_guards].guards;
        all = eval_guards_pull(g);
        if (all < 0)
            *ret_why = download_result(eval_guards_download(g));
    }
    return all;
}

static void forget_answers(struct program *p)
{
    for (uint32_t i = 0; i < n_watched(p); i++) {
        struct watched *w = watched_at(p, i);
        download_free(w->download);
        w->download = NULL;
    }
    for (size_t i = 0; i < p->n_guards; i++)
        eval_guards_free(p->guards[i].guards);
    p->n_guards = 0;
}

/* The device's own failures have no message but the code. */
static enum err_code say_why(struct program *p, enum err_code code)
{
    char why[ENGINE_REASON] = "the device failed while it ran this work";
    if (code == ERR_OUT_OF_MEMORY)
        return err_oom(&p->err);
    if (err_has_reason(code) || code == ERR_CONTENTS_LOST)
        engine_reason(p->stream->engine, code, 0, why);
    return err_set(&p->err, code, "%s", why);
}

/* The earliest failure that stopped the slice. */
static enum err_code find_failure(struct program *p, enum err_code pulled)
{
    uint64_t first = atomic_load(&p->first_failure);
    if (first != PROGRAM_NEVER) {
        if (first < p->n_submissions) {
            p->failed_in = p->submissions[first].step;
            p->statement = p->submissions[first].statement;
        }
        return say_why(p, (enum err_code)atomic_load(&p->failure));
    }
    for (size_t i = 0; i < p->seen_guards; i++) {
        struct asked_guards *g = &p->guards[i];
        if (eval_guards_verdict(g->guards, g->expr, &p->err) != ERR_OK) {
            p->failed_in = g->step;
            p->statement = g->statement;
            return p->err.code;
        }
    }
    if (p->at_once != ERR_OK)
        return p->at_once;
    return pulled != ERR_OK ? say_why(p, pulled) : ERR_OK;
}

static enum err_code copy_home(struct program *p, struct target *t)
{
    struct eval_request req = {.expr = &t->itself, .env = &p->env, .dtype = -1, .out = t->home};
    struct array *ret = NULL;
    struct view from, to;
    if (t->carries) {
        grid_whole(t->now->grid, &t->now->view, &from);
        grid_whole(t->home->grid, &t->home->view, &to);
        t->part = &from;
        req.out_view = &to;
    }
    enum err_code code =
        engine_evaluate(p->stream, p->account, &req, &ret, NULL, NULL, NULL, &p->err);
    t->part = NULL;
    if (code == ERR_OK)
        array_unref(ret);
    return code;
}

static bool is_exchanged(const struct program *p, const struct target *t)
{
    uint32_t i = 0;
    while (i < p->n_exchanges && p->exchanges[i].a != t->home)
        i++;
    return i < p->n_exchanges;
}

/* Finds the arrays that exchange their memory; the others are copied to, because their layouts
 * differ, or because only the array's own memory outlives the process. */
static void find_exchanges(struct program *p)
{
    p->n_exchanges = 0;
    p->copies = false;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        if (t->now == t->home)
            continue;
        if (array_exchanges(t->home, t->now))
            p->exchanges[p->n_exchanges++] = (struct exchange){t->home, t->now, t->version};
        else
            p->copies = true;
    }
}

/* The arrays take over the slice's results, by exchange of memory or by copying.
 * ERR_PRECONDITION_FAILED if another client has written to one in the meantime: the slice's results
 * lack that write. */
static enum err_code publish(struct program *p, const void *with)
{
    const uint32_t n = p->n_exchanges;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const struct target *t = &p->targets[i];
        if (t->now != t->home && !is_exchanged(p, t) && array_version(t->home) != t->version)
            return ERR_PRECONDITION_FAILED;
    }
    enum err_code code = engine_exchange(p->stream, p->exchanges, n, with, &p->err);
    for (uint32_t i = 0, k = 0; i < p->n_targets && code == ERR_OK; i++) {
        struct target *t = &p->targets[i];
        if (k < n && p->exchanges[k].a == t->home)
            t->ghosts = p->exchanges[k++].version;
        else if (t->now != t->home)
            code = copy_home(p, t);
    }
    return code;
}

/* The number of steps after which `until` was first true; INT64_MAX: never. */
static int64_t true_after(const struct program *p)
{
    const int64_t every = p->spec.until_every;
    for (uint32_t i = 0; i < p->n_answers; i++)
        if (p->until->bytes[i])
            return (p->begin / every + 1 + i) * every;
    return INT64_MAX;
}

static bool has_nan(const struct program *p)
{
    for (uint32_t i = 0; i < p->n_checks; i++)
        if (p->checks[i].bytes[0])
            return true;
    return false;
}

/* The outcome of a slice that succeeded. One that overran is discarded, since the arrays have none
 * of it yet; shorter ones follow. */
static enum program_state verdict(struct program *p)
{
    const int64_t until = true_after(p);
    if (until < p->end) {
        p->stop_at = until;
        return PROGRAM_AGAIN;
    }
    if (!has_nan(p))
        return until == p->end ? PROGRAM_UNTIL : PROGRAM_GOES_ON;
    if (p->end == p->begin + 1)
        return PROGRAM_NAN;
    p->nan_within = p->end;
    return PROGRAM_AGAIN;
}

/* Delivers the results of a slice that succeeded. */
static enum err_code conclude(struct program *p, bool until, bool *ret_later)
{
    *ret_later = false;
    if (p->discards)
        return ERR_PRECONDITION_FAILED;
    find_exchanges(p);
    struct program_slice made = {
        .steps = p->end, .n_values = p->n_values, .until = until, .copies = p->copies};
    enum err_code code = p->ready ? p->ready(p->ready_user, &made, &p->err) : ERR_OK;
    *ret_later = code == ERR_OK && made.later;
    if (code == ERR_OK)
        return made.later ? ERR_OK : publish(p, made.with);
    p->unready = true;
    p->failed_in = p->end;
    return code;
}

/* After a failure: whether the steps before it can be run by themselves. Steps that failed for lack
 * of memory may fail anywhere the next time, except for host memory, which is allocated while they
 * are queued. */
static bool can_stop_before(struct program *p, enum err_code code)
{
    bool of_host = code == p->at_once && p->err.wanted <= 0;
    bool anywhere = (code == ERR_OUT_OF_MEMORY && !of_host) || err_has_reason(code);
    if (code == ERR_DEVICE_LOST || (anywhere && !p->unready) || p->failed_in <= p->begin + 1)
        return false;
    p->stop_at = p->failed_in - 1;
    return true;
}

void program_discard(struct program *p)
{
    p->discards = true;
}

void program_give_up(struct program *p)
{
    atomic_store(&p->given_up, true);
}

void program_collect(struct program *p, struct program_progress *ret)
{
    *ret = (struct program_progress){.state = PROGRAM_WAITING, .steps = p->begin, .statement = -1};
    if (!all_told(p))
        return;
    bool whole = atomic_load(&p->first_failure) == PROGRAM_NEVER && p->at_once == ERR_OK;
    enum err_code why = ERR_OK;
    int pulled = whole || p->n_guards ? pull_all(p, &why) : 1;
    if (pulled == 0 && whole)
        return;
    enum err_code code = find_failure(p, why);
    ret->state = code == ERR_OK ? verdict(p) : PROGRAM_FAILED;
    if (ret->state == PROGRAM_GOES_ON || ret->state == PROGRAM_UNTIL) {
        bool later;
        code = conclude(p, ret->state == PROGRAM_UNTIL, &later);
        if (later) {
            ret->state = PROGRAM_WAITING;
            return;
        }
        if (code != ERR_OK)
            ret->state = code == ERR_PRECONDITION_FAILED ? PROGRAM_AGAIN : PROGRAM_FAILED;
    }
    if (ret->state == PROGRAM_FAILED && err_has_reason(code) && !p->plain) {
        p->never_loops = p->clears = true;
        p->why = code == ERR_INTERNAL ? "the kernels of several statements could not be compiled"
                                      : "the kernels of several statements are refused";
        ret->state = PROGRAM_AGAIN;
    }
    if (ret->state == PROGRAM_FAILED && can_stop_before(p, code)) {
        p->clears = true;
        ret->state = PROGRAM_AGAIN;
    }
    if (ret->state == PROGRAM_FAILED) {
        p->clears = true;
        ret->err = p->err;
        ret->err.code = code;
        ret->failed_in = p->failed_in ? p->failed_in : p->end;
        ret->statement = p->statement;
    } else if (ret->state == PROGRAM_GOES_ON || ret->state == PROGRAM_UNTIL) {
        ret->steps = p->end;
        ret->n_values = p->n_values;
        ret->copies = p->copies;
    }
    ret->device_ms = p->device_ms;
    ret->tiers = atomic_load(&p->seen.tiers);
    ret->forms = atomic_load(&p->seen.forms);
    ret->bytes = atomic_load(&p->seen.bytes);
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].home;
    forget_answers(p);
}

const void *program_values(const struct program *p, uint32_t series, enum dtype *ret_dtype)
{
    *ret_dtype = p->series[series].array->dtype;
    return p->series[series].bytes;
}
