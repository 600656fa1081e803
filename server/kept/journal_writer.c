/* Each record is printed into one text, which is kept, so that nothing is allocated in the long
 * run. Printing under the lock keeps the order of the changes of each key; the tables' locks have
 * already put them in order. */
#include "server/kept/journal_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/store/auth.h"
#include "server/store/share.h"

#define TEXT_KEPT      (16u << 10) /* a longer text is freed */
#define PLACED         16          /* memories written together without allocating */
#define PLACE_MOST     704         /* bytes of a record of a memory */
#define PROGRESS_MOST  2048        /* and of a job's progress, but for the longest errors */
#define VERSION_LABELS 4           /* of a journal: older programs would lose them without a word */

struct journal_writer {
    struct observer observer;
    struct journal *journal;
    _Atomic bool recovers;
    pthread_mutex_t lock; /* all below */
    struct strb text;
    bool stopped;
    uint64_t refused;
};

/* "first/second/third" from as many as there are. */
static size_t make_key(char ret[RECORD_KEY_MOST + 1], const char *first, const char *second,
                       const char *third)
{
    char *p = stpcpy(ret, first);
    if (second) {
        *p++ = '/';
        p = stpcpy(p, second);
    }
    if (third) {
        *p++ = '/';
        p = stpcpy(p, third);
    }
    return (size_t)(p - ret);
}

static void end(struct journal_writer *k)
{
    lock_held(&k->lock);
    if (k->text.cap > TEXT_KEPT)
        strb_free(&k->text);
}

/* Writes items whose change has been made already. */
static void write_made(struct journal_writer *k, const struct record_item *items, size_t n)
{
    lock_held(&k->lock);
    struct err e = ERR_INIT;
    enum err_code code = k->text.failed ? err_oom(&e) : journal_write(k->journal, items, n, &e);
    if (code != ERR_OK && k->refused++ == 0)
        log_event(LOG_ERROR,
                  "a change could not be written to the journal: if the daemon ends, the next one "
                  "will not know of it",
                  "reason", e.message, NULL);
    end(k);
}

/* Takes the lock and opens a text; false: nothing is written any more, and the lock is not held. */
static bool enter(struct journal_writer *k, struct json_writer *ret)
{
    pthread_mutex_lock(&k->lock);
    if (k->stopped) {
        pthread_mutex_unlock(&k->lock);
        return false;
    }
    strb_reset(&k->text);
    *ret = JSON_WRITER(&k->text);
    return true;
}

/* The key gets the text as its value, or is removed; and the lock is given back. */
static void leave(struct journal_writer *k, enum record_kind kind, bool gone, const char *first,
                  const char *second, const char *third)
{
    char key[RECORD_KEY_MOST + 1];
    struct record_item x = {
        .kind = kind, .key = key, .key_len = make_key(key, first, second, third)};
    if (!gone) {
        x.value = k->text.data;
        x.n = k->text.len;
    }
    write_made(k, &x, 1);
    pthread_mutex_unlock(&k->lock);
}

/* --- the observer --- */

static enum err_code check_space(void *user, const char *principal, size_t bytes, struct err *e)
{
    struct journal_writer *k = user;
    return atomic_load(&k->recovers) ? ERR_OK
                                     : journal_check_space(k->journal, principal, bytes, e);
}

static void put_array(void *user, const char *principal, const struct handle_image *now,
                      const char *gone)
{
    struct journal_writer *k = user;
    struct json_writer w;
    char keys[2][RECORD_KEY_MOST + 1];
    struct record_item items[2];
    size_t n = 0;
    if (!enter(k, &w))
        return;
    if (gone) {
        items[n] = (struct record_item){.kind = RECORD_ARRAY, .key = keys[n]};
        items[n].key_len = make_key(keys[n], principal, gone, NULL);
        n++;
    }
    if (now) {
        if (now->labels)
            journal_needs(k->journal, VERSION_LABELS);
        kept_put_array(&w, now, (int64_t)array_memory_id(now->array), true);
        items[n] = (struct record_item){RECORD_ARRAY, keys[n], 0, k->text.data, k->text.len};
        items[n].key_len = make_key(keys[n], principal, now->id, NULL);
        n++;
    }
    write_made(k, items, n);
    pthread_mutex_unlock(&k->lock);
}

static void put_session(void *user, const char *principal, const struct session *s, bool gone)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (!gone)
        kept_put_session(&w, s, true);
    leave(k, RECORD_SESSION, gone, principal, s->id, NULL);
}

static void put_function(void *user, const char *principal, const struct definition *d, bool gone)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (!gone)
        kept_put_function(&w, d);
    leave(k, RECORD_FUNCTION, gone, principal, d->function->name, NULL);
}

static void put_share(void *user, const struct share_image *s, bool gone)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (!gone)
        kept_put_share(&w, s->id, s->owner->name, s->who->name, s->write);
    leave(k, RECORD_SHARE, gone, s->owner->name, s->id, s->who->name);
}

static void put_settings(void *user, const char *principal, const struct setting_changes *c)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (c)
        kept_put_settings(&w, c);
    leave(k, RECORD_SETTINGS, !c, principal, "", NULL);
}

static void put_months(void *user, const char *principal, const struct account_months *m)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (m)
        kept_put_months(&w, m);
    leave(k, RECORD_MONTH, !m, principal, "", NULL);
}

void writer_link(struct journal_writer *k, const char *principal, const struct kept_link *l,
                 bool gone)
{
    struct json_writer w;
    if (!k || !enter(k, &w))
        return;
    if (!gone)
        kept_put_link(&w, l);
    leave(k, RECORD_LINK, gone, principal, l->id, NULL);
}

static void put_lease(void *user, const struct lease_image *l, bool gone)
{
    struct journal_writer *k = user;
    struct json_writer w;
    if (!enter(k, &w))
        return;
    if (!gone)
        kept_put_lease(&w, l);
    leave(k, RECORD_LEASE, gone, l->lease.token, NULL, NULL);
}

/* --- memories --- */

struct place {
    char key[24];
    size_t from; /* in the text */
};

static size_t make_number(struct place *p, uint64_t number)
{
    return (size_t)snprintf(p->key, sizeof p->key, "%" PRIu64, number);
}

/* Removing needs next to no room. */
static void remove_places(struct journal_writer *k, struct record_item *items, size_t n)
{
    lock_held(&k->lock);
    struct err e = ERR_INIT;
    for (size_t i = 0; i < n; i++)
        items[i].value = NULL;
    if (n && journal_write(k->journal, items, n, &e) != ERR_OK)
        log_event(LOG_ERROR, "the place that an array has left stays in the journal", "reason",
                  e.message, NULL);
}

static enum err_code write_places(struct journal_writer *k, struct json_writer *w,
                                  const struct kept_memory *m, size_t n,
                                  const struct record_items *with, struct place *places,
                                  struct record_item *items, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        items[i] = (struct record_item){.kind = RECORD_MEMORY, .key = places[i].key};
        items[i].key_len = make_number(&places[i], m[i].number);
        places[i].from = k->text.len;
        w->comma = false;
        kept_put_memory(w, &m[i]);
        items[i].n = k->text.len - places[i].from;
    }
    for (size_t i = 0; i < n; i++)
        items[i].value = k->text.data + places[i].from;
    const size_t more = with ? with->n : 0;
    if (more)
        memcpy(items + n, with->items, more * sizeof *items);
    enum err_code code =
        k->text.failed ? err_oom(e) : journal_write(k->journal, items, n + more, e);
    if (code != ERR_OK)
        remove_places(k, items, n);
    end(k);
    return code;
}

enum err_code writer_placed(struct journal_writer *k, const struct kept_memory *m, size_t n,
                            const struct record_items *with, struct err *e)
{
    struct place few[PLACED], *places = few;
    struct record_item few_items[PLACED], *items = few_items;
    struct json_writer w;
    enum err_code code = ERR_OK;
    const size_t all = n + (with ? with->n : 0);
    if (all > PLACED) {
        places = mem_calloc(n + 1, sizeof *places);
        items = mem_calloc(all, sizeof *items);
    }
    if (!places || !items) {
        code = err_oom(e);
    } else if (enter(k, &w)) {
        code = write_places(k, &w, m, n, with, places, items, e);
        k->refused += code != ERR_OK;
        pthread_mutex_unlock(&k->lock);
    }
    if (all > PLACED) {
        mem_free(places);
        mem_free(items);
    }
    return code;
}

void writer_unplaced(struct journal_writer *k, uint64_t number)
{
    struct place p;
    struct json_writer w;
    make_number(&p, number);
    if (enter(k, &w))
        leave(k, RECORD_MEMORY, true, p.key, NULL, NULL);
}

/* --- what is not here --- */

void writer_passed(struct journal_writer *k, const char *principal, const char *id, bool found)
{
    struct json_writer w;
    if (!k || !enter(k, &w))
        return;
    json_put_bool(&w, found);
    leave(k, RECORD_PASSED, false, principal, id, NULL);
}

void writer_passed_no_more(struct journal_writer *k, const char *principal, const char *id)
{
    struct json_writer w;
    if (k && enter(k, &w))
        leave(k, RECORD_PASSED, true, principal, id, NULL);
}

bool writer_has_passed(struct journal_writer *k, const char *principal, const char *id)
{
    char key[RECORD_KEY_MOST + 1];
    return k && journal_has(k->journal, RECORD_PASSED, key, make_key(key, principal, id, NULL));
}

struct not_found {
    char (*keys)[RECORD_KEY_MOST + 1];
    size_t n, cap;
};

/* Without memory it is found the next time. */
static void look_for_array(void *user, const struct record_item *x)
{
    struct not_found *t = user;
    const char *slash = memchr(x->key, '/', x->key_len);
    const bool found = !x->value || x->n != strlen("false");
    if (!slash || strncmp(slash, "/a-", 3) != 0 || found)
        return;
    if (t->n == t->cap) {
        const size_t cap = t->cap ? 2 * t->cap : 64;
        char(*more)[RECORD_KEY_MOST + 1] = mem_reallocarray(t->keys, cap, sizeof *more);
        if (!more)
            return;
        t->keys = more;
        t->cap = cap;
    }
    snprintf(t->keys[t->n++], sizeof *t->keys, "%.*s", (int)x->key_len, x->key);
}

uint64_t writer_forget_passed(struct journal_writer *k)
{
    struct json_writer w;
    struct not_found t = {0};
    if (!k)
        return 0;
    journal_each(k->journal, RECORD_PASSED, look_for_array, &t);
    for (size_t i = 0; i < t.n; i++)
        if (enter(k, &w))
            leave(k, RECORD_PASSED, true, t.keys[i], NULL, NULL);
    mem_free(t.keys);
    return t.n;
}

/* --- jobs --- */

size_t writer_job_key(char ret[RECORD_KEY_MOST + 1], const char *principal, const char *id,
                      int64_t part)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, part);
    return make_key(ret, principal, id, part < 0 ? NULL : number);
}

enum err_code writer_check_space(struct journal_writer *k, const char *principal, size_t bytes,
                                 struct err *e)
{
    return check_space(k, principal, bytes, e);
}

void writer_recovers(struct journal_writer *k, bool yes)
{
    if (k)
        atomic_store(&k->recovers, yes);
}

enum err_code writer_write(struct journal_writer *k, const struct record_items *x, struct err *e)
{
    struct json_writer w;
    if (!enter(k, &w))
        return ERR_OK;
    enum err_code code = journal_write(k->journal, x->items, x->n, e);
    pthread_mutex_unlock(&k->lock);
    return code;
}

/* --- the module's functions --- */

size_t writer_least(uint8_t kind)
{
    return kind == RECORD_MEMORY ? PLACE_MOST : kind == RECORD_PROGRESS ? PROGRESS_MOST : 0;
}

struct journal_writer *writer_new(struct journal *journal)
{
    struct journal_writer *k = mem_calloc(1, sizeof *k);
    if (!k)
        return NULL;
    if (!strb_reserve(&k->text, OBSERVER_RECORD)) {
        mem_free(k);
        return NULL;
    }
    k->journal = journal;
    k->observer = (struct observer){.user = k,
                                    .check_space = check_space,
                                    .array = put_array,
                                    .session = put_session,
                                    .function = put_function,
                                    .share = put_share,
                                    .settings = put_settings,
                                    .month = put_months,
                                    .lease = put_lease};
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void writer_free(struct journal_writer *k)
{
    if (!k)
        return;
    strb_free(&k->text);
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

const struct observer *writer_observer(const struct journal_writer *k)
{
    return &k->observer;
}

void writer_stop(struct journal_writer *k)
{
    pthread_mutex_lock(&k->lock);
    k->stopped = true;
    pthread_mutex_unlock(&k->lock);
}

uint64_t writer_refused(struct journal_writer *k)
{
    pthread_mutex_lock(&k->lock);
    const uint64_t refused = k->refused;
    pthread_mutex_unlock(&k->lock);
    return refused;
}

static void metric(struct strb *out, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    strb_addf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name,
              value);
}

void writer_metrics(struct journal_writer *k, struct strb *out)
{
    struct journal_figures f;
    if (!k)
        return;
    const uint64_t refused = writer_refused(k);
    journal_figures(k->journal, &f);
    metric(out, "arrayd_journal_bytes", "gauge", "Size of the journal.", (uint64_t)f.bytes);
    metric(out, "arrayd_journal_live_bytes", "gauge", "Of that, in force.", (uint64_t)f.live);
    metric(out, "arrayd_journal_keys", "gauge", "Keys in the journal.", (uint64_t)f.keys);
    metric(out, "arrayd_journal_writes_total", "counter", "Records written.", f.writes);
    metric(out, "arrayd_journal_rewrites_total", "counter", "How often it was compacted.",
           f.rewrites);
    metric(out, "arrayd_journal_refused_total", "counter",
           "Changes that could not be written: the next process will not know of them.", refused);
}
