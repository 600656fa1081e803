/* Chooses the table of the same instruction set as the other loops. */
#include "compute/cpu/loops/fused.h"

#include <pthread.h>

#include "compute/base/isa.h"

static struct fused_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    switch (isa_now()) {
#if defined(__x86_64__)
    case ISA_AVX512:
        fused_fill_avx512(&table);
        break;
    case ISA_AVX2:
        fused_fill_avx2(&table);
        break;
#endif
    default:
        fused_fill_baseline(&table);
        break;
    }
}

loop_fn *fused_loop(enum dtype t, enum fused_first first, enum fused_step second, int third)
{
    pthread_once(&once, choose);
    int type = t == DT_F64;
    return third < 0 ? table.two[type][first][second] : table.three[type][first][second][third];
}
