/* A push parser: the state between two calls is a small struct, a token cut in two by the end of a
 * chunk waits in `carry`. Numbers are parsed in place in the chunk, which is what makes it fast.
 *
 * Shape: the first list closed at a level fixes the extent of its axis, the first scalar (or empty
 * list) fixes the rank; everything after must agree. count[] holds the number of elements so far of
 * each open list, and so is also the path to the current one. Complex numbers are one more axis of
 * extent 2 that is taken off at the end. */
#include "protocol/json/json_array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "protocol/json/json_elems.h"
#include "protocol/json/json_lex.h"

#define MAX_LEVELS (MAX_RANK + 1) /* complex numbers take one more */
#define TOKEN_MAX  65536

enum state {
    WANT_VALUE,          /* at the start, after a comma */
    WANT_VALUE_OR_CLOSE, /* after an opening bracket */
    WANT_SEPARATOR,      /* after a value */
    COMPLETE
};

enum carried { CARRY_NOTHING, CARRY_NUMBER, CARRY_STRING, CARRY_WORD };

struct json_array {
    struct json_elems elems;
    int dtype; /* the caller's, or -1 */
    enum state state;
    enum carried carried;
    bool escaped; /* in a carried string, after a backslash */
    struct strb carry;
    uint64_t position;                             /* of the chunk's first byte */
    int level, rank;                               /* lists open; -1 until known */
    int64_t count[MAX_LEVELS], extent[MAX_LEVELS]; /* extent -1: not known */
};

struct json_array *json_array_new(int dtype, int64_t max_bytes)
{
    struct json_array *r = mem_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->dtype = dtype;
    r->rank = -1;
    for (int l = 0; l < MAX_LEVELS; l++)
        r->extent[l] = -1;
    json_elems_init(&r->elems, dtype, max_bytes);
    return r;
}

void json_array_free(struct json_array *r)
{
    if (!r)
        return;
    json_elems_free(&r->elems);
    strb_free(&r->carry);
    mem_free(r);
}

void json_array_start_at(struct json_array *r, uint64_t position)
{
    r->position = position;
}

/* Puts the pointer of the value being read into e. */
static enum err_code placed(const struct json_array *r, int levels, struct err *e)
{
    char at[sizeof e->pointer] = "";
    size_t n = 0;
    for (int l = 0; l < levels && n + 22 < sizeof at; l++)
        n += (size_t)snprintf(at + n, sizeof at - n, "/%lld", (long long)r->count[l]);
    return err_prefix(e, at);
}

static enum err_code malformed(const struct json_array *r, size_t at, const char *why,
                               struct err *e)
{
    return err_set(e, ERR_BAD_JSON, "malformed JSON at byte %llu: %s",
                   (unsigned long long)(r->position + at), why);
}

static enum err_code ragged(const struct json_array *r, const char *why, struct err *e)
{
    err_set(e, ERR_BAD_SHAPE, "the lists do not form a rectangular array: %s", why);
    if (e)
        placed(r, r->level, e);
    return ERR_BAD_SHAPE;
}

/* After a complete value: counts it in its list. */
static enum err_code finish_value(struct json_array *r, struct err *e)
{
    if (r->level == 0) {
        r->state = COMPLETE;
        return ERR_OK;
    }
    int64_t *count = &r->count[r->level - 1], extent = r->extent[r->level - 1];
    if (extent >= 0 && *count >= extent)
        return ragged(r, "this list is longer than the ones before it", e);
    ++*count;
    r->state = WANT_SEPARATOR;
    return ERR_OK;
}

/* Checks that a scalar may stand here. */
static enum err_code at_scalar(struct json_array *r, struct err *e)
{
    if (r->rank < 0)
        r->rank = r->level;
    if (r->level != r->rank)
        return ragged(r, "a list was expected here, not a number", e);
    return ERR_OK;
}

/* Ends a scalar: adds the place to its error, or counts it. */
static enum err_code after_scalar(struct json_array *r, enum err_code code, struct err *e)
{
    if (code == ERR_OK)
        return finish_value(r, e);
    if (e && code != ERR_OUT_OF_MEMORY && code != ERR_QUOTA)
        placed(r, r->level, e);
    return code;
}

static enum err_code open_list(struct json_array *r, struct err *e)
{
    if (r->level == MAX_LEVELS) {
        err_set(e, ERR_BAD_SHAPE, "the lists nest deeper than %d axes", MAX_RANK);
        if (e)
            placed(r, r->level, e);
        return ERR_BAD_SHAPE;
    }
    if (r->rank >= 0 && r->level >= r->rank)
        return ragged(r, "a number was expected here, not a list", e);
    r->count[r->level++] = 0;
    r->state = WANT_VALUE_OR_CLOSE;
    return ERR_OK;
}

static enum err_code close_list(struct json_array *r, struct err *e)
{
    int l = --r->level;
    int64_t n = r->count[l];
    if (n == 0 && r->rank < 0)
        r->rank = l + 1;
    if (r->extent[l] >= 0 && n != r->extent[l])
        return ragged(r, "this list is shorter than the ones before it", e);
    if (r->dtype >= 0 && dtype_is_complex((enum dtype)r->dtype) && l + 1 == r->rank && n != 0 &&
        n != 2)
        return ragged(r, "complex numbers are pairs [re, im]", e);
    r->extent[l] = n;
    return finish_value(r, e);
}

/* ---- scalars ---- */

static enum err_code number(struct json_array *r, const char *p, size_t n, struct err *e)
{
    TRY(at_scalar(r, e));
    return after_scalar(r, json_elems_number(&r->elems, p, n, e), e);
}

static enum err_code word(struct json_array *r, size_t at, struct err *e)
{
    const char *p = r->carry.data;
    size_t n = r->carry.len;
    bool yes = n == 4 && memcmp(p, "true", 4) == 0, no = n == 5 && memcmp(p, "false", 5) == 0;
    if (!yes && !no) {
        if (n != 4 || memcmp(p, "null", 4) != 0)
            return malformed(r, at, "a value was expected", e);
        return after_scalar(
            r, err_set(e, ERR_BAD_FIELD, "null is not a number; write \"NaN\" for a missing one"),
            e);
    }
    enum err_code code = at_scalar(r, e);
    return code ? code : after_scalar(r, json_elems_bool(&r->elems, yes, e), e);
}

/* carry holds the text between the quotes, then the closing quote. */
static enum err_code string(struct json_array *r, size_t at, struct err *e)
{
    size_t used, len;
    const char *why;
    enum json_lex l = json_lex_string(r->carry.data, r->carry.len, &used, &len, &why);
    if (l == JSON_LEX_MALFORMED)
        return malformed(r, at, why, e);
    const char *s = r->carry.data;
    double v = NAN;
    bool known = l == JSON_LEX_OK && strcmp(s, "NaN") == 0;
    if (!known && l == JSON_LEX_OK && (strcmp(s, "Infinity") == 0 || strcmp(s, "-Infinity") == 0)) {
        v = *s == '-' ? -INFINITY : INFINITY;
        known = true;
    }
    if (!known)
        return after_scalar(r,
                            err_set(e, ERR_BAD_FIELD,
                                    "the only strings allowed among numbers are \"NaN\", "
                                    "\"Infinity\" and \"-Infinity\""),
                            e);
    enum err_code code = at_scalar(r, e);
    return code ? code : after_scalar(r, json_elems_special(&r->elems, v, e), e);
}

/* ---- chunks ---- */

static bool number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static enum err_code carry(struct json_array *r, enum carried kind, const char *p, size_t n,
                           struct err *e)
{
    if (r->carry.len + n > TOKEN_MAX)
        return err_set(e, ERR_TOO_LARGE, "this number or string has more than %d bytes", TOKEN_MAX);
    r->carried = kind;
    strb_addn(&r->carry, p, n);
    return r->carry.failed ? err_oom(e) : ERR_OK;
}

/* Continues a carried token with as much of it as p has. */
static enum err_code resume(struct json_array *r, const char *p, size_t n, size_t at,
                            size_t *ret_used, struct err *e)
{
    size_t i = 0, bad, len;
    const char *why;
    bool ended = false;
    while (i < n && !ended) {
        switch (r->carried) {
        case CARRY_NUMBER:
            ended = !number_byte(p[i]);
            break;
        case CARRY_STRING:
            ended = !r->escaped && p[i] == '"';
            r->escaped = !r->escaped && p[i] == '\\';
            break;
        default:
            ended = p[i] < 'a' || p[i] > 'z';
        }
        i += !ended || r->carried == CARRY_STRING;
    }
    enum err_code code = carry(r, r->carried, p, i, e);
    *ret_used = i;
    if (code || !ended)
        return code;
    enum carried kind = r->carried;
    r->carried = CARRY_NOTHING;
    if (kind == CARRY_NUMBER) {
        len = json_lex_number(r->carry.data, r->carry.len, &bad, &why);
        if (len != r->carry.len)
            return malformed(r, at + i, len ? "malformed number" : why, e);
        code = number(r, r->carry.data, len, e);
    } else if (kind == CARRY_STRING) {
        code = string(r, at + i, e);
    } else {
        code = word(r, at + i, e);
    }
    strb_reset(&r->carry);
    return code;
}

/* A value or a closing bracket at p. */
static enum err_code value(struct json_array *r, const char *p, size_t n, size_t at,
                           size_t *ret_used, struct err *e)
{
    char c = *p;
    *ret_used = 1;
    if (c == '-' || (c >= '0' && c <= '9')) {
        size_t bad = 0, len;
        const char *why;
        len = json_lex_number(p, n, &bad, &why);
        if (len == n || (len == 0 && bad == n)) { /* it may continue in the next chunk */
            *ret_used = n;
            return carry(r, CARRY_NUMBER, p, n, e);
        }
        if (len == 0)
            return malformed(r, at + bad, why, e);
        if (number_byte(p[len]))
            return malformed(r, at + len, "malformed number", e);
        *ret_used = len;
        return number(r, p, len, e);
    }
    if (c == '[')
        return open_list(r, e);
    if (c == ']' && r->state == WANT_VALUE_OR_CLOSE)
        return close_list(r, e);
    if (c == '"') {
        r->escaped = false;
        return carry(r, CARRY_STRING, p, 0, e);
    }
    if (c == 't' || c == 'f' || c == 'n')
        return carry(r, CARRY_WORD, p, 1, e);
    if (c == '{') {
        err_set(e, ERR_BAD_FIELD, "array data consists of lists and numbers, not objects");
        if (e)
            placed(r, r->level, e);
        return ERR_BAD_FIELD;
    }
    return malformed(r, at, "a value was expected", e);
}

enum err_code json_array_feed(struct json_array *r, const char *p, size_t n, size_t *ret_used,
                              bool *ret_done, struct err *e)
{
    size_t i = 0, used;
    enum err_code code = ERR_OK;
    while (i < n && r->state != COMPLETE && code == ERR_OK) {
        if (r->carried) {
            code = resume(r, p + i, n - i, i, &used, e);
            i += used;
            continue;
        }
        char c = p[i];
        if (json_lex_space(c)) {
            i++;
        } else if (r->state != WANT_SEPARATOR) {
            code = value(r, p + i, n - i, i, &used, e);
            i += used;
        } else if (c == ',') {
            r->state = WANT_VALUE;
            i++;
        } else if (c == ']') {
            code = close_list(r, e);
            i++;
        } else {
            code = malformed(r, i, "',' or ']' was expected", e);
        }
    }
    r->position += i;
    *ret_used = i;
    *ret_done = r->state == COMPLETE;
    return code;
}

enum err_code json_array_feed_all(struct json_array *r, const char *p, size_t n, struct err *e)
{
    size_t i = 0;
    bool done;
    TRY(json_array_feed(r, p, n, &i, &done, e));
    for (size_t k = i; k < n; k++)
        if (!json_lex_space(p[k]))
            return malformed(r, k - i, "there is text after the value", e);
    r->position += n - i;
    return ERR_OK;
}

enum err_code json_array_finish(struct json_array *r, struct err *e)
{
    if (r->carried == CARRY_NUMBER || r->carried == CARRY_WORD) {
        size_t used;
        TRY(resume(r, " ", 1, 0, &used, e));
    }
    if (r->state != COMPLETE)
        return malformed(r, 0, "the text ends too early", e);
    return ERR_OK;
}

/* ---- the result ---- */

/* The pointer of element number `at` of the finished array. */
static enum err_code placed_element(const struct json_array *r, size_t at, struct err *e)
{
    struct json_array path = *r;
    for (int l = r->rank - 1; l >= 0; l--) {
        path.count[l] = (int64_t)(at % (size_t)r->extent[l]);
        at /= (size_t)r->extent[l];
    }
    return placed(&path, r->rank, e);
}

enum err_code json_array_take(struct json_array *r, int dtype, struct json_array_data *ret,
                              struct err *e)
{
    bool complex = dtype >= 0 && dtype_is_complex((enum dtype)dtype);
    int part = dtype < 0 ? -1 : (int)dtype_real((enum dtype)dtype);
    size_t at = 0;
    if (r->dtype >= 0) {
        complex = dtype_is_complex((enum dtype)r->dtype);
        part = (int)r->elems.store;
    }
    struct json_array_data out = {.rank = r->rank};
    if (complex && r->elems.n > 0) {
        if (r->rank == 0 || r->extent[r->rank - 1] != 2)
            return err_set(e, ERR_BAD_SHAPE,
                           "complex numbers are pairs [re, im], so the innermost lists must have "
                           "two numbers each");
        out.rank--;
    }
    if (out.rank > MAX_RANK)
        return err_set(e, ERR_BAD_SHAPE, "the lists nest deeper than %d axes", MAX_RANK);
    enum err_code code = json_elems_convert(&r->elems, part, &at, e);
    if (code != ERR_OK) {
        if (e && code == ERR_LITERAL_RANGE)
            placed_element(r, at, e);
        return code;
    }
    if (!r->elems.data) { /* no elements: the receiver still expects memory to release */
        r->elems.data = mem_alloc(1);
        if (!r->elems.data)
            return err_oom(e);
    }
    out.dtype = r->elems.store;
    if (complex)
        out.dtype = r->elems.store == DT_F32 ? DT_C64 : DT_C128;
    if (r->dtype < 0 && dtype < 0 && r->elems.n == 0)
        out.dtype = DT_F64;
    out.size = (int64_t)r->elems.n / (complex ? 2 : 1);
    memcpy(out.shape, r->extent, sizeof *out.shape * (size_t)out.rank);
    out.data = r->elems.data;
    r->elems.data = NULL;
    r->elems.n = r->elems.cap = 0;
    *ret = out;
    return ERR_OK;
}
