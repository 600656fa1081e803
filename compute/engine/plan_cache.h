/* Cached plans for repeated expressions: the typed graph and its kernels, so that a repeated
 * request skips checking and lowering, and, on a device, code generation.
 *
 * Called by evaluate.c, bind.c, run.c, ghost.c and engine.c, and by program.c and loop_kernels.c of
 * compute/program. The key of a plan has the request byte for byte (the expression with its
 * literals, the target's geometry) and the current meaning of its names (dtypes, geometry, which
 * names are the same array, the values of bound scalars); keys are compared in full, never by hash
 * alone. Arrays are not part of a plan: it holds no reference to any, the user of a plan supplies
 * them. Thread-safe; entries are immutable but for the staged plan, and reference-counted; the
 * least recently used are evicted first. */
#ifndef ARRAYD_PLAN_CACHE_H
#define ARRAYD_PLAN_CACHE_H

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/base/strb.h"
#include "compute/base/table.h"
#include "compute/check/check.h"
#include "compute/ir/ir.h"

struct plan_cache;
struct plan_name;

struct plan_entry {
    _Atomic uint32_t refs;
    struct arena *arena; /* holds everything below, including the entry itself */
    struct typed typed;  /* its inputs' arrays are NULL where it has input_names */
    struct ir_plan *plan;

    /* the cache's own */
    struct plan_cache *cache;
    struct ir_plan *staged; /* see stage in run.c; made when first wanted; under the lock */
    struct arena *staged_arena;
    bool entered;
    uint32_t kept; /* by the cache, and by plan_entry_keep: then the keeper's limits alone apply */
    size_t kept_bytes; /* as counted by plan_entry_keep */
    size_t bytes;
    const char *key;
    uint32_t *input_names; /* by typed input; NULL: not cacheable */
    UT_hash_handle hh;
    struct plan_entry *newer, *older;
    struct plan_entry *chain; /* links entries that are evicted together */
};

/* Called with an entry's kernels before they are freed; may be NULL. */
typedef void plan_release(void *user, struct ir_plan *plan);

struct plan_cache_config {
    uint32_t capacity;   /* entries kept at most; 0: none */
    size_t bytes;        /* most bytes of all entries; a larger entry is not kept */
    size_t kernel_bytes; /* approximate bytes kept elsewhere for a kernel */
    plan_release *release;
    void *user;
};
struct plan_cache *plan_cache_new(const struct plan_cache_config *config); /* NULL without memory */
void plan_cache_free(struct plan_cache *c); /* after every entry is released */

struct plan_counts {
    uint64_t hits, misses;
    uint32_t entries;
    size_t bytes;
};
void plan_cache_counts(struct plan_cache *c, struct plan_counts *ret);

/* An expression's names with their meanings, resolved once. `env` is for check_expr, which then
 * sees the same meanings; it points to the struct, which must not be moved. */
struct plan_names {
    struct check_env env;
    const struct check_env *inner;
    struct plan_name *names; /* arrays borrowed from the resolver */
    size_t n, cap;
    bool complete; /* the checker looked up no other name, and no lookup failed */
};
enum err_code plan_names_resolve(struct plan_names *l, struct arena *arena, const struct expr *x,
                                 const struct check_env *env, struct err *e) must_check;

/* Adds an expression to a key under construction. False if it is too long to be cached. */
bool plan_key_expr(struct strb *key, const struct expr *x);
/* Adds the meanings of its names. False if they are not fully known. */
bool plan_key_names(struct strb *key, const struct plan_names *l);

/* Adds an array's properties that a plan depends on: all but its identity. grid may be NULL. */
void plan_key_geometry(struct strb *key, enum dtype dtype, bool loose_bool, const struct view *v,
                       const struct grid *grid);

/* The entry for the key, with a reference, or NULL. */
struct plan_entry *plan_cache_find(struct plan_cache *c, const char *key, size_t key_len);
/* The arrays of its typed inputs (in the order of typed.inputs, NULL for the target; in `arena`,
 * borrowed from the resolver). `l`: the names that its key was made from. NULL without memory. */
struct array **plan_entry_arrays(const struct plan_entry *en, const struct plan_names *l,
                                 struct arena *arena);

/* A new entry, in an arena of its own, with one reference; counts as a miss. NULL without memory.
 */
struct plan_entry *plan_entry_new(struct plan_cache *c);
/* The entry has its plan now: counts what its kernels take elsewhere. False without memory. */
bool plan_entry_planned(struct plan_entry *en);
/* Adds a complete entry, unless the cache has an equal one. False without memory (the entry is
 * unchanged but not added). `l->complete` must hold. */
bool plan_cache_add(struct plan_entry *en, const struct plan_names *l, const char *key,
                    size_t key_len);

/* The staged plan, NULL while there is none. */
struct ir_plan *plan_entry_staged(struct plan_entry *en);
/* Makes `p`, which lives in the arena, the staged plan unless there already is one; returns the one
 * that counts. */
struct ir_plan *plan_entry_stage(struct plan_entry *en, struct arena *take_arena,
                                 struct ir_plan *p);

/* Keeps the entry beyond any request for a holder other than the cache, which applies a limit of
 * its own, until plan_entry_unkeep: it counts for no request. Both return by how many bytes the
 * total kept in this way has grown or shrunk: 0 if the entry is kept several times. */
size_t plan_entry_keep(struct plan_entry *en);
size_t plan_entry_unkeep(struct plan_entry *en);

/* Whether the kernel belongs to one of its plans. */
bool plan_entry_has(struct plan_entry *en, const struct ir_kernel *k);
struct plan_entry *plan_entry_ref(struct plan_entry *en); /* returns en */
void plan_entry_unref(struct plan_entry *en);             /* NULL allowed */

#endif
