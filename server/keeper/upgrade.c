/* The keeper and its daemon are known by their names in /proc. */
#include "server/keeper/upgrade.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/keeper/keeper.h"
#include "server/keeper/reason.h"

#define TICK_NS    5000000
#define MOST_TICKS 400 /* until the keeper has begun */

static bool read_line(pid_t pid, const char *file, char *ret, int size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(ret, size, f);
    if (f)
        fclose(f);
    if (ok)
        ret[strcspn(ret, "\n")] = '\0';
    return ok;
}

static bool is_named(pid_t pid, const char *name)
{
    char is[64];
    return read_line(pid, "comm", is, sizeof is) && !strcmp(is, name);
}

static bool is_keeper(pid_t pid)
{
    return is_named(pid, KEEPER_NAME) || is_named(pid, KEEPER_UPGRADES);
}

static bool is_mine(pid_t pid)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && (st.st_uid == geteuid() || geteuid() == 0);
}

/* The daemon proper; 0: none just now. */
static pid_t daemon_of(pid_t keeper)
{
    char file[48], children[4096] = "", *rest = children;
    snprintf(file, sizeof file, "task/%d/children", (int)keeper);
    if (!read_line(keeper, file, children, sizeof children))
        return 0;
    for (const char *x = strsep(&rest, " "); x; x = strsep(&rest, " ")) /* orphans, a checker */
        if (*x && is_named((pid_t)atoi(x), KEEPER_DAEMON))
            return (pid_t)atoi(x);
    return 0;
}

/* 0: none or several, which has been said. */
static pid_t find_keeper(void)
{
    pid_t found = 0;
    int n = 0;
    DIR *d = opendir("/proc");
    const struct dirent *x = d ? readdir(d) : NULL;
    for (; x; x = readdir(d)) {
        pid_t pid = (pid_t)atoi(x->d_name);
        if (pid <= 0 || !is_keeper(pid) || !is_mine(pid))
            continue;
        found = pid;
        n++;
    }
    if (d)
        closedir(d);
    if (n == 1)
        return found;
    fprintf(stderr, "arrayd upgrade: %s\n",
            n ? "several daemons run here: give the pid of one's keeper (its first process)"
              : "no daemon with a keeper is running");
    return 0;
}

/* How often its keeper has started a daemon again, up to this one; −1: unknown. */
static int restarts_of(pid_t daemon)
{
    static char text[1 << 18];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)daemon);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0, name = strlen(KEEPER_RESTARTS_ENV "=");
    if (f)
        fclose(f);
    text[n] = '\0';
    for (const char *x = text; x < text + n; x += strlen(x) + 1)
        if (!strncmp(x, KEEPER_RESTARTS_ENV "=", name))
            return atoi(x + name);
    return -1;
}

/* The keeper has another name during the upgrade. If the new program does not become ready, the
 * keeper starts the old one again, which is one more start. */
static int wait_for_it(pid_t keeper, pid_t before, int restarts)
{
    bool seen = false;
    pid_t now = before;
    for (int i = 0; is_keeper(keeper); i++) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        now = daemon_of(keeper);
        if (is_named(keeper, KEEPER_UPGRADES))
            seen = true;
        else if (seen || (now && now != before) || i > MOST_TICKS)
            break;
    }
    char why[REASON_SIZE];
    const bool said = reason_of(keeper, why);
    if (now && now != before && restarts >= 0 && restarts_of(now) == restarts + 1) {
        if (said)
            fprintf(stderr, "arrayd upgrade: %s\n", why);
        return 0;
    }
    fprintf(stderr, "arrayd upgrade: the daemon was not replaced: %s\n",
            said ? why : "the keeper's log says why");
    return 1;
}

int upgrade_main(int argc, char **argv)
{
    char *end = NULL;
    long given = argc == 2 ? strtol(argv[1], &end, 10) : 0;
    if (argc > 2 || (argc == 2 && (*end || given <= 0))) {
        fputs("usage: arrayd upgrade [PID]\n", stderr);
        return 2;
    }
    pid_t keeper = given ? (pid_t)given : find_keeper();
    if (!keeper)
        return 1;
    if (!is_keeper(keeper)) {
        fprintf(stderr, "arrayd upgrade: process %ld is not a keeper\n", given);
        return 1;
    }
    const pid_t before = daemon_of(keeper);
    const int restarts = before ? restarts_of(before) : -1;
    if (kill(keeper, SIGUSR2) != 0) {
        fprintf(stderr, "arrayd upgrade: process %d: %s\n", (int)keeper, strerror(errno));
        return 1;
    }
    return wait_for_it(keeper, before, restarts);
}
