/* The lists of integer loops, shared by loops_int.c (32 and 64 bits) and loops_small.c (bool, 8 and
 * 16 bits), which are two files only so that they compile in parallel. */
#ifndef ARRAYD_CPU_LOOPS_INTS_H
#define ARRAYD_CPU_LOOPS_INTS_H

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define INT_UNARY(X, T, A)                                                                         \
    X(NEGATIVE, T, A, A)                                                                           \
    X(POSITIVE, T, A, A)                                                                           \
    X(SIGN, T, A, A)                                                                               \
    X(SQUARE, T, A, A)                                                                             \
    X(SIGNBIT, T, ar_bool, A)                                                                      \
    INTEGRAL_UNARY(X, T, A)
#define INTEGRAL_UNARY(X, T, A)                                                                    \
    X(BITWISE_INVERT, T, A, A)                                                                     \
    X(ABS, T, A, A)                                                                                \
    X(CEIL, T, A, A)                                                                               \
    X(FLOOR, T, A, A)                                                                              \
    X(TRUNC, T, A, A)                                                                              \
    X(ROUND, T, A, A)                                                                              \
    X(CONJ, T, A, A)                                                                               \
    X(REAL, T, A, A)                                                                               \
    X(IMAG, T, A, A)                                                                               \
    X(ISFINITE, T, ar_bool, A)                                                                     \
    X(ISINF, T, ar_bool, A)                                                                        \
    X(ISNAN, T, ar_bool, A)
#define INT_BINARY(X, T, A)                                                                        \
    X(SUBTRACT, T, A, A)                                                                           \
    X(FLOOR_DIVIDE, T, A, A)                                                                       \
    X(REMAINDER, T, A, A)                                                                          \
    X(FMOD, T, A, A)                                                                               \
    X(POW, T, A, A)                                                                                \
    X(BITWISE_LEFT_SHIFT, T, A, A)                                                                 \
    X(BITWISE_RIGHT_SHIFT, T, A, A)                                                                \
    INTEGRAL_BINARY(X, T, A)
#define INTEGRAL_BINARY(X, T, A)                                                                   \
    X(ADD, T, A, A)                                                                                \
    X(MULTIPLY, T, A, A)                                                                           \
    X(MAXIMUM, T, A, A)                                                                            \
    X(MINIMUM, T, A, A)                                                                            \
    X(BITWISE_AND, T, A, A)                                                                        \
    X(BITWISE_OR, T, A, A)                                                                         \
    X(BITWISE_XOR, T, A, A)                                                                        \
    X(EQUAL, T, ar_bool, A)                                                                        \
    X(NOT_EQUAL, T, ar_bool, A)                                                                    \
    X(LESS, T, ar_bool, A)                                                                         \
    X(LESS_EQUAL, T, ar_bool, A)                                                                   \
    X(GREATER, T, ar_bool, A)                                                                      \
    X(GREATER_EQUAL, T, ar_bool, A)

#endif
