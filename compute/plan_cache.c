/* A chained table over the hash of the key text; equal keys with other meanings of the names lie in
 * one chain. Names are resolved again for every look, outside of the lock: the callback is the
 * server's and takes locks of its own. An entry is put in only when it is complete, so that nobody
 * waits for another's compilation; two who miss at once both compile, and both plans are kept. */
#include "compute/plan_cache.h"

#include <pthread.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/engine_internal.h"

#define LONGEST_KEY 16384u
#define LOOKS       64 /* entries of one key that are tried */

/* What a name meant. */
struct plan_name {
    const char *name;
    struct binding binding; /* array: NULL in a kept one */
    struct array *array;    /* while recording */
    uint32_t same_as;       /* the first name of the same array */
    bool loose;             /* its bools may be any byte */
};

struct plan_cache {
    pthread_mutex_t lock;
    plan_release *release;
    void *user;
    uint32_t capacity, n_buckets, n;
    struct plan_entry **buckets;
    struct plan_entry *newest, *oldest;
    uint64_t hits, misses;
};

struct plan_cache *plan_cache_new(uint32_t capacity, plan_release *release, void *user)
{
    struct plan_cache *c = mem_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->capacity = capacity;
    c->release = release;
    c->user = user;
    for (c->n_buckets = 16; c->n_buckets < capacity && c->n_buckets < 1u << 20;)
        c->n_buckets *= 2;
    c->buckets = mem_calloc(c->n_buckets, sizeof(struct plan_entry *));
    if (!c->buckets || pthread_mutex_init(&c->lock, NULL) != 0) {
        mem_free(c->buckets);
        mem_free(c);
        return NULL;
    }
    return c;
}

static struct plan_entry **bucket(struct plan_cache *c, uint64_t hash)
{
    return &c->buckets[(hash ^ hash >> 32) & (c->n_buckets - 1)];
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

/* Takes an entry out; the cache's reference is the caller's. */
static void take_out(struct plan_cache *c, struct plan_entry *en)
{
    struct plan_entry **at = bucket(c, en->hash);
    while (*at != en)
        at = &(*at)->chain;
    *at = en->chain;
    unlink_age(c, en);
    en->entered = false;
    c->n--;
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
    mem_free(c->buckets);
    mem_free(c);
}

void plan_cache_counts(struct plan_cache *c, struct plan_counts *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = (struct plan_counts){c->hits, c->misses, c->n};
    pthread_mutex_unlock(&c->lock);
}

void plan_entry_lock(struct plan_entry *en)
{
    pthread_mutex_lock(&en->cache->lock);
}

void plan_entry_unlock(struct plan_entry *en)
{
    pthread_mutex_unlock(&en->cache->lock);
}

static struct plan_entry *entry_ref(struct plan_entry *en)
{
    atomic_fetch_add_explicit(&en->refs, 1, memory_order_relaxed);
    return en;
}

void plan_entry_unref(struct plan_entry *en)
{
    if (!en || atomic_fetch_sub(&en->refs, 1) != 1)
        return;
    struct plan_cache *c = en->cache;
    if (c->release && en->plan)
        c->release(c->user, en->plan);
    if (c->release && en->staged)
        c->release(c->user, en->staged);
    arena_free(en->arena);
}

static bool plan_has(const struct ir_plan *p, const struct ir_kernel *k)
{
    for (uint32_t i = 0; p && i < p->n_kernels; i++)
        if (p->kernels[i] == k)
            return true;
    return false;
}

bool plan_entry_has(struct plan_entry *en, const struct ir_kernel *k)
{
    plan_entry_lock(en);
    bool has = plan_has(en->plan, k) || plan_has(en->staged, k);
    plan_entry_unlock(en);
    return has;
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
    return en;
}

/* --- what a request says --- */

static void put(struct strb *key, const void *p, size_t n)
{
    strb_addn(key, p, n);
}

static void put_text(struct strb *key, const char *s)
{
    size_t n = s ? strlen(s) + 1 : 0;
    put(key, &n, sizeof n);
    put(key, s ? s : "", n);
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

/* FNV-1a, eight bytes a step; only chooses the chain. */
static uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = 14695981039346656037u;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 1099511628211u;
        h ^= h >> 29;
    }
    for (; n; n--, p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

/* --- what its names mean --- */

static bool is_loose(const struct binding *b)
{
    return b->kind == BINDING_ARRAY && b->dtype == DT_BOOL &&
           atomic_load(&b->array->buffer->loose_bool);
}

static enum err_code record(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct plan_recorder *r = user;
    enum err_code code = r->inner->resolve(r->inner->user, name, ret, e);
    if (code != ERR_OK)
        return code;
    for (size_t i = 0; i < r->n_names; i++)
        if (!strcmp(r->names[i].name, name))
            return ERR_OK;
    char *copy = arena_strndup(r->arena, name, strlen(name));
    if (!copy ||
        arena_grow(r->arena, (void **)&r->names, &r->cap_names, r->n_names, sizeof *r->names) < 0)
        return err_oom(e);
    struct plan_name *n = &r->names[r->n_names];
    *n = (struct plan_name){.name = copy,
                            .binding = *ret,
                            .array = ret->kind == BINDING_ARRAY ? ret->array : NULL,
                            .same_as = (uint32_t)r->n_names,
                            .loose = is_loose(ret)};
    n->binding.array = NULL;
    for (uint32_t i = 0; n->array && i < r->n_names; i++)
        if (r->names[i].array == n->array) {
            n->same_as = i;
            break;
        }
    r->n_names++;
    return ERR_OK;
}

void plan_record_begin(struct plan_recorder *r, struct arena *arena, const struct check_env *env)
{
    *r = (struct plan_recorder){
        .env = {.resolve = env->resolve ? record : NULL, .user = r, .max_inputs = env->max_inputs},
        .inner = env,
        .arena = arena};
}

static bool same_literal(const struct literal *a, const struct literal *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == LIT_BOOL || a->kind == LIT_INT)
        return a->i == b->i;
    return memcmp(&a->re, &b->re, sizeof a->re) == 0 &&
           (a->kind == LIT_FLOAT || memcmp(&a->im, &b->im, sizeof a->im) == 0);
}

static bool same_view(const struct view *a, const struct view *b)
{
    size_t n = sizeof *a->shape * (size_t)a->rank;
    return a->rank == b->rank && a->offset == b->offset && memcmp(a->shape, b->shape, n) == 0 &&
           memcmp(a->strides, b->strides, n) == 0;
}

static bool same_binding(const struct plan_name *was, const struct binding *now)
{
    const struct binding *b = &was->binding;
    if (b->kind != now->kind)
        return false;
    switch (b->kind) {
    case BINDING_NONE:
        return true;
    case BINDING_ARRAY:
        return b->dtype == now->dtype && same_view(&b->view, &now->view) &&
               was->loose == is_loose(now);
    case BINDING_LITERAL:
        return same_literal(&b->lit, &now->lit);
    case BINDING_SCALAR:
        return b->scalar.dtype == now->scalar.dtype &&
               memcmp(&b->scalar.v, &now->scalar.v, dtype_size(b->scalar.dtype)) == 0;
    }
    return false;
}

static struct array **input_arrays(const struct plan_entry *en, struct array *const *by_name,
                                   struct arena *arena)
{
    struct array **ret = arena_alloc_array(arena, en->typed.n_inputs + 1, sizeof *ret);
    for (uint32_t i = 0; ret && i < en->typed.n_inputs; i++)
        ret[i] = by_name[en->input_names[i]];
    return ret;
}

/* The arrays behind the entry's names now, or NULL where it does not fit. */
static struct array **matches(const struct plan_entry *en, const struct check_env *env,
                              struct arena *arena)
{
    struct array **by_name = arena_alloc_array(arena, en->n_names + 1, sizeof *by_name);
    if (!by_name)
        return NULL;
    for (uint32_t i = 0; i < en->n_names; i++) {
        struct binding now = {0};
        if (env->resolve(env->user, en->names[i].name, &now, NULL) != ERR_OK ||
            !same_binding(&en->names[i], &now))
            return NULL;
        if (now.kind != BINDING_ARRAY)
            continue;
        by_name[i] = now.array;
        uint32_t first = 0;
        while (by_name[first] != now.array)
            first++;
        if (first != en->names[i].same_as)
            return NULL;
    }
    return input_arrays(en, by_name, arena);
}

struct plan_entry *plan_cache_find(struct plan_cache *c, const char *key, size_t key_len,
                                   const struct check_env *env, struct arena *arena,
                                   struct array ***ret_arrays)
{
    struct plan_entry *looks[LOOKS], *found = NULL;
    size_t n = 0;
    uint64_t hash = hash_of(key, key_len);
    pthread_mutex_lock(&c->lock);
    for (struct plan_entry *en = *bucket(c, hash); en && n < LOOKS; en = en->chain)
        if (en->hash == hash && en->key_len == key_len && memcmp(en->key, key, key_len) == 0)
            looks[n++] = entry_ref(en);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < n; i++) {
        struct array **arrays = found ? NULL : matches(looks[i], env, arena);
        if (arrays) {
            found = looks[i];
            *ret_arrays = arrays;
        } else {
            plan_entry_unref(looks[i]);
        }
    }
    pthread_mutex_lock(&c->lock);
    if (found) {
        c->hits++;
        if (found->entered && found != c->newest) {
            unlink_age(c, found);
            link_newest(c, found);
        }
    } else {
        c->misses++;
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* --- entering --- */

static bool name_inputs(struct plan_entry *en, const struct plan_recorder *r,
                        struct array **by_name)
{
    struct typed *t = &en->typed;
    en->input_names = arena_alloc_array(en->arena, t->n_inputs + 1, sizeof *en->input_names);
    if (!en->input_names)
        return false;
    for (size_t i = 0; i < r->n_names; i++)
        by_name[i] = r->names[i].array;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        uint32_t n = 0;
        while (n < r->n_names && by_name[n] != t->inputs[i].array)
            n++;
        if (n == r->n_names)
            return false; /* an array that no name gave: not ours to find again */
        en->input_names[i] = n;
        t->inputs[i].name = r->names[n].name;
    }
    return true;
}

struct array **plan_cache_add(struct plan_entry *en, const struct plan_recorder *r, const char *key,
                              size_t key_len, struct arena *arena)
{
    struct plan_cache *c = en->cache;
    struct array **by_name = arena_alloc_array(arena, r->n_names + 1, sizeof *by_name);
    en->key = key ? arena_dup(en->arena, key, key_len) : "";
    if (!by_name || !en->key || !name_inputs(en, r, by_name))
        return NULL;
    struct array **arrays = input_arrays(en, by_name, arena);
    if (!arrays)
        return NULL;
    for (uint32_t i = 0; i < en->typed.n_inputs; i++)
        en->typed.inputs[i].array = NULL;
    for (size_t i = 0; i < r->n_names; i++)
        r->names[i].array = NULL;
    en->key_len = key_len;
    en->hash = hash_of(key, key_len);
    en->names = r->names;
    en->n_names = (uint32_t)r->n_names;
    if (!c->capacity || !key)
        return arrays;
    struct plan_entry *old = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->n >= c->capacity) {
        old = c->oldest;
        take_out(c, old);
    }
    en->chain = *bucket(c, en->hash);
    *bucket(c, en->hash) = entry_ref(en);
    link_newest(c, en);
    en->entered = true;
    c->n++;
    pthread_mutex_unlock(&c->lock);
    plan_entry_unref(old);
    return arrays;
}
