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

/* Work that waits, on one of the threads. */
struct file_task {
    void (*run)(struct file_task *t); /* its last use of the task may be anything */
    /* Whether it is still wanted; one that is not is run soon, to end. NULL: always. Called with
     * the lock held. */
    bool (*wanted)(struct file_task *t);
    const struct principal *who;
    struct file_task *next;
};
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
/* A job that has not begun, of a request with that body, about the file of that folder and path. Of
 * its two references one is the caller's. Errors of jobs_transfer. */
enum err_code files_job(struct request *req, struct session *s, const char *kind, struct json body,
                        const struct folder *folder, const char *path, struct user_job **ret,
                        struct err *e) must_check;
/* What a process is started with, which is to move contents or only looks; the caller sets file,
 * write and goes_on. */
struct process_spec files_process(const struct files *f, bool moves);
/* Whether requests may go on: not once the daemon ends and drain-timeout is over. */
bool files_go_on(const struct files *f);

#endif
