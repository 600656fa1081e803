/* Kernels that are no longer run because they were on a device that faulted.
 *
 * A fault says that something on the device did something forbidden, not which kernel it was. A
 * kernel that was there alone is refused from then on. Of several kernels, none is refused by
 * itself until it is present at a second fault within a day; if all belonged to one piece of work,
 * that plan (those kernels, together) is refused at once.
 *
 * The list outlives the process in a file of the kernel cache's folder, one line each, that an
 * operator may edit or delete at any time: kernels it no longer names run again. A kernel's key
 * changes with arrayd's version and the compiler's, so only the versions that made it refuse it.
 *
 * Called by the CUDA backend. Thread-safe. */
#ifndef ARRAYD_CUDA_REFUSED_H
#define ARRAYD_CUDA_REFUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/backend.h"
#include "compute/gpu/code/kcache.h"

struct refused;

#define REFUSED_MOST   256 /* lines; beyond that the oldest are dropped, those not refused first */
#define REFUSED_TEXT   512
#define REFUSED_NUMBER (UINT64_C(1) << 63) /* set in all numbers from refused_find */

/* dir: a folder's descriptor, which stays the caller's; −1: nothing is kept. NULL without memory.
 */
struct refused *refused_open(int dir);
void refused_close(struct refused *r); /* NULL allowed */

/* Kernels that one piece of work had on the device, each once. */
struct refused_kernel {
    struct kcache_key key;
    const char *form;
    bool refused; /* set: it is refused from now on */
};
struct refused_work {
    struct refused_kernel *kernels;
    uint32_t n_kernels;
};
/* Records the kernels that were on the device, and nothing else, when it faulted; why: one line.
 * Not `sure`: they may not have been there, and are only suspected. Writes the file. False: that
 * failed, and the next process will not know of it. */
bool refused_fault(struct refused *r, const char *why, struct refused_work *works, uint32_t n,
                   bool sure);

/* Whether anything is refused; whether the list is empty. Neither locks. */
bool refused_any(const struct refused *r);
bool refused_is_empty(const struct refused *r);
/* Whether that kernel is on the list at all: if so, avoid it for a while where possible. */
bool refused_suspects(struct refused *r, const struct kcache_key *key);
/* A number for refused_reason if one of the kernels, each given once, is refused, or all of them
 * together; 0: they may run. Checks the file before it refuses. Sorts `keys`. */
uint64_t refused_find(struct refused *r, struct kcache_key *keys, uint32_t n);
/* A sentence for a person; "" if it is no longer refused. */
void refused_reason(struct refused *r, uint64_t number, char ret[REFUSED_TEXT]);
/* How many kernels and plans are refused. */
int refused_count(const struct refused *r);
/* The same for a folder that no backend has opened; 0 also if it cannot be read. */
int refused_count_in(const char *folder);

#endif
