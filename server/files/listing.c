/* What is in a folder: regular files and folders whose names are text, in the order of the names.
 * Links and devices are left out, since nothing opens them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "server/body/meta.h"
#include "server/files/folders.h"

struct entry {
    char *name;
    struct stat st;
};

struct listing {
    struct entry *all;
    size_t n, cap;
    bool more;
};

static void clear(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->all[i].name);
    mem_free(l->all);
}

static enum err_code add(struct listing *l, const char *name, const struct stat *st, struct err *e)
{
    if (l->n == l->cap) {
        const size_t cap = 2 * l->cap + 16;
        struct entry *all = mem_reallocarray(l->all, cap, sizeof *all);
        if (!all)
            return err_oom(e);
        l->all = all;
        l->cap = cap;
    }
    l->all[l->n] = (struct entry){mem_strdup(name), *st};
    return l->all[l->n++].name ? ERR_OK : err_oom(e);
}

static enum err_code collect(DIR *dir, size_t most, struct listing *l, struct err *e)
{
    struct stat st;
    for (errno = 0;; errno = 0) {
        const struct dirent *d = readdir(dir);
        if (!d)
            return errno ? file_error(errno, ".", e) : ERR_OK;
        if (file_path_check(d->d_name, NULL) != ERR_OK ||
            !utf8_valid(d->d_name, strlen(d->d_name)) ||
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
            continue;
        if (l->n == most) {
            l->more = true;
            return ERR_OK;
        }
        TRY(add(l, d->d_name, &st, e));
    }
}

/* File systems have years that no date can say. */
void file_put_modified(struct json_writer *w, const struct stat *st)
{
    const int64_t s = st->st_mtim.tv_sec, least = -62135596800 /* 0001 */, most = 253402300799;
    const int64_t said = s < least ? least : s > most ? most : s;
    meta_put_time(w, "modified", said * 1000000 + st->st_mtim.tv_nsec / 1000);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void put(const struct listing *l, struct json_writer *w)
{
    json_put_key(w, "entries");
    json_open_list(w);
    for (size_t i = 0; i < l->n; i++) {
        const struct stat *st = &l->all[i].st;
        const bool file = S_ISREG(st->st_mode);
        json_open_object(w);
        json_put_member_string(w, "name", l->all[i].name);
        json_put_member_string(w, "kind", file ? "file" : "folder");
        if (file)
            json_put_member_i64(w, "size", st->st_size);
        file_put_modified(w, st);
        json_close_object(w);
    }
    json_close_list(w);
    json_put_member_bool(w, "more", l->more);
}

static enum err_code read_folder(int fd, size_t most, struct listing *l, struct err *e)
{
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (!dir) {
        const int number = errno;
        if (own >= 0)
            close(own);
        return file_error(number, ".", e);
    }
    enum err_code code = collect(dir, most, l, e);
    closedir(dir);
    return code;
}

enum err_code folder_list(int fd, size_t most, struct json_writer *w, struct err *e)
{
    struct listing l = {0};
    enum err_code code = fd < 0 ? ERR_OK : read_folder(fd, most, &l, e);
    if (code == ERR_OK) {
        if (l.n) /* qsort takes no NULL, of an empty folder */
            qsort(l.all, l.n, sizeof *l.all, by_name);
        put(&l, w);
    }
    clear(&l);
    return code;
}
