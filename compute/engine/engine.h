/* The engine: arrays on a device, expressions evaluated over them, transfers in and out.
 *
 * The one door from server/ to compute/. Thread-safe throughout; nothing here blocks on the device.
 * Everything a stream is asked for happens in the order asked; between streams, whoever asked first
 * goes first where they touch the same memory.
 *
 * Memory: array → buffer (identity, shared by views) → storage (one allocation). All are reference
 * counted. Storage is charged to an account from creation until it is really released. All
 * allocation happens when work is asked for, so a request that cannot be served fails then, with
 * nothing changed. A write never disturbs a reader in flight: while a download holds the storage,
 * the writer gets new memory (copy on write).
 *
 * Work whose result nobody can ever read, because all who had it have let it go, is given up where
 * the backend asks for that (the CPU's).
 *
 * Where work fails later, what it was to make cannot be read: who asks is told why. An array that
 * it was to write has its old contents as long as nothing of it was written: what had been asked
 * of the array by then fails too, what is asked after that sees the old contents. */
#ifndef ARRAYD_ENGINE_H
#define ARRAYD_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/backend.h"
#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/check/check.h"
#include "compute/lang/expr.h"
#include "compute/type/grid.h"
#include "compute/type/layout.h"

struct engine;
struct engine_stream;
struct buffer;

/* Bytes in use against a limit. Owned by the caller (a session), must outlive its arrays: it is
 * reference-counted, storage holds a reference. limit 0: none. What is charged to an account is
 * charged to its owner (a principal's account, which has no owner) as well, whose limits hold for
 * all that it owns together; and of that, what is in host memory has a limit of its own. */
struct account;
struct account *account_new(int64_t limit);
struct account *account_new_of(struct account *owner, int64_t limit); /* NULL: as account_new */
/* Binds what comes from now on; any thread. */
void account_set_limits(struct account *a, int64_t limit, int64_t host_limit);
int64_t account_host_used(const struct account *a); /* of an owner */
void account_ref(struct account *a);
void account_unref(struct account *a);
int64_t account_used(const struct account *a);
int64_t account_limit(const struct account *a);
uint64_t account_device_ns(const struct account *a); /* see engine_stream_account */

struct engine_config {
    const char *backend; /* "auto", "cpu", "cuda" */
    struct backend_config device;
    uint32_t max_inputs; /* distinct arrays an expression may name */
    /* past these a kernel is cut by materialising a temporary; never an error */
    uint32_t max_kernel_nodes;
    uint32_t max_kernel_inputs;
    int64_t max_cost;    /* operations on elements of an expression, of a program's step; 0: the
                            backend says */
    uint32_t plan_cache; /* plans kept for repeated expressions */
    int64_t plan_cache_bytes; /* that they take at most */
    /* Who asks for the work that the calling thread has for the engine: kept with the work, a
     * reference each, and named where a device faults (backend_config.fault). Both NULL: nobody. */
    void *(*asker)(void);
    void (*asker_unref)(void *asker);
    int close_wait_ms; /* how long engine_close waits for work that is still running */
};
#define ENGINE_CONFIG_DEFAULT                                                                      \
    {                                                                                              \
        .backend = "auto", .max_inputs = 64, .max_kernel_nodes = 400, .max_kernel_inputs = 64,     \
        .plan_cache = 512, .plan_cache_bytes = 32 << 20, .close_wait_ms = 10000,                   \
        .max_cost = INT64_MAX,                                                                     \
        .device = {                                                                                \
            .inline_elements = 1 << 16, .shareable_least = 32 << 20, .shareable_keep_s = 60},      \
    }

enum err_code engine_open(const struct engine_config *config, struct engine **ret,
                          struct err *e) must_check;
/* After all arrays and streams are released. False where work still runs after close_wait_ms:
 * nothing is freed then, what it uses is left to the end of the process. */
bool engine_close(struct engine *g);

const char *engine_backend(const struct engine *g); /* "cpu", "cuda" */
/* Whether arrays lie where the host reaches them: there is no device behind a bus. */
bool engine_in_host_memory(const struct engine *g);
const char *engine_note(const struct engine *g); /* why `auto` chose it */
int engine_device_count(const struct engine *g);
void engine_device_info(const struct engine *g, int device, struct backend_device *ret);
int64_t engine_bytes_in_use(const struct engine *g); /* storage alive, temporaries included */
int64_t engine_host_bytes(const struct engine *g);   /* arrays in host memory; not in the above */
int64_t engine_host_limit(const struct engine *g);   /* bytes that these may take */
int64_t engine_jobs_in_flight(const struct engine *g);
/* The device with most free memory, the first of equals. */
int engine_roomiest_device(const struct engine *g);
int64_t engine_max_cost(const struct engine *g);
void engine_report(const struct engine *g, struct backend_report *ret);
void engine_metrics(struct engine *g, struct strb *out); /* Prometheus text */
void engine_tidy(struct engine *g);                      /* every second or so; see backend.h */

/* --- streams (one a session) --- */
enum err_code engine_stream_new(struct engine *g, int device, struct engine_stream **ret,
                                struct err *e) must_check;
/* Another one on the same device, with the same account, whose work gives way to that of others
 * where the device can do that. */
enum err_code engine_stream_background(struct engine_stream *of, struct engine_stream **ret,
                                       struct err *e) must_check;
/* Whose time on the device the stream's work is from now on: the account's, and its owner's. To be
 * called before there is any. */
void engine_stream_account(struct engine_stream *s, struct account *a);
/* Told of the stream's work: begun, in the order submitted, with the engine's lock held; ended, of
 * each, any thread, without it. Neither may call the engine. ended returns how much of device_ms,
 * the time on the device, is the work's own: streams run side by side, and what is counted
 * (account_device_ns) is that. release(user) when the stream goes. To be set once, before there is
 * any work. */
struct work_watch {
    void (*begun)(void *user);
    double (*ended)(void *user, double device_ms);
    void (*release)(void *user);
};
void engine_stream_watch(struct engine_stream *s, const struct work_watch *watch, void *user);
/* The caller lets go; queued work still runs. */
void engine_stream_unref(struct engine_stream *s);

/* Told once when the work is done (ERR_OK) or failed; any thread, possibly before the call that
 * took the callback returns; must not block. Not told where that call says that it failed.
 * device_ms: time on the device. */
typedef void engine_done(void *user, enum err_code result, double device_ms);

/* done() when everything asked of the stream so far is done. */
void engine_sync(struct engine_stream *s, engine_done *done, void *user);

/* --- arrays --- */

/* An immutable description of elements in a buffer; the contents change, this does not. */
struct array {
    _Atomic uint32_t refs;
    struct buffer *buffer;
    enum dtype dtype;
    struct view view;
    struct grid *grid; /* a reference, or NULL: no ghosts, boundary, spacing or padding */
};

struct array *array_ref(struct array *a); /* returns a */
void array_unref(struct array *a);        /* NULL allowed */
static inline void array_unrefp(struct array **a)
{
    array_unref(*a);
}
#define _cleanup_array_ __attribute__((cleanup(array_unrefp)))

/* A view: shares the buffer. `v` must have come from array->view by layout.h's functions (with
 * `dtype` another type only after view_reinterpret). NULL without memory. */
struct array *array_view(struct array *a, enum dtype dtype, const struct view *v);
/* The same with a grid (a reference is taken; NULL: none) that fits the view. */
struct array *array_view_grid(struct array *a, const struct view *v, struct grid *grid);

int64_t array_nbytes(const struct array *a); /* size × itemsize */
bool array_same_buffer(const struct array *a, const struct array *b);
/* The same elements: of one buffer, dtype and view, whatever their grids. */
bool array_same_elements(const struct array *a, const struct array *b);
/* Names the memory that an array and its views share: for locks. Never repeats in a process. */
uint64_t array_buffer_id(const struct array *a);
/* The same, but that what takes another's place has one of its own: for what is known of bytes. */
uint64_t array_memory_id(const struct array *a);
/* A new array, unseen by others yet, is to take the place of another: its memory gets that id. */
void array_take_place(struct array *a, const struct array *of);
uint32_t array_buffer_refs(const struct array *a); /* arrays on its buffer, itself among them */
bool array_is_held(const struct array *a);         /* by a download */
bool array_buffer_shared(const struct array *a);   /* other arrays use the buffer */
int array_device(const struct array *a);
bool array_in_host_memory(const struct array *a); /* engine_move */
/* Changes with every write that is taken on, never repeats within the process: for ETag. Work that
 * is refused or fails at once, with nothing written, leaves it alone. */
uint64_t array_version(const struct array *a);

/* A new contiguous array, zeroed. */
enum err_code engine_zeros(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret,
                           struct err *e) must_check;

/* A new contiguous array with whatever was in its memory, which may be another's: all of it is to
 * be written before anybody is shown it. */
enum err_code engine_empty(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret,
                           struct err *e) must_check;

/* Arrays with a grid (ghost.c). `grid` is a description (NULL: none): with ghosts, or with
 * is_padded, the memory is padded, by its `padded` or as far as it needs itself. All of it is
 * zeroed. ERR_GHOST_WIDTH and view_padded's
 * errors, those with the pointer "/padded". */
enum err_code engine_zeros_grid(struct engine_stream *s, struct account *account, enum dtype dtype,
                                int rank, const int64_t *shape, const struct grid *grid,
                                struct array **ret, struct err *e) must_check;
/* The elements of `a` as the interior of an array with that grid: `a`'s own memory where that is
 * not padded, else new. */
enum err_code engine_embed(struct engine_stream *s, struct account *account, struct array *a,
                           const struct grid *grid, struct array **ret, struct err *e) must_check;
/* Fills the ghosts from the array's boundary, in one piece of work: axis 0 over the interior of the
 * others, then axis 1 over what is filled by then, and on. Faces of type none are left as they are.
 * done may be NULL. */
enum err_code engine_fill_ghost(struct engine_stream *s, struct account *account, struct array *a,
                                engine_done *done, void *user, struct err *e) must_check;

/* Creators (create.c). All queue work and return at once. */
enum err_code engine_full(struct engine_stream *s, struct account *account, struct scalar value,
                          int rank, const int64_t *shape, struct array **ret,
                          struct err *e) must_check;
/* start + step·i for i = 0…n−1 with n = max(0, ceil((stop−start)/step)), computed in int64/uint64
 * for integer types, else in float64, as numpy.arange; start/step in the dtype's domain.
 * ERR_BAD_FIELD for step 0. */
enum err_code engine_arange(struct engine_stream *s, struct account *account, enum dtype dtype,
                            const struct literal *start, const struct literal *stop,
                            const struct literal *step, struct array **ret,
                            struct err *e) must_check;
enum err_code engine_linspace(struct engine_stream *s, struct account *account, enum dtype dtype,
                              const struct literal *start, const struct literal *stop, int64_t num,
                              bool endpoint, struct array **ret, struct err *e) must_check;
enum err_code engine_eye(struct engine_stream *s, struct account *account, enum dtype dtype,
                         int64_t n, int64_t m, int64_t k, struct array **ret,
                         struct err *e) must_check;
struct random_spec {
    enum random_dist dist;
    uint64_t seed;
    bool has_low, has_high; /* uniform, integers: bounds [low, high); normal: neither */
    struct literal low, high;
};
/* uniform and normal: float16, bfloat16, float32, float64 (halves from float32); integers: integer
 * types (and bounds that fit). ERR_BAD_DTYPE, ERR_BAD_FIELD. */
enum err_code engine_random(struct engine_stream *s, struct account *account, enum dtype dtype,
                            int rank, const int64_t *shape, const struct random_spec *spec,
                            struct array **ret, struct err *e) must_check;

/* Deep copy: contiguous, or where the array is padded, with its ghosts and padding; keeps the grid.
 */
enum err_code engine_copy(struct engine_stream *s, struct account *account, struct array *a,
                          struct array **ret, struct err *e) must_check;

/* The same memory as engine_copy gives, but for the elements: those are as in engine_empty. */
enum err_code engine_alike(struct engine_stream *s, struct account *account, struct array *a,
                           struct array **ret, struct err *e) must_check;

/* The elements alone, contiguous, without a grid. */
enum err_code engine_compact(struct engine_stream *s, struct account *account, struct array *a,
                             struct array **ret, struct err *e) must_check;

/* Exchanges the memory of two arrays' buffers; views follow their array. ERR_CONFLICT unless dtype,
 * shape, strides, ghosts and offsets agree and the buffers have one size, and neither is exported
 * (export.h); one that was goes first to memory that nobody else has mapped: ERR_OUT_OF_MEMORY,
 * ERR_QUOTA. */
enum err_code engine_swap(struct engine_stream *s, struct array *a, struct array *b,
                          struct err *e) must_check;
/* The same of several pairs, all or none; ERR_PRECONDITION_FAILED where the contents of one's `a`
 * have another version (0: any), or one of the two was exported since. Afterwards `version` is what
 * `a` has then. */
struct exchange {
    struct array *a, *b;
    uint64_t version;
};
enum err_code engine_exchange(struct engine_stream *s, struct exchange *x, uint32_t n,
                              struct err *e) must_check;
bool array_exchanges(const struct array *a, const struct array *b); /* whether that may be */

/* --- where arrays live (move.c) --- */

/* Moves the contents of an array (and so of its views) to host memory, or back, in the stream's
 * order; they and their version stay as they are. What is computed with comes back by itself.
 * Takes as long as it takes to pin the memory: not on a thread that serves. done() is told when
 * the array is there. Where it fails the array stays where it was. ERR_OUT_OF_MEMORY; ERR_CONFLICT
 * for one that is exported. */
enum err_code engine_move(struct engine_stream *s, struct array *a, bool host, engine_done *done,
                          void *user, struct err *e) must_check;

/* Makes room on a device: moves arrays to host memory until `bytes` more would fit, those first
 * that were used longest ago; or (`stay`) waits a little for work under way, which may give memory
 * back. Owned by the caller until done() is told, by any thread: ERR_OK when something has moved,
 * ERR_OVERLOADED when all there is was in use a moment ago, or work under way (it is worth another
 * try now), ERR_OUT_OF_MEMORY when there is nothing to move, or nowhere to move it. */
struct eviction {
    int device;
    int64_t bytes;
    bool stay;      /* nothing is to move */
    bool again;     /* it has been done once, and was not enough */
    uint64_t until; /* engine_clock: what was used after that stays */
    engine_done *done;
    void *user;
    /* the engine's own */
    struct eviction *next;
    _Atomic int pending;
    int64_t out;
    bool others;
};
void engine_evict(struct engine *g, struct eviction *v);
uint64_t engine_clock(const struct engine *g); /* counts uses of arrays */

/* --- evaluation --- */

struct eval_request {
    const struct expr *expr;
    const struct check_env *env;
    int dtype; /* final astype, or -1 */
    bool fast_math;
    struct array *out;           /* write here instead of a new array, or NULL */
    const struct view *out_view; /* region of `out` (from its view by view_index), or NULL: all */
    int64_t out_at; /* elements of `out` by which the region lies further on than out_view says: one
                       plan serves all. For an array of the caller's own that no download holds */
    struct eval_watch *watch; /* who asks whether there are faults, or NULL */
    /* NULL, or what says, once true, that nobody wants what is written any more, although the
     * arrays are still held: the work may end at any time, having written what it has. It outlives
     * the work. */
    const _Atomic bool *given_up;
    size_t most_nodes; /* an expression of more is put off where its plan is still to be made; 0:
                          none is */
};

/* Some mistakes show only in the arrays' contents: an index out of range. The work itself looks for
 * them, and writes nothing to `out` where there is one; a new array is then wrong, nothing worse.
 * Who wants to know gives a watch: its `guards`, NULL where there is nothing to look for, are the
 * caller's to free. `wake` as for download_new. */
struct eval_watch {
    void (*wake)(void *user);
    void *user;
    struct eval_guards *guards; /* set where the evaluation is taken on */
};

/* Times of the stages, ms. */
struct eval_times {
    double check, lower, compile;
};

/* Arrays live on one device, and so does what a stream works on: where a stream is asked to compute
 * with another device's array, or to write to one, the answer is ERR_CONFLICT. It may be downloaded
 * and described from anywhere.
 *
 * Checks, compiles and queues. Without `out` *ret is a new array (contents come when done() is
 * told; use it at once in later work on any stream); with `out` *ret is `out` with a new reference.
 * done may be NULL. *ret NULL: put off (most_nodes), nothing has been done yet and done will not be
 * told. Errors: check.h's; ERR_OVERLAP for an out that overlaps itself; ERR_DTYPE_MISMATCH for an
 * out not castable by same_kind; ERR_SHAPE_MISMATCH; ERR_QUOTA,
 * ERR_OUT_OF_MEMORY. */
enum err_code engine_evaluate(struct engine_stream *s, struct account *account,
                              const struct eval_request *req, struct array **ret,
                              struct eval_times *ret_times, engine_done *done, void *user,
                              struct err *e) must_check;

/* The answer to a watch. eval_guards_pull: 1 where it is there, 0 not yet (wait for wake), −1 it
 * never will be (the download's, which is the guards' own, says why). eval_guards_verdict: ERR_OK,
 * or the error with its place in the expression (`x`: the request's); then `out` is as if nothing
 * had been asked of it. */
struct eval_guards;
struct download;
int eval_guards_pull(struct eval_guards *g);
struct download *eval_guards_download(struct eval_guards *g);
enum err_code eval_guards_verdict(struct eval_guards *g, const struct expr *x,
                                  struct err *e) must_check;
void eval_guards_free(struct eval_guards *g); /* NULL allowed */

/* What evaluate would do. Everything lives in `arena`. */
struct eval_explanation {
    struct typed typed;
    struct ir_plan *plan;
    struct eval_times times;
};
enum err_code engine_explain(struct engine *g, const struct eval_request *req, struct arena *arena,
                             struct eval_explanation *ret, struct err *e) must_check;
/* The backend's explain, for the stream's device: see there. */
void engine_explain_kernel(struct engine_stream *s, const struct ir_kernel *k,
                           struct kernel_explanation *ret);
bool engine_compiles(const struct engine *g); /* explaining a kernel may take long */

/* --- transfers --- */

/* A snapshot of an array being read in C order. `wake` is told (any thread, perhaps at once)
 * whenever pull() may have more after it returned 0; it is never called after download_free. */
struct download;
enum err_code download_new(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                           void *user, struct download **ret, struct err *e) must_check;
/* Up to n bytes from byte `offset` of the C-order contents; > 0 bytes written, 0: not ready yet
 * (never at the end: the caller knows the length), -1: the device failed. Takes about a millisecond
 * at most for n ≤ 1 MiB. One thread at a time. */
int64_t download_pull(struct download *d, int64_t offset, void *buf, size_t n);
/* Once *given_up is true nobody wants the contents, as in eval_request. It outlives the download.
 */
void download_given_up(struct download *d, const _Atomic bool *given_up);
uint64_t download_version(const struct download *d); /* array_version at the snapshot */
/* Device time of the work that made the contents, once pull() has given bytes; 0 when it was over
 * before the download began, unless `own`: the caller had asked for that work itself. */
double download_device_ms(const struct download *d, bool own);
double download_compile_ms(const struct download *d, bool own); /* the same of compiling for it */
/* Why pull() said -1: ERR_DEVICE_LOST, ERR_OUT_OF_MEMORY, ERR_INTERNAL for a kernel that could not
 * be compiled, ERR_FAULTED for one that is not run any more. */
enum err_code download_result(const struct download *d);
/* For a person, where that is one of the last two. */
#define DOWNLOAD_REASON 640
void download_reason(const struct download *d, char ret[DOWNLOAD_REASON]);
void download_free(struct download *d);

/* The whole memory that an array and its views share, byte for byte: how much it is, its download,
 * and as what it comes back (upload_finish_new, one axis, then array_view): DT_U8, or DT_BOOL where
 * its bools are known to be 0 and 1. */
int64_t array_buffer_nbytes(const struct array *a);
/* Whether it has all of that, its ghosts and padding counted: nothing else is in the memory. */
bool array_is_whole(const struct array *a);
enum dtype array_buffer_dtype(const struct array *a);
enum err_code download_buffer(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                              void *user, struct download **ret, struct err *e) must_check;
/* Whether the work that was to write to it is over, so that a download need not wait. */
bool array_is_settled(const struct array *a);

/* Bytes on their way into an array: staged, then published whole by one of the finishes. Aborting,
 * or failing half-way, changes nothing. */
struct upload;
enum err_code upload_new(struct engine_stream *s, struct account *account, int64_t nbytes,
                         void (*wake)(void *user), void *user, struct upload **ret,
                         struct err *e) must_check;
/* Takes up to n bytes in order; returns how many (0: no staging free, wake() will be told). More
 * than nbytes in all is the caller's mistake. An upload that has failed takes everything: its
 * finish tells why. */
size_t upload_push(struct upload *u, const void *bytes, size_t n);
/* Where the next bytes may be written directly, and how many (≥ 1 unless full); commit with
 * upload_advance. NULL: upload_push says whether to wait. */
void *upload_reserve(struct upload *u, size_t *ret_n);
void upload_advance(struct upload *u, size_t n);
/* The staged bytes (little-endian) as a new array; takes the upload. `fortran`: they are in Fortran
 * order (the array is C-contiguous all the same). */
enum err_code upload_finish_new(struct upload *take_u, enum dtype dtype, int rank,
                                const int64_t *shape, bool fortran, struct array **ret,
                                struct err *e) must_check;
/* upload_finish_into is to write only while the array's contents have this version
 * (array_version): else ERR_PRECONDITION_FAILED. */
void upload_expect(struct upload *u, uint64_t version);
/* A finish that fails for want of device memory (err.wanted) is to leave the upload to the caller,
 * who may finish it again, or abort it. */
void upload_keep(struct upload *u);
/* The staged bytes written to a region of an array (shape of `v`, elements of a's dtype); takes the
 * upload. ERR_OVERLAP when the region overlaps itself. done may be NULL. */
enum err_code upload_finish_into(struct upload *take_u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user,
                                 struct err *e) must_check;
void upload_abort(struct upload *take_u);

#endif
