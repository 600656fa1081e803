/* What the files of this room share: the memory that outlives the process, and the lock over its
 * lists. The table of running work is not under that lock: its slots are taken atomically. */
#ifndef ARRAYD_CULPRIT_INT_H
#define ARRAYD_CULPRIT_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "compute/culprit/culprit.h"

#define RUNNING_MOST 1024

enum { SLOT_FREE, SLOT_TAKEN, SLOT_RUNS, SLOT_CRASHED /* of a previous process */ };

struct running_slot {
    _Atomic uint32_t state;
    uint32_t n_kernels;
    struct code_key plan;
    bool alone;
    char form[CULPRIT_FORM]; /* "": a job, without a plan */
    char who[CULPRIT_WHO];
    char job[CULPRIT_JOB];
};

/* In memory that the next process may map: plain data only, and checked before it is used
 * (culprit.c). */
struct culprits_memory {
    char magic[16];
    char version[32];
    bool unsaved; /* the file does not have all of it */
    int32_t n, n_strikes;
    struct culprit_entry entries[CULPRITS_MOST];
    struct culprit_strike strikes[CULPRITS_MOST]; /* oldest first */
    struct running_slot slots[RUNNING_MOST];
};

struct culprits {
    pthread_mutex_t lock;
    struct culprits_memory *m;
    int fd;
    bool kept;
    int dir;
    struct timespec modified; /* of the file when last read or written; 0: there was none */
    off_t size;
    _Atomic int n, n_refused, n_strikes; /* of m, to be read without the lock */
    _Atomic uint32_t hint;               /* where to look for a free slot */
    struct culprit_left *left;
    uint32_t n_left;
    char job_left[CULPRIT_JOB]; /* a job that was under way, of n_jobs_left */
    uint32_t n_jobs_left;
    bool crashed;
    int64_t limit; /* culprits_limit */
    double window_s;
};

/* entries.c; with the lock held. */
struct culprit_entry *culprits_find(struct culprits *c, const struct code_key *key);
/* A full list drops an entry under suspicion before a refused one. */
void culprits_add(struct culprits *c, const struct culprit_entry *e);
void culprits_counted(struct culprits *c); /* after a change */
void culprits_add_strike(struct culprits *c, const struct culprit_strike *s);
/* file.c; with the lock held. culprits_read: unless the file is the one last read or written.
 * culprits_write: false if that failed. */
#define CULPRITS_DATE 24
void culprits_date(time_t t, char ret[CULPRITS_DATE]);
void culprits_read(struct culprits *c);
bool culprits_write(struct culprits *c);

#endif
