/* One random expression: its arrays made, submitted twice, its results looked at. */
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
#include "tests/backend/property.h"

static uint64_t rng_state;
static const uint8_t *told; /* numbers that come first */
static size_t n_told;

uint64_t property_rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    if (n_told < 2)
        return rng_state;
    uint64_t v = told[0] | (uint64_t)told[1] << 8;
    told += 2, n_told -= 2;
    return v;
}

void property_tell(const uint8_t *bytes, size_t n)
{
    told = bytes;
    n_told = n;
}

/* In pieces of random lengths; these are drawn apart from the expression's own numbers, because how
 * many are needed is chance. */
static bool pull(struct download *d, int64_t n, void *to)
{
    static uint64_t pieces = 1;
    for (int64_t at = 0, got; at < n; at += got) {
        pieces = pieces * 6364136223846793005u + 1442695040888963407u;
        int64_t piece = (int64_t)((pieces >> 33) % (uint64_t)(n - at)) + 1;
        got = download_pull(d, at, (char *)to + at, (size_t)piece);
        if (got < 0) {
            fprintf(stderr, "the work failed: %s\n", err_name(download_result(d)));
            return false;
        }
        if (got == 0)
            usleep(20);
    }
    return true;
}

static bool fetch(struct world *w, struct array *a, void *to)
{
    struct download *d = NULL;
    struct err e = ERR_INIT;
    enum err_code code = download_new(w->s, a, NULL, NULL, &d, &e);
    assert(code == ERR_OK);
    (void)code;
    bool good = pull(d, array_nbytes(a), to);
    download_free(d);
    return good;
}

static struct array *put(struct world *w, enum dtype dtype, int rank, const int64_t *shape,
                         const void *bytes, int64_t n)
{
    struct upload *u = NULL;
    struct array *a = NULL;
    enum err_code code = upload_new(w->s, w->account, n, NULL, NULL, &u, NULL);
    assert(code == ERR_OK);
    for (size_t at = 0, took; at < (size_t)n; at += took)
        if (!(took = upload_push(u, (const char *)bytes + at, (size_t)n - at)))
            usleep(20);
    code = upload_finish_new(u, dtype, rank, shape, false, &a, NULL);
    assert(code == ERR_OK);
    (void)code;
    return a;
}

/* A view with the base shape's extents on some axes, made by slicing a larger buffer. */
static void make_array(struct world *w, int k)
{
    int rank = (int)below(w->base_rank + 1);
    struct grid around; /* what lies in the buffer beside the view, as ghosts */
    grid_init(&around, rank);
    int64_t shape[MAX_RANK] = {0};
    struct index_spec ix = {.n = rank};
    bool transpose = below(3) == 0;
    for (int a = 0; a < rank; a++) {
        int64_t n = below(5) == 0 ? 1 : w->base[a + w->base_rank - rank];
        int64_t step = 1 + below(2), before = below(4), after = below(4);
        if (below(3)) {
            step = 1;
            before = after = 0;
        }
        around.ghost[a] = n ? (before < after ? before : after) / step : 0;
        shape[a] = before + (n ? (n - 1) * step + 1 : 0) + after;
        ix.items[a] = (struct index_item){.kind = INDEX_SLICE,
                                          .has_start = true,
                                          .has_stop = true,
                                          .has_step = true,
                                          .start = before,
                                          .stop = shape[a] - after,
                                          .step = step};
        if (below(4) == 0 && n > 0) { /* backwards */
            ix.items[a].start = before + (n - 1) * step;
            ix.items[a].stop = before - 1;
            ix.items[a].has_stop = before > 0;
            ix.items[a].step = -step;
        }
    }
    struct view v, s;
    int64_t order[MAX_RANK], stored[MAX_RANK];
    for (int a = 0; a < rank; a++) {
        order[a] = transpose ? rank - 1 - a : a;
        stored[a] = shape[order[a]];
    }
    enum dtype dtype = below(2) ? DT_F64 : DT_I64;
    int64_t n = 1;
    for (int a = 0; a < rank; a++)
        n *= shape[a];
    union value *bytes = malloc(((size_t)n + 1) * 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = below(9) - 4;
        if (dtype == DT_F64)
            memcpy((char *)bytes + 8 * i, &(double){(double)x}, 8);
        else
            memcpy((char *)bytes + 8 * i, &x, 8);
    }
    w->whole[k] = put(w, dtype, rank, stored, bytes, n * 8);
    w->copies[k] = bytes;
    enum err_code code = view_permute(&w->whole[k]->view, rank, order, &v, NULL);
    assert(code == ERR_OK);
    code = view_index(&v, &ix, &s, NULL);
    assert(code == ERR_OK);
    (void)code;
    struct grid *grid = grid_new(&around);
    assert(grid);
    w->arrays[k] = array_view_grid(w->whole[k], &s, grid);
    grid_unref(grid);
}

static const void *memory_of(void *user, uint32_t input)
{
    return ((struct world *)user)->copies[input];
}

static int compare(const struct world *w, const struct walked *want, const char *got, enum dtype dt,
                   const char *what)
{
    size_t size = dtype_size(dt);
    for (int64_t i = 0; i < want->n; i++) {
        union value v = {0};
        memcpy(&v, got + i * (int64_t)size, size);
        /* maximum(-0, 0) may be either */
        bool same = dt == DT_F64 && (v.f64 == want->v[i].f64 ||
                                     (v.f64 != v.f64 && want->v[i].f64 != want->v[i].f64));
        if (memcmp(&v, &want->v[i], size) != 0 && !same) {
            struct strb b = {0};
            typed_print(w->t, &b);
            fprintf(stderr,
                    "%s: element %" PRId64 " of %" PRId64 " differs: got %016" PRIx64
                    ", want %016" PRIx64 "\n%s\n",
                    what, i, want->n, v.u64, want->v[i].u64, b.data ? b.data : "");
            strb_free(&b);
            return 1;
        }
    }
    return 0;
}

/* Submits the expression once more, its result to a view that is (perhaps) an operand's memory. */
static void submit_into(struct world *w, int k)
{
    struct array *out = w->arrays[k];
    const struct typed_node *root = &w->t->nodes[w->t->root];
    struct view have;
    w->into = -1;
    if (view_contiguous(root->rank, root->shape, 8, &have, NULL) != ERR_OK ||
        view_broadcast_to(&have, out->view.rank, out->view.shape, &w->spread, NULL) != ERR_OK ||
        root->dtype != out->dtype)
        return;
    struct task *task = task_new(w->s);
    struct array *ret = NULL;
    struct err e = ERR_INIT;
    if (below(3) == 0) {
        enum err_code pinned = download_new(w->s, w->whole[k], NULL, NULL, &w->pin, NULL);
        assert(pinned == ERR_OK);
        (void)pinned;
    }
    if (engine_run(task, w->t, w->account, false, out, NULL, &ret, &e) != ERR_OK) {
        fprintf(stderr, "engine_run into: %s\n", e.message);
        w->failed = true;
        return;
    }
    array_unref(ret);
    w->into = k;
}

/* All of the buffer is compared, not just the view written to. */
static bool check_into(struct world *w)
{
    int k = w->into;
    const struct array *out = w->arrays[k];
    int64_t nbytes = array_nbytes(w->whole[k]);
    char *expect = malloc((size_t)nbytes + 16), *got = malloc((size_t)nbytes + 16);
    memcpy(expect, w->copies[k], (size_t)nbytes);
    int64_t n = view_size(&out->view);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = out->view.offset, from = 0, rest = i;
        for (int a = out->view.rank - 1; a >= 0; a--) {
            int64_t x = rest % out->view.shape[a];
            rest /= out->view.shape[a];
            at += x * out->view.strides[a];
            from += x * w->spread.strides[a];
        }
        memcpy(expect + at * 8, &w->want.v[from], 8);
    }
    bool good = fetch(w, w->whole[k], got);
    for (int64_t i = 0; i < nbytes / 8 && good; i++) {
        double x, y;
        memcpy(&x, expect + 8 * i, 8);
        memcpy(&y, got + 8 * i, 8);
        bool same = out->dtype == DT_F64 && (x == y || (x != x && y != y));
        if (memcmp(expect + 8 * i, got + 8 * i, 8) != 0 && !same) {
            struct strb b = {0};
            typed_print(w->t, &b);
            fprintf(stderr, "into operand %d: byte %" PRId64 " differs\n%s\n", k, 8 * i, b.data);
            strb_free(&b);
            good = false;
        }
    }
    if (w->pin && good) { /* the download still sees what was there */
        good = pull(w->pin, nbytes, got);
        if (good && memcmp(got, w->copies[k], (size_t)nbytes) != 0) {
            fprintf(stderr, "a download in flight saw a later write\n");
            good = false;
        }
    }
    free(expect);
    free(got);
    return good;
}

void property_submit(struct world *w, const struct world *common, uint64_t seed)
{
    *w = *common;
    w->seed = seed;
    rng_state = seed * 0x9E3779B97F4A7C15ull | 1;
    for (int k = 0; k < 8 && !n_told; k++)
        property_rng();
    const bool small = n_told > 0; /* as much as makes ten million of them in an hour or two */
    w->base_rank = (int)below(4);
    for (int k = 0; k < w->base_rank; k++)
        w->base[k] = below(12) == 0 ? 0 : 1 + below(below(8) ? 7 : small ? 19 : 70);
    w->n = 1 + (int)below(MAX_ARRAYS);
    for (int k = 0; k < w->n; k++)
        make_array(w, k);
    struct task *task = task_new(w->s);
    w->arena = arena_new(0);
    property_graph(w);
    w->g->fuse = (struct fuse_limits){.max_nodes = below(2) ? 400 : 3 + (uint32_t)below(20),
                                      .max_inputs = below(2) ? 64 : 2,
                                      .recompute = (uint32_t)below(64)};
    struct err e = ERR_INIT;
    w->into = -1;
    if (engine_run(task, w->t, w->account, false, NULL, NULL, &w->ret, &e) != ERR_OK) {
        fprintf(stderr, "engine_run: %s\n", e.message);
        w->failed = true;
    } else {
        submit_into(w, (int)below(w->n));
    }
}

bool property_finish(struct world *w)
{
    const struct typed_node *root = &w->t->nodes[w->t->root];
    if (!w->failed) {
        w->want = walk(w->t, w->t->root, root->rank, root->shape, memory_of, w);
        char *got = malloc((size_t)array_nbytes(w->ret) + 16);
        w->failed = !fetch(w, w->ret, got) || compare(w, &w->want, got, root->dtype, "new array") ||
                    (w->into >= 0 && !check_into(w));
        free(got);
        walk_free(&w->want);
    }
    if (w->failed)
        fprintf(stderr, "  (seed %" PRIu64 ")\n", w->seed);
    download_free(w->pin);
    array_unref(w->ret);
    for (int k = 0; k < w->n; k++) {
        array_unref(w->arrays[k]);
        array_unref(w->whole[k]);
        free(w->copies[k]);
    }
    arena_free(w->arena);
    return !w->failed;
}
