/* Who is to blame when a device faults or the process dies: work that is refused, work that is
 * suspected, and users whose work did it again and again.
 *
 * A fault says that something on the device did something forbidden, not which kernel it was. Work
 * that was there alone is refused from then on. Of several pieces of work each is suspected: it has
 * the device to itself the next time (alone.h). If it comes through, it is cleared; if it faults
 * again, it is refused. So nothing is refused for what ran beside something else.
 *
 * All of it lies in memory whose descriptor may be kept for the next process, as does a table of
 * the work that is running, which tells that process what was under way when this one died. It is
 * also in a file of the kernel cache's folder, where there is one, a line each, that an operator
 * may edit or delete at any time: what it no longer names runs again. Keys change with arrayd's
 * version and the compiler's, so only the versions that made the code refuse it.
 *
 * Opened by main.c, or by a backend that was given none; the backends ask before they run work.
 * Thread-safe. */
#ifndef ARRAYD_CULPRIT_H
#define ARRAYD_CULPRIT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "compute/base/err.h"
#include "compute/culprit/key.h"

struct culprits;

#define CULPRITS_MOST   256 /* lines; beyond that the oldest are dropped, those not refused first */
#define CULPRITS_TEXT   512
#define CULPRITS_NUMBER (UINT64_C(1) << 63) /* set in all numbers from culprits_judge */
#define CULPRIT_FORM    24
#define CULPRIT_WHY     160
#define CULPRIT_WHO     72
#define CULPRIT_JOB     32
#define FAULTED_FILE    "faulted" /* in the kernel cache's folder */

/* shared: in memory with a descriptor (culprits_fd). take_fd: that of the previous process, or −1;
 * its contents are taken over if the same version wrote them. NULL without memory. */
struct culprits *culprits_open(bool shared, int take_fd);
void culprits_close(struct culprits *c);   /* NULL allowed */
int culprits_fd(const struct culprits *c); /* −1 if it is not shared */
/* Somebody keeps the descriptor: what is written there is not lost with this process. One that was
 * taken over is kept already. */
void culprits_kept(struct culprits *c);
bool culprits_are_kept(const struct culprits *c);
/* From now on the list is in that folder's file, too, which is read. `dir` stays the caller's; −1:
 * in none. */
void culprits_folder(struct culprits *c, int dir);

/* --- work --- */

enum culprit_state {
    CULPRIT_SUSPECT, /* it was on the device with other work: it runs alone the next time */
    CULPRIT_PART,    /* of a plan that is refused: the same */
    CULPRIT_REFUSED
};
const char *culprit_state_name(enum culprit_state state);

/* Kernels that one piece of work had on the device, each once. */
struct culprit_kernel {
    struct code_key key;
    const char *form;
    bool refused; /* set: it is refused from now on */
};
struct culprit_work {
    struct culprit_kernel *kernels;
    uint32_t n_kernels;
    struct code_key plan; /* of all the kernels it consists of */
};
/* Records what was on the device, and nothing else, when it faulted; why: one line. Not `sure`: it
 * may not have been that, and is only suspected. False: it could not be saved, and the next process
 * will not know of it. */
bool culprits_fault(struct culprits *c, const char *why, struct culprit_work *works, uint32_t n,
                    bool sure);

/* Whether nothing is listed; does not lock. */
bool culprits_is_empty(const struct culprits *c);
struct culprit_verdict {
    enum err_code code; /* ERR_OK; ERR_FAULTED: a kernel is refused; ERR_PLAN_FAULTED: the plan */
    uint64_t refusal;   /* for culprits_reason; 0: none */
    bool alone;         /* it may run, but beside nothing else */
};
/* Judges work by its plan and by its kernels, each given once (n 0: by the plan alone). If the work
 * is listed, the file is read again first: somebody may have removed it there. */
struct culprit_verdict culprits_judge(struct culprits *c, const struct code_key *keys, uint32_t n,
                                      const struct code_key *plan);
/* It ran alone without a fault. */
void culprits_cleared(struct culprits *c, const struct code_key *keys, uint32_t n,
                      const struct code_key *plan);
/* Whether that kernel is refused, or was part of a plan that is: avoid it where possible. */
bool culprits_avoids(struct culprits *c, const struct code_key *key);
/* A sentence for a person; "" if it is no longer refused. */
void culprits_reason(struct culprits *c, uint64_t number, char ret[CULPRITS_TEXT]);
/* How many kernels and plans are refused; how many are only suspected. */
int culprits_count(const struct culprits *c);
int culprits_suspects(struct culprits *c);
/* culprits_count for a folder that nobody has opened; 0 also if it cannot be read. */
int culprits_count_in(const char *folder);

/* --- what is running --- */

/* Whose work it is; NULL: not known. */
struct culprit_who {
    const char *name; /* the user's */
    const char *job;  /* the job's id; "" if it is not of a job */
};
/* Until culprits_end: that plan is on a device. alone: because it is suspected. Returns a number;
 * 0: there is no room. Some ten nanoseconds. */
uint32_t culprits_begin(struct culprits *c, const struct code_key *plan, uint32_t n_kernels,
                        const char *form, struct culprit_who who, bool alone);
/* The same for a job: kernels are made for it, or run, or their results are taken. */
uint32_t culprits_begin_job(struct culprits *c, const char *job);
void culprits_end(struct culprits *c, uint32_t number); /* 0 allowed */

/* What the previous process was running when it ended; and one that crashed before it, if nobody
 * has called culprits_crashed since. */
struct culprit_left {
    uint32_t slot;
    struct code_key plan;
    char form[CULPRIT_FORM];
    char who[CULPRIT_WHO], job[CULPRIT_JOB];
    bool alone;
    bool refused; /* set by culprits_crashed */
};
const struct culprit_left *culprits_left(const struct culprits *c, uint32_t *ret_n);
/* How the previous process ended, before this one's work begins: what it was running is forgotten
 * unless it crashed. That is known to later processes, too, until culprits_crashed. */
void culprits_ended(struct culprits *c, bool crashed);
/* It died of a crash: all of that is suspected. The rest of the process was beside it, so even one
 * piece of work alone is refused only if it had been suspected before. False: as culprits_fault. */
bool culprits_crashed(struct culprits *c, const char *why);
/* The job that it crashed of, as far as is known: all that was running was the job's, or nothing
 * was on a device, and this was the only job under way. "": none, or it did not crash. */
const char *culprits_crashed_of(const struct culprits *c);

/* --- users --- */

/* `limit` faults of a user's work alone within `window_s` seconds bar the user for as long; 0:
 * never. */
void culprits_limit(struct culprits *c, int64_t limit, double window_s);
/* Work of that user alone was there. Returns culprits_strikes then. */
int64_t culprits_strike(struct culprits *c, const char *who);
/* How many faults of the user's there were within the window up to the last one; 0: that one is
 * older. */
int64_t culprits_strikes(struct culprits *c, const char *who);
/* The seconds for which the user's work is still refused; 0: it is not. */
double culprits_barred(struct culprits *c, const char *who);
/* ERR_PRINCIPAL_FAULTED while it is refused. c NULL allowed. */
enum err_code culprits_admit(struct culprits *c, const char *who, struct err *e) must_check;

/* --- for operators --- */

struct culprit_entry {
    struct code_key key; /* of a kernel, or of a plan's kernels together */
    enum culprit_state state;
    time_t at;
    char form[CULPRIT_FORM], why[CULPRIT_WHY];
};
struct culprit_strike {
    time_t at;
    char who[CULPRIT_WHO];
};
/* Both are called with the list locked, and must not call this module. */
void culprits_each(struct culprits *c, void (*work)(void *user, const struct culprit_entry *e),
                   void (*strike)(void *user, const struct culprit_strike *s), void *user);
/* Forgets the work with that key and the faults of the user of that name; NULL: everything. Returns
 * how many. */
int culprits_forget(struct culprits *c, const char *which);

#endif
