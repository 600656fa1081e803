/* The expression is text, as a client's is: parsed, checked, planned and cached by the same code,
 * so that a look of a kind that was had before costs no compilation. Numbers that differ from look
 * to look are literals, which are arguments of the kernels and not part of them.
 *
 * A mistake in such a text would be ours. The errors that remain are those of any work: memory,
 * quotas, cost, devices; they get no place, because the client has written nothing. */
#include "server/look/look.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "protocol/text/index.h"
#include "protocol/text/infix.h"
#include "server/body/data.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/work/device_turn.h"

#define MOST_TEXT 2000

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    const struct look *l = user;
    (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (size_t i = 0; i < l->n_names; i++) {
        struct array *a = l->names[i].array;
        if (strcmp(name, l->names[i].name) == 0)
            *ret = (struct binding){
                .kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    }
    return ERR_OK;
}

enum err_code look_array(struct request *req, struct session **ret_s, struct handle *ret_h,
                         struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_array(req, LEASE_READ, &s, &h, e));
    TRY(session_on(s, array_device(h.array), ret_s, e));
    *ret_h = h;
    s = NULL; /* *ret_s has its reference */
    h = (struct handle){0};
    return ERR_OK;
}

static void session_release(void *session)
{
    session_unref(session);
}

bool look_turn(struct request *req, handler_fn *again)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct err e = ERR_INIT;
    if (device_turn_asked(req))
        return true;
    if (culprits_admit(req->server->culprits, req->principal->name, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return false;
    }
    if (look_array(req, &s, &h, &e) != ERR_OK || !s->lane)
        return true;
    return device_turn_take(req, s->lane, session_release, session_ref(s), again);
}

void look_init(struct look *l, struct request *req, struct session *take_s)
{
    l->req = req;
    l->session = take_s;
    l->env = (struct check_env){.resolve = resolve, .user = l, .max_inputs = LOOK_NAMES};
    wakeup_init(&l->wakeup, req);
    look_clear(l);
}

void look_name(struct look *l, const char *name, struct array *take_a)
{
    l->names[l->n_names].name = name;
    l->names[l->n_names++].array = take_a;
}

enum err_code look_count(struct look *l, const char *name, int64_t n, struct err *e)
{
    const struct literal zero = {.kind = LIT_INT}, one = {.kind = LIT_INT, .i = 1},
                         stop = {.kind = LIT_INT, .i = n};
    struct array *a;
    TRY(engine_arange(l->session->stream, l->session->account, DT_I64, &zero, &stop, &one, &a, e));
    look_name(l, name, a);
    return ERR_OK;
}

void look_clear(struct look *l)
{
    expr_init(&l->expr, l->req->arena, MOST_NODES, MOST_NESTING);
    if (l->download)
        download_free(l->download);
    l->download = NULL;
    l->have = 0;
    l->waited = false;
}

static enum err_code parse(struct look *l, const char *text, uint32_t *ret, struct err *e)
{
    uint32_t source;
    TRY(expr_add_source(&l->expr, "", &source, e));
    return infix_parse(&l->expr, source, text, strlen(text), ret, e);
}

void look_let(struct look *l, const char *name, const char *fmt, ...)
{
    struct err e = ERR_INIT;
    char text[MOST_TEXT];
    uint32_t node;
    va_list args;
    if (l->failed)
        return;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert(n > 0 && n < MOST_TEXT);
    l->failed = n > 0 ? parse(l, text, &node, &e) : ERR_INTERNAL;
    if (!l->failed)
        l->failed = expr_add_let(&l->expr, name, node, &e);
}

static void without_place(struct err *e)
{
    e->offset = -1;
    e->pointer[0] = '\0';
}

static void fail(struct look *l, struct err *e)
{
    without_place(e);
    http_reply_error(l->req, e);
}

static enum err_code may_read(const struct look *l, struct err *e)
{
    const struct handle *h = l->of;
    if (!h)
        return ERR_OK;
    if (h->shared && !share_lasts(l->req->server->shares, h->id, l->req->principal, false))
        return err_set(e, ERR_NOT_FOUND, "there is no array '%s'", h->id);
    return request_leased(l->req, h->array, LEASE_READ, e);
}

/* Of this step, beside those before. Work on one stream is over in its order. */
static void add_device_time(struct look *l)
{
    struct request *req = l->req;
    double ms = req->t_device > 0 ? req->t_device : 0;
    if (!l->download)
        return;
    data_times(req, l->download, true);
    while (l->n_unmeasured > 0)
        ms += array_device_ms(l->unmeasured[--l->n_unmeasured]);
    req->t_device += ms;
}

static void fetched(struct look *l)
{
    struct err e = ERR_INIT;
    add_device_time(l);
    if (may_read(l, &e) != ERR_OK)
        fail(l, &e);
    else
        l->then(l);
}

static void fetch(struct look *l);

static void fetch_now(struct request *req)
{
    fetch(req->state);
}

/* To a worker: to copy a picture and to plan the next step takes longer than others should wait. */
static void fetch_on(struct request *req)
{
    http_offload(req, fetch_now);
}

static void fetch(struct look *l)
{
    while (l->have < l->n) {
        wakeup_arm(&l->wakeup);
        uint64_t begun = clock_ns();
        const int64_t got =
            download_pull(l->download, (int64_t)l->have, l->bytes + l->have, l->n - l->have);
        if (got < 0) {
            struct err e = ERR_INIT;
            data_error(l->download, &e);
            fail(l, &e);
            return;
        }
        if (got == 0) {
            if (!l->waited && wakeup_soon(&l->wakeup))
                continue;
            l->waited = true;
            wakeup_wait(&l->wakeup, fetch_on);
            return;
        }
        http_took(&l->req->t_copy, begun);
        l->have += (size_t)got;
    }
    fetched(l);
}

static void add(double *field, double ms)
{
    *field = (*field > 0 ? *field : 0) + ms;
}

static enum err_code evaluate(struct look *l, const char *text, struct array **ret, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(l->req->server->uses);
    struct eval_times times = {0};
    TRY(may_read(l, e));
    if (l->failed || !text)
        return err_oom(e);
    TRY(parse(l, text, &l->expr.root, e));
    const struct eval_request request = {.expr = &l->expr, .env = &l->env, .dtype = -1};
    TRY(engine_evaluate(l->session->stream, l->session->account, &request, ret, &times, NULL, NULL,
                        e));
    add(&l->req->t_plan, times.check + times.lower);
    add(&l->req->t_compile, times.compile);
    return ERR_OK;
}

static void drop_bytes(struct look *l)
{
    if (!l->bytes)
        return;
    mem_free(l->bytes);
    mem_gave_back(l->n);
    metered_end(&l->counted);
    l->bytes = NULL;
}

/* Not the arena's, which is zeroed first, and given back by the listener's thread. */
static bool take_bytes(struct look *l)
{
    if (l->n <= METERED_LEAST || metered_set(&l->counted, (int64_t)l->n))
        l->bytes = mem_alloc(l->n);
    if (!l->bytes)
        metered_end(&l->counted);
    return l->bytes;
}

static enum err_code run(struct look *l, const char *text, struct err *e)
{
    _cleanup_array_ struct array *a = NULL;
    drop_bytes(l);
    TRY(evaluate(l, text, &a, e));
    l->dtype = a->dtype;
    l->n = (size_t)array_nbytes(a);
    TRY(view_contiguous(a->view.rank, a->view.shape, dtype_size(a->dtype), &l->view, e));
    if (!l->n)
        return ERR_OK;
    if (!take_bytes(l))
        return err_oom(e);
    return download_new(l->session->stream, a, wakeup_ring, &l->wakeup, &l->download, e);
}

enum err_code look_keep(struct look *l, const char *name, const char *text, struct err *e)
{
    struct array *a = NULL;
    if (evaluate(l, text, &a, e) != ERR_OK) {
        without_place(e);
        return e->code;
    }
    look_name(l, name, a);
    look_measure(l, a);
    return ERR_OK;
}

void look_measure(struct look *l, const struct array *a)
{
    l->unmeasured[l->n_unmeasured++] = a;
}

void look_run(struct look *l, const char *text, void (*then)(struct look *l))
{
    struct err e = ERR_INIT;
    l->then = then;
    if (run(l, text, &e) != ERR_OK)
        fail(l, &e);
    else
        fetch(l);
}

void look_free(struct look *l)
{
    drop_bytes(l);
    if (l->download)
        download_free(l->download);
    l->download = NULL;
    for (size_t i = 0; i < l->n_names; i++)
        array_unref(l->names[i].array);
    l->n_names = 0;
    session_unref(l->session);
    l->session = NULL;
}

/* Whether ?ghost= includes ghost cells. */
static enum err_code wants_ghosts(struct request *req, bool *ret, struct err *e)
{
    const char *text = http_query(req, "ghost");
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return err_set(e, ERR_BAD_FIELD, "ghost must be 0 or 1");
    *ret = text && *text == '1';
    return ERR_OK;
}

enum err_code look_region(struct request *req, const struct array *a, struct view *ret,
                          struct err *e)
{
    const char *text = http_query(req, "index");
    bool ghosts;
    TRY(wants_ghosts(req, &ghosts, e));
    if (!text) {
        *ret = a->view;
        if (ghosts)
            grid_whole(a->grid, &a->view, ret);
        return ERR_OK;
    }
    struct index_spec *spec = arena_alloc(req->arena, sizeof *spec);
    if (!spec)
        return err_oom(e);
    TRY(index_parse(text, strlen(text), spec, e));
    return ghosts ? grid_index(a->grid, &a->view, spec, ret, e)
                  : view_index(&a->view, spec, ret, e);
}
