/* The peer of the HTTP benchmarks: libmicrohttpd with as little around it as can be, in the same
 * shape as the daemon uses it (one epoll thread; 128 KiB a connection, where the daemon takes 80).
 * Whatever the daemon costs beyond this is its own.
 *
 *     http_bare [PORT]        prints the port, runs until it is killed
 *
 * GET /hello · POST /echo (the body back) · PUT /sink (takes bytes, memcpy, replies with how many)
 * · GET /source?n=BYTES[&block=B] (blocks of B, at most and by default 1 MiB, memcpy from a buffer)
 * · POST /park?n=BYTES (takes a body, is suspended, resumed by another thread, and replies with n
 * bytes, at most 1 MiB: what a reply costs at the least whose value another thread delivers) */
#include <microhttpd.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (1u << 20)

struct body {
    size_t len, cap;
    char *data;
    bool parked;
    struct MHD_Connection *connection;
    struct body *next; /* parked before this one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct body *parked;

static char scratch[BLOCK], pattern[BLOCK];

static int64_t produce(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)cls, (void)pos;
    if (max > BLOCK)
        max = BLOCK;
    memcpy(buf, pattern, max);
    return (int64_t)max;
}

static void park(struct MHD_Connection *c, struct body *b)
{
    b->parked = true;
    b->connection = c;
    MHD_suspend_connection(c);
    pthread_mutex_lock(&lock);
    b->next = parked;
    parked = b;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void *resume_all(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!parked)
            pthread_cond_wait(&changed, &lock);
        struct body *b = parked;
        parked = NULL;
        pthread_mutex_unlock(&lock);
        for (struct body *next; b; b = next) {
            next = b->next; /* b may be gone once its connection goes on */
            MHD_resume_connection(b->connection);
        }
    }
    return unused;
}

static enum MHD_Result reply(struct MHD_Connection *c, const char *type, struct MHD_Response *r)
{
    MHD_add_response_header(r, "Content-Type", type);
    enum MHD_Result ok = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return ok;
}

static size_t argument(struct MHD_Connection *c, const char *name, size_t otherwise)
{
    const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *n, void **con)
{
    (void)cls, (void)version;
    struct body *b = *con;
    if (!b) {
        *con = calloc(1, sizeof *b);
        return *con ? MHD_YES : MHD_NO;
    }
    if (*n) {
        if (!strcmp(url, "/sink")) {
            for (size_t at = 0; at < *n; at += BLOCK) {
                size_t k = *n - at < BLOCK ? *n - at : BLOCK;
                memcpy(scratch, data + at, k);
            }
        } else {
            if (b->len + *n > b->cap) {
                b->cap = (b->len + *n) * 2;
                b->data = realloc(b->data, b->cap);
                if (!b->data)
                    return MHD_NO;
            }
            memcpy(b->data + b->len, data, *n);
        }
        b->len += *n;
        *n = 0;
        return MHD_YES;
    }
    if (!strcmp(url, "/sink")) {
        char text[32];
        int len = snprintf(text, sizeof text, "%zu", b->len);
        return reply(c, "application/json",
                     MHD_create_response_from_buffer((size_t)len, text, MHD_RESPMEM_MUST_COPY));
    }
    if (!strcmp(url, "/park") && !b->parked) {
        park(c, b);
        return MHD_YES;
    }
    if (!strcmp(url, "/park")) {
        size_t len = argument(c, "n", 0);
        return reply(c, "application/json",
                     MHD_create_response_from_buffer(len < BLOCK ? len : BLOCK, pattern,
                                                     MHD_RESPMEM_PERSISTENT));
    }
    if (!strcmp(url, "/source")) {
        size_t block = argument(c, "block", BLOCK);
        return reply(c, "application/octet-stream",
                     MHD_create_response_from_callback(
                         argument(c, "n", 0), block < BLOCK ? block : BLOCK, produce, NULL, NULL));
    }
    if (!strcmp(method, "POST") && b->len)
        return reply(c, "application/json",
                     MHD_create_response_from_buffer(b->len, b->data, MHD_RESPMEM_MUST_COPY));
    return reply(
        c, "application/json",
        MHD_create_response_from_buffer(15, (void *)"{\"status\":\"ok\"}", MHD_RESPMEM_PERSISTENT));
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con,
                         enum MHD_RequestTerminationCode why)
{
    (void)cls, (void)c, (void)why;
    struct body *b = *con;
    if (b)
        free(b->data);
    free(b);
    *con = NULL;
}

int main(int argc, char **argv)
{
    memset(pattern, 'x', sizeof pattern);
    pthread_t resumer;
    if (pthread_create(&resumer, NULL, resume_all, NULL))
        return 1;
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC,
        (uint16_t)(argc > 1 ? atoi(argv[1]) : 0), NULL, NULL, on_access, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(128 << 10), MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, NULL, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_END);
    if (!d)
        return 1;
    printf("%u\n", (unsigned)MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    for (;;)
        pause();
}
