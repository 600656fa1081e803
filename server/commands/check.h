/* Whether this program could be started with its configuration, asked by the keeper before an
 * upgrade: what the configuration names is opened, and nothing is changed. One thread. */
#ifndef ARRAYD_SERVER_CHECK_H
#define ARRAYD_SERVER_CHECK_H

#include "compute/base/err.h"

struct config;

/* `journal`: the descriptor of the running daemon's (borrowed), or −1. Its sockets, by their
 * descriptors, are in the environment (KEEPER_SOCKETS_ENV). The error says what is in the way. */
enum err_code check_start(const struct config *c, int journal, struct err *e) must_check;

#endif
