/* A file holds a header (magic, format, key, length, SHA-256 of the code) and the code. It is
 * written under a temporary name and renamed, so that a reader, also another daemon, sees all of it
 * or none. It is not synced: the checksum detects a file torn by a power failure, and a kernel can
 * be compiled again.
 *
 * The code runs on the device, so it must come from this user: folder and files must be ours and
 * writable by us alone. The folder is held open and files are named relative to it, so that a user
 * who can rename a parent cannot substitute another folder. A second folder, of code that was
 * compiled when a package or an image was made, is only read; it may be root's, who can replace the
 * daemon as well.
 *
 * The size limit is kept by deleting the least recently used files (a hit touches the file) when
 * our own count exceeds it, and every so many files to account for other daemons. */
#include "compute/gpu/code/kcache_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"

#define NAME_LEN         (CODE_KEY_TEXT - 1)
#define MAX_FILE         (64 << 20) /* a larger file is not ours */
#define STORES_A_LOOK    64
#define TOUCH_AFTER      60   /* seconds: a hit within them does not update the time */
#define TEMPORARY_FOR    3600 /* seconds after which a temporary file's writer is assumed dead */
#define TEMPORARY_PREFIX ".tmp-"
#define TRIM_TO(max)     ((max) / 8 * 7) /* so that not every new file trims again */

struct file_header {
    char magic[8];
    uint64_t n; /* bytes of code */
    struct code_key key;
    uint8_t sha[SHA256_DIGEST_SIZE]; /* of the code */
};

/* The last character is the format. The byte order of `n` is the machine's own: a file of another
 * order has a length that does not fit. */
static const char magic[8] = {'a', 'r', 'r', 'a', 'y', 'd', '\0', '1'};

__attribute__((format(printf, 2, 3))) static void problem(struct kcache_disk *d, const char *fmt,
                                                          ...)
{
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&d->lock);
    d->errors++;
    vsnprintf(d->problem, sizeof d->problem, fmt, args);
    pthread_mutex_unlock(&d->lock);
    va_end(args);
}

/* Owned by us, or if `ready` by root, and writable by no other user. */
static bool trusted(const struct stat *st, bool ready)
{
    return (st->st_uid == geteuid() || (ready && st->st_uid == 0)) &&
           !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static void sha_of(const void *bytes, size_t n, uint8_t ret[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, n, bytes);
    sha256_digest(&ctx, SHA256_DIGEST_SIZE, ret);
}

/* Reads all n bytes, or returns false with errno (0: end of file). */
static bool read_all(int fd, void *to, size_t n)
{
    for (char *p = to; n > 0;) {
        ssize_t k = read(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k < 0 ? errno : 0;
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    for (const char *p = from; n > 0;) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

struct found {
    struct timespec used;
    int64_t size;
    char name[NAME_LEN + 1];
};

static int by_age(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

static bool is_key(const char *name)
{
    return strspn(name, "0123456789abcdef") == NAME_LEN && name[NAME_LEN] == '\0';
}

/* Our files in the folder, to be released with mem_free(), and their number, or -1 without memory
 * or when the folder cannot be read. Also removes abandoned temporary files. */
static int look(struct kcache_disk *d, struct found **ret)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    struct found *files = NULL;
    int n = 0, cap = 0;
    time_t now = clock_date();
    for (struct dirent *entry = readdir(dir); entry && n >= 0; entry = readdir(dir)) {
        bool temporary = strncmp(entry->d_name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) == 0;
        struct stat st;
        if ((!temporary && !is_key(entry->d_name)) ||
            fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (temporary) {
            if (now - st.st_mtim.tv_sec > TEMPORARY_FOR)
                unlinkat(fd, entry->d_name, 0);
            continue;
        }
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            struct found *more = mem_reallocarray(files, (size_t)cap, sizeof *more);
            if (!more) {
                n = -1;
                break;
            }
            files = more;
        }
        files[n].used = st.st_mtim;
        files[n].size = st.st_size;
        memcpy(files[n++].name, entry->d_name, NAME_LEN + 1);
    }
    closedir(dir);
    if (n < 0)
        mem_free(files);
    else
        *ret = files;
    return n;
}

/* Measures the folder and deletes the excess. One thread at a time: the caller set `trimming`. */
static void trim(struct kcache_disk *d)
{
    struct found *files = NULL;
    int64_t bytes = 0;
    int n = look(d, &files);
    for (int i = 0; i < n; i++)
        bytes += files[i].size;
    if (n > 0 && bytes > d->max_bytes) {
        qsort(files, (size_t)n, sizeof *files, by_age);
        for (int i = 0; i < n && bytes > TRIM_TO(d->max_bytes); i++)
            if (unlinkat(d->fd, files[i].name, 0) == 0 || errno == ENOENT)
                bytes -= files[i].size;
    }
    if (n >= 0)
        mem_free(files);
    pthread_mutex_lock(&d->lock);
    if (n >= 0)
        d->bytes = bytes;
    d->stores = 0;
    d->trimming = false;
    pthread_mutex_unlock(&d->lock);
}

/* mkdir -p, accessible to this user only. A failure shows when the folder is opened. */
static void make_folders(const char *dir)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s", dir);
    if (n < 0 || n >= (int)sizeof path)
        return;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
    mkdir(path, 0700);
}

/* The opened folder, or -1. */
static int open_folder(struct kcache_disk *d, const char *dir, bool ready)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        problem(d, "cannot open %s: %s", dir, strerror(errno));
    else if (!trusted(&st, ready))
        problem(d, "%s is not used: it belongs to another user, or others may write to it", dir);
    else if (faccessat(fd, ".", R_OK | (ready ? 0 : W_OK) | X_OK, AT_EACCESS) != 0)
        problem(d, "%s is not used: %s", dir, strerror(errno));
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void kcache_disk_open(struct kcache_disk *d, const char *dir, const char *ready, int64_t max_bytes)
{
    *d = (struct kcache_disk){.fd = -1, .ready = -1, .max_bytes = max_bytes};
    pthread_mutex_init(&d->lock, NULL);
    if (ready)
        d->ready = open_folder(d, ready, true);
    if (!dir || max_bytes <= 0)
        return;
    make_folders(dir);
    d->fd = open_folder(d, dir, false);
    if (d->fd < 0)
        return;
    d->trimming = true;
    trim(d);
}

void kcache_disk_close(struct kcache_disk *d)
{
    if (d->fd >= 0)
        close(d->fd);
    if (d->ready >= 0)
        close(d->ready);
    d->fd = d->ready = -1;
    pthread_mutex_destroy(&d->lock);
}

/* Reads the opened file of the key; NULL unless everything about it is right. */
static void *read_file(int fd, const struct code_key *key, const struct stat *st, bool ready,
                       size_t *ret_n)
{
    struct file_header h;
    if (!S_ISREG(st->st_mode) || !trusted(st, ready) || st->st_size <= (off_t)sizeof h ||
        st->st_size > MAX_FILE || !read_all(fd, &h, sizeof h))
        return NULL;
    size_t n = (size_t)st->st_size - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.n != n ||
        memcmp(&h.key, key, sizeof *key) != 0)
        return NULL;
    _cleanup_free_ void *bytes = mem_alloc(n);
    uint8_t sha[SHA256_DIGEST_SIZE];
    if (!bytes || !read_all(fd, bytes, n))
        return NULL;
    sha_of(bytes, n, sha);
    if (memcmp(sha, h.sha, sizeof sha) != 0)
        return NULL;
    void *taken = bytes;
    bytes = NULL;
    *ret_n = n;
    return taken;
}

static bool load_from(struct kcache_disk *d, bool ready, const struct code_key *key,
                      void **ret_bytes, size_t *ret_n)
{
    char name[NAME_LEN + 1];
    const int folder = ready ? d->ready : d->fd;
    if (folder < 0 || (ready && atomic_load(&d->not_ready)))
        return false;
    code_key_text(key, name);
    /* O_NONBLOCK: do not block on a pipe of that name */
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT)
            problem(d, "cannot open %s: %s", name, strerror(errno));
        return false;
    }
    struct stat st;
    size_t n;
    void *bytes = fstat(fd, &st) == 0 ? read_file(fd, key, &st, ready, &n) : NULL;
    if (bytes && !ready && clock_date() - st.st_mtim.tv_sec > TOUCH_AFTER)
        futimens(fd, NULL);
    close(fd);
    if (!bytes) {
        problem(d, "%s is damaged, or is not a file of arrayd's", name);
        return false;
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return true;
}

bool kcache_disk_load(struct kcache_disk *d, const struct code_key *key, void **ret_bytes,
                      size_t *ret_n)
{
    return load_from(d, false, key, ret_bytes, ret_n) || load_from(d, true, key, ret_bytes, ret_n);
}

/* Writes the file under a temporary name and renames it; false with errno. */
static bool write_file(struct kcache_disk *d, const char *name, const struct file_header *h,
                       const void *bytes)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint64_t)getpid(); /* O_EXCL detects a collision */
    char temporary[64];
    snprintf(temporary, sizeof temporary, TEMPORARY_PREFIX "%016llx", (unsigned long long)random);
    int fd = openat(d->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, h, sizeof *h) && write_all(fd, bytes, h->n);
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && renameat(d->fd, temporary, d->fd, name) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok)
        unlinkat(d->fd, temporary, 0);
    errno = why;
    return ok;
}

void kcache_disk_store(struct kcache_disk *d, const struct code_key *key, const void *bytes,
                       size_t n)
{
    struct file_header h = {.n = n, .key = *key};
    int64_t size = (int64_t)(sizeof h + n);
    if (d->fd < 0 || n == 0 || size > MAX_FILE || size > d->max_bytes)
        return;
    memcpy(h.magic, magic, sizeof magic);
    sha_of(bytes, n, h.sha);
    char name[NAME_LEN + 1];
    code_key_text(key, name);
    if (!write_file(d, name, &h, bytes)) {
        problem(d, "cannot write %s: %s", name, strerror(errno));
        return;
    }
    pthread_mutex_lock(&d->lock);
    d->bytes += size;
    d->stores++;
    bool due = (d->bytes > d->max_bytes || d->stores >= STORES_A_LOOK) && !d->trimming;
    d->trimming |= due;
    pthread_mutex_unlock(&d->lock);
    if (due)
        trim(d);
}

void kcache_disk_drop(struct kcache_disk *d, const struct code_key *key)
{
    char name[NAME_LEN + 1];
    code_key_text(key, name);
    problem(d, "the driver rejected the code in %s", name);
    if (d->fd < 0 || unlinkat(d->fd, name, 0) != 0) /* the next look corrects d->bytes */
        atomic_store(&d->not_ready, true);
}
