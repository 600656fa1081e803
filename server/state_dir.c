/* A snapshot is a folder of its own. It is written and synced first, files, then the folder; then
 * the pointer `current` is replaced by rename, which is atomic, and the folder above synced; only
 * then do older snapshots go. So at every moment `current` names a complete snapshot, or, before
 * the first, is not there.
 *
 * The pointer has the sum of the manifest, the manifest has the sums of the data: whatever is torn,
 * exchanged or flipped anywhere is seen. The sum is SHA-256 because nettle is linked already, it
 * runs at 1 to 2 GB/s on processors with instructions for it, which is what a disk takes, and
 * nobody has to ask what it does not find.
 *
 * A large memory has a file of its own. Where nothing was written to it since the last snapshot,
 * its file is linked into the new folder, and no byte of it is moved: files are never changed once
 * a snapshot has them.
 *
 * The disk is told to write while data still come, FLUSH bytes at a time: then the time that a
 * snapshot takes shows while it is taken (--state-timeout), and memory does not fill with pages
 * that wait. */
#include "server/state_dir.h"

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

#define FLUSH        (32 << 20)
#define MANIFEST_MAX ((int64_t)1 << 32)
#define FORMAT       "arrayd-state 1 "
#define POINTER_MAX  128
#define STATE_NAME   32

struct state_dir {
    char *path;
    int fd, lock;
    uint64_t current; /* number of the last complete snapshot, as far as is known; or 0 */
};

struct state_writer {
    struct state_dir *dir;
    uint64_t number, files;    /* files: of their own so far */
    int folder, data, own;     /* descriptors; -1: none */
    char name[STATE_FILE];     /* of `own` */
    int64_t size;              /* of the small memories so far */
    int64_t at, done, flushed; /* of the memory being written: where it begins, how much of it there
                                  is, and how much the disk has of its file */
    struct sha256_ctx sum;
};

static enum err_code failed(const struct state_dir *d, const char *what, struct err *e)
{
    int no = errno;
    bool full = no == ENOSPC || no == EDQUOT || no == EFBIG;
    return err_set(e, full ? ERR_DISK_FULL : ERR_STATE, "%s/%s: %s", d->path, what, strerror(no));
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void name_of(const char *kind, uint64_t number, char ret[STATE_NAME])
{
    snprintf(ret, STATE_NAME, "%s-%" PRIu64, kind, number);
}

/* The number in "<kind>-N", written as we do; 0: it is none. */
static uint64_t number_of(const char *kind, const char *name)
{
    char again[STATE_NAME];
    size_t n = strlen(kind);
    if (strncmp(name, kind, n) != 0 || name[n] != '-')
        return 0;
    uint64_t number = strtoull(name + n + 1, NULL, 10);
    name_of(kind, number, again);
    return strcmp(again, name) == 0 ? number : 0;
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
    enum err_code r = ERR_OK;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        r = failed(d, "", e);
    if (r == ERR_OK && (d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        r = failed(d, "", e);
    if (r == ERR_OK && (d->lock = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0)
        r = failed(d, "lock", e);
    if (r == ERR_OK && flock(d->lock, LOCK_EX | LOCK_NB) != 0)
        r = errno == EWOULDBLOCK
                ? err_set(e, ERR_BAD_FIELD, "state-dir: another process uses %s", path)
                : failed(d, "lock", e);
    if (r != ERR_OK)
        state_dir_close(d);
    else
        *ret = d;
    return r;
}

void state_dir_close(struct state_dir *d)
{
    if (!d)
        return;
    close_fd(&d->fd);
    close_fd(&d->lock);
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

/* --- folders that go --- */

static DIR *list(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

static void remove_folder(struct state_dir *d, const char *name)
{
    DIR *dir = list(d->fd, name);
    for (const struct dirent *x; dir && (x = readdir(dir));)
        if (x->d_name[0] != '.')
            unlinkat(dirfd(dir), x->d_name, 0);
    if (dir)
        closedir(dir);
    unlinkat(d->fd, name, AT_REMOVEDIR);
}

static void remove_others(struct state_dir *d, uint64_t number)
{
    DIR *dir = list(d->fd, ".");
    for (const struct dirent *x; dir && (x = readdir(dir));) {
        uint64_t n = number_of("snapshot", x->d_name);
        if (n && n != number)
            remove_folder(d, x->d_name);
    }
    if (dir)
        closedir(dir);
}

static enum err_code next_number(struct state_dir *d, uint64_t *ret, struct err *e)
{
    uint64_t highest = 0;
    DIR *dir = list(d->fd, ".");
    if (!dir)
        return failed(d, "", e);
    for (const struct dirent *x; (x = readdir(dir));) {
        uint64_t a = number_of("snapshot", x->d_name), b = number_of("refused", x->d_name);
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
            return failed(d, what, e);
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
    enum err_code r = next_number(d, &w->number, e);
    name_of("snapshot", w->number, name);
    if (r == ERR_OK && mkdirat(d->fd, name, 0700) != 0)
        r = failed(d, name, e);
    if (r != ERR_OK) {
        mem_free(w);
        return r;
    }
    w->folder = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->folder >= 0)
        w->data = openat(w->folder, "data", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (w->data < 0) {
        r = failed(d, name, e);
        state_write_abort(w);
        return r;
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
            return failed(w->dir, ret, e);
        w->flushed = 0;
    }
    memcpy(w->name, ret, STATE_FILE);
    *ret_at = w->at;
    return ERR_OK;
}

/* Of a file of its own: one part is written while the next is filled. */
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
    enum err_code r = write_all(w->dir, fd, w->name, bytes, n, e);
    if (r != ERR_OK)
        return r;
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
    enum err_code r = fsync(w->own) == 0 ? ERR_OK : failed(w->dir, w->name, e);
    close_fd(&w->own);
    return r;
}

enum err_code state_write_drop(struct state_writer *w, struct err *e)
{
    if (w->own >= 0) {
        close_fd(&w->own);
        return unlinkat(w->folder, w->name, 0) == 0 ? ERR_OK : failed(w->dir, w->name, e);
    }
    if (ftruncate(w->data, w->at) != 0 || lseek(w->data, w->at, SEEK_SET) != w->at)
        return failed(w->dir, "data", e);
    return ERR_OK;
}

/* Links are numbered, file systems without them are met: then it is written anew. */
bool state_write_again(struct state_writer *w, const char *file)
{
    char name[STATE_NAME], from[STATE_NAME + STATE_FILE];
    name_of("snapshot", w->dir->current, name);
    snprintf(from, sizeof from, "%s/%s", name, file);
    return linkat(w->dir->fd, from, w->folder, file, 0) == 0;
}

void state_write_abort(struct state_writer *w)
{
    char name[STATE_NAME];
    name_of("snapshot", w->number, name);
    close_fd(&w->own);
    close_fd(&w->data);
    close_fd(&w->folder);
    remove_folder(w->dir, name);
    mem_free(w);
}

static enum err_code write_file(const struct state_dir *d, int folder, const char *name,
                                const char *text, size_t n, struct err *e)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return failed(d, name, e);
    enum err_code r = write_all(d, fd, name, text, n, e);
    if (r == ERR_OK && fsync(fd) != 0)
        r = failed(d, name, e);
    close(fd);
    return r;
}

static enum err_code prepare_pointer(struct state_dir *d, const char *name, const char *digest,
                                     struct err *e)
{
    char text[POINTER_MAX];
    int n = snprintf(text, sizeof text, FORMAT "%s %s\n", name, digest);
    return write_file(d, d->fd, "current.new", text, (size_t)n, e);
}

/* Where the disk does not say that it has the new pointer, it may have either: both snapshots stay.
 */
enum err_code state_write_commit(struct state_writer *w, const char *manifest, size_t n,
                                 struct err *e)
{
    struct state_dir *d = w->dir;
    char digest[STATE_DIGEST], name[STATE_NAME];
    struct sha256_ctx sum;
    sha256_init(&sum);
    sha256_update(&sum, n, (const uint8_t *)manifest);
    state_digest(&sum, digest);
    name_of("snapshot", w->number, name);
    enum err_code r = fsync(w->data) == 0 ? ERR_OK : failed(d, "data", e);
    if (r == ERR_OK)
        r = write_file(d, w->folder, "manifest.json", manifest, n, e);
    if (r == ERR_OK && (fsync(w->folder) != 0 || fsync(d->fd) != 0))
        r = failed(d, name, e);
    if (r == ERR_OK)
        r = prepare_pointer(d, name, digest, e);
    if (r == ERR_OK && renameat(d->fd, "current.new", d->fd, "current") != 0)
        r = failed(d, "current", e);
    if (r != ERR_OK) {
        state_write_abort(w);
        return r;
    }
    d->current = w->number;
    if (fsync(d->fd) == 0)
        remove_others(d, w->number);
    else
        r = failed(d, "current", e);
    close_fd(&w->data);
    close_fd(&w->folder);
    mem_free(w);
    return r;
}

/* --- reading --- */

static enum err_code read_at(const struct state_dir *d, int folder, const char *name, int64_t most,
                             char **ret, size_t *ret_n, struct err *e)
{
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum err_code r = failed(d, name, e);
        close_fd(&fd);
        return r;
    }
    char *text = NULL;
    enum err_code r = ERR_OK;
    size_t n = 0;
    if (st.st_size > most)
        r = err_set(e, ERR_STATE, "%s/%s: too long", d->path, name);
    else if (!(text = mem_alloc((size_t)st.st_size + 1)))
        r = err_oom(e);
    while (r == ERR_OK && n < (size_t)st.st_size) {
        ssize_t k = read(fd, text + n, (size_t)st.st_size - n);
        if (k < 0)
            r = failed(d, name, e);
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    close(fd);
    if (r != ERR_OK) {
        mem_free(text);
        return r;
    }
    text[n] = '\0';
    *ret = text;
    *ret_n = n;
    return ERR_OK;
}

/* The pointer's three words, exactly as point_at writes them. */
static enum err_code read_pointer(const struct state_dir *d, uint64_t *ret_number,
                                  char digest[STATE_DIGEST], bool *ret_there, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t n;
    *ret_there = false;
    if (faccessat(d->fd, "current", F_OK, 0) != 0 && errno == ENOENT)
        return ERR_OK;
    enum err_code r = read_at(d, d->fd, "current", POINTER_MAX, &text, &n, e);
    if (r != ERR_OK)
        return r;
    if (strncmp(text, FORMAT, strlen(FORMAT)) != 0)
        return strncmp(text, "arrayd-state ", 13) == 0
                   ? err_set(e, ERR_STATE,
                             "%s/current: a format that this version does not know: "
                             "it is of a newer one, or damaged",
                             d->path)
                   : err_set(e, ERR_STATE, "%s/current: not a pointer to a snapshot", d->path);
    char *name = text + strlen(FORMAT), *space = strchr(name, ' ');
    if (space)
        *space = '\0';
    uint64_t number = space ? number_of("snapshot", name) : 0;
    if (!number || text + n != space + 1 + STATE_DIGEST || text[n - 1] != '\n')
        return err_set(e, ERR_STATE, "%s/current: damaged", d->path);
    memcpy(digest, space + 1, STATE_DIGEST - 1);
    digest[STATE_DIGEST - 1] = '\0';
    *ret_number = number;
    *ret_there = true;
    return ERR_OK;
}

static enum err_code read_snapshot(const struct state_dir *d, int folder, const char *name,
                                   const char *digest, struct state_reader *ret, struct err *e)
{
    char is[STATE_DIGEST];
    struct sha256_ctx sum;
    enum err_code r = read_at(d, folder, "manifest.json", MANIFEST_MAX, &ret->manifest, &ret->n, e);
    if (r != ERR_OK)
        return r;
    sha256_init(&sum);
    sha256_update(&sum, ret->n, (const uint8_t *)ret->manifest);
    state_digest(&sum, is);
    if (strcmp(is, digest) != 0)
        return err_set(e, ERR_STATE,
                       "%s/%s/manifest.json: damaged: its SHA-256 is not what 'current' says",
                       d->path, name);
    return ERR_OK;
}

enum err_code state_read_open(struct state_dir *d, struct state_reader *ret, bool *ret_there,
                              struct err *e)
{
    struct state_reader r = {.dir = d, .folder = -1, .data = -1};
    char digest[STATE_DIGEST], name[STATE_NAME];
    enum err_code code = read_pointer(d, &r.number, digest, ret_there, e);
    if (code != ERR_OK || !*ret_there)
        return code;
    name_of("snapshot", r.number, name);
    r.folder = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    code = r.folder < 0 ? failed(d, name, e) : read_snapshot(d, r.folder, name, digest, &r, e);
    if (code != ERR_OK) {
        state_read_close(&r);
        return code;
    }
    d->current = r.number;
    *ret = r;
    return ERR_OK;
}

static enum err_code open_file(struct state_reader *r, const char *file, struct err *e)
{
    if (r->data >= 0 && !strcmp(r->name, file))
        return ERR_OK;
    close_fd(&r->data);
    const size_t n = strlen(file);
    if (strchr(file, '/') || n >= STATE_FILE)
        return err_set(e, ERR_STATE, "'%.80s' is no file of a snapshot", file);
    memcpy(r->name, file, n + 1);
    r->data = openat(r->folder, file, O_RDONLY | O_CLOEXEC);
    return r->data < 0 ? failed(r->dir, file, e) : ERR_OK;
}

enum err_code state_read(struct state_reader *r, const char *file, int64_t at, void *to, size_t n,
                         struct err *e)
{
    enum err_code code = open_file(r, file, e);
    for (size_t done = 0; code == ERR_OK && done < n;) {
        ssize_t k = pread(r->data, (char *)to + done, n - done, at + (int64_t)done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            code = failed(r->dir, file, e);
        else if (k == 0)
            code = err_set(e, ERR_STATE, "%s: cut off after %lld bytes", file,
                           (long long)at + (long long)done);
        else
            done += (size_t)k;
    }
    return code;
}

void state_read_close(struct state_reader *r)
{
    close_fd(&r->data);
    close_fd(&r->folder);
    mem_free(r->manifest);
    r->manifest = NULL;
}

void state_dir_tidy(struct state_dir *d)
{
    char digest[STATE_DIGEST];
    uint64_t number;
    bool there;
    if (read_pointer(d, &number, digest, &there, NULL) == ERR_OK && there)
        remove_others(d, number);
}

/* All of them: where the pointer is damaged, nobody knows which one it was. */
enum err_code state_dir_refuse(struct state_dir *d, struct err *e)
{
    enum err_code r = ERR_OK;
    DIR *dir = list(d->fd, ".");
    if (!dir)
        return failed(d, "", e);
    for (const struct dirent *x; r == ERR_OK && (x = readdir(dir));) {
        char name[STATE_NAME];
        uint64_t n = number_of("snapshot", x->d_name);
        name_of("refused", n, name);
        if (n && renameat(d->fd, x->d_name, d->fd, name) != 0)
            r = failed(d, x->d_name, e);
    }
    closedir(dir);
    d->current = 0;
    if (r == ERR_OK && renameat(d->fd, "current", d->fd, "current.refused") != 0)
        r = failed(d, "current", e);
    if (r == ERR_OK && fsync(d->fd) != 0)
        r = failed(d, "", e);
    return r;
}
