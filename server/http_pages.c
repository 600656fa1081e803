/* Two functions of libmicrohttpd that the program provides in its place.
 *
 * It answers some mistakes by itself, before any callback of ours: a request line or a chunk it
 * cannot parse, a header larger than its memory. It sends a page of HTML then, and for a malformed
 * Content-Length 0.9.75 even sends the reply's header twice. It offers no way to say otherwise, but
 * it goes through its own exported functions, so functions of the same names in the program take
 * the calls (ordinary ELF symbol resolution, as with malloc): the one that makes the page makes
 * problem+json, and the one that looks up a header does not show it a malformed Content-Length,
 * which http_check.c then refuses in its own words. Where the linker resolves these calls inside
 * the library everything is as it was; nothing else depends on it. */
#include <microhttpd.h>

#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "protocol/problem.h"
#include "server/http_impl.h"

static _Thread_local struct listener *current;

void http_pages_enter(struct listener *l)
{
    current = l;
}

/* The text is all that tells the mistake. A request line that is too long (414) and a header that
 * is (431) share theirs: in the second case the line has been seen. */
static enum err_code mistake(const char *page, size_t n, struct err *e)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *detail;
    } known[] = {
        {"version is", ERR_UNSUPPORTED_VERSION, "HTTP/1.1 and HTTP/1.0 are understood"},
        {"chunk size", ERR_TOO_LARGE, "a chunk is larger than 64 bits can say"},
        {"too large value", ERR_TOO_LARGE, "Content-Length is larger than 64 bits can say"},
        {"Content-Length", ERR_BAD_FRAMING, "Content-Length is not a number"},
        {"chunked encoding", ERR_BAD_FRAMING, "malformed chunked coding"},
        {"Host:", ERR_BAD_FRAMING, "no Host header"},
        {"malformed", ERR_BAD_FRAMING, "malformed request line or header"},
        {"server error", ERR_INTERNAL, "the request could not be processed"},
    };
    if (memmem(page, n, "too big", 7)) {
        bool line_seen = current && atomic_load(&current->in_headers) > 0;
        return line_seen ? err_set(e, ERR_HEADERS_TOO_LARGE, "the header is too large")
                         : err_set(e, ERR_URI_TOO_LONG, "the request target is too long");
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (memmem(page, n, known[i].text, strlen(known[i].text)))
            return err_set(e, known[i].code, "%s", known[i].detail);
    return err_set(e, ERR_BAD_FRAMING, "malformed request");
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    (void)mode; /* always static text */
    struct err e = ERR_INIT;
    _cleanup_strb_ struct strb body = {0};
    char id[33];
    mistake(buffer, size, &e);
    problem_write(&e, &body);
    if (body.failed)
        return MHD_create_response_from_buffer_with_free_callback(0, (void *)"", NULL);
    size_t n;
    char *text = strb_take(&body, &n);
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(n, text, mem_free);
    if (!r) {
        mem_free(text);
        return NULL;
    }
    http_new_id(id);
    MHD_add_response_header(r, "Content-Type", "application/problem+json");
    MHD_add_response_header(r, "X-Request-Id", id);
    MHD_add_response_header(r, "Server-Timing", HTTP_NO_TIMING);
    return r;
}

/* --- looking up a header --- */

struct lookup {
    const char *key;
    size_t key_size;
    const char *value;
    size_t value_size;
    bool found;
};

static enum MHD_Result compare(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                               const char *value, size_t value_size)
{
    (void)kind;
    struct lookup *l = cls;
    if (key_size != l->key_size || (key != l->key && strncasecmp(key, l->key, key_size) != 0))
        return MHD_YES;
    l->found = true;
    l->value = value;
    l->value_size = value_size;
    return MHD_NO;
}

bool http_is_length(const char *value, size_t n)
{
    if (n == 0 || n > 18)
        return false;
    for (size_t i = 0; i < n; i++)
        if (value[i] < '0' || value[i] > '9')
            return false;
    return true;
}

enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *connection,
                                              enum MHD_ValueKind kind, const char *key,
                                              size_t key_size, const char **value_ptr,
                                              size_t *value_size_ptr)
{
    struct lookup l = {.key = key, .key_size = key ? key_size : 0};
    MHD_get_connection_values_n(connection, kind, compare, &l);
    if (!l.found)
        return MHD_NO;
    if (kind == MHD_HEADER_KIND && key_size == 14 && !strncasecmp(key, "Content-Length", 14) &&
        !http_is_length(l.value, l.value_size))
        return MHD_NO;
    if (value_ptr)
        *value_ptr = l.value;
    if (value_size_ptr)
        *value_size_ptr = l.value_size;
    return MHD_YES;
}
