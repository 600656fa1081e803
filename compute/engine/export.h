/* Memory that another process maps: an array's storage as a file descriptor.
 *
 * Called by server/, which knows what a token, a socket and a lease are; nothing here does. What is
 * exported is the whole allocation that an array and its views share. On the CPU it is a memfd,
 * sealed so that nobody can change its size; on CUDA an allocation of the driver's virtual memory
 * management. Memory of config.device.shareable_least bytes and more is of that kind from its
 * creation, smaller arrays (and those in host memory) are copied there when they are exported;
 * their views come along, contents and version stay as they are.
 *
 * While an array is exported its memory stays where it is: writes that would get new memory are
 * copied back, it is not moved, evicted or exchanged. Memory that was exported is given to nobody
 * else afterwards but back to the system, which clears it. Who keeps a mapping after his export has
 * ended sees what the same array has there later, never another's.
 *
 * On the CPU memory is exported for reading or for writing, not for both at once: what was handed
 * out for reading is sealed against writing, and moved when it is to be exported for writing.
 *
 * Order: an export is there when everything that had been asked to write the memory, with `write`
 * to touch it at all, has run; work that is asked for afterwards is for the caller to keep away
 * (leases). Before engine_export_end the other process has to have ended its own work on the
 * memory.
 *
 * Thread-safe. Nothing here waits for work that was sent; making memory to move to takes as long as
 * the system, or the driver, takes for that. */
#ifndef ARRAYD_EXPORT_H
#define ARRAYD_EXPORT_H

#include "compute/engine/engine.h"

/* Keeps an array exported. */
struct export;

struct exported {
    int fd; /* the caller's to close; closed by exec. On the CPU, not `write`: for reading alone */
    bool cuda;        /* a handle for cuMemImportFromShareableHandle; else a memfd for mmap */
    int64_t size;     /* bytes: of the whole allocation, what is to be mapped */
    int64_t offset;   /* bytes from its start to the array's element 0…0 */
    int device;       /* the engine's number; as the driver counts them is another thing: uuid */
    char uuid[48];    /* "GPU-8a5f…", as NVIDIA's tools write it; "" where it is not CUDA */
    uint64_t version; /* of the contents; with `write`, it is over with that */
};

struct exporting {
    struct array *array; /* the caller's reference, until done */
    bool write;
    bool sealed; /* not write: who has the memory may not come to write to it */
    /* Told once, possibly before engine_export returns, from any thread; must not block. */
    void (*done)(struct exporting *x);
    void *user;

    /* When told: ERR_OK and the rest, or why not. ERR_FORBIDDEN: exports are off, or this device
     * cannot (engine_export_problem). ERR_CONFLICT: nothing there (size 0); an array
     * that is exported already would have to move: on the CPU, as it is exported `sealed` or for
     * writing and this is the other; or (`write`) as a download is reading it.
     * ERR_OUT_OF_MEMORY, ERR_QUOTA: there is no room to move it. ERR_OVERLOADED: no descriptor is
     * left. Otherwise what the work said that the contents come from. The array is as it was. */
    enum err_code code;
    struct err err;
    struct exported exported;
    struct export *export; /* the caller's, for engine_export_end; NULL where it failed */

    /* the engine's own */
    struct engine *engine;
    _Atomic int pending;
    enum err_code worked;
    double device_ms;
};

/* The array may be on another device than the stream, whose order the wait is in otherwise. */
void engine_export(struct engine_stream *s, struct exporting *x);
/* Takes the pin. What was exported for writing has another version from now on. */
void engine_export_end(struct export *take_pin); /* NULL allowed */

/* An array that was exported, and is not now, gets memory that nobody else has mapped, ordinary
 * memory where it is smaller than shareable_least; its contents follow in the stream's order.
 * ERR_OUT_OF_MEMORY, ERR_QUOTA: it stays as it is. */
enum err_code engine_export_forget(struct engine_stream *s, struct array *a,
                                   struct err *e) must_check;

/* Why memory on a device cannot be exported, static text for a person; NULL: it can. */
const char *engine_export_problem(const struct engine *g, int device);

bool array_is_exported(const struct array *a); /* an export of its memory has not ended */
/* Somebody who may not see it any more may have its memory mapped, where it was exported. */
void array_let_see_no_more(struct array *a);
/* Whether it should leave its memory for that reason, and may: exports of it have all ended. */
bool array_outstays_exports(const struct array *a);
/* It may leave that memory and should: it is small, and there are many such, each of which takes a
 * file descriptor or more bytes than it needs. */
bool array_crowds_exports(const struct array *a);
bool array_written_outside(const struct array *a); /* nor one for writing: there is no ETag */

struct export_figures {
    int64_t readers, writers; /* exports now */
    int64_t bytes;            /* that cannot leave the device for them */
    int64_t shareable;        /* bytes of memory that could be exported where it is */
    uint64_t total, moved;    /* so far: exports; those that had to move the array */
};
void engine_export_figures(const struct engine *g, struct export_figures *ret);

#endif
