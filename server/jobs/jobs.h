/* Jobs: programs under way, and those that have ended, for as long as they are kept.
 *
 * One table for all principals; a job is seen by the one who began it and goes with its session.
 * A thread of the table's own runs them all, a slice of some milliseconds each in turn: between two
 * slices of a job comes whatever else its session asks for. The handlers look at a job as it is at
 * one moment (job_put), or are woken when it has changed (job_watch). Thread-safe. */
#ifndef ARRAYD_SERVER_JOBS_H
#define ARRAYD_SERVER_JOBS_H

#include "protocol/json/json_writer.h"
#include "server/body/program_body.h"
#include "server/store/auth.h"

struct asker;
struct jobs;
struct lost;
struct sched;
struct user_job;

#define JOB_SLICE      0.008
#define JOB_KEEP_ALIVE 15.0
struct jobs_config {
    uint32_t max_jobs;       /* a principal's; ended ones give way to new ones */
    int64_t record_memory;   /* bytes of values of a principal's jobs, likewise; 0: no limit */
    double retention;        /* seconds that an ended job is kept */
    double slice;            /* seconds of work that a job gets in turn */
    double patience;         /* seconds that a slice under way is waited for when all are stopped */
    double keep_alive;       /* seconds after which a watcher is woken in any case */
    struct sched *sched;     /* which gives slices their turn; NULL: they have it */
    struct lease_uses *uses; /* NULL: there are no leases */
    /* Makes the message of an ERR_DEVICE_LOST say what was on the device; NULL: it stays */
    void (*say_lost)(struct lost *lost, const struct asker *asker, struct err *e);
    struct lost *lost;
    struct engine *engine; /* which is asked for room, */
    bool evict;            /* and may move arrays for it */
};

enum err_code jobs_new(const struct jobs_config *config, struct jobs **ret,
                       struct err *e) must_check;
/* Cancels what runs, and lets nothing begin any more: those who wait for a job are answered, within
 * `patience`. */
void jobs_stop(struct jobs *t);
/* Around the question whether a program may use its arrays (program_may_use) and its
 * writing them. */
void jobs_publish_begin(struct jobs *t);
void jobs_publish_end(struct jobs *t);
/* After something was forbidden (an array made read-only, leased, no longer shared), before that is
 * answered: no program writes any more what was allowed before. Waits for what is being published.
 */
void jobs_settle(struct jobs *t);
/* Stops, waits for the slices under way and forgets all jobs. No request is left. */
void jobs_free(struct jobs *t); /* NULL allowed */

/* Begins a job with a slice of so many steps (program_first_slice). A reference is the caller's.
 * ERR_QUOTA, ERR_OUT_OF_MEMORY, ERR_DRAINING: nothing was taken. */
enum err_code jobs_start(struct jobs *t, const struct program_body *take_body, int64_t first_slice,
                         struct user_job **ret, struct err *e) must_check;
/* ERR_NOT_FOUND. A reference is the caller's. */
enum err_code jobs_find(struct jobs *t, const struct principal *p, const char *id,
                        struct user_job **ret, struct err *e) must_check;
/* Up to `limit` after number `after`, oldest first; references as above. */
size_t jobs_list(struct jobs *t, const struct principal *p, uint64_t after, size_t limit,
                 struct user_job **ret, bool *ret_more);
void job_unref(struct user_job *j); /* NULL allowed */

const char *job_id(const struct user_job *j);
uint64_t job_seq(const struct user_job *j);
bool job_ended(struct user_job *j);
uint64_t job_ends(struct user_job *j); /* how many times it has: it may have been resumed */
/* How many values each series has; of them all as many together, about, may be printed in a
 * millisecond. */
int64_t job_values(struct user_job *j);
#define JOB_VALUES_SOON 8192
int64_t job_values_soon(const struct user_job *j); /* the same of each series, at least 1 */
#define JOB_NO_VALUES INT64_MAX                    /* as `from`: none, nor the snapshots */
/* A job at one moment. */
struct job_seen {
    bool ended;
    uint64_t ends; /* as job_ends */
    int64_t values;
};
void job_look(struct user_job *j, struct job_seen *ret);
/* The job as a JSON object. Of each series' values those from number `from` on, `most` at most;
 * returns the number of the next. Others may work on the table while they are printed; the rest is
 * of the moment that `ret`, which may be NULL, is of. */
int64_t job_put(struct user_job *j, int64_t from, int64_t most, struct json_writer *w,
                struct job_seen *ret);
/* How steps go, as an object. */
void job_put_pass(const struct loop_report *r, struct json_writer *w);
/* Rises with every change. */
uint64_t job_revision(struct user_job *j);

/* It stops after the slice under way, some milliseconds from now; one that has ended stays as it
 * is. */
void job_cancel(struct user_job *j);
/* Forgets one that has ended: ERR_CONFLICT for one that has not. */
enum err_code job_remove(struct user_job *j, struct err *e) must_check;
/* One that was cancelled or has failed goes on with the steps that are left. ERR_CONFLICT for any
 * other, ERR_DRAINING when all are being stopped. */
enum err_code job_resume(struct user_job *j, struct err *e) must_check;

/* Woken (any thread; must not block, nor call this module) whenever the job has changed, and every
 * keep_alive seconds; or when it has ended. Belongs to the caller. */
struct job_watch {
    bool at_end;
    void (*wake)(void *user);
    void *user;
    struct job_watch *next;
};
void job_watch(struct user_job *j, struct job_watch *w);
void job_unwatch(struct user_job *j, struct job_watch *w); /* not woken from here on */

#endif
