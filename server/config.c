/* Options and the configuration file from one table.
 *
 * A row says where a setting is stored, how its text is parsed, its default and its --help text.
 * The names are the same on the command line and in the file. The file is read before the command
 * line is applied, so the command line wins; a list given there replaces the file's. */
#include "server/config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "compute/base/ini.h"
#include "compute/base/mem.h"
#include "compute/check/check.h"
#include "compute/lang/call.h"
#include "compute/type/grid.h"
#include "compute/type/layout.h"
#include "protocol/text/infix.h"
#include "protocol/wire/npy.h"
#include "server/body/data.h"
#include "server/http/http.h"
#include "server/store/handles.h"

enum kind { SET_TEXT, SET_LIST, SET_FLAG, SET_LEVEL, SET_COUNT, SET_SIZE, SET_OCTAL, SET_SECONDS };

struct setting {
    const char *name;
    enum kind kind;
    bool limit; /* in /v1/info */
    size_t offset;
    const char *initial; /* NULL: none */
    double lo, hi;
    const char *argument, *help;
};

#define AT(field) offsetof(struct config, field)
#define ANY       9007199254740992.0

static const struct setting settings[] = {
    {"listen", SET_LIST, false, AT(listen), "127.0.0.1:7411", 0, 0, "ADDR:PORT|unix:PATH",
     "where to listen; may be given several times; port 0 takes a free one"},
    {"admin-listen", SET_LIST, false, AT(admin_listen), NULL, 0, 0, "ADDR:PORT|unix:PATH",
     "where health and metrics are served and nothing else, without tokens and TLS, whatever the "
     "load"},
    {"backend", SET_TEXT, false, AT(backend), "auto", 0, 0, "auto|cpu|cuda",
     "what computes; auto: CUDA where there is a usable GPU"},
    {"config", SET_TEXT, false, AT(file), NULL, 0, 0, "FILE",
     "configuration file: lines of 'name = value', the names are these options'"},
    {"accounts", SET_TEXT, false, AT(accounts), NULL, 0, 0, "FILE",
     "file of accounts and their tokens: see 'arrayd token'; unset: every client is served, on "
     "loopback addresses and Unix sockets only"},
    {"threads", SET_COUNT, false, AT(threads), "0", 0, 4096, "N",
     "threads of the CPU backend; 0: one a core"},
    {"memory-limit", SET_SIZE, true, AT(memory_limit), "0", 0, ANY, "SIZE",
     "memory on each device, for arrays and for the work on them; 0: what the device has"},
    {"host-memory", SET_SIZE, true, AT(host_memory), "0", 0, ANY, "SIZE",
     "arrays that were moved to host memory; 0: half of what the machine has"},
    {"total-request-memory", SET_SIZE, true, AT(total_request_memory), "0", 0, ANY, "SIZE",
     "memory of the host for work: bodies, plans, replies; past it 503; 0: a quarter of all"},
    {"request-memory", SET_SIZE, true, AT(request_memory), "0", 0, ANY, "SIZE",
     "of it, of a user, unless the account says; past it 429; 0: 320 MiB, at most half of it"},
    {"max-request-memory", SET_SIZE, true, AT(max_request_memory), "0", 0, ANY, "SIZE",
     "of that, of one request; past it 507; 0: 256 MiB, at most four fifths of that"},
    {"evict", SET_FLAG, false, AT(evict), "no", 0, 0, NULL,
     "when a device is full, the least recently used arrays move to host memory"},
    {"log-level", SET_LEVEL, false, AT(log_level), "info", 0, 0, "error|warn|info|debug",
     "debug has a line for every request, info for those with a traceparent, warn for 5xx"},
    {"log-json", SET_FLAG, false, AT(log_json), "no", 0, 0, NULL, "one JSON object a line"},
    {"log-requests", SET_FLAG, false, AT(log_requests), "no", 0, 0, NULL,
     "a line for every request already at the level info"},

    {"max-sessions", SET_COUNT, true, AT(max_sessions), "1000", 1, 1e9, "N",
     "sessions of a user, besides the default one; the user's account may say otherwise"},
    {"max-arrays", SET_COUNT, true, AT(max_arrays), "100000", 1, 1e9, "N",
     "array handles of a user; the user's account may say otherwise"},
    {"session-memory", SET_SIZE, true, AT(session_memory), "0", 0, ANY, "SIZE",
     "memory of one session, as memory-limit counts it, scratch memory aside; 0: no limit"},
    {"max-leases", SET_COUNT, true, AT(max_leases), "10000", 1, 1e9, "N", "leases of a user"},
    {"max-shares", SET_COUNT, true, AT(max_shares), "10000", 1, 1e9, "N",
     "arrays that a user shares with others, counted for each of these"},
    {"max-lease-ttl", SET_SECONDS, true, AT(max_lease_ttl), "3600", 0.1, 1e9, "SECONDS",
     "that a lease lasts without being renewed"},
    {"max-functions", SET_COUNT, true, AT(max_functions), "1000", 1, 1e6, "N",
     "functions that a user has defined"},
    {"max-function-size", SET_SIZE, true, AT(max_function_size), "64KiB", 16, MOST_FUNCTION_SIZE,
     "SIZE", "the expression of one of them"},

    {"max-nodes", SET_COUNT, true, AT(max_nodes), "10000", 1, MOST_NODES, "N",
     "nodes of an expression"},
    {"max-nesting", SET_COUNT, true, AT(max_nesting), "400", 1, MOST_NESTING, "N",
     "brackets, calls, unary operators and ** within each other"},
    {"max-inputs", SET_COUNT, true, AT(max_inputs), "64", 1, 4096, "N", "arrays of an expression"},
    {"max-cost", SET_COUNT, true, AT(max_cost), "0", 0, 9e15, "N",
     "operations on elements (nodes times elements) of an expression, and of a step of a program; "
     "0: 4000000000000000 on GPUs, 40000000000000 on the CPU"},
    {"max-inline", SET_COUNT, true, AT(max_inline), "65536", 0, 1e9, "N",
     "elements of a result that is returned inline"},
    {"max-statements", SET_COUNT, true, AT(max_statements), "256", 1, 100000, "N",
     "statements of a program, and records of it"},
    {"max-program-nodes", SET_COUNT, true, AT(max_program_nodes), "100000", 1, 1e9, "N",
     "nodes of all expressions of a program together, the functions that they call written out"},
    {"max-records", SET_COUNT, true, AT(max_records), "1000000", 1, 1e9, "N",
     "values that a job records, of all its records together"},
    {"max-jobs", SET_COUNT, true, AT(max_jobs), "1000", 1, 1e6, "N",
     "jobs of a user; past them those that ended first are forgotten"},
    {"record-memory", SET_SIZE, true, AT(record_memory), "256MiB", 0, ANY, "SIZE",
     "of what all jobs of a user record, 8 bytes a value; those that ended first give way; 0: no "
     "limit"},
    {"job-retention", SET_SECONDS, true, AT(job_retention), "3600", 0, 1e9, "SECONDS",
     "that a job is kept after its end"},
    {"device-window", SET_SECONDS, true, AT(device_window), "0.01", 0, 3600, "SECONDS",
     "expected device time of the work that a session, and a user who shares the device, may have "
     "on it at once; the rest is queued"},
    {"max-waiting", SET_COUNT, true, AT(max_waiting), "1000", 0, 1e9, "N",
     "pieces of a user's work that wait for a device; past them requests are answered 429"},
    {"max-waiting-all", SET_COUNT, true, AT(max_waiting_all), "10000", 0, 1e9, "N",
     "the same of all users; past them 503"},
    {"max-json-body", SET_SIZE, true, AT(max_json_body), "16MiB", 1024, 4294967296.0, "SIZE",
     "a JSON body, array data aside"},
    {"max-json-depth", SET_COUNT, true, AT(max_json_depth), "1000", 1, 100000, "N",
     "lists and objects within each other"},
    {"max-json-values", SET_COUNT, true, AT(max_json_values), "2097152", 1, 1e9, "N",
     "values and member names of a JSON body, array data aside"},
    {"max-kernel-nodes", SET_COUNT, false, AT(max_kernel_nodes), "400", 8, 1e6, "N",
     "nodes past which a kernel is cut in two"},
    {"max-kernel-inputs", SET_COUNT, false, AT(max_kernel_inputs), "64", 2, 1024, "N",
     "arrays past which a kernel is cut in two"},
    {"plan-cache", SET_COUNT, true, AT(plan_cache), "512", 0, 1e6, "N",
     "compiled expressions kept for when they come again"},
    {"plan-cache-size", SET_SIZE, true, AT(plan_cache_size), "32MiB", 0, ANY, "SIZE",
     "what these may take, and as much again for steps of programs"},
    {"spin", SET_COUNT, false, AT(spin), "50", 0, 100000, "MICROSECONDS",
     "GPU: how long a small result of a client alone is awaited without a suspension; 0: never"},
    {"inline-elements", SET_COUNT, false, AT(inline_elements), "65536", 0, 1e9, "N",
     "CPU: work up to this many point operations runs where it is asked for"},

    {"kernel-cache", SET_TEXT, false, AT(kernel_cache), NULL, 0, 0, "FOLDER|none",
     "CUDA: where compiled kernels are kept; unset: arrayd in $XDG_CACHE_HOME or ~/.cache"},
    {"kernel-cache-size", SET_SIZE, true, AT(kernel_cache_size), "512MiB", 0, ANY, "SIZE",
     "CUDA: what that folder may take"},
    {"kernel-cache-entries", SET_COUNT, true, AT(kernel_cache_entries), "4096", 1, 1e7, "N",
     "CUDA: compiled kernels kept in memory"},
    {"slab-memory", SET_SIZE, true, AT(slab_memory), "64MiB", 5242880, ANY, "SIZE",
     "CUDA: pinned host memory of a device, through which array data go in and out; at least 5 "
     "MiB"},
    {"compile-threads", SET_COUNT, false, AT(compile_threads), "0", 0, 256, "N",
     "CUDA: threads that compile kernels; 0: one for two cores, at most 8"},
    {"lost-exit-delay", SET_SECONDS, false, AT(lost_exit_delay), "2", 0, 4, "SECONDS",
     "CUDA: from the loss of a device until the process ends with exit status 75"},

    {"state-dir", SET_TEXT, false, AT(state_dir), NULL, 0, 0, "FOLDER",
     "where arrays are kept while the daemon does not run: written at its end and by POST "
     "/v1/snapshot, restored at its start"},
    {"state-timeout", SET_SECONDS, true, AT(state_timeout), "60", 0, 1e9, "SECONDS",
     "for that at the end; what takes longer stays as the last snapshot has it, and is logged; 0: "
     "as long as it takes"},
    {"state-wait", SET_SECONDS, true, AT(state_wait), "5", 0, 1e9, "SECONDS",
     "that a snapshot waits for arrays that work is writing to; then it has what the last one has "
     "of them"},
    {"state-ignore", SET_FLAG, false, AT(state_ignore), "no", 0, 0, NULL,
     "start empty where what is kept cannot be restored, and put it aside"},

    {"allowed-host", SET_LIST, false, AT(allowed_host), NULL, 0, 0, "NAME",
     "a name clients may use in Host besides localhost and the addresses listened on"},
    {"cors-origin", SET_LIST, false, AT(cors_origin), NULL, 0, 0, "ORIGIN",
     "pages from there (https://app.example) may use the daemon from a browser"},
    {"tls-cert", SET_TEXT, false, AT(tls_cert), NULL, 0, 0, "FILE",
     "certificate and what leads up to its authority, PEM: TLS on all addresses but Unix sockets"},
    {"tls-key", SET_TEXT, false, AT(tls_key), NULL, 0, 0, "FILE", "its key, PEM"},
    {"unix-mode", SET_OCTAL, false, AT(unix_mode), "0600", 0, 0777, "MODE",
     "permissions of Unix sockets"},
    {"allow-export", SET_FLAG, false, AT(allow_export), "no", 0, 0, NULL,
     "clients on a Unix socket may map arrays' memory, through a second socket, PATH.fd"},
    {"export-threshold", SET_SIZE, false, AT(export_threshold), "32MiB", 0, ANY, "SIZE",
     "with allow-export: arrays from this size on are made so that they can be exported in place; "
     "smaller ones are copied once when they are"},
    {"export-timeout", SET_SECONDS, true, AT(export_timeout), "10", 0.1, 3600, "SECONDS",
     "from an export's reply until its token comes on PATH.fd, and on that socket without it"},
    {"max-exports", SET_COUNT, true, AT(max_exports), "100", 1, 1e6, "N",
     "exports of a user at once"},
    {"max-export-connections", SET_COUNT, true, AT(max_export_connections), "1000", 1, 100000, "N",
     "connections on PATH.fd"},
    {"workers", SET_COUNT, false, AT(workers), "2", 1, 256, "N",
     "threads for large JSON bodies and the like"},
    {"max-connections", SET_COUNT, true, AT(max_connections), "1000", 1, 100000, "N",
     "connections; past them everything but health and metrics is answered 503"},
    {"max-connections-per-address", SET_COUNT, true, AT(max_connections_per_address), "0", 0,
     100000, "N", "of these, from one address; past them 429 in the same way; 0: no limit"},
    {"max-header", SET_SIZE, true, AT(max_header), "64KiB", 512, 1048576, "SIZE",
     "a request's header; every connection takes 16 KiB and this, at least 64 KiB"},
    {"header-timeout", SET_SECONDS, true, AT(header_timeout), "10", 0.1, 3600, "SECONDS",
     "for the whole header to arrive"},
    {"body-timeout", SET_SECONDS, true, AT(body_timeout), "30", 0.1, 3600, "SECONDS",
     "without a byte of the body"},
    {"min-body-rate", SET_SIZE, true, AT(min_body_rate), "1KiB", 0, ANY, "SIZE",
     "bytes a second of a body, on average over body-rate-window, and that a reply is read, over "
     "idle-timeout"},
    {"body-rate-window", SET_SECONDS, true, AT(body_rate_window), "30", 0.5, 3600, "SECONDS",
     "see min-body-rate"},
    {"max-ignored-body", SET_SIZE, true, AT(max_ignored_body), "64KiB", 0, ANY, "SIZE",
     "a body where none is asked for"},
    {"max-unread-body", SET_SIZE, true, AT(max_unread_body), "64MiB", 0, ANY, "SIZE",
     "of a refused body, read all the same so that its sender gets to see the reply"},
    {"unread-body-timeout", SET_SECONDS, true, AT(unread_body_timeout), "2", 0.1, 3600, "SECONDS",
     "for that, and for a client to close after its last reply"},
    {"idle-timeout", SET_SECONDS, true, AT(idle_timeout), "75", 0.1, 86400, "SECONDS",
     "until an idle connection is closed"},
    {"max-wait", SET_SECONDS, true, AT(max_wait), "0", 0, 1e9, "SECONDS",
     "that a request waits for work on a device or for a job's end; 0: as long as it takes"},
    {"offload-body", SET_SIZE, false, AT(offload_body), "2KiB", 0, ANY, "SIZE",
     "bodies past this are handled by a worker thread"},
    {"drain-timeout", SET_SECONDS, false, AT(drain_timeout), "10", 0, 3600, "SECONDS",
     "for open requests to end after SIGTERM"},
};

/* Limits that no setting changes: the contract's own, and those that keep header parsing simple. */
static const struct {
    const char *name;
    double value;
} fixed[] = {
    {"max_rank", MAX_RANK},
    {"max_alignment", GRID_MAX_ALIGNMENT},
    {"max_name", NAME_MAX_LEN},
    {"max_page", LIST_MAX},
    {"max_query_parameters", MAX_QUERY_PARAMS},
    {"max_npy_header", NPY_HEADER_MAX},
    {"max_number_length", INFIX_NUMBER_MAX},
    {"max_operations", CHECK_MAX_OPERATIONS},
    {"max_parameters", CALL_MAX_PARAMS},
    {"max_empty_lists", JSON_EMPTY_MAX},
};

#define N_SETTINGS (sizeof settings / sizeof *settings)
/* The values getopt_long returns. They start past every character: it returns ':' and '?'
 * itself. */
enum { OPT_HELP = 1000, OPT_VERSION, OPT_SETTING };

/* --- values --- */

static enum err_code bad(const struct setting *s, const char *value, const char *want,
                         struct err *e)
{
    return err_set(e, ERR_BAD_FIELD, "%s: '%.100s' is not %s", s->name, value, want);
}

static enum err_code set_list(struct config_list *l, const char *value, struct err *e)
{
    char **items = mem_reallocarray(l->items, l->n + 1, sizeof *items);
    if (!items)
        return err_oom(e);
    l->items = items;
    items[l->n] = mem_strdup(value);
    if (!items[l->n])
        return err_oom(e);
    l->n++;
    return ERR_OK;
}

static void clear_list(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
    *l = (struct config_list){0};
}

static enum err_code set_number(const struct setting *s, void *at, const char *value, struct err *e)
{
    char *end = NULL, want[128];
    double v = 0;
    bool ok = true;
    errno = 0;
    switch (s->kind) {
    case SET_SIZE:
        ok = ini_size(value, &v);
        v = floor(v);
        break;
    case SET_SECONDS:
        v = strtod(value, &end);
        break;
    case SET_OCTAL:
        v = (double)strtol(value, &end, 8);
        break;
    default:
        v = (double)strtoll(value, &end, 10);
        break;
    }
    if (end && (end == value || *end))
        ok = false;
    if (!ok || errno || !(v >= s->lo && v <= s->hi)) {
        if (s->kind == SET_OCTAL)
            snprintf(want, sizeof want, "an octal mode from 0 to 0777");
        else
            snprintf(want, sizeof want, "a %s from %.15g to %.15g",
                     s->kind == SET_SIZE      ? "size (bytes, KiB, MiB, GiB)"
                     : s->kind == SET_SECONDS ? "number of seconds"
                                              : "number",
                     s->lo, s->hi);
        return bad(s, value, want, e);
    }
    if (s->kind == SET_SECONDS)
        *(double *)at = v;
    else
        *(int64_t *)at = (int64_t)v;
    return ERR_OK;
}

static enum err_code set_value(struct config *c, const struct setting *s, const char *value,
                               struct err *e)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    static const char *const on[] = {"yes", "true", "on", "1"}, *const off[] = {"no", "false",
                                                                                "off", "0"};
    void *at = (char *)c + s->offset;
    switch (s->kind) {
    case SET_TEXT: {
        char *copy = mem_strdup(value);
        if (!copy)
            return err_oom(e);
        mem_free(*(char **)at);
        *(char **)at = copy;
        return ERR_OK;
    }
    case SET_LIST:
        if (!*value)
            return bad(s, value, "a value", e);
        return set_list(at, value, e);
    case SET_FLAG:
        for (size_t i = 0; i < 4; i++)
            if (!strcasecmp(value, on[i]) || !strcasecmp(value, off[i])) {
                *(bool *)at = !strcasecmp(value, on[i]);
                return ERR_OK;
            }
        return bad(s, value, "yes or no", e);
    case SET_LEVEL:
        for (int i = 0; i < 4; i++)
            if (!strcmp(value, levels[i])) {
                *(enum log_level *)at = (enum log_level)i;
                return ERR_OK;
            }
        return bad(s, value, "one of error, warn, info, debug", e);
    default:
        return set_number(s, at, value, e);
    }
}

static enum err_code defaults(struct config *c, bool lists, struct err *e)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!s->initial || (s->kind == SET_LIST) != lists)
            continue;
        if (lists && ((struct config_list *)((char *)c + s->offset))->n)
            continue;
        TRY(set_value(c, s, s->initial, e));
    }
    return ERR_OK;
}

/* --- the file --- */

static enum err_code on_value(struct config *c, const struct ini_line *l, bool seen[N_SETTINGS],
                              struct err *e)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!ini_is(l->name, s->name) || s->offset == AT(file))
            continue;
        if (seen[i] && s->kind != SET_LIST)
            return err_set(e, ERR_BAD_FIELD, "'%s' is set twice", s->name);
        seen[i] = true;
        _cleanup_free_ char *value = mem_strndup(l->value.at, l->value.n);
        return value ? set_value(c, s, value, e) : err_oom(e);
    }
    return err_set(e, ERR_BAD_FIELD, "unknown setting '%.*s'",
                   (int)(l->name.n > 64 ? 64 : l->name.n), l->name.at);
}

static enum err_code read_text(struct config *c, const struct strb *text, const char *path,
                               struct err *e)
{
    struct ini_line l = {.at = text->data};
    struct err why = ERR_INIT;
    bool seen[N_SETTINGS] = {0};
    enum err_code code = ERR_OK;
    while (code == ERR_OK && text->len && ini_next(text->data + text->len, &l)) {
        if (l.kind == INI_MISTAKE)
            code = err_set(&why, ERR_BAD_FIELD, "%s", l.mistake);
        else if (l.kind == INI_SECTION)
            code = err_set(&why, ERR_BAD_FIELD, "there are no sections, but found [%.*s]",
                           (int)(l.name.n > 64 ? 64 : l.name.n), l.name.at);
        else if (l.kind == INI_VALUE)
            code = on_value(c, &l, seen, &why);
    }
    return code == ERR_BAD_FIELD ? err_set(e, code, "%s: line %zu: %s", path, l.number, why.message)
           : code                ? err_oom(e)
                                 : ERR_OK;
}

static enum err_code read_file(struct config *c, const char *path, struct err *e)
{
    _cleanup_strb_ struct strb text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_BAD_FIELD, "%s: %s", path, strerror(errno));
    enum err_code code = ini_read(fd, path, &text, e);
    close(fd);
    return code != ERR_OK ? code : read_text(c, &text, path, e);
}

/* --- the command line --- */

static void options(struct option *o)
{
    size_t n = 0;
    for (; n < N_SETTINGS; n++)
        o[n] = (struct option){settings[n].name,
                               settings[n].kind == SET_FLAG ? optional_argument : required_argument,
                               NULL, OPT_SETTING + (int)n};
    o[n++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    o[n++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    o[n] = (struct option){0};
}

/* Two passes: the first finds --config, the second applies everything else. */
static enum err_code command_line(int argc, char *const *argv, struct config *c, bool apply,
                                  enum config_action *ret_action, struct err *e)
{
    struct option o[N_SETTINGS + 3];
    bool seen[N_SETTINGS] = {0};
    options(o);
    optind = 0;
    opterr = 0;
    for (;;) {
        int at = optind ? optind : 1;
        int k = getopt_long(argc, argv, "+:", o, NULL);
        if (k == -1)
            break;
        if (k == OPT_HELP || k == OPT_VERSION) {
            *ret_action = k == OPT_HELP ? CONFIG_HELP : CONFIG_VERSION;
            continue;
        }
        if (k == ':')
            return err_set(e, ERR_BAD_FIELD, "option '%.64s' needs a value", argv[at]);
        if (k < OPT_SETTING)
            return err_set(e, ERR_BAD_FIELD, "unknown option '%.64s': see --help", argv[at]);
        const struct setting *s = &settings[k - OPT_SETTING];
        bool is_file = s->offset == AT(file);
        if (is_file == apply)
            continue;
        if (s->kind == SET_LIST && !seen[k - OPT_SETTING])
            clear_list((struct config_list *)((char *)c + s->offset));
        seen[k - OPT_SETTING] = true;
        struct err inner = ERR_INIT;
        enum err_code code = set_value(c, s, optarg ? optarg : "yes", &inner);
        if (code != ERR_OK)
            return err_set(e, code, "--%s", inner.message);
    }
    if (optind < argc)
        return err_set(e, ERR_BAD_FIELD, "unexpected argument '%.64s': see --help", argv[optind]);
    return ERR_OK;
}

/* The default folder for compiled kernels, by the XDG base directory specification. */
static enum err_code default_kernel_cache(struct config *c, struct err *e)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct strb path = {0};
    if (base && *base == '/')
        strb_addf(&path, "%s/arrayd", base);
    else if (home && *home == '/')
        strb_addf(&path, "%s/.cache/arrayd", home);
    if (path.failed)
        return err_oom(e);
    c->kernel_cache = path.data;
    return ERR_OK;
}

static enum err_code resolve_kernel_cache(struct config *c, struct err *e)
{
    if (!c->kernel_cache)
        return default_kernel_cache(c, e);
    if (!strcmp(c->kernel_cache, "none") || !*c->kernel_cache) {
        mem_free(c->kernel_cache);
        c->kernel_cache = NULL;
    }
    return ERR_OK;
}

static void each_limit(const struct config *c,
                       void (*visit)(void *user, const char *name, double value), void *user)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!s->limit)
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s", s->name);
        for (char *p = name; *p; p++)
            if (*p == '-')
                *p = '_';
        const void *at = (const char *)c + s->offset;
        visit(user, name,
              s->kind == SET_SECONDS ? *(const double *)at : (double)*(const int64_t *)at);
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        visit(user, fixed[i].name, fixed[i].value);
}

enum err_code config_load(int argc, char *const *argv, struct config *ret,
                          enum config_action *ret_action, struct err *e)
{
    struct config c = {.each_limit = each_limit};
    enum config_action action = CONFIG_RUN;
    enum err_code code = defaults(&c, false, e);
    if (code == ERR_OK)
        code = command_line(argc, argv, &c, false, &action, e);
    if (code == ERR_OK && c.file && action == CONFIG_RUN)
        code = read_file(&c, c.file, e);
    if (code == ERR_OK)
        code = command_line(argc, argv, &c, true, &action, e);
    if (code == ERR_OK)
        code = defaults(&c, true, e);
    if (code == ERR_OK)
        code = resolve_kernel_cache(&c, e);
    if (code != ERR_OK) {
        config_free(&c);
        return code;
    }
    *ret = c;
    *ret_action = action;
    return ERR_OK;
}

void config_free(struct config *c)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        void *at = (char *)c + settings[i].offset;
        if (settings[i].kind == SET_TEXT)
            mem_free(*(char **)at);
        else if (settings[i].kind == SET_LIST)
            clear_list(at);
    }
    *c = (struct config){0};
}

/* --- listings --- */

void config_help(struct strb *out)
{
    strb_add(out, "arrayd: arrays on a device, for many clients, over HTTP\n\n"
                  "usage: arrayd [option]...\n"
                  "       arrayd doctor [option]...\n"
                  "       arrayd token add|list|remove ...\n"
                  "       arrayd account remove ...\n\n"
                  "doctor says whether the machine has what these options need, token and account\n"
                  "change the file of --accounts: see 'arrayd token help'.\n"
                  "Every option may also be a line 'name = value' in the file of --config.\n\n");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        strb_addf(out, "  --%s%s%s\n        %s", s->name, s->argument ? " " : "",
                  s->argument ? s->argument : "", s->help);
        if (s->initial && s->kind != SET_FLAG)
            strb_addf(out, " (default: %s)", s->initial);
        strb_addc(out, '\n');
    }
    strb_add(out, "  --help\n        this text\n  --version\n        the version\n");
}
