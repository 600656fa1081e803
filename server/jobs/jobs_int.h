/* Shared by the files of the jobs: jobs_table.c (the table, below the others), job_put.c (how jobs
 * are reported), jobs_slice.c and jobs_run.c (the thread), jobs.c (beginnings and ends). */
#ifndef ARRAYD_SERVER_JOBS_INT_H
#define ARRAYD_SERVER_JOBS_INT_H

#include <pthread.h>

#include "compute/base/worker.h"
#include "server/jobs/jobs.h"
#include "server/work/asker.h"
#include "server/work/scheduler.h"

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

#define RECORD_SIZE 8 /* bytes of a value, at most */

struct series_values {
    char name[NAME_SIZE];
    enum dtype dtype;
    char *bytes;
    size_t n, cap;
};

struct snapshot_made {
    char name[NAME_SIZE]; /* of the copied array */
    int64_t step;
    char id[ID_SIZE];
};

struct user_job {
    uint32_t refs; /* under the table's lock, like all that is not constant */
    struct jobs *table;
    char id[ID_SIZE];
    uint64_t seq;
    struct program_body body; /* body.program: NULL once the job is done */
    struct cause cause;       /* counts the host memory it takes */
    struct user_job *next;    /* of the table */
    struct user_job *next_ready;
    bool ready, forgotten;
    enum job_state state;
    bool cancel;
    bool blocked;    /* until another job's slice on the same arrays is over */
    bool makes_room; /* while the engine makes room */
    int lacks;       /* failures for want of memory since its last good slice */
    bool resting;    /* while another's lease, or writes, block it: see `err` */
    uint64_t revision, ends;
    int64_t created_us, ended_us;
    double ended;        /* clock_ms */
    double started, ran; /* clock_ms of the present run, milliseconds of those before */
    double device_ms;    /* of all slices */
    int64_t step;
    struct series_values *series;
    int64_t n_values;
    struct snapshot_made *snapshots;
    size_t n_snapshots, n_taken, cap_snapshots; /* listed, and with the slice under way */
    struct loop_report report;
    struct err err;
    int64_t failed_in;
    int32_t statement;
    const char *stopped; /* why it ended before its last step: "until"; or NULL */
    struct job_watch *watches;

    /* used by the thread only */
    struct asker *asker;
    struct sched_turn turn; /* of the next slice, or of the one under way */
    double step_ms;         /* a step's time, by the last slice; 0: not known */
    bool in_slice;
    int64_t slice_steps; /* of the next one; 0: to be estimated */
    struct eviction eviction;
    int again; /* slices in a row discarded because others had written to the arrays */
};

struct jobs {
    struct jobs_config config;
    pthread_mutex_t lock;
    struct worker worker;
    double alive, sweep, look;      /* clock_s: when watchers are woken and jobs checked next */
    double leave;                   /* when jobs_step gives up on slices; 0: not stopping */
    bool gave_up;                   /* it has */
    struct user_job *first, **last; /* oldest first */
    struct user_job *ready, **last_ready;
    uint64_t seq;
    bool stopping;
    size_t in_slice, n_resting;
    /* held from the check whether arrays may be written until they are written; taken before
     * `lock` */
    pthread_mutex_t publishing;
};

static inline bool job_is_over(const struct user_job *j)
{
    return j->state >= JOB_DONE;
}

extern const char *const job_state_names[]; /* by enum job_state */

/* With the lock held: */
void job_changed(struct user_job *j);
void job_make_ready(struct user_job *j);
/* Removes it from the table; the caller gets the table's reference. */
void job_forget(struct user_job *j);
struct job_end {
    enum job_state state;
    const char *stopped;
    struct err err; /* JOB_FAILED, and where: */
    int64_t failed_in;
    int32_t statement;
};
/* Records that the job has ended, and how. */
void job_write_end(struct user_job *j, const struct job_end *o);
/* Whether its session is closed. */
bool job_is_orphan(const struct user_job *j);
/* What the job needs to be resumed: its program, and the functions that the program's text names.
 * The thread takes it from a job that will not be resumed, and releases it (program_body_drop)
 * without the lock. */
struct program_body job_take_program(struct user_job *j);

/* jobs_slice.c, for the thread alone: begins a slice, or ends the job. */
void job_begin_slice(struct user_job *j);
/* Takes the outcome of a slice. False while the slice is unfinished (j->in_slice), and when the job
 * ended with it or rests. */
bool job_take_slice(struct user_job *j);
/* jobs_room.c: whether the engine is making the room that the error asks for; the job is made ready
 * when the engine answers. */
bool job_make_room(struct user_job *j, const struct err *e);
/* The program's program_ready: reserves room for the values and makes the copies that are due. */
enum err_code job_ready(void *job, int64_t steps, uint32_t n_values, struct err *e);

double jobs_step(void *jobs); /* the thread's */

#endif
