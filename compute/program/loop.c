/* Recording and submitting loops.
 *
 * An evaluation is bound to memory as run.c would bind it, and kept as a task that is never
 * submitted. Anything that cannot be bound once for all passes (a target that gets new storage,
 * memory that a download holds, arrays in host memory, guards whose result is wanted) makes the
 * loop refuse: the caller then evaluates step by step. All passes share their temporaries. */
#include "compute/program/loop.h"

#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/engine/run.h"
#include "compute/program/loop_int.h"

struct loop {
    struct engine_stream *stream;
    struct account *account;
    struct arena *arena;
    struct loop_pass passes[LOOP_PASSES];
    int n_passes; /* passes begun */
    struct run_temporaries temporaries;
    const char *refusal;
    bool for_now;
    const _Atomic bool *given_up; /* taken from the evaluations, */
    struct work_seen *seen;       /* as is this */
};

struct loop *loop_new(struct engine_stream *s, struct account *account)
{
    struct arena *arena = arena_new(0);
    struct loop *l = arena ? arena_alloc(arena, sizeof *l) : NULL;
    if (!l) {
        arena_free(arena);
        return NULL;
    }
    *l = (struct loop){.stream = s, .account = account, .arena = arena};
    l->temporaries.arena = arena;
    return l;
}

void loop_free(struct loop *l)
{
    for (int i = 0; i < l->n_passes; i++) {
        struct loop_pass *p = &l->passes[i];
        for (size_t k = 0; k < p->n_tasks; k++) {
            p->tasks[k]->job.n_kernels = 0; /* these belong to the entries */
            task_free(p->tasks[k]);
        }
        loop_kernels_unref(p->kernels);
    }
    for (size_t i = 0; i < l->temporaries.n; i++)
        storage_unref(l->temporaries.all[i]);
    arena_free(l->arena);
}

void loop_begin(struct loop *l)
{
    l->n_passes++;
    l->temporaries.taken = 0;
}

const char *loop_refusal(const struct loop *l)
{
    return l->refusal;
}

bool loop_may_do_later(const struct loop *l)
{
    return l->for_now;
}

static struct loop_pass *pass_of(struct loop *l)
{
    return &l->passes[l->n_passes - 1];
}

/* --- memory, numbered --- */

static struct loop_slot *find_slot(struct loop_pass *p, const void *data)
{
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].data == data)
            return &p->slots[i];
    return NULL;
}

static struct loop_slot *add_slot(struct loop *l, void *data)
{
    struct loop_pass *p = pass_of(l);
    struct loop_slot *s = find_slot(p, data);
    if (s || arena_grow(l->arena, (void **)&p->slots, &p->cap_slots, p->n_slots, sizeof *s) < 0)
        return s;
    s = &p->slots[p->n_slots++];
    *s = (struct loop_slot){.data = data, .size = INT64_MAX, .carried_to = NO_SLOT};
    return s;
}

bool loop_carry(struct loop *l, const struct array *from, const struct array *to)
{
    pthread_mutex_t *lock = &l->stream->engine->lock;
    pthread_mutex_lock(lock);
    void *a = buffer_storage(from->buffer)->data, *b = buffer_storage(to->buffer)->data;
    pthread_mutex_unlock(lock);
    if (!add_slot(l, a) || !add_slot(l, b))
        return false;
    struct loop_pass *p = pass_of(l);
    find_slot(p, a)->carried_to = (uint32_t)(find_slot(p, b) - p->slots);
    return true;
}

static bool number_slots(struct loop *l, const struct run *r, bool dead)
{
    for (uint32_t i = 0; i < r->plan->n_slots; i++) {
        enum slot_kind kind = r->plan->slots[i].kind;
        struct loop_slot *s = r->slots[i] ? add_slot(l, r->slots[i]) : NULL;
        if (r->slots[i] && !s)
            return false;
        if (s && r->storages[i])
            s->size = r->storages[i]->size;
        if (s && (kind == SLOT_TEMP || (kind == SLOT_RESULT && dead)))
            s->dead = true;
    }
    return true;
}

/* --- recording --- */

/* With the lock held. */
static const char *moves(const struct run *r)
{
    lock_held(&r->g->lock);
    for (uint32_t i = 0; i < r->typed->n_inputs; i++)
        if (buffer_storage(r->typed->inputs[i].array->buffer)->host)
            return "an array is in host memory";
    struct storage *out = buffer_storage(r->out->buffer);
    return out->host                     ? "an array is in host memory"
           : atomic_load(&out->pins) > 0 ? "a download holds an array's memory"
                                         : NULL;
}

/* Binds the plan so that it writes to the target in place. */
static enum err_code bind_plan(struct loop *l, struct run *r, struct err *e)
{
    struct storage *renamed = NULL;
    enum err_code code = run_bind_temps(r, e);
    if (code != ERR_OK)
        return code;
    run_touch(r);
    pthread_mutex_lock(&r->g->lock);
    l->refusal = moves(r);
    l->for_now = l->refusal != NULL;
    if (!l->refusal)
        code = run_bind_arrays(r, WRITE_DIRECT, &renamed, e);
    pthread_mutex_unlock(&r->g->lock);
    return code;
}

static enum err_code bind(struct loop *l, struct run *r, const struct view *out_view, struct err *e)
{
    enum write_mode mode;
    enum err_code code = run_prepare(r, out_view, &mode, e);
    if (code == ERR_OK && mode == WRITE_FRESH)
        code = run_stage(r, e);
    return code == ERR_OK ? bind_plan(l, r, e) : code;
}

static enum err_code keep(struct loop *l, struct run *r, struct err *e)
{
    struct loop_pass *p = pass_of(l);
    r->task->job.kernels = r->plan->kernels;
    r->task->job.n_kernels = r->plan->n_kernels;
    r->task->job.slots = r->slots;
    if (arena_grow(l->arena, (void **)&p->tasks, &p->cap_tasks, p->n_tasks, sizeof *p->tasks) < 0)
        return err_oom(e);
    p->tasks[p->n_tasks++] = r->task;
    return ERR_OK;
}

enum err_code loop_add(struct loop *l, const struct eval_request *req, bool dead, struct err *e)
{
    struct task *t;
    const struct typed *typed;
    struct eval_times times = {0};
    if (l->refusal)
        return ERR_OK;
    l->given_up = req->given_up;
    l->seen = req->seen;
    TRY(evaluate_begin(l->stream, req, &t, &typed, &times, e));
    struct run r = {.task = t,
                    .g = l->stream->engine,
                    .account = l->account,
                    .typed = typed,
                    .fast_math = req->fast_math,
                    .entry = t->entry,
                    .temporaries = &l->temporaries,
                    .out = req->out};
    if (typed->guards)
        l->refusal = "an index is checked in each step";
    enum err_code code = run_require_device(&r, e);
    if (code == ERR_OK && !l->refusal)
        code = bind(l, &r, req->out_view, e);
    if (code == ERR_OK && !l->refusal && !number_slots(l, &r, dead))
        code = err_oom(e);
    if (code == ERR_OK && !l->refusal)
        code = keep(l, &r, e);
    if (code != ERR_OK || l->refusal)
        task_free(t);
    return code;
}

enum err_code loop_fill_ghost(struct loop *l, struct array *a, struct err *e)
{
    static const struct typed none;
    struct task *t;
    struct ir_plan *plan;
    if (l->refusal)
        return ERR_OK;
    enum err_code code = fill_begin(l->stream, a, &t, &plan, e);
    if (code != ERR_OK)
        return code;
    struct run r = {.task = t,
                    .g = l->stream->engine,
                    .account = l->account,
                    .typed = &none,
                    .plan = plan,
                    .entry = t->entry,
                    .temporaries = &l->temporaries,
                    .out = a,
                    .target = a->view};
    if (plan)
        code = bind_plan(l, &r, e);
    if (code == ERR_OK && plan && !l->refusal && !number_slots(l, &r, false))
        code = err_oom(e);
    if (code == ERR_OK && plan && !l->refusal)
        code = keep(l, &r, e);
    if (code != ERR_OK || !plan || l->refusal)
        task_free(t);
    return code;
}

/* --- submitting --- */

/* The storages that the passes use, each once, in order of use: one that is written whole before it
 * is read does not need its old contents. */
static bool collect_uses(struct task *t, const struct loop *l)
{
    for (int i = 0; i < l->n_passes; i++)
        for (size_t k = 0; k < l->passes[i].n_tasks; k++) {
            const struct task *from = l->passes[i].tasks[k];
            for (uint32_t u = 0; u < from->n_uses; u++) {
                const struct storage_use *use = &from->uses[u];
                uint32_t at = 0;
                while (at < t->n_uses && t->uses[at].storage != use->storage)
                    at++;
                if (at < t->n_uses) {
                    t->uses[at].write |= use->write;
                    continue;
                }
                if (!task_use(t, use->storage, use->write))
                    return false;
                t->uses[at].whole = use->whole;
                t->uses[at].fresh = use->fresh;
            }
        }
    return true;
}

static void **slots_of(struct arena *arena, const struct loop_pass *p)
{
    void **slots = arena_alloc_array(arena, p->n_slots, sizeof *slots);
    for (size_t i = 0; slots && i < p->n_slots; i++)
        slots[i] = p->slots[i].data;
    return slots;
}

struct launches {
    struct ir_kernel **kernels;
    void *const **bindings;
    uint32_t n;
};

/* Steps done by the kernel for several steps at index `i`; 0 without such a kernel. */
static int64_t steps_of(const struct loop_kernels *k, int i)
{
    return i < SEVERAL && k->several[i] ? k->several[i]->steps : 0;
}

/* Adds pass number `pass`: a single step, or those of the kernel for several steps at index
 * `several`. */
static void add_pass(struct launches *to, const struct loop *l, void **const *slots, int pass,
                     int several)
{
    const struct loop_kernels *k = l->passes[pass].kernels;
    bool one = steps_of(k, several) == 0;
    for (uint32_t i = 0; i < (one ? k->n_kernels : 1); i++) {
        to->kernels[to->n] = one ? k->kernels[i] : k->several[several];
        to->bindings[to->n++] = slots[pass];
    }
}

/* Index of the recorded pass that runs as number i. */
static int pass_at(int64_t i)
{
    return i == 0 ? 0 : i % 2 ? 1 : 2;
}

/* Divides the steps: passes of the first kernel for several steps (without one, single steps), then
 * of the second, and so on; single steps last. */
static void divide(const struct loop *l, int64_t steps, int64_t ret_counts[SEVERAL + 1])
{
    const struct loop_kernels *k = l->passes[l->n_passes - 1].kernels;
    for (int i = 0; i <= SEVERAL; i++) {
        int64_t each = steps_of(k, i);
        for (int p = 0; p < l->n_passes; p++)
            each = steps_of(l->passes[p].kernels, i) == each ? each : 0;
        each = each ? each : i == SEVERAL ? 1 : INT64_MAX;
        ret_counts[i] = steps / each;
        steps %= each;
    }
}

/* The steps as launches: the first pass, the other two in a loop, then the remainder. */
static bool lay_out(struct task *t, const struct loop *l, int64_t steps, int64_t *ret_passes)
{
    int64_t counts[SEVERAL + 1], at = 0, rest = 0;
    uint32_t n = 1;
    void **slots[LOOP_PASSES];
    divide(l, steps, counts);
    int most = 0; /* the index of the kernel that is looped */
    for (int i = 0; i <= SEVERAL; i++)
        most = counts[i] > counts[most] ? i : most;
    for (int i = 0; i <= SEVERAL; i++)
        rest += i == most ? 3 : counts[i];
    for (int i = 0; i < l->n_passes; i++) {
        slots[i] = slots_of(t->arena, &l->passes[i]);
        if (!slots[i])
            return false;
        n = l->passes[i].kernels->n_kernels > n ? l->passes[i].kernels->n_kernels : n;
    }
    struct launches to = {
        arena_alloc_array(t->arena, (size_t)n * (size_t)(rest + 1), sizeof *to.kernels),
        arena_alloc_array(t->arena, (size_t)n * (size_t)(rest + 1), sizeof *to.bindings), 0};
    if (!to.kernels || !to.bindings)
        return false;
    for (int i = 0; i <= SEVERAL; i++) {
        int64_t end = at + counts[i];
        if (at == 0 && at < end)
            add_pass(&to, l, slots, pass_at(at++), i);
        int64_t rounds = i == most ? (end - at) / 2 : 0;
        if (rounds > 0) {
            t->job.loop_from = to.n;
            add_pass(&to, l, slots, pass_at(at), i);
            add_pass(&to, l, slots, pass_at(at + 1), i);
            t->job.loop_n = to.n - t->job.loop_from;
            t->job.repeats = (uint32_t)rounds;
            at += 2 * rounds;
        }
        for (; at < end; at++)
            add_pass(&to, l, slots, pass_at(at), i);
    }
    t->job.kernels = to.kernels;
    t->job.bindings = to.bindings;
    t->job.n_kernels = to.n;
    *ret_passes = at;
    uint64_t again = t->job.loop_n ? t->job.repeats - 1 : 0;
    atomic_fetch_add(&l->stream->engine->kernels, to.n + t->job.loop_n * again);
    return true;
}

struct lent {
    struct loan loan;
    struct loop_kernels *kernels[LOOP_PASSES]; /* a reference each; or NULL */
    int64_t steps;
};

static void lent_took(struct loan *loan, double device_ms)
{
    struct lent *x = (struct lent *)loan;
    for (int i = 0; i < LOOP_PASSES && x->kernels[i]; i++)
        loop_kernels_took(x->kernels[i], device_ms, x->steps);
}

static void lent_end(struct loan *loan)
{
    struct lent *x = (struct lent *)loan;
    for (int i = 0; i < LOOP_PASSES; i++)
        loop_kernels_unref(x->kernels[i]);
}

static bool lend(struct task *t, const struct loop *l, int64_t steps)
{
    struct lent *x = arena_alloc(t->arena, sizeof *x);
    if (!x)
        return false;
    *x = (struct lent){.loan = {lent_took, lent_end}, .steps = steps};
    for (int i = 0; i < l->n_passes; i++)
        x->kernels[i] = loop_kernels_ref(l->passes[i].kernels);
    t->loan = &x->loan;
    return true;
}

static enum err_code submit(struct task *t, struct err *e)
{
    struct engine *g = t->stream->engine;
    run_prepare_kernels(t->stream, t->job.kernels, t->job.n_kernels);
    pthread_mutex_lock(&g->lock);
    if (!task_reserve(t)) {
        task_unlock_unsubmitted(t);
        return err_oom(e);
    }
    atomic_fetch_add(&g->evaluations, 1);
    enum err_code code = task_submit(t);
    if (code != ERR_OK)
        code = run_refused(t, code, e);
    task_unlock(t);
    return code;
}

static enum err_code get_kernels(struct loop *l, struct err *e)
{
    for (int i = 0; i < l->n_passes; i++)
        TRY(loop_kernels_get(l->stream, &l->passes[i], &l->passes[i].kernels, e));
    return ERR_OK;
}

static struct loop_report report_on(const struct loop_kernels *k)
{
    int64_t steps = steps_of(k, 0);
    return (struct loop_report){k->n_kernels, steps ? (uint32_t)steps : 1, k->why,
                                atomic_load(&k->step_ms)};
}

enum err_code loop_explain(struct loop *l, struct loop_explanation *ret, struct err *e)
{
    TRY(get_kernels(l, e));
    const struct loop_kernels *k = pass_of(l)->kernels;
    uint32_t n = 0;
    while (n < SEVERAL && k->several[n])
        n++;
    *ret = (struct loop_explanation){k->kernels, k->n_kernels, k->several, n, report_on(k)};
    return ERR_OK;
}

bool loop_slot_is(const struct loop *l, uint32_t slot, const struct array *a)
{
    const struct loop_pass *p = &l->passes[l->n_passes - 1];
    pthread_mutex_t *lock = &l->stream->engine->lock;
    pthread_mutex_lock(lock);
    bool is = p->slots[slot].data == buffer_storage(a->buffer)->data;
    pthread_mutex_unlock(lock);
    return is;
}

enum err_code loop_submit(struct loop *take_l, int64_t steps, engine_done *done, void *user,
                          int64_t *ret_passes, struct loop_report *ret_report, struct err *e)
{
    _cleanup_loop_ struct loop *l = take_l;
    TRY(get_kernels(l, e));
    struct task *t = task_new(l->stream);
    if (!t)
        return err_oom(e);
    if (!collect_uses(t, l) || !lay_out(t, l, steps, ret_passes) || !lend(t, l, steps)) {
        t->job.n_kernels = 0; /* these belong to the loop */
        task_free(t);
        return err_oom(e);
    }
    t->done = done;
    t->user = user;
    t->given_up = l->given_up;
    t->seen = l->seen;
    t->job.wants_forms = t->seen != NULL;
    t->job.unwanted = task_unwanted;
    TRY(submit(t, e));
    *ret_report = report_on(pass_of(l)->kernels);
    return ERR_OK;
}
