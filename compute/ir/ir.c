/* Building, measuring and printing of the IR. The builders share identical nodes, inputs and
 * scalars as they go (value numbering), so that later passes need no separate elimination of common
 * subexpressions. */
#include "compute/ir/ir.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/hash.h"
#include "compute/ir/ir_build.h"

/* Hashes the words of a node; nodes are zero-initialised, so padding compares equal. */
static uint32_t node_hash(const struct ir_node *n)
{
    uint32_t words[sizeof *n / sizeof(uint32_t)], h = 2166136261u;
    static_assert(sizeof words == sizeof *n, "a node is whole words");
    memcpy(words, n, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0x9e3779b1u;
        h ^= h >> 15;
    }
    return h;
}

void ir_builder_init(struct ir_builder *b, struct arena *arena, struct ir_kernel *k)
{
    *b = (struct ir_builder){.arena = arena, .k = k};
}

#define GROW(b, array, n)                                                                          \
    grow((b), (void **)&(b)->k->array, &(b)->k->cap_##array, (b)->k->n_##array,                    \
         sizeof *(b)->k->array)

static bool grow(struct ir_builder *b, void **p, uint32_t *cap, uint32_t n, size_t elem)
{
    size_t c = *cap;
    if (arena_grow(b->arena, p, &c, n, elem) < 0) {
        b->oom = true;
        return false;
    }
    *cap = (uint32_t)c;
    return true;
}

static bool rehash(struct ir_builder *b)
{
    uint32_t size = b->table_size ? b->table_size * 2 : 64;
    uint32_t *table = arena_alloc_array(b->arena, size, sizeof *table);
    if (!table) {
        b->oom = true;
        return false;
    }
    for (uint32_t i = 0; i < b->k->n_nodes; i++) {
        uint32_t h = node_hash(&b->k->nodes[i]) & (size - 1);
        while (table[h])
            h = (h + 1) & (size - 1);
        table[h] = i + 1;
    }
    b->table = table;
    b->table_size = size;
    return true;
}

uint32_t ir_emit(struct ir_builder *b, const struct ir_node *n)
{
    struct ir_kernel *k = b->k;
    if (b->oom || ((k->n_nodes + 1) * 2 > b->table_size && !rehash(b)))
        return IR_NONE;
    uint32_t h = node_hash(n) & (b->table_size - 1);
    for (; b->table[h]; h = (h + 1) & (b->table_size - 1))
        if (memcmp(&k->nodes[b->table[h] - 1], n, sizeof *n) == 0)
            return b->table[h] - 1;
    if (!GROW(b, nodes, k->n_nodes))
        return IR_NONE;
    k->nodes[k->n_nodes] = *n;
    b->table[h] = ++k->n_nodes;
    return k->n_nodes - 1;
}

uint32_t ir_emit_const(struct ir_builder *b, struct scalar value)
{
    struct ir_kernel *k = b->k;
    uint32_t i = 0;
    for (; i < k->n_scalars; i++)
        if (k->scalars[i].dtype == value.dtype &&
            memcmp(&k->scalars[i].v, &value.v, sizeof value.v) == 0)
            break;
    if (i == k->n_scalars) {
        if (!GROW(b, scalars, i))
            return IR_NONE;
        k->scalars[k->n_scalars++] = value;
    }
    struct ir_node n = {.kind = IR_CONST, .dtype = (uint8_t)value.dtype, .scalar = i};
    return ir_emit(b, &n);
}

/* The number of an equal input, which is added if new. */
static uint32_t add_input(struct ir_builder *b, uint32_t slot, enum dtype dtype,
                          const struct view *v, bool gathered)
{
    struct ir_kernel *k = b->k;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const struct ir_input *in = &k->inputs[i];
        if (in->slot == slot && in->dtype == dtype && in->gathered == gathered &&
            in->view.rank == v->rank && in->view.offset == v->offset &&
            memcmp(in->view.strides, v->strides, sizeof *v->strides * v->rank) == 0 &&
            memcmp(in->view.shape, v->shape, sizeof *v->shape * v->rank) == 0)
            return i;
    }
    if (!GROW(b, inputs, k->n_inputs))
        return IR_NONE;
    k->inputs[k->n_inputs] = (struct ir_input){slot, dtype, *v, gathered};
    return k->n_inputs++;
}

uint32_t ir_emit_load(struct ir_builder *b, uint32_t slot, enum dtype dtype, const struct view *v,
                      uint32_t ctx)
{
    uint32_t i = add_input(b, slot, dtype, v, false);
    struct ir_node n = {.kind = IR_LOAD, .dtype = (uint8_t)dtype, .input = i, .ctx = ctx};
    return i == IR_NONE ? IR_NONE : ir_emit(b, &n);
}

uint32_t ir_emit_gather(struct ir_builder *b, uint32_t slot, enum dtype dtype,
                        const struct view *row, uint32_t at)
{
    uint32_t i = at == IR_NONE ? IR_NONE : add_input(b, slot, dtype, row, true);
    struct ir_node n = {
        .kind = IR_GATHER, .dtype = (uint8_t)dtype, .n_args = 1, .args = {at}, .input = i};
    return i == IR_NONE ? IR_NONE : ir_emit(b, &n);
}

uint32_t ir_emit_index(struct ir_builder *b, uint32_t ctx, int axis, int64_t start, int64_t step)
{
    struct ir_kernel *k = b->k;
    uint32_t i = 0;
    for (; i < k->n_indices; i++)
        if (k->indices[i].start == start && k->indices[i].step == step)
            break;
    if (i == k->n_indices) {
        if (!GROW(b, indices, i))
            return IR_NONE;
        k->indices[k->n_indices++] = (struct ir_index){start, step};
    }
    struct ir_node n = {
        .kind = IR_INDEX, .dtype = DT_I64, .axis = (int16_t)axis, .index = i, .ctx = ctx};
    return ir_emit(b, &n);
}

uint32_t ir_emit_op(struct ir_builder *b, enum op op, enum dtype src, const uint32_t *args)
{
    struct ir_node n = {.kind = IR_OP,
                        .dtype = (uint8_t)op_result_dtype(op, src),
                        .src = (uint8_t)src,
                        .op = (uint16_t)op,
                        .n_args = op_table[op].nargs};
    for (int i = 0; i < n.n_args; i++) {
        if (args[i] == IR_NONE)
            return IR_NONE;
        n.args[i] = args[i];
    }
    return ir_emit(b, &n);
}

uint32_t ir_emit_cast(struct ir_builder *b, uint32_t arg, enum dtype to)
{
    if (arg == IR_NONE || b->k->nodes[arg].dtype == to)
        return arg;
    struct ir_node n = {.kind = IR_CAST,
                        .dtype = (uint8_t)to,
                        .src = b->k->nodes[arg].dtype,
                        .n_args = 1,
                        .args = {arg}};
    return ir_emit(b, &n);
}

static bool is_bool(const struct ir_kernel *k, uint32_t i, uint8_t value)
{
    const struct ir_node *n = &k->nodes[i];
    return n->kind == IR_CONST && n->dtype == DT_BOOL && k->scalars[n->scalar].v.b == value;
}

uint32_t ir_emit_select(struct ir_builder *b, uint32_t cond, uint32_t x, uint32_t y)
{
    if (cond == IR_NONE || x == IR_NONE || y == IR_NONE)
        return IR_NONE;
    const struct ir_node *c = &b->k->nodes[cond];
    if (c->kind == IR_SELECT && is_bool(b->k, c->args[1], 1) && is_bool(b->k, c->args[2], 0))
        cond = c->args[0]; /* (c ? true : false) is c, which may be an IR_INSIDE */
    struct ir_node n = {
        .kind = IR_SELECT, .dtype = b->k->nodes[x].dtype, .n_args = 3, .args = {cond, x, y}};
    return ir_emit(b, &n);
}

uint32_t ir_emit_random(struct ir_builder *b, const struct random_params *p, enum dtype dtype,
                        uint32_t index)
{
    struct ir_kernel *k = b->k;
    if (index == IR_NONE || !GROW(b, randoms, k->n_randoms))
        return IR_NONE;
    k->randoms[k->n_randoms] = p;
    struct ir_node n = {.kind = IR_RANDOM,
                        .dtype = (uint8_t)dtype,
                        .n_args = 1,
                        .args = {index},
                        .random = k->n_randoms++};
    return ir_emit(b, &n);
}

uint32_t ir_emit_table(struct ir_builder *b, const struct number_table *t, uint32_t at)
{
    struct ir_kernel *k = b->k;
    uint32_t i = 0;
    while (i < k->n_tables && k->tables[i] != t)
        i++;
    if (at == IR_NONE || (i == k->n_tables && !GROW(b, tables, i)))
        return IR_NONE;
    if (i == k->n_tables)
        k->tables[k->n_tables++] = t;
    struct ir_node n = {.kind = IR_TABLE, .dtype = DT_I64, .n_args = 1, .args = {at}, .table = i};
    return ir_emit(b, &n);
}

uint32_t ir_emit_fold(struct ir_builder *b, const struct ir_fold *f, uint32_t arg)
{
    struct ir_kernel *k = b->k;
    uint32_t i = 0;
    if (arg == IR_NONE)
        return IR_NONE;
    while (i < k->n_folds && (k->folds[i].reduce != f->reduce || k->folds[i].axes != f->axes ||
                              k->folds[i].divisor != f->divisor))
        i++;
    if (i == k->n_folds) {
        if (!GROW(b, folds, i))
            return IR_NONE;
        k->folds[k->n_folds++] = *f;
    }
    const uint8_t of = k->nodes[arg].dtype;
    struct ir_node n = {.kind = IR_FOLD,
                        .dtype = reduce_is_arg(f->reduce) ? DT_I64 : of,
                        .src = of,
                        .n_args = 1,
                        .args = {arg},
                        .fold = i};
    return ir_emit(b, &n);
}

uint32_t ir_add_ctx(struct ir_builder *b, const struct ir_ctx *ctx)
{
    struct ir_kernel *k = b->k;
    for (uint32_t i = 0; i < k->n_ctxs; i++)
        if (memcmp(&k->ctxs[i], ctx, sizeof *ctx) == 0)
            return i;
    if (!GROW(b, ctxs, k->n_ctxs))
        return IR_NONE;
    k->ctxs[k->n_ctxs] = *ctx;
    return k->n_ctxs++;
}

bool ir_add_output(struct ir_builder *b, const struct ir_output *out)
{
    if (out->node == IR_NONE || !GROW(b, outputs, b->k->n_outputs))
        return false;
    b->k->outputs[b->k->n_outputs++] = *out;
    return true;
}

/* Distinct elements a view can touch: extents along axes with a stride, or all that lie between the
 * first and the last where windows overlap. */
static int64_t distinct(const struct view *v)
{
    int64_t n = 1, span = 1;
    for (int i = 0; i < v->rank; i++) {
        if (v->strides[i] != 0 || v->shape[i] == 0)
            n *= v->shape[i];
        span += (v->strides[i] < 0 ? -v->strides[i] : v->strides[i]) * (v->shape[i] - 1);
    }
    return n < span || n == 0 ? n : span;
}

/* Distinct elements of input i that the kernel can read: of a gathered input at most one per point
 * and gather. */
static int64_t elements_read(const struct ir_kernel *k, uint32_t i)
{
    int64_t all = distinct(&k->inputs[i].view), most = 0, points = 1;
    if (!k->inputs[i].gathered)
        return all;
    for (uint32_t n = 0; n < k->n_nodes; n++)
        most += k->nodes[n].kind == IR_GATHER && k->nodes[n].input == i;
    for (int a = 0; a < k->rank; a++)
        if (__builtin_mul_overflow(points, k->shape[a], &points))
            return all;
    return __builtin_mul_overflow(most, points, &most) || most > all ? all : most;
}

/* The indices along the axes of a context, inclusive. */
static void ctx_range(const struct ir_kernel *k, uint32_t c, int64_t *lo, int64_t *hi)
{
    const struct ir_ctx *x = &k->ctxs[c];
    int64_t plo[MAX_RANK], phi[MAX_RANK];
    if (c != 0 && x->mode == BOUNDARY_GHOST)
        ctx_range(k, x->parent, plo, phi);
    for (int a = 0; a < x->rank; a++) {
        lo[a] = 0;
        hi[a] = x->shape[a] - 1;
        if (c == 0 || x->mode != BOUNDARY_GHOST)
            continue;
        lo[a] = hi[a] = x->start[a];
        if (x->src[a] >= 0) {
            int64_t p = x->step[a] * plo[x->src[a]], q = x->step[a] * phi[x->src[a]];
            lo[a] += p < q ? p : q;
            hi[a] += p < q ? q : p;
        }
        lo[a] += x->offset[a];
        hi[a] += x->offset[a];
    }
}

void ir_load_extent(const struct ir_kernel *k, uint32_t node, int64_t *ret_lo, int64_t *ret_hi)
{
    const struct ir_node *n = &k->nodes[node];
    const struct view *v = &k->inputs[n->input].view;
    int64_t lo[MAX_RANK], hi[MAX_RANK], first = v->offset, last = v->offset;
    ctx_range(k, n->ctx, lo, hi);
    bool empty = false;
    for (int a = 0; a < v->rank; a++) {
        int64_t p = v->strides[a] * lo[a], q = v->strides[a] * hi[a];
        first += p < q ? p : q;
        last += p < q ? q : p;
        empty |= hi[a] < lo[a];
    }
    for (int a = 0; a < k->rank; a++)
        empty |= k->shape[a] == 0;
    *ret_lo = empty ? 0 : first;
    *ret_hi = empty ? 0 : last + 1;
}

int64_t ir_bytes_read(const struct ir_kernel *k)
{
    /* Memory read through several contexts or views (the neighbours of a stencil) counts once: the
     * largest operand of each slot. */
    int64_t total = 0;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        int64_t best = elements_read(k, i);
        bool first = true;
        for (uint32_t j = 0; j < k->n_inputs && first; j++) {
            if (k->inputs[j].slot != k->inputs[i].slot)
                continue;
            if (j < i)
                first = false;
            else if (elements_read(k, j) > best)
                best = elements_read(k, j);
        }
        if (first)
            total += best * (int64_t)dtype_size(k->inputs[i].dtype);
    }
    return total;
}

int64_t ir_bytes_written(const struct ir_kernel *k)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        total += distinct(&k->outputs[i].view) * (int64_t)dtype_size(k->outputs[i].dtype);
    return total;
}

uint32_t ir_combined_axes(const struct ir_kernel *k)
{
    if (k->n_folds)
        return k->folds[0].axes;
    return k->outputs[0].kind == OUT_STORE ? 0 : k->outputs[0].axes;
}

bool ir_reads_in_place(const struct ir_kernel *k, uint32_t input, const struct ir_output *o)
{
    const struct ir_input *in = &k->inputs[input];
    if (o->kind != OUT_STORE || in->gathered || in->view.offset != o->view.offset ||
        dtype_size(in->dtype) != dtype_size(o->dtype))
        return false;
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] > 1 && in->view.strides[a] != o->view.strides[a])
            return false;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_LOAD && k->nodes[i].input == input && k->nodes[i].ctx != 0)
            return false;
    return true;
}

int64_t ir_reduced_stride(const struct ir_kernel *k, int axis)
{
    uint32_t axes = ir_combined_axes(k);
    int64_t stride = 1;
    if (!(axes >> axis & 1))
        return 0;
    for (int a = axis + 1; a < k->rank; a++)
        stride *= axes >> a & 1 ? k->shape[a] : 1;
    return stride;
}

static void print_list(struct strb *out, const int64_t *v, int n)
{
    strb_addc(out, '(');
    for (int i = 0; i < n; i++) {
        if (i)
            strb_add(out, ", ");
        strb_add_i64(out, v[i]);
    }
    strb_addc(out, ')');
}

static void print_view(struct strb *out, const struct view *v)
{
    strb_add(out, " strides ");
    print_list(out, v->strides, v->rank);
    strb_addf(out, " offset %lld", (long long)v->offset);
}

void ir_print_scalar(const struct scalar *s, struct strb *out)
{
    struct literal l = literal_from_scalar(*s);
    switch (l.kind) {
    case LIT_BOOL:
        strb_add(out, l.i ? "True" : "False");
        break;
    case LIT_INT:
        if (l.i < 0)
            strb_add_i64(out, (int64_t)l.i);
        else
            strb_add_u64(out, (uint64_t)l.i);
        break;
    case LIT_FLOAT:
        strb_addf(out, "%.17g", l.re);
        break;
    case LIT_COMPLEX:
        strb_addf(out, "(%.17g%+.17gj)", l.re, l.im);
        break;
    }
}

static void print_node(const struct ir_kernel *k, uint32_t i, struct strb *out)
{
    const struct ir_node *n = &k->nodes[i];
    strb_addf(out, "  %%%u = ", i);
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        strb_add(out, "const ");
        ir_print_scalar(&k->scalars[n->scalar], out);
        break;
    case IR_LOAD:
        strb_addf(out, "load in%u", n->input);
        if (n->ctx)
            strb_addf(out, " at ctx%u", n->ctx);
        break;
    case IR_GATHER:
        strb_addf(out, "gather in%u", n->input);
        break;
    case IR_TABLE:
        strb_addf(out, "table of %lld", (long long)k->tables[n->table]->n);
        break;
    case IR_INDEX:
        strb_addf(out, "index %lld + %lld*", (long long)k->indices[n->index].start,
                  (long long)k->indices[n->index].step);
        strb_addf(out, "ctx%u[%d]", n->ctx, n->axis);
        break;
    case IR_INSIDE:
        strb_addf(out, "inside ctx%u", n->ctx);
        break;
    case IR_OP:
        strb_add(out, op_table[n->op].name);
        break;
    case IR_CAST:
        strb_add(out, "cast");
        break;
    case IR_SELECT:
        strb_add(out, "select");
        break;
    case IR_RANDOM:
        strb_addf(out, "random seed %llu", (unsigned long long)k->randoms[n->random]->seed);
        break;
    case IR_FOLD:
        strb_addf(out, "%s over 0x%x of", reduce_name(k->folds[n->fold].reduce),
                  k->folds[n->fold].axes);
        if (reduce_divides(k->folds[n->fold].reduce))
            strb_addf(out, " by %.17g", k->folds[n->fold].divisor);
        break;
    }
    for (int a = 0; a < n->n_args; a++)
        strb_addf(out, " %%%u", n->args[a]);
    strb_addf(out, " : %s\n", dtype_name(n->dtype));
}

void ir_print(const struct ir_kernel *k, struct strb *out)
{
    strb_add(out, "kernel over ");
    print_list(out, k->shape, k->rank);
    if (k->steps > 1)
        strb_addf(out, ", %u steps", k->steps);
    strb_add(out, k->fast_math ? " fast_math\n" : "\n");
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        strb_addf(out, "  in%u = slot%u %s", i, k->inputs[i].slot, dtype_name(k->inputs[i].dtype));
        if (k->inputs[i].gathered)
            strb_addf(out, " row of %lld offset %lld", (long long)k->inputs[i].view.shape[0],
                      (long long)k->inputs[i].view.offset);
        else
            print_view(out, &k->inputs[i].view);
        strb_addc(out, '\n');
    }
    for (uint32_t i = 1; i < k->n_ctxs; i++) {
        const struct ir_ctx *c = &k->ctxs[i];
        strb_addf(out, "  ctx%u = ctx%u[", i, c->parent);
        for (int a = 0; a < c->rank; a++) {
            strb_addf(out, "%s%lld", a ? ", " : "", (long long)c->start[a]);
            if (c->src[a] >= 0)
                strb_addf(out, "+%lld*i%d", (long long)c->step[a], c->src[a]);
        }
        strb_add(out, "] in ");
        print_list(out, c->shape, c->rank);
        strb_add(out, " shift ");
        print_list(out, c->offset, c->rank);
        strb_addf(out, " %s\n", boundary_name(c->mode));
    }
    for (uint32_t i = 0; i < k->n_nodes; i++)
        print_node(k, i, out);
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        strb_addf(out, "  %s %%%u -> slot%u %s",
                  o->kind == OUT_STORE  ? "store"
                  : o->kind == OUT_FOLD ? "store row's"
                  : o->kind == OUT_SCAN ? scan_name(o->reduce)
                                        : reduce_name(o->reduce),
                  o->node, o->slot, dtype_name(o->dtype));
        print_view(out, &o->view);
        if (o->kind != OUT_STORE)
            strb_addf(out, " axes 0x%x", o->axes);
        if (o->kind == OUT_REDUCE && reduce_divides(o->reduce))
            strb_addf(out, " by %.17g", o->divisor);
        if (o->feeds)
            strb_addf(out, " feeds in%u", o->feeds - 1);
        strb_addc(out, '\n');
    }
}

static uint64_t hash_view(uint64_t h, const struct view *v)
{
    h = hash_word(h, (uint64_t)v->offset);
    for (int a = 0; a < v->rank; a++)
        h = hash_word(hash_word(h, (uint64_t)v->shape[a]), (uint64_t)v->strides[a]);
    return h;
}

static uint64_t hash_contexts(uint64_t h, const struct ir_kernel *k)
{
    for (uint32_t i = 0; i < k->n_ctxs; i++) {
        const struct ir_ctx *c = &k->ctxs[i];
        h = hash_word(h, (uint64_t)c->parent << 32 | (uint64_t)c->mode << 8 | (uint64_t)c->rank);
        for (int a = 0; a < c->rank; a++) {
            h = hash_word(h, (uint64_t)c->shape[a]);
            h = hash_word(h, (uint64_t)(uint8_t)c->src[a] ^ (uint64_t)c->start[a] << 8);
            h = hash_word(h, (uint64_t)c->step[a] ^ (uint64_t)c->offset[a] << 32);
        }
    }
    return h;
}

static uint64_t hash_memory(uint64_t h, const struct ir_kernel *k)
{
    for (uint32_t i = 0; i < k->n_inputs; i++)
        h = hash_view(hash_word(h, (uint64_t)k->inputs[i].dtype), &k->inputs[i].view);
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        h = hash_word(h, (uint64_t)o->kind << 40 | (uint64_t)o->dtype << 32 | o->node);
        h = hash_word(h, (uint64_t)o->reduce << 32 | o->axes);
        h = hash_view(hash_word(h, o->feeds), &o->view);
    }
    return h;
}

uint64_t ir_identity(struct ir_kernel *k)
{
    uint64_t h = atomic_load_explicit(&k->identity, memory_order_relaxed);
    if (h)
        return h;
    h = hash_bytes(HASH_SEED, ARRAYD_VERSION, sizeof ARRAYD_VERSION);
    h = hash_word(h, (uint64_t)k->rank << 32 | (uint64_t)k->steps << 1 | k->fast_math);
    for (int a = 0; a < k->rank; a++)
        h = hash_word(h, (uint64_t)k->shape[a]);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        h = hash_word(h, node_hash(&k->nodes[i]));
    h = hash_memory(hash_contexts(h, k), k);
    h = h ? h : 1;
    atomic_store_explicit(&k->identity, h, memory_order_relaxed);
    return h;
}
