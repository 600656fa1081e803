/* Wholes (ir_whole.h) in place of their parts. The parts run, or are interpreted, until the whole
 * is compiled, and always if the compiler refuses it, if it was running on a device that faulted,
 * or if arrays share memory in a way that only one kernel after the other allows. Where the parts
 * are refused, so is the whole: no request is refused today and served tomorrow. Which of them run
 * is decided for each job when it is submitted (launch.c).
 *
 * And how many steps of a loop one kernel does. */
#include "compute/gpu/cuda/parts.h"
#include "compute/gpu/cuda/prepare.h"

/* Whether members add in another order than one GPU does: the whole would have other bits. */
static bool parts_are_joined(const struct cuda_device *d, struct arena *arena,
                             const struct ir_whole *w, int members)
{
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const struct form *f = form_within(arena, w->parts[i], SLOT_ALIGNMENT, d->shared, members);
        if (!f || f->joined)
            return true;
    }
    return false;
}

static struct prepared *new_whole(struct cuda_device *d, const struct ir_whole *w,
                                  const char **ret_why)
{
    struct arena *arena = arena_new(0);
    *ret_why = "";
    if (!arena)
        return NULL;
    arena_exempt(arena, true); /* freed with the kernel */
    struct form *f = form_of_whole(arena, w, SLOT_ALIGNMENT, d->shared, ret_why);
    const int members = parts_members(d, w->kernel);
    if (f)
        f->members = members;
    struct emitted *m = f ? emit_in_form(arena, w->kernel, f) : NULL;
    if (m && m->indirect) { /* parts get theirs from memory, one after the other */
        *ret_why = "it has too many parameters";
        m = NULL;
    } else if (m && members > 1 && (!form_group(f) || parts_are_joined(d, arena, w, members))) {
        *ret_why = "several GPUs divide its parts";
        m = NULL;
    }
    struct prepared *p =
        prepared_of(d, arena, m, w->kernel->fast_math); /* frees the arena if m is NULL */
    if (p)
        parts_divide(p, w->kernel, members);
    return p;
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
        prepared_compile(p, user, false);
    return p;
}

/* The whole, prepared, that runs in place of kernel number `at` and of those behind it; NULL: that
 * kernel runs, now at least. */
static const struct ir_whole *whole_of(struct cuda_device *d, const struct job *job, uint32_t at)
{
    const struct prepared *part = atomic_load(&job->kernels[at]->prepared);
    /* what is interpreted in no time is compiled when it comes again */
    if (!part || atomic_load(&part->put_off))
        return NULL;
    for (struct ir_whole *w = job->kernels[at]->whole; w; w = w->next) {
        if (!ir_whole_fits(w, job->kernels, job->n_kernels, at, job_slots(job, at)))
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

bool cuda_wholes(struct cuda_device *d, const struct job *job, uint64_t ret[2])
{
    const struct ir_whole *w;
    for (uint32_t i = 0; i < job->n_kernels && i < 64; i += w ? w->n_parts : 1) {
        w = whole_of(d, job, i);
        if (w)
            ret[w != job->kernels[i]->whole] |= 1ull << i;
    }
    return ret[0] | ret[1];
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

/* Whether one of the kernels of `steps` steps, of half as many and so on, is refused or was part of
 * a plan that is: single steps do the same. Emits their text only if the list has
 * entries. */
static bool steps_are_avoided(struct cuda_device *d, struct arena *arena, const struct ir_kernel *k,
                              uint32_t steps)
{
    const struct cuda *c = d->cuda;
    for (; !culprits_is_empty(c->culprits) && steps > 1; steps /= 2) {
        struct ir_kernel *x = arena_dup(arena, k, sizeof *k);
        if (!x)
            return true;
        x->steps = steps;
        const struct emitted *m =
            emit_within(arena, x, SLOT_ALIGNMENT, d->shared, parts_members(d, x));
        if (!m)
            return true;
        struct code_key key = kcache_key(c->kcache, d->arch, m->text, k->fast_math);
        if (culprits_avoids(c->culprits, &key))
            return true;
    }
    return false;
}

uint32_t cuda_steps(struct backend *b, int device, const struct ir_kernel *k, const char **ret_why)
{
    struct cuda *c = (struct cuda *)b;
    *ret_why = "";
    struct arena *arena = prepare_is_empty(k) ? NULL : arena_new(0);
    struct cuda_device *d = &c->devices[device];
    uint32_t n =
        arena ? form_steps(arena, k, SLOT_ALIGNMENT, d->shared, parts_members(d, k), ret_why) : 1;
    if (n > 1 && steps_are_avoided(d, arena, k, n)) {
        *ret_why = "the kernel of several steps was running on a device that faulted";
        n = 1;
    }
    arena_free(arena);
    return n;
}
