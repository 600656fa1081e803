/* Loops of the 32 and 64 bit integers, out of scalar.h; vectorised by the compiler. */
#include "compute/cpu/loops/loops_ints.h"

#define LOOPS(T, A) INT_UNARY(LOOP_UNARY, T, A) INT_BINARY(LOOP_BINARY, T, A)
LOOPS(I32, ar_i32)
LOOPS(U32, ar_u32)
LOOPS(I64, ar_i64)
LOOPS(U64, ar_u64)

void LOOPS_FILL(int)(struct loop_table *t)
{
#define SET(T) INT_UNARY(LOOP_SET, T, ) INT_BINARY(LOOP_SET, T, )
    SET(I32)
    SET(U32)
    SET(I64)
    SET(U64)
}
