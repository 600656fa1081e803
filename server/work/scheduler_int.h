/* What scheduler.c (whose turn it is) and scheduler_work.c (what work took) share: users on devices
 * and their lanes. All under the scheduler's one lock, but what is constant; each function here is
 * called with it held. */
#ifndef ARRAYD_SERVER_SCHEDULER_INT_H
#define ARRAYD_SERVER_SCHEDULER_INT_H

#include <pthread.h>

#include "compute/base/worker.h"
#include "server/work/scheduler.h"

/* Turns held, and pieces of work submitted: a turn ends mostly before its work, or the work before
 * the turn, so what is out is the larger of the two. */
struct out {
    int64_t n_turns, n_tasks;
    int64_t n_long;          /* of the turns, by LONG_MS */
    double turn_ms, task_ms; /* what they are expected to take */
    double mean;             /* of a piece of work */
    int64_t most;            /* however little they are expected to take */
};

struct flow {
    struct flow *prev, *next;
    struct device *device;
    const _Atomic uint32_t *user; /* the weight's address; not read but by an ask */
    double weight;
    struct out out;
    double took; /* of all its lanes, for new ones */
    double start;
    uint64_t last_ns; /* of its last event */
    struct sched_turn *waiting;
    struct sched_counts counts;
};

struct device {
    struct flow *flows; /* they stay: who gave up his last lane and comes again is where he was */
    double now;
    struct sched_lane *busy; /* lanes with work on it */
    uint64_t since_ns;       /* up to when their parts of its time are right */
};

struct sched_lane {
    uint32_t refs;
    struct sched *sched;
    struct flow *flow;
    struct out out;
    struct sched_lane *prev, *next; /* device->busy */
    double part;                    /* of the time since its work was charged last, ms */
    double withheld;                /* and while it seemed to wait */
    double took;                    /* a piece of work, by the device, lately */
    uint64_t waits_ns; /* when the next piece should long have ended, if it was not waiting */
};

struct sched {
    uint64_t refs; /* the owner's, and one a lane */
    struct sched_config config;
    pthread_mutex_t lock;
    struct worker worker; /* woken when somebody begins to wait */
    bool open;
    struct sched_counts counts;
    struct device devices[];
};

/* scheduler.c: something of the flow's happens now; whose turn it is now. */
void sched_touch(const struct sched *s, struct flow *f, uint64_t now_ns);
void sched_serve(struct sched *s, struct device *d);
/* scheduler_work.c: the lane's work on the device ran as of then, and did not wait. */
bool sched_is_working(const struct sched_lane *l, uint64_t since_ns);

#endif
