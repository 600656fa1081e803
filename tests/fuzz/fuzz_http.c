/* Heads of requests: the request line and the header lines as libmicrohttpd hands them over, looked
 * at by http_check. What is let through has one reading: it is held against the rules again, each
 * by a loop of its own. Header values go through the readers of lists too.
 *
 * The input is the text of a head. libmicrohttpd is replaced by the two functions that http_check
 * asks: they show the lines as the library keeps them, behind each other in one buffer. */
#include <microhttpd.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "protocol/wire/media.h"
#include "server/body/condition.h"
#include "server/http/http_impl.h"
#include "tests/fuzz/fuzz.h"

#define LINES_MOST 64

static char *buffer; /* the head, cut into strings */
static struct line {
    char *name, *value; /* value NULL: there was no colon */
    size_t n_name, n_value;
} lines[LINES_MOST];
static size_t n_lines, head_size;

int MHD_get_connection_values_n(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                MHD_KeyValueIteratorN iterator, void *iterator_cls)
{
    (void)connection;
    for (size_t i = 0; i < n_lines; i++)
        if (iterator(iterator_cls, kind, lines[i].name, lines[i].n_name, lines[i].value,
                     lines[i].n_value) != MHD_YES)
            break;
    return (int)n_lines;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType what, ...)
{
    static union MHD_ConnectionInfo info;
    (void)connection, (void)what;
    info.header_size = head_size;
    return &info;
}

/* The end of the line at p: its LF, or the CR before that. */
static char *line_end(char *p, char **ret_next)
{
    char *end = strchr(p, '\n');
    if (!end)
        return NULL;
    *ret_next = end + 1;
    *end = '\0';
    if (end > p && end[-1] == '\r')
        *--end = '\0';
    return end;
}

/* Cuts the buffer as the library does; false: it would have refused the head itself. */
static bool cut(char **ret_method, char **ret_uri, char **ret_version)
{
    char *next, *p = buffer, *end = line_end(p, &next);
    n_lines = 0;
    if (!end)
        return false;
    char *uri = strchr(p, ' ');
    if (!uri || uri == p)
        return false;
    *uri++ = '\0';
    uri += strspn(uri, " ");
    char *version = strrchr(uri, ' ');
    if (!version)
        return false;
    *version++ = '\0';
    *ret_method = p, *ret_uri = uri, *ret_version = version;
    while ((end = line_end(p = next, &next)) && *p) {
        struct line *l = &lines[n_lines];
        if (n_lines == LINES_MOST)
            return false;
        *l = (struct line){.name = p, .n_name = strlen(p)};
        char *colon = strchr(p, ':');
        if (colon) {
            *colon = '\0';
            l->n_name = (size_t)(colon - p);
            l->value = colon + 1 + strspn(colon + 1, " \t");
            l->n_value = strlen(l->value);
        }
        if (!l->n_name)
            continue;
        n_lines++;
    }
    head_size = (size_t)(next - buffer);
    return end != NULL;
}

static size_t count(const char *name, const char **ret_value)
{
    size_t n = 0;
    for (size_t i = 0; i < n_lines; i++)
        if (!strcasecmp(lines[i].name, name)) {
            n++;
            *ret_value = lines[i].value;
        }
    return n;
}

/* What http_check has let through. */
static void one_reading(const struct rq *q, const char *method, const char *uri,
                        const char *version)
{
    const char *length = NULL, *coding = NULL, *host = NULL;
    size_t n_length = count("Content-Length", &length), n_coding;
    n_coding = count("Transfer-Encoding", &coding);
    FUZZ_CHECK(n_length + n_coding <= 1 && count("Host", &host) <= 1);
    FUZZ_CHECK(host || !strcmp(version, "HTTP/1.0"));
    FUZZ_CHECK(!strcmp(method, q->r.method) && q->r.path && *q->r.path);
    if (n_length) {
        FUZZ_CHECK(strspn(length, "0123456789") == strlen(length) && *length);
        FUZZ_CHECK(q->r.content_length == atoll(length) && !q->chunked);
    }
    if (n_coding)
        FUZZ_CHECK(!strcasecmp(coding, "chunked") && q->chunked && q->r.content_length == -1);
    for (const char *p = uri; *p; p++)
        FUZZ_CHECK(*p > 0x20 && *p < 0x7f && *p != '#');
    size_t shown = strlen(method) + strlen(uri) + strlen(version) + 6;
    for (size_t i = 0; i < n_lines; i++) {
        for (const char *p = lines[i].name; *p; p++)
            FUZZ_CHECK(*p > 0x20 && *p < 0x7f && *p != ':');
        shown += lines[i].n_name + lines[i].n_value + 4;
    }
    FUZZ_CHECK(MHD_VERSION >= 0x00097701 || head_size <= shown || !(n_length + n_coding));
    FUZZ_CHECK(MHD_VERSION >= 0x00097701 || head_size <= shown || q->must_close);
    FUZZ_CHECK(q->r.n_query <= MAX_QUERY_PARAMS);
    for (size_t i = 0; i < q->r.n_query; i++)
        FUZZ_CHECK(http_query(&q->r, q->r.query[i].key) == q->r.query[i].value);
}

/* Values of headers that are lists. */
static void lists(struct request *r)
{
    static const enum media offers[] = {MEDIA_OCTETS, MEDIA_NPY, MEDIA_JSON};
    struct err e = ERR_INIT;
    enum media m;
    for (size_t i = 0; i < n_lines; i++) {
        const char *v = http_header(r, lines[i].name);
        if (!v || !lines[i].value)
            continue;
        FUZZ_CHECK(!etag_listed(v, "\"a-1.0\"", true) || etag_listed(v, "\"a-1.0\"", false));
        enum err_code err = media_negotiate(v, offers, 3, &m, &e);
        FUZZ_CHECK(err == ERR_OK || err == ERR_NOT_ACCEPTABLE);
    }
    struct condition c = condition_of(r);
    (void)condition_names_tags(&c);
    enum err_code err = condition_check(&c, NULL, NULL, &e);
    FUZZ_CHECK(err == ERR_OK || err == ERR_PRECONDITION_FAILED);
}

static void look(char *method, char *uri, char *version)
{
    static char *hosts[] = {(char *)"localhost", (char *)"127.0.0.1", (char *)"[::1]"};
    static const char *const origins[] = {"https://app.example"};
    static struct server server;
    static struct http http = {.server = &server, .hosts = hosts, .n_hosts = 3};
    static struct listener listener = {.http = &http, .loopback = true};
    static struct conn conn = {.listener = &listener, .fd = -1};
    struct err e = ERR_INIT;
    http.config.max_header_bytes = 2048;
    http.config.cors_origins = origins;
    http.config.n_cors_origins = 1;
    struct rq q = {
        .r = {.server = &server, .arena = arena_new(0)}, .http = &http, .conn = &conn, .uri = uri};
    FUZZ_CHECK(q.r.arena);
    enum err_code err = http_check(&q, method, version, &e);
    if (err) {
        int status = err_status(err);
        FUZZ_CHECK(*e.message && status >= 400 && status < 600 && status != 507);
    } else {
        one_reading(&q, method, uri, version);
        lists(&q.r);
    }
    arena_free(q.r.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *method, *uri, *version;
    buffer = malloc(size + 1);
    if (!buffer)
        return 0;
    memcpy(buffer, data, size);
    buffer[size] = '\0';
    if (cut(&method, &uri, &version))
        look(method, uri, version);
    free(buffer);
    FUZZ_CHECK(mem_live() == 0);
    return 0;
}
