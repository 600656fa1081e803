/* The getters of the document. Every getter treats an absent value like one of the wrong kind, so
 * that a handler may chain lookups and check one error. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/json/json.h"
#include "protocol/json/json_doc.h"
#include "protocol/number/numtext.h"

#define EXACT_MAX ((__int128)1 << 53)

static const struct json_node *node_of(struct json v)
{
    return v.doc ? &v.doc->nodes[v.node] : NULL;
}

enum json_kind json_kind(struct json v)
{
    return v.doc ? (enum json_kind)v.doc->nodes[v.node].kind : JSON_ABSENT;
}

bool json_present(struct json v)
{
    return v.doc != NULL;
}

bool json_given(struct json v)
{
    return v.doc && json_kind(v) != JSON_NULL;
}

size_t json_count(struct json v)
{
    enum json_kind k = json_kind(v);
    return k == JSON_LIST || k == JSON_OBJECT ? node_of(v)->len : 0;
}

struct json json_first(struct json v)
{
    if (json_count(v) == 0)
        return (struct json){0};
    return (struct json){v.doc, v.node + (json_kind(v) == JSON_OBJECT ? 2 : 1)};
}

struct json json_next(struct json v)
{
    const struct json_node *n = node_of(v);
    if (!n || n->flags & JSON_IS_LAST)
        return (struct json){0};
    return (struct json){v.doc, n->next + (n->flags & JSON_IS_MEMBER ? 1 : 0)};
}

const char *json_key(struct json v)
{
    const struct json_node *n = node_of(v);
    return n && n->flags & JSON_IS_MEMBER ? v.doc->text + v.doc->nodes[v.node - 1].pos : NULL;
}

struct json json_member(struct json v, const char *name)
{
    if (json_kind(v) != JSON_OBJECT)
        return (struct json){0};
    struct json c = json_first(v);
    while (json_present(c) && strcmp(json_key(c), name) != 0)
        c = json_next(c);
    return c;
}

const char *json_text(struct json v, size_t *ret_len)
{
    enum json_kind k = json_kind(v);
    if (k != JSON_STRING && k != JSON_NUMBER)
        return NULL;
    if (ret_len)
        *ret_len = node_of(v)->len;
    return v.doc->text + node_of(v)->pos;
}

bool json_equals(struct json v, const char *s)
{
    return json_kind(v) == JSON_STRING && strcmp(json_text(v, NULL), s) == 0;
}

__attribute__((format(printf, 5, 0))) static enum err_code verr(struct json v, const char *name,
                                                                struct err *e, enum err_code code,
                                                                const char *fmt, va_list ap)
{
    char at[JSON_POINTER_MAX] = "", text[sizeof e->message];
    if (!e) /* nobody asks where: that would be looked for */
        return code;
    if (v.doc)
        json_pointer(v.doc, v.node, at);
    if (name)
        json_pointer_add(at, name, strlen(name));
    vsnprintf(text, sizeof text, fmt, ap);
    return err_field(e, code, at, "%s", text);
}

enum err_code json_err(struct json v, struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    verr(v, NULL, e, code, fmt, ap);
    va_end(ap);
    return code;
}

enum err_code json_err_member(struct json v, const char *name, struct err *e, enum err_code code,
                              const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    verr(v, name, e, code, fmt, ap);
    va_end(ap);
    return code;
}

static enum err_code wrong_kind(struct json v, struct err *e, const char *wanted)
{
    static const char *const names[] = {
        [JSON_ABSENT] = "missing",   [JSON_NULL] = "null",       [JSON_BOOL] = "true or false",
        [JSON_NUMBER] = "a number",  [JSON_STRING] = "a string", [JSON_LIST] = "a list",
        [JSON_OBJECT] = "an object",
    };
    return json_err(v, e, ERR_BAD_FIELD, "%s was expected here, but this is %s", wanted,
                    names[json_kind(v)]);
}

static enum err_code unknown_member(struct json c, const char *const *allowed, size_t n,
                                    struct err *e)
{
    char all[600] = "";
    for (size_t i = 0, len = 0; i < n && len < sizeof all; i++)
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s",
                                i ? ", " : "; the members are ", allowed[i]);
    return json_err(c, e, ERR_UNKNOWN_FIELD, "unknown member \"%.100s\"%s", json_key(c),
                    n ? all : "; no members are allowed here");
}

enum err_code json_check_members(struct json v, const char *const *allowed, size_t n, struct err *e)
{
    if (json_kind(v) != JSON_OBJECT)
        return wrong_kind(v, e, "an object");
    for (struct json c = json_first(v); json_present(c); c = json_next(c)) {
        size_t k = 0;
        while (k < n && strcmp(allowed[k], json_key(c)) != 0)
            k++;
        if (k == n)
            return unknown_member(c, allowed, n, e);
    }
    return ERR_OK;
}

enum err_code json_require(struct json v, const char *name, struct json *ret, struct err *e)
{
    if (json_kind(v) != JSON_OBJECT)
        return wrong_kind(v, e, "an object");
    struct json m = json_member(v, name);
    if (!json_present(m))
        return json_err_member(v, name, e, ERR_BAD_FIELD, "the member \"%s\" is required", name);
    *ret = m;
    return ERR_OK;
}

enum err_code json_get_string(struct json v, const char **ret, size_t *ret_len, struct err *e)
{
    if (json_kind(v) != JSON_STRING)
        return wrong_kind(v, e, "a string");
    *ret = json_text(v, ret_len);
    return ERR_OK;
}

enum err_code json_get_bool(struct json v, bool *ret, struct err *e)
{
    if (json_kind(v) != JSON_BOOL)
        return wrong_kind(v, e, "true or false");
    *ret = node_of(v)->len != 0;
    return ERR_OK;
}

static bool integer_text(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '.' || p[i] == 'e' || p[i] == 'E')
            return false;
    return true;
}

/* A string that is an integer: "-12". */
static bool quoted_integer(const char *p, size_t n)
{
    size_t i = n > 0 && p[0] == '-';
    if (i == n)
        return false;
    for (; i < n; i++)
        if (p[i] < '0' || p[i] > '9')
            return false;
    return true;
}

static bool beyond_exact(__int128 i)
{
    return i > EXACT_MAX || i < -EXACT_MAX;
}

static enum err_code inexact(struct json v, struct err *e)
{
    size_t n;
    const char *p = json_text(v, &n);
    return json_err(
        v, e, ERR_INEXACT_NUMBER,
        "%.*s is beyond ±2^53, where some JSON readers round; write it as a string: \"%.*s\"",
        (int)(n > 60 ? 60 : n), p, (int)(n > 60 ? 60 : n), p);
}

/* An integer within ±2^127 from a number, or, beyond ±2^53, from a string. */
static enum err_code get_integer(struct json v, __int128 *ret, struct err *e)
{
    enum json_kind kind = json_kind(v);
    size_t n = 0;
    const char *p = json_text(v, &n);
    if (kind == JSON_STRING && quoted_integer(p, n) && numtext_parse_int(p, n, ret) &&
        beyond_exact(*ret))
        return ERR_OK;
    if (kind != JSON_NUMBER)
        return wrong_kind(v, e, "an integer");
    if (integer_text(p, n)) {
        if (!numtext_parse_int(p, n, ret) || beyond_exact(*ret))
            return inexact(v, e);
        return ERR_OK;
    }
    double d = numtext_parse_f64(p, n);
    if (d != trunc(d))
        return json_err(v, e, ERR_BAD_FIELD,
                        "an integer was expected here, but this has a fraction");
    if (fabs(d) > 0x1p53)
        return inexact(v, e);
    *ret = (__int128)d;
    return ERR_OK;
}

enum err_code json_get_i64(struct json v, int64_t lo, int64_t hi, int64_t *ret, struct err *e)
{
    __int128 i;
    enum err_code code = get_integer(v, &i, e);
    /* where no integer as large is allowed, another way to write it leads nowhere */
    const bool told = code == ERR_INEXACT_NUMBER && !beyond_exact(lo) && !beyond_exact(hi);
    if (code != ERR_OK && !told)
        return code;
    if (told || i < lo || i > hi) {
        code = told ? code : ERR_BAD_FIELD;
        if (hi == INT64_MAX)
            return json_err(v, e, code, "an integer of at least %lld was expected here",
                            (long long)lo);
        return json_err(v, e, code, "an integer from %lld to %lld was expected here", (long long)lo,
                        (long long)hi);
    }
    *ret = (int64_t)i;
    return ERR_OK;
}

enum err_code json_get_u64(struct json v, uint64_t *ret, struct err *e)
{
    __int128 i;
    TRY(get_integer(v, &i, e));
    if (i < 0 || i > UINT64_MAX)
        return json_err(v, e, ERR_BAD_FIELD, "an integer from 0 to 2^64-1 was expected here");
    *ret = (uint64_t)i;
    return ERR_OK;
}

static bool special(struct json v, double *ret)
{
    if (json_equals(v, "NaN"))
        *ret = NAN;
    else if (json_equals(v, "Infinity"))
        *ret = INFINITY;
    else if (json_equals(v, "-Infinity"))
        *ret = -INFINITY;
    else
        return false;
    return true;
}

/* A number with a point or an exponent. An infinity must be written as one. */
static enum err_code get_float(struct json v, double *ret, struct err *e)
{
    size_t n;
    const char *p = json_text(v, &n);
    double d = numtext_parse_f64(p, n);
    if (isinf(d))
        return json_err(
            v, e, ERR_LITERAL_RANGE,
            "%.*s is too large for float64; write an infinity as \"Infinity\" or \"-Infinity\"",
            (int)(n > 60 ? 60 : n), p);
    *ret = d;
    return ERR_OK;
}

enum err_code json_get_double(struct json v, double *ret, struct err *e)
{
    if (special(v, ret))
        return ERR_OK;
    if (json_kind(v) != JSON_NUMBER)
        return wrong_kind(v, e, "a number (or \"NaN\", \"Infinity\", \"-Infinity\")");
    size_t n;
    const char *p = json_text(v, &n);
    __int128 i;
    if (integer_text(p, n) && (!numtext_parse_int(p, n, &i) || beyond_exact(i)))
        return json_err(v, e, ERR_INEXACT_NUMBER,
                        "the integer %.*s is beyond ±2^53, where some JSON readers round; write it "
                        "as a float, %.*s.0",
                        (int)(n > 60 ? 60 : n), p, (int)(n > 60 ? 60 : n), p);
    return get_float(v, ret, e);
}

enum err_code json_get_literal(struct json v, struct literal *ret, struct err *e)
{
    struct literal l = {0};
    size_t n = 0;
    const char *p = json_text(v, &n);
    enum err_code code = ERR_OK;
    switch (json_kind(v)) {
    case JSON_BOOL:
        l.kind = LIT_BOOL;
        l.i = node_of(v)->len;
        break;
    case JSON_NUMBER:
        if (integer_text(p, n)) {
            l.kind = LIT_INT;
            code = get_integer(v, &l.i, e);
        } else {
            l.kind = LIT_FLOAT;
            code = get_float(v, &l.re, e);
        }
        break;
    case JSON_STRING:
        if (quoted_integer(p, n)) {
            l.kind = LIT_INT;
            if (!numtext_parse_int(p, n, &l.i))
                code = json_err(v, e, ERR_LITERAL_RANGE, "the integer is beyond 127 bits");
        } else if (special(v, &l.re)) {
            l.kind = LIT_FLOAT;
        } else {
            code = json_err(v, e, ERR_BAD_FIELD,
                            "the string is not a number: an integer, \"NaN\", \"Infinity\" or "
                            "\"-Infinity\" was expected");
        }
        break;
    case JSON_LIST:
        if (json_count(v) == 2) {
            struct json re = json_first(v);
            l.kind = LIT_COMPLEX;
            code = json_get_double(re, &l.re, e);
            if (code == ERR_OK)
                code = json_get_double(json_next(re), &l.im, e);
            break;
        } /* fall through */
    default:
        code = wrong_kind(v, e, "a number, true, false or [re, im]");
    }
    if (code == ERR_OK)
        *ret = l;
    return code;
}

enum err_code json_get_exact(struct json v, struct literal *ret, struct err *e)
{
    size_t n = 0;
    const char *p = json_text(v, &n);
    *ret = (struct literal){.kind = LIT_FLOAT};
    if (json_kind(v) == JSON_STRING)
        return json_get_double(v, &ret->re, e);
    if (json_kind(v) != JSON_NUMBER || !integer_text(p, n))
        return json_get_literal(v, ret, e);
    ret->kind = LIT_INT;
    return numtext_parse_int(p, n, &ret->i)
               ? ERR_OK
               : json_err(v, e, ERR_LITERAL_RANGE, "the integer is beyond 127 bits");
}

enum err_code json_get_i64_list(struct json v, size_t max, int64_t lo, int64_t hi, int64_t *ret,
                                size_t *ret_n, struct err *e)
{
    if (json_kind(v) != JSON_LIST)
        return wrong_kind(v, e, "a list of integers");
    if (json_count(v) > max)
        return json_err(v, e, ERR_BAD_FIELD, "the list has %zu entries; at most %zu are allowed",
                        json_count(v), max);
    size_t n = 0;
    for (struct json c = json_first(v); json_present(c); c = json_next(c)) {
        TRY(json_get_i64(c, lo, hi, &ret[n++], e));
    }
    *ret_n = n;
    return ERR_OK;
}

enum err_code json_get_shape(struct json v, int64_t lo, int *ret_rank, int64_t *ret_shape,
                             struct err *e)
{
    if (json_kind(v) != JSON_LIST)
        return json_err(v, e, ERR_BAD_SHAPE, "a shape must be a list of extents, such as [4, 5]");
    if (json_count(v) > MAX_RANK)
        return json_err(v, e, ERR_BAD_SHAPE, "the shape has %zu axes; at most %d are allowed",
                        json_count(v), MAX_RANK);
    int64_t shape[MAX_RANK];
    int rank = 0;
    for (struct json c = json_first(v); json_present(c); c = json_next(c)) {
        enum err_code code = json_get_i64(c, lo, INT64_MAX, &shape[rank++], e);
        if (code == ERR_BAD_FIELD)
            return json_err(c, e, ERR_BAD_SHAPE, "an extent must be an integer of at least %lld",
                            (long long)lo);
        if (code != ERR_OK)
            return code;
    }
    memcpy(ret_shape, shape, sizeof *shape * (size_t)rank);
    *ret_rank = rank;
    return ERR_OK;
}

enum err_code json_get_dtype(struct json v, enum dtype *ret, struct err *e)
{
    size_t n = 0;
    if (json_kind(v) != JSON_STRING)
        return json_err(v, e, ERR_BAD_DTYPE, "a dtype must be a string such as \"float32\"");
    const char *p = json_text(v, &n);
    struct err inner = ERR_INIT;
    if (dtype_read(p, n, ret, &inner) != ERR_OK)
        return json_err(v, e, ERR_BAD_DTYPE, "%s", inner.message);
    return ERR_OK;
}
