/* A memfd, known by its name in /proc/PID/fd. */
#include "server/keeper/reason.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME   "arrayd-upgrade-reason"
#define PREFIX "arrayd: "

int reason_open(void)
{
    return memfd_create(NAME, MFD_CLOEXEC);
}

void reason_reset(int fd)
{
    if (fd >= 0 && ftruncate(fd, 0) == 0)
        (void)lseek(fd, 0, SEEK_SET);
}

void reason_set(int fd, const char *text)
{
    reason_reset(fd);
    if (fd >= 0)
        dprintf(fd, "%s\n", text);
}

bool reason_read(int fd, char ret[REASON_SIZE])
{
    char text[REASON_SIZE];
    const ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    text[n > 0 ? n : 0] = '\0';
    const char *from = strncmp(text, PREFIX, strlen(PREFIX)) ? text : text + strlen(PREFIX);
    size_t len = strlen(from);
    while (len && from[len - 1] == '\n')
        len--;
    for (size_t i = 0; i < len; i++)
        ret[i] = (char)(from[i] == '\n' ? ' ' : from[i]);
    ret[len] = '\0';
    return len;
}

bool reason_of(pid_t keeper, char ret[REASON_SIZE])
{
    char folder[64], path[PATH_MAX], to[PATH_MAX];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)keeper);
    DIR *d = opendir(folder);
    for (const struct dirent *x = d ? readdir(d) : NULL; x && !found; x = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
        const ssize_t n = readlink(path, to, sizeof to - 1);
        to[n > 0 ? n : 0] = '\0';
        if (strncmp(to, "/memfd:" NAME, strlen("/memfd:" NAME)) != 0)
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        found = reason_read(fd, ret);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    return found;
}

void reason_of_end(int status, char ret[64])
{
    if (WIFEXITED(status))
        snprintf(ret, 64, "exit status %d", WEXITSTATUS(status));
    else
        snprintf(ret, 64, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}
