/* An id does not say whose it is, so all principals are looked through: they are few.
 *
 * The arrays of a session are noted before it is deleted, since they cannot be found afterwards. It
 * gets no other ones meanwhile.
 *
 * Exports are ended by the number of their memory, once no handle and no reference of ours is left:
 * as long as anybody else had the array, it would be copied to memory that its former holder has
 * not mapped. */
#include "server/admin/ends.h"

#include "compute/base/mem.h"
#include "server/exports/export.h"
#include "server/jobs/jobs.h"
#include "server/store/lease.h"
#include "server/store/share.h"

static struct principal *next_open(struct server *s, const struct principal *p)
{
    struct principal *next = auth_next(s->auth, p ? p->number : 0);
    while (next && !atomic_load(&next->open))
        next = auth_next(s->auth, next->number);
    return next;
}

static void end_claims(struct server *s, uint64_t buffer)
{
    lease_end_all(s->leases, buffer);
    if (s->exports)
        exports_revoke(s->exports, buffer, NULL, true);
}

/* Jobs no longer write what is gone, and shares of it are void. */
static void settle(struct server *s)
{
    shares_sweep(s->shares);
    jobs_settle(s->jobs);
}

enum err_code end_array(struct server *s, const char *id, const char **ret_owner, struct err *e)
{
    struct handle h = {0};
    struct principal *p = next_open(s, NULL);
    while (p && handle_end(p->handles, id, &h, e) != ERR_OK)
        p = next_open(s, p);
    if (!p)
        return err_set(e, ERR_NOT_FOUND, "nobody has an array '%.80s'", id);
    const uint64_t buffer = array_buffer_id(h.array);
    handle_clear(&h);
    end_claims(s, buffer);
    settle(s);
    *ret_owner = p->name;
    return ERR_OK;
}

/* The numbers of the memories of a session's arrays. */
struct memories {
    uint64_t *buffers;
    size_t n, cap;
};

static enum err_code collect(struct session *s, struct memories *m, struct err *e)
{
    struct handle some[64];
    uint64_t after = LIST_FROM_TOP;
    bool more = true;
    while (more) {
        const size_t n = handle_list(s->handles, after, 64, some, &more);
        if (m->n + n > m->cap) {
            const size_t cap = 2 * m->cap + 64;
            uint64_t *bigger = mem_reallocarray(m->buffers, cap, sizeof *bigger);
            if (bigger) {
                m->buffers = bigger;
                m->cap = cap;
            }
        }
        const bool room = m->n + n <= m->cap;
        for (size_t i = 0; i < n; i++) {
            after = some[i].seq;
            if (room)
                m->buffers[m->n++] = array_buffer_id(some[i].array);
            handle_clear(&some[i]);
        }
        if (!room)
            return err_oom(e);
    }
    return ERR_OK;
}

enum err_code end_session(struct server *s, const char *id, const char **ret_owner, struct err *e)
{
    _cleanup_session_ struct session *found = NULL;
    struct memories m = {0};
    struct principal *p = id_is('s', id) ? next_open(s, NULL) : NULL; /* "default" is everybody's */
    while (p && session_get(p->sessions, id, false, &found, e) != ERR_OK)
        p = next_open(s, p);
    if (!p)
        return err_set(e, ERR_NOT_FOUND, "nobody has a session '%.80s'", id);
    handle_space_seal(found->handles, true);
    enum err_code code = collect(found, &m, e);
    if (code == ERR_OK)
        code = session_delete(p->sessions, id, NULL, e);
    if (code != ERR_OK)
        handle_space_seal(found->handles, false);
    for (size_t i = 0; code == ERR_OK && i < m.n; i++)
        end_claims(s, m.buffers[i]);
    mem_free(m.buffers);
    if (code != ERR_OK)
        return code;
    settle(s);
    *ret_owner = p->name;
    return ERR_OK;
}

enum err_code end_principal(struct server *s, const struct principal *by, const char *name,
                            struct err *e)
{
    struct principal *p = auth_find(s->auth, name);
    if (!p)
        return err_set(e, ERR_NOT_FOUND, "there is no principal '%.80s'", name);
    if (p == by)
        return err_set(e, ERR_CONFLICT, "'%s' makes this request: no principal ends itself", name);
    TRY(auth_end(s->auth, p, e));
    leases_sweep(s->leases);
    settle(s);
    if (s->exports)
        (void)exports_sweep(s->exports);
    return ERR_OK;
}
