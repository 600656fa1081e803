/* An event on which a thread that may block waits for the engine, or for other threads.
 *
 * Called by state_blobs.c and state_load.c; struct state_event is the user of state_event_set and
 * state_event_done. Any thread sets it, one waits for it; it belongs to that one. */
#ifndef ARRAYD_SERVER_STATE_EVENT_H
#define ARRAYD_SERVER_STATE_EVENT_H

#include <pthread.h>
#include <stdbool.h>

#include "compute/base/err.h"

struct state_event {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_set;
    enum err_code result; /* state_event_done */
};
enum err_code state_event_init(struct state_event *v, struct err *e) must_check;
void state_event_free(struct state_event *v);
void state_event_set(void *user);
void state_event_done(void *user, enum err_code result, double device_ms); /* an engine_done */
/* Waits until it is set, some hundredths of a second at most: true if it was set since the last
 * wait. */
bool state_event_wait(struct state_event *v);

#endif
