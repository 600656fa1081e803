/* /v1/programs and /v1/jobs: starting programs, reading and ending jobs.
 *
 * A request that waits for a job's end (`?wait=1`, DELETE) is woken when the job changes and checks
 * again; the watch is released with the request in any case. A worker prints replies with many
 * values. */
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/culprit/culprit.h"
#include "compute/program/program.h"
#include "server/admin/audit.h"
#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/program_body.h"
#include "server/body/request.h"
#include "server/http/wakeup.h"
#include "server/jobs/jobs.h"
#include "server/login/logins.h"

/* --- a job in the reply --- */

struct answer {
    struct user_job *job; /* a reference */
    int status, late;     /* late: while the job is running */
    bool watching;        /* for the end after the first `ends`: */
    uint64_t ends;
    struct job_watch watch;
    struct wakeup wakeup;
};

static void answer_free(void *state)
{
    struct answer *a = state;
    if (a->watching)
        job_unwatch(a->job, &a->watch);
    job_unref(a->job);
}

/* A read-only link shows how a job goes; what the program is was not what its maker showed, unless
 * it shows everything. */
static enum job_telling told_of(const struct request *req)
{
    const struct login_terms *terms = req->login ? login_terms(req->login) : NULL;
    return terms && terms->link && !terms->whole ? JOB_TELL_NOTHING : JOB_TELL_WHOLE;
}

static void print(struct request *req)
{
    const struct answer *a = req->state;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    job_measure(a->job);
    job_put(a->job, 0, INT64_MAX, told_of(req), &w, NULL);
    http_reply_json(req, a->status, &out);
}

static void reply(struct request *req)
{
    const struct answer *a = req->state;
    if (job_values(a->job) > job_values_soon(a->job))
        http_offload_long(req, print);
    else
        print(req);
}

static void look_late(struct request *req);

static void look(struct request *req)
{
    struct answer *a = req->state;
    if (a->watching)
        wakeup_arm(&a->wakeup);
    if (a->watching && !job_ended(a->job) && job_ends(a->job) == a->ends) {
        if (job_left(a->job))
            look_late(req);
        else
            wakeup_wait(&a->wakeup, look);
    } else {
        reply(req);
    }
}

/* The client's waiting time is over: replies with the job as it is. */
static void look_late(struct request *req)
{
    struct answer *a = req->state;
    if (!job_ended(a->job))
        a->status = a->late;
    reply(req);
}

/* Replies with the job as it is now, or (`at_end`) when it has ended more often than `ends`: it may
 * be resumed at once. late: the status if it has not ended in time; 0: there is no time limit. The
 * job itself continues, whatever happens to the request. Takes the reference. */
static void reply_job(struct request *req, int status, int late, struct user_job *take_j,
                      bool at_end, uint64_t ends)
{
    struct answer *a = request_begin(req, sizeof *a, answer_free);
    if (!a) {
        job_unref(take_j);
        return;
    }
    a->job = take_j;
    a->status = status;
    a->late = late;
    a->watching = at_end;
    a->ends = ends;
    if (at_end) {
        http_may_end(req, look_late);
        if (!late)
            req->late = NULL;
        wakeup_init(&a->wakeup, req);
        a->watch = (struct job_watch){.wake = wakeup_ring, .user = &a->wakeup};
        job_watch(take_j, &a->watch);
    }
    look(req);
}

/* --- programs --- */

enum err_code job_wants_wait(struct request *req, bool *ret, struct err *e)
{
    static const char *const query[] = {"wait", NULL};
    TRY(http_query_only(req, query, e));
    const char *v = http_query(req, "wait");
    *ret = v && !strcmp(v, "1");
    if (v && !*ret && strcmp(v, "0") != 0)
        return err_set(e, ERR_BAD_QUERY, "wait must be 1 or 0, not '%.20s'", v);
    return request_accepts_json(req, e);
}

void job_reply_begun(struct request *req, struct user_job *take_j, bool wait)
{
    char location[32 + ID_SIZE];
    snprintf(location, sizeof location, "/v1/jobs/%s", job_id(take_j));
    http_add_header(req, "Location", location);
    reply_job(req, wait ? 200 : 202, 202, take_j, wait, job_ends(take_j));
}

static enum err_code read_and_start(struct request *req, struct user_job **ret, bool *ret_wait,
                                    struct err *e)
{
    struct json given;
    struct program_body body;
    uint64_t begun = clock_ns();
    TRY(culprits_admit(req->server->culprits, req->principal->name, e));
    TRY(job_wants_wait(req, ret_wait, e));
    TRY(request_body(req, false, &given, e));
    enum err_code code = program_body_read(req, given, false, &body, e);
    http_took(&req->t_parse, begun);
    if (code != ERR_OK)
        return code;
    int64_t first;
    code = program_first_slice(body.program, 0, body.steps, JOB_SLICE, &first, e);
    if (code == ERR_OK)
        code = jobs_start(req->server->jobs, &body, first, ret, e);
    if (code != ERR_OK)
        program_body_clear(&body);
    return code;
}

/* On a worker: checking statements that call long functions, and making their kernels, takes
 * long. */
static void begin(struct request *req)
{
    struct err e = ERR_INIT;
    struct user_job *j;
    bool wait;
    if (read_and_start(req, &j, &wait, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    job_reply_begun(req, j, wait);
}

void program_post(struct request *req)
{
    http_may_end(req, NULL);
    http_offload_long(req, begin);
}

/* --- jobs --- */

static enum err_code get_page(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    page->n =
        jobs_list(req->server->jobs, req->principal, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *entry)
{
    job_put(*(struct user_job *const *)entry, JOB_NO_VALUES, 0, JOB_TELL_BRIEF, w, NULL);
}

static uint64_t number_of(const void *entry)
{
    return job_seq(*(struct user_job *const *)entry);
}

static void release(void *entry)
{
    job_unref(*(struct user_job **)entry);
}

void job_list_get(struct request *req)
{
    static const struct list list = {
        "jobs", sizeof(struct user_job *), get_page, put_entry, number_of, release,
    };
    list_reply(req, &list);
}

/* ret_wait: NULL if the request cannot wait. */
static struct user_job *find(struct request *req, bool *ret_wait)
{
    struct err e = ERR_INIT;
    struct user_job *j = NULL;
    if ((ret_wait ? job_wants_wait(req, ret_wait, &e) : request_plain(req, &e)) == ERR_OK &&
        jobs_find(req->server->jobs, req->principal, req->param[0], &j, &e) == ERR_OK)
        return j;
    http_reply_error(req, &e);
    return NULL;
}

void job_get(struct request *req)
{
    bool wait;
    struct user_job *j = find(req, &wait);
    if (j)
        reply_job(req, 200, 200, j, wait, job_ends(j));
}

/* Cancels the job, or forgets it once it has ended; the reference is taken. */
static void end_job(struct request *req, struct user_job *j)
{
    struct err e = ERR_INIT;
    if (!job_ended(j)) {
        const uint64_t ends = job_ends(j);
        job_cancel(j);
        reply_job(req, 200, 0, j, true, ends);
        return;
    }
    if (job_remove(j, &e) == ERR_OK)
        http_reply_empty(req, 204);
    else
        http_reply_error(req, &e);
    job_unref(j);
}

void job_delete(struct request *req)
{
    struct user_job *j = find(req, NULL);
    if (j)
        end_job(req, j);
}

/* Of everybody's jobs. */
void admin_job_delete(struct request *req)
{
    struct err e = ERR_INIT;
    struct user_job *j = NULL;
    if (request_plain(req, &e) == ERR_OK &&
        jobs_find(req->server->jobs, NULL, req->param[0], &j, &e) == ERR_OK) {
        audit_did(req->server->audit, req, job_ended(j) ? "delete_job" : "cancel_job", ERR_OK,
                  "%s/%s", job_owner(j), job_id(j));
        end_job(req, j);
        return;
    }
    audit_did(req->server->audit, req, "delete_job", e.code, "%.80s", req->param[0]);
    http_reply_error(req, &e);
}

void job_resume_post(struct request *req)
{
    struct err e = ERR_INIT;
    bool wait;
    struct user_job *j = find(req, &wait);
    if (!j)
        return;
    if (job_resume(j, &e) == ERR_OK) {
        reply_job(req, wait ? 200 : 202, 202, j, wait, job_ends(j));
        return;
    }
    http_reply_error(req, &e);
    job_unref(j);
}
