/* A page's entries are fetched at once and printed one after the other; if there are more, the page
 * ends with "next", the number of its last entry. */
#include "server/api/list.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "server/body/condition.h"
#include "server/body/request.h"

/* Parses all of `s` as a decimal number up to `max`. */
static bool decimal(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (max - (uint64_t)(*s - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *ret = v;
    return true;
}

static enum err_code read_page(struct request *req, const struct list *l, struct page *ret,
                               struct err *e)
{
    const char *const allowed[] = {"limit", "after", l->query, NULL};
    TRY(http_query_only(req, allowed, e));
    uint64_t limit = LIST_LIMIT;
    const char *text = http_query(req, "limit");
    if (text && (!decimal(text, LIST_MAX, &limit) || limit == 0))
        return err_set(e, ERR_BAD_FIELD, "'limit' must be an integer from 1 to %d", LIST_MAX);
    struct page page = {.after = LIST_FROM_TOP, .limit = (size_t)limit};
    text = http_query(req, "after");
    if (text && !decimal(text, UINT64_MAX, &page.after))
        return err_set(e, ERR_BAD_FIELD, "'after' must be the 'next' value of an earlier page");
    *ret = page;
    return ERR_OK;
}

static enum err_code get(struct request *req, const struct list *l, struct page *page,
                         char **ret_entries, struct err *e)
{
    TRY(read_page(req, l, page, e));
    TRY(request_accepts_json(req, e));
    *ret_entries = arena_alloc_array(req->arena, page->limit, l->entry_size);
    return *ret_entries ? l->get(req, page, *ret_entries, e) : err_oom(e);
}

/* The tag is of the text: it says nothing of the entries but that they are the same. */
static bool has_it(struct request *req, const struct strb *text)
{
    struct sha256_ctx sum;
    uint8_t digest[16];
    char etag[2 * sizeof digest + 3] = "\"";
    sha256_init(&sum);
    sha256_update(&sum, text->len, (const uint8_t *)text->data);
    sha256_digest(&sum, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(etag + 1 + 2 * i, 3, "%02x", digest[i]);
    strcat(etag, "\"");
    http_add_header(req, "ETag", etag);
    const char *have = http_header(req, "If-None-Match");
    return have && etag_listed(have, etag, false);
}

void list_reply(struct request *req, const struct list *l)
{
    struct err e = ERR_INIT;
    struct page page;
    char *entries;
    if (get(req, l, &page, &entries, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_key(&w, l->member);
    json_open_list(&w);
    for (size_t i = 0; i < page.n; i++)
        l->put(&w, entries + i * l->entry_size);
    json_close_list(&w);
    if (page.more) {
        char next[24];
        snprintf(next, sizeof next, "%" PRIu64, l->number(entries + (page.n - 1) * l->entry_size));
        json_put_member_string(&w, "next", next);
    }
    json_close_object(&w);
    for (size_t i = 0; i < page.n; i++)
        l->release(entries + i * l->entry_size);
    if (l->tagged && !out.failed && has_it(req, &out)) {
        strb_free(&out);
        http_reply_empty(req, 304);
    } else {
        http_reply_json(req, 200, &out);
    }
}
