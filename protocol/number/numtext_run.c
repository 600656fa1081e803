/* Many float32 at once, for the lists of inline results: about a quarter of the time of one by one.
 *
 * Between 1e-4 and 1e9 a float32 has 24 bits and is scaled to nine digits before the point by at
 * most 10^12, whose odd factor 5^12 has 28: so the value, and the two ends of its rounding interval
 * with one bit more, scaled, are exact doubles. The decisions that Schubfach (numtext.c) makes with
 * 128-bit integers then take a few exact operations on doubles that a compiler vectorises: does the
 * interval contain a multiple of the smallest power of ten above its width? If so that is the
 * answer; else the nearest multiple of the next lower power is. Rare values (zeros, powers of two,
 * whose interval is lopsided, very large, very small ones, NaN) are left to numtext.c.
 *
 * Blocks are processed stage by stage, so that each loop is simple enough to vectorise; only the
 * last stage, which depends on the text's position, is scalar. The result does not depend on the
 * instruction set. */
#include <string.h>

#include "compute/base/isa.h"
#include "protocol/number/numtext.h"

#define BLOCK 64

/* Inlined into a function for each instruction set (isa.h). */
#define STAGE static inline __attribute__((always_inline))

struct block {
    uint32_t bits[BLOCK];
    int32_t power[BLOCK]; /* of ten, to scale by */
    double scaling[BLOCK];
    int32_t odd[BLOCK];                                /* the interval excludes its ends */
    double scaled[BLOCK], half[BLOCK];                 /* the value, half its interval's width */
    double digits[BLOCK];                              /* the answer, 10^8 … 10^9 */
    int32_t other[BLOCK];                              /* left to numtext.c */
    uint32_t first[BLOCK], upper[BLOCK], lower[BLOCK]; /* digits: one, four, four */
};

/* The last entry is only for the estimate. */
static const double powers[14] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5,  1e6,
                                  1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13};

/* Scales by the power of ten that leaves nine digits. Gathers from the table have loops of their
 * own: gcc does not vectorise them if they depend on a comparison. */
STAGE void scale(struct block *b)
{
    for (int i = 0; i < BLOCK; i++) {
        union {
            uint32_t bits;
            float f;
        } u, top;
        u.bits = b->bits[i] & 0x7FFFFFFF;
        /* from the float above 1e-4 to below 1e9, powers of two excepted */
        int32_t out = (u.bits < 0x38D1B718) | (u.bits >= 0x4E6E6B28) | ((u.bits & 0x7FFFFF) == 0);
        u.bits = out ? 0x3FC00000 : u.bits; /* 1.5 */
        top.bits = u.bits & 0x7F800000;     /* the power of two below */
        b->other[i] = out;
        b->odd[i] = (int32_t)(u.bits & 1);
        /* 8 minus floor(log10), or one more */
        b->power[i] = 8 - (((int32_t)(u.bits >> 23) - 127) * 1233 >> 12);
        b->scaled[i] = (double)u.f;
        b->half[i] = (double)top.f * 0x1p-24;
    }
    for (int i = 0; i < BLOCK; i++)
        b->scaling[i] = powers[b->power[i]];
    for (int i = 0; i < BLOCK; i++)
        b->power[i] -= b->scaled[i] * b->scaling[i] >= 1e9;
    for (int i = 0; i < BLOCK; i++)
        b->scaling[i] = powers[b->power[i]];
    for (int i = 0; i < BLOCK; i++) {
        b->scaled[i] *= b->scaling[i];
        b->half[i] *= b->scaling[i];
    }
}

/* The shortest digits within the interval, and the nearest of those. */
STAGE void shorten(struct block *b)
{
    for (int i = 0; i < BLOCK; i++) {
        double s = b->scaled[i], h = b->half[i], low = s - h, high = s + h, width = 2 * h;
        double fine = width >= 100 ? 100 : width >= 10 ? 10 : 1, coarse = fine * 10;
        double per_fine = width >= 100 ? 0.01 : width >= 10 ? 0.1 : 1;
        /* the last multiple of `coarse` not above the interval; quotients may be off by one */
        double m = (double)(int32_t)(high * (per_fine * 0.1)) * coarse;
        m = m > high ? m - coarse : m;
        m = m + coarse <= high ? m + coarse : m;
        /* an excluded end */
        m = (b->odd[i] != 0 && m == high) ? m - coarse : m;
        bool in = (m > low) | ((m == low) & (b->odd[i] == 0));
        double f = (double)(int32_t)(s * per_fine);
        f = f * fine > s ? f - 1 : f;
        f = (f + 1) * fine <= s ? f + 1 : f;
        double rest = 2 * (s - f * fine);
        double is_odd = f - 2 * (double)(int32_t)(f * 0.5);
        double up = (rest > fine) | ((rest == fine) & (is_odd != 0)) ? 1 : 0;
        b->digits[i] = in ? m : (f + up) * fine;
    }
}

/* A number below 10^4 as four digits, the first in the lowest byte. */
STAGE uint32_t four_digits(uint32_t v)
{
    uint32_t t = v * 5243 >> 19, x = t | (v - t * 100) << 16;
    t = (x * 103 >> 10) & 0x000F000F;
    return t | (x - t * 10) << 8;
}

STAGE void spell(struct block *b)
{
    for (int i = 0; i < BLOCK; i++) {
        uint32_t v = (uint32_t)(int32_t)b->digits[i];
        b->other[i] |= v >= 1000000000;                              /* rounded up to ten digits */
        uint32_t high = (uint32_t)((uint64_t)v * 3518437209u >> 45); /* v / 10^4 */
        uint32_t low = v - high * 10000;
        uint32_t first = (uint32_t)((uint64_t)high * 3518437209u >> 45);
        b->first[i] = first;
        b->upper[i] = four_digits(high - first * 10000);
        b->lower[i] = four_digits(low);
    }
}

STAGE void stages(struct block *b)
{
    scale(b);
    shorten(b);
    spell(b);
}

static void stages_baseline(struct block *b)
{
    stages(b);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void stages_avx2(struct block *b)
{
    stages(b);
}

__attribute__((target("avx512f"))) static void stages_avx512(struct block *b)
{
    stages(b);
}
#endif

/* One number at buf from its digits; stores whole words, within NUMTEXT_MAX. */
static inline size_t put(char *buf, uint32_t first, uint32_t upper, uint32_t lower, int point)
{
    uint64_t word = upper | (uint64_t)lower << 32;
    int n = word ? 9 - __builtin_clzll(word) / 8 : 1;
    word |= 0x3030303030303030u;
    uint64_t head = word << 8 | (first + '0'), tail = word >> 56 | 0x3030303030303000u;
    if (point <= 0) { /* 0.0012 */
        memcpy(buf, "0.000000", 8);
        memcpy(buf + 2 - point, &head, 8);
        buf[10 - point] = (char)tail;
        return (size_t)(n + 2 - point);
    }
    unsigned __int128 text = ((unsigned __int128)tail << 64 | head) >> 8 * point;
    uint64_t after = (uint64_t)text;
    memcpy(buf, &head, 8);
    buf[8] = (char)tail;
    buf[point] = '.';
    memcpy(buf + point + 1, &after, 8);
    return (size_t)(n > point ? n + 1 : point + 2);
}

size_t numtext_f32_run(const float *v, size_t n, char *buf)
{
    void (*run)(struct block *) = ISA_PICK(stages);
    struct block b;
    char *p = buf;
    while (n) {
        size_t k = n < BLOCK ? n : BLOCK;
        for (size_t i = k; i < BLOCK; i++)
            b.bits[i] = 0;
        memcpy(b.bits, v, k * sizeof *v);
        run(&b);
        for (size_t i = 0; i < k; i++) {
            if (b.other[i]) {
                p += numtext_elem(DT_F32, &v[i], p);
            } else {
                *p = '-';
                p += b.bits[i] >> 31;
                p += put(p, b.first[i], b.upper[i], b.lower[i], 9 - b.power[i]);
            }
            *p++ = ',';
        }
        v += k;
        n -= k;
    }
    return (size_t)(p - buf) - (p > buf);
}
