/* How long to wait before the next start. One thread. */
#ifndef ARRAYD_KEEPER_PACE_H
#define ARRAYD_KEEPER_PACE_H

#include <stdint.h>

#define PACE_DEATHS 1000
#define PACE_MOST_S 30.0 /* the longest wait */

struct pace {
    uint64_t deaths[PACE_DEATHS]; /* when they came; 0: there were not so many */
    int last;
};

/* Seconds after so many failures in a row: none after the first. */
double pace_delay(int failures);
/* Notes a death; the seconds to wait if there were more than `most` within a minute (0: any number,
 * at most PACE_DEATHS). A daemon that lasts for a moment and dies, again and again, is put off more
 * and more, and not quite the same on each of many machines. */
double pace_after_death(struct pace *p, int64_t most);

#endif
