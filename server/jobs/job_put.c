/* How jobs are reported. A series may have a million values: they are printed without the lock,
 * from copies of a few at a time, which is safe because recorded values never change. Watchers are
 * woken under the lock, so that none is woken after it was removed. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/type/dtype.h"
#include "protocol/wire/problem.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/jobs/jobs_int.h"
#include "server/work/copy_rate.h"

/* A job that has moved less says little of the memory's speed: its time is that of launches. */
#define MEASURED_BYTES (1u << 30)

const char *const job_state_names[] = {"queued", "running", "done", "failed", "cancelled"};

const char *job_id(const struct user_job *j)
{
    return j->id;
}

uint64_t job_seq(const struct user_job *j)
{
    return j->seq;
}

const char *job_owner(const struct user_job *j)
{
    return j->body.principal->name;
}

bool job_ended(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = job_is_over(j);
    pthread_mutex_unlock(&j->table->lock);
    return yes;
}

bool job_left(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = job_is_left(j);
    pthread_mutex_unlock(&j->table->lock);
    return yes;
}

uint64_t job_ends(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    uint64_t ends = j->ends;
    pthread_mutex_unlock(&j->table->lock);
    return ends;
}

uint64_t job_revision(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    uint64_t revision = j->revision;
    pthread_mutex_unlock(&j->table->lock);
    return revision;
}

int64_t job_values(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    int64_t n = j->n_values;
    pthread_mutex_unlock(&j->table->lock);
    return n;
}

int64_t job_values_soon(const struct user_job *j)
{
    const uint32_t n = j->body.n_series;
    return n < 2 ? JOB_VALUES_SOON : n < JOB_VALUES_SOON ? JOB_VALUES_SOON / n : 1;
}

/* Without the lock: values [from, to) of series i. */
static void put_values(struct user_job *j, uint32_t i, int64_t from, int64_t to,
                       struct json_writer *w)
{
    const struct series_values *s = &j->series[i];
    char some[4096];
    while (from < to) {
        pthread_mutex_lock(&j->table->lock);
        struct scalar v = {.dtype = s->dtype};
        const size_t size = dtype_size(s->dtype), room = sizeof some / size;
        const size_t n = (uint64_t)(to - from) < room ? (size_t)(to - from) : room;
        memcpy(some, s->bytes + (size_t)from * size, n * size);
        pthread_mutex_unlock(&j->table->lock);
        for (size_t k = 0; k < n; k++) {
            memcpy(&v.v, some + k * size, size);
            json_put_scalar(w, &v);
        }
        from += (int64_t)n;
    }
}

static void put_series(struct user_job *j, int64_t from, int64_t to, struct json_writer *w)
{
    json_put_member_i64(w, "record_every", j->body.record_every);
    json_put_member_i64(w, "records_from", from);
    json_put_key(w, "records");
    json_open_object(w);
    for (uint32_t i = 0; i < j->body.n_series; i++) {
        json_put_key(w, j->series[i].name);
        json_open_list(w);
        put_values(j, i, from, to, w);
        json_close_list(w);
    }
    json_close_object(w);
}

static void put_snapshots(const struct user_job *j, struct json_writer *w)
{
    json_put_key(w, "snapshots");
    json_open_list(w);
    for (size_t i = 0; i < j->n_snapshots; i++) {
        const struct kept_snapshot *s = &j->snapshots[i];
        json_open_object(w);
        json_put_member_string(w, "name", s->name);
        json_put_member_i64(w, "step", s->step);
        json_put_member_string(w, "id", s->id);
        json_close_object(w);
    }
    json_close_list(w);
}

static void put_failure(const struct user_job *j, struct json_writer *w)
{
    _cleanup_strb_ struct strb problem = {0};
    problem_write(&j->err, &problem);
    json_put_key(w, "error");
    if (problem.failed)
        json_put_null(w);
    else
        json_put_raw(w, problem.data, problem.len);
    if (!j->words.kind)
        json_put_member_i64(w, "failed_step", j->failed_in);
    if (j->statement >= 0)
        json_put_member_i64(w, "failed_statement", j->statement);
}

void job_put_pass(const struct loop_report *r, struct json_writer *w)
{
    json_open_object(w);
    json_put_member_i64(w, "steps", r->steps);
    if (r->kernels)
        json_put_member_i64(w, "kernels", r->kernels);
    if (r->why)
        json_put_member_string(w, "why", r->why);
    json_close_object(w);
}

static void put_forms(unsigned forms, struct json_writer *w)
{
    json_put_key(w, "forms");
    json_open_list(w);
    for (unsigned i = 0; i < KERNEL_FORMS; i++)
        if (forms >> i & 1)
            json_put_string(w, kernel_forms[i]);
    json_close_list(w);
}

/* With the lock held. */
static void put_took(const struct user_job *j, struct json_writer *w)
{
    const double rate = copy_rate(j->table->config.rates, j->body.session->device);
    json_put_member_double(w, "device_s", j->device_ms / 1e3);
    json_put_member_i64(w, "bytes_moved", (int64_t)j->bytes);
    if (rate > 0 && j->device_ms > 0 && j->bytes >= MEASURED_BYTES)
        json_put_member_double(w, "memory_speed", (double)j->bytes / (j->device_ms / 1e3) / rate);
    if (j->tiers)
        json_put_member_string(w, "kernels", request_tiers(j->tiers));
    if (j->forms)
        put_forms(j->forms, w);
}

void job_measure(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    const bool worth = job_is_over(j) && j->bytes >= MEASURED_BYTES;
    pthread_mutex_unlock(&j->table->lock);
    if (worth)
        (void)copy_rate_measure(j->table->config.rates, j->body.session->device, NULL);
}

static struct job_seen seen_now(const struct user_job *j)
{
    return (struct job_seen){job_is_over(j), j->ends, j->n_values};
}

void job_look(struct user_job *j, struct job_seen *ret)
{
    pthread_mutex_lock(&j->table->lock);
    *ret = seen_now(j);
    pthread_mutex_unlock(&j->table->lock);
}

int64_t job_put(struct user_job *j, int64_t from, int64_t most, enum job_telling telling,
                struct json_writer *w, struct job_seen *ret)
{
    pthread_mutex_lock(&j->table->lock);
    if (ret)
        *ret = seen_now(j);
    double ms = j->ran + (j->started > 0 ? clock_ms() - j->started : 0);
    double rate = ms > 0 ? (double)j->step / ms * 1e3 : 0;
    json_open_object(w);
    json_put_member_string(w, "id", j->id);
    json_put_member_string(w, "session", j->body.session->id);
    json_put_member_string(w, "state", job_state_names[j->state]);
    job_words_put(&j->words, telling, w);
    json_put_member_i64(w, "step", j->step);
    json_put_member_i64(w, "steps", j->body.steps);
    json_put_member_double(w, "steps_per_s", rate);
    if (!job_is_over(j) && rate > 0)
        json_put_member_double(w, "eta_s", (double)(j->body.steps - j->step) / rate);
    json_put_member_double(w, "elapsed_s", ms / 1e3);
    put_took(j, w);
    if (j->report.steps) {
        json_put_key(w, "pass");
        job_put_pass(&j->report, w);
    }
    meta_put_time(w, "created", j->created_us);
    if (job_is_over(j))
        meta_put_time(w, "ended", j->ended_us);
    if (j->stopped)
        json_put_member_string(w, "stopped_by", j->stopped);
    if (j->body.n_snapshots && from != JOB_NO_VALUES)
        put_snapshots(j, w);
    if (j->resting && !job_is_over(j))
        json_put_member_string(w, "waiting", j->err.message);
    if (j->state == JOB_FAILED)
        put_failure(j, w);
    const int64_t to = from < j->n_values && most < j->n_values - from ? from + most : j->n_values;
    pthread_mutex_unlock(&j->table->lock);
    if (j->body.n_series && from != JOB_NO_VALUES)
        put_series(j, from, to, w);
    json_close_object(w);
    return to;
}

/* --- watches --- */

void job_watch(struct user_job *j, struct job_watch *w)
{
    pthread_mutex_lock(&j->table->lock);
    w->next = j->watches;
    j->watches = w;
    pthread_mutex_unlock(&j->table->lock);
}

void job_unwatch(struct user_job *j, struct job_watch *w)
{
    pthread_mutex_lock(&j->table->lock);
    for (struct job_watch **p = &j->watches; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    pthread_mutex_unlock(&j->table->lock);
}
