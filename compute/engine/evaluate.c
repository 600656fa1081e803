/* Evaluating: an untyped tree becomes a plan, or finds the plan of an equal earlier request
 * (plan_cache.h), and runs (run.c). */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"

#define KEY_USUAL 1000 /* bytes, enough for most keys */

static bool loose_target(const struct eval_request *req)
{
    return req->out->dtype == DT_BOOL && atomic_load(&req->out->buffer->loose_bool);
}

/* Adds a node above the root. */
static bool on_top(struct arena *arena, struct typed *t, struct typed_node n)
{
    uint32_t id = typed_add(arena, t, &n);
    if (id != EXPR_NOWHERE)
        t->root = id;
    return id != EXPR_NOWHERE;
}

/* Casts the root to another type. */
static bool cast_root(struct arena *arena, struct typed *t, enum dtype dtype)
{
    const struct typed_node *root = &t->nodes[t->root];
    return root->dtype == dtype || on_top(arena, t,
                                          (struct typed_node){.kind = T_CAST,
                                                              .dtype = dtype,
                                                              .rank = root->rank,
                                                              .shape = root->shape,
                                                              .n_args = 1,
                                                              .args = {t->root}});
}

/* The target's current contents as an operand, byte for byte. */
static uint32_t add_target(struct arena *arena, struct typed *t, const struct eval_request *req,
                           enum dtype dtype)
{
    const struct view *v = req->out_view ? req->out_view : &req->out->view;
    size_t cap = t->cap_inputs;
    int64_t *shape = arena_dup(arena, v->shape, sizeof *shape * MAX_RANK);
    if (!shape || arena_grow(arena, (void **)&t->inputs, &cap, t->n_inputs, sizeof *t->inputs) < 0)
        return EXPR_NOWHERE;
    t->cap_inputs = (uint32_t)cap;
    t->inputs[t->n_inputs++] = (struct typed_input){
        .array = req->out, .dtype = dtype, .view = *v, .name = "out", .target = true};
    return typed_add(arena, t,
                     &(struct typed_node){.kind = T_INPUT,
                                          .dtype = dtype,
                                          .rank = v->rank,
                                          .shape = shape,
                                          .input = t->n_inputs - 1});
}

/* If the guards find a fault the target keeps its contents: the kernels that check and the kernels
 * that write are one piece of work, so nothing comes between them. */
static bool keep_target(struct arena *arena, struct typed *t, const struct eval_request *req,
                        uint32_t fault)
{
    const struct typed_node *root = &t->nodes[t->root];
    struct affine *same = arena_alloc(arena, sizeof *same);
    if (!same)
        return false;
    same->rank = root->rank;
    for (int k = 0; k < root->rank; k++) {
        same->src[k] = (int8_t)k;
        same->step[k] = 1;
    }
    /* its index() refers to its own axes, not the target's */
    if (!on_top(arena, t,
                (struct typed_node){.kind = T_VIEW,
                                    .dtype = root->dtype,
                                    .rank = root->rank,
                                    .shape = root->shape,
                                    .n_args = 1,
                                    .args = {t->root},
                                    .view = same}))
        return false;
    enum dtype dtype = loose_target(req) ? DT_U8 : req->out->dtype;
    uint32_t any = fault, x, old;
    if (!cast_root(arena, t, dtype))
        return false;
    x = t->root;
    if (t->nodes[fault].rank)
        any = typed_add(arena, t,
                        &(struct typed_node){.kind = T_REDUCE,
                                             .dtype = DT_BOOL,
                                             .n_args = 1,
                                             .args = {fault},
                                             .reduce = {.op = REDUCE_ANY, .axes = 1}});
    old = add_target(arena, t, req, dtype);
    if (any == EXPR_NOWHERE || old == EXPR_NOWHERE)
        return false;
    return on_top(arena, t,
                  (struct typed_node){.kind = T_WHERE,
                                      .dtype = dtype,
                                      .rank = t->nodes[old].rank,
                                      .shape = t->nodes[old].shape,
                                      .n_args = 3,
                                      .args = {any, old, x}});
}

static bool write_guarded(struct arena *arena, struct typed *t, const struct eval_request *req)
{
    const struct typed_node guarded = t->nodes[t->root];
    t->n_nodes--; /* it was the last node */
    t->root = guarded.args[0];
    if (!cast_root(arena, t, req->out->dtype) || !keep_target(arena, t, req, guarded.args[1]))
        return false;
    const struct typed_node *root = &t->nodes[t->root];
    return on_top(arena, t,
                  (struct typed_node){.kind = T_GUARDED,
                                      .dtype = root->dtype,
                                      .rank = root->rank,
                                      .shape = root->shape,
                                      .n_args = 2,
                                      .args = {t->root, guarded.args[1]}});
}

/* A literal is as weak with a target as with an operand: it takes the target's dtype and must fit
 * it. */
static enum err_code fit_literal(struct typed *t, const struct eval_request *req, struct err *e)
{
    struct typed_node *root = &t->nodes[t->root];
    struct err own = ERR_INIT;
    if (scalar_from_literal(req->out->dtype, t->literal, &root->value, &own) != ERR_OK)
        return expr_err(req->expr, req->expr->root, e, own.code, "%s", own.message);
    root->dtype = req->out->dtype;
    return ERR_OK;
}

/* Marks an error as one about the target. */
static enum err_code of_target(struct err *e, enum err_code code)
{
    if (e)
        e->of_target = true;
    return code;
}

/* The result must fit the target: overlap, shape, and the cast NumPy would allow. */
static enum err_code fit_target(struct arena *arena, struct typed *t,
                                const struct eval_request *req, struct err *e)
{
    if (!req->out)
        return ERR_OK;
    const struct view *target = req->out_view ? req->out_view : &req->out->view;
    if (view_self_overlaps(target))
        return of_target(
            e, err_set(e, ERR_OVERLAP,
                       "elements of the target overlap in memory (is it a broadcast view?)"));
    const struct typed_node *root = &t->nodes[t->root];
    struct view have, spread;
    TRY(view_contiguous(root->rank, root->shape, dtype_size(root->dtype), &have, e));
    if (view_broadcast_to(&have, target->rank, target->shape, &spread, NULL) != ERR_OK) {
        char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
        return of_target(e,
                         err_set(e, ERR_SHAPE_MISMATCH,
                                 "a result of shape %s does not broadcast to the target's shape %s",
                                 shape_text(root->rank, root->shape, a, sizeof a),
                                 shape_text(target->rank, target->shape, b, sizeof b)));
    }
    if (t->literal && (dtype_kind(root->dtype) <= dtype_kind(req->out->dtype) ||
                       (root->dtype == DT_U64 && dtype_is_integer(req->out->dtype))))
        return fit_literal(t, req, e);
    if (!dtype_can_cast_same_kind(root->dtype, req->out->dtype))
        return of_target(
            e, err_set(e, ERR_DTYPE_MISMATCH,
                       "a result of %s cannot be written to %s (casting is 'same_kind'; use "
                       "astype or \"dtype\")",
                       dtype_name(root->dtype), dtype_name(req->out->dtype)));
    bool done = root->kind == T_GUARDED ? write_guarded(arena, t, req)
                                        : cast_root(arena, t, req->out->dtype);
    return done ? ERR_OK : err_oom(e);
}

/* The target's part of the plan's key. */
static void put_target(struct strb *key, int device, const struct eval_request *req)
{
    int64_t head[6] = {device,
                       req->dtype,
                       req->fast_math,
                       req->out ? req->out->dtype : -1,
                       req->out ? req->out->buffer->nbytes : 0,
                       req->out && loose_target(req)};
    strb_addn(key, (const char *)head, sizeof head);
    if (!req->out)
        return;
    const struct view *v = req->out_view ? req->out_view : &req->out->view;
    strb_addn(key, (const char *)&v->rank, sizeof v->rank);
    strb_addn(key, (const char *)v->shape, sizeof *v->shape * (size_t)v->rank);
    strb_addn(key, (const char *)v->strides, sizeof *v->strides * (size_t)v->rank);
    strb_addn(key, (const char *)&v->offset, sizeof v->offset);
}

static enum err_code check(struct engine *g, struct arena *arena, const struct eval_request *req,
                           const struct check_env *env, struct typed *ret, struct err *e)
{
    struct check_env with = *env;
    with.fast_math = req->fast_math;
    with.window = g->backend->ops->window;
    TRY(check_expr(arena, req->expr, &with, req->dtype, ret, e));
    return fit_target(arena, ret, req, e);
}

static enum err_code check_and_lower(struct engine *g, const struct eval_request *req,
                                     const struct check_env *env, struct plan_entry *en,
                                     struct eval_times *times, struct err *e)
{
    const struct view *v = req->out_view ? req->out_view : req->out ? &req->out->view : NULL;
    const double start = clock_ms();
    enum err_code code = check(g, en->arena, req, env, &en->typed, e);
    const double checked = clock_ms();
    times->check += checked - start;
    if (code == ERR_OK)
        code = plan_make(en->arena, g, &en->typed, req->fast_math, v,
                         req->out ? req->out->buffer->nbytes : 0, &en->plan, e);
    times->lower += clock_ms() - checked;
    TRY(code);
    if (!plan_entry_planned(en))
        return err_oom(e);
    return cost_check(g, req->expr, "this", plan_cost(en->plan), e);
}

/* Checks and lowers into a new entry. */
static enum err_code compile(struct engine *g, const struct eval_request *req,
                             const struct check_env *env, struct plan_entry **ret,
                             struct eval_times *times, struct err *e)
{
    struct plan_entry *en = plan_entry_new(g->plans);
    if (!en)
        return err_oom(e);
    enum err_code code = check_and_lower(g, req, env, en, times, e);
    if (code == ERR_OK)
        *ret = en;
    else
        plan_entry_unref(en);
    return code;
}

/* The key of the request's plan, and what its names mean. *ret_keep: the plan is cached by it. */
static enum err_code find_key(int device, struct arena *arena, const struct eval_request *req,
                              struct strb *key, struct plan_names *names, bool *ret_keep,
                              struct err *e)
{
    (void)strb_reserve(key, KEY_USUAL);
    put_target(key, device, req);
    *ret_keep = plan_key_expr(key, req->expr);
    if (*ret_keep) {
        TRY(plan_names_resolve(names, arena, req->expr, req->env, e));
        *ret_keep = plan_key_names(key, names);
    }
    return key->failed ? err_oom(e) : ERR_OK;
}

/* The entry for a request, found or made, and its arrays. *ret NULL: put off. */
static enum err_code plan_for(struct engine *g, int device, struct arena *arena,
                              const struct eval_request *req, struct plan_entry **ret,
                              struct array ***ret_arrays, struct eval_times *times, struct err *e)
{
    _cleanup_strb_ struct strb key = {0};
    struct plan_names names;
    bool keep;
    double start = clock_ms();
    TRY(find_key(device, arena, req, &key, &names, &keep, e));
    struct plan_entry *en = keep ? plan_cache_find(g->plans, key.data, key.len) : NULL;
    times->check = clock_ms() - start;
    if (!en && req->most_nodes && req->expr->n_nodes > req->most_nodes) {
        *ret = NULL;
        return ERR_OK;
    }
    const bool made = !en;
    if (made)
        TRY(compile(g, req, keep ? &names.env : req->env, &en, times, e));
    const bool added =
        !made || !keep || !names.complete || plan_cache_add(en, &names, key.data, key.len);
    *ret_arrays = added ? plan_entry_arrays(en, &names, arena) : NULL;
    if (!*ret_arrays) {
        plan_entry_unref(en);
        return err_oom(e);
    }
    *ret = en;
    return ERR_OK;
}

/* An array on another device, which will be refused, gets the name that its user knows. */
static void call(struct arena *arena, const struct check_env *env, int device,
                 struct typed_input *in)
{
    if (in->array->buffer->device == device || !env->called)
        return;
    const char *called = env->called(env->user, in->name);
    const char *copy = arena_strndup(arena, called, strlen(called));
    in->name = copy ? copy : in->name;
}

/* The entry's graph over the current arrays. */
static const struct typed *graph_over(struct arena *arena, const struct plan_entry *en,
                                      struct array *const *arrays, int device,
                                      const struct eval_request *req)
{
    struct typed *t = arena_dup(arena, &en->typed, sizeof *t);
    if (!t)
        return NULL;
    t->inputs = arena_dup(arena, t->inputs, sizeof *t->inputs * t->n_inputs);
    if (!t->inputs)
        return NULL;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        t->inputs[i].array = t->inputs[i].target ? req->out : arrays[i];
        if (!t->inputs[i].target)
            call(arena, req->env, device, &t->inputs[i]);
    }
    return t;
}

struct eval_guards {
    struct plan_entry *entry; /* a reference */
    struct array *out;        /* a reference, or NULL */
    struct answer answer;
    size_t have;
    unsigned char says[]; /* one byte per guard */
};

/* If there are guards and the caller wants their result: how the task delivers it. */
static bool watch(struct task *t, const struct eval_request *req, struct eval_guards **ret)
{
    *ret = NULL;
    if (!req->watch || !t->entry->typed.guards)
        return true;
    struct eval_guards *g = mem_calloc(1, sizeof *g + t->entry->typed.guards->n);
    if (!g)
        return false;
    g->entry = plan_entry_ref(t->entry);
    g->out = req->out ? array_ref(req->out) : NULL;
    g->answer.wake = req->watch->wake;
    g->answer.user = req->watch->user;
    t->answer = &g->answer;
    *ret = g;
    return true;
}

enum err_code evaluate_begin(struct engine_stream *s, const struct eval_request *req,
                             struct task **ret, const struct typed **ret_typed,
                             struct eval_times *times, struct err *e)
{
    struct task *t = task_new(s);
    if (!t)
        return err_oom(e);
    struct array **arrays;
    enum err_code code =
        plan_for(s->engine, s->device, t->arena, req, &t->entry, &arrays, times, e);
    bool put_off = code == ERR_OK && !t->entry;
    bool goes_on = code == ERR_OK && !put_off;
    *ret_typed = goes_on ? graph_over(t->arena, t->entry, arrays, s->device, req) : NULL;
    if (goes_on && !*ret_typed)
        code = err_oom(e);
    if (code != ERR_OK || put_off)
        task_free(t);
    if (code == ERR_OK)
        *ret = put_off ? NULL : t;
    return code;
}

enum err_code engine_evaluate(struct engine_stream *s, struct account *account,
                              const struct eval_request *req, struct array **ret,
                              struct eval_times *ret_times, engine_done *done, void *user,
                              struct err *e)
{
    struct task *t;
    const struct typed *typed;
    struct eval_times times = {0};
    struct eval_guards *guards = NULL;
    TRY(evaluate_begin(s, req, &t, &typed, &times, e));
    if (!t) {
        *ret = NULL;
        return ERR_OK;
    }
    if (!watch(t, req, &guards)) {
        task_free(t);
        return err_oom(e);
    }
    t->done = done;
    t->user = user;
    t->given_up = req->given_up;
    t->seen = req->seen;
    t->job.wants_forms = t->seen != NULL;
    t->unused = req->unused;
    t->result_at = req->out ? req->out_at * (int64_t)dtype_size(req->out->dtype) : 0;
    double start = clock_ms();
    enum err_code code =
        engine_run(t, typed, account, req->fast_math, req->out, req->out_view, ret, e);
    times.lower += clock_ms() - start;
    if (code != ERR_OK) {
        eval_guards_free(guards);
        return code;
    }
    if (req->watch)
        req->watch->guards = guards;
    if (ret_times)
        *ret_times = times;
    return ERR_OK;
}

/* --- guards --- */

struct download *eval_guards_download(struct eval_guards *g)
{
    return g->answer.download;
}

int eval_guards_pull(struct eval_guards *g)
{
    const size_t n = g->entry->typed.guards->n;
    while (g->have < n) {
        int64_t got =
            download_pull(g->answer.download, (int64_t)g->have, g->says + g->have, n - g->have);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        g->have += (size_t)got;
    }
    return 1;
}

/* The target's old contents were written back: restores its version, unless it has been written
 * again. */
static void as_it_was(const struct eval_guards *g)
{
    struct engine *engine = g->out->buffer->engine;
    uint64_t is = g->answer.is;
    pthread_mutex_lock(&engine->lock);
    (void)atomic_compare_exchange_strong(&g->out->buffer->version, &is, g->answer.was);
    pthread_mutex_unlock(&engine->lock);
}

enum err_code eval_guards_verdict(struct eval_guards *g, const struct expr *x, struct err *e)
{
    const struct typed_guards *guards = g->entry->typed.guards;
    uint32_t i = 0;
    while (i < guards->n && !g->says[i])
        i++;
    if (i == guards->n)
        return ERR_OK;
    if (g->out)
        as_it_was(g);
    return expr_err(x, guards->guards[i].place, e, ERR_BAD_INDEX, "%s", guards->guards[i].message);
}

void eval_guards_free(struct eval_guards *g)
{
    if (!g)
        return;
    download_free(g->answer.download);
    array_unref(g->out);
    plan_entry_unref(g->entry);
    mem_free(g);
}

/* --- explain --- */

enum err_code engine_explain(struct engine_stream *s, const struct eval_request *req,
                             struct arena *arena, struct eval_explanation *ret, struct err *e)
{
    struct engine *g = s->engine;
    double start = clock_ms();
    memset(ret, 0, sizeof *ret);
    enum err_code code = check(g, arena, req, req->env, &ret->typed, e);
    if (code == ERR_OK && req->out)
        code = require_device(s, req->out, NULL, e);
    for (uint32_t i = 0; code == ERR_OK && i < ret->typed.n_inputs; i++)
        code = require_device(s, ret->typed.inputs[i].array, ret->typed.inputs[i].name, e);
    if (code != ERR_OK)
        return code;
    double checked = clock_ms();
    code =
        engine_plan(g, arena, &ret->typed, req->fast_math, req->out, req->out_view, &ret->plan, e);
    if (code == ERR_OK)
        code = cost_check(g, req->expr, "this", plan_cost(ret->plan), e);
    if (code != ERR_OK)
        return code;
    ret->times.check = checked - start;
    ret->times.lower = clock_ms() - checked;
    return ERR_OK;
}

void engine_explain_kernel(struct engine_stream *s, const struct ir_kernel *k,
                           struct kernel_explanation *ret)
{
    struct backend *b = s->engine->backend;
    *ret = (struct kernel_explanation){.form = "", .registers = -1, .shared = -1, .local = -1};
    b->ops->explain(b, s->device, k, ret);
}

bool engine_explain_whole(struct engine_stream *s, const struct ir_whole *w,
                          struct kernel_explanation *ret, const char **ret_why)
{
    struct backend *b = s->engine->backend;
    return b->ops->explain_whole(b, s->device, w, ret, ret_why);
}

bool engine_compiles(const struct engine *g)
{
    return g->backend->ops->prepare != NULL;
}
