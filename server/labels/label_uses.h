/* How many arrays have each array as a coordinate: by the labels of all of one owner's.
 *
 * Kept by the table of handles (server/store), under its lock. Labels that a handle is to get are
 * reserved first, which can fail, so that what follows cannot. */
#ifndef ARRAYD_SERVER_LABEL_USES_H
#define ARRAYD_SERVER_LABEL_USES_H

#include "server/labels/labels.h"

struct label_uses {
    struct label_use *by_id;
};

void label_uses_free(struct label_uses *u); /* of all */
/* A place for each coordinate; NULL labels have none. ERR_OUT_OF_MEMORY: nothing is reserved. */
enum err_code label_uses_reserve(struct label_uses *u, const struct labels *l,
                                 struct err *e) must_check;
/* Instead of what follows. */
void label_uses_cancel(struct label_uses *u, const struct labels *l);
void label_uses_add(struct label_uses *u, const struct labels *l);
bool label_uses_has(const struct label_uses *u, const char *id); /* as an array's coordinate */
/* Whether others than the one with these labels, which were added, have it. */
bool label_uses_beside(const struct label_uses *u, const char *id, const struct labels *own);
/* Of labels that were added; lone() gets the ids that nothing else has as a coordinate. */
void label_uses_lone(const struct label_uses *u, const struct labels *l,
                     void (*lone)(void *user, const char *id), void *user);
/* Of labels that were added; unused() gets the ids that no array has as a coordinate any more. */
void label_uses_drop(struct label_uses *u, const struct labels *l,
                     void (*unused)(void *user, const char *id), void *user);

#endif
