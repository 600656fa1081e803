/* Compiled kernels, cached in memory and on disk, so that a text is compiled once.
 *
 * Called by the CUDA backend, on the threads that compile (not on those that serve HTTP: kcache_get
 * blocks). The cache owns its entries, which are refcounted; a caller may keep one even after
 * kcache_free. All functions are thread-safe. Nothing here logs: problems with the disk are in the
 * statistics, for the cache works without it. */
#ifndef ARRAYD_CUDA_KCACHE_H
#define ARRAYD_CUDA_KCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/culprit/key.h"
#include "compute/gpu/api/loader.h"

struct kcache;

struct kcache_config {
    const char *dir;        /* folder of the disk cache, created if missing; NULL: memory only */
    int64_t max_disk_bytes; /* size limit of the files; 0: memory only */
    int64_t max_entries;    /* in memory; entries in use may exceed it */
    void (*user_free)(
        void *user);    /* for kcache_entry.user, called when the last reference is dropped */
    int64_t refusal_ms; /* how long a refusal is remembered; 0: a minute */
    const char *ready;  /* another folder, that is only read: see kcache_disk.h; NULL: none */
};

/* Constant except `user`, which is NULL at first and set by the backend (compare and swap: two
 * threads may do so at once). */
struct kcache_entry {
    struct code_key key;
    const void *bytes; /* for cuModuleLoadData */
    size_t n;
    bool from_disk; /* not compiled by this process */
    _Atomic(void *) user;
};

enum kcache_how { KCACHE_MEMORY, KCACHE_DISK, KCACHE_COMPILED };

struct kcache_stats {
    int64_t memory_hits, disk_hits; /* answers; also for compiled and failed kernels */
    int64_t compiled, failed;       /* compilations */
    int64_t waited;                 /* answers from another caller's compilation */
    double compile_ms;              /* sum over compilations, failed ones included */
    int64_t entries, bytes;         /* in memory now */
    int64_t disk_bytes;             /* approximate; other daemons may share the folder */
    int64_t disk_errors;            /* files that could not be written, read or trusted */
    char disk_problem[256];         /* the last of these, or why there is no disk cache; "" */
};

/* The config is copied; nvrtc must outlive the cache. ERR_OUT_OF_MEMORY only: with a folder that
 * cannot be used, or that others can write to, the cache has no disk (disk_problem). */
enum err_code kcache_new(const struct kcache_config *config, const struct nvrtc *nvrtc,
                         struct kcache **ret, struct err *e) must_check;
/* Call when no other call is in progress. */
void kcache_free(struct kcache *c);

struct code_key kcache_key(const struct kcache *c, const char *arch, const char *source,
                           bool fast_math);

/* The entry with one more reference if it is in memory, else NULL. Does not block. */
struct kcache_entry *kcache_find(struct kcache *c, const struct code_key *key);

/* Whether the code is in memory or on disk: kcache_get does not compile it then. Reads the file. */
bool kcache_has(struct kcache *c, const char *arch, const char *source, bool fast_math);

/* The code of the text (as compile_text takes it) from memory, from disk or compiled now; one more
 * reference in *ret. Concurrent callers of one text share one compilation, and its failure;
 * different texts are compiled in parallel. Errors: compile_text()'s; while a refusal is remembered
 * the text is not tried again. */
enum err_code kcache_get(struct kcache *c, const char *arch, const char *source, bool fast_math,
                         struct kcache_entry **ret, enum kcache_how *ret_how,
                         struct err *e) must_check;

/* Refusals: that a text does not compile (ERR_INTERNAL, not lack of memory) is remembered for
 * kcache_config.refusal_ms, for some dozens of texts. A refusal has a number, never 0, by which its
 * reason can be looked up as long as it is remembered. */
#define KCACHE_REASON 512
uint64_t kcache_refusal(struct kcache *c, const struct code_key *key); /* 0: not refused */
/* Remembers a refusal not found by compiling: code that does not load. */
void kcache_refuse(struct kcache *c, const struct code_key *key, const struct err *why);
/* One line for a person, without paths of this machine; "" once it is forgotten. */
void kcache_reason(struct kcache *c, uint64_t refusal, char ret[KCACHE_REASON]);

/* Call when the driver rejects the entry's code. Code from disk is deleted there and in memory, so
 * that kcache_get compiles the text anew. False: it was compiled here, and would come out the same.
 */
bool kcache_reject(struct kcache *c, const struct kcache_entry *entry);

struct kcache_entry *kcache_ref(struct kcache_entry *entry);
void kcache_unref(struct kcache_entry *entry); /* NULL is fine */

void kcache_get_stats(struct kcache *c, struct kcache_stats *ret);
/* The cache's descriptor of its folder; −1: no usable folder. */
int kcache_folder(const struct kcache *c);
/* Whether there is a folder to read from, be it one that is only read. */
bool kcache_reads(const struct kcache *c);

#endif
