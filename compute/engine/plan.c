/* Typed graph → plan: lowering, as the engine asks for it, and what the plan costs. */
#include <string.h>

#include "compute/base/trace.h"
#include "compute/engine/engine_int.h"
#include "compute/ir/lower.h"

bool typed_input_only(struct arena *arena, struct typed *t, struct array *a)
{
    memset(t, 0, sizeof *t);
    t->inputs = arena_alloc(arena, sizeof *t->inputs);
    t->nodes = arena_alloc(arena, sizeof *t->nodes);
    int64_t *shape = arena_dup(arena, a->view.shape, sizeof *shape * MAX_RANK);
    if (!t->inputs || !t->nodes || !shape)
        return false;
    t->inputs[0] = (struct typed_input){a, a->dtype, a->view, ""};
    t->nodes[0] = (struct typed_node){
        .kind = T_INPUT, .dtype = a->dtype, .rank = a->view.rank, .shape = shape};
    t->n_inputs = t->n_nodes = t->cap_inputs = t->cap_nodes = 1;
    return true;
}

static void trace_plan(const struct typed *typed, const struct ir_plan *plan)
{
    if (trace_on(TRACE_EXPR)) {
        _cleanup_strb_ struct strb b = {0};
        typed_print(typed, &b);
        trace_write(TRACE_EXPR, b.data ? b.data : "", b.len);
    }
    if (trace_on(TRACE_IR)) {
        for (uint32_t i = 0; i < plan->n_kernels; i++) {
            _cleanup_strb_ struct strb b = {0};
            ir_print(plan->kernels[i], &b);
            trace_write(TRACE_IR, b.data ? b.data : "", b.len);
        }
    }
}

static void read_loose_bools_as_bytes(const struct typed *typed)
{
    for (uint32_t i = 0; i < typed->n_inputs; i++) {
        struct typed_input *in = &typed->inputs[i];
        if (in->dtype == DT_BOOL && atomic_load(&in->array->buffer->loose_bool))
            in->dtype = DT_U8;
    }
}

enum err_code plan_make(struct arena *arena, const struct engine *g, const struct typed *typed,
                        bool fast_math, const struct view *target, int64_t target_bytes,
                        struct ir_plan **ret, struct err *e)
{
    read_loose_bools_as_bytes(typed);
    struct lower_request req = {.typed = typed,
                                .limits = g->fuse,
                                .fast_math = fast_math,
                                .target = target,
                                .target_bytes = target_bytes};
    enum err_code code = lower(arena, &req, ret, e);
    if (code != ERR_OK)
        return code;
    trace_plan(typed, *ret);
    return ERR_OK;
}

/* --- cost --- */

static int64_t times(int64_t a, int64_t b)
{
    int64_t ret;
    return __builtin_mul_overflow(a, b, &ret) ? INT64_MAX : ret;
}

int64_t cost_sum(int64_t a, int64_t b)
{
    int64_t ret;
    return __builtin_add_overflow(a, b, &ret) ? INT64_MAX : ret;
}

/* An extent of 0 makes it 0, whatever the others come to. */
static int64_t points(const struct ir_kernel *k)
{
    int64_t n = 1;
    for (int i = 0; i < k->rank; i++)
        if (k->shape[i] == 0)
            return 0;
    for (int i = 0; i < k->rank; i++)
        n = times(n, k->shape[i]);
    return n;
}

int64_t plan_cost(const struct ir_plan *plan)
{
    int64_t ret = 0;
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        ret = cost_sum(ret, times(points(plan->kernels[i]), plan->kernels[i]->n_nodes));
    return ret;
}

enum err_code cost_check(const struct engine *g, const struct expr *x, const char *what,
                         int64_t cost, struct err *e)
{
    if (cost <= g->config.max_cost)
        return ERR_OK;
    return expr_err(x, x->root, e, ERR_EXPRESSION_TOO_LARGE,
                    "%s takes %s%.3g operations on elements, more than the %.3g allowed "
                    "(max-cost)",
                    what, cost == INT64_MAX ? "more than " : "", (double)cost,
                    (double)g->config.max_cost);
}
