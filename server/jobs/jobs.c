/* One lock for the table, the queue and what is told of jobs. Nothing of the engine's is called
 * under it; watchers are woken under it, so that none is woken after it has left. A series may have
 * a million values: they are printed without it, from copies of some at a time, since values that
 * are there stay as they are. */
#include "server/jobs/jobs_int.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "protocol/wire/problem.h"
#include "server/body/meta.h"

static const char *const state_names[] = {"queued", "running", "done", "failed", "cancelled"};

/* --- references --- */

struct job_work job_take_work(struct user_job *j)
{
    struct job_work w = {j->spec.program, j->spec.functions, j->spec.n_functions};
    j->spec.program = NULL; /* whose memory has the text of all the specification */
    j->spec.n_functions = 0;
    return w;
}

void job_work_free(struct job_work *w)
{
    for (size_t i = 0; i < w->n_functions; i++)
        functions_release(&w->functions[i]);
    program_free(w->program);
}

static void job_free(struct user_job *j)
{
    struct job_work work = job_take_work(j);
    job_work_free(&work);
    for (uint32_t i = 0; i < j->spec.n_series; i++)
        mem_free(j->series[i].bytes);
    mem_free(j->series);
    mem_free(j->snapshots);
    if (job_is_over(j))
        session_rest(j->spec.session, false);
    session_unref(j->spec.session);
    asker_unref(j->asker);
    meter_unref(j->cause.meter);
    mem_free(j);
}

void job_unref(struct user_job *j)
{
    if (!j)
        return;
    struct jobs *t = j->table;
    pthread_mutex_lock(&t->lock);
    bool last = --j->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (last)
        job_free(j);
}

/* --- with the lock held --- */

void job_changed(struct user_job *j)
{
    j->revision++;
    for (struct job_watch *w = j->watches; w; w = w->next)
        if (!w->at_end || job_is_over(j))
            w->wake(w->user);
}

void job_make_ready(struct user_job *j)
{
    struct jobs *t = j->table;
    if (j->ready)
        return;
    j->ready = true;
    j->refs++;
    j->next_ready = NULL;
    *t->last_ready = j;
    t->last_ready = &j->next_ready;
    pthread_cond_signal(&t->something);
}

void job_forget(struct user_job *j)
{
    struct jobs *t = j->table;
    j->forgotten = true;
    for (struct user_job **p = &t->first; *p; p = &(*p)->next)
        if (*p == j) {
            *p = j->next;
            if (t->last == &j->next)
                t->last = p;
            return;
        }
}

bool job_is_orphan(const struct user_job *j)
{
    struct session *s = NULL;
    bool gone = session_get(j->spec.principal->sessions, j->spec.session->id, false, &s, NULL);
    session_unref(s);
    return gone;
}

/* --- the table --- */

enum err_code jobs_new(const struct jobs_config *config, struct jobs **ret, struct err *e)
{
    struct jobs *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_oom(e);
    t->config = *config;
    t->last = &t->first;
    t->last_ready = &t->ready;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->publishing, NULL);
    clock_cond_init(&t->something);
    if (pthread_create(&t->thread, NULL, jobs_run, t) != 0) {
        pthread_cond_destroy(&t->something);
        pthread_mutex_destroy(&t->publishing);
        pthread_mutex_destroy(&t->lock);
        mem_free(t);
        return err_set(e, ERR_INTERNAL, "the thread that runs jobs cannot be started");
    }
    *ret = t;
    return ERR_OK;
}

void jobs_stop(struct jobs *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    pthread_cond_signal(&t->something);
    pthread_mutex_unlock(&t->lock);
}

void jobs_free(struct jobs *t)
{
    if (!t)
        return;
    jobs_stop(t);
    pthread_join(t->thread, NULL);
    if (t->in_slice) { /* its callbacks may still come */
        log_event(LOG_WARN, "stopped while a program's step is still running", NULL);
        return;
    }
    for (struct user_job *j; (j = t->first);) {
        job_forget(j);
        job_unref(j);
    }
    pthread_cond_destroy(&t->something);
    pthread_mutex_destroy(&t->publishing);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void jobs_publish_begin(struct jobs *t)
{
    pthread_mutex_lock(&t->publishing);
}

void jobs_publish_end(struct jobs *t)
{
    pthread_mutex_unlock(&t->publishing);
}

void jobs_settle(struct jobs *t)
{
    jobs_publish_begin(t);
    jobs_publish_end(t);
}

/* Bytes of all the values that such a job may come to have. */
static int64_t record_bytes(const struct job_spec *spec)
{
    return spec->n_series ? spec->steps / spec->record_every * spec->n_series * RECORD_SIZE : 0;
}

/* What a job takes of a principal's allowance: its end leaves it what it has. */
static int64_t held_bytes(const struct user_job *j)
{
    return job_is_over(j) ? (int64_t)j->n_values * j->spec.n_series * RECORD_SIZE
                          : record_bytes(&j->spec);
}

struct held {
    uint32_t jobs;
    int64_t bytes;
};

static struct held held_by(struct jobs *t, const struct principal *p, bool ended,
                           struct user_job **ret_oldest)
{
    struct held h = {0};
    *ret_oldest = NULL;
    for (struct user_job *j = t->first; j; j = j->next) {
        bool over = job_is_over(j);
        if (j->spec.principal != p || (over && !ended))
            continue;
        h.jobs++;
        h.bytes += held_bytes(j);
        if (over && (!*ret_oldest || j->ended < (*ret_oldest)->ended))
            *ret_oldest = j;
    }
    return h;
}

/* With the lock held: makes room for one more job. Those that ended first give way where they must;
 * they are chained in *ret_old, the table's references with them. */
static enum err_code make_way(struct jobs *t, const struct job_spec *spec,
                              struct user_job **ret_old, struct err *e)
{
    const struct principal *p = spec->principal;
    const int64_t most = t->config.record_memory, bytes = record_bytes(spec);
    struct user_job *oldest;
    struct held h = held_by(t, p, false, &oldest);
    if (h.jobs >= t->config.max_jobs)
        return err_set(e, ERR_QUOTA, "%" PRIu32 " jobs are under way: the limit is reached",
                       t->config.max_jobs);
    if (most && bytes > most - h.bytes)
        return err_set(e, ERR_QUOTA,
                       "this records up to %" PRId64 " bytes, and jobs under way up to %" PRId64
                       ": the limit of record-memory is %" PRId64,
                       bytes, h.bytes, most);
    for (;;) {
        h = held_by(t, p, true, &oldest);
        if (h.jobs < t->config.max_jobs && (!most || bytes <= most - h.bytes))
            return ERR_OK;
        job_forget(oldest); /* there is one: without those that ended there was room */
        oldest->next = *ret_old;
        *ret_old = oldest;
    }
}

static enum err_code err_draining(struct err *e)
{
    return err_set(e, ERR_DRAINING, "the daemon is shutting down");
}

enum err_code jobs_start(struct jobs *t, const struct job_spec *take_spec, struct user_job **ret,
                         struct err *e)
{
    struct user_job *j = mem_calloc(1, sizeof *j), *old = NULL;
    struct series_values *series = mem_calloc(take_spec->n_series, sizeof *series);
    if (!j || !series) {
        mem_free(j);
        mem_free(series);
        return err_oom(e);
    }
    pthread_mutex_lock(&t->lock);
    enum err_code code = ERR_OK;
    if (t->stopping)
        code = err_draining(e);
    else
        code = make_way(t, take_spec, &old, e);
    if (code != ERR_OK) {
        pthread_mutex_unlock(&t->lock);
        mem_free(j);
        mem_free(series);
        return code;
    }
    *j = (struct user_job){.refs = 2, /* the table's and the caller's */
                           .table = t,
                           .seq = ++t->seq,
                           .spec = *take_spec,
                           .cause = {.meter = meter_ref(meter_current())},
                           .series = series,
                           .created_us = clock_date_us(),
                           .statement = -1,
                           .slice_steps = take_spec->first_slice};
    program_on_ready(take_spec->program, job_ready, j);
    for (uint32_t i = 0; i < take_spec->n_series; i++)
        strncpy(series[i].name, take_spec->series[i], NAME_SIZE - 1);
    id_make('j', j->id);
    j->asker = asker_of_job(j->id, j->spec.session->id);
    *t->last = j;
    t->last = &j->next;
    job_make_ready(j);
    pthread_mutex_unlock(&t->lock);
    for (struct user_job *next; old; old = next) {
        next = old->next;
        job_unref(old);
    }
    *ret = j;
    return ERR_OK;
}

enum err_code jobs_find(struct jobs *t, const struct principal *p, const char *id,
                        struct user_job **ret, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct user_job *j = t->first;
    while (j && (strcmp(j->id, id) != 0 || j->spec.principal != p))
        j = j->next;
    if (j && job_is_orphan(j))
        j = NULL;
    if (j)
        j->refs++;
    pthread_mutex_unlock(&t->lock);
    if (!j)
        return err_set(e, ERR_NOT_FOUND, "there is no job '%.40s'", id);
    *ret = j;
    return ERR_OK;
}

size_t jobs_list(struct jobs *t, const struct principal *p, uint64_t after_seq, size_t limit,
                 struct user_job **ret, bool *ret_more)
{
    size_t n = 0;
    *ret_more = false;
    pthread_mutex_lock(&t->lock);
    for (struct user_job *j = t->first; j && !*ret_more; j = j->next) {
        if (j->spec.principal != p || j->seq <= after_seq || job_is_orphan(j))
            continue;
        if (n == limit) {
            *ret_more = true;
        } else {
            j->refs++;
            ret[n++] = j;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* --- one job --- */

const char *job_id(const struct user_job *j)
{
    return j->id;
}

uint64_t job_seq(const struct user_job *j)
{
    return j->seq;
}

bool job_ended(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = job_is_over(j);
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
    const uint32_t n = j->spec.n_series;
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
    json_put_member_i64(w, "record_every", j->spec.record_every);
    json_put_member_i64(w, "records_from", from);
    json_put_key(w, "records");
    json_open_object(w);
    for (uint32_t i = 0; i < j->spec.n_series; i++) {
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
        const struct snapshot_made *s = &j->snapshots[i];
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

int64_t job_put(struct user_job *j, int64_t from, int64_t most, struct json_writer *w,
                struct job_seen *ret)
{
    pthread_mutex_lock(&j->table->lock);
    if (ret)
        *ret = seen_now(j);
    double ms = j->ran + (j->started > 0 ? clock_ms() - j->started : 0);
    double rate = ms > 0 ? (double)j->step / ms * 1e3 : 0;
    json_open_object(w);
    json_put_member_string(w, "id", j->id);
    json_put_member_string(w, "session", j->spec.session->id);
    json_put_member_string(w, "state", state_names[j->state]);
    json_put_member_i64(w, "step", j->step);
    json_put_member_i64(w, "steps", j->spec.steps);
    json_put_member_double(w, "steps_per_s", rate);
    if (!job_is_over(j) && rate > 0)
        json_put_member_double(w, "eta_s", (double)(j->spec.steps - j->step) / rate);
    json_put_member_double(w, "elapsed_s", ms / 1e3);
    json_put_member_double(w, "device_s", j->device_ms / 1e3);
    if (j->report.steps) {
        json_put_key(w, "pass");
        job_put_pass(&j->report, w);
    }
    meta_put_time(w, "created", j->created_us);
    if (job_is_over(j))
        meta_put_time(w, "ended", j->ended_us);
    if (j->stopped)
        json_put_member_string(w, "stopped_by", j->stopped);
    if (j->spec.n_snapshots && from != JOB_NO_VALUES)
        put_snapshots(j, w);
    if (j->resting && !job_is_over(j))
        json_put_member_string(w, "waiting", j->err.message);
    if (j->state == JOB_FAILED)
        put_failure(j, w);
    const int64_t to = from < j->n_values && most < j->n_values - from ? from + most : j->n_values;
    pthread_mutex_unlock(&j->table->lock);
    if (j->spec.n_series && from != JOB_NO_VALUES)
        put_series(j, from, to, w);
    json_close_object(w);
    return to;
}

void job_cancel(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    j->cancel = !job_is_over(j);
    if (j->cancel) /* it may be waiting, for its turn or for another job */
        job_make_ready(j);
    pthread_mutex_unlock(&j->table->lock);
}

enum err_code job_remove(struct user_job *j, struct err *e)
{
    pthread_mutex_lock(&j->table->lock);
    bool can = job_is_over(j), was = j->forgotten;
    if (can && !was)
        job_forget(j);
    pthread_mutex_unlock(&j->table->lock);
    if (!can)
        return err_set(e, ERR_CONFLICT, "the job has not ended");
    if (was)
        return err_set(e, ERR_NOT_FOUND, "there is no job '%s'", j->id);
    job_unref(j);
    return ERR_OK;
}

enum err_code job_resume(struct user_job *j, struct err *e)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&j->table->lock);
    if (j->table->stopping) /* the thread may have gone */
        code = err_draining(e);
    else if ((j->state != JOB_FAILED && j->state != JOB_CANCELLED) || j->forgotten)
        code = err_set(e, ERR_CONFLICT,
                       "a job that is %s is not resumed: only one that was cancelled or has failed",
                       state_names[j->state]);
    else if (!j->spec.program)
        code = err_set(e, ERR_CONFLICT,
                       "the job is not resumed: an array that it uses is not shared any more");
    if (code == ERR_OK) {
        session_rest(j->spec.session, false);
        j->state = JOB_QUEUED;
        j->cancel = false;
        j->slice_steps = 0;
        j->again = 0;
        j->lacks = 0;
        job_changed(j);
        job_make_ready(j);
    }
    pthread_mutex_unlock(&j->table->lock);
    return code;
}

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
