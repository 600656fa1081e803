/* One thread, one poll: signals (signalfd), the daemon's messages, and the time of the next start.
 *
 * A daemon is gone when it has been waited for: the kernel has then closed its files, and with them
 * its context on a device, and unmapped its memory. Only then are its last messages read to the end
 * and the next one started.
 *
 * The program is run by a descriptor, so that what is started after a crash is what was running
 * before it, even if another version has been installed in the meantime. */
#include "server/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "server/keeper/answer.h"
#include "server/keeper/held.h"
#include "server/keeper/notify.h"
#include "server/keeper/pace.h"
#include "server/keeper/program.h"
#include "server/keeper/reason.h"

#define LASTED_S     1.0 /* a start that lasts so long was none that failed */
#define CHECK_S      30.0
#define BEGIN_S      600.0 /* for a new program to become ready, state and all */
#define AT_ONCE      3     /* so many signals to end leave no time */
#define EXIT_NO_EXEC 127
#define RESERVE      (ANSWERS_MOST + 16) /* descriptors: for these, for starts, no LINK_ADD */
#define OWN          4                   /* descriptors that are polled besides the answers' */

struct keeper {
    struct keeper_config config;
    char path[PATH_MAX]; /* where the program is looked up for an upgrade */
    int program;         /* what runs, or ran last */
    int candidate;       /* an upgrade's program, until it is ready or has failed; −1: none */
    sigset_t signals;
    int signal_fd;
    struct held *table;
    pid_t daemon;        /* 0: none */
    int link;            /* −1: none */
    struct held *giving; /* the next to be given to it */
    bool given, ready;
    bool silent; /* all that it sent has been read, and it will send no more */
    uint64_t ready_ns;
    uint64_t down_ns; /* since then no daemon has been ready */
    struct answers answers;
    uint64_t start_ns;    /* of the next start, while there is no daemon */
    pid_t checker;        /* the candidate, asked; 0: none */
    int reason;           /* why the last upgrade failed (reason.h) */
    bool leaving;         /* the daemon was asked to leave for the candidate, */
    bool trying;          /* which was started */
    uint64_t deadline_ns; /* to kill the checker, or the daemon that leaves or is tried; 0: never */
    int failures, restarts;
    int signal;   /* that the last daemon died of; 0: of none, */
    time_t ended; /* and when; 0: there was none */
    struct pace pace;
    int unstarted; /* attempts in a row for which the system had no process */
    int ending;    /* the signal that ends everything; 0: none yet */
    int asked;     /* how often it came */
    bool done;
    int status;
};

static void finish(struct keeper *k, int status)
{
    k->done = true;
    k->status = status;
}

/* For `arrayd upgrade`, which waits for the outcome. */
static void show_upgrade(bool on)
{
    prctl(PR_SET_NAME, on ? KEEPER_UPGRADES : KEEPER_NAME);
}

/* --- starting --- */

/* In the child. The signals stay blocked: the daemon takes them by sigwait, and none is lost, or
 * deadly, before it does. */
static void become(const struct keeper *k, int program, const char *name, int value)
{
    char text[32];
    sigset_t mask = k->signals;
    sigdelset(&mask, SIGCHLD);
    sigdelset(&mask, SIGTSTP);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
    snprintf(text, sizeof text, "%d", k->restarts);
    setenv(KEEPER_RESTARTS_ENV, text, 1);
    snprintf(text, sizeof text, "%d %lld", k->signal, (long long)k->ended);
    setenv(KEEPER_SIGNAL_ENV, text, 1);
    unsetenv("NOTIFY_SOCKET"); /* readiness is the keeper's to tell */
    if (value >= 0)
        fcntl(value, F_SETFD, 0);
    if (!strcmp(name, KEEPER_CHECK_ENV)) {
        held_pass(k->table, k->config.sockets, KEEPER_SOCKETS_ENV);
        dup2(k->reason, STDERR_FILENO);
    }
    fexecve(program, k->config.argv, environ);
    fprintf(stderr, "arrayd: %s: %s\n", k->path, strerror(errno));
    _exit(EXIT_NO_EXEC);
}

/* Returns the child's pid, or −1. It dies with this process, and is in a process group of its own:
 * a terminal's signals reach it once, through here. */
static pid_t run(const struct keeper *k, int program, const char *name, int value)
{
    pid_t self = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self)
        _exit(KEEPER_GONE);
    become(k, program, name, value);
    return -1; /* not reached */
}

static void start_later(struct keeper *k, double delay_s)
{
    k->start_ns = clock_ns() + (uint64_t)(delay_s * 1e9);
}

static void start(struct keeper *k)
{
    int pair[2];
    pid_t pid = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        pid = run(k, k->trying ? k->candidate : k->program, LINK_ENV, pair[1]);
        close(pair[1]);
        if (pid < 0)
            close(pair[0]);
    }
    if (pid < 0) {
        log_event(LOG_ERROR, "the daemon cannot be started", "reason", strerror(errno), NULL);
        start_later(k, pace_delay(++k->unstarted + 1));
        return;
    }
    k->unstarted = 0;
    k->daemon = pid;
    k->link = pair[0];
    k->giving = k->table;
    k->given = k->ready = k->silent = false;
    if (k->trying)
        k->deadline_ns = clock_ns() + (uint64_t)(BEGIN_S * 1e9);
    if (k->ending)
        kill(pid, k->ending);
}

/* Sends the daemon what is held, as far as its socket takes it. */
static void give(struct keeper *k)
{
    while (k->giving) {
        if (!link_send(k->link, LINK_HAVE, k->giving->name, k->giving->fd, false))
            return;
        k->giving = k->giving->hh.next;
    }
    k->given = link_send(k->link, LINK_END, "", -1, false);
}

/* --- the daemon's messages --- */

static void is_ready(struct keeper *k, const char *missing)
{
    if (k->trying) {
        close(k->program);
        k->program = k->candidate;
        k->candidate = -1;
        k->trying = false;
        k->deadline_ns = 0;
        reason_set(k->reason, missing);
        show_upgrade(false);
        log_event(LOG_INFO, "the daemon was upgraded", NULL);
    }
    k->ready = true;
    k->ready_ns = clock_ns();
    notify_say("READY=1");
}

/* The lowest free number is what the next descriptor gets: so few are left from that one on. */
static bool is_scarce(int fd)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
           (rlim_t)fd + RESERVE >= files.rlim_cur;
}

static bool keep(struct keeper *k, const struct link_message *m)
{
    const struct held *h = held_find(k->table, m->name);
    const unsigned number = h ? h->number + 1 : 0;
    if (m->fd < 0 || !link_name_ok(m->name) || (m->kind == LINK_ADD && !h && is_scarce(m->fd))) {
        if (m->fd >= 0)
            close(m->fd);
        return false;
    }
    if (!held_put(&k->table, m->name, number, m->fd))
        return false;
    notify_store(m->name, number, m->fd, m->kind == LINK_ADD);
    return true;
}

static void obey(struct keeper *k, const struct link_message *m)
{
    const struct held *h = held_find(k->table, m->name);
    if (m->kind == LINK_PUT || m->kind == LINK_ADD) { /* a daemon has one put at a time under way */
        const bool kept = keep(k, m);
        (void)link_send(k->link, kept ? LINK_KEPT : LINK_REFUSED, m->name, -1, false);
        return;
    }
    if (m->fd >= 0)
        close(m->fd);
    if (m->kind == LINK_READY)
        is_ready(k, m->name);
    else if (m->kind == LINK_DROP && h) {
        notify_remove(m->name, h->number);
        held_drop(&k->table, m->name);
    }
}

/* Until nothing more has come; if the daemon has died, to its last word. */
static void hear(struct keeper *k)
{
    struct link_message m;
    int got = link_receive(k->link, &m, false);
    while (got > 0 || (got < 0 && errno == EBADMSG)) {
        obey(k, &m);
        got = link_receive(k->link, &m, false);
    }
    k->silent = got == 0;
}

/* --- its end --- */

/* Whether it ended because it wanted to, or because it could not begin. One that has been started
 * again may begin next time: a mistake in a file may be mended, an address be free again. A new
 * program that cannot begin decides nothing, even at the end of everything: what is held is to be
 * saved by a daemon that has restored it. */
static bool is_decision(const struct keeper *k, int status)
{
    if (k->asked >= AT_ONCE)
        return true;
    if (k->leaving || k->trying)
        return false;
    if (k->ending)
        return true;
    if (!WIFEXITED(status))
        return false;
    switch (WEXITSTATUS(status)) {
    case 0:
        return true;
    case 1:
    case 2:
    case EXIT_NO_EXEC:
        return k->ready || k->restarts == 0;
    default:
        return false;
    }
}

/* After too many failures in a row. With this process, what it holds would end. */
static bool gives_up(struct keeper *k, const char *how)
{
    char failures[16], pieces[24];
    const size_t n = held_count(k->table, k->config.kept);
    snprintf(failures, sizeof failures, "%d", k->failures);
    snprintf(pieces, sizeof pieces, "%zu", n);
    log_event(LOG_ERROR,
              n ? "the daemon keeps failing; the keeper holds the memory of arrays, which would be "
                  "lost if it ended, and keeps trying"
                : "the daemon keeps failing; giving up",
              "how", how, "failures", failures, n ? "pieces_of_memory" : NULL, pieces, NULL);
    if (n == 0)
        finish(k, KEEPER_GAVE_UP);
    return n == 0;
}

static void start_again(struct keeper *k, const char *how)
{
    char delay[32];
    bool lasted = k->ready && clock_ns() - k->ready_ns >= (uint64_t)(LASTED_S * 1e9);
    if (k->leaving) {
        k->leaving = false;
        k->trying = true;
        k->deadline_ns = 0;
        k->failures = 0;
    } else if (k->trying) {
        log_event(LOG_ERROR, "the new program did not become ready; the old one keeps running",
                  "how", how, NULL);
        reason_set(k->reason, "the new program did not become ready: the keeper's log says why");
        close(k->candidate);
        k->candidate = -1;
        k->trying = false;
        k->deadline_ns = 0;
        show_upgrade(false);
    } else {
        k->failures = lasted ? 0 : k->failures + 1;
    }
    const bool often = k->failures > k->config.most_failures;
    if (often && gives_up(k, how))
        return;
    k->restarts++;
    double s = often ? PACE_MOST_S : pace_delay(k->failures),
           later = k->trying ? 0 : pace_after_death(&k->pace, k->config.most_deaths);
    s = s > later ? s : later;
    snprintf(delay, sizeof delay, "%.1f", s);
    if (!k->trying)
        log_event(LOG_WARN, "the daemon ended and is started again", "how", how, "delay_s", delay,
                  NULL);
    start_later(k, s);
}

static void daemon_ended(struct keeper *k, int status)
{
    char how[64];
    reason_of_end(status, how);
    k->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    k->ended = clock_date();
    hear(k);
    if (k->ready)
        k->down_ns = clock_ns();
    close(k->link);
    k->link = -1;
    k->daemon = 0;
    if (!is_decision(k, status))
        start_again(k, how);
    else
        finish(k,
               WIFEXITED(status) && WEXITSTATUS(status) != EXIT_NO_EXEC ? WEXITSTATUS(status) : 1);
}

/* --- upgrades --- */

/* What the checker has said comes first. */
static void upgrade_fails(struct keeper *k, const char *why)
{
    char said[REASON_SIZE];
    if (!reason_read(k->reason, said)) {
        snprintf(said, sizeof said, "%s", why);
        reason_set(k->reason, said);
    }
    log_event(LOG_ERROR, "upgrade failed; the running daemon is unchanged", "reason", said, NULL);
    if (k->candidate >= 0)
        close(k->candidate);
    k->candidate = -1;
    k->deadline_ns = 0;
    show_upgrade(false);
}

static void upgrade(struct keeper *k)
{
    struct held *journal = NULL;
    if (k->candidate >= 0 || k->ending || !k->ready) {
        if (k->candidate < 0)
            reason_set(k->reason, "the daemon is starting, or ending");
        log_event(LOG_WARN, "not upgraded: the daemon is starting, or ending", NULL);
        return;
    }
    reason_reset(k->reason);
    show_upgrade(true);
    k->candidate = open(k->path, O_PATH | O_CLOEXEC);
    if (k->candidate < 0) {
        upgrade_fails(k, strerror(errno));
        return;
    }
    HASH_FIND_STR(k->table, "journal", journal);
    int fd = journal ? fcntl(journal->fd, F_DUPFD_CLOEXEC, 0) : -1;
    k->checker = run(k, k->candidate, KEEPER_CHECK_ENV, fd);
    if (fd >= 0)
        close(fd);
    if (k->checker < 0) {
        k->checker = 0;
        upgrade_fails(k, strerror(errno));
        return;
    }
    k->deadline_ns = clock_ns() + (uint64_t)(CHECK_S * 1e9);
}

static void checker_ended(struct keeper *k, int status)
{
    char how[64];
    k->checker = 0;
    reason_of_end(status, how);
    if (k->ending || !k->daemon || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        upgrade_fails(k, how);
        return;
    }
    log_event(LOG_INFO, "upgrading", "program", k->path, NULL);
    reason_reset(k->reason);
    k->leaving = true;
    k->deadline_ns = clock_ns() + (uint64_t)(k->config.leave_s * 1e9);
    kill(k->daemon, SIGUSR2);
}

static void time_is_up(struct keeper *k)
{
    k->deadline_ns = 0;
    kill(k->checker ? k->checker : k->daemon, SIGKILL);
}

/* --- signals --- */

static void reap(struct keeper *k)
{
    int status;
    pid_t pid;
    /* as process 1 of a container, others' orphans too */
    for (;;) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        if (pid == k->daemon)
            daemon_ended(k, status);
        else if (pid == k->checker)
            checker_ended(k, status);
    }
}

static void end(struct keeper *k, int sig)
{
    if (!k->ending)
        notify_say("STOPPING=1");
    k->ending = sig;
    k->asked++;
    if (!k->daemon && k->asked < AT_ONCE)
        start_later(k, 0); /* it restores what is held, and saves it as it does at any end */
    else if (!k->daemon)
        finish(k, 1);
    else if (k->asked >= AT_ONCE) /* it may not have come to taking signals, or never will */
        kill(k->daemon, SIGKILL);
    else if (!k->leaving ||
             k->asked > 1)    /* one that leaves is in a hurry from the second on; the */
        kill(k->daemon, sig); /* one that comes after it is told, too, and saves */
}

static void pause_all(const struct keeper *k)
{
    if (k->daemon)
        kill(k->daemon, SIGSTOP);
    raise(SIGSTOP); /* until somebody sends SIGCONT */
    if (k->daemon)
        kill(k->daemon, SIGCONT);
}

static void take_signals(struct keeper *k)
{
    struct signalfd_siginfo s;
    while (read(k->signal_fd, &s, sizeof s) == sizeof s) {
        switch (s.ssi_signo) {
        case SIGCHLD:
            reap(k);
            break;
        case SIGTERM:
        case SIGINT:
            end(k, (int)s.ssi_signo);
            break;
        case SIGHUP:
            if (k->daemon)
                kill(k->daemon, SIGHUP);
            else
                start_later(k, 0); /* a file may have been corrected */
            break;
        case SIGUSR2:
            upgrade(k);
            break;
        case SIGTSTP: /* a terminal's: the daemon is in a group of its own */
            pause_all(k);
            break;
        default:
            break;
        }
    }
}

/* --- the process --- */

/* Two of one name: the previous keeper was about to replace the older one. */
static void store(void *user, const char *name, unsigned number, int take_fd)
{
    struct keeper *k = user;
    const struct held *h = held_find(k->table, name);
    if (h)
        notify_remove(name, h->number < number ? h->number : number);
    if (h && h->number > number)
        close(take_fd);
    else
        (void)held_put(&k->table, name, number, take_fd);
}

static bool begin(struct keeper *k)
{
    static const int taken[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
    struct rlimit files;
    sigemptyset(&k->signals);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&k->signals, taken[i]);
    sigprocmask(SIG_BLOCK, &k->signals, NULL);
    show_upgrade(false);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, nothing could be waited for */
    /* The log's reader has gone, its file is too large, or a terminal stops who writes to it from
     * the background, as the daemon does, which inherits this. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    k->down_ns = clock_ns();
    notify_each_stored(store, k);
    k->reason = reason_open();
    k->signal_fd = signalfd(-1, &k->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return program_find(k->path, &k->program) && k->signal_fd >= 0;
}

/* From when on connections are answered here; 0: they wait. */
static uint64_t answers_from(const struct keeper *k)
{
    if ((k->daemon && k->ready) || k->config.wait_s == 0)
        return 0;
    return k->down_ns + (uint64_t)(k->config.wait_s * 1e9);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Milliseconds until something is to be done without being asked; −1: never. */
static int timeout(const struct keeper *k, uint64_t now)
{
    const uint64_t own = k->daemon ? k->deadline_ns : k->start_ns, from = answers_from(k);
    const uint64_t at = sooner(sooner(own, from > now ? from : 0), answers_until(&k->answers));
    if (!at)
        return -1;
    return at <= now ? 0 : (int)((at - now) / 1000000 + 1);
}

static void poll_once(struct keeper *k)
{
    struct pollfd p[OWN + ANSWERS_POLLED] = {
        {.fd = k->signal_fd, .events = POLLIN},
        {.fd = k->silent ? -1 : k->link, .events = (short)(POLLIN | (k->given ? 0 : POLLOUT))},
        {.fd = notify_waits(), .events = POLLOUT},
        {.fd = k->config.follows && !k->ending ? STDIN_FILENO : -1},
    };
    const uint64_t before = clock_ns(), from = answers_from(k);
    const int n =
        answers_polled(&k->answers, k->table, k->config.answered, from && from <= before, p + OWN);
    if (poll(p, (nfds_t)n + OWN, timeout(k, before)) < 0 && errno != EINTR)
        return;
    if (p[1].revents & (POLLIN | POLLHUP))
        hear(k); /* first: once the daemon is ready, no connection is its keeper's */
    answers_go_on(&k->answers, p + OWN, n, answers_from(k) != 0);
    if (p[3].revents)
        end(k, SIGTERM);
    if (p[2].revents)
        notify_go_on();
    if (p[1].revents & POLLOUT)
        give(k);
    take_signals(k);
    uint64_t now = clock_ns();
    if (!k->done && !k->daemon && k->start_ns <= now)
        start(k);
    else if (k->daemon && k->deadline_ns && k->deadline_ns <= now)
        time_is_up(k);
}

int keeper_run(const struct keeper_config *config)
{
    struct keeper k = {
        .config = *config, .program = -1, .candidate = -1, .signal_fd = -1, .link = -1};
    if (!begin(&k)) {
        log_event(LOG_ERROR, "the keeper cannot start", "reason", strerror(errno), NULL);
        return 1;
    }
    start(&k);
    while (!k.done)
        poll_once(&k);
    notify_finish();
    held_free(&k.table);
    return k.status;
}
