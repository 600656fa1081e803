/* The reading half of numtext.h; numtext.c describes the algorithms. */
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/number/numtext.h"
#include "protocol/number/numtext_table.h"

static const double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#define EXPONENT_CAP 1000000000000000ll /* keeps sums of exponents within int64 */

struct number {
    uint64_t w;       /* the first 19 significant digits */
    int64_t exponent; /* value = w · 10^exponent, ignoring dropped digits */
    bool negative, dropped;
};

static struct number read_number(const char *p, size_t n)
{
    struct number r = {0};
    const char *end = p + n;
    if (p < end && (*p == '-' || *p == '+'))
        r.negative = *p++ == '-';
    int digits = 0;
    bool point = false;
    for (; p < end; p++) {
        unsigned d = (unsigned char)*p - '0';
        if (d > 9) {
            if (*p != '.')
                break;
            point = true;
            continue;
        }
        if (digits < 19) {
            r.w = r.w * 10 + d;
            digits += r.w != 0; /* leading zeros are not significant */
            r.exponent -= point;
        } else {
            r.dropped |= d != 0;
            r.exponent += !point;
        }
    }
    if (p < end) { /* e */
        bool minus = false;
        int64_t e = 0;
        if (++p < end && (*p == '-' || *p == '+'))
            minus = *p++ == '-';
        for (; p < end; p++)
            if (e < EXPONENT_CAP)
                e = e * 10 + (*p - '0');
        r.exponent += minus ? -e : e;
    }
    return r;
}

/* ---- the exact but slow way ---- */

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* A double has at most 767 significant decimal digits at a rounding boundary: beyond that only "not
 * zero" matters. So the text is rewritten to a bounded length for strtod. */
#define SLOW_DIGITS 800

static double slow(const char *p, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    char buf[SLOW_DIGITS + 40];
    struct number head = read_number(p, n);
    const char *end = p + n;
    size_t len = 0;
    int64_t exponent = 0;
    bool point = false, dropped = false;
    if (head.negative)
        buf[len++] = '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    size_t first = len;
    for (; p < end && (*p == '.' || (*p >= '0' && *p <= '9')); p++) {
        if (*p == '.') {
            point = true;
        } else if (len - first < SLOW_DIGITS) {
            if (len > first || *p != '0')
                buf[len++] = *p;
            exponent -= point;
        } else {
            dropped |= *p != '0';
            exponent += !point;
        }
    }
    if (len == first)
        buf[len++] = '0';
    if (dropped) {
        buf[len++] = '1';
        exponent--;
    }
    if (p < end) {
        bool minus = false;
        int64_t e = 0;
        if (++p < end && (*p == '-' || *p == '+'))
            minus = *p++ == '-';
        for (; p < end; p++)
            if (e < EXPONENT_CAP)
                e = e * 10 + (*p - '0');
        exponent += minus ? -e : e;
    }
    if (exponent > 99999)
        exponent = 99999;
    if (exponent < -99999)
        exponent = -99999;
    buf[len++] = 'e';
    len += numtext_i64(exponent, buf + len);
    buf[len] = '\0';
    return c_locale ? strtod_l(buf, NULL, c_locale) : strtod(buf, NULL);
}

static double slow_odd(const char *p, size_t n)
{
    int mode = fegetround();
    fesetround(FE_DOWNWARD);
    double lo = slow(p, n);
    fesetround(FE_UPWARD);
    double hi = slow(p, n);
    fesetround(mode);
    uint64_t bits;
    memcpy(&bits, &lo, sizeof bits);
    return lo == hi || bits & 1 ? lo : hi;
}

/* ---- the fast ways ---- */

/* |value| of w · 10^exponent to nearest, or to odd; false when 128 bits cannot decide. */
static bool from_product(const struct number *r, bool odd, double *ret)
{
    int64_t k = r->exponent;
    if (r->w == 0 || r->dropped || k < NUMTEXT_POWER_FIRST || k > NUMTEXT_POWER_LAST)
        return false;
    int lz = __builtin_clzll(r->w);
    uint64_t w = r->w << lz;
    const uint64_t *g = numtext_powers[k - NUMTEXT_POWER_FIRST];
    unsigned __int128 low = (unsigned __int128)w * g[1];
    unsigned __int128 high = (unsigned __int128)w * g[0] + (uint64_t)(low >> 64);
    int shift = !(high >> 127);
    high <<= shift;
    if (shift)
        high |= (uint64_t)low >> 63;
    /* high · 2^e with 53 bits kept; the power is at most one unit too large, and so is `high`;
     * truncation takes off less than another unit */
    int e = 64 - lz + (int)((k * 1741647) >> 19) + 1 - 128 - shift + 75;
    uint64_t m = (uint64_t)(high >> 75);
    unsigned __int128 rest = high & (((unsigned __int128)1 << 75) - 1);
    unsigned __int128 half = (unsigned __int128)1 << 74;
    if (e < -1074 || e > 1023 - 53)
        return false; /* subnormal or near the end of the range */
    if (odd) {
        if (rest <= 4 || rest >= 2 * half - 4)
            return false;
        m |= 1;
    } else {
        if (rest + 4 >= half && rest <= half + 4)
            return false;
        m += rest > half;
    }
    uint64_t bits = ((uint64_t)(e + 1074) << 52) + m; /* a carry runs into the exponent */
    memcpy(ret, &bits, sizeof *ret);
    return true;
}

double numtext_parse_f64(const char *p, size_t n)
{
    struct number r = read_number(p, n);
    double d;
    if (r.w <= 1ull << 53 && !r.dropped && r.exponent >= -22 && r.exponent <= 22)
        d = r.exponent < 0 ? (double)r.w / exact_powers[-r.exponent]
                           : (double)r.w * exact_powers[r.exponent];
    else if (!from_product(&r, false, &d))
        return slow(p, n);
    return r.negative ? -d : d;
}

double numtext_parse_odd(const char *p, size_t n)
{
    struct number r = read_number(p, n);
    double d;
    if (r.w <= 1ull << 53 && !r.dropped && r.exponent >= -22 && r.exponent <= 22) {
        double w = (double)r.w, power, rest;
        if (r.exponent < 0) {
            power = exact_powers[-r.exponent];
            d = w / power;
        } else {
            power = exact_powers[r.exponent];
            d = w * power;
        }
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        if ((bits & ((1u << 28) - 1)) == 0) { /* may be a midpoint of a narrower type */
            rest = r.exponent < 0 ? -fma(d, power, -w) : fma(w, power, -d);
            if (rest != 0)
                d = nextafter(d, rest > 0 ? INFINITY : 0); /* d is even: this one is odd */
        }
    } else if (!from_product(&r, true, &d)) {
        return slow_odd(p, n);
    }
    return r.negative ? -d : d;
}

/* |v| of a format with `precision` bits and exponents from `min_exponent` (of the subnormals' last
 * place); `inf` is its infinity's bits, `fraction_bits` = precision − 1. */
static uint16_t round_narrow(double v, int fraction_bits, int min_exponent, uint16_t inf)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    bits &= INT64_MAX;
    if (bits >= 0x7FFull << 52)
        return sign | inf | (bits > 0x7FFull << 52 ? (uint16_t)(1u << (fraction_bits - 1)) : 0);
    int exponent = (int)(bits >> 52) - 1075;
    uint64_t m = exponent == -1075 ? 0 : (bits & ((1ull << 52) - 1)) | 1ull << 52;
    int drop = 52 - fraction_bits; /* bits to take from m */
    if (exponent + drop < min_exponent)
        drop = min_exponent - exponent;
    if (drop > 60)
        return sign;
    uint64_t kept = m >> drop, rest = m & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    kept += rest > half || (rest == half && kept & 1);
    /* a carry goes into the exponent field, as it should */
    int biased = exponent + drop - min_exponent; /* 0: subnormal or the first normal binade */
    uint64_t out = kept + ((uint64_t)biased << fraction_bits);
    return sign | (out >= inf ? inf : (uint16_t)out);
}

uint16_t numtext_round_f16(double v)
{
    return round_narrow(v, 10, -24, 0x7C00);
}

uint16_t numtext_round_bf16(double v)
{
    return round_narrow(v, 7, -133, 0x7F80);
}

bool numtext_parse_int(const char *p, size_t n, __int128 *ret)
{
    bool negative = n > 0 && *p == '-';
    const __int128 max = (__int128)(~(unsigned __int128)0 >> 1);
    __int128 v = 0;
    for (size_t i = negative; i < n; i++) {
        int d = p[i] - '0';
        if (v > (max - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *ret = negative ? -v : v;
    return true;
}
