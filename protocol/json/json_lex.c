/* Strings are decoded in place: an escape is never shorter than its UTF-8, so the write position
 * cannot overtake the read position. */
#include "protocol/json/json_lex.h"

#include <stdint.h>
#include <string.h>

#include "compute/base/strb.h"

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

size_t json_lex_number(const char *p, size_t n, size_t *ret_bad, const char **ret_why)
{
    size_t i = 0;
    if (i < n && p[i] == '-')
        i++;
    if (i >= n || !digit(p[i])) {
        *ret_bad = i;
        *ret_why = "a digit is missing";
        return 0;
    }
    if (p[i] == '0') {
        i++;
        if (i < n && digit(p[i])) {
            *ret_bad = i;
            *ret_why = "numbers have no leading zeros";
            return 0;
        }
    }
    while (i < n && digit(p[i]))
        i++;
    if (i < n && p[i] == '.') {
        i++;
        if (i >= n || !digit(p[i])) {
            *ret_bad = i;
            *ret_why = "a digit is missing after the decimal point";
            return 0;
        }
        while (i < n && digit(p[i]))
            i++;
    }
    if (i < n && (p[i] == 'e' || p[i] == 'E')) {
        i++;
        if (i < n && (p[i] == '+' || p[i] == '-'))
            i++;
        if (i >= n || !digit(p[i])) {
            *ret_bad = i;
            *ret_why = "a digit is missing in the exponent";
            return 0;
        }
        while (i < n && digit(p[i]))
            i++;
    }
    return i;
}

static int hex4(const char *p, size_t n)
{
    if (n < 4)
        return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = digit(c)               ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* The escape at s[0] == '\\': its decoded code point and length. */
static enum json_lex escape(const char *s, size_t n, uint32_t *ret, size_t *ret_used,
                            const char **ret_why)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (n < 2) {
        *ret_why = "the string does not end";
        return JSON_LEX_MALFORMED;
    }
    const char *simple = s[1] ? strchr(from, s[1]) : NULL;
    if (simple) {
        *ret = (unsigned char)to[simple - from];
        *ret_used = 2;
        return JSON_LEX_OK;
    }
    int hi = s[1] == 'u' ? hex4(s + 2, n - 2) : -1;
    if (hi < 0) {
        *ret_why = "unknown escape in a string";
        return JSON_LEX_MALFORMED;
    }
    *ret_used = 6;
    *ret = (uint32_t)hi;
    if (hi == 0) {
        *ret_why = "a string holds U+0000";
        return JSON_LEX_UNUSABLE;
    }
    if (hi < 0xD800 || hi > 0xDFFF)
        return JSON_LEX_OK;
    int lo = hi < 0xDC00 && n >= 12 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8, 4) : -1;
    if (lo < 0xDC00 || lo > 0xDFFF) {
        *ret_why = "a string contains half of a surrogate pair";
        return JSON_LEX_UNUSABLE;
    }
    *ret = 0x10000 + ((uint32_t)hi - 0xD800) * 0x400 + ((uint32_t)lo - 0xDC00);
    *ret_used = 12;
    return JSON_LEX_OK;
}

enum json_lex json_lex_string(char *s, size_t n, size_t *ret_used, size_t *ret_len,
                              const char **ret_why)
{
    size_t r = 0, w = 0;
    while (r < n) {
        unsigned char c = (unsigned char)s[r];
        if (c == '"') {
            s[w] = '\0';
            *ret_used = r + 1;
            *ret_len = w;
            return JSON_LEX_OK;
        }
        if (c == '\\') {
            uint32_t code = 0;
            size_t used = 0;
            enum json_lex l = escape(s + r, n - r, &code, &used, ret_why);
            if (l != JSON_LEX_OK) {
                *ret_used = r;
                return l;
            }
            w += put_utf8(s + w, code);
            r += used;
        } else if (c < 0x20) {
            *ret_used = r;
            *ret_why = "a control character in a string must be escaped";
            return JSON_LEX_MALFORMED;
        } else if (c < 0x80) {
            s[w++] = (char)c;
            r++;
        } else {
            size_t len = utf8_length(s + r, n - r);
            if (len == 0) {
                *ret_used = r;
                *ret_why = "invalid UTF-8";
                return JSON_LEX_MALFORMED;
            }
            memmove(s + w, s + r, len);
            w += len;
            r += len;
        }
    }
    *ret_used = n;
    *ret_why = "the string does not end";
    return JSON_LEX_MALFORMED;
}
