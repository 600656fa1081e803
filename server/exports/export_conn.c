/* The connections of an export socket, from the token's line to their end. The states are told in
 * export_socket.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "protocol/wire/problem.h"
#include "server/exports/export_socket_int.h"
#include "server/http/unix_socket.h"
#include "server/keeper/hold.h"
#include "server/keeper/rights.h"

#define LINGER_S       5.0
#define ACCEPT_PAUSE_S 0.1 /* when out of descriptors */

void export_conn_keep(struct export_socket *s, const char *name, int fd)
{
    struct err e = ERR_INIT;
    if (!s->config.hold || hold_add(s->config.hold, name, fd, &e) == ERR_OK)
        return;
    log_event(LOG_WARN, "an export socket or connection will not outlive this process", "reason",
              e.message, NULL);
}

/* Names are no secrets, but the lease's token is one. */
void export_conn_name(const char *lease, char ret[LINK_NAME + 1])
{
    char digest[ID_DIGEST];
    id_digest(lease, digest);
    snprintf(ret, LINK_NAME + 1, "export.%s", digest);
}

/* The message is short and the first on its socket: it fits, or the client does not read. */
static bool send_line(int fd, struct strb *line, int descriptor)
{
    strb_addc(line, '\n');
    struct iovec iov = {line->data, line->len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    return !line->failed && rights_send(fd, &m, descriptor, MSG_DONTWAIT) == (ssize_t)line->len;
}

void export_conn_refuse(int fd, enum err_code code, const char *why)
{
    _cleanup_strb_ struct strb line = {0};
    struct err e = ERR_INIT;
    err_set(&e, code, "%s", why);
    problem_write(&e, &line);
    (void)send_line(fd, &line, -1);
}

void export_conn_close(struct export_socket *s, struct conn *c)
{
    char name[LINK_NAME + 1];
    if (c->process >= 0)
        close(c->process);
    if (c->held) {
        export_conn_name(offer_lease(c->offer), name);
        hold_drop(s->config.hold, name);
    }
    offer_close(c->offer);
    if (c->fd >= 0) { /* last: a client that sees the end finds nothing left */
        shutdown(c->fd, SHUT_RDWR);
        close(c->fd);
    }
    *c = s->conns[--s->n_conns];
}

void export_conn_hold(struct export_socket *s, struct conn *c, bool adopted)
{
    char name[LINK_NAME + 1];
    c->state = HELD;
    if (c->cuda_writer)
        c->process = unix_peer(c->fd);
    c->held = s->config.hold && s->config.exports_stay;
    if (!c->held || adopted)
        return;
    export_conn_name(offer_lease(c->offer), name);
    export_conn_keep(s, name, c->fd);
}

/* The token opens an export, or the connection ends. */
static void present(struct export_socket *s, struct conn *c)
{
    struct exported memory;
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0)
        c->offer = exports_take(s->exports, c->line, peer.uid, &memory);
    if (!c->offer) {
        export_conn_refuse(c->fd, ERR_NOT_FOUND, "there is no export with this token");
        export_conn_close(s, c);
        return;
    }
    _cleanup_strb_ struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    json_open_object(&w);
    json_put_member_string(&w, "kind", memory.cuda ? "cuda" : "memfd");
    json_put_member_i64(&w, "size", memory.size);
    json_close_object(&w);
    c->cuda_writer = memory.cuda && offer_writes(c->offer);
    export_conn_hold(s, c, false);
    bool sent = send_line(c->fd, &line, memory.fd);
    close(memory.fd);
    if (!sent) {
        offer_end(c->offer, OFFER_LOST);
        export_conn_close(s, c);
    }
}

/* Reads what has arrived of the token's line. */
void export_conn_listen(struct export_socket *s, struct conn *c)
{
    ssize_t got = recv(c->fd, c->line + c->n, sizeof c->line - c->n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        export_conn_close(s, c);
        return;
    }
    c->n += (size_t)got;
    char *end = memchr(c->line, '\n', c->n);
    if (end && end + 1 == c->line + c->n && !memchr(c->line, '\0', c->n)) {
        *end = '\0';
        present(s, c);
    } else if (end || c->n == sizeof c->line) {
        export_conn_refuse(c->fd, ERR_BAD_REQUEST, "expected a single line with an export's token");
        export_conn_close(s, c);
    }
}

/* Whether both ends of the connection are closed. */
static bool is_gone(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

void export_conn_hear(struct export_socket *s, struct conn *c)
{
    char byte;
    ssize_t got = recv(c->fd, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got == 0 && !is_gone(c->fd)) {
        offer_end(c->offer, OFFER_RELEASED);
        export_conn_close(s, c);
    } else if (c->cuda_writer) {
        c->state = LINGERING;
        c->until = clock_s() + LINGER_S;
        close(c->fd);
        c->fd = -1;
    } else {
        offer_end(c->offer, OFFER_LOST);
        export_conn_close(s, c);
    }
}

/* For one connection more; false: no memory. */
bool export_conn_reserve(struct export_socket *s)
{
    if (s->n_conns < s->cap_conns)
        return true;
    size_t cap = s->cap_conns ? 2 * s->cap_conns : 16;
    struct conn *conns = mem_reallocarray(s->conns, cap, sizeof *conns);
    s->conns = conns ? conns : s->conns;
    struct pollfd *polled =
        conns ? mem_reallocarray(s->polled, cap + s->n_listeners + 1, sizeof *polled) : NULL;
    s->polled = polled ? polled : s->polled;
    s->cap_conns = polled ? cap : s->cap_conns;
    return polled;
}

static void take_conn(struct export_socket *s, int fd)
{
    size_t oldest = SIZE_MAX;
    if (s->n_conns >= s->config.max_connections) {
        for (size_t i = 0; i < s->n_conns; i++)
            if (s->conns[i].state == SILENT &&
                (oldest == SIZE_MAX || s->conns[i].until < s->conns[oldest].until))
                oldest = i;
        if (oldest != SIZE_MAX)
            export_conn_close(s, &s->conns[oldest]);
    }
    if (s->n_conns >= s->config.max_connections || !export_conn_reserve(s)) {
        export_conn_refuse(fd, ERR_OVERLOADED, "too many connections");
        close(fd);
        return;
    }
    struct conn *c = &s->conns[s->n_conns++];
    *c = (struct conn){.fd = fd, .until = clock_s() + s->config.timeout, .process = -1};
    export_conn_listen(s, c); /* usually the token has arrived already */
}

void export_conn_accept(struct export_socket *s, int listener)
{
    for (int i = 0; i < 64; i++) { /* then let the other sockets be served */
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            s->starved = false;
            take_conn(s, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            if (!s->starved)
                log_event(LOG_WARN, "cannot accept a connection on an export socket", "reason",
                          strerror(errno), NULL);
            s->starved = true;
            s->accept_after = clock_s() + ACCEPT_PAUSE_S;
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}
