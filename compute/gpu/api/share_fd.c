/* A short list, searched linearly: a driver call costs a thousand times as much. Nothing is closed
 * with the lock held, because closing may take long too. */
#include "compute/gpu/api/share_fd.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/base/lock.h"

#define PART 16 /* at most this part of the process's descriptors is kept */

void share_fds_init(struct share_fds *f)
{
    *f = (struct share_fds){.n = 0};
    pthread_mutex_init(&f->lock, NULL); /* cannot fail here */
}

void share_fds_free(struct share_fds *f)
{
    (void)share_fds_drop_all(f);
    pthread_mutex_destroy(&f->lock);
}

static int at_most(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return 0;
    return r.rlim_cur / PART < SHARE_FDS ? (int)(r.rlim_cur / PART) : SHARE_FDS;
}

/* --- with the lock held --- */

static struct kept_fd *find(struct share_fds *f, int64_t handle)
{
    lock_held(&f->lock);
    for (int i = 0; i < f->n; i++)
        if (f->kept[i].handle == handle)
            return &f->kept[i];
    return NULL;
}

static int take_out(struct share_fds *f, struct kept_fd *k)
{
    lock_held(&f->lock);
    int fd = k->fd;
    *k = f->kept[--f->n];
    return fd;
}

static struct kept_fd *longest_unasked(struct share_fds *f)
{
    lock_held(&f->lock);
    struct kept_fd *found = &f->kept[0];
    for (int i = 1; i < f->n; i++)
        if (f->kept[i].asked < found->asked)
            found = &f->kept[i];
    return found;
}

/* --- */

int share_fds_get(struct share_fds *f, int64_t handle)
{
    int fd = -1;
    pthread_mutex_lock(&f->lock);
    struct kept_fd *k = find(f, handle);
    if (k) {
        k->asked = ++f->clock;
        fd = fcntl(k->fd, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&f->lock);
    return fd;
}

void share_fds_keep(struct share_fds *f, int64_t handle, int fd)
{
    const int most = at_most();
    int ours = most > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1, gone = ours;
    if (ours < 0)
        return;
    pthread_mutex_lock(&f->lock);
    if (!find(f, handle)) { /* else another thread asked at the same time */
        gone = f->n >= most ? take_out(f, longest_unasked(f)) : -1;
        f->kept[f->n++] = (struct kept_fd){handle, ours, ++f->clock};
    }
    pthread_mutex_unlock(&f->lock);
    if (gone >= 0)
        close(gone);
}

void share_fds_drop(struct share_fds *f, int64_t handle)
{
    pthread_mutex_lock(&f->lock);
    struct kept_fd *k = find(f, handle);
    int fd = k ? take_out(f, k) : -1;
    pthread_mutex_unlock(&f->lock);
    if (fd >= 0)
        close(fd);
}

bool share_fds_drop_all(struct share_fds *f)
{
    int fds[SHARE_FDS], n = 0;
    pthread_mutex_lock(&f->lock);
    while (f->n)
        fds[n++] = take_out(f, &f->kept[0]);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return n > 0;
}
