/* Listening Unix sockets: the path, its permissions, and removal of a dead daemon's socket.
 *
 * Called at the start, by http_listen.c, export_socket.c and doctor.c, and at the end by main.c;
 * not thread-safe, since the umask belongs to the whole process. */
#ifndef ARRAYD_SERVER_UNIX_SOCKET_H
#define ARRAYD_SERVER_UNIX_SOCKET_H

#include "compute/base/err.h"

/* A non-blocking stream socket that listens at `path` with the permissions `mode`; the caller
 * closes it and unlinks the path. ERR_BAD_FIELD: too long, not a socket, another daemon listens
 * there, not allowed; ERR_INTERNAL. On failure nothing is left behind. */
enum err_code unix_listen(const char *path, int mode, int *ret_fd, struct err *e) must_check;

/* Removes a folder, with the sockets in it, unless there is anything else in it. */
void unix_remove_folder(const char *path);

/* A descriptor of the process (pidfd) at the other end of a connection; −1: it is not to be had.
 * Any thread. */
int unix_peer(int fd);

#endif
