/* server/config: defaults, command line, file, precedence, mistakes, memory failures. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/config/config.h"

#define ARGS(...)                                                                                  \
    (char *const[])                                                                                \
    {                                                                                              \
        "arrayd", __VA_ARGS__, NULL                                                                \
    }

static int count(char *const *argv)
{
    int n = 0;
    while (argv[n])
        n++;
    return n;
}

static enum err_code load(char *const *argv, struct config *c, struct err *e)
{
    enum config_action action;
    enum err_code rc = config_load(count(argv), argv, c, &action, e);
    if (!rc)
        assert_int_equal(action, CONFIG_RUN);
    return rc;
}

/* The message of a mistake, which must name `part`. */
static void refused(char *const *argv, const char *part)
{
    struct config c;
    struct err e = ERR_INIT;
    int64_t live = mem_live();
    assert_int_equal(load(argv, &c, &e), ERR_BAD_FIELD);
    if (!strstr(e.message, part))
        fail_msg("'%s' does not say '%s'", e.message, part);
    assert_int_equal(mem_live(), live);
}

static char *temp_file(const char *text)
{
    static char path[64];
    strcpy(path, "/tmp/test_config.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void defaults_are_the_contract(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    char *const argv[] = {"arrayd", NULL};
    assert_int_equal(load(argv, &c, &e), ERR_OK);
    assert_int_equal(c.listen.n, 1);
    assert_string_equal(c.listen.items[0], "127.0.0.1:7411");
    assert_string_equal(c.backend, "auto");
    assert_int_equal(c.max_nodes, 10000);
    assert_int_equal(c.max_nesting, 400);
    assert_int_equal(c.max_inputs, 64);
    assert_int_equal(c.max_inline, 65536);
    assert_int_equal(c.max_json_body, 16 << 20);
    assert_int_equal(c.max_json_depth, 1000);
    assert_int_equal(c.max_header, 64 << 10);
    assert_true(c.header_timeout == 10 && c.body_timeout == 30 && c.body_rate_window == 30);
    assert_int_equal(c.min_body_rate, 1024);
    assert_int_equal(c.log_level, LOG_INFO);
    assert_false(c.log_json);
    assert_null(c.file);
    config_free(&c);
}

static void command_line_sets_every_kind(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    assert_int_equal(load(ARGS("--listen", "[::1]:0", "--listen=unix:/tmp/x", "--backend", "cpu",
                               "--threads=3", "--memory-limit", "1.5GiB", "--log-level", "debug",
                               "--log-json", "--header-timeout", "0.5", "--unix-mode", "0660"),
                          &c, &e),
                     ERR_OK);
    assert_int_equal(c.listen.n, 2);
    assert_string_equal(c.listen.items[0], "[::1]:0");
    assert_string_equal(c.listen.items[1], "unix:/tmp/x");
    assert_string_equal(c.backend, "cpu");
    assert_int_equal(c.threads, 3);
    assert_int_equal(c.memory_limit, 3ll << 29);
    assert_int_equal(c.log_level, LOG_DEBUG);
    assert_true(c.log_json);
    assert_true(c.header_timeout == 0.5);
    assert_int_equal(c.unix_mode, 0660);
    config_free(&c);
}

static void file_is_read_and_the_command_line_wins(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    char *path = temp_file("# a comment\n"
                           "listen = 127.0.0.1:1\n"
                           "listen = 127.0.0.1:2\n"
                           "max-json-body = 1 MiB\n"
                           "log-json = yes\n"
                           "allowed-host = arrays.example\n"
                           "threads = 2 ; another\n");
    assert_int_equal(load(ARGS("--threads", "5", "--config", path), &c, &e), ERR_OK);
    assert_int_equal(c.listen.n, 2);
    assert_string_equal(c.listen.items[1], "127.0.0.1:2");
    assert_int_equal(c.max_json_body, 1 << 20);
    assert_true(c.log_json);
    assert_int_equal(c.threads, 5);
    assert_string_equal(c.allowed_host.items[0], "arrays.example");
    config_free(&c);
    assert_int_equal(
        load(ARGS("--config", path, "--listen", "127.0.0.1:9", "--log-json=no"), &c, &e), ERR_OK);
    assert_int_equal(c.listen.n, 1);
    assert_string_equal(c.listen.items[0], "127.0.0.1:9");
    assert_false(c.log_json);
    config_free(&c);
    unlink(path);
}

/* What is behind the 199th byte of a line is of that line, too. */
static void long_lines_are_one(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    char text[4096], folder[1001] = "/";
    memset(folder + 1, 'f', sizeof folder - 2);
    snprintf(text, sizeof text,
             "# %0197d evict = true\n# %0197devict = true\n; %0300d\n"
             "state-dir = %s\nthreads = 3\n",
             0, 0, 0, folder);
    char *path = temp_file(text);
    if (load(ARGS("--config", path), &c, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_false(c.evict);
    assert_string_equal(c.state_dir, folder);
    assert_int_equal(c.threads, 3);
    config_free(&c);
    unlink(path);
}

static void files_of_other_systems(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    char *path = temp_file("\xef\xbb\xbfthreads = 3\r\n\r\n# a comment\r\n"
                           "listen = 127.0.0.1:1\r\n  backend = cpu # here\r\n");
    assert_int_equal(load(ARGS("--config", path), &c, &e), ERR_OK);
    assert_int_equal(c.threads, 3);
    assert_int_equal(c.listen.n, 1);
    assert_string_equal(c.listen.items[0], "127.0.0.1:1");
    assert_string_equal(c.backend, "cpu");
    config_free(&c);
    unlink(path);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    refused(ARGS("--nonsense"), "--nonsense");
    refused(ARGS("--threads"), "needs a value");
    refused(ARGS("--threads", "many"), "threads: 'many'");
    refused(ARGS("--threads", "3x"), "3x");
    refused(ARGS("--threads", "-1"), "-1");
    refused(ARGS("--max-header", "1GiB"), "1048576");
    refused(ARGS("--memory-limit", "12QB"), "12QB");
    refused(ARGS("--memory-limit", "3gb"),
            "'3gb' is not a size from 0 to 9007199254740992: a number of bytes, or a number with "
            "one of the units KiB, MiB, GiB, TiB (K, M, G, T for short) and kB, MB, GB, TB");
    refused(ARGS("--slab-memory", "4MiB"), "5242880");
    refused(ARGS("--log-level", "loud"), "loud");
    refused(ARGS("--header-timeout", "nan"), "nan");
    refused(ARGS("--unix-mode", "0999"), "octal");
    refused(ARGS("--log-json=maybe"), "yes or no");
    refused(ARGS("--listen", ""), "listen");
    refused(ARGS("stray"), "stray");
    refused(ARGS("--config", "/nonexistent/arrayd.conf"), "/nonexistent/arrayd.conf");
    refused(ARGS("--file-slab", "256MiB"), "file-memory");
    refused(ARGS("--file-memory", "64MiB", "--file-slabs", "9"), "file-memory");

    static const char *const files[][2] = {
        {"color = blue\n", ": line 1: unknown setting 'color'"},
        {"[server]\nthreads = 1\n", ": line 1: sections are not supported, but found [server]"},
        {"threads = 1\n\nthreads = 2\n", ": line 3: 'threads' is set twice"},
        {"threads = one\n", ": line 1: threads: 'one'"},
        {"threads = 1\nwhat is this\n", ": line 2: expected 'name = value'"},
        {"threads: 1\n", ": line 1: expected 'name = value'"},
        {"config = /etc/other\n", ": line 1: unknown setting 'config'"},
        {"# a comment\rthreads = 1\n", ": line 1: the line contains a CR"},
        {"# a comment\nlisten =\n", ": line 2: listen: '' is not a value"},
        {"= 1\n", ": line 1: unknown setting ''"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = temp_file(files[i][0]);
        refused(ARGS("--config", path), files[i][1]);
        unlink(path);
    }
}

static void help_and_version(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    enum config_action action;
    assert_int_equal(config_load(2, ARGS("--help"), &c, &action, &e), ERR_OK);
    assert_int_equal(action, CONFIG_HELP);
    config_free(&c);
    assert_int_equal(config_load(2, ARGS("--version"), &c, &action, &e), ERR_OK);
    assert_int_equal(action, CONFIG_VERSION);
    config_free(&c);
    struct strb text = {0};
    config_help(&text);
    assert_non_null(strstr(text.data, "--max-json-body SIZE"));
    assert_non_null(strstr(text.data, "(default: 16MiB)"));
    strb_free(&text);
}

/* Whatever its place in the table: getopt_long has answers of its own, ':' and '?'. */
static void every_option_of_the_help_is_taken(void **state)
{
    (void)state;
    _cleanup_strb_ struct strb text = {0};
    config_help(&text);
    assert_false(text.failed);
    int n = 0;
    for (char *p = text.data; (p = strstr(p, "\n  --"));) {
        char name[64], option[256];
        p += 3;
        assert_int_equal(sscanf(p, "%63[a-z-]", name), 1);
        if (!strcmp(name, "--help") || !strcmp(name, "--version") || !strcmp(name, "--config"))
            continue;
        char *line = strchr(p, '\n') + 1, *end = strchr(line, '\n');
        char *initial = strstr(line, "(default: ");
        if (initial && initial < end)
            snprintf(option, sizeof option, "%s=%.*s", name,
                     (int)(strcspn(initial, ")") - strlen("(default: ")),
                     initial + strlen("(default: "));
        else
            snprintf(option, sizeof option, "%s=yes", name);
        struct config c;
        struct err e = ERR_INIT;
        if (load(ARGS(option), &c, &e) != ERR_OK)
            fail_msg("%s: %s", option, e.message);
        config_free(&c);
        n++;
    }
    assert_true(n > 50);
}

static void see(void *user, const char *name, double value)
{
    int *n = user;
    assert_null(strchr(name, '-'));
    if (!strcmp(name, "max_json_body"))
        assert_true(value == 16 << 20);
    if (!strcmp(name, "header_timeout"))
        assert_true(value == 10);
    assert_string_not_equal(name, "workers");
    ++*n;
}

static void limits_are_listed(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    char *const argv[] = {"arrayd", NULL};
    assert_int_equal(load(argv, &c, &e), ERR_OK);
    int n = 0;
    c.each_limit(&c, see, &n);
    assert_true(n > 10);
    config_free(&c);
}

/* What depends on the machine; a number that was given stays. */
static void the_rest_is_filled_in(void **state)
{
    (void)state;
    struct config c;
    struct err e = ERR_INIT;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    const int64_t half = CPU_COUNT(&all) / 2;
    char *const argv[] = {"arrayd", NULL};
    assert_int_equal(load(argv, &c, &e), ERR_OK);
    config_fill(&c);
    assert_int_equal(c.workers, half < 2 ? 2 : half > 8 ? 8 : half);
    assert_true(c.host_memory > 0 && c.request_memory > c.max_request_memory);
    config_free(&c);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(load(argv, &c, &e), ERR_OK);
    config_fill(&c);
    assert_int_equal(c.workers, 2);
    config_free(&c);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(load(ARGS("--workers", "1"), &c, &e), ERR_OK);
    config_fill(&c);
    assert_int_equal(c.workers, 1);
    config_free(&c);
}

static void connections_have_descriptors(void **state)
{
    (void)state;
    static const struct {
        int64_t descriptors, connections;
    } cases[] = {{1 << 20, 1000}, {2160, 1000}, {2159, 999}, {256, 48}, {128, 8}, {0, 8}};
    char *const argv[] = {"arrayd", NULL};
    struct config c;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(load(argv, &c, &e), ERR_OK);
        assert_int_equal(config_fit(&c, cases[i].descriptors), cases[i].connections < 1000);
        assert_int_equal(c.max_connections, cases[i].connections);
        config_free(&c);
    }
    assert_int_equal(load(ARGS("--allow-export", "--admin-listen", "127.0.0.1:1"), &c, &e), ERR_OK);
    assert_true(config_fit(&c, 1024));
    assert_int_equal(c.max_connections, (1024 - 160 - 128 - 256) / 2);
    config_free(&c);
}

static void survives_memory_failures(void **state)
{
    (void)state;
    char *path = temp_file("listen = 127.0.0.1:1\nbackend = cpu\nallowed-host = a\n");
    int64_t live = mem_live();
    for (int64_t nth = 1;; nth++) {
        struct config c;
        struct err e = ERR_INIT;
        mem_fail_after(nth, false);
        enum err_code rc = load(ARGS("--config", path, "--listen", "127.0.0.1:2"), &c, &e);
        int64_t failed = mem_failed();
        mem_fail_after(0, false);
        if (!rc)
            config_free(&c);
        else
            assert_int_equal(rc, ERR_OUT_OF_MEMORY);
        assert_int_equal(mem_live(), live);
        if (!failed)
            break;
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_contract),
        cmocka_unit_test(command_line_sets_every_kind),
        cmocka_unit_test(file_is_read_and_the_command_line_wins),
        cmocka_unit_test(long_lines_are_one),
        cmocka_unit_test(files_of_other_systems),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(help_and_version),
        cmocka_unit_test(every_option_of_the_help_is_taken),
        cmocka_unit_test(limits_are_listed),
        cmocka_unit_test(the_rest_is_filled_in),
        cmocka_unit_test(connections_have_descriptors),
        cmocka_unit_test(survives_memory_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
