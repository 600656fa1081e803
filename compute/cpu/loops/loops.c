/* Chooses the instruction set and fills the table. Also gather, scatter and fill, which move bytes
 * and gain nothing from wider instructions. See loops_table.h for how the loops are made. */
#include "compute/cpu/loops/loops.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/isa.h"
#include "compute/cpu/loops/loops_table.h"

static struct loop_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define FILL_ALL(name)                                                                             \
    static void fill_##name(struct loop_table *t)                                                  \
    {                                                                                              \
        loops_small_##name(t);                                                                     \
        loops_int_##name(t);                                                                       \
        loops_float_##name(t);                                                                     \
        loops_math_##name(t);                                                                      \
        loops_complex_##name(t);                                                                   \
        loops_cast_##name(t);                                                                      \
        loops_cast_int_##name(t);                                                                  \
        loops_reduce_##name(t);                                                                    \
        loops_prod_##name(t);                                                                      \
        loops_arg_##name(t);                                                                       \
        loops_scan_##name(t);                                                                      \
        loops_var_##name(t);                                                                       \
        loops_pair_##name(t);                                                                      \
        loops_misc_##name(t);                                                                      \
        loops_random_##name(t);                                                                    \
    }
FILL_ALL(baseline)
#if defined(__x86_64__)
FILL_ALL(avx2)
FILL_ALL(avx512)
#endif

static void choose(void)
{
    ISA_PICK(fill)(&table);
    for (int op = 0; op < REDUCE_COUNT; op++) /* operations that share another's loops */
        for (int t = 0; t < DT_COUNT; t++)
            if (reduce_defined(op, t))
                table.reduce[op][t] = table.reduce[reduce_table[op].states][t];
}

static const struct loop_table *loops(void)
{
    pthread_once(&once, choose);
    return &table;
}

loop_fn *loop_op(enum op op, enum dtype t)
{
    return loops()->op[op][t];
}

loop_fn *loop_cast(enum dtype from, enum dtype to)
{
    return loops()->cast[from][to];
}

loop_fn *loop_select(size_t itemsize)
{
    return loops()->select[__builtin_ctzl(itemsize)];
}

const struct reduce_loops *loop_reduce(enum reduce_op op, enum dtype t)
{
    const struct reduce_loops *r = &loops()->reduce[op][t];
    return r->init ? r : NULL;
}

const struct arg_loops *loop_arg(enum reduce_op op, enum dtype t)
{
    const struct arg_loops *a = &loops()->arg[op == REDUCE_ARGMIN][t];
    return a->peak ? a : NULL;
}

const struct scan_loops *loop_scan(enum reduce_op op, enum dtype t)
{
    const struct scan_loops *s = &loops()->scan[reduce_scan(op)][t];
    return s->init ? s : NULL;
}

void loop_random(void *out, enum dtype t, const struct random_params *p, const int64_t *index,
                 size_t n)
{
    loops()->random(out, t, p, index, n);
}

void loop_iota(int64_t *out, int64_t start, int64_t step, size_t n)
{
    loops()->iota(out, start, step, n);
}

const char *loop_isa(void)
{
    return isa_name(isa_now());
}

struct pair {
    uint64_t lo, hi;
};

/* Stores the value repeated in 16 bytes as often as it fits. */
void loop_fill(void *out, const union value *v, size_t itemsize, size_t n)
{
    struct pair x;
    switch (itemsize) {
    case 1:
        memset(out, v->u8, n);
        return;
    case 2:
        x.lo = x.hi = v->u16 * UINT64_C(0x0001000100010001);
        break;
    case 4:
        x.lo = x.hi = v->u32 * UINT64_C(0x0000000100000001);
        break;
    case 8:
        x.lo = x.hi = v->u64;
        break;
    default:
        memcpy(&x, v->raw, sizeof x);
        break;
    }
    char *p = out;
    size_t bytes = n * itemsize;
    for (; bytes >= 4 * sizeof x; bytes -= 4 * sizeof x, p += 4 * sizeof x) {
        memcpy(p, &x, sizeof x);
        memcpy(p + sizeof x, &x, sizeof x);
        memcpy(p + 2 * sizeof x, &x, sizeof x);
        memcpy(p + 3 * sizeof x, &x, sizeof x);
    }
    for (; bytes >= sizeof x; bytes -= sizeof x, p += sizeof x)
        memcpy(p, &x, sizeof x);
    memcpy(p, &x, bytes);
}

#define GATHER(type)                                                                               \
    {                                                                                              \
        type *o = out;                                                                             \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4, p += 4 * stride) {                                              \
            type a = *(const type *)p, b = *(const type *)(p + stride);                            \
            type c = *(const type *)(p + 2 * stride), d = *(const type *)(p + 3 * stride);         \
            o[i] = a, o[i + 1] = b, o[i + 2] = c, o[i + 3] = d;                                    \
        }                                                                                          \
        for (; i < n; i++, p += stride)                                                            \
            o[i] = *(const type *)p;                                                               \
    }
#define SCATTER(type)                                                                              \
    {                                                                                              \
        const type *o = in;                                                                        \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4, p += 4 * stride) {                                              \
            type a = o[i], b = o[i + 1], c = o[i + 2], d = o[i + 3];                               \
            *(type *)p = a, *(type *)(p + stride) = b;                                             \
            *(type *)(p + 2 * stride) = c, *(type *)(p + 3 * stride) = d;                          \
        }                                                                                          \
        for (; i < n; i++, p += stride)                                                            \
            *(type *)p = o[i];                                                                     \
    }

void loop_gather(void *out, const void *in, int64_t stride, size_t itemsize, size_t n)
{
    const char *p = in;
    if (stride == (int64_t)itemsize) {
        memcpy(out, in, n * itemsize);
        return;
    }
    if (stride == 0 && n != 0) {
        union value v;
        memcpy(v.raw, in, itemsize);
        loop_fill(out, &v, itemsize, n);
        return;
    }
    switch (itemsize) {
    case 1:
        GATHER(uint8_t)
        break;
    case 2:
        GATHER(uint16_t)
        break;
    case 4:
        GATHER(uint32_t)
        break;
    case 8:
        GATHER(uint64_t)
        break;
    default:
        GATHER(struct pair)
        break;
    }
}

#define TAKE(type)                                                                                 \
    for (size_t i = 0; i < n; i++) {                                                               \
        int64_t j = at[i] < 0 ? 0 : at[i] >= length ? length - 1 : at[i];                          \
        ((type *)out)[i] = ((const type *)row)[j];                                                 \
    }

void loop_take(void *out, const void *row, int64_t length, const int64_t *at, size_t itemsize,
               size_t n)
{
    struct pair {
        uint64_t re, im;
    };
    switch (itemsize) {
    case 1:
        TAKE(uint8_t)
        break;
    case 2:
        TAKE(uint16_t)
        break;
    case 4:
        TAKE(uint32_t)
        break;
    case 8:
        TAKE(uint64_t)
        break;
    default:
        TAKE(struct pair)
        break;
    }
}

void loop_scatter(void *out, int64_t stride, const void *in, size_t itemsize, size_t n)
{
    char *p = out;
    if (stride == (int64_t)itemsize) {
        memcpy(out, in, n * itemsize);
        return;
    }
    switch (itemsize) {
    case 1:
        SCATTER(uint8_t)
        break;
    case 2:
        SCATTER(uint16_t)
        break;
    case 4:
        SCATTER(uint32_t)
        break;
    case 8:
        SCATTER(uint64_t)
        break;
    default:
        SCATTER(struct pair)
        break;
    }
}
