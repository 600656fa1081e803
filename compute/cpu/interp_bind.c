/* A box becomes a program: instructions in node order over registers, loads placed right before
 * their first use, registers given out by liveness so that a kernel of hundreds of nodes keeps to a
 * handful. In a box every IR_INSIDE is known, so its selects vanish and what only the other branch
 * needed is not computed.
 *
 * Binding costs some tens of nanoseconds a node; a thread keeps its last few programs (units of one
 * box follow each other). The registers of a slot are one piece of memory, sized so that together
 * with the memory operands' blocks they fit L1.
 *
 * In a loop of small kernels binding would cost more than they do. There the run keeps the programs
 * of each scratch; a pass only reads anew what their pinned registers took from memory. The other
 * registers hold nothing from one block to the next and are one piece of the scratch, which so
 * stays in L1 whichever program runs; it may move as it grows, and programs follow it. */
#include <assert.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/cpu/interp_int.h"

#define L1_BYTES    32768
#define BLOCK_LEAST 256
/* Where memory is the bound, short blocks: what is prefetched between two instructions must not be
 * much more than what a core can wait for. */
#define BLOCK_STREAMED 640
#define BLOCK_TILED    1024
/* A row at least this long is worth stopping at its end, so that operands are used in place. */
#define CUT_ROW 192
/* What a scratch may keep of a run: a few dozen boxes, or some with long blocks. */
#define KEPT_PROGRAMS 512
#define KEPT_BYTES    (INT64_C(256) << 10)
#define ALIGNED(x)    (((x) + 63) & ~(size_t)63)

/* Grows *p to at least `size` bytes; contents are lost. */
static bool reserve(void *pp, size_t *have, size_t size)
{
    void **p = pp;
    if (*have >= size)
        return true;
    /* mem.h has no aligned allocation: the block's start is found again by ALIGNED. */
    void *q = mem_alloc(size + size / 2 + 64);
    if (!q)
        return false;
    mem_free(*p);
    *p = q;
    *have = size + size / 2;
    return true;
}

struct interp_scratch *interp_scratch_new(int number)
{
    struct interp_scratch *s = mem_calloc(1, sizeof *s);
    if (s)
        s->number = number;
    return s;
}

void interp_scratch_free(struct interp_scratch *s)
{
    if (!s)
        return;
    for (int i = 0; i < BOUND_SLOTS; i++) {
        mem_free(s->slots[i].memory);
        mem_free(s->slots[i].registers);
    }
    mem_free(s->registers);
    mem_free(s->reduce);
    mem_free(s->staging);
    mem_free(s);
}

/* Of everything that carve() deals out. */
static size_t carved_size(const struct interp_run *r)
{
    size_t nodes = r->k->n_nodes, ops = r->n_operands, words = interp_geometry_words(r);
    return (words + 2 * ops) * sizeof(int64_t) + 2 * nodes * sizeof(void *) +
           (nodes + 1) * sizeof(struct instr) + (4 * nodes + 2 * ops) * sizeof(uint32_t) + ops +
           3 * nodes + r->n_stores;
}

/* The registers of any box: at most one a node, and bind()'s choice of the block. */
static size_t registers_most(const struct interp_run *r)
{
    size_t n = r->n_live, widest = 1, points = ((size_t)r->points + 15) & ~(size_t)15;
    for (uint32_t i = 0; i < r->k->n_nodes; i++)
        if (r->live[i] && dtype_size(r->k->nodes[i].dtype) > widest)
            widest = dtype_size(r->k->nodes[i].dtype);
    size_t least = r->reduces || r->scan ? BLOCK_LEAST : BLOCK_TILED;
    size_t most = n * least * widest;
    if (most < L1_BYTES)
        most = L1_BYTES;
    most += n * 64;
    if (points < BLOCK_MOST && n * ALIGNED(points * widest) < most)
        most = n * ALIGNED(points * widest);
    return most + 64;
}

/* How many programs a unit may have bound, one after the other in slots of their own. */
static int programs(const struct interp_run *r)
{
    if (r->mode == MODE_GROUPED)
        return BOUND_SLOTS;
    if (r->split || r->boxes_per_group < 2)
        return 1;
    return r->boxes_per_group < BOUND_SLOTS ? (int)r->boxes_per_group : BOUND_SLOTS;
}

void interp_size_programs(struct interp_run *r)
{
    r->carved = carved_size(r);
    r->registers = registers_most(r);
}

bool interp_fit(const struct interp_run *r, struct interp_scratch *s)
{
    for (int i = 0; i < programs(r); i++) {
        struct bound *b = &s->slots[i];
        if (b->memory_size >= r->carved && b->registers_size >= r->registers)
            continue;
        b->run_id = 0; /* it lies in what goes now */
        if (!reserve(&b->memory, &b->memory_size, r->carved) ||
            !reserve(&b->registers, &b->registers_size, r->registers))
            return false;
    }
    if (r->kept && !reserve(&s->registers, &s->registers_size, r->registers))
        return false;
    return reserve(&s->reduce, &s->reduce_size, r->accumulators) &&
           reserve(&s->staging, &s->staging_size, r->staging);
}

/* Room for everything; the order is by falling alignment. */
static void carve(struct bound *b, const struct interp_run *r, bool **ret_need, uint32_t **ret_last,
                  int64_t **ret_work)
{
    size_t nodes = r->k->n_nodes, ops = r->n_operands, words = interp_geometry_words(r);
    size_t size = r->carved;
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
    TAKE(b->filled, ops);
    TAKE(b->filled_n, ops);
    TAKE(b->ptr, nodes);
    TAKE(b->reg, nodes);
    TAKE(b->code, nodes + 1);
    TAKE(b->alias, nodes);
    TAKE(*ret_last, nodes);
    TAKE(b->number, nodes);
    TAKE(b->chain, nodes);
    TAKE(b->direct, ops);
    TAKE(b->ahead, ops);
    TAKE(b->class_of, ops);
    TAKE(*ret_need, nodes);
    TAKE(b->chain_length, nodes);
    TAKE(b->absorbed, nodes);
    TAKE(b->computed, r->n_stores);
#undef TAKE
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

/* Which nodes the box needs, and whose values they are. */
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
        if (b->chain_length[i] > 1)
            interp_chain_instr(b, i, &in);
        assert(in.kind != INSTR_LOOP || in.fn);
        for (int a = 0; a < in.n_args; a++)
            emit_operand(b, in.args[a], emitted);
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

/* Gives register numbers to nodes, from 1 on; returns how many there are. */
static uint32_t give_registers(struct bound *b, const bool *need, uint32_t *last)
{
    const struct ir_kernel *k = b->run->k;
    uint32_t n_regs = 0, n_free = 0;
    uint32_t *reg = b->number;
    void **free_list = b->ptr; /* not in use yet */

    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (need[i] && pinned(b, i))
            reg[i] = ++n_regs;
    b->n_pinned = n_regs;
    memset(last, 0, k->n_nodes * sizeof *last);
    for (uint32_t c = 0; c < b->n_code; c++)
        for (int a = 0; a < b->code[c].n_args; a++)
            last[b->code[c].args[a]] = c;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        last[b->alias[k->outputs[i].node]] = UINT32_MAX;

    for (uint32_t c = 0; c < b->n_code; c++) {
        const struct instr *in = &b->code[c];
        uint32_t dst = in->dst;
        size_t size = dtype_size(k->nodes[dst].dtype);
        if (!reg[dst]) {
            for (int a = 0; a < in->n_args && !reg[dst]; a++) {
                uint32_t s = in->args[a];
                if (reg[s] && !pinned(b, s) && last[s] == c && in->kind == INSTR_LOOP &&
                    dtype_size(k->nodes[s].dtype) == size)
                    reg[dst] = reg[s];
            }
            if (!reg[dst])
                reg[dst] = n_free ? (uint32_t)(uintptr_t)free_list[--n_free] : ++n_regs;
        }
        for (int a = 0; a < in->n_args; a++) {
            uint32_t s = in->args[a];
            bool again = false;
            for (int e = 0; e < a; e++)
                again |= in->args[e] == s;
            if (!again && reg[s] && !pinned(b, s) && last[s] == c && reg[s] != reg[dst])
                free_list[n_free++] = (void *)(uintptr_t)reg[s];
        }
    }
    return n_regs;
}

/* Of the registers that stay as they are: all, or those `from_memory`. */
static void fill_pinned(struct bound *b, bool from_memory)
{
    const struct interp_run *r = b->run;
    const struct ir_kernel *k = r->k;
    const size_t n = (size_t)(b->g.points < b->blk ? b->g.points : b->blk);
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        if (!b->number[i] || b->number[i] > b->n_pinned)
            continue;
        uint32_t o = r->operand_of[i];
        union value v = {0};
        size_t size = dtype_size(k->nodes[i].dtype);
        if (from_memory && (o == UINT32_MAX || r->operands[o].kind != OPERAND_LOAD)) {
            continue;
        } else if (k->nodes[i].kind == IR_CONST) {
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

/* Whose values an instruction may write to their place itself. A single output may be the memory
 * of an operand, which no instruction reads behind the last; several never are, and where two have
 * one value, it is written once and copied. */
static void mark_computed(struct bound *b)
{
    const struct ir_kernel *k = b->run->k;
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const uint32_t node = b->alias[k->outputs[i].node];
        uint32_t c = k->n_outputs > 1 || !b->n_code ? 0 : b->n_code - 1;
        while (c < b->n_code && b->code[c].dst != node)
            c++;
        b->computed[i] = c < b->n_code && b->code[c].kind != INSTR_GATHER;
        for (uint32_t j = 0; j < i; j++)
            b->computed[i] &= b->alias[k->outputs[j].node] != node;
    }
}

/* Where the registers lie: the pinned ones in the program's own memory. */
static void place_registers(struct bound *b, char *shared)
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

/* All but the registers' places. */
static void bind(struct bound *b)
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
            memory_bytes += r->operands[i].itemsize;
            if (!store)
                b->direct[b->n_direct++] = i;
        }
    }
    choose_ahead(b);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (need[i] && dtype_size(k->nodes[i].dtype) > widest && !direct_operand(b, i))
            widest = dtype_size(k->nodes[i].dtype);
    interp_find_chains(b, need, last);
    memset(last, 0, k->n_nodes * sizeof *last);
    write_code(b, need, last);
    size_t n_regs = give_registers(b, need, last);

    size_t blk = L1_BYTES / (n_regs * widest + memory_bytes + 1);
    blk = blk < BLOCK_LEAST ? BLOCK_LEAST : blk > BLOCK_MOST ? BLOCK_MOST : blk & ~(size_t)63;
    if (r->large && b->n_code > 1 && blk > BLOCK_STREAMED)
        blk = BLOCK_STREAMED;
    if (g->q >= 0)
        blk = BLOCK_TILED;
    if ((int64_t)blk > g->points)
        blk = ((size_t)g->points + 15) & ~(size_t)15;
    b->blk = (int64_t)blk;
    b->stride = ALIGNED(blk * widest);
    assert(n_regs * b->stride + 64 <= r->registers);
    b->reloads = false;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        b->reloads |= b->number[i] && b->number[i] <= b->n_pinned &&
                      r->operand_of[i] != UINT32_MAX &&
                      r->operands[r->operand_of[i]].kind == OPERAND_LOAD;
    mark_computed(b);
}

/* Whose box it is. */
static void address(struct bound *b, const struct interp_run *r, int64_t box, bool overrun)
{
    b->run = r;
    b->pass = r->pass;
    b->box = box * 2 + overrun;
    b->overrun = overrun;
    if (r->mode == MODE_GROUPED) {
        int fast = r->order[r->n_order - 1];
        int64_t c = box % r->n_cuts[fast];
        interp_box(r, box / r->n_cuts[fast], b->lo, b->box_ext);
        b->lo[fast] = r->cuts[fast][c];
        b->box_ext[fast] = r->cuts[fast][c + 1] - b->lo[fast];
    } else {
        interp_box(r, box, b->lo, b->box_ext);
    }
}

/* ---- programs that are kept ---- */

void interp_keep(struct interp_run *r, int n)
{
    r->n_programs = 2 * r->n_boxes;
    if (r->mode == MODE_GROUPED)
        r->n_programs *= r->n_cuts[r->order[r->n_order - 1]];
    if (r->n_programs > KEPT_PROGRAMS)
        return;
    r->kept_left = arena_alloc_array(r->arena, (size_t)n, sizeof *r->kept_left);
    struct bound **kept =
        arena_alloc_array(r->arena, (size_t)(n * r->n_programs) + 1, sizeof(struct bound *));
    if (!r->kept_left || !kept)
        return;
    for (int i = 0; i < n; i++)
        r->kept_left[i] = KEPT_BYTES;
    r->kept = kept;
    r->n_keepers = n;
}

static void forget(struct bound *b)
{
    if (b)
        mem_free(b->registers);
    mem_free(b);
}

void interp_forget(struct interp_run *r)
{
    for (int64_t i = 0; r->kept && i < r->n_keepers * r->n_programs; i++)
        forget(r->kept[i]);
}

/* A program in memory of its own; NULL without memory. */
static struct bound *keep(const struct interp_run *r, int64_t box, bool overrun,
                          struct interp_scratch *s)
{
    int64_t *left = &r->kept_left[s->number];
    if (*left < (int64_t)r->carved)
        return NULL;
    struct bound *b = mem_calloc(1, sizeof *b + r->carved);
    if (!b)
        return NULL;
    b->memory = b + 1;
    b->memory_size = r->carved;
    address(b, r, box, overrun);
    bind(b);
    b->registers_size = b->n_pinned * b->stride + 64;
    const int64_t size = (int64_t)(sizeof *b + r->carved + b->registers_size);
    if (size <= *left)
        b->registers = mem_alloc(b->registers_size);
    if (!b->registers) {
        forget(b);
        return NULL;
    }
    *left -= size;
    return b;
}

static struct bound *kept_program(const struct interp_run *r, int64_t box, bool overrun,
                                  struct interp_scratch *s)
{
    struct bound **at = &r->kept[s->number * r->n_programs + box * 2 + overrun], *b = *at;
    char *shared = (char *)ALIGNED((uintptr_t)s->registers);
    if (!b) {
        b = keep(r, box, overrun, s);
        if (!b)
            return NULL;
        place_registers(b, shared);
        fill_pinned(b, false);
        return *at = b;
    }
    if (b->shared != shared)
        place_registers(b, shared);
    return b;
}

/* What memory held in the pass before. */
static void reread(struct bound *b)
{
    b->pass = b->run->pass;
    if (!b->reloads)
        return;
    memset(b->filled_n, 0, b->run->n_operands * sizeof *b->filled_n);
    fill_pinned(b, true);
}

struct bound *interp_bind(const struct interp_run *r, int64_t box, bool overrun, int slot,
                          struct interp_scratch *s)
{
    struct bound *b = r->kept ? kept_program(r, box, overrun, s) : NULL;
    if (!b) {
        b = &s->slots[slot];
        if (b->run_id != r->id || b->box != box * 2 + overrun) {
            b->run_id = 0;
            address(b, r, box, overrun);
            bind(b);
            place_registers(b, (char *)ALIGNED((uintptr_t)b->registers) + b->n_pinned * b->stride);
            fill_pinned(b, false);
            b->run_id = r->id;
        }
    }
    if (b->pass != r->pass)
        reread(b);
    return b;
}
