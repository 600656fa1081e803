/* The threads of the listeners.
 *
 * libmicrohttpd would start a thread for each listener itself, but that one may sleep for ever:
 * 0.9.75 takes at most 128 events at once from its epoll set, and after exactly 128 it waits for
 * more before it looks at any. So 128 clients that wait for their replies would wait for one
 * another's next request, and a daemon told to stop would not notice. Here the thread sleeps
 * outside, in poll() on that set, and libmicrohttpd is only called to work, without waiting.
 *
 * Without a thread of its own libmicrohttpd tells nobody that a connection was resumed, so whoever
 * resumes one wakes the thread: by `woken`, and where it is `asleep` by the eventfd as well. Nor
 * does 0.9.75 then refuse a chunk whose first line fills the connection's memory, but asks to be
 * called again and again: the watch thread ends such a request, and meanwhile calls that lead to
 * nothing are made at intervals.
 *
 * At its limit of connections, or of the process's descriptors, libmicrohttpd takes the listening
 * socket out of the epoll set, and puts it back when it is called after one has ended: so the end
 * of a connection, which may be the last thing that the set tells, wakes the thread, too; and for
 * descriptors that others release it does not rest for long. */
#include <microhttpd.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "server/http/http_impl.h"

#define MOST_IN_VAIN 4096 /* with TLS a long reply needs a round for each 16 KiB */
#define VAIN_MS      1
#define LONGEST_MS   1000
#define CROWD        6 /* callbacks: more than two requests have */

/* How long libmicrohttpd need not be called unless something happens: milliseconds, for poll. */
static int rest_ms(struct listener *l)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(l->mhd, &ms) != MHD_YES || ms > LONGEST_MS)
        return LONGEST_MS;
    return (int)ms;
}

/* Whether something happens within the configured time after the last request's step: with a device
 * the next request of a client, or the end of a short wait, is often nearer than it takes to fall
 * asleep and be woken. */
static bool soon(struct listener *l, struct pollfd *set)
{
    struct http_loop *loop = &l->loop;
    uint64_t now = clock_ns();
    if (loop->steps)
        loop->spins_until = now + (uint64_t)l->http->config.spin_us * 1000;
    for (; now < loop->spins_until; now = clock_ns())
        if (atomic_load(&loop->woken) || poll(set, 1, 0) > 0)
            return true;
    return false;
}

static void rest(struct listener *l, struct pollfd p[2])
{
    struct http_loop *loop = &l->loop;
    eventfd_t n;
    int ms = rest_ms(l);
    loop->in_vain = ms == 0 ? loop->in_vain + 1 : 0;
    if (ms == 0 && loop->in_vain < MOST_IN_VAIN)
        return;
    if (loop->steps > CROWD)
        return; /* by now more has arrived: asking would be a call in vain */
    ms = ms == 0 ? VAIN_MS : ms;
    if (loop->spins && soon(l, p))
        return;
    atomic_store(&loop->asleep, true);
    p[1].revents = 0;
    if (!atomic_load(&loop->woken))
        (void)poll(p, 2, ms); /* a signal may end it: no harm */
    atomic_store(&loop->asleep, false);
    if (p[1].revents)
        (void)eventfd_read(loop->wake_fd, &n);
}

/* A connection that libmicrohttpd neither reads nor has in its epoll set is closed only for its
 * time, which only this thread may set. */
static void evict(struct http_loop *loop)
{
    struct conn *c = atomic_exchange(&loop->evicted, NULL);
    if (c && c->rq)
        MHD_set_connection_option(c->rq->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

/* The one step of the thread, which lasts as long as the listener. */
static double run(void *user)
{
    struct listener *l = user;
    struct http_loop *loop = &l->loop;
    const union MHD_DaemonInfo *set = MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd p[] = {{.fd = set->epoll_fd, .events = POLLIN},
                         {.fd = loop->wake_fd, .events = POLLIN}};
    lock_held(&loop->lock);
    pthread_mutex_unlock(&loop->lock);
    while (!atomic_load(&loop->ends)) {
        rest(l, p);
        atomic_store(&loop->woken, false);
        if (atomic_load(&loop->evicted))
            evict(loop);
        if (atomic_load(&loop->quiesce) && !atomic_load(&loop->quiet)) {
            (void)MHD_quiesce_daemon(l->mhd);
            atomic_store(&loop->quiet, true);
        }
        atomic_fetch_add_explicit(&loop->rounds, 1, memory_order_relaxed);
        loop->steps = 0;
        (void)MHD_run(l->mhd);
    }
    pthread_mutex_lock(&loop->lock);
    return WORKER_RESTS;
}

/* Something has changed that no socket tells. */
static void wake(struct listener *l)
{
    struct http_loop *loop = &l->loop;
    atomic_store(&loop->woken, true);
    if (atomic_exchange(&loop->asleep, false))
        (void)eventfd_write(loop->wake_fd, 1);
}

void http_loop_quiesce(struct listener *l)
{
    struct http_loop *loop = &l->loop;
    if (loop->wake_fd < 0) {
        (void)MHD_quiesce_daemon(l->mhd);
        return;
    }
    atomic_store(&loop->quiesce, true);
    wake(l);
    while (!atomic_load(&loop->quiet))
        usleep(100);
}

bool http_loop_evict(struct conn *c)
{
    struct conn *none = NULL;
    struct http_loop *loop = &c->listener->loop;
    bool mine = atomic_compare_exchange_strong(&loop->evicted, &none, c);
    wake(c->listener);
    return mine;
}

void http_loop_forget(struct conn *c)
{
    struct conn *mine = c;
    (void)atomic_compare_exchange_strong(&c->listener->loop.evicted, &mine, NULL);
}

void http_resume(struct MHD_Connection *mhd, struct listener *l)
{
    MHD_resume_connection(mhd); /* the request may be gone when this returns */
    wake(l);
}

bool http_loop_start(struct listener *l)
{
    struct http_loop *loop = &l->loop;
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0)
        return false;
    loop->spins = l->http->config.spin_us > 0 && !l->admin;
    pthread_mutex_init(&loop->lock, NULL); /* cannot fail here */
    loop->thread = (struct worker){
        .name = "arrayd-http", .lock = &loop->lock, .step = run, .user = l, .stack = THREAD_STACK};
    worker_init(&loop->thread);
    if (worker_start(&loop->thread))
        return true;
    http_loop_stop(l);
    return false;
}

void http_loop_stop(struct listener *l)
{
    struct http_loop *loop = &l->loop;
    if (loop->wake_fd < 0)
        return;
    atomic_store(&loop->ends, true);
    wake(l);
    worker_stop(&loop->thread);
    worker_destroy(&loop->thread);
    pthread_mutex_destroy(&loop->lock);
    close(loop->wake_fd);
    loop->wake_fd = -1;
}
