/* What export_socket.c, the listeners and the thread, and export_conn.c, its connections, share.
 * All of it is the thread's, once that has started. */
#ifndef ARRAYD_SERVER_EXPORT_SOCKET_INT_H
#define ARRAYD_SERVER_EXPORT_SOCKET_INT_H

#include <poll.h>
#include <pthread.h>

#include "server/exports/export.h"
#include "server/exports/export_socket.h"
#include "server/keeper/link.h"

#define LINE_MAX_BYTES 64

enum conn_state { SILENT, HELD, LINGERING };

struct conn {
    int fd;
    enum conn_state state;
    double until; /* SILENT, LINGERING: monotonic seconds */
    char line[LINE_MAX_BYTES];
    size_t n;
    struct offer *offer;
    bool cuda_writer; /* holds a GPU's memory for writing */
    int process;      /* the client's pidfd, or -1 */
    bool told;        /* the client was sent ERR_DRAINING */
    bool held;        /* the keeper has it */
};

struct listening {
    int fd;
    char *beside, *path, *absolute;
};

struct export_socket {
    struct export_socket_config config;
    struct exports *exports;
    struct listening *listeners;
    size_t n_listeners;
    int wake; /* eventfd */
    pthread_t thread;
    bool started;
    _Atomic bool draining, stopping;
    bool leaving; /* what is open stays so, for another process */
    /* private to the thread */
    struct conn *conns;
    struct pollfd *polled;
    size_t n_conns, cap_conns;
    double accept_after;
    bool starved; /* the last accept failed, which was logged */
};

/* The keeper gets the descriptor, for the next process. */
void export_conn_keep(struct export_socket *s, const char *name, int fd);
/* What the connection with an export under that lease is called there. */
void export_conn_name(const char *lease, char ret[LINK_NAME + 1]);
/* For one connection more; false: no memory. */
bool export_conn_reserve(struct export_socket *s);
/* Up to so many that another socket is not kept waiting. */
void export_conn_accept(struct export_socket *s, int listener);
/* It has an export from now on; adopted: the keeper has it already. */
void export_conn_hold(struct export_socket *s, struct conn *c, bool adopted);
/* Of a SILENT one that can be read; of a HELD one. */
void export_conn_listen(struct export_socket *s, struct conn *c);
void export_conn_hear(struct export_socket *s, struct conn *c);
/* One line with an error. */
void export_conn_refuse(int fd, enum err_code code, const char *why);
/* The last one takes its place. */
void export_conn_close(struct export_socket *s, struct conn *c);

#endif
