/* Registers are given out in one pass over the steps, which are in order: a step's result takes the
 * lowest that is free, and its operands' are free from their last use on, so that a result may take
 * an operand's (a machine reads an element's operands before it writes the element). Then steps and
 * constants are laid out as the kernel's parameters. */
#include <string.h>

#include "compute/gpu/interp/interp_int.h"

/* The number of the last step that uses each, its own where none does. NULL without memory. */
static uint32_t *last_uses(struct program *p)
{
    uint32_t *last = arena_alloc_array(p->arena, p->n + 1, sizeof *last);
    for (uint32_t i = 0; last && i < p->n; i++) {
        last[i] = i;
        for (int a = 0; a < 3; a++)
            if (p->steps[i].args[a] != NONE)
                last[p->steps[i].args[a]] = i;
    }
    return last;
}

/* By step; false: there are too few. */
static bool allocate(struct program *p, uint8_t *registers, int *ret_most)
{
    const uint32_t *last = last_uses(p);
    uint64_t used = 0;
    *ret_most = 0;
    if (!last)
        return false;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct virtual_step *s = &p->steps[i];
        for (int a = 0; a < 3; a++)
            if (s->args[a] != NONE && last[s->args[a]] == i)
                used &= ~(1ull << registers[s->args[a]]);
        if (!s->has_result)
            continue;
        int r = 0;
        while (used >> r & 1)
            r++;
        if (r >= INTERP_REGISTERS)
            return false;
        registers[i] = (uint8_t)r;
        if (last[i] > i)
            used |= 1ull << r;
        *ret_most = r + 1 > *ret_most ? r + 1 : *ret_most;
    }
    return true;
}

static uint8_t operand(const uint8_t *registers, uint32_t arg)
{
    return arg == NONE ? 0 : registers[arg];
}

bool program_finish(struct program *p, struct arena *arena, struct emitted *ret, int *ret_registers)
{
    const size_t behind =
        (p->n_constants + sizeof(struct interp_step) - 1) / sizeof(struct interp_step);
    uint8_t *registers = arena_alloc(p->arena, p->n + 1);
    struct interp_params *q = arena_alloc(p->arena, sizeof *q);
    ret->addresses = arena_alloc_array(arena, p->n + 1, sizeof *ret->addresses);
    if (p->failed || !registers || !q || !ret->addresses || p->n + behind > INTERP_STEPS ||
        !allocate(p, registers, ret_registers))
        return false;
    const size_t first = offsetof(struct interp_params, steps) + p->n * sizeof *q->steps;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct virtual_step *s = &p->steps[i];
        q->steps[i] = (struct interp_step){.code = s->code,
                                           .to = s->has_result ? registers[i] : 0,
                                           .a = operand(registers, s->args[0]),
                                           .b = operand(registers, s->args[1]),
                                           .c = operand(registers, s->args[2]),
                                           .x = s->kind == X_CONSTANT ? first + s->x : s->x};
        if (s->kind == X_ADDRESS)
            ret->addresses[ret->n_addresses++] = (struct emit_address){
                (uint32_t)(offsetof(struct interp_params, steps) + i * sizeof *q->steps +
                           offsetof(struct interp_step, x)),
                s->slot, (int64_t)s->x};
    }
    if (p->n_constants)
        memcpy((char *)q + first, p->constants, p->n_constants);
    q->n = (int32_t)p->n;
    q->points = 1;
    for (int a = 0; a < p->f->rank; a++)
        q->points *= p->f->shape[a];
    q->chunks = (q->points + machines[p->machine].elements - 1) / machines[p->machine].elements;
    /* the kernel takes them all, but reads no more than these */
    ret->params_size = (uint32_t)(first + p->n_constants);
    ret->params = arena_dup(arena, q, ret->params_size);
    return ret->params != NULL;
}
