/* Memory that another process maps: an array's storage as a file descriptor.
 *
 * Called by server/, which handles tokens, sockets and leases; this module knows nothing of them.
 * The exported unit is the whole allocation that an array and its views share. On the CPU it is a
 * memfd, sealed so that nobody can change its size; on CUDA an allocation of the driver's virtual
 * memory management. Memory of config.device.shareable_least bytes and more (with a keeper, of
 * config.chunk_own if that is less) is of that kind from its creation; smaller arrays (and those in
 * host memory) are copied there when they are exported. Their views follow; contents and version do
 * not change.
 *
 * While an array is exported its memory stays where it is: writes that would get new memory are
 * copied back, and it is not moved, evicted or exchanged. Afterwards its memory is not reused for
 * another array but returned to the system, which clears it. A process that keeps a mapping after
 * its export has ended sees what the same array holds there later, never another array's data.
 *
 * On the CPU memory is exported for reading or for writing, not for both at once: memory exported
 * for reading is sealed against writing, and the array moves when it is to be exported for writing.
 *
 * Order: an export is ready when all work submitted before it that writes the memory has run (with
 * `write`: all work that touches it). Later work is the caller's to keep away (leases). The other
 * process must have ended its own work on the memory before engine_export_end.
 *
 * Thread-safe. Nothing here waits for submitted work; allocating memory to move to takes as long as
 * the system or the driver needs. */
#ifndef ARRAYD_EXPORT_H
#define ARRAYD_EXPORT_H

#include "compute/memory/memory.h"

/* Keeps an array exported. */
struct export;

struct exported {
    int fd;       /* the caller's to close; close-on-exec. On the CPU, without `write`: read-only */
    bool cuda;    /* a handle for cuMemImportFromShareableHandle; else a memfd for mmap */
    int64_t size; /* bytes of the whole allocation: the size to map */
    int64_t offset;   /* bytes from its start to the array's element 0…0 */
    int device;       /* the engine's number, not the driver's: for that see uuid */
    char uuid[48];    /* "GPU-8a5f…", as NVIDIA's tools write it; "" if not CUDA */
    uint64_t version; /* of the contents; with `write`, no longer valid */
};

struct exporting {
    struct array *array; /* the caller's reference, until done */
    bool write;
    bool sealed; /* without write: the recipient must not be able to get write access */
    /* Called once, possibly before engine_export returns, on any thread; must not block. */
    void (*done)(struct exporting *x);
    void *user;

    /* Valid in done(): ERR_OK and the rest, or the error. ERR_FORBIDDEN: exports are off, or this
     * device cannot export (engine_export_problem). ERR_CONFLICT: the array is empty (size 0); or
     * it is exported already and would have to move: on the CPU, because it is exported `sealed` or
     * for writing and this request is the other kind; or (`write`) because a download is reading
     * it. ERR_OUT_OF_MEMORY, ERR_QUOTA: there is no room to move it. ERR_OVERLOADED: no file
     * descriptor is left. Otherwise the error of the work that produces the contents. On failure
     * the array is unchanged. */
    enum err_code code;
    struct err err;
    struct exported exported;
    struct export *export; /* the caller's, for engine_export_end; NULL on failure */

    /* the engine's own */
    struct engine *engine;
    _Atomic int pending;
    enum err_code worked;
    double device_ms;
};

/* The array may be on another device than the stream; then the wait is not in the stream's order.
 */
void engine_export(struct engine_stream *s, struct exporting *x);
/* Takes the pin. An array that was exported for writing gets a new version. */
void engine_export_end(struct export *take_pin); /* NULL allowed */

/* An export of the previous process continues: the array is one that engine_adopt returned, or
 * a view of one. ERR_STATE: its memory was not exported so; ERR_OUT_OF_MEMORY. */
enum err_code engine_export_adopt(struct array *a, bool write, struct export **ret,
                                  struct err *e) must_check;

/* Moves an array that was exported, and no longer is, to memory that no other process has mapped;
 * to such as a new array of its size has. The contents follow in the stream's order.
 * ERR_OUT_OF_MEMORY, ERR_QUOTA: the array is unchanged. */
enum err_code engine_export_forget(struct engine_stream *s, struct array *a,
                                   struct err *e) must_check;

/* Why memory on a device cannot be exported, as static text for a person; NULL: it can. */
const char *engine_export_problem(const struct engine *g, int device);

bool array_is_exported(const struct array *a); /* an export of its memory has not ended */
/* A process that lost its permission to see the array may still have its memory mapped, if it was
 * exported: marks that memory. */
void array_let_see_no_more(struct array *a);
/* Whether the array should leave its memory for that reason, and can: all exports of it have ended.
 */
bool array_outstays_exports(const struct array *a);
/* Whether it should leave that memory and can, because it is small and there are many such, each of
 * which takes a file descriptor or more bytes than it needs. */
bool array_crowds_exports(const struct array *a);
bool array_written_outside(const struct array *a); /* or for writing: it has no ETag then */

struct export_figures {
    int64_t readers, writers; /* exports now */
    int64_t bytes;            /* that these exports keep on the device */
    int64_t shareable;        /* bytes of memory that can be exported without a move */
    uint64_t total, moved;    /* so far: exports; those that had to move the array */
};
void engine_export_figures(const struct engine *g, struct export_figures *ret);

#endif
