/* What pictures of arrays (looks.c, events.c) and of expressions (evaluate.c) have in common. */
#ifndef ARRAYD_CLIENT_LOOKS_H
#define ARRAYD_CLIENT_LOOKS_H

#include "clients/c/src/exchange.h"

/* The query of a picture, but for its index. how may be NULL. */
void looks_query(struct exchange *x, const struct arrayd_picture *how);

/* The same, the picture being read into `file`. */
void looks_ask(struct exchange *x, const struct arrayd_picture *how, FILE *file);

/* Runs an exchange whose reply goes to `file`, and frees it. */
int looks_save(struct arrayd *client, struct exchange *x, FILE *file, struct arrayd_error *err);

#endif
