/*
 * Exports: an array's memory in this process, without a copy.
 *
 * The daemon leases the memory and replies with a token; the token goes to its descriptor socket,
 * which hands a file descriptor over in exchange. The lease lasts as long as that connection:
 * arrayd_export_end shuts it down and waits until the daemon has closed it, because then other
 * clients see what was written.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/c/src/dtype.h"
#include "clients/c/src/error.h"
#include "clients/c/src/exchange.h"
#include "clients/c/src/json.h"
#include "clients/c/src/members.h"

#define WAIT_MS    30000 /* for the daemon to hand a descriptor over, or to end an export */
#define LINE_BYTES 4096

/* What is asked for, and how to get it. */
struct ticket {
    char token[ARRAYD_MAX_NAME + 2]; /* and a line feed */
    char socket[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    bool on_host;
};

static bool read_reply(const struct cJSON *tree, struct ticket *ticket, struct arrayd_export *ret)
{
    const char *kind = json_string(tree, "kind");
    size_t rank = json_count(json_get(tree, "shape"));
    int64_t device;
    if (!kind || rank > ARRAYD_MAX_RANK || !json_i64(tree, "device", &device) || device < 0 ||
        device > INT32_MAX)
        return false;
    ticket->on_host = !strcmp(kind, "memfd");
    ret->rank = (int)rank;
    ret->device = (int)device;
    ret->dtype = dtype_named(json_string(tree, "dtype"));
    return ret->dtype && (ticket->on_host || !strcmp(kind, "cuda")) &&
           members_copy(tree, "token", ticket->token, ARRAYD_MAX_NAME + 1) && ticket->token[0] &&
           members_copy(tree, "socket", ticket->socket, sizeof(ticket->socket)) &&
           members_copy(tree, "lease", ret->lease, sizeof(ret->lease)) &&
           members_copy(tree, "uuid", ret->uuid, sizeof(ret->uuid)) &&
           members_integers(tree, "shape", ret->rank, ret->shape) &&
           members_integers(tree, "strides", ret->rank, ret->strides) &&
           json_i64(tree, "offset", &ret->offset) && ret->offset >= 0;
}

static int ask(struct arrayd *client, const char *ref, bool write, struct ticket *ticket,
               struct arrayd_export *ret, struct arrayd_error *err)
{
    struct exchange x = {.method = "POST"};
    struct cJSON *tree;
    exchange_path(&x, "/v1/arrays", ref, "/export");
    text_puts(&x.json, write ? "{\"mode\":\"write\"}" : "{\"mode\":\"read\"}");
    if (exchange_json(client, &x, &tree, err))
        return -1;
    bool ok = read_reply(tree, ticket, ret);
    json_free(tree);
    return ok ? 0 : error_set(err, "bad_result", "the reply does not describe an export");
}

static int lost(const struct ticket *ticket, struct arrayd_error *err)
{
    bool late = errno == EAGAIN || errno == EWOULDBLOCK;
    return error_set(err, late ? "timeout" : "connection", "%s: %s", ticket->socket,
                     errno ? strerror(errno) : "the daemon closed the connection");
}

static int dial(const struct arrayd *client, const struct ticket *ticket, int *ret_connection,
                struct arrayd_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    long wait_ms = client->timeout_ms ? client->timeout_ms : WAIT_MS;
    struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    memcpy(address.sun_path, ticket->socket, sizeof(address.sun_path));
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return lost(ticket, err);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (connect(connection, (struct sockaddr *)&address, sizeof(address))) {
        lost(ticket, err);
        close(connection);
        return -1;
    }
    *ret_connection = connection;
    return 0;
}

/* Receives some bytes, and the descriptor that comes with the first of them. */
static ssize_t receive(int connection, char *into, size_t size, int *fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = into, .iov_len = size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t count;
    do
        count = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return count;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && *fd < 0)
        memcpy(fd, CMSG_DATA(head), sizeof(*fd));
    return count;
}

/* The daemon's line in exchange for the token, and a descriptor; without one it is an error. */
static int exchange_token(struct ticket *ticket, struct arrayd_export *e, struct arrayd_error *err)
{
    char line[LINE_BYTES];
    size_t length = 0;
    ssize_t count;
    strcat(ticket->token, "\n");
    /* where it fails the daemon has said why */
    (void)!send(e->connection, ticket->token, strlen(ticket->token), MSG_NOSIGNAL);
    do {
        errno = 0;
        count = receive(e->connection, line + length, sizeof(line) - length, &e->fd);
        if (count <= 0)
            return lost(ticket, err);
        length += (size_t)count;
    } while (line[length - 1] != '\n' && length < sizeof(line));
    struct cJSON *tree = json_read(line, length);
    int64_t size = 0;
    bool ok = e->fd >= 0 && json_i64(tree, "size", &size) && size > 0;
    e->size = (size_t)size;
    if (!ok && json_string(tree, "code")) {
        if (err)
            error_from_problem(err, tree);
    } else if (!ok) {
        error_set(err, "bad_result", "%s: the reply is not an export's", ticket->socket);
    }
    json_free(tree);
    return ok ? 0 : -1;
}

static int map(struct arrayd_export *e, struct arrayd_error *err)
{
    int protection = e->write ? PROT_READ | PROT_WRITE : PROT_READ;
    void *mapping = mmap(NULL, e->size, protection, MAP_SHARED, e->fd, 0);
    if (mapping == MAP_FAILED)
        return error_set(err, errno == ENOMEM ? "out_of_memory" : "bad_result",
                         "the memory cannot be mapped: %s", strerror(errno));
    close(e->fd);
    e->fd = -1;
    e->mapping = mapping;
    e->data = (char *)mapping + (size_t)e->offset * arrayd_itemsize(e->dtype);
    return 0;
}

static void let_go(struct arrayd_export *e)
{
    if (e->mapping)
        munmap(e->mapping, e->size);
    if (e->fd >= 0)
        close(e->fd);
    if (e->connection >= 0)
        close(e->connection);
    *e = (struct arrayd_export){.fd = -1, .connection = -1};
}

int arrayd_export_begin(struct arrayd *client, const char *ref, bool write,
                        struct arrayd_export *ret_export, struct arrayd_error *err)
{
    struct arrayd_export e = {.fd = -1, .connection = -1, .write = write};
    struct ticket ticket = {0};
    if (ask(client, ref, write, &ticket, &e, err))
        return -1;
    if (dial(client, &ticket, &e.connection, err) || exchange_token(&ticket, &e, err) ||
        (ticket.on_host && map(&e, err))) {
        let_go(&e); /* the daemon sees the connection end, and the lease with it */
        return -1;
    }
    *ret_export = e;
    return 0;
}

/* Whether the daemon has closed its side. What it has sent before only says that it will. */
static bool has_ended(int connection, int flags)
{
    char told[LINE_BYTES];
    ssize_t count;
    do
        count = recv(connection, told, sizeof(told), flags);
    while (count > 0 || (count < 0 && errno == EINTR));
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

int arrayd_export_end(struct arrayd_export *e, struct arrayd_error *err)
{
    if (!e || e->connection < 0)
        return 0;
    bool early = has_ended(e->connection, MSG_DONTWAIT), write = e->write;
    if (e->mapping)
        munmap(e->mapping, e->size);
    e->mapping = NULL;
    shutdown(e->connection, SHUT_WR);
    bool ended = has_ended(e->connection, 0);
    let_go(e);
    if (early && write)
        return error_set(err, "connection",
                         "the daemon ended the export before: what was written may be lost");
    return ended ? 0 : error_set(err, "timeout", "the daemon did not end the export in time");
}
