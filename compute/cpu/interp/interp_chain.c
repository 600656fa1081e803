/* Finds chains. A float addition, subtraction or multiplication may have an operand that has no
 * other user and is such an operation itself. It absorbs that operand, up to three operations
 * together, and the chain runs as one loop of fused.h. A pass over a block in L1 costs as much for
 * one operation as for three, so a sum of many terms runs two to three times as fast. */
#include "compute/cpu/interp/interp_bind.h"

#define LONGEST 3

static bool chainable(const struct bound *b, uint32_t i)
{
    const struct ir_node *n = &b->run->k->nodes[i];
    return !b->n_terms[i] && !b->absorbed[i] && n->kind == IR_OP &&
           (n->src == DT_F32 || n->src == DT_F64) &&
           (n->op == OP_ADD || n->op == OP_SUBTRACT || n->op == OP_MULTIPLY || n->op == OP_DIVIDE);
}

void interp_find_chains(struct bound *b, const bool *need, const uint32_t *uses)
{
    const struct ir_kernel *k = b->run->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        b->chain[i] = UINT32_MAX;
        b->chain_length[i] = 0;
    }
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (!need[i] || !chainable(b, i))
            continue;
        b->chain_length[i] = 1;
        if (n->op == OP_DIVIDE)
            continue;
        for (int a = 0; a < 2; a++) {
            uint32_t x = b->alias[n->args[a]];
            if (uses[x] == 1 && b->chain_length[x] && b->chain_length[x] < LONGEST &&
                b->chain_length[x] >= b->chain_length[i]) {
                b->chain[i] = x;
                b->chain_length[i] = b->chain_length[x] + 1;
            }
        }
        if (b->chain[i] != UINT32_MAX)
            b->absorbed[b->chain[i]] = true;
    }
}

void interp_chain_instr(const struct bound *b, uint32_t node, struct instr *in)
{
    const struct ir_kernel *k = b->run->k;
    uint32_t links[LONGEST];
    int n = 0;
    for (uint32_t i = node; i != UINT32_MAX; i = b->chain[i])
        links[n++] = i;
    const struct ir_node *first = &k->nodes[links[n - 1]];
    static const enum fused_first firsts[] = {[OP_ADD] = FUSED_FIRST_ADD,
                                              [OP_SUBTRACT] = FUSED_FIRST_SUB,
                                              [OP_MULTIPLY] = FUSED_FIRST_MUL,
                                              [OP_DIVIDE] = FUSED_FIRST_DIV};
    in->args[0] = b->alias[first->args[0]];
    in->args[1] = b->alias[first->args[1]];
    in->n_args = 2;
    enum fused_step steps[2] = {FUSED_ADD, FUSED_ADD};
    for (int i = n - 2; i >= 0; i--) {
        const struct ir_node *link = &k->nodes[links[i]];
        bool right = b->alias[link->args[0]] != links[i + 1]; /* the chain is the second operand */
        steps[n - 2 - i] = link->op == OP_ADD        ? FUSED_ADD
                           : link->op == OP_MULTIPLY ? FUSED_MUL
                           : right                   ? FUSED_RSUB
                                                     : FUSED_SUB;
        in->args[in->n_args++] = b->alias[link->args[right ? 0 : 1]];
    }
    in->fn = fused_loop(first->src, firsts[first->op], steps[0], n == LONGEST ? (int)steps[1] : -1);
}
