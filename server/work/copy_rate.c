/* The array grows until a copy takes long enough to be out of the caches and to be timed well: a
 * slow device, or one that is short of memory, is not kept busy for long. */
#include "server/work/copy_rate.h"

#include <pthread.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"

#define LEAST     (1 << 20)   /* bytes of the array, */
#define MOST_HOST (64 << 20)  /* at most, in host memory */
#define MOST      (256 << 20) /* and on a device */
#define GROWS     4
#define PART      8    /* no more than this part of the free memory */
#define LONG_MS   10.0 /* of a copy */
#define ROUNDS    5
#define AGAIN_NS  60000000000u
#define LOOK_S    0.1 /* how often it is seen that there is no more time */

struct rate {
    bool wanted, tried;
    double bytes_s;
    uint64_t measured_ns;
};

struct copy_rates {
    struct engine *engine;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t ended; /* work of the thread's: */
    int n;                /* pieces under way, and the time that those have taken which are not */
    double ms;
    uint64_t until_ns; /* no longer is waited for those */
    struct worker worker;
    struct copy_wait *waits;
    struct rate of[]; /* by device */
};

static worker_step look;

struct copy_rates *copy_rates_new(struct engine *engine)
{
    const size_t n = (size_t)engine_device_count(engine);
    struct copy_rates *r = mem_calloc(1, sizeof *r + n * sizeof *r->of);
    if (!r)
        return NULL;
    r->engine = engine;
    r->until_ns = UINT64_MAX;
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->ended);
    r->worker = (struct worker){.name = "arrayd-copies", .lock = &r->lock, .step = look, .user = r};
    worker_init(&r->worker);
    return r;
}

void copy_rates_free(struct copy_rates *r, uint64_t until_ns)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->until_ns = until_ns;
    pthread_mutex_unlock(&r->lock);
    worker_stop(&r->worker);
    pthread_mutex_lock(&r->lock);
    const bool hangs = r->n > 0;
    pthread_mutex_unlock(&r->lock);
    if (hangs)
        return; /* what is under way uses it when it ends */
    worker_destroy(&r->worker);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

double copy_rate(struct copy_rates *r, int device)
{
    if (!r)
        return 0;
    pthread_mutex_lock(&r->lock);
    const double rate = r->of[device].bytes_s;
    pthread_mutex_unlock(&r->lock);
    return rate;
}

/* --- measuring, by the thread --- */

static void begun(void *user)
{
    struct copy_rates *r = user;
    pthread_mutex_lock(&r->lock);
    r->n++;
    pthread_mutex_unlock(&r->lock);
}

static double ended(void *user, double device_ms)
{
    struct copy_rates *r = user;
    pthread_mutex_lock(&r->lock);
    r->n--;
    r->ms += device_ms;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
    return device_ms;
}

static void left(void *user)
{
    (void)user;
}

/* *ret_ms: the device time of the work since the last time, when all of it has ended. */
static enum err_code await(struct copy_rates *r, double *ret_ms, struct err *e)
{
    pthread_mutex_lock(&r->lock);
    while (r->n && clock_ns() < r->until_ns) {
        const struct timespec soon = clock_after(LOOK_S);
        pthread_cond_timedwait(&r->ended, &r->lock, &soon);
    }
    const bool all = r->n == 0;
    *ret_ms = r->ms;
    r->ms = 0;
    pthread_mutex_unlock(&r->lock);
    return all ? ERR_OK : err_draining(e);
}

/* Milliseconds of the fastest of some copies of n bytes. */
static enum err_code time_copies(struct copy_rates *r, struct engine_stream *s, struct account *a,
                                 int64_t n, double *ret_ms, struct err *e)
{
    struct array *from;
    double ms;
    *ret_ms = 0;
    TRY(engine_zeros(s, a, DT_U8, 1, &n, &from, e));
    enum err_code code = await(r, &ms, e);
    for (int i = 0; i < ROUNDS && code == ERR_OK; i++) {
        struct array *to;
        code = engine_copy(s, a, from, &to, e);
        if (code != ERR_OK)
            break;
        code = await(r, &ms, e);
        array_unref(to);
        if (code != ERR_OK)
            break;
        if (*ret_ms == 0 || ms < *ret_ms)
            *ret_ms = ms;
    }
    array_unref(from);
    return code;
}

static const struct work_watch watch = {begun, ended, left};

/* 0: it cannot be measured. */
static double measure(struct copy_rates *r, int device)
{
    struct engine *g = r->engine;
    struct engine_stream *s;
    struct backend_device about;
    struct err e = ERR_INIT;
    double rate = 0;
    struct account *a = account_new(0);
    if (!a || engine_stream_new(g, device, &s, &e) != ERR_OK) {
        account_unref(a);
        return 0;
    }
    engine_stream_watch(s, &watch, r);
    engine_device_info(g, device, &about);
    int64_t most = engine_in_host_memory(g) ? MOST_HOST : MOST;
    most = about.memory_free / PART < most ? about.memory_free / PART : most;
    for (int64_t n = LEAST; n <= most; n *= GROWS) {
        double ms;
        if (time_copies(r, s, a, n, &ms, &e) != ERR_OK)
            break;
        if (ms > 0)
            rate = 2 * (double)n / ms * 1e3;
        if (ms > LONG_MS)
            break;
    }
    engine_stream_unref(s);
    account_unref(a);
    return rate;
}

static void wake_all(struct copy_rates *r)
{
    lock_held(&r->lock);
    while (r->waits) {
        struct copy_wait *w = r->waits;
        r->waits = w->next;
        w->wake(w->user);
    }
}

static double look(void *user)
{
    struct copy_rates *r = user;
    const int n = engine_device_count(r->engine);
    for (int i = 0; i < n && !worker_is_stopped(&r->worker); i++) {
        struct rate *of = &r->of[i];
        if (!of->wanted)
            continue;
        pthread_mutex_unlock(&r->lock);
        const double rate = measure(r, i);
        pthread_mutex_lock(&r->lock);
        of->bytes_s = rate > of->bytes_s ? rate : of->bytes_s;
        of->measured_ns = clock_ns();
        of->tried = true;
        of->wanted = false;
    }
    wake_all(r);
    return WORKER_RESTS;
}

/* --- asking --- */

bool copy_rate_measure(struct copy_rates *r, int device, struct copy_wait *w)
{
    if (!r || !worker_start(&r->worker))
        return false;
    struct rate *of = &r->of[device];
    pthread_mutex_lock(&r->lock);
    if (!of->tried || clock_ns() - of->measured_ns > AGAIN_NS) {
        of->wanted = true;
        worker_wake(&r->worker);
    }
    const bool waits = !of->tried && w;
    if (waits) {
        w->next = r->waits;
        r->waits = w;
    }
    pthread_mutex_unlock(&r->lock);
    return waits;
}

void copy_rate_leave(struct copy_rates *r, const struct copy_wait *w)
{
    pthread_mutex_lock(&r->lock);
    for (struct copy_wait **p = &r->waits; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    pthread_mutex_unlock(&r->lock);
}
