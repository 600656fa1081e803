/* Tasks: work under construction, then in flight; and the streams that order it.
 *
 * For the engine's own files and for program/, which submits work. Terms: a task is a piece of work
 * as the engine sees it, with the storage that it uses; it is in flight from its submission until
 * it is over; its job is the part handed to the backend (backend.h); its sequence number is its
 * place in its stream's order. engine->lock orders submissions, and so sequence numbers across
 * streams. Of the caller's functions only work_watch.begun and those of engine_keep may run under
 * the lock. */
#ifndef ARRAYD_TASK_H
#define ARRAYD_TASK_H

#include <pthread.h>

#include "compute/memory/storage.h"

struct plan_entry;

struct engine_stream {
    _Atomic uint32_t refs;
    struct engine *engine;
    struct backend_stream *stream;
    int device;
    struct account *account; /* engine_stream_account; NULL: none */
    const struct work_watch *watch;
    void *watcher;
    struct engine_stream *next_dead;
};

struct storage_use {
    struct storage *storage;
    bool write;
    bool whole; /* write: every element, without reading the old contents */
    bool fresh; /* write: there are no old contents */
    bool alone; /* read: ordered behind the readers too, like a write */
};

/* Kernels that a task runs but does not own. The owner's callbacks: took, with their run time if
 * they succeeded, then end, when they are no longer needed. Any thread. */
struct loan {
    void (*took)(struct loan *l, double device_ms);
    void (*end)(struct loan *l);
};

/* The download that reads what a task fetches, and holds the task's storage. Lives as long as the
 * task is in flight. */
struct reader {
    struct storage *storage;
    _Atomic bool left;                    /* the download was closed */
    const _Atomic bool *_Atomic given_up; /* download_given_up; or NULL */
};

/* Memory for what a task will fetch. */
struct room {
    const struct buffer *buffer;
    struct storage *storage; /* a reference; NULL: it was used */
};

/* Work under construction, then in flight. Lives in its own arena, which goes with it. */
struct task {
    struct job job;
    struct arena *arena;
    struct engine_stream *stream;
    struct storage_use *uses; /* a reference each */
    uint32_t n_uses, cap_uses;
    struct fence *waits;     /* task_reserve's */
    struct task *fetch;      /* brings arrays back to the device before this task (move.c) */
    bool fetch_submitted;    /* task_unlock reports its completion */
    struct buffer **fetched; /* buffers whose storage it exchanges, borrowed */
    struct room *rooms;      /* fetch_room's */
    uint32_t n_fetched, cap_fetched, cap_copies, n_rooms, cap_rooms;
    struct loan *loan;        /* or NULL */
    struct plan_entry *entry; /* owner of the kernels it runs, a reference; or NULL */
    struct reader *reader;    /* reads what the task fetches, or NULL */
    uint64_t number;          /* in order of submission, across streams */
    uint64_t if_version;      /* if not 0: run only while the target's contents have this version */
    int64_t result_at;        /* bytes, see eval_request.out_at */
    struct answer *answer;    /* receives the guards' result, or NULL */
    engine_done *done;
    void *user;
    const _Atomic bool *given_up; /* see eval_request; or NULL */
    struct work_seen *seen;       /* the same */
    bool unused;                  /* the same */
    struct task *older, *newer;   /* in the list of tasks in flight, */
    bool in_flight;               /* if it is in it, */
    _Atomic bool unwanted;        /* and task_unwanted's last result */
    double device_ms;
    enum err_code result;
    _Atomic int state;
};

/* The result of a plan's guards (SLOT_ANSWER), for the caller of engine_run, which owns it. */
struct answer {
    void (*wake)(void *user);
    void *user;
    struct download *download; /* set if the task was submitted */
    uint64_t was, is;          /* version of the target before and after */
};

/* --- streams (stream.c) --- */

void engine_stream_ref(struct engine_stream *s);
/* Frees the streams whose last reference was dropped. */
void engine_stream_reap(struct engine *g);
/* The engine's own stream on a device, borrowed; engine_visit: only if *s is on another device. */
enum err_code engine_visitor(struct engine *g, int device, struct engine_stream **ret,
                             struct err *e) must_check;
enum err_code engine_visit(struct engine_stream **s, int device, struct err *e) must_check;

/* --- task.c --- */

/* A task with an arena of its own; NULL without memory. */
struct task *task_new(struct engine_stream *s);
void task_free(struct task *t); /* one that was not submitted */
/* Adds a use (takes a reference); false without memory. */
bool task_use(struct task *t, struct storage *st, bool write);
/* Adds a copy of all bytes of `to`, from byte `at` on of `from`, on any device or in host memory;
 * the task uses both. False without memory. */
bool task_copy(struct task *t, const struct storage *to, const struct storage *from, int64_t at);
/* Submitting has three steps under one hold of g->lock. task_reserve allocates the memory needed
 * (false: none, nothing has happened). task_submit always submits, and returns an error if the work
 * failed at once (job.untouched: before it wrote anything), so that the caller knows whether to
 * publish its own changes. task_unlock unlocks, and only then is done() called. */
bool task_reserve(struct task *t) __attribute__((warn_unused_result));
enum err_code task_submit(struct task *t);
void task_unlock(struct task *t);
/* task_unlock for a task that was not submitted, although t->fetch may have been; frees the task.
 */
void task_unlock_unsubmitted(struct task *take_t);

/* Whether nobody wants the job's results any more: for job.unwanted, of work that writes elements
 * of arrays. */
bool task_unwanted(struct job *job);

/* Describes why work failed (err_has_reason, or ERR_CONTENTS_LOST): by storage.refusal, and the
 * backend's own words if known. */
#define ENGINE_REASON DOWNLOAD_REASON
void engine_reason(const struct engine *g, enum err_code code, uint64_t refusal,
                   char ret[ENGINE_REASON]);

#endif
