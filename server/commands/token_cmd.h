/* `arrayd token add|list|remove`, `arrayd account remove`: the owner of the accounts file changes
 * it from a terminal.
 *
 * main.c passes it the command line instead of starting the daemon. */
#ifndef ARRAYD_SERVER_TOKEN_CMD_H
#define ARRAYD_SERVER_TOKEN_CMD_H

/* argv[0] is "token" or "account". Returns the exit status: 0, 1 (failed), 2 (wrong usage); errors
 * are printed on standard error. */
int token_main(int argc, char **argv);
int account_main(int argc, char **argv);

#endif
