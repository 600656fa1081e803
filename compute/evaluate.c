/* Evaluating: an untyped tree becomes a plan, found again where the same was asked before
 * (plan_cache.h), and runs (run.c). Also what is made of arrays as they are: copies, exchanges. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/engine_internal.h"
#include "compute/plan_cache.h"

#define KEY_ROOM 1000 /* bytes that most keys have */

/* The result must fit the target: overlap, shape, and the cast NumPy would allow. */
static enum err_code fit_target(struct arena *arena, struct typed *t,
                                const struct eval_request *req, struct err *e)
{
    if (!req->out)
        return ERR_OK;
    const struct view *target = req->out_view ? req->out_view : &req->out->view;
    if (view_self_overlaps(target))
        return err_field(e, ERR_OVERLAP, "/out",
                         "elements of the target overlap each other (a broadcast view?)");
    const struct typed_node *root = &t->nodes[t->root];
    struct view have, spread;
    enum err_code code =
        view_contiguous(root->rank, root->shape, dtype_size(root->dtype), &have, e);
    if (code != ERR_OK)
        return code;
    if (view_broadcast_to(&have, target->rank, target->shape, &spread, NULL) != ERR_OK) {
        char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
        return err_field(e, ERR_SHAPE_MISMATCH, "/out",
                         "a result of shape %s does not broadcast to the target's %s",
                         shape_text(root->rank, root->shape, a, sizeof a),
                         shape_text(target->rank, target->shape, b, sizeof b));
    }
    if (root->dtype == req->out->dtype)
        return ERR_OK;
    if (!dtype_can_cast_same_kind(root->dtype, req->out->dtype))
        return err_field(e, ERR_DTYPE_MISMATCH, "/out",
                         "a result of %s cannot be written to %s (casting is 'same_kind'; use "
                         "astype or \"dtype\")",
                         dtype_name(root->dtype), dtype_name(req->out->dtype));
    struct typed_node cast = {.kind = T_CAST,
                              .dtype = req->out->dtype,
                              .rank = root->rank,
                              .shape = root->shape,
                              .n_args = 1,
                              .args = {t->root}};
    uint32_t n = typed_add(arena, t, &cast);
    if (n == EXPR_NOWHERE)
        return err_oom(e);
    t->root = n;
    return ERR_OK;
}

/* What the target says to the plan's key. */
static void put_target(struct strb *key, int device, const struct eval_request *req)
{
    int64_t head[5] = {device, req->dtype, req->fast_math, req->out ? req->out->dtype : -1,
                       req->out ? req->out->buffer->nbytes : 0};
    strb_addn(key, (const char *)head, sizeof head);
    if (!req->out)
        return;
    const struct view *v = req->out_view ? req->out_view : &req->out->view;
    strb_addn(key, (const char *)&v->rank, sizeof v->rank);
    strb_addn(key, (const char *)v->shape, sizeof *v->shape * (size_t)v->rank);
    strb_addn(key, (const char *)v->strides, sizeof *v->strides * (size_t)v->rank);
    strb_addn(key, (const char *)&v->offset, sizeof v->offset);
}

/* Checks and lowers into a new entry. */
static enum err_code compile(struct engine *g, const struct eval_request *req,
                             const struct check_env *env, struct plan_entry **ret,
                             struct eval_times *times, struct err *e)
{
    double start = clock_ms();
    struct plan_entry *en = plan_entry_new(g->plans);
    if (!en)
        return err_oom(e);
    enum err_code code = check_expr(en->arena, req->expr, env, req->dtype, &en->typed, e);
    if (code == ERR_OK)
        code = fit_target(en->arena, &en->typed, req, e);
    double checked = clock_ms();
    times->check += checked - start;
    if (code == ERR_OK) {
        const struct view *v = req->out_view ? req->out_view : req->out ? &req->out->view : NULL;
        code = plan_make(en->arena, g, &en->typed, req->fast_math, v,
                         req->out ? req->out->buffer->nbytes : 0, &en->plan, e);
    }
    times->lower += clock_ms() - checked;
    if (code == ERR_OK)
        *ret = en;
    else
        plan_entry_unref(en);
    return code;
}

/* The entry for a request, found or made, and its arrays. */
static enum err_code plan_for(struct engine *g, int device, struct arena *arena,
                              const struct eval_request *req, struct plan_entry **ret,
                              struct array ***ret_arrays, struct eval_times *times, struct err *e)
{
    _cleanup_strb_ struct strb key = {0};
    struct plan_names names;
    double start = clock_ms();
    (void)strb_reserve(&key, KEY_ROOM);
    put_target(&key, device, req);
    bool keep = plan_key_expr(&key, req->expr);
    enum err_code code = ERR_OK;
    if (keep) {
        code = plan_names_resolve(&names, arena, req->expr, req->env, e);
        if (code == ERR_OK)
            keep = plan_key_names(&key, &names);
    }
    if (code == ERR_OK && key.failed)
        code = err_oom(e);
    if (code != ERR_OK)
        return code;
    struct plan_entry *en = keep ? plan_cache_find(g->plans, key.data, key.len) : NULL;
    times->check = clock_ms() - start;
    if (!en) {
        code = compile(g, req, keep ? &names.env : req->env, &en, times, e);
        if (code == ERR_OK && keep && names.complete &&
            !plan_cache_add(en, &names, key.data, key.len))
            code = err_oom(e);
    }
    *ret_arrays = code == ERR_OK ? plan_entry_arrays(en, &names, arena) : NULL;
    if (code == ERR_OK && !*ret_arrays)
        code = err_oom(e);
    if (code == ERR_OK)
        *ret = en;
    else
        plan_entry_unref(en);
    return code;
}

/* The entry's graph over today's arrays. */
static const struct typed *graph_over(struct arena *arena, const struct plan_entry *en,
                                      struct array *const *arrays)
{
    struct typed *t = arena_dup(arena, &en->typed, sizeof *t);
    if (!t)
        return NULL;
    t->inputs = arena_dup(arena, t->inputs, sizeof *t->inputs * t->n_inputs);
    if (!t->inputs)
        return NULL;
    for (uint32_t i = 0; i < t->n_inputs; i++)
        t->inputs[i].array = arrays[i];
    return t;
}

enum err_code engine_evaluate(struct engine_stream *s, struct account *account,
                              const struct eval_request *req, struct array **ret,
                              struct eval_times *ret_times, engine_done *done, void *user,
                              struct err *e)
{
    struct task *t = task_new(s);
    if (!t)
        return err_oom(e);
    struct eval_times times = {0};
    struct array **arrays;
    enum err_code code =
        plan_for(s->engine, s->device, t->arena, req, &t->entry, &arrays, &times, e);
    const struct typed *typed = code == ERR_OK ? graph_over(t->arena, t->entry, arrays) : NULL;
    if (code == ERR_OK && !typed)
        code = err_oom(e);
    if (code != ERR_OK) {
        task_free(t);
        return code;
    }
    t->done = done;
    t->user = user;
    double start = clock_ms();
    code = engine_run(t, typed, account, req->fast_math, req->out, req->out_view, ret, e);
    times.lower += clock_ms() - start;
    if (code == ERR_OK && ret_times)
        *ret_times = times;
    return code;
}

/* --- guards --- */

struct eval_guards {
    struct plan_entry *entry; /* a reference */
    struct download *download;
};

/* The guards' graph over the arrays of the main one, which `arrays` has. */
static const struct typed *guards_over(struct arena *arena, const struct typed_guards *g,
                                       struct array *const *arrays)
{
    struct typed *t = arena_dup(arena, &g->graph, sizeof *t);
    struct typed_input *inputs = arena_alloc_array(arena, t ? t->n_inputs + 1 : 0, sizeof *inputs);
    if (!t || !inputs)
        return NULL;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        inputs[i] = t->inputs[i];
        inputs[i].array = arrays[g->inputs[i]];
    }
    t->inputs = inputs;
    return t;
}

/* Queues the guards of `entry`; *ret_a is their answer. */
static enum err_code run_guards(struct engine_stream *s, struct account *account,
                                const struct plan_entry *entry, struct array *const *arrays,
                                struct array **ret_a, struct err *e)
{
    struct task *t = task_new(s);
    const struct typed *typed = t ? guards_over(t->arena, entry->typed.guards, arrays) : NULL;
    if (!typed) {
        if (t)
            task_free(t);
        return err_oom(e);
    }
    return engine_run(t, typed, account, false, NULL, NULL, ret_a, e);
}

enum err_code eval_guards_new(struct engine_stream *s, struct account *account,
                              const struct eval_request *req, void (*wake)(void *user), void *user,
                              struct eval_guards **ret, struct eval_times *ret_times, struct err *e)
{
    *ret = NULL;
    if (!check_may_guard(req->expr))
        return ERR_OK;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_array_ struct array *answer = NULL;
    struct eval_guards *g = mem_calloc(1, sizeof *g);
    struct array **arrays;
    struct eval_times times = {0};
    enum err_code code = arena && g ? ERR_OK : err_oom(e);
    if (code == ERR_OK)
        code = plan_for(s->engine, s->device, arena, req, &g->entry, &arrays, &times, e);
    if (code == ERR_OK && g->entry->typed.guards) {
        code = run_guards(s, account, g->entry, arrays, &answer, e);
        if (code == ERR_OK)
            code = download_new(s, answer, wake, user, &g->download, e);
    }
    if (code == ERR_OK && g->download) {
        *ret_times = times;
        *ret = g;
        return ERR_OK;
    }
    eval_guards_free(g);
    return code;
}

struct download *eval_guards_download(struct eval_guards *g)
{
    return g->download;
}

size_t eval_guards_size(const struct eval_guards *g)
{
    return g->entry->typed.guards->n;
}

enum err_code eval_guards_verdict(const struct eval_guards *g, const struct expr *x,
                                  const unsigned char *answer, struct err *e)
{
    const struct typed_guards *guards = g->entry->typed.guards;
    for (uint32_t i = 0; i < guards->n; i++)
        if (answer[i])
            return expr_err(x, guards->guards[i].place, e, ERR_BAD_INDEX, "%s",
                            guards->guards[i].message);
    return ERR_OK;
}

void eval_guards_free(struct eval_guards *g)
{
    if (!g)
        return;
    if (g->download)
        download_free(g->download);
    plan_entry_unref(g->entry);
    mem_free(g);
}

/* --- explain --- */

/* The guards' plan over the main graph's arrays. */
static enum err_code explain_guards(struct engine *g, struct arena *arena,
                                    struct eval_explanation *x, struct err *e)
{
    const struct typed_guards *guards = x->typed.guards;
    if (!guards)
        return ERR_OK;
    struct array **arrays = arena_alloc_array(arena, x->typed.n_inputs + 1, sizeof *arrays);
    if (!arrays)
        return err_oom(e);
    for (uint32_t i = 0; i < x->typed.n_inputs; i++)
        arrays[i] = x->typed.inputs[i].array;
    const struct typed *t = guards_over(arena, guards, arrays);
    return t ? engine_plan(g, arena, t, false, NULL, NULL, &x->guards, e) : err_oom(e);
}

enum err_code engine_explain(struct engine *g, const struct eval_request *req, struct arena *arena,
                             struct eval_explanation *ret, struct err *e)
{
    double start = clock_ms();
    memset(ret, 0, sizeof *ret);
    enum err_code code = check_expr(arena, req->expr, req->env, req->dtype, &ret->typed, e);
    if (code == ERR_OK)
        code = fit_target(arena, &ret->typed, req, e);
    if (code != ERR_OK)
        return code;
    double checked = clock_ms();
    code = explain_guards(g, arena, ret, e);
    if (code != ERR_OK)
        return code;
    code =
        engine_plan(g, arena, &ret->typed, req->fast_math, req->out, req->out_view, &ret->plan, e);
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

bool engine_compiles(const struct engine *g)
{
    return g->backend->ops->prepare != NULL;
}

/* --- array to array --- */

static int64_t ghost_width(const struct array *a, int axis)
{
    return a->grid ? a->grid->ghost[axis] : 0;
}

enum err_code engine_swap(struct engine_stream *s, struct array *a, struct array *b, struct err *e)
{
    struct engine *g = s->engine;
    bool same = a->dtype == b->dtype && view_same_shape(&a->view, &b->view) &&
                a->view.offset == b->view.offset && a->buffer->nbytes == b->buffer->nbytes &&
                a->buffer->device == b->buffer->device;
    for (int i = 0; same && i < a->view.rank; i++)
        same = a->view.strides[i] == b->view.strides[i] && ghost_width(a, i) == ghost_width(b, i);
    if (!same)
        return err_field(e, ERR_CONFLICT, "/with",
                         "only arrays of one dtype, shape, strides, ghosts, offset and buffer size "
                         "can exchange their memory");
    /* Work already queued holds the storage it was bound to; only later work sees the exchange. */
    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(a->buffer), *other = buffer_storage(b->buffer);
    a->buffer->storage = other;
    b->buffer->storage = st;
    /* of one size: each session goes on paying for what its own array has */
    struct account *payer = other->account;
    other->account = st->account;
    st->account = payer;
    if (atomic_load(&a->buffer->loose_bool) || atomic_load(&b->buffer->loose_bool)) {
        atomic_store(&a->buffer->loose_bool, true);
        atomic_store(&b->buffer->loose_bool, true);
    }
    atomic_store(&a->buffer->version, engine_next_version(g));
    atomic_store(&b->buffer->version, engine_next_version(g));
    pthread_mutex_unlock(&g->lock);
    return ERR_OK;
}
