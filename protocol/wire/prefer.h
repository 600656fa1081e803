/* The header Prefer; two preferences are known: wait=SECONDS and respond-async (RFC 7240, sections
 * 4.3 and 4.1).
 *
 * Called by http_wait.c and handlers_patch.c. Pure; thread-safe. */
#ifndef ARRAYD_PREFER_H
#define ARRAYD_PREFER_H

#include <stdbool.h>
#include <stdint.h>

#define PREFER_WAIT_MAX 1000000000 /* seconds; larger values are reduced to this */

/* The seconds of the first `wait`, -1 without one. NULL: no header. Malformed or unknown
 * preferences are ignored, as the RFC requires: a preference is never a reason to refuse a request.
 */
int64_t prefer_wait(const char *value);
/* Whether the reply need not wait for the work. */
bool prefer_async(const char *value);

#endif
