/* The lexer follows Python's: numbers with underscores and prefixes, strings in either quote.
 * Common pasted text that is not Python (typographic minus signs, && and ||, ...) gets a message
 * that says what to write instead. Outside strings everything is ASCII, so bytes are characters. */
#include "protocol/text/infix_lex.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "compute/base/strb.h"
#include "protocol/json/json_lex.h"
#include "protocol/number/numtext.h"
#include "protocol/text/infix.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static enum err_code too_big(struct infix_lex *l, long offset)
{
    return err_at(l->e, ERR_LITERAL_RANGE, offset,
                  "the integer is beyond 127 bits; write a float (1e40) if you mean one");
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* 0x…, 0o…, 0b… */
static enum err_code prefixed(struct infix_lex *l, int base, struct token *t)
{
    const char *p = l->p + 2;
    const __int128 max = (__int128)(~(unsigned __int128)0 >> 1);
    __int128 v = 0;
    bool any = false, big = false;
    for (; p < l->end && (digit_value(*p) < base || *p == '_'); p++) {
        if (*p == '_') {
            if (p + 1 >= l->end || digit_value(p[1]) >= base)
                break;
            continue;
        }
        any = true;
        if (v > (max - digit_value(*p)) / base)
            big = true;
        else
            v = v * base + digit_value(*p);
    }
    if (!any || (p < l->end && (is_word(*p) || *p == '.')))
        return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "malformed number");
    if (big)
        return too_big(l, t->offset);
    t->lit = (struct literal){.kind = LIT_INT, .i = v};
    t->len = (size_t)(p - l->p);
    return ERR_OK;
}

/* Copies a run of digits without its underscores. */
static bool digits(const char **p, const char *end, char *buf, size_t *n)
{
    if (*p >= end || !is_digit(**p))
        return true;
    for (; *p < end && (is_digit(**p) || **p == '_'); (*p)++) {
        if (**p == '_') {
            if (*p + 1 >= end || !is_digit((*p)[1]))
                return false;
            continue;
        }
        if (*n >= INFIX_NUMBER_MAX)
            return false;
        buf[(*n)++] = **p;
    }
    return true;
}

static enum err_code number(struct infix_lex *l, struct token *t)
{
    if (*l->p == '0' && l->end - l->p > 2) {
        char c = l->p[1] | 0x20;
        int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (base)
            return prefixed(l, base, t);
    }
    char buf[INFIX_NUMBER_MAX + 8];
    size_t n = 0;
    const char *p = l->p;
    bool is_float = false, ok = digits(&p, l->end, buf, &n);
    if (ok && p < l->end && *p == '.') {
        is_float = true;
        buf[n++] = *p++;
        ok = digits(&p, l->end, buf, &n);
    }
    if (ok && p < l->end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < l->end && (*q == '+' || *q == '-'))
            q++;
        if (q < l->end && is_digit(*q)) {
            is_float = true;
            buf[n++] = 'e';
            if (q > p + 1)
                buf[n++] = q[-1];
            p = q;
            ok = digits(&p, l->end, buf, &n);
        }
    }
    bool imaginary = p < l->end && (*p == 'j' || *p == 'J');
    p += imaginary;
    if (!ok)
        return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "malformed number%s",
                      n >= INFIX_NUMBER_MAX ? ": it is too long" : "");
    if (p < l->end && (is_word(*p) || *p == '.')) {
        if (*p == '.' || *p == '_')
            return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "malformed number");
        return err_at(l->e, ERR_BAD_EXPRESSION, l->offset + (long)(p - l->p),
                      "an operator is missing between a number and a name: write 2*x, not 2x");
    }
    t->len = (size_t)(p - l->p);
    if (imaginary) {
        t->lit = (struct literal){.kind = LIT_COMPLEX, .im = numtext_parse_f64(buf, n)};
    } else if (is_float) {
        t->lit = (struct literal){.kind = LIT_FLOAT, .re = numtext_parse_f64(buf, n)};
    } else {
        t->lit = (struct literal){.kind = LIT_INT};
        if (!numtext_parse_int(buf, n, &t->lit.i))
            return too_big(l, t->offset);
        if (buf[0] == '0' && t->lit.i != 0)
            return err_at(l->e, ERR_BAD_EXPRESSION, t->offset,
                          "integers must not have leading zeros (octal is 0o17)");
    }
    return ERR_OK;
}

static enum err_code string(struct infix_lex *l, struct token *t)
{
    char quote = *l->p;
    const char *p = l->p + 1;
    while (p < l->end && *p != quote && *p != '\n')
        p += *p == '\\' && p + 1 < l->end ? 2 : 1;
    if (p >= l->end || *p != quote)
        return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "the closing %c of the text is missing",
                      quote);
    char *out = arena_alloc(l->arena, (size_t)(p - l->p));
    if (!out)
        return err_oom(l->e);
    t->string = out;
    for (const char *q = l->p + 1; q < p; q++) {
        if (*q == '\\') {
            q++;
            if (*q != '\\' && *q != '\'' && *q != '"')
                return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "unknown escape \\ in the text");
        } else if (*q == '\0') {
            return err_at(l->e, ERR_BAD_EXPRESSION, t->offset, "U+0000 is not allowed in text");
        }
        *out++ = *q;
    }
    t->len = (size_t)(p + 1 - l->p);
    return ERR_OK;
}

/* Text that is not Python, and what to write instead. */
static enum err_code foreign(struct infix_lex *l)
{
    static const struct {
        const char *text, *advice;
    } known[] = {
        {"&&", "write & for \"and\" (with brackets around comparisons)"},
        {"||", "write | for \"or\" (with brackets around comparisons)"},
        {"!", "write ~ for \"not\", != for \"not equal\""},
        {"?", "write where(condition, x, y)"},
        {"@", "there is no @ operator and no matrix product: dot(x, y) multiplies vectors; for "
              "small matrices write sum(x[:, :, None]*y[None], axis=1)"},
        {";", "only one expression is allowed here: use \"let\", or a list of statements"},
        {"#", "comments are not allowed in an expression"},
        {"$", "'$' is not allowed in an expression"},
        {"{", "write lists with [ ] and tuples with ( )"},
        {"}", "write lists with [ ] and tuples with ( )"},
        {"`", "write names without quotes"},
        {"\\", "'\\' is not allowed in an expression"},
        {"\xE2\x88\x92", "write - for a minus sign"},
        {"\xE2\x80\x93", "write - for a minus sign"},
        {"\xC3\x97", "write * to multiply"},
        {"\xC2\xB7", "write * to multiply"},
        {"\xC3\xB7", "write / to divide"},
        {"\xC2\xB2", "write **2 for a square"},
        {"\xC2\xB3", "write **3 for a cube"},
        {"\xCF\x80", "write pi"},
        {"\xE2\x88\x9A", "write sqrt(x)"},
        {"\xE2\x89\xA4", "write <="},
        {"\xE2\x89\xA5", "write >="},
        {"\xE2\x89\xA0", "write !="},
        {"\xE2\x80\x98", "write plain quotes: 'text'"},
        {"\xE2\x80\x99", "write plain quotes: 'text'"},
        {"\xE2\x80\x9C", "write plain quotes: \"text\""},
        {"\xE2\x80\x9D", "write plain quotes: \"text\""},
    };
    size_t left = (size_t)(l->end - l->p);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].text);
        if (left >= n && memcmp(l->p, known[i].text, n) == 0)
            return err_at(l->e, ERR_BAD_EXPRESSION, l->offset, "%s", known[i].advice);
    }
    size_t n = utf8_length(l->p, left);
    if (n == 0 || (unsigned char)*l->p < 0x20)
        return err_at(l->e, ERR_BAD_EXPRESSION, l->offset,
                      "the expression contains a byte that is not text");
    return err_at(l->e, ERR_BAD_EXPRESSION, l->offset,
                  "the character '%.*s' is not allowed in an expression; names consist of a-z, "
                  "A-Z, 0-9 and _ (use \"bind\" to give an array such a name)",
                  (int)n, l->p);
}

enum err_code infix_next(struct infix_lex *l, struct token *ret)
{
    static const char *const operators[] = {
        "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "+", "-", "*", "/", "%",
        "<",   ">",  "&",  "|",  "^",  "~",  "(",  ")",  "[",  "]", ",", "=", ":", "."};
    while (l->p < l->end && json_lex_space(*l->p)) {
        l->p++;
        l->offset++;
    }
    struct token t = {.start = l->p, .offset = l->offset};
    enum err_code code = ERR_OK;
    if (l->p >= l->end) {
        *ret = t;
        return ERR_OK;
    }
    size_t left = (size_t)(l->end - l->p);
    char c = *l->p;
    if (is_digit(c) || (c == '.' && left > 1 && is_digit(l->p[1]))) {
        t.kind = TOK_NUMBER;
        code = number(l, &t);
    } else if (is_word(c)) {
        t.kind = TOK_NAME;
        while (t.len < left && is_word(l->p[t.len]))
            t.len++;
    } else if (c == '\'' || c == '"') {
        t.kind = TOK_STRING;
        code = string(l, &t);
    } else {
        if (left >= 2 && (memcmp(l->p, "&&", 2) == 0 || memcmp(l->p, "||", 2) == 0))
            return foreign(l);
        t.kind = TOK_OP;
        for (size_t i = 0; i < sizeof operators / sizeof *operators && !t.len; i++) {
            size_t n = strlen(operators[i]);
            if (left >= n && memcmp(l->p, operators[i], n) == 0)
                t.len = n;
        }
        if (!t.len)
            return foreign(l);
    }
    if (code != ERR_OK)
        return code;
    for (size_t i = 0; i < t.len; i++)
        l->offset += ((unsigned char)l->p[i] & 0xC0) != 0x80;
    l->p += t.len;
    *ret = t;
    return ERR_OK;
}
