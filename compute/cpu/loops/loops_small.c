/* Loops of bool and the 8 and 16 bit integers, out of scalar.h; vectorised by the compiler. */
#include "compute/cpu/loops/loops_ints.h"

#define LOOPS(T, A) INT_UNARY(LOOP_UNARY, T, A) INT_BINARY(LOOP_BINARY, T, A)
LOOPS(I8, ar_i8)
LOOPS(U8, ar_u8)
LOOPS(I16, ar_i16)
LOOPS(U16, ar_u16)

#define BOOL_BINARY(X, T, A)                                                                       \
    INTEGRAL_BINARY(X, T, A)                                                                       \
    X(LOGICAL_AND, T, A, A)                                                                        \
    X(LOGICAL_OR, T, A, A)                                                                         \
    X(LOGICAL_XOR, T, A, A)
#define BOOL_UNARY(X, T, A)                                                                        \
    INTEGRAL_UNARY(X, T, A)                                                                        \
    X(LOGICAL_NOT, T, A, A)
BOOL_UNARY(LOOP_UNARY, BOOL, ar_bool)
BOOL_BINARY(LOOP_BINARY, BOOL, ar_bool)

void LOOPS_FILL(small)(struct loop_table *t)
{
#define SET(T) INT_UNARY(LOOP_SET, T, ) INT_BINARY(LOOP_SET, T, )
    SET(I8)
    SET(U8)
    SET(I16)
    SET(U16)
    BOOL_UNARY(LOOP_SET, BOOL, )
    BOOL_BINARY(LOOP_SET, BOOL, )
}
