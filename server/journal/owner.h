/* Whose keys there are, and how much each owner has: the owner is what stands before a key's first
 * '/'.
 *
 * Called by journal.c, which locks the table. */
#ifndef ARRAYD_JOURNAL_OWNER_H
#define ARRAYD_JOURNAL_OWNER_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/table.h"
#include "server/journal/record.h"

struct owner {
    size_t live; /* bytes; the caller's */
    size_t keys;
    UT_hash_handle hh;
    char name[RECORD_KEY_MOST + 1];
};

/* The owner of another key, found or made; *ret NULL: it has none. False without memory. */
bool owner_enter(struct owner **all, const struct record_item *x, struct owner **ret);
void owner_leave(struct owner **all, struct owner *o); /* a key is gone; NULL allowed */
const struct owner *owner_find(struct owner *all, const char *name); /* NULL: has no keys */

#endif
