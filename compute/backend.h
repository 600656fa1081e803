/* What a device must be able to do: the interface that compute/cpu and compute/gpu stand behind.
 *
 * Called by the engine only. A backend owns devices, memory and streams; it knows kernels (ir.h)
 * and raw storage, nothing of arrays, sessions or requests. All calls are thread-safe unless said
 * otherwise. Only backend.c knows which backends exist.
 *
 * Order: work of one stream runs in the order submitted. Across streams nothing is ordered except
 * by the fences a job waits for. No call here blocks on the device; completion is told by callback.
 */
#ifndef ARRAYD_BACKEND_H
#define ARRAYD_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/ir/ir.h"

struct backend;
struct stream;
struct transfer;

struct backend_device {
    int index;
    char name[128];
    char architecture[32];             /* "sm_90", "x86_64 avx2" */
    int64_t memory_total, memory_free; /* bytes */
};

/* What was on a device when it was found lost: pieces of work with kernels launched that were not
 * seen to have run. Each may be the one that did it; what only waited behind them did not. */
struct fault_kernel {
    char key[65];     /* as the kernel cache names it */
    const char *form; /* kernel_explanation's */
    bool refused;     /* it is not run any more: ERR_FAULTED */
};
struct fault_work {
    void *asker;                        /* its job's */
    const struct fault_kernel *kernels; /* each once; none: it had copies there */
    uint32_t n_kernels;
};
struct backend_fault {
    int device;
    const struct fault_work *work;
    uint32_t n_work;
    bool launching; /* nothing was there: the work is what was just being launched */
    bool forgotten; /* what is refused could not be written down: another process will run it */
};

/* In the folder of compiled kernels: a line for each kernel that was on a device when it faulted,
 * "refused …" or "suspect …"; any of them, and the file, may be deleted at any time. */
#define FAULTED_FILE "faulted"
/* How many of them, and of plans, that file has refused. 0 too where it cannot be read. */
int backend_refused(const char *kernel_cache);

struct backend_config {
    int threads;                /* CPU: worker threads, 0 = one a core this process may run on */
    int64_t memory_limit;       /* bytes on each device, scratch included; 0 = what it has */
    int64_t host_memory;        /* bytes of arrays in host memory; 0 = half of the machine's */
    int64_t inline_elements;    /* CPU: jobs up to this many point-operations run in submit() itself
                                   when nothing is queued before them; 0 = never */
    const char *kernel_cache;   /* CUDA: folder of compiled kernels, NULL: none on disk */
    int64_t kernel_cache_bytes; /* CUDA: what that folder may take */
    int64_t kernel_cache_entries; /* CUDA: kernels kept in memory */
    int64_t slab_memory;          /* CUDA: bytes of pinned host memory a device */
    int compile_threads;          /* CUDA: 0 = one for two cores, at most 8 */
    bool shareable;               /* memory may be exported to other processes (export.h) */
    int64_t shareable_least; /* bytes: arrays of that size and more can be, from their creation */
    /* seconds that such memory is kept for new arrays when nobody uses it any more (reclaim.h) */
    double shareable_keep_s;
    /* Told once, from any thread, when a device is lost; must not block. NULL: not told. */
    void (*lost)(void *user, const char *why);
    /* Told once that what was on the device is known, and `fault` follows, which may take as long
     * as a disk takes. Any thread; must not block. NULL: not told. */
    void (*noted)(void *user);
    /* Told once behind both, before any of the work that was on the device is: what was there, and
     * is written down now. Any thread; must not call the backend. NULL: not told. */
    void (*fault)(void *user, const struct backend_fault *fault);
    void *lost_user;
};

/* What memory is handed out for, where the system can make that so. */
enum share_mode {
    SHARE_READ,   /* its descriptor is for reading */
    SHARE_SEALED, /* so is every other that can be made of that */
    SHARE_WRITE
};

/* Memory that another process can map. */
struct shared_block {
    void *data;     /* as alloc's; NULL: none */
    int64_t size;   /* bytes taken, and to be mapped: what was asked for, rounded up */
    int64_t handle; /* the backend's own */
};
#define DEVICE_UUID 48

/* What there is to say about a backend, sentences for a person; "" where there is nothing. */
struct backend_report {
    char warning[384]; /* what does not work as it was asked for */
    char timings[256]; /* what opening took */
};

/* What a kernel runs as. */
struct kernel_explanation {
    struct strb source; /* generated text, or the interpreter's listing; caller's to free */
    const char *form;   /* "flat", "rows", …; static text */
    bool cached;        /* compiled already, in memory or on disk */
    int registers, shared, local; /* a thread's, bytes a block's, bytes a thread's; −1: unknown */
};

/* A point in a stream's order: all work up to and including `ticket`. */
struct fence {
    struct stream *stream;
    uint64_t ticket; /* 1, 2, … in the order submitted */
};

enum copy_way { COPY_IN, COPY_OUT, COPY_WITHIN }; /* a device, from or to the host */
struct job_copy {
    void *to;
    const void *from;
    int64_t n; /* bytes, > 0 */
    enum copy_way way;
};

/* One piece of work. Its kernels run one after the other. What it needs besides its slots (code,
 * scratch memory, parameters) is there before its first kernel runs, or it fails with the result
 * untouched: for want of memory half a result is never left behind, only where a device fails. The
 * submitter owns it and keeps it, the kernels and the memory alive until done() is called; done()
 * is called exactly once, from any thread, possibly from inside submit(), and must not block. */
struct job {
    struct ir_kernel *const *kernels;
    uint32_t n_kernels;
    uint32_t loop_from, loop_n;   /* loop_n of them, from that number on, */
    uint32_t repeats;             /* are run so many times over, ≥ 1 where loop_n > 0 */
    void *const *slots;           /* base address of each plan slot */
    void *const *const *bindings; /* the same of each kernel, where they differ, or NULL */
    /* fences to wait for, besides the stream's own order */
    const struct fence *waits;
    uint32_t n_waits;
    /* whole blocks between a device's memory and host memory (host_alloc), or within the device's,
     * before the kernels */
    const struct job_copy *copies;
    uint32_t n_copies;
    void (*done)(struct job *job);
    /* Told just before the job's fence passes, result and device_ms set; as done(), must not block.
     */
    void (*measured)(struct job *job);
    /* Whether nobody wants what the job makes any more, nor minds in what state its memory is left.
     * May be asked often, from any thread, but under no lock of the backend's, until done() is
     * told. A backend that asks gives such a job up, which then has failed: ERR_NOT_FOUND. NULL: it
     * is wanted in any case. */
    bool (*unwanted)(struct job *job);
    void *user;
    void *asker; /* whose work it is, for a fault (backend_fault): the submitter's own */
    struct transfer
        *fetch;           /* a download whose first bytes leave right behind the kernels, or NULL */
    enum err_code result; /* ERR_OK, ERR_DEVICE_LOST, ERR_OUT_OF_MEMORY, ERR_INTERNAL, ERR_FAULTED,
                             ERR_NOT_FOUND */
    int64_t wanted;       /* ERR_OUT_OF_MEMORY: bytes of device memory it lacked; 0: other memory */
    bool untouched;       /* it failed, and no kernel that writes what the last one does had begun:
                           that memory is as it was */
    bool in_submit;       /* done() is told inside submit() */
    double device_ms;     /* time the device spent on it, set before done() */
    double compile_ms;    /* time its kernels' compilation took, 0 when they were there */
    uint64_t refusal;     /* for reason(): which kernel is not run; 0: unknown */

    /* the backend's own, zero on entry */
    struct job *next;
    uint64_t ticket;
    struct stream *stream;
    void *private_data;
};

static inline void *const *job_slots(const struct job *job, uint32_t kernel)
{
    return job->bindings ? job->bindings[kernel] : job->slots;
}

/* Which kernel runs after number `at`, `*passes` (0 at first) counting those of the loop. */
static inline uint32_t job_next(const struct job *job, uint32_t at, uint32_t *passes)
{
    if (job->loop_n == 0 || at + 1 != job->loop_from + job->loop_n || ++*passes >= job->repeats)
        return at + 1;
    return job->loop_from;
}

struct backend_ops {
    const char *name; /* "cpu", "cuda" */

    /* ERR_* with a message that says what is missing. */
    enum err_code (*open)(const struct backend_config *config, struct backend **ret, struct err *e);
    /* After every job is done and every stream and allocation released. */
    void (*close)(struct backend *b);

    int (*device_count)(struct backend *b);
    void (*device_info)(struct backend *b, int device, struct backend_device *ret);

    /* `size` bytes (> 0), 64-byte aligned, zeroed when asked. ERR_OUT_OF_MEMORY. Only the backend
     * may follow the address; see host(). */
    enum err_code (*alloc)(struct backend *b, int device, int64_t size, bool zero, void **ret,
                           struct err *e);
    void (*free)(struct backend *b, int device, void *p, int64_t size);

    /* The same, for memory that another process can map: zeroed when asked, and always behind the
     * `size` bytes. share_problem: why there is none on a device, static text for a person; NULL:
     * there is. share_alloc: ERR_OUT_OF_MEMORY; ERR_OVERLOADED where there are too many descriptors
     * (`must`: as long as the process may have any, else only while there are plenty).
     * share_export: *ret_fd, the caller's to close, with CLOEXEC. It may be called while another
     * thread does or work uses the memory. Where there is share_fits, memory is not handed out
     * SHARE_SEALED and SHARE_WRITE at once; share_fits: whether, after what it was handed out for,
     * it can be.
     * share_free takes as long as it takes to give pages back: not under a lock, nor on a thread
     * that serves; nothing may use the memory any more. */
    const char *(*share_problem)(struct backend *b, int device);
    enum err_code (*share_alloc)(struct backend *b, int device, int64_t size, bool zero, bool must,
                                 struct shared_block *ret, struct err *e);
    bool (*share_fits)(struct backend *b, int device, const struct shared_block *share,
                       enum share_mode mode); /* NULL: always */
    enum err_code (*share_export)(struct backend *b, int device, const struct shared_block *share,
                                  enum share_mode mode, int *ret_fd, struct err *e);
    void (*share_free)(struct backend *b, int device, const struct shared_block *share);
    /* "GPU-…" as NVIDIA writes it; "" for what has none. */
    void (*uuid)(struct backend *b, int device, char ret[DEVICE_UUID]);

    /* Host memory, 64-byte aligned, whose contents copies (job_copy) bring from a device and back;
     * the host reads and writes it at its address. ERR_OUT_OF_MEMORY. Both may take as long as
     * pages take to be pinned or given back, and wait for the device: not under a lock, nor on a
     * thread that serves. */
    enum err_code (*host_alloc)(struct backend *b, int64_t size, void **ret, struct err *e);
    void (*host_free)(struct backend *b, void *p, int64_t size);

    /* Where the host finds device memory, or NULL when it cannot reach it. Contents are valid once
     * the fences of their writers have passed. */
    void *(*host)(struct backend *b, void *p);

    /* Bytes between the host and memory that host() does not reach; NULL where host() reaches all.
     * They pass through pinned slabs, of which there are a limited number: where none is free, a
     * call does nothing and `wake` is told later (any thread, without locks of ours that a call
     * here takes; never after transfer_free). One thread at a time works on a transfer.
     *
     * upload_new: `n` bytes to `to`. reserve: where the next bytes may be written, NULL when no
     * slab is free, or when the transfer has failed; advance: so many were. join,
     * after the last byte: work submitted to `s` from now on sees all of them. download_new: the
     * elements of `view` (`itemsize` bytes each, of the memory at `from`) in C order; nothing is
     * read before a job carried it as `fetch` has run its kernels, or download_start where the
     * contents are there already. pull: up to n bytes from byte `offset` on (in order is fast,
     * anything else begins anew there), 0: wait for wake, -1: it failed. transfer_result: ERR_OK,
     * or why it will never end. transfer_free may be called at any time but while a job carries the
     * transfer. The memory must live until `released` (any thread, perhaps at once; NULL: the
     * caller knows that it does): only then have the copies under way ended. */
    enum err_code (*upload_new)(struct backend *b, int device, void *to, int64_t n,
                                void (*wake)(void *user), void *user, struct transfer **ret,
                                struct err *e);
    void *(*upload_reserve)(struct transfer *t, size_t *ret_n);
    void (*upload_advance)(struct transfer *t, size_t n);
    enum err_code (*upload_join)(struct transfer *t, struct stream *s, struct err *e);
    enum err_code (*download_new)(struct backend *b, int device, void *from,
                                  const struct view *view, size_t itemsize,
                                  void (*wake)(void *user), void *user, struct transfer **ret,
                                  struct err *e);
    void (*download_start)(struct transfer *t);
    int64_t (*download_pull)(struct transfer *t, int64_t offset, void *buf, size_t n);
    enum err_code (*transfer_result)(struct transfer *t);
    void (*transfer_free)(struct transfer *t, void (*released)(void *user), void *user);

    /* Makes a kernel ready to be submitted as far as that goes without waiting (code generation; a
     * compilation is begun), outside of the engine's lock. What waits for a compilation has its
     * turn by user, whom the address stands for (NULL: nobody's). NULL: nothing to do. */
    void (*prepare)(struct backend *b, int device, struct ir_kernel *k, const void *user);
    /* What the backend keeps with a kernel (k->prepared) goes; no job with it is in flight. */
    void (*release)(struct backend *b, struct ir_kernel *k);

    /* Whether a device is lost: nothing will work any more in this process. May be NULL. */
    bool (*lost)(struct backend *b);

    /* May be NULL: nothing to report. */
    void (*report)(struct backend *b, struct backend_report *ret);

    /* How many steps of the kernel are best made in one pass over memory, its outputs feeding their
     * inputs (ir.h): 1 where there is nothing to gain or no way, and *ret_why, a static text, says
     * why it is not more. May be NULL: always 1. */
    uint32_t (*steps)(struct backend *b, int device, const struct ir_kernel *k,
                      const char **ret_why);

    int64_t max_cost; /* operations on elements that one piece of work may ask for, unless the
                         operator says otherwise */

    /* Weighted nodes (fuse.h) that a shifted subexpression may repeat before a temporary is
     * cheaper: what arithmetic costs here beside memory. */
    uint32_t recompute;

    /* background: its kernels give way to those of other streams, where the device can do that. */
    enum err_code (*stream_new)(struct backend *b, int device, bool background, struct stream **ret,
                                struct err *e);
    void (*stream_free)(struct stream *s); /* nothing may be queued or running */

    /* Queues a job; returns its ticket (0: it is over already, having failed). Never fails: a
     * failure is told through job->result. */
    uint64_t (*submit)(struct stream *s, struct job *job);
    /* Whether everything up to the fence has run. */
    bool (*passed)(struct fence f);

    /* What the compiler said, or since when a kernel is refused (job->refusal), a line for a
     * person; "" when that is not known, or no more. May be NULL. */
    void (*reason)(struct backend *b, uint64_t refusal, char *ret, size_t n);

    /* *ret is whole in any case; without memory its source has failed. Where kernels are compiled
     * (prepare), this one is, and the caller waits; why it could not be is said in the source. */
    void (*explain)(struct backend *b, int device, const struct ir_kernel *k,
                    struct kernel_explanation *ret);

    /* Prometheus lines of its own (pool, cache), may be NULL. */
    void (*metrics)(struct backend *b, struct strb *out);

    /* Called every second or so: memory that was kept for reuse and has not been used for some
     * seconds goes back to the system. May take milliseconds, and be NULL. */
    void (*tidy)(struct backend *b);
};

struct backend {
    const struct backend_ops *ops;
};

/* Opens "auto", "cpu" or "cuda". auto: CUDA when a usable GPU is there, else the CPU, with the
 * reason in `note` (n bytes). ERR_BAD_FIELD for another name. */
enum err_code backend_open(const char *name, const struct backend_config *config,
                           struct backend **ret, char *note, size_t n, struct err *e) must_check;
void backend_close(struct backend *b);

/* How one thing that a GPU's backend needs was found, for a person: `what` ("driver"), a sentence,
 * and what to do about it ("": the sentence says it, or there is nothing to do). */
enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };
typedef void finding_fn(void *user, enum finding level, const char *what, const char *text,
                        const char *advice);
/* Looks at each by itself: the driver, the run-time compiler, the GPUs, the management library.
 * Nothing is opened for work. Whether any of them is needed is the caller's to judge: FINDING_FAIL
 * here means that no GPU can be used, FINDING_WARN that something would be missed. */
void backend_diagnose(finding_fn *say, void *user);

/* The validating front of ops->submit: in debug builds every kernel is verified (ir_verify), the
 * slots it names are there and nothing it reads is written at another point, and the job is as it
 * is described above; ARRAYD_TRACE=launch says what goes out. */
uint64_t backend_submit(struct backend *b, struct stream *s, struct job *job);

extern const struct backend_ops backend_cpu_ops, backend_cuda_ops;

#endif
