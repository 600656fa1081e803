/* The walk over the untyped tree: order, names, calls.
 *
 * Nodes are visited in loops, root by root (each let, then the main expression), children first; no
 * recursion, so that depth costs nothing. Only calls and indexing are evaluated in the walk.
 * Names, strings and lists mean what the call around them makes of them (a boundary's name, a
 * dtype, axes), so they are looked at when a call asks for a value. */
#include "compute/check/check_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err_code check_place(struct checker *c, uint32_t node, enum err_code code)
{
    if (!c->e || code == ERR_OUT_OF_MEMORY)
        return code;
    return expr_err(c->x, node, c->e, code, "%s", c->e->message);
}

bool check_absent(struct checker *c, uint32_t node)
{
    return node == EXPR_NOWHERE || c->x->nodes[node].kind == EXPR_NONE;
}

const char *check_text(struct checker *c, uint32_t node)
{
    const struct expr_node *n = &c->x->nodes[node];
    return n->kind == EXPR_STRING || n->kind == EXPR_NAME ? n->name : NULL;
}

uint32_t check_items(struct checker *c, uint32_t node, const struct expr_link **ret,
                     struct expr_link *one)
{
    const struct expr_node *n = &c->x->nodes[node];
    if (n->kind == EXPR_LIST) {
        *ret = expr_args(c->x, n);
        return n->n_args;
    }
    *one = (struct expr_link){.node = node};
    *ret = one;
    return 1;
}

/* Names */

static size_t name_slot(const struct checker *c, const char *name)
{
    uint64_t h = 14695981039346656037ull;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211ull;
    size_t at = (h ^ h >> 32) & (c->cap_names - 1);
    while (c->names[at].name && strcmp(c->names[at].name, name) != 0)
        at = (at + 1) & (c->cap_names - 1);
    return at;
}

static enum err_code name_set(struct checker *c, const char *name, const struct cval *value)
{
    if (2 * c->n_names >= c->cap_names) {
        struct name_entry *old = c->names;
        size_t n = c->cap_names;
        c->cap_names = n ? 2 * n : 32;
        c->names = arena_alloc_array(c->arena, c->cap_names, sizeof *c->names);
        if (!c->names)
            return err_oom(c->e);
        for (size_t i = 0; i < n; i++)
            if (old[i].name)
                c->names[name_slot(c, old[i].name)] = old[i];
    }
    struct name_entry *entry = &c->names[name_slot(c, name)];
    c->n_names += !entry->name;
    *entry = (struct name_entry){.name = name, .value = *value};
    return ERR_OK;
}

static bool constant(const char *name, struct literal *ret)
{
    static const struct {
        const char *name;
        double value;
    } constants[] = {{"pi", M_PI}, {"e", M_E}, {"inf", INFINITY}, {"nan", NAN}};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (strcmp(constants[i].name, name) == 0) {
            *ret = (struct literal){.kind = LIT_FLOAT, .re = constants[i].value};
            return true;
        }
    return false;
}

static enum err_code unknown_name(struct checker *c, uint32_t node, const char *name)
{
    size_t n = strlen(name);
    if (op_from_name(name, n) >= 0 || func_from_name(name, n) >= 0)
        return expr_err(c->x, node, c->e, ERR_UNKNOWN_NAME,
                        "'%s' is a function: it wants arguments in brackets", name);
    return expr_err(c->x, node, c->e, ERR_UNKNOWN_NAME,
                    "no array, let, bound scalar or constant is called '%s'", name);
}

static enum err_code resolve(struct checker *c, uint32_t node, struct cval *ret)
{
    const char *name = c->x->nodes[node].name;
    if (c->cap_names) {
        const struct name_entry *entry = &c->names[name_slot(c, name)];
        if (entry->name) {
            *ret = entry->value;
            ret->place = node;
            return ERR_OK;
        }
    }
    struct binding b = {0};
    struct cval v = {.place = node};
    enum err_code rc = c->env->resolve ? c->env->resolve(c->env->user, name, &b, c->e) : ERR_OK;
    if (rc)
        return check_place(c, node, rc);
    switch (b.kind) {
    case BINDING_ARRAY:
        TRY(graph_input(c, node, name, &b, &v.id));
        break;
    case BINDING_LITERAL:
        v.weak = true;
        v.lit = b.lit;
        break;
    case BINDING_SCALAR:
        TRY(graph_const(c, node, b.scalar, &v.id));
        break;
    case BINDING_NONE:
        v.weak = true;
        if (!constant(name, &v.lit))
            return unknown_name(c, node, name);
        break;
    }
    TRY(name_set(c, name, &v));
    *ret = v;
    return ERR_OK;
}

enum err_code check_value(struct checker *c, uint32_t node, struct cval *ret)
{
    const struct expr_node *n = &c->x->nodes[node];
    struct cval v = {.place = node};
    switch (n->kind) {
    case EXPR_LITERAL:
        v.weak = true;
        v.lit = n->lit;
        break;
    case EXPR_TYPED:
        TRY(graph_const(c, node, n->typed, &v.id));
        break;
    case EXPR_NAME:
        return resolve(c, node, ret);
    case EXPR_CALL:
    case EXPR_GETITEM:
        v = c->values[node];
        v.place = node;
        break;
    case EXPR_STRING:
        if (n->offset < 0) /* in a tree, strings are names */
            return resolve(c, node, ret);
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                        "the text '%s' stands where a value is wanted", n->name);
    case EXPR_LIST:
        return pieces_list(c, node, ret);
    case EXPR_NONE:
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                        "None stands where a value is wanted");
    }
    *ret = v;
    return ERR_OK;
}

enum err_code check_int(struct checker *c, uint32_t node, const char *what, enum err_code code,
                        int64_t *ret)
{
    struct cval v;
    enum expr_kind kind = c->x->nodes[node].kind;
    if (kind != EXPR_LIST && kind != EXPR_NONE && kind != EXPR_STRING) {
        TRY(check_value(c, node, &v));
        if (!v.weak && c->t->nodes[v.id].kind == T_CONST &&
            dtype_is_integer(c->t->nodes[v.id].dtype)) {
            v.weak = true;
            v.lit = literal_from_scalar(c->t->nodes[v.id].value);
        }
        if (v.weak && v.lit.kind == LIT_INT && v.lit.i >= INT64_MIN && v.lit.i <= INT64_MAX) {
            *ret = (int64_t)v.lit.i;
            return ERR_OK;
        }
    }
    return expr_err(c->x, node, c->e, code, "%s must be an integer", what);
}

/* Calls */

/* The arguments under the parameters of the signature; the first `least` must be there. */
static enum err_code bind_arguments(struct checker *c, uint32_t node, const char *signature,
                                    uint32_t least, struct call *ret)
{
    const struct expr_node *n = &c->x->nodes[node];
    uint32_t args[CALL_MAX_PARAMS];
    TRY(call_match(c->x, node, signature, least, args, c->e));
    *ret = (struct call){.node = node, .name = n->name};
    for (uint32_t p = 0; p < FUNC_MAX_PARAMS; p++)
        ret->param[p] =
            args[p] == EXPR_NOWHERE ? EXPR_NOWHERE : c->x->links[n->first_arg + args[p]].node;
    return ERR_OK;
}

static enum err_code check_op(struct checker *c, uint32_t node, enum op op)
{
    const struct expr_node *n = &c->x->nodes[node];
    struct cval args[2];
    if (call_is_variadic(op) && n->n_args > 2 && n->n_keywords == 0) {
        const struct expr_link *links = expr_args(c->x, n);
        TRY(check_value(c, links[0].node, &args[0]));
        for (uint32_t i = 1; i < n->n_args; i++) {
            TRY(check_value(c, links[i].node, &args[1]));
            TRY(ops_apply(c, node, op, args, &args[0]));
        }
        c->values[node] = args[0];
        return ERR_OK;
    }
    uint32_t arity = op_table[op].nargs;
    char signature[CALL_SIGNATURE];
    struct call call;
    TRY(bind_arguments(c, node, call_op_signature(op, signature), arity, &call));
    for (uint32_t k = 0; k < arity; k++)
        TRY(check_value(c, call.param[k], &args[k]));
    return ops_apply(c, node, op, args, &c->values[node]);
}

static enum err_code check_func(struct checker *c, uint32_t node, enum func func)
{
    struct cval *ret = &c->values[node];
    struct call call;
    TRY(bind_arguments(c, node, func_table[func].signature, (uint32_t)func_table[func].least,
                       &call));
    switch (func) {
    case FUNC_WHERE:
        return ops_where(c, &call, ret);
    case FUNC_ASTYPE:
        return ops_astype_call(c, &call, ret);
    case FUNC_CLIP:
        return ops_clip(c, &call, ret);
    case FUNC_LERP:
        return ops_lerp(c, &call, ret);
    case FUNC_ADDCMUL:
        return ops_addc(c, &call, OP_MULTIPLY, ret);
    case FUNC_ADDCDIV:
        return ops_addc(c, &call, OP_DIVIDE, ret);
    case FUNC_INDEX:
        return stencil_index(c, &call, ret);
    case FUNC_UNRAVEL_INDEX:
        return stencil_unravel(c, &call, ret);
    case FUNC_SHIFT:
        return stencil_shift(c, &call, ret);
    case FUNC_FORWARD_DIFF:
    case FUNC_BACK_DIFF:
        return stencil_one_sided(c, &call, func == FUNC_FORWARD_DIFF, ret);
    case FUNC_CENTRAL_DIFF:
        return stencil_central(c, &call, ret);
    case FUNC_LAPLACIAN:
        return stencil_laplacian(c, &call, ret);
    case FUNC_GRADIENT:
        return stencil_gradient(c, &call, ret);
    case FUNC_CORRELATE:
        return stencil_correlate(c, &call, ret);
    case FUNC_FLIP:
    case FUNC_PERMUTE_DIMS:
    case FUNC_EXPAND_DIMS:
    case FUNC_SQUEEZE:
    case FUNC_BROADCAST_TO:
    case FUNC_ROLL:
    case FUNC_TRIL:
    case FUNC_TRIU:
    case FUNC_RESHAPE:
        return rearrange_call(c, &call, func, ret);
    case FUNC_TAKE:
        return gather_take(c, &call, ret);
    case FUNC_TAKE_ALONG_AXIS:
        return gather_take_along(c, &call, ret);
    case FUNC_SAMPLE:
        return sample_call(c, &call, ret);
    case FUNC_CONCAT:
    case FUNC_STACK:
        return pieces_concat(c, &call, func == FUNC_STACK, ret);
    case FUNC_REPEAT:
        return pieces_repeat(c, &call, ret);
    case FUNC_TILE:
        return pieces_tile(c, &call, ret);
    case FUNC_SUM:
    case FUNC_MEAN:
    case FUNC_MIN:
    case FUNC_MAX:
    case FUNC_ANY:
    case FUNC_ALL:
    case FUNC_PROD:
    case FUNC_VAR:
    case FUNC_STD:
    case FUNC_NORM:
    case FUNC_COUNT_NONZERO:
    case FUNC_ARGMAX:
    case FUNC_ARGMIN:
    case FUNC_COUNT:
        break;
    case FUNC_CUMULATIVE_SUM:
    case FUNC_CUMULATIVE_PROD:
        return scan_call(c, &call, func == FUNC_CUMULATIVE_SUM ? REDUCE_SUM : REDUCE_PROD, ret);
    case FUNC_DOT:
        return moments_dot(c, &call, ret);
    }
    return reduce_call(c, &call, func, ret);
}

static enum err_code check_node(struct checker *c, uint32_t node)
{
    const struct expr_node *n = &c->x->nodes[node];
    if (n->kind == EXPR_GETITEM)
        return stencil_getitem(c, node, &c->values[node]);
    if (n->kind != EXPR_CALL)
        return ERR_OK;
    int op = op_from_name(n->name, strlen(n->name));
    if (op >= 0)
        return check_op(c, node, (enum op)op);
    int func = func_from_name(n->name, strlen(n->name));
    if (func >= 0)
        return check_func(c, node, (enum func)func);
    return call_unknown(c->x, node, c->e);
}

/* The walk */

/* Orders the nodes by the root they hang under: lets in order, then the main expression; nodes
 * under none are left out. Children stay before parents. Root k's nodes are order[start[k] …
 * start[k + 1]). */
static enum err_code order_nodes(struct checker *c, uint32_t **ret_order, uint32_t **ret_start)
{
    const struct expr *x = c->x;
    size_t roots = x->n_lets + 1;
    uint32_t *owner = arena_alloc_array(c->arena, x->n_nodes, sizeof *owner); /* root + 1 */
    uint32_t *order = arena_alloc_array(c->arena, x->n_nodes, sizeof *order);
    uint32_t *start = arena_alloc_array(c->arena, roots + 2, sizeof *start);
    if (!owner || !order || !start)
        return err_oom(c->e);
    for (size_t k = 0; k < x->n_lets; k++)
        owner[x->lets[k].node] = (uint32_t)k + 1;
    owner[x->root] = (uint32_t)roots;
    for (size_t i = x->n_nodes; i-- > 0;)
        for (uint32_t k = 0; owner[i] && k < x->nodes[i].n_args; k++)
            owner[x->links[x->nodes[i].first_arg + k].node] = owner[i];
    for (size_t i = 0; i < x->n_nodes; i++)
        if (owner[i])
            start[owner[i] + 1]++; /* two ahead: filling below moves each start to its place */
    for (size_t k = 2; k <= roots + 1; k++)
        start[k] += start[k - 1];
    for (uint32_t i = 0; i < x->n_nodes; i++)
        if (owner[i])
            order[start[owner[i]]++] = i;
    *ret_order = order;
    *ret_start = start;
    return ERR_OK;
}

static enum err_code check_roots(struct checker *c)
{
    const struct expr *x = c->x;
    uint32_t *order = NULL, *start = NULL;
    TRY(order_nodes(c, &order, &start));
    for (size_t k = 0; k <= x->n_lets; k++) {
        for (uint32_t i = start[k]; i < start[k + 1]; i++)
            TRY(check_node(c, order[i]));
        if (k < x->n_lets) {
            struct cval v;
            TRY(check_value(c, x->lets[k].node, &v));
            TRY(name_set(c, x->lets[k].name, &v));
        }
    }
    return ERR_OK;
}

enum err_code check_expr(struct arena *arena, const struct expr *x, const struct check_env *env,
                         int dtype, struct typed *ret, struct err *e)
{
    struct typed t = {0};
    struct err own = ERR_INIT; /* messages are given their place after they are written */
    struct checker c = {.arena = arena, .x = x, .env = env, .t = &t, .e = e ? e : &own};
    struct cval root;
    c.values = arena_alloc_array(arena, x->n_nodes, sizeof *c.values);
    if (!c.values)
        return err_oom(c.e);
    TRY(check_roots(&c));
    TRY(check_value(&c, x->root, &root));
    if (root.weak && dtype < 0) {
        t.literal = arena_dup(arena, &root.lit, sizeof root.lit);
        if (!t.literal)
            return err_oom(c.e);
    }
    TRY(ops_typed(&c, &root, &t.root));
    TRY(graph_close(&c, x->root, t.root, &t.root));
    if (dtype >= 0) {
        root = cval_typed(t.root, x->root);
        TRY(ops_astype(&c, &root, (enum dtype)dtype, x->root, &t.root));
    }
    TRY(check_finish(&c));
    *ret = t;
    return ERR_OK;
}
