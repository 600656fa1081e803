/* Names and sizes come from dtype.def, promotion from a rule over (kind, width): the 15×15 table is
 * small, but a rule can be read against the standard.
 *
 * Conversions of single values go through a common form: an exact 128-bit integer or a complex
 * double holds every value of every type, so each type needs one reader and one writer. */
#include "compute/type/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned char size, kind;
    const char *npy;
} table[DT_COUNT] = {
#define DTYPE(id, name, size, kind, ctype, npy) [DT_##id] = {name, size, KIND_##kind, npy},
#include "compute/type/dtype.def"
#undef DTYPE
};

const char *dtype_name(enum dtype t)
{
    return table[t].name;
}

size_t dtype_size(enum dtype t)
{
    return table[t].size;
}

enum dtype_kind dtype_kind(enum dtype t)
{
    return table[t].kind;
}

const char *dtype_npy(enum dtype t)
{
    return table[t].npy;
}

int dtype_from_name(const char *name, size_t n)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (strlen(table[t].name) == n && memcmp(table[t].name, name, n) == 0)
            return t;
    return -1;
}

/* The arrayd type for a name from NumPy, C or Rust; NULL: unknown. */
static const char *meant(const char *name, size_t n)
{
    static const char *const others[][2] = {{"?", "bool"},
                                            {"bool_", "bool"},
                                            {"b", "int8"},
                                            {"byte", "int8"},
                                            {"h", "int16"},
                                            {"short", "int16"},
                                            {"i", "int32"},
                                            {"intc", "int32"},
                                            {"int", "int64"},
                                            {"int_", "int64"},
                                            {"intp", "int64"},
                                            {"l", "int64"},
                                            {"q", "int64"},
                                            {"long", "int64"},
                                            {"longlong", "int64"},
                                            {"B", "uint8"},
                                            {"ubyte", "uint8"},
                                            {"H", "uint16"},
                                            {"ushort", "uint16"},
                                            {"I", "uint32"},
                                            {"uintc", "uint32"},
                                            {"uint", "uint64"},
                                            {"uintp", "uint64"},
                                            {"L", "uint64"},
                                            {"Q", "uint64"},
                                            {"ulong", "uint64"},
                                            {"ulonglong", "uint64"},
                                            {"e", "float16"},
                                            {"half", "float16"},
                                            {"bf16", "bfloat16"},
                                            {"f", "float32"},
                                            {"f32", "float32"},
                                            {"single", "float32"},
                                            {"d", "float64"},
                                            {"f64", "float64"},
                                            {"float", "float64"},
                                            {"float_", "float64"},
                                            {"double", "float64"},
                                            {"F", "complex64"},
                                            {"csingle", "complex64"},
                                            {"D", "complex128"},
                                            {"cdouble", "complex128"},
                                            {"complex", "complex128"},
                                            {"complex_", "complex128"}};
    if (n && strchr("<>=|", *name)) /* the byte order does not matter here */
        name++, n--;
    for (int t = 0; t < DT_COUNT; t++)
        if (strlen(table[t].npy) == n && !memcmp(table[t].npy, name, n))
            return table[t].name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i][0]) == n && !memcmp(others[i][0], name, n))
            return others[i][1];
    return NULL;
}

enum err_code dtype_read(const char *name, size_t n, enum dtype *ret, struct err *e)
{
    int t = dtype_from_name(name, n);
    if (t >= 0) {
        *ret = (enum dtype)t;
        return ERR_OK;
    }
    const char *hint = meant(name, n);
    char all[DT_COUNT * 12] = "";
    for (t = 0; t < DT_COUNT; t++) {
        strcat(all, t ? " " : "");
        strcat(all, table[t].name);
    }
    return err_set(e, ERR_BAD_DTYPE, "there is no dtype \"%.*s\"%s%s%s; the dtypes are %s",
                   (int)(n < 60 ? n : 60), name, hint ? ": did you mean \"" : "", hint ? hint : "",
                   hint ? "\"?" : "", all);
}

/* The smallest real float type, at least as wide as `f`, that holds int/uint of this size: 8 bits
 * fit float16, 16 bits float32, more float64. */
static enum dtype float_for_integer(enum dtype integer, enum dtype f)
{
    size_t size = dtype_size(integer);
    enum dtype least = size == 1 ? DT_F16 : size == 2 ? DT_F32 : DT_F64;
    if (least == DT_F16)
        return f;
    return dtype_size(f) >= dtype_size(least) ? f : least;
}

static enum dtype complex_of(enum dtype real)
{
    return real == DT_F64 ? DT_C128 : DT_C64;
}

enum dtype dtype_promote(enum dtype a, enum dtype b)
{
    if (a == b)
        return a;
    if (dtype_kind(a) > dtype_kind(b) || (dtype_kind(a) == dtype_kind(b) && a > b)) {
        enum dtype swap = a;
        a = b;
        b = swap;
    }
    enum dtype_kind ka = dtype_kind(a), kb = dtype_kind(b);
    if (ka == KIND_BOOL)
        return b;
    if (kb == KIND_COMPLEX) {
        enum dtype real = dtype_is_integer(a) ? float_for_integer(a, dtype_real(b))
                                              : dtype_promote(dtype_real(a), dtype_real(b));
        return complex_of(real);
    }
    if (kb == KIND_FLOAT) {
        if (ka == KIND_FLOAT)
            return a == DT_F16 && b == DT_BF16 ? DT_F32 : b;
        return float_for_integer(a, b);
    }
    if (ka == kb)
        return b;
    /* signed a with unsigned b: the signed type that holds both, and NumPy's float64 past int64 */
    if (dtype_size(a) > dtype_size(b))
        return a;
    return b == DT_U64 ? DT_F64 : DT_I8 + (b - DT_U8) + 1;
}

enum dtype dtype_real(enum dtype t)
{
    return t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
}

enum dtype dtype_promote_literal(enum dtype t, const struct literal *l)
{
    enum dtype_kind k = dtype_kind(t);
    switch (l->kind) {
    case LIT_BOOL:
        return t;
    case LIT_INT:
        return k == KIND_BOOL ? DT_I64 : t;
    case LIT_FLOAT:
        return k < KIND_FLOAT ? DT_F64 : t;
    case LIT_COMPLEX:
        break;
    }
    return k < KIND_FLOAT ? DT_C128 : k == KIND_FLOAT ? complex_of(t) : t;
}

/* The range of an integer type. */
static void integer_limits(enum dtype t, __int128 *lo, __int128 *hi)
{
    int bits = 8 * (int)dtype_size(t);
    bool is_signed = dtype_kind(t) == KIND_INT;
    *lo = is_signed ? -((__int128)1 << (bits - 1)) : 0;
    *hi = ((__int128)1 << (is_signed ? bits - 1 : bits)) - 1;
}

/* Decimal text of a 128-bit integer, written to the end of buf; returns its first character. */
static const char *int128_text(__int128 v, char buf[static 42])
{
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    char *p = buf + 41;
    *p = '\0';
    do {
        *--p = (char)('0' + (int)(u % 10));
        u /= 10;
    } while (u);
    if (v < 0)
        *--p = '-';
    return p;
}

enum err_code dtype_of_literal(const struct literal *l, enum dtype *ret, struct err *e)
{
    char buf[42];
    switch (l->kind) {
    case LIT_BOOL:
        *ret = DT_BOOL;
        break;
    case LIT_INT:
        if (l->i >= INT64_MIN && l->i <= INT64_MAX)
            *ret = DT_I64;
        else if (l->i > 0 && l->i <= (__int128)UINT64_MAX)
            *ret = DT_U64;
        else
            return err_set(e, ERR_LITERAL_RANGE, "%s fits neither int64 nor uint64",
                           int128_text(l->i, buf));
        break;
    case LIT_FLOAT:
        *ret = DT_F64;
        break;
    case LIT_COMPLEX:
        *ret = DT_C128;
        break;
    }
    return ERR_OK;
}

bool dtype_can_cast_same_kind(enum dtype from, enum dtype to)
{
    static const unsigned char order[] = {
        [KIND_BOOL] = 0, [KIND_UINT] = 1, [KIND_INT] = 2, [KIND_FLOAT] = 3, [KIND_COMPLEX] = 4};
    return order[dtype_kind(from)] <= order[dtype_kind(to)];
}

/* Halves */

static uint64_t bits_of(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* Rounds a double once, to nearest even, to a 16-bit format with `mant` stored mantissa bits and
 * exponent bias `bias`. */
static uint16_t half_from_double(double d, int mant, int bias)
{
    uint64_t u = bits_of(d);
    uint16_t sign = (uint16_t)(u >> 48 & 0x8000);
    uint16_t inf = (uint16_t)(0x7FFF >> mant << mant);
    if (d != d)
        return sign | inf | (uint16_t)(1 << (mant - 1));
    int exp = (int)(u >> 52 & 0x7FF) - 1023 + bias;
    if (exp >= (inf >> mant)) /* infinity, and values beyond the largest exponent */
        return sign | inf;
    uint64_t m = (u & ((1ull << 52) - 1)) | 1ull << 52;
    int drop = 52 - mant;
    if (exp <= 0) { /* subnormal in the target */
        drop += 1 - exp;
        exp = 1;
        if (drop > 63)
            return sign;
    }
    uint64_t half = 1ull << (drop - 1), rest = m & (2 * half - 1), q = m >> drop;
    q += rest > half || (rest == half && (q & 1));
    /* the implicit bit adds one to the exponent field; a carry out of the mantissa one more */
    return sign | (uint16_t)(((uint64_t)(exp - 1) << mant) + q);
}

static double double_from_f16(uint16_t h)
{
    int exp = h >> 10 & 31;
    double m = h & 1023;
    double d = exp == 31 ? (m != 0 ? NAN : INFINITY)
               : exp     ? ldexp(m + 1024, exp - 25)
                         : ldexp(m, -24);
    return h & 0x8000 ? -d : d;
}

static double double_from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* One value of any type */

struct wide {
    bool integral; /* i is the value; else re, im */
    __int128 i;
    double re, im;
};

static struct wide wide_from(struct scalar s)
{
    switch (s.dtype) {
    case DT_BOOL:
        return (struct wide){.integral = true, .i = s.v.b != 0};
    case DT_I8:
        return (struct wide){.integral = true, .i = s.v.i8};
    case DT_I16:
        return (struct wide){.integral = true, .i = s.v.i16};
    case DT_I32:
        return (struct wide){.integral = true, .i = s.v.i32};
    case DT_I64:
        return (struct wide){.integral = true, .i = s.v.i64};
    case DT_U8:
        return (struct wide){.integral = true, .i = s.v.u8};
    case DT_U16:
        return (struct wide){.integral = true, .i = s.v.u16};
    case DT_U32:
        return (struct wide){.integral = true, .i = s.v.u32};
    case DT_U64:
        return (struct wide){.integral = true, .i = s.v.u64};
    case DT_F16:
        return (struct wide){.re = double_from_f16(s.v.u16)};
    case DT_BF16:
        return (struct wide){.re = double_from_bf16(s.v.u16)};
    case DT_F32:
        return (struct wide){.re = (double)s.v.f32};
    case DT_F64:
        return (struct wide){.re = s.v.f64};
    case DT_C64:
        return (struct wide){.re = (double)s.v.c64[0], .im = (double)s.v.c64[1]};
    case DT_C128:
        return (struct wide){.re = s.v.c128[0], .im = s.v.c128[1]};
    case DT_COUNT:
        break;
    }
    return (struct wide){0};
}

/* Truncated and saturated to the type's range; NaN is 0. */
static __int128 integer_from_double(double d, enum dtype t)
{
    __int128 lo, hi;
    integer_limits(t, &lo, &hi);
    if (d != d)
        return 0;
    if (d <= (double)lo)
        return lo;
    if (d >= (double)hi)
        return hi;
    return (__int128)d;
}

static struct scalar wide_to(struct wide w, enum dtype t)
{
    struct scalar s = {.dtype = t};
    if (t == DT_BOOL) {
        s.v.b = w.integral ? w.i != 0 : w.re != 0 || w.im != 0;
        return s;
    }
    if (dtype_is_integer(t)) {
        __int128 i = w.integral ? w.i : integer_from_double(w.re, t);
        uint64_t wrapped = (uint64_t)i;
        memcpy(s.v.raw, &wrapped, dtype_size(t)); /* little-endian: the low bytes */
        return s;
    }
    double re = w.integral ? (double)w.i : w.re;
    switch (t) {
    case DT_F16:
        s.v.u16 = half_from_double(re, 10, 15);
        break;
    case DT_BF16: /* integers by way of float32, as ml_dtypes does */
        s.v.u16 = half_from_double(w.integral ? (double)(float)w.i : re, 7, 127);
        break;
    case DT_F32:
        s.v.f32 = w.integral ? (float)w.i : (float)re;
        break;
    case DT_F64:
        s.v.f64 = re;
        break;
    case DT_C64:
        s.v.c64[0] = w.integral ? (float)w.i : (float)re;
        s.v.c64[1] = (float)w.im;
        break;
    default:
        s.v.c128[0] = re;
        s.v.c128[1] = w.im;
        break;
    }
    return s;
}

struct scalar scalar_cast(struct scalar s, enum dtype t)
{
    return s.dtype == t ? s : wide_to(wide_from(s), t);
}

enum err_code scalar_from_literal(enum dtype t, const struct literal *l, struct scalar *ret,
                                  struct err *e)
{
    bool integral = l->kind == LIT_BOOL || l->kind == LIT_INT;
    if (l->kind == LIT_COMPLEX && !dtype_is_complex(t))
        return err_set(e, ERR_LITERAL_RANGE, "the complex number %.17g%+.17gj does not fit %s",
                       l->re, l->im, dtype_name(t));
    __int128 i = l->i;
    if (l->kind == LIT_FLOAT && dtype_kind(t) < KIND_FLOAT) {
        /* a whole number fits, however written; JSON writers print 2.0 for 2 */
        if (!(fabs(l->re) < 0x1p100 && l->re == trunc(l->re)))
            return err_set(e, ERR_LITERAL_RANGE, "%.17g does not fit %s", l->re, dtype_name(t));
        i = (__int128)l->re;
        integral = true;
    }
    if (dtype_kind(t) < KIND_FLOAT) {
        __int128 lo = 0, hi = 1;
        char buf[42];
        if (t != DT_BOOL)
            integer_limits(t, &lo, &hi);
        if (i < lo || i > hi)
            return err_set(e, ERR_LITERAL_RANGE, "%s does not fit %s", int128_text(i, buf),
                           dtype_name(t));
    }
    *ret = wide_to(
        (struct wide){
            .integral = integral, .i = i, .re = l->re, .im = l->kind == LIT_COMPLEX ? l->im : 0},
        t);
    return ERR_OK;
}

struct literal literal_from_scalar(struct scalar s)
{
    struct wide w = wide_from(s);
    if (w.integral)
        return (struct literal){.kind = s.dtype == DT_BOOL ? LIT_BOOL : LIT_INT, .i = w.i};
    return (struct literal){
        .kind = dtype_is_complex(s.dtype) ? LIT_COMPLEX : LIT_FLOAT, .re = w.re, .im = w.im};
}
