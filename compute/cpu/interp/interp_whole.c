/* Wholes (ir_whole.h): reductions of rows and what is made of them, a few rows at a time. A unit is
 * as many rows as a core's own cache holds, and runs all the stages (ir_stages.h) one after the
 * other: a row comes from memory once, and what several stages need of it is computed once, into
 * the thread's scratch memory. Each stage is a run of its own; its temporaries have addresses that
 * are made up, as of arrays of all rows, and interp_scratch.moves leads from there to the scratch.
 *
 * A reduction takes in a row in the same pieces as the part that it replaces, so the bits are the
 * same. */
#include <string.h>

#include "compute/cpu/interp/interp_units.h"
#include "compute/ir/ir_stages.h"

/* Bytes of a unit's rows, in operands and temporaries. */
#define UNIT_BYTES (INT64_C(192) << 10)
/* A row of more bytes would not stay in a core's cache, beside the rest. */
#define ROW_BYTES   (INT64_C(1) << 20)
#define LEAST_UNITS 4
/* Of less work (interp_cost) the parts are done before the stages were made. */
#define LEAST_COST (1 << 20)

/* The made-up address of a temporary: above all that a process has, and that other things are given
 * that are made up. */
static uintptr_t address_of(uint32_t temp)
{
    return (uintptr_t)(temp + 1) << 48;
}

static void set_slots(void **all, void *const *slots, const struct ir_stages *s)
{
    for (uint32_t i = 0; i < s->first_temp; i++)
        all[i] = slots[i];
    for (uint32_t i = 0; i < s->n_temps; i++)
        all[s->first_temp + i] = (void *)address_of(i);
}

/* Whether its kept axes are those of the reduction `first`, in the order of its rows. */
static bool goes_along(const struct interp_run *r, bool rows, const struct interp_run *first)
{
    if (!interp_is_row_wise(r) || r->arg || (r->in_place && r->n_stores > 1))
        return false;
    if (!rows)
        return interp_has_rows_of(r, first);
    bool same = r->n_order == first->first_reduced;
    for (int i = 0; i < r->n_order && same; i++)
        same = r->order[i] == first->order[i];
    return same;
}

/* Makes a reduction take in rows as its part does; false where that cannot be. */
static bool take_as_part(struct interp_run *r, const struct ir_kernel *part, void *const *slots,
                         bool *ret_oom)
{
    struct interp_run *like = interp_new(part, slots, 1);
    const int64_t row = product(r, r->k->shape, r->first_reduced, r->n_order);
    struct interp_pieces want, have;
    bool same = false;
    *ret_oom = !like || !interp_find_pieces(like, &want);
    if (!*ret_oom) {
        r->block = want.block;
        interp_size_programs(r);
        *ret_oom = !interp_find_pieces(r, &have);
        same = have.row == want.row && (want.row || want.block >= row);
    }
    interp_free(like);
    return same && !*ret_oom;
}

/* Bytes that a row of the whole needs in the cache. */
static int64_t bytes_of_row(const struct interp_run *r, const struct ir_stages *s, int64_t row)
{
    const struct ir_kernel *k = r->k;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        bool varies = false;
        for (int a = 0; a < k->rank; a++)
            varies |= s->axes >> a & 1 && k->inputs[i].view.strides[a] != 0;
        bytes += varies ? (int64_t)dtype_size(k->inputs[i].dtype) : 0;
    }
    for (uint32_t i = 0; i < s->n_temps; i++)
        bytes += s->temps[i].rows ? 0 : (int64_t)dtype_size(s->temps[i].dtype);
    return (bytes ? bytes : 1) * row;
}

/* Whether the stage is the first to read one of its operands. */
static bool reads_first(const struct ir_stages *s, uint32_t stage)
{
    const struct ir_kernel *k = s->stages[stage].kernel;
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        bool again = k->inputs[i].slot >= s->first_temp;
        for (uint32_t e = 0; e < stage && !again; e++)
            for (uint32_t j = 0; j < s->stages[e].kernel->n_inputs; j++)
                again |= s->stages[e].kernel->inputs[j].slot == k->inputs[i].slot;
        if (!again)
            return true;
    }
    return false;
}

/* Makes the stages' runs. False: they do not all go along the rows, or (*ret_oom) there is no
 * memory. */
static bool open_stages(struct interp_run *r, const struct ir_stages *s, void *const *slots,
                        int threads, bool *ret_oom)
{
    struct run_stages *x = &r->stages;
    void **all = arena_alloc_array(r->arena, s->first_temp + s->n_temps, sizeof *all);
    x->runs = arena_alloc_array(r->arena, s->n_stages, sizeof *x->runs);
    *ret_oom = !all || !x->runs;
    if (*ret_oom)
        return false;
    set_slots(all, slots, s);
    for (; x->n < s->n_stages; x->n++) {
        struct interp_run *one = interp_new(s->stages[x->n].kernel, all, threads);
        *ret_oom = !one;
        if (!one)
            return false;
        x->runs[x->n] = one;
        if (!x->first && one->reduces)
            x->first = one;
        one->large &= reads_first(s, x->n);
        one->stream &= x->n + 1 == s->n_stages && !s->stages[x->n].rows;
    }
    if (!x->first)
        return false;
    for (int i = 1; i < x->first->n_order; i++) /* as temporaries lie */
        if (x->first->order[i] < x->first->order[i - 1])
            return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (!goes_along(x->runs[i], s->stages[i].rows, x->first) ||
            (s->stages[i].part && !take_as_part(x->runs[i], s->stages[i].part, slots, ret_oom)))
            return false;
    return true;
}

/* Where temporaries lie in the scratch memory, and which operands are these. */
static bool place_temps(struct interp_run *r, const struct ir_stages *s, int64_t row)
{
    struct run_stages *x = &r->stages;
    uint32_t most = 0;
    x->temps = arena_alloc_array(r->arena, s->n_temps + 1, sizeof *x->temps);
    x->temp_of = arena_alloc_array(r->arena, x->n, sizeof(uint32_t *));
    if (!x->temps || !x->temp_of)
        return false;
    for (uint32_t i = 0; i < s->n_temps; i++) {
        struct run_temp *t = &x->temps[i];
        t->at = x->bytes;
        t->base = (int64_t)address_of(i);
        t->row = (int64_t)dtype_size(s->temps[i].dtype) * (s->temps[i].rows ? 1 : row);
        x->bytes += ALIGNED((size_t)(t->row * x->at_once)) + 64; /* not all at the same offset */
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const struct interp_run *one = x->runs[i];
        x->temp_of[i] = arena_alloc_array(r->arena, one->n_operands, sizeof(uint32_t));
        if (!x->temp_of[i])
            return false;
        most = one->n_operands > most ? one->n_operands : most;
        for (uint32_t j = 0; j < one->n_operands; j++) {
            const struct operand *o = &one->operands[j];
            const struct ir_node *n = &one->k->nodes[o->node];
            const uint32_t slot = o->kind == OPERAND_STORE  ? one->k->outputs[o->node].slot
                                  : o->kind == OPERAND_LOAD ? one->k->inputs[n->input].slot
                                                            : 0;
            const bool temp = slot >= s->first_temp;
            x->temp_of[i][j] = temp ? slot - s->first_temp : UINT32_MAX;
        }
    }
    x->moves = ALIGNED(most * sizeof(int64_t));
    r->needs.tiles = x->moves + x->bytes + 64;
    return true;
}

/* Finds the operands that are read row after row in memory. */
static bool find_reads(struct interp_run *r, const struct ir_stages *s)
{
    struct run_stages *x = &r->stages;
    uint32_t n = 0;
    x->reads = arena_alloc_array(r->arena, r->k->n_inputs + 1, sizeof *x->reads);
    if (!x->reads)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        struct interp_run *one = x->runs[i];
        one->fetches = !one->large && !s->stages[i].rows;
        for (uint32_t j = 0; j < one->n_operands && one->large; j++) {
            const struct operand *o = &one->operands[j];
            bool again = o->kind != OPERAND_LOAD || !interp_is_dense(one, o);
            for (uint32_t e = 0; e < n; e++)
                again |= x->reads[e]->base == o->base;
            if (!again)
                x->reads[n++] = o;
        }
    }
    x->n_reads = n;
    return true;
}

/* Whether rows are short and many enough. */
static bool pays(struct interp_run *r, const struct ir_stages *s)
{
    struct run_stages *x = &r->stages;
    x->rows = x->row = 1;
    for (int a = 0; a < r->k->rank; a++)
        *(s->axes >> a & 1 ? &x->row : &x->rows) *= r->k->shape[a];
    return x->rows >= LEAST_UNITS && bytes_of_row(r, s, x->row) <= ROW_BYTES;
}

static bool plan(struct interp_run *r, const struct ir_stages *s, void *const *slots, int threads,
                 bool *ret_oom)
{
    struct run_stages *x = &r->stages;
    if (!open_stages(r, s, slots, threads, ret_oom))
        return false;
    const int64_t rows = x->rows, row = x->row;
    x->at_once = UNIT_BYTES / bytes_of_row(r, s, row);
    if (x->at_once > rows / (LEAST_UNITS * threads))
        x->at_once = rows / (LEAST_UNITS * threads);
    for (uint32_t i = 0; i < x->n; i++)
        if (x->runs[i]->reduces && x->at_once > x->runs[i]->unit_size)
            x->at_once = x->runs[i]->unit_size;
    x->at_once = x->at_once < 1 ? 1 : x->at_once;
    for (uint32_t i = 0; i < x->n; i++)
        interp_cut_rows(x->runs[i], rows, s->stages[i].rows ? 1 : row, x->at_once);
    r->n_units = ceil_div(rows, x->at_once);
    *ret_oom = !place_temps(r, s, row) || !find_reads(r, s);
    return !*ret_oom;
}

bool interp_whole_new(const struct ir_whole *w, void *const *slots, int threads,
                      struct interp_run **ret, bool *ret_never)
{
    struct ir_stages *s;
    *ret = NULL;
    *ret_never = interp_cost(w->kernel) < LEAST_COST;
    if (*ret_never)
        return true;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct interp_run *r = arena ? arena_alloc(arena, sizeof *r) : NULL;
    if (!r || !ir_make_stages(arena, w, &s))
        return false;
    bool oom = false;
    r->arena = arena;
    r->k = w->kernel;
    r->mode = MODE_LINEAR;
    *ret_never = !s || !pays(r, s);
    if (*ret_never)
        return true;
    if (!plan(r, s, slots, threads, &oom)) {
        for (uint32_t i = 0; i < r->stages.n; i++)
            interp_free(r->stages.runs[i]);
        return !oom;
    }
    arena = NULL;
    *ret = r;
    return true;
}

/* The rows of the next unit, of one operand after the other. */
static void fetch_more(struct fetch *f)
{
    const struct run_stages *x = &f->run->stages;
    const struct operand *o = x->reads[f->n];
    if (!o)
        return;
    f->n++;
    const int64_t rows = x->rows - f->row < x->at_once ? x->rows - f->row : x->at_once;
    f->at = o->base + f->row * x->row * o->itemsize;
    f->end = f->at + rows * x->row * o->itemsize;
}

void interp_whole_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s)
{
    const struct run_stages *x = &r->stages;
    int64_t *moves = (int64_t *)(void *)ALIGNED((uintptr_t)s->tiles);
    const char *buffers = (char *)moves + x->moves;
    const int64_t first = unit * x->at_once; /* row */
    s->moves = moves;
    s->fetch = (struct fetch){.more = fetch_more, .run = r, .row = first + x->at_once};
    if (s->fetch.row >= x->rows)
        s->fetch.n = x->n_reads;
    for (uint32_t i = 0; i < x->n && !interp_given_up(x->runs[i]); i++) {
        for (uint32_t j = 0; j < x->runs[i]->n_operands; j++) {
            const uint32_t temp = x->temp_of[i][j];
            moves[j] = 0;
            if (temp != UINT32_MAX) {
                const struct run_temp *t = &x->temps[temp];
                moves[j] = (int64_t)(intptr_t)(buffers + t->at) - t->base - first * t->row;
            }
        }
        interp_unit(x->runs[i], unit, s);
    }
    s->moves = NULL;
}

void interp_whole_describe(const struct interp_run *r, struct strb *out)
{
    const struct run_stages *x = &r->stages;
    strb_addf(out, "# %lld row%s at a time through %u stages; %zu bytes between these\n",
              (long long)x->at_once, x->at_once == 1 ? "" : "s", (unsigned)x->n, x->bytes);
    for (uint32_t i = 0; i < x->n; i++) {
        strb_addf(out, "# stage %u:\n", (unsigned)i);
        ir_print(x->runs[i]->k, out);
    }
    strb_add(out, "# in one:\n");
}
