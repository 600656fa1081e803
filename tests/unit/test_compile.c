/* compute/gpu/code/compile.c and headers.c: which options and which functions NVRTC is given, and
 * what becomes of its refusals. With a stub; test_nvrtc has the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/code/headers.h"
#include "compute/gpu/code/headers_data.h"
#include "tests/unit/nvrtc_stub.h"

static int reset_stub(void **state)
{
    (void)state;
    memset(&stub, 0, sizeof stub);
    return 0;
}

static void code_comes_back(void **state)
{
    (void)state;
    struct compiled c;
    struct err e = ERR_INIT;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "LOOK", false, &c, &e), ERR_OK);
    assert_string_equal(stub.options, "--gpu-architecture=sm_90 --fmad=false --std=c++17 --minimal "
                                      "--no-cache ");
    assert_int_equal(c.n, 4 + 4 + strlen(stub.options));
    assert_memory_equal(c.bytes, "\177ELFLOOK--gpu", 13);
    mem_free(c.bytes);
    assert_int_equal(stub.programs, 0);
}

static void options_suit_the_version(void **state)
{
    (void)state;
    char arch[64];
    const char *options[COMPILE_MAX_OPTIONS];
    struct nvrtc old = stub_nvrtc;
    old.major = 12;
    old.minor = 8;
    assert_int_equal(compile_options(&old, "sm_80", true, arch, options), 4);
    assert_string_equal(options[0], "--gpu-architecture=sm_80");
    assert_string_equal(options[1], "--fmad=true");
    assert_string_equal(options[3], "--minimal");
    old.minor = 2;
    assert_int_equal(compile_options(&old, "sm_80", false, arch, options), 3);
}

static void only_named_functions_are_given(void **state)
{
    (void)state;
    struct compiled c;
    struct err e = ERR_INIT;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90",
                                  "LOOK\n#include \"compute/kernels/scalar/scalar.h\"\n"
                                  "x = ar_SIGMOID_F32(y); far_ADD_F64(); ar_ADD_F; ar_ADD_F641",
                                  false, &c, &e),
                     ERR_OK);
    mem_free(c.bytes);
    assert_non_null(strstr(stub.scalar, "#include \"compute/kernels/scalar/scalar_types.h\""));
    assert_non_null(strstr(stub.scalar, "ar_SIGMOID_F32("));
    assert_null(strstr(stub.scalar, "ar_ADD_F"));
    assert_null(strstr(stub.scalar, "_F64"));
    assert_true(strlen(stub.scalar) < 500);
}

/* Order of definition is kept and what is called comes along, over several steps. */
static void called_functions_come_along(void **state)
{
    (void)state;
    struct headers h;
    struct err e = ERR_INIT;
    assert_int_equal(headers_select("ar_ACOS_C64", &h, &e), ERR_OK);
    const char *caller = strstr(h.scalar, "ar_ACOS_C64(");
    const char *callee = strstr(h.scalar, "ar_cacos(");
    const char *helper = strstr(h.scalar, "ar_larger(");
    assert_non_null(helper);
    assert_true(helper < callee && callee < caller);
    headers_free(&h);
}

static void tables_are_whole(void **state)
{
    (void)state;
    const char *const *texts, *const *names;
    int n = headers_get(&texts, &names);
    assert_true(n >= 11);
    assert_string_equal(names[0], HEADERS_SCALAR);
    for (int i = 0; i < n; i++)
        assert_memory_equal(texts[i], "/*", 2);
    assert_true(scalar_count > 800);
    for (int i = 1; i < scalar_count; i++)
        assert_true(strcmp(scalar_functions[scalar_by_name[i - 1]].name,
                           scalar_functions[scalar_by_name[i]].name) < 0);
    for (int i = 0; i < scalar_count; i++) {
        const struct scalar_function *f = &scalar_functions[i];
        assert_memory_equal(f->text, "AR_FN ", 6);
        assert_int_equal(f->text[strlen(f->text) - 1], '}');
        for (uint32_t k = 0; k < f->n_needs; k++)
            assert_true(scalar_needs[f->first_need + k] < i);
    }
}

/* What is computed in 8 and 16 bits is hidden from NVRTC (ar_opaque), and nothing wider is. */
static void narrow_results_are_opaque(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int results; /* computed in a signed type */
        int unsigned_results;
    } ops[] = {{"ADD", 1, 1},
               {"SUBTRACT", 1, 1},
               {"MULTIPLY", 1, 1},
               {"NEGATIVE", 1, 1},
               {"SQUARE", 1, 1},
               {"POW", 1, 1},
               {"FLOOR_DIVIDE", 2, 0}, /* a quotient of unsigned numbers is one */
               {"FMOD", 1, 1},
               {"REMAINDER", 1, 0}, /* that is FMOD */
               {"BITWISE_INVERT", 1, 1},
               {"BITWISE_LEFT_SHIFT", 1, 1}};
    static const char *const types[] = {"I8", "I16", "U8", "U16", "I32", "U64"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            char name[64];
            int found = -1;
            snprintf(name, sizeof name, "ar_%s_%s", ops[i].op, types[t]);
            for (int f = 0; f < scalar_count; f++) {
                if (strcmp(scalar_functions[f].name, name) != 0)
                    continue;
                found = 0;
                for (const char *at = scalar_functions[f].text; (at = strstr(at, "ar_opaque("));
                     at++)
                    found++;
            }
            int want = t >= 4 ? 0 : t >= 2 ? ops[i].unsigned_results : ops[i].results;
            if (found != want)
                fail_msg("%s hides %d results, not %d", name, found, want);
        }
    }
}

static void refusals_are_told(void **state)
{
    (void)state;
    struct compiled c;
    struct err e = ERR_INIT;
    stub.log = "kernel.cu(3): error: nonsense\n";
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "FAIL", false, &c, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.message, "NVRTC_ERROR_COMPILATION"));
    assert_non_null(strstr(e.message, "kernel.cu(3): error: nonsense"));

    stub.log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
    stub.compile_code = 5;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_77", "x", false, &c, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.message, "NVRTC 13.0"));
    assert_non_null(strstr(e.message, "sm_77"));

    stub.compile_code = NVRTC_ERROR_OUT_OF_MEMORY;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "x", false, &c, &e), ERR_OUT_OF_MEMORY);
    stub.compile_code = 0;
    stub.create_code = NVRTC_ERROR_OUT_OF_MEMORY;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "x", false, &c, &e), ERR_OUT_OF_MEMORY);
    stub.create_code = 0;
    stub.size_code = 4;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "x", false, &c, &e), ERR_INTERNAL);
    stub.size_code = 0;
    stub.cubin_code = 4;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "x", false, &c, &e), ERR_INTERNAL);
    assert_int_equal(stub.programs, 0);
}

static void a_long_log_is_cut(void **state)
{
    (void)state;
    static char log[5000];
    memset(log, 'x', sizeof log - 1);
    stub.log = log;
    struct compiled c;
    struct err e = ERR_INIT;
    assert_int_equal(compile_text(&stub_nvrtc, "sm_90", "FAIL", false, &c, &e), ERR_INTERNAL);
    assert_true(strlen(e.message) > 600 && strlen(e.message) < 900);
}

static void survives_every_allocation_failure(void **state)
{
    (void)state;
    struct compiled c;
    struct err e = ERR_INIT;
    int64_t live = mem_live();
    for (int nth = 1;; nth++) {
        mem_fail_after(nth, false);
        enum err_code err = compile_text(&stub_nvrtc, "sm_90", "ar_SIN_C128", false, &c, &e);
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_int_equal(err, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!err)
            mem_free(c.bytes);
        assert_int_equal(mem_live(), live);
        assert_int_equal(stub.programs, 0);
        if (!failed) {
            assert_true(nth > 4);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(code_comes_back, reset_stub),
        cmocka_unit_test_setup(options_suit_the_version, reset_stub),
        cmocka_unit_test_setup(only_named_functions_are_given, reset_stub),
        cmocka_unit_test_setup(called_functions_come_along, reset_stub),
        cmocka_unit_test_setup(tables_are_whole, reset_stub),
        cmocka_unit_test_setup(narrow_results_are_opaque, reset_stub),
        cmocka_unit_test_setup(refusals_are_told, reset_stub),
        cmocka_unit_test_setup(a_long_log_is_cut, reset_stub),
        cmocka_unit_test_setup(survives_every_allocation_failure, reset_stub),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
