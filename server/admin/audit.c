/* A ring of entries. An entry is numbered, stored and written with the lock held, so that all three
 * are in one order. Refusals are counted and told once a minute, since anybody could fill ring and
 * disk with them; what is left of the count is told when somebody reads the audit, or at the end.
 */
#include "server/admin/audit.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/admin/audit_file.h"
#include "server/config.h"
#include "server/store/auth.h"

#define REFUSED_US 60000000 /* between entries about refusals */
#define REFUSALS   2

struct refusals {
    uint64_t n;            /* since the last entry about them, and */
    int64_t told_us;       /* its time; 0: there was none */
    struct audit_entry at; /* the last one */
};

struct audit {
    pthread_mutex_t lock; /* all below */
    struct audit_entry *ring;
    size_t size;
    uint64_t last; /* number */
    struct refusals refused[REFUSALS];
    struct audit_file *file;
};

enum err_code audit_new(const struct config *config, struct audit **ret, struct err *e)
{
    struct audit *a = mem_calloc(1, sizeof *a);
    if (!a)
        return err_oom(e);
    a->size = (size_t)config->audit_entries;
    a->ring = mem_calloc(a->size, sizeof *a->ring);
    enum err_code code = a->ring ? ERR_OK : err_oom(e);
    if (code == ERR_OK && config->audit_log)
        code = audit_file_open(config->audit_log, config->audit_log_size, config->audit_log_files,
                               &a->file, e);
    if (code != ERR_OK) {
        mem_free(a->ring);
        mem_free(a);
        return code;
    }
    pthread_mutex_init(&a->lock, NULL);
    *ret = a;
    return ERR_OK;
}

static void add(struct audit *a, const struct audit_entry *x)
{
    lock_held(&a->lock);
    struct audit_entry *to = &a->ring[a->last % a->size];
    *to = *x;
    to->number = ++a->last;
    if (!a->file)
        return;
    struct strb line = {0};
    struct json_writer w = JSON_WRITER(&line);
    audit_put(&w, to);
    strb_addc(&line, '\n');
    audit_file_write(a->file, line.failed ? NULL : line.data, line.len);
    strb_free(&line);
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
    r->told_us = r->at.at_us;
    r->n = 0;
    add(a, &r->at);
}

void audit_refused(struct audit *a, const struct request *req, enum audit_refusal which)
{
    const bool login = which == AUDIT_LOGIN;
    struct audit_entry x = {.action = login ? "login" : "forbidden",
                            .result = err_name(login ? ERR_UNAUTHORIZED : ERR_FORBIDDEN)};
    if (!a)
        return;
    describe(&x, req);
    if (!login)
        snprintf(x.target, sizeof x.target, "%s %s", req->route->method, req->route->label);
    struct refusals *r = &a->refused[which];
    pthread_mutex_lock(&a->lock);
    r->at = x;
    r->n++;
    if (!r->told_us || x.at_us - r->told_us >= REFUSED_US)
        tell(a, r);
    pthread_mutex_unlock(&a->lock);
}

static void tell_rest(struct audit *a)
{
    lock_held(&a->lock);
    for (size_t i = 0; i < REFUSALS; i++)
        tell(a, &a->refused[i]);
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    tell_rest(a);
    pthread_mutex_unlock(&a->lock);
    audit_file_close(a->file);
    pthread_mutex_destroy(&a->lock);
    mem_free(a->ring);
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
    tell_rest(a);
    const uint64_t first = a->last > a->size ? a->last - a->size : 0;
    for (uint64_t i = after > first ? after : first; i < a->last && n < limit; i++)
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
