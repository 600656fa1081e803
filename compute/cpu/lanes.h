/* Units of work dealt out to threads, one lane per thread: a thread first takes the units of its
 * own lane, which are consecutive, then helps with the others.
 *
 * Called by pool.c. One thread deals, while no other takes; the rest is thread-safe. */
#ifndef ARRAYD_CPU_LANES_H
#define ARRAYD_CPU_LANES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lane {
    _Alignas(64) _Atomic int64_t next; /* each on a cache line of its own */
    int64_t end;
};

struct lanes {
    struct lane *all;
    int n;
    int64_t n_units;
    _Atomic int64_t given;
};

static inline void lanes_deal(struct lanes *l, int64_t n_units)
{
    l->n_units = n_units;
    for (int i = 0; i < l->n; i++) {
        atomic_store_explicit(&l->all[i].next, n_units * i / l->n, memory_order_relaxed);
        l->all[i].end = n_units * (i + 1) / l->n;
    }
    atomic_store(&l->given, 0);
}

static inline bool lanes_empty(const struct lanes *l)
{
    return atomic_load(&l->given) >= l->n_units;
}

/* Takes a unit from lane *at, else from the next lane that has one, and sets *at to it; -1: none
 * left. */
static inline int64_t lanes_take(struct lanes *l, int *at)
{
    if (atomic_load_explicit(&l->given, memory_order_relaxed) >= l->n_units)
        return -1;
    for (int i = 0; i < l->n; i++) {
        struct lane *lane = &l->all[*at];
        int64_t u = -1;
        if (atomic_load_explicit(&lane->next, memory_order_relaxed) < lane->end)
            u = atomic_fetch_add(&lane->next, 1);
        if (u >= 0 && u < lane->end) {
            atomic_fetch_add(&l->given, 1);
            return u;
        }
        *at = (*at + 1) % l->n;
    }
    return -1;
}

#endif
