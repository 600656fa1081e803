/* GET /v1/jobs/{id}/events: a job's progress as Server-Sent Events (WHATWG HTML, section 9.2).
 *
 * Each event is the job's JSON with the values recorded since the event before, or the first of
 * them if they are many: the rest follows at once. Otherwise at least EVENT_MS pass between two
 * events, unless the job ends; if nothing changes for a tick of the job table, a comment keeps the
 * connection from being considered dead. The last event is named "end", the others "progress". An
 * event is the last if the state it reports is an end state and all values have been sent; a job
 * that was resumed before the next event continues.
 *
 * The reply also ends when this process does and leaves the job to the next one.
 *
 * An event's id is how often the job has ended and how many values have been sent up to it. A
 * client that reconnects with it (browsers do so by themselves when the reply ends, with
 * Last-Event-ID) gets the events since then, or, if there are none and will be none, 204, after
 * which a browser does not reconnect. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "protocol/wire/media.h"
#include "server/api/handlers.h"
#include "server/body/request.h"
#include "server/jobs/jobs.h"
#include "server/server.h"

#define EVENT_MS 100

struct events {
    struct http_source source;
    struct user_job *job; /* a reference */
    struct job_watch watch;
    struct strb text; /* the text being sent */
    struct strb data; /* the job in it */
    size_t sent;
    uint64_t revision;                /* of the event sent last */
    int64_t values;                   /* sent so far */
    double at;                        /* clock_ms of the last event or comment */
    bool begun, more, over, watching; /* more: values did not fit in the last event */
};

static void wake(void *user)
{
    struct events *s = user;
    http_source_wake(&s->source);
}

static void put_event(struct events *s, uint64_t revision)
{
    struct json_writer w = JSON_WRITER(&s->data);
    struct job_seen seen;
    strb_reset(&s->data);
    s->values = job_put(s->job, s->values, job_values_soon(s->job), &w, &seen);
    s->more = s->values < seen.values;
    s->over = seen.ended && !s->more;
    strb_addf(&s->text,
              "event: %s\nid: %" PRIu64 ".%" PRId64 "\ndata: ", s->over ? "end" : "progress",
              seen.ends, s->values);
    strb_addn(&s->text, s->data.data, s->data.len);
    strb_add(&s->text, "\n\n");
    s->text.failed |= s->data.failed;
    s->revision = revision;
    s->begun = true;
    s->at = clock_ms();
}

/* The next event, or nothing yet. False without memory. */
static bool make_text(struct events *s)
{
    double now = clock_ms();
    uint64_t revision = job_revision(s->job);
    bool is_new = !s->begun || s->more || revision != s->revision;
    strb_reset(&s->text);
    s->sent = 0;
    if (is_new && (!s->begun || s->more || now - s->at >= EVENT_MS || job_ended(s->job))) {
        put_event(s, revision);
    } else if (!is_new && now - s->at >= EVENT_MS) {
        strb_add(&s->text, ":\n\n");
        s->at = now;
    }
    return !s->text.failed;
}

static int64_t pull(struct http_source *source, int64_t offset, char *buf, size_t n)
{
    struct events *s = (struct events *)source;
    (void)offset;
    if (!s->watching) { /* from here on the source can be woken */
        s->watching = true;
        job_watch(s->job, &s->watch);
    }
    if (s->sent == s->text.len) {
        if (s->over)
            return SOURCE_END;
        if (!make_text(s))
            return -1;
        if (!s->text.len && job_rests(s->job)) /* the client comes back to the next process */
            return SOURCE_END;
    }
    size_t k = s->text.len - s->sent < n ? s->text.len - s->sent : n;
    if (k)
        memcpy(buf, s->text.data + s->sent, k);
    s->sent += k;
    return (int64_t)k;
}

static void events_free(struct http_source *source)
{
    struct events *s = (struct events *)source;
    if (s->watching)
        job_unwatch(s->job, &s->watch);
    job_unref(s->job);
    strb_free(&s->text);
    strb_free(&s->data);
    mem_free(s);
}

static const char *read_number(const char *text, uint64_t *ret)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    *ret = strtoull(text, &end, 10);
    return end;
}

/* Continues after the last event that the client received, if it is this job's. Returns whether
 * there is nothing more to send. */
static bool go_on(struct events *s, const char *last_id)
{
    uint64_t ends, values;
    const char *dot = last_id ? read_number(last_id, &ends) : NULL;
    const char *rest = dot && *dot == '.' ? read_number(dot + 1, &values) : NULL;
    struct job_seen seen;
    job_look(s->job, &seen);
    if (!rest || *rest || ends > seen.ends || values > (uint64_t)seen.values)
        return false;
    s->values = (int64_t)values;
    return seen.ended && ends == seen.ends && s->values == seen.values;
}

static enum err_code begin(struct request *req, struct events **ret, struct err *e)
{
    static const char *const no_query[] = {NULL};
    static const enum media offer[] = {MEDIA_EVENTS};
    enum media chosen;
    struct user_job *j;
    TRY(http_query_only(req, no_query, e));
    TRY(media_negotiate(http_header(req, "Accept"), offer, 1, &chosen, e));
    TRY(jobs_find(req->server->jobs, req->principal, req->param[0], &j, e));
    struct events *s = mem_calloc(1, sizeof *s);
    if (!s) {
        job_unref(j);
        return err_oom(e);
    }
    s->source = (struct http_source){.pull = pull, .free = events_free};
    s->job = j;
    s->watch = (struct job_watch){.wake = wake, .user = s};
    *ret = s;
    return ERR_OK;
}

void job_events_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct events *s;
    if (begin(req, &s, &e) != ERR_OK) {
        http_reply_error(req, &e);
    } else if (go_on(s, http_header(req, "Last-Event-ID"))) {
        events_free(&s->source);
        http_reply_empty(req, 204);
    } else {
        http_add_header(req, "Cache-Control", "no-store");
        http_reply_source(req, 200, "text/event-stream", SOURCE_OPEN, &s->source);
    }
}
