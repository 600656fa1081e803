/* A table of entries by their keys. The key has everything that a plan depends on: the expression
 * and the target (plan_key_expr, the caller) and the current meaning of each name (plan_key_names),
 * so that one lookup decides. Names are resolved before the lookup, outside the lock: the callback
 * is the server's and takes locks of its own. The checker then gets the same meanings, so that a
 * plan matches its key. An entry is added only when it is complete, so that no request waits for
 * another's compilation; if two miss at once, the first to finish adds its entry.
 *
 * Values of literals and bound scalars are part of the key, so `u + 0.1*v` after `u + 0.2*v` is a
 * miss. Measured with arrays of 16 elements, in time of the requesting thread: 2 µs become 7 on the
 * CPU backend (stencils with a sum: 7 and 21), 14 become 28 on a device (with three kernels 14 and
 * 67: code generation and its hash; nothing is compiled, kernels take values as parameters). Plans
 * by structure alone would save that, but values decide too much on the way: whether a literal fits
 * its dtype, what is folded, x**2 and the like, which equal constants are merged; each stage would
 * have to know which values it may use. A client that sweeps a value in a tight loop can keep it in
 * a 0-d array, which is an operand. */
#include "compute/engine/plan_cache.h"
#include "compute/memory/storage.h"

#include <pthread.h>
#include <string.h>

#include "compute/base/hash.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/ir/ir_whole.h"

/* Some 2,000 nodes. The plan of a longer expression takes much of the cache's memory. */
#define LONGEST_KEY 65536u

/* The meaning of a name. */
struct plan_name {
    const char *name;
    struct binding binding;
};

struct plan_cache {
    pthread_mutex_t lock;
    struct plan_cache_config config;
    size_t bytes;
    struct plan_entry *table;
    struct plan_entry *newest, *oldest;
    uint64_t hits, misses;
};

struct plan_cache *plan_cache_new(const struct plan_cache_config *config)
{
    struct plan_cache *c = mem_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->config = *config;
    pthread_mutex_init(&c->lock, NULL); /* cannot fail here */
    return c;
}

static void unlink_age(struct plan_cache *c, struct plan_entry *en)
{
    *(en->newer ? &en->newer->older : &c->newest) = en->older;
    *(en->older ? &en->older->newer : &c->oldest) = en->newer;
    en->newer = en->older = NULL;
}

static void link_newest(struct plan_cache *c, struct plan_entry *en)
{
    en->older = c->newest;
    if (c->newest)
        c->newest->newer = en;
    else
        c->oldest = en;
    c->newest = en;
}

/* Entries in the cache count for no request (meter.h); with the lock held. */
static void keep(struct plan_entry *en)
{
    lock_held(&en->cache->lock);
    if (en->kept++)
        return;
    arena_exempt(en->arena, true);
    if (en->staged_arena)
        arena_exempt(en->staged_arena, true);
}

static void unkeep(struct plan_entry *en)
{
    if (--en->kept)
        return;
    arena_exempt(en->arena, false);
    if (en->staged_arena)
        arena_exempt(en->staged_arena, false);
}

/* Takes an entry out; the caller gets the cache's reference. */
static void take_out(struct plan_cache *c, struct plan_entry *en)
{
    HASH_DEL(c->table, en);
    unlink_age(c, en);
    en->entered = false;
    unkeep(en);
    c->bytes -= en->bytes;
}

static struct plan_entry *take_one(struct plan_cache *c, struct plan_entry *en,
                                   struct plan_entry *before)
{
    lock_held(&c->lock);
    take_out(c, en);
    en->chain = before;
    return en;
}

/* Takes out the least recently used until both limits hold; returns them, linked by `chain`. */
static struct plan_entry *take_surplus(struct plan_cache *c)
{
    struct plan_entry *out = NULL;
    while (c->oldest && (HASH_COUNT(c->table) > c->config.capacity || c->bytes > c->config.bytes))
        out = take_one(c, c->oldest, out);
    return out;
}

static void drop(struct plan_entry *en)
{
    for (struct plan_entry *next; en; en = next) {
        next = en->chain;
        plan_entry_unref(en);
    }
}

void plan_cache_free(struct plan_cache *c)
{
    if (!c)
        return;
    while (c->oldest) {
        struct plan_entry *en = c->oldest;
        take_out(c, en);
        plan_entry_unref(en);
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

void plan_cache_counts(struct plan_cache *c, struct plan_counts *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = (struct plan_counts){c->hits, c->misses, HASH_COUNT(c->table), c->bytes};
    pthread_mutex_unlock(&c->lock);
}

struct plan_entry *plan_entry_ref(struct plan_entry *en)
{
    atomic_fetch_add_explicit(&en->refs, 1, memory_order_relaxed);
    return en;
}

void plan_entry_unref(struct plan_entry *en)
{
    if (!en || atomic_fetch_sub(&en->refs, 1) != 1)
        return;
    const struct plan_cache_config *config = &en->cache->config;
    if (config->release && en->plan)
        config->release(config->user, en->plan);
    if (config->release && en->staged)
        config->release(config->user, en->staged);
    arena_free(en->staged_arena);
    arena_free(en->arena);
}

static bool plan_has(const struct ir_plan *p, const struct ir_kernel *k)
{
    for (uint32_t i = 0; p && i < p->n_kernels; i++)
        if (p->kernels[i] == k)
            return true;
    return false;
}

size_t plan_entry_keep(struct plan_entry *en)
{
    pthread_mutex_lock(&en->cache->lock);
    bool first = en->kept == en->entered;
    keep(en);
    if (first)
        en->kept_bytes = en->bytes;
    size_t bytes = first ? en->kept_bytes : 0;
    pthread_mutex_unlock(&en->cache->lock);
    return bytes;
}

size_t plan_entry_unkeep(struct plan_entry *en)
{
    pthread_mutex_lock(&en->cache->lock);
    unkeep(en);
    size_t bytes = en->kept == en->entered ? en->kept_bytes : 0;
    pthread_mutex_unlock(&en->cache->lock);
    return bytes;
}

bool plan_entry_has(struct plan_entry *en, const struct ir_kernel *k)
{
    pthread_mutex_lock(&en->cache->lock);
    bool has = plan_has(en->plan, k) || plan_has(en->staged, k);
    pthread_mutex_unlock(&en->cache->lock);
    return has;
}

/* What the backend keeps for the plan's kernels and for what takes their place. */
static size_t backend_bytes(const struct plan_cache *c, const struct ir_plan *p)
{
    size_t n = p->n_kernels;
    for (uint32_t i = 0; i < p->n_kernels; i++)
        for (const struct ir_whole *w = p->kernels[i]->whole; w; w = w->next)
            n++;
    return n * c->config.kernel_bytes;
}

static size_t plan_bytes(const struct plan_cache *c, const struct arena *arena,
                         const struct ir_plan *p)
{
    return arena_bytes(arena) + (p ? backend_bytes(c, p) : 0);
}

bool plan_entry_planned(struct plan_entry *en)
{
    en->bytes = plan_bytes(en->cache, en->arena, en->plan);
    return arena_count(en->arena, backend_bytes(en->cache, en->plan));
}

struct ir_plan *plan_entry_staged(struct plan_entry *en)
{
    pthread_mutex_lock(&en->cache->lock);
    struct ir_plan *p = en->staged;
    pthread_mutex_unlock(&en->cache->lock);
    return p;
}

struct ir_plan *plan_entry_stage(struct plan_entry *en, struct arena *take_arena, struct ir_plan *p)
{
    struct plan_cache *c = en->cache;
    struct plan_entry *surplus = NULL;
    pthread_mutex_lock(&c->lock);
    if (!en->staged) {
        size_t bytes = plan_bytes(c, take_arena, p);
        en->staged = p;
        en->staged_arena = take_arena;
        en->bytes += bytes;
        arena_exempt(take_arena, en->kept > 0);
        take_arena = NULL;
        if (en->entered) {
            c->bytes += bytes;
            surplus = en->bytes > c->config.bytes ? take_one(c, en, NULL) : take_surplus(c);
        }
    }
    p = en->staged;
    pthread_mutex_unlock(&c->lock);
    arena_free(take_arena);
    drop(surplus);
    return p;
}

struct plan_entry *plan_entry_new(struct plan_cache *c)
{
    struct arena *arena = arena_new(0);
    struct plan_entry *en = arena ? arena_alloc(arena, sizeof *en) : NULL;
    if (!en) {
        arena_free(arena);
        return NULL;
    }
    atomic_init(&en->refs, 1);
    en->arena = arena;
    en->cache = c;
    pthread_mutex_lock(&c->lock);
    c->misses++;
    pthread_mutex_unlock(&c->lock);
    return en;
}

/* --- the request's part of a key --- */

/* Called very often with few bytes: inline. (No terminating NUL: a key is not text.) */
static inline void put(struct strb *key, const void *p, size_t n)
{
    if (key->cap - key->len <= n && !strb_reserve(key, n))
        return;
    memcpy(key->data + key->len, p, n);
    key->len += n;
}

static void put_text(struct strb *key, const char *s)
{
    size_t n = s ? strlen(s) + 1 : 0;
    put(key, &n, sizeof n);
    put(key, s ? s : "", n);
}

static void put_flag(struct strb *key, bool b)
{
    unsigned char byte = b;
    put(key, &byte, 1);
}

static void put_literal(struct strb *key, const struct literal *l)
{
    int kind = l->kind; /* field by field: a struct has padding */
    put(key, &kind, sizeof kind);
    if (l->kind == LIT_BOOL || l->kind == LIT_INT)
        put(key, &l->i, sizeof l->i);
    else
        put(key, &l->re, sizeof l->re);
    if (l->kind == LIT_COMPLEX)
        put(key, &l->im, sizeof l->im);
}

static void put_scalar(struct strb *key, const struct scalar *s)
{
    int dtype = s->dtype;
    put(key, &dtype, sizeof dtype);
    put(key, &s->v, dtype_size(s->dtype));
}

static void put_index(struct strb *key, const struct index_spec *ix)
{
    put(key, &ix->n, sizeof ix->n);
    for (int i = 0; i < ix->n; i++) {
        const struct index_item *it = &ix->items[i];
        int64_t what[5] = {it->kind, it->has_start | it->has_stop << 1 | it->has_step << 2,
                           it->has_start || it->kind == INDEX_INT ? it->start : 0,
                           it->has_stop ? it->stop : 0, it->has_step ? it->step : 0};
        put(key, what, sizeof what);
    }
}

bool plan_key_expr(struct strb *key, const struct expr *x)
{
    size_t begin = key->len;
    uint32_t head[3] = {(uint32_t)x->n_nodes, x->root, (uint32_t)x->n_lets};
    put(key, head, sizeof head);
    for (size_t i = 0; i < x->n_lets; i++) {
        put_text(key, x->lets[i].name);
        put(key, &x->lets[i].node, sizeof x->lets[i].node);
    }
    for (size_t i = 0; i < x->n_nodes && key->len - begin < LONGEST_KEY; i++) {
        const struct expr_node *n = &x->nodes[i];
        uint32_t what[3] = {n->kind, n->n_args, n->n_keywords};
        put(key, what, sizeof what);
        for (uint32_t a = 0; a < n->n_args; a++) {
            const struct expr_link *l = &x->links[n->first_arg + a];
            put(key, &l->node, sizeof l->node);
            if (a >= n->n_args - n->n_keywords)
                put_text(key, l->keyword);
        }
        switch (n->kind) {
        case EXPR_LITERAL:
            put_literal(key, &n->lit);
            break;
        case EXPR_TYPED:
            put_scalar(key, &n->typed);
            break;
        case EXPR_STRING:
            put_flag(key, expr_is_name(n));
            put_text(key, n->name);
            break;
        case EXPR_NAME:
        case EXPR_CALL:
            put_text(key, n->name);
            break;
        case EXPR_GETITEM:
            put_index(key, n->index);
            break;
        case EXPR_NONE:
        case EXPR_LIST:
            break;
        }
    }
    return !key->failed && key->len - begin < LONGEST_KEY;
}

static unsigned hash_of(const char *key, size_t n)
{
    uint64_t h = hash_words(key, n);
    return (unsigned)(h ^ h >> 32);
}

/* --- the part of its names --- */

static struct plan_name *name_of(const struct plan_names *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->names[i].name, name))
            return &l->names[i];
    return NULL;
}

/* A callback for check_expr. */
static enum err_code answer(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct plan_names *l = user;
    const struct plan_name *n = name_of(l, name);
    if (n) {
        *ret = n->binding;
        return ERR_OK;
    }
    l->complete = false;
    return l->inner->resolve(l->inner->user, name, ret, e);
}

enum err_code plan_names_resolve(struct plan_names *l, struct arena *arena, const struct expr *x,
                                 const struct check_env *env, struct err *e)
{
    *l = (struct plan_names){
        .env = {.resolve = env->resolve ? answer : NULL, .user = l, .max_inputs = env->max_inputs},
        .inner = env,
        .complete = true};
    for (size_t i = 0; env->resolve && i < x->n_nodes; i++) {
        const char *name = x->nodes[i].name;
        struct plan_name n = {.name = name};
        if (!expr_is_name(&x->nodes[i]) || name_of(l, name))
            continue;
        if (env->resolve(env->user, name, &n.binding, NULL) != ERR_OK) {
            l->complete = false; /* if the name is used at all, the checker reports the error */
            continue;
        }
        if (arena_grow(arena, (void **)&l->names, &l->cap, l->n, sizeof *l->names) < 0)
            return err_oom(e);
        l->names[l->n++] = n;
    }
    return ERR_OK;
}

/* The index of the first name of the same array. */
static uint32_t first_of(const struct plan_names *l, const struct array *a)
{
    uint32_t i = 0;
    while (l->names[i].binding.kind != BINDING_ARRAY || l->names[i].binding.array != a)
        i++;
    return i;
}

/* The properties of a grid that stencils depend on: widths, faces and spacing. */
static void put_grid(struct strb *key, const struct grid *g)
{
    put_flag(key, g != NULL);
    for (int k = 0; g && k < g->rank; k++) {
        put(key, &g->ghost[k], sizeof g->ghost[k]);
        put(key, &g->spacing[k], sizeof g->spacing[k]);
        for (int side = 0; side < 2; side++) {
            const struct face *f = &g->face[k][side];
            int type = f->type;
            put(key, &type, sizeof type);
            put(key, &f->re, sizeof f->re);
            put(key, &f->im, sizeof f->im);
        }
    }
    put_flag(key, g && g->has_boundary);
    put_flag(key, g && g->whole);
}

void plan_key_geometry(struct strb *key, enum dtype dtype, bool loose_bool, const struct view *v,
                       const struct grid *grid)
{
    int head[2] = {dtype, v->rank};
    put(key, head, sizeof head);
    put_flag(key, loose_bool);
    put(key, v->shape, sizeof *v->shape * (size_t)v->rank);
    put(key, v->strides, sizeof *v->strides * (size_t)v->rank);
    put(key, &v->offset, sizeof v->offset);
    put_grid(key, grid);
}

static void put_array(struct strb *key, const struct plan_names *l, const struct binding *b)
{
    uint32_t same_as = first_of(l, b->array);
    put(key, &same_as, sizeof same_as);
    plan_key_geometry(key, b->dtype,
                      b->dtype == DT_BOOL && atomic_load(&b->array->buffer->loose_bool), &b->view,
                      b->grid);
}

bool plan_key_names(struct strb *key, const struct plan_names *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct binding *b = &l->names[i].binding;
        int kind = b->kind;
        put_text(key, l->names[i].name);
        put(key, &kind, sizeof kind);
        if (kind == BINDING_ARRAY)
            put_array(key, l, b);
        else if (kind == BINDING_LITERAL)
            put_literal(key, &b->lit);
        else if (kind == BINDING_SCALAR)
            put_scalar(key, &b->scalar);
    }
    return l->complete && !key->failed;
}

struct plan_entry *plan_cache_find(struct plan_cache *c, const char *key, size_t key_len)
{
    const unsigned hash = hash_of(key, key_len);
    struct plan_entry *en;
    pthread_mutex_lock(&c->lock);
    HASH_FIND_BYHASHVALUE(hh, c->table, key, key_len, hash, en);
    if (en) {
        plan_entry_ref(en);
        c->hits++;
        if (en != c->newest) {
            unlink_age(c, en);
            link_newest(c, en);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return en;
}

struct array **plan_entry_arrays(const struct plan_entry *en, const struct plan_names *l,
                                 struct arena *arena)
{
    struct array **ret = arena_alloc_array(arena, en->typed.n_inputs + 1, sizeof *ret);
    for (uint32_t i = 0; ret && i < en->typed.n_inputs; i++)
        ret[i] = en->typed.inputs[i].target ? NULL
                 : en->input_names          ? l->names[en->input_names[i]].binding.array
                                            : en->typed.inputs[i].array;
    return ret;
}

/* --- adding --- */

/* Replaces the graph's arrays by their names, by which they are found again. */
static bool name_inputs(struct plan_entry *en, const struct plan_names *l)
{
    struct typed *t = &en->typed;
    uint32_t *at = arena_alloc_array(en->arena, t->n_inputs + 1, sizeof *at);
    for (uint32_t i = 0; at && i < t->n_inputs; i++) {
        if (t->inputs[i].target)
            continue;
        at[i] = first_of(l, t->inputs[i].array);
        const char *name = l->names[at[i]].name; /* the request's, and freed with it */
        t->inputs[i].name = arena_strndup(en->arena, name, strlen(name));
        if (!t->inputs[i].name)
            return false;
    }
    if (!at)
        return false;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        t->inputs[i].array = NULL;
        t->inputs[i].grid = NULL;
    }
    en->input_names = at;
    return true;
}

bool plan_cache_add(struct plan_entry *en, const struct plan_names *l, const char *key,
                    size_t key_len)
{
    struct plan_cache *c = en->cache;
    if (!c->config.capacity)
        return true;
    en->key = arena_dup(en->arena, key, key_len);
    if (!en->key || !name_inputs(en, l))
        return false;
    const unsigned hash = hash_of(key, key_len);
    en->bytes = plan_bytes(c, en->arena, en->plan);
    if (en->bytes > c->config.bytes)
        return true;
    struct plan_entry *surplus = NULL, *there;
    pthread_mutex_lock(&c->lock);
    HASH_FIND_BYHASHVALUE(hh, c->table, key, key_len, hash, there);
    if (!there)
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, c->table, en->key, key_len, hash, en);
    bool entered = !there && en->hh.tbl;
    if (entered) {
        plan_entry_ref(en);
        link_newest(c, en);
        keep(en);
        en->entered = true;
        c->bytes += en->bytes;
        surplus = take_surplus(c);
    }
    pthread_mutex_unlock(&c->lock);
    drop(surplus);
    return there || entered;
}
