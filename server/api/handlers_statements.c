/* POST /v1/evaluate with "statements": a program of one step, run by the request itself.
 *
 * The step is one slice of the program (program.h), so the assigned arrays get its results all at
 * once or keep what they had, and the reply waits for that. The results' handles, and the whole
 * reply, are made when the step has succeeded but is not yet visible: so anything that can fail
 * does so before the arrays change. The handles are deleted if the step must be repeated because
 * another client wrote to an array meanwhile. A worker plans statements of more than a few nodes,
 * counting the functions they call, as it does for expressions. */
#include "compute/base/clock.h"
#include "compute/program/program.h"
#include "server/api/handlers.h"
#include "server/body/data.h"
#include "server/body/encode.h"
#include "server/body/eval_body.h"
#include "server/body/meta.h"
#include "server/body/program_body.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/http/wakeup.h"
#include "server/jobs/jobs.h"
#include "server/server.h"

#define OFFLOAD_ITEMS    8192 /* a worker prints more result elements than this */
#define LARGE_AGAIN_MOST 10   /* repetitions of a step that a worker has to plan */

struct statements {
    struct json given;
    struct program_body body; /* job.program NULL: not read yet */
    struct wakeup wakeup;
    struct strb reply;
    struct handle *made; /* a reference each */
    uint32_t n_made;
    int64_t items; /* in the reply */
    int again;
    struct lease_use use; /* while the step is repeated: until the engine has the work */
    bool large;           /* a worker makes the plan */
    bool waited;
};

static void forget_handles(struct statements *s)
{
    for (uint32_t i = 0; i < s->n_made; i++)
        handle_clear(&s->made[i]);
    s->n_made = 0;
}

/* Deletes the handles and the reply. */
static void take_back(struct statements *s)
{
    for (uint32_t i = 0; i < s->n_made; i++) {
        struct err e = ERR_INIT; /* a client may have found and deleted it already */
        enum err_code code = handle_remove(s->body.session->handles, s->made[i].id, NULL, &e);
        (void)code;
    }
    forget_handles(s);
    strb_free(&s->reply);
    s->reply = (struct strb){0};
}

static void statements_free(void *state)
{
    struct statements *s = state;
    lease_use_close(&s->use);
    forget_handles(s);
    strb_free(&s->reply);
    program_body_clear(&s->body);
}

static void fail(struct request *req, struct statements *s, const struct err *e)
{
    req->state = NULL;
    take_back(s);
    statements_free(s);
    http_reply_error(req, e);
}

/* program_ready: makes the handles and the reply. */
static enum err_code make_reply(void *user, struct program_slice *made, struct err *e)
{
    (void)made;
    struct statements *s = user;
    const struct program *p = s->body.program;
    struct json_writer w = JSON_WRITER(&s->reply);
    json_open_object(&w);
    json_put_key(&w, "results");
    json_open_object(&w);
    for (uint32_t i = 0; i < s->body.n_results; i++) {
        struct array *a = program_result(p, i);
        const void *bytes = program_result_bytes(p, i);
        json_put_key(&w, s->body.results[i].name);
        if (bytes) {
            encode_put(&w, a->dtype, &a->view, bytes);
            continue;
        }
        struct handle_spec spec = {.policy = NAME_NEW};
        struct handle *h = &s->made[s->n_made];
        TRY(handle_add(s->body.session->handles, a, &spec, h, NULL, e));
        s->n_made++;
        meta_put(&w, h, false);
    }
    json_close_object(&w);
    json_close_object(&w);
    return s->reply.failed ? err_oom(e) : ERR_OK;
}

/* Scalars are always in the reply; with "inline" the elements of all results are. */
static enum err_code choose_inline(struct request *req, struct statements *s, struct err *e)
{
    int64_t max = req->server->config->max_inline;
    for (uint32_t i = 0; i < s->body.n_results; i++) {
        const struct array *a = program_result(s->body.program, i);
        if (a->view.rank && !s->body.inline_data)
            continue;
        int64_t n = data_json_items(&a->view);
        if (n > max - s->items)
            return err_field(e, ERR_INLINE_TOO_LARGE, s->body.results[i].place,
                             "with \"%s\" the results have more than the %lld elements that can be "
                             "returned inline: leave them in arrays",
                             s->body.results[i].name, (long long)max);
        s->items += n;
        TRY(program_fetch(s->body.program, i, e));
    }
    return ERR_OK;
}

static void submit(struct request *req, struct statements *s)
{
    uint64_t begun = clock_ns();
    program_submit(s->body.program, 0, 1, wakeup_ring, &s->wakeup);
    http_took(&req->t_plan, begun);
}

/* Ends the request; false: the step must be repeated. */
static bool conclude(struct request *req, struct statements *s, struct program_progress *g,
                     const struct err *refusal)
{
    struct err e = ERR_INIT;
    if (g->state == PROGRAM_GOES_ON) {
        struct strb reply = s->reply;
        s->reply = (struct strb){0};
        req->t_device = g->device_ms;
        req->tier = request_tiers(g->tiers);
        req->state = NULL;
        statements_free(s);
        http_reply_json(req, 200, &reply);
    } else if (g->state == PROGRAM_FAILED) {
        fail(req, s, &g->err);
    } else if (refusal->code != ERR_OK) {
        fail(req, s, refusal);
    } else if (++s->again == (s->large ? LARGE_AGAIN_MOST : PROGRAM_AGAIN_MOST)) {
        err_set(&e, ERR_CONFLICT,
                "other requests keep writing to these arrays, and this one never got to run");
        fail(req, s, &e);
    } else {
        take_back(s);
        return false;
    }
    return true;
}

static void look(struct request *req);

static void make_anew(struct request *req)
{
    struct statements *s = req->state;
    submit(req, s);
    lease_use_close(&s->use);
    look(req);
}

static void look_now(struct request *req)
{
    struct statements *s = req->state;
    struct program_progress g;
    struct err refusal;
    do {
        _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
        wakeup_arm(&s->wakeup);
        refusal = (struct err)ERR_INIT;
        jobs_publish_begin(req->server->jobs);
        if (program_may_use(&s->body, &refusal) != ERR_OK)
            program_discard(s->body.program);
        program_collect(s->body.program, &g);
        jobs_publish_end(req->server->jobs);
        if (g.state != PROGRAM_WAITING && conclude(req, s, &g, &refusal))
            return;
        if (g.state != PROGRAM_WAITING && s->large) { /* the plan is made again */
            s->use = use;
            use.table = NULL;
            http_offload_long(req, make_anew);
            return;
        }
        if (g.state != PROGRAM_WAITING)
            submit(req, s);
    } while (g.state != PROGRAM_WAITING || (!s->waited && wakeup_soon(&s->wakeup)));
    s->waited = true;
    wakeup_wait(&s->wakeup, look);
}

static void look(struct request *req)
{
    const struct statements *s = req->state;
    if (s->items > OFFLOAD_ITEMS)
        http_offload(req, look_now);
    else
        look_now(req);
}

static enum err_code read_given(struct request *req, struct statements *s, size_t most_nodes,
                                struct err *e)
{
    TRY(statements_body_read(req, s->given, false, most_nodes, &s->body, e));
    if (!s->body.program)
        return ERR_OK;
    wakeup_init(&s->wakeup, req);
    s->made = arena_alloc_array(req->arena, s->body.n_results, sizeof *s->made);
    if (!s->made)
        return err_oom(e);
    TRY(choose_inline(req, s, e));
    program_on_ready(s->body.program, make_reply, s);
    return ERR_OK;
}

static void start(struct request *req, size_t most_nodes);

static void start_any(struct request *req)
{
    struct statements *s = req->state;
    s->large = true;
    start(req, 0);
}

/* most_nodes: a worker continues with more than these; 0: any number. */
static void start(struct request *req, size_t most_nodes)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct statements *s = req->state;
    struct err e = ERR_INIT;
    uint64_t begun = clock_ns();
    enum err_code code = read_given(req, s, most_nodes, &e);
    http_took(&req->t_parse, begun);
    if (code != ERR_OK) {
        fail(req, s, &e);
    } else if (!s->body.program) {
        http_offload_long(req, start_any);
    } else {
        req->abandon = false; /* this request publishes the step's results */
        req->late = NULL;
        submit(req, s);
        look(req);
    }
}

void evaluate_statements(struct request *req, struct json body)
{
    struct err e = ERR_INIT;
    struct statements *s = arena_alloc(req->arena, sizeof *s);
    enum err_code code = s ? request_accepts_json(req, &e) : err_oom(&e);
    if (code != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    s->given = body;
    req->state = s;
    req->state_free = statements_free;
    start(req, EVAL_NODES_HERE);
}
