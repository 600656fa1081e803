/* The interpreter against a plain per-point reading of ir.h: random kernels over random shapes,
 * strides, chains of index contexts and reductions, plus chosen shapes for every way of running. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "tests/unit/interp_setup.h"
#include "tests/unit/slice.h"

#define STEP slice_step(4) /* of seeds */

static void test_random_stores(void **state)
{
    (void)state;
    for (uint64_t seed = 1 + (uint64_t)slice_from(STEP); seed <= 1500; seed += (uint64_t)STEP) {
        rng_state = seed;
        struct setup s;
        int rank;
        int64_t shape[MAX_RANK];
        random_shape(&rank, shape);
        start(&s, rank, shape);
        random_nodes(&s, false);
        for (int more = chance(30) ? (int)between(1, 3) : 0; more > 0; more--) {
            uint32_t node = (uint32_t)between(0, s.k.n_nodes - 1);
            struct ir_output o = {.kind = OUT_STORE, .node = node};
            o.dtype = s.k.nodes[node].dtype;
            o.view = random_view(rank, shape, false);
            o.slot = add_slot(&s, o.dtype, &o.view);
            ir_add_output(&s.b, &o);
        }
        add_store(&s, s.k.n_nodes - 1);
        assert_false(s.b.oom);
        check_setup(&s, seed);
        finish(&s);
    }
}

static void test_random_reductions(void **state)
{
    (void)state;
    for (uint64_t seed = 10001 + (uint64_t)slice_from(STEP); seed <= 11500;
         seed += (uint64_t)STEP) {
        rng_state = seed;
        struct setup s;
        int rank;
        int64_t shape[MAX_RANK];
        random_shape(&rank, shape);
        start(&s, rank, shape);
        random_nodes(&s, true);
        if (add_reduce(&s, s.k.n_nodes - 1)) {
            assert_false(s.b.oom);
            check_setup(&s, seed);
        }
        finish(&s);
    }
}

static void test_random_scans(void **state)
{
    (void)state;
    for (uint64_t seed = 20001 + (uint64_t)slice_from(STEP); seed <= 21500;
         seed += (uint64_t)STEP) {
        rng_state = seed;
        struct setup s;
        int rank;
        int64_t shape[MAX_RANK];
        random_shape(&rank, shape);
        start(&s, rank, shape);
        random_nodes(&s, true);
        uint32_t node = s.k.n_nodes - 1;
        if (!loop_scan(REDUCE_SUM, (enum dtype)s.k.nodes[node].dtype))
            node = ir_emit_cast(&s.b, node, chance(50) ? DT_I64 : DT_F64);
        if (add_scan(&s, node)) {
            assert_false(s.b.oom);
            check_setup(&s, seed);
        }
        finish(&s);
    }
}

/* ---- chosen shapes ---- */

static uint32_t shifted(struct setup *s, int axis, int64_t by, enum boundary_mode mode)
{
    struct ir_ctx c;
    memset(&c, 0, sizeof c);
    c.rank = s->k.rank;
    c.mode = mode;
    for (int i = 0; i < c.rank; i++) {
        c.shape[i] = s->k.shape[i];
        c.src[i] = (int8_t)i;
        c.step[i] = 1;
    }
    c.offset[axis] = by;
    return ir_add_ctx(&s->b, &c);
}

static void laplacian(struct setup *s, enum dtype t, enum boundary_mode mode, bool in_place)
{
    struct view v;
    assert_int_equal(view_contiguous(s->k.rank, s->k.shape, dtype_size(t), &v, NULL), ERR_OK);
    struct view u = v;
    uint32_t slot = add_slot(s, t, &u), sum = IR_NONE;
    for (int a = 0; a < s->k.rank; a++)
        for (int d = -1; d <= 1; d += 2) {
            uint32_t x = ir_emit_load(&s->b, slot, t, &u, shifted(s, a, d, mode));
            sum = sum == IR_NONE ? x : ir_emit_op(&s->b, OP_ADD, t, (uint32_t[]){sum, x});
        }
    struct ir_output o = {.kind = OUT_STORE, .node = sum, .dtype = t, .view = v};
    o.slot = s->out_slot = add_slot(s, t, &o.view);
    if (in_place) {
        uint32_t x = ir_emit_load(&s->b, o.slot, t, &o.view, 0);
        o.node = ir_emit_op(&s->b, OP_SUBTRACT, t, (uint32_t[]){sum, x});
    }
    ir_add_output(&s->b, &o);
}

static void test_stencils(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[3];
    } cases[] = {{1, {70000}},     {1, {5}},          {2, {40, 500}},   {2, {300, 40}},
                 {2, {3, 3}},      {3, {12, 20, 70}}, {3, {4, 5, 300}}, {3, {20, 1, 64}},
                 {3, {1, 30, 30}}, {2, {2, 40000}},   {2, {1000, 2}},   {3, {30, 30, 30}}};
    rng_state = 7;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int mode = BOUNDARY_SELF; mode <= BOUNDARY_CONSTANT; mode++) {
            struct setup s;
            start(&s, cases[i].rank, cases[i].shape);
            laplacian(&s, mode & 1 ? DT_F32 : DT_F64, (enum boundary_mode)mode,
                      (mode + i) % 3 == 0);
            check_setup(&s, i * 10 + (uint64_t)mode);
            finish(&s);
        }
}

/* A stencil with further outputs: an operand as it is, a number, a flag that is known in each box,
 * the stencil's own value again and another of half or twice its size. */
static void test_stencils_of_several(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[3];
    } cases[] = {{1, {70000}},      {2, {40, 500}},    {2, {300, 40}}, {2, {3, 3}},
                 {3, {12, 20, 70}}, {3, {30, 30, 30}}, {2, {1000, 2}}, {2, {2, 40000}},
                 {2, {1200, 1201}} /* written past the caches */};
    rng_state = 9;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int what = i == 8 ? 31 : 1 + 2 * slice_from(STEP); what < 32; what += 2 * STEP) {
            struct setup s;
            const bool single = what & 2;
            start(&s, cases[i].rank, cases[i].shape);
            laplacian(&s, single ? DT_F32 : DT_F64, (enum boundary_mode)(what % 6), false);
            const uint32_t sum = s.k.outputs[0].node;
            struct ir_node inside;
            memset(&inside, 0, sizeof inside);
            inside.kind = IR_INSIDE;
            inside.dtype = DT_BOOL;
            inside.ctx = 1;
            const uint32_t nodes[] = {
                ir_emit_load(&s.b, s.k.inputs[0].slot, s.k.inputs[0].dtype, &s.k.inputs[0].view, 0),
                ir_emit(&s.b, &inside),
                ir_emit_const(&s.b, (struct scalar){.dtype = DT_I16, .v.i16 = 7}),
                ir_emit_cast(&s.b, sum, single ? DT_F64 : DT_F32), sum};
            for (int o = 0; o < 5; o++) {
                struct ir_output out = {.kind = OUT_STORE, .node = nodes[o]};
                out.dtype = s.k.nodes[nodes[o]].dtype;
                if (!(what >> o & 1))
                    continue;
                if (what % 7 == 3)
                    out.view = random_view(s.k.rank, s.k.shape, false);
                else
                    assert_int_equal(view_contiguous(s.k.rank, s.k.shape, dtype_size(out.dtype),
                                                     &out.view, NULL),
                                     ERR_OK);
                out.slot = add_slot(&s, out.dtype, &out.view);
                ir_add_output(&s.b, &out);
            }
            check_setup(&s, i * 100 + (uint64_t)what);
            finish(&s);
        }
}

/* One of the earlier nodes, mostly a load of an array that is shifted, mostly times a constant. */
static uint32_t term(struct setup *s, enum dtype t, uint32_t slot, const struct view *u)
{
    struct view v = *u;
    uint32_t x = (uint32_t)between(0, s->k.n_nodes - 1);
    if (s->k.nodes[x].dtype != t || chance(90))
        x = ir_emit_load(&s->b, slot, t, &v,
                         shifted(s, (int)between(0, 1), (int)between(-3, 3), BOUNDARY_CLAMP));
    if (chance(30))
        return x;
    const struct scalar by = {.dtype = DT_F64, .v.f64 = (double)between(-9, 9) / 7};
    const uint32_t w = ir_emit_const(&s->b, scalar_cast(by, t));
    return ir_emit_op(&s->b, OP_MULTIPLY, t, chance(50) ? (uint32_t[]){x, w} : (uint32_t[]){w, x});
}

/* Sums of up to 70 terms, added and subtracted on either side, in rows of all lengths; some of the
 * partial sums and products have other users. */
static void test_sums(void **state)
{
    (void)state;
    for (uint64_t seed = 1 + (uint64_t)slice_from(STEP); seed <= 300; seed += (uint64_t)STEP) {
        rng_state = seed;
        const enum dtype t = seed % 2 ? DT_F32 : DT_F64;
        struct setup s;
        start(&s, 2, (int64_t[]){between(1, 9), between(1, 700)});
        struct view v;
        assert_int_equal(view_contiguous(2, s.k.shape, dtype_size(t), &v, NULL), ERR_OK);
        struct view u = v;
        const uint32_t slot = add_slot(&s, t, &u);
        uint32_t sum = ir_emit_load(&s.b, slot, t, &u, 0), shared = sum;
        for (int64_t n = between(1, chance(20) ? 70 : 12); n > 0; n--) {
            const uint32_t x = term(&s, t, slot, &v);
            const enum op op = chance(30) ? OP_SUBTRACT : OP_ADD;
            sum = ir_emit_op(&s.b, op, t, chance(80) ? (uint32_t[]){sum, x} : (uint32_t[]){x, sum});
            if (chance(5))
                shared = sum;
        }
        sum = ir_emit_op(&s.b, OP_ADD, t, (uint32_t[]){sum, shared});
        struct ir_output o = {.kind = OUT_STORE, .node = sum, .dtype = t, .view = v};
        o.slot = s.out_slot = add_slot(&s, t, &o.view);
        ir_add_output(&s.b, &o);
        assert_false(s.b.oom);
        check_setup(&s, seed);
        finish(&s);
    }
}

/* A shift of a shift of a shift, every pair of modes, several axes at once. */
static void test_chains(void **state)
{
    (void)state;
    rng_state = 8;
    for (int m = 0; m < 36; m++) {
        struct setup s;
        start(&s, 2, (int64_t[]){60, 70});
        struct view v;
        assert_int_equal(view_contiguous(2, s.k.shape, 4, &v, NULL), ERR_OK);
        struct view u = v;
        uint32_t slot = add_slot(&s, DT_F32, &u), parent = 0;
        static const int64_t offsets[3][2] = {{1, -3}, {-2, 2}, {4, 1}};
        for (int i = 0; i < 3; i++) {
            struct ir_ctx c = s.k.ctxs[0];
            c.parent = parent;
            c.mode = (enum boundary_mode)(i == 1 ? m / 6 : m % 6);
            memcpy(c.offset, offsets[i], sizeof offsets[i]);
            parent = ir_add_ctx(&s.b, &c);
        }
        uint32_t x = ir_emit_load(&s.b, slot, DT_F32, &u, parent);
        struct ir_output o = {.kind = OUT_STORE, .node = x, .dtype = DT_F32, .view = v};
        o.slot = s.out_slot = add_slot(&s, DT_F32, &o.view);
        ir_add_output(&s.b, &o);
        check_setup(&s, (uint64_t)m);
        finish(&s);
    }
}

/* More boundary cases than points are worth: every element finds its own way. */
static void test_many_boxes(void **state)
{
    (void)state;
    static const int64_t twos[10] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, small[4] = {5, 4, 5, 4};
    for (int m = 0; m < 24; m++) {
        struct setup s;
        bool many = m & 1, reduce = m & 2;
        rng_state = (uint64_t)m + 1;
        start(&s, many ? 10 : 4, many ? twos : small);
        struct ir_ctx c = s.k.ctxs[0];
        c.mode = (enum boundary_mode)(m / 4);
        for (int a = 0; a < c.rank; a++)
            c.offset[a] = a % 3 - 1;
        c.offset[0] = 1;
        uint32_t first = ir_add_ctx(&s.b, &c);
        c.parent = first;
        c.offset[0] = -1;
        c.offset[2] = -2;
        uint32_t second = ir_add_ctx(&s.b, &c);
        struct view v = random_view(s.k.rank, s.k.shape, true);
        uint32_t slot = add_slot(&s, DT_F32, &v);
        uint32_t x = ir_emit_load(&s.b, slot, DT_F32, &v, first);
        uint32_t y = ir_emit_load(&s.b, slot, DT_F32, &v, second);
        struct ir_node inside;
        memset(&inside, 0, sizeof inside);
        inside.kind = IR_INSIDE;
        inside.dtype = DT_BOOL;
        inside.ctx = first;
        x = ir_emit_select(&s.b, ir_emit(&s.b, &inside), x, y);
        y = ir_emit_cast(&s.b, ir_emit_index(&s.b, second, 1, 3, -2), DT_F32);
        x = ir_emit_op(&s.b, OP_ADD, DT_F32, (uint32_t[]){x, y});
        if (reduce)
            assert_true(add_reduce(&s, x));
        else
            add_store(&s, x);
        check_setup(&s, (uint64_t)m);
        finish(&s);
    }
}

/* Columns so long that accumulators are merged several times, against plain loops. */
static void test_long_columns(void **state)
{
    (void)state;
    enum { A = 64, B = 2100, C = 128 };
    struct setup s;
    start(&s, 3, (int64_t[]){A, B, C});
    struct view v;
    assert_int_equal(view_contiguous(3, s.k.shape, 4, &v, NULL), ERR_OK);
    rng_state = 3;
    uint32_t slot = add_slot(&s, DT_I32, &v);
    struct ir_output o = {.kind = OUT_REDUCE,
                          .node = ir_emit_load(&s.b, slot, DT_I32, &v, 0),
                          .dtype = DT_I32,
                          .reduce = REDUCE_SUM,
                          .axes = 2,
                          .view = {.rank = 3, .shape = {A, 1, C}, .strides = {C, 0, 1}}};
    o.slot = add_slot(&s, DT_I32, &o.view);
    ir_add_output(&s.b, &o);
    assert_true(run_interp(&s, 2, false));
    const int32_t *in = (const int32_t *)(void *)s.slots[slot] + v.offset;
    const int32_t *out = (const int32_t *)(void *)s.slots[o.slot] + o.view.offset;
    for (int a = 0; a < A; a++)
        for (int c = 0; c < C; c++) {
            int32_t want = 0;
            for (int b = 0; b < B; b++)
                want += in[(a * B + b) * C + c];
            assert_int_equal(out[a * C + c], want);
        }
    finish(&s);
}

/* Shapes that make every partition of reductions: many and few outputs, short and long runs. */
static void test_large_reductions(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[3];
        uint32_t axes;
    } cases[] = {{1, {400000}, 1},      {2, {3, 150000}, 2},   {2, {150000, 3}, 1},
                 {2, {150000, 3}, 2},   {2, {150000, 3}, 3},   {2, {500, 700}, 1},
                 {2, {500, 700}, 2},    {3, {90, 70, 50}, 5},  {3, {90, 70, 50}, 2},
                 {3, {2, 90000, 3}, 2}, {3, {60000, 2, 3}, 2}, {3, {40000, 4, 3}, 5},
                 {2, {1200, 300}, 1},   {2, {2, 200000}, 1},   {3, {10, 2000, 20}, 2},
                 {2, {300000, 1}, 1},   {3, {1, 1, 1}, 7},     {2, {100, 3000}, 1}};
    rng_state = 9;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int shift = 0; shift < 2; shift++) {
            struct setup s;
            start(&s, cases[i].rank, cases[i].shape);
            struct view v;
            assert_int_equal(view_contiguous(s.k.rank, s.k.shape, 4, &v, NULL), ERR_OK);
            struct view u = v;
            uint32_t slot = add_slot(&s, DT_F32, &u);
            uint32_t x = ir_emit_load(&s.b, slot, DT_F32, &u, 0);
            for (int a = 0; a < s.k.rank && shift; a++) {
                uint32_t y = ir_emit_load(&s.b, slot, DT_F32, &u, shifted(&s, a, 1, BOUNDARY_WRAP));
                x = ir_emit_op(&s.b, OP_ADD, DT_F32, (uint32_t[]){x, y});
            }
            int64_t kept[3];
            for (int a = 0; a < s.k.rank; a++)
                kept[a] = cases[i].axes >> a & 1 ? 1 : s.k.shape[a];
            struct ir_output o = {.kind = OUT_REDUCE,
                                  .node = x,
                                  .dtype = DT_F32,
                                  .reduce = i % 3 == 2 ? REDUCE_MAX : REDUCE_SUM,
                                  .axes = cases[i].axes};
            assert_int_equal(view_contiguous(s.k.rank, kept, 4, &o.view, NULL), ERR_OK);
            for (int a = 0; a < s.k.rank; a++)
                if (o.axes >> a & 1)
                    o.view.strides[a] = 0;
            o.slot = s.out_slot = add_slot(&s, DT_F32, &o.view);
            ir_add_output(&s.b, &o);
            check_setup(&s, i);
            finish(&s);
        }
}

static void test_transposed(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{70, 90, 1}, {33, 64, 5}, {5, 40, 40}, {9, 9, 500}};
    rng_state = 11;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int p = 0; p < 6; p++) {
            struct setup s;
            start(&s, 3, shapes[i]);
            struct view v, u = {.rank = 3};
            assert_int_equal(view_contiguous(3, s.k.shape, 4, &v, NULL), ERR_OK);
            static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                            {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
            int64_t stride = 1;
            for (int d = 2; d >= 0; d--) {
                int a = order[p][d];
                u.shape[a] = s.k.shape[a];
                u.strides[a] = stride;
                stride *= u.shape[a];
            }
            struct view w = v;
            uint32_t slot = add_slot(&s, DT_F32, &w), other = add_slot(&s, DT_F32, &u);
            uint32_t x = ir_emit_load(&s.b, slot, DT_F32, &w, 0);
            uint32_t y = ir_emit_load(&s.b, other, DT_F32, &u,
                                      p & 1 ? shifted(&s, 1, 2, BOUNDARY_CLAMP) : 0);
            uint32_t z = ir_emit_index(&s.b, 0, 1, 3, 2);
            x = ir_emit_op(&s.b, OP_ADD, DT_F32, (uint32_t[]){x, y});
            x = ir_emit_op(&s.b, OP_ADD, DT_F32, (uint32_t[]){x, ir_emit_cast(&s.b, z, DT_F32)});
            struct ir_output o = {.kind = OUT_STORE, .node = x, .dtype = DT_F32, .view = v};
            o.slot = s.out_slot = add_slot(&s, DT_F32, &o.view);
            ir_add_output(&s.b, &o);
            check_setup(&s, i * 10 + (uint64_t)p);
            finish(&s);
        }
}

/* Every allocation of a run may fail: no crash, no leak, and it works afterwards. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        rng_state = 5;
        struct setup s;
        start(&s, 2, (int64_t[]){400, 500});
        if (kind == 0) {
            laplacian(&s, DT_F32, BOUNDARY_SELF, false);
        } else {
            struct view v;
            assert_int_equal(view_contiguous(2, s.k.shape, 4, &v, NULL), ERR_OK);
            uint32_t slot = add_slot(&s, DT_F32, &v);
            uint32_t x = ir_emit_load(&s.b, slot, DT_F32, &v, 0);
            struct ir_output o = {.kind = OUT_REDUCE, .node = x, .dtype = DT_F32, .axes = 3};
            o.view.rank = 2;
            o.view.shape[0] = o.view.shape[1] = 1;
            if (kind == 2) {
                o.axes = 1;
                o.view.shape[1] = 500;
                o.view.strides[1] = 1;
            }
            o.slot = s.out_slot = add_slot(&s, DT_F32, &o.view);
            ir_add_output(&s.b, &o);
        }
        int64_t before = mem_live();
        int n = 1;
        for (;; n++) {
            mem_fail_after(n, false);
            bool ok = run_interp(&s, 2, false);
            bool refused = mem_failed() > 0;
            mem_fail_after(0, false);
            assert_int_equal(mem_live(), before);
            if (!refused) {
                assert_true(ok);
                break;
            }
            assert_false(ok);
            assert_true(n < 1000);
        }
        assert_true(n > 3);
        check_setup(&s, 0);
        finish(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_stores),
        cmocka_unit_test(test_random_reductions),
        cmocka_unit_test(test_random_scans),
        cmocka_unit_test(test_stencils),
        cmocka_unit_test(test_stencils_of_several),
        cmocka_unit_test(test_large_reductions),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_many_boxes),
        cmocka_unit_test(test_long_columns),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
