/* Tasks: work under construction, then in flight; and the streams whose order it comes in.
 *
 * For the engine's own files and the rooms above that submit work (program/). The words: a task is
 * a piece of work as the engine sees it, with the storage that it uses; it is in flight from its
 * submission until it is over; its job is what the backend gets of it (backend.h); a ticket is its
 * place in the order of its stream. engine->lock orders submissions: the order of tickets across
 * streams is under it. Nothing of the caller's runs under the lock. */
#ifndef ARRAYD_TASK_H
#define ARRAYD_TASK_H

#include <pthread.h>

#include "compute/engine/storage.h"

struct plan_entry;

struct engine_stream {
    _Atomic uint32_t refs;
    struct engine *engine;
    struct stream *stream;
    int device;
    struct account *account; /* engine_stream_account; NULL: nobody's */
    const struct work_watch *watch;
    void *watcher;
    struct engine_stream *next_dead;
};

struct storage_use {
    struct storage *storage;
    bool write;
    bool whole; /* write: every element, whatever was there before */
    bool fresh; /* write: nothing was there before */
    bool alone; /* not write: comes behind the readers, too, as a write would */
};

/* Kernels that a task runs and that belong to somebody else, who is told: how long they took, where
 * that went well, and then that they are not needed any more. Any thread. */
struct loan {
    void (*took)(struct loan *l, double device_ms);
    void (*end)(struct loan *l);
};

/* Who reads what a task fetches: a download, which holds the task's storage. It is there as long as
 * the task is in flight. */
struct reader {
    struct storage *storage;
    _Atomic bool left;                    /* has gone */
    const _Atomic bool *_Atomic given_up; /* download_given_up; or NULL */
};

/* Work under construction, then in flight. Lives in its own arena, which goes with it. */
struct task {
    struct job job;
    struct arena *arena;
    struct engine_stream *stream;
    struct storage_use *uses; /* a reference each */
    uint32_t n_uses, cap_uses;
    struct fence *waits;     /* task_reserve's */
    struct task *fetch;      /* what brings arrays back to the device before it (move.c) */
    bool fetch_submitted;    /* task_unlock tells of it */
    struct buffer **fetched; /* whose storage it exchanges, borrowed */
    uint32_t n_fetched, cap_fetched, cap_copies;
    struct loan *loan;        /* or NULL */
    struct plan_entry *entry; /* whose kernels it runs, a reference; or NULL */
    struct reader *reader;    /* who reads what it fetches, or NULL */
    uint64_t number;          /* in the order submitted, of all streams */
    uint64_t if_version;      /* 0, or: only while the target's contents have this version */
    int64_t result_at;        /* bytes, see eval_request.out_at */
    struct answer *answer;    /* who reads what its guards say, or NULL */
    engine_done *done;
    void *user;
    const _Atomic bool *given_up; /* see eval_request; or NULL */
    struct task *older, *newer;   /* of those in flight, */
    bool in_flight;               /* where it is one, */
    _Atomic bool unwanted;        /* and what task_unwanted found */
    double device_ms;
    enum err_code result;
    _Atomic int state;
};

/* What a plan's guards say (SLOT_ANSWER), for the caller of engine_run, who owns it. */
struct answer {
    void (*wake)(void *user);
    void *user;
    struct download *download; /* set where the task was submitted */
    uint64_t was, is;          /* version of the target before and after */
};

/* --- streams (stream.c) --- */

void stream_ref(struct engine_stream *s);
/* Frees the streams whose last reference has gone. */
void stream_reap(struct engine *g);
/* The engine's own stream on a device, borrowed; engine_visit: only where *s is not on it. */
enum err_code engine_visitor(struct engine *g, int device, struct engine_stream **ret,
                             struct err *e) must_check;
enum err_code engine_visit(struct engine_stream **s, int device, struct err *e) must_check;

/* --- task.c --- */

/* A task with an arena of its own; NULL without memory. */
struct task *task_new(struct engine_stream *s);
void task_free(struct task *t); /* one that was not submitted */
/* Adds a use (takes a reference); false without memory. */
bool task_use(struct task *t, struct storage *st, bool write);
/* Submitting has three steps under one hold of g->lock: task_reserve takes the memory it needs
 * (false: none, nothing has happened); task_submit always submits, and says at once where the work
 * failed at once (job.untouched: before it wrote anything), so that the caller makes its own
 * changes visible, or not; task_unlock unlocks, and only then is done() told. */
bool task_reserve(struct task *t) __attribute__((warn_unused_result));
enum err_code task_submit(struct task *t);
void task_unlock(struct task *t);
/* task_unlock where only t->fetch may have been submitted, not the task, which goes. */
void task_unlock_unsubmitted(struct task *take_t);

/* Which work nobody wants any more: for job.unwanted, of work that makes elements of arrays. */
bool task_unwanted(struct job *job);

/* What a backend keeps with the kernels goes. */
void kernels_release(struct engine *g, struct ir_kernel *const *kernels, uint32_t n);

/* What there is to say of work that failed with ERR_INTERNAL or ERR_FAULTED: job.refusal, and what
 * the backend says of it where that is known. */
#define ENGINE_REASON DOWNLOAD_REASON
void engine_reason(const struct engine *g, enum err_code code, uint64_t refusal,
                   char ret[ENGINE_REASON]);

#endif
