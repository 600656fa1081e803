/* Listening Unix sockets. If a killed daemon has left its socket behind, connecting to it is
 * refused, and the new socket replaces it. */
#include "server/http/unix_socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define BACKLOG 1024

/* Removes a socket that a dead daemon left behind. */
static enum err_code clear_stale(const char *path, const struct sockaddr_un *addr, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return ERR_OK;
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_BAD_FIELD, "unix:%s: this file exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = fd < 0 || connect(fd, (const struct sockaddr *)addr, sizeof *addr) != 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (!failed)
        return err_set(e, ERR_BAD_FIELD, "unix:%s: another daemon is listening there", path);
    if (why != ECONNREFUSED)
        return err_set(e, ERR_BAD_FIELD, "unix:%s: %s", path, strerror(why));
    unlink(path);
    return ERR_OK;
}

enum err_code unix_listen(const char *path, int mode, int *ret_fd, struct err *e)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof addr.sun_path)
        return err_set(e, ERR_BAD_FIELD, "unix:%s: the path must have 1 to %zu bytes", path,
                       sizeof addr.sun_path - 1);
    strcpy(addr.sun_path, path);
    TRY(clear_stale(path, &addr, e));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(e, ERR_INTERNAL, "unix:%s: %s", path, strerror(errno));
    /* Bound without permissions first, so that it never has others than `mode`. The umask belongs
     * to the whole process, but no other thread creates files yet. */
    mode_t old = umask(0777);
    int failed = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    int why = errno;
    umask(old);
    if (!failed && (chmod(path, (mode_t)mode) != 0 || listen(fd, BACKLOG) != 0)) {
        failed = 1;
        why = errno;
        unlink(path);
    }
    if (failed) {
        close(fd);
        return err_set(e, ERR_BAD_FIELD, "unix:%s: %s", path, strerror(why));
    }
    *ret_fd = fd;
    return ERR_OK;
}

void unix_remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct stat st;
    for (const struct dirent *d = folder ? readdir(folder) : NULL; d; d = readdir(folder))
        if (fstatat(dirfd(folder), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(st.st_mode))
            unlinkat(dirfd(folder), d->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

int unix_peer(int fd)
{
    int process = -1;
    socklen_t n = sizeof process;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &n) == 0)
        return process;
    struct ucred peer;
    n = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0 || peer.pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}
