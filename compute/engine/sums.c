/* A sum is an expression like any other, evaluated behind all else, and while there is other work
 * only so often that this is not felt. A round looks at all arrays, in passes that hold the
 * engine's lock briefly: what is new is marked, and what was marked in the round before and has not
 * been written since is summed. */
#include "compute/engine/sums.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/engine/engine.h"
#include "compute/memory/cells.h"
#include "compute/memory/memory_int.h"

#define OPERAND "u"
#define PAUSE_S 0.25
/* in which others get the lock */
#define NAP_S 0.001
/* Behind others' work a pass may take long, and an array that is deleted meanwhile is freed, and no
 * longer charged, only afterwards: so it pauses for so many times what the pass took. */
#define RESTS  9
#define LOOK_S 0.05
#define BATCH  64
/* of a pass: so much of the device's time, and of the engine's lock */
#define MOST_BYTES (INT64_C(1) << 30)
#define MOST_LOOKS 4096

struct device_sums {
    struct engine_stream *stream; /* NULL: not made yet */
    struct array *out;            /* BATCH of them */
};

struct sums {
    struct engine *engine;
    pthread_mutex_t lock;
    struct worker worker;
    struct account *account;
    struct arena *arena;
    struct expr expr;
    struct device_sums *devices;
    /* engine_clock, and how often an array had got other memory, at the start of the last round
     * that found nothing to do */
    uint64_t settled, placings;
    struct {
        uint64_t clock, placings; /* when it began */
        uint64_t after;           /* it looks at arrays that were used later */
        bool under_way, idle;     /* idle: there has been nothing to do so far */
    } round;
    _Atomic int64_t made;
    _Atomic bool stopping;
};

/* An array over all of a buffer's memory. */
struct words {
    struct array *array;
    uint32_t cell;
    uint64_t sum; /* that its cell has, if they are gathered to be compared */
    int64_t got;  /* if `summed` */
    bool summed;
};

struct list {
    struct words *all;
    size_t n, cap;
};

/* --- evaluating --- */

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct array *a = user;
    (void)e;
    *ret = (struct binding){0};
    if (!strcmp(name, OPERAND))
        *ret =
            (struct binding){.kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

/* A stream for what may wait, and memory for the results. */
static enum err_code open_device(struct sums *s, int device, struct err *e)
{
    struct device_sums *d = &s->devices[device];
    if (!d->stream) {
        struct engine_stream *first;
        TRY(engine_stream_new(s->engine, device, &first, e));
        const enum err_code code = engine_stream_background(first, &d->stream, e);
        engine_stream_unref(first);
        TRY(code);
    }
    if (!d->out)
        TRY(array_internal(s->engine, s->account, device, DT_I64, BATCH, &d->out, e));
    return ERR_OK;
}

static void wake(void *user)
{
    sem_post(user);
}

static void wait_a_little(sem_t *more)
{
    const struct timespec until = clock_after(LOOK_S);
    (void)sem_clockwait(more, CLOCK_MONOTONIC, &until);
}

/* All that is asked of the results, unless the engine is to have no more of this. */
static enum err_code pull(struct sums *s, const struct device_sums *dev, int64_t *ret,
                          int64_t bytes, struct err *e)
{
    struct download *d = NULL;
    sem_t more;
    int64_t have = 0;
    sem_init(&more, 0, 0);
    enum err_code code = download_new(dev->stream, dev->out, wake, &more, &d, e);
    while (code == ERR_OK && have < bytes) {
        const int64_t got = download_pull(d, have, (char *)ret + have, (size_t)(bytes - have));
        have += got > 0 ? got : 0;
        if (got < 0)
            code = err_set(e, download_result(d), "the sums cannot be read");
        else if (atomic_load(&s->stopping))
            code = err_set(e, ERR_DRAINING, "the engine is closing");
        else if (got == 0)
            wait_a_little(&more);
    }
    if (d)
        download_free(d);
    sem_destroy(&more);
    return code;
}

/* Of one device, and at most BATCH. */
static enum err_code sum_batch(struct sums *s, struct words *w, size_t n, struct err *e)
{
    const int device = array_device(w->array);
    const struct view one = {0};
    int64_t got[BATCH];
    TRY(open_device(s, device, e));
    struct device_sums *d = &s->devices[device];
    for (size_t i = 0; i < n; i++) {
        struct check_env env = {.resolve = resolve, .user = w[i].array, .max_inputs = 1};
        struct array *same;
        const struct eval_request q = {.expr = &s->expr,
                                       .env = &env,
                                       .dtype = -1,
                                       .out = d->out,
                                       .out_view = &one,
                                       .out_at = (int64_t)i,
                                       .unused = true};
        TRY(engine_evaluate(d->stream, s->account, &q, &same, NULL, NULL, NULL, e));
        array_unref(same);
    }
    TRY(pull(s, d, got, (int64_t)(n * sizeof *got), e));
    for (size_t i = 0; i < n; i++) {
        w[i].got = got[i];
        w[i].summed = true;
    }
    return ERR_OK;
}

/* As far as that works; the first error. */
static enum err_code sum_all(struct sums *s, struct list *l, struct err *e)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0, n; i < l->n; i += n) {
        for (n = 1; n < BATCH && i + n < l->n; n++)
            if (array_device(l->all[i + n].array) != array_device(l->all[i].array))
                break;
        const enum err_code batch = sum_batch(s, &l->all[i], n, code == ERR_OK ? e : NULL);
        code = code == ERR_OK ? batch : code;
    }
    return code;
}

/* --- which arrays --- */

static struct cell *cell_of(const struct storage *st)
{
    return cells_at(st->engine->cells, st->cell);
}

/* Whether its memory can have a sum: it outlives the process and is on the device, and no other
 * process writes it. Not the results, which may have moved to such memory and back. */
static bool can_have_one(const struct buffer *b)
{
    const struct storage *st = b->storage;
    return !b->is_internal && st->cell && !st->host && st->size > 0 &&
           !atomic_load(&st->exported) && atomic_load(&st->failed) == ERR_OK;
}

/* Whether to sum it now. Marks what has no sum yet. *ret_later: another time. */
static bool is_wanted(struct cell *c, bool *ret_later)
{
    uint64_t is = CELL_SUM_NONE;
    if (atomic_load(&c->writing) == 0 &&
        !atomic_compare_exchange_strong(&c->sum, &is, CELL_SUM_QUIET))
        return is == CELL_SUM_QUIET;
    *ret_later = true;
    return false;
}

static bool grown(struct list *l)
{
    const size_t cap = l->cap ? 2 * l->cap : BATCH;
    if (l->n < l->cap)
        return true;
    struct words *all = mem_reallocarray(l->all, cap, sizeof *all);
    if (!all)
        return false;
    l->all = all;
    l->cap = cap;
    return true;
}

static void add_words(struct list *l, struct buffer *b, uint64_t sum)
{
    struct words w = {.cell = b->storage->cell, .sum = sum};
    w.array = grown(l) ? buffer_words(b) : NULL;
    if (w.array)
        l->all[l->n++] = w;
}

/* From where the last pass of this round stopped, a batch of what is to be summed: a first one, and
 * others as far as MOST_BYTES go. Returns whether the round is over. *ret_later: others may be
 * wanted later. */
static bool gather(struct sums *s, struct list *ret, bool *ret_later)
{
    struct engine *g = s->engine;
    size_t looked = 0;
    int64_t bytes = 0;
    *ret_later = false;
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&g->buffers_lock);
    struct buffer *b = g->next_summed ? g->next_summed : g->newest;
    for (; b && atomic_load(&b->used) > s->round.after; b = b->older) {
        const struct storage *st = b->storage;
        if (ret->n == BATCH || looked++ == MOST_LOOKS)
            break;
        if (!can_have_one(b) || !is_wanted(cell_of(st), ret_later))
            continue;
        bytes += st->size;
        if (ret->n > 0 && bytes > MOST_BYTES)
            break;
        add_words(ret, b, CELL_SUM_NONE);
    }
    const bool over = !b || atomic_load(&b->used) <= s->round.after;
    g->next_summed = over ? NULL : b;
    pthread_mutex_unlock(&g->buffers_lock);
    pthread_mutex_unlock(&g->lock);
    return over;
}

/* All of which a previous process noted a sum. */
static void gather_noted(const struct sums *s, struct list *ret)
{
    struct engine *g = s->engine;
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&g->buffers_lock);
    for (struct buffer *b = g->newest; b; b = b->older) {
        const uint64_t sum =
            can_have_one(b) ? atomic_load(&cell_of(b->storage)->sum) : CELL_SUM_NONE;
        if (sum >= CELL_SUM_LEAST)
            add_words(ret, b, sum);
    }
    pthread_mutex_unlock(&g->buffers_lock);
    pthread_mutex_unlock(&g->lock);
}

static void release(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        buffer_words_release(l->all[i].array);
    mem_free(l->all);
}

static uint64_t as_sum(int64_t got)
{
    const uint64_t sum = (uint64_t)got;
    return sum < CELL_SUM_LEAST ? sum + CELL_SUM_LEAST : sum;
}

/* --- making them --- */

/* What is written meanwhile has CELL_SUM_NONE, or (marked again) CELL_SUM_QUIET. */
static void begin(const struct sums *s, struct list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t quiet = CELL_SUM_QUIET;
        struct cell *c = cells_at(s->engine->cells, l->all[i].cell);
        if (atomic_compare_exchange_strong(&c->sum, &quiet, CELL_SUM_UNDER_WAY))
            l->all[n++] = l->all[i];
        else
            buffer_words_release(l->all[i].array);
    }
    l->n = n;
}

static void end(struct sums *s, const struct list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        uint64_t mine = CELL_SUM_UNDER_WAY;
        struct cell *c = cells_at(s->engine->cells, l->all[i].cell);
        const uint64_t sum = l->all[i].summed ? as_sum(l->all[i].got) : CELL_SUM_NONE;
        if (atomic_compare_exchange_strong(&c->sum, &mine, sum) && l->all[i].summed)
            atomic_fetch_add(&s->made, 1);
    }
}

/* False: there is nothing to look at. */
static bool begin_round(struct sums *s)
{
    s->round.clock = engine_clock(s->engine);
    s->round.placings = atomic_load(&s->engine->placings);
    s->round.after = s->round.placings == s->placings ? s->settled : 0;
    s->round.idle = true;
    s->round.under_way = s->round.clock != s->round.after;
    return s->round.under_way;
}

static void drop_results(struct sums *s)
{
    for (int i = 0; i < engine_device_count(s->engine); i++) {
        array_unref(s->devices[i].out);
        s->devices[i].out = NULL;
    }
}

static void end_round(struct sums *s)
{
    s->round.under_way = false;
    if (!s->round.idle)
        return;
    s->settled = s->round.clock;
    s->placings = s->round.placings;
}

/* Seconds until the next. */
static double pass(struct sums *s)
{
    const double began = clock_ms();
    struct list l = {0};
    bool later;
    if (!s->round.under_way && !begin_round(s))
        return PAUSE_S;
    const bool over = gather(s, &l, &later);
    s->round.idle &= l.n == 0 && !later;
    if (over)
        end_round(s);
    begin(s, &l);
    const bool fine = sum_all(s, &l, NULL) == ERR_OK;
    end(s, &l);
    release(&l);
    if (!over && fine && engine_jobs_in_flight(s->engine) == 0)
        return NAP_S;
    drop_results(s); /* they count as memory in use, and the pause may be long */
    const double pause = RESTS * (clock_ms() - began) / 1000;
    return pause > PAUSE_S ? pause : PAUSE_S;
}

static double step(void *user)
{
    struct sums *s = user;
    pthread_mutex_unlock(&s->lock);
    const double next = pass(s);
    pthread_mutex_lock(&s->lock);
    return worker_is_stopped(&s->worker) ? WORKER_RESTS : next;
}

/* --- comparing them --- */

/* All that a previous process noted: how many there are, and how many differ, whose contents are
 * lost now. */
static enum err_code compare(struct sums *s, size_t *ret_compared, size_t *ret_changed,
                             struct err *e)
{
    struct list l = {0};
    gather_noted(s, &l);
    const enum err_code code = sum_all(s, &l, e);
    for (size_t i = 0; i < l.n; i++) {
        *ret_compared += l.all[i].summed;
        if (l.all[i].summed && l.all[i].sum != as_sum(l.all[i].got)) {
            buffer_lose(l.all[i].array->buffer);
            ++*ret_changed;
        }
    }
    release(&l);
    return code;
}

/* --- opening and closing --- */

static enum err_code add(struct expr *x, struct expr_node n, const uint32_t *args, size_t n_args,
                         uint32_t *ret, struct err *e)
{
    struct expr_link links[2] = {{0}};
    n.parent = EXPR_NOWHERE;
    for (size_t i = 0; i < n_args; i++)
        links[i].node = args[i];
    return expr_add(x, &n, links, n_args, 0, ret, e);
}

static enum err_code call(struct expr *x, const char *name, uint32_t a, uint32_t b, uint32_t *ret,
                          struct err *e)
{
    const uint32_t args[] = {a, b};
    const struct expr_node n = {.kind = EXPR_CALL, .name = name};
    return add(x, n, args, b == EXPR_NOWHERE ? 1 : 2, ret, e);
}

static enum err_code number(struct expr *x, int64_t value, uint32_t *ret, struct err *e)
{
    const struct expr_node n = {.kind = EXPR_LITERAL, .lit = {.kind = LIT_INT, .i = value}};
    return add(x, n, NULL, 0, ret, e);
}

/* sum(astype(u, 'int64') * (2*index(0) + 1)), modulo 2^64: each word that changes by itself changes
 * it. */
static enum err_code write_sum(struct expr *x, struct err *e)
{
    uint32_t source, u, type, zero, two, one, at, value;
    const struct expr_node name = {.kind = EXPR_NAME, .name = OPERAND},
                           int64 = {.kind = EXPR_STRING, .name = "int64"};
    TRY(expr_add_source(x, "", &source, e));
    TRY(add(x, name, NULL, 0, &u, e));
    TRY(add(x, int64, NULL, 0, &type, e));
    TRY(call(x, "astype", u, type, &value, e));
    TRY(number(x, 2, &two, e));
    TRY(number(x, 0, &zero, e));
    TRY(call(x, "index", zero, EXPR_NOWHERE, &at, e));
    TRY(call(x, "multiply", two, at, &at, e));
    TRY(number(x, 1, &one, e));
    TRY(call(x, "add", at, one, &at, e));
    TRY(call(x, "multiply", value, at, &value, e));
    return call(x, "sum", value, EXPR_NOWHERE, &x->root, e);
}

static struct sums *sums_new(struct engine *g)
{
    struct err e = ERR_INIT;
    struct sums *s = mem_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->engine = g;
    s->worker = (struct worker){.name = "arrayd-sums", .lock = &s->lock, .step = step, .user = s};
    pthread_mutex_init(&s->lock, NULL); /* cannot fail here */
    worker_init(&s->worker);
    s->account = account_new(0);
    s->arena = arena_new(0);
    s->devices = mem_calloc((size_t)engine_device_count(g), sizeof *s->devices);
    if (s->arena)
        expr_init(&s->expr, s->arena, 100, 100);
    if (s->account && s->arena && s->devices && write_sum(&s->expr, &e) == ERR_OK)
        return s;
    sums_free(s);
    return NULL;
}

void engine_sums_stop(struct engine *g)
{
    struct sums *s = g->sums;
    if (!s)
        return;
    atomic_store(&s->stopping, true);
    worker_stop(&s->worker);
    for (int i = 0; i < engine_device_count(g); i++) {
        array_unref(s->devices[i].out);
        engine_stream_unref(s->devices[i].stream);
        s->devices[i] = (struct device_sums){0};
    }
}

int64_t sums_made(const struct sums *s)
{
    return s ? atomic_load(&s->made) : 0;
}

void sums_free(struct sums *s)
{
    if (!s)
        return;
    worker_destroy(&s->worker);
    pthread_mutex_destroy(&s->lock);
    account_unref(s->account);
    arena_free(s->arena);
    mem_free(s->devices);
    mem_free(s);
}

enum err_code engine_sums(struct engine *g, size_t *ret_compared, size_t *ret_changed,
                          struct err *e)
{
    *ret_compared = *ret_changed = 0;
    if (!g->cells || !g->backend->ops->faults)
        return ERR_OK;
    g->sums = sums_new(g);
    if (!g->sums)
        return err_oom(e);
    const enum err_code code = compare(g->sums, ret_compared, ret_changed, e);
    if (!worker_start(&g->sums->worker))
        return err_oom(e);
    return code;
}
