/* Folders and paths: see folders.h. Whether something is a regular file is known before it is
 * opened: opening a device may do something, and opening a pipe may wait. */
#include "server/files/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "server/store/handles.h"

#define OWN_PREFIX ".arrayd-"

/* Folders in which this process has looked for what others have left, the last ones: only another
 * process can leave more. */
#define SWEPT_MOST 256
struct swept {
    pthread_mutex_t lock;
    struct {
        dev_t dev;
        ino_t ino;
    } at[SWEPT_MOST];
    size_t n; /* ever */
};

struct folders {
    bool accounts;
    struct swept swept;
    size_t n;
    struct folder all[];
};

enum err_code file_error(int number, const char *what, struct err *e)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP: /* a link */
    case EXDEV: /* it would leave the folder */
    case ENXIO:
        return err_set(e, ERR_NOT_FOUND, "there is no file or folder '%.200s'", what);
    case EACCES:
    case EPERM:
        return err_set(e, ERR_FORBIDDEN, "the daemon may not open '%.200s'", what);
    case EROFS:
        return err_set(e, ERR_READ_ONLY, "'%.200s' is on a file system that is read-only", what);
    case EEXIST:
    case EISDIR:
        return err_set(e, ERR_CONFLICT, "there is already something at '%.200s'", what);
    case ENAMETOOLONG:
        return err_set(e, ERR_BAD_NAME, "the path '%.200s' is too long", what);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return err_set(e, ERR_DISK_FULL, "'%.200s': %s", what, strerror(number));
    case ENOMEM:
        return err_oom(e);
    case EMFILE:
    case ENFILE:
        return err_set(e, ERR_OVERLOADED, "'%.200s': %s", what, strerror(number));
    default:
        return err_set(e, ERR_FILE_IO, "'%.200s': %s", what, strerror(number));
    }
}

/* --- the operator's folders --- */

static bool is_folder_name(const char *s, size_t n)
{
    static const char *const taken[] = {"import", "export", "bundle"};
    if (!n || n >= FOLDER_NAME_SIZE)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= 'A' && s[i] <= 'Z') && s[i] != '_' &&
            !(i && ((s[i] >= '0' && s[i] <= '9') || s[i] == '-')))
            return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strlen(taken[i]) == n && !memcmp(taken[i], s, n))
            return false;
    return true;
}

/* Takes ":word" off the end of the n bytes. */
static bool take_off(const char *value, size_t *n, const char *word)
{
    const size_t len = strlen(word);
    if (*n < len || memcmp(value + *n - len, word, len) != 0)
        return false;
    *n -= len;
    return true;
}

static enum err_code read_option(struct folders *f, const char *value, struct err *e)
{
    struct folder *x = &f->all[f->n];
    const char *eq = strchr(value, '=');
    size_t n = strlen(value);
    if (!eq || !is_folder_name(value, (size_t)(eq - value)))
        return err_set(
            e, ERR_BAD_FIELD,
            "files: '%.100s' is not NAME=FOLDER, with a name of letters, digits, '_' and "
            "'-' other than import, export and bundle",
            value);
    memcpy(x->name, value, (size_t)(eq - value));
    for (size_t before = 0; before != n;) {
        before = n;
        x->read_only |= take_off(value, &n, ":ro");
        x->shared |= take_off(value, &n, ":shared");
    }
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->all[i].name, x->name))
            return err_set(e, ERR_BAD_FIELD, "files: two folders have the name '%s'", x->name);
    const char *path = eq + 1;
    _cleanup_free_ char *copy = mem_strndup(path, n - (size_t)(path - value));
    if (!copy)
        return err_oom(e);
    x->fd = open(copy, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (x->fd < 0)
        return err_set(e, ERR_BAD_FIELD, "files: %.200s: %s", copy, strerror(errno));
    f->n++;
    return ERR_OK;
}

enum err_code folders_open(const struct config_list *options, bool accounts, struct folders **ret,
                           struct err *e)
{
    struct folders *f = mem_calloc(1, sizeof *f + options->n * sizeof *f->all);
    if (!f)
        return err_oom(e);
    f->accounts = accounts;
    pthread_mutex_init(&f->swept.lock, NULL);
    for (size_t i = 0; i < options->n; i++) {
        enum err_code code = read_option(f, options->items[i], e);
        if (code != ERR_OK) {
            folders_free(f);
            return code;
        }
    }
    for (size_t i = 0; i < f->n; i++)
        f->all[i].shared |= !accounts;
    for (size_t i = 0; i < f->n; i++)
        f->all[i].swept = &f->swept;
    *ret = f;
    return ERR_OK;
}

void folders_free(struct folders *f)
{
    for (size_t i = 0; f && i < f->n; i++)
        close(f->all[i].fd);
    if (f)
        pthread_mutex_destroy(&f->swept.lock);
    mem_free(f);
}

size_t folders_count(const struct folders *f)
{
    return f->n;
}

const struct folder *folders_at(const struct folders *f, size_t i)
{
    return &f->all[i];
}

enum err_code folders_find(const struct folders *f, const char *name, const struct folder **ret,
                           struct err *e)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->all[i].name, name)) {
            *ret = &f->all[i];
            return ERR_OK;
        }
    return err_set(e, ERR_NOT_FOUND, "there is no folder '%.64s'", name);
}

/* --- paths --- */

static bool is_name(const char *s, size_t n)
{
    if (n == 0 || n > FILE_NAME_MOST || (n == 1 && *s == '.') || (n == 2 && !memcmp(s, "..", 2)))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == 0x7F)
            return false;
    return n < strlen(OWN_PREFIX) || memcmp(s, OWN_PREFIX, strlen(OWN_PREFIX)) != 0;
}

enum err_code file_path_check(const char *path, struct err *e)
{
    if (strlen(path) > FILE_PATH_MOST)
        return err_set(e, ERR_BAD_NAME, "a path has at most %d bytes", FILE_PATH_MOST);
    for (const char *p = path;; p++) {
        const size_t n = strcspn(p, "/");
        if (!is_name(p, n))
            return err_set(e, ERR_BAD_NAME,
                           "a path is names of at most %d bytes separated by '/', none of them "
                           "'.', '..' or empty, or beginning with '" OWN_PREFIX "': not '%.100s'",
                           FILE_NAME_MOST, path);
        p += n;
        if (!*p)
            return ERR_OK;
    }
}

static int open_beneath(int folder, const char *path, uint64_t flags)
{
    const struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd;
    do
        fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR)); /* a folder was being renamed */
    return fd;
}

/* The user's part of a folder, or (shared) all of it, opened again. `make`: if it is not there, it
 * is made. */
static int open_part(const struct folder *f, const char *user, bool make)
{
    if (f->shared)
        return fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    int fd = open_beneath(f->fd, user, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT && make && (mkdirat(f->fd, user, 0700) == 0 || errno == EEXIST))
        fd = open_beneath(f->fd, user, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    return fd;
}

/* Opens for reading what an O_PATH descriptor is of: that and nothing else. */
static int open_again(int fd, int flags)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return open(self, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

enum err_code folder_open(const struct folder *f, const char *user, const char *path, int *ret_fd,
                          struct stat *ret, struct err *e)
{
    if (*path)
        TRY(file_path_check(path, e));
    const char *what = *path ? path : f->name;
    const int part = open_part(f, user, false);
    int fd = part < 0 || !*path ? part : open_beneath(part, path, O_PATH | O_NOFOLLOW);
    int number = errno;
    if (part >= 0 && fd != part)
        close(part);
    if (fd < 0)
        return file_error(number, what, e);
    int opened = -1;
    number = ENXIO;
    if (fstat(fd, ret) == 0 && (S_ISREG(ret->st_mode) || S_ISDIR(ret->st_mode))) {
        opened = open_again(fd, S_ISDIR(ret->st_mode) ? O_RDONLY | O_DIRECTORY : O_RDONLY);
        number = errno;
    }
    close(fd);
    if (opened < 0)
        return file_error(number, what, e);
    *ret_fd = opened;
    return ERR_OK;
}

enum err_code folder_open_file(const struct folder *f, const char *user, const char *path,
                               int *ret_fd, struct stat *ret, struct err *e)
{
    int fd;
    TRY(file_path_check(path, e));
    TRY(folder_open(f, user, path, &fd, ret, e));
    if (S_ISDIR(ret->st_mode)) {
        close(fd);
        return err_set(e, ERR_BAD_NAME, "'%.200s' is a folder", path);
    }
    *ret_fd = fd;
    return ERR_OK;
}

/* --- new files --- */

/* The folder of the path's last name. */
static enum err_code open_parent(const struct folder *f, const char *user, const char *path,
                                 struct new_file *n, struct err *e)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    _cleanup_free_ char *before = mem_strndup(path, slash ? (size_t)(slash - path) : 0);
    if (!before)
        return err_oom(e);
    snprintf(n->name, sizeof n->name, "%s", name);
    const int part = open_part(f, user, true);
    if (part < 0)
        return file_error(errno, f->name, e);
    n->folder = slash ? open_beneath(part, before, O_PATH | O_DIRECTORY | O_NOFOLLOW) : part;
    const int number = errno;
    if (slash)
        close(part);
    return n->folder < 0 ? file_error(number, before, e) : ERR_OK;
}

/* Whether a new file may take the name now. */
static enum err_code check_name(const struct new_file *n, bool overwrite, struct err *e)
{
    struct stat st;
    if (fstatat(n->folder, n->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? ERR_OK : file_error(errno, n->name, e);
    if (!overwrite)
        return err_set(e, ERR_CONFLICT,
                       "there is already a file '%.200s': \"overwrite\": true replaces it",
                       n->name);
    return S_ISREG(st.st_mode) ? ERR_OK : file_error(EEXIST, n->name, e);
}

static void drop_name(struct new_file *n)
{
    if (n->own[0])
        unlinkat(n->folder, n->own, 0);
    n->own[0] = '\0';
}

/* Makes the open file ours alone: 0, or errno. The lock ends with the last process that has it
 * open; it is of another kind than libraries take, on a byte that no file has. */
static int lock_file(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1};
    lock.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* Whether that is a file as new_file makes them. */
static bool is_ours(int folder, const char *name)
{
    struct stat st;
    return !strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) &&
           id_is('f', name + strlen(OWN_PREFIX)) &&
           fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_uid == geteuid();
}

static bool was_swept(struct swept *s, int folder)
{
    struct stat st;
    bool was = fstat(folder, &st) < 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n && i < SWEPT_MOST && !was; i++)
        was = s->at[i].dev == st.st_dev && s->at[i].ino == st.st_ino;
    if (!was) {
        s->at[s->n % SWEPT_MOST].dev = st.st_dev;
        s->at[s->n++ % SWEPT_MOST].ino = st.st_ino;
    }
    pthread_mutex_unlock(&s->lock);
    return was;
}

/* Removes what a daemon has left there that was killed. */
static void sweep(int folder)
{
    const int own = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    for (const struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
        if (!is_ours(folder, d->d_name))
            continue;
        const int fd = openat(folder, d->d_name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && lock_file(fd) == 0)
            unlinkat(folder, d->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
    else if (own >= 0)
        close(own);
}

/* It has a name from the start, which it can be renamed from. */
static enum err_code create_named(struct new_file *n, mode_t mode, struct err *e)
{
    char id[ID_SIZE];
    id_make('f', id);
    snprintf(n->own, sizeof n->own, OWN_PREFIX "%s", id);
    n->fd = openat(n->folder, n->own, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (n->fd >= 0)
        return ERR_OK;
    n->own[0] = '\0';
    return file_error(errno, n->name, e);
}

/* Until it is locked, another process' sweep may hold it, or have removed it. A file system without
 * locks has no sweeps either. */
static bool is_kept(const struct new_file *n)
{
    struct stat st;
    const int number = lock_file(n->fd);
    return number != EAGAIN && number != EACCES && fstat(n->fd, &st) == 0 && st.st_nlink > 0;
}

static enum err_code create(struct new_file *n, mode_t mode, struct err *e)
{
    for (int left = 10; left; left--) {
        TRY(create_named(n, mode, e));
        if (is_kept(n))
            return ERR_OK;
        drop_name(n);
        close(n->fd);
        n->fd = -1;
    }
    return err_set(e, ERR_FILE_IO, "%s: other processes lock or remove new files in this folder",
                   n->name);
}

/* The folder can be read, too, and has nothing that a dead daemon has left. */
static enum err_code prepare(const struct folder *f, struct new_file *n, struct err *e)
{
    const int folder = open_again(n->folder, O_RDONLY | O_DIRECTORY);
    if (folder < 0)
        return file_error(errno, n->name, e);
    close(n->folder);
    n->folder = folder;
    if (!was_swept(f->swept, folder))
        sweep(folder);
    return ERR_OK;
}

enum err_code folder_new_file(const struct folder *f, const char *user, const char *path,
                              bool overwrite, struct new_file *ret, struct err *e)
{
    struct new_file n = {.fd = -1, .folder = -1};
    if (f->read_only)
        return err_set(e, ERR_READ_ONLY, "the folder '%s' is read-only", f->name);
    TRY(file_path_check(path, e));
    enum err_code code = open_parent(f, user, path, &n, e);
    if (code == ERR_OK)
        code = check_name(&n, overwrite, e);
    if (code == ERR_OK)
        code = prepare(f, &n, e);
    if (code == ERR_OK)
        code = create(&n, 0666, e);
    if (code != ERR_OK) {
        new_file_drop(&n);
        return code;
    }
    *ret = n;
    return ERR_OK;
}

enum err_code spool_file(int folder, struct new_file *ret, struct err *e)
{
    struct new_file n = {.fd = -1, .folder = fcntl(folder, F_DUPFD_CLOEXEC, 0)};
    snprintf(n.name, sizeof n.name, "file-spool");
    enum err_code code = n.folder < 0 ? file_error(errno, n.name, e) : create_named(&n, 0600, e);
    drop_name(&n);
    if (n.folder >= 0)
        close(n.folder); /* many may wait */
    n.folder = -1;
    if (code != ERR_OK)
        new_file_drop(&n);
    else
        *ret = n;
    return code;
}

void spool_sweep(int folder)
{
    sweep(folder);
}

/* Gives it a name that nothing has: 0, or errno. Some file systems (NFS) cannot rename like that,
 * but all of those can link. */
static int take_name(struct new_file *n)
{
    if (renameat2(n->folder, n->own, n->folder, n->name, RENAME_NOREPLACE) == 0) {
        n->own[0] = '\0';
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    return linkat(n->folder, n->own, n->folder, n->name, 0) == 0 ? 0 : errno;
}

static int replace_name(struct new_file *n)
{
    if (renameat(n->folder, n->own, n->folder, n->name) < 0)
        return errno;
    n->own[0] = '\0';
    return 0;
}

enum err_code new_file_publish(struct new_file *n, bool overwrite, struct err *e)
{
    TRY(check_name(n, overwrite, e));
    if (fsync(n->fd) < 0)
        return file_error(errno, n->name, e);
    const int number = overwrite ? replace_name(n) : take_name(n);
    if (number)
        return file_error(number, n->name, e);
    drop_name(n);
    (void)fsync(n->folder); /* it has its name: no error would be true */
    return ERR_OK;
}

void new_file_drop(struct new_file *n)
{
    drop_name(n);
    if (n->fd >= 0)
        close(n->fd);
    if (n->folder >= 0)
        close(n->folder);
    *n = (struct new_file){.fd = -1, .folder = -1};
}
