/* /v1/functions: defining, listing, deleting the functions that expressions may call.
 *
 * A definition is read like an expression and kept with its text in memory of its own. The reply is
 * written before the definition is entered, so that a change is never followed by an error. */
#include <stdio.h>
#include <string.h>

#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/function_json.h"
#include "server/body/request.h"
#include "server/server.h"
#include "server/store/auth.h"

static void functionp_unref(struct function **f)
{
    function_unref(*f);
}
#define _cleanup_function_ __attribute__((cleanup(functionp_unref)))

/* Checks everything but the calls of other functions. The caller gets the function's reference; the
 * definition lives with it. */
static enum err_code read_definition(struct request *req, const char *in_path,
                                     struct definition **ret, struct err *e)
{
    struct json body;
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "name", "params", "expr", "tree"));
    return function_json_read(req->server->config, body, in_path, ret, e);
}

static enum err_code define(struct request *req, const char *in_path, struct err *e)
{
    struct definition *d;
    bool replaced;
    TRY(request_plain(req, e));
    TRY(read_definition(req, in_path, &d, e));
    _cleanup_function_ struct function *f = d->function;
    _cleanup_strb_ struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    char location[32 + NAME_SIZE];
    snprintf(location, sizeof location, "/v1/functions/%s", f->name);
    function_json_put(&w, d);
    if (out.failed)
        return err_oom(e);
    TRY(functions_define(req->principal->functions, d, in_path != NULL, &replaced, e));
    f = NULL; /* the table has it */
    if (!replaced)
        http_add_header(req, "Location", location);
    http_reply_json(req, replaced ? 200 : 201, &out);
    return ERR_OK;
}

static enum err_code post(struct request *req, struct err *e)
{
    return define(req, NULL, e);
}

void function_post(struct request *req)
{
    request_try(req, post);
}

static enum err_code put(struct request *req, struct err *e)
{
    return define(req, req->param[0], e);
}

void function_put(struct request *req)
{
    request_try(req, put);
}

/* --- lists --- */

#define PAGE_BYTES (256u << 10) /* of the expressions on a page, which has one in any case */

static enum err_code get_page(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    page->n = functions_list(req->principal->functions, page->after, page->limit, PAGE_BYTES, ret,
                             &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *entry)
{
    function_json_put(w, *(struct definition *const *)entry);
}

static uint64_t number_of(const void *entry)
{
    return (*(struct definition *const *)entry)->seq;
}

static void release(void *entry)
{
    function_unref((*(struct definition **)entry)->function);
}

static void list(struct request *req)
{
    static const struct list list = {
        "functions", sizeof(struct definition *), get_page, put_entry, number_of, release,
    };
    list_reply(req, &list);
}

void function_list_get(struct request *req)
{
    http_offload(req, list);
}

void function_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct definition *d;
    if (request_plain(req, &e) != ERR_OK ||
        functions_get(req->principal->functions, req->param[0], &d, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    function_json_put(&w, d);
    function_unref(d->function);
    http_reply_json(req, 200, &out);
}

void function_delete(struct request *req)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    if (http_query_only(req, none, &e) != ERR_OK ||
        functions_delete(req->principal->functions, req->param[0], &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_empty(req, 204);
}
