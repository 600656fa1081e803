/* Records what was on a device when it was lost. By then the driver reports nothing, not even what
 * had finished before. So the suspects are the kernels launched and not yet seen to finish,
 * recorded under the streams' lock before any of them leaves its stream. The daemon's own, such as
 * sums of arrays that nobody is using, are not to blame where there were others. Only if there were
 * none at all was it the launch itself that failed.
 *
 * The first thread that has a finished job to report also reports the record, without that lock: it
 * writes a file and the log. A mesh shares its GPUs with other devices, so what was on any of them
 * is one record. */
#include "compute/gpu/cuda/fault.h"

#include <string.h>

#include "compute/base/arena.h"
#include "compute/base/lock.h"
#include "compute/gpu/cuda/launch.h"

/* What was there: the first kind that there is counts. */
enum fault_kind { ASKED, OWN, LAUNCHING };

/* Of one device. */
struct fault {
    struct fault *next;
    enum fault_kind kind;
    struct arena *arena;
    struct backend_fault told;
    struct fault_work *work;
    struct culprit_work *kernels; /* of each piece of work */
    bool alone;                   /* one of them had the device to itself */
};

/* Errors caused by kernels; for others (memory cells, the bus, the driver) none is to blame. */
static bool is_a_kernels(int code)
{
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT ||
           code == CUDA_ERROR_ASSERT ||
           (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

/* Adds a piece of work with its kernels [from, to). False without memory. */
static bool add(struct fault *f, const struct job *job, uint32_t from, uint32_t to)
{
    const struct launch *x = job->private_data;
    struct code_key *keys = arena_alloc_array(f->arena, to - from + 1, sizeof *keys);
    const char **forms = arena_alloc_array(f->arena, to - from + 1, sizeof *forms);
    struct culprit_kernel *kernels = arena_alloc_array(f->arena, to - from + 1, sizeof *kernels);
    if (!keys || !forms || !kernels)
        return false;
    uint32_t n = launch_keys(job, x, from, to, keys, forms);
    for (uint32_t i = 0; i < n; i++)
        kernels[i] = (struct culprit_kernel){.key = keys[i], .form = forms[i]};
    f->work[f->told.n_work] = (struct fault_work){.asker = job->asker};
    f->kernels[f->told.n_work++] = (struct culprit_work){kernels, n, x->plan};
    f->alone |= job->alone;
    return true;
}

/* Adds the kernels on the device that somebody asked for, or (`own`) the daemon's own. */
static bool add_launched(struct fault *f, const struct cuda_device *d, bool own)
{
    bool ok = true;
    for (const struct backend_stream *s = d->streams; s; s = s->next)
        for (const struct job *j = s->under_way; j && ok; j = j->next) {
            const struct launch *x = j->private_data;
            if (x && x->launched && !x->over && !j->asker == own)
                ok = add(f, j, 0, x->reached);
        }
    return ok;
}

/* Adds those whose launch failed. */
static bool add_failing(struct fault *f, const struct cuda_device *d)
{
    bool ok = true;
    for (const struct backend_stream *s = d->streams; s; s = s->next)
        for (const struct job *j = s->under_way; j && ok; j = j->next) {
            const struct launch *x = j->private_data;
            if (x && x->failing)
                ok = add(f, j, x->failing - 1, x->failing);
        }
    return ok;
}

static size_t count_jobs(const struct cuda_device *d)
{
    size_t n = 0;
    for (const struct backend_stream *s = d->streams; s; s = s->next)
        n += (size_t)s->n_under_way;
    return n;
}

static bool share_a_gpu(const struct cuda *c, int a, int b)
{
    const struct cuda_device *x = &c->devices[a], *y = &c->devices[b];
    for (int i = 0; i < x->n_members; i++)
        for (int k = 0; k < y->n_members; k++)
            if (x->members[i] == y->members[k])
                return true;
    return false;
}

/* Lists the suspects on the device: work that somebody asked for; if nobody did, the daemon's own
 * work; otherwise what could not be launched. */
static bool list_work(struct fault *f, const struct cuda_device *d)
{
    bool ok = add_launched(f, d, false);
    if (!ok || f->told.n_work)
        return ok;
    f->kind = OWN;
    ok = add_launched(f, d, true);
    if (!ok || f->told.n_work)
        return ok;
    f->kind = LAUNCHING;
    return add_failing(f, d);
}

void cuda_fault_look(struct cuda_device *d)
{
    lock_held(&d->lock);
    struct cuda *c = d->cuda;
    const int device = atomic_load(&c->lost_device);
    if (d->looked)
        return;
    d->looked = true;
    if (device >= 0 && !share_a_gpu(c, d->index, device))
        return; /* it did not happen there */
    struct arena *arena = arena_new(0);
    struct fault *f = arena ? arena_alloc(arena, sizeof *f) : NULL;
    if (f) {
        *f = (struct fault){.arena = arena, .told.device = d->index};
        f->work = arena_alloc_array(arena, count_jobs(d) + 1, sizeof *f->work);
        f->kernels = arena_alloc_array(arena, count_jobs(d) + 1, sizeof *f->kernels);
    }
    bool ok = f && f->work && f->kernels && list_work(f, d);
    /* if several devices may be the lost one, one that had no work is not it */
    ok = ok && (f->told.n_work || device >= 0 || c->n_devices == 1);
    if (!ok) {
        arena_free(arena);
        return;
    }
    if (!atomic_exchange(&c->noted, true) && c->config.noted)
        c->config.noted(c->config.lost_user);
    f->next = atomic_load(&c->fault);
    while (!atomic_compare_exchange_weak(&c->fault, &f->next, f))
        ;
}

/* What was found first, and on devices that share a GPU with that one; of the first kind that there
 * is, as one. Its device is the work's, if that was one's; a mesh's may be found lost on any of its
 * GPUs. NULL without memory. */
static struct fault *together(const struct cuda *c, const struct fault *all)
{
    const int lost = atomic_load(&c->lost_device);
    const struct fault *first = all;
    struct arena *arena = arena_new(0);
    struct fault *f = arena ? arena_alloc(arena, sizeof *f) : NULL;
    enum fault_kind kind = LAUNCHING;
    uint32_t n = 0;
    while (first->next)
        first = first->next;
    for (const struct fault *x = all; x; x = x->next) {
        if (!share_a_gpu(c, x->told.device, first->told.device))
            continue;
        kind = x->told.n_work && x->kind < kind ? x->kind : kind;
        n += x->told.n_work;
    }
    if (f) {
        *f = (struct fault){.arena = arena, .told.device = lost >= 0 ? lost : first->told.device};
        f->work = arena_alloc_array(arena, n + 1, sizeof *f->work);
        f->kernels = arena_alloc_array(arena, n + 1, sizeof *f->kernels);
    }
    if (!f || !f->work || !f->kernels) {
        arena_free(arena);
        return NULL;
    }
    f->told.launching = kind == LAUNCHING;
    int of = -1, n_of = 0;
    for (const struct fault *x = all; x; x = x->next) {
        if (x->kind != kind || !share_a_gpu(c, x->told.device, first->told.device))
            continue;
        of = x->told.n_work ? x->told.device : of;
        n_of += x->told.n_work > 0;
        for (uint32_t i = 0; i < x->told.n_work; i++) {
            f->work[f->told.n_work] = x->work[i];
            f->kernels[f->told.n_work++] = x->kernels[i];
        }
        f->alone |= x->alone;
    }
    f->told.device = n_of == 1 ? of : f->told.device;
    return f;
}

/* Names the kernels for the report. */
static bool name_kernels(struct fault *f)
{
    for (uint32_t w = 0; w < f->told.n_work; w++) {
        const struct culprit_work *from = &f->kernels[w];
        struct fault_kernel *to = arena_alloc_array(f->arena, from->n_kernels + 1, sizeof *to);
        if (!to)
            return false;
        for (uint32_t i = 0; i < from->n_kernels; i++) {
            to[i] = (struct fault_kernel){.form = from->kernels[i].form,
                                          .refused = from->kernels[i].refused};
            code_key_text(&from->kernels[i].key, to[i].key);
        }
        f->work[w].kernels = to;
        f->work[w].n_kernels = from->n_kernels;
    }
    f->told.work = f->work;
    return true;
}

static void settle(struct cuda *c, struct fault *f)
{
    lock_held(&c->fault_lock);
    char why[CUDA_WHY];
    bool sure = atomic_load(&c->lost_device) >= 0 || c->n_devices == 1;
    bool kernels = is_a_kernels(atomic_load(&c->lost_code));
    cuda_lost_why(c, why);
    /* what was just being launched may not have been it, unless it had the device to itself */
    f->told.of_kernels = kernels && sure && (!f->told.launching || f->alone);
    if (kernels)
        f->told.forgotten =
            !culprits_fault(c->culprits, why, f->kernels, f->told.n_work, f->told.of_kernels);
    if (name_kernels(f) && c->config.fault)
        c->config.fault(c->config.lost_user, &f->told);
}

void cuda_fault_tell(struct cuda *c)
{
    if (!atomic_load(&c->fault))
        return;
    for (int i = 0; i < c->n_devices; i++) { /* some share a GPU */
        pthread_mutex_lock(&c->devices[i].lock);
        cuda_fault_look(&c->devices[i]);
        pthread_mutex_unlock(&c->devices[i].lock);
    }
    pthread_mutex_lock(&c->fault_lock);
    struct fault *all = atomic_load(&c->fault);
    if (all && !c->fault_told) {
        struct fault *f = together(c, all);
        c->fault_told = true;
        if (f)
            settle(c, f);
        arena_free(f ? f->arena : NULL);
    }
    atomic_store(&c->fault, NULL);
    pthread_mutex_unlock(&c->fault_lock);
    while (all) {
        struct fault *x = all;
        all = x->next;
        arena_free(x->arena);
    }
}
