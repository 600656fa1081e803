/* The machines' texts. What a step does is machine.cuh's and interpreter.cuh's; the operations and
 * casts are written out here, from the same tables as everything else about them. */
#include <stdio.h>

#include "compute/base/strb.h"
#include "compute/gpu/interp/interp_int.h"
#include "compute/gpu/text/emit_params.h"

const struct machine_info machines[MACHINES] = {{4, 4}, {8, 4}, {16, 2}};

#define DEAR 2 /* the cost from which an operation is not unrolled over a register's elements */

static const char *const step_ids[STEP_COUNT] = {
#define STEP(id) #id,
#include "compute/gpu/interp/step.def"
#undef STEP
};
static const char *const op_ids[OP_COUNT] = {
#define OP(id, ...) #id,
#include "compute/type/op.def"
#undef OP
};

static bool has_type(enum machine m, enum dtype t)
{
    return (int)dtype_size(t) <= machines[m].word;
}

bool machine_has_op(enum machine m, enum op op, enum dtype t)
{
    const bool half = t == DT_F16 || t == DT_BF16;
    return has_type(m, t) && op_defined(op, t) && (!half || op == OP_NEXTAFTER);
}

static void put_operations(struct strb *b, enum machine m)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT; t++)
            if (machine_has_op(m, (enum op)op, (enum dtype)t))
                strb_addf(b, "    case %u: AR_%s%d(%s, %s, ar_%s_%s)\n",
                          code_of_op((enum op)op, (enum dtype)t),
                          op_cost((enum op)op, (enum dtype)t) > DEAR ? "DEAR" : "CHEAP",
                          op_table[op].nargs, emit_type((enum dtype)t),
                          emit_type(op_result_dtype((enum op)op, (enum dtype)t)), op_ids[op],
                          emit_id((enum dtype)t));
}

static void put_casts(struct strb *b, enum machine m)
{
    for (int from = 0; from < DT_COUNT; from++)
        for (int to = 0; to < DT_COUNT; to++)
            if (from != to && has_type(m, (enum dtype)from) && has_type(m, (enum dtype)to))
                strb_addf(b, "    case %u: AR_CHEAP1(%s, %s, ar_cast_%s_%s)\n",
                          code_of_cast((enum dtype)from, (enum dtype)to),
                          emit_type((enum dtype)from), emit_type((enum dtype)to),
                          emit_id((enum dtype)from), emit_id((enum dtype)to));
}

struct emitted *machine_emit(struct arena *arena, enum machine m)
{
    struct strb b = {0};
    strb_addf(
        &b,
        "#include \"compute/kernels/scalar/scalar.h\"\ntypedef %s ar_index;\n#define AR_RANK 1\n"
        "#define AR_BLOCK %d\n#define AR_WORD %d\n#define AR_E %d\n#define AR_STEPS %d\n"
        "#include \"compute/kernels/forms/common.cuh\"\n"
        "#include \"compute/kernels/forms/machine.cuh\"\nenum {\n",
        m == MACHINE_4 ? "int" : "long", INTERP_BLOCK, machines[m].word, machines[m].elements,
        INTERP_STEPS);
    for (int s = 0; s < STEP_COUNT; s++)
        strb_addf(&b, "    AR_STEP_%s,\n", step_ids[s]);
    strb_add(
        &b,
        "};\nAR_FN void ar_operate(const ar_step &q, ar_register *r)\n{\n    switch (q.code) {\n");
    put_operations(&b, m);
    put_casts(&b, m);
    strb_add(&b, "    }\n}\n#include \"compute/kernels/forms/interpreter.cuh\"\n");
    struct emitted *out = arena_alloc(arena, sizeof *out);
    struct form *f = arena_alloc(arena, sizeof *f);
    const char *text = b.failed ? NULL : arena_strndup(arena, b.data, b.len);
    strb_free(&b);
    if (!out || !f || !text)
        return NULL;
    f->kind = FORM_FLAT;
    f->shared = (int64_t)INTERP_REGISTERS * INTERP_BLOCK * machines[m].word * machines[m].elements;
    *out = (struct emitted){.form = f, .text = text};
    return out;
}
