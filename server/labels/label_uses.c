/* A table of counts by id, filled from the texts of labels. */
#include "server/labels/label_uses.h"

#include <string.h>

#include "compute/base/table.h"
#include "server/server.h"

struct label_use {
    char id[ID_SIZE];
    size_t arrays;
    UT_hash_handle hh;
};

/* Copies the id of the coordinate after *at (NULL: of the first); false after the last one. In
 * strings of JSON a quote has a backslash before it, so what is looked for is an object's member.
 */
static bool next_id(const struct labels *l, const char **at, char ret[ID_SIZE])
{
    static const char member[] = "{\"array\":\"";
    if (!l || !l->of[LABEL_COORDS].n)
        return false;
    const struct label_text *t = &l->of[LABEL_COORDS];
    const char *end = t->text + t->n, *x = *at ? *at : t->text;
    do {
        x = memmem(x, (size_t)(end - x), member, strlen(member));
        if (!x)
            return false;
        x += strlen(member);
    } while (end - x < ID_SIZE || x[ID_SIZE - 1] != '"'); /* no id */
    memcpy(ret, x, ID_SIZE - 1);
    ret[ID_SIZE - 1] = '\0';
    *at = x;
    return true;
}

static struct label_use *find(const struct label_uses *u, const char *id)
{
    struct label_use *x;
    HASH_FIND(hh, u->by_id, id, ID_SIZE - 1, x);
    return x;
}

static void forget(struct label_uses *u, struct label_use *x)
{
    HASH_DELETE(hh, u->by_id, x);
    mem_free(x);
}

static bool reserve(struct label_uses *u, const char *id)
{
    if (find(u, id))
        return true;
    struct label_use *x = mem_calloc(1, sizeof *x);
    if (!x)
        return false;
    memcpy(x->id, id, ID_SIZE);
    HASH_ADD(hh, u->by_id, id, ID_SIZE - 1, x);
    if (x->hh.tbl)
        return true;
    mem_free(x);
    return false;
}

void label_uses_free(struct label_uses *u)
{
    struct label_use *x, *next;
    HASH_ITER (hh, u->by_id, x, next)
        forget(u, x);
}

enum err_code label_uses_reserve(struct label_uses *u, const struct labels *l, struct err *e)
{
    char id[ID_SIZE];
    for (const char *at = NULL; next_id(l, &at, id);)
        if (!reserve(u, id)) {
            label_uses_cancel(u, l);
            return err_oom(e);
        }
    return ERR_OK;
}

void label_uses_cancel(struct label_uses *u, const struct labels *l)
{
    char id[ID_SIZE];
    for (const char *at = NULL; next_id(l, &at, id);) {
        struct label_use *x = find(u, id);
        if (x && !x->arrays)
            forget(u, x);
    }
}

void label_uses_add(struct label_uses *u, const struct labels *l)
{
    char id[ID_SIZE];
    for (const char *at = NULL; next_id(l, &at, id);)
        find(u, id)->arrays++;
}

bool label_uses_has(const struct label_uses *u, const char *id)
{
    return find(u, id);
}

bool label_uses_beside(const struct label_uses *u, const char *id, const struct labels *own)
{
    const struct label_use *x = find(u, id);
    size_t n = x ? x->arrays : 0;
    char its[ID_SIZE];
    for (const char *at = NULL; next_id(own, &at, its);)
        n -= !strcmp(its, id);
    return n > 0;
}

void label_uses_lone(const struct label_uses *u, const struct labels *l,
                     void (*lone)(void *user, const char *id), void *user)
{
    char id[ID_SIZE];
    for (const char *at = NULL; next_id(l, &at, id);)
        if (find(u, id)->arrays == 1)
            lone(user, id);
}

void label_uses_drop(struct label_uses *u, const struct labels *l,
                     void (*unused)(void *user, const char *id), void *user)
{
    char id[ID_SIZE];
    for (const char *at = NULL; next_id(l, &at, id);) {
        struct label_use *x = find(u, id);
        if (--x->arrays)
            continue;
        forget(u, x);
        unused(user, id);
    }
}
