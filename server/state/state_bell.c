/* The bell is a flag and a condition variable: a ring before the wait is not lost. */
#include "server/state/state_bell.h"

#include "compute/base/clock.h"

enum err_code state_bell_init(struct state_bell *b, struct err *e)
{
    *b = (struct state_bell){0};
    if (pthread_mutex_init(&b->lock, NULL) != 0)
        return err_oom(e);
    clock_cond_init(&b->cond);
    return ERR_OK;
}

void state_bell_free(struct state_bell *b)
{
    pthread_cond_destroy(&b->cond);
    pthread_mutex_destroy(&b->lock);
}

void state_bell_ring(void *user)
{
    struct state_bell *b = user;
    pthread_mutex_lock(&b->lock);
    b->rung = true;
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->lock);
}

void state_bell_done(void *user, enum err_code result, double device_ms)
{
    struct state_bell *b = user;
    (void)device_ms;
    b->result = result;
    state_bell_ring(b);
}

bool state_bell_wait(struct state_bell *b)
{
    struct timespec until = clock_after(0.05);
    pthread_mutex_lock(&b->lock);
    if (!b->rung)
        pthread_cond_timedwait(&b->cond, &b->lock, &until);
    bool rung = b->rung;
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
    return rung;
}
