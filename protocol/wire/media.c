/* A small cursor over the header's text reads RFC 9110's grammar: tokens, quoted strings, optional
 * white space. Content-Type is strict (it determines how the bytes are read); Accept is lenient (a
 * meaningless element expresses no preference), since old clients send oddities such as "*; q=.2".
 */
#include "protocol/wire/media.h"

#include <string.h>
#include <strings.h>

static const char *const names[MEDIA_COUNT] = {
    [MEDIA_JSON] = "application/json",
    [MEDIA_OCTETS] = "application/octet-stream",
    [MEDIA_NPY] = "application/x-npy",
    [MEDIA_PROBLEM] = "application/problem+json",
    [MEDIA_TEXT] = "text/plain",
    [MEDIA_HTML] = "text/html",
    [MEDIA_EVENTS] = "text/event-stream",
    [MEDIA_PNG] = "image/png",
    [MEDIA_TIFF] = "image/tiff",
    [MEDIA_NPZ] = "application/x-npz",
    [MEDIA_NETCDF] = "application/x-netcdf",
    [MEDIA_HDF5] = "application/x-hdf5",
};

struct span {
    const char *p;
    size_t n;
};

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static void skip_space(const char **p)
{
    while (**p == ' ' || **p == '\t')
        (*p)++;
}

static bool token(const char **p, struct span *ret)
{
    ret->p = *p;
    while (is_token(**p))
        (*p)++;
    ret->n = (size_t)(*p - ret->p);
    return ret->n > 0;
}

static bool quoted(const char **p, struct span *ret)
{
    if (**p != '"')
        return false;
    ret->p = ++*p;
    while (**p && **p != '"')
        *p += **p == '\\' && (*p)[1] ? 2 : 1;
    ret->n = (size_t)(*p - ret->p);
    if (**p != '"')
        return false;
    (*p)++;
    return true;
}

static bool same(struct span s, const char *text)
{
    return strlen(text) == s.n && strncasecmp(s.p, text, s.n) == 0;
}

/* type "/" subtype */
static bool type(const char **p, struct span *ret_type, struct span *ret_sub)
{
    skip_space(p);
    if (!token(p, ret_type) || **p != '/')
        return false;
    (*p)++;
    return token(p, ret_sub);
}

/* The next *( OWS ";" OWS [ name "=" value ] ); false at their end, *ret_bad when malformed. */
static bool parameter(const char **p, struct span *ret_name, struct span *ret_value, bool *ret_bad)
{
    for (;;) {
        skip_space(p);
        if (**p != ';')
            return false;
        (*p)++;
        skip_space(p);
        if (**p == ';' || **p == ',' || **p == '\0')
            continue; /* an empty parameter is allowed */
        if (token(p, ret_name) && **p == '=') {
            (*p)++;
            if (quoted(p, ret_value) || token(p, ret_value))
                return true;
        }
        *ret_bad = true;
        return false;
    }
}

/* A weight in thousandths; -1 when malformed. ".5" is accepted although the grammar requires a
 * zero. */
static int weight(struct span v)
{
    size_t i = 0;
    int whole = 0, thousandths = 0, unit = 100;
    if (i < v.n && (v.p[i] == '0' || v.p[i] == '1'))
        whole = v.p[i++] - '0';
    else if (v.n < 2 || v.p[0] != '.')
        return -1;
    if (i < v.n && v.p[i++] != '.')
        return -1;
    for (; i < v.n; i++, unit /= 10) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return -1;
        thousandths += unit * (v.p[i] - '0');
    }
    int q = whole * 1000 + thousandths;
    return q > 1000 ? -1 : q;
}

const char *media_name(enum media m)
{
    return names[m];
}

static enum media known(struct span t, struct span sub)
{
    for (int m = 0; m < MEDIA_COUNT; m++) {
        const char *slash = names[m] ? strchr(names[m], '/') : NULL;
        if (slash && (size_t)(slash - names[m]) == t.n && strncasecmp(names[m], t.p, t.n) == 0 &&
            same(sub, slash + 1))
            return (enum media)m;
    }
    return MEDIA_OTHER;
}

enum err_code media_content_type(const char *value, enum media *ret, struct err *e)
{
    const char *p = value ? value : "";
    struct span t, sub, name, v;
    bool bad = false;
    skip_space(&p);
    if (*p == '\0') {
        *ret = MEDIA_NONE;
        return ERR_OK;
    }
    if (!type(&p, &t, &sub))
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "the Content-Type is malformed: \"%.100s\"",
                       value);
    enum media m = known(t, sub);
    while (parameter(&p, &name, &v, &bad)) {
        bool textual = m == MEDIA_JSON || m == MEDIA_TEXT || m == MEDIA_HTML;
        if (textual && same(name, "charset") && !same(v, "utf-8") && !same(v, "utf8") &&
            !same(v, "us-ascii"))
            return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                           "the charset %.*s is not supported: send UTF-8",
                           (int)(v.n > 60 ? 60 : v.n), v.p);
    }
    if (bad || *p)
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "the Content-Type is malformed: \"%.100s\"",
                       value);
    *ret = m;
    return ERR_OK;
}

enum err_code media_require_json(const char *content_type, struct err *e)
{
    enum media m = MEDIA_NONE;
    enum err_code code = media_content_type(content_type, &m, e);
    if (code || m == MEDIA_JSON)
        return code;
    return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                   "this route takes application/json, not %.80s: with curl, use `curl --json`",
                   m == MEDIA_NONE ? "the body has no Content-Type" : content_type);
}

struct wish {
    int q, specificity; /* 3: the type, 2: type/..., 1: anything; 0: no range matched */
};

/* The header's preference for one offered type: its most specific range counts. */
static struct wish wish_for(const char *accept, enum media offer)
{
    struct wish best = {0};
    const char *p = accept, *slash = strchr(names[offer], '/');
    while (*p) {
        struct span t, sub, name, v;
        bool bad = !type(&p, &t, &sub), restricted = false;
        int q = 1000;
        while (!bad && parameter(&p, &name, &v, &bad)) {
            if (same(name, "q")) {
                q = weight(v);
                bad = q < 0;
            } else if (!(same(name, "charset") && (same(v, "utf-8") || same(v, "utf8")))) {
                restricted = true; /* a variant we do not have */
            }
        }
        skip_space(&p);
        bad |= *p != '\0' && *p != ',';
        while (*p && *p != ',')
            p++;
        if (*p)
            p++;
        if (bad || restricted)
            continue;
        int s = 0;
        if (same(t, "*") && same(sub, "*"))
            s = 1;
        else if (t.n == (size_t)(slash - names[offer]) && strncasecmp(t.p, names[offer], t.n) == 0)
            s = same(sub, "*") ? 2 : same(sub, slash + 1) ? 3 : 0;
        if (s > best.specificity || (s == best.specificity && s && q > best.q))
            best = (struct wish){q, s};
    }
    return best;
}

enum err_code media_negotiate(const char *accept, const enum media *offers, size_t n,
                              enum media *ret, struct err *e)
{
    if (!accept || accept[strspn(accept, " \t,")] == '\0') {
        *ret = offers[0];
        return ERR_OK;
    }
    struct wish best = {0};
    enum media chosen = MEDIA_NONE;
    for (size_t i = 0; i < n; i++) {
        struct wish w = wish_for(accept, offers[i]);
        if (w.q > best.q || (w.q == best.q && w.q && w.specificity > best.specificity)) {
            best = w;
            chosen = offers[i];
        }
    }
    if (chosen != MEDIA_NONE) {
        *ret = chosen;
        return ERR_OK;
    }
    char have[256] = "";
    for (size_t i = 0; i < n; i++) {
        strncat(have, i ? ", " : "", sizeof have - strlen(have) - 1);
        strncat(have, names[offers[i]], sizeof have - strlen(have) - 1);
    }
    return err_set(e, ERR_NOT_ACCEPTABLE, "the reply can be %s, but Accept asks for \"%.200s\"",
                   have, accept);
}
