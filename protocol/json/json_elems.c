/* With a dtype, text is converted to it at once, rounded once. Without one, values are kept as the
 * narrowest of bool, int64, uint64, float64 that holds everything so far, and widened in place when
 * a larger one comes. A float64 loses information that a later conversion may need in three cases:
 * an integer beyond 2^53, and a value that was rounded onto a midpoint of float32 or a half, or
 * onto an integer; an int64 loses the sign of "-0". All are rare; the text of such elements is kept
 * and parsed again if the dtype turns out to need it. */
#include "protocol/json/json_elems.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/number/numtext.h"

void json_elems_init(struct json_elems *x, int dtype, int64_t max_bytes)
{
    *x = (struct json_elems){
        .store = dtype < 0 ? DT_BOOL : dtype_real((enum dtype)dtype),
        .infer = dtype<0, .max_bytes = max_bytes> 0 ? (size_t)max_bytes : SIZE_MAX,
    };
}

void json_elems_free(struct json_elems *x)
{
    mem_free(x->data);
    mem_free(x->kept);
    strb_free(&x->texts);
    metered_end(&x->counted);
    *x = (struct json_elems){0};
}

/* Counts the data's bytes (small amounts are not counted). */
static bool count(struct json_elems *x, size_t data)
{
    size_t bytes = data + x->cap_kept * sizeof *x->kept;
    return bytes <= METERED_LEAST || metered_set(&x->counted, (int64_t)bytes);
}

static enum err_code too_large(const struct json_elems *x, struct err *e)
{
    return err_set(e, ERR_QUOTA, "the data is larger than the %zu bytes this request may use",
                   x->max_bytes);
}

/* Room for n elements of `size` bytes. */
static enum err_code reserve(struct json_elems *x, size_t n, size_t size, struct err *e)
{
    if (n > x->max_bytes / size)
        return too_large(x, e);
    size_t cap = x->cap ? x->cap : 64;
    while (cap < n)
        cap *= 2;
    if (cap > x->max_bytes / size)
        cap = x->max_bytes / size;
    void *p = count(x, cap * size) ? mem_reallocarray(x->data, cap, size) : NULL;
    if (!p)
        return err_oom(e);
    x->data = p;
    x->cap = cap;
    return ERR_OK;
}

static inline enum err_code grow(struct json_elems *x, struct err *e)
{
    if (x->n < x->cap)
        return ERR_OK;
    return reserve(x, x->n + 1, dtype_size(x->store), e);
}

static enum err_code keep_text(struct json_elems *x, size_t index, const char *p, size_t n,
                               struct err *e)
{
    if (x->texts.len + n > x->max_bytes) /* kept texts count too: a number may be a long one */
        return too_large(x, e);
    if (x->n_kept == x->cap_kept) {
        size_t cap = x->cap_kept ? 2 * x->cap_kept : 16;
        void *q = mem_reallocarray(x->kept, cap, sizeof *x->kept);
        if (!q)
            return err_oom(e);
        x->kept = q;
        x->cap_kept = cap;
        if (!count(x, x->cap * dtype_size(x->store)))
            return err_oom(e);
    }
    x->kept[x->n_kept] = (struct json_elem_text){.index = index, .pos = x->texts.len, .len = n};
    strb_addn(&x->texts, p, n);
    if (x->texts.failed)
        return err_oom(e);
    x->n_kept++;
    return ERR_OK;
}

static bool has_fraction(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '.' || (p[i] | 0x20) == 'e')
            return true;
    return false;
}

static enum err_code out_of_range(enum dtype t, const char *p, size_t n, struct err *e)
{
    return err_set(e, ERR_LITERAL_RANGE, "%.*s%s does not fit %s", (int)(n > 60 ? 60 : n), p,
                   n > 60 ? "…" : "", dtype_name(t));
}

/* Whether i fits the integer type (or bool); stores it at p. */
static bool store_integer(enum dtype t, __int128 i, void *p)
{
    static const struct {
        int bits;
        bool is_signed;
    } types[] = {
        [DT_BOOL] = {1, false}, [DT_I8] = {8, true},    [DT_I16] = {16, true},
        [DT_I32] = {32, true},  [DT_I64] = {64, true},  [DT_U8] = {8, false},
        [DT_U16] = {16, false}, [DT_U32] = {32, false}, [DT_U64] = {64, false},
    };
    __int128 top = (__int128)1 << (types[t].bits - types[t].is_signed);
    if (i >= top || i < (types[t].is_signed ? -top : 0))
        return false;
    uint64_t v = (uint64_t)i;
    memcpy(p, &v, dtype_size(t)); /* little-endian: the low bytes come first */
    return true;
}

/* v, exact or rounded to odd, as a float type. */
static void store_float(enum dtype t, double v, void *p)
{
    float f = (float)v;
    uint16_t h = t == DT_F16 ? numtext_round_f16(v) : t == DT_BF16 ? numtext_round_bf16(v) : 0;
    switch (t) {
    case DT_F64:
        memcpy(p, &v, sizeof v);
        break;
    case DT_F32:
        memcpy(p, &f, sizeof f);
        break;
    default:
        memcpy(p, &h, sizeof h);
    }
}

/* An infinity must be written as one. */
static enum err_code require_finite(double v, const char *p, size_t n, struct err *e)
{
    if (!isinf(v))
        return ERR_OK;
    return err_set(
        e, ERR_LITERAL_RANGE,
        "%.*s%s is too large for float64; write an infinity as \"Infinity\" or \"-Infinity\"",
        (int)(n > 60 ? 60 : n), p, n > 60 ? "…" : "");
}

/* A number's text as a value of type t at `p`. */
static enum err_code store_text(enum dtype t, const char *text, size_t n, void *p, struct err *e)
{
    if (dtype_is_real_float(t)) {
        double v = t == DT_F64 ? numtext_parse_f64(text, n) : numtext_parse_odd(text, n);
        store_float(t, v, p);
        return fabs(v) < DBL_MAX ? ERR_OK : require_finite(numtext_parse_f64(text, n), text, n, e);
    }
    __int128 i = 0;
    if (has_fraction(text, n)) {
        double d = numtext_parse_odd(text, n); /* 2.0 and 1e3 count as integers */
        if (d != trunc(d) || fabs(d) > 0x1p53)
            return out_of_range(t, text, n, e);
        i = (__int128)d;
    } else if (!numtext_parse_int(text, n, &i)) {
        return out_of_range(t, text, n, e);
    }
    return store_integer(t, i, p) ? ERR_OK : out_of_range(t, text, n, e);
}

/* ---- widening while the dtype is not known ---- */

static enum err_code widen_bools(struct json_elems *x, enum dtype to, struct err *e)
{
    if (x->n > 0) { /* `cap` counts elements of the old size: allocate anew */
        TRY(reserve(x, x->n, sizeof(int64_t), e));
    } else {
        x->cap = 0;
    }
    const uint8_t *from = x->data;
    for (size_t i = x->n; i-- > 0;) {
        int64_t v = from[i];
        double d = (double)v;
        memcpy((char *)x->data + 8 * i, to == DT_F64 ? (void *)&d : (void *)&v, 8);
    }
    x->store = to;
    return ERR_OK;
}

static enum err_code widen_to_float(struct json_elems *x, struct err *e)
{
    if (x->store == DT_F64)
        return ERR_OK;
    if (x->store == DT_BOOL)
        return widen_bools(x, DT_F64, e);
    int64_t *ints = x->data;
    size_t zeros = x->n_kept; /* so far only "-0" was kept */
    for (size_t i = 0; i < x->n; i++) {
        bool is_signed = x->store == DT_I64;
        double d = is_signed ? (double)ints[i] : (double)(uint64_t)ints[i];
        if (fabs(d) >= 0x1p53) {
            char text[NUMTEXT_MAX];
            size_t n =
                is_signed ? numtext_i64(ints[i], text) : numtext_u64((uint64_t)ints[i], text);
            TRY(keep_text(x, i, text, n, e));
        }
    }
    for (size_t i = 0; i < x->n; i++) {
        double d = x->store == DT_I64 ? (double)ints[i] : (double)(uint64_t)ints[i];
        memcpy(&ints[i], &d, sizeof d);
    }
    for (size_t k = 0; k < zeros; k++)
        ((double *)x->data)[x->kept[k].index] = -0.0;
    if (zeros)
        memmove(x->kept, x->kept + zeros, (x->n_kept - zeros) * sizeof *x->kept);
    x->n_kept -= zeros;
    x->store = DT_F64;
    return ERR_OK;
}

static enum err_code append(struct json_elems *x, const void *v, struct err *e)
{
    TRY(grow(x, e));
    size_t size = dtype_size(x->store);
    memcpy((char *)x->data + x->n++ * size, v, size);
    x->any = true;
    return ERR_OK;
}

static enum err_code infer_float(struct json_elems *x, const char *p, size_t n, struct err *e)
{
    TRY(widen_to_float(x, e));
    double d = numtext_parse_f64(p, n);
    TRY(require_finite(d, p, n, e));
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    bool landmark = (bits & ((1u << 28) - 1)) == 0 || (fabs(d) < 0x1p53 && d == trunc(d));
    bool rounded = landmark && numtext_parse_odd(p, n) != d;
    if (rounded || (fabs(d) >= 0x1p53 && fabs(d) <= 0x1p64))
        TRY(keep_text(x, x->n, p, n, e));
    return append(x, &d, e);
}

static enum err_code infer_number(struct json_elems *x, const char *p, size_t n, struct err *e)
{
    __int128 i = 0;
    if (has_fraction(p, n)) {
        x->fractions = true;
        return infer_float(x, p, n, e);
    }
    bool fits = numtext_parse_int(p, n, &i) && i >= INT64_MIN && i <= UINT64_MAX;
    bool whole = fits && x->store != DT_F64;
    x->negative |= p[0] == '-' && i != 0;
    if (fits && x->store == DT_BOOL)
        TRY(widen_bools(x, DT_I64, e));
    if (whole && i > INT64_MAX && !x->negative)
        x->store = DT_U64; /* all values so far are non-negative: the same bits */
    if (whole && (x->store == DT_U64 ? i >= 0 : i <= INT64_MAX)) {
        uint64_t v = (uint64_t)i;
        if (i == 0 && p[0] == '-')
            TRY(keep_text(x, x->n, p, n, e));
        return append(x, &v, e);
    }
    if (!x->too_big && (!fits || i > INT64_MAX || x->store == DT_U64)) {
        x->too_big = true;
        x->too_big_at = x->n;
    }
    return infer_float(x, p, n, e);
}

enum err_code json_elems_number(struct json_elems *x, const char *p, size_t n, struct err *e)
{
    if (x->infer)
        return infer_number(x, p, n, e);
    TRY(grow(x, e));
    enum err_code code =
        store_text(x->store, p, n, (char *)x->data + x->n * dtype_size(x->store), e);
    x->n += code == ERR_OK;
    return code;
}

enum err_code json_elems_bool(struct json_elems *x, bool v, struct err *e)
{
    if (x->infer && x->store != DT_BOOL) {
        char digit = v ? '1' : '0';
        return x->store == DT_F64 ? infer_float(x, &digit, 1, e) : infer_number(x, &digit, 1, e);
    }
    union value out = {0};
    if (dtype_is_real_float(x->store))
        store_float(x->store, v, &out);
    else if (!store_integer(x->store, v, &out))
        return ERR_INTERNAL;
    return append(x, &out, e);
}

enum err_code json_elems_special(struct json_elems *x, double v, struct err *e)
{
    if (x->infer) {
        x->fractions = true;
        TRY(widen_to_float(x, e));
    } else if (!dtype_is_real_float(x->store)) {
        return err_set(e, ERR_LITERAL_RANGE, "%s does not fit %s", isnan(v) ? "NaN" : "an infinity",
                       dtype_name(x->store));
    }
    union value out = {0};
    store_float(x->store, v, &out);
    return append(x, &out, e);
}

/* ---- conversion at the end ---- */

/* Element i of the values read without a dtype, as type t at p. */
static enum err_code convert_one(const struct json_elems *x, size_t i, enum dtype t, void *p,
                                 struct err *e)
{
    char text[NUMTEXT_MAX];
    if (x->store == DT_F64) {
        double d = ((const double *)x->data)[i];
        if (dtype_is_real_float(t)) {
            store_float(t, d, p);
            return ERR_OK;
        }
        if (d == trunc(d) && fabs(d) <= 0x1p53 && store_integer(t, (__int128)d, p))
            return ERR_OK;
        return out_of_range(t, text, numtext_f64(d, text), e);
    }
    __int128 v = x->store == DT_BOOL  ? ((const uint8_t *)x->data)[i]
                 : x->store == DT_I64 ? ((const int64_t *)x->data)[i]
                                      : (__int128)((const uint64_t *)x->data)[i];
    size_t n = v < 0 ? numtext_i64((int64_t)v, text) : numtext_u64((uint64_t)v, text);
    if (dtype_is_real_float(t))
        return store_text(t, text, n, p, e);
    return store_integer(t, v, p) ? ERR_OK : out_of_range(t, text, n, e);
}

static enum err_code fix_kept(struct json_elems *x, enum dtype t, unsigned char *out,
                              size_t *ret_at, struct err *e)
{
    for (size_t k = 0; k < x->n_kept; k++) {
        const struct json_elem_text *s = &x->kept[k];
        *ret_at = s->index;
        enum err_code code =
            store_text(t, x->texts.data + s->pos, s->len, out + s->index * dtype_size(t), e);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

enum err_code json_elems_convert(struct json_elems *x, int dtype, size_t *ret_at, struct err *e)
{
    if (!x->infer)
        return ERR_OK;
    if (dtype < 0 && x->too_big && !x->fractions) {
        *ret_at = x->too_big_at;
        return err_set(e, ERR_LITERAL_RANGE,
                       "neither int64 nor uint64 can hold this integer together with the others; "
                       "\"dtype\":\"float64\" accepts them rounded");
    }
    enum dtype t = dtype >= 0 ? (enum dtype)dtype : x->any ? x->store : DT_F64;
    if (t == x->store)
        return ERR_OK;
    size_t size = dtype_size(t);
    if (x->n > x->max_bytes / size)
        return too_large(x, e);
    bool counts = count(x, x->cap * dtype_size(x->store) + x->n * size);
    unsigned char *out = counts ? mem_reallocarray(NULL, x->n, size) : NULL;
    if (!out)
        return err_oom(e);
    enum err_code code = ERR_OK;
    size_t next_kept = 0;
    for (size_t i = 0; i < x->n && code == ERR_OK; i++) {
        while (next_kept < x->n_kept && x->kept[next_kept].index < i)
            next_kept++;
        if (next_kept < x->n_kept && x->kept[next_kept].index == i)
            continue;
        *ret_at = i;
        code = convert_one(x, i, t, out + i * size, e);
    }
    if (code == ERR_OK)
        code = fix_kept(x, t, out, ret_at, e);
    if (code != ERR_OK) {
        mem_free(out);
        return code;
    }
    mem_free(x->data);
    x->data = out;
    x->cap = x->n;
    x->store = t;
    x->infer = false;
    return ERR_OK;
}
