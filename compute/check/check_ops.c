/* Typing of elementwise operations: the dtype they compute in, and the conversion of literals.
 *
 * Promotion looks at all typed operands first and then at the literals (NEP 50); op.def's rule then
 * says what that type means for the operation. Operands that are all literals never become nodes:
 * fold.c computes them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/check/check_ops.h"

#include "compute/check/check_graph.h"
#include "compute/lang/fold.h"

/* The dtype in which literals without typed operands are computed together. */
static enum err_code literals_dtype(struct checker *c, const struct cval *args, int n,
                                    enum dtype *ret)
{
    enum dtype t = DT_BOOL;
    for (int k = 0; k < n; k++) {
        enum dtype own;
        TRY(check_place(c, args[k].place, dtype_of_literal(&args[k].lit, &own, c->e)));
        if (t == DT_BOOL || dtype_kind(own) > dtype_kind(t))
            t = own;
    }
    *ret = t;
    return ERR_OK;
}

enum err_code ops_promote(struct checker *c, const struct cval *args, int n, enum dtype *ret)
{
    bool any = false;
    enum dtype t = DT_BOOL;
    for (int k = 0; k < n; k++)
        if (!args[k].weak) {
            t = any ? dtype_promote(t, cval_dtype(c, &args[k])) : cval_dtype(c, &args[k]);
            any = true;
        }
    if (!any)
        return literals_dtype(c, args, n, ret);
    for (int k = 0; k < n; k++)
        if (args[k].weak)
            t = dtype_promote_literal(t, &args[k].lit);
    *ret = t;
    return ERR_OK;
}

enum err_code ops_convert(struct checker *c, const struct cval *v, enum dtype t, uint32_t *ret)
{
    if (!v->weak)
        return graph_cast(c, v->place, v->id, t, ret);
    struct scalar s;
    TRY(check_place(c, v->place, scalar_from_literal(t, &v->lit, &s, c->e)));
    return graph_const(c, v->place, s, ret);
}

enum err_code ops_typed(struct checker *c, const struct cval *v, uint32_t *ret)
{
    enum dtype t = DT_BOOL;
    if (!v->weak) {
        *ret = v->id;
        return ERR_OK;
    }
    TRY(literals_dtype(c, v, 1, &t));
    return ops_convert(c, v, t, ret);
}

enum err_code ops_truth(struct checker *c, const struct cval *v, uint32_t *ret)
{
    if (v->weak)
        return graph_const(c, v->place,
                           (struct scalar){.dtype = DT_BOOL, .v.b = fold_truth(&v->lit)}, ret);
    enum dtype t = cval_dtype(c, v);
    if (t == DT_BOOL) {
        *ret = v->id;
        return ERR_OK;
    }
    uint32_t zero;
    TRY(graph_const(c, v->place, (struct scalar){.dtype = t}, &zero));
    return graph_op2(c, v->place, OP_NOT_EQUAL, v->id, zero, ret);
}

enum err_code ops_astype(struct checker *c, const struct cval *v, enum dtype t, uint32_t place,
                         uint32_t *ret)
{
    uint32_t id;
    TRY(ops_typed(c, v, &id));
    enum dtype from = c->t->nodes[id].dtype;
    if (dtype_is_complex(from) && !dtype_is_complex(t) && t != DT_BOOL)
        return expr_err(c->x, place, c->e, ERR_DTYPE_MISMATCH,
                        "%s cannot be cast to %s: use real(x), imag(x) or abs(x)", dtype_name(from),
                        dtype_name(t));
    return graph_cast(c, place, id, t, ret);
}

static enum err_code refuse(struct checker *c, uint32_t place, enum op op, enum dtype t)
{
    const char *hint = "";
    if (t == DT_BOOL && op == OP_SUBTRACT)
        hint = ": use ^ or logical_xor";
    else if (t == DT_BOOL && op == OP_NEGATIVE)
        hint = ": use ~ or logical_not";
    else if (dtype_kind(t) >= KIND_FLOAT && op == OP_BITWISE_XOR)
        hint = ": it takes integers or booleans; a power is x ** y";
    else if (dtype_kind(t) >= KIND_FLOAT && op_table[op].rule == RULE_INTEGRAL)
        hint = ": it takes integers or booleans";
    else if (dtype_kind(t) >= KIND_FLOAT && op_table[op].rule == RULE_SHIFT)
        hint = ": it takes integers";
    return expr_err(c->x, place, c->e, ERR_DTYPE_MISMATCH, "%s is not defined for %s%s",
                    op_table[op].name, dtype_name(t), hint);
}

/* The type that a rule derives from the promoted type. */
static enum dtype rule_dtype(enum op_rule rule, enum dtype t)
{
    switch (rule) {
    case RULE_BOOL_I8:
    case RULE_SHIFT:
        return t == DT_BOOL ? DT_I8 : t;
    case RULE_FLOAT:
        return dtype_kind(t) < KIND_FLOAT ? DT_F64 : t;
    default:
        return t;
    }
}

static bool refused_by_rule(enum op_rule rule, enum dtype t)
{
    return (rule == RULE_NOBOOL && t == DT_BOOL) ||
           ((rule == RULE_INTEGRAL || rule == RULE_SHIFT) && dtype_kind(t) >= KIND_FLOAT);
}

/* A signed integer against uint64: NumPy's promotion would be float64, which cannot distinguish
 * 2**53 and 2**53 + 1. A negative signed value decides alone, any other compares in uint64. */
static enum err_code compare_mixed(struct checker *c, uint32_t place, enum op op, uint32_t a,
                                   uint32_t b, uint32_t *ret)
{
    bool swapped = c->t->nodes[a].dtype == DT_U64;
    uint32_t s = swapped ? b : a, u = swapped ? a : b, zero, negative, same;
    enum dtype t = c->t->nodes[s].dtype;
    TRY(graph_const(c, place, (struct scalar){.dtype = t}, &zero));
    TRY(graph_op2(c, place, OP_LESS, s, zero, &negative));
    TRY(graph_cast(c, place, s, DT_U64, &s));
    TRY(graph_op2(c, place, op, swapped ? u : s, swapped ? s : u, &same));
    /* the answer for a negative s, which is below every u */
    bool below = op == OP_NOT_EQUAL || ((op == OP_LESS || op == OP_LESS_EQUAL) && !swapped) ||
                 ((op == OP_GREATER || op == OP_GREATER_EQUAL) && swapped);
    if (below)
        return graph_op2(c, place, OP_LOGICAL_OR, negative, same, ret);
    TRY(graph_op(c, place, OP_LOGICAL_NOT, &negative, &negative));
    return graph_op2(c, place, OP_LOGICAL_AND, negative, same, ret);
}

static bool is_mixed_pair(enum dtype a, enum dtype b)
{
    return (dtype_kind(a) == KIND_INT && b == DT_U64) || (a == DT_U64 && dtype_kind(b) == KIND_INT);
}

/* x ** 0.5: the square root except for -0, whose power is 0, and -infinity, whose power is
 * infinity. */
static enum err_code root(struct checker *c, uint32_t place, uint32_t x, enum dtype t,
                          uint32_t *ret)
{
    struct cval infinite[2] = {{.weak = true, .place = place}, {.weak = true, .place = place}};
    uint32_t y, plus, minus, below;
    infinite[0].lit = (struct literal){.kind = LIT_FLOAT, .re = INFINITY};
    infinite[1].lit = (struct literal){.kind = LIT_FLOAT, .re = -INFINITY};
    TRY(ops_convert(c, &infinite[0], t, &plus));
    TRY(ops_convert(c, &infinite[1], t, &minus));
    TRY(graph_op(c, place, OP_SQRT, &x, &y));
    TRY(graph_op(c, place, OP_ABS, &y, &y));
    TRY(graph_op2(c, place, OP_EQUAL, x, minus, &below));
    return graph_where(c, place, below, plus, y, ret);
}

/* A real number that is known now, a literal or a typed constant. */
static bool is_known(const struct checker *c, const struct cval *v, double *ret)
{
    if (v->weak) {
        *ret = v->lit.kind == LIT_COMPLEX ? 0 : fold_double(&v->lit);
        return v->lit.kind != LIT_COMPLEX;
    }
    const struct typed_node *n = &c->t->nodes[v->id];
    if (n->kind != T_CONST || dtype_is_complex(n->dtype))
        return false;
    *ret = scalar_cast(n->value, DT_F64).v.f64;
    return true;
}

/* x ** a known number; *ret_done is false for an ordinary power. As a product, a quotient and a
 * root, x ** 2, x ** -1 and x ** 0.5 round no worse and are several times cheaper; so are 3 and 4,
 * 1.5 and 2.5 (|x| or x² times the root) where they cost at most two more roundings. */
static enum err_code known_power(struct checker *c, uint32_t place, const struct cval *args,
                                 double n, enum dtype t, uint32_t *ret, bool *ret_done)
{
    const struct literal *p = &args[1].lit;
    *ret_done = false;
    if (args[1].weak && p->kind <= LIT_INT && p->i < 0 && dtype_is_integer(t))
        return expr_err(c->x, args[1].place, c->e, ERR_LITERAL_RANGE,
                        "an integer cannot be raised to a negative integer power: write a float "
                        "exponent (x ** -1.0) or divide");
    bool precise = t == DT_F32 || t == DT_F64, halves = precise && (n == 1.5 || n == 2.5);
    bool real = dtype_is_real_float(t) && (n == -1 || n == 0.5);
    bool cube = (precise || dtype_is_integer(t)) && (n == 3 || n == 4);
    if (n != 2 && !real && !cube && !halves)
        return ERR_OK;
    uint32_t x, sq;
    TRY(ops_convert(c, &args[0], t, &x));
    *ret_done = true;
    if (n == 0.5)
        return root(c, place, x, t, ret);
    if (halves) {
        TRY(graph_op(c, place, n == 1.5 ? OP_ABS : OP_SQUARE, &x, &sq));
        TRY(root(c, place, x, t, &x));
        return graph_op2(c, place, OP_MULTIPLY, sq, x, ret);
    }
    if (n == -1)
        return graph_op(c, place, OP_RECIPROCAL, &x, ret);
    TRY(graph_op(c, place, OP_SQUARE, &x, &sq));
    if (n == 2)
        *ret = sq;
    else if (n == 3)
        return graph_op2(c, place, OP_MULTIPLY, sq, x, ret);
    else
        return graph_op(c, place, OP_SQUARE, &sq, ret);
    return ERR_OK;
}

/* Whether division by d equals, to the bit, multiplication by its reciprocal: d is a power of two
 * whose reciprocal is a normal number of the type. */
static bool exact_reciprocal(double d, enum dtype t)
{
    if (!dtype_is_real_float(t))
        return false;
    int exp, most = t == DT_F16 ? 13 : t == DT_F64 ? 1020 : 124;
    double m = frexp(d, &exp);
    return fabs(m) == 0.5 && abs(exp) <= most;
}

/* Operations that do not change values of this type. */
static bool is_identity(enum op op, enum dtype t)
{
    switch (op) {
    case OP_POSITIVE:
        return true;
    case OP_CEIL:
    case OP_FLOOR:
    case OP_TRUNC:
    case OP_ROUND:
        return dtype_kind(t) < KIND_FLOAT;
    case OP_CONJ:
    case OP_REAL:
        return !dtype_is_complex(t);
    case OP_ABS:
        return t == DT_BOOL || dtype_kind(t) == KIND_UINT;
    default:
        return false;
    }
}

static enum err_code apply_typed(struct checker *c, uint32_t place, enum op op,
                                 const struct cval *args, uint32_t *ret)
{
    const struct op_info *info = &op_table[op];
    uint32_t ids[3];
    assert(info->nargs <= 3);
    if (info->rule == RULE_TRUTH) {
        for (int k = 0; k < info->nargs; k++)
            TRY(ops_truth(c, &args[k], &ids[k]));
        return graph_op(c, place, op, ids, ret);
    }
    enum dtype t = DT_BOOL;
    TRY(ops_promote(c, args, info->nargs, &t));
    if (info->rule == RULE_COMPARE && !args[0].weak && !args[1].weak &&
        is_mixed_pair(cval_dtype(c, &args[0]), cval_dtype(c, &args[1])))
        return compare_mixed(c, place, op, args[0].id, args[1].id, ret);
    if (refused_by_rule(info->rule, t))
        return refuse(c, place, op, t);
    t = rule_dtype(info->rule, t);
    if (!op_defined(op, t))
        return refuse(c, place, op, t);
    double n;
    if (op == OP_POW && is_known(c, &args[1], &n)) {
        bool done;
        TRY(known_power(c, place, args, n, t, ret, &done));
        if (done)
            return ERR_OK;
    }
    if (op == OP_DIVIDE && is_known(c, &args[1], &n) && exact_reciprocal(n, t)) {
        struct cval inverse = {.weak = true, .place = args[1].place};
        inverse.lit = (struct literal){.kind = LIT_FLOAT, .re = 1 / n};
        TRY(ops_convert(c, &args[0], t, &ids[0]));
        TRY(ops_convert(c, &inverse, t, &ids[1]));
        return graph_op(c, place, OP_MULTIPLY, ids, ret);
    }
    for (int k = 0; k < info->nargs; k++)
        TRY(ops_convert(c, &args[k], t, &ids[k]));
    if (is_identity(op, t)) {
        *ret = ids[0];
        return ERR_OK;
    }
    return graph_op(c, place, op, ids, ret);
}

enum err_code ops_apply(struct checker *c, uint32_t place, enum op op, const struct cval *args,
                        struct cval *ret)
{
    int n = op_table[op].nargs;
    bool weak = true;
    struct literal lits[3];
    for (int k = 0; k < n; k++) {
        weak &= args[k].weak;
        lits[k] = args[k].lit;
    }
    struct cval r = {.weak = weak, .place = place};
    if (weak)
        TRY(check_place(c, place, fold_op(op, lits, &r.lit, c->e)));
    else
        TRY(apply_typed(c, place, op, args, &r.id));
    *ret = r;
    return ERR_OK;
}

enum err_code ops_unify(struct checker *c, struct cval *args, int n, enum op_rule rule)
{
    bool weak = true;
    for (int k = 0; k < n; k++)
        weak &= args[k].weak;
    if (weak)
        return ERR_OK;
    enum dtype t = DT_BOOL;
    TRY(ops_promote(c, args, n, &t));
    t = rule_dtype(rule, t);
    for (int k = 0; k < n; k++) {
        uint32_t id;
        TRY(ops_convert(c, &args[k], t, &id));
        args[k] = cval_typed(id, args[k].place);
    }
    return ERR_OK;
}
