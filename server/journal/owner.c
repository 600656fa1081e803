/* Owners are few: they come and go with their keys. */
#include "server/journal/owner.h"

#include <assert.h>
#include <string.h>

#include "compute/base/mem.h"

static struct owner *find(struct owner *all, const char *name, size_t n)
{
    struct owner *o;
    HASH_FIND(hh, all, name, n, o);
    return o;
}

bool owner_enter(struct owner **all, const struct record_item *x, struct owner **ret)
{
    const char *end = memchr(x->key, '/', x->key_len);
    const size_t n = end ? (size_t)(end - x->key) : 0;
    struct owner *o = end ? find(*all, x->key, n) : NULL;
    if (end && !o) {
        o = mem_calloc(1, sizeof *o);
        if (!o)
            return false;
        memcpy(o->name, x->key, n);
        HASH_ADD(hh, *all, name, n, o);
        if (!o->hh.tbl) {
            mem_free(o);
            return false;
        }
    }
    if (o)
        o->keys++;
    *ret = o;
    return true;
}

void owner_leave(struct owner **all, struct owner *o)
{
    if (!o || --o->keys > 0)
        return;
    assert(o->live == 0);
    HASH_DEL(*all, o);
    mem_free(o);
}

const struct owner *owner_find(struct owner *all, const char *name)
{
    return find(all, name, strlen(name));
}
