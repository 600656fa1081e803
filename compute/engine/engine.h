/* The engine: arrays on a device, expressions evaluated over them, transfers in and out.
 *
 * What server/ calls for work on arrays, with memory.h below it. Thread-safe throughout; nothing
 * here blocks on the device. Work on one stream runs in the order submitted. Work on different
 * streams that touches the same memory runs in the order submitted, too.
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

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/strb.h"
#include "compute/check/check.h"
#include "compute/lang/expr.h"
#include "compute/memory/memory.h"

struct engine_config {
    const char *backend; /* "auto", "cpu", "cuda" */
    struct engine_keep keep;
    /* with a keeper: arrays of so many bytes and more (in host memory, of more than half a chunk
     * that is cut) have a chunk of memory each, others are pieces of one; chunks at most, kept ones
     * included, and buffers: arrays beyond either do not outlive the process */
    int64_t chunk_own, max_chunks;
    uint32_t max_kept;
    int cells; /* with a keeper: what it had from the previous process, taken over; −1: nothing */
    int signal;    /* with a keeper: what that process died of; 0: of no signal */
    int64_t ended; /* and when, in seconds of Unix time; 0: not known */
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
        .max_cost = INT64_MAX, .chunk_own = 2 << 20, .max_chunks = 4096, .max_kept = 1 << 17,      \
        .cells = -1, .device = {.inline_elements = 1 << 16, .shareable_least = 32 << 20},          \
    }

enum err_code engine_open(const struct engine_config *config, struct engine **ret,
                          struct err *e) must_check;
/* After all arrays and streams are released. False if work still runs after close_wait_ms: then
 * nothing is freed, because that work may use any of it, until the process ends. */
bool engine_close(struct engine *g);

/* With a keeper, on devices that can fault: from now on sums over the memory of arrays that nobody
 * is using are noted for the next process, and those that a previous one noted are compared now.
 * *ret_compared: arrays that had a sum; *ret_changed: those that are not what they were, whose
 * readers get ERR_CONTENTS_LOST. Once, after engine_adopted and before any work.
 * engine_sums_stop: no more of it; before engine_bequeath, and at the latest by engine_close.
 * Any error: not all are compared. */
enum err_code engine_sums(struct engine *g, size_t *ret_compared, size_t *ret_changed,
                          struct err *e) must_check;
void engine_sums_stop(struct engine *g);

const char *engine_backend(const struct engine *g);  /* "cpu", "cuda" */
const char *engine_note(const struct engine *g);     /* why `auto` chose it */
int64_t engine_bytes_in_use(const struct engine *g); /* storage alive, temporaries included */
int64_t engine_bytes_on(const struct engine *g, int device); /* of these, a device's */
int64_t engine_host_bytes(const struct engine *g); /* arrays in host memory; not included above */
int64_t engine_host_limit(const struct engine *g); /* most bytes that these may use */
int64_t engine_jobs_in_flight(const struct engine *g);
int64_t engine_max_cost(const struct engine *g);
void engine_report(const struct engine *g, struct backend_report *ret);
void engine_metrics(struct engine *g, struct strb *out); /* Prometheus text */
void engine_tidy(struct engine *g);                      /* every second or so; see backend.h */

/* --- new arrays --- */

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

/* Creators (create.c). All queue work and return at once. The place of an error is the argument's
 * name ("/step"), or none: then ERR_BAD_DTYPE is about the dtype, any other about the whole. */
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

/* The same on the stream's device of an array that may be on another, on which `there` is a stream:
 * a snapshot like any read; no thread waits. Memory that is lacking may be either device's. */
enum err_code engine_copy_across(struct engine_stream *s, struct engine_stream *there,
                                 struct account *account, struct array *a, struct array **ret,
                                 struct err *e) must_check;

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
 * `version` is the new version of `a`. `with`: passed to engine_keep.placed with the exchange,
 * which is told of `with` even if n is 0; NULL: nothing. */
struct exchange {
    struct array *a, *b;
    uint64_t version;
};
enum err_code engine_exchange(struct engine_stream *s, struct exchange *x, uint32_t n,
                              const void *with, struct err *e) must_check;
/* Whether they may be exchanged, and `a` still outlives the process then, if it did before. */
bool array_exchanges(const struct array *a, const struct array *b);

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
    /* NULL, or where it is added before done() what was seen of the work. It outlives the work. */
    struct work_seen *seen;
    /* a larger expression is put off if its plan is not cached; 0: never */
    size_t most_nodes;
    bool unused; /* is no use of the arrays: their order of use (engine_evict) stays as it is */
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
 * ERR_DTYPE_MISMATCH for an out not castable by same_kind, ERR_SHAPE_MISMATCH for one of another
 * shape, all three with of_target; ERR_QUOTA, ERR_OUT_OF_MEMORY. */
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

/* What evaluate would do, or refuse, in that stream. Everything lives in `arena`. */
struct eval_explanation {
    struct typed typed;
    struct ir_plan *plan;
    struct eval_times times;
};
enum err_code engine_explain(struct engine_stream *s, const struct eval_request *req,
                             struct arena *arena, struct eval_explanation *ret,
                             struct err *e) must_check;
/* The backend's explain, for the stream's device. */
void engine_explain_kernel(struct engine_stream *s, const struct ir_kernel *k,
                           struct kernel_explanation *ret);
/* Of a whole, which the kernels of a plan have where the backend explains them; false, and
 * *ret_why: it never runs. */
bool engine_explain_whole(struct engine_stream *s, const struct ir_whole *w,
                          struct kernel_explanation *ret, const char **ret_why);
bool engine_compiles(const struct engine *g); /* explaining a kernel may take long */

/* --- uploads --- */

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
