/* Kernels for test_interp.c: built by hand or at random, run by the interpreter and compared with
 * the plain reading. Included once, hence all static. */
#ifndef ARRAYD_TESTS_INTERP_SETUP_H
#define ARRAYD_TESTS_INTERP_SETUP_H

#include "compute/cpu/interp/interp.h"
#include "tests/unit/interp_plain.h"

struct setup {
    struct arena *arena;
    struct ir_kernel k;
    struct ir_builder b;
    int n_slots;
    int64_t bytes[MAX_SLOTS];
    char *slots[MAX_SLOTS], *copy[MAX_SLOTS], *want;
    uint32_t out_slot;
};

static void start(struct setup *s, int rank, const int64_t *shape)
{
    memset(s, 0, sizeof *s);
    s->arena = arena_new(0);
    assert_non_null(s->arena);
    s->k.rank = rank;
    struct ir_ctx c = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        s->k.shape[i] = c.shape[i] = shape[i];
        c.src[i] = (int8_t)i;
        c.step[i] = 1;
    }
    ir_builder_init(&s->b, s->arena, &s->k);
    assert_int_equal(ir_add_ctx(&s->b, &c), 0);
}

static void fill_random(char *p, int64_t bytes, enum dtype t)
{
    size_t size = dtype_size(t);
    union value table[61];
    for (int i = 0; i < 61; i++)
        table[i] = scalar_cast((struct scalar){.dtype = DT_I64, .v.i64 = between(-9, 9)}, t).v;
    for (int64_t i = 0, n = bytes / (int64_t)size; i < n; i++)
        memcpy(p + i * (int64_t)size, &table[(i + (i >> 7)) % 61], size);
}

/* A slot that holds the view (whose offset it sets), with a margin. */
static uint32_t add_slot(struct setup *s, enum dtype t, struct view *v)
{
    int64_t lo = 0, hi = 0;
    for (int i = 0; i < v->rank; i++) {
        int64_t reach = (v->shape[i] > 0 ? v->shape[i] - 1 : 0) * v->strides[i];
        *(reach < 0 ? &lo : &hi) += reach;
    }
    v->offset = between(0, 3) - lo;
    s->bytes[s->n_slots] = (v->offset + hi + 1 + between(0, 3)) * (int64_t)dtype_size(t);
    s->slots[s->n_slots] = mem_alloc((size_t)s->bytes[s->n_slots]);
    fill_random(s->slots[s->n_slots], s->bytes[s->n_slots], t);
    return (uint32_t)s->n_slots++;
}

/* Strides of a permuted array with gaps and turned axes; `repeats` allows stride 0. */
static struct view random_view(int rank, const int64_t *shape, bool repeats)
{
    struct view v = {.rank = rank};
    int order[MAX_RANK];
    for (int i = 0; i < rank; i++)
        order[i] = i;
    if (chance(40))
        for (int i = rank - 1; i > 0; i--) {
            int j = (int)between(0, i), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
    int64_t stride = chance(80) ? 1 : between(1, 3);
    bool dense = chance(60);
    for (int i = rank - 1; i >= 0; i--) {
        int a = order[i];
        v.shape[a] = shape[a];
        v.strides[a] = stride;
        stride *= (shape[a] > 0 ? shape[a] : 1) + (dense || v.shape[a] == 1 ? 0 : between(0, 2));
        if (!dense && chance(20))
            v.strides[a] = -v.strides[a];
        if (repeats && !dense && chance(20))
            v.strides[a] = 0;
    }
    return v;
}

static uint32_t random_ctx(struct setup *s)
{
    int64_t size = 1;
    uint32_t parent = (uint32_t)between(0, s->k.n_ctxs - 1);
    const struct ir_ctx *p = &s->k.ctxs[parent];
    struct ir_ctx c;
    memset(&c, 0, sizeof c);
    c.parent = parent;
    c.rank = chance(80) ? p->rank : (int)between(0, 4);
    bool used[MAX_RANK] = {0}, simple = chance(60) && c.rank == p->rank;
    for (int i = 0; i < c.rank; i++) {
        int src = simple ? i : p->rank ? (int)between(-1, p->rank - 1) : -1;
        if (src >= 0 && used[src])
            src = -1;
        c.src[i] = (int8_t)src;
        if (src < 0) {
            c.shape[i] = between(1, 4);
            c.start[i] = between(0, c.shape[i] - 1);
            continue;
        }
        used[src] = true;
        c.step[i] = simple ? 1 : between(-2, 2);
        int64_t reach = (p->shape[src] - 1) * c.step[i];
        c.start[i] = (reach < 0 ? -reach : 0) + (simple ? 0 : between(0, 2));
        c.shape[i] = c.start[i] + (reach > 0 ? reach : 0) + 1 + (simple ? 0 : between(0, 2));
    }
    for (int i = 0; i < c.rank; i++)
        size *= c.shape[i];
    if (size > 40000)
        return parent;
    c.mode = (enum boundary_mode)between(BOUNDARY_SELF, BOUNDARY_CONSTANT);
    if (chance(75))
        for (int i = 0; i < c.rank; i++)
            if (chance(60))
                c.offset[i] = chance(80) ? between(-2, 2) : between(-40, 40);
    return ir_add_ctx(&s->b, &c);
}

static bool has_extent_0(const struct ir_kernel *k)
{
    for (int i = 0; i < k->rank; i++)
        if (k->shape[i] == 0)
            return true;
    return false;
}

static void random_nodes(struct setup *s, bool gentle)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F32,  DT_F64, DT_I32, DT_I64,
                                       DT_U8,  DT_I16, DT_BOOL, DT_C64, DT_C128};
    struct ir_builder *b = &s->b;
    int n_ctx = chance(30) || has_extent_0(&s->k) ? 0 : (int)between(1, 4);
    for (int i = 0; i < n_ctx; i++)
        random_ctx(s);
    int loads = (int)between(1, 5);
    for (int i = 0; i < loads; i++) {
        uint32_t c = (uint32_t)between(0, s->k.n_ctxs - 1);
        enum dtype t = types[between(0, sizeof types / sizeof types[0] - 1)];
        struct view v = random_view(s->k.ctxs[c].rank, s->k.ctxs[c].shape, true);
        uint32_t slot = add_slot(s, t, &v);
        ir_emit_load(b, slot, t, &v, c);
    }
    if (chance(40)) {
        uint32_t c = (uint32_t)between(0, s->k.n_ctxs - 1);
        int rank = s->k.ctxs[c].rank;
        ir_emit_index(b, c, rank ? (int)between(-1, rank - 1) : -1, between(-5, 5), between(-3, 3));
    }
    if (!gentle && chance(15)) {
        uint32_t i = ir_emit_index(b, 0, s->k.rank - 1, 7, 3);
        static const struct random_params p = {.dist = RANDOM_UNIFORM, .seed = 42};
        ir_emit_random(b, &p, DT_F32, i);
    }
    if (s->k.n_ctxs > 1 && chance(50)) {
        struct ir_node n;
        memset(&n, 0, sizeof n);
        n.kind = IR_INSIDE;
        n.dtype = DT_BOOL;
        n.ctx = (uint32_t)between(1, s->k.n_ctxs - 1);
        ir_emit(b, &n);
    }
    if (chance(50))
        ir_emit_const(b, scalar_cast((struct scalar){.dtype = DT_I64, .v.i64 = between(-4, 4)},
                                     types[between(0, 4)]));
    int more = chance(10) ? 60 : (int)between(1, 12);
    for (int i = 0; i < more; i++) {
        static const enum op ops[] = {OP_ADD,      OP_SUBTRACT, OP_MAXIMUM,  OP_MINIMUM,
                                      OP_LESS,     OP_EQUAL,    OP_MULTIPLY, OP_POSITIVE,
                                      OP_MULTIPLY, OP_DIVIDE,   OP_ADD,      OP_SUBTRACT};
        uint32_t x = (uint32_t)between(0, s->k.n_nodes - 1),
                 y = (uint32_t)between(0, s->k.n_nodes - 1);
        enum dtype t = s->k.nodes[x].dtype;
        if (s->k.nodes[y].dtype != t)
            y = ir_emit_cast(b, y, t);
        enum op op = ops[between(0, gentle ? 5 : 11)];
        uint32_t cond = (uint32_t)between(0, s->k.n_nodes - 1);
        if (s->k.nodes[cond].dtype == DT_BOOL && chance(60))
            ir_emit_select(b, cond, x, y);
        else if (op_defined(op, t))
            ir_emit_op(b, op, t, (uint32_t[]){x, y});
    }
}

/* ---- running and comparing ---- */

static void run_pass(struct interp_run *r, struct interp_scratch **scratch, bool backwards)
{
    int64_t n = interp_units(r);
    /* Backwards and on two threads' memories in turn: units must not depend on each other. */
    for (int64_t u = n; u-- > 0;)
        interp_unit(r, backwards ? u : n - 1 - u, scratch[u & 1]);
    if (interp_again(r, scratch[0]))
        for (int64_t u = 0; u < interp_units(r); u++)
            interp_unit(r, (u * 7 + 3) % interp_units(r), scratch[0]);
    interp_finish(r, scratch[0]);
}

/* A pass over nothing but zeros, of which the next one must not remember anything; now and then
 * without the memory to keep every program. */
static void run_zeros(struct setup *s, struct interp_run *r, struct interp_scratch **scratch)
{
    void *was[MAX_SLOTS];
    for (int i = 0; i < s->n_slots; i++) {
        was[i] = mem_alloc((size_t)s->bytes[i]);
        memcpy(was[i], s->slots[i], (size_t)s->bytes[i]);
        memset(s->slots[i], 0, (size_t)s->bytes[i]);
    }
    mem_fail_after(chance(30) ? between(1, 8) : 0, true);
    run_pass(r, scratch, true);
    mem_fail_after(0, false);
    interp_rewind(r);
    for (int i = 0; i < s->n_slots; i++) {
        memcpy(s->slots[i], was[i], (size_t)s->bytes[i]);
        mem_free(was[i]);
    }
}

/* `loops`: as a loop's second pass. */
static bool run_interp(struct setup *s, int threads, bool loops)
{
    void *slots[MAX_SLOTS];
    for (int i = 0; i < s->n_slots; i++)
        slots[i] = s->slots[i];
    struct interp_run *r = interp_new(&s->k, slots, threads);
    if (!r)
        return false;
    if (loops)
        interp_keep(r, 2);
    struct interp_scratch *scratch[2] = {interp_scratch_new(0), interp_scratch_new(1)};
    bool ok = scratch[0] && scratch[1] && interp_fit(r, scratch[0]) && interp_fit(r, scratch[1]);
    if (ok && loops)
        run_zeros(s, r, scratch);
    if (ok)
        run_pass(r, scratch, threads & 1);
    interp_scratch_free(scratch[0]);
    interp_scratch_free(scratch[1]);
    interp_free(r);
    return ok;
}

static void check_setup(struct setup *s, uint64_t seed)
{
    const char *bad = ir_verify(&s->k, s->arena);
    if (bad)
        fail_msg("seed %llu: %s", (unsigned long long)seed, bad);
    for (int i = 0; i < s->n_slots; i++) {
        s->copy[i] = mem_alloc((size_t)s->bytes[i]);
        memcpy(s->copy[i], s->slots[i], (size_t)s->bytes[i]);
    }
    plain_run(&s->k, s->copy);
    char *before[MAX_SLOTS];
    for (int i = 0; i < s->n_slots; i++) {
        before[i] = mem_alloc((size_t)s->bytes[i]);
        memcpy(before[i], s->slots[i], (size_t)s->bytes[i]);
    }
    for (int threads = 1; threads <= 4; threads += 3) {
        for (int i = 0; i < s->n_slots; i++)
            memcpy(s->slots[i], before[i], (size_t)s->bytes[i]);
        assert_true(run_interp(s, threads, threads > 1));
        for (int i = 0; i < s->n_slots; i++) {
            if (!memcmp(s->slots[i], s->copy[i], (size_t)s->bytes[i]))
                continue;
            struct strb text = {0};
            ir_print(&s->k, &text);
            size_t size = dtype_size(s->k.outputs[0].dtype);
            for (int64_t j = 0; j < s->bytes[i]; j += (int64_t)size)
                if (memcmp(s->slots[i] + j, s->copy[i] + j, size)) {
                    print_message("slot %d of %lld bytes differs at element %lld\n", i,
                                  (long long)s->bytes[i], (long long)(j / (int64_t)size));
                    break;
                }
            fail_msg("seed %llu, %d threads:\n%s", (unsigned long long)seed, threads, text.data);
        }
    }
    for (int i = 0; i < s->n_slots; i++)
        mem_free(before[i]);
}

static void finish(struct setup *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        mem_free(s->slots[i]);
        mem_free(s->copy[i]);
    }
    arena_free(s->arena);
}

static void random_shape(int *ret_rank, int64_t *shape)
{
    int rank = (int)between(0, 5);
    int64_t points = 1, most = chance(10) ? 30000 : 2000;
    for (int i = 0; i < rank; i++) {
        static const int64_t extents[] = {1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 200, 257, 1030};
        shape[i] = extents[between(0, sizeof extents / sizeof extents[0] - 1)];
        if (points * shape[i] > most)
            shape[i] = between(1, 3);
        if (chance(1))
            shape[i] = 0;
        points *= shape[i] ? shape[i] : 1;
    }
    *ret_rank = rank;
}

static void add_store(struct setup *s, uint32_t node)
{
    struct ir_output o = {.kind = OUT_STORE, .node = node, .dtype = s->k.nodes[node].dtype};
    /* Sometimes in place, over an input read at the same element and nowhere else. */
    if (chance(25) && s->k.n_outputs == 0) {
        for (uint32_t i = 0; i < s->k.n_nodes; i++) {
            const struct ir_node *n = &s->k.nodes[i];
            if (n->kind != IR_LOAD || n->ctx || n->dtype != o.dtype)
                continue;
            const struct ir_input *in = &s->k.inputs[n->input];
            if (view_self_overlaps(&in->view))
                continue;
            o.view = in->view;
            o.slot = in->slot;
            s->out_slot = o.slot;
            ir_add_output(&s->b, &o);
            return;
        }
    }
    o.view = random_view(s->k.rank, s->k.shape, false);
    o.slot = add_slot(s, o.dtype, &o.view);
    s->out_slot = o.slot;
    ir_add_output(&s->b, &o);
}

static bool add_scan(struct setup *s, uint32_t node)
{
    enum dtype t = (enum dtype)s->k.nodes[node].dtype;
    struct ir_output o = {.kind = OUT_SCAN, .node = node, .dtype = t};
    bool small = t == DT_I64 || t == DT_U64; /* products leave what floats hold exactly */
    o.reduce = small && chance(30) ? REDUCE_PROD : REDUCE_SUM;
    if (s->k.rank == 0 || !loop_scan(o.reduce, t))
        return false;
    o.axes = 1u << between(0, s->k.rank - 1);
    o.view = random_view(s->k.rank, s->k.shape, false);
    o.slot = add_slot(s, t, &o.view);
    s->out_slot = o.slot;
    return ir_add_output(&s->b, &o);
}

static bool add_reduce(struct setup *s, uint32_t node)
{
    enum dtype t = s->k.nodes[node].dtype;
    struct ir_output o = {.kind = OUT_REDUCE,
                          .node = node,
                          .dtype = t,
                          .reduce = (enum reduce_op)between(REDUCE_SUM, REDUCE_ALL)};
    if (t == DT_BOOL)
        o.reduce = chance(50) ? REDUCE_ANY : REDUCE_ALL;
    else if (o.reduce > REDUCE_MAX || o.reduce == REDUCE_VAR)
        o.reduce = REDUCE_SUM; /* a variance is not exact (test_loops.c, arrays.bin) */
    if (!loop_reduce(o.reduce, t) || (o.reduce == REDUCE_PROD && !dtype_is_integer(t)))
        o.reduce = REDUCE_SUM; /* products leave the range that floats hold exactly */
    bool empty = false;
    for (int a = 0; a < s->k.rank; a++)
        empty |= s->k.shape[a] == 0;
    if (chance(20) && !empty && loop_arg(REDUCE_ARGMAX, t)) {
        o.reduce = chance(50) ? REDUCE_ARGMAX : REDUCE_ARGMIN;
        o.dtype = DT_I64;
    } else if (!loop_reduce(o.reduce, t)) {
        return false;
    }
    o.divisor = 1;
    o.axes = (uint32_t)rng() & ((1u << s->k.rank) - 1);
    if (chance(30))
        o.axes = (1u << s->k.rank) - 1;
    int64_t shape[MAX_RANK];
    for (int a = 0; a < s->k.rank; a++)
        shape[a] = o.axes >> a & 1 ? 1 : s->k.shape[a];
    o.view = random_view(s->k.rank, shape, false);
    for (int a = 0; a < s->k.rank; a++)
        if (o.axes >> a & 1)
            o.view.strides[a] = 0;
    o.slot = add_slot(s, o.dtype, &o.view);
    s->out_slot = o.slot;
    return ir_add_output(&s->b, &o);
}

#endif
