/*
 * Programs and the jobs that run them.
 *
 * Waiting is done by the daemon, which holds its reply until the job has ended or the time of
 * "Prefer: wait" is over. That time is whole seconds and bounded by the operator, so that a wait is
 * a loop of such requests; for what is left of a second the job is looked at now and then.
 */
#include "clients/c/src/jobs.h"

#include <string.h>
#include <time.h>

#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

#define LONGEST_WAIT_S 60
#define PAUSE_S        0.02

static bool read_state(const char *name, enum arrayd_state *ret)
{
    static const char *const names[] = {[ARRAYD_QUEUED] = "queued",
                                        [ARRAYD_RUNNING] = "running",
                                        [ARRAYD_DONE] = "done",
                                        [ARRAYD_FAILED] = "failed",
                                        [ARRAYD_CANCELLED] = "cancelled"};
    for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(name, names[i])) {
            *ret = (enum arrayd_state)i;
            return true;
        }
    }
    return false;
}

bool jobs_read(const struct cJSON *tree, struct arrayd_job *ret)
{
    struct arrayd_job job = {.eta_s = -1, .failed_step = -1, .failed_statement = -1};
    json_real(tree, "eta_s", &job.eta_s);
    json_i64(tree, "failed_step", &job.failed_step);
    json_i64(tree, "failed_statement", &job.failed_statement);
    job.stopped_by_until = json_get(tree, "stopped_by");
    error_from_problem(&job.error, json_get(tree, "error"));
    if (!members_copy(tree, "id", job.id, sizeof(job.id)) || !job.id[0] ||
        !read_state(json_string(tree, "state"), &job.state) || !json_i64(tree, "step", &job.step) ||
        !json_i64(tree, "steps", &job.steps) || !json_real(tree, "steps_per_s", &job.steps_per_s) ||
        !json_real(tree, "elapsed_s", &job.elapsed_s) ||
        !json_real(tree, "device_s", &job.device_s))
        return false;
    *ret = job;
    return true;
}

static int job_reply(struct arrayd *client, struct exchange *x, struct arrayd_job *ret_job,
                     struct arrayd_error *err)
{
    struct cJSON *tree;
    struct arrayd_job job;
    if (exchange_json(client, x, &tree, err))
        return -1;
    bool ok = jobs_read(tree, &job);
    json_free(tree);
    if (!ok)
        return error_set(err, "bad_result", "the reply does not describe a job");
    if (ret_job)
        *ret_job = job;
    return 0;
}

int jobs_start(struct arrayd *client, const char *target, const char *json,
               struct arrayd_job *ret_job, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    text_puts(&x.target, target);
    text_puts(&x.json, json ? json : "");
    if (!json)
        x.refused = "the body is missing";
    return job_reply(client, &x, ret_job, err);
}

int arrayd_program_start_json(struct arrayd *client, const char *json, struct arrayd_job *ret_job,
                              struct arrayd_error *err)
{
    return jobs_start(client, "/v1/programs", json, ret_job, err);
}

int arrayd_program_start(struct arrayd *client, const struct arrayd_program *program,
                         struct arrayd_job *ret_job, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    text_puts(&x.target, "/v1/programs");
    text_puts(&x.json, "{");
    members_strings(&x.json, "body", program->body, program->body_count);
    members_integer(&x.json, "steps", program->steps);
    members_binds(&x.json, program->binds, program->bind_count);
    if (program->record_count) {
        text_member(&x.json, "record");
        text_puts(&x.json, "{");
        for (size_t i = 0; i < program->record_count; i++)
            text_string_member(&x.json, program->records[i].name, program->records[i].expr);
        text_puts(&x.json, "}");
    }
    if (program->record_every)
        members_integer(&x.json, "record_every", program->record_every);
    text_string_member(&x.json, "until", program->until);
    if (program->until_every)
        members_integer(&x.json, "until_every", program->until_every);
    members_true(&x.json, "stop_on_nan", program->stop_on_nan);
    members_true(&x.json, "fast_math", program->fast_math);
    text_puts(&x.json, "}");
    return job_reply(client, &x, ret_job, err);
}

int arrayd_job_poll(struct arrayd *client, const char *id, struct arrayd_job *ret_job,
                    struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    exchange_path(&x, "/v1/jobs", id, "");
    return job_reply(client, &x, ret_job, err);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int arrayd_job_wait(struct arrayd *client, const char *id, double timeout_s,
                    struct arrayd_job *ret_job, struct arrayd_error *err)
{
    const double end = now() + timeout_s;
    struct arrayd_job job;
    for (;;) {
        double left = timeout_s < 0 ? LONGEST_WAIT_S : end - now();
        struct exchange x = {.method = "GET"};
        exchange_path(&x, "/v1/jobs", id, left >= 1 ? "?wait=1" : "");
        if (left >= 1)
            x.wait_s = left < LONGEST_WAIT_S ? (long)left : LONGEST_WAIT_S;
        if (job_reply(client, &x, &job, err))
            return -1;
        if (arrayd_job_ended(&job) || left <= 0)
            break;
        /* Also where the daemon's own bound on waits is short. */
        double pause = left < PAUSE_S ? left : PAUSE_S;
        nanosleep(&(struct timespec){.tv_nsec = (long)(pause * 1e9)}, NULL);
    }
    if (ret_job)
        *ret_job = job;
    return 0;
}

static int read_records(const struct cJSON *tree, const char *name, int64_t from, double *values,
                        size_t capacity, size_t *ret_count, struct arrayd_error *err)
{
    const struct cJSON *series = json_get(json_get(tree, "records"), name);
    int64_t number = 0;
    size_t count = 0;
    json_i64(tree, "records_from", &number);
    if (!json_is_list(series))
        return error_set(err, "bad_result", "the job records nothing under '%s'", name);
    if (from < number)
        return error_set(err, "bad_result",
                         "earlier values are gone: the first one kept is number %lld",
                         (long long)number);
    for (const struct cJSON *at = json_first(series); at && count < capacity; at = json_next(at))
        if (number++ >= from && !json_value_real(at, &values[count++]))
            return error_set(err, "bad_result", "a value of '%s' is not a number", name);
    *ret_count = count;
    return 0;
}

int arrayd_job_records(struct arrayd *client, const char *id, const char *name, int64_t from,
                       double *values, size_t capacity, size_t *ret_count, struct arrayd_error *err)
{
    struct exchange x = {.method = "GET"};
    struct cJSON *tree;
    exchange_path(&x, "/v1/jobs", id, "");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    int ret = read_records(tree, name, from, values, capacity, ret_count, err);
    json_free(tree);
    return ret;
}

int arrayd_job_cancel(struct arrayd *client, const char *id, struct arrayd_error *err)
{
    struct exchange x = {.method = "DELETE"};
    exchange_path(&x, "/v1/jobs", id, "");
    return exchange_done(client, &x, err);
}

int arrayd_job_resume(struct arrayd *client, const char *id, struct arrayd_job *ret_job,
                      struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    exchange_path(&x, "/v1/jobs", id, "/resume");
    return job_reply(client, &x, ret_job, err);
}
