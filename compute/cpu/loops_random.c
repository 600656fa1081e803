/* Random numbers, scalar_random.h's meaning in chunks: first the Philox words of a chunk into four
 * arrays (that loop vectorises; ten rounds of 32-bit products), then the distribution over them.
 * The normal distribution's logarithm, sine and cosine are the vector loops of loops_math.c, which
 * the table holds by the time anybody asks for numbers. */
#include "compute/cpu/loops_table.h"
#include "compute/kernels/scalar.h"

enum { RANDOM_CHUNK = 256 };

struct words {
    ar_u32 w[4][RANDOM_CHUNK];
};

/* ar_philox4x32 with the loops exchanged: a round over the whole chunk vectorises, ten rounds over
 * an element do not. The tests hold it against the published vectors. */
static void philox(struct words *r, ar_u64 seed, const int64_t *index, size_t n)
{
    ar_u32 *restrict w0 = r->w[0], *restrict w1 = r->w[1];
    ar_u32 *restrict w2 = r->w[2], *restrict w3 = r->w[3];
    ar_u32 k0 = (ar_u32)seed, k1 = (ar_u32)(seed >> 32);
    for (size_t i = 0; i < n; i++) {
        w0[i] = (ar_u32)(ar_u64)index[i];
        w1[i] = (ar_u32)((ar_u64)index[i] >> 32);
        w2[i] = w3[i] = 0;
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (size_t i = 0; i < n; i++) {
            ar_u64 p0 = (ar_u64)0xD2511F53u * w0[i], p1 = (ar_u64)0xCD9E8D57u * w2[i];
            w0[i] = (ar_u32)(p1 >> 32) ^ w1[i] ^ k0;
            w2[i] = (ar_u32)(p0 >> 32) ^ w3[i] ^ k1;
            w1[i] = (ar_u32)p1;
            w3[i] = (ar_u32)p0;
        }
}

/* Box–Muller; see ar_normal_F64 and ar_cos_turn. */
static void normal(const struct words *r, double *out, size_t n)
{
    double u[RANDOM_CHUNK], angle[RANDOM_CHUNK], sine[RANDOM_CHUNK], cosine[RANDOM_CHUNK];
    ar_i32 quadrant[RANDOM_CHUNK];
    const void *args[1];
    for (size_t i = 0; i < n; i++)
        u[i] = ar_uniform_open(r->w[0][i], r->w[1][i]);
    for (size_t i = 0; i < n; i++) {
        double v = ar_uniform_open(r->w[2][i], r->w[3][i]);
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
                u64[i] = low + ar_mulhi_U64(ar_philox_u64(r.w[0][i], r.w[1][i]), range);
        } else if (p->dist == RANDOM_UNIFORM && t == DT_F32) {
            for (size_t i = 0; i < m; i++)
                f32[i] = (ar_f32)(ar_i32)(r.w[0][i] >> 8) * 0x1p-24f;
        } else if (p->dist == RANDOM_UNIFORM) {
            for (size_t i = 0; i < m; i++)
                f64[i] = (ar_f64)(ar_i64)(ar_philox_u64(r.w[0][i], r.w[1][i]) >> 11) * 0x1p-53;
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
