/* Appending to an IR kernel with value numbering. Called by lower.c and by tests that build kernels
 * by hand. Arena memory; not thread-safe. Every function returns IR_NONE once memory is exhausted
 * (and for an IR_NONE argument), so that a caller checks once at the end. */
#ifndef ARRAYD_IR_BUILD_H
#define ARRAYD_IR_BUILD_H

#include "compute/ir/ir.h"

#define IR_NONE UINT32_MAX

struct ir_builder {
    struct arena *arena;
    struct ir_kernel *k;
    uint32_t *table, table_size; /* open addressing over nodes: number + 1 */
    bool oom;
};

/* `k` is zeroed except rank and shape; the caller adds context 0 first (ir_add_ctx). */
void ir_builder_init(struct ir_builder *b, struct arena *arena, struct ir_kernel *k);

/* `n` must have been zero-initialised as a whole (its bytes are compared). */
uint32_t ir_emit(struct ir_builder *b, const struct ir_node *n);
uint32_t ir_emit_const(struct ir_builder *b, struct scalar value);
uint32_t ir_emit_load(struct ir_builder *b, uint32_t slot, enum dtype dtype, const struct view *v,
                      uint32_t ctx);
/* `row`: contiguous, rank 1. */
uint32_t ir_emit_gather(struct ir_builder *b, uint32_t slot, enum dtype dtype,
                        const struct view *row, uint32_t at);
uint32_t ir_emit_index(struct ir_builder *b, uint32_t ctx, int axis, int64_t start, int64_t step);
uint32_t ir_emit_op(struct ir_builder *b, enum op op, enum dtype src, const uint32_t *args);
uint32_t ir_emit_cast(struct ir_builder *b, uint32_t arg, enum dtype to);
uint32_t ir_emit_select(struct ir_builder *b, uint32_t cond, uint32_t x, uint32_t y);
/* Tables are shared by their address. */
uint32_t ir_emit_table(struct ir_builder *b, const struct number_table *t, uint32_t at);
uint32_t ir_emit_random(struct ir_builder *b, const struct random_params *p, enum dtype dtype,
                        uint32_t index);

uint32_t ir_emit_fold(struct ir_builder *b, const struct ir_fold *f, uint32_t arg);

/* The number of an equal context, which is added if new (`ctx` zero-initialised as a whole). */
uint32_t ir_add_ctx(struct ir_builder *b, const struct ir_ctx *ctx);
bool ir_add_output(struct ir_builder *b, const struct ir_output *out);

/* A scalar as Python would write it. */
void ir_print_scalar(const struct scalar *s, struct strb *out);

#endif
