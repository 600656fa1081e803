/* The first process: it starts the daemon proper and keeps descriptors for it.
 *
 * The daemon is started again when it ended by a lost device (LOST_EXIT), a signal, or anything
 * else than its own decision; what it had put here (hold.h) is given to the next one, but not
 * before the old one is gone. SIGTERM, SIGINT and SIGHUP are passed on. SIGUSR2 is an upgrade: the
 * program is looked up again by its name, and asked whether it could start and understands what is
 * held; then the running daemon is sent SIGUSR2, which asks it to leave everything as it is, and
 * the new one is started. If the new one does not become ready, the old program is started again.
 * Where no daemon is ready for a while, connections get a 503.
 *
 * Called by main.c, in a process without threads. */
#ifndef ARRAYD_KEEPER_H
#define ARRAYD_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#define KEEPER_NAME         "arrayd-keeper"          /* in /proc and ps */
#define KEEPER_DAEMON       "arrayd"                 /* the daemon proper */
#define KEEPER_UPGRADES     "arrayd-upgrade"         /* during an upgrade; at most 15 characters */
#define KEEPER_RESTARTS_ENV "ARRAYD_KEEPER_RESTARTS" /* for hold_restarts */
#define KEEPER_SIGNAL_ENV                                                                          \
    "ARRAYD_KEEPER_SIGNAL" /* "9 1763000000": for hold_signal and hold_ended */
/* Set for a program that is only asked whether it could take over: the descriptor of the journal,
 * or −1. It exits with 0 if it could. */
#define KEEPER_CHECK_ENV "ARRAYD_KEEPER_CHECK"
/* For it: the descriptors of the sockets that are held, with blanks between. */
#define KEEPER_SOCKETS_ENV "ARRAYD_KEEPER_SOCKETS"

#define KEEPER_GONE                                                                                \
    76 /* the daemon's exit status when its keeper has died: no decision of its own */
#define KEEPER_GAVE_UP 75 /* the keeper's when the daemon does not stay alive (EX_TEMPFAIL) */

struct keeper_config {
    char *const *argv;     /* of the daemon; NULL at the end */
    int64_t most_failures; /* starts in a row that did not last a second, before it gives up, or, */
    const char *kept;      /* with any descriptor whose name begins so, tries rarely */
    int64_t most_deaths;   /* within a minute; more are put off (pace.h) */
    double leave_s;        /* how long a daemon may take to leave for an upgrade */
    double wait_s; /* without a daemon; then connections are answered here (answer.h). 0: never */
    bool follows;  /* the end of standard input is SIGTERM */
    const char *sockets;  /* with what the names of all listening sockets begin */
    const char *answered; /* with what the names of their listening sockets begin */
};

/* Returns the exit status: the daemon's, if it ended by its own decision. */
int keeper_run(const struct keeper_config *config);

#endif
