/* GET /v1/jobs/{id}/events: a job's progress.
 *
 * Each event is the job's JSON with the values recorded since the event before, or the first of
 * them if they are many: the rest follows at once, and so does the end, whatever the interval. The
 * last event is named "end", the others "progress".
 * An event is the last if the state it reports is an end state and all values have been sent; a job
 * that was resumed before the next event continues.
 *
 * The reply also ends when this process does and leaves the job to the next one.
 *
 * An event's id is how often the job has ended and how many values have been sent up to it. A
 * client that reconnects with it (browsers do so by themselves when the reply ends, with
 * Last-Event-ID) gets the events since then, or, if there are none and will be none, 204, after
 * which a browser does not reconnect. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/jobs/jobs.h"
#include "server/live/events.h"
#include "server/live/live.h"
#include "server/server.h"

struct progress {
    struct events events;
    struct user_job *job; /* a reference */
    struct job_watch watch;
    _Atomic uint64_t revision;  /* of the event sent last */
    int64_t values;             /* sent so far */
    bool begun, more, watching; /* more: values did not fit in the last event */
};

static void wake(void *user)
{
    struct progress *s = user;
    http_source_wake(&s->events.source);
}

static void put_event(struct progress *s, uint64_t revision)
{
    _cleanup_strb_ struct strb data = {0}; /* the job: whether it is the last event is known then */
    struct json_writer w = JSON_WRITER(&data);
    struct job_seen seen;
    char id[48];
    s->values = job_put(s->job, s->values, job_values_soon(s->job), JOB_TELL_NOTHING, &w, &seen);
    s->more = s->values < seen.values;
    s->events.over = seen.ended && !s->more;
    snprintf(id, sizeof id, "%" PRIu64 ".%" PRId64, seen.ends, s->values);
    w = events_open(&s->events, s->events.over ? "end" : "progress", id);
    json_put_raw(&w, data.data, data.len);
    events_close(&s->events);
    s->events.text.failed |= data.failed;
    atomic_store(&s->revision, revision);
    atomic_store(&s->events.due_ms, events_now() + (int64_t)s->events.interval_ms);
    s->begun = true;
}

static bool is_new(const struct progress *s)
{
    return job_revision(s->job) != atomic_load(&s->revision);
}

/* The end of this process does not end the stream before it has told what the job comes to. */
static bool due(const struct http_source *source)
{
    const struct progress *s = (const struct progress *)source;
    return events_silent(&s->events) || (is_new(s) && !events_wait(&s->events));
}

/* The next event, or nothing yet. */
static void next(struct events *events)
{
    struct progress *s = (struct progress *)events;
    if (!s->watching) { /* from here on the source can be woken */
        s->watching = true;
        job_watch(s->job, &s->watch);
    }
    const uint64_t revision = job_revision(s->job);
    if (!s->begun || s->more || (is_new(s) && (!events_wait(events) || job_ended(s->job))))
        put_event(s, revision);
    else
        events_comment(events);
    if (!events->text.len && job_left(s->job)) /* the client comes back to the next process */
        events->over = true;
}

static void release(struct events *events)
{
    struct progress *s = (struct progress *)events;
    if (s->watching)
        job_unwatch(s->job, &s->watch);
    job_unref(s->job);
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
static bool go_on(struct progress *s, const char *last_id)
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

static enum err_code begin(struct request *req, struct progress **ret, struct err *e)
{
    static const char *const no_query[] = {NULL};
    double interval_ms;
    struct user_job *j;
    TRY(events_asked(req, no_query, &interval_ms, e));
    TRY(jobs_find(req->server->jobs, req->principal, req->param[0], &j, e));
    struct progress *s = events_new(sizeof *s);
    if (!s) {
        job_unref(j);
        return err_oom(e);
    }
    s->events.next = next;
    s->events.release = release;
    s->events.source.due = due;
    s->events.interval_ms = interval_ms;
    atomic_store(&s->events.comment_ms, events_now() + KEEP_ALIVE_MS);
    s->job = j;
    s->watch = (struct job_watch){.wake = wake, .user = s};
    *ret = s;
    return ERR_OK;
}

void job_events_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct progress *s;
    if (begin(req, &s, &e) != ERR_OK) {
        http_reply_error(req, &e);
    } else if (go_on(s, http_header(req, "Last-Event-ID"))) {
        events_free(&s->events.source);
        http_reply_empty(req, 204);
    } else {
        events_reply(req, &s->events);
    }
}
