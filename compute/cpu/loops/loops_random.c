/* Random numbers, scalar_random.h's meaning in chunks: first the Philox words of a chunk into four
 * arrays, then the distribution over them. The logarithm, sine and cosine of the normal
 * distribution are the vector loops of loops_math.c, which are in the table before any loop can be
 * called. */
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

enum { RANDOM_CHUNK = 256 };

/* Each word in 64 bits, as the widening multiply wants it. */
struct words {
    ar_u64 w[4][RANDOM_CHUNK] __attribute__((aligned(64)));
};

#if defined(__AVX512F__)
typedef __m512i lanes;
#define MUL(a, b) _mm512_mul_epu32(a, b)
#define SPREAD(x) _mm512_set1_epi64(x)
#elif defined(__AVX2__)
typedef __m256i lanes;
#define MUL(a, b) _mm256_mul_epu32(a, b)
#define SPREAD(x) _mm256_set1_epi64x(x)
#elif defined(__SSE2__)
typedef __m128i lanes;
#define MUL(a, b) _mm_mul_epu32(a, b)
#define SPREAD(x) _mm_set1_epi64x(x)
#else
typedef ar_u64 lanes;
#define MUL(a, b) ((a & 0xffffffffu) * (b & 0xffffffffu))
#define SPREAD(x) ((ar_u64)(x))
#endif
typedef ar_u64 vector __attribute__((vector_size(sizeof(lanes))));

/* ar_philox4x32, a vector of counters at a time; the compiler does not recognise the 32 by 32 bit
 * product. The tests compare it with the golden streams. n is rounded up to vectors. */
static void philox(struct words *r, ar_u64 seed, const int64_t *index, size_t n)
{
    enum { N = sizeof(lanes) / 8 };
    const vector m0 = (vector)SPREAD(0xD2511F53), m1 = (vector)SPREAD(0xCD9E8D57);
    const vector low = (vector)SPREAD(0xffffffff);
    memcpy(r->w[0], index, n * sizeof *index);
    memset(r->w[0] + n, 0, (RANDOM_CHUNK - n) * sizeof *index);
    for (size_t i = 0; i < n; i += N) {
        ar_u32 k0 = (ar_u32)seed, k1 = (ar_u32)(seed >> 32);
        vector a, b, c = {0}, d = {0};
        memcpy(&a, r->w[0] + i, sizeof a);
        b = a >> 32;
        for (int round = 0; round < 10; round++) {
            vector p = (vector)MUL((lanes)a, (lanes)m0), q = (vector)MUL((lanes)c, (lanes)m1);
            a = (q >> 32) ^ b ^ (vector)SPREAD(k0);
            c = (p >> 32) ^ d ^ (vector)SPREAD(k1);
            b = q;
            d = p;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        a &= low, b &= low, c &= low, d &= low;
        memcpy(r->w[0] + i, &a, sizeof a);
        memcpy(r->w[1] + i, &b, sizeof b);
        memcpy(r->w[2] + i, &c, sizeof c);
        memcpy(r->w[3] + i, &d, sizeof d);
    }
}

/* Box–Muller; see ar_normal_F64 and ar_cos_turn. */
static void normal(const struct words *r, double *out, size_t n)
{
    double u[RANDOM_CHUNK], angle[RANDOM_CHUNK], sine[RANDOM_CHUNK], cosine[RANDOM_CHUNK];
    ar_i32 quadrant[RANDOM_CHUNK];
    const void *args[1];
    for (size_t i = 0; i < n; i++)
        u[i] = ar_uniform_open((ar_u32)r->w[0][i], (ar_u32)r->w[1][i]);
    for (size_t i = 0; i < n; i++) {
        double v = ar_uniform_open((ar_u32)r->w[2][i], (ar_u32)r->w[3][i]);
        /* rint(4v), by an addition that vectorises everywhere */
        double q = (4 * v + 0x1.8p+52) - 0x1.8p+52;
        angle[i] = (v - 0.25 * q) * 6.28318530717958647693;
        quadrant[i] = (ar_i32)q & 3;
    }
    args[0] = u;
    loop_op(OP_LOG, DT_F64)(u, args, n);
    args[0] = angle;
    loop_op(OP_SIN, DT_F64)(sine, args, n);
    loop_op(OP_COS, DT_F64)(cosine, args, n);
    for (size_t i = 0; i < n; i++) {
        double c = quadrant[i] & 1 ? sine[i] : cosine[i];
        c = quadrant[i] == 1 || quadrant[i] == 2 ? -c : c;
        out[i] = sqrt(-2 * u[i]) * c;
    }
}

static void fill_random(void *out, enum dtype t, const struct random_params *p,
                        const int64_t *index, size_t n)
{
    struct words r;
    double z[RANDOM_CHUNK];
    char *at = out;
    for (size_t m; n != 0; n -= m, index += m, at += m * dtype_size(t)) {
        m = n < RANDOM_CHUNK ? n : RANDOM_CHUNK;
        philox(&r, p->seed, index, m);
        ar_u64 *u64 = (ar_u64 *)at;
        ar_f32 *f32 = (ar_f32 *)at;
        ar_f64 *f64 = (ar_f64 *)at;
        if (p->dist == RANDOM_INTEGERS) {
            ar_u64 low = p->low.v.u64, range = p->high.v.u64 - low; /* int64 has the same bits */
            for (size_t i = 0; i < m; i++)
                u64[i] = low + ar_mulhi_U64((r.w[0][i] << 32 | r.w[1][i]), range);
        } else if (p->dist == RANDOM_UNIFORM && t == DT_F32) {
            for (size_t i = 0; i < m; i++)
                f32[i] = (ar_f32)(ar_i32)(r.w[0][i] >> 8) * 0x1p-24f;
        } else if (p->dist == RANDOM_UNIFORM) {
            for (size_t i = 0; i < m; i++)
                f64[i] = (ar_f64)(ar_i64)((r.w[0][i] << 32 | r.w[1][i]) >> 11) * 0x1p-53;
        } else {
            normal(&r, z, m);
            for (size_t i = 0; i < m && t == DT_F32; i++)
                f32[i] = (ar_f32)z[i];
            for (size_t i = 0; i < m && t == DT_F64; i++)
                f64[i] = z[i];
        }
    }
}

void LOOPS_FILL(random)(struct loop_table *t)
{
    t->random = fill_random;
}
