/* Routing: finds the table row for a method and raw path. The table is short and the segments are
 * compared in place, so a linear search costs less than a hash. */
#include <stdio.h>
#include <string.h>

#include "server/http/http_impl.h"

/* Matches patterns such as "/v1/arrays/{ref}/data"; stores up to MAX_PATH_PARAMS segments. */
static bool match(const char *pattern, const char *path, const char **ret_at, size_t *ret_len,
                  int *ret_n)
{
    int n = 0;
    while (*pattern) {
        if (*pattern == '{') {
            size_t len = strcspn(path, "/");
            if (len == 0 || n == MAX_PATH_PARAMS)
                return false;
            ret_at[n] = path;
            ret_len[n++] = len;
            path += len;
            pattern = strchr(pattern, '}') + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    *ret_n = n;
    return *path == '\0';
}

struct allowed {
    char text[64];
    bool get;
};

static void allow(struct allowed *a, const char *method)
{
    if (strstr(a->text, method))
        return;
    size_t n = strlen(a->text), room = sizeof a->text - n;
    snprintf(a->text + n, room, "%s%s%s", n ? ", " : "", method,
             !strcmp(method, "GET") ? ", HEAD" : "");
}

void http_route(struct rq *q)
{
    struct request *r = &q->r;
    const char *method = q->head ? "GET" : r->method, *at[MAX_PATH_PARAMS];
    size_t len[MAX_PATH_PARAMS];
    struct allowed allowed = {0};
    for (size_t i = 0; i < q->http->calls.n_routes; i++) {
        const struct route *route = &q->http->calls.routes[i];
        int n;
        if (!match(route->pattern, r->path, at, len, &n))
            continue;
        if (strcmp(route->method, method) != 0) {
            allow(&allowed, route->method);
            continue;
        }
        for (int k = 0; k < n; k++) {
            r->param[k] = arena_strndup(r->arena, at[k], len[k]);
            if (!r->param[k]) {
                struct err e = ERR_INIT;
                err_oom(&e);
                http_reply_error(r, &e);
                return;
            }
        }
        r->route = route;
        return;
    }
    bool options = !strcmp(r->method, "OPTIONS");
    struct err e = ERR_INIT;
    if (r->path[0] != '/') { /* "OPTIONS *", or CONNECT, which has no path */
        http_add_header(r, "Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        if (options) {
            http_reply_empty(r, 204);
        } else {
            err_set(&e, ERR_METHOD_NOT_ALLOWED, "this is not a proxy");
            http_reply_error(r, &e);
        }
    } else if (!allowed.text[0]) {
        err_set(&e, ERR_NOT_FOUND, "there is nothing at this path");
        http_reply_error(r, &e);
    } else {
        allow(&allowed, "OPTIONS");
        http_add_header(r, "Allow", allowed.text);
        if (options) {
            http_cors_preflight(q);
            http_reply_empty(r, 204);
        } else {
            err_set(&e, ERR_METHOD_NOT_ALLOWED, "this path does not support %s, only: %s",
                    r->method, allowed.text);
            http_reply_error(r, &e);
        }
    }
}
