/* Connections from one address.
 *
 * Past max_connections_per_address, connections are still accepted, up to a reserve: health and
 * metrics are answered, everything else gets 429. Past the reserve they get the 429 at once, before
 * any request, so that one address cannot use up the connections of the others. An IPv6 client
 * usually has a whole network of 2^64 addresses, which counts as one. Unix sockets have no address,
 * and admin listeners no limit. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "compute/base/table.h"
#include "server/http/http_impl.h"

#define PEER_RESERVE 16

struct peer {
    UT_hash_handle hh;
    unsigned char key[9]; /* family, and the part of the address that counts */
    int64_t n;
};

static bool key_of(const struct sockaddr *a, unsigned char key[9])
{
    memset(key, 0, 9);
    if (a && a->sa_family == AF_INET) {
        key[0] = 4;
        memcpy(key + 1, &((const struct sockaddr_in *)a)->sin_addr, 4);
    } else if (a && a->sa_family == AF_INET6) {
        key[0] = 6;
        memcpy(key + 1, &((const struct sockaddr_in6 *)a)->sin6_addr, 8);
    }
    return key[0] != 0;
}

void http_peer_enter(struct http *h, struct conn *c, const struct sockaddr *address)
{
    int64_t most = (int64_t)h->config.max_connections_per_address;
    unsigned char key[9];
    if (!most || c->listener->admin || !key_of(address, key))
        return;
    struct peer *p = NULL;
    HASH_FIND(hh, h->peers, key, sizeof key, p);
    if (!p) {
        p = mem_calloc(1, sizeof *p);
        if (!p)
            return; /* rather exceed the limit than refuse a client */
        memcpy(p->key, key, sizeof key);
        HASH_ADD(hh, h->peers, key, sizeof p->key, p);
        if (!p->hh.tbl) {
            mem_free(p);
            return;
        }
    }
    p->n++;
    c->peer = p;
    c->crowded = p->n > most;
    c->turned_away = p->n > most + PEER_RESERVE;
}

void http_peer_name(const struct request *req, char ret[HTTP_PEER_SIZE])
{
    const struct conn *c = rq_of_const(req)->conn;
    struct sockaddr_storage a = {.ss_family = AF_UNIX};
    socklen_t n = sizeof a;
    if (!c || getpeername(c->fd, (struct sockaddr *)&a, &n) != 0 || a.ss_family == AF_UNIX ||
        getnameinfo((struct sockaddr *)&a, n, ret, HTTP_PEER_SIZE, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(ret, HTTP_PEER_SIZE, "unix");
}

void http_peer_leave(struct http *h, struct conn *c)
{
    struct peer *p = c->peer;
    if (!p || --p->n > 0)
        return;
    HASH_DELETE(hh, h->peers, p);
    mem_free(p);
}

enum err_code http_peer_error(const struct http *h, struct err *e)
{
    return err_set(e, ERR_QUOTA,
                   "too many connections from this address: the limit is %zu "
                   "(max-connections-per-address)",
                   h->config.max_connections_per_address);
}

void http_turn_away(struct conn *c)
{
    struct err e = ERR_INIT;
    char id[33];
    if (c->tls || http_peer_error(c->listener->http, &e) == ERR_OK) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    http_new_id(id);
    http_raw_error(c, id, &e);
}
