/* An event on which a thread that may block waits for the engine, or for other threads.
 *
 * Called by state_blobs.c and state_load.c; struct state_bell is the user of state_bell_ring and
 * state_bell_done. Any thread rings it, one waits for it; it belongs to that one. */
#ifndef ARRAYD_SERVER_STATE_BELL_H
#define ARRAYD_SERVER_STATE_BELL_H

#include <pthread.h>
#include <stdbool.h>

#include "compute/base/err.h"

struct state_bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool rung;
    enum err_code result; /* state_bell_done */
};
enum err_code state_bell_init(struct state_bell *b, struct err *e) must_check;
void state_bell_free(struct state_bell *b);
void state_bell_ring(void *user);
void state_bell_done(void *user, enum err_code result, double device_ms); /* an engine_done */
/* Waits for a ring, some hundredths of a second at most: true if it rang since the last wait. */
bool state_bell_wait(struct state_bell *b);

#endif
