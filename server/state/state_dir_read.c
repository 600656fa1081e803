/* state_dir.c explains the sums. If the pointer is missing, the snapshots' own pointers tell which
 * of them are complete, and the last of these is taken as the current one. An unfinished snapshot
 * has no pointer that matches it. */
#include "server/state/state_dir_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"

#define MANIFEST_MAX ((int64_t)1 << 32)

/* Opens without blocking, should the file be a pipe. */
static enum err_code open_file(const struct state_dir *d, int folder, const char *name, int *ret,
                               struct stat *ret_st, struct err *e)
{
    int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    enum err_code code = ERR_OK;
    if (fd < 0 || fstat(fd, ret_st) != 0)
        code = state_dir_failed(d, name, e);
    else if (!S_ISREG(ret_st->st_mode))
        code = err_set(e, ERR_STATE, "%s/%s: not a file", d->path, name);
    if (code != ERR_OK)
        state_close_fd(&fd);
    *ret = fd;
    return code;
}

static enum err_code read_at(const struct state_dir *d, int folder, const char *name, int64_t most,
                             char **ret, size_t *ret_n, struct err *e)
{
    struct stat st;
    int fd;
    TRY(open_file(d, folder, name, &fd, &st, e));
    size_t n = 0;
    const bool fits = st.st_size <= most;
    char *text = fits ? mem_alloc((size_t)st.st_size + 1) : NULL;
    enum err_code code = ERR_OK;
    if (!text)
        code = fits ? err_oom(e) : err_set(e, ERR_STATE, "%s/%s: too long", d->path, name);
    while (code == ERR_OK && n < (size_t)st.st_size) {
        ssize_t k = read(fd, text + n, (size_t)st.st_size - n);
        if (k < 0)
            code = state_dir_failed(d, name, e);
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    close(fd);
    if (code != ERR_OK) {
        mem_free(text);
        return code;
    }
    text[n] = '\0';
    *ret = text;
    *ret_n = n;
    return ERR_OK;
}

/* The pointer's three words, exactly as state_write_commit writes them. */
static enum err_code read_pointer(const struct state_dir *d, int folder, uint64_t *ret_number,
                                  char digest[STATE_DIGEST], bool *ret_there, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t n;
    *ret_there = false;
    if (faccessat(folder, "current", F_OK, 0) != 0 && errno == ENOENT)
        return ERR_OK;
    TRY(read_at(d, folder, "current", POINTER_MAX, &text, &n, e));
    if (strncmp(text, STATE_FORMAT, strlen(STATE_FORMAT)) != 0)
        return strncmp(text, "arrayd-state ", 13) == 0
                   ? err_set(e, ERR_STATE,
                             "%s/current: unknown format: it was written by a newer version, or is "
                             "damaged",
                             d->path)
                   : err_set(e, ERR_STATE, "%s/current: not a pointer to a snapshot", d->path);
    char *name = text + strlen(STATE_FORMAT), *space = strchr(name, ' ');
    if (space)
        *space = '\0';
    uint64_t number = space ? state_number_of("snapshot", name) : 0;
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
    TRY(read_at(d, folder, "manifest.json", MANIFEST_MAX, &ret->manifest, &ret->n, e));
    sha256_init(&sum);
    sha256_update(&sum, ret->n, (const uint8_t *)ret->manifest);
    state_digest(&sum, is);
    if (strcmp(is, digest) != 0)
        return err_set(e, ERR_STATE,
                       "%s/%s/manifest.json: damaged: its SHA-256 is not what 'current' says",
                       d->path, name);
    return ERR_OK;
}

static enum err_code open_snapshot(struct state_dir *d, uint64_t number, const char *digest,
                                   struct state_reader *ret, struct err *e)
{
    struct state_reader r = {.dir = d, .number = number, .folder = -1, .data = -1};
    char name[STATE_NAME];
    state_name_of("snapshot", number, name);
    r.folder = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum err_code code = r.folder < 0 ? state_dir_failed(d, name, e)
                                      : read_snapshot(d, r.folder, name, digest, &r, e);
    if (code != ERR_OK) {
        state_read_close(&r);
        return code;
    }
    d->current = number;
    *ret = r;
    return ERR_OK;
}

/* The highest snapshot below that number; 0: none. */
static uint64_t next_below(struct state_dir *d, uint64_t below)
{
    uint64_t highest = 0;
    DIR *dir = state_dir_list(d->fd, ".");
    for (const struct dirent *x = dir ? readdir(dir) : NULL; x; x = readdir(dir)) {
        uint64_t n = state_number_of("snapshot", x->d_name);
        highest = n > highest && n < below ? n : highest;
    }
    if (dir)
        closedir(dir);
    return highest;
}

/* Opens a snapshot by its own pointer. *ret_whole is false for one that a crashed process left
 * unfinished. */
static enum err_code take_up(struct state_dir *d, uint64_t number, struct state_reader *ret,
                             bool *ret_whole, struct err *e)
{
    char digest[STATE_DIGEST], name[STATE_NAME];
    struct err why = ERR_INIT;
    uint64_t of;
    bool pointer = false, manifest;
    *ret_whole = false;
    state_name_of("snapshot", number, name);
    int folder = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return ERR_OK;
    manifest = faccessat(folder, "manifest.json", F_OK, 0) == 0;
    enum err_code code = read_pointer(d, folder, &of, digest, &pointer, &why);
    close(folder);
    if (manifest && code == ERR_OK && !pointer)
        return err_set(e, ERR_STATE, "%s/current is missing, but there is %s", d->path, name);
    if (code == ERR_OK && pointer && of == number)
        code = open_snapshot(d, number, digest, ret, &why);
    *ret_whole = code == ERR_OK && pointer && of == number;
    if (code == ERR_OUT_OF_MEMORY)
        *e = why;
    return code == ERR_OUT_OF_MEMORY ? code : ERR_OK;
}

enum err_code state_read_open(struct state_dir *d, struct state_reader *ret, bool *ret_there,
                              struct err *e)
{
    char digest[STATE_DIGEST];
    uint64_t number = UINT64_MAX;
    TRY(read_pointer(d, d->fd, &number, digest, ret_there, e));
    if (*ret_there)
        return open_snapshot(d, number, digest, ret, e);
    for (number = next_below(d, number); number && !*ret_there; number = next_below(d, number))
        TRY(take_up(d, number, ret, ret_there, e));
    if (*ret_there)
        ret->without_pointer = true;
    return ERR_OK;
}

static enum err_code open_data(struct state_reader *r, const char *file, struct err *e)
{
    if (r->data >= 0 && !strcmp(r->name, file))
        return ERR_OK;
    state_close_fd(&r->data);
    const size_t n = strlen(file);
    if (strchr(file, '/') || n >= STATE_FILE)
        return err_set(e, ERR_STATE, "'%.80s' is not a file of a snapshot", file);
    memcpy(r->name, file, n + 1);
    struct stat st;
    return open_file(r->dir, r->folder, file, &r->data, &st, e);
}

enum err_code state_read(struct state_reader *r, const char *file, int64_t at, void *to, size_t n,
                         struct err *e)
{
    enum err_code code = open_data(r, file, e);
    for (size_t done = 0; code == ERR_OK && done < n;) {
        ssize_t k = pread(r->data, (char *)to + done, n - done, at + (int64_t)done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            code = state_dir_failed(r->dir, file, e);
        else if (k == 0)
            code = err_set(e, ERR_STATE, "%s: cut off after %lld bytes", file,
                           (long long)at + (long long)done);
        else
            done += (size_t)k;
    }
    return code;
}

enum err_code state_read_once(struct state_reader *r, struct err *e)
{
    int fd = openat(r->folder, "used", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return err_set(e, ERR_STATE, "a process has begun with this snapshot before");
    if (fd < 0 || fsync(r->folder) != 0) {
        state_close_fd(&fd);
        return state_dir_failed(r->dir, "used", e);
    }
    close(fd);
    return ERR_OK;
}

void state_read_close(struct state_reader *r)
{
    state_close_fd(&r->data);
    state_close_fd(&r->folder);
    mem_free(r->manifest);
    r->manifest = NULL;
}

/* Renames to a name that is not in use. */
static enum err_code put_aside(struct state_dir *d, const char *what, struct err *e)
{
    char name[STATE_NAME];
    snprintf(name, sizeof name, "%s.refused", what);
    for (unsigned n = 2; faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; n++)
        snprintf(name, sizeof name, "%s.refused-%u", what, n);
    return renameat(d->fd, what, d->fd, name) == 0 || errno == ENOENT
               ? ERR_OK
               : state_dir_failed(d, what, e);
}

/* Puts all of them aside: if the pointer is damaged, the current one is unknown. */
enum err_code state_dir_refuse(struct state_dir *d, struct err *e)
{
    enum err_code code = ERR_OK;
    DIR *dir = state_dir_list(d->fd, ".");
    if (!dir)
        return state_dir_failed(d, "", e);
    for (const struct dirent *x = readdir(dir); x && code == ERR_OK; x = readdir(dir)) {
        char name[STATE_NAME];
        uint64_t n = state_number_of("snapshot", x->d_name);
        state_name_of("refused", n, name);
        if (n && renameat(d->fd, x->d_name, d->fd, name) != 0)
            code = state_dir_failed(d, x->d_name, e);
    }
    closedir(dir);
    d->current = d->beside = 0;
    if (code == ERR_OK)
        code = put_aside(d, "current", e);
    if (code == ERR_OK && fsync(d->fd) != 0)
        code = state_dir_failed(d, "", e);
    return code;
}
