/* The engine: arrays on a device, expressions evaluated over them, transfers in and out.
 *
 * The only entrance from server/ to compute/. Thread-safe throughout; nothing here blocks on the
 * device. Work on one stream runs in the order submitted. Work on different streams that touches
 * the same memory runs in the order submitted, too.
 *
 * Memory: array → buffer (identity, shared by views) → storage (one allocation). All are reference
 * counted. Storage is charged to an account from creation until it is really released. All memory
 * is allocated at submission, so a request that cannot be served fails then, with nothing changed.
 * A write never disturbs a reader in flight: while a download holds the storage, the writer gets
 * new memory (copy on write).
 *
 * Work whose result nobody can read any more, because all references to it were dropped, is
 * abandoned if the backend supports that (the CPU's does).
 *
 * If work fails after submission, its results cannot be read: a reader gets the error. An array
 * that it should have written keeps its old contents if none of them were overwritten: work on the
 * array submitted before the failure fails too, later work sees the old contents. */
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

/* Bytes in use against a limit. Owned by the caller (a session). Reference-counted: storage holds a
 * reference, so it may outlive its session. limit 0: none. A charge also counts for the account's
 * owner (a principal's account, which has no owner), whose limits cover all accounts that it owns;
 * the owner's bytes in host memory have a limit of their own. */
struct account;
struct account *account_new(int64_t limit);
struct account *account_new_of(struct account *owner, int64_t limit); /* NULL: as account_new */
/* Applies to charges from now on; any thread. */
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
    uint32_t max_inputs; /* distinct arrays in an expression */
    /* a kernel larger than these is split by a temporary; never an error */
    uint32_t max_kernel_nodes;
    uint32_t max_kernel_inputs;
    int64_t max_cost; /* operations on elements of an expression or of a program's step; 0: chosen
                         by the backend */
    uint32_t plan_cache;      /* plans kept for repeated expressions */
    int64_t plan_cache_bytes; /* most bytes that they may use */
    /* Returns the requester of the work that the calling thread submits. Each piece of work keeps a
     * reference, and the backend names the requester if a device faults (backend_config.fault).
     * Both NULL: none. */
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
/* After all arrays and streams are released. False if work still runs after close_wait_ms: then
 * nothing is freed, because that work may use any of it, until the process ends. */
bool engine_close(struct engine *g);

const char *engine_backend(const struct engine *g); /* "cpu", "cuda" */
/* Whether the host can access arrays directly: there is no device behind a bus. */
bool engine_in_host_memory(const struct engine *g);
const char *engine_note(const struct engine *g); /* why `auto` chose it */
int engine_device_count(const struct engine *g);
void engine_device_info(const struct engine *g, int device, struct backend_device *ret);
int64_t engine_bytes_in_use(const struct engine *g); /* storage alive, temporaries included */
int64_t engine_host_bytes(const struct engine *g);   /* arrays in host memory; not included above */
int64_t engine_host_limit(const struct engine *g);   /* most bytes that these may use */
int64_t engine_jobs_in_flight(const struct engine *g);
/* The device with the most free memory; the first of equals. */
int engine_roomiest_device(const struct engine *g);
int64_t engine_max_cost(const struct engine *g);
void engine_report(const struct engine *g, struct backend_report *ret);
void engine_metrics(struct engine *g, struct strb *out); /* Prometheus text */
void engine_tidy(struct engine *g);                      /* every second or so; see backend.h */

/* --- streams (one a session) --- */
enum err_code engine_stream_new(struct engine *g, int device, struct engine_stream **ret,
                                struct err *e) must_check;
/* Another stream on the same device, with the same account, at a lower priority if the device
 * supports that. */
enum err_code engine_stream_background(struct engine_stream *of, struct engine_stream **ret,
                                       struct err *e) must_check;
/* Charges the device time of the stream's work to this account and its owner. Call before any work
 * is submitted. */
void engine_stream_account(struct engine_stream *s, struct account *a);
/* Callbacks for the stream's work. begun: in the order submitted, with the engine's lock held.
 * ended: for each, on any thread, without the lock. Neither may call the engine. ended returns the
 * work's own share of device_ms, its time on the device: streams run side by side, and
 * account_device_ns counts that share. release(user) when the stream is freed. Set once, before any
 * work is submitted. */
struct work_watch {
    void (*begun)(void *user);
    double (*ended)(void *user, double device_ms);
    void (*release)(void *user);
};
void engine_stream_watch(struct engine_stream *s, const struct work_watch *watch, void *user);
/* Drops the caller's reference; queued work still runs. */
void engine_stream_unref(struct engine_stream *s);

/* Called once when the work is done (ERR_OK) or failed; on any thread, possibly before the call
 * that took the callback returns; must not block. Not called if that call itself fails. device_ms:
 * time on the device. */
typedef void engine_done(void *user, enum err_code result, double device_ms);

/* done() when all work submitted to the stream so far is done. */
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

/* A view: shares the buffer. `v` must be derived from array->view by layout.h's functions (with
 * another `dtype` only after view_reinterpret). NULL without memory. */
struct array *array_view(struct array *a, enum dtype dtype, const struct view *v);
/* The same with a grid (a reference is taken; NULL: none) that fits the view. */
struct array *array_view_grid(struct array *a, const struct view *v, struct grid *grid);

int64_t array_nbytes(const struct array *a); /* size × itemsize */
bool array_same_buffer(const struct array *a, const struct array *b);
/* The same elements: one buffer, dtype and view, whatever their grids. */
bool array_same_elements(const struct array *a, const struct array *b);
/* Identifies the memory that an array and its views share: for locks. Unique in the process. */
uint64_t array_buffer_id(const struct array *a);
/* The same, but an array that replaces another keeps an id of its own: for what is known about the
 * bytes. */
uint64_t array_memory_id(const struct array *a);
/* A new array, not yet visible to others, will replace another: its memory gets the other's
 * array_buffer_id. */
void array_take_place(struct array *a, const struct array *of);
uint32_t array_buffer_refs(const struct array *a); /* arrays on its buffer, including this one */
bool array_is_held(const struct array *a);         /* by a download */
bool array_buffer_shared(const struct array *a);   /* other arrays use the buffer */
int array_device(const struct array *a);
bool array_in_host_memory(const struct array *a); /* engine_move */
/* Changes with every accepted write, never repeats within the process: for ETag. Work that is
 * refused or fails at once, with nothing written, does not change it. */
uint64_t array_version(const struct array *a);

/* A new contiguous array, zeroed. */
enum err_code engine_zeros(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret,
                           struct err *e) must_check;

/* A new contiguous array with undefined contents, which may be another client's data: overwrite all
 * of it before anybody can read it. */
enum err_code engine_empty(struct engine_stream *s, struct account *account, enum dtype dtype,
                           int rank, const int64_t *shape, struct array **ret,
                           struct err *e) must_check;

/* Arrays with a grid (ghost.c). `grid` is a description (NULL: none): with ghosts, or with
 * is_padded, the memory is padded, by its `padded` or by as much as the grid needs. All of it is
 * zeroed. ERR_GHOST_WIDTH and view_padded's errors, the latter with the pointer "/padded". */
enum err_code engine_zeros_grid(struct engine_stream *s, struct account *account, enum dtype dtype,
                                int rank, const int64_t *shape, const struct grid *grid,
                                struct array **ret, struct err *e) must_check;
/* The elements of `a` as the interior of an array with that grid: in `a`'s own memory if the grid
 * needs no padding, else in new memory. */
enum err_code engine_embed(struct engine_stream *s, struct account *account, struct array *a,
                           const struct grid *grid, struct array **ret, struct err *e) must_check;
/* Fills the ghosts from the array's boundary, as one piece of work: axis 0 over the interior of the
 * others, then axis 1 over all that is filled by then, and so on. Faces of type none keep their
 * contents. done may be NULL. */
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

/* Deep copy: contiguous, or with its ghosts and padding if the array is padded; keeps the grid. */
enum err_code engine_copy(struct engine_stream *s, struct account *account, struct array *a,
                          struct array **ret, struct err *e) must_check;

/* The memory that engine_copy would make, with undefined elements as in engine_empty. */
enum err_code engine_alike(struct engine_stream *s, struct account *account, struct array *a,
                           struct array **ret, struct err *e) must_check;

/* The elements alone, contiguous, without a grid. */
enum err_code engine_compact(struct engine_stream *s, struct account *account, struct array *a,
                             struct array **ret, struct err *e) must_check;

/* Exchanges the memory of two arrays' buffers; views follow their array. ERR_CONFLICT unless dtype,
 * shape, strides, ghosts and offsets agree, the buffers have one size and neither is exported
 * (export.h). An array whose exports have all ended is moved beforehand to memory that no other
 * process has mapped: ERR_OUT_OF_MEMORY, ERR_QUOTA. */
enum err_code engine_swap(struct engine_stream *s, struct array *a, struct array *b,
                          struct err *e) must_check;
/* The same for several pairs, all or none; ERR_PRECONDITION_FAILED if the contents of a pair's `a`
 * have another version (0: any), or an array of it was exported in the meantime. Afterwards
 * `version` is the new version of `a`. */
struct exchange {
    struct array *a, *b;
    uint64_t version;
};
enum err_code engine_exchange(struct engine_stream *s, struct exchange *x, uint32_t n,
                              struct err *e) must_check;
/* Whether they may be exchanged. */
bool array_exchanges(const struct array *a, const struct array *b);

/* --- where arrays live (move.c) --- */

/* Moves the contents of an array (and so of its views) to host memory, or back, in the stream's
 * order; contents and version do not change. Work that uses the array brings it back by itself.
 * Takes as long as pinning the memory: do not call it on a serving thread. done() is called when
 * the array has moved. On failure the array stays where it was. ERR_OUT_OF_MEMORY; ERR_CONFLICT for
 * one that is exported. */
enum err_code engine_move(struct engine_stream *s, struct array *a, bool host, engine_done *done,
                          void *user, struct err *e) must_check;

/* Makes room on a device: moves the least recently used arrays to host memory until `bytes` more
 * would fit; or (`stay`) waits briefly for running work, which may release memory. Owned by the
 * caller until done() is called, on any thread: ERR_OK if something moved; ERR_OVERLOADED if
 * everything was just in use, or work is running (worth retrying now); ERR_OUT_OF_MEMORY if there
 * is nothing to move, or nowhere to move it. */
struct eviction {
    int device;
    int64_t bytes;
    bool stay;      /* move nothing */
    bool again;     /* a previous eviction did not free enough */
    uint64_t until; /* engine_clock: arrays used after that stay */
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
    /* Offset of the region from out_view, in elements of `out`: one plan serves all. Only for an
     * array of the caller's own that no download holds. */
    int64_t out_at;
    struct eval_watch *watch; /* reports faults to the caller, or NULL */
    /* NULL, or a flag that is set once nobody wants the output any more, although the arrays are
     * still held: the work may then end at any time, with part of it written. It outlives the work.
     */
    const _Atomic bool *given_up;
    /* a larger expression is put off if its plan is not cached; 0: never */
    size_t most_nodes;
};

/* Some errors depend on the arrays' contents: an index out of range. The work itself checks for
 * them, and writes nothing to `out` if it finds one; a new array then has wrong values, nothing
 * worse. A caller that wants the result passes a watch: its `guards`, NULL if there is nothing to
 * check, are the caller's to free. `wake` as for download_new. */
struct eval_watch {
    void (*wake)(void *user);
    void *user;
    struct eval_guards *guards; /* set once the evaluation is accepted */
};

/* Times of the stages, ms. */
struct eval_times {
    double check, lower, compile;
};

/* Arrays live on one device, and so do a stream's operands: computing with an array of another
 * device, or writing to one, is ERR_CONFLICT. An array can be downloaded and described from any
 * stream.
 *
 * Checks, compiles and queues. Without `out` *ret is a new array (its contents are complete when
 * done() is called; later work on any stream may use it at once); with `out` *ret is `out` with a
 * new reference. done may be NULL. *ret NULL: put off (most_nodes), nothing has been done and done
 * will not be called. Errors: check.h's; ERR_OVERLAP for an out that overlaps itself;
 * ERR_DTYPE_MISMATCH for an out not castable by same_kind; ERR_SHAPE_MISMATCH; ERR_QUOTA,
 * ERR_OUT_OF_MEMORY. */
enum err_code engine_evaluate(struct engine_stream *s, struct account *account,
                              const struct eval_request *req, struct array **ret,
                              struct eval_times *ret_times, engine_done *done, void *user,
                              struct err *e) must_check;

/* The result of a watch. eval_guards_pull: 1 if it is available, 0 not yet (wait for wake), −1 if
 * it never will be (the guards' download says why). eval_guards_verdict: ERR_OK, or the error with
 * its place in the expression (`x`: the request's); then `out` is as it was before the request. */
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
/* The backend's explain, for the stream's device. */
void engine_explain_kernel(struct engine_stream *s, const struct ir_kernel *k,
                           struct kernel_explanation *ret);
bool engine_compiles(const struct engine *g); /* explaining a kernel may take long */

/* --- transfers --- */

/* A snapshot of an array being read in C order. After pull() has returned 0, `wake` is called (any
 * thread, perhaps at once) whenever pull() may have more; it is never called after download_free.
 */
struct download;
enum err_code download_new(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                           void *user, struct download **ret, struct err *e) must_check;
/* Up to n bytes from byte `offset` of the C-order contents; > 0 bytes written, 0: not ready yet
 * (never at the end: the caller knows the length), -1: the device failed. Takes about a millisecond
 * at most for n ≤ 1 MiB. One thread at a time. */
int64_t download_pull(struct download *d, int64_t offset, void *buf, size_t n);
/* Once *given_up is true the contents are no longer wanted, as in eval_request. It outlives the
 * download. */
void download_given_up(struct download *d, const _Atomic bool *given_up);
uint64_t download_version(const struct download *d); /* array_version at the snapshot */
/* Device time of the work that produced the contents, once pull() has returned bytes; 0 if that
 * work was over before the download began, unless `own`: the caller had submitted that work itself.
 */
double download_device_ms(const struct download *d, bool own);
/* The same for compiling its kernels. */
double download_compile_ms(const struct download *d, bool own);
/* Why pull() returned -1: ERR_DEVICE_LOST, ERR_OUT_OF_MEMORY, ERR_INTERNAL for a kernel that could
 * not be compiled, ERR_FAULTED for one that is barred from running. */
enum err_code download_result(const struct download *d);
/* Text for a person, in the last two cases. */
#define DOWNLOAD_REASON 640
void download_reason(const struct download *d, char ret[DOWNLOAD_REASON]);
void download_free(struct download *d);

/* The whole memory that an array and its views share, byte for byte: its size, its download, and
 * the dtype to restore it with (upload_finish_new, one axis, then array_view): DT_U8, or DT_BOOL if
 * its bools are known to be 0 and 1. */
int64_t array_buffer_nbytes(const struct array *a);
/* Whether the array, with its ghosts and padding, covers all of that memory. */
bool array_is_whole(const struct array *a);
enum dtype array_buffer_dtype(const struct array *a);
enum err_code download_buffer(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                              void *user, struct download **ret, struct err *e) must_check;
/* Whether the work that writes it is over, so that a download need not wait. */
bool array_is_settled(const struct array *a);

/* Bytes on their way into an array: staged, then published whole by one of the finishes. Aborting,
 * or failing half-way, changes nothing. */
struct upload;
enum err_code upload_new(struct engine_stream *s, struct account *account, int64_t nbytes,
                         void (*wake)(void *user), void *user, struct upload **ret,
                         struct err *e) must_check;
/* Takes up to n bytes in order; returns how many (0: no staging free, wake() will be called). The
 * caller must not push more than nbytes in all. An upload that has failed accepts everything: its
 * finish returns the error. */
size_t upload_push(struct upload *u, const void *bytes, size_t n);
/* Where the next bytes may be written directly, and how many (≥ 1 unless full); commit with
 * upload_advance. NULL: upload_push tells whether to wait. */
void *upload_reserve(struct upload *u, size_t *ret_n);
void upload_advance(struct upload *u, size_t n);
/* The staged bytes (little-endian) as a new array; takes the upload. `fortran`: they are in Fortran
 * order (the array itself is C-contiguous). */
enum err_code upload_finish_new(struct upload *take_u, enum dtype dtype, int rank,
                                const int64_t *shape, bool fortran, struct array **ret,
                                struct err *e) must_check;
/* upload_finish_into writes only if the array's contents still have this version (array_version),
 * else it fails with ERR_PRECONDITION_FAILED. */
void upload_expect(struct upload *u, uint64_t version);
/* If a finish fails for lack of device memory (err.wanted), the upload stays with the caller, which
 * may finish it again or abort it. */
void upload_keep(struct upload *u);
/* Writes the staged bytes to a region of an array (shape of `v`, elements of a's dtype); takes the
 * upload. ERR_OVERLAP when the region overlaps itself. done may be NULL. */
enum err_code upload_finish_into(struct upload *take_u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user,
                                 struct err *e) must_check;
void upload_abort(struct upload *take_u);

#endif
