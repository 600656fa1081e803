/* The requests that a reader answers, one after another.
 *
 * Called by main, when the process is behind its walls, and by the fuzz target. */
#ifndef ARRAYD_READER_REQUESTS_H
#define ARRAYD_READER_REQUESTS_H

#include "server/reader/format.h"

/* Until the socket ends, and with it the process. */
_Noreturn void requests_serve(const struct reader_limits *limits);

#endif
