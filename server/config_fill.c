/* Default bounds that depend on the machine: a fixed share of its memory for arrays in host memory,
 * and one for work. No user gets more than half of the work memory, and no request all of its
 * user's, so that a request too large by itself is told so. */
#include "compute/base/mem.h"
#include "server/config.h"

/* The bounds, unless the machine is small: */
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
