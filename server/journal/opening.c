/* A program of another version that finds the log must be able to tell. */
#include "server/journal/opening.h"

#include <string.h>

#include "server/journal/journal.h"

static const char magic[8] = {'a', 'r', 'r', 'a', 'y', 'd', '-', 'J'};

void opening_write(struct opening *o, uint32_t version, uint64_t salt)
{
    struct mark m = {
        .version = version, .version_again = version, .salt = salt, .salt_again = salt};
    memcpy(m.magic, magic, sizeof magic);
    atomic_store(&o->end, 0);
    atomic_store(&o->end_again, 0);
    o->marks[0] = o->marks[1] = m;
}

/* One mark after the other: should the process be killed meanwhile, one of them is whole. */
void opening_needs(struct opening *o, uint32_t version)
{
    for (int i = 0; i < 2; i++) {
        atomic_thread_fence(memory_order_seq_cst);
        o->marks[i].version = o->marks[i].version_again = version;
    }
    atomic_thread_fence(memory_order_seq_cst);
}

static bool is_mark(const struct mark *m)
{
    return memcmp(m->magic, magic, sizeof magic) == 0 && m->version == m->version_again &&
           m->salt == m->salt_again;
}

enum err_code opening_check(const struct area *a, uint64_t *ret_salt, struct err *e)
{
    const struct opening *o = (const struct opening *)a->at;
    const struct mark *m = a->size < sizeof *o     ? NULL
                           : is_mark(&o->marks[0]) ? &o->marks[0]
                           : is_mark(&o->marks[1]) ? &o->marks[1]
                                                   : NULL;
    if (!m)
        return err_set(e, ERR_STATE, "this is no journal");
    if (m->version < JOURNAL_VERSION_PLAIN || m->version > JOURNAL_VERSION)
        return err_set(e, ERR_CONFLICT, "the journal is of version %u, this program knows %d",
                       m->version, JOURNAL_VERSION);
    *ret_salt = m->salt;
    return ERR_OK;
}
