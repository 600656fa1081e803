/* A browser asks again before it uses a file that it has kept (no-cache) and mostly gets a 304: the
 * names of the files stay the same when the daemon is upgraded, and a page must not be put together
 * of two versions.
 *
 * The policy lets the page load and ask nothing but this daemon, and run and look like nothing but
 * its own files, so text from users that got into its document as HTML could neither run nor send
 * anything. Pictures may also come from memory (blob:, data:). */
#include "server/page/page.h"

#include "server/body/condition.h"
#include "server/config/config.h"
#include "server/page/asset.h"
#include "server/server.h"

#define INDEX "index.html"
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "        \
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"

static void add_headers(struct request *req, const char *etag)
{
    http_add_header(req, "ETag", etag);
    http_add_header(req, "Cache-Control", "no-cache");
    http_add_header(req, "Vary", "Accept-Encoding");
    http_add_header(req, "Content-Security-Policy", POLICY);
    http_add_header(req, "X-Content-Type-Options", "nosniff");
    http_add_header(req, "Referrer-Policy", "no-referrer");
}

static enum err_code serve(struct request *req, const char *name, struct err *e)
{
    static const char *const none[] = {NULL};
    const struct asset *a = asset_find(page_assets, page_assets_n, name);
    if (!req->server->config->page)
        return err_set(e, ERR_NOT_FOUND, "this daemon serves no page: see the setting page");
    if (!a)
        return err_set(e, ERR_NOT_FOUND, "the page has no file '%.80s'", name);
    TRY(http_query_only(req, none, e));
    const bool packed = a->packed && asset_takes_gzip(http_header(req, "Accept-Encoding"));
    const char *none_match = http_header(req, "If-None-Match");
    char etag[ASSET_TAG];
    asset_tag(a, packed, etag);
    add_headers(req, etag);
    if (none_match && etag_listed(none_match, etag, false)) {
        http_reply_empty(req, 304);
        return ERR_OK;
    }
    if (packed)
        http_add_header(req, "Content-Encoding", "gzip");
    struct strb out = {0};
    strb_addn(&out, (const char *)(packed ? a->packed : a->plain),
              packed ? a->n_packed : a->n_plain);
    http_reply_text(req, 200, a->type, &out);
    return ERR_OK;
}

static void serve_or_say(struct request *req, const char *name)
{
    struct err e = ERR_INIT;
    if (serve(req, name, &e) != ERR_OK)
        http_reply_error(req, &e);
}

void page_get(struct request *req)
{
    serve_or_say(req, INDEX);
}

void page_file_get(struct request *req)
{
    serve_or_say(req, req->param[0]);
}
