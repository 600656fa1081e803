/* Concatenation and repetition of arrays.
 *
 * concat and stack, and a list that is a value, put pieces together (graph_concat), each computed
 * directly into its place. Repetition is a reshape: x[i] k times over is x with a new axis of
 * extent k stretched over, laid out in C order; at the root of an expression that is one kernel. If
 * each slice has its own count, an element's slice is found by binary search in the sums of the
 * counts. */
#include "compute/check/check_graph.h"
#include "compute/check/check_rules.h"

static enum err_code concat(struct checker *c, const struct call *call, uint32_t *ret)
{
    static const char what[] = "the list passed to concat()";
    uint32_t *parts, n, list = call->param[0], axis_node = call->param[1];
    int axis = 0;
    TRY(check_parts(c, list, what, &parts, &n));
    int rank = c->t->nodes[parts[0]].rank;
    if (axis_node != EXPR_NOWHERE && check_absent(c, axis_node)) {
        for (uint32_t i = 0; i < n; i++) { /* axis=None: flattened */
            const struct typed_node *x = &c->t->nodes[parts[i]];
            int64_t count = 1;
            for (int k = 0; k < x->rank; k++)
                count *= x->shape[k];
            TRY(graph_reshape(c, call->node, parts[i], 1, &count, &parts[i]));
        }
    } else {
        if (rank == 0)
            return expr_err(c->x, list, c->e, ERR_SHAPE_MISMATCH,
                            "concat() takes arrays of rank 1 or more; use stack() for scalars");
        if (!check_absent(c, axis_node))
            TRY(check_axis(c, axis_node, rank, &axis));
        TRY(check_parts_agree(c, list, what, parts, n, axis));
    }
    return graph_concat(c, call->node, parts, n, axis, ret);
}

/* Concatenates arrays of one shape along a new axis. */
static enum err_code stack(struct checker *c, const struct call *call, uint32_t *ret)
{
    static const char what[] = "the list passed to stack()";
    uint32_t *parts, n, axis_node = call->param[1];
    int axis = 0;
    TRY(check_parts(c, call->param[0], what, &parts, &n));
    TRY(check_parts_agree(c, call->param[0], what, parts, n, -1));
    if (!check_absent(c, axis_node))
        TRY(check_axis(c, axis_node, c->t->nodes[parts[0]].rank + 1, &axis));
    return check_stack(c, call->node, parts, n, axis, ret);
}

enum err_code pieces_concat(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t id;
    TRY(call->func == FUNC_STACK ? stack(c, call, &id) : concat(c, call, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

/* Merges adjacent axes that are not repeated into one; returns the new rank. */
static int join_axes(int rank, const int64_t *shape, const int64_t *each, int64_t *ret_shape,
                     int64_t *ret_each)
{
    int n = 0;
    for (int k = 0; k < rank; k++) {
        if (k > 0 && each[k] == 1 && each[k - 1] == 1) {
            ret_shape[n - 1] *= shape[k];
            continue;
        }
        ret_shape[n] = shape[k];
        ret_each[n++] = each[k];
    }
    return n;
}

/* x of `shape`, along each axis each element `each` times in a row (within), or the whole axis
 * `each` times. */
static enum err_code again(struct checker *c, uint32_t place, uint32_t x, int rank,
                           const int64_t *shape, const int64_t *each, bool within, uint32_t *ret)
{
    int64_t spread[2 * MAX_RANK], out[MAX_RANK], joined[MAX_RANK], joined_each[MAX_RANK];
    uint32_t fresh = 0;
    int n = 0, out_rank = rank, more = 0;
    bool nothing = false;
    for (int k = 0; k < rank; k++) {
        if (__builtin_mul_overflow(shape[k], each[k], &out[k]))
            out[k] = INT64_MAX;
        more += each[k] != 1 && shape[k] != 1;
        nothing |= out[k] == 0;
    }
    TRY(graph_fits(c, place, c->t->nodes[x].dtype, rank, out));
    if (nothing) {
        const struct scalar zero = {.dtype = c->t->nodes[x].dtype};
        return graph_filled(c, place, zero, rank, out, ret);
    }
    if (rank + more > MAX_RANK) {
        rank = join_axes(rank, shape, each, joined, joined_each);
        TRY(graph_reshape(c, place, x, rank, joined, &x));
        shape = joined;
        each = joined_each;
    }
    if (rank + more > MAX_RANK)
        return expr_err(c->x, place, c->e, ERR_BAD_SHAPE,
                        "too many axes: at most %d, counting those that are added", MAX_RANK);
    for (int k = 0; k < rank; k++) {
        if (each[k] == 1 || shape[k] == 1) { /* stretching it suffices */
            spread[n++] = shape[k] * each[k];
            continue;
        }
        fresh |= 1u << (within ? n + 1 : n);
        spread[n++] = within ? shape[k] : each[k];
        spread[n++] = within ? each[k] : shape[k];
    }
    TRY(graph_expand(c, place, x, fresh, &x));
    TRY(graph_broadcast(c, place, x, n, spread, &x));
    return graph_reshape(c, place, x, out_rank, out, ret);
}

static enum err_code check_count(struct checker *c, uint32_t node, int64_t count)
{
    if (count < 0)
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION,
                        "a number of repetitions must not be negative");
    return ERR_OK;
}

enum err_code pieces_tile(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x, n, nodes[MAX_RANK], id;
    int64_t times[MAX_RANK], each[MAX_RANK];
    TRY(check_operand(c, call->param[0], &x));
    TRY(check_ints(c, call->param[1], "a number of repetitions", ERR_BAD_EXPRESSION, MAX_RANK, &n,
                   times, nodes));
    for (uint32_t i = 0; i < n; i++)
        TRY(check_count(c, nodes[i], times[i]));
    int rank = c->t->nodes[x].rank, more = (int)n > rank ? (int)n - rank : 0;
    if (more)
        TRY(graph_expand(c, call->node, x, more == 32 ? UINT32_MAX : (1u << more) - 1, &x));
    rank += more;
    for (int k = 0; k < rank; k++)
        each[k] = k < rank - (int)n ? 1 : times[k - (rank - (int)n)];
    TRY(again(c, call->node, x, rank, c->t->nodes[x].shape, each, false, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

/* Which of n slices element r (before the last end) lies in, if `ends` are the slices' ends: the
 * number of ends ≤ r, by binary search. (Numbers past the table read the last end, which is > r.)
 */
static enum err_code search(struct checker *c, uint32_t place, const int64_t *ends, int64_t n,
                            uint32_t r, uint32_t *ret)
{
    uint32_t lo, at, more;
    TRY(graph_int(c, place, 0, &lo));
    int64_t step = 1;
    while (step < n)
        step *= 2;
    for (step /= 2; step > 0; step /= 2) {
        TRY(graph_op_int(c, place, OP_ADD, lo, step - 1, &at));
        TRY(graph_table(c, place, ends, n, at, &at));
        TRY(graph_op2(c, place, OP_LESS_EQUAL, at, r, &at));
        TRY(graph_op_int(c, place, OP_ADD, lo, step, &more));
        TRY(graph_where(c, place, at, more, lo, &lo));
    }
    *ret = lo;
    return ERR_OK;
}

/* Repeats each slice along the axis by its own count. */
static enum err_code repeat_each(struct checker *c, const struct call *call, uint32_t x, int axis,
                                 uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    const struct expr_node *list = &c->x->nodes[call->param[1]];
    int64_t *ends = arena_alloc_array(c->arena, (size_t)list->n_args + 1, sizeof *ends);
    int64_t total = 0, times;
    uint32_t i;
    if (!ends)
        return err_oom(c->e);
    if (list->n_args != n->shape[axis])
        return expr_err(
            c->x, call->param[1], c->e, ERR_SHAPE_MISMATCH,
            "repeat() takes one number, or one for each element: got %u for %lld elements",
            list->n_args, (long long)n->shape[axis]);
    for (uint32_t k = 0; k < list->n_args; k++) {
        uint32_t node = c->x->links[list->first_arg + k].node;
        TRY(check_int(c, node, "a number of repetitions", ERR_BAD_EXPRESSION, &times));
        TRY(check_count(c, node, times));
        if (__builtin_add_overflow(total, times, &total))
            total = INT64_MAX;
        ends[k] = total;
    }
    *ret = x;
    if (list->n_args == 0)
        return ERR_OK;
    TRY(graph_fits(c, call->node, DT_I64, 1, &total));
    TRY(graph_index_of(c, call->node, 0, 1, &total, &i));
    TRY(search(c, call->node, ends, list->n_args, i, &i));
    return gather_slices(c, call->node, x, axis, i, ret);
}

enum err_code pieces_repeat(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x;
    int axis = 0;
    int64_t times, each[MAX_RANK], count = 1;
    TRY(check_operand(c, call->param[0], &x));
    if (check_absent(c, call->param[2])) {
        for (int k = 0; k < c->t->nodes[x].rank; k++)
            count *= c->t->nodes[x].shape[k];
        TRY(graph_reshape(c, call->node, x, 1, &count, &x));
    } else {
        TRY(check_axis(c, call->param[2], c->t->nodes[x].rank, &axis));
    }
    const struct typed_node *n = &c->t->nodes[x];
    if (c->x->nodes[call->param[1]].kind == EXPR_LIST && c->x->nodes[call->param[1]].n_args != 1) {
        TRY(repeat_each(c, call, x, axis, &x));
    } else {
        struct expr_link one;
        const struct expr_link *item;
        (void)check_items(c, call->param[1], &item, &one);
        TRY(check_int(c, item->node, "a number of repetitions", ERR_BAD_EXPRESSION, &times));
        TRY(check_count(c, item->node, times));
        for (int k = 0; k < n->rank; k++)
            each[k] = k == axis ? times : 1;
        TRY(again(c, call->node, x, n->rank, n->shape, each, true, &x));
    }
    *ret = cval_typed(x, call->node);
    return ERR_OK;
}
