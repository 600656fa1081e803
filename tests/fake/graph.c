/* Graphs: what a stream is asked for while it captures, kept and queued again with each launch. Of
 * a capturing stream only kernels, fillings and copies may be asked, as the product does. */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC_GRAPH = 0x47524148 };

/* A graph, and what is made of it: the same here. */
struct CUgraph_st {
    unsigned magic;
    int refs; /* the handles' */
    struct work *first, **last;
};

static void unref(struct CUgraph_st *g)
{
    if (--g->refs)
        return;
    for (struct work *w = g->first, *next; w; w = next) {
        next = w->next;
        if (w->dispose)
            w->dispose(w);
        free(w);
    }
    g->magic = 0;
    free(g);
}

bool graph_takes(struct CUstream_st *s, struct work *w)
{
    if (!s->capture)
        return false;
    w->next = NULL;
    *s->capture->last = w;
    s->capture->last = &w->next;
    return true;
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
    s->capture = g;
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
    *graph = failure ? NULL : s->capture;
    if (failure) {
        fake.live[FAKE_GRAPHS]--;
        unref(s->capture);
    }
    s->capture = NULL;
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
    if (!g || g->magic != MAGIC_GRAPH || !s || s->capture)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    for (const struct work *w = g->first; w; w = w->next) {
        int later = 0, now = w->is_launch ? fake_launch_failure(&later) : CUDA_SUCCESS;
        if (now)
            return fake_leave(now);
        struct work *again = fake_alloc(sizeof *again);
        *again = *w;
        if (w->is_launch) {
            launch_copy(again, w);
            again->launch.fail = later;
        }
        stream_push(s, again);
    }
    return fake_leave(CUDA_SUCCESS);
}
