/* Two counters; uses open on one side. A settling switches to the other side and waits for the
 * first to become empty; settlings that arrive meanwhile wait for the next switch. (Linux's
 * sleepable RCU counts its readers like this.)
 *
 * A use counts itself and then checks that its side is still current. If so, the leases it reads
 * next are newer than every lease whose settling does not wait for it. */
#include "server/store/lease_use.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/base/mem.h"

struct lease_uses {
    _Atomic uint32_t open[2];
    _Atomic unsigned epoch; /* its lowest bit is the side */
    pthread_mutex_t lock;
    struct lease_settling *now, *then; /* waiting for the other side, and for the next switch */
};

struct lease_uses *lease_uses_new(void)
{
    struct lease_uses *t = mem_calloc(1, sizeof *t);
    if (t)
        pthread_mutex_init(&t->lock, NULL); /* cannot fail here */
    return t;
}

void lease_uses_free(struct lease_uses *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* Calls done() of settled ones, and switches sides for the next. */
static void settle(struct lease_uses *t)
{
    for (;;) {
        struct lease_settling *settled = NULL;
        pthread_mutex_lock(&t->lock);
        if (!t->now && t->then) {
            t->now = t->then;
            t->then = NULL;
            atomic_fetch_add(&t->epoch, 1);
        }
        if (t->now && atomic_load(&t->open[(atomic_load(&t->epoch) + 1) & 1]) == 0) {
            settled = t->now;
            t->now = NULL;
        }
        pthread_mutex_unlock(&t->lock);
        if (!settled)
            return;
        while (settled) {
            struct lease_settling *s = settled;
            settled = s->next;
            s->done(s);
        }
    }
}

static void leave(struct lease_uses *t, unsigned side)
{
    if (atomic_fetch_sub(&t->open[side], 1) == 1 && (atomic_load(&t->epoch) & 1) != side)
        settle(t);
}

struct lease_use lease_use_open(struct lease_uses *t)
{
    while (t) {
        unsigned side = atomic_load(&t->epoch) & 1;
        atomic_fetch_add(&t->open[side], 1);
        if ((atomic_load(&t->epoch) & 1) == side)
            return (struct lease_use){t, side};
        leave(t, side);
    }
    return (struct lease_use){0};
}

void lease_use_close(struct lease_use *u)
{
    struct lease_uses *t = u->table;
    u->table = NULL;
    if (t)
        leave(t, u->side);
}

void lease_uses_settle(struct lease_uses *t, struct lease_settling *s)
{
    pthread_mutex_lock(&t->lock);
    s->next = t->then;
    t->then = s;
    pthread_mutex_unlock(&t->lock);
    settle(t);
}
