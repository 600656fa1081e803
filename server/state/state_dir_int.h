/* Shared by the two files of the folder: state_dir.c, which writes, and state_dir_read.c. */
#ifndef ARRAYD_SERVER_STATE_DIR_INT_H
#define ARRAYD_SERVER_STATE_DIR_INT_H

#include <dirent.h>

#include "server/state/state_dir.h"

#define STATE_FORMAT "arrayd-state 1 "
#define POINTER_MAX  128
#define STATE_NAME   32

struct state_dir {
    char *path;
    int fd, lock;
    uint64_t current; /* number of the last snapshot, if known; or 0 */
    uint64_t beside;  /* number of an older one that is kept; or 0 */
};

/* Sets the error from errno, as state_dir.h says. */
enum err_code state_dir_failed(const struct state_dir *d, const char *what, struct err *e);
void state_close_fd(int *fd);

void state_name_of(const char *kind, uint64_t number, char ret[STATE_NAME]);
/* The number in "<kind>-N", written as state_name_of does; 0: the name is another. */
uint64_t state_number_of(const char *kind, const char *name);
DIR *state_dir_list(int folder, const char *name); /* NULL: it cannot be read */

#endif
