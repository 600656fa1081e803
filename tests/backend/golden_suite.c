/* Every operation, cast and random stream of the golden tables through the whole engine, on a named
 * backend and in several layouts: golden_suite BACKEND [EVERY [TEXT]]. Operands and target lie
 * contiguous, spread (every other element, something else between), reversed, or as the columns of
 * a matrix; what lies between the target's elements must not change. EVERY takes only one record in
 * so many, for slow checkers, TEXT only those whose line in the tables contains it. Exit 77 when
 * the backend is not available.
 *
 * Nearly every run is a kernel of its own, so a batch of them is submitted before the results of
 * the batch before it are fetched: a backend that compiles does so on all cores meanwhile. The two
 * batches have a stream each, because a download waits for all that its stream was asked before. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/check/check.h"
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "tests/backend/suite.h"
#include "tests/golden/golden.h"

enum layout { CONTIGUOUS, SPREAD, REVERSED, COLUMN, N_LAYOUTS };
static const char *const layout_names[] = {"contiguous", "spread", "reversed", "column"};

#define BATCH 128 /* runs */

/* One record in one layout, submitted. */
struct golden_run {
    const struct golden_record *record;
    enum layout in, out;
    struct array *args[2], *target, *ret;
    char why[1400]; /* it failed */
};

struct suite {
    struct engine *g;
    struct engine_stream *streams[2], *s; /* s: of the batch in hand */
    struct account *account;
    size_t tested, failed;
};

/* Elements a buffer needs for n of them, and the view that finds them there. */
static int64_t place(enum layout l, int64_t n, struct view *v)
{
    static const int64_t step[] = {1, 2, -1, 5};
    memset(v, 0, sizeof *v);
    v->rank = 1;
    v->shape[0] = n;
    v->strides[0] = step[l];
    v->offset = l == REVERSED ? n - 1 : l == CONTIGUOUS ? 0 : 1;
    return l == SPREAD ? 2 * n + 1 : l == COLUMN ? 5 * n : n;
}

/* Uploads n elements of `bytes` in a layout; filler is 0xA5. */
static struct array *put(struct suite *t, enum dtype dtype, enum layout l, const void *bytes,
                         int64_t n)
{
    size_t size = dtype_size(dtype);
    struct view v;
    int64_t total = place(l, n, &v);
    unsigned char *buf = malloc((size_t)total * size);
    memset(buf, dtype == DT_BOOL ? 1 : 0xA5, (size_t)total * size);
    for (int64_t i = 0; bytes && i < n; i++)
        memcpy(buf + (size_t)(v.offset + i * v.strides[0]) * size,
               (const char *)bytes + (size_t)i * size, size);
    struct upload *u = NULL;
    struct array *whole = NULL;
    enum err_code code = upload_new(t->s, t->account, total * (int64_t)size, NULL, NULL, &u, NULL);
    assert(code == ERR_OK);
    for (size_t at = 0, n_bytes = (size_t)total * size, took; at < n_bytes; at += took)
        if (!(took = upload_push(u, buf + at, n_bytes - at)))
            usleep(20);
    code = upload_finish_new(u, dtype, 1, &total, false, &whole, NULL);
    assert(code == ERR_OK);
    (void)code;
    free(buf);
    struct array *a = array_view(whole, dtype, &v);
    array_unref(whole);
    return a;
}

/* ERR_OK, or why the contents are not there. */
static enum err_code fetch(struct suite *t, struct array *a, void *to)
{
    struct download *d = NULL;
    enum err_code code = download_new(t->s, a, NULL, NULL, &d, NULL);
    assert(code == ERR_OK);
    for (int64_t n = array_nbytes(a), at = 0, got; at < n; at += got) {
        got = download_pull(d, at, (char *)to + at, (size_t)(n - at));
        if (got == 0)
            usleep(20);
        if (got < 0) {
            code = download_result(d);
            break;
        }
    }
    download_free(d);
    return code;
}

static uint32_t node(struct arena *arena, struct typed *g, struct typed_node n,
                     const int64_t *shape)
{
    n.rank = 1;
    n.shape = shape;
    return typed_add(arena, g, &n);
}

static void build(struct arena *arena, struct typed *g, const struct golden_record *r,
                  struct array **args)
{
    int64_t *shape = arena_alloc(arena, sizeof *shape);
    *shape = (int64_t)r->n;
    g->inputs = arena_alloc_array(arena, 2, sizeof *g->inputs);
    struct typed_node n = {.dtype = r->to, .n_args = r->n_args};
    for (int i = 0; i < r->n_args; i++) {
        g->inputs[i] = (struct typed_input){args[i], args[i]->dtype, args[i]->view, "x"};
        n.args[i] = node(
            arena, g,
            (struct typed_node){.kind = T_INPUT, .dtype = args[i]->dtype, .input = g->n_inputs++},
            shape);
    }
    n.kind = r->kind == GOLDEN_OP ? T_OP : r->kind == GOLDEN_CAST ? T_CAST : T_RANDOM;
    if (r->kind == GOLDEN_OP)
        n.op = r->op;
    else if (r->kind == GOLDEN_RANDOM)
        n.random = &r->random;
    g->root = r->kind == GOLDEN_CAST && r->from == r->to ? n.args[0] : node(arena, g, n, shape);
}

static void submit(struct suite *t, struct golden_run *r, const struct golden_record *record,
                   enum layout in, enum layout out)
{
    *r = (struct golden_run){.record = record, .in = in, .out = out};
    enum dtype from = record->kind == GOLDEN_RANDOM ? DT_I64 : record->from;
    for (int i = 0; i < record->n_args; i++)
        r->args[i] = put(t, from, in, record->args[i], (int64_t)record->n);
    if (out != CONTIGUOUS)
        r->target = put(t, record->to, out, NULL, (int64_t)record->n);
    struct task *task = task_new(t->s);
    struct typed *g = arena_alloc(task->arena, sizeof *g);
    build(task->arena, g, record, r->args);
    struct err e = ERR_INIT;
    if (engine_run(task, g, t->account, false, r->target, NULL, &r->ret, &e) != ERR_OK)
        snprintf(r->why, sizeof r->why, "%s: %s", record->text, e.message);
}

/* What lies between the target's elements is as before. */
static bool filler_is_there(struct suite *t, const struct golden_run *r)
{
    struct view all = {.rank = 1, .shape = {r->target->buffer->nbytes}, .strides = {1}};
    struct array *raw = array_view(r->target, DT_U8, &all);
    unsigned char *buf = malloc((size_t)all.shape[0]);
    bool good = fetch(t, raw, buf) == ERR_OK;
    enum dtype to = r->record->to;
    size_t size = dtype_size(to);
    const struct view *v = &r->target->view;
    for (int64_t i = 0; i < (int64_t)r->record->n; i++)
        memset(buf + (size_t)(v->offset + i * v->strides[0]) * size, to == DT_BOOL ? 1 : 0xA5,
               size);
    for (int64_t i = 0; i < all.shape[0] && good; i++)
        good = buf[i] == (to == DT_BOOL ? 1 : 0xA5);
    free(buf);
    array_unref(raw);
    return good;
}

static void finish(struct suite *t, struct golden_run *r)
{
    bool bad = r->why[0] != '\0';
    if (!bad) {
        void *got = malloc(r->record->n * dtype_size(r->record->to) + 16);
        enum err_code code = fetch(t, r->ret, got);
        bad = code != ERR_OK || golden_compare(r->record, got, r->why, sizeof r->why) >= 0;
        if (code != ERR_OK)
            snprintf(r->why, sizeof r->why, "%s: %s", r->record->text, err_name(code));
        free(got);
    }
    if (!bad && r->target && !filler_is_there(t, r)) {
        snprintf(r->why, sizeof r->why, "%s: wrote between the target's elements", r->record->text);
        bad = true;
    }
    t->tested++;
    if (bad) {
        t->failed++;
        fprintf(stderr, "%s -> %s: %s\n", layout_names[r->in], layout_names[r->out], r->why);
    }
    array_unref(r->args[0]);
    array_unref(r->args[1]);
    array_unref(r->target);
    array_unref(r->ret);
}

static void finish_batch(struct suite *t, struct golden_run *runs, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        finish(t, &runs[i]);
    *n = 0;
}

static void run_all(struct suite *t, const struct golden *golden, size_t every, const char *text)
{
    static struct golden_run runs[2][BATCH];
    size_t n[2] = {0}, at = 0;
    for (size_t i = 0; i < golden->n_records && t->failed < 50; i += every)
        for (size_t l = 0; l < N_LAYOUTS && strstr(golden->records[i].text, text); l++) {
            t->s = t->streams[at];
            submit(t, &runs[at][n[at]++], &golden->records[i], (enum layout)l,
                   (enum layout)((l + i) % N_LAYOUTS));
            if (n[at] < BATCH)
                continue;
            at = !at;
            t->s = t->streams[at];
            finish_batch(t, runs[at], &n[at]);
        }
    for (int k = 0; k < 2; k++) {
        t->s = t->streams[k];
        finish_batch(t, runs[k], &n[k]);
    }
}

int main(int argc, char **argv)
{
    struct suite t = {0};
    struct engine_config config = suite_config(argc > 1 ? argv[1] : "cpu");
    int every = argc > 2 ? atoi(argv[2]) : 1;
    struct err e = ERR_INIT;
    if (engine_open(&config, &t.g, &e) != ERR_OK) {
        fprintf(stderr, "skipped: %s\n", e.message);
        return 77;
    }
    struct golden *golden = golden_load();
    t.account = account_new(0);
    if (!t.account || engine_stream_new(t.g, suite_device(t.g), &t.streams[0], &e) != ERR_OK ||
        engine_stream_new(t.g, suite_device(t.g), &t.streams[1], &e) != ERR_OK)
        return 1;
    run_all(&t, golden, every > 0 ? (size_t)every : 1, argc > 3 ? argv[3] : "");
    golden_free(golden);
    engine_stream_unref(t.streams[0]);
    engine_stream_unref(t.streams[1]);
    account_unref(t.account);
    for (int i = 0; i < 5000 && engine_jobs_in_flight(t.g) > 0; i++)
        usleep(1000); /* what was fetched is let go a moment later */
    if (engine_bytes_in_use(t.g) != 0) {
        fprintf(stderr, "%" PRId64 " bytes still in use\n", engine_bytes_in_use(t.g));
        t.failed++;
    }
    engine_close(t.g);
    printf("golden %s: %zu runs, %zu failed\n", config.backend, t.tested, t.failed);
    return t.failed != 0;
}
