/* Whole typed graphs as typed_print shows them, for test_check.c: cases where the expansion is the
 * point. */
#ifndef ARRAYD_TESTS_CHECK_GRAPHS_H
#define ARRAYD_TESTS_CHECK_GRAPHS_H

static const struct {
    const char *text, *want;
} graphs[] = {
    {"u*u + u*u", /* written twice, computed once */
     "%0 = input float32 (4, 5) u\n"
     "%1 = multiply float32 (4, 5) %0 %0\n"
     "%2 = add float32 (4, 5) %1 %1\n"
     "return %2\n"},
    {"x=v*2; u", /* an unused let leaves nothing behind */
     "%0 = input float32 (4, 5) u\n"
     "return %0\n"},
    {"u**2", "%0 = input float32 (4, 5) u\n"
             "%1 = square float32 (4, 5) %0\n"
             "return %1\n"},
    {"u**3/4", "%0 = input float32 (4, 5) u\n"
               "%1 = square float32 (4, 5) %0\n"
               "%2 = multiply float32 (4, 5) %1 %0\n"
               "%3 = const float32 () 0.25\n"
               "%4 = multiply float32 (4, 5) %2 %3\n"
               "return %4\n"},
    {"u/3", "%0 = input float32 (4, 5) u\n"
            "%1 = const float32 () 3\n"
            "%2 = divide float32 (4, 5) %0 %1\n"
            "return %2\n"},
    {"u**astype(2, 'float32')", "%0 = input float32 (4, 5) u\n"
                                "%1 = square float32 (4, 5) %0\n"
                                "return %1\n"},
    {"f16/astype(4, 'float32')", "%0 = input float16 (4, 5) f16\n"
                                 "%1 = cast float32 (4, 5) %0\n"
                                 "%2 = const float32 () 0.25\n"
                                 "%3 = multiply float32 (4, 5) %1 %2\n"
                                 "return %3\n"},
    {"u**-1", "%0 = input float32 (4, 5) u\n"
              "%1 = reciprocal float32 (4, 5) %0\n"
              "return %1\n"},
    {"u**0.5", /* of -0: 0, of -infinity: infinity */
     "%0 = input float32 (4, 5) u\n"
     "%1 = const float32 () inf\n"
     "%2 = const float32 () -inf\n"
     "%3 = sqrt float32 (4, 5) %0\n"
     "%4 = abs float32 (4, 5) %3\n"
     "%5 = equal bool (4, 5) %0 %2\n"
     "%6 = where float32 (4, 5) %5 %1 %4\n"
     "return %6\n"},
    {"u**1.25", "%0 = input float32 (4, 5) u\n"
                "%1 = const float32 () 1.25\n"
                "%2 = pow float32 (4, 5) %0 %1\n"
                "return %2\n"},
    {"u**2.5", "%0 = input float32 (4, 5) u\n"
               "%1 = square float32 (4, 5) %0\n"
               "%2 = const float32 () inf\n"
               "%3 = const float32 () -inf\n"
               "%4 = sqrt float32 (4, 5) %0\n"
               "%5 = abs float32 (4, 5) %4\n"
               "%6 = equal bool (4, 5) %0 %3\n"
               "%7 = where float32 (4, 5) %6 %2 %5\n"
               "%8 = multiply float32 (4, 5) %1 %7\n"
               "return %8\n"},
    {"+floor(real(i8))", "%0 = input int8 (4, 5) i8\n"
                         "return %0\n"},
    {"i64 < u64", "%0 = input int64 (4, 5) i64\n"
                  "%1 = input uint64 (4, 5) u64\n"
                  "%2 = const int64 () 0\n"
                  "%3 = less bool (4, 5) %0 %2\n"
                  "%4 = cast uint64 (4, 5) %0\n"
                  "%5 = less bool (4, 5) %4 %1\n"
                  "%6 = logical_or bool (4, 5) %3 %5\n"
                  "return %6\n"},
    {"u64 <= i8", "%0 = input uint64 (4, 5) u64\n"
                  "%1 = input int8 (4, 5) i8\n"
                  "%2 = const int8 () 0\n"
                  "%3 = less bool (4, 5) %1 %2\n"
                  "%4 = cast uint64 (4, 5) %1\n"
                  "%5 = less_equal bool (4, 5) %0 %4\n"
                  "%6 = logical_not bool (4, 5) %3\n"
                  "%7 = logical_and bool (4, 5) %6 %5\n"
                  "return %7\n"},
    {"where(i8, u, 0)", "%0 = input int8 (4, 5) i8\n"
                        "%1 = input float32 (4, 5) u\n"
                        "%2 = const int8 () 0\n"
                        "%3 = not_equal bool (4, 5) %0 %2\n"
                        "%4 = const float32 () 0\n"
                        "%5 = where float32 (4, 5) %3 %1 %4\n"
                        "return %5\n"},
    {"mean(f16, axis=1)", "%0 = input float16 (4, 5) f16\n"
                          "%1 = cast float32 (4, 5) %0\n"
                          "%2 = mean float32 (4,) %1 axes [1] by 5\n"
                          "%3 = cast float16 (4,) %2\n"
                          "return %3\n"},
    {"var(u, axis=0, correction=1)", "%0 = input float32 (4, 5) u\n"
                                     "%1 = var float32 (5,) %0 axes [0] by 3\n"
                                     "return %1\n"},
    {"var(c64, 0)", "%0 = input complex64 (4, 5) c64\n"
                    "%1 = mean complex64 (1, 5) %0 axes [0] keepdims by 4\n"
                    "%2 = subtract complex64 (4, 5) %0 %1\n"
                    "%3 = real float32 (4, 5) %2\n"
                    "%4 = imag float32 (4, 5) %2\n"
                    "%5 = square float32 (4, 5) %3\n"
                    "%6 = square float32 (4, 5) %4\n"
                    "%7 = add float32 (4, 5) %5 %6\n"
                    "%8 = mean float32 (5,) %7 axes [0] by 4\n"
                    "return %8\n"},
    {"argmin(i8, axis=-1, keepdims=True)", "%0 = input int8 (4, 5) i8\n"
                                           "%1 = argmin int64 (4, 1) %0 axes [1] keepdims\n"
                                           "return %1\n"},
    {"count_nonzero(u)", "%0 = input float32 (4, 5) u\n"
                         "%1 = const float32 () 0\n"
                         "%2 = not_equal bool (4, 5) %0 %1\n"
                         "%3 = cast int64 (4, 5) %2\n"
                         "%4 = sum int64 () %3 axes [0, 1]\n"
                         "return %4\n"},
    {"dot(row, i8[0])", "%0 = input int8 (4, 5) i8\n"
                        "%1 = view int8 (5,) %0 [0, i0]\n"
                        "%2 = input float32 (5,) row\n"
                        "%3 = cast float32 (5,) %1\n"
                        "%4 = multiply float32 (5,) %2 %3\n"
                        "%5 = sum float32 () %4 axes [0]\n"
                        "return %5\n"},
    {"laplacian(row, boundary='wrap')", "%0 = input float32 (5,) row\n"
                                        "%1 = shift float32 (5,) %0 [1] wrap\n"
                                        "%2 = shift float32 (5,) %0 [-1] wrap\n"
                                        "%3 = const float32 () 2\n"
                                        "%4 = multiply float32 (5,) %3 %0\n"
                                        "%5 = subtract float32 (5,) %1 %4\n"
                                        "%6 = add float32 (5,) %5 %2\n"
                                        "return %6\n"},
    {"correlate(row, [1, 0, 1], 'wrap')",
     "%0 = input float32 (5,) row\n" /* nothing is multiplied */
     "%1 = shift float32 (5,) %0 [-1] wrap\n"
     "%2 = shift float32 (5,) %0 [1] wrap\n"
     "%3 = add float32 (5,) %1 %2\n"
     "return %3\n"},
    {"central_diff(row, 0, spacing=0.3)", "%0 = input float32 (5,) row\n"
                                          "%1 = shift float32 (5,) %0 [1] self\n"
                                          "%2 = shift float32 (5,) %0 [-1] self\n"
                                          "%3 = subtract float32 (5,) %1 %2\n"
                                          "%4 = const float32 () 0.600000024\n"
                                          "%5 = divide float32 (5,) %3 %4\n"
                                          "return %5\n"},
    /* far offsets come back into range */
    {"shift(u, [1000, -1], 'reflect')", "%0 = input float32 (4, 5) u\n"
                                        "%1 = shift float32 (4, 5) %0 [4, -1] reflect\n"
                                        "return %1\n"},
    {"shift(u, [9223372036854775807, -7], 'wrap')", "%0 = input float32 (4, 5) u\n"
                                                    "%1 = shift float32 (4, 5) %0 [3, -2] wrap\n"
                                                    "return %1\n"},
    {"shift(u, [-9223372036854775808, 0])", "%0 = input float32 (4, 5) u\n"
                                            "%1 = shift float32 (4, 5) %0 [-4, 0] self\n"
                                            "return %1\n"},
    {"shift(i8, [0, 1], 'constant', -1)", "%0 = input int8 (4, 5) i8\n"
                                          "%1 = const int8 () -1\n"
                                          "%2 = shift int8 (4, 5) %0 %1 [0, 1] constant\n"
                                          "return %2\n"},
    {"shift(u, [4, 0], 'wrap')", "%0 = input float32 (4, 5) u\n"
                                 "return %0\n"},
    {"u[:, ...]", "%0 = input float32 (4, 5) u\n"
                  "return %0\n"},
    {"u[2, None, ::-2]", "%0 = input float32 (4, 5) u\n"
                         "%1 = view float32 (1, 3) %0 [2, 4 + -2*i1]\n"
                         "return %1\n"},
    /* index() is of the whole expression's shape, also beside a narrower operand */
    {"astype(index(0), 'float32')*row + u", "%0 = input float32 (5,) row\n"
                                            "%1 = input float32 (4, 5) u\n"
                                            "%2 = index int64 (4, 5) axis 0\n"
                                            "%3 = cast float32 (4, 5) %2\n"
                                            "%4 = multiply float32 (4, 5) %3 %0\n"
                                            "%5 = add float32 (4, 5) %4 %1\n"
                                            "return %5\n"},
    /* views of the array itself, where its strides allow them */
    {"reshape(u, [2, 10])", "%0 = input float32 (2, 10) u\n"
                            "return %0\n"},
    {"reshape(u[1:3], -1)", "%0 = input float32 (10,) u\n"
                            "return %0\n"},
    {"reshape(reshape(u + v, [20]), [2, 10])", "%0 = input float32 (4, 5) u\n"
                                               "%1 = input float32 (4, 5) v\n"
                                               "%2 = add float32 (4, 5) %0 %1\n"
                                               "%3 = reshape float32 (2, 10) %2\n"
                                               "return %3\n"},
    {"take(u, [3, 2, 1], 0)", "%0 = input float32 (4, 5) u\n"
                              "%1 = view float32 (3, 5) %0 [3 + -1*i0, i1]\n"
                              "return %1\n"},
    {"roll(u, [1, 9], [0, 1])", "%0 = input float32 (4, 5) u\n"
                                "%1 = shift float32 (4, 5) %0 [-1, -4] wrap\n"
                                "return %1\n"},
    /* empty pieces are not there */
    {"concat([none, u, none, i8])", "%0 = input float32 (4, 5) u\n"
                                    "%1 = input int8 (4, 5) i8\n"
                                    "%2 = cast float32 (4, 5) %1\n"
                                    "%3 = put float32 (8, 5) %0 axis 0 at 0\n"
                                    "%4 = put float32 (8, 5) %2 %3 axis 0 at 4\n"
                                    "return %4\n"},
    /* index() in an operand is the operand's, whatever becomes of it */
    {"flip(row + index(0))", "%0 = input float32 (5,) row\n"
                             "%1 = cast float64 (5,) %0\n"
                             "%2 = index int64 (5,) axis 0\n"
                             "%3 = cast float64 (5,) %2\n"
                             "%4 = add float64 (5,) %1 %3\n"
                             "%5 = view float64 (5,) %4 [i0]\n"
                             "%6 = view float64 (5,) %5 [4 + -1*i0]\n"
                             "return %6\n"},
    /* one let, two scopes, two shapes */
    {"i=index(-1); sum(i*i8) + i*i8[0]", "%0 = input int8 (4, 5) i8\n"
                                         "%1 = cast int64 (4, 5) %0\n"
                                         "%2 = index int64 (4, 5) axis 1\n"
                                         "%3 = multiply int64 (4, 5) %2 %1\n"
                                         "%4 = sum int64 () %3 axes [0, 1]\n"
                                         "%5 = view int8 (5,) %0 [0, i0]\n"
                                         "%6 = cast int64 (5,) %5\n"
                                         "%7 = index int64 (5,) axis 0\n"
                                         "%8 = multiply int64 (5,) %7 %6\n"
                                         "%9 = add int64 (5,) %4 %8\n"
                                         "return %9\n"},
};

#endif
