/* Storage, one allocation at a fixed address; buffers, the contents that an array and its views
 * share; and the accounts that are charged for them.
 *
 * For the engine's own files and for program/, which binds memory. Reference counts are atomic and
 * need no lock: any callback may drop a reference. engine->lock protects buffer->storage and the
 * marks of a storage; pins_lock the readers of a storage and its charge; buffers_lock the order of
 * use. They are taken in this order. */
#ifndef ARRAYD_STORAGE_H
#define ARRAYD_STORAGE_H

#include <stdatomic.h>

#include "compute/memory/memory.h"

/* The place in a stream's order of a use of the storage. */
struct mark {
    struct engine_stream *stream; /* holds a reference; NULL: none */
    uint64_t seq;
};

/* A download that reads a storage, and its account. */
struct pin {
    struct account *reader; /* a reference, or NULL: none */
    struct pin *next;
};

/* WHOLE, DIVIDED: its memory on a device that is several together lies otherwise than its size
 * would have it, and does not outlive the process (engine_place). */
enum storage_how {
    STORAGE_PLAIN = 0,
    STORAGE_ZERO = 1,
    STORAGE_SCRATCH = 2,
    STORAGE_WHOLE = 4,
    STORAGE_DIVIDED = 8
};

/* One allocation at a fixed address. */
struct storage {
    _Atomic uint32_t refs;
    _Atomic uint32_t pins;     /* downloads reading it: writers get other storage */
    struct pin *pinned_by;     /* these; under pins_lock, as is: */
    bool replaced;             /* no array uses it any more */
    _Atomic double written_ms; /* device time of the work that last wrote it */
    _Atomic double compile_ms; /* and the time to compile its kernels, */
    _Atomic unsigned tiers;    /* and how these ran: enum tier */
    _Atomic int failed;        /* enum err_code: why the contents are not as requested */
    _Atomic uint64_t refusal;  /* job.refusal of that work, or of the work behind `missed`; for
                                  ERR_CONTENTS_LOST, cell.ended */
    /* work that should have written here failed and left the contents unchanged: tasks submitted
     * before that (up to this task.number) relied on the new contents, later ones get the old */
    _Atomic int missed; /* enum err_code */
    _Atomic uint64_t missed_until;
    /* The buffer's previous storage, a reference, until this one is written: if that fails, the
     * buffer gets it back (buffer_storage). */
    struct storage *_Atomic before;
    struct engine *engine;
    struct account *account;
    struct account *host_payer; /* in host memory: charged for it; NULL: none */
    int64_t charged; /* to the account: the size, or 0 if another storage is charged in its place
                        (move.c) */
    struct chunk *chunk;       /* its memory, or what that is a piece of (chunk.h); or NULL */
    uint32_t cell;             /* cells.h; 0: it does not outlive the process */
    bool moves;                /* it is for contents that are somewhere else */
    uint32_t copied_from;      /* while a move to here is not over: the cell of what it copies, */
    uint64_t copied_for;       /* and the buffer (array_memory_id) */
    _Atomic uint64_t spoiled;  /* of the cell's `writing`: by work that failed half-way */
    int64_t taken;             /* bytes of the device's own memory, if it is there (ops->taken) */
    struct account *padded_by; /* pays for the bytes beyond the size, if there are any */
    _Atomic bool exported;     /* another process may have it mapped */
    bool blank;                /* made with undefined contents, until work writes it */
    enum storage_how place;    /* STORAGE_WHOLE or STORAGE_DIVIDED; or 0 */
    bool outstayed; /* by a process that has lost its permission; under the engine's lock */
    int device;
    uint32_t parts; /* of a device that is several together: bit k, some of it is on part k */
    bool host;      /* in host memory that the device copies to and from, not in device memory */
    void *data;     /* never NULL; not to be dereferenced if size is 0 */
    int64_t size;
    struct mark writer;
    struct mark *readers; /* since the last write, one per stream */
    uint32_t n_readers, cap_readers;
    bool scratch;       /* STORAGE_SCRATCH */
    bool awaited;       /* by wanted work; this and the next as task_unwanted last counted */
    uint32_t in_flight; /* references held by tasks in flight */
};

/* Identity of contents, shared by views. */
struct buffer {
    _Atomic uint32_t refs; /* held by arrays and by `held` */
    uint32_t held;         /* by the mover, under engine->buffers_lock */
    struct engine *engine;
    struct storage *storage;
    int64_t nbytes;
    int device;
    uint64_t id, made; /* array_buffer_id, array_memory_id */
    _Atomic uint64_t version;
    /* not yet ended; the first is added with the lock held: the storage stays until the last ends
     */
    _Atomic uint32_t exports, exports_write, exports_sealed;
    /* viewed both as bool and as another dtype: its bools may have bytes other than 0 and 1 */
    _Atomic bool loose_bool;
    bool is_internal;  /* the engine's own: the keeper does not know of it */
    _Atomic int place; /* storage.place, of what it will have, too */
    /* in order of last use, under engine->buffers_lock */
    struct buffer *older, *newer;
    _Atomic uint64_t used;   /* engine->clock at the last use, */
    _Atomic int64_t used_us; /* and its time, since 1970 */
};

/* --- accounts (account.c) --- */

/* Charges a session's account, and so its owner's; the _host ones charge an owner's bytes in host
 * memory. ERR_QUOTA. */
enum err_code account_charge(struct account *a, int64_t size, struct err *e) must_check;
/* Charges regardless of limits; account_check: ERR_QUOTA if the account is past one. */
void account_charge_anyway(struct account *a, int64_t size);
enum err_code account_check(const struct account *a, struct err *e) must_check;
void account_discharge(struct account *a, int64_t size);
enum err_code account_charge_host(struct account *owner, int64_t size, struct err *e) must_check;
void account_discharge_host(struct account *owner, int64_t size);
struct account *account_owner(const struct account *a); /* borrowed; NULL: none */
/* Its owner, or itself if it has none; borrowed. */
struct account *account_principal(struct account *a);
void account_keep(struct account *owner, enum keep_limit which, int64_t n);
/* NULL allowed. */
void account_worked(struct account *a, double device_ms);

static inline void account_unrefp(struct account **a)
{
    account_unref(*a);
}
#define _cleanup_account_ __attribute__((cleanup(account_unrefp)))

/* --- storage.c --- */

/* Storage with one reference, charged to `account`. If configured and large enough, it can be
 * mapped by other processes, except STORAGE_SCRATCH, which never becomes a client's array.
 * ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code storage_new(struct engine *g, struct account *account, int device, int64_t size,
                          enum storage_how how, struct storage **ret, struct err *e) must_check;
/* Storage for the contents of `of` in the other kind of memory, uncharged (not with the lock held
 * if that is host memory: it may take long). ERR_OUT_OF_MEMORY; ERR_QUOTA: the payer's owner is at
 * its limit of host memory. */
enum err_code storage_elsewhere(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e) must_check;
/* Storage for the contents of `of` in device memory that another process can map; uncharged but for
 * the padding, which is charged to the payer. ERR_OUT_OF_MEMORY, ERR_QUOTA, ERR_FORBIDDEN,
 * ERR_OVERLOADED. */
enum err_code storage_shareable(const struct storage *of, struct account *payer,
                                struct storage **ret, struct err *e) must_check;
/* The same in memory as for a new array; it may replace `of`. ERR_OUT_OF_MEMORY, ERR_QUOTA. */
enum err_code storage_renewed(const struct storage *of, struct account *payer, struct storage **ret,
                              struct err *e) must_check;
/* The same, placed so, with memory from `alloc`, whether it may replace `of` or not. */
enum err_code storage_beside(const struct storage *of, struct account *payer,
                             enum storage_how place,
                             enum err_code (*alloc)(struct storage *st, struct err *e),
                             struct storage **ret, struct err *e) must_check;
/* The same, placed so, with memory as for a new array. */
enum err_code storage_placed(const struct storage *of, struct account *payer,
                             enum storage_how place, struct storage **ret,
                             struct err *e) must_check;
/* Storage of a previous process, in a chunk that it left (chunk.h); with its cell, unless
 * that says nothing. ERR_STATE: nothing can lie there. */
enum err_code storage_adopt(struct engine *g, struct account *account,
                            const struct engine_place *place, struct storage **ret,
                            struct err *e) must_check;
/* The download `p`, to be undone by storage_unpin, reads the storage for `reader`. ERR_QUOTA if the
 * storage is another owner's and the reader is past its limits because of storage that it holds. */
enum err_code storage_pin(struct storage *st, struct pin *p, struct account *reader,
                          struct err *e) must_check;
void storage_unpin(struct storage *st, struct pin *p);
/* Pinned, and not by its owner: it may become the readers'. */
bool storage_is_held_by_others(struct storage *st);
/* The buffer got other storage, or (false) this one back; with the lock held, unless it was the
 * buffer's last reference. */
void storage_replaced(struct storage *st, bool replaced);
/* Exchanges the charges of two storages of one size; with the lock held. */
void storage_swap_charges(struct storage *a, struct storage *b);
struct storage *storage_ref(struct storage *st);
void storage_unref(struct storage *st);
static inline void storage_unrefp(struct storage **st)
{
    storage_unref(*st);
}
#define _cleanup_storage_ __attribute__((cleanup(storage_unrefp)))
/* Nothing but its buffer refers to the contents; with the lock held. */
static inline bool storage_is_idle(const struct storage *st)
{
    return atomic_load(&st->refs) == 1 && !atomic_load(&st->before);
}
/* Nothing has been written to it, so there is nothing to move; with the lock held. */
bool storage_is_blank(const struct storage *st);
/* Nothing but its buffer refers to the contents, and they can be moved; with the lock held. */
static inline bool storage_is_movable(const struct storage *st)
{
    return storage_is_idle(st) && !storage_is_blank(st) && atomic_load(&st->failed) == ERR_OK;
}
/* The storage was written: the previous one is no longer needed. */
void storage_forget(struct storage *st);
/* What another process can map where it is: its own chunk's memory; NULL: it cannot (export.h). */
const struct shared_block *storage_share(const struct storage *st);
/* Its cell says that its contents are being written, until storage_written: `fine` if they are what
 * they should be, or what they were; `whole` if nothing of the old ones is left. */
void storage_writing(struct storage *st);
void storage_written(struct storage *st, bool fine, bool whole);
/* Nothing writes it, but its contents are not what they should be: until it is written as a whole.
 */
void storage_spoil(struct storage *st);
/* The same of new memory, until the contents have been copied there from where they are. */
void storage_awaits(struct storage *st);
/* If it was to get its contents by a copy: they are no longer where they were. After
 * storage_written: at any time one of the two places is whole, unless a second move began before
 * the first had ended. */
void storage_copied(struct storage *st);
/* Adds to an error what a device lacks: so many bytes; and whether the mesh has them. NULL allowed.
 */
void engine_lacks(const struct engine *g, int device, int64_t size, struct err *e);
/* Whether a buffer may have `st` from now on instead of `old`: what outlives the process never
 * gives way to what does not, and contents stay where they are placed. storage_none_is_kept
 * (stream.c): the error where that is all there is. */
static inline bool storage_may_replace(const struct storage *st, const struct storage *old)
{
    return (st->cell || !old->cell) && st->place == old->place;
}
enum err_code storage_none_is_kept(const struct storage *like, struct err *e);
/* It can only be read, because the previous process exported it SHARE_SEALED: a write moves it
 * first. */
bool storage_is_sealed(const struct storage *st);
/* Whether its bytes go through the backend's transfers. */
bool storage_is_remote(const struct storage *st);

/* --- buffers (array.c) --- */

/* With the lock held: the storage with the buffer's contents, borrowed. */
struct storage *buffer_storage(struct buffer *b);
/* Makes storages the buffers' own, all at once for a process that comes after this one; with the
 * lock held, unless nobody else has the buffer. Takes over a reference, and lets go of none.
 * `room`: for n. `with`: for engine_keep.placed. */
struct placing {
    struct buffer *buffer;
    struct storage *storage;
    bool copied; /* it gets the contents by a copy that is about to be made: storage_copied */
};
void buffers_place(const struct placing *all, uint32_t n, struct engine_placed *room,
                   const void *with);
void buffer_place(struct buffer *b, struct storage *take_st);
void buffer_place_copy(struct buffer *b, struct storage *take_st);
/* With the lock held: tells the keeper again of the place that it has. */
void buffer_placed(struct buffer *b);
/* Marks the buffer as just used. */
void buffer_touch(struct buffer *b);
/* A reference that belongs to no array, unless the last one has been dropped; with buffers_lock
 * held. */
bool buffer_hold(struct buffer *b);
void buffer_release(struct buffer *b);
/* An array over all of the buffer's memory, uint32 or, if its size is no multiple of that, uint8,
 * which does not count among its arrays until it is released; with buffers_lock held. NULL without
 * memory, or if the last reference has been dropped. */
struct array *buffer_words(struct buffer *b);
void buffer_words_release(struct array *a);

/* An array over the whole of a storage (reference taken over on success only), C-contiguous; _as:
 * of a buffer with that id. */
struct array *array_over_as(struct engine *g, struct storage *take_st, enum dtype dtype,
                            const struct view *v, int64_t nbytes, uint64_t id);
struct array *array_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                         const struct view *v, int64_t nbytes);
/* An array of the engine's own, of n zeros: it does not outlive the process, and the keeper is not
 * told of it. ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code array_internal(struct engine *g, struct account *account, int device,
                             enum dtype dtype, int64_t n, struct array **ret,
                             struct err *e) must_check;

#endif
