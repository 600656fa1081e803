/* What the daemon does when its device is lost.
 *
 * After a sticky error nothing on the device works any more in this process; a new process may find
 * it healthy. So from then on the daemon refuses everything (server->device_lost: 503, /readyz
 * too), wakes waiting requests with the error, and exits with status 75 (EX_TEMPFAIL), so that its
 * supervisor restarts it. Used by main.c and front.c. */
#ifndef ARRAYD_SERVER_LOST_H
#define ARRAYD_SERVER_LOST_H

#include <signal.h>

#include "compute/base/err.h"

struct asker;
struct backend_fault;
struct lost;
struct server;

#define LOST_EXIT   75
#define LOST_SIGNAL SIGUSR1 /* wakes the main thread; ignored unless server->device_lost is set */

/* Starts the thread that waits for the loss. The process ends `delay_s` after it, one second later
 * at the latest, or up to five seconds after that while the work that was on the device is still
 * being written down (backend_config.fault). The server must live as long as the process.
 * ERR_OUT_OF_MEMORY. */
enum err_code lost_watch(struct server *s, double delay_s, struct lost **ret,
                         struct err *e) must_check;
/* backend_config.lost: any thread, does not block. */
void lost_report(void *lost, const char *why);
/* backend_config.noted: the exit waits for lost_fault. */
void lost_expect_names(void *lost);
/* backend_config.fault: one log line for each asker with work on the device. */
void lost_fault(void *lost, const struct backend_fault *fault);
/* Makes the message of an ERR_DEVICE_LOST say what the asker's work had to do with the loss, as far
 * as that is known; waits a moment for that. Without an asker (NULL) the message is unchanged. */
void lost_explain(struct lost *l, const struct asker *asker, struct err *e);

/* Before any work: what nobody was writing when the previous process died is as it was, unless the
 * fault of a device changed it, which is logged (engine_sums). */
void lost_compare(struct server *s);

/* Called when HTTP has stopped. Ends the process if the device is lost (and releases nothing of the
 * device, since calls into a driver in that state may not return); otherwise ignores any later
 * loss. */
void lost_leave(struct lost *l);

#endif
