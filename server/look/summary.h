/* GET /v1/arrays/{ref}/summary: figures of an array's elements.
 *
 * Called by the handler. Counts and extremes are exact, of integers too; percentiles are read off
 * the histogram, or searched for (exact). */
#ifndef ARRAYD_SERVER_SUMMARY_H
#define ARRAYD_SERVER_SUMMARY_H

#include "server/http/http.h"

/* Waits for the device's turn, then replies. */
void summary_reply(struct request *req);

#endif
