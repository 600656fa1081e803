/* `arrayd token add|list|remove`, `arrayd account remove`: the accounts file, changed by its owner
 * at a terminal.
 *
 * main.c hands it the command line in the place of starting the daemon. */
#ifndef ARRAYD_SERVER_TOKEN_CMD_H
#define ARRAYD_SERVER_TOKEN_CMD_H

/* argv[0] is "token", or "account". The exit status: 0, 1 (it did not work), 2 (wrong usage); what
 * went wrong is on standard error. */
int token_main(int argc, char **argv);
int account_main(int argc, char **argv);

#endif
