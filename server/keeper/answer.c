/* The reply fits into any socket's buffer. */
#include "server/keeper/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compute/base/clock.h"

#define LINGER_S 2.0
#define READS    16 /* of a connection at a time */
#define REST_S   0.1

#define BODY                                                                                       \
    "{\"type\":\"urn:arrayd:problem:draining\",\"title\":\"The daemon is shutting down\","         \
    "\"status\":503,\"code\":\"draining\",\"detail\":\"the daemon has ended and is being started " \
    "again: send the request later\"}"
#define HEAD                                                                                       \
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"               \
    "Retry-After: 5\r\nConnection: close\r\nContent-Length: "

static void say(struct answered *c)
{
    char reply[sizeof HEAD + sizeof BODY + 16];
    const int n = snprintf(reply, sizeof reply, HEAD "%zu\r\n\r\n" BODY, sizeof BODY - 1);
    (void)send(c->fd, reply, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(c->fd, SHUT_WR);
    c->said = true;
}

/* False: it is over. */
static bool hear(struct answered *c)
{
    char bytes[4096];
    for (int i = 0; i < READS; i++) {
        const ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        if (!c->said)
            say(c);
    }
    return true;
}

static void accept_all(struct answers *a, int listener, uint64_t now)
{
    while (a->n < ANSWERS_MOST) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED)
            a->rest_ns = now + (uint64_t)(REST_S * 1e9);
        if (fd < 0)
            return;
        struct answered *c = &a->all[a->n];
        *c = (struct answered){.fd = fd, .until_ns = now + (uint64_t)(LINGER_S * 1e9)};
        if (hear(c))
            a->n++;
        else
            close(fd);
    }
}

int answers_polled(const struct answers *a, const struct held *table, const char *prefix,
                   bool accepts, struct pollfd ret[ANSWERS_POLLED])
{
    int n = 0;
    for (; n < a->n; n++)
        ret[n] = (struct pollfd){.fd = a->all[n].fd, .events = POLLIN};
    for (const struct held *h = table;
         h && accepts && !a->rest_ns && a->n < ANSWERS_MOST && n < ANSWERS_POLLED; h = h->hh.next)
        if (!strncmp(h->name, prefix, strlen(prefix)))
            ret[n++] = (struct pollfd){.fd = h->fd, .events = POLLIN};
    return n;
}

void answers_go_on(struct answers *a, const struct pollfd *p, int n, bool accepts)
{
    const uint64_t now = clock_ns();
    const int had = a->n;
    if (a->rest_ns <= now)
        a->rest_ns = 0;
    for (int i = had; i-- > 0;) { /* the last one takes the place of one that is over */
        struct answered *c = &a->all[i];
        if (c->until_ns > now && (!p[i].revents || hear(c)))
            continue;
        close(c->fd);
        *c = a->all[--a->n];
    }
    for (int i = had; accepts && i < n; i++)
        if (p[i].revents)
            accept_all(a, p[i].fd, now);
}

uint64_t answers_until(const struct answers *a)
{
    uint64_t least = a->rest_ns;
    for (int i = 0; i < a->n; i++)
        if (!least || a->all[i].until_ns < least)
            least = a->all[i].until_ns;
    return least;
}
