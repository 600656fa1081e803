/* What a process behind the walls can still do: each case is a child with the reader's descriptors.
 * A kernel without Landlock skips. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/reader/crew.h"
#include "server/reader/sandbox.h"
#include "server/reader/wire.h"

#define FILE_MOST 100000
#define THREADS   3

static char path[] = "/tmp/arrayd-sandbox-XXXXXX";

/* The status of a child that does `what` behind the walls; its socket's text goes to `said`. */
static int within(int (*what)(void), bool write_, int64_t seconds, char *said, size_t n)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int file = open(path, write_ ? O_RDWR : O_RDONLY);
        if (dup2(ends[1], 63) < 0 || dup2(file, 62) < 0 || dup2(63, WIRE_SOCKET) < 0 ||
            dup2(62, WIRE_FILE) < 0)
            _exit(99);
        close_range(WIRE_FILE + 1, ~0u, 0);
        char state[128];
        struct sandbox s = {.memory = 64 << 20,
                            .seconds = seconds,
                            .file = FILE_MOST,
                            .write = write_,
                            .threads = THREADS,
                            .required = true};
        sandbox_enter(&s, state, sizeof state);
        _exit(strcmp(state, "landlock+seccomp") == 0 ? what() : 98);
    }
    close(ends[1]);
    size_t have = 0;
    for (ssize_t got = 1; got > 0 && have<n - 1; have += got> 0 ? (size_t)got : 0)
        got = read(ends[0], said + have, n - 1 - have);
    said[have] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void allowed(int (*what)(void), bool write_)
{
    char said[1024];
    int status = within(what, write_, 100, said, sizeof said);
    if (strstr(said, "no_sandbox"))
        skip();
    if (status != 0)
        print_message("%s\n", said);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define REFUSED(call) ((call) == -1 && (errno == EPERM || errno == EACCES))

static int opens_only_its_file(void)
{
    char byte;
    int fd = open("/proc/self/fd/4", O_RDONLY);
    if (fd < 0 || read(fd, &byte, 1) != 1)
        return 1;
    if (!REFUSED(open("/etc/passwd", O_RDONLY)) || !REFUSED(open("/", O_RDONLY | O_DIRECTORY)) ||
        !REFUSED(open("/tmp/arrayd-sandbox-new", O_CREAT | O_RDWR, 0600)) ||
        !REFUSED(open("/proc/self/mem", O_RDWR)) || !REFUSED(open("/dev/null", O_RDONLY)) ||
        !REFUSED(open("/proc/self/fd/4", O_RDWR)) ||
        !REFUSED(open("/tmp", O_TMPFILE | O_RDWR, 0600)))
        return 2;
    return 0;
}

static int writes_only_its_file(void)
{
    int fd = open("/proc/self/fd/4", O_RDWR | O_TRUNC);
    if (fd < 0 || write(fd, "abc", 3) != 3)
        return 1;
    return REFUSED(open("/etc/passwd", O_RDONLY)) && REFUSED(unlink(path)) &&
                   REFUSED(rename(path, "/tmp/arrayd-sandbox-other")) && REFUSED(chmod(path, 0777))
               ? 0
               : 2;
}

static int has_no_network(void)
{
    int two[2];
    return REFUSED(socket(AF_INET, SOCK_STREAM, 0)) && REFUSED(socket(AF_UNIX, SOCK_DGRAM, 0)) &&
                   REFUSED(socketpair(AF_UNIX, SOCK_STREAM, 0, two)) &&
                   REFUSED(connect(WIRE_SOCKET, NULL, 0)) && REFUSED(bind(WIRE_SOCKET, NULL, 0)) &&
                   REFUSED(sendto(WIRE_SOCKET, "x", 1, 0, NULL, 0))
               ? 0
               : 1;
}

static int has_no_programs(void)
{
    char *args[] = {"/bin/true", NULL};
    if (!REFUSED(execve("/bin/true", args, NULL)) || !REFUSED(fork()) || !REFUSED(vfork()) ||
        !REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL)) || !REFUSED(kill(getppid(), 0)) ||
        !REFUSED(syscall(SYS_execveat, WIRE_FILE, "", args, NULL, 0x1000)) ||
        !REFUSED(syscall(SYS_unshare, 0x10000000)) || !REFUSED(syscall(SYS_bpf, 0, NULL, 0)) ||
        !REFUSED(syscall(SYS_io_uring_setup, 1, NULL)) || !REFUSED(syscall(SYS_userfaultfd, 0)))
        return 1;
    return 0;
}

static int has_no_new_code(void)
{
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
        MAP_FAILED)
        return 1;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page != MAP_FAILED && REFUSED(mprotect(page, 4096, PROT_READ | PROT_EXEC)) ? 0 : 2;
}

/* What a path leads to, and whether there is anything, is not told. */
static int sees_no_paths(void)
{
    struct stat st;
    char text[256];
    static const char *const paths[] = {"/etc/passwd", "/etc/no such file", "/", "/proc/self/fd/3",
                                        "relative"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *p = paths[i];
        if (!REFUSED(stat(p, &st)) || !REFUSED(lstat(p, &st)) || !REFUSED(access(p, F_OK)) ||
            !REFUSED(readlink(p, text, sizeof text)) || !REFUSED(open(p, O_PATH)) ||
            !REFUSED(open(p, O_RDONLY)) || !REFUSED(syscall(SYS_statx, AT_FDCWD, p, 0, 0, text)) ||
            !REFUSED(syscall(SYS_openat2, AT_FDCWD, p, NULL, 0)))
            return 1 + (int)i;
    }
    if (!REFUSED(syscall(SYS_getcwd, text, sizeof text)) || !REFUSED(flock(WIRE_FILE, LOCK_EX)))
        return 10;
    return stat("/proc/self/fd/4", &st) == 0 && st.st_size == 5 && fstat(WIRE_FILE, &st) == 0 &&
                   S_ISREG(st.st_mode)
               ? 0
               : 11;
}

static int limits_its_file(void)
{
    static char some[FILE_MOST + 1];
    return write(WIRE_FILE, some, sizeof some) == FILE_MOST && write(WIRE_FILE, some, 1) == -1 &&
                   errno == EFBIG
               ? 0
               : 1;
}

static void *in_thread(void *unused)
{
    return unused;
}

static bool is_confined(int i)
{
    (void)i;
    char text[64];
    usleep(1000); /* so that all threads take part */
    return REFUSED(open("/etc/passwd", O_RDONLY)) && REFUSED(socket(AF_UNIX, SOCK_STREAM, 0)) &&
           REFUSED(fork()) && REFUSED(readlink("/", text, sizeof text));
}

static int has_threads_and_memory(void)
{
    pthread_t thread;
    if (crew_size() != THREADS || !crew_run(100, is_confined))
        return 1;
    if (pthread_create(&thread, NULL, in_thread, NULL) == 0)
        return 3;
    void *some = malloc(32 << 20);
    if (!some)
        return 2;
    memset(some, 1, 32 << 20);
    free(some);
    return 0;
}

static int has_no_more_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0; /* which need all of the address space */
#else
    return malloc(80 << 20) ? 1 : 0;
#endif
}

static int runs_for_ever(void)
{
    for (volatile unsigned i = 1; i; i |= 1)
        ;
    return 1;
}

static void test_file(void **unused)
{
    (void)unused;
    allowed(opens_only_its_file, false);
}

static void test_paths(void **unused)
{
    (void)unused;
    allowed(sees_no_paths, false);
}

static void test_write(void **unused)
{
    (void)unused;
    allowed(writes_only_its_file, true);
}

static void test_file_limit(void **unused)
{
    (void)unused;
    allowed(limits_its_file, true);
}

static void test_network(void **unused)
{
    (void)unused;
    allowed(has_no_network, false);
}

static void test_programs(void **unused)
{
    (void)unused;
    allowed(has_no_programs, false);
}

static void test_code(void **unused)
{
    (void)unused;
    allowed(has_no_new_code, false);
}

static void test_threads(void **unused)
{
    (void)unused;
    allowed(has_threads_and_memory, false);
}

static void test_memory(void **unused)
{
    (void)unused;
    allowed(has_no_more_memory, false);
}

static void test_time(void **unused)
{
    (void)unused;
    char said[1024];
    int status = within(runs_for_ever, false, 1, said, sizeof said);
    if (strstr(said, "no_sandbox"))
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_non_null(strstr(said, "\"timeout\""));
}

static int make_file(void **unused)
{
    (void)unused;
    int fd = mkstemp(path);
    int failed = fd < 0 || write(fd, "hello", 5) != 5;
    close(fd);
    return failed;
}

static int remove_file(void **unused)
{
    (void)unused;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),    cmocka_unit_test(test_paths),
        cmocka_unit_test(test_write),   cmocka_unit_test(test_file_limit),
        cmocka_unit_test(test_network), cmocka_unit_test(test_programs),
        cmocka_unit_test(test_code),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
