/* compute/ir_fuse: how many kernels lists of statements become, and that they leave the same bits,
 * on the CPU and on the fake CUDA driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "compute/backend.h"
#include "tests/unit/cuda_arrays.h"
#include "tests/unit/fuse_lists.h"

static const int64_t square[] = {12, 40};

static void fields(struct list *l, enum dtype dtype, int n, const char *const *names)
{
    list_begin(l);
    for (int i = 0; i < n; i++)
        list_array(l, names[i], dtype, 2, square);
}

static void is(struct list *l, uint32_t want, uint32_t outputs, const char *what)
{
    struct ir_kernel **fused;
    uint32_t n = list_check(l, &fused, what);
    if (n != want || (n && fused[n - 1]->n_outputs != outputs)) {
        list_print(fused, n);
        fail_msg("%s: %u kernels, the last of %u outputs", what, n,
                 n ? fused[n - 1]->n_outputs : 0);
    }
}

static void gray_scott_is_one_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    for (int dtype = DT_F32; dtype <= DT_F64; dtype++) {
        struct list l;
        struct ir_kernel **fused;
        if (dtype != DT_F32 && dtype != DT_F64)
            continue;
        fields(&l, (enum dtype)dtype, 2, names);
        const uint32_t u = l.names[0].slot, v = l.names[1].slot;
        assert_true(list_assign(&l, "r", "u*v*v"));
        assert_true(list_assign(&l, "du", "0.16*laplacian(u, boundary='wrap') - r + 0.06*(1 - u)"));
        assert_true(list_assign(&l, "v", "v + (0.08*laplacian(v, boundary='wrap') + r - 0.122*v)"));
        assert_true(list_assign(&l, "u", "u + du"));
        assert_int_equal(list_check(&l, &fused, "Gray-Scott"), 1);
        assert_int_equal(fused[0]->n_inputs, 2);
        assert_int_equal(fused[0]->n_outputs, 2);
        for (uint32_t i = 0; i < 2; i++)
            assert_true(fused[0]->inputs[i].slot == u || fused[0]->inputs[i].slot == v);
        assert_int_equal(fused[0]->outputs[0].slot, l.names[1].slot);
        assert_int_equal(fused[0]->outputs[1].slot, l.names[0].slot);
        assert_int_equal(fused[0]->n_ctxs, 5);
        list_end(&l);
    }
}

static void the_wave_equation_is_one_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "up"};
    static const char *const modes[] = {"self", "clamp", "wrap", "reflect", "symmetric"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct list l;
        char text[128];
        fields(&l, DT_F32, 2, names);
        snprintf(text, sizeof text, "2*u - up + 0.25*laplacian(u, boundary='%s')", modes[i]);
        assert_true(list_assign(&l, "un", text));
        assert_true(list_assign(&l, "up", "u"));
        assert_true(list_assign(&l, "u", "un"));
        is(&l, 1, 2, "wave");
        list_end(&l);
    }
}

/* One statement reads what the one before it made. */
static void what_was_just_made_is_made_in_place(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u)"));
    assert_true(list_assign(&l, "u", "u + 0.1*v"));
    is(&l, 1, 2, "leapfrog");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v*u"));
    assert_true(list_assign(&l, "u", "u + laplacian(v)"));
    is(&l, 1, 2, "of what was made beside");
    l.limits.recompute = 4;
    is(&l, 2, 1, "too dear");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u, boundary='wrap')"));
    assert_true(list_assign(&l, "u", "u + 0.1*laplacian(v, boundary='wrap')"));
    is(&l, 1, 2, "shifts that wrap are one");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u, boundary='clamp')"));
    assert_true(list_assign(&l, "u", "u + 0.1*laplacian(v, boundary='clamp')"));
    is(&l, 2, 1, "shifts of shifts are walked point by point");
    list_end(&l);
}

static void what_nobody_asks_for_is_not_made(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*2"));
    assert_true(list_assign(&l, "s", "sum(t)"));
    is(&l, 0, 0, "nothing");
    assert_true(list_assign(&l, "u", "v + 1"));
    assert_true(list_assign(&l, "u", "v*3"));
    is(&l, 1, 1, "written again");
    list_end(&l);
}

static void reductions_take_in_what_is_theirs(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*v - 1"));
    assert_true(list_assign(&l, "m", "max(abs(t))"));
    assert_true(list_assign(&l, "u", "u/(1 + m)"));
    is(&l, 2, 1, "a greatest");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*v - 1"));
    assert_true(list_assign(&l, "m", "sum(t)"));
    assert_true(list_assign(&l, "u", "u*m"));
    is(&l, 3, 1, "a sum, which is rounded as it is walked");
    list_end(&l);
    /* Jacobi: computed twice, read and written less */
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "next",
                            "0.25*(shift(u, [1, 0]) + shift(u, [-1, 0]) + shift(u, [0, 1]) + "
                            "shift(u, [0, -1]) - v)"));
    assert_true(list_assign(&l, "m", "max(abs(next - u)[1:-1, 1:-1])"));
    l.dead[list_find(&l, "m")->slot] = false;
    assert_true(list_assign_region(&l, "u", "1:-1, 1:-1", "next[1:-1, 1:-1]"));
    is(&l, 3, 1, "jacobi");
    list_end(&l);
}

/* --- lists as they come --- */

static const char *const modes[] = {"self", "clamp", "wrap", "reflect", "symmetric", "constant"};

struct text {
    char s[4096];
    size_t n;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, format, ap);
    va_end(ap);
    t->n += (size_t)n < sizeof t->s - t->n ? (size_t)n : sizeof t->s - t->n - 1;
}

static void random_term(struct list *l, struct text *t, int rank, int depth);

static void random_shift(struct list *l, struct text *t, int rank, int depth)
{
    const char *mode = modes[list_below(6)];
    put(t, "shift(");
    random_term(l, t, rank, depth);
    put(t, ", [");
    for (int a = 0; a < rank; a++)
        put(t, a ? ", %d" : "%d", list_below(3) ? list_below(5) - 2 : 0);
    put(t, strcmp(mode, "constant") ? "], '%s')" : "], '%s', 3)", mode);
}

static void random_term(struct list *l, struct text *t, int rank, int depth)
{
    static const char *const types[] = {"float32", "float64", "int32", "bool", "float16", "uint8"};
    static const char *const binary[] = {" + ", " - ", "*", " + ", " > "};
    if (depth == 0 || list_below(6) == 0) {
        if (list_below(8) == 0)
            put(t, list_below(2) ? "%d" : "index(%d)", list_below(rank));
        else
            put(t, "%s", l->names[list_below(l->n_names)].name);
        return;
    }
    switch (list_below(16)) {
    case 0:
    case 1:
    case 2:
        random_shift(l, t, rank, depth - 1);
        return;
    case 3:
        put(t, "laplacian(");
        random_term(l, t, rank, depth - 1);
        put(t, ", boundary='%s')", modes[list_below(5)]);
        return;
    case 4:
        put(t, "astype(");
        random_term(l, t, rank, depth - 1);
        put(t, ", '%s')", types[list_below(6)]);
        return;
    case 5:
        put(t, "(");
        random_term(l, t, rank, depth - 1);
        put(t, list_below(2) ? ")[::-1]" : ")[..., ::-1]");
        return;
    case 6:
        put(t, "where(");
        random_term(l, t, rank, depth - 1);
        put(t, " > 1, ");
        random_term(l, t, rank, depth - 1);
        put(t, ", ");
        random_term(l, t, rank, depth - 1);
        put(t, ")");
        return;
    case 7:
        put(t, list_below(3) ? "maximum(" : "minimum(");
        random_term(l, t, rank, depth - 1);
        put(t, ", ");
        random_term(l, t, rank, depth - 1);
        put(t, ")");
        return;
    case 8:
        if (list_below(3) == 0) {
            put(t, list_below(3) ? "max(" : "sum(");
            random_term(l, t, rank, depth - 1);
            put(t, list_below(2) ? ")" : ", axis=0)");
            return;
        }
        break;
    case 9:
        if (list_below(4) == 0) {
            const int which = list_below(3);
            put(t, which ? "take(" : "cumulative_sum(");
            random_term(l, t, rank, depth - 1);
            put(t, which == 0   ? ", 0)"
                   : which == 1 ? ", [2, 0, 1, 1, 0], 0, mode='clip')"
                                : ", index(0) - 1, 0, mode='clip')");
            return;
        }
        break;
    case 10:
        put(t, rank == 2 ? "permute_dims(" : "flip(");
        random_term(l, t, rank, depth - 1);
        put(t, rank == 2 ? ", [1, 0])" : ")");
        return;
    default:
        break;
    }
    put(t, "(");
    random_term(l, t, rank, depth - 1);
    put(t, "%s", binary[list_below(5)]);
    random_term(l, t, rank, depth - 1);
    put(t, ")");
}

static void random_list(struct list *l, uint64_t seed, char *what, size_t n)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F64, DT_I32, DT_BOOL, DT_F16, DT_U8};
    static const char *const arrays[] = {"a", "b", "c", "d"};
    static const char *const temporaries[] = {"s", "t", "w"};
    static const char *const regions[] = {"1:-1", "0", "::2", "..., 1:-1", "2:, ...", "-1"};
    static const int64_t shapes[][4] = {{1, 9},       {1, 70},     {2, 6, 6}, {2, 5, 8},
                                        {3, 4, 5, 6}, {2, 12, 36}, {2, 3, 1}, {3, 2, 2, 64},
                                        {2, 20, 37},  {2, 32, 32}};
    list_begin(l);
    list_state = seed;
    const int64_t *shape = shapes[list_below(10)];
    const int rank = (int)shape[0], n_arrays = 2 + list_below(3);
    for (int i = 0; i < n_arrays; i++)
        list_array(l, arrays[i], types[list_below(list_below(2) ? 3 : 7)], rank, shape + 1);
    if (list_below(2))
        list_array(l, "row", DT_F32, 1, shape + rank);
    static const uint32_t nodes[] = {400, 400, 30}, inputs[] = {64, 64, 3}, again[] = {400, 32, 4};
    l->limits.max_nodes = nodes[list_below(3)];
    l->limits.max_inputs = inputs[list_below(3)];
    l->limits.recompute = again[list_below(3)];
    for (int statements = 2 + list_below(7), tries = 0; statements > 0 && tries < 60; tries++) {
        struct text t = {0};
        bool done;
        l->in_place = list_below(3) == 0;
        if (l->n_names + 2 > LIST_NAMES || l->n_slots + 40 > LIST_SLOTS ||
            l->n_kernels + 30 > LIST_KERNELS)
            break;
        const char *region = regions[list_below(6)];
        const int kind = list_below(10);
        if (kind < 2)
            put(&t, "(");
        random_term(l, &t, rank, 1 + list_below(3));
        if (kind < 2)
            put(&t, ")[%s]", region);
        const char *to = kind < 5 ? arrays[list_below(n_arrays)] : temporaries[list_below(3)];
        done = kind < 2 ? list_assign_region(l, to, region, t.s) : list_assign(l, to, t.s);
        statements -= done;
        if (done && getenv("FUSE_TEXT"))
            print_message("%s%s%s%s = %s\n", to, kind < 2 ? "[" : "", kind < 2 ? region : "",
                          kind < 2 ? "]" : "", t.s);
    }
    for (int i = 0; i < l->n_names; i++)
        l->dead[l->names[i].slot] = l->names[i].temporary && list_below(4) > 0;
    snprintf(what, n, "seed %llu", (unsigned long long)seed);
}

static void random_lists_leave_the_same_bits(void **state)
{
    (void)state;
    uint32_t before = 0, after = 0, several = 0;
    const char *only = getenv("FUSE_SEED"), *count = getenv("FUSE_COUNT");
    for (uint64_t seed = 1; seed <= (count ? strtoull(count, NULL, 10) : 2000); seed++) {
        struct list l;
        struct ir_kernel **fused;
        char what[64];
        if (only)
            seed = strtoull(only, NULL, 10);
        random_list(&l, seed, what, sizeof what);
        uint32_t n = list_check(&l, &fused, what);
        before += l.n_kernels;
        after += n;
        for (uint32_t i = 0; i < n; i++)
            several += fused[i]->n_outputs > 1;
        list_end(&l);
        if (only)
            return;
    }
    print_message("%u kernels became %u, %u of several outputs\n", before, after, several);
    assert_true(after * 3 < before * 2 && several > 400);
}

/* --- the same on CUDA --- */

static void job_done(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

static void run_job(struct backend *b, struct stream *s, struct job *job)
{
    _Atomic bool told = false;
    int tries = 0;
    job->done = job_done;
    job->user = &told;
    backend_submit(b, s, job);
    while (!atomic_load(&told))
        pause_a_little(&tries);
    if (job->result != ERR_OK)
        fail_msg("the job failed: %s", err_name(job->result));
}

/* A fused list on its way: prepared, so that the kernels of several are compiled side by side. */
struct on_device {
    struct list l;
    struct ir_kernel **fused;
    uint32_t n;
    char what[64];
};

static void compare_on_device(struct backend *b, struct stream *s, struct on_device *d)
{
    void *want[LIST_SLOTS], *host[LIST_SLOTS], *device[LIST_SLOTS];
    struct job_copy there[LIST_SLOTS], back[LIST_SLOTS];
    struct err e = ERR_INIT;
    struct list *l = &d->l;
    list_run(l, l->kernels, l->n_kernels, want);
    for (uint32_t i = 0; i < l->n_slots; i++) {
        const int64_t n = l->slots[i].bytes;
        assert_int_equal(b->ops->host_alloc(b, n, &host[i], &e), ERR_OK);
        assert_int_equal(b->ops->alloc(b, 0, n, false, &device[i], &e), ERR_OK);
        memcpy(host[i], l->slots[i].was, (size_t)n);
        there[i] = (struct job_copy){device[i], host[i], n, false};
        back[i] = (struct job_copy){host[i], device[i], n, true};
    }
    struct job run = {.kernels = d->fused,
                      .n_kernels = d->n,
                      .slots = device,
                      .copies = there,
                      .n_copies = l->n_slots};
    struct job fetch = {.copies = back, .n_copies = l->n_slots, .slots = device};
    run_job(b, s, &run);
    run_job(b, s, &fetch);
    list_compare(l, want, host, d->fused, d->n, d->what);
    for (uint32_t i = 0; i < l->n_slots; i++) {
        b->ops->free(b, 0, device[i], l->slots[i].bytes);
        b->ops->host_free(b, host[i], l->slots[i].bytes);
    }
    list_free(l, want);
    for (uint32_t i = 0; i < d->n; i++)
        b->ops->release(b, d->fused[i]);
    list_end(l);
}

static void random_lists_leave_the_same_bits_on_cuda(void **state)
{
    (void)state;
    enum { BATCH = 16 };
    static struct on_device batch[BATCH];
    struct backend_config config = {.slab_memory = 8 << 20};
    struct backend *b = NULL;
    struct stream *s = NULL;
    struct err e = ERR_INIT;
    const char *only = getenv("FUSE_SEED"), *count = getenv("FUSE_CUDA");
    const uint64_t end = 1000 + (count ? strtoull(count, NULL, 10) : 2 * BATCH);
    uint32_t several = 0;
    if (backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(b->ops->stream_new(b, 0, &s, &e), ERR_OK);
    for (uint64_t seed = 1000; seed < end;) {
        int n = 0;
        for (; n < BATCH && seed < end; n++, seed++) {
            struct on_device *d = &batch[n];
            random_list(&d->l, only ? strtoull(only, NULL, 10) : seed, d->what, sizeof d->what);
            list_fuse(&d->l, &d->fused, &d->n);
            for (uint32_t i = 0; i < d->n; i++) {
                several += d->fused[i]->n_outputs > 1;
                b->ops->prepare(b, 0, d->fused[i]);
            }
        }
        for (int i = 0; i < n; i++)
            compare_on_device(b, s, &batch[i]);
    }
    assert_true(only || several > 8);
    b->ops->stream_free(s);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gray_scott_is_one_kernel),
        cmocka_unit_test(the_wave_equation_is_one_kernel),
        cmocka_unit_test(what_was_just_made_is_made_in_place),
        cmocka_unit_test(what_nobody_asks_for_is_not_made),
        cmocka_unit_test(reductions_take_in_what_is_theirs),
        cmocka_unit_test(random_lists_leave_the_same_bits),
        cmocka_unit_test(random_lists_leave_the_same_bits_on_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
