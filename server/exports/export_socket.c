/* One thread with poll: connections are few, each sends one short line and then nothing.
 *
 *   SILENT (no token yet, for a bounded time) → HELD (an export) → LINGERING → closed
 *
 * A client that ends its sending side has finished with the memory, on its device too: the export
 * is over before our side ends. A client whose socket is closed altogether may have been killed;
 * its kernels may still run while the system closes its files one by one. So an export of a GPU's
 * memory for writing lingers until that process has ended, for a bounded time.
 *
 * The keeper holds each connection with an export, under the export's lease, until that is over: so
 * a connection is ended by shutdown before it is closed.
 *
 * No client is trusted to read or to send: nothing here blocks, the few bytes of an answer fit into
 * any socket buffer, and input after the token ends the connection. Past the limit, a new
 * connection replaces the oldest one without a token. */
#include "server/exports/export_socket.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "server/exports/export_socket_int.h"
#include "server/http/unix_socket.h"
#include "server/keeper/hold.h"
#include "server/store/lease.h"

/* --- start --- */

/* False: it is no name that can be held. */
static bool name_listener(const char *path, char ret[LINK_NAME + 1])
{
    size_t n = (size_t)snprintf(ret, LINK_NAME + 1, "export-listen.%s", path);
    return n <= LINK_NAME && link_name_ok(ret);
}

/* The socket of the previous process, if it can still be reached; or a new one. */
static enum err_code open_listener(struct export_socket *s, struct listening *l, struct err *e)
{
    char name[LINK_NAME + 1];
    struct stat st;
    const bool fits = name_listener(l->path, name);
    int left = fits ? hold_take(s->config.hold, name) : -1;
    if (left >= 0 && lstat(l->path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        l->fd = left;
        return ERR_OK;
    }
    if (left >= 0)
        close(left);
    TRY(unix_listen(l->path, s->config.mode, &l->fd, e));
    if (fits)
        export_conn_keep(s, name, l->fd);
    return ERR_OK;
}

static enum err_code add_listener(struct export_socket *s, const char *beside, struct err *e)
{
    struct listening *l = &s->listeners[s->n_listeners];
    size_t n = strlen(beside) + sizeof ".fd";
    char absolute[PATH_MAX];
    *l = (struct listening){.fd = -1, .beside = mem_strdup(beside), .path = mem_alloc(n)};
    s->n_listeners++;
    if (!l->beside || !l->path)
        return err_oom(e);
    snprintf(l->path, n, "%s.fd", beside);
    TRY(open_listener(s, l, e));
    if (!realpath(l->path, absolute))
        return err_set(e, ERR_BAD_FIELD, "unix:%s: %s", l->path, strerror(errno));
    l->absolute = mem_strdup(absolute);
    return l->absolute ? ERR_OK : err_oom(e);
}

/* Without its path nobody reaches a socket: nor is it held for the next process. */
static void unlink_all(struct export_socket *s)
{
    char name[LINK_NAME + 1];
    for (size_t i = 0; i < s->n_listeners; i++) {
        const struct listening *l = &s->listeners[i];
        if (l->fd >= 0)
            unlink(l->path);
        if (l->fd >= 0 && name_listener(l->path, name))
            hold_drop(s->config.hold, name);
    }
}

/* Connections here need no authentication, so most descriptors are reserved for HTTP. */
static size_t at_most(size_t wanted)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return wanted;
    size_t fourth = (size_t)r.rlim_cur / 4;
    return wanted < fourth ? wanted : fourth;
}

enum err_code export_socket_open(const struct export_socket_config *config,
                                 struct export_socket **ret, struct err *e)
{
    struct export_socket *s = mem_calloc(1, sizeof *s);
    enum err_code code = s ? ERR_OK : err_oom(e);
    *ret = NULL;
    if (code != ERR_OK)
        return code;
    s->config = *config;
    s->config.max_connections = at_most(config->max_connections);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->listeners = mem_calloc(config->n_listen, sizeof *s->listeners);
    if (s->wake < 0)
        code = err_set(e, ERR_INTERNAL, "eventfd: %s", strerror(errno));
    else if (!s->listeners)
        code = err_oom(e);
    for (size_t i = 0; i < config->n_listen && code == ERR_OK; i++)
        if (!strncmp(config->listen[i], "unix:", 5))
            code = add_listener(s, config->listen[i] + 5, e);
    if (code == ERR_OK && s->n_listeners > 0) {
        *ret = s;
        return ERR_OK;
    }
    unlink_all(s);
    export_socket_free(s);
    return code;
}

const char *export_socket_path(const struct export_socket *s, const char *beside)
{
    for (size_t i = 0; i < s->n_listeners; i++)
        if (!strcmp(s->listeners[i].beside, beside))
            return s->listeners[i].absolute;
    return NULL;
}

void export_socket_wake(void *user)
{
    struct export_socket *s = user;
    uint64_t one = 1;
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR)
        ; /* full: the thread wakes anyway */
}

/* --- the thread --- */

/* Handles a connection's timeouts, ended offer and draining; false: it has been closed. */
static bool look_at(struct export_socket *s, struct conn *c, double now)
{
    if (c->state == SILENT && c->until <= now) {
        export_conn_close(s, c);
        return false;
    }
    if (c->state == LINGERING && c->until <= now)
        offer_end(c->offer, OFFER_LOST);
    if (c->state != SILENT && offer_is_over(c->offer)) {
        export_conn_close(s, c);
        return false;
    }
    if (c->state == HELD && !c->told && atomic_load(&s->draining)) {
        c->told = true;
        export_conn_refuse(c->fd, ERR_DRAINING, "the daemon is shutting down; end the export");
    }
    return true;
}

/* Milliseconds until the next timeout: the argument of poll. */
static int poll_timeout(const struct export_socket *s, double sweep, double now)
{
    double least = sweep < 0 ? 3600 : sweep;
    for (size_t i = 0; i < s->n_conns; i++)
        if (s->conns[i].state != HELD && s->conns[i].until - now < least)
            least = s->conns[i].until - now;
    if (s->accept_after > now && s->accept_after - now < least)
        least = s->accept_after - now;
    return least > 0 ? (int)(least * 1e3) + 1 : 0;
}

static void serve_ready(struct export_socket *s, size_t n_polled)
{
    const struct pollfd *of_conns = s->polled + 1 + s->n_listeners;
    for (size_t i = n_polled; i-- > 0;) { /* a closed one is replaced by the last */
        struct conn *c = &s->conns[i];
        if (!of_conns[i].revents)
            continue;
        if (c->state == SILENT) {
            export_conn_listen(s, c);
        } else if (c->state == HELD) {
            export_conn_hear(s, c);
        } else {
            offer_end(c->offer, OFFER_LOST);
            export_conn_close(s, c);
        }
    }
    for (size_t i = 0; i < s->n_listeners; i++)
        if (s->polled[1 + i].revents)
            export_conn_accept(s, s->listeners[i].fd);
}

static void *serve(void *arg)
{
    struct export_socket *s = arg;
    uint64_t woken;
    while (!atomic_load(&s->stopping)) {
        double sweep = exports_sweep(s->exports), now = clock_s();
        for (size_t i = s->n_conns; i-- > 0;)
            look_at(s, &s->conns[i], now);
        s->polled[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        for (size_t i = 0; i < s->n_listeners; i++)
            s->polled[1 + i] = (struct pollfd){
                .fd = s->accept_after > now ? -1 : s->listeners[i].fd, .events = POLLIN};
        for (size_t i = 0; i < s->n_conns; i++) {
            const struct conn *c = &s->conns[i];
            s->polled[1 + s->n_listeners + i] =
                (struct pollfd){.fd = c->state == LINGERING ? c->process : c->fd, .events = POLLIN};
        }
        size_t n = s->n_conns;
        if (poll(s->polled, 1 + s->n_listeners + n, poll_timeout(s, sweep, now)) <= 0)
            continue;
        if (s->polled[0].revents)
            (void)!read(s->wake, &woken, sizeof woken);
        serve_ready(s, n);
    }
    while (s->n_conns && !s->leaving)
        export_conn_close(s, &s->conns[0]);
    return NULL;
}

bool export_socket_adopt(struct export_socket *s, struct exports *exports,
                         const struct lease_image *lease, struct array *a)
{
    char name[LINK_NAME + 1];
    struct err e = ERR_INIT;
    struct conn c = {.process = -1};
    export_conn_name(lease->lease.token, name);
    c.fd = hold_take(s->config.hold, name);
    if (c.fd < 0)
        return false;
    enum err_code code = export_conn_reserve(s) ? ERR_OK : err_oom(&e);
    if (code == ERR_OK)
        code = exports_adopt(exports, lease, a, &c.offer, &c.cuda_writer, &e);
    if (code != ERR_OK) {
        log_event(LOG_WARN, "an export of the previous process has ended", "reason", e.message,
                  NULL);
        hold_drop(s->config.hold, name);
        shutdown(c.fd, SHUT_RDWR);
        close(c.fd);
        return false;
    }
    c.cuda_writer &= offer_writes(c.offer);
    export_conn_hold(s, &c, true);
    s->conns[s->n_conns++] = c;
    return true;
}

enum err_code export_socket_start(struct export_socket *s, struct exports *exports, struct err *e)
{
    s->exports = exports;
    if (!export_conn_reserve(s))
        return err_oom(e);
    for (size_t i = s->n_conns; i-- > 0;) { /* clients may have ended while nobody looked */
        struct pollfd p = {.fd = s->conns[i].fd, .events = POLLIN};
        if (poll(&p, 1, 0) > 0)
            export_conn_hear(s, &s->conns[i]);
    }
    if (!thread_start(&s->thread, "arrayd-exports", serve, s))
        return err_set(e, ERR_INTERNAL, "cannot start a thread for exports");
    s->started = true;
    return ERR_OK;
}

/* --- end --- */

void export_socket_drain(struct export_socket *s)
{
    exports_stop(s->exports);
    atomic_store(&s->draining, true);
    export_socket_wake(s);
}

static void end_thread(struct export_socket *s)
{
    atomic_store(&s->stopping, true);
    export_socket_wake(s);
    pthread_join(s->thread, NULL);
    s->started = false;
}

void export_socket_stop(struct export_socket *s, uint64_t until_ns, const _Atomic bool *hurry)
{
    unlink_all(s);
    if (!s->started)
        return;
    while (exports_stop(s->exports) > 0 && clock_ns() < until_ns && !atomic_load(hurry))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    exports_stop_all(s->exports);
    end_thread(s);
}

/* The keeper has the connection. */
static void let_go(const struct conn *c)
{
    if (c->process >= 0)
        close(c->process);
    offer_close(c->offer);
    if (c->fd >= 0)
        close(c->fd);
}

void export_socket_leave(struct export_socket *s)
{
    s->leaving = true;
    if (s->started)
        end_thread(s);
}

void export_socket_free(struct export_socket *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_listeners; i++) {
        struct listening *l = &s->listeners[i];
        if (l->fd >= 0)
            close(l->fd);
        mem_free(l->beside);
        mem_free(l->path);
        mem_free(l->absolute);
    }
    mem_free(s->listeners);
    for (size_t i = 0; i < s->n_conns; i++)
        let_go(&s->conns[i]);
    mem_free(s->conns);
    mem_free(s->polled);
    if (s->wake >= 0)
        close(s->wake);
    mem_free(s);
}
