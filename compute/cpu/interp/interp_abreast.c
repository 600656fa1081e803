/* Runs abreast: kernels that go through the same rows one after the other, as softmax does (the
 * largest of a row, the sum of its exponentials, the quotients). Unit by unit rather than kernel by
 * kernel a row comes from memory once, and from a core's cache for those that follow. The units are
 * other ones, but of a row each kernel does what it does alone: the same bits. */
#include "compute/cpu/interp/interp_units.h"

/* Points of a unit: of a few arrays they stay in a core's own cache. */
#define UNIT_POINTS 32768
#define LEAST_UNITS 4

bool interp_is_row_wise(const struct interp_run *r)
{
    for (uint32_t i = 0; i < r->k->n_inputs; i++)
        if (r->k->inputs[i].gathered)
            return false;
    return !r->stages.n && r->points > 0 && !r->pointwise && r->ctx.plain && r->n_boxes == 1 &&
           !r->scan && r->k->steps <= 1 &&
           (r->reduces ? r->mode == MODE_INNER && !r->split : r->mode == MODE_LINEAR);
}

bool interp_has_rows_of(const struct interp_run *r, const struct interp_run *first)
{
    const int kept = first->first_reduced;
    bool same = r->k->rank == first->k->rank && r->n_order == first->n_order &&
                (!r->reduces || r->first_reduced == kept);
    for (int a = 0; a < r->k->rank && same; a++)
        same = r->k->shape[a] == first->k->shape[a];
    for (int i = 0; i < kept && same; i++)
        same = r->order[i] == first->order[i];
    return same;
}

static void range_of(const struct interp_run *r, const struct operand *o, const char **ret_lo,
                     const char **ret_hi)
{
    *ret_lo = o->base;
    *ret_hi = o->base + o->itemsize;
    for (int i = 0; i < r->n_order; i++) {
        const int a = r->order[i];
        const int64_t span = o->strides[a] * (r->k->shape[a] - 1) * o->itemsize;
        *(span < 0 ? ret_lo : ret_hi) += span;
    }
}

/* Whether each row of the one is that row of the other, or they have nothing in common. Both
 * iterate over the same shape. */
static bool keeps_to_rows(const struct interp_run *r, const struct operand *x,
                          const struct operand *y)
{
    const char *lo, *hi, *from, *to;
    bool same = x->base == y->base && x->itemsize == y->itemsize;
    range_of(r, x, &lo, &hi);
    range_of(r, y, &from, &to);
    for (int i = 0; i < r->n_order && same; i++)
        same = x->strides[r->order[i]] == y->strides[r->order[i]];
    return same || hi <= from || to <= lo;
}

static bool in_memory(const struct operand *o)
{
    return o->kind == OPERAND_LOAD || o->kind == OPERAND_STORE;
}

/* Whether a unit of `later` may run before other units of `earlier`: what either writes the other
 * uses in the same row alone. */
static bool may_overtake(const struct interp_run *earlier, const struct interp_run *later)
{
    for (uint32_t i = 0; i < earlier->n_operands; i++)
        for (uint32_t j = 0; j < later->n_operands; j++) {
            const struct operand *x = &earlier->operands[i], *y = &later->operands[j];
            if (in_memory(x) && in_memory(y) &&
                (x->kind == OPERAND_STORE || y->kind == OPERAND_STORE) &&
                !keeps_to_rows(later, x, y))
                return false;
        }
    return true;
}

void interp_cut_rows(struct interp_run *r, int64_t rows, int64_t row, int64_t at_once)
{
    r->unit_size = r->reduces ? at_once : at_once * row;
    r->n_units = ceil_div(rows, at_once);
    r->first_unit[0] = 0;
    r->first_unit[1] = r->n_units;
}

uint32_t interp_go_abreast(struct interp_run *const *runs, uint32_t n)
{
    const struct interp_run *first = runs[0];
    uint32_t together = 1;
    if (n < 2 || !first || !first->reduces || first->arg || !interp_is_row_wise(first))
        return 1;
    const int64_t rows = product(first, first->k->shape, 0, first->first_reduced);
    const int64_t row = first->points / rows;
    int64_t at_once =
        UNIT_POINTS / row < rows / LEAST_UNITS ? UNIT_POINTS / row : rows / LEAST_UNITS;
    at_once = at_once < first->unit_size ? at_once : first->unit_size;
    at_once = at_once < 1 ? 1 : at_once;
    if (rows < LEAST_UNITS)
        return 1;
    for (; together < n; together++) {
        const struct interp_run *r = runs[together];
        bool fits = !r->arg && interp_is_row_wise(r) && interp_has_rows_of(r, first) &&
                    (!r->reduces || r->unit_size >= at_once);
        for (uint32_t i = 0; i < together && fits; i++)
            fits = may_overtake(runs[i], r);
        if (!fits)
            break;
    }
    for (uint32_t i = 0; i < together && together > 1; i++) {
        interp_cut_rows(runs[i], rows, row, at_once);
        runs[i]->is_abreast = i > 0;
        runs[i]->beside = i + 1 < together ? runs[i + 1] : NULL;
    }
    return together;
}

bool interp_is_abreast(const struct interp_run *r)
{
    return !r || r->is_abreast;
}
