/* Bounds by the machine: a fixed share of its memory for arrays that were moved to it, and one for
 * work, of which no user has more than half, and a request not all that its user has: where it is
 * too large by itself it is to be told so. */
#include "compute/base/mem.h"
#include "server/config.h"

/* On a machine that is not small: */
#define USER_WORK    (320 << 20)
#define REQUEST_WORK (256 << 20)

static void fill(int64_t *value, int64_t most, int64_t of_it)
{
    if (!*value)
        *value = of_it < most ? of_it : most;
}

void config_fill(struct config *c)
{
    fill(&c->host_memory, INT64_MAX, mem_machine() / 2);
    fill(&c->total_request_memory, INT64_MAX, mem_machine() / 4);
    fill(&c->request_memory, USER_WORK, c->total_request_memory / 2);
    fill(&c->max_request_memory, REQUEST_WORK, c->request_memory / 5 * 4);
}
