/* Inlining temporaries into the expressions that use them, instead of storing them.
 *
 * A temporary computed from numbers alone is a number wherever it is used, as weak as a literal
 * there. Any other temporary is inlined if only one statement uses it and nothing that it is
 * computed from is assigned in between: then both become one pass over memory. One with an index()
 * stays in memory, since index() counts along the axes of the whole expression. */
#include <string.h>

#include "compute/program/program_int.h"

bool program_names(const struct expr *x, const char *name)
{
    for (size_t i = 0; i < x->n_nodes; i++)
        if (expr_is_name(&x->nodes[i]) && !strcmp(x->nodes[i].name, name))
            return true;
    return false;
}

static bool counts_along_axes(const struct expr *x)
{
    for (size_t i = 0; i < x->n_nodes; i++)
        if (x->nodes[i].kind == EXPR_CALL &&
            (!strcmp(x->nodes[i].name, "index") || !strcmp(x->nodes[i].name, "unravel_index")))
            return true;
    return false;
}

/* The last statement before number `at` that assigns the name; -1: none. */
static int64_t last_before(const struct program *p, const char *name, uint32_t at)
{
    for (uint32_t i = at; i-- > 0;)
        if (!strcmp(p->steps[i].assign->target, name))
            return i;
    return -1;
}

/* Whether it contains no array. */
static enum err_code is_number(struct program *p, const struct expr *x, uint32_t at, bool *ret,
                               struct err *e)
{
    *ret = false;
    for (size_t i = 0; i < x->n_nodes; i++) {
        const struct expr_node *n = &x->nodes[i];
        struct binding b = {.kind = BINDING_NONE};
        if (!expr_is_name(n))
            continue;
        int64_t def = last_before(p, n->name, at);
        if (def >= 0 && !p->steps[def].is_number)
            return ERR_OK;
        if (def >= 0)
            continue;
        for (uint32_t k = 0; k < p->n_targets; k++)
            if (!strcmp(p->targets[k].name, n->name))
                return ERR_OK;
        enum err_code code = p->spec.env->resolve(p->spec.env->user, n->name, &b, e);
        if (code != ERR_OK || b.kind == BINDING_ARRAY)
            return code;
    }
    *ret = true;
    return ERR_OK;
}

/* Whether a statement assigns to a part of it, which requires memory. */
static bool has_parts(const struct program *p, const char *name)
{
    for (uint32_t i = 0; i < p->spec.n_body; i++)
        if (p->steps[i].assign->index && !strcmp(p->steps[i].assign->target, name))
            return true;
    return false;
}

/* Whether statement i, which assigns a temporary, is used by one statement only, which could
 * compute it itself. */
static bool may_move(struct program *p, uint32_t i)
{
    const char *name = p->steps[i].assign->target;
    const struct expr *x = &p->steps[i].expr;
    uint32_t uses = 0, user = 0;
    for (uint32_t k = 0; k < p->spec.n_body; k++) {
        if (k != i && !strcmp(p->steps[k].assign->target, name))
            return false;
        if (k > i && program_names(&p->spec.body[k].expr, name)) {
            uses++;
            user = k;
        }
    }
    for (uint32_t k = 0; k < p->spec.n_series; k++)
        if (program_names(&p->spec.series[k].expr, name))
            return false;
    if (uses != 1 || counts_along_axes(x) ||
        (p->spec.until && program_names(&p->spec.until->expr, name)))
        return false;
    for (uint32_t k = i + 1; k < user; k++)
        if (program_names(x, p->steps[k].assign->target))
            return false;
    struct step *to = &p->steps[user];
    if (x->n_nodes + to->taken + p->spec.body[user].expr.n_nodes >= x->max_nodes)
        return false;
    to->taken += x->n_nodes;
    return true;
}

/* `x` with its temporaries inlined, as of before statement `at`. */
static enum err_code write_out(struct program *p, const struct expr *x, uint32_t at,
                               struct expr *ret, struct err *e)
{
    uint32_t n = 0, n_names = 0;
    for (size_t i = 0; i < x->n_nodes; i++)
        n_names += expr_is_name(&x->nodes[i]);
    struct expr_swap *swaps = arena_alloc_array(p->arena, n_names, sizeof *swaps);
    if (!swaps)
        return err_oom(e);
    expr_init(ret, p->arena, x->max_nodes, x->max_nesting);
    for (size_t i = 0; i < x->n_nodes; i++) {
        if (!expr_is_name(&x->nodes[i]))
            continue;
        int64_t def = last_before(p, x->nodes[i].name, at);
        bool seen = def < 0 || !p->steps[def].inlined;
        for (uint32_t k = 0; k < n; k++)
            seen |= !strcmp(swaps[k].name, x->nodes[i].name);
        if (seen)
            continue;
        swaps[n].name = x->nodes[i].name;
        enum err_code code = expr_append(ret, &p->steps[def].expr, NULL, 0, &swaps[n++].node, e);
        if (code != ERR_OK)
            return code;
    }
    enum err_code code = expr_append(ret, x, swaps, n, &ret->root, e);
    p->n_nodes += (int64_t)ret->n_nodes;
    if (code == ERR_OK && p->spec.most_nodes && p->n_nodes > p->spec.most_nodes)
        code = err_field(e, ERR_EXPRESSION_TOO_LARGE, x->sources[x->nodes[x->root].source],
                         "the expressions up to this one have more than %lld nodes in all, with "
                         "the numbers that they name expanded (max-program-nodes)",
                         (long long)p->spec.most_nodes);
    return code;
}

enum err_code program_write_out(struct program *p, uint32_t i, struct err *e)
{
    struct step *s = &p->steps[i];
    enum err_code code = write_out(p, &s->assign->expr, i, &s->expr, e);
    if (code != ERR_OK || s->target || s->assign->index || i >= p->n_statements)
        return code;
    if (!has_parts(p, s->assign->target))
        code = is_number(p, &s->assign->expr, i, &s->is_number, e);
    s->inlined = code == ERR_OK && (s->is_number || may_move(p, i));
    return code;
}

enum err_code program_write_out_watched(struct program *p, const struct expr *x, struct expr *ret,
                                        struct err *e)
{
    return write_out(p, x, p->spec.n_body, ret, e);
}
