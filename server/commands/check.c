/* An address that is taken is free for the new daemon if one of the sockets that the keeper holds
 * listens there: it is handed over, or closed. Sockets are compared by their ports and paths, since
 * one address may have several names. */
#include "server/commands/check.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/commands/device.h"
#include "server/config/config.h"
#include "server/http/http.h"
#include "server/journal/journal.h"
#include "server/keeper/keeper.h"
#include "server/kept/journal_writer.h"
#include "server/kept/recover.h"
#include "server/store/accounts.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
};

static bool listens_at(int fd, const char *text)
{
    union address a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, &a.any, &len) != 0)
        return false;
    if (a.any.sa_family == AF_UNIX)
        return !strncmp(text, "unix:", 5) && !strcmp(a.local.sun_path, text + 5);
    const char *port = strncmp(text, "unix:", 5) != 0 ? strrchr(text, ':') : NULL;
    return port &&
           atoi(port + 1) == ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static bool is_held(const char *text)
{
    const char *sockets = getenv(KEEPER_SOCKETS_ENV);
    for (char *end; sockets && *sockets; sockets = end) {
        const int fd = (int)strtol(sockets, &end, 10);
        if (end == sockets)
            break;
        if (listens_at(fd, text))
            return true;
    }
    return false;
}

static enum err_code check_address(const struct config *c, const char *text, bool admin,
                                   struct err *e)
{
    struct http_config hc = {.listen = &text,
                             .n_listen = !admin,
                             .admin_listen = &text,
                             .n_admin_listen = admin,
                             .accounts = c->accounts != NULL,
                             .tls_cert = c->tls_cert,
                             .tls_key = c->tls_key,
                             .unix_mode = (int)c->unix_mode};
    struct err why = ERR_INIT;
    enum err_code code = http_try_listen(&hc, &why);
    if (code == ERR_OK || (http_is_taken(&why) && is_held(text)))
        return ERR_OK;
    *e = why;
    return code;
}

static enum err_code check_addresses(const struct config *c, struct err *e)
{
    for (size_t i = 0; i < c->listen.n; i++)
        TRY(check_address(c, c->listen.items[i], false, e));
    for (size_t i = 0; i < c->admin_listen.n; i++)
        TRY(check_address(c, c->admin_listen.items[i], true, e));
    return ERR_OK;
}

/* A folder that is there, or can be made in the one above it. */
static enum err_code check_folder(const char *option, const char *path, struct err *e)
{
    struct stat st;
    int why = 0;
    if (stat(path, &st) == 0) {
        why = !S_ISDIR(st.st_mode) ? ENOTDIR : access(path, R_OK | W_OK | X_OK) != 0 ? errno : 0;
    } else if (errno != ENOENT) {
        why = errno;
    } else {
        _cleanup_free_ char *above = mem_strdup(path);
        if (!above)
            return err_oom(e);
        size_t n = strlen(above);
        while (n > 1 && above[n - 1] == '/')
            above[--n] = '\0';
        char *slash = strrchr(above, '/');
        if (slash)
            slash[slash == above] = '\0';
        why = access(slash ? above : ".", W_OK | X_OK) != 0 ? errno : 0;
    }
    return why ? err_set(e, ERR_BAD_FIELD, "%s: %s: %s", option, path, strerror(why)) : ERR_OK;
}

struct owners {
    bool configured, any;
    enum err_code code;
    struct err *e;
};

static void check_owner(void *user, const struct record_item *x)
{
    struct owners *o = user;
    char name[PRINCIPAL_SIZE];
    recover_principal(x, name);
    if (*name && o->code == ERR_OK)
        o->code = accounts_check_left(o->configured, o->any, name, o->e);
}

static enum err_code check_journal(const struct config *c, bool any, int fd, struct err *e)
{
    struct journal *j;
    struct owners o = {.configured = c->accounts, .any = any, .e = e};
    if (fd < 0)
        return ERR_OK;
    TRY(journal_check(fd, e));
    if (any || !c->keep_arrays)
        return ERR_OK;
    TRY(journal_read(dup(fd), &j, NULL, e));
    journal_each(j, RECORD_SESSION, check_owner, &o);
    journal_close(j);
    return o.code;
}

/* Keeps the first thing without which there is no GPU, or no mesh. */
struct lack {
    enum err_code code;
    struct err *e;
};

static void note_lack(void *user, enum finding level, const char *what, const char *text,
                      const char *advice)
{
    struct lack *l = user;
    (void)advice;
    if (level == FINDING_FAIL && l->code == ERR_OK)
        l->code = err_set(l->e, ERR_BAD_FIELD, "%s: %s", what, text);
}

/* Without GPUs the backend auto does, unless they are to be a mesh. */
static enum err_code check_devices(const struct config *c, struct err *e)
{
    struct lack l = {ERR_OK, e};
    int device;
    TRY(device_default(c, NULL, &device, e));
    if (!strcmp(c->backend, "cuda") || (c->mesh && strcmp(c->backend, "cpu") != 0))
        backend_diagnose(c->mesh, note_lack, &l);
    return l.code;
}

enum err_code check_start(const struct config *c, int journal, struct err *e)
{
    struct accounts accounts = {0};
    log_set_level(LOG_ERROR);
    if (c->accounts)
        TRY(accounts_read(c->accounts, &accounts, e));
    const bool any = accounts.n_users > 0;
    accounts_free(&accounts);
    TRY(check_journal(c, any, journal, e));
    TRY(check_addresses(c, e));
    TRY(check_devices(c, e));
    return c->state_dir ? check_folder("state-dir", c->state_dir, e) : ERR_OK;
}
