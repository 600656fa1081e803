/* Leases and shares are looked up one by one while they are printed: each is as of its own moment,
 * which is all that a reader of a long list can have. */
#include "server/admin/put.h"

#include <stdio.h>

#include "compute/base/clock.h"
#include "server/body/meta.h"
#include "server/config/config.h"
#include "server/exports/export.h"
#include "server/jobs/jobs.h"
#include "server/store/lease.h"
#include "server/store/share.h"

static void put_time(struct json_writer *w, const char *key, int64_t us)
{
    if (us)
        meta_put_time(w, key, us);
    else
        json_put_member_string(w, key, NULL);
}

/* --- sessions and jobs --- */

void put_others_session(struct json_writer *w, struct principal *owner, const struct session *s)
{
    const double idle = session_idle(owner->sessions, s);
    json_open_object(w);
    json_put_member_string(w, "owner", owner->name);
    put_time(w, "last_used", clock_date_us() - (int64_t)(idle * 1e6));
    json_put_key(w, "session");
    meta_put_session(w, s);
    json_close_object(w);
}

void put_others_job(struct json_writer *w, struct user_job *j)
{
    json_open_object(w);
    json_put_member_string(w, "owner", job_owner(j));
    json_put_key(w, "job");
    job_put(j, JOB_NO_VALUES, 0, JOB_TELL_BRIEF, w, NULL);
    json_close_object(w);
}

/* --- arrays --- */

static void put_share(void *user, const char *who, bool write)
{
    struct json_writer *w = user;
    json_open_object(w);
    json_put_member_string(w, "principal", who);
    json_put_member_string(w, "access", write ? "write" : "read");
    json_close_object(w);
}

static void put_lease(void *user, const struct lease_image *l)
{
    struct json_writer *w = user;
    json_open_object(w);
    json_put_member_string(w, "principal", l->who ? l->who->name : NULL);
    json_put_member_string(w, "mode", l->lease.write ? "write" : "read");
    put_time(w, "expires", l->pinned ? 0 : l->lease.expires_us);
    json_put_member_bool(w, "export", l->pinned);
    json_close_object(w);
}

void put_others_array(struct json_writer *w, struct server *server, const char *owner,
                      const struct handle *h)
{
    const uint64_t buffer = array_buffer_id(h->array);
    json_open_object(w);
    json_put_member_string(w, "owner", owner);
    put_time(w, "last_used", array_used_us(h->array));
    json_put_key(w, "array");
    meta_put(w, h, true);
    json_put_key(w, "shares");
    json_open_list(w);
    share_each(server->shares, h->id, put_share, w);
    json_close_list(w);
    json_put_key(w, "leases");
    json_open_list(w);
    lease_each(server->leases, &buffer, put_lease, w);
    json_close_list(w);
    json_close_object(w);
}

/* --- principals --- */

static int64_t quota_of(const struct quotas *q, size_t i)
{
    return *(const int64_t *)((const char *)q + quota_table[i].offset);
}

static void put_month(struct json_writer *w, struct account *a)
{
    struct account_month m;
    char name[16];
    account_month(a, &m);
    snprintf(name, sizeof name, "%04d-%02d", m.month / 100 % 10000, m.month % 100);
    json_put_key(w, "this_month");
    json_open_object(w);
    json_put_member_string(w, "month", name);
    json_put_member_double(w, "device_s", (double)m.device_ns * 1e-9);
    json_close_object(w);
}

/* No limit: null. */
static void put_used(struct json_writer *w, const char *name, int64_t limit, int64_t used)
{
    json_put_key(w, name);
    json_open_object(w);
    json_put_key(w, "limit");
    if (limit)
        json_put_i64(w, limit);
    else
        json_put_null(w);
    json_put_member_i64(w, "used", used);
    json_close_object(w);
}

void put_principal_members(struct json_writer *w, struct server *server, struct principal *p)
{
    struct quotas may, has;
    int64_t labels = 0, most_labels = server->config->attrs_memory;
    auth_quotas(server->auth, p, &may, &has);
    if (atomic_load(&p->open))
        labels = handles_labels(p->handles, &most_labels);
    json_put_member_string(w, "name", p->name);
    json_put_member_string(w, "role", role_name((enum role)atomic_load(&p->role)));
    json_put_member_i64(w, "weight", atomic_load(&p->weight));
    json_put_member_i64(w, "requests_total", (int64_t)atomic_load(&p->n_requests));
    json_put_member_double(w, "device_s", (double)account_device_ns(p->account) * 1e-9);
    put_month(w, p->account);
    json_put_key(w, "quotas");
    json_open_object(w);
    for (size_t i = 0; i < quota_count; i++)
        put_used(w, quota_table[i].name, quota_of(&may, i), quota_of(&has, i));
    put_used(w, "attrs_memory", most_labels, labels);
    json_close_object(w);
}

struct counted {
    const struct principal *who;
    int64_t n;
};

static void count_lease(void *user, const struct lease_image *l)
{
    struct counted *c = user;
    c->n += l->who == c->who && !l->pinned;
}

static void count_share(void *user, const char *id, const struct principal *owner,
                        const struct principal *who, bool write)
{
    struct counted *c = user;
    (void)id;
    (void)who;
    (void)write;
    c->n += owner == c->who;
}

/* What the accounts file says, and what is changed. No quota: null. */
static void put_settings(struct json_writer *w, struct auth *a, const struct principal *p)
{
    struct user file;
    struct setting_changes c;
    auth_changes(a, p, &file, &c);
    for (int changed = 0; changed < 2; changed++) {
        json_put_key(w, changed ? "changed" : "accounts");
        json_open_object(w);
        for (size_t i = 0; i < SETTINGS; i++) {
            const int64_t v = changed ? c.of[i].value : user_setting(&file, i);
            if (changed && !c.of[i].set)
                continue;
            json_put_key(w, setting_name(i));
            if (v)
                json_put_i64(w, v);
            else
                json_put_null(w);
        }
        json_close_object(w);
    }
}

void put_others_principal(struct json_writer *w, struct server *server, struct principal *p)
{
    struct counted leases = {p, 0}, shares = {p, 0};
    size_t running, jobs = jobs_count(server->jobs, p, &running);
    lease_each(server->leases, NULL, count_lease, &leases);
    share_each_of_all(server->shares, count_share, &shares);
    json_open_object(w);
    put_principal_members(w, server, p);
    put_settings(w, server->auth, p);
    put_time(w, "last_used", atomic_load(&p->used_us));
    json_put_member_i64(w, "bytes_in", (int64_t)atomic_load(&p->bytes_in));
    json_put_member_i64(w, "bytes_out", (int64_t)atomic_load(&p->bytes_out));
    json_put_member_i64(w, "jobs", (int64_t)jobs);
    json_put_member_i64(w, "jobs_running", (int64_t)running);
    json_put_member_i64(w, "leases", leases.n);
    json_put_member_i64(w, "shares", shares.n);
    json_put_member_i64(w, "exports", (int64_t)exports_count(server->exports, p));
    json_close_object(w);
}
