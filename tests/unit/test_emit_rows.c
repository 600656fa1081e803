/* compute/ir/ir_whole and compute/gpu/text/form_fold and emit_fold: which kernels make a whole, in
 * which form, its text, that its reductions go in the order of its parts, and that NVRTC, where one
 * is installed, makes machine code of it. ARRAYD_KEEP_CODE=1 keeps that, as files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/text/emit.h"
#include "compute/ir/ir_whole.h"
#include "tests/unit/emit_plans.h"
#include "tests/unit/emit_texts.h"
#include "tests/unit/real_nvrtc.h"
#include "tests/unit/slice.h"

#define SHARED 232448 /* bytes, that a block can have */

/* The whole of the plan's first kernels. */
static const struct ir_whole *whole_of(struct arena *arena, const char *text)
{
    const struct fuse_limits limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000};
    struct ir_plan *p = plan_of(arena, text);
    assert_true(ir_find_wholes(arena, p, &limits));
    for (uint32_t i = 0; i < p->n_kernels; i++)
        if (p->kernels[i]->whole) {
            const char *bad = ir_verify(p->kernels[i]->whole->kernel, arena);
            if (bad)
                fail_msg("%s: %s", text, bad);
            assert_in_range(i + p->kernels[i]->whole->n_parts, i + 2, p->n_kernels);
            return p->kernels[i]->whole;
        }
    fail_msg("%s: no whole", text);
    return NULL;
}

static void wholes_fold_rows(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof emit_wholes / sizeof *emit_wholes; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_whole *w = whole_of(arena, emit_wholes[i].text);
        const char *why;
        const struct form *f = form_of_whole(arena, w, 256, SHARED, &why);
        if (!f || emit_wholes[i].why) {
            if (f || strcmp(why, emit_wholes[i].why ? emit_wholes[i].why : "") != 0)
                fail_msg("%s: %s", emit_wholes[i].text, f ? "it has a form" : why);
            continue;
        }
        const struct emitted *m = emit_in_form(arena, w->kernel, f);
        assert_non_null(m);
        assert_string_equal(form_name(f), "fold");
        if (f->held_chunks) /* together with the states that the text declares */
            assert_true(f->shared + 2 * f->together * f->threads <= SHARED);
        for (uint32_t p = 0; p < w->n_parts; p++) {
            const struct form *part = form_of(arena, w->parts[p], 256);
            if (part->kind == FORM_REDUCE) /* the same order, so the same bits */
                assert_true(part->lanes == f->lanes && part->elements == f->elements &&
                            part->reduced == f->reduced && part->stretches == 1);
        }
        wrong += !includes_what_there_is(m->text);
        if (emit_wholes[i].name)
            wrong += is_golden(emit_wholes[i].name, m->text);
    }
    assert_int_equal(wrong, 0);
}

/* Blocks have less shared memory on other devices. */
static void a_row_is_held_where_there_is_room(void **state)
{
    (void)state;
    static const struct {
        int64_t shared;
        bool fits;
    } devices[] = {{SHARED, true}, {166912, true}, {101376, false}, {49152, false}};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_whole *w = whole_of(arena, SOFTMAX("longer"));
        const char *why;
        const struct form *f = form_of_whole(arena, w, 256, devices[i].shared, &why);
        assert_int_equal(f != NULL, devices[i].fits);
        if (f)
            assert_true(f->held_chunks > 0 && f->shared < devices[i].shared);
    }
}

static void siblings_go_over_the_points_together(void **state)
{
    (void)state;
    int wrong = 0;
    const struct nvrtc *nvrtc = real_nvrtc();
    for (size_t i = 0; i < sizeof emit_siblings / sizeof *emit_siblings; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_whole *w = whole_of(arena, emit_siblings[i].text);
        const char *why;
        if (form_of_whole(arena, w, 256, SHARED, &why) || !w->next)
            fail_msg("%s: no siblings", emit_siblings[i].text);
        w = w->next;
        assert_null(ir_verify(w->kernel, arena));
        assert_int_equal(w->kernel->n_outputs, w->n_parts);
        const struct form *f = form_of_whole(arena, w, 256, SHARED, &why);
        if (!f)
            fail_msg("%s: %s", emit_siblings[i].text, why);
        assert_string_equal(form_name(f), emit_siblings[i].form);
        const struct emitted *m = emit_in_form(arena, w->kernel, f);
        assert_non_null(m);
        wrong += !includes_what_there_is(m->text);
        if (emit_siblings[i].name)
            wrong += is_golden(emit_siblings[i].name, m->text);
        struct compiled code = {0};
        struct err e = ERR_INIT;
        if (nvrtc &&
            compile_text(nvrtc, i % 2 ? "sm_80" : "sm_90", m->text, false, &code, &e) != ERR_OK)
            fail_msg("%s: %s\n%s\n", emit_siblings[i].text, e.message, m->text);
        if (code.n && getenv("ARRAYD_KEEP_CODE")) {
            char name[64];
            snprintf(name, sizeof name, "siblings-%zu.cubin", i);
            FILE *out = fopen(name, "wb");
            assert_non_null(out);
            assert_int_equal(fwrite(code.bytes, 1, code.n, out), code.n);
            assert_int_equal(fclose(out), 0);
        }
        mem_free(code.bytes);
    }
    assert_int_equal(wrong, 0);
}

static void nvrtc_makes_machine_code_of_wholes(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    const char *only = getenv("EMIT_CASE");
    const size_t step = only ? 1 : (size_t)slice_step(4);
    for (size_t i = only ? 0 : (size_t)slice_from((int)step);
         i < sizeof emit_wholes / sizeof *emit_wholes; i += step) {
        if (emit_wholes[i].why || (only && strcmp(only, emit_wholes[i].text) != 0))
            continue;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_whole *w = whole_of(arena, emit_wholes[i].text);
        const char *why;
        const struct emitted *m =
            emit_in_form(arena, w->kernel, form_of_whole(arena, w, 256, SHARED, &why));
        for (int newer = 0; newer < (getenv("ARRAYD_LONG") ? 2 : 1); newer++) {
            struct compiled code = {0};
            struct err e = ERR_INIT;
            const char *arch = (newer + i) % 2 ? "sm_90" : "sm_80";
            if (compile_text(nvrtc, arch, m->text, false, &code, &e) != ERR_OK)
                fail_msg("%s: %s\n%s\n", emit_wholes[i].text, e.message, m->text);
            if (getenv("ARRAYD_KEEP_CODE")) {
                char name[64];
                snprintf(name, sizeof name, "fold-%zu-%s.cubin", i, arch);
                FILE *f = fopen(name, "wb");
                assert_non_null(f);
                assert_int_equal(fwrite(code.bytes, 1, code.n, f), code.n);
                assert_int_equal(fclose(f), 0);
            }
            mem_free(code.bytes);
        }
    }
}

static uint32_t n_wholes(struct arena *arena, const char *text, uint32_t *ret_parts)
{
    const struct fuse_limits limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000};
    struct ir_plan *p = plan_of(arena, text);
    uint32_t n = 0;
    assert_true(ir_find_wholes(arena, p, &limits));
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const struct ir_whole *w = p->kernels[i]->whole;
        *ret_parts = w && !n ? w->n_parts : *ret_parts;
        n += w != NULL;
    }
    return n;
}

static void kernels_of_the_same_rows_make_a_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t wholes, parts;
    } cases[] = {
        {"sq + 1", 0, 0},
        {"sum(sq)", 0, 0},
        {"sq - sum(sq)", 1, 2},
        {"sq - sum(sq, axis=0)", 1, 2},
        {"sum(sq, axis=1) + sum(sq, axis=0)[:256]", 0, 0}, /* other rows */
        {"sq - sum(sq[:, ::-1], axis=1, keepdims=True)", 1,
         2}, /* the same points, seen otherwise */
        {"sq - cumulative_sum(sq, 1)", 0, 0},
        {"sq[::2] - sum(sq, axis=1, keepdims=True)[::2]", 0, 0},
        {"sum(sq - max(sq, axis=1, keepdims=True), axis=1)", 1, 2},
        {"sq - flip(sum(sq, axis=1, keepdims=True), axis=0)", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        uint32_t parts = 0, n = n_wholes(arena, cases[i].text, &parts);
        if (cases[i].parts == 1) /* a result that is read elsewhere than it was made */
            assert_int_equal(n, 0);
        else if (n != cases[i].wholes || parts != cases[i].parts)
            fail_msg("%s: %u wholes, of %u parts", cases[i].text, n, parts);
    }
}

/* In place only where each element is read by whom it is written. */
static void a_whole_fits_where_its_parts_run(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct ir_whole *w = whole_of(arena, "sq - max(sq, axis=1, keepdims=True)");
    char memory[8];
    void *slots[8];
    for (int i = 0; i < 8; i++)
        slots[i] = memory + i;
    assert_true(ir_whole_fits(w, w->parts, w->n_parts, 0, slots));
    assert_false(ir_whole_fits(w, w->parts, w->n_parts, 1, slots));
    assert_false(ir_whole_fits(w, w->parts, 1, 0, slots));
    slots[w->kernel->outputs[0].slot] = slots[w->kernel->inputs[0].slot];
    assert_true(ir_whole_fits(w, w->parts, w->n_parts, 0, slots));
    w->kernel->inputs[0].view.offset = 512; /* the next row */
    assert_false(ir_whole_fits(w, w->parts, w->n_parts, 0, slots));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_the_same_rows_make_a_whole),
        cmocka_unit_test(a_whole_fits_where_its_parts_run),
        cmocka_unit_test(wholes_fold_rows),
        cmocka_unit_test(a_row_is_held_where_there_is_room),
        cmocka_unit_test(siblings_go_over_the_points_together),
        cmocka_unit_test(nvrtc_makes_machine_code_of_wholes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
