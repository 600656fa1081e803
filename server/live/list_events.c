/* GET /v1/events: what changes in the lists of a session's arrays and of one's jobs.
 *
 * A stream knows what it has told: of each entry its number, which rises from entry to entry in a
 * list's order, and marks of its description and of its contents. In passes over the lists, a page
 * at a time, it tells what is new, what is another and what is gone. The first pass tells all there
 * is, so that a client needs no other request, and one that comes back has it anew. A pass costs
 * what a look at the lists costs, without printing them, and a stream some fifty bytes an entry. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/jobs/jobs.h"
#include "server/live/events.h"
#include "server/live/live.h"
#include "server/look/query.h"
#include "server/store/auth.h"

#define PAGE         64   /* entries looked at by one call */
#define MOST_GONE    1024 /* ids told by one event, at most and a page */
#define MOST_LOOK_MS 1.0  /* that pages with nothing to tell are looked at without a rest */

struct entry {
    uint64_t number, look, version;
    char id[ID_SIZE];
    bool is_gone;
};

union item {
    struct handle array;
    struct user_job *job;
};

struct feed;

/* What a list is of. */
struct kind {
    const char *name; /* of the events and of the member with the entries */
    /* ERR_NOT_FOUND: the session has ended */
    enum err_code (*page)(const struct feed *f, uint64_t after, union item *ret, size_t *ret_n,
                          bool *ret_more);
    struct entry (*mark)(const union item *x);
    void (*put)(struct json_writer *w, const union item *x);
    void (*release)(union item *x);
};

struct list {
    const struct kind *kind;
    struct entry *told; /* by number */
    size_t n, cap;
    uint64_t after; /* of the pass under way: the last number looked at */
    size_t at;      /* and the first entry behind it */
    bool is_known;  /* the first pass is over */
    bool begun;     /* it has had an event */
};

#define MOST_LISTS 2
struct feed {
    struct events events;
    struct principal *who;
    struct jobs *jobs;
    char session[ID_SIZE];
    bool touch; /* listening keeps the session from expiring, as asking does */
    struct list lists[MOST_LISTS];
    size_t n_lists, now; /* the list that the pass has come to */
    int64_t begun_ms;    /* the pass; */
    struct metered counted;
    _Atomic bool amid; /* it is not over */
};

/* --- arrays --- */

static enum err_code page_of_arrays(const struct feed *f, uint64_t after, union item *ret,
                                    size_t *ret_n, bool *ret_more)
{
    _cleanup_session_ struct session *s = NULL;
    struct handle page[PAGE];
    TRY(session_get(f->who->sessions, f->session, f->touch, &s, NULL));
    *ret_n = handle_list(s->handles, after, PAGE, page, ret_more);
    for (size_t i = 0; i < *ret_n; i++)
        ret[i].array = page[i];
    return ERR_OK;
}

static struct entry mark_array(const union item *x)
{
    const struct handle *h = &x->array;
    const struct handle_sight now = handle_sight_of(h);
    struct entry r = {.number = h->seq, .look = now.look, .version = now.version};
    memcpy(r.id, h->id, ID_SIZE);
    return r;
}

static void put_array(struct json_writer *w, const union item *x)
{
    meta_put(w, &x->array, true);
}

static void release_array(union item *x)
{
    handle_clear(&x->array);
}

/* --- jobs --- */

static enum err_code page_of_jobs(const struct feed *f, uint64_t after, union item *ret,
                                  size_t *ret_n, bool *ret_more)
{
    struct user_job *page[PAGE];
    *ret_n = jobs_list(f->jobs, f->who, after, PAGE, page, ret_more);
    for (size_t i = 0; i < *ret_n; i++)
        ret[i].job = page[i];
    return ERR_OK;
}

static struct entry mark_job(const union item *x)
{
    struct entry r = {.number = job_seq(x->job), .look = job_revision(x->job)};
    memcpy(r.id, job_id(x->job), ID_SIZE);
    return r;
}

static void put_job(struct json_writer *w, const union item *x)
{
    job_put(x->job, JOB_NO_VALUES, 0, JOB_TELL_BRIEF, w, NULL);
}

static void release_job(union item *x)
{
    job_unref(x->job);
}

static const struct kind arrays_kind = {"arrays", page_of_arrays, mark_array, put_array,
                                        release_array},
                         jobs_kind = {"jobs", page_of_jobs, mark_job, put_job, release_job};

/* --- a pass --- */

static bool add(struct feed *f, struct list *l, const struct entry *x)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : PAGE;
        size_t all = cap;
        for (size_t i = 0; i < f->n_lists; i++)
            all += &f->lists[i] == l ? 0 : f->lists[i].cap;
        struct entry *more = metered_set(&f->counted, (int64_t)(all * sizeof *more))
                                 ? mem_reallocarray(l->told, cap, sizeof *more)
                                 : NULL;
        if (!more)
            return false;
        l->told = more;
        l->cap = cap;
    }
    l->told[l->n++] = *x;
    return true;
}

/* What one page brings. */
struct news {
    bool is_fresh[PAGE];                   /* made, or another: it is printed */
    size_t written[PAGE], gone[MOST_GONE]; /* of its entries */
    size_t n_fresh, n_written, n_gone;
};

/* Entries before that number are not in the list any more. False: there are more of them than one
 * event tells. */
static bool pass_gone(struct list *l, uint64_t number, struct news *to)
{
    for (; l->at < l->n && l->told[l->at].number < number; l->at++) {
        if (to->n_gone == MOST_GONE)
            return false;
        l->told[l->at].is_gone = true;
        to->gone[to->n_gone++] = l->at;
    }
    return true;
}

static bool compare(struct feed *f, struct list *l, const union item *x, size_t i, struct news *to)
{
    const struct entry now = l->kind->mark(x);
    struct entry *before =
        l->at < l->n && l->told[l->at].number == now.number ? &l->told[l->at] : NULL;
    if (!before && !add(f, l, &now)) /* new ones are the last of a list */
        return false;
    to->is_fresh[i] = !before || before->look != now.look;
    to->n_fresh += to->is_fresh[i];
    if (before && before->version != now.version && !to->is_fresh[i])
        to->written[to->n_written++] = l->at;
    if (before)
        *before = now;
    l->at++;
    l->after = now.number;
    return true;
}

static void put_ids(struct json_writer *w, const char *member, const struct list *l,
                    const size_t *which, size_t n)
{
    json_put_key(w, member);
    json_open_list(w);
    for (size_t i = 0; i < n; i++)
        json_put_string(w, l->told[which[i]].id);
    json_close_list(w);
}

static void tell(struct feed *f, struct list *l, const union item *items, size_t n,
                 const struct news *news, bool more)
{
    struct json_writer w = events_open(&f->events, l->kind->name, NULL);
    json_open_object(&w);
    json_put_key(&w, l->kind->name);
    json_open_list(&w);
    for (size_t i = 0; i < n; i++)
        if (news->is_fresh[i])
            l->kind->put(&w, &items[i]);
    json_close_list(&w);
    if (l->kind == &arrays_kind)
        put_ids(&w, "written", l, news->written, news->n_written);
    put_ids(&w, "gone", l, news->gone, news->n_gone);
    json_put_member_bool(&w, "first", !l->begun);
    json_put_member_bool(&w, "more", more);
    json_close_object(&w);
    events_close(&f->events);
    l->begun = true;
}

/* The list has been looked through: forgets what is gone, and begins at its top the next time. */
static void end_list(struct feed *f, struct list *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++)
        if (!l->told[i].is_gone)
            l->told[kept++] = l->told[i];
    l->n = kept;
    l->at = 0;
    l->after = LIST_FROM_TOP;
    l->is_known = true;
    f->now++;
}

static bool look_at(struct feed *f, struct list *l, const union item *items, size_t n, bool more,
                    struct news *news)
{
    size_t i = 0;
    bool fits = true;
    for (; i < n && fits; i++) {
        fits = pass_gone(l, l->kind->mark(&items[i]).number, news);
        if (fits && !compare(f, l, &items[i], i, news))
            return false;
    }
    const bool over = fits && !more && pass_gone(l, UINT64_MAX, news);
    if (news->n_fresh + news->n_written + news->n_gone || (over && !l->is_known))
        tell(f, l, items, n, news, !l->is_known && !over);
    if (over)
        end_list(f, l);
    return true;
}

static void look(struct feed *f, struct list *l)
{
    union item items[PAGE];
    struct news news = {.n_fresh = 0};
    size_t n = 0;
    bool more = false;
    if (l->kind->page(f, l->after, items, &n, &more) != ERR_OK) {
        events_end(&f->events, "session_ended");
        return;
    }
    if (!look_at(f, l, items, n, more, &news))
        events_end(&f->events, "out_of_memory");
    for (size_t i = 0; i < n; i++)
        l->kind->release(&items[i]);
}

static bool due(const struct http_source *source)
{
    const struct feed *f = (const struct feed *)source;
    return events_due(&f->events) || atomic_load(&f->amid) || !events_wait(&f->events);
}

static void next(struct events *events)
{
    struct feed *f = (struct feed *)events;
    if (events_stop(events))
        return;
    if (!atomic_load(&f->amid)) {
        if (events_wait(events)) {
            events_comment(events);
            return;
        }
        f->begun_ms = events_now();
        f->now = 0;
        atomic_store(&f->amid, true);
    }
    const double until = clock_ms() + MOST_LOOK_MS;
    do
        look(f, &f->lists[f->now]);
    while (f->now < f->n_lists && !events->text.len && clock_ms() < until);
    if (f->now == f->n_lists) {
        atomic_store(&f->amid, false);
        atomic_store(&events->due_ms, f->begun_ms + (int64_t)events->interval_ms);
    }
    if (!events->text.len)
        events_comment(events);
}

static void release(struct events *events)
{
    struct feed *f = (struct feed *)events;
    for (size_t i = 0; i < f->n_lists; i++)
        mem_free(f->lists[i].told);
    metered_end(&f->counted);
}

/* --- the request --- */

static enum err_code begin(struct request *req, struct feed **ret, struct err *e)
{
    static const char *const query[] = {"interval", "arrays", "jobs", NULL};
    _cleanup_session_ struct session *s = NULL;
    double interval_ms;
    bool arrays = true, jobs = true;
    TRY(events_asked(req, query, &interval_ms, e));
    TRY(query_flag(req, "arrays", &arrays, e));
    TRY(query_flag(req, "jobs", &jobs, e));
    if (!arrays && !jobs)
        return err_set(e, ERR_BAD_FIELD, "arrays and jobs cannot both be false");
    TRY(session_of(req, &s, e));
    struct feed *f = events_new(sizeof *f);
    if (!f)
        return err_oom(e);
    f->events.next = next;
    f->events.release = release;
    f->events.source.due = due;
    f->events.source.expired = events_expired;
    f->events.interval_ms = interval_ms;
    f->who = req->principal;
    f->jobs = req->server->jobs;
    f->touch = !req->by_link;
    memcpy(f->session, s->id, ID_SIZE);
    if (arrays)
        f->lists[f->n_lists++].kind = &arrays_kind;
    if (jobs)
        f->lists[f->n_lists++].kind = &jobs_kind;
    atomic_store(&f->events.comment_ms, events_now() + KEEP_ALIVE_MS);
    *ret = f;
    return ERR_OK;
}

void list_events_get(struct request *req)
{
    struct err e = ERR_INIT;
    struct feed *f;
    if (begin(req, &f, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        events_reply(req, &f->events);
}
