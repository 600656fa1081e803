/* Plans kept for expressions that come again: the typed graph and its kernels, so that a repeated
 * request skips checking and lowering, and, on a device, code generation.
 *
 * Called by evaluate.c. A plan is found by what the request says, byte for byte (the expression
 * with its literals, the target's geometry), and by what its names mean now (dtypes, geometry,
 * which names are the same array, the values of bound scalars); nothing rests on a hash alone.
 * Arrays are not part of it: no reference is kept, whoever uses a plan brings his own. Thread-safe;
 * entries are immutable and reference-counted, the least recently used go first. */
#ifndef ARRAYD_PLAN_CACHE_H
#define ARRAYD_PLAN_CACHE_H

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/check.h"
#include "compute/ir.h"

struct plan_cache;
struct plan_name;

struct plan_entry {
    _Atomic uint32_t refs;
    struct arena *arena; /* all below lives here, the entry itself too */
    struct typed typed;  /* its inputs' arrays are NULL */
    struct ir_plan *plan;
    struct ir_plan *staged; /* see stage in run.c; made when first wanted, under the lock */

    /* the cache's own */
    struct plan_cache *cache;
    bool entered;
    uint64_t hash;
    const char *key;
    size_t key_len;
    const struct plan_name *names;
    uint32_t n_names;
    uint32_t *input_names; /* by typed input */
    struct plan_entry *chain, *newer, *older;
};

/* Told of an entry's kernels before they go; may be NULL. */
typedef void plan_release(void *user, struct ir_plan *plan);

/* Keeps up to `capacity` entries; 0: none. NULL without memory. */
struct plan_cache *plan_cache_new(uint32_t capacity, plan_release *release, void *user);
void plan_cache_free(struct plan_cache *c); /* after every entry is released */

struct plan_counts {
    uint64_t hits, misses;
    uint32_t entries;
};
void plan_cache_counts(struct plan_cache *c, struct plan_counts *ret);

/* Names as they are resolved: passed to check_expr as its environment, remembers the answers. */
struct plan_recorder {
    struct check_env env; /* to be used; zero but for what plan_record_begin sets */
    const struct check_env *inner;
    struct arena *arena;
    struct plan_name *names;
    size_t n_names, cap_names;
    bool oom;
};
void plan_record_begin(struct plan_recorder *r, struct arena *arena, const struct check_env *env);

/* Adds an expression to a key that is being built. False where it is too long to be kept. */
bool plan_key_expr(struct strb *key, const struct expr *x);

/* The entry for the key whose names mean now what they meant then, with a reference, and the arrays
 * of its typed inputs (in the order of typed.inputs; `arena` memory, borrowed from the resolver);
 * or NULL. */
struct plan_entry *plan_cache_find(struct plan_cache *c, const char *key, size_t key_len,
                                   const struct check_env *env, struct arena *arena,
                                   struct array ***ret_arrays);

/* An entry of its own, in its arena, with one reference. NULL without memory. */
struct plan_entry *plan_entry_new(struct plan_cache *c);
/* Enters it when it is complete (`key` NULL: it is only used). The arrays are taken out of
 * entry->typed; they are returned as by plan_cache_find. NULL without memory (the entry is
 * unchanged but not entered). */
struct array **plan_cache_add(struct plan_entry *en, const struct plan_recorder *r, const char *key,
                              size_t key_len, struct arena *arena);

/* While a complete entry is added to (en->staged). */
void plan_entry_lock(struct plan_entry *en);
void plan_entry_unlock(struct plan_entry *en);

/* Whether the kernel is one of its plans'. */
bool plan_entry_has(struct plan_entry *en, const struct ir_kernel *k);
void plan_entry_unref(struct plan_entry *en); /* NULL allowed */

#endif
