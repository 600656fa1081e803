/* /v1/programs and /v1/jobs: beginning a program, looking at it, ending it.
 *
 * Who waits for a job's end (`?wait=1`, DELETE) is woken when the job changes and looks again; the
 * watch is given back with the request, whatever becomes of it. */
#include <stdio.h>
#include <string.h>

#include "server/gate.h"
#include "server/handlers.h"
#include "server/jobs.h"
#include "server/program_body.h"

static void reply_job(struct request *req, int status, struct user_job *j)
{
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    job_put(j, 0, &w);
    http_reply_json(req, status, &out);
}

/* --- waiting for the end --- */

struct waiting {
    struct user_job *job; /* a reference */
    struct job_watch watch;
    struct gate gate;
    int status; /* of the reply at the end */
};

static void stop_waiting(void *state)
{
    struct waiting *w = state;
    job_unwatch(w->job, &w->watch);
    job_unref(w->job);
}

static void look(struct request *req)
{
    struct waiting *w = req->state;
    gate_arm(&w->gate);
    if (job_ended(w->job))
        reply_job(req, w->status, w->job);
    else
        gate_wait(&w->gate, look);
}

/* Takes the reference. */
static void wait_for_end(struct request *req, struct user_job *take_j, int status)
{
    struct waiting *w = arena_alloc(req->arena, sizeof *w);
    if (!w) {
        struct err e = ERR_INIT;
        job_unref(take_j);
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    gate_init(&w->gate, req);
    w->job = take_j;
    w->status = status;
    w->watch = (struct job_watch){.wake = gate_wake, .user = &w->gate};
    req->state = w;
    req->state_free = stop_waiting;
    job_watch(take_j, &w->watch);
    look(req);
}

/* --- programs --- */

static enum err_code wants_wait(struct request *req, bool *ret, struct err *e)
{
    const char *v = http_query(req, "wait");
    *ret = v && !strcmp(v, "1");
    return !v || *ret || !strcmp(v, "0")
               ? ERR_OK
               : err_set(e, ERR_BAD_QUERY, "wait is 1 or 0, not '%.20s'", v);
}

void program_post(struct request *req)
{
    static const char *const query[] = {"wait", NULL};
    struct err e = ERR_INIT;
    struct json given;
    struct program_body body;
    struct user_job *j;
    bool wait;
    uint64_t begun = http_now_ns();
    enum err_code c = http_query_only(req, query, &e);
    if (!c)
        c = wants_wait(req, &wait, &e);
    if (!c)
        c = handler_accepts_json(req, &e);
    if (!c)
        c = handler_body(req, false, &given, &e);
    if (!c)
        c = program_body_read(req, given, false, &body, &e);
    http_took(&req->t_parse, begun);
    if (!c) {
        c = jobs_start(req->server->jobs, &body.job, &j, &e);
        if (c)
            program_body_clear(&body);
    }
    if (c) {
        http_reply_error(req, &e);
        return;
    }
    char location[32 + ID_SIZE];
    snprintf(location, sizeof location, "/v1/jobs/%s", job_id(j));
    http_add_header(req, "Location", location);
    if (wait) {
        wait_for_end(req, j, 200);
        return;
    }
    reply_job(req, 202, j);
    job_unref(j);
}

/* --- jobs --- */

void job_list_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct page page;
    struct user_job **j = NULL;
    enum err_code c = handler_page(req, &page, &e);
    if (!c)
        c = handler_accepts_json(req, &e);
    if (!c && !(j = arena_alloc_array(req->arena, page.limit, sizeof(struct user_job *))))
        c = err_oom(&e);
    if (c) {
        http_reply_error(req, &e);
        return;
    }
    bool more;
    size_t n = jobs_list(req->server->jobs, req->principal, page.after, page.limit, j, &more);
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_key(&w, "jobs");
    json_open_list(&w);
    for (size_t i = 0; i < n; i++)
        job_put(j[i], JOB_NO_VALUES, &w);
    json_close_list(&w);
    if (more) {
        char next[24];
        snprintf(next, sizeof next, "%llu", (unsigned long long)job_seq(j[n - 1]));
        json_put_member_string(&w, "next", next);
    }
    json_close_object(&w);
    for (size_t i = 0; i < n; i++)
        job_unref(j[i]);
    http_reply_json(req, 200, &out);
}

static struct user_job *find(struct request *req)
{
    struct err e = ERR_INIT;
    struct user_job *j = NULL;
    if (handler_plain(req, &e) == ERR_OK &&
        jobs_find(req->server->jobs, req->principal, req->param[0], &j, &e) == ERR_OK)
        return j;
    http_reply_error(req, &e);
    return NULL;
}

void job_get(struct request *req)
{
    struct user_job *j = find(req);
    if (j)
        reply_job(req, 200, j);
    job_unref(j);
}

void job_delete(struct request *req)
{
    struct err e = ERR_INIT;
    struct user_job *j = find(req);
    if (!j)
        return;
    if (!job_ended(j)) {
        job_cancel(j);
        wait_for_end(req, j, 200);
        return;
    }
    if (job_remove(j, &e) == ERR_OK)
        http_reply_empty(req, 204);
    else
        http_reply_error(req, &e);
    job_unref(j);
}

void job_resume_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct user_job *j = find(req);
    if (!j)
        return;
    if (job_resume(j, &e) == ERR_OK)
        reply_job(req, 202, j);
    else
        http_reply_error(req, &e);
    job_unref(j);
}
