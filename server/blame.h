/* Who is to blame (compute/culprit/culprit.h), as the daemon sees it: the list outlives the process
 * with the keeper, and what was running when the previous process crashed is suspected.
 *
 * Called by main.c and lost.c. */
#ifndef ARRAYD_SERVER_BLAME_H
#define ARRAYD_SERVER_BLAME_H

#include "compute/base/err.h"

struct backend_fault;
struct config;
struct culprit_who;
struct culprits;
struct hold;

/* Before the engine is opened. ERR_OUT_OF_MEMORY. */
enum err_code blame_open(const struct config *config, struct hold *hold, struct culprits **ret,
                         struct err *e) must_check;
/* After it: the file has been read. If the previous process crashed, suspects and logs what was
 * running in it. */
void blame_crash(struct culprits *c, const struct hold *hold);
/* For backend_config.who. */
struct culprit_who blame_who(const void *asker);
/* The device faulted: if only one user's work was there, that counts against the user. */
void blame_fault(struct culprits *c, const struct backend_fault *f);

#endif
