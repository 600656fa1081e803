/* What is in the memory, as the other files find and add it. All with the lock held. */
#include <string.h>

#include "compute/base/lock.h"
#include "compute/culprit/culprit_int.h"

struct culprit_entry *culprits_find(struct culprits *c, const struct code_key *key)
{
    lock_held(&c->lock);
    for (int i = 0; i < c->m->n; i++)
        if (code_key_same(&c->m->entries[i].key, key))
            return &c->m->entries[i];
    return NULL;
}

void culprits_counted(struct culprits *c)
{
    lock_held(&c->lock);
    int n = 0;
    for (int i = 0; i < c->m->n; i++)
        n += c->m->entries[i].state == CULPRIT_REFUSED;
    atomic_store(&c->n_refused, n);
    atomic_store(&c->n, c->m->n);
    atomic_store(&c->n_strikes, c->m->n_strikes);
}

/* The oldest entry, of those not refused if there are any. */
static struct culprit_entry *least(struct culprits *c)
{
    lock_held(&c->lock);
    struct culprit_entry *found = &c->m->entries[0];
    for (int i = 1; i < c->m->n; i++) {
        struct culprit_entry *e = &c->m->entries[i];
        const bool refused = e->state == CULPRIT_REFUSED;
        if (refused != (found->state == CULPRIT_REFUSED) ? !refused : e->at < found->at)
            found = e;
    }
    return found;
}

void culprits_add(struct culprits *c, const struct culprit_entry *e)
{
    lock_held(&c->lock);
    struct culprit_entry *to = culprits_find(c, &e->key);
    if (!to && c->m->n < CULPRITS_MOST)
        to = &c->m->entries[c->m->n++]; /* whatever was there has been forgotten */
    else if (!to)
        to = least(c)->state == CULPRIT_REFUSED && e->state != CULPRIT_REFUSED ? NULL : least(c);
    if (to)
        *to = *e;
}

void culprits_add_strike(struct culprits *c, const struct culprit_strike *s)
{
    lock_held(&c->lock);
    struct culprits_memory *m = c->m;
    if (m->n_strikes == CULPRITS_MOST)
        memmove(m->strikes, m->strikes + 1, --m->n_strikes * sizeof *m->strikes);
    m->strikes[m->n_strikes] = *s;
    m->n_strikes++;
}
