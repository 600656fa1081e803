/* A GPU of a mesh runs jobs of two devices, which have a queue and a lock each. What runs there is
 * counted, and which job has it to itself is noted, under one more lock for all GPUs, which is
 * taken last: a job starts on all GPUs of its device at once, or it does not start, and holds
 * nothing. So jobs that want several GPUs to themselves cannot each have one and wait for the
 * other's. And what runs waits for nothing that has not started: a job leaves its queue when the
 * jobs of other devices that it waits for are over, and those of its own have been launched. So it
 * ends, and then whoever asks first may start: no circle.
 *
 * Work that is held back for a job that waits for several GPUs is held back on all of them, or they
 * would never be idle at once. */
#include "compute/gpu/cuda/beside.h"

#include "compute/base/clock.h"
#include "compute/base/lock.h"

/* Where no GPU is two devices', the device's own lock does. Asked while the mesh is being opened,
 * too, and always with the same answer. */
static bool shares(const struct cuda_device *d)
{
    return d->cuda->config.mesh;
}

static void enter(struct cuda_device *d)
{
    lock_held(&d->lock);
    if (shares(d))
        pthread_mutex_lock(&d->cuda->beside_lock);
}

static void leave(struct cuda_device *d)
{
    if (shares(d))
        pthread_mutex_unlock(&d->cuda->beside_lock);
}

static bool allowed(struct cuda_device *d, const struct job *job)
{
    struct alone *alone[BACKEND_PARTS];
    bool busy = false, asks = job->alone;
    for (int k = 0; k < d->n_members; k++) {
        struct cuda_device *m = d->members[k];
        alone[k] = &m->alone;
        busy |= m->running > 0;
        asks |= m->alone.runs || m->alone.waits;
    }
    return !asks || alone_may_start_on(alone, d->n_members, job, job->alone, busy, clock_ns());
}

bool beside_may_start(struct cuda_device *d, const struct job *job)
{
    enter(d);
    const bool may = allowed(d, job);
    for (int k = 0; k < d->n_members && may; k++)
        d->members[k]->running++;
    if (!may && shares(d))
        atomic_store(&d->cuda->held_back, true);
    leave(d);
    return may;
}

bool beside_over(struct cuda_device *d, const struct job *job)
{
    enter(d);
    for (int k = 0; k < d->n_members; k++) {
        d->members[k]->running--;
        alone_over(&d->members[k]->alone, job);
    }
    const bool tells = shares(d) && atomic_exchange(&d->cuda->held_back, false);
    leave(d);
    return tells;
}

static bool lets(const struct cuda_device *d)
{
    bool any = false;
    for (int k = 0; k < d->n_members && !any; k++)
        any = d->members[k]->alone.waits && alone_lets_others(&d->members[k]->alone, clock_ns());
    return any;
}

bool beside_lets_some(struct cuda_device *d)
{
    enter(d);
    const bool some = lets(d);
    leave(d);
    return some;
}

bool beside_lets_others(struct cuda_device *d)
{
    if (!shares(d) || !atomic_load(&d->cuda->held_back))
        return false;
    enter(d);
    const bool tells = lets(d) && atomic_exchange(&d->cuda->held_back, false);
    leave(d);
    return tells;
}
