/* Jobs: programs under way, and those that have ended, for as long as they are kept.
 *
 * One table for all principals; a job is visible only to the principal that began it and is deleted
 * with its session. A thread of the table's own runs them all round-robin, in slices of some
 * milliseconds: between two slices of a job, other work of its session runs. The first slice begins
 * on the thread that made the job (jobs_start). Jobs that move files (jobs_transfer) are listed,
 * watched and cancelled like the others, but run on a thread of another room's. The handlers read a
 * job's state at one moment (job_put), or are woken at its end (job_watch). Thread-safe. */
#ifndef ARRAYD_SERVER_JOBS_H
#define ARRAYD_SERVER_JOBS_H

#include "protocol/json/json_writer.h"
#include "server/body/program_body.h"
#include "server/store/auth.h"

struct asker;
struct copy_rates;
struct culprits;
struct jobs;
struct journal_writer;
struct kept_job;
struct lost;
struct sched;
struct server;
struct user_job;

#define JOB_SLICE 0.008
struct jobs_config {
    uint32_t max_jobs;     /* a principal's; new ones replace ended ones */
    int64_t record_memory; /* bytes of values of a principal's jobs, likewise; 0: no limit */
    double retention;      /* seconds that an ended job is kept */
    double slice;          /* seconds of work per slice */
    double spin;           /* seconds that the device is polled around the end of one; 0: never */
    double stop_timeout;   /* seconds that jobs_stop allows a slice under way */
    struct sched *sched;   /* schedules the slices; NULL: each begins at once */
    struct copy_rates *rates;
    struct lease_uses *uses; /* NULL: there are no leases */
    /* Makes the message of an ERR_DEVICE_LOST say what was on the device; NULL: it is unchanged */
    void (*explain_lost)(struct lost *lost, const struct asker *asker, struct err *e);
    struct lost *lost;
    struct culprits *culprits; /* whose work rests because it faulted; NULL: nobody's */
    struct engine *engine;     /* frees memory, */
    bool evict;                /* and may move arrays for it */
    /* Jobs outlive the process: they are written to the journal. NULL: no journal */
    struct journal_writer *writer;
    int64_t most_crashes; /* of a job's work in a row while it gets no step further */
};

enum err_code jobs_new(const struct jobs_config *config, struct jobs **ret,
                       struct err *e) must_check;
/* Cancels running jobs and starts no more: requests that wait for a job get their reply within
 * `stop_timeout`. */
void jobs_stop(struct jobs *t);
/* The same, but jobs that are in the journal are left to another process as they are after their
 * next whole step: requests that wait for one get their reply at once. */
void jobs_leave(struct jobs *t);
/* Enclose the check whether a program may use its arrays (program_may_use) and its writing to
 * them. */
void jobs_publish_begin(struct jobs *t);
void jobs_publish_end(struct jobs *t);
/* Called after something was forbidden (an array made read-only, leased, no longer shared) and
 * before the reply to that: no program writes any more what was allowed before. Waits for
 * publishing under way. */
void jobs_settle(struct jobs *t);
/* Stops, and waits for the slices under way. No request may be left. */
void jobs_end(struct jobs *t);
/* The same, and forgets all jobs. False if a slice is still under way: then nothing is freed, and
 * the job keeps its session and arrays, because its callbacks may come until the process ends. The
 * engine is not to be closed then. NULL allowed. */
bool jobs_free(struct jobs *t) must_check;

/* A job of another process (struct recover_config). jobs_go_on: those under way continue, now that
 * the journal has all of them. ERR_OUT_OF_MEMORY of host memory, ERR_DEVICE_LOST. */
enum err_code jobs_restore(struct jobs *t, struct server *s, const struct kept_job *k,
                           struct err *e) must_check;
void jobs_go_on(struct jobs *t);

/* Begins a job with a slice of `first_slice` steps (program_first_slice), unless it must wait. The
 * caller gets a reference. ERR_QUOTA, ERR_OUT_OF_MEMORY, ERR_DRAINING: nothing was taken. */
enum err_code jobs_start(struct jobs *t, const struct program_body *take_body, int64_t first_slice,
                         struct user_job **ret, struct err *e) must_check;
/* p NULL, here and below: everybody's. ERR_NOT_FOUND. The caller gets a reference. */
enum err_code jobs_find(struct jobs *t, const struct principal *p, const char *id,
                        struct user_job **ret, struct err *e) must_check;
/* Up to `limit` jobs after number `after`, oldest first; references as above. */
size_t jobs_list(struct jobs *t, const struct principal *p, uint64_t after, size_t limit,
                 struct user_job **ret, bool *ret_more);
size_t jobs_count(struct jobs *t, const struct principal *p, size_t *ret_running);
/* Of the principal's, how many run on that device and do not wait for anybody else. */
size_t jobs_running(struct jobs *t, const struct principal *p, int device);
void job_unref(struct user_job *j); /* NULL allowed */

const char *job_id(const struct user_job *j);
uint64_t job_seq(const struct user_job *j);
const char *job_owner(const struct user_job *j); /* its principal's name */
bool job_ended(struct user_job *j);
bool job_left(struct user_job *j);     /* to the next process: no more news of it in this one */
uint64_t job_ends(struct user_job *j); /* how many times it has ended: it may have been resumed */
/* How many values each series has. JOB_VALUES_SOON values of all series together can be printed in
 * about a millisecond. */
int64_t job_values(struct user_job *j);
#define JOB_VALUES_SOON 8192
int64_t job_values_soon(const struct user_job *j); /* the share of each series, at least 1 */
#define JOB_NO_VALUES INT64_MAX                    /* as `from`: no values and no snapshots */
/* A job at one moment. */
struct job_seen {
    bool ended;
    uint64_t ends; /* as job_ends */
    int64_t values;
};
void job_look(struct user_job *j, struct job_seen *ret);
/* How much is told of its program: as it was sent, cut at some length, or the first words for a
 * list. */
enum job_telling { JOB_TELL_NOTHING, JOB_TELL_BRIEF, JOB_TELL_WHOLE };
/* The job as a JSON object, with at most `most` values of each series from number `from` on;
 * returns the number of the next. The table is not locked while values are printed; all else is as
 * of the moment in `ret`, which may be NULL. */
int64_t job_put(struct user_job *j, int64_t from, int64_t most, enum job_telling telling,
                struct json_writer *w, struct job_seen *ret);
/* What an ended job is compared with (job_put) is measured, if it has moved so much that it is
 * worth it. */
void job_measure(struct user_job *j);
/* How steps are executed, as an object. */
void job_put_pass(const struct loop_report *r, struct json_writer *w);
/* Increases with every change. */
uint64_t job_revision(struct user_job *j);

/* The job stops after the slice under way, within some milliseconds; an ended job is unchanged. */
void job_cancel(struct user_job *j);
/* Forgets an ended job: ERR_CONFLICT for any other. */
enum err_code job_remove(struct user_job *j, struct err *e) must_check;
/* Resumes a cancelled or failed job with its remaining steps. ERR_CONFLICT for any other,
 * ERR_DRAINING while all jobs are being stopped. */
enum err_code job_resume(struct user_job *j, struct err *e) must_check;

/* `wake` is called when the job has ended, or is left (job_left). It runs on any thread, must not
 * block and must not call this module. The struct belongs to the caller. */
struct job_watch {
    void (*wake)(void *user);
    void *user;
    struct job_watch *next;
};
void job_watch(struct user_job *j, struct job_watch *w);
void job_unwatch(struct user_job *j, struct job_watch *w); /* not woken from here on */

/* --- jobs that are no programs (job_transfer.c) --- */

/* A job of so far unknown length whose work is done elsewhere, by one thread at a time, which calls
 * the functions below. Its steps are bytes. `kind`: the member ("import", static text) that tells
 * of it, `telling` and, in lists, `brief` (JSON). It is lent to that work until job_transfer_end,
 * and is not in the journal: it ends with the process. The caller gets two references, one for
 * each. ERR_QUOTA, ERR_DRAINING, ERR_OUT_OF_MEMORY. */
enum err_code jobs_transfer(struct jobs *t, const struct principal *p, struct session *s,
                            const char *kind, const struct strb *telling, const struct strb *brief,
                            struct user_job **ret, struct err *e) must_check;
/* Whether the work is still wanted: not once the job is cancelled, its session deleted, or the
 * daemon ends. */
bool job_transfer_goes_on(struct user_job *j);
/* It has begun; it consists of so many bytes, of which so many are done. */
void job_transfer_begin(struct user_job *j);
void job_transfer_at(struct user_job *j, int64_t done, int64_t bytes);
/* For what the work submits (asker_begin). */
struct asker *job_asker(struct user_job *j);
struct session *job_session(struct user_job *j); /* borrowed */
/* The end, once: done without an error, else failed, or cancelled if it no longer goes on. Takes
 * the work's reference. */
void job_transfer_end(struct user_job *take_j, const struct err *why);

#endif
