/* Finds sums: float additions and subtractions of which each is an operand of the next and of
 * nothing else. What is added may be multiplied by a constant; x is x · 1 and −x · w is x · −w to
 * the last bit, so all terms are alike, and the whole sum runs as one loop of fused.h. It absorbs
 * the products and partial sums. A window of 5 × 5 weights is one pass over its block instead of
 * nearly 40. Shorter ones are left to the chains. */
#include "compute/cpu/interp/interp_bind.h"

#define LEAST_OPERATIONS 4  /* of fewer a chain makes one pass as well */
#define MOST_TERMS       32 /* of one instruction; what is below them is the first term */

static bool is_sum(const struct ir_node *n, enum dtype t)
{
    return n->kind == IR_OP && n->src == t && (n->op == OP_ADD || n->op == OP_SUBTRACT);
}

static bool is_single(const struct bound *b, const uint32_t *uses, uint32_t node)
{
    return uses[node] == 1 && !b->absorbed[node];
}

/* The constant that a product of one user is multiplied by, and what it is a product of. */
static bool weighted(const struct bound *b, const uint32_t *uses, uint32_t node, enum dtype t,
                     uint32_t *ret_of, double *ret_weight)
{
    const struct ir_kernel *k = b->run->k;
    const struct ir_node *n = &k->nodes[node];
    if (n->kind != IR_OP || n->op != OP_MULTIPLY || n->src != t || !is_single(b, uses, node))
        return false;
    for (int a = 1; a >= 0; a--) {
        const struct ir_node *by = &k->nodes[b->alias[n->args[a]]];
        if (by->kind != IR_CONST)
            continue;
        const union value *v = &k->scalars[by->scalar].v;
        *ret_weight = t == DT_F32 ? (double)v->f32 : v->f64;
        *ret_of = b->alias[n->args[!a]];
        return true;
    }
    return false;
}

/* Which operand of an addition or subtraction continues the sum: one that is such an operation
 * itself and has no other user; -1: neither does. */
static int next_link(const struct bound *b, const uint32_t *uses, const struct ir_node *n)
{
    const struct ir_kernel *k = b->run->k;
    for (int a = 0; a < (n->op == OP_ADD ? 2 : 1); a++) {
        const uint32_t x = b->alias[n->args[a]];
        if (is_sum(&k->nodes[x], n->src) && is_single(b, uses, x))
            return a;
    }
    return -1;
}

static void add_term(struct bound *b, const uint32_t *uses, uint32_t at, uint32_t node, bool minus,
                     enum dtype t)
{
    double weight = 1;
    uint32_t of = node;
    if (weighted(b, uses, node, t, &of, &weight))
        b->absorbed[node] = true;
    b->terms[at] = of;
    b->weights[at] = minus ? -weight : weight;
}

void interp_count_uses(const struct bound *b, const bool *need, uint32_t *ret_uses)
{
    const struct ir_kernel *k = b->run->k;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        for (int a = 0; need[i] && a < k->nodes[i].n_args; a++)
            ret_uses[b->alias[k->nodes[i].args[a]]]++;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        ret_uses[b->alias[k->outputs[i].node]] += 2;
}

void interp_find_sums(struct bound *b, const bool *need, const uint32_t *uses)
{
    const struct ir_kernel *k = b->run->k;
    for (uint32_t root = k->n_nodes; root-- > 0;) {
        const enum dtype t = k->nodes[root].src;
        if (!need[root] || b->absorbed[root] || (t != DT_F32 && t != DT_F64) ||
            !is_sum(&k->nodes[root], t))
            continue;
        uint32_t links[MOST_TERMS - 1], of;
        int n_links = 0, n_weighted = 0;
        double weight;
        for (uint32_t i = root;;) {
            const struct ir_node *n = &k->nodes[i];
            const int next = n_links < MOST_TERMS - 2 ? next_link(b, uses, n) : -1;
            links[n_links++] = i;
            for (int a = 0; a < 2; a++)
                n_weighted += a != next && weighted(b, uses, b->alias[n->args[a]], t, &of, &weight);
            if (next < 0)
                break;
            i = b->alias[n->args[next]];
        }
        if (n_links + n_weighted < LEAST_OPERATIONS)
            continue;
        const uint32_t first = b->n_all_terms;
        b->first_term[root] = first;
        b->n_terms[root] = (uint8_t)(n_links + 1);
        b->n_all_terms += (uint32_t)n_links + 1;
        for (int l = 0; l < n_links; l++) { /* the last link's second operand is the last term */
            const struct ir_node *n = &k->nodes[links[l]];
            const bool is_last = l == n_links - 1;
            const int next = is_last ? 0 : b->alias[n->args[0]] == links[l + 1] ? 0 : 1;
            add_term(b, uses, first + (uint32_t)(n_links - l), b->alias[n->args[!next]],
                     n->op == OP_SUBTRACT, t);
            if (is_last)
                add_term(b, uses, first, b->alias[n->args[0]], false, t);
            if (l)
                b->absorbed[links[l]] = true;
        }
    }
}

void interp_sum_instr(const struct bound *b, uint32_t node, struct instr *in)
{
    in->kind = INSTR_SUM;
    in->n_args = b->n_terms[node];
    in->operand = b->first_term[node];
    in->sum = fused_sum(b->run->k->nodes[node].src);
}
