/* compute/cpu/loops: exp's loop of each instruction set with FMA has the bits of vecmath.h's
 * function, whatever instructions it is made of, and the absolute value of complex numbers is the
 * C library's hypot, to the last bit but one.
 *
 * The loops choose their instruction set once a process, so main() runs the test in a child process
 * for each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/isa.h"
#include "compute/cpu/loops/loops.h"
#include "compute/cpu/loops/vecmath.h"

#define BLOCK 1000 /* no multiple of a vector */

/* Bits all over float32: subnormals, infinities, NaNs. */
static void exp_of_float32(void **state)
{
    (void)state;
    float x[BLOCK], got[BLOCK];
    const void *args[] = {x};
    uint32_t bits = 0;
    for (int block = 0; block < 1500; block++) {
        for (int i = 0; i < BLOCK; i++, bits += 2863)
            memcpy(&x[i], &bits, sizeof bits);
        loop_op(OP_EXP, DT_F32)(got, args, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const float want = vm_EXP_F32(x[i]);
            if (memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("exp(%a) is %a, not %a", (double)x[i], (double)got[i], (double)want);
        }
    }
}

/* Every exponent of results, subnormal ones included; in place. */
static void exp_of_float64(void **state)
{
    (void)state;
    double x[BLOCK], got[BLOCK];
    const void *args[] = {got};
    for (int block = 0; block < 500; block++) {
        for (int i = 0; i < BLOCK; i++)
            x[i] = got[i] = -760 + 0.003 * (block * BLOCK + i);
        loop_op(OP_EXP, DT_F64)(got, args, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const double want = vm_EXP_F64(x[i]);
            if (memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("exp(%a) is %a, not %a", x[i], got[i], want);
        }
    }
}

/* All magnitudes, far apart and alike, and what hypot has rules for. */
static void abs_of_complex128(void **state)
{
    (void)state;
    static const double special[] = {0, -0.0, 1, 3e-320, 2e-300, 1e300, INFINITY, NAN, -4};
    const int n_special = (int)(sizeof special / sizeof *special);
    double x[2 * BLOCK], got[BLOCK];
    const void *args[] = {x};
    uint64_t bits = 1;
    for (int block = 0; block < 300; block++) {
        for (int i = 0; i < 2 * BLOCK; i++) {
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            const double part = (double)(bits >> 11) * 0x1p-53 - 0.5;
            x[i] = ldexp(part, block % 3 ? (int)(bits % 60) - 30 : (int)(bits % 2000) - 1000);
            if (block % 5 == 0 && i % 7 == 0)
                x[i] = special[bits >> 60 < (unsigned)n_special ? bits >> 60 : 0];
        }
        loop_op(OP_ABS, DT_C128)(got, args, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const double want = hypot(x[2 * i], x[2 * i + 1]);
            if (got[i] != want && got[i] != nextafter(want, 0) &&
                got[i] != nextafter(want, INFINITY) && !(isnan(got[i]) && isnan(want)))
                fail_msg("|%a, %a| is %a, not %a", x[2 * i], x[2 * i + 1], got[i], want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_of_float32),
        cmocka_unit_test(exp_of_float64),
        cmocka_unit_test(abs_of_complex128),
    };
    int failed = 0;
    if (isa_choose(NULL) < ISA_AVX2)
        return 77; /* skipped: the C library's exp */
    for (int i = ISA_AVX2; i <= (int)isa_choose(NULL); i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("ARRAYD_CPU_ISA", isa_name((enum isa)i), 1);
            _exit(cmocka_run_group_tests(tests, NULL, NULL) != 0);
        }
        int status;
        failed |= child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    return failed;
}
