/* What was left is read once, at the start; after that only answers to puts are. A thread waits for
 * the other end to close, beside PR_SET_PDEATHSIG, which a change of credentials would clear. */
#include "server/keeper/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "server/keeper/held.h"
#include "server/keeper/keeper.h"

#define CROWDED_TRIES 1000 /* of a millisecond each */

struct hold {
    int socket;
    int restarts, signal;
    int before[KEEPER_BEFORE_MOST + 1]; /* 0 at the end */
    pthread_mutex_t lock;               /* left */
    struct held *left;
    pthread_mutex_t putting; /* held from a put to its answer */
};

static void *watch(void *arg)
{
    const struct hold *h = arg;
    struct pollfd p = {.fd = h->socket, .events = POLLRDHUP};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
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
        if (m.kind == LINK_HAVE && m.fd >= 0 && !held_put(&h->left, m.name, 0, m.fd))
            return err_oom(e);
    }
}

bool hold_expected(void)
{
    return getenv(LINK_ENV);
}

static void read_before(struct hold *h)
{
    const char *text = getenv(KEEPER_BEFORE_ENV);
    for (int i = 0; text && *text && i < KEEPER_BEFORE_MOST; i++) {
        h->before[i] = atoi(text);
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
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
    read_before(h);
    h->signal = sig ? atoi(sig) : 0;
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
    if (code != ERR_OK) {
        hold_close(h);
        return code;
    }
    pthread_detach(t);
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

static bool tell(struct hold *h, enum link_kind kind, const char *name, int fd)
{
    for (int i = 0; !link_send(h->socket, kind, name, fd, true); i++) {
        if (!is_crowded(errno) || i == CROWDED_TRIES)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static enum err_code put(struct hold *h, enum link_kind kind, const char *name, int fd,
                         struct err *e)
{
    char why[64];
    struct link_message answer;
    pthread_mutex_lock(&h->putting);
    const bool sent = tell(h, kind, name, fd);
    const bool answered = sent && link_receive(h->socket, &answer, true) > 0;
    const int number = errno;
    pthread_mutex_unlock(&h->putting);
    if (answered && answer.kind == LINK_KEPT)
        return ERR_OK;
    return err_set(e, ERR_OVERLOADED, "the keeper cannot take a descriptor: %s",
                   answered ? "it has no more of them (limit of open files)"
                            : strerror_r(number, why, sizeof why));
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
        (void)tell(h, LINK_DROP, name, -1); /* a keeper that is gone takes this process with it */
}

void hold_ready(struct hold *h)
{
    if (h)
        (void)tell(h, LINK_READY, "", -1);
}

const int *hold_before(const struct hold *h)
{
    return h->before;
}

int hold_restarts(const struct hold *h)
{
    return h ? h->restarts : 0;
}

int hold_signal(const struct hold *h)
{
    return h ? h->signal : 0;
}
