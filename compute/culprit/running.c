/* A slot for each piece of work that is on a device. The next free one is nearly always where the
 * search begins, since slots are given in turn and work does not last. Work beyond the last slot is
 * not recorded. */
#include "compute/base/mem.h"
#include "compute/culprit/culprit_int.h"

static void put(char *to, const char *text, size_t size)
{
    strncpy(to, text ? text : "", size - 1);
}

uint32_t culprits_begin(struct culprits *c, const struct code_key *plan, uint32_t n_kernels,
                        const char *form, struct culprit_who who, bool alone)
{
    const uint32_t from = atomic_fetch_add_explicit(&c->hint, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < RUNNING_MOST; i++) {
        const uint32_t at = (from + i) % RUNNING_MOST;
        struct running_slot *s = &c->m->slots[at];
        uint32_t is = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&s->state, &is, SLOT_TAKEN))
            continue;
        s->plan = *plan;
        s->n_kernels = n_kernels;
        s->alone = alone;
        put(s->form, form, sizeof s->form);
        put(s->who, who.name, sizeof s->who);
        put(s->job, who.job, sizeof s->job);
        atomic_store_explicit(&s->state, SLOT_RUNS, memory_order_release);
        return at + 1;
    }
    return 0;
}

uint32_t culprits_begin_job(struct culprits *c, const char *job)
{
    return culprits_begin(c, &(struct code_key){{0}}, 0, "", (struct culprit_who){.job = job},
                          false);
}

void culprits_end(struct culprits *c, uint32_t number)
{
    if (number)
        atomic_store_explicit(&c->m->slots[number - 1].state, SLOT_FREE, memory_order_release);
}

const struct culprit_left *culprits_left(const struct culprits *c, uint32_t *ret_n)
{
    *ret_n = c->n_left;
    return c->left;
}

void culprits_ended(struct culprits *c, bool crashed)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_left; i++) {
        _Atomic uint32_t *state = &c->m->slots[c->left[i].slot].state;
        if (atomic_load(state) == SLOT_RUNS)
            atomic_store(state, crashed ? SLOT_CRASHED : SLOT_FREE);
        if (atomic_load(state) == SLOT_CRASHED)
            c->left[n++] = c->left[i];
    }
    c->n_left = n;
}

bool culprits_crashed(struct culprits *c, const char *why)
{
    const uint32_t n = c->n_left;
    c->crashed = true;
    struct culprit_kernel *plans = mem_calloc(n + 1, sizeof *plans);
    struct culprit_work *works = mem_calloc(n + 1, sizeof *works);
    const bool room = plans && works;
    for (uint32_t i = 0; room && i < n; i++) {
        plans[i] = (struct culprit_kernel){.key = c->left[i].plan, .form = c->left[i].form};
        works[i] = (struct culprit_work){&plans[i], 1, c->left[i].plan};
    }
    const bool saved = room && culprits_fault(c, why, works, n, n == 1 && c->left[0].alone);
    for (uint32_t i = 0; room && i < n; i++)
        c->left[i].refused = plans[i].refused;
    for (uint32_t i = 0; i < n; i++)
        atomic_store(&c->m->slots[c->left[i].slot].state, SLOT_FREE);
    mem_free(plans);
    mem_free(works);
    return saved;
}

const char *culprits_crashed_of(const struct culprits *c)
{
    const char *job = c->n_left ? c->left[0].job : c->n_jobs_left == 1 ? c->job_left : "";
    for (uint32_t i = 1; i < c->n_left; i++)
        if (strcmp(c->left[i].job, job) != 0)
            return "";
    return c->crashed ? job : "";
}
