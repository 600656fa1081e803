/* The interface that every device implements: compute/cpu and compute/gpu.
 *
 * Called by compute/engine, compute/memory and compute/program; server/doctor.c calls
 * backend_diagnose. A backend owns devices, memory and streams; it knows kernels (ir.h) and raw
 * storage, nothing of arrays, sessions or requests. All calls are thread-safe unless said
 * otherwise. Only backends.c knows which backends exist.
 *
 * Order: jobs of one stream run in the order submitted. Across streams nothing is ordered except by
 * the fences a job waits for. No call here blocks on the device; callbacks report completion. */
#ifndef ARRAYD_BACKEND_H
#define ARRAYD_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/culprit/culprit.h"
#include "compute/ir/ir_whole.h"

struct backend;
struct backend_stream;
struct transfer;

#define BACKEND_PARTS 16

struct backend_device {
    int index;
    char name[128];
    char architecture[32];             /* "sm_90", "x86_64 avx2" */
    int64_t memory_total, memory_free; /* bytes */
    int64_t memory_limit;              /* of them, what this process may use */
    int64_t memory_most;               /* no array can be larger, even if all others left */
    int64_t memory_used;      /* by arrays and work, those of a device of several among them */
    int64_t memory_kept;      /* of what is free: this process has it, for new arrays */
    int64_t memory_of_mesh;   /* of a device that belongs to one of several: what that one's arrays
                                 have there */
    int n_parts;              /* of a device that is several together: so many, */
    int parts[BACKEND_PARTS]; /* the numbers of those devices, each of which is one by itself, too
                               */
    /* memory has an equal share of bytes on each, a multiple of the grain; what has fewer than
     * `part_least` for each is one's alone: the first's, or that of the next with room */
    int64_t part_least, part_grain;
};

/* The work on a device when it was found lost: jobs with kernels launched that were not seen to
 * finish. Each of them may have caused the fault; jobs that only waited behind them did not. */
struct fault_kernel {
    char key[65];     /* its name in the kernel cache */
    const char *form; /* as in kernel_explanation */
    bool refused;     /* it is not run again */
};
struct fault_work {
    void *asker;                        /* of its job */
    const struct fault_kernel *kernels; /* each once; none: it had copies on the device */
    uint32_t n_kernels;
};
struct backend_fault {
    int device;
    const struct fault_work *work;
    uint32_t n_work;
    bool launching;  /* the device was idle: the work is what was just being launched */
    bool forgotten;  /* the refusals could not be saved: another process will run these kernels */
    bool of_kernels; /* the error is one that kernels make, and nothing else was there */
};

/* Whether kernels are interpreted: never; until they are compiled; or all that can be, for tests.
 */
enum interpret { INTERPRET_NEVER, INTERPRET_FIRST, INTERPRET_ONLY };
/* Bits: how kernels ran, if the backend has an interpreter besides a compiler; else none. */
enum tier { TIER_INTERPRETED = 1, TIER_COMPILED = 2 };
/* The forms of the loops around a kernel, on any backend: the bit of a name, for sets of them; and
 * the names, of which the first is bit 0's. */
#define KERNEL_FORMS 13
extern const char *const kernel_forms[KERNEL_FORMS];
unsigned kernel_form_bit(const char *name);

/* What is known of work that has ended, of any number of jobs together. */
struct work_seen {
    _Atomic unsigned tiers, forms; /* bits */
    _Atomic uint64_t bytes;        /* that its kernels read and wrote, as explain counts them */
};

struct backend_config {
    int threads;                /* CPU: worker threads, 0 = one per core this process may use */
    int64_t memory_limit;       /* bytes on each device, scratch included; 0 = all */
    int64_t host_memory;        /* bytes of arrays in host memory; 0 = half of the machine's */
    int64_t inline_elements;    /* CPU: jobs up to this many point-operations run in submit() itself
                                   when nothing is queued before them; 0 = never */
    const char *kernel_cache;   /* CUDA: folder of compiled kernels, NULL: none on disk */
    const char *ready_kernels;  /* CUDA: another, which is only read; NULL: none */
    int64_t kernel_cache_bytes; /* CUDA: limit of that folder's size */
    int64_t kernel_cache_entries; /* CUDA: kernels kept in memory */
    int64_t slab_memory;          /* CUDA: bytes of pinned host memory per device */
    int compile_threads;          /* CUDA: 0 = one per two cores, at most 8 */
    /* CUDA: GPUs that together are one more device, the last: "all", or numbers ("0,1"); NULL: no
     * such device. An array with fewer bytes than `mesh_least` for each of them lies on the first
     * alone, which also runs alone what has so few operands. 0: a default */
    const char *mesh;
    int64_t mesh_least;
    enum interpret interpret; /* CUDA */
    /* CUDA: what is interpreted leaves at most so many bytes for a reduction or scan; and makes so
     * many steps on points, of one kernel, before that is compiled although it has come once. 0: a
     * default */
    int64_t interpret_bytes, interpret_steps;
    /* CUDA: a command, NULL at its end, that gets the kernel cache's folder and an architecture as
     * further arguments and calls backend_precompile: a process of its own, because the interpreter
     * takes a minute to compile. NULL: it is compiled here. */
    const char *const *precompile;
    bool shareable; /* memory may be exported to other processes (export.h) */
    int64_t
        shareable_least; /* bytes: arrays of that size and more are shareable from their creation;
                            with a keeper from engine_config.chunk_own on, if that is less */
    /* unused shareable memory that is kept for new arrays (reclaim.h), on each device, and for how
     * many seconds; 0: chosen by the kind of device */
    int64_t shareable_keep_bytes;
    double shareable_keep_s;
    /* CUDA: processes, 0 at the end, whose memory will be imported: opening waits until the driver
     * says that they have left the devices, and fails if it never does.
     * NULL: none. */
    const int *before;
    /* Called once, from any thread, when a device is lost; must not block. May be NULL. */
    void (*lost)(void *user, const char *why);
    /* Called once when the work on the device is known, before `fault`, which may take as long as a
     * disk does. Any thread; must not block. May be NULL. */
    void (*noted)(void *user);
    /* Called once after both, before any job that was on the device is done: the work that was
     * there, now saved to disk. Any thread; must not call the backend. May be NULL. */
    void (*fault)(void *user, const struct backend_fault *fault);
    void *lost_user;
    /* What is refused and suspected, and what runs (culprit.h). NULL: the CUDA backend has a list
     * of its own, in the kernel cache's folder; the CPU backend has none. */
    struct culprits *culprits;
    /* Whose work it is (job.asker), for that list; NULL: nobody is named. */
    struct culprit_who (*who)(const void *asker);
};

/* The access that memory is exported with, where the system can enforce it. */
enum share_mode {
    SHARE_READ,   /* the descriptor is read-only */
    SHARE_SEALED, /* and so is every descriptor derived from it */
    SHARE_WRITE
};

/* Memory that another process can map. */
struct shared_block {
    void *data;     /* as from alloc; NULL: none */
    int64_t size;   /* bytes allocated, and to be mapped: the requested size, rounded up */
    int64_t handle; /* private to the backend */
    int n_parts;    /* of equal size, one behind the other, each with a descriptor of its own: more
                       than one only on a device that is several together */
};
#define DEVICE_UUID 48

/* Remarks about a backend, sentences for a person; "" for none. */
struct backend_report {
    char warning[384]; /* what does not work as configured, or slowly */
    char timings[256]; /* how long opening took */
};

/* How a kernel runs. */
struct kernel_explanation {
    struct strb source; /* generated text, or the interpreter's listing; the caller frees it */
    const char *form;   /* "flat", "rows", …; static text */
    bool cached;        /* compiled already, in memory or on disk */
    bool interpreted;   /* as long as it is not compiled, if the backend has an interpreter */
    int registers, shared, local; /* per thread, bytes per block, bytes per thread; −1: unknown */
    int parts;                    /* GPUs of a mesh that share it; 0: the device is no mesh */
    int64_t remote; /* on a mesh: bytes, about, that GPUs read and write of each other's memory */
    bool waits;     /* on a mesh: each GPU waits for the others before its part */
};

/* A point in a stream's order: all work up to and including `seq`. */
struct fence {
    struct backend_stream *stream;
    uint64_t seq; /* 1, 2, … in the order submitted */
};

/* Relative to the device that the job runs on; ACROSS: from another device's memory. */
enum copy_way { COPY_IN, COPY_OUT, COPY_WITHIN, COPY_ACROSS };
struct job_copy {
    void *to;
    const void *from;
    int64_t n; /* bytes, > 0 */
    enum copy_way way;
    int device; /* COPY_ACROSS: which */
};

/* One piece of work. Its kernels run one after the other. Everything it needs besides its slots
 * (code, scratch memory, parameters) is allocated before its first kernel runs; otherwise the job
 * fails with the result untouched. So lack of memory never leaves half a result; only a device
 * failure can. The submitter owns the job and keeps it, the kernels and the memory alive until
 * done() is called. done() is called exactly once, from any thread, possibly from inside submit(),
 * and must not block. */
struct job {
    struct ir_kernel *const *kernels;
    uint32_t n_kernels;
    uint32_t loop_from, loop_n;   /* loop_n kernels, starting with number loop_from, */
    uint32_t repeats;             /* run this many times, ≥ 1 if loop_n > 0 */
    void *const *slots;           /* base address of each plan slot */
    void *const *const *bindings; /* the same for each kernel, if they differ, or NULL */
    /* fences to wait for, besides the stream's own order; of other devices' streams, too */
    const struct fence *waits;
    uint32_t n_waits;
    /* whole blocks to copy between device memory and host memory (host_alloc), within the device,
     * or from another, before the kernels */
    const struct job_copy *copies;
    uint32_t n_copies;
    void (*done)(struct job *job);
    /* Called just before the job's fence passes, with result and device_ms set; like done(), it
     * must not block. */
    void (*measured)(struct job *job);
    /* Whether the job's result is no longer needed and its memory may be left in any state. May be
     * called often, from any thread, but under no lock of the backend, until done() is called. A
     * backend that gets true may abandon the job, which then fails: ERR_NOT_FOUND. NULL: never. */
    bool (*unwanted)(struct job *job);
    void *user;
    void *asker; /* whose work it is, for fault reports (backend_fault); opaque, the submitter's */
    struct transfer *fetch; /* a download that begins right behind the kernels, or NULL */
    enum err_code result; /* ERR_OK, ERR_DEVICE_LOST, ERR_OUT_OF_MEMORY, ERR_INTERNAL, ERR_FAULTED,
                             ERR_PLAN_FAULTED, ERR_NOT_FOUND */
    int64_t wanted;       /* ERR_OUT_OF_MEMORY: bytes of device memory it lacked; 0: other memory */
    int wanted_on;        /* the device that lacked them: of a mesh, the GPU */
    bool untouched;    /* it failed before any kernel that writes the last one's output began: that
                          memory is unchanged */
    bool in_submit;    /* done() is called inside submit() */
    double device_ms;  /* time the device spent on it, set before done() */
    double compile_ms; /* time spent compiling its kernels, 0 if they were cached */
    unsigned tiers;    /* enum tier: how its kernels ran */
    bool wants_forms;  /* whether the next is asked for */
    unsigned forms;    /* kernel_form_bit: their forms */
    uint64_t refusal;  /* for reason(): which kernel was refused; 0: unknown */

    /* private to the backend, zero on entry */
    struct job *next;
    uint64_t seq;
    struct backend_stream *stream;
    void *private_data;
    uint32_t running; /* culprits_begin's number */
    bool alone;       /* it is suspected: nothing runs beside it */
};

static inline void *const *job_slots(const struct job *job, uint32_t kernel)
{
    return job->bindings ? job->bindings[kernel] : job->slots;
}

/* The kernel that runs after number `at`; *passes (0 at first) counts the loop's passes. */
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

    /* `size` bytes (> 0), 64-byte aligned, zeroed on request. ERR_OUT_OF_MEMORY. Only the backend
     * may dereference the address; see host(). */
    enum err_code (*alloc)(struct backend *b, int device, int64_t size, bool zero, void **ret,
                           struct err *e);
    void (*free)(struct backend *b, int device, void *p, int64_t size);
    /* On a device that is several together: memory that lies whole on one part, the first that has
     * room, whatever its size, or that is divided although it is small; a grain for each part is
     * the least. NULL where no device is several. */
    enum err_code (*alloc_placed)(struct backend *b, int device, int64_t size, bool divided,
                                  void **ret, struct err *e);
    /* On such a device: how many of its parts the memory in use at `p` lies on (1: it is whole),
     * in its own order, which is another where a process with other parts made it; the number of
     * each, and how many bytes behind `p` its share begins. */
    int (*divided)(struct backend *b, int device, const void *p, int ret_on[BACKEND_PARTS],
                   int64_t ret_from[BACKEND_PARTS]);
    /* The bytes that `size` bytes at p, not freed, take of the device. NULL: no more than size. */
    int64_t (*taken)(struct backend *b, int device, const void *p, int64_t size);

    /* The same, for memory that another process can map; zeroed on request, and always behind the
     * `size` bytes. share_problem: why a device has none, static text for a person; NULL: it has.
     * share_alloc: ERR_OUT_OF_MEMORY; ERR_OVERLOADED for too many descriptors (`must`: only at the
     * limit of the process; else as soon as few are left). share_export: *ret_fd, of the
     * block's part number `part`, with CLOEXEC, which the caller closes; `again`: it is likely to
     * be asked for again. It may run concurrently with itself and with work that uses the memory.
     * In backends with share_fits, memory is not exported both SHARE_SEALED and SHARE_WRITE;
     * share_fits: whether earlier exports permit this mode. share_free takes as long as it takes to
     * give pages back: do not call it under a lock or on a thread that serves requests; nothing may
     * use the memory any more. */
    const char *(*share_problem)(struct backend *b, int device);
    /* Maps memory of a process that is gone: the `n` descriptors (borrowed) were got there by
     * share_export with SHARE_WRITE, of all parts of a block of `size` bytes, in their order. Those
     * of a device that is several together may be on any of these. It is a block like any other
     * then, with its old contents. It is there already, so it counts, but no limit refuses it.
     * *ret_sealed: it was exported SHARE_SEALED, too, and can only be read. ERR_STATE: a descriptor
     * is certainly of no such memory; any other error: it cannot be mapped now. */
    enum err_code (*share_import)(struct backend *b, int device, const int *fds, int n,
                                  int64_t size, struct shared_block *ret, bool *ret_sealed,
                                  struct err *e);
    enum err_code (*share_alloc)(struct backend *b, int device, int64_t size, bool zero, bool must,
                                 struct shared_block *ret, struct err *e);
    bool (*share_fits)(struct backend *b, int device, const struct shared_block *share,
                       enum share_mode mode); /* NULL: always */
    enum err_code (*share_export)(struct backend *b, int device, const struct shared_block *share,
                                  int part, enum share_mode mode, bool again, int *ret_fd,
                                  struct err *e);
    void (*share_free)(struct backend *b, int device, const struct shared_block *share);
    /* Zeroes memory that no work uses. */
    enum err_code (*zero)(struct backend *b, int device, void *p, int64_t size, struct err *e);
    /* "GPU-…" as NVIDIA writes it; "" for a device without one. */
    void (*uuid)(struct backend *b, int device, char ret[DEVICE_UUID]);

    /* Host memory, 64-byte aligned, whose contents copies (job_copy) bring from a device and back;
     * the host reads and writes it at its address. ERR_OUT_OF_MEMORY. Both calls may take as long
     * as pages take to be pinned or released, and wait for the device: do not call them under a
     * lock or on a thread that serves requests. ret_fd: NULL, or the memory is to be a file's, so
     * that it can outlive the process, and the caller closes the descriptor in *ret_fd whenever it
     * likes; `size` is of whole pages then. host_import maps it in another process, with its old
     * contents: `fd` is borrowed; errors and limits as share_import's. */
    enum err_code (*host_alloc)(struct backend *b, int64_t size, int *ret_fd, void **ret,
                                struct err *e);
    enum err_code (*host_import)(struct backend *b, int fd, int64_t size, void **ret,
                                 struct err *e);
    void (*host_free)(struct backend *b, void *p, int64_t size, bool of_file);

    /* The host address of device memory, or NULL if the host cannot reach it. Contents are valid
     * once the fences of their writers have passed. */
    void *(*host)(struct backend *b, void *p);

    /* Bytes between the host and memory that host() does not reach; NULL if host() reaches all.
     * They pass through a limited number of pinned slabs. If none is free, a call does nothing and
     * `wake` is called later (any thread; no lock that a call here takes is held; never after
     * transfer_free). Only one thread at a time may use a transfer.
     *
     * upload_new: `n` bytes to `to`. reserve: where to write the next bytes, NULL when no slab is
     * free or the transfer has failed; advance: so many were written. join, after the last byte:
     * work submitted to `s` from now on sees all of them. download_new: the elements of `view`
     * (`itemsize` bytes each, in the memory at `from`) in C order; nothing is read before a job
     * that carries it as `fetch` has run its kernels, or before download_start if the contents
     * exist already. pull: up to n bytes from byte `offset` on (fast in order, otherwise it starts
     * over there), 0: wait for wake, -1: it failed. transfer_result: ERR_OK, or why it can never
     * finish. transfer_free may be called at any time except while a job carries the transfer. The
     * memory must live until `released` is called (any thread, perhaps immediately; NULL: the
     * caller ensures it), when all pending copies have ended. */
    enum err_code (*upload_new)(struct backend *b, int device, void *to, int64_t n,
                                void (*wake)(void *user), void *user, struct transfer **ret,
                                struct err *e);
    void *(*upload_reserve)(struct transfer *t, size_t *ret_n);
    void (*upload_advance)(struct transfer *t, size_t n);
    enum err_code (*upload_join)(struct transfer *t, struct backend_stream *s, struct err *e);
    enum err_code (*download_new)(struct backend *b, int device, void *from,
                                  const struct view *view, size_t itemsize,
                                  void (*wake)(void *user), void *user, struct transfer **ret,
                                  struct err *e);
    void (*download_start)(struct transfer *t);
    int64_t (*download_pull)(struct transfer *t, int64_t offset, void *buf, size_t n);
    enum err_code (*transfer_result)(struct transfer *t);
    void (*transfer_free)(struct transfer *t, void (*released)(void *user), void *user);

    /* Prepares a kernel as far as possible without waiting (generates code and starts a
     * compilation), outside the engine's lock. Compilations are scheduled fairly between users;
     * `user` is an opaque address that identifies one (NULL: none). NULL: nothing to do. */
    void (*prepare)(struct backend *b, int device, struct ir_kernel *k, const void *user);
    /* Frees what the backend keeps with a kernel (k->prepared); no job with it may be in flight. */
    void (*release)(struct backend *b, struct ir_kernel *k);

    /* Whether a device is lost: nothing will work any more in this process. May be NULL. */
    bool (*lost)(struct backend *b);

    /* May be NULL: nothing to report. */
    void (*report)(struct backend *b, struct backend_report *ret);

    /* How many steps of the kernel are best done in one pass over memory, its outputs feeding its
     * inputs (ir.h): 1 if that gains nothing or is impossible; *ret_why, a static text, says why it
     * is not more. May be NULL: always 1. */
    uint32_t (*steps)(struct backend *b, int device, const struct ir_kernel *k,
                      const char **ret_why);

    int64_t max_cost; /* most operations on elements in one piece of work, unless the operator says
                         otherwise */

    /* Weighted nodes (fuse.h) that a shifted subexpression may repeat before a temporary is
     * cheaper: the cost of arithmetic here relative to memory. */
    uint32_t recompute;
    /* Up to so many weights of a correlate() that may be taken apart are sums of sums in one
     * kernel, which computes once what several points need; of more it makes a pass over memory an
     * axis. 0: there are no such kernels. */
    uint32_t window;
    bool
        faults; /* a kernel that faults loses the device; others that run then may write anywhere */

    /* background: its kernels have lower priority than those of other streams, if the device can do
     * that. */
    enum err_code (*stream_new)(struct backend *b, int device, bool background,
                                struct backend_stream **ret, struct err *e);
    void (*stream_free)(struct backend_stream *s); /* nothing may be queued or running */

    /* Queues a job; returns its sequence number (0: it has failed already). Never fails itself:
     * job->result reports a failure. */
    uint64_t (*submit)(struct backend_stream *s, struct job *job);
    /* Whether everything up to the fence has run. */
    bool (*passed)(struct fence f);
    /* Reports a job that has ended on the calling thread, if the backend's own has not come to it
     * yet. For a caller that polls for a short job's end. NULL: it gains nothing. */
    void (*poll)(struct backend *b);

    /* What the compiler said, or since when a kernel is refused (job->refusal), a line for a
     * person; "" if unknown or forgotten. May be NULL. */
    void (*reason)(struct backend *b, uint64_t refusal, char *ret, size_t n);

    /* Always fills *ret; without memory its `source` has failed. Compiles the kernel if the backend
     * compiles (prepare), and waits for that; if it fails, the source says why. */
    void (*explain)(struct backend *b, int device, const struct ir_kernel *k,
                    struct kernel_explanation *ret);
    /* The same for a whole (ir_whole.h), which the backend runs in place of its parts once it is
     * compiled. False, and *ret_why a static text: it never does. NULL: the backend runs none, and
     * plans need not have any. */
    bool (*explain_whole)(struct backend *b, int device, const struct ir_whole *w,
                          struct kernel_explanation *ret, const char **ret_why);
    bool wholes_bound; /* it runs them in jobs with bindings, too; else those need none */

    /* Adds its own Prometheus lines (pool, cache); may be NULL. */
    void (*metrics)(struct backend *b, struct strb *out);

    /* Called about every second: returns cached memory that has not been used for some seconds to
     * the system. May take milliseconds, and be NULL. */
    void (*tidy)(struct backend *b);
};

struct backend {
    const struct backend_ops *ops;
};

/* Opens "auto", "cpu" or "cuda". auto: CUDA if there is a usable GPU, else the CPU, with the reason
 * in `note` (n bytes). ERR_BAD_FIELD for another name. */
enum err_code backend_open(const char *name, const struct backend_config *config,
                           struct backend **ret, char *note, size_t n, struct err *e) must_check;
void backend_close(struct backend *b);

/* Compiles what opening a GPU's backend needs, and its interpreter, for an architecture ("sm_90")
 * into a folder of compiled kernels, as far as it is not there. Needs no GPU. */
enum err_code backend_precompile(const char *kernel_cache, const char *architecture,
                                 struct err *e) must_check;

/* The state of one thing that a GPU backend needs, for a person: `what` ("driver"), a sentence, and
 * advice ("": the sentence says it, or nothing can be done). */
enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };
typedef void finding_fn(void *user, enum finding level, const char *what, const char *text,
                        const char *advice);
/* Checks each separately: the driver, the run-time compiler, the GPUs, whether those of a mesh
 * (backend_config.mesh; NULL: none is wanted) can be one device, the management library. Opens
 * nothing for work. The caller decides which of them it needs: FINDING_FAIL means that no GPU can
 * be used, or no mesh, FINDING_WARN that a feature is missing. */
void backend_diagnose(const char *mesh, finding_fn *say, void *user);

/* The validating front of ops->submit. Debug builds check that every kernel is valid (ir_verify),
 * that its slots exist, that it reads nothing that is written at another point, and that the job is
 * as described above. ARRAYD_TRACE=launch prints each job. */
uint64_t backend_submit(struct backend *b, struct backend_stream *s, struct job *job);

extern const struct backend_ops backend_cpu_ops, backend_cuda_ops;

#endif
