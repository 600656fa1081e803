/* One datagram a message. A store may be full, or switched off: the service manager does not tell,
 * and nothing here relies on it. In the store a name may be there several times, and is removed as
 * a whole: so what replaces something has a name of its own, "journal#2". The manager knows each by
 * a number (names.h); what an earlier version left there may have its name itself. */
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
#include "server/keeper/names.h"
#include "server/keeper/rights.h"

#define FIRST_STORED 3
#define NUMBER       '#'
#define MOST         20000 /* messages that wait: beyond it the manager has lost touch */
#define FINISH_S     1.0
#define SPARE        16 /* numbers that are not for one of many */

struct notice {
    struct notice *next;
    int fd;    /* −1: none */
    int frees; /* the number that is free once this is sent; −1: none */
    char text[];
};

static struct {
    int socket; /* + 1; 0: none */
    struct notice *first, *last;
    int n;
    bool full;       /* said so */
    bool store_full; /* as well */
    bool named;      /* the store has the file of the names */
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
    if (x->frees >= 0)
        names_free(x->frees);
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

/* False: it could not be kept. */
static bool say(const char *text, int fd, int frees)
{
    const size_t n = strlen(text) + 1;
    struct notice *x = out.n < MOST ? mem_calloc(1, sizeof *x + n) : NULL;
    const int copy = x && fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!x || (fd >= 0 && copy < 0)) {
        if (!out.full)
            log_event(LOG_WARN, "the service manager cannot be told everything", "first", text,
                      NULL);
        out.full = true;
        mem_free(x);
        return false;
    }
    x->fd = copy;
    x->frees = frees;
    memcpy(x->text, text, n);
    *(out.last ? &out.last->next : &out.first) = x;
    out.last = x;
    out.n++;
    notify_go_on();
    return true;
}

static bool is_there(void)
{
    return getenv("NOTIFY_SOCKET");
}

void notify_say(const char *text)
{
    if (is_there())
        (void)say(text, -1, -1);
}

/* FDPOLL=0: a connection whose other end has closed stays, since it is for the daemon to notice. */
static bool say_store(const char *name, int fd)
{
    char text[64];
    snprintf(text, sizeof text, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    return say(text, fd, -1);
}

static bool say_remove(const char *name, int frees)
{
    char text[NAMES_TEXT + 64];
    snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return say(text, -1, frees);
}

static void name_it(const char *name, unsigned number, char ret[NAMES_TEXT])
{
    if (number)
        snprintf(ret, NAMES_TEXT, "%s%c%u", name, NUMBER, number);
    else
        snprintf(ret, NAMES_TEXT, "%s", name);
}

static void remove_numbered(int i)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%d", i);
    names_forget(i);
    (void)say_remove(digits, i);
}

/* How many the store takes besides the names. */
static int room(void)
{
    const char *told = getenv("FDSTORE");
    const int n = told ? atoi(told) : 0;
    return n > 0 && n <= NAMES_MOST ? n - 1 : NAMES_MOST;
}

void notify_store(const char *name, unsigned number, int fd, bool many)
{
    char text[NAMES_TEXT], digits[16];
    if (!is_there())
        return;
    if (!out.named)
        out.named = (names_file() >= 0 || names_create()) && say_store(NAMES_FILE, names_file());
    name_it(name, number, text);
    const int i = out.named ? names_add(text, room() - (many ? SPARE : 0)) : -1;
    snprintf(digits, sizeof digits, "%d", i);
    if (i >= 0 && !say_store(digits, fd))
        names_free(i);
    if (i < 0 && !out.store_full)
        log_event(LOG_WARN,
                  "the service manager's store is full (FileDescriptorStoreMax of the service): "
                  "what is new does not outlive the keeper",
                  "first", text, NULL);
    out.store_full |= i < 0;
    if (number)
        notify_remove(name, number - 1);
}

void notify_remove(const char *name, unsigned number)
{
    char text[NAMES_TEXT];
    if (!is_there())
        return;
    name_it(name, number, text);
    const int i = names_find(text);
    if (i >= 0)
        remove_numbered(i);
    else
        (void)say_remove(text, -1);
    out.store_full &= names_count() > room() - room() / 16;
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

/* The name of what the manager has under a number, or another name; false: it has no name. */
static bool find_name(const char *called, char ret[NAMES_TEXT])
{
    char *end;
    const unsigned long i = strtoul(called, &end, 10);
    const bool numbered = end > called && !*end && i < NAMES_MOST;
    const char *name = numbered ? names_claim((int)i) : called;
    if (name)
        snprintf(ret, NAMES_TEXT, "%s", name);
    else
        remove_numbered((int)i);
    return name;
}

/* The place of a name in LISTEN_FDNAMES; −1: it is not there. */
static int place_of(const char *names, const char *name)
{
    size_t n;
    for (int i = 0; *names; i++, names += n + (names[n] == ':')) {
        n = strcspn(names, ":");
        if (n == strlen(name) && !memcmp(names, name, n))
            return i;
    }
    return -1;
}

void notify_each_stored(void (*take)(void *user, const char *name, unsigned number, int take_fd),
                        void *user)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    char *names = mem_strdup(getenv("LISTEN_FDNAMES") ? getenv("LISTEN_FDNAMES") : "");
    char *rest = names;
    int n = pid && count && strtol(pid, NULL, 10) == (long)getpid() ? atoi(count) : 0;
    const int file = names ? place_of(names, NAMES_FILE) : -1;
    out.named = file >= 0 && file < n && fcntl(FIRST_STORED + file, F_SETFD, FD_CLOEXEC) == 0;
    if (out.named)
        names_take(FIRST_STORED + file);
    for (int i = 0, fd = FIRST_STORED; i < n; i++, fd++) {
        const char *called = rest ? strsep(&rest, ":") : NULL;
        char name[NAMES_TEXT];
        if (out.named && i == file)
            continue;
        const bool found = called && find_name(called, name);
        const unsigned number = found ? number_of(name) : 0;
        if (found && link_name_ok(name) && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
            take(user, name, number, fd);
        else
            close(fd);
    }
    mem_free(names);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
}
