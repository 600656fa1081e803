/* CORS: pages of other origins that may send requests, each origin configured in full.
 *
 * A browser shows a page a reply from another origin only if the reply allows it, and asks
 * beforehand (OPTIONS) about everything but plain reads. Origins are listed one by one: with '*'
 * any page open in a browser on this machine could use the daemon. Credentials are a header that
 * the page sets, never the browser's own, so Allow-Credentials is not sent. */
#include <string.h>
#include <strings.h>

#include "server/http/http_impl.h"

enum err_code http_cors_check(const struct http_config *c, struct err *e)
{
    for (size_t i = 0; i < c->n_cors_origins; i++) {
        const char *origin = c->cors_origins[i], *rest = strstr(origin, "://");
        bool known =
            rest && (!strncasecmp(origin, "http://", 7) || !strncasecmp(origin, "https://", 8));
        if (!strcmp(origin, "*"))
            return err_set(e, ERR_BAD_FIELD,
                           "cors-origin: list the origins one by one: '*' would let every web page "
                           "that a user opens use the daemon");
        if (!known || !rest[3] || strpbrk(rest + 3, "/?#@*, \t"))
            return err_set(e, ERR_BAD_FIELD,
                           "cors-origin: '%.100s' is not an origin like https://app.example or "
                           "http://localhost:8080",
                           origin);
    }
    return ERR_OK;
}

bool http_cors(struct rq *q, const char *origin)
{
    const struct http_config *c = &q->http->config;
    for (size_t i = 0; i < c->n_cors_origins; i++)
        if (!strcasecmp(c->cors_origins[i], origin)) {
            http_add_header(&q->r, "Access-Control-Allow-Origin", origin);
            http_add_header(&q->r, "Access-Control-Expose-Headers",
                            "Accept-Ranges, Allow, Arrayd-Range, Content-Range, ETag, Location, "
                            "Retry-After, Server-Timing, WWW-Authenticate, X-Request-Id");
            q->cors = true;
            return true;
        }
    return false;
}

void http_cors_preflight(struct rq *q)
{
    if (!q->cors || !http_header(&q->r, "Access-Control-Request-Method"))
        return;
    http_add_header(&q->r, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
    http_add_header(&q->r, "Access-Control-Allow-Headers",
                    "Accept, Arrayd-Lease, Arrayd-Session, Authorization, Content-Type, If-Match, "
                    "If-None-Match, If-Range, Last-Event-ID, Prefer, Range, X-Request-Id, "
                    "traceparent");
    http_add_header(&q->r, "Access-Control-Max-Age", "600");
}
