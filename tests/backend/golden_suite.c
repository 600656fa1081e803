/* Every operation, cast and random stream of the golden tables through the whole engine, on a named
 * backend and in several layouts: golden_suite BACKEND [EVERY]. Operands and target lie contiguous,
 * spread (every other element, something else between), reversed, or as the columns of a matrix;
 * what lies between the target's elements must not change. EVERY takes only one record in so many,
 * for slow checkers. Exit 77 when the backend is not available. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/check.h"
#include "compute/engine_internal.h"
#include "tests/golden/golden.h"

enum layout { CONTIGUOUS, SPREAD, REVERSED, COLUMN, N_LAYOUTS };
static const char *const layout_names[] = {"contiguous", "spread", "reversed", "column"};

struct suite {
    struct engine *g;
    struct engine_stream *s;
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
    upload_push(u, buf, (size_t)total * size);
    code = upload_finish_new(u, dtype, 1, &total, false, &whole, NULL);
    assert(code == ERR_OK);
    (void)code;
    free(buf);
    struct array *a = array_view(whole, dtype, &v);
    array_unref(whole);
    return a;
}

static void fetch(struct suite *t, struct array *a, void *to)
{
    struct download *d = NULL;
    enum err_code code = download_new(t->s, a, NULL, NULL, &d, NULL);
    assert(code == ERR_OK);
    (void)code;
    for (int64_t n = array_nbytes(a), at = 0, got; at < n; at += got) {
        got = download_pull(d, at, (char *)to + at, (size_t)(n - at));
        assert(got >= 0);
    }
    download_free(d);
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

static void run(struct suite *t, const struct golden_record *r, enum layout in, enum layout out)
{
    struct array *args[2] = {0}, *target = NULL, *ret = NULL;
    enum dtype from = r->kind == GOLDEN_RANDOM ? DT_I64 : r->from;
    for (int i = 0; i < r->n_args; i++)
        args[i] = put(t, from, in, r->args[i], (int64_t)r->n);
    if (out != CONTIGUOUS)
        target = put(t, r->to, out, NULL, (int64_t)r->n);
    struct task *task = task_new(t->s);
    struct typed *g = arena_alloc(task->arena, sizeof *g);
    build(task->arena, g, r, args);
    struct err e = ERR_INIT;
    char why[1400] = "";
    bool bad = false;
    if (engine_run(task, g, t->account, false, target, NULL, &ret, &e) != ERR_OK) {
        bad = true;
        snprintf(why, sizeof why, "%s: %s", r->text, e.message);
    } else {
        void *got = malloc(r->n * dtype_size(r->to) + 16);
        fetch(t, ret, got);
        bad = golden_compare(r, got, why, sizeof why) >= 0;
        free(got);
    }
    if (!bad && target) { /* the filler */
        struct view all = {.rank = 1, .shape = {target->buffer->nbytes}, .strides = {1}};
        struct array *raw = array_view(target, DT_U8, &all);
        unsigned char *buf = malloc((size_t)all.shape[0]);
        fetch(t, raw, buf);
        size_t size = dtype_size(r->to);
        for (int64_t i = 0; i < (int64_t)r->n; i++)
            memset(buf + (size_t)(target->view.offset + i * target->view.strides[0]) * size,
                   r->to == DT_BOOL ? 1 : 0xA5, size);
        for (int64_t i = 0; i < all.shape[0] && !bad; i++)
            bad = buf[i] != (r->to == DT_BOOL ? 1 : 0xA5);
        if (bad)
            snprintf(why, sizeof why, "%s: wrote between the target's elements", r->text);
        free(buf);
        array_unref(raw);
    }
    t->tested++;
    if (bad) {
        t->failed++;
        fprintf(stderr, "%s -> %s: %s\n", layout_names[in], layout_names[out], why);
    }
    array_unref(args[0]);
    array_unref(args[1]);
    array_unref(target);
    array_unref(ret);
}

int main(int argc, char **argv)
{
    struct suite t = {0};
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = argc > 1 ? argv[1] : "cpu";
    int every = argc > 2 ? atoi(argv[2]) : 1;
    struct err e = ERR_INIT;
    if (engine_open(&config, &t.g, &e) != ERR_OK) {
        fprintf(stderr, "skipped: %s\n", e.message);
        return 77;
    }
    struct golden *golden = golden_load();
    t.account = account_new(0);
    if (!t.account || engine_stream_new(t.g, 0, &t.s, &e) != ERR_OK)
        return 1;
    for (size_t i = 0; i < golden->n_records && t.failed<50; i += every> 0 ? (size_t)every : 1)
        for (int l = 0; l < N_LAYOUTS; l++)
            run(&t, &golden->records[i], (enum layout)l, (enum layout)((l + i) % N_LAYOUTS));
    golden_free(golden);
    engine_stream_unref(t.s);
    account_unref(t.account);
    if (engine_bytes_in_use(t.g) != 0) {
        fprintf(stderr, "%" PRId64 " bytes still in use\n", engine_bytes_in_use(t.g));
        t.failed++;
    }
    engine_close(t.g);
    printf("golden %s: %zu runs, %zu failed\n", config.backend, t.tested, t.failed);
    return t.failed != 0;
}
