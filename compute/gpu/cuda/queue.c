/* When jobs are launched, and when they are done.
 *
 * A stream is a CUDA stream with a queue in front of it. Jobs leave the queue for the device in
 * order, at once unless something prevents it: a kernel that is still being compiled, a fence whose
 * job has not left its own queue, or very many jobs in flight already (a full launch queue would
 * block). The completion thread retries held-up jobs when a compilation ends and after every job.
 *
 * Each job is bracketed by two timed events, the first of which may be the last of the job before;
 * other streams also wait for the second. One thread per device polls the oldest event of every
 * busy stream. It spins while work is short, because waking up costs more than most kernels take,
 * and sleeps in short steps when work is long: about a hundredth of the work's time, which is how
 * late the end of long work is noticed. A thread that waits for a small result polls, too
 * (cuda_poll): it sees the end without being told by another one. Whichever takes a finished job
 * off its list reports it; jobs are reported one at a time.
 *
 * A sticky error ends everything: all jobs, queued or in flight, end with ERR_DEVICE_LOST. */
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/gpu/cuda/beside.h"
#include "compute/gpu/cuda/fault.h"
#include "compute/gpu/cuda/launch.h"
#include "compute/gpu/cuda/queue.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/transfer/transfer.h"

#define MOST_UNDER_WAY 128    /* jobs in flight per stream */
#define SPIN_NS        100000 /* how long to spin after the last event */
#define AWAKE_NS       200000 /* stays awake idle: the next request often comes at once */
#define NAP_NS         20000
#define POLLED_NS      10000 /* after another thread has looked, this one leaves it to that */
#define LONGEST_NAP_NS 200000
#define NAP_PART       128    /* of the time the work has taken so far */
#define TIMER_SLACK_NS 1000UL /* the default of 50 us is longer than a nap */

/* The event behind a sequence number of a stream of this device, or NULL when it has passed. */
static CUevent event_behind(const struct backend_stream *s, uint64_t seq)
{
    lock_held(&s->device->lock);
    for (const struct job *j = s->under_way; j; j = j->next) {
        const struct launch *l = j->private_data;
        if (j->seq >= seq && l && l->timed)
            return l->end;
    }
    return NULL;
}

/* Whether the stream's last job failed before it reached the device. The device does not know what
 * that job was to wait for, and jobs behind it rely on it. So nothing follows it until it is
 * reported, which happens when everything it waits for has passed: it is always the last. */
static bool has_failed(const struct backend_stream *s)
{
    lock_held(&s->device->lock);
    const struct job *last = s->under_way_tail;
    const struct launch *l = last ? last->private_data : NULL;
    return last && !(l && (l->timed || l->over));
}

/* Whether the job may leave the queue now. One that has already failed need not wait here: it is
 * reported in order. */
static bool may_launch(struct backend_stream *s, const struct job *job)
{
    lock_held(&s->device->lock);
    struct launch *l = job->private_data;
    if (has_failed(s))
        return false;
    if (!l || l->result != ERR_OK)
        return true;
    if (!launch_settled(s->device, job, l))
        return false;
    if (l->result != ERR_OK)
        return true;
    for (uint32_t i = 0; i < job->n_waits; i++) {
        const struct backend_stream *o = job->waits[i].stream;
        if (cuda_passed(job->waits[i]))
            continue;
        if (o->device != s->device) {
            atomic_store(&s->device->cuda->waits_across, true);
            if (cuda_passed(job->waits[i])) /* just before it could see that */
                continue;
            return false;
        }
        if (job->waits[i].seq > o->launched)
            return false;
        if (has_failed(o) && job->waits[i].seq >= o->under_way_tail->seq)
            return false;
        if (job->alone) /* it must not keep the device from what it waits for */
            return false;
    }
    l->counted = beside_may_start(s->device, job);
    return l->counted;
}

static enum err_code wait_for_fences(struct backend_stream *s, const struct job *job)
{
    struct cuda *c = s->device->cuda;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < job->n_waits && code == ERR_OK; i++) {
        CUevent e = cuda_passed(job->waits[i])
                        ? NULL
                        : event_behind(job->waits[i].stream, job->waits[i].seq);
        if (!e)
            continue;
        code = cuda_check(c, c->driver->cuStreamWaitEvent(s->cu, e, 0), "cuStreamWaitEvent", NULL);
        cuda_stream_waits(s);
    }
    return code;
}

static void add_busy(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    if (s->is_busy)
        return;
    s->is_busy = true;
    s->next_busy = d->busy;
    d->busy = s;
    pthread_cond_signal(&d->wake);
}

static void launch_queue(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    while (s->queue && s->n_under_way < MOST_UNDER_WAY) {
        struct job *job = s->queue;
        bool lost = atomic_load(&c->lost) || !cuda_enter(d);
        if (!lost && !may_launch(s, job)) {
            d->held_up = true;
            break;
        }
        s->queue = job->next;
        if (!s->queue)
            s->queue_tail = NULL;
        job->next = NULL;
        struct launch *l = job->private_data;
        if (l && lost)
            l->result = ERR_DEVICE_LOST;
        if (l && l->result == ERR_OK)
            l->result = wait_for_fences(s, job);
        if (l && l->result == ERR_OK)
            l->result = launch_job(s, job, l);
        s->launched = job->seq;
        if (s->under_way_tail)
            s->under_way_tail->next = job;
        else
            s->under_way = job;
        s->under_way_tail = job;
        s->n_under_way++;
        add_busy(s);
        if (atomic_load(&c->lost))
            cuda_fault_look(d);
    }
}

/* Without device->lock: callbacks may submit. */
static void tell(struct cuda_device *d, struct job *job)
{
    struct launch *l = job->private_data;
    struct backend_stream *s = job->stream;
    cuda_fault_tell(d->cuda);
    if (job->alone && l && job->result == ERR_OK)
        launch_cleared(d, job, l);
    culprits_end(d->cuda->culprits, job->running);
    if (l)
        launch_put(d, l);
    job->private_data = NULL;
    if (job->measured)
        job->measured(job);
    if (job->fetch)
        cuda_transfer_fetched(job->fetch, job->result);
    atomic_store(&s->passed, job->seq);
    job->done(job); /* may free the stream */
}

static void no_longer_runs(struct cuda_device *d, const struct job *job)
{
    lock_held(&d->lock);
    struct launch *l = job->private_data;
    if (l && l->counted)
        d->tells |= beside_over(d, job);
    if (l)
        l->counted = false;
}

static void remove_busy(struct cuda_device *d, struct backend_stream *s)
{
    lock_held(&d->lock);
    struct backend_stream **at = &d->busy;
    while (*at != s)
        at = &(*at)->next_busy;
    *at = s->next_busy;
    s->is_busy = false;
}

/* Whether a job that was just submitted is already done: it could not be launched, and nothing is
 * before it. Its submitter is told at once, as if nothing had been queued. (Not with a fetch, whose
 * owner must not be woken here.) */
static bool failed_at_once(struct backend_stream *s, struct job *job)
{
    lock_held(&s->device->lock);
    struct launch *l = job->private_data;
    if (s->under_way != job || job->fetch || (l && (l->result == ERR_OK || l->launched)))
        return false;
    if (atomic_load(&s->passed) != job->seq - 1) /* the previous job is just being reported */
        return false;
    job->result = l ? l->result : job->result;
    job->compile_ms = l ? l->compile_ms : 0;
    job->refusal = l ? l->refusal : 0;
    job->untouched = job->in_submit = true;
    s->under_way = s->under_way_tail = NULL;
    s->n_under_way--;
    no_longer_runs(s->device, job);
    remove_busy(s->device, s);
    return true;
}

/* Whether the job was refused because its memory could not be allocated or one of its kernels is no
 * longer run. It was then never in the queue: its submitter is told at once, whatever is before it
 * (except with a fetch, as above). */
static bool refused(struct cuda_device *d, struct job *job)
{
    struct launch *l = job->private_data;
    enum err_code code = l ? l->result : job->result;
    if ((code != ERR_OUT_OF_MEMORY && code != ERR_FAULTED && code != ERR_PLAN_FAULTED) ||
        job->fetch)
        return false;
    job->result = code;
    job->refusal = l ? l->refusal : 0;
    job->untouched = job->in_submit = true;
    if (l)
        launch_put(d, l);
    job->private_data = NULL;
    if (job->measured)
        job->measured(job);
    job->done(job);
    return true;
}

uint64_t cuda_submit(struct backend_stream *s, struct job *job)
{
    struct cuda_device *d = s->device;
    enum err_code code;
    struct launch *l = launch_new(d, job, &code);
    job->private_data = l;
    job->result = l ? ERR_OK : code;
    job->stream = s;
    if (refused(d, job))
        return 0;
    pthread_mutex_lock(&d->lock);
    uint64_t seq = ++s->issued;
    job->seq = seq;
    job->next = NULL;
    if (s->queue_tail)
        s->queue_tail->next = job;
    else
        s->queue = job;
    s->queue_tail = job;
    if (s->queue == job)
        launch_queue(s);
    bool failed = failed_at_once(s, job), tells = failed && d->tells;
    if (tells)
        d->tells = false;
    pthread_mutex_unlock(&d->lock);
    if (failed)
        tell(d, job);
    if (tells)
        cuda_wake(d->cuda);
    return seq;
}

/* --- completion --- */

/* Takes a stream's oldest job off the list if it is done. device->lock is held. */
static struct job *take_finished(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    struct job *job = s->under_way;
    struct launch *l = job ? job->private_data : NULL;
    if (!job)
        return NULL;
    /* jobs are reported in the order of their fences, so that a failure is known before a job that
     * read its output is reported; fences only point backwards */
    for (uint32_t i = 0; i < job->n_waits; i++)
        if (!cuda_passed(job->waits[i]))
            return NULL;
    if (atomic_load(&c->lost))
        cuda_fault_look(d);
    if (l && l->timed && !atomic_load(&c->lost)) {
        CUresult r = c->driver->cuEventQuery(l->end);
        /* a failure that leaves the device alive says nothing about the work: poll again */
        if (r == CUDA_ERROR_NOT_READY || r == CUDA_ERROR_OUT_OF_MEMORY) {
            mesh_look(s);
            return NULL;
        }
        float ms = 0;
        enum err_code code = cuda_check(c, r, "cuEventQuery", NULL);
        if (code == ERR_OK && cuda_check(c, c->driver->cuEventElapsedTime(&ms, l->begin, l->end),
                                         "cuEventElapsedTime", NULL) == ERR_DEVICE_LOST)
            code = ERR_DEVICE_LOST; /* failing to measure the time is no failure of the work */
        if (atomic_load(&c->lost))
            cuda_fault_look(d);
        job->device_ms = (double)ms;
        job->result = l->result != ERR_OK ? l->result : code;
    } else if (l) {
        job->result = l->result != ERR_OK || l->over ? l->result : ERR_DEVICE_LOST;
    }
    if (l) {
        job->compile_ms = l->compile_ms;
        job->tiers = l->tiers;
        job->forms = l->forms;
        job->refusal = l->refusal;
    }
    job->untouched = job->result != ERR_OK && !(l && l->touched);
    no_longer_runs(s->device, job);
    s->under_way = job->next;
    if (l && s->under_way && s->under_way->private_data)
        launch_take_begin(s->under_way->private_data, l);
    if (!s->under_way)
        s->under_way_tail = NULL;
    s->n_under_way--;
    return job;
}

/* One finished job of one stream, if any; streams take turns. */
static struct job *next_finished(struct cuda_device *d)
{
    lock_held(&d->lock);
    for (struct backend_stream *s = d->busy, *next; s; s = next) {
        next = s->next_busy;
        struct job *job = take_finished(s);
        if (!job && s->under_way)
            continue;
        launch_queue(s);
        if (!s->under_way)
            remove_busy(d, s);
        if (job)
            return job;
    }
    return NULL;
}

static void retry(struct cuda_device *d)
{
    lock_held(&d->lock);
    d->retry = d->held_up = false;
    for (struct backend_stream *s = d->streams; s; s = s->next)
        launch_queue(s);
}

/* Reports one finished job, if any; device->lock is released meanwhile. */
static bool report_one(struct cuda_device *d)
{
    lock_held(&d->lock);
    (void)cuda_enter(d); /* reporting may have entered another's */
    struct job *job = d->telling ? NULL : next_finished(d);
    if (!job)
        return false;
    bool held_up = d->held_up || d->tells;
    d->tells = false;
    d->telling = true;
    pthread_mutex_unlock(&d->lock);
    tell(d, job);
    held_up |= atomic_exchange(&d->cuda->waits_across, false);
    if (held_up)
        cuda_wake(d->cuda); /* jobs that waited for it, on any device */
    pthread_mutex_lock(&d->lock);
    d->telling = false;
    d->told_ns = clock_ns();
    return true;
}

void cuda_poll(struct backend *b)
{
    struct cuda *c = (struct cuda *)b;
    for (int i = 0; i < c->n_devices; i++) {
        struct cuda_device *d = &c->devices[i];
        atomic_store_explicit(&d->polled_ns, clock_ns(), memory_order_relaxed);
        if (pthread_mutex_trylock(&d->lock) != 0)
            continue; /* the one that has it looks, or launches: this one asks again */
        if (d->busy && cuda_enter(d))
            (void)report_one(d);
        pthread_mutex_unlock(&d->lock);
    }
}

/* Unlike slab.c's copies, which are over in microseconds, work may take seconds: the naps are a
 * small part of the time that it has taken, and the last event is spun for longer. */
static void nap(uint64_t idle_ns, bool busy, bool polled)
{
    if (!polled && (idle_ns < SPIN_NS || !busy)) {
        sched_yield();
        return;
    }
    uint64_t ns = NAP_NS + (idle_ns < SPIN_NS ? 0 : idle_ns - SPIN_NS) / NAP_PART;
    struct timespec t = {0, (long)(ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS)};
    nanosleep(&t, NULL);
}

static void *completion_run(void *arg)
{
    struct cuda_device *d = arg;
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    (void)cuda_enter(d);
    pthread_mutex_lock(&d->lock);
    d->told_ns = clock_ns();
    for (;;) {
        if (d->retry || (d->held_up && beside_lets_some(d)))
            retry(d);
        if (report_one(d) || d->retry)
            continue;
        if (!d->busy && !d->telling && (d->stop || clock_ns() - d->told_ns > AWAKE_NS)) {
            if (d->stop)
                break;
            pthread_cond_wait(&d->wake, &d->lock);
            d->told_ns = clock_ns();
            continue;
        }
        bool busy = d->busy != NULL;
        uint64_t now = clock_ns(), since = d->told_ns;
        bool polled =
            (int64_t)(now - atomic_load_explicit(&d->polled_ns, memory_order_relaxed)) < POLLED_NS;
        const bool tells = beside_lets_others(d);
        pthread_mutex_unlock(&d->lock);
        if (tells)
            cuda_wake(d->cuda);
        nap(now - since, busy, polled);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* --- opening and closing --- */

static void release(struct cuda_device *d)
{
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    mem_free(d->params);
}

enum err_code cuda_queue_open(struct cuda_device *d, struct err *e)
{
    pthread_mutex_init(&d->lock, NULL); /* neither can fail here */
    pthread_cond_init(&d->wake, NULL);
    d->params = mem_alloc(EMIT_PARAMS_MAX);
    d->completion_started =
        d->params && thread_start(&d->completion, "arrayd-device", completion_run, d);
    if (d->completion_started)
        return ERR_OK;
    release(d);
    return err_set(e, ERR_OUT_OF_MEMORY, "cannot start the thread that watches device %d",
                   d->index);
}

void cuda_queue_close(struct cuda_device *d)
{
    if (!d->completion_started)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->completion, NULL);
    (void)cuda_enter(d);
    cuda_streams_release(d);
    while (d->launches) {
        struct launch *l = d->launches;
        d->launches = l->next;
        launch_free(d, l);
    }
    release(d);
    d->completion_started = false;
}
