/* compute/cuda/form and emit: which form a kernel takes, the text of a few (golden), and that
 * NVRTC, where one is installed, makes machine code of all of them. */
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
#include "compute/check.h"
#include "compute/cuda/compile.h"
#include "compute/cuda/emit.h"
#include "compute/lower.h"
#include "protocol/infix.h"
#include "tests/unit/real_nvrtc.h"

static char here[32]; /* addresses that stand for arrays */

struct operand {
    const char *name;
    enum dtype dtype;
    struct view view;
};

/* clang-format off */
static const struct operand operands[] = {
    {"a", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"b", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"turned", DT_F32, {3, {64, 64, 64}, {1, 64, 4096}, 0}},
    {"off", DT_F32, {3, {64, 64, 64}, {4096, 64, 1}, 1}},
    {"odd", DT_F32, {3, {7, 9, 11}, {99, 11, 1}, 0}},
    {"odd2", DT_F32, {3, {17, 19, 109}, {2071, 109, 1}, 0}},
    {"row", DT_F32, {1, {64}, {1}, 0}},
    {"col", DT_F32, {2, {64, 1}, {1, 1}, 0}},
    {"col2", DT_F32, {2, {64, 1}, {1, 1}, 0}},
    {"line", DT_F32, {1, {1003}, {1}, 0}},
    {"sq", DT_F32, {2, {256, 512}, {512, 1}, 0}},
    {"every", DT_F32, {1, {100}, {3}, 0}},
    {"back", DT_F32, {1, {100}, {-1}, 99}},
    {"d", DT_F64, {3, {64, 64, 64}, {4096, 64, 1}, 0}},
    {"h", DT_F16, {2, {64, 64}, {64, 1}, 0}},
    {"bf", DT_BF16, {2, {64, 64}, {64, 1}, 0}},
    {"z", DT_C64, {2, {64, 64}, {64, 1}, 0}},
    {"zz", DT_C128, {2, {64, 64}, {64, 1}, 0}},
    {"i", DT_I32, {2, {64, 64}, {64, 1}, 0}},
    {"l", DT_I64, {2, {64, 64}, {64, 1}, 0}},
    {"u", DT_U8, {2, {64, 64}, {64, 1}, 0}},
    {"m", DT_BOOL, {2, {64, 64}, {64, 1}, 0}},
    {"big", DT_F32, {2, {65536, 65536}, {65536, 1}, 0}},
    {"five", DT_F32, {5, {3, 4, 6, 5, 8}, {960, 240, 40, 8, 1}, 0}},
};
static const struct { const char *text, *form; } cases[] = {
    {"a*2 + 1", "flat"}, {"a + b", "flat"}, {"where(a > b, a - b, b - a)", "flat"},
    {"exp(-a*a)*sin(b) + sqrt(abs(a))", "flat"}, {"line + 1", "flat"}, {"a + off", "flat"},
    {"off*2", "flat"}, {"odd + 1", "flat"}, {"every + 1", "flat"}, {"back*2", "flat"},
    {"a + row", "rows"}, {"row + col", "rows"}, {"a + turned", "tile"}, {"turned*turned", "tile"},
    {"sq[::2, 1:] + 1", "rows"}, {"a[1:-1, 1:-1, 1:-1]*2", "rows"}, {"big + 1", "flat"},
    {"big + row[0]", "flat"}, {"h + 1", "flat"}, {"bf*h", "flat"}, {"z*zz", "flat"}, {"z/(z + 1)", "flat"},
    {"i//3 + l", "flat"}, {"u + u", "flat"}, {"m & (u > 3)", "flat"}, {"d + a", "flat"},
    {"five[:, :, ::-1]*2", "rows"}, {"a + index(0)", "rows"}, {"sin(index(2)*0.5) + a", "rows"},
    {"laplacian(a)", "stencil"}, {"a + 0.1*laplacian(a, boundary='wrap')", "stencil"},
    {"laplacian(d)", "stencil"}, {"laplacian(odd)", "rows"},
    {"laplacian(odd2)", "stencil"}, {"shift(odd2, (0, 2, -3), 'wrap') - odd2", "stencil"}, {"laplacian(sq)", "stencil"},
    {"shift(a, (1, 0, 0)) - a", "stencil"}, {"shift(a, (0, 0, 1), 'reflect') - a", "stencil"},
    {"shift(sq, (0, 3), 'symmetric') + sq", "stencil"}, {"shift(a, (0, 0, 9)) - a", "rows"},
    {"shift(a, (1, 1, 1)) - a", "rows"}, {"shift(a, (1, 1, 1), 'clamp') - a", "stencil"},
    {"shift(exp(a), (1, 0, 0), 'constant', 0) + a", "stencil"}, {"shift(row, (1,)) + a", "rows"},
    {"shift(shift(a, (1, 0, 0)), (0, 1, 0)) - a", "rows"}, {"central_diff(sq, 0)**2 + central_diff(sq, 1)**2", "stencil"},
    {"shift(a[1:], (1, 0, 0)) + 1", "stencil"}, {"shift(five, (0, 0, 1, 0, 1), 'wrap') - five", "stencil"},
    {"sum(a)", "reduce-all"}, {"sum(a, axis=0)", "reduce-outer"}, {"sum(a, axis=2)", "reduce-inner"},
    {"sum((a - b)**2)", "reduce-all"}, {"max(a, axis=1)", "reduce-outer"}, {"min(h)", "reduce-all"},
    {"sum(d)", "reduce-all"}, {"sum(z, axis=1)", "reduce-inner"}, {"sum(zz)", "reduce-all"}, {"mean(bf)", "reduce-all"},
    {"any(m)", "reduce-all"}, {"all(u > 3, axis=0)", "reduce-outer"}, {"sum(l)", "reduce-all"}, {"max(i, axis=(0, 1))", "reduce-all"},
    {"sum(five, axis=(0, 2, 4))", "reduce-inner"}, {"sum(laplacian(a))", "reduce-all"}, {"max(every)", "reduce-all"},
    {"sum(u)", "reduce-all"}, {"sum(turned, axis=0)", "reduce-inner"},
};
/* clang-format on */

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)user;
    (void)e;
    *ret = (struct binding){.kind = BINDING_NONE};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (!strcmp(operands[i].name, name))
            *ret = (struct binding){.kind = BINDING_ARRAY,
                                    .array = (struct array *)&here[i],
                                    .dtype = operands[i].dtype,
                                    .view = operands[i].view};
    return ERR_OK;
}

static struct ir_plan *plan_of(struct arena *arena, const char *text)
{
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = resolve, .max_inputs = 64};
    struct typed *t = arena_alloc(arena, sizeof *t);
    struct ir_plan *plan = NULL;
    expr_init(&x, arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    if (infix_parse(&x, source, text, strlen(text), &x.root, &e) != ERR_OK ||
        check_expr(arena, &x, &env, -1, t, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    struct lower_request req = {.typed = t,
                                .limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 1000}};
    assert_int_equal(lower(arena, &req, &plan, &e), ERR_OK);
    return plan;
}

static void every_kernel_takes_the_form_it_should(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p = plan_of(arena, cases[i].text);
        const struct ir_kernel *k = p->kernels[0];
        struct emitted *m = emit_kernel(arena, k, 256);
        assert_non_null(m);
        if (strcmp(form_name(m->form), cases[i].form) != 0) {
            print_message("%s: %s, not %s\n", cases[i].text, form_name(m->form), cases[i].form);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void nvrtc_makes_machine_code_of_them(void **state)
{
    (void)state;
    const struct nvrtc *nvrtc = real_nvrtc();
    if (!nvrtc)
        skip();
    int wrong = 0;
    const char *only = getenv("EMIT_CASE");
    size_t step = getenv("ARRAYD_LONG") || only ? 1 : 4;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += step) {
        if (only && strcmp(only, cases[i].text) != 0)
            continue;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p = plan_of(arena, cases[i].text);
        struct emitted *m = emit_kernel(arena, p->kernels[0], 256);
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
            print_message("%s: %s\n%s\n", cases[i].text, e.message, m->text);
            wrong++;
        }
        mem_free(other.bytes);
        if (compile_text(nvrtc, arch, m->text, false, &code, &e) != ERR_OK) {
            print_message("%s: %s\n%s\n", cases[i].text, e.message, m->text);
            wrong++;
        }
        clock_gettime(CLOCK_MONOTONIC, &t1);
        if (getenv("ARRAYD_LONG") || only)
            print_message("%-60s %-12s %6.1f ms %zu bytes\n", cases[i].text, form_name(m->form),
                          (double)(t1.tv_sec - t0.tv_sec) * 1e3 +
                              (double)(t1.tv_nsec - t0.tv_nsec) * 1e-6,
                          code.n);
        if (only && code.n) {
            FILE *f = fopen("kernel.cubin", "wb");
            fwrite(code.bytes, 1, code.n, f);
            fclose(f);
        }
        mem_free(code.bytes);
    }
    assert_int_equal(wrong, 0);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    for (int64_t nth = 1;; nth++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct ir_plan *p = plan_of(arena, "sum(a + 0.1*laplacian(a), axis=0)");
        mem_fail_after(nth, false);
        struct emitted *m = emit_kernel(arena, p->kernels[0], 256);
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
        cmocka_unit_test(nvrtc_makes_machine_code_of_them),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
