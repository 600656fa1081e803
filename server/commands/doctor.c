/* The report, the checks of the configuration, and the self-test.
 *
 * A missing GPU is judged by the configuration: it fails `--backend cuda`, is a warning where the
 * machine seems to have one, and is fine on a machine without. The self-test takes a request's
 * path: text, plan, kernels, the device, and the bytes back. */
#include "server/commands/doctor.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "compute/memory/memory.h"
#include "protocol/json/json_writer.h"
#include "protocol/text/infix.h"
#include "server/config/config.h"
#include "server/http/http.h"
#include "server/http/unix_socket.h"
#include "server/store/accounts.h"

#define ELEMENTS  100000
#define TIMEOUT_S 120 /* seconds: a first compilation may take a while on a busy machine */
#define SELF_TEST "u + 1"

static const char *const levels[] = {"ok", "warn", "fail"};

/* --- the report --- */

void doctor_free(struct doctor *d)
{
    strb_free(&d->text);
    strb_free(&d->json);
}

void doctor_say(void *user, enum finding level, const char *what, const char *text,
                const char *advice)
{
    struct doctor *d = user;
    d->n[level]++;
    strb_addf(&d->text, "%-5s %-12s %s\n", levels[level], what, text);
    if (*advice && level != FINDING_OK)
        strb_addf(&d->text, "%19s%s\n", "", advice);
    struct json_writer w = JSON_WRITER(&d->json);
    w.comma = d->json.len > 0;
    json_open_object(&w);
    json_put_member_string(&w, "check", what);
    json_put_member_string(&w, "status", levels[level]);
    json_put_member_string(&w, "text", text);
    json_put_member_string(&w, "advice", level == FINDING_OK ? "" : advice);
    json_close_object(&w);
}

/* Reports a finding of backend_diagnose; a missing GPU is as bad as without_gpu says. */
static void say_gpu(void *user, enum finding level, const char *what, const char *text,
                    const char *advice)
{
    struct doctor *d = user;
    doctor_say(d, level > d->without_gpu ? d->without_gpu : level, what, text, advice);
}

static void print(struct doctor *d, bool json)
{
    bool ok = d->n[FINDING_FAIL] == 0;
    if (d->text.failed || d->json.failed)
        puts("out of memory for the report");
    else if (json)
        printf("{\"version\":\"%s\",\"ok\":%s,\"checks\":[%s]}\n", ARRAYD_VERSION,
               ok ? "true" : "false", d->json.data);
    else
        printf("%s%d ok, %d warnings, %d failed\n", d->text.data, d->n[FINDING_OK],
               d->n[FINDING_WARN], d->n[FINDING_FAIL]);
}

/* --- the self-test --- */

static void wake(void *user)
{
    sem_post(user);
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct array *a = user;
    (void)e;
    *ret = (struct binding){0};
    if (!strcmp(name, "u"))
        *ret = (struct binding){
            .kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view, .grid = a->grid};
    return ERR_OK;
}

/* u = 0, 1, 2, …, and u + 1. */
static enum err_code compute(struct engine_stream *s, struct account *account, struct array **ret,
                             struct err *e)
{
    struct literal zero = {.kind = LIT_INT}, one = {.kind = LIT_INT, .i = 1},
                   n = {.kind = LIT_INT, .i = ELEMENTS};
    _cleanup_array_ struct array *u = NULL;
    TRY(engine_arange(s, account, DT_F64, &zero, &n, &one, &u, e));
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(e);
    struct expr x;
    expr_init(&x, arena, 100, 100);
    struct check_env env = {.resolve = resolve, .user = u, .max_inputs = 64};
    struct eval_request q = {.expr = &x, .env = &env, .dtype = -1};
    struct eval_times times;
    uint32_t source;
    TRY(expr_add_source(&x, "", &source, e));
    TRY(infix_parse(&x, source, SELF_TEST, strlen(SELF_TEST), &x.root, e));
    return engine_evaluate(s, account, &q, ret, &times, NULL, NULL, e);
}

/* Waits for the next bytes of a download; 0: none came in time. */
static int64_t pull(struct download *d, sem_t *more, int64_t at, void *buf, size_t n)
{
    const struct timespec until = clock_after(TIMEOUT_S);
    for (;;) {
        int64_t got = download_pull(d, at, buf, n);
        if (got)
            return got;
        while (sem_clockwait(more, CLOCK_MONOTONIC, &until) != 0)
            if (errno != EINTR)
                return 0;
    }
}

static enum err_code compare(struct engine_stream *s, struct array *a, struct err *e)
{
    static double values[1024];
    sem_t more;
    struct download *d;
    sem_init(&more, 0, 0);
    enum err_code code = download_new(s, a, wake, &more, &d, e);
    if (code != ERR_OK)
        return code;
    int64_t at = 0, end = ELEMENTS * (int64_t)sizeof *values;
    while (code == ERR_OK && at < end) {
        size_t want = end - at < (int64_t)sizeof values ? (size_t)(end - at) : sizeof values;
        size_t have = 0;
        while (code == ERR_OK && have < want) {
            int64_t got = pull(d, &more, at + (int64_t)have, (char *)values + have, want - have);
            if (got > 0)
                have += (size_t)got;
            else if (got == 0)
                code = err_set(e, ERR_INTERNAL, "no result within %d seconds", TIMEOUT_S);
            else
                code =
                    err_set(e, ERR_INTERNAL, "the device failed: %s", err_name(download_result(d)));
        }
        int64_t first = at / (int64_t)sizeof *values;
        for (size_t i = 0; !code && i < want / sizeof *values; i++)
            if (values[i] != (double)first + (double)i + 1)
                code = err_set(e, ERR_INTERNAL, "element %lld of " SELF_TEST " is %.17g, not %.17g",
                               (long long)first + (long long)i, values[i],
                               (double)first + (double)i + 1);
        at += (int64_t)want;
    }
    download_free(d);
    sem_destroy(&more);
    return code;
}

static enum err_code test_device(struct engine *g, int device, struct err *e)
{
    struct engine_stream *s;
    struct account *account = account_new(0);
    if (!account)
        return err_oom(e);
    enum err_code code = engine_stream_new(g, device, &s, e);
    if (code == ERR_OK) {
        _cleanup_array_ struct array *result = NULL;
        code = compute(s, account, &result, e);
        if (code == ERR_OK)
            code = compare(s, result, e);
        engine_stream_unref(s);
    }
    account_unref(account);
    return code;
}

/* Whether the device's arrays outlive a daemon that dies. */
static void say_kept(struct doctor *d, const char *backend, int device, const char *problem)
{
    char text[600];
    snprintf(text, sizeof text, "%s, device %d: arrays %s a daemon that dies%s%s", backend, device,
             problem ? "do not outlive" : "outlive", problem ? ": " : "", problem ? problem : "");
    doctor_say(d, problem ? FINDING_WARN : FINDING_OK, "keep-arrays", text,
               "the memory of this device cannot be kept: set state-dir, and have snapshots made");
}

void doctor_self_test(struct doctor *d, const struct config *c, const char *backend,
                      enum finding unfit)
{
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    struct engine *g;
    char what[32], text[1200];
    const bool keeps = c->keep_arrays && !c->no_keeper;
    ec.backend = backend;
    ec.device.threads = (int)c->threads;
    ec.device.slab_memory = c->slab_memory;
    ec.device.compile_threads = (int)c->compile_threads;
    ec.device.mesh = strcmp(backend, "cpu") != 0 ? c->mesh : NULL;
    ec.device.mesh_least = 1; /* the test is small, and to be divided */
    ec.device.shareable = keeps;
    snprintf(what, sizeof what, "self-test");
    double begun = clock_ms();
    if (engine_open(&ec, &g, &e) != ERR_OK) {
        snprintf(text, sizeof text, "%s: cannot be opened: %s", backend, e.message);
        doctor_say(d, unfit, what, text, "see the lines above; arrayd --backend cpu needs no GPU");
        return;
    }
    for (int i = 0; i < engine_device_count(g); i++) {
        enum err_code code = test_device(g, i, &e);
        snprintf(text, sizeof text, "%s, device %d: " SELF_TEST " of %d elements: %s", backend, i,
                 ELEMENTS, code ? e.message : "correct");
        if (code == ERR_OK)
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     " (%.0f ms including startup)", clock_ms() - begun);
        doctor_say(d, code ? FINDING_FAIL : FINDING_OK, what, text,
                   "do not use this device; check the kernel log, and run this command again with "
                   "ARRAYD_TRACE=nvrtc,launch");
        if (keeps)
            say_kept(d, backend, i, engine_keep_problem(g, i));
    }
    (void)engine_close(g);
}

/* --- the configuration --- */

/* A running daemon holds its own addresses: that is no fault of the machine. */
static void say_address(struct doctor *d, const char *what, const char *address, enum err_code code,
                        const struct err *e)
{
    if (code == ERR_OK)
        doctor_say(d, FINDING_OK, what, address, "");
    else if (http_is_taken(e))
        doctor_say(d, FINDING_WARN, what, e->message,
                   "this is expected if arrayd is running; if not, find the process that uses the "
                   "address: ss -ltnp");
    else
        doctor_say(d, FINDING_FAIL, what, e->message,
                   "change the listen option, or remove what prevents it");
}

/* The export socket PATH.fd beside each Unix socket. */
static void look_at_exports(struct doctor *d, const struct config *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->listen.n && c->allow_export; i++) {
        const char *address = c->listen.items[i];
        struct err e = ERR_INIT;
        char path[512];
        int fd;
        if (strncmp(address, "unix:", 5) != 0)
            continue;
        snprintf(path, sizeof path, "%s.fd", address + 5);
        enum err_code code = unix_listen(path, (int)c->unix_mode, &fd, &e);
        if (code == ERR_OK) {
            close(fd);
            unlink(path);
        }
        say_address(d, "export", path, code, &e);
        n++;
    }
    if (c->allow_export && !n)
        doctor_say(d, FINDING_WARN, "export", "allow-export is set, but there is no Unix socket",
                   "no client can export memory: add listen = unix:PATH");
}

static void look_at_addresses(struct doctor *d, const struct config *c)
{
    for (size_t i = 0; i < c->listen.n + c->admin_listen.n; i++) {
        bool admin = i >= c->listen.n;
        const char *const one[] = {admin ? c->admin_listen.items[i - c->listen.n]
                                         : c->listen.items[i]};
        struct http_config hc = {.listen = one,
                                 .n_listen = !admin,
                                 .admin_listen = one,
                                 .n_admin_listen = admin,
                                 .accounts = c->accounts != NULL,
                                 .tls_cert = c->tls_cert,
                                 .tls_key = c->tls_key,
                                 .unix_mode = (int)c->unix_mode};
        struct err e = ERR_INIT;
        enum err_code code = http_try_listen(&hc, &e);
        say_address(d, "listen", one[0], code, &e);
    }
    look_at_exports(d, c);
}

static void look_at_accounts(struct doctor *d, const struct config *c)
{
    if (!c->accounts) {
        doctor_say(d, FINDING_OK, "accounts",
                   "none: every client that can reach the addresses is served", "");
        return;
    }
    struct accounts a = {0};
    struct err e = ERR_INIT;
    char text[128];
    if (accounts_read(c->accounts, &a, &e) != ERR_OK) {
        doctor_say(
            d, FINDING_FAIL, "accounts", e.message,
            "the daemon will not start with this file, and on SIGHUP keeps the accounts it has");
        return;
    }
    size_t operators = 0;
    for (size_t i = 0; i < a.n_users; i++)
        operators += a.users[i].role == ROLE_OPERATOR;
    snprintf(text, sizeof text, "%zu accounts, %zu of operators, %zu tokens", a.n_users, operators,
             a.n_tokens);
    doctor_say(d, a.n_tokens ? FINDING_OK : FINDING_WARN, "accounts", text,
               "no client can use the daemon: create a token with arrayd token add");
    accounts_free(&a);
}

/* Kernels that the daemon refuses to run again. */
static void look_at_faulted(struct doctor *d, const struct config *c)
{
    char text[600];
    int n = culprits_count_in(c->kernel_cache);
    snprintf(text, sizeof text, "%d kernels or plans are refused: %s/" FAULTED_FILE, n,
             c->kernel_cache);
    if (n)
        doctor_say(d, FINDING_WARN, "faulted", text,
                   "they were running on a device that faulted; delete a line, or the file, to "
                   "allow them again");
}

static void look_at_gpu(struct doctor *d, const struct config *c)
{
    if (!strcmp(c->backend, "cpu")) {
        doctor_say(d, FINDING_OK, "gpu", "none requested: backend = cpu", "");
        return;
    }
    doctor_devices(d, "");
    backend_diagnose(c->mesh, say_gpu, d);
    if (d->without_gpu != FINDING_OK)
        doctor_self_test(d, c, "cuda", d->without_gpu);
    else
        doctor_say(d, FINDING_OK, "gpu", "none on this machine: backend = auto uses the CPU", "");
}

static void examine(struct doctor *d, const struct config *c)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s", c->file ? c->file : "no file",
             c->file ? " is understood" : ", only options and defaults");
    doctor_say(d, FINDING_OK, "config", text, "");
    if (strcmp(c->backend, "auto") != 0 && strcmp(c->backend, "cpu") != 0 &&
        strcmp(c->backend, "cuda") != 0) {
        snprintf(text, sizeof text, "unknown backend '%.64s'", c->backend);
        doctor_say(d, FINDING_FAIL, "config", text, "backend must be auto, cpu or cuda");
        return;
    }
    d->without_gpu = !strcmp(c->backend, "cuda")  ? FINDING_FAIL
                     : !strcmp(c->backend, "cpu") ? FINDING_OK
                     : doctor_gpu_expected("")    ? FINDING_WARN
                                                  : FINDING_OK;
    doctor_limits(d, c);
    doctor_memory(d, c, "");
    doctor_huge_pages(d, c, "");
    doctor_request_memory(d, c);
    look_at_accounts(d, c);
    look_at_addresses(d, c);
    if (c->state_dir)
        doctor_folder(d, "state-dir", c->state_dir, false, FINDING_FAIL);
    if (c->kernel_cache && d->without_gpu != FINDING_OK) {
        doctor_folder(d, "kernel-cache", c->kernel_cache, true, FINDING_WARN);
        look_at_faulted(d, c);
    }
    doctor_files(d, c);
    doctor_self_test(d, c, "cpu", FINDING_FAIL);
    look_at_gpu(d, c);
}

static void usage(void)
{
    puts("usage: arrayd doctor [--json] [option]...\n"
         "\n"
         "Checks everything the daemon would need with these options (see arrayd --help) and\n"
         "says what to fix. Exit status: 0, 1 if a check failed, 2 for a wrong option.");
}

int doctor_main(int argc, char **argv)
{
    bool json = false;
    int n = 0;
    for (int i = 0; i < argc; i++)
        if (i && !strcmp(argv[i], "--json"))
            json = true;
        else
            argv[n++] = argv[i];
    struct config c;
    enum config_action action;
    struct err e = ERR_INIT;
    if (config_load(n, argv, &c, &action, &e) != ERR_OK) {
        fprintf(stderr, "arrayd doctor: %s\n", e.message);
        return 2;
    }
    int status = 0;
    if (action == CONFIG_RUN) {
        struct doctor d = {0};
        config_fill(&c);
        examine(&d, &c);
        print(&d, json);
        status = d.n[FINDING_FAIL] || d.text.failed || d.json.failed;
        doctor_free(&d);
    } else {
        usage();
    }
    config_free(&c);
    return status;
}
