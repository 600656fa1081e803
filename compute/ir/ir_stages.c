/* Making stages. A node's phase is how many reductions follow one another before its value is
 * known. In phase p run, in this order: a stage for what the rows have one value of, a stage that
 * keeps what several later ones need, and the reductions of what is known then; at the end the
 * whole's own outputs are written. Nodes are visited users first, each with the set of stages that
 * need it: of what is kept the stage that keeps it needs the operands, of the rest those who need
 * the node. */
#include "compute/ir/ir_stages.h"

#include <string.h>

#include "compute/ir/ir_merge_int.h"

#define MOST_PHASES 8
#define MOST_FOLDS  32
/* What a node and those it is computed from cost (op_cost), from which on it is worth keeping: less
 * takes no longer than to store and load it. */
#define KEEP_COST 4

/* Numbers of stages, in the order of running within a phase; those of all phases fit a set. */
enum { ROWS_OF = 0, KEEP_OF = MOST_PHASES, FOLDS = 2 * MOST_PHASES };
enum { ALL_ROWS = FOLDS + MOST_FOLDS, ALL_POINTS, N_STAGES };
_Static_assert(N_STAGES <= 64, "a set of stages is a uint64_t");
#define ONE(stage) (UINT64_C(1) << (stage))

struct staging {
    struct arena *arena;
    const struct ir_whole *w;
    const struct ir_kernel *k;
    struct ir_stages *s;
    uint64_t *need;   /* by node: the stages that need it */
    uint32_t *temp;   /* by node: its temporary, IR_NONE */
    uint8_t *made_in; /* by node with a temporary: the stage that stores it */
    uint8_t *phase;
    uint32_t *number; /* by node: of a fold, among the folds */
    uint32_t n_folds;
    uint32_t *cost;
    bool *row; /* by node: it has one value in a row */
    bool oom;
};

static bool is_row_stage(int stage)
{
    return stage < KEEP_OF || stage == ALL_ROWS;
}

/* Whether the load reads the same element all along a row. */
static bool loads_row(const struct ir_kernel *k, const struct ir_node *n, uint32_t axes)
{
    for (int a = 0; a < k->rank; a++)
        if (axes >> a & 1 && k->shape[a] > 1 && k->inputs[n->input].view.strides[a] != 0)
            return false;
    return true;
}

/* Whether the reduced axes are the last of those that have an extent. */
static bool are_last(const struct ir_kernel *k, uint32_t axes)
{
    bool reduced = false;
    for (int a = 0; a < k->rank; a++) {
        if (k->shape[a] == 1)
            continue;
        if (reduced && !(axes >> a & 1))
            return false;
        reduced |= axes >> a & 1;
    }
    return reduced;
}

/* Fills phase, number, cost and row; false: there are too many phases or folds. */
static bool look_at_nodes(struct staging *t)
{
    const struct ir_kernel *k = t->k;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        const bool load = n->kind == IR_LOAD;
        uint32_t phase = n->kind == IR_FOLD, cost = 0;
        bool row = load ? loads_row(k, n, t->s->axes)
                        : n->kind != IR_INDEX || n->axis < 0 || !(t->s->axes >> n->axis & 1);
        for (int a = 0; a < n->n_args; a++) {
            const uint32_t of = n->args[a];
            if (phase < t->phase[of] + (uint32_t)(n->kind == IR_FOLD))
                phase = t->phase[of] + (n->kind == IR_FOLD);
            row &= t->row[of];
            cost += t->row[of] ? 0 : t->cost[of];
        }
        if (n->kind == IR_FOLD)
            t->number[i] = t->n_folds++;
        if (phase >= MOST_PHASES || t->n_folds > MOST_FOLDS)
            return false;
        if (n->kind == IR_OP)
            cost += op_cost((enum op)n->op, (enum dtype)n->src);
        else if (n->kind == IR_RANDOM)
            cost += 24; /* as the interpreter counts it */
        else if (!load && n->kind != IR_CONST)
            cost++;
        t->phase[i] = (uint8_t)phase;
        t->row[i] = row || n->kind == IR_FOLD;
        t->cost[i] = n->kind == IR_FOLD ? 0 : cost < (1 << 16) ? cost : 1 << 16;
        t->temp[i] = IR_NONE;
    }
    return true;
}

static void give_temp(struct staging *t, uint32_t node, int stage)
{
    t->temp[node] = t->s->n_temps++;
    t->s->temps[t->temp[node]] =
        (struct ir_temp){(enum dtype)t->k->nodes[node].dtype, t->row[node]};
    t->made_in[node] = (uint8_t)stage;
}

static bool is_computed(const struct ir_node *n)
{
    return n->kind != IR_CONST && n->kind != IR_LOAD && n->kind != IR_INDEX && n->kind != IR_FOLD;
}

/* Gives temporaries to what is kept, and finds which stages need what. */
static void share_out(struct staging *t)
{
    const struct ir_kernel *k = t->k;
    const uint64_t row_stages = (ONE(KEEP_OF) - 1) | ONE(ALL_ROWS);
    for (uint32_t o = 0; o < k->n_outputs; o++)
        t->need[k->outputs[o].node] |= ONE(k->outputs[o].kind == OUT_STORE ? ALL_POINTS : ALL_ROWS);
    for (uint32_t i = k->n_nodes; i-- > 0;) {
        const struct ir_node *n = &k->nodes[i];
        uint64_t need = t->need[i];
        if (!need)
            continue;
        if (n->kind == IR_FOLD)
            give_temp(t, i, FOLDS + (int)t->number[i]);
        else if (is_computed(n) && t->row[i] && need & ~row_stages)
            give_temp(t, i, ROWS_OF + t->phase[i]);
        else if (is_computed(n) && !t->row[i] && need & (need - 1) && t->cost[i] >= KEEP_COST)
            give_temp(t, i, KEEP_OF + t->phase[i]);
        if (t->temp[i] != IR_NONE)
            need = ONE(t->made_in[i]);
        for (int a = 0; a < n->n_args; a++)
            t->need[n->args[a]] |= need;
    }
}

/* --- the stages' kernels --- */

/* A temporary's elements as seen from a stage's iteration space. */
static struct view temp_view(const struct staging *t, uint32_t temp, const struct ir_kernel *in)
{
    struct view v = {.rank = in->rank};
    int64_t stride = 1;
    for (int a = in->rank - 1; a >= 0; a--) {
        const bool reduced = t->s->axes >> a & 1;
        v.shape[a] = in->shape[a];
        if (t->s->temps[temp].rows && reduced)
            continue;
        v.strides[a] = in->shape[a] == 1 ? 0 : stride;
        stride *= t->k->shape[a];
    }
    return v;
}

/* What a stage stores for later ones. */
static void add_temp(struct staging *t, struct ir_builder *b, uint32_t temp, uint32_t node)
{
    struct ir_output o = {.kind = OUT_STORE,
                          .node = node,
                          .slot = t->s->first_temp + temp,
                          .dtype = t->s->temps[temp].dtype,
                          .view = temp_view(t, temp, b->k)};
    b->oom |= !ir_add_output(b, &o);
}

static void add_fold(struct staging *t, struct ir_builder *b, uint32_t fold, uint32_t arg)
{
    const struct ir_fold *f = &t->k->folds[t->k->nodes[fold].fold];
    struct ir_output o = {.kind = OUT_REDUCE,
                          .node = arg,
                          .slot = t->s->first_temp + t->temp[fold],
                          .dtype = (enum dtype)t->k->nodes[fold].dtype,
                          .view = temp_view(t, t->temp[fold], b->k),
                          .reduce = f->reduce,
                          .axes = f->axes,
                          .divisor = f->divisor};
    for (int a = 0; a < b->k->rank; a++)
        if (f->axes >> a & 1)
            o.view.shape[a] = 1;
    b->oom |= !ir_add_output(b, &o);
}

static void add_outputs(struct staging *t, struct ir_builder *b, const uint32_t *to, int stage)
{
    const struct ir_kernel *k = t->k;
    for (uint32_t i = 0; i < k->n_nodes && !b->oom; i++) {
        if (t->temp[i] == IR_NONE || t->made_in[i] != stage)
            continue;
        if (k->nodes[i].kind == IR_FOLD)
            add_fold(t, b, i, to[k->nodes[i].args[0]]);
        else
            add_temp(t, b, t->temp[i], to[i]);
    }
    for (uint32_t o = 0; o < k->n_outputs && stage >= ALL_ROWS && !b->oom; o++) {
        struct ir_output out = k->outputs[o];
        if ((out.kind == OUT_STORE) != (stage == ALL_POINTS))
            continue;
        out.kind = OUT_STORE;
        out.node = to[out.node];
        out.axes = 0;
        b->oom |= !ir_add_output(b, &out);
    }
}

/* The part whose reduction this stage is. */
static const struct ir_kernel *part_of(const struct staging *t, int stage)
{
    for (uint32_t p = 0; p < t->w->n_parts && stage >= FOLDS && stage < ALL_ROWS; p++) {
        const uint32_t node = t->w->made[p];
        if (t->w->parts[p]->outputs[0].kind == OUT_REDUCE && t->k->nodes[node].kind == IR_FOLD &&
            t->number[node] == (uint32_t)(stage - FOLDS))
            return t->w->parts[p];
    }
    return NULL;
}

/* Adds the stage, if anything is needed of it. */
static void add_stage(struct staging *t, int stage)
{
    const struct ir_kernel *k = t->k;
    struct ir_kernel *made = arena_alloc(t->arena, sizeof *made), space = *k;
    bool *want = arena_alloc_array(t->arena, k->n_nodes + 1, sizeof *want), any = false;
    struct ir_builder b;
    struct ir_copy c;
    struct ir_place here;
    t->oom |= !made || !want;
    if (t->oom)
        return;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const bool here_made = t->temp[i] != IR_NONE && t->made_in[i] == stage;
        want[i] = t->need[i] >> stage & 1 || (here_made && k->nodes[i].kind != IR_FOLD);
        any |= want[i];
    }
    if (!any)
        return;
    for (int a = 0; a < k->rank && is_row_stage(stage); a++)
        space.shape[a] = t->s->axes >> a & 1 ? 1 : space.shape[a];
    ir_open_kernel(&b, t->arena, made, &space);
    memset(&here, 0, sizeof here);
    ir_place_identity(&here.map, k->rank);
    t->oom |= b.oom || !ir_copy_open(&c, &b, k, want, &here);
    for (uint32_t i = 0; i < k->n_nodes && !t->oom; i++)
        if (want[i] && t->temp[i] != IR_NONE && t->made_in[i] != stage) {
            const struct view v = temp_view(t, t->temp[i], made);
            c.to[i] = ir_emit_load(&b, t->s->first_temp + t->temp[i], t->s->temps[t->temp[i]].dtype,
                                   &v, 0);
            t->oom |= c.to[i] == IR_NONE;
        }
    if (t->oom)
        return;
    ir_copy_nodes(&c);
    add_outputs(t, &b, c.to, stage);
    t->oom |= b.oom;
    t->s->stages[t->s->n_stages++] =
        (struct ir_stage){made, is_row_stage(stage), part_of(t, stage)};
}

static void add_stages(struct staging *t)
{
    for (int phase = 0; phase < MOST_PHASES; phase++) {
        add_stage(t, ROWS_OF + phase);
        add_stage(t, KEEP_OF + phase);
        for (uint32_t i = 0; i < t->k->n_nodes; i++)
            if (t->k->nodes[i].kind == IR_FOLD && t->temp[i] != IR_NONE && t->phase[i] == phase + 1)
                add_stage(t, FOLDS + (int)t->number[i]);
    }
    add_stage(t, ALL_ROWS);
    add_stage(t, ALL_POINTS);
}

uint32_t ir_slots(const struct ir_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        n = k->inputs[i].slot >= n ? k->inputs[i].slot + 1 : n;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        n = k->outputs[i].slot >= n ? k->outputs[i].slot + 1 : n;
    return n;
}

bool ir_make_stages(struct arena *arena, const struct ir_whole *w, struct ir_stages **ret)
{
    const struct ir_kernel *k = w->kernel;
    struct staging t = {.arena = arena, .w = w, .k = k};
    const uint32_t axes = ir_combined_axes(k);
    *ret = NULL;
    if (!k->n_folds || k->n_ctxs != 1 || !are_last(k, axes))
        return true;
    t.s = arena_alloc(arena, sizeof *t.s);
    t.need = arena_alloc_array(arena, k->n_nodes, sizeof *t.need);
    t.temp = arena_alloc_array(arena, k->n_nodes, sizeof *t.temp);
    t.number = arena_alloc_array(arena, k->n_nodes, sizeof *t.number);
    t.cost = arena_alloc_array(arena, k->n_nodes, sizeof *t.cost);
    t.made_in = arena_alloc_array(arena, k->n_nodes, sizeof *t.made_in);
    t.phase = arena_alloc_array(arena, k->n_nodes, sizeof *t.phase);
    t.row = arena_alloc_array(arena, k->n_nodes, sizeof *t.row);
    if (!t.s || !t.need || !t.temp || !t.number || !t.cost || !t.made_in || !t.phase || !t.row)
        return false;
    t.s->temps = arena_alloc_array(arena, k->n_nodes, sizeof *t.s->temps);
    t.s->stages = arena_alloc_array(arena, N_STAGES, sizeof *t.s->stages);
    t.s->first_temp = ir_slots(k);
    t.s->axes = axes;
    if (!t.s->temps || !t.s->stages)
        return false;
    if (!look_at_nodes(&t))
        return true;
    share_out(&t);
    add_stages(&t);
    if (t.oom)
        return false;
    *ret = t.s;
    return true;
}
