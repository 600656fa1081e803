/* One of a job's kernels onto its stream: parameters, and on a mesh each member's part. A part is
 * some of the kernel's blocks, or (form.h's joined) of what they reduce or scan. */
#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/gpu/cuda/launch.h"
#include "compute/gpu/cuda/parts.h"
#include "compute/gpu/device/mesh.h"

/* Whose spans are looked at: of kernels with more, members wait for each other. */
#define OPERANDS 16

int64_t launch_scratch(const struct emitted *m)
{
    int64_t own = (m->scratch + 255) / 256 * 256;
    return own + (m->indirect ? m->params_size : 0);
}

#ifndef NDEBUG
/* The kernel's form was chosen for aligned addresses; a single number may be stored anywhere, and
 * an array without elements has an address that is never dereferenced. */
static bool slots_are_aligned(const struct ir_kernel *k, void *const *slots)
{
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const struct ir_input *in = &k->inputs[i];
        if (view_size(&in->view) > 0 && (uintptr_t)slots[in->slot] % SLOT_ALIGNMENT != 0)
            return false;
    }
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        int64_t n = view_size(&o->view);
        size_t alignment = n == 1 ? dtype_size(o->dtype) : SLOT_ALIGNMENT;
        if (n > 0 && (uintptr_t)slots[o->slot] % alignment != 0)
            return false;
    }
    return true;
}
#endif

/* Writes to `to` what the copy engine needs of an array. */
static enum err_code fill_map(unsigned char *to, struct cuda *c, const struct emit_map *a,
                              char *array)
{
    static const uint32_t steps[3] = {1, 1, 1};
    const int type = a->size == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                     : a->size == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                     : a->size == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                    : CU_TENSOR_MAP_DATA_TYPE_UINT64;
    CUtensorMap map;
    TRY(cuda_check(c,
                   c->driver->cuTensorMapEncodeTiled(&map, type, 3, array, a->shape, a->strides,
                                                     a->box, steps, 0, 0,
                                                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 0),
                   "cuTensorMapEncodeTiled", NULL));
    memcpy(to, &map, sizeof map);
    return ERR_OK;
}

/* Writes the parameters with the current addresses to `to`, for a member of the device. */
static enum err_code fill_params(unsigned char *to, const struct backend_stream *s,
                                 const struct emitted *m, void *const *slots,
                                 const struct launch *l, int member)
{
    lock_held(&s->device->lock);
    const struct cuda_device *d = s->device;
    /* parameters in memory are no place for maps: the text does without (AR_MAPPED) */
    const bool maps = d->copies_boxes && !m->indirect;
    memcpy(to, m->params, m->params_size);
    for (uint32_t i = 0; i < m->n_addresses; i++) {
        const struct emit_address *a = &m->addresses[i];
        char *base = a->slot == EMIT_SCRATCH    ? l->scratch[member]
                     : a->slot == EMIT_FIRST    ? l->scratch[0]
                     : a->slot == EMIT_COUNTERS ? s->counters
                                                : slots[a->slot];
        char *at = base ? base + a->displacement : NULL;
        memcpy(to + a->at, &at, sizeof at);
    }
    for (uint32_t i = 0; i < m->n_maps && maps; i++) {
        const struct emit_map *a = &m->maps[i];
        TRY(fill_map(to + a->at, d->cuda, a, (char *)slots[a->slot] + a->displacement));
    }
    return ERR_OK;
}

/* Where the parameters of kernel number i are, if they are not passed by value. */
static unsigned char *pinned_params(const struct job *job, const struct launch *l, uint32_t i)
{
    unsigned char *at = l->pinned;
    for (uint32_t k = 0; k < i; k++) {
        const struct prepared *p =
            prepare_is_empty(job->kernels[k]) ? NULL : atomic_load(&job->kernels[k]->prepared);
        at += p && p->emitted->indirect ? p->emitted->params_size : 0;
    }
    return at;
}

/* Prepares the launch parameters of kernel number i in d->params, which the launch copies. Many
 * parameters are first copied to the device, from memory that belongs to the launch until the job
 * is done, and filled in when the kernel is launched for the first time. */
static enum err_code make_params(struct backend_stream *s, const struct emitted *m,
                                 const struct job *job, struct launch *l, uint32_t i, bool first)
{
    lock_held(&s->device->lock);
    struct cuda_device *d = s->device;
    struct cuda *c = d->cuda;
    if (!m->indirect)
        return fill_params(d->params, s, m, job_slots(job, i), l, 0);
    unsigned char *all = pinned_params(job, l, i);
    if (first)
        TRY(fill_params(all, s, m, job_slots(job, i), l, 0));
    char *to = (char *)l->scratch[0] + launch_scratch(m) - m->params_size;
    memcpy(d->params, &to, sizeof to);
    enum err_code code = cuda_check(
        c, c->driver->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, all, m->params_size, s->cu),
        "cuMemcpyHtoDAsync", NULL);
    l->launched |= code == ERR_OK;
    return code;
}

/* Zeroes the memory through which blocks communicate. */
static enum err_code zero_scratch(struct cuda *c, const struct emitted *m, struct launch *l,
                                  void *scratch, CUstream on)
{
    if (m->zeroed == 0)
        return ERR_OK;
    enum err_code code = cuda_check(
        c, c->driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)scratch, 0, (size_t)m->zeroed, on),
        "cuMemsetD8Async", NULL);
    l->launched |= code == ERR_OK;
    return code;
}

static enum err_code launch_grid(struct backend_stream *s, const struct emitted *m,
                                 CUfunction function, const unsigned grid[3], CUstream on,
                                 struct launch *l, uint32_t i)
{
    struct cuda *c = s->device->cuda;
    const struct form *g = m->form;
    void *params[1] = {s->device->params};
    enum err_code code =
        cuda_check(c,
                   c->driver->cuLaunchKernel(function, grid[0], grid[1], grid[2], g->block[0],
                                             g->block[1], 1, (unsigned)g->shared, on, params, NULL),
                   "cuLaunchKernel", NULL);
    l->launched |= code == ERR_OK;
    if (code != ERR_OK)
        l->failing = i + 1;
    return code;
}

static enum err_code launch_code(struct backend_stream *s, const struct emitted *m,
                                 CUfunction function, const struct job *job, struct launch *l,
                                 uint32_t i, bool first)
{
    lock_held(&s->device->lock);
    TRY(mesh_alone(s));
    TRY(make_params(s, m, job, l, i, first));
    TRY(zero_scratch(s->device->cuda, m, l, l->scratch[0], s->cu));
    return launch_grid(s, m, function, m->form->grid, s->cu, l, i);
}

/* Makes d->params those of a member's part: where its share begins and ends; or so many states to
 * merge, or that totals are there. */
static void set_share(struct cuda_device *d, const struct emitted *m, int k, bool join)
{
    const struct form *f = m->form;
    const int64_t states = f->kind == FORM_REDUCE ? f->stretches : 1;
    struct emit_share share = {.number = states * k, .join = join ? states * d->n_members : 0};
    form_share(f, k, &share.since, &share.until);
    memcpy(d->params + m->share, &share, sizeof share);
}

/* Member k's part of the kernel: so many groups of blocks from its share of the whole on, or all of
 * them over its share of what is reduced or scanned. `again`: that is scanned, behind the totals.
 */
static enum err_code launch_part(struct backend_stream *s, const struct prepared *p,
                                 const struct job *job, struct launch *l, uint32_t i, int k,
                                 bool again)
{
    struct cuda_device *d = s->device;
    const struct emitted *m = p->emitted;
    const struct form *f = m->form;
    unsigned grid[3] = {f->grid[0], f->grid[1], f->grid[2]};
    int64_t from = 0;
    if (!f->joined) {
        const struct part part = parts_of(f, p->own, k, d->n_members);
        from = part.from;
        grid[form_along(f)] = (unsigned)part.n;
        if (part.n == 0)
            return ERR_OK;
    }
    if (!cuda_enter(d->members[k]))
        return ERR_DEVICE_LOST;
    TRY(fill_params(d->params, s, m, job_slots(job, i), l, k));
    memcpy(d->params + EMIT_FROM, &from, sizeof from);
    if (f->joined)
        set_share(d, m, k, again);
    if (!again)
        TRY(zero_scratch(d->cuda, m, l, l->scratch[k], s->mesh[k].cu));
    TRY(launch_grid(s, m, p->functions[k], grid, s->mesh[k].cu, l, i));
    if (!f->joined || again)
        l->begun = i + 1;
    return ERR_OK;
}

/* The first member merges the states that all have left. */
static enum err_code join_parts(struct backend_stream *s, const struct prepared *p,
                                const struct job *job, struct launch *l, uint32_t i)
{
    struct cuda_device *d = s->device;
    const struct emitted *m = p->emitted;
    const unsigned grid[3] = {m->form->grid[0], 1, 1};
    TRY(mesh_alone(s));
    TRY(fill_params(d->params, s, m, job_slots(job, i), l, 0));
    set_share(d, m, 0, true);
    return launch_grid(s, m, p->functions[0], grid, s->cu, l, i);
}

static struct mesh_span span_of(const struct view *v, enum dtype dtype, void *slot,
                                struct part elements, bool written)
{
    const int64_t size = (int64_t)dtype_size(dtype);
    const uintptr_t at = (uintptr_t)slot + (uintptr_t)(v->offset * size);
    if (parts_is_single(v))
        return (struct mesh_span){at, at + (uintptr_t)size, written};
    return (struct mesh_span){at + (uintptr_t)(elements.from * size),
                              at + (uintptr_t)((elements.from + elements.n) * size), written};
}

/* What each member touches, one after the other; returns how many of each, or -1: anything. */
static int find_spans(const struct cuda_device *d, const struct prepared *p,
                      const struct ir_kernel *k, void *const *slots, struct mesh_span *to)
{
    const int n = (int)(k->n_inputs + k->n_outputs);
    if (!p->own || n > OPERANDS)
        return -1;
    for (int m = 0; m < d->n_members; m++) {
        const struct form *f = p->emitted->form;
        const struct part part = parts_elements(f, parts_of(f, true, m, d->n_members));
        for (uint32_t i = 0; i < k->n_inputs; i++) {
            const struct ir_input *in = &k->inputs[i];
            *to++ = span_of(&in->view, in->dtype, slots[in->slot], part, false);
        }
        for (uint32_t i = 0; i < k->n_outputs; i++) {
            const struct ir_output *o = &k->outputs[i];
            *to++ = span_of(&o->view, o->dtype, slots[o->slot], part, true);
        }
    }
    return n;
}

static enum err_code launch_parts(struct backend_stream *s, const struct prepared *p,
                                  const struct job *job, struct launch *l, uint32_t i)
{
    lock_held(&s->device->lock);
    const struct form *f = p->emitted->form;
    const int times = f->joined && f->kind == FORM_SCAN ? 2 : 1;
    struct mesh_span spans[OPERANDS * BACKEND_PARTS];
    const int n = find_spans(s->device, p, job->kernels[i], job_slots(job, i), spans);
    enum err_code code = ERR_OK;
    for (int t = 0; t < times && code == ERR_OK; t++) {
        code = mesh_part_ways(s, spans, n);
        for (int k = 0; k < s->device->n_members && code == ERR_OK; k++)
            code = launch_part(s, p, job, l, i, k, t > 0);
    }
    if (!cuda_enter(s->device))
        return ERR_DEVICE_LOST;
    return code == ERR_OK && f->joined && times == 1 ? join_parts(s, p, job, l, i) : code;
}

enum err_code launch_prepared(struct backend_stream *s, const struct prepared *p,
                              const struct launchable *x, const struct job *job, struct launch *l,
                              uint32_t i, bool first)
{
    assert(slots_are_aligned(job->kernels[i], job_slots(job, i)));
    if (x->m[0] == p->emitted && p->divided)
        return launch_parts(s, p, job, l, i);
    for (int k = 0; k < x->n; k++)
        TRY(launch_code(s, x->m[k], x->functions[k][0], job, l, i, first));
    return ERR_OK;
}
