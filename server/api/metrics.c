/* Each route has counters: a matrix of status codes and a histogram of latencies, all relaxed
 * atomics in one allocation. Any status not listed counts as "other". */
#include "server/api/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "server/api/handlers.h"
#include "server/exports/export.h"
#include "server/keeper/hold.h"
#include "server/kept/journal_writer.h"
#include "server/login/logins.h"
#include "server/server.h"
#include "server/state/state.h"
#include "server/store/auth.h"

static const short statuses[] = {200, 201, 202, 204, 206, 304, 400, 401, 403, 404,
                                 405, 406, 408, 409, 411, 413, 414, 415, 416, 417,
                                 422, 429, 431, 500, 501, 503, 504, 505, 507, 0 /* none sent */};
#define N_STATUSES (sizeof statuses / sizeof *statuses)

static const double bounds[] = {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3,
                                50e-3, 100e-3, 250e-3, 500e-3, 1,    2.5,    5,    10,    30};
#define N_BOUNDS (sizeof bounds / sizeof *bounds)

struct route_metrics {
    _Atomic uint64_t by_status[N_STATUSES + 1]; /* the last: any other */
    _Atomic uint64_t bucket[N_BOUNDS + 1];
    _Atomic uint64_t sum_ns;
};

struct metrics {
    _Atomic uint64_t bytes_in, bytes_out;
    const struct route *table;
    size_t n_table;
    struct route_metrics routes[]; /* of the table, and of requests that matched none */
};

struct metrics *metrics_new(const struct route *table, size_t n)
{
    struct metrics *m = mem_calloc(1, sizeof *m + (n + 1) * sizeof m->routes[0]);
    if (m) {
        m->table = table;
        m->n_table = n;
    }
    return m;
}

void metrics_free(struct metrics *m)
{
    mem_free(m);
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void metrics_request(struct metrics *m, const struct route *route, struct principal *who,
                     int status, double seconds, int64_t bytes_in, int64_t bytes_out)
{
    struct route_metrics *r = &m->routes[route ? (size_t)(route - m->table) : m->n_table];
    size_t s = 0, b = 0;
    while (s < N_STATUSES && statuses[s] != status)
        s++;
    while (b < N_BOUNDS && seconds > bounds[b])
        b++;
    add(&r->by_status[s], 1);
    add(&r->bucket[b], 1);
    add(&r->sum_ns, (uint64_t)(seconds * 1e9));
    add(&m->bytes_in, (uint64_t)bytes_in);
    add(&m->bytes_out, (uint64_t)bytes_out);
    if (who) {
        add(&who->n_requests, 1);
        add(&who->bytes_in, (uint64_t)bytes_in);
        add(&who->bytes_out, (uint64_t)bytes_out);
    }
}

/* --- text --- */

static void family(struct strb *out, const char *name, const char *type, const char *help)
{
    strb_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct strb *out, const char *name, const char *help, double value)
{
    family(out, name, "gauge", help);
    strb_addf(out, "%s %.15g\n", name, value);
}

static void labels(const struct metrics *m, struct strb *out, size_t i)
{
    if (i < m->n_table)
        strb_addf(out, "route=\"%s\",method=\"%s\"", m->table[i].label, m->table[i].method);
    else
        strb_add(out, "route=\"none\",method=\"any\"");
}

static void write_routes(struct metrics *m, struct strb *out)
{
    family(out, "arrayd_http_requests_total", "counter",
           "Requests that have ended, by route and status (0: no reply could be sent).");
    for (size_t i = 0; i <= m->n_table; i++)
        for (size_t s = 0; s <= N_STATUSES; s++) {
            uint64_t n = get(&m->routes[i].by_status[s]);
            if (!n)
                continue;
            strb_add(out, "arrayd_http_requests_total{");
            labels(m, out, i);
            if (s < N_STATUSES)
                strb_addf(out, ",status=\"%d\"} %" PRIu64 "\n", statuses[s], n);
            else
                strb_addf(out, ",status=\"other\"} %" PRIu64 "\n", n);
        }
    family(out, "arrayd_http_request_seconds", "histogram",
           "Time from a request's first line to the end of its reply, in seconds.");
    for (size_t i = 0; i <= m->n_table; i++) {
        const struct route_metrics *r = &m->routes[i];
        uint64_t n = 0, counts[N_BOUNDS + 1];
        for (size_t b = 0; b <= N_BOUNDS; b++)
            n += counts[b] = get(&r->bucket[b]);
        if (!n)
            continue;
        uint64_t below = 0;
        for (size_t b = 0; b < N_BOUNDS; b++) {
            below += counts[b];
            strb_add(out, "arrayd_http_request_seconds_bucket{");
            labels(m, out, i);
            strb_addf(out, ",le=\"%g\"} %" PRIu64 "\n", bounds[b], below);
        }
        strb_add(out, "arrayd_http_request_seconds_bucket{");
        labels(m, out, i);
        strb_addf(out, ",le=\"+Inf\"} %" PRIu64 "\narrayd_http_request_seconds_sum{", n);
        labels(m, out, i);
        strb_addf(out, "} %.9g\narrayd_http_request_seconds_count{",
                  (double)get(&r->sum_ns) * 1e-9);
        labels(m, out, i);
        strb_addf(out, "} %" PRIu64 "\n", n);
    }
    family(out, "arrayd_http_bytes_in_total", "counter", "Bytes of request bodies.");
    strb_addf(out, "arrayd_http_bytes_in_total %" PRIu64 "\n", get(&m->bytes_in));
    family(out, "arrayd_http_bytes_out_total", "counter", "Bytes of reply bodies.");
    strb_addf(out, "arrayd_http_bytes_out_total %" PRIu64 "\n", get(&m->bytes_out));
}

/* What clients on this host have mapped. */
static void write_exports(struct server *server, struct strb *out)
{
    struct exports_figures of;
    struct export_figures now;
    if (!server->exports)
        return;
    engine_export_figures(server->engine, &now);
    exports_figures(server->exports, &of);
    gauge(out, "arrayd_exports", "Arrays whose memory is exported.",
          (double)(now.readers + now.writers));
    gauge(out, "arrayd_exports_bytes", "Exported memory, each part counted once, in bytes.",
          (double)now.bytes);
    family(out, "arrayd_exports_total", "counter", "Exports that were granted.");
    strb_addf(out, "arrayd_exports_total %" PRIu64 "\n", of.opened);
    family(out, "arrayd_exports_ended_total", "counter",
           "Exports that have ended, by how they ended.");
    for (int i = 0; i < OFFER_ENDS; i++)
        strb_addf(out, "arrayd_exports_ended_total{how=\"%s\"} %" PRIu64 "\n",
                  offer_end_name((enum offer_end)i), of.ended[i]);
}

static double uptime(const struct server *server)
{
    return (double)(clock_date_us() - server->started_us) * 1e-6;
}

static void write_logins(struct logins *t, struct strb *out)
{
    int64_t logins, links;
    logins_count(t, &logins, &links);
    gauge(out, "arrayd_logins", "Logins of browsers that are in force.", (double)logins);
    gauge(out, "arrayd_links", "Read-only links that are in force.", (double)links);
}

static void write_devices(const struct engine *g, struct strb *out)
{
    struct backend_device d;
    family(out, "arrayd_device_bytes_in_use", "gauge",
           "Bytes of arrays and temporaries, by device; what is the mesh's lies on its GPUs.");
    for (int i = 0; i < engine_device_count(g); i++)
        strb_addf(out, "arrayd_device_bytes_in_use{device=\"%d\"} %" PRId64 "\n", i,
                  engine_bytes_on(g, i));
    family(out, "arrayd_device_memory_used_bytes", "gauge",
           "What arrays and work have of each device's memory, on a GPU those of the mesh, too.");
    for (int i = 0; i < engine_device_count(g); i++) {
        engine_device_info(g, i, &d);
        strb_addf(out, "arrayd_device_memory_used_bytes{device=\"%d\"} %" PRId64 "\n", i,
                  d.memory_used);
    }
    family(out, "arrayd_device_memory_kept_bytes", "gauge",
           "Free memory of each device that the daemon keeps for new arrays, in bytes.");
    for (int i = 0; i < engine_device_count(g); i++) {
        engine_device_info(g, i, &d);
        strb_addf(out, "arrayd_device_memory_kept_bytes{device=\"%d\"} %" PRId64 "\n", i,
                  d.memory_kept);
    }
}

void metrics_write(struct metrics *m, struct server *server, struct strb *out)
{
    struct http_gauges g = {0};
    http_gauges(server->http, &g);
    family(out, "arrayd_info", "gauge", "Version and backend, as labels.");
    strb_addf(out, "arrayd_info{version=\"%s\",backend=\"%s\"} 1\n", ARRAYD_VERSION,
              engine_backend(server->engine));
    gauge(out, "arrayd_uptime_seconds", "Time since the daemon started, in seconds.",
          uptime(server));
    gauge(out, "arrayd_start_time_seconds", "Start of the daemon's process, in seconds since 1970.",
          (double)server->started_us * 1e-6);
    gauge(out, "arrayd_process_id", "Process ID of the daemon.", getpid());
    family(out, "arrayd_restarts_total", "counter", "Restarts of the daemon by its keeper.");
    strb_addf(out, "arrayd_restarts_total %d\n", hold_restarts(server->hold));
    gauge(out, "arrayd_work_refused", "Kernels and plans that are refused because they faulted.",
          culprits_count(server->culprits));
    gauge(out, "arrayd_work_suspected",
          "Kernels and plans that run alone because they were there when something faulted.",
          culprits_suspects(server->culprits));
    gauge(out, "arrayd_bytes_in_use", "Memory of arrays and temporaries, in bytes.",
          (double)engine_bytes_in_use(server->engine));
    write_devices(server->engine, out);
    gauge(out, "arrayd_arrays", "Array handles.", (double)auth_arrays(server->auth));
    gauge(out, "arrayd_sessions", "Sessions, including the default ones.",
          (double)auth_sessions(server->auth));
    write_logins(server->logins, out);
    gauge(out, "arrayd_http_connections", "Open connections.", (double)g.connections);
    gauge(out, "arrayd_http_requests_in_flight", "Requests that have begun and not ended.",
          (double)g.in_flight);
    gauge(out, "arrayd_http_requests_waiting",
          "Requests that are suspended and wait for the device, a worker thread or the client.",
          (double)g.suspended);
    gauge(out, "arrayd_http_worker_queue", "Requests that wait for a worker thread.",
          (double)g.queued_work);
    family(out, "arrayd_http_workers_busy", "gauge",
           "Worker threads that run something; long work leaves one free where it can.");
    strb_addf(out, "arrayd_http_workers_busy{work=\"short\"} %" PRId64 "\n", g.busy - g.busy_long);
    strb_addf(out, "arrayd_http_workers_busy{work=\"long\"} %" PRId64 "\n", g.busy_long);
    write_routes(m, out);
    metrics_principals(server, out);
    write_exports(server, out);
    engine_metrics(server->engine, out);
    state_metrics(server->state, out);
    writer_metrics(server->writer, out);
}

/* Whether a list, "a,b", has the name. */
static bool is_named(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !memcmp(p, name, n))
            return true;
    return false;
}

/* Keeps only these metrics, each with its "# HELP" line and all lines that belong to it, for
 * clients that ask every second. */
static void keep_named(struct strb *text, const char *names)
{
    static const char help[] = "# HELP ";
    size_t kept = 0;
    bool keeps = false;
    for (size_t at = 0, end; at < text->len; at = end) {
        const char *line = text->data + at, *name = line + strlen(help);
        end = at + strcspn(line, "\n") + 1;
        if (!strncmp(line, help, strlen(help)))
            keeps = is_named(names, name, strcspn(name, " "));
        if (!keeps)
            continue;
        memmove(text->data + kept, line, end - at);
        kept += end - at;
    }
    text->len = kept;
}

void metrics_get(struct request *req)
{
    static const char *const query[] = {"names", NULL};
    struct err e = ERR_INIT;
    if (http_query_only(req, query, &e)) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    metrics_write(req->server->metrics, req->server, &out);
    const char *names = http_query(req, "names");
    if (names && !out.failed)
        keep_named(&out, names);
    http_reply_text(req, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
