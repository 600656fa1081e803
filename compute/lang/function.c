/* Expansion visits the nodes in order, children first, and copies each. In place of a call it does
 * the same with the function's body, where a parameter becomes the argument's node. It recurses for
 * calls of functions within functions, which the nesting limit bounds. Every call adds at least one
 * node, so the node limit bounds time and memory however often functions double themselves.
 *
 * Nesting is counted as if the expanded text stood in brackets: a node knows its own depth
 * (expr_node.depth), and `height` is how much deeper its descendants go. */
#include "compute/lang/function.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"

/* --- defining --- */

static uint32_t param_of(const struct function *f, const struct expr_node *n)
{
    uint32_t p = 0;
    if (!expr_is_name(n))
        return EXPR_NOWHERE;
    while (p < f->n_params && strcmp(f->params[p], n->name) != 0)
        p++;
    return p < f->n_params ? p : EXPR_NOWHERE;
}

static enum err_code add_call(struct function *f, uint32_t node, size_t *cap, struct err *e)
{
    const char *name = f->body->nodes[node].name;
    for (uint32_t i = 0; i < f->n_calls; i++)
        if (!strcmp(f->calls[i].name, name))
            return ERR_OK;
    if (arena_grow(f->arena, (void **)&f->calls, cap, f->n_calls, sizeof *f->calls))
        return err_oom(e);
    f->calls[f->n_calls++] = (struct function_call){name, node};
    return ERR_OK;
}

static enum err_code check_body(struct function *f, struct err *e)
{
    size_t cap = 0;
    for (uint32_t i = 0; i < f->body->n_nodes; i++) {
        const struct expr_node *n = &f->body->nodes[i];
        bool known;
        if (n->kind != EXPR_CALL)
            continue;
        TRY(call_check(f->body, i, &known, e));
        if (!known)
            TRY(add_call(f, i, &cap, e));
    }
    return ERR_OK;
}

static const char *make_signature(struct arena *arena, const char *name, const char *const *params,
                                  uint32_t n)
{
    _cleanup_strb_ struct strb b = {0};
    strb_addf(&b, "%s(", name);
    for (uint32_t p = 0; p < n; p++)
        strb_addf(&b, p ? ", %s" : "%s", params[p]);
    strb_addc(&b, ')');
    return b.failed ? NULL : arena_strndup(arena, b.data, b.len);
}

enum err_code function_new(struct arena *take_arena, const struct expr *body, const char *name,
                           const char *const *params, uint32_t n_params, struct function **ret,
                           struct err *e)
{
    struct arena *arena = take_arena;
    struct function *f = arena_alloc(arena, sizeof *f);
    const char **copies = arena_alloc_array(arena, n_params + 1, sizeof *copies);
    if (!f || !copies || n_params > CALL_MAX_PARAMS)
        return err_oom(e);
    for (uint32_t p = 0; p < n_params; p++) {
        copies[p] = arena_strndup(arena, params[p], strlen(params[p]));
        if (!copies[p])
            return err_oom(e);
    }
    atomic_init(&f->refs, 1);
    f->arena = arena;
    f->name = arena_strndup(arena, name, strlen(name));
    f->signature = make_signature(arena, name, params, n_params);
    f->params = copies;
    f->n_params = n_params;
    f->body = arena_dup(arena, body, sizeof *body);
    if (!f->name || !f->signature || !f->body)
        return err_oom(e);
    TRY(check_body(f, e));
    *ret = f;
    return ERR_OK;
}

struct function *function_ref(struct function *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void function_unref(struct function *f)
{
    if (f && atomic_fetch_sub(&f->refs, 1) == 1)
        arena_free(f->arena);
}

/* --- expansion --- */

/* What a node of a text became: a node of the result, and how many levels deeper than the node
 * itself its descendants go. */
struct made {
    uint32_t node, height;
};

struct inliner {
    const struct function_set *set;
    struct expr *to;
    struct err *e;
    uint32_t levels; /* functions being expanded */
    uint32_t outermost;
};

/* A text being expanded: the request's, or a function's body with its arguments. */
struct frame {
    const struct expr *x;
    const struct function *f; /* NULL: the request's */
    const struct made *args;
    uint32_t expansion, first_source;
    struct made *made; /* by node of x */
};

static enum err_code too_large(struct inliner *in, const char *what, size_t limit)
{
    return expr_err(in->to, in->outermost, in->e, ERR_EXPRESSION_TOO_LARGE,
                    "the expression has more than %zu %s when its functions are expanded", limit,
                    what);
}

static int by_name(const void *key, const void *item)
{
    return strcmp(key, (*(struct function *const *)item)->name);
}

static const struct function *find(const struct inliner *in, const struct expr_node *n)
{
    if (n->kind != EXPR_CALL || in->set->n == 0)
        return NULL;
    struct function *const *found =
        bsearch(n->name, in->set->items, in->set->n, sizeof *in->set->items, by_name);
    return found ? *found : NULL;
}

/* Copies the node itself over the copies of its children. */
static enum err_code copy_node(struct inliner *in, const struct frame *fr, uint32_t node,
                               struct made *ret)
{
    const struct expr_node *n = &fr->x->nodes[node];
    const struct expr_link *links = expr_args(fr->x, n);
    struct expr_link few[CALL_MAX_PARAMS], *to = few;
    struct made m = {0};
    if (n->n_args > CALL_MAX_PARAMS)
        to = arena_alloc_array(in->to->arena, n->n_args, sizeof *to);
    if (!to)
        return err_oom(in->e);
    for (uint32_t k = 0; k < n->n_args; k++) {
        const struct made *child = &fr->made[links[k].node];
        uint32_t height = child->height + fr->x->nodes[links[k].node].depth - n->depth;
        to[k] = (struct expr_link){.node = child->node, .keyword = links[k].keyword};
        if (height > m.height)
            m.height = height;
    }
    struct expr_node copy = *n;
    copy.expansion = fr->expansion;
    copy.source += fr->first_source;
    enum err_code code = expr_add(in->to, &copy, to, n->n_args, n->n_keywords, &m.node, in->e);
    if (code == ERR_EXPRESSION_TOO_LARGE)
        return too_large(in, "nodes", in->to->max_nodes);
    *ret = m;
    return code;
}

static enum err_code write_text(struct inliner *in, struct frame *fr);

/* Writes the body in place of the call, whose copy is `call`. */
static enum err_code write_call(struct inliner *in, const struct frame *fr, uint32_t node,
                                const struct function *f, const struct made *call, struct made *ret)
{
    struct expr *to = in->to;
    const struct expr_node *n = &fr->x->nodes[node];
    uint32_t number[CALL_MAX_PARAMS];
    struct made args[CALL_MAX_PARAMS];
    if (in->levels >= (uint32_t)to->max_nesting)
        return too_large(in, "levels of nesting", (size_t)to->max_nesting);
    TRY(call_match(to, call->node, f->signature, f->n_params, number, in->e));
    for (uint32_t p = 0; p < f->n_params; p++) {
        uint32_t arg = fr->x->links[n->first_arg + number[p]].node;
        uint32_t within = fr->x->nodes[arg].depth; /* its own brackets, besides the call's */
        args[p] = fr->made[arg];
        args[p].height += within > n->depth + 1u ? within - n->depth - 1 : 0;
    }
    if (arena_grow(to->arena, (void **)&to->expansions, &to->cap_expansions, to->n_expansions,
                   sizeof *to->expansions))
        return err_oom(in->e);
    to->expansions[to->n_expansions++] =
        (struct expr_expansion){.function = f->name, .call = call->node};
    struct frame body = {.x = f->body,
                         .f = f,
                         .args = args,
                         .expansion = (uint32_t)to->n_expansions,
                         .first_source = (uint32_t)to->n_sources};
    uint32_t source;
    for (size_t i = 0; i < f->body->n_sources; i++)
        TRY(expr_add_source(to, f->body->sources[i], &source, in->e));
    in->levels++;
    TRY(write_text(in, &body));
    in->levels--;
    const struct made *root = &body.made[f->body->root];
    *ret = (struct made){root->node, root->height + f->body->nodes[f->body->root].depth + 1};
    return ERR_OK;
}

static enum err_code write_text(struct inliner *in, struct frame *fr)
{
    const struct expr *x = fr->x;
    fr->made = arena_alloc_array(in->to->arena, x->n_nodes, sizeof *fr->made);
    if (!fr->made)
        return err_oom(in->e);
    for (uint32_t i = 0; i < x->n_nodes; i++) {
        const struct expr_node *n = &x->nodes[i];
        const struct function *f = find(in, n);
        uint32_t p = fr->f ? param_of(fr->f, n) : EXPR_NOWHERE;
        struct made m;
        if (p != EXPR_NOWHERE) {
            fr->made[i] = fr->args[p];
            continue;
        }
        if (!fr->f && f)
            in->outermost = (uint32_t)in->to->n_nodes;
        TRY(copy_node(in, fr, i, &m));
        if (f)
            TRY(write_call(in, fr, i, f, &m, &m));
        if (!fr->f && f && n->depth + m.height > (uint32_t)in->to->max_nesting)
            return too_large(in, "levels of nesting", (size_t)in->to->max_nesting);
        fr->made[i] = m;
    }
    return ERR_OK;
}

enum err_code function_inline(const struct expr *x, const struct function_set *set,
                              struct expr *ret, struct err *e)
{
    struct expr to;
    expr_init(&to, x->arena, x->max_nodes, x->max_nesting);
    struct inliner in = {.set = set, .to = &to, .e = e, .outermost = EXPR_NOWHERE};
    struct frame fr = {.x = x};
    uint32_t source;
    for (size_t i = 0; i < x->n_sources; i++)
        TRY(expr_add_source(&to, x->sources[i], &source, e));
    TRY(write_text(&in, &fr));
    for (size_t i = 0; i < x->n_lets; i++)
        TRY(expr_add_let(&to, x->lets[i].name, fr.made[x->lets[i].node].node, e));
    to.root = fr.made[x->root].node;
    *ret = to;
    return ERR_OK;
}
