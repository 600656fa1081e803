/* Having a device to itself: suspected work starts when nothing else runs there, and nothing else
 * starts until it is done. Work that comes while it waits for the rest to end is held back, but not
 * for longer than ALONE_NS at a time: what runs may last. Then others may start for as long, and it
 * tries again.
 *
 * For a backend that decides which work of a device starts; under the lock by which it does so. */
#ifndef ARRAYD_ALONE_H
#define ARRAYD_ALONE_H

#include <stdbool.h>
#include <stdint.h>

#define ALONE_NS UINT64_C(2000000000)

struct alone {
    const void *runs;  /* the work that has the device to itself */
    const void *waits; /* the work that wants it */
    uint64_t until_ns; /* until then others are held back for it */
};

/* As far as this device goes. */
static inline bool alone_allows(struct alone *a, const void *work, bool alone, bool busy,
                                uint64_t now_ns)
{
    if (a->runs)
        return false;
    if (a->waits && now_ns >= a->until_ns + ALONE_NS)
        a->waits = NULL;
    if (!alone)
        return !a->waits || now_ns >= a->until_ns;
    if (busy && !a->waits) {
        a->waits = work;
        a->until_ns = now_ns + ALONE_NS;
    }
    return !busy;
}

/* Whether work on n devices that is otherwise ready may start; it takes them if it is alone. alone:
 * only by itself; busy: something runs on any of them. Work that may not start yet is to be asked
 * for again. While it waits, all devices that others are held back on for it hold them back until
 * the same time: one after another, they would never be idle together. */
static inline bool alone_may_start_on(struct alone *const *a, int n, const void *work, bool alone,
                                      bool busy, uint64_t now_ns)
{
    bool may = true;
    uint64_t until_ns = 0;
    for (int k = 0; k < n; k++)
        may &= alone_allows(a[k], work, alone, busy, now_ns);
    for (int k = 0; k < n && alone && may; k++)
        *a[k] = (struct alone){.runs = work};
    for (int k = 0; k < n; k++)
        if (a[k]->waits == work && a[k]->until_ns > until_ns)
            until_ns = a[k]->until_ns;
    for (int k = 0; k < n; k++)
        if (a[k]->waits == work)
            a[k]->until_ns = until_ns;
    return may;
}

static inline bool alone_may_start(struct alone *a, const void *work, bool alone, bool busy,
                                   uint64_t now_ns)
{
    return alone_may_start_on(&a, 1, work, alone, busy, now_ns);
}

/* The work is over. */
static inline void alone_over(struct alone *a, const void *work)
{
    if (a->runs == work)
        a->runs = NULL;
}

/* Whether others that were held back may start now, though nothing has ended. */
static inline bool alone_lets_others(const struct alone *a, uint64_t now_ns)
{
    return a->waits && now_ns >= a->until_ns && now_ns < a->until_ns + ALONE_NS;
}

#endif
