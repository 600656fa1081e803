/* Names with the keeper: "journal", "cells", and the chunks' (held_chunks.h). The previous
 * process's journal is only read; recovering fills a new one by the tables' own calls, which takes
 * its place once all is there. Let go of by then are chunks that are none, or in which nothing
 * lies, and connections of ended exports. */
#include "server/survive.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/table.h"
#include "compute/engine/engine.h"
#include "server/config/config.h"
#include "server/exports/export.h"
#include "server/exports/export_socket.h"
#include "server/jobs/jobs.h"
#include "server/keeper/hold.h"
#include "server/kept/held_chunks.h"
#include "server/kept/journal_writer.h"
#include "server/kept/recover.h"
#include "server/server.h"

/* The check before an upgrade looks at the journal's version alone. It covers the names here, too:
 * another form of them is another version. */
_Static_assert(JOURNAL_VERSION_PLAIN == ENGINE_KEEP_VERSION, "one version for all that is left");

#define OTHER_VERSION                                                                              \
    ": start a version that knows it, or discard its arrays by one start with keep-arrays = no"
#define JOURNAL      "journal"
#define CELLS        "cells"
#define PLACED       16 /* buffers placed at once without allocating */
#define VERSION_MESH 5  /* of a journal with memory of the mesh */

/* A buffer whose memory the keeper does not hold. */
struct unheld {
    uint64_t buffer;
    UT_hash_handle hh;
};

struct survive {
    struct hold *hold;
    struct held_chunks *chunks;
    char left_backend[HELD_BACKEND]; /* that made the chunks that were left; "": there are none */
    const struct engine *engine;     /* from survive_problem on */
    struct journal *left;            /* the previous process's; NULL: none, or taken over */
    bool doubtful;                   /* changes are missing at its end */
    struct journal *journal;
    struct journal_writer *writer;
    pthread_mutex_t lock;
    struct unheld *unheld;  /* under the lock, as is: */
    bool forgot_unheld;     /* for lack of memory */
    _Atomic bool published; /* the keeper has the new journal */
    _Atomic bool stopped;
    _Atomic bool refused; /* the last chunk */
    bool vain; /* no device's memory outlives the process: nothing is written or taken over */
    /* while taking over */
    struct server *server;
    uint64_t last;          /* the highest number of a memory */
    struct array **leaving; /* arrays that are to leave their memory */
    size_t n_leaving;
    char missing[128];
};

/* --- what the engine tells --- */

/* Programs that know no memory of the mesh do not take the journal over. */
static void note_version(struct survive *v)
{
    if (held_chunks_of_mesh(v->chunks))
        journal_needs(v->journal, VERSION_MESH);
}

/* Clients may ask for more and more: the log has a line for the first that is refused, and again
 * after one that was not. */
static enum err_code put_chunk(void *user, uint64_t number, int device, int64_t size,
                               const int *fds, int n, struct err *e)
{
    struct survive *v = user;
    struct err why = ERR_INIT;
    enum err_code code = held_chunks_put(v->chunks, number, device, size, fds, n, &why);
    if (code != ERR_OK)
        err_set(e, code, "%s", why.message);
    else
        note_version(v);
    if (!atomic_exchange(&v->refused, code != ERR_OK) && code != ERR_OK)
        log_event(LOG_WARN,
                  "the keeper did not take an array's memory, which will not outlive this "
                  "process",
                  "reason", why.message, NULL);
    return code;
}

static void drop_chunk(void *user, uint64_t number)
{
    struct survive *v = user;
    held_chunks_drop(v->chunks, number, atomic_load(&v->stopped));
}

static void put_cells(void *user, int fd)
{
    struct survive *v = user;
    struct err e = ERR_INIT;
    if (hold_put(v->hold, CELLS, fd, &e) != ERR_OK)
        log_event(LOG_WARN, "arrays will not outlive this process", "reason", e.message, NULL);
}

static struct kept_place kept_place_of(const struct engine_place *p)
{
    return (struct kept_place){.chunk = p->chunk,
                               .cell = p->cell,
                               .offset = p->offset,
                               .host = p->host,
                               .own = p->own,
                               .exported = p->exported,
                               .outstayed = p->outstayed};
}

static struct kept_memory memory_of(const struct survive *v, const struct engine_placed *x)
{
    return (struct kept_memory){.number = x->buffer,
                                .bytes = x->place.bytes,
                                .device = engine_kept_device(v->engine, x->place.device),
                                .at = kept_place_of(&x->place),
                                .was = kept_place_of(&x->was)};
}

static void note_held(struct survive *v, uint64_t buffer, bool held)
{
    struct unheld *x;
    pthread_mutex_lock(&v->lock);
    HASH_FIND(hh, v->unheld, &buffer, sizeof buffer, x);
    if (held && x) {
        HASH_DEL(v->unheld, x);
        mem_free(x);
    } else if (!held && !x) {
        x = mem_calloc(1, sizeof *x);
        if (x) {
            x->buffer = buffer;
            HASH_ADD(hh, v->unheld, buffer, sizeof x->buffer, x);
        }
        if (!x || !x->hh.tbl) {
            mem_free(x);
            v->forgot_unheld = true;
        }
    }
    pthread_mutex_unlock(&v->lock);
}

/* `with`: a struct record_items. */
static void placed(void *user, const struct engine_placed *all, uint32_t n, const void *with)
{
    struct survive *v = user;
    struct kept_memory few[PLACED], *m = n <= PLACED ? few : mem_calloc(n, sizeof *m);
    struct err e = ERR_INIT;
    enum err_code code = m ? ERR_OK : err_oom(&e);
    for (uint32_t i = 0; m && i < n; i++)
        m[i] = memory_of(v, &all[i]);
    for (uint32_t i = 0; i < n; i++)
        note_held(v, all[i].buffer, all[i].place.chunk || all[i].place.bytes == 0);
    if (code == ERR_OK)
        code = writer_placed(v->writer, m, n, with, &e);
    if (code != ERR_OK)
        log_event(LOG_ERROR, "the next process will not know where an array's memory is", "reason",
                  e.message, NULL);
    if (m != few)
        mem_free(m);
}

static void gone(void *user, uint64_t buffer)
{
    struct survive *v = user;
    note_held(v, buffer, true);
    writer_unplaced(v->writer, buffer);
}

static void limit(void *user, const char *option, bool reached)
{
    const char *says = reached ? "a limit is reached: new or moved arrays end with this process"
                               : "new arrays outlive this process again";
    (void)user;
    log_event(reached ? LOG_WARN : LOG_INFO, says, "option", option, NULL);
}

/* The log has been rewritten. */
static enum err_code moved(void *user, int fd, struct err *e)
{
    struct survive *v = user;
    struct err why = ERR_INIT;
    if (!atomic_load(&v->published) || hold_put(v->hold, JOURNAL, fd, &why) == ERR_OK)
        return ERR_OK;
    log_event(LOG_ERROR,
              "the keeper did not take the journal as it was rewritten: it stays as it was",
              "reason", why.message, NULL);
    return err_set(e, why.code, "%s", why.message);
}

/* --- opening --- */

/* What the previous process left. A journal that cannot be read is treated as missing. */
static enum err_code open_left(struct survive *v, struct err *e)
{
    struct journal_damage damage = {0};
    struct err why = ERR_INIT;
    int fd = hold_take(v->hold, JOURNAL);
    if (fd < 0)
        return ERR_OK;
    enum err_code code = journal_read(fd, &v->left, &damage, &why);
    v->doubtful = damage.missing;
    if (code == ERR_OUT_OF_MEMORY || code == ERR_CONFLICT)
        return err_set(e, code, "%s%s", why.message, code == ERR_CONFLICT ? OTHER_VERSION : "");
    if (code != ERR_OK)
        log_event(LOG_ERROR, "what the previous process left cannot be read", "reason", why.message,
                  NULL);
    else if (damage.records || damage.missing)
        log_event(LOG_ERROR, "the journal of the previous process is damaged", NULL);
    return ERR_OK;
}

/* Memory that no journal tells of, before new memory gets the same names. */
static void drop_left(struct survive *v)
{
    held_chunks_discard(v->chunks);
    int cells = hold_take(v->hold, CELLS);
    if (cells >= 0)
        close(cells); /* the new ones take their place */
}

enum err_code survive_open(const struct config *config, struct hold *hold, struct survive **ret,
                           struct err *e)
{
    *ret = NULL;
    if (!hold || !config->keep_arrays)
        return ERR_OK;
    struct survive *v = mem_calloc(1, sizeof *v);
    if (!v)
        return err_oom(e);
    pthread_mutex_init(&v->lock, NULL);
    v->hold = hold;
    const struct journal_config jc = {.most = (size_t)config->journal_size,
                                      .least = writer_least,
                                      .shared = config->accounts,
                                      .moved = moved,
                                      .user = v};
    v->chunks = held_chunks_new(hold);
    enum err_code code = v->chunks ? open_left(v, e) : err_oom(e);
    if (code == ERR_OK && !v->left)
        drop_left(v);
    if (code == ERR_OK)
        code = journal_open(&jc, &v->journal, e);
    if (code == ERR_OK) {
        v->writer = writer_new(v->journal);
        code = v->writer ? ERR_OK : err_oom(e);
    }
    if (code == ERR_OK)
        *ret = v;
    else
        survive_free(v);
    return code;
}

void survive_free(struct survive *v)
{
    if (!v)
        return;
    writer_free(v->writer);
    journal_close(v->journal);
    journal_close(v->left);
    held_chunks_free(v->chunks);
    while (v->unheld) {
        struct unheld *x = v->unheld;
        HASH_DEL(v->unheld, x);
        mem_free(x);
    }
    pthread_mutex_destroy(&v->lock);
    mem_free(v);
}

/* The chunks that were left can be mapped by the backend that made them, and by no other: `auto` is
 * that one. If it cannot be opened now, it may be the next time. */
static enum err_code choose_backend(struct survive *v, struct engine_config *ec, struct err *e)
{
    held_chunks_backend(v->chunks, v->left_backend);
    if (!*v->left_backend)
        return ERR_OK;
    if (!strcmp(ec->backend, "auto"))
        ec->backend = v->left_backend;
    if (strcmp(ec->backend, v->left_backend) != 0)
        return err_set(e, ERR_STATE,
                       "the arrays of the previous process are in memory of the backend %s, but "
                       "the option backend is %s: set it to %s or auto, or discard the arrays with "
                       "keep-arrays = no",
                       v->left_backend, ec->backend, v->left_backend);
    return ERR_OK;
}

enum err_code survive_configure(struct survive *v, struct engine_config *ec, struct err *e)
{
    if (!v)
        return ERR_OK;
    TRY(choose_backend(v, ec, e));
    ec->keep = (struct engine_keep){.put = put_chunk,
                                    .drop = drop_chunk,
                                    .cells = put_cells,
                                    .placed = placed,
                                    .gone = gone,
                                    .limit = limit,
                                    .user = v};
    ec->cells = hold_take(v->hold, CELLS);
    ec->signal = hold_signal(v->hold);
    ec->ended = hold_ended(v->hold);
    ec->device.before = hold_before(v->hold);
    return ERR_OK;
}

const char *survive_problem(struct survive *v, const struct server *s)
{
    const char *problem = NULL;
    int n_can = 0;
    if (!s->hold)
        return "there is no keeper";
    if (!v)
        return "keep-arrays is no";
    v->engine = s->engine;
    held_chunks_engine(v->chunks, s->engine);
    for (int i = engine_single_count(s->engine) - 1; i >= 0; i--) {
        const char *why = engine_keep_problem(s->engine, i);
        n_can += !why;
        problem = why ? why : problem;
    }
    if (n_can == 0) {
        v->vain = true;
        writer_stop(v->writer);
    }
    return problem;
}

const struct observer *survive_observer(struct survive *v)
{
    return v && !v->vain ? writer_observer(v->writer) : NULL;
}

/* --- recovering --- */

static struct engine_place place_of(const struct survive *v, const struct kept_memory *m,
                                    const struct kept_place *p)
{
    return (struct engine_place){.chunk = p->chunk,
                                 .offset = p->offset,
                                 .bytes = m->bytes,
                                 .cell = (uint32_t)p->cell,
                                 .device = engine_device_kept(v->engine, m->device),
                                 .own = p->own,
                                 .host = p->host,
                                 .exported = p->exported,
                                 .outstayed = p->outstayed};
}

static enum err_code adopt(void *user, const struct kept_memory *m, struct account *payer,
                           struct array **ret, struct err *e)
{
    struct survive *v = user;
    const struct engine_placed x = {m->number, place_of(v, m, &m->at), place_of(v, m, &m->was)};
    v->last = m->number > v->last ? m->number : v->last;
    return engine_adopt(v->server->engine, payer, &x, ret, e);
}

static void adopted(void *user)
{
    struct survive *v = user;
    engine_adopted(v->server->engine, v->last);
}

static enum err_code restore_job(void *user, const struct kept_job *j, struct err *e)
{
    struct survive *v = user;
    return jobs_restore(v->server->jobs, v->server, j, e);
}

static enum err_code leave(void *user, struct array *base, struct err *e)
{
    struct survive *v = user;
    struct array **more = mem_reallocarray(v->leaving, v->n_leaving + 1, sizeof *more);
    if (!more)
        return err_oom(e);
    v->leaving = more;
    v->leaving[v->n_leaving++] = array_ref(base);
    return ERR_OK;
}

/* Not before the keeper has the new journal: the old one does not know where they go. */
static void leave_all(struct survive *v, bool published)
{
    for (size_t i = 0; i < v->n_leaving; i++) {
        if (published)
            exports_forget(v->server->engine, v->leaving[i]);
        array_unref(v->leaving[i]);
    }
    mem_free(v->leaving);
    v->leaving = NULL;
    v->n_leaving = 0;
}

static bool export_again(void *user, const struct lease_image *lease, struct array *base)
{
    const struct server *s = ((struct survive *)user)->server;
    char buffer[24];
    snprintf(buffer, sizeof buffer, "%" PRIu64, lease->buffer);
    if (!s->exports)
        log_event(LOG_WARN,
                  "an export of the previous process ends, since exports are off: its client may "
                  "have the memory mapped all the same",
                  "array_buffer", buffer, "principal", lease->who ? lease->who->name : "", NULL);
    return s->exports && export_socket_adopt(s->export_socket, s->exports, lease, base);
}

static void report(const struct recover_report *r, double seconds)
{
    char arrays[24], sessions[24], jobs[24], left[24], over[24], took[24];
    snprintf(arrays, sizeof arrays, "%" PRId64, r->arrays);
    snprintf(sessions, sizeof sessions, "%" PRId64, r->sessions);
    snprintf(jobs, sizeof jobs, "%" PRId64, r->jobs);
    snprintf(left, sizeof left, "%" PRId64, r->left_to_state);
    snprintf(over, sizeof over, "%" PRId64, r->passed_over);
    snprintf(took, sizeof took, "%.4f", seconds);
    log_event(r->passed_over ? LOG_WARN : LOG_INFO, "taken over from the previous process",
              "arrays", arrays, "sessions", sessions, "passed_over", over, "left_to_state", left,
              "jobs", jobs, "seconds", took, NULL);
}

static enum err_code take_over(struct survive *v, struct server *s, struct err *e)
{
    const struct recover_config rc = {.server = s,
                                      .adopt = adopt,
                                      .leave = leave,
                                      .adopted = adopted,
                                      .job = restore_job,
                                      .export_again = export_again,
                                      .user = v};
    struct recover_report r = {0};
    double begun = clock_s();
    v->server = s;
    TRY(held_chunks_adopt(v->chunks, e));
    note_version(v);
    TRY(recover_all(&rc, v->left, v->doubtful, &r, e));
    journal_close(v->left);
    v->left = NULL;
    report(&r, clock_s() - begun);
    if (r.passed_over)
        snprintf(v->missing, sizeof v->missing,
                 "%" PRId64 " arrays or other things could not be taken over: the log names them",
                 r.passed_over);
    return ERR_OK;
}

enum err_code survive_recover(struct survive *v, struct server *s, bool *ret, struct err *e)
{
    *ret = v && v->left && !v->vain;
    if (!v)
        return ERR_OK;
    if (v->vain && *v->left_backend)
        return err_set(e, ERR_OVERLOADED, "memory of the previous process cannot be mapped now: %s",
                       s->keep_problem);
    if (v->vain) {
        hold_drop(v->hold, JOURNAL);
        return ERR_OK;
    }
    enum err_code code = *ret ? take_over(v, s, e) : ERR_OK;
    if (code == ERR_OK) {
        atomic_store(&v->published, true);
        code = hold_put(v->hold, JOURNAL, journal_fd(v->journal), e);
    }
    leave_all(v, code == ERR_OK);
    return code;
}

const char *survive_missing(const struct survive *v)
{
    return v ? v->missing : "";
}

bool survive_holds_all(struct survive *v)
{
    if (!v || v->vain || writer_refused(v->writer) > 0)
        return false;
    pthread_mutex_lock(&v->lock);
    const bool all = !v->unheld && !v->forgot_unheld;
    pthread_mutex_unlock(&v->lock);
    return all;
}

void survive_stop(struct survive *v)
{
    if (v) {
        writer_stop(v->writer);
        atomic_store(&v->stopped, true);
    }
}

struct journal_writer *survive_writer(struct survive *v)
{
    return v && !v->vain ? v->writer : NULL;
}
