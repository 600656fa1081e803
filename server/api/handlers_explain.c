/* POST /v1/explain: what evaluate, or a program, would do with the same body, without doing it.
 *
 * "tree" is the typed expression, nested. It is a graph: a node that has been printed before, or is
 * nested too deeply for a JSON reader, appears as {"ref": id}; "nodes" lists every node once,
 * children first. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/check/typed.h"
#include "compute/ir/ir.h"
#include "compute/program/program.h"
#include "protocol/json/json_writer.h"
#include "server/api/handlers.h"
#include "server/body/eval_body.h"
#include "server/body/meta.h"
#include "server/body/program_body.h"
#include "server/body/request.h"
#include "server/http/wakeup.h"
#include "server/jobs/jobs.h"
#include "server/server.h"
#include "server/work/copy_rate.h"
#include "server/work/scheduler.h"

#define TREE_DEPTH 40
#define LAUNCH_S   2e-6 /* of a kernel, however little it does */
#define YEAR_S     31557600.0

static const char *kind_name(const struct typed_node *n)
{
    switch (n->kind) {
    case T_CONST:
        return "const";
    case T_INPUT:
        return "input";
    case T_OP:
        return op_table[n->op].name;
    case T_CAST:
        return "astype";
    case T_WHERE:
        return "where";
    case T_SHIFT:
        return "shift";
    case T_INDEX:
        return "index";
    case T_UNRAVEL:
        return "unravel_index";
    case T_VIEW:
        return "getitem";
    case T_REDUCE:
        return reduce_name(n->reduce.op);
    case T_SCAN:
        return scan_name(n->scan.op);
    case T_RESHAPE:
        return "reshape";
    case T_GATHER:
        return "gather";
    case T_TABLE:
        return "table";
    case T_PUT:
        return "put";
    case T_GUARDED:
        return "guarded";
    case T_RANDOM:
        return "random";
    }
    return "?";
}

static void put_list(struct json_writer *w, const char *key, int n, const int64_t *v)
{
    json_put_key(w, key);
    json_put_i64_list(w, (size_t)n, v);
}

static void put_view(struct json_writer *w, const struct affine *v)
{
    int64_t src[MAX_RANK];
    for (int k = 0; k < v->rank; k++)
        src[k] = v->src[k];
    put_list(w, "axes", v->rank, src);
    put_list(w, "start", v->rank, v->start);
    put_list(w, "step", v->rank, v->step);
}

static void put_reduce(struct json_writer *w, const struct typed_node *n, int rank)
{
    json_put_key(w, "axis");
    json_open_list(w);
    for (int k = 0; k < rank; k++)
        if (n->reduce.axes >> k & 1)
            json_put_i64(w, k);
    json_close_list(w);
    json_put_member_bool(w, "keepdims", n->reduce.keepdims);
}

/* All members of a node but its arguments. */
static void put_node(struct json_writer *w, const struct typed *t, uint32_t id)
{
    const struct typed_node *n = &t->nodes[id];
    json_put_member_i64(w, "id", id);
    json_put_member_string(w, "op", kind_name(n));
    json_put_member_string(w, "dtype", dtype_name(n->dtype));
    if (!n->open)
        put_list(w, "shape", n->rank, n->shape);
    switch (n->kind) {
    case T_CONST:
        json_put_key(w, "value");
        json_put_scalar(w, &n->value);
        break;
    case T_INPUT:
        json_put_member_string(w, "name", t->inputs[n->input].name);
        break;
    case T_SHIFT:
        put_list(w, "offsets", t->nodes[n->args[0]].rank, n->shift.offsets);
        json_put_member_string(w, "boundary", boundary_name(n->shift.mode));
        break;
    case T_INDEX:
    case T_UNRAVEL:
        json_put_member_i64(w, "axis", n->axis);
        break;
    case T_VIEW:
        put_view(w, n->view);
        break;
    case T_SCAN:
        json_put_member_i64(w, "axis", n->scan.axis);
        break;
    case T_PUT:
        json_put_member_i64(w, "axis", n->put.axis);
        put_list(w, "start", 1, &n->put.offset);
        break;
    case T_REDUCE:
        put_reduce(w, n, t->nodes[n->args[0]].rank);
        break;
    default:
        break;
    }
}

static void put_tree(struct json_writer *w, const struct typed *t, uint32_t id, int depth,
                     bool *written)
{
    const struct typed_node *n = &t->nodes[id];
    json_open_object(w);
    if (n->n_args && (depth >= TREE_DEPTH || written[id])) {
        json_put_member_i64(w, "ref", id);
    } else {
        written[id] = true;
        put_node(w, t, id);
        if (n->n_args) {
            json_put_key(w, "args");
            json_open_list(w);
            for (int i = 0; i < n->n_args; i++)
                put_tree(w, t, n->args[i], depth + 1, written);
            json_close_list(w);
        }
    }
    json_close_object(w);
}

static void put_nodes(struct json_writer *w, const struct typed *t)
{
    json_open_list(w);
    for (uint32_t id = 0; id < t->n_nodes; id++) {
        const struct typed_node *n = &t->nodes[id];
        json_open_object(w);
        put_node(w, t, id);
        json_put_key(w, "args");
        json_open_list(w);
        for (int i = 0; i < n->n_args; i++)
            json_put_i64(w, n->args[i]);
        json_close_list(w);
        json_close_object(w);
    }
    json_close_list(w);
}

/* names: an array's name for each input, NULL for an earlier kernel's temporary. */
static void put_inputs(struct json_writer *w, const struct ir_kernel *k, const char *const *names)
{
    json_put_key(w, "inputs");
    json_open_list(w);
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        json_open_object(w);
        json_put_member_string(w, "name", names[i]);
        json_put_member_string(w, "dtype", dtype_name(k->inputs[i].dtype));
        json_close_object(w);
    }
    json_close_list(w);
}

/* The members of a kernel's object, which is open: how it runs, freed, and what it does. */
static bool put_how(struct json_writer *w, struct kernel_explanation *of, const struct ir_kernel *k,
                    const char *const *names)
{
    const struct kernel_explanation how = *of;
    static const char *const names_of_known[] = {"registers", "shared_bytes", "local_bytes"};
    const int known[] = {how.registers, how.shared, how.local};
    _cleanup_strb_ struct strb source = how.source;
    _cleanup_strb_ struct strb ir = {0};
    ir_print(k, &ir);
    if (source.failed || ir.failed)
        return false;
    json_put_member_string(w, "shape", how.form);
    put_list(w, "iteration", k->rank, k->shape);
    json_put_member_i64(w, "nodes", k->n_nodes);
    put_inputs(w, k, names);
    json_put_member_i64(w, "bytes_read", ir_bytes_read(k));
    json_put_member_i64(w, "bytes_written", ir_bytes_written(k));
    json_put_member_bool(w, "cached", how.cached);
    json_put_member_bool(w, "interpreted", how.interpreted);
    for (int i = 0; i < 3 && known[i] >= 0; i++)
        json_put_member_i64(w, names_of_known[i], known[i]);
    if (how.parts > 0) {
        json_put_member_i64(w, "parts", how.parts);
        json_put_member_i64(w, "remote_bytes", how.remote);
        json_put_member_string(w, "barrier", how.waits ? "all" : "none");
    }
    json_put_member_string(w, "source", source.data ? source.data : "");
    json_put_member_string(w, "ir", ir.data ? ir.data : "");
    return true;
}

static bool put_kernel(struct json_writer *w, struct engine_stream *stream,
                       const struct ir_kernel *k, const char *const *names)
{
    struct kernel_explanation how;
    engine_explain_kernel(stream, k, &how);
    return put_how(w, &how, k, names);
}

/* The names of a kernel's operands; NULL without memory. */
static const char **operand_names(struct request *req, const struct typed *t,
                                  const struct ir_plan *p, const struct ir_kernel *k)
{
    const char **names = arena_alloc_array(req->arena, k->n_inputs + 1, sizeof(const char *));
    for (uint32_t n = 0; names && n < k->n_inputs; n++) {
        const struct ir_slot *slot = &p->slots[k->inputs[n].slot];
        names[n] = slot->kind == SLOT_INPUT ? t->inputs[slot->index].name : NULL;
    }
    return names;
}

/* The whole that takes the place of kernel number i and of those behind it, if there is one. */
static bool put_whole(struct json_writer *w, struct request *req, const struct typed *t,
                      const struct ir_plan *p, uint32_t i)
{
    const struct eval_body *b = req->state;
    const struct ir_whole *whole = p->kernels[i]->whole, *other = whole ? whole->next : NULL;
    struct engine_stream *stream = b->reader.session->stream;
    struct kernel_explanation how;
    const char *why = "", *other_why;
    if (!whole)
        return true;
    bool runs = engine_explain_whole(stream, whole, &how, &why);
    if (!runs && other && engine_explain_whole(stream, other, &how, &other_why)) {
        runs = true;
        whole = other;
    }
    const char **names = operand_names(req, t, p, whole->kernel);
    if (!names) {
        if (runs)
            strb_free(&how.source);
        return false;
    }
    json_open_object(w);
    json_put_key(w, "kernels");
    json_open_list(w);
    for (uint32_t n = 0; n < whole->n_parts; n++)
        json_put_i64(w, i + n);
    json_close_list(w);
    bool put = true;
    if (runs)
        put = put_how(w, &how, whole->kernel, names);
    else
        json_put_member_string(w, "why", why);
    json_close_object(w);
    return put;
}

static bool put_planned(struct json_writer *w, struct request *req, const struct typed *t,
                        const struct ir_plan *p, uint32_t i)
{
    const struct eval_body *b = req->state;
    const struct ir_kernel *k = p->kernels[i];
    const char **names = operand_names(req, t, p, k);
    if (!names)
        return false;
    json_open_object(w);
    json_put_member_i64(w, "index", i);
    bool put = put_kernel(w, b->reader.session->stream, k, names);
    json_close_object(w);
    return put;
}

/* What became of each correlate() that was taken apart. */
static void put_factored(struct json_writer *w, const struct typed *t)
{
    json_put_key(w, "factored");
    json_open_list(w);
    for (uint32_t i = 0; i < t->n_factored; i++) {
        const struct typed_factored *f = &t->factored[i];
        json_open_object(w);
        put_list(w, "weights", f->rank, f->shape);
        json_put_member_i64(w, "terms", f->terms);
        json_put_member_string(w, "as", f->passes ? "passes" : "sums");
        json_close_object(w);
    }
    json_close_list(w);
}

static enum err_code put_explanation(struct request *req, const struct eval_explanation *x,
                                     struct strb *out, struct err *e)
{
    const struct typed *t = &x->typed;
    struct json_writer w = JSON_WRITER(out);
    bool *written = arena_alloc(req->arena, t->n_nodes ? t->n_nodes : 1);
    _cleanup_strb_ struct strb text = {0};
    typed_print(t, &text);
    if (!written || text.failed)
        return err_oom(e);
    int64_t bytes_read = 0, bytes_written = 0;
    json_open_object(&w);
    json_put_key(&w, "tree");
    put_tree(&w, t, t->root, 0, written);
    json_put_key(&w, "nodes");
    put_nodes(&w, t);
    json_put_member_string(&w, "text", text.data ? text.data : "");
    json_put_key(&w, "kernels");
    json_open_list(&w);
    for (uint32_t i = 0; i < x->plan->n_kernels; i++) {
        if (!put_planned(&w, req, t, x->plan, i))
            return err_oom(e);
        bytes_read += ir_bytes_read(x->plan->kernels[i]);
        bytes_written += ir_bytes_written(x->plan->kernels[i]);
    }
    json_close_list(&w);
    json_put_key(&w, "wholes");
    json_open_list(&w);
    for (uint32_t i = 0; i < x->plan->n_kernels; i++)
        if (!put_whole(&w, req, t, x->plan, i))
            return err_oom(e);
    json_close_list(&w);
    if (t->n_factored)
        put_factored(&w, t);
    json_put_member_i64(&w, "bytes_read", bytes_read);
    json_put_member_i64(&w, "bytes_written", bytes_written);
    json_put_key(&w, "result");
    json_open_object(&w);
    json_put_member_string(&w, "dtype", dtype_name(t->nodes[t->root].dtype));
    put_list(&w, "shape", t->nodes[t->root].rank, t->nodes[t->root].shape);
    json_close_object(&w);
    json_close_object(&w);
    return out->failed ? err_oom(e) : ERR_OK;
}

static void body_free(void *state)
{
    eval_body_clear(state);
}

static void explain(struct request *req)
{
    const struct eval_body *b = req->state;
    struct err e = ERR_INIT;
    struct eval_explanation x;
    struct strb out = {0};
    enum err_code code = eval_body_placed(
        engine_explain(b->reader.session->stream, &b->request, req->arena, &x, &e), &e);
    if (code == ERR_OK) {
        req->t_plan = x.times.check + x.times.lower;
        uint64_t begun = clock_ns();
        code = put_explanation(req, &x, &out, &e);
        if (engine_compiles(req->server->engine))
            http_took(&req->t_compile, begun);
    }
    if (code == ERR_OK) {
        http_reply_json(req, 200, &out);
        return;
    }
    strb_free(&out);
    http_reply_error(req, &e);
}

/* --- programs --- */

struct program_put {
    struct json_writer *w;
    struct engine_stream *stream;
    uint32_t n;
    uint32_t n_step;    /* kernels of one step, */
    double step, steps; /* and the bytes that they move; those of the kernel for several steps */
};

static enum err_code put_program_kernel(void *user, const struct program_kernel *k, struct err *e)
{
    struct program_put *to = user;
    json_open_object(to->w);
    json_put_member_i64(to->w, "index", to->n++);
    if (k->statement >= 0)
        json_put_member_i64(to->w, "statement", k->statement);
    if (k->kernel->steps > 1)
        json_put_member_i64(to->w, "steps", k->kernel->steps);
    bool put = put_kernel(to->w, to->stream, k->kernel, k->inputs);
    json_close_object(to->w);
    const double bytes = (double)ir_bytes_read(k->kernel) + (double)ir_bytes_written(k->kernel);
    if (k->kernel->steps > 1) {
        to->steps = bytes;
    } else {
        to->n_step++;
        to->step += bytes;
    }
    return put ? ERR_OK : err_oom(e);
}

/* What all steps are expected to take: what they took when they last ran; else as if each by
 * itself ran at the memory's speed. Without the daemon's knowing that, no time is told. */
static void put_expected(struct request *req, const struct program_body *body,
                         const struct program_put *to, const struct loop_report *report)
{
    const double steps = (double)body->steps;
    const double bytes = steps * (report->steps > 1 ? to->steps / report->steps : to->step);
    const int device = body->session->device;
    const double rate = copy_rate(req->server->rates, device);
    double s = report->step_ms * 1e-3 * steps;
    json_put_key(to->w, "expected");
    json_open_object(to->w);
    json_put_member_double(to->w, "bytes_moved", bytes);
    if (rate > 0)
        json_put_member_double(to->w, "copy_rate", rate);
    if (s > 0 || rate > 0) {
        const size_t jobs = jobs_running(req->server->jobs, req->principal, device);
        const double share =
            sched_share(req->server->sched, &req->principal->weight, device) / (double)(jobs + 1);
        json_put_member_string(to->w, "by", s > 0 ? "last_run" : "copy_rate");
        s = s > 0 ? s : steps * (to->step / rate + to->n_step * LAUNCH_S);
        json_put_member_double(to->w, "device_s", s);
        json_put_member_double(to->w, "share", share);
        json_put_member_double(to->w, "elapsed_s", s / share);
        if (s / share < YEAR_S)
            meta_put_time(to->w, "ends", clock_date_us() + (int64_t)(s / share * 1e6));
    }
    json_close_object(to->w);
}

struct asked {
    struct json given;
    bool statements;
    struct program_body body;
    struct request *req;
    struct wakeup wakeup;
    struct copy_wait wait;
    bool waits;
};

static void asked_free(void *state)
{
    struct asked *a = state;
    if (a->waits)
        copy_rate_leave(a->req->server->rates, &a->wait);
    program_body_clear(&a->body);
}

static enum err_code put_program(struct request *req, const struct asked *a, struct strb *out,
                                 struct err *e)
{
    const struct program_body *body = &a->body;
    struct loop_report report;
    struct json_writer w = JSON_WRITER(out);
    struct program_put to = {.w = &w, .stream = body->session->stream};
    uint64_t begun = clock_ns();
    json_open_object(&w);
    json_put_key(&w, "kernels");
    json_open_list(&w);
    enum err_code code =
        program_explain(body->program, body->steps, put_program_kernel, &to, &report, e);
    if (engine_compiles(req->server->engine))
        http_took(&req->t_compile, begun);
    if (code != ERR_OK)
        return code;
    json_close_list(&w);
    json_put_key(&w, "pass");
    job_put_pass(&report, &w);
    json_put_member_i64(&w, "bytes_held", program_bytes(body->program));
    put_expected(req, body, &to, &report);
    json_close_object(&w);
    return ERR_OK;
}

static void explain_known(struct request *req)
{
    const struct asked *a = req->state;
    struct err e = ERR_INIT;
    struct strb out = {0};
    if (put_program(req, a, &out, &e) == ERR_OK) {
        http_reply_json(req, 200, &out);
        return;
    }
    strb_free(&out);
    http_reply_error(req, &e);
}

static void explain_soon(struct request *req)
{
    http_offload_long(req, explain_known);
}

static void explain_program(struct request *req)
{
    struct asked *a = req->state;
    struct err e = ERR_INIT;
    uint64_t begun = clock_ns();
    enum err_code code = a->statements ? statements_body_read(req, a->given, true, 0, &a->body, &e)
                                       : program_body_read(req, a->given, true, &a->body, &e);
    http_took(&req->t_parse, begun);
    if (code != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    wakeup_init(&a->wakeup, req);
    wakeup_arm(&a->wakeup);
    a->wait = (struct copy_wait){.wake = wakeup_ring, .user = &a->wakeup};
    a->waits = copy_rate_measure(req->server->rates, a->body.session->device, &a->wait);
    if (a->waits)
        wakeup_wait(&a->wakeup, explain_soon);
    else
        explain_known(req);
}

/* On a worker: reading the program plans and fuses its statements, which takes long. */
static enum err_code ask_for_program(struct request *req, struct json body, bool statements,
                                     struct err *e)
{
    struct asked *a = arena_alloc(req->arena, sizeof *a);
    if (!a)
        return err_oom(e);
    TRY(request_accepts_json(req, e));
    *a = (struct asked){.given = body, .statements = statements, .req = req};
    req->state = a;
    req->state_free = asked_free;
    http_offload_long(req, explain_program);
    return ERR_OK;
}

/* --- the route --- */

static enum err_code read_expression(struct request *req, struct json body, size_t *ret_nodes,
                                     struct err *e)
{
    struct eval_body *b = arena_alloc(req->arena, sizeof *b);
    if (!b)
        return err_oom(e);
    TRY(eval_body_read(req, body, true, b, e));
    *ret_nodes = b->expr.n_nodes;
    req->state = b;
    req->state_free = body_free;
    return ERR_OK;
}

static bool is_program(struct json body, bool *ret_statements)
{
    *ret_statements = json_present(json_member(body, "statements"));
    return *ret_statements || json_present(json_member(body, "body"));
}

/* The body, and its expression if it is no program. */
static enum err_code read_body(struct request *req, struct json *ret, size_t *ret_nodes,
                               struct err *e)
{
    static const char *const no_query[] = {NULL};
    bool statements;
    TRY(http_query_only(req, no_query, e));
    TRY(request_body(req, false, ret, e));
    return is_program(*ret, &statements) ? ERR_OK : read_expression(req, *ret, ret_nodes, e);
}

static enum err_code begin(struct request *req, struct err *e)
{
    struct json body;
    bool statements;
    size_t nodes;
    const uint64_t begun = clock_ns();
    enum err_code code = read_body(req, &body, &nodes, e);
    http_took(&req->t_parse, begun);
    TRY(code);
    if (is_program(body, &statements))
        return ask_for_program(req, body, statements, e);
    if (engine_compiles(req->server->engine) || nodes > EVAL_NODES_HERE)
        http_offload_long(req, explain);
    else
        explain(req);
    return ERR_OK;
}

void explain_post(struct request *req)
{
    req->abandon = true; /* it changes nothing */
    request_try(req, begin);
}
