/* compute/gpu/api/share_fd: whose descriptor is handed out, and how many are kept. Pipes stand
 * for the driver's descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/gpu/api/share_fd.h"
#include "tests/descriptors.h"

/* One of its own; *ret_inode says which. */
static int make(ino_t *ret_inode)
{
    int ends[2];
    struct stat st;
    assert_int_equal(pipe(ends), 0);
    close(ends[1]);
    assert_int_equal(fstat(ends[0], &st), 0);
    *ret_inode = st.st_ino;
    return ends[0];
}

/* Asked for, it is the one with `inode`; 0: there is none. */
static void is(struct share_fds *f, int64_t handle, ino_t inode)
{
    struct stat st;
    int fd = share_fds_get(f, handle);
    assert_int_equal(fd >= 0, inode != 0);
    if (fd < 0)
        return;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_ino, inode);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void those_last_asked_for_stay(void **state)
{
    (void)state;
    struct share_fds f;
    ino_t inodes[SHARE_FDS + 10];
    const int open = descriptors();
    share_fds_init(&f);
    for (int i = 0; i < SHARE_FDS + 10; i++) {
        int fd = make(&inodes[i]);
        share_fds_keep(&f, i, fd);
        close(fd);
        is(&f, i, inodes[i]);
        is(&f, 0, inodes[0]); /* it is in use all the while */
    }
    assert_int_equal(descriptors(), open + SHARE_FDS);
    for (int i = 1; i <= 10; i++)
        is(&f, i, 0);
    for (int i = 11; i < SHARE_FDS + 10; i++)
        is(&f, i, inodes[i]);
    share_fds_free(&f);
    assert_int_equal(descriptors(), open);
}

static void a_dropped_one_is_closed(void **state)
{
    (void)state;
    struct share_fds f;
    ino_t first, second;
    const int open = descriptors();
    share_fds_init(&f);
    int fd = make(&first), other = make(&second);
    share_fds_keep(&f, 7, fd);
    share_fds_keep(&f, 7, other); /* who made one at the same time */
    is(&f, 7, first);
    share_fds_keep(&f, 8, other);
    share_fds_drop(&f, 7);
    share_fds_drop(&f, 9);
    is(&f, 7, 0);
    is(&f, 8, second);
    close(fd);
    close(other);
    assert_int_equal(descriptors(), open + 1);
    assert_true(share_fds_drop_all(&f));
    assert_false(share_fds_drop_all(&f));
    assert_int_equal(descriptors(), open);
    share_fds_free(&f);
}

static void few_descriptors_keep_few(void **state)
{
    (void)state;
    struct share_fds f;
    struct rlimit was, few;
    ino_t inode;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    const int open = descriptors();
    few = was;
    share_fds_init(&f);
    for (int i = 0; i < 20; i++) {
        int fd = make(&inode);
        few.rlim_cur = i < 10 ? 64 : 15;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        share_fds_keep(&f, i, fd);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        close(fd);
        assert_true(descriptors() <= open + 4);
        is(&f, i, i < 10 ? inode : 0);
    }
    share_fds_free(&f);
    assert_int_equal(descriptors(), open);
}

struct crowd {
    struct share_fds fds;
    int pipes[100];
    ino_t inodes[100];
};

static void *ask(void *arg)
{
    struct crowd *c = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    for (int i = 0; i < 3000; i++) {
        int k = rand_r(&seed) % 100, fd = share_fds_get(&c->fds, k);
        struct stat st;
        if (fd < 0) {
            share_fds_keep(&c->fds, k, c->pipes[k]);
            continue;
        }
        if (fstat(fd, &st) != 0 || st.st_ino != c->inodes[k])
            return c;
        close(fd);
        if (i % 50 == 0)
            share_fds_drop(&c->fds, k);
        if (i % 500 == 0)
            (void)share_fds_drop_all(&c->fds);
    }
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    struct crowd c;
    pthread_t threads[4];
    void *wrong;
    const int open = descriptors();
    share_fds_init(&c.fds);
    for (int i = 0; i < 100; i++)
        c.pipes[i] = make(&c.inodes[i]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &c), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    share_fds_free(&c.fds);
    for (int i = 0; i < 100; i++)
        close(c.pipes[i]);
    assert_int_equal(descriptors(), open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_last_asked_for_stay),
        cmocka_unit_test(a_dropped_one_is_closed),
        cmocka_unit_test(few_descriptors_keep_few),
        cmocka_unit_test(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
