/* The order is that of state_load.c: sessions, then arrays in the order they were made, each memory
 * with the first array on it, whose session is charged; then functions, shares and leases.
 *
 * A record that is damaged, or refers to what is not there, is passed over: everything else of the
 * journal is as good as it was. */
#include "server/kept/recover_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/exports/export.h"
#include "server/kept/member.h"
#include "server/server.h"
#include "server/store/share.h"

/* --- what is passed over --- */

static const char *const names[] = {
    [RECORD_SESSION] = "session",   [RECORD_ARRAY] = "array",        [RECORD_FUNCTION] = "function",
    [RECORD_SHARE] = "share",       [RECORD_LEASE] = "lease",        [RECORD_MEMORY] = "memory",
    [RECORD_JOB] = "job",           [RECORD_PROGRESS] = "progress",  [RECORD_VALUES] = "values",
    [RECORD_SNAPSHOT] = "snapshot", [RECORD_PASSED] = "passed over", [RECORD_SETTINGS] = "settings",
    [RECORD_MONTH] = "month",       [RECORD_LINK] = "link"};

/* What the key names, "principal/id", is to be had from the state on disk alone. */
static void leave_to_state(struct recovery *r, const struct record_item *x)
{
    char principal[PRINCIPAL_SIZE], id[RECORD_KEY_MOST + 1];
    const char *slash = memchr(x->key, '/', x->key_len);
    const size_t n = slash ? (size_t)(slash - x->key) : sizeof principal;
    if (n >= sizeof principal)
        return;
    snprintf(principal, sizeof principal, "%.*s", (int)n, x->key);
    snprintf(id, sizeof id, "%.*s", (int)(x->key_len - n - 1), slash + 1);
    writer_passed(r->server->writer, principal, id, false);
}

void recover_pass_over(struct recovery *r, const struct item *x, const char *why)
{
    const bool array = x->record.kind == RECORD_ARRAY;
    char key[RECORD_KEY_MOST + 1];
    snprintf(key, sizeof key, "%.*s", (int)x->record.key_len, x->record.key);
    if (array && r->n_without++ == 0)
        snprintf(r->without, sizeof r->without, "%s", why);
    if (!array)
        log_event(LOG_WARN, "a journal record is unusable; what it described is lost", "kind",
                  names[x->record.kind], "key", key, "reason", why, NULL);
    if (array && r->server->state) {
        leave_to_state(r, &x->record);
        r->report.left_to_state++;
    } else {
        r->report.passed_over++;
    }
}

/* There may be many, for one reason. With a state folder it is known later which are gone. */
static void tell_without(const struct recovery *r)
{
    char n[24];
    snprintf(n, sizeof n, "%" PRId64, r->n_without);
    if (r->n_without)
        log_event(r->server->state ? LOG_INFO : LOG_WARN,
                  r->server->state ? "arrays are to come from the last snapshot"
                                   : "arrays are gone, because they could not be taken over",
                  "arrays", n, "reason", r->without, NULL);
}

/* --- principals --- */

void recover_lift(struct principal *p)
{
    account_set_limits(p->account, 0, 0);
}

void recover_limit(struct auth *a, struct principal *p)
{
    struct session *s;
    struct quotas may, has;
    uint64_t after = LIST_FROM_TOP;
    bool more;
    while (session_list(p->sessions, after, 1, &s, &more) == 1) {
        after = s->seq;
        session_limit(s);
        session_unref(s);
    }
    auth_quotas(a, p, &may, &has);
    account_set_limits(p->account, may.device_memory, may.host_memory);
}

/* *ret NULL: there is no such account any more. */
static enum err_code open_owner(struct recovery *r, const char *name, struct principal **ret,
                                struct err *e)
{
    struct owner *o;
    HASH_FIND_STR(r->owners, name, o);
    if (!o) {
        o = mem_calloc(1, sizeof *o);
        if (!o)
            return err_oom(e);
        strncpy(o->name, name, sizeof o->name - 1);
        HASH_ADD_STR(r->owners, name, o);
        if (!o->hh.tbl) {
            mem_free(o);
            return err_oom(e);
        }
        enum err_code code = auth_open(r->server->auth, o->name, &o->principal, e);
        if (code == ERR_OK)
            recover_lift(o->principal);
        else if (code != ERR_NOT_FOUND)
            return code;
        else
            log_event(LOG_WARN,
                      "the data of a principal that no longer has an account is not restored",
                      "principal", o->name, NULL);
    }
    *ret = o->principal;
    return ERR_OK;
}

void recover_principal(const struct record_item *x, char ret[PRINCIPAL_SIZE])
{
    const char *end = memchr(x->key, '/', x->key_len);
    size_t n = end ? (size_t)(end - x->key) : 0;
    snprintf(ret, PRINCIPAL_SIZE, "%.*s", n < PRINCIPAL_SIZE ? (int)n : 0, x->key);
}

enum err_code recover_owner(struct recovery *r, const struct item *x, struct principal **ret,
                            struct err *e)
{
    char name[PRINCIPAL_SIZE];
    recover_principal(&x->record, name);
    return open_owner(r, name, ret, e);
}

static enum err_code check_owners(struct recovery *r)
{
    const struct items *t = &r->all[RECORD_SESSION];
    char name[PRINCIPAL_SIZE];
    for (size_t i = 0; i < t->n; i++) {
        recover_principal(&t->items[i].record, name);
        if (*name)
            TRY(auth_check_left(r->server->auth, name, r->e));
    }
    return ERR_OK;
}

/* --- records --- */

static void collect(void *user, const struct record_item *record)
{
    struct items *t = user;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct item *more = mem_reallocarray(t->items, cap, sizeof *more);
        t->failed |= !more;
        if (!more)
            return;
        t->items = more;
        t->cap = cap;
    }
    t->items[t->n++] = (struct item){.record = *record};
}

enum err_code recover_with(struct recovery *r, const struct item *x, restore_fn *fn)
{
    static const struct json_limits limits = {.max_depth = 1000, .max_nodes = UINT32_MAX};
    struct err why = ERR_INIT;
    struct json v;
    if (!x->record.value) {
        recover_pass_over(r, x, "it is damaged");
        return ERR_OK;
    }
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(r->e);
    enum err_code code = json_parse(arena, x->record.value, x->record.n, &limits, &v, &why);
    if (code == ERR_OK)
        code = fn(r, x, v, &why);
    if (code == ERR_OUT_OF_MEMORY) {
        *r->e = why;
        return code;
    }
    if (code != ERR_OK)
        recover_pass_over(r, x, why.message);
    return ERR_OK;
}

static enum err_code read_seq(struct recovery *r, const struct item *x, struct json v,
                              struct err *why)
{
    int64_t seq;
    (void)r;
    TRY(member_i64(v, "seq", &seq, why));
    ((struct item *)x)->seq = (uint64_t)seq;
    return ERR_OK;
}

static int by_seq(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

enum err_code recover_sort(struct recovery *r, struct items *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct item *x = &t->items[n];
        *x = t->items[i];
        TRY(recover_with(r, x, read_seq));
        n += x->seq != 0;
    }
    t->n = n;
    if (n)
        qsort(t->items, n, sizeof *t->items, by_seq);
    return ERR_OK;
}

static enum err_code each(struct recovery *r, enum record_kind kind, restore_fn *fn)
{
    const struct items *t = &r->all[kind];
    for (size_t i = 0; i < t->n; i++)
        TRY(recover_with(r, &t->items[i], fn));
    return ERR_OK;
}

/* --- sessions --- */

static enum err_code restore_session(struct recovery *r, const struct item *x, struct json v,
                                     struct err *why)
{
    struct session image = {0}, *s;
    struct principal *p;
    TRY(recover_owner(r, x, &p, why));
    if (!p)
        return ERR_OK;
    TRY(kept_read_session(v, r->server->engine, &image, why));
    TRY(session_restore(p->sessions, &image, &s, why));
    session_unref(s);
    r->report.sessions++;
    return ERR_OK;
}

/* --- arrays --- */

static enum err_code add_memories(struct recovery *r)
{
    const struct items *t = &r->all[RECORD_MEMORY];
    for (size_t i = 0; i < t->n; i++) {
        struct memory *m = mem_calloc(1, sizeof *m);
        if (!m)
            return err_oom(r->e);
        m->record = &t->items[i].record;
        for (size_t k = 0; k < m->record->key_len; k++)
            m->number = 10 * m->number + (uint64_t)(m->record->key[k] - '0');
        HASH_ADD(hh, r->memories, number, sizeof m->number, m);
        if (!m->hh.tbl) {
            mem_free(m);
            return err_oom(r->e);
        }
    }
    return ERR_OK;
}

static enum err_code adopt(struct recovery *r, struct memory *m, struct account *payer)
{
    struct kept_memory place = {.number = m->number};
    struct json v;
    if (!m->record->value)
        return err_set(&m->why, ERR_STATE, "the record of its memory is damaged");
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(&m->why);
    TRY(json_parse(arena, m->record->value, m->record->n, NULL, &v, &m->why));
    TRY(kept_read_memory(v, &place, &m->why));
    return r->config->adopt(r->config->user, &place, payer, &m->base, &m->why);
}

/* From now on the memory may be leased; memories that had one array_buffer_id share one again. */
static enum err_code add_leasable(struct recovery *r, uint64_t buffer, struct array *base,
                                  struct err *e)
{
    struct leasable *x;
    HASH_FIND(hh, r->leasables, &buffer, sizeof buffer, x);
    if (x) {
        array_take_place(base, x->base);
        return ERR_OK;
    }
    x = mem_calloc(1, sizeof *x);
    if (!x)
        return err_oom(e);
    x->buffer = buffer;
    x->base = base;
    HASH_ADD(hh, r->leasables, buffer, sizeof x->buffer, x);
    if (x->hh.tbl)
        return ERR_OK;
    mem_free(x);
    return err_oom(e);
}

enum err_code recover_memory(struct recovery *r, int64_t memory, int64_t buffer,
                             struct account *payer, struct array **ret, struct err *why)
{
    uint64_t number = (uint64_t)memory;
    struct memory *m;
    HASH_FIND(hh, r->memories, &number, sizeof number, m);
    if (!m)
        return err_set(why, ERR_STATE, "there is no record of its memory");
    if (!m->tried) {
        m->tried = true;
        m->why = (struct err)ERR_INIT;
        if (adopt(r, m, payer) == ERR_OK)
            TRY(add_leasable(r, (uint64_t)buffer, m->base, why));
    }
    if (!m->base)
        return err_set(why, m->why.code == ERR_CONTENTS_LOST ? ERR_CONTENTS_LOST : ERR_STATE, "%s",
                       m->why.message);
    *ret = m->base;
    return ERR_OK;
}

static enum err_code restore_array(struct recovery *r, const struct item *x, struct json v,
                                   struct err *why)
{
    _cleanup_kept_handle_ struct kept_handle h = {0};
    struct principal *p;
    struct array *base;
    TRY(recover_owner(r, x, &p, why));
    if (!p)
        return ERR_OK;
    TRY(kept_read_handle(v, &h, why));
    _cleanup_session_ struct session *s = NULL;
    if (session_get(p->sessions, h.image.session, false, &s, NULL) != ERR_OK)
        return err_set(why, ERR_STATE, "its session is gone");
    TRY(recover_memory(r, h.memory, h.buffer, s->account, &base, why));
    TRY(kept_read_array(v, base, &h.image.array, why));
    if (h.image.name[0] && handle_check_name(s->handles, h.image.name, NAME_NEW, NULL) != ERR_OK)
        h.image.name[0] = '\0'; /* an older record, where the newer one is damaged */
    enum err_code code = handle_restore(s->handles, &h.image, why);
    r->report.arrays += code == ERR_OK;
    return code;
}

/* --- the rest --- */

static enum err_code restore_function(struct recovery *r, const struct item *x, struct json v,
                                      struct err *why)
{
    struct definition *d;
    struct principal *p;
    struct err unread = ERR_INIT;
    TRY(recover_owner(r, x, &p, why));
    if (!p)
        return ERR_OK;
    TRY(kept_read_function(r->server->config, v, &d, &unread, why));
    if (!d) {
        *why = unread;
        return why->code;
    }
    enum err_code code = functions_restore(p->functions, d, why);
    if (code != ERR_OK)
        function_unref(d->function);
    r->report.functions += code == ERR_OK;
    return code;
}

static enum err_code restore_share(struct recovery *r, const struct item *x, struct json v,
                                   struct err *why)
{
    struct kept_share share;
    struct principal *owner, *who;
    (void)x;
    TRY(kept_read_share(v, &share, why));
    TRY(open_owner(r, share.owner, &owner, why));
    TRY(open_owner(r, share.who, &who, why));
    if (!owner || !who ||
        (!handle_exists(owner->handles, share.id) &&
         !writer_has_passed(r->server->writer, owner->name, share.id)))
        return ERR_OK;
    TRY(share_restore(r->server->shares, owner, share.id, who, share.write, why));
    r->report.shares++;
    return ERR_OK;
}

static enum err_code restore_settings(struct recovery *r, const struct item *x, struct json v,
                                      struct err *why)
{
    struct setting_changes c;
    struct principal *p;
    TRY(recover_owner(r, x, &p, why));
    TRY(kept_read_settings(v, &c, why));
    if (p)
        auth_restore_changes(r->server->auth, p, &c);
    return ERR_OK;
}

static enum err_code restore_month(struct recovery *r, const struct item *x, struct json v,
                                   struct err *why)
{
    struct account_months m;
    struct principal *p;
    TRY(recover_owner(r, x, &p, why));
    TRY(kept_read_months(v, &m, why));
    if (p)
        account_restore_months(p->account, &m);
    return ERR_OK;
}

static enum err_code restore_link(struct recovery *r, const struct item *x, struct json v,
                                  struct err *why)
{
    const struct kept_links *links = r->server->links;
    struct kept_link l;
    struct principal *p;
    TRY(recover_owner(r, x, &p, why));
    TRY(kept_read_link(v, &l, why));
    return p && links ? links->restore(links->table, p, &l, why) : ERR_OK;
}

/* What is exported exists without an array, for the client that has it mapped, who pays for it. */
static enum err_code adopt_exported(struct recovery *r, const struct lease_image *l,
                                    struct principal *payer, struct leasable **ret, struct err *why)
{
    struct memory *m;
    HASH_FIND(hh, r->memories, &l->memory, sizeof l->memory, m);
    if (!m || m->tried || !payer)
        return ERR_OK;
    m->tried = true;
    m->why = (struct err)ERR_INIT;
    if (adopt(r, m, payer->account) != ERR_OK)
        return err_set(why, ERR_STATE, "%s", m->why.message);
    TRY(add_leasable(r, l->buffer, m->base, why));
    HASH_FIND(hh, r->leasables, &l->buffer, sizeof l->buffer, *ret);
    return ERR_OK;
}

/* The holder of an export has lost its permission. */
static void mark_outstayed(struct recovery *r, const struct lease_image *l)
{
    struct memory *m;
    HASH_FIND(hh, r->memories, &l->memory, sizeof l->memory, m);
    if (m)
        m->outstayed = true;
}

static enum err_code leave_outstayed(struct recovery *r)
{
    const struct recover_config *c = r->config;
    struct memory *m, *next;
    HASH_ITER (hh, r->memories, m, next) {
        if (m->base && (m->outstayed || r->doubtful))
            array_let_see_no_more(m->base);
        if (m->base && c->leave && array_outstays_exports(m->base))
            TRY(c->leave(c->user, m->base, r->e));
    }
    return ERR_OK;
}

static enum err_code restore_lease(struct recovery *r, const struct item *x, struct json v,
                                   struct err *why)
{
    const struct recover_config *c = r->config;
    struct kept_lease l;
    struct principal *who = NULL;
    struct leasable *of;
    (void)x;
    TRY(kept_read_lease(v, &l, why));
    HASH_FIND(hh, r->leasables, &l.image.buffer, sizeof l.image.buffer, of);
    if (l.who[0])
        TRY(open_owner(r, l.who, &who, why));
    const bool gone = l.who[0] && !who;
    if (l.image.pinned && (gone || !export_share_lasts(r->server->engine, r->server->shares,
                                                       l.image.shared, who, l.image.lease.write)))
        mark_outstayed(r, &l.image);
    if (gone)
        return ERR_OK;
    if (!of && l.image.pinned)
        TRY(adopt_exported(r, &l.image, who, &of, why));
    if (!of)
        return ERR_OK;
    l.image.buffer = array_buffer_id(of->base);
    l.image.who = who;
    if (l.image.pinned && (!c->export_again || !c->export_again(c->user, &l.image, of->base)))
        return ERR_OK;
    TRY(lease_restore(r->server->leases, &l.image, why));
    r->report.leases++;
    return ERR_OK;
}

/* --- what was passed over before --- */

/* The journal that is written now says so, too. */
static void pass_on(struct recovery *r)
{
    const struct items *t = &r->all[RECORD_PASSED];
    for (size_t i = 0; i < t->n; i++)
        leave_to_state(r, &t->items[i].record);
}

/* --- all of it --- */

static enum err_code restore_all(struct recovery *r)
{
    for (int kind = RECORD_SESSION; kind < RECORD_KINDS; kind++) {
        journal_each(r->from, (uint8_t)kind, collect, &r->all[kind]);
        if (r->all[kind].failed)
            return err_oom(r->e);
    }
    TRY(check_owners(r));
    TRY(recover_sort(r, &r->all[RECORD_SESSION]));
    TRY(recover_sort(r, &r->all[RECORD_ARRAY]));
    TRY(recover_sort(r, &r->all[RECORD_FUNCTION]));
    TRY(each(r, RECORD_SESSION, restore_session));
    TRY(add_memories(r));
    TRY(each(r, RECORD_ARRAY, restore_array));
    tell_without(r);
    TRY(each(r, RECORD_FUNCTION, restore_function));
    pass_on(r);
    TRY(recover_sort(r, &r->all[RECORD_LINK]));
    if (!r->doubtful) {
        TRY(each(r, RECORD_SHARE, restore_share));
        TRY(each(r, RECORD_LINK, restore_link));
    } else if (r->all[RECORD_SHARE].n || r->all[RECORD_LINK].n) {
        log_event(LOG_WARN,
                  "changes are missing in the journal: no array is shared any more, and no link "
                  "shows any, since that may have been taken back",
                  NULL);
    }
    TRY(each(r, RECORD_LEASE, restore_lease));
    TRY(recover_jobs_read(r));
    TRY(leave_outstayed(r));
    if (r->config->adopted)
        r->config->adopted(r->config->user);
    TRY(recover_jobs_make(r));
    TRY(each(r, RECORD_MONTH, restore_month));
    return each(r, RECORD_SETTINGS, restore_settings); /* at last: quotas bind what comes next */
}

static void release(struct recovery *r)
{
    struct owner *o, *next_owner;
    struct memory *m, *next_memory;
    struct leasable *x, *next;
    recover_jobs_release(r);
    HASH_ITER (hh, r->owners, o, next_owner) {
        if (o->principal)
            recover_limit(r->server->auth, o->principal);
        HASH_DEL(r->owners, o);
        mem_free(o);
    }
    HASH_ITER (hh, r->leasables, x, next) {
        HASH_DEL(r->leasables, x);
        mem_free(x);
    }
    HASH_ITER (hh, r->memories, m, next_memory) {
        HASH_DEL(r->memories, m);
        array_unref(m->base);
        mem_free(m);
    }
    for (int kind = RECORD_SESSION; kind < RECORD_KINDS; kind++)
        mem_free(r->all[kind].items);
}

enum err_code recover_all(const struct recover_config *c, struct journal *from, bool doubtful,
                          struct recover_report *ret, struct err *e)
{
    struct recovery r = {
        .config = c, .server = c->server, .from = from, .doubtful = doubtful, .e = e};
    writer_recovers(c->server->writer, true);
    enum err_code code = restore_all(&r);
    release(&r);
    writer_recovers(c->server->writer, false);
    *ret = r.report;
    return code;
}
