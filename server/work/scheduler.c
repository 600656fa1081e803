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
 * A mesh's turn is one on each of its parts: it is given when it may be had on all of them. A user
 * whose turn has to wait on one part does not hold others back on the rest, which would be idle for
 * nothing. Nobody waits in a circle: a turn that waits holds nothing, and one that is held waits
 * for no other, so it is enough that where nothing is out, a turn is given.
 *
 *   1. A device has active flows, and the least of them waits for a turn of this device: it is
 *      given, since nobody there is farther behind.
 *   2. The least of them waits for a turn of the mesh: it is active here only if that turn may be
 *      had on all other parts (could_be_had), so it is given.
 *   3. No part has an active flow. Turns of the mesh wait, each because its user is ahead on some
 *      part, of a flow in the same trouble elsewhere; behind them wait turns of the same users that
 *      came later (yields). The turn of the mesh that has waited longest is given (sched_serve).
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
#define AT_LEAST   2         /* turns, whatever they cost */
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
    for (int i = 0; i < l->n_parts; i++) {
        const struct out *of = &l->parts[i].flow->out;
        assert(l->out.n_turns <= of->n_turns && l->out.n_tasks <= of->n_tasks);
    }
#else
    (void)l;
#endif
}

/* --- flows --- */

/* A flow's virtual time, including what it has out. */
static double tag(const struct flow *f)
{
    return f->start + out_ms(&f->out) / f->weight;
}

static bool is_in_window(const struct sched *s, const struct flow *f)
{
    return tag(f) <= f->device->now + s->config.window;
}

/* Whether a turn could be had now but for other flows on f's device. */
static bool could_be_had(const struct sched *s, const struct sched_turn *t, const struct flow *f)
{
    const struct sched_lane *l = t->lane;
    bool can = has_room(s, &l->out, 1, t->ms);
    for (int i = 0; i < l->n_parts && can; i++) {
        const struct flow *part = l->parts[i].flow;
        can = has_room(s, &part->out, 1, t->ms) && (part == f || is_in_window(s, part));
    }
    return can;
}

/* Whether an earlier turn of the same user's on the mesh goes first: turns that have the user's
 * room on one part now, and on another then, would keep it off for ever. */
static bool yields(const struct flow *f, uint64_t asked_ns)
{
    const struct sched_turn *t = f->mesh ? f->mesh->waiting : NULL;
    return t && t->asked_ns < asked_ns;
}

static bool wants(const struct sched *s, const struct flow *f)
{
    for (const struct sched_turn *t = f->waiting; t; t = t->next)
        if (could_be_had(s, t, f) && !yields(f, t->asked_ns))
            return true;
    for (const struct sched_turn *t = f->mesh ? f->mesh->waiting : NULL; t; t = t->next)
        if (could_be_had(s, t, f))
            return true;
    return false;
}

/* Overdue work is waiting, perhaps for a compiler: other flows do not wait for it. */
static bool works(const struct flow *f, uint64_t now_ns)
{
    for (const struct lane_part *p = f->device->busy; p && f->out.n_tasks; p = p->next)
        if (p->flow == f && sched_is_working(p->lane, now_ns))
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

/* For one part. */
static bool may_have(const struct sched *s, const struct flow *f, uint64_t now_ns, double ms)
{
    if (s->open || is_alone(s, f, now_ns))
        return s->open || has_room(s, &f->out, ALONE, ms);
    if (!s->config.side_by_side && ms >= LONG_MS && others_have_long(s, f, now_ns))
        return false;
    return is_in_window(s, f) && has_room(s, &f->out, 1, ms);
}

static bool may_have_all(const struct sched *s, const struct sched_lane *l, uint64_t now_ns,
                         double ms)
{
    for (int i = 0; i < l->n_parts; i++)
        if (!may_have(s, l->parts[i].flow, now_ns, ms))
            return false;
    return true;
}

/* The first waiting turn whose lane has room, or NULL. */
static struct sched_turn *first_of(const struct sched *s, const struct flow *f, uint64_t now_ns)
{
    lock_held(&s->lock);
    for (struct sched_turn *t = f->waiting; t; t = t->next)
        if (s->open || has_room(s, &t->lane->out, 1, t->ms)) {
            const bool may = may_have_all(s, t->lane, now_ns, t->ms);
            return may && (s->open || !yields(f, t->asked_ns)) ? t : NULL;
        }
    return NULL;
}

/* n: 1 or −1. */
static void turn_of(struct sched_lane *l, int n, double ms, uint64_t now_ns)
{
    lock_held(&l->sched->lock);
    add_turn(&l->out, n, ms);
    for (int i = 0; i < l->n_parts; i++) {
        add_turn(&l->parts[i].flow->out, n, ms);
        l->parts[i].flow->last_ns = now_ns;
    }
}

static void give(struct sched *s, struct sched_turn *t, uint64_t now_ns)
{
    lock_held(&s->lock);
    struct sched_lane *l = t->lane;
    t->held = true;
    turn_of(l, 1, t->ms, now_ns);
    s->counts.turns++;
    l->flow->counts.turns++;
}

static void count_wait(struct sched_counts *c, double seconds)
{
    c->waited++;
    c->waited_s += seconds;
}

static void end_wait(struct sched *s, struct sched_turn *t, uint64_t now_ns)
{
    lock_held(&s->lock);
    struct flow *f = t->lane->flow;
    DL_DELETE(f->waiting, t);
    s->counts.waiting--;
    f->counts.waiting--;
    double seconds = (double)(now_ns - t->asked_ns) * 1e-9;
    count_wait(&s->counts, seconds);
    count_wait(&f->counts, seconds);
    give(s, t, now_ns);
    t->come(t->user);
}

/* How far it is ahead: of the mesh, where it is most so. */
static double lead(const struct flow *f)
{
    double most = tag(f->parts[0]) - f->parts[0]->device->now;
    for (int i = 1; i < f->device->n_parts; i++) {
        double here = tag(f->parts[i]) - f->parts[i]->device->now;
        most = here > most ? here : most;
    }
    return most;
}

/* Gives the turns of one device that are due, and says whether there were any. */
static bool serve_one(struct sched *s, struct device *d)
{
    lock_held(&s->lock);
    bool any = false;
    while (s->counts.waiting) {
        uint64_t now_ns = s->config.clock_ns();
        struct sched_turn *best = NULL;
        for (int i = 0; i < d->n_parts; i++)
            advance(s, d->parts[i], now_ns);
        for (const struct flow *f = d->flows; f; f = f->next) {
            struct sched_turn *t = f->waiting ? first_of(s, f, now_ns) : NULL;
            if (t && (!best || lead(f) < lead(best->lane->flow)))
                best = t;
        }
        if (!best)
            break;
        end_wait(s, best, now_ns);
        any = true;
    }
    return any;
}

static bool is_idle(const struct sched *s, const struct device *d, uint64_t now_ns)
{
    lock_held(&s->lock);
    for (const struct flow *f = d->flows; f; f = f->next)
        if (f->out.n_turns || f->out.n_tasks || is_active(s, f, now_ns))
            return false;
    return true;
}

/* The turn of the mesh that has waited longest, if all its parts are idle (the top of this file).
 */
static struct sched_turn *longest_waiting(const struct sched *s)
{
    lock_held(&s->lock);
    const struct device *mesh = &s->devices[s->config.n_devices - 1];
    const uint64_t now_ns = s->config.clock_ns();
    struct sched_turn *first = NULL;
    for (const struct flow *f = mesh->flows; f; f = f->next)
        for (struct sched_turn *t = f->waiting; t; t = t->next)
            if (!first || t->asked_ns < first->asked_ns)
                first = t;
    for (int i = 0; i < mesh->n_parts && first; i++)
        if (!is_idle(s, mesh->parts[i], now_ns))
            first = NULL;
    return first;
}

void sched_serve(struct sched *s, struct device *d)
{
    lock_held(&s->lock);
    bool any = s->counts.waiting > 0;
    if (!d->shares) {
        (void)serve_one(s, d);
        return;
    }
    while (any) {
        any = false;
        for (int i = 0; i < s->config.n_devices; i++)
            if (s->devices[i].shares)
                any |= serve_one(s, &s->devices[i]);
        struct sched_turn *t = any ? NULL : longest_waiting(s);
        if (t)
            end_wait(s, t, s->config.clock_ns());
    }
}

static void serve_all(struct sched *s)
{
    bool mesh = false;
    for (int i = 0; i < s->config.n_devices; i++) {
        struct device *d = &s->devices[i];
        if (!d->shares || !mesh)
            sched_serve(s, d);
        mesh |= d->shares;
    }
}

double sched_look_after(void *user)
{
    struct sched *s = user;
    serve_all(s);
    return s->counts.waiting ? TICK_S : WORKER_RESTS;
}

/* --- turns --- */

enum err_code sched_ask(struct sched_lane *l, double ms, struct sched_turn *t, bool *ret_now,
                        struct err *e)
{
    struct sched *s = l->sched;
    struct flow *f = l->flow;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&s->lock);
    uint64_t now_ns = s->config.clock_ns();
    uint32_t weight = atomic_load_explicit(f->user, memory_order_relaxed);
    for (int i = 0; i < l->n_parts; i++) {
        struct flow *part = l->parts[i].flow;
        part->weight = weight ? weight : 1;
        sched_touch(s, part, now_ns);
        advance(s, part->device, now_ns);
    }
    ms = ms > 0 ? ms : l->out.mean;
    bool now = s->open || (!f->waiting && has_room(s, &l->out, 1, ms) &&
                           may_have_all(s, l, now_ns, ms) && !yields(f, now_ns));
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
        turn_of(l, -1, t->ms, s->config.clock_ns());
    } else {
        DL_DELETE(f->waiting, t);
        s->counts.waiting--;
        f->counts.waiting--;
    }
    t->lane = NULL;
    t->held = false;
    sched_serve(s, f->device);
    check(s, l);
    sched_lane_drop(l);
    pthread_mutex_unlock(&s->lock);
}

/* --- the scheduler --- */

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
    double most = own;
    pthread_mutex_lock(&s->lock);
    const uint64_t now_ns = s->config.clock_ns();
    const struct device *d = &s->devices[device];
    for (int i = 0; i < d->n_parts; i++) {
        double all = own;
        for (const struct flow *f = d->parts[i]->flows; f; f = f->next)
            if (f->user != weight && (is_recent(f, now_ns) || is_active(s, f, now_ns)))
                all += f->weight;
        most = all > most ? all : most;
    }
    pthread_mutex_unlock(&s->lock);
    return own / most;
}
