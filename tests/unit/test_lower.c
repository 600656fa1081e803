/* compute/lower, ir, ir_verify: graphs built by hand, plans looked at. What kernels compute
 * is tested by tests/backend/property. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "tests/unit/lower_graph.h"

static void a_stencil_is_one_kernel_reading_its_array_once(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32), sum = u;
    for (int axis = 0; axis < 3; axis++) {
        sum = op2(&g, OP_ADD, sum, shift(&g, u, axis, 1, BOUNDARY_CLAMP));
        sum = op2(&g, OP_ADD, sum, shift(&g, u, axis, -1, BOUNDARY_CLAMP));
    }
    struct ir_plan *p = plan(&g, sum, &limits);
    assert_int_equal(p->n_kernels, 1);
    assert_int_equal(p->kernels[0]->n_inputs, 1);
    assert_int_equal(p->kernels[0]->n_ctxs, 7);
    assert_int_equal(count(p->kernels[0], IR_LOAD), 7);
    assert_int_equal(ir_bytes_read(p->kernels[0]), 8 * 9 * 10 * 4);
    assert_int_equal(ir_bytes_written(p->kernels[0]), 8 * 9 * 10 * 4);
    arena_free(g.arena);
}

static void halves_are_computed_in_float32(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 2);
    uint32_t a = input(&g, DT_F16), b = input(&g, DT_F16);
    struct ir_plan *p = plan(&g, op2(&g, OP_LESS, op2(&g, OP_ADD, a, b), b), &limits);
    struct ir_kernel *k = p->kernels[0];
    assert_int_equal(p->dtype, DT_BOOL);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_OP)
            assert_int_equal(k->nodes[i].src, DT_F32);
    /* a and b widened, the sum rounded to float16 and widened again */
    assert_int_equal(count(k, IR_CAST), 4);
    arena_free(g.arena);
}

static void a_choice_of_two_numbers_is_not_cast(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t x = input(&g, DT_F32);
    uint32_t one =
        add(&g, (struct typed_node){
                    .kind = T_CONST, .dtype = DT_F64, .value = {.dtype = DT_F64, .v.f64 = 1}});
    uint32_t none =
        add(&g, (struct typed_node){
                    .kind = T_CONST, .dtype = DT_F64, .value = {.dtype = DT_F64, .v.f64 = 0}});
    uint32_t choice = add(&g, (struct typed_node){.kind = T_WHERE,
                                                  .dtype = DT_F64,
                                                  .n_args = 3,
                                                  .args = {op2(&g, OP_LESS, x, x), one, none}});
    uint32_t narrow = add(
        &g, (struct typed_node){.kind = T_CAST, .dtype = DT_F32, .n_args = 1, .args = {choice}});
    struct ir_plan *p = plan(&g, narrow, &limits);
    const struct ir_kernel *k = p->kernels[0];
    assert_int_equal(count(k, IR_CAST), 0);
    assert_int_equal(k->nodes[k->outputs[0].node].kind, IR_SELECT);
    assert_int_equal(k->nodes[k->outputs[0].node].dtype, DT_F32);
    arena_free(g.arena);
}

static void a_reduction_ends_a_kernel(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F64), square = op2(&g, OP_MULTIPLY, u, u);
    static const int64_t ones[3] = {1, 1, 1};
    struct typed_node r = {
        .kind = T_REDUCE, .dtype = DT_F64, .rank = 3, .shape = ones, .n_args = 1, .args = {square}};
    r.reduce.op = REDUCE_SUM;
    r.reduce.axes = 7;
    r.reduce.keepdims = true;
    uint32_t sum = typed_add(g.arena, &g.t, &r);
    struct ir_plan *p = plan(&g, op2(&g, OP_DIVIDE, u, sum), &limits);
    assert_int_equal(p->n_kernels, 2);
    assert_int_equal(p->kernels[0]->outputs[0].kind, OUT_REDUCE);
    assert_int_equal(p->kernels[1]->n_inputs, 2);
    assert_int_equal(ir_bytes_written(p->kernels[0]), 8);
    arena_free(g.arena);
}

/* A node of another shape than the graph's. */
static uint32_t shaped(struct graph *g, struct typed_node n, int rank, const int64_t *shape)
{
    n.rank = rank;
    n.shape = shape;
    return typed_add(g->arena, &g->t, &n);
}

static uint32_t put(struct graph *g, uint32_t piece, uint32_t rest, int64_t at,
                    const int64_t *shape)
{
    struct typed_node n = {.kind = T_PUT,
                           .dtype = g->t.nodes[piece].dtype,
                           .n_args = rest == EXPR_NOWHERE ? 1 : 2,
                           .args = {piece, rest == EXPR_NOWHERE ? 0 : rest}};
    n.put.offset = at;
    return shaped(g, n, 3, shape);
}

static void pieces_are_written_to_their_places(void **state)
{
    (void)state;
    static const int64_t two[3] = {16, 9, 10}, three[3] = {24, 9, 10};
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32), v = op2(&g, OP_ADD, u, u);
    /* one of them is put together itself */
    uint32_t inner = put(&g, v, put(&g, u, EXPR_NOWHERE, 0, two), 8, two);
    uint32_t all = put(&g, inner, put(&g, u, EXPR_NOWHERE, 0, three), 8, three);
    struct ir_plan *p = plan(&g, all, &limits);
    assert_int_equal(p->n_kernels, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(p->kernels[i]->outputs[0].slot, p->result_slot);
        assert_int_equal(p->kernels[i]->outputs[0].view.offset, 720 * i);
        assert_int_equal(p->kernels[i]->shape[0], 8);
    }
    /* what reads it reads a temporary */
    struct typed_node half = {.kind = T_CAST, .dtype = DT_F64, .n_args = 1, .args = {all}};
    p = plan(&g, shaped(&g, half, 3, three), &limits);
    assert_int_equal(p->n_kernels, 4);
    assert_int_equal(p->slots[p->kernels[0]->outputs[0].slot].kind, SLOT_TEMP);
    arena_free(g.arena);
}

static void only_a_reshape_that_is_read_costs_a_kernel(void **state)
{
    (void)state;
    static const int64_t flat[1] = {720};
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32), v = op2(&g, OP_ADD, u, u);
    struct typed_node r = {.kind = T_RESHAPE, .dtype = DT_F32, .n_args = 1, .args = {v}};
    uint32_t row = shaped(&g, r, 1, flat);
    struct ir_plan *p = plan(&g, row, &limits);
    assert_int_equal(p->n_kernels, 1);
    assert_int_equal(p->rank, 1);
    assert_int_equal(p->kernels[0]->rank, 3);
    struct typed_node twice = {
        .kind = T_OP, .dtype = DT_F32, .n_args = 2, .args = {row, row}, .op = OP_MULTIPLY};
    p = plan(&g, shaped(&g, twice, 1, flat), &limits);
    assert_int_equal(p->n_kernels, 2);
    arena_free(g.arena);
}

static void a_gather_reads_one_row(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 2);
    uint32_t u = input(&g, DT_F32), i = input(&g, DT_I64);
    struct typed_node n = {.kind = T_GATHER, .dtype = DT_F32, .n_args = 2, .args = {u, i}};
    struct ir_plan *p = plan(&g, add(&g, n), &limits);
    assert_int_equal(p->n_kernels, 1);
    struct ir_kernel *k = p->kernels[0], broken = *k;
    assert_int_equal(count(k, IR_GATHER), 1);
    assert_int_equal(ir_bytes_read(k), 720 * 4 + 720 * 8);
    _cleanup_strb_ struct strb text = {0};
    ir_print(k, &text);
    assert_non_null(strstr(text.data, "row of 720"));
    assert_non_null(strstr(text.data, "gather in1 %0 : float32"));

    struct ir_input inputs[2];
    struct ir_node nodes[2];
    broken.inputs = inputs;
    broken.nodes = nodes;
#define BREAK(what)                                                                                \
    do {                                                                                           \
        memcpy(inputs, k->inputs, sizeof inputs);                                                  \
        memcpy(nodes, k->nodes, sizeof nodes);                                                     \
        assert_null(ir_verify(&broken, g.arena));                                                  \
        what;                                                                                      \
        assert_non_null(ir_verify(&broken, g.arena));                                              \
    } while (0)
    assert_int_equal(k->nodes[1].kind, IR_GATHER);
    BREAK(inputs[1].gathered = false);
    BREAK(inputs[0].gathered = true); /* which is loaded */
    BREAK(inputs[1].view.shape[0] = 0);
    BREAK(inputs[1].view.strides[0] = 2);
    BREAK(inputs[1].view.rank = 2);
    BREAK(nodes[1].input = 0);
    BREAK(nodes[1].dtype = DT_F64);
    BREAK(nodes[1].n_args = 0);
#undef BREAK

    /* of something computed: that comes first */
    n.args[0] = op2(&g, OP_ADD, u, u);
    p = plan(&g, add(&g, n), &limits);
    assert_int_equal(p->n_kernels, 2);
    arena_free(g.arena);
}

static void verify_finds_what_is_broken(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32);
    struct ir_plan *p = plan(&g, op2(&g, OP_ADD, u, shift(&g, u, 2, 1, BOUNDARY_WRAP)), &limits);
    struct ir_kernel *k = p->kernels[0], broken;
    struct ir_node nodes[8];
    struct ir_ctx ctxs[2];
    assert_in_range(k->n_nodes, 3, 8);
#define BREAK(what)                                                                                \
    do {                                                                                           \
        broken = *k;                                                                               \
        memcpy(nodes, k->nodes, sizeof *nodes * k->n_nodes);                                       \
        memcpy(ctxs, k->ctxs, sizeof ctxs);                                                        \
        broken.nodes = nodes;                                                                      \
        broken.ctxs = ctxs;                                                                        \
        assert_null(ir_verify(&broken, g.arena));                                                  \
        what;                                                                                      \
        assert_non_null(ir_verify(&broken, g.arena));                                              \
    } while (0)
    BREAK(nodes[k->n_nodes - 1].args[0] = k->n_nodes - 1);
    BREAK(nodes[k->n_nodes - 1].dtype = DT_F64);
    BREAK(nodes[k->n_nodes - 1].src = DT_F16);
    BREAK(nodes[0].input = 7);
    BREAK(nodes[0].ctx = 9);
    BREAK(ctxs[1].start[0] = 5);
    BREAK(ctxs[1].parent = 1);
    BREAK(nodes[0].n_args = 1);
    BREAK(ctxs[0].shape[1]++);
    BREAK(ctxs[1].shape[1]++);
    BREAK(broken.n_outputs = 0);
    BREAK(broken.shape[0] = 3);
#undef BREAK
    struct ir_output out = k->outputs[0];
    broken = *k;
    broken.outputs = &out;
    out = (struct ir_output){.kind = OUT_REDUCE,
                             .node = k->n_nodes - 1,
                             .slot = out.slot,
                             .dtype = DT_I64,
                             .view = {.rank = 3, .shape = {1, 1, 1}},
                             .reduce = REDUCE_ARGMAX,
                             .axes = 7};
    assert_null(ir_verify(&broken, g.arena));
    out.axes = 15; /* of three */
    assert_non_null(ir_verify(&broken, g.arena));
    out.axes = 7;
    out.kind = OUT_SCAN + 1;
    assert_non_null(ir_verify(&broken, g.arena));
    out.kind = OUT_REDUCE;
    out.dtype = DT_F32; /* that of its node, which an index is not of */
    assert_non_null(ir_verify(&broken, g.arena));
    out.reduce = REDUCE_MEAN;
    assert_null(ir_verify(&broken, g.arena));
    for (enum reduce_op op = 0; op <= REDUCE_COUNT; op++) {
        out.reduce = op;
        bool defined = op != REDUCE_ANY && op != REDUCE_ALL && op != REDUCE_ARGMAX &&
                       op != REDUCE_ARGMIN && op != REDUCE_COUNT;
        assert_int_equal(ir_verify(&broken, g.arena) == NULL, defined);
    }
    out = k->outputs[0];
    out.kind = OUT_SCAN;
    out.reduce = REDUCE_SUM;
    out.axes = 2;
    assert_null(ir_verify(&broken, g.arena));
    out.axes = 3; /* along one axis only */
    assert_non_null(ir_verify(&broken, g.arena));
    out.axes = 2;
    out.slot = k->inputs[0].slot; /* over what is read */
    assert_non_null(ir_verify(&broken, g.arena));
    out.slot = k->outputs[0].slot;
    out.reduce = REDUCE_MAX;
    assert_non_null(ir_verify(&broken, g.arena));
    /* several outputs, and several steps */
    struct ir_output two[2] = {k->outputs[0], k->outputs[0]};
    broken = *k;
    broken.outputs = two;
    broken.n_outputs = 2;
    two[1].slot = 9;
    two[1].node = 0;
    two[1].dtype = k->inputs[0].dtype;
    assert_null(ir_verify(&broken, g.arena));
    two[1].slot = two[0].slot; /* one over the other */
    assert_non_null(ir_verify(&broken, g.arena));
    two[1].slot = k->inputs[0].slot; /* over what is read, which a single one may be */
    assert_non_null(ir_verify(&broken, g.arena));
    broken.n_outputs = 1;
    two[0].slot = k->inputs[0].slot;
    assert_null(ir_verify(&broken, g.arena));
    two[0].feeds = 1;
    assert_non_null(ir_verify(&broken, g.arena));
    two[0].slot = k->outputs[0].slot;
    broken.steps = 3;
    assert_null(ir_verify(&broken, g.arena));
    two[0].view.strides[0]++;
    assert_non_null(ir_verify(&broken, g.arena));
    two[0].view.strides[0]--;
    two[0].feeds = 2;
    assert_non_null(ir_verify(&broken, g.arena));
    two[0].feeds = 0;
    assert_non_null(ir_verify(&broken, g.arena));
    broken.n_outputs = 2;
    two[0].feeds = two[1].feeds = 1;
    two[1].slot = 9;
    assert_non_null(ir_verify(&broken, g.arena));
    two[0].kind = OUT_SCAN; /* beside another */
    two[0].reduce = REDUCE_SUM;
    two[0].axes = 2;
    two[0].feeds = two[1].feeds = broken.steps = 0;
    assert_non_null(ir_verify(&broken, g.arena));
    _cleanup_strb_ struct strb text = {0};
    ir_print(k, &text);
    assert_non_null(strstr(text.data, "wrap"));
    assert_non_null(strstr(text.data, "add %0 %1 : float32"));
    arena_free(g.arena);
}

static void lowering_survives_want_of_memory(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct graph g;
        begin(&g, 3, cube, 1);
        uint32_t u = input(&g, DT_F32), x = u;
        for (int i = 0; i < 300; i++)
            x = op2(&g, OP_ADD, shift(&g, x, i % 3, 1, BOUNDARY_CLAMP), u);
        g.t.root = x;
        struct lower_request req = {.typed = &g.t, .limits = limits};
        struct ir_plan *p = NULL;
        struct err e = ERR_INIT;
        mem_fail_after(n, true);
        enum err_code code = lower(g.arena, &req, &p, &e);
        bool refused = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(g.arena);
        assert_int_equal(mem_live(), before);
        if (!refused) {
            assert_int_equal(code, ERR_OK);
            break;
        }
        assert_int_equal(code, ERR_OUT_OF_MEMORY);
    }
}

static void verify_finds_slots_that_are_wrong(void **state)
{
    (void)state;
    struct graph g;
    begin(&g, 3, cube, 1);
    uint32_t u = input(&g, DT_F32);
    struct typed_node n = {.kind = T_GATHER, .dtype = DT_F32, .n_args = 2};
    n.args[0] = op2(&g, OP_ADD, u, u);
    struct typed_node i = {.kind = T_CAST, .dtype = DT_I64, .n_args = 1, .args = {u}};
    n.args[1] = add(&g, i);
    struct ir_plan *p = plan(&g, add(&g, n), &limits), broken;
    struct ir_slot slots[3];
    assert_int_equal(p->n_kernels, 2);
    assert_int_equal(p->n_slots, 3);
    const uint32_t result = p->result_slot, temporary = 3 - result; /* beside operand 0 */
#define BREAK(what)                                                                                \
    do {                                                                                           \
        broken = *p;                                                                               \
        memcpy(slots, p->slots, sizeof slots);                                                     \
        broken.slots = slots;                                                                      \
        assert_null(ir_verify_plan(&broken, g.arena));                                             \
        what;                                                                                      \
        assert_non_null(ir_verify_plan(&broken, g.arena));                                         \
    } while (0)
    BREAK(broken.result_slot = 0);
    BREAK(broken.n_kernels = 0);
    BREAK(broken.n_slots = temporary);
    BREAK(slots[result].size--);
    BREAK(slots[temporary].size -= 4);
    BREAK(slots[temporary].last = 0);          /* read when it has gone */
    BREAK(slots[temporary].first = 1);         /* or before it is written */
    BREAK(slots[temporary].kind = SLOT_INPUT); /* an operand is not written to */
    BREAK(slots[0].kind = SLOT_TEMP);          /* nobody wrote it */
#undef BREAK
    arena_free(g.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stencil_is_one_kernel_reading_its_array_once),
        cmocka_unit_test(halves_are_computed_in_float32),
        cmocka_unit_test(a_choice_of_two_numbers_is_not_cast),
        cmocka_unit_test(a_reduction_ends_a_kernel),
        cmocka_unit_test(pieces_are_written_to_their_places),
        cmocka_unit_test(only_a_reshape_that_is_read_costs_a_kernel),
        cmocka_unit_test(a_gather_reads_one_row),
        cmocka_unit_test(verify_finds_what_is_broken),
        cmocka_unit_test(verify_finds_slots_that_are_wrong),
        cmocka_unit_test(lowering_survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
