/* Arrays on a device: accounts, streams, the arrays themselves, where they live, downloads.
 *
 * Called by server/ and by the rooms above, mostly through engine.h, which opens the engine and
 * says what holds for all of it: threads, order, failures. */
#ifndef ARRAYD_MEMORY_H
#define ARRAYD_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/backend.h"
#include "compute/base/err.h"
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

/* An owner's device time in a calendar month (UTC); work counts in the month in which it ends. */
struct account_month {
    int32_t month; /* 202611: November 2026 */
    uint64_t device_ns;
};
/* The present one, and the last other one that the clock has shown (month 0: none), which goes on
 * when a clock that was set wrong is set right. */
struct account_months {
    struct account_month now, other;
};
void account_month(struct account *owner, struct account_month *ret); /* the present one */
void account_months(struct account *owner, struct account_months *ret);
/* Adds what was counted before. */
void account_restore_months(struct account *owner, const struct account_months *m);
/* `worked` is told of the months after each so much time, by any thread: it must not block, nor
 * call the account. NULL: nobody is. account_tell: at once, if there is more than was told. */
#define ACCOUNT_TELL_NS 100000000u
typedef void account_worked_fn(void *user, const struct account_months *m);
void account_observe(struct account *owner, account_worked_fn *worked, void *user);
void account_tell(struct account *owner);

/* --- devices --- */

/* Whether the host can access arrays directly: there is no device behind a bus. */
bool engine_in_host_memory(const struct engine *g);
/* For a thread that polls for the end of short work: may run callbacks of work that has ended. */
void engine_poll(struct engine *g);
int engine_device_count(const struct engine *g);
void engine_device_info(const struct engine *g, int device, struct backend_device *ret);
/* Of memory of so many bytes on a device: how much is on that part of it, of a device that is one
 * on its only one (0). What is not divided is on the first, or on another while that has no room.
 */
int64_t engine_part_bytes(const struct backend_device *d, int part, int64_t size);
/* On each part of one that is several, if it is divided among n of them. */
int64_t engine_share_bytes(const struct backend_device *d, int n, int64_t size);
/* Whether it has room for so many bytes. */
bool engine_has(const struct engine *g, int device, int64_t size);
/* The number of the mesh, which is the last device, or -1 without one; the number of single
 * devices. */
int engine_mesh(const struct engine *g);
int engine_single_count(const struct engine *g);
/* A device's number as it is kept for another process, which may have others, and the device that
 * is meant there. Where a GPU or the mesh is missing it is another one. */
int engine_kept_device(const struct engine *g, int device);
int engine_device_kept(const struct engine *g, int64_t kept);
/* The number for the next process of what was kept as `kept` and is on `device` now: the mesh's
 * goes back to the mesh where there is one again. Whether it is the mesh's. */
int engine_kept_again(const struct engine *g, int64_t kept, int device);
bool engine_kept_is_mesh(int64_t kept);
/* The device with the most free memory, of those that are one; the first of equals. */
int engine_roomiest_device(const struct engine *g);

/* --- memory that outlives the process --- */

/* Where a buffer's contents lie. */
struct engine_place {
    uint64_t chunk; /* 0: where they do not outlive the process, if there are bytes at all; all but
                       those and the device is 0 then */
    int64_t offset, bytes;
    uint32_t cell;
    int device;
    bool own;       /* nothing else lies in the chunk */
    bool host;      /* moved out of the device */
    bool exported;  /* another process may have it mapped: it is never another array's */
    bool outstayed; /* so may one that has lost its permission: the array is to leave it */
};
struct engine_placed {
    uint64_t buffer; /* array_memory_id */
    struct engine_place place;
    struct engine_place was; /* chunk not 0: `place` gets a copy of what lies here, which counts if
                                the copy was not made */
};

/* Who holds the memory of arrays, so that it outlives the process. put: a chunk of `size` bytes on
 * a device, or in host memory (ENGINE_ON_HOST), under a number that is not used again, with
 * the `n` descriptors of its parts (borrowed), of which it keeps all or none. It has returned
 * before the chunk is used. drop: the chunk's memory is given back. All may be called on any
 * thread, possibly with the engine's lock held, and must not call the engine. put NULL: nobody
 * holds it. */
#define ENGINE_ON_HOST (-1)
/* Rises with every change of what another version of this program would find of that: a chunk, a
 * cell (cells.h) and how its sum is made (sums.c), a place. */
#define ENGINE_KEEP_VERSION 3
struct engine_keep {
    /* put: an error says that the keeper does not have the chunk. */
    enum err_code (*put)(void *user, uint64_t chunk, int device, int64_t size, const int *fds,
                         int n, struct err *e);
    void (*drop)(void *user, uint64_t chunk);
    /* The rest may be NULL. cells: called once, when the engine is opened, with the memory
     * (borrowed) that says of each place whether its contents are valid. placed: the places of
     * these buffers' contents from now on, to be recorded together, and with `with`
     * (engine_exchange; else NULL); also if only the properties of a place have changed, and before
     * another process can map it. gone: the buffer no longer exists. limit: from now on new arrays
     * are beyond the option's limit, or not any more; must not block. */
    void (*cells)(void *user, int fd);
    void (*placed)(void *user, const struct engine_placed *all, uint32_t n, const void *with);
    void (*gone)(void *user, uint64_t buffer);
    void (*limit)(void *user, const char *option, bool reached);
    bool shared; /* by several owners: each may have as much of the limits as is free, so that
                    something is always left for the next */
    void *user;
};
/* Take over the memory of a previous process, before arrays are made: first the chunks that the
 * keeper had (descriptors borrowed, as put got them), then the buffers, then engine_adopted, which
 * drops chunks without buffers; new buffers get ids above `last`. *ret: an array over the whole
 * buffer, one axis of uint8, with that array_memory_id. If the buffer was being written, or its
 * place holds other contents by now, its readers get ERR_CONTENTS_LOST until it is written as a
 * whole. engine_adopt: ERR_CONTENTS_LOST: the memory was not such that outlives its process.
 * ERR_STATE: there is no such memory. */
enum err_code engine_adopt_chunk(struct engine *g, uint64_t chunk, int device, const int *fds,
                                 int n, int64_t size, struct err *e) must_check;
enum err_code engine_adopt(struct engine *g, struct account *account,
                           const struct engine_placed *placed, struct array **ret,
                           struct err *e) must_check;
void engine_adopted(struct engine *g, uint64_t last);
/* Notes that the process ends because its device is lost: the next one gives that as the reason
 * for the contents that are lost with it. */
void engine_lost(struct engine *g);
/* The process ends: the next one takes over arrays' memory as it is now, though the arrays are
 * released here. No work is under way, and no more is submitted; the keeper gets no further
 * updates. */
void engine_bequeath(struct engine *g);

/* Limits of what outlives the process: chunks of memory, and arrays. */
enum keep_limit { KEEP_CHUNKS, KEEP_ARRAYS, KEEP_LIMITS };

/* Why arrays on a device cannot outlive the process, even with a keeper: static text; NULL if they
 * can. The device has been asked only if there is a keeper, or if memory is shareable. */
const char *engine_keep_problem(const struct engine *g, int device);
/* The limit that new arrays are beyond now, so that they do not outlive the process: the option's
 * name; NULL: none. engine_keep_share: the one of which the account's owner has a share, and may
 * have no more while others have what they have. */
const char *engine_keep_limit(const struct engine *g);
const char *engine_keep_share(const struct engine *g, const struct account *a);
int64_t account_kept(const struct account *a, enum keep_limit which); /* of an owner */

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
int64_t
array_used_us(const struct array *a); /* last use of its memory, µs since 1970; 0: none yet */
uint32_t array_buffer_refs(const struct array *a); /* arrays on its buffer, including this one */
bool array_is_held(const struct array *a);         /* by a download */
bool array_buffer_shared(const struct array *a);   /* other arrays use the buffer */
int array_device(const struct array *a);
bool array_in_host_memory(const struct array *a); /* engine_move */
/* Changes with every accepted write, never repeats within the process: for ETag. Work that is
 * refused or fails at once, with nothing written, does not change it. */
uint64_t array_version(const struct array *a);

/* --- where arrays live (move.c) --- */

/* Moves the contents of an array (and so of its views) to host memory, or back, in the stream's
 * order; contents and version do not change. Work that uses the array brings it back by itself.
 * Takes as long as pinning the memory: do not call it on a serving thread. done() is called when
 * the array has moved. On failure the array stays where it was. ERR_OUT_OF_MEMORY; ERR_CONFLICT for
 * one that is exported. */
enum err_code engine_move(struct engine_stream *s, struct array *a, bool host, engine_done *done,
                          void *user, struct err *e) must_check;

/* Places a new array, which nobody else has yet, on a device that is several together: all of it on
 * the first, or divided among them (`apart`), which its memory stays whenever it gets other memory.
 * Where that is not how its size has it, it is moved there, in the stream's order. Elsewhere it is
 * whole, and `apart` is not asked for. ERR_UNSUPPORTED_PLACEMENT: it is too small to be divided;
 * ERR_OUT_OF_MEMORY. */
enum err_code engine_place(struct engine_stream *s, struct array *a, bool apart,
                           struct err *e) must_check;
/* How many parts an array is divided among, along *ret_axis, the slowest in memory: ret_rows is the
 * first row there whose beginning lies on each part, or behind it, and then the number of rows;
 * ret_devices are the numbers of these parts. 0: it is not divided now, or its elements lie
 * backwards or repeat along that axis. */
int array_divided(const struct array *a, int *ret_axis, int64_t ret_rows[BACKEND_PARTS + 1],
                  int64_t ret_devices[BACKEND_PARTS]);

/* Makes room on a device: moves small arrays together and, unless they are to `stay` there, the
 * least recently used arrays to host memory until `bytes` more would fit; or waits briefly for
 * running work, which may release memory. Owned by the caller until done() is called, on any
 * thread: ERR_OK if something moved; ERR_OVERLOADED if everything was just in use, or work is
 * running (worth retrying now); ERR_OUT_OF_MEMORY if there is nothing to move, or nowhere to move
 * it. */
struct eviction {
    int device;
    int64_t bytes;
    bool stay;      /* move nothing out */
    bool again;     /* a previous eviction did not free enough */
    uint64_t until; /* engine_clock: arrays used after that stay */
    engine_done *done;
    void *user;
    /* the engine's own */
    struct engine *engine;
    struct eviction *next;
    _Atomic int pending;
    int64_t out;
    bool others, gathers;
};
void engine_evict(struct engine *g, struct eviction *v);
uint64_t engine_clock(const struct engine *g); /* counts uses of arrays */

/* --- downloads --- */

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
/* And how they ran: enum tier of backend.h. */
unsigned download_tiers(const struct download *d, bool own);
/* Device time of the work that last wrote the array's contents, once it is over. */
double array_device_ms(const struct array *a);
/* Why pull() returned -1: ERR_DEVICE_LOST, ERR_OUT_OF_MEMORY, ERR_INTERNAL for a kernel that could
 * not be compiled, ERR_FAULTED for one that is barred from running, ERR_PLAN_FAULTED for work that
 * is. */
enum err_code download_result(const struct download *d);
/* Text for a person, in the last three cases. */
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

#endif
