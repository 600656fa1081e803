/* The ring of active jobs, and which streams' heads enter it: those whose fences have passed, and
 * which may run beside what runs. */
#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/cpu/pool_int.h"

void pool_ring_add(struct pool *p, struct active_job *t)
{
    lock_held(&p->lock);
    t->in_ring = true;
    if (!p->ring) {
        t->next = t->prev = t;
        p->ring = t;
    } else {
        t->next = p->ring;
        t->prev = p->ring->prev;
        t->prev->next = t;
        t->next->prev = t;
    }
    atomic_fetch_add_explicit(&p->n_ring, 1, memory_order_relaxed);
}

void pool_ring_remove(struct pool *p, struct active_job *t)
{
    lock_held(&p->lock);
    if (!t->in_ring)
        return;
    t->in_ring = false;
    if (t->next == t) {
        p->ring = NULL;
    } else {
        t->prev->next = t->next;
        t->next->prev = t->prev;
        if (p->ring == t)
            p->ring = t->next;
    }
    atomic_fetch_sub_explicit(&p->n_ring, 1, memory_order_relaxed);
}

static bool fences_passed(const struct job *job)
{
    for (uint32_t i = 0; i < job->n_waits; i++)
        if (!pool_passed(job->waits[i]))
            return false;
    return true;
}

bool pool_start_head(struct pool *p, struct backend_stream *s)
{
    lock_held(&p->lock);
    if (!fences_passed(s->head))
        return false;
    if ((s->head->alone || p->alone.runs || p->alone.waits) &&
        !alone_may_start(&p->alone, s->head, s->head->alone, p->n_started > 0, clock_ns())) {
        atomic_store_explicit(&p->holds, p->alone.waits, memory_order_relaxed);
        return false;
    }
    p->n_started++;
    return true;
}

void pool_consider_head(struct pool *p, struct backend_stream *s)
{
    lock_held(&p->lock);
    if (!s->head)
        return;
    if (pool_start_head(p, s)) {
        pool_ring_add(p, &s->active);
    } else {
        s->next = p->blocked;
        p->blocked = s;
    }
}

void pool_start_blocked(struct pool *p)
{
    lock_held(&p->lock);
    for (struct backend_stream **at = &p->blocked; *at;) {
        struct backend_stream *waiting = *at;
        if (pool_start_head(p, waiting)) {
            *at = waiting->next;
            pool_ring_add(p, &waiting->active);
        } else {
            at = &waiting->next;
        }
    }
}

void pool_look_at_held(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    if (alone_lets_others(&p->alone, clock_ns())) {
        pool_start_blocked(p);
        pthread_cond_broadcast(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
}
