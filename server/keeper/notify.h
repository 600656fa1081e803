/* The service manager's side, where there is one that speaks systemd's protocol (sd_notify(3),
 * sd_listen_fds(3)): readiness, and its store of descriptors, which outlives this process. Without
 * NOTIFY_SOCKET nothing happens. One thread, which never waits for the manager: what it does not
 * take at once is kept, in its order. */
#ifndef ARRAYD_KEEPER_NOTIFY_H
#define ARRAYD_KEEPER_NOTIFY_H

#include <stdbool.h>

/* Sends assignments, one a line ("READY=1"). */
void notify_say(const char *text);
/* A descriptor into the store, and out of it again. One with a number above 0 takes the place of
 * the one with that before it, which goes when it is there. `many`: one of many; the last places
 * are not for these. */
void notify_store(const char *name, unsigned number, int fd, bool many);
void notify_remove(const char *name, unsigned number);

/* The descriptor to poll for POLLOUT, before notify_go_on; −1: nothing waits. */
int notify_waits(void);
void notify_go_on(void);
/* At the end: waits a second at most until all is sent. */
void notify_finish(void);

/* Calls `take` for what was in the store when this process was started: descriptors, which are
 * the callee's. Once, before any thread and any child. */
void notify_each_stored(void (*take)(void *user, const char *name, unsigned number, int take_fd),
                        void *user);

#endif
