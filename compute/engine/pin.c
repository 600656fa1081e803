/* Who holds what an array had, and whose quota that is. A download pins the storage that it reads.
 * Where the array is written meanwhile it gets other storage, and the old one is there for its
 * readers' sake alone: it counts for one of them from then on, unless its owner is another. That is
 * not theirs to refuse, for it is the owner's write: a reader may come past a limit by it, and then
 * begins no more downloads of what is others' before it is over. */
#include "compute/engine/engine_int.h"

#include "compute/base/mem.h"

static const struct account *principal(const struct account *a)
{
    struct account *owner = a ? account_owner(a) : NULL;
    return owner ? owner : a;
}

static bool is_owners(const struct storage *st, const struct account *reader)
{
    return principal(st->account) == principal(reader);
}

/* With pins_lock held, which all here is under. */
static bool owner_reads(const struct storage *st)
{
    const struct pin *p = st->pinned_by;
    while (p && !is_owners(st, p->reader))
        p = p->next;
    return p;
}

/* The same: who pays for storage that is no array's any more. */
static void settle(struct storage *st)
{
    if (!st->replaced || !st->pinned_by || owner_reads(st))
        return;
    struct account *payer = st->account, *reader = st->pinned_by->reader;
    account_discharge(payer, st->charged);
    st->charged = 0;
    if (!reader) /* nobody's: the daemon reads it */
        return;
    account_charge_anyway(reader, st->size);
    st->charged = st->size;
    account_ref(reader);
    st->account = reader;
    account_unref(payer);
}

enum err_code storage_pin(struct storage *st, struct pin *p, struct account *reader, struct err *e)
{
    struct engine *g = st->engine;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&g->pins_lock);
    if (reader && !is_owners(st, reader))
        code = account_check(reader, e);
    if (code == ERR_OK) {
        if ((p->reader = reader))
            account_ref(reader);
        p->next = st->pinned_by;
        st->pinned_by = p;
        atomic_fetch_add(&st->pins, 1);
    }
    pthread_mutex_unlock(&g->pins_lock);
    return code;
}

void storage_unpin(struct storage *st, struct pin *p)
{
    struct engine *g = st->engine;
    pthread_mutex_lock(&g->pins_lock);
    struct pin **at = &st->pinned_by;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    atomic_fetch_sub(&st->pins, 1);
    settle(st);
    pthread_mutex_unlock(&g->pins_lock);
    account_unref(p->reader);
}

bool storage_is_held_by_others(struct storage *st)
{
    pthread_mutex_lock(&st->engine->pins_lock);
    bool held = st->pinned_by && !owner_reads(st);
    pthread_mutex_unlock(&st->engine->pins_lock);
    return held;
}

void storage_replaced(struct storage *st, bool replaced)
{
    pthread_mutex_lock(&st->engine->pins_lock);
    st->replaced = replaced;
    settle(st);
    pthread_mutex_unlock(&st->engine->pins_lock);
}
