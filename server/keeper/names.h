/* The names of what the service manager stores. It gives descriptors back with all their names in
 * one string of the environment, and a program with a string of 128 KiB or more cannot be started
 * (execve(2)): so the manager gets numbers for names, and the names themselves are in a file in
 * memory, which it stores, too.
 *
 * A number is used again only after its last descriptor is known to have left the store. Called by
 * notify.c. One thread. */
#ifndef ARRAYD_KEEPER_NAMES_H
#define ARRAYD_KEEPER_NAMES_H

#include <stdbool.h>

#include "server/keeper/link.h"

#define NAMES_FILE "names"          /* what the file itself is stored as */
#define NAMES_TEXT (LINK_NAME + 16) /* of a name, with what is appended to it */
#define NAMES_MOST 20000            /* numbers: with five digits they all fit */

/* The file, or −1. */
int names_file(void);
/* Makes a new one; false, with errno, on failure. */
bool names_create(void);
/* One that another process left; it is this process's from now on. */
void names_take(int take_fd);

/* A number of that file came with a descriptor, and is not free. Its name; NULL: none. */
const char *names_claim(int number);
/* A free number below `most`, which stands for this name from now on; −1: all are taken. */
int names_add(const char *text, int most);
/* −1: no number stands for it. */
int names_find(const char *text);
/* The number stands for no name any more, but is not free. */
void names_forget(int number);
void names_free(int number);
/* How many are not free. */
int names_count(void);

#endif
