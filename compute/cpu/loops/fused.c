/* Chooses the table of the same instruction set as the other loops. */
#include "compute/cpu/loops/fused.h"

#include <pthread.h>

#include "compute/base/isa.h"

static struct fused_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    ISA_PICK(fused_fill)(&table);
}

sum_fn *fused_sum(enum dtype t)
{
    pthread_once(&once, choose);
    return table.sum[t == DT_F64];
}

loop_fn *fused_loop(enum dtype t, enum fused_first first, enum fused_step second, int third)
{
    pthread_once(&once, choose);
    int type = t == DT_F64;
    return third < 0 ? table.two[type][first][second] : table.three[type][first][second][third];
}
