/* Graphs: what a stream is asked for while it captures, kept and queued again with each launch. Of
 * a capturing stream only kernels, fillings, copies and events may be asked, as the product does.
 *
 * A stream that waits for an event of a capturing one is captured too. What it is asked for is a
 * lane of the graph: the first lane is run by the stream that launches it, each other one by a
 * stream of the graph's own, in the context it was asked for in. The events between them are the
 * graph's. So what no event orders is not ordered in a launch either. */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC_GRAPH = 0x47524148, MAX_LANES = 32 };

/* A graph, and what is made of it: the same here. */
struct CUgraph_st {
    unsigned magic;
    int refs; /* the handles' */
    struct work *first, **last;
    int n_lanes;
    struct lane {
        struct CUctx_st *context;
        struct CUstream_st *stream; /* of a capture that has ended; not the first's */
        int seen[MAX_LANES];        /* of each lane, how much its next piece of work is behind */
    } lanes[MAX_LANES];
};

static void unref(struct CUgraph_st *g)
{
    if (--g->refs)
        return;
    for (struct work *w = g->first, *next; w; w = next) {
        next = w->next;
        if (w->wait)
            event_unref(w->wait);
        if (w->dispose)
            w->dispose(w);
        free(w);
    }
    for (int i = 1; i < g->n_lanes; i++)
        if (g->lanes[i].stream)
            stream_end(g->lanes[i].stream);
    g->magic = 0;
    free(g);
}

bool graph_takes(struct CUstream_st *s, struct work *w)
{
    if (!s->capture)
        return false;
    w->next = NULL;
    w->lane = s->lane;
    *s->capture->last = w;
    s->capture->last = &w->next;
    if (!w->wait && !w->is_record)
        s->capture->lanes[s->lane].seen[s->lane]++;
    return true;
}

static void join(struct CUgraph_st *g, struct CUstream_st *s)
{
    s->capture = g;
    s->lane = g->n_lanes++;
    g->lanes[s->lane].context = s->context;
    g->lanes[s->lane].seen[s->lane] = 1;
}

struct CUevent_st *graph_event(struct CUstream_st *s)
{
    struct CUevent_st *e = event_new(s->context, CU_EVENT_DISABLE_TIMING);
    e->capture = s->capture;
    e->seen = fake_alloc(sizeof s->capture->lanes->seen);
    memcpy(e->seen, s->capture->lanes[s->lane].seen, sizeof s->capture->lanes->seen);
    return e;
}

int graph_joins(struct CUstream_st *s, const struct CUevent_st *e)
{
    if (!e || !e->capture || (s->capture && s->capture != e->capture))
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (!s->capture && e->capture->n_lanes == MAX_LANES)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!s->capture)
        join(e->capture, s);
    int *seen = s->capture->lanes[s->lane].seen;
    for (int i = 0; i < MAX_LANES; i++)
        seen[i] = seen[i] < e->seen[i] ? e->seen[i] : seen[i];
    return CUDA_SUCCESS;
}

/* Every stream leaves it. An error when the first has not waited for all that others were asked
 * for, or there are no streams to run that. */
static int end(struct CUgraph_st *g)
{
    int r = CUDA_SUCCESS;
    for (struct CUstream_st *s = fake.streams; s; s = s->next)
        if (s->capture == g)
            s->capture = NULL;
    events_forget(g);
    for (int i = 1; i < g->n_lanes; i++)
        if (g->lanes[0].seen[i] < g->lanes[i].seen[i])
            return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    for (int i = 1; i < g->n_lanes && !r; i++)
        if (!(g->lanes[i].stream = stream_new(g->lanes[i].context)))
            r = CUDA_ERROR_OUT_OF_MEMORY;
    return r;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, int mode)
{
    int r = fake_enter("cuStreamBeginCapture", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUstream_st *s = stream ? stream_of(stream) : NULL;
    if (!s || s->capture)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *g = fake_alloc(sizeof *g);
    g->magic = MAGIC_GRAPH;
    g->refs = 1;
    g->last = &g->first;
    join(g, s);
    fake.live[FAKE_GRAPHS]++;
    return fake_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    int failure = CUDA_SUCCESS, r = fake_enter("cuStreamEndCapture", NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    struct CUstream_st *s = stream ? stream_of(stream) : NULL;
    if (!graph || !s || !s->capture)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (s->lane)
        return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    struct CUgraph_st *g = s->capture;
    r = end(g);
    failure = failure ? failure : r;
    *graph = failure ? NULL : g;
    if (failure) {
        fake.live[FAKE_GRAPHS]--;
        unref(g);
    }
    return fake_leave(failure);
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
    int r = fake_enter("cuGraphInstantiate", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    if (!ret || !graph || graph->magic != MAGIC_GRAPH || flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    graph->refs++;
    fake.live[FAKE_GRAPHS]++;
    *ret = (CUgraphExec)graph;
    return fake_leave(CUDA_SUCCESS);
}

static CUresult destroy(const char *name, struct CUgraph_st *g)
{
    int failure = CUDA_SUCCESS, r = fake_enter(name, NEEDS_CONTEXT, &failure);
    if (r)
        return r;
    if (!g || g->magic != MAGIC_GRAPH)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fake.live[FAKE_GRAPHS]--;
    unref(g);
    return fake_leave(failure);
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    return destroy("cuGraphDestroy", graph);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    return destroy("cuGraphExecDestroy", (struct CUgraph_st *)graph);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    int r = fake_enter("cuGraphLaunch", NEEDS_CONTEXT, NULL);
    if (r)
        return r;
    struct CUgraph_st *g = (struct CUgraph_st *)graph;
    struct CUstream_st *s = stream_of(stream);
    if (!g || g->magic != MAGIC_GRAPH || !s || s->capture || s->context != g->lanes[0].context)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    for (const struct work *w = g->first; w; w = w->next) {
        int later = 0, now = w->is_launch ? fake_launch_failure(&later) : CUDA_SUCCESS;
        if (now)
            return fake_leave(now);
        struct CUstream_st *on = w->lane ? g->lanes[w->lane].stream : s;
        if (w->wait)
            event_wait(w->wait, on);
        if (w->is_record)
            event_record(w->record.event, on);
        if (w->wait || w->is_record)
            continue;
        struct work *again = fake_alloc(sizeof *again);
        *again = *w;
        if (w->is_launch) {
            launch_copy(again, w);
            again->launch.fail = later;
            fake.launched++;
        }
        stream_push(on, again);
    }
    return fake_leave(CUDA_SUCCESS);
}
