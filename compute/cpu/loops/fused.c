/* Chooses the table of the instruction set that the other loops use. */
#include "compute/cpu/loops/fused.h"

#include <pthread.h>
#include <string.h>

static struct fused_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
#if defined(__x86_64__)
    if (!strcmp(loop_isa(), "avx512")) {
        fused_fill_avx512(&table);
        return;
    }
    if (!strcmp(loop_isa(), "avx2")) {
        fused_fill_avx2(&table);
        return;
    }
#endif
    fused_fill_baseline(&table);
}

loop_fn *fused_loop(enum dtype t, enum fused_first first, enum fused_step second, int third)
{
    pthread_once(&once, choose);
    int type = t == DT_F64;
    return third < 0 ? table.two[type][first][second] : table.three[type][first][second][third];
}
