/* Answers connections while there is no daemon for them: 503, whatever they ask.
 *
 * A connection is answered when its request begins to arrive. What comes then is read and thrown
 * away until the client closes, for a bounded time, since a reply may get lost where a socket is
 * closed with something unread. Nothing here waits.
 *
 * Called by keeper.c. One thread. */
#ifndef ARRAYD_KEEPER_ANSWER_H
#define ARRAYD_KEEPER_ANSWER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/keeper/held.h"

#define ANSWERS_MOST   64 /* connections at once; others wait to be accepted */
#define ANSWERS_POLLED (ANSWERS_MOST + 16)

struct answers {
    struct answered {
        int fd;
        bool said;
        uint64_t until_ns;
    } all[ANSWERS_MOST];
    int n;
    uint64_t rest_ns; /* until then none is accepted: there are no descriptors */
};

/* What to poll: the connections and, with `accepts`, listening sockets, those whose names begin
 * with `prefix`. Returns how many. */
int answers_polled(const struct answers *a, const struct held *table, const char *prefix,
                   bool accepts, struct pollfd ret[ANSWERS_POLLED]);
/* Does what those n are ready for; `accepts` may have ended since. */
void answers_go_on(struct answers *a, const struct pollfd *p, int n, bool accepts);
/* When to call answers_go_on at the latest; 0: never. */
uint64_t answers_until(const struct answers *a);

#endif
