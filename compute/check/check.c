/* The main pass over the untyped tree: order, names, calls.
 *
 * Nodes are visited in loops, root by root (each let, then the main expression), children first; no
 * recursion, so that depth costs nothing. This pass evaluates only calls and indexing, each after
 * its descendants: a rule reads the values of its arguments through check_value.c. */
#include "compute/check/check.h"

#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"
#include "compute/lang/call.h"

/* Calls */

/* The rule of each function; those not listed are reductions. */
static enum err_code (*const rules[FUNC_COUNT])(struct checker *c, const struct call *call,
                                                struct cval *ret) = {
    [FUNC_WHERE] = elementwise_where,
    [FUNC_ASTYPE] = elementwise_astype,
    [FUNC_CLIP] = elementwise_clip,
    [FUNC_LERP] = elementwise_lerp,
    [FUNC_ADDCMUL] = elementwise_addc,
    [FUNC_ADDCDIV] = elementwise_addc,
    [FUNC_INDEX] = stencil_index,
    [FUNC_UNRAVEL_INDEX] = stencil_unravel,
    [FUNC_SHIFT] = stencil_shift,
    [FUNC_FORWARD_DIFF] = stencil_one_sided,
    [FUNC_BACK_DIFF] = stencil_one_sided,
    [FUNC_CENTRAL_DIFF] = stencil_central,
    [FUNC_LAPLACIAN] = stencil_laplacian,
    [FUNC_GRADIENT] = stencil_gradient,
    [FUNC_CORRELATE] = correlate_call,
    [FUNC_FLIP] = rearrange_call,
    [FUNC_PERMUTE_DIMS] = rearrange_call,
    [FUNC_EXPAND_DIMS] = rearrange_call,
    [FUNC_SQUEEZE] = rearrange_call,
    [FUNC_BROADCAST_TO] = rearrange_call,
    [FUNC_ROLL] = rearrange_call,
    [FUNC_TRIL] = rearrange_call,
    [FUNC_TRIU] = rearrange_call,
    [FUNC_RESHAPE] = rearrange_call,
    [FUNC_SLIDING_WINDOWS] = rearrange_call,
    [FUNC_CONCAT] = pieces_concat,
    [FUNC_STACK] = pieces_concat,
    [FUNC_REPEAT] = pieces_repeat,
    [FUNC_TILE] = pieces_tile,
    [FUNC_TAKE] = gather_take,
    [FUNC_TAKE_ALONG_AXIS] = gather_take_along,
    [FUNC_SAMPLE] = sample_call,
    [FUNC_DOT] = moments_dot,
#define SCAN(id, ...) [FUNC_CUMULATIVE_##id] = scan_call,
#include "compute/type/reduce.def"
};

/* Sorts the arguments under the parameters of the signature; the first `least` are required. */
static enum err_code bind_arguments(struct checker *c, uint32_t node, const char *signature,
                                    uint32_t least, struct call *ret)
{
    const struct expr_node *n = &c->x->nodes[node];
    uint32_t args[CALL_MAX_PARAMS];
    TRY(call_match(c->x, node, signature, least, args, c->e));
    ret->node = node;
    ret->name = n->name;
    for (uint32_t p = 0; p < FUNC_MAX_PARAMS; p++)
        ret->param[p] =
            args[p] == EXPR_NOWHERE ? EXPR_NOWHERE : c->x->links[n->first_arg + args[p]].node;
    return ERR_OK;
}

static enum err_code check_func(struct checker *c, uint32_t node, enum func func)
{
    const struct func_info *info = &func_table[func];
    struct call call = {.func = func};
    TRY(bind_arguments(c, node, info->signature, (uint32_t)info->least, &call));
    return (rules[func] ? rules[func] : reduce_call)(c, &call, &c->values[node]);
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

/* The main pass */

/* Orders the nodes by the root they belong to: lets in order, then the main expression; nodes of no
 * root are left out. Children stay before parents. Root k's nodes are order[start[k] … start[k +
 * 1]). */
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
            start[owner[i] + 1]++; /* two ahead: the loop below moves each start to its place */
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
        if (k < x->n_lets)
            TRY(check_let(c, x->lets[k].name, x->lets[k].node));
    }
    return ERR_OK;
}

enum err_code check_expr(struct arena *arena, const struct expr *x, const struct check_env *env,
                         int dtype, struct typed *ret, struct err *e)
{
    struct typed t = {.fast_math = env->fast_math};
    struct err own = ERR_INIT; /* messages get their place after they are written */
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
