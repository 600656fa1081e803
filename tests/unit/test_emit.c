/* compute/gpu/text/form and emit: which form a kernel takes, the text of a few, and that NVRTC,
 * where one is installed, makes machine code of all of them.
 *
 * GOLDEN_DIR holds the committed texts. They change whenever the emitter does: that is for the eye
 * of who changes it, who then writes them again with ARRAYD_GOLDEN_WRITE=1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/code/headers.h"
#include "compute/gpu/text/emit.h"
#include "compute/ir/ir_build.h"
#include "compute/ir/ir_merge.h"
#include "tests/unit/emit_cases.h"
#include "tests/unit/emit_plans.h"
#include "tests/unit/emit_texts.h"
#include "tests/unit/real_nvrtc.h"
#include "tests/unit/slice.h"
#include "tests/unit/steps_kernels.h"

/* What engine_random() asks for, along one axis. */
static struct ir_plan *random_plan(struct arena *arena)
{
    static const int64_t shape[] = {4096};
    static const struct random_params uniform = {.dist = RANDOM_UNIFORM, .seed = 7};
    struct typed *t = arena_alloc(arena, sizeof *t);
    struct typed_node node = {.kind = T_INDEX, .dtype = DT_I64, .rank = 1, .shape = shape};
    uint32_t index = typed_add(arena, t, &node);
    node = (struct typed_node){.kind = T_RANDOM,
                               .dtype = DT_F32,
                               .rank = 1,
                               .shape = shape,
                               .n_args = 1,
                               .args = {index},
                               .random = &uniform};
    t->root = typed_add(arena, t, &node);
    return lowered(arena, t);
}

static void every_kernel_takes_the_form_it_should(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof emit_cases / sizeof *emit_cases; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p = plan_of(arena, emit_cases[i].text);
        const struct ir_kernel *k = p->kernels[0];
        struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
        assert_non_null(m);
        if (strcmp(form_name(m->form), emit_cases[i].form) != 0) {
            print_message("%s: %s, not %s\n", emit_cases[i].text, form_name(m->form),
                          emit_cases[i].form);
            wrong++;
        }
        wrong += !includes_what_there_is(m->text);
    }
    assert_int_equal(wrong, 0);
}

/* Kernels of several steps: the golden texts tests/golden/cuda/NAME.cu. */
static const struct {
    struct steps_case c;
    uint32_t steps;
} emit_steps_golden[] = {
    {{"steps", DT_F32, 2, {8192, 8192}, {"u + 0.1*laplacian(u, boundary='clamp')"}}, 6},
    {{"steps-deep", DT_F32, 3, {512, 512, 512}, {"u + 0.1*laplacian(u, boundary='clamp')"}}, 3},
    {{"steps-deep-two",
      DT_F32,
      3,
      {512, 512, 512},
      {"2*u - v + 0.1*laplacian(u, boundary='clamp')", "u"}},
     4},
    {{"steps-deep-far",
      DT_F32,
      3,
      {512, 512, 512},
      {"2*u - v + 0.1*(2.5*laplacian(u, boundary='clamp') - shift(u, (2, 0, 0), 'clamp') - "
       "shift(u, (-2, 0, 0), 'clamp') - shift(u, (0, 2, 0), 'clamp') - shift(u, (0, -2, 0), "
       "'clamp') - shift(u, (0, 0, 2), 'clamp') - shift(u, (0, 0, -2), 'clamp'))",
       "u"}},
     2},
    {{"steps-fields",
      DT_F64,
      2,
      {511, 513},
      {"u + k*shift(u, (1, -1), 'self') - v*index(1)",
       "v + shift(v, (0, 1), 'constant', 2) + row*shift(u, (0, 1), 'self')"}},
     3},
};

/* "x; y": one kernel of two outputs. */
static const struct ir_kernel *kernel_of_two(struct arena *arena, const char *text)
{
    const char *middle = strchr(text, ';');
    struct ir_kernel *parts[2], *k = NULL;
    for (int i = 0; i < 2; i++) {
        const char *part = i ? middle + 1 : arena_strndup(arena, text, (size_t)(middle - text));
        struct typed *t;
        struct ir_plan *p = plan_and_graph(arena, part, &t);
        parts[i] = p->kernels[0];
        assert_int_equal(p->n_kernels, 1);
        for (uint32_t n = 0; n < parts[i]->n_inputs; n++)
            parts[i]->inputs[n].slot =
                (uint32_t)((const char *)t->inputs[p->slots[parts[i]->inputs[n].slot].index].array -
                           here);
        parts[i]->outputs[0].slot = 100 + (uint32_t)i;
    }
    const bool keep = true;
    const struct fuse_limits limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 400};
    const struct ir_merge_request req = {
        .first = parts[0], .second = parts[1], .keep = &keep, .limits = &limits};
    assert_int_equal(ir_merge(arena, &req, &k), IR_MERGED);
    assert_null(ir_verify(k, arena));
    assert_int_equal(k->n_outputs, 2);
    return k;
}

static const struct ir_kernel *golden_kernel(struct arena *arena, const char *text)
{
    if (text && strchr(text, ';'))
        return kernel_of_two(arena, text);
    const struct ir_plan *p = text ? plan_of(arena, text) : random_plan(arena);
    return p->kernels[p->n_kernels - 1];
}

static void the_text_is_the_committed_one(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof emit_golden / sizeof *emit_golden; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct emitted *m =
            emit_within(arena, golden_kernel(arena, emit_golden[i].text), 256, FORM_SHARED, 1);
        assert_non_null(m);
        wrong += is_golden(emit_golden[i].name, m->text);
    }
    for (size_t i = 0; i < sizeof emit_steps_golden / sizeof *emit_steps_golden; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct steps_case *c = &emit_steps_golden[i].c;
        struct emitted *m = emit_within(arena, steps_kernel(arena, c, emit_steps_golden[i].steps),
                                        256, FORM_SHARED, 1);
        assert_non_null(m);
        assert_string_equal(form_name(m->form), "steps");
        wrong += is_golden(c->name, m->text);
    }
    assert_int_equal(wrong, 0);
}

/* Every second element from each of 64 places, times a number of its own: so many addresses,
 * strides and numbers that the parameters are not passed by value. */
static void many_parameters_go_through_memory(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_strb_ struct strb text = {0};
    for (unsigned i = 0; i < 64; i++) {
        strb_addf(&text, "%s%u.5*six[", i ? " + " : "", i + 1);
        for (unsigned a = 0; a < 6; a++)
            strb_addf(&text, a ? ", %u::2" : "%u::2", i >> a & 1);
        strb_addc(&text, ']');
    }
    const struct ir_plan *p = plan_of(arena, text.data);
    struct emitted *m = emit_within(arena, p->kernels[0], 256, FORM_SHARED, 1);
    assert_non_null(m);
    assert_int_equal(p->n_kernels, 1);
    assert_true(m->params_size > EMIT_PARAMS_MAX);
    assert_true(m->indirect);
    assert_non_null(strstr(m->text, "#define AR_INDIRECT 1\n"));

    /* and a kernel that needs few has none of it */
    struct emitted *few =
        emit_within(arena, plan_of(arena, "a*2 + 1")->kernels[0], 256, FORM_SHARED, 1);
    assert_false(few->indirect);
    assert_null(strstr(few->text, "AR_INDIRECT"));

    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        return;
    struct compiled code = {0};
    struct err e = ERR_INIT;
    if (compile_text(nvrtc, "sm_90", m->text, false, &code, &e) != ERR_OK)
        fail_msg("%s", e.message);
    mem_free(code.bytes);
}

static void nvrtc_makes_machine_code_of_them(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    int wrong = 0;
    const char *only = getenv("EMIT_CASE");
    size_t step = only ? 1 : (size_t)slice_step(12);
    for (size_t i = only ? 0 : (size_t)slice_from((int)step);
         i < sizeof emit_cases / sizeof *emit_cases; i += step) {
        if (only && strcmp(only, emit_cases[i].text) != 0)
            continue;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p = plan_of(arena, emit_cases[i].text);
        struct emitted *m = emit_within(arena, p->kernels[0], 256, FORM_SHARED, 1);
        struct compiled code = {0};
        struct err e = ERR_INIT;
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        if (only)
            puts(m->text);
        /* one of two architectures each, in a long run both */
        bool newer = only || i / step % 2 == 0;
        const char *arch = newer ? "sm_90" : "sm_80";
        struct compiled other = {0};
        if (getenv("ARRAYD_LONG") && !only &&
            compile_text(nvrtc, newer ? "sm_80" : "sm_90", m->text, false, &other, &e) != ERR_OK) {
            print_message("%s: %s\n%s\n", emit_cases[i].text, e.message, m->text);
            wrong++;
        }
        mem_free(other.bytes);
        if (compile_text(nvrtc, arch, m->text, false, &code, &e) != ERR_OK) {
            print_message("%s: %s\n%s\n", emit_cases[i].text, e.message, m->text);
            wrong++;
        }
        clock_gettime(CLOCK_MONOTONIC, &t1);
        if (getenv("ARRAYD_LONG") || only)
            print_message(
                "%-60s %-12s %6.1f ms %zu bytes\n", emit_cases[i].text, form_name(m->form),
                (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-6,
                code.n);
        if (only && code.n) {
            FILE *f = fopen("kernel.cubin", "wb");
            fwrite(code.bytes, 1, code.n, f);
            fclose(f);
        }
        mem_free(code.bytes);
    }
    for (size_t i = 0; i < sizeof emit_golden / sizeof *emit_golden && !only; i++) {
        if (!emit_golden[i].text || !strchr(emit_golden[i].text, ';'))
            continue;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        struct emitted *m =
            emit_within(arena, kernel_of_two(arena, emit_golden[i].text), 256, FORM_SHARED, 1);
        struct compiled code = {0};
        struct err e = ERR_INIT;
        assert_non_null(m);
        if (compile_text(nvrtc, "sm_90", m->text, false, &code, &e) != ERR_OK) {
            print_message("%s: %s\n%s\n", emit_golden[i].text, e.message, m->text);
            wrong++;
        }
        mem_free(code.bytes);
    }
    assert_int_equal(wrong, 0);
}

/* Sums of sums have no more terms than the plain sum for a point alone; but inner ones that
 * neighbours and planes have in common are there once: 20 multiplications a point instead of 125.
 */
static void nvrtc_computes_common_sums_once(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    size_t bytes[2];
    for (int factored = 0; factored < 2; factored++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p =
            plan_of(arena, factored ? "fast correlate(deep, " BINOMIAL_5x5x5 ", 'clamp')"
                                    : "fast correlate(deep, " WEIGHTS_5x5x5 ", 'clamp')");
        struct emitted *m = emit_within(arena, p->kernels[0], 256, FORM_SHARED, 1);
        struct compiled code = {0};
        struct err e = ERR_INIT;
        assert_int_equal(p->n_kernels, 1);
        if (compile_text(nvrtc, "sm_90", m->text, true, &code, &e) != ERR_OK)
            fail_msg("%s", e.message);
        bytes[factored] = code.n;
        mem_free(code.bytes);
    }
    if (bytes[1] * 4 > bytes[0] * 3)
        fail_msg("%zu bytes of code, plain %zu", bytes[1], bytes[0]);
}

static void nvrtc_makes_machine_code_of_several_steps(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    const size_t step = (size_t)slice_step(3);
    for (size_t i = (size_t)slice_from((int)step);
         i < sizeof emit_steps_golden / sizeof *emit_steps_golden; i += step)
        for (int newer = 0; newer < 2; newer++) {
            _cleanup_arena_ struct arena *arena = arena_new(0);
            struct ir_kernel *k =
                steps_kernel(arena, &emit_steps_golden[i].c, emit_steps_golden[i].steps);
            struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
            struct compiled code = {0};
            struct err e = ERR_INIT;
            assert_non_null(m);
            if (compile_text(nvrtc, newer ? "sm_90" : "sm_80", m->text, false, &code, &e) != ERR_OK)
                fail_msg("%s: %s", emit_steps_golden[i].c.name, e.message);
            mem_free(code.bytes);
        }
}

/* Whether a kernel that copies x[i + offset] has indices of 64 bits; x is padded as `strides` say.
 */
static const struct form *form_of_shift(struct arena *arena, int rank, const int64_t *shape,
                                        const int64_t *strides, int64_t offset,
                                        enum boundary_mode mode)
{
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    struct ir_builder b;
    struct ir_ctx ctx;
    struct view in = {.rank = rank}, out = {.rank = rank};
    memset(&ctx, 0, sizeof ctx);
    k->rank = ctx.rank = rank;
    int64_t stride = 1;
    for (int a = rank; a-- > 0; stride *= shape[a]) {
        k->shape[a] = ctx.shape[a] = in.shape[a] = out.shape[a] = shape[a];
        in.strides[a] = strides[a];
        out.strides[a] = stride;
    }
    ir_builder_init(&b, arena, k);
    assert_int_equal(ir_add_ctx(&b, &ctx), 0);
    for (int a = 0; a < rank; a++) {
        ctx.src[a] = (int8_t)a;
        ctx.step[a] = 1;
    }
    ctx.offset[0] = offset;
    ctx.mode = mode;
    uint32_t c = ir_add_ctx(&b, &ctx);
    struct ir_output o = {.kind = OUT_STORE,
                          .node = ir_emit_load(&b, 0, DT_U8, &in, c),
                          .slot = 1,
                          .dtype = DT_U8,
                          .view = out};
    assert_true(ir_add_output(&b, &o));
    const struct form *f = form_of(arena, k, 256);
    assert_non_null(f);
    return f;
}

static bool is_wide(int rank, const int64_t *shape, const int64_t *strides, int64_t offset,
                    enum boundary_mode mode)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    return form_of_shift(arena, rank, shape, strides, offset, mode)->wide;
}

/* What is computed on the way counts: a mirror's period, ghosts outside of the view. */
static void indices_are_wide_where_32_bits_do_not_reach(void **state)
{
    (void)state;
    const int64_t row[] = {1200000000}, one[] = {1};
    const int64_t box[] = {499, 1998, 2148}, padded[] = {4300000, 2150, 1};
    assert_false(is_wide(1, row, one, 1, BOUNDARY_CLAMP));
    assert_false(is_wide(1, row, one, 1, BOUNDARY_WRAP));
    assert_true(is_wide(1, row, one, 1, BOUNDARY_REFLECT));
    assert_true(is_wide(1, row, one, -1, BOUNDARY_SYMMETRIC));
    assert_false(is_wide(3, box, padded, 1, BOUNDARY_CLAMP));
    assert_true(is_wide(3, box, padded, 1, BOUNDARY_GHOST));
}

/* Its ghosts lie a stride away though the axis has one element. */
static void vectors_begin_where_ghosts_do(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const int64_t shape[] = {1, 1024}, even[] = {1040, 1}, odd[] = {1041, 1};
    const struct form *f = form_of_shift(arena, 2, shape, even, 1, BOUNDARY_GHOST);
    assert_string_equal(form_name(f), "stencil");
    assert_int_equal(f->step, 1);
    f = form_of_shift(arena, 2, shape, odd, 1, BOUNDARY_GHOST);
    assert_true(f->kind == FORM_STENCIL ? f->step > 1 : f->loads[0].kind == LOAD_EACH);
}

/* Of several steps: what is copied at once. */
static void copies_begin_where_slots_do(void **state)
{
    (void)state;
    static const struct steps_case heat = {
        "", DT_F32, 2, {8192, 8192}, {"u + 0.1*laplacian(u, boundary='clamp')"}};
    for (int alignment = 4; alignment <= 256; alignment *= 2) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct form *f = form_of(arena, steps_kernel(arena, &heat, 4), alignment);
        assert_non_null(f);
        assert_int_equal(f->steps.piece * 4, alignment < 16 ? alignment : 16);
    }
}

/* The form of a sum, or running sum, along rows that `gap` other elements follow each. */
static const struct form *form_of_rows(struct arena *arena, enum ir_output_kind kind, enum dtype t,
                                       int64_t rows, int64_t length, int64_t gap)
{
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    struct ir_builder b;
    struct ir_ctx ctx;
    const bool scan = kind == OUT_SCAN;
    struct view in = {2, {rows, length}, {length + gap, 1}, 0};
    struct view out = {2, {rows, length}, {scan ? length : 1, scan}, 0};
    memset(&ctx, 0, sizeof ctx);
    k->rank = ctx.rank = 2;
    for (int a = 0; a < 2; a++)
        k->shape[a] = ctx.shape[a] = in.shape[a];
    ir_builder_init(&b, arena, k);
    assert_int_equal(ir_add_ctx(&b, &ctx), 0);
    struct ir_output o = {.kind = kind,
                          .reduce = REDUCE_SUM,
                          .axes = 2,
                          .node = ir_emit_load(&b, 0, t, &in, 0),
                          .slot = 1,
                          .dtype = t,
                          .view = out};
    assert_true(ir_add_output(&b, &o));
    const struct form *f = form_of(arena, k, 256);
    assert_non_null(f);
    return f;
}

static const struct form *form_of_sum(struct arena *arena, int64_t rows, int64_t length)
{
    return form_of_rows(arena, OUT_REDUCE, DT_F32, rows, length, 0);
}

static void sums_have_lanes_for_their_rows(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct form *f = form_of_sum(arena, 100000, 512);
    assert_int_equal(f->lanes, 32); /* 128 chunks: four each */
    assert_int_equal(f->stretches, 1);
    assert_int_equal(f->grid[0], (100000 + 3) / 4);
    f = form_of_sum(arena, 3, 60); /* 15 chunks */
    assert_int_equal(f->lanes, 8);
    f = form_of_sum(arena, 1, 1 << 27);
    assert_int_equal(f->lanes * f->stretches, 132 * 1024);
    assert_int_equal(f->grid[1], f->stretches);
    f = form_of_sum(arena, 1, 1 << 20); /* no more blocks than have a whole step each */
    assert_int_equal(f->lanes * f->stretches * 8 * 4, 1 << 20);
    assert_false(f->wide);
    /* one element a chunk: the walk's next step would leave 32 bits */
    const int64_t odd = (1ll << 31) - (1 << 20) - 1;
    assert_true(form_of_sum(arena, 1, odd)->wide);
    assert_false(form_of_sum(arena, 1, odd - (1 << 20))->wide);
}

static void scans_are_in_an_order_that_the_length_determines(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        int lanes, chunk, many;
        int64_t part;
    } cases[] = {{3, 1, 4, 4, 3},          {64, 4, 16, 1, 64},       {65, 8, 12, 1, 65},
                 {512, 32, 16, 1, 512},    {513, 64, 12, 1, 513},    {4096, 256, 16, 1, 4096},
                 {5000, 256, 12, 1, 3072}, {65535, 256, 16, 1, 4096}};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = 0; way < 4; way++) {
            int64_t rows = way % 2 ? 100003 : 1, at_once;
            const struct form *f =
                form_of_rows(arena, OUT_SCAN, DT_F32, rows, cases[i].length, way / 2 ? 1 : 0);
            const struct form_scan_rows *s = &f->scan_rows;
            assert_string_equal(form_name(f), "scan-rows");
            assert_int_equal(f->lanes, cases[i].lanes);
            assert_int_equal(s->chunk, cases[i].chunk);
            assert_int_equal(s->part, cases[i].part);
            assert_int_equal(s->many, cases[i].many);
            assert_in_range(s->bound, s->chunk, s->most);
            at_once = f->threads / f->lanes * s->many;
            assert_int_equal(s->parts, rows < 528 ? (s->length + s->part - 1) / s->part : 1);
            assert_int_equal(f->grid[0], (rows + at_once - 1) / at_once * s->parts);
            assert_true(at_once * s->part <= (int64_t)f->threads * s->most); /* they have places */
            assert_true(s->part == s->length || at_once == 1);
            /* without gaps, vectors wherever rows begin */
            assert_int_equal(s->fetch == 0, way / 2 == 0 || rows == 1);
            assert_int_equal(f->elements, s->fetch                ? (s->length % 4 ? 1 : 4)
                                          : s->length * rows == 3 ? 2
                                                                  : 4);
        }
    assert_string_equal(form_name(form_of_rows(arena, OUT_SCAN, DT_F32, 3, 65536, 0)),
                        "scan-inner");
    assert_int_equal(form_of_rows(arena, OUT_SCAN, DT_F64, 3, 64, 0)->lanes, 8);
    assert_int_equal(form_of_rows(arena, OUT_SCAN, DT_C128, 3, 64, 0)->lanes, 16);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    static const char *const texts[] = {"sum(a + 0.1*laplacian(a), axis=0)",
                                        "correlate(deep, " WEIGHTS_5x5x5 ")", ""};
    for (int t = 0; t < 3; t++)
        for (int64_t nth = 1;; nth++) {
            _cleanup_arena_ struct arena *arena = arena_new(0);
            const struct ir_plan *p = *texts[t] ? plan_of(arena, texts[t]) : NULL;
            const struct ir_kernel *k =
                !p ? steps_kernel(arena, &emit_steps_golden[4].c, 3) : p->kernels[0];
            mem_fail_after(nth, false);
            struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 1);
            int64_t failed = mem_failed();
            mem_fail_after(0, false);
            assert_true(failed ? !m : m != NULL);
            if (!failed)
                break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_takes_the_form_it_should),
        cmocka_unit_test(the_text_is_the_committed_one),
        cmocka_unit_test(many_parameters_go_through_memory),
        cmocka_unit_test(nvrtc_makes_machine_code_of_them),
        cmocka_unit_test(nvrtc_computes_common_sums_once),
        cmocka_unit_test(nvrtc_makes_machine_code_of_several_steps),
        cmocka_unit_test(indices_are_wide_where_32_bits_do_not_reach),
        cmocka_unit_test(vectors_begin_where_ghosts_do),
        cmocka_unit_test(copies_begin_where_slots_do),
        cmocka_unit_test(sums_have_lanes_for_their_rows),
        cmocka_unit_test(scans_are_in_an_order_that_the_length_determines),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
