/* The value of an untyped node: literals, names, lists of arrays.
 *
 * The call around them decides what names, strings and lists mean (a boundary's name, a dtype,
 * axes), so they are evaluated only when a call needs a value. A list's value is its items stacked,
 * as with numpy.asarray. */
#include "compute/check/check_value.h"

#include <math.h>
#include <string.h>

#include "compute/base/hash.h"
#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/lang/func.h"

/* Names */

static size_t name_slot(const struct checker *c, const char *name)
{
    uint64_t h = hash_bytes(HASH_SEED, name, strlen(name));
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
                        "'%s' is a function and needs arguments in brackets", name);
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
    if (c->env->resolve)
        TRY(check_place(c, node, c->env->resolve(c->env->user, name, &b, c->e)));
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

/* Lists */

enum err_code check_parts(struct checker *c, uint32_t node, const char *what, uint32_t **ret,
                          uint32_t *ret_n)
{
    const struct expr_link *items = expr_args(c->x, &c->x->nodes[node]);
    uint32_t n = c->x->nodes[node].kind == EXPR_LIST ? c->x->nodes[node].n_args : 0;
    if (n == 0)
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "%s needs at least one array", what);
    struct cval *values = arena_alloc_array(c->arena, n, sizeof *values);
    uint32_t *parts = arena_alloc_array(c->arena, n, sizeof *parts);
    enum dtype t = DT_BOOL;
    if (!values || !parts)
        return err_oom(c->e);
    for (uint32_t i = 0; i < n; i++)
        TRY(check_value(c, items[i].node, &values[i]));
    TRY(ops_promote(c, values, (int)n, &t));
    for (uint32_t i = 0; i < n; i++) {
        TRY(ops_convert(c, &values[i], t, &parts[i]));
        TRY(graph_close_operand(c, values[i].place, parts[i], &parts[i]));
    }
    *ret = parts;
    *ret_n = n;
    return ERR_OK;
}

enum err_code check_parts_agree(struct checker *c, uint32_t node, const char *what,
                                const uint32_t *parts, uint32_t n, int axis)
{
    const struct typed_node *first = &c->t->nodes[parts[0]];
    const struct expr_link *items = expr_args(c->x, &c->x->nodes[node]);
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    for (uint32_t i = 1; i < n; i++) {
        const struct typed_node *x = &c->t->nodes[parts[i]];
        bool same = x->rank == first->rank;
        for (int k = 0; same && k < x->rank; k++)
            same = k == axis || x->shape[k] == first->shape[k];
        if (!same)
            return expr_err(c->x, items[i].node, c->e, ERR_SHAPE_MISMATCH,
                            "%s of the shapes %s and %s%s", what,
                            shape_text(first->rank, first->shape, a, sizeof a),
                            shape_text(x->rank, x->shape, b, sizeof b),
                            axis < 0 ? "" : ": all extents except along the axis must agree");
    }
    return ERR_OK;
}

enum err_code check_stack(struct checker *c, uint32_t place, uint32_t *parts, uint32_t n, int axis,
                          uint32_t *ret)
{
    if (c->t->nodes[parts[0]].rank == MAX_RANK)
        return expr_err(c->x, place, c->e, ERR_BAD_SHAPE, "the rank would exceed %d", MAX_RANK);
    for (uint32_t i = 0; i < n; i++)
        TRY(graph_expand(c, place, parts[i], 1u << axis, &parts[i]));
    return graph_concat(c, place, parts, n, axis, ret);
}

static enum err_code list_value(struct checker *c, uint32_t node, struct cval *ret)
{
    static const char what[] = "a list as a value";
    uint32_t *parts, n, id;
    TRY(check_parts(c, node, what, &parts, &n));
    TRY(check_parts_agree(c, node, what, parts, n, -1));
    TRY(check_stack(c, node, parts, n, 0, &id));
    *ret = cval_typed(id, node);
    return ERR_OK;
}

static bool is_boundary(const char *text)
{
    int mode = BOUNDARY_SELF;
    while (mode <= BOUNDARY_GHOST && strcmp(boundary_name(mode), text) != 0)
        mode++;
    return mode <= BOUNDARY_GHOST;
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
        if (is_boundary(n->name))
            return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                            "a value is expected here, not the text '%s'; write boundary='%s' to "
                            "give a boundary",
                            n->name, n->name);
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                        "a value is expected here, not the text '%s'", n->name);
    case EXPR_LIST:
        return list_value(c, node, ret);
    case EXPR_NONE:
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "a value is expected here, not None");
    }
    *ret = v;
    return ERR_OK;
}

enum err_code check_let(struct checker *c, const char *name, uint32_t node)
{
    struct cval v;
    TRY(check_value(c, node, &v));
    return name_set(c, name, &v);
}
