/* `arrayd bench`: how fast this machine computes, as a table.
 *
 * It starts a daemon of its own with the options it was given, on a Unix socket in an empty folder,
 * and is its client (bench_cases.c), so that the figures are what users see: on one device after
 * the other, in a session there. */
#include "server/commands/bench.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/commands/device.h"
#include "server/config/config.h"

#define START_S   60
#define DEVICES   65 /* at most; the mesh among them */
#define EDGE_GPU  512
#define EDGE_HOST 256

static bool reach(struct bench *b, const char *path, pid_t *daemon)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    b->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (double until = clock_s() + START_S; clock_s() < until; usleep(10000)) {
        if (connect(b->fd, (struct sockaddr *)&a, sizeof a) == 0)
            return true;
        if (waitpid(*daemon, NULL, WNOHANG) != 0) {
            *daemon = -1; /* it has said why */
            break;
        }
    }
    return false;
}

/* The session that is measured in, on that device. */
static void enter(struct bench *b, const char *device)
{
    const char *id =
        strstr(bench_ask(b, "POST", "/v1/sessions", "{\"device\":%s}", device), "\"id\":\"");
    if (!id || sscanf(id, "\"id\":\"%63[^\"]", b->session) != 1)
        bench_fail(b, "no session", b->reply);
}

static void leave(struct bench *b)
{
    char path[100];
    if (!*b->session)
        return;
    snprintf(path, sizeof path, "/v1/sessions/%s", b->session);
    *b->session = '\0';
    b->failed = b->gone;
    (void)bench_ask(b, "DELETE", path, "%s", "");
}

static void run(struct bench *b)
{
    static const char *const random =
        "{\"shape\":[%lld,%lld,%lld],\"dtype\":\"float32\",\"random\":"
        "{\"distribution\":\"uniform\",\"seed\":%d,\"low\":%s,\"high\":2}}";
    long long n = b->n;
    (void)bench_ask(b, "PUT", "/v1/arrays/a", random, n, n, n, 1, "-2");
    (void)bench_ask(b, "PUT", "/v1/arrays/b", random, n, n, n, 2, "0.5");
    (void)bench_ask(b, "PUT", "/v1/arrays/c", random, n, n, n, 3, "-2");
    static const char *const of_three = "{\"shape\":[%lld,%lld,%lld],\"dtype\":\"float32\"}",
                             *const of_two = "{\"shape\":[%lld,%lld],\"dtype\":\"float32\"}";
    (void)bench_ask(b, "PUT", "/v1/arrays/o", of_three, n, n, n);
    (void)bench_ask(b, "PUT", "/v1/arrays/q", of_three, n, n, n);
    (void)bench_ask(b, "PUT", "/v1/arrays/g", of_two, 16 * n, 16 * n);
    (void)bench_ask(b, "PUT", "/v1/arrays/h", of_two, 16 * n, 16 * n);
    (void)bench_ask(b, "PUT", "/v1/arrays/p", of_two, n, n);
    bench_large(b);
    bench_small(b);
}

/* --- devices --- */

struct found {
    char device[16], called[192];
};

/* The devices of /v1/info. The mesh is the last, and has the first list in theirs. */
static int find_devices(const char *info, struct found ret[DEVICES])
{
    static const char *const begin = "{\"index\":";
    const char *at = strstr(info, "\"devices\":["), *end = at ? strchr(at, ']') : NULL;
    const char *parts = at ? strstr(at, "\"parts\":[") : NULL;
    int n = 0;
    at = at ? strstr(at, begin) : NULL;
    for (const char *next; at && at < end && n < DEVICES; n++, at = next) {
        const char *name = strstr(at, "\"name\":\"");
        next = strstr(at + 1, begin);
        const bool mesh = parts && parts > at && parts < end && !(next && next < parts);
        char text[128] = "";
        if (name)
            (void)sscanf(name, "\"name\":\"%127[^\"]", text);
        snprintf(ret[n].device, sizeof ret[n].device, mesh ? "\"mesh\"" : "%d",
                 atoi(at + strlen(begin)));
        snprintf(ret[n].called, sizeof ret[n].called, "device %d%s: %s", n,
                 mesh ? ", the mesh" : "", text);
    }
    return n;
}

/* False: it failed. */
static bool run_on(struct bench *b, const struct found *f, bool only)
{
    memcpy(b->device, f->device, sizeof b->device);
    snprintf(b->called, sizeof b->called, "%s%s", only ? "" : f->called, only ? "" : ": ");
    b->failed = false;
    enter(b, f->device);
    if (!only && !b->json && !b->failed)
        printf("%s\n\n", f->called);
    run(b);
    const bool failed = b->failed;
    if (!only && !b->json)
        puts("");
    leave(b);
    return !failed;
}

/* On the device that was asked for, or on each; what fails on one may work on another. */
static bool run_all(struct bench *b, const char *device)
{
    static struct found all[DEVICES];
    const char *info = bench_ask(b, "GET", "/v1/info", "%s", "");
    const bool host = strstr(info, "\"backend\":\"cpu\"") != NULL;
    int n = find_devices(info, all);
    bool fine = !b->failed;
    if (!b->n)
        b->n = host ? EDGE_HOST : EDGE_GPU;
    if (device) {
        snprintf(all[0].device, sizeof all[0].device, isdigit(*device) ? "%s" : "\"%s\"", device);
        n = 1;
    }
    for (int i = 0; i < n && !b->gone; i++)
        fine = run_on(b, &all[i], n == 1) && fine;
    return fine;
}

static void start(int n, char *const *options, const char *address)
{
    char **argv = mem_calloc((size_t)n + 6, sizeof *argv);
    if (!argv)
        _exit(1);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    memcpy(argv, options, (size_t)n * sizeof *argv);
    argv[0] = "arrayd";
    const char *more[] = {"--no-keeper", "--log-level", "error", "--listen", address};
    memcpy(argv + n, more, sizeof more);
    execv("/proc/self/exe", argv);
    _exit(1);
}

static int measure(struct bench *b, const char *device, int n, char *const *options)
{
    const char *tmp = getenv("TMPDIR");
    char folder[96], path[104], address[112]; /* a socket's path has at most 107 bytes */
    if (!tmp ||
        snprintf(folder, sizeof folder, "%s/arrayd-bench-XXXXXX", tmp) >= (int)sizeof folder)
        snprintf(folder, sizeof folder, "/tmp/arrayd-bench-XXXXXX");
    if (!mkdtemp(folder)) {
        bench_fail(b, folder, strerror(errno));
        return 1;
    }
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    pid_t daemon = fork();
    if (daemon == 0)
        start(n, options, address);
    bool fine = false;
    if (daemon > 0 && reach(b, path, &daemon))
        fine = run_all(b, device);
    else
        bench_fail(b, "the daemon does not start", "see what it says with --log-level info");
    if (daemon > 0) {
        kill(daemon, SIGTERM);
        (void)waitpid(daemon, NULL, 0);
    }
    close(b->fd);
    unlink(path);
    rmdir(folder);
    return !fine;
}

static void usage(void)
{
    puts("usage: arrayd bench [--size N] [--device N|mesh] [--json] [option]...\n"
         "\n"
         "Starts a daemon with these options (see arrayd --help), measures what it does with "
         "arrays\n"
         "of N^3 float32 (512 on a GPU, 256 otherwise) and with small requests, on each of its\n"
         "devices or on one, and prints a table of each:\n"
         "milliseconds, the fewest bytes that must be moved, the time as a number of copies of an\n"
         "array, and the fraction of the copy's rate at which those bytes were moved.\n"
         "Exit status: 0, 1 if it failed or a result was wrong, 2 for a wrong option.");
}

/* Options by which the daemon that is started would read, change or own what a service has. */
static bool is_of_a_service(const struct config *c)
{
    struct config plain;
    enum config_action action;
    char *name = (char *)(uintptr_t) "arrayd";
    bool serves = c->state_dir || c->audit_log || c->accounts || c->admin_listen.n;
    if (!serves && config_load(1, &name, &plain, &action, NULL) == ERR_OK) {
        serves =
            c->listen.n != plain.listen.n || strcmp(c->listen.items[0], plain.listen.items[0]) != 0;
        config_free(&plain);
    }
    return serves;
}

static bool is_device(const char *text)
{
    return !text || !strcmp(text, "mesh") ||
           (*text && strlen(text) < 4 && strspn(text, "0123456789") == strlen(text));
}

int bench_main(int argc, char **argv)
{
    static struct bench b = {.fd = -1};
    const char *device = NULL;
    int n = 0;
    bool sized = true;
    for (int i = 0; i < argc; i++)
        if (i && !strcmp(argv[i], "--json"))
            b.json = true;
        else if (i + 1 < argc && i && !strcmp(argv[i], "--size"))
            sized = (b.n = atol(argv[++i])) >= 8 && b.n <= 2048;
        else if (i + 1 < argc && i && !strcmp(argv[i], "--device"))
            device = argv[++i];
        else
            argv[n++] = argv[i];
    struct config c;
    enum config_action action;
    struct err e = ERR_INIT;
    if (!sized || !is_device(device) || config_load(n, argv, &c, &action, &e) != ERR_OK) {
        fprintf(stderr, "arrayd bench: %s\n",
                e.message[0] ? e.message
                : !sized     ? "--size is 8 to 2048"
                             : "--device is a device's number or mesh");
        return 2;
    }
    const bool serves = is_of_a_service(&c);
    config_free(&c);
    if (action == CONFIG_RUN && serves) {
        fputs("arrayd bench: leave out state-dir, audit-log, accounts, listen and admin-listen: it "
              "starts a daemon of its own, which must touch nothing of another's\n",
              stderr);
        return 2;
    }
    if (action == CONFIG_RUN)
        return measure(&b, device, n, argv);
    usage();
    return 0;
}
