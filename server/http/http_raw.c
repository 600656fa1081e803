/* Replies by hand: written to the socket where libmicrohttpd accepts none: before there is a
 * request, in the middle of a body, or past a deadline. */
#include <microhttpd.h>

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "protocol/wire/problem.h"
#include "server/http/http_impl.h"

static size_t put_ms(char *buf, size_t n, size_t at, const char *name, double ms)
{
    if (ms < 0)
        ms = 0;
    uint64_t us = ms > 1e12 ? (uint64_t)1e15 : (uint64_t)(ms * 1000 + 0.5);
    char digits[24];
    size_t d = sizeof digits;
    for (int i = 0; i < 3; i++, us /= 10)
        digits[--d] = (char)('0' + us % 10);
    digits[--d] = '.';
    do {
        digits[--d] = (char)('0' + us % 10);
        us /= 10;
    } while (us);
    size_t name_len = strlen(name), len = sizeof digits - d;
    if (at + name_len + len + 8 > n)
        return at;
    if (at) {
        memcpy(buf + at, ", ", 2);
        at += 2;
    }
    memcpy(buf + at, name, name_len);
    memcpy(buf + at + name_len, ";dur=", 5);
    memcpy(buf + at + name_len + 5, digits + d, len);
    at += name_len + 5 + len;
    buf[at] = '\0';
    return at;
}

void http_server_timing(const struct rq *q, char *buf, size_t n)
{
    const struct request *r = &q->r;
    size_t at = put_ms(buf, n, 0, "parse", r->t_parse);
    at = put_ms(buf, n, at, "plan", r->t_plan);
    at = put_ms(buf, n, at, "compile", r->t_compile);
    if (r->t_device >= 0)
        at = put_ms(buf, n, at, q->http->config.device_name, r->t_device);
    if (r->t_device >= 0 && r->tier && at + sizeof ";desc=interpreted" < n)
        at += (size_t)snprintf(buf + at, n - at, ";desc=%s", r->tier);
    if (r->t_copy >= 0)
        at = put_ms(buf, n, at, "copy", r->t_copy);
    put_ms(buf, n, at, "total", (double)(clock_ns() - q->begun_ns) * 1e-6);
}

static void send_all(struct conn *c, const char *p, size_t n)
{
    if (c->tls) {
        http_tls_send(c, p, n);
        return;
    }
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break; /* a client that does not read its last reply has none */
        p += k;
        n -= (size_t)k;
    }
}

static void raw_head(struct strb *out, int status, const char *id, const char *timing)
{
    char date[64];
    time_t now = clock_date();
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    strb_addf(out,
              "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\nX-Request-Id: %s\r\n"
              "Server-Timing: %s\r\n",
              status, MHD_get_reason_phrase_for((unsigned)status), date, id, timing);
}

void http_raw_reply(struct rq *q)
{
    _cleanup_strb_ struct strb out = {0};
    char timing[200];
    http_server_timing(q, timing, sizeof timing);
    raw_head(&out, q->reply.status, q->r.id, timing);
    for (const struct out_header *h = q->reply.headers; h; h = h->next)
        strb_addf(&out, "%s: %s\r\n", h->name, h->value);
    if (q->reply.type && q->reply.body.len)
        strb_addf(&out, "Content-Type: %s\r\n", q->reply.type);
    strb_addf(&out, "Content-Length: %zu\r\n\r\n", q->reply.body.len);
    if (!q->head)
        strb_addn(&out, q->reply.body.data ? q->reply.body.data : "", q->reply.body.len);
    if (!out.failed)
        send_all(q->conn, out.data, out.len);
    shutdown(q->conn->fd, SHUT_WR);
}

void http_raw_error(struct conn *c, const char *id, const struct err *e)
{
    _cleanup_strb_ struct strb out = {0}, body = {0};
    problem_write(e, &body);
    raw_head(&out, err_status(e->code), id, HTTP_NO_TIMING);
    strb_addf(&out, "Content-Type: application/problem+json\r\nContent-Length: %zu\r\n\r\n",
              body.len);
    strb_addn(&out, body.data ? body.data : "", body.len);
    if (!out.failed && !body.failed)
        send_all(c, out.data, out.len);
    shutdown(c->fd, SHUT_WR);
}

bool http_unanswered(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    bool ended = poll(&p, 1, 0) > 0 && (p.revents & POLLRDHUP);
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 &&
           info.tcpi_bytes_received >
               (ended ? 1 : 0) && /* the end of the stream counts as a byte */
           info.tcpi_bytes_sent + info.tcpi_notsent_bytes == 0;
}

void http_reset(const struct conn *c)
{
    struct linger none = {.l_onoff = 1};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shutdown(c->fd, SHUT_RDWR);
}
