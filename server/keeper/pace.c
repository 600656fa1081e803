/* A ring of when deaths came. */
#include "server/keeper/pace.h"

#include "compute/base/clock.h"

#define FIRST_DELAY_S 0.1
#define RATE_S        60.0 /* over which deaths are counted, */
#define JITTER        0.25 /* and up to this part is taken off the time to the next start then */

double pace_delay(int failures)
{
    double s = failures > 1 ? FIRST_DELAY_S : 0;
    for (int i = 2; i < failures && s < PACE_MOST_S; i++)
        s *= 2;
    return s < PACE_MOST_S ? s : PACE_MOST_S;
}

/* Returns how many there were within RATE_S, this one included. */
static int count(struct pace *p, uint64_t now)
{
    int n = 0;
    p->last = (p->last + 1) % PACE_DEATHS;
    p->deaths[p->last] = now;
    for (int i = 0; i < PACE_DEATHS; i++)
        n += p->deaths[i] && now - p->deaths[i] < (uint64_t)(RATE_S * 1e9);
    return n;
}

double pace_after_death(struct pace *p, int64_t most)
{
    const uint64_t now = clock_ns();
    const int n = count(p, now);
    if (most == 0 || n <= most)
        return 0;
    return pace_delay(n - (int)most + 1) * (1 - JITTER * (double)(now % 1000) / 1000);
}
