/* Sending a descriptor beside a message's bytes (SCM_RIGHTS).
 *
 * Called by link.c and notify.c, and by the export sockets. Pure; thread-safe. */
#ifndef ARRAYD_KEEPER_RIGHTS_H
#define ARRAYD_KEEPER_RIGHTS_H

#include <sys/socket.h>

/* As sendmsg, but without SIGPIPE and not interrupted; `fd` stays the caller's, −1: none is sent.
 * m's control members are overwritten. */
ssize_t rights_send(int socket, struct msghdr *m, int fd, int flags);

#endif
