/* Storage, one allocation at a fixed address; buffers, the contents that an array and its views
 * share; and who pays for them.
 *
 * For the engine's own files and the rooms above that bind memory (program/). Reference counts are
 * atomic and need no lock: what is let go of may be let go of in any callback. engine->lock
 * protects buffer->storage and the marks of a storage; pins_lock who reads a storage and what it is
 * charged for; buffers_lock the order of use. They are taken in this order. */
#ifndef ARRAYD_STORAGE_H
#define ARRAYD_STORAGE_H

#include <stdatomic.h>

#include "compute/engine/engine.h"

/* A place in a stream's order that a storage was used at. */
struct mark {
    struct engine_stream *stream; /* holds a reference; NULL: none */
    uint64_t ticket;
};

/* A download that reads a storage, and for whom. */
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
    bool awaited;       /* by work that is wanted; this and below as task_unwanted last saw it */
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

/* --- who pays (account.c) --- */

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

static inline void account_unrefp(struct account **a)
{
    account_unref(*a);
}
#define _cleanup_account_ __attribute__((cleanup(account_unrefp)))

/* --- storage.c --- */

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
 * ERR_QUOTA where that is somebody else's and the reader holds more of others' than its limits
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
/* Whether its bytes go through the backend's transfers. */
bool storage_is_remote(const struct storage *st);

/* --- buffers (array.c) --- */

/* With the lock held: where the buffer's contents are, borrowed. */
struct storage *buffer_storage(struct buffer *b);
/* It is used now. */
void buffer_touch(struct buffer *b);
/* A reference that is no array's, unless the last one is gone; with buffers_lock held. */
bool buffer_hold(struct buffer *b);
void buffer_release(struct buffer *b);

/* An array over the whole of a storage (reference taken over on success only), C-contiguous. */
struct array *array_over(struct engine *g, struct storage *take_st, enum dtype dtype,
                         const struct view *v, int64_t nbytes);

#endif
