/* All parts of the daemon in one struct: main.c makes it, every request points at it.
 *
 * The parts are made before the first request and outlive the last one; each is thread-safe by
 * itself. */
#ifndef ARRAYD_SERVER_SERVER_H
#define ARRAYD_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ID_SIZE        25 /* "a-" or "s-", 22 characters of base 62 (128 random bits), NUL */
#define PRINCIPAL_SIZE 65 /* a name, NUL */

struct audit;
struct auth;
struct copy_rates;
struct config;
struct culprits;
struct engine;
struct export_socket;
struct exports;
struct files;
struct hold;
struct http;
struct jobs;
struct kept_links;
struct journal_writer;
struct lease_uses;
struct lost;
struct leases;
struct logins;
struct shares;
struct sched;
struct state;
struct survive;
struct meter;
struct metrics;

struct server {
    const struct config *config; /* server/config/config.h */
    struct engine *engine;
    struct meter *memory;           /* host memory taken by all requests */
    struct auth *auth;              /* principals, their sessions and handles */
    struct logins *logins;          /* of browsers, and read-only links (server/login/logins.h) */
    const struct kept_links *links; /* the latter, for those who keep them (server/kept/kept.h) */
    struct audit *audit;            /* who did what (server/admin/audit.h) */
    struct leases *leases;          /* of all principals, since they bind one another */
    struct shares *shares;
    struct exports *exports; /* NULL: exports are off */
    struct lease_uses *uses;
    struct export_socket *export_socket;
    struct sched *sched;           /* the devices' scheduler */
    struct copy_rates *rates;      /* how fast they copy memory (server/work/copy_rate.h) */
    struct jobs *jobs;             /* running programs (server/jobs/jobs.h) */
    struct files *files;           /* folders of this machine (server/files/files.h) */
    struct state *state;           /* on disk; NULL: nothing is saved (server/state/state.h) */
    struct journal_writer *writer; /* writes changes to the journal; NULL without keep-arrays */
    struct culprits *culprits;     /* what faulted, and whose work it was (server/blame.h) */
    struct lost *lost;             /* handles the loss of the device (server/lost.h) */
    struct survive *survive;       /* what the next process takes over (server/survive.h) */
    struct hold *hold; /* what outlives this process; NULL: nothing (server/keeper/hold.h) */
    struct http *http;
    struct metrics *metrics;  /* server/api/metrics.h */
    _Atomic bool draining;    /* SIGTERM came: /readyz says 503 */
    _Atomic bool followed;    /* if it ends now, another process continues with what is held */
    _Atomic bool hurry;       /* a second signal: open connections are cut, not drained */
    _Atomic bool device_lost; /* only health and metrics are served */
    _Atomic(const char *) lost_reason; /* readable reason for it; NULL until it is known */
    const char *keep_problem;          /* why arrays do not outlive the process; NULL: they do */
    int64_t started_us;                /* microseconds since 1970 */
};

#endif
