/* compute/kernels/scalar/scalar.h and compile.c with NVIDIA's own NVRTC, where one is installed
 * (else the test reports itself skipped): every function becomes machine code for sm_80 and sm_90,
 * whole and in the subsets that AR_SUBSET and headers_select() make. No GPU is needed. */
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
#include "compute/base/strb.h"
#include "compute/gpu/code/compile.h"
#include "compute/gpu/code/headers.h"
#include "compute/gpu/code/headers_data.h"
#include "tests/unit/real_nvrtc.h"

static const struct nvrtc *nvrtc;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Compiles with the headers as they are, without selection; prints the log of a failure. */
static size_t compile_whole(const char *arch, const char *source)
{
    const char *const *texts, *const *names;
    int n_headers = headers_get(&texts, &names);
    nvrtcProgram program;
    assert_int_equal(
        nvrtc->nvrtcCreateProgram(&program, source, "whole.cu", n_headers, texts, names), 0);
    char arch_option[64];
    const char *options[COMPILE_MAX_OPTIONS];
    int n = compile_options(nvrtc, arch, false, arch_option, options);
    nvrtcResult code = nvrtc->nvrtcCompileProgram(program, n, options);
    static char log[65536];
    size_t log_n = 0, code_n = 0;
    nvrtc->nvrtcGetProgramLogSize(program, &log_n);
    if (log_n < sizeof log && nvrtc->nvrtcGetProgramLog(program, log) == 0 && log_n > 1)
        fprintf(stderr, "%s\n", log);
    assert_int_equal(code, 0);
    assert_int_equal(nvrtc->nvrtcGetCUBINSize(program, &code_n), 0);
    nvrtc->nvrtcDestroyProgram(&program);
    return code_n;
}

/* Taking addresses makes NVRTC generate what would be dropped as unused. */
static void add_uses(struct strb *b, int first, int step)
{
    strb_addf(b, "extern \"C\" __global__ void k(void **p)\n{\n");
    for (int i = first; i < scalar_count; i += step)
        strb_addf(b, "p[%d] = (void *)%s;\n", i, scalar_functions[i].name);
    strb_addf(b, "}\n");
}

/* All of them with ARRAYD_LONG (20 s), else all are parsed and one in sixteen goes on. */
static void every_function_becomes_machine_code(const char *arch)
{
    int step = getenv("ARRAYD_LONG") ? 1 : 16;
    _cleanup_strb_ struct strb b = {0};
    strb_add(&b, "#include \"" HEADERS_SCALAR "\"\n");
    add_uses(&b, 0, step);
    double start = now_ms();
    size_t whole = compile_whole(arch, b.data);
    fprintf(stderr, "%s: %d functions, %.0f ms, %zu bytes\n", arch, scalar_count / step,
            now_ms() - start, whole);
    assert_true(whole > 50000);
}

static void every_function_becomes_machine_code_sm_80(void **state)
{
    (void)state;
    every_function_becomes_machine_code("sm_80");
}

static void every_function_becomes_machine_code_sm_90(void **state)
{
    (void)state;
    every_function_becomes_machine_code("sm_90");
}

static void subsets_stand_alone(void **state)
{
    (void)state;
    static const char *const subsets[] = {
        "",
        "#define AR_USE_I8\n",
        "#define AR_USE_U64\n#define AR_USE_I64\n",
        "#define AR_USE_F16\n",
        "#define AR_USE_BF16\n#define AR_USE_U8\n",
        "#define AR_USE_C64\n",
        "#define AR_USE_C128\n#define AR_USE_CMATH\n",
        "#define AR_USE_RANDOM\n",
    };
    for (size_t i = 0; i < sizeof subsets / sizeof subsets[0]; i++) {
        char source[512];
        snprintf(source, sizeof source,
                 "#define AR_SUBSET\n%s#include \"%s\"\n"
                 "extern \"C\" __global__ void k(float *p) { *p = ar_ADD_F32(*p, 1.0f); }\n",
                 subsets[i], HEADERS_SCALAR);
        assert_true(compile_whole("sm_90", source) > 1000);
    }
}

static struct compiled compile_ok(const char *arch, const char *source, bool fast_math)
{
    struct compiled c = {0};
    struct err e = ERR_INIT;
    enum err_code err = compile_text(nvrtc, arch, source, fast_math, &c, &e);
    if (err)
        fprintf(stderr, "%s\n", e.message);
    assert_int_equal(err, ERR_OK);
    assert_memory_equal(c.bytes, "\177ELF", 4);
    return c;
}

/* One function a compilation, a sample of them: what one needs comes with it. */
static void selected_functions_bring_what_they_need(void **state)
{
    (void)state;
    for (int i = 0; i < scalar_count; i += 97) {
        _cleanup_strb_ struct strb one = {0};
        strb_add(&one, "#include \"" HEADERS_SCALAR "\"\n");
        add_uses(&one, i, scalar_count);
        mem_free(compile_ok("sm_90", one.data, false).bytes);
    }
    _cleanup_strb_ struct strb b = {0};
    strb_add(&b, "#include \"" HEADERS_SCALAR "\"\n");
    add_uses(&b, 0, 1);
    struct headers h;
    struct err e = ERR_INIT;
    assert_int_equal(headers_select(b.data, &h, &e), ERR_OK);
    for (int i = 0; i < scalar_count; i++)
        assert_non_null(strstr(h.scalar, scalar_functions[i].text));
    headers_free(&h);
}

static const char small_kernel[] =
    "#include \"compute/kernels/scalar/scalar.h\"\n"
    "extern \"C\" __global__ void k(float *o, const float *a, long n, float s, float t)\n"
    "{\n"
    "    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n)\n"
    "        o[i] = ar_ADD_F32(ar_MULTIPLY_F32(a[i], s), t);\n"
    "}\n";

static void small_kernels_compile_fast(void **state)
{
    (void)state;
    double first = 0, best = 1e9;
    for (int i = 0; i < 12; i++) {
        char source[1024]; /* another one each time: NVRTC may remember */
        snprintf(source, sizeof source, "%s// %d\n", small_kernel, i);
        double start = now_ms();
        mem_free(compile_ok("sm_90", source, false).bytes);
        double ms = now_ms() - start;
        first = i == 0 ? ms : first;
        best = i > 0 && ms < best ? ms : best;
    }
    fprintf(stderr, "small kernel: first %.1f ms, later at best %.1f ms\n", first, best);
    assert_true(best < 1000);
}

static void contraction_only_when_asked(void **state)
{
    (void)state;
    struct compiled exact = compile_ok("sm_90", small_kernel, false);
    struct compiled fast = compile_ok("sm_90", small_kernel, true);
    assert_false(exact.n == fast.n && memcmp(exact.bytes, fast.bytes, exact.n) == 0);
    mem_free(exact.bytes);
    mem_free(fast.bytes);
}

static void defects_are_told(void **state)
{
    (void)state;
    struct compiled c;
    struct err e = ERR_INIT;
    assert_int_equal(
        compile_text(nvrtc, "sm_90", "extern \"C\" __global__ void k() { nix; }\n", false, &c, &e),
        ERR_INTERNAL);
    assert_non_null(strstr(e.message, "kernel.cu(1)"));
    assert_non_null(strstr(e.message, "\"nix\" is undefined"));
    assert_int_equal(compile_text(nvrtc, "sm_999", small_kernel, false, &c, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.message, "sm_999"));
    assert_non_null(strstr(e.message, "another version of NVRTC"));
}

int main(void)
{
    nvrtc = real_nvrtc();
    if (!nvrtc) {
        fprintf(stderr, "NVRTC is not installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_kernels_compile_fast),
        cmocka_unit_test(contraction_only_when_asked),
        cmocka_unit_test(defects_are_told),
        cmocka_unit_test(selected_functions_bring_what_they_need),
        cmocka_unit_test(subsets_stand_alone),
        cmocka_unit_test(every_function_becomes_machine_code_sm_90),
        cmocka_unit_test(every_function_becomes_machine_code_sm_80),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
