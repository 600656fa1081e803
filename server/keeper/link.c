/* A packet is the kind in a byte and the name behind it. */
#include "server/keeper/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/keeper/rights.h"

union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool link_name_ok(const char *name)
{
    size_t n = 0;
    for (; name[n]; n++)
        if (name[n] <= ' ' || name[n] >= 0x7f || name[n] == ':' || name[n] == '#')
            return false;
    return n > 0 && n <= LINK_NAME;
}

bool link_send(int socket, enum link_kind kind, const char *name, int fd, bool wait)
{
    char byte = (char)kind;
    struct iovec parts[] = {{&byte, 1}, {(char *)name, strlen(name)}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    return rights_send(socket, &m, fd, wait ? 0 : MSG_DONTWAIT) >= 0;
}

static int descriptor_of(struct msghdr *m)
{
    int fd = -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int link_receive(int socket, struct link_message *ret, bool wait)
{
    char byte;
    struct iovec parts[] = {{&byte, 1}, {ret->name, LINK_NAME}};
    union control control;
    struct msghdr m = {.msg_iov = parts,
                       .msg_iovlen = 2,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n;
    do
        n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == ECONNRESET ? 0 : -1; /* it died with messages unread */
    if (n == 0)
        return 0;
    ret->name[n - 1] = '\0';
    ret->kind = (enum link_kind)byte;
    ret->fd = descriptor_of(&m);
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
        return 1;
    if (ret->fd >= 0)
        close(ret->fd);
    ret->fd = -1;
    errno = EBADMSG;
    return -1;
}
