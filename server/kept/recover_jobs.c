/* The records of a job are found by their keys. What is damaged is passed over as a whole where
 * nothing can be said of the job without it (the record of what never changes, the progress);
 * otherwise the job is there again, and ends: it cannot continue.
 *
 * An array of a snapshot that was not committed goes: the slice will be done again. */
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/kept/member.h"
#include "server/kept/recover_int.h"
#include "server/server.h"

struct recovered_job {
    struct kept_job job;
    struct past_name *names;
    char (*dropped)[ID_SIZE]; /* handles of snapshots that were not committed */
    size_t n_dropped;
    struct recovered_job *next;
};

static int by_key(const void *a, const void *b)
{
    const struct record_item *x = &((const struct item *)a)->record,
                             *y = &((const struct item *)b)->record;
    size_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
    int order = memcmp(x->key, y->key, n);
    return order ? order : x->key_len < y->key_len ? -1 : x->key_len > y->key_len;
}

static void sort_keys(struct items *t)
{
    if (t->n)
        qsort(t->items, t->n, sizeof *t->items, by_key);
}

/* The job's record of that kind; part < 0 for a kind that has one part only. NULL: the record is
 * missing or damaged. */
static const struct item *find(const struct recovery *r, enum record_kind kind,
                               const struct kept_job *j, int64_t part)
{
    char key[RECORD_KEY_MOST + 1];
    const struct items *t = &r->all[kind];
    struct item like = {.record = {.key = key}};
    like.record.key_len = writer_job_key(key, j->principal->name, j->id, part);
    const struct item *x = t->n ? bsearch(&like, t->items, t->n, sizeof *t->items, by_key) : NULL;
    return x && x->record.value ? x : NULL;
}

static enum err_code parse(const struct item *x, struct arena *arena, struct json *ret,
                           struct err *why)
{
    return json_parse(arena, x->record.value, x->record.n, NULL, ret, why);
}

/* --- progress, values, snapshots --- */

static enum err_code read_progress(struct recovery *r, struct arena *arena, struct kept_job *j,
                                   struct err *why)
{
    const struct item *x = find(r, RECORD_PROGRESS, j, -1);
    struct json v;
    if (!x)
        return err_set(why, ERR_STATE, "the record of its progress is damaged");
    TRY(parse(x, arena, &v, why));
    TRY(kept_read_progress(v, &j->at, why));
    if (j->at.step > j->steps || j->record_every < 1 || j->at.values > j->steps / j->record_every ||
        j->at.snapshots > (int64_t)r->all[RECORD_SNAPSHOT].n)
        return err_set(why, ERR_STATE, "the record of its progress cannot be right");
    return ERR_OK;
}

static size_t row_of(const struct kept_job *j)
{
    size_t row = 0;
    for (uint32_t i = 0; i < j->n_series; i++)
        row += dtype_size(j->series[i].dtype);
    return row;
}

/* A block with n values of each series from number `from` on. */
static bool read_block(const struct item *x, size_t row, struct kept_job *j, int64_t from,
                       int64_t n)
{
    if (!x || x->record.n < row * (size_t)n)
        return false;
    const char *bytes = x->record.value;
    for (uint32_t i = 0; i < j->n_series; i++) {
        const size_t size = dtype_size(j->series[i].dtype);
        memcpy(j->series[i].bytes + (size_t)from * size, bytes, (size_t)n * size);
        bytes += (size_t)n * size;
    }
    return true;
}

static enum err_code read_values(struct recovery *r, struct kept_job *j, struct err *why)
{
    const size_t row = row_of(j);
    const int64_t block = kept_block(row), all = j->at.values;
    if (j->n_series && all / block > (int64_t)r->all[RECORD_VALUES].n)
        return err_set(why, ERR_STATE, "the record of its progress cannot be right");
    for (uint32_t i = 0; i < j->n_series; i++) {
        j->series[i].bytes =
            arena_alloc(r->arena, (size_t)all * dtype_size(j->series[i].dtype) + 1);
        if (!j->series[i].bytes)
            return err_oom(why);
    }
    for (int64_t from = 0; from < all && j->n_series; from += block) {
        const int64_t n = all - from < block ? all - from : block;
        if (read_block(find(r, RECORD_VALUES, j, from / block), row, j, from, n))
            continue;
        j->at.values = 0;
        err_set(&j->lost, ERR_STATE, "the values that it recorded are damaged in the journal");
        break;
    }
    return ERR_OK;
}

/* *ret_there false: it is damaged. The only error is a lack of memory. */
static enum err_code read_snapshot(const struct item *x, struct arena *arena,
                                   struct kept_snapshot *ret, bool *ret_there, struct err *why)
{
    struct err damage = ERR_INIT;
    struct json v;
    *ret_there = false;
    if (!x)
        return ERR_OK;
    enum err_code code = parse(x, arena, &v, &damage);
    if (code == ERR_OK)
        code = kept_read_snapshot(v, ret, &damage);
    *ret_there = code == ERR_OK;
    if (code == ERR_OUT_OF_MEMORY)
        *why = damage;
    return code == ERR_OUT_OF_MEMORY ? code : ERR_OK;
}

static enum err_code read_snapshots(struct recovery *r, struct arena *arena,
                                    struct recovered_job *to, struct err *why)
{
    struct kept_job *j = &to->job;
    struct kept_snapshot s;
    size_t more = 0;
    while (find(r, RECORD_SNAPSHOT, j, j->at.snapshots + (int64_t)more))
        more++;
    j->snapshots = arena_alloc_array(r->arena, (size_t)j->at.snapshots + 1, sizeof s);
    to->dropped = arena_alloc_array(r->arena, more + 1, sizeof *to->dropped);
    if (!j->snapshots || !to->dropped)
        return err_oom(why);
    bool there;
    for (int64_t i = 0; i < j->at.snapshots; i++) {
        TRY(read_snapshot(find(r, RECORD_SNAPSHOT, j, i), arena, &j->snapshots[i], &there, why));
        if (!there)
            return err_set(why, ERR_STATE, "the record of a snapshot is damaged");
    }
    for (size_t i = 0; i < more; i++) {
        const struct item *x = find(r, RECORD_SNAPSHOT, j, j->at.snapshots + (int64_t)i);
        TRY(read_snapshot(x, arena, &s, &there, why));
        if (there)
            memcpy(to->dropped[to->n_dropped++], s.id, ID_SIZE);
    }
    return ERR_OK;
}

/* --- the program --- */

static enum err_code read_name(struct recovery *r, struct json v, struct kept_job *j,
                               struct past_name *ret, struct err *why)
{
    int64_t memory, buffer;
    struct array *base;
    *ret = (struct past_name){0};
    TRY(kept_read_name(v, ret, &memory, &buffer, why));
    ret->name = arena_strndup(r->arena, ret->name, strlen(ret->name));
    if (!ret->name)
        return err_oom(why);
    enum err_code code = recover_memory(r, memory, buffer, j->session->account, &base, why);
    if (code == ERR_CONTENTS_LOST)
        return err_set(why, code, "'%s' was in memory that does not outlive the daemon", ret->name);
    if (code != ERR_OK)
        return code;
    return kept_read_array(v, base, &ret->array, why);
}

static enum err_code read_names(struct recovery *r, struct json list, struct recovered_job *to,
                                struct err *why)
{
    struct past *past = &to->job.past;
    to->names = arena_alloc_array(r->arena, json_count(list) + 1, sizeof *to->names);
    if (!to->names)
        return err_oom(why);
    past->names = to->names;
    for (struct json v = json_first(list); json_present(v); v = json_next(v)) {
        TRY(read_name(r, v, &to->job, &to->names[past->n_names], why));
        past->n_names++;
    }
    return ERR_OK;
}

static enum err_code read_functions(struct recovery *r, struct json list, struct kept_job *j,
                                    struct err *why)
{
    j->past.functions = functions_new((uint32_t)json_count(list));
    if (!j->past.functions)
        return err_oom(why);
    for (struct json v = json_first(list); json_present(v); v = json_next(v)) {
        struct definition *d;
        struct err unread = ERR_INIT;
        TRY(kept_read_function(r->server->config, v, &d, &unread, why));
        if (!d) {
            *why = unread;
            return why->code;
        }
        enum err_code code = functions_restore(j->past.functions, d, why);
        if (code != ERR_OK) {
            function_unref(d->function);
            return code;
        }
    }
    return ERR_OK;
}

/* What its program needs. The only error is a lack of memory: else it cannot be made again. */
static enum err_code read_past(struct recovery *r, struct json v, struct recovered_job *to,
                               struct err *why)
{
    struct json names, functions;
    struct err lost = ERR_INIT;
    to->job.past.session = to->job.session;
    enum err_code code = member_list(v, "names", &names, &lost);
    if (code == ERR_OK)
        code = member_list(v, "functions", &functions, &lost);
    if (code == ERR_OK)
        code = read_names(r, names, to, &lost);
    if (code == ERR_OK)
        code = read_functions(r, functions, &to->job, &lost);
    if (code == ERR_OUT_OF_MEMORY) {
        *why = lost;
        return code;
    }
    if (code != ERR_OK && to->job.lost.code == ERR_OK)
        to->job.lost = lost;
    return ERR_OK;
}

/* --- jobs --- */

static void release(struct recovered_job *x)
{
    for (size_t i = 0; i < x->job.past.n_names; i++)
        array_unref(x->names[i].array);
    functions_free(x->job.past.functions);
    session_unref(x->job.session);
}

/* Without to->job.session: that had ended, and its jobs with it. */
static enum err_code read_all(struct recovery *r, struct json v, struct recovered_job *to,
                              struct err *why)
{
    struct kept_job *j = &to->job;
    TRY(kept_read_job(v, r->arena, j, why));
    if (session_get(j->principal->sessions, j->session_id, false, &j->session, NULL) != ERR_OK)
        return ERR_OK;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    if (!arena)
        return err_oom(why);
    TRY(read_progress(r, arena, j, why));
    TRY(read_values(r, j, why));
    TRY(read_snapshots(r, arena, to, why));
    if (r->doubtful)
        err_set(&j->lost, ERR_STATE, "changes are missing in the journal");
    return strcmp(j->at.state, "done") != 0 ? read_past(r, v, to, why) : ERR_OK;
}

static enum err_code read_job(struct recovery *r, const struct item *x, struct json v,
                              struct err *why)
{
    struct principal *p;
    TRY(recover_owner(r, x, &p, why));
    if (!p)
        return ERR_OK;
    struct recovered_job *to = arena_alloc(r->arena, sizeof *to);
    if (!to)
        return err_oom(why);
    *to = (struct recovered_job){.job = {.principal = p,
                                         .record = x->record.value,
                                         .record_len = x->record.n,
                                         .lost = ERR_INIT}};
    const char *id = memchr(x->record.key, '/', x->record.key_len);
    const size_t n = id ? x->record.key_len - (size_t)(++id - x->record.key) : 0;
    if (n == 0 || n >= ID_SIZE)
        return err_set(why, ERR_STATE, "its id is damaged");
    memcpy(to->job.id, id, n);
    enum err_code code = read_all(r, v, to, why);
    if (code != ERR_OK || !to->job.session) {
        release(to);
        return code;
    }
    *r->last_job = to;
    r->last_job = &to->next;
    return ERR_OK;
}

enum err_code recover_jobs_read(struct recovery *r)
{
    struct items *t = &r->all[RECORD_JOB];
    r->last_job = &r->jobs;
    if (!t->n || !r->config->job)
        return ERR_OK;
    r->arena = arena_new(0);
    if (!r->arena)
        return err_oom(r->e);
    TRY(recover_sort(r, t));
    sort_keys(&r->all[RECORD_PROGRESS]);
    sort_keys(&r->all[RECORD_VALUES]);
    sort_keys(&r->all[RECORD_SNAPSHOT]);
    for (size_t i = 0; i < t->n; i++)
        TRY(recover_with(r, &t->items[i], read_job));
    return ERR_OK;
}

enum err_code recover_jobs_make(struct recovery *r)
{
    for (struct recovered_job *x = r->jobs; x; x = x->next) {
        for (size_t i = 0; i < x->n_dropped; i++) {
            struct err e = ERR_INIT; /* it may never have been made */
            enum err_code code = handle_remove(x->job.session->handles, x->dropped[i], NULL, &e);
            (void)code;
        }
        TRY(r->config->job(r->config->user, &x->job, r->e));
        r->report.jobs++;
    }
    return ERR_OK;
}

void recover_jobs_release(struct recovery *r)
{
    for (struct recovered_job *x = r->jobs; x; x = x->next)
        release(x);
    arena_free(r->arena);
}
