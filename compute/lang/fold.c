/* Literal arithmetic. Operators follow Python: integers are exact, / gives a float, // and % take
 * the divisor's sign, and Python's exceptions are errors. Functions (sqrt, sin, …) follow NumPy on
 * double or complex double: sqrt(-1) is NaN, log(0) is -inf.
 *
 * Python's integers are unbounded, these have 127 bits: no array could hold anything larger, and
 * 2**10**9 must cost nothing. */
#include "compute/lang/fold.h"

#include <complex.h>
#include <math.h>

#include "compute/lang/fold_func.h"

static struct literal lit_bool(bool b)
{
    return (struct literal){.kind = LIT_BOOL, .i = b};
}

static struct literal lit_int(__int128 i)
{
    return (struct literal){.kind = LIT_INT, .i = i};
}

static struct literal lit_float(double d)
{
    return (struct literal){.kind = LIT_FLOAT, .re = d};
}

static struct literal lit_complex(double complex z)
{
    return (struct literal){.kind = LIT_COMPLEX, .re = creal(z), .im = cimag(z)};
}

bool fold_truth(const struct literal *l)
{
    return l->kind <= LIT_INT ? l->i != 0 : l->re != 0 || (l->kind == LIT_COMPLEX && l->im != 0);
}

double fold_double(const struct literal *l)
{
    return l->kind <= LIT_INT ? (double)l->i : l->re;
}

static double complex complex_of(const struct literal *l)
{
    return l->kind == LIT_COMPLEX ? CMPLX(l->re, l->im) : CMPLX(fold_double(l), 0.0);
}

static enum err_code undefined(enum op op, const char *for_what, struct err *e)
{
    return err_set(e, ERR_DTYPE_MISMATCH, "%s is not defined for %s", op_table[op].name, for_what);
}

static enum err_code by_zero(struct err *e)
{
    return err_set(e, ERR_BAD_EXPRESSION, "division of a literal by zero");
}

static enum err_code too_large(struct err *e)
{
    return err_set(e, ERR_BAD_EXPRESSION,
                   "integer literals are computed exactly up to 127 bits, and this result is "
                   "larger; write one operand as a float, as in 2.0**200");
}

static enum err_code int_power(__int128 base, __int128 exp, struct literal *ret, struct err *e)
{
    if (exp < 0) {
        if (base == 0)
            return by_zero(e);
        *ret = lit_float(pow((double)base, (double)exp));
        return ERR_OK;
    }
    if (base == 0 || base == 1 || exp == 0) {
        *ret = lit_int(exp == 0 ? 1 : base);
        return ERR_OK;
    }
    if (base == -1) {
        *ret = lit_int(exp % 2 ? -1 : 1);
        return ERR_OK;
    }
    __int128 r = 1;
    for (; exp > 0; exp--) /* at most 127 rounds: |base| is 2 or more */
        if (__builtin_mul_overflow(r, base, &r))
            return too_large(e);
    *ret = lit_int(r);
    return ERR_OK;
}

static __int128 floor_div(__int128 a, __int128 b)
{
    __int128 q = a / b;
    return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

static enum err_code arith_int(enum op op, __int128 a, __int128 b, struct literal *ret,
                               struct err *e)
{
    __int128 r;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUBTRACT:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MULTIPLY:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        return int_power(a, b, ret, e);
    default:
        if (b == 0)
            return by_zero(e);
        if (op == OP_DIVIDE) {
            /* exact operands divide with one rounding; larger ones in 113 bits first */
            *ret = lit_float((double)((__float128)a / (__float128)b));
            return ERR_OK;
        }
        if (b == -1) { /* the smallest integer by −1 overflows */
            over = op == OP_FLOOR_DIVIDE && __builtin_sub_overflow((__int128)0, a, &r);
            if (op != OP_FLOOR_DIVIDE)
                r = 0;
        } else {
            r = op == OP_FLOOR_DIVIDE ? floor_div(a, b)
                : op == OP_FMOD       ? a % b
                                      : a - floor_div(a, b) * b;
        }
    }
    if (over)
        return too_large(e);
    *ret = lit_int(r);
    return ERR_OK;
}

/* Python's float // and %. */
static double float_floor_mod(double a, double b, double *ret_mod)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0, b);
    }
    *ret_mod = mod;
    if (div == 0)
        return copysign(0, a / b);
    double f = floor(div);
    return div - f > 0.5 ? f + 1 : f;
}

static enum err_code arith_float(enum op op, double a, double b, struct literal *ret, struct err *e)
{
    double r, mod;
    switch (op) {
    case OP_ADD:
        r = a + b;
        break;
    case OP_SUBTRACT:
        r = a - b;
        break;
    case OP_MULTIPLY:
        r = a * b;
        break;
    case OP_POW:
        if (a == 0 && b < 0)
            return by_zero(e);
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) {
            *ret = lit_complex(cpow(CMPLX(a, 0.0), CMPLX(b, 0.0)));
            return ERR_OK;
        }
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b))
            return err_set(e, ERR_BAD_EXPRESSION, "the literal power %g ** %g overflows", a, b);
        break;
    default:
        if (b == 0)
            return by_zero(e);
        if (op == OP_DIVIDE) {
            r = a / b;
        } else if (op == OP_FMOD) {
            r = fmod(a, b);
        } else {
            r = float_floor_mod(a, b, &mod);
            if (op == OP_REMAINDER)
                r = mod;
        }
    }
    *ret = lit_float(r);
    return ERR_OK;
}

static double complex complex_power(double complex a, double complex b)
{
    double n = creal(b);
    if (cimag(b) != 0 || n != floor(n) || fabs(n) > 100)
        return cpow(a, b);
    double complex r = 1, p = a;
    for (int k = (int)fabs(n); k; k >>= 1) {
        if (k & 1)
            r = fold_cmul(r, p);
        p = fold_cmul(p, p);
    }
    return n < 0 ? fold_cdiv(1, r) : r;
}

static bool complex_finite(double complex z)
{
    return isfinite(creal(z)) && isfinite(cimag(z));
}

static enum err_code arith_complex(enum op op, double complex a, double complex b,
                                   struct literal *ret, struct err *e)
{
    double complex z;
    switch (op) {
    case OP_ADD:
        *ret = lit_complex(a + b);
        break;
    case OP_SUBTRACT:
        *ret = lit_complex(a - b);
        break;
    case OP_MULTIPLY:
        *ret = lit_complex(fold_cmul(a, b));
        break;
    case OP_DIVIDE:
        if (b == 0)
            return by_zero(e);
        *ret = lit_complex(fold_cdiv(a, b));
        break;
    case OP_POW:
        if (a == 0 && (creal(b) < 0 || cimag(b) != 0))
            return by_zero(e);
        z = b == 0 ? CMPLX(1, 0) : complex_power(a, b);
        if (!complex_finite(z) && complex_finite(a) && complex_finite(b))
            return err_set(e, ERR_BAD_EXPRESSION, "the literal power overflows");
        *ret = lit_complex(z);
        break;
    default:
        return undefined(op, "complex numbers", e);
    }
    return ERR_OK;
}

/* −1, 0, 1, or 2 when either is NaN; integers are compared with floats exactly. */
static int compare(const struct literal *a, const struct literal *b)
{
    bool ia = a->kind <= LIT_INT, ib = b->kind <= LIT_INT;
    if (ia && ib)
        return (a->i > b->i) - (a->i < b->i);
    if (!ia && !ib)
        return isnan(a->re) || isnan(b->re) ? 2 : (a->re > b->re) - (a->re < b->re);
    if (ib) {
        int r = compare(b, a);
        return r == 2 ? 2 : -r;
    }
    double d = b->re;
    if (isnan(d))
        return 2;
    if (d >= 0x1p127)
        return -1;
    if (d < -0x1p127)
        return 1;
    __int128 whole = (__int128)d;
    if (a->i != whole)
        return a->i > whole ? 1 : -1;
    double rest = d - trunc(d);
    return (rest < 0) - (rest > 0);
}

static enum err_code fold_compare(enum op op, const struct literal *a, const struct literal *b,
                                  struct literal *ret, struct err *e)
{
    if (a->kind == LIT_COMPLEX || b->kind == LIT_COMPLEX) {
        if (op != OP_EQUAL && op != OP_NOT_EQUAL)
            return undefined(op, "complex numbers", e);
        *ret = lit_bool((complex_of(a) == complex_of(b)) == (op == OP_EQUAL));
        return ERR_OK;
    }
    int c = compare(a, b);
    bool r = op == OP_EQUAL        ? c == 0
             : op == OP_NOT_EQUAL  ? c != 0
             : op == OP_LESS       ? c == -1
             : op == OP_LESS_EQUAL ? c == -1 || c == 0
             : op == OP_GREATER    ? c == 1
                                   : c == 1 || c == 0;
    *ret = lit_bool(r);
    return ERR_OK;
}

static enum err_code fold_bits(enum op op, const struct literal *a, const struct literal *b,
                               struct literal *ret, struct err *e)
{
    if (a->kind > LIT_INT || (b && b->kind > LIT_INT))
        return undefined(op, "floats: it takes integers or booleans", e);
    enum literal_kind kind = b && a->kind == LIT_BOOL && b->kind == LIT_BOOL ? LIT_BOOL : LIT_INT;
    __int128 r;
    switch (op) {
    case OP_BITWISE_INVERT:
        r = ~a->i;
        break;
    case OP_BITWISE_AND:
        r = a->i & b->i;
        break;
    case OP_BITWISE_OR:
        r = a->i | b->i;
        break;
    case OP_BITWISE_XOR:
        r = a->i ^ b->i;
        break;
    default:
        kind = LIT_INT;
        if (b->i < 0)
            return err_set(e, ERR_BAD_EXPRESSION, "negative shift count in literal arithmetic");
        if (op == OP_BITWISE_RIGHT_SHIFT) {
            r = a->i >> (b->i > 126 ? 126 : (int)b->i);
        } else {
            r = 0;
            if (a->i != 0 &&
                (b->i > 126 || __builtin_mul_overflow(a->i, (__int128)1 << (int)b->i, &r)))
                return too_large(e);
        }
    }
    *ret = (struct literal){.kind = kind, .i = r};
    return ERR_OK;
}

static enum err_code extremum(enum op op, const struct literal *a, const struct literal *b,
                              struct literal *ret, struct err *e)
{
    if (a->kind == LIT_COMPLEX || b->kind == LIT_COMPLEX)
        return undefined(op, "complex numbers", e);
    int c = compare(a, b);
    struct literal r = c == 2 ? lit_float(NAN) : (op == OP_MAXIMUM) == (c >= 0) ? *a : *b;
    if (a->kind == LIT_FLOAT || b->kind == LIT_FLOAT)
        r = lit_float(fold_double(&r));
    else if (a->kind != b->kind)
        r.kind = LIT_INT;
    *ret = r;
    return ERR_OK;
}

/* Predicates, and operations of one argument that keep integers integers. */
static enum err_code fold_unary(enum op op, const struct literal *a, struct literal *ret,
                                struct err *e)
{
    bool is_int = a->kind <= LIT_INT, is_complex = a->kind == LIT_COMPLEX;
    double x = fold_double(a);
    double complex z = complex_of(a);
    switch (op) {
    case OP_NEGATIVE:
    case OP_ABS:
        if (op == OP_ABS && is_complex) {
            *ret = lit_float(cabs(z));
        } else if (is_complex) {
            *ret = lit_complex(-z);
        } else if (!is_int) {
            *ret = lit_float(op == OP_ABS ? fabs(x) : -x);
        } else {
            __int128 r = a->i;
            if ((op == OP_NEGATIVE || r < 0) && __builtin_sub_overflow((__int128)0, r, &r))
                return too_large(e);
            *ret = lit_int(r);
        }
        return ERR_OK;
    case OP_POSITIVE:
        *ret = is_int ? lit_int(a->i) : *a;
        return ERR_OK;
    case OP_SIGN:
        if (is_complex)
            *ret = lit_complex(z == 0 ? 0 : z / cabs(z));
        else if (is_int)
            *ret = lit_int((a->i > 0) - (a->i < 0));
        else
            *ret = lit_float(isnan(x) ? x : (x > 0) - (x < 0));
        return ERR_OK;
    case OP_CEIL:
    case OP_FLOOR:
    case OP_TRUNC:
        if (is_complex)
            return undefined(op, "complex numbers", e);
        *ret = is_int           ? *a
               : op == OP_CEIL  ? lit_float(ceil(x))
               : op == OP_FLOOR ? lit_float(floor(x))
                                : lit_float(trunc(x));
        return ERR_OK;
    case OP_ROUND:
        *ret = is_int       ? *a
               : is_complex ? lit_complex(CMPLX(rint(a->re), rint(a->im)))
                            : lit_float(rint(x));
        return ERR_OK;
    case OP_SIGNBIT:
        if (is_complex)
            return undefined(op, "complex numbers", e);
        *ret = lit_bool(is_int ? a->i < 0 : signbit(x));
        return ERR_OK;
    case OP_ISNAN:
        *ret = lit_bool(!is_int && (isnan(x) || (is_complex && isnan(a->im))));
        return ERR_OK;
    case OP_ISINF:
        *ret = lit_bool(!is_int && (isinf(x) || (is_complex && isinf(a->im))));
        return ERR_OK;
    case OP_ISFINITE:
        *ret = lit_bool(is_int || (isfinite(x) && (!is_complex || isfinite(a->im))));
        return ERR_OK;
    case OP_CONJ:
        *ret = is_complex ? lit_complex(conj(z)) : *a;
        return ERR_OK;
    case OP_REAL:
        *ret = is_complex ? lit_float(a->re) : *a;
        return ERR_OK;
    default: /* OP_IMAG */
        *ret = is_complex ? lit_float(a->im) : is_int ? lit_int(0) : lit_float(0);
        return ERR_OK;
    }
}

static enum err_code function(enum op op, const struct literal *a, const struct literal *b,
                              struct literal *ret, struct err *e)
{
    if (a->kind == LIT_COMPLEX || (b && b->kind == LIT_COMPLEX)) {
        if (b || !(op_table[op].kinds & KINDS_C))
            return undefined(op, "complex numbers", e);
        *ret = lit_complex(fold_complex(op, complex_of(a)));
    } else {
        *ret = lit_float(b ? fold_real2(op, fold_double(a), fold_double(b))
                           : fold_real(op, fold_double(a)));
    }
    return ERR_OK;
}

enum err_code fold_op(enum op op, const struct literal *args, struct literal *ret, struct err *e)
{
    const struct literal *a = &args[0], *b = op_table[op].nargs > 1 ? &args[1] : NULL;
    switch (op) {
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_DIVIDE:
    case OP_FLOOR_DIVIDE:
    case OP_REMAINDER:
    case OP_FMOD:
    case OP_POW:
        if (a->kind == LIT_COMPLEX || b->kind == LIT_COMPLEX)
            return arith_complex(op, complex_of(a), complex_of(b), ret, e);
        if (a->kind == LIT_FLOAT || b->kind == LIT_FLOAT)
            return arith_float(op, fold_double(a), fold_double(b), ret, e);
        return arith_int(op, a->i, b->i, ret, e);
    case OP_SQUARE:
        if (a->kind == LIT_COMPLEX)
            return arith_complex(OP_MULTIPLY, complex_of(a), complex_of(a), ret, e);
        if (a->kind == LIT_FLOAT)
            return arith_float(OP_MULTIPLY, a->re, a->re, ret, e);
        return arith_int(OP_MULTIPLY, a->i, a->i, ret, e);
    case OP_EQUAL:
    case OP_NOT_EQUAL:
    case OP_LESS:
    case OP_LESS_EQUAL:
    case OP_GREATER:
    case OP_GREATER_EQUAL:
        return fold_compare(op, a, b, ret, e);
    case OP_LOGICAL_AND:
        *ret = lit_bool(fold_truth(a) && fold_truth(b));
        return ERR_OK;
    case OP_LOGICAL_OR:
        *ret = lit_bool(fold_truth(a) || fold_truth(b));
        return ERR_OK;
    case OP_LOGICAL_XOR:
        *ret = lit_bool(fold_truth(a) != fold_truth(b));
        return ERR_OK;
    case OP_LOGICAL_NOT:
        *ret = lit_bool(!fold_truth(a));
        return ERR_OK;
    case OP_BITWISE_AND:
    case OP_BITWISE_OR:
    case OP_BITWISE_XOR:
    case OP_BITWISE_LEFT_SHIFT:
    case OP_BITWISE_RIGHT_SHIFT:
    case OP_BITWISE_INVERT:
        return fold_bits(op, a, b, ret, e);
    case OP_MAXIMUM:
    case OP_MINIMUM:
        return extremum(op, a, b, ret, e);
    case OP_NEGATIVE:
    case OP_ABS:
    case OP_POSITIVE:
    case OP_SIGN:
    case OP_CEIL:
    case OP_FLOOR:
    case OP_TRUNC:
    case OP_ROUND:
    case OP_SIGNBIT:
    case OP_ISNAN:
    case OP_ISINF:
    case OP_ISFINITE:
    case OP_CONJ:
    case OP_REAL:
    case OP_IMAG:
        return fold_unary(op, a, ret, e);
    default:
        return function(op, a, b, ret, e);
    }
}
