/* Errors that libmicrohttpd answers by itself, before any callback of ours: a request line or a
 * chunk it cannot parse, a header larger than its memory. It sends a page of HTML, and 0.9.75
 * offers no way to say otherwise. But it makes that page through its own exported function, so a
 * function of the same name in the program takes the call (ordinary ELF symbol resolution, as with
 * malloc), and the client gets problem+json like for every other error. Where the linker resolves
 * the call inside the library, its page goes out as before; nothing else depends on this. */
#include <microhttpd.h>

#include <string.h>

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
