/* Scans by the interpreter against compiled ones, bit by bit, on a named backend that has both: of
 * rows and columns of many lengths, into results of many layouts. `scans BACKEND [long]`; long:
 * also of what takes a real GPU to scan. None may wait for a kernel to be compiled: what scans the
 * values that a program leaves is there already. Exit 77 when the backend is not available.
 *
 * With ARRAYD_MESH ("all"), several GPUs against one: of integers bit by bit, interpreted ones,
 * too; of other numbers the rounding differs, but not from run to run. */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/check/check.h"
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/gpu/interp/interp.h"
#include "compute/memory/memory_int.h"
#include "tests/unit/slice.h"

#define WAIT_MS 240000

enum { COMPILED, INTERPRETED, MESH, SIDES };
enum target { NEW, SPREAD, BEHIND, TURNED, TARGETS };

struct side {
    struct engine *g;
    struct engine_stream *s;
};
static struct side sides[SIDES];
static struct account *account;
static const char *mesh; /* NULL: the interpreter's side is of one GPU, and there is no other */

static const struct scan {
    int rank;
    int64_t shape[3];
    int axis;
    bool is_long;
} scans[] = {
    /* rows that are not very long, and one that is no vector's multiple */
    {2, {5, 700}, 1, false},
    {2, {3, 5001}, 1, false},
    /* very long rows, which are cut; of more stretches than a warp reads at once */
    {1, {65537}, 0, false},
    {1, {70000}, 0, false},
    {2, {3, 66002}, 1, false},
    {1, {300004}, 0, false},
    /* columns side by side in a warp's lanes, cut */
    {2, {3000, 2}, 0, false},
    {2, {6000, 3}, 0, false},
    {2, {2500, 16}, 0, false},
    {3, {2, 2900, 5}, 1, false},
    /* a thread's, cut; of more stretches than a group of groups has */
    {2, {130, 40}, 0, false},
    {2, {5000, 20}, 0, false},
    {3, {3, 200, 37}, 1, false},
    {3, {200, 3, 37}, 0, false},
    /* and not cut; several a thread in a text of its own */
    {2, {20, 70}, 0, false},
    {2, {2, 270000}, 0, false},
    /* rows that are not cut, because there are many; and all levels of groups */
    {2, {600, 65540}, 1, true},
    {2, {530, 65537}, 1, true},
    {1, {60000004}, 0, true},
    {2, {1500000, 40}, 0, true},
    {2, {9000000, 3}, 0, true},
};
static const enum dtype dtypes[] = {DT_F32, DT_F64, DT_I64, DT_U64, DT_C64, DT_C128};

static void check(enum err_code code)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "%s\n", err_name(code));
    abort();
}

static struct array *put(const struct side *at, enum dtype t, int rank, const int64_t *shape,
                         const char *bytes, size_t n)
{
    struct upload *u = NULL;
    struct array *a = NULL;
    check(upload_new(at->s, account, (int64_t)n, NULL, NULL, &u, NULL));
    for (size_t done = 0, took; done < n; done += took)
        if (!(took = upload_push(u, bytes + done, n - done)))
            usleep(20);
    check(upload_finish_new(u, t, rank, shape, false, &a, NULL));
    return a;
}

static char *fetch(const struct side *at, struct array *a)
{
    struct download *d = NULL;
    const int64_t n = array_nbytes(a);
    char *to = malloc((size_t)n + 1);
    check(download_new(at->s, a, NULL, NULL, &d, NULL));
    for (int64_t done = 0, got; done < n; done += got) {
        got = download_pull(d, done, to + done, (size_t)(n - done));
        if (got == 0)
            usleep(20);
        if (got < 0)
            check(download_result(d));
    }
    download_free(d);
    return to;
}

/* Where the result goes; NULL: to a new array. Every other element of a longer one, one behind its
 * first, or an array whose axes are in the opposite order. */
static struct array *target_of(const struct side *at, const struct scan *c, enum dtype t,
                               enum target how)
{
    struct view v = {.rank = c->rank};
    int64_t n = 1;
    if (how == NEW)
        return NULL;
    for (int i = 0; i < c->rank; i++) {
        const int a = how == TURNED ? i : c->rank - 1 - i;
        v.shape[a] = c->shape[a];
        v.strides[a] = how == SPREAD && i == 0 ? 2 : n;
        n = v.strides[a] * v.shape[a];
    }
    v.offset = how == BEHIND;
    n += v.offset;
    struct array *all = NULL;
    check(engine_zeros(at->s, account, t, 1, &n, &all, NULL));
    struct array *a = array_view(all, t, &v);
    array_unref(all);
    return a;
}

/* cumulative_sum or cumulative_prod(x + x, axis) */
static char *result(const struct side *at, const struct scan *c, enum dtype t, enum reduce_op op,
                    enum target how, const char *bytes, size_t n)
{
    struct array *x = put(at, t, c->rank, c->shape, bytes, n), *ret = NULL;
    struct array *target = target_of(at, c, t, how);
    struct task *task = task_new(at->s);
    struct typed *g = arena_alloc(task->arena, sizeof *g);
    struct typed_node node = {.kind = T_INPUT,
                              .dtype = t,
                              .rank = c->rank,
                              .shape = arena_dup(task->arena, c->shape, sizeof c->shape)};
    g->inputs = arena_alloc(task->arena, sizeof *g->inputs);
    g->inputs[g->n_inputs++] = (struct typed_input){x, t, x->view, "x"};
    node.args[0] = node.args[1] = typed_add(task->arena, g, &node);
    node.kind = T_OP;
    node.op = OP_ADD;
    node.n_args = 2;
    node.args[0] = typed_add(task->arena, g, &node);
    node.kind = T_SCAN;
    node.n_args = 1;
    node.scan.op = op;
    node.scan.axis = c->axis;
    g->root = typed_add(task->arena, g, &node);
    struct err e = ERR_INIT;
    check(engine_run(task, g, account, false, target, NULL, &ret, &e));
    char *got = fetch(at, ret);
    array_unref(x);
    array_unref(ret);
    array_unref(target);
    return got;
}

/* A figure of the backend's, or −1. */
static int64_t figure(const struct side *at, const char *name)
{
    struct strb text = {0};
    engine_metrics(at->g, &text);
    const char *line = strstr(text.data, name);
    const int64_t n = line ? strtoll(line + strlen(name), NULL, 10) : -1;
    strb_free(&text);
    return n;
}
#define MADE "\narrayd_cuda_kernel_cache_total{from=\"compiler\"} "

/* Random numbers of both signs around 1, so that products stay in range; and a few zeros, negative
 * ones among them. */
static void make_values(char *bytes, size_t n, enum dtype t)
{
    static uint64_t random = 1;
    const enum dtype part = t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
    for (size_t i = 0; i < n / dtype_size(part); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const uint64_t r = random >> 33;
        double v = 0.25 + (double)(r % 1000000) / 1e6 * 0.5;
        v = r % 5000 == 0 ? -0.0 : r % 7 == 0 ? -v : v;
        const float f = (float)v;
        const int64_t w = (int64_t)r - 1000000000;
        memcpy(bytes + i * dtype_size(part),
               part == DT_F32   ? (const void *)&f
               : part == DT_F64 ? (const void *)&v
                                : (const void *)&w,
               dtype_size(part));
    }
}

static double component(const char *at, enum dtype t, size_t i)
{
    float x;
    double y;
    if (t == DT_F32 || t == DT_C64) {
        memcpy(&x, at + i * sizeof x, sizeof x);
        return (double)x;
    }
    memcpy(&y, at + i * sizeof y, sizeof y);
    return y;
}

/* Whether results differ by rounding alone: that of the result's type, and in double precision that
 * of each element so far, of which a few hundred are added before an error is kept. */
static bool rounded_alike(const char *x, const char *y, size_t n, enum dtype t, enum reduce_op op)
{
    const size_t parts = t == DT_C64 || t == DT_C128 ? 2 : 1;
    const double unit = t == DT_F32 || t == DT_C64 ? (double)FLT_EPSILON : DBL_EPSILON;
    const double least = t == DT_F32 || t == DT_C64 ? (double)FLT_MIN : DBL_MIN;
    n /= dtype_size(t);
    for (size_t i = 0; i < n; i++) {
        double far = 0, size = 0, other = 0;
        for (size_t part = i * parts; part < (i + 1) * parts; part++) {
            far += fabs(component(x, t, part) - component(y, t, part));
            size += fabs(component(x, t, part));
            other += fabs(component(y, t, part));
        }
        const double all = DBL_EPSILON * (double)(i + 1);
        const double may = op == REDUCE_SUM ? all * 64 : all * 4 * size;
        if (!isfinite(size) && !isfinite(other))
            continue;
        if (!(far <= 4 * unit * size + may + 4 * least))
            return false;
    }
    return true;
}

/* What several GPUs make of it, against one. */
static const char *scan_on_mesh(const struct scan *c, enum dtype t, enum reduce_op op,
                                enum target how, const char *bytes, size_t n)
{
    const bool whole = dtype_is_integer(t);
    char *one = result(&sides[COMPILED], c, t, op, how, bytes, n);
    char *all = result(&sides[MESH], c, t, op, how, bytes, n);
    const int64_t made = figure(&sides[INTERPRETED], MADE);
    char *again = result(&sides[whole ? INTERPRETED : MESH], c, t, op, how, bytes, n);
    const char *why = whole && figure(&sides[INTERPRETED], MADE) != made ? "waited for the compiler"
                      : memcmp(all, again, n) != 0                       ? "differs each time"
                      : whole ? memcmp(one, all, n) != 0 ? "differs from that of one GPU" : NULL
                      : !rounded_alike(one, all, n, t, op) ? "is far from that of one GPU"
                                                           : NULL;
    free(one);
    free(all);
    free(again);
    return why;
}

static const char *scan_by_both(const struct scan *c, enum dtype t, enum reduce_op op,
                                enum target how, const char *bytes, size_t n)
{
    const int64_t made = figure(&sides[INTERPRETED], MADE);
    char *x = result(&sides[COMPILED], c, t, op, how, bytes, n);
    char *y = result(&sides[INTERPRETED], c, t, op, how, bytes, n);
    const char *why = figure(&sides[INTERPRETED], MADE) != made ? "waited for the compiler"
                      : memcmp(x, y, n) != 0                    ? "differs from the compiled one"
                                                                : NULL;
    free(x);
    free(y);
    return why;
}

static bool scan_is_right(const struct scan *c, enum dtype t, enum reduce_op op, enum target how)
{
    size_t n = dtype_size(t);
    for (int a = 0; a < c->rank; a++)
        n *= (size_t)c->shape[a];
    char *bytes = malloc(n);
    make_values(bytes, n, t);
    const char *why = (mesh ? scan_on_mesh : scan_by_both)(c, t, op, how, bytes, n);
    if (why)
        fprintf(
            stderr, "%s of %s (%" PRId64 ", %" PRId64 ", %" PRId64 ") along %d, target %d: %s\n",
            scan_name(op), dtype_name(t), c->shape[0], c->shape[1], c->shape[2], c->axis, how, why);
    free(bytes);
    return !why;
}

static void open_side(const char *backend, int which)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = backend;
    config.device.compile_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    config.device.interpret = which == INTERPRETED ? INTERPRET_ONLY : INTERPRET_NEVER;
    config.device.mesh = which == COMPILED ? NULL : mesh;
    config.device.mesh_least = 1;
    if (engine_open(&config, &sides[which].g, &e) != ERR_OK) {
        fprintf(stderr, "skipped: %s\n", e.message);
        exit(77);
    }
    const int device = config.device.mesh ? engine_device_count(sides[which].g) - 1 : 0;
    check(engine_stream_new(sides[which].g, device, &sides[which].s, &e));
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "cuda";
    const bool is_long = argc > 2 && strcmp(argv[2], "long") == 0;
    mesh = getenv("ARRAYD_MESH");
    account = account_new(0);
    open_side(backend, INTERPRETED);
    open_side(backend, COMPILED);
    if (mesh)
        open_side(backend, MESH);
    if (figure(&sides[INTERPRETED], MADE) < 0) {
        fprintf(stderr, "skipped: %s has no interpreter\n", backend);
        return 77;
    }
    /* the machines and what follows them, which are compiled one by one, and the pack kernels,
     * which are one text: one that takes long would otherwise come later, as if a scan had waited
     * for it */
    int64_t made = -1;
    for (int quiet = 0, rounds = 0; quiet < 20; rounds++, usleep(50000)) {
        const int64_t now = figure(&sides[INTERPRETED], MADE);
        quiet = now == made && now > MACHINES + INTERP_RESTS ? quiet + 1 : 0;
        made = now;
        if (rounds * 50 > WAIT_MS) {
            fprintf(stderr, "only %" PRId64 " of the interpreter's kernels are compiled\n", made);
            return 1;
        }
    }
    int tested = 0, failed = 0;
    const size_t step = (size_t)slice_step(3);
    for (size_t i = (size_t)slice_from((int)step); i < sizeof scans / sizeof *scans && failed < 5;
         i += step) {
        const struct scan *c = &scans[i];
        /* one of the types with each target; all of them into new arrays of one shape of a kind */
        const bool all = !c->is_long && (i % 4 == 3 || is_long);
        for (int k = 0; k < 6 + TARGETS && (!c->is_long || is_long); k++) {
            const enum target how = k < 6 ? NEW : (enum target)(k - 6);
            const enum dtype t = k < 6 ? dtypes[k] : dtypes[(i + (size_t)k) % 2];
            if ((k < 6 && !all) || (c->is_long && how != NEW))
                continue;
            tested++;
            failed += !scan_is_right(c, t, (i + (size_t)k) % 3 ? REDUCE_SUM : REDUCE_PROD, how);
        }
    }
    for (int k = 0; k < (mesh ? SIDES : MESH); k++) {
        engine_stream_unref(sides[k].s);
        engine_close(sides[k].g);
    }
    account_unref(account);
    printf("scans %s: %d, %d failed\n", backend, tested, failed);
    return failed != 0;
}
