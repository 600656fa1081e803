/* PATH.fd: where clients present an export's token and get the memory's descriptor.
 *
 * There is one beside each Unix socket for requests, with the same permissions. A client sends
 * "x-…\n" and gets one line of JSON, with exactly one descriptor (SCM_RIGHTS) if the token opens an
 * export; otherwise a problem (problem.h) and the end of the connection. The export lives as long
 * as the connection: when the client has ended its sending side, the export is over before the
 * daemon closes; when the client disappears, the export is over, too.
 *
 * Under a keeper the sockets and the connections that hold an export outlive the process: the next
 * one continues with them.
 *
 * main.c opens it before HTTP and stops it after. One thread of its own serves all connections. */
#ifndef ARRAYD_SERVER_EXPORT_SOCKET_H
#define ARRAYD_SERVER_EXPORT_SOCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

struct array;
struct export_socket;
struct exports;
struct hold;
struct lease_image;

struct export_socket_config {
    const char *const *listen; /* as http_config's; other kinds are skipped */
    size_t n_listen;
    int mode;               /* permissions */
    double timeout;         /* seconds for a connection to send its token */
    size_t max_connections; /* ≥ 1 */
    struct hold *hold;      /* NULL: nothing outlives the process */
    bool exports_stay;      /* exports do, too, and not the sockets alone */
};
/* Binds. *ret is NULL if there is no Unix socket. Errors as unix_listen. */
enum err_code export_socket_open(const struct export_socket_config *config,
                                 struct export_socket **ret, struct err *e) must_check;
/* Before it is started: continues the connection that held the export with that lease in the
 * previous process (exports_adopt). False: no such connection is left, or it cannot continue.
 */
bool export_socket_adopt(struct export_socket *s, struct exports *exports,
                         const struct lease_image *lease, struct array *a);
/* Begins to serve; exports whose clients have gone in the meantime are over when it returns.
 * ERR_INTERNAL: no thread. */
enum err_code export_socket_start(struct export_socket *s, struct exports *exports,
                                  struct err *e) must_check;
/* exports_config.changed: wakes the thread; from any thread. */
void export_socket_wake(void *s);
/* The absolute path of the socket beside that Unix socket. */
const char *export_socket_path(const struct export_socket *s, const char *beside);

/* Ends exports: at once, except those for writing whose clients are connected. These get a problem
 * and may continue until export_socket_stop. */
void export_socket_drain(struct export_socket *s);
/* Waits for them until the monotonic time `until_ns` or *hurry, then ends all of them, the thread
 * and the socket. Also if it was not started. */
void export_socket_stop(struct export_socket *s, uint64_t until_ns, const _Atomic bool *hurry);
/* Ends the thread alone: exports, connections and sockets are left to another process. */
void export_socket_leave(struct export_socket *s);
/* Also when not started; before exports_free. NULL allowed. */
void export_socket_free(struct export_socket *s);

#endif
