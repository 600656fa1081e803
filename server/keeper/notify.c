/* One datagram a message. A store may be full, or switched off: the service manager does not tell,
 * and nothing here relies on it. In the store a name may be there several times, and is removed as
 * a whole: so what replaces something has a name of its own, "journal#2". */
#include "server/keeper/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/keeper/link.h"
#include "server/keeper/rights.h"

#define FIRST_STORED 3
#define NUMBER       '#'
#define MOST         20000 /* messages that wait: beyond it the manager has lost touch */
#define FINISH_S     1.0

struct notice {
    struct notice *next;
    int fd; /* −1: none */
    char text[];
};

static struct {
    int socket; /* + 1; 0: none */
    struct notice *first, *last;
    int n;
    bool full; /* said so */
} out;

/* False: there is no manager. */
static bool reach(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (out.socket)
        return true;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return false;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@')
        to.sun_path[0] = '\0'; /* an abstract name */
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (s >= 0 && connect(s, (struct sockaddr *)&to, size) != 0) {
        close(s);
        s = -1;
    }
    out.socket = s + 1;
    return s >= 0;
}

static void lose_touch(void)
{
    if (out.socket)
        close(out.socket - 1);
    out.socket = 0;
}

/* False: not now. */
static bool send_notice(const struct notice *x)
{
    struct iovec iov = {(char *)x->text, strlen(x->text)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    for (int tries = 0; tries < 2 && reach(); tries++) {
        if (rights_send(out.socket - 1, &m, x->fd, 0) >= 0)
            return true;
        if (errno == EAGAIN)
            return false;
        lose_touch(); /* the manager may have been started again */
    }
    return true; /* there is nobody to tell */
}

static void forget_first(void)
{
    struct notice *x = out.first;
    out.first = x->next;
    if (!out.first)
        out.last = NULL;
    if (x->fd >= 0)
        close(x->fd);
    mem_free(x);
    out.n--;
}

int notify_waits(void)
{
    return out.first ? out.socket - 1 : -1;
}

void notify_go_on(void)
{
    while (out.first && send_notice(out.first))
        forget_first();
    out.full &= out.first != NULL;
}

void notify_finish(void)
{
    const uint64_t until = clock_ns() + (uint64_t)(FINISH_S * 1e9);
    for (uint64_t now = clock_ns(); out.first && now < until; now = clock_ns()) {
        struct pollfd p = {.fd = notify_waits(), .events = POLLOUT};
        (void)poll(&p, 1, (int)((until - now) / 1000000 + 1));
        notify_go_on();
    }
    while (out.first)
        forget_first();
    lose_touch();
}

static void say(const char *text, int fd)
{
    if (!getenv("NOTIFY_SOCKET"))
        return;
    const size_t n = strlen(text) + 1;
    struct notice *x = out.n < MOST ? mem_calloc(1, sizeof *x + n) : NULL;
    const int copy = x && fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!x || (fd >= 0 && copy < 0)) {
        if (!out.full)
            log_event(LOG_WARN, "the service manager cannot be told everything", "first", text,
                      NULL);
        out.full = true;
        mem_free(x);
        return;
    }
    x->fd = copy;
    memcpy(x->text, text, n);
    *(out.last ? &out.last->next : &out.first) = x;
    out.last = x;
    out.n++;
    notify_go_on();
}

void notify_say(const char *text)
{
    say(text, -1);
}

static void about(const char *what, const char *name, unsigned number, int fd)
{
    char text[LINK_NAME + 64];
    if (number)
        snprintf(text, sizeof text, "%s\nFDNAME=%s%c%u", what, name, NUMBER, number);
    else
        snprintf(text, sizeof text, "%s\nFDNAME=%s", what, name);
    say(text, fd);
}

/* FDPOLL=0: a connection whose other end has closed stays, since it is for the daemon to notice. */
void notify_store(const char *name, unsigned number, int fd)
{
    about("FDSTORE=1\nFDPOLL=0", name, number, fd);
    if (number)
        notify_remove(name, number - 1);
}

void notify_remove(const char *name, unsigned number)
{
    about("FDSTOREREMOVE=1", name, number, -1);
}

/* Cuts the number off. */
static unsigned number_of(char *name)
{
    char *at = strrchr(name, NUMBER);
    if (!at)
        return 0;
    *at = '\0';
    return (unsigned)strtoul(at + 1, NULL, 10);
}

void notify_each_stored(void (*take)(void *user, const char *name, unsigned number, int take_fd),
                        void *user)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    char *names = mem_strdup(getenv("LISTEN_FDNAMES") ? getenv("LISTEN_FDNAMES") : "");
    char *rest = names;
    int n = pid && count && strtol(pid, NULL, 10) == (long)getpid() ? atoi(count) : 0;
    for (int fd = FIRST_STORED; fd < FIRST_STORED + n; fd++) {
        char *name = rest ? strsep(&rest, ":") : NULL;
        const unsigned number = name ? number_of(name) : 0;
        if (name && link_name_ok(name) && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
            take(user, name, number, fd);
        else
            close(fd);
    }
    mem_free(names);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
}
