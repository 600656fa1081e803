/* Shared by the files of the jobs: jobs_table.c (the table, below the others), job_put.c (how jobs
 * are reported), job_words.c (what they compute), job_keep.c (jobs in the journal), job_ready.c
 * (what a slice leaves besides its arrays' contents), jobs_slice.c and jobs_run.c (the thread),
 * jobs.c (beginnings and ends), job_restore.c (jobs of a previous process), job_transfer.c (jobs
 * that are no programs). */
#ifndef ARRAYD_SERVER_JOBS_INT_H
#define ARRAYD_SERVER_JOBS_INT_H

#include <pthread.h>

#include "compute/base/lock.h"
#include "compute/base/worker.h"
#include "server/jobs/jobs.h"
#include "server/kept/kept_job.h"
#include "server/work/asker.h"
#include "server/work/memory_retry.h"
#include "server/work/scheduler.h"

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

struct job_record;

#define RECORD_SIZE 8 /* bytes of a value, at most */

struct series_values {
    char name[NAME_SIZE];
    enum dtype dtype;
    char *bytes;
    size_t n, cap;
};

struct job_end {
    enum job_state state;
    const char *stopped;
    struct err err; /* JOB_FAILED, and where: */
    int64_t failed_in;
    int32_t statement;
};

struct job_words {
    const char *kind;         /* of a transfer; NULL: "program" */
    struct strb whole, brief; /* JSON; empty: not known */
};

struct user_job {
    uint32_t refs; /* under the table's lock, like all that is not constant */
    struct jobs *table;
    char id[ID_SIZE];
    uint64_t seq;
    struct program_body body; /* body.program: NULL once the job is done, and of a transfer */
    struct job_words words;   /* constant */
    struct cause cause;       /* counts the host memory it takes */
    struct user_job *next;    /* of the table */
    struct user_job *next_ready;
    bool ready, forgotten;
    bool lent; /* to a thread other than the table's: ready, it is queued only after that */
    enum job_state state;
    bool cancel;
    bool blocked;      /* until another job's slice on the same arrays is over */
    bool frees_memory; /* while the engine frees memory */
    bool resting;      /* while another's lease, or writes, block it: see `err` */
    uint64_t revision, ends;
    int64_t created_us, ended_us;
    double ended;        /* clock_ms */
    double started, ran; /* clock_ms of the present run, milliseconds of those before */
    double device_ms;    /* of all slices */
    uint64_t bytes;      /* that their kernels read and wrote */
    unsigned tiers;      /* enum tier: how these ran, since the daemon started, */
    unsigned forms;      /* and kernel_form_bit */
    int64_t step;
    struct series_values *series;
    int64_t n_values;
    struct kept_snapshot *snapshots;
    size_t n_snapshots, n_taken, cap_snapshots; /* listed, and with the slice under way */
    struct loop_report report;
    struct err err;
    int64_t failed_in;
    int32_t statement;
    const char *stopped; /* why it ended before its last step: "until"; or NULL */
    struct job_watch *watches;
    struct job_record *record; /* what the journal has of it; NULL: there is no journal */
    bool copying;              /* job_awaits */
    enum err_code copied;      /* its result */

    /* used only by the thread that has the job: the table's, or the one that it is lent to */
    struct asker *asker;
    struct sched_turn turn;    /* of the next slice, or of the one under way */
    double step_ms;            /* a step's time, by the last slice; 0: not known */
    bool in_slice;             /* changed with the lock held */
    int64_t slice_steps;       /* of the next one; 0: to be estimated */
    struct memory_retry retry; /* since its last good slice */
    struct job_end end;        /* if `ending`: once nothing is copied any more */
    bool ending;
    int again; /* slices in a row discarded because others had written to the arrays */
};

struct jobs {
    struct jobs_config config;
    pthread_mutex_t lock;
    struct worker worker;
    double sweep, look;             /* clock_s: when old and resting jobs are checked next */
    double due;                     /* when the slice begun last probably ends, */
    double unsure;                  /* and by how much that may be wrong; 0: not known */
    double leave;                   /* when jobs_step gives up on slices; 0: not stopping */
    bool gave_up;                   /* it has */
    struct user_job *first, **last; /* oldest first */
    struct user_job *ready, **last_ready;
    uint64_t seq;
    bool stopping;
    bool leaving; /* jobs_leave */
    size_t in_slice, n_resting, n_lent;
    /* held from the check whether arrays may be written until they are written; taken before
     * `lock` */
    pthread_mutex_t publishing;
};

static inline bool job_is_over(const struct user_job *j)
{
    return j->state >= JOB_DONE;
}

/* With the lock held: it is left to the next process as it is. */
static inline bool job_is_left(const struct user_job *j)
{
    lock_held(&j->table->lock);
    return j->table->leaving && !j->cancel && !job_is_over(j) && !j->words.kind;
}

extern const char *const job_state_names[]; /* by enum job_state */

/* With the lock held: */
void job_changed(struct user_job *j);
void job_make_ready(struct user_job *j);
/* The only way from one state to another. */
void job_enter(struct user_job *j, enum job_state state);
/* A thread other than the table's, which has a reference, works on the job from here to there. */
void job_lend(struct user_job *j);
void job_take_back(struct user_job *j);
/* Takes the first of the queue, and its reference; NULL: it is empty. */
struct user_job *jobs_next_ready(struct jobs *t);
/* The slice that is under way, or the request for memory, has a reference to the job: its callbacks
 * come even after a stop that has not waited for them. */
void job_enter_slice(struct user_job *j);
void job_leave_slice(struct user_job *j); /* the caller has another reference */
/* With the lock held: makes room for one more job of the principal, which records so many bytes.
 * Where needed, ended jobs are removed, those that ended first before others; they are chained in
 * *ret_old, with the table's references, for jobs_let_go. ERR_QUOTA. */
enum err_code jobs_make_way(struct jobs *t, const struct principal *p, int64_t bytes,
                            struct user_job **ret_old, struct err *e) must_check;
void jobs_let_go(struct user_job *old); /* without the lock */
/* Removes it from the table; the caller gets the table's reference. */
void job_forget(struct user_job *j);
/* Records that the job has ended, and how. */
void job_write_end(struct user_job *j, const struct job_end *o);
/* Whether its session is closed. */
bool job_is_orphan(const struct user_job *j);
/* What the job needs to be resumed: its program, and the functions that the program's text names.
 * The thread takes it from a job that will not be resumed, and releases it (program_body_drop)
 * without the lock. */
struct program_body job_take_program(struct user_job *j);

/* --- what it computes (job_words.c) --- */

/* From the request's body, and the arrays that the program assigns (kept_put_targets).
 * ERR_OUT_OF_MEMORY, after which it is cleared, too. */
enum err_code job_words_make(struct job_words *ret, const char *text, size_t n, const char *arrays,
                             size_t n_arrays, struct err *e) must_check;
void job_words_clear(struct job_words *w);
/* The member "program", if it is known and to be told. */
void job_words_put(const struct job_words *words, enum job_telling telling, struct json_writer *w);

/* --- the journal (job_keep.c); without one these do nothing --- */

struct job_record *job_record_new(const struct jobs *t); /* NULL, too, without memory */
void job_record_free(struct job_record *x);              /* NULL allowed */
/* A new job, with the lock held: ERR_OUT_OF_MEMORY. */
enum err_code job_keep_begin(struct user_job *j, struct err *e) must_check;
/* Its state is another; job_keep_again: and it begins anew. With the lock held. */
void job_keep_progress(struct user_job *j);
void job_keep_again(struct user_job *j);
/* A slice is under way, from before its work is made until its outcome has been taken. */
void job_keep_enter(struct user_job *j);
void job_keep_leave(struct user_job *j);
/* Before the snapshot is made: the next of the job's. ERR_OUT_OF_MEMORY. */
enum err_code job_keep_snapshot(struct user_job *j, const struct kept_snapshot *s,
                                struct err *e) must_check;
/* What a slice changes, for made->with; job_keep_committed: it has been written. */
enum err_code job_keep_slice(struct user_job *j, struct program_slice *made,
                             struct err *e) must_check;
void job_keep_committed(struct user_job *j, bool copies);
/* Whether results of the last slice are being copied to arrays; job_keep_copied: no longer. */
bool job_copies(const struct user_job *j);
void job_keep_copied(struct user_job *j);
void job_keep_restored(struct user_job *j, const struct kept_job *k);
void job_keep_gone(struct user_job *j); /* with the lock held */

/* jobs_slice.c, for the thread that has the job: begins a slice, or ends the job. */
void job_begin_slice(struct user_job *j);
/* Takes the outcome of a slice. False while the slice is unfinished (j->in_slice), and when the job
 * ended with it or rests. */
bool job_take_slice(struct user_job *j);
/* job_ready.c. The program's program_ready: takes the values and makes the copies that are due.
 * job_count_values: they count, with the lock held; job_drop_snapshots: the slice was discarded. */
enum err_code job_ready(void *job, struct program_slice *made, struct err *e);
void job_count_values(struct user_job *j, uint32_t n);
void job_drop_snapshots(struct user_job *j);
/* Makes the job ready when all work of the stream so far is done; whether it still waits for that.
 */
void job_await(struct user_job *j, struct engine_stream *stream);
bool job_awaits(struct user_job *j);

double jobs_step(void *jobs); /* the thread's */

#endif
