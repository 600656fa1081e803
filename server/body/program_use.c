/* Whether a program may read and write its arrays: checked before each slice, and before its
 * results are published. */
#include "server/body/program_body.h"

#include "server/store/auth.h"
#include "server/store/session.h"

static struct array_scope scope_of(const struct program_body *b)
{
    return (struct array_scope){b->shares, b->principal, b->session->handles};
}

/* If the principal's own array was deleted, writing it harms nobody. */
static enum err_code may_write(const struct program_body *b, uint32_t target, struct err *e)
{
    const struct body_target *t = &b->targets[target];
    const struct array_scope scope = scope_of(b);
    _cleanup_handle_ struct handle h = {0};
    struct array *a;
    const char *name = program_target(b->program, target, &a);
    enum err_code code = share_get(&scope, t->id, &h, e);
    if (code == ERR_NOT_FOUND && !t->shared) {
        *e = (struct err)ERR_INIT;
        code = ERR_OK;
    } else if (code == ERR_OK) {
        code = handle_writable(&h, e);
        if (code == ERR_OK && !array_same_buffer(h.array, a))
            code = err_set(e, ERR_CONFLICT, "\"%s\" was resized in the meantime", name);
    }
    return code == ERR_OK ? lease_check(&b->claim, a, LEASE_WRITE, e) : code;
}

void program_target_now(const struct program_body *b, uint32_t target, struct handle *ret)
{
    const struct array_scope scope = scope_of(b);
    struct err e = ERR_INIT;
    *ret = (struct handle){0};
    if (share_get(&scope, b->targets[target].id, ret, &e) != ERR_OK)
        *ret = (struct handle){0};
}

static enum err_code may_read(const struct program_body *b, const struct body_read *r,
                              struct err *e)
{
    const struct array_scope scope = scope_of(b);
    return share_again(&scope, r->id, program_input(b->program, r->input), false, e);
}

bool program_has_lost(const struct program_body *b)
{
    const struct array_scope scope = scope_of(b);
    struct array *a;
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < program_targets(b->program); i++) {
        const struct body_target *t = &b->targets[i];
        program_target(b->program, i, &a);
        if (t->shared && share_again(&scope, t->id, a, false, &e) != ERR_OK)
            return true;
    }
    for (uint32_t i = 0; i < b->n_reads; i++)
        if (may_read(b, &b->reads[i], &e) != ERR_OK)
            return true;
    return false;
}

enum err_code program_may_use(const struct program_body *b, struct err *e)
{
    struct session *s;
    enum err_code code = session_get(b->principal->sessions, b->session->id, true, &s, e);
    if (code != ERR_OK)
        return code;
    session_unref(s);
    for (uint32_t i = 0; i < program_targets(b->program) && code == ERR_OK; i++)
        code = may_write(b, i, e);
    for (uint32_t i = 0; i < b->n_reads && code == ERR_OK; i++)
        code = may_read(b, &b->reads[i], e);
    for (uint32_t i = 0; i < program_inputs(b->program) && code == ERR_OK; i++) {
        const struct array *a = program_input(b->program, i);
        code = a ? lease_check(&b->claim, a, LEASE_READ, e) : ERR_OK;
    }
    return code;
}
