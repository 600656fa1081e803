/* Printing is Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles", 2020): with
 * 4c±2 · 2^q scaled by a 128-bit power of ten, three multiplications give the shortest decimal in
 * the rounding interval, without loops or big numbers. float32, float16 and bfloat16 share the
 * narrow variant with the upper 64 bits of the power.
 *
 * Reading takes up to 19 digits as an integer w. If w and 10^|e| are exact doubles one operation is
 * correctly rounded (Clinger, "How to read floating point numbers accurately", 1990). Otherwise w
 * is multiplied by the same 128-bit power, whose error is below one unit of the product's last kept
 * place; unless that could change the rounding, the leading bits are the answer (the idea of
 * Lemire, "Number parsing at a gigabyte per second", 2021). The rest goes to libc's strtod in the C
 * locale, which is exact. */
#include "protocol/number/numtext.h"

#include <string.h>

#include "protocol/number/numtext_table.h"

/* ---- printing ---- */

static const char pairs[200] = "00010203040506070809101112131415161718192021222324"
                               "25262728293031323334353637383940414243444546474849"
                               "50515253545556575859606162636465666768697071727374"
                               "75767778798081828384858687888990919293949596979899";

static int floor_log2_pow10(int k)
{
    return (k * 1741647) >> 19;
}

static int floor_log10_pow2(int q)
{
    return (q * 1262611) >> 22;
}

static int floor_log10_three_quarters_pow2(int q)
{
    return (q * 1262611 - 524031) >> 22;
}

static const uint64_t powers_of_ten[20] = {
    1,
    10,
    100,
    1000,
    10000,
    100000,
    1000000,
    10000000,
    100000000,
    1000000000,
    10000000000,
    100000000000,
    1000000000000,
    10000000000000,
    100000000000000,
    1000000000000000,
    10000000000000000,
    100000000000000000,
    1000000000000000000,
    10000000000000000000u,
};

static int count_digits(uint64_t v)
{
    v |= 1; /* 0 has a digit too; no power but the first is odd */
    int t = (64 - __builtin_clzll(v)) * 1233 >> 12;
    return t + (v >= powers_of_ten[t]);
}

/* Writes exactly n digits of v. */
static void put_digits(char *buf, uint64_t v, int n)
{
    while (n >= 2) {
        n -= 2;
        memcpy(buf + n, pairs + 2 * (v % 100), 2);
        v /= 100;
    }
    if (n)
        buf[0] = (char)('0' + v % 10);
}

size_t numtext_u64(uint64_t v, char *buf)
{
    int n = v ? count_digits(v) : 1;
    put_digits(buf, v, n);
    return (size_t)n;
}

size_t numtext_i64(int64_t v, char *buf)
{
    if (v >= 0)
        return numtext_u64((uint64_t)v, buf);
    *buf = '-';
    return 1 + numtext_u64(0 - (uint64_t)v, buf + 1);
}

struct decimal {
    uint64_t digits;
    int exponent;
};

/* v < 10^8 as eight digits (0 to 9, not text), the first in the lowest byte: computes halves,
 * quarters and eighths of the number side by side in one word. */
static inline uint64_t eight_digits(uint32_t v)
{
    uint64_t x = (uint64_t)(v % 10000) << 32 | v / 10000;
    uint64_t t = (x * 10486 >> 20) & 0x7F0000007F;
    x = t | (x - t * 100) << 16;
    t = (x * 103 >> 10) & 0x000F000F000F000F;
    return t | (x - t * 10) << 8;
}

#define ZEROS 0x3030303030303030u

/* digits · 10^exponent as text, of at most 17 digits, or 9 unless `wide`. Fixed notation from 1e-4
 * up to below 1e16, as in Python. All digits are computed at once in registers, left-aligned with
 * trailing zeros, so that nothing depends on their number; whole words are stored, possibly past
 * the text's end, but within NUMTEXT_MAX. */
static inline __attribute__((always_inline)) size_t put_decimal(char *buf, struct decimal d,
                                                                bool wide)
{
    int n = count_digits(d.digits), point = n + d.exponent;
    uint64_t v = d.digits * powers_of_ten[(wide ? 17 : 9) - n], upper, lower = 0, first;
    if (wide) {
        uint64_t rest = v % 10000000000000000u;
        first = v / 10000000000000000u;
        upper = eight_digits((uint32_t)(rest / 100000000));
        lower = eight_digits((uint32_t)(rest % 100000000));
    } else {
        first = v / 100000000;
        upper = eight_digits((uint32_t)(v % 100000000));
    }
    /* digits without trailing zeros */
    n = lower ? 17 - __builtin_clzll(lower) / 8 : upper ? 9 - __builtin_clzll(upper) / 8 : 1;
    upper |= ZEROS;
    lower |= ZEROS;
    unsigned __int128 text =
        (unsigned __int128)(upper >> 56 | lower << 8) << 64 | (upper << 8 | (first + '0'));
    char seventeenth = (char)(lower >> 56);
    if (point > 0 && point <= 16) { /* 12.34, 1200.0 */
        memcpy(buf, &text, 16);
        buf[point] = '.';
        text = text >> 8 * (point - 1) >> 8;
        memcpy(buf + point + 1, &text, 8);
        if (wide && point <= 8) {
            uint64_t rest = (uint64_t)(text >> 64);
            memcpy(buf + point + 9, &rest, 8);
        }
        if (wide || point == 16)
            buf[17] = seventeenth;
        return (size_t)(n > point ? n + 1 : point + 2);
    }
    if (point <= 0 && point > -4) { /* 0.0012 */
        memcpy(buf, "0.000000", 8);
        memcpy(buf + 2 - point, &text, 16);
        if (wide)
            buf[18 - point] = seventeenth;
        return (size_t)(n + 2 - point);
    }
    char *p = buf; /* 1.5e300 */
    p[0] = (char)text;
    p[1] = '.';
    text >>= 8;
    memcpy(p + 2, &text, 16);
    p[17] = seventeenth;
    p += n > 1 ? n + 1 : 1;
    *p++ = 'e';
    return (size_t)(p - buf) + numtext_i64(point - 1, p);
}

static uint64_t round_to_odd_128(const uint64_t g[2], uint64_t cp)
{
    unsigned __int128 x = (unsigned __int128)g[1] * cp;
    unsigned __int128 y = (unsigned __int128)g[0] * cp + (uint64_t)(x >> 64);
    return (uint64_t)(y >> 64) | ((uint64_t)y > 1);
}

static uint64_t round_to_odd_64(uint64_t g, uint64_t cp)
{
    unsigned __int128 p = (unsigned __int128)g * cp;
    uint32_t y1 = (uint32_t)(p >> 64), y0 = (uint32_t)((uint64_t)p >> 32);
    return y1 | (y0 > 1);
}

/* The shortest decimal that rounds to c · 2^q; `closer`: the value below is half as far away as the
 * one above. `wide`: c has more than 24 bits. */
static inline __attribute__((always_inline)) struct decimal shortest(uint64_t c, int q, bool closer,
                                                                     bool wide)
{
    bool even = c % 2 == 0;
    uint64_t cbl = 4 * c - 2 + closer, cb = 4 * c, cbr = 4 * c + 2;
    int k = closer ? floor_log10_three_quarters_pow2(q) : floor_log10_pow2(q);
    int h = q + floor_log2_pow10(-k) + 1;
    const uint64_t *g = numtext_powers[-k - NUMTEXT_POWER_FIRST];
    uint64_t vbl, vb, vbr;
    if (wide) {
        vbl = round_to_odd_128(g, cbl << h);
        vb = round_to_odd_128(g, cb << h);
        vbr = round_to_odd_128(g, cbr << h);
    } else {
        uint64_t g1 = g[0] + (g[1] != 0); /* the power rounded up to 64 bits */
        vbl = round_to_odd_64(g1, cbl << h);
        vb = round_to_odd_64(g1, cb << h);
        vbr = round_to_odd_64(g1, cbr << h);
    }
    /* Both candidates are computed and one is selected, because the choice is unpredictable for a
     * branch. */
    uint64_t lower = vbl + !even, upper = vbr - !even, s = vb / 4, sp = s / 10, mid = 4 * s + 2;
    bool up = lower <= 40 * sp, wp = 40 * sp + 40 <= upper, shorter = (s >= 10) & (up != wp);
    bool u = lower <= 4 * s, w = 4 * s + 4 <= upper;
    bool round_up = (vb > mid) | ((vb == mid) & ((s & 1) != 0));
    uint64_t longer = s + (((u != w) & w) | ((u == w) & round_up));
    uint64_t take_shorter = 0 - (uint64_t)shorter; /* a mask: gcc makes a branch of ?: */
    return (struct decimal){longer ^ ((longer ^ (sp + wp)) & take_shorter), k + shorter};
}

static size_t put_word(char *buf, const char *word)
{
    size_t n = strlen(word);
    memcpy(buf, word, n);
    return n;
}

/* Values without digits: NaN, infinities and zeros. */
static size_t put_special(char *buf, bool negative, bool zero, bool zero_fraction)
{
    if (!zero && !zero_fraction)
        return put_word(buf, "NaN");
    *buf = '-';
    return negative + put_word(buf + negative, zero ? "0.0" : "Infinity");
}

size_t numtext_f64(double v, char *buf)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint64_t fraction = bits & ((1ull << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7FF);
    bool negative = bits >> 63;
    if (exponent == 0x7FF || bits << 1 == 0)
        return put_special(buf, negative, bits << 1 == 0, fraction == 0);
    *buf = '-';
    buf += negative;
    uint64_t c = exponent ? fraction | 1ull << 52 : fraction;
    int q = (exponent ? exponent : 1) - 1075;
    if (q <= 0 && -q < 53 && (c & ((1ull << -q) - 1)) == 0) /* a small integer */
        return negative + put_decimal(buf, (struct decimal){c >> -q, 0}, true);
    return negative + put_decimal(buf, shortest(c, q, fraction == 0 && exponent > 1, true), true);
}

/* float32 and the halves: `bits` with `fraction_bits` below the exponent field. */
static inline __attribute__((always_inline)) size_t put_narrow(char *buf, uint32_t bits,
                                                               int fraction_bits, int exponent_bits)
{
    uint32_t fraction = bits & ((1u << fraction_bits) - 1);
    int max = (1 << exponent_bits) - 1, exponent = (int)(bits >> fraction_bits) & max;
    bool negative = bits >> (fraction_bits + exponent_bits) & 1;
    if (exponent == max || (exponent == 0 && fraction == 0))
        return put_special(buf, negative, exponent == 0, fraction == 0);
    *buf = '-';
    buf += negative;
    uint32_t c = exponent ? fraction | 1u << fraction_bits : fraction;
    int q = (exponent ? exponent : 1) - (max >> 1) - fraction_bits;
    if (q <= 0 && -q <= fraction_bits && (c & ((1u << -q) - 1)) == 0)
        return negative + put_decimal(buf, (struct decimal){c >> -q, 0}, false);
    return negative + put_decimal(buf, shortest(c, q, fraction == 0 && exponent > 1, false), false);
}

size_t numtext_f32(float v, char *buf)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return put_narrow(buf, bits, 23, 8);
}

size_t numtext_f16(uint16_t bits, char *buf)
{
    return put_narrow(buf, bits, 10, 5);
}

size_t numtext_bf16(uint16_t bits, char *buf)
{
    return put_narrow(buf, bits, 7, 8);
}

/* A float's text, quoted unless finite. */
static size_t quoted(char *buf, size_t n)
{
    char last = buf[n - 1]; /* NaN, Infinity */
    if (last != 'N' && last != 'y')
        return n;
    memmove(buf + 1, buf, n);
    buf[0] = '"';
    buf[n + 1] = '"';
    return n + 2;
}

size_t numtext_elem(enum dtype t, const void *p, char *buf)
{
    union value v;
    size_t n;
    if (t == DT_F32) { /* the common types avoid a call for their size */
        memcpy(&v.f32, p, sizeof v.f32);
        return quoted(buf, numtext_f32(v.f32, buf));
    }
    if (t == DT_F64) {
        memcpy(&v.f64, p, sizeof v.f64);
        return quoted(buf, numtext_f64(v.f64, buf));
    }
    memcpy(&v, p, dtype_size(t));
    switch (t) {
    case DT_BOOL:
        return put_word(buf, v.b ? "true" : "false");
    case DT_I8:
        return numtext_i64(v.i8, buf);
    case DT_I16:
        return numtext_i64(v.i16, buf);
    case DT_I32:
        return numtext_i64(v.i32, buf);
    case DT_I64:
        return numtext_i64(v.i64, buf);
    case DT_U8:
        return numtext_u64(v.u8, buf);
    case DT_U16:
        return numtext_u64(v.u16, buf);
    case DT_U32:
        return numtext_u64(v.u32, buf);
    case DT_U64:
        return numtext_u64(v.u64, buf);
    case DT_F16:
        return quoted(buf, numtext_f16(v.u16, buf));
    case DT_BF16:
        return quoted(buf, numtext_bf16(v.u16, buf));
    case DT_C64:
    case DT_C128:
        buf[0] = '[';
        n = 1;
        for (int part = 0; part < 2; part++) {
            n += t == DT_C64 ? quoted(buf + n, numtext_f32(v.c64[part], buf + n))
                             : quoted(buf + n, numtext_f64(v.c128[part], buf + n));
            buf[n++] = part ? ']' : ',';
        }
        return n;
    case DT_F32:
    case DT_F64:
    case DT_COUNT:
        break;
    }
    return 0;
}
