/* Where the program that runs is found again. Called once, at the start. */
#ifndef ARRAYD_KEEPER_PROGRAM_H
#define ARRAYD_KEEPER_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

/* The program that runs (*ret: a descriptor), and the name by which it was started, which may lead
 * to another program later; else what it led to. A container or a chroot may have no /proc. */
bool program_find(char ret_path[PATH_MAX], int *ret);

#endif
