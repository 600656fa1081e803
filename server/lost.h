/* What becomes of the daemon when its device is lost.
 *
 * After a sticky error nothing on the device works any more in this process; a new process may find
 * it well again. So the daemon refuses everything from that moment on (server->device_lost: 503,
 * /readyz too), lets what waits hear of it, and ends with exit status 75 (EX_TEMPFAIL) for its
 * supervisor to start it anew. Used by main.c. */
#ifndef ARRAYD_SERVER_LOST_H
#define ARRAYD_SERVER_LOST_H

#include <signal.h>

#include "compute/base/err.h"

struct asker;
struct backend_fault;
struct lost;
struct server;

#define LOST_EXIT   75
#define LOST_SIGNAL SIGUSR1 /* wakes the main thread; nothing unless server->device_lost is set */

/* Starts the thread that waits for it, and ends the process `delay_s` after it came, one second
 * later at the latest; or up to five seconds after that, where what was on the device is still
 * being written down (backend_config.fault). The server must live as long as the process.
 * ERR_OUT_OF_MEMORY. */
enum err_code lost_watch(struct server *s, double delay_s, struct lost **ret,
                         struct err *e) must_check;
/* backend_config.lost: any thread, does not block. */
void lost_told(void *lost, const char *why);
/* backend_config.noted: the end waits for lost_fault. */
void lost_noted(void *lost);
/* backend_config.fault: a line of the log for each who had work on the device. */
void lost_fault(void *lost, const struct backend_fault *fault);
/* Makes the message of an ERR_DEVICE_LOST say what the asker's work had to do with the loss, as far
 * as that is known, for which it waits a moment. Without an asker (NULL) the message stays. */
void lost_say(struct lost *l, const struct asker *asker, struct err *e);

/* With HTTP stopped: ends the process if the device is lost (nothing of the device is released, for
 * calls into a driver in that state may not return), and else hears of no loss any more. */
void lost_leave(struct lost *l);

#endif
