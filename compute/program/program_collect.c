/* The outcome of a slice: once all callbacks have come, why it failed, or what is published. */
#include <stdio.h>
#include <string.h>

#include "compute/memory/memory_int.h"
#include "compute/program/program_int.h"

enum err_code program_placed(struct err *e, enum err_code code, const char *place)
{
    if (code != ERR_OK && !*e->pointer)
        strncpy(e->pointer, place, sizeof e->pointer - 1);
    return code;
}

enum err_code program_of_target(struct err *e, enum err_code code, const struct program_assign *a)
{
    const bool out = code != ERR_OK && !strcmp(e->pointer, "/out");
    if (out && !a->index && (code == ERR_SHAPE_MISMATCH || code == ERR_DTYPE_MISMATCH))
        snprintf(e->message + strlen(e->message), sizeof e->message - strlen(e->message),
                 "; \"%s\" is an array: a temporary needs another name", a->target);
    if (out || (code != ERR_OK && !*e->pointer)) {
        *e->pointer = 0;
        e->offset = a->at;
    }
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
    char why[ENGINE_REASON] = "the device failed during the work";
    if (code == ERR_OUT_OF_MEMORY)
        return err_oom(&p->err);
    if (code == ERR_INTERNAL || code == ERR_FAULTED)
        engine_reason(p->stream->engine, code, 0, why);
    return err_set(&p->err, code, "%s", why);
}

/* The earliest failure that stopped the slice. */
static enum err_code find_failure(struct program *p, enum err_code pulled)
{
    uint64_t first = atomic_load(&p->first_failure);
    if (first != PROGRAM_NEVER) {
        if (first < p->n_tickets) {
            p->failed_in = p->tickets[first].step;
            p->statement = p->tickets[first].statement;
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

/* The arrays take over the slice's results: by exchange of memory, or by copying if their layouts
 * differ. ERR_PRECONDITION_FAILED if another client has written to one in the meantime: the slice's
 * results lack that write. */
static enum err_code publish(struct program *p)
{
    uint32_t n = 0;
    bool stale = false;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        struct target *t = &p->targets[i];
        if (t->now != t->home && array_exchanges(t->home, t->now))
            p->exchanges[n++] = (struct exchange){t->home, t->now, t->version};
        else
            stale |= t->now != t->home && array_version(t->home) != t->version;
    }
    if (stale)
        return ERR_PRECONDITION_FAILED;
    enum err_code code = engine_exchange(p->stream, p->exchanges, n, &p->err);
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
static enum err_code conclude(struct program *p)
{
    if (p->discards)
        return ERR_PRECONDITION_FAILED;
    enum err_code code = p->ready ? p->ready(p->ready_user, p->end, p->n_values, &p->err) : ERR_OK;
    if (code == ERR_OK)
        return publish(p);
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
    bool anywhere =
        (code == ERR_OUT_OF_MEMORY && !of_host) || code == ERR_INTERNAL || code == ERR_FAULTED;
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
        code = conclude(p);
        if (code != ERR_OK)
            ret->state = code == ERR_PRECONDITION_FAILED ? PROGRAM_AGAIN : PROGRAM_FAILED;
    }
    if (ret->state == PROGRAM_FAILED && (code == ERR_INTERNAL || code == ERR_FAULTED) &&
        !p->plain) {
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
    }
    ret->device_ms = p->device_ms;
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].home;
    forget_answers(p);
}

const void *program_values(const struct program *p, uint32_t series, enum dtype *ret_dtype)
{
    *ret_dtype = p->series[series].array->dtype;
    return p->series[series].bytes;
}
