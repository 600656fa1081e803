/* The keeper's table of named descriptors. One thread. */
#ifndef ARRAYD_KEEPER_HELD_H
#define ARRAYD_KEEPER_HELD_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/base/table.h"
#include "server/keeper/link.h"

struct held {
    int fd;
    unsigned number; /* the keeper's: how often it was replaced; part of its name in a store */
    UT_hash_handle hh;
    char name[LINK_NAME + 1];
};

/* Takes the descriptor, in place of one of that name. False: no memory; it is closed. */
bool held_put(struct held **table, const char *name, unsigned number, int take_fd);
const struct held *held_find(const struct held *table, const char *name); /* NULL: not held */
bool held_drop(struct held **table, const char *name);           /* false: there was none */
size_t held_count(const struct held *table, const char *prefix); /* whose names begin with it */
/* In a child: those whose names begin so stay open in the program that it runs, their numbers in an
 * environment variable, with blanks between. */
void held_pass(const struct held *table, const char *prefix, const char *variable);
void held_free(struct held **table);

#endif
