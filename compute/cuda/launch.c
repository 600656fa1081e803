/* A job's way onto its stream. What may have to be waited for, memory of either side, is taken when
 * the job is submitted, before device->lock; code is loaded before that (prepare.c). With the lock
 * held there are only calls that queue something: events, launches, copies from pinned memory. One
 * exception: where the driver has no memory left to record the event behind kernels that are
 * launched already, these are waited for. */
#include "compute/cuda/launch.h"

#include <string.h>

#include "compute/base/mem.h"

bool launch_is_empty(const struct ir_kernel *k)
{
    const struct ir_output *o = &k->outputs[0];
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] == 0 && !(o->kind == OUT_REDUCE && (o->axes >> a & 1)))
            return true;
    return false;
}

/* Device memory a launch needs: its own, and behind that its parameters where they do not go along.
 */
static int64_t scratch_of(const struct emitted *m)
{
    int64_t own = (m->scratch + 255) / 256 * 256;
    return own + (m->indirect ? m->params_size : 0);
}

/* --- flights --- */

void launch_flight_free(struct cuda_device *d, struct flight *f)
{
    const struct driver *v = d->cuda->driver;
    if (f->begin)
        (void)v->cuEventDestroy(f->begin);
    if (f->end)
        (void)v->cuEventDestroy(f->end);
    if (f->pinned)
        (void)v->cuMemFreeHost(f->pinned);
    mem_free(f);
}

void launch_flight_put(struct cuda_device *d, struct flight *f)
{
    if (f->scratch)
        cuda_free(&d->cuda->base, d->index, f->scratch, f->scratch_size);
    pthread_mutex_lock(&d->lock);
    f->next = d->flights;
    d->flights = f;
    pthread_mutex_unlock(&d->lock);
}

static struct flight *get(struct cuda_device *d, enum err_code *ret_code)
{
    pthread_mutex_lock(&d->lock);
    struct flight *f = d->flights;
    if (f)
        d->flights = f->next;
    pthread_mutex_unlock(&d->lock);
    if (f) {
        *f = (struct flight){
            .begin = f->begin, .end = f->end, .pinned = f->pinned, .pinned_size = f->pinned_size};
        return f;
    }
    f = mem_calloc(1, sizeof *f);
    if (!f) {
        *ret_code = ERR_OUT_OF_MEMORY;
        return NULL;
    }
    struct cuda *c = d->cuda;
    *ret_code =
        cuda_check(c, c->driver->cuEventCreate(&f->begin, CU_EVENT_DEFAULT), "cuEventCreate", NULL);
    if (*ret_code == ERR_OK)
        *ret_code = cuda_check(c, c->driver->cuEventCreate(&f->end, CU_EVENT_DEFAULT),
                               "cuEventCreate", NULL);
    if (*ret_code == ERR_OK)
        return f;
    launch_flight_free(d, f);
    return NULL;
}

/* A larger piece of pinned memory than the flight has. */
static enum err_code reserve_pinned(struct cuda_device *d, struct flight *f, size_t size)
{
    struct cuda *c = d->cuda;
    void *p;
    enum err_code code = cuda_check(
        c, c->driver->cuMemHostAlloc(&p, size, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc", NULL);
    if (code != ERR_OK)
        return code;
    if (f->pinned)
        (void)cuda_check(c, c->driver->cuMemFreeHost(f->pinned), "cuMemFreeHost", NULL);
    f->pinned = p;
    f->pinned_size = size;
    return ERR_OK;
}

/* One block of device memory for all the job's kernels that need some: they run one by one. */
static enum err_code reserve(struct cuda_device *d, struct job *job, struct flight *f)
{
    int64_t most = 0;
    size_t params = 0;
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        if (launch_is_empty(job->kernels[i]))
            continue;
        struct prepared *p = cuda_prepare(d, job->kernels[i]);
        if (!p)
            return ERR_OUT_OF_MEMORY;
        if (scratch_of(p->emitted) > most)
            most = scratch_of(p->emitted);
        params += p->emitted->indirect ? p->emitted->params_size : 0;
    }
    enum err_code code = params > f->pinned_size ? reserve_pinned(d, f, params) : ERR_OK;
    if (code == ERR_OK && most > 0) {
        code = cuda_alloc(&d->cuda->base, d->index, most, false, &f->scratch, NULL);
        f->scratch_size = code == ERR_OK ? most : 0;
        job->wanted = code == ERR_OUT_OF_MEMORY ? most : 0;
    }
    return code;
}

struct flight *launch_flight_new(struct cuda_device *d, struct job *job, enum err_code *ret_code)
{
    *ret_code = ERR_DEVICE_LOST;
    struct flight *f = cuda_enter(d) ? get(d, ret_code) : NULL;
    if (f)
        f->result = reserve(d, job, f);
    return f;
}

/* --- launching; device->lock is held --- */

/* The parameters with the addresses of now, in `to`. */
static void fill_params(unsigned char *to, const struct stream *s, const struct emitted *m,
                        const struct job *job, void *scratch)
{
    memcpy(to, m->params, m->params_size);
    for (uint32_t i = 0; i < m->n_addresses; i++) {
        const struct emit_address *a = &m->addresses[i];
        char *base = a->slot == EMIT_SCRATCH    ? scratch
                     : a->slot == EMIT_COUNTERS ? s->counters
                                                : job->slots[a->slot];
        char *at = base ? base + a->displacement : NULL;
        memcpy(to + a->at, &at, sizeof at);
    }
}

/* What the kernel is launched with, in d->params, whose bytes the launch takes along. Many
 * parameters are copied to the device first, from memory that is the flight's until the job is
 * over.
 */
static enum err_code make_params(struct stream *s, const struct emitted *m, const struct job *job,
                                 struct flight *f)
{
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    if (!m->indirect) {
        fill_params(d->params, s, m, job, f->scratch);
        return ERR_OK;
    }
    unsigned char *all = f->pinned + f->pinned_used;
    f->pinned_used += m->params_size;
    fill_params(all, s, m, job, f->scratch);
    char *to = (char *)f->scratch + scratch_of(m) - m->params_size;
    memcpy(d->params, &to, sizeof to);
    enum err_code code = cuda_check(
        c, c->driver->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, all, m->params_size, s->cu),
        "cuMemcpyHtoDAsync", NULL);
    f->launched |= code == ERR_OK;
    return code;
}

/* What blocks tell each other through has to be 0 first. */
static enum err_code zero_scratch(struct stream *s, const struct emitted *m, struct flight *f)
{
    struct cuda *c = s->device->cuda;
    if (m->zeroed == 0)
        return ERR_OK;
    enum err_code code = cuda_check(
        c,
        c->driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)f->scratch, 0, (size_t)m->zeroed, s->cu),
        "cuMemsetD8Async", NULL);
    f->launched |= code == ERR_OK;
    return code;
}

bool launch_settled(struct cuda_device *d, const struct job *job, struct flight *f)
{
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        if (launch_is_empty(job->kernels[i]))
            continue;
        struct prepared *p = atomic_load(&job->kernels[i]->prepared); /* since launch_flight_new */
        int state = atomic_load(&p->state);
        if (state == PREPARED_COMPILING)
            return false;
        if (state == PREPARED_READY)
            continue;
        f->result = (enum err_code)state;
        f->refusal = kcache_refusal(d->cuda->kcache, &p->key);
        return true;
    }
    return true;
}

static enum err_code launch_kernel(struct stream *s, struct job *job, struct flight *f,
                                   struct ir_kernel *k)
{
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    struct prepared *p = atomic_load(&k->prepared);
    const struct emitted *m = p->emitted;
    enum err_code code = make_params(s, m, job, f);
    if (code == ERR_OK)
        code = zero_scratch(s, m, f);
    if (code != ERR_OK)
        return code;
    const struct form *g = m->form;
    void *params[1] = {d->params};
    code =
        cuda_check(c,
                   c->driver->cuLaunchKernel(p->function, g->grid[0], g->grid[1], g->grid[2],
                                             g->block[0], g->block[1], 1, 0, s->cu, params, NULL),
                   "cuLaunchKernel", NULL);
    f->launched |= code == ERR_OK;
    /* the first to run it is who waited for it; d->lock is held */
    f->compile_ms += p->compile_ms;
    p->compile_ms = 0;
    return code;
}

static enum err_code copy_block(struct stream *s, const struct job_copy *b, struct flight *f)
{
    struct cuda *c = s->device->cuda;
    CUresult r = b->to_host ? c->driver->cuMemcpyDtoHAsync(b->to, (CUdeviceptr)(uintptr_t)b->from,
                                                           (size_t)b->n, s->cu)
                            : c->driver->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)b->to, b->from,
                                                           (size_t)b->n, s->cu);
    enum err_code code =
        cuda_check(c, r, b->to_host ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", NULL);
    f->launched |= code == ERR_OK;
    return code;
}

enum err_code launch_job(struct stream *s, struct job *job, struct flight *f)
{
    struct cuda *c = s->device->cuda;
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(f->begin, s->cu), "cuEventRecord", NULL);
    for (uint32_t i = 0; i < job->n_copies && code == ERR_OK; i++)
        code = copy_block(s, &job->copies[i], f);
    uint32_t result = job->n_kernels ? job->kernels[job->n_kernels - 1]->outputs[0].slot : 0;
    for (uint32_t i = 0; i < job->n_kernels && code == ERR_OK; i++) {
        struct ir_kernel *k = job->kernels[i];
        if (launch_is_empty(k))
            continue;
        code = launch_kernel(s, job, f, k);
        f->touched |= code == ERR_OK && k->outputs[0].slot == result;
    }
    if (job->fetch && code == ERR_OK) {
        cuda_transfer_launch(job->fetch, s->cu);
        f->launched = true;
    }
    /* also behind a job that failed half-way: what was launched has to pass */
    enum err_code end =
        cuda_check(c, c->driver->cuEventRecord(f->end, s->cu), "cuEventRecord", NULL);
    f->timed = end == ERR_OK;
    /* its memory is let go at once, and the slab it fetches into */
    if (!f->timed && f->launched && !atomic_load(&c->lost)) {
        end = cuda_check(c, c->driver->cuStreamSynchronize(s->cu), "cuStreamSynchronize", NULL);
        f->over = end == ERR_OK;
    }
    return code != ERR_OK ? code : end;
}
