/* A text is dropped as soon as it has been sent: between two events a stream has none, so that many
 * that rest take little. */
#include "server/live/events.h"

#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "protocol/wire/media.h"
#include "server/config/config.h"
#include "server/look/query.h"
#include "server/server.h"

#define MOST_INTERVAL 3600.0 /* seconds */

int64_t events_now(void)
{
    return (int64_t)clock_ms();
}

static int64_t pull(struct http_source *source, int64_t offset, char *buf, size_t n)
{
    struct events *s = (struct events *)source;
    (void)offset;
    if (s->sent == s->text.len) {
        if (s->over)
            return SOURCE_END;
        strb_free(&s->text);
        s->sent = 0;
        s->next(s);
        if (!s->text.len && atomic_exchange(&source->doubted, false))
            strb_add(&s->text, ":\n\n");
        if (s->text.failed)
            return -1;
        if (s->text.len)
            atomic_store(&s->comment_ms, events_now() + KEEP_ALIVE_MS);
        else if (s->over)
            return SOURCE_END;
    }
    const size_t k = s->text.len - s->sent < n ? s->text.len - s->sent : n;
    if (k)
        memcpy(buf, s->text.data + s->sent, k);
    s->sent += k;
    return (int64_t)k;
}

void *events_new(size_t size)
{
    struct events *s = mem_calloc(1, size);
    if (s)
        s->source = (struct http_source){.pull = pull, .free = events_free};
    return s;
}

void events_free(struct http_source *source)
{
    struct events *s = (struct events *)source;
    s->release(s);
    strb_free(&s->text);
    mem_free(s);
}

enum err_code events_asked(struct request *req, const char *const *query, double *ret_interval_ms,
                           struct err *e)
{
    static const enum media offer[] = {MEDIA_EVENTS};
    const double least = req->server->config->event_interval;
    enum media chosen;
    double seconds = least;
    bool given = false;
    TRY(http_query_only(req, query, e));
    TRY(media_negotiate(http_header(req, "Accept"), offer, 1, &chosen, e));
    TRY(query_number(req, "interval", &seconds, &given, e));
    if (given && (seconds < 0 || seconds > MOST_INTERVAL))
        return err_set(e, ERR_BAD_FIELD, "interval must be seconds, from 0 to %g", MOST_INTERVAL);
    *ret_interval_ms = (seconds < least ? least : seconds) * 1000;
    return ERR_OK;
}

void events_reply(struct request *req, struct events *take_s)
{
    http_add_header(req, "Cache-Control", "no-store");
    http_reply_source(req, 200, media_name(MEDIA_EVENTS), SOURCE_OPEN, &take_s->source);
}

struct json_writer events_open(struct events *s, const char *name, const char *id)
{
    strb_addf(&s->text, "event: %s\n", name);
    if (id)
        strb_addf(&s->text, "id: %s\n", id);
    strb_add(&s->text, "data: ");
    return JSON_WRITER(&s->text);
}

void events_close(struct events *s)
{
    strb_add(&s->text, "\n\n");
}

void events_end(struct events *s, const char *reason)
{
    struct json_writer w = events_open(s, "end", NULL);
    json_open_object(&w);
    json_put_member_string(&w, "reason", reason);
    json_close_object(&w);
    events_close(s);
    s->over = true;
}

bool events_stop(struct events *s)
{
    if (!atomic_load(&s->source.req->server->draining))
        return false;
    events_end(s, "stopping");
    return true;
}

void events_comment(struct events *s)
{
    if (events_now() >= atomic_load(&s->comment_ms))
        strb_add(&s->text, ":\n\n");
}

bool events_wait(const struct events *s)
{
    return events_now() < atomic_load(&s->due_ms) || http_source_unread(&s->source) > 0;
}

bool events_silent(const struct events *s)
{
    return events_now() >= atomic_load(&s->comment_ms);
}

bool events_due(const struct events *s)
{
    return events_silent(s) || atomic_load(&s->source.req->server->draining);
}

bool events_expired(struct http_source *source)
{
    struct events *s = (struct events *)source;
    if (s->over)
        return true;
    if (s->sent != s->text.len) /* in the middle of an event */
        return false;
    strb_free(&s->text);
    s->sent = 0;
    events_end(s, "login_ended");
    return true;
}
