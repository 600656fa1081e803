/* The last step: the graph is cut down to what its root needs, and so are the guards. */
#include <string.h>

#include "compute/check_int.h"

/* By node: 1 where the root needs it. */
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

/* Drops what the root does not need (unused lets, nodes that closing a scope made anew) and arrays
 * read by nothing, so that later passes may walk all nodes. */
static enum err_code prune(struct checker *c, struct typed *t)
{
    uint32_t *number = needed(c, t); /* then: new one + 1 */
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

/* The guards of what the root needs, in one graph; NULL where there are none. */
static enum err_code collect_guards(struct checker *c, struct typed_guards **ret)
{
    struct typed_guards *all = arena_alloc(c->arena, sizeof *all);
    uint32_t *faults = arena_alloc_array(c->arena, c->n_guards, sizeof *faults);
    uint32_t *need = needed(c, c->t), root;
    if (all)
        all->guards = arena_alloc_array(c->arena, c->n_guards, sizeof *all->guards);
    if (!all || !all->guards || !faults || !need)
        return err_oom(c->e);
    for (size_t i = 0; i < c->n_guards; i++) {
        const struct guard *g = &c->guards[i];
        if (!need[g->gather])
            continue;
        uint32_t same = 0; /* the same indices, taken twice */
        while (same < all->n && faults[same] != g->fault)
            same++;
        if (same < all->n)
            continue;
        faults[all->n] = g->fault;
        all->guards[all->n++] = g->says;
    }
    if (all->n == 0)
        return ERR_OK;
    for (uint32_t i = 0; all->n > 1 && i < all->n; i++)
        TRY(rearrange_expand(c, all->guards[i].place, faults[i], 1, &faults[i]));
    root = faults[0];
    if (all->n > 1)
        TRY(graph_concat(c, c->x->root, faults, all->n, 0, &root));
    all->graph = *c->t;
    all->graph.root = root;
    all->graph.nodes =
        arena_dup(c->arena, c->t->nodes, sizeof *c->t->nodes * (size_t)c->t->n_nodes);
    all->graph.inputs =
        arena_dup(c->arena, c->t->inputs, sizeof *c->t->inputs * (size_t)c->t->n_inputs);
    if (!all->graph.nodes || !all->graph.inputs)
        return err_oom(c->e);
    TRY(prune(c, &all->graph));
    *ret = all;
    return ERR_OK;
}

/* What a guard looks at, the main graph reads too. */
static enum err_code name_guard_inputs(struct checker *c, struct typed_guards *g)
{
    const struct typed *t = c->t;
    g->inputs = arena_alloc_array(c->arena, (size_t)g->graph.n_inputs + 1, sizeof *g->inputs);
    if (!g->inputs)
        return err_oom(c->e);
    for (uint32_t i = 0; i < g->graph.n_inputs; i++) {
        struct typed_input *in = &g->graph.inputs[i];
        while (t->inputs[g->inputs[i]].array != in->array)
            g->inputs[i]++;
        in->array = NULL;
    }
    return ERR_OK;
}

enum err_code check_finish(struct checker *c)
{
    struct typed_guards *guards = NULL;
    if (c->n_guards)
        TRY(collect_guards(c, &guards));
    TRY(prune(c, c->t));
    if (guards)
        TRY(name_guard_inputs(c, guards));
    c->t->guards = guards;
    return ERR_OK;
}

bool check_may_guard(const struct expr *x)
{
    for (size_t i = 0; i < x->n_nodes; i++)
        if (x->nodes[i].kind == EXPR_CALL &&
            strncmp(x->nodes[i].name, "take", sizeof "take" - 1) == 0)
            return true;
    return false;
}
