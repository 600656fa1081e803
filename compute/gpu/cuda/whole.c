/* Wholes (ir_whole.h) in place of their parts. The parts run, or are interpreted, until the whole
 * is compiled, and always if the compiler refuses it, if it was running on a device that faulted,
 * or if arrays share memory in a way that only one kernel after the other allows. Which of them run
 * is decided for each job when it is submitted (launch.c). */
#include "compute/gpu/cuda/prepare.h"

static struct prepared *new_whole(struct cuda_device *d, const struct ir_whole *w,
                                  const char **ret_why)
{
    struct arena *arena = arena_new(0);
    *ret_why = "";
    if (!arena)
        return NULL;
    arena_exempt(arena, true); /* freed with the kernel */
    const struct form *f = form_of_whole(arena, w, SLOT_ALIGNMENT, ret_why);
    struct emitted *m = f ? emit_in_form(arena, w->kernel, f) : NULL;
    if (m && m->indirect) { /* parts get theirs from memory, one after the other */
        *ret_why = "it has too many parameters";
        m = NULL;
    }
    return prepared_of(d, arena, m, w->kernel->fast_math); /* frees the arena if m is NULL */
}

/* w->kernel->prepared, created if missing; NULL: it cannot run, or there is no memory. */
static struct prepared *prepared_whole(struct cuda_device *d, struct ir_whole *w, const void *user)
{
    struct prepared *p = atomic_load(&w->kernel->prepared);
    void *none = NULL;
    const char *why;
    if (p || atomic_load(&w->avoided))
        return p;
    p = new_whole(d, w, &why);
    if (!p) {
        atomic_store(&w->avoided, *why != '\0');
        return NULL;
    }
    if (!atomic_compare_exchange_strong(&w->kernel->prepared, &none, p)) {
        prepared_unref(p);
        return none;
    }
    if (atomic_load(&p->state) == PREPARED_COMPILING)
        prepared_compile(p, user);
    return p;
}

const struct ir_whole *cuda_whole(struct cuda_device *d, const struct job *job, uint32_t at)
{
    const struct prepared *part = atomic_load(&job->kernels[at]->prepared);
    /* a loop's kernels run over and over at numbers that differ; what is interpreted in no time is
     * compiled when it comes again */
    if (job->loop_n || job->bindings || !part || atomic_load(&part->put_off))
        return NULL;
    for (struct ir_whole *w = job->kernels[at]->whole; w; w = w->next) {
        if (!ir_whole_fits(w, job->kernels, job->n_kernels, at, job->slots))
            continue;
        struct prepared *p = prepared_whole(d, w, part->user);
        if (p && atomic_load(&p->state) == PREPARED_READY &&
            !culprits_avoids(d->cuda->culprits, &p->key))
            return w;
        if (p ? atomic_load(&p->state) == PREPARED_COMPILING : !atomic_load(&w->avoided))
            return NULL; /* the parts run until it is there */
    }
    return NULL;
}

bool cuda_explain_whole(struct backend *b, int device, const struct ir_whole *w,
                        struct kernel_explanation *ret, const char **ret_why)
{
    struct cuda *c = (struct cuda *)b;
    struct prepared *p = new_whole(&c->devices[device], w, ret_why);
    *ret = (struct kernel_explanation){
        .form = "fold", .cached = true, .registers = -1, .shared = -1, .local = -1};
    if (p)
        cuda_explain_prepared(c, p, ret);
    else if (!**ret_why)
        ret->source.failed = true;
    return p || !**ret_why;
}
