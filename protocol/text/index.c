/* One scanner for both callers: `?index=` passes a whole text, infix.c the rest of an expression
 * after '['. The scanner works on bytes; offsets are in characters, so it does not count
 * continuation bytes of UTF-8. */
#include "protocol/text/index.h"

#include <stdbool.h>
#include <string.h>

struct cursor {
    const char *text, *p, *end;
    struct err *e;
};

static long offset_of(const struct cursor *c, const char *at)
{
    long n = 0;
    for (const char *p = c->text; p < at; p++)
        n += ((unsigned char)*p & 0xC0) != 0x80;
    return n;
}

static enum err_code bad(const struct cursor *c, const char *at, const char *why)
{
    return err_at(c->e, ERR_BAD_INDEX, offset_of(c, at), "%s", why);
}

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

static bool at(const struct cursor *c, char ch)
{
    return c->p < c->end && *c->p == ch;
}

static bool word_byte(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || (unsigned char)ch >= 0x80;
}

static enum err_code integer(struct cursor *c, int64_t *ret)
{
    const char *start = c->p;
    bool minus = false;
    if (at(c, '-') || at(c, '+')) {
        minus = *c->p == '-';
        c->p++;
        skip_space(c);
    }
    if (c->p >= c->end || *c->p < '0' || *c->p > '9')
        return bad(
            c, c->p,
            "an integer was expected: an index consists of integers, slices "
            "(start:stop:step), None and ...; of computed or bound numbers: take(x, i) reads "
            "there, and x = where(index(0) == i, v, x) writes there");
    int64_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        int d = *c->p - '0';
        /* counted downwards, so that −2^63 is reached without overflow */
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_sub_overflow(v, d, &v))
            return bad(c, start, "the index is beyond 64 bits");
    }
    if (c->p < c->end && (word_byte(*c->p) || *c->p == '.'))
        return bad(c, start, "an index must be an integer");
    if (!minus && v == INT64_MIN)
        return bad(c, start, "the index is beyond 64 bits");
    *ret = minus ? v : -v;
    return ERR_OK;
}

/* An optional part of a slice: nothing, None or an integer. */
static enum err_code part(struct cursor *c, bool *ret_has, int64_t *ret)
{
    skip_space(c);
    *ret_has = false;
    if (c->p >= c->end || *c->p == ':' || *c->p == ',' || *c->p == ']')
        return ERR_OK;
    if (c->end - c->p >= 4 && memcmp(c->p, "None", 4) == 0 &&
        !(c->end - c->p > 4 && word_byte(c->p[4]))) {
        c->p += 4;
    } else {
        TRY(integer(c, ret));
        *ret_has = true;
    }
    skip_space(c);
    return ERR_OK;
}

static enum err_code item(struct cursor *c, struct index_item *ret)
{
    struct index_item it = {.kind = INDEX_INT};
    const char *start = c->p;
    if (c->end - c->p >= 3 && memcmp(c->p, "...", 3) == 0) {
        c->p += 3;
        it.kind = INDEX_ELLIPSIS;
        *ret = it;
        return ERR_OK;
    }
    TRY(part(c, &it.has_start, &it.start));
    if (!at(c, ':')) {
        it.kind = it.has_start ? INDEX_INT : INDEX_NEWAXIS;
        if (!it.has_start && c->p == start)
            return bad(c, c->p, "an index is missing here");
        *ret = it;
        return ERR_OK;
    }
    it.kind = INDEX_SLICE;
    c->p++;
    TRY(part(c, &it.has_stop, &it.stop));
    if (at(c, ':')) {
        c->p++;
        TRY(part(c, &it.has_step, &it.step));
    }
    if (it.has_step && it.step == 0)
        return bad(c, start, "the step of a slice must not be 0");
    *ret = it;
    return ERR_OK;
}

/* Items up to the end or a ']'. */
static enum err_code items(struct cursor *c, struct index_spec *ret)
{
    ret->n = 0;
    for (;;) {
        skip_space(c);
        const char *start = c->p;
        if (ret->n >= INDEX_MAX_ITEMS)
            return bad(c, start, "too many indices");
        TRY(item(c, &ret->items[ret->n]));
        ret->n++;
        skip_space(c);
        if (c->p >= c->end || *c->p == ']')
            return ERR_OK;
        if (*c->p != ',')
            return bad(c, c->p,
                       "',' was expected: an index consists of integers, slices (start:stop:step), "
                       "None and ...");
        c->p++;
        skip_space(c);
        if (c->p >= c->end || *c->p == ']') /* a trailing comma */
            return ERR_OK;
    }
}

enum err_code index_parse(const char *text, size_t n, struct index_spec *ret, struct err *e)
{
    struct cursor c = {.text = text, .p = text, .end = text + n, .e = e};
    struct index_spec spec = {0};
    skip_space(&c);
    if (c.p < c.end) {
        TRY(items(&c, &spec));
        if (c.p < c.end)
            return bad(&c, c.p, "brackets are not allowed in an index");
    }
    *ret = spec;
    return ERR_OK;
}

enum err_code index_scan(const char *text, size_t n, struct index_spec *ret, size_t *ret_used,
                         struct err *e)
{
    struct cursor c = {.text = text, .p = text, .end = text + n, .e = e};
    struct index_spec spec = {0};
    TRY(items(&c, &spec));
    if (c.p >= c.end)
        return bad(&c, c.p, "the closing ']' of the index is missing");
    *ret = spec;
    *ret_used = (size_t)(c.p - text);
    return ERR_OK;
}

void index_print(const struct index_spec *ix, struct strb *out)
{
    for (int i = 0; i < ix->n; i++) {
        const struct index_item *it = &ix->items[i];
        if (i)
            strb_add(out, ", ");
        switch (it->kind) {
        case INDEX_INT:
            strb_add_i64(out, it->start);
            break;
        case INDEX_NEWAXIS:
            strb_add(out, "None");
            break;
        case INDEX_ELLIPSIS:
            strb_add(out, "...");
            break;
        case INDEX_SLICE:
            if (it->has_start)
                strb_add_i64(out, it->start);
            strb_addc(out, ':');
            if (it->has_stop)
                strb_add_i64(out, it->stop);
            if (it->has_step) {
                strb_addc(out, ':');
                strb_add_i64(out, it->step);
            }
            break;
        }
    }
}
