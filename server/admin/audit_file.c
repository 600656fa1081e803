/* Plain descriptors: what stdio has buffered would be lost in a crash. Before each line it is
 * looked up, which is cheap, how large the file is and whether its name still leads to it, so that
 * others may cut it or move it away. */
#include "server/admin/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/arena.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/strb.h"

#define BLOCK      4096
#define REST_MOST  (8 << 20) /* of what follows the last newline: a line, or what a crash left */
#define LINE_START "{\"number\":"

struct audit_file {
    const char *path;
    int64_t most, kept;
    int fd; /* -1: it could not be opened again */
    bool told;
};

/* Where the last newline of a file of so many bytes ends; 0: it has none, −1: not near its end. */
static off_t last_end(int fd, off_t size)
{
    char block[BLOCK];
    for (off_t to = size; to > 0; to -= to > BLOCK ? BLOCK : to) {
        const off_t from = to > BLOCK ? to - BLOCK : 0;
        if (size - from > REST_MOST || pread(fd, block, (size_t)(to - from), from) != to - from)
            return -1;
        const char *end = memrchr(block, '\n', (size_t)(to - from));
        if (end)
            return from + (end + 1 - block);
    }
    return 0;
}

/* A line begins after the last newline: what follows that was never written to its end. */
static enum err_code cut_rest(int fd, const char *path, struct err *e)
{
    char first[sizeof LINE_START - 1];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_BAD_FIELD, "%s: this is not a regular file", path);
    if (!st.st_size)
        return ERR_OK;
    const ssize_t n = pread(fd, first, sizeof first, 0);
    const off_t whole = last_end(fd, st.st_size);
    if (n <= 0)
        return err_set(e, ERR_BAD_FIELD, "%s: it cannot be read", path);
    if (memcmp(first, LINE_START, (size_t)n) != 0 || whole < 0)
        return err_set(e, ERR_BAD_FIELD, "%s: this is not an audit log", path);
    if (whole < st.st_size && ftruncate(fd, whole) != 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    return ERR_OK;
}

static int open_it(const char *path)
{
    return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
}

enum err_code audit_file_open(const char *path, int64_t most, int64_t kept, struct audit_file **ret,
                              struct err *e)
{
    struct audit_file *f = mem_calloc(1, sizeof *f);
    if (!f)
        return err_oom(e);
    *f = (struct audit_file){.path = path, .most = most, .kept = kept, .fd = open_it(path)};
    enum err_code code = f->fd < 0 ? err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno))
                                   : cut_rest(f->fd, path, e);
    if (code != ERR_OK) {
        audit_file_close(f);
        return code;
    }
    *ret = f;
    return ERR_OK;
}

void audit_file_close(struct audit_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    mem_free(f);
}

static bool complain(struct audit_file *f, const char *why)
{
    if (!f->told)
        log_event(LOG_ERROR, "an entry of the audit could not be written to its file", "file",
                  f->path, "reason", why, NULL);
    f->told = true;
    return false;
}

static void let_go(struct audit_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* "FILE.number"; 0: FILE itself. */
static bool name_of(const struct audit_file *f, int64_t number, struct strb *out)
{
    strb_reset(out);
    strb_addf(out, number ? "%s.%lld" : "%s", f->path, (long long)number);
    return !out->failed;
}

size_t audit_file_tail(const struct audit_file *f, int64_t number, size_t most, struct arena *arena,
                       const char **ret)
{
    _cleanup_strb_ struct strb name = {0};
    struct stat st;
    const int fd =
        name_of(f, number, &name) ? open(name.data, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return 0;
    const bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    const size_t size = is_file ? (size_t)st.st_size : 0, n = size < most ? size : most;
    char *text = n ? arena_alloc(arena, n) : NULL;
    const bool is_read = text && pread(fd, text, n, (off_t)(size - n)) == (ssize_t)n;
    close(fd);
    const char *end = is_read ? memrchr(text, '\n', n) : NULL;
    const char *begin = end && n < size ? (const char *)memchr(text, '\n', n) + 1 : text;
    if (!end || begin > end)
        return 0;
    *ret = begin;
    return (size_t)(end + 1 - begin);
}

/* Files move up to the first number that is free and no further: a rotation that fails half-way and
 * is tried again for every line would otherwise push all older files out. */
static bool rotate(struct audit_file *f)
{
    _cleanup_strb_ struct strb from = {0}, to = {0};
    struct stat st;
    int64_t i = f->kept ? 1 : 0;
    while (i < f->kept && name_of(f, i, &to) && lstat(to.data, &st) == 0)
        i++;
    for (; i > 0; i--) {
        if (!name_of(f, i - 1, &from) || !name_of(f, i, &to))
            return complain(f, "out of memory");
        if (rename(from.data, to.data) != 0)
            return complain(f, strerror(errno));
    }
    if (!f->kept && unlink(f->path) != 0)
        return complain(f, strerror(errno));
    let_go(f);
    return true;
}

/* Opens the file that has the name now, or makes it; its size. */
static bool ready(struct audit_file *f, off_t *ret_size)
{
    struct err e = ERR_INIT;
    struct stat st, named;
    if (f->fd >= 0 && (fstat(f->fd, &st) != 0 || stat(f->path, &named) != 0 ||
                       st.st_dev != named.st_dev || st.st_ino != named.st_ino))
        let_go(f);
    if (f->fd < 0) {
        f->fd = open_it(f->path);
        if (f->fd < 0)
            return complain(f, strerror(errno));
        if (cut_rest(f->fd, f->path, &e) != ERR_OK || fstat(f->fd, &st) != 0) {
            let_go(f);
            return complain(f, e.code != ERR_OK ? e.message : strerror(errno));
        }
    }
    *ret_size = st.st_size;
    return true;
}

bool audit_file_write(struct audit_file *f, const char *line, size_t n)
{
    off_t size;
    if (!line)
        return complain(f, "out of memory");
    if (!ready(f, &size))
        return false;
    if (size && size + (off_t)n > (off_t)f->most && (!rotate(f) || !ready(f, &size)))
        return false;
    const ssize_t wrote = write(f->fd, line, n);
    if (wrote == (ssize_t)n) {
        f->told = false;
        return true;
    }
    complain(f, wrote < 0 ? strerror(errno) : "the disk is full");
    if (wrote > 0 && ftruncate(f->fd, size) != 0) /* no line is half a line */
        let_go(f);                                /* it is cut when it is opened again */
    return false;
}
