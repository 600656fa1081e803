/* Principals, in a list that only grows, and their tokens.
 *
 * Every request compares with all tokens (accounts.c says why); there are at most a thousand, a few
 * in practice, and hashing the presented one costs more than comparing a dozen. Requests take a
 * read-write lock for reading; only a new accounts file takes it for writing.
 *
 * A principal's tables are created when it first appears: each costs a thread and a device stream,
 * and a file may list many principals who never use the daemon. */
#include "server/store/auth.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http.h"
#include "server/server.h"

#define REFUSED_NS 60000000000u /* between log lines about refused tokens */

struct auth {
    struct engine *engine;
    struct session_limits limits;
    _Atomic uint64_t refused, told_ns; /* tokens since the last line about them, and its time */
    struct principal *local;           /* NULL: accounts are configured */
    pthread_mutex_t changing; /* held while accounts are applied or one ends; taken first */
    pthread_mutex_t opening;  /* guards opening and closing a principal; taken before `lock` */
    _Atomic uint64_t edition; /* of the accounts: how often they were replaced */

    pthread_rwlock_t lock; /* all below */
    struct principal *list;
    struct token *tokens;     /* `user` is an index into users */
    struct principal **users; /* by number */
    size_t n_tokens;
    uint64_t last; /* principal's number */
};

/* --- principals --- */

/* With the lock held. */
static struct principal *find(struct auth *a, const char *name)
{
    lock_held_shared(&a->lock);
    struct principal *p = a->list;
    while (p && (atomic_load(&p->gone) || strcmp(p->name, name) != 0))
        p = p->next;
    return p;
}

/* An account_worked_fn. Of a principal that is gone work may still end. */
static void tell_month(void *user, const struct account_months *m)
{
    const struct principal *p = user;
    if (!atomic_load(&p->gone))
        p->observer.to->month(p->observer.to->user, p->name, m);
}

static struct principal *principal_new(const struct auth *a, const struct user *u)
{
    struct principal *p = mem_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->account = account_new(0);
    p->memory = meter_new(a->limits.memory, "the quota request_memory", 0, ERR_QUOTA);
    if (!p->account || !p->memory) {
        account_unref(p->account);
        meter_unref(p->memory);
        mem_free(p);
        return NULL;
    }
    memcpy(p->name, u->name, sizeof p->name);
    p->observer = (struct observer_of){a->limits.observer, p->name};
    if (a->limits.observer)
        account_observe(p->account, tell_month, p);
    return p;
}

static void principal_free(struct principal *p)
{
    account_observe(p->account, NULL, NULL);
    sessions_free(p->sessions);
    handles_free(p->handles);
    functions_free(p->functions);
    account_unref(p->account);
    meter_unref(p->memory);
    mem_free(p);
}

static uint32_t count_or(int64_t quota, uint32_t otherwise)
{
    return quota ? (uint32_t)quota : otherwise;
}

static int64_t memory_or(int64_t quota, int64_t otherwise)
{
    return quota ? quota : otherwise;
}

/* With the lock held for writing. */
static void set_bounds(struct auth *a, struct principal *p)
{
    lock_held_alone(&a->lock);
    handles_set_max(p->handles, count_or(p->quotas.arrays, a->limits.max_arrays));
    sessions_set_max(p->sessions, count_or(p->quotas.sessions, a->limits.max_sessions));
}

static void tell_changes(const struct auth *a, const struct principal *p, bool gone)
{
    const struct observer *o = a->limits.observer;
    if (o)
        o->settings(o->user, p->name, !gone && changes_any(&p->changes) ? &p->changes : NULL);
}

/* Sets what the file says, but for what is changed; with the lock held for writing. */
static void set_user(struct auth *a, struct principal *p, const struct user *file)
{
    lock_held_alone(&a->lock);
    struct user now = *file, *u = &now;
    p->file = *file;
    if (changes_apply(&p->changes, u))
        tell_changes(a, p, false);
    p->quotas = u->quotas;
    atomic_store(&p->role, u->role);
    atomic_store(&p->weight, u->weight);
    atomic_store(&p->max_requests, u->quotas.requests);
    atomic_store(&p->max_connections, u->quotas.connections);
    atomic_store(&p->max_body, u->quotas.body);
    account_set_limits(p->account, u->quotas.device_memory, u->quotas.host_memory);
    meter_set_limit(p->memory, memory_or(u->quotas.request_memory, a->limits.request_memory));
    if (atomic_load(&p->open))
        set_bounds(a, p);
}

static enum err_code open_tables(struct auth *a, struct principal *p, struct err *e)
{
    struct handles *handles = handles_new(a->limits.max_arrays);
    struct functions *functions = functions_new(a->limits.max_functions);
    struct sessions *sessions = NULL;
    enum err_code code = handles && functions ? ERR_OK : err_oom(e);
    if (code == ERR_OK) {
        handles_observe(handles, &p->observer);
        handles_limit_labels(handles, a->limits.attrs_memory);
        handles_keep_leased(handles, a->limits.leases);
        functions_observe(functions, &p->observer);
        code = sessions_new(a->engine, &a->limits, handles, p->account, &p->weight, &sessions, e);
    }
    if (code != ERR_OK) {
        handles_free(handles);
        functions_free(functions);
        return code;
    }
    pthread_rwlock_wrlock(&a->lock);
    p->handles = handles;
    p->functions = functions;
    p->sessions = sessions;
    set_bounds(a, p);
    atomic_store(&p->open, true);
    pthread_rwlock_unlock(&a->lock);
    return ERR_OK;
}

static enum err_code open_principal(struct auth *a, struct principal *p, struct err *e)
{
    if (atomic_load(&p->open))
        return ERR_OK;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&a->opening);
    if (atomic_load(&p->gone))
        code = err_set(e, ERR_NOT_FOUND, "the principal '%s' no longer exists", p->name);
    else if (!atomic_load(&p->open))
        code = open_tables(a, p, e);
    pthread_mutex_unlock(&a->opening);
    return code;
}

/* Of a removed principal: deletes everything it has, and nothing can be added any more. */
static void close_principal(struct auth *a, struct principal *p)
{
    pthread_mutex_lock(&a->opening);
    if (atomic_load(&p->open)) {
        sessions_close(p->sessions);
        functions_clear(p->functions);
        tell_changes(a, p, true);
        if (a->limits.observer)
            a->limits.observer->month(a->limits.observer->user, p->name, NULL);
    }
    pthread_mutex_unlock(&a->opening);
}

/* --- the accounts --- */

/* Creates principals for new accounts, chained in *ret_made. */
static bool make_principals(struct auth *a, const struct accounts *accounts,
                            struct principal **users, struct principal **ret_made)
{
    bool ok = true;
    pthread_rwlock_rdlock(&a->lock);
    for (size_t i = 0; ok && i < accounts->n_users; i++) {
        struct principal *p = find(a, accounts->users[i].name);
        if (!p) {
            p = principal_new(a, &accounts->users[i]);
            if (p) {
                p->next = *ret_made;
                *ret_made = p;
            }
        }
        users[i] = p;
        ok = p != NULL;
    }
    pthread_rwlock_unlock(&a->lock);
    return ok;
}

static void free_principals(struct principal *p)
{
    for (struct principal *next; p; p = next) {
        next = p->next;
        principal_free(p);
    }
}

static bool is_among(const struct principal *p, struct principal *const *users, size_t n)
{
    while (n && users[n - 1] != p)
        n--;
    return n > 0;
}

static enum err_code apply(struct auth *a, const struct accounts *accounts, struct err *e)
{
    lock_held(&a->changing);
    /* one more than needed, so that NULL always means no memory */
    struct principal **users = mem_calloc(accounts->n_users + 1, sizeof(struct principal *));
    struct principal *made = NULL;
    struct token *tokens = mem_calloc(accounts->n_tokens + 1, sizeof *tokens);
    if (!users || !tokens || !make_principals(a, accounts, users, &made)) {
        free_principals(made);
        mem_free(users);
        mem_free(tokens);
        return err_oom(e);
    }
    if (accounts->n_tokens)
        memcpy(tokens, accounts->tokens, accounts->n_tokens * sizeof *tokens);

    pthread_rwlock_wrlock(&a->lock);
    struct principal *before = a->list;
    for (struct principal *p = before; p; p = p->next)
        if (p != a->local && !is_among(p, users, accounts->n_users))
            atomic_store(&p->gone, true);
    while (made) {
        struct principal *p = made;
        made = p->next;
        p->next = a->list;
        p->number = ++a->last;
        a->list = p;
    }
    for (size_t i = 0; i < accounts->n_users; i++)
        set_user(a, users[i], &accounts->users[i]);
    struct token *old_tokens = a->tokens;
    struct principal **old_users = a->users;
    a->tokens = tokens;
    a->users = users;
    a->n_tokens = accounts->n_tokens;
    atomic_fetch_add(&a->edition, 1);
    pthread_rwlock_unlock(&a->lock);

    for (struct principal *p = before; p; p = p->next) /* no other thread changes the list */
        if (atomic_load(&p->gone))
            close_principal(a, p);
    mem_free(old_tokens);
    mem_free(old_users);
    return ERR_OK;
}

enum err_code auth_apply(struct auth *a, const struct accounts *accounts, struct err *e)
{
    pthread_mutex_lock(&a->changing);
    enum err_code code = apply(a, accounts, e);
    pthread_mutex_unlock(&a->changing);
    return code;
}

/* A request that had been let in before ends when it looks again (auth_lasts), and finds nothing
 * that is left until then. */
enum err_code auth_end(struct auth *a, struct principal *p, struct err *e)
{
    pthread_mutex_lock(&a->changing);
    pthread_rwlock_wrlock(&a->lock);
    const bool was = atomic_exchange(&p->gone, true);
    size_t n = 0;
    for (size_t i = 0; i < a->n_tokens; i++)
        if (a->users[a->tokens[i].user] != p)
            a->tokens[n++] = a->tokens[i];
    a->n_tokens = n;
    atomic_fetch_add(&a->edition, 1);
    pthread_rwlock_unlock(&a->lock);
    if (!was)
        close_principal(a, p);
    pthread_mutex_unlock(&a->changing);
    return was ? err_set(e, ERR_NOT_FOUND, "there is no principal '%.80s'", p->name) : ERR_OK;
}

static enum err_code make_local(struct auth *a, struct err *e)
{
    static const struct user local = {.name = LOCAL_USER, .role = ROLE_OPERATOR, .weight = 1};
    struct principal *p = principal_new(a, &local);
    if (!p)
        return err_oom(e);
    pthread_rwlock_wrlock(&a->lock);
    a->list = a->local = p;
    p->number = ++a->last;
    set_user(a, p, &local);
    pthread_rwlock_unlock(&a->lock);
    return open_principal(a, p, e);
}

enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       const struct accounts *accounts, struct auth **ret, struct err *e)
{
    struct auth *a = mem_calloc(1, sizeof *a);
    if (!a)
        return err_oom(e);
    a->engine = engine;
    a->limits = *limits;
    pthread_mutex_init(&a->changing, NULL);
    pthread_mutex_init(&a->opening, NULL);
    pthread_rwlock_init(&a->lock, NULL);
    enum err_code code = accounts ? auth_apply(a, accounts, e) : make_local(a, e);
    if (code != ERR_OK) {
        auth_free(a);
        return code;
    }
    *ret = a;
    return ERR_OK;
}

static void tell_rest(struct auth *a)
{
    char count[24];
    uint64_t n = atomic_load(&a->refused);
    snprintf(count, sizeof count, "%llu", (unsigned long long)n);
    if (n)
        log_event(LOG_INFO, "unknown tokens were refused", "count", count, NULL);
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    free_principals(a->list);
    tell_rest(a);
    mem_free(a->tokens);
    mem_free(a->users);
    pthread_rwlock_destroy(&a->lock);
    pthread_mutex_destroy(&a->opening);
    pthread_mutex_destroy(&a->changing);
    mem_free(a);
}

/* --- requests --- */

/* Logs a line at once, then one a minute at most, with the number since. */
static void note_refused(struct auth *a, const struct request *req)
{
    char count[24], address[HTTP_PEER_SIZE];
    uint64_t told = atomic_load(&a->told_ns), now = clock_ns();
    atomic_fetch_add(&a->refused, 1);
    if ((told && now - told < REFUSED_NS) ||
        !atomic_compare_exchange_strong(&a->told_ns, &told, now))
        return;
    snprintf(count, sizeof count, "%llu", (unsigned long long)atomic_exchange(&a->refused, 0));
    http_peer_name(req, address);
    log_event(LOG_INFO, "unknown tokens were refused", "count", count, "last_from", address, NULL);
}

/* The token of "Bearer TOKEN"; NULL: no such value. */
static const char *bearer(const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return NULL;
    value += 7;
    while (*value == ' ')
        value++;
    return value;
}

enum err_code auth_find_token(struct request *req, const char *token, struct principal **ret,
                              struct err *e)
{
    struct auth *a = req->server->auth;
    pthread_rwlock_rdlock(&a->lock);
    size_t i = token_find(a->tokens, a->n_tokens, token, strlen(token));
    struct principal *p = i < a->n_tokens ? a->users[a->tokens[i].user] : NULL;
    if (p) {
        memcpy(req->token, a->tokens[i].hash, sizeof req->token);
        atomic_store(&req->edition, atomic_load(&a->edition));
    }
    pthread_rwlock_unlock(&a->lock);
    if (!p) {
        note_refused(a, req);
        return auth_refuse(req, "no account has this token", e);
    }
    *ret = p;
    return ERR_OK;
}

static enum err_code find_bearer(struct request *req, struct principal **ret, struct err *e)
{
    const char *value = http_header(req, "Authorization"), *token = value ? bearer(value) : NULL;
    if (token)
        return auth_find_token(req, token, ret, e);
    http_add_header(req, "WWW-Authenticate", "Bearer realm=\"arrayd\"");
    return err_set(e, ERR_UNAUTHORIZED,
                   "this daemon has accounts: send the header Authorization: Bearer TOKEN");
}

/* Most requests end in the edition that accepted them. */
bool auth_lasts(struct request *req)
{
    struct auth *a = req->server->auth;
    const struct principal *p = req->principal;
    if (!p || p == a->local || atomic_load(&req->edition) == atomic_load(&a->edition))
        return true;
    pthread_rwlock_rdlock(&a->lock);
    bool lasts = req->by_link && !atomic_load(&p->gone);
    for (size_t i = 0; i < a->n_tokens && !lasts; i++)
        lasts = a->users[a->tokens[i].user] == p &&
                !memcmp(a->tokens[i].hash, req->token, sizeof req->token);
    if (lasts)
        atomic_store(&req->edition, atomic_load(&a->edition));
    pthread_rwlock_unlock(&a->lock);
    return lasts;
}

static enum err_code enter(struct request *req, struct principal *p, const char *refused,
                           struct err *e)
{
    enum err_code code = open_principal(req->server->auth, p, e);
    if (code != ERR_OK)
        return code == ERR_NOT_FOUND ? auth_refuse(req, refused, e) : code;
    TRY(auth_count(req, &p->requests, atomic_load(&p->max_requests), "requests are in flight",
                   "requests", e));
    req->principal = p;
    atomic_store_explicit(&p->used_us, clock_date_us(), memory_order_relaxed);
    return ERR_OK;
}

enum err_code auth_identify(struct request *req, struct err *e)
{
    struct principal *p = req->server->auth->local;
    if (!p)
        TRY(find_bearer(req, &p, e));
    return enter(req, p, "no account has this token", e);
}

enum err_code auth_identify_as(struct request *req, struct principal *p, const uint8_t *token,
                               struct err *e)
{
    req->principal = p;
    req->by_link = !token;
    if (token)
        memcpy(req->token, token, sizeof req->token);
    const bool lasts = auth_lasts(req);
    req->principal = NULL;
    return lasts ? enter(req, p, "the login is over", e)
                 : err_set(e, ERR_UNAUTHORIZED, "the login is over");
}

bool auth_asks(const struct auth *a)
{
    return !a->local;
}

/* --- for other modules --- */

struct principal *auth_find(struct auth *a, const char *name)
{
    pthread_rwlock_rdlock(&a->lock);
    struct principal *p = find(a, name);
    pthread_rwlock_unlock(&a->lock);
    return p;
}

/* The list is in reverse order. */
struct principal *auth_next(struct auth *a, uint64_t after)
{
    struct principal *next = NULL;
    pthread_rwlock_rdlock(&a->lock);
    for (struct principal *p = a->list; p && p->number > after; p = p->next)
        if (!atomic_load(&p->gone))
            next = p;
    pthread_rwlock_unlock(&a->lock);
    return next;
}

enum err_code auth_open(struct auth *a, const char *name, struct principal **ret, struct err *e)
{
    struct principal *p = auth_find(a, name);
    if (!p)
        return err_set(e, ERR_NOT_FOUND, "there is no principal '%.80s'", name);
    enum err_code code = open_principal(a, p, e);
    if (code == ERR_OK)
        *ret = p;
    return code;
}

enum err_code auth_check_left(struct auth *a, const char *name, struct err *e)
{
    pthread_rwlock_rdlock(&a->lock);
    const bool local = a->local, none = !a->list;
    pthread_rwlock_unlock(&a->lock);
    return accounts_check_left(!local, !none, name, e);
}

void auth_quotas(struct auth *a, struct principal *p, struct quotas *ret_may,
                 struct quotas *ret_has)
{
    pthread_rwlock_rdlock(&a->lock);
    *ret_may = p->quotas;
    pthread_rwlock_unlock(&a->lock);
    ret_may->arrays = count_or(ret_may->arrays, a->limits.max_arrays);
    ret_may->sessions = count_or(ret_may->sessions, a->limits.max_sessions);
    ret_may->request_memory = memory_or(ret_may->request_memory, a->limits.request_memory);
    *ret_has = (struct quotas){.device_memory = account_used(p->account),
                               .host_memory = account_host_used(p->account),
                               .request_memory = meter_used(p->memory),
                               .requests = atomic_load(&p->requests),
                               .connections = atomic_load(&p->connections)};
    if (atomic_load(&p->open)) {
        const int64_t sessions = sessions_count(p->sessions); /* 0 once it is gone */
        ret_has->arrays = handles_count(p->handles);
        ret_has->sessions = sessions ? sessions - 1 : 0;
    }
}

enum err_code auth_change(struct auth *a, struct principal *p, const struct setting_wishes *w,
                          struct err *e)
{
    TRY(observer_check_space(a->limits.observer, p->name, OBSERVER_RECORD, e));
    pthread_rwlock_wrlock(&a->lock);
    const bool gone = atomic_load(&p->gone);
    const struct user file = p->file;
    for (size_t i = 0; i < SETTINGS && !gone; i++)
        if (w->given[i])
            p->changes.of[i] =
                (struct setting_change){w->of[i].set, w->of[i].value, user_setting(&file, i)};
    if (!gone) {
        tell_changes(a, p, false);
        set_user(a, p, &file);
    }
    pthread_rwlock_unlock(&a->lock);
    return gone ? err_set(e, ERR_NOT_FOUND, "there is no principal '%.80s'", p->name) : ERR_OK;
}

void auth_restore_changes(struct auth *a, struct principal *p, const struct setting_changes *c)
{
    pthread_rwlock_wrlock(&a->lock);
    const struct user file = p->file;
    p->changes = *c;
    tell_changes(a, p, false);
    set_user(a, p, &file);
    pthread_rwlock_unlock(&a->lock);
}

void auth_changes(struct auth *a, const struct principal *p, struct user *ret_file,
                  struct setting_changes *ret)
{
    pthread_rwlock_rdlock(&a->lock);
    *ret_file = p->file;
    *ret = p->changes;
    pthread_rwlock_unlock(&a->lock);
}

static void restored(void *user, struct principal *p)
{
    (void)user;
    handles_drop_coordinates(p->handles);
}

void auth_restored(struct auth *a)
{
    auth_each(a, restored, NULL);
}

void auth_each(struct auth *a, void (*visit)(void *user, struct principal *p), void *user)
{
    pthread_rwlock_rdlock(&a->lock);
    for (struct principal *p = a->list; p; p = p->next)
        if (atomic_load(&p->open) && !atomic_load(&p->gone))
            visit(user, p);
    pthread_rwlock_unlock(&a->lock);
}
