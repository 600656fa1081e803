/* The discipline is start-time fair queueing with several turns out at once (Goyal et al. 1996; Jin
 * et al., SFQ(D), 2004; Hedayati et al., MQFQ, 2019). A user on a device is a flow. Its virtual
 * time `start` rises by what its work took, divided by its weight. The device's virtual time `now`
 * is the least `start` of the active flows, and a flow that becomes active begins there: an idle
 * flow earns no credit, and a flow that ran alone owes nothing. Turns go to the flow that is
 * farthest behind; a flow ahead of the least by more than `window` waits for the others.
 *
 * A flow that has just been served stays active for a grace period. Its next request comes only
 * after the last result, and if the flow counted as idle meanwhile, a user with one job would lose
 * its weight's worth to a crowd. The grace is short relative to the work, or the device would idle
 * for a user who wants little of it. A flow that returns later, but soon, continues from its old
 * `start`, at most two `window`s behind the others, and they wait for it. A held turn that has
 * given the device nothing for that long (its request is still being read, or waits for memory)
 * does not hold others back, nor do turns that wait behind it.
 *
 * The cost of a turn is known only afterwards. Until then it counts as what its lane's work took
 * lately. A lane has turns out for at most `window`, but at least two: the device must not run dry
 * before the next request arrives. The same limit applies to the whole flow when there are other
 * users, and a multiple of it when there are none: a new user finds little work on the device.
 *
 * On a device whose threads all take part in each piece of work (the CPU), long turns of several
 * flows are not out together: they would only evict each other's cache lines.
 *
 * One lock for everything, held for some hundred nanoseconds; the caller may hold the engine's. */
#include "server/work/scheduler_int.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <utlist.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"

#define GRACE_MS   2.0       /* a flow stays active this long after its last work, at most */
#define GRACE_PART 0.25      /* and at most this part of what its work takes */
#define RECENT_NS  200000000 /* so long the others leave it room, and it keeps what it is owed */
#define OWED       2         /* windows, at most */
#define FIRST_MS   0.05      /* a lane's work, before any was measured */
#define AT_LEAST   2         /* turns, whatever they cost */
#define AT_MOST    16        /* of a flow: estimates may be low; a lane's turns run in order */
#define ALONE      8         /* times the cost and number for a flow alone on the device */
#define LONG_MS    2.0       /* long turns of several flows run together only if side_by_side */
#define TICK_S     0.001     /* between looks at waiting turns: a grace ends without an event */

/* --- estimates --- */

static double out_ms(const struct out *o)
{
    return o->task_ms > o->turn_ms ? o->task_ms : o->turn_ms;
}

static bool has_room(const struct sched *s, const struct out *o, int times, double ms)
{
    int64_t n = o->n_turns > o->n_tasks ? o->n_turns : o->n_tasks;
    return n < times * AT_LEAST ||
           (n < times * o->most && out_ms(o) + ms <= times * s->config.window);
}

static void add_turn(struct out *o, int n, double ms)
{
    o->n_turns += n;
    o->n_long += ms >= LONG_MS ? n : 0;
    o->turn_ms = o->n_turns ? o->turn_ms + n * ms : 0; /* rounding errors must not add up */
}

static inline bool is_sound(const struct out *o)
{
    return o->n_turns >= 0 && o->n_tasks >= 0 && o->n_long >= 0 && o->n_long <= o->n_turns;
}

/* After a change of what waits or is out. */
static void check(const struct sched *s, const struct sched_lane *l)
{
    lock_held(&s->lock);
#ifndef NDEBUG
    int64_t waiting = 0;
    assert(l->refs > 0 && is_sound(&l->out));
    for (int i = 0; i < s->config.n_devices; i++)
        for (const struct flow *f = s->devices[i].flows; f; f = f->next) {
            assert(is_sound(&f->out) && f->counts.waiting >= 0);
            assert((f->counts.waiting == 0) == !f->waiting);
            waiting += f->counts.waiting;
        }
    assert(waiting == s->counts.waiting);
    assert(l->out.n_turns <= l->flow->out.n_turns && l->out.n_tasks <= l->flow->out.n_tasks);
#else
    (void)l;
#endif
}

/* --- flows --- */

/* Whether the flow has a turn that could run now but for other flows. */
static bool wants(const struct sched *s, const struct flow *f)
{
    for (const struct sched_turn *t = f->waiting; t; t = t->next)
        if (has_room(s, &t->lane->out, 1, t->ms) && has_room(s, &f->out, 1, t->ms))
            return true;
    return false;
}

/* Overdue work is waiting, perhaps for a compiler: other flows do not wait for it. */
static bool works(const struct flow *f, uint64_t now_ns)
{
    for (const struct sched_lane *l = f->device->busy; l && f->out.n_tasks; l = l->next)
        if (l->flow == f && sched_is_working(l, now_ns))
            return true;
    return false;
}

static bool is_active(const struct sched *s, const struct flow *f, uint64_t now_ns)
{
    lock_held(&s->lock);
    double grace = GRACE_PART * f->out.mean;
    grace = grace < GRACE_MS ? grace : GRACE_MS;
    return works(f, now_ns) || (double)(now_ns - f->last_ns) * 1e-6 < grace || wants(s, f);
}

static bool is_recent(const struct flow *f, uint64_t now_ns)
{
    return f->last_ns && now_ns - f->last_ns < RECENT_NS;
}

void sched_touch(const struct sched *s, struct flow *f, uint64_t now_ns)
{
    lock_held(&s->lock);
    double owed = is_recent(f, now_ns) ? OWED * s->config.window : 0;
    if (!is_active(s, f, now_ns) && f->start < f->device->now) {
        f->start = f->start > f->device->now - owed ? f->start : f->device->now - owed;
        f->device->now = f->start;
    }
    f->last_ns = now_ns;
}

static void advance(const struct sched *s, struct device *d, uint64_t now_ns)
{
    lock_held(&s->lock);
    double least = -1;
    for (const struct flow *f = d->flows; f; f = f->next)
        if (is_active(s, f, now_ns) && (least < 0 || f->start < least))
            least = f->start;
    d->now = least > d->now ? least : d->now;
}

static bool is_alone(const struct sched *s, const struct flow *f, uint64_t now_ns)
{
    for (const struct flow *o = f->device->flows; o; o = o->next)
        if (o != f && (is_active(s, o, now_ns) || is_recent(o, now_ns)))
            return false;
    return true;
}

static bool others_have_long(const struct sched *s, const struct flow *f, uint64_t now_ns)
{
    for (const struct flow *o = f->device->flows; o; o = o->next)
        if (o != f && o->out.n_long && is_active(s, o, now_ns))
            return true;
    return false;
}

/* A flow's virtual time, including what it has out. */
static double tag(const struct flow *f)
{
    return f->start + out_ms(&f->out) / f->weight;
}

static bool may_have(const struct sched *s, const struct flow *f, uint64_t now_ns, double ms)
{
    if (s->open || is_alone(s, f, now_ns))
        return s->open || has_room(s, &f->out, ALONE, ms);
    if (!s->config.side_by_side && ms >= LONG_MS && others_have_long(s, f, now_ns))
        return false;
    return tag(f) <= f->device->now + s->config.window && has_room(s, &f->out, 1, ms);
}

/* The first waiting turn whose lane has room, or NULL. */
static struct sched_turn *first_of(const struct sched *s, const struct flow *f, uint64_t now_ns)
{
    lock_held(&s->lock);
    for (struct sched_turn *t = f->waiting; t; t = t->next)
        if (s->open || has_room(s, &t->lane->out, 1, t->ms))
            return may_have(s, f, now_ns, t->ms) ? t : NULL;
    return NULL;
}

static void give(struct sched *s, struct sched_turn *t, uint64_t now_ns)
{
    lock_held(&s->lock);
    t->held = true;
    t->lane->flow->last_ns = now_ns;
    add_turn(&t->lane->out, 1, t->ms);
    add_turn(&t->lane->flow->out, 1, t->ms);
    s->counts.turns++;
    t->lane->flow->counts.turns++;
}

static void count_wait(struct sched_counts *c, double seconds)
{
    c->waited++;
    c->waited_s += seconds;
}

void sched_serve(struct sched *s, struct device *d)
{
    lock_held(&s->lock);
    while (s->counts.waiting) {
        uint64_t now_ns = s->config.clock_ns();
        struct sched_turn *best = NULL;
        advance(s, d, now_ns);
        for (const struct flow *f = d->flows; f; f = f->next) {
            struct sched_turn *t = f->waiting ? first_of(s, f, now_ns) : NULL;
            if (t && (!best || tag(f) < tag(best->lane->flow)))
                best = t;
        }
        if (!best)
            return;
        struct flow *f = best->lane->flow;
        DL_DELETE(f->waiting, best);
        s->counts.waiting--;
        f->counts.waiting--;
        double seconds = (double)(now_ns - best->asked_ns) * 1e-9;
        count_wait(&s->counts, seconds);
        count_wait(&f->counts, seconds);
        give(s, best, now_ns);
        best->come(best->user);
    }
}

static void serve_all(struct sched *s)
{
    for (int i = 0; i < s->config.n_devices; i++)
        sched_serve(s, &s->devices[i]);
}

static double look_after(void *user)
{
    struct sched *s = user;
    serve_all(s);
    return s->counts.waiting ? TICK_S : WORKER_RESTS;
}

/* --- turns --- */

/* With the lock held. */
static void lane_unref(struct sched_lane *l)
{
    lock_held(&l->sched->lock);
    if (--l->refs)
        return;
    l->sched->refs--;
    mem_free(l);
}

enum err_code sched_ask(struct sched_lane *l, double ms, struct sched_turn *t, bool *ret_now,
                        struct err *e)
{
    struct sched *s = l->sched;
    struct flow *f = l->flow;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    uint32_t weight = atomic_load_explicit(f->user, memory_order_relaxed);
    f->weight = weight ? weight : 1;
    sched_touch(s, f, now_ns);
    advance(s, f->device, now_ns);
    ms = ms > 0 ? ms : l->out.mean;
    bool now =
        s->open || (!f->waiting && has_room(s, &l->out, 1, ms) && may_have(s, f, now_ns, ms));
    if (!now && !t->sure && f->counts.waiting >= s->config.max_waiting)
        code = err_set(e, ERR_QUOTA, "%lld pieces of your work are already waiting for the device",
                       (long long)f->counts.waiting);
    else if (!now && !t->sure && s->counts.waiting >= s->config.max_waiting_all)
        code = err_set(e, ERR_OVERLOADED, "%lld pieces of work are already waiting for the device",
                       (long long)s->counts.waiting);
    if (code == ERR_OK) {
        l->refs++;
        t->lane = l;
        t->ms = ms;
        t->held = false;
        t->asked_ns = now_ns;
        if (now) {
            give(s, t, now_ns);
        } else {
            DL_APPEND(f->waiting, t);
            f->counts.waiting++;
            if (s->counts.waiting++ == 0)
                worker_wake(&s->worker);
            sched_serve(s, f->device); /* turns before it may wait for other lanes */
        }
        *ret_now = now;
        check(s, l);
    }
    pthread_mutex_unlock(&s->lock);
    return code;
}

bool sched_held(struct sched *s, const struct sched_turn *t)
{
    pthread_mutex_lock(&s->lock);
    bool held = t->lane && t->held;
    pthread_mutex_unlock(&s->lock);
    return held;
}

void sched_leave(struct sched *s, struct sched_turn *t)
{
    struct sched_lane *l = t->lane;
    if (!l)
        return;
    pthread_mutex_lock(&s->lock);
    struct flow *f = l->flow;
    if (t->held) {
        add_turn(&l->out, -1, t->ms);
        add_turn(&f->out, -1, t->ms);
        f->last_ns = s->config.clock_ns();
    } else {
        DL_DELETE(f->waiting, t);
        s->counts.waiting--;
        f->counts.waiting--;
    }
    t->lane = NULL;
    t->held = false;
    sched_serve(s, f->device);
    check(s, l);
    lane_unref(l);
    pthread_mutex_unlock(&s->lock);
}

/* --- lanes --- */

static struct flow *flow_of(struct device *d, const _Atomic uint32_t *user)
{
    struct flow *f = d->flows;
    while (f && f->user != user)
        f = f->next;
    if (f)
        return f;
    f = mem_calloc(1, sizeof *f);
    if (f) {
        *f = (struct flow){.user = user, .device = d, .weight = 1, .start = d->now};
        f->out = (struct out){.mean = FIRST_MS, .most = AT_MOST};
        DL_APPEND(d->flows, f);
    }
    return f;
}

enum err_code sched_lane_new(struct sched *s, const _Atomic uint32_t *weight, int device,
                             struct sched_lane **ret, struct err *e)
{
    struct sched_lane *l = mem_calloc(1, sizeof *l);
    if (!l)
        return err_oom(e);
    pthread_mutex_lock(&s->lock);
    struct device *d = &s->devices[device];
    l->flow = flow_of(d, weight);
    if (l->flow) {
        l->sched = s;
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
    lane_unref(l);
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
    const bool ticks = !config->clock_ns;
    if (ticks)
        s->config.clock_ns = clock_ns;
    pthread_mutex_init(&s->lock, NULL);
    s->worker =
        (struct worker){.name = "arrayd-sched", .lock = &s->lock, .step = look_after, .user = s};
    worker_init(&s->worker);
    if (ticks && !worker_start(&s->worker)) {
        free_all(s);
        return err_set(e, ERR_INTERNAL, "cannot start the scheduler's thread");
    }
    *ret = s;
    return ERR_OK;
}

void sched_open(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->open = true;
    serve_all(s);
    pthread_mutex_unlock(&s->lock);
}

void sched_look(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    serve_all(s);
    pthread_mutex_unlock(&s->lock);
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

void sched_count(struct sched *s, const _Atomic uint32_t *weight, struct sched_counts *ret)
{
    pthread_mutex_lock(&s->lock);
    *ret = weight ? (struct sched_counts){0} : s->counts;
    for (int i = 0; weight && i < s->config.n_devices; i++)
        for (const struct flow *f = s->devices[i].flows; f; f = f->next) {
            if (f->user != weight)
                continue;
            ret->waiting += f->counts.waiting;
            ret->turns += f->counts.turns;
            ret->waited += f->counts.waited;
            ret->waited_s += f->counts.waited_s;
        }
    pthread_mutex_unlock(&s->lock);
}

double sched_share(struct sched *s, const _Atomic uint32_t *weight, int device)
{
    const double own = atomic_load(weight);
    double all = own;
    pthread_mutex_lock(&s->lock);
    const uint64_t now_ns = s->config.clock_ns();
    for (const struct flow *f = s->devices[device].flows; f; f = f->next)
        if (f->user != weight && (is_recent(f, now_ns) || is_active(s, f, now_ns)))
            all += f->weight;
    pthread_mutex_unlock(&s->lock);
    return own / all;
}
