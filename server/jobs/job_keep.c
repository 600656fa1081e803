/* Jobs in the journal, so that the next process continues them (kept_job.h says how they are
 * written down). What a slice changes becomes one record there together with the exchange of its
 * arrays' memory: before it, the job is where the last slice left it, in this process and in any
 * that comes after it. */
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "server/jobs/jobs_int.h"
#include "server/kept/journal_writer.h"
#include "server/kept/kept_job.h"
#include "server/server.h"
#include "server/store/session.h"

#define REMOVED_TOGETHER 64
#define OF_A_BLOCK       512 /* bytes that the journal has of each, besides the values */

struct job_record {
    struct meter *meter; /* the job's: what never changes of it counts there */
    int64_t charged;
    int64_t crashes; /* kept_progress's, as the two after it */
    bool behind, copies;
    uint32_t under_way; /* culprits_begin_job's number */
    int64_t values;     /* of each series that the journal has; if it is behind */
    /* the items to be written; their values lie in `text` */
    struct strb text;
    struct record_item *items;
    char (*keys)[RECORD_KEY_MOST + 1];
    size_t n, cap;
    struct record_items all;
};

struct job_record *job_record_new(const struct jobs *t)
{
    return t->config.writer ? mem_calloc(1, sizeof(struct job_record)) : NULL;
}

void job_record_free(struct job_record *x)
{
    if (!x)
        return;
    meter_discharge(x->meter, x->charged);
    meter_unref(x->meter);
    strb_free(&x->text);
    mem_free(x->items);
    mem_free(x->keys);
    mem_free(x);
}

bool job_copies(const struct user_job *j)
{
    return j->record && j->record->copies;
}

/* --- items --- */

static void start(struct job_record *x)
{
    strb_reset(&x->text);
    x->n = 0;
}

/* Begins the next item, whose value will be what is added to `text`. False without memory. */
static bool add(struct user_job *j, enum record_kind kind, int64_t part)
{
    struct job_record *x = j->record;
    if (x->n == x->cap) {
        const size_t cap = 2 * x->cap + 8;
        struct record_item *items = mem_reallocarray(x->items, cap, sizeof *items);
        x->items = items ? items : x->items;
        char(*keys)[RECORD_KEY_MOST + 1] =
            items ? mem_reallocarray(x->keys, cap, sizeof *keys) : NULL;
        if (!keys)
            return false;
        x->keys = keys;
        x->cap = cap;
    }
    struct record_item *item = &x->items[x->n];
    *item = (struct record_item){.kind = kind, .n = x->text.len};
    item->key_len = writer_job_key(x->keys[x->n], j->body.principal->name, j->id, part);
    x->n++;
    return true;
}

/* All items are there: `n` has been where each one's value begins. False without memory. */
static bool complete(struct job_record *x)
{
    if (x->text.failed)
        return false;
    for (size_t i = x->n, end = x->text.len; i-- > 0;) {
        struct record_item *item = &x->items[i];
        const size_t from = item->n;
        item->key = x->keys[i];
        item->value = x->text.data + from;
        item->n = end - from;
        end = from;
    }
    x->all = (struct record_items){x->items, x->n};
    return true;
}

static struct kept_progress progress_of(const struct user_job *j)
{
    struct kept_progress at = {.step = j->step,
                               .values = j->record->behind ? j->record->values : j->n_values,
                               .snapshots = (int64_t)j->n_snapshots,
                               .ends = (int64_t)j->ends,
                               .crashes = j->record->crashes,
                               .ended_us = job_is_over(j) ? j->ended_us : 0,
                               .ran_ms = j->ran + (j->started > 0 ? clock_ms() - j->started : 0),
                               .device_ms = j->device_ms,
                               .bytes = (int64_t)j->bytes,
                               .until = j->stopped,
                               .copies = j->record->copies,
                               .behind = j->record->behind,
                               .err = ERR_INIT,
                               .failed_in = j->failed_in,
                               .statement = j->statement};
    snprintf(at.state, sizeof at.state, "%s", job_state_names[j->state]);
    if (j->state == JOB_FAILED)
        at.err = j->err;
    return at;
}

static bool add_progress(struct user_job *j, const struct kept_progress *at)
{
    struct json_writer w = JSON_WRITER(&j->record->text);
    if (!add(j, RECORD_PROGRESS, -1))
        return false;
    kept_put_progress(&w, at);
    return true;
}

/* A block of the values of all series, the last of which are not more than `values` in all. */
static bool add_block(struct user_job *j, int64_t block, int64_t k, int64_t values)
{
    const int64_t from = k * block, n = values - from < block ? values - from : block;
    if (!add(j, RECORD_VALUES, k))
        return false;
    for (uint32_t i = 0; i < j->body.n_series; i++) {
        const struct series_values *s = &j->series[i];
        const size_t size = dtype_size(s->dtype);
        strb_addn(&j->record->text, s->bytes + (size_t)from * size, (size_t)n * size);
    }
    return true;
}

static int64_t block_of(const struct user_job *j)
{
    size_t row = 0;
    for (uint32_t i = 0; i < j->body.n_series; i++)
        row += dtype_size(j->series[i].dtype);
    return kept_block(row);
}

/* --- as the job continues --- */

enum err_code job_keep_begin(struct user_job *j, struct err *e)
{
    lock_held(&j->table->lock);
    struct job_record *x = j->record;
    if (!x)
        return ERR_OK;
    start(x);
    struct json_writer w = JSON_WRITER(&x->text);
    const struct kept_progress at = progress_of(j);
    if (!add(j, RECORD_JOB, -1))
        return err_oom(e);
    kept_put_job(&w, &j->body, j->seq, j->created_us);
    if (!add_progress(j, &at) || !complete(x))
        return err_oom(e);
    TRY(writer_check_space(j->table->config.writer, j->body.principal->name, x->text.len, e));
    if (!meter_charge(j->cause.meter, (int64_t)x->text.len))
        return err_oom(e);
    x->meter = meter_ref(j->cause.meter);
    x->charged = (int64_t)x->text.len;
    TRY(writer_write(j->table->config.writer, &x->all, e));
    strb_free(&x->text); /* later ones are short */
    return ERR_OK;
}

void job_keep_progress(struct user_job *j)
{
    lock_held(&j->table->lock);
    struct job_record *x = j->record;
    struct err e = ERR_INIT;
    if (!x)
        return;
    start(x);
    const struct kept_progress at = progress_of(j);
    enum err_code code = add_progress(j, &at) && complete(x)
                             ? writer_write(j->table->config.writer, &x->all, &e)
                             : err_oom(&e);
    if (code != ERR_OK)
        log_event(LOG_ERROR, "a job's progress could not be written to the journal", "job", j->id,
                  "reason", e.message, NULL);
}

void job_keep_enter(struct user_job *j)
{
    struct culprits *c = j->table->config.culprits;
    if (j->record && c)
        j->record->under_way = culprits_begin_job(c, j->id);
}

void job_keep_leave(struct user_job *j)
{
    struct culprits *c = j->table->config.culprits;
    if (j->record && c)
        culprits_end(c, j->record->under_way);
}

void job_keep_again(struct user_job *j)
{
    lock_held(&j->table->lock);
    if (!j->record)
        return;
    j->record->crashes = 0;
    job_keep_progress(j);
}

void job_keep_copied(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    j->record->copies = false;
    job_keep_progress(j);
    pthread_mutex_unlock(&j->table->lock);
}

/* Where the journal has no room for what a slice recorded the job continues, but no other process
 * can continue it. */
static void fall_behind(struct user_job *j, const struct err *why)
{
    j->record->behind = true;
    j->record->values = j->n_values;
    log_event(LOG_ERROR,
              "what a job records has no room in the journal: if the daemon ends, the job does",
              "job", j->id, "reason", why->message, NULL);
}

enum err_code job_keep_slice(struct user_job *j, struct program_slice *made, struct err *e)
{
    struct job_record *x = j->record;
    if (!x)
        return ERR_OK;
    const int64_t block = block_of(j), values = j->n_values + made->n_values;
    const int64_t from = j->n_values / block;
    const int64_t to = made->n_values && j->body.n_series ? (values + block - 1) / block : from;
    struct err why = ERR_INIT;
    start(x);
    for (int64_t k = from; k < to && !x->behind; k++)
        if (!add_block(j, block, k, values))
            return err_oom(e);
    if (x->n && writer_check_space(j->table->config.writer, j->body.principal->name,
                                   x->text.len + x->n * OF_A_BLOCK, &why) != ERR_OK) {
        fall_behind(j, &why);
        start(x);
    }
    struct kept_progress at = progress_of(j);
    at.step = made->steps;
    at.values = x->behind ? x->values : values;
    at.snapshots = (int64_t)j->n_taken;
    at.crashes = 0;
    at.behind = x->behind;
    at.copies = made->copies;
    at.until = made->until;
    if (!at.copies && (at.until || at.step >= j->body.steps)) { /* it ends with this */
        snprintf(at.state, sizeof at.state, "%s", job_state_names[JOB_DONE]);
        at.ended_us = clock_date_us();
        at.ends++;
    }
    if (!add_progress(j, &at) || !complete(x))
        return err_oom(e);
    made->with = &x->all;
    return ERR_OK;
}

void job_keep_committed(struct user_job *j, bool copies)
{
    if (!j->record)
        return;
    j->record->crashes = 0;
    j->record->copies = copies;
}

enum err_code job_keep_snapshot(struct user_job *j, const struct kept_snapshot *s, struct err *e)
{
    struct job_record *x = j->record;
    if (!x)
        return ERR_OK;
    start(x);
    struct json_writer w = JSON_WRITER(&x->text);
    if (!add(j, RECORD_SNAPSHOT, (int64_t)(s - j->snapshots)))
        return err_oom(e);
    kept_put_snapshot(&w, s);
    if (!complete(x))
        return err_oom(e);
    TRY(writer_check_space(j->table->config.writer, j->body.principal->name, x->text.len, e));
    return writer_write(j->table->config.writer, &x->all, e);
}

/* Removes n items of a kind; part −1: the one that it has. */
static void drop(struct user_job *j, enum record_kind kind, int64_t part, int64_t n)
{
    char keys[REMOVED_TOGETHER][RECORD_KEY_MOST + 1];
    struct record_item items[REMOVED_TOGETHER];
    struct err e = ERR_INIT;
    while (n > 0) {
        const int64_t now = n < REMOVED_TOGETHER ? n : REMOVED_TOGETHER;
        for (int64_t i = 0; i < now; i++) {
            items[i] = (struct record_item){.kind = kind, .key = keys[i]};
            items[i].key_len =
                writer_job_key(keys[i], j->body.principal->name, j->id, part < 0 ? -1 : part + i);
        }
        const struct record_items all = {items, (size_t)now};
        if (writer_write(j->table->config.writer, &all, &e) != ERR_OK)
            return; /* the next process will know an ended job more */
        part += now;
        n -= now;
    }
}

/* A job of another process, which wrote the same. What is missing afterwards is logged. */
void job_keep_restored(struct user_job *j, const struct kept_job *k)
{
    struct job_record *x = j->record;
    struct err e = ERR_INIT;
    char key[RECORD_KEY_MOST + 1];
    struct record_item item = {
        .kind = RECORD_JOB, .key = key, .value = k->record, .n = k->record_len};
    item.key_len = writer_job_key(key, j->body.principal->name, j->id, -1);
    x->meter = meter_ref(j->cause.meter);
    x->charged = (int64_t)k->record_len;
    meter_charge_anyway(x->meter, x->charged);
    x->crashes = k->at.crashes;
    x->behind = k->at.behind;
    x->values = j->n_values;
    enum err_code code =
        writer_write(j->table->config.writer, &(struct record_items){&item, 1}, &e);
    const int64_t block = block_of(j);
    for (int64_t i = 0; i * block < j->n_values && j->body.n_series && code == ERR_OK; i++) {
        start(x);
        code = add_block(j, block, i, j->n_values) && complete(x)
                   ? writer_write(j->table->config.writer, &x->all, &e)
                   : err_oom(&e);
    }
    for (size_t i = 0; i < j->n_snapshots && code == ERR_OK; i++)
        code = job_keep_snapshot(j, &j->snapshots[i], &e);
    if (code != ERR_OK) {
        x->behind = true;
        x->values = 0;
        log_event(LOG_ERROR, "the journal has no room for a job of the previous process", "job",
                  j->id, "reason", e.message, NULL);
    }
    job_keep_progress(j);
}

void job_keep_gone(struct user_job *j)
{
    lock_held(&j->table->lock);
    const int64_t block = j->record ? block_of(j) : 1;
    if (!j->record || !j->table->config.writer)
        return;
    drop(j, RECORD_JOB, -1, 1);
    drop(j, RECORD_PROGRESS, -1, 1);
    drop(j, RECORD_VALUES, 0, j->body.n_series ? (j->n_values + block - 1) / block : 0);
    drop(j, RECORD_SNAPSHOT, 0, (int64_t)j->cap_snapshots);
}
