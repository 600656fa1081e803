/* Whether, and when, something that found a device's memory full tries again. The engine frees
 * memory: it moves out arrays that were not used for long ("evict" in the configuration), or waits
 * for work in flight, which returns its temporaries.
 *
 * Memory may be short several times: once for each array, or because others were quicker. The
 * number of tries is bounded so that two large ones cannot compete for ever. While the device has
 * work in flight the wait is longer: clients that queue work without waiting for each piece would
 * otherwise be refused memory that is free a moment later.
 *
 * Used by memory_pressure.c (requests) and by jobs. The owner keeps the struct until the answer; it
 * is the asker's before memory_retry_ask and from `done` on. Zeroed: nothing was tried yet. */
#ifndef ARRAYD_SERVER_MEMORY_RETRY_H
#define ARRAYD_SERVER_MEMORY_RETRY_H

#include "compute/engine/engine.h"

struct memory_retry {
    int tries, fruitless;
    uint64_t until; /* clock_ns: no waiting after that */
    struct engine *engine;
    struct eviction eviction;
    void (*done)(void *user);
    void *user;
};

/* Whether the error says that a device was full, and there is memory to free. */
bool lacks_memory(const struct err *e);
/* Completes the message of such an error, once no more is tried: how much memory is free, of how
 * much, and, without `evict`, that the option exists. Other errors stay as they are. */
void memory_explain(const struct engine *g, bool evict, struct err *e);
/* True: `done` is called once, on any thread, perhaps at once; then it is time for the next try.
 * False: another try would not help, as where the device can never have so much. `evict`:
 * arrays may be moved. */
bool memory_retry_ask(struct memory_retry *r, struct engine *g, bool evict, const struct err *e,
                      void (*done)(void *user), void *user);

#endif
