/* Opening and closing: the scheduler, users on its devices, and lanes. */
#include "server/work/scheduler_int.h"

#include <utlist.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"

#define FIRST_MS 0.05 /* a lane's work, before any was measured */
#define AT_MOST  16   /* of a flow: estimates may be low; a lane's turns run in order */

/* --- lanes --- */

void sched_lane_drop(struct sched_lane *l)
{
    lock_held(&l->sched->lock);
    if (--l->refs)
        return;
    l->sched->refs--;
    mem_free(l);
}

static struct flow *flow_of(struct device *d, const _Atomic uint32_t *user)
{
    struct flow *f = d->flows;
    while (f && f->user != user)
        f = f->next;
    if (f)
        return f;
    struct flow *parts[BACKEND_PARTS];
    for (int i = 0; i < d->n_parts && d->parts[i] != d; i++) {
        parts[i] = flow_of(d->parts[i], user);
        if (!parts[i])
            return NULL;
    }
    f = mem_calloc(1, sizeof *f);
    if (!f)
        return NULL;
    *f = (struct flow){.user = user, .device = d, .weight = 1, .start = d->now};
    f->out = (struct out){.mean = FIRST_MS, .most = AT_MOST};
    for (int i = 0; i < d->n_parts; i++) {
        f->parts[i] = d->parts[i] == d ? f : parts[i];
        if (f->parts[i] != f)
            parts[i]->mesh = f;
    }
    DL_APPEND(d->flows, f);
    return f;
}

enum err_code sched_lane_new(struct sched *s, const _Atomic uint32_t *weight, int device,
                             struct sched_lane **ret, struct err *e)
{
    struct device *d = &s->devices[device];
    struct sched_lane *l = mem_calloc(1, sizeof *l + (size_t)d->n_parts * sizeof *l->parts);
    if (!l)
        return err_oom(e);
    pthread_mutex_lock(&s->lock);
    l->flow = flow_of(d, weight);
    if (l->flow) {
        l->sched = s;
        l->n_parts = d->n_parts;
        for (int i = 0; i < d->n_parts; i++)
            l->parts[i] = (struct lane_part){.lane = l, .flow = l->flow->parts[i]};
        l->refs = 1;
        l->out = (struct out){.mean = l->flow->out.mean, .most = INT32_MAX};
        l->took = l->flow->took;
        s->refs++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!l->flow) {
        mem_free(l);
        return err_oom(e);
    }
    *ret = l;
    return ERR_OK;
}

struct sched_lane *sched_lane_ref(struct sched_lane *l)
{
    pthread_mutex_lock(&l->sched->lock);
    l->refs++;
    pthread_mutex_unlock(&l->sched->lock);
    return l;
}

bool sched_lane_is_busy(const struct sched_lane *l)
{
    pthread_mutex_lock(&l->sched->lock);
    bool busy = l->out.n_turns || l->out.n_tasks;
    for (const struct sched_turn *t = l->flow->waiting; t && !busy; t = t->next)
        busy = t->lane == l;
    pthread_mutex_unlock(&l->sched->lock);
    return busy;
}

static void free_all(struct sched *s)
{
    for (int i = 0; i < s->config.n_devices; i++)
        for (struct flow *f = s->devices[i].flows; f; f = s->devices[i].flows) {
            DL_DELETE(s->devices[i].flows, f);
            mem_free(f);
        }
    pthread_mutex_destroy(&s->lock);
    worker_destroy(&s->worker);
    mem_free(s);
}

static void unlock_or_free(struct sched *s)
{
    bool last = s->refs == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        free_all(s);
}

void sched_lane_unref(struct sched_lane *l)
{
    if (!l)
        return;
    struct sched *s = l->sched;
    pthread_mutex_lock(&s->lock);
    sched_lane_drop(l);
    unlock_or_free(s);
}

/* --- the scheduler --- */

enum err_code sched_new(const struct sched_config *config, struct sched **ret, struct err *e)
{
    struct sched *s = mem_calloc(1, sizeof *s + (size_t)config->n_devices * sizeof(struct device));
    if (!s)
        return err_oom(e);
    s->refs = 1;
    s->config = *config;
    for (int i = 0; i < config->n_devices; i++) {
        s->devices[i].parts[0] = &s->devices[i];
        s->devices[i].n_parts = 1;
    }
    struct device *mesh = config->mesh.n ? &s->devices[config->n_devices - 1] : NULL;
    for (int i = 0; i < config->mesh.n; i++) {
        mesh->parts[i] = &s->devices[config->mesh.parts[i]];
        mesh->n_parts = config->mesh.n;
        mesh->shares = mesh->parts[i]->shares = true;
    }
    const bool ticks = !config->clock_ns;
    if (ticks)
        s->config.clock_ns = clock_ns;
    pthread_mutex_init(&s->lock, NULL);
    s->worker = (struct worker){
        .name = "arrayd-sched", .lock = &s->lock, .step = sched_look_after, .user = s};
    worker_init(&s->worker);
    if (ticks && !worker_start(&s->worker)) {
        free_all(s);
        return err_set(e, ERR_INTERNAL, "cannot start the scheduler's thread");
    }
    *ret = s;
    return ERR_OK;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    worker_stop(&s->worker);
    pthread_mutex_lock(&s->lock);
    s->refs--;
    unlock_or_free(s);
}
