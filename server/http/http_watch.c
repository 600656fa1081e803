/* Deadlines and abandoned connections.
 *
 * libmicrohttpd has only an idle timeout, which a slow drip of bytes defeats and which does not run
 * while a connection is suspended. So one thread checks every connection a few times a second, and
 * those with waiting requests more often, since work is done for them: has the header arrived in
 * time, does the body arrive fast enough, does the client read the reply fast enough, is the socket
 * of a suspended upload or download still connected. A request that misses its deadline gets a 408
 * by hand, once this thread has won the step to CUT (http_state.h), and the socket is shut down,
 * which libmicrohttpd then sees as a close.
 *
 * A waiting request waits until its client has disconnected, its time is over, its token is
 * revoked, or the time for open requests is over at the end of the process. libmicrohttpd does not
 * watch a suspended connection, so this thread wakes requests that must end. It holds a request
 * while it checks, so that nothing resumes and changes it meanwhile.
 *
 * Over TCP, a client that has closed its connection and one that has only closed its sending side
 * look alike: a FIN arrived. A waiting client is then taken for disconnected, as by nginx and Go's
 * net/http: the first case is common, and in the second libmicrohttpd closes the connection anyway
 * as soon as it continues, since it reads before it writes. (The second gets its reply if that
 * comes at once.) A stream of events, which libmicrohttpd only writes to, is woken instead: its
 * source sends a comment, which a client that has closed answers with a reset. */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "compute/base/clock.h"
#include "server/http/http_impl.h"

#define TICK_S       0.2
#define WAIT_S       0.02 /* for requests that wait */
#define STUCK_ROUNDS 16

/* Over TLS the connection is only cut: the session belongs to the listener's thread. */
static void timeout_reply(struct conn *c, const char *id, const char *detail)
{
    if (c->tls) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    struct err e = ERR_INIT;
    char own[33];
    if (!id) {
        http_new_id(own);
        id = own;
    }
    err_set(&e, ERR_TIMEOUT, "%s", detail);
    http_raw_error(c, id, &e);
}

/* A half-closed socket is not gone: its client may be waiting for the reply. */
static bool gone(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL));
}

/* The client has closed its side, and everything it sent has been read. libmicrohttpd, on its
 * edge-triggered epoll, often misses this: it forgets the socket after a read that did not fill its
 * buffer, and epoll does not report again the close that came with those bytes. */
static bool closed(struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    int unread = 0;
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLERR | POLLHUP | POLLNVAL)) &&
        ioctl(c->fd, FIONREAD, &unread) == 0 && unread == 0)
        c->n_closed++;
    else
        c->n_closed = 0;
    return c->n_closed > 1; /* a handler may be about to get the last bytes read */
}

/* Bytes ever received on a TCP connection; 0 if unknown. */
static uint64_t received(int fd)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0)
        return 0;
    return info.tcpi_bytes_received;
}

/* Between requests. libmicrohttpd hides the bytes of the next request until its first line is
 * complete, so the kernel's count tells that it has begun. */
static void watch_idle(struct conn *c, const struct http_config *cfg, double now)
{
    if (closed(c)) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    if (!c->used) {
        if (c->turned_away && now - c->opened > cfg->unread_body_s) {
            shutdown(c->fd, SHUT_RDWR);
        } else if (now - c->opened > cfg->header_timeout_s) {
            timeout_reply(c, NULL, "no request arrived in time");
            shutdown(c->fd, SHUT_RDWR);
        }
        return;
    }
    if (now - c->idle_since > cfg->idle_timeout_s && c->partial_since == 0) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    uint64_t bytes = received(c->fd);
    if (!c->idle_bytes) {
        c->idle_bytes = bytes;
    } else if (bytes > c->idle_bytes) {
        if (c->partial_since == 0)
            c->partial_since = now;
        if (now - c->partial_since > cfg->header_timeout_s) {
            timeout_reply(c, NULL, "the request's header did not arrive in time");
            shutdown(c->fd, SHUT_RDWR);
        }
    }
}

static void restart_rate(struct rq *q)
{
    q->pace.n = 0;
    q->pace.next = 0;
}

/* Whether the count has risen by less than min_body_rate over the whole of the last `window`
 * seconds. */
static bool too_slow(struct rq *q, int64_t count, double window, const struct http_config *cfg,
                     double now)
{
    if (now < q->pace.next)
        return false;
    q->pace.next = now + window / RATE_SAMPLES;
    for (int i = RATE_SAMPLES; i > 0; i--)
        q->pace.samples[i] = q->pace.samples[i - 1];
    q->pace.samples[0] = count;
    if (q->pace.n < RATE_SAMPLES) {
        q->pace.n++;
        return false;
    }
    return (double)(count - q->pace.samples[RATE_SAMPLES]) < (double)cfg->min_body_rate * window;
}

/* Why a body counts as too slow, or NULL. */
static const char *sent_slowly(struct rq *q, const struct http_config *cfg, double now)
{
    int64_t idle_ms =
        clock_coarse_ms() - atomic_load_explicit(&q->in.last_byte, memory_order_relaxed);
    if ((double)idle_ms > cfg->body_idle_timeout_s * 1000)
        return "the rest of the body did not arrive in time";
    int64_t received = atomic_load_explicit(&q->in.received, memory_order_relaxed);
    return too_slow(q, received, cfg->body_rate_window_s, cfg, now) ? "the body arrives too slowly"
                                                                    : NULL;
}

/* The body's bytes are not read any more: libmicrohttpd reads what has arrived whenever it is
 * called, unless a chunk's first line fills its memory. */
static bool stuck(const struct conn *c, struct rq *q)
{
    int unread = 0;
    uint64_t rounds = atomic_load_explicit(&c->listener->loop.rounds, memory_order_relaxed);
    if (!q->chunked || ioctl(c->fd, FIONREAD, &unread) != 0 || unread == 0) {
        q->pace.rounds = 0;
        return false;
    }
    int64_t read = (int64_t)received(c->fd);
    read = atomic_load_explicit(&q->in.received, memory_order_relaxed) + (read ? read - unread : 0);
    if (!q->pace.rounds || read != q->pace.read) { /* these may have arrived just now */
        q->pace.rounds = rounds;
        q->pace.read = read;
        return false;
    }
    return rounds - q->pace.rounds >= STUCK_ROUNDS;
}

/* As libmicrohttpd from 1.0 does by itself: a reply, and the end, since where the body ends is
 * unknown. */
static void refuse_chunk(struct conn *c, struct rq *q)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_TOO_LARGE, "the first line of a chunk is too long");
    if (!c->tls)
        http_raw_error(c, q->r.id, &e);
    shutdown(c->fd, SHUT_RDWR);
}

/* Bytes count as read when the client's kernel has acknowledged them. Time runs only while sent
 * bytes are unacknowledged. Unix sockets do not report this. */
static bool read_slowly(const struct conn *c, struct rq *q, const struct http_config *cfg,
                        double now)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    int unread = 0;
    if (ioctl(c->fd, SIOCOUTQ, &unread) != 0 || !unread ||
        getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) {
        restart_rate(q);
        return false;
    }
    return too_slow(q, (int64_t)info.tcpi_bytes_acked, cfg->idle_timeout_s, cfg, now);
}

enum presence { PRESENT, SILENT /* it will send no more */, GONE };

static enum presence presence(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0)
        return PRESENT;
    return p.revents & (POLLERR | POLLHUP | POLLNVAL) ? GONE : SILENT;
}

/* A request that no worker has begun. */
static void watch_queued(const struct conn *c, struct rq *q)
{
    struct http *h = q->http;
    pthread_mutex_lock(&h->work_lock); /* so it stays in the queue */
    if (q->queued && (q->not_begun || q->r.abandon) && presence(c) != PRESENT)
        atomic_store(&q->dropped, true);
    pthread_mutex_unlock(&h->work_lock);
}

static void watch_waiting(const struct conn *c, struct rq *q)
{
    if (!http_hold(q)) {
        watch_queued(c, q);
        return;
    }
    const bool cut = atomic_load(&q->http->leaving);
    const bool alone = presence(c) != PRESENT;
    bool left = q->r.abandon && (cut || alone), late = !left && http_is_late(q);
    bool revoked = !left && http_is_revoked(q);
    if (alone)
        atomic_store(&q->left, true);
    if (left)
        atomic_store(&q->dropped, true);
    if (late)
        atomic_store(&q->limit.late, true);
    http_unhold(q, left || late || revoked);
}

static void watch_due(struct rq *q)
{
    struct http_source *src = q->reply.src;
    if (src && src->due && state_flow_parked(&q->state) && src->due(src))
        http_source_wake(src);
}

static void watch_source(const struct conn *c, struct rq *q)
{
    if (!http_source_lasts(q)) {
        if (q->reply.src && q->reply.src->expired)
            http_source_wake(q->reply.src);
        else
            http_io_drop(q);
        return;
    }
    switch (presence(c)) {
    case PRESENT:
        watch_due(q);
        break;
    case SILENT:
        if (q->reply.src && q->reply.length == SOURCE_OPEN) {
            atomic_store(&q->reply.src->doubted, true);
            http_source_wake(q->reply.src);
        }
        break;
    case GONE:
        http_io_drop(q);
        break;
    }
}

static void watch_request(struct conn *c, struct rq *q, const struct http_config *cfg, double now)
{
    enum place place = state_place(&q->state);
    bool parked = state_flow_parked(&q->state);
    if (place != q->pace.place || q->pace.since == 0) {
        q->pace.place = place;
        q->pace.since = now;
        restart_rate(q);
    }
    if (!place_works(place) && place != PLACE_REPLY && !parked && closed(c)) {
        shutdown(c->fd, SHUT_RDWR); /* the request will never be complete */
        return;
    }
    const char *why = NULL;
    switch (place) {
    case PLACE_HEADER:
        if (now - (c->first ? c->opened : (double)q->begun_ns * 1e-9) > cfg->header_timeout_s)
            why = "the request's header did not arrive in time";
        break;
    case PLACE_BODY:
        if (parked) { /* the client waits for us */
            restart_rate(q);
            atomic_store_explicit(&q->in.last_byte, clock_coarse_ms(), memory_order_relaxed);
            if (gone(c->fd) || !q->http->calls.lasts(&q->r))
                http_io_drop(q);
        } else if (stuck(c, q)) {
            if (http_loop_evict(c)) {
                if (state_move(&q->state, PLACE_BODY, PLACE_CUT))
                    refuse_chunk(c, q);
                else
                    http_loop_forget(c); /* it goes on after all */
            }
        } else {
            why = sent_slowly(q, cfg, now);
        }
        break;
    case PLACE_DRAIN:
        if (now - q->pace.since > cfg->unread_body_s &&
            state_move(&q->state, PLACE_DRAIN, PLACE_CUT)) {
            if (c->tls)
                shutdown(c->fd, SHUT_RDWR);
            else
                http_raw_reply(q);
        }
        break;
    case PLACE_CHECK:
    case PLACE_STREAM:
    case PLACE_SINK_END:
    case PLACE_HANDLER:
        watch_waiting(c, q);
        break;
    case PLACE_REPLY:
        if (parked) {
            restart_rate(q);
            watch_source(c, q);
        } else if ((q->reply.src && !http_source_lasts(q)) || read_slowly(c, q, cfg, now)) {
            http_reset(c);
        }
        break;
    case PLACE_CUT:
        if (now - q->pace.since > cfg->unread_body_s) {
            shutdown(c->fd, SHUT_RDWR);
            (void)http_loop_evict(c);
        }
        break;
    }
    if (why && state_move(&q->state, place, PLACE_CUT))
        timeout_reply(c, place == PLACE_HEADER ? NULL : q->r.id, why);
}

static void look_at_all(struct http *h)
{
    double now = clock_s();
    for (struct conn *c = h->conns; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        if (c->rq)
            watch_request(c, c->rq, &h->config, now);
        else
            watch_idle(c, &h->config, now);
        pthread_mutex_unlock(&c->lock);
    }
}

static void look_at_waiting(struct http *h)
{
    for (struct conn *c = atomic_load(&h->suspended) ? h->conns : NULL; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        if (c->rq && place_works(state_place(&c->rq->state)))
            watch_waiting(c, c->rq);
        else if (c->rq && state_place(&c->rq->state) == PLACE_REPLY)
            watch_due(c->rq);
        pthread_mutex_unlock(&c->lock);
    }
}

/* Seconds until the next look; a quiet watch skips the looks at waiting requests. */
static double rest(struct http *h, bool quiet)
{
    atomic_store(&h->watch_rests, quiet);
    if (quiet && atomic_load(&h->suspended)) /* since it was last read */
        atomic_store(&h->watch_rests, quiet = false);
    double left = h->next_look - clock_s();
    return quiet && left > WAIT_S ? left : WAIT_S;
}

double http_watch_step(void *user)
{
    struct http *h = user;
    if (!h->conns)
        return WORKER_RESTS;
    if (clock_s() >= h->next_look) {
        look_at_all(h);
        h->next_look = clock_s() + TICK_S;
    } else {
        look_at_waiting(h);
    }
    if (atomic_load(&h->suspended))
        h->waited = clock_s();
    return rest(h, clock_s() - h->waited > TICK_S);
}
