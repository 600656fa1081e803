/* What a program would do: its statements are processed like a step, but reported instead of
 * queued. As a loop they are recorded and never submitted; if they cannot be one, each statement is
 * planned by itself. */
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/program/program_int.h"

struct explaining {
    struct sink sink;
    program_look *look;
    void *user;
};

/* The program's name for the array behind a slot of the loop's kernels. */
static const char *name_of_slot(const struct program *p, const struct loop *l, uint32_t slot)
{
    for (uint32_t i = 0; i < p->n_targets; i++) {
        const struct target *t = &p->targets[i];
        if (loop_slot_is(l, slot, t->home) || loop_slot_is(l, slot, t->spare[0]) ||
            (t->spare[1] && loop_slot_is(l, slot, t->spare[1])))
            return t->name;
    }
    for (size_t i = 0; i < p->n_known; i++)
        if (p->known[i]->binding.kind == BINDING_ARRAY &&
            loop_slot_is(l, slot, p->known[i]->binding.array))
            return p->known[i]->name;
    return NULL;
}

static enum err_code tell(const struct explaining *x, const struct ir_kernel *k,
                          const char *const *names, int32_t statement, struct err *e)
{
    const struct program_kernel told = {k, names, statement};
    return x->look(x->user, &told, e);
}

static enum err_code tell_of_loop(const struct program *p, const struct explaining *x,
                                  const struct loop *l, const struct ir_kernel *k, struct err *e)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const char **names = arena ? arena_alloc_array(arena, k->n_inputs, sizeof(const char *)) : NULL;
    if (!names)
        return err_oom(e);
    for (uint32_t i = 0; i < k->n_inputs; i++)
        names[i] = name_of_slot(p, l, k->inputs[i].slot);
    return tell(x, k, names, -1, e);
}

static const struct explaining *explaining(const struct program *p)
{
    return (const struct explaining *)p->sink;
}

static enum err_code explain_put(struct program *p, struct eval_request *req, int64_t number,
                                 int32_t statement)
{
    (void)number;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct eval_explanation all;
    if (!arena)
        return err_oom(&p->err);
    if (statement >= (int32_t)p->n_statements)
        statement = -1; /* a result */
    enum err_code code = engine_explain(p->stream, req, arena, &all, &p->err);
    for (uint32_t n = 0; code == ERR_OK && n < all.plan->n_kernels; n++) {
        const struct ir_kernel *k = all.plan->kernels[n];
        const char **names = arena_alloc_array(arena, k->n_inputs, sizeof(const char *));
        if (!names)
            return err_oom(&p->err);
        for (uint32_t i = 0; i < k->n_inputs; i++) {
            const struct ir_slot *slot = &all.plan->slots[k->inputs[i].slot];
            if (slot->kind != SLOT_INPUT)
                continue;
            const struct typed_input *in = &all.typed.inputs[slot->index];
            names[i] = !in->target ? in->name : NULL;
            if (in->target && statement >= 0)
                names[i] = p->steps[statement].assign->target;
        }
        code = tell(explaining(p), k, names, statement, &p->err);
    }
    return code;
}

static enum err_code explain_fill(struct program *p, const struct target *t, int64_t number,
                                  int32_t statement)
{
    (void)number;
    struct task *task;
    struct ir_plan *plan;
    enum err_code code = fill_begin(p->stream, t->now, &task, &plan, &p->err);
    if (code != ERR_OK)
        return code;
    for (uint32_t n = 0; code == ERR_OK && plan && n < plan->n_kernels; n++)
        code = tell(explaining(p), plan->kernels[n], &t->name, statement, &p->err);
    task_free(task);
    return code;
}

/* Each statement by itself. */
static enum err_code explain_step(struct program *p, struct explaining *x)
{
    p->sink = &x->sink;
    enum err_code code = program_run_step(p, 1);
    p->sink = NULL;
    for (uint32_t i = 0; i < p->n_targets; i++)
        p->targets[i].now = p->targets[i].home;
    return code;
}

static enum err_code explain_loop(const struct program *p, struct loop *l,
                                  const struct loop_explanation *how, const struct explaining *x,
                                  struct loop_report *ret, struct err *e)
{
    enum err_code code = ERR_OK;
    struct loop_report report = program_report_on(p, how->report);
    for (uint32_t i = 0; i < how->n_kernels && code == ERR_OK; i++)
        code = tell_of_loop(p, x, l, how->kernels[i], e);
    for (uint32_t i = 0; i < how->n_several && code == ERR_OK; i++)
        if (how->several[i]->steps == report.steps)
            code = tell_of_loop(p, x, l, how->several[i], e);
    if (code == ERR_OK)
        *ret = report;
    return code;
}

enum err_code program_explain(struct program *p, int64_t steps, program_look *look, void *user,
                              struct loop_report *ret, struct err *e)
{
    struct explaining x = {{explain_put, explain_fill}, look, user};
    struct loop *l = NULL;
    struct loop_explanation how;
    enum err_code code = program_dry_run(p, 0, steps, &l, &how);
    if (code == ERR_OK && l) {
        code = explain_loop(p, l, &how, &x, ret, e);
        loop_free(l);
        return code;
    }
    if (code == ERR_OK)
        code = explain_step(p, &x);
    if (code == ERR_OK)
        *ret = program_report(p);
    else
        *e = p->err;
    return code;
}

static int64_t bytes_of(const struct array *a)
{
    return a ? array_buffer_nbytes(a) : 0;
}

int64_t program_bytes(const struct program *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->n_targets; i++)
        n += bytes_of(p->targets[i].spare[0]) + bytes_of(p->targets[i].spare[1]);
    for (uint32_t i = 0; i < p->spec.n_body; i++)
        n += p->steps[i].borrowed ? 0 : bytes_of(p->steps[i].own);
    for (uint32_t i = 0; i < n_watched(p); i++)
        n += bytes_of(watched_at((struct program *)p, i)->array);
    return n;
}
