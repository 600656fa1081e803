/* The state is one flag: whether a value precedes. A key clears it, a value and a closing bracket
 * set it. */
#include "protocol/json/json_writer.h"

#include <math.h>
#include <string.h>

#include "compute/base/strb.h"
#include "protocol/number/numtext.h"

static void separate(struct json_writer *w)
{
    if (w->comma)
        strb_addc(w->out, ',');
    w->comma = true;
}

static void open_with(struct json_writer *w, char bracket)
{
    separate(w);
    strb_addc(w->out, bracket);
    w->comma = false;
}

static void close_with(struct json_writer *w, char bracket)
{
    strb_addc(w->out, bracket);
    w->comma = true;
}

void json_open_object(struct json_writer *w)
{
    open_with(w, '{');
}

void json_close_object(struct json_writer *w)
{
    close_with(w, '}');
}

void json_open_list(struct json_writer *w)
{
    open_with(w, '[');
}

void json_close_list(struct json_writer *w)
{
    close_with(w, ']');
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != 0x7F;
}

/* A text without anything to be escaped, which nearly all are: in one piece. False: it is not one.
 */
static bool add_plain(struct strb *out, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_plain((unsigned char)s[i]))
        i++;
    char *p = i == n ? strb_reserve(out, n + 2) : NULL;
    if (!p)
        return false;
    p[0] = '"';
    memcpy(p + 1, s, n);
    p[n + 1] = '"';
    p[n + 2] = '\0';
    out->len += n + 2;
    return true;
}

static void add_quoted(struct strb *out, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    if (add_plain(out, s, n))
        return;
    strb_addc(out, '"');
    size_t plain = 0; /* start of the run not yet written */
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        if (is_plain(c)) {
            i++;
            continue;
        }
        size_t len = c < 0x80 ? 1 : utf8_length(s + i, n - i);
        if (len > 1) {
            i += len;
            continue;
        }
        strb_addn(out, s + plain, i - plain);
        if (len == 0) {
            strb_add(out, "\xEF\xBF\xBD");
        } else if (c == '"' || c == '\\') {
            strb_addc(out, '\\');
            strb_addc(out, (char)c);
        } else if (c == '\n') {
            strb_add(out, "\\n");
        } else if (c == '\t') {
            strb_add(out, "\\t");
        } else {
            const char esc[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            strb_addn(out, esc, sizeof esc);
        }
        plain = ++i;
    }
    strb_addn(out, s + plain, n - plain);
    strb_addc(out, '"');
}

void json_put_key(struct json_writer *w, const char *name)
{
    separate(w);
    add_quoted(w->out, name, strlen(name));
    strb_addc(w->out, ':');
    w->comma = false;
}

void json_put_raw(struct json_writer *w, const char *text, size_t n)
{
    separate(w);
    strb_addn(w->out, text, n);
}

void json_put_null(struct json_writer *w)
{
    json_put_raw(w, "null", 4);
}

void json_put_bool(struct json_writer *w, bool v)
{
    json_put_raw(w, v ? "true" : "false", v ? 4 : 5);
}

void json_put_i64(struct json_writer *w, int64_t v)
{
    char buf[NUMTEXT_MAX];
    json_put_raw(w, buf, numtext_i64(v, buf));
}

void json_put_u64(struct json_writer *w, uint64_t v)
{
    char buf[NUMTEXT_MAX];
    json_put_raw(w, buf, numtext_u64(v, buf));
}

void json_put_double(struct json_writer *w, double v)
{
    char buf[NUMTEXT_ELEM_MAX];
    json_put_raw(w, buf, numtext_elem(DT_F64, &v, buf));
}

void json_put_stringn(struct json_writer *w, const char *s, size_t n)
{
    separate(w);
    add_quoted(w->out, s, n);
}

void json_put_string(struct json_writer *w, const char *s)
{
    if (s)
        json_put_stringn(w, s, strlen(s));
    else
        json_put_null(w);
}

void json_put_scalar(struct json_writer *w, const struct scalar *s)
{
    char buf[NUMTEXT_ELEM_MAX];
    json_put_raw(w, buf, numtext_elem(s->dtype, &s->v, buf));
}

void json_put_i64_list(struct json_writer *w, size_t n, const int64_t *v)
{
    json_open_list(w);
    for (size_t i = 0; i < n; i++)
        json_put_i64(w, v[i]);
    json_close_list(w);
}

void json_put_value(struct json_writer *w, struct json v)
{
    size_t n;
    const char *text = json_text(v, &n);
    bool yes = false;
    switch (json_kind(v)) {
    case JSON_LIST:
        json_open_list(w);
        for (struct json x = json_first(v); json_present(x); x = json_next(x))
            json_put_value(w, x);
        json_close_list(w);
        return;
    case JSON_OBJECT:
        json_open_object(w);
        for (struct json x = json_first(v); json_present(x); x = json_next(x)) {
            json_put_key(w, json_key(x));
            json_put_value(w, x);
        }
        json_close_object(w);
        return;
    case JSON_STRING:
        json_put_stringn(w, text, n);
        return;
    case JSON_NUMBER:
        json_put_raw(w, text, n);
        return;
    case JSON_BOOL:
        (void)!json_get_bool(v, &yes, NULL);
        json_put_bool(w, yes);
        return;
    default:
        json_put_null(w);
    }
}

void json_put_member_string(struct json_writer *w, const char *name, const char *s)
{
    json_put_key(w, name);
    json_put_string(w, s);
}

void json_put_member_i64(struct json_writer *w, const char *name, int64_t v)
{
    json_put_key(w, name);
    json_put_i64(w, v);
}

void json_put_member_double(struct json_writer *w, const char *name, double v)
{
    json_put_key(w, name);
    json_put_double(w, v);
}

void json_put_member_bool(struct json_writer *w, const char *name, bool v)
{
    json_put_key(w, name);
    json_put_bool(w, v);
}
