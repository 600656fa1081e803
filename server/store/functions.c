/* A hash table and a list in the order of definition, under one lock. The calls between functions
 * are followed from definition to definition; the nodes carry the marks for this (`visit`, `from`,
 * `pending`), so it needs no memory and a chain of calls of any length needs no stack. */
#include "server/store/functions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "compute/base/lock.h"
#include "compute/base/strb.h"
#include "compute/base/table.h"

#define CIRCLE_SAID 6 /* functions of a cycle that the error names */

struct node {
    struct definition *d;
    struct node *prev, *next;
    UT_hash_handle hh;
    /* for following calls: */
    uint64_t visit;
    const struct node *from;
    struct node *pending;
};

struct functions {
    uint32_t max;
    _Atomic uint32_t n; /* read without the lock: most principals have none */
    pthread_mutex_t lock;
    struct node *by_name, *list;
    uint64_t next_seq, visits;
    struct observer_of observer;
};

struct functions *functions_new(uint32_t max)
{
    struct functions *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->max = max;
    t->next_seq = 1;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void functions_observe(struct functions *t, const struct observer_of *o)
{
    t->observer = *o;
}

/* --- with the lock held --- */

static void tell(const struct functions *t, const struct definition *d, bool gone)
{
    lock_held(&t->lock);
    const struct observer_of *o = &t->observer;
    if (o->to)
        o->to->function(o->to->user, o->principal, d, gone);
}

static struct node *find(struct functions *t, const char *name)
{
    lock_held(&t->lock);
    struct node *n;
    HASH_FIND_STR(t->by_name, name, n);
    return n;
}

static void take_out(struct functions *t, struct node *n)
{
    lock_held(&t->lock);
    HASH_DEL(t->by_name, n);
    DL_DELETE(t->list, n);
    atomic_fetch_sub(&t->n, 1);
    tell(t, n->d, true);
}

/* Functions reached so far, each once, in a queue. */
struct call_search {
    struct functions *t;
    struct node *first, *last;
    size_t n;
};

static void reach(struct call_search *w, const char *name, const struct node *from)
{
    lock_held(&w->t->lock);
    struct node *n = find(w->t, name);
    if (!n || n->visit == w->t->visits)
        return;
    n->visit = w->t->visits;
    n->from = from;
    n->pending = NULL;
    *(w->last ? &w->last->pending : &w->first) = n;
    w->last = n;
    w->n++;
}

static struct call_search call_search_begin(struct functions *t)
{
    lock_held(&t->lock);
    t->visits++;
    return (struct call_search){.t = t};
}

static const char *name_of(const struct node *n)
{
    return n->d->function->name;
}

/* `at`, reached from d's own calls, calls d: an error at the call that begins the cycle. */
static enum err_code circle(const struct definition *d, const struct node *at, struct err *e)
{
    _cleanup_strb_ struct strb text = {0};
    const struct function *f = d->function;
    uint32_t call = 0;
    strb_addf(&text, "'%s' would call itself: it is called by '%s'", f->name, name_of(at));
    for (int n = 0; at->from; at = at->from)
        if (n++ < CIRCLE_SAID)
            strb_addf(&text, n < CIRCLE_SAID ? ", that by '%s'" : ", and so on", name_of(at->from));
    while (strcmp(f->calls[call].name, name_of(at)) != 0)
        call++;
    return text.failed ? err_oom(e)
                       : expr_err(f->body, f->calls[call].node, e, ERR_RECURSION, "%s", text.data);
}

static enum err_code check_calls(struct functions *t, const struct definition *d, struct err *e)
{
    lock_held(&t->lock);
    const struct function *f = d->function;
    struct call_search w = call_search_begin(t);
    for (uint32_t i = 0; i < f->n_calls; i++) {
        if (!strcmp(f->calls[i].name, f->name))
            return expr_err(f->body, f->calls[i].node, e, ERR_RECURSION,
                            "'%s' would call itself: recursion is not supported", f->name);
        if (!find(t, f->calls[i].name))
            return call_unknown(f->body, f->calls[i].node, e);
        reach(&w, f->calls[i].name, NULL);
    }
    for (uint32_t i = 0; f->n_calls && i < f->body->n_nodes; i++) {
        uint32_t number[CALL_MAX_PARAMS];
        const struct expr_node *n = &f->body->nodes[i];
        const struct node *to = n->kind == EXPR_CALL ? find(t, n->name) : NULL;
        if (!to)
            continue;
        const struct function *g = to->d->function;
        TRY(call_match(f->body, i, g->signature, g->n_params, number, e));
    }
    for (const struct node *n = w.first; n; n = n->pending) {
        const struct function *g = n->d->function;
        for (uint32_t i = 0; i < g->n_calls; i++) {
            if (!strcmp(g->calls[i].name, f->name))
                return circle(d, n, e);
            reach(&w, g->calls[i].name, n);
        }
    }
    return ERR_OK;
}

/* --- the module's functions --- */

void functions_clear(struct functions *t)
{
    for (;;) {
        pthread_mutex_lock(&t->lock);
        struct node *n = t->list;
        if (n)
            take_out(t, n);
        pthread_mutex_unlock(&t->lock);
        if (!n)
            return;
        function_unref(n->d->function);
        mem_free(n);
    }
}

void functions_free(struct functions *t)
{
    if (!t)
        return;
    functions_clear(t);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

static enum err_code define(struct functions *t, struct definition *d, struct node *fresh,
                            bool replace, struct node **ret_old, struct err *e)
{
    lock_held(&t->lock);
    struct node *old = find(t, d->function->name);
    if (old && !replace)
        return err_field(e, ERR_CONFLICT, "/name", "there is already a function '%s'",
                         d->function->name);
    TRY(check_calls(t, d, e));
    if (!old && atomic_load(&t->n) >= t->max)
        return err_set(e, ERR_QUOTA, "there are already %u functions, the most allowed", t->max);
    TRY(observer_check_space(t->observer.to, t->observer.principal,
                             OBSERVER_RECORD + 2 * d->text_len, e));
    fresh->d = d;
    if (old) { /* its position in the list stays; the table's key is the new one's */
        d->seq = old->d->seq;
        HASH_DEL(t->by_name, old);
    }
    HASH_ADD_KEYPTR(hh, t->by_name, d->function->name, strlen(d->function->name), fresh);
    if (!fresh->hh.tbl) {
        /* there is room for the old one, which was just removed */
        if (old)
            HASH_ADD_KEYPTR(hh, t->by_name, name_of(old), strlen(name_of(old)), old);
        return err_oom(e);
    }
    if (old) {
        DL_REPLACE_ELEM(t->list, old, fresh);
    } else {
        d->seq = t->next_seq++;
        DL_APPEND(t->list, fresh);
        atomic_fetch_add(&t->n, 1);
    }
    tell(t, d, false);
    *ret_old = old;
    return ERR_OK;
}

enum err_code functions_define(struct functions *t, struct definition *take_d, bool replace,
                               bool *ret_replaced, struct err *e)
{
    struct node *old = NULL, *fresh = mem_calloc(1, sizeof *fresh);
    if (!fresh)
        return err_oom(e);
    pthread_mutex_lock(&t->lock);
    enum err_code code = define(t, take_d, fresh, replace, &old, e);
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK) {
        mem_free(fresh);
        return code;
    }
    *ret_replaced = old;
    if (old)
        function_unref(old->d->function);
    mem_free(old);
    return ERR_OK;
}

enum err_code functions_restore(struct functions *t, struct definition *take_d, struct err *e)
{
    struct node *fresh = mem_calloc(1, sizeof *fresh);
    if (!fresh)
        return err_oom(e);
    enum err_code code = ERR_OK;
    const char *name = take_d->function->name;
    fresh->d = take_d;
    pthread_mutex_lock(&t->lock);
    if (find(t, name))
        code = err_set(e, ERR_CONFLICT, "there is already a function '%s'", name);
    if (take_d->seq < t->next_seq)
        take_d->seq = t->next_seq;
    if (code == ERR_OK) {
        HASH_ADD_KEYPTR(hh, t->by_name, name, strlen(name), fresh);
        code = fresh->hh.tbl ? ERR_OK : err_oom(e);
    }
    if (code == ERR_OK) {
        t->next_seq = take_d->seq + 1;
        DL_APPEND(t->list, fresh);
        atomic_fetch_add(&t->n, 1);
        tell(t, take_d, false);
    }
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        mem_free(fresh);
    return code;
}

static enum err_code no_function(const char *name, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no function '%.80s'", name);
}

enum err_code functions_delete(struct functions *t, const char *name, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct node *n = find(t, name);
    if (n)
        take_out(t, n);
    pthread_mutex_unlock(&t->lock);
    if (!n)
        return no_function(name, e);
    function_unref(n->d->function);
    mem_free(n);
    return ERR_OK;
}

enum err_code functions_get(struct functions *t, const char *name, struct definition **ret,
                            struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct node *n = find(t, name);
    if (n) {
        function_ref(n->d->function);
        *ret = n->d;
    }
    pthread_mutex_unlock(&t->lock);
    return n ? ERR_OK : no_function(name, e);
}

size_t functions_list(struct functions *t, uint64_t after, size_t limit, size_t most_bytes,
                      struct definition **ret, bool *ret_more)
{
    size_t n = 0, bytes = 0;
    bool more = false;
    struct node *x;
    pthread_mutex_lock(&t->lock);
    DL_FOREACH(t->list, x)
    {
        if (x->d->seq <= after)
            continue;
        bytes += x->d->text_len;
        if (n == limit || (n && bytes > most_bytes)) {
            more = true;
            break;
        }
        function_ref(x->d->function);
        ret[n++] = x->d;
    }
    pthread_mutex_unlock(&t->lock);
    *ret_more = more;
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct function *const *)a)->name, (*(struct function *const *)b)->name);
}

enum err_code functions_of(struct functions *t, const struct expr *x, struct function_set *ret,
                           struct err *e)
{
    struct function **items = NULL;
    size_t n = 0;
    *ret = (struct function_set){0};
    if (atomic_load(&t->n) == 0)
        return ERR_OK;
    pthread_mutex_lock(&t->lock);
    struct call_search w = call_search_begin(t);
    for (size_t i = 0; i < x->n_nodes; i++)
        if (x->nodes[i].kind == EXPR_CALL)
            reach(&w, x->nodes[i].name, NULL);
    for (const struct node *f = w.first; f; f = f->pending)
        for (uint32_t i = 0; i < f->d->function->n_calls; i++)
            reach(&w, f->d->function->calls[i].name, f);
    if (w.n)
        items = arena_alloc_array(x->arena, w.n, sizeof *items);
    for (const struct node *f = w.first; items && f; f = f->pending)
        items[n++] = function_ref(f->d->function);
    pthread_mutex_unlock(&t->lock);
    if (n < w.n)
        return err_oom(e);
    if (n)
        qsort(items, n, sizeof *items, by_name);
    *ret = (struct function_set){items, n};
    return ERR_OK;
}

void functions_release(struct function_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        function_unref(set->items[i]);
    set->n = 0;
}
