/* Compiled kernels, in memory over disk, so that a text is compiled once.
 *
 * Called by the CUDA backend, on the threads that compile (not on those that serve HTTP: kcache_get
 * blocks). The cache owns its entries, which are refcounted; who got one may keep it, even after
 * kcache_free. All functions are thread-safe. Nothing here logs: what went wrong with the disk is
 * in the statistics, for the cache works without it. */
#ifndef ARRAYD_CUDA_KCACHE_H
#define ARRAYD_CUDA_KCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/gpu/api/loader.h"

struct kcache;

struct kcache_config {
    const char *dir;        /* folder of the disk cache, made when missing; NULL: memory only */
    int64_t max_disk_bytes; /* what the files may take; 0: memory only */
    int64_t max_entries;    /* in memory; those in use stay beyond it */
    void (*user_free)(void *user); /* for kcache_entry.user, by whoever drops the last reference */
    int64_t refusal_ms;            /* how long a refusal is remembered; 0: a minute */
};

/* SHA-256 over everything the code depends on: text, device headers, options, architecture, and the
 * versions of NVRTC and arrayd. */
struct kcache_key {
    uint8_t sha[32];
};
/* In hexadecimal: as files of the folder, the log and the list of refused kernels name it. */
#define KCACHE_KEY_TEXT 65
void kcache_key_text(const struct kcache_key *key, char ret[KCACHE_KEY_TEXT]);

/* Constant but for `user`, which is NULL at first and for the backend to set (compare and swap: two
 * threads may come at once). */
struct kcache_entry {
    struct kcache_key key;
    const void *bytes; /* for cuModuleLoadData */
    size_t n;
    bool from_disk; /* not compiled by this process */
    _Atomic(void *) user;
};

enum kcache_how { KCACHE_MEMORY, KCACHE_DISK, KCACHE_COMPILED };

struct kcache_stats {
    int64_t memory_hits, disk_hits; /* answers; compiled and failed ones too */
    int64_t compiled, failed;       /* compilations */
    int64_t waited;                 /* answers that came from another caller's compilation */
    double compile_ms;              /* sum over compilations, failed ones included */
    int64_t entries, bytes;         /* in memory now */
    int64_t disk_bytes;             /* about; other daemons may share the folder */
    int64_t disk_errors;            /* files that could not be written, read or trusted */
    char disk_problem[256];         /* the last of these, or why there is no disk cache; "" */
};

/* The config is copied; nvrtc must outlive the cache. ERR_OUT_OF_MEMORY only: a folder that cannot
 * be used, or that others can write to, means a cache without disk (disk_problem). */
enum err_code kcache_new(const struct kcache_config *config, const struct nvrtc *nvrtc,
                         struct kcache **ret, struct err *e) must_check;
/* When no call is under way. */
void kcache_free(struct kcache *c);

struct kcache_key kcache_key(const struct kcache *c, const char *arch, const char *source,
                             bool fast_math);

/* The entry with one more reference when it is in memory, else NULL. Does not block. */
struct kcache_entry *kcache_find(struct kcache *c, const struct kcache_key *key);

/* The code of the text (as compile_text takes it) from memory, from disk or compiled now; one more
 * reference in *ret. Callers of one text at one time share one compilation, and its failure;
 * different texts are compiled side by side. Errors: compile_text()'s; while a refusal is
 * remembered the text is not tried again. */
enum err_code kcache_get(struct kcache *c, const char *arch, const char *source, bool fast_math,
                         struct kcache_entry **ret, enum kcache_how *ret_how,
                         struct err *e) must_check;

/* Refusals: that a text does not compile (ERR_INTERNAL, not a want of memory) is remembered for
 * kcache_config.refusal_ms, of some dozens of texts. A refusal has a number, never 0, by which its
 * reason is found as long as it is remembered. */
#define KCACHE_REASON 512
uint64_t kcache_refusal(struct kcache *c, const struct kcache_key *key); /* 0: there is none */
/* Remembers one that was not found by compiling: code that does not load. */
void kcache_refuse(struct kcache *c, const struct kcache_key *key, const struct err *why);
/* One line for a person, without paths of this machine; "" when it is forgotten. */
void kcache_reason(struct kcache *c, uint64_t refusal, char ret[KCACHE_REASON]);

/* The driver refuses the entry's code. What came from disk goes, there and from memory, so that
 * kcache_get compiles the text anew. False: it was compiled here, and would be the same again. */
bool kcache_reject(struct kcache *c, const struct kcache_entry *entry);

struct kcache_entry *kcache_ref(struct kcache_entry *entry);
void kcache_unref(struct kcache_entry *entry); /* NULL is fine */

void kcache_get_stats(struct kcache *c, struct kcache_stats *ret);
/* The cache's descriptor of its folder; −1 where no folder can be used. */
int kcache_folder(const struct kcache *c);

#endif
