/* Puts a job onto its stream. Everything that may block, such as allocating memory on either side,
 * is done when the job is submitted, before device->lock is taken; code is loaded before that
 * (prepare.c). With the lock held there are only calls that queue something: events, launches,
 * copies from pinned memory. Two exceptions, where the driver has no memory left to record an
 * event: kernels already launched are waited for, and so are a mesh's other members (mesh.c).
 *
 * A loop of many launches becomes a graph of some passes that is launched repeatedly: a launch
 * costs the host more than a small kernel takes, and a stream blocks after about a thousand. A
 * mesh's graph has all members' work, and the events between them. */
#include "compute/gpu/cuda/launch.h"

#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/transfer/transfer.h"

#define GRAPH_LAUNCHES 64 /* per graph, about; a loop of twice as many gets one */

/* --- launches --- */

void launch_free(struct cuda_device *d, struct launch *l)
{
    const struct driver *v = d->cuda->driver;
    if (l->begin)
        (void)v->cuEventDestroy(l->begin);
    if (l->end)
        (void)v->cuEventDestroy(l->end);
    if (l->pinned)
        (void)v->cuMemFreeHost(l->pinned);
    mem_free(l);
}

static void free_scratch(struct cuda_device *d, struct launch *l)
{
    for (int k = 0; k < d->n_members; k++)
        if (l->scratch[k]) {
            cuda_free(&d->cuda->base, d->members[k]->index, l->scratch[k], l->scratch_size[k]);
            l->scratch[k] = NULL;
        }
}

void launch_put(struct cuda_device *d, struct launch *l)
{
    if (l->graph && cuda_enter(d))
        (void)d->cuda->driver->cuGraphExecDestroy(l->graph);
    l->graph = NULL;
    free_scratch(d, l);
    pthread_mutex_lock(&d->lock);
    l->next = d->launches;
    d->launches = l;
    pthread_mutex_unlock(&d->lock);
}

static struct launch *get(struct cuda_device *d, enum err_code *ret_code)
{
    pthread_mutex_lock(&d->lock);
    struct launch *l = d->launches;
    if (l)
        d->launches = l->next;
    pthread_mutex_unlock(&d->lock);
    if (l) {
        *l = (struct launch){
            .begin = l->begin, .end = l->end, .pinned = l->pinned, .pinned_size = l->pinned_size};
        return l;
    }
    l = mem_calloc(1, sizeof *l);
    if (!l) {
        *ret_code = ERR_OUT_OF_MEMORY;
        return NULL;
    }
    struct cuda *c = d->cuda;
    *ret_code =
        cuda_check(c, c->driver->cuEventCreate(&l->begin, CU_EVENT_DEFAULT), "cuEventCreate", NULL);
    if (*ret_code == ERR_OK)
        *ret_code = cuda_check(c, c->driver->cuEventCreate(&l->end, CU_EVENT_DEFAULT),
                               "cuEventCreate", NULL);
    if (*ret_code == ERR_OK)
        return l;
    launch_free(d, l);
    return NULL;
}

/* Replaces the launch's pinned memory by a larger block. */
static enum err_code reserve_pinned(struct cuda_device *d, struct launch *l, size_t size)
{
    struct cuda *c = d->cuda;
    void *p;
    TRY(cuda_check(c, c->driver->cuMemHostAlloc(&p, size, CU_MEMHOSTALLOC_PORTABLE),
                   "cuMemHostAlloc", NULL));
    if (l->pinned)
        (void)cuda_check(c, c->driver->cuMemFreeHost(l->pinned), "cuMemFreeHost", NULL);
    l->pinned = p;
    l->pinned_size = size;
    return ERR_OK;
}

/* Whether one of the job's kernels, or all of them together, are refused after a fault, or are to
 * run alone. */
static enum err_code judge(struct cuda_device *d, struct job *job, struct launch *l)
{
    if (culprits_is_empty(d->cuda->culprits))
        return ERR_OK;
    struct code_key *keys = mem_calloc(job->n_kernels + 1, sizeof *keys);
    if (!keys)
        return ERR_OUT_OF_MEMORY;
    const uint32_t n = launch_keys(job, l, 0, job->n_kernels, keys, NULL);
    const struct culprit_verdict v = culprits_judge(d->cuda->culprits, keys, n, &l->plan);
    mem_free(keys);
    l->refusal = v.refusal;
    job->alone = v.alone && v.code == ERR_OK;
    return v.code;
}

void launch_cleared(struct cuda_device *d, const struct job *job, const struct launch *l)
{
    struct code_key *keys = mem_calloc(job->n_kernels + 1, sizeof *keys);
    if (keys) {
        const uint32_t n = launch_keys(job, l, 0, job->n_kernels, keys, NULL);
        culprits_cleared(d->cuda->culprits, keys, n, &l->plan);
    }
    mem_free(keys);
}

/* The whole that runs from kernel number i on, or NULL. */
static const struct ir_whole *whole_at(const struct job *job, const struct launch *l, uint32_t i)
{
    if (i >= 64 || !((l->wholes[0] | l->wholes[1]) >> i & 1))
        return NULL;
    return l->wholes[0] >> i & 1 ? job->kernels[i]->whole : job->kernels[i]->whole->next;
}

/* What runs at kernel number i: the kernel, or a whole; *ret_n kernels together. NULL: nothing. */
static struct prepared *prepared_at(const struct job *job, const struct launch *l, uint32_t i,
                                    uint32_t *ret_n)
{
    const struct ir_whole *w = whole_at(job, l, i);
    *ret_n = w ? w->n_parts : 1;
    if (w)
        return atomic_load(&w->kernel->prepared);
    return prepare_is_empty(job->kernels[i]) ? NULL : atomic_load(&job->kernels[i]->prepared);
}

uint32_t launch_keys(const struct job *job, const struct launch *l, uint32_t from, uint32_t to,
                     struct code_key *keys, const char **forms)
{
    uint32_t n = 0, parts;
    for (uint32_t i = from; i < to; i += parts) {
        const struct prepared *p = prepared_at(job, l, i, &parts);
        uint32_t at = 0;
        while (p && at < n && memcmp(&keys[at], &p->key, sizeof p->key) != 0)
            at++;
        if (!p || at < n)
            continue;
        if (forms)
            forms[n] = form_name(p->emitted->form);
        keys[n++] = p->key;
    }
    return n;
}

/* One block of memory for all the job's kernels that need some, since they run one by one; and one
 * of each other member's, `others` bytes. ERR_OUT_OF_MEMORY: sets what the job lacked. */
static enum err_code reserve_scratch(struct cuda_device *d, struct job *job, struct launch *l,
                                     int64_t size, int64_t others)
{
    enum err_code code = ERR_OK;
    for (int k = 0; k < d->n_members && code == ERR_OK; k++) {
        l->scratch_size[k] = k ? others : size;
        if (l->scratch_size[k] > 0)
            code = cuda_alloc(&d->cuda->base, d->members[k]->index, l->scratch_size[k], false,
                              &l->scratch[k], NULL);
        job->wanted = code == ERR_OUT_OF_MEMORY ? l->scratch_size[k] : 0;
        job->wanted_on = d->members[k]->index;
    }
    if (code != ERR_OK)
        free_scratch(d, l);
    return code;
}

/* The compiler is waited for. */
static void do_without_programs(const struct job *job, struct launch *l)
{
    uint32_t parts;
    l->compiled = true;
    for (uint32_t i = 0; i < job->n_kernels; i += parts) {
        struct prepared *p = prepared_at(job, l, i, &parts);
        if (p)
            prepared_hurry(p);
    }
}

/* The plan: all that runs for the job, and the most scratch memory that one of it needs, and that
 * it needs of each other member, too. */
static void make_plan(const struct job *job, struct launch *l, int64_t *most, int64_t *others)
{
    uint32_t parts;
    l->plan = (struct code_key){{0}};
    l->n_plan = 0;
    for (uint32_t i = 0; i < job->n_kernels; i += parts) {
        const struct prepared *p = prepared_at(job, l, i, &parts);
        if (!p)
            continue;
        code_key_add(&l->plan, &p->key);
        l->n_plan++;
        const int64_t bytes = launch_scratch(p->emitted);
        if (bytes > *most)
            *most = bytes;
        /* the states of a joined reduction are all in the first one's */
        const struct form *f = p->emitted->form;
        if (p->divided && !(f->joined && f->kind == FORM_REDUCE) && bytes > *others)
            *others = bytes;
    }
}

static enum err_code reserve(struct cuda_device *d, struct job *job, struct launch *l)
{
    int64_t most = 0, others = 0,
            with_programs = 0; /* bytes: what programs leave may be far more */
    size_t params = 0;
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        if (prepare_is_empty(job->kernels[i]))
            continue;
        struct prepared *p = cuda_prepare(d, job->kernels[i], NULL);
        if (!p)
            return ERR_OUT_OF_MEMORY;
        if (p->program && atomic_load(&p->state) != PREPARED_READY &&
            launch_scratch(p->program) > with_programs)
            with_programs = launch_scratch(p->program);
        params += p->emitted->indirect ? p->emitted->params_size : 0;
    }
    make_plan(job, l, &most, &others);
    /* what is refused in parts is refused as a whole, too, whether that is compiled yet or not */
    enum err_code code = judge(d, job, l);
    if (code == ERR_OK && cuda_wholes(d, job, l->wholes)) {
        make_plan(job, l, &most, &others);
        code = judge(d, job, l);
    }
    if (code == ERR_OK && params > l->pinned_size)
        code = reserve_pinned(d, l, params);
    if (code != ERR_OK)
        return code;
    code = reserve_scratch(d, job, l, with_programs > most ? with_programs : most, others);
    if (code == ERR_OUT_OF_MEMORY && with_programs > most) {
        do_without_programs(job, l);
        code = reserve_scratch(d, job, l, most, others);
    }
    return code;
}

struct launch *launch_new(struct cuda_device *d, struct job *job, enum err_code *ret_code)
{
    *ret_code = ERR_DEVICE_LOST;
    struct launch *l = cuda_enter(d) ? get(d, ret_code) : NULL;
    if (l)
        l->result = reserve(d, job, l);
    return l;
}

/* --- launching; device->lock is held --- */

bool launch_settled(struct cuda_device *d, const struct job *job, struct launch *l)
{
    lock_held(&d->lock);
    uint32_t parts;
    for (uint32_t i = 0; i < job->n_kernels; i += parts) {
        struct prepared *p = prepared_at(job, l, i, &parts); /* loaded since launch_new */
        struct launchable code;
        if (!p || prepared_code(p, l->compiled, &code))
            continue;
        int state = atomic_load(&p->state);
        if (state == PREPARED_READY) /* since just now */
            continue;
        if (state == PREPARED_COMPILING)
            return false;
        l->result = (enum err_code)state;
        l->refusal = kcache_refusal(d->cuda->kcache, &p->key);
        return true;
    }
    return true;
}

static enum err_code launch_kernel(struct backend_stream *s, const struct job *job,
                                   struct launch *l, uint32_t i, bool first)
{
    lock_held(&s->device->lock);
    uint32_t parts;
    struct prepared *p = prepared_at(job, l, i, &parts);
    struct launchable x;
    if (!prepared_code(p, l->compiled, &x)) /* it could, in launch_settled */
        return ERR_INTERNAL;
    TRY(launch_prepared(s, p, &x, job, l, i, first));
    if (l->reached < i + parts)
        l->reached = i + parts;
    l->forms |= p->form;
    l->tiers |= x.m[0] != p->emitted ? TIER_INTERPRETED : TIER_COMPILED;
    if (x.m[0] != p->emitted) {
        prepared_was_interpreted(p);
    } else { /* the first job to run it is the one that waited; d->lock is held */
        l->compile_ms += p->compile_ms;
        p->compile_ms = 0;
    }
    return ERR_OK;
}

/* From so many bytes on, a copy is worth the call that lets the other GPU reach its memory. */
#define OPENS (INT64_C(16) << 20)

/* Bytes [begin, end) of a block from another device's memory, to this GPU's. The driver finds the
 * way: a link, or through the host's memory, at a tenth of the rate, where neither GPU has access
 * to the other's block. */
static enum err_code copy_across(struct cuda_device *gpu, const struct job_copy *b, int64_t begin,
                                 int64_t end, CUstream on, struct launch *l)
{
    struct cuda *c = gpu->cuda;
    struct cuda_device *there = &c->devices[b->device];
    const struct mesh_home home = mesh_home(there, b->from);
    const CUdeviceptr to = (uintptr_t)b->to, from = (uintptr_t)b->from;
    enum err_code code = ERR_OK;
    for (int64_t at = begin, until; at < end && code == ERR_OK; at = until) {
        const int k =
            home.share ? (int)((int64_t)(from - home.at + (CUdeviceptr)at) / home.share) : 0;
        const CUcontext context = there->members[home.on[k]]->context;
        until = home.share ? (int64_t)(home.at - from) + (k + 1) * home.share : end;
        until = until < end ? until : end;
        const size_t n = (size_t)(until - at);
        code =
            context == gpu->context
                ? cuda_check(c,
                             c->driver->cuMemcpyDtoDAsync(to + (CUdeviceptr)at,
                                                          from + (CUdeviceptr)at, n, on),
                             "cuMemcpyDtoDAsync", NULL)
                : cuda_check(c,
                             c->driver->cuMemcpyPeerAsync(to + (CUdeviceptr)at, gpu->context,
                                                          from + (CUdeviceptr)at, context, n, on),
                             "cuMemcpyPeerAsync", NULL);
        l->launched |= code == ERR_OK;
    }
    return code;
}

/* Bytes [begin, end) of a block, with this GPU entered. */
static enum err_code copy_bytes(struct cuda_device *gpu, const struct job_copy *b, int64_t begin,
                                int64_t end, CUstream on, struct launch *l)
{
    if (b->way == COPY_ACROSS)
        return copy_across(gpu, b, begin, end, on, l);
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                                        "cuMemcpyDtoDAsync"};
    struct cuda *c = gpu->cuda;
    const struct driver *cu = c->driver;
    char *const to = (char *)b->to + begin;
    const char *const from = (const char *)b->from + begin;
    const size_t n = (size_t)(end - begin);
    CUresult r = b->way == COPY_IN ? cu->cuMemcpyHtoDAsync((uintptr_t)to, from, n, on)
                 : b->way == COPY_OUT
                     ? cu->cuMemcpyDtoHAsync(to, (uintptr_t)from, n, on)
                     : cu->cuMemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, n, on);
    enum err_code code = cuda_check(c, r, calls[b->way], NULL);
    l->launched |= code == ERR_OK;
    return code;
}

/* Each member copies what lies on it; within the device or from another, what is to lie there. Only
 * its own context is sure to reach what another device has on that GPU. */
static enum err_code copy_block(struct backend_stream *s, const struct job_copy *b,
                                struct launch *l)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    const void *there = b->way == COPY_OUT ? b->from : b->to;
    const struct mesh_home home = mesh_home(d, there);
    const int64_t before = (int64_t)((uintptr_t)there - home.at); /* of the range */
    const bool whole = !home.share || before / home.share == (before + b->n - 1) / home.share;
    if (whole && (b->way != COPY_ACROSS || d->n_members == 1)) {
        TRY(mesh_alone(s));
        if (b->way == COPY_ACROSS && b->n >= OPENS && d->cuda->devices[b->device].n_members == 1)
            cuda_memory_opens_to(d, b->to, &d->cuda->devices[b->device]);
        return copy_bytes(d, b, 0, b->n, s->cu, l);
    }
    enum err_code code = mesh_part_ways(s, NULL, -1);
    for (int k = 0; k < home.n && code == ERR_OK; k++) {
        const int64_t first = home.share ? k * home.share - before : 0;
        const int64_t last = home.share ? first + home.share : b->n;
        const int64_t begin = first > 0 ? first : 0, end = last < b->n ? last : b->n;
        const int on = home.on[k];
        if (begin < end)
            code = cuda_enter(d->members[on])
                       ? copy_bytes(d->members[on], b, begin, end, s->mesh[on].cu, l)
                       : ERR_DEVICE_LOST;
    }
    return cuda_enter(d) ? code : ERR_DEVICE_LOST;
}

/* Whether kernel number i writes memory that the last kernel writes. */
static bool writes_result(const struct job *job, uint32_t i)
{
    const uint32_t end = job->n_kernels - 1;
    const struct ir_kernel *k = job->kernels[i], *last = job->kernels[end];
    for (uint32_t a = 0; a < k->n_outputs; a++)
        for (uint32_t b = 0; b < last->n_outputs; b++)
            if (job_slots(job, i)[k->outputs[a].slot] == job_slots(job, end)[last->outputs[b].slot])
                return true;
    return false;
}

/* Counts what the job's kernels move between members. */
static void count_remote(struct cuda *c, const struct job *job, const struct launch *l)
{
    uint32_t parts;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < job->n_kernels; i += parts) {
        const struct prepared *p = prepared_at(job, l, i, &parts);
        const bool looped = i >= job->loop_from && i < job->loop_from + job->loop_n;
        bytes += p ? p->remote * (looped ? job->repeats : 1) : 0;
    }
    atomic_fetch_add(&c->mesh_remote, bytes);
}

/* Launches kernels [from, to), one after the other. */
static enum err_code launch_kernels(struct backend_stream *s, const struct job *job,
                                    struct launch *l, uint32_t from, uint32_t to, bool first)
{
    lock_held(&s->device->lock);
    enum err_code code = ERR_OK;
    uint32_t parts;
    for (uint32_t i = from; i < to && code == ERR_OK; i += parts) {
        const struct prepared *p = prepared_at(job, l, i, &parts);
        if (!p)
            continue;
        code = launch_kernel(s, job, l, i, first);
        if (parts > 1)
            atomic_fetch_add(&s->device->cuda->wholes, 1);
        const bool begun = code == ERR_OK || l->begun == i + 1;
        for (uint32_t k = i; k < i + parts && begun; k++)
            l->touched |= writes_result(job, k);
    }
    return code;
}

static enum err_code launch_passes(struct backend_stream *s, const struct job *job,
                                   struct launch *l, uint32_t n, bool first)
{
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < n && code == ERR_OK; i++)
        code = launch_kernels(s, job, l, job->loop_from, job->loop_from + job->loop_n,
                              first && i == 0);
    return code;
}

/* Sets l->graph: `n` passes of the loop. */
static enum err_code make_graph(struct backend_stream *s, const struct job *job, struct launch *l,
                                uint32_t n)
{
    struct cuda *c = s->device->cuda;
    const struct driver *v = c->driver;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    TRY(mesh_alone(s));
    TRY(cuda_check(c, v->cuStreamBeginCapture(s->cu, CU_STREAM_CAPTURE_MODE_RELAXED),
                   "cuStreamBeginCapture", NULL));
    s->captured = true;
    enum err_code code = launch_passes(s, job, l, n, true);
    if (code == ERR_OK)
        code = mesh_alone(s);
    const CUresult ended = v->cuStreamEndCapture(s->cu, &graph);
    if (code == ERR_OK) /* else other members' streams may not have been joined */
        code = cuda_check(c, ended, "cuStreamEndCapture", NULL);
    const enum err_code renewed = mesh_captured(s);
    code = code == ERR_OK ? renewed : code;
    if (code == ERR_OK)
        code = cuda_check(c, v->cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags",
                          NULL);
    if (graph)
        (void)v->cuGraphDestroy(graph);
    l->graph = code == ERR_OK ? exec : NULL;
    return code;
}

static enum err_code launch_loop(struct backend_stream *s, const struct job *job, struct launch *l)
{
    lock_held(&s->device->lock);
    struct cuda *c = s->device->cuda;
    uint32_t passes = job->loop_n < GRAPH_LAUNCHES ? GRAPH_LAUNCHES / job->loop_n : 1;
    if (job->repeats / 2 < passes)
        return launch_passes(s, job, l, job->repeats, true);
    enum err_code code = make_graph(s, job, l, passes);
    for (uint32_t i = passes; i <= job->repeats && code == ERR_OK; i += passes)
        code = cuda_check(c, c->driver->cuGraphLaunch(l->graph, s->cu), "cuGraphLaunch", NULL);
    return code == ERR_OK ? launch_passes(s, job, l, job->repeats % passes, false) : code;
}

/* Notes, for the next process, that it is on the device from here on. The daemon's own work is not
 * to blame for a crash. */
static void note_running(struct cuda *c, struct job *job, const struct launch *l)
{
    if (l->n_plan == 0 || (c->config.who && !job->asker))
        return;
    uint32_t first = 0, parts;
    while (prepare_is_empty(job->kernels[first]))
        first++;
    const struct prepared *p = prepared_at(job, l, first, &parts);
    job->running = culprits_begin(
        c->culprits, &l->plan, l->n_plan, form_name(p->emitted->form),
        c->config.who ? c->config.who(job->asker) : (struct culprit_who){0}, job->alone);
}

/* The first event. A job that comes while the one before it is at work begins where that one ends:
 * an event between the two would keep the device from its next kernel for a microsecond. */
static enum err_code record_begin(struct backend_stream *s, struct launch *l)
{
    lock_held(&s->device->lock);
    struct cuda *c = s->device->cuda;
    const struct launch *before = s->under_way_tail ? s->under_way_tail->private_data : NULL;
    const bool waits = s->waits;
    s->waits = false;
    l->follows = before && before->timed && !waits && !atomic_load(&c->lost) &&
                 c->driver->cuEventQuery(before->end) == CUDA_ERROR_NOT_READY;
    return l->follows
               ? ERR_OK
               : cuda_check(c, c->driver->cuEventRecord(l->begin, s->cu), "cuEventRecord", NULL);
}

void launch_take_begin(struct launch *l, struct launch *before)
{
    if (!l->follows)
        return;
    const CUevent own = l->begin;
    l->begin = before->end;
    before->end = own;
    l->follows = false;
}

enum err_code launch_job(struct backend_stream *s, struct job *job, struct launch *l)
{
    lock_held(&s->device->lock);
    struct cuda *c = s->device->cuda;
    note_running(c, job, l);
    enum err_code code = record_begin(s, l);
    for (uint32_t i = 0; i < job->n_copies && code == ERR_OK; i++)
        code = copy_block(s, &job->copies[i], l);
    uint32_t end_of_loop = job->loop_from + job->loop_n;
    if (s->mesh)
        count_remote(c, job, l);
    if (code == ERR_OK)
        code = launch_kernels(s, job, l, 0, job->loop_from, true);
    if (code == ERR_OK && job->loop_n)
        code = launch_loop(s, job, l);
    if (code == ERR_OK)
        code = launch_kernels(s, job, l, end_of_loop, job->n_kernels, true);
    const enum err_code met = job->fetch ? mesh_alone(s) : mesh_meet(s);
    code = code == ERR_OK ? met : code;
    if (job->fetch && code == ERR_OK) {
        cuda_transfer_launch(job->fetch, s->cu);
        l->launched = true;
    }
    /* also behind a job that failed half-way: what was launched must finish */
    enum err_code end =
        cuda_check(c, c->driver->cuEventRecord(l->end, s->cu), "cuEventRecord", NULL);
    l->timed = end == ERR_OK;
    /* its memory is freed at once, and so is the slab it fetches into */
    if (!l->timed && l->launched && !atomic_load(&c->lost)) {
        end = cuda_check(c, c->driver->cuStreamSynchronize(s->cu), "cuStreamSynchronize", NULL);
        l->over = end == ERR_OK;
    }
    return code != ERR_OK ? code : end;
}
