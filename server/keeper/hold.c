/* What was left is read once, at the start; after that only answers to puts are. A thread waits for
 * the other end to close, beside PR_SET_PDEATHSIG, which a change of credentials would clear.
 *
 * Each daemon has a descriptor of its own process (pidfd_open(2)) held, "daemon.PID": by that the
 * next one knows that it has ended, also after the death of the keeper, which would have waited for
 * it. */
#include "server/keeper/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "server/keeper/held.h"
#include "server/keeper/keeper.h"

#define CROWDED_TRIES 1000 /* of a millisecond each */
#define PROCESS       "daemon."
#define BEFORE_MOST   8
#define END_MS        10000 /* for a process that has been killed */
#define ANSWER_MS     5000  /* for a keeper's answer */

struct hold {
    int socket;
    int restarts, signal;
    int64_t ended;
    bool inherited;
    int before[BEFORE_MOST + 1]; /* 0 at the end */
    pthread_mutex_t lock;        /* left */
    struct held *left;
    pthread_mutex_t putting; /* held from a put to its answer */
    _Atomic int owed;        /* answers that did not come in time; raised under `putting` */
};

static void *watch(void *arg)
{
    const struct hold *h = arg;
    pthread_detach(pthread_self());
    struct pollfd p = {.fd = h->socket, .events = POLLRDHUP};
    while (poll(&p, 1, -1) < 1) /* for lack of memory, say */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    _exit(KEEPER_GONE);
}

static enum err_code receive(struct hold *h, struct err *e)
{
    struct link_message m;
    for (;;) {
        if (link_receive(h->socket, &m, true) <= 0)
            return err_set(e, ERR_INTERNAL, "the keeper: %s", strerror(errno));
        if (m.kind == LINK_END)
            return ERR_OK;
        h->inherited = true;
        if (m.kind == LINK_HAVE && m.fd >= 0 && !held_put(&h->left, m.name, 0, m.fd))
            return err_oom(e);
    }
}

bool hold_expected(void)
{
    return getenv(LINK_ENV);
}

/* --- the processes before --- */

/* Whether the number is another process's by now. One that has ended keeps its number until it has
 * been waited for. */
static bool is_reused(const struct held *x, pid_t pid)
{
    const bool reaped = syscall(SYS_pidfd_send_signal, x->fd, 0, NULL, 0) != 0 && errno == ESRCH;
    return reaped && (kill(pid, 0) == 0 || errno == EPERM);
}

/* They stay held until this process is ready: if it does not come to that, a device may not have
 * let go of them yet. */
static enum err_code await_before(struct hold *h, struct err *e)
{
    int n = 0, total = 0;
    for (struct held *x = h->left; x; x = x->hh.next)
        total += !strncmp(x->name, PROCESS, strlen(PROCESS));
    for (struct held *x = h->left, *next = NULL; x; x = next) {
        next = x->hh.next;
        if (strncmp(x->name, PROCESS, strlen(PROCESS)) != 0)
            continue;
        const pid_t pid = atoi(x->name + strlen(PROCESS));
        struct pollfd p = {.fd = x->fd, .events = POLLIN};
        if (poll(&p, 1, END_MS) == 0)
            return err_set(e, ERR_INTERNAL,
                           "process %d, whose memory is to be taken over, does not end", (int)pid);
        if (total-- <= BEFORE_MOST && !is_reused(x, pid)) {
            h->before[n++] = pid;
            continue;
        }
        hold_drop(h, x->name);
        held_drop(&h->left, x->name);
    }
    return ERR_OK;
}

static enum err_code put_process(struct hold *h, struct err *e)
{
    char name[LINK_NAME + 1];
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0)
        return ERR_OK; /* the system does not have it: then only the keeper's word is known */
    snprintf(name, sizeof name, PROCESS "%d", (int)getpid());
    enum err_code code = hold_put(h, name, fd, e);
    close(fd);
    return code;
}

enum err_code hold_open(struct hold **ret, struct err *e)
{
    const char *number = getenv(LINK_ENV), *restarts = getenv(KEEPER_RESTARTS_ENV);
    const char *sig = getenv(KEEPER_SIGNAL_ENV);
    *ret = NULL;
    if (!number)
        return ERR_OK;
    struct hold *h = mem_calloc(1, sizeof *h);
    if (!h)
        return err_oom(e);
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->putting, NULL);
    h->socket = atoi(number);
    h->restarts = restarts ? atoi(restarts) : 0;
    if (sig)
        (void)!sscanf(sig, "%d %" SCNd64, &h->signal, &h->ended);
    unsetenv(LINK_ENV);
    prctl(PR_SET_NAME,
          KEEPER_DAEMON); /* it was started by a descriptor, whose number is its name */
    pthread_t t;
    enum err_code code = ERR_OK;
    if (fcntl(h->socket, F_SETFD, FD_CLOEXEC) != 0)
        code = err_set(e, ERR_INTERNAL, "the keeper: %s", strerror(errno));
    if (code == ERR_OK)
        code = receive(h, e);
    if (code == ERR_OK && !thread_start(&t, "keeper", watch, h))
        code = err_oom(e);
    if (code == ERR_OK)
        code = await_before(h, e);
    if (code == ERR_OK)
        code = put_process(h, e);
    if (code != ERR_OK) {
        hold_close(h);
        return code;
    }
    *ret = h;
    return ERR_OK;
}

/* The socket stays open, and with it the thread: the process ends soon. */
void hold_close(struct hold *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    held_free(&h->left);
    pthread_mutex_unlock(&h->lock);
}

int hold_take(struct hold *h, const char *name)
{
    struct held *x = NULL;
    int fd = -1;
    if (!h)
        return -1;
    pthread_mutex_lock(&h->lock);
    HASH_FIND_STR(h->left, name, x);
    if (x) {
        fd = x->fd;
        HASH_DEL(h->left, x);
        mem_free(x);
    }
    pthread_mutex_unlock(&h->lock);
    return fd;
}

const char *hold_next(struct hold *h, const char *prefix)
{
    const char *name = NULL;
    if (!h)
        return NULL;
    pthread_mutex_lock(&h->lock);
    for (struct held *x = h->left; x && !name; x = x->hh.next)
        if (!strncmp(x->name, prefix, strlen(prefix)))
            name = x->name;
    pthread_mutex_unlock(&h->lock);
    return name;
}

void hold_drop_rest(struct hold *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    while (h->left) {
        hold_drop(h, h->left->name);
        held_drop(&h->left, h->left->name);
    }
    pthread_mutex_unlock(&h->lock);
}

/* The system limits how many descriptors of a user may be on their way. */
static bool is_crowded(int number)
{
    return number == ETOOMANYREFS || number == ENOBUFS;
}

/* Waits as long as a keeper that runs may take at most; one that does not has been waited for
 * once. */
static bool await(struct hold *h, short event)
{
    struct pollfd p = {.fd = h->socket, .events = event};
    const int n = poll(&p, 1, atomic_load(&h->owed) ? 0 : ANSWER_MS);
    return n > 0 && (p.revents & event);
}

static bool tell(struct hold *h, enum link_kind kind, const char *name, int fd)
{
    if (!await(h, POLLOUT)) {
        errno = EAGAIN;
        return false;
    }
    for (int i = 0; !link_send(h->socket, kind, name, fd, false); i++) {
        if (!is_crowded(errno) || i == CROWDED_TRIES)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static enum err_code no_answer(struct err *e)
{
    return err_set(e, ERR_OVERLOADED, "the keeper does not answer");
}

/* Reads the answers that came too late. What the keeper has taken for all that goes again. */
static bool catch_up(struct hold *h)
{
    struct link_message late;
    while (atomic_load(&h->owed) > 0 && link_receive(h->socket, &late, false) > 0) {
        atomic_fetch_sub(&h->owed, 1);
        if (late.kind == LINK_KEPT)
            hold_drop(h, late.name);
    }
    return atomic_load(&h->owed) == 0;
}

static enum err_code ask(struct hold *h, enum link_kind kind, const char *name, int fd, bool wait,
                         struct link_message *ret, struct err *e)
{
    if (!catch_up(h))
        return no_answer(e);
    if (!tell(h, kind, name, fd))
        return err_set(e, ERR_OVERLOADED, "the keeper cannot be told: %s", strerror(errno));
    if (!wait && !await(h, POLLIN)) {
        atomic_fetch_add(&h->owed, 1);
        return no_answer(e);
    }
    if (link_receive(h->socket, ret, true) <= 0)
        return err_set(e, ERR_OVERLOADED, "the keeper cannot take a descriptor: %s",
                       strerror(errno));
    return ERR_OK;
}

/* What takes the place of something else must not be taken late: it is sent only to a keeper that
 * has just answered, and then waited for. */
static enum err_code put_locked(struct hold *h, enum link_kind kind, const char *name, int fd,
                                struct err *e)
{
    lock_held(&h->putting);
    struct link_message answer;
    if (kind == LINK_PUT)
        TRY(ask(h, LINK_ADD, "", -1, false, &answer, e)); /* is refused */
    TRY(ask(h, kind, name, fd, kind == LINK_PUT, &answer, e));
    if (answer.kind == LINK_KEPT)
        return ERR_OK;
    return err_set(e, ERR_OVERLOADED,
                   "the keeper cannot take a descriptor: it has no more of them (limit of open "
                   "files)");
}

static enum err_code put(struct hold *h, enum link_kind kind, const char *name, int fd,
                         struct err *e)
{
    pthread_mutex_lock(&h->putting);
    enum err_code code = put_locked(h, kind, name, fd, e);
    pthread_mutex_unlock(&h->putting);
    return code;
}

enum err_code hold_put(struct hold *h, const char *name, int fd, struct err *e)
{
    return put(h, LINK_PUT, name, fd, e);
}

enum err_code hold_add(struct hold *h, const char *name, int fd, struct err *e)
{
    return put(h, LINK_ADD, name, fd, e);
}

void hold_drop(struct hold *h, const char *name)
{
    if (h)
        (void)tell(h, LINK_DROP, name, -1); /* what it misses goes at the next start */
}

void hold_ready(struct hold *h, const char *missing)
{
    if (h)
        (void)tell(h, LINK_READY, missing, -1);
}

const int *hold_before(const struct hold *h)
{
    return h->before;
}

bool hold_inherited(const struct hold *h)
{
    return h && h->inherited;
}

int hold_restarts(const struct hold *h)
{
    return h ? h->restarts : 0;
}

int hold_signal(const struct hold *h)
{
    return h ? h->signal : 0;
}

int64_t hold_ended(const struct hold *h)
{
    return h->ended;
}
