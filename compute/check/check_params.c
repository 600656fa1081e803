/* Readers of arguments: what a parameter must be, and the error if it is something else. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_value.h"

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

enum err_code check_operand(struct checker *c, uint32_t node, uint32_t *ret)
{
    struct cval v;
    uint32_t id;
    TRY(check_value(c, node, &v));
    TRY(ops_typed(c, &v, &id));
    return graph_close_operand(c, v.place, id, ret);
}

enum err_code check_int(struct checker *c, uint32_t node, const char *what, enum err_code code,
                        int64_t *ret)
{
    struct cval v;
    enum expr_kind kind = c->x->nodes[node].kind;
    if (kind != EXPR_LIST && kind != EXPR_NONE && kind != EXPR_STRING) {
        TRY(check_value(c, node, &v));
        if (cval_known(c, &v) && v.lit.kind == LIT_INT && v.lit.i >= INT64_MIN &&
            v.lit.i <= INT64_MAX) {
            *ret = (int64_t)v.lit.i;
            return ERR_OK;
        }
    }
    return expr_err(c->x, node, c->e, code, "%s must be an integer", what);
}

enum err_code check_ints(struct checker *c, uint32_t node, const char *what, enum err_code code,
                         uint32_t most, uint32_t *ret_n, int64_t *ret_values, uint32_t *ret_nodes)
{
    struct expr_link one;
    const struct expr_link *items;
    uint32_t n = check_items(c, node, &items, &one);
    if (n > most)
        return expr_err(c->x, node, c->e, code, "too many values here: %u, at most %u", n, most);
    for (uint32_t k = 0; k < n; k++) {
        TRY(check_int(c, items[k].node, what, code, &ret_values[k]));
        if (ret_nodes)
            ret_nodes[k] = items[k].node;
    }
    *ret_n = n;
    return ERR_OK;
}

enum err_code check_axis(struct checker *c, uint32_t node, int rank, int *ret)
{
    int64_t axis;
    TRY(check_int(c, node, "axis", ERR_BAD_AXIS, &axis));
    if (axis < -rank || axis >= rank)
        return expr_err(c->x, node, c->e, ERR_BAD_AXIS, "axis %lld is out of range for rank %d",
                        (long long)axis, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return ERR_OK;
}

enum err_code check_axes(struct checker *c, uint32_t node, int rank, uint32_t *ret)
{
    struct expr_link one;
    const struct expr_link *items;
    if (check_absent(c, node)) {
        *ret = rank == 32 ? UINT32_MAX : (1u << rank) - 1;
        return ERR_OK;
    }
    uint32_t n = check_items(c, node, &items, &one), axes = 0;
    for (uint32_t k = 0; k < n; k++) {
        int axis;
        TRY(check_axis(c, items[k].node, rank, &axis));
        if (axes & 1u << axis)
            return expr_err(c->x, items[k].node, c->e, ERR_BAD_AXIS, "axis %d is named twice",
                            axis);
        axes |= 1u << axis;
    }
    *ret = axes;
    return ERR_OK;
}

enum err_code check_shape(struct checker *c, uint32_t node, enum dtype t, int *unknown,
                          int *ret_rank, int64_t *ret)
{
    uint32_t n, nodes[MAX_RANK];
    TRY(check_ints(c, node, "an extent", ERR_BAD_SHAPE, MAX_RANK, &n, ret, nodes));
    if (unknown)
        *unknown = -1;
    for (uint32_t k = 0; k < n; k++) {
        if (ret[k] >= 0)
            continue;
        if (!unknown || ret[k] != -1 || *unknown >= 0)
            return expr_err(c->x, nodes[k], c->e, ERR_BAD_SHAPE, "%s",
                            !unknown       ? "an extent must be at least 0"
                            : ret[k] != -1 ? "an extent must be at least 0, or -1 for what remains"
                                           : "only one extent may be -1");
        *unknown = (int)k;
    }
    *ret_rank = (int)n;
    return unknown && *unknown >= 0 ? ERR_OK : graph_fits(c, node, t, (int)n, ret);
}

enum err_code check_edge(struct checker *c, uint32_t boundary, uint32_t value, struct edge *ret)
{
    static const struct {
        const char *name;
        enum boundary_mode mode;
    } modes[] = {{"self", BOUNDARY_SELF},         {"clamp", BOUNDARY_CLAMP},
                 {"edge", BOUNDARY_CLAMP},        {"nearest", BOUNDARY_CLAMP},
                 {"wrap", BOUNDARY_WRAP},         {"reflect", BOUNDARY_REFLECT},
                 {"mirror", BOUNDARY_REFLECT},    {"symmetric", BOUNDARY_SYMMETRIC},
                 {"constant", BOUNDARY_CONSTANT}, {"ghost", BOUNDARY_GHOST}};
    struct edge edge = {
        .mode = BOUNDARY_SELF, .place = boundary, .valued = !check_absent(c, value)};
    if (edge.valued) {
        TRY(check_value(c, value, &edge.value));
        if (!cval_known(c, &edge.value))
            return expr_err(c->x, value, c->e, ERR_BAD_BOUNDARY,
                            "the boundary's value must be a number");
    }
    if (!check_absent(c, boundary)) {
        const char *name = check_text(c, boundary);
        size_t i = 0, n = sizeof modes / sizeof modes[0];
        while (name && i < n && strcmp(modes[i].name, name) != 0)
            i++;
        edge.array = name && strcmp(name, "array") == 0;
        if (!name || (i == n && !edge.array))
            return expr_err(c->x, boundary, c->e, ERR_BAD_BOUNDARY,
                            "%s%s%s is not a boundary mode: use self, clamp (edge, nearest), wrap, "
                            "reflect (mirror), symmetric, constant, ghost or array",
                            name ? "'" : "", name ? name : "this", name ? "'" : "");
        if (!edge.array)
            edge.mode = modes[i].mode;
    }
    *ret = edge;
    return ERR_OK;
}
