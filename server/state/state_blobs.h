/* The memories of a snapshot: each is written once, however many views it has.
 *
 * state_save.c adds the memory of each handle, has them written, and names them in the manifest.
 * Used on its thread only. */
#ifndef ARRAYD_SERVER_STATE_BLOBS_H
#define ARRAYD_SERVER_STATE_BLOBS_H

#include "compute/base/table.h"
#include "compute/engine/engine.h"
#include "server/state/state_event.h"
#include "server/state/state_int.h"

/* A memory. */
struct blob {
    uint64_t memory;     /* array_memory_id: the key */
    struct array *array; /* one array on it, a reference until it is written or given up */
    size_t number;       /* in the manifest */
    size_t owner;        /* principal by number */
    int64_t nbytes, cost;
    int device;
    enum dtype dtype;
    bool host;
    bool there;      /* the snapshot has contents of it */
    const char *why; /* why they are earlier ones or missing; or NULL */
    bool unreadable; /* the reason: it cannot be read */
    struct state_kept_file file;
    /* while it is put off: */
    int failures;
    uint64_t wait_limit_ns;
    uint64_t given_up; /* the version whose wait timed out; 0: none */
    UT_hash_handle hh;
};

struct blobs {
    struct engine *engine;
    struct state_writer *writer;
    struct state_kept *const *kept; /* of the last snapshot */
    uint64_t deadline_ns;           /* clock_ns; 0: none */
    uint64_t wait_ns, waited_ns;    /* for memories that are not ready: limit, and used so far */
    const _Atomic bool *stop;
    struct state_report *report;
    struct err *e;
    struct blob *table;             /* in the order of their numbers */
    struct engine_stream **streams; /* by device */
    struct state_event event;
    char *piece;
};

/* Members that are not set are zero; call blobs_free in any case. */
enum err_code blobs_init(struct blobs *t) must_check;
void blobs_free(struct blobs *t);
/* The entry of the array's memory, new or existing; NULL without memory. `owner`: principal by
 * number. */
struct blob *blobs_add(struct blobs *t, struct array *a, size_t owner);
/* Writes them all, or sets `why`. Errors are those of the disk, of a lost device and of `stop`
 * (ERR_DRAINING). */
enum err_code blobs_write(struct blobs *t) must_check;
/* Records what the next snapshot may reuse. */
void blobs_keep(const struct blobs *t, struct state_kept **ret);

enum err_code blobs_stopped(const struct blobs *t) must_check; /* ERR_DRAINING */

#endif
