/* PATH.fd: where clients present an export's token and get the memory's descriptor.
 *
 * One beside each Unix socket that requests come over, with the same permissions. A client sends
 * "x-…\n" and gets one line of JSON, with exactly one descriptor (SCM_RIGHTS) where the token opens
 * an export, else a problem (problem.h) and the end of the connection. The export then lives as
 * long as the connection: when the client has ended its sending side it is over before the daemon
 * closes; when the client has gone altogether it is over, too.
 *
 * main.c opens it before HTTP and stops it after. One thread of its own serves all connections. */
#ifndef ARRAYD_SERVER_EXPORT_SOCKET_H
#define ARRAYD_SERVER_EXPORT_SOCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

struct export_socket;
struct exports;

struct export_socket_config {
    const char *const *listen; /* as http_config's: those of other kinds are passed over */
    size_t n_listen;
    int mode;               /* permissions */
    double timeout;         /* seconds for a connection to send its token */
    size_t max_connections; /* ≥ 1 */
};
/* Binds. *ret is NULL where there is no Unix socket. Errors as unix_listen. */
enum err_code export_socket_open(const struct export_socket_config *config,
                                 struct export_socket **ret, struct err *e) must_check;
/* Begins to serve. ERR_INTERNAL: no thread. */
enum err_code export_socket_start(struct export_socket *s, struct exports *exports,
                                  struct err *e) must_check;
/* There is something to look at; any thread. */
void export_socket_wake(void *s);
/* The absolute path of the one beside a Unix socket's path. */
const char *export_socket_path(const struct export_socket *s, const char *beside);

/* Ends exports: at once, but for those for writing whose clients are there. These are sent a
 * problem, and may go on until export_socket_stop. */
void export_socket_drain(struct export_socket *s);
/* Waits for them, until the monotonic time `until_ns` or *hurry, then ends all, the thread and the
 * socket. Also where it was not started. */
void export_socket_stop(struct export_socket *s, uint64_t until_ns, const _Atomic bool *hurry);
void export_socket_free(struct export_socket *s); /* also when not started; NULL allowed */

#endif
