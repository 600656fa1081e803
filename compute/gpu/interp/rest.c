/* The second kernel of a reduction or a scan. The interpreter's program leaves the values in
 * scratch memory; this kernel does nothing but reduce or scan them. It adds in the same order as
 * the kernel compiled for the whole expression, so that the results have the same bits.
 *
 * Each operation and type has only a few texts of it, because lengths and layouts are arguments,
 * and those of the usual operations and types are compiled together with the interpreter's
 * machines. */
#include <string.h>

#include "compute/gpu/interp/interp_int.h"

#define ALIGNMENT    256
#define VECTOR_BYTES 16

bool interp_has_rest(const struct form *f)
{
    return f->kind == FORM_REDUCE || f->kind == FORM_SCAN || f->kind == FORM_SCAN_ROWS;
}

static enum dtype type_of(const struct ir_kernel *k)
{
    return (enum dtype)k->nodes[k->outputs[0].node].dtype;
}

int64_t program_leaves(const struct program *p)
{
    int64_t n = (int64_t)dtype_size(type_of(p->k));
    for (int a = 0; a < p->f->rank; a++)
        n *= p->f->shape[a];
    return n;
}

int64_t program_behind_rest(const struct program *p)
{
    return (p->rest->scratch + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The kernel `k` of values that are there, at this offset in bytes, in a form whose axes and loads
 * are set here. */
static struct emitted *alone(struct arena *arena, const struct ir_kernel *k, struct form *take_f,
                             int64_t offset)
{
    struct form *f = take_f;
    struct ir_node *node = arena_dup(arena, &k->nodes[k->outputs[0].node], sizeof *node);
    struct ir_kernel *alone = arena_dup(arena, k, sizeof *k);
    struct ir_input *in = arena_alloc(arena, sizeof *in);
    struct ir_output *out = arena_dup(arena, &k->outputs[0], sizeof *out);
    struct form_load *load = arena_alloc(arena, sizeof *load);
    int64_t(*strides)[MAX_RANK] = arena_alloc(arena, sizeof *strides);
    if (!f || !node || !alone || !in || !out || !load || !strides)
        return NULL;
    *node = (struct ir_node){.kind = IR_LOAD, .dtype = node->dtype};
    in->slot = EMIT_SCRATCH;
    in->dtype = (enum dtype)node->dtype;
    in->view.offset = offset / (int64_t)dtype_size(in->dtype);
    out->node = 0;
    alone->nodes = node;
    alone->inputs = in;
    alone->outputs = out;
    alone->n_nodes = alone->n_inputs = alone->n_ctxs = 1;
    const bool scan = f->kind != FORM_REDUCE;
    if (f->any && !scan) { /* its axes are the form's */
        alone->rank = f->rank;
        memcpy(alone->shape, f->shape, sizeof alone->shape);
        out->axes = f->reduced_axes;
    }
    alone->n_scalars = alone->n_indices = alone->n_tables = alone->n_randoms = 0;
    int64_t n = 1;
    for (int a = f->rank - 1; a >= 0; a--) {
        (*strides)[a] = f->shape[a] == 1 && !f->any ? 0 : n;
        n *= f->shape[a];
    }
    const bool whole = scan || f->shape[f->rank - 1] % f->elements == 0;
    load->kind = f->elements > 1 && whole ? LOAD_VECTOR : LOAD_EACH;
    f->strides = strides;
    f->general = false;
    f->loads = load;
    f->n_loads = 1;
    return emit_in_form(arena, alone, f);
}

/* Whether the result is not where vectors of elements in the points' order are stored. */
static bool has_gaps(const struct program *p)
{
    const struct ir_output *o = &p->k->outputs[0];
    return !program_runs(p, p->f->out_strides[0]) ||
           o->view.offset * (int64_t)dtype_size(o->dtype) % VECTOR_BYTES != 0;
}

static struct emitted *rest_at(struct arena *arena, const struct program *p, int64_t offset)
{
    struct form *g = arena_dup(arena, p->f, sizeof *g);
    int64_t(*strides)[MAX_RANK] = arena_alloc(arena, sizeof *strides);
    if (!g || !strides)
        return NULL;
    g->members = 1; /* one GPU runs it, and the text is that for one */
    if (p->f->kind == FORM_REDUCE)
        (void)form_any_reduce(p->k, g, strides);
    else
        form_any_scan(g, p->f, (int)dtype_size(type_of(p->k)), has_gaps(p));
    return alone(arena, p->k, g, offset);
}

/* Its memory is known when it is written: it is written once more, to read behind that. */
struct emitted *program_second(struct program *p, struct arena *arena)
{
    p->rest = rest_at(p->arena, p, 0);
    return p->rest && !p->rest->indirect ? rest_at(arena, p, program_behind_rest(p)) : NULL;
}

/* --- the texts that are compiled beside the machines --- */

static const struct {
    enum reduce_op op;
    enum dtype t;
} scans[INTERP_SCANS] =
    {
        {REDUCE_SUM, DT_F32},  {REDUCE_SUM, DT_F64},  {REDUCE_SUM, DT_I64},  {REDUCE_SUM, DT_U64},
        {REDUCE_SUM, DT_C64},  {REDUCE_SUM, DT_C128}, {REDUCE_PROD, DT_F32}, {REDUCE_PROD, DT_F64},
        {REDUCE_PROD, DT_I64}, {REDUCE_PROD, DT_U64}, {REDUCE_PROD, DT_C64}, {REDUCE_PROD, DT_C128},
},
  reductions[INTERP_REDUCTIONS] = {
      {REDUCE_SUM, DT_F32},    {REDUCE_SUM, DT_F64},    {REDUCE_SUM, DT_I64},
      {REDUCE_MEAN, DT_F32},   {REDUCE_MEAN, DT_F64},   {REDUCE_VAR, DT_F32},
      {REDUCE_VAR, DT_F64},    {REDUCE_MIN, DT_F32},    {REDUCE_MIN, DT_F64},
      {REDUCE_MAX, DT_F32},    {REDUCE_MAX, DT_F64},    {REDUCE_MIN, DT_I64},
      {REDUCE_MAX, DT_I64},    {REDUCE_ARGMIN, DT_F32}, {REDUCE_ARGMIN, DT_F64},
      {REDUCE_ARGMAX, DT_F32}, {REDUCE_ARGMAX, DT_F64}, {REDUCE_ANY, DT_BOOL},
      {REDUCE_ALL, DT_BOOL},
};

/* Along the last axis of two, or the first. */
static struct emitted *text_of(struct arena *arena, bool scan, enum reduce_op op, enum dtype t,
                               bool inner)
{
    /* numbers are arguments: any will do */
    struct ir_node node = {.kind = IR_LOAD, .dtype = (uint8_t)t};
    struct ir_output out = {.kind = scan ? OUT_SCAN : OUT_REDUCE,
                            .dtype = !scan && reduce_is_arg(op) ? DT_I64 : t,
                            .reduce = op,
                            .axes = inner ? 2 : 1,
                            .view = {2, {2, 2}, {scan || inner ? 2 : 0, scan || !inner}, 0}};
    struct ir_input in = {.dtype = t, .view = {2, {2, 2}, {2, 1}, 0}};
    struct ir_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.rank = 2;
    ctx.shape[0] = ctx.shape[1] = 2;
    struct ir_kernel k = {.rank = 2,
                          .shape = {2, 2},
                          .nodes = &node,
                          .n_nodes = 1,
                          .inputs = &in,
                          .n_inputs = 1,
                          .outputs = &out,
                          .n_outputs = 1,
                          .ctxs = &ctx,
                          .n_ctxs = 1};
    struct form *f = form_of(arena, &k, ALIGNMENT);
    const struct program p = {.arena = arena, .k = &k, .f = f};
    return f ? rest_at(arena, &p, 0) : NULL;
}

struct emitted *interp_rest(struct arena *arena, int number)
{
    if (number < 2 * INTERP_SCANS)
        return text_of(arena, true, scans[number / 2].op, scans[number / 2].t, number % 2 == 0);
    number -= 2 * INTERP_SCANS;
    return text_of(arena, false, reductions[number / 2].op, reductions[number / 2].t, number % 2);
}
