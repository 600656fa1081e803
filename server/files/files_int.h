/* The threads of server/files (files.c), for those of its files whose work runs there: look.c,
 * import.c, export.c (jobs), body.c and bundle.c (files as bodies). */
#ifndef ARRAYD_SERVER_FILES_INT_H
#define ARRAYD_SERVER_FILES_INT_H

#include <pthread.h>

#include "compute/base/meter.h"
#include "compute/base/worker.h"
#include "server/files/files.h"
#include "server/files/folders.h"
#include "server/files/process.h"
#include "server/server.h"

/* Work that waits, on one of the threads: a job's, or a request's, which waits for it. */
struct file_task {
    void (*run)(struct file_task *t); /* its last use of the task may be anything */
    struct user_job *job;             /* NULL: */
    struct request *req;
    const struct principal *who;
    struct file_task *next;
};
/* Whether the task is still wanted: its job was not cancelled, or its request's client is there and
 * the daemon's end leaves time for it. One that waits and is not is run soon, to end. */
bool file_task_goes_on(const struct file_task *t);
/* The error of one of a request's that does not. */
void files_why_not(const struct file_task *t, struct err *e);
/* Looks are short; bodies are a request's and may take long, as moves may, which are jobs. */
enum file_lane { LANE_LOOKS, LANE_BODIES, LANE_MOVES, LANES };

#define LOOK_THREADS 4
#define BODY_THREADS 4
#define LANE_MOST    64 /* as file-jobs */
struct lane {
    struct worker worker;
    struct file_task *first, **last;
    int most;                                   /* run at a time, and */
    int most_of_one;                            /* of one user */
    const struct principal *running[LANE_MOST]; /* whose tasks run */
};

struct files {
    struct server *server;
    struct folders *folders;
    int spool;     /* the folder for files that are nowhere; −1: it cannot be opened */
    char *program; /* arrayd-file; NULL: not installed */
    pthread_mutex_t lock;
    struct lane lanes[LANES];
};

/* The task will run; those of users with fewer running ones go first, and no user has all threads.
 * ERR_OVERLOADED: there can be no thread. */
enum err_code files_submit(struct files *f, enum file_lane lane, struct file_task *t,
                           struct err *e) must_check;
/* Makes the task a job's, that has not begun, of a request with that body, about the file of that
 * folder and path. Errors of jobs_transfer. */
enum err_code files_job(struct request *req, struct session *s, const char *kind, struct json body,
                        const struct folder *folder, const char *path, struct file_task *t,
                        struct err *e) must_check;
/* Submits such a task; *ret is a reference of the caller's. Where that fails, the job has ended and
 * is no longer the task's. ERR_OVERLOADED. */
enum err_code files_begin(struct files *f, struct file_task *t, struct user_job **ret,
                          struct err *e) must_check;
/* A file for one that a request brings or gets. ERR_DISK_FULL, ERR_OVERLOADED, ERR_FILE_IO. */
enum err_code files_spool(const struct files *f, struct new_file *ret, struct err *e) must_check;
/* Memory for such a file has been refused: err_oom, and what does without. */
enum err_code files_too_large(struct err *e);
/* What a process is started with, which is to move contents or only looks; the caller sets file,
 * write and goes_on. */
struct process_spec files_process(const struct files *f, bool moves);
/* The member of a body; *ret stays as it is without one. ERR_BAD_FIELD. */
enum err_code files_get_bool(struct json of, const char *name, bool *ret, struct err *e) must_check;
/* Whether "ghosts" of a body, which may be absent, is "keep". ERR_BAD_FIELD. */
enum err_code files_get_ghosts(struct json v, bool *ret, struct err *e) must_check;

#endif
