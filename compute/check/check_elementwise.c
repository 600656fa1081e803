/* Elementwise functions that are more than one operation: where, astype, clip, lerp, addcmul and
 * addcdiv. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"
#include "compute/lang/fold.h"

static enum err_code apply2(struct checker *c, uint32_t place, enum op op, struct cval a,
                            struct cval b, struct cval *ret)
{
    return ops_apply(c, place, op, (const struct cval[]){a, b}, ret);
}

enum err_code elementwise_where(struct checker *c, const struct call *call, struct cval *ret)
{
    struct cval args[3];
    for (int k = 0; k < 3; k++)
        TRY(check_value(c, call->param[k], &args[k]));
    if (args[0].weak && args[1].weak && args[2].weak) {
        bool first = fold_truth(&args[0].lit);
        enum literal_kind other = args[first ? 2 : 1].lit.kind;
        *ret = args[first ? 1 : 2];
        ret->place = call->node;
        /* The kind is that of both branches, whichever is taken. */
        if (other >= LIT_FLOAT && ret->lit.kind < LIT_FLOAT)
            ret->lit = (struct literal){.re = fold_double(&ret->lit)};
        if (ret->lit.kind < other)
            ret->lit.kind = other;
        return ERR_OK;
    }
    enum dtype t = DT_BOOL;
    TRY(ops_promote(c, args + 1, 2, &t));
    uint32_t cond, a, b, id;
    TRY(ops_truth(c, &args[0], &cond));
    TRY(ops_convert(c, &args[1], t, &a));
    TRY(ops_convert(c, &args[2], t, &b));
    TRY(graph_where(c, call->node, cond, a, b, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

enum err_code elementwise_astype(struct checker *c, const struct call *call, struct cval *ret)
{
    struct cval x;
    const char *name = check_text(c, call->param[1]);
    if (!name)
        return expr_err(c->x, call->param[1], c->e, ERR_BAD_DTYPE,
                        "astype() takes the name of a dtype, as in astype(x, \"float32\")");
    enum dtype t;
    TRY(check_place(c, call->param[1], dtype_read(name, strlen(name), &t, c->e)));
    TRY(check_value(c, call->param[0], &x));
    uint32_t id;
    TRY(ops_astype(c, &x, t, call->node, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

enum err_code elementwise_clip(struct checker *c, const struct call *call, struct cval *ret)
{
    struct cval args[3];
    enum op op[3];
    int n = 1;
    TRY(check_value(c, call->param[0], &args[0]));
    for (int k = 1; k < 3; k++)
        if (!check_absent(c, call->param[k])) {
            op[n] = k == 1 ? OP_MAXIMUM : OP_MINIMUM;
            TRY(check_value(c, call->param[k], &args[n++]));
        }
    TRY(ops_unify(c, args, n, RULE_SAME));
    if (!args[0].weak && dtype_is_complex(cval_dtype(c, &args[0])))
        return expr_err(c->x, call->node, c->e, ERR_DTYPE_MISMATCH, "clip is not defined for %s",
                        dtype_name(cval_dtype(c, &args[0])));
    struct cval r = args[0];
    for (int k = 1; k < n; k++)
        TRY(apply2(c, call->node, op[k], r, args[k], &r));
    *ret = r;
    return ERR_OK;
}

enum err_code elementwise_lerp(struct checker *c, const struct call *call, struct cval *ret)
{
    struct cval v[3], r;
    for (int k = 0; k < 3; k++)
        TRY(check_value(c, call->param[k], &v[k]));
    TRY(ops_unify(c, v, 3, RULE_FLOAT));
    TRY(apply2(c, call->node, OP_SUBTRACT, v[1], v[0], &r));
    TRY(apply2(c, call->node, OP_MULTIPLY, v[2], r, &r));
    return apply2(c, call->node, OP_ADD, v[0], r, ret);
}

/* t + v·x·y, or t + v·x/y */
enum err_code elementwise_addc(struct checker *c, const struct call *call, struct cval *ret)
{
    enum op op = call->func == FUNC_ADDCDIV ? OP_DIVIDE : OP_MULTIPLY;
    struct cval v[4], r;
    for (int k = 0; k < 4; k++)
        TRY(check_value(c, call->param[k], &v[k]));
    TRY(ops_unify(c, v, 4, op == OP_DIVIDE ? RULE_FLOAT : RULE_SAME));
    TRY(apply2(c, call->node, OP_MULTIPLY, v[1], v[2], &r));
    TRY(apply2(c, call->node, op, r, v[3], &r));
    return apply2(c, call->node, OP_ADD, v[0], r, ret);
}
