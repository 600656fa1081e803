/* compute/ir/fuse: graphs built by hand, and where they are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/lower_graph.h"

static const struct fuse_limits patient = {.max_nodes = 400, .max_inputs = 64, .recompute = 400};

static void shared_nodes_are_computed_once(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t x = input(&g, DT_F32);
    for (int i = 0; i < 20; i++) /* a tree of 2^20 */
        x = op2(&g, OP_MULTIPLY, x, x);
    struct ir_plan *p = plan(&g, x, &limits);
    assert_int_equal(p->n_kernels, 1);
    assert_int_equal(p->kernels[0]->n_nodes, 21);
    arena_free(g.arena);
}

static void a_long_chain_is_cut_not_refused(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 2);
    uint32_t u = input(&g, DT_F32), v = input(&g, DT_F32), x = u;
    for (int i = 0; i < 10000; i++)
        x = op2(&g, i % 2 ? OP_ADD : OP_MULTIPLY, x, v);
    struct ir_plan *p = plan(&g, x, &limits);
    assert_in_range(p->n_kernels, 10000 / 400, 10000 / 100);
    for (uint32_t i = 0; i < p->n_kernels; i++)
        assert_in_range(p->kernels[i]->n_nodes, 1, 500);
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].kind == SLOT_TEMP)
            assert_in_range(p->slots[i].last - p->slots[i].first, 1, 2);
    arena_free(g.arena);
}

static void too_many_operands_are_cut(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 40);
    uint32_t x = input(&g, DT_F32);
    for (int i = 1; i < 40; i++)
        x = op2(&g, OP_ADD, x, input(&g, DT_F32));
    struct fuse_limits few = limits;
    few.max_inputs = 8;
    struct ir_plan *p = plan(&g, x, &few);
    assert_true(p->n_kernels > 4);
    for (uint32_t i = 0; i < p->n_kernels; i++)
        assert_in_range(p->kernels[i]->n_inputs, 1, 9);
    arena_free(g.arena);
}

static void dear_shifted_expressions_become_temporaries(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32);
    uint32_t cheap = op2(&g, OP_ADD, u, u);
    uint32_t dear = op2(&g, OP_POW, op2(&g, OP_POW, u, u), u);
    for (int pass = 0; pass < 2; pass++) {
        uint32_t x = pass ? dear : cheap, sum = x;
        for (int axis = 0; axis < 3; axis++)
            sum = op2(&g, OP_ADD, sum, shift(&g, x, axis, 1, BOUNDARY_WRAP));
        assert_int_equal(plan(&g, sum, &limits)->n_kernels, pass ? 2 : 1);
    }
    arena_free(g.arena);
}

/* What differences of shifted expressions have in common is read at several places, though no shift
 * is its own. */
static void what_several_places_compute_becomes_a_temporary(void **state)
{
    (void)state;
    for (int dear = 0; dear < 2; dear++) {
        struct graph g;
        begin(&g, 3, cube, 2);
        uint32_t u = input(&g, DT_F32), v = input(&g, DT_F32), common = u;
        for (int i = 0; i < (dear ? 20 : 6); i++)
            common = op2(&g, i % 2 ? OP_ADD : OP_MULTIPLY, common, v);
        uint32_t left = shift(&g, op2(&g, OP_ADD, common, v), 0, 1, BOUNDARY_WRAP);
        uint32_t right = op2(&g, OP_SUBTRACT, common, v);
        struct ir_plan *p = plan(&g, op2(&g, OP_MULTIPLY, left, right), &limits);
        assert_int_equal(p->n_kernels, dear ? 2 : 1);
        assert_int_equal(count(p->kernels[0], IR_OP), dear ? 20 : 2 * 6 + 3);
        /* behind one shift it is computed once */
        p = plan(&g, op2(&g, OP_MULTIPLY, left, v), &limits);
        assert_int_equal(p->n_kernels, 1);
        /* and behind two that are alike: these are one place */
        uint32_t again = shift(&g, op2(&g, OP_MULTIPLY, common, v), 0, 1, BOUNDARY_WRAP);
        p = plan(&g, op2(&g, OP_MULTIPLY, left, again), &limits);
        assert_int_equal(p->n_kernels, 1);
        arena_free(g.arena);
    }
}

/* Each step reads five elements of the one before: two steps back that are 21, three back 85. So
 * every third is a temporary, and none of the shifts and sums on the way. */
static void a_chain_is_cut_where_its_places_add_up(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t x = input(&g, DT_F32);
    for (int step = 0; step < 9; step++) {
        uint32_t sum = x;
        for (int i = 0; i < 4; i++)
            sum = op2(&g, OP_ADD, sum, shift(&g, x, i / 2, i % 2 ? 1 : -1, BOUNDARY_WRAP));
        x = sum;
    }
    struct ir_plan *p = plan(&g, x, &patient);
    assert_int_equal(p->n_kernels, 3);
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        assert_int_equal(p->kernels[i]->n_inputs, 1);
        assert_int_equal(count(p->kernels[i], IR_LOAD), 85);
    }
    arena_free(g.arena);
}

/* What is computed at three places counts three times as large, not as its tree of 2^20. */
static void shared_nodes_count_once_at_each_place(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t x = input(&g, DT_F32);
    for (int i = 0; i < 20; i++)
        x = op2(&g, OP_MULTIPLY, x, x);
    uint32_t sum = op2(&g, OP_ADD, shift(&g, x, 0, 1, BOUNDARY_WRAP), x);
    sum = op2(&g, OP_ADD, sum, shift(&g, x, 0, -1, BOUNDARY_WRAP));
    struct ir_plan *p = plan(&g, sum, &patient);
    assert_int_equal(p->n_kernels, 1);
    assert_int_equal(count(p->kernels[0], IR_OP), 3 * 20 + 2);
    assert_int_equal(plan(&g, sum, &limits)->n_kernels, 2);
    arena_free(g.arena);
}

/* An edge is little to compute, unless all elements are set against it. */
static void an_edge_counts_for_the_elements_that_need_it(void **state)
{
    (void)state;
    static const int64_t flat[3] = {1, 9, 10};
    const struct affine edge = {.rank = 3, .src = {-1, 1, 2}, .step = {0, 1, 1}};
    struct graph g;
    begin(&g, 3, cube, 2);
    uint32_t u = input(&g, DT_F32), v = input(&g, DT_F32), x = u;
    for (int i = 0; i < 20; i++)
        x = op2(&g, i % 2 ? OP_ADD : OP_MULTIPLY, x, v);
    const struct typed_node n = {.kind = T_VIEW,
                                 .dtype = DT_F32,
                                 .rank = 3,
                                 .shape = flat,
                                 .n_args = 1,
                                 .args = {x},
                                 .view = &edge};
    const uint32_t first = typed_add(g.arena, &g.t, &n);
    assert_int_equal(plan(&g, op2(&g, OP_SUBTRACT, x, first), &limits)->n_kernels, 2);
    struct typed_node put = {
        .kind = T_PUT, .dtype = DT_F32, .rank = 3, .shape = cube, .n_args = 1, .args = {first}};
    put.put.axis = 0;
    const uint32_t piece = typed_add(g.arena, &g.t, &put);
    static const int64_t rest[3] = {7, 9, 10};
    const struct affine other = {
        .rank = 3, .src = {0, 1, 2}, .start = {1, 0, 0}, .step = {1, 1, 1}};
    struct typed_node inner = n;
    inner.shape = rest;
    inner.view = &other;
    put.n_args = 2;
    put.args[0] = typed_add(g.arena, &g.t, &inner);
    put.args[1] = piece;
    put.put.offset = 1;
    assert_int_equal(plan(&g, typed_add(g.arena, &g.t, &put), &limits)->n_kernels, 2);
    arena_free(g.arena);
}

/* One element of the last of 40 steps needs few of the first, but there are 3^40 ways to them. */
static void ways_to_few_elements_are_limited(void **state)
{
    (void)state;
    static const int64_t large[1] = {1 << 30}, one[1] = {1};
    const struct affine element = {.rank = 1, .src = {0}, .start = {7}, .step = {1}};
    struct graph g;
    begin(&g, 1, large, 1);
    uint32_t x = input(&g, DT_F32);
    for (int step = 0; step < 40; step++)
        x = op2(&g, OP_ADD, op2(&g, OP_ADD, shift(&g, x, 0, 1, BOUNDARY_WRAP), x),
                shift(&g, x, 0, -1, BOUNDARY_WRAP));
    const struct typed_node n = {.kind = T_VIEW,
                                 .dtype = DT_F32,
                                 .rank = 1,
                                 .shape = one,
                                 .n_args = 1,
                                 .args = {x},
                                 .view = &element};
    struct ir_plan *p = plan(&g, typed_add(g.arena, &g.t, &n), &patient);
    assert_in_range(p->n_kernels, 2, 40);
    for (uint32_t i = 0; i < p->n_kernels; i++)
        assert_in_range(p->kernels[i]->n_nodes, 1, 2 * patient.max_nodes);
    assert_in_range(arena_bytes(g.arena), 1, 4 << 20);
    arena_free(g.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_nodes_are_computed_once),
        cmocka_unit_test(a_long_chain_is_cut_not_refused),
        cmocka_unit_test(too_many_operands_are_cut),
        cmocka_unit_test(dear_shifted_expressions_become_temporaries),
        cmocka_unit_test(what_several_places_compute_becomes_a_temporary),
        cmocka_unit_test(a_chain_is_cut_where_its_places_add_up),
        cmocka_unit_test(shared_nodes_count_once_at_each_place),
        cmocka_unit_test(an_edge_counts_for_the_elements_that_need_it),
        cmocka_unit_test(ways_to_few_elements_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
