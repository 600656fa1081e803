/* Loops of complex64 and complex128, out of op.def and scalar.h. The elementary functions are
 * scalar calls, but for the absolute value. */
#include <math.h>
#include <string.h>

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOPS_C(id, nargs, result)                                                                 \
    LOOP_OF(id, nargs, result, C64, ar_c64, ar_f32)                                                \
    LOOP_OF(id, nargs, result, C128, ar_c128, ar_f64)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) LOOPS_##c(id, nargs, result)
#include "compute/type/op.def"
#undef OP

/* hypot as C libraries compute it (Borges, "An improved algorithm for hypot(a, b)", without fused
 * products): a square root whose error is taken off. Straight-line, so that the loop vectorises;
 * one element in a range that would have to be scaled is left to the library, as are infinities and
 * NaN. */
#define ABS_CHUNK   256
#define ABS_LARGE   0x1p+511
#define ABS_TINY    0x1p-459
#define ABS_NOTHING 0x1p-54 /* times the larger one, the smaller one does not count */

static inline double borges(double x, double y)
{
    double h = sqrt(x * x + y * y), d = h - y, e = h - x;
    double near = x * (2 * d - x) + (d - 2 * (x - y)) * d;
    double far = 2 * e * (x - 2 * y) + ((4 * e - y) * y + e * e);
    return h - (h <= 2 * y ? near : far) / (2 * h);
}

/* x is the larger one. Not NaN and not infinite either. */
static inline int is_moderate(double x, double y)
{
    return (x <= ABS_LARGE) & ((y >= ABS_TINY) | (x >= y / ABS_NOTHING));
}

static void abs_C128(void *out, const void *const *args, size_t n)
{
    double *o = out;
    const double *a = args[0];
    for (size_t m; n != 0; o += m, a += 2 * m, n -= m) {
        double all[ABS_CHUNK];
        int ok = 1;
        m = n < ABS_CHUNK ? n : ABS_CHUNK;
        for (size_t i = 0; i < m; i++) {
            const double re = fabs(a[2 * i]), im = fabs(a[2 * i + 1]);
            const double x = re < im ? im : re, y = re < im ? re : im, h = borges(x, y);
            ok &= is_moderate(x, y);
            all[i] = (y < ABS_TINY) | (y <= x * ABS_NOTHING) ? x + y : h;
        }
        for (size_t i = 0; !ok && i < m; i++) {
            const double re = fabs(a[2 * i]), im = fabs(a[2 * i + 1]);
            if (!is_moderate(re < im ? im : re, re < im ? re : im))
                all[i] = hypot(re, im);
        }
        memcpy(o, all, m * sizeof *o);
    }
}

void LOOPS_FILL(complex)(struct loop_table *t)
{
#define SET_C(id)                                          LOOP_SET(id, C64) LOOP_SET(id, C128)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) SET_##c(id)
#include "compute/type/op.def"
#undef OP
    t->op[OP_ABS][DT_C128] = abs_C128;
}
