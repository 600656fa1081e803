/* What outlives the daemon: its arrays' memory, and a journal of what clients have, held by the
 * keeper; and how the next daemon takes them over.
 *
 * Used by main.c: opened before the engine, which is told where to keep memory; recovered before
 * the first request; stopped when ends of requests and exports must no longer be recorded. Without
 * a keeper, or without keep-arrays, *ret of survive_open is NULL. If no device's memory can outlive
 * the process, nothing else does either: arrays and their owners are restored from the state on
 * disk. */
#ifndef ARRAYD_SERVER_SURVIVE_H
#define ARRAYD_SERVER_SURVIVE_H

#include <stdbool.h>

#include "compute/base/err.h"

struct config;
struct engine_config;
struct hold;
struct journal_writer;
struct observer;
struct server;
struct survive;

/* *ret NULL without `hold` or keep-arrays. ERR_OUT_OF_MEMORY. */
enum err_code survive_open(const struct config *config, struct hold *hold, struct survive **ret,
                           struct err *e) must_check;
void survive_free(struct survive *v); /* after the engine; NULL allowed */

/* Before engine_open, once ec->backend is set. NULL allowed. ERR_STATE: what was left is of another
 * backend. */
enum err_code survive_configure(struct survive *v, struct engine_config *ec,
                                struct err *e) must_check;
/* Once the engine is open: why its arrays do not outlive the process, static text; NULL: they do.
 * Without `v`, too. */
const char *survive_problem(struct survive *v, const struct server *s);
/* Gets the changes of the tables; NULL: they need not report them. NULL allowed. */
const struct observer *survive_observer(struct survive *v);
/* Takes over what the previous process left; *ret false: it left nothing, and the state on disk may
 * be restored. NULL allowed. */
enum err_code survive_recover(struct survive *v, struct server *s, bool *ret,
                              struct err *e) must_check;
/* What could not be taken over, in words; "": nothing. Static as long as `v`, which may be NULL. */
const char *survive_missing(const struct survive *v);
/* Whether the next process finds everything that clients have: nothing is in memory that the keeper
 * does not have, and nothing could not be written down. NULL allowed: it does not. */
bool survive_holds_all(struct survive *v);
/* From here on nothing is written down, and nothing let go: the next process is to find what is
 * there now. NULL allowed. */
void survive_stop(struct survive *v);

struct journal_writer *survive_writer(struct survive *v); /* for its metrics; NULL allowed */

#endif
