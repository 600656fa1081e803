/* The name comes from the kernel (AT_EXECFN): argv[0] may be anything. */
#include "server/keeper/program.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same(int fd, const char *path)
{
    struct stat runs, is;
    return fstat(fd, &runs) == 0 && stat(path, &is) == 0 && runs.st_dev == is.st_dev &&
           runs.st_ino == is.st_ino;
}

bool program_find(char ret_path[PATH_MAX], int *ret)
{
    const char *name = (const char *)getauxval(AT_EXECFN);
    char folder[PATH_MAX] = "";
    if (name && *name != '/' && !getcwd(folder, sizeof folder))
        name = NULL;
    int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    if (fd < 0 && name)
        fd = open(name, O_PATH | O_CLOEXEC);
    *ret = fd;
    const int n =
        name ? snprintf(ret_path, PATH_MAX, "%s%s%s", folder, *folder ? "/" : "", name) : -1;
    if (n > 0 && n < PATH_MAX && strncmp(ret_path, "/dev/fd/", 8) != 0 &&
        strncmp(ret_path, "/proc/", 6) != 0 && is_same(fd, ret_path))
        return true;
    const ssize_t exe = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);
    ret_path[exe > 0 ? exe : 0] = '\0';
    return exe > 0 && fd >= 0;
}
