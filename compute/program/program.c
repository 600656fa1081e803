/* Making a program: every statement is checked as evaluate would check it, with the names as they
 * are at that point, and its target's memory is allocated before it first runs. */
#include <string.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/lang/expr.h"
#include "compute/program/program_int.h"
#include "compute/type/dtype.h"

#define COST_OF_STEP "the step up to and including this statement"

/* --- statements --- */

/* An expression of a single name, or of 0, without a place. It may grow to a statement's limit,
 * because a name can stand for temporaries that are inlined. */
static bool expr_of_name(const struct program *p, const char *name, struct expr *ret)
{
    const struct expr *like = &p->spec.body[0].expr;
    struct expr_node n = {.kind = name ? EXPR_NAME : EXPR_LITERAL,
                          .name = name,
                          .lit = {.kind = LIT_INT},
                          .offset = -1,
                          .parent = EXPR_NOWHERE};
    uint32_t source;
    expr_init(ret, p->arena, like->max_nodes, like->max_nesting);
    return expr_add_source(ret, "", &source, NULL) == ERR_OK &&
           expr_add(ret, &n, NULL, 0, 0, &ret->root, NULL) == ERR_OK;
}

static void drop_spares(struct target *t)
{
    for (int k = 0; k < 2; k++) {
        array_unref(t->spare[k]);
        t->spare[k] = NULL;
    }
}

static enum err_code take_spares(struct program *p, struct target *t, struct err *e)
{
    enum err_code code = ERR_OK;
    if (!t->spare[0])
        t->ghosts = array_version(t->home);
    for (int k = 0; k < (p->spec.once ? 1 : 2) && code == ERR_OK; k++)
        if (!t->spare[k])
            code = (t->guarded ? engine_copy : engine_alike)(p->stream, p->account, t->home,
                                                             &t->spare[k], e);
    return code;
}

static enum err_code add_target(struct program *p, struct name *name, struct array *take_home,
                                struct err *e)
{
    struct target *t = name->target = &p->targets[p->n_targets];
    *t = (struct target){.name = name->name, .home = take_home, .now = take_home};
    p->n_targets++;
    if (!expr_of_name(p, name->name, &t->itself))
        return err_oom(e);
    return take_spares(p, t, e);
}

/* Finds the names that are arrays to be written, before anything is computed from them. */
static enum err_code find_targets(struct program *p, struct err *e)
{
    for (uint32_t i = 0; i < p->n_statements; i++) {
        const struct program_assign *a = &p->spec.body[i];
        struct array *home = NULL;
        if (p->steps[i].name->target)
            continue;
        enum err_code code = p->spec.target(p->spec.user, a->target, &home, e);
        if (code == ERR_OK && home)
            code = add_target(p, p->steps[i].name, home, e);
        else if (code == ERR_OK && a->fills)
            code = err_set(e, ERR_UNKNOWN_NAME, "\"%s\" is not an array with ghost cells to fill",
                           a->target);
        if (code != ERR_OK)
            return program_of_target(e, code, a);
    }
    return ERR_OK;
}

static bool has_ghosts(const struct target *t)
{
    return grid_has_ghosts(t->home->grid) && !t->home->grid->whole;
}

/* Finds the targets whose ghosts are written, and the most copies of ghosts that a step may make.
 */
static void find_filled(struct program *p)
{
    for (uint32_t i = 0; i < p->n_statements; i++)
        if (p->spec.body[i].fills) {
            struct target *t = p->steps[i].name->target;
            t->carries = has_ghosts(t);
        }
    for (uint32_t i = 0; i < p->n_statements; i++) {
        const struct target *t = p->steps[i].name->target;
        if (t && t->carries)
            p->n_carried += 2 * (size_t)t->home->view.rank;
    }
}

struct outline {
    bool guarded; /* on a fault its target keeps its contents, which are read for that */
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
};

/* Types the assigned expression and checks it against its target. `runs`: it is part of a step
 * itself, not inlined into others. */
static enum err_code check_statement(struct program *p, const struct expr *x, struct array *out,
                                     const struct view *region, int dtype, bool runs,
                                     struct outline *ret, struct err *e)
{
    struct eval_request req = {.expr = x,
                               .env = &p->env,
                               .dtype = dtype,
                               .fast_math = p->spec.fast_math,
                               .out = out,
                               .out_view = region};
    struct eval_times times = {0};
    struct task *t;
    const struct typed *typed;
    TRY(evaluate_begin(p->stream, &req, &t, &typed, &times, e));
    enum err_code code = ERR_OK;
    if (runs) {
        p->cost = cost_sum(p->cost, plan_cost(t->entry->plan));
        code = cost_check(p->stream->engine, x, COST_OF_STEP, p->cost, e);
    }
    const struct typed_node *root = &typed->nodes[typed->root];
    ret->guarded = typed->guards != NULL;
    ret->dtype = root->dtype;
    ret->rank = root->rank;
    for (int k = 0; k < root->rank; k++)
        ret->shape[k] = root->shape[k];
    task_free(t);
    return code;
}

static enum err_code index_array(const struct step *s, const struct array *a, struct view *ret,
                                 struct err *e)
{
    *ret = a->view;
    return s->assign->index ? view_index(&a->view, s->assign->index, ret, e) : ERR_OK;
}

static bool is_result(const struct program *p, const struct step *s)
{
    return s - p->steps >= p->n_statements;
}

/* A name that is no array: its first assignment is of the whole, later ones may be of parts. */
static enum err_code add_temporary(struct program *p, struct step *s, struct err *e)
{
    const char *name = s->assign->target;
    struct known *k = s->name->known;
    struct outline n;
    struct binding bound = {.kind = BINDING_NONE};
    enum err_code code = ERR_OK;
    if (!(k && k->temporary) && !is_result(p, s))
        code = p->spec.env->resolve(p->spec.env->user, name, &bound, e);
    if (code != ERR_OK)
        return code;
    if (bound.kind != BINDING_NONE)
        return err_set(e, ERR_BAD_NAME, "\"%s\" is bound to a number and cannot be assigned", name);
    if (s->assign->index) {
        if (!k)
            return err_set(e, ERR_UNKNOWN_NAME,
                           "\"%s\" is not an array yet, so a part of it cannot be assigned", name);
        s->own = k->binding.array;
        s->borrowed = true;
        s->temporary = k;
        code = index_array(s, s->own, &s->region, e);
        if (code == ERR_OK)
            code = check_statement(p, &s->expr, s->own, &s->region, -1, true, &n, e);
        return code;
    }
    if (s->waits)
        return ERR_OK;
    code = check_statement(p, &s->expr, NULL, NULL, -1, !s->inlined, &n, e);
    if (code == ERR_OK && s->inlined)
        return ERR_OK;
    if (code == ERR_OK)
        code = (n.guarded ? engine_zeros : engine_empty)(p->stream, p->account, n.dtype, n.rank,
                                                         n.shape, &s->own, e);
    if (code != ERR_OK)
        return code;
    s->region = s->own->view;
    if (!k)
        k = program_add_known(p, s->name);
    if (!k)
        return err_oom(e);
    k->temporary = true;
    k->binding = program_binding(s->own);
    k->watched |= is_result(p, s);
    s->temporary = k;
    return ERR_OK;
}

static enum err_code add_fill(struct program *p, const struct step *s, struct err *e)
{
    struct task *t;
    struct ir_plan *plan;
    TRY(fill_begin(p->stream, s->target->spare[0], &t, &plan, e));
    p->cost = cost_sum(p->cost, plan ? plan_cost(plan) : 0);
    task_free(t);
    return cost_check(p->stream->engine, &s->expr, COST_OF_STEP, p->cost, e);
}

static enum err_code add_statement(struct program *p, struct step *s, struct err *e)
{
    struct outline n;
    if (!s->target)
        return add_temporary(p, s, e);
    if (s->assign->fills)
        return add_fill(p, s, e);
    struct array *spare = s->target->spare[0];
    enum err_code code = index_array(s, spare, &s->region, e);
    if (code == ERR_OK)
        code = check_statement(p, &s->expr, spare, &s->region, -1, true, &n, e);
    if (code == ERR_OK && n.guarded && !s->target->guarded) {
        s->target->guarded = true;
        drop_spares(s->target);
        code = take_spares(p, s->target, e);
    }
    return code;
}

/* --- watched values --- */

static enum err_code watch(struct program *p, struct watched *w, const struct expr *x, int dtype,
                           int64_t room, const char *place, struct err *e)
{
    struct outline n;
    w->place = place;
    enum err_code code = program_write_out_watched(p, x, &w->expr, e);
    for (uint32_t i = 0; i < w->expr.n_nodes && code == ERR_OK; i++) {
        const struct expr_node *node = &w->expr.nodes[i];
        const struct name *name = node->kind == EXPR_NAME ? program_find_name(p, node->name) : NULL;
        if (name && name->known)
            name->known->watched = true;
    }
    if (code == ERR_OK)
        code = check_statement(p, &w->expr, NULL, NULL, dtype, true, &n, e);
    if (code != ERR_OK)
        return program_placed(e, code, place);
    if (n.rank)
        return err_field(e, ERR_SHAPE_MISMATCH, place,
                         "this must be a single number, not an array");
    if (dtype_is_complex(n.dtype))
        return err_field(e, ERR_DTYPE_MISMATCH, place, "this must be a real number, not %s",
                         dtype_name(n.dtype));
    code = engine_zeros(p->stream, p->account, n.dtype, 1, &room, &w->array, e);
    w->want = dtype_size(n.dtype) * (size_t)room;
    w->bytes = code == ERR_OK ? arena_alloc(p->arena, w->want) : NULL;
    return code == ERR_OK && !w->bytes ? err_oom(e) : code;
}

/* f(node) */
static enum err_code call(struct expr *x, const char *name, uint32_t arg, uint32_t *ret,
                          struct err *e)
{
    struct expr_link link = {.node = arg};
    return expr_add(
        x,
        &(struct expr_node){.kind = EXPR_CALL, .name = name, .offset = -1, .parent = EXPR_NOWHERE},
        &link, 1, 0, ret, e);
}

static enum err_code watch_nan(struct program *p, struct target *t, struct err *e)
{
    struct expr x;
    TRY(expr_of_name(p, t->name, &x) ? call(&x, "isnan", x.root, &x.root, e) : err_oom(e));
    TRY(call(&x, "any", x.root, &x.root, e));
    return watch(p, &p->checks[p->n_checks++], &x, -1, 1, p->spec.stop_on_nan, e);
}

static enum err_code watch_all(struct program *p, struct err *e)
{
    const struct program_spec *spec = &p->spec;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < spec->n_series && code == ERR_OK; i++)
        code = watch(p, &p->series[i], &spec->series[i].expr, -1, VALUES_MOST,
                     spec->series[i].place, e);
    if (spec->until && code == ERR_OK) {
        p->until = arena_alloc(p->arena, sizeof *p->until);
        code = p->until ? watch(p, p->until, &spec->until->expr, DT_BOOL, VALUES_MOST,
                                spec->until->place, e)
                        : err_oom(e);
    }
    for (uint32_t i = 0; i < p->n_targets && spec->stop_on_nan && code == ERR_OK; i++)
        if (dtype_kind(p->targets[i].home->dtype) >= KIND_FLOAT)
            code = watch_nan(p, &p->targets[i], e);
    return code;
}

/* The first assignment to the target. */
static const struct program_assign *first_of(const struct program *p, const struct target *t)
{
    uint32_t i = 0;
    while (p->steps[i].target != t)
        i++;
    return p->steps[i].assign;
}

/* A target's memory is exchanged: the program must not use it under another name. */
static enum err_code no_aliases(const struct program *p, struct err *e)
{
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const struct target *t = &p->targets[i];
        const char *other = NULL;
        for (uint32_t j = 0; j < p->n_targets && !other; j++)
            if (i != j && array_same_buffer(t->home, p->targets[j].home))
                other = p->targets[j].name;
        for (size_t j = 0; j < p->n_known && !other; j++)
            if (p->known[j]->binding.kind == BINDING_ARRAY && !p->known[j]->temporary &&
                array_same_buffer(t->home, p->known[j]->binding.array))
                other = p->known[j]->name;
        if (other)
            return program_of_target(e,
                                     err_set(e, ERR_OVERLAP,
                                             "\"%s\" is assigned and shares memory with \"%s\": "
                                             "use only one of the two, or work on a copy",
                                             t->name, other),
                                     first_of(p, t));
    }
    return ERR_OK;
}

static enum err_code make_step(struct program *p, uint32_t i, struct err *e)
{
    struct step *s = &p->steps[i];
    s->target = s->name->target;
    enum err_code code = program_write_out(p, i, e);
    if (code == ERR_OK)
        code = add_statement(p, s, e);
    if (code == ERR_OK && is_result(p, s))
        p->results[i - p->n_statements].array = array_ref(s->own);
    return program_of_target(e, code, s->assign);
}

/* Whether statement j waits for statement i, or for one after it, to be checked. */
static bool is_unchecked(const struct program *p, uint32_t j, uint32_t i)
{
    while (j < i && p->steps[j].waits)
        j = p->steps[j].moved_to;
    return j >= i;
}

/* Statement i has an error: one that waits may have an earlier one. They are checked each by
 * itself, as long as this takes no more nodes than a program may have. */
static enum err_code first_mistake(struct program *p, uint32_t i, enum err_code code, struct err *e)
{
    size_t n_nodes = 0;
    for (uint32_t j = 0; j <= i; j++)
        p->steps[j].mentions.n_done = 0; /* the error may have left some */
    for (uint32_t j = 0; j < i && code != ERR_OUT_OF_MEMORY; j++) {
        struct step *s = &p->steps[j];
        if (!s->waits || !is_unchecked(p, j, i))
            continue;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct err first = ERR_INIT;
        struct outline n;
        struct expr x;
        n_nodes += s->n_all;
        if (!arena || (p->spec.most_nodes && n_nodes > (size_t)p->spec.most_nodes))
            break;
        enum err_code at = program_write_step(p, j, arena, &x, &first);
        if (at == ERR_OK)
            at = check_statement(p, &x, NULL, NULL, -1, false, &n, &first);
        if (at != ERR_OK) {
            *e = first;
            return program_of_target(e, at, s->assign);
        }
    }
    return code;
}

static enum err_code make(struct program *p, struct err *e)
{
    if (!program_survey(p))
        return err_oom(e);
    TRY(find_targets(p, e));
    find_filled(p);
    for (uint32_t i = 0; i < p->spec.n_body; i++) {
        enum err_code code = make_step(p, i, e);
        if (code != ERR_OK)
            return first_mistake(p, i, code, e);
    }
    TRY(watch_all(p, e));
    return no_aliases(p, e);
}

/* The results are statements too, after the others: they assign to names that no expression can
 * have. */
static bool add_results(struct program *p)
{
    const struct program_spec *spec = &p->spec;
    const uint32_t n = spec->n_body + spec->n_results;
    struct program_assign *body = arena_alloc_array(p->arena, n, sizeof *body);
    if (!body)
        return false;
    memcpy(body, spec->body, sizeof *body * spec->n_body);
    for (uint32_t i = 0; i < spec->n_results; i++) {
        struct program_assign *a = &body[spec->n_body + i];
        a->place = spec->results[i].place;
        a->at = -1;
        a->target = arena_printf(p->arena, "%u", i);
        if (!a->target || !expr_of_name(p, spec->results[i].name, &a->expr))
            return false;
    }
    p->n_statements = spec->n_body;
    p->spec.body = body;
    p->spec.n_body = n;
    return true;
}

enum err_code program_new(struct engine_stream *s, struct account *account,
                          const struct program_spec *spec, struct program **ret, struct err *e)
{
    struct program *p = arena_alloc(spec->arena, sizeof *p);
    if (!p)
        return err_oom(e);
    *p = (struct program){.arena = spec->arena, .stream = s, .account = account, .spec = *spec};
    pthread_mutex_init(&p->told, NULL); /* cannot fail here */
    p->env = (struct check_env){.resolve = program_resolve,
                                .called = program_called,
                                .user = p,
                                .max_inputs = spec->env->max_inputs};
    p->stop_at = p->nan_within = INT64_MAX;
    bool there = add_results(p);
    p->targets = arena_alloc_array(p->arena, spec->n_body, sizeof *p->targets);
    p->steps = arena_alloc_array(p->arena, p->spec.n_body, sizeof *p->steps);
    p->results = arena_alloc_array(p->arena, spec->n_results, sizeof *p->results);
    p->series = arena_alloc_array(p->arena, spec->n_series, sizeof *p->series);
    p->checks = arena_alloc_array(p->arena, spec->n_body, sizeof *p->checks);
    p->exchanges = arena_alloc_array(p->arena, spec->n_body, sizeof *p->exchanges);
    there = there && expr_of_name(p, NULL, &p->zero) && p->targets && p->steps && p->series &&
            p->results && p->checks && p->exchanges;
    enum err_code code = there ? make(p, e) : err_oom(e);
    p->spec.env = NULL; /* the caller's, only valid while the program was made */
    if (code == ERR_OK) {
        *ret = p;
        return ERR_OK;
    }
    p->arena = NULL; /* still the caller's */
    program_free(p);
    return code;
}

static void watched_free(struct watched *w)
{
    if (!w)
        return;
    download_free(w->download);
    array_unref(w->array);
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_targets; i++) {
        array_unref(p->targets[i].home);
        array_unref(p->targets[i].spare[0]);
        array_unref(p->targets[i].spare[1]);
    }
    for (uint32_t i = 0; i < p->spec.n_body && p->steps; i++)
        if (!p->steps[i].borrowed)
            array_unref(p->steps[i].own);
    for (size_t i = 0; i < p->n_known; i++)
        if (p->known[i]->binding.kind == BINDING_ARRAY && !p->known[i]->temporary)
            array_unref(p->known[i]->binding.array);
    for (uint32_t i = 0; i < p->spec.n_series && p->series; i++)
        watched_free(&p->series[i]);
    for (uint32_t i = 0; i < p->spec.n_results && p->results; i++)
        watched_free(&p->results[i]);
    for (uint32_t i = 0; i < p->n_checks; i++)
        watched_free(&p->checks[i]);
    watched_free(p->until);
    pthread_mutex_destroy(&p->told);
    mem_free(p->submissions);
    mem_free(p->guards);
    arena_free(p->arena);
}

struct array *program_result(const struct program *p, uint32_t i)
{
    return p->results[i].array;
}

enum err_code program_fetch(struct program *p, uint32_t i, struct err *e)
{
    struct watched *w = &p->results[i];
    w->bytes = arena_alloc(p->arena, (size_t)array_nbytes(w->array) + 1);
    return w->bytes ? ERR_OK : err_oom(e);
}

const void *program_result_bytes(const struct program *p, uint32_t i)
{
    return p->results[i].bytes;
}

void program_on_ready(struct program *p, program_ready *ready, void *user)
{
    p->ready = ready;
    p->ready_user = user;
}

void program_rest(struct program *p)
{
    for (uint32_t i = 0; i < p->n_targets; i++)
        drop_spares(&p->targets[i]);
}

bool program_keeps_ghosts(const struct target *t)
{
    return has_ghosts(t) && !t->carries;
}

enum err_code program_wake(struct program *p, struct err *e)
{
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < p->n_targets && code == ERR_OK; i++) {
        struct target *t = &p->targets[i];
        /* no statement of ours writes ghost cells, but other clients may: the spares need their
         * values, too */
        if (program_keeps_ghosts(t) && array_version(t->home) != t->ghosts)
            drop_spares(t);
        code = take_spares(p, t, e);
    }
    return code;
}

struct array *program_made(const struct program *p, uint32_t target)
{
    return p->targets[target].now;
}

struct engine_stream *program_stream(const struct program *p)
{
    return p->stream;
}

uint32_t program_targets(const struct program *p)
{
    return p->n_targets;
}

const char *program_target(const struct program *p, uint32_t i, struct array **ret)
{
    *ret = p->targets[i].home;
    return p->targets[i].name;
}

uint32_t program_inputs(const struct program *p)
{
    return (uint32_t)p->n_known;
}

const struct array *program_input(const struct program *p, uint32_t i)
{
    const struct known *k = p->known[i];
    return k->binding.kind == BINDING_ARRAY && !k->temporary ? k->binding.array : NULL;
}

const char *program_input_name(const struct program *p, uint32_t i)
{
    return p->known[i]->name;
}
