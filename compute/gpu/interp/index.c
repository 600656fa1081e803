/* Indices: a point's number is split into the indices of the form's axes, which a context maps to
 * others, step by step, as emit_point.c has it in its text. Each is made where it is first wanted,
 * and once. */
#include "compute/gpu/interp/interp_int.h"

static uint32_t point(struct program *p)
{
    if (p->point == NONE)
        p->point = program_step(p, STEP_POINT, NONE, NONE, 0);
    return p->point;
}

static uint32_t own_index(struct program *p, int axis)
{
    const struct form *f = p->f;
    if (p->axes[axis] != NONE)
        return p->axes[axis];
    uint32_t rest = point(p); /* the number over the axes up to a */
    for (int a = f->rank - 1; a > 0; a--) {
        const struct emit_divisor d = emit_divisor_of(f->shape[a]);
        const uint64_t at = program_constant(p, &d, sizeof d);
        const uint32_t quotient = program_add(
            p, (struct virtual_step){STEP_DIVIDE, true, {rest, NONE, NONE}, at, X_CONSTANT, 0});
        p->axes[a] = program_step(p, STEP_LESS, rest, quotient, (uint64_t)f->shape[a]);
        rest = quotient;
    }
    p->axes[0] = rest;
    return p->axes[axis];
}

static int ctx_rank(const struct program *p, uint32_t ctx)
{
    const int rank = p->f->general && ctx ? p->k->ctxs[ctx].rank : p->f->rank;
    return rank ? rank : 1;
}

static enum step bounded(enum boundary_mode mode)
{
    switch (mode) {
    case BOUNDARY_WRAP:
        return STEP_WRAP;
    case BOUNDARY_REFLECT:
        return STEP_REFLECT;
    case BOUNDARY_SYMMETRIC:
        return STEP_SYMMETRIC;
    default: /* those that replace the value read the nearest element */
        return STEP_CLAMP;
    }
}

/* The index in the context's space before its shift. */
static uint32_t before_shift(struct program *p, uint32_t ctx, int axis)
{
    const struct ir_ctx *x = &p->k->ctxs[ctx];
    if (!p->f->general)
        return own_index(p, axis);
    if (axis >= x->rank || x->src[axis] < 0)
        return program_step(p, STEP_VALUE, NONE, NONE,
                            axis < x->rank ? (uint64_t)x->start[axis] : 0);
    uint32_t i = program_index(p, x->parent, x->src[axis]);
    if (x->step[axis] != 1)
        i = program_step(p, STEP_TIMES, i, NONE, (uint64_t)x->step[axis]);
    return x->start[axis] ? program_step(p, STEP_PLUS, i, NONE, (uint64_t)x->start[axis]) : i;
}

static int64_t shift_of(const struct program *p, uint32_t ctx, int axis)
{
    const struct ir_ctx *x = &p->k->ctxs[ctx];
    if (!p->f->general)
        return p->f->offsets[ctx][axis];
    return axis < x->rank ? x->offset[axis] : 0;
}

static int64_t extent_of(const struct program *p, uint32_t ctx, int axis)
{
    return p->f->general ? p->k->ctxs[ctx].shape[axis] : p->f->shape[axis];
}

uint32_t program_inside(struct program *p, uint32_t ctx)
{
    if (p->inside[ctx] != NONE)
        return p->inside[ctx];
    uint32_t all = NONE;
    for (int a = 0; a < ctx_rank(p, ctx); a++) {
        const int64_t shift = shift_of(p, ctx, a);
        if (shift == 0)
            continue;
        uint32_t at = program_step(p, STEP_PLUS, before_shift(p, ctx, a), NONE, (uint64_t)shift);
        at = program_step(p, STEP_WITHIN, at, NONE, (uint64_t)extent_of(p, ctx, a));
        all = all == NONE
                  ? at
                  : program_add(p, (struct virtual_step){code_of_op(OP_BITWISE_AND, DT_BOOL),
                                                         true,
                                                         {all, at, NONE},
                                                         0,
                                                         X_NUMBER,
                                                         0});
    }
    if (all == NONE)
        all = program_step(p, STEP_VALUE, NONE, NONE, 1);
    p->inside[ctx] = all;
    return all;
}

uint32_t program_index(struct program *p, uint32_t ctx, int axis)
{
    if (ctx == 0)
        return own_index(p, axis);
    if (p->indices[ctx][axis] != NONE)
        return p->indices[ctx][axis];
    const uint32_t before = before_shift(p, ctx, axis);
    const int64_t shift = shift_of(p, ctx, axis);
    const enum boundary_mode mode = p->k->ctxs[ctx].mode;
    uint32_t i = before;
    if (shift) {
        i = program_step(p, STEP_PLUS, before, NONE, (uint64_t)shift);
        if (mode != BOUNDARY_GHOST)
            i = program_step(p, bounded(mode), i, NONE, (uint64_t)extent_of(p, ctx, axis));
        if (mode == BOUNDARY_SELF)
            i = program_add(
                p, (struct virtual_step){
                       STEP_SELECT, true, {program_inside(p, ctx), i, before}, 0, X_NUMBER, 0});
    }
    p->indices[ctx][axis] = i;
    return i;
}

uint32_t program_offset(struct program *p, uint32_t ctx, const int64_t *strides)
{
    uint32_t sum = NONE;
    for (int a = 0; a < ctx_rank(p, ctx); a++) {
        if (strides[a] == 0)
            continue;
        const uint32_t i = program_index(p, ctx, a);
        if (sum != NONE)
            sum = program_step(p, STEP_MORE, sum, i, (uint64_t)strides[a]);
        else
            sum = strides[a] == 1 ? i : program_step(p, STEP_TIMES, i, NONE, (uint64_t)strides[a]);
    }
    return sum;
}

bool program_runs(const struct program *p, const int64_t *strides)
{
    int64_t n = 1;
    for (int a = p->f->rank - 1; a >= 0; a--) {
        if (p->f->shape[a] != 1 && strides[a] != n)
            return false;
        n *= p->f->shape[a];
    }
    return true;
}
