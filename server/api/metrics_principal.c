/* The scheduler's turns, and each principal's use so far and at present, for /metrics: the text
 * format wants one family after the other, so each family visits all principals. Requests are
 * counted when they end (metrics_request). Device time is the account's: the engine adds every
 * piece of work that ends, including that of programs and of requests whose reply did not wait. */
#include <stdio.h>

#include "compute/culprit/culprit.h"
#include "server/api/metrics.h"
#include "server/exports/export.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/handles.h"
#include "server/work/scheduler.h"

enum {
    OF_REQUESTS,
    OF_BYTES_IN,
    OF_BYTES_OUT,
    OF_DEVICE,
    OF_MONTH,
    OF_WAITING,
    OF_WAITED,
    OF_MEMORY,
    OF_WORK,
    OF_LABELS,
    OF_ARRAYS,
    OF_KEPT_ARRAYS,
    OF_CHUNKS,
    OF_SESSIONS,
    OF_EXPORTS,
    OF_FAULTS
};

static const struct {
    const char *name, *type, *help;
} of_principal[] = {
    [OF_REQUESTS] = {"requests_total", "counter", "Requests of a principal that have ended."},
    [OF_BYTES_IN] = {"bytes_in_total", "counter", "Bytes of the bodies of a principal's requests."},
    [OF_BYTES_OUT] = {"bytes_out_total", "counter",
                      "Bytes of the bodies of the replies to a principal."},
    [OF_DEVICE] = {"device_seconds_total", "counter",
                   "Time that devices worked for a principal, in seconds."},
    [OF_MONTH] = {"month_device_seconds", "gauge",
                  "The same in the present calendar month (UTC), restarts included."},
    [OF_WAITING] = {"turns_waiting", "gauge", "Work of a principal that waits for a device."},
    [OF_WAITED] = {"turn_wait_seconds_total", "counter",
                   "Time that a principal's work has waited for a device, in seconds."},
    [OF_MEMORY] = {"memory_bytes", "gauge",
                   "Memory of a principal's arrays and temporaries, in bytes."},
    [OF_WORK] = {"request_memory_bytes", "gauge",
                 "Host memory that a principal's requests use, in bytes."},
    [OF_LABELS] = {"attrs_bytes", "gauge",
                   "Host memory of the attrs, coords, dims and units of a principal's arrays, in "
                   "bytes."},
    [OF_ARRAYS] = {"arrays", "gauge", "Array handles of a principal."},
    [OF_KEPT_ARRAYS] = {"kept_arrays", "gauge",
                        "Arrays' memories of a principal that outlive the process."},
    [OF_CHUNKS] = {"chunks", "gauge",
                   "Pieces of memory that the keeper has for a principal's arrays."},
    [OF_SESSIONS] = {"sessions", "gauge", "Sessions of a principal, including the default one."},
    [OF_EXPORTS] = {"exports", "gauge", "Exports of a principal."},
    [OF_FAULTS] = {"faults", "gauge",
                   "Faults while only this principal's work was running, within fault-window."},
};

struct principal_line {
    struct server *server;
    struct strb *out;
    size_t which;
};

/* A name has no character that needs escaping (accounts.h). */
static void write_principal(void *user, struct principal *p)
{
    const struct principal_line *l = user;
    struct sched_counts turns;
    struct account_month month;
    int64_t most;
    double v = 0;
    sched_count(l->server->sched, &p->weight, &turns);
    switch (l->which) {
    case OF_REQUESTS:
        v = (double)atomic_load(&p->n_requests);
        break;
    case OF_BYTES_IN:
        v = (double)atomic_load(&p->bytes_in);
        break;
    case OF_BYTES_OUT:
        v = (double)atomic_load(&p->bytes_out);
        break;
    case OF_DEVICE:
        v = (double)account_device_ns(p->account) * 1e-9;
        break;
    case OF_MONTH:
        account_month(p->account, &month);
        v = (double)month.device_ns * 1e-9;
        break;
    case OF_WAITING:
        v = (double)turns.waiting;
        break;
    case OF_WAITED:
        v = turns.waited_s;
        break;
    case OF_MEMORY:
        v = (double)account_used(p->account);
        break;
    case OF_WORK:
        v = (double)meter_used(p->memory);
        break;
    case OF_LABELS:
        v = (double)handles_labels(p->handles, &most);
        break;
    case OF_ARRAYS:
        v = (double)handles_count(p->handles);
        break;
    case OF_KEPT_ARRAYS:
        v = (double)account_kept(p->account, KEEP_ARRAYS);
        break;
    case OF_CHUNKS:
        v = (double)account_kept(p->account, KEEP_CHUNKS);
        break;
    case OF_SESSIONS:
        v = (double)sessions_count(p->sessions);
        break;
    case OF_EXPORTS:
        v = (double)exports_count(l->server->exports, p);
        break;
    case OF_FAULTS:
        v = (double)culprits_strikes(l->server->culprits, p->name);
        break;
    }
    strb_addf(l->out, "arrayd_principal_%s{principal=\"%s\"} %.15g\n", of_principal[l->which].name,
              p->name, v);
}

static void write_memory(const struct server *server, struct strb *out)
{
    strb_addf(
        out,
        "# HELP arrayd_request_memory_bytes Host memory that requests, programs and functions use, "
        "in bytes.\n"
        "# TYPE arrayd_request_memory_bytes gauge\n"
        "arrayd_request_memory_bytes %lld\n",
        (long long)meter_used(server->memory));
}

/* The totals. */
static void write_turns(struct server *server, struct strb *out)
{
    struct sched_counts n;
    sched_count(server->sched, NULL, &n);
    strb_addf(out,
              "# HELP arrayd_device_turns_waiting Pieces of work that wait for a device.\n"
              "# TYPE arrayd_device_turns_waiting gauge\n"
              "arrayd_device_turns_waiting %lld\n"
              "# HELP arrayd_device_turns_total Pieces of work that were let onto a device.\n"
              "# TYPE arrayd_device_turns_total counter\n"
              "arrayd_device_turns_total %llu\n"
              "# HELP arrayd_device_turns_waited_total Pieces of work that had to wait for a "
              "device.\n"
              "# TYPE arrayd_device_turns_waited_total counter\n"
              "arrayd_device_turns_waited_total %llu\n"
              "# HELP arrayd_device_turn_wait_seconds_total Time that work has waited for a "
              "device, in seconds.\n"
              "# TYPE arrayd_device_turn_wait_seconds_total counter\n"
              "arrayd_device_turn_wait_seconds_total %.9g\n",
              (long long)n.waiting, (unsigned long long)n.turns, (unsigned long long)n.waited,
              n.waited_s);
}

void metrics_principals(struct server *server, struct strb *out)
{
    write_turns(server, out);
    write_memory(server, out);
    for (size_t i = 0; i < sizeof of_principal / sizeof *of_principal; i++) {
        char name[64];
        snprintf(name, sizeof name, "arrayd_principal_%s", of_principal[i].name);
        strb_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, of_principal[i].help, name,
                  of_principal[i].type);
        struct principal_line l = {server, out, i};
        auth_each(server->auth, write_principal, &l);
    }
}
