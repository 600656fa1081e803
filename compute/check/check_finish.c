/* The last step: cuts the graph down to what its root needs, with the guards of those nodes. */
#include <string.h>

#include "compute/check/check_graph.h"

/* By node: 1 if the root needs it. */
static uint32_t *needed(struct checker *c, const struct typed *t)
{
    uint32_t *ret = arena_alloc_array(c->arena, t->n_nodes, sizeof *ret);
    if (!ret)
        return NULL;
    ret[t->root] = 1;
    for (uint32_t i = t->root + 1; i-- > 0;)
        for (int k = 0; ret[i] && k < t->nodes[i].n_args; k++)
            ret[t->nodes[i].args[k]] = 1;
    return ret;
}

/* Drops nodes that the root does not need (unused lets, nodes replaced when a scope was closed) and
 * arrays that no node reads, so that later passes may visit all nodes. */
static enum err_code prune(struct checker *c, struct typed *t)
{
    uint32_t *number = needed(c, t); /* later: new number + 1 */
    uint32_t *input = arena_alloc_array(c->arena, t->n_inputs, sizeof *input);
    if (!number || !input)
        return err_oom(c->e);
    for (uint32_t i = 0; i <= t->root; i++)
        if (number[i] && t->nodes[i].kind == T_INPUT)
            input[t->nodes[i].input] = 1;
    uint32_t n_inputs = 0, n_nodes = 0;
    for (uint32_t i = 0; i < t->n_inputs; i++)
        if (input[i]) {
            t->inputs[n_inputs] = t->inputs[i];
            input[i] = n_inputs++;
        }
    for (uint32_t i = 0; i <= t->root; i++) {
        if (!number[i])
            continue;
        struct typed_node n = t->nodes[i];
        for (int k = 0; k < n.n_args; k++)
            n.args[k] = number[n.args[k]] - 1;
        if (n.kind == T_INPUT)
            n.input = input[n.input];
        t->nodes[n_nodes] = n;
        number[i] = ++n_nodes;
    }
    t->root = n_nodes - 1;
    t->n_nodes = n_nodes;
    t->n_inputs = n_inputs;
    return ERR_OK;
}

/* The guards of the root, each once, as one array (or scalar) of bools. */
static enum err_code collect_guards(struct checker *c, struct typed_guards *all, uint32_t *ret)
{
    uint32_t *faults = arena_alloc_array(c->arena, c->n_guards, sizeof *faults);
    uint32_t *need = needed(c, c->t);
    all->guards = arena_alloc_array(c->arena, c->n_guards, sizeof *all->guards);
    if (!all->guards || !faults || !need)
        return err_oom(c->e);
    for (size_t i = 0; i < c->n_guards; i++) {
        const struct guard *g = &c->guards[i];
        if (!need[g->gather])
            continue;
        uint32_t same = 0; /* the same indices, used twice */
        while (same < all->n && faults[same] != g->fault)
            same++;
        if (same < all->n)
            continue;
        faults[all->n] = g->fault;
        all->guards[all->n++] = g->says;
    }
    for (uint32_t i = 0; all->n > 1 && i < all->n; i++)
        TRY(graph_expand(c, all->guards[i].place, faults[i], 1, &faults[i]));
    *ret = faults[0];
    return all->n > 1 ? graph_concat(c, c->x->root, faults, all->n, 0, ret) : ERR_OK;
}

static enum err_code guard_root(struct checker *c, const struct typed_guards **ret)
{
    struct typed_guards *all = arena_alloc(c->arena, sizeof *all);
    uint32_t fault;
    if (!all)
        return err_oom(c->e);
    TRY(collect_guards(c, all, &fault));
    if (all->n == 0)
        return ERR_OK;
    if (c->t->nodes[fault].kind == T_CONST) /* the guards must lie in memory */
        TRY(graph_same(c, c->x->root, fault, &fault));
    const struct typed_node *root = &c->t->nodes[c->t->root];
    struct typed_node n = {.kind = T_GUARDED,
                           .dtype = root->dtype,
                           .rank = root->rank,
                           .shape = root->shape,
                           .n_args = 2,
                           .args = {c->t->root, fault}};
    TRY(graph_add(c, c->x->root, &n, NODE_ARRAY, &c->t->root));
    *ret = all;
    return ERR_OK;
}

enum err_code check_finish(struct checker *c)
{
    const struct typed_guards *guards = NULL;
    if (c->n_guards)
        TRY(guard_root(c, &guards));
    TRY(prune(c, c->t));
    c->t->guards = guards;
    return ERR_OK;
}
