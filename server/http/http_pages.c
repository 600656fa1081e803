/* Three functions of libmicrohttpd that the program provides in its place.
 *
 * It answers some mistakes by itself, before any callback of ours: a request line or a chunk it
 * cannot parse, a header larger than its memory. It sends a page of HTML then, and for a malformed
 * Content-Length 0.9.75 even sends the reply's header twice. It offers no way to say otherwise, but
 * it goes through its own exported functions, so functions of the same names in the program take
 * the calls (ordinary ELF symbol resolution, as with malloc): the one that makes the page makes
 * problem+json, the one that queues it puts right what only the connection tells, and the one that
 * looks up a header does not show it a malformed or enormous Content-Length, which http_check.c
 * then refuses in its own words. Where the linker resolves these calls inside the library
 * everything is as it was; nothing else depends on it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <microhttpd.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "protocol/wire/problem.h"
#include "server/http/http_impl.h"

/* By this header a page is known when it is queued; its value is the code. It is taken out then. */
#define PAGE_MARK "Arrayd-Page"

/* The text is all that tells the mistake. */
static enum err_code mistake(const char *text, size_t n, struct err *e)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *detail;
    } known[] = {
        {"too big", ERR_HEADERS_TOO_LARGE, "the header, or a chunked body's trailer, is too large"},
        {"version is", ERR_UNSUPPORTED_VERSION, "HTTP/1.1 and HTTP/1.0 are understood"},
        {"chunk size", ERR_TOO_LARGE, "a chunk is larger than 64 bits can say"},
        {"too large value", ERR_TOO_LARGE, "Content-Length is larger than 64 bits can say"},
        {"Content-Length", ERR_BAD_FRAMING, "Content-Length is not a number"},
        {"chunked encoding", ERR_BAD_FRAMING, "malformed chunked coding"},
        {"Host:", ERR_BAD_FRAMING, "no Host header"},
        {"malformed", ERR_BAD_FRAMING, "malformed request line or header"},
        {"server error", ERR_INTERNAL, "the request could not be processed"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (memmem(text, n, known[i].text, strlen(known[i].text)))
            return err_set(e, known[i].code, "%s", known[i].detail);
    return err_set(e, ERR_BAD_FRAMING, "malformed request");
}

static struct MHD_Response *make_page(const struct err *e, const char *id)
{
    _cleanup_strb_ struct strb body = {0};
    char own[33];
    problem_write(e, &body);
    if (body.failed)
        return MHD_create_response_from_buffer_with_free_callback(0, (void *)"", NULL);
    size_t n;
    char *text = strb_take(&body, &n);
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(n, text, mem_free);
    if (!r) {
        mem_free(text);
        return NULL;
    }
    if (!id) {
        http_new_id(own);
        id = own;
    }
    MHD_add_response_header(r, "Content-Type", "application/problem+json");
    MHD_add_response_header(r, "X-Request-Id", id);
    MHD_add_response_header(r, "Server-Timing", HTTP_NO_TIMING);
    return r;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    (void)mode; /* always static text */
    struct err e = ERR_INIT;
    char code[16];
    snprintf(code, sizeof code, "%d", (int)mistake(buffer, size, &e));
    struct MHD_Response *page = make_page(&e, NULL);
    if (page)
        MHD_add_response_header(page, PAGE_MARK, code);
    return page;
}

/* --- queueing it --- */

static enum MHD_Result (*queue)(struct MHD_Connection *, unsigned, struct MHD_Response *);

static void find_queue(void)
{
    void *p = dlsym(RTLD_NEXT, "MHD_queue_response");
    memcpy(&queue, &p, sizeof queue); /* what POSIX wants instead of a cast */
}

/* What the text did not tell. A request line and a header that are too long share theirs: the
 * status tells them apart. The line before a chunk that fills all memory without an end is the
 * client's mistake, not ours. */
static enum err_code second_look(const struct rq *q, unsigned status, enum err_code page_code,
                                 struct err *e)
{
    if (page_code == ERR_HEADERS_TOO_LARGE && status == 414)
        return err_set(e, ERR_URI_TOO_LONG, "the request target is too long");
    if (page_code == ERR_INTERNAL && q && q->chunked && q->stage != STAGE_START)
        return err_set(e, ERR_BAD_FRAMING, "the line before a chunk is too long");
    return ERR_OK;
}

static enum MHD_Result queue_page(struct MHD_Connection *connection, unsigned status,
                                  struct MHD_Response *made, enum err_code page_code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct conn *c = info ? info->socket_context : NULL;
    struct err e = ERR_INIT;
    struct rq *q = c ? c->rq : NULL;
    if (c)
        c->refused = true;
    enum err_code code = second_look(q, status, page_code, &e);
    struct MHD_Response *better = code ? make_page(&e, q ? q->r.id : NULL) : NULL;
    if (better)
        status = (unsigned)err_status(code);
    enum MHD_Result ok = queue(connection, status, better ? better : made);
    if (better)
        MHD_destroy_response(better);
    return ok;
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                   struct MHD_Response *response)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_queue);
    if (!queue)
        return MHD_NO;
    const char *mark = response ? MHD_get_response_header(response, PAGE_MARK) : NULL;
    if (!mark)
        return queue(connection, status, response);
    enum err_code code = (enum err_code)atoi(mark);
    char value[16];
    snprintf(value, sizeof value, "%s", mark);
    MHD_del_response_header(response, PAGE_MARK, value);
    return queue_page(connection, status, response, code);
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

bool http_is_length(const char *value, size_t n, bool *ret_huge)
{
    size_t zeros = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        zeros += zeros == i && value[i] == '0';
    }
    *ret_huge = n - zeros > 18;
    return n > 0;
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
    bool huge = false;
    if (kind == MHD_HEADER_KIND && key_size == 14 && !strncasecmp(key, "Content-Length", 14) &&
        (!http_is_length(l.value, l.value_size, &huge) || huge))
        return MHD_NO;
    if (value_ptr)
        *value_ptr = l.value;
    if (value_size_ptr)
        *value_size_ptr = l.value_size;
    return MHD_YES;
}
