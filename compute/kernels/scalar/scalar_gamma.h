/* log|gamma(x)| for -20 < x < -2, part of scalar.h; for devices, whose own lgamma is up to some
 * hundred units in the last place off near its zeros there. (The C library's is good.) Within 7
 * units in the last place of the true value where log and log1p are within one.
 *
 * With m the integer nearest to -x and d = x + m, gamma(x) = gamma(2 + d) / ((1 + d) d (d - 1) …
 * (d - m)). Between two halves of an integer lies one zero, at d0 (hi and lo parts in the table),
 * so that there, with delta = d - d0,
 *
 *   lgamma(x) = lgamma(2 + d) - lgamma(2 + d0) - log of the product over j = -1 … m of
 *               (d - j) / (d0 - j) = 1 + delta / (d0 - j),
 *
 * which keeps its relative precision as delta goes to 0: the product less 1 is summed up as such,
 * and the first difference is delta times a divided difference of a polynomial in d (c is
 * lgamma(2 + d) / d). The two zeros between -2 and -3 lie so near to each other that terms cancel:
 * there lgamma(x) is the product of its distances from both and a polynomial in x + 2.625 (pair).
 * Both polynomials are good to 3e-17. The tables were made with mpmath, at 300 bits. */
AR_FN ar_f64 ar_lgamma_minus_F64(ar_f64 x)
{
    static const ar_f64 zeros[][2] = {
        {-0x1.d3fe4b007c361p-2, 0x1.541360cea0e60p-56},
        {0x1.025f7af2137fap-2, -0x1.7995a4b4641ebp-56},
        {-0x1.260dbc9e59af8p-3, 0x1.1d065994b0991p-58},
        {0x1.6e3aae0f406bdp-5, 0x1.e5753daddb926p-61},
        {-0x1.4273c2ccac062p-5, 0x1.e307a790f3f77p-59},
        {0x1.1510b222a0657p-7, 0x1.e5eab7f12cef6p-61},
        {-0x1.0d4afe16db219p-7, -0x1.498adcb2a729cp-61},
        {0x1.6d0a6e0bf2a09p-10, -0x1.4ed62cbd31ee0p-64},
        {-0x1.6b25897c8ced8p-10, -0x1.f0b65b458e173p-66},
        {0x1.a044a3c880185p-13, 0x1.d949a3dc02de1p-68},
        {-0x1.9fef6ff0f5be9p-13, 0x1.be919233c3eaap-67},
        {0x1.a01fa98c3c356p-16, 0x1.7d4add4f3562dp-72},
        {-0x1.a01459fc9f60dp-16, 0x1.30c4f8c4dea26p-70},
        {0x1.71ded0bf801bdp-19, -0x1.3a55d249679f9p-74},
        {-0x1.71dda3ec36b6cp-19, -0x1.0ffb70d477adfp-74},
        {0x1.27e50808cbe75p-22, 0x1.1885afab83963p-76},
        {-0x1.27e4eee649ed1p-22, -0x1.d95e15441e031p-76},
        {0x1.ae64583932495p-26, -0x1.a55b7a31a0b4ap-81},
        {-0x1.ae6454c576597p-26, 0x1.90015bf1b415cp-80},
        {0x1.1eed8f18f0438p-29, -0x1.acc3d3c978bd8p-84},
        {-0x1.1eed8ee62acf8p-29, -0x1.e04a1e70f241cp-85},
        {0x1.6124613d00d0bp-33, 0x1.001c54155b96cp-87},
        {-0x1.612461380cd08p-33, 0x1.17237e0e47fbdp-87},
        {0x1.93974a8c3cf6cp-37, -0x1.f04e88bb6e247p-91},
        {-0x1.93974a8bd29cfp-37, 0x1.09d47384560edp-91},
        {0x1.ae7f3e733f622p-41, -0x1.81b8fc4e9b9acp-95},
        {-0x1.ae7f3e7337a1dp-41, 0x1.ef83d0b08e728p-95},
        {0x1.ae7f3e733bc16p-45, -0x1.2e72e4d113627p-100},
        {-0x1.ae7f3e733b428p-45, -0x1.25fc9dc8f8bbep-99},
        {0x1.952c77030ad84p-49, -0x1.c46a08a2e008bp-104},
        {-0x1.952c77030ad11p-49, -0x1.db2968e993b05p-106},
        {0x1.6827863b97d9ap-53, 0x1.7ba6a46cf3c1cp-107},
        {-0x1.6827863b97d95p-53, 0x1.9e268029a25b6p-107},
        {0x1.2f49b46814157p-57, 0x1.1893668e3dbd0p-111},
        {-0x1.2f49b46814157p-57, -0x1.b7b1f1f001c73p-116},
        {0x1.e542ba4020225p-62, 0x1.4c0c6f9543d5dp-119},
    };
    static const ar_f64 c[] = {
        0x1.b0ee6072093cep-2,   0x1.4a34cc4a60fa6p-2,   -0x1.13e001a557555p-4,
        0x1.51322ac7d8333p-6,   -0x1.e404fc21d8fe7p-8,  0x1.7add6eadfcc7bp-9,
        -0x1.38ac5bfce42c1p-10, 0x1.0b36af5972ed1p-11,  -0x1.d3fd6a9087d23p-13,
        0x1.a127cd91ac95bp-14,  -0x1.78d8f868f383fp-15, 0x1.5808af19fa483p-16,
        -0x1.3d4ce65b1d70bp-17, 0x1.2620de1c78d97p-18,  -0x1.08fccc794a9c7p-19,
        0x1.f038cb2f6a913p-21,  -0x1.37fd97eeee99dp-21, 0x1.2703c6effc4ebp-22};
    static const ar_f64 pair[] = {
        0x1.6cf28fef7a25ep+2,   -0x1.3875a0ed7d358p+2,  0x1.d2d39b623a3f8p+3,
        -0x1.8c7f65449f06ap+4,  0x1.fbd253dedd6e9p+5,   -0x1.0bc46b6368a69p+7,
        0x1.48e5d0131ad76p+8,   -0x1.7ae3f16061794p+9,  0x1.cf693a781d907p+10,
        -0x1.162081b2053bcp+12, 0x1.566b4793a582bp+13,  -0x1.a420a5e1c9f08p+14,
        0x1.04da4c844949dp+16,  -0x1.443d10b9c07bep+17, 0x1.95d7b600b7e81p+18,
        -0x1.ffd5bd904d476p+19, 0x1.42889d254af2dp+21,  -0x1.83e70136252d0p+22,
        0x1.eb2f325dd28f3p+23,  -0x1.9c111942d1fccp+25, 0x1.06fbfd14e984ep+27,
        -0x1.02eb3930dc878p+23, 0x1.e92ce829cccbep+23,  -0x1.381b8b16d21f5p+32,
        0x1.91689989626dep+33};
    if (x > -2.78 && x < -2.47) {
        ar_f64 f = 0;
        for (int k = 24; k >= 0; k--)
            f = fma(f, x + 2.625, pair[k]);
        return f * (x + 2 - zeros[0][0] - zeros[0][1]) * (x + 3 - zeros[1][0] - zeros[1][1]);
    }
    int half = (int)(-2 * x), m = (half + 1) / 2;
    ar_f64 d = x + m, d0 = zeros[half - 4][0], delta = d - d0 - zeros[half - 4][1];
    ar_f64 product = 0, difference = 0, b = 0; /* product: minus 1 */
    for (int j = m; j >= -1; j--) {
        ar_f64 t = j == 0 ? 0 : delta / (d0 - j);
        product = fma(product, t, product + t);
    }
    for (int k = 17; k >= 0; k--) {
        b = fma(b, d0, c[k]);
        difference = fma(difference, d, b);
    }
    ar_f64 t = delta / d0, near = fma(product, t, product + t);
    /* far from the zero, 1 + near has lost the digits that near holds */
    ar_f64 log_product = fabs(near) < 0.5 ? log1p(near) : log((product + 1) * (d / d0));
    return fma(delta, difference, -log_product);
}
