/* compute/gpu/interp: what becomes a program, and of which machine. That programs compute what they
 * should is the suites' (tests/backend, ARRAYD_INTERPRET). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/interp/interp_int.h"
#include "compute/ir/ir_build.h"
#include "tests/unit/real_nvrtc.h"
#include "tests/unit/slice.h"

#define MOST_BYTES (256 << 20) /* that a program leaves */

static struct arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_new(0);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* A kernel over n points; arrays are contiguous. */
struct world {
    struct ir_kernel *k;
    struct ir_builder b;
    struct view v;
};

static struct world world_of(int64_t n)
{
    struct world w = {.k = arena_alloc(arena, sizeof *w.k), .v = {.rank = 1}};
    w.v.shape[0] = n;
    w.v.strides[0] = 1;
    w.k->rank = 1;
    w.k->shape[0] = n;
    ir_builder_init(&w.b, arena, w.k);
    struct ir_ctx c = {.rank = 1};
    c.shape[0] = n;
    c.step[0] = 1;
    (void)ir_add_ctx(&w.b, &c);
    return w;
}

static uint32_t op(struct world *w, enum op what, enum dtype t, uint32_t x, uint32_t y)
{
    const uint32_t args[] = {x, y};
    return ir_emit_op(&w->b, what, t, args);
}

static void store(struct world *w, uint32_t node)
{
    const struct ir_output out = {
        .node = node, .slot = 99, .dtype = (enum dtype)w->k->nodes[node].dtype, .view = w->v};
    assert_true(ir_add_output(&w->b, &out));
}

static struct form *form_of_store(struct world *w)
{
    const uint32_t steps = w->k->steps;
    w->k->steps = 0;
    struct form *f = form_of(arena, w->k, 256);
    w->k->steps = steps;
    assert_non_null(f);
    return f;
}

/* The output becomes the largest of its values. */
static void reduce_all(struct world *w)
{
    struct ir_output *o = &w->k->outputs[0];
    o->kind = OUT_REDUCE;
    o->reduce = REDUCE_MAX;
    o->axes = 1;
    o->view.shape[0] = 1;
    o->view.strides[0] = 0;
}

static struct emitted *program(struct world *w, enum machine *ret, struct emitted **ret_rest)
{
    const char *why = ir_verify(w->k, arena);
    if (why)
        fail_msg("%s", why);
    struct form *f = form_of(arena, w->k, 256);
    assert_non_null(f);
    return interp_program(arena, w->k, f, MOST_BYTES, ret, ret_rest);
}

static void the_least_machine_that_has_every_value(void **state)
{
    (void)state;
    static const struct {
        enum dtype t;
        enum machine m;
    } cases[] = {{DT_F32, MACHINE_4}, {DT_U8, MACHINE_4},  {DT_F64, MACHINE_8},
                 {DT_I64, MACHINE_8}, {DT_C64, MACHINE_8}, {DT_C128, MACHINE_16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w = world_of(1000);
        const uint32_t x = ir_emit_load(&w.b, 0, cases[i].t, &w.v, 0);
        store(&w, op(&w, OP_ADD, cases[i].t, x, ir_emit_load(&w.b, 1, cases[i].t, &w.v, 0)));
        enum machine m = MACHINES;
        struct emitted *rest, *p = program(&w, &m, &rest);
        assert_non_null(p);
        assert_null(rest);
        assert_int_equal(m, cases[i].m);
        assert_int_equal(p->n_addresses, 3); /* two arrays are read and one is written */
        const struct interp_params *q = (const struct interp_params *)p->params;
        assert_int_equal(q->points, 1000);
        assert_int_equal(q->chunks * machines[m].elements, 1000);
        assert_int_equal(q->n, 4);
        /* a register is free from its value's last use on */
        assert_int_equal(p->form->shared,
                         2ll * INTERP_BLOCK * machines[m].word * machines[m].elements);
        assert_int_equal(interp_work(p), 4000);
    }
}

static void an_index_is_an_int64(void **state)
{
    (void)state;
    struct world w = world_of(10);
    store(&w, ir_emit_cast(&w.b, ir_emit_index(&w.b, 0, 0, 5, 2), DT_F32));
    enum machine m;
    struct emitted *rest;
    assert_non_null(program(&w, &m, &rest));
    assert_int_equal(m, MACHINE_8);
}

static void what_is_no_program(void **state)
{
    (void)state;
    enum machine m;
    struct emitted *rest;
    struct world w = world_of(10);
    store(&w, op(&w, OP_EXP, DT_F32, ir_emit_load(&w.b, 0, DT_F32, &w.v, 0), 0));
    assert_non_null(program(&w, &m, &rest));
    w.k->fast_math = true;
    assert_null(program(&w, &m, &rest));
    w.k->fast_math = false;
    w.k->steps = 2;
    assert_null(interp_program(arena, w.k, form_of_store(&w), MOST_BYTES, &m, &rest));
}

/* More values at a time than there are registers, and more steps than fit. */
static void what_does_not_fit(void **state)
{
    (void)state;
    enum machine m;
    struct emitted *rest;
    for (int n = INTERP_REGISTERS - 1; n <= INTERP_REGISTERS + 1; n++) {
        struct world w = world_of(10);
        uint32_t at[INTERP_REGISTERS + 1], sum;
        for (int i = 0; i < n; i++)
            at[i] = op(&w, OP_EXP, DT_F32, ir_emit_load(&w.b, (uint32_t)i, DT_F32, &w.v, 0), 0);
        sum = at[n - 1];
        for (int i = n - 1; i-- > 0;)
            sum = op(&w, OP_ADD, DT_F32, at[i], sum);
        store(&w, sum);
        assert_int_equal(program(&w, &m, &rest) != NULL, n <= INTERP_REGISTERS);
    }
    for (int n = 200; n <= 300; n += 100) {
        struct world w = world_of(10);
        uint32_t x = ir_emit_load(&w.b, 0, DT_F32, &w.v, 0);
        for (int i = 0; i < n; i++)
            x = op(&w, i % 2 ? OP_EXP : OP_SIN, DT_F32, x, 0);
        store(&w, x);
        assert_int_equal(program(&w, &m, &rest) != NULL, n < INTERP_STEPS);
    }
}

static void nvrtc_makes_machine_code_of_rests(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    const int step = slice_step(4);
    for (int i = slice_from(step); i < INTERP_RESTS; i += step) {
        struct compiled code = {0};
        struct err e = ERR_INIT;
        if (compile_text(nvrtc, i % 2 ? "sm_80" : "sm_90", interp_rest(arena, i)->text, false,
                         &code, &e) != ERR_OK)
            fail_msg("%s", e.message);
        mem_free(code.bytes);
    }
}

static void reductions_leave_what_is_reduced(void **state)
{
    (void)state;
    enum machine m;
    struct emitted *rest[2];
    for (int i = 0; i < 2; i++) {
        struct world w = world_of(1000);
        const uint32_t x = ir_emit_load(&w.b, 0, DT_F32, &w.v, 0);
        const uint32_t node = op(&w, i ? OP_MULTIPLY : OP_SUBTRACT, DT_F32, x,
                                 ir_emit_load(&w.b, 1, DT_F32, &w.v, 0));
        store(&w, node);
        reduce_all(&w);
        struct emitted *p = program(&w, &m, &rest[i]);
        assert_non_null(p);
        assert_non_null(rest[i]);
        assert_true(p->scratch >= rest[i]->scratch + 4000);
        assert_int_equal(p->addresses[p->n_addresses - 1].slot, EMIT_SCRATCH);
        assert_true(p->addresses[p->n_addresses - 1].displacement >= rest[i]->scratch);
    }
    assert_string_equal(rest[0]->text, rest[1]->text); /* one text for all */

    struct world w = world_of(100000000);
    store(&w, op(&w, OP_EXP, DT_F32, ir_emit_load(&w.b, 0, DT_F32, &w.v, 0), 0));
    reduce_all(&w);
    assert_null(program(&w, &m, &rest[0])); /* more than MOST_BYTES to leave */
}

static int64_t number_of(uint64_t *random, int64_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(*random >> 33) % n;
}

/* A reduction of an array of that shape, laid out in some order, along these axes; or a scan along
 * one, into a result whose elements are `apart`. */
static struct emitted *rest_of(const int64_t *shape, const int *order, int rank, uint32_t axes,
                               enum reduce_op reduce, int64_t apart)
{
    const bool scan = apart > 0;
    struct world w = world_of(1);
    struct ir_ctx *c = &w.k->ctxs[0];
    w.k->rank = c->rank = w.v.rank = rank;
    int64_t n = 1, kept;
    for (int i = rank - 1; i >= 0; i--) {
        w.v.strides[order[i]] = n;
        n *= shape[order[i]];
    }
    for (int a = 0; a < rank; a++) {
        w.k->shape[a] = c->shape[a] = w.v.shape[a] = shape[a];
        c->src[a] = (int8_t)a;
        c->step[a] = 1;
    }
    const uint32_t x = ir_emit_load(&w.b, 0, DT_F32, &w.v, 0);
    const uint32_t node =
        reduce == REDUCE_ANY ? op(&w, OP_LESS, DT_F32, x, x) : op(&w, OP_EXP, DT_F32, x, 0);
    struct ir_output out = {.node = node,
                            .slot = 99,
                            .dtype = DT_F32,
                            .kind = scan ? OUT_SCAN : OUT_REDUCE,
                            .reduce = reduce,
                            .axes = axes,
                            .view = {.rank = rank}};
    kept = scan ? apart : 1;
    out.dtype = reduce == REDUCE_ARGMAX ? DT_I64 : reduce == REDUCE_ANY ? DT_BOOL : DT_F32;
    for (int a = rank - 1; a >= 0; a--) {
        out.view.shape[a] = !scan && axes >> a & 1 ? 1 : shape[a];
        out.view.strides[a] = !scan && axes >> a & 1 ? 0 : kept;
        kept *= out.view.shape[a];
    }
    assert_true(ir_add_output(&w.b, &out));
    enum machine m;
    struct emitted *rest;
    assert_non_null(program(&w, &m, &rest));
    assert_non_null(rest);
    return rest;
}

/* What follows a reduction's program has one text for all shapes, layouts and axes, but for those
 * that alternate too often. */
static void reductions_of_all_shapes_have_two_texts(void **state)
{
    (void)state;
    static const enum reduce_op ops[] = {REDUCE_SUM, REDUCE_MEAN,   REDUCE_VAR,
                                         REDUCE_MAX, REDUCE_ARGMAX, REDUCE_ANY};
    static const int plain[] = {0, 1, 2, 3, 4};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const char *texts[2] = {rest_of((int64_t[]){9, 7}, plain, 2, 1, ops[i], 0)->text,
                                rest_of((int64_t[]){9, 7}, plain, 2, 2, ops[i], 0)->text};
        bool compiled[2] = {false, false};
        for (int r = 2 * INTERP_SCANS; r < INTERP_RESTS; r++)
            for (int t = 0; t < 2; t++)
                compiled[t] |= strcmp(interp_rest(arena, r)->text, texts[t]) == 0;
        assert_true(compiled[0] && compiled[1]);
        for (int round = 0; round < 200; round++) {
            const int rank = 1 + (int)number_of(&random, 3);
            int64_t shape[3];
            int order[3] = {0, 1, 2};
            for (int a = 0; a < rank; a++)
                shape[a] = (int64_t[]){1, 2, 3, 4, 8, 60, 64, 100, 131}[number_of(&random, 9)];
            const bool turned = ops[i] != REDUCE_ARGMAX && number_of(&random, 2);
            if (turned && rank > 1) { /* two axes change places */
                order[0] = rank - 1;
                order[rank - 1] = 0;
            }
            const uint32_t axes = 1 + (uint32_t)number_of(&random, (1 << rank) - 1);
            const char *text = rest_of(shape, order, rank, axes, ops[i], 0)->text;
            assert_true(strcmp(text, texts[0]) == 0 || strcmp(text, texts[1]) == 0);
        }
        const char *text =
            rest_of((int64_t[]){2, 3, 4, 5, 6}, plain, 5, 1 | 4 | 16, ops[i], 0)->text;
        assert_true(strcmp(text, texts[0]) != 0 && strcmp(text, texts[1]) != 0);
    }
}

/* What follows a scan's program has two texts, for rows that are not very long and for all others,
 * whatever the shape, the layout and the result's gaps. */
static void scans_of_all_shapes_have_two_texts(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[3];
        int axis; /* that is scanned */
        bool rows;
    } cases[] = {
        {1, {2}, 0, true},           {1, {65535}, 0, true},        {1, {65536}, 0, false},
        {1, {1 << 24}, 0, false},    {2, {3, 70000}, 1, false},    {2, {600, 65537}, 1, false},
        {2, {600, 65536}, 1, false}, {2, {70, 40}, 0, false},      {2, {70, 40}, 1, true},
        {2, {9000, 3}, 0, false},    {2, {9000, 16}, 0, false},    {2, {2, 300000}, 0, false},
        {2, {30, 300001}, 0, false}, {3, {20, 30, 40}, 0, false},  {3, {20, 30, 40}, 1, false},
        {3, {20, 30, 40}, 2, true},  {3, {2, 100000, 5}, 1, false}};
    static const int orders[2][3] = {{0, 1, 2}, {2, 1, 0}};
    for (int prod = 0; prod < 2; prod++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int way = 0; way < 4; way++) {
                const bool turned = way / 2 && cases[i].rank == 3;
                const struct emitted *rest =
                    rest_of(cases[i].shape, orders[turned], cases[i].rank, 1u << cases[i].axis,
                            prod ? REDUCE_PROD : REDUCE_SUM, 1 + way % 2);
                const struct emitted *want = interp_rest(arena, 12 * prod + !cases[i].rows);
                assert_string_equal(rest->text, want->text);
                assert_false(rest->indirect);
            }
}

/* Every operation and cast of its types, each by a number of its own. */
static void machines_have_what_they_should(void **state)
{
    (void)state;
    for (int m = 0; m < MACHINES; m++) {
        const struct emitted *e = machine_emit(arena, (enum machine)m);
        assert_non_null(e);
        for (int t = 0; t < DT_COUNT; t++)
            for (int o = 0; o < OP_COUNT; o++) {
                char label[32];
                snprintf(label, sizeof label, "    case %u: AR_",
                         code_of_op((enum op)o, (enum dtype)t));
                const char *at = strstr(e->text, label);
                assert_int_equal(at != NULL,
                                 machine_has_op((enum machine)m, (enum op)o, (enum dtype)t));
                assert_null(at ? strstr(at + 1, label) : NULL);
            }
        assert_true(e->form->shared <= 96 << 10);
    }
    assert_false(machine_has_op(MACHINE_4, OP_ADD, DT_F64));
    assert_true(machine_has_op(MACHINE_8, OP_ADD, DT_F64) &&
                machine_has_op(MACHINE_16, OP_EXP, DT_C128));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_least_machine_that_has_every_value, setup, teardown),
        cmocka_unit_test_setup_teardown(an_index_is_an_int64, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_program, setup, teardown),
        cmocka_unit_test_setup_teardown(scans_of_all_shapes_have_two_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(nvrtc_makes_machine_code_of_rests, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(reductions_leave_what_is_reduced, setup, teardown),
        cmocka_unit_test_setup_teardown(reductions_of_all_shapes_have_two_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(machines_have_what_they_should, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
