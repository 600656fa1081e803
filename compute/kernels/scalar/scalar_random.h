/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11)
 * and the distributions derived from it; part of scalar.h.
 *
 * Key: the seed's low and high word. Counter: (element index low, high, 0, 0). Element i depends
 * only on the seed and i, so any piece of an array can be made anywhere. */
#ifndef ARRAYD_SCALAR_RANDOM_H
#define ARRAYD_SCALAR_RANDOM_H

struct ar_philox {
    ar_u32 w[4];
};

AR_FN struct ar_philox ar_philox4x32(struct ar_philox c, ar_u32 k0, ar_u32 k1)
{
    for (int round = 0; round < 10; round++) {
        ar_u64 p0 = (ar_u64)0xD2511F53u * c.w[0], p1 = (ar_u64)0xCD9E8D57u * c.w[2];
        ar_u32 w0 = (ar_u32)(p1 >> 32) ^ c.w[1] ^ k0, w2 = (ar_u32)(p0 >> 32) ^ c.w[3] ^ k1;
        c.w[1] = (ar_u32)p1;
        c.w[3] = (ar_u32)p0;
        c.w[0] = w0;
        c.w[2] = w2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}
AR_FN struct ar_philox ar_philox(ar_u64 seed, ar_i64 index)
{
    struct ar_philox c = {{(ar_u32)(ar_u64)index, (ar_u32)((ar_u64)index >> 32), 0, 0}};
    return ar_philox4x32(c, (ar_u32)seed, (ar_u32)(seed >> 32));
}

/* High half of the 128-bit product. */
AR_FN ar_u64 ar_mulhi_U64(ar_u64 a, ar_u64 b)
{
    ar_u64 al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    ar_u64 mid = ah * bl + ((al * bl) >> 32), mid2 = al * bh + (mid & 0xffffffffu);
    return ah * bh + (mid >> 32) + (mid2 >> 32);
}

AR_FN ar_u64 ar_philox_u64(ar_u32 high, ar_u32 low)
{
    return (ar_u64)high << 32 | low;
}
/* [0, 1) */
AR_FN ar_f32 ar_uniform_F32(struct ar_philox p)
{
    return (ar_f32)(p.w[0] >> 8) * 0x1p-24f;
}
AR_FN ar_f64 ar_uniform_F64(struct ar_philox p)
{
    return (ar_f64)(ar_philox_u64(p.w[0], p.w[1]) >> 11) * 0x1p-53;
}
/* (0, 1], so that its logarithm is finite */
AR_FN ar_f64 ar_uniform_open(ar_u32 high, ar_u32 low)
{
    return (ar_f64)((ar_philox_u64(high, low) >> 11) + 1) * 0x1p-53;
}
/* [low, high); arithmetic is modulo 2^64, so it serves int64 and uint64. */
AR_FN ar_u64 ar_integers(struct ar_philox p, ar_u64 low, ar_u64 high)
{
    return low + ar_mulhi_U64(ar_philox_u64(p.w[0], p.w[1]), high - low);
}
/* cos(2πu) for 0 ≤ u ≤ 1: reduced exactly to an eighth of a turn before multiplying by π, so that
 * its zeros are as accurate as the rest and every backend agrees. */
AR_FN ar_f64 ar_cos_turn(ar_f64 u)
{
    ar_f64 q = rint(4 * u), r = (u - 0.25 * q) * 6.28318530717958647693;
    int k = (int)q & 3;
    ar_f64 v = k & 1 ? sin(r) : cos(r);
    return k == 1 || k == 2 ? -v : v;
}
/* Box–Muller */
AR_FN ar_f64 ar_normal_F64(struct ar_philox p)
{
    ar_f64 u = ar_uniform_open(p.w[0], p.w[1]), v = ar_uniform_open(p.w[2], p.w[3]);
    return sqrt(-2 * log(u)) * ar_cos_turn(v);
}
AR_FN ar_f32 ar_normal_F32(struct ar_philox p)
{
    return (ar_f32)ar_normal_F64(p);
}

#endif
