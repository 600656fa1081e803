/* Inside of the fake driver: its objects, and what its files offer one another.
 *
 * One lock (fake.lock) guards everything but the contents of device memory; work is run outside
 * it by the streams' threads. `fake.changed` is signalled whenever a piece of work ended or the
 * driver failed; all waiting is on it. */
#ifndef ARRAYD_FAKE_FAKE_H
#define ARRAYD_FAKE_FAKE_H

#include <pthread.h>
#include <stdbool.h>

#include "compute/gpu/api/cuda_api.h"
#include "tests/fake/fake_cuda.h"
#include "tests/fake/module.h"

/* The driver's functions under the symbols that driver.def gives them. */
#define CU(name, symbol, args) CUresult name args __asm__(symbol);
#include "compute/gpu/api/driver.def"
#undef CU

enum { FAKE_MAX_DEVICES = 16, FAKE_POISON = 0xa5 };

struct fake_device {
    struct CUctx_st *context;
    size_t reserved; /* by its pools */
};

struct fake {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool initialised, forked, reverse, trace, forgets;
    int unkind;       /* 1: later devices first, -1: earlier ones, 0: as it comes */
    double pushed_at; /* ms: when there was new work last, if unkind */
    int n_devices, delay_us;
    int arch[FAKE_MAX_DEVICES];
    size_t memory;
    struct fake_device devices[FAKE_MAX_DEVICES];
    long calls, live[FAKE_KINDS];
    long fail_at, fail_launch_at, refuse_at; /* counting down; 0 is never */
    int fail_code, fail_launch_code, refuse_code, sticky;
    long hold_left;                             /* launches that will be held */
    bool holding;                               /* those that are wait */
    const char *fail_file, *failed, *fail_name; /* fail_at counts calls of that name; NULL: all */
    bool armed;                                 /* fail_at is of that file */
    long launched, failed_behind;               /* kernels since the reset; as `failed` was set */
    bool excused;                               /* fake_cuda_excuse */
    void (*handler)(const char *message);
    struct CUstream_st *streams; /* with a thread */
    bool has_ended;
    pthread_t ended; /* the thread of a destroyed stream that ended last: not yet joined */
};
extern struct fake fake;

struct CUctx_st {
    int device, refs;
    struct CUstream_st *null_stream;
};

struct CUmemPoolHandle_st {
    struct CUmemPoolHandle_st *next, *prev; /* as an event's */
    unsigned magic;
    int device;
    unsigned access; /* as its allocations' */
    size_t used, reserved, max;
    uint64_t threshold;
    long allocations;
    bool destroyed;
};

/* Who asked: return addresses, the innermost first. */
struct trail {
    void *at[24];
    int n;
};
void trail_take(struct trail *t);
void trail_print(const char *what, const struct trail *t); /* to stderr; addr2line reads it */

struct allocation {
    struct trail made;
    char *start, *map;
    size_t size, mapped;
    struct CUmemPoolHandle_st *pool; /* NULL: pinned host memory, or: */
    bool is_mapped;                  /* its pages are somebody else's, vmm.c's if it is of: */
    const struct range *range;       /* whose memory goes on where the next of it begins */
    unsigned access;                 /* a bit a device that has it; grows under kernels' eyes */
    bool freeing;                    /* its release is queued */
    unsigned char *written;          /* a bit a byte; NULL: not followed */
};

struct CUevent_st {
    struct CUevent_st *next, *prev; /* all there are: a lost device's are nobody's to destroy */
    unsigned magic, flags;
    int refs; /* the handle's, and those of queued work */
    struct CUctx_st *context;
    uint64_t recorded, completed;    /* generations */
    struct CUstream_st *recorded_in; /* the last; gone once it is completed */
    uint64_t recorded_at;            /* which piece of its work that is */
    struct CUevent_st *captured;     /* what stands for it in a graph; NULL: recorded for all */
    /* of one that stands for another: */
    struct CUgraph_st *capture; /* being captured; NULL when that has ended */
    int *seen;                  /* of each lane, how much it is recorded behind */
    double at;                  /* ms, of the last completed */
};

struct CUmod_st {
    struct CUmod_st *next, *prev; /* as an event's */
    unsigned magic;
    int refs; /* the handle's, and those of queued launches */
    struct CUctx_st *context;
    void *handle;
    const struct fake_module *module;
    char *image; /* the shared object that was loaded, for a place's file and line */
    size_t n_image;
    bool threads; /* it has barriers or shuffles */
    pthread_mutex_t running;
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    struct CUmod_st *module;
    const struct fake_kernel *kernel;
    size_t asked; /* bytes of shared memory that a block may have, 0: as it comes */
};

/* One piece of a stream's work. `run` is called by its thread without the lock and returns a driver
 * error; `dispose` with the lock, run or not. */
struct work {
    struct work *next;
    int (*run)(struct work *w);
    void (*dispose)(struct work *w);
    bool is_launch, is_record;
    bool held;               /* wait for fake_cuda_release */
    struct CUevent_st *wait; /* until generation `until` completed, then run */
    uint64_t until;
    struct CUstream_st *recorded_in; /* that generation, as an event's */
    uint64_t recorded_at;
    int lane; /* of a graph */
    union {
        struct {
            void *to;
            const void *from;
            size_t n;
            int value;                 /* of a set */
            bool to_owned, from_owned; /* memory of the driver's, not the program's */
            struct CUctx_st *to_context, *from_context; /* which reach it; NULL: the stream's */
            struct trail asked;
        } copy;
        struct {
            struct CUevent_st *event;
            uint64_t generation;
        } record;
        struct allocation *release;
        struct {
            struct CUfunc_st *function;
            struct fake_dim grid, block;
            unsigned shared;
            void **params;
            char *bytes;
            int fail;
        } launch;
    };
};

struct CUstream_st {
    unsigned magic;
    struct CUctx_st *context;
    pthread_cond_t ready;
    struct work *first, **last, *running;
    uint64_t issued, done, wanted;
    bool stop;
    struct CUgraph_st *capture; /* what it is asked for goes there; NULL: is run */
    int lane;                   /* of that */
    struct CUstream_st *next;
};

enum {
    MAGIC_STREAM = 0x53545245,
    MAGIC_EVENT = 0x4556454e,
    MAGIC_MODULE = 0x4d4f4455,
    MAGIC_POOL = 0x504f4f4c
};

/* state.c */
enum { NEEDS_INIT = 1, NEEDS_CONTEXT = 2 };
extern _Thread_local struct CUctx_st *fake_current;
/* Counts a call. CUDA_SUCCESS with the lock held, or an error without it. A release gives `release`
 * its failure on demand and goes on. */
int fake_enter(const char *name, unsigned needs, int *release);
int fake_leave(int result); /* unlocks */
bool fake_sticky_code(int code);
void fake_break(int code); /* with the lock: becomes sticky */
/* Something no correct program does: tells the handler, or ends the process. Without the lock. */
void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something that the driver has an error for: tells the handler, or standard error. Likewise. */
void fake_mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *fake_alloc(size_t n); /* zeroed; ends the process when there is none */
double fake_now(void);      /* ms */
/* The code a launch is to fail with at the call (returned) or in the stream (*ret_later); with the
 * lock. */
int fake_launch_failure(int *ret_later);
/* In the stream, without the lock: what a launch fails with; "held", when p.go is there. */
int fake_held_failure(int code);

/* stream.c; with the lock held */
/* The current context's own for NULL; NULL when it is not one, or another context's. */
struct CUstream_st *stream_of(CUstream s);
struct CUstream_st *stream_new(struct CUctx_st *context);
void stream_push(struct CUstream_st *s, struct work *w);
/* Until what is queued now has ended; the sticky error or success. */
int stream_wait(struct CUstream_st *s);
void stream_wait_all(void);
struct CUevent_st *event_new(struct CUctx_st *context, unsigned flags);
void event_unref(struct CUevent_st *e);
void event_record(struct CUevent_st *e, struct CUstream_st *s);
void event_wait(struct CUevent_st *e, struct CUstream_st *s);
void events_forget(const struct CUgraph_st *capture); /* it has ended */
void stream_end(struct CUstream_st *s);               /* when it has run what is queued */

/* memory.c; with the lock held */
/* For a pool, or pinned host memory (NULL); NULL without memory. */
struct allocation *memory_new(size_t size, struct CUmemPoolHandle_st *pool);
void memory_drop(struct allocation *a);
/* The live allocation that p lies in or just behind; NULL. */
struct allocation *memory_holding(const void *p);
/* The live allocation that holds the first of n bytes at p, if it holds the others too, or what is
 * mapped behind it does, and the current device has access; NULL (and a warning that says why)
 * otherwise. `executing`: one whose release is queued counts too. */
struct allocation *memory_find(const void *p, size_t n, bool executing, const char *who);
bool memory_owned(const void *p); /* inside a live allocation, pinned host memory too */
/* Where n bytes at p are, for a message. Takes the lock. */
void memory_describe(const void *p, size_t n, char *text, size_t n_text);

/* Pages that are somebody else's become an allocation, or are none any more. */
struct allocation *memory_add_mapped(char *start, size_t size, unsigned char *written,
                                     const struct range *range, unsigned access);
void memory_drop_mapped(struct allocation *a);
/* The pool's memory, what it has given out already too, is these devices' to use. */
void memory_share(struct CUmemPoolHandle_st *pool, unsigned devices);
/* What was pinned of somebody's own memory: another process knows nothing of it. */
void memory_forget_pinned(void);

/* driver.c */
/* A bit each; 0 for a description that is not one. */
unsigned devices_named(const CUmemAccessDesc *who, size_t n);
bool devices_reach(unsigned devices, int owner); /* may have access to its memory */

/* pool.c */
bool pool_fits(int device, size_t bytes); /* beside what pools and others have reserved */

/* vmm.c */
bool vmm_is_there(void);

/* access.c: what kernels do to memory. */
enum fault {
    FAULT_NONE,
    FAULT_OUTSIDE,
    FAULT_DENIED, /* another device's */
    FAULT_UNWRITTEN,
    FAULT_SHARED,
    FAULT_SHARED_UNWRITTEN
};
struct access {
    const struct fake_module *module;
    int device;
    const char *stack; /* of the launch's threads: theirs to use */
    size_t n_stack, n_static, n_dynamic, dynamic_at;
    unsigned char *written; /* of shared memory: static, then (at dynamic_at) dynamic */
    /* the access that was at fault, and the code that made it */
    const char *at;
    size_t n;
    int how;
    const void *from;
};
/* An allocation becomes a kernel's to use, and is no more; with the lock. */
void access_add(struct allocation *a);
void access_drop(struct allocation *a);
/* For n bytes, none of which is written; NULL without memory. */
unsigned char *access_written_new(size_t n);
void access_written_free(unsigned char *written, size_t n);
/* Device memory or the host's, of which nothing is followed. Bytes have been copied; filled, from
 * NULL. */
void access_copied(const void *to, const void *from, size_t n);
bool access_is_written(const void *p, size_t n);
/* This thread runs a launch from now on; a block of it. */
void access_begin(struct access *a, const struct fake_module *m, const char *stack, size_t n_stack,
                  size_t shared);
void access_begin_block(struct access *a);
void access_check(const void *p, unsigned long n, int how, const void *from); /* fake_host's */
/* Shared memory that something is on its way to: not written until then. */
void access_forget(const void *p, unsigned long n);

/* copies.c: a thread's copies that are on their way. */
struct copies {
    struct copy {
        char *to;
        const char *from;
        unsigned n, batch;
        const void *code;
    } * list;
    unsigned n, capacity, batch; /* batch: what is being filled */
};
void copies_add(struct copies *c, void *to, const void *from, unsigned n, const void *code);
void copies_arrived(struct copies *c, unsigned left);

/* fiber.c: runs a launch; 0, the error it trapped with, or FIBER_VIOLATION. */
enum { FIBER_VIOLATION = -1 };
struct failure {
    char why[512];
    enum fault fault;     /* FAULT_NONE: `why` tells all */
    struct access access; /* that was at fault */
};
int fiber_launch(const struct fake_module *module, const struct fake_kernel *kernel, bool threads,
                 bool reverse, void *const *params, struct fake_dim grid, struct fake_dim block,
                 unsigned shared, struct failure *ret);
void fiber_fault(enum fault fault); /* ends the launch of this thread; does not return */

/* module.c; with the lock */
void module_unref(struct CUmod_st *m);
void launch_copy(struct work *to, const struct work *from); /* what a launch has for itself */

/* graph.c; with the lock */
/* Whether the stream captures, and has taken the work. */
bool graph_takes(struct CUstream_st *s, struct work *w);
/* What is to stand for an event that a capturing stream records. */
struct CUevent_st *graph_event(struct CUstream_st *s);
/* The stream is to wait for what stands for an event (NULL: it is not of a capture): joins it. */
int graph_joins(struct CUstream_st *s, const struct CUevent_st *e);

#endif
