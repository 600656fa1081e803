/* What streams of Server-Sent Events (WHATWG HTML, section 9.2) have in common: one text at a time
 * that is sent, the time between two, comments in between, and how they end.
 *
 * A struct events is the first member of a stream's own. next() is asked for a text whenever the
 * last one has been taken by the client's connection: so a client that reads slowly has one text
 * waiting for it, and nothing is made for one that does not take it. It runs on an HTTP thread, as
 * pull() of http_source; what says whether it would have something runs on another. */
#ifndef ARRAYD_SERVER_EVENTS_H
#define ARRAYD_SERVER_EVENTS_H

#include <stdatomic.h>

#include "compute/base/strb.h"
#include "protocol/json/json_writer.h"
#include "server/http/http.h"

#define KEEP_ALIVE_MS 15000

struct events {
    struct http_source source;
    struct strb text;               /* what is being sent */
    size_t sent;                    /* of it */
    bool over;                      /* it is the last */
    void (*next)(struct events *s); /* writes to `text`, perhaps nothing */
    void (*release)(struct events *s);
    double interval_ms;         /* at least, between two */
    _Atomic int64_t due_ms;     /* clock_ms: none before */
    _Atomic int64_t comment_ms; /* and a comment then */
};

/* Zeroed memory of `size` bytes that begins with one, whose next() and release() the caller sets.
 * NULL: no memory. */
void *events_new(size_t size);
void events_free(struct http_source *source); /* with all of it */

/* No query parameters but these, Accept, and ?interval=. ERR_BAD_QUERY, ERR_NOT_ACCEPTABLE,
 * ERR_BAD_FIELD. */
enum err_code events_asked(struct request *req, const char *const *query, double *ret_interval_ms,
                           struct err *e) must_check;
/* Replies with it, now and as long as it lasts. */
void events_reply(struct request *req, struct events *take_s);

/* An event, whose data is one line of JSON that is written between the two; id NULL: it has none.
 */
struct json_writer events_open(struct events *s, const char *name, const char *id);
void events_close(struct events *s);
/* The last one: why there are no more. */
void events_end(struct events *s, const char *reason);
/* For next(): the daemon stops, which is said; or nothing has been sent for long, which a comment
 * changes. */
bool events_stop(struct events *s);
void events_comment(struct events *s);

/* For next() and due(). */
int64_t events_now(void);
bool events_wait(const struct events *s);   /* it is too early for another, or the last is unread */
bool events_silent(const struct events *s); /* there is a comment to be sent */
/* As http_source.due, but for what is new: that, or the last event. */
bool events_due(const struct events *s);
/* As http_source.expired. */
bool events_expired(struct http_source *source);

#endif
