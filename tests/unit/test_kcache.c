/* compute/gpu/code/kcache.c and kcache_disk.c over a stub of NVRTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/code/kcache.h"
#include "tests/unit/nvrtc_stub.h"

static char top[64], dir[96]; /* a folder for the test, and the cache's in it */
static atomic_int users_freed;
static int64_t live_before;

static int set_up(void **state)
{
    (void)state;
    memset(&stub, 0, sizeof stub);
    users_freed = 0;
    strcpy(top, "/tmp/arrayd-kcache-XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(dir, sizeof dir, "%s/deep/cache", top);
    live_before = mem_live();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(mem_live(), live_before);
    assert_int_equal(stub.programs, 0);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

static void count_user(void *user)
{
    (void)user;
    atomic_fetch_add(&users_freed, 1);
}

static struct kcache *open_cache(const char *folder, int64_t disk_bytes, int64_t entries)
{
    struct kcache_config config = {folder, disk_bytes, entries, count_user};
    struct kcache *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(kcache_new(&config, &stub_nvrtc, &c, &e), ERR_OK);
    return c;
}

static struct kcache_stats stats_of(struct kcache *c)
{
    struct kcache_stats s;
    kcache_get_stats(c, &s);
    return s;
}

/* Gets the text's entry, expecting it to come from there. */
static struct kcache_entry *get(struct kcache *c, const char *source, enum kcache_how expected)
{
    struct kcache_entry *entry = NULL;
    enum kcache_how how;
    struct err e = ERR_INIT;
    assert_int_equal(kcache_get(c, "sm_90", source, false, &entry, &how, &e), ERR_OK);
    assert_int_equal(how, expected);
    assert_memory_equal(entry->bytes, "\177ELF", 4);
    assert_memory_equal((const char *)entry->bytes + 4, source, strlen(source));
    return entry;
}

static void touch(struct kcache *c, const char *source, enum kcache_how expected)
{
    kcache_unref(get(c, source, expected));
}

/* The path of the text's file. */
static const char *path_of(struct kcache *c, const char *source)
{
    static char path[256];
    struct code_key key = kcache_key(c, "sm_90", source, false);
    int n = snprintf(path, sizeof path, "%s/", dir);
    for (size_t i = 0; i < sizeof key.sha; i++)
        n += snprintf(path + n, sizeof path - (size_t)n, "%02x", key.sha[i]);
    return path;
}

static int count_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *entry; d && (entry = readdir(d)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

static size_t read_file(const char *path, char *to, size_t cap)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, cap, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *from, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(from, 1, n, f), n);
    fclose(f);
}

static void memory_then_disk(void **state)
{
    (void)state;
    struct kcache *c = open_cache(dir, 1 << 20, 10);
    struct code_key key = kcache_key(c, "sm_90", "text", false);
    assert_null(kcache_find(c, &key));
    struct kcache_entry *a = get(c, "text", KCACHE_COMPILED), *b = get(c, "text", KCACHE_MEMORY);
    assert_ptr_equal(a, b);
    assert_ptr_equal(kcache_find(c, &key), a);
    assert_memory_equal(&a->key, &key, sizeof key);
    kcache_unref(a);
    kcache_unref(a);
    struct stat st;
    assert_int_equal(stat(path_of(c, "text"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    struct kcache_stats s = stats_of(c);
    assert_int_equal(s.memory_hits, 2);
    assert_int_equal(s.compiled, 1);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.bytes, a->n);
    assert_string_equal(s.disk_problem, "");
    kcache_free(c);
    assert_memory_equal(b->bytes, "\177ELF", 4); /* ours, whatever became of the cache */
    kcache_unref(b);

    c = open_cache(dir, 1 << 20, 10);
    touch(c, "text", KCACHE_DISK);
    touch(c, "text", KCACHE_MEMORY);
    assert_int_equal(stats_of(c).disk_hits, 1);
    assert_int_equal(stats_of(c).disk_bytes, stats_of(c).bytes + 80);
    assert_int_equal(stub.compiles, 1);
    kcache_free(c);
}

static void the_key_depends_on_everything(void **state)
{
    (void)state;
    struct kcache *c = open_cache(NULL, 0, 10);
    struct nvrtc other = stub_nvrtc;
    other.minor = 1;
    struct kcache_config config = {.max_entries = 10};
    struct kcache *d = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(kcache_new(&config, &other, &d, &e), ERR_OK);
    struct code_key keys[] = {
        kcache_key(c, "sm_90", "text", false), kcache_key(c, "sm_80", "text", false),
        kcache_key(c, "sm_90", "text", true),  kcache_key(c, "sm_90", "texu", false),
        kcache_key(d, "sm_90", "text", false),
    };
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof keys[0]);
    struct code_key again = kcache_key(c, "sm_90", "text", false);
    assert_memory_equal(&again, &keys[0], sizeof again);
    kcache_free(c);
    kcache_free(d);
}

static void the_longest_unused_goes(void **state)
{
    (void)state;
    struct kcache *c = open_cache(NULL, 0, 3);
    touch(c, "a", KCACHE_COMPILED);
    touch(c, "b", KCACHE_COMPILED);
    touch(c, "c", KCACHE_COMPILED);
    touch(c, "a", KCACHE_MEMORY);
    touch(c, "d", KCACHE_COMPILED);
    touch(c, "a", KCACHE_MEMORY);
    touch(c, "c", KCACHE_MEMORY);
    touch(c, "d", KCACHE_MEMORY);
    touch(c, "b", KCACHE_COMPILED);
    touch(c, "a", KCACHE_COMPILED);
    assert_int_equal(stats_of(c).entries, 3);
    kcache_free(c);
}

static void entries_in_use_stay(void **state)
{
    (void)state;
    struct kcache *c = open_cache(NULL, 0, 2);
    struct kcache_entry *held[4];
    static const char *const texts[] = {"a", "b", "c", "d"};
    int value;
    for (int i = 0; i < 4; i++) {
        held[i] = get(c, texts[i], KCACHE_COMPILED);
        atomic_store(&held[i]->user, &value);
    }
    assert_int_equal(stats_of(c).entries, 4);
    assert_int_equal(users_freed, 0);
    for (int i = 0; i < 4; i++)
        touch(c, texts[i], KCACHE_MEMORY);
    for (int i = 0; i < 4; i++)
        kcache_unref(held[i]);
    touch(c, "e", KCACHE_COMPILED);
    assert_int_equal(stats_of(c).entries, 2);
    assert_int_equal(users_freed, 3);
    touch(c, "d", KCACHE_MEMORY);
    kcache_free(c);
    assert_int_equal(users_freed, 4);
}

struct asker {
    struct kcache *c;
    int first;
    pthread_barrier_t *start;
    int compiled;
};

static void *ask(void *user)
{
    struct asker *a = user;
    pthread_barrier_wait(a->start);
    for (int i = 0; i < 4; i++) {
        char source[32];
        snprintf(source, sizeof source, "SLOW %d", (a->first + i) % 4);
        struct kcache_entry *entry;
        enum kcache_how how;
        struct err e = ERR_INIT;
        if (kcache_get(a->c, "sm_90", source, false, &entry, &how, &e) != ERR_OK ||
            memcmp((const char *)entry->bytes + 4, source, strlen(source)) != 0)
            abort();
        a->compiled += how == KCACHE_COMPILED;
        kcache_unref(entry);
    }
    return NULL;
}

/* Rounds: memory, disk, disk again, memory with fewer entries than texts. */
static void threads_share_compilations(void **state)
{
    (void)state;
    int64_t waited = 0;
    for (int round = 0; round < 4; round++) {
        bool disk = round == 1 || round == 2;
        struct kcache *c = open_cache(disk ? dir : NULL, 1 << 20, round == 3 ? 2 : 8);
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 8);
        pthread_t threads[8];
        struct asker askers[8];
        int compiled = 0;
        for (int i = 0; i < 8; i++) {
            askers[i] = (struct asker){c, i % 4, &start, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(threads[i], NULL);
            compiled += askers[i].compiled;
        }
        struct kcache_stats s = stats_of(c);
        if (round < 3) {
            assert_int_equal(s.compiled, round == 2 ? 0 : 4);
            assert_int_equal(s.disk_hits, round == 2 ? 4 : 0);
        }
        assert_int_equal(s.compiled + s.disk_hits + s.memory_hits + s.waited, 32);
        assert_in_range(compiled, s.compiled, s.compiled + s.waited);
        waited += s.waited;
        pthread_barrier_destroy(&start);
        kcache_free(c);
    }
    assert_true(waited > 0);
    assert_true(stub.most_running > 1); /* different texts side by side */
}

static void *ask_for_failure(void *user)
{
    struct asker *a = user;
    struct kcache_entry *entry = NULL;
    enum kcache_how how;
    struct err e = ERR_INIT;
    pthread_barrier_wait(a->start);
    enum err_code err = kcache_get(a->c, "sm_90", "SLOWER FAIL", false, &entry, &how, &e);
    if (err != ERR_INTERNAL || entry || !strstr(e.message, "no good"))
        abort();
    return NULL;
}

static void a_refusal_is_told_to_all_and_remembered(void **state)
{
    (void)state;
    struct kcache *c = open_cache(dir, 1 << 20, 2);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 8);
    pthread_t threads[8];
    struct asker asker = {c, 0, &start, 0};
    stub.log = "no good";
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_failure, &asker), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(stub.compiles, 1);
    assert_int_equal(stats_of(c).failed, 1);
    assert_int_equal(stats_of(c).entries, 0);
    assert_int_equal(count_files(), 0);
    pthread_barrier_destroy(&start);
    kcache_free(c);
}

/* Opens a cache over the folder as it is: the text's file must be a miss, and be replaced. */
static void expect_replaced(const char *source)
{
    struct kcache *c = open_cache(dir, 1 << 20, 2);
    touch(c, source, KCACHE_COMPILED);
    assert_true(stats_of(c).disk_errors > 0);
    assert_string_not_equal(stats_of(c).disk_problem, "");
    kcache_free(c);
    c = open_cache(dir, 1 << 20, 2);
    touch(c, source, KCACHE_DISK);
    kcache_free(c);
}

static void damaged_files_are_misses(void **state)
{
    (void)state;
    struct kcache *c = open_cache(dir, 1 << 20, 2);
    touch(c, "text", KCACHE_COMPILED);
    touch(c, "other", KCACHE_COMPILED);
    char path[256], good[4096], bad[4096];
    strcpy(path, path_of(c, "text"));
    size_t n = read_file(path, good, sizeof good);
    size_t n_other = read_file(path_of(c, "other"), bad, sizeof bad);
    kcache_free(c);

    write_file(path, bad, n_other); /* whole, but of another key */
    expect_replaced("text");
    for (size_t cut = 0; cut < n; cut++) {
        write_file(path, good, cut);
        expect_replaced("text");
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, good, n);
        bad[i] ^= 0x40;
        write_file(path, bad, n);
        expect_replaced("text");
    }
    memcpy(bad, good, n);
    bad[n] = 'x';
    write_file(path, bad, n + 1);
    expect_replaced("text");
}

static void what_others_can_write_is_not_trusted(void **state)
{
    (void)state;
    struct kcache *c = open_cache(dir, 1 << 20, 2);
    touch(c, "text", KCACHE_COMPILED);
    char path[256], elsewhere[256];
    strcpy(path, path_of(c, "text"));
    kcache_free(c);

    assert_int_equal(chmod(path, 0620), 0);
    expect_replaced("text");
    assert_int_equal(chmod(path, 0602), 0);
    expect_replaced("text");
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        expect_replaced("text");
    }
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", top);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    expect_replaced("text");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_replaced("text");

    /* the folder */
    for (int i = 0; i < (geteuid() == 0 ? 3 : 2); i++) {
        assert_int_equal(chmod(dir, i == 0 ? 0770 : i == 1 ? 0707 : 0700), 0);
        if (i == 2)
            assert_int_equal(chown(dir, 65534, 65534), 0);
        c = open_cache(dir, 1 << 20, 2);
        touch(c, "text", KCACHE_COMPILED);
        assert_non_null(strstr(stats_of(c).disk_problem, "not used"));
        kcache_free(c);
    }
}

static void works_without_a_disk(void **state)
{
    (void)state;
    char file[128], below[160];
    snprintf(file, sizeof file, "%s/file", top);
    snprintf(below, sizeof below, "%s/folder", file);
    write_file(file, "", 0);
    struct kcache *c = open_cache(below, 1 << 20, 2);
    touch(c, "text", KCACHE_COMPILED);
    touch(c, "text", KCACHE_MEMORY);
    assert_non_null(strstr(stats_of(c).disk_problem, below));
    kcache_free(c);

    /* a disk that takes no more */
    c = open_cache(dir, 1 << 20, 2);
    struct rlimit old, tiny;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tiny = old;
    tiny.rlim_cur = 90;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    touch(c, "text", KCACHE_COMPILED);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(count_files(), 0);
    assert_int_equal(stats_of(c).disk_errors, 1);
    assert_non_null(strstr(stats_of(c).disk_problem, "cannot write"));
    touch(c, "another", KCACHE_COMPILED); /* and then does again */
    assert_int_equal(count_files(), 1);

    /* the folder is taken away under it */
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    touch(c, "third", KCACHE_COMPILED);
    assert_int_equal(stats_of(c).disk_errors, 2);
    kcache_free(c);
}

/* Makes the text's file so many seconds old. */
static void age(struct kcache *c, const char *source, int seconds)
{
    struct timespec t[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(c, source), t, 0), 0);
}

static void the_disk_keeps_its_bound(void **state)
{
    (void)state;
    char big[3000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    struct kcache *c = open_cache(dir, 10000, 100);
    for (int i = 0; i < 3; i++) {
        big[0] = (char)('a' + i);
        touch(c, big, KCACHE_COMPILED);
        age(c, big, 1000 - 100 * i);
    }
    char foreign[128], abandoned[128], fresh[128];
    snprintf(foreign, sizeof foreign, "%s/notes.txt", dir);
    snprintf(abandoned, sizeof abandoned, "%s/.tmp-1", dir);
    snprintf(fresh, sizeof fresh, "%s/.tmp-2", dir);
    write_file(foreign, big, sizeof big);
    write_file(abandoned, big, sizeof big);
    write_file(fresh, big, sizeof big);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, abandoned, old, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, foreign, old, 0), 0);
    kcache_free(c);

    /* a hit makes "a" the youngest; the fourth file sends "b" and "c" away */
    c = open_cache(dir, 10000, 100);
    assert_int_equal(access(abandoned, F_OK), -1);
    big[0] = 'a';
    touch(c, big, KCACHE_DISK);
    big[0] = 'd';
    touch(c, big, KCACHE_COMPILED);
    assert_true(stats_of(c).disk_bytes <= 10000);
    assert_int_equal(count_files(), 4);
    kcache_free(c);
    c = open_cache(dir, 10000, 100);
    touch(c, big, KCACHE_DISK);
    big[0] = 'a';
    touch(c, big, KCACHE_DISK);
    kcache_free(c);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);

    /* a smaller bound is kept from the start; what is larger than all of it is not stored */
    c = open_cache(dir, 1000, 100);
    assert_int_equal(stats_of(c).disk_bytes, 0);
    touch(c, big, KCACHE_COMPILED);
    assert_int_equal(count_files(), 2);
    assert_int_equal(stats_of(c).disk_errors, 0);
    kcache_free(c);
}

static void daemons_share_a_folder(void **state)
{
    (void)state;
    struct kcache *a = open_cache(dir, 1 << 20, 200), *b = open_cache(dir, 1 << 20, 200);
    touch(a, "one", KCACHE_COMPILED);
    touch(b, "one", KCACHE_DISK);
    touch(b, "two", KCACHE_COMPILED);
    touch(a, "two", KCACHE_DISK);
    /* after some files of its own, a daemon sees what the others' take */
    for (int i = 0; i < 64; i++) {
        char source[32];
        snprintf(source, sizeof source, "text %d", i);
        touch(a, source, KCACHE_COMPILED);
    }
    assert_true(stats_of(a).disk_bytes > stats_of(a).bytes + 65 * 80);
    kcache_free(a);
    kcache_free(b);
}

static void survives_every_allocation_failure(void **state)
{
    (void)state;
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        for (int nth = 1;; nth++) {
            int64_t live = mem_live();
            struct kcache_config config = {dir, 1 << 20, 2, count_user};
            struct kcache *c = NULL;
            struct kcache_entry *entry;
            enum kcache_how how;
            struct err e = ERR_INIT;
            mem_fail_after(nth, false);
            enum err_code err = kcache_new(&config, &stub_nvrtc, &c, &e);
            if (!err) {
                err = kcache_get(c, "sm_90", "ar_SIN_F32", false, &entry, &how, &e);
                if (!err)
                    kcache_unref(entry);
            }
            bool failed = mem_failed() > 0;
            mem_fail_after(0, false);
            assert_true(failed || err == ERR_OK);
            assert_true(err == ERR_OK || err == ERR_OUT_OF_MEMORY);
            if (err && c) /* the next one succeeds */
                touch(c, "ar_SIN_F32", on_disk ? KCACHE_DISK : KCACHE_COMPILED);
            if (!on_disk && c)
                unlink(path_of(c, "ar_SIN_F32"));
            kcache_free(c);
            assert_int_equal(mem_live(), live);
            if (!failed) {
                assert_true(nth > 4);
                break;
            }
        }
        struct kcache *c = open_cache(dir, 1 << 20, 2);
        touch(c, "ar_SIN_F32", on_disk ? KCACHE_DISK : KCACHE_COMPILED);
        kcache_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_then_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_key_depends_on_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_longest_unused_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_in_use_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_share_compilations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_is_told_to_all_and_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_files_are_misses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_others_can_write_is_not_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(works_without_a_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_disk_keeps_its_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(daemons_share_a_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_every_allocation_failure, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
