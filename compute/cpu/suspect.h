/* What the pool asks and tells of a job (compute/culprit): may it run at all, or only by itself; it
 * runs; it is over. Without a list nothing is refused and nothing noted. */
#ifndef ARRAYD_CPU_SUSPECT_H
#define ARRAYD_CPU_SUSPECT_H

#include "compute/backend.h"

struct suspect_watch {
    struct culprits *culprits;                    /* NULL: none */
    struct culprit_who (*who)(const void *asker); /* or NULL */
};

/* ERR_FAULTED, ERR_PLAN_FAULTED: it is refused, as job->refusal says. Sets job->alone. */
enum err_code suspect_judge(const struct suspect_watch *w, struct job *job);
void suspect_begins(const struct suspect_watch *w, struct job *job);
void suspect_ends(const struct suspect_watch *w, const struct job *job); /* with its result */

#endif
