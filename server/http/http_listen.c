/* Sockets to listen on, and the host names that a browser may use for them.
 *
 * The sockets are bound here and handed to libmicrohttpd, so port 0, Unix sockets and their
 * permissions, and the refusal of addresses that other machines could reach are all in one
 * place. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"
#include "server/http/unix_socket.h"

#define BACKLOG      1024
#define BIND_TRIES   100
#define BIND_WAIT_US 10000

/* --- sockets that outlive the process --- */

static const char *text_of(const struct http *h, size_t i)
{
    const struct http_config *c = &h->config;
    return i < c->n_listen ? c->listen[i] : c->admin_listen[i - c->n_listen];
}

static bool is_admin(const struct http *h, size_t i)
{
    return i >= h->config.n_listen;
}

static bool is_tls(const struct http *h, size_t i)
{
    return !is_admin(h, i) && h->config.tls_cert && strncmp(text_of(h, i), "unix:", 5) != 0;
}

/* "listen.0.127.0.0.1@7411", the first of those with this text: so it does not matter what else the
 * next process listens on. False: the name would be too long, and the socket is not kept. */
static bool socket_name(const struct http *h, size_t i, char ret[HTTP_SOCKET_NAME])
{
    const char *text = text_of(h, i);
    size_t same = 0;
    for (size_t j = 0; j < i; j++)
        same += !strcmp(text_of(h, j), text);
    size_t n = (size_t)snprintf(ret, HTTP_SOCKET_NAME, "%s%zu.%s",
                                is_tls(h, i) ? HTTP_SOCKETS_TLS : HTTP_SOCKETS_PLAIN, same, text);
    for (unsigned char *p = (unsigned char *)ret; *p; p++) /* what a name may not have */
        *p = *p <= ' ' || *p >= 0x7f || *p == ':' || *p == '#' ? '@' : *p;
    return n < HTTP_SOCKET_NAME;
}

/* The sockets that listened there in the process before. Others are in the way of what is to be
 * bound now. */
static void take_left(struct http *h)
{
    const struct http_keep *k = &h->config.keep;
    char name[HTTP_SOCKET_NAME];
    for (size_t i = 0; i < h->n_listeners; i++) {
        struct listener *l = &h->listeners[i];
        l->fd = k->take && socket_name(h, i, name) ? k->take(k->user, name) : -1;
        l->left = l->fd >= 0;
    }
    for (const char *next = k->next ? k->next(k->user) : NULL; next; next = k->next(k->user)) {
        snprintf(name, sizeof name, "%s", next);
        close(k->take(k->user, next));
        k->drop(k->user, name);
    }
}

static void socket_keep(const struct http *h, size_t i)
{
    const struct http_keep *k = &h->config.keep;
    char name[HTTP_SOCKET_NAME];
    struct err e = ERR_INIT;
    if (h->listeners[i].left || !k->put || !socket_name(h, i, name))
        return;
    if (k->put(k->user, name, h->listeners[i].fd, &e) != ERR_OK)
        log_event(LOG_WARN, "a socket will not outlive this process", "listen", text_of(h, i),
                  "reason", e.message, NULL);
}

/* --- Unix sockets --- */

static enum err_code listen_unix(struct listener *l, const char *path, int mode, struct err *e)
{
    size_t n = strlen(path) + 6;
    struct stat st;
    if (l->left && (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))) {
        close(l->fd); /* nobody reaches it any more */
        l->fd = -1;
        l->left = false;
    }
    if (!l->left)
        TRY(unix_listen(path, mode, &l->fd, e));
    l->unix_path = mem_strdup(path);
    l->address = mem_alloc(n);
    if (!l->unix_path)
        unlink(path);
    if (!l->unix_path || !l->address)
        return err_oom(e);
    snprintf(l->address, n, "unix:%s", path);
    return ERR_OK;
}

const char *http_unix_peer(const struct request *req, uid_t *ret_uid)
{
    const struct conn *c = rq_of_const(req)->conn;
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (!c || !c->listener->unix_path || getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return NULL;
    *ret_uid = peer.uid;
    return c->listener->unix_path;
}

bool http_is_encrypted(const struct request *req)
{
    const struct conn *c = rq_of_const(req)->conn;
    return c && c->listener->tls;
}

/* --- TCP --- */

static bool loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24) == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static enum err_code bound_address(struct listener *l, struct err *e)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
    } a;
    socklen_t len = sizeof a;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(l->fd, &a.any, &len) != 0 ||
        getnameinfo(&a.any, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return err_set(e, ERR_INTERNAL, "cannot determine the address of a listening socket");
    size_t n = strlen(host) + strlen(port) + 4;
    l->address = mem_alloc(n);
    if (!l->address)
        return err_oom(e);
    snprintf(l->address, n, a.any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return ERR_OK;
}

/* Under a keeper the address may be free in a moment: when what was dropped is closed there, too,
 * or a daemon that was killed with its keeper is gone. */
static bool bind_to(const struct listener *l, const struct addrinfo *a)
{
    int failed = bind(l->fd, a->ai_addr, a->ai_addrlen);
    for (int i = 0; failed && errno == EADDRINUSE && l->http->config.keep.put && i < BIND_TRIES;
         i++) {
        usleep(BIND_WAIT_US);
        failed = bind(l->fd, a->ai_addr, a->ai_addrlen);
    }
    return !failed;
}

static enum err_code listen_tcp(struct listener *l, const char *text, bool accounts, struct err *e)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    char host[256];
    if (!colon || n == 0 || n >= sizeof host || !colon[1] ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || atol(colon + 1) > 65535)
        return err_set(e, ERR_BAD_FIELD, "'%s' is not ADDR:PORT or unix:PATH", text);
    if (text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return err_set(e, ERR_BAD_FIELD, "'%s': an IPv6 address needs brackets", text);
    }
    memcpy(host, text, n);
    host[n] = '\0';

    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    if (rc != 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", host, gai_strerror(rc));
    enum err_code code = ERR_OK;
    l->loopback = loopback(found->ai_addr);
    if (!accounts && !l->loopback) {
        code = err_set(e, ERR_BAD_FIELD,
                       "%s is not a loopback address, and without accounts anyone who can reach it "
                       "could use the daemon: create accounts with 'arrayd token add' and pass "
                       "their file with --accounts, or listen on 127.0.0.1 or unix:PATH",
                       host);
    } else if (l->fd < 0) {
        int on = 1;
        l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (l->fd >= 0) {
            setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (found->ai_family == AF_INET6)
                setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        }
        if (l->fd < 0 || !bind_to(l, found) || listen(l->fd, BACKLOG) != 0)
            code = err_set(e, ERR_BAD_FIELD, "%s:%s: %s", host, colon + 1, strerror(errno));
    }
    freeaddrinfo(found);
    if (!code && !l->loopback && !l->tls && !l->admin)
        log_event(LOG_WARN, "tokens and data cross the network unencrypted: see tls-cert", "listen",
                  text, NULL);
    return code ? code : bound_address(l, e);
}

/* --- all listeners --- */

enum err_code http_listen(struct http *h, struct err *e)
{
    size_t n = h->config.n_listen + h->config.n_admin_listen;
    h->listeners = mem_calloc(n, sizeof *h->listeners);
    h->addresses = mem_calloc(n, sizeof *h->addresses);
    if (!h->listeners || !h->addresses)
        return err_oom(e);
    h->n_listeners = n;
    take_left(h);
    for (size_t i = 0; i < n; i++) {
        struct listener *l = &h->listeners[i];
        const char *text = text_of(h, i);
        l->admin = is_admin(h, i);
        l->http = h;
        l->loop.wake_fd = -1;
        l->tls = is_tls(h, i);
        TRY(!strncmp(text, "unix:", 5) ? listen_unix(l, text + 5, h->config.unix_mode, e)
                                       : listen_tcp(l, text, l->admin || h->config.accounts, e));
        h->addresses[i] = l->address;
        socket_keep(h, i);
    }
    return ERR_OK;
}

/* Whether the next process continues with the sockets. */
static bool stay(const struct http *h)
{
    return h->config.keep.put && atomic_load(&h->server->followed);
}

/* Without its path nobody reaches a socket: nor is it kept for the next start. */
static void remove_path(const struct http *h, size_t i)
{
    const struct http_keep *k = &h->config.keep;
    char name[HTTP_SOCKET_NAME];
    unlink(h->listeners[i].unix_path);
    if (k->drop && socket_name(h, i, name))
        k->drop(k->user, name);
}

/* A path is removed only once, while its socket is open: later it may belong to another daemon. */
void http_listen_close(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++) {
        struct listener *l = &h->listeners[i];
        if (l->unix_path && !l->removed && !stay(h))
            remove_path(h, i);
        l->removed = true;
        if (l->fd >= 0)
            close(l->fd);
        l->fd = -1;
    }
}

void http_listen_free(struct http *h)
{
    http_listen_close(h);
    for (size_t i = 0; i < h->n_listeners; i++) {
        mem_free(h->listeners[i].unix_path);
        mem_free(h->listeners[i].address);
    }
    mem_free(h->listeners);
    mem_free(h->addresses);
}

enum err_code http_try_listen(const struct http_config *config, struct err *e)
{
    struct http h = {.config = *config};
    enum err_code code = ERR_OK;
    if (config->tls_cert || config->tls_key)
        code = http_tls_load(config, e);
    if (code == ERR_OK)
        code = http_listen(&h, e);
    http_listen_free(&h);
    http_tls_free();
    return code;
}

bool http_is_taken(const struct err *e)
{
    return strstr(e->message, strerror(EADDRINUSE)) || strstr(e->message, "another daemon");
}

/* --- names --- */

static bool add_host(struct http *h, const char *name, size_t n)
{
    char *copy = mem_strndup(name, n);
    if (!copy)
        return false;
    for (char *p = copy; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    h->hosts[h->n_hosts++] = copy;
    return true;
}

enum err_code http_hosts_init(struct http *h, struct err *e)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "[::1]"};
    size_t n_always = sizeof always / sizeof *always;
    h->hosts = mem_calloc(n_always + h->n_listeners + h->config.n_allowed_hosts, sizeof *h->hosts);
    bool ok = h->hosts != NULL;
    for (size_t i = 0; ok && i < n_always; i++)
        ok = add_host(h, always[i], strlen(always[i]));
    for (size_t i = 0; ok && i < h->n_listeners; i++)
        if (!h->listeners[i].unix_path)
            ok = add_host(h, h->addresses[i],
                          (size_t)(strrchr(h->addresses[i], ':') - h->addresses[i]));
    for (size_t i = 0; ok && i < h->config.n_allowed_hosts; i++)
        ok = add_host(h, h->config.allowed_hosts[i], strlen(h->config.allowed_hosts[i]));
    return ok ? ERR_OK : err_oom(e);
}
