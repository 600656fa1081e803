/* The order on a mesh. Its stream is a CUDA stream on each member. Where a kernel is divided, each
 * member's part waits for what every member did before: its input may be anybody's, and what it
 * overwrites may still be read. That costs the GPUs some three microseconds, and the host two calls
 * for each pair of members. Kernels whose parts touch only elements of their own number say which
 * addresses these are, and as long as no two members' overlap, none waits.
 * What is not divided is the first member's, behind all others; so are a job's beginning and end,
 * which the rest of the backend knows alone.
 */
#include "compute/gpu/device/mesh.h"

#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/gpu/api/members.h"
#include "compute/gpu/device/memory.h"

#define LOOK_NS UINT64_C(1000000)

/* --- opening --- */

static enum err_code find_members(struct cuda_device *d, struct err *e)
{
    struct cuda *c = d->cuda;
    struct members m;
    struct err why = ERR_INIT;
    if (members_read(c->config.mesh, c->n_gpus, &m, &why) != ERR_OK)
        return err_set(e, why.code, "mesh: %s", why.message);
    for (int k = 0; k < m.n; k++)
        d->members[d->n_members++] = &c->devices[m.number[k]];
    return ERR_OK;
}

/* What the kernels need of each other's memory: the pools'. Ranges are given access themselves. */
static enum err_code give_access(struct cuda_device *d, struct err *e)
{
    struct cuda *c = d->cuda;
    for (int k = 0; k < d->n_members; k++) {
        CUmemAccessDesc others[BACKEND_PARTS];
        size_t n = 0;
        for (int i = 0; i < d->n_members; i++) {
            int reaches = 0;
            if (i == k)
                continue;
            TRY(cuda_check(c,
                           c->driver->cuDeviceCanAccessPeer(&reaches, d->members[i]->handle,
                                                            d->members[k]->handle),
                           "cuDeviceCanAccessPeer", e));
            if (!reaches)
                return err_set(e, ERR_BAD_FIELD,
                               "mesh: GPU %d does not reach the memory of GPU %d (no peer access)",
                               d->members[i]->index, d->members[k]->index);
            others[n++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, d->members[i]->handle},
                                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        }
        TRY(cuda_check(c, c->driver->cuMemPoolSetAccess(d->members[k]->memory.pool, others, n),
                       "cuMemPoolSetAccess", e));
    }
    return ERR_OK;
}

/* The mesh is like its first member, as far as a kernel's text goes. */
static enum err_code are_alike(const struct cuda_device *d, struct err *e)
{
    for (int k = 1; k < d->n_members; k++)
        if (!members_are_alike(d->cuda->driver, d->members[0]->handle, d->members[k]->handle))
            return err_set(e, ERR_BAD_FIELD, "mesh: GPU %d is another kind than GPU %d",
                           d->members[k]->index, d->members[0]->index);
    return ERR_OK;
}

enum err_code mesh_open(struct cuda_device *d, struct err *e)
{
    pthread_mutex_init(&d->memory.lock, NULL); /* cannot fail here */
    TRY(find_members(d, e));
    TRY(are_alike(d, e));
    const struct cuda_device *first = d->members[0];
    d->handle = first->handle;
    d->context = first->context;
    d->shared = first->shared;
    d->copies_boxes = first->copies_boxes;
    memcpy(d->arch, first->arch, sizeof d->arch);
    snprintf(d->name, sizeof d->name, "%d x %.100s", d->n_members, first->name);
    for (int k = 0; k < d->n_members; k++) {
        d->memory_total += d->members[k]->memory_total;
        if (*d->members[k]->share.problem)
            memcpy(d->share.problem, d->members[k]->share.problem, sizeof d->share.problem);
    }
    d->pack = first->pack;
    d->memory.stream = first->memory.stream;
    TRY(cuda_entered(d, e));
    return give_access(d, e);
}

bool mesh_is_linked(const struct cuda_device *d)
{
    bool linked = true;
    for (int k = 0; k < d->n_members; k++)
        for (int i = 0; i < k; i++)
            linked &=
                members_are_linked(d->cuda->driver, d->members[i]->handle, d->members[k]->handle);
    return linked;
}

/* --- streams --- */

enum err_code mesh_stream_open(struct backend_stream *s, struct err *e)
{
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    enum err_code code = ERR_OK;
    s->mesh = mem_calloc((size_t)d->n_members, sizeof *s->mesh);
    if (!s->mesh)
        return err_oom(e);
    for (int k = 0; k < d->n_members && code == ERR_OK; k++) {
        struct mesh_lane *l = &s->mesh[k];
        code = cuda_entered(d->members[k], e);
        if (code == ERR_OK && k > 0)
            code = cuda_stream_create(c, s->background, &l->cu, e);
        if (code == ERR_OK)
            code = cuda_check(c, c->driver->cuEventCreate(&l->end, CU_EVENT_DISABLE_TIMING),
                              "cuEventCreate", e);
    }
    s->mesh[0].cu = s->cu;
    if (code != ERR_OK)
        mesh_stream_close(s);
    (void)cuda_enter(d);
    return code;
}

void mesh_stream_close(struct backend_stream *s)
{
    const struct driver *v = s->device->cuda->driver;
    for (int k = 0; k < s->device->n_members; k++) {
        (void)cuda_enter(s->device->members[k]);
        if (k > 0 && s->mesh[k].cu)
            (void)v->cuStreamDestroy(s->mesh[k].cu);
        if (s->mesh[k].end)
            (void)v->cuEventDestroy(s->mesh[k].end);
    }
    (void)cuda_enter(s->device);
    mem_free(s->mesh);
    s->mesh = NULL;
}

/* --- order --- */

/* Records the events behind the work of members [from, to). */
static enum err_code record(struct backend_stream *s, int from, int to)
{
    struct cuda *c = s->device->cuda;
    enum err_code code = ERR_OK;
    for (int k = from; k < to && code == ERR_OK; k++) {
        code = cuda_enter(s->device->members[k]) ? ERR_OK : ERR_DEVICE_LOST;
        if (code == ERR_OK)
            code = cuda_check(c, c->driver->cuEventRecord(s->mesh[k].end, s->mesh[k].cu),
                              "cuEventRecord", NULL);
    }
    (void)cuda_enter(s->device);
    return code;
}

static enum err_code wait(struct backend_stream *s, int member, int other)
{
    struct cuda *c = s->device->cuda;
    return cuda_check(c, c->driver->cuStreamWaitEvent(s->mesh[member].cu, s->mesh[other].end, 0),
                      "cuStreamWaitEvent", NULL);
}

/* Whether one of them writes what another of them touches. */
static bool collide(const struct mesh_span *a, int n_a, const struct mesh_span *b, int n_b)
{
    for (int i = 0; i < n_a; i++)
        for (int k = 0; k < n_b; k++)
            if ((a[i].written || b[k].written) && a[i].from < b[k].until && b[k].from < a[i].until)
                return true;
    return false;
}

/* Adds what a member touches; false: there is no room. */
static bool note(struct mesh_lane *l, const struct mesh_span *spans, int n)
{
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < l->n_spans &&
               (l->spans[at].from != spans[i].from || l->spans[at].until != spans[i].until))
            at++;
        if (at == MESH_SPANS)
            return false;
        if (at == l->n_spans)
            l->spans[l->n_spans++] = spans[i];
        l->spans[at].written |= spans[i].written;
    }
    return true;
}

/* Whether no part of the next kernel has to wait for another member. Notes what it touches. */
static bool are_apart(struct backend_stream *s, const struct mesh_span *spans, int n)
{
    const int members = s->device->n_members;
    if (s->order == MESH_TOGETHER || n < 0)
        return false;
    for (int k = 0; k < members; k++)
        for (int i = 0; i < members; i++) {
            const struct mesh_lane *o = &s->mesh[i];
            if (i != k && (o->n_spans < 0 || collide(spans + k * n, n, o->spans, o->n_spans)))
                return false;
        }
    for (int k = 0; k < members; k++)
        if (!note(&s->mesh[k], spans + k * n, n))
            return false;
    return true;
}

/* Where the members had met, the others wait for what the first did before that: the microseconds
 * of its waiting for them are not theirs, too. */
static enum err_code wait_for_all(struct backend_stream *s)
{
    const int n = s->device->n_members, events = s->order == MESH_TOGETHER ? 1 : n;
    const bool met = s->order == MESH_MET;
    enum err_code code = met ? ERR_OK : record(s, 0, events);
    for (int k = met ? 1 : 0; k < n && code == ERR_OK; k++)
        for (int i = 0; i < events && code == ERR_OK; i++)
            if (i != k)
                code = wait(s, k, i);
    return code;
}

enum err_code mesh_part_ways(struct backend_stream *s, const struct mesh_span *spans, int n)
{
    lock_held(&s->device->lock);
    const bool apart = are_apart(s, spans, n);
    const enum err_code code = apart ? ERR_OK : wait_for_all(s);
    for (int k = 0; k < s->device->n_members && !apart; k++) {
        struct mesh_lane *l = &s->mesh[k];
        l->n_spans = 0;
        if (n < 0 || code != ERR_OK || !note(l, spans + k * n, n))
            l->n_spans = -1;
    }
    s->order = MESH_APART;
    return code;
}

/* Waits itself for what the others do: events do not. */
static enum err_code settle(struct backend_stream *s)
{
    struct cuda *c = s->device->cuda;
    enum err_code code = ERR_OK;
    for (int k = 1; k < s->device->n_members && code == ERR_OK; k++) {
        code = cuda_enter(s->device->members[k]) ? ERR_OK : ERR_DEVICE_LOST;
        if (code == ERR_OK)
            code = cuda_check(c, c->driver->cuStreamSynchronize(s->mesh[k].cu),
                              "cuStreamSynchronize", NULL);
    }
    (void)cuda_enter(s->device);
    return code;
}

enum err_code mesh_meet(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    if (s->order != MESH_APART)
        return ERR_OK;
    enum err_code code = record(s, 0, s->device->n_members);
    for (int k = 1; k < s->device->n_members && code == ERR_OK; k++)
        code = wait(s, 0, k);
    s->order = MESH_MET;
    if (code != ERR_OK && code != ERR_DEVICE_LOST && !s->captured) {
        code = settle(s);
        s->order = MESH_TOGETHER;
    }
    return code;
}

enum err_code mesh_alone(struct backend_stream *s)
{
    const enum err_code code = mesh_meet(s);
    s->order = MESH_TOGETHER;
    return code;
}

enum err_code mesh_captured(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    s->order = MESH_TOGETHER;
    s->captured = false;
    return s->mesh ? record(s, 0, s->device->n_members) : ERR_OK;
}

void mesh_look(struct backend_stream *s)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    if (!s->mesh || clock_ns() - d->members_looked_ns < LOOK_NS)
        return;
    d->members_looked_ns = clock_ns();
    for (int k = 1; k < d->n_members && cuda_enter(d->members[k]); k++) {
        const CUresult r = c->driver->cuEventQuery(s->mesh[k].end);
        if (r != CUDA_ERROR_OUT_OF_MEMORY && r != CUDA_ERROR_CAPTURED_EVENT)
            (void)cuda_check(c, r, "cuEventQuery", NULL);
    }
    (void)cuda_enter(d);
}
