/* A job's way onto its stream: the events around it, memory its kernels need, their parameters,
 * their launches. Everything is done with the device's lock held and the device entered; nothing
 * here waits. */
#include "compute/cuda/launch.h"

#include <string.h>

#include "compute/base/mem.h"

/* --- flights --- */

void launch_flight_free(struct cuda_device *d, struct flight *f)
{
    const struct driver *v = d->cuda->driver;
    if (f->begin)
        (void)v->cuEventDestroy(f->begin);
    if (f->end)
        (void)v->cuEventDestroy(f->end);
    mem_free(f);
}

struct flight *launch_flight_get(struct cuda_device *d, enum err_code *ret_code)
{
    struct flight *f = d->flights;
    *ret_code = ERR_OK;
    if (f) {
        d->flights = f->next;
        *f = (struct flight){.begin = f->begin, .end = f->end};
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

/* --- launching; device->lock is held --- */

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

/* The parameters with the addresses of now, in `to`. */
static void fill_params(unsigned char *to, const struct emitted *m, const struct job *job,
                        void *scratch)
{
    memcpy(to, m->params, m->params_size);
    for (uint32_t i = 0; i < m->n_addresses; i++) {
        const struct emit_address *a = &m->addresses[i];
        char *base = a->slot == EMIT_SCRATCH ? scratch : job->slots[a->slot];
        char *at = base ? base + a->displacement : NULL;
        memcpy(to + a->at, &at, sizeof at);
    }
}

/* What the kernel is launched with, in d->params. Many parameters are copied to the device first;
 * the driver takes them at once, so that the buffer is free again. */
static enum err_code make_params(struct stream *s, const struct emitted *m, const struct job *job,
                                 char *scratch)
{
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    if (!m->indirect) {
        fill_params(d->params, m, job, scratch);
        return ERR_OK;
    }
    unsigned char *all = mem_alloc(m->params_size);
    if (!all)
        return ERR_OUT_OF_MEMORY;
    fill_params(all, m, job, scratch);
    char *to = scratch + scratch_of(m) - m->params_size;
    enum err_code code = cuda_check(
        c, c->driver->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, all, m->params_size, s->cu),
        "cuMemcpyHtoDAsync", NULL);
    mem_free(all);
    memcpy(d->params, &to, sizeof to);
    return code;
}

static enum err_code launch_kernel(struct stream *s, struct job *job, struct flight *f,
                                   struct ir_kernel *k)
{
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    struct prepared *p = cuda_prepare(d, k);
    struct functions fn;
    if (!p)
        return ERR_OUT_OF_MEMORY;
    int state = atomic_load(&p->state);
    if (state != PREPARED_READY) /* if it is compiled once more already, that is for others */
        return state == PREPARED_FAILED && p->error != ERR_OK ? p->error : ERR_INTERNAL;
    enum err_code code = cuda_functions(d, p, &fn, NULL);
    const struct emitted *m = p->emitted;
    if (code == ERR_OK && scratch_of(m) > f->scratch_size)
        code = ERR_OUT_OF_MEMORY; /* it was not there when reserve_scratch() looked */
    if (code == ERR_OK)
        code = make_params(s, m, job, f->scratch);
    if (code != ERR_OK)
        return code;
    const struct form *g = m->form;
    void *params[1] = {d->params};
    code =
        cuda_check(c,
                   c->driver->cuLaunchKernel(fn.kernel, g->grid[0], g->grid[1], g->grid[2],
                                             g->block[0], g->block[1], 1, 0, s->cu, params, NULL),
                   "cuLaunchKernel", NULL);
    f->launched |= code == ERR_OK;
    if (code == ERR_OK && m->finish)
        code = cuda_check(c,
                          c->driver->cuLaunchKernel(fn.finish, m->finish_grid, 1, 1, FORM_BLOCK, 1,
                                                    1, 0, s->cu, params, NULL),
                          "cuLaunchKernel", NULL);
    /* the first to run it is who waited for it; d->lock is held */
    f->compile_ms += p->compile_ms;
    p->compile_ms = 0;
    return code;
}

/* One block of memory for all the job's kernels that need some. */
static enum err_code reserve_scratch(struct stream *s, const struct job *job, struct flight *f)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        struct prepared *p = atomic_load(&job->kernels[i]->prepared);
        if (p && scratch_of(p->emitted) > most)
            most = scratch_of(p->emitted);
    }
    if (most == 0)
        return ERR_OK;
    enum err_code code =
        cuda_alloc(&s->device->cuda->base, s->device->index, most, false, &f->scratch, NULL);
    f->scratch_size = code == ERR_OK ? most : 0;
    return code;
}

enum err_code launch_job(struct stream *s, struct job *job, struct flight *f)
{
    struct cuda *c = s->device->cuda;
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(f->begin, s->cu), "cuEventRecord", NULL);
    if (code == ERR_OK)
        code = reserve_scratch(s, job, f);
    for (uint32_t i = 0; i < job->n_kernels && code == ERR_OK; i++)
        if (!launch_is_empty(job->kernels[i]))
            code = launch_kernel(s, job, f, job->kernels[i]);
    f->touched = code == ERR_OK;
    if (job->fetch && code == ERR_OK)
        cuda_transfer_launch(job->fetch, s->cu);
    /* also behind a job that failed half-way: what was launched has to pass */
    enum err_code end =
        cuda_check(c, c->driver->cuEventRecord(f->end, s->cu), "cuEventRecord", NULL);
    f->timed = end == ERR_OK;
    if (!f->timed && f->launched && !atomic_load(&c->lost)) /* its memory is let go at once */
        (void)cuda_check(c, c->driver->cuStreamSynchronize(s->cu), "cuStreamSynchronize", NULL);
    return code != ERR_OK ? code : end;
}
