/* float16 and bfloat16 to and from float32 and float64; part of scalar.h.
 *
 * Branch-free integer arithmetic (selects only), so that loops over them vectorise. Round to
 * nearest even, subnormals kept, NaNs made quiet with their upper payload bits: bit for bit what
 * F16C does, so the loops may use it. The float16 pair is Fabian Giesen's (2012, public domain
 * notes): subnormals are rounded by adding a magic number whose ulp is theirs. */
#ifndef ARRAYD_SCALAR_HALF_H
#define ARRAYD_SCALAR_HALF_H

AR_FN ar_f32 ar_f16_to_f32(ar_f16 h)
{
    ar_u32 sign = (ar_u32)(h & 0x8000u) << 16;
    ar_u32 m = (ar_u32)(h & 0x7fffu) << 13;
    ar_u32 e = m & 0x0f800000u;
    ar_u32 normal = m + (112u << 23);
    ar_u32 special = (m + (224u << 23)) | (m & 0x007fe000u ? 0x00400000u : 0u);
    /* a subnormal: as if it had the implicit one, minus that one */
    ar_u32 sub =
        ar_bits_F32(ar_from_bits_F32(m + (113u << 23)) - ar_from_bits_F32((ar_u32)113u << 23));
    ar_u32 r = e == 0 ? sub : normal;
    r = e == 0x0f800000u ? special : r;
    return ar_from_bits_F32(r | sign);
}

AR_FN ar_f16 ar_f32_to_f16(ar_f32 x)
{
    ar_u32 bits = ar_bits_F32(x);
    ar_u32 u = bits & 0x7fffffffu;
    ar_u32 special = u > 0x7f800000u ? 0x7e00u | ((u >> 13) & 0x3ffu) : 0x7c00u;
    /* the ulp of 0.5 is the smallest float16 subnormal, so the addition rounds for us */
    ar_u32 sub = ar_bits_F32(ar_from_bits_F32(u) + 0.5f) - 0x3f000000u;
    ar_u32 normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
    ar_u32 r = u < (113u << 23) ? sub : normal;
    r = u >= (143u << 23) ? special : r;
    return (ar_f16)(r | ((bits >> 16) & 0x8000u));
}

AR_FN ar_f32 ar_bf16_to_f32(ar_bf16 h)
{
    return ar_from_bits_F32((ar_u32)h << 16);
}

AR_FN ar_bf16 ar_f32_to_bf16(ar_f32 x)
{
    ar_u32 u = ar_bits_F32(x);
    ar_u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    ar_u32 quiet = (u >> 16) | 0x40u;
    return (ar_bf16)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* float64 → float32 rounded to odd: an inexact result gets its last bit set. Rounding that again to
 * a type at least two bits narrower gives the correctly rounded result; going through the nearest
 * float32 would round twice. */
AR_FN ar_f32 ar_f64_to_f32_odd(ar_f64 x)
{
    ar_f32 f = (ar_f32)x;
    ar_u32 u = ar_bits_F32(f);
    ar_f64 back = (ar_f64)f;
    ar_u32 away = fabs(back) > fabs(x) ? 1u : 0u;
    ar_u32 odd = (u - away) | 1u;
    /* equal: exact; unequal to itself: NaN */
    return ar_from_bits_F32(back == x || x != x ? u : odd);
}

AR_FN ar_f16 ar_f64_to_f16(ar_f64 x)
{
    return ar_f32_to_f16(ar_f64_to_f32_odd(x));
}
AR_FN ar_bf16 ar_f64_to_bf16(ar_f64 x)
{
    return ar_f32_to_bf16(ar_f64_to_f32_odd(x));
}

/* nextafter is the one operation that cannot be computed in float32 and rounded, because the next
 * float32 is nearer. Bits of one sign are ordered as integers. */
AR_FN ar_u16 ar_half_next(ar_u16 a, ar_u16 b, ar_f32 x, ar_f32 y)
{
    ar_u16 up = (ar_u16)((x < y) == (x > 0) ? a + 1 : a - 1);
    ar_u16 r = x == 0 ? (ar_u16)((b & 0x8000u) | 1) : up;
    r = x == y ? b : r;
    r = y != y ? b : r;
    return x != x ? a : r;
}
AR_FN ar_f16 ar_NEXTAFTER_F16(ar_f16 a, ar_f16 b)
{
    return ar_half_next(a, b, ar_f16_to_f32(a), ar_f16_to_f32(b));
}
AR_FN ar_bf16 ar_NEXTAFTER_BF16(ar_bf16 a, ar_bf16 b)
{
    return ar_half_next(a, b, ar_bf16_to_f32(a), ar_bf16_to_f32(b));
}

#endif
