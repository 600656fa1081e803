/* Errors on the wire: application/problem+json (RFC 9457). Called by the HTTP front for every
 * failed request. Pure; thread-safe. */
#ifndef ARRAYD_PROBLEM_H
#define ARRAYD_PROBLEM_H

#include "compute/base/err.h"
#include "compute/base/strb.h"

/* Appends {"type","title","status","code","detail"} and, where they apply, "pointer", "offset". The
 * HTTP status is err_status(e->code). */
void problem_write(const struct err *e, struct strb *out);

#endif
