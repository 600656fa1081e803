/* Defaults that depend on the machine: how many workers there are; a fixed share of its memory for
 * arrays in host memory, and one for work. No user gets more than half of the work memory, and no
 * request all of its user's, so that a request too large by itself is told so. */
#include <sched.h>

#include "compute/base/mem.h"
#include "server/config/config.h"

/* The bounds, unless the machine is small: */
#define USER_WORK    (320 << 20)
#define REQUEST_WORK (256 << 20)

/* One worker is kept free of long work, and the HTTP threads and the backend's need cores, too. */
#define LEAST_WORKERS 2
#define MOST_WORKERS  8

/* Descriptors: of the reserve of connections (http_impl.h) and what has no limit of its own; and of
 * each address of admin-listen. */
#define OTHER_FILES         (64 + 96)
#define ADMIN_FILES         INT64_C(128)
#define FILES_OF_CONNECTION 2 /* a body that is a file is in another */
#define LEAST_CONNECTIONS   8

static void fill(int64_t *value, int64_t most, int64_t of_it)
{
    if (!*value)
        *value = of_it < most ? of_it : most;
}

static int64_t default_workers(void)
{
    cpu_set_t set;
    const int64_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) / 2 : 0;
    return n < LEAST_WORKERS ? LEAST_WORKERS : n > MOST_WORKERS ? MOST_WORKERS : n;
}

void config_fill(struct config *c)
{
    fill(&c->workers, INT64_MAX, default_workers());
    fill(&c->file_threads, MOST_WORKERS, c->workers);
    fill(&c->host_memory, INT64_MAX, mem_machine() / 2);
    fill(&c->total_request_memory, INT64_MAX, mem_machine() / 4);
    fill(&c->request_memory, USER_WORK, c->total_request_memory / 2);
    fill(&c->max_request_memory, REQUEST_WORK, c->request_memory / 5 * 4);
}

static int64_t other_files(const struct config *c, int64_t descriptors)
{
    const int64_t fourth = descriptors / 4; /* the most that exports take (export_socket.c) */
    const int64_t exports = c->max_export_connections < fourth ? c->max_export_connections : fourth;
    return OTHER_FILES + ADMIN_FILES * (int64_t)c->admin_listen.n + (c->allow_export ? exports : 0);
}

int64_t config_files(const struct config *c, int64_t descriptors)
{
    return c->max_connections * FILES_OF_CONNECTION + other_files(c, descriptors);
}

bool config_fit(struct config *c, int64_t descriptors)
{
    const int64_t fit = (descriptors - other_files(c, descriptors)) / FILES_OF_CONNECTION;
    const int64_t most = fit > LEAST_CONNECTIONS ? fit : LEAST_CONNECTIONS;
    if (c->max_connections <= most)
        return false;
    c->max_connections = most;
    return true;
}
