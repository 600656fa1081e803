/* `arrayd upgrade [PID]`: asks a keeper to replace its daemon by the program as it is installed
 * now.
 *
 * main.c passes it the command line instead of starting the daemon. */
#ifndef ARRAYD_KEEPER_UPGRADE_H
#define ARRAYD_KEEPER_UPGRADE_H

/* argv[0] is "upgrade". Returns the exit status when another daemon runs: 0; 1: none does; 2: wrong
 * usage. Says on standard error what went wrong. */
int upgrade_main(int argc, char **argv);

#endif
