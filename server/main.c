/* The daemon: configuration, parts in order, ready, signals, parts in reverse order. Unless it is
 * alone, the process that is started becomes the keeper (keeper.h), which runs this once more.
 *
 * The main thread takes signals by sigwait and all other threads block them, so no handler ever
 * interrupts anything. SIGHUP reads accounts and certificate again. A first SIGTERM or SIGINT
 * drains, a second cuts connections, a third ends the process. SIGUSR2, from the keeper, ends it
 * for another process, which takes over. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "server/admin/audit.h"
#include "server/api/handlers.h"
#include "server/api/metrics.h"
#include "server/blame.h"
#include "server/commands/check.h"
#include "server/commands/device.h"
#include "server/commands/doctor.h"
#include "server/commands/token_cmd.h"
#include "server/config/config.h"
#include "server/exports/export.h"
#include "server/exports/export_socket.h"
#include "server/files/files.h"
#include "server/front.h"
#include "server/http/http.h"
#include "server/http/unix_socket.h"
#include "server/jobs/jobs.h"
#include "server/keeper/hold.h"
#include "server/keeper/keeper.h"
#include "server/keeper/upgrade.h"
#include "server/kept/held_chunks.h"
#include "server/login/logins.h"
#include "server/lost.h"
#include "server/server.h"
#include "server/state/state.h"
#include "server/store/accounts.h"
#include "server/store/auth.h"
#include "server/store/lease.h"
#include "server/store/lease_use.h"
#include "server/store/share.h"
#include "server/survive.h"
#include "server/work/asker.h"
#include "server/work/copy_rate.h"
#include "server/work/scheduler.h"

#define LEAVE_S 5.0 /* beyond drain-timeout and state-timeout, for an upgrade */

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int complain(const struct err *e, int status)
{
    fprintf(stderr, "%sarrayd: %s\n", log_prefix(LOG_ERROR), e->message);
    return status;
}

/* Exports need a Unix socket. */
static bool exports_memory(const struct config *c)
{
    bool local = false;
    for (size_t i = 0; i < c->listen.n; i++)
        local |= !strncmp(c->listen.items[i], "unix:", 5);
    return c->allow_export && local;
}

static enum err_code open_engine(const struct config *c, struct server *s, struct err *e)
{
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    ec.backend = c->backend;
    TRY(survive_configure(s->survive, &ec, e));
    ec.keep.shared = c->accounts;
    ec.max_chunks = c->max_chunks;
    ec.max_kept = (uint32_t)c->max_kept_arrays;
    device_configure(c, &ec.device);
    ec.device.shareable = exports_memory(c);
    ec.device.shareable_least = c->export_threshold;
    ec.device.shareable_keep_bytes = c->reuse_memory;
    ec.device.shareable_keep_s = c->reuse_time;
    ec.device.lost = lost_report;
    ec.device.noted = lost_expect_names;
    ec.device.fault = lost_fault;
    ec.asker = asker_now;
    ec.asker_unref = asker_unref;
    ec.device.lost_user = s->lost;
    ec.device.culprits = s->culprits;
    ec.device.who = blame_who;
    ec.max_inputs = (uint32_t)c->max_inputs;
    ec.max_kernel_nodes = (uint32_t)c->max_kernel_nodes;
    ec.max_cost = c->max_cost;
    ec.plan_cache = (uint32_t)c->plan_cache;
    ec.plan_cache_bytes = c->plan_cache_size;
    ec.max_kernel_inputs = (uint32_t)c->max_kernel_inputs;
    return engine_open(&ec, &s->engine, e);
}

static enum err_code open_auth(const struct config *c, struct server *s, struct err *e)
{
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    TRY(device_default(c, s->engine, &limits.default_device, e));
    limits.max_sessions = (uint32_t)c->max_sessions;
    limits.max_arrays = (uint32_t)c->max_arrays;
    limits.max_functions = (uint32_t)c->max_functions;
    limits.attrs_memory = c->attrs_memory;
    limits.session_memory = c->session_memory;
    limits.request_memory = c->request_memory;
    limits.observer = survive_observer(s->survive);
    limits.memory = s->memory =
        meter_new(NULL, "total_request_memory", c->total_request_memory, ERR_OVERLOADED);
    struct sched_config sched = {.n_devices = engine_device_count(s->engine),
                                 .side_by_side = !engine_in_host_memory(s->engine),
                                 .window = c->device_window * 1e3,
                                 .max_waiting = c->max_waiting,
                                 .max_waiting_all = c->max_waiting_all};
    struct backend_device mesh = {.n_parts = 0};
    if (engine_mesh(s->engine) >= 0)
        engine_device_info(s->engine, engine_mesh(s->engine), &mesh);
    sched.mesh.n = mesh.n_parts;
    memcpy(sched.mesh.parts, mesh.parts, sizeof mesh.parts);
    s->leases = leases_new((uint32_t)c->max_leases);
    s->shares = shares_new((uint32_t)c->max_shares);
    s->logins = logins_new(c->max_logins, c->max_links);
    if (s->logins)
        s->links = logins_keep(s->logins, s->writer);
    limits.leases = s->leases;
    if (s->leases && s->shares) {
        leases_observe(s->leases, limits.observer);
        shares_observe(s->shares, limits.observer);
    }
    struct jobs_config jobs = {.max_jobs = (uint32_t)c->max_jobs,
                               .record_memory = c->record_memory,
                               .retention = c->job_retention,
                               .slice = JOB_SLICE,
                               .spin = engine_in_host_memory(s->engine) ? 0 : (double)c->spin / 1e6,
                               .stop_timeout = c->drain_timeout,
                               .explain_lost = lost_explain,
                               .lost = s->lost,
                               .culprits = s->culprits,
                               .engine = s->engine,
                               .evict = c->evict,
                               .writer = s->writer,
                               .most_crashes = c->job_restarts};
    struct accounts accounts = {0};
    jobs.uses = s->uses = lease_uses_new();
    enum err_code code =
        s->leases && s->shares && s->logins && s->uses && s->memory ? ERR_OK : err_oom(e);
    if (code == ERR_OK)
        code = sched_new(&sched, &s->sched, e);
    limits.sched = jobs.sched = s->sched;
    jobs.rates = s->rates = copy_rates_new(s->engine);
    if (code == ERR_OK && !s->rates)
        code = err_oom(e);
    if (code == ERR_OK && c->accounts)
        code = accounts_read(c->accounts, &accounts, e);
    if (code == ERR_OK)
        code = auth_new(s->engine, &limits, c->accounts ? &accounts : NULL, &s->auth, e);
    accounts_free(&accounts);
    return code != ERR_OK ? code : jobs_new(&jobs, &s->jobs, e);
}

/* Before the first request. */
static enum err_code open_state(struct server *s, struct err *e)
{
    bool taken_over;
    TRY(state_open(s, &s->state, e));
    TRY(survive_recover(s->survive, s, &taken_over, e));
    lost_compare(s);
    jobs_go_on(s->jobs);
    if (s->state && taken_over)
        state_recovered(s->state);
    if (s->state && !taken_over)
        TRY(state_restore(s->state, e));
    auth_restored(s->auth);
    return ERR_OK;
}

/* Called when no request and no job is left, or only those that do not end. An upgrade, of which
 * clients wait for the end, writes nothing where the keeper has everything. False where the
 * snapshot is not complete and current: the log has the details. */
static bool save_state(struct server *s, bool upgrade)
{
    struct state_report report;
    struct err e = ERR_INIT;
    if (upgrade && survive_holds_all(s->survive))
        return true;
    enum err_code code = s->state ? state_save(s->state, &report, &e) : ERR_OK;
    if (code != ERR_OK) {
        log_event(LOG_ERROR, "the state could not be saved; the last snapshot is unchanged",
                  "reason", e.message, NULL);
        return false;
    }
    return !s->state || report.missing + report.earlier == 0;
}

/* Before what the previous process left is taken over: its exports continue. */
static enum err_code open_exports(const struct config *c, struct server *s, struct err *e)
{
    struct export_socket_config socket = {
        .listen = (const char *const *)c->listen.items,
        .n_listen = c->listen.n,
        .mode = (int)c->unix_mode,
        .timeout = c->export_timeout,
        .max_connections = (size_t)c->max_export_connections,
        .hold = s->hold,
        .exports_stay = s->survive,
    };
    if (!exports_memory(c)) {
        if (c->allow_export)
            log_event(LOG_WARN, "allow-export has no effect: the daemon listens on no Unix socket",
                      NULL);
        return ERR_OK;
    }
    for (int i = 0; i < engine_single_count(s->engine); i++) {
        const char *why = engine_export_problem(s->engine, i);
        if (why)
            log_event(LOG_WARN, "a device's memory cannot be exported", "reason", why, NULL);
    }
    TRY(export_socket_open(&socket, &s->export_socket, e));
    struct exports_config exports = {.engine = s->engine,
                                     .leases = s->leases,
                                     .uses = s->uses,
                                     .shares = s->shares,
                                     .timeout = c->export_timeout,
                                     .max = (uint32_t)c->max_exports,
                                     .changed = export_socket_wake,
                                     .user = s->export_socket};
    s->exports = exports_new(&exports);
    return s->exports ? ERR_OK : err_oom(e);
}

/* Whether another process continues with what is held if this one ends by that signal, or without
 * one (0), because it could not begin: after an upgrade, the loss of the device, and where the
 * service manager stores what is held (sd_pid_notify_with_fds(3)). */
static bool is_followed(const struct server *s, int sig)
{
    return s->hold && (sig == SIGUSR2 || sig == LOST_SIGNAL || getenv("FDSTORE") ||
                       (sig == 0 && hold_inherited(s->hold)));
}

/* Whether it continues with arrays, and what depends on them. */
static bool arrays_continue(const struct server *s)
{
    return s->survive && atomic_load(&s->followed);
}

/* Called when no request is left: write exports that clients still hold may continue until then,
 * unless a second signal comes. */
static void stop_exports(struct server *s, uint64_t until_ns)
{
    if (s->export_socket && arrays_continue(s))
        export_socket_leave(s->export_socket);
    else if (s->export_socket)
        export_socket_stop(s->export_socket, until_ns, &s->hurry);
}

/* Logs the backend's warning, if any, and how long opening the device took. */
static void log_report(const struct engine *g)
{
    struct backend_report r;
    engine_report(g, &r);
    if (*r.warning)
        log_event(LOG_WARN, r.warning, NULL);
    if (*r.timings)
        log_event(LOG_DEBUG, "the device was opened", "took", r.timings, NULL);
}

/* How much free memory libc keeps at the top of each thread's heap, which mem_trim cannot give
 * back. NVRTC takes and frees megabytes with every compilation; a heap that returns its top to the
 * system each time spends a tenth of the compilation's time on faulting the pages in again. Setting
 * this also fixes the mmap threshold, which keeps blocks from 128 KiB on out of the heaps. */
static void keep_heap(int bytes)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_TRIM_THRESHOLD, bytes);
#endif
}

/* Each connection needs a descriptor: there are as many as may be, or fewer connections. */
static void fit_descriptors(struct config *c)
{
    struct rlimit r;
    char most[24];
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    (void)!setrlimit(RLIMIT_NOFILE, &(struct rlimit){r.rlim_max, r.rlim_max});
    (void)!getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < INT64_MAX && config_fit(c, (int64_t)r.rlim_cur)) {
        snprintf(most, sizeof most, "%lld", (long long)c->max_connections);
        log_event(LOG_WARN, "fewer connections than configured: the limit of descriptors is low",
                  "max_connections", most, NULL);
    }
}

/* SIGHUP. If a file cannot be read, the previous contents stay in force. */
static void reload_accounts(const struct server *s)
{
    const char *path = s->config->accounts;
    struct accounts accounts = {0};
    struct err e = ERR_INIT;
    enum err_code code = accounts_read(path, &accounts, &e);
    /* an editor may empty a file just before it writes it */
    if (code == ERR_OK && accounts.n_users == 0)
        code = err_set(&e, ERR_BAD_FIELD,
                       "%s contains no account: every session and array would be deleted", path);
    if (code == ERR_OK)
        code = auth_apply(s->auth, &accounts, &e);
    shares_sweep(s->shares);
    leases_sweep(s->leases);
    logins_sweep(s->logins);
    audit_did(s->audit, NULL, "reload_accounts", code, "%.160s", path);
    if (code != ERR_OK)
        log_event(LOG_ERROR, "SIGHUP: the accounts are unchanged", "why", e.message, NULL);
    else
        log_event(LOG_INFO, "SIGHUP: the accounts were reloaded", "file", path, NULL);
    accounts_free(&accounts);
}

static void reload(const struct server *s)
{
    struct err e = ERR_INIT;
    if (s->config->tls_cert) {
        if (http_reload(s->http, &e) != ERR_OK)
            log_event(LOG_ERROR, "SIGHUP: the certificate is unchanged", "why", e.message, NULL);
        else
            log_event(LOG_INFO, "SIGHUP: the certificate was reloaded", NULL);
    }
    if (s->config->accounts)
        reload_accounts(s);
    else if (!s->config->tls_cert)
        log_event(LOG_INFO, "SIGHUP: there are no accounts to reload", NULL);
}

struct signal_thread {
    sigset_t *signals;
    struct server *server;
};

/* The next signal that ends the daemon. LOST_SIGNAL counts only if the device is lost; SIGHUP reads
 * files again, unless the daemon is already ending. */
static int next_end(const struct server *s, const sigset_t *signals, bool ending)
{
    for (;;) {
        siginfo_t from;
        const int sig = sigwaitinfo(signals, &from);
        if (sig == SIGHUP && !ending)
            reload(s);
        else if (sig == SIGUSR2 && (ending || !s->hold || from.si_pid != getppid()))
            continue; /* only the keeper knows that another process follows */
        else if (sig > 0 && sig != SIGHUP && (sig != LOST_SIGNAL || atomic_load(&s->device_lost)))
            return sig;
    }
}

/* Takes signals while the daemon drains: the second cuts connections, the third ends the
 * process. */
static void *take_signals(void *arg)
{
    struct signal_thread *i = arg;
    next_end(i->server, i->signals, true);
    atomic_store(&i->server->hurry, true);
    next_end(i->server, i->signals, true);
    _exit(atomic_load(&i->server->device_lost) ? LOST_EXIT : EXIT_FAILED);
}

/* Returns the signal that ends the daemon. */
static int wait_for_signal(struct server *s, sigset_t *signals)
{
    int sig = next_end(s, signals, false);
    atomic_store(&s->draining, true);
    atomic_store(&s->followed, is_followed(s, sig));
    if (sig != LOST_SIGNAL)
        log_event(LOG_INFO, "stopping", "signal",
                  sig == SIGTERM  ? "SIGTERM"
                  : sig == SIGINT ? "SIGINT"
                                  : "SIGUSR2 (another process takes over)",
                  NULL);
    /* static: the thread may live as long as the process */
    static struct signal_thread i;
    i = (struct signal_thread){signals, s};
    pthread_t t;
    if (thread_start(&t, "arrayd-signals", take_signals, &i))
        pthread_detach(t);
    return sig;
}

/* Once the work under way is done: what outlives the process stays as it is. If that does not end
 * in time, the process does, and what is being written is known by its cells. */
static void bequeath(struct server *s, int status, uint64_t until_ns)
{
    engine_sums_stop(s->engine);
    while (engine_jobs_in_flight(s->engine) > 0 && clock_ns() < until_ns)
        usleep(1000);
    const bool ended = engine_jobs_in_flight(s->engine) == 0;
    engine_bequeath(s->engine);
    if (s->auth)
        auth_tell_months(s->auth);
    survive_stop(s->survive);
    if (ended)
        return;
    log_event(LOG_WARN, "exiting while work is still running", NULL);
    _exit(status);
}

/* What needs the engine, up to the first request. */
static enum err_code open_parts(const struct config *c, struct server *s, struct err *e)
{
    TRY(audit_new(c, &s->audit, e));
    TRY(open_auth(c, s, e));
    TRY(files_open(s, &s->files, e));
    TRY(open_exports(c, s, e));
    TRY(open_state(s, e));
    if (s->exports)
        TRY(export_socket_start(s->export_socket, s->exports, e));
    return front_start(c, s, e);
}

static int run(struct config *config)
{
    struct err e = ERR_INIT;
    static struct server s; /* static: see wait_for_signal */
    s.config = config;
    static sigset_t signals;
    sigemptyset(&signals);
    const int handled[] = {SIGTERM, SIGINT, SIGHUP, LOST_SIGNAL, SIGUSR2};
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&signals, handled[i]);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    s.started_us = clock_date_us();

    int status = EXIT_OK;
    uint64_t until_ns = 0;
    s.metrics = metrics_new(route_table, route_count);
    enum err_code code = s.metrics ? hold_open(&s.hold, &e) : err_oom(&e);
    if (code == ERR_OK)
        code = lost_watch(&s, s.hold ? 0 : config->lost_exit_delay, &s.lost, &e);
    atomic_store(&s.followed, is_followed(&s, 0));
    if (code == ERR_OK)
        code = survive_open(config, s.hold, &s.survive, &e);
    if (code == ERR_OK)
        code = blame_open(config, s.hold, &s.culprits, &e);
    if (code == ERR_OK)
        code = open_engine(config, &s, &e);
    if (code == ERR_OK) {
        blame_crash(s.culprits, s.hold);
        config->max_cost = engine_max_cost(s.engine); /* if unset, the backend has decided */
        s.keep_problem = survive_problem(s.survive, &s);
        s.writer = survive_writer(s.survive);
    }
    /* A resource the machine lacks is not a wrong option. */
    int failed = code == ERR_BAD_FIELD &&
                         (!strcmp(config->backend, "cuda") || !strcmp(config->backend, "auto"))
                     ? EXIT_FAILED
                     : EXIT_USAGE;
    if (code == ERR_OK && engine_compiles(s.engine))
        keep_heap(64 << 20);
    if (code == ERR_OK)
        code = open_parts(config, &s, &e);
    if (code != ERR_OK) {
        survive_stop(s.survive); /* what ends now is to continue in the next process */
        stop_exports(&s, 0);
        status = complain(&e, code == ERR_BAD_FIELD ? failed : EXIT_FAILED);
    } else {
        log_report(s.engine);
        hold_drop_rest(s.hold);
        hold_ready(s.hold, s.state ? "" : survive_missing(s.survive));
        front_log(&s); /* from now on no connection is answered by the keeper */
        const bool upgrade = wait_for_signal(&s, &signals) == SIGUSR2;
        if (atomic_load(&s.device_lost))
            engine_lost(s.engine);
        else
            until_ns = clock_ns() + (uint64_t)(config->drain_timeout * 1e9);
        if (s.export_socket && !arrays_continue(&s))
            export_socket_drain(s.export_socket);
        sched_open(s.sched); /* requests waiting for a turn must end within drain-timeout */
        (arrays_continue(&s) ? jobs_leave : jobs_stop)(s.jobs);
        state_stop(s.state);
        bool ended = http_stop(s.http);
        audit_stop(s.audit); /* its lines are written even if the process does not end in order */
        stop_exports(&s, until_ns);
        if (!atomic_load(&s.device_lost)) {
            if (ended) /* they may have the only references to memory that is to be bequeathed */
                jobs_end(s.jobs);
            if (!save_state(&s, upgrade))
                status = EXIT_FAILED;
        }
        lost_leave(s.lost);
        if (!ended) {
            log_event(LOG_ERROR, "work did not end in time; exiting without waiting", NULL);
            _exit(EXIT_FAILED);
        }
    }
    copy_rates_free(s.rates, until_ns); /* its thread's work is not to be bequeathed */
    if (s.survive && s.engine)
        bequeath(&s, status, until_ns);
    if (s.exports) { /* those that another process continues with end here alone */
        (void)exports_stop(s.exports);
        exports_stop_all(s.exports);
    }
    export_socket_free(s.export_socket);
    exports_free(s.exports);
    files_free(s.files);
    const bool jobs_ended = jobs_free(s.jobs);
    lease_uses_free(s.uses);
    state_close(s.state);
    auth_free(s.auth);
    logins_free(s.logins);
    leases_free(s.leases);
    shares_free(s.shares);
    meter_unref(s.memory);
    /* what a slice under way holds is not given back, though its work may end meanwhile */
    if (!jobs_ended || !engine_close(s.engine)) {
        log_event(LOG_WARN, "exiting while work is still running", NULL);
        _exit(status);
    }
    sched_free(s.sched);
    metrics_free(s.metrics);
    survive_free(s.survive);
    culprits_close(s.culprits);
    audit_free(s.audit);
    hold_close(s.hold);
    if (code == ERR_OK)
        log_event(LOG_INFO, "stopped", NULL);
    return status;
}

/* The first process, which starts this program again as the daemon. */
static int keep(struct config *config, char *const *argv)
{
    /* 0: as long as it takes */
    double saving = !config->state_dir ? 0 : config->state_timeout ? config->state_timeout : 1e9;
    struct keeper_config k = {.argv = argv,
                              .most_failures = config->restart_limit,
                              .kept = HELD_CHUNKS,
                              .most_deaths = config->restart_rate,
                              .leave_s = config->drain_timeout + saving + LEAVE_S,
                              .wait_s = config->restart_wait,
                              .follows = config->private != NULL,
                              .sockets = HTTP_SOCKETS,
                              .answered = HTTP_SOCKETS_PLAIN};
    const int status = keeper_run(&k);
    if (config->private)
        unix_remove_folder(config->private);
    config_free(config);
    return status;
}

/* The commands that the first argument may name instead of an option. */
static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"doctor", doctor_main},   {"token", token_main},           {"account", account_main},
    {"upgrade", upgrade_main}, {"precompile", precompile_main}, {"bench", bench_main},
};

int main(int argc, char **argv)
{
    log_open_standard();
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].main(argc - 1, argv + 1);
    struct config config;
    struct err e = ERR_INIT;
    enum config_action action;
    if (config_load(argc, argv, &config, &action, &e))
        return complain(&e, EXIT_USAGE);
    int status = EXIT_OK;
    if (getenv(KEEPER_CHECK_ENV)) {
        status = check_start(&config, atoi(getenv(KEEPER_CHECK_ENV)), &e) == ERR_OK
                     ? EXIT_OK
                     : complain(&e, EXIT_FAILED);
    } else if (action == CONFIG_HELP) {
        _cleanup_strb_ struct strb text = {0};
        config_help(&text);
        fputs(text.failed ? "" : text.data, stdout);
    } else if (action == CONFIG_VERSION) {
        puts("arrayd " ARRAYD_VERSION);
    } else {
        log_set_level(config.log_level);
        log_set_json(config.log_json);
        if (!config.no_keeper && !hold_expected())
            return keep(&config, argv);
        config_fill(&config);
        fit_descriptors(&config);
        signal(SIGXFSZ, SIG_IGN); /* a file over the size limit is an error, like a full disk */
        keep_heap(4 << 20);
        status = run(&config);
    }
    config_free(&config);
    return status;
}
