/* Selects and index ramps. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOP_SELECT(size, type)                                                                    \
    static void select_##size(void *out, const void *const *args, size_t n)                        \
    {                                                                                              \
        type *o = out;                                                                             \
        const ar_bool *c = args[0];                                                                \
        const type *a = args[1], *b = args[2];                                                     \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            type x = a[i], y = b[i];                                                               \
            o[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }
LOOP_SELECT(1, ar_u8)
LOOP_SELECT(2, ar_u16)
LOOP_SELECT(4, ar_u32)
LOOP_SELECT(8, ar_u64)

static void select_16(void *out, const void *const *args, size_t n)
{
    ar_u64 *o = out;
    const ar_bool *c = args[0];
    const ar_u64 *a = args[1], *b = args[2];
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        ar_u64 m = (ar_u64)0 - c[i];
        ar_u64 lo = (a[2 * i] & m) | (b[2 * i] & ~m);
        ar_u64 hi = (a[2 * i + 1] & m) | (b[2 * i + 1] & ~m);
        o[2 * i] = lo;
        o[2 * i + 1] = hi;
    }
}

static void iota(int64_t *out, int64_t start, int64_t step, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int64_t)((uint64_t)start + (uint64_t)step * i);
}

void LOOPS_FILL(misc)(struct loop_table *t)
{
    t->select[0] = select_1;
    t->select[1] = select_2;
    t->select[2] = select_4;
    t->select[3] = select_8;
    t->select[4] = select_16;
    t->iota = iota;
}
