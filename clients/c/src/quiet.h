/*
 * A thread that writes to a connection which its peer has closed gets SIGPIPE; some of libcurl's
 * TLS libraries let it happen. A library must not end its process by that, nor change what the
 * process does with the signal: it is blocked in this thread while a request runs, and one that
 * came of it is taken.
 */
#ifndef ARRAYD_CLIENT_QUIET_H
#define ARRAYD_CLIENT_QUIET_H

#include <signal.h>
#include <stdbool.h>

struct quiet {
    sigset_t before; /* the thread's mask */
    bool pending;    /* one was there already, and is not ours to take */
};

void quiet_begin(struct quiet *quiet);
void quiet_end(const struct quiet *quiet);

#endif
