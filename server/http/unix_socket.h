/* Listening Unix sockets: the path, its permissions, and what a daemon that is no more left there.
 *
 * Called at the start, by http_listen.c and export_socket.c; not thread-safe, for the umask is the
 * whole process's. */
#ifndef ARRAYD_SERVER_UNIX_SOCKET_H
#define ARRAYD_SERVER_UNIX_SOCKET_H

#include "compute/base/err.h"

/* A stream socket that listens at `path` with the permissions `mode`, not blocking; the caller's to
 * close, and the path his to unlink. ERR_BAD_FIELD: too long, not a socket's, somebody listens
 * there, not allowed; ERR_INTERNAL. On failure nothing is left behind. */
enum err_code unix_listen(const char *path, int mode, int *ret_fd, struct err *e) must_check;

#endif
