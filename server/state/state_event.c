/* A flag and a condition variable: an event that is set before the wait is not lost. */
#include "server/state/state_event.h"

#include "compute/base/clock.h"

enum err_code state_event_init(struct state_event *v, struct err *e)
{
    *v = (struct state_event){0};
    if (pthread_mutex_init(&v->lock, NULL) != 0)
        return err_oom(e);
    clock_cond_init(&v->cond);
    return ERR_OK;
}

void state_event_free(struct state_event *v)
{
    pthread_cond_destroy(&v->cond);
    pthread_mutex_destroy(&v->lock);
}

void state_event_set(void *user)
{
    struct state_event *v = user;
    pthread_mutex_lock(&v->lock);
    v->is_set = true;
    pthread_cond_signal(&v->cond);
    pthread_mutex_unlock(&v->lock);
}

void state_event_done(void *user, enum err_code result, double device_ms)
{
    struct state_event *v = user;
    (void)device_ms;
    v->result = result;
    state_event_set(v);
}

bool state_event_wait(struct state_event *v)
{
    struct timespec until = clock_after(0.05);
    pthread_mutex_lock(&v->lock);
    if (!v->is_set)
        pthread_cond_timedwait(&v->cond, &v->lock, &until);
    bool is_set = v->is_set;
    v->is_set = false;
    pthread_mutex_unlock(&v->lock);
    return is_set;
}
