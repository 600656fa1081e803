/* A slice that found no memory begins again once the engine has made room, as a request is repeated
 * (memory_pressure.c): the engine moves out arrays that were not used for long, or waits for work
 * under way. No thread waits; the job counts as in a slice until the engine has answered. */
#include "server/jobs/jobs_int.h"

#define MOST_TRIES 100
#define FRUITLESS  4 /* tries that an answer without room counts as: it takes milliseconds */

static void answered(void *user, enum err_code result, double device_ms)
{
    struct user_job *j = user;
    struct jobs *t = j->table;
    (void)device_ms;
    pthread_mutex_lock(&t->lock);
    j->lacks += result == ERR_OK ? 1 : result == ERR_OVERLOADED ? FRUITLESS : MOST_TRIES;
    j->makes_room = false;
    t->in_slice--;
    job_make_ready(j);
    worker_wake(&t->worker);
    pthread_mutex_unlock(&t->lock);
}

bool job_make_room(struct user_job *j, const struct err *e)
{
    struct jobs *t = j->table;
    if (e->code != ERR_OUT_OF_MEMORY || e->wanted <= 0)
        return false;
    pthread_mutex_lock(&t->lock);
    bool again = j->lacks > 0, asks = j->lacks < MOST_TRIES && !j->cancel && !t->stopping;
    if (asks) {
        j->makes_room = true;
        t->in_slice++;
    }
    pthread_mutex_unlock(&t->lock);
    if (!asks)
        return false;
    program_rest(j->body.program);
    j->eviction = (struct eviction){.device = e->device,
                                    .bytes = e->wanted,
                                    .stay = !t->config.evict,
                                    .again = again,
                                    .until = e->until,
                                    .done = answered,
                                    .user = j};
    engine_evict(t->config.engine, &j->eviction);
    return true;
}
