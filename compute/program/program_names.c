/* The names of a program, each once, with what is known of it at the statement being made, so that
 * no statement searches the others. The program's arena memory. */
#include <string.h>

#include "compute/base/hash.h"
#include "compute/engine/run.h"
#include "compute/program/program_int.h"

/* --- the table --- */

static size_t place_of(const struct program *p, const char *name)
{
    const uint64_t h = hash_bytes(HASH_SEED, name, strlen(name));
    size_t at = (h ^ h >> 32) & (p->cap_names - 1);
    while (p->names[at] && strcmp(p->names[at]->name, name) != 0)
        at = (at + 1) & (p->cap_names - 1);
    return at;
}

static bool grow(struct program *p)
{
    struct name **old = p->names;
    const size_t n = p->cap_names, cap = n ? 2 * n : 64;
    struct name **names = arena_alloc_array(p->arena, cap, sizeof(struct name *));
    if (!names)
        return false;
    p->names = names;
    p->cap_names = cap;
    for (size_t i = 0; i < n; i++)
        if (old[i])
            p->names[place_of(p, old[i]->name)] = old[i];
    return true;
}

struct name *program_find_name(const struct program *p, const char *name)
{
    return p->cap_names ? p->names[place_of(p, name)] : NULL;
}

struct name *program_add_name(struct program *p, const char *name)
{
    struct name *there = program_find_name(p, name);
    if (there || (2 * p->n_names >= p->cap_names && !grow(p)))
        return there;
    struct name *n = arena_alloc(p->arena, sizeof *n);
    if (!n)
        return NULL;
    *n = (struct name){.name = name, .last = STATEMENT_NONE, .next = STATEMENT_NONE};
    p->n_names++;
    return p->names[place_of(p, name)] = n;
}

/* --- what they mean --- */

struct binding program_binding(struct array *a)
{
    return (struct binding){
        .kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view, .grid = a->grid};
}

struct known *program_add_known(struct program *p, struct name *name)
{
    struct known *k = arena_alloc(p->arena, sizeof *k);
    if (!k ||
        arena_grow(p->arena, (void **)&p->known, &p->cap_known, p->n_known, sizeof(struct known *)))
        return NULL;
    k->name = name->name;
    name->known = k;
    return p->known[p->n_known++] = k;
}

enum err_code program_resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct program *p = user;
    struct name *n = program_find_name(p, name);
    const struct target *t = n ? n->target : NULL;
    if (t) {
        *ret = program_binding(t->now);
        if (t->part) {
            ret->view = *t->part;
            ret->grid = NULL;
        }
        return ERR_OK;
    }
    struct known *k = n ? n->known : NULL;
    if (!k) { /* only while the program is made: afterwards all names are known */
        struct binding b = {.kind = BINDING_NONE};
        enum err_code code =
            p->spec.env ? p->spec.env->resolve(p->spec.env->user, name, &b, e) : ERR_OK;
        if (code != ERR_OK || b.kind == BINDING_NONE) {
            *ret = b;
            return code;
        }
        const char *copy = n ? n->name : arena_strndup(p->arena, name, strlen(name));
        n = copy ? program_add_name(p, copy) : NULL;
        k = n ? program_add_known(p, n) : NULL;
        if (!k)
            return err_oom(e);
        k->binding = b;
        if (b.kind == BINDING_ARRAY)
            array_ref(b.array);
        if (b.kind == BINDING_ARRAY && array_device(b.array) != p->stream->device &&
            p->spec.env->called) {
            const char *called = p->spec.env->called(p->spec.env->user, name);
            k->called = arena_strndup(p->arena, called, strlen(called));
        }
    }
    *ret = k->binding;
    return ERR_OK;
}

const char *program_called(void *user, const char *name)
{
    const struct name *n = program_find_name(user, name);
    return n && n->known && n->known->called ? n->known->called : name;
}

/* --- what the statements do with them --- */

/* By node: whether the value depends on it. The argument of a function that does not use it stays
 * in the expression, for instance. */
static bool *needed(struct program *p, const struct expr *x)
{
    bool *ret = arena_alloc_array(p->arena, x->n_nodes, sizeof *ret);
    if (!ret)
        return NULL;
    ret[x->root] = true;
    for (size_t i = x->n_nodes; i-- > 0;)
        for (uint32_t k = 0; ret[i] && k < x->nodes[i].n_args; k++)
            ret[expr_args(x, &x->nodes[i])[k].node] = true;
    return ret;
}

bool program_list_names(struct program *p, const struct expr *x, struct mentions *ret)
{
    size_t cap = 0;
    const bool *need = needed(p, x);
    *ret = (struct mentions){0};
    p->n_lists++;
    for (size_t i = 0; need && i < x->n_nodes; i++) {
        if (!expr_is_name(&x->nodes[i]))
            continue;
        struct name *name = program_add_name(p, x->nodes[i].name);
        if (!name)
            return false;
        if (name->listed != p->n_lists) {
            if (arena_grow(p->arena, (void **)&ret->all, &cap, ret->n, sizeof *ret->all))
                return false;
            ret->all[ret->n++] = (struct mention){.name = name, .def = STATEMENT_NONE};
            name->listed = p->n_lists;
            name->needed = false;
        }
        name->needed |= need[i];
    }
    return need;
}

static bool watch(struct program *p, const struct expr *x)
{
    struct mentions all;
    if (!program_list_names(p, x, &all))
        return false;
    for (uint32_t i = 0; i < all.n; i++)
        all.all[i].name->watched = true;
    return true;
}

bool program_survey(struct program *p)
{
    for (uint32_t i = 0; i < p->spec.n_series; i++)
        if (!watch(p, &p->spec.series[i].expr))
            return false;
    if (p->spec.until && !watch(p, &p->spec.until->expr))
        return false;
    for (uint32_t i = 0; i < p->spec.n_body; i++) {
        struct step *s = &p->steps[i];
        s->assign = &p->spec.body[i];
        s->name = program_add_name(p, s->assign->target);
        if (!s->name || !program_list_names(p, &s->assign->expr, &s->mentions))
            return false;
        s->name->n_assigned++;
        s->name->in_parts |= s->assign->index != NULL;
        for (uint32_t k = 0; k < s->mentions.n; k++) {
            struct name *name = s->mentions.all[k].name;
            name->n_readers++;
            name->reader = i;
            name->needed_by_reader = name->needed;
        }
    }
    for (uint32_t i = p->spec.n_body; i-- > 0;) {
        p->steps[i].again = p->steps[i].name->next;
        p->steps[i].name->next = i;
    }
    return true;
}
