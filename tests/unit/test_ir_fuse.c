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
#include "compute/ir/ir_build.h"
#include "tests/unit/cuda_arrays.h"
#include "tests/unit/fuse_random.h"

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
    for (int i = 0; i < 5; i++) {
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
    is(&l, 2, 1, "jacobi");
    list_end(&l);
}

/* Where a part of an array is assigned, the rest of it is copied to the new memory first. */
static void parts_are_put_over_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    struct ir_kernel **fused;
    fields(&l, DT_F32, 2, names);
    assert_true(
        list_assign_region(&l, "u", "1:-1, 1:-1", "u[1:-1, 1:-1] + 0.1*laplacian(u)[1:-1, 1:-1]"));
    assert_int_equal(l.n_kernels, 2);
    is(&l, 1, 1, "heat between walls");
    list_check(&l, &fused, "heat between walls");
    assert_int_equal(fused[0]->n_inputs, 1); /* the array itself, so that it may feed it */
    list_end(&l);
    /* slices in place of shifts, and walls of their own */
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign_region(
        &l, "u", "1:-1, 1:-1",
        "0.25*(u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - v[1:-1, 1:-1])"));
    l.in_place = true;
    assert_true(list_assign_region(&l, "u", "0", "-2*v[1]"));
    assert_true(list_assign_region(&l, "u", "-1", "-2*v[-2] - 3"));
    assert_true(list_assign_region(&l, "u", ":, 0", "-2*v[:, 1]"));
    assert_true(list_assign_region(&l, "u", ":, -1", "7"));
    is(&l, 6, 1, "a cavity, of whose sources no more is known than what is read");
    l.knows_sizes = true;
    is(&l, 1, 1, "a cavity");
    list_end(&l);
    /* a wall that is the row beside it: that has to be there first */
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "u", "u + 0.1*laplacian(u)"));
    l.in_place = true;
    assert_true(list_assign_region(&l, "u", "0", "u[1]"));
    is(&l, 2, 1, "a copied wall");
    list_end(&l);
    /* too far for one to be the other's neighbour; every second row; of another type */
    static const char *const apart[][2] = {{"0", "v[-2]"}, {"::2", "2*v[::2]"}};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        fields(&l, DT_F32, 2, names);
        assert_true(list_assign(&l, "u", "u + v"));
        l.in_place = true;
        assert_true(list_assign_region(&l, "u", apart[i][0], apart[i][1]));
        is(&l, 2, 1, apart[i][1]);
        list_end(&l);
    }
    /* a shift within the part ends there; beside contexts of any kind, too */
    fields(&l, DT_F32, 2, names);
    l.knows_sizes = true;
    assert_true(list_assign(&l, "u", "u + shift(shift(v, [1, 0], 'clamp'), [1, 0], 'self')"));
    l.in_place = true;
    assert_true(list_assign_region(&l, "u", "1:-1, 1:-1",
                                   "shift(v[1:-1, 1:-1], [1, 0], 'clamp') + index(0)"));
    is(&l, 2, 1, "a shift within");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "u", "u + v"));
    l.in_place = true;
    assert_true(list_assign_region(&l, "u", "1:-1, 2:", "v[1:-1, 2:] + index(0)*10 + index(1)"));
    is(&l, 1, 1, "indices of the part");
    list_end(&l);
    /* of v there is no more than what is read, as far as is known */
    fields(&l, DT_F32, 1, names);
    list_array(&l, "v", DT_F32, 2, (int64_t[]){10, 38});
    assert_true(list_assign(&l, "u", "u*2"));
    l.in_place = true;
    assert_true(list_assign_region(&l, "u", "1:-1, 1:-1", "v"));
    is(&l, 2, 1, "a smaller array");
    list_end(&l);
}

/* --- by hand --- */

/* A kernel that loads `from` and stores its elements, negated, to `to`. */
static struct ir_kernel *negated(struct list *l, enum dtype dtype, uint32_t from,
                                 const struct view *source, const struct ir_ctx *ctx, uint32_t to,
                                 const struct view *target)
{
    struct ir_kernel *k = arena_alloc(l->arena, sizeof *k);
    struct ir_builder b;
    struct ir_ctx space;
    memset(&space, 0, sizeof space);
    space.rank = k->rank = target->rank;
    for (int a = 0; a < k->rank; a++)
        space.shape[a] = k->shape[a] = target->shape[a];
    ir_builder_init(&b, l->arena, k);
    assert_int_equal(ir_add_ctx(&b, &space), 0);
    uint32_t c = ctx ? ir_add_ctx(&b, ctx) : 0;
    uint32_t x = ir_emit_load(&b, from, dtype, source, c);
    struct ir_output o = {.slot = to, .dtype = dtype, .view = *target};
    o.node = ir_emit_op(&b, OP_NEGATIVE, dtype, &x);
    assert_true(ir_add_output(&b, &o) && !b.oom);
    assert_true(l->n_kernels < LIST_KERNELS);
    return l->kernels[l->n_kernels++] = k;
}

/* What the second kernel reads is what the first wrote, through views of any kind: one kernel where
 * all of it was written. */
static void loads_find_what_was_stored(void **state)
{
    (void)state;
    static const struct {
        struct view stored, loaded;
        uint32_t kernels;
    } cases[] = {
        {{1, {8}, {1}, 0}, {1, {8}, {1}, 0}, 1},
        {{1, {8}, {-1}, 7}, {1, {8}, {1}, 0}, 1},             /* stored backwards */
        {{1, {8}, {-2}, 15}, {1, {4}, {4}, 3}, 1},            /* and every second of these */
        {{1, {8}, {2}, 1}, {1, {8}, {2}, 0}, 2},              /* those between */
        {{1, {8}, {2}, 1}, {1, {15}, {1}, 1}, 2},             /* and all */
        {{2, {4, 6}, {6, 1}, 2}, {2, {6, 4}, {1, 6}, 2}, 1},  /* turned */
        {{2, {4, 6}, {1, 4}, 0}, {1, {4}, {5}, 0}, 2},        /* a diagonal moves along two axes */
        {{2, {4, 6}, {6, 1}, 0}, {1, {24}, {1}, 0}, 2},       /* and so does a row of rows */
        {{2, {4, 6}, {6, 1}, 0}, {1, {3}, {-6}, 20}, 1},      /* a column, upwards */
        {{2, {4, 6}, {6, 1}, 0}, {2, {4, 6}, {0, 1}, 6}, 1},  /* one row again and again */
        {{2, {4, 6}, {6, 1}, 0}, {2, {2, 6}, {12, 1}, 7}, 2}, /* beyond the end of the rows */
        {{2, {4, 1}, {3, 0}, 1}, {1, {4}, {3}, 1}, 1},
        {{2, {4, 6}, {1, 0}, 0}, {1, {4}, {1}, 0}, 2}, /* stored six times each */
        {{0, {0}, {0}, 5}, {2, {4, 6}, {0, 0}, 5}, 1},
        {{3, {2, 3, 4}, {-12, 4, 1}, 12}, {2, {2, 4}, {12, 1}, 4}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int same = 0; same < 2; same++) {
            struct list l;
            char what[64];
            list_begin(&l);
            for (int s = 0; s < 3; s++)
                list_slot(&l, DT_I32, 200);
            l.dead[1] = true;
            struct view source = cases[i].stored, target = {.rank = cases[i].loaded.rank};
            int64_t stride = 1;
            for (int a = target.rank; a-- > 0; stride *= target.shape[a]) {
                target.shape[a] = cases[i].loaded.shape[a];
                target.strides[a] = stride;
            }
            source.offset += 3;
            negated(&l, DT_I32, 0, &source, NULL, 1, &cases[i].stored);
            negated(&l, same ? DT_I32 : DT_U32, 1, &cases[i].loaded, NULL, 2, &target);
            snprintf(what, sizeof what, "case %zu", i);
            is(&l, same ? cases[i].kernels : 2, 1, what);
            list_end(&l);
        }
}

static void ghosts_are_not_made_up(void **state)
{
    (void)state;
    struct list l;
    struct view v = {.rank = 1, .shape = {8}, .strides = {1}, .offset = 4};
    struct ir_ctx beside;
    memset(&beside, 0, sizeof beside);
    beside.rank = 1;
    beside.shape[0] = 8;
    beside.step[0] = beside.offset[0] = 1;
    for (int mode = BOUNDARY_CLAMP; mode <= BOUNDARY_GHOST;
         mode += BOUNDARY_GHOST - BOUNDARY_CLAMP) {
        list_begin(&l);
        for (int s = 0; s < 3; s++)
            list_slot(&l, DT_F32, 80);
        l.dead[1] = true;
        beside.mode = (enum boundary_mode)mode;
        negated(&l, DT_F32, 0, &v, NULL, 1, &v);
        negated(&l, DT_F32, 1, &v, &beside, 2, &v);
        is(&l, mode == BOUNDARY_GHOST ? 2 : 1, 1, "read at an offset what was stored");
        /* the first kernel may have them itself */
        l.n_kernels = 0;
        negated(&l, DT_F32, 0, &v, &beside, 1, &v);
        negated(&l, DT_F32, 1, &v, NULL, 2, &v);
        is(&l, 1, 1, "read at an offset");
        list_end(&l);
    }
}

/* "Inside" is of the shift itself, also where two that wrap could be one. Beside it each kernel
 * reads through a context that is no such shift, so that they are one. */
static void a_flag_is_of_its_own_shift(void **state)
{
    (void)state;
    struct list l;
    struct view v = {.rank = 1, .shape = {8}, .strides = {1}}, w = {1, {9}, {1}, 0};
    struct ir_kernel **fused;
    list_begin(&l);
    for (int s = 0; s < 3; s++)
        list_slot(&l, DT_BOOL, 9);
    l.dead[1] = true;
    for (uint32_t n = 0; n < 2; n++) {
        struct ir_kernel *k = arena_alloc(l.arena, sizeof *k);
        struct ir_builder b;
        struct ir_ctx c;
        struct ir_node inside;
        memset(&c, 0, sizeof c);
        memset(&inside, 0, sizeof inside);
        k->rank = c.rank = 1;
        k->shape[0] = c.shape[0] = 8;
        ir_builder_init(&b, l.arena, k);
        assert_int_equal(ir_add_ctx(&b, &c), 0);
        c.step[0] = 1;
        c.offset[0] = 2;
        c.mode = BOUNDARY_WRAP;
        inside.kind = IR_INSIDE;
        inside.dtype = DT_BOOL;
        inside.ctx = ir_add_ctx(&b, &c);
        c.start[0] = 1;
        c.shape[0] = 9;
        uint32_t args[2] = {ir_emit(&b, &inside)};
        args[1] = ir_emit_load(&b, n, DT_BOOL, &v, inside.ctx);
        args[0] = ir_emit_op(&b, OP_NOT_EQUAL, DT_BOOL, args);
        args[1] = ir_emit_load(&b, 0, DT_BOOL, &w, ir_add_ctx(&b, &c));
        struct ir_output o = {.slot = n + 1, .dtype = DT_BOOL, .view = v};
        o.node = ir_emit_op(&b, OP_NOT_EQUAL, DT_BOOL, args);
        assert_true(ir_add_output(&b, &o) && !b.oom);
        l.kernels[l.n_kernels++] = k;
    }
    assert_int_equal(list_check(&l, &fused, "flags"), 1);
    list_end(&l);
}

static void what_runs_several_steps_is_left_alone(void **state)
{
    (void)state;
    struct list l;
    struct view v = {.rank = 1, .shape = {8}, .strides = {1}};
    list_begin(&l);
    for (int s = 0; s < 3; s++)
        list_slot(&l, DT_F32, 32);
    l.dead[1] = true;
    negated(&l, DT_F32, 0, &v, NULL, 1, &v)->steps = 3;
    l.kernels[0]->outputs[0].feeds = 1;
    negated(&l, DT_F32, 1, &v, NULL, 2, &v);
    struct ir_kernel **fused;
    uint32_t n;
    list_fuse(&l, &fused, &n);
    assert_int_equal(n, 2);
    assert_ptr_equal(fused[0], l.kernels[0]);
    list_end(&l);
}

/* --- lists as they come --- */

/* Every allocation may fail: nothing is lost, and it works afterwards. */
static void want_of_memory_is_told(void **state)
{
    (void)state;
    struct list l;
    char what[64];
    for (uint64_t seed = 1;; seed++) {
        random_list(&l, seed, what, sizeof what);
        if (l.n_kernels > 8)
            break;
        list_end(&l);
    }
    const int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct arena *arena = arena_new(0);
        struct ir_kernel **fused = NULL;
        struct err e = ERR_INIT;
        uint32_t n_fused = 0;
        struct ir_fuse_request req = {.kernels = l.kernels,
                                      .n_kernels = l.n_kernels,
                                      .dead = l.dead,
                                      .n_slots = l.n_slots,
                                      .limits = l.limits};
        mem_fail_after(n, false);
        enum err_code code = ir_fuse(arena, &req, &fused, &n_fused, &e);
        const bool refused = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(arena);
        assert_int_equal(mem_live(), before);
        assert_int_equal(code, refused ? ERR_OUT_OF_MEMORY : ERR_OK);
        assert_true(n < 1000);
        if (!refused) {
            assert_true(n > 2);
            break;
        }
    }
    list_end(&l);
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

static void run_job(struct backend *b, struct backend_stream *s, struct job *job)
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

static void compare_on_device(struct backend *b, struct backend_stream *s, struct on_device *d)
{
    void *want[LIST_SLOTS], *host[LIST_SLOTS], *device[LIST_SLOTS];
    struct job_copy there[LIST_SLOTS], back[LIST_SLOTS];
    struct err e = ERR_INIT;
    struct list *l = &d->l;
    list_run(l, l->kernels, l->n_kernels, want);
    for (uint32_t i = 0; i < l->n_slots; i++) {
        const int64_t n = l->slots[i].bytes;
        assert_int_equal(b->ops->host_alloc(b, n, NULL, &host[i], &e), ERR_OK);
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
        b->ops->host_free(b, host[i], l->slots[i].bytes, false);
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
    struct backend_stream *s = NULL;
    struct err e = ERR_INIT;
    const char *only = getenv("FUSE_SEED"), *count = getenv("FUSE_CUDA");
    const uint64_t end = 1000 + (count ? strtoull(count, NULL, 10) : 2 * BATCH);
    uint32_t several = 0;
    if (backend_open("cuda", &config, &b, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(b->ops->stream_new(b, 0, false, &s, &e), ERR_OK);
    for (uint64_t seed = 1000; seed < end;) {
        int n = 0;
        for (; n < BATCH && seed < end; n++, seed++) {
            struct on_device *d = &batch[n];
            random_list(&d->l, only ? strtoull(only, NULL, 10) : seed, d->what, sizeof d->what);
            list_fuse(&d->l, &d->fused, &d->n);
            for (uint32_t i = 0; i < d->n; i++) {
                several += d->fused[i]->n_outputs > 1;
                b->ops->prepare(b, 0, d->fused[i], NULL);
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
        cmocka_unit_test(parts_are_put_over_the_whole),
        cmocka_unit_test(loads_find_what_was_stored),
        cmocka_unit_test(ghosts_are_not_made_up),
        cmocka_unit_test(a_flag_is_of_its_own_shift),
        cmocka_unit_test(what_runs_several_steps_is_left_alone),
        cmocka_unit_test(want_of_memory_is_told),
        cmocka_unit_test(random_lists_leave_the_same_bits),
        cmocka_unit_test(random_lists_leave_the_same_bits_on_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
