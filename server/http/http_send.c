/* Sends replies: hands the handler's reply to libmicrohttpd, and reads a source as fast as the
 * client takes it.
 *
 * A reply is kept in the request until libmicrohttpd accepts it: inside its callback, with the body
 * of the request read. */
#include <microhttpd.h>

#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "compute/base/mem.h"
#include "server/http/http_impl.h"

#define BLOCK_SHARED                                                                               \
    (128u << 10) /* of a download while others are served: protects their tail latency */
#define SHARED_NS 100000000ull /* how long after another connection's request that applies */

/* Whether another client has sent a request lately, or is being served. */
static bool others_active(const struct rq *q)
{
    struct http *h = q->http;
    if (atomic_load_explicit(&h->in_flight, memory_order_relaxed) > 1)
        return true;
    return atomic_load_explicit(&h->last_conn, memory_order_relaxed) != (uintptr_t)q->conn &&
           clock_ns() - atomic_load_explicit(&h->last_begun_ns, memory_order_relaxed) < SHARED_NS;
}

int64_t http_spin(const struct request *req)
{
    const struct rq *q = rq_of_const(req);
    return q->http->config.spin_us && !others_active(q) ? q->http->config.spin_us : 0;
}

bool http_source_lasts(struct rq *q)
{
    return q->http->calls.lasts(&q->r) &&
           (!q->reply.src->lasts || q->reply.src->lasts(q->reply.src));
}

static int64_t pull(struct rq *q, uint64_t pos, char *buf, size_t max)
{
    if (max > BLOCK_SHARED && others_active(q))
        max = BLOCK_SHARED;
    for (;;) {
        int64_t k = q->reply.src->pull(q->reply.src, (int64_t)pos, buf, max);
        if (k > 0) {
            atomic_fetch_add_explicit(&q->reply.sent, k, memory_order_relaxed);
            return k;
        }
        if (k < 0 || atomic_load(&q->http->cutting))
            return k == SOURCE_END ? k : -1;
        if (http_io_park(q))
            return 0;
    }
}

int64_t http_source_unread(const struct http_source *src)
{
    const struct rq *q = rq_of_const(src->req);
    int unread = 0;
    return q->conn && ioctl(q->conn->fd, SIOCOUTQ, &unread) == 0 ? unread : 0;
}

/* Ends the connection in the middle of a reply. Reporting an error is not enough: libmicrohttpd
 * then ends only the request. It marks the connection as closed but acts on that only at the
 * socket's next event (after a suspension the socket is in no epoll set) or when no older
 * connection is idle. After a failed write it closes the connection at once. */
static int64_t hang_up(struct rq *q, char *buf)
{
    if (!q->conn)
        return (int64_t)MHD_CONTENT_READER_END_WITH_ERROR;
    shutdown(q->conn->fd, SHUT_RDWR);
    *buf = 0; /* never arrives */
    return 1;
}

static int64_t pull_source(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct rq *q = cls;
    struct http *h = q->http;
    struct http_source *src = q->reply.src;
    bool ok, was = http_enter(q, &ok);
    bool lasts = http_source_lasts(q), says_so = !lasts && src->expired && src->expired(src);
    int64_t k = ok && (lasts || says_so) ? pull(q, pos, buf, max) : -1;
    if (k > 0 && lasts)
        lasts = http_source_lasts(q);
    lasts |= says_so;
    if (!lasts) /* expired, perhaps meanwhile: none of it may be sent */
        k = -1;
    if (!lasts && q->conn)
        http_reset(q->conn);
    if (k == SOURCE_END)
        k = (int64_t)MHD_CONTENT_READER_END_OF_STREAM;
    else if (k < 0)
        k = hang_up(q, buf);
    http_leave(h, was);
    return k;
}

static bool bodiless(int status)
{
    return status < 200 || status == 204 || status == 304;
}

bool http_queue(struct rq *q)
{
    struct MHD_Response *m;
    if (q->reply.src && q->reply.length < 0) { /* of unknown length */
        m = MHD_create_response_from_callback(
            MHD_SIZE_UNKNOWN, http_source_block(q, q->reply.length), pull_source, q, NULL);
        if (m && q->head) /* for HEAD libmicrohttpd would send the last chunk */
            MHD_set_response_options(m, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    } else if (q->reply.src && q->reply.length > 0) {
        m = MHD_create_response_from_callback(
            (uint64_t)q->reply.length, http_source_block(q, q->reply.length), pull_source, q, NULL);
    } else if (q->reply.body.len && !bodiless(q->reply.status)) {
        atomic_store_explicit(&q->reply.sent, q->head ? 0 : (int64_t)q->reply.body.len,
                              memory_order_relaxed);
        m = MHD_create_response_from_buffer_with_free_callback(q->reply.body.len,
                                                               q->reply.body.data, mem_free);
        if (m)
            q->reply.body.data = NULL; /* stays counted until the request ends */
    } else {
        m = MHD_create_response_from_buffer_with_free_callback(0, (void *)"", NULL);
    }
    if (!m)
        return false;
    char timing[200];
    http_server_timing(q, timing, sizeof timing);
    bool ok = MHD_add_response_header(m, "X-Request-Id", q->r.id) &&
              MHD_add_response_header(m, "Server-Timing", timing);
    if (ok && q->reply.type && !bodiless(q->reply.status))
        ok = MHD_add_response_header(m, "Content-Type", q->reply.type);
    if (ok && q->limit.known && q->limit.preferred_s >= 0 &&
        (q->r.late || atomic_load(&q->limit.late))) {
        snprintf(timing, sizeof timing, "wait=%lld", (long long)q->limit.preferred_s);
        ok = MHD_add_response_header(m, "Preference-Applied", timing);
    }
    for (const struct out_header *h = q->reply.headers; ok && h; h = h->next)
        ok = MHD_add_response_header(m, h->name, h->value);
    if (ok && (q->must_close || atomic_load_explicit(&q->http->stopping, memory_order_relaxed)))
        ok = MHD_add_response_header(m, "Connection", "close");
    state_go(&q->state, PLACE_REPLY);
    ok = ok && MHD_queue_response(q->mhd, (unsigned)q->reply.status, m);
    MHD_destroy_response(m);
    rq_lighten(q);
    return ok;
}
