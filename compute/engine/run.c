/* Running: typed graph → plan → bound to memory (bind.c) → queued. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/transfer.h"

/* The new array over the result's storage. */
static struct array *new_result(struct run *r)
{
    struct view v;
    struct storage *st = r->storages[r->plan->result_slot];
    if (view_contiguous(r->plan->rank, r->plan->shape, dtype_size(r->plan->dtype), &v, NULL) !=
        ERR_OK)
        return NULL;
    struct array *a = array_over(r->g, st, r->plan->dtype, &v, st->size);
    if (a)
        storage_ref(st);
    return a;
}

void run_prepare_kernels(const struct engine_stream *s, struct ir_kernel *const *kernels,
                         uint32_t n)
{
    struct backend *b = s->engine->backend;
    const struct account *user = s->account ? account_owner(s->account) : NULL;
    for (uint32_t i = 0; b->ops->prepare && i < n; i++)
        b->ops->prepare(b, s->device, kernels[i], user);
}

void kernels_release(struct engine *g, struct ir_kernel *const *kernels, uint32_t n)
{
    const struct backend_ops *ops = g->backend->ops;
    for (uint32_t i = 0; ops->release && i < n; i++)
        ops->release(g->backend, kernels[i]);
}

void run_freed(struct task *t)
{
    for (uint32_t i = 0; i < t->job.n_kernels && !t->loan; i++)
        if (!t->entry || !plan_entry_has(t->entry, t->job.kernels[i]))
            kernels_release(t->stream->engine, &t->job.kernels[i], 1);
    plan_entry_unref(t->entry);
}

enum err_code run_refused(struct task *t, enum err_code code, struct err *e)
{
    lock_held(&t->stream->engine->lock);
    char why[ENGINE_REASON];
    t->done = NULL; /* the return value reports it */
    if (err_has_reason(code) || code == ERR_CONTENTS_LOST) {
        engine_reason(t->stream->engine, code, t->job.refusal, why);
        return err_set(e, code, "%s", why);
    }
    if (code != ERR_OUT_OF_MEMORY)
        return err_set(e, code, "the device failed while it ran this work");
    if (t->job.wanted)
        err_set(e, code, "this work needs %lld bytes that device %d does not have left",
                (long long)t->job.wanted, t->job.wanted_on);
    else
        err_oom(e);
    if (e) {
        e->wanted = t->job.wanted;
        e->device = t->job.wanted_on;
    }
    return code;
}

static bool reads_target(const struct run *r)
{
    uint32_t i = 0;
    while (i < r->typed->n_inputs && !array_same_buffer(r->typed->inputs[i].array, r->out))
        i++;
    return i < r->typed->n_inputs;
}

/* With the lock held, after the submission: applies its effect on the target. The caller releases
 * the storage that it had before. */
static struct storage *take_effect(const struct run *r, struct storage *renamed, enum err_code code)
{
    lock_held(&r->g->lock);
    struct buffer *b = r->out->buffer;
    if (code != ERR_OK && (renamed || r->out_remade || r->task->job.untouched))
        return NULL; /* as if it had not been submitted */
    atomic_store(&b->version, engine_next_version(r->g));
    if (!renamed) {
        /* else the failure of an earlier write would bring back the storage before it; work that
         * reads the target fails with that write instead */
        if (r->covers && !r->out_remade && !reads_target(r))
            storage_forget(b->storage);
        return NULL;
    }
    struct storage *old = b->storage;
    buffer_place(b, storage_ref(renamed));
    if (r->in_place)
        storage_swap_charges(renamed, old);
    storage_replaced(old, true);
    return old;
}

/* With the lock held: the download by which the guards' result will be read. */
static enum err_code open_answer(struct run *r, struct err *e)
{
    lock_held(&r->g->lock);
    const struct ir_plan *p = r->plan;
    uint32_t i = 0;
    while (p->slots[i].kind != SLOT_ANSWER)
        i++;
    struct answer *to = r->task->answer;
    if (r->out)
        to->was = array_version(r->out);
    return download_of_task(r->task, r->storages[i], p->slots[i].size, to->wake, to->user,
                            &to->download, e);
}

static enum err_code check_version(const struct run *r, struct err *e)
{
    return r->out ? require_version(r->out->buffer, r->task->if_version, e) : ERR_OK;
}

static enum err_code run_now(struct run *r, enum write_mode mode, struct array **ret, struct err *e)
{
    struct engine *g = r->g;
    struct storage *renamed = NULL, *old = NULL;
    struct array *result = NULL;
    struct answer *answer = r->task->answer;
    enum err_code code = run_bind_temps(r, e);
    if (code != ERR_OK) {
        task_free(r->task);
        return code;
    }
    run_prepare_kernels(r->task->stream, r->plan->kernels, r->plan->n_kernels);
    run_make_renamed(r, mode);
    pthread_mutex_lock(&g->lock);
    code = check_version(r, e);
    if (code == ERR_OK)
        code = run_make_room(r, mode, e);
    if (code == ERR_OK)
        code = check_version(r, e); /* somebody may have come in between */
    if (code == ERR_OK)
        code = run_bind_arrays(r, mode, &renamed, e);
    if (code == ERR_OK) {
        result = r->out ? array_ref(r->out) : new_result(r);
        if (!result || !task_reserve(r->task))
            code = err_oom(e);
    }
    if (code == ERR_OK)
        code = fetch_submit(r->task, e);
    if (code == ERR_OK && answer)
        code = open_answer(r, e);
    /* the task releases the prepared kernels, even if it fails */
    r->task->job.kernels = r->plan->kernels;
    r->task->job.n_kernels = r->plan->n_kernels;
    if (code != ERR_OK) {
        fetch_undo(r->task);
        task_unlock_unsubmitted(r->task);
        array_unref(result);
        storage_unref(r->renamed);
        return code;
    }
    r->task->job.slots = r->slots;
    r->task->job.unwanted = task_unwanted;
    atomic_fetch_add(&g->evaluations, 1);
    atomic_fetch_add(&g->kernels, r->plan->n_kernels);
    if (renamed)
        atomic_store(&renamed->before, storage_ref(r->out->buffer->storage));
    code = task_submit(r->task);
    if (r->out)
        old = take_effect(r, renamed, code);
    if (r->out && answer)
        answer->is = array_version(r->out);
    if (code != ERR_OK) {
        fetch_undo(r->task);
        code = run_refused(r->task, code, e);
    }
    task_unlock(r->task);
    if (code != ERR_OK) {
        if (answer) {
            download_undo(answer->download);
            answer->download = NULL;
        }
        array_unref(result);
    } else {
        *ret = result;
    }
    storage_unref(old);
    storage_unref(r->renamed); /* it was not needed */
    return code;
}

static enum err_code run_prepared(struct run *r, enum write_mode mode, struct array **ret,
                                  struct err *e)
{
    uint64_t until = engine_clock(r->g);
    run_touch(r);
    enum err_code code = run_now(r, mode, ret, e);
    if (code == ERR_OUT_OF_MEMORY && e)
        e->until = until;
    return code;
}

enum err_code require_version(const struct buffer *b, uint64_t version, struct err *e)
{
    lock_held(&b->engine->lock);
    if (!version || atomic_load(&b->version) == version)
        return ERR_OK;
    return err_set(e, ERR_PRECONDITION_FAILED, "the array's contents changed in the meantime");
}

#define DEVICE_TEXT 32

static const char *device_text(const struct engine *g, int device, char *room)
{
    snprintf(room, DEVICE_TEXT, device == g->mesh ? "the mesh, device %d" : "device %d", device);
    return room;
}

enum err_code require_device(const struct engine_stream *s, const struct array *a, const char *name,
                             struct err *e)
{
    int device = a->buffer->device;
    if (device == s->device)
        return ERR_OK;
    char there[DEVICE_TEXT], here[DEVICE_TEXT];
    return err_set(e, ERR_CONFLICT,
                   "the array%s%s is on %s, but this session works on %s: use a session there, or "
                   "make a copy of the array here",
                   name && *name ? " " : "", name ? name : "",
                   device_text(s->engine, device, there), device_text(s->engine, s->device, here));
}

enum err_code run_require_device(const struct run *r, struct err *e)
{
    const struct engine_stream *s = r->task->stream;
    enum err_code code = r->out ? require_device(s, r->out, NULL, e) : ERR_OK;
    for (uint32_t i = 0; i < r->typed->n_inputs && code == ERR_OK; i++)
        code = require_device(s, r->typed->inputs[i].array, r->typed->inputs[i].name, e);
    return code;
}

enum err_code engine_run(struct task *take_t, const struct typed *typed, struct account *account,
                         bool fast_math, struct array *out, const struct view *out_view,
                         struct array **ret, struct err *e)
{
    struct run r = {.task = take_t,
                    .g = take_t->stream->engine,
                    .account = account,
                    .typed = typed,
                    .fast_math = fast_math,
                    .entry = take_t->entry,
                    .out = out};
    enum write_mode mode;
    enum err_code code = run_require_device(&r, e);
    if (code == ERR_OK)
        code = run_prepare(&r, out_view, &mode, e);
    if (code != ERR_OK) {
        task_free(take_t);
        return code;
    }
    return run_prepared(&r, mode, ret, e);
}

enum err_code engine_run_plan(struct task *take_t, struct ir_plan *plan, struct account *account,
                              struct array *out, struct array **ret, struct err *e)
{
    static const struct typed none;
    struct run r = {.task = take_t,
                    .g = take_t->stream->engine,
                    .account = account,
                    .typed = &none,
                    .plan = plan,
                    .out = out,
                    .target = out->view};
    return run_prepared(&r, WRITE_DIRECT, ret, e);
}

enum err_code engine_plan(struct engine *g, struct arena *arena, const struct typed *typed,
                          bool fast_math, struct array *out, const struct view *out_view,
                          struct ir_plan **ret, struct err *e)
{
    struct task shell = {.arena = arena};
    struct run r = {.task = &shell, .g = g, .typed = typed, .fast_math = fast_math, .out = out};
    enum write_mode mode;
    TRY(run_prepare(&r, out_view, &mode, e));
    *ret = r.plan;
    return ERR_OK;
}
