/* compute/gpu/text of kernels that several GPUs share: what each has of a scan, the text of those
 * of which it has a part of every row or column, and that NVRTC, where one is installed, makes
 * machine code of them. */
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
#include "tests/unit/emit_plans.h"
#include "tests/unit/emit_texts.h"
#include "tests/unit/real_nvrtc.h"
#include "tests/unit/steps_kernels.h"

/* Of columns that are not cut, of those that are, of a row, of columns side by side. */
static const struct {
    const char *name, *text;
} joined[] = {
    {"joined-outer", "cumulative_sum(deep, 0)"},
    {"joined-columns", "cumulative_prod(tall40, 0)"},
    {"joined-row", "cumulative_sum(long_row*2)"},
    {"joined-side", "cumulative_sum(astype(tall, 'float64'), 0)"},
};

/* Of which each has some of the blocks. */
static const struct {
    const char *name, *text;
} divided[] = {
    {"divided-flat", "a*2 + b"},
    {"divided-stencil", "a + 0.1*laplacian(a)"},
    {"divided-sum", "sum(big)"},
    {"divided-columns", "max(tall40, 0)"},
};
static const struct steps_case steps = {
    "divided-steps", DT_F32, 3, {512, 512, 512}, {"u + 0.1*laplacian(u, boundary='clamp')"}};

/* How many differ from the committed one, or are no text to NVRTC, if it is there. */
static int wrong_with(const char *name, const struct emitted *m)
{
    const struct nvrtc *nvrtc = real_nvrtc();
    struct compiled code = {0};
    struct err e = ERR_INIT;
    assert_non_null(m);
    assert_true(includes_what_there_is(m->text));
    int wrong = is_golden(name, m->text);
    if (nvrtc && compile_text(nvrtc, "sm_90", m->text, false, &code, &e) != ERR_OK) {
        print_message("%s: %s\n", name, e.message);
        wrong++;
    }
    mem_free(code.bytes);
    return wrong;
}

static void the_text_is_the_committed_one(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_kernel *k = plan_of(arena, joined[i].text)->kernels[0];
        struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 2);
        wrong += wrong_with(joined[i].name, m);
        assert_true(m->form->joined);
    }
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_kernel *k = plan_of(arena, divided[i].text)->kernels[0];
        struct emitted *m = emit_within(arena, k, 256, FORM_SHARED, 2);
        wrong += wrong_with(divided[i].name, m);
        assert_true(form_along(m->form) >= 0);
    }
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct ir_kernel *k = steps_kernel(arena, &steps, 3);
    wrong += wrong_with(steps.name, emit_within(arena, k, 256, FORM_SHARED, 2));
    assert_int_equal(wrong, 0);
}

/* Several GPUs have rows or columns each; or along the slowest axis, in whose order memory lies on
 * them, and of fewer rows than GPUs, a part of every one: all of it then, without gaps. */
static void scans_are_shared_as_memory_lies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t length; /* of what each has a part of; 0: they have rows or columns */
    } cases[] = {{"cumulative_sum(deep, 0)", 512},
                 {"cumulative_sum(big, 0)", 65536},
                 {"cumulative_sum(sq, 0)", 256}, /* GPUs' parts are cut or not */
                 {"cumulative_sum(tall, 0)", 100000},
                 {"cumulative_sum(tall40, 0)", 100000},
                 {"cumulative_sum(tall2, 0)", 100000},
                 {"cumulative_sum(long_row)", 1000000},
                 {"cumulative_prod(astype(long_row, 'complex128'))", 1000000},
                 {"cumulative_sum(longest[:1], 1)", 90000},
                 {"cumulative_sum(deep, 1)", 0},
                 {"cumulative_sum(longer, 1)", 0},
                 {"cumulative_sum(longer[:20], 1)", 0},
                 {"cumulative_sum(a, 1)", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int members = 2; members <= 5; members++) {
            _cleanup_arena_ struct arena *arena = arena_new(0);
            const struct ir_kernel *k = plan_of(arena, cases[i].text)->kernels[0];
            const struct form *f = form_within(arena, k, 256, FORM_SHARED, members);
            int64_t at = 0, since, until;
            assert_int_equal(form_along(f), 0);
            if (f->joined != (cases[i].length > 0))
                fail_msg("%s, %d GPUs: %d", cases[i].text, members, f->joined);
            if (!f->joined) {
                assert_int_equal(f->grid[0] % form_group(f), 0);
                assert_true(f->grid[0] / form_group(f) >= (unsigned)members);
                continue;
            }
            for (int n = 0; n < members; n++) {
                form_share(f, n, &since, &until);
                assert_int_equal(since, at);
                assert_true(until - since <= (cases[i].length + members - 1) / members * 3 / 2);
                at = until;
            }
            assert_int_equal(at, cases[i].length);
            assert_false(form_of(arena, k, 256)->joined); /* of one GPU */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_the_committed_one),
        cmocka_unit_test(scans_are_shared_as_memory_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
