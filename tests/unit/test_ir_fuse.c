/* compute/ir_fuse: how many kernels lists of statements become, and that they leave the same bits,
 * on the CPU and on the fake CUDA driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/fuse_lists.h"

static const int64_t square[] = {12, 40};

static void fields(struct list *l, enum dtype dtype, int n, const char *const *names)
{
    list_begin(l);
    for (int i = 0; i < n; i++)
        list_array(l, names[i], dtype, 2, square);
}

static void is(struct list *l, uint32_t want, uint32_t outputs, const char *what)
{
    struct ir_kernel **fused;
    uint32_t n = list_check(l, &fused, what);
    if (n != want || (n && fused[n - 1]->n_outputs != outputs)) {
        list_print(fused, n);
        fail_msg("%s: %u kernels, the last of %u outputs", what, n,
                 n ? fused[n - 1]->n_outputs : 0);
    }
}

static void gray_scott_is_one_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    for (int dtype = DT_F32; dtype <= DT_F64; dtype++) {
        struct list l;
        struct ir_kernel **fused;
        if (dtype != DT_F32 && dtype != DT_F64)
            continue;
        fields(&l, (enum dtype)dtype, 2, names);
        const uint32_t u = l.names[0].slot, v = l.names[1].slot;
        assert_true(list_assign(&l, "r", "u*v*v"));
        assert_true(list_assign(&l, "du", "0.16*laplacian(u, boundary='wrap') - r + 0.06*(1 - u)"));
        assert_true(list_assign(&l, "v", "v + (0.08*laplacian(v, boundary='wrap') + r - 0.122*v)"));
        assert_true(list_assign(&l, "u", "u + du"));
        assert_int_equal(list_check(&l, &fused, "Gray-Scott"), 1);
        assert_int_equal(fused[0]->n_inputs, 2);
        assert_int_equal(fused[0]->n_outputs, 2);
        for (uint32_t i = 0; i < 2; i++)
            assert_true(fused[0]->inputs[i].slot == u || fused[0]->inputs[i].slot == v);
        assert_int_equal(fused[0]->outputs[0].slot, l.names[1].slot);
        assert_int_equal(fused[0]->outputs[1].slot, l.names[0].slot);
        assert_int_equal(fused[0]->n_ctxs, 5);
        list_end(&l);
    }
}

static void the_wave_equation_is_one_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "up"};
    static const char *const modes[] = {"self", "clamp", "wrap", "reflect", "symmetric"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct list l;
        char text[128];
        fields(&l, DT_F32, 2, names);
        snprintf(text, sizeof text, "2*u - up + 0.25*laplacian(u, boundary='%s')", modes[i]);
        assert_true(list_assign(&l, "un", text));
        assert_true(list_assign(&l, "up", "u"));
        assert_true(list_assign(&l, "u", "un"));
        is(&l, 1, 2, "wave");
        list_end(&l);
    }
}

/* One statement reads what the one before it made. */
static void what_was_just_made_is_made_in_place(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u)"));
    assert_true(list_assign(&l, "u", "u + 0.1*v"));
    is(&l, 1, 2, "leapfrog");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v*u"));
    assert_true(list_assign(&l, "u", "u + laplacian(v)"));
    is(&l, 1, 2, "of what was made beside");
    l.limits.recompute = 4;
    is(&l, 2, 1, "too dear");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u, boundary='wrap')"));
    assert_true(list_assign(&l, "u", "u + 0.1*laplacian(v, boundary='wrap')"));
    is(&l, 1, 2, "shifts that wrap are one");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "v", "v + 0.1*laplacian(u, boundary='clamp')"));
    assert_true(list_assign(&l, "u", "u + 0.1*laplacian(v, boundary='clamp')"));
    is(&l, 2, 1, "shifts of shifts are walked point by point");
    list_end(&l);
}

static void what_nobody_asks_for_is_not_made(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*2"));
    assert_true(list_assign(&l, "s", "sum(t)"));
    is(&l, 0, 0, "nothing");
    assert_true(list_assign(&l, "u", "v + 1"));
    assert_true(list_assign(&l, "u", "v*3"));
    is(&l, 1, 1, "written again");
    list_end(&l);
}

static void reductions_take_in_what_is_theirs(void **state)
{
    (void)state;
    static const char *const names[] = {"u", "v"};
    struct list l;
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*v - 1"));
    assert_true(list_assign(&l, "m", "max(abs(t))"));
    assert_true(list_assign(&l, "u", "u/(1 + m)"));
    is(&l, 2, 1, "a greatest");
    list_end(&l);
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "t", "u*v - 1"));
    assert_true(list_assign(&l, "m", "sum(t)"));
    assert_true(list_assign(&l, "u", "u*m"));
    is(&l, 3, 1, "a sum, which is rounded as it is walked");
    list_end(&l);
    /* Jacobi: computed twice, read and written less */
    fields(&l, DT_F32, 2, names);
    assert_true(list_assign(&l, "next",
                            "0.25*(shift(u, [1, 0]) + shift(u, [-1, 0]) + shift(u, [0, 1]) + "
                            "shift(u, [0, -1]) - v)"));
    assert_true(list_assign(&l, "m", "max(abs(next - u)[1:-1, 1:-1])"));
    l.dead[list_find(&l, "m")->slot] = false;
    assert_true(list_assign_region(&l, "u", "1:-1, 1:-1", "next[1:-1, 1:-1]"));
    is(&l, 3, 1, "jacobi");
    list_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gray_scott_is_one_kernel),
        cmocka_unit_test(the_wave_equation_is_one_kernel),
        cmocka_unit_test(what_was_just_made_is_made_in_place),
        cmocka_unit_test(what_nobody_asks_for_is_not_made),
        cmocka_unit_test(reductions_take_in_what_is_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
