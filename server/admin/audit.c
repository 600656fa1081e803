/* A ring of entries, numbered and stored with the lock held. The file is written by a thread of its
 * own, in the order of the numbers and without the lock: entries come from the listener's threads,
 * which must not wait for a disk. What has left the ring before it was written, and what could not
 * be written, is counted, and the count is an entry once a line has been written again.
 *
 * Refusals are counted and told once a minute, since anybody could fill ring and disk with them;
 * what is left of the count is told when the minute is over, or at the end. So is what
 * each user does to logins and links, beyond some of each kind: cheap entries do not hide others.
 */
#include "server/admin/audit.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "compute/base/arena.h"
#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/table.h"
#include "compute/base/worker.h"
#include "protocol/json/json.h"
#include "server/admin/audit_file.h"
#include "server/config/config.h"
#include "server/store/auth.h"

#define REFUSED_S   60.0 /* between entries about refusals */
#define REFUSALS    3
#define QUEUE_LEAST 1024 /* entries that may wait for the disk, even if fewer are shown */

struct refusals {
    uint64_t n;            /* since the last entry about them, and */
    double told_s;         /* its time (clock_s); 0: there was none */
    struct audit_entry at; /* the last one */
};

static const char *const accesses[] = {
    [ACCESS_LOGIN] = "login",         [ACCESS_LOGOUT] = "logout",
    [ACCESS_END_LOGIN] = "end_login", [ACCESS_END_LOGINS] = "end_logins",
    [ACCESS_MAKE_LINK] = "make_link", [ACCESS_OPEN_LINK] = "open_link",
    [ACCESS_END_LINK] = "end_link",
};
#define ACCESSES (sizeof accesses / sizeof *accesses)

/* What a user does of one kind to logins and links, in a minute: when that is over it is freed, so
 * that they are few. */
struct often {
    uint64_t key;   /* user, kind, whether it was refused */
    double since_s; /* when the minute began */
    uint64_t n;     /* in it */
    struct refusals rest;
    UT_hash_handle hh;
};

struct audit {
    pthread_mutex_t lock; /* all below but the file, which is the worker's */
    struct worker worker;
    struct audit_entry *ring;
    size_t size, shown; /* of the ring; of these the last ones are listed */
    uint64_t last;      /* number */
    uint64_t written;   /* number of the last one that was taken to be written */
    uint64_t lost;      /* lines that the file does not have, and no entry has told of yet */
    bool works;         /* the last line was written */
    struct refusals refused[REFUSALS];
    struct often *often;     /* by key */
    struct audit_file *file; /* NULL: none */
    struct arena *past;      /* has what entries of earlier processes point to */
};

static worker_step look_after;

/* --- what an earlier process wrote --- */

#define LINE_MOST 2048 /* bytes: all of an entry may be escapes */

static enum err_code read_text(struct json v, const char *name, char *ret, size_t size,
                               struct err *e)
{
    const struct json x = json_member(v, name);
    const char *text;
    *ret = '\0';
    if (!json_given(x))
        return ERR_OK;
    TRY(json_get_string(x, &text, NULL, e));
    snprintf(ret, size, "%s", text);
    return ERR_OK;
}

static enum err_code read_constant(struct audit *a, struct json v, const char *name,
                                   const char **ret, struct err *e)
{
    struct json x;
    const char *text;
    size_t n;
    TRY(json_require(v, name, &x, e));
    TRY(json_get_string(x, &text, &n, e));
    *ret = arena_strndup(a->past, text, n);
    return *ret ? ERR_OK : err_oom(e);
}

static enum err_code read_time(struct json v, int64_t *ret, struct err *e)
{
    struct json x;
    struct tm tm = {0};
    const char *text;
    int ms = 0;
    TRY(json_require(v, "at", &x, e));
    TRY(json_get_string(x, &text, NULL, e));
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest || sscanf(rest, ".%3dZ", &ms) != 1)
        return json_err(x, e, ERR_BAD_FIELD, "this is not a time");
    *ret = (int64_t)timegm(&tm) * 1000000 + ms * 1000;
    return ERR_OK;
}

static enum err_code read_number(struct json v, const char *name, uint64_t *ret, struct err *e)
{
    struct json x;
    int64_t n;
    TRY(json_require(v, name, &x, e));
    TRY(json_get_i64(x, 1, (int64_t)1 << 53, &n, e));
    *ret = (uint64_t)n;
    return ERR_OK;
}

static enum err_code read_entry(struct audit *a, struct arena *arena, const char *line, size_t n,
                                struct audit_entry *ret, struct err *e)
{
    struct json v;
    *ret = (struct audit_entry){0};
    TRY(json_parse(arena, line, n, NULL, &v, e));
    TRY(read_number(v, "number", &ret->number, e));
    TRY(read_time(v, &ret->at_us, e));
    TRY(read_text(v, "who", ret->who, sizeof ret->who, e));
    TRY(read_text(v, "from", ret->from, sizeof ret->from, e));
    TRY(read_text(v, "target", ret->target, sizeof ret->target, e));
    TRY(read_number(v, "count", &ret->count, e));
    TRY(read_constant(a, v, "action", &ret->action, e));
    return read_constant(a, v, "result", &ret->result, e);
}

/* Takes the lines of one file, the last first. *ret_all: also of older files, unless there are
 * enough, or the rest is of a numbering that has ended. */
static enum err_code take_lines(struct audit *a, const char *text, size_t n, uint64_t *next,
                                bool *ret_all, struct err *e)
{
    *ret_all = false;
    while (n) {
        const char *before = n > 1 ? memrchr(text, '\n', n - 1) : NULL;
        const size_t at = before ? (size_t)(before + 1 - text) : 0;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct audit_entry x;
        const enum err_code code =
            arena ? read_entry(a, arena, text + at, n - at - 1, &x, e) : err_oom(e);
        if (code == ERR_OUT_OF_MEMORY)
            return code;
        n = at;
        if (code != ERR_OK) {
            *e = (struct err)ERR_INIT; /* such a line is passed over */
            continue;
        }
        if (!*next)
            a->last = a->written = x.number;
        else if (x.number >= *next)
            return ERR_OK;
        if (a->last - x.number >= a->shown)
            return ERR_OK;
        a->ring[(x.number - 1) % a->size] = x;
        *next = x.number;
    }
    *ret_all = true;
    return ERR_OK;
}

/* The last entries of the file, and of those that it was before, if it has fewer than are shown.
 * What cannot be read is not shown; the numbers go on behind what can. */
static enum err_code read_back(struct audit *a, int64_t files, struct err *e)
{
    uint64_t next = 0; /* the number of the entry that follows; 0: none has been read */
    a->past = arena_new(0);
    if (!a->past)
        return err_oom(e);
    bool all = true;
    for (int64_t i = 0; i <= files && all; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const uint64_t left = next ? a->shown - (a->last - next) : a->shown;
        const char *text = NULL;
        if (!arena)
            return err_oom(e);
        const size_t n = audit_file_tail(a->file, i, (size_t)left * LINE_MOST, arena, &text);
        if (!n && i)
            break;
        TRY(take_lines(a, text, n, &next, &all, e));
    }
    return ERR_OK;
}

enum err_code audit_new(const struct config *config, struct audit **ret, struct err *e)
{
    struct audit *a = mem_calloc(1, sizeof *a);
    if (!a)
        return err_oom(e);
    pthread_mutex_init(&a->lock, NULL);
    a->worker =
        (struct worker){.name = "arrayd-audit", .lock = &a->lock, .step = look_after, .user = a};
    worker_init(&a->worker);
    a->shown = (size_t)config->audit_entries;
    a->size = config->audit_log && a->shown < QUEUE_LEAST ? QUEUE_LEAST : a->shown;
    a->ring = mem_calloc(a->size, sizeof *a->ring);
    enum err_code code = a->ring ? ERR_OK : err_oom(e);
    if (code == ERR_OK && config->audit_log)
        code = audit_file_open(config->audit_log, config->audit_log_size, config->audit_log_files,
                               &a->file, e);
    if (code == ERR_OK && a->file)
        code = read_back(a, config->audit_log_files, e);
    if (code == ERR_OK && !worker_start(&a->worker))
        code = err_set(e, ERR_OUT_OF_MEMORY, "cannot start a thread");
    if (code != ERR_OK) {
        audit_free(a);
        return code;
    }
    *ret = a;
    return ERR_OK;
}

static void add(struct audit *a, const struct audit_entry *x)
{
    lock_held(&a->lock);
    struct audit_entry *to = &a->ring[a->last % a->size];
    *to = *x;
    to->number = ++a->last;
    worker_wake(&a->worker);
}

static void describe(struct audit_entry *x, const struct request *req)
{
    x->at_us = clock_date_us();
    if (!req)
        return;
    http_peer_name(req, x->from);
    if (req->principal)
        memcpy(x->who, req->principal->name, sizeof x->who);
}

void audit_did(struct audit *a, const struct request *req, const char *action, enum err_code result,
               const char *target, ...)
{
    struct audit_entry x = {.action = action, .result = err_name(result), .count = 1};
    va_list args;
    if (!a)
        return;
    va_start(args, target);
    vsnprintf(x.target, sizeof x.target, target, args);
    va_end(args);
    describe(&x, req);
    pthread_mutex_lock(&a->lock);
    add(a, &x);
    pthread_mutex_unlock(&a->lock);
}

static void tell(struct audit *a, struct refusals *r)
{
    lock_held(&a->lock);
    if (!r->n)
        return;
    r->at.count = r->n;
    r->told_s = clock_s();
    r->n = 0;
    add(a, &r->at);
}

void audit_refused(struct audit *a, const struct request *req, enum audit_refusal which,
                   enum err_code result)
{
    static const char *const actions[] = {
        [AUDIT_LOGIN] = "login", [AUDIT_LINK] = "open_link", [AUDIT_FORBIDDEN] = "forbidden"};
    struct audit_entry x = {.action = actions[which], .result = err_name(result)};
    if (!a)
        return;
    describe(&x, req);
    if (which == AUDIT_FORBIDDEN)
        snprintf(x.target, sizeof x.target, "%s %s", req->route->method, req->route->label);
    struct refusals *r = &a->refused[which];
    pthread_mutex_lock(&a->lock);
    r->at = x;
    r->n++;
    if (r->told_s == 0 || clock_s() - r->told_s >= REFUSED_S)
        tell(a, r);
    else if (r->n == 1)
        worker_wake(&a->worker); /* it waits for the minute's end */
    pthread_mutex_unlock(&a->lock);
}

/* The present minute's; NULL: no memory. */
static struct often *often(struct audit *a, uint64_t key)
{
    lock_held(&a->lock);
    struct often *o;
    HASH_FIND(hh, a->often, &key, sizeof key, o);
    if (o && clock_s() - o->since_s >= REFUSED_S) {
        tell(a, &o->rest);
        o->since_s = clock_s();
        o->n = 0;
    }
    if (o)
        return o;
    o = mem_calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->key = key;
    o->since_s = clock_s();
    HASH_ADD(hh, a->often, key, sizeof key, o);
    if (!o->hh.tbl) {
        mem_free(o);
        return NULL;
    }
    return o;
}

void audit_access(struct audit *a, const struct request *req, const struct principal *whose,
                  const struct principal *who, enum audit_access action, enum err_code result,
                  const char *target, ...)
{
    struct audit_entry x = {.action = accesses[action], .result = err_name(result), .count = 1};
    va_list args;
    if (!a)
        return;
    va_start(args, target);
    vsnprintf(x.target, sizeof x.target, target, args);
    va_end(args);
    describe(&x, req);
    memcpy(x.who, who ? who->name : "", who ? sizeof x.who : 1);
    pthread_mutex_lock(&a->lock);
    struct often *o = often(a, (whose->number * ACCESSES + action) * 2 + (result != ERR_OK));
    if (!o || o->n++ < AUDIT_OFTEN) {
        add(a, &x);
    } else {
        o->rest.at = x;
        if (o->rest.n++ == 0)
            worker_wake(&a->worker);
    }
    pthread_mutex_unlock(&a->lock);
}

/* Tells of those whose minute has begun then and is over, or (`all`) of any; the seconds until then
 * are in *next if that is sooner. */
static void tell_if_due(struct audit *a, struct refusals *r, double since_s, bool all, double *next)
{
    const double left = since_s + REFUSED_S - clock_s();
    if (all || left <= 0)
        tell(a, r);
    else if (r->n && (*next < 0 || left < *next))
        *next = left;
}

/* Returns the seconds until the next. */
static double tell_due(struct audit *a, bool all)
{
    lock_held(&a->lock);
    double next = WORKER_RESTS;
    for (size_t i = 0; i < REFUSALS; i++)
        tell_if_due(a, &a->refused[i], a->refused[i].told_s, all, &next);
    struct often *o, *following;
    HASH_ITER (hh, a->often, o, following) {
        if (!all && clock_s() - o->since_s < REFUSED_S) {
            tell_if_due(a, &o->rest, o->since_s, false, &next);
        } else {
            tell(a, &o->rest);
            HASH_DEL(a->often, o);
            mem_free(o);
        }
    }
    return next;
}

static bool write_line(struct audit *a, const struct audit_entry *x)
{
    _cleanup_strb_ struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    audit_put(&w, x);
    strb_addc(&line, '\n');
    return audit_file_write(a->file, line.failed ? NULL : line.data, line.len);
}

/* The entry about lost lines is added only when it is the next to be written, so that it is not
 * itself lost in the ring. */
static double look_after(void *user)
{
    struct audit *a = user;
    lock_held(&a->lock);
    const double next = tell_due(a, worker_is_stopped(&a->worker));
    if (!a->file)
        return next;
    if (a->written == a->last && a->lost && a->works) {
        const struct audit_entry told = {.at_us = clock_date_us(),
                                         .action = "audit_lost",
                                         .result = err_name(ERR_STATE),
                                         .count = a->lost};
        add(a, &told);
        a->lost = 0;
    }
    if (a->written == a->last)
        return next;
    if (a->last - a->written > a->size) {
        a->lost += a->last - a->written - a->size;
        a->written = a->last - a->size;
    }
    const struct audit_entry x = a->ring[a->written++ % a->size];
    pthread_mutex_unlock(&a->lock);
    const bool works = write_line(a, &x);
    pthread_mutex_lock(&a->lock);
    a->works = works;
    if (!works)
        a->lost += strcmp(x.action, "audit_lost") ? 1 : x.count;
    return WORKER_AGAIN;
}

void audit_stop(struct audit *a)
{
    if (a)
        worker_stop(&a->worker);
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    audit_stop(a);
    pthread_mutex_lock(&a->lock);
    while (look_after(a) == WORKER_AGAIN) /* what has come since then */
        continue;
    pthread_mutex_unlock(&a->lock);
    audit_file_close(a->file);
    worker_destroy(&a->worker);
    pthread_mutex_destroy(&a->lock);
    mem_free(a->ring);
    arena_free(a->past);
    mem_free(a);
}

size_t audit_list(struct audit *a, uint64_t after, size_t limit, struct audit_entry *ret,
                  bool *ret_more)
{
    size_t n = 0;
    *ret_more = false;
    if (!a)
        return 0;
    pthread_mutex_lock(&a->lock);
    const uint64_t first = a->last > a->shown ? a->last - a->shown : 0;
    for (uint64_t i = after > first ? after : first; i < a->last && n < limit; i++)
        if (a->ring[i % a->size].number == i + 1) /* of an earlier process some may be missing */
            ret[n++] = a->ring[i % a->size];
    *ret_more = n && ret[n - 1].number < a->last;
    pthread_mutex_unlock(&a->lock);
    return n;
}

void audit_put(struct json_writer *w, const struct audit_entry *x)
{
    char at[CLOCK_DATE_SIZE];
    clock_date_text(x->at_us, at);
    json_open_object(w);
    json_put_member_i64(w, "number", (int64_t)x->number);
    json_put_member_string(w, "at", at);
    json_put_member_string(w, "who", x->who[0] ? x->who : NULL);
    json_put_member_string(w, "from", x->from[0] ? x->from : NULL);
    json_put_member_string(w, "action", x->action);
    json_put_member_string(w, "target", x->target);
    json_put_member_string(w, "result", x->result);
    json_put_member_i64(w, "count", (int64_t)x->count);
    json_close_object(w);
}
