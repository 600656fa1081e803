/* Inlining temporaries into the expressions that use them, instead of storing them.
 *
 * A temporary computed from numbers alone is a number wherever it is used, as weak as a literal
 * there. Any other temporary is moved if only one statement uses it and nothing that it is computed
 * from is assigned in between: then both become one pass over memory. One with an index() stays in
 * memory, since index() counts along the axes of the whole expression.
 *
 * A number is written out and checked where it is assigned, and again in each statement that uses
 * it. What is moved is written out once, in the statement that runs it, and checked there: the
 * expressions of a chain of temporaries have as many nodes as its statements. Only after an error
 * are the moved ones checked each by itself, for the first that is wrong. */
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

static uint32_t earlier(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* --- what is known of a statement without writing it out --- */

/* Finds the inlined temporaries among the names, as of now. */
static void find_inlined(const struct program *p, struct mentions *m)
{
    for (uint32_t k = 0; k < m->n; k++) {
        const uint32_t def = m->all[k].name->last;
        if (def != STATEMENT_NONE && p->steps[def].inlined)
            m->all[k].def = def;
    }
}

/* Whether the expression, which is no number, is computed wherever it is an operand: it is an
 * operation or an array, and no list, say, which by itself is something else than as an argument.
 */
static bool computes(const struct program *p, const struct step *s)
{
    const struct expr *x = &s->assign->expr;
    const struct expr_node *root = &x->nodes[x->root];
    if (!expr_is_name(root))
        return root->kind == EXPR_CALL || root->kind == EXPR_GETITEM;
    const uint32_t def = program_find_name(p, root->name)->last;
    return def == STATEMENT_NONE || !p->steps[def].inlined || p->steps[def].computes;
}

static void look_at(struct program *p, struct step *s)
{
    const struct expr *x = &s->assign->expr;
    find_inlined(p, &s->mentions);
    s->n_all = x->n_nodes;
    s->counts = counts_along_axes(x);
    s->computes = computes(p, s);
    s->changes = STATEMENT_NONE;
    for (uint32_t k = 0; k < s->mentions.n; k++) {
        struct mention *m = &s->mentions.all[k];
        m->name->n_readers--;
        if (m->def == STATEMENT_NONE) {
            const bool itself = m->name == s->name;
            s->changes = earlier(s->changes, itself ? s->again : m->name->next);
            continue;
        }
        const struct step *def = &p->steps[m->def];
        s->n_all += def->n_all;
        s->counts |= def->counts;
        s->changes = earlier(s->changes, def->changes);
    }
}

/* Whether it contains no array. */
static enum err_code is_number(struct program *p, const struct step *s, bool *ret, struct err *e)
{
    *ret = false;
    for (uint32_t k = 0; k < s->mentions.n; k++) {
        const struct mention *m = &s->mentions.all[k];
        struct binding b = {.kind = BINDING_NONE};
        if (m->def != STATEMENT_NONE && p->steps[m->def].is_number)
            continue;
        if (m->name->last != STATEMENT_NONE || m->name->target)
            return ERR_OK;
        enum err_code code = p->spec.env->resolve(p->spec.env->user, m->name->name, &b, e);
        if (code != ERR_OK || b.kind == BINDING_ARRAY)
            return code;
    }
    *ret = true;
    return ERR_OK;
}

/* Whether the statement, which assigns a temporary, is used by one statement only, which could
 * compute it itself. */
static bool may_move(struct program *p, struct step *s)
{
    const struct name *name = s->name;
    if (name->n_assigned != 1 || name->n_readers != 1 || name->watched || s->counts ||
        s->changes < name->reader)
        return false;
    struct step *to = &p->steps[name->reader];
    const struct expr *x = &to->assign->expr;
    if (s->n_all + to->taken + x->n_nodes >= x->max_nodes)
        return false;
    to->taken += s->n_all;
    s->moved_to = name->reader;
    return true;
}

/* --- writing out --- */

/* Appends a statement's own expression, whose inlined temporaries are in `ret` already. */
static enum err_code append_own(struct program *p, const struct expr *x, const struct mentions *m,
                                struct expr *ret, uint32_t *ret_node, struct err *e)
{
    uint32_t *swaps = arena_alloc_array(ret->arena, x->n_nodes, sizeof *swaps);
    if (!swaps)
        return err_oom(e);
    for (uint32_t k = 0; k < m->n; k++)
        m->all[k].name->node = m->all[k].def == STATEMENT_NONE ? EXPR_NOWHERE : m->all[k].node;
    for (size_t i = 0; i < x->n_nodes; i++)
        swaps[i] = expr_is_name(&x->nodes[i]) ? program_find_name(p, x->nodes[i].name)->node
                                              : EXPR_NOWHERE;
    return expr_append(ret, x, swaps, ret_node, e);
}

/* Appends the numbers, and what is written out already, up to the first temporary that is not:
 * *ret, or STATEMENT_NONE. */
static enum err_code append_known(const struct program *p, struct mentions *m, struct expr *to,
                                  uint32_t *ret, struct err *e)
{
    *ret = STATEMENT_NONE;
    for (; m->n_done < m->n; m->n_done++) {
        struct mention *x = &m->all[m->n_done];
        if (x->def == STATEMENT_NONE)
            continue;
        const struct step *def = &p->steps[x->def];
        if (!def->expr.n_nodes) {
            *ret = x->def;
            return ERR_OK;
        }
        TRY(expr_append(to, &def->expr, NULL, &x->node, e));
    }
    m->n_done = 0; /* it may be written out again */
    return ERR_OK;
}

/* First, in the order of the names, what is moved into the statement, which begins with what is
 * moved into that. */
enum err_code program_write_step(struct program *p, uint32_t i, struct arena *arena,
                                 struct expr *ret, struct err *e)
{
    const struct expr *x = &p->steps[i].assign->expr;
    struct expr all;
    expr_init(&all, arena, x->max_nodes, x->max_nesting);
    for (uint32_t at = i, below;;) {
        struct step *s = &p->steps[at];
        TRY(append_known(p, &s->mentions, &all, &below, e));
        if (below != STATEMENT_NONE) {
            at = below;
            continue;
        }
        uint32_t node;
        TRY(append_own(p, &s->assign->expr, &s->mentions, &all, &node, e));
        if (at == i) {
            all.root = node;
            *ret = all;
            return ERR_OK;
        }
        at = s->moved_to;
        struct mentions *m = &p->steps[at].mentions;
        m->all[m->n_done++].node = node;
    }
}

/* Counts nodes of an expression, among them those that it takes from others written out before. */
static enum err_code count(struct program *p, const struct expr *x, size_t n, struct err *e)
{
    p->n_nodes += (int64_t)n;
    if (!p->spec.most_nodes || p->n_nodes <= p->spec.most_nodes)
        return ERR_OK;
    return err_field(e, ERR_EXPRESSION_TOO_LARGE, x->sources[x->nodes[x->root].source],
                     "the expressions up to this one have more than %lld nodes in all, with "
                     "the numbers that they name expanded (max-program-nodes)",
                     (long long)p->spec.most_nodes);
}

/* The nodes of a statement that no statement before it has counted: what waits is copied once. */
static size_t n_new(const struct program *p, const struct step *s)
{
    size_t n = s->n_all;
    for (uint32_t k = 0; k < s->mentions.n; k++) {
        const uint32_t def = s->mentions.all[k].def;
        n -= def != STATEMENT_NONE && p->steps[def].waits ? p->steps[def].n_all : 0;
    }
    return n;
}

enum err_code program_write_out(struct program *p, uint32_t i, struct err *e)
{
    struct step *s = &p->steps[i];
    look_at(p, s);
    const bool may = !s->target && !s->assign->index && i < p->n_statements;
    if (may && !s->name->in_parts)
        TRY(is_number(p, s, &s->is_number, e));
    const bool moves = may && !s->is_number && may_move(p, s);
    s->waits = moves && s->computes && s->name->needed_by_reader;
    if (!s->waits)
        TRY(program_write_step(p, i, p->arena, &s->expr, e));
    s->inlined = s->is_number || moves;
    s->name->last = i;
    s->name->next = s->again;
    return count(p, &s->assign->expr, n_new(p, s), e);
}

enum err_code program_write_out_watched(struct program *p, const struct expr *x, struct expr *ret,
                                        struct err *e)
{
    struct mentions m;
    uint32_t unwritten;
    if (!program_list_names(p, x, &m))
        return err_oom(e);
    find_inlined(p, &m);
    expr_init(ret, p->arena, x->max_nodes, x->max_nesting);
    TRY(append_known(p, &m, ret, &unwritten, e));
    TRY(append_own(p, x, &m, ret, &ret->root, e));
    return count(p, x, ret->n_nodes, e);
}
