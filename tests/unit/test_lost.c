/* server/lost.c: a lost device ends the process, in a process of its own each time, and says why.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/log.h"
#include "server/lost.h"
#include "server/server.h"

/* What a daemon does; it ends the process. */
typedef void life(struct lost *l, struct server *s);

static double delay_s = 60;

/* Its exit status; what it says in `ret`. */
static int live(life *f, char ret[4096])
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct server server;
        struct lost *l = NULL;
        dup2(ends[1], STDERR_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        if (lost_watch(&server, delay_s, &l, NULL) != ERR_OK)
            _exit(1);
        f(l, &server);
        _exit(atomic_load(&server.device_lost) ? 2 : 3);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t k; n < 4095 && (k = read(ends[0], ret + n, 4095 - n)) > 0;)
        n += (size_t)k;
    ret[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Left at once, as a stop does that is under way. */
static void leave(struct lost *l, struct server *s)
{
    (void)s;
    lost_leave(l);
    lost_report(l, "too late");
}

static void lose_and_leave(struct lost *l, struct server *s)
{
    const struct backend_fault nothing = {0};
    lost_report(l, "CUDA_ERROR_OF_A_TEST");
    lost_report(l, "another");
    lost_fault(l, &nothing);
    leave(l, s);
}

static void lose_without_work(struct lost *l, struct server *s)
{
    lost_report(l, "CUDA_ERROR_OF_A_TEST");
    leave(l, s);
}

static void a_loss_is_said_once_and_always(void **state)
{
    (void)state;
    char text[4096];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(live(lose_and_leave, text), LOST_EXIT);
        const char *said = strstr(text, "the device is lost; the process will exit");
        assert_non_null(said);
        assert_non_null(strstr(said, "CUDA_ERROR_OF_A_TEST"));
        assert_null(strstr(said + 1, "the device is lost; the process will exit"));
        assert_null(strstr(text, "another"));
        assert_non_null(strstr(said, "stopped"));
    }
    assert_int_equal(live(lose_without_work, text), LOST_EXIT);
    assert_int_equal(live(leave, text), 3);
    assert_string_equal(text, "");
}

/* What writes down what was on the device, on a disk that is slower than everything else here. */
static void *write_slowly(void *lost)
{
    const struct fault_work work = {0};
    const struct backend_fault fault = {.work = &work, .n_work = 1};
    usleep(1500000);
    lost_fault(lost, &fault);
    return NULL;
}

static void lose_while_writing(struct lost *l, struct server *s)
{
    (void)s;
    pthread_t thread;
    signal(LOST_SIGNAL, SIG_IGN);
    lost_expect_names(l);
    lost_report(l, "CUDA_ERROR_OF_A_TEST");
    if (pthread_create(&thread, NULL, write_slowly, l) != 0)
        _exit(1);
}

static void lose_and_leave_while_writing(struct lost *l, struct server *s)
{
    lose_while_writing(l, s);
    lost_leave(l);
}

static void lose_and_hang_while_writing(struct lost *l, struct server *s)
{
    lose_while_writing(l, s);
    for (;;)
        pause();
}

static void the_end_waits_for_what_is_written_down(void **state)
{
    (void)state;
    char text[4096];
    assert_int_equal(live(lose_and_leave_while_writing, text), LOST_EXIT);
    assert_non_null(strstr(text, "on the device when it was lost"));
    delay_s = 0;
    assert_int_equal(live(lose_and_hang_while_writing, text), LOST_EXIT);
    assert_non_null(strstr(text, "on the device when it was lost"));
    assert_non_null(strstr(text, "exiting without waiting"));
    delay_s = 60;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_is_said_once_and_always),
        cmocka_unit_test(the_end_waits_for_what_is_written_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
