/* server/lost.c: a lost device ends the process, in a process of its own each time, and says why.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "server/lost.h"
#include "server/server.h"

/* Lost, and left at once as a stop does that is under way: its exit status; what it says in `ret`.
 */
static int lose_and_leave(bool lost, char ret[4096])
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
        if (lost_watch(&server, 60, &l, NULL) != ERR_OK)
            _exit(1);
        if (lost) {
            lost_told(l, "CUDA_ERROR_OF_A_TEST");
            lost_told(l, "another");
        }
        lost_leave(l);
        lost_told(l, "too late");
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

static void a_loss_is_said_once_and_always(void **state)
{
    (void)state;
    char text[4096];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(lose_and_leave(true, text), LOST_EXIT);
        const char *said = strstr(text, "the device is lost, the process will end");
        assert_non_null(said);
        assert_non_null(strstr(said, "CUDA_ERROR_OF_A_TEST"));
        assert_null(strstr(said + 1, "the device is lost, the process will end"));
        assert_null(strstr(text, "another"));
        assert_non_null(strstr(said, "stopped"));
    }
    assert_int_equal(lose_and_leave(false, text), 3);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_is_said_once_and_always),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
