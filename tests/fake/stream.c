/* Streams and events: each stream is a queue and a thread, so that work is as asynchronous as on a
 * device and a missing synchronisation shows.
 *
 * The default stream (NULL) is one more stream of its context; it does not wait for the others, so
 * that a program relying on that is found out. An event is a pair of counters: how often it was
 * recorded and which recording has been reached; a wait remembers the recording it was asked after.
 * A stream takes what is asked for with its own context current; to wait for an event, any.
 * With a sticky error queued work is disposed of without being run. */
#include "tests/fake/fake.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* The adverse order (fake.unkind). Nothing is run until somebody waits for it, or asks whether it
 * is done while nobody has anything more to do; then the devices that come first in this order run
 * all that they can before another runs what is waited for. So a kernel that reads what another
 * device writes comes too soon, in one of the two orders, unless an event holds it back: what that
 * is recorded behind is waited for in turn. */

static const double quiet = 5; /* ms without new work, after which a query counts as waiting */

static bool is_blocked(const struct work *w)
{
    return (w->wait && w->wait->completed < w->until) || (w->held && fake.holding);
}

static bool can_go_on(const struct CUstream_st *s)
{
    const struct work *w = s->running ? s->running : s->first;
    return w && !is_blocked(w);
}

/* Somebody waits for its first `until` pieces of work. */
static void want(struct CUstream_st *s, uint64_t until)
{
    if (!fake.unkind || s->wanted >= until)
        return;
    s->wanted = until;
    pthread_cond_broadcast(&fake.changed);
}

/* Somebody asks after them. */
static void ask(struct CUstream_st *s, uint64_t until)
{
    if (fake_now() - fake.pushed_at >= quiet)
        want(s, until);
}

/* Whether it is this stream's turn. If not, what it waits for is wanted as it is. */
static bool may_run(struct CUstream_st *s)
{
    if (!fake.unkind)
        return true;
    const struct work *w = s->running;
    if (w->wait && is_blocked(w) && s->wanted > s->done)
        want(w->recorded_in, w->recorded_at);
    bool wanted = s->wanted > s->done;
    for (const struct CUstream_st *x = fake.streams; x; x = x->next) {
        int behind = fake.unkind * (s->context->device - x->context->device);
        if (behind < 0 && can_go_on(x))
            return false;
        wanted |= behind > 0 && x->wanted > x->done;
    }
    return wanted;
}

static void finish(struct CUstream_st *s)
{
    for (struct CUstream_st **p = &fake.streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    s->magic = 0;
    pthread_cond_destroy(&s->ready);
    free(s);
}

/* With the lock held, which it lets go of: joins the thread that ended last, as that one did with
 * the one before it. */
static void join_ended(bool has_ended, pthread_t thread)
{
    pthread_mutex_unlock(&fake.lock);
    if (has_ended)
        pthread_join(thread, NULL);
}

static void run_one(struct CUstream_st *s)
{
    struct work *w = s->first;
    s->first = w->next;
    if (!s->first)
        s->last = &s->first;
    s->running = w;
    while (!fake.sticky && (!may_run(s) || is_blocked(w)))
        pthread_cond_wait(&fake.changed, &fake.lock);
    if (!fake.sticky && w->run) {
        struct timespec pause = {.tv_nsec = fake.delay_us * 1000L};
        pthread_mutex_unlock(&fake.lock);
        if (pause.tv_nsec)
            nanosleep(&pause, NULL);
        fake_current = s->context;
        int result = w->run(w);
        pthread_mutex_lock(&fake.lock);
        if (result)
            fake_break(result);
    }
    if (w->wait)
        event_unref(w->wait);
    if (w->dispose)
        w->dispose(w);
    free(w);
    s->running = NULL;
    s->done++;
    pthread_cond_broadcast(&fake.changed);
}

static void *stream_main(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        while (!s->first && !s->stop)
            pthread_cond_wait(&s->ready, &fake.lock);
        if (!s->first)
            break;
        run_one(s);
    }
    finish(s);
    bool before = fake.has_ended;
    pthread_t last = fake.ended;
    fake.has_ended = true;
    fake.ended = pthread_self();
    pthread_cond_broadcast(&fake.changed);
    join_ended(before, last);
    return NULL;
}

void stream_end(struct CUstream_st *s)
{
    s->stop = true;
    want(s, s->issued);
    pthread_cond_signal(&s->ready);
}

struct CUstream_st *stream_new(struct CUctx_st *context)
{
    struct CUstream_st *s = fake_alloc(sizeof *s);
    s->magic = MAGIC_STREAM;
    s->context = context;
    s->last = &s->first;
    pthread_cond_init(&s->ready, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the program's own business */
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, stream_main, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        free(s);
        return NULL;
    }
    s->next = fake.streams;
    fake.streams = s;
    return s;
}

static bool is_stream(const struct CUstream_st *s)
{
    return s && s->magic == MAGIC_STREAM && !s->stop;
}

struct CUstream_st *stream_of(CUstream s)
{
    if (is_stream(s) && s->context != fake_current)
        fake_warn("a stream of device %d, and a context of device %d is current",
                  s->context->device, fake_current->device);
    if (s)
        return is_stream(s) && s->context == fake_current ? s : NULL;
    if (!fake_current->null_stream)
        fake_current->null_stream = stream_new(fake_current);
    return fake_current->null_stream;
}

void stream_push(struct CUstream_st *s, struct work *w)
{
    if (graph_takes(s, w))
        return;
    w->next = NULL;
    *s->last = w;
    s->last = &w->next;
    s->issued++;
    fake.pushed_at = fake.unkind ? fake_now() : 0;
    pthread_cond_signal(&s->ready);
}

int stream_wait(struct CUstream_st *s)
{
    uint64_t until = s->issued;
    want(s, until);
    while (s->done < until && !fake.sticky)
        pthread_cond_wait(&fake.changed, &fake.lock);
    return fake.sticky;
}

void stream_wait_all(void)
{
    for (bool again = true; again;) {
        again = false;
        for (struct CUstream_st *s = fake.streams; s; s = s->next) {
            want(s, s->issued);
            again |= s->done < s->issued || s->stop;
        }
        if (again)
            pthread_cond_wait(&fake.changed, &fake.lock);
    }
}

/* A leak checker looks at the threads that are left when the program ends: those of destroyed
 * streams are not. What is held or waits for ever stays. */
__attribute__((destructor)) static void end_threads(void)
{
    pthread_mutex_lock(&fake.lock);
    bool ends = !fake.forked && !fake.holding;
    for (struct CUstream_st *s = fake.streams; s && ends; s = s->next)
        ends &= s->stop || s->done == s->issued;
    if (!ends) {
        pthread_mutex_unlock(&fake.lock);
        return;
    }
    for (bool again = true; again;) {
        again = false;
        for (struct CUstream_st *s = fake.streams; s; s = s->next)
            again |= s->stop;
        if (again)
            pthread_cond_wait(&fake.changed, &fake.lock);
    }
    bool any = fake.has_ended;
    fake.has_ended = false;
    join_ended(any, fake.ended);
}

#define GREATEST_PRIORITY (-5)

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    int r = fake_enter("cuCtxGetStreamPriorityRange", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = GREATEST_PRIORITY;
    return fake_leave(CUDA_SUCCESS);
}

/* Priorities are taken, and change nothing. */
static CUresult create(CUstream *stream, unsigned flags)
{
    if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUstream_st *s = stream_new(fake_current);
    if (!s)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    fake.live[FAKE_STREAMS]++;
    *stream = s;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    int r = fake_enter("cuStreamCreate", NEEDS_CONTEXT, NULL);
    return r ? r : create(stream, flags);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    int r = fake_enter("cuStreamCreateWithPriority", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (priority < GREATEST_PRIORITY || priority > 0)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    return create(stream, flags);
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuStreamDestroy", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    struct CUstream_st *s = stream ? stream_of(stream) : NULL;
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    stream_end(s);
    fake.live[FAKE_STREAMS]--;
    return fake_leave(failure);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    int r = fake_enter("cuStreamQuery", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    if (s && s->done < s->issued)
        ask(s, s->issued);
    return fake_leave(!s                    ? CUDA_ERROR_INVALID_HANDLE
                      : s->done < s->issued ? CUDA_ERROR_NOT_READY
                                            : CUDA_SUCCESS);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    int r = fake_enter("cuStreamSynchronize", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    return fake_leave(s ? stream_wait(s) : CUDA_ERROR_INVALID_HANDLE);
}

/* Events */

static bool is_event(struct CUevent_st *e)
{
    return e && e->magic == MAGIC_EVENT;
}

static struct CUevent_st *events; /* with the lock held */

void event_unref(struct CUevent_st *e)
{
    if (--e->refs)
        return;
    if (e->captured)
        event_unref(e->captured);
    free(e->seen);
    e->magic = 0;
    *(e->prev ? &e->prev->next : &events) = e->next;
    if (e->next)
        e->next->prev = e->prev;
    free(e);
}

struct CUevent_st *event_new(struct CUctx_st *context, unsigned flags)
{
    struct CUevent_st *e = fake_alloc(sizeof *e);
    e->magic = MAGIC_EVENT;
    e->flags = flags;
    e->refs = 1;
    e->context = context;
    e->next = events;
    if (events)
        events->prev = e;
    events = e;
    return e;
}

void events_forget(const struct CUgraph_st *capture)
{
    for (struct CUevent_st *e = events; e; e = e->next)
        if (e->capture == capture)
            e->capture = NULL;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    int r = fake_enter("cuEventCreate", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!event || flags & ~7u)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    *event = event_new(fake_current, flags);
    fake.live[FAKE_EVENTS]++;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuEventDestroy", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    if (!is_event(event))
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    fake.live[FAKE_EVENTS]--;
    event_unref(event);
    return fake_leave(failure);
}

static int run_record(struct work *w)
{
    pthread_mutex_lock(&fake.lock);
    struct CUevent_st *e = w->record.event;
    if (e->completed < w->record.generation) {
        e->completed = w->record.generation;
        e->at = fake_now();
    }
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static void dispose_record(struct work *w) /* dropped: nobody is to wait for it for ever */
{
    if (w->record.event->completed < w->record.generation)
        w->record.event->completed = w->record.generation;
    event_unref(w->record.event);
}

void event_record(struct CUevent_st *e, struct CUstream_st *s)
{
    struct work *w = fake_alloc(sizeof *w);
    w->is_record = true;
    w->run = run_record;
    w->dispose = dispose_record;
    w->record.event = e;
    w->record.generation = ++e->recorded;
    e->refs++;
    stream_push(s, w);
    e->recorded_in = s;
    e->recorded_at = s->issued;
}

void event_wait(struct CUevent_st *e, struct CUstream_st *s)
{
    struct work *w = fake_alloc(sizeof *w);
    w->wait = e;
    w->until = e->recorded;
    w->recorded_in = e->recorded_in;
    w->recorded_at = e->recorded_at;
    e->refs++;
    stream_push(s, w);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    int r = fake_enter("cuEventRecord", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream_of(stream);
    if (!s || !is_event(event) || event->context != s->context)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->captured)
        event_unref(event->captured);
    event->captured = s->capture ? graph_event(s) : NULL;
    event_record(event->captured ? event->captured : event, s);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    int r = fake_enter("cuStreamWaitEvent", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = is_stream(stream) ? stream : stream_of(stream);
    if (!s || !is_event(event))
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (flags > 1)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if ((s->capture || event->captured) && (r = graph_joins(s, event->captured)))
        return fake_leave(r);
    if (!fake.forgets || event->context == s->context)
        event_wait(event->captured ? event->captured : event, s);
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    int r = fake_enter("cuEventQuery", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    bool waits = is_event(event) && event->completed < event->recorded;
    if (waits)
        ask(event->recorded_in, event->recorded_at);
    return fake_leave(!is_event(event)  ? CUDA_ERROR_INVALID_HANDLE
                      : event->captured ? CUDA_ERROR_CAPTURED_EVENT
                      : waits           ? CUDA_ERROR_NOT_READY
                                        : CUDA_SUCCESS);
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    int r = fake_enter("cuEventElapsedTime", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!ms)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_event(start) || !is_event(end) || start->context != end->context || start->captured ||
        end->captured || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
        !start->recorded || !end->recorded)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (start->completed < start->recorded || end->completed < end->recorded)
        return fake_leave(CUDA_ERROR_NOT_READY);
    *ms = (float)(end->at - start->at);
    return fake_leave(CUDA_SUCCESS);
}
