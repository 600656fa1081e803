/* What the engine's own files share: storage, buffers, tasks. Included by account.c, engine.c,
 * memory.c, bind.c, export.c, loop.c, loop_kernels.c, move.c, pin.c, plan.c, run.c, evaluate.c,
 * plan_cache.c, program.c, program_explain.c, program_run.c, create.c, ghost.c, transfer.c and
 * upload.c only.
 *
 * Locking: engine->lock orders submissions; it protects buffer->storage, the marks of a storage and
 * the order of tickets across streams. Reference counts are atomic and need no lock. Nothing of the
 * caller's runs under the lock. */
#ifndef ARRAYD_ENGINE_INT_H
#define ARRAYD_ENGINE_INT_H

#include <pthread.h>

#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/ir/fuse.h"
#include "compute/program/loop.h"

/* A place in a stream's order that a storage was used at. */
struct mark {
    struct engine_stream *stream; /* holds a reference; NULL: none */
    uint64_t ticket;
};

/* A download that reads a storage, and for whom; pin.c's. */
struct pin {
    struct account *reader; /* a reference, or NULL: nobody's */
    struct pin *next;
};

/* One allocation at a fixed address. */
struct storage {
    _Atomic uint32_t refs;
    _Atomic uint32_t pins;     /* downloads reading it: writers go elsewhere */
    struct pin *pinned_by;     /* these; under pins_lock, as is: */
    bool replaced;             /* no array has it any more */
    _Atomic double written_ms; /* device time of the work that wrote it last */
    _Atomic double compile_ms; /* and what compiling its kernels took */
    _Atomic int failed;        /* enum err_code: why its contents are not what was asked for */
    _Atomic uint64_t refusal;  /* of that work, or of what was missed: the job's */
    /* work that was to write here failed and left it as it was: what was submitted until then
     * (task.number) counted on the new contents, what comes later gets the old ones */
    _Atomic int missed; /* enum err_code */
    _Atomic uint64_t missed_until;
    /* What the buffer held before this, a reference, until this is written: where that fails, the
     * buffer has it again (buffer_storage). */
    struct storage *_Atomic before;
    struct engine *engine;
    struct account *account;
    struct account *host_payer; /* in host memory: whose quota it counts for; NULL: nobody's */
    int64_t charged; /* to it: the size, or 0 for one that another stands in for (move.c) */
    struct shared_block share; /* data: NULL, or what another process can map (export.h) */
    struct account *padded_by; /* who pays for what that takes beyond the size; or NULL */
    _Atomic bool exported;     /* somebody may have it mapped */
    bool outstayed;            /* who may not any more; under the engine's lock */
    int device;
    bool host; /* in host memory that the device copies from and to, not in the device's */
    struct storage *next_dead; /* reclaim.c's own, */
    uint64_t kept_ns;          /* as is this: when it was kept */
    void *data;                /* never NULL; not to be followed when size is 0 */
    int64_t size;
    struct mark writer;
    struct mark *readers; /* since the last write, one a stream */
    uint32_t n_readers, cap_readers;
    bool scratch;       /* STORAGE_SCRATCH */
    bool awaited;       /* by work that is wanted; this and below as flight_look last saw it */
    uint32_t in_flight; /* references that are of tasks in flight */
};

/* Identity of contents: what views share. */
struct buffer {
    _Atomic uint32_t refs; /* arrays, and: */
    uint32_t held;         /* by who moves it, under engine->buffers_lock */
    struct engine *engine;
    struct storage *storage;
    int64_t nbytes;
    int device;
    uint64_t id, made; /* array_buffer_id, array_memory_id */
    _Atomic uint64_t version;
    /* not ended; with the lock held while the first comes: the storage stays until the last goes */
    _Atomic uint32_t exports, exports_write, exports_sealed;
    /* seen both as bool and as something else: its bools may be other bytes than 0 and 1 */
    _Atomic bool loose_bool;
    /* in the order of their last use, under engine->buffers_lock */
    struct buffer *older, *newer;
    _Atomic uint64_t used; /* engine->clock at that */
};

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

/* See struct export_figures. */
struct export_counts {
    _Atomic int64_t readers, writers, bytes, shareable;
    _Atomic int64_t small; /* blocks for less than shareable_least, moved there for an export */
    _Atomic uint64_t total, moved;
};

/* Tasks that have been submitted and are not over (flight.c). */
struct flight {
    pthread_mutex_t lock; /* takes none of the engine's others */
    struct task *oldest, *newest;
    _Atomic uint64_t looked_ns;
};

/* What a device keeps with a kernel, about: its text, the form of its parameters. */
#define PREPARED_BYTES ((size_t)24 << 10)

struct engine {
    struct backend *backend;
    char note[512];
    struct engine_config config;
    struct fuse_limits fuse;
    size_t kernel_bytes; /* that a backend keeps with a kernel, about */
    struct plan_cache *plans;
    struct loop_kept *loops; /* loop.h */
    pthread_mutex_t lock;
    _Atomic uint64_t submissions;
    struct flight flight;
    struct engine_stream *_Atomic *visitors; /* by device, made when first needed (transfer.c) */
    pthread_mutex_t buffers_lock;            /* taken after `lock` */
    pthread_mutex_t pins_lock;               /* after both */
    struct buffer *oldest, *newest;
    _Atomic uint64_t clock; /* of uses */
    struct mover *mover;
    struct reclaim *reclaim;                 /* reclaim.h */
    int64_t host_limit;                      /* bytes */
    _Atomic int64_t bytes, host_bytes, jobs; /* bytes: on devices; in host memory */
    _Atomic uint64_t version, evaluations, kernels, failures;
    _Atomic uint64_t evicted, evicted_bytes, fetched;
    struct export_counts exports;
    struct engine_stream
        *_Atomic dead; /* released by whoever submits next: never from a callback */
};

struct storage_use {
    struct storage *storage;
    bool write;
    bool whole; /* write: every element, whatever was there before */
    bool fresh; /* write: nothing was there before */
    bool alone; /* not write: comes behind the readers, too, as a write would */
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
    struct loop_kernels *lent[LOOP_PASSES]; /* that it runs, a reference each; or NULL */
    int64_t lent_steps;                     /* of them */
    struct plan_entry *entry;               /* whose kernels it runs, a reference; or NULL */
    uint64_t number;                        /* in the order submitted, of all streams */
    uint64_t if_version;   /* 0, or: only while the target's contents have this version */
    int64_t result_at;     /* bytes, see eval_request.out_at */
    struct answer *answer; /* who reads what its guards say, or NULL */
    engine_done *done;
    void *user;
    const _Atomic bool *given_up; /* see eval_request; or NULL */
    struct task *older, *newer;   /* flight.c's own, */
    bool in_flight;               /* as is this, */
    _Atomic bool unwanted;        /* and what it found */
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

/* A session's bytes, and so its owner's; of an owner, those in host memory. ERR_QUOTA. */
enum err_code account_charge(struct account *a, int64_t size, struct err *e) must_check;
/* Whatever the limits say; account_check: ERR_QUOTA where it is past one. */
void account_charge_anyway(struct account *a, int64_t size);
enum err_code account_check(const struct account *a, struct err *e) must_check;
void account_discharge(struct account *a, int64_t size);
enum err_code account_charge_host(struct account *owner, int64_t size, struct err *e) must_check;
void account_discharge_host(struct account *owner, int64_t size);
struct account *account_owner(const struct account *a); /* borrowed; NULL: none */
/* NULL allowed. */
void account_worked(struct account *a, double device_ms);
/* Storage with one reference, charged to `account`. Where that is asked for (config) and it is
 * large enough, other processes can map it, but for STORAGE_SCRATCH, which never becomes an
 * array's. ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum storage_how { STORAGE_PLAIN = 0, STORAGE_ZERO = 1, STORAGE_SCRATCH = 2 };
enum err_code storage_new(struct engine *g, struct account *account, int device, int64_t size,
                          enum storage_how how, struct storage **ret, struct err *e) must_check;
/* For what `of` has, in the other kind of memory (not with the lock held where that is the host's:
 * it may take long), uncharged. ERR_OUT_OF_MEMORY; ERR_QUOTA: the payer's owner has no more host
 * memory. */
enum err_code storage_elsewhere(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e) must_check;
/* For what `of` has, in device memory that another process can map; uncharged but for the padding,
 * which the payer pays. ERR_OUT_OF_MEMORY, ERR_QUOTA, ERR_FORBIDDEN, ERR_OVERLOADED. */
enum err_code storage_shareable(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e) must_check;
/* The same in memory as a new array's would be. ERR_OUT_OF_MEMORY, ERR_QUOTA. */
enum err_code storage_renewed(const struct storage *of, struct account *payer, struct storage **ret,
                              struct err *e) must_check;
/* The download `p`, which is to be undone by storage_unpin, reads the storage for `reader`.
 * ERR_QUOTA where that is somebody else's and the reader holds more of others' than his limits
 * allow. */
enum err_code storage_pin(struct storage *st, struct pin *p, struct account *reader,
                          struct err *e) must_check;
void storage_unpin(struct storage *st, struct pin *p);
/* Pinned, and not for its owner: it may become theirs. */
bool storage_is_held_by_others(struct storage *st);
/* The buffer has got other storage, or (false) has this one again; with the lock held. */
void storage_replaced(struct storage *st, bool replaced);
/* Exchanges what two storages of one size are charged for; with the lock held. */
void storage_swap_charges(struct storage *a, struct storage *b);
struct storage *storage_ref(struct storage *st);
void storage_unref(struct storage *st);
static inline void storage_unrefp(struct storage **st)
{
    storage_unref(*st);
}
#define _cleanup_storage_ __attribute__((cleanup(storage_unrefp)))
/* It is written: what was before it is not needed any more. */
void storage_forget(struct storage *st);
/* With the lock held: where the buffer's contents are, borrowed. */
struct storage *buffer_storage(struct buffer *b);

/* Whether its bytes go through the backend's transfers. */
bool storage_is_remote(const struct storage *st);
/* Ends a transfer (or none); the storage's reference goes when no copy uses it. */
void transfer_end(struct transfer *t, struct storage *take_st);
/* It is used now. */
void buffer_touch(struct buffer *b);
/* A reference that is no array's, unless the last one is gone; with buffers_lock held. */
bool buffer_hold(struct buffer *b);
void buffer_release(struct buffer *b);

/* An array over the whole of a storage (reference taken over on success only), C-contiguous. */
struct array *array_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                         const struct view *v, int64_t nbytes);

void stream_ref(struct engine_stream *s);

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

/* flight.c: which work nobody wants any more. A task is there from its submission until just before
 * it lets go of what it uses. */
void flight_add(struct task *t);
void flight_remove(struct task *t); /* no harm where it was not added */
/* For job.unwanted, of work that makes elements of arrays. */
bool flight_unwanted(struct job *job);
/* The storage that a download of the task's holds although nobody reads it any more; or NULL. */
struct storage *download_left(const struct task *t);
/* Whether all that the task is for is a download that nobody wants any more. */
bool task_is_idle_download(const struct task *t);

/* With the lock held, before task_reserve: where the buffer's contents are in host memory, there is
 * room for them on the device, where they are for all later work: brought by t->fetch, which
 * fetch_submit submits before the task, or (`contents` false) written by the task, as a fresh
 * write. Where nothing comes of either: fetch_undo; what has been submitted stands.
 * ERR_OUT_OF_MEMORY. */
enum err_code fetch_add(struct task *t, struct buffer *b, bool contents, struct err *e) must_check;
enum err_code fetch_submit(struct task *t, struct err *e) must_check;
void fetch_undo(struct task *t);

struct mover *mover_new(struct engine *g); /* NULL without memory */
void mover_stop(struct mover *m);          /* no more evictions; ends its thread */
void mover_free(struct mover *m);
/* With the lock held: the task, which is to be submitted, copies the buffer's contents to
 * `take_to`, which becomes its storage; false: without memory, nothing has happened and `take_to`
 * is gone. */
bool move_add(struct task *t, struct buffer *b, struct storage *take_to);

/* The engine's own stream on a device, borrowed; engine_visit: only where *s is not on it. */
enum err_code engine_visitor(struct engine *g, int device, struct engine_stream **ret,
                             struct err *e) must_check;
enum err_code engine_visit(struct engine_stream **s, int device, struct err *e) must_check;

/* The first half of engine_evaluate: a task with the request's plan (task->entry) and the graph
 * over its arrays, in the task's arena; NULL where it is put off. */
enum err_code evaluate_begin(struct engine_stream *s, const struct eval_request *req,
                             struct task **ret, const struct typed **ret_typed,
                             struct eval_times *times, struct err *e) must_check;

/* Runs a typed graph: the heart of evaluate, copy, creators and region uploads. `t` has an arena
 * that holds `typed`; taken in any case. out/out_view as in struct eval_request. */
enum err_code engine_run(struct task *take_t, const struct typed *typed, struct account *account,
                         bool fast_math, struct array *out, const struct view *out_view,
                         struct array **ret, struct err *e) must_check;
/* The plan that engine_run would run, in `arena`. */
enum err_code engine_plan(struct engine *g, struct arena *arena, const struct typed *typed,
                          bool fast_math, struct array *out, const struct view *out_view,
                          struct ir_plan **ret, struct err *e) must_check;
/* Runs a plan whose only arrays are slot 0, `out`, which its kernels read and write, no kernel what
 * it writes itself. `t` has an arena that holds it; taken in any case. */
enum err_code engine_run_plan(struct task *take_t, struct ir_plan *plan, struct account *account,
                              struct array *out, struct array **ret, struct err *e) must_check;
/* The first half of engine_fill_ghost: a task with the plan that fills the array's ghosts, in which
 * it is slot 0; *ret_plan NULL: there is nothing to fill. */
enum err_code fill_begin(struct engine_stream *s, struct array *a, struct task **ret,
                         struct ir_plan **ret_plan, struct err *e) must_check;
/* Where the ghosts of a face lie: together the faces' are all, each once. */
void ghost_cells(const struct array *a, int axis, int side, struct view *ret);
/* Lowers, for the region `target` of a buffer of target_bytes (NULL: a new array). */
enum err_code plan_make(struct arena *arena, const struct engine *g, const struct typed *typed,
                        bool fast_math, const struct view *target, int64_t target_bytes,
                        struct ir_plan **ret, struct err *e) must_check;
/* Operations on elements: what each kernel computes for a point, times its points, those that a
 * reduction visits included. INT64_MAX: so many or more; cost_sum stops there, too. */
int64_t plan_cost(const struct ir_plan *plan);
int64_t cost_sum(int64_t a, int64_t b);
/* ERR_EXPRESSION_TOO_LARGE, at x's place, where it is more than config.max_cost. `what` takes it:
 * "this". */
enum err_code cost_check(const struct engine *g, const struct expr *x, const char *what,
                         int64_t cost, struct err *e) must_check;

/* With the lock held: a download of the first n bytes of a storage that the task, which is still
 * to be submitted, writes. It takes the task's done, which is told after it; download_undo where
 * the task is not submitted or fails at once. */
enum err_code download_of_task(struct task *t, struct storage *st, int64_t n,
                               void (*wake)(void *user), void *user, struct download **ret,
                               struct err *e) must_check;
void download_undo(struct download *d); /* NULL allowed */

/* A graph that is just the array. false without memory. */
bool typed_input_only(struct arena *arena, struct typed *t, struct array *a);

/* With the lock held: ERR_PRECONDITION_FAILED unless the contents have this version (0: any). */
enum err_code require_version(const struct buffer *b, uint64_t version, struct err *e) must_check;

/* ERR_CONFLICT unless the array `name` (NULL: it has none) is on the stream's device. */
enum err_code require_device(const struct engine_stream *s, const struct array *a, const char *name,
                             struct err *e) must_check;

/* What there is to say of work that failed with ERR_INTERNAL or ERR_FAULTED: job.refusal, and what
 * the backend says of it where that is known. */
#define ENGINE_REASON DOWNLOAD_REASON
void engine_reason(const struct engine *g, enum err_code code, uint64_t refusal,
                   char ret[ENGINE_REASON]);

uint64_t engine_next_version(struct engine *g);
#endif
