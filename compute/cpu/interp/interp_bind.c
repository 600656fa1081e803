/* Turns a box into a program: instructions in node order over registers. Loads stand right before
 * their first use, and registers are assigned by liveness, so a kernel of hundreds of nodes needs
 * only a handful. In a box every IR_INSIDE is known, so its selects vanish and nodes that only the
 * other branch needed are not computed. The registers of a program are sized so that they fit L1
 * together with the memory operands' blocks. interp_keep.c decides which program is written when.
 */
#include <assert.h>
#include <string.h>

#include "compute/cpu/interp/interp_bind.h"

#define L1_BYTES    32768
#define BLOCK_LEAST 256
/* Short blocks where memory is the bottleneck: what is prefetched between two instructions must not
 * be much more than a core can have in flight. */
#define BLOCK_STREAMED 640
/* For rows at least this long, blocks end at the row's end, so that operands are used in place. */
#define CUT_ROW 192
/* Two operands whose blocks are at most this many bytes apart count as one. */
#define BESIDE     512
#define ALIGNED(x) (((x) + 63) & ~(size_t)63)

/* The size of everything that carve() lays out. */
static size_t carved_size(const struct interp_run *r)
{
    size_t nodes = r->k->n_nodes, ops = r->n_operands, words = interp_geometry_words(r);
    return (words + 3 * ops) * sizeof(int64_t) + 2 * nodes * sizeof(void *) +
           2 * nodes * sizeof(double) + (nodes + 1) * sizeof(struct instr) +
           (7 * nodes + 2 * ops) * sizeof(uint32_t) + ops + 4 * nodes + r->n_stores;
}

/* The registers of any box: at most one per node, with the block size that bind() chooses. */
static size_t registers_most(const struct interp_run *r)
{
    size_t n = r->n_live, widest = 1, points = ((size_t)r->points + 15) & ~(size_t)15;
    for (uint32_t i = 0; i < r->k->n_nodes; i++)
        if (r->live[i] && dtype_size(r->k->nodes[i].dtype) > widest)
            widest = dtype_size(r->k->nodes[i].dtype);
    size_t least = r->reduces || r->scan ? BLOCK_LEAST : (size_t)interp_tile_points(r);
    size_t most = n * least * widest;
    if (most < L1_BYTES)
        most = L1_BYTES;
    most += n * 64;
    if (n * ALIGNED((size_t)r->block * widest) > most)
        most = n * ALIGNED((size_t)r->block * widest);
    if (points < BLOCK_MOST && n * ALIGNED(points * widest) < most)
        most = n * ALIGNED(points * widest);
    return most + 64;
}

void interp_size_programs(struct interp_run *r)
{
    r->needs.carved = carved_size(r);
    r->needs.registers = registers_most(r);
}

/* Lays out all the arrays, in order of falling alignment. */
static void carve(struct bound *b, const struct interp_run *r, bool **ret_need, uint32_t **ret_last,
                  int64_t **ret_work)
{
    size_t nodes = r->k->n_nodes, ops = r->n_operands, words = interp_geometry_words(r);
    size_t size = r->needs.carved;
    assert(size <= b->memory_size);
    char *p = b->memory;
    memset(p, 0, size);
#define TAKE(field, n)                                                                             \
    (field) = (void *)p;                                                                           \
    p += (n) * sizeof *(field)
    int64_t *all;
    TAKE(all, words);
    b->g.at = all;
    b->g.st = all + ops;
    *ret_work = all + ops * (size_t)(r->n_order + 1);
    TAKE(b->moved, ops);
    TAKE(b->filled, ops);
    TAKE(b->filled_n, ops);
    TAKE(b->ptr, nodes);
    TAKE(b->reg, nodes);
    TAKE(b->weights, 2 * nodes);
    TAKE(b->code, nodes + 1);
    TAKE(b->alias, nodes);
    TAKE(*ret_last, nodes);
    TAKE(b->number, nodes);
    TAKE(b->chain, nodes);
    TAKE(b->first_term, nodes);
    TAKE(b->terms, 2 * nodes);
    TAKE(b->direct, ops);
    TAKE(b->ahead, ops);
    TAKE(b->class_of, ops);
    TAKE(*ret_need, nodes);
    TAKE(b->chain_length, nodes);
    TAKE(b->absorbed, nodes);
    TAKE(b->n_terms, nodes);
    TAKE(b->computed, r->n_stores);
#undef TAKE
    b->n_all_terms = 0;
    assert(p == (char *)b->memory + size);
}

static enum operand_class classify(const struct bound *b, uint32_t i)
{
    const struct operand *o = &b->run->operands[i];
    const struct geometry *g = &b->g;
    const int64_t *st = g->st + (size_t)i * (size_t)g->nd;
    bool splat = true, packed = true;
    int64_t run = o->itemsize;
    if (b->run->pointwise && o->kind != OPERAND_STORE)
        return CLASS_GATHER;
    for (int d = g->nd - 1; d >= 0; d--) {
        splat &= st[d] == 0;
        packed &= st[d] == run;
        run *= g->ext[d];
    }
    if (o->kind == OPERAND_STORE) {
        bool in_place = g->q < 0 && (b->cut ? !g->nd || st[g->nd - 1] == o->itemsize : packed);
        return in_place ? CLASS_DIRECT : CLASS_GATHER;
    }
    if (splat || o->kind == OPERAND_INSIDE)
        return CLASS_SPLAT;
    if (g->q >= 0)
        return CLASS_GATHER;
    int64_t inner = st[g->nd - 1];
    if (o->kind == OPERAND_LOAD && (b->cut ? inner == o->itemsize : packed))
        return CLASS_DIRECT;
    return b->cut && inner == 0 ? CLASS_ROWFILL : CLASS_GATHER;
}

/* Finds which nodes the box needs, and which node's value each one has. */
static void fold_and_mark(struct bound *b, bool *need)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        b->alias[i] = i;
        if (!r->live[i])
            continue;
        if (n->kind == IR_SELECT && !r->pointwise) {
            uint32_t cond = b->alias[n->args[0]];
            if (k->nodes[cond].kind == IR_INSIDE)
                b->alias[i] = b->alias[n->args[b->g.at[r->operand_of[cond]] ? 1 : 2]];
        } else if ((n->kind == IR_OP && n->op == OP_POSITIVE) ||
                   (n->kind == IR_CAST && n->src == n->dtype)) {
            b->alias[i] = b->alias[n->args[0]];
        }
    }
    for (uint32_t i = 0; i < k->n_outputs; i++)
        need[b->alias[k->outputs[i].node]] = true;
    for (uint32_t i = k->n_nodes; i-- > 0;)
        if (need[i])
            for (int a = 0; a < k->nodes[i].n_args; a++)
                need[b->alias[k->nodes[i].args[a]]] = true;
}

static loop_fn *loop_of(const struct ir_node *n)
{
    switch (n->kind) {
    case IR_OP:
        return loop_op(n->op, n->src);
    case IR_CAST:
        return loop_cast(n->src, n->dtype);
    case IR_SELECT:
        return loop_select(dtype_size(n->dtype));
    default:
        return NULL;
    }
}

static void emit_operand(struct bound *b, uint32_t node, uint32_t *emitted)
{
    uint32_t o = b->run->operand_of[node];
    if (o == UINT32_MAX || emitted[node] ||
        (b->class_of[o] != CLASS_GATHER && b->class_of[o] != CLASS_ROWFILL))
        return;
    emitted[node] = 1;
    if (!b->run->pointwise)
        b->code[b->n_code++] = (struct instr){.kind = INSTR_GATHER, .dst = node, .operand = o};
}

static void write_code(struct bound *b, const bool *need, uint32_t *emitted)
{
    const struct ir_kernel *k = b->run->k;
    b->n_code = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        if (!need[i] || b->absorbed[i] || n->kind == IR_CONST ||
            b->run->operand_of[i] != UINT32_MAX)
            continue;
        bool takes = n->kind == IR_GATHER || n->kind == IR_TABLE;
        struct instr in = {.kind = n->kind == IR_RANDOM ? INSTR_RANDOM
                                   : takes              ? INSTR_TAKE
                                                        : INSTR_LOOP,
                           .n_args = n->n_args,
                           .dst = i,
                           .fn = loop_of(n)};
        for (int a = 0; a < n->n_args; a++)
            in.args[a] = b->alias[n->args[a]];
        if (b->n_terms[i])
            interp_sum_instr(b, i, &in);
        else if (b->chain_length[i] > 1)
            interp_chain_instr(b, i, &in);
        assert(in.kind != INSTR_LOOP || in.fn);
        for (int a = 0; a < in.n_args; a++)
            emit_operand(b, interp_read(b, &in, a), emitted);
        b->code[b->n_code++] = in;
    }
    for (uint32_t i = 0; i < k->n_outputs; i++)
        emit_operand(b, b->alias[k->outputs[i].node], emitted);
}

static bool pinned(const struct bound *b, uint32_t node)
{
    uint32_t o = b->run->operand_of[node];
    if (b->run->k->nodes[node].kind == IR_CONST)
        return true;
    return o != UINT32_MAX &&
           (b->class_of[o] == CLASS_SPLAT || b->class_of[o] == CLASS_ROWFILL || b->run->pointwise);
}

static bool direct_operand(const struct bound *b, uint32_t node)
{
    uint32_t o = b->run->operand_of[node];
    return o != UINT32_MAX && b->class_of[o] == CLASS_DIRECT;
}

/* Leaves only those constants marked that instructions read: a sum has its weights in its terms. A
 * window of many would leave no room for more than short blocks. */
static void forget_weights(const struct bound *b, bool *need)
{
    const struct ir_kernel *k = b->run->k;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        need[i] &= k->nodes[i].kind != IR_CONST;
    for (uint32_t c = 0; c < b->n_code; c++)
        for (int a = 0; a < b->code[c].n_args; a++)
            need[interp_read(b, &b->code[c], a)] = true;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        need[b->alias[k->outputs[i].node]] = true;
}

/* Numbers the registers of nodes from 1 on; returns how many there are. */
static uint32_t give_registers(struct bound *b, bool *need, uint32_t *last)
{
    const struct ir_kernel *k = b->run->k;
    uint32_t n_regs = 0, n_free = 0;
    uint32_t *reg = b->number;
    void **free_list = b->ptr; /* not in use yet */

    forget_weights(b, need);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (need[i] && pinned(b, i))
            reg[i] = ++n_regs;
    b->n_pinned = n_regs;
    memset(last, 0, k->n_nodes * sizeof *last);
    for (uint32_t c = 0; c < b->n_code; c++)
        for (int a = 0; a < b->code[c].n_args; a++)
            last[interp_read(b, &b->code[c], a)] = c;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last[b->alias[k->outputs[i].node]] = UINT32_MAX;

    for (uint32_t c = 0; c < b->n_code; c++) {
        const struct instr *in = &b->code[c];
        uint32_t dst = in->dst;
        size_t size = dtype_size(k->nodes[dst].dtype);
        if (!reg[dst]) {
            for (int a = 0; a < in->n_args && !reg[dst]; a++) {
                uint32_t s = interp_read(b, in, a);
                if (reg[s] && !pinned(b, s) && last[s] == c && in->kind <= INSTR_SUM &&
                    dtype_size(k->nodes[s].dtype) == size)
                    reg[dst] = reg[s];
            }
            if (!reg[dst])
                reg[dst] = n_free ? (uint32_t)(uintptr_t)free_list[--n_free] : ++n_regs;
        }
        for (int a = 0; a < in->n_args; a++) {
            uint32_t s = interp_read(b, in, a);
            bool again = false;
            for (int e = 0; e < a; e++)
                again |= interp_read(b, in, e) == s;
            if (!again && reg[s] && !pinned(b, s) && last[s] == c && reg[s] != reg[dst])
                free_list[n_free++] = (void *)(uintptr_t)reg[s];
        }
    }
    return n_regs;
}

void interp_fill_pinned(struct bound *b, bool from_memory)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    const size_t n = (size_t)(b->g.points < b->blk ? b->g.points : b->blk);
    const uint32_t end = from_memory ? r->n_operands - r->n_stores : k->n_nodes;
    for (uint32_t j = 0; j < end; j++) {
        const uint32_t i = from_memory ? r->operands[j].node : j;
        if (!b->number[i] || b->number[i] > b->n_pinned)
            continue;
        uint32_t o = r->operand_of[i];
        union value v = {0};
        size_t size = dtype_size(k->nodes[i].dtype);
        if (k->nodes[i].kind == IR_CONST) {
            v = k->scalars[k->nodes[i].scalar].v;
        } else if (o == UINT32_MAX || b->class_of[o] != CLASS_SPLAT) {
            continue;
        } else if (r->operands[o].kind == OPERAND_LOAD) {
            memcpy(&v, (const void *)(intptr_t)b->g.at[o], size);
        } else if (r->operands[o].kind == OPERAND_INDEX) {
            v.i64 = b->g.at[o];
        } else {
            v.b = b->g.at[o] != 0;
        }
        loop_fill(b->reg[i], &v, size, n);
    }
}

static uint32_t slot_of(const struct bound *b, uint32_t operand)
{
    const struct ir_kernel *k = b->run->k;
    return k->inputs[k->nodes[b->run->operands[operand].node].input].slot;
}

/* Whether the operand's blocks lie next to those of another operand that is read directly. */
static bool beside(const struct bound *b, uint32_t operand)
{
    for (uint32_t j = 0; j < b->n_direct; j++) {
        const int64_t apart = b->g.at[b->direct[j]] - b->g.at[operand];
        if (apart > -BESIDE && apart < BESIDE)
            return true;
    }
    return false;
}

static void choose_ahead(struct bound *b)
{
    b->n_ahead = 0;
    for (uint32_t j = 0; j < b->n_direct; j++) {
        uint32_t i = b->direct[j], same = 0;
        while (same < b->n_ahead && slot_of(b, b->ahead[same]) != slot_of(b, i))
            same++;
        if (same == b->n_ahead)
            b->ahead[b->n_ahead++] = i;
        else if (b->g.at[b->ahead[same]] < b->g.at[i])
            b->ahead[same] = i;
    }
}

/* Finds the outputs that an instruction may write directly to their place. A single output may
 * share an operand's memory, so only the last instruction may write it: nothing reads the operand
 * after that. Several outputs never share an operand's memory; where two have the same value, it is
 * written once and copied. */
static void mark_computed(struct bound *b)
{
    const struct ir_kernel *k = b->run->k;
    b->stores = true;
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const uint32_t node = b->alias[k->outputs[i].node];
        uint32_t c = k->n_outputs > 1 || !b->n_code ? 0 : b->n_code - 1;
        while (c < b->n_code && b->code[c].dst != node)
            c++;
        b->computed[i] = c < b->n_code && b->code[c].kind != INSTR_GATHER;
        for (uint32_t j = 0; j < i; j++)
            b->computed[i] &= b->alias[k->outputs[j].node] != node;
        b->stores &=
            b->computed[i] && b->class_of[b->run->n_operands - k->n_outputs + i] == CLASS_DIRECT;
    }
}

void interp_place_registers(struct bound *b, char *shared)
{
    char *own = (char *)ALIGNED((uintptr_t)b->registers);
    b->shared = shared;
    for (uint32_t i = 0; i < b->run->k->n_nodes; i++) {
        const uint32_t number = b->number[i];
        b->ptr[i] = b->reg[i] = !number ? NULL
                                : number <= b->n_pinned
                                    ? own + (number - 1) * b->stride
                                    : shared + (number - 1 - b->n_pinned) * b->stride;
    }
}

void interp_write_program(struct bound *b)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    bool *need;
    uint32_t *last;
    int64_t *work;
    carve(b, r, &need, &last, &work);
    if (!interp_geometry(r, b->lo, b->box_ext, b->overrun, &b->g, work)) {
        b->overrun = false;
        interp_geometry(r, b->lo, b->box_ext, false, &b->g, work);
    }
    struct geometry *g = &b->g;
    b->cut = g->q < 0 && (g->nd < 2 || g->ext[g->nd - 1] >= CUT_ROW);
    fold_and_mark(b, need);
    size_t widest = 1, memory_bytes = 0;
    b->n_direct = 0;
    for (uint32_t i = 0; i < r->n_operands; i++) {
        bool store = r->operands[i].kind == OPERAND_STORE;
        b->class_of[i] = (uint8_t)CLASS_DEAD;
        b->filled[i] = 0;
        b->filled_n[i] = 0;
        if (!store && !need[r->operands[i].node])
            continue;
        b->class_of[i] = (uint8_t)classify(b, i);
        if (b->class_of[i] == CLASS_DIRECT) {
            if (store || !beside(b, i))
                memory_bytes += r->operands[i].itemsize;
            if (!store)
                b->direct[b->n_direct++] = i;
        }
    }
    choose_ahead(b);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (need[i] && dtype_size(k->nodes[i].dtype) > widest && !direct_operand(b, i))
            widest = dtype_size(k->nodes[i].dtype);
    interp_count_uses(b, need, last); /* `last` is scratch until here */
    interp_find_sums(b, need, last);
    interp_find_chains(b, need, last);
    memset(last, 0, k->n_nodes * sizeof *last);
    write_code(b, need, last);
    size_t n_regs = give_registers(b, need, last);

    size_t blk = L1_BYTES / (n_regs * widest + memory_bytes + 1);
    blk = blk < BLOCK_LEAST ? BLOCK_LEAST : blk > BLOCK_MOST ? BLOCK_MOST : blk & ~(size_t)127;
    if (((r->large && b->n_code > 1) || r->fetches) && blk > BLOCK_STREAMED)
        blk = BLOCK_STREAMED;
    if (g->q >= 0)
        blk = (size_t)interp_tile_points(r);
    if ((int64_t)blk > g->points)
        blk = ((size_t)g->points + 15) & ~(size_t)15;
    if (r->block)
        blk = (size_t)r->block;
    b->blk = (int64_t)blk;
    b->stride = ALIGNED(blk * widest);
    assert(n_regs * b->stride + 64 <= r->needs.registers);
    b->reloads = false;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        b->reloads |= b->number[i] && b->number[i] <= b->n_pinned &&
                      r->operand_of[i] != UINT32_MAX &&
                      r->operands[r->operand_of[i]].kind == OPERAND_LOAD;
    mark_computed(b);
}

bool interp_find_pieces(const struct interp_run *r, struct interp_pieces *ret)
{
    struct bound b = {.run = r, .memory_size = r->needs.carved};
    b.memory = arena_alloc(r->arena, r->needs.carved);
    if (!b.memory)
        return false;
    interp_box(r, 0, b.lo, b.box_ext);
    interp_write_program(&b);
    *ret = (struct interp_pieces){b.blk, b.cut ? b.g.ext[b.g.nd - 1] : 0};
    return true;
}
