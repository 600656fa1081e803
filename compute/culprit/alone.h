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

/* Whether work that is otherwise ready may start. alone: only by itself; busy: something runs on
 * the device. Work that may not start yet is to be asked for again. alone_allows: as far as this
 * device goes, of work on several, for which `busy` is whether anything runs on any of them: it
 * starts, and takes them if it is alone, when all allow it. */
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

static inline void alone_takes(struct alone *a, const void *work)
{
    *a = (struct alone){.runs = work};
}

static inline bool alone_may_start(struct alone *a, const void *work, bool alone, bool busy,
                                   uint64_t now_ns)
{
    const bool may = alone_allows(a, work, alone, busy, now_ns);
    if (may && alone)
        alone_takes(a, work);
    return may;
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
