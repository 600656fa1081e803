/* The wire between the keeper and the daemon that it started: a pair of SOCK_SEQPACKET sockets.
 *
 * Each message is a kind and a name, some with a descriptor. What was sent arrives even if its
 * sender dies at once; a descriptor may fail to arrive, where the receiver has no number left for
 * it: so the keeper answers each that it is sent. Both ends are of one program on one machine.
 *
 * No state. */
#ifndef ARRAYD_KEEPER_LINK_H
#define ARRAYD_KEEPER_LINK_H

#include <stdbool.h>

enum link_kind {
    /* to the keeper */
    LINK_PUT = 1, /* keep this descriptor under this name, in place of one of that name */
    LINK_ADD,     /* the same for one of many: the last descriptors are not for these */
    LINK_DROP,    /* let go of what has this name */
    LINK_READY,   /* requests are answered; the name: what could not be taken over, if anything */
    /* to the daemon, at its start */
    LINK_HAVE, /* what was kept */
    LINK_END,  /* that was all */
    /* to the daemon, for each LINK_PUT and LINK_ADD in turn */
    LINK_KEPT,
    LINK_REFUSED /* there is no descriptor, or no memory, for it: what had that name is kept */
};

#define LINK_ENV  "ARRAYD_KEEPER" /* the daemon's end, as a number */
#define LINK_NAME 200             /* bytes of a name, at most */

struct link_message {
    enum link_kind kind;
    char name[LINK_NAME + 1];
    int fd; /* −1: none; else the receiver's, close-on-exec */
};

/* Visible ASCII but ':' and '#', up to LINK_NAME bytes: what a service manager takes for a name,
 * too. */
bool link_name_ok(const char *name);
/* fd −1: none. False, with errno: EAGAIN (only without `wait`) or the other end is gone. */
bool link_send(int socket, enum link_kind kind, const char *name, int fd, bool wait);
/* 1: a message; 0: the other end is gone, and all that it sent has been read; −1 with errno: EAGAIN
 * (only without `wait`), or EBADMSG: a message that has come without its descriptor, or is not
 * understood. */
int link_receive(int socket, struct link_message *ret, bool wait);

#endif
