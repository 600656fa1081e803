/* A snapshot is a folder of its own. It is written and synced first, files, then the folder; then
 * rename replaces the pointer `current` atomically, and the folder above is synced; only then are
 * older snapshots removed. So at every moment `current` names a complete snapshot, or, before the
 * first, does not exist. Each snapshot has a copy of its pointer, in case `current` is lost.
 *
 * If a snapshot leaves out something it should have, the one before is kept beside it until a
 * snapshot leaves nothing out.
 *
 * The pointer has the sum of the manifest, the manifest has the sums of the data: any torn,
 * exchanged or flipped byte is detected. The sum is SHA-256 because nettle is linked already,
 * because it runs at 1 to 2 GB/s on processors with instructions for it, which is about a disk's
 * rate, and because its strength needs no argument.
 *
 * A large memory has a file of its own. If nothing was written to it since the last snapshot, its
 * file is linked into the new folder and none of its bytes are copied: the files of a snapshot are
 * never changed.
 *
 * The disk starts writing while data still arrive, FLUSH bytes at a time: so the time of writing
 * counts while the snapshot is taken (--state-timeout), and memory does not fill with dirty pages.
 */
#include "server/state/state_dir_int.h"

#define LOCK_TRIES   100
#define LOCK_WAIT_US 20000

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"

#define FLUSH (32 << 20)

struct state_writer {
    struct state_dir *dir;
    uint64_t number, files;    /* files: of their own so far */
    int folder, data, own;     /* descriptors; -1: none */
    char name[STATE_FILE];     /* of `own` */
    int64_t size;              /* total of the small memories so far */
    int64_t at, done, flushed; /* of the memory being written: where it begins, bytes written, and
                                  bytes of its file flushed */
    struct sha256_ctx sum;
};

enum err_code state_dir_failed(const struct state_dir *d, const char *what, struct err *e)
{
    int no = errno;
    bool full = no == ENOSPC || no == EDQUOT || no == EFBIG;
    return err_set(e, full ? ERR_DISK_FULL : ERR_STATE, "%s/%s: %s", d->path, what, strerror(no));
}

void state_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void state_name_of(const char *kind, uint64_t number, char ret[STATE_NAME])
{
    snprintf(ret, STATE_NAME, "%s-%" PRIu64, kind, number);
}

uint64_t state_number_of(const char *kind, const char *name)
{
    char again[STATE_NAME];
    size_t n = strlen(kind);
    if (strncmp(name, kind, n) != 0 || name[n] != '-')
        return 0;
    uint64_t number = strtoull(name + n + 1, NULL, 10);
    state_name_of(kind, number, again);
    return strcmp(again, name) == 0 && number < INT64_MAX ? number : 0;
}

/* A daemon that was killed together with its keeper may still be dying. */
static enum err_code open_and_lock(struct state_dir *d, struct err *e)
{
    if (mkdir(d->path, 0700) != 0 && errno != EEXIST)
        return state_dir_failed(d, "", e);
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0)
        return state_dir_failed(d, "", e);
    d->lock = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock < 0)
        return state_dir_failed(d, "lock", e);
    int locked = flock(d->lock, LOCK_EX | LOCK_NB);
    for (int i = 0; locked != 0 && errno == EWOULDBLOCK && i < LOCK_TRIES; i++) {
        usleep(LOCK_WAIT_US);
        locked = flock(d->lock, LOCK_EX | LOCK_NB);
    }
    if (locked != 0)
        return errno == EWOULDBLOCK
                   ? err_set(e, ERR_BAD_FIELD, "state-dir: another process is using %s", d->path)
                   : state_dir_failed(d, "lock", e);
    return ERR_OK;
}

enum err_code state_dir_open(const char *path, struct state_dir **ret, struct err *e)
{
    struct state_dir *d = mem_calloc(1, sizeof *d);
    char *own = d ? mem_strdup(path) : NULL;
    if (!own) {
        mem_free(d);
        return err_oom(e);
    }
    *d = (struct state_dir){.path = own, .fd = -1, .lock = -1};
    enum err_code code = open_and_lock(d, e);
    if (code != ERR_OK)
        state_dir_close(d);
    else
        *ret = d;
    return code;
}

void state_dir_close(struct state_dir *d)
{
    if (!d)
        return;
    state_close_fd(&d->fd);
    state_close_fd(&d->lock);
    mem_free(d->path);
    mem_free(d);
}

void state_digest(struct sha256_ctx *sum, char ret[STATE_DIGEST])
{
    uint8_t bytes[SHA256_DIGEST_SIZE];
    sha256_digest(sum, sizeof bytes, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

/* --- removing folders --- */

DIR *state_dir_list(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

static void remove_folder(struct state_dir *d, const char *name)
{
    DIR *dir = state_dir_list(d->fd, name);
    for (const struct dirent *x = dir ? readdir(dir) : NULL; x; x = readdir(dir))
        if (x->d_name[0] != '.')
            unlinkat(dirfd(dir), x->d_name, 0);
    if (dir)
        closedir(dir);
    unlinkat(d->fd, name, AT_REMOVEDIR);
}

/* Removes all but the last snapshot and the one kept beside it. */
static void remove_others(struct state_dir *d)
{
    DIR *dir = state_dir_list(d->fd, ".");
    for (const struct dirent *x = dir ? readdir(dir) : NULL; x; x = readdir(dir)) {
        uint64_t n = state_number_of("snapshot", x->d_name);
        if (n && n != d->current && n != d->beside)
            remove_folder(d, x->d_name);
    }
    if (dir)
        closedir(dir);
}

void state_dir_stays(struct state_dir *d, uint64_t beside)
{
    d->beside = beside;
}

void state_dir_tidy(struct state_dir *d)
{
    remove_others(d);
}

static enum err_code next_number(struct state_dir *d, uint64_t *ret, struct err *e)
{
    uint64_t highest = 0;
    DIR *dir = state_dir_list(d->fd, ".");
    if (!dir)
        return state_dir_failed(d, "", e);
    for (const struct dirent *x = readdir(dir); x; x = readdir(dir)) {
        uint64_t a = state_number_of("snapshot", x->d_name),
                 b = state_number_of("refused", x->d_name);
        highest = a > highest ? a : highest;
        highest = b > highest ? b : highest;
    }
    closedir(dir);
    *ret = highest + 1;
    return ERR_OK;
}

/* --- writing --- */

static enum err_code write_all(const struct state_dir *d, int fd, const char *what,
                               const void *bytes, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)bytes + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return state_dir_failed(d, what, e);
        done += (size_t)k;
    }
    return ERR_OK;
}

enum err_code state_write_begin(struct state_dir *d, struct state_writer **ret, struct err *e)
{
    struct state_writer *w = mem_calloc(1, sizeof *w);
    char name[STATE_NAME];
    if (!w)
        return err_oom(e);
    *w = (struct state_writer){.dir = d, .folder = -1, .data = -1, .own = -1};
    enum err_code code = next_number(d, &w->number, e);
    state_name_of("snapshot", w->number, name);
    if (code == ERR_OK && mkdirat(d->fd, name, 0700) != 0)
        code = state_dir_failed(d, name, e);
    if (code != ERR_OK) {
        mem_free(w);
        return code;
    }
    w->folder = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->folder >= 0)
        w->data = openat(w->folder, "data", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (w->data < 0) {
        code = state_dir_failed(d, name, e);
        state_write_abort(w);
        return code;
    }
    *ret = w;
    return ERR_OK;
}

enum err_code state_write_open(struct state_writer *w, bool apart, char ret[STATE_FILE],
                               int64_t *ret_at, struct err *e)
{
    sha256_init(&w->sum);
    w->done = 0;
    w->at = apart ? 0 : w->size;
    snprintf(ret, STATE_FILE, "data");
    if (apart) {
        snprintf(ret, STATE_FILE, "memory-%" PRIu64 "-%" PRIu64, w->number, w->files++);
        w->own = openat(w->folder, ret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (w->own < 0)
            return state_dir_failed(w->dir, ret, e);
        w->flushed = 0;
    }
    memcpy(w->name, ret, STATE_FILE);
    *ret_at = w->at;
    return ERR_OK;
}

/* For a file of its own: the disk writes one part while the next is filled. */
static void flush(struct state_writer *w)
{
    while (w->own >= 0 && w->done - w->flushed >= 2 * FLUSH) {
        sync_file_range(w->own, w->flushed + FLUSH, FLUSH, SYNC_FILE_RANGE_WRITE);
        sync_file_range(w->own, w->flushed, FLUSH,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(w->own, w->flushed, FLUSH, POSIX_FADV_DONTNEED);
        w->flushed += FLUSH;
    }
}

enum err_code state_write(struct state_writer *w, const void *bytes, size_t n, struct err *e)
{
    int fd = w->own >= 0 ? w->own : w->data;
    TRY(write_all(w->dir, fd, w->name, bytes, n, e));
    sha256_update(&w->sum, n, bytes);
    w->done += (int64_t)n;
    flush(w);
    return ERR_OK;
}

enum err_code state_write_close(struct state_writer *w, char ret[STATE_DIGEST], struct err *e)
{
    state_digest(&w->sum, ret);
    if (w->own < 0) {
        w->size += w->done;
        return ERR_OK;
    }
    enum err_code code = fsync(w->own) == 0 ? ERR_OK : state_dir_failed(w->dir, w->name, e);
    state_close_fd(&w->own);
    return code;
}

enum err_code state_write_drop(struct state_writer *w, struct err *e)
{
    if (w->own >= 0) {
        state_close_fd(&w->own);
        return unlinkat(w->folder, w->name, 0) == 0 ? ERR_OK : state_dir_failed(w->dir, w->name, e);
    }
    if (ftruncate(w->data, w->at) != 0 || lseek(w->data, w->at, SEEK_SET) != w->at)
        return state_dir_failed(w->dir, "data", e);
    return ERR_OK;
}

/* A file's number of links is limited and some file systems have none: then the caller copies
 * it. */
bool state_write_again(struct state_writer *w, const char *file)
{
    char name[STATE_NAME], from[STATE_NAME + STATE_FILE];
    state_name_of("snapshot", w->dir->current, name);
    snprintf(from, sizeof from, "%s/%s", name, file);
    return linkat(w->dir->fd, from, w->folder, file, 0) == 0;
}

static int open_last(const struct state_writer *w, const char *file)
{
    char name[STATE_NAME], path[STATE_NAME + STATE_FILE];
    state_name_of("snapshot", w->dir->current, name);
    snprintf(path, sizeof path, "%s/%s", name, file);
    return openat(w->dir->fd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

enum err_code state_write_copy(struct state_writer *w, const char *file, int64_t at, int64_t n,
                               const char *digest, bool *ret_there, struct err *e)
{
    char bytes[1 << 16], is[STATE_DIGEST];
    enum err_code code = ERR_OK;
    int fd = open_last(w, file);
    ssize_t k = 1;
    for (int64_t done = 0; code == ERR_OK && fd >= 0 && done < n && k > 0; done += k) {
        k = n - done < (int64_t)sizeof bytes ? n - done : (int64_t)sizeof bytes;
        k = pread(fd, bytes, (size_t)k, at + done);
        if (k > 0)
            code = state_write(w, bytes, (size_t)k, e);
    }
    state_close_fd(&fd);
    struct sha256_ctx sum = w->sum;
    state_digest(&sum, is);
    *ret_there = strcmp(is, digest) == 0;
    if (code == ERR_OK)
        code = *ret_there ? state_write_close(w, is, e) : state_write_drop(w, e);
    return code;
}

void state_write_abort(struct state_writer *w)
{
    char name[STATE_NAME];
    state_name_of("snapshot", w->number, name);
    state_close_fd(&w->own);
    state_close_fd(&w->data);
    state_close_fd(&w->folder);
    remove_folder(w->dir, name);
    mem_free(w);
}

static enum err_code write_file(const struct state_dir *d, int folder, const char *name,
                                const char *text, size_t n, struct err *e)
{
    unlinkat(folder, name, 0); /* a crashed process may have left it */
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return state_dir_failed(d, name, e);
    enum err_code code = write_all(d, fd, name, text, n, e);
    if (code == ERR_OK && fsync(fd) != 0)
        code = state_dir_failed(d, name, e);
    close(fd);
    return code;
}

uint64_t state_write_beside(const struct state_writer *w)
{
    return w->dir->beside ? w->dir->beside : w->dir->current;
}

/* The manifest, and what points to it. */
static enum err_code write_pointer(const struct state_writer *w, const char *manifest, size_t n,
                                   struct err *e)
{
    const struct state_dir *d = w->dir;
    char digest[STATE_DIGEST], name[STATE_NAME], pointer[POINTER_MAX];
    struct sha256_ctx sum;
    sha256_init(&sum);
    sha256_update(&sum, n, (const uint8_t *)manifest);
    state_digest(&sum, digest);
    state_name_of("snapshot", w->number, name);
    size_t len = (size_t)snprintf(pointer, sizeof pointer, STATE_FORMAT "%s %s\n", name, digest);
    if (fsync(w->data) != 0)
        return state_dir_failed(d, "data", e);
    TRY(write_file(d, w->folder, "current", pointer, len, e));
    TRY(write_file(d, w->folder, "manifest.json", manifest, n, e));
    if (fsync(w->folder) != 0 || fsync(d->fd) != 0)
        return state_dir_failed(d, name, e);
    TRY(write_file(d, d->fd, "current.new", pointer, len, e));
    return renameat(d->fd, "current.new", d->fd, "current") == 0
               ? ERR_OK
               : state_dir_failed(d, "current", e);
}

/* If the disk does not confirm the new pointer, either may be on it: both snapshots are kept. */
enum err_code state_write_commit(struct state_writer *w, const char *manifest, size_t n,
                                 bool complete, struct err *e)
{
    struct state_dir *d = w->dir;
    enum err_code code = write_pointer(w, manifest, n, e);
    if (code != ERR_OK) {
        state_write_abort(w);
        return code;
    }
    d->beside = complete ? 0 : state_write_beside(w);
    d->current = w->number;
    if (fsync(d->fd) == 0)
        remove_others(d);
    else
        code = state_dir_failed(d, "current", e);
    state_close_fd(&w->data);
    state_close_fd(&w->folder);
    mem_free(w);
    return code;
}
