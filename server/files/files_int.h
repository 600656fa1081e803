/* Shared by the files of server/files: files.c (the threads), look.c (listings, descriptions),
 * import.c, import_plan.c and export.c
 * (jobs). */
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
    const struct principal *who;
    struct file_task *next;
};
enum file_lane { LANE_LOOKS, LANE_MOVES, LANES };

#define LOOK_THREADS 2
#define MOVES_MOST   64 /* as file-jobs */
struct lane {
    struct worker worker;
    struct file_task *first, **last;
    const struct principal *running[MOVES_MOST]; /* whose tasks run */
};

struct files {
    struct server *server;
    struct folders *folders;
    int spool;     /* the folder for files that are nowhere; −1: it cannot be opened */
    char *program; /* arrayd-file; NULL: there is none */
    pthread_mutex_t lock;
    struct lane lanes[LANES];
};

/* The task will run; those of users with fewer running ones go first. ERR_OVERLOADED: there can be
 * no thread. */
enum err_code files_submit(struct files *f, enum file_lane lane, struct file_task *t,
                           struct err *e) must_check;
/* What a process is started with, for looks or moves; the caller sets file, write and goes_on. */
struct process_spec files_process(const struct files *f, enum file_lane lane);

#endif
