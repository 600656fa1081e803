/* A node becomes a step, or a few: an operation or a cast is one; a load is the elements' offset in
 * its context and the access, or the access alone where the elements lie in the points' order.
 * Loads, constants and indices are made where they are first used, so that they hold a register no
 * longer than they must. Stores come last, after every load, because a kernel may store to what it
 * loads. */
#include <string.h>

#include "compute/gpu/interp/interp_int.h"

uint32_t program_add(struct program *p, struct virtual_step s)
{
    if (p->n >= INTERP_STEPS ||
        arena_grow(p->arena, (void **)&p->steps, &p->cap, p->n, sizeof *p->steps) < 0)
        p->failed = true;
    if (p->failed)
        return 0;
    p->steps[p->n] = s;
    return (uint32_t)p->n++;
}

uint32_t program_step(struct program *p, enum step code, uint32_t a, uint32_t b, uint64_t x)
{
    return program_add(
        p, (struct virtual_step){
               .code = (uint16_t)code, .has_result = true, .args = {a, b, NONE}, .x = x});
}

uint64_t program_constant(struct program *p, const void *bytes, size_t n)
{
    const size_t at = p->n_constants, end = at + (n + 7) / 8 * 8;
    while (!p->failed && p->cap_constants < end)
        p->failed = end > INTERP_STEPS * sizeof(struct interp_step) ||
                    arena_grow(p->arena, (void **)&p->constants, &p->cap_constants,
                               p->cap_constants, 1) < 0;
    if (p->failed)
        return 0;
    memset(p->constants + at, 0, end - at);
    memcpy(p->constants + at, bytes, n);
    p->n_constants = end;
    return at;
}

/* STEP_RUN1 and so on: the one for elements of this size. */
static uint16_t by_size(enum step first, enum dtype t)
{
    return (uint16_t)(first + __builtin_ctz((unsigned)dtype_size(t)));
}

static uint32_t constant(struct program *p, const struct scalar *s)
{
    uint64_t x = 0;
    const size_t n = dtype_size(s->dtype);
    if (n > sizeof x)
        return program_add(p, (struct virtual_step){STEP_VALUE16,
                                                    true,
                                                    {NONE, NONE, NONE},
                                                    program_constant(p, &s->v, n),
                                                    X_CONSTANT,
                                                    0});
    memcpy(&x, &s->v, n);
    return program_step(p, STEP_VALUE, NONE, NONE, x);
}

static uint32_t load_at(struct program *p, uint32_t input, uint32_t offset)
{
    const struct ir_input *in = &p->k->inputs[input];
    return program_add(p, (struct virtual_step){by_size(STEP_AT1, in->dtype),
                                                true,
                                                {offset, NONE, NONE},
                                                (uint64_t)in->view.offset * dtype_size(in->dtype),
                                                X_ADDRESS,
                                                in->slot});
}

static uint32_t load(struct program *p, const struct ir_node *n)
{
    const struct ir_input *in = &p->k->inputs[n->input];
    const int64_t *strides = p->f->strides[n->input];
    if (n->ctx == 0 && program_runs(p, strides))
        return program_add(p,
                           (struct virtual_step){by_size(STEP_RUN1, in->dtype),
                                                 true,
                                                 {NONE, NONE, NONE},
                                                 (uint64_t)in->view.offset * dtype_size(in->dtype),
                                                 X_ADDRESS,
                                                 in->slot});
    uint32_t offset = program_offset(p, n->ctx, strides);
    if (offset == NONE)
        offset = program_step(p, STEP_VALUE, NONE, NONE, 0);
    return load_at(p, n->input, offset);
}

/* The index as it is an array's: int64, which is the index type of the machines that have it. */
static uint32_t index_value(struct program *p, const struct ir_node *n)
{
    const struct ir_index *x = &p->k->indices[n->index];
    if (n->axis < 0)
        return program_step(p, STEP_VALUE, NONE, NONE, (uint64_t)x->start);
    const int axis = p->f->general ? n->axis : p->f->axis[n->axis];
    uint32_t i = program_index(p, n->ctx, axis);
    if (x->step != 1)
        i = program_step(p, STEP_TIMES, i, NONE, (uint64_t)x->step);
    return x->start ? program_step(p, STEP_PLUS, i, NONE, (uint64_t)x->start) : i;
}

static uint32_t random_value(struct program *p, const struct ir_node *n, uint32_t element)
{
    const struct random_params *r = p->k->randoms[n->random];
    const int64_t numbers[] = {(int64_t)r->seed, r->low.v.i64, r->high.v.i64};
    const bool integers = r->dist == RANDOM_INTEGERS;
    const bool wide = n->dtype == DT_F64;
    const enum step code = integers ? STEP_INTEGERS
                           : r->dist == RANDOM_UNIFORM
                               ? (wide ? STEP_UNIFORM_F64 : STEP_UNIFORM_F32)
                               : (wide ? STEP_NORMAL_F64 : STEP_NORMAL_F32);
    return program_add(
        p, (struct virtual_step){(uint16_t)code,
                                 true,
                                 {element, NONE, NONE},
                                 program_constant(p, numbers, (integers ? 3 : 1) * sizeof *numbers),
                                 X_CONSTANT,
                                 0});
}

/* The steps that are the nodes' values so far; NONE: not made yet. */
static uint32_t value(struct program *p, uint32_t *values, uint32_t node)
{
    const struct ir_node *n = &p->k->nodes[node];
    if (values[node] != NONE)
        return values[node];
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        return values[node] = constant(p, &p->k->scalars[n->scalar]);
    case IR_LOAD:
        return values[node] = load(p, n);
    case IR_INDEX:
        return values[node] = index_value(p, n);
    case IR_INSIDE:
        return values[node] = program_inside(p, n->ctx);
    default: /* it is made where it stands: before its users */
        p->failed = true;
        return 0;
    }
}

static uint32_t computed(struct program *p, const struct ir_node *n, uint32_t a, uint32_t b,
                         uint32_t c)
{
    const struct number_table *t;
    switch ((enum ir_kind)n->kind) {
    case IR_OP:
        p->failed |= !machine_has_op(p->machine, (enum op)n->op, (enum dtype)n->src);
        return program_add(
            p,
            (struct virtual_step){
                code_of_op((enum op)n->op, (enum dtype)n->src), true, {a, b, c}, 0, X_NUMBER, 0});
    case IR_CAST:
        return n->src == n->dtype
                   ? a
                   : program_add(p, (struct virtual_step){
                                        code_of_cast((enum dtype)n->src, (enum dtype)n->dtype),
                                        true,
                                        {a, NONE, NONE},
                                        0,
                                        X_NUMBER,
                                        0});
    case IR_SELECT:
        return program_add(p, (struct virtual_step){STEP_SELECT, true, {a, b, c}, 0, X_NUMBER, 0});
    case IR_GATHER:
        return load_at(
            p, n->input,
            program_step(p, STEP_CLAMP, a, NONE, (uint64_t)p->k->inputs[n->input].view.shape[0]));
    case IR_TABLE:
        t = p->k->tables[n->table];
        a = program_step(p, STEP_CLAMP, a, NONE, (uint64_t)t->n);
        return program_add(
            p, (struct virtual_step){STEP_TABLE,
                                     true,
                                     {a, NONE, NONE},
                                     program_constant(p, t->v, (size_t)t->n * sizeof *t->v),
                                     X_CONSTANT,
                                     0});
    case IR_RANDOM:
        return random_value(p, n, a);
    default:
        p->failed = true;
        return 0;
    }
}

static bool is_made_where_used(const struct ir_node *n)
{
    return n->kind == IR_CONST || n->kind == IR_LOAD || n->kind == IR_INDEX || n->kind == IR_INSIDE;
}

static void store(struct program *p, uint32_t output, uint32_t of)
{
    const struct ir_output *o = &p->k->outputs[output];
    const int64_t *strides = p->f->out_strides[output];
    const bool runs = program_runs(p, strides);
    uint32_t offset = runs ? NONE : program_offset(p, 0, strides);
    if (!runs && offset == NONE)
        offset = program_step(p, STEP_VALUE, NONE, NONE, 0);
    (void)program_add(p, (struct virtual_step){by_size(runs ? STEP_STORE1 : STEP_PUT1, o->dtype),
                                               false,
                                               {of, offset, NONE},
                                               (uint64_t)o->view.offset * dtype_size(o->dtype),
                                               X_ADDRESS,
                                               o->slot});
}

/* What is reduced or scanned goes behind the memory of the rest, in the points' order. */
static void leave(struct program *p, uint32_t of)
{
    const struct ir_output *o = &p->k->outputs[0];
    (void)program_add(
        p, (struct virtual_step){by_size(STEP_STORE1, (enum dtype)p->k->nodes[o->node].dtype),
                                 false,
                                 {of, NONE, NONE},
                                 (uint64_t)program_behind_rest(p),
                                 X_ADDRESS,
                                 EMIT_SCRATCH});
}

static void write_program(struct program *p)
{
    const struct ir_kernel *k = p->k;
    uint32_t *values = arena_alloc_array(p->arena, k->n_nodes + 1, sizeof *values);
    if (!values) {
        p->failed = true;
        return;
    }
    memset(values, 0xff, (k->n_nodes + 1) * sizeof *values);
    for (uint32_t i = 0; i < k->n_nodes && !p->failed; i++) {
        const struct ir_node *n = &k->nodes[i];
        uint32_t args[3] = {NONE, NONE, NONE};
        if (is_made_where_used(n))
            continue;
        for (int a = 0; a < n->n_args; a++)
            args[a] = value(p, values, n->args[a]);
        values[i] = computed(p, n, args[0], args[1], args[2]);
    }
    /* outputs that are loads or constants have not been made yet */
    for (uint32_t i = 0; i < k->n_outputs && !p->failed; i++)
        (void)value(p, values, k->outputs[i].node);
    for (uint32_t i = 0; i < k->n_outputs && !p->failed; i++) {
        if (p->rest)
            leave(p, values[k->outputs[i].node]);
        else
            store(p, i, values[k->outputs[i].node]);
    }
}

/* The least machine that has every value; one of 32-bit indices only where these are enough. */
static enum machine machine_for(const struct ir_kernel *k, const struct form *f)
{
    size_t most = f->wide ? 8 : 1;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const enum dtype t = (enum dtype)k->nodes[i].dtype;
        most = dtype_size(t) > most ? dtype_size(t) : most;
    }
    return most <= 4 ? MACHINE_4 : most <= 8 ? MACHINE_8 : MACHINE_16;
}

static struct form *launch_form(struct arena *arena, const struct program *p, int registers)
{
    struct form *f = arena_alloc(arena, sizeof *f);
    const struct machine_info *m = &machines[p->machine];
    if (!f)
        return NULL;
    f->kind = FORM_FLAT;
    f->threads = INTERP_BLOCK;
    f->shared = (int64_t)registers * INTERP_BLOCK * m->word * m->elements;
    f->block[0] = INTERP_BLOCK;
    f->block[1] = f->grid[1] = f->grid[2] = 1;
    return f;
}

/* What a program is made with; false without memory. */
static bool begin(struct program *p)
{
    const size_t n = p->k->n_ctxs + 1;
    p->axes = arena_alloc_array(p->arena, MAX_RANK, sizeof *p->axes);
    p->indices = arena_alloc_array(p->arena, n, sizeof *p->indices);
    p->inside = arena_alloc_array(p->arena, n, sizeof *p->inside);
    if (!p->axes || !p->indices || !p->inside)
        return false;
    memset(p->axes, 0xff, MAX_RANK * sizeof *p->axes);
    memset(p->indices, 0xff, n * sizeof *p->indices);
    memset(p->inside, 0xff, n * sizeof *p->inside);
    return true;
}

struct emitted *interp_program(struct arena *arena, const struct ir_kernel *k, const struct form *f,
                               int64_t most, enum machine *ret, struct emitted **ret_rest)
{
    _cleanup_arena_ struct arena *work = k->steps <= 1 && !k->fast_math ? arena_new(0) : NULL;
    struct program p = {.arena = work, .k = k, .f = f, .point = NONE, .machine = machine_for(k, f)};
    struct emitted *m = arena_alloc(arena, sizeof *m);
    *ret_rest = NULL;
    if (!work || !m || !begin(&p))
        return NULL;
    if (interp_has_rest(f)) {
        const int64_t bytes = program_leaves(&p);
        *ret_rest = bytes <= most ? program_second(&p, arena) : NULL;
        if (!*ret_rest)
            return NULL;
        m->scratch = program_behind_rest(&p) + bytes;
    }
    write_program(&p);
    int registers;
    if (!program_finish(&p, arena, m, &registers))
        return NULL;
    struct form *launch = launch_form(arena, &p, registers);
    if (!launch)
        return NULL;
    const int64_t chunks = ((const struct interp_params *)m->params)->chunks;
    const int64_t blocks = (chunks + INTERP_BLOCK - 1) / INTERP_BLOCK;
    launch->grid[0] = (unsigned)(blocks < 1 ? 1 : blocks < INTERP_BLOCKS ? blocks : INTERP_BLOCKS);
    m->form = launch;
    *ret = p.machine;
    return m;
}

int64_t interp_work(const struct emitted *program)
{
    const struct interp_params *q = (const struct interp_params *)program->params;
    return q->points * q->n;
}
