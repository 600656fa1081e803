/* Kernels of several steps from text, for tests of compute/gpu/text's form steps: each field is
 * updated by an expression of the fields u, v and w, of k (like them), kt (transposed) and row
 * (one axis). Slots: the operands in that order, then the results. Arena memory. */
#ifndef ARRAYD_TESTS_STEPS_KERNELS_H
#define ARRAYD_TESTS_STEPS_KERNELS_H

#include <stdio.h>
#include <string.h>

#include "compute/check/check.h"
#include "compute/ir/ir_build.h"
#include "compute/ir/lower.h"
#include "protocol/text/infix.h"

#define STEPS_FIELDS   3
#define STEPS_OPERANDS 6

struct steps_case {
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t shape[4];
    const char *text[STEPS_FIELDS];
};

static const char *const steps_names[STEPS_OPERANDS] = {"u", "v", "w", "k", "kt", "row"};
static char steps_here[STEPS_OPERANDS]; /* addresses that stand for arrays */

static enum err_code steps_resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    const struct steps_case *c = user;
    (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (int i = 0; i < STEPS_OPERANDS; i++) {
        if (strcmp(name, steps_names[i]) != 0)
            continue;
        ret->kind = BINDING_ARRAY;
        ret->array = (struct array *)&steps_here[i];
        ret->dtype = c->dtype;
        bool row = i == 5, turned = i == 4;
        ret->view.rank = row ? 1 : c->rank;
        for (int a = 0; a < ret->view.rank; a++)
            ret->view.shape[a] = row ? c->shape[c->rank - 1] : c->shape[a];
        int64_t stride = 1;
        for (int n = 0; n < ret->view.rank; n++) {
            int a = turned ? n : ret->view.rank - 1 - n;
            ret->view.strides[a] = stride;
            stride *= ret->view.shape[a];
        }
    }
    return ERR_OK;
}

static inline uint32_t steps_slot(const struct typed *t, uint32_t input)
{
    return (uint32_t)((char *)t->inputs[input].array - steps_here);
}

/* Field n's update by itself. NULL, and the reason on standard error, when it is not one kernel. */
static inline struct ir_kernel *steps_single(struct arena *arena, const struct steps_case *c, int n)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    struct ir_plan *plan = NULL;
    struct check_env env = {
        .resolve = steps_resolve, .user = (void *)(uintptr_t)c, .max_inputs = 64};
    struct typed *t = arena_alloc(arena, sizeof *t);
    expr_init(&x, arena, 10000, 400);
    struct lower_request req = {.typed = t,
                                .limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000}};
    if (expr_add_source(&x, "/expr", &source, NULL) != ERR_OK ||
        infix_parse(&x, source, c->text[n], strlen(c->text[n]), &x.root, &e) != ERR_OK ||
        check_expr(arena, &x, &env, (int)c->dtype, t, &e) != ERR_OK ||
        lower(arena, &req, &plan, &e) != ERR_OK || plan->n_kernels != 1) {
        fprintf(stderr, "%s: %s\n", c->text[n], plan ? "several kernels" : e.message);
        return NULL;
    }
    struct ir_kernel *k = plan->kernels[0];
    for (uint32_t i = 0; i < k->n_inputs; i++)
        k->inputs[i].slot = steps_slot(t, plan->slots[k->inputs[i].slot].index);
    k->outputs[0].slot = STEPS_OPERANDS + (uint32_t)n;
    return k;
}

/* Node i of `from` in b's kernel. */
static inline uint32_t steps_copy_node(struct ir_builder *b, const struct ir_kernel *from,
                                       uint32_t i, const uint32_t *nodes, const uint32_t *ctxs)
{
    struct ir_node n = from->nodes[i];
    const struct ir_input *in =
        &from->inputs[n.kind == IR_LOAD || n.kind == IR_GATHER ? n.input : 0];
    const struct ir_index *x = &from->indices[n.kind == IR_INDEX ? n.index : 0];
    switch ((enum ir_kind)n.kind) {
    case IR_CONST:
        return ir_emit_const(b, from->scalars[n.scalar]);
    case IR_LOAD:
        return ir_emit_load(b, in->slot, in->dtype, &in->view, ctxs[n.ctx]);
    case IR_GATHER:
        return ir_emit_gather(b, in->slot, in->dtype, &in->view, nodes[n.args[0]]);
    case IR_TABLE:
        return ir_emit_table(b, from->tables[n.table], nodes[n.args[0]]);
    case IR_INDEX:
        return ir_emit_index(b, ctxs[n.ctx], n.axis, x->start, x->step);
    default:
        for (int a = 0; a < n.n_args; a++)
            n.args[a] = nodes[n.args[a]];
        n.ctx = ctxs[n.ctx];
        return ir_emit(b, &n);
    }
}

/* All fields' updates as one kernel of so many steps. */
static inline struct ir_kernel *steps_kernel(struct arena *arena, const struct steps_case *c,
                                             uint32_t steps)
{
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    struct ir_builder b;
    for (int n = 0; n < STEPS_FIELDS && c->text[n]; n++) {
        const struct ir_kernel *from = steps_single(arena, c, n);
        if (!from)
            return NULL;
        if (n == 0) {
            k->rank = from->rank;
            memcpy(k->shape, from->shape, sizeof k->shape);
            ir_builder_init(&b, arena, k);
        }
        uint32_t *nodes = arena_alloc_array(arena, from->n_nodes, sizeof *nodes);
        uint32_t *ctxs = arena_alloc_array(arena, from->n_ctxs, sizeof *ctxs);
        for (uint32_t i = 0; i < from->n_ctxs; i++) {
            struct ir_ctx x;
            memcpy(&x, &from->ctxs[i], sizeof x);
            x.parent = i ? ctxs[x.parent] : 0;
            ctxs[i] = ir_add_ctx(&b, &x);
        }
        for (uint32_t i = 0; i < from->n_nodes; i++)
            nodes[i] = steps_copy_node(&b, from, i, nodes, ctxs);
        struct ir_output o = from->outputs[0];
        o.node = nodes[o.node];
        ir_add_output(&b, &o);
    }
    for (uint32_t n = 0; n < k->n_outputs; n++)
        for (uint32_t i = 0; i < k->n_inputs; i++)
            if (k->inputs[i].slot == n && !k->inputs[i].gathered &&
                !(k->outputs[n].feeds && k->inputs[i].view.offset))
                k->outputs[n].feeds = i + 1;
    k->steps = steps;
    return k;
}

#endif
