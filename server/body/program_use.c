/* Whether a program may read and write its arrays: asked before each slice, and before what it made
 * becomes theirs. */
#include "server/api/handlers.h"
#include "server/jobs/jobs.h"

static struct array_scope scope_of(const struct job_spec *spec)
{
    return (struct array_scope){spec->shares, spec->principal, spec->session->handles};
}

/* An array of its own that was deleted has nobody to mind. */
static enum err_code may_write(const struct job_spec *spec, uint32_t target, struct err *e)
{
    const struct job_target *t = &spec->targets[target];
    const struct array_scope scope = scope_of(spec);
    _cleanup_handle_ struct handle h = {0};
    struct array *a;
    const char *name = program_target(spec->program, target, &a);
    enum err_code code = share_get(&scope, t->id, &h, e);
    if (code == ERR_NOT_FOUND && !t->shared) {
        *e = (struct err)ERR_INIT;
        code = ERR_OK;
    } else if (code == ERR_OK) {
        code = handler_writable(&h, e);
        if (code == ERR_OK && !array_same_buffer(h.array, a))
            code = err_set(e, ERR_CONFLICT, "\"%s\" was resized meanwhile", name);
    }
    return code == ERR_OK ? lease_check(&spec->claim, a, LEASE_WRITE, e) : code;
}

static enum err_code may_read(const struct job_spec *spec, const struct job_read *r, struct err *e)
{
    const struct array_scope scope = scope_of(spec);
    return share_again(&scope, r->id, program_input(spec->program, r->input), false, e);
}

bool job_has_lost(const struct job_spec *spec)
{
    const struct array_scope scope = scope_of(spec);
    struct array *a;
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < program_targets(spec->program); i++) {
        const struct job_target *t = &spec->targets[i];
        program_target(spec->program, i, &a);
        if (t->shared && share_again(&scope, t->id, a, false, &e) != ERR_OK)
            return true;
    }
    for (uint32_t i = 0; i < spec->n_reads; i++)
        if (may_read(spec, &spec->reads[i], &e) != ERR_OK)
            return true;
    return false;
}

enum err_code job_may_use(const struct job_spec *spec, struct err *e)
{
    struct session *s;
    enum err_code code = session_get(spec->principal->sessions, spec->session->id, true, &s, e);
    if (code != ERR_OK)
        return code;
    session_unref(s);
    for (uint32_t i = 0; i < program_targets(spec->program) && code == ERR_OK; i++)
        code = may_write(spec, i, e);
    for (uint32_t i = 0; i < spec->n_reads && code == ERR_OK; i++)
        code = may_read(spec, &spec->reads[i], e);
    for (uint32_t i = 0; i < program_inputs(spec->program) && code == ERR_OK; i++) {
        const struct array *a = program_input(spec->program, i);
        code = a ? lease_check(&spec->claim, a, LEASE_READ, e) : ERR_OK;
    }
    return code;
}
