/* The daemon's settings: options, configuration file, defaults.
 *
 * One table (config.c) drives all of it: parsing of --options and of the file, --help, and the
 * limits in /v1/info. main.c makes the struct, all others read it. It owns its strings. Constant
 * after the start, so it needs no locks. */
#ifndef ARRAYD_SERVER_CONFIG_H
#define ARRAYD_SERVER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/base/log.h"
#include "compute/base/strb.h"

struct config_list {
    char **items;
    size_t n;
};

/* The upper bound of max-attrs, max-function-size, max-nodes and max-nesting. */
#define MOST_ATTRS         1048576
#define MOST_FUNCTION_SIZE 16777216
#define MOST_NODES         10000000
#define MOST_NESTING       4000

struct config {
    struct config_list listen, admin_listen;
    char *backend;
    char *file;     /* --config, NULL: none */
    char *accounts; /* file, NULL: one local user */
    enum log_level log_level;
    bool log_json;
    bool log_requests;
    bool page;

    /* logins */
    double login_lifetime, max_link_lifetime; /* seconds */
    int64_t max_logins, max_links;

    /* device */
    int64_t threads;      /* 0: one per core */
    int64_t memory_limit; /* bytes on each device, 0: all it has */
    int64_t host_memory;  /* bytes of arrays in host memory, 0: half of the machine's */
    int64_t request_memory, max_request_memory, total_request_memory; /* bytes */
    bool evict;              /* a full device's least recently used arrays move to host memory */
    int64_t inline_elements; /* CPU: smaller work runs in the calling thread */
    int64_t spin;            /* µs, see wakeup_soon */
    char *kernel_cache;      /* CUDA: folder of compiled kernels; NULL: none on disk */
    char *ready_kernels;     /* CUDA: another, which is only read; NULL: none */
    int64_t kernel_cache_size, kernel_cache_entries;
    int64_t slab_memory, compile_threads;
    const char *mesh; /* GPUs that are one device more; NULL: none */
    int64_t mesh_least;
    const char *default_device; /* "any", "mesh", or a number */
    bool interpreter;
    int64_t interpreter_memory, interpreter_work; /* bytes; steps */
    double lost_exit_delay;                       /* seconds */

    /* the keeper */
    bool no_keeper, keep_arrays;
    char *private; /* folder, NULL: the daemon is nobody's own */
    int64_t restart_limit, restart_rate, journal_size, max_chunks, max_kept_arrays, job_restarts;
    int64_t reuse_memory; /* bytes on each device; 0, as for the time: see reclaim.h */
    double reuse_time;    /* seconds */
    double restart_wait;  /* seconds */

    /* the audit */
    char *audit_log; /* file, NULL: none */
    int64_t audit_entries, audit_log_size, audit_log_files;

    /* faults */
    int64_t fault_limit; /* 0: none */
    double fault_window; /* seconds */

    /* state */
    char *state_dir;      /* NULL: nothing is saved */
    double state_timeout; /* seconds, 0: no limit */
    double state_wait;    /* seconds */
    bool state_ignore;

    /* sessions */
    int64_t max_sessions, max_arrays;
    int64_t max_attrs, attrs_memory; /* bytes; of the latter 0: no limit */
    int64_t session_memory;          /* bytes, 0: no limit */
    int64_t max_functions, max_function_size;
    int64_t max_leases, max_shares;
    double max_lease_ttl; /* seconds */

    /* expressions and JSON */
    int64_t max_nodes, max_nesting, max_inputs, max_cost;
    int64_t max_kernel_nodes, max_kernel_inputs, plan_cache, plan_cache_size;
    int64_t max_inline; /* elements */
    int64_t max_bins, max_percentiles;
    int64_t max_picture;               /* pixels along a side */
    double event_interval, frame_time; /* seconds; the latter of each second */
    int64_t event_bandwidth;           /* bytes a second, 0: no limit */
    int64_t max_statements, max_program_nodes, max_records, max_jobs, record_memory;
    double job_retention; /* seconds */
    double device_window; /* seconds, see scheduler.h */
    int64_t max_waiting, max_waiting_all;
    int64_t max_json_body, max_json_depth, max_json_values;

    /* files */
    struct config_list files; /* NAME=PATH */
    char *file_reader;        /* NULL: beside this program */
    char *file_spool;
    bool unsandboxed_files;
    int64_t file_jobs, file_memory, file_slab, file_slabs, file_threads, max_file_entries;
    double file_timeout, file_time; /* seconds; the latter of a processor */

    /* exports */
    bool allow_export;
    int64_t export_threshold, max_exports, max_export_connections;
    double export_timeout; /* seconds */

    /* HTTP */
    struct config_list allowed_host, cors_origin;
    char *tls_cert, *tls_key; /* files, NULL: no TLS */
    int64_t unix_mode;
    int64_t workers;
    int64_t max_connections, max_connections_per_address, max_header;
    double header_timeout, body_timeout, body_rate_window, idle_timeout, drain_timeout,
        unread_body_timeout, max_wait;
    int64_t min_body_rate, offload_body, max_ignored_body, max_unread_body;

    /* Calls visit for every number that limits what a client may do, configurable or fixed, as
     * listed in /v1/info; `name` is the option's with underscores ("max_json_body"). Sizes are
     * bytes, times are seconds. A pointer because the table is main's and the callers are in lower
     * layers. */
    void (*each_limit)(const struct config *c,
                       void (*visit)(void *user, const char *name, double value), void *user);
};

enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION };

/* Defaults, then the file, then the command line. ERR_BAD_FIELD with a readable sentence: unknown
 * option or key, malformed value, unreadable file. On failure nothing needs to be released. */
enum err_code config_load(int argc, char *const *argv, struct config *ret,
                          enum config_action *ret_action, struct err *e) must_check;
void config_free(struct config *c);
/* Fills in what was not set and depends on the machine. */
void config_fill(struct config *c);

/* The descriptors that may be in use at once, of a process that may have so many: of
 * max_connections and the files that these send; of further connections, for health and metrics, on
 * the addresses of admin-listen and for exports; of libraries, devices and logs. */
int64_t config_files(const struct config *c, int64_t descriptors);
/* Lowers max_connections to what a process with so many descriptors can accept; whether it did.
 * A listener without a descriptor for the next connection waits for seconds, and so does everyone
 * behind it; one with too many connections says 503. */
bool config_fit(struct config *c, int64_t descriptors);

/* The text of --help. */
void config_help(struct strb *out);

#endif
