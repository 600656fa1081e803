/* Kernels that are not run any more, for they were on a device that faulted.
 *
 * A fault says that something on the device did what is forbidden, not which kernel it was. So a
 * kernel that was there alone is refused from then on. Where several were there, none of them is
 * refused by itself until it is there at a second fault within a day; if all were of one piece of
 * work, that plan (those kernels, together) is refused at once.
 *
 * The list outlives the process in a file of the kernel cache's folder, a line for each, that an
 * operator may edit or delete at any time: what it does not name any more is run again. A kernel's
 * key changes with arrayd's version and the compiler's, and so is refused only by those that made
 * it.
 *
 * Called by the CUDA backend. Thread-safe. */
#ifndef ARRAYD_CUDA_REFUSED_H
#define ARRAYD_CUDA_REFUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/backend.h"
#include "compute/gpu/code/kcache.h"

struct refused;

#define REFUSED_MOST   256 /* lines; past them the oldest go, those that are not refused first */
#define REFUSED_TEXT   512
#define REFUSED_NUMBER (UINT64_C(1) << 63) /* set in all that refused_find gives */

/* dir: a folder's descriptor, which stays the caller's; −1: nothing is kept. NULL without memory.
 */
struct refused *refused_open(int dir);
void refused_close(struct refused *r); /* NULL allowed */

/* Kernels that one piece of work had on the device, each once. */
struct refused_kernel {
    struct kcache_key key;
    const char *form;
    bool refused; /* set: it is, from now on */
};
struct refused_work {
    struct refused_kernel *kernels;
    uint32_t n_kernels;
};
/* They were there, and nothing else, when the device faulted; why: one line. Not `sure`: they may
 * not have been, and are under suspicion at most. Writes the file. False: that failed, and the next
 * process will know nothing of it. */
bool refused_fault(struct refused *r, const char *why, struct refused_work *works, uint32_t n,
                   bool sure);

/* Whether anything is refused, and whether nothing is on the list; neither locks. */
bool refused_any(const struct refused *r);
bool refused_is_empty(const struct refused *r);
/* Whether that kernel is on the list at all: what can be done without it should be, for a while. */
bool refused_suspects(struct refused *r, const struct kcache_key *key);
/* A number for refused_reason where one of the kernels, each given once, is refused, or all of them
 * together; 0: they may run. Looks at the file where it finds one. `keys` is sorted by it. */
uint64_t refused_find(struct refused *r, struct kcache_key *keys, uint32_t n);
/* A sentence for a person; "" where it is not refused any more. */
void refused_reason(struct refused *r, uint64_t number, char ret[REFUSED_TEXT]);
/* How many kernels and plans are. */
int refused_count(const struct refused *r);
/* The same of a folder that no backend has opened; 0 too where it cannot be read. */
int refused_count_in(const char *folder);

#endif
