/* One descriptor a message: no more is ever sent. */
#include "server/keeper/rights.h"

#include <errno.h>
#include <string.h>

ssize_t rights_send(int socket, struct msghdr *m, int fd, int flags)
{
    union {
        struct cmsghdr header; /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    ssize_t sent;
    m->msg_control = fd >= 0 ? &control : NULL;
    m->msg_controllen = fd >= 0 ? sizeof control : 0;
    if (fd >= 0) {
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    do
        sent = sendmsg(socket, m, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    m->msg_control = NULL;
    return sent;
}
