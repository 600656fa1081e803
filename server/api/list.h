/* Lists with pages: GET /v1/arrays, /v1/sessions, /v1/jobs and /v1/functions.
 *
 * A handler says what its entries are and how they are printed; the rest is shared. Entries live in
 * the request's arena. Used by the thread that works on the request. */
#ifndef ARRAYD_SERVER_LIST_H
#define ARRAYD_SERVER_LIST_H

#include "protocol/json/json_writer.h"
#include "server/http/http.h"

struct page {
    uint64_t after; /* the number of the previous page's last entry */
    size_t limit;
    size_t n;  /* entries on this page */
    bool more; /* more follow */
};

struct list {
    const char *member; /* of the reply, for example "arrays" */
    size_t entry_size;
    /* Up to page->limit entries after page->after, oldest first. */
    enum err_code (*get)(struct request *req, struct page *page, void *ret, struct err *e);
    void (*put)(struct json_writer *w, const void *entry);
    uint64_t (*number)(const void *entry);
    void (*release)(void *entry);
    const char *query; /* a further parameter, which `get` reads; NULL: none */
    bool tagged;       /* pages have entity tags: 304 if the client has the page */
};

/* Replies with the page that ?limit= and ?after= ask for, or with the error. */
void list_reply(struct request *req, const struct list *list);

#endif
