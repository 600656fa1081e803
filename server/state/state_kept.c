/* The table of the last snapshot's files and their contents. */
#include <string.h>

#include "compute/base/table.h"
#include "server/state/state_int.h"

struct state_kept {
    uint64_t memory;
    struct state_kept_file file;
    UT_hash_handle hh;
};

const struct state_kept_file *state_kept_find(struct state_kept *const *t, uint64_t memory)
{
    struct state_kept *x;
    HASH_FIND(hh, *t, &memory, sizeof memory, x);
    return x ? &x->file : NULL;
}

void state_kept_add(struct state_kept **t, uint64_t memory, const struct state_kept_file *file)
{
    struct state_kept *x = state_kept_find(t, memory) ? NULL : mem_calloc(1, sizeof *x);
    if (!x)
        return;
    x->memory = memory;
    x->file = *file;
    HASH_ADD(hh, *t, memory, sizeof memory, x);
    if (!x->hh.tbl)
        mem_free(x);
}

enum err_code state_kept_again(struct state_writer *w, const struct state_kept_file *file,
                               struct state_kept_file *ret, bool *ret_there, bool *ret_linked,
                               struct err *e)
{
    const bool apart = strcmp(file->name, "data") != 0;
    *ret = *file;
    *ret_there = *ret_linked = apart && state_write_again(w, file->name);
    if (*ret_there)
        return ERR_OK;
    TRY(state_write_open(w, apart, ret->name, &ret->at, e));
    return state_write_copy(w, file->name, file->at, file->nbytes, file->digest, ret_there, e);
}

void state_kept_free(struct state_kept **t)
{
    struct state_kept *x, *tmp;
    HASH_ITER (hh, *t, x, tmp) {
        HASH_DEL(*t, x);
        mem_free(x);
    }
}
