/* server/files/folders: whatever a path says, what is opened lies in the folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/files/folders.h"
#include "server/store/handles.h"

static char top[] = "/tmp/arrayd-folders-XXXXXX", folder[sizeof top + 16];

static void at(char ret[PATH_MAX], const char *path)
{
    snprintf(ret, PATH_MAX, "%s/%s", top, path);
}

static void put(const char *path)
{
    char full[PATH_MAX];
    at(full, path);
    const int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void sub(const char *path)
{
    char full[PATH_MAX];
    at(full, path);
    assert_int_equal(mkdir(full, 0700), 0);
}

static void link_to(const char *target, const char *path)
{
    char full[PATH_MAX];
    at(full, path);
    assert_int_equal(symlink(target, full), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(top))
        return -1;
    snprintf(folder, sizeof folder, "%s/in", top);
    sub("in");
    sub("in/sub");
    sub("in/sub/sub");
    sub("out");
    put("in/file");
    put("in/sub/file");
    put("in/...");
    put("out/file");
    put("file");
    link_to("../out", "in/way");
    link_to("..", "in/sub/up");
    link_to("/", "in/root");
    link_to("sub", "in/near");
    link_to("../out/file", "in/link");
    link_to("/proc/self/cwd", "in/magic");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

static struct folders *open_folder(bool accounts, const char *suffix)
{
    char option[PATH_MAX];
    char *items[] = {option};
    const struct config_list list = {items, 1};
    struct err e = ERR_INIT;
    struct folders *f;
    snprintf(option, sizeof option, "data=%s%s", folder, suffix);
    assert_int_equal(folders_open(&list, accounts, &f, &e), ERR_OK);
    return f;
}

/* Where an open file really is. */
static void check_inside(int fd, const char *path)
{
    char self[32], real[PATH_MAX];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(self, real, sizeof real - 1);
    assert_true(n > 0);
    real[n] = '\0';
    const size_t len = strlen(folder);
    if (strncmp(real, folder, len) != 0 || (real[len] && real[len] != '/'))
        fail_msg("'%s' is %s", path, real);
}

static const char *const parts[] = {"..",           ".",         "",
                                    "file",         "sub",       "...",
                                    "way",          "up",        "root",
                                    "near",         "link",      "magic",
                                    "out",          "in",        "/",
                                    "//",           "proc",      "self",
                                    "fd",           "0",         "~",
                                    "\\",           "..\\",      " ",
                                    "a\nb",         "%2e%2e",    "\xC0\xAE\xC0\xAE",
                                    "\xE2\x80\xA5", ".arrayd-x", "tmp"};
#define N_PARTS (sizeof parts / sizeof *parts)

static void random_path(uint64_t *seed, char ret[256])
{
    size_t len = 0, n;
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *seed >> 11;
    const unsigned k = 1 + x % 6;
    x /= 6;
    ret[0] = '\0';
    for (unsigned i = 0; i < k; i++, x /= N_PARTS) {
        n = (size_t)snprintf(ret + len, 256 - len, "%s%s", i ? "/" : "", parts[x % N_PARTS]);
        len += n;
    }
}

static void generated_paths(void **state)
{
    (void)state;
    struct folders *f = open_folder(false, "");
    const char *asked = getenv("ARRAYD_PATHS");
    const long n = asked ? atol(asked) : 100000;
    uint64_t seed = 1;
    long opened = 0, made = 0;
    char path[256];
    struct stat st;
    for (long i = 0; i < n; i++) {
        struct err e = ERR_INIT;
        struct new_file file;
        int fd;
        random_path(&seed, path);
        if (folder_open(folders_at(f, 0), "ann", path, &fd, &st, &e) == ERR_OK) {
            check_inside(fd, path);
            close(fd);
            opened++;
        } else {
            assert_true(e.code == ERR_BAD_NAME || e.code == ERR_NOT_FOUND);
        }
        if (i % 16 == 0 &&
            folder_new_file(folders_at(f, 0), "ann", path, true, &file, &e) == ERR_OK) {
            check_inside(file.fd, path);
            new_file_drop(&file);
            made++;
        }
    }
    assert_true(opened > n / 1000 && made > 0);
    folders_free(f);
}

static void parts_of_users(void **state)
{
    (void)state;
    struct folders *f = open_folder(true, "");
    struct err e = ERR_INIT;
    struct new_file file;
    struct stat st;
    int fd;
    assert_int_equal(folder_open(folders_at(f, 0), "ann", "", &fd, &st, &e), ERR_NOT_FOUND);
    assert_int_equal(folder_open(folders_at(f, 0), "way", "file", &fd, &st, &e), ERR_NOT_FOUND);
    assert_int_equal(folder_open(folders_at(f, 0), "near", "file", &fd, &st, &e), ERR_NOT_FOUND);
    assert_int_equal(folder_new_file(folders_at(f, 0), "way", "new", true, &file, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "new", false, &file, &e), ERR_OK);
    check_inside(file.fd, "new");
    assert_int_equal(folder_open(folders_at(f, 0), "ann", "new", &fd, &st, &e), ERR_NOT_FOUND);
    assert_int_equal(new_file_publish(&file, false, &e), ERR_OK);
    new_file_drop(&file);
    assert_int_equal(folder_open_file(folders_at(f, 0), "ann", "new", &fd, &st, &e), ERR_OK);
    close(fd);
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "new", false, &file, &e),
                     ERR_CONFLICT);
    folders_free(f);
}

static bool there(const char *path)
{
    char full[PATH_MAX];
    at(full, path);
    return access(full, F_OK) == 0;
}

/* What a killed daemon leaves goes with the first new file; what another writes stays, and so does
 * what has a name that is only like ours, or is no file. */
static void what_is_left(void **state)
{
    (void)state;
    struct folders *f = open_folder(false, ":shared");
    struct err e = ERR_INIT;
    struct new_file one, two;
    struct stat st;
    char id[ID_SIZE], left[64], folder_like_it[64], full[PATH_MAX];
    id_make('f', id);
    snprintf(left, sizeof left, "in/sub/.arrayd-%s", id);
    put(left);
    id_make('f', id);
    snprintf(folder_like_it, sizeof folder_like_it, "in/sub/.arrayd-%s", id);
    sub(folder_like_it);
    put("in/sub/.arrayd-notes");
    put("in/sub/.arrayd-f-1");
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "sub/one", false, &one, &e), ERR_OK);
    assert_false(there(left));
    assert_true(there("in/sub/.arrayd-notes") && there("in/sub/.arrayd-f-1"));
    assert_true(there(folder_like_it));
    put(left); /* none can be new, so nobody looks again */
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "sub/two", false, &two, &e), ERR_OK);
    assert_true(there(left));
    assert_int_equal(new_file_publish(&one, false, &e), ERR_OK);
    assert_int_equal(new_file_publish(&two, false, &e), ERR_OK);
    new_file_drop(&one);
    new_file_drop(&two);
    at(full, "in/sub");
    const int spool = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    spool_sweep(spool);
    assert_false(there(left));
    assert_int_equal(spool_file(spool, &one, &e), ERR_OK);
    assert_int_equal(fstat(one.fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    new_file_drop(&one);
    close(spool);
    folders_free(f);
    f = open_folder(false, ":ro");
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "x", false, &one, &e), ERR_READ_ONLY);
    folders_free(f);
}

/* As processes that begin do, each for the first time. */
static void *make_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++) {
        struct folders *f = open_folder(false, "");
        struct err e = ERR_INIT;
        struct new_file file;
        struct stat st;
        assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "many", true, &file, &e), ERR_OK);
        assert_int_equal(fstatat(file.folder, file.own, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(new_file_publish(&file, true, &e), ERR_OK);
        new_file_drop(&file);
        folders_free(f);
    }
    return NULL;
}

static void several_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* File systems that cannot rename to a name that nothing has. */
static bool cannot;
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    if (!cannot)
        return __real_renameat2(from, old, to, new, flags);
    errno = EINVAL;
    return -1;
}

static void without_exclusive_renames(void **state)
{
    (void)state;
    struct folders *f = open_folder(false, "");
    struct err e = ERR_INIT;
    struct new_file one, two;
    struct stat st;
    cannot = true;
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "name", false, &one, &e), ERR_OK);
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "name", false, &two, &e), ERR_OK);
    assert_int_equal(new_file_publish(&one, false, &e), ERR_OK);
    assert_true(there("in/name") && one.own[0] == '\0');
    assert_int_equal(fstat(one.fd, &st), 0);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(new_file_publish(&two, false, &e), ERR_CONFLICT);
    new_file_drop(&one);
    new_file_drop(&two);
    cannot = false;
    folders_free(f);
}

/* A file that another process has locked, whose sweep would remove it, is no file of ours. */
static bool locked;
int __real_fcntl64(int fd, int command, void *arg);
int __wrap_fcntl64(int fd, int command, void *arg);
int __wrap_fcntl64(int fd, int command, void *arg)
{
    if (!locked || command != F_OFD_SETLK)
        return __real_fcntl64(fd, command, arg);
    errno = EAGAIN;
    return -1;
}

static void files_that_others_lock(void **state)
{
    (void)state;
    struct folders *f = open_folder(false, "");
    struct err e = ERR_INIT;
    struct new_file file;
    locked = true;
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "lost", false, &file, &e),
                     ERR_FILE_IO);
    locked = false;
    assert_int_equal(folder_new_file(folders_at(f, 0), "ann", "lost", false, &file, &e), ERR_OK);
    new_file_drop(&file);
    folders_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_paths),
        cmocka_unit_test(parts_of_users),
        cmocka_unit_test(what_is_left),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(without_exclusive_renames),
        cmocka_unit_test(files_that_others_lock),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
