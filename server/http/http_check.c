/* The first checks of a request, before anything is done for it.
 *
 * libmicrohttpd 0.9.75 lets through what request smuggling relies on (two Content-Length headers,
 * Content-Length beside Transfer-Encoding, "gzip, chunked", blanks in header names, no Host) and
 * decodes the target before the application sees it, so that %00 truncates it. All of this is
 * checked here once, on the raw target and on every header; no later code needs to doubt them.
 *
 * Before version 1.0 it hides parts of a header: what follows a NUL on a line, a line that begins
 * with NUL or has no name (which ends the header), and a continuation line, which it joins to the
 * name of the header before. But it reports the length of the whole header. A header longer than
 * the lines shown, written in the usual way (one blank after each colon, CR LF), may hide
 * something. With a body the request is refused, since the hidden part may say where the body ends;
 * without one it is the last of its connection. docs/security.md describes the remaining risk. */
#include <microhttpd.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compute/base/strb.h"
#include "server/http/http_impl.h"

#define SHOWS_LESS (MHD_VERSION < 0x00097701) /* than the header contains */

static bool is_token_char(unsigned char c)
{
    return c > 0x20 && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_token_char((unsigned char)s[i]))
            return false;
    return n > 0;
}

struct collect {
    struct rq *q;
    bool failed, bad_name, bad_value;
    size_t shown; /* bytes of the lines, each as "name: value" and CR LF */
};

/* Whether the header may contain more than was shown. */
static bool hides(const struct collect *c, size_t header_bytes)
{
    return SHOWS_LESS && header_bytes > c->shown;
}

/* No real header has such a name: a continuation line was joined to a header that frames the
 * message, which would then be ignored. */
static bool is_joined(const char *name, size_t n)
{
    static const char *const framing[] = {"Content-Length", "Transfer-Encoding"};
    for (size_t i = 0; i < 2; i++)
        if (n > strlen(framing[i]) && !strncasecmp(name, framing[i], strlen(framing[i])))
            return true;
    return false;
}

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                      size_t key_size, const char *value, size_t value_size)
{
    (void)kind;
    struct collect *c = cls;
    struct rq *q = c->q;
    /* Copies: a continuation may outlive the connection's memory, where the originals are. */
    if (!value)
        value_size = 0;
    c->shown += key_size + value_size + 4;
    char *copy = arena_alloc(q->r.arena, key_size + value_size + 2);
    if (!copy || arena_grow(q->r.arena, (void **)&q->headers, &q->cap_headers, q->n_headers,
                            sizeof *q->headers)) {
        c->failed = true;
        return MHD_NO;
    }
    memcpy(copy, key, key_size);
    if (value_size)
        memcpy(copy + key_size + 1, value, value_size);
    /* Trailing blanks are not part of a value. But libmicrohttpd frames the message and keeps them,
     * so these two headers must be valid for both of us. */
    if (strcasecmp(copy, "Content-Length") != 0 && strcasecmp(copy, "Transfer-Encoding") != 0)
        for (char *end = copy + key_size + 1 + value_size;
             end > copy + key_size + 1 && (end[-1] == ' ' || end[-1] == '\t');)
            *--end = '\0';
    q->headers[q->n_headers++] = (struct header){copy, copy + key_size + 1};
    if (!is_token(key, key_size) || strlen(key) != key_size || is_joined(key, key_size))
        c->bad_name = true;
    for (size_t i = 0; i < value_size; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            c->bad_value = true;
    return MHD_YES;
}

/* --- the headers that frame the message --- */

struct known {
    const char *host, *length, *coding, *expect, *origin, *id, *traceparent;
    int n_host, n_length, n_coding, n_expect, n_origin;
};

static void find_known(const struct rq *q, struct known *k)
{
    for (size_t i = 0; i < q->n_headers; i++) {
        const char *name = q->headers[i].name, *value = q->headers[i].value;
        switch (name[0] | 0x20) {
        case 'h':
            if (!strcasecmp(name, "Host")) {
                k->host = value;
                k->n_host++;
            }
            break;
        case 'c':
            if (!strcasecmp(name, "Content-Length")) {
                k->length = value;
                k->n_length++;
            }
            break;
        case 't':
            if (!strcasecmp(name, "Transfer-Encoding")) {
                k->coding = value;
                k->n_coding++;
            } else if (!strcasecmp(name, "traceparent")) {
                k->traceparent = value;
            }
            break;
        case 'e':
            if (!strcasecmp(name, "Expect")) {
                k->expect = value;
                k->n_expect++;
            }
            break;
        case 'o':
            if (!strcasecmp(name, "Origin")) {
                k->origin = value;
                k->n_origin++;
            }
            break;
        case 'x':
            if (!strcasecmp(name, "X-Request-Id"))
                k->id = value;
            break;
        default:
            break;
        }
    }
}

/* Whether it is a valid Content-Length; huge: 10^18 or more. */
static bool is_length(const char *value, bool *ret_huge)
{
    size_t n = strspn(value, "0123456789");
    *ret_huge = n - strspn(value, "0") > 18;
    return n > 0 && !value[n];
}

static enum err_code check_length(struct rq *q, const struct known *k, bool http10, struct err *e)
{
    q->r.content_length = 0;
    if (k->n_length > 1)
        return err_set(e, ERR_BAD_FRAMING, "more than one Content-Length header");
    if (k->n_coding > 0) {
        if (k->n_length)
            return err_set(e, ERR_BAD_FRAMING,
                           "both Content-Length and Transfer-Encoding are given");
        if (http10)
            return err_set(e, ERR_BAD_FRAMING,
                           "Transfer-Encoding is not allowed in an HTTP/1.0 request");
        if (k->n_coding > 1)
            return err_set(e, ERR_BAD_FRAMING, "more than one Transfer-Encoding header");
        if (strcasecmp(k->coding, "chunked") != 0)
            return err_set(e, ERR_UNSUPPORTED_CODING,
                           "the only transfer coding supported is 'chunked'");
        q->chunked = q->has_body = true;
        q->r.content_length = -1;
        return ERR_OK;
    }
    if (k->n_length) {
        bool huge;
        if (!is_length(k->length, &huge))
            return err_set(e, ERR_BAD_FRAMING, "Content-Length is not a number");
        if (huge)
            return err_set(e, ERR_TOO_LARGE, "a body of 10^18 bytes or more is not accepted");
        q->r.content_length = strtoll(k->length, NULL, 10);
        q->has_body = q->r.content_length > 0;
    }
    return ERR_OK;
}

static enum err_code check_line(struct rq *q, const char *method, const char *version,
                                struct err *e)
{
    static const char *const known[] = {"GET",    "HEAD",    "POST",  "PUT",    "PATCH",
                                        "DELETE", "OPTIONS", "TRACE", "CONNECT"};
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return err_set(e, ERR_UNSUPPORTED_VERSION, "only HTTP/1.1 and HTTP/1.0 are supported");
    if (!is_token(method, strlen(method)))
        return err_set(e, ERR_BAD_FRAMING, "the method is not a token");
    for (const char *p = q->uri; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f || *p == '#')
            return err_set(e, ERR_BAD_FRAMING,
                           "the request target has characters that are not allowed in a URI");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(method, known[i])) {
            q->r.method = known[i];
            q->head = i == 1;
            return ERR_OK;
        }
    return err_set(e, ERR_UNSUPPORTED_CODING, "unknown method");
}

/* --- Host and Origin --- */

/* Splits host[:port]; false when malformed. */
static bool split_host(const char *s, size_t n, const char **ret_port, size_t *ret_host_len)
{
    size_t h = 0;
    if (n && s[0] == '[') {
        while (h < n && s[h] != ']' && (isxdigit((unsigned char)s[h]) || strchr("[:.", s[h])))
            h++;
        if (h < n && s[h] != ']')
            return false;
        if (h++ == n)
            return false;
    } else {
        while (h < n && (isalnum((unsigned char)s[h]) || strchr("-._", s[h])))
            h++;
    }
    *ret_host_len = h;
    *ret_port = "";
    if (h == n)
        return h > 0;
    if (s[h] != ':')
        return false;
    for (size_t i = h + 1; i < n; i++)
        if (!isdigit((unsigned char)s[i]))
            return false;
    *ret_port = s + h + 1;
    return h > 0 && n - h - 1 <= 5;
}

static bool host_allowed(const struct http *h, const char *name, size_t n)
{
    if (n > 0 && name[n - 1] == '.')
        n--;
    for (size_t i = 0; i < h->n_hosts; i++)
        if (strlen(h->hosts[i]) == n && !strncasecmp(h->hosts[i], name, n))
            return true;
    return false;
}

/* A malicious page can make a name resolve to this daemon, which is why Host is checked; an IP
 * address cannot be redirected. A daemon reachable from other machines may have many addresses (a
 * probe's, a container's), and does not know them all. */
static bool is_address(const char *host, size_t n)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr v4;
    if (host[0] == '[')
        return true;
    if (n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    return inet_pton(AF_INET, text, &v4) == 1;
}

static enum err_code check_host(const struct known *k, bool http10, struct err *e)
{
    if (k->n_host > 1)
        return err_set(e, ERR_BAD_FRAMING, "more than one Host header");
    if (!k->n_host) {
        if (http10)
            return ERR_OK;
        return err_set(e, ERR_BAD_FRAMING, "the Host header is missing");
    }
    const char *port;
    size_t n;
    if (!split_host(k->host, strlen(k->host), &port, &n))
        return err_set(e, ERR_BAD_FRAMING, "malformed Host header");
    return ERR_OK;
}

static enum err_code check_origin(struct rq *q, const struct known *k, struct err *e)
{
    const char *port = "", *origin_port;
    size_t n = 0;
    bool local = q->conn->listener->unix_path != NULL; /* browsers cannot use Unix sockets */
    if (k->host) {
        (void)split_host(k->host, strlen(k->host), &port, &n);
        if (!local && !host_allowed(q->http, k->host, n) &&
            (q->conn->listener->loopback || !is_address(k->host, n)))
            return err_set(e, ERR_FORBIDDEN,
                           "the name in Host is not a name of this daemon: see allowed-host");
    }
    if (q->http->config.n_cors_origins)
        http_add_header(&q->r, "Vary", "Origin");
    if (!k->n_origin || (k->n_origin == 1 && http_cors(q, k->origin)))
        return ERR_OK;
    const char *authority = NULL;
    if (k->n_origin == 1) {
        if (!strncasecmp(k->origin, "http://", 7))
            authority = k->origin + 7;
        else if (!strncasecmp(k->origin, "https://", 8))
            authority = k->origin + 8;
    }
    bool same = authority && k->host && !strcasecmp(authority, k->host);
    if (!same && (!authority || !split_host(authority, strlen(authority), &origin_port, &n) ||
                  !host_allowed(q->http, authority, n) || strcmp(origin_port, port) != 0))
        return err_set(e, ERR_FORBIDDEN, "requests from pages of another origin are refused");
    return ERR_OK;
}

/* --- target --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes n bytes in form encoding ('+' is a blank). */
static enum err_code decode(struct arena *arena, const char *s, size_t n, const char **ret,
                            struct err *e)
{
    char *out = arena_alloc(arena, n + 1);
    if (!out)
        return err_oom(e);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int hi = n - i > 2 ? hex_digit(s[i + 1]) : -1;
            int lo = n - i > 2 ? hex_digit(s[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return err_set(e, ERR_BAD_QUERY, "the query contains a malformed %% escape");
            c = (char)(hi << 4 | lo);
            if (c == '\0')
                return err_set(e, ERR_BAD_QUERY, "the query contains a NUL character");
            i += 2;
        }
        out[len++] = c;
    }
    if (!utf8_valid(out, len))
        return err_set(e, ERR_BAD_QUERY, "the query is not UTF-8");
    *ret = out;
    return ERR_OK;
}

static enum err_code parse_query(struct rq *q, const char *s, struct err *e)
{
    struct query_param *params = NULL;
    size_t n = 0, cap = 0;
    while (*s) {
        size_t len = strcspn(s, "&");
        const char *eq = memchr(s, '=', len);
        size_t key_len = eq ? (size_t)(eq - s) : len;
        if (len) {
            if (arena_grow(q->r.arena, (void **)&params, &cap, n, sizeof *params))
                return err_oom(e);
            struct query_param *p = &params[n];
            p->value = "";
            TRY(decode(q->r.arena, s, key_len, &p->key, e));
            if (eq)
                TRY(decode(q->r.arena, eq + 1, len - key_len - 1, &p->value, e));
            if (n >= MAX_QUERY_PARAMS)
                return err_set(e, ERR_BAD_QUERY, "more than %d query parameters", MAX_QUERY_PARAMS);
            for (size_t i = 0; i < n; i++)
                if (!strcmp(params[i].key, p->key))
                    return err_set(e, ERR_BAD_QUERY, "query parameter '%.64s' is given twice",
                                   p->key);
            n++;
        }
        s += len + (s[len] == '&');
    }
    q->r.query = params;
    q->r.n_query = n;
    return ERR_OK;
}

enum err_code http_target(struct rq *q, struct err *e)
{
    if (q->uri[0] != '/') {
        if ((!strcmp(q->uri, "*") && !strcmp(q->r.method, "OPTIONS")) ||
            !strcmp(q->r.method, "CONNECT")) {
            q->r.path = q->uri;
            return ERR_OK;
        }
        return err_set(e, ERR_BAD_REQUEST, "the request target must begin with '/'");
    }
    size_t n = strcspn(q->uri, "?");
    if (memchr(q->uri, '%', n))
        return err_set(e, ERR_BAD_REQUEST, "paths must not contain %% escapes");
    q->r.path = arena_strndup(q->r.arena, q->uri, n);
    if (!q->r.path)
        return err_oom(e);
    return q->uri[n] ? parse_query(q, q->uri + n + 1, e) : ERR_OK;
}

/* W3C Trace Context: version, trace, parent, flags in lower-case hexadecimal. A trace or parent of
 * zeros is invalid; a later version may add fields. An invalid header is ignored. */
static bool is_traceparent(const char *s)
{
    static const char zeros[] = "00000000000000000000000000000000";
    static const size_t fields[] = {2, 32, 16, 2};
    const char *p = s;
    for (size_t i = 0; i < 4; i++) {
        if (i && *p++ != '-')
            return false;
        if (strspn(p, "0123456789abcdef") < fields[i])
            return false;
        if ((i == 1 || i == 2) && strncmp(p, zeros, fields[i]) == 0)
            return false;
        p += fields[i];
    }
    bool first = strncmp(s, "00", 2) == 0;
    return strncmp(s, "ff", 2) != 0 && (!*p || (!first && *p == '-'));
}

/* The checks whose failure leaves the end of the message in doubt. */
static enum err_code check_framing(struct rq *q, const char *method, const char *version,
                                   const struct known *k, const struct collect *c,
                                   size_t header_bytes, struct err *e)
{
    size_t most = q->http->config.max_header_bytes;
    bool http10 = !strcmp(version, "HTTP/1.0");
    TRY(check_line(q, method, version, e));
    if (strlen(q->uri) > most)
        return err_set(e, ERR_URI_TOO_LONG, "the request target has more than %zu bytes", most);
    if (header_bytes > most)
        return err_set(e, ERR_HEADERS_TOO_LARGE, "the header has more than %zu bytes", most);
    if (c->bad_name)
        return err_set(e, ERR_BAD_FRAMING, "a header name is not a token");
    if (c->bad_value)
        return err_set(e, ERR_BAD_FRAMING, "a header value has control characters");
    if (hides(c, header_bytes) && q->framed)
        return err_set(e, ERR_BAD_FRAMING,
                       "the header has a NUL character, a line without a name, a continued line, "
                       "or several blanks where one is expected");
    TRY(check_length(q, k, http10, e));
    return check_host(k, http10, e);
}

enum err_code http_check(struct rq *q, const char *method, const char *version, struct err *e)
{
    struct collect c = {.q = q, .shown = strlen(method) + strlen(q->uri) + strlen(version) + 6};
    struct known k = {0};
    q->must_close = true; /* until the end of the message is known */
    MHD_get_connection_values_n(q->mhd, MHD_HEADER_KIND, collect_header, &c);
    if (c.failed)
        return err_oom(e);
    find_known(q, &k);
    q->traceparent = k.traceparent && is_traceparent(k.traceparent) ? k.traceparent : NULL;
    if (k.id) { /* the client's own, if safe to log and send back */
        size_t n = strlen(k.id);
        if (n < sizeof q->r.id && is_token(k.id, n))
            memcpy(q->r.id, k.id, n + 1);
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t header_bytes = info ? info->header_size : 0;
    q->r.method = "-";
    q->has_body = q->framed = k.n_length || k.n_coding;
    TRY(check_framing(q, method, version, &k, &c, header_bytes, e));
    q->must_close = hides(&c, header_bytes);

    if (k.n_expect && strcmp(version, "HTTP/1.0") != 0) {
        if (k.n_expect > 1 || strcasecmp(k.expect, "100-continue") != 0) {
            q->must_close = true; /* the client may wait for an answer before it sends the body */
            return err_set(e, ERR_EXPECTATION_FAILED,
                           "the only expectation supported is '100-continue'");
        }
        q->expect = true;
    }
    TRY(http_target(q, e));
    return check_origin(q, &k, e);
}
