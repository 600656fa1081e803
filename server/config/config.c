/* Options and the configuration file from one table.
 *
 * A row says where a setting is stored, how its text is parsed, its default and its --help text.
 * The names are the same on the command line and in the file. */
#include "server/config/config_int.h"

#include <assert.h>
#include <stdio.h>

#include "compute/base/mem.h"
#include "compute/check/check.h"
#include "compute/lang/call.h"
#include "compute/type/grid.h"
#include "compute/type/layout.h"
#include "protocol/text/infix.h"
#include "protocol/wire/npy.h"
#include "server/body/data.h"
#include "server/http/http.h"
#include "server/login/logins.h"
#include "server/store/handles.h"

#define ANY 9007199254740992.0

const struct setting config_settings[] = {
    {"listen", SET_LIST, false, AT(listen), "127.0.0.1:7411", 0, 0, "ADDR:PORT|unix:PATH",
     "address to listen on; may be given several times; port 0 picks a free port"},
    {"admin-listen", SET_LIST, false, AT(admin_listen), NULL, 0, 0, "ADDR:PORT|unix:PATH",
     "address that serves only health and metrics, without tokens or TLS, even under full load"},
    {"backend", SET_TEXT, false, AT(backend), "auto", 0, 0, "auto|cpu|cuda",
     "what to compute on; auto: CUDA if there is a usable GPU, else the CPU"},
    {"config", SET_TEXT, false, AT(file), NULL, 0, 0, "FILE",
     "configuration file with lines 'name = value'; the names are those of these options"},
    {"accounts", SET_TEXT, false, AT(accounts), NULL, 0, 0, "FILE",
     "file with the accounts and their tokens: see 'arrayd token'; unset: every client is served, "
     "on loopback addresses and Unix sockets only"},
    {"threads", SET_COUNT, false, AT(threads), "0", 0, 4096, "N",
     "threads of the CPU backend; 0: one per core"},
    {"memory-limit", SET_SIZE, true, AT(memory_limit), "0", 0, ANY, "SIZE",
     "memory to use on each device, for arrays and the work on them; 0: all that the device has"},
    {"host-memory", SET_SIZE, true, AT(host_memory), "0", 0, ANY, "SIZE",
     "memory for arrays moved from a device to the host; 0: half of the machine's memory"},
    {"total-request-memory", SET_SIZE, true, AT(total_request_memory), "0", 0, ANY, "SIZE",
     "host memory for all requests: bodies, plans, replies; above it requests get 503; 0: a "
     "quarter of the machine's memory"},
    {"request-memory", SET_SIZE, true, AT(request_memory), "0", 0, ANY, "SIZE",
     "the part of total-request-memory that one user may take, unless the account says otherwise; "
     "above it requests get 429; 0: 320 MiB, at most half of total-request-memory"},
    {"max-request-memory", SET_SIZE, true, AT(max_request_memory), "0", 0, ANY, "SIZE",
     "the part of request-memory that one request may take; above it the request gets 507; 0: 256 "
     "MiB, at most four fifths of request-memory"},
    {"evict", SET_FLAG, false, AT(evict), "no", 0, 0, NULL,
     "when a device is full, move the least recently used arrays to host memory"},
    {"log-level", SET_LEVEL, false, AT(log_level), "info", 0, 0, "error|warn|info|debug",
     "debug logs every request, info those with a traceparent, warn those answered with 5xx"},
    {"log-json", SET_FLAG, false, AT(log_json), "no", 0, 0, NULL, "log one JSON object per line"},
    {"log-requests", SET_FLAG, false, AT(log_requests), "no", 0, 0, NULL,
     "log every request at level info already"},
    {"page", SET_FLAG, false, AT(page), "yes", 0, 0, NULL, "serve a page for browsers at /"},
    {"login-lifetime", SET_SECONDS, true, AT(login_lifetime), "43200", 1, 31536000, "SECONDS",
     "how long a browser that has logged in with a token stays so"},
    {"max-logins", SET_COUNT, true, AT(max_logins), "50", 1, 100000, "N",
     "logins per user; above it the oldest one ends"},
    {"max-links", SET_COUNT, true, AT(max_links), "100", 0, 100000, "N",
     "read-only links per user"},
    {"max-link-lifetime", SET_SECONDS, true, AT(max_link_lifetime), "2592000", 1, 31536000,
     "SECONDS", "longest time that a read-only link lasts"},

    {"max-sessions", SET_COUNT, true, AT(max_sessions), "1000", 1, 1e9, "N",
     "sessions per user besides the default one; an account may set its own limit"},
    {"max-arrays", SET_COUNT, true, AT(max_arrays), "100000", 1, 1e9, "N",
     "array handles per user; an account may set its own limit"},
    {"max-attrs", SET_SIZE, true, AT(max_attrs), "64KiB", 0, MOST_ATTRS, "SIZE",
     "attrs, coords, dims and units of an array together, as JSON"},
    {"attrs-memory", SET_SIZE, true, AT(attrs_memory), "64MiB", 0, ANY, "SIZE",
     "host memory for those of all of a user's arrays; 0: no limit"},
    {"session-memory", SET_SIZE, true, AT(session_memory), "0", 0, ANY, "SIZE",
     "memory per session, counted as for memory-limit but without scratch memory; 0: no limit"},
    {"max-leases", SET_COUNT, true, AT(max_leases), "10000", 1, 1e9, "N", "leases per user"},
    {"max-shares", SET_COUNT, true, AT(max_shares), "10000", 1, 1e9, "N",
     "shares per user: one for each array and each user it is shared with"},
    {"max-lease-ttl", SET_SECONDS, true, AT(max_lease_ttl), "3600", 0.1, 1e9, "SECONDS",
     "longest time that a lease lasts without being renewed"},
    {"max-functions", SET_COUNT, true, AT(max_functions), "1000", 1, 1e6, "N",
     "functions defined per user"},
    {"max-function-size", SET_SIZE, true, AT(max_function_size), "64KiB", 16, MOST_FUNCTION_SIZE,
     "SIZE", "length of a function's expression"},

    {"max-nodes", SET_COUNT, true, AT(max_nodes), "10000", 1, MOST_NODES, "N",
     "nodes per expression"},
    {"max-nesting", SET_COUNT, true, AT(max_nesting), "400", 1, MOST_NESTING, "N",
     "nesting depth of an expression: brackets, calls, unary operators and **"},
    {"max-inputs", SET_COUNT, true, AT(max_inputs), "64", 1, 4096, "N", "arrays per expression"},
    {"max-cost", SET_COUNT, true, AT(max_cost), "0", 0, 9e15, "N",
     "operations on elements (nodes times elements) per expression and per step of a program; 0: "
     "4000000000000000 on GPUs, 40000000000000 on the CPU"},
    {"max-inline", SET_COUNT, true, AT(max_inline), "65536", 0, 1e9, "N",
     "elements of a result that can be returned inline"},
    {"max-bins", SET_COUNT, true, AT(max_bins), "256", 1, 4096, "N",
     "bins of a summary's histogram"},
    {"max-percentiles", SET_COUNT, true, AT(max_percentiles), "32", 0, 1000, "N",
     "percentiles of a summary"},
    {"max-picture", SET_COUNT, true, AT(max_picture), "4096", 1, 65536, "N",
     "pixels along a side of a picture"},
    {"event-interval", SET_SECONDS, true, AT(event_interval), "0.1", 0.01, 3600, "SECONDS",
     "least time between two events of a stream: of an array's, a list's, a job's"},
    {"event-bandwidth", SET_SIZE, true, AT(event_bandwidth), "8MiB", 0, ANY, "SIZE",
     "bytes of pictures that the stream of an array's events sends in a second; 0: no limit"},
    {"frame-time", SET_SECONDS, true, AT(frame_time), "0.02", 0.001, 1, "SECONDS",
     "time of the device and of a core that the pictures of one stream may take in each second"},
    {"max-statements", SET_COUNT, true, AT(max_statements), "256", 1, 100000, "N",
     "statements per program; also records per program"},
    {"max-program-nodes", SET_COUNT, true, AT(max_program_nodes), "100000", 1, 1e9, "N",
     "nodes of all expressions of a program together, with the functions that they call expanded"},
    {"max-records", SET_COUNT, true, AT(max_records), "1000000", 1, 1e9, "N",
     "values that a job records, over all its records"},
    {"max-jobs", SET_COUNT, true, AT(max_jobs), "1000", 1, 1e6, "N",
     "jobs per user; above it the jobs that ended first are forgotten"},
    {"record-memory", SET_SIZE, true, AT(record_memory), "256MiB", 0, ANY, "SIZE",
     "memory for what a user's jobs record, 8 bytes per value; the jobs that ended first give way; "
     "0: no limit"},
    {"job-retention", SET_SECONDS, true, AT(job_retention), "3600", 0, 1e9, "SECONDS",
     "how long a job is kept after it has ended"},
    {"device-window", SET_SECONDS, true, AT(device_window), "0.01", 0, 3600, "SECONDS",
     "expected device time of the work that a session may have on a device at once; the same for a "
     "user while others use the device too; the rest is queued"},
    {"max-waiting", SET_COUNT, true, AT(max_waiting), "1000", 0, 1e9, "N",
     "pieces of a user's work that may wait for a device; above it requests get 429"},
    {"max-waiting-all", SET_COUNT, true, AT(max_waiting_all), "10000", 0, 1e9, "N",
     "pieces of all users' work that may wait for a device; above it requests get 503"},
    {"max-json-body", SET_SIZE, true, AT(max_json_body), "16MiB", 1024, 4294967296.0, "SIZE",
     "size of a JSON body, not counting array data"},
    {"max-json-depth", SET_COUNT, true, AT(max_json_depth), "1000", 1, 100000, "N",
     "nesting depth of lists and objects in JSON"},
    {"max-json-values", SET_COUNT, true, AT(max_json_values), "2097152", 1, 1e9, "N",
     "values and member names in a JSON body, not counting array data"},
    {"max-kernel-nodes", SET_COUNT, false, AT(max_kernel_nodes), "400", 8, 1e6, "N",
     "nodes per kernel; a larger kernel is split in two"},
    {"max-kernel-inputs", SET_COUNT, false, AT(max_kernel_inputs), "64", 2, 1024, "N",
     "arrays per kernel; a kernel with more is split in two"},
    {"plan-cache", SET_COUNT, true, AT(plan_cache), "512", 0, 1e6, "N",
     "compiled expressions (plans) kept for reuse"},
    {"plan-cache-size", SET_SIZE, true, AT(plan_cache_size), "32MiB", 0, ANY, "SIZE",
     "memory for these plans, and as much again for steps of programs"},
    {"spin", SET_COUNT, false, AT(spin), "50", 0, 100000, "MICROSECONDS",
     "GPU: how long to poll for a small result before the request is suspended, if no other "
     "request is in flight, and then for the next request before the thread sleeps; 0: never"},
    {"inline-elements", SET_COUNT, false, AT(inline_elements), "65536", 0, 1e9, "N",
     "CPU: work of up to this many operations on elements runs on the thread that submits it"},

    {"kernel-cache", SET_TEXT, false, AT(kernel_cache), NULL, 0, 0, "FOLDER|none",
     "CUDA: folder for compiled kernels; unset: arrayd in $XDG_CACHE_HOME or ~/.cache"},
    {"ready-kernels", SET_TEXT, false, AT(ready_kernels), NULL, 0, 0, "FOLDER",
     "CUDA: folder of kernels that arrayd precompile compiled, which is only read"},
    {"kernel-cache-size", SET_SIZE, true, AT(kernel_cache_size), "512MiB", 0, ANY, "SIZE",
     "CUDA: size limit of that folder"},
    {"kernel-cache-entries", SET_COUNT, true, AT(kernel_cache_entries), "4096", 1, 1e7, "N",
     "CUDA: compiled kernels kept in memory"},
    {"slab-memory", SET_SIZE, true, AT(slab_memory), "64MiB", 5242880, ANY, "SIZE",
     "CUDA: pinned host memory per device, for transfers of array data; at least 5 MiB"},
    {"mesh", SET_TEXT, false, AT(mesh), NULL, 0, 0, "all|N,N...",
     "CUDA: GPUs that are one device more together, for arrays that no single one holds"},
    {"mesh-least", SET_SIZE, true, AT(mesh_least), "4MiB", 1, ANY, "SIZE",
     "CUDA: on the mesh, what is smaller than this for each of its GPUs is the first one's alone"},
    {"default-device", SET_TEXT, false, AT(default_device), "any", 0, 0, "any|mesh|N",
     "where sessions are that ask for no device; any: the GPU with the most free memory"},
    {"compile-threads", SET_COUNT, false, AT(compile_threads), "0", 0, 256, "N",
     "CUDA: threads that compile kernels; 0: one for every two cores, at most 8"},
    {"interpreter", SET_FLAG, false, AT(interpreter), "yes", 0, 0, NULL,
     "CUDA: run new kernels by an interpreter until they are compiled; its own kernels are "
     "compiled once, in the background, into kernel-cache"},
    {"interpreter-memory", SET_SIZE, true, AT(interpreter_memory), "1GiB", 1, ANY, "SIZE",
     "CUDA: a reduction or scan of more bytes of interpreted values waits for its compiled kernel"},
    {"interpreter-work", SET_COUNT, true, AT(interpreter_work), "16777216", 1, 1e18, "N",
     "CUDA: a kernel of more interpreted operations on elements is compiled at its first use, "
     "others at their second"},
    {"lost-exit-delay", SET_SECONDS, false, AT(lost_exit_delay), "2", 0, 4, "SECONDS",
     "CUDA: time from the loss of a device until exit with status 75; with a keeper 0"},
    {"no-keeper", SET_FLAG, false, AT(no_keeper), "no", 0, 0, NULL,
     "run as a single process, without the keeper that restarts the daemon"},
    {"private", SET_TEXT, false, AT(private), NULL, 0, 0, "FOLDER",
     "the daemon belongs to the program that started it and made this folder for its Unix sockets: "
     "it ends when its standard input does, a pipe, and then removes the sockets and the folder"},
    {"restart-limit", SET_COUNT, true, AT(restart_limit), "10", 0, 1e9, "N",
     "starts in a row that may fail within a second; then the keeper gives up (exit status 75), or "
     "tries every 30 s if it holds arrays"},
    {"restart-rate", SET_COUNT, true, AT(restart_rate), "20", 0, 1000, "N",
     "deaths of the daemon a minute; more are followed by a wait, longer each time; 0: any number"},
    {"restart-wait", SET_SECONDS, true, AT(restart_wait), "10", 0, 86400, "SECONDS",
     "without a daemon, connections wait so long, then the keeper answers 503; 0: they always "
     "wait"},

    {"fault-limit", SET_COUNT, true, AT(fault_limit), "3", 0, 100, "N",
     "faults by one user's work within fault-window that stop it for as long; 0: never"},
    {"fault-window", SET_SECONDS, true, AT(fault_window), "600", 1, 86400, "SECONDS",
     "time over which fault-limit counts"},

    {"audit-log", SET_TEXT, false, AT(audit_log), NULL, 0, 0, "FILE",
     "file that gets a line of JSON for each action of an operator on what others have, refused "
     "token and reading of the accounts"},
    {"audit-log-size", SET_SIZE, true, AT(audit_log_size), "16MiB", 4096, ANY, "SIZE",
     "size at which audit-log becomes FILE.1 and a new one begins"},
    {"audit-log-files", SET_COUNT, true, AT(audit_log_files), "4", 0, 1000, "N",
     "such older files that are kept"},
    {"audit-entries", SET_COUNT, true, AT(audit_entries), "1000", 1, 1e6, "N",
     "last entries of the audit that are in memory, for GET /v1/admin/audit"},

    {"keep-arrays", SET_FLAG, false, AT(keep_arrays), "yes", 0, 0, NULL,
     "arrays outlive a daemon that dies: its keeper holds their memory for the next one"},
    {"journal-size", SET_SIZE, true, AT(journal_size), "1GiB", 4194304, ANY, "SIZE",
     "with keep-arrays: journal of what clients have; at least twice the size of that, and four "
     "times "
     "what one of several users has"},
    {"job-restarts", SET_COUNT, true, AT(job_restarts), "3", 0, 1e6, "N",
     "with keep-arrays: crashes of the daemon in a row while only one job's work, and the same "
     "step of "
     "it, was running; then the job fails"},
    {"max-chunks", SET_COUNT, true, AT(max_chunks), "4096", 1, 1e6, "N",
     "with keep-arrays: pieces of memory with a descriptor each that arrays may lie in"},
    {"max-kept-arrays", SET_COUNT, true, AT(max_kept_arrays), "131072", 1, 1e8, "N",
     "with keep-arrays: arrays that outlive a daemon that dies, not counting views; each takes 40 "
     "bytes from the start"},
    {"reuse-memory", SET_SIZE, true, AT(reuse_memory), "0", 0, ANY, "SIZE",
     "memory of deleted arrays that is kept for new ones of the same size, on each device; 0: an "
     "eighth of the device, on the CPU backend at most 2 GiB"},
    {"reuse-time", SET_SECONDS, true, AT(reuse_time), "0", 0, 1e9, "SECONDS",
     "how long it is kept if nobody takes it; 0: 60 s, on the CPU backend 5"},
    {"state-dir", SET_TEXT, false, AT(state_dir), NULL, 0, 0, "FOLDER",
     "folder that keeps arrays while the daemon is not running: written when it stops and by POST "
     "/v1/snapshot, restored when it starts"},
    {"state-timeout", SET_SECONDS, true, AT(state_timeout), "60", 0, 1e9, "SECONDS",
     "time limit for writing the state when the daemon stops; arrays that take longer stay as in "
     "the last snapshot, and are logged; 0: no limit"},
    {"state-wait", SET_SECONDS, true, AT(state_wait), "5", 0, 1e9, "SECONDS",
     "how long a snapshot waits for arrays that are being written to; after that it keeps their "
     "contents from the last snapshot"},
    {"state-ignore", SET_FLAG, false, AT(state_ignore), "no", 0, 0, NULL,
     "if the saved state cannot be restored, move it aside and start empty"},

    {"files", SET_LIST, false, AT(files), NULL, 0, 0, "NAME=FOLDER[:ro][:shared]",
     "folder that users may import files from and export files to, under that name; with accounts "
     "each has a folder of its own in it, named as the account, unless it is shared"},
    {"file-reader", SET_TEXT, false, AT(file_reader), NULL, 0, 0, "FILE",
     "the program that opens files; unset: arrayd-file beside this one"},
    {"file-spool", SET_TEXT, false, AT(file_spool), "/dev/shm", 0, 0, "FOLDER",
     "where files are that are being sent or received; their size counts as request-memory. It has "
     "to be there and have room for that: a container's /dev/shm often has 64 MiB"},
    {"unsandboxed-files", SET_FLAG, false, AT(unsandboxed_files), "no", 0, 0, NULL,
     "let it open files where the kernel cannot confine it by Landlock and seccomp"},
    {"file-jobs", SET_COUNT, true, AT(file_jobs), "2", 1, 64, "N",
     "imports and exports that run at the same time, with accounts all but one of one user; more "
     "wait, those of users with fewer first"},
    {"file-memory", SET_SIZE, true, AT(file_memory), "1GiB", 67108864, ANY, "SIZE",
     "memory that the program may take for one file, its slabs included, which may take half "
     "of it"},
    {"file-time", SET_SECONDS, true, AT(file_time), "3600", 1, 1e9, "SECONDS",
     "processor time that it may take for one file"},
    {"file-timeout", SET_SECONDS, true, AT(file_timeout), "60", 0.1, 86400, "SECONDS",
     "how long it may take for an answer, or for as many bytes of contents as a slab has, before "
     "it "
     "is ended"},
    {"file-slab", SET_SIZE, true, AT(file_slab), "4MiB", 65536, 268435456, "SIZE",
     "memory in which it hands over contents, a piece at a time, of each import and export; there "
     "are file-slabs of them"},
    {"file-slabs", SET_COUNT, true, AT(file_slabs), "4", 1, 64, "N", "see file-slab"},
    {"file-threads", SET_COUNT, true, AT(file_threads), "0", 0, 64, "N",
     "threads that decompress for one import; 0: one for every two cores, at least 2 "
     "and at most 8"},
    {"max-file-entries", SET_COUNT, true, AT(max_file_entries), "10000", 1, 1e7, "N",
     "files and folders that are listed of one folder"},

    {"allowed-host", SET_LIST, false, AT(allowed_host), NULL, 0, 0, "NAME",
     "a name that clients may use in Host, besides localhost and the addresses listened on"},
    {"cors-origin", SET_LIST, false, AT(cors_origin), NULL, 0, 0, "ORIGIN",
     "web pages from this origin (https://app.example) may use the daemon"},
    {"tls-cert", SET_TEXT, false, AT(tls_cert), NULL, 0, 0, "FILE",
     "PEM file with the certificate and its chain: enables TLS on all addresses except Unix "
     "sockets"},
    {"tls-key", SET_TEXT, false, AT(tls_key), NULL, 0, 0, "FILE",
     "PEM file with the certificate's key"},
    {"unix-mode", SET_OCTAL, false, AT(unix_mode), "0600", 0, 0777, "MODE",
     "permissions of Unix sockets"},
    {"allow-export", SET_FLAG, false, AT(allow_export), "no", 0, 0, NULL,
     "let clients on a Unix socket map the memory of arrays, through a second socket PATH.fd"},
    {"export-threshold", SET_SIZE, false, AT(export_threshold), "32MiB", 0, ANY, "SIZE",
     "with allow-export: arrays of at least this size are created so that they can be exported in "
     "place; smaller ones are copied once when first exported. With keep-arrays it cannot be more "
     "than 2 MiB (on the CPU backend 1 MiB): every array from there on is created so"},
    {"export-timeout", SET_SECONDS, true, AT(export_timeout), "10", 0.1, 3600, "SECONDS",
     "how long a client has to present an export's token on PATH.fd, counted from the reply; also "
     "how long a connection there may stay without a token"},
    {"max-exports", SET_COUNT, true, AT(max_exports), "100", 1, 1e6, "N",
     "simultaneous exports per user"},
    {"max-export-connections", SET_COUNT, true, AT(max_export_connections), "1000", 1, 100000, "N",
     "simultaneous connections on PATH.fd"},
    {"workers", SET_COUNT, false, AT(workers), "0", 0, 256, "N",
     "threads for large JSON bodies and other long work; 0: one for every two cores, at least 2 "
     "and at most 8"},
    {"max-connections", SET_COUNT, true, AT(max_connections), "1000", 1, 100000, "N",
     "simultaneous connections; above it everything except health and metrics gets 503"},
    {"max-connections-per-address", SET_COUNT, true, AT(max_connections_per_address), "0", 0,
     100000, "N",
     "simultaneous connections from one address; above it everything except health and metrics "
     "gets 429; 0: no limit"},
    {"max-header", SET_SIZE, true, AT(max_header), "64KiB", 512, 1048576, "SIZE",
     "size of a request's header; every connection takes this much memory and 16 KiB more, at "
     "least 64 KiB"},
    {"header-timeout", SET_SECONDS, true, AT(header_timeout), "10", 0.1, 3600, "SECONDS",
     "time limit for the whole header to arrive"},
    {"body-timeout", SET_SECONDS, true, AT(body_timeout), "30", 0.1, 3600, "SECONDS",
     "longest pause in the arrival of a body"},
    {"min-body-rate", SET_SIZE, true, AT(min_body_rate), "1KiB", 0, ANY, "SIZE",
     "bytes per second at which a body must arrive (averaged over body-rate-window) and a reply "
     "must be read (averaged over idle-timeout)"},
    {"body-rate-window", SET_SECONDS, true, AT(body_rate_window), "30", 0.5, 3600, "SECONDS",
     "see min-body-rate"},
    {"max-ignored-body", SET_SIZE, true, AT(max_ignored_body), "64KiB", 0, ANY, "SIZE",
     "largest body that is accepted, and ignored, by a route that takes none"},
    {"max-unread-body", SET_SIZE, true, AT(max_unread_body), "64MiB", 0, ANY, "SIZE",
     "how much of a refused body is still read, so that its sender sees the reply"},
    {"unread-body-timeout", SET_SECONDS, true, AT(unread_body_timeout), "2", 0.1, 3600, "SECONDS",
     "time limit for reading a refused body, and for a client to close after its last reply"},
    {"idle-timeout", SET_SECONDS, true, AT(idle_timeout), "75", 0.1, 86400, "SECONDS",
     "time after which an idle connection is closed"},
    {"max-wait", SET_SECONDS, true, AT(max_wait), "0", 0, 1e9, "SECONDS",
     "longest time that a request waits for work on a device or for the end of a job; 0: no limit"},
    {"offload-body", SET_SIZE, false, AT(offload_body), "2KiB", 0, ANY, "SIZE",
     "larger bodies are handled by a worker thread"},
    {"drain-timeout", SET_SECONDS, false, AT(drain_timeout), "10", 0, 3600, "SECONDS",
     "how long open requests may take to finish after SIGTERM"},
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
    {"max_link_refs", LINK_REFS_MAX},
    {"max_empty_lists", JSON_EMPTY_MAX},
};

const size_t config_n_settings = sizeof config_settings / sizeof *config_settings;
static_assert(sizeof config_settings / sizeof *config_settings <= MOST_SETTINGS,
              "see config_int.h");

void config_clear_list(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
    *l = (struct config_list){0};
}

void config_free(struct config *c)
{
    for (size_t i = 0; i < config_n_settings; i++) {
        void *at = (char *)c + config_settings[i].offset;
        if (config_settings[i].kind == SET_TEXT)
            mem_free(*(char **)at);
        else if (config_settings[i].kind == SET_LIST)
            config_clear_list(at);
    }
    *c = (struct config){0};
}

void config_each_limit(const struct config *c,
                       void (*visit)(void *user, const char *name, double value), void *user)
{
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *s = &config_settings[i];
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

/* --- listings --- */

void config_help(struct strb *out)
{
    strb_add(
        out,
        "arrayd: arrays on a device, for many clients, over HTTP\n"
        "\n"
        "usage: arrayd [option]...\n"
        "       arrayd doctor [option]...\n"
        "       arrayd bench [option]...\n"
        "       arrayd upgrade [PID]\n"
        "       arrayd precompile FOLDER ARCHITECTURE...\n"
        "       arrayd token add|list|remove ...\n"
        "       arrayd account remove ...\n"
        "\n"
        "doctor checks whether the machine has what these options need; bench prints how fast it\n"
        "computes with them; upgrade replaces a running daemon by the installed program;\n"
        "precompile puts the kernels of the interpreter, for GPUs (sm_90), into a folder for\n"
        "--kernel-cache or --ready-kernels; token and account change the file given by --accounts: "
        "see 'arrayd token\n"
        "help'.\n"
        "Every option can also be a line 'name = value' in the file given by --config.\n"
        "\n");
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *s = &config_settings[i];
        strb_addf(out, "  --%s%s%s\n        %s", s->name, s->argument ? " " : "",
                  s->argument ? s->argument : "", s->help);
        if (s->initial && s->kind != SET_FLAG)
            strb_addf(out, " (default: %s)", s->initial);
        strb_addc(out, '\n');
    }
    strb_add(out, "  --help\n        print this text\n  --version\n        print the version\n");
}
